//! What is queued, what runs, and which thread may join in; all under one lock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};

use vyre_driver::backend::{Ledger, Ticket};

use super::job::{Failure, Job, Work};
use super::worker::{Call, Calling, Rest, Worker, asleep_among};
use crate::memory::Scratch;

/// A job in a lane.
pub(super) struct Entry<W> {
    pub(super) job: Arc<Job<W>>,
    /// None for work that its caller waits for by other means.
    pub(super) ticket: Option<Ticket>,
    pub(super) after: Vec<Ticket>,
    /// Tells it from others that have the same job.
    pub(super) serial: u64,
    /// Threads were called for it, or came. From then on the last of them ends it.
    pub(super) begun: bool,
    pub(super) cancelled: bool,
    /// It can be told to stop after it has begun.
    pub(super) stoppable: bool,
    /// Nobody will ask what became of it.
    pub(super) forgotten: bool,
    /// The address of the stop word of the work from within which it was begun.
    pub(super) within: Option<usize>,
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

impl<W: Work> Lane<W> {
    /// Threads that take parts of its head.
    fn at_work(&self) -> usize {
        self.entries.front().map_or(0, |entry| entry.job.inside())
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
    /// Threads of the pool, by their places: the one with place 1 comes first. None where there is room for one.
    workers: Vec<Option<Arc<Worker<W>>>>,
    /// Indices of those that are to be called; kept, so that to call some needs no memory.
    chosen: Vec<usize>,
    calling: Calling,
    /// Those of them that were started and have not looked for work yet.
    pub(super) starting: usize,
    /// Threads that work on something or were called to. They say so themselves, without the lock, when they no longer do.
    pub(super) active: Arc<AtomicUsize>,
    /// Threads of callers that run small launches or help while they wait.
    pub(super) guests: usize,
    /// Threads of callers that take parts.
    pub(super) helping: usize,
    /// Callers that wait for a launch in a lane of their own.
    pub(super) callers: usize,
    /// Those of them that are at work on something else, which has others help with this.
    pub(super) outer: usize,
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
            workers: Vec::new(),
            chosen: Vec::new(),
            calling: Calling::default(),
            starting: 0,
            active: Arc::default(),
            guests: 0,
            helping: 0,
            callers: 0,
            outer: 0,
            waiters: 0,
            closed: false,
        }
    }

    /// Threads of the pool.
    pub(super) fn threads(&self) -> usize {
        self.workers.iter().flatten().count()
    }

    /// One more thread of the pool.
    pub(super) fn add_worker(&mut self) -> Arc<Worker<W>> {
        let free = self.workers.iter().position(Option::is_none).unwrap_or_else(|| {
            self.workers.push(None);
            self.workers.len() - 1
        });
        let worker = Arc::new(Worker::new(free + 1));
        self.workers[free] = Some(Arc::clone(&worker));
        self.starting += 1;
        worker
    }

    /// A thread is gone, or was never there.
    pub(super) fn remove_worker(&mut self, worker: &Worker<W>) {
        self.workers[worker.place - 1] = None;
    }

    /// Calls threads that rest to the head of a lane, at most so many and more that are awake, and always those with the first places, so that
    /// the same ones do the same work each time. Those that sleep are added to `asleep`, to be woken without the lock. Gives how many it called.
    pub(super) fn call(&mut self, lane: usize, most: usize, asleep: &mut VecDeque<Arc<Worker<W>>>) -> usize {
        let room = self.room();
        let Some(entry) = self.lanes[lane].entries.front_mut() else { return 0 };
        let most_awake = if most > 0 { entry.job.wanted_awake().min(room).max(most) } else { 0 };
        let mut chosen = std::mem::take(&mut self.chosen);
        let bytes = self.scratch_bytes.max(1);
        let mut scratch_left = self.scratch.len();
        for (at, worker) in self.workers.iter().enumerate().filter_map(|(at, worker)| Some((at, worker.as_ref()?))) {
            if chosen.len() == most_awake {
                break;
            }
            match worker.rests() {
                Some(Rest::Awake) => {}
                Some(Rest::Asleep) if chosen.len() < most => {}
                _ => continue,
            }
            if worker.scratch_bytes() < bytes {
                let Some(left) = scratch_left.checked_sub(1) else { continue };
                scratch_left = left;
            }
            chosen.push(at);
        }
        // All at once and before the first of them comes: each who comes changes the same words.
        let called = chosen.len();
        if called > 0 {
            entry.begun = true;
            entry.job.call(called);
            self.active.fetch_add(called, Relaxed);
        }
        for &at in &chosen {
            let Some(worker) = &self.workers[at] else { continue };
            let scratch = if worker.scratch_bytes() < bytes { self.scratch.pop() } else { None };
            let call = Call { job: Arc::clone(&entry.job), serial: entry.serial, lane, scratch };
            worker.call(&mut self.calling, Some(call));
        }
        asleep.extend(asleep_among(chosen.drain(..).filter_map(|at| self.workers[at].as_ref())));
        self.chosen = chosen;
        called
    }

    /// Calls threads that rest, at most so many, to look for themselves whether they are needed.
    pub(super) fn call_to_look(&mut self, most: usize, asleep: &mut VecDeque<Arc<Worker<W>>>) {
        let mut chosen = std::mem::take(&mut self.chosen);
        let resting = self.workers.iter().enumerate();
        let resting = resting.filter(|(_, worker)| worker.as_ref().is_some_and(|worker| worker.rests().is_some()));
        chosen.extend(resting.map(|(at, _)| at).take(most));
        for worker in chosen.iter().filter_map(|&at| self.workers[at].as_ref()) {
            worker.call(&mut self.calling, None);
        }
        asleep.extend(asleep_among(chosen.drain(..).filter_map(|at| self.workers[at].as_ref())));
        self.chosen = chosen;
    }

    /// An entry whose work can be filled in.
    pub(super) fn entry(&mut self) -> Entry<W> {
        let mut entry = self.spare.pop().unwrap_or_else(|| Entry {
            job: Arc::new(Job::new(self.width)),
            ticket: None,
            after: Vec::new(),
            serial: 0,
            begun: false,
            cancelled: false,
            stoppable: true,
            forgotten: false,
            within: None,
        });
        (entry.begun, entry.cancelled, entry.forgotten, entry.within) = (false, false, false, None);
        self.serial += 1;
        entry.serial = self.serial;
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

    /// What a thread has, or memory of the size that was reserved last in its place, where there is some.
    pub(super) fn exchange_scratch(&mut self, old: Option<Scratch>) -> Option<Scratch> {
        old.filter(|old| old.bytes() >= self.scratch_bytes).or_else(|| self.take_scratch())
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
            && (entry.begun || (!entry.cancelled && entry.after.iter().all(|&ticket| ledger.is_over(ticket))))
            && entry.job.has_parts()
    }

    /// A thread that is awake should work on the head of this lane: nobody has come yet, or there is room for one more. It does not wait for
    /// those that were called and are still on their way.
    pub(super) fn wants_thread(&self, lane: usize, ledger: &Ledger) -> bool {
        self.is_joinable(lane, ledger) && (self.lanes[lane].at_work() == 0 || self.at_work() < self.width + self.outer)
    }

    /// The lane of work that was begun from within the head of this one and has a place for who waits for that.
    pub(super) fn within(&self, lane: usize) -> Option<usize> {
        let outer = self.lanes[lane].entries.front()?.job.stop.word().addr();
        let is_within = |entry: &Entry<W>| entry.within == Some(outer) && entry.job.has_place();
        self.lanes.iter().position(|lane| lane.entries.front().is_some_and(is_within))
    }

    /// Threads that take parts, of the pool and of callers; those who have others help from within are counted twice.
    fn at_work(&self) -> usize {
        self.lanes.iter().map(Lane::at_work).sum()
    }

    /// Every thread of the pool is at work, or waits within it. All others are about to look for some.
    pub(super) fn are_all_busy(&self) -> bool {
        self.threads() + self.helping <= self.at_work() + self.callers
    }

    /// How many more threads should come to the head of a lane than those that were called already, and how many of these may.
    pub(super) fn wanted(&self, lane: usize, ledger: &Ledger) -> [usize; 2] {
        let Some(entry) = self.lanes[lane].entries.front().filter(|_| self.is_joinable(lane, ledger)) else {
            return [0; 2];
        };
        let wanted = entry.job.wanted();
        [wanted, wanted.min(self.room().max(usize::from(entry.job.is_alone())))]
    }

    /// How many more threads may work.
    fn room(&self) -> usize {
        self.width.saturating_sub(self.active.load(SeqCst))
    }

    /// Every part of the work at the head of a lane ends soon.
    pub(super) fn is_brief(&self, lane: usize) -> bool {
        self.lanes[lane].entries.front().is_some_and(|entry| entry.job.is_brief())
    }

    pub(super) fn nobody_works_on(&self, lane: usize) -> bool {
        self.lanes[lane].entries.front().is_some_and(|entry| entry.job.is_alone())
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
                    let ready = || entry.after.iter().all(|&ticket| ledger.is_over(ticket));
                    !entry.begun && (entry.cancelled || (entry.job.is_over() && ready()))
                });
            if !ends {
                lane += 1;
                continue;
            }
            if let Some(entry) = self.lanes[lane].entries.front() {
                if entry.cancelled {
                    entry.job.leave_out();
                }
                entry.job.clear();
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
