//! Every operation on every type it takes, for scalars and vectors of three.

use vyre_foundation::ir::{BinaryOp, DataType, Expr, MathOp, UnaryOp};
use vyre_foundation::kernel::{Scalar, Type};

use super::values::{SCALARS, combinations, data_type, elementwise, fill, pack, thin, values};
use super::{Test, expected};
use crate::compare::Rules;

pub(super) fn add(tests: &mut Vec<Test>, rules: &Rules) {
    for scalar in SCALARS {
        for width in [1, 3] {
            let ty = Type { scalar, width };
            unary(tests, ty, rules);
            binary(tests, ty, rules);
            math(tests, ty, rules);
            select(tests, ty, rules);
        }
        vectors(tests, scalar, rules);
    }
    bools(tests);
}

fn name(kind: &str, op: impl std::fmt::Debug, ty: Type) -> String {
    format!("{kind}/{op:?}/{}", data_type(ty))
}

/// With the expected bits, where there are some for every value.
fn expecting(test: Test, out: Type, bits: Option<Vec<u64>>) -> Test {
    match bits {
        Some(bits) => test.gives(vec![pack(&data_type(out), &bits)]),
        None => test,
    }
}

fn unary(tests: &mut Vec<Test>, ty: Type, rules: &Rules) {
    let mut lists = [values(ty.scalar, rules)];
    fill(&mut lists, ty.width);
    let [list] = lists;
    let sign = 1u64 << (ty.scalar.bits() - 1);
    if ty.scalar.is_signed() || ty.scalar.is_float() {
        let test = elementwise(name("unary", UnaryOp::Neg, ty), &[(ty, &list)], ty, |mut x| {
            Expr::unary(UnaryOp::Neg, x.remove(0))
        });
        let bits = list.iter().map(|&x| {
            if ty.scalar.is_float() { Some(x ^ sign) } else { expected::binary(BinaryOp::Sub, ty.scalar, 0, x) }
        });
        tests.push(expecting(test, ty, bits.collect()));
    }
    if !ty.scalar.is_float() {
        let test = elementwise(name("unary", UnaryOp::Not, ty), &[(ty, &list)], ty, |mut x| {
            Expr::unary(UnaryOp::Not, x.remove(0))
        });
        let all = if ty.scalar == Scalar::Bool { 1 } else { u64::MAX >> (64 - ty.scalar.bits()) };
        tests.push(expecting(test, ty, Some(list.iter().map(|x| x ^ all).collect())));
    }
}

fn binary(tests: &mut Vec<Test>, ty: Type, rules: &Rules) {
    use BinaryOp as B;
    let arithmetic = [B::Add, B::Sub, B::Mul, B::Div, B::Rem];
    let bitwise = [B::And, B::Or, B::Xor, B::Shl, B::Shr];
    let compare = [B::Eq, B::Ne, B::Lt, B::Le, B::Gt, B::Ge];
    let ops: Vec<BinaryOp> = match ty.scalar {
        Scalar::Bool => vec![B::And, B::Or, B::Xor, B::Eq, B::Ne],
        scalar if scalar.is_float() => [&arithmetic[..], &compare].concat(),
        _ => [&arithmetic[..], &bitwise, &compare].concat(),
    };
    for op in ops {
        let list = values(ty.scalar, rules);
        let (right_ty, right) = if op.is_shift() {
            (Type { scalar: Scalar::U32, ..ty }, vec![0, 1, 5, 31, 32, 33, 63, 64, 65, 0xFFFF_FFFF])
        } else {
            (ty, list.clone())
        };
        let mut both = combinations(&[list, right]);
        if !rules.exact && op == B::Rem {
            // The quotient is not exact there, so its whole part may be another one.
            both = vec![vec![5, 7, 100], vec![3, 2, 7]]
                .into_iter()
                .map(|numbers: Vec<u64>| numbers.iter().map(|&n| whole(ty.scalar, n)).collect())
                .collect();
        }
        fill(&mut both, ty.width);
        let out = if op.is_comparison() { Type { scalar: Scalar::Bool, ..ty } } else { ty };
        let test = elementwise(name("binary", op, ty), &[(ty, &both[0]), (right_ty, &both[1])], out, |mut x| {
            let right = x.pop().unwrap_or(Expr::u32(0));
            Expr::binary(op, x.remove(0), right)
        });
        let bits = both[0].iter().zip(&both[1]).map(|(&a, &b)| expected::binary(op, ty.scalar, a, b));
        tests.push(expecting(test, out, bits.collect()));
    }
}

fn whole(scalar: Scalar, n: u64) -> u64 {
    if scalar.is_float() { expected::bits(scalar, n as f64) } else { n }
}

fn math(tests: &mut Vec<Test>, ty: Type, rules: &Rules) {
    use MathOp as M;
    let scalar = ty.scalar;
    let mut ops = Vec::new();
    if scalar != Scalar::Bool {
        ops.extend([M::Abs, M::Min, M::Max, M::Clamp]);
    }
    if scalar.is_signed() || scalar.is_float() {
        ops.push(M::Sign);
    }
    if scalar.is_float() {
        ops.extend([M::Floor, M::Ceil, M::Round, M::Trunc, M::Fract, M::Sqrt, M::InverseSqrt, M::Exp, M::Exp2]);
        ops.extend([M::Log, M::Log2, M::Pow, M::Sin, M::Cos, M::Tan, M::Asin, M::Acos, M::Atan, M::Atan2]);
        ops.extend([M::Sinh, M::Cosh, M::Tanh, M::Asinh, M::Acosh, M::Atanh, M::Fma]);
    } else if scalar != Scalar::Bool {
        ops.extend([M::CountOneBits, M::CountLeadingZeros, M::CountTrailingZeros, M::ReverseBits]);
        ops.extend([M::FirstLeadingBit, M::FirstTrailingBit]);
        if scalar.bits() == 32 {
            ops.extend([M::MulHigh, M::ExtractBits, M::InsertBits]);
        }
    }
    for op in ops {
        let list = domain(op, scalar, rules);
        let mut types = vec![ty; op.arity()];
        let mut lists = vec![thin(list, [64, 64, 64, 12, 8][op.arity()]); op.arity()];
        if let M::ExtractBits | M::InsertBits = op {
            // The bit positions are the same for all components.
            let positions = op.arity() - 2;
            types[positions..].fill(Scalar::U32.into());
            for list in &mut lists[positions..] {
                *list = vec![0, 1, 8, 31, 32, 33, 0xFFFF_FFFF];
            }
        }
        let mut all = combinations(&lists);
        if types.last() == Some(&ty) {
            fill(&mut all, ty.width);
        } else if ty.width > 1 {
            // One position for every element, and so for the components of each.
            let elements = all[0].len() / usize::from(ty.width);
            let positions = op.arity() - 2;
            for list in &mut all[..positions] {
                list.truncate(elements * usize::from(ty.width));
            }
            for list in &mut all[positions..] {
                *list = (0..elements).map(|i| list[(i * 5) % list.len()]).collect();
            }
        }
        let inputs: Vec<(Type, &[u64])> = types.iter().copied().zip(all.iter().map(Vec::as_slice)).collect();
        let test = elementwise(name("math", op, ty), &inputs, ty, |x| Expr::math(op, x));
        let at =
            |list: &Vec<u64>, i: usize| list[if list.len() == all[0].len() { i } else { i / usize::from(ty.width) }];
        let bits = (0..all[0].len()).map(|i| {
            let args: Vec<u64> = all.iter().map(|list| at(list, i)).collect();
            expected::math(op, scalar, &args)
        });
        tests.push(expecting(test, ty, bits.collect()));
    }
}

/// Arguments for a function: where the rules are not exact, only those for which the table has a bound.
fn domain(op: MathOp, scalar: Scalar, rules: &Rules) -> Vec<u64> {
    use MathOp as M;
    let all = values(scalar, rules);
    if !scalar.is_float() {
        return all;
    }
    let within = |low: f64, high: f64| {
        let fits = |&word: &u64| (low..=high).contains(&expected::float(scalar, word));
        all.iter().copied().filter(fits).collect()
    };
    if rules.exact {
        return match op {
            // The table has no bound for larger ones, but infinities and NaN give NaN.
            M::Sin | M::Cos | M::Tan if scalar == Scalar::F64 => {
                let fits = |&word: &u64| {
                    let x = expected::float(scalar, word);
                    x.abs() <= 2f64.powi(30) || !x.is_finite()
                };
                all.into_iter().filter(fits).collect()
            }
            _ => all,
        };
    }
    match op {
        M::Sin | M::Cos => within(-3.2, 3.2),
        M::Tan | M::Asin | M::Acos | M::Atanh => within(-0.9, 0.9),
        M::Exp | M::Exp2 | M::Sinh | M::Cosh | M::Tanh => within(-8.0, 8.0),
        M::Log | M::Log2 | M::InverseSqrt | M::Sqrt | M::Pow => within(0.01, 8.0),
        M::Atan2 => within(0.01, 1000.0),
        M::Acosh => within(1.0, 1000.0),
        _ => all,
    }
}

fn select(tests: &mut Vec<Test>, ty: Type, rules: &Rules) {
    let list = values(ty.scalar, rules);
    let mut all = combinations(&[vec![0, 1], list.clone(), list]);
    fill(&mut all, ty.width);
    let cond = Type { scalar: Scalar::Bool, ..ty };
    let inputs = [(cond, all[0].as_slice()), (ty, &all[1]), (ty, &all[2])];
    let test = elementwise(format!("select/{}", data_type(ty)), &inputs, ty, |x| Expr::select(&x[0], &x[1], &x[2]));
    let bits = (0..all[0].len()).map(|i| if all[0][i] == 1 { all[1][i] } else { all[2][i] }).collect();
    tests.push(expecting(test, ty, Some(bits)));
}

/// Construction, swizzles, computed components and dot products.
fn vectors(tests: &mut Vec<Test>, scalar: Scalar, rules: &Rules) {
    let list = thin(values(scalar, rules), 8);
    for width in 2..=4u8 {
        let ty = Type { scalar, width };
        let ty_name = data_type(ty);
        // One scalar for all components, then turned around.
        let all = combinations(&vec![list.clone(); 2]);
        let test = elementwise(
            format!("vector/construct/{ty_name}"),
            &[(scalar.into(), &all[0]), (scalar.into(), &all[1])],
            ty,
            |x| {
                let parts = (0..width).map(|i| x[usize::from(i % 2)].clone()).collect();
                Expr::construct(data_type(ty), parts)
            },
        );
        let bits = (0..all[0].len()).flat_map(|i| (0..width).map(move |lane| (i, lane)));
        let bits = bits.map(|(i, lane)| all[usize::from(lane % 2)][i]).collect();
        tests.push(expecting(test, ty, Some(bits)));

        let elements: Vec<u64> = (0..usize::from(width) * 6).map(|i| list[i * 3 % list.len()]).collect();
        let test = elementwise(format!("vector/swizzle/{ty_name}"), &[(ty, &elements)], ty, |mut x| {
            let lanes = (0..width).rev().collect();
            Expr::Swizzle { value: Box::new(x.remove(0)), lanes }
        });
        let bits = elements.chunks(usize::from(width)).flat_map(|v| v.iter().rev().copied()).collect();
        tests.push(expecting(test, ty, Some(bits)));

        let test = elementwise(format!("vector/splat/{ty_name}"), &[(scalar.into(), &list)], ty, |x| {
            Expr::construct(data_type(ty), x)
        });
        let bits = list.iter().flat_map(|&x| std::iter::repeat_n(x, usize::from(width))).collect();
        tests.push(expecting(test, ty, Some(bits)));

        let test = elementwise(format!("vector/component/{ty_name}"), &[(ty, &elements)], scalar.into(), |mut x| {
            // One more than there are: the last is outside and reads as zero.
            let index = Expr::global_id(0) % Expr::u32(u32::from(width) + 1);
            Expr::Part { value: Box::new(x.remove(0)), path: vec![vyre_foundation::ir::Access::Index(index)] }
        });
        let bits = elements.chunks(usize::from(width)).enumerate();
        let bits = bits.map(|(i, v)| v.get(i % (usize::from(width) + 1)).copied().unwrap_or(0)).collect();
        tests.push(expecting(test, scalar.into(), Some(bits)));

        if scalar != Scalar::Bool {
            let other: Vec<u64> = elements.iter().rev().copied().collect();
            let name = format!("vector/dot/{ty_name}");
            tests.push(elementwise(name, &[(ty, &elements), (ty, &other)], scalar.into(), |x| {
                Expr::math(MathOp::Dot, x)
            }));
        }
    }
}

fn bools(tests: &mut Vec<Test>) {
    for width in 2..=4u8 {
        let ty = Type { scalar: Scalar::Bool, width };
        let patterns = 1u64 << width;
        let bits: Vec<u64> = (0..patterns).flat_map(|p| (0..width).map(move |i| p >> i & 1)).collect();
        for op in [MathOp::All, MathOp::Any] {
            let name = format!("math/{op:?}/{}", data_type(ty));
            let test = elementwise(name, &[(ty, &bits)], Scalar::Bool.into(), |x| Expr::math(op, x));
            let right = |p: u64| if op == MathOp::All { p + 1 == patterns } else { p != 0 };
            let results = (0..patterns).map(|p| u64::from(right(p))).collect::<Vec<_>>();
            tests.push(test.gives(vec![pack(&DataType::Bool, &results)]));
        }
    }
}
