//! Tags are frozen, and keys tell all types apart.

use std::collections::HashMap;

use vyre_spec::SmallVec;
use vyre_spec::data_type::{DataType, TypeId};

/// Every variant with its tag, as the contract lists them.
fn table() -> Vec<(u8, DataType)> {
    let f32 = || Box::new(DataType::F32);
    vec![
        (0x01, DataType::U32),
        (0x02, DataType::I32),
        (0x03, DataType::U64),
        (0x04, DataType::Vec2U32),
        (0x05, DataType::Vec4U32),
        (0x06, DataType::Bool),
        (0x07, DataType::Bytes),
        (0x08, DataType::Array { element_size: 4 }),
        (0x09, DataType::F16),
        (0x0A, DataType::BF16),
        (0x0B, DataType::F32),
        (0x0C, DataType::F64),
        (0x0D, DataType::Tensor),
        (0x0E, DataType::U8),
        (0x0F, DataType::U16),
        (0x10, DataType::I8),
        (0x11, DataType::I16),
        (0x12, DataType::I64),
        (0x13, DataType::Handle(TypeId(3))),
        (0x14, DataType::Vec { element: f32(), count: 4 }),
        (0x15, DataType::TensorShaped { element: f32(), shape: SmallVec::from_slice(&[2, 3]) }),
        (0x16, DataType::SparseCsr { element: f32() }),
        (0x17, DataType::SparseCoo { element: f32() }),
        (0x18, DataType::SparseBsr { element: f32(), block_rows: 2, block_cols: 4 }),
        (0x19, DataType::F8E4M3),
        (0x1A, DataType::F8E5M2),
        (0x1B, DataType::I4),
        (0x1C, DataType::FP4),
        (0x1D, DataType::NF4),
        (0x1E, DataType::DeviceMesh { axes: SmallVec::from_slice(&[8]) }),
        (0x80, DataType::Opaque(TypeId(9))),
    ]
}

/// The table, its types as elements of each other, and parameters that are easy to mix up.
fn many() -> Vec<DataType> {
    let mut types: Vec<DataType> = table().into_iter().map(|(_, ty)| ty).collect();
    let numbers = [0, 1, 4, 256, 0x0B0B_0B0B, u32::MAX];
    for number in numbers {
        types.push(DataType::Array { element_size: number });
        types.push(DataType::Handle(TypeId(number)));
        types.push(DataType::Opaque(TypeId(number)));
    }
    let shapes: [&[u32]; 7] = [&[], &[0], &[1], &[1, 1], &[1, 2, 3, 4], &[1, 2, 3, 4, 5], &[4, 3, 2, 1]];
    types.extend(shapes.iter().map(|axes| DataType::DeviceMesh { axes: SmallVec::from_slice(axes) }));
    for _ in 0..2 {
        let elements: Vec<DataType> = types.iter().take(80).cloned().collect();
        for element in elements {
            let element = Box::new(element);
            types.extend([2, 3].map(|count| DataType::Vec { element: element.clone(), count }));
            types.extend(
                shapes
                    .iter()
                    .map(|axes| DataType::TensorShaped { element: element.clone(), shape: SmallVec::from_slice(axes) }),
            );
            types.push(DataType::SparseCsr { element: element.clone() });
            types.push(DataType::SparseCoo { element: element.clone() });
            types.extend([(1, 2), (2, 1)].map(|(block_rows, block_cols)| DataType::SparseBsr {
                element: element.clone(),
                block_rows,
                block_cols,
            }));
        }
    }
    types.sort();
    types.dedup();
    types
}

#[test]
fn tags_are_those_of_the_contract() {
    for (tag, ty) in table() {
        assert_eq!(ty.tag(), tag, "{ty}");
        assert_eq!(ty.key()[0], tag, "{ty}");
    }
}

#[test]
fn different_types_have_different_keys() {
    let mut seen: HashMap<Vec<u8>, DataType> = HashMap::new();
    let mut keys = Vec::new();
    for ty in many() {
        let key = ty.key();
        keys.push(key.clone());
        if let Some(other) = seen.insert(key, ty.clone()) {
            panic!("{other} and {ty} share a key");
        }
    }
    // A key is never the beginning of another, so types in a row can't be cut elsewhere.
    keys.sort();
    for pair in keys.windows(2) {
        assert!(!pair[1].starts_with(&pair[0]), "{:02x?} begins {:02x?}", pair[0], pair[1]);
    }
}

#[test]
fn keys_read_back() {
    for ty in many() {
        let mut bytes = ty.key();
        bytes.push(0xAA);
        let mut rest = &bytes[..];
        assert_eq!(DataType::read_key(&mut rest), Some(ty.clone()), "{ty}");
        assert_eq!(rest, [0xAA], "{ty}");
        let key = ty.key();
        for end in 0..key.len() {
            assert_eq!(DataType::read_key(&mut &key[..end]), None, "{ty} cut at {end}");
        }
    }
}

#[test]
fn hostile_keys_are_refused() {
    for tag in [0x00, 0x1F, 0x7F, 0x81, 0xFF] {
        assert_eq!(DataType::read_key(&mut &[tag, 0, 0, 0, 0, 0, 0, 0, 0][..]), None);
    }
    // Elements of elements without end, and a shape that claims four thousand million axes.
    assert_eq!(DataType::read_key(&mut &[0x16; 100_000][..]), None);
    assert_eq!(DataType::read_key(&mut &[0x1E, 0xFF, 0xFF, 0xFF, 0xFF, 1, 0, 0, 0][..]), None);
}
