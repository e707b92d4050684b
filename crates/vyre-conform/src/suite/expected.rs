//! What operations give, computed in another way than the reference does: integers through i128, floats through the host.

use half::f16;
use vyre_foundation::ir::{BinaryOp, MathOp};
use vyre_foundation::kernel::Scalar;

/// The number that an integer's bits stand for.
fn number(scalar: Scalar, bits: u64) -> i128 {
    match scalar {
        Scalar::I32 => i128::from(bits as u32 as i32),
        Scalar::I64 => i128::from(bits as i64),
        Scalar::U32 => i128::from(bits as u32),
        _ => i128::from(bits),
    }
}

/// The bits of a number, wrapped.
fn wrapped(scalar: Scalar, number: i128) -> u64 {
    let bits = number as u64;
    if scalar.bits() == 32 { bits & 0xFFFF_FFFF } else { bits }
}

/// A binary operation; `None` where this page has no opinion.
pub(super) fn binary(op: BinaryOp, scalar: Scalar, a: u64, b: u64) -> Option<u64> {
    use BinaryOp as B;
    match scalar {
        Scalar::Bool => Some(match op {
            B::And => a & b,
            B::Or => a | b,
            B::Xor | B::Ne => a ^ b,
            B::Eq => u64::from(a == b),
            _ => return None,
        }),
        Scalar::F16 | Scalar::F32 | Scalar::F64 => float_binary(op, scalar, a, b),
        _ => {
            let (x, y) = (number(scalar, a), number(scalar, b));
            let count = b as u32 % scalar.bits();
            Some(match op {
                B::Add => wrapped(scalar, x + y),
                B::Sub => wrapped(scalar, x - y),
                B::Mul => wrapped(scalar, x.wrapping_mul(y)),
                B::Div => wrapped(scalar, if y == 0 { x } else { x / y }),
                B::Rem => wrapped(scalar, if y == 0 { 0 } else { x % y }),
                B::And => a & b,
                B::Or => a | b,
                B::Xor => a ^ b,
                B::Shl => wrapped(scalar, x << count),
                B::Shr => wrapped(scalar, x >> count),
                B::Eq => u64::from(x == y),
                B::Ne => u64::from(x != y),
                B::Lt => u64::from(x < y),
                B::Le => u64::from(x <= y),
                B::Gt => u64::from(x > y),
                B::Ge => u64::from(x >= y),
            })
        }
    }
}

fn float_binary(op: BinaryOp, scalar: Scalar, a: u64, b: u64) -> Option<u64> {
    use BinaryOp as B;
    let (x, y) = (float(scalar, a), float(scalar, b));
    let compared = match op {
        B::Eq => Some(x == y),
        B::Ne => Some(x != y),
        B::Lt => Some(x < y),
        B::Le => Some(x <= y),
        B::Gt => Some(x > y),
        B::Ge => Some(x >= y),
        _ => None,
    };
    if let Some(compared) = compared {
        return Some(u64::from(compared));
    }
    // f32 arithmetic in f64, rounded once more, is correct: 53 bits are more than twice 24, and two.
    let exact = match op {
        B::Add => x + y,
        B::Sub => x - y,
        B::Mul => x * y,
        B::Div => x / y,
        _ => return None,
    };
    Some(bits(scalar, exact))
}

pub(super) fn float(scalar: Scalar, bits: u64) -> f64 {
    match scalar {
        Scalar::F16 => f16::from_bits(bits as u16).to_f64(),
        Scalar::F32 => f64::from(f32::from_bits(bits as u32)),
        _ => f64::from_bits(bits),
    }
}

pub(super) fn bits(scalar: Scalar, value: f64) -> u64 {
    match scalar {
        Scalar::F16 => u64::from(f16::from_f64(value).to_bits()),
        Scalar::F32 => u64::from((value as f32).to_bits()),
        _ => value.to_bits(),
    }
}

/// A built-in function of integers, or an exact one of floats; `None` where this page has no opinion.
pub(super) fn math(op: MathOp, scalar: Scalar, args: &[u64]) -> Option<u64> {
    use MathOp as M;
    let a = args[0];
    if scalar.is_float() {
        let x = float(scalar, a);
        let out = match op {
            M::Abs => x.abs(),
            M::Sign if x == 0.0 || x.is_nan() => x,
            M::Sign => x.signum(),
            M::Min => {
                let y = float(scalar, args[1]);
                if y < x { y } else { x }
            }
            M::Max => {
                let y = float(scalar, args[1]);
                if x < y { y } else { x }
            }
            M::Floor => x.floor(),
            M::Ceil => x.ceil(),
            M::Trunc => x.trunc(),
            M::Round => x.round_ties_even(),
            M::Sqrt => x.sqrt(),
            M::Exp => x.exp(),
            M::Exp2 => x.exp2(),
            M::Log => x.ln(),
            M::Log2 => x.log2(),
            M::Sin => x.sin(),
            M::Cos => x.cos(),
            M::Tan => x.tan(),
            M::Asin => x.asin(),
            M::Acos => x.acos(),
            M::Atan => x.atan(),
            M::Atan2 => x.atan2(float(scalar, args[1])),
            M::Sinh => x.sinh(),
            M::Cosh => x.cosh(),
            M::Tanh => x.tanh(),
            _ => return None,
        };
        // The host's own f64 functions are no judge of f64.
        let exact =
            matches!(op, M::Abs | M::Sign | M::Min | M::Max | M::Floor | M::Ceil | M::Trunc | M::Round | M::Sqrt);
        return if scalar == Scalar::F64 && !exact { None } else { Some(bits(scalar, out)) };
    }
    let width = scalar.bits();
    let x = number(scalar, a);
    let minus_one = wrapped(scalar, -1);
    let highest = |word: u64| (0..width).rev().find(|&i| word >> i & 1 == 1);
    let lowest = |word: u64| (0..width).find(|&i| word >> i & 1 == 1);
    Some(match op {
        M::Abs => wrapped(scalar, x.abs()),
        M::Sign => wrapped(scalar, x.signum()),
        M::Min => wrapped(scalar, x.min(number(scalar, args[1]))),
        M::Max => wrapped(scalar, x.max(number(scalar, args[1]))),
        M::Clamp => wrapped(scalar, x.max(number(scalar, args[1])).min(number(scalar, args[2]))),
        M::CountOneBits => u64::from(a.count_ones()),
        M::CountLeadingZeros => u64::from(highest(a).map_or(width, |i| width - 1 - i)),
        M::CountTrailingZeros => u64::from(lowest(a).unwrap_or(width)),
        M::ReverseBits => (0..width).fold(0, |out, i| out | (a >> i & 1) << (width - 1 - i)),
        M::FirstLeadingBit => {
            let word = if x < 0 { wrapped(scalar, !x) } else { a };
            highest(word).map_or(minus_one, u64::from)
        }
        M::FirstTrailingBit => lowest(a).map_or(minus_one, u64::from),
        M::MulHigh => wrapped(scalar, (x * number(scalar, args[1])) >> 32),
        M::ExtractBits => {
            let offset = (args[1] as u32).min(32);
            let count = (args[2] as u32).min(32 - offset);
            if count == 0 {
                0
            } else {
                let up = x << (128 - offset - count);
                // Signed shifts keep the sign for i32; u32 goes through u128.
                let down = if scalar.is_signed() { up >> (128 - count) } else { (up as u128 >> (128 - count)) as i128 };
                wrapped(scalar, down)
            }
        }
        M::InsertBits => {
            let offset = (args[2] as u32).min(32);
            let count = (args[3] as u32).min(32 - offset);
            let mask = ((1u64 << count) - 1) << offset;
            (a & !mask) | (args[1] << offset & mask)
        }
        _ => return None,
    })
}

/// A conversion of a scalar.
pub(super) fn cast(from: Scalar, to: Scalar, word: u64) -> u64 {
    if from == Scalar::Bool {
        return if to.is_float() { bits(to, word as f64) } else { word };
    }
    if from.is_float() {
        let x = float(from, word);
        return match to {
            Scalar::Bool => u64::from(x != 0.0),
            Scalar::U32 => u64::from(x as u32),
            Scalar::I32 => u64::from(x as i32 as u32),
            Scalar::U64 => x as u64,
            Scalar::I64 => x as i64 as u64,
            _ => bits(to, x),
        };
    }
    let x = number(from, word);
    match to {
        Scalar::Bool => u64::from(x != 0),
        Scalar::F16 => u64::from(f16::from_f64(x as f64).to_bits()),
        Scalar::F32 => u64::from((x as f32).to_bits()),
        Scalar::F64 => (x as f64).to_bits(),
        _ => wrapped(to, x),
    }
}
