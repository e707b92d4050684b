use std::fmt;
use std::hash::{Hash, Hasher};

use half::f16;

use super::DataType;

/// A scalar constant. Floats are equal when their bits are, so that programs can be compared and hashed.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum Literal {
    Bool(bool),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F16(f16),
    F32(f32),
    F64(f64),
}

impl Literal {
    /// The type of the value.
    pub fn data_type(&self) -> DataType {
        match self {
            Literal::Bool(_) => DataType::Bool,
            Literal::U32(_) => DataType::U32,
            Literal::I32(_) => DataType::I32,
            Literal::U64(_) => DataType::U64,
            Literal::I64(_) => DataType::I64,
            Literal::F16(_) => DataType::F16,
            Literal::F32(_) => DataType::F32,
            Literal::F64(_) => DataType::F64,
        }
    }

    /// The value's bits, zero-extended.
    pub fn bits(&self) -> u64 {
        match *self {
            Literal::Bool(v) => u64::from(v),
            Literal::U32(v) => u64::from(v),
            Literal::I32(v) => u64::from(v as u32),
            Literal::U64(v) => v,
            Literal::I64(v) => v as u64,
            Literal::F16(v) => u64::from(v.to_bits()),
            Literal::F32(v) => u64::from(v.to_bits()),
            Literal::F64(v) => v.to_bits(),
        }
    }

    /// The zero of a scalar type; `None` when values of the type can't be computed with.
    pub fn zero(ty: &DataType) -> Option<Literal> {
        Literal::from_bits(ty, 0)
    }

    /// The value of type `ty` with these bits (those above the type's width are ignored); `None` when values of the type
    /// can't be computed with.
    pub fn from_bits(ty: &DataType, bits: u64) -> Option<Literal> {
        Some(match ty {
            DataType::Bool => Literal::Bool(bits & 1 != 0),
            DataType::U32 => Literal::U32(bits as u32),
            DataType::I32 => Literal::I32(bits as i32),
            DataType::U64 => Literal::U64(bits),
            DataType::I64 => Literal::I64(bits as i64),
            DataType::F16 => Literal::F16(f16::from_bits(bits as u16)),
            DataType::F32 => Literal::F32(f32::from_bits(bits as u32)),
            DataType::F64 => Literal::F64(f64::from_bits(bits)),
            _ => return None,
        })
    }
}

impl PartialEq for Literal {
    fn eq(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other) && self.bits() == other.bits()
    }
}

impl Eq for Literal {}

impl Hash for Literal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        self.bits().hash(state);
    }
}

macro_rules! from {
    ($($ty:ty => $variant:ident),*) => {
        $(impl From<$ty> for Literal {
            fn from(value: $ty) -> Self {
                Literal::$variant(value)
            }
        })*
    };
}
from!(bool => Bool, u32 => U32, i32 => I32, u64 => U64, i64 => I64, f16 => F16, f32 => F32, f64 => F64);

/// As the text form writes it: `7` is u32 and `1.5` f32, other types carry a suffix, and floats that decimal digits can't give
/// (infinities, NaN with its payload) are written as bits: `f32#7fc00000`.
impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Literal::Bool(value) => write!(f, "{value}"),
            Literal::U32(value) => write!(f, "{value}"),
            Literal::I32(value) => write!(f, "{value}i32"),
            Literal::U64(value) => write!(f, "{value}u64"),
            Literal::I64(value) => write!(f, "{value}i64"),
            Literal::F16(value) if value.is_finite() => write!(f, "{:?}f16", value.to_f32()),
            Literal::F32(value) if value.is_finite() => write!(f, "{value:?}"),
            Literal::F64(value) if value.is_finite() => write!(f, "{value:?}f64"),
            Literal::F16(value) => write!(f, "f16#{:04x}", value.to_bits()),
            Literal::F32(value) => write!(f, "f32#{:08x}", value.to_bits()),
            Literal::F64(value) => write!(f, "f64#{:016x}", value.to_bits()),
        }
    }
}
