//! What an f32 can be: bounds that rounding keeps to.

/// Least and most, and whether it may be NaN instead.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Interval {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) nan: bool,
}

impl Interval {
    pub(super) const ANY: Interval = Interval { low: f64::NEG_INFINITY, high: f64::INFINITY, nan: true };

    pub(super) fn new(low: f64, high: f64) -> Interval {
        Interval { low, high, nan: false }
    }

    pub(super) fn constant(known: f32) -> Interval {
        if known.is_nan() { Interval::ANY } else { Interval::new(known.into(), known.into()) }
    }

    /// After a rounding to f32, which may reach infinity.
    pub(super) fn rounded(self) -> Interval {
        // More than any rounding adds, of subnormal numbers too. What is zero stays on its side of zero.
        let room = |bound: f64| if bound == 0.0 || bound.is_infinite() { 0.0 } else { bound.abs() * 6e-8 + 1e-44 };
        let most = f64::from(f32::MAX);
        let low = (self.low - room(self.low)).min(most);
        let high = (self.high + room(self.high)).max(-most);
        let (low, high) =
            (if low < -most { f64::NEG_INFINITY } else { low }, if high > most { f64::INFINITY } else { high });
        Interval { low, high, nan: self.nan }
    }

    fn may_be_zero(self) -> bool {
        self.low <= 0.0 && self.high >= 0.0
    }

    fn may_be_infinite(self) -> bool {
        self.low == f64::NEG_INFINITY || self.high == f64::INFINITY
    }

    pub(super) fn negated(self) -> Interval {
        Interval { low: -self.high, high: -self.low, nan: self.nan }
    }

    pub(super) fn size(self) -> Interval {
        let low = if self.may_be_zero() { 0.0 } else { self.low.abs().min(self.high.abs()) };
        Interval { low, high: self.low.abs().max(self.high.abs()), nan: self.nan }
    }

    pub(super) fn plus(self, other: Interval) -> Interval {
        let opposite = (self.high == f64::INFINITY && other.low == f64::NEG_INFINITY)
            || (self.low == f64::NEG_INFINITY && other.high == f64::INFINITY);
        let low = if self.low + other.low > f64::NEG_INFINITY { self.low + other.low } else { f64::NEG_INFINITY };
        let high = if self.high + other.high < f64::INFINITY { self.high + other.high } else { f64::INFINITY };
        Interval { low, high, nan: self.nan || other.nan || opposite }
    }

    pub(super) fn times(self, other: Interval) -> Interval {
        let product = |a: f64, b: f64| if a == 0.0 || b == 0.0 { 0.0 } else { a * b };
        let ends = [
            product(self.low, other.low),
            product(self.low, other.high),
            product(self.high, other.low),
            product(self.high, other.high),
        ];
        let lost = (self.may_be_zero() && other.may_be_infinite()) || (other.may_be_zero() && self.may_be_infinite());
        Interval {
            low: ends.into_iter().fold(f64::INFINITY, f64::min),
            high: ends.into_iter().fold(f64::NEG_INFINITY, f64::max),
            nan: self.nan || other.nan || lost,
        }
    }

    pub(super) fn square(self) -> Interval {
        let size = self.size();
        Interval { low: size.low * size.low, high: size.high * size.high, nan: self.nan }
    }

    /// The lesser or the greater of two. The first stays where one is NaN.
    pub(super) fn either_end(self, other: Interval, lesser: bool) -> Interval {
        let pick = |a: f64, b: f64| if lesser { a.min(b) } else { a.max(b) };
        let both = Interval { low: pick(self.low, other.low), high: pick(self.high, other.high), nan: self.nan };
        if other.nan { both.or(self) } else { both }
    }

    pub(super) fn or(self, other: Interval) -> Interval {
        Interval { low: self.low.min(other.low), high: self.high.max(other.high), nan: self.nan || other.nan }
    }
}

#[cfg(test)]
mod tests {
    use super::Interval;

    /// Every bound holds for what floats of the intervals give, and NaN is never unexpected.
    #[test]
    fn bounds_hold() {
        let numbers = [
            f32::NEG_INFINITY,
            f32::MIN,
            -3.5,
            -1.0,
            -1e-38,
            -1e-45,
            -0.0,
            0.0,
            1e-45,
            1e-20,
            0.1,
            1.0,
            7.25,
            3e38,
            f32::INFINITY,
        ];
        let mut intervals = Vec::new();
        for (i, low) in numbers.iter().enumerate() {
            for high in &numbers[i..] {
                intervals.push((Interval::new((*low).into(), (*high).into()), *low, *high));
            }
        }
        let within = |what: &str, bounds: Interval, value: f32| {
            let good = if value.is_nan() { bounds.nan } else { (bounds.low..=bounds.high).contains(&f64::from(value)) };
            assert!(good, "{what}: {value:e} is not in {bounds:?}");
        };
        for (a, a_low, a_high) in &intervals {
            for x in numbers.iter().filter(|x| *a_low <= **x && **x <= *a_high) {
                within("negated", a.negated(), -x);
                within("size", a.size(), x.abs());
                within("square", a.square().rounded(), x * x);
            }
            for (b, b_low, b_high) in &intervals {
                for x in numbers.iter().filter(|x| *a_low <= **x && **x <= *a_high) {
                    for y in numbers.iter().filter(|y| *b_low <= **y && **y <= *b_high) {
                        within("plus", a.plus(*b).rounded(), x + y);
                        within("times", a.times(*b).rounded(), x * y);
                        within("lesser", a.either_end(*b, true), x.min(*y));
                        within("greater", a.either_end(*b, false), x.max(*y));
                    }
                }
            }
        }
    }
}
