//! Every conversion between types that compute, and every reinterpretation.

use vyre_foundation::ir::Expr;
use vyre_foundation::kernel::{Scalar, Type};

use super::values::{SCALARS, data_type, elementwise, fill, pack, values};
use super::{Test, expected};
use crate::compare::{Rules, float_value};

pub(super) fn add(tests: &mut Vec<Test>, rules: &Rules) {
    for from in SCALARS {
        for to in SCALARS {
            for width in [1, 2] {
                cast(tests, Type { scalar: from, width }, Type { scalar: to, width }, rules);
            }
        }
    }
    let groups = [vec![Scalar::U32, Scalar::I32, Scalar::F32], vec![Scalar::U64, Scalar::I64, Scalar::F64]];
    for group in &groups {
        for &from in group {
            for &to in group {
                for width in [1, 2] {
                    bit_cast(tests, Type { scalar: from, width }, Type { scalar: to, width }, rules);
                }
            }
        }
    }
}

fn cast(tests: &mut Vec<Test>, from: Type, to: Type, rules: &Rules) {
    let mut list = values(from.scalar, rules);
    if from.scalar == Scalar::Bool {
        list = vec![0, 1, 1, 0];
    }
    fill(std::slice::from_mut(&mut list), from.width);
    let name = format!("cast/{}/{}", data_type(from), data_type(to));
    let test = elementwise(name, &[(from, &list)], to, |mut x| x.remove(0).cast(data_type(to)));
    let bits: Vec<u64> = list.iter().map(|&word| expected::cast(from.scalar, to.scalar, word)).collect();
    tests.push(test.gives(vec![pack(&data_type(to), &bits)]));
}

fn bit_cast(tests: &mut Vec<Test>, from: Type, to: Type, rules: &Rules) {
    let mut list = values(from.scalar, rules);
    // A NaN's bits are not specified, in either direction.
    for ty in [from.scalar, to.scalar] {
        list.retain(|&word| !float_value(word, &ty.data_type()).is_some_and(f64::is_nan));
    }
    fill(std::slice::from_mut(&mut list), from.width);
    let name = format!("bitcast/{}/{}", data_type(from), data_type(to));
    let test = elementwise(name, &[(from, &list)], to, |mut x: Vec<Expr>| x.remove(0).bit_cast(data_type(to)));
    let test = test.gives(vec![pack(&data_type(to), &list)]);
    tests.push(test);
}
