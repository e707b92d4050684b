//! Operations on single values, given and returned as bits (zero-extended; a bool is 0 or 1).
//!
//! Every function is total: what the kernel form does not allow gives zero. Functions that are not exactly defined, such as
//! `exp`, are computed in f64 and rounded once.

use half::{bf16, f16};

use super::{Binary, Element, MatrixMultiplyAdd, Scalar, Unary, Value, fold};
use crate::ir::{AtomicOp, Literal, MATRIX_COLUMNS, MATRIX_LANES, MATRIX_ROWS, MatrixKind};

/// One operand.
#[inline]
pub fn unary(op: Unary, ty: Scalar, a: u64) -> u64 {
    let value = fold::literal(ty, a);
    if let Some(result) = fold::unary(op, value) {
        return result.bits();
    }
    let Some(x) = wide(value) else { return 0 };
    let y = match op {
        // In f64 and rounded once this is correctly rounded: so says a test of every significand.
        Unary::InverseSqrt | Unary::RoughInverseSqrt => 1.0 / x.sqrt(),
        Unary::RoughReciprocal => 1.0 / x,
        Unary::RoughSqrt => x.sqrt(),
        Unary::Exp => x.exp(),
        Unary::Exp2 | Unary::RoughExp2 => x.exp2(),
        Unary::Log => x.ln(),
        Unary::Log2 | Unary::RoughLog2 => x.log2(),
        Unary::Sin | Unary::RoughSin => x.sin(),
        Unary::Cos | Unary::RoughCos => x.cos(),
        Unary::Tan => x.tan(),
        Unary::Asin => x.asin(),
        Unary::Acos => x.acos(),
        Unary::Atan => x.atan(),
        Unary::Sinh => x.sinh(),
        Unary::Cosh => x.cosh(),
        Unary::Tanh => x.tanh(),
        // The host's functions square their argument, which overflows for a large one.
        Unary::Asinh if x.abs() > 1e150 => (x.abs().ln() + std::f64::consts::LN_2).copysign(x),
        Unary::Acosh if x > 1e150 => x.ln() + std::f64::consts::LN_2,
        Unary::Asinh => x.asinh(),
        Unary::Acosh => x.acosh(),
        Unary::Atanh => x.atanh(),
        _ => return 0,
    };
    narrow(ty, y)
}

/// A matrix operation of one subgroup: the bits that each lane gets. `get` reads a value of a lane.
pub fn matrix(matrix: &MatrixMultiplyAdd, get: impl Fn(Value, usize) -> u64) -> [[u32; 4]; MATRIX_LANES as usize] {
    const DEPTH: usize = 16;
    let kind = matrix.kind;
    let mut a = [[0.0f64; DEPTH]; MATRIX_ROWS];
    let mut b = [[0.0f64; DEPTH]; MATRIX_COLUMNS];
    for lane in 0..MATRIX_LANES as usize {
        for element in 0..kind.in_register() {
            for (register, &value) in matrix.a.iter().enumerate() {
                let (row, depth) = kind.place_in_a(lane, register, element);
                a[row][depth] = kind.element(get(value, lane) as u32, element).into();
            }
            for (register, &value) in matrix.b.iter().enumerate() {
                let (depth, column) = kind.place_in_b(lane, register, element);
                b[column][depth] = kind.element(get(value, lane) as u32, element).into();
            }
        }
    }
    std::array::from_fn(|lane| {
        std::array::from_fn(|register| {
            let (row, column) = MatrixKind::place_in_c(lane, register);
            let start = f64::from(f32::from_bits(get(matrix.c[register], lane) as u32));
            let products = a[row].iter().zip(&b[column]).take(kind.depth());
            (products.fold(start, |sum, (a, b)| sum + a * b) as f32).to_bits()
        })
    })
}

/// Two operands of type `ty` (the count of a shift is u32).
#[inline]
pub fn binary(op: Binary, ty: Scalar, a: u64, b: u64) -> u64 {
    let right = if matches!(op, Binary::Shl | Binary::Shr) { Scalar::U32 } else { ty };
    let (left, right) = (fold::literal(ty, a), fold::literal(right, b));
    if let Some(result) = fold::binary(op, left, right) {
        return result.bits();
    }
    let (Some(x), Some(y)) = (wide(left), wide(right)) else { return 0 };
    match op {
        Binary::Pow if x < 0.0 => narrow(ty, f64::NAN),
        Binary::Pow => narrow(ty, x.abs().powf(y)),
        Binary::Atan2 => narrow(ty, x.atan2(y)),
        Binary::Rem => {
            let quotient = fold::binary(Binary::Div, left, right);
            let whole = quotient.and_then(|quotient| fold::unary(Unary::Trunc, quotient));
            let product = whole.and_then(|whole| fold::binary(Binary::Mul, right, whole));
            product.and_then(|product| fold::binary(Binary::Sub, left, product)).map_or(0, |result| result.bits())
        }
        _ => 0,
    }
}

/// `a·b + c` with one rounding.
#[inline]
pub fn fma(ty: Scalar, a: u64, b: u64, c: u64) -> u64 {
    fold::fma(fold::literal(ty, a), fold::literal(ty, b), fold::literal(ty, c)).map_or(0, |result| result.bits())
}

/// Converts the value.
#[inline]
pub fn cast(from: Scalar, to: Scalar, a: u64) -> u64 {
    fold::cast(fold::literal(from, a), to).bits()
}

/// Keeps the bits; those above the width of `to` are dropped.
#[inline]
pub fn bit_cast(from: Scalar, to: Scalar, a: u64) -> u64 {
    fold::literal(to, fold::literal(from, a).bits()).bits()
}

/// What an atomic operation leaves in memory.
#[inline]
pub fn atomic(op: AtomicOp, ty: Scalar, old: u64, value: u64, compare: u64) -> u64 {
    let op = match op {
        AtomicOp::Load => return old,
        AtomicOp::Store | AtomicOp::Exchange => return value,
        AtomicOp::CompareExchange => return if old == compare { value } else { old },
        AtomicOp::Add => Binary::Add,
        AtomicOp::Sub => Binary::Sub,
        AtomicOp::Min => Binary::Min,
        AtomicOp::Max => Binary::Max,
        AtomicOp::And => Binary::And,
        AtomicOp::Or => Binary::Or,
        AtomicOp::Xor => Binary::Xor,
    };
    binary(op, ty, old, value)
}

fn wide(value: Literal) -> Option<f64> {
    match value {
        Literal::F16(v) => Some(v.to_f32().into()),
        Literal::F32(v) => Some(v.into()),
        Literal::F64(v) => Some(v),
        _ => None,
    }
}

fn narrow(ty: Scalar, value: f64) -> u64 {
    match ty {
        Scalar::F16 => fold::f64_to_f16(value).to_bits().into(),
        Scalar::F32 => (value as f32).to_bits().into(),
        _ => value.to_bits(),
    }
}

/// The levels of NF4, in order.
pub(super) const NF4: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

/// A small float: bits of the mantissa, bias of the exponent, largest finite magnitude, and the code of NaN.
struct Small {
    mantissa: u32,
    bias: i32,
    sign: u32,
    max: u32,
    nan: u32,
}

const E4M3: Small = Small { mantissa: 3, bias: 7, sign: 0x80, max: 0x7e, nan: 0x7f };
const E5M2: Small = Small { mantissa: 2, bias: 15, sign: 0x80, max: 0x7b, nan: 0x7f };
const E2M1: Small = Small { mantissa: 1, bias: 1, sign: 0x8, max: 0x7, nan: 0x7 };

impl Small {
    fn decode(&self, code: u32) -> f32 {
        let magnitude = code & (self.sign - 1);
        let exponent = magnitude >> self.mantissa;
        let fraction = magnitude & ((1 << self.mantissa) - 1);
        let scale = |exponent: i32| f32::from_bits(((exponent + 127) as u32) << 23);
        let value = if magnitude > self.max {
            // Of these formats only E5M2 has an infinity.
            if self.bias == 15 && fraction == 0 { f32::INFINITY } else { f32::NAN }
        } else if exponent == 0 {
            fraction as f32 * scale(1 - self.bias - self.mantissa as i32)
        } else {
            (fraction + (1 << self.mantissa)) as f32 * scale(exponent as i32 - self.bias - self.mantissa as i32)
        };
        if code & self.sign != 0 { -value } else { value }
    }

    fn encode(&self, value: f32) -> u32 {
        if value.is_nan() {
            return self.nan;
        }
        let sign = if value.is_sign_negative() { self.sign } else { 0 };
        let magnitude = value.abs();
        // Find the nearest code by bisection over the ordered magnitudes.
        let (mut low, mut high) = (0, self.max);
        while low < high {
            let middle = (low + high).div_ceil(2);
            if self.decode(middle) <= magnitude { low = middle } else { high = middle - 1 }
        }
        if low < self.max {
            let (below, above) = (f64::from(self.decode(low)), f64::from(self.decode(low + 1)));
            let twice = 2.0 * f64::from(magnitude);
            if twice > below + above || (twice == below + above && low & 1 == 1) {
                low += 1;
            }
        }
        sign | low
    }
}

/// The value of a stored element.
#[inline]
pub fn decode(element: Element, stored: u64) -> u64 {
    let float = |value: f32| u64::from(value.to_bits());
    match element {
        Element::Bool => u64::from(stored as u32 != 0),
        Element::U32 | Element::I32 | Element::F32 => u64::from(stored as u32),
        Element::U64 | Element::I64 | Element::F64 => stored,
        Element::F16 | Element::U16 => u64::from(stored as u16),
        Element::U8 => u64::from(stored as u8),
        Element::I8 => u64::from(i32::from(stored as i8) as u32),
        Element::I16 => u64::from(i32::from(stored as i16) as u32),
        Element::I4 => u64::from((((stored as i32) << 28) >> 28) as u32),
        Element::BF16 => float(bf16::from_bits(stored as u16).to_f32()),
        Element::F8E4M3 => float(E4M3.decode(stored as u32 & 0xff)),
        Element::F8E5M2 => float(E5M2.decode(stored as u32 & 0xff)),
        Element::FP4 => float(E2M1.decode(stored as u32 & 0xf)),
        Element::NF4 => float(NF4[stored as usize & 15]),
    }
}

/// What is stored for a value; that of a 4-bit element is in the low half of a byte.
#[inline]
pub fn encode(element: Element, value: u64) -> u64 {
    let float = f32::from_bits(value as u32);
    match element {
        Element::Bool => value & 1,
        Element::U32 | Element::I32 | Element::F32 => u64::from(value as u32),
        Element::U64 | Element::I64 | Element::F64 => value,
        Element::F16 => u64::from(f16::from_bits(value as u16).to_bits()),
        Element::U8 | Element::I8 => value & 0xff,
        Element::U16 | Element::I16 => value & 0xffff,
        Element::I4 => value & 0xf,
        Element::BF16 if float.is_nan() => 0x7fc0,
        Element::BF16 => bf16::from_f32(float).to_bits().into(),
        Element::F8E4M3 => E4M3.encode(float).into(),
        Element::F8E5M2 => E5M2.encode(float).into(),
        Element::FP4 => E2M1.encode(float).into(),
        Element::NF4 if float.is_nan() => 7,
        Element::NF4 => {
            // The sum of two neighbours is exact in f64, so a tie goes to the lower one.
            let above = |pair: &&[f32]| 2.0 * f64::from(float) > f64::from(pair[0]) + f64::from(pair[1]);
            NF4.windows(2).take_while(above).count() as u64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_floats_round_to_nearest_even_and_saturate() {
        let encode = |element, value: f32| encode(element, value.to_bits().into());
        for element in [Element::F8E4M3, Element::F8E5M2, Element::FP4, Element::NF4] {
            for code in 0..(1u64 << element.bits()) {
                let value = f32::from_bits(decode(element, code) as u32);
                if value.is_finite() {
                    assert_eq!(encode(element, value), code, "{element:?} {code:#x} = {value}");
                }
            }
        }
        assert_eq!(encode(Element::F8E4M3, f32::INFINITY), 0x7e);
        assert_eq!(encode(Element::F8E4M3, -1e9), 0xfe);
        assert_eq!(encode(Element::F8E5M2, f32::INFINITY), 0x7b);
        assert_eq!(encode(Element::FP4, f32::NAN), 7);
        assert_eq!(encode(Element::FP4, 2.5), 4); // half-way between 2 (even) and 3
        assert_eq!(encode(Element::FP4, 5.0), 6); // half-way between 4 (even) and 6
        assert_eq!(encode(Element::BF16, f32::NAN), 0x7fc0);
    }
}
