//! What timings of some launches say about all of them.

/// A timing, as a logarithm, is off by so much.
pub(super) const NOISE: f64 = 0.03;
/// Log times change by so much for a step along an axis, and bend so much.
const SLOPE: f64 = 0.25;
const BEND: f64 = 0.04;
/// From their best place on, most kernels get slower on all sides.
const BOWL: f64 = 0.02;
/// How far neighbours along an axis depart from that, and over how many steps.
const RIPPLE: f64 = 0.12;
const REACH: f64 = 1.5;
/// What a candidate has of its own: little, or so much that its place says hardly anything; and how likely each is at first, as a
/// logarithm.
const QUIRKS: [(f64, f64); 3] = [(0.03, 0.0), (0.1, -1.0), (0.25, -1.0)];
/// Models that are less likely than the best by this are left out.
const UNLIKELY: f64 = 4.0;
/// A single timing may be a stall if it is so much slower than the others say.
const SUSPICIOUS: f64 = 0.3;
/// How likely a stall is thought to be, as a density over log times: more than it is, because to believe in one costs a whole
/// region, and not to believe in it one more timing.
const STALLS: f64 = 0.36;
/// The logarithm of how rare stalls are.
const RARE: f64 = -3.5;
/// A stall says this little of its candidate.
const STALLED: f64 = 0.7;

/// What is expected of a candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Expected {
    /// Its typical log time.
    pub(super) time: f64,
    /// How far that may be off, as a deviation.
    pub(super) doubt: f64,
    /// It was never timed, or only in what was probably a stall.
    pub(super) open: bool,
}

/// What was timed of a candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Timed {
    pub(super) candidate: usize,
    /// Typical log time.
    pub(super) time: f64,
    /// Timings that this rests on.
    pub(super) count: usize,
}

/// A Gaussian process over the places of the candidates: a bowl along each axis, ripples in it, and quirks of each candidate.
#[derive(Clone, Debug)]
pub(super) struct Surface {
    /// How alike two candidates are but for their quirks, row by row.
    alike: Vec<f64>,
    bowl: Vec<f64>,
}

impl Surface {
    /// Places as [`Candidates::places`](super::Candidates) has them: the first three axes are the sizes of a workgroup.
    pub(super) fn new(places: &[Vec<u32>]) -> Self {
        let from_own = |place: &Vec<u32>| {
            let axes = place.iter().zip(&places[0]).map(|(at, own)| f64::from(*at) - f64::from(*own));
            let mut axes: Vec<f64> = axes.collect();
            // How large a workgroup is in all matters by itself.
            axes.push(axes.iter().take(3).sum());
            axes
        };
        let places: Vec<Vec<f64>> = places.iter().map(from_own).collect();
        let alike = |a: &Vec<f64>, b: &Vec<f64>| {
            let along = |(a, b): (&f64, &f64)| {
                let far = (a - b) / REACH;
                SLOPE * SLOPE * a * b + (BEND * a * b).powi(2) + RIPPLE * RIPPLE * (-0.5 * far * far).exp()
            };
            1.0 + a.iter().zip(b).map(along).sum::<f64>()
        };
        let bowl = |axes: &Vec<f64>| BOWL * axes[..axes.len() - 1].iter().map(|at| at * at).sum::<f64>();
        Surface {
            alike: places.iter().flat_map(|a| places.iter().map(move |b| alike(a, b))).collect(),
            bowl: places.iter().map(bowl).collect(),
        }
    }

    fn alike(&self, a: usize, b: usize) -> f64 {
        self.alike[a * self.bowl.len() + b]
    }

    /// What is expected of every candidate.
    pub(super) fn expect(&self, timed: &[Timed]) -> Vec<Expected> {
        let Some(level) = timed.first().map(|timed| timed.time) else {
            return vec![Expected { time: 0.0, doubt: 1.0, open: true }; self.bowl.len()];
        };
        let off: Vec<f64> = timed.iter().map(|timed| timed.time - level - self.bowl[timed.candidate]).collect();
        let models = self.models(timed, &off);
        let likeliest = models.iter().max_by(|a, b| a.weight.total_cmp(&b.weight));
        let stalled = |at: &usize| likeliest.is_some_and(|model| model.stalled[*at]);
        let mut expected = vec![None; self.bowl.len()];
        for (_, one) in timed.iter().enumerate().filter(|(at, _)| !stalled(at)) {
            let doubt = NOISE / (one.count as f64).sqrt();
            expected[one.candidate] = Some(Expected { time: one.time, doubt, open: false });
        }
        let mut with = vec![0.0; timed.len()];
        let guess = |(candidate, known): (usize, Option<Expected>)| {
            known.unwrap_or_else(|| {
                let (mut mean, mut square) = (0.0, 0.0);
                for model in &models {
                    for (with, one) in with.iter_mut().zip(timed) {
                        let own = if one.candidate == candidate { model.quirk } else { 0.0 };
                        *with = self.alike(candidate, one.candidate) + own;
                    }
                    let own = self.alike(candidate, candidate) + model.quirk;
                    let (here, variance) = model.predict(&mut with, own);
                    mean += model.weight * here;
                    square += model.weight * (variance + here * here);
                }
                let doubt = (square - mean * mean).max(1e-8).sqrt();
                Expected { time: level + self.bowl[candidate] + mean, doubt, open: true }
            })
        };
        expected.into_iter().enumerate().map(guess).collect()
    }

    /// The models that are likely, with weights that sum to one.
    fn models(&self, timed: &[Timed], off: &[f64]) -> Vec<Model> {
        let n = timed.len();
        let model = |quirk: f64, prior: f64, stalled: Vec<bool>| {
            let mut matrix = vec![0.0; n * n];
            for (i, a) in timed.iter().enumerate() {
                for (j, b) in timed[..=i].iter().enumerate() {
                    matrix[i * n + j] = self.alike(a.candidate, b.candidate);
                }
                let noise = if stalled[i] { STALLED * STALLED } else { NOISE * NOISE / a.count as f64 };
                matrix[i * n + i] += quirk * quirk + noise;
            }
            Model::new(matrix, off, quirk * quirk, prior, stalled)
        };
        let explain = |&(quirk, prior): &(f64, f64)| {
            let plain = model(quirk, prior, vec![false; n]);
            let is_stalled = |(at, one): (usize, &Timed)| {
                one.candidate > 0 && one.count == 1 && {
                    let (off, variance) = plain.left_out(at);
                    let density = (-0.5 * off * off / variance).exp() / (std::f64::consts::TAU * variance).sqrt();
                    off > SUSPICIOUS && STALLS > density
                }
            };
            let stalled: Vec<bool> = timed.iter().enumerate().map(is_stalled).collect();
            // Stalls explain everything, but they are rare.
            match stalled.iter().filter(|stalled| **stalled).count() {
                0 => plain,
                stalls => model(quirk, prior + stalls as f64 * RARE, stalled),
            }
        };
        let mut models: Vec<Model> = QUIRKS.iter().map(explain).collect();
        let best = models.iter().map(|model| model.weight).fold(f64::NEG_INFINITY, f64::max);
        models.retain(|model| model.weight > best - UNLIKELY);
        models.iter_mut().for_each(|model| model.weight = (model.weight - best).exp());
        let sum: f64 = models.iter().map(|model| model.weight).sum();
        models.iter_mut().for_each(|model| model.weight /= sum);
        models
    }
}

/// The process with one size of quirks, given what was seen.
struct Model {
    /// Variance of the quirks.
    quirk: f64,
    /// Covariance of what was seen as the product of this triangle, row by row, with itself.
    lower: Vec<f64>,
    weights: Vec<f64>,
    /// What it takes for a stall.
    stalled: Vec<bool>,
    /// How likely it is; at first the logarithm of that, but for a constant.
    weight: f64,
}

impl Model {
    fn new(mut lower: Vec<f64>, seen: &[f64], quirk: f64, prior: f64, stalled: Vec<bool>) -> Model {
        let n = seen.len();
        for i in 0..n {
            let (above, row) = lower.split_at_mut(i * n);
            for j in 0..i {
                let other = &above[j * n..=j * n + j];
                row[j] = (row[j] - dot(&row[..j], other)) / other[j];
            }
            row[i] = (row[i] - dot(&row[..i], &row[..i])).max(1e-12).sqrt();
        }
        let mut model = Model { quirk, lower, weights: seen.to_vec(), stalled, weight: prior };
        let mut weights = seen.to_vec();
        model.forward(&mut weights);
        model.weight -= 0.5 * dot(&weights, &weights);
        for i in (0..n).rev() {
            for k in i + 1..n {
                weights[i] -= model.lower[k * n + i] * weights[k];
            }
            weights[i] /= model.lower[i * n + i];
            model.weight -= model.lower[i * n + i].ln();
        }
        model.weights = weights;
        model
    }

    /// Solves for the triangle in place.
    fn forward(&self, values: &mut [f64]) {
        let n = self.weights.len();
        for i in 0..n {
            let row = &self.lower[i * n..=i * n + i];
            values[i] = (values[i] - dot(row, &values[..i])) / row[i];
        }
    }

    /// Mean and variance of something with these covariances with what was seen, which are overwritten.
    fn predict(&self, with: &mut [f64], own: f64) -> (f64, f64) {
        let mean = dot(with, &self.weights);
        self.forward(with);
        (mean, (own - dot(with, with)).max(1e-8))
    }

    /// How far something that was seen is off what all others say, and the variance of that.
    fn left_out(&self, at: usize) -> (f64, f64) {
        let mut unit = vec![0.0; self.weights.len()];
        unit[at] = 1.0;
        self.forward(&mut unit);
        let precision = dot(&unit, &unit);
        (self.weights[at] / precision, 1.0 / precision)
    }
}

/// The sum of products, as long as both last.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> Vec<Vec<u32>> {
        (0..6).flat_map(|x| (0..4).map(move |y| vec![x, y])).collect()
    }

    fn timed(times: &[(usize, f64)]) -> Vec<Timed> {
        times.iter().map(|&(candidate, time)| Timed { candidate, time, count: 1 }).collect()
    }

    #[test]
    fn a_slope_is_carried_on_and_doubt_grows_with_distance() {
        let surface = Surface::new(&places());
        let expected = surface.expect(&timed(&[(0, 10.0), (4, 9.8), (8, 9.6), (1, 10.0)]));
        assert!(expected[12].time < 9.6 && expected[12].open, "{:?}", expected[12]);
        assert!(expected[20].doubt > expected[12].doubt);
        assert_eq!(expected[4], Expected { time: 9.8, doubt: NOISE, open: false });
    }

    #[test]
    fn a_timing_that_nothing_around_it_explains_may_be_a_stall() {
        let surface = Surface::new(&places());
        let mut times: Vec<(usize, f64)> =
            (0..12).map(|candidate| (candidate, 10.0 + 0.01 * candidate as f64)).collect();
        times[6].1 = 11.0;
        let expected = surface.expect(&timed(&times));
        assert!(expected[6].open && expected[6].time < 10.6, "{:?}", expected[6]);
        assert!(!expected[5].open && !expected[7].open);
        let mut twice = timed(&times);
        twice[6].count = 2;
        assert!(!surface.expect(&twice)[6].open, "twice the same is no stall");
    }

    #[test]
    fn the_triangle_is_the_matrix() {
        let model = Model::new(vec![4.0, 0.0, 2.0, 5.0], &[1.0, 2.0], 0.0, 0.0, vec![false; 2]);
        // [[4, 2], [2, 5]]⁻¹ [1, 2] = [1/16, 6/16].
        assert!((model.weights[0] - 0.0625).abs() < 1e-12 && (model.weights[1] - 0.375).abs() < 1e-12);
        let (mean, variance) = model.predict(&mut [4.0, 2.0], 4.0);
        assert!((mean - 1.0).abs() < 1e-12 && variance < 1e-7, "what was seen is known");
    }
}
