//! A device that exists only here: its own memory, queues on threads of their own, and faults on request. The reference interpreter does
//! the work, so results are right and late.
#![allow(dead_code, reason = "each test program uses its share")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use vyre::backend::{
    Binding, Buffer, Capabilities, CompileOptions, Completion, DeviceBuffer, HostMemory, Launch, Ledger, Limits, Order,
    Pipeline, Recording, Step, Ticket, TypeSet, VyreBackend,
};
use vyre::{BackendError, DispatchConfig, Program, ReferenceBackend, ValidProgram, codes};

pub(crate) struct Sim {
    id: &'static str,
    able: Capabilities,
    shared: Arc<Shared>,
    /// Bytes that it has, and that are taken.
    memory: u64,
    pub(crate) compiles: AtomicU64,
    /// The workgroup size that is wrong: it gives other results.
    pub(crate) liar: Option<u32>,
    /// The workgroup size whose launches it refuses.
    pub(crate) refused: Option<u32>,
    pub(crate) refusals: AtomicU64,
    /// Launches that it still takes.
    pub(crate) takes: AtomicU64,
    /// Downloads that it still makes.
    pub(crate) gives: AtomicU64,
    /// What was fastest is slow from now on.
    pub(crate) is_hot: AtomicBool,
    /// Others use it, too, so that everything takes twice as long.
    pub(crate) is_busy: AtomicBool,
    /// Times are up to so many percent more or less than they are.
    pub(crate) noise: AtomicU64,
    /// It takes half as long again for some hundred launches, then not, and so on.
    pub(crate) swings: AtomicBool,
    /// Microseconds until who waits is told that work is over.
    pub(crate) tells_after: AtomicU64,
    /// It reaches the host's memory by itself.
    pub(crate) reaches_host: AtomicBool,
}

struct Shared {
    ledger: Ledger,
    queues: Mutex<Vec<VecDeque<Job>>>,
    changed: Condvar,
    used: AtomicU64,
    closed: AtomicBool,
    lost: AtomicBool,
    stopped: Mutex<Vec<Ticket>>,
    held: AtomicBool,
    /// Launches that ran, and the workgroup size of the latest along x.
    ran: AtomicU64,
    ran_in: AtomicU64,
    /// Launches that are to be timed and not over, by what they are, and the most of one kind that there were.
    timed: Mutex<Vec<Kind>>,
    most_timed: AtomicU64,
}

/// Which of a tuner's candidates a launch is.
type Kind = ([u32; 3], vyre::backend::Knobs);

struct Job {
    ticket: Ticket,
    after: Vec<Ticket>,
    timed: Option<u64>,
    work: Work,
}

/// Is told by the function that it gets when to end.
type Work = Box<dyn FnOnce(&dyn Fn() -> bool) -> Result<(), BackendError> + Send>;

struct SimPipeline {
    program: ValidProgram,
    size: [u32; 3],
    interruptible: bool,
    constants: vyre::specialization::SpecMap,
    knobs: vyre::backend::Knobs,
}

impl Pipeline for SimPipeline {
    fn workgroup_size(&self) -> [u32; 3] {
        self.size
    }
}

struct SimBuffer {
    bytes: Mutex<Vec<u8>>,
    size: u64,
    shared: Arc<Shared>,
}

impl DeviceBuffer for SimBuffer {
    fn bytes(&self) -> u64 {
        self.size
    }
}

impl Drop for SimBuffer {
    fn drop(&mut self) {
        self.shared.used.fetch_sub(self.size, Ordering::Relaxed);
    }
}

/// A launch of a program with this name takes until it is told to end.
pub(crate) const ENDLESS: &str = "endless";

impl Sim {
    pub(crate) fn new(id: &'static str, queues: u32, memory: u64) -> Sim {
        let mut able = Capabilities::default();
        able.name = format!("simulated {id}");
        able.driver = "1".to_owned();
        able.types = TypeSet::all();
        able.limits = Limits::unlimited();
        able.features = vyre::kernel::Features(u32::MAX);
        able.resident = true;
        able.timestamps = true;
        able.queues = queues;
        able.shares_buffers = true;
        let shared = Arc::new(Shared {
            ledger: Ledger::new(queues),
            queues: Mutex::new((0..queues).map(|_| VecDeque::new()).collect()),
            changed: Condvar::new(),
            used: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            stopped: Mutex::default(),
            held: AtomicBool::new(false),
            ran: AtomicU64::new(0),
            ran_in: AtomicU64::new(0),
            timed: Mutex::default(),
            most_timed: AtomicU64::new(0),
        });
        for queue in 0..queues {
            let shared = shared.clone();
            std::thread::spawn(move || shared.serve(queue));
        }
        Sim {
            id,
            able,
            shared,
            memory,
            compiles: AtomicU64::new(0),
            liar: None,
            refused: None,
            refusals: AtomicU64::new(0),
            takes: AtomicU64::new(u64::MAX),
            gives: AtomicU64::new(u64::MAX),
            is_hot: AtomicBool::new(false),
            is_busy: AtomicBool::new(false),
            noise: AtomicU64::new(0),
            swings: AtomicBool::new(false),
            tells_after: AtomicU64::new(0),
            reaches_host: AtomicBool::new(false),
        }
    }

    pub(crate) fn lying(mut self, size: u32) -> Sim {
        self.liar = Some(size);
        self
    }

    /// Has so many bytes for a workgroup.
    pub(crate) fn with_workgroup_memory(mut self, bytes: u64) -> Sim {
        self.able.limits.max_workgroup_memory = bytes;
        self
    }

    pub(crate) fn refusing(mut self, size: u32) -> Sim {
        self.refused = Some(size);
        self
    }

    /// The most launches of one kind that were to be timed and not over, of any kind.
    pub(crate) fn most_timed_under_way(&self) -> usize {
        self.shared.most_timed.load(Ordering::SeqCst) as usize
    }

    /// Records steps and replays them as one.
    pub(crate) fn recording(mut self) -> Sim {
        self.able.recordings = true;
        self
    }

    /// Launches that ran so far, and the workgroup size of the latest along x.
    pub(crate) fn ran(&self) -> (u64, u64) {
        (self.shared.ran.load(Ordering::SeqCst), self.shared.ran_in.load(Ordering::SeqCst))
    }

    /// From now on nothing works, and what is under way fails.
    pub(crate) fn lose(&self) {
        self.shared.lost.store(true, Ordering::SeqCst);
        let gone = gone();
        // Whoever submits holds the same lock, so nothing slips in between.
        let mut queues = self.shared.queues.lock().unwrap();
        self.shared.ledger.lose_all(&gone);
        let dropped: Vec<_> = queues.iter_mut().flat_map(std::mem::take).collect();
        drop(queues);
        drop(dropped);
        self.shared.changed.notify_all();
    }

    /// Works again, without what was in its memory.
    pub(crate) fn come_back(&self) {
        self.shared.lost.store(false, Ordering::SeqCst);
    }

    /// Keeps work from beginning, or lets it.
    pub(crate) fn hold(&self, held: bool) {
        self.shared.held.store(held, Ordering::SeqCst);
        self.shared.changed.notify_all();
    }

    fn alive(&self) -> Result<(), BackendError> {
        match self.shared.lost.load(Ordering::SeqCst) {
            true => Err(gone()),
            false => Ok(()),
        }
    }

    /// 256 is the fastest, by far.
    pub(crate) fn cost(size: u32) -> u64 {
        match size {
            256 => 100_000,
            128 => 140_000,
            512 => 150_000,
            64 => 220_000,
            _ => 400_000,
        }
    }

    fn queue(
        &self,
        order: &Order<'_>,
        timed: Option<u64>,
        work: impl FnOnce(&dyn Fn() -> bool) -> Result<(), BackendError> + Send + 'static,
    ) -> Result<Ticket, BackendError> {
        self.alive()?;
        for &ticket in order.after {
            self.shared.ledger.check(ticket)?;
        }
        let mut queues = self.shared.queues.lock().unwrap();
        let ticket = self.shared.ledger.submit(order.queue)?;
        let job = Job { ticket, after: order.after.to_vec(), timed, work: Box::new(work) };
        queues[order.queue as usize].push_back(job);
        drop(queues);
        self.shared.changed.notify_all();
        Ok(ticket)
    }
}

impl Shared {
    fn serve(&self, queue: u32) {
        loop {
            let job = {
                let mut queues = self.queues.lock().unwrap();
                loop {
                    let ready = queues[queue as usize]
                        .front()
                        .is_some_and(|job| job.after.iter().all(|&ticket| self.ledger.is_over(ticket)));
                    if ready && !self.held.load(Ordering::SeqCst) {
                        break queues[queue as usize].pop_front().unwrap();
                    }
                    if self.closed.load(Ordering::SeqCst) {
                        return;
                    }
                    queues = self.changed.wait_timeout(queues, Duration::from_millis(50)).unwrap().0;
                }
            };
            let ticket = job.ticket;
            let stopped = || self.stopped.lock().unwrap().contains(&ticket) || self.lost.load(Ordering::SeqCst);
            if self.ledger.is_over(ticket) {
                continue;
            }
            let outcome = if stopped() { Err(stop()) } else { (job.work)(&stopped) };
            // Work that ends because the device is gone was not told to end.
            let outcome = match self.lost.load(Ordering::SeqCst) {
                true => outcome.map_err(|_| gone()),
                false => outcome,
            };
            match outcome {
                Ok(()) => job.timed.iter().for_each(|ns| self.ledger.took(ticket, *ns)),
                Err(error) => self.ledger.fail(ticket, error),
            }
            self.ledger.complete(ticket);
            let _queues = self.queues.lock().unwrap();
            self.changed.notify_all();
        }
    }

    fn wait(&self, done: impl Fn() -> bool, deadline: Option<Instant>) -> bool {
        let mut queues = self.queues.lock().unwrap();
        while !done() {
            let left = deadline.map_or(Duration::from_millis(20), |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return false;
            }
            queues = self.changed.wait_timeout(queues, left.min(Duration::from_millis(20))).unwrap().0;
        }
        true
    }
}

fn gone() -> BackendError {
    BackendError::with_code(&codes::backend::DEVICE_LOST, "the simulated device is gone")
}

fn stop() -> BackendError {
    BackendError::with_code(&codes::backend::STOPPED, "the launch was told to end")
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        self.shared.changed.notify_all();
    }
}

fn buffer_of(buffer: &Buffer) -> Result<&SimBuffer, BackendError> {
    buffer.of::<SimBuffer>("simulated")
}

fn read(part: &Binding) -> Result<Vec<u8>, BackendError> {
    let bytes = buffer_of(&part.buffer)?.bytes.lock().unwrap();
    Ok(bytes[part.offset as usize..(part.offset + part.bytes) as usize].to_vec())
}

fn write(part: &Binding, bytes: &[u8]) -> Result<(), BackendError> {
    buffer_of(&part.buffer)?.bytes.lock().unwrap()[part.offset as usize..][..bytes.len()].copy_from_slice(bytes);
    Ok(())
}

struct SimRecording(Mutex<Vec<Step>>);

impl Recording for SimRecording {
    fn steps(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

impl Sim {
    /// What a launch does when its turn comes.
    fn work(
        &self,
        pipeline: &Arc<dyn Pipeline>,
        bindings: &[Binding],
        grid: [u32; 3],
    ) -> impl FnOnce(&dyn Fn() -> bool) -> Result<(), BackendError> + Send + use<> {
        let (pipeline, bindings) = (pipeline.clone(), bindings.to_vec());
        let (liar, shared) = (self.liar, self.shared.clone());
        move |stopped| {
            let made = pipeline.of::<SimPipeline>("simulated")?;
            shared.ran.fetch_add(1, Ordering::SeqCst);
            shared.ran_in.store(u64::from(made.size[0]), Ordering::SeqCst);
            if made.program.name() == ENDLESS {
                while !(made.interruptible && stopped()) {
                    std::thread::sleep(Duration::from_micros(200));
                    if stopped() && !made.interruptible {
                        break;
                    }
                }
                return Err(stop());
            }
            let contents = bindings.iter().map(read).collect::<Result<Vec<_>, _>>()?;
            let order = made.program.binding_order();
            let kind = |slot: usize| made.program.buffers()[order[slot]].kind;
            let inputs: Vec<Vec<u8>> =
                (0..order.len()).filter(|&slot| kind(slot).is_input()).map(|slot| contents[slot].clone()).collect();
            let mut config = DispatchConfig::default();
            config.specialization = made.constants.clone();
            config.workgroup_override = Some(made.size);
            config.grid_override = Some(grid);
            for slot in (0..order.len()).filter(|&slot| !kind(slot).is_input()) {
                let shape = vyre::launch::shape_of(&made.program, order[slot])?;
                let name = made.program.buffers()[order[slot]].name.as_str().to_owned();
                config.output_elements.insert(name, shape.elements_in(bindings[slot].bytes));
            }
            let results = ReferenceBackend.dispatch(&made.program, &inputs, &config)?;
            let targets = (0..order.len()).filter(|&slot| kind(slot).is_result());
            for (slot, mut result) in targets.zip(results) {
                if liar == Some(made.size[0]) {
                    result[0] ^= 1;
                }
                write(&bindings[slot], &result)?;
            }
            Ok(())
        }
    }
}

impl VyreBackend for Sim {
    fn id(&self) -> &'static str {
        self.id
    }

    fn dispatch(
        &self,
        program: &Program,
        inputs: &[Vec<u8>],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        self.alive()?;
        ReferenceBackend.dispatch(program, inputs, config)
    }

    fn capabilities(&self) -> &Capabilities {
        &self.able
    }

    fn compile(&self, program: &ValidProgram, options: &CompileOptions) -> Result<Arc<dyn Pipeline>, BackendError> {
        self.alive()?;
        self.compiles.fetch_add(1, Ordering::Relaxed);
        if self.able.limits.max_workgroup_memory < Limits::unlimited().max_workgroup_memory {
            self.able.check(&vyre::kernel::lower(program, &vyre::kernel::Options::default())?)?;
        }
        let size = options.workgroup_size.unwrap_or(program.workgroup_size());
        let mut constants = vyre::specialization::SpecMap::new();
        for (name, value) in &options.specialization {
            use vyre::ir::Literal;
            match *value {
                Literal::U32(value) => constants.insert(name.as_str(), value),
                Literal::I32(value) => constants.insert(name.as_str(), value),
                Literal::F32(value) => constants.insert(name.as_str(), value),
                Literal::Bool(value) => constants.insert(name.as_str(), value),
                Literal::F16(value) => constants.insert(name.as_str(), value.to_f32()),
                _ => return Err(BackendError::new("a constant of another type")),
            };
        }
        let (program, interruptible) = (program.clone(), options.interruptible);
        Ok(Arc::new(SimPipeline { program, size, interruptible, constants, knobs: options.knobs }))
    }

    fn allocate(&self, bytes: u64) -> Result<Buffer, BackendError> {
        self.alive()?;
        let used = self.shared.used.fetch_add(bytes, Ordering::Relaxed);
        if used + bytes > self.memory {
            self.shared.used.fetch_sub(bytes, Ordering::Relaxed);
            return Err(BackendError::with_code(&codes::backend::OUT_OF_MEMORY, "the simulated device is full"));
        }
        let buffer = SimBuffer { bytes: Mutex::new(vec![0; bytes as usize]), size: bytes, shared: self.shared.clone() };
        Ok(Buffer::new(buffer))
    }

    fn upload(&self, buffer: &Buffer, offset: u64, bytes: &[u8], order: &Order<'_>) -> Result<Ticket, BackendError> {
        buffer.check_range(offset, bytes.len() as u64)?;
        let part = Binding { buffer: buffer.clone(), offset, bytes: bytes.len() as u64 };
        let bytes = bytes.to_vec();
        self.queue(order, None, move |_| write(&part, &bytes))
    }

    fn upload_queued(
        &self,
        buffer: &Buffer,
        offset: u64,
        memory: &Arc<HostMemory>,
        at: u64,
        bytes: u64,
        order: &Order<'_>,
    ) -> Result<Option<Ticket>, BackendError> {
        if !self.reaches_host.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let (part, memory) = (Binding { buffer: buffer.clone(), offset, bytes }, memory.clone());
        let queued = self.queue(order, None, move |_| {
            let mut copied = vec![0; bytes as usize];
            memory.copy_to(at as usize, &mut copied);
            write(&part, &copied)
        });
        queued.map(Some)
    }

    fn download(&self, buffer: &Buffer, offset: u64, bytes: &mut [u8], order: &Order<'_>) -> Result<(), BackendError> {
        self.alive()?;
        buffer.check_range(offset, bytes.len() as u64)?;
        let last = Ticket { queue: order.queue, number: self.shared.ledger.submitted(order.queue)? };
        let done = || {
            order.after.iter().all(|&ticket| self.shared.ledger.is_over(ticket))
                && (last.number == 0 || self.shared.ledger.is_over(last))
        };
        if !self.shared.wait(done, order.deadline) {
            return Err(BackendError::with_code(&codes::backend::TIMEOUT, "what comes before is not over"));
        }
        self.alive()?;
        let given = self.gives.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |gives| gives.checked_sub(1));
        given.map_err(|_| BackendError::with_code(&codes::backend::FAILED, "it gives no more, as planned"))?;
        let part = Binding { buffer: buffer.clone(), offset, bytes: bytes.len() as u64 };
        bytes.copy_from_slice(&read(&part)?);
        Ok(())
    }

    fn copy(&self, from: &Binding, to: &Binding, order: &Order<'_>) -> Result<Ticket, BackendError> {
        let (from, to) = (from.clone(), to.clone());
        self.queue(order, None, move |_| write(&to, &read(&from)?))
    }

    fn clear(&self, part: &Binding, order: &Order<'_>) -> Result<Ticket, BackendError> {
        let part = part.clone();
        self.queue(order, None, move |_| write(&part, &vec![0; part.bytes as usize]))
    }

    fn submit(&self, pipeline: &Arc<dyn Pipeline>, launch: &Launch<'_>) -> Result<Ticket, BackendError> {
        let taken = self.takes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |takes| takes.checked_sub(1));
        taken.map_err(|_| BackendError::with_code(&codes::backend::LIMIT, "it takes no more, as planned"))?;
        let made = pipeline.of::<SimPipeline>(self.id)?;
        Binding::check_all(launch.bindings, made.program.binding_order().len(), 1)?;
        if self.refused == Some(made.size[0]) {
            self.refusals.fetch_add(1, Ordering::Relaxed);
            return Err(BackendError::with_code(&codes::backend::LIMIT, "it takes no such launch, as planned"));
        }
        let mut ns = Self::cost(made.size[0]);
        if self.is_hot.load(Ordering::Relaxed) && made.size[0] == 256 {
            ns *= 3;
        }
        if self.is_busy.load(Ordering::Relaxed) {
            ns *= 2;
        }
        // Threads that do several invocations share their loads.
        if made.knobs.merges() {
            ns /= 2;
        }
        // A device is never quite steady.
        let number = self.shared.ledger.submitted(launch.order.queue)?;
        let jitter = number.wrapping_mul(2_654_435_761) % 997;
        let percent = self.noise.load(Ordering::Relaxed);
        if percent > 0 {
            let bits = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let share = (bits ^ (bits >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40;
            ns = ns * (100 - percent) / 100 + 2 * ns * percent / 100 * share / (1 << 24);
        }
        if self.swings.load(Ordering::Relaxed) && (number / 300).is_multiple_of(2) {
            ns += ns / 2;
        }
        let work = self.work(pipeline, launch.bindings, launch.grid);
        if !launch.timed {
            return self.queue(&launch.order, None, work);
        }
        let (shared, kind) = (self.shared.clone(), (made.size, made.knobs));
        let mut timed = shared.timed.lock().unwrap();
        timed.push(kind);
        let under_way = timed.iter().filter(|other| **other == kind).count();
        shared.most_timed.fetch_max(under_way as u64, Ordering::SeqCst);
        drop(timed);
        self.queue(&launch.order, Some(ns + jitter), move |stopped| {
            let outcome = work(stopped);
            let mut timed = shared.timed.lock().unwrap();
            let at = timed.iter().position(|other| *other == kind);
            if let Some(at) = at {
                timed.swap_remove(at);
            }
            outcome
        })
    }

    fn record(&self, steps: &[Step]) -> Result<Arc<dyn Recording>, BackendError> {
        Ok(Arc::new(SimRecording(Mutex::new(steps.to_vec()))))
    }

    fn revise(&self, recording: &Arc<dyn Recording>, steps: &[(usize, Step)]) -> Result<(), BackendError> {
        let mut recorded = recording.of::<SimRecording>(self.id)?.0.lock().unwrap();
        steps.iter().for_each(|(at, step)| recorded[*at] = step.clone());
        Ok(())
    }

    fn replay(&self, recording: &Arc<dyn Recording>, order: &Order<'_>) -> Result<Ticket, BackendError> {
        let mut all: Vec<Work> = Vec::new();
        for step in recording.of::<SimRecording>(self.id)?.0.lock().unwrap().iter() {
            all.push(match step.clone() {
                Step::Launch { pipeline, bindings, grid } => Box::new(self.work(&pipeline, &bindings, grid)),
                Step::Copy { from, to } => Box::new(move |_: &dyn Fn() -> bool| write(&to, &read(&from)?)),
                Step::Clear(part) => Box::new(move |_: &dyn Fn() -> bool| write(&part, &vec![0; part.bytes as usize])),
            });
        }
        self.queue(order, None, move |stopped| all.into_iter().try_for_each(|work| work(stopped)))
    }

    fn poll(&self, ticket: Ticket) -> Result<Option<Completion>, BackendError> {
        self.shared.ledger.outcome(ticket)
    }

    fn wait(&self, ticket: Ticket, timeout: Option<Duration>) -> Result<Option<Completion>, BackendError> {
        self.shared.ledger.check(ticket)?;
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        self.shared.wait(|| self.shared.ledger.is_over(ticket), deadline);
        std::thread::sleep(Duration::from_micros(self.tells_after.load(Ordering::Relaxed)));
        self.shared.ledger.outcome(ticket)
    }

    fn cancel(&self, ticket: Ticket) -> Result<(), BackendError> {
        self.shared.ledger.check(ticket)?;
        self.shared.stopped.lock().unwrap().push(ticket);
        Ok(())
    }

    fn is_idle(&self, queue: u32) -> bool {
        self.shared.ledger.is_idle(queue)
    }

    fn forget(&self, ticket: Ticket) {
        self.shared.ledger.forget(ticket);
        self.shared.stopped.lock().unwrap().retain(|stopped| *stopped != ticket);
    }
}
