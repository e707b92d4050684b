//! Element types: as kernels, NumPy and the buffer protocol name them.

use vyre::DataType;

/// A type of numbers, with NumPy's name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Element {
    pub(crate) name: &'static str,
    pub(crate) ty: DataType,
    pub(crate) size: usize,
}

/// A type that NumPy has only with `ml_dtypes`, and the buffer protocol not at all.
pub(crate) const BFLOAT16: &str = "bfloat16";

const ELEMENTS: [(&str, DataType, usize); 12] = [
    ("float32", DataType::F32, 4),
    ("uint32", DataType::U32, 4),
    ("int32", DataType::I32, 4),
    ("float64", DataType::F64, 8),
    ("uint64", DataType::U64, 8),
    ("int64", DataType::I64, 8),
    ("float16", DataType::F16, 2),
    (BFLOAT16, DataType::BF16, 2),
    ("uint16", DataType::U16, 2),
    ("int16", DataType::I16, 2),
    ("uint8", DataType::U8, 1),
    ("int8", DataType::I8, 1),
];

fn at(position: usize) -> Element {
    let (name, ty, size) = ELEMENTS[position].clone();
    Element { name, ty, size }
}

impl Element {
    pub(crate) fn named(name: &str) -> Option<Element> {
        ELEMENTS.iter().position(|(known, ..)| *known == name).map(at)
    }

    /// The type of a kernel's numbers.
    pub(crate) fn of(ty: &DataType) -> Option<Element> {
        ELEMENTS.iter().position(|(_, known, _)| known == ty).map(at)
    }

    /// The type that a format of the buffer protocol stands for.
    pub(crate) fn of_format(format: &[u8], size: usize) -> Option<Element> {
        let letter = match format {
            [letter] => letter,
            [b'@' | b'=', letter] => letter,
            [b'<', letter] if cfg!(target_endian = "little") => letter,
            [b'>', letter] if cfg!(target_endian = "big") => letter,
            _ => return None,
        };
        let name = match (letter, size) {
            (b'f', 4) => "float32",
            (b'd', 8) => "float64",
            (b'e', 2) => "float16",
            (b'B', 1) => "uint8",
            (b'b', 1) => "int8",
            (b'H', 2) => "uint16",
            (b'h', 2) => "int16",
            (b'I' | b'L' | b'N', 4) => "uint32",
            (b'i' | b'l' | b'n', 4) => "int32",
            (b'L' | b'Q' | b'N', 8) => "uint64",
            (b'l' | b'q' | b'n', 8) => "int64",
            _ => return None,
        };
        Element::named(name)
    }
}
