//! A thread of the pool and how it is called.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
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
const CALLED: u8 = 3;

/// How a thread rests.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Rest {
    Awake,
    Asleep,
}

/// What a thread looks at while it waits is alone on its cache line: whoever writes its call is not held up by its looks.
#[repr(align(64))]
struct Manner(AtomicU8);

/// A thread of the pool, on cache lines of its own.
#[repr(align(128))]
pub(super) struct Worker<W> {
    /// Which of them it is, from 1 on; callers who help are 0.
    pub(super) place: usize,
    manner: Manner,
    call: Mutex<Option<Call<W>>>,
    /// Of its private memory.
    scratch_bytes: AtomicUsize,
    thread: OnceLock<Thread>,
}

impl<W> Worker<W> {
    pub(super) fn new(place: usize) -> Worker<W> {
        Worker {
            place,
            manner: Manner(AtomicU8::new(BUSY)),
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

    /// How it rests, if it does.
    pub(super) fn rests(&self) -> Option<Rest> {
        match self.manner.0.load(SeqCst) {
            LOOKS_OUT => Some(Rest::Awake),
            ASLEEP => Some(Rest::Asleep),
            _ => None,
        }
    }

    /// Calls it for something, or to look for itself, and says whether it has to be woken then. Gives the call back where it does not rest any
    /// more. Only under the lock, so that nobody else calls it; it looks at the call only once it is called.
    pub(super) fn call(&self, call: Option<Call<W>>) -> Result<bool, Option<Call<W>>> {
        let scratch_bytes = call.as_ref().and_then(|call| call.scratch.as_ref()).map(Scratch::bytes);
        *self.slot() = call;
        // It may fall asleep in between, but does not rise from its sleep by itself.
        let asleep = !self.change(LOOKS_OUT, CALLED);
        if asleep && !self.change(ASLEEP, CALLED) {
            return Err(self.slot().take());
        }
        if let Some(bytes) = scratch_bytes {
            self.has_scratch(bytes);
        }
        Ok(asleep)
    }

    fn slot(&self) -> MutexGuard<'_, Option<Call<W>>> {
        self.call.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, from: u8, to: u8) -> bool {
        self.manner.0.compare_exchange(from, to, SeqCst, SeqCst).is_ok()
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
        self.manner.0.store(LOOKS_OUT, SeqCst);
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
                if self.manner.0.load(Acquire) == CALLED {
                    self.manner.0.store(BUSY, Relaxed);
                    return self.slot().take();
                }
                std::hint::spin_loop();
            }
            if Instant::now() > until && (self.change(LOOKS_OUT, ASLEEP) || self.manner.0.load(Relaxed) == ASLEEP) {
                std::thread::park();
            }
        }
    }
}
