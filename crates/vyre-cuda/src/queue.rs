//! One queue of a device: a stream, the numbers of its work, and how the host learns that work is over.
//!
//! Every kernel writes at its start, from one thread, that the work before it is over, to the queue's word in pinned memory: work of
//! a stream runs one piece after another, so it is, and it costs the host nothing. Only when somebody asks about the last piece is
//! the stream told to write the word behind it. So whoever waits for a piece never waits for kernels behind it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use vyre_driver::BackendError;
use vyre_driver::backend::{Ledger, Order, Ticket};
use vyre_spec::codes;

use crate::api::{Api, CudaError, DevicePointer, Handle, KernelLaunch};
use crate::batch::Batch;
use crate::device::{Device, Failure, describe, locked};
use crate::ring::Ring;
use crate::stop::Stops;

/// Queues of a device. All streams together are not more than the channels that the hardware has for them by default.
pub(crate) const QUEUES: u32 = 4;

/// Pieces of work on a queue before submitting waits. The driver itself blocks at about twice as many, with its locks held.
const IN_FLIGHT: u64 = 512;

pub(crate) struct Queue {
    pub(crate) stream: Handle,
    /// Held while work is put on the stream, so that numbers are in the stream's order.
    submission: Mutex<Submission>,
    /// Something that was put on the stream writes the word when this number, and no kernel behind it, is over.
    covered: AtomicU64,
    /// Somebody has asked in passing about this number.
    asked: AtomicU64,
    /// What the word was when somebody last looked. The device writes the word at every launch, so each look is a miss of the cache
    /// that takes about as long as all else that the host does for a launch.
    seen: AtomicU64,
    /// Questions in passing, of which few look.
    questions: AtomicU64,
    /// Not 0 while launches are kept; another number each time that begins.
    keeping: AtomicU64,
    pub(crate) live: Mutex<Live>,
}

/// What a stream waits for already: numbers of the other queues, and behind them of the memory's stream.
struct Submission {
    waits_for: [u64; QUEUES as usize + 1],
    /// Where small uploads wait for their turn.
    ring: Ring,
    /// Launches that have their numbers and are not on the stream yet.
    batch: Batch,
}

/// Launches about which there is something to do when they are over, in order.
#[derive(Default)]
pub(crate) struct Live {
    launches: VecDeque<LiveLaunch>,
    idle_events: Vec<[Handle; 2]>,
}

/// A launch that is timed or can be stopped.
pub(crate) struct LiveLaunch {
    pub(crate) number: u64,
    /// Recorded before and behind it.
    pub(crate) events: Option<[Handle; 2]>,
    /// Where it looks whether it has to end.
    pub(crate) stop: Option<DevicePointer>,
    pub(crate) is_cancelled: bool,
    /// Nobody will ask what became of it.
    pub(crate) is_forgotten: bool,
}

impl Live {
    pub(crate) fn take_events(&mut self) -> Option<[Handle; 2]> {
        self.idle_events.pop()
    }

    pub(crate) fn push(&mut self, launch: LiveLaunch) {
        self.launches.push_back(launch);
    }

    pub(crate) fn find(&mut self, number: u64) -> Option<&mut LiveLaunch> {
        let index = self.launches.binary_search_by_key(&number, |launch| launch.number).ok()?;
        self.launches.get_mut(index)
    }
}

impl Queue {
    pub(crate) fn open(api: &Api) -> Result<Queue, CudaError> {
        Ok(Queue {
            stream: api.create_stream(false)?,
            submission: Mutex::new(Submission {
                waits_for: [0; QUEUES as usize + 1],
                ring: Ring::open(api)?,
                batch: Batch::default(),
            }),
            covered: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            questions: AtomicU64::new(0),
            keeping: AtomicU64::new(0),
            live: Mutex::default(),
        })
    }

    pub(crate) fn close(&self, api: &Api) -> Result<(), CudaError> {
        let events = std::mem::take(&mut locked(&self.live).idle_events);
        events.into_iter().flatten().try_for_each(|event| api.destroy_event(event))?;
        let mut submission = locked(&self.submission);
        submission.batch.drop_graphs(api)?;
        submission.ring.close(api)?;
        drop(submission);
        api.destroy_stream(self.stream)
    }

    /// The device is gone; work up to a number was over before. Of what was told to end nobody knows whether it did all its work.
    pub(crate) fn lose(&self, ledger: &Ledger, stops: &Stops, over: Ticket, cause: &BackendError) {
        let mut live = locked(&self.live);
        for launch in live.launches.drain(..) {
            let ticket = Ticket { number: launch.number, ..over };
            let was_told = stops.unwatch(ticket) || launch.is_cancelled;
            if was_told && launch.number <= over.number {
                ledger.fail(ticket, cause.clone());
            }
        }
        ledger.complete(over);
    }
}

/// The right to put one piece of work on a queue.
pub(crate) struct Turn<'a> {
    device: &'a Device,
    pub(crate) queue: &'a Queue,
    index: u32,
    submission: MutexGuard<'a, Submission>,
    /// The stream was told to wait for something.
    waits: bool,
}

impl Turn<'_> {
    /// The number of the work. It is taken before the work is put on the stream, so that whatever the work uses is known to be
    /// in use even when only half of it gets there.
    pub(crate) fn ticket(&self) -> Result<Ticket, BackendError> {
        self.device.ledger.submit(self.index)
    }

    /// Puts on the stream what is kept for it.
    pub(crate) fn send(&mut self) -> Result<(), Failure> {
        if !self.submission.batch.is_empty() {
            self.queue.keeping.store(0, Ordering::Release);
            let last = self.submission.batch.send(self.device, self.index, self.queue.stream)?;
            // Each says at its start that what is before it is over.
            self.queue.covered.fetch_max(last.saturating_sub(1), Ordering::AcqRel);
        }
        Ok(())
    }

    /// Whether the launch that comes now is kept for a while; if not, those that are go first.
    pub(crate) fn keeps(&mut self, device: &Arc<Device>, may_be: bool) -> Result<bool, Failure> {
        let keeps = self.submission.batch.keeps_next() && may_be;
        if keeps && self.submission.batch.is_empty() {
            let Some(number) = device.sender.watch(device) else { return Ok(false) };
            self.queue.keeping.store(number, Ordering::Release);
        }
        if !keeps {
            self.send()?;
        }
        Ok(keeps)
    }

    pub(crate) fn keep(&mut self, ticket: Ticket, launch: &KernelLaunch, params: &[u64]) {
        self.submission.batch.keep(ticket.number, *launch, params);
    }

    /// Sends what is kept where it is enough.
    pub(crate) fn send_if_full(&mut self) -> Result<(), Failure> {
        if self.submission.batch.is_full() { self.send() } else { Ok(()) }
    }

    /// Puts a small upload on the stream. It may have to wait for room first; then it says for what.
    pub(crate) fn upload(&mut self, to: DevicePointer, bytes: &[u8]) -> Result<Result<Ticket, Ticket>, Failure> {
        let (api, stream) = (self.device.api, self.queue.stream);
        let (queue, over) = (self.index, self.device.words.load(self.index as usize));
        let submitted = self.device.ledger.submitted(queue)?;
        if bytes.is_empty() {
            return Ok(Ok(self.ticket()?));
        }
        if over >= submitted && !self.waits {
            // There is nothing that the driver could wait for, and its own way is the shortest.
            let ticket = self.ticket()?;
            api.upload(to, bytes, stream)?;
            return Ok(Ok(ticket));
        }
        match self.submission.ring.put(bytes, submitted + 1, over) {
            Some(from) => {
                let ticket = self.ticket()?;
                api.upload_async(to, from, bytes.len(), stream)?;
                Ok(Ok(ticket))
            }
            None => Ok(Err(Ticket { queue, number: self.submission.ring.oldest().unwrap_or(submitted) })),
        }
    }

    /// Where a kernel says at its start that what is before it is over.
    pub(crate) fn word(&self) -> DevicePointer {
        self.device.words.address(self.index as usize)
    }

    /// A kernel was put on the stream that says at its start that all before this number is over.
    pub(crate) fn is_marked_by(&self, ticket: Ticket) {
        self.queue.covered.fetch_max(ticket.number - 1, Ordering::AcqRel);
    }

    /// Marks what is before a copy that takes long enough for somebody to notice.
    pub(crate) fn mark_before(&self, bytes: u64) -> Result<(), CudaError> {
        const LONG: u64 = 64 << 20;
        if bytes > LONG { self.mark() } else { Ok(()) }
    }

    /// Makes sure that nobody has to wait for the work that comes now to learn that what is before it is over.
    pub(crate) fn mark(&self) -> Result<(), CudaError> {
        let last = self.device.ledger.submitted(self.index).unwrap_or(0);
        if self.queue.covered.load(Ordering::Acquire) < last {
            self.device.api.write_value(self.word(), last, self.queue.stream)?;
            self.queue.covered.fetch_max(last, Ordering::AcqRel);
        }
        Ok(())
    }
}

impl Device {
    pub(crate) fn queue(&self, ticket: Ticket) -> Result<&Queue, BackendError> {
        self.ledger.check(ticket)?;
        Ok(&self.queues[ticket.queue as usize])
    }

    pub(crate) fn is_over_on_device(&self, ticket: Ticket) -> bool {
        self.words.load(ticket.queue as usize) >= ticket.number
    }

    /// It is known to be over, from when somebody last looked. A launch asks this of everything that it comes after, so only one
    /// question in so many looks at the word.
    pub(crate) fn is_seen_over(&self, ticket: Ticket) -> bool {
        const LOOK_EVERY: u64 = 32;
        let Some(queue) = self.queues.get(ticket.queue as usize) else { return false };
        if queue.seen.load(Ordering::Acquire) >= ticket.number {
            return true;
        }
        // Not counted exactly when two threads ask at once, which no answer depends on.
        let questions = queue.questions.load(Ordering::Relaxed);
        queue.questions.store(questions.wrapping_add(1), Ordering::Relaxed);
        if !questions.is_multiple_of(LOOK_EVERY) {
            return false;
        }
        let seen = self.words.load(ticket.queue as usize);
        queue.seen.fetch_max(seen, Ordering::AcqRel).max(seen) >= ticket.number
    }

    /// Waits for a place on a queue, and lets what comes now wait for what `order` names and for memory to be ready.
    pub(crate) fn begin(&self, order: &Order<'_>, memory_ready: u64) -> Result<Turn<'_>, Failure> {
        let mut turn = self.begin_launch(order, memory_ready)?;
        turn.submission.batch.is_asked();
        turn.send()?;
        Ok(turn)
    }

    /// [`Device::begin`] for a launch that may be kept: see [`Turn::keeps`].
    pub(crate) fn begin_launch(&self, order: &Order<'_>, memory_ready: u64) -> Result<Turn<'_>, Failure> {
        let submitted = self.ledger.submitted(order.queue)?;
        for &ticket in order.after {
            // Covered before our own queue is locked: nobody holds two.
            let queue = self.queue(ticket)?;
            if ticket.queue != order.queue && !self.is_over_on_device(ticket) {
                self.cover(queue, ticket, || Some(locked(&queue.submission)))?;
            }
        }
        let queue = &self.queues[order.queue as usize];
        if submitted >= queue.seen.load(Ordering::Relaxed) + IN_FLIGHT {
            let seen = self.words.load(order.queue as usize);
            queue.seen.fetch_max(seen, Ordering::AcqRel);
            if submitted >= seen + IN_FLIGHT {
                let early = Ticket { queue: order.queue, number: submitted + 1 - IN_FLIGHT };
                self.wait_on_host(early, order.deadline)?;
            }
        }
        let mut turn =
            Turn { device: self, queue, index: order.queue, submission: locked(&queue.submission), waits: false };
        let memory = QUEUES as usize;
        let after = order.after.iter().filter(|ticket| ticket.queue != order.queue);
        let after = after.map(|ticket| (ticket.queue as usize, ticket.number));
        for (word, number) in after.chain([(memory, memory_ready)]) {
            if turn.submission.waits_for[word] < number && self.words.load(word) < number {
                // Whoever asks about what is before must not have to wait for this too.
                turn.send()?;
                turn.mark()?;
                self.api.wait_value(self.words.address(word), number, queue.stream)?;
                turn.submission.waits_for[word] = number;
                turn.waits = true;
            }
        }
        Ok(turn)
    }

    /// Makes sure that the queue's word will tell when a piece of work is over. Does nothing where the lock can't be had; then
    /// somebody is submitting more.
    fn cover<'a>(
        &self,
        queue: &'a Queue,
        ticket: Ticket,
        lock: impl FnOnce() -> Option<MutexGuard<'a, Submission>>,
    ) -> Result<(), Failure> {
        if queue.covered.load(Ordering::Acquire) < ticket.number
            && let Some(submission) = lock()
        {
            let mut turn = Turn { device: self, queue, index: ticket.queue, submission, waits: false };
            turn.submission.batch.is_asked();
            turn.send()?;
            // One that was just sent may tell it.
            if queue.covered.load(Ordering::Acquire) < ticket.number {
                turn.mark()?;
            }
        }
        Ok(())
    }

    /// Sends what queues have kept since they were last looked at, when `seen` was what they kept.
    pub(crate) fn send_kept(&self, seen: &mut [u64; QUEUES as usize]) -> Result<(), Failure> {
        for ((index, queue), seen) in (0..).zip(&self.queues).zip(seen) {
            let keeping = queue.keeping.load(Ordering::Acquire);
            if keeping != 0 && keeping == *seen {
                let submission = locked(&queue.submission);
                Turn { device: self, queue, index, submission, waits: false }.send()?;
            }
            *seen = keeping;
        }
        Ok(())
    }

    /// Gives the graphs of launches in a row up, while nothing runs; false where somebody is about to launch.
    pub(crate) fn drop_graphs(&self) -> bool {
        self.queues.iter().all(|queue| {
            let Ok(mut submission) = queue.submission.try_lock() else { return false };
            submission.batch.is_empty() && self.with(|| Ok(submission.batch.drop_graphs(self.api)?)).is_ok()
        })
    }

    /// Takes note of what is over on a queue.
    fn advance(&self, index: u32) -> Result<(), CudaError> {
        let queue = &self.queues[index as usize];
        let number = self.words.load(index as usize);
        if number <= self.ledger.completed(index) {
            return Ok(());
        }
        // Held until all is noted: nobody may see that work is over before its failure or time is there.
        let mut live = locked(&queue.live);
        while let Some(launch) = live.launches.front().filter(|launch| launch.number <= number) {
            let ticket = Ticket { queue: index, number: launch.number };
            match self.settle(ticket, launch) {
                Ok(()) => {}
                Err(error) if error.is_fault() => return Err(error),
                Err(error) => self.ledger.fail(ticket, describe(&error)),
            }
            if launch.is_forgotten {
                self.ledger.forget(ticket);
            }
            let events = launch.events;
            live.launches.pop_front();
            live.idle_events.extend(events);
        }
        self.ledger.complete(Ticket { queue: index, number });
        Ok(())
    }

    /// Notes the time of a launch that is over, and whether it ended before its work was done.
    fn settle(&self, ticket: Ticket, launch: &LiveLaunch) -> Result<(), CudaError> {
        let was_told = self.stops.unwatch(ticket) || launch.is_cancelled;
        if let Some(stop) = launch.stop
            && self.stops.give_back(self.api, stop, was_told)?
        {
            self.ledger.fail(
                ticket,
                BackendError::with_code(
                    &codes::backend::STOPPED,
                    "the launch was told to end before its work was done",
                ),
            );
        } else if let Some([start, end]) = launch.events {
            // The event lies before what told that the launch is over; it may be seen a moment later.
            self.api.wait_event(end)?;
            self.ledger.took(ticket, self.api.elapsed_ns(start, end)?);
        }
        Ok(())
    }

    /// Looks whether work is over, and notes it if so.
    fn look(&self, ticket: Ticket) -> Result<bool, Failure> {
        self.advance(ticket.queue)?;
        Ok(self.ledger.is_over(ticket) || self.is_lost())
    }

    /// Keeps nothing about a piece of work, whether it is over or not.
    pub(crate) fn forget(&self, ticket: Ticket) {
        let Ok(queue) = self.queue(ticket) else { return };
        if !self.ledger.is_over(ticket)
            && let Some(launch) = locked(&queue.live).find(ticket.number)
        {
            launch.is_forgotten = true;
        }
        self.ledger.forget(ticket);
    }

    /// Looks whether work is over without waiting for it.
    pub(crate) fn poll(&self, ticket: Ticket) -> Result<(), Failure> {
        if !self.look(ticket)? {
            self.ask_in_passing(ticket)?;
            self.check_health(ticket.queue)?;
        }
        Ok(())
    }

    /// Sees to it that the word will tell when somebody asks again: mostly the next launch comes first, and tells it for nothing.
    pub(crate) fn ask_in_passing(&self, ticket: Ticket) -> Result<(), Failure> {
        if self.queue(ticket)?.asked.fetch_max(ticket.number, Ordering::AcqRel) >= ticket.number {
            self.ask(ticket)?;
        }
        Ok(())
    }

    /// Sees to it that the queue's word will tell when a piece of work is over, unless somebody is submitting right now.
    pub(crate) fn ask(&self, ticket: Ticket) -> Result<(), Failure> {
        let queue = self.queue(ticket)?;
        self.cover(queue, ticket, || match queue.submission.try_lock() {
            Ok(submission) => Some(submission),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        })
    }

    /// Asks the driver about the health of the context, which no word tells; not more often than is of use, whoever calls.
    fn check_health(&self, queue: u32) -> Result<(), CudaError> {
        const BETWEEN_QUESTIONS: u64 = 100_000;
        let now = self.opened.elapsed().as_nanos() as u64;
        let asked = self.asked.load(Ordering::Relaxed);
        if now < asked + BETWEEN_QUESTIONS
            || self.asked.compare_exchange(asked, now, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return Ok(());
        }
        self.api.is_well(self.queues[queue as usize].stream)
    }

    /// Waits until work is over; false when the time is up before.
    pub(crate) fn wait_over(&self, ticket: Ticket, deadline: Option<Instant>) -> Result<bool, Failure> {
        let mut pace = Pace::new(deadline);
        loop {
            if self.look(ticket)? {
                return Ok(true);
            }
            self.ask(ticket)?;
            match pace.next() {
                Next::Look => {}
                Next::AskDriver => self.check_health(ticket.queue)?,
                Next::GiveUp => return Ok(false),
            }
        }
    }

    pub(crate) fn wait_on_host(&self, ticket: Ticket, deadline: Option<Instant>) -> Result<(), Failure> {
        if self.wait_over(ticket, deadline)? { Ok(()) } else { Err(late().into()) }
    }

    /// Waits on the host for everything before a piece of work, and for memory to be ready.
    pub(crate) fn wait_for_all_before(&self, order: &Order<'_>, memory_ready: u64) -> Result<(), Failure> {
        let last = self.ledger.submitted(order.queue)?;
        let last = (last > 0).then_some(Ticket { queue: order.queue, number: last });
        for &ticket in order.after.iter().chain(&last) {
            self.ledger.check(ticket)?;
            self.wait_on_host(ticket, order.deadline)?;
        }
        self.wait_for_ready(memory_ready, order.deadline)
    }

    /// Waits on the host until memory is cleared.
    pub(crate) fn wait_for_ready(&self, memory_ready: u64, deadline: Option<Instant>) -> Result<(), Failure> {
        let mut pace = Pace::new(deadline);
        while self.words.load(QUEUES as usize) < memory_ready && !self.is_lost() {
            match pace.next() {
                Next::Look => {}
                Next::AskDriver => self.check_health(0)?,
                Next::GiveUp => return Err(late().into()),
            }
        }
        Ok(())
    }

    /// A foreign stream's later work waits for ours.
    pub(crate) fn hold_stream(&self, ticket: Ticket, stream: Handle) -> Result<(), Failure> {
        let queue = self.queue(ticket)?;
        if self.is_over_on_device(ticket) {
            return Ok(());
        }
        self.cover(queue, ticket, || Some(locked(&queue.submission)))?;
        Ok(self.api.wait_value(self.words.address(ticket.queue as usize), ticket.number, stream)?)
    }
}

fn late() -> BackendError {
    BackendError::with_code(&codes::backend::TIMEOUT, "what has to be over before was not at the deadline")
}

enum Next {
    Look,
    AskDriver,
    GiveUp,
}

/// How a wait goes on: short work is noticed at once, and long work does not keep a core busy.
struct Pace {
    began: Instant,
    deadline: Option<Instant>,
    looks: u32,
}

impl Pace {
    /// Looks before the clock is asked for the first time.
    const EAGER: u32 = 32;
    /// From when on others may have the core in between, and from when on it is left alone for a while.
    const ALONE: Duration = Duration::from_micros(50);
    const SPIN: Duration = Duration::from_millis(4);

    fn new(deadline: Option<Instant>) -> Pace {
        Pace { began: Instant::now(), deadline, looks: 0 }
    }

    fn next(&mut self) -> Next {
        std::hint::spin_loop();
        self.looks += 1;
        if self.looks.is_multiple_of(Self::EAGER) { self.turn() } else { Next::Look }
    }

    fn turn(&mut self) -> Next {
        let now = Instant::now();
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(now));
        if left.is_some_and(|left| left.is_zero()) {
            return Next::GiveUp;
        }
        let waited = now - self.began;
        if waited > Self::ALONE {
            std::thread::yield_now();
        }
        if waited > Self::SPIN {
            let pause = (waited / 64).min(Duration::from_millis(1));
            std::thread::sleep(left.map_or(pause, |left| pause.min(left)));
            // The next look is followed by the clock again.
            self.looks = Self::EAGER - 1;
        }
        Next::AskDriver
    }
}
