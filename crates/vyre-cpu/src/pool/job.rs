//! One piece of work, shared by the threads that do it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{
    AtomicBool, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Instant;

use vyre_driver::BackendError;

use crate::launch::Stop;
use crate::memory::Scratch;

/// What a queue takes.
pub(crate) trait Work: Default + Send + Sync + 'static {
    /// Phases run one after another.
    fn phases(&self) -> usize;

    /// Parts of a phase, which run in any order and at once.
    fn parts(&self, phase: usize) -> u64;

    /// Runs a part; false when it was left because of `stop`.
    fn run(&self, phase: usize, part: u64, scratch: &mut Scratch, stop: &Stop) -> bool;

    /// Lets go of everything that it uses.
    fn clear(&mut self);
}

/// Bits of the cursor that count parts; those above count phases.
const PART_BITS: u32 = 40;

/// Work with its progress. Kept and filled again, so that a launch needs no memory of its own.
#[derive(Debug, Default)]
pub(super) struct Job<W> {
    pub(super) work: RwLock<W>,
    pub(super) stop: Stop,
    /// Phase and next part of it.
    cursor: AtomicU64,
    /// Parts of the phase, and those that are not done.
    parts: AtomicU64,
    left: AtomicU64,
    over: AtomicBool,
    /// Something was left out because of the stop word.
    early: AtomicBool,
    broken: AtomicBool,
    failure: Mutex<Option<BackendError>>,
    timed: AtomicBool,
    /// Nanoseconds since the pool began: when the first part began, when the last one ended.
    began: AtomicU64,
    ended: AtomicU64,
}

impl<W: Work> Job<W> {
    /// Makes a job ready whose work was just filled in; nobody else has it.
    pub(super) fn reset(&self, timed: bool) {
        self.stop.reset();
        self.timed.store(timed, Relaxed);
        self.began.store(u64::MAX, Relaxed);
        self.ended.store(0, Relaxed);
        for flag in [&self.over, &self.early, &self.broken] {
            flag.store(false, Relaxed);
        }
        self.enter(&self.work.read().unwrap_or_else(PoisonError::into_inner), 0);
    }

    /// Goes to the first phase from `phase` on that has parts.
    fn enter(&self, work: &W, phase: usize) {
        let next = (phase..work.phases()).find(|&phase| work.parts(phase) > 0);
        let parts = next.map_or(0, |phase| work.parts(phase));
        self.parts.store(parts, Relaxed);
        self.left.store(parts, Relaxed);
        if next.is_none() {
            self.over.store(true, Release);
        }
        self.cursor.store((next.unwrap_or(work.phases()) as u64) << PART_BITS, Release);
    }

    /// All parts of all phases are done.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Acquire)
    }

    /// Parts of this phase that nobody has taken.
    pub(super) fn untaken(&self) -> u64 {
        let taken = self.cursor.load(Acquire) & ((1 << PART_BITS) - 1);
        if self.is_over() { 0 } else { self.parts.load(Relaxed).saturating_sub(taken) }
    }

    /// Takes parts and runs them until there are none. Calls `more` when a new phase has parts for others.
    pub(super) fn help(&self, scratch: &mut Scratch, epoch: Instant, more: impl Fn()) {
        let timed = self.timed.load(Relaxed);
        let now = || u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if timed {
            self.began.fetch_min(now(), Relaxed);
        }
        let work = self.work.read().unwrap_or_else(PoisonError::into_inner);
        loop {
            let at = self.cursor.fetch_add(1, AcqRel);
            let (phase, part) = ((at >> PART_BITS) as usize, at & ((1 << PART_BITS) - 1));
            if phase >= work.phases() || part >= work.parts(phase) {
                break;
            }
            if self.stop.is_set() || self.broken.load(Relaxed) {
                self.early.store(true, Relaxed);
            } else {
                // A launch whose thread panics has failed; the thread goes on with the next.
                match catch_unwind(AssertUnwindSafe(|| work.run(phase, part, scratch, &self.stop))) {
                    Ok(true) => {}
                    Ok(false) => self.early.store(true, Relaxed),
                    Err(panic) => self.fail(&*panic),
                }
            }
            if timed {
                self.ended.fetch_max(now(), Relaxed);
            }
            if self.left.fetch_sub(1, AcqRel) == 1 {
                self.enter(&work, phase + 1);
                if self.parts.load(Relaxed) > 1 {
                    more();
                }
            }
        }
    }

    fn fail(&self, panic: &(dyn std::any::Any + Send)) {
        self.broken.store(true, Relaxed);
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(panicked(panic));
    }

    /// Nothing of it was done.
    pub(super) fn leave_out(&self) {
        self.early.store(true, Relaxed);
    }

    /// What became of it: its time where it was asked for, or why it failed.
    pub(super) fn outcome(&self) -> Result<Option<u64>, Failure> {
        if self.broken.load(Relaxed)
            && let Some(error) = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            return Err(Failure::Broke(error));
        }
        if self.early.load(Relaxed) {
            return Err(Failure::Stopped);
        }
        let timed = self.timed.load(Relaxed);
        Ok(timed.then(|| self.ended.load(Relaxed).saturating_sub(self.began.load(Relaxed)).max(1)))
    }
}

/// Why work did not end well.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It was told to stop.
    Stopped,
    /// Something else.
    Broke(BackendError),
}

/// The error of work that panicked.
pub(super) fn panicked(panic: &(dyn std::any::Any + Send)) -> BackendError {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    BackendError::new(format!("the launch panicked: {}", text.unwrap_or("no message")))
}
