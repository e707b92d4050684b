//! Pieces of work under way, each with its own fate.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Instant;

use smallvec::SmallVec;
use vyre_driver::BackendError;
use vyre_driver::backend::{Completion, Ticket};
use vyre_spec::{Diagnostic, codes};

use super::Device;
use crate::Error;
use crate::engine::lock;

/// One piece of work on a device. It is done when the device is done with it and everything that it read was good; else it has failed,
/// and what it wrote is lost.
pub(crate) struct Job {
    pub(crate) device: Arc<Device>,
    pub(crate) ticket: Ticket,
    label: Option<Arc<str>>,
    state: AtomicU8,
    ending: AtomicU8,
    error: OnceLock<Error>,
    device_ns: OnceLock<u64>,
    /// When the launch began and when the device had it, where it is to be known how long who waits for it has to wait.
    launched: OnceLock<[Instant; 2]>,
    waited_ns: OnceLock<u64>,
    /// Those whose results it works on and whose fate was not known when it was launched.
    parents: Mutex<Parents>,
    /// Somebody was told of the failure.
    told: AtomicBool,
    /// One of those who hold it is the engine itself, which waits for its time and is nobody to be told.
    awaited: AtomicBool,
}

pub(super) type Parents = SmallVec<[Arc<Job>; 4]>;

const RUNNING: u8 = 0;
const DONE: u8 = 1;
const FAILED: u8 = 2;

/// Why a job was told to end.
const CANCELLED: u8 = 1;
const LATE: u8 = 2;

impl Job {
    fn new(device: Arc<Device>, ticket: Ticket, label: Option<Arc<str>>, parents: Parents) -> Job {
        Job {
            device,
            ticket,
            label,
            state: AtomicU8::new(RUNNING),
            ending: AtomicU8::new(0),
            error: OnceLock::new(),
            device_ns: OnceLock::new(),
            launched: OnceLock::new(),
            waited_ns: OnceLock::new(),
            parents: Mutex::new(parents),
            told: AtomicBool::new(false),
            awaited: AtomicBool::new(false),
        }
    }

    /// The engine begins, or ceases, to hold it for its time.
    pub(crate) fn set_awaited(&self, is_awaited: bool) {
        self.awaited.store(is_awaited, Ordering::Release);
    }

    /// Nobody but the engine holds it.
    fn is_left(self: &Arc<Job>) -> bool {
        Arc::strong_count(self) <= 1 + usize::from(self.awaited.load(Ordering::Acquire))
    }

    /// What became of it: `None` while it is not over. Never waits. Whoever asks is told.
    pub(crate) fn poll(&self) -> Option<Result<(), Error>> {
        let outcome = self.look();
        if matches!(outcome, Some(Err(_))) {
            self.told.store(true, Ordering::Relaxed);
        }
        outcome
    }

    fn look(&self) -> Option<Result<(), Error>> {
        match self.state.load(Ordering::Acquire) {
            DONE => Some(Ok(())),
            FAILED => Some(Err(self.failure())),
            _ => self.settle(self.device.backend.poll(self.ticket)),
        }
    }

    /// Whether it ended well; `None` while it is not known to be over. Nobody is told, and no device is asked.
    pub(crate) fn look_quietly(&self) -> Option<bool> {
        if self.is_known_over() { self.look().map(|outcome| outcome.is_ok()) } else { None }
    }

    /// It is known to be done, and well. Asks no device.
    pub(crate) fn is_good(&self) -> bool {
        self.is_known_over() && matches!(self.look(), Some(Ok(())))
    }

    /// The device is known to be done with it, whatever came of it. Asks no device, so it costs a launch nothing.
    pub(crate) fn is_known_over(&self) -> bool {
        self.is_settled() || self.device.backend.is_over(self.ticket)
    }

    /// Somebody has seen that it is over. Asks no device.
    pub(crate) fn is_settled(&self) -> bool {
        self.state.load(Ordering::Acquire) != RUNNING
    }

    /// Somebody has seen that it ended well. Asks no device.
    pub(crate) fn is_done(&self) -> bool {
        self.state.load(Ordering::Acquire) == DONE
    }

    /// The device is done with it, whatever came of it.
    pub(crate) fn is_over(&self) -> bool {
        self.state.load(Ordering::Acquire) != RUNNING || !matches!(self.device.backend.poll(self.ticket), Ok(None))
    }

    /// Waits for its end, at most until the deadline; false when that came first.
    pub(crate) fn wait(&self, deadline: Option<Instant>) -> Result<bool, Error> {
        let since = self.launched.get().map(|&[began, had]| (began, had, Instant::now()));
        loop {
            if let Some(outcome) = self.poll() {
                if let Some((began, had, since)) = since {
                    let all = began.elapsed();
                    // Who did something else in between would have waited less.
                    if (since - had) * 8 <= all {
                        let _ = self.waited_ns.set(all.as_nanos() as u64);
                    }
                }
                return outcome.map(|()| true);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let waited = self.device.backend.wait(self.ticket, left);
            if self.settle(waited).is_some() {
                continue;
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(false);
            }
        }
    }

    fn settle(&self, outcome: Result<Option<Completion>, BackendError>) -> Option<Result<(), Error>> {
        match outcome {
            Ok(None) => None,
            Ok(Some(completion)) => {
                let parents = lock(&self.parents);
                if parents.iter().all(|parent| parent.is_done()) {
                    drop(parents);
                } else if let Some(outcome) = self.settle_after(parents) {
                    return outcome;
                }
                if let Some(ns) = completion.device_ns {
                    let _ = self.device_ns.set(ns);
                }
                // Another thread may have seen meanwhile that a parent failed, and let go of the parents.
                if let Err(FAILED) = self.state.compare_exchange(RUNNING, DONE, Ordering::AcqRel, Ordering::Acquire) {
                    return Some(Err(self.failure()));
                }
                lock(&self.parents).clear();
                Some(Ok(()))
            }
            Err(error) => Some(Err(self.fail(self.describe(error)))),
        }
    }

    /// Settles those that it comes after; what it ends with where that is not for the device to say.
    fn settle_after(&self, parents: MutexGuard<'_, Parents>) -> Option<Option<Result<(), Error>>> {
        let known = parents.clone();
        drop(parents);
        settle_ancestors(&known);
        for parent in &known {
            match parent.look() {
                None => return Some(None),
                Some(Err(error)) => return Some(Some(Err(self.fail(error)))),
                Some(Ok(())) => {}
            }
        }
        None
    }

    fn describe(&self, error: BackendError) -> Error {
        let name = self.name();
        if error.code() != codes::backend::STOPPED.id {
            let error = Error::from(error);
            return error.retold(format!("{name} failed: {}", error.message()));
        }
        match self.ending.load(Ordering::Acquire) {
            LATE => Diagnostic::new(&codes::backend::TIMEOUT, format!("{name} was stopped at its timeout")).into(),
            _ => Diagnostic::new(&codes::engine::CANCELLED, format!("{name} was cancelled")).into(),
        }
    }

    fn name(&self) -> String {
        match &self.label {
            Some(label) => format!("launch `{label}`"),
            None => "a launch".to_owned(),
        }
    }

    /// It has failed, whatever the device says of it; the device is done with it.
    pub(crate) fn fail(&self, error: Error) -> Error {
        let error = self.error.get_or_init(|| error).clone();
        self.state.store(FAILED, Ordering::Release);
        lock(&self.parents).clear();
        error
    }

    fn failure(&self) -> Error {
        match self.error.get() {
            Some(error) => error.clone(),
            None => BackendError::new("a launch failed").into(),
        }
    }

    /// Waits for the device to be done with it, without being told how it ended.
    pub(crate) fn wait_quietly(&self) {
        while !self.is_over() && self.device.backend.wait(self.ticket, None).is_ok() {}
    }

    /// Time on the device, where it was measured and it is done.
    pub(crate) fn device_ns(&self) -> Option<u64> {
        self.device_ns.get().copied()
    }

    /// It was launched then, and the device has it now: how long who waits for it at once has to wait is to be known, if it waits for no
    /// other work.
    pub(crate) fn is_launched(&self, began: Instant) {
        if lock(&self.parents).is_empty() {
            let _ = self.launched.set([began, Instant::now()]);
        }
    }

    /// How long it took from its launch until its end was known to who waited for it at once, where somebody did.
    pub(crate) fn waited_ns(&self) -> Option<u64> {
        self.waited_ns.get().copied()
    }

    /// Tells it to end.
    pub(crate) fn cancel(&self, late: bool) -> Result<(), Error> {
        let why = if late { LATE } else { CANCELLED };
        let _ = self.ending.compare_exchange(0, why, Ordering::AcqRel, Ordering::Acquire);
        Ok(self.device.backend.cancel(self.ticket)?)
    }

    /// An error that nobody was told of.
    fn untold(&self) -> Option<Error> {
        match self.look() {
            Some(Err(error)) if !self.told.swap(true, Ordering::Relaxed) => Some(error),
            _ => None,
        }
    }
}

/// Settles what jobs come after, the oldest first. A long chain would take too much stack if each job settled the one before it.
fn settle_ancestors(jobs: &[Arc<Job>]) {
    let unsettled = |jobs: &[Arc<Job>]| -> Vec<Arc<Job>> {
        let found = jobs.iter().flat_map(|job| lock(&job.parents).clone());
        found.filter(|parent| !parent.is_settled()).collect()
    };
    let (mut order, mut seen) = (Vec::new(), HashSet::new());
    let mut next = unsettled(jobs);
    while let Some(job) = next.pop() {
        if seen.insert(Arc::as_ptr(&job)) {
            next.extend(unsettled(std::slice::from_ref(&job)));
            order.push(job);
        }
    }
    // A job is found after one of those that come after it; whatever the order leaves out is at most a few steps down.
    for job in order.iter().rev() {
        let _ = job.look();
    }
}

/// Every job that somebody may still ask about, in the order of launching; those that nobody holds any more are used again.
#[derive(Default)]
pub(crate) struct Jobs(Mutex<VecDeque<Arc<Job>>>);

impl Jobs {
    /// A new job. What an old one in its place had to tell is told to `notice`.
    pub(crate) fn start(
        &self,
        device: &Arc<Device>,
        ticket: Ticket,
        label: Option<&Arc<str>>,
        parents: Parents,
        notice: &dyn Fn(Error),
    ) -> Arc<Job> {
        let mut jobs = lock(&self.0);
        // A job whose last array waits for its next writer stays for long, so a few are looked at; one that runs will still do so next
        // time, and most behind it, too.
        let mut running = 0;
        for _ in 0..4 {
            let Some(mut job) = jobs.pop_front() else { break };
            if !job.is_known_over() {
                jobs.push_back(job);
                running += 1;
                if running == 2 {
                    break;
                }
                continue;
            }
            // Seen to be over, it lets go of those before it, which are then used again.
            let _ = job.look();
            match Arc::get_mut(&mut job) {
                Some(old) => {
                    if let Some(error) = old.untold() {
                        notice(error);
                    }
                    old.device.backend.forget(old.ticket);
                    if Arc::ptr_eq(&old.device, device) {
                        old.ticket = ticket;
                        old.label = label.cloned();
                        *old.state.get_mut() = RUNNING;
                        *old.ending.get_mut() = 0;
                        old.error = OnceLock::new();
                        old.device_ns = OnceLock::new();
                        old.launched = OnceLock::new();
                        old.waited_ns = OnceLock::new();
                        *old.parents.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner) = parents;
                        *old.told.get_mut() = false;
                    } else {
                        *old = Job::new(device.clone(), ticket, label.cloned(), parents);
                    }
                    jobs.push_back(job.clone());
                    return job;
                }
                None => jobs.push_back(job),
            }
        }
        let job = Arc::new(Job::new(device.clone(), ticket, label.cloned(), parents));
        jobs.push_back(job.clone());
        job
    }

    /// Waits for everything that is under way. The errors that nobody was told of are given.
    pub(crate) fn finish(&self) -> Vec<Error> {
        let all: Vec<Arc<Job>> = lock(&self.0).iter().cloned().collect();
        for job in &all {
            job.wait_quietly();
        }
        drop(all);
        self.untold()
    }

    /// Errors of work that is over, that nobody holds, and that nobody was told of. Such work is forgotten.
    pub(crate) fn untold(&self) -> Vec<Error> {
        let mut errors = Vec::new();
        lock(&self.0).retain(|job| {
            let done = job.is_left() && job.is_over();
            if done {
                errors.extend(job.untold());
                job.device.backend.forget(job.ticket);
            }
            !done
        });
        errors
    }
}

#[cfg(test)]
mod tests {
    use vyre_driver::backend::NullBackend;

    use super::*;
    use crate::runtime::Watcher;

    /// Two threads learn at once that the device is done with a job: one sees that a parent failed and lets go of the parents, the other
    /// finds none.
    #[test]
    fn what_has_failed_is_never_found_to_be_good() {
        let watcher = Arc::new(Watcher::new());
        let device = Arc::new(Device::new(Arc::new(NullBackend::new()), 1, None, &watcher));
        let job = |parents| Arc::new(Job::new(device.clone(), Ticket { queue: 0, number: 1 }, None, parents));
        let parent = job(Parents::new());
        let child = job(Parents::from_iter([parent.clone()]));
        parent.fail(Diagnostic::new(&codes::engine::CANCELLED, "it was cancelled").into());
        for _ in 0..2 {
            let outcome = child.settle(Ok(Some(Completion::default())));
            assert_eq!(outcome.unwrap().unwrap_err().code(), codes::engine::CANCELLED.id);
        }
        assert!(!child.is_good());
    }
}
