//! What became of submitted work: the part of a device-resident backend that is the same for all of them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use vyre_spec::codes;

use super::{BackendError, Completion, Ticket};

/// The work of every queue of one backend: how much was submitted, how much is over, and what was unusual about it.
///
/// Work on a queue ends in the order of its numbers. Failures and times are kept until they are [forgotten](Ledger::forget), so that
/// whoever asks gets the same answer however late; all else takes no memory.
#[derive(Debug)]
pub struct Ledger {
    queues: Box<[Queue]>,
    /// Those of them that say that work was forgotten before it was over.
    forgotten: AtomicUsize,
    notes: Mutex<BTreeMap<Ticket, Note>>,
}

#[derive(Debug, Default)]
struct Queue {
    submitted: AtomicU64,
    completed: AtomicU64,
    /// The last number of which something was noted, so that who asks about later work needs no lock.
    noted: AtomicU64,
}

#[derive(Clone, Debug)]
enum Note {
    Failed(BackendError),
    Took(u64),
    /// Nobody will ask about work that was not over when that was said, so nothing is noted of it.
    Forgotten,
}

impl Ledger {
    /// A ledger of so many queues.
    pub fn new(queues: u32) -> Ledger {
        let queues = (0..queues.max(1)).map(|_| Queue::default()).collect();
        Ledger { queues, forgotten: AtomicUsize::new(0), notes: Mutex::default() }
    }

    fn queue(&self, queue: u32) -> Result<&Queue, BackendError> {
        self.queues.get(queue as usize).ok_or_else(|| {
            BackendError::with_code(
                &codes::backend::LIMIT,
                format!("there is no queue {queue}; the backend has {}", self.queues.len()),
            )
        })
    }

    fn notes(&self) -> MutexGuard<'_, BTreeMap<Ticket, Note>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, ticket: Ticket, note: Note) {
        let mut notes = self.notes();
        // The first failure is the cause of later ones.
        if !matches!(notes.get(&ticket), Some(Note::Failed(_) | Note::Forgotten)) {
            notes.insert(ticket, note);
            if let Some(queue) = self.queues.get(ticket.queue as usize) {
                queue.noted.fetch_max(ticket.number, Ordering::Release);
            }
        }
    }

    /// Something may be noted of work that is over: what there is to note is noted before that.
    fn may_be_noted(&self, ticket: Ticket) -> bool {
        let noted = |queue: &Queue| queue.noted.load(Ordering::Acquire) >= ticket.number;
        self.queues.get(ticket.queue as usize).is_some_and(noted)
    }

    /// The next number of a queue. Whoever calls it holds what keeps two submissions to one queue apart, so that numbers are in the
    /// order in which the device gets the work.
    pub fn submit(&self, queue: u32) -> Result<Ticket, BackendError> {
        let number = self.queue(queue)?.submitted.fetch_add(1, Ordering::AcqRel) + 1;
        Ok(Ticket { queue, number })
    }

    /// Refuses work that was never submitted.
    pub fn check(&self, ticket: Ticket) -> Result<(), BackendError> {
        if (1..=self.submitted(ticket.queue)?).contains(&ticket.number) {
            return Ok(());
        }
        Err(BackendError::with_code(
            &codes::backend::UNKNOWN_TICKET,
            format!("work {} was never submitted to queue {}", ticket.number, ticket.queue),
        ))
    }

    /// The last number that a queue has given.
    pub fn submitted(&self, queue: u32) -> Result<u64, BackendError> {
        Ok(self.queue(queue)?.submitted.load(Ordering::Acquire))
    }

    /// The last number that is over, with all before it.
    pub fn completed(&self, queue: u32) -> u64 {
        self.queues.get(queue as usize).map_or(0, |queue| queue.completed.load(Ordering::Acquire))
    }

    /// All work of a queue is over.
    pub fn is_idle(&self, queue: u32) -> bool {
        let is_idle = |queue: &Queue| {
            // In this order: what is submitted in between makes it look busy, not idle.
            let completed = queue.completed.load(Ordering::Acquire);
            queue.submitted.load(Ordering::Acquire) <= completed
        };
        self.queues.get(queue as usize).is_none_or(is_idle)
    }

    /// Work is over, and with it all before it on its queue. Failures and times of that work are told before this.
    pub fn complete(&self, ticket: Ticket) {
        if let Some(queue) = self.queues.get(ticket.queue as usize) {
            // In one order with what `forget` does, so that one of the two sees the other.
            queue.completed.fetch_max(ticket.number, Ordering::SeqCst);
            self.drop_forgotten(ticket);
        }
    }

    /// What was forgotten up to here before it was over has had its use.
    fn drop_forgotten(&self, last: Ticket) {
        if self.forgotten.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut notes = self.notes();
        let before = notes.len();
        notes.retain(|known, note| {
            !(matches!(note, Note::Forgotten) && known.queue == last.queue && known.number <= last.number)
        });
        self.forgotten.fetch_sub(before - notes.len(), Ordering::SeqCst);
    }

    /// Work is over.
    pub fn is_over(&self, ticket: Ticket) -> bool {
        self.completed(ticket.queue) >= ticket.number
    }

    /// Work failed. Told before the work is over.
    pub fn fail(&self, ticket: Ticket, error: BackendError) {
        self.note(ticket, Note::Failed(error));
    }

    /// Work took so long on the device. Told before the work is over.
    pub fn took(&self, ticket: Ticket, device_ns: u64) {
        self.note(ticket, Note::Took(device_ns));
    }

    /// What became of work: `None` while it is not over, the error that it ended with, or that it is done.
    pub fn outcome(&self, ticket: Ticket) -> Result<Option<Completion>, BackendError> {
        self.check(ticket)?;
        if !self.is_over(ticket) {
            return Ok(None);
        }
        if !self.may_be_noted(ticket) {
            return Ok(Some(Completion::default()));
        }
        match self.notes().get(&ticket) {
            Some(Note::Failed(error)) => Err(error.clone()),
            Some(Note::Took(ns)) => Ok(Some(Completion { device_ns: Some(*ns) })),
            Some(Note::Forgotten) | None => Ok(Some(Completion::default())),
        }
    }

    /// Nobody will ask about this work again, whether it is over or not.
    pub fn forget(&self, ticket: Ticket) {
        let is_over = self.is_over(ticket);
        if (is_over && !self.may_be_noted(ticket)) || self.check(ticket).is_err() {
            return;
        }
        let mut notes = self.notes();
        if is_over {
            notes.remove(&ticket);
        } else if !matches!(notes.insert(ticket, Note::Forgotten), Some(Note::Forgotten)) {
            self.forgotten.fetch_add(1, Ordering::SeqCst);
        }
        drop(notes);
        if !is_over && self.queues[ticket.queue as usize].completed.load(Ordering::SeqCst) >= ticket.number {
            self.drop_forgotten(ticket);
        }
    }

    /// Work is over and nothing was noted of it, so that there is nothing to ask about and nothing to forget.
    pub fn is_plainly_done(&self, ticket: Ticket) -> bool {
        self.is_over(ticket) && !self.may_be_noted(ticket) && self.check(ticket).is_ok()
    }

    /// The device is gone: everything that is not over fails with this error, and is over.
    pub fn lose_all(&self, error: &BackendError) {
        for (index, queue) in self.queues.iter().enumerate() {
            let submitted = queue.submitted.load(Ordering::Acquire);
            let completed = queue.completed.load(Ordering::Acquire);
            for number in completed + 1..=submitted {
                self.fail(Ticket { queue: index as u32, number }, error.clone());
            }
            queue.completed.fetch_max(submitted, Ordering::SeqCst);
            self.drop_forgotten(Ticket { queue: index as u32, number: submitted });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_over_in_order_and_failures_stay_until_they_are_forgotten() {
        let ledger = Ledger::new(2);
        let (first, second) = (ledger.submit(0).unwrap(), ledger.submit(0).unwrap());
        let other = ledger.submit(1).unwrap();
        assert_eq!(ledger.outcome(first), Ok(None));
        ledger.fail(first, BackendError::new("as planned"));
        ledger.took(second, 7);
        ledger.complete(second);
        for _ in 0..2 {
            assert_eq!(ledger.outcome(first).unwrap_err().message(), "as planned");
        }
        assert_eq!(ledger.outcome(second), Ok(Some(Completion { device_ns: Some(7) })));
        assert_eq!(ledger.outcome(other), Ok(None));
        ledger.forget(first);
        assert_eq!(ledger.outcome(first), Ok(Some(Completion::default())));
        assert!(ledger.outcome(Ticket { queue: 0, number: 3 }).is_err());
        assert!(ledger.outcome(Ticket { queue: 9, number: 1 }).is_err());
    }

    /// Work before and behind what something is noted of: each has its own answer.
    #[test]
    fn what_is_noted_of_one_is_not_said_of_others() {
        let ledger = Ledger::new(2);
        let tickets: Vec<Ticket> = (0..3).map(|_| ledger.submit(0).unwrap()).collect();
        let other = ledger.submit(1).unwrap();
        ledger.took(tickets[1], 7);
        ledger.complete(tickets[2]);
        ledger.complete(other);
        let times: Vec<_> = tickets.iter().map(|&ticket| ledger.outcome(ticket).unwrap().unwrap().device_ns).collect();
        assert_eq!(times, [None, Some(7), None]);
        let plainly: Vec<_> = tickets.iter().map(|&ticket| ledger.is_plainly_done(ticket)).collect();
        assert_eq!((plainly, ledger.is_plainly_done(other)), (vec![false, false, true], true));
        let (open, zero) = (ledger.submit(0).unwrap(), Ticket { queue: 0, number: 0 });
        assert!(!ledger.is_plainly_done(open) && !ledger.is_plainly_done(zero));
        assert_eq!(ledger.outcome(other), Ok(Some(Completion::default())));
        tickets.iter().for_each(|&ticket| ledger.forget(ticket));
        assert!(ledger.notes().is_empty());
    }

    #[test]
    fn there_is_no_work_zero() {
        let ledger = Ledger::new(1);
        let zero = Ticket { queue: 0, number: 0 };
        assert_eq!(ledger.outcome(zero).unwrap_err().code(), codes::backend::UNKNOWN_TICKET.id);
        ledger.complete(ledger.submit(0).unwrap());
        assert!(ledger.outcome(zero).is_err());
    }

    #[test]
    fn nothing_is_kept_of_work_that_was_forgotten_before_it_failed() {
        let ledger = Ledger::new(2);
        let (first, second) = (ledger.submit(0).unwrap(), ledger.submit(0).unwrap());
        let other = ledger.submit(1).unwrap();
        for ticket in [first, second, other] {
            ledger.forget(ticket);
        }
        ledger.fail(first, BackendError::new("too late"));
        ledger.took(second, 7);
        ledger.complete(second);
        ledger.lose_all(&BackendError::new("gone"));
        assert_eq!(ledger.forgotten.load(Ordering::Acquire), 0);
        assert!(ledger.notes().is_empty());
        // What was never submitted can't be forgotten either.
        ledger.forget(Ticket { queue: 0, number: 99 });
        assert!(ledger.notes().is_empty());
    }

    #[test]
    fn a_lost_device_fails_what_is_not_over() {
        let ledger = Ledger::new(1);
        let (done, open) = (ledger.submit(0).unwrap(), ledger.submit(0).unwrap());
        ledger.complete(done);
        ledger.lose_all(&BackendError::new("gone"));
        assert_eq!(ledger.outcome(done), Ok(Some(Completion::default())));
        assert_eq!(ledger.outcome(open).unwrap_err().message(), "gone");
        let next = ledger.submit(0).unwrap();
        assert_eq!(ledger.outcome(next), Ok(None));
    }
}
