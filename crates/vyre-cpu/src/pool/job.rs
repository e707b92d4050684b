//! One piece of work, shared by the threads that do it.

use std::cell::UnsafeCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::sync::{Mutex, PoisonError};
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

/// Bits of a cursor that count parts that were taken; those above say of which of all phases that the job ever had.
const PART_BITS: u32 = 40;
const PARTS: u64 = (1 << PART_BITS) - 1;
const ONE_PHASE: u64 = PARTS + 1;

/// Most shares that the parts of a phase are dealt out in.
const MOST_SHARES: usize = 64;

/// How long a caller looks for the end of work that others are about to finish before he sleeps. To be woken takes about as long.
pub(super) const LONGEST_STAY: Duration = Duration::from_micros(100);

/// Work that few threads were called for takes longer than was expected when one of them has worked for so long.
const LONG: Duration = Duration::from_micros(60);

/// A number that is alone on its cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Alone(AtomicU64);

/// Work that is changed while nobody is at its job and read by those who are.
#[derive(Debug, Default)]
struct Held<W>(UnsafeCell<W>);

// SAFETY: it is shared like a `RwLock`, and the gate of its job is the lock.
unsafe impl<W: Send + Sync> Sync for Held<W> {}

/// Who is at one job, in one word: so that a thread which was called can come, and the last one knows that it is, without a lock.
/// From below: threads inside, threads that are or were called to be, whether all is done, and the number of the entry. Nobody
/// comes after all is done, nor with the number of another entry: jobs are filled again while threads may still be on their way.
#[derive(Debug)]
struct Gate(Alone);

impl Default for Gate {
    fn default() -> Gate {
        Gate(Alone(AtomicU64::new(Gate::OVER)))
    }
}

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

    /// All is done, and so many are still inside.
    fn is_over_but_for(&self, inside: u64) -> bool {
        let now = self.now();
        now & Self::OVER != 0 && now & Self::COUNT == inside
    }

    /// Nobody may come any more. False where somebody has.
    fn shut(&self) -> bool {
        let is_empty = |gate: u64| (gate & Self::COUNT == 0).then_some(gate | Self::OVER);
        self.0.0.fetch_update(AcqRel, Acquire, is_empty).is_ok()
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
    work: Held<W>,
    pub(super) stop: Stop,
    /// How many parts of each share are taken, and in which phase. Those of another phase than the current one have none taken: who takes the first one
    /// says so, because to change all of them would take longer than some launches.
    cursors: Box<[Alone]>,
    /// Threads at work at once.
    threads: usize,
    gate: Gate,
    /// The phase, as the cursors count them, and all its parts. Written seldom.
    current: Alone,
    /// Which phase of the work that is.
    phase: AtomicUsize,
    /// Parts of the phase that are not done, or that whoever did them has not said so yet.
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
            work: Held::default(),
            stop: Stop::default(),
            cursors: (0..threads.clamp(1, MOST_SHARES)).map(|_| Alone(AtomicU64::new(0))).collect(),
            threads: threads.max(1),
            gate: Gate::default(),
            current: Alone::default(),
            phase: AtomicUsize::new(0),
            left: Alone::default(),
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

    /// Fills in work that is to be done as an entry with this number. What was to be done before is over.
    pub(super) fn fill(&self, serial: u64, timed: bool, fill: impl FnOnce(&mut W)) {
        assert!(self.gate.is_over_but_for(0), "a job is filled while somebody is at it");
        // SAFETY: nobody is inside, and nobody comes before the gate is opened for this entry; only who has the entry fills it.
        let work = unsafe { &mut *self.work.0.get() };
        fill(work);
        self.stop.reset();
        self.timed.store(timed, Relaxed);
        self.began.store(u64::MAX, Relaxed);
        self.ended.store(0, Relaxed);
        for flag in [&self.early, &self.broken] {
            flag.store(false, Relaxed);
        }
        self.brief.store(work.is_brief(), Relaxed);
        let few = work.threads_at_first();
        // Whoever waits for it works on it, too: with as many others as there are cores, one of them would push another from his.
        self.most.store(few.any.min(self.threads - 1).max(1), Relaxed);
        self.most_awake.store(few.awake.min(self.threads - 1).max(1), Relaxed);
        let begins = self.begin(work, 0);
        self.gate.open(serial);
        if !begins {
            self.gate.close();
        }
    }

    /// Lets go of everything that the work uses, which is over or was never begun.
    pub(super) fn clear(&self) {
        assert!(self.gate.shut(), "a job is cleared while somebody is at it");
        // SAFETY: nobody is inside, and nobody comes any more; only who ends the entry clears it.
        unsafe { &mut *self.work.0.get() }.clear();
    }

    /// Makes the first phase from `phase` on that has parts the current one, when all parts before are done. False where there is none.
    fn begin(&self, work: &W, phase: usize) -> bool {
        let Some(next) = (phase..work.phases()).find(|&phase| work.parts(phase) > 0) else { return false };
        let parts = work.parts(next);
        let mut at = (self.current.0.load(Relaxed) & !PARTS).wrapping_add(ONE_PHASE);
        if at == 0 {
            // Cursors that were not moved for so long would seem to have been moved in phases that come. Nobody moves one now.
            self.cursors.iter().for_each(|cursor| cursor.0.store(0, Relaxed));
            at = ONE_PHASE;
        }
        self.phase.store(next, Relaxed);
        self.left.0.store(parts, Relaxed);
        self.current.0.store(at | parts, Release);
        true
    }

    /// The parts of a share of so many.
    fn share(&self, parts: u64, share: usize) -> Range<u64> {
        let all = self.cursors.len() as u64;
        // Few parts are for few threads, and nobody knows for which.
        let shares = if parts < all { 1 } else { all };
        let first = |share: u64| (u128::from(parts) * u128::from(share.min(shares)) / u128::from(shares)) as u64;
        first(share as u64)..first(share as u64 + 1)
    }

    /// The parts of a share that nobody has taken where its cursor and the current phase are as given.
    fn untaken_of(&self, share: usize, cursor: u64, current: u64) -> Range<u64> {
        let parts = self.share(current & PARTS, share);
        let taken = if (cursor ^ current) & !PARTS == 0 { cursor & PARTS } else { 0 };
        parts.start + taken..parts.end
    }

    /// The next part of a share that nobody has taken, and its phase.
    fn take(&self, share: usize) -> Option<(usize, u64)> {
        let cursor = &self.cursors[share].0;
        let mut at = cursor.load(Acquire);
        loop {
            // Later than the cursor: a phase whose parts are not all taken goes on, so if the cursor is as it was, this is the phase.
            let current = self.current.0.load(Acquire);
            let mut parts = self.untaken_of(share, at, current);
            let part = parts.next()?;
            let taken = part + 1 - self.share(current & PARTS, share).start;
            match cursor.compare_exchange(at, current & !PARTS | taken, AcqRel, Acquire) {
                Ok(_) => return Some((self.phase.load(Relaxed), part)),
                Err(now) => at = now,
            }
        }
    }

    /// Parts of the phase that nobody has taken.
    fn untaken(&self) -> u64 {
        if self.is_alone() {
            // Whoever goes has said what he did.
            return if self.is_over() { 0 } else { self.left.0.load(Acquire) };
        }
        let current = self.current.0.load(Acquire);
        let left = |(share, cursor): (usize, &Alone)| {
            let parts = self.untaken_of(share, cursor.0.load(Acquire), current);
            parts.end.saturating_sub(parts.start)
        };
        if self.is_over() { 0 } else { self.cursors.iter().enumerate().map(left).sum() }
    }

    /// The phase is still the one in which somebody has found no more parts.
    pub(super) fn is_still(&self, seen: Seen) -> bool {
        Seen(self.current.0.load(Acquire)) == seen
    }

    /// So many threads are called, which then come by themselves; under the lock, while the job is that of an entry.
    pub(super) fn call(&self, threads: usize) {
        self.gate.call(threads as u64);
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

    /// There are parts that nobody has taken.
    pub(super) fn has_parts(&self) -> bool {
        self.untaken() > 0
    }

    /// Threads that are still to be called for it.
    pub(super) fn wanted(&self) -> usize {
        let crew = self.gate.crew();
        let on_their_way = crew.saturating_sub(self.gate.inside());
        let parts = usize::try_from(self.untaken().saturating_sub(on_their_way)).unwrap_or(usize::MAX);
        parts.min(self.most.load(Relaxed).saturating_sub(crew as usize))
    }

    /// Threads that are worth to be called at first, where those that are more than [`Job::wanted`] are awake.
    pub(super) fn wanted_awake(&self) -> usize {
        if !self.is_alone() {
            return 0;
        }
        usize::try_from(self.untaken()).unwrap_or(usize::MAX).min(self.most_awake.load(Relaxed))
    }

    /// Takes parts and runs them until there are none or the time is over, those of one place first. Calls `more` when there are parts for others who were not
    /// called so far: of a new phase, or of work that takes longer than was expected. Only who has come and is not gone helps. Gives which phase had no
    /// more parts.
    pub(super) fn help(
        &self,
        place: usize,
        scratch: &mut Scratch,
        epoch: Instant,
        until: Option<Instant>,
        more: impl Fn(),
    ) -> Seen {
        // SAFETY: it is changed by nobody while somebody is inside the gate.
        let work = unsafe { &*self.work.0.get() };
        let timed = self.timed.load(Relaxed);
        let clock = || u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if timed {
            self.began.fetch_min(clock(), Relaxed);
        }
        let mut few = Some(Instant::now());
        let own = place % self.cursors.len();
        let (mut share, mut without) = (own, 0);
        // Parts of the phase that were done and not said to be: all who work would wait for one another to say so after each part. The phase goes on
        // until it is said.
        let (mut done, mut in_phase) = (0, 0);
        let now = || Seen(self.current.0.load(Acquire));
        let mut seen = now();
        let say = |done: &mut u64, phase: usize| {
            let done = std::mem::take(done);
            if done > 0 && self.left.0.fetch_sub(done, AcqRel) == done {
                if !self.begin(work, phase + 1) {
                    self.gate.close();
                } else if self.left.0.load(Relaxed) > 1 {
                    more();
                }
            }
        };
        while without < self.cursors.len() && !self.is_over() && until.is_none_or(|until| Instant::now() < until) {
            let Some((phase, part)) = self.take(share) else {
                say(&mut done, in_phase);
                let current = now();
                // Each phase is begun where the one before was, whose data this thread has.
                let goes_on = current == seen;
                (share, without) = if goes_on { ((share + 1) % self.cursors.len(), without + 1) } else { (own, 0) };
                seen = current;
                continue;
            };
            (without, in_phase, seen) = (0, phase, now());
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
                self.ended.fetch_max(clock(), Relaxed);
            }
            done += 1;
            if share != own {
                say(&mut done, phase);
            }
            if few.is_some_and(|began| began.elapsed() > LONG) {
                few = None;
                if self.most.swap(usize::MAX, Relaxed) < usize::MAX && self.has_parts() {
                    more();
                }
            }
        }
        say(&mut done, in_phase);
        seen
    }

    /// Who waits for the work, and has found no more parts, stays inside until all others are gone: he ends it sooner than he would hear of its end
    /// from the last of them. False when there is another phase, `leaves` says so, it takes long or the time is over.
    pub(super) fn outstays(&self, seen: Seen, until: Option<Instant>, leaves: impl Fn() -> bool) -> bool {
        let stay = Instant::now() + LONGEST_STAY;
        let until = until.map_or(stay, |until| until.min(stay));
        while !self.gate.is_over_but_for(1) {
            if !self.is_still(seen) || leaves() || Instant::now() >= until {
                return false;
            }
            std::hint::spin_loop();
        }
        true
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

/// The phase in which somebody has found no more parts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen(u64);

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

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Counted(Vec<u64>);

    impl Work for Counted {
        fn phases(&self) -> usize {
            self.0.len()
        }

        fn parts(&self, phase: usize) -> u64 {
            self.0[phase]
        }

        fn run(&self, _: usize, _: u64, _: &mut Scratch, _: &Stop) -> bool {
            true
        }

        fn is_brief(&self) -> bool {
            true
        }

        fn threads_at_first(&self) -> Threads {
            Threads::ALL
        }

        fn clear(&mut self) {
            self.0.clear();
        }
    }

    /// Every part of each phase is taken once, by whichever shares, also when the number of phases that there ever were begins anew.
    #[test]
    fn parts_are_taken_once_however_many_phases_there_were() {
        let job = Job::<Counted>::new(4);
        for (serial, before) in [(1, 0), (2, 7 * ONE_PHASE), (3, !PARTS - ONE_PHASE), (4, !PARTS)] {
            job.current.0.store(before, Relaxed);
            let phases = [3, 0, 10, 1, 5];
            job.fill(serial, false, |work| work.0.extend(phases));
            job.call(1);
            assert!(job.come(serial));
            for (phase, &parts) in phases.iter().enumerate().filter(|(_, parts)| **parts > 0) {
                assert_eq!(job.untaken(), parts);
                let mut taken = Vec::new();
                for share in [2, 0, 3, 1] {
                    taken.extend(std::iter::from_fn(|| job.take(share)));
                }
                taken.sort_unstable();
                assert_eq!(taken, (0..parts).map(|part| (phase, part)).collect::<Vec<_>>());
                assert_eq!(job.untaken(), 0);
                // SAFETY: nobody fills or clears it meanwhile.
                let more = job.begin(unsafe { &*job.work.0.get() }, phase + 1);
                assert_eq!(more, phase + 1 < phases.len());
            }
            job.gate.close();
            assert!(!job.come(serial) && job.go());
            job.clear();
        }
    }
}
