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
