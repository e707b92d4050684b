use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use vyre_spec::codes;

use super::BackendError;

/// A compiled program on a device. Backends get their own type back with [`Pipeline::downcast_ref`](#method.downcast_ref).
pub trait Pipeline: Any + Send + Sync {
    /// The workgroup size that it was compiled for.
    fn workgroup_size(&self) -> [u32; 3];

    /// Bytes from which [`VyreBackend::load`](super::VyreBackend::load) makes the same pipeline again in another process:
    /// machine code, a cubin, SPIR-V. `None` when there is nothing worth keeping.
    fn artifact(&self) -> Option<Vec<u8>> {
        None
    }
}

impl dyn Pipeline {
    /// The backend's own type, when it is of that type.
    pub fn downcast_ref<T: Pipeline>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }

    /// The backend's own pipeline, or an error that names the backend which was asked.
    pub fn of<T: Pipeline>(&self, backend: &str) -> Result<&T, BackendError> {
        self.downcast_ref().ok_or_else(|| foreign("pipeline", backend))
    }
}

/// Launches and copies that a backend has recorded to be replayed as a whole.
pub trait Recording: Any + Send + Sync {
    /// Steps that were recorded.
    fn steps(&self) -> usize;
}

impl dyn Recording {
    /// The backend's own recording, or an error that names the backend which was asked.
    pub fn of<T: Recording>(&self, backend: &str) -> Result<&T, BackendError> {
        (self as &dyn Any).downcast_ref().ok_or_else(|| foreign("recording", backend))
    }
}

/// Memory on a device.
pub trait DeviceBuffer: Any + Send + Sync {
    /// Its size.
    fn bytes(&self) -> u64;
}

impl dyn DeviceBuffer {
    /// The backend's own type, when it is of that type.
    pub fn downcast_ref<T: DeviceBuffer>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }
}

/// The error of a handle that another backend made.
pub fn foreign(what: &str, backend: &str) -> BackendError {
    BackendError::with_code(
        &codes::backend::FOREIGN_HANDLE,
        format!("a {what} was passed to backend `{backend}`, which did not make it"),
    )
}

/// A shared handle of device memory; the memory lives as long as a handle or work that uses it.
#[derive(Clone)]
pub struct Buffer(Arc<dyn DeviceBuffer>);

impl Buffer {
    /// Wraps a backend's own buffer.
    pub fn new(buffer: impl DeviceBuffer) -> Self {
        Buffer(Arc::new(buffer))
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// The backend's own buffer, or an error that names the backend which was asked.
    pub fn of<T: DeviceBuffer>(&self, backend: &str) -> Result<&T, BackendError> {
        self.0.downcast_ref::<T>().ok_or_else(|| foreign("buffer", backend))
    }

    /// Refuses a range that is not within the buffer.
    pub fn check_range(&self, offset: u64, bytes: u64) -> Result<(), BackendError> {
        if offset.checked_add(bytes).is_some_and(|end| end <= self.bytes()) {
            return Ok(());
        }
        Err(BackendError::with_code(
            &codes::backend::BAD_RANGE,
            format!("{bytes} bytes at offset {offset} lie outside a buffer of {} bytes", self.bytes()),
        ))
    }

    /// Both are handles of one buffer.
    pub fn is_same(&self, other: &Buffer) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.bytes())
    }
}

/// A part of a buffer, bound to one of the program's buffers. The program sees exactly `bytes` bytes.
#[derive(Clone, Debug)]
pub struct Binding {
    /// Where the bytes are.
    pub buffer: Buffer,
    /// First byte; a multiple of [`Limits::binding_alignment`](super::Limits::binding_alignment).
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}

impl Binding {
    /// The first `bytes` bytes of a buffer.
    pub fn new(buffer: Buffer, bytes: u64) -> Self {
        Binding { buffer, offset: 0, bytes }
    }

    /// Refuses bindings that are not as many as the program has, lie outside their buffers, or start where the device can't.
    pub fn check_all(bindings: &[Binding], expected: usize, alignment: u32) -> Result<(), BackendError> {
        if bindings.len() != expected {
            return Err(BackendError::with_code(
                &codes::backend::BINDINGS,
                format!("{} buffers are bound; the program has {expected}", bindings.len()),
            ));
        }
        for Binding { buffer, offset, bytes } in bindings {
            buffer.check_range(*offset, *bytes)?;
            if !offset.is_multiple_of(u64::from(alignment.max(1))) {
                return Err(BackendError::with_code(
                    &codes::backend::BAD_RANGE,
                    format!("a binding starts at byte {offset}, which is not a multiple of {alignment}"),
                ));
            }
        }
        Ok(())
    }
}

impl Binding {
    /// Refuses a part that can't hold the grid of a launch.
    pub fn check_indirect(&self) -> Result<(), BackendError> {
        self.buffer.check_range(self.offset, self.bytes)?;
        if self.bytes == INDIRECT_BYTES as u64 && self.offset.is_multiple_of(4) {
            return Ok(());
        }
        let Binding { offset, bytes, .. } = self;
        Err(BackendError::with_code(
            &codes::backend::BAD_RANGE,
            format!("the grid of a launch is three u32 at a multiple of 4, not {bytes} bytes at {offset}"),
        ))
    }
}

/// Bytes of a grid in a buffer.
pub const INDIRECT_BYTES: usize = 12;

/// The grid that was read from a buffer, but not more than `most` along any axis.
pub fn indirect_grid(bytes: &[u8; INDIRECT_BYTES], most: [u32; 3]) -> [u32; 3] {
    std::array::from_fn(|axis| {
        let word = std::array::from_fn(|byte| bytes[axis * 4 + byte]);
        u32::from_le_bytes(word).min(most[axis])
    })
}

impl From<Buffer> for Binding {
    fn from(buffer: Buffer) -> Self {
        let bytes = buffer.bytes();
        Binding::new(buffer, bytes)
    }
}

/// Work that was submitted: the queue of the backend that it is on, and its number there, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[must_use = "work may still be running; wait for it"]
pub struct Ticket {
    /// The queue.
    pub queue: u32,
    /// Position in the order of submission to that queue.
    pub number: u64,
}

/// Where a piece of work stands in the order of a device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Order<'a> {
    /// The queue that it goes to, below [`Capabilities::queues`](super::Capabilities::queues).
    pub queue: u32,
    /// Work on any queue of the same backend that has to be over before it begins. Work before it on its own queue is over
    /// anyway and need not be named.
    pub after: &'a [Ticket],
    /// When a call that has to wait on the host for what comes before gives up, with
    /// [`TIMEOUT`](vyre_spec::codes::backend::TIMEOUT) and nothing done.
    pub deadline: Option<Instant>,
}

/// One launch of a pipeline.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// One for every buffer of the program that has a binding, in binding order.
    pub bindings: &'a [Binding],
    /// Workgroups per axis. Where one is zero nothing runs.
    pub grid: [u32; 3],
    /// Measure the time on the device, where the capabilities say it can be.
    pub timed: bool,
    /// When it runs.
    pub order: Order<'a>,
}

impl<'a> Launch<'a> {
    /// A launch on the first queue, after everything that is there.
    pub fn new(bindings: &'a [Binding], grid: [u32; 3]) -> Self {
        Launch { bindings, grid, timed: false, order: Order::default() }
    }

    /// The same launch, measured.
    pub fn timed(self) -> Self {
        Launch { timed: true, ..self }
    }
}

/// What is known about work when it is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// Time on the device in nanoseconds, where the launch asked for it and the device has timestamps.
    pub device_ns: Option<u64>,
}

/// One step of a [`Recording`]. Steps run one after another.
#[derive(Clone, Debug)]
pub enum Step {
    /// A launch.
    Launch {
        /// What runs.
        pipeline: Arc<dyn Pipeline>,
        /// As in [`Launch::bindings`].
        bindings: Vec<Binding>,
        /// As in [`Launch::grid`].
        grid: [u32; 3],
    },
    /// A copy between two parts of the same size that don't overlap.
    Copy {
        /// Where the bytes are.
        from: Binding,
        /// Where they go.
        to: Binding,
    },
    /// Makes a part of a buffer zero.
    Clear(Binding),
}

impl fmt::Debug for dyn Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pipeline({:?})", self.workgroup_size())
    }
}
