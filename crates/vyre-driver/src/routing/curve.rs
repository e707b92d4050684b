use serde::{Deserialize, Serialize};

/// How long something of size n takes, learnt from timings: `overhead + a·nᵇ`, corrected by what was measured nearby, with
/// bounds that are narrow where much was measured and wide far from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// What was measured, in cells of half an octave of n, in order.
    cells: Vec<Cell>,
    /// What is assumed before anything is measured.
    prior: Fit,
    linear: bool,
    /// So many of the next timings are believed whatever they say.
    believing: u32,
    fit: Fit,
}

/// A predicted time with its bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Most likely time.
    pub ns: f64,
    /// The time is hardly less than this.
    pub low: f64,
    /// The time is hardly more than this.
    pub high: f64,
}

impl Prediction {
    /// What to reckon with: the less is known, the more. A guess does not win over what was measured for being a little less.
    pub(super) fn wary(&self) -> f64 {
        (self.ns * self.high).sqrt()
    }

    /// How likely it is more than this.
    pub(super) fn chance_above(&self, ns: f64) -> f64 {
        let width = (self.high / self.low).ln();
        if width > 0.0 { ((self.high / ns).ln() / width).clamp(0.0, 1.0) } else { 1.0 }
    }
}

/// The parameters of the fitted curve.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fit {
    /// Time of the smallest work.
    pub overhead: f64,
    /// Factor.
    pub a: f64,
    /// Exponent.
    pub b: f64,
    /// How far timings lie from the curve, relatively.
    pub spread: f64,
}

/// Means of the logarithms of size and time over so many timings, as a curve is stored.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Cell {
    at: i32,
    count: u32,
    size: f64,
    time: f64,
}

impl Cell {
    pub(super) fn at(&self) -> i32 {
        self.at
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// The same, as if it had been measured so often at most.
    pub(super) fn weakened(self, most: u32) -> Cell {
        Cell { count: self.count.min(most), ..self }
    }
}

/// New timings weigh at least one in so many, so that a curve follows its device.
const MEMORY: u32 = 32;
/// So many timings nearby say as much as a fit that goes through all of them.
const FIT_WEIGHT: f64 = 0.2;
/// What a single timing may be off before anything is known about the noise.
const FIRST_SPREAD: f64 = 0.05;
/// What is added to the doubt for each octave away from the nearest measurement.
const DOUBT_PER_OCTAVE: f64 = 0.25;
/// A size from which on, and a time that is so many times as long as the smallest, tell how long each unit takes, and so does a long one.
const LARGE: f64 = 15.0 * std::f64::consts::LN_2;
const MUCH_WORK: f64 = 10.0;
const LONG: f64 = 1e6;
/// So far beyond what was timed, as a logarithm, that says little: four octaves.
const FADES: f64 = 4.0 * std::f64::consts::LN_2;
/// So far beyond what was timed, as a logarithm, work may grow with the square of its size: two octaves.
const STEEP: f64 = 2.0 * std::f64::consts::LN_2;
/// Timings that lie further from a well known cell than this are stalls until they come again and again.
const STALL: f64 = 0.08;

/// What a guess made before the first measurement may be off: a factor of seven.
const PRIOR_DOUBT: f64 = 2.0;

impl Curve {
    /// A curve of which it is only guessed that it is `overhead + per_unit·n`.
    pub fn guessed(overhead: f64, per_unit: f64) -> Self {
        let prior = Fit { overhead, a: per_unit, b: 1.0, spread: FIRST_SPREAD };
        Curve { cells: Vec::new(), prior, linear: false, believing: 0, fit: prior }
    }

    /// As [`Curve::guessed`], for what is known to grow with n and no other power of it.
    pub fn linear(overhead: f64, per_unit: f64) -> Self {
        Curve { linear: true, ..Curve::guessed(overhead, per_unit) }
    }

    /// Takes a timing in.
    pub fn observe(&mut self, n: u64, ns: u64) {
        let (size, mut time) = ((n.max(1) as f64).ln(), (ns.max(1) as f64).ln());
        let at = cell_of(size);
        let position = self.cells.partition_point(|cell| cell.at < at);
        if self.cells.get(position).is_none_or(|cell| cell.at != at) {
            self.cells.insert(position, Cell { at, count: 0, size: 0.0, time: 0.0 });
        }
        let steepness = self.steepness(size);
        let cell = &mut self.cells[position];
        if self.believing > 0 {
            self.believing -= 1;
            cell.count = cell.count.min(2);
        } else if cell.count > 0 {
            let expected = cell.time + steepness * (size - cell.size);
            // One stalled sample must not look like a slow device, but a device that became slow must be seen in the end.
            let stall = STALL + 0.5 / f64::from(cell.count.min(MEMORY));
            time = time.clamp(expected - 2.0 * stall, expected + stall);
        }
        cell.count = cell.count.saturating_add(1);
        let weight = 1.0 / f64::from(cell.count.min(MEMORY));
        cell.size += weight * (size - cell.size);
        cell.time += weight * (time - cell.time);
        self.refit();
    }

    /// What each unit of the largest size took that was timed, where it is large enough to tell: what it takes to wake up threads, and
    /// the like, is not taken for work.
    pub(super) fn per_unit(&self) -> Option<f64> {
        let last = self.cells.last()?;
        let ns = last.time.exp();
        let is_large = last.size >= LARGE && ns >= MUCH_WORK * self.prior.overhead || ns >= LONG;
        is_large.then(|| ns / last.size.exp())
    }

    /// Guesses otherwise how much each unit adds.
    pub(super) fn guess_per_unit(&mut self, ns: f64) {
        if self.prior.a != ns {
            self.prior.a = ns;
            self.refit();
        }
    }

    /// Makes old timings count little, because the device has changed.
    pub fn forget(&mut self) {
        for cell in &mut self.cells {
            cell.count = cell.count.min(1);
        }
        self.believing = 8;
        self.refit();
    }

    /// Timings taken.
    pub fn samples(&self) -> u64 {
        self.cells.iter().map(|cell| u64::from(cell.count)).sum()
    }

    /// A size like this was timed.
    pub fn has_seen(&self, n: u64) -> bool {
        let at = size_class(n);
        self.cells.binary_search_by_key(&at, |cell| cell.at).is_ok()
    }

    /// Smallest and largest size that was timed.
    pub fn range(&self) -> Option<[u64; 2]> {
        let size = |cell: &Cell| cell.size.exp().round() as u64;
        Some([size(self.cells.first()?), size(self.cells.last()?)])
    }

    /// The fitted parameters.
    pub fn fit(&self) -> Fit {
        self.fit
    }

    /// The time at a size.
    pub fn predict(&self, n: u64) -> Prediction {
        let size = (n.max(1) as f64).ln();
        let (mut weights, mut rests) = (0.0, 0.0);
        let mut nearest = f64::INFINITY;
        for cell in &self.cells {
            let octaves = (cell.size - size).abs() / std::f64::consts::LN_2;
            nearest = nearest.min(octaves);
            let weight = f64::from(cell.count.min(MEMORY)) * (-octaves * octaves).exp();
            weights += weight;
            rests += weight * (cell.time - self.fit.log_time(cell.size));
        }
        // The worse the fit, the less it says beside what was measured nearby.
        let trust = FIT_WEIGHT * (FIRST_SPREAD / self.fit.spread).powi(2).min(1.0);
        let mut time = self.fit.log_time(size) + rests / (weights + trust);
        // Work never gets cheaper with size. It hardly grows faster than its square, and not that fast for long.
        if let (Some(first), Some(last)) = (self.cells.first(), self.cells.last()) {
            if size > last.size {
                let beyond = size - last.size;
                // The further away, the less it says what small work took, and the more what such work takes elsewhere.
                let guess = Fit { a: self.per_unit().unwrap_or(self.prior.a), ..self.prior };
                let trust = (-(beyond / FADES).powi(2)).exp();
                time = trust * time + (1.0 - trust) * guess.log_time(size);
                time = time.clamp(last.time - 0.1, last.time + beyond + beyond.min(STEEP) + 0.1);
            } else if size < first.size {
                time = time.clamp(first.time - 2.0 * (first.size - size) - 0.1, first.time + 0.1);
            }
        }
        // Where a size was timed, how badly the curve fits is no matter.
        let noise = self.fit.spread.min(FIRST_SPREAD) / (weights + FIT_WEIGHT).sqrt();
        let misfit = self.fit.spread * (1.0 - (-2.0 * nearest * nearest).exp()).sqrt();
        let distance = (DOUBT_PER_OCTAVE * (nearest - 0.5).max(0.0)).min(PRIOR_DOUBT);
        let doubt = noise.hypot(misfit).hypot(distance);
        Prediction { ns: time.exp(), low: (time - 2.0 * doubt).exp(), high: (time + 2.0 * doubt).exp() }
    }

    pub(super) fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// Puts stored cells in. They may have been written by anyone; what can't be is refused.
    pub(super) fn restore(&mut self, cells: Vec<Cell>) -> Result<(), String> {
        let sane =
            |cell: &Cell| (0.0..=50.0).contains(&cell.size) && (0.0..=50.0).contains(&cell.time) && cell.count > 0;
        let ordered = cells.windows(2).all(|pair| pair[0].at < pair[1].at && pair[0].size < pair[1].size);
        if cells.len() > 256 || !ordered || !cells.iter().all(sane) {
            return Err("has cells that no measurement gives".to_owned());
        }
        self.cells = cells;
        self.refit();
        Ok(())
    }

    /// Takes in what others have measured: each size is known by whoever measured it more.
    pub(super) fn merge(&mut self, theirs: Vec<Cell>) -> Result<(), String> {
        let mut cells: std::collections::BTreeMap<i32, Cell> = self.cells.iter().map(|cell| (cell.at, *cell)).collect();
        for cell in theirs {
            let known = cells.entry(cell.at).or_insert(cell);
            if cell.count > known.count {
                *known = cell;
            }
        }
        self.restore(cells.into_values().collect())
    }

    /// Slope of log time over log size.
    fn steepness(&self, size: f64) -> f64 {
        (self.fit.log_time(size + 0.1) - self.fit.log_time(size - 0.1)) / 0.2
    }

    /// Overhead and factor by least squares of relative errors, for every exponent of a grid where the data can tell.
    fn refit(&mut self) {
        let Some(last) = self.cells.last().map(|cell| cell.size.exp()) else {
            self.fit = self.prior;
            return;
        };
        let (error, mut best) = self.fit_with(1.0);
        // Most work is linear. Another exponent must be better by more than chance, and where overhead is most of what was
        // seen, nothing is known about it at all.
        let mut least = 0.8 * error;
        if !self.linear && self.cells.len() >= 4 && best.a * last > 8.0 * best.overhead {
            for b in (4..=20).filter(|step| *step != 10).map(|step| f64::from(step) * 0.1) {
                let (error, fit) = self.fit_with(b);
                if error < least {
                    (least, best) = (error, fit);
                }
            }
        }
        let (mut squares, mut count) = (0.0, 0.0);
        for cell in &self.cells {
            let weight = f64::from(cell.count.min(MEMORY));
            count += weight;
            squares += weight * (cell.time - best.log_time(cell.size)).powi(2);
        }
        // The first few timings say little about their own noise.
        best.spread = ((squares + 4.0 * FIRST_SPREAD * FIRST_SPREAD) / (count + 1.0)).sqrt().max(0.01);
        self.fit = best;
    }

    /// The sum of squares and the fit for one exponent.
    fn fit_with(&self, b: f64) -> (f64, Fit) {
        let scale = self.cells.last().map_or(0.0, |cell| cell.size);
        let (mut oo, mut oa, mut aa, mut o1, mut a1, mut weights) = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
        for cell in &self.cells {
            let weight = f64::from(cell.count.min(MEMORY));
            let inverse = (-cell.time).exp();
            let power = (b * (cell.size - scale)).exp() * inverse;
            oo += weight * inverse * inverse;
            oa += weight * inverse * power;
            aa += weight * power * power;
            o1 += weight * inverse;
            a1 += weight * power;
            weights += weight;
        }
        let determinant = oo * aa - oa * oa;
        let mut a = if determinant > 1e-9 * oo * aa { (oo * a1 - oa * o1) / determinant } else { 0.0 };
        if b == 1.0 {
            // Small work says little about large work: within what the timings allow, the guess stands.
            let doubt =
                if determinant > 1e-9 * oo * aa { FIRST_SPREAD * (oo / determinant).sqrt() } else { f64::INFINITY };
            let guess = self.prior.a * scale.exp();
            a = guess.clamp(a - doubt, a + doubt);
        }
        // Neither part is negative, and the larger part alone explains the time where the other would be.
        a = a.clamp(0.0, a1 / aa);
        let overhead = ((o1 - a * oa) / oo).max(0.0);
        let error =
            weights - 2.0 * (overhead * o1 + a * a1) + overhead * overhead * oo + 2.0 * overhead * a * oa + a * a * aa;
        (error.max(0.0) + 1e-12, Fit { overhead, a: a * (-b * scale).exp(), b, spread: 0.0 })
    }
}

impl Fit {
    fn log_time(&self, size: f64) -> f64 {
        (self.overhead + self.a * (self.b * size).exp()).max(1e-3).ln()
    }
}

/// Sizes that are known together: half an octave.
pub(super) fn size_class(n: u64) -> i32 {
    cell_of((n.max(1) as f64).ln())
}

fn cell_of(size: f64) -> i32 {
    (2.0 * size / std::f64::consts::LN_2).round() as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_finds_overhead_and_slope() {
        let mut curve = Curve::guessed(1_000.0, 0.01);
        assert_eq!(curve.samples(), 0);
        let truth = |n: u64| 20_000.0 + 0.5 * n as f64;
        for bits in [0, 4, 8, 12, 16, 18, 20] {
            curve.observe(1 << bits, truth(1 << bits) as u64);
        }
        for n in [1, 1_000, 50_000, 1 << 20] {
            let prediction = curve.predict(n);
            assert!((prediction.ns / truth(n) - 1.0).abs() < 0.1, "{n}: {prediction:?} against {}", truth(n));
            assert!(prediction.low < truth(n) && truth(n) < prediction.high);
        }
        let far = curve.predict(1 << 26);
        assert!((far.ns / truth(1 << 26) - 1.0).abs() < 0.2);
        assert!(far.high / far.low > 3.0, "far away the bounds are wide");
        assert!((curve.fit().b - 1.0).abs() < 0.05);
    }

    #[test]
    fn a_stall_moves_little_and_a_lasting_change_all() {
        let mut curve = Curve::guessed(1_000.0, 0.01);
        for _ in 0..10 {
            curve.observe(1000, 1_000);
        }
        curve.observe(1000, 100_000);
        assert!(curve.predict(1000).ns < 1_100.0);
        for _ in 0..2_000 {
            curve.observe(1000, 100_000);
        }
        assert!(curve.predict(1000).ns > 90_000.0);
    }

    #[test]
    fn stored_nonsense_is_refused() {
        let cell = |at, size, time| Cell { at, count: 1, size, time };
        let restore = |cells: &[Cell]| Curve::guessed(1_000.0, 0.01).restore(cells.to_vec());
        assert!(restore(&[cell(1, 1.0, 5.0), cell(2, 2.0, 6.0)]).is_ok());
        assert!(restore(&[cell(1, f64::NAN, 5.0)]).is_err());
        assert!(restore(&[cell(1, 1.0, 1e9)]).is_err());
        assert!(restore(&[cell(2, 1.0, 5.0), cell(1, 2.0, 5.0)]).is_err());
    }
}
