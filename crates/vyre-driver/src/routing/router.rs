use std::collections::BTreeMap;
use std::fmt;

use smallvec::SmallVec;
use vyre_spec::{Diagnostic, codes};

use super::curve::{Curve, Prediction, size_class};
use super::effort::Effort;
use crate::backend::DeviceKind;

/// Chooses the backend for each dispatch from what was measured for the op at sizes like this one.
///
/// It has no clock and runs nothing: [`Router::choose`] says which backend to use, [`Router::observe`] takes in how long that
/// took. What is not measured yet is guessed from the kind of the device ([`Prior`]) and the look of the program ([`Effort`]); among equals the backend that is listed
/// first is preferred. Data that stays where it is moved to is moved when what it would have saved there pays for the move, and not
/// for less than a few percent. What is tried beyond the best known choice is paid from a budget: at most one percent of the time spent
/// on the op, so that large work is not handed to a backend whose small work has not been seen.
///
/// ```
/// use vyre_driver::backend::DeviceKind;
/// use vyre_driver::routing::{Load, Prior, Router, Timing};
/// let mut router = Router::new([("gpu", Prior::of(DeviceKind::Discrete)), ("cpu", Prior::of(DeviceKind::Cpu))]);
/// for n in [1, 1_000, 1_000_000] {
///     router.observe("sum", "gpu", n, Timing { compute_ns: 10_000 + n / 100, ..Timing::default() });
///     router.observe("sum", "cpu", n, Timing { compute_ns: 100 + n, ..Timing::default() });
///     router.observe_move("gpu", Timing { moved_bytes: 4 * n, move_ns: 10_000 + n / 10, ..Timing::default() });
/// }
/// assert_eq!(router.choose("sum", &Load::on_host(100, 400))?.backend, "cpu");
/// assert_eq!(router.choose("sum", &Load::on_host(1_000_000, 4_000_000))?.backend, "gpu");
/// println!("{}", router.explain("sum", &Load::on_host(100, 400)));
/// # Ok::<(), vyre_spec::Diagnostic>(())
/// ```
#[derive(Clone, Debug)]
pub struct Router {
    backends: Vec<Backend>,
    ops: BTreeMap<String, Op>,
    requests: Vec<Recertify>,
}

/// What is guessed of a backend before it was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prior {
    /// Time of the smallest dispatch.
    pub overhead_ns: f64,
    /// Time that each item of work adds, where it is an ordinary one.
    pub ns_per_item: f64,
    /// Time that each atomic operation adds.
    pub ns_per_atomic: f64,
    /// Time that each byte adds that work goes through, where that takes longer than what it does with it.
    pub ns_per_touched: f64,
    /// Time of the smallest move of data to the device.
    pub move_overhead_ns: f64,
    /// Time that each byte to be moved adds, ...
    pub ns_per_byte: f64,
    /// ... and each that lies in a caller's own memory, which takes longer: the device can't reach that by itself.
    pub ns_per_lent_byte: f64,
    /// It works on the host's memory, so that data on the host is already there.
    pub on_host: bool,
}

impl Prior {
    /// The guess for a kind of device: the more it is made for large work, the more the smallest costs.
    pub fn of(kind: DeviceKind) -> Self {
        let [overhead_ns, ns_per_item, ns_per_atomic, ns_per_touched, move_overhead_ns, ns_per_byte, ns_per_lent_byte] =
            match kind {
                DeviceKind::Cpu => [2_000.0, 0.5, 0.05, 0.05, 100.0, 0.1, 0.1],
                DeviceKind::Discrete => [20_000.0, 0.0025, 0.2, 0.001, 10_000.0, 0.03, 0.09],
                DeviceKind::Integrated => [20_000.0, 0.05, 0.5, 0.03, 2_000.0, 0.1, 0.1],
                DeviceKind::Software => [50_000.0, 2.0, 0.2, 0.1, 2_000.0, 0.1, 0.1],
                DeviceKind::Other => [20_000.0, 0.5, 0.2, 0.05, 2_000.0, 0.1, 0.1],
            };
        let on_host = kind == DeviceKind::Cpu;
        Prior {
            overhead_ns,
            ns_per_item,
            ns_per_atomic,
            ns_per_touched,
            move_overhead_ns,
            ns_per_byte,
            ns_per_lent_byte,
            on_host,
        }
    }

    /// The guess for a processor with so many cores.
    pub fn of_cores(cores: usize) -> Self {
        let one = Prior::of(DeviceKind::Cpu);
        // What was guessed without knowing them is about what two do. Memory does not get faster with more than a dozen.
        let share = 2.0 / cores.max(1) as f64;
        Prior {
            ns_per_item: share * one.ns_per_item,
            ns_per_touched: share.max(2.0 / 12.0) * one.ns_per_touched,
            ..one
        }
    }

    /// Time that each item of an op adds, by the look of it: what it does, or going through its data where that takes longer.
    fn each(&self, effort: Effort) -> f64 {
        if effort.operations == 0.0 {
            return self.ns_per_item;
        }
        let weight = (effort.operations / ORDINARY).min(HEAVIEST);
        let touched = effort.bytes * self.ns_per_touched;
        (weight * self.ns_per_item).max(touched) + effort.atomics * self.ns_per_atomic
    }

    fn moves(&self) -> Curve {
        Curve::linear(self.move_overhead_ns, self.ns_per_byte)
    }

    fn loans(&self) -> Curve {
        Curve::linear(self.move_overhead_ns, self.ns_per_lent_byte)
    }

    /// Work on data of the host, of which there are two words for each item of work.
    fn round_trip(&self) -> Curve {
        let moves = if self.on_host { 0.0 } else { 2.0 * self.move_overhead_ns };
        Curve::guessed(self.overhead_ns + moves, self.ns_per_item + self.ns_moved_per_item())
    }

    fn ns_moved_per_item(&self) -> f64 {
        if self.on_host { 0.0 } else { 8.0 * self.ns_per_lent_byte }
    }
}

/// What a dispatch does, and where what it needs is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Load<'a> {
    /// How much there is to do: invocations, or a quarter of the words that it works on where these are more.
    pub n: u64,
    /// Bytes that it needs.
    pub bytes_in: u64,
    /// Of these, what is on the host.
    pub on_host: u64,
    /// Of these, what backends have in memory of their own.
    pub on: Vec<(&'a str, u64)>,
    /// Bytes of results that the host waits for.
    pub bytes_back: u64,
    /// Data stays where it is moved to, and so is there for dispatches to come.
    pub stays: bool,
    /// For how many dispatches this is asked, where it is not asked for each.
    pub dispatches: u64,
    /// What each item does, by the look of it; nothing where that is not known.
    pub effort: Effort,
    /// Backends that it can't go to now, such as those that are not open yet. What having the data there would have saved is counted all the
    /// same, so that it is moved at once when it has paid for that by then.
    pub shut: Vec<&'a str>,
}

impl<'a> Load<'a> {
    /// A dispatch of size `n` on so many bytes, which lie on the host.
    pub fn on_host(n: u64, bytes: u64) -> Self {
        Load { n, bytes_in: bytes, on_host: bytes, dispatches: 1, ..Load::default() }
    }

    /// A dispatch of size `n` on so many bytes, which a backend has.
    pub fn on(n: u64, bytes: u64, backend: &'a str) -> Self {
        Load { on_host: 0, on: vec![(backend, bytes)], ..Load::on_host(n, bytes) }
    }

    /// Its data comes from the host and goes back there.
    fn is_round_trip(&self) -> bool {
        !self.stays && self.on_host == self.bytes_in
    }

    fn may_go_to(&self, backend: &Backend) -> bool {
        !self.shut.contains(&backend.id.as_str())
    }
}

/// Where a dispatch goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice<'a> {
    /// The backend's id.
    pub backend: &'a str,
    /// It is not thought to be the fastest, but too little is known to be sure.
    pub explores: bool,
    /// The time of this dispatch should be observed. Where all is known, only some are.
    pub timed: bool,
}

/// How long a dispatch took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// Time of the work itself.
    pub compute_ns: u64,
    /// Bytes that had to be moved to the backend first.
    pub moved_bytes: u64,
    /// Time of moving them.
    pub move_ns: u64,
}

/// A wish of the router: live timings have left the stored band, so the op should be measured anew in the background.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recertify {
    /// The op.
    pub op: String,
    /// The backend whose timings have changed.
    pub backend: String,
    /// What was seen, for people.
    pub reason: String,
}

/// Where one backend becomes faster than another as size grows, for data that is where it is needed.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Crossover {
    /// From this size on.
    pub n: u64,
    /// The faster one below.
    pub below: String,
    /// The faster one above.
    pub above: String,
    /// Between these sizes the bounds of the two overlap, so that either may be faster.
    pub unsure: [u64; 2],
}

/// What the router thinks of one backend for a dispatch.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteOption {
    /// The backend's id.
    pub backend: String,
    /// Predicted time with bounds, with the move where one is needed; a guess when it was never measured.
    pub predicted: Prediction,
    /// Part of the predicted time that moves data.
    pub move_ns: f64,
    /// Timings that the prediction rests on.
    pub samples: u64,
    /// How far predictions for sizes that had not been timed were off, relatively and on average; `None` before there were any.
    pub unseen_error: Option<f64>,
    /// Why it is out, if so.
    pub out: Option<String>,
}

/// Why a dispatch goes where it goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The op.
    pub op: String,
    /// The size.
    pub n: u64,
    /// The best backend as far as is known; `None` when all are out.
    pub chosen: Option<String>,
    /// All backends, fastest first, those that are out last.
    pub options: Vec<RouteOption>,
    /// Where the choice changes with size.
    pub crossovers: Vec<Crossover>,
}

#[derive(Clone, Debug)]
struct Backend {
    id: String,
    /// The device that its curves were measured on, where it is known.
    device: Option<String>,
    prior: Prior,
    /// Moving data that stays is the same for all ops, and so is bringing what lies in a caller's own memory, which takes longer: the device can't
    /// reach that by itself.
    moves: Curve,
    loans: Curve,
    lost: Option<String>,
    paces: Paces,
}

/// How many times as long as guessed large work of all ops takes on a backend, as logarithms: what one of them shows of a device holds for
/// the others.
#[derive(Clone, Copy, Debug, Default)]
struct Paces {
    sum: f64,
    count: u32,
}

#[derive(Clone, Debug)]
struct Op {
    /// By backend.
    lanes: Vec<Lane>,
    /// What each item does, by the look of it at the largest size that was met.
    effort: Effort,
    looked_at: u64,
    dispatches: u64,
    spent_ns: f64,
    /// Of that, what the first dispatches took.
    early_ns: f64,
    explored_ns: f64,
    /// Dispatches by class of size.
    seen: BTreeMap<i32, u64>,
    /// By class of size, because data of different sizes is different data.
    staying: BTreeMap<i32, Staying>,
}

/// Where a dispatch goes whose data stays, before anything is tried.
struct Stay {
    chosen: (usize, Prediction),
    /// What it saves there pays for the move.
    has_paid: bool,
    last: Option<usize>,
    uses: u64,
    lost: i32,
}

/// Dispatches whose data stays where it was moved to.
#[derive(Clone, Debug)]
struct Staying {
    /// Where the latest went.
    last: Option<usize>,
    /// How often the data was used since it was last moved.
    uses: u64,
    /// How many moves one after another were for nothing: the next dispatch had other data, or the host had changed it.
    lost: i32,
}

#[derive(Clone, Debug)]
struct Lane {
    /// The work alone, with its data there.
    curve: Curve,
    /// All of it, as who waits for it sees it, with data of the host that is brought there and results that are brought back.
    round_trip: Curve,
    /// How far predictions for sizes that had not been timed were off, as logarithms, and how many there were.
    unseen: (f64, u32),
    /// What it adds to the paces of its backend.
    pace: Option<f64>,
    /// By class of size: how many dispatches of it there had been when the latest was timed here.
    timed_at: BTreeMap<i32, u64>,
    out: Option<String>,
    /// Running mean of how far live timings lie from the prediction.
    drift: f64,
    drifted: bool,
    /// It has drifted since it was read from a file.
    replaced: bool,
}

/// Share of the time spent on an op that may go into trying backends that are not the best known.
const BUDGET: f64 = 0.01;
/// The same of the time of its first dispatches, and how many these are: what is learnt early pays for longest.
const EARLY_BUDGET: f64 = 0.35;
const EARLY: u64 = 6;
/// So many more dispatches of a size are reckoned with, at least.
const AT_LEAST: u64 = 10;
/// A try that costs no more than this share of the time spent on an op is made wherever it may teach anything.
const CHEAP: f64 = 0.002;
/// A live timing is wanted of one in so many dispatches when nothing is in doubt.
const SPARSE: u64 = 16;
/// The sentinel raises its hand when timings are off by more than this on average, and lowers it below half of that.
const DRIFT: f64 = 0.2;
/// Data that stays is not moved for less than this share of the time.
const HYSTERESIS: f64 = 0.05;
/// Data that was used before is expected to be used so many times as often again: who waits until a move would have paid for itself has less
/// left to gain by it.
const AGAIN: f64 = 3.0;
/// After each move that was for nothing, so many times as many uses have to speak for the next.
const LOST: f64 = 4.0;
const MOST_LOST: i32 = 10;
/// So often data is used before a move that may well be quick is taken for less so.
const HOPEFUL: f64 = 3.0;
/// So many timings of sizes that had not been seen are enough to say how far predictions are off; more count as so many.
const FEW_UNSEEN: u32 = 3;
const MOST_UNSEEN: u32 = 8;
/// So many operations are an ordinary item, and how much more one may look.
const ORDINARY: f64 = 100.0;
const HEAVIEST: f64 = 100.0;
/// Items of an op are between a hundredth and a hundred times as much as usual, as a logarithm.
const MOST_WEIGHT: f64 = 4.6;
/// The first dispatch of a size takes up to so many times as long as those after it, as the inverse.
const COLD: f64 = 0.5;
/// The first dispatch of a size tells how long others take where it took longer than warming up does.
const LONG_COLD: u64 = 2_000_000;
/// What may have changed since a timing, as the deviation of a logarithm: so much times the root of the dispatches since then, ...
const AGES: f64 = 0.0125;
/// ... and at most so much.
const AGED: f64 = 0.5;
/// How far a single timing may be off, and the sum of the parts of one, as the deviation of a logarithm.
const SINGLE: f64 = 0.15;
const OF_PARTS: f64 = 0.2;
/// A prediction whose bounds lie closer than this is not worth another sample.
const ENOUGH: f64 = 0.02;
/// A prediction whose bounds lie further apart than this is.
const DOUBTFUL: f64 = 0.1;

impl Router {
    /// A router over backends in order of preference.
    pub fn new<S: Into<String>>(backends: impl IntoIterator<Item = (S, Prior)>) -> Self {
        let backend = |(id, prior): (S, Prior)| Backend {
            id: id.into(),
            device: None,
            prior,
            moves: prior.moves(),
            loans: prior.loans(),
            lost: None,
            paces: Paces::default(),
        };
        Router { backends: backends.into_iter().map(backend).collect(), ops: BTreeMap::new(), requests: Vec::new() }
    }

    /// Guesses otherwise of a backend, when its device turns out to be of another kind than was thought.
    pub fn set_prior(&mut self, backend: &str, prior: Prior) {
        let Some(index) = self.index(backend) else { return };
        let backend = &mut self.backends[index];
        (backend.moves, backend.loans) = (prior.moves(), prior.loans());
        backend.prior = prior;
    }

    /// Says which device a backend has. What was measured on another one is forgotten: then the answer is true.
    pub fn set_device(&mut self, backend: &str, device: &str) -> bool {
        let Some(index) = self.index(backend) else { return false };
        let changed = self.backends[index].device.as_deref().is_some_and(|known| known != device);
        self.backends[index].device = Some(device.to_owned());
        if changed {
            self.backends[index].paces = Paces::default();
            let new = self.new_op().lanes.swap_remove(index);
            for op in self.ops.values_mut() {
                op.lanes[index] = Lane { replaced: true, out: op.lanes[index].out.take(), ..new.clone() };
            }
            let prior = self.backends[index].prior;
            (self.backends[index].moves, self.backends[index].loans) = (prior.moves(), prior.loans());
        }
        changed
    }

    pub(super) fn device(&self, backend: &str) -> Option<&str> {
        self.backends[self.index(backend)?].device.as_deref()
    }

    /// Anything was timed of an op, at whatever size.
    pub fn knows(&self, op: &str) -> bool {
        self.ops.get(op).is_some_and(|op| op.lanes.iter().any(|lane| lane.curve.samples() > 0))
    }

    /// The ids of the backends.
    pub fn backends(&self) -> impl Iterator<Item = &str> {
        self.backends.iter().map(|backend| backend.id.as_str())
    }

    /// The backend for a dispatch. An error says why every backend is out.
    pub fn choose(&mut self, op: &str, load: &Load<'_>) -> Result<Choice<'_>, Diagnostic> {
        self.look_at(op, load);
        let state = &self.ops[op];
        let able: SmallVec<[(usize, Prediction); 4]> = (0..self.backends.len())
            .filter(|&index| self.out(state, index).is_none())
            .map(|index| (index, self.predict(state, index, load)))
            .collect();
        // `min_by` keeps the first of equals.
        let is_open = |(index, _): &&(usize, Prediction)| load.may_go_to(&self.backends[*index]);
        let Some(&fastest) = able.iter().filter(is_open).min_by(|a, b| a.1.mean().total_cmp(&b.1.mean())) else {
            return Err(self.no_route(op, state));
        };
        let dispatches = load.dispatches.max(1);
        let class = size_class(load.n);
        let stay = load.stays.then(|| self.stay(state, class, &able, fastest, load));
        let (first, expected) = stay.as_ref().map_or(fastest, |stay| stay.chosen);
        let has_paid = stay.as_ref().is_some_and(|stay| stay.has_paid);
        let seen = state.seen.get(&class).copied().unwrap_or(0);
        // What was not tried early is not made up for later.
        let early = if seen < EARLY { EARLY_BUDGET * state.early_ns } else { 0.0 };
        let budget = early + BUDGET * state.spent_ns - state.explored_ns;
        let to_come = seen.max(AT_LEAST) as f64;
        let mut doubtful = expected.high / expected.low > 1.0 + DOUBTFUL;
        let (mut chosen, mut gain, mut cost) = (first, 0.0, 0.0);
        for &(index, predicted) in able.iter().filter(is_open).filter(|(index, _)| *index != first && !has_paid) {
            // Only where the other may be the faster one is there anything to learn: near a crossover, or far from all data.
            if predicted.low >= expected.ns || predicted.high / predicted.low < 1.0 + ENOUGH {
                continue;
            }
            doubtful = true;
            // What a try may save in the dispatches to come, which are taken to be as many as there were, and what it may cost.
            let regret = predicted.regret(expected.ns);
            let saved = match load.stays {
                true => self.work(state, index, load.n).gain(self.work(state, first, load.n).ns / (1.0 + HYSTERESIS)),
                false => predicted.gain(expected.ns),
            };
            // What costs next to nothing beside all that was spent on the op is tried in any case, so that all sizes are known.
            let is_cheap = regret <= CHEAP * state.spent_ns && !state.lanes[index].curve.has_seen(load.n);
            let value = if is_cheap { to_come * saved } else { to_come * saved - regret };
            if regret <= budget && value > gain {
                (chosen, gain, cost) = (index, value, regret);
            }
        }
        let state = self.op(op);
        if let Some(mut stay) = stay {
            if stay.last.is_some_and(|last| last != chosen) {
                stay.uses = 0;
            }
            state.staying.insert(class, Staying { last: Some(chosen), uses: stay.uses, lost: stay.lost });
        }
        state.dispatches += dispatches;
        state.spent_ns += expected.ns * dispatches as f64;
        if seen < EARLY {
            state.early_ns += expected.ns * dispatches.min(EARLY - seen) as f64;
        }
        *state.seen.entry(class).or_default() += dispatches;
        state.explored_ns += cost;
        let timed = doubtful || state.dispatches % SPARSE == 1;
        Ok(Choice { backend: &self.backends[chosen].id, explores: chosen != first, timed })
    }

    /// Where a dispatch goes whose data stays: not away from where the latest went for a few percent, and to where it would have been
    /// faster when what that saves in the dispatches to come, by how many there were before, pays for the move.
    fn stay(
        &self,
        state: &Op,
        class: i32,
        able: &[(usize, Prediction)],
        fastest: (usize, Prediction),
        load: &Load<'_>,
    ) -> Stay {
        let known = state.staying.get(&class);
        let mut chosen = fastest;
        let last = known.and_then(|known| known.last);
        let is_open = |index: usize| load.may_go_to(&self.backends[index]);
        let latest = able.iter().find(|(index, _)| Some(*index) == last && is_open(*index));
        if let Some(&latest) = latest.filter(|latest| latest.1.ns <= (1.0 + HYSTERESIS) * fastest.1.ns) {
            chosen = latest;
        }
        let here = self.work(state, chosen.0, load.n).ns;
        let (mut before, mut lost) = known.map_or((0, 0), |known| (known.uses, known.lost));
        // What was moved away from the host is found there, if it is the same data.
        if let Some(last) = last.filter(|&last| !self.backends[last].prior.on_host) {
            (before, lost) = match self.is_there(last, load) {
                true => (before, 0),
                false => (0, (lost + 1).min(MOST_LOST)),
            };
        }
        let dispatches = load.dispatches.max(1);
        let uses = before + dispatches;
        // Those that this is asked for besides the first are sure to come, if not on the same data.
        let to_come = (AGAIN * before as f64 + (dispatches - 1) as f64) / LOST.powi(lost);
        // How long a move takes is best found out early: who moves late has less left to gain by it.
        let hope = (HOPEFUL / uses as f64).min(1.0);
        let mut paid: Option<(f64, (usize, Prediction))> = None;
        for &(index, predicted) in able.iter().filter(|(index, _)| *index != chosen.0 && is_open(*index)) {
            // As it is known now, whatever was thought of it then.
            let work = self.work(state, index, load.n);
            let saved = here - (1.0 + HYSTERESIS) * work.mean();
            let left = saved * to_come - self.move_time(index, load).hopeful(hope);
            if saved > 0.0 && left >= 0.0 && paid.is_none_or(|(most, _)| left > most) {
                paid = Some((left, (index, predicted)));
            }
        }
        Stay { chosen: paid.map_or(chosen, |(_, best)| best), has_paid: paid.is_some(), last, uses, lost }
    }

    /// Takes in how long a dispatch took. Unknown backends are ignored: they can't be chosen either.
    pub fn observe(&mut self, op: &str, backend: &str, n: u64, timing: Timing) {
        let Some(index) = self.index(backend) else { return };
        self.observe_move(backend, timing);
        let state = self.op(op);
        let lane = &mut state.lanes[index];
        lane.judge(n, timing.compute_ns);
        let news = lane.watch(n, timing.compute_ns);
        lane.curve.observe(n, timing.compute_ns);
        state.is_timed(index, n);
        self.guess_anew(op);
        if let Some(reason) = news {
            self.requests.push(Recertify { op: op.to_owned(), backend: backend.to_owned(), reason });
        }
    }

    /// Takes in how long a dispatch took that worked on a caller's own memory where it was. New memory for its results is part of that time, so
    /// that it counts until there is a timing without.
    pub fn observe_lent(&mut self, op: &str, backend: &str, n: u64, compute_ns: u64) {
        let Some(index) = self.index(backend) else { return };
        self.op(op).lanes[index].curve.observe_soft(n, compute_ns);
        self.guess_anew(op);
    }

    /// Takes in how long a dispatch took that was the first of its size on a backend. It warms up caches and clocks besides, so that it
    /// takes longer than those to come: it counts where it took far less than was expected all the same, and else says nothing.
    pub fn observe_first(&mut self, op: &str, backend: &str, n: u64, timing: Timing) {
        let Some(index) = self.index(backend) else { return };
        let curve = &mut self.op(op).lanes[index].curve;
        if (timing.compute_ns as f64) < COLD * curve.predict(n).ns {
            self.observe(op, backend, n, timing);
        } else if timing.compute_ns >= LONG_COLD {
            curve.observe_cold(n, timing.compute_ns);
            self.guess_anew(op);
        }
    }

    /// Guesses of sizes and backends that were not measured what follows from those that were: how many times as much each item of this op
    /// is as that of an ordinary one. Loops in it, which are not seen from its size, are the same wherever it runs.
    pub(super) fn guess_anew(&mut self, op: &str) {
        let Router { backends, ops, .. } = self;
        let Some(state) = ops.get_mut(op) else { return };
        let effort = state.effort;
        if effort.operations > 0.0 {
            for (lane, backend) in state.lanes.iter_mut().zip(&mut *backends) {
                let pace = lane.curve.pace().map(|each| (each / backend.prior.each(effort)).ln());
                backend.paces.replace(lane.pace, pace);
                lane.pace = pace;
            }
        }
        let others = |lane: &Lane, backend: &Backend| backend.paces.without(lane.pace);
        let weight = |(lane, backend): (&Lane, &Backend)| {
            let log = (lane.curve.per_unit()? / backend.prior.each(effort)).ln() - others(lane, backend);
            Some(log.clamp(-MOST_WEIGHT, MOST_WEIGHT))
        };
        let (sum, count) = state
            .lanes
            .iter()
            .zip(&*backends)
            .filter_map(weight)
            .fold((0.0, 0u32), |(sum, count), log| (sum + log, count + 1));
        for (lane, backend) in state.lanes.iter_mut().zip(&*backends) {
            let log = sum / f64::from(count.max(1)) + others(lane, backend);
            // In steps, so that a curve is not fitted anew for nothing.
            let each = (0.25 * (4.0 * log).round()).exp() * backend.prior.each(effort);
            lane.curve.guess_per_unit(each);
            lane.round_trip.guess_per_unit(each + backend.prior.ns_moved_per_item());
        }
    }

    /// Guesses what nothing was measured of by the look of the op, at the largest size that was met: what each item does is little of what
    /// is done where there are few.
    fn look_at(&mut self, op: &str, load: &Load<'_>) {
        if self.ops.get(op).is_none_or(|known| load.n > known.looked_at && load.effort != known.effort) {
            let state = self.op(op);
            (state.effort, state.looked_at) = (load.effort, load.n);
            self.guess_anew(op);
        }
    }

    /// Takes in how long a dispatch on data of the host took until its results were there, with all that is around the work.
    pub fn observe_round_trip(&mut self, op: &str, backend: &str, n: u64, ns: u64) {
        if let Some(index) = self.index(backend) {
            let state = self.op(op);
            state.lanes[index].round_trip.observe(n, ns);
            state.is_timed(index, n);
        }
    }

    /// [`observe_round_trip`](Self::observe_round_trip) of a dispatch that was the first of its size on a backend; see
    /// [`observe_first`](Self::observe_first).
    pub fn observe_first_round_trip(&mut self, op: &str, backend: &str, n: u64, ns: u64) {
        let Some(index) = self.index(backend) else { return };
        let curve = &mut self.op(op).lanes[index].round_trip;
        if (ns as f64) < COLD * curve.predict(n).ns {
            curve.observe(n, ns);
        } else if ns >= LONG_COLD {
            curve.observe_cold(n, ns);
        }
    }

    /// Takes in how long a move of data to a backend took.
    pub fn observe_move(&mut self, backend: &str, timing: Timing) {
        if let Some(index) = self.index(backend)
            && timing.moved_bytes > 0
        {
            self.backends[index].moves.observe(timing.moved_bytes, timing.move_ns);
        }
    }

    /// Takes in how long it took to bring a caller's own memory to a backend.
    pub fn observe_loan(&mut self, backend: &str, timing: Timing) {
        if let Some(index) = self.index(backend)
            && timing.moved_bytes > 0
        {
            self.backends[index].loans.observe(timing.moved_bytes, timing.move_ns);
        }
    }

    /// Takes a backend out for an op, because it failed. The diagnostic tells the caller what is used instead, or that
    /// nothing is left.
    pub fn failed(&mut self, op: &str, backend: &str, reason: &str) -> Diagnostic {
        if let Some(index) = self.index(backend) {
            self.op(op).lanes[index].out = Some(reason.to_owned());
        }
        self.fallback(op, backend, reason)
    }

    /// Takes a backend out for all ops, because its device is gone.
    pub fn lost(&mut self, backend: &str, reason: &str) -> Diagnostic {
        if let Some(index) = self.index(backend) {
            self.backends[index].lost = Some(reason.to_owned());
        }
        self.fallback("", backend, reason)
    }

    /// Takes a backend in again.
    pub fn restore(&mut self, backend: &str) {
        let Some(index) = self.index(backend) else { return };
        self.backends[index].lost = None;
        for op in self.ops.values_mut() {
            op.lanes[index].out = None;
        }
    }

    /// What should be measured anew in the background, each wish once.
    pub fn take_requests(&mut self) -> Vec<Recertify> {
        std::mem::take(&mut self.requests)
    }

    /// Why a dispatch would go where it would go.
    pub fn explain(&self, op: &str, load: &Load<'_>) -> Explanation {
        let none = self.new_op();
        let state = self.ops.get(op).unwrap_or(&none);
        let mut options: Vec<RouteOption> = Vec::new();
        for (index, backend) in self.backends.iter().enumerate() {
            options.push(RouteOption {
                backend: backend.id.clone(),
                predicted: self.predict(state, index, load),
                move_ns: self.move_time(index, load).ns,
                samples: state.lanes[index].curve.samples(),
                unseen_error: state.lanes[index].unseen_error().map(|log| log.exp() - 1.0),
                out: self.out(state, index).map(str::to_owned),
            });
        }
        options.sort_by(|a, b| (a.out.is_some().cmp(&b.out.is_some())).then(a.predicted.ns.total_cmp(&b.predicted.ns)));
        let chosen = options.first().filter(|option| option.out.is_none()).map(|option| option.backend.clone());
        Explanation { op: op.to_owned(), n: load.n, chosen, options, crossovers: self.crossovers(op) }
    }

    /// Where the choice for an op changes with size, for data that is where it is needed, within the sizes that were measured.
    pub fn crossovers(&self, op: &str) -> Vec<Crossover> {
        let Some(state) = self.ops.get(op) else { return Vec::new() };
        let ranges = || state.lanes.iter().filter_map(|lane| lane.curve.range());
        let (Some(low), Some(high)) = (ranges().map(|r| r[0]).min(), ranges().map(|r| r[1]).max()) else {
            return Vec::new();
        };
        let predict = |index: usize, n: u64| self.work(state, index, n);
        let best = |n: u64| {
            let measured = (0..self.backends.len()).filter(|&index| state.lanes[index].curve.samples() > 0);
            measured.min_by(|&a, &b| predict(a, n).ns.total_cmp(&predict(b, n).ns))
        };
        let step = |n: u64| (n + n / 8).max(n + 1);
        let mut found = Vec::new();
        let mut n = low;
        while n < high {
            let next = step(n).min(high);
            if let (Some(below), Some(above)) = (best(n), best(next))
                && below != above
            {
                let (mut left, mut right) = (n, next);
                while right - left > 1 {
                    let middle = left + (right - left) / 2;
                    if best(middle) == Some(below) { left = middle } else { right = middle }
                }
                let overlap = |n: u64| {
                    let (a, b) = (predict(below, n), predict(above, n));
                    a.low <= b.high && b.low <= a.high
                };
                let mut unsure = [right, right];
                while unsure[0] > low && overlap(unsure[0] - (unsure[0] / 9).max(1)) {
                    unsure[0] -= (unsure[0] / 9).max(1);
                }
                while unsure[1] < high && overlap(step(unsure[1])) {
                    unsure[1] = step(unsure[1]).min(high);
                }
                let id = |index: usize| self.backends[index].id.clone();
                found.push(Crossover { n: right, below: id(below), above: id(above), unsure });
            }
            n = next;
        }
        found
    }

    /// The ops that were met.
    pub fn op_names(&self) -> impl Iterator<Item = &str> {
        self.ops.keys().map(String::as_str)
    }

    /// The curve, and whether it stands for a device that has changed.
    pub(super) fn curve(&self, op: &str, backend: &str) -> Option<(&Curve, bool)> {
        let lane = &self.ops.get(op)?.lanes[self.index(backend)?];
        Some((&lane.curve, lane.replaced))
    }

    pub(super) fn moves(&self, backend: &str) -> Option<&Curve> {
        Some(&self.backends[self.index(backend)?].moves)
    }

    pub(super) fn loans(&self, backend: &str) -> Option<&Curve> {
        Some(&self.backends[self.index(backend)?].loans)
    }

    pub(super) fn curve_mut(&mut self, op: &str, backend: &str) -> Option<&mut Curve> {
        let index = self.index(backend)?;
        Some(&mut self.op(op).lanes[index].curve)
    }

    pub(super) fn round_trip(&self, op: &str, backend: &str) -> Option<&Curve> {
        Some(&self.ops.get(op)?.lanes[self.index(backend)?].round_trip)
    }

    pub(super) fn round_trip_mut(&mut self, op: &str, backend: &str) -> Option<&mut Curve> {
        let index = self.index(backend)?;
        Some(&mut self.op(op).lanes[index].round_trip)
    }

    pub(super) fn moves_mut(&mut self, backend: &str) -> Option<&mut Curve> {
        let index = self.index(backend)?;
        Some(&mut self.backends[index].moves)
    }

    pub(super) fn loans_mut(&mut self, backend: &str) -> Option<&mut Curve> {
        let index = self.index(backend)?;
        Some(&mut self.backends[index].loans)
    }

    fn op(&mut self, op: &str) -> &mut Op {
        if !self.ops.contains_key(op) {
            let new = self.new_op();
            self.ops.insert(op.to_owned(), new);
        }
        self.ops.get_mut(op).expect("it was put in")
    }

    fn new_op(&self) -> Op {
        let lane = |backend: &Backend| Lane {
            curve: Curve::guessed(backend.prior.overhead_ns, backend.prior.ns_per_item),
            round_trip: backend.prior.round_trip(),
            unseen: (0.0, 0),
            pace: None,
            timed_at: BTreeMap::new(),
            out: None,
            drift: 0.0,
            drifted: false,
            replaced: false,
        };
        Op {
            lanes: self.backends.iter().map(lane).collect(),
            effort: Effort::default(),
            looked_at: 0,
            dispatches: 0,
            spent_ns: 0.0,
            early_ns: 0.0,
            explored_ns: 0.0,
            seen: BTreeMap::new(),
            staying: BTreeMap::new(),
        }
    }

    fn index(&self, backend: &str) -> Option<usize> {
        self.backends.iter().position(|known| known.id == backend)
    }

    fn out<'a>(&'a self, state: &'a Op, index: usize) -> Option<&'a str> {
        self.backends[index].lost.as_deref().or(state.lanes[index].out.as_deref())
    }

    /// Bytes that a backend has of those that a dispatch needs.
    fn there(&self, index: usize, load: &Load<'_>) -> u64 {
        let backend = &self.backends[index];
        let has = |&(id, bytes): &(&str, u64)| if id == backend.id { bytes } else { 0 };
        let own: u64 = load.on.iter().map(has).sum();
        own + if backend.prior.on_host { load.on_host } else { 0 }
    }

    fn is_there(&self, index: usize, load: &Load<'_>) -> bool {
        self.there(index, load) >= load.bytes_in
    }

    /// Time of bringing what is not there, and of bringing the results back to the host.
    fn move_time(&self, index: usize, load: &Load<'_>) -> Prediction {
        let backend = &self.backends[index];
        let back = if backend.prior.on_host { 0 } else { load.bytes_back };
        let mut all = Prediction { ns: 0.0, low: 0.0, high: 0.0 };
        for bytes in
            [load.bytes_in.saturating_sub(self.there(index, load)), back].into_iter().filter(|&bytes| bytes > 0)
        {
            // What is known of arrays is better than a guess.
            let is_lent = !load.stays && (backend.loans.samples() > 0 || backend.moves.samples() == 0);
            let moved = if is_lent { &backend.loans } else { &backend.moves }.predict(bytes);
            all = Prediction { ns: all.ns + moved.ns, low: all.low + moved.low, high: all.high + moved.high };
        }
        all
    }

    /// Time of the work alone.
    fn work(&self, state: &Op, index: usize, n: u64) -> Prediction {
        let lane = &state.lanes[index];
        lane.widened(&lane.curve, n)
    }

    /// What a dispatch takes on a backend. What was timed long ago may have changed since, or the machine was busy then.
    fn predict(&self, state: &Op, index: usize, load: &Load<'_>) -> Prediction {
        let class = size_class(load.n);
        let seen = state.seen.get(&class).copied().unwrap_or(0);
        let since = state.lanes[index].timed_at.get(&class).map_or(0, |&at| seen.saturating_sub(at));
        self.predict_as_timed(state, index, load).with_doubt((AGES * (since as f64).sqrt()).min(AGED))
    }

    fn predict_as_timed(&self, state: &Op, index: usize, load: &Load<'_>) -> Prediction {
        let (work, moved) = (self.work(state, index, load.n), self.move_time(index, load));
        let sum = Prediction { ns: work.ns + moved.ns, low: work.low + moved.low, high: work.high + moved.high };
        let lane = &state.lanes[index];
        if !load.is_round_trip() || lane.round_trip.samples() == 0 {
            return sum;
        }
        // What was seen of the whole counts more than the sum of what is known of its parts. Of sizes that were not seen the parts tell
        // more where moves are most of it, since these are known from all ops.
        let whole = lane.widened(&lane.round_trip, load.n);
        let parts_known = !self.backends[index].prior.on_host && self.backends[index].loans.samples() > 0;
        match lane.round_trip.seen(load.n) {
            0 if parts_known || whole.high / whole.low > sum.high / sum.low => sum,
            // One or two timings may have been stalls, where the parts say otherwise.
            seen @ 1..=2 if parts_known => {
                let whole = whole.with_doubt(SINGLE / f64::from(seen).sqrt());
                whole.and(&sum.with_doubt(OF_PARTS))
            }
            _ => whole,
        }
    }

    fn no_route(&self, op: &str, state: &Op) -> Diagnostic {
        let reasons: Vec<String> = (0..self.backends.len())
            .filter_map(|index| Some(format!("{}: {}", self.backends[index].id, self.out(state, index)?)))
            .collect();
        let why = if reasons.is_empty() { "there are none".to_owned() } else { reasons.join("; ") };
        Diagnostic::new(&codes::routing::NO_ROUTE, format!("no backend is left for op `{op}`: {why}"))
    }

    fn fallback(&self, op: &str, backend: &str, reason: &str) -> Diagnostic {
        let none = self.new_op();
        let state = self.ops.get(op).unwrap_or(&none);
        let work = if op.is_empty() { "all ops".to_owned() } else { format!("op `{op}`") };
        let left: Vec<&str> = (0..self.backends.len())
            .filter(|&index| self.out(state, index).is_none())
            .map(|index| self.backends[index].id.as_str())
            .collect();
        let next =
            if left.is_empty() { "no other backend is left".to_owned() } else { format!("left: {}", left.join(", ")) };
        Diagnostic::new(
            &codes::routing::FALLBACK,
            format!("backend `{backend}` failed and is taken out for {work} ({reason}); {next}"),
        )
    }
}

impl Op {
    fn is_timed(&mut self, index: usize, n: u64) {
        let class = size_class(n);
        let seen = self.seen.get(&class).copied().unwrap_or(0);
        self.lanes[index].timed_at.insert(class, seen);
    }
}

impl Paces {
    fn replace(&mut self, old: Option<f64>, new: Option<f64>) {
        self.sum += new.unwrap_or(0.0) - old.unwrap_or(0.0);
        self.count = (self.count + u32::from(new.is_some())).saturating_sub(u32::from(old.is_some()));
    }

    /// What all but one op say, which is little where they are few.
    fn without(&self, own: Option<f64>) -> f64 {
        let count = self.count.saturating_sub(u32::from(own.is_some()));
        (self.sum - own.unwrap_or(0.0)) / (f64::from(count) + 1.0)
    }
}

impl Lane {
    /// Compares a timing of a size that was not seen with what was predicted for it.
    fn judge(&mut self, n: u64, ns: u64) {
        const KNOWN: u64 = 4;
        if self.curve.samples() < KNOWN || self.curve.has_seen(n) {
            return;
        }
        let off = (ns.max(1) as f64 / self.curve.predict(n).ns).ln().abs().min(2.0);
        let (mean, count) = &mut self.unseen;
        *count = (*count + 1).min(MOST_UNSEEN);
        *mean += (off - *mean) / f64::from(*count);
    }

    /// What a curve says of a size. What experience says of sizes that were not seen counts more than the curve's own opinion of itself.
    fn widened(&self, curve: &Curve, n: u64) -> Prediction {
        let mut predicted = curve.predict(n);
        if let Some(off) = self.unseen_error().filter(|_| !curve.has_seen(n)) {
            predicted.low = predicted.low.min(predicted.ns * (-2.0 * off).exp());
            predicted.high = predicted.high.max(predicted.ns * (2.0 * off).exp());
        }
        predicted
    }

    /// How far predictions for sizes that had not been timed were off, as a logarithm.
    fn unseen_error(&self) -> Option<f64> {
        (self.unseen.1 >= FEW_UNSEEN).then_some(self.unseen.0)
    }

    /// Compares a live timing with the prediction. A first few stray ones do nothing; a lasting difference raises the hand
    /// once, makes the old timings count little, and is over when new ones agree with each other again.
    fn watch(&mut self, n: u64, ns: u64) -> Option<String> {
        let predicted = self.curve.predict(n);
        // Where little was measured a difference is no news.
        if self.curve.samples() < 8 || predicted.high / predicted.low > 2.0 {
            return None;
        }
        let off = (ns.max(1) as f64 / predicted.ns).ln().clamp(-1.0, 1.0);
        self.drift += 0.125 * (off - self.drift);
        if self.drifted {
            self.drifted = self.drift.abs() > DRIFT / 2.0;
            return None;
        }
        if self.drift.abs() <= DRIFT {
            return None;
        }
        self.drifted = true;
        self.replaced = true;
        self.curve.forget();
        self.round_trip.forget();
        Some(format!("live timings are {:+.0}% off the stored ones", 100.0 * (self.drift.exp() - 1.0)))
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.chosen {
            Some(chosen) => write!(f, "`{}` at n = {} runs on {chosen}.", self.op, self.n)?,
            None => write!(f, "`{}` at n = {} runs nowhere.", self.op, self.n)?,
        }
        for option in &self.options {
            let Prediction { ns, low, high } = option.predicted;
            match &option.out {
                Some(reason) => write!(f, "\n  {}: out, {reason}", option.backend)?,
                None => write!(
                    f,
                    "\n  {}: {} ({} to {}, {} of it to move data; from {} timings{})",
                    option.backend,
                    Nanoseconds(ns),
                    Nanoseconds(low),
                    Nanoseconds(high),
                    Nanoseconds(option.move_ns),
                    option.samples,
                    option.unseen_error.map_or_else(String::new, |off| format!(
                        "; sizes not timed before were off by {:.0}%",
                        100.0 * off
                    ))
                )?,
            }
        }
        for crossover in &self.crossovers {
            let [low, high] = crossover.unsure;
            write!(f, "\n  {} wins above n = {} (unsure from {low} to {high})", crossover.above, crossover.n)?;
        }
        Ok(())
    }
}

struct Nanoseconds(f64);

impl fmt::Display for Nanoseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ns if ns < 1e3 => write!(f, "{ns:.0} ns"),
            ns if ns < 1e6 => write!(f, "{:.1} µs", ns / 1e3),
            ns if ns < 1e9 => write!(f, "{:.1} ms", ns / 1e6),
            ns => write!(f, "{:.2} s", ns / 1e9),
        }
    }
}
