//! A thread of the pool and how it is called.

use std::cell::UnsafeCell;
use std::sync::atomic::{
    AtomicU8, AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst, fence,
};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use super::job::Job;
use crate::memory::Scratch;

/// What a thread is called for. It was counted as one that works there, so that it needs no lock to begin.
pub(super) struct Call<W> {
    pub(super) job: Arc<Job<W>>,
    pub(super) serial: u64,
    pub(super) lane: usize,
    /// Private memory in the place of what the thread has.
    pub(super) scratch: Option<Scratch>,
}

/// How long a thread looks for a call before it sleeps. To be woken takes about half of that on an idle machine, and launches that
/// come one after another find all threads awake.
const LOOK: Duration = Duration::from_micros(50);

/// Looks between two looks at the clock.
const LOOKS: usize = 16;

/// At work, or not yet there.
const BUSY: u8 = 0;
/// Waits to be called, and looks for it.
const LOOKS_OUT: u8 = 1;
/// Waits to be called, and sleeps.
const ASLEEP: u8 = 2;

/// How a thread rests.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Rest {
    Awake,
    Asleep,
}

/// What became of a thread that wanted to look for work itself.
pub(super) enum Rise<W> {
    /// It is at work now, and cannot be called.
    Free,
    /// It was called before.
    Called(Option<Call<W>>),
}

/// The right to call threads of a pool. There is one for each pool, under its lock.
#[derive(Default)]
pub(super) struct Calling(());

/// What the thread itself says of itself: one line of memory for callers to ask for.
#[repr(align(64))]
struct Manner {
    rest: AtomicU8,
    /// How many calls it has taken.
    taken: AtomicU64,
    /// Of its private memory.
    scratch_bytes: AtomicUsize,
}

/// What a thread looks at while it waits. Callers write it without asking what is there, so that to call many threads takes little longer than to call
/// one.
#[repr(align(64))]
struct Desk<W> {
    /// How many calls there were.
    calls: AtomicU64,
    call: UnsafeCell<Option<Call<W>>>,
}

// SAFETY: while all calls are taken, the next one belongs to who has the right to call, of whom there is one at a time; from then on to the thread, until
// it says that it has taken it.
unsafe impl<W> Sync for Desk<W> where Call<W>: Send {}

/// A thread of the pool, on cache lines of its own.
#[repr(align(128))]
pub(super) struct Worker<W> {
    /// Which of them it is, from 1 on; callers who help are 0.
    pub(super) place: usize,
    thread: OnceLock<Thread>,
    manner: Manner,
    desk: Desk<W>,
    /// How many calls there were, for callers, who would wait for the desk's line.
    calls: AtomicU64,
}

impl<W> Worker<W> {
    pub(super) fn new(place: usize) -> Worker<W> {
        Worker {
            place,
            thread: OnceLock::new(),
            manner: Manner { rest: AtomicU8::new(BUSY), taken: AtomicU64::new(0), scratch_bytes: AtomicUsize::new(0) },
            desk: Desk { calls: AtomicU64::new(0), call: UnsafeCell::new(None) },
            calls: AtomicU64::new(0),
        }
    }

    /// Bytes of its private memory.
    pub(super) fn scratch_bytes(&self) -> usize {
        self.manner.scratch_bytes.load(Relaxed)
    }

    /// It has private memory of so many bytes from now on; under the lock.
    pub(super) fn has_scratch(&self, bytes: usize) {
        self.manner.scratch_bytes.store(bytes, Relaxed);
    }

    /// How it rests, if it does and was not called; under the lock.
    pub(super) fn rests(&self) -> Option<Rest> {
        // First, as it is said last.
        if self.manner.taken.load(Acquire) != self.calls.load(Relaxed) {
            return None;
        }
        match self.manner.rest.load(SeqCst) {
            LOOKS_OUT => Some(Rest::Awake),
            ASLEEP => Some(Rest::Asleep),
            _ => None,
        }
    }

    /// Calls it for something, or to look for itself. It has to rest: only who has the right to call it can change that. Whether it has to be woken is to
    /// be [asked](asleep_among) after this.
    pub(super) fn call(&self, _: &mut Calling, call: Option<Call<W>>) {
        assert!(self.rests().is_some(), "a thread is called that does not rest");
        if let Some(scratch) = call.as_ref().and_then(|call| call.scratch.as_ref()) {
            self.has_scratch(scratch.bytes());
        }
        // SAFETY: it has taken all calls, and the caller has the one right to make another.
        unsafe { *self.desk.call.get() = call };
        let calls = self.calls.load(Relaxed) + 1;
        self.calls.store(calls, Relaxed);
        self.desk.calls.store(calls, Release);
    }

    /// There is a call that it has not taken.
    fn is_called(&self) -> bool {
        self.desk.calls.load(Acquire) != self.manner.taken.load(Relaxed)
    }

    /// Takes the call, after which it is at work.
    fn take(&self) -> Option<Call<W>> {
        // SAFETY: it is called, and this is its own thread.
        let call = unsafe { &mut *self.desk.call.get() }.take();
        // First: nobody may find it resting and not called.
        self.manner.rest.store(BUSY, Relaxed);
        self.manner.taken.store(self.manner.taken.load(Relaxed) + 1, Release);
        call
    }

    /// Wakes it. It takes some microseconds, so never under the lock.
    pub(super) fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// From now on it can be called. It has to look for work once more after this, since it was not called for what came before.
    pub(super) fn rest(&self) {
        self.thread.get_or_init(std::thread::current);
        self.manner.rest.store(LOOKS_OUT, SeqCst);
    }

    /// Takes itself back, under the lock, so that nobody is calling it meanwhile.
    pub(super) fn rise(&self) -> Rise<W> {
        if self.is_called() {
            return Rise::Called(self.take());
        }
        self.manner.rest.store(BUSY, Release);
        Rise::Free
    }

    /// Waits for a call, after [`Worker::rest`].
    pub(super) fn wait(&self) -> Option<Call<W>> {
        let until = Instant::now() + LOOK;
        while Instant::now() <= until {
            for _ in 0..LOOKS {
                if self.is_called() {
                    return self.take();
                }
                std::hint::spin_loop();
            }
        }
        self.manner.rest.store(ASLEEP, Relaxed);
        // Either it sees the call now, or whoever calls it sees that it sleeps.
        fence(SeqCst);
        while !self.is_called() {
            std::thread::park();
        }
        self.take()
    }
}

/// Those of some threads, which were just called, that have to be woken for it.
pub(super) fn asleep_among<'a, W: 'a>(
    called: impl Iterator<Item = &'a Arc<Worker<W>>>,
) -> impl Iterator<Item = Arc<Worker<W>>> {
    fence(SeqCst);
    called.filter(|worker| worker.manner.rest.load(Relaxed) == ASLEEP).map(Arc::clone)
}
