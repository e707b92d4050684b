//! What the basic operations give for constants, exactly. Folding and the evaluator both compute with it.

use half::f16;

use super::{Binary, Scalar, Unary};
use crate::ir::Literal;

/// The value of type `ty` with these bits.
pub(crate) fn literal(ty: Scalar, bits: u64) -> Literal {
    match ty {
        Scalar::Bool => Literal::Bool(bits & 1 != 0),
        Scalar::U32 => Literal::U32(bits as u32),
        Scalar::I32 => Literal::I32(bits as i32),
        Scalar::U64 => Literal::U64(bits),
        Scalar::I64 => Literal::I64(bits as i64),
        Scalar::F16 => Literal::F16(f16::from_bits(bits as u16)),
        Scalar::F32 => Literal::F32(f32::from_bits(bits as u32)),
        Scalar::F64 => Literal::F64(f64::from_bits(bits)),
    }
}

/// The type of a constant.
pub(crate) fn scalar_of(literal: &Literal) -> Scalar {
    match literal {
        Literal::Bool(_) => Scalar::Bool,
        Literal::U32(_) => Scalar::U32,
        Literal::I32(_) => Scalar::I32,
        Literal::U64(_) => Scalar::U64,
        Literal::I64(_) => Scalar::I64,
        Literal::F16(_) => Scalar::F16,
        Literal::F32(_) => Scalar::F32,
        Literal::F64(_) => Scalar::F64,
    }
}

/// An integer constant as a wide number.
pub(crate) fn integer(literal: &Literal) -> Option<i128> {
    Some(match *literal {
        Literal::U32(v) => v.into(),
        Literal::I32(v) => v.into(),
        Literal::U64(v) => v.into(),
        Literal::I64(v) => v.into(),
        _ => return None,
    })
}

/// An integer constant of type `ty`; bits above its width are dropped.
pub(crate) fn of_integer(ty: Scalar, value: i128) -> Literal {
    literal(ty, value as u64)
}

/// Rounds to f16 once. (Going through f32 would round twice; an odd last bit keeps what was cut off.)
pub(crate) fn f64_to_f16(value: f64) -> f16 {
    f16::from_f32(f64_to_f32_odd(value))
}

/// f32 with an odd last bit when anything was cut off, so that a further rounding is right.
fn f64_to_f32_odd(value: f64) -> f32 {
    let near = value as f32;
    if !near.is_finite() || f64::from(near) == value {
        return near;
    }
    // Truncate towards zero, then set the last bit.
    let bits = near.to_bits();
    let truncated = if f64::from(near).abs() > value.abs() { bits - 1 } else { bits };
    f32::from_bits(truncated | 1)
}

/// `a·b + c` of f16 with one rounding.
fn fma16(a: f16, b: f16, c: f16) -> f16 {
    let product = f64::from(a.to_f32()) * f64::from(b.to_f32()); // exact: 22 bits
    let c = f64::from(c.to_f32());
    let sum = product + c;
    if !sum.is_finite() {
        return f64_to_f16(sum);
    }
    let part = sum - product;
    let error = (product - (sum - part)) + (c - part);
    if error == 0.0 || sum.to_bits() & 1 == 1 {
        return f64_to_f16(sum);
    }
    let towards_zero = (error < 0.0) == (sum > 0.0);
    let bits = sum.to_bits();
    f64_to_f16(f64::from_bits(if towards_zero { bits - 1 } else { bits + 1 }))
}

/// `a·b + c` with one rounding.
pub(crate) fn fma(a: Literal, b: Literal, c: Literal) -> Option<Literal> {
    Some(match (a, b, c) {
        (Literal::F16(a), Literal::F16(b), Literal::F16(c)) => Literal::F16(fma16(a, b, c)),
        (Literal::F32(a), Literal::F32(b), Literal::F32(c)) => Literal::F32(a.mul_add(b, c)),
        (Literal::F64(a), Literal::F64(b), Literal::F64(c)) => Literal::F64(a.mul_add(b, c)),
        _ => return None,
    })
}

macro_rules! float_unary {
    ($op:expr, $v:expr) => {{
        let v = $v;
        match $op {
            Unary::Neg => -v,
            Unary::Abs => v.abs(),
            Unary::Sign => {
                if v > 0.0 {
                    1.0
                } else if v < 0.0 {
                    -1.0
                } else {
                    v
                }
            }
            Unary::Floor => v.floor(),
            Unary::Ceil => v.ceil(),
            Unary::Round => v.round_ties_even(),
            Unary::Trunc => v.trunc(),
            Unary::Sqrt => v.sqrt(),
            Unary::RoughReciprocal => 1.0 / v,
            _ => return None,
        }
    }};
}

macro_rules! bit_unary {
    ($op:expr, $v:expr, $ty:ident, $variant:ident) => {{
        let v = $v;
        Literal::$variant(match $op {
            Unary::CountOneBits => v.count_ones() as $ty,
            Unary::CountLeadingZeros => v.leading_zeros() as $ty,
            Unary::CountTrailingZeros => v.trailing_zeros() as $ty,
            Unary::ReverseBits => v.reverse_bits(),
            Unary::FirstTrailingBit => {
                if v == 0 {
                    !0
                } else {
                    v.trailing_zeros() as $ty
                }
            }
            Unary::Not => !v,
            _ => return None,
        })
    }};
}

/// One operand; `None` for functions whose value is not exactly defined.
pub(crate) fn unary(op: Unary, value: Literal) -> Option<Literal> {
    Some(match value {
        Literal::Bool(v) => match op {
            Unary::Not => Literal::Bool(!v),
            _ => return None,
        },
        Literal::F16(v) => match op {
            Unary::Neg => Literal::F16(f16::from_bits(v.to_bits() ^ 0x8000)),
            Unary::Abs => Literal::F16(f16::from_bits(v.to_bits() & 0x7fff)),
            _ => Literal::F16(f16::from_f32(float_unary!(op, v.to_f32()))),
        },
        Literal::F32(v) => Literal::F32(float_unary!(op, v)),
        Literal::F64(v) => Literal::F64(float_unary!(op, v)),
        Literal::U32(v) => match op {
            Unary::Abs => Literal::U32(v),
            Unary::Sign => Literal::U32(u32::from(v != 0)),
            Unary::FirstLeadingBit => Literal::U32(31u32.wrapping_sub(v.leading_zeros())),
            _ => bit_unary!(op, v, u32, U32),
        },
        Literal::U64(v) => match op {
            Unary::Abs => Literal::U64(v),
            Unary::Sign => Literal::U64(u64::from(v != 0)),
            Unary::FirstLeadingBit => Literal::U64(63u64.wrapping_sub(v.leading_zeros().into())),
            _ => bit_unary!(op, v, u64, U64),
        },
        Literal::I32(v) => match op {
            Unary::Neg => Literal::I32(v.wrapping_neg()),
            Unary::Abs => Literal::I32(v.wrapping_abs()),
            Unary::Sign => Literal::I32(v.signum()),
            Unary::FirstLeadingBit => Literal::I32(31 - (if v < 0 { !v } else { v }).leading_zeros() as i32),
            _ => bit_unary!(op, v, i32, I32),
        },
        Literal::I64(v) => match op {
            Unary::Neg => Literal::I64(v.wrapping_neg()),
            Unary::Abs => Literal::I64(v.wrapping_abs()),
            Unary::Sign => Literal::I64(v.signum()),
            Unary::FirstLeadingBit => Literal::I64(63 - i64::from((if v < 0 { !v } else { v }).leading_zeros())),
            _ => bit_unary!(op, v, i64, I64),
        },
    })
}

macro_rules! compare {
    ($op:expr, $a:expr, $b:expr) => {
        match $op {
            Binary::Eq => Some($a == $b),
            Binary::Ne => Some($a != $b),
            Binary::Lt => Some($a < $b),
            Binary::Le => Some($a <= $b),
            Binary::Gt => Some($a > $b),
            Binary::Ge => Some($a >= $b),
            _ => None,
        }
    };
}

macro_rules! float_binary {
    ($op:expr, $a:expr, $b:expr) => {{
        let (a, b) = ($a, $b);
        match $op {
            Binary::Add => a + b,
            Binary::Sub => a - b,
            Binary::Mul => a * b,
            Binary::Div => a / b,
            Binary::Min => {
                if b < a {
                    b
                } else {
                    a
                }
            }
            Binary::Max => {
                if a < b {
                    b
                } else {
                    a
                }
            }
            _ => return None,
        }
    }};
}

macro_rules! integer_binary {
    ($op:expr, $a:expr, $b:expr) => {{
        let (a, b) = ($a, $b);
        match $op {
            Binary::Add => a.wrapping_add(b),
            Binary::Sub => a.wrapping_sub(b),
            Binary::Mul => a.wrapping_mul(b),
            Binary::Div => {
                if b == 0 {
                    a
                } else {
                    a.wrapping_div(b)
                }
            }
            Binary::Rem => {
                if b == 0 {
                    0
                } else {
                    a.wrapping_rem(b)
                }
            }
            Binary::And => a & b,
            Binary::Or => a | b,
            Binary::Xor => a ^ b,
            Binary::Min => a.min(b),
            Binary::Max => a.max(b),
            _ => return None,
        }
    }};
}

/// Two operands; `None` for functions whose value is not exactly defined.
pub(crate) fn binary(op: Binary, left: Literal, right: Literal) -> Option<Literal> {
    if matches!(op, Binary::Shl | Binary::Shr) {
        let Literal::U32(count) = right else { return None };
        let left_shift = op == Binary::Shl;
        return Some(match left {
            Literal::U32(v) => Literal::U32(if left_shift { v.wrapping_shl(count) } else { v.wrapping_shr(count) }),
            Literal::I32(v) => Literal::I32(if left_shift { v.wrapping_shl(count) } else { v.wrapping_shr(count) }),
            Literal::U64(v) => Literal::U64(if left_shift { v.wrapping_shl(count) } else { v.wrapping_shr(count) }),
            Literal::I64(v) => Literal::I64(if left_shift { v.wrapping_shl(count) } else { v.wrapping_shr(count) }),
            _ => return None,
        });
    }
    let compared = match (left, right) {
        (Literal::Bool(a), Literal::Bool(b)) => compare!(op, a, b),
        (Literal::U32(a), Literal::U32(b)) => compare!(op, a, b),
        (Literal::I32(a), Literal::I32(b)) => compare!(op, a, b),
        (Literal::U64(a), Literal::U64(b)) => compare!(op, a, b),
        (Literal::I64(a), Literal::I64(b)) => compare!(op, a, b),
        (Literal::F16(a), Literal::F16(b)) => compare!(op, a, b),
        (Literal::F32(a), Literal::F32(b)) => compare!(op, a, b),
        (Literal::F64(a), Literal::F64(b)) => compare!(op, a, b),
        _ => return None,
    };
    if let Some(result) = compared {
        return Some(Literal::Bool(result));
    }
    Some(match (left, right) {
        (Literal::Bool(a), Literal::Bool(b)) => Literal::Bool(match op {
            Binary::And => a && b,
            Binary::Or => a || b,
            Binary::Xor => a != b,
            _ => return None,
        }),
        (Literal::U32(a), Literal::U32(b)) => Literal::U32(match op {
            Binary::MulHigh => ((u64::from(a) * u64::from(b)) >> 32) as u32,
            _ => integer_binary!(op, a, b),
        }),
        (Literal::I32(a), Literal::I32(b)) => Literal::I32(match op {
            Binary::MulHigh => ((i64::from(a) * i64::from(b)) >> 32) as i32,
            _ => integer_binary!(op, a, b),
        }),
        (Literal::U64(a), Literal::U64(b)) => Literal::U64(integer_binary!(op, a, b)),
        (Literal::I64(a), Literal::I64(b)) => Literal::I64(integer_binary!(op, a, b)),
        (Literal::F16(a), Literal::F16(b)) => Literal::F16(f16::from_f32(float_binary!(op, a.to_f32(), b.to_f32()))),
        (Literal::F32(a), Literal::F32(b)) => Literal::F32(float_binary!(op, a, b)),
        (Literal::F64(a), Literal::F64(b)) => Literal::F64(float_binary!(op, a, b)),
        _ => return None,
    })
}

/// Converts the value.
pub(crate) fn cast(value: Literal, to: Scalar) -> Literal {
    if to == scalar_of(&value) {
        return value;
    }
    if to == Scalar::Bool {
        return Literal::Bool(match value {
            Literal::Bool(v) => v,
            Literal::F16(v) => v.to_f32() != 0.0,
            Literal::F32(v) => v != 0.0,
            Literal::F64(v) => v != 0.0,
            other => other.bits() != 0,
        });
    }
    if let Some(v) = integer(&value).or(match value {
        Literal::Bool(v) => Some(v.into()),
        _ => None,
    }) {
        return match to {
            // At most 64 bits, so i128 loses nothing. What f32 rounds is infinite in f16.
            Scalar::F16 => Literal::F16(f16::from_f32(v as f32)),
            Scalar::F32 => Literal::F32(v as f32),
            Scalar::F64 => Literal::F64(v as f64),
            _ => of_integer(to, v),
        };
    }
    let wide = match value {
        Literal::F16(v) => f64::from(v.to_f32()),
        Literal::F32(v) => f64::from(v),
        Literal::F64(v) => v,
        _ => 0.0,
    };
    match to {
        Scalar::Bool => Literal::Bool(wide != 0.0),
        Scalar::U32 => Literal::U32(wide as u32),
        Scalar::I32 => Literal::I32(wide as i32),
        Scalar::U64 => Literal::U64(wide as u64),
        Scalar::I64 => Literal::I64(wide as i64),
        Scalar::F16 => Literal::F16(f64_to_f16(wide)),
        Scalar::F32 => Literal::F32(wide as f32),
        Scalar::F64 => Literal::F64(wide),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f64_rounds_to_f16_once() {
        // Just above the middle of 1 and its successor: f32 would land on the middle and round down.
        let above = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
        assert_eq!(f64_to_f16(above).to_bits(), 0x3c01);
        assert_eq!(f64_to_f16(1.0 + 2f64.powi(-11)).to_bits(), 0x3c00);
        assert_eq!(f64_to_f16(65519.999999).to_bits(), 0x7bff);
        assert_eq!(f64_to_f16(65520.0).to_bits(), 0x7c00);
        assert_eq!(f64_to_f16(-0.0).to_bits(), 0x8000);
    }

    #[test]
    fn corner_cases_of_integers() {
        use Literal::{I32, U32};
        assert_eq!(binary(Binary::Div, U32(7), U32(0)), Some(U32(7)));
        assert_eq!(binary(Binary::Rem, I32(7), I32(0)), Some(I32(0)));
        assert_eq!(binary(Binary::Div, I32(i32::MIN), I32(-1)), Some(I32(i32::MIN)));
        assert_eq!(binary(Binary::Rem, I32(i32::MIN), I32(-1)), Some(I32(0)));
        assert_eq!(binary(Binary::Shl, U32(1), U32(33)), Some(U32(2)));
        assert_eq!(unary(Unary::FirstLeadingBit, I32(-1)), Some(I32(-1)));
        assert_eq!(unary(Unary::FirstLeadingBit, U32(0)), Some(U32(u32::MAX)));
        assert_eq!(cast(Literal::F32(f32::NAN), Scalar::I32), I32(0));
        assert_eq!(cast(Literal::F32(1e20), Scalar::I32), I32(i32::MAX));
    }
}
