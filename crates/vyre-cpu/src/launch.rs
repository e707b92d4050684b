//! Running a compiled kernel over a grid: workgroups are spread over the cores, small grids stay on the caller's thread.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Condvar, LazyLock, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use rayon::iter::{IntoParallelIterator, ParallelIterator};

/// Invocations in a subgroup, on every path.
pub(crate) const SUBGROUP_SIZE: u32 = 32;

/// Steps of all invocations together below which spreading a launch over threads costs more than it gains.
pub(crate) const SMALL_LAUNCH: u64 = 1 << 18;

/// Sizes of one launch.
#[derive(Clone, Debug)]
pub(crate) struct Grid {
    /// Workgroups along each axis.
    pub(crate) workgroups: [u32; 3],
    /// Elements of each buffer.
    pub(crate) lengths: Vec<u64>,
}

/// Tells the loops of a launch to end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicU32>);

impl Stop {
    /// Stops by itself when the time is over.
    pub(crate) fn after(timeout: Option<Duration>) -> Stop {
        let stop = Stop::default();
        if let Some(at) = timeout.and_then(|timeout| Instant::now().checked_add(timeout)) {
            watch(at, &stop.0);
        }
        stop
    }

    /// Stops from now on.
    pub(crate) fn set(&self) {
        self.0.store(1, Relaxed);
    }

    /// Somebody asked to stop.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Relaxed) != 0
    }

    /// The word that compiled loops look at.
    pub(crate) fn word(&self) -> *const u32 {
        self.0.as_ptr()
    }
}

/// One thread for all timeouts of the process, started by the first.
struct Watch {
    waiting: Mutex<Vec<(Instant, Weak<AtomicU32>)>>,
    changed: Condvar,
}

fn watch(at: Instant, flag: &Arc<AtomicU32>) {
    static WATCH: LazyLock<Option<Arc<Watch>>> = LazyLock::new(|| {
        let watch = Arc::new(Watch { waiting: Mutex::default(), changed: Condvar::new() });
        let on_thread = Arc::clone(&watch);
        let started = std::thread::Builder::new().name("vyre-cpu-timeouts".into()).spawn(move || on_thread.run());
        started.is_ok().then_some(watch)
    });
    match &*WATCH {
        Some(watch) => {
            let mut waiting = watch.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            // Only a nearer deadline needs the thread to wake up.
            let nearest = waiting.iter().all(|&(other, _)| at < other);
            waiting.push((at, Arc::downgrade(flag)));
            if nearest {
                watch.changed.notify_one();
            }
        }
        // Without the thread nothing could end a loop, so nothing is started.
        None => flag.store(1, Relaxed),
    }
}

impl Watch {
    fn run(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let now = Instant::now();
            waiting.retain(|(at, flag)| match flag.upgrade() {
                Some(flag) if *at <= now => {
                    flag.store(1, Relaxed);
                    false
                }
                Some(_) => true,
                None => false,
            });
            let nearest = waiting.iter().map(|&(at, _)| at).min();
            waiting = match nearest {
                Some(at) => {
                    let left = at.saturating_duration_since(now);
                    self.changed.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

/// Workgroups from `first` to before `end` along x, in one row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub(crate) first: u32,
    pub(crate) end: u32,
    pub(crate) y: u32,
    pub(crate) z: u32,
}

/// Runs all workgroups of a grid. `worker` makes what one thread needs, `run` runs some workgroups. Nothing more is started
/// once `stop` is set.
pub(crate) fn spread<W: Send>(
    grid: &Grid,
    steps: u64,
    stop: &Stop,
    worker: impl Fn() -> Option<W> + Sync,
    run: impl Fn(&mut W, Stretch) + Sync,
) -> Result<(), OutOfMemory> {
    let [x, y, z] = grid.workgroups;
    let rows = u64::from(y) * u64::from(z);
    let total = rows * u64::from(x);
    if total == 0 {
        return Ok(());
    }
    // Asking for the number of threads starts them, so that comes last.
    let threads = || rayon::current_num_threads() as u64;
    let small = total == 1 || total.saturating_mul(steps) < SMALL_LAUNCH || threads() == 1;
    let row = |row: u64| ((row % u64::from(y)) as u32, (row / u64::from(y)) as u32);
    if small {
        let mut worker = worker().ok_or(OutOfMemory)?;
        for index in 0..rows {
            let (y, z) = row(index);
            // Short stretches, so that a stop is noticed between them.
            for first in (0..x).step_by(1 << 16) {
                if stop.is_set() {
                    return Ok(());
                }
                run(&mut worker, Stretch { first, end: first.saturating_add(1 << 16).min(x), y, z });
            }
        }
        return Ok(());
    }
    // Several tasks for each thread, so that those who finish early can take over.
    let wanted = (threads() * 16).min(total);
    let pieces = wanted.div_ceil(rows).clamp(1, u64::from(x));
    let rows_each = (rows / wanted).max(1);
    let tasks = rows.div_ceil(rows_each) * pieces;
    let part = |piece: u64| (u64::from(x) * piece / pieces) as u32;
    let failed = AtomicU32::new(0);
    (0..tasks).into_par_iter().for_each_init(&worker, |worker, task| {
        let Some(worker) = worker else {
            failed.store(1, Relaxed);
            return;
        };
        let (group, piece) = (task / pieces, task % pieces);
        let (first, end) = (part(piece), part(piece + 1));
        for index in group * rows_each..((group + 1) * rows_each).min(rows) {
            if stop.is_set() {
                return;
            }
            let (y, z) = row(index);
            run(worker, Stretch { first, end, y, z });
        }
    });
    if failed.load(Relaxed) != 0 { Err(OutOfMemory) } else { Ok(()) }
}

/// There was no memory for a thread's private data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutOfMemory;

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn covered(workgroups: [u32; 3], steps: u64) -> Vec<[u32; 3]> {
        let grid = Grid { workgroups, lengths: Vec::new() };
        let seen = Mutex::new(Vec::new());
        spread(
            &grid,
            steps,
            &Stop::default(),
            || Some(()),
            |(), stretch| {
                let mut seen = seen.lock().unwrap();
                seen.extend((stretch.first..stretch.end).map(|x| [x, stretch.y, stretch.z]));
            },
        )
        .unwrap();
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        seen
    }

    #[test]
    fn every_workgroup_runs_once() {
        for workgroups in [[1, 1, 1], [7, 1, 1], [1, 9, 3], [1000, 3, 1], [3, 200, 2], [0, 5, 5]] {
            for steps in [1, 1 << 30] {
                let mut all = Vec::new();
                for x in 0..workgroups[0] {
                    for y in 0..workgroups[1] {
                        all.extend((0..workgroups[2]).map(|z| [x, y, z]));
                    }
                }
                assert_eq!(covered(workgroups, steps), all, "{workgroups:?} with {steps} steps");
            }
        }
    }

    #[test]
    fn a_deadline_sets_the_flag() {
        let stop = Stop::after(Some(Duration::from_millis(1)));
        let patience = Instant::now() + Duration::from_secs(30);
        while !stop.is_set() {
            assert!(Instant::now() < patience, "the deadline passed unnoticed");
            std::thread::yield_now();
        }
    }
}
