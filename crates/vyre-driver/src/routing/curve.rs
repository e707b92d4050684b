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
    /// Cells with nothing but timings of what is not quite the same.
    soft: Vec<i32>,
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
    /// The mean of all that it may be: more than the most likely time, the more so the less is known.
    pub(super) fn mean(&self) -> f64 {
        let doubt = self.doubt();
        self.ns * (0.5 * doubt * doubt).exp()
    }

    /// The same, known no better than to this deviation of its logarithm.
    pub(super) fn with_doubt(&self, least: f64) -> Prediction {
        let doubt = self.doubt().max(least);
        Prediction { ns: self.ns, low: self.ns * (-2.0 * doubt).exp(), high: self.ns * (2.0 * doubt).exp() }
    }

    /// What two opinions of the same say together.
    pub(super) fn and(&self, other: &Prediction) -> Prediction {
        let [mine, theirs] = [self, other].map(|one| one.doubt().max(1e-3).powi(-2));
        let log = (mine * self.ns.ln() + theirs * other.ns.ln()) / (mine + theirs);
        let doubt = (mine + theirs).powf(-0.5);
        Prediction { ns: log.exp(), low: (log - 2.0 * doubt).exp(), high: (log + 2.0 * doubt).exp() }
    }

    /// What it may well be, where little is known, with so much hope.
    pub(super) fn hopeful(&self, hope: f64) -> f64 {
        self.ns * (hope * (KNOWN - self.doubt()).min(0.0)).exp()
    }

    /// How much less than this time it is, as a mean over all that it may be, where more counts as no less.
    pub(super) fn gain(&self, ns: f64) -> f64 {
        let doubt = self.doubt();
        if doubt < 1e-6 {
            return (ns - self.ns).max(0.0);
        }
        let far = (ns / self.ns).ln() / doubt;
        (ns * share_below(far) - self.mean() * share_below(far - doubt)).max(0.0)
    }

    /// How much more than this time it is, in the same way.
    pub(super) fn regret(&self, ns: f64) -> f64 {
        (self.mean() - ns + self.gain(ns)).max(0.0)
    }

    /// The deviation of its logarithm: the bounds are two of them away.
    fn doubt(&self) -> f64 {
        (0.25 * (self.high / self.low).ln()).max(0.0)
    }
}

/// What is known to this deviation of its logarithm is known well enough.
const KNOWN: f64 = 0.1;

/// The share of a normal distribution that is below so many deviations, to three digits.
fn share_below(deviations: f64) -> f64 {
    1.0 / (1.0 + (-1.5976 * deviations - 0.070_566 * deviations.powi(3)).exp())
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
/// So many timings of the smallest work its guess counts for.
const GUESS_WEIGHT: f64 = 0.1;
/// Work of up to this size is small, as a logarithm.
const SMALL: f64 = 10.0 * std::f64::consts::LN_2;
/// So many timings nearby say as much as a fit that goes through all of them.
const FIT_WEIGHT: f64 = 0.2;
/// What a single timing may be off before anything is known about the noise.
const FIRST_SPREAD: f64 = 0.05;
/// What is added to the doubt for each octave away from the nearest measurement.
const DOUBT_PER_OCTAVE: f64 = 0.13;
const LINEAR_DOUBT_PER_OCTAVE: f64 = 0.15;
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

/// What later dispatches take of the time of the first one.
const COLD: f64 = 0.7;
/// A timing is a surprise that is so many times as long as what was hardly expected.
const SURPRISE: f64 = 1.5;
/// How far timings are off that are not quite of the same, as the deviation of a logarithm.
const SOFT_DOUBT: f64 = 0.35;

/// What a guess made before the first measurement is off, as the deviation of a logarithm, and one of how long data takes to move.
const PRIOR_DOUBT: f64 = 1.0;
const LINEAR_PRIOR_DOUBT: f64 = 0.6;

impl Curve {
    /// A curve of which it is only guessed that it is `overhead + per_unit·n`.
    pub fn guessed(overhead: f64, per_unit: f64) -> Self {
        let prior = Fit { overhead, a: per_unit, b: 1.0, spread: FIRST_SPREAD };
        Curve { cells: Vec::new(), prior, linear: false, soft: Vec::new(), believing: 0, fit: prior }
    }

    /// As [`Curve::guessed`], for what is known to grow with n and no other power of it.
    pub fn linear(overhead: f64, per_unit: f64) -> Self {
        Curve { linear: true, ..Curve::guessed(overhead, per_unit) }
    }

    /// Takes a timing in. One that is the only one of its size, and far above what was expected, may be a stall: it counts as such until
    /// there is another.
    pub fn observe(&mut self, n: u64, ns: u64) {
        if !self.has_seen(n) && self.believing == 0 {
            let expected = self.predict(n);
            let seen = ns as f64;
            if seen > SURPRISE * expected.high {
                let seen = Prediction { ns: seen, low: seen, high: seen }.with_doubt(SOFT_DOUBT);
                self.put(n, seen.and(&expected).ns as u64);
                self.soft.push(size_class(n));
                return;
            }
        }
        self.put(n, ns);
    }

    fn put(&mut self, n: u64, ns: u64) {
        let (size, mut time) = ((n.max(1) as f64).ln(), (ns.max(1) as f64).ln());
        let at = cell_of(size);
        let position = self.cells.partition_point(|cell| cell.at < at);
        if self.cells.get(position).is_none_or(|cell| cell.at != at) {
            self.cells.insert(position, Cell { at, count: 0, size: 0.0, time: 0.0 });
        }
        let steepness = self.steepness(size);
        let cell = &mut self.cells[position];
        if let Some(which) = self.soft.iter().position(|&soft| soft == at) {
            self.soft.swap_remove(which);
            cell.count = 0;
        }
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

    /// Takes in the first timing of a size, which says how long it takes at most, and not much less, until there is a better one.
    pub(super) fn observe_cold(&mut self, n: u64, ns: u64) {
        if !self.has_seen(n) {
            let ns = COLD * ns as f64;
            let seen = Prediction { ns, low: ns, high: ns }.with_doubt(SOFT_DOUBT);
            self.observe_soft(n, seen.and(&self.predict(n)).ns as u64);
        }
    }

    /// Takes in a timing of something that is not quite what the curve is of. It counts until there is one that is.
    pub(super) fn observe_soft(&mut self, n: u64, ns: u64) {
        let at = size_class(n);
        let is_soft = self.soft.contains(&at);
        if is_soft || !self.has_seen(n) {
            self.soft.retain(|&soft| soft != at);
            self.put(n, ns);
            self.soft.push(at);
        }
    }

    /// What each unit of the largest size took that was timed, where it is large enough to tell: what it takes to wake up threads, and
    /// the like, is not taken for work.
    pub(super) fn per_unit(&self) -> Option<f64> {
        let last = self.cells.last()?;
        let ns = last.time.exp();
        let is_large = last.size >= LARGE && ns >= MUCH_WORK * self.prior.overhead && ns >= 0.3 * LONG || ns >= LONG;
        is_large.then(|| ns / last.size.exp())
    }

    /// What each unit of the largest size took besides what the smallest is guessed to take, where it took far longer.
    pub(super) fn pace(&self) -> Option<f64> {
        const FAR_LONGER: f64 = 3.0;
        let last = self.cells.last()?;
        let ns = last.time.exp();
        let is_large = last.size >= LARGE && ns >= FAR_LONGER * self.prior.overhead;
        is_large.then(|| (ns - self.prior.overhead) / last.size.exp())
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

    /// How often a size like this was timed.
    pub(super) fn seen(&self, n: u64) -> u32 {
        let at = size_class(n);
        self.cells.binary_search_by_key(&at, |cell| cell.at).map_or(0, |which| self.cells[which].count)
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
                let each = self.per_unit().unwrap_or(self.prior.a);
                // More data at once moves faster, not slower.
                let each = if self.linear { each.min(self.prior.a) } else { each };
                let guess = Fit { a: each, ..self.prior };
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
        let (per_octave, most) = match self.linear {
            true => (LINEAR_DOUBT_PER_OCTAVE, LINEAR_PRIOR_DOUBT),
            false => (DOUBT_PER_OCTAVE, PRIOR_DOUBT),
        };
        let distance = (per_octave * (nearest - 0.5).max(0.0)).min(most);
        let soft = if self.soft.contains(&cell_of(size)) { SOFT_DOUBT } else { 0.0 };
        let doubt = noise.hypot(misfit).hypot(distance).hypot(soft);
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
        // Where no small work was timed, what it takes is guessed well enough that what larger work takes is not taken for it.
        let is_unseen = self.cells.first().is_some_and(|first| first.size > SMALL);
        let smallest = is_unseen.then(|| (GUESS_WEIGHT, 0.0, self.prior.overhead.max(1.0).ln()));
        let cells = self.cells.iter().map(|cell| (f64::from(cell.count.min(MEMORY)), cell.size, cell.time));
        for (weight, size, time) in cells.chain(smallest) {
            let inverse = (-time).exp();
            let power = (b * (size - scale)).exp() * inverse;
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
        // A single timing so far above the guess may be a stall.
        for bits in [0, 0, 4, 4, 8, 8, 12, 12, 16, 16, 18, 18, 20, 20] {
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
