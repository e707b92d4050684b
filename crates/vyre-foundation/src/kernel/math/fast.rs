//! Functions of f32 for fast arithmetic: a device's own approximations where it has them, else short polynomials. Each keeps the
//! bound that WGSL gives it for finite arguments; subnormal numbers may be taken for zero.

use std::f64::consts::{FRAC_1_PI, FRAC_PI_2, LN_2, LOG2_E, PI};

use hashbrown::{HashMap, HashSet};

use super::Expand;
use crate::kernel::walk::{blocks, each_inst, each_use, end_values};
use crate::kernel::{Approximations, Binary, Block, Inst, Op, Scalar, Unary, Value};

/// Powers with so many factors are products; an exponential of a logarithm is about as long as eight.
const MOST_FACTORS: f32 = 8.0;

/// What is divided by.
#[derive(Clone, Copy)]
pub(super) enum Divisor {
    /// `sqrt(x)`.
    Root(Value),
    /// `x · sqrt(x)`.
    RootCubed(Value),
}

/// The square roots of f32, and their products with what they are roots of, that are used for nothing but to divide by.
pub(super) fn only_divisors(body: &Block) -> HashSet<Value> {
    let mut roots: HashMap<Value, Value> = HashMap::new();
    each_inst(body, &mut |inst| {
        if let Inst::Let(value, Op::Unary(Unary::Sqrt, x)) = inst {
            roots.insert(*value, *x);
        }
    });
    if roots.is_empty() {
        return HashSet::new();
    }
    let is_cubed = |a: &Value, b: &Value| roots.get(a) == Some(b) || roots.get(b) == Some(a);
    let mut found: HashSet<Value> = roots.keys().copied().collect();
    each_inst(body, &mut |inst| match inst {
        Inst::Let(value, Op::Binary(Binary::Mul, a, b)) if is_cubed(a, b) => _ = found.insert(*value),
        _ => {}
    });
    let mut otherwise = Vec::new();
    other_uses(body, &found, &mut otherwise);
    // A root whose product is used otherwise is, too.
    each_inst(body, &mut |inst| match inst {
        Inst::Let(value, Op::Binary(Binary::Mul, a, b)) if otherwise.contains(value) => otherwise.extend([*a, *b]),
        _ => {}
    });
    for value in otherwise {
        found.remove(&value);
    }
    found
}

/// The uses of values but as divisors, and by each other.
fn other_uses(block: &Block, of: &HashSet<Value>, found: &mut Vec<Value>) {
    for inst in &block.insts {
        match inst {
            Inst::Let(_, Op::Binary(Binary::Div, a, _)) => found.push(*a),
            Inst::Let(value, Op::Binary(Binary::Mul, ..)) if of.contains(value) => {}
            inst => each_use(inst, &mut |value| found.push(value)),
        }
        blocks(inst).for_each(|block| other_uses(block, of, found));
    }
    found.extend(end_values(&block.end));
    found.retain(|value| of.contains(value));
}

/// Not one basic operation.
fn is_function(op: Unary) -> bool {
    use Unary as U;
    let exponentials = matches!(op, U::InverseSqrt | U::Exp | U::Exp2 | U::Log | U::Log2);
    let angles = matches!(op, U::Sin | U::Cos | U::Tan | U::Asin | U::Acos | U::Atan);
    exponentials || angles || matches!(op, U::Sinh | U::Cosh | U::Tanh | U::Asinh | U::Acosh | U::Atanh)
}

impl Expand {
    fn has_instructions(&self) -> bool {
        self.approximations == Approximations::Instructions
    }

    /// The function of an f32; nothing where the operation is one that every device has.
    pub(super) fn fast_unary(&mut self, op: Unary, x: Value) -> Option<Value> {
        if self.approximations == Approximations::Functions {
            return is_function(op).then(|| self.un(op, x));
        }
        Some(match op {
            Unary::Sqrt if self.has_instructions() => self.un(Unary::RoughSqrt, x),
            Unary::InverseSqrt => self.un(Unary::RoughInverseSqrt, x),
            Unary::Exp => self.fast_exp(x),
            Unary::Exp2 => self.fast_exp2(x),
            Unary::Log => {
                let log = self.fast_log2(x);
                self.mul_c(log, LN_2)
            }
            Unary::Log2 => self.fast_log2(x),
            Unary::Sin => self.fast_sin(x, false),
            Unary::Cos => self.fast_sin(x, true),
            Unary::Tan => {
                let (sin, cos) = (self.fast_sin(x, false), self.fast_sin(x, true));
                self.fast_div(sin, cos)
            }
            Unary::Tanh => {
                let double = self.mul_c(x, 2.0 * LOG2_E);
                let e = self.fast_exp2(double);
                let below = self.add_c(e, 1.0);
                let part = self.un(Unary::RoughReciprocal, below);
                let one = self.c(x, 1.0);
                self.fma_c(part, -2.0, one)
            }
            Unary::Sinh | Unary::Cosh => {
                let grows = self.fast_exp(x);
                let minus = self.un(Unary::Neg, x);
                let falls = self.fast_exp(minus);
                let both = if op == Unary::Sinh { self.sub(grows, falls) } else { self.add(grows, falls) };
                self.mul_c(both, 0.5)
            }
            Unary::Atan => self.fast_atan(x),
            Unary::Asin | Unary::Acos => {
                let one = self.c(x, 1.0);
                let (less, more) = (self.sub(one, x), self.add(one, x));
                let square = self.mul(less, more);
                let other = self.fast_sqrt(square);
                if op == Unary::Asin { self.fast_atan2(x, other) } else { self.fast_atan2(other, x) }
            }
            Unary::Asinh => {
                let a = self.abs(x);
                let log = self.fast_log_of_sum(a, 1.0);
                self.with_sign(log, x)
            }
            Unary::Acosh => self.fast_log_of_sum(x, -1.0),
            Unary::Atanh => {
                let one = self.c(x, 1.0);
                let (more, less) = (self.add(one, x), self.sub(one, x));
                let ratio = self.fast_div(more, less);
                let log = self.fast_log2(ratio);
                self.mul_c(log, 0.5 * LN_2)
            }
            _ => return None,
        })
    }

    /// The function of two f32; nothing where the operation is one that every device has.
    pub(super) fn fast_binary(&mut self, op: Binary, a: Value, b: Value) -> Option<Value> {
        if op == Binary::Pow
            && let Some(known) = self.known.get(&b).copied()
            && let Some(power) = self.fast_known_power(a, known)
        {
            return Some(power);
        }
        if self.approximations == Approximations::Functions {
            return matches!(op, Binary::Pow | Binary::Atan2).then(|| self.bin(op, a, b));
        }
        Some(match op {
            Binary::Div => self.fast_div(a, b),
            Binary::Atan2 => self.fast_atan2(a, b),
            Binary::Pow => {
                let log = self.fast_log2(a);
                let power = self.mul(b, log);
                self.fast_exp2(power)
            }
            _ => return None,
        })
    }

    /// A small whole number of factors, and a square root. Below zero a power is nothing that WGSL bounds.
    fn fast_known_power(&mut self, x: Value, power: f32) -> Option<Value> {
        let (size, twice) = (power.abs(), 2.0 * power.abs());
        if size > MOST_FACTORS || twice.fract() != 0.0 {
            return None;
        }
        let halved = size.fract() != 0.0;
        Some(match (halved, power < 0.0) {
            (false, false) => self.product_of(x, size as u32),
            (false, true) => {
                let part = self.un(Unary::RoughReciprocal, x);
                self.product_of(part, size as u32)
            }
            (true, true) => {
                let part = self.un(Unary::RoughInverseSqrt, x);
                self.product_of(part, twice as u32)
            }
            (true, false) => {
                let root = self.fast_sqrt(x);
                let rest = self.product_of(x, size as u32);
                self.mul(rest, root)
            }
        })
    }

    /// `x` so many times, by squares.
    fn product_of(&mut self, x: Value, mut count: u32) -> Value {
        let (mut square, mut product) = (x, None);
        while count > 0 {
            if count & 1 == 1 {
                product = Some(product.map_or(square, |product| self.mul(product, square)));
            }
            count >>= 1;
            if count > 0 {
                square = self.mul(square, square);
            }
        }
        product.unwrap_or_else(|| self.c(x, 1.0))
    }

    fn fast_div(&mut self, a: Value, b: Value) -> Value {
        let part = match self.divisors.get(&b).copied() {
            Some(Divisor::Root(x)) => self.un(Unary::RoughInverseSqrt, x),
            Some(Divisor::RootCubed(x)) => {
                let part = self.un(Unary::RoughInverseSqrt, x);
                self.product_of(part, 3)
            }
            None => self.un(Unary::RoughReciprocal, b),
        };
        if a == self.c(a, 1.0) { part } else { self.mul(a, part) }
    }

    fn fast_sqrt(&mut self, x: Value) -> Value {
        self.un(if self.has_instructions() { Unary::RoughSqrt } else { Unary::Sqrt }, x)
    }

    /// Keeps in mind what a value is the root of, where it is only divided by: an inverse root is shorter than a root and a reciprocal.
    pub(super) fn note_divisor(&mut self, value: Value, now: Value, op: &Op) {
        if !self.only_divisors.contains(&value) {
            return;
        }
        let root = |value: &Value| match self.divisors.get(value) {
            Some(Divisor::Root(x)) => Some(*x),
            _ => None,
        };
        let divisor = match op {
            Op::Unary(Unary::Sqrt, x) => Divisor::Root(*x),
            Op::Binary(Binary::Mul, a, b) if root(a) == Some(*b) => Divisor::RootCubed(*b),
            Op::Binary(Binary::Mul, a, b) if root(b) == Some(*a) => Divisor::RootCubed(*a),
            _ => return,
        };
        self.divisors.insert(now, divisor);
    }

    fn fast_exp(&mut self, x: Value) -> Value {
        let power = self.mul_c(x, LOG2_E);
        self.fast_exp2(power)
    }

    fn fast_exp2(&mut self, x: Value) -> Value {
        if self.has_instructions() {
            return self.un(Unary::RoughExp2, x);
        }
        let high = self.c(x, 128.0);
        let y = self.bin(Binary::Min, x, high);
        let n = self.un(Unary::Round, y);
        let r = self.sub(y, n);
        let p = self.poly(
            r,
            &[
                1.0,
                0.6931472148276261,
                0.2402223491762222,
                0.05550308467258236,
                0.00967186150974282,
                0.0013407229773067218,
            ],
        );
        // The exponent of `p` and a whole number: no product that rounds.
        let n = self.cast(n, Scalar::I32);
        let count = self.i(Scalar::U32, 23);
        let n = self.bin(Binary::Shl, n, count);
        let bits = self.bits(p, Scalar::I32);
        let bits = self.bin(Binary::Add, bits, n);
        let power = self.bits(bits, Scalar::F32);
        let zero = self.c(x, 0.0);
        let tiny = self.lt_c(x, -126.0);
        self.select(tiny, zero, power)
    }

    fn fast_log2(&mut self, x: Value) -> Value {
        if self.has_instructions() {
            return self.un(Unary::RoughLog2, x);
        }
        // x = 2ᵉ · (1 + f) with f between −1/3 and 1/3.
        let bits = self.bits(x, Scalar::I32);
        let third = self.i(Scalar::I32, 0x3f2a_aaab);
        let above = self.bin(Binary::Sub, bits, third);
        let count = self.i(Scalar::U32, 23);
        let e = self.bin(Binary::Shr, above, count);
        let whole = self.bin(Binary::Shl, e, count);
        let m = self.bin(Binary::Sub, bits, whole);
        let m = self.bits(m, Scalar::F32);
        let f = self.add_c(m, -1.0);
        let e = self.cast(e, Scalar::F32);
        let p = self.poly(
            f,
            &[
                1.442694210860884,
                -0.7213441595660324,
                0.481012208152087,
                -0.3609184284432648,
                0.28471023802545414,
                -0.23479572880563085,
                0.2514361853321419,
                -0.23152058582330878,
            ],
        );
        let log = self.fma(f, p, e);
        let none = self.c(x, f64::NEG_INFINITY);
        let tiny = self.lt_c(x, f64::from(f32::MIN_POSITIVE));
        self.select(tiny, none, log)
    }

    /// Sine, or cosine: the sine of a quarter turn more. Good for arguments up to some thousands.
    fn fast_sin(&mut self, x: Value, cosine: bool) -> Value {
        if self.has_instructions() {
            return self.un(if cosine { Unary::RoughCos } else { Unary::RoughSin }, x);
        }
        let mut turns = self.mul_c(x, FRAC_1_PI);
        if cosine {
            turns = self.add_c(turns, 0.5);
        }
        let turns = self.un(Unary::Round, turns);
        let half_turns = if cosine { self.add_c(turns, -0.5) } else { turns };
        let high = f64::from(PI as f32);
        let r = self.fma_c(half_turns, -high, x);
        let r = self.fma_c(half_turns, high - PI, r);
        let z = self.mul(r, r);
        let p = self.poly(
            z,
            &[
                0.9999999771148035,
                -0.16666647850830188,
                0.008332902540053262,
                -0.00019801031118022125,
                2.5907130351272036e-06,
            ],
        );
        let sine = self.mul(p, r);
        // Odd half turns change the sign.
        let odd = self.cast(turns, Scalar::I32);
        let count = self.i(Scalar::U32, 31);
        let sign = self.bin(Binary::Shl, odd, count);
        let bits = self.bits(sine, Scalar::I32);
        let bits = self.bin(Binary::Xor, bits, sign);
        self.bits(bits, Scalar::F32)
    }

    /// Of a number between 0 and 1.
    fn fast_atan_near(&mut self, t: Value) -> Value {
        let z = self.mul(t, t);
        let p = self.poly(
            z,
            &[
                0.9999999113993462,
                -0.33332093365595705,
                0.19971372717107364,
                -0.14029404821093747,
                0.09942715690470354,
                -0.059904069786942266,
                0.024556649228804434,
                -0.004780318219683975,
            ],
        );
        self.mul(p, t)
    }

    fn fast_atan(&mut self, x: Value) -> Value {
        let a = self.abs(x);
        let one = self.c(x, 1.0);
        let far = self.lt(one, a);
        let part = self.un(Unary::RoughReciprocal, a);
        let t = self.select(far, part, a);
        let near = self.fast_atan_near(t);
        let right_angle = self.c(x, FRAC_PI_2);
        let rest = self.sub(right_angle, near);
        let angle = self.select(far, rest, near);
        self.with_sign(angle, x)
    }

    fn fast_atan2(&mut self, y: Value, x: Value) -> Value {
        let (ax, ay) = (self.abs(x), self.abs(y));
        let steep = self.lt(ax, ay);
        let (high, low) = (self.select(steep, ay, ax), self.select(steep, ax, ay));
        // The reciprocal of less is infinite, and of nothing by nothing there is no angle.
        let least = self.c(x, f64::from(f32::MIN_POSITIVE));
        let high = self.bin(Binary::Max, high, least);
        let t = self.fast_div(low, high);
        let near = self.fast_atan_near(t);
        let right_angle = self.c(x, FRAC_PI_2);
        let rest = self.sub(right_angle, near);
        let angle = self.select(steep, rest, near);
        let bits = self.bits(x, Scalar::I32);
        let none = self.i(Scalar::I32, 0);
        let left = self.lt(bits, none);
        let straight = self.c(x, PI);
        let back = self.sub(straight, angle);
        let angle = self.select(left, back, angle);
        self.with_sign(angle, y)
    }

    /// `log(x + sqrt(x² + more))`.
    fn fast_log_of_sum(&mut self, x: Value, more: f64) -> Value {
        let more = self.c(x, more);
        let square = self.emit(Scalar::F32, Op::Fma(x, x, more));
        let root = self.fast_sqrt(square);
        let sum = self.add(x, root);
        // Where the square may be infinite, the root is `x`: the logarithm of twice that.
        let small = self.lt_c(x, 2f64.powi(40));
        let sum = self.select(small, sum, x);
        let (zero, twice) = (self.c(x, 0.0), self.c(x, LN_2));
        let more = self.select(small, zero, twice);
        let log = self.fast_log2(sum);
        self.fma_c(log, LN_2, more)
    }
}
