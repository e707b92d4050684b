//! Launches in the order of submission. Small ones run at once on the caller's thread; the others on a thread of the queue,
//! which spreads them over the cores, unless somebody waits for them before that thread is there.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use vyre_driver::BackendError;
use vyre_spec::codes;

use crate::launch::Stop;

/// One launch, ready to run until it is told to stop.
pub(crate) type Work = Box<dyn FnOnce(&Stop) -> Result<(), BackendError> + Send>;

struct Job {
    number: u64,
    work: Work,
    stop: Stop,
}

#[derive(Default)]
struct State {
    submitted: u64,
    completed: u64,
    waiting: VecDeque<Job>,
    /// Number and stop of the launch that runs now.
    running: Option<(u64, Stop)>,
    /// What went wrong with launches that nobody has asked about yet.
    failed: VecDeque<(u64, BackendError)>,
    has_thread: bool,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Failures that are remembered for callers that have not waited yet.
const REMEMBERED: usize = 256;

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn finish(&self, number: u64, outcome: Result<(), BackendError>) {
        let mut state = self.lock();
        state.running = None;
        state.completed = number;
        if let Err(error) = outcome {
            if state.failed.len() == REMEMBERED {
                state.failed.pop_front();
            }
            state.failed.push_back((number, error));
        }
        drop(state);
        self.changed.notify_all();
    }

    fn serve(&self) {
        loop {
            let mut state = self.lock();
            let job = loop {
                if state.running.is_none()
                    && let Some(job) = state.waiting.pop_front()
                {
                    break job;
                }
                if state.closed {
                    return;
                }
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            };
            drop(self.start(state, job));
        }
    }

    /// Runs a launch that is the next one.
    fn start<'a>(&'a self, mut state: MutexGuard<'a, State>, job: Job) -> MutexGuard<'a, State> {
        state.running = Some((job.number, job.stop.clone()));
        drop(state);
        let outcome = if job.stop.is_set() { Ok(()) } else { (job.work)(&job.stop) };
        self.finish(job.number, outcome);
        self.lock()
    }
}

/// The queue of one backend.
#[derive(Default)]
pub(crate) struct Queue(Arc<Shared>);

impl Queue {
    /// Submits a launch. With `inline`, it runs at once if nothing is before it.
    pub(crate) fn submit(&self, inline: bool, work: Work) -> Result<u64, BackendError> {
        // Waiting for this queue inside a pool could keep the pool from the very work that is waited for.
        let inline = inline || rayon::current_thread_index().is_some();
        let mut state = self.0.lock();
        let stop = Stop::default();
        if inline && state.running.is_none() && state.waiting.is_empty() {
            state.submitted += 1;
            let number = state.submitted;
            state.running = Some((number, stop.clone()));
            drop(state);
            let outcome = work(&stop);
            self.0.finish(number, outcome);
            return Ok(number);
        }
        if !state.has_thread {
            let shared = Arc::clone(&self.0);
            let started = std::thread::Builder::new().name("vyre-cpu-queue".into()).spawn(move || shared.serve());
            if let Err(error) = started {
                return Err(BackendError::new(format!("the system gives no thread: {error}")));
            }
            state.has_thread = true;
        }
        state.submitted += 1;
        let number = state.submitted;
        state.waiting.push_back(Job { number, work, stop });
        drop(state);
        self.0.changed.notify_all();
        Ok(number)
    }

    /// Waits for a launch and all before it. When the time is over, stops them.
    pub(crate) fn wait(&self, number: u64, timeout: Option<Duration>) -> Result<(), BackendError> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut state = self.0.lock();
        if number > state.submitted {
            return Err(BackendError::new(format!("launch {number} was never submitted")));
        }
        let mut late = false;
        while state.completed < number {
            // Whoever has nothing else to do need not wake up the queue's thread, which takes longer than many a launch.
            if timeout.is_none()
                && state.running.is_none()
                && state.waiting.front().is_some_and(|job| job.number <= number)
            {
                if let Some(job) = state.waiting.pop_front() {
                    state = self.0.start(state, job);
                }
                continue;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            state = match left {
                Some(left) if !late => {
                    if left.is_zero() {
                        late = true;
                        let running = state.running.iter().filter(|(running, _)| *running <= number).map(|(_, s)| s);
                        let waiting = state.waiting.iter().filter(|job| job.number <= number).map(|job| &job.stop);
                        running.chain(waiting).for_each(Stop::set);
                        continue;
                    }
                    self.0.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
                _ => self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
        if late {
            return Err(BackendError::with_code(&codes::backend::TIMEOUT, "the launch was stopped at its timeout"));
        }
        match state.failed.iter().position(|(failed, _)| *failed == number) {
            Some(position) => Err(state
                .failed
                .remove(position)
                .map_or_else(|| BackendError::new("a launch failed"), |(_, error)| error)),
            None => Ok(()),
        }
    }

    /// Waits for everything that was submitted.
    pub(crate) fn drain(&self) {
        let mut state = self.0.lock();
        while state.completed < state.submitted {
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.closed = true;
        // Nobody can ask for the results any more.
        state.running.iter().map(|(_, stop)| stop).chain(state.waiting.iter().map(|job| &job.stop)).for_each(Stop::set);
        drop(state);
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    use super::*;

    #[test]
    fn launches_run_in_order_and_all() {
        let queue = Queue::default();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut last = 0;
        for number in 0..100 {
            let seen = Arc::clone(&seen);
            let work = move |_: &Stop| {
                seen.lock().unwrap().push(number);
                Ok(())
            };
            last = queue.submit(number % 3 == 0, Box::new(work)).unwrap();
        }
        queue.wait(last, None).unwrap();
        assert_eq!(*seen.lock().unwrap(), (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn many_who_wait_run_every_launch_once_and_in_order() {
        let queue = Queue::default();
        let seen = Mutex::new(Vec::new());
        let running = Arc::new(AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let running = Arc::clone(&running);
                        let work = move |_: &Stop| {
                            assert_eq!(running.fetch_add(1, SeqCst), 0, "one at a time");
                            std::thread::yield_now();
                            running.fetch_sub(1, SeqCst);
                            Ok(())
                        };
                        let number = queue.submit(false, Box::new(work)).unwrap();
                        queue.wait(number, None).unwrap();
                        seen.lock().unwrap().push(number);
                    }
                });
            }
        });
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        assert_eq!(seen, (1..=800).collect::<Vec<_>>());
    }

    #[test]
    fn a_late_launch_is_stopped_and_the_next_one_runs() {
        let queue = Queue::default();
        let endless = |stop: &Stop| {
            while !stop.is_set() {
                std::thread::yield_now();
            }
            Ok(())
        };
        let late = queue.submit(false, Box::new(endless)).unwrap();
        let error = queue.wait(late, Some(Duration::from_millis(5))).unwrap_err();
        assert_eq!(error.code(), codes::backend::TIMEOUT.id);
        let count = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&count);
        let next = queue.submit(
            false,
            Box::new(move |_| {
                counted.fetch_add(1, SeqCst);
                Err(BackendError::new("as planned"))
            }),
        );
        let error = queue.wait(next.unwrap(), None).unwrap_err();
        assert_eq!((error.message(), count.load(SeqCst)), ("as planned", 1));
        assert!(queue.wait(99, None).is_err());
    }
}
