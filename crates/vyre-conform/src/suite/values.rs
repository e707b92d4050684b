//! Values that tell right from wrong, and the shortest way to a program that computes one thing for each of them.

use half::f16;
use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program, layout_of};
use vyre_foundation::kernel::{Scalar, Type};

use super::Test;
use crate::compare::Rules;
use crate::generate::Case;

pub(super) const SCALARS: [Scalar; 8] =
    [Scalar::Bool, Scalar::U32, Scalar::I32, Scalar::U64, Scalar::I64, Scalar::F16, Scalar::F32, Scalar::F64];

pub(super) fn data_type(ty: Type) -> DataType {
    match ty.width {
        1 => ty.scalar.data_type(),
        width => DataType::vector(ty.scalar.data_type(), u32::from(width)),
    }
}

/// The bits of interesting values.
pub(super) fn values(scalar: Scalar, rules: &Rules) -> Vec<u64> {
    let floats = || -> Vec<f64> {
        let ordinary = vec![0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.0, 2.5, -2.5, 3.0, 7.75, -100.25, 0.1, 1000.0, 0.015625];
        if !rules.exact {
            return ordinary;
        }
        let special =
            [-0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 65504.0, 2147483648.0, 4294967296.0, -1e10, 1.0 / 3.0];
        [ordinary, special.to_vec()].concat()
    };
    match scalar {
        Scalar::Bool => vec![0, 1],
        Scalar::U32 | Scalar::I32 => [
            0,
            1,
            2,
            3,
            7,
            31,
            32,
            33,
            100,
            0x1234_5678,
            0x7FFF_FFFF,
            0x8000_0000,
            0x8000_0001,
            0xDEAD_BEEF,
            0xFFFF_FFFE,
            0xFFFF_FFFF,
        ]
        .to_vec(),
        Scalar::U64 | Scalar::I64 => [
            0,
            1,
            2,
            3,
            7,
            31,
            32,
            63,
            64,
            65,
            0x1_0000_0000,
            0x7FFF_FFFF,
            0xFFFF_FFFF,
            0x1234_5678_9ABC_DEF0,
            0x7FFF_FFFF_FFFF_FFFF,
            0x8000_0000_0000_0000,
            0xFFFF_FFFF_FFFF_FFFE,
            0xFFFF_FFFF_FFFF_FFFF,
        ]
        .to_vec(),
        Scalar::F16 => {
            let mut all: Vec<u64> = floats().iter().map(|&v| u64::from(f16::from_f64(v).to_bits())).collect();
            if rules.exact {
                all.extend([1, 0x03FF, 0x0400, 0x7BFF, 0xFBFF]);
            }
            all
        }
        Scalar::F32 => {
            let mut all: Vec<u64> = floats().iter().map(|&v| u64::from((v as f32).to_bits())).collect();
            if rules.exact {
                all.extend([1, 0x007F_FFFF, 0x0080_0000, 0x7F7F_FFFF, 0x4B80_0001, 0x5F00_0000]);
            }
            all
        }
        Scalar::F64 => {
            let mut all: Vec<u64> = floats().iter().map(|v| v.to_bits()).collect();
            if rules.exact {
                all.extend([1, 0x000F_FFFF_FFFF_FFFF, 0x7FEF_FFFF_FFFF_FFFF, 9223372036854775808f64.to_bits()]);
            }
            all
        }
    }
}

/// Every combination of one value from each list, as one list per place.
pub(super) fn combinations(lists: &[Vec<u64>]) -> Vec<Vec<u64>> {
    let total: usize = lists.iter().map(Vec::len).product();
    let mut out = Vec::new();
    let mut repeat = total;
    for list in lists {
        repeat /= list.len();
        out.push((0..total).map(|i| list[i / repeat % list.len()]).collect());
    }
    out
}

/// Makes the lists a whole number of vectors long.
pub(super) fn fill(lists: &mut [Vec<u64>], width: u8) {
    for list in lists {
        let whole = list.len().next_multiple_of(usize::from(width));
        list.resize(whole, list[0]);
    }
}

/// A shorter list, evenly taken.
pub(super) fn thin(list: Vec<u64>, most: usize) -> Vec<u64> {
    let step = list.len().div_ceil(most);
    list.into_iter().step_by(step.max(1)).collect()
}

/// The bytes of a buffer of this type whose scalars have these bits. The last element is filled up with zeros.
pub(super) fn pack(ty: &DataType, bits: &[u64]) -> Vec<u8> {
    let (element, count) = ty.as_vector().unwrap_or_else(|| (ty.clone(), 1));
    let stride = layout_of(ty, &[]).map_or(0, |layout| layout.stride) as usize;
    let size = element.bits().unwrap_or(0).div_ceil(8) as usize;
    let mut out = Vec::new();
    for group in bits.chunks(count as usize) {
        let start = out.len();
        for word in group {
            out.extend(&word.to_le_bytes()[..size]);
        }
        out.resize(start + stride, 0);
    }
    out
}

/// A program that stores `value(loads)` for each element of its inputs.
pub(super) fn elementwise(
    name: String,
    inputs: &[(Type, &[u64])],
    out: Type,
    value: impl FnOnce(Vec<Expr>) -> Expr,
) -> Test {
    let width = inputs.iter().map(|(ty, _)| usize::from(ty.width)).max().unwrap_or(1);
    let count = inputs.first().map_or(1, |(_, bits)| bits.len()).div_ceil(width) as u32;
    let mut buffers = vec![BufferDecl::output("out", 0, data_type(out)).with_count(count)];
    let mut loads = Vec::new();
    let mut bytes = Vec::new();
    for (i, (ty, bits)) in inputs.iter().enumerate() {
        let buffer = format!("in{i}");
        buffers.push(BufferDecl::read(&buffer, i as u32 + 1, data_type(*ty)).with_count(count));
        loads.push(Expr::load(&buffer, Expr::global_id(0)));
        bytes.push(pack(&data_type(*ty), bits));
    }
    let body = vec![Node::store("out", Expr::global_id(0), value(loads))];
    Test::new(name, Case::new(Program::wrapped(buffers, [64, 1, 1], body), bytes))
}

pub(super) fn u32s(values: impl IntoIterator<Item = u32>) -> Vec<u8> {
    values.into_iter().flat_map(u32::to_le_bytes).collect()
}
