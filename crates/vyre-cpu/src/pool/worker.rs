//! A thread of the pool and how it is called.

use std::sync::atomic::{
    AtomicU8, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst,
};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
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
/// Somebody is about to call it.
const CLAIMED: u8 = 3;
const CALLED: u8 = 4;

/// A thread of the pool, on cache lines of its own.
#[repr(align(128))]
pub(super) struct Worker<W> {
    /// Which of them it is, from 1 on; callers who help are 0.
    pub(super) place: usize,
    manner: AtomicU8,
    call: Mutex<Option<Call<W>>>,
    /// Of its private memory.
    scratch_bytes: AtomicUsize,
    thread: OnceLock<Thread>,
}

impl<W> Worker<W> {
    pub(super) fn new(place: usize) -> Worker<W> {
        Worker {
            place,
            manner: AtomicU8::new(BUSY),
            call: Mutex::new(None),
            scratch_bytes: AtomicUsize::new(0),
            thread: OnceLock::new(),
        }
    }

    /// Bytes of its private memory.
    pub(super) fn scratch_bytes(&self) -> usize {
        self.scratch_bytes.load(Relaxed)
    }

    /// It has private memory of so many bytes from now on; under the lock.
    pub(super) fn has_scratch(&self, bytes: usize) {
        self.scratch_bytes.store(bytes, Relaxed);
    }

    /// Keeps it from sleeping and from others, if it rests.
    pub(super) fn claim(&self) -> Option<Claim> {
        let manner = self.manner.load(SeqCst);
        let rests = matches!(manner, LOOKS_OUT | ASLEEP);
        if rests && self.change(manner, CLAIMED) {
            return Some(Claim { asleep: manner == ASLEEP });
        }
        // It may have fallen asleep in between.
        (manner == LOOKS_OUT && self.change(ASLEEP, CLAIMED)).then_some(Claim { asleep: true })
    }

    /// The same if it is awake.
    pub(super) fn claim_awake(&self) -> Option<Claim> {
        let awake = self.manner.load(SeqCst) == LOOKS_OUT && self.change(LOOKS_OUT, CLAIMED);
        awake.then_some(Claim { asleep: false })
    }

    /// Calls it, who was claimed, for something, or to look for itself. True when it has to be woken then.
    pub(super) fn call(&self, claim: Claim, call: Option<Call<W>>) -> bool {
        if let Some(scratch) = call.as_ref().and_then(|call| call.scratch.as_ref()) {
            self.has_scratch(scratch.bytes());
        }
        *self.call.lock().unwrap_or_else(PoisonError::into_inner) = call;
        self.manner.store(CALLED, Release);
        claim.asleep
    }

    fn change(&self, from: u8, to: u8) -> bool {
        self.manner.compare_exchange(from, to, SeqCst, SeqCst).is_ok()
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
        self.manner.store(LOOKS_OUT, SeqCst);
    }

    /// Takes itself back. False when somebody is calling it.
    pub(super) fn rise(&self) -> bool {
        self.change(LOOKS_OUT, BUSY)
    }

    /// Waits for a call, after [`Worker::rest`].
    pub(super) fn wait(&self) -> Option<Call<W>> {
        let until = Instant::now() + LOOK;
        loop {
            for _ in 0..LOOKS {
                if self.manner.load(Acquire) == CALLED {
                    self.manner.store(BUSY, Relaxed);
                    return self.call.lock().unwrap_or_else(PoisonError::into_inner).take();
                }
                std::hint::spin_loop();
            }
            if Instant::now() > until && (self.change(LOOKS_OUT, ASLEEP) || self.manner.load(Relaxed) == ASLEEP) {
                std::thread::park();
            }
        }
    }
}

/// A thread that rests, and waits until it is called with this.
#[must_use]
pub(super) struct Claim {
    asleep: bool,
}
