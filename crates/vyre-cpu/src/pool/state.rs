//! What is queued, what runs, and which thread may join in; all under one lock.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel, Ordering::Release};
use std::sync::{Arc, PoisonError};
use std::thread::Thread;

use vyre_driver::backend::{Ledger, Ticket};

use super::job::{Failure, Job, Work};
use crate::memory::Scratch;

/// A job in a lane.
pub(super) struct Entry<W> {
    pub(super) job: Arc<Job<W>>,
    /// None for work that its caller waits for by other means.
    pub(super) ticket: Option<Ticket>,
    pub(super) after: Vec<Ticket>,
    /// Tells it from others that have the same job.
    pub(super) serial: u64,
    /// Threads that were at work on it and have not had the lock since.
    pub(super) active: usize,
    pub(super) begun: bool,
    pub(super) finishing: bool,
    pub(super) cancelled: bool,
    /// It can be told to stop after it has begun.
    pub(super) stoppable: bool,
    /// Nobody will ask what became of it.
    pub(super) forgotten: bool,
}

/// Work that runs one after another.
pub(super) struct Lane<W> {
    pub(super) entries: VecDeque<Entry<W>>,
    /// Its head runs on the thread that submitted it and has no entry.
    pub(super) inline: bool,
    /// What became of work without a ticket.
    pub(super) outcome: Option<Result<Option<u64>, Failure>>,
}

impl<W> Default for Lane<W> {
    fn default() -> Self {
        Lane { entries: VecDeque::new(), inline: false, outcome: None }
    }
}

/// A thread of the pool.
pub(super) struct Worker {
    /// Which of them it is, from 1 on; callers who help are 0.
    pub(super) place: usize,
    thread: Thread,
    called: AtomicBool,
}

impl Worker {
    /// This thread.
    pub(super) fn here(place: usize) -> Arc<Worker> {
        Arc::new(Worker { place, thread: std::thread::current(), called: AtomicBool::new(false) })
    }

    /// Sleeps until it is called.
    pub(super) fn sleep(&self) {
        while !self.called.swap(false, AcqRel) {
            std::thread::park();
        }
    }

    /// Wakes it. It takes some microseconds, so never under the lock.
    pub(super) fn call(&self) {
        self.called.store(true, Release);
        self.thread.unpark();
    }
}

pub(super) struct State<W> {
    /// Threads that work at once.
    width: usize,
    /// First the queues, then lanes of callers that wait for one launch.
    pub(super) lanes: Vec<Lane<W>>,
    pub(super) free_lanes: Vec<usize>,
    /// Entries to be filled again.
    spare: Vec<Entry<W>>,
    /// Of the last entry.
    serial: u64,
    /// Private memory that no thread uses, each of the size that was reserved last.
    scratch: Vec<Scratch>,
    scratch_bytes: usize,
    /// How many there are of that size, used or not.
    scratch_count: usize,
    /// Places of threads of the pool, and whether there is one.
    places: Vec<bool>,
    /// Those that sleep and are not called, by place: all threads come to rest one after another when a launch ends, and to look at what
    /// others have touched last takes each of them longer than all else. How many were called and have not come yet.
    idle: Vec<Option<Arc<Worker>>>,
    pub(super) calls: usize,
    /// Threads that work on something.
    pub(super) active: usize,
    /// Threads of callers that run small launches or help while they wait.
    pub(super) guests: usize,
    /// Callers that wait for a launch in a lane of their own.
    pub(super) callers: usize,
    /// Threads that wait for the end of something.
    pub(super) waiters: usize,
    pub(super) closed: bool,
}

/// Spare entries that are kept.
const SPARE: usize = 1024;

impl<W: Work> State<W> {
    pub(super) fn new(queues: usize, width: usize) -> State<W> {
        State {
            width,
            lanes: (0..queues).map(|_| Lane::default()).collect(),
            free_lanes: Vec::new(),
            spare: Vec::new(),
            serial: 0,
            scratch: Vec::new(),
            scratch_bytes: 0,
            scratch_count: 0,
            places: Vec::new(),
            idle: Vec::new(),
            calls: 0,
            active: 0,
            guests: 0,
            callers: 0,
            waiters: 0,
            closed: false,
        }
    }

    /// Threads of the pool.
    pub(super) fn threads(&self) -> usize {
        self.places.iter().filter(|&&taken| taken).count()
    }

    /// A place for one more thread.
    pub(super) fn take_place(&mut self) -> usize {
        let free = self.places.iter().position(|&taken| !taken).unwrap_or_else(|| {
            self.places.push(true);
            self.places.len() - 1
        });
        self.places[free] = true;
        free + 1
    }

    /// A thread is gone.
    pub(super) fn leave_place(&mut self, place: usize) {
        self.places[place - 1] = false;
    }

    /// A thread has nothing to do.
    pub(super) fn rest(&mut self, worker: &Arc<Worker>) {
        if self.idle.len() < worker.place {
            self.idle.resize_with(worker.place, || None);
        }
        self.idle[worker.place - 1] = Some(Arc::clone(worker));
    }

    /// A thread that sleeps, always the one with the first place, so that the same ones do the same work each time.
    pub(super) fn next_idle(&mut self) -> Option<Arc<Worker>> {
        let worker = self.idle.iter_mut().find_map(Option::take)?;
        self.calls += 1;
        Some(worker)
    }

    /// An entry whose work can be filled in.
    pub(super) fn entry(&mut self) -> Entry<W> {
        let mut entry = self.spare.pop().unwrap_or_else(|| Entry {
            job: Arc::new(Job::new(self.width)),
            ticket: None,
            after: Vec::new(),
            serial: 0,
            active: 0,
            begun: false,
            finishing: false,
            cancelled: false,
            stoppable: true,
            forgotten: false,
        });
        (entry.begun, entry.finishing, entry.cancelled, entry.forgotten) = (false, false, false, false);
        self.serial += 1;
        (entry.serial, entry.active) = (self.serial, 0);
        entry
    }

    /// An entry whose work is over, or was never queued.
    pub(super) fn give_back(&mut self, mut entry: Entry<W>) {
        entry.after.clear();
        if self.spare.len() < SPARE {
            self.spare.push(entry);
        }
    }

    /// Sees to it that there are so many scratch memories of at least so many bytes; false when there is no memory for them.
    pub(super) fn reserve(&mut self, bytes: usize, count: usize) -> bool {
        let bytes = bytes.max(self.scratch_bytes);
        let grown = bytes > self.scratch_bytes;
        let missing = if grown { count.max(self.scratch_count) } else { count.saturating_sub(self.scratch_count) };
        let mut fresh = Vec::with_capacity(missing);
        for _ in 0..missing {
            match Scratch::new(bytes) {
                Some(scratch) => fresh.push(scratch),
                None => return false,
            }
        }
        if grown {
            // Those in use are dropped when they come back.
            self.scratch.clear();
            self.scratch_count = 0;
        }
        self.scratch_count += fresh.len();
        self.scratch.append(&mut fresh);
        self.scratch_bytes = bytes;
        true
    }

    pub(super) fn take_scratch(&mut self) -> Option<Scratch> {
        self.scratch.pop()
    }

    pub(super) fn has_scratch(&self) -> bool {
        !self.scratch.is_empty()
    }

    pub(super) fn return_scratch(&mut self, scratch: Scratch) {
        if scratch.bytes() >= self.scratch_bytes {
            self.scratch.push(scratch);
        }
    }

    /// Another thread could work on the head of this lane, however many there are.
    pub(super) fn is_joinable(&self, lane: usize, ledger: &Ledger) -> bool {
        let lane = &self.lanes[lane];
        let Some(entry) = lane.entries.front() else { return false };
        !lane.inline
            && !entry.finishing
            && (entry.begun || (!entry.cancelled && entry.after.iter().all(|&ticket| ledger.is_over(ticket))))
            && entry.job.untaken(entry.active) > 0
    }

    /// A thread should work on the head of this lane: nobody does, or there is room for one more at work.
    pub(super) fn wants_thread(&self, lane: usize, ledger: &Ledger) -> bool {
        self.is_joinable(lane, ledger) && (self.nobody_works_on(lane) || self.active < self.width)
    }

    /// How many more threads should come to the head of a lane than those that were called already.
    pub(super) fn wanted(&self, lane: usize) -> usize {
        let Some(entry) = self.lanes[lane].entries.front() else { return 0 };
        let room = self.width.saturating_sub(self.active).max(usize::from(entry.active == 0));
        entry.job.wanted(entry.active).min(room).saturating_sub(self.calls)
    }

    /// Every part of the work at the head of a lane ends soon.
    pub(super) fn is_brief(&self, lane: usize) -> bool {
        self.lanes[lane].entries.front().is_some_and(|entry| entry.job.is_brief())
    }

    fn nobody_works_on(&self, lane: usize) -> bool {
        self.lanes[lane].entries.front().is_some_and(|entry| entry.active == 0)
    }

    /// The lane that a thread should work on; one where nobody does comes first.
    pub(super) fn pick(&self, ledger: &Ledger) -> Option<usize> {
        let mut shared = None;
        for lane in 0..self.lanes.len() {
            if self.wants_thread(lane, ledger) {
                if self.nobody_works_on(lane) {
                    return Some(lane);
                }
                shared = shared.or(Some(lane));
            }
        }
        shared
    }

    /// Takes the head of a lane away and tells what became of it.
    pub(super) fn finish(&mut self, lane: usize, ledger: &Ledger) {
        let Some(entry) = self.lanes[lane].entries.pop_front() else { return };
        let outcome = entry.job.outcome();
        match entry.ticket {
            None => self.lanes[lane].outcome = Some(outcome),
            Some(ticket) => {
                match outcome {
                    _ if entry.forgotten => {}
                    Ok(None) => {}
                    Ok(Some(ns)) => ledger.took(ticket, ns),
                    Err(Failure::Stopped) => ledger.fail(ticket, super::stopped()),
                    Err(Failure::Broke(error)) => ledger.fail(ticket, error),
                }
                ledger.complete(ticket);
            }
        }
        self.give_back(entry);
    }

    /// Ends what need not run: heads that were cancelled before they began, and heads without parts. True when there were some.
    pub(super) fn settle(&mut self, ledger: &Ledger) -> bool {
        let mut any = false;
        let mut lane = 0;
        while lane < self.lanes.len() {
            let ends = !self.lanes[lane].inline
                && self.lanes[lane].entries.front().is_some_and(|entry| {
                    let idle = entry.active == 0 && !entry.begun && !entry.finishing;
                    let ready = || entry.after.iter().all(|&ticket| ledger.is_over(ticket));
                    idle && (entry.cancelled || (entry.job.is_over() && ready()))
                });
            if !ends {
                lane += 1;
                continue;
            }
            if let Some(entry) = self.lanes[lane].entries.front() {
                if entry.cancelled {
                    entry.job.leave_out();
                }
                entry.job.work.write().unwrap_or_else(PoisonError::into_inner).clear();
            }
            self.finish(lane, ledger);
            any = true;
            // What waited for it may be in a lane that was looked at already.
            lane = 0;
        }
        any
    }

    /// Tells work to end. True when it has not begun, so that it can end at once.
    pub(super) fn cancel(&mut self, lane: usize, ticket: Option<Ticket>) {
        let found = self.lanes[lane].entries.iter_mut().find(|entry| entry.ticket == ticket);
        if let Some(entry) = found
            && (!entry.begun || entry.stoppable)
        {
            entry.cancelled = true;
            entry.job.stop.set();
        }
    }
}
