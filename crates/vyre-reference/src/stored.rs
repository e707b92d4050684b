//! How scalars lie in memory, and the conversions on load and store.
//!
//! Integers extend on load and keep their low bits on store. Floats widen exactly on load and are rounded to nearest, ties to
//! even, on store. Beyond the largest finite value, f16 and bf16 go to infinity; the 8- and 4-bit floats stay at the largest
//! finite value, infinity included. A NaN stays a NaN where the format has one; in FP4 it becomes 6, the largest value, and in
//! NF4 zero.

use half::f16;
use vyre_foundation::ir::{Element, Literal};

/// The value with these bits (the low ones, as many as the element has).
pub(crate) fn decode(element: Element, bits: u64) -> Literal {
    match element {
        Element::Bool => Literal::Bool(bits as u32 != 0),
        Element::U32 => Literal::U32(bits as u32),
        Element::I32 => Literal::I32(bits as i32),
        Element::U64 => Literal::U64(bits),
        Element::I64 => Literal::I64(bits as i64),
        Element::F16 => Literal::F16(f16::from_bits(bits as u16)),
        Element::F32 => Literal::F32(f32::from_bits(bits as u32)),
        Element::F64 => Literal::F64(f64::from_bits(bits)),
        Element::U8 => Literal::U32(u32::from(bits as u8)),
        Element::U16 => Literal::U32(u32::from(bits as u16)),
        Element::I8 => Literal::I32(i32::from(bits as i8)),
        Element::I16 => Literal::I32(i32::from(bits as i16)),
        Element::I4 => Literal::I32(((bits as i32) << 28) >> 28),
        Element::BF16 => Literal::F32(f32::from_bits((bits as u32) << 16)),
        Element::F8E4M3 => Literal::F32(E4M3.decode(bits) as f32),
        Element::F8E5M2 => Literal::F32(E5M2.decode(bits) as f32),
        Element::FP4 => Literal::F32(E2M1.decode(bits) as f32),
        Element::NF4 => Literal::F32(NF4[bits as usize & 15]),
    }
}

/// The bits that hold a value. `None` when it has not the type that the element computes as.
pub(crate) fn encode(element: Element, value: Literal) -> Option<u64> {
    Some(match (element, value) {
        (Element::Bool, Literal::Bool(_))
        | (Element::U32, Literal::U32(_))
        | (Element::I32, Literal::I32(_))
        | (Element::U64, Literal::U64(_))
        | (Element::I64, Literal::I64(_))
        | (Element::F16, Literal::F16(_))
        | (Element::F32, Literal::F32(_))
        | (Element::F64, Literal::F64(_)) => value.bits(),
        (Element::U8, Literal::U32(_)) | (Element::I8, Literal::I32(_)) => value.bits() & 0xFF,
        (Element::U16, Literal::U32(_)) | (Element::I16, Literal::I32(_)) => value.bits() & 0xFFFF,
        (Element::I4, Literal::I32(_)) => value.bits() & 0xF,
        (Element::BF16, Literal::F32(value)) => BF16.encode(f64::from(value)),
        (Element::F8E4M3, Literal::F32(value)) => E4M3.encode(f64::from(value)),
        (Element::F8E5M2, Literal::F32(value)) => E5M2.encode(f64::from(value)),
        (Element::FP4, Literal::F32(value)) => E2M1.encode(f64::from(value)),
        (Element::NF4, Literal::F32(value)) => encode_nf4(value),
        _ => return None,
    })
}

/// Rounds to the nearest f16, ties to even.
pub(crate) fn round_f16(value: f64) -> f16 {
    f16::from_bits(F16.encode(value) as u16)
}

/// A small binary float: sign, exponent, mantissa, with subnormals.
struct Format {
    exponent_bits: u32,
    mantissa_bits: u32,
    /// Exponent of the smallest normal number.
    min_exponent: i32,
    /// Code of the largest finite value.
    max_finite: u64,
    /// What larger values become.
    overflow: u64,
    /// Smallest code that is not finite; greater than `max_finite` also where there is no infinity.
    infinity: u64,
    nan: u64,
}

const F16: Format = Format {
    exponent_bits: 5,
    mantissa_bits: 10,
    min_exponent: -14,
    max_finite: 0x7BFF,
    overflow: 0x7C00,
    infinity: 0x7C00,
    nan: 0x7E00,
};
const BF16: Format = Format {
    exponent_bits: 8,
    mantissa_bits: 7,
    min_exponent: -126,
    max_finite: 0x7F7F,
    overflow: 0x7F80,
    infinity: 0x7F80,
    nan: 0x7FC0,
};
/// The "fn" kind: no infinity, one NaN of each sign.
const E4M3: Format = Format {
    exponent_bits: 4,
    mantissa_bits: 3,
    min_exponent: -6,
    max_finite: 0x7E,
    overflow: 0x7E,
    infinity: u64::MAX,
    nan: 0x7F,
};
const E5M2: Format = Format {
    exponent_bits: 5,
    mantissa_bits: 2,
    min_exponent: -14,
    max_finite: 0x7B,
    overflow: 0x7B,
    infinity: 0x7C,
    nan: 0x7F,
};
/// FP4: neither infinity nor NaN.
const E2M1: Format = Format {
    exponent_bits: 2,
    mantissa_bits: 1,
    min_exponent: 0,
    max_finite: 0x7,
    overflow: 0x7,
    infinity: u64::MAX,
    nan: 0x7,
};

impl Format {
    fn sign(&self) -> u64 {
        1 << (self.exponent_bits + self.mantissa_bits)
    }

    fn decode(&self, bits: u64) -> f64 {
        let magnitude = bits & (self.sign() - 1);
        let mantissa = magnitude & ((1 << self.mantissa_bits) - 1);
        let exponent = (magnitude >> self.mantissa_bits) as i32;
        let value = if magnitude == self.infinity {
            f64::INFINITY
        } else if magnitude > self.max_finite {
            f64::NAN
        } else if exponent == 0 {
            mantissa as f64 * power_of_two(self.min_exponent - self.mantissa_bits as i32)
        } else {
            (mantissa + (1 << self.mantissa_bits)) as f64
                * power_of_two(self.min_exponent + exponent - 1 - self.mantissa_bits as i32)
        };
        if bits & self.sign() != 0 { -value } else { value }
    }

    /// One rounding, to nearest, ties to even.
    fn encode(&self, value: f64) -> u64 {
        if value.is_nan() {
            return self.nan;
        }
        let sign = if value.is_sign_negative() { self.sign() } else { 0 };
        let exponent = ((value.to_bits() >> 52 & 0x7FF) as i32 - 1023).max(self.min_exponent);
        // The magnitude in units of its last place, which is exact: only the exponent changes.
        let units = value.abs() * power_of_two(self.mantissa_bits as i32 - exponent);
        if units.is_infinite() || exponent > 1000 {
            return sign | self.overflow;
        }
        // A mantissa that rounds up to the next power of two carries into the exponent by itself.
        let steps = ((exponent - self.min_exponent) as u64) << self.mantissa_bits;
        let magnitude = units.round_ties_even() as u64 + steps;
        sign | if magnitude > self.max_finite { self.overflow } else { magnitude }
    }
}

/// 2ⁿ for −1022 ≤ n ≤ 1023.
fn power_of_two(n: i32) -> f64 {
    f64::from_bits(((n + 1023) as u64) << 52)
}

/// The sixteen levels of QLoRA's NormalFloat, with the digits as published.
#[allow(clippy::excessive_precision)]
const NF4: [f32; 16] = [
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
];

/// The nearest level; the lower one half-way between two.
fn encode_nf4(value: f32) -> u64 {
    if value.is_nan() {
        return 7;
    }
    // The sum of two neighbours is exact in f64, so the comparison is exact.
    let above = |pair: &&[f32]| 2.0 * f64::from(value) > f64::from(pair[0]) + f64::from(pair[1]);
    NF4.windows(2).take_while(above).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn float(element: Element, code: u64) -> f32 {
        match decode(element, code) {
            Literal::F32(value) => value,
            other => panic!("{other:?}"),
        }
    }

    fn code(element: Element, value: f32) -> u64 {
        encode(element, Literal::F32(value)).expect("computes as f32")
    }

    #[test]
    fn four_bit_floats_by_table() {
        let positive = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
        for (i, value) in positive.into_iter().enumerate() {
            assert_eq!(float(Element::FP4, i as u64), value);
            assert_eq!(float(Element::FP4, i as u64 + 8).to_bits(), (-value).to_bits());
        }
        // Ties go to the code that is even.
        for (value, wanted) in
            [(0.25, 0), (0.26, 1), (0.75, 2), (1.25, 2), (1.75, 4), (2.5, 4), (3.5, 6), (5.0, 6), (5.1, 7), (-0.25, 8)]
        {
            assert_eq!(code(Element::FP4, value), wanted, "{value}");
        }
        for (value, wanted) in
            [(1e9, 7), (f32::INFINITY, 7), (-1e9, 15), (f32::NEG_INFINITY, 15), (f32::NAN, 7), (-f32::NAN, 7)]
        {
            assert_eq!(code(Element::FP4, value), wanted, "{value}");
        }
    }

    #[test]
    fn eight_bit_floats_by_example() {
        for (code, value) in [
            (0x00, 0.0),
            (0x01, 1.0 / 512.0),
            (0x07, 7.0 / 512.0),
            (0x08, 1.0 / 64.0),
            (0x38, 1.0),
            (0x3C, 1.5),
            (0x7E, 448.0),
            (0xFE, -448.0),
            (0xB8, -1.0),
        ] {
            assert_eq!(float(Element::F8E4M3, code), value);
        }
        for (code, value) in [
            (0x01, 1.0 / 65536.0),
            (0x04, 1.0 / 16384.0),
            (0x3C, 1.0),
            (0x3D, 1.25),
            (0x7B, 57344.0),
            (0x7C, f32::INFINITY),
            (0xFC, f32::NEG_INFINITY),
        ] {
            assert_eq!(float(Element::F8E5M2, code), value);
        }
        assert!(float(Element::F8E4M3, 0x7F).is_nan() && float(Element::F8E4M3, 0xFF).is_nan());
        assert!((0x7D..0x80).all(|code| float(Element::F8E5M2, code).is_nan()));
        for (value, e4m3, e5m2) in [
            (449.0, 0x7E, 0x5F),
            (1e30, 0x7E, 0x7B),
            (f32::INFINITY, 0x7E, 0x7B),
            (f32::NEG_INFINITY, 0xFE, 0xFB),
            (-0.0, 0x80, 0x80),
            (1e-30, 0x00, 0x00),
            (-1e-30, 0x80, 0x80),
        ] {
            assert_eq!(code(Element::F8E4M3, value), e4m3, "{value}");
            assert_eq!(code(Element::F8E5M2, value), e5m2, "{value}");
        }
        assert!(float(Element::F8E4M3, code(Element::F8E4M3, f32::NAN)).is_nan());
        assert!(float(Element::F8E5M2, code(Element::F8E5M2, f32::NAN)).is_nan());
    }

    /// Every finite code comes back; between neighbours, the nearer one is chosen, and the even one half-way.
    #[test]
    fn rounding_is_to_nearest_even_in_every_gap() {
        for (format, values) in [(&E2M1, 8), (&E4M3, 0x7F), (&E5M2, 0x7C), (&F16, 0x7C00), (&BF16, 0x7F80)] {
            let sign = format.sign();
            for code in 0..values {
                let value = format.decode(code);
                assert_eq!((format.encode(value), format.encode(-value)), (code, code | sign));
                if code + 1 == values {
                    continue;
                }
                let next = format.decode(code + 1);
                assert!(next > value, "values grow with their codes");
                let middle = (value + next) / 2.0;
                let even = if code % 2 == 0 { code } else { code + 1 };
                assert_eq!((format.encode(middle), format.encode(-middle)), (even, even | sign));
                let ulp = |by: i64| f64::from_bits((middle.to_bits() as i64 + by) as u64);
                assert_eq!((format.encode(ulp(-1)), format.encode(ulp(1))), (code, code + 1));
            }
        }
    }

    #[test]
    fn sixteen_bit_floats_agree_with_another_implementation() {
        let mut bits = 12345u32;
        for _ in 0..100_000 {
            bits = bits.wrapping_mul(1664525).wrapping_add(1013904223);
            let value = f32::from_bits(bits);
            let (f16, bf16) = (round_f16(f64::from(value)), code(Element::BF16, value) as u16);
            if value.is_nan() {
                assert!(f16.is_nan() && half::bf16::from_bits(bf16).is_nan());
            } else {
                assert_eq!(f16.to_bits(), half::f16::from_f32(value).to_bits(), "{value:e}");
                assert_eq!(bf16, half::bf16::from_f32(value).to_bits(), "{value:e}");
            }
        }
        for code in 0..=0xFFFF {
            let (value, other) = (F16.decode(code), f16::from_bits(code as u16).to_f64());
            assert!(value.to_bits() == other.to_bits() || value.is_nan() && other.is_nan());
        }
        assert_eq!(round_f16(65519.99), f16::MAX);
        assert_eq!(round_f16(65520.0), f16::INFINITY);
        assert_eq!(code(Element::BF16, f32::MAX), 0x7F80);
    }

    #[test]
    fn normal_float_chooses_the_nearest_level() {
        for (i, level) in NF4.into_iter().enumerate() {
            assert_eq!(code(Element::NF4, level), i as u64);
            assert_eq!(float(Element::NF4, i as u64), level);
        }
        // Against a search for the least distance; of two at the same distance the lower one.
        for step in -1200..=1200 {
            let value = step as f32 / 1000.0;
            let distance = |&i: &usize| (f64::from(NF4[i]) - f64::from(value)).abs();
            let nearest = (0..16).min_by(|a, b| distance(a).total_cmp(&distance(b))).expect("sixteen");
            assert_eq!(code(Element::NF4, value), nearest as u64, "{value}");
        }
        // 0 and its upper neighbour: half of the neighbour is a tie.
        assert_eq!(code(Element::NF4, NF4[8] / 2.0), 7);
        assert_eq!(code(Element::NF4, NF4[8] / 2.0 + 1e-8), 8);
        assert_eq!(code(Element::NF4, f32::INFINITY), 15);
        assert_eq!(code(Element::NF4, f32::NEG_INFINITY), 0);
        assert_eq!(code(Element::NF4, f32::NAN), 7);
    }

    #[test]
    fn small_integers_extend_and_wrap() {
        for code in 0..256u64 {
            assert_eq!(decode(Element::U8, code), Literal::U32(code as u32));
            assert_eq!(decode(Element::I8, code), Literal::I32(code as i32 - if code < 128 { 0 } else { 256 }));
        }
        for code in 0..16u64 {
            assert_eq!(decode(Element::I4, code), Literal::I32(code as i32 - if code < 8 { 0 } else { 16 }));
        }
        assert_eq!(decode(Element::I16, 0x8000), Literal::I32(-32768));
        assert_eq!(decode(Element::U16, 0xFFFF), Literal::U32(65535));
        assert_eq!(encode(Element::U8, Literal::U32(300)), Some(44));
        assert_eq!(encode(Element::I8, Literal::I32(-1)), Some(0xFF));
        assert_eq!(encode(Element::I8, Literal::I32(128)), Some(0x80));
        assert_eq!(encode(Element::U16, Literal::U32(65536)), Some(0));
        assert_eq!(encode(Element::I16, Literal::I32(-32769)), Some(0x7FFF));
        assert_eq!(encode(Element::I4, Literal::I32(9)), Some(9));
        assert_eq!(encode(Element::I4, Literal::I32(-17)), Some(15));
        assert_eq!(encode(Element::U8, Literal::I32(1)), None);
        assert_eq!(decode(Element::Bool, 0x100), Literal::Bool(true));
    }
}
