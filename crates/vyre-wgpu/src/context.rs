//! An adapter's device with its queue and the launches on their way, and how it is replaced when it is lost.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use smallvec::SmallVec;
use vyre_driver::BackendError;
use vyre_driver::backend::DeviceBuffer;
use vyre_spec::codes::{self, Code};
use wgpu::PollType;

use crate::adapter::{Adapter, ready};
use crate::pipeline::Made;
use crate::raw::StopWord;

/// Launches that are recorded before they are given to the queue while it has others to do: few at first, so that it soon has, then
/// twice as many each time, as every submission costs.
const BATCH: std::ops::RangeInclusive<u64> = 32..=256;

/// Bind groups that are kept for the next launch on the same buffers.
const KEPT_GROUPS: usize = 256;

/// Timings that nobody asked for are forgotten beyond this number.
const KEPT_TIMINGS: usize = 1024;

/// Bytes that are read from the device at once.
const PIECE: u64 = 64 << 20;

/// Buffers for reading that are kept.
const KEPT_STAGING: usize = 4;

/// Uploads that may gather before they are on their way.
const GATHERED_UPLOADS: u64 = 64 << 20;

/// An adapter and its device.
pub(crate) struct Device {
    pub(crate) adapter: Adapter,
    context: RwLock<Option<Context>>,
    generations: AtomicU64,
    numbers: AtomicU64,
}

/// The device between two losses. Whoever uses it holds the read lock.
pub(crate) struct Context {
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    pub(crate) features: wgpu::Features,
    /// Counts the devices; handles of another generation are gone.
    pub(crate) generation: u64,
    pub(crate) stop: Option<StopWord>,
    max_grid: u32,
    lost: Arc<Mutex<Option<String>>>,
    is_lost: Arc<AtomicBool>,
    failed: Arc<Mutex<Option<wgpu::Error>>>,
    has_failed: Arc<AtomicBool>,
    work: Mutex<Work>,
    staging: Mutex<Vec<wgpu::Buffer>>,
}

/// The buffers of a bind group, by number, with offset and size.
type Parts = SmallVec<[(u64, u64, u64); 8]>;

/// Launches that were submitted. They run in the order of their numbers.
#[derive(Default)]
pub(crate) struct Work {
    /// Number of the last one.
    pub(crate) submitted: u64,
    /// Those up to this one are with the queue.
    flushed: u64,
    /// All up to this one are done.
    pub(crate) completed: u64,
    /// Those up to this one that were not done were told to end.
    pub(crate) stopped: u64,
    /// Those up to this one that were not done were lost with their device.
    pub(crate) lost: u64,
    open: Option<Open>,
    /// Launches that the next submission waits for.
    batch: u64,
    /// The last launch of each submission.
    submissions: VecDeque<(u64, wgpu::SubmissionIndex)>,
    groups: HashMap<(u64, Parts), wgpu::BindGroup>,
    uploaded: u64,
    timed: VecDeque<(u64, Clock)>,
    idle_clocks: Vec<Clock>,
}

/// Commands that are being recorded.
struct Open {
    // Must end before its encoder does.
    pass: Option<wgpu::ComputePass<'static>>,
    encoder: wgpu::CommandEncoder,
    /// Pipeline and bind group that the pass has set.
    set: Option<(u64, Parts)>,
    /// What the latest launch with these was told.
    told: Words,
    launches: u64,
}

/// What takes the time of a launch.
struct Clock {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    read: wgpu::Buffer,
}

/// Buffers with offset and size.
pub(crate) type Bindings<'a> = SmallVec<[(&'a WgpuBuffer, u64, u64); 8]>;

/// Immediate data.
pub(crate) type Words = SmallVec<[u32; 32]>;

/// One launch, checked.
pub(crate) struct Prepared<'a> {
    pub(crate) pipeline: u64,
    pub(crate) made: &'a Made,
    pub(crate) interruptible: bool,
    pub(crate) bindings: Bindings<'a>,
    /// The base of each part and the launch's number are filled in.
    pub(crate) facts: Words,
    pub(crate) grid: [u32; 3],
    pub(crate) timed: bool,
}

impl Device {
    pub(crate) fn open(adapter: Adapter) -> Result<Arc<Device>, BackendError> {
        let device =
            Device { adapter, context: RwLock::new(None), generations: AtomicU64::new(0), numbers: AtomicU64::new(1) };
        device.reopen()?;
        Ok(Arc::new(device))
    }

    /// A number that no other pipeline or buffer of this device has.
    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Runs something on the device, on a fresh one where the last was lost.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&Context) -> Result<T, BackendError>) -> Result<T, BackendError> {
        loop {
            let guard = self.context.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(context) = &*guard
                && !context.is_lost()
            {
                let done = work(context);
                return if context.is_lost() { Err(context.lost_error()) } else { done };
            }
            drop(guard);
            self.reopen()?;
        }
    }

    fn reopen(&self) -> Result<(), BackendError> {
        let mut context = self.context.write().unwrap_or_else(PoisonError::into_inner);
        let mut work = Work::default();
        if let Some(old) = &*context {
            if !old.is_lost() {
                // Somebody else was here first.
                return Ok(());
            }
            let old = old.work();
            work.submitted = old.submitted;
            work.flushed = old.submitted;
            work.completed = old.completed;
            work.stopped = old.stopped;
            work.lost = old.submitted;
        }
        let generation = self.generations.fetch_add(1, Ordering::Relaxed);
        *context = Some(Context::open(&self.adapter, generation, work)?);
        Ok(())
    }

    /// Drops what was kept for a buffer.
    fn forget(&self, number: u64, generation: u64) {
        let guard = self.context.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(context) = &*guard
            && context.generation == generation
        {
            context.work().groups.retain(|(_, parts), _| parts.iter().all(|part| part.0 != number));
        }
    }
}

impl Context {
    fn open(adapter: &Adapter, generation: u64, work: Work) -> Result<Context, BackendError> {
        let request = adapter.adapter.request_device(&wgpu::DeviceDescriptor {
            label: None,
            required_features: adapter.features,
            required_limits: adapter.limits.clone(),
            experimental_features: wgpu::ExperimentalFeatures::disabled(),
            memory_hints: wgpu::MemoryHints::Performance,
            trace: wgpu::Trace::Off,
        });
        let refused = |why: String| {
            let name = &adapter.capabilities.name;
            BackendError::with_code(&codes::wgpu::CALL_FAILED, format!("{name} can't be opened: {why}"))
        };
        let (device, queue) = ready(request)
            .ok_or_else(|| refused("the answer is late".to_owned()))?
            .map_err(|error| refused(error.to_string()))?;
        let (failed, has_failed) = (Arc::new(Mutex::new(None)), Arc::new(AtomicBool::new(false)));
        device.on_uncaptured_error(Arc::new({
            let (failed, has_failed) = (Arc::clone(&failed), Arc::clone(&has_failed));
            move |error| {
                failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                has_failed.store(true, Ordering::Release);
            }
        }));
        let (lost, is_lost) = (Arc::new(Mutex::new(None)), Arc::new(AtomicBool::new(false)));
        device.set_device_lost_callback({
            let (lost, is_lost) = (Arc::clone(&lost), Arc::clone(&is_lost));
            move |_, why| {
                lost.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
                is_lost.store(true, Ordering::Release);
            }
        });
        let stop = StopWord::new(&device);
        if let Some(stop) = &stop {
            stop.stop(work.submitted as u32);
        }
        Ok(Context {
            device,
            queue,
            features: adapter.features,
            generation,
            stop,
            max_grid: adapter.limits.max_compute_workgroups_per_dimension.max(1),
            lost,
            is_lost,
            failed,
            has_failed,
            work: Mutex::new(work),
            staging: Mutex::default(),
        })
    }

    pub(crate) fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the device back; everything on it is lost.
    pub(crate) fn destroy(&self) {
        self.device.destroy();
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| "it was given back".to_owned());
        self.is_lost.store(true, Ordering::Release);
    }

    fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    fn lost_error(&self) -> BackendError {
        let why = self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default();
        let why = if why.is_empty() { "the driver gives no reason".to_owned() } else { why };
        BackendError::with_code(
            &codes::backend::DEVICE_LOST,
            format!(
                "the device was lost with all its buffers: {why} Fix: Allocate and upload again; the next call opens the device anew."
            ),
        )
    }

    /// What wgpu complained about since the last look.
    fn check(&self) -> Result<(), BackendError> {
        if !self.has_failed.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        match self.failed.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(describe(&error, &codes::wgpu::CALL_FAILED)),
            None => Ok(()),
        }
    }

    /// Runs something whose errors are its own, whatever other threads do.
    pub(crate) fn scoped<T>(&self, code: Code, work: impl FnOnce() -> T) -> Result<T, BackendError> {
        let memory = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let internal = self.device.push_error_scope(wgpu::ErrorFilter::Internal);
        let validation = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let made = work();
        for scope in [validation, internal, memory] {
            if let Some(error) = ready(scope.pop()).flatten() {
                return Err(describe(&error, code));
            }
        }
        Ok(made)
    }

    /// A new buffer, all zeros.
    pub(crate) fn create_buffer(&self, size: u64, usage: wgpu::BufferUsages) -> Result<wgpu::Buffer, BackendError> {
        self.scoped(&codes::backend::OUT_OF_MEMORY, || {
            self.device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false })
        })
    }

    fn open_commands<'w>(&self, work: &'w mut Work) -> &'w mut Open {
        work.open.get_or_insert_with(|| Open {
            pass: None,
            encoder: self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default()),
            set: None,
            told: Words::new(),
            launches: 0,
        })
    }

    /// The encoder, outside of any pass.
    fn encoder<'w>(&self, work: &'w mut Work) -> &'w mut wgpu::CommandEncoder {
        let open = self.open_commands(work);
        open.pass = None;
        open.set = None;
        &mut open.encoder
    }

    /// Gives what was recorded to the queue.
    pub(crate) fn flush(&self, work: &mut Work) -> Result<(), BackendError> {
        if let Some(open) = work.open.take() {
            drop(open.pass);
            let index = self.queue.submit([open.encoder.finish()]);
            work.flushed = work.submitted;
            work.uploaded = 0;
            while work.submissions.front().is_some_and(|(number, _)| *number <= work.completed) {
                work.submissions.pop_front();
            }
            // Lets wgpu take back what finished submissions held.
            if work.submissions.len() >= 2 {
                self.poll()?;
            }
            work.submissions.push_back((work.submitted, index));
        }
        self.check()
    }

    fn poll(&self) -> Result<(), BackendError> {
        match self.device.poll(PollType::Poll) {
            Ok(_) => Ok(()),
            Err(error) => Err(BackendError::with_code(&codes::wgpu::CALL_FAILED, error.to_string())),
        }
    }

    /// Records a launch, and gives it to the queue when that has nothing else to do.
    pub(crate) fn submit(&self, mut launch: Prepared<'_>) -> Result<u64, BackendError> {
        let mut guard = self.work();
        let work = &mut *guard;
        let number = work.submitted + 1;
        if launch.interruptible {
            launch.facts[crate::emit::Facts::LAUNCH as usize] = number as u32;
        }
        if launch.grid.iter().all(|&size| size > 0) {
            let group = self.group(work, &launch)?;
            let clock = if launch.timed { Some(self.take_clock(work)?) } else { None };
            let open = self.open_commands(work);
            if let Some(clock) = &clock {
                open.pass = None;
                let writes = wgpu::ComputePassTimestampWrites {
                    query_set: &clock.queries,
                    beginning_of_pass_write_index: Some(0),
                    end_of_pass_write_index: Some(1),
                };
                let pass = wgpu::ComputePassDescriptor { label: None, timestamp_writes: Some(writes) };
                open.pass = Some(open.encoder.begin_compute_pass(&pass).forget_lifetime());
                open.set = None;
            }
            open.launch(launch, group, self.max_grid);
            if let Some(clock) = clock {
                open.pass = None;
                open.set = None;
                open.encoder.resolve_query_set(&clock.queries, 0..2, &clock.resolved, 0);
                open.encoder.copy_buffer_to_buffer(&clock.resolved, 0, &clock.read, 0, 16);
                work.timed.push_back((number, clock));
            }
        }
        work.submitted = number;
        if work.flushed <= work.completed {
            work.batch = *BATCH.start();
            self.flush(work)?;
        } else if work.open.as_ref().is_some_and(|open| open.launches >= work.batch) {
            work.batch = (work.batch * 2).min(*BATCH.end());
            self.flush(work)?;
        }
        Ok(number)
    }

    fn group(
        &self,
        work: &mut Work,
        launch: &Prepared<'_>,
    ) -> Result<Option<(u64, Parts, wgpu::BindGroup)>, BackendError> {
        let parts: Parts =
            launch.bindings.iter().map(|(buffer, offset, size)| (buffer.number, *offset, *size)).collect();
        let key = (launch.pipeline, parts);
        if work.open.as_ref().is_some_and(|open| open.pass.is_some() && open.set.as_ref() == Some(&key))
            && !launch.timed
        {
            return Ok(None);
        }
        if let Some(group) = work.groups.get(&key) {
            let group = group.clone();
            return Ok(Some((key.0, key.1, group)));
        }
        let mut entries: SmallVec<[wgpu::BindGroupEntry<'_>; 8]> = SmallVec::new();
        for (binding, (buffer, offset, size)) in launch.bindings.iter().enumerate() {
            entries.push(wgpu::BindGroupEntry {
                binding: binding as u32,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer: &buffer.buffer,
                    offset: *offset,
                    size: std::num::NonZeroU64::new(*size),
                }),
            });
        }
        if let (true, Some(stop)) = (launch.interruptible, &self.stop) {
            entries.push(wgpu::BindGroupEntry {
                binding: launch.bindings.len() as u32,
                resource: stop.buffer.as_entire_binding(),
            });
        }
        let group = self.scoped(&codes::wgpu::CALL_FAILED, || {
            self.device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout: &launch.made.layout,
                entries: &entries,
            })
        })?;
        if work.groups.len() >= KEPT_GROUPS {
            work.groups.clear();
        }
        work.groups.insert(key.clone(), group.clone());
        Ok(Some((key.0, key.1, group)))
    }

    fn take_clock(&self, work: &mut Work) -> Result<Clock, BackendError> {
        if work.timed.len() >= KEPT_TIMINGS
            && let Some((_, clock)) = work.timed.pop_front()
        {
            return Ok(clock);
        }
        if let Some(clock) = work.idle_clocks.pop() {
            return Ok(clock);
        }
        use wgpu::BufferUsages as Usage;
        let queries = self.scoped(&codes::wgpu::CALL_FAILED, || {
            self.device.create_query_set(&wgpu::QuerySetDescriptor {
                label: None,
                ty: wgpu::QueryType::Timestamp,
                count: 2,
            })
        })?;
        let resolved = self.create_buffer(16, Usage::QUERY_RESOLVE | Usage::COPY_SRC)?;
        let read = self.create_buffer(16, Usage::MAP_READ | Usage::COPY_DST)?;
        Ok(Clock { queries, resolved, read })
    }

    /// Waits until a launch is done; false when that takes longer than it may.
    pub(crate) fn wait_for(&self, number: u64, timeout: Option<Duration>) -> Result<bool, BackendError> {
        let index = {
            let mut work = self.work();
            if number > work.flushed {
                self.flush(&mut work)?;
            }
            if number <= work.completed {
                return Ok(true);
            }
            work.submissions.iter().find(|(last, _)| *last >= number).cloned()
        };
        let Some((last, index)) = index else { return Ok(true) };
        let done = self.wait_index(index, timeout)?;
        if done {
            let mut work = self.work();
            work.completed = work.completed.max(last);
        }
        Ok(done)
    }

    fn wait_index(&self, index: wgpu::SubmissionIndex, timeout: Option<Duration>) -> Result<bool, BackendError> {
        match self.device.poll(PollType::Wait { submission_index: Some(index), timeout }) {
            Ok(_) => Ok(true),
            Err(wgpu::PollError::Timeout) => Ok(false),
            Err(error) => Err(BackendError::with_code(&codes::wgpu::CALL_FAILED, error.to_string())),
        }
    }

    /// How long a launch that is done took on the device, if it was timed.
    pub(crate) fn time_of(&self, number: u64) -> Result<Option<u64>, BackendError> {
        let clock = {
            let mut work = self.work();
            let at = work.timed.iter().position(|(timed, _)| *timed == number);
            at.and_then(|at| work.timed.remove(at))
        };
        let Some((_, clock)) = clock else { return Ok(None) };
        let mut bytes = [0; 16];
        self.read_mapped(&clock.read, None, &mut bytes)?;
        self.work().idle_clocks.push(clock);
        let [start, end] = [0, 8].map(|at| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i])));
        let ticks = end.saturating_sub(start) as f64;
        Ok(Some((ticks * f64::from(self.queue.get_timestamp_period())) as u64))
    }

    /// Reads a buffer that is made for it.
    fn read_mapped(
        &self,
        buffer: &wgpu::Buffer,
        index: Option<wgpu::SubmissionIndex>,
        bytes: &mut [u8],
    ) -> Result<(), BackendError> {
        let failed = |why: String| BackendError::with_code(&codes::wgpu::CALL_FAILED, why);
        let size = bytes.len().next_multiple_of(8) as u64;
        let (sender, answer) = std::sync::mpsc::channel();
        // Nobody listens any more when the wait below failed.
        buffer.map_async(wgpu::MapMode::Read, 0..size, move |result| drop(sender.send(result)));
        let polled = self.device.poll(PollType::Wait { submission_index: index, timeout: None });
        polled.map_err(|error| failed(error.to_string()))?;
        self.check()?;
        // Another thread's poll may be the one that answers, a moment later.
        match answer.recv_timeout(crate::backend::GRACE) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(failed(error.to_string())),
            Err(_) => return Err(failed("a buffer was not mapped in time".to_owned())),
        }
        let view = buffer.get_mapped_range(0..size).map_err(|error| failed(error.to_string()))?;
        bytes.copy_from_slice(&view[..bytes.len()]);
        drop(view);
        buffer.unmap();
        Ok(())
    }

    /// Reads a buffer after all work that was submitted; offset and size are multiples of four.
    pub(crate) fn download(&self, from: &wgpu::Buffer, offset: u64, bytes: &mut [u8]) -> Result<(), BackendError> {
        let mut at = offset;
        for piece in bytes.chunks_mut(PIECE as usize) {
            let size = piece.len().next_multiple_of(8) as u64;
            let staging = self.take_staging(size)?;
            let index = {
                let mut work = self.work();
                let length = (piece.len() as u64).next_multiple_of(4);
                self.encoder(&mut work).copy_buffer_to_buffer(from, at, &staging, 0, length);
                self.flush(&mut work)?;
                work.submissions.back().map(|(_, index)| index.clone())
            };
            self.read_mapped(&staging, index, piece)?;
            let mut kept = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() < KEPT_STAGING {
                kept.push(staging);
            }
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn take_staging(&self, size: u64) -> Result<wgpu::Buffer, BackendError> {
        let mut kept = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |buffer: &wgpu::Buffer| buffer.size() >= size && buffer.size() / 4 <= size.max(1 << 16);
        if let Some(at) = kept.iter().position(fits) {
            return Ok(kept.swap_remove(at));
        }
        // Those that don't fit make room.
        if kept.len() >= KEPT_STAGING {
            kept.remove(0);
        }
        drop(kept);
        self.create_buffer(
            size.max(4096).next_power_of_two(),
            wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        )
    }

    /// Writes to a buffer after all work that was submitted; offset and size are multiples of four.
    pub(crate) fn upload(&self, to: &wgpu::Buffer, offset: u64, bytes: &[u8]) -> Result<(), BackendError> {
        let mut work = self.work();
        // What the queue is told to write, it writes before the commands of its next submission.
        self.flush(&mut work)?;
        self.queue.write_buffer(to, offset, bytes);
        work.uploaded += bytes.len() as u64;
        if work.uploaded >= GATHERED_UPLOADS {
            self.queue.submit([]);
            work.uploaded = 0;
        }
        self.check()
    }

    /// Copies after all work that was submitted; offsets and size are multiples of four, the buffers differ.
    pub(crate) fn copy(
        &self,
        from: (&wgpu::Buffer, u64),
        to: (&wgpu::Buffer, u64),
        bytes: u64,
    ) -> Result<(), BackendError> {
        let mut work = self.work();
        self.encoder(&mut work).copy_buffer_to_buffer(from.0, from.1, to.0, to.1, bytes);
        self.check()
    }

    /// Clears after all work that was submitted; offset and size are multiples of four.
    pub(crate) fn clear(&self, buffer: &wgpu::Buffer, offset: u64, bytes: u64) -> Result<(), BackendError> {
        let mut work = self.work();
        self.encoder(&mut work).clear_buffer(buffer, offset, Some(bytes));
        self.check()
    }
}

impl Open {
    /// Records the parts of a launch; no group means that everything is set.
    fn launch(&mut self, mut launch: Prepared<'_>, group: Option<(u64, Parts, wgpu::BindGroup)>, max_grid: u32) {
        use crate::emit::Facts;
        let Open { pass, encoder, set, told, launches } = self;
        let pass = pass.get_or_insert_with(|| {
            encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default()).forget_lifetime()
        });
        if let Some((pipeline, parts, group)) = group {
            if set.as_ref().is_none_or(|(set, _)| *set != pipeline) {
                pass.set_pipeline(&launch.made.pipeline);
            }
            pass.set_bind_group(0, &group, &[]);
            *set = Some((pipeline, parts));
            told.clear();
        }
        let grid = launch.grid;
        let parts = |axis: usize| (0..grid[axis]).step_by(max_grid as usize);
        for z in parts(2) {
            for y in parts(1) {
                for x in parts(0) {
                    let base = [x, y, z];
                    launch.facts[Facts::BASE as usize..][..3].copy_from_slice(&base);
                    if *told != launch.facts {
                        pass.set_immediates(0, bytemuck::cast_slice(&launch.facts));
                        told.clone_from(&launch.facts);
                    }
                    let size = |axis: usize| (grid[axis] - base[axis]).min(max_grid);
                    pass.dispatch_workgroups(size(0), size(1), size(2));
                }
            }
        }
        *launches += 1;
    }
}

fn describe(error: &wgpu::Error, code: Code) -> BackendError {
    let code = match error {
        wgpu::Error::OutOfMemory { .. } => &codes::backend::OUT_OF_MEMORY,
        _ => code,
    };
    let text = error.to_string();
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    BackendError::with_code(code, lines.join(" "))
}

/// Device memory.
pub(crate) struct WgpuBuffer {
    pub(crate) device: Arc<Device>,
    pub(crate) generation: u64,
    pub(crate) number: u64,
    pub(crate) buffer: wgpu::Buffer,
    pub(crate) bytes: u64,
}

impl WgpuBuffer {
    /// Refuses a buffer of another device, or one that was lost.
    pub(crate) fn check(&self, device: &Device, context: &Context) -> Result<&wgpu::Buffer, BackendError> {
        if !std::ptr::eq(&raw const *self.device, device) {
            return Err(BackendError::with_code(
                &codes::backend::FOREIGN_HANDLE,
                "a buffer of one adapter was passed to another",
            ));
        }
        if self.generation != context.generation {
            return Err(BackendError::with_code(
                &codes::backend::DEVICE_LOST,
                "the buffer was lost with its device Fix: Allocate it again, and upload what it held.",
            ));
        }
        Ok(&self.buffer)
    }
}

impl DeviceBuffer for WgpuBuffer {
    fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for WgpuBuffer {
    fn drop(&mut self) {
        self.device.forget(self.number, self.generation);
    }
}
