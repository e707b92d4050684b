//! Products of 64 bits that a kernel makes of halves of 16 bits, since WGSL has none: what is behind `mulhi` in random numbers and hashes.
//!
//! With `a = a₁·2¹⁶ + a₀` and b likewise, p = a₀b₀, q = a₁b₀, r = a₀b₁ and s = a₁b₁, the product's high half is s and the high halves of q, r and of
//! what is in the middle, the high half of p and the low ones of q and r. There one of q and r may be whole, and is not added again: the middle still
//! fits into a word. Or it is s and the high halves of `t = q + (p >> 16)` and of `r` and the low half of t. Its low half is the low half of p below
//! that of the middle. Of a constant of 16 bits there are no r and s.

use smallvec::SmallVec;

use super::rewrite::Rewriter;
use crate::ir::Literal;
use crate::kernel::{Binary, Op, Scalar, Value};

/// Values whose sum is looked at, and how many sums deep.
const MOST_VALUES: usize = 8;
const DEPTH: u32 = 8;

type Values = SmallVec<[Value; MOST_VALUES]>;

/// A factor of a product of halves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Half {
    Low(Value),
    High(Value),
    Number(u32),
}

/// The other factor of a product of which `a` is the first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Other {
    Value(Value),
    Number(u32),
}

impl Rewriter {
    /// `x + y` as the high half of a product and the rest of the sum.
    pub(super) fn high_half(&mut self, x: Value, y: Value) -> Option<Value> {
        if self.high(x).is_none() && self.high(y).is_none() || self.scalar(x) != Scalar::U32 {
            return None;
        }
        let mut sum = Values::new();
        self.summands(x, DEPTH, &mut sum);
        self.summands(y, DEPTH, &mut sum);
        if sum.len() > MOST_VALUES {
            return None;
        }
        let (a, b, rest) = (0..sum.len()).find_map(|at| {
            let of = self.high(sum[at])?;
            let mut others = sum.clone();
            others.remove(at);
            self.above_middle(of, &others).or_else(|| self.above_last(of, &others))
        })?;
        let b = self.other(b);
        let high = self.binary(Binary::MulHigh, a, b);
        Some(rest.into_iter().fold(high, |sum, value| self.binary(Binary::Add, sum, value)))
    }

    /// `x | y`, or `x + y`, as the low half of a product.
    pub(super) fn low_half(&mut self, x: Value, y: Value) -> Option<Value> {
        let found = [(x, y), (y, x)].into_iter().find_map(|(above, below)| {
            let (Some(Op::Binary(Binary::Shl, middle, by)), p) = (&self.defs[above.index()], self.low(below)?) else {
                return None;
            };
            if self.literal(*by) != Some(Literal::U32(16)) || self.scalar(p) != Scalar::U32 {
                return None;
            }
            let mut sum = Values::new();
            self.summands(self.low(*middle).unwrap_or(*middle), DEPTH, &mut sum);
            // What is added to the low half of another sum is added to that.
            let is_sum = |value: &Value| matches!(self.defs[value.index()], Some(Op::Binary(Binary::Add, ..)));
            if let Some(at) = sum.iter().position(|value| self.low(*value).as_ref().is_some_and(is_sum)) {
                let t = self.low(sum.remove(at))?;
                self.summands(t, DEPTH, &mut sum);
            }
            let at = sum.iter().position(|value| self.high(*value) == Some(p))?;
            sum.remove(at);
            let crosses: Values = sum.iter().map(|value| self.low(*value).unwrap_or(*value)).collect();
            self.factors(p, &crosses)
        });
        let (a, b) = found?;
        let b = self.other(b);
        Some(self.binary(Binary::Mul, a, b))
    }

    fn other(&mut self, other: Other) -> Value {
        match other {
            Other::Value(value) => value,
            Other::Number(number) => self.constant(Literal::U32(number)),
        }
    }

    /// The factors of a product whose middle is this, and what else is in the sum.
    fn above_middle(&self, middle: Value, others: &Values) -> Option<(Value, Other, Values)> {
        let mut sum = Values::new();
        self.summands(middle, DEPTH, &mut sum);
        if !(2..=3).contains(&sum.len()) {
            return None;
        }
        let at = sum.iter().position(|value| self.high(*value).is_some())?;
        let p = self.high(sum.remove(at))?;
        let crosses: Values = sum.iter().map(|value| self.low(*value).unwrap_or(*value)).collect();
        let (a, b) = self.factors(p, &crosses)?;
        let mut rest = others.clone();
        let mut whole = 0;
        for (cross, added) in crosses.iter().zip(&sum) {
            if cross == added {
                whole += 1;
            } else {
                rest.remove(rest.iter().position(|value| self.high(*value) == Some(*cross))?);
            }
        }
        if whole == crosses.len() {
            return None;
        }
        self.without_top(a, b, rest)
    }

    /// The factors of a product with this as the last sum of its parts, and what else is in the sum.
    fn above_last(&self, last: Value, others: &Values) -> Option<(Value, Other, Values)> {
        let Some(Op::Binary(Binary::Add, x, y)) = self.defs[last.index()] else { return None };
        [(x, y), (y, x)].into_iter().find_map(|(r, low)| {
            let t = self.low(low)?;
            let Some(Op::Binary(Binary::Add, x, y)) = self.defs[t.index()] else { return None };
            let (q, p) = if let Some(p) = self.high(x) { (y, p) } else { (x, self.high(y)?) };
            let (a, b) = self.factors(p, &[q, r])?;
            let mut rest = others.clone();
            rest.remove(rest.iter().position(|value| self.high(*value) == Some(t))?);
            self.without_top(a, b, rest)
        })
    }

    /// Takes the product of both high halves from the rest of a sum.
    fn without_top(&self, a: Value, b: Other, mut rest: Values) -> Option<(Value, Other, Values)> {
        let top = match b {
            Other::Value(b) => (Half::High(a), Half::High(b)),
            Other::Number(number) if number >> 16 == 0 => return Some((a, b, rest)),
            Other::Number(number) => (Half::High(a), Half::Number(number >> 16)),
        };
        rest.remove(rest.iter().position(|value| self.is_product(*value, top))?);
        Some((a, b, rest))
    }

    /// The factors of which `p` is the product of the low halves, and `crosses` those of a low and a high one.
    fn factors(&self, p: Value, crosses: &[Value]) -> Option<(Value, Other)> {
        let (first, second) = self.product(p)?;
        let are = |wanted: [(Half, Half); 2]| match crosses {
            [q, r] => {
                self.is_product(*q, wanted[0]) && self.is_product(*r, wanted[1])
                    || self.is_product(*r, wanted[0]) && self.is_product(*q, wanted[1])
            }
            _ => false,
        };
        match (first, second) {
            (Half::Low(a), Half::Low(b)) => {
                let crossed = [(Half::High(a), Half::Low(b)), (Half::Low(a), Half::High(b))];
                are(crossed).then_some((a, Other::Value(b)))
            }
            (Half::Low(a), Half::Number(low)) | (Half::Number(low), Half::Low(a)) if low <= 0xffff => match crosses {
                [q] if self.is_product(*q, (Half::High(a), Half::Number(low))) => Some((a, Other::Number(low))),
                [q, r] => [q, r].into_iter().find_map(|cross| {
                    let high = match self.product(*cross)? {
                        (Half::Low(x), Half::Number(high)) | (Half::Number(high), Half::Low(x)) if x == a => high,
                        _ => return None,
                    };
                    let crossed = [(Half::High(a), Half::Number(low)), (Half::Low(a), Half::Number(high))];
                    (high <= 0xffff && are(crossed)).then_some((a, Other::Number(high << 16 | low)))
                }),
                _ => None,
            },
            _ => None,
        }
    }

    fn is_product(&self, value: Value, (a, b): (Half, Half)) -> bool {
        self.product(value).is_some_and(|found| found == (a, b) || found == (b, a))
    }

    /// The factors of a value.
    fn product(&self, value: Value) -> Option<(Half, Half)> {
        match self.defs[value.index()] {
            Some(Op::Binary(Binary::Mul, a, b)) => Some((self.half(a)?, self.half(b)?)),
            Some(Op::Binary(Binary::Shl, a, by)) => match self.literal(by) {
                Some(Literal::U32(by @ 0..=15)) => Some((self.half(a)?, Half::Number(1 << by))),
                _ => None,
            },
            _ => None,
        }
    }

    fn half(&self, value: Value) -> Option<Half> {
        match self.literal(value) {
            Some(Literal::U32(number)) => Some(Half::Number(number)),
            _ => self.low(value).map(Half::Low).or_else(|| self.high(value).map(Half::High)),
        }
    }

    /// What a value is the low half of.
    fn low(&self, value: Value) -> Option<Value> {
        match self.defs[value.index()] {
            Some(Op::Binary(Binary::And, x, mask)) if self.literal(mask) == Some(Literal::U32(0xffff)) => Some(x),
            _ => None,
        }
    }

    /// What a value is the high half of.
    fn high(&self, value: Value) -> Option<Value> {
        match self.defs[value.index()] {
            Some(Op::Binary(Binary::Shr, x, by))
                if self.literal(by) == Some(Literal::U32(16)) && self.scalar(x) == Scalar::U32 =>
            {
                Some(x)
            }
            _ => None,
        }
    }

    /// What a value is the sum of.
    fn summands(&self, value: Value, depth: u32, sum: &mut Values) {
        match self.defs[value.index()] {
            Some(Op::Binary(Binary::Add, a, b)) if depth > 0 && sum.len() < MOST_VALUES => {
                self.summands(a, depth - 1, sum);
                self.summands(b, depth - 1, sum);
            }
            _ => sum.push(value),
        }
    }
}
