//! One piece of work, shared by the threads that do it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

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

    /// Every part of it ends soon, whatever is in its buffers.
    fn is_brief(&self) -> bool;

    /// Threads that should be called for it before it has shown that it takes long.
    fn threads_at_first(&self) -> Threads;

    /// Lets go of everything that it uses.
    fn clear(&mut self);
}

/// Threads that some work is worth.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Threads {
    /// Though they sleep.
    pub(crate) any: usize,
    /// All in all, where the others are awake.
    pub(crate) awake: usize,
}

impl Threads {
    pub(crate) const ALL: Threads = Threads { any: usize::MAX, awake: usize::MAX };
}

/// Bits of a cursor that count parts; those above count phases.
const PART_BITS: u32 = 40;

/// Most shares that the parts of a phase are dealt out in.
const MOST_SHARES: usize = 64;

/// Parts of a share below which dealing them out costs more than it gains.
const FEWEST_PARTS: u64 = 2;

/// Work that few threads were called for takes longer than was expected when one of them has worked for so long.
const LONG: Duration = Duration::from_micros(60);

/// A number that is alone on its cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Alone(AtomicU64);

/// Who is at one job, in one word: so that a thread which was called can come, and the last one knows that it is, without a lock.
/// From below: threads inside, threads that are or were called to be, whether all is done, and the number of the entry. Nobody
/// comes after all is done, nor with the number of another entry: jobs are filled again while threads may still be on their way.
#[derive(Debug)]
struct Gate(Alone);

impl Gate {
    const INSIDE: u64 = 1;
    const CALLED: u64 = 1 << 14;
    const OVER: u64 = 1 << 28;
    const SERIAL: u64 = 1 << 29;
    const COUNT: u64 = Self::CALLED - 1;

    fn open(&self, serial: u64) {
        self.0.0.store(serial.wrapping_mul(Self::SERIAL), Release);
    }

    fn now(&self) -> u64 {
        self.0.0.load(Acquire)
    }

    fn close(&self) {
        self.0.0.fetch_or(Self::OVER, AcqRel);
    }

    fn is_over(&self) -> bool {
        self.now() & Self::OVER != 0
    }

    fn inside(&self) -> u64 {
        self.now() & Self::COUNT
    }

    /// Threads that are inside or were called.
    fn crew(&self) -> u64 {
        (self.now() / Self::CALLED) & Self::COUNT
    }

    fn call(&self, threads: u64) {
        self.0.0.fetch_add(threads * Self::CALLED, AcqRel);
    }

    fn call_off(&self, threads: u64) {
        self.0.0.fetch_sub(threads * Self::CALLED, AcqRel);
    }

    fn come(&self, serial: u64, was_called: bool) -> bool {
        let more = Self::INSIDE + if was_called { 0 } else { Self::CALLED };
        let may = |gate: u64| gate / Self::SERIAL == serial % (u64::MAX / Self::SERIAL + 1) && gate & Self::OVER == 0;
        self.0.0.fetch_update(AcqRel, Acquire, |gate| may(gate).then(|| gate + more)).is_ok()
    }

    /// True for the last one when all is done.
    fn go(&self) -> bool {
        let before = self.0.0.fetch_sub(Self::INSIDE + Self::CALLED, AcqRel);
        before & Self::OVER != 0 && before & Self::COUNT == Self::INSIDE
    }
}

/// Work with its progress. Kept and filled again, so that a launch needs no memory of its own.
///
/// The parts of a phase are dealt out in shares of neighbours, one for each thread, who takes from others when his own is done. A
/// thread so gets the same parts when the same work comes again, and finds their data where it left them, in the caches of its core.
#[derive(Debug)]
pub(super) struct Job<W> {
    pub(super) work: RwLock<W>,
    pub(super) stop: Stop,
    /// Phase and next part of each share.
    cursors: Box<[Alone]>,
    /// Threads at work at once.
    threads: usize,
    gate: Gate,
    /// Parts of the phase that are not done.
    left: Alone,
    /// Something was left out because of the stop word.
    early: AtomicBool,
    broken: AtomicBool,
    failure: Mutex<Option<BackendError>>,
    timed: AtomicBool,
    brief: AtomicBool,
    /// Threads that may be called for it.
    most: AtomicUsize,
    /// The same where those that are more than these are awake, as long as nobody was called.
    most_awake: AtomicUsize,
    /// Nanoseconds since the pool began: when the first part began, when the last one ended.
    began: AtomicU64,
    ended: AtomicU64,
}

impl<W: Work> Job<W> {
    /// A job without work, for so many threads at once.
    pub(super) fn new(threads: usize) -> Job<W> {
        Job {
            work: RwLock::default(),
            stop: Stop::default(),
            cursors: (0..threads.clamp(1, MOST_SHARES)).map(|_| Alone(AtomicU64::new(0))).collect(),
            threads: threads.max(1),
            gate: Gate(Alone(AtomicU64::new(0))),
            left: Alone(AtomicU64::new(0)),
            early: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            failure: Mutex::default(),
            timed: AtomicBool::new(false),
            brief: AtomicBool::new(false),
            most: AtomicUsize::new(usize::MAX),
            most_awake: AtomicUsize::new(usize::MAX),
            began: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        }
    }

    /// Makes a job ready whose work was just filled in, as an entry with this number; nobody is at it.
    pub(super) fn reset(&self, serial: u64, timed: bool) {
        self.stop.reset();
        self.timed.store(timed, Relaxed);
        self.began.store(u64::MAX, Relaxed);
        self.ended.store(0, Relaxed);
        for flag in [&self.early, &self.broken] {
            flag.store(false, Relaxed);
        }
        for cursor in &self.cursors {
            cursor.0.store(0, Relaxed);
        }
        let work = self.work.read().unwrap_or_else(PoisonError::into_inner);
        self.brief.store(work.is_brief(), Relaxed);
        let few = work.threads_at_first();
        // Whoever waits for it works on it, too: with as many others as there are cores, one of them would push another from his.
        self.most.store(few.any.min(self.threads - 1).max(1), Relaxed);
        self.most_awake.store(few.awake.min(self.threads - 1).max(1), Relaxed);
        self.gate.open(serial);
        self.enter(&work, 0);
    }

    /// Goes to the first phase from `phase` on that has parts.
    fn enter(&self, work: &W, phase: usize) {
        let next = (phase..work.phases()).find(|&phase| work.parts(phase) > 0);
        self.left.0.store(next.map_or(0, |phase| work.parts(phase)), Relaxed);
        if next.is_none() {
            self.gate.close();
            return;
        }
        let first = (next.unwrap_or(work.phases()) as u64) << PART_BITS;
        for cursor in &self.cursors {
            // Others may be done with this phase before this loop is: a cursor never goes back.
            cursor.0.fetch_max(first, Release);
        }
    }

    /// The next part of a share that nobody has taken, and its phase.
    fn take(&self, work: &W, share: usize) -> Option<(usize, u64)> {
        let part = |at: u64| {
            let (phase, index) = ((at >> PART_BITS) as usize, at & ((1 << PART_BITS) - 1));
            let parts = if phase < work.phases() { work.parts(phase) } else { 0 };
            let all = self.cursors.len() as u64;
            let shares = if parts < FEWEST_PARTS * all { 1 } else { all };
            let share = (share as u64).min(shares);
            let first = |share: u64| (u128::from(parts) * u128::from(share) / u128::from(shares)) as u64;
            (index < first((share + 1).min(shares)) - first(share)).then(|| (phase, first(share) + index))
        };
        let cursor = &self.cursors[share].0;
        // Looking is cheaper than taking where there is nothing left.
        part(cursor.load(Acquire))?;
        part(cursor.fetch_add(1, AcqRel))
    }

    /// So many threads are called, which then come by themselves; under the lock, while the job is that of an entry.
    pub(super) fn call(&self, threads: usize) {
        self.gate.call(threads as u64);
    }

    /// So many of them could not be called; under the same lock.
    pub(super) fn call_off(&self, threads: usize) {
        self.gate.call_off(threads as u64);
    }

    /// A thread that was called for the entry with this number begins to take parts. False when that is over.
    pub(super) fn come(&self, serial: u64) -> bool {
        self.gate.come(serial, true)
    }

    /// A thread that was not called begins to take parts, which may be one that waits for them.
    pub(super) fn drop_in(&self, serial: u64, waits: bool) -> bool {
        let comes = self.gate.come(serial, false);
        if comes && waits {
            // Where few were called, or all by now, nothing changes.
            let _ = self.most.compare_exchange(self.threads - 1, self.threads, Relaxed, Relaxed);
        }
        comes
    }

    /// A thread has found no more parts. True for the one that has to end the work: all parts are done, and nobody is left who works
    /// or could begin to.
    pub(super) fn go(&self) -> bool {
        self.gate.go()
    }

    /// Every part of it ends soon.
    pub(super) fn is_brief(&self) -> bool {
        self.brief.load(Relaxed)
    }

    /// All parts of all phases are done.
    pub(super) fn is_over(&self) -> bool {
        self.gate.is_over()
    }

    /// Nobody works on it or was called to.
    pub(super) fn is_alone(&self) -> bool {
        self.gate.crew() == 0
    }

    /// Fewer work on it, or were called to, than could at once.
    pub(super) fn has_place(&self) -> bool {
        self.gate.crew() < self.threads as u64
    }

    /// Threads that work on it; some more may be on their way.
    pub(super) fn inside(&self) -> usize {
        self.gate.inside() as usize
    }

    /// There are parts for more threads than work on it, each on one.
    pub(super) fn has_parts(&self) -> bool {
        self.left.0.load(Acquire) > self.gate.inside()
    }

    /// Threads that are still to be called for it.
    pub(super) fn wanted(&self) -> usize {
        let crew = self.gate.crew();
        let parts = usize::try_from(self.left.0.load(Acquire).saturating_sub(crew)).unwrap_or(usize::MAX);
        parts.min(self.most.load(Relaxed).saturating_sub(crew as usize))
    }

    /// Threads that are worth to be called at first, where those that are more than [`Job::wanted`] are awake.
    pub(super) fn wanted_awake(&self) -> usize {
        if !self.is_alone() {
            return 0;
        }
        usize::try_from(self.left.0.load(Acquire)).unwrap_or(usize::MAX).min(self.most_awake.load(Relaxed))
    }

    /// Takes parts and runs them until there are none or the time is over, those of one place first. Calls `more` when there are parts for others who were not
    /// called so far: of a new phase, or of work that takes longer than was expected.
    pub(super) fn help(
        &self,
        place: usize,
        scratch: &mut Scratch,
        epoch: Instant,
        until: Option<Instant>,
        more: impl Fn(),
    ) {
        let timed = self.timed.load(Relaxed);
        let now = || u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if timed {
            self.began.fetch_min(now(), Relaxed);
        }
        let mut few = Some(Instant::now());
        let work = self.work.read().unwrap_or_else(PoisonError::into_inner);
        let (mut share, mut without) = (place % self.cursors.len(), 0);
        while without < self.cursors.len() && !self.is_over() && until.is_none_or(|until| Instant::now() < until) {
            let Some((phase, part)) = self.take(&work, share) else {
                (share, without) = ((share + 1) % self.cursors.len(), without + 1);
                continue;
            };
            without = 0;
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
            if self.left.0.fetch_sub(1, AcqRel) == 1 {
                self.enter(&work, phase + 1);
                if self.left.0.load(Relaxed) > 1 {
                    more();
                }
            } else if few.is_some_and(|began| began.elapsed() > LONG) {
                few = None;
                if self.most.swap(usize::MAX, Relaxed) < usize::MAX && self.left.0.load(Relaxed) > 1 {
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

/// What the error of work that panicked begins with.
pub(crate) const PANICKED: &str = "the launch panicked: ";

/// The error of work that panicked.
pub(super) fn panicked(panic: &(dyn std::any::Any + Send)) -> BackendError {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    BackendError::new(format!("{PANICKED}{}", text.unwrap_or("no message")))
}
