//! A device with its queue between two losses: what is made on it, and waiting for it.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use vyre_driver::BackendError;
use vyre_driver::backend::Ledger;
use vyre_spec::codes::{self, Code};
use wgpu::PollType;

use crate::adapter::{Adapter, ready};
use crate::raw::StopPage;
use crate::transfer::{Used, by_several, share};
use crate::work::Work;

/// Longest wait inside wgpu: it holds locks meanwhile, and does not notice that the device was given back.
const SLICE: Duration = Duration::from_millis(2);

/// How long an answer may take that another thread is about to give.
const GRACE: Duration = Duration::from_secs(5);

/// The device between two losses.
pub(crate) struct Context {
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    pub(crate) features: wgpu::Features,
    /// Counts the devices; handles of another generation are gone.
    pub(crate) generation: u64,
    pub(crate) ledger: Arc<Ledger>,
    /// Launches can be told to end.
    pub(crate) can_stop: bool,
    /// Most workgroups per axis of one dispatch.
    pub(crate) max_grid: u32,
    /// Grids can be read from buffers.
    pub(crate) can_indirect: bool,
    /// A submission makes the host wait until the one before it is over.
    pub(crate) one_at_a_time: bool,
    /// Somebody else's device; its handlers for errors and loss are left alone.
    adopted: bool,
    loss: Arc<Loss>,
    failure: Arc<Failure>,
    work: Mutex<Work>,
    /// One thread polls at a time: wgpu 30 panics where a wait that gives up meets a poll that empties the queue.
    polling: Mutex<()>,
    pub(crate) staging: Mutex<Vec<wgpu::Buffer>>,
    /// Memory that uploads went through, in the order in which it is free again.
    pub(crate) uploads: Mutex<VecDeque<Used>>,
}

#[derive(Default)]
struct Loss {
    is_lost: AtomicBool,
    why: Mutex<String>,
}

impl Loss {
    fn note(&self, why: &str) {
        let mut known = self.why.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_empty() {
            why.trim().clone_into(&mut known);
        }
        self.is_lost.store(true, Ordering::Release);
    }
}

/// What wgpu complained about outside of any scope.
#[derive(Default)]
struct Failure {
    is_there: AtomicBool,
    error: Mutex<Option<wgpu::Error>>,
}

impl Context {
    pub(crate) fn open(adapter: &Adapter, generation: u64, ledger: Arc<Ledger>) -> Result<Context, BackendError> {
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
        let context = Context::new(adapter, generation, ledger, device, queue, false);
        let failure = Arc::clone(&context.failure);
        context.device.on_uncaptured_error(Arc::new(move |error| {
            failure.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            failure.is_there.store(true, Ordering::Release);
        }));
        let loss = Arc::clone(&context.loss);
        context.device.set_device_lost_callback(move |_, why| loss.note(&why));
        Ok(context)
    }

    /// Somebody else's device.
    pub(crate) fn adopt(adapter: &Adapter, ledger: Arc<Ledger>, device: wgpu::Device, queue: wgpu::Queue) -> Context {
        Context::new(adapter, 0, ledger, device, queue, true)
    }

    fn new(
        adapter: &Adapter,
        generation: u64,
        ledger: Arc<Ledger>,
        device: wgpu::Device,
        queue: wgpu::Queue,
        adopted: bool,
    ) -> Context {
        let page = StopPage::new(&device);
        Context {
            features: adapter.features,
            generation,
            can_stop: page.is_some(),
            max_grid: adapter.limits.max_compute_workgroups_per_dimension.max(1),
            can_indirect: {
                let able = adapter.adapter.get_downlevel_capabilities().flags;
                able.contains(wgpu::DownlevelFlags::INDIRECT_EXECUTION)
            },
            one_at_a_time: adapter.one_at_a_time,
            adopted,
            loss: Arc::default(),
            failure: Arc::default(),
            work: Mutex::new(Work::new(ledger.submitted(0).unwrap_or(0), page)),
            polling: Mutex::new(()),
            staging: Mutex::default(),
            uploads: Mutex::default(),
            ledger,
            device,
            queue,
        }
    }

    /// Whoever has it is alone in giving work to the queue.
    pub(crate) fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the device back; everything on it is lost.
    pub(crate) fn destroy(&self) {
        self.device.destroy();
        self.loss.note("it was given back");
    }

    pub(crate) fn is_adopted(&self) -> bool {
        self.adopted
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.loss.is_lost.load(Ordering::Acquire)
    }

    pub(crate) fn lost_error(&self) -> BackendError {
        let why = self.loss.why.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let why = if why.is_empty() { "the driver gives no reason".to_owned() } else { why };
        let cure = if self.adopted {
            "Make another backend from another device."
        } else {
            "Allocate and upload again; the next call opens the device anew."
        };
        BackendError::with_code(
            &codes::backend::DEVICE_LOST,
            format!("the device was lost with all its buffers: {why} Fix: {cure}"),
        )
    }

    /// Everything that is not over fails with the device.
    pub(crate) fn lose(&self) {
        if self.work().end() {
            self.ledger.lose_all(&self.lost_error());
        }
    }

    /// Runs something whose errors are its own, whatever other threads do.
    pub(crate) fn scoped<T>(&self, code: Code, work: impl FnOnce() -> T) -> Result<T, BackendError> {
        let memory = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let internal = self.device.push_error_scope(wgpu::ErrorFilter::Internal);
        let validation = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let made = work();
        let mut result = Ok(made);
        for scope in [validation, internal, memory] {
            if let Some(error) = ready(scope.pop()).flatten() {
                result = Err(describe(&error, code));
            }
        }
        if self.adopted && result.is_err() {
            // Nobody tells that somebody else's device is gone, but then it makes no submissions.
            self.is_over(self.queue.submit([]), Duration::ZERO);
        }
        result
    }

    /// [`scoped`](Self::scoped) for calls that are only made with `work` held, so that no other thread's can be mistaken for them.
    pub(crate) fn alone<T>(&self, work: impl FnOnce() -> T) -> Result<T, BackendError> {
        if self.adopted {
            return self.scoped(&codes::wgpu::CALL_FAILED, work);
        }
        let made = work();
        if !self.failure.is_there.swap(false, Ordering::AcqRel) {
            return Ok(made);
        }
        match self.failure.error.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(describe(&error, &codes::wgpu::CALL_FAILED)),
            None => Ok(made),
        }
    }

    /// A new buffer, all zeros.
    pub(crate) fn create_buffer(&self, size: u64, usage: wgpu::BufferUsages) -> Result<wgpu::Buffer, BackendError> {
        let create = || {
            let descriptor = wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
            self.scoped(&codes::backend::OUT_OF_MEMORY, || self.device.create_buffer(&descriptor))
        };
        create().or_else(|_| {
            // Memory of buffers that nobody has any more is given back when the work on them is over and somebody looks.
            self.flush(&mut self.work());
            self.poll(PollType::Poll);
            create()
        })
    }

    /// Whether a submission is over, after so long at most.
    pub(crate) fn is_over(&self, index: wgpu::SubmissionIndex, timeout: Duration) -> bool {
        self.poll(PollType::Wait { submission_index: Some(index), timeout: Some(timeout) })
    }

    fn poll(&self, how: PollType) -> bool {
        let _alone = self.polling.lock().unwrap_or_else(PoisonError::into_inner);
        match catch_unwind(AssertUnwindSafe(|| self.device.poll(how))) {
            Ok(Ok(_)) => true,
            Ok(Err(wgpu::PollError::Timeout)) => false,
            // Submissions of a device that is gone are not made, and nothing is said about it.
            Ok(Err(error @ wgpu::PollError::WrongSubmissionIndex(..))) => {
                self.loss.note(&error.to_string());
                false
            }
            // This is how wgpu says that a device was lost while it was polled. Other panics are those of others' callbacks.
            Err(panic) => {
                let message = panic.downcast_ref::<String>().filter(|text| text.contains("Device::poll"));
                match message {
                    Some(message) => self.loss.note(message.lines().last().unwrap_or_default()),
                    None => resume_unwind(panic),
                }
                false
            }
        }
    }

    /// Waits until a submission is over; false when that takes longer than it may.
    pub(crate) fn wait_for(
        &self,
        index: &wgpu::SubmissionIndex,
        deadline: Option<Instant>,
    ) -> Result<bool, BackendError> {
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if self.is_over(index.clone(), left.map_or(SLICE, |left| left.min(SLICE))) {
                return Ok(true);
            }
            if self.is_lost() {
                return Err(self.lost_error());
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(false);
            }
        }
    }

    /// Copies from a buffer that was asked to be mapped before a submission, which is over.
    pub(crate) fn read_mapped(&self, buffer: &wgpu::Buffer, bytes: &mut [u8]) -> Result<(), BackendError> {
        let size = bytes.len().next_multiple_of(8) as u64;
        let view = self.mapped(|| buffer.get_mapped_range(0..size))?;
        let share = share(bytes.len());
        let parts: Vec<_> = bytes.chunks_mut(share).zip(view.chunks(share)).collect();
        by_several(parts, |(to, from)| to.copy_from_slice(&from[..to.len()]));
        drop(view);
        buffer.unmap();
        Ok(())
    }

    /// A view of memory that was asked to be mapped before a submission, which is over.
    pub(crate) fn mapped<T>(&self, view: impl Fn() -> Result<T, wgpu::MapRangeError>) -> Result<T, BackendError> {
        let begin = Instant::now();
        // Another thread's poll may be the one that maps it, a moment later.
        loop {
            match view() {
                Ok(view) => return Ok(view),
                Err(_) if self.is_lost() => return Err(self.lost_error()),
                Err(error) if begin.elapsed() > GRACE => {
                    return Err(BackendError::with_code(&codes::wgpu::CALL_FAILED, error.to_string()));
                }
                Err(_) => {
                    std::thread::yield_now();
                    self.poll(PollType::Poll);
                }
            }
        }
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
