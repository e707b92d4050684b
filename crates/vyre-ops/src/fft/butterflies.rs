//! Transforms of a few points in registers, as text.

use std::f64::consts::PI;
use std::fmt::Write;

/// The names of a real and an imaginary part.
#[derive(Clone, Debug)]
pub(super) struct Complex {
    pub(super) re: String,
    pub(super) im: String,
}

impl Complex {
    pub(super) fn named(name: &str) -> Complex {
        Complex { re: format!("{name}_r"), im: format!("{name}_i") }
    }
}

/// Lines of a kernel, and names for what they make.
pub(super) struct Lines<'a> {
    pub(super) text: &'a mut String,
    pub(super) prefix: String,
    pub(super) count: usize,
}

impl Lines<'_> {
    fn make(&mut self, re: &str, im: &str) -> Complex {
        let made = Complex::named(&format!("{}_{}", self.prefix, self.count));
        self.count += 1;
        let _ = writeln!(self.text, "let {} = {re};\nlet {} = {im};", made.re, made.im);
        made
    }

    fn sum(&mut self, a: &Complex, b: &Complex) -> Complex {
        self.make(&format!("{} + {}", a.re, b.re), &format!("{} + {}", a.im, b.im))
    }

    fn difference(&mut self, a: &Complex, b: &Complex) -> Complex {
        self.make(&format!("{} - {}", a.re, b.re), &format!("{} - {}", a.im, b.im))
    }

    pub(super) fn product(&mut self, a: &Complex, b: &Complex) -> Complex {
        self.make(
            &format!("fma({0}, {2}, -({1} * {3}))", a.re, a.im, b.re, b.im),
            &format!("fma({0}, {3}, {1} * {2})", a.re, a.im, b.re, b.im),
        )
    }

    /// Times `exp(-2πi·m/n)`.
    fn turned(&mut self, a: &Complex, m: usize, n: usize) -> Complex {
        if m == 0 {
            return a.clone();
        }
        if 4 * m == n {
            return self.make(&a.im, &format!("-{}", a.re));
        }
        let turn = -2.0 * PI * m as f64 / n as f64;
        let by = Complex { re: number(turn.cos()), im: number(turn.sin()) };
        self.product(a, &by)
    }

    /// The transform of these points, in order.
    pub(super) fn transform(&mut self, points: &[Complex]) -> Vec<Complex> {
        match points {
            [_] => points.to_vec(),
            [a, b] => vec![self.sum(a, b), self.difference(a, b)],
            _ if points.len().is_multiple_of(2) => {
                let n = points.len();
                let half = |first: usize| points.iter().skip(first).step_by(2).cloned().collect::<Vec<_>>();
                let (even, odd) = (self.transform(&half(0)), self.transform(&half(1)));
                let odd: Vec<Complex> = odd.iter().enumerate().map(|(m, point)| self.turned(point, m, n)).collect();
                let mut all: Vec<Complex> = even.iter().zip(&odd).map(|(a, b)| self.sum(a, b)).collect();
                all.extend(even.iter().zip(&odd).map(|(a, b)| self.difference(a, b)));
                all
            }
            _ => self.odd(points),
        }
    }

    /// Points that stand opposite each other share their products.
    fn odd(&mut self, points: &[Complex]) -> Vec<Complex> {
        let n = points.len();
        let pairs: Vec<(Complex, Complex)> = (1..=n / 2)
            .map(|j| (self.sum(&points[j], &points[n - j]), self.difference(&points[j], &points[n - j])))
            .collect();
        let mut first = points[0].clone();
        for (sum, _) in &pairs {
            first = self.sum(&first, sum);
        }
        let mut all = vec![first; n];
        for k in 1..=n / 2 {
            let (mut near, mut far) = (points[0].clone(), None::<Complex>);
            for (j, (sum, difference)) in pairs.iter().enumerate() {
                let turn = 2.0 * PI * ((j + 1) * k % n) as f64 / n as f64;
                let (cos, sin) = (number(turn.cos()), number(turn.sin()));
                near = self.make(
                    &format!("fma({cos}, {}, {})", sum.re, near.re),
                    &format!("fma({cos}, {}, {})", sum.im, near.im),
                );
                far = Some(match far {
                    Some(far) => self.make(
                        &format!("fma({sin}, {}, {})", difference.re, far.re),
                        &format!("fma({sin}, {}, {})", difference.im, far.im),
                    ),
                    None => self.make(&format!("{sin} * {}", difference.re), &format!("{sin} * {}", difference.im)),
                });
            }
            let Some(far) = far else { continue };
            // `near - i·far` and its mirror image.
            all[k] = self.make(&format!("{} + {}", near.re, far.im), &format!("{} - {}", near.im, far.re));
            all[n - k] = self.make(&format!("{} - {}", near.re, far.im), &format!("{} + {}", near.im, far.re));
        }
        all
    }
}

fn number(value: f64) -> String {
    format!("f32#{:08x}", (value as f32).to_bits())
}
