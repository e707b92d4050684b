use super::{Count, DataType, Name, TypeId};

/// A type that a program defines; `DataType::Handle(TypeId(i))` is the i-th of the program's type table. A definition may
/// only use earlier ones, so there is no recursion.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TypeDef {
    /// Members in order, each at an explicit byte offset. `size` is also the distance of neighbours in an array.
    Struct {
        /// For people; two structs may not share it.
        name: Name,
        /// At least one.
        members: Vec<Member>,
        /// Bytes, a multiple of `align`. Where the last member is an array of open length, the bytes before it.
        size: u32,
        /// Alignment in bytes, a power of two.
        align: u32,
    },
    /// A sequence of elements.
    Array {
        /// Not a 4-bit type.
        element: DataType,
        /// Fixed and at least 1; `Count::Runtime` only for the last member of a struct that is a storage buffer's element.
        count: Count,
        /// Distance of neighbours in bytes.
        stride: u32,
    },
}

/// One member of a struct.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    /// Unique within the struct.
    pub name: Name,
    /// Its type.
    pub ty: DataType,
    /// Bytes from the start of the struct.
    pub offset: u32,
}

/// How a value of a type lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes, without padding at the end of a vector of three.
    pub size: u32,
    /// Alignment in bytes.
    pub align: u32,
    /// Distance of neighbours in a buffer or array, in bytes; for a 4-bit type 1, with two elements in each byte.
    pub stride: u32,
}

/// The layout of a type. Scalars and vectors follow WGSL: a vector of three is aligned and spaced as one of four.
/// `None` for descriptors, unknown handles, arrays of open or specialized length, and sizes over 2³²−1.
pub fn layout_of(ty: &DataType, types: &[TypeDef]) -> Option<Layout> {
    if let DataType::Handle(TypeId(id)) = ty {
        return match types.get(*id as usize)? {
            TypeDef::Struct { size, align, .. } => Some(Layout { size: *size, align: *align, stride: *size }),
            TypeDef::Array { element, count: Count::Fixed(count), stride } => {
                let size = count.checked_mul(*stride)?;
                Some(Layout { size, align: layout_of(element, types.get(..*id as usize)?)?.align, stride: size })
            }
            TypeDef::Array { .. } => None,
        };
    }
    if let Some((element, count)) = ty.as_vector() {
        let scalar = element.bits()? / 8;
        if scalar == 0 || !(2..=4).contains(&count) {
            return None;
        }
        let spaced = if count == 3 { 4 } else { count };
        return Some(Layout { size: scalar * count, align: scalar * spaced, stride: scalar * spaced });
    }
    let bytes = match ty {
        DataType::Array { element_size } => {
            return Some(Layout { size: *element_size, align: 1, stride: *element_size });
        }
        DataType::Bytes => 1,
        other => other.bits()?.div_ceil(8),
    };
    Some(Layout { size: bytes, align: bytes, stride: bytes })
}
