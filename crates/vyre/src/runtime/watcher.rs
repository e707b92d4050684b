//! One thread of an engine that ends launches at their deadlines and tells those who asked when work is over.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use super::Job;
use crate::Error;
use crate::engine::lock;

/// What is done when a job is over.
pub(crate) enum WhenDone {
    Wake(Waker),
    Call(Box<dyn FnOnce(Result<(), Error>) + Send>),
}

/// Started by the first who needs it, ended with the engine.
pub(crate) struct Watcher(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// A job that nobody else knows any more needs no end.
    deadlines: Vec<(Instant, Weak<Job>)>,
    waiting: Vec<(Arc<Job>, WhenDone)>,
    has_thread: bool,
    closed: bool,
}

/// How long the watcher waits for one job before it looks at the others.
const LOOK: Duration = Duration::from_millis(4);

impl Watcher {
    pub(crate) fn new() -> Watcher {
        Watcher(Arc::default())
    }

    /// Cancels a job at a time.
    pub(crate) fn end_at(&self, deadline: Instant, job: &Arc<Job>) -> Result<(), Error> {
        self.add(|state| state.deadlines.push((deadline, Arc::downgrade(job))))
    }

    /// Does something when a job is over; at once where it is.
    pub(crate) fn when_done(&self, job: &Arc<Job>, action: WhenDone) -> Result<(), Error> {
        if job.is_over() {
            act(job, action);
            return Ok(());
        }
        self.add(|state| state.waiting.push((job.clone(), action)))
    }

    fn add(&self, change: impl FnOnce(&mut State)) -> Result<(), Error> {
        let mut state = lock(&self.0.state);
        if !state.has_thread {
            let shared = Arc::clone(&self.0);
            let started = std::thread::Builder::new().name("vyre-watcher".into()).spawn(move || shared.run());
            started.map_err(|error| {
                vyre_driver::BackendError::new(format!("the system gives no thread for deadlines: {error}"))
            })?;
            state.has_thread = true;
        }
        change(&mut state);
        drop(state);
        self.0.changed.notify_one();
        Ok(())
    }
}

fn act(job: &Arc<Job>, action: WhenDone) {
    match action {
        WhenDone::Wake(waker) => waker.wake(),
        WhenDone::Call(call) => {
            // Whoever is called was told.
            if let Some(outcome) = job.poll() {
                call(outcome);
            }
        }
    }
}

impl Shared {
    fn run(&self) {
        let mut state = lock(&self.state);
        loop {
            let now = Instant::now();
            let late: Vec<Arc<Job>> =
                extract(&mut state.deadlines, |(at, _)| *at <= now).filter_map(|(_, job)| job.upgrade()).collect();
            state.deadlines.retain(|(_, job)| job.upgrade().is_some_and(|job| !job.is_over()));
            let done: Vec<(Arc<Job>, WhenDone)> = extract(&mut state.waiting, |(job, _)| job.is_over()).collect();
            if !late.is_empty() || !done.is_empty() {
                drop(state);
                for job in late {
                    // A job that is over needs no end, and a device that is lost has ended it.
                    if let Err(error) = job.cancel(true) {
                        tracing::warn!(code = error.code(), "a launch can't be told to end: {}", error.message());
                    }
                }
                for (job, action) in done {
                    act(&job, action);
                }
                state = lock(&self.state);
                continue;
            }
            if state.closed && state.waiting.is_empty() && state.deadlines.is_empty() {
                return;
            }
            let nearest = state.deadlines.iter().map(|(at, _)| at.saturating_duration_since(now)).min();
            match state.waiting.first().map(|(job, _)| job.clone()) {
                Some(job) => {
                    drop(state);
                    let limit = nearest.unwrap_or(LOOK).min(LOOK);
                    // How it ended is asked above.
                    let _ = job.device.backend.wait(job.ticket, Some(limit));
                    drop(job);
                    state = lock(&self.state);
                }
                None => {
                    state = match nearest {
                        Some(left) => self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
                        None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                    };
                }
            }
        }
    }
}

/// Takes out what fits.
fn extract<T>(list: &mut Vec<T>, mut fits: impl FnMut(&T) -> bool) -> std::vec::IntoIter<T> {
    let mut taken = Vec::new();
    let mut at = 0;
    while at < list.len() {
        if fits(&list[at]) {
            taken.push(list.swap_remove(at));
        } else {
            at += 1;
        }
    }
    taken.into_iter()
}

impl Drop for Watcher {
    fn drop(&mut self) {
        lock(&self.0.state).closed = true;
        self.0.changed.notify_one();
    }
}
