//! Sides of a work, timed in turn in one process.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use vyre::{Array, Element, Error};

use crate::limits::Limits;

const ROUNDS: usize = 11;
/// A side of a round takes so many milliseconds at least.
const LONG_ENOUGH: f64 = 8.0;
/// Runs before anything is measured, if not 200.
pub(crate) static WARM_RUNS: OnceLock<usize> = OnceLock::new();
const WARM_TIME: Duration = Duration::from_secs(4);
/// The same before the processor is, where most works are short and none waits for other devices.
const WARM_TIME_HERE: Duration = Duration::from_secs(1);

/// Waits for a launch.
pub(crate) type Wait = Box<dyn FnOnce()>;

/// What waits for a result.
pub(crate) fn under_way<T: Element>(result: Result<Array<T>, Error>) -> Wait {
    let array = result.expect("it runs");
    Box::new(move || array.wait().expect("it runs"))
}

/// A run of a library.
type Run<'a> = Box<dyn FnMut() + 'a>;

/// What is measured: the least that it has to move and compute, the op, and what others have for it.
pub(crate) struct Work<'a> {
    pub(crate) name: String,
    bytes: f64,
    operations: f64,
    ours: Box<dyn FnMut() -> Wait + 'a>,
    peers: Vec<(&'static str, Run<'a>)>,
}

impl<'a> Work<'a> {
    pub(crate) fn new(
        name: impl Into<String>,
        bytes: usize,
        operations: f64,
        ours: impl FnMut() -> Wait + 'a,
    ) -> Work<'a> {
        Work { name: name.into(), bytes: bytes as f64, operations, ours: Box::new(ours), peers: Vec::new() }
    }

    /// One run of the op.
    pub(crate) fn run(&mut self) {
        (self.ours)()();
    }

    pub(crate) fn has_peers(&self) -> bool {
        !self.peers.is_empty()
    }

    /// A library that is done when it returns.
    pub(crate) fn beside(mut self, name: &'static str, run: impl FnMut() + 'a) -> Work<'a> {
        self.peers.push((name, Box::new(run)));
        self
    }
}

pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) ours_ms: f64,
    /// The fastest first.
    pub(crate) peers: Vec<Peer>,
    pub(crate) gb_per_s: f64,
    pub(crate) gflops: f64,
    pub(crate) of_limit: Option<f64>,
}

pub(crate) struct Peer {
    pub(crate) name: &'static str,
    pub(crate) ms: f64,
    /// Its time over ours: a quarter of the rounds had less, half of them, three quarters.
    pub(crate) ratio: [f64; 3],
}

fn quartiles(values: &mut [f64]) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}

/// Milliseconds of a run of ours, as the mean of several that are launched one after the other before they are waited for.
fn launched(run: &mut dyn FnMut() -> Wait, runs: u32) -> f64 {
    let started = Instant::now();
    let launched: Vec<Wait> = (0..runs).map(|_| run()).collect();
    launched.into_iter().for_each(|wait| wait());
    started.elapsed().as_secs_f64() * 1e3 / f64::from(runs)
}

/// What is compared: the time that passes, or with `--processor-time` the time that all threads of this process work, which other work on the
/// machine changes little.
pub(crate) static PROCESSOR_TIME: OnceLock<bool> = OnceLock::new();

fn seconds() -> f64 {
    static START: OnceLock<Instant> = OnceLock::new();
    if !PROCESSOR_TIME.get().copied().unwrap_or(false) {
        return START.get_or_init(Instant::now).elapsed().as_secs_f64();
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time is ours to be written.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    assert_eq!(failed, 0, "processes have a clock");
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Milliseconds of a run that is waited for, as the mean of several.
fn timed(run: &mut dyn FnMut(), runs: u32) -> f64 {
    let started = seconds();
    (0..runs).for_each(|_| run());
    (seconds() - started) * 1e3 / f64::from(runs)
}

/// Lets the engine meet the work before, as in a program that goes on: it compares variants and learns which to use.
fn warm(ours: &mut dyn FnMut() -> Wait, most: Duration) {
    let started = Instant::now();
    (0..*WARM_RUNS.get_or_init(|| 200)).take_while(|_| started.elapsed() < most).for_each(|_| _ = launched(ours, 1));
}

/// On the processor, beside the libraries for the same.
pub(crate) fn beside_peers(work: &mut Work<'_>, limits: &Limits) -> Row {
    let Work { name, bytes, operations, ours, peers } = work;
    warm(&mut **ours, WARM_TIME_HERE);
    let mut own = || ours()();
    let mut sides: Vec<&mut dyn FnMut()> = vec![&mut own];
    sides.extend(peers.iter_mut().map(|(_, run)| &mut **run as &mut dyn FnMut()));
    // The first run compiles and touches memory.
    let runs: Vec<u32> = sides
        .iter_mut()
        .map(|run| {
            timed(*run, 1);
            (LONG_ENOUGH / timed(*run, 1)).clamp(1.0, 64.0) as u32
        })
        .collect();
    let mut times = vec![Vec::new(); sides.len()];
    for round in 0..ROUNDS {
        // Whoever is first has other caches and clocks, so they take turns; and who comes behind one that has all threads at work has others than
        // behind one that has not, so that every other round goes backwards.
        for step in 0..sides.len() {
            let step = if round % 2 == 0 { step } else { sides.len() - 1 - step };
            let side = (round + step) % sides.len();
            times[side].push(timed(sides[side], runs[side]));
        }
    }
    let ours = times.remove(0);
    let peer = |(name, mut times): (&'static str, Vec<f64>)| {
        let mut ratios: Vec<f64> = times.iter().zip(&ours).map(|(peer, own)| peer / own).collect();
        Peer { name, ms: quartiles(&mut times)[1], ratio: quartiles(&mut ratios) }
    };
    let names = peers.iter().map(|(name, _)| *name);
    let mut peers: Vec<Peer> = names.zip(times).map(peer).collect();
    peers.sort_by(|a, b| a.ms.total_cmp(&b.ms));
    let ours_ms = quartiles(&mut ours.clone())[1];
    let (gb_per_s, gflops) = (*bytes / ours_ms * 1e-6, *operations / ours_ms * 1e-6);
    let of_limit = Some((gb_per_s / limits.gb_per_s).max(gflops / limits.gflops));
    Row { name: name.clone(), ours_ms, peers, gb_per_s, gflops, of_limit }
}

/// On a device, whose peers run in another process (`peers.py`). Short works are launched in batches, as theirs are: what is measured is
/// the device.
pub(crate) fn in_batches(work: &mut Work<'_>) -> Row {
    let Work { name, bytes, operations, ours, .. } = work;
    warm(&mut **ours, WARM_TIME);
    let runs = (LONG_ENOUGH / launched(&mut **ours, 1)).clamp(1.0, 16.0) as u32;
    let mut times: Vec<f64> = (0..ROUNDS).map(|_| launched(&mut **ours, runs)).collect();
    let ours_ms = quartiles(&mut times)[1];
    Row {
        name: name.clone(),
        ours_ms,
        peers: Vec::new(),
        gb_per_s: *bytes / ours_ms * 1e-6,
        gflops: *operations / ours_ms * 1e-6,
        of_limit: None,
    }
}
