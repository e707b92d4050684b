//! A device's context with its stream, its memory and the numbers of its launches, and how it is replaced after a fault.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use vyre_driver::BackendError;
use vyre_driver::backend::DeviceBuffer;
use vyre_spec::{Diagnostic, codes};

use crate::api::{Api, CudaError, DevicePointer, Handle};
use crate::staging::Staging;

/// Why something under a context failed.
pub(crate) enum Failure {
    /// The driver said no.
    Cuda(CudaError),
    /// Anything else.
    Other(BackendError),
}

impl From<CudaError> for Failure {
    fn from(error: CudaError) -> Self {
        Failure::Cuda(error)
    }
}

impl From<BackendError> for Failure {
    fn from(error: BackendError) -> Self {
        Failure::Other(error)
    }
}

impl From<Diagnostic> for Failure {
    fn from(diagnostic: Diagnostic) -> Self {
        Failure::Other(diagnostic.into())
    }
}

/// A GPU. Everything that runs on it goes through one stream, in order.
pub(crate) struct Device {
    pub(crate) api: &'static Api,
    pub(crate) number: i32,
    /// Freed memory that the driver may keep for the next allocation.
    keep: u64,
    context: RwLock<Result<Context, BackendError>>,
}

/// The primary context of a device between two resets. Whoever uses a handle of it holds the read lock.
pub(crate) struct Context {
    pub(crate) api: &'static Api,
    handle: Handle,
    /// Counts the resets; handles of another generation are gone.
    pub(crate) generation: u64,
    /// Where the work goes.
    pub(crate) stream: Handle,
    /// Reaches the device while the stream is busy.
    control: Handle,
    pool: Handle,
    /// Holds the number of the last launch that has to end.
    pub(crate) stop_word: DevicePointer,
    pub(crate) queue: Mutex<Queue>,
    staging: Mutex<Staging>,
}

/// Launches that were submitted. They run in the order of their numbers.
#[derive(Default)]
pub(crate) struct Queue {
    /// Number of the last one.
    pub(crate) submitted: u64,
    /// All up to this one are done.
    pub(crate) completed: u64,
    /// Those up to this one that were not done were told to end.
    pub(crate) stopped: u64,
    /// Those up to this one that were not done were lost with their context.
    pub(crate) lost: u64,
    /// Events around the timed ones.
    pub(crate) timed: VecDeque<Timed>,
    /// Events to use again.
    idle_events: Vec<[Handle; 2]>,
}

/// The events around one launch.
#[derive(Clone, Copy)]
pub(crate) struct Timed {
    pub(crate) number: u64,
    pub(crate) events: [Handle; 2],
}

/// Timings that nobody asked for are forgotten beyond this number.
const KEPT_TIMINGS: usize = 4096;

impl Queue {
    pub(crate) fn take_events(&mut self, api: &Api) -> Result<[Handle; 2], CudaError> {
        if self.timed.len() >= KEPT_TIMINGS
            && let Some(oldest) = self.timed.pop_front()
        {
            return Ok(oldest.events);
        }
        match self.idle_events.pop() {
            Some(events) => Ok(events),
            None => Ok([api.create_event(true)?, api.create_event(true)?]),
        }
    }

    pub(crate) fn give_events_back(&mut self, events: [Handle; 2]) {
        self.idle_events.push(events);
    }
}

impl Context {
    fn open(api: &'static Api, device: i32, keep: u64, generation: u64, queue: Queue) -> Result<Context, CudaError> {
        let handle = api.retain_context(device)?;
        api.set_current(handle)?;
        let (stream, control) = (api.create_stream()?, api.create_stream()?);
        let pool = api.default_pool(device, keep)?;
        let stop_word = api.allocate(8, stream)?;
        api.upload(stop_word, &queue.stopped.to_le_bytes(), stream)?;
        api.synchronize(stream)?;
        Ok(Context {
            api,
            handle,
            generation,
            stream,
            control,
            pool,
            stop_word,
            queue: Mutex::new(queue),
            staging: Mutex::default(),
        })
    }

    pub(crate) fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Staging memory for large copies; one copy at a time uses it.
    pub(crate) fn staging(&self) -> MutexGuard<'_, Staging> {
        self.staging.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// New memory, all zeros. What the pool keeps is given back when there is no other memory left.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<DevicePointer, CudaError> {
        let pointer = match self.api.allocate(bytes, self.stream) {
            Err(error) if error.is_out_of_memory() => {
                self.api.synchronize(self.stream)?;
                self.api.trim_pool(self.pool)?;
                self.api.allocate(bytes, self.stream)?
            }
            other => other?,
        };
        match self.api.clear(pointer, bytes, self.stream) {
            Ok(()) => Ok(pointer),
            Err(error) => {
                self.api.free(pointer, self.stream)?;
                Err(error)
            }
        }
    }

    /// Tells all launches up to a number to end.
    pub(crate) fn stop(&self, number: u64) -> Result<(), CudaError> {
        self.api.upload(self.stop_word, &number.to_le_bytes(), self.control)?;
        self.api.synchronize(self.control)
    }
}

impl Device {
    pub(crate) fn open(api: &'static Api, number: i32, keep: u64) -> Result<Arc<Device>, CudaError> {
        // Pending 0 would be done before anything was submitted, so numbers start at 1, and the stop word at 0.
        let context = Context::open(api, number, keep, 0, Queue::default())?;
        Ok(Arc::new(Device { api, number, keep, context: RwLock::new(Ok(context)) }))
    }

    fn read(&self) -> RwLockReadGuard<'_, Result<Context, BackendError>> {
        self.context.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs something in the context. After a fault the next caller gets a fresh one.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&Context) -> Result<T, Failure>) -> Result<T, BackendError> {
        let guard = self.read();
        let context = match &*guard {
            Ok(context) => context,
            Err(error) => return Err(error.clone()),
        };
        let done = self.api.set_current(context.handle).map_err(Failure::Cuda).and_then(|()| work(context));
        let error = match done {
            Ok(value) => return Ok(value),
            Err(Failure::Other(error)) => return Err(error),
            Err(Failure::Cuda(error)) => error,
        };
        let generation = context.generation;
        drop(guard);
        if error.is_fault() {
            self.reopen(generation);
        }
        Err(describe(&error))
    }

    fn reopen(&self, generation: u64) {
        let mut context = self.context.write().unwrap_or_else(PoisonError::into_inner);
        let queue = match &mut *context {
            // Somebody else saw the fault first.
            Ok(context) if context.generation != generation => return,
            Ok(context) => std::mem::take(&mut *context.queue()),
            Err(_) => return,
        };
        // Their events are gone with the context.
        let queue = Queue { lost: queue.submitted, timed: VecDeque::new(), idle_events: Vec::new(), ..queue };
        // The reset may repeat the fault that it clears away; whether it worked shows in the fresh context.
        let reset = self.api.reset_context(self.number);
        let fresh = Context::open(self.api, self.number, self.keep, generation + 1, queue);
        *context = fresh.map_err(|error| {
            let why = reset.map_or_else(|reset| format!("{reset}; {error}"), |()| error.to_string());
            BackendError::with_code(
                &codes::backend::DEVICE_LOST,
                format!("a kernel faulted and the driver gives this process no fresh context: {why}"),
            )
        });
    }
}

/// What a caller is told about a failed call.
pub(crate) fn describe(error: &CudaError) -> BackendError {
    let code = if error.is_out_of_memory() {
        &codes::backend::OUT_OF_MEMORY
    } else if error.is_fault() {
        &codes::cuda::FAULT
    } else {
        &codes::cuda::CALL_FAILED
    };
    BackendError::with_code(code, error.to_string())
}

/// Device memory.
pub(crate) struct CudaBuffer {
    pub(crate) device: Arc<Device>,
    pub(crate) generation: u64,
    pub(crate) pointer: DevicePointer,
    pub(crate) bytes: u64,
}

impl CudaBuffer {
    /// The address, while the context that it lies in is still there.
    pub(crate) fn pointer(&self, device: &Device, context: &Context) -> Result<DevicePointer, BackendError> {
        if !std::ptr::eq(&raw const *self.device, device) {
            return Err(BackendError::with_code(
                &codes::backend::FOREIGN_HANDLE,
                "a buffer of one CUDA device was passed to another",
            ));
        }
        if self.generation != context.generation {
            return Err(BackendError::with_code(
                &codes::backend::DEVICE_LOST,
                "the buffer was lost when a kernel faulted; allocate it again",
            ));
        }
        Ok(self.pointer)
    }
}

impl DeviceBuffer for CudaBuffer {
    fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for CudaBuffer {
    fn drop(&mut self) {
        let freed = self.device.with(|context| {
            if context.generation == self.generation {
                // In order with the work that uses it.
                context.api.free(self.pointer, context.stream)?;
            }
            Ok(())
        });
        // A fault of earlier work is for the next call to report.
        drop(freed);
    }
}
