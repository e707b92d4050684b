//! Deviations of float operations within what WGSL allows, for evaluations that show how far a result of fast arithmetic may lie from
//! the exact one.

use std::cell::Cell;

use super::{Binary, Scalar, Unary, eval};

/// One of many ways to deviate. The first four deviate the same way each time an operation is done, so that errors add up in loops; the
/// others deviate anew each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noise(pub u32);

thread_local! {
    /// An operation of an evaluation on this thread took or gave an infinity or NaN, or could have on a device.
    static MET_NONFINITE: Cell<bool> = const { Cell::new(false) };
}

/// Whether an evaluation with deviations on this thread has met an infinity or NaN since this was last asked. WGSL lets a device assume
/// that there are none, so what comes of them may be anything.
pub(crate) fn met_nonfinite() -> bool {
    MET_NONFINITE.take()
}

fn meet(numbers: &[f64]) {
    if numbers.iter().any(|number| !number.is_finite()) {
        MET_NONFINITE.set(true);
    }
}

/// WGSL bounds the error of a quotient only for such divisors: the inverse of a smaller one may be an infinity, of a larger one zero.
fn divides_within_bounds(ty: Scalar, y: f64) -> bool {
    match ty {
        Scalar::F16 => y.abs() >= 2f64.powi(-14),
        Scalar::F32 => (2f64.powi(-126)..=2f64.powi(126)).contains(&y.abs()),
        _ => true,
    }
}

/// Where an operation is done.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) value: u32,
    pub(super) lane: usize,
    pub(super) step: u64,
}

fn wide(ty: Scalar, bits: u64) -> f64 {
    f64::from_bits(eval::cast(ty, Scalar::F64, bits))
}

/// Distance of neighbours near a number.
pub(crate) fn ulp(ty: Scalar, x: f64) -> f64 {
    let (digits, least) = match ty {
        Scalar::F16 => (10, -14),
        Scalar::F32 => (23, -126),
        _ => (52, -1022),
    };
    let exponent = if x == 0.0 { least } else { ((x.abs().to_bits() >> 52) as i32 - 1023).max(least) };
    2f64.powi(exponent - digits)
}

impl Noise {
    /// Between −1 and 1.
    fn deviation(self, place: Place) -> f64 {
        let hash = |seed: u64| {
            let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
            x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            x ^ x >> 31
        };
        let sign = |bit: u64| if bit & 1 == 0 { 1.0 } else { -1.0 };
        let own = u64::from(place.value) << 32 | u64::from(self.0);
        match self.0 {
            run @ (0 | 1) => sign(run.into()),
            2 | 3 => sign(hash(own)),
            _ => {
                let hash = hash(hash(own) ^ place.step.rotate_left(20) ^ place.lane as u64);
                (hash >> 11) as f64 / (1u64 << 52) as f64 - 1.0
            }
        }
    }

    fn deviate(self, place: Place, ty: Scalar, bits: u64, bound: f64) -> u64 {
        let exact = wide(ty, bits);
        if !exact.is_finite() || !bound.is_finite() {
            return bits;
        }
        let value = exact + bound * self.deviation(place);
        // A device may take subnormal numbers for zero.
        let least = match ty {
            Scalar::F16 => 2f64.powi(-14),
            Scalar::F32 => 2f64.powi(-126),
            _ => 0.0,
        };
        let value = if value.abs() < least && self.0 % 2 == 1 { 0.0 } else { value };
        eval::cast(Scalar::F64, ty, value.to_bits())
    }

    /// What a device may take for an operand: half of the evaluations take subnormal numbers for zero.
    fn taken(self, ty: Scalar, bits: u64) -> u64 {
        let (digits, sign) = match ty {
            Scalar::F16 => (10, 15),
            Scalar::F32 => (23, 31),
            _ => return bits,
        };
        let is_subnormal = bits & ((1 << sign) - 1) < 1 << digits;
        if is_subnormal && self.0 % 2 == 1 { bits & 1 << sign } else { bits }
    }

    /// A zero with the other sign in half of the evaluations, which `bit` says.
    fn either_zero(self, bit: u32, ty: Scalar, bits: u64) -> u64 {
        let sign = 1 << (ty.bits() - 1);
        if bits & !sign == 0 && self.0 & bit != 0 { bits ^ sign } else { bits }
    }

    pub(super) fn unary(self, place: Place, op: Unary, ty: Scalar, a: u64) -> u64 {
        let bits = eval::unary(op, ty, self.taken(ty, a));
        if !ty.is_float() {
            return bits;
        }
        let (x, y) = (wide(ty, a), wide(ty, bits));
        meet(&[x, y]);
        let unit = ulp(ty, y);
        let single = 2f64.powi(-23);
        let bound = match op {
            Unary::Neg | Unary::Abs | Unary::Sign | Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc => {
                return bits;
            }
            _ if ty == Scalar::F64 => 8.0 * unit,
            Unary::Sqrt => 4.0 * unit,
            Unary::InverseSqrt => 2.0 * unit,
            Unary::Exp | Unary::Exp2 => (3.0 + 2.0 * x.abs()) * unit,
            Unary::Log | Unary::Log2 => log_error(x, y, ty),
            Unary::Sin | Unary::Cos => 2f64.powi(-11),
            Unary::Tan => 2f64.powi(-11) * 1.5 * (1.0 + y * y) + 2.5 * unit,
            Unary::Asin | Unary::Acos => 6.77e-5 + 4.0 * unit,
            Unary::Atan => 4096.0 * single * y.abs() + unit,
            Unary::Sinh | Unary::Cosh => (3.0 + 2.0 * x.abs()) * ulp(Scalar::F32, x.abs().exp()) + unit,
            Unary::Tanh => (6.0 + 4.0 * x.abs().min(10.0)) * single + 4.0 * unit,
            Unary::Asinh | Unary::Acosh | Unary::Atanh => 2f64.powi(-12) + 4.0 * unit,
            _ => 4.0 * unit,
        };
        self.deviate(place, ty, bits, if ty == Scalar::F16 { bound + unit } else { bound })
    }

    pub(super) fn binary(self, place: Place, op: Binary, ty: Scalar, a: u64, b: u64) -> u64 {
        let (mut taken_a, mut taken_b) = (self.taken(ty, a), self.taken(ty, b));
        if op == Binary::Atan2 {
            // The sign of a zero decides between no angle and half a turn, and of `max(-0, 0)` it is not promised.
            (taken_a, taken_b) = (self.either_zero(2, ty, taken_a), self.either_zero(1, ty, taken_b));
        }
        let bits = eval::binary(op, ty, taken_a, taken_b);
        if !ty.is_float() {
            return bits;
        }
        let (x, y) = (wide(ty, a), wide(ty, b));
        meet(&[x, y]);
        if !super::build::is_comparison(op) {
            meet(&[wide(ty, bits)]);
        }
        let bound = match op {
            // A sum that follows may take the product as it is before it is rounded.
            Binary::Mul if ty != Scalar::F64 && x * y == wide(ty, bits) => return bits,
            Binary::Mul => ulp(ty, wide(ty, bits)),
            Binary::Div | Binary::Rem if !divides_within_bounds(ty, y) => {
                MET_NONFINITE.set(true);
                return bits;
            }
            Binary::Div => 2.5 * ulp(ty, wide(ty, bits)),
            Binary::Rem => {
                let quotient = x / y;
                let near = (quotient - quotient.round()).abs() <= 4.0 * ulp(ty, quotient);
                if near { y.abs() } else { ulp(ty, x) }
            }
            Binary::Pow => {
                let log = x.abs().log2();
                let power = wide(ty, bits);
                let own = (3.0 + 2.0 * (y * log).abs()) * ulp(ty, power);
                own + power.abs() * std::f64::consts::LN_2 * y.abs() * log_error(x, log, ty)
            }
            Binary::Atan2 => 4096.0 * 2f64.powi(-23) * wide(ty, bits).abs() + ulp(ty, wide(ty, bits)),
            _ => return bits,
        };
        self.deviate(place, ty, bits, bound)
    }

    pub(super) fn fma(self, place: Place, ty: Scalar, a: u64, b: u64, c: u64) -> u64 {
        let product = wide(ty, a) * wide(ty, b);
        meet(&[product, wide(ty, c)]);
        let exact = ty != Scalar::F64 && wide(ty, eval::cast(Scalar::F64, ty, product.to_bits())) == product;
        let bound = if exact { 0.0 } else { ulp(ty, product) };
        let [a, b, c] = [a, b, c].map(|operand| self.taken(ty, operand));
        self.deviate(place, ty, eval::fma(ty, a, b, c), bound)
    }
}

fn log_error(x: f64, log: f64, ty: Scalar) -> f64 {
    let unit = 3.0 * ulp(ty, log);
    if (0.5..=2.0).contains(&x) { unit.max(2f64.powi(-21)) } else { unit }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found on an H200: `0 / 1e-45` was NaN, because the inverse of the divisor is an infinity.
    #[test]
    fn nothing_is_promised_of_quotients_by_subnormals_or_by_the_largest_numbers() {
        let place = Place { value: 0, lane: 0, step: 0 };
        for (divisor, promised) in [(1.0, true), (2f32.powi(126), true), (1e-45, false), (3e38, false)] {
            for op in [Binary::Div, Binary::Rem] {
                Noise(0).binary(place, op, Scalar::F32, 0, f32::to_bits(divisor).into());
                assert_eq!(met_nonfinite(), !promised, "{op:?} by {divisor}");
            }
        }
    }

    /// `atan2(0, max(-0, 0))` is half a turn or nothing, whichever zero the maximum is.
    #[test]
    fn evaluations_take_either_zero_for_an_angle() {
        let place = Place { value: 0, lane: 0, step: 0 };
        let angles = |y: f32, x: f32| {
            let one =
                |run| Noise(run).binary(place, Binary::Atan2, Scalar::F32, y.to_bits().into(), x.to_bits().into());
            [0, 1, 2, 3].map(|run| f32::from_bits(one(run) as u32).round())
        };
        assert_eq!(angles(0.0, 0.0), [0.0, 3.0, 0.0, -3.0]);
        assert_eq!(angles(-0.0, -1.0), [-3.0, -3.0, 3.0, 3.0]);
        assert_eq!(angles(0.0, 1.0), [0.0; 4]);
    }

    /// Found on an H200: the square root of the smallest number was zero.
    #[test]
    fn some_evaluations_take_subnormal_operands_for_zero() {
        let place = Place { value: 0, lane: 0, step: 0 };
        let root = |run| f32::from_bits(Noise(run).unary(place, Unary::Sqrt, Scalar::F32, 1) as u32);
        assert!(root(0) > 0.0 && root(1).abs() < 1e-40);
        let halved = |run| Noise(run).taken(Scalar::F16, 0x83ff);
        assert_eq!((halved(0), halved(1), Noise(1).taken(Scalar::F16, 0x0400)), (0x83ff, 0x8000, 0x0400));
    }
}
