use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::Error;
use crate::runtime::{Job, WhenDone};

/// A launch that is under way. Dropping it lets the work go on; an error that nobody was told of becomes a notice of the engine.
///
/// It is a [`Future`] that any executor can run.
pub struct Launch {
    /// `None` where the work was done when the call returned.
    job: Option<Arc<Job>>,
    /// Other pieces of it that began before.
    others: Vec<Arc<Job>>,
}

impl Launch {
    pub(crate) fn new(job: Option<Arc<Job>>) -> Launch {
        Launch { job, others: Vec::new() }
    }

    /// Several pieces of work, of which one is the last.
    pub(crate) fn of_many(others: Vec<Arc<Job>>, last: Arc<Job>) -> Launch {
        Launch { job: Some(last), others }
    }

    fn jobs(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.others.iter().chain(&self.job)
    }

    /// It is over, well or not.
    pub fn is_done(&self) -> bool {
        self.jobs().all(|job| job.is_over())
    }

    /// Waits for its end. An error is why it failed, or why something that it needed did.
    pub fn wait(&self) -> Result<(), Error> {
        self.jobs().try_for_each(|job| job.wait(None).map(drop))
    }

    /// Waits for its end, but not longer than this; false when it goes on.
    pub fn wait_timeout(&self, limit: Duration) -> Result<bool, Error> {
        let deadline = Instant::now().checked_add(limit);
        for job in self.jobs() {
            if !job.wait(deadline)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Tells it to end. What it would have written is lost, unless it was done before it noticed. A launch that was made without
    /// `cancellable` or `timeout`, and a replay of a graph that was recorded without `cancellable`, ends only where it has not begun.
    pub fn cancel(&self) -> Result<(), Error> {
        self.jobs().try_for_each(|job| job.cancel(false))
    }

    /// Calls a function when it is over, on a thread of the engine, or at once.
    pub fn on_done(&self, call: impl FnOnce(Result<(), Error>) + Send + 'static) -> Result<(), Error> {
        when_all_done(self.jobs().cloned().collect(), Box::new(call))
    }

    /// Time on the device, where it was measured and the launch is done.
    pub fn device_time(&self) -> Option<Duration> {
        let job = self.job.as_ref().filter(|job| job.is_good())?;
        job.device_ns().map(Duration::from_nanos)
    }
}

/// Calls a function when all of several pieces of work are over, or the first has failed.
fn when_all_done(mut jobs: VecDeque<Arc<Job>>, call: Box<dyn FnOnce(Result<(), Error>) + Send>) -> Result<(), Error> {
    let Some(first) = jobs.pop_front() else {
        call(Ok(()));
        return Ok(());
    };
    if jobs.is_empty() {
        return first.device.watcher.when_done(&first, WhenDone::Call(call));
    }
    let next = move |outcome: Result<(), Error>| match outcome {
        Ok(()) => {
            // The thread that tells of this one is there, and so tells of the next.
            let _ = when_all_done(jobs, call);
        }
        Err(error) => call(Err(error)),
    };
    first.device.watcher.when_done(&first, WhenDone::Call(Box::new(next)))
}

impl Future for Launch {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        for job in self.jobs() {
            match job.poll() {
                Some(Ok(())) => {}
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => {
                    let asked = job.device.watcher.when_done(job, WhenDone::Wake(context.waker().clone()));
                    return asked.map_or_else(|error| Poll::Ready(Err(error)), |()| Poll::Pending);
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl std::fmt::Debug for Launch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Launch({})", if self.is_done() { "over" } else { "under way" })
    }
}
