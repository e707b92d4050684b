//! What a piece of work comes after, gathered from the arrays that it uses.

use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;
use vyre_driver::backend::{Order, Ticket};
use vyre_spec::{Diagnostic, codes};

use super::{Device, Job, Storage};
use crate::Error;

/// What a launch has to come after, gathered from its arrays.
#[derive(Default)]
pub(crate) struct Deps {
    pub(crate) after: SmallVec<[Ticket; 8]>,
    pub(crate) parents: SmallVec<[Arc<Job>; 4]>,
    /// The queue of what it continues.
    pub(crate) queue: Option<u32>,
    pub(crate) moved_bytes: u64,
    pub(crate) move_ns: u64,
    /// Some of what it works on is a caller's own memory, moved or where it is.
    pub(crate) is_lent: bool,
    pub(crate) deadline: Option<Instant>,
    /// What is ready for this work stays where it is until the work is known.
    pins: SmallVec<[Arc<Storage>; 8]>,
}

impl Drop for Deps {
    fn drop(&mut self) {
        for storage in &self.pins {
            storage.unpin();
        }
    }
}

impl Deps {
    /// Work that gives up at a deadline.
    pub(crate) fn until(deadline: Option<Instant>) -> Deps {
        let mut deps = Deps::default();
        deps.deadline = deadline;
        deps
    }

    /// Keeps an array where it is, whose count of those who do so is `pinned`.
    pub(super) fn pin(&mut self, storage: &Arc<Storage>, pinned: &mut u32) {
        *pinned += 1;
        self.pins.push(storage.clone());
    }

    pub(super) fn come_after(&mut self, device: &Device, job: &Job) {
        if std::ptr::eq(&*job.device, device) && !job.is_known_over() {
            self.come_after_running(job);
        }
    }

    /// Comes after a job of the same device that is not known to be over.
    pub(super) fn come_after_running(&mut self, job: &Job) {
        self.after_ticket(job.ticket);
        self.queue = Some(job.ticket.queue);
    }

    pub(super) fn after_ticket(&mut self, ticket: Ticket) {
        match self.after.iter_mut().find(|known| known.queue == ticket.queue) {
            Some(known) => known.number = known.number.max(ticket.number),
            None => self.after.push(ticket),
        }
    }

    pub(crate) fn order(&self, queue: u32) -> Order<'_> {
        Order { queue, after: &self.after, deadline: self.deadline }
    }

    pub(super) fn wait_for(&self, job: &Job) -> Result<(), Error> {
        if job.wait(self.deadline)? { Ok(()) } else { Err(late()) }
    }

    /// Waits until the device is done with a job, however it ended.
    pub(super) fn wait_for_end(&self, job: &Job) -> Result<(), Error> {
        match job.wait(self.deadline) {
            Ok(false) => Err(late()),
            Ok(true) | Err(_) => Ok(()),
        }
    }
}

pub(crate) fn late() -> Error {
    Diagnostic::new(&codes::backend::TIMEOUT, "the work that this needs was not done in time").into()
}
