//! Functions of floats.
//!
//! The elementary functions are computed in f64 by an implementation in Rust that gives the same bits on every platform, with
//! an error of at most a few units in the last place of f64, and then rounded. For f16 and f32 that is the correctly rounded
//! result but for rare arguments whose exact result lies within about 2⁻⁵⁰ of a tie.

use half::f16;
use vyre_foundation::ir::{Literal, MathOp};

use crate::stored;

/// A float type.
pub(crate) trait Float: Copy {
    /// The same number; exact.
    fn wide(self) -> f64;
    /// The nearest number, ties to even.
    fn round(wide: f64) -> Self;
    /// `a·b + c` with one rounding.
    fn fma(a: Self, b: Self, c: Self) -> Self {
        // The product of two f32 is exact in f64. Its sum with `c` is rounded to odd: where it is not exact, to the
        // neighbour whose last bit is set. Rounding that once more is as good as rounding the exact sum.
        let (product, c) = (a.wide() * b.wide(), c.wide());
        let sum = product + c;
        let back = sum - product;
        let error = (product - (sum - back)) + (c - back);
        if sum.is_finite() && error != 0.0 && sum.to_bits() & 1 == 0 {
            let towards_larger = (error > 0.0) == (sum > 0.0);
            return Self::round(f64::from_bits(if towards_larger { sum.to_bits() + 1 } else { sum.to_bits() - 1 }));
        }
        Self::round(sum)
    }
    fn literal(self) -> Literal;
    fn of(literal: Literal) -> Option<Self>;
}

impl Float for f16 {
    fn wide(self) -> f64 {
        self.to_f64()
    }
    fn round(wide: f64) -> Self {
        stored::round_f16(wide)
    }
    fn literal(self) -> Literal {
        Literal::F16(self)
    }
    fn of(literal: Literal) -> Option<Self> {
        if let Literal::F16(value) = literal { Some(value) } else { None }
    }
}

impl Float for f32 {
    fn wide(self) -> f64 {
        f64::from(self)
    }
    fn round(wide: f64) -> Self {
        wide as f32
    }
    fn literal(self) -> Literal {
        Literal::F32(self)
    }
    fn of(literal: Literal) -> Option<Self> {
        if let Literal::F32(value) = literal { Some(value) } else { None }
    }
}

impl Float for f64 {
    fn wide(self) -> f64 {
        self
    }
    fn round(wide: f64) -> Self {
        wide
    }
    fn fma(a: f64, b: f64, c: f64) -> f64 {
        libm::fma(a, b, c)
    }
    fn literal(self) -> Literal {
        Literal::F64(self)
    }
    fn of(literal: Literal) -> Option<Self> {
        if let Literal::F64(value) = literal { Some(value) } else { None }
    }
}

/// A function of float scalars. `None` when it is not one, or the arguments don't fit.
pub(crate) fn float<F: Float>(op: MathOp, args: &[Literal]) -> Option<Literal> {
    let arg = |i: usize| F::of(*args.get(i)?);
    let wide = |i: usize| Some(arg(i)?.wide());
    let x = wide(0)?;
    let result = match op {
        MathOp::Fma => return Some(F::fma(arg(0)?, arg(1)?, arg(2)?).literal()),
        MathOp::Abs => x.abs(),
        MathOp::Sign => {
            if x == 0.0 || x.is_nan() {
                x
            } else {
                1f64.copysign(x)
            }
        }
        MathOp::Min => min(x, wide(1)?),
        MathOp::Max => max(x, wide(1)?),
        MathOp::Clamp => min(max(x, wide(1)?), wide(2)?),
        MathOp::Floor => x.floor(),
        MathOp::Ceil => x.ceil(),
        MathOp::Round => x.round_ties_even(),
        MathOp::Trunc => x.trunc(),
        MathOp::Fract => x - x.floor(),
        MathOp::Sqrt => x.sqrt(),
        MathOp::InverseSqrt => 1.0 / x.sqrt(),
        MathOp::Exp => libm::exp(x),
        MathOp::Exp2 => libm::exp2(x),
        MathOp::Log => libm::log(x),
        MathOp::Log2 => libm::log2(x),
        // Of −0 as of 0: the sign of a zero base has no meaning where negative bases have none.
        MathOp::Pow => {
            if x < 0.0 {
                f64::NAN
            } else {
                libm::pow(x.abs(), wide(1)?)
            }
        }
        MathOp::Sin => libm::sin(x),
        MathOp::Cos => libm::cos(x),
        MathOp::Tan => libm::tan(x),
        MathOp::Asin => libm::asin(x),
        MathOp::Acos => libm::acos(x),
        MathOp::Atan => libm::atan(x),
        MathOp::Atan2 => libm::atan2(x, wide(1)?),
        MathOp::Sinh => libm::sinh(x),
        MathOp::Cosh => libm::cosh(x),
        MathOp::Tanh => libm::tanh(x),
        MathOp::Asinh => libm::asinh(x),
        // The library's own answer below 1 is not always NaN.
        MathOp::Acosh if x < 1.0 => f64::NAN,
        MathOp::Acosh => libm::acosh(x),
        MathOp::Atanh => libm::atanh(x),
        MathOp::Dot
        | MathOp::All
        | MathOp::Any
        | MathOp::CountOneBits
        | MathOp::CountLeadingZeros
        | MathOp::CountTrailingZeros
        | MathOp::ReverseBits
        | MathOp::FirstLeadingBit
        | MathOp::FirstTrailingBit
        | MathOp::ExtractBits
        | MathOp::InsertBits
        | MathOp::MulHigh => return None,
    };
    Some(F::round(result).literal())
}

fn min(a: f64, b: f64) -> f64 {
    if b < a { b } else { a }
}

fn max(a: f64, b: f64) -> f64 {
    if a < b { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPECIAL: [f32; 14] = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        1.5,
        f32::MIN_POSITIVE,
        -1e-40,
        f32::MAX,
        f32::MIN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        1e-45,
    ];

    #[test]
    fn functions_of_two_agree_with_the_platform() {
        for x in SPECIAL {
            for y in SPECIAL {
                let args = [Literal::F32(x), Literal::F32(y)];
                let check = |op, wanted: f64| {
                    let Some(Literal::F32(got)) = float::<f32>(op, &args) else { panic!("{op:?} of f32") };
                    let wanted = wanted as f32;
                    let close = (got.to_bits() as i32).abs_diff(wanted.to_bits() as i32) <= 1;
                    assert!(
                        close || got.is_nan() && wanted.is_nan(),
                        "{op:?}({x:e}, {y:e}) is {got:e}, not {wanted:e}"
                    );
                };
                check(MathOp::Atan2, f64::from(x).atan2(f64::from(y)));
                let power = if x < 0.0 { f64::NAN } else { f64::from(x.abs()).powf(f64::from(y)) };
                check(MathOp::Pow, power);
            }
        }
    }

    /// Two implementations that share no code agree to the last place or the one before it.
    #[test]
    fn elementary_functions_agree_with_the_platform() {
        type Function = fn(f32) -> f32;
        let functions: [(MathOp, Function, f32); 16] = [
            (MathOp::Exp, f32::exp, 80.0),
            (MathOp::Exp2, f32::exp2, 120.0),
            (MathOp::Log, f32::ln, 1e30),
            (MathOp::Log2, f32::log2, 1e30),
            (MathOp::Sin, f32::sin, 1e4),
            (MathOp::Cos, f32::cos, 1e4),
            (MathOp::Tan, f32::tan, 1e4),
            (MathOp::Asin, f32::asin, 2.0),
            (MathOp::Acos, f32::acos, 2.0),
            (MathOp::Atan, f32::atan, 1e6),
            (MathOp::Sinh, f32::sinh, 80.0),
            (MathOp::Cosh, f32::cosh, 80.0),
            (MathOp::Tanh, f32::tanh, 5.0),
            // In f32 these cancel; in f64 there is enough left.
            (MathOp::Asinh, |x| f64::from(x).asinh() as f32, 1e6),
            (MathOp::Acosh, |x| f64::from(x).acosh() as f32, 1e6),
            (MathOp::Atanh, |x| f64::from(x).atanh() as f32, 2.0),
        ];
        let mut state = 7u32;
        let mut unit = || {
            state = state.wrapping_mul(1664525).wrapping_add(1013904223);
            (state >> 8) as f32 / (1 << 24) as f32 * 2.0 - 1.0
        };
        for (op, other, range) in functions {
            // Cubing gives small arguments their share.
            let random = std::iter::repeat_with(|| unit().powi(3) * range).take(2_000);
            for x in random.chain(SPECIAL) {
                let Some(Literal::F32(got)) = float::<f32>(op, &[Literal::F32(x)]) else { panic!("{op:?} of f32") };
                let wanted = other(x);
                let close = (got.to_bits() as i32).abs_diff(wanted.to_bits() as i32) <= 2;
                assert!(close || got.is_nan() && wanted.is_nan(), "{op:?}({x:e}) is {got:e}, not {wanted:e}");
            }
        }
    }
}
