//! Queues of work and the threads that do it.
//!
//! A lane runs its work in order, and each piece of work has parts that threads take one after another. Threads are started when
//! there is work for them. At most as many work at once as the pool is wide, but for one rule: work that is at the head of a lane
//! and has nobody gets a thread, so that an endless launch on one queue keeps no other queue from going on. Callers that wait take
//! parts themselves, and never of anything that they don't wait for; those with a limit only such as end soon, until the time is over.
//! Work may have others help with parts of its own, from within: those who wait for it take such parts as well.
//!
//! What is queued is under one lock, but a thread needs it neither to begin nor to end: it is called with the job that it is called
//! for, and counted there, and the last one that leaves a job that is done ends the launch; who waits for it stays until he is that one. What all
//! threads write is written once by each of them, and what a launch has in common with the one before is not written again: a line of memory takes as long
//! from core to core as a hundred instructions. One that was called too late finds its job
//! over, or filled again with another number, and goes. Whoever rests looks for a call for a while before he sleeps, and looks under
//! the lock first where there was work for more threads than rested when it came (`unmet`).

mod job;
mod state;
#[cfg(test)]
mod tests;
mod worker;

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use vyre_driver::BackendError;
use vyre_driver::backend::{Completion, Ledger, Order, Ticket};
use vyre_spec::codes;

pub(crate) use job::{Failure, PANICKED, Threads, Work};
use job::{Job, LONGEST_STAY, panicked};
use state::{Lane, State};
use worker::{Call, Rise, Worker};

use crate::launch::Stop;
use crate::memory::Scratch;

/// The place of callers who help.
const CALLER: usize = 0;

/// No work wants more threads than were called for it; some does. Entries have other numbers.
const MET: u64 = 0;
const UNMET: u64 = u64::MAX;

thread_local! {
    /// The place of this thread: of a worker, or of callers.
    static PLACE: Cell<usize> = const { Cell::new(CALLER) };
}

/// Callers that may run small launches or help at the same time.
const GUESTS: usize = 4;

/// How often a thread tries to get the lock before it sleeps for it, some tens of microseconds.
const LOCK_TRIES: usize = 100;

struct Shared<W> {
    state: Mutex<State<W>>,
    /// For callers: something is over.
    over: Condvar,
    /// There is work for more threads than were called: those that go to rest look for it under the lock. The number of the entry, or one of
    /// `MET` and `UNMET`. Written under the lock.
    unmet: AtomicU64,
    /// Threads at work, as the state has it.
    active: Arc<AtomicUsize>,
    /// How often work was begun from within other work, for callers who look for what they can help with. Written under the lock.
    begun_within: AtomicU64,
    /// Threads that were called in their sleep and are to be woken, by whoever comes by: to wake one takes some microseconds, and the
    /// one that is woken needs a multiple of that to come.
    asleep: Mutex<VecDeque<Arc<Worker<W>>>>,
    /// How many these are.
    to_wake: AtomicUsize,
    ledger: Ledger,
    queues: usize,
    width: usize,
    /// Bytes of private memory that every thread finds.
    reserved: AtomicUsize,
    epoch: Instant,
}

/// The queues of one backend and its threads.
pub(crate) struct Pool<W: Work>(Arc<Shared<W>>);

/// The threads of a pool, for work that others are to help with from within.
pub(crate) struct Crew<W: Work>(Arc<Shared<W>>);

/// Work on its caller's thread, at the head of a queue until this is dropped.
pub(crate) struct Inline<'a, W: Work> {
    guest: Guest<'a, W>,
    ticket: Ticket,
}

/// A caller's thread that does work, with private memory for it.
pub(crate) struct Guest<'a, W: Work> {
    shared: &'a Arc<Shared<W>>,
    scratch: Option<Scratch>,
}

/// The error of work that was told to stop.
fn stopped() -> BackendError {
    BackendError::with_code(&codes::backend::STOPPED, "the launch was cancelled")
}

fn timed_out(what: &str) -> BackendError {
    BackendError::with_code(&codes::backend::TIMEOUT, format!("the time was over before {what}"))
}

/// There is time left.
fn is_to_come(deadline: Option<Instant>) -> bool {
    deadline.is_none_or(|deadline| Instant::now() < deadline)
}

fn no_thread(error: &std::io::Error) -> BackendError {
    BackendError::new(format!("the system gives no thread: {error}"))
}

impl<W: Work> Shared<W> {
    /// Whoever has it gives it back within microseconds: one that slept for it would be woken long after.
    fn lock(&self) -> MutexGuard<'_, State<W>> {
        for _ in 0..LOCK_TRIES {
            match self.state.try_lock() {
                Ok(state) => return state,
                Err(TryLockError::Poisoned(state)) => return state.into_inner(),
                Err(TryLockError::WouldBlock) => (0..8).for_each(|_| std::hint::spin_loop()),
            }
        }
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Threads that are kept: enough for one at the head of every queue while the others are busy.
    fn kept_threads(&self) -> usize {
        self.width + self.queues - 1
    }

    fn start_thread(self: &Arc<Self>, state: &mut State<W>) -> std::io::Result<()> {
        let shared = Arc::clone(self);
        let worker = state.add_worker();
        let served = Arc::clone(&worker);
        let started = std::thread::Builder::new().name("vyre-cpu".into()).spawn(move || shared.serve(&served));
        if started.is_err() {
            state.starting -= 1;
            state.remove_worker(&worker);
        }
        started.map(drop)
    }

    /// Tells whoever should know that something has changed: ends what need not run and calls threads for what there is to do. Those
    /// that sleep are to be [woken](Shared::wake) then.
    fn stir(self: &Arc<Self>, state: &mut State<W>) {
        if state.settle(&self.ledger) && state.waiters > 0 {
            self.over.notify_all();
        }
        let kept = self.kept_threads() + state.callers;
        let surplus = state.threads().saturating_sub(kept);
        let wanting = |state: &State<W>, lane: usize| state.wanted(lane, &self.ledger)[0] > 0;
        let any = (0..state.lanes.len()).any(|lane| wanting(state, lane));
        if !any && surplus == 0 {
            if self.unmet.load(Relaxed) != MET && !state.closed {
                self.unmet.store(MET, SeqCst);
            }
            return;
        }
        // Before it looks for threads: whoever comes to rest after this look sees it, and looks for work.
        self.unmet.store(UNMET, SeqCst);
        let mut asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
        state.call_to_look(surplus, &mut asleep);
        let mut unmet = if surplus == 0 { MET } else { UNMET };
        // Where nobody works comes first.
        for alone in [true, false] {
            for lane in 0..state.lanes.len() {
                if state.nobody_works_on(lane) != alone {
                    continue;
                }
                let [wanted, callable] = state.wanted(lane, &self.ledger);
                let called = state.call(lane, callable, &mut asleep);
                if called < wanted {
                    let serial = state.lanes[lane].entries.front().map_or(UNMET, |entry| entry.serial);
                    unmet = if unmet == MET { serial } else { UNMET };
                }
                let missing = callable.saturating_sub(called);
                let most = if alone && called == 0 { kept } else { kept.min(self.width) };
                if missing > state.starting && state.threads() < most && state.are_all_busy() {
                    // Where the system gives no more threads, those that are there do it.
                    let _ = self.start_thread(state);
                }
            }
        }
        self.to_wake.store(asleep.len(), Relaxed);
        if !state.closed {
            self.unmet.store(unmet, SeqCst);
        }
    }

    /// Wakes threads that were called in their sleep.
    fn wake(&self) {
        while self.to_wake.load(Relaxed) > 0 {
            let mut asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
            let next = asleep.pop_front();
            self.to_wake.store(asleep.len(), Relaxed);
            drop(asleep);
            if let Some(worker) = next {
                worker.wake();
            }
        }
    }

    /// Calls threads for what there is to do, and lets go of the state.
    fn leave<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, State<W>>) {
        self.stir(&mut state);
        drop(state);
        self.wake();
    }

    /// A thread of the pool.
    fn serve(self: Arc<Self>, worker: &Worker<W>) {
        let mut scratch = None;
        PLACE.set(worker.place);
        let mut state = self.lock();
        state.starting -= 1;
        loop {
            // What it has may be too small by now.
            scratch = state.exchange_scratch(scratch);
            worker.has_scratch(scratch.as_ref().map_or(0, Scratch::bytes));
            if let Some(memory) = &mut scratch
                && let Some(lane) = state.pick(&self.ledger)
            {
                state = self.join(state, lane, worker.place, memory, None, false);
                continue;
            }
            if state.settle(&self.ledger) {
                self.over.notify_all();
                continue;
            }
            if state.closed || state.threads() > self.kept_threads() + state.callers {
                break;
            }
            self.stir(&mut state);
            worker.rest();
            drop(state);
            self.wake();
            state = self.answer_calls(worker, &mut scratch);
        }
        if let Some(scratch) = scratch {
            state.return_scratch(scratch);
        }
        state.remove_worker(worker);
        self.leave(state);
    }

    /// Does what the thread is called for, until there may be work that it was not called for. It can be called now, and cannot when this returns.
    fn answer_calls<'a>(
        self: &'a Arc<Self>,
        worker: &Worker<W>,
        scratch: &mut Option<Scratch>,
    ) -> MutexGuard<'a, State<W>> {
        let mut call = worker.wait();
        loop {
            let Some(Call { job, serial, lane, scratch: larger }) = call else { return self.lock() };
            // Others sleep that were called with it.
            self.wake();
            if larger.is_some() {
                *scratch = larger;
            }
            let (last, seen) = match scratch {
                Some(scratch) if job.come(serial) => {
                    let seen = job.help(worker.place, scratch, self.epoch, None, || self.leave(self.lock()));
                    (job.go(), Some(seen))
                }
                _ => (false, None),
            };
            self.active.fetch_sub(1, SeqCst);
            if last {
                // What comes after it is best done by who is awake.
                return self.end(&job, lane);
            }
            worker.rest();
            let unmet = self.unmet.load(SeqCst);
            // Of this work there is nothing left to do.
            let is_done = unmet == serial && seen.is_some_and(|seen| job.is_still(seen));
            if unmet == MET || is_done {
                call = worker.wait();
                continue;
            }
            let state = self.lock();
            match worker.rise() {
                Rise::Free => return state,
                Rise::Called(before) => call = before,
            }
        }
    }

    /// Works on the head of a lane until it has no more parts or the time is over; who `waits` for its end stays for that. The caller found that it
    /// may.
    fn join<'a>(
        self: &'a Arc<Self>,
        mut state: MutexGuard<'a, State<W>>,
        lane: usize,
        place: usize,
        scratch: &mut Scratch,
        until: Option<Instant>,
        waits: bool,
    ) -> MutexGuard<'a, State<W>> {
        let Some(entry) = state.lanes[lane].entries.front_mut() else { return state };
        let (job, serial) = (Arc::clone(&entry.job), entry.serial);
        if !job.drop_in(serial, place == CALLER) {
            return state;
        }
        entry.begun = true;
        self.active.fetch_add(1, SeqCst);
        state.helping += usize::from(place == CALLER);
        let begun = self.begun_within.load(SeqCst);
        // There may be parts for others.
        self.leave(state);
        loop {
            let seen = job.help(place, scratch, self.epoch, until, || self.leave(self.lock()));
            // Work that was begun from within may have parts for who waits.
            let leaves = || self.begun_within.load(Relaxed) != begun;
            if !waits || job.outstays(seen, until, leaves) || !job.has_parts() || !is_to_come(until) {
                break;
            }
        }
        let last = job.go();
        self.active.fetch_sub(1, SeqCst);
        let mut state = if last { self.end(&job, lane) } else { self.lock() };
        state.helping -= usize::from(place == CALLER);
        state
    }

    /// Ends the work at the head of a lane, all of which is done, by the last thread that was at it.
    fn end(&self, job: &Job<W>, lane: usize) -> MutexGuard<'_, State<W>> {
        // Buffers are let go before the work counts as over, and not under the lock.
        job.clear();
        let mut state = self.lock();
        state.finish(lane, &self.ledger);
        if state.waiters > 0 {
            self.over.notify_all();
        }
        state
    }

    /// The lane whose head has to go on for this ticket to be over, if a caller may help there.
    fn helpable(&self, state: &State<W>, ticket: Ticket) -> Option<usize> {
        let mut lane = ticket.queue as usize;
        for _ in 0..=self.queues {
            let head = state.lanes[lane].entries.front()?;
            match head.after.iter().find(|&&before| !head.begun && !self.ledger.is_over(before)) {
                // It was submitted earlier, so this comes to an end.
                Some(before) => lane = before.queue as usize,
                None => break,
            }
        }
        let free = state.guests < GUESTS && state.has_scratch();
        let may = |lane: &usize| free && state.wants_thread(*lane, &self.ledger);
        Some(lane).filter(may).or_else(|| state.within(lane).filter(may))
    }

    /// Waits until a condition holds or the time is over; false then.
    fn wait_while<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<W>>,
        deadline: Option<Instant>,
        goes_on: impl Fn(&State<W>) -> bool,
    ) -> (MutexGuard<'a, State<W>>, bool) {
        while goes_on(&state) {
            if !is_to_come(deadline) {
                return (state, false);
            }
            state = self.wait_once(state, deadline);
        }
        (state, true)
    }

    /// Sleeps until something is over or the time is.
    fn wait_once<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<W>>,
        deadline: Option<Instant>,
    ) -> MutexGuard<'a, State<W>> {
        state.waiters += 1;
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        state = match left {
            Some(left) => self.over.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
            None => self.over.wait(state).unwrap_or_else(PoisonError::into_inner),
        };
        state.waiters -= 1;
        state
    }

    /// Runs work that is in no queue to its end. At the deadline it is told to stop. The caller takes part where there is none. A caller
    /// that is `within` other work, which has this stop word, leaves that as long.
    fn run(
        self: &Arc<Self>,
        deadline: Option<Instant>,
        within: Option<&Stop>,
        fill: impl FnOnce(&mut W),
    ) -> Result<Result<Option<u64>, Failure>, BackendError> {
        // A worker within a launch leaves a place to who waits for that launch.
        let place = if within.is_some() { PLACE.get() } else { CALLER };
        let mut state = self.lock();
        if state.threads() == 0 && deadline.is_some() {
            self.start_thread(&mut state).map_err(|error| no_thread(&error))?;
        }
        // One more caller at work, and one more thread in its place, need private memory.
        let wanted = self.kept_threads() + GUESTS + 2 * (state.callers + 1);
        if !state.reserve(0, wanted) {
            return Err(BackendError::with_code(
                &codes::backend::OUT_OF_MEMORY,
                "there is no memory for one more thread",
            ));
        }
        state.callers += 1;
        let outer = usize::from(within.is_some());
        state.outer += outer;
        self.active.fetch_sub(outer, SeqCst);
        let lane = state.free_lanes.pop().unwrap_or_else(|| {
            state.lanes.push(Lane::default());
            state.lanes.len() - 1
        });
        let mut entry = state.entry();
        entry.job.fill(entry.serial, false, fill);
        (entry.ticket, entry.stoppable) = (None, true);
        entry.within = within.map(|stop| stop.word().addr());
        state.lanes[lane].entries.push_back(entry);
        if within.is_some() {
            self.begun_within.fetch_add(1, SeqCst);
            // Who waits for the outer work may sleep.
            if state.waiters > 0 {
                self.over.notify_all();
            }
        }
        let brief = deadline.is_none() || state.is_brief(lane);
        while brief
            && is_to_come(deadline)
            && state.lanes[lane].outcome.is_none()
            && state.wants_thread(lane, &self.ledger)
            && let Some(mut scratch) = state.take_scratch()
        {
            let more = usize::from(place != CALLER);
            state.helping += more;
            state = self.join(state, lane, place, &mut scratch, deadline, true);
            state.helping -= more;
            state.return_scratch(scratch);
        }
        self.leave(state);
        state = self.lock();
        let goes_on = |state: &State<W>| state.lanes[lane].outcome.is_none();
        // Those who have the last parts are about to finish, and to be woken takes longer than most of them need.
        let look = Instant::now() + LONGEST_STAY;
        while goes_on(&state) && is_to_come(deadline) && Instant::now() < look {
            drop(state);
            (0..64).for_each(|_| std::hint::spin_loop());
            state = self.lock();
        }
        let in_time;
        (state, in_time) = self.wait_while(state, deadline, goes_on);
        if !in_time {
            state.cancel(lane, None);
            self.leave(state);
            state = self.lock();
            // Its memory is the caller's, so nobody leaves before it is over.
            state = self.wait_while(state, None, goes_on).0;
        }
        state.callers -= 1;
        state.outer -= outer;
        self.active.fetch_add(outer, SeqCst);
        let outcome = state.lanes[lane].outcome.take();
        state.free_lanes.push(lane);
        self.leave(state);
        outcome.ok_or_else(|| BackendError::new("a launch has no end"))
    }
}

impl<W: Work> Crew<W> {
    /// Threads that may work at once.
    pub(crate) fn width(&self) -> usize {
        self.0.width
    }

    /// Runs work to its end for a thread that is at work for the pool already, on what has this stop word.
    pub(crate) fn help(
        &self,
        within: &Stop,
        fill: impl FnOnce(&mut W),
    ) -> Result<Result<Option<u64>, Failure>, BackendError> {
        self.0.run(None, Some(within), fill)
    }
}

impl<W: Work> Pool<W> {
    /// So many queues and at most so many threads at work; none of them is started yet.
    pub(crate) fn new(queues: usize, width: usize) -> Pool<W> {
        let state = State::new(queues, width.max(1));
        Pool(Arc::new(Shared {
            active: Arc::clone(&state.active),
            state: Mutex::new(state),
            over: Condvar::new(),
            unmet: AtomicU64::new(MET),
            begun_within: AtomicU64::new(0),
            asleep: Mutex::default(),
            to_wake: AtomicUsize::new(0),
            ledger: Ledger::new(queues as u32),
            queues,
            width: width.max(1),
            reserved: AtomicUsize::new(0),
            epoch: Instant::now(),
        }))
    }

    /// Threads that may work at once.
    pub(crate) fn width(&self) -> usize {
        self.0.width
    }

    /// Its threads, who work as long as somebody has this, also when the pool is gone.
    pub(crate) fn crew(&self) -> Crew<W> {
        Crew(Arc::clone(&self.0))
    }

    /// What became of the work.
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.0.ledger
    }

    /// Sees to it that every thread has so many bytes of private memory, at least one.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<(), BackendError> {
        let shared = &*self.0;
        // No thread works without private memory, so that work which needs none has some, too.
        let bytes = bytes.max(1);
        if bytes <= shared.reserved.load(Relaxed) {
            return Ok(());
        }
        let mut state = shared.lock();
        if !state.reserve(bytes.next_multiple_of(4096).max(4096), shared.kept_threads() + GUESTS) {
            return Err(BackendError::with_code(
                &codes::backend::OUT_OF_MEMORY,
                format!(
                    "there is no memory for the workgroup memory and local arrays of the kernel, {bytes} bytes a thread"
                ),
            ));
        }
        shared.reserved.fetch_max(bytes, Relaxed);
        Ok(())
    }

    /// Refuses an order on a queue that is not there, or after work that was never submitted.
    pub(crate) fn check(&self, order: &Order<'_>) -> Result<(), BackendError> {
        self.0.ledger.submitted(order.queue)?;
        order.after.iter().try_for_each(|&ticket| self.0.ledger.check(ticket))
    }

    /// The head of a queue for work on the caller's thread, if nothing comes before it. The order was checked, and memory reserved.
    pub(crate) fn inline(&self, order: &Order<'_>) -> Result<Option<Inline<'_, W>>, BackendError> {
        let shared = &self.0;
        let mut state = shared.lock();
        let lane = &state.lanes[order.queue as usize];
        let free = !lane.inline && lane.entries.is_empty() && state.guests < GUESTS && state.has_scratch();
        if !free || !order.after.iter().all(|&ticket| shared.ledger.is_over(ticket)) {
            return Ok(None);
        }
        let ticket = shared.ledger.submit(order.queue)?;
        state.lanes[order.queue as usize].inline = true;
        state.guests += 1;
        let scratch = state.take_scratch();
        Ok(Some(Inline { guest: Guest { shared, scratch }, ticket }))
    }

    /// Private memory for work on the caller's thread that is in no queue.
    pub(crate) fn guest(&self) -> Option<Guest<'_, W>> {
        let shared = &self.0;
        let mut state = shared.lock();
        let scratch = if state.guests < GUESTS { state.take_scratch() } else { None };
        scratch.map(|scratch| {
            state.guests += 1;
            Guest { shared, scratch: Some(scratch) }
        })
    }

    /// Queues work. The order was checked. `stoppable`: it can be cancelled after it has begun.
    pub(crate) fn submit(
        &self,
        order: &Order<'_>,
        timed: bool,
        stoppable: bool,
        fill: impl FnOnce(&mut W),
    ) -> Result<Ticket, BackendError> {
        let shared = &self.0;
        let mut state = shared.lock();
        if state.threads() == 0 {
            shared.start_thread(&mut state).map_err(|error| no_thread(&error))?;
        }
        let ticket = shared.ledger.submit(order.queue)?;
        let mut entry = state.entry();
        entry.job.fill(entry.serial, timed, fill);
        (entry.ticket, entry.stoppable) = (Some(ticket), stoppable);
        entry.after.extend_from_slice(order.after);
        state.lanes[order.queue as usize].entries.push_back(entry);
        shared.leave(state);
        Ok(ticket)
    }

    /// Runs work that is in no queue to its end. At the deadline it is told to stop. The caller takes part where there is none.
    pub(crate) fn run(
        &self,
        deadline: Option<Instant>,
        fill: impl FnOnce(&mut W),
    ) -> Result<Result<Option<u64>, Failure>, BackendError> {
        self.0.run(deadline, None, fill)
    }

    /// What became of work, when it is over or the time is.
    pub(crate) fn wait(&self, ticket: Ticket, timeout: Option<Duration>) -> Result<Option<Completion>, BackendError> {
        let shared = &self.0;
        if let Some(completion) = shared.ledger.outcome(ticket)? {
            return Ok(Some(completion));
        }
        // What is too far away to be told is never reached.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        self.wait_for(ticket, deadline);
        shared.ledger.outcome(ticket)
    }

    /// Waits until work is over; false when the time is first.
    fn wait_for(&self, ticket: Ticket, deadline: Option<Instant>) -> bool {
        let shared = &self.0;
        if shared.ledger.is_over(ticket) {
            return true;
        }
        let mut state = shared.lock();
        // Until when it looks before it sleeps.
        let mut look = None;
        while !shared.ledger.is_over(ticket) {
            if !is_to_come(deadline) {
                shared.leave(state);
                return shared.ledger.is_over(ticket);
            }
            let lane = shared.helpable(&state, ticket);
            if let Some(lane) = lane.filter(|&lane| deadline.is_none() || state.is_brief(lane))
                && let Some(mut scratch) = state.take_scratch()
            {
                state.guests += 1;
                state = shared.join(state, lane, CALLER, &mut scratch, deadline, true);
                state.return_scratch(scratch);
                state.guests -= 1;
                look = None;
                continue;
            }
            let until = *look.get_or_insert_with(|| {
                let look = Instant::now() + LONGEST_STAY;
                deadline.map_or(look, |deadline| deadline.min(look))
            });
            if Instant::now() < until {
                let begun = shared.begun_within.load(SeqCst);
                // What was ended here may have let other work begin, which is for others to do.
                shared.leave(state);
                let is_new = || shared.begun_within.load(Relaxed) != begun;
                while !shared.ledger.is_over(ticket) && !is_new() && Instant::now() < until {
                    std::hint::spin_loop();
                }
                if shared.ledger.is_over(ticket) {
                    return true;
                }
                state = shared.lock();
                continue;
            }
            shared.stir(&mut state);
            if shared.to_wake.load(Relaxed) > 0 {
                drop(state);
                shared.wake();
                state = shared.lock();
                continue;
            }
            if shared.ledger.is_over(ticket) {
                break;
            }
            state = shared.wait_once(state, deadline);
        }
        shared.leave(state);
        true
    }

    /// Waits until all is over that comes before work of this order.
    pub(crate) fn wait_before(&self, order: &Order<'_>, what: &str) -> Result<(), BackendError> {
        self.check(order)?;
        let number = self.0.ledger.submitted(order.queue)?;
        let own = (number > 0).then_some(Ticket { queue: order.queue, number });
        for &ticket in own.iter().chain(order.after) {
            if !self.wait_for(ticket, order.deadline) {
                return Err(timed_out(what));
            }
        }
        Ok(())
    }

    /// Waits for work until the deadline of its order and calls it off then. True when it is done.
    pub(crate) fn done_by(&self, ticket: Ticket, deadline: Option<Instant>, what: &str) -> Result<(), BackendError> {
        if !self.wait_for(ticket, deadline) {
            self.cancel(ticket)?;
            self.wait_for(ticket, None);
        }
        match self.0.ledger.outcome(ticket) {
            Err(error) if error.code() == codes::backend::STOPPED.id => {
                self.forget(ticket);
                Err(timed_out(what))
            }
            Err(error) => Err(error),
            Ok(_) => Ok(()),
        }
    }

    /// Tells work to end.
    pub(crate) fn cancel(&self, ticket: Ticket) -> Result<(), BackendError> {
        self.0.ledger.check(ticket)?;
        let mut state = self.0.lock();
        state.cancel(ticket.queue as usize, Some(ticket));
        self.0.leave(state);
        Ok(())
    }

    /// Nobody will ask about this work again.
    pub(crate) fn forget(&self, ticket: Ticket) {
        let ledger = &self.0.ledger;
        if !ledger.is_over(ticket) && ledger.check(ticket).is_ok() {
            let mut state = self.0.lock();
            let entries = &mut state.lanes[ticket.queue as usize].entries;
            if let Some(entry) = entries.iter_mut().find(|entry| entry.ticket == Some(ticket)) {
                entry.forgotten = true;
            }
        }
        ledger.forget(ticket);
    }
}

impl<W: Work> Drop for Pool<W> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.closed = true;
        // Nobody can ask for results any more, so everything ends as soon as it can.
        for entry in state.lanes.iter_mut().flat_map(|lane| &mut lane.entries) {
            entry.cancelled = true;
            entry.job.stop.set();
        }
        state.settle(&self.0.ledger);
        // Those at work look when they come to rest.
        self.0.unmet.store(UNMET, SeqCst);
        let mut asleep = VecDeque::new();
        state.call_to_look(usize::MAX, &mut asleep);
        drop(state);
        asleep.iter().for_each(|worker| worker.wake());
    }
}

impl<W: Work> Guest<'_, W> {
    /// Does the work. Its panic is its failure.
    pub(crate) fn run<T>(&mut self, work: impl FnOnce(&mut Scratch) -> T) -> Result<T, BackendError> {
        let scratch = self.scratch.as_mut().ok_or_else(|| BackendError::new("a guest has lost its private memory"))?;
        catch_unwind(AssertUnwindSafe(|| work(scratch))).map_err(|panic| panicked(&*panic))
    }
}

impl<W: Work> Drop for Guest<'_, W> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        self.leave(&mut state);
    }
}

impl<W: Work> Guest<'_, W> {
    fn leave(&mut self, state: &mut State<W>) {
        if let Some(scratch) = self.scratch.take() {
            state.return_scratch(scratch);
            state.guests -= 1;
        }
    }
}

impl<W: Work> Inline<'_, W> {
    /// Does the work, which tells how long it took where that is measured.
    pub(crate) fn run(mut self, work: impl FnOnce(&mut Scratch) -> Option<u64>) -> Ticket {
        let ledger = &self.guest.shared.ledger;
        match self.guest.run(work) {
            Ok(None) => {}
            Ok(Some(ns)) => ledger.took(self.ticket, ns),
            Err(error) => ledger.fail(self.ticket, error),
        }
        self.ticket
    }
}

impl<W: Work> Drop for Inline<'_, W> {
    fn drop(&mut self) {
        let shared = self.guest.shared;
        let mut state = shared.lock();
        self.guest.leave(&mut state);
        state.lanes[self.ticket.queue as usize].inline = false;
        shared.ledger.complete(self.ticket);
        if state.waiters > 0 {
            shared.over.notify_all();
        }
        if state.lanes.iter().any(|lane| !lane.entries.is_empty()) {
            // Lanes behind this one, or after it, may go on.
            shared.leave(state);
        }
    }
}
