//! Two threads of an engine: one ends launches at their deadlines, one tells those who asked when work is over. They are two because a
//! driver may keep whoever asks it about work waiting until that very work ends.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
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

/// Each thread is started by the first who needs it and ends when the engine is gone and nothing is left to watch.
pub(crate) struct Watcher {
    /// A job that nobody else knows any more needs no end.
    deadlines: Arc<Watched<(Instant, Weak<Job>)>>,
    waiting: Arc<Watched<(Arc<Job>, WhenDone)>>,
}

struct Watched<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    list: Vec<T>,
    has_thread: bool,
    closed: bool,
}

/// How long one job is waited for before the others are looked at.
const LOOK: Duration = Duration::from_millis(4);

impl Watcher {
    pub(crate) fn new() -> Watcher {
        Watcher { deadlines: Arc::new(Watched::new()), waiting: Arc::new(Watched::new()) }
    }

    /// The engine is gone: threads end when nothing is left to watch. Who holds a launch may still ask to be told of its end.
    pub(crate) fn close(&self) {
        self.deadlines.close();
        self.waiting.close();
    }

    /// Readies what ends launches at a deadline, if there is one. It is asked for before anything is launched, so that no launch runs whose
    /// deadline can't be kept.
    pub(crate) fn alarm(&self, deadline: Option<Instant>) -> Result<Option<Alarm<'_>>, Error> {
        let Some(deadline) = deadline else { return Ok(None) };
        self.deadlines.serve(&mut lock(&self.deadlines.state), "vyre-deadlines", end_late)?;
        Ok(Some(Alarm { watcher: self, deadline }))
    }

    /// Does something when a job is over; at once where it is.
    pub(crate) fn when_done(&self, job: &Arc<Job>, action: WhenDone) -> Result<(), Error> {
        if job.is_over() {
            act(job, action);
            return Ok(());
        }
        let mut state = lock(&self.waiting.state);
        self.waiting.serve(&mut state, "vyre-waiter", tell_done)?;
        self.waiting.add(state, (job.clone(), action));
        Ok(())
    }
}

/// Ends jobs at a time. The engine is there while it is, so that its thread is too.
pub(crate) struct Alarm<'a> {
    watcher: &'a Watcher,
    deadline: Instant,
}

impl Alarm<'_> {
    /// Cancels a job when the time has come.
    pub(crate) fn end(&self, job: &Arc<Job>) {
        let deadlines = &self.watcher.deadlines;
        deadlines.add(lock(&deadlines.state), (self.deadline, Arc::downgrade(job)));
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

/// Ends what is late. Nothing is asked of a device here but to end a launch.
fn end_late(watched: &Watched<(Instant, Weak<Job>)>) {
    let mut state = lock(&watched.state);
    loop {
        let now = Instant::now();
        let late: Vec<Arc<Job>> =
            extract(&mut state.list, |(at, _)| *at <= now).filter_map(|(_, job)| job.upgrade()).collect();
        state.list.retain(|(_, job)| job.upgrade().is_some_and(|job| !job.is_settled()));
        if !late.is_empty() {
            drop(state);
            for job in late {
                // A job that is over needs no end, and a device that is lost has ended it.
                if let Err(error) = job.cancel(true) {
                    tracing::warn!(code = error.code(), "a launch can't be told to end: {}", error.message());
                }
            }
            state = lock(&watched.state);
            continue;
        }
        if state.closed && state.list.is_empty() {
            state.has_thread = false;
            return;
        }
        let nearest = state.list.iter().map(|(at, _)| at.saturating_duration_since(now)).min();
        state = watched.wait(state, nearest);
    }
}

/// Tells who asked.
fn tell_done(watched: &Watched<(Arc<Job>, WhenDone)>) {
    let mut state = lock(&watched.state);
    loop {
        let done: Vec<(Arc<Job>, WhenDone)> = extract(&mut state.list, |(job, _)| job.is_over()).collect();
        let first = state.list.first().map(|(job, _)| job.clone());
        if done.is_empty() && first.is_none() {
            if state.closed {
                state.has_thread = false;
                return;
            }
            state = watched.wait(state, None);
            continue;
        }
        drop(state);
        if done.is_empty()
            && let Some(job) = first
        {
            // How it ended is asked above.
            let _ = job.device.backend.wait(job.ticket, Some(LOOK));
        }
        for (job, action) in done {
            act(&job, action);
        }
        state = lock(&watched.state);
    }
}

impl<T: Send + 'static> Watched<T> {
    fn new() -> Watched<T> {
        Watched {
            state: Mutex::new(State { list: Vec::new(), has_thread: false, closed: false }),
            changed: Condvar::new(),
        }
    }

    /// Starts the thread if it does not run.
    fn serve(self: &Arc<Self>, state: &mut State<T>, name: &str, serve: fn(&Watched<T>)) -> Result<(), Error> {
        if !state.has_thread {
            let shared = Arc::clone(self);
            let started = std::thread::Builder::new().name(name.to_owned()).spawn(move || serve(&shared));
            started.map_err(|error| {
                vyre_driver::BackendError::new(format!("the system gives no thread to watch launches: {error}"))
            })?;
            state.has_thread = true;
        }
        Ok(())
    }

    fn add(&self, mut state: MutexGuard<'_, State<T>>, entry: T) {
        state.list.push(entry);
        drop(state);
        self.changed.notify_one();
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State<T>>, limit: Option<Duration>) -> MutexGuard<'a, State<T>> {
        match limit {
            Some(limit) => self.changed.wait_timeout(state, limit).unwrap_or_else(PoisonError::into_inner).0,
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
        }
    }

    fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify_one();
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
