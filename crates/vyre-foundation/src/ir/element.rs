//! Scalars: as they compute, and as they lie in memory.

use super::DataType;

/// A type that computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Scalar {
    Bool,
    U32,
    I32,
    U64,
    I64,
    F16,
    F32,
    F64,
}

impl Scalar {
    /// Width of the value in bits; 1 for bool.
    pub fn bits(self) -> u32 {
        match self {
            Scalar::Bool => 1,
            Scalar::F16 => 16,
            Scalar::U32 | Scalar::I32 | Scalar::F32 => 32,
            Scalar::U64 | Scalar::I64 | Scalar::F64 => 64,
        }
    }

    /// f16, f32 or f64.
    pub fn is_float(self) -> bool {
        matches!(self, Scalar::F16 | Scalar::F32 | Scalar::F64)
    }

    /// i32 or i64.
    pub fn is_signed(self) -> bool {
        matches!(self, Scalar::I32 | Scalar::I64)
    }

    /// The same type in the IR.
    pub fn data_type(self) -> DataType {
        match self {
            Scalar::Bool => DataType::Bool,
            Scalar::U32 => DataType::U32,
            Scalar::I32 => DataType::I32,
            Scalar::U64 => DataType::U64,
            Scalar::I64 => DataType::I64,
            Scalar::F16 => DataType::F16,
            Scalar::F32 => DataType::F32,
            Scalar::F64 => DataType::F64,
        }
    }
}

/// How a scalar lies in memory. The first group is stored as it computes; the second is converted: integers extend and wrap,
/// floats widen exactly and are rounded to nearest even (the 8- and 4-bit ones saturate).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub enum Element {
    /// A word, zero or not zero; stored as 0 or 1.
    Bool,
    U32,
    I32,
    U64,
    I64,
    F16,
    F32,
    F64,
    /// As u32.
    U8,
    /// As u32.
    U16,
    /// As i32.
    I8,
    /// As i32.
    I16,
    /// As f32.
    BF16,
    /// As f32.
    F8E4M3,
    /// As f32.
    F8E5M2,
    /// As i32; two in a byte, the even one in the low half.
    I4,
    /// As f32; two in a byte.
    FP4,
    /// As f32; two in a byte.
    NF4,
}

impl Element {
    /// Bits in memory.
    pub fn bits(self) -> u32 {
        match self {
            Element::I4 | Element::FP4 | Element::NF4 => 4,
            Element::U8 | Element::I8 | Element::F8E4M3 | Element::F8E5M2 => 8,
            Element::F16 | Element::BF16 | Element::U16 | Element::I16 => 16,
            Element::Bool | Element::U32 | Element::I32 | Element::F32 => 32,
            Element::U64 | Element::I64 | Element::F64 => 64,
        }
    }

    /// The type it computes as.
    pub fn scalar(self) -> Scalar {
        match self {
            Element::Bool => Scalar::Bool,
            Element::U32 | Element::U8 | Element::U16 => Scalar::U32,
            Element::I32 | Element::I8 | Element::I16 | Element::I4 => Scalar::I32,
            Element::U64 => Scalar::U64,
            Element::I64 => Scalar::I64,
            Element::F16 => Scalar::F16,
            Element::F64 => Scalar::F64,
            Element::F32 | Element::BF16 | Element::F8E4M3 | Element::F8E5M2 | Element::FP4 | Element::NF4 => {
                Scalar::F32
            }
        }
    }

    /// The element that a scalar data type is stored as; `None` for vectors, handles and descriptors.
    pub fn of(ty: &DataType) -> Option<Element> {
        Some(match ty {
            DataType::Bool => Element::Bool,
            DataType::U32 => Element::U32,
            DataType::I32 => Element::I32,
            DataType::U64 => Element::U64,
            DataType::I64 => Element::I64,
            DataType::F16 => Element::F16,
            DataType::F32 => Element::F32,
            DataType::F64 => Element::F64,
            DataType::U8 => Element::U8,
            DataType::U16 => Element::U16,
            DataType::I8 => Element::I8,
            DataType::I16 => Element::I16,
            DataType::BF16 => Element::BF16,
            DataType::F8E4M3 => Element::F8E4M3,
            DataType::F8E5M2 => Element::F8E5M2,
            DataType::I4 => Element::I4,
            DataType::FP4 => Element::FP4,
            DataType::NF4 => Element::NF4,
            _ => return None,
        })
    }
}
