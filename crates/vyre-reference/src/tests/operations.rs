//! Every operation on values whose results are known.
#![allow(clippy::approx_constant, clippy::excessive_precision)] // they are results to be met, not constants in disguise

use half::f16;
use vyre_foundation::ir::{BinaryOp, BufferDecl, DataType, Expr, Literal, MathOp, Node, Program, UnaryOp};

use super::results;

/// The value of a scalar expression, as the program stores it.
fn value(ty: DataType, expr: Expr) -> Literal {
    let program = Program::wrapped(
        vec![BufferDecl::output("out", 0, ty.clone()).with_count(1)],
        [1, 1, 1],
        vec![Node::store("out", 0u32, expr)],
    );
    let bytes = results(&program, &[]).remove(0);
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(&bytes);
    Literal::from_bits(&ty, u64::from_le_bytes(word)).expect("a scalar")
}

/// Bits of a float constant count, so that −0 is not 0; any NaN is as good as another.
fn same(got: Literal, wanted: Literal) -> bool {
    match (got, wanted) {
        (Literal::F16(a), Literal::F16(b)) if b.is_nan() => a.is_nan(),
        (Literal::F32(a), Literal::F32(b)) if b.is_nan() => a.is_nan(),
        (Literal::F64(a), Literal::F64(b)) if b.is_nan() => a.is_nan(),
        _ => got == wanted,
    }
}

#[track_caller]
fn check(expr: Expr, wanted: impl Into<Literal>) {
    let wanted = wanted.into();
    let got = value(wanted.data_type(), expr.clone());
    assert!(same(got, wanted), "{expr:?}\n gives {got:?}, not {wanted:?}");
}

fn e(value: impl Into<Literal>) -> Expr {
    Expr::Literal(value.into())
}

#[track_caller]
fn binary<T: Into<Literal> + Copy, R: Into<Literal> + Copy>(op: BinaryOp, cases: &[(T, T, R)]) {
    for &(a, b, wanted) in cases {
        check(Expr::binary(op, e(a), e(b)), wanted);
    }
}

#[track_caller]
fn math<const N: usize, T: Into<Literal> + Copy, R: Into<Literal> + Copy>(op: MathOp, cases: &[([T; N], R)]) {
    for &(args, wanted) in cases {
        check(Expr::math(op, args.into_iter().map(e).collect()), wanted);
    }
}

fn h(value: f32) -> f16 {
    f16::from_f32(value)
}

#[test]
fn integers_wrap() {
    use BinaryOp::*;
    binary(Add, &[(u32::MAX, 1u32, 0u32), (7, 8, 15)]);
    binary(Add, &[(i32::MAX, 1i32, i32::MIN)]);
    binary(Add, &[(u64::MAX, 2u64, 1u64)]);
    binary(Add, &[(i64::MAX, 1i64, i64::MIN)]);
    binary(Sub, &[(0u32, 1u32, u32::MAX)]);
    binary(Sub, &[(i64::MIN, 1i64, i64::MAX)]);
    binary(Mul, &[(0x10001u32, 0x10001u32, 0x20001u32)]);
    binary(Mul, &[(i32::MIN, -1i32, i32::MIN), (-3, 5, -15)]);
    binary(Mul, &[(u64::MAX, u64::MAX, 1u64), (1 << 63, 3, 1 << 63)]);
    check(Expr::unary(UnaryOp::Neg, e(i32::MIN)), i32::MIN);
    check(Expr::unary(UnaryOp::Neg, e(5i64)), -5i64);
    check(Expr::unary(UnaryOp::Not, e(0x0F0F_0F0Fu32)), 0xF0F0_F0F0u32);
    check(Expr::unary(UnaryOp::Not, e(0i64)), -1i64);
    check(Expr::unary(UnaryOp::Not, e(true)), false);
}

#[test]
fn division_never_fails() {
    use BinaryOp::*;
    binary(Div, &[(7u32, 2u32, 3u32), (7, 0, 7)]);
    binary(Div, &[(-7i32, 2i32, -3i32), (-7, 0, -7), (i32::MIN, -1, i32::MIN)]);
    binary(Div, &[(i64::MIN, -1i64, i64::MIN), (9, 0, 9)]);
    binary(Div, &[(u64::MAX, 3u64, 0x5555_5555_5555_5555u64)]);
    binary(Rem, &[(7u32, 4u32, 3u32), (7, 0, 0)]);
    binary(Rem, &[(-7i32, 4i32, -3i32), (7, -4, 3), (7, 0, 0), (i32::MIN, -1, 0)]);
    binary(Rem, &[(i64::MIN, -1i64, 0i64)]);
}

#[test]
fn bitwise_and_shifts() {
    use BinaryOp::*;
    binary(And, &[(0b1100u32, 0b1010u32, 0b1000u32)]);
    binary(Or, &[(0b1100i32, 0b1010i32, 0b1110i32)]);
    binary(Xor, &[(-1i64, 1i64, -2i64)]);
    binary(And, &[(true, false, false), (true, true, true)]);
    binary(Or, &[(true, false, true), (false, false, false)]);
    binary(Xor, &[(true, true, false), (true, false, true)]);
    binary(Shl, &[(1u32, 31u32, 1u32 << 31), (1, 32, 1), (3, 33, 6), (1, u32::MAX, 1 << 31)]);
    binary(Shr, &[(0x8000_0000u32, 31u32, 1u32), (0x8000_0000, 32, 0x8000_0000)]);
    check(Expr::binary(Shr, e(-8i32), e(1u32)), -4i32);
    check(Expr::binary(Shr, e(-8i32), e(34u32)), -2i32);
    check(Expr::binary(Shl, e(-1i64), e(63u32)), i64::MIN);
    check(Expr::binary(Shl, e(1u64), e(64u32)), 1u64);
    check(Expr::binary(Shr, e(u64::MAX), e(60u32)), 15u64);
}

#[test]
fn comparisons() {
    use BinaryOp::*;
    binary(Lt, &[(-1i32, 0i32, true), (0, 0, false)]);
    binary(Lt, &[(u32::MAX, 0u32, false)]);
    binary(Le, &[(3u64, 3u64, true)]);
    binary(Gt, &[(i64::MIN, i64::MAX, false)]);
    binary(Ge, &[(1.0f32, 1.0f32, true), (f32::NAN, 1.0, false)]);
    binary(Eq, &[(0.0f32, -0.0f32, true), (f32::NAN, f32::NAN, false)]);
    binary(Ne, &[(f64::NAN, f64::NAN, true), (1.0, 1.0, false)]);
    binary(Lt, &[(h(-1.0), h(0.5), true)]);
    binary(Eq, &[(true, true, true), (true, false, false)]);
    binary(Ne, &[(true, false, true)]);
}

#[test]
fn float_arithmetic_is_rounded_once() {
    use BinaryOp::*;
    // Half-way cases go to the even neighbour; a bit more goes up.
    binary(Add, &[(16777216.0f32, 1.0f32, 16777216.0f32), (16777216.0, 3.0, 16777220.0), (0.1, 0.2, 0.3)]);
    binary(Add, &[(h(2048.0), h(1.0), h(2048.0)), (h(2048.0), h(3.0), h(2052.0))]);
    binary(Add, &[(0.1f64, 0.2f64, 0.30000000000000004f64)]);
    binary(Sub, &[(1.0f32, 1.0f32, 0.0f32), (-0.0, 0.0, -0.0)]);
    binary(Mul, &[(h(300.0), h(300.0), f16::INFINITY), (h(0.1), h(0.1), h(0.009995))]);
    binary(
        Mul,
        &[
            (f32::MAX, 2.0f32, f32::INFINITY),
            (f32::from_bits(1), 0.5, 0.0),
            (f32::from_bits(3), 0.5, f32::from_bits(2)),
        ],
    );
    binary(Div, &[(1.0f32, 3.0f32, 0.33333334f32), (1.0, 0.0, f32::INFINITY), (0.0, 0.0, f32::NAN)]);
    binary(Div, &[(h(1.0), h(3.0), f16::from_bits(0x3555))]);
    binary(Div, &[(1.0f64, 3.0f64, 0.3333333333333333f64)]);
    binary(Rem, &[(5.5f32, 2.0f32, 1.5f32), (-5.5, 2.0, -1.5), (5.5, -2.0, 1.5), (1.0, 0.0, f32::NAN)]);
    // The quotient 0.3/0.1 rounds up to 3, so the three roundings don't give the exact remainder, 0.1 less a bit.
    binary(Rem, &[(0.3f32, 0.1f32, 0.3f32 - 0.1f32 * 3.0f32)]);
    check(Expr::unary(UnaryOp::Neg, e(0.0f32)), -0.0f32);
    check(Expr::unary(UnaryOp::Neg, e(h(1.5))), h(-1.5));
}

#[test]
fn fused_multiply_add_rounds_once() {
    // (1 + 2⁻¹²)² = 1 + 2⁻¹¹ + 2⁻²⁴: the last term only survives in the fused form.
    let a = 1.0 + f32::powi(2.0, -12);
    math(MathOp::Fma, &[([a, a, -1.0 - f32::powi(2.0, -11)], f32::powi(2.0, -24))]);
    // The product of these is half-way between two f32, and the sum with a tiny third operand is too in f64: it decides.
    let tiny = f32::powi(2.0, -100);
    for i in (1..2000).step_by(2) {
        let (a, b) = (1.0 + i as f32 * f32::powi(2.0, -12), 1.0 + f32::powi(2.0, -12));
        let lower = (f64::from(a) * f64::from(b) - f64::powi(2.0, -24)) as f32;
        let upper = f32::from_bits(lower.to_bits() + 1);
        let fma = <f32 as crate::function::Float>::fma;
        assert_eq!([fma(a, b, tiny), fma(a, b, -tiny)], [upper, lower], "{a} times {b}");
        assert_eq!([fma(-a, b, tiny), fma(-a, b, -tiny)], [-lower, -upper], "-{a} times {b}");
    }
    math(MathOp::Fma, &[([h(2.0), h(3.0), h(1.0)], h(7.0)), ([h(256.0), h(256.0), h(-100.0)], h(65440.0))]);
    math(MathOp::Fma, &[([f64::MAX, 2.0, -f64::MAX], f64::MAX)]);
    math(MathOp::Fma, &[([f32::INFINITY, 0.0, 1.0], f32::NAN)]);
    // Against the fused operation of the platform-independent library, on all kinds of bit patterns.
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        f32::from_bits((state >> 32) as u32)
    };
    for round in 0..20_000 {
        let (a, b) = (next(), next());
        let c = if round % 2 == 0 { next() } else { -a * b * (1.0 + f32::EPSILON) };
        let got = <f32 as crate::function::Float>::fma(a, b, c);
        let wanted = libm::fmaf(a, b, c);
        assert!(got.to_bits() == wanted.to_bits() || got.is_nan() && wanted.is_nan(), "{a:e} {b:e} {c:e}: {got:e}");
    }
}

#[test]
fn minimum_maximum_clamp() {
    math(MathOp::Min, &[([1.0f32, 2.0], 1.0f32), ([0.0, -0.0], 0.0), ([-0.0, 0.0], -0.0)]);
    // A NaN on the right is never chosen, one on the left always.
    math(MathOp::Min, &[([1.0f32, f32::NAN], 1.0f32), ([f32::NAN, 1.0], f32::NAN)]);
    math(MathOp::Max, &[([1.0f64, 2.0], 2.0f64), ([1.0, f64::NAN], 1.0), ([f64::NAN, 1.0], f64::NAN)]);
    math(MathOp::Max, &[([-3i32, 2], 2i32)]);
    math(MathOp::Min, &[([u64::MAX, 2], 2u64)]);
    math(MathOp::Clamp, &[([5i32, -1, 3], 3i32), ([-5, -1, 3], -1), ([0, 3, -1], -1)]);
    math(MathOp::Clamp, &[([h(5.0), h(0.0), h(1.0)], h(1.0))]);
}

#[test]
fn absolute_value_and_sign() {
    math(MathOp::Abs, &[([i32::MIN], i32::MIN), ([-4], 4)]);
    math(MathOp::Abs, &[([-0.0f32], 0.0f32), ([f32::NEG_INFINITY], f32::INFINITY)]);
    math(MathOp::Sign, &[([-7i64], -1i64), ([0], 0), ([9], 1)]);
    math(MathOp::Sign, &[([-7.5f32], -1.0f32), ([-0.0], -0.0), ([0.0], 0.0), ([f32::NAN], f32::NAN), ([1e-40], 1.0)]);
}

#[test]
fn rounding_functions() {
    math(MathOp::Floor, &[([-1.5f32], -2.0f32), ([1.5], 1.0), ([-0.0], -0.0)]);
    math(MathOp::Ceil, &[([-1.5f32], -1.0f32), ([1.2], 2.0), ([-0.5], -0.0)]);
    math(MathOp::Trunc, &[([-1.7f64], -1.0f64), ([1.7], 1.0)]);
    math(MathOp::Round, &[([0.5f32], 0.0f32), ([1.5], 2.0), ([2.5], 2.0), ([-2.5], -2.0), ([-0.4], -0.0)]);
    math(MathOp::Round, &[([h(3.5)], h(4.0)), ([h(4.5)], h(4.0))]);
    math(MathOp::Fract, &[([1.25f32], 0.25f32), ([-1.25], 0.75), ([-1e-10], 1.0)]);
}

#[test]
fn roots() {
    math(MathOp::Sqrt, &[([2.0f32], 1.4142135f32), ([-0.0], -0.0), ([-1.0], f32::NAN)]);
    math(MathOp::Sqrt, &[([h(2.0)], f16::from_bits(0x3DA8))]);
    math(MathOp::Sqrt, &[([2.0f64], 1.4142135623730951f64)]);
    math(MathOp::InverseSqrt, &[([4.0f32], 0.5f32), ([0.0], f32::INFINITY), ([2.0], 0.70710677)]);
}

/// Correctly rounded values from tables to more digits than f32 has.
#[test]
fn elementary_functions() {
    math(MathOp::Exp, &[([1.0f32], 2.7182817f32), ([-1.0], 0.36787945), ([0.0], 1.0), ([100.0], f32::INFINITY)]);
    math(MathOp::Exp2, &[([0.5f32], 1.4142135f32), ([-149.0], f32::from_bits(1)), ([10.0], 1024.0)]);
    math(MathOp::Log, &[([10.0f32], 2.3025851f32), ([1.0], 0.0), ([0.0], f32::NEG_INFINITY), ([-1.0], f32::NAN)]);
    math(MathOp::Log2, &[([8.0f32], 3.0f32), ([10.0], 3.321928), ([f32::from_bits(1)], -149.0)]);
    math(MathOp::Pow, &[([2.0f32, 0.5], 1.4142135f32), ([-2.0, 2.0], f32::NAN), ([0.0, 0.0], 1.0), ([3.0, 4.0], 81.0)]);
    math(MathOp::Pow, &[([-0.0f32, 3.0], 0.0f32), ([0.0, -1.0], f32::INFINITY)]);
    math(MathOp::Sin, &[([1.0f32], 0.84147096f32), ([-0.0], -0.0), ([1e10], -0.48750603), ([f32::INFINITY], f32::NAN)]);
    math(MathOp::Cos, &[([1.0f32], 0.5403023f32), ([0.0], 1.0)]);
    math(MathOp::Tan, &[([1.0f32], 1.5574077f32)]);
    math(MathOp::Asin, &[([1.0f32], 1.5707964f32), ([0.5], 0.5235988), ([2.0], f32::NAN)]);
    math(MathOp::Acos, &[([0.5f32], 1.0471976f32), ([-1.0], 3.1415927)]);
    math(MathOp::Atan, &[([1.0f32], 0.7853982f32)]);
    math(MathOp::Atan2, &[([1.0f32, -1.0], 2.3561945f32), ([-0.0, -1.0], -3.1415927), ([0.0, 1.0], 0.0)]);
    math(MathOp::Sinh, &[([1.0f32], 1.1752012f32)]);
    math(MathOp::Cosh, &[([1.0f32], 1.5430807f32)]);
    math(MathOp::Tanh, &[([1.0f32], 0.7615942f32), ([100.0], 1.0)]);
    math(MathOp::Asinh, &[([1.0f32], 0.8813736f32)]);
    math(MathOp::Acosh, &[([2.0f32], 1.316958f32), ([0.5], f32::NAN)]);
    math(MathOp::Atanh, &[([0.5f32], 0.54930615f32), ([1.0], f32::INFINITY)]);
    math(MathOp::Exp, &[([h(1.0)], f16::from_bits(0x4170))]);
}

#[test]
fn bit_functions() {
    math(MathOp::CountOneBits, &[([0xF0F0u32], 8u32)]);
    math(MathOp::CountOneBits, &[([-1i64], 64i64)]);
    math(MathOp::CountLeadingZeros, &[([1u32], 31u32), ([0], 32), ([u32::MAX], 0)]);
    math(MathOp::CountLeadingZeros, &[([1u64], 63u64), ([0], 64)]);
    math(MathOp::CountLeadingZeros, &[([-1i32], 0i32)]);
    math(MathOp::CountTrailingZeros, &[([8u32], 3u32), ([0], 32)]);
    math(MathOp::CountTrailingZeros, &[([0i64], 64i64), ([i64::MIN], 63)]);
    math(MathOp::ReverseBits, &[([1u32], 1u32 << 31), ([0x0000_00F0], 0x0F00_0000)]);
    math(MathOp::ReverseBits, &[([1i32], i32::MIN)]);
    math(MathOp::ReverseBits, &[([2u64], 1u64 << 62)]);
    math(MathOp::FirstLeadingBit, &[([0u32], u32::MAX), ([0x8000_0000], 31), ([5], 2)]);
    math(MathOp::FirstLeadingBit, &[([0i32], -1i32), ([-1], -1), ([-2], 0), ([-5], 2), ([5], 2), ([i32::MIN], 30)]);
    math(MathOp::FirstLeadingBit, &[([i64::MIN], 62i64), ([0], -1)]);
    math(MathOp::FirstTrailingBit, &[([0u32], u32::MAX), ([40], 3)]);
    math(MathOp::FirstTrailingBit, &[([0i64], -1i64), ([i64::MIN], 63)]);
    math(MathOp::MulHigh, &[([u32::MAX, u32::MAX], 0xFFFF_FFFEu32)]);
    math(MathOp::MulHigh, &[([-1i32, 1], -1i32), ([i32::MIN, i32::MIN], 1 << 30)]);
}

#[test]
fn bit_fields_are_cut_to_the_word() {
    let extract =
        |value: Literal, offset: u32, count: u32| Expr::math(MathOp::ExtractBits, vec![e(value), e(offset), e(count)]);
    check(extract(0xABCD_1234u32.into(), 8, 8), 0x12u32);
    check(extract(0xABCD_1234u32.into(), 0, 32), 0xABCD_1234u32);
    check(extract(0xABCD_1234u32.into(), 28, 100), 0xAu32);
    check(extract(0xABCD_1234u32.into(), 40, 4), 0u32);
    check(extract(u32::MAX.into(), 3, 0), 0u32);
    check(extract(0x0000_00F0i32.into(), 4, 4), -1i32);
    check(extract(0x0000_0070i32.into(), 4, 4), 7i32);
    check(extract(i32::MIN.into(), 0, 32), i32::MIN);
    let insert = |value: Literal, new: Literal, offset: u32, count: u32| {
        Expr::math(MathOp::InsertBits, vec![e(value), e(new), e(offset), e(count)])
    };
    check(insert(0u32.into(), u32::MAX.into(), 4, 8), 0xFF0u32);
    check(insert(u32::MAX.into(), 0u32.into(), 28, 100), 0x0FFF_FFFFu32);
    check(insert(7u32.into(), 1u32.into(), 32, 4), 7u32);
    check(insert(7u32.into(), 9u32.into(), 0, 32), 9u32);
    check(insert((-1i32).into(), 0i32.into(), 31, 1), i32::MAX);
}

#[test]
fn conversions() {
    let cast = |value: Literal, wanted: Literal| check(e(value).cast(wanted.data_type()), wanted);
    for (value, wanted) in [(1.9f32, 1u32), (-1.0, 0), (f32::NAN, 0), (5e9, u32::MAX), (f32::INFINITY, u32::MAX)] {
        cast(value.into(), wanted.into());
    }
    for (value, wanted) in [(-1.9f32, -1i32), (-3e9, i32::MIN), (3e9, i32::MAX), (f32::NAN, 0)] {
        cast(value.into(), wanted.into());
    }
    cast(1e30f64.into(), u64::MAX.into());
    cast((-1e30f64).into(), i64::MIN.into());
    cast(h(-2.5).into(), (-2i32).into());
    cast(f16::INFINITY.into(), i64::MAX.into());
    // Integers to floats, ties to even.
    cast(16777217u32.into(), 16777216.0f32.into());
    cast(16777219u32.into(), 16777220.0f32.into());
    cast(u64::MAX.into(), 18446744073709551616.0f32.into());
    cast(((1i64 << 53) + 1).into(), 9007199254740992.0f64.into());
    cast(65519i32.into(), f16::MAX.into());
    cast(65520i32.into(), f16::INFINITY.into());
    cast((-2049i32).into(), h(-2048.0).into());
    // From f64 in one rounding: by way of f32 this would be a tie and go down.
    cast((1.0 + f64::powi(2.0, -11) + f64::powi(2.0, -40)).into(), f16::from_bits(0x3C01).into());
    cast(1e300f64.into(), f32::INFINITY.into());
    cast(f16::from_bits(1).into(), f32::powi(2.0, -24).into());
    // Integers wrap and extend by the sign of the source.
    cast((-1i32).into(), u64::MAX.into());
    cast(u32::MAX.into(), 4294967295i64.into());
    cast(0x1_0000_0005u64.into(), 5i32.into());
    // Bools.
    cast(true.into(), 1.0f32.into());
    cast(true.into(), 1i64.into());
    cast(0.0f32.into(), false.into());
    cast(f32::NAN.into(), true.into());
    cast((-0.0f64).into(), false.into());
    cast(256u32.into(), true.into());
}

#[test]
fn bit_casts_keep_bits() {
    check(e(1.0f32).bit_cast(DataType::U32), 0x3F80_0000u32);
    check(e(-1i32).bit_cast(DataType::U32), u32::MAX);
    check(e(0x4000_0000_0000_0000u64).bit_cast(DataType::F64), 2.0f64);
    let pair = Expr::construct(DataType::Vec2U32, vec![e(0x9ABC_DEF0u32), e(0x1234_5678u32)]);
    check(pair.bit_cast(DataType::U64), 0x1234_5678_9ABC_DEF0u64);
    let halves = e(0x4000_3C00u32).bit_cast(DataType::vector(DataType::F16, 2));
    check(halves.clone().lane(0), h(1.0));
    check(halves.lane(1), h(2.0));
}

#[test]
fn vectors() {
    let vec3 = || DataType::vector(DataType::F32, 3);
    let make = |x: f32, y: f32, z: f32| Expr::construct(vec3(), vec![e(x), e(y), e(z)]);
    let sum = make(1.0, 2.0, 3.0) + make(10.0, 20.0, 30.0);
    check(sum.clone().lane(2), 33.0f32);
    check(Expr::math(MathOp::Dot, vec![make(1.0, 2.0, 3.0), make(4.0, 5.0, 6.0)]), 32.0f32);
    // In order: (1e30 − 1e30) + 1, not 1e30 + (−1e30 + 1).
    check(Expr::math(MathOp::Dot, vec![make(1e30, -1e30, 1.0), make(1.0, 1.0, 1.0)]), 1.0f32);
    let ints = |a: u32, b: u32| Expr::construct(DataType::Vec2U32, vec![e(a), e(b)]);
    check(Expr::math(MathOp::Dot, vec![ints(u32::MAX, 3), ints(2, 5)]), 13u32);
    let swizzled = Expr::Swizzle { value: Box::new(sum), lanes: [2u8, 0, 2, 1].into_iter().collect() };
    check(swizzled.clone().lane(0) + swizzled.clone().lane(1) + swizzled.clone().lane(3), 66.0f32);
    let from_parts = Expr::construct(DataType::Vec4U32, vec![e(9u32), ints(7, 8), e(6u32)]);
    for (lane, wanted) in [9u32, 7, 8, 6].into_iter().enumerate() {
        check(from_parts.clone().lane(lane as u8), wanted);
    }
    check(Expr::construct(DataType::Vec4U32, vec![e(4u32)]).lane(3), 4u32);
    check(Expr::construct(vec3(), vec![]).lane(1), 0.0f32);
    let less = make(1.0, 5.0, 3.0).lt(make(2.0, 2.0, 2.0));
    check(Expr::math(MathOp::Any, vec![less.clone()]), true);
    check(Expr::math(MathOp::All, vec![less.clone()]), false);
    let chosen = Expr::select(less, make(1.0, 2.0, 3.0), make(-1.0, -2.0, -3.0));
    check(chosen.clone().lane(0), 1.0f32);
    check(chosen.lane(1), -2.0f32);
    check(Expr::select(e(false), ints(1, 2), ints(3, 4)).lane(1), 4u32);
    check(make(1.5, -2.5, 0.0).cast(DataType::vector(DataType::I32, 3)).lane(1), -2i32);
    let shifted = Expr::binary(BinaryOp::Shl, ints(1, 1), ints(3, 36));
    check(shifted.clone().lane(0) + shifted.lane(1), 24u32);
    check((-make(1.0, 2.0, 3.0)).lane(1), -2.0f32);
    let clamped = Expr::math(MathOp::Clamp, vec![make(5.0, -5.0, 0.5), make(0.0, 0.0, 0.0), make(1.0, 1.0, 1.0)]);
    check(clamped.clone().lane(0), 1.0f32);
    check(clamped.lane(2), 0.5f32);
}
