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
    /// Other pieces of it, which are over when that one is.
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

    /// It is over, well or not.
    pub fn is_done(&self) -> bool {
        self.job.as_ref().is_none_or(|job| job.is_over())
    }

    /// Waits for its end. An error is why it failed, or why something that it needed did.
    pub fn wait(&self) -> Result<(), Error> {
        match &self.job {
            Some(job) => job.wait(None).map(drop),
            None => Ok(()),
        }
    }

    /// Waits for its end, but not longer than this; false when it goes on.
    pub fn wait_timeout(&self, limit: Duration) -> Result<bool, Error> {
        match &self.job {
            Some(job) => job.wait(Instant::now().checked_add(limit)),
            None => Ok(true),
        }
    }

    /// Tells it to end. What it would have written is lost, unless it was done before it noticed. A launch that was made without
    /// `cancellable` or `timeout`, and a replay of a graph that was recorded without `cancellable`, ends only where it has not begun.
    pub fn cancel(&self) -> Result<(), Error> {
        self.others.iter().chain(&self.job).try_for_each(|job| job.cancel(false))
    }

    /// Calls a function when it is over, on a thread of the engine, or at once.
    pub fn on_done(&self, call: impl FnOnce(Result<(), Error>) + Send + 'static) -> Result<(), Error> {
        match &self.job {
            Some(job) => job.device.watcher.when_done(job, WhenDone::Call(Box::new(call))),
            None => {
                call(Ok(()));
                Ok(())
            }
        }
    }

    /// Time on the device, where it was measured and the launch is done.
    pub fn device_time(&self) -> Option<Duration> {
        let job = self.job.as_ref().filter(|job| job.is_good())?;
        job.device_ns().map(Duration::from_nanos)
    }
}

impl Future for Launch {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(job) = &self.job else { return Poll::Ready(Ok(())) };
        if let Some(outcome) = job.poll() {
            return Poll::Ready(outcome);
        }
        match job.device.watcher.when_done(job, WhenDone::Wake(context.waker().clone())) {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl std::fmt::Debug for Launch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Launch({})", if self.is_done() { "over" } else { "under way" })
    }
}
