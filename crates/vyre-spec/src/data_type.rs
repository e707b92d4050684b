//! Element types and their frozen tags.

use std::fmt;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// Number of a type that is defined elsewhere: in a program's type table for [`DataType::Handle`], by an extension for
/// [`DataType::Opaque`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TypeId(pub u32);

/// The type of a buffer's elements or of a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
#[allow(missing_docs)] // the variants are their own description; the ones that are not carry a comment
pub enum DataType {
    U32,
    I32,
    U64,
    Vec2U32,
    Vec4U32,
    Bool,
    /// Bytes without structure.
    Bytes,
    /// Elements of a fixed size in bytes, without structure.
    Array {
        element_size: u32,
    },
    F16,
    BF16,
    F32,
    F64,
    /// A tensor whose shape is not known here.
    Tensor,
    U8,
    U16,
    I8,
    I16,
    I64,
    /// A struct or fixed array, defined in the program's type table.
    Handle(TypeId),
    Vec {
        element: Box<DataType>,
        count: u32,
    },
    TensorShaped {
        element: Box<DataType>,
        shape: SmallVec<[u32; 4]>,
    },
    SparseCsr {
        element: Box<DataType>,
    },
    SparseCoo {
        element: Box<DataType>,
    },
    SparseBsr {
        element: Box<DataType>,
        block_rows: u32,
        block_cols: u32,
    },
    F8E4M3,
    F8E5M2,
    I4,
    FP4,
    NF4,
    DeviceMesh {
        axes: SmallVec<[u32; 4]>,
    },
    /// A type that only an extension understands.
    Opaque(TypeId),
}

/// How deep element types may nest in a key that is read back.
const MAX_DEPTH: u32 = 8;
/// How many axes a shape may have in a key that is read back.
const MAX_AXES: u32 = 64;

impl DataType {
    /// A vector of 2 to 4 scalars.
    pub fn vector(element: DataType, count: u32) -> DataType {
        DataType::Vec { element: Box::new(element), count }
    }

    /// The frozen tag.
    pub fn tag(&self) -> u8 {
        match self {
            DataType::U32 => 0x01,
            DataType::I32 => 0x02,
            DataType::U64 => 0x03,
            DataType::Vec2U32 => 0x04,
            DataType::Vec4U32 => 0x05,
            DataType::Bool => 0x06,
            DataType::Bytes => 0x07,
            DataType::Array { .. } => 0x08,
            DataType::F16 => 0x09,
            DataType::BF16 => 0x0A,
            DataType::F32 => 0x0B,
            DataType::F64 => 0x0C,
            DataType::Tensor => 0x0D,
            DataType::U8 => 0x0E,
            DataType::U16 => 0x0F,
            DataType::I8 => 0x10,
            DataType::I16 => 0x11,
            DataType::I64 => 0x12,
            DataType::Handle(_) => 0x13,
            DataType::Vec { .. } => 0x14,
            DataType::TensorShaped { .. } => 0x15,
            DataType::SparseCsr { .. } => 0x16,
            DataType::SparseCoo { .. } => 0x17,
            DataType::SparseBsr { .. } => 0x18,
            DataType::F8E4M3 => 0x19,
            DataType::F8E5M2 => 0x1A,
            DataType::I4 => 0x1B,
            DataType::FP4 => 0x1C,
            DataType::NF4 => 0x1D,
            DataType::DeviceMesh { .. } => 0x1E,
            DataType::Opaque(_) => 0x80,
        }
    }

    /// Tag and parameters, recursively: two different types never share a key, and a key is never the beginning of
    /// another.
    pub fn key(&self) -> Vec<u8> {
        let mut key = Vec::with_capacity(8);
        self.write_key(&mut key);
        key
    }

    /// Appends [`DataType::key`].
    pub fn write_key(&self, out: &mut Vec<u8>) {
        out.push(self.tag());
        let axes = |axes: &[u32], out: &mut Vec<u8>| {
            out.extend((axes.len() as u32).to_le_bytes());
            axes.iter().for_each(|axis| out.extend(axis.to_le_bytes()));
        };
        match self {
            DataType::Array { element_size } => out.extend(element_size.to_le_bytes()),
            DataType::Handle(id) | DataType::Opaque(id) => out.extend(id.0.to_le_bytes()),
            DataType::Vec { element, count } => {
                element.write_key(out);
                out.extend(count.to_le_bytes());
            }
            DataType::TensorShaped { element, shape } => {
                element.write_key(out);
                axes(shape, out);
            }
            DataType::SparseCsr { element } | DataType::SparseCoo { element } => element.write_key(out),
            DataType::SparseBsr { element, block_rows, block_cols } => {
                element.write_key(out);
                out.extend(block_rows.to_le_bytes());
                out.extend(block_cols.to_le_bytes());
            }
            DataType::DeviceMesh { axes: mesh } => axes(mesh, out),
            _ => {}
        }
    }

    /// Reads a key from the front of `bytes` and moves past it. `None` when the bytes are not a key.
    pub fn read_key(bytes: &mut &[u8]) -> Option<DataType> {
        Self::read_key_at(bytes, 0)
    }

    fn read_key_at(bytes: &mut &[u8], depth: u32) -> Option<DataType> {
        fn word(bytes: &mut &[u8]) -> Option<u32> {
            let (head, tail) = bytes.split_first_chunk::<4>()?;
            *bytes = tail;
            Some(u32::from_le_bytes(*head))
        }
        fn axes(bytes: &mut &[u8]) -> Option<SmallVec<[u32; 4]>> {
            let count = word(bytes)?;
            if count > MAX_AXES {
                return None;
            }
            (0..count).map(|_| word(bytes)).collect()
        }
        if depth > MAX_DEPTH {
            return None;
        }
        let (&tag, tail) = bytes.split_first()?;
        *bytes = tail;
        let element = |bytes: &mut &[u8]| Self::read_key_at(bytes, depth + 1).map(Box::new);
        Some(match tag {
            0x01 => DataType::U32,
            0x02 => DataType::I32,
            0x03 => DataType::U64,
            0x04 => DataType::Vec2U32,
            0x05 => DataType::Vec4U32,
            0x06 => DataType::Bool,
            0x07 => DataType::Bytes,
            0x08 => DataType::Array { element_size: word(bytes)? },
            0x09 => DataType::F16,
            0x0A => DataType::BF16,
            0x0B => DataType::F32,
            0x0C => DataType::F64,
            0x0D => DataType::Tensor,
            0x0E => DataType::U8,
            0x0F => DataType::U16,
            0x10 => DataType::I8,
            0x11 => DataType::I16,
            0x12 => DataType::I64,
            0x13 => DataType::Handle(TypeId(word(bytes)?)),
            0x14 => DataType::Vec { element: element(bytes)?, count: word(bytes)? },
            0x15 => DataType::TensorShaped { element: element(bytes)?, shape: axes(bytes)? },
            0x16 => DataType::SparseCsr { element: element(bytes)? },
            0x17 => DataType::SparseCoo { element: element(bytes)? },
            0x18 => {
                DataType::SparseBsr { element: element(bytes)?, block_rows: word(bytes)?, block_cols: word(bytes)? }
            }
            0x19 => DataType::F8E4M3,
            0x1A => DataType::F8E5M2,
            0x1B => DataType::I4,
            0x1C => DataType::FP4,
            0x1D => DataType::NF4,
            0x1E => DataType::DeviceMesh { axes: axes(bytes)? },
            0x80 => DataType::Opaque(TypeId(word(bytes)?)),
            _ => return None,
        })
    }

    /// Bits that one element takes in a buffer; `None` for descriptors and for types defined elsewhere.
    pub fn bits(&self) -> Option<u32> {
        Some(match self {
            DataType::I4 | DataType::FP4 | DataType::NF4 => 4,
            DataType::U8 | DataType::I8 | DataType::F8E4M3 | DataType::F8E5M2 => 8,
            DataType::F16 | DataType::BF16 | DataType::U16 | DataType::I16 => 16,
            // A bool takes a whole word in memory, 0 or 1, as WGSL's host-shareable convention has it.
            DataType::U32 | DataType::I32 | DataType::F32 | DataType::Bool => 32,
            DataType::U64 | DataType::I64 | DataType::F64 | DataType::Vec2U32 => 64,
            DataType::Vec4U32 => 128,
            DataType::Vec { element, count } => element.bits()?.checked_mul(*count)?,
            DataType::Array { element_size } => element_size.checked_mul(8)?,
            _ => return None,
        })
    }

    /// The element type and count when this is a vector, in either spelling.
    pub fn as_vector(&self) -> Option<(DataType, u32)> {
        match self {
            DataType::Vec { element, count } => Some(((**element).clone(), *count)),
            DataType::Vec2U32 => Some((DataType::U32, 2)),
            DataType::Vec4U32 => Some((DataType::U32, 4)),
            _ => None,
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |axes: &[u32]| axes.iter().map(u32::to_string).collect::<Vec<_>>().join("x");
        match self {
            DataType::U32 => f.write_str("u32"),
            DataType::I32 => f.write_str("i32"),
            DataType::U64 => f.write_str("u64"),
            DataType::Vec2U32 => f.write_str("vec2u32"),
            DataType::Vec4U32 => f.write_str("vec4u32"),
            DataType::Bool => f.write_str("bool"),
            DataType::Bytes => f.write_str("bytes"),
            DataType::Array { element_size } => write!(f, "raw<{element_size}>"),
            DataType::F16 => f.write_str("f16"),
            DataType::BF16 => f.write_str("bf16"),
            DataType::F32 => f.write_str("f32"),
            DataType::F64 => f.write_str("f64"),
            DataType::Tensor => f.write_str("tensor"),
            DataType::U8 => f.write_str("u8"),
            DataType::U16 => f.write_str("u16"),
            DataType::I8 => f.write_str("i8"),
            DataType::I16 => f.write_str("i16"),
            DataType::I64 => f.write_str("i64"),
            DataType::Handle(id) => write!(f, "type<{}>", id.0),
            DataType::Vec { element, count } => write!(f, "vec<{element}, {count}>"),
            DataType::TensorShaped { element, shape } => {
                write!(f, "tensor<{element}, {}>", list(shape))
            }
            DataType::SparseCsr { element } => write!(f, "csr<{element}>"),
            DataType::SparseCoo { element } => write!(f, "coo<{element}>"),
            DataType::SparseBsr { element, block_rows, block_cols } => {
                write!(f, "bsr<{element}, {block_rows}x{block_cols}>")
            }
            DataType::F8E4M3 => f.write_str("f8e4m3"),
            DataType::F8E5M2 => f.write_str("f8e5m2"),
            DataType::I4 => f.write_str("i4"),
            DataType::FP4 => f.write_str("fp4"),
            DataType::NF4 => f.write_str("nf4"),
            DataType::DeviceMesh { axes } => write!(f, "mesh<{}>", list(axes)),
            DataType::Opaque(id) => write!(f, "opaque<{}>", id.0),
        }
    }
}
