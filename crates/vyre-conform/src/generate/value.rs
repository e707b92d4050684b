//! Constants and input bytes: mostly ordinary values, with the special ones that break things.

use half::f16;
use vyre_foundation::ir::{DataType, Literal};
use vyre_foundation::kernel::{Scalar, Type};

use super::{Floats, Generator};

/// The IR type of a value.
pub(super) fn data_type(ty: Type) -> DataType {
    match ty.width {
        1 => ty.scalar.data_type(),
        width => DataType::vector(ty.scalar.data_type(), u32::from(width)),
    }
}

impl Generator {
    pub(super) fn literal(&mut self, scalar: Scalar) -> Literal {
        match scalar {
            Scalar::Bool => Literal::Bool(self.rng.chance(1, 2)),
            Scalar::U32 => Literal::U32(self.integer(32) as u32),
            Scalar::I32 => Literal::I32(self.integer(32) as i32),
            Scalar::U64 => Literal::U64(self.integer(64)),
            Scalar::I64 => Literal::I64(self.integer(64) as i64),
            Scalar::F16 => {
                let value = self.float(5, 10);
                Literal::F16(f16::from_f64(value))
            }
            Scalar::F32 => Literal::F32(self.float(8, 23) as f32),
            Scalar::F64 => Literal::F64(self.float(11, 52)),
        }
    }

    fn integer(&mut self, bits: u32) -> u64 {
        let top = 1u64 << (bits - 1);
        match self.rng.below(16) {
            0 => 0,
            1 => 1,
            2 => top,
            3 => top - 1,
            4 => u64::MAX,
            5 => 1 << self.rng.below(bits),
            6 => u64::from(self.rng.range(30, 34)),
            7 => self.rng.bits(),
            8 => self.rng.bits() >> self.rng.below(64),
            9 => u64::from(self.rng.below(64)).wrapping_neg(),
            _ => u64::from(self.rng.below(20)),
        }
    }

    /// A number that the format with so many exponent and mantissa bits can hold, as f64.
    fn float(&mut self, exponent: u32, mantissa: u32) -> f64 {
        let small = f64::from(self.rng.below(33)) - 16.0;
        if self.options.floats == Floats::Whole {
            // Zero keeps its sign out of it.
            return small.trunc();
        }
        let bias = (1 << (exponent - 1)) - 1;
        match self.rng.below(32) {
            0 => f64::INFINITY,
            1 => f64::NAN,
            2 => -0.0,
            3 => 2f64.powi(1 - bias - mantissa as i32),
            4 => 2f64.powi(bias) * (2.0 - 2f64.powi(-(mantissa as i32))),
            5 => 2f64.powi(1 - bias),
            6 => f64::NEG_INFINITY,
            7..=14 => {
                let fraction = (self.rng.bits() >> 12) as f64 / 2f64.powi(52);
                let scale = 2f64.powi(self.rng.below(16) as i32 - 8);
                let value = fraction * scale * if self.rng.chance(1, 2) { -1.0 } else { 1.0 };
                match mantissa {
                    10 => f16::from_f64(value).to_f64(),
                    23 => f64::from(value as f32),
                    _ => value,
                }
            }
            15..=20 => small / 4.0,
            _ => small,
        }
    }

    /// Random bytes of one scalar of a buffer.
    pub(super) fn scalar_bytes(&mut self, ty: &DataType, out: &mut Vec<u8>) {
        let scalar = match ty {
            DataType::Bool => {
                let value = [0u32, 1, 1, 2, 0x8000_0000][self.rng.below(5) as usize];
                return out.extend(value.to_le_bytes());
            }
            DataType::U32 => Scalar::U32,
            DataType::I32 => Scalar::I32,
            DataType::U64 => Scalar::U64,
            DataType::I64 => Scalar::I64,
            DataType::F16 => Scalar::F16,
            DataType::F32 => Scalar::F32,
            DataType::F64 => Scalar::F64,
            other => {
                let bytes = other.bits().unwrap_or(8).div_ceil(8) as usize;
                return out.extend(&self.rng.bits().to_le_bytes()[..bytes]);
            }
        };
        let bytes = (scalar.bits() / 8) as usize;
        let word = self.literal(scalar).bits().to_le_bytes();
        out.extend(&word[..bytes]);
    }
}

pub(super) fn type_of(ty: &DataType) -> Type {
    let (scalar, width) = match ty.as_vector() {
        Some((element, count)) => (element, count as u8),
        None => (ty.clone(), 1),
    };
    let scalar = match scalar {
        DataType::Bool => Scalar::Bool,
        DataType::I32 => Scalar::I32,
        DataType::U64 => Scalar::U64,
        DataType::I64 => Scalar::I64,
        DataType::F16 => Scalar::F16,
        DataType::F32 => Scalar::F32,
        DataType::F64 => Scalar::F64,
        _ => Scalar::U32,
    };
    Type { scalar, width }
}
