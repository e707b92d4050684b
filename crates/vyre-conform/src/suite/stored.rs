//! Types that are converted on load and store.

use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
use vyre_foundation::kernel::{Element, Scalar};

use super::Test;
use super::values::pack;
use crate::compare::float_value;
use crate::generate::Case;

const TYPES: [DataType; 10] = [
    DataType::U8,
    DataType::I8,
    DataType::U16,
    DataType::I16,
    DataType::BF16,
    DataType::F8E4M3,
    DataType::F8E5M2,
    DataType::I4,
    DataType::FP4,
    DataType::NF4,
];

pub(super) fn add(tests: &mut Vec<Test>) {
    for ty in TYPES {
        let Some(computes) = Element::of(&ty).map(Element::scalar) else { continue };
        load(tests, &ty, computes);
        store(tests, &ty, computes);
        copy(tests, &ty);
        one_store(tests, &ty, computes);
    }
}

/// Every pattern of a narrow type; a sample of the 16-bit ones. Two patterns to a byte for the 4-bit types.
fn patterns(ty: &DataType) -> Vec<u64> {
    match ty.bits() {
        Some(4) => (0..16).collect(),
        Some(8) => (0..256).collect(),
        _ => (0..0x1_0000).step_by(251).chain([0x7F80, 0xFF80, 0x8000, 1, 0x7FFF, 0xFFFF]).collect(),
    }
}

fn stored_bytes(ty: &DataType, patterns: &[u64]) -> Vec<u8> {
    if ty.bits() == Some(4) {
        return patterns.chunks(2).map(|pair| (pair[0] | pair.get(1).unwrap_or(&0) << 4) as u8).collect();
    }
    pack(ty, patterns)
}

fn load(tests: &mut Vec<Test>, ty: &DataType, computes: Scalar) {
    let patterns = patterns(ty);
    let count = patterns.len() as u32;
    let program = Program::wrapped(
        vec![
            BufferDecl::read("in", 0, ty.clone()).with_count(count),
            BufferDecl::output("out", 1, computes.data_type()).with_count(count),
        ],
        [64, 1, 1],
        vec![Node::store("out", Expr::global_id(0), Expr::load("in", Expr::global_id(0)))],
    );
    let test = Test::new(format!("stored/load/{ty}"), Case::new(program, vec![stored_bytes(ty, &patterns)]));
    let value = |&word: &u64| {
        Some(match ty {
            DataType::U8 | DataType::U16 => word,
            DataType::I8 => u64::from(word as i8 as i32 as u32),
            DataType::I16 => u64::from(word as i16 as i32 as u32),
            DataType::I4 => u64::from((((word << 4) as i8) >> 4) as i32 as u32),
            DataType::FP4 => {
                let magnitude = [0.0f32, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][word as usize & 7];
                u64::from((if word & 8 == 0 { magnitude } else { -magnitude }).to_bits())
            }
            DataType::NF4 => return None,
            _ => u64::from((float_value(word, ty)? as f32).to_bits()),
        })
    };
    let bits: Option<Vec<u64>> = patterns.iter().map(value).collect();
    tests.push(match bits {
        Some(bits) => test.gives(vec![pack(&computes.data_type(), &bits)]),
        None => test,
    });
}

/// Values between, at and beyond those that the type has.
fn store(tests: &mut Vec<Test>, ty: &DataType, computes: Scalar) {
    let bits: Vec<u64> = if computes.is_float() {
        let mut all = Vec::new();
        for exponent in -22..20 {
            for fraction in [1.0f32, 1.0625, 1.125, 1.1875, 1.25, 1.5, 1.75, 1.9375] {
                let value = fraction * 2f32.powi(exponent);
                all.extend([value, -value]);
            }
        }
        all.extend([
            0.0,
            -0.0,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::MAX,
            1e-45,
            448.0,
            464.0,
            480.0,
            57344.0,
            61440.0,
        ]);
        if !matches!(ty, DataType::FP4 | DataType::NF4) {
            all.push(f32::NAN);
        }
        all.iter().map(|value| u64::from(value.to_bits())).collect()
    } else {
        let near = |n: i64| (n - 2..=n + 2).map(|v| v as u64 & 0xFFFF_FFFF);
        [0, 7, 8, 15, 16, 127, 128, 255, 256, 32767, 32768, 65535, 65536, -8, -128, -32768]
            .into_iter()
            .flat_map(near)
            .collect()
    };
    let count = bits.len() as u32;
    let program = Program::wrapped(
        vec![
            BufferDecl::read("in", 0, computes.data_type()).with_count(count),
            BufferDecl::output("out", 1, ty.clone()).with_count(count),
        ],
        [64, 1, 1],
        vec![Node::store("out", Expr::global_id(0), Expr::load("in", Expr::global_id(0)))],
    );
    let test = Test::new(format!("stored/store/{ty}"), Case::new(program, vec![pack(&computes.data_type(), &bits)]));
    tests.push(if computes.is_float() {
        test
    } else {
        let mask = (1u64 << ty.bits().unwrap_or(32)) - 1;
        let wrapped: Vec<u64> = bits.iter().map(|word| word & mask).collect();
        test.gives(vec![stored_bytes(ty, &wrapped)])
    });
}

/// What was loaded is stored as it was.
fn copy(tests: &mut Vec<Test>, ty: &DataType) {
    let mut patterns = patterns(ty);
    // A store saturates, so that an 8-bit infinity comes back as the largest number.
    patterns.retain(|&word| *ty == DataType::BF16 || !float_value(word, ty).is_some_and(f64::is_infinite));
    if ty.bits() == Some(4) {
        patterns.extend(patterns.clone().into_iter().rev());
    }
    let count = patterns.len() as u32;
    let program = Program::wrapped(
        vec![BufferDecl::read("in", 0, ty.clone()), BufferDecl::output("out", 1, ty.clone()).with_count(count)],
        // An odd size: neighbours in one byte or word belong to different workgroups.
        [7, 1, 1],
        vec![Node::store("out", Expr::global_id(0), Expr::load("in", Expr::global_id(0)))],
    );
    let bytes = stored_bytes(ty, &patterns);
    tests.push(Test::new(format!("stored/copy/{ty}"), Case::new(program, vec![bytes.clone()])).gives(vec![bytes]));
}

/// A store changes nothing beside it.
fn one_store(tests: &mut Vec<Test>, ty: &DataType, computes: Scalar) {
    let count = 24;
    let bytes = vec![0x55u8; (count * ty.bits().unwrap_or(8) / 8) as usize];
    let zero = Expr::u32(0).cast(computes.data_type());
    let program = Program::wrapped(
        vec![BufferDecl::read_write("data", 0, ty.clone()).with_count(count)],
        [32, 1, 1],
        vec![Node::if_then(
            (Expr::global_id(0) % Expr::u32(3)).eq(Expr::u32(0)),
            vec![Node::store("data", Expr::global_id(0), zero)],
        )],
    );
    let mut after = bytes.clone();
    let bits = ty.bits().unwrap_or(8);
    // NF4 has its zero in the middle of its patterns.
    let zero_pattern: u8 = if *ty == DataType::NF4 { 7 } else { 0 };
    for element in (0..count).step_by(3) {
        let (at, size) = ((element * bits / 8) as usize, (bits / 8) as usize);
        if bits == 4 {
            let shift = element % 2 * 4;
            after[at] = after[at] & !(15 << shift) | zero_pattern << shift;
        } else {
            after[at..at + size].fill(0);
        }
    }
    tests.push(Test::new(format!("stored/beside/{ty}"), Case::new(program, vec![bytes])).gives(vec![after]));
}
