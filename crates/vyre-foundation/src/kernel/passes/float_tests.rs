//! Floats in fewer steps have the bits that they had.

use crate::ir::{BufferDecl, DataType, Expr, MathOp, Node, Program};
use crate::kernel::{Inst, Interpret, Kernel, Options, Passes, interpret, lower, walk};

/// Numbers of all sizes, and those at which something ends.
fn numbers() -> Vec<f32> {
    let ends = [0.0f32, 1.0, 2.96, 3.3, 8.0, 87.3, 88.7, 103.9, 1e-40, 1e19, 3e38, 1.8e38, f32::INFINITY, f32::NAN];
    let mut numbers: Vec<f32> = ends.iter().flat_map(|x| [*x, -*x]).collect();
    let mut state = 7u32;
    for _ in 0..2000 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        numbers.push(f32::from_bits(state));
        numbers.push((state >> 8) as f32 / 1e6 - 8.0);
    }
    numbers
}

fn lowered(value: Expr, passes: Passes) -> Kernel {
    let program = Program::wrapped(
        vec![BufferDecl::read("a", 0, DataType::F32), BufferDecl::output("out", 1, DataType::F32)],
        [64, 1, 1],
        vec![Node::let_bind("x", Expr::load("a", Expr::global_id(0))), Node::store("out", Expr::global_id(0), value)],
    );
    let options = Options { passes, expand_math: true, fused: true, ..Options::default() };
    lower(&program.validate().expect("valid"), &options).expect("lowers")
}

fn results(kernel: &Kernel) -> Vec<Option<u32>> {
    let input: Vec<u8> = numbers().iter().flat_map(|x| x.to_le_bytes()).collect();
    let mut buffers = [input.clone(), vec![0; input.len()]];
    let grid = [numbers().len().div_ceil(64) as u32, 1, 1];
    let how = Interpret { grid, subgroup_size: 32, budget: u64::MAX, noise: None };
    interpret(kernel, &mut buffers, &how).expect("runs");
    // NaN is NaN.
    let words = buffers[1].chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four")));
    words.map(|x| (!x.is_nan()).then(|| x.to_bits())).collect()
}

fn steps(kernel: &Kernel) -> usize {
    let mut count = 0;
    walk::each_inst(&kernel.body, &mut |inst| {
        count += usize::from(!matches!(inst, Inst::Let(_, crate::kernel::Op::Const(_))));
    });
    count
}

fn x() -> Expr {
    Expr::var("x")
}

fn exp(of: Expr) -> Expr {
    Expr::math(MathOp::Exp, vec![of])
}

#[test]
fn exponentials_of_what_is_not_large_take_fewer_steps_and_have_the_same_bits() {
    let without = Passes::all().without(Passes::RANGES).without(Passes::CONTRACT);
    let gauss = || exp(Expr::f32(-0.4) - x() * x() * Expr::f32(8.0));
    let limited = || exp(x().min(Expr::f32(20.0)));
    let between = || exp(x().min(Expr::f32(3.0)).max(Expr::f32(-5.0)));
    for (value, saved) in [(gauss(), 5), (limited(), 4), (between(), 5)] {
        let (plain, short) = (lowered(value.clone(), without), lowered(value.clone(), Passes::all()));
        assert_eq!(results(&plain), results(&short), "{value:?}");
        assert!(steps(&short) + saved <= steps(&plain), "{} of {}\n{short}", steps(&short), steps(&plain));
    }
    // What may be large keeps its steps.
    let any = exp(x());
    assert_eq!(steps(&lowered(any.clone(), without)), steps(&lowered(any, Passes::all())));
}

/// The steps of `factor` times a power of two, written by hand.
fn scaled(factor: Expr, exponent: Expr) -> Expr {
    let word = (exponent + Expr::f32(12_582_912.0)).bit_cast(DataType::I32);
    let first = word.clone().min(Expr::i32(0x4b40_0000 + 103));
    let power = |of: Expr, one: i32| ((of << Expr::u32(23)) + Expr::i32(one)).bit_cast(DataType::F32);
    factor * power(first.clone(), 0x3f80_0000 + (24 << 23)) * power(word - first, 0x3380_0000)
}

/// For an n of any size the short way would be wrong for some.
#[test]
fn powers_of_two_by_hand_stay_what_they_are() {
    let value = scaled(Expr::f32(1.5), x().min(Expr::f32(110.0)));
    let without = Passes::all().without(Passes::RANGES);
    assert_eq!(results(&lowered(value.clone(), without)), results(&lowered(value, Passes::all())));
}

/// What is scaled has a limit of its own, which is no step either.
#[test]
fn limits_that_change_nothing_go_from_what_is_scaled() {
    let exponent = x().min(Expr::f32(3.0)).max(Expr::f32(-5.0));
    let value = scaled((exponent.clone() + Expr::f32(1.0)).min(Expr::f32(50.0)), exponent);
    let without = Passes::all().without(Passes::RANGES);
    let (plain, short) = (lowered(value.clone(), without), lowered(value, Passes::all()));
    assert_eq!(results(&plain), results(&short));
    assert!(steps(&short) < steps(&plain), "{short}");
}

#[test]
fn sums_with_exact_products_are_one_step_and_have_the_same_bits() {
    let without = Passes::all().without(Passes::CONTRACT);
    for (value, fused) in [
        (x() * Expr::f32(8.0) + Expr::f32(0.3), true),
        (Expr::f32(0.3) - x() * Expr::f32(2.0), true),
        (x() * Expr::f32(-4.0) - Expr::f32(1e20), true),
        // These could round otherwise.
        (x() * Expr::f32(3.0) + Expr::f32(0.3), false),
        (x() * Expr::f32(0.5) + Expr::f32(1e-40), false),
        (x() * Expr::f32(2.0) - Expr::f32(3e38), false),
        (x() * Expr::f32(2.0) + x(), false),
    ] {
        let (plain, short) = (lowered(value.clone(), without), lowered(value.clone(), Passes::all()));
        assert_eq!(results(&plain), results(&short), "{value:?}");
        assert_eq!(short.to_string().contains("fma"), fused, "{short}");
    }
}

/// One way for large arguments, not two.
#[test]
fn sine_and_cosine_of_one_angle_share_its_reduction() {
    let both = Expr::math(MathOp::Sin, vec![x()]) * Expr::math(MathOp::Cos, vec![x()]);
    let kernel = lowered(both.clone(), Passes::all());
    let mut ways = 0;
    walk::each_inst(&kernel.body, &mut |inst| ways += usize::from(matches!(inst, Inst::If { .. })));
    assert_eq!(ways, 1, "{kernel}");
    assert_eq!(results(&kernel), results(&lowered(both, Passes::none())));
}
