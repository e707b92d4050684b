//! Algebra: what an operation is equal to, given how its operands are made. Every rule is exact, floats included.

use smallvec::SmallVec;

use super::rewrite::Rewriter;
use crate::ir::Literal;
use crate::kernel::{Address, Binary, Op, Passes, Scalar, Type, Unary, Value, fold};

/// Computed by a function, not by an instruction.
pub(super) fn is_function(op: Unary) -> bool {
    use Unary as U;
    matches!(
        op,
        U::InverseSqrt
            | U::Exp
            | U::Exp2
            | U::Log
            | U::Log2
            | U::Sin
            | U::Cos
            | U::Tan
            | U::Asin
            | U::Acos
            | U::Atan
            | U::Sinh
            | U::Cosh
            | U::Tanh
            | U::Asinh
            | U::Acosh
            | U::Atanh
    )
}

fn commutes(op: Binary) -> bool {
    use Binary as B;
    matches!(op, B::Add | B::Mul | B::And | B::Or | B::Xor | B::Eq | B::Ne | B::MulHigh)
}

impl Rewriter {
    /// A value that is equal to the operation, when there is a better one.
    pub(super) fn simplify(&mut self, op: &Op, ty: Type) -> Option<Value> {
        if self.on(Passes::FOLD)
            && let Some(value) = self.fold(op, ty)
        {
            return Some(value);
        }
        if self.on(Passes::STRENGTH)
            && let Op::Binary(op, a, b) = op
        {
            if *op == Binary::And
                && self.parts_of_words
                && let Some(part) = self.part_of_word(*a, *b)
            {
                return Some(part);
            }
            return self.strength(*op, *a, *b);
        }
        None
    }

    fn fold(&mut self, op: &Op, ty: Type) -> Option<Value> {
        match op {
            Op::Unary(op, a) => self.fold_unary(*op, *a),
            Op::Binary(op, a, b) => self.fold_binary(*op, *a, *b),
            Op::Fma(a, b, c) => {
                let (x, y, z) = (self.literal(*a), self.literal(*b), self.literal(*c));
                if let (Some(x), Some(y), Some(z)) = (x, y, z) {
                    let value = fold::fma(x, y, z)?;
                    return Some(self.constant(value));
                }
                let is_one = |literal: Option<Literal>| literal.is_some_and(|literal| number(&literal) == Some(1.0));
                match (is_one(x), is_one(y)) {
                    (true, _) => Some(self.binary(Binary::Add, *b, *c)),
                    (_, true) => Some(self.binary(Binary::Add, *a, *c)),
                    _ => None,
                }
            }
            Op::Select(cond, yes, no) => self.fold_select(*cond, *yes, *no, ty),
            Op::Cast(a) => {
                let from = self.scalar(*a);
                if from == ty.scalar {
                    return Some(*a);
                }
                if let Some(literal) = self.literal(*a) {
                    return Some(self.constant(fold::cast(literal, ty.scalar)));
                }
                // Between integers of one width a cast keeps the bits.
                let integer = |ty: Scalar| !ty.is_float() && ty != Scalar::Bool;
                if integer(from) && integer(ty.scalar) && from.bits() == ty.scalar.bits() {
                    return Some(self.emit(Op::BitCast(*a), ty));
                }
                // NVIDIA's assembler takes a choice between the smallest number and zero for one between one and zero.
                if let Some(Op::Select(cond, yes, no)) = self.defs[a.index()]
                    && from.is_float()
                    && integer(ty.scalar)
                    && let (Some(yes), Some(no)) = (self.literal(yes), self.literal(no))
                {
                    let yes = self.constant(fold::cast(yes, ty.scalar));
                    let no = self.constant(fold::cast(no, ty.scalar));
                    return Some(self.emit(Op::Select(cond, yes, no), ty));
                }
                None
            }
            Op::BitCast(a) => {
                let from = self.scalar(*a);
                if from == ty.scalar {
                    return Some(*a);
                }
                if let Some(literal) = self.literal(*a) {
                    return Some(self.constant(fold::literal(ty.scalar, literal.bits())));
                }
                let Some(Op::BitCast(inner)) = self.defs[a.index()] else { return None };
                // f16 pairs only with u32, and through it the upper half of a word gets lost.
                if from.bits() == 16 {
                    return None;
                }
                let source = self.scalar(inner);
                if source == ty.scalar {
                    return Some(inner);
                }
                if source.bits() != ty.scalar.bits() {
                    return None;
                }
                Some(self.emit(Op::BitCast(inner), ty))
            }
            Op::Extract(a, lane) => match &self.defs[a.index()] {
                Some(Op::Construct(parts)) => parts.get(usize::from(*lane)).copied(),
                _ => None,
            },
            Op::Construct(parts) => {
                let Some(Op::Extract(whole, 0)) = self.defs[parts.first()?.index()] else { return None };
                let same = parts.iter().enumerate().all(|(i, part)| {
                    matches!(self.defs[part.index()], Some(Op::Extract(v, lane)) if v == whole && usize::from(lane) == i)
                });
                (same && self.values[whole.index()].ty == ty).then_some(whole)
            }
            Op::Load { address, element, guard } => {
                let known = guard.and_then(|guard| self.literal(guard));
                if known == Some(Literal::Bool(false)) {
                    let zero = self.constant(fold::literal(ty.scalar, 0));
                    if ty.width == 1 {
                        return Some(zero);
                    }
                    return Some(self.emit(Op::Construct(SmallVec::from_elem(zero, ty.width.into())), ty));
                }
                let mut folded = address.clone();
                self.fold_address(&mut folded);
                if known.is_none() && folded == *address {
                    return None;
                }
                let guard = if known.is_some() { None } else { *guard };
                Some(self.emit(Op::Load { address: folded, element: *element, guard }, ty))
            }
            Op::Const(_) | Op::Builtin(_) | Op::Length(_) | Op::Subgroup(..) | Op::Matrix(_) => None,
        }
    }

    /// Constant indices become part of the offset.
    pub(super) fn fold_address(&mut self, address: &mut Address) {
        let mut offset = address.offset;
        address.terms.retain(|(value, stride)| {
            let known = match self.literal(*value) {
                Some(Literal::U32(known)) => Some(known),
                Some(Literal::U64(known)) => u32::try_from(known).ok(),
                _ => None,
            };
            let moved = known.and_then(|known| known.checked_mul(*stride)).and_then(|by| offset.checked_add(by));
            match moved {
                Some(moved) => {
                    offset = moved;
                    false
                }
                None => true,
            }
        });
        address.offset = offset;
    }

    fn fold_unary(&mut self, op: Unary, a: Value) -> Option<Value> {
        if let Some(literal) = self.literal(a) {
            let value = fold::unary(op, literal)?;
            return Some(self.constant(value));
        }
        match (op, &self.defs[a.index()]) {
            (Unary::Neg, &Some(Op::Unary(Unary::Neg, x))) | (Unary::Not, &Some(Op::Unary(Unary::Not, x))) => Some(x),
            (Unary::Abs, &Some(Op::Unary(Unary::Neg | Unary::Abs, x))) => Some(self.unary(Unary::Abs, x)),
            (Unary::Not, &Some(Op::Binary(Binary::Eq, x, y))) => Some(self.binary(Binary::Ne, x, y)),
            (Unary::Not, &Some(Op::Binary(Binary::Ne, x, y))) => Some(self.binary(Binary::Eq, x, y)),
            (Unary::Not, &Some(Op::Binary(Binary::Lt, x, y))) if self.last && !self.scalar(x).is_float() => {
                Some(self.binary(Binary::Ge, x, y))
            }
            _ => None,
        }
    }

    fn fold_binary(&mut self, op: Binary, a: Value, b: Value) -> Option<Value> {
        let (left, right) = (self.literal(a), self.literal(b));
        if let (Some(left), Some(right)) = (left, right) {
            let value = fold::binary(op, left, right)?;
            return Some(self.constant(value));
        }
        let ty = self.scalar(a);
        // Of floats, least and greatest ask which operand is NaN.
        let either_way = commutes(op) || (matches!(op, Binary::Min | Binary::Max) && !ty.is_float());
        if either_way && left.is_some() {
            return Some(self.binary(op, b, a));
        }
        if let Some(value) = self.fold_comparison(op, a, b, ty) {
            return Some(value);
        }
        match ty {
            Scalar::Bool => self.fold_logic(op, a, b, right),
            ty if ty.is_float() => self.fold_float(op, a, right),
            Scalar::U32 => self.fold_integer(op, a, b, right, ty).or_else(|| match op {
                Binary::Add => self.high_half(a, b).or_else(|| self.low_half(a, b)),
                Binary::Or => self.low_half(a, b),
                _ => None,
            }),
            ty => self.fold_integer(op, a, b, right, ty),
        }
    }

    fn fold_comparison(&mut self, op: Binary, a: Value, b: Value, ty: Scalar) -> Option<Value> {
        let float = ty.is_float();
        match op {
            Binary::Gt => return Some(self.binary(Binary::Lt, b, a)),
            Binary::Ge if float => return Some(self.binary(Binary::Le, b, a)),
            // One form for each question, so that the same question is asked once.
            Binary::Ge if !self.last => {
                let less = self.binary(Binary::Lt, a, b);
                return Some(self.unary(Unary::Not, less));
            }
            Binary::Le if !self.last && !float => {
                let less = self.binary(Binary::Lt, b, a);
                return Some(self.unary(Unary::Not, less));
            }
            _ => {}
        }
        if a == b {
            let result = match op {
                Binary::Lt => Some(false),
                Binary::Eq | Binary::Le | Binary::Ge if !float => Some(true),
                Binary::Ne if !float => Some(false),
                _ => None,
            };
            if let Some(result) = result {
                return Some(self.constant(Literal::Bool(result)));
            }
        }
        if op == Binary::Lt && matches!(ty, Scalar::U32 | Scalar::U64) && self.literal(b).is_some_and(|b| b.bits() == 0)
        {
            return Some(self.constant(Literal::Bool(false)));
        }
        if self.last && self.once && matches!(op, Binary::Eq | Binary::Ne) && ty == Scalar::U32 {
            return self.compare_bits(op, a, b);
        }
        None
    }

    /// `((x >> k) & m) == ((y >> k) & m)`, which decides whether rounds go on: one step finds the bits in which two words differ, and whether
    /// there are any. Elsewhere the bits of a word may be compared with those of many others, and are better taken out once.
    fn compare_bits(&mut self, op: Binary, a: Value, b: Value) -> Option<Value> {
        let masked = |value: Value| match self.defs[value.index()] {
            Some(Op::Binary(Binary::And, x, mask)) => match self.literal(mask) {
                Some(Literal::U32(mask)) => Some((x, mask)),
                _ => None,
            },
            _ => None,
        };
        let shifted = |value: Value| match self.defs[value.index()] {
            Some(Op::Binary(Binary::Shr, x, count)) => match self.literal(count) {
                Some(Literal::U32(count)) if count < 32 => (x, count),
                _ => (value, 0),
            },
            _ => (value, 0),
        };
        let ((x, mask), (y, other)) = (masked(a)?, masked(b)?);
        if mask != other {
            return None;
        }
        let ((whole_x, k), (whole_y, l)) = (shifted(x), shifted(y));
        let (x, y, mask) = if k == l && mask << k >> k == mask { (whole_x, whole_y, mask << k) } else { (x, y, mask) };
        let differ = self.binary(Binary::Xor, x, y);
        let mask = self.constant(Literal::U32(mask));
        let differ = self.binary(Binary::And, differ, mask);
        let none = self.constant(Literal::U32(0));
        Some(self.binary(op, differ, none))
    }

    fn fold_logic(&mut self, op: Binary, a: Value, b: Value, right: Option<Literal>) -> Option<Value> {
        let opposite = matches!(self.defs[a.index()], Some(Op::Unary(Unary::Not, x)) if x == b)
            || matches!(self.defs[b.index()], Some(Op::Unary(Unary::Not, x)) if x == a);
        match (op, right) {
            (Binary::And, Some(Literal::Bool(true)))
            | (Binary::Or | Binary::Xor | Binary::Ne, Some(Literal::Bool(false)))
            | (Binary::Eq, Some(Literal::Bool(true))) => Some(a),
            (Binary::And, Some(Literal::Bool(false))) | (Binary::Or, Some(Literal::Bool(true))) => Some(b),
            (Binary::Xor | Binary::Ne, Some(Literal::Bool(true))) | (Binary::Eq, Some(Literal::Bool(false))) => {
                Some(self.unary(Unary::Not, a))
            }
            (Binary::And | Binary::Or, None) if a == b => Some(a),
            (Binary::And, None) if opposite => Some(self.constant(Literal::Bool(false))),
            (Binary::Or, None) if opposite => Some(self.constant(Literal::Bool(true))),
            _ => None,
        }
    }

    fn fold_float(&mut self, op: Binary, a: Value, right: Option<Literal>) -> Option<Value> {
        let right = right?;
        let value = number(&right)?;
        match op {
            Binary::Mul | Binary::Div if value == 1.0 => Some(a),
            Binary::Mul | Binary::Div if value == -1.0 => Some(self.unary(Unary::Neg, a)),
            // Not `x + 0`, which turns -0 into 0.
            Binary::Sub if value == 0.0 && !value.is_sign_negative() => Some(a),
            Binary::Add if value == 0.0 && value.is_sign_negative() => Some(a),
            Binary::Div if self.on(Passes::STRENGTH) => {
                let reciprocal = fold::binary(Binary::Div, fold::cast(Literal::U32(1), self.scalar(a)), right)?;
                let power = |x: f64| x.is_normal() && x.to_bits() << 12 == 0;
                let smallest = match self.scalar(a) {
                    Scalar::F16 => 2f64.powi(-14),
                    Scalar::F32 => f64::from(f32::MIN_POSITIVE),
                    _ => f64::MIN_POSITIVE,
                };
                if !power(value) || number(&reciprocal).is_none_or(|r| !power(r) || r.abs() < smallest) {
                    return None;
                }
                let reciprocal = self.constant(reciprocal);
                Some(self.binary(Binary::Mul, a, reciprocal))
            }
            _ => None,
        }
    }

    fn fold_integer(&mut self, op: Binary, a: Value, b: Value, right: Option<Literal>, ty: Scalar) -> Option<Value> {
        if a == b {
            match op {
                Binary::Sub | Binary::Xor => return Some(self.constant(fold::literal(ty, 0))),
                Binary::And | Binary::Or | Binary::Min | Binary::Max => return Some(a),
                _ => {}
            }
        }
        let made = match self.defs[a.index()] {
            Some(Op::Binary(inner, x, y)) => Some((inner, x, y)),
            _ => None,
        };
        if op == Binary::Sub
            && let Some((Binary::Add, x, y)) = made
        {
            if y == b {
                return Some(x);
            }
            if x == b {
                return Some(y);
            }
        }
        let right = right?;
        let bits = right.bits();
        let ones = fold::literal(ty, u64::MAX).bits();
        // `!x + 1` is how the negative of an unsigned number is written.
        if let (Binary::Add, 1, Some(Op::Unary(Unary::Not, x))) = (op, bits, &self.defs[a.index()]) {
            let (x, zero) = (*x, self.constant(fold::literal(ty, 0)));
            return Some(self.binary(Binary::Sub, zero, x));
        }
        let unsigned = matches!(ty, Scalar::U32 | Scalar::U64);
        if bits == 0 {
            match op {
                Binary::Add | Binary::Sub | Binary::Or | Binary::Xor | Binary::Shl | Binary::Shr | Binary::Div => {
                    return Some(a);
                }
                Binary::Mul | Binary::And | Binary::Rem | Binary::MulHigh => return Some(b),
                Binary::Max if unsigned => return Some(a),
                Binary::Min if unsigned => return Some(b),
                _ => {}
            }
        }
        if bits == ones && op == Binary::And {
            return Some(a);
        }
        if bits == ones && op == Binary::Or {
            return Some(b);
        }
        if bits == 1 {
            match op {
                Binary::Mul | Binary::Div => return Some(a),
                Binary::Rem => return Some(self.constant(fold::literal(ty, 0))),
                _ => {}
            }
        }
        if matches!(op, Binary::Shl | Binary::Shr) && bits >= u64::from(ty.bits()) {
            let count = self.constant(Literal::U32(bits as u32 % ty.bits()));
            return Some(self.binary(op, a, count));
        }
        if ty == Scalar::U32
            && let Some(value) = self.fold_multiple(op, a, bits as u32)
        {
            return Some(value);
        }
        // (x + c) + d, (x + c) - d, (x * c) * d, (x & c) & d: one constant is enough.
        if let Some((inner, x, c)) = made
            && let Some(c) = self.literal(c)
        {
            let joined = match (inner, op) {
                (Binary::Add, Binary::Add) | (Binary::Mul, Binary::Mul) | (Binary::And, Binary::And) => {
                    Some((inner, fold::binary(op, c, right)?))
                }
                (Binary::Add, Binary::Sub) => Some((Binary::Add, fold::binary(Binary::Sub, c, right)?)),
                _ => None,
            };
            if let Some((op, constant)) = joined {
                let constant = self.constant(constant);
                return Some(self.binary(op, x, constant));
            }
        }
        None
    }

    /// Shifts and masks of `(x << k) + y` or `x << k`, as places of bytes in words have them: its low bits are those of `y`, and what is above them is `x` and
    /// what is above those of `y`, less what leaves the word.
    fn fold_multiple(&mut self, op: Binary, a: Value, right: u32) -> Option<Value> {
        let shifted = |value: Value| match self.defs[value.index()] {
            Some(Op::Binary(Binary::Shl, x, count)) => match self.literal(count) {
                Some(Literal::U32(count)) if count < 32 => Some((x, count)),
                _ => None,
            },
            _ => None,
        };
        let ((x, k), y) = match self.defs[a.index()] {
            Some(Op::Binary(Binary::Add, left, y)) => match (shifted(left), shifted(y)) {
                (Some(multiple), _) => (multiple, Some(y)),
                (None, Some(multiple)) => (multiple, Some(left)),
                (None, None) => return None,
            },
            _ => (shifted(a)?, None),
        };
        match op {
            Binary::And if right < 1 << k => match y {
                Some(y) => {
                    let mask = self.constant(Literal::U32(right));
                    Some(self.binary(Binary::And, y, mask))
                }
                None => Some(self.constant(Literal::U32(0))),
            },
            Binary::Shr if right == k && k > 0 => {
                let sum = match y {
                    Some(y) => {
                        let above = self.shift(Binary::Shr, y, k);
                        self.binary(Binary::Add, x, above)
                    }
                    None => x,
                };
                let mask = self.constant(Literal::U32(u32::MAX >> k));
                Some(self.binary(Binary::And, sum, mask))
            }
            _ => None,
        }
    }

    fn fold_select(&mut self, cond: Value, yes: Value, no: Value, ty: Type) -> Option<Value> {
        if let Some(Literal::Bool(holds)) = self.literal(cond) {
            return Some(if holds { yes } else { no });
        }
        if yes == no {
            return Some(yes);
        }
        match self.defs[cond.index()] {
            Some(Op::Unary(Unary::Not, x)) => return Some(self.emit(Op::Select(x, no, yes), ty)),
            // As `min` and `max` are defined, NaN and zeros included.
            Some(Op::Binary(Binary::Lt, x, y)) if yes == x && no == y => return Some(self.binary(Binary::Min, y, x)),
            Some(Op::Binary(Binary::Lt, x, y)) if yes == y && no == x => return Some(self.binary(Binary::Max, x, y)),
            _ => {}
        }
        if let Some(no) = self.where_not(cond, no, ty) {
            return Some(self.emit(Op::Select(cond, yes, no), ty));
        }
        let truth = |literal: Option<Literal>| match literal {
            Some(Literal::Bool(truth)) => Some(truth),
            _ => None,
        };
        match (truth(self.literal(yes)), truth(self.literal(no))) {
            (Some(true), Some(false)) => Some(cond),
            (Some(false), Some(true)) => Some(self.unary(Unary::Not, cond)),
            (Some(true), None) => Some(self.binary(Binary::Or, cond, no)),
            (None, Some(false)) => Some(self.binary(Binary::And, cond, yes)),
            (Some(false), None) => {
                let not = self.unary(Unary::Not, cond);
                Some(self.binary(Binary::And, not, no))
            }
            (None, Some(true)) => {
                let not = self.unary(Unary::Not, cond);
                Some(self.binary(Binary::Or, not, yes))
            }
            _ => None,
        }
    }

    /// A simpler value that is the same where a condition does not hold.
    fn where_not(&mut self, cond: Value, value: Value, ty: Type) -> Option<Value> {
        let Some(Op::Select(other, yes, no)) = self.defs[value.index()] else { return None };
        if other == cond {
            return Some(no);
        }
        // Where `p && t` does not hold, `p && !t` is `p`.
        let (Some(Op::Binary(Binary::And, p, t)), Some(Op::Binary(Binary::And, q, not))) =
            (&self.defs[cond.index()], &self.defs[other.index()])
        else {
            return None;
        };
        let opposite = matches!(self.defs[not.index()], Some(Op::Unary(Unary::Not, x)) if x == *t);
        let p = (p == q && opposite).then_some(*p)?;
        Some(self.emit(Op::Select(p, yes, no), ty))
    }

    // Multiplication and division by constants.

    fn strength(&mut self, op: Binary, a: Value, b: Value) -> Option<Value> {
        let ty = self.scalar(a);
        let bits = self.literal(b)?.bits();
        // Bounds of quotients and remainders are easier to see before they become products.
        match (ty, op) {
            (Scalar::U32 | Scalar::I32 | Scalar::U64 | Scalar::I64, Binary::Mul) if bits.is_power_of_two() => {
                (bits > 1).then(|| self.shift(Binary::Shl, a, bits.trailing_zeros()))
            }
            (Scalar::U32 | Scalar::U64, Binary::Div) if bits.is_power_of_two() => {
                (bits > 1).then(|| self.shift(Binary::Shr, a, bits.trailing_zeros()))
            }
            (Scalar::U32 | Scalar::U64, Binary::Rem) if bits.is_power_of_two() => {
                let mask = self.constant(fold::literal(ty, bits - 1));
                Some(self.binary(Binary::And, a, mask))
            }
            (Scalar::U32, Binary::Div) if self.last && bits > 1 => Some(self.divide_unsigned(a, bits as u32)),
            (Scalar::I32, Binary::Div) if self.last && (bits as i32).unsigned_abs() > 1 => {
                Some(self.divide_signed(a, bits as i32))
            }
            (Scalar::U32, Binary::Rem) if self.last && bits > 1 => {
                let quotient = self.binary(Binary::Div, a, b);
                let product = self.binary(Binary::Mul, quotient, b);
                Some(self.binary(Binary::Sub, a, product))
            }
            (Scalar::I32, Binary::Rem) if self.last && (bits as i32).unsigned_abs() > 1 && bits as i32 != i32::MIN => {
                let quotient = self.binary(Binary::Div, a, b);
                let product = self.binary(Binary::Mul, quotient, b);
                Some(self.binary(Binary::Sub, a, product))
            }
            _ => None,
        }
    }

    fn shift(&mut self, op: Binary, a: Value, count: u32) -> Value {
        let count = self.constant(Literal::U32(count));
        self.binary(op, a, count)
    }

    /// `x / d` by the high half of a product with the rounded-up reciprocal (Granlund and Montgomery).
    fn divide_unsigned(&mut self, a: Value, divisor: u32) -> Value {
        let log = 32 - (divisor - 1).leading_zeros();
        // The reciprocal 2^(32 + log) / d, rounded up, is 2^32 + `low`.
        let low = ((1u128 << (32 + log)) / u128::from(divisor) + 1 - (1u128 << 32)) as u32;
        let full = (1u64 << 32) + u64::from(low);
        if full.is_multiple_of(2) {
            // One bit to spare makes the reciprocal fit.
            let reciprocal = self.constant(Literal::U32((full / 2) as u32));
            let high = self.binary(Binary::MulHigh, a, reciprocal);
            return self.shift(Binary::Shr, high, log - 1);
        }
        let low = self.constant(Literal::U32(low));
        let high = self.binary(Binary::MulHigh, a, low);
        let rest = self.binary(Binary::Sub, a, high);
        let half = self.shift(Binary::Shr, rest, 1);
        let sum = self.binary(Binary::Add, half, high);
        self.shift(Binary::Shr, sum, log - 1)
    }

    fn divide_signed(&mut self, a: Value, divisor: i32) -> Value {
        let size = divisor.unsigned_abs();
        let mut quotient = if size.is_power_of_two() {
            // Towards zero: add d - 1 to negative numbers first.
            let log = size.trailing_zeros();
            let sign = self.shift(Binary::Shr, a, 31);
            let sign = self.emit(Op::BitCast(sign), Scalar::U32.into());
            let bias = self.shift(Binary::Shr, sign, 32 - log);
            let bias = self.emit(Op::BitCast(bias), Scalar::I32.into());
            let sum = self.binary(Binary::Add, a, bias);
            self.shift(Binary::Shr, sum, log)
        } else {
            // |d| < 2^31 and no power of two: the reciprocal 2^(31 + log) / |d| rounded up lies between 2^31 and 2^32.
            let log = 32 - (size - 1).leading_zeros();
            let reciprocal = ((1u128 << (31 + log)) / u128::from(size) + 1) as u32;
            let constant = self.constant(Literal::I32(reciprocal as i32));
            let high = self.binary(Binary::MulHigh, a, constant);
            // As an i32 the reciprocal is less by 2^32.
            let sum = self.binary(Binary::Add, high, a);
            let shifted = self.shift(Binary::Shr, sum, log - 1);
            let sign = self.shift(Binary::Shr, a, 31);
            self.binary(Binary::Sub, shifted, sign)
        };
        if divisor < 0 {
            quotient = self.unary(Unary::Neg, quotient);
        }
        quotient
    }
}

/// A float constant as f64.
fn number(literal: &Literal) -> Option<f64> {
    match literal {
        Literal::F16(v) => Some(v.to_f32().into()),
        Literal::F32(v) => Some((*v).into()),
        Literal::F64(v) => Some(*v),
        _ => None,
    }
}
