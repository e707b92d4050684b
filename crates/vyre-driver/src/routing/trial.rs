use std::ops::Range;

/// So many dispatches of an unknown op are its first.
const FIRST: usize = 20;
/// Passes over all sizes until an op should be known, and passes that show that.
const LEARNING: usize = 6;
const SHOWING: usize = 2;

/// A trial of a router on an op that it has not met: dispatches of all sizes in passes, each in random order, charged with what they take by
/// an oracle, beside what the oracle's own choices do.
///
/// ```
/// use vyre_driver::routing::Trial;
/// let mut trial = Trial::new(3, || 0);
/// for dispatch in 0..trial.order().len() {
///     trial.begin(dispatch, |_, dispatches| 2.0 * dispatches as f64);
///     trial.charge(dispatch, if trial.is_learnt(dispatch) { 2.0 } else { 3.0 });
/// }
/// let totals = trial.totals();
/// assert_eq!((totals.first.ratio(), totals.learnt.ratio()), (1.5, 1.0));
/// ```
#[derive(Clone, Debug)]
pub struct Trial {
    order: Vec<usize>,
    /// Where the passes begin that show what was learnt.
    steady: usize,
    totals: Totals,
}

/// What the dispatches of a trial took, in nanoseconds: its first, those after learning, and all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    /// The first twenty.
    pub first: Taken,
    /// Those of the last passes.
    pub learnt: Taken,
    /// All of them.
    pub all: Taken,
}

/// What the router's choices took, and what the oracle's do from where the data was at the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Taken {
    /// Of the router.
    pub chosen_ns: f64,
    /// Of the oracle.
    pub best_ns: f64,
}

impl Taken {
    /// How many times as long as the oracle's the router's choices took.
    pub fn ratio(&self) -> f64 {
        if self.best_ns > 0.0 { self.chosen_ns / self.best_ns } else { 1.0 }
    }
}

impl Totals {
    /// Adds what other dispatches took.
    pub fn add(&mut self, other: &Totals) {
        for (sum, more) in self.each_mut().into_iter().zip([other.first, other.learnt, other.all]) {
            sum.chosen_ns += more.chosen_ns;
            sum.best_ns += more.best_ns;
        }
    }

    /// The ratios of the first, the learnt and all.
    pub fn ratios(&self) -> [f64; 3] {
        [self.first, self.learnt, self.all].map(|taken| taken.ratio())
    }

    fn each_mut(&mut self) -> [&mut Taken; 3] {
        [&mut self.first, &mut self.learnt, &mut self.all]
    }
}

impl Trial {
    /// A trial over so many sizes, in an order that `random` gives by any numbers.
    pub fn new(sizes: usize, mut random: impl FnMut() -> u64) -> Trial {
        let steady = (FIRST + LEARNING * sizes).div_ceil(sizes.max(1)) * sizes;
        let mut order: Vec<usize> = Vec::new();
        while order.len() < steady + SHOWING * sizes {
            let mut pass: Vec<usize> = (0..sizes).collect();
            (1..pass.len()).rev().for_each(|at| pass.swap(at, (random() % (at as u64 + 1)) as usize));
            order.extend(pass);
        }
        Trial { order, steady, totals: Totals::default() }
    }

    /// The size of each dispatch, by its number.
    pub fn order(&self) -> &[usize] {
        &self.order
    }

    /// By this dispatch the router should know the op.
    pub fn is_learnt(&self, dispatch: usize) -> bool {
        dispatch >= self.steady
    }

    /// Where a count begins with this dispatch, takes in what the oracle's choices take: `best` says it of so many dispatches of a size, from
    /// where its data is now.
    pub fn begin(&mut self, dispatch: usize, best: impl Fn(usize, usize) -> f64) {
        let sizes = self.order.iter().max().map_or(0, |largest| largest + 1);
        for (range, taken) in self.ranges().into_iter().zip(self.totals.each_mut()) {
            if dispatch == range.start {
                let count = |size: usize| self.order[range.clone()].iter().filter(|&&other| other == size).count();
                let counts = (0..sizes).map(|size| (size, count(size))).filter(|(_, count)| *count > 0);
                taken.best_ns = counts.map(|(size, count)| best(size, count)).filter(|ns| ns.is_finite()).sum();
            }
        }
    }

    /// Takes in what the router's choice took.
    pub fn charge(&mut self, dispatch: usize, ns: f64) {
        for (range, taken) in self.ranges().into_iter().zip(self.totals.each_mut()) {
            taken.chosen_ns += if range.contains(&dispatch) { ns } else { 0.0 };
        }
    }

    /// What all dispatches so far took.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    fn ranges(&self) -> [Range<usize>; 3] {
        let end = self.order.len();
        [0..FIRST.min(end), self.steady..end, 0..end]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pass_has_every_size() {
        let mut next = 3u64;
        let mut trial = || {
            Trial::new(7, || {
                next = next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                next >> 33
            })
        };
        let one = trial();
        assert_eq!(one.order.len() - one.steady, SHOWING * 7);
        assert!(one.order.chunks(7).all(|pass| pass.iter().sum::<usize>() == 21));
        assert!(one.order != trial().order);
    }

    #[test]
    fn the_oracle_begins_where_the_data_is_by_then() {
        let mut trial = Trial::new(2, || 0);
        let last = trial.order.len() - 1;
        for dispatch in 0..=last {
            // What was moved in the first dispatch is there in the last.
            let moves = if dispatch == 0 { 100.0 } else { 0.0 };
            trial.begin(dispatch, |_, dispatches| dispatches as f64 + moves);
            trial.charge(dispatch, if dispatch == last { 5.0 } else { 1.0 });
        }
        let Totals { first, learnt, all } = trial.totals();
        assert_eq!((first.chosen_ns, first.best_ns), (20.0, 220.0));
        assert_eq!((learnt.chosen_ns, learnt.best_ns), (8.0, 4.0));
        assert_eq!((all.chosen_ns, all.best_ns), (last as f64 + 5.0, last as f64 + 201.0));
    }
}
