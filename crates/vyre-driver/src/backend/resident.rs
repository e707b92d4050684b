use std::any::Any;
use std::fmt;
use std::sync::Arc;

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
        self.0.downcast_ref::<T>().ok_or_else(|| {
            BackendError::with_code(
                &codes::backend::FOREIGN_HANDLE,
                format!("a buffer was passed to backend `{backend}`, which did not make it"),
            )
        })
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

    /// This is the only handle; work under way may still use the memory.
    pub(super) fn is_unshared(&self) -> bool {
        Arc::strong_count(&self.0) == 1
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
}

impl From<Buffer> for Binding {
    fn from(buffer: Buffer) -> Self {
        let bytes = buffer.bytes();
        Binding::new(buffer, bytes)
    }
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
}

/// A launch that was submitted: its number in the order of submission. Waiting for one waits for all before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[must_use = "work may still be running; wait for it"]
pub struct Pending(pub u64);

/// What is known about a launch when it is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// Time on the device in nanoseconds, where the launch asked for it and the device has timestamps.
    pub device_ns: Option<u64>,
}
