//! Memory and streams of other libraries in the same process. They share the device's primary context, as everything does that is
//! built on CUDA's runtime.

use std::any::Any;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use vyre_driver::BackendError;
use vyre_driver::backend::{Buffer, Order, Ticket};
use vyre_spec::codes;

use crate::api::Pinned;
use crate::backend::CudaBackend;
use crate::device::Device;
use crate::launch::ALIGNMENT;
use crate::memory::CudaBuffer;

impl CudaBackend {
    /// Device memory of somebody else as a buffer, without a copy. The owner is dropped when the last handle is gone and the work
    /// that uses the memory is over.
    ///
    /// # Safety
    /// The memory, up to a whole multiple of 16 bytes, stays allocated until `owner` is dropped. Foreign work that uses it is in an
    /// order with ours, by [`wait_for_stream`](Self::wait_for_stream) and [`make_stream_wait`](Self::make_stream_wait).
    #[allow(unsafe_code)]
    pub unsafe fn wrap(&self, pointer: u64, bytes: u64, owner: Box<dyn Any + Send>) -> Result<Buffer, BackendError> {
        let device = self.device();
        let refused = |what: String| BackendError::with_code(&codes::backend::BAD_RANGE, what);
        if !pointer.is_multiple_of(u64::from(ALIGNMENT)) {
            return Err(refused(format!(
                "foreign memory starts at {pointer:#x}, which is not a multiple of {ALIGNMENT}"
            )));
        }
        device.with(|| {
            let last = pointer.checked_add(bytes.saturating_sub(1));
            if !last.is_some_and(|last| [pointer, last].iter().all(|&end| device.api.is_on(end, device.number))) {
                let what = format!("{bytes} bytes at {pointer:#x} are not memory of this CUDA device");
                return Err(refused(what).into());
            }
            Ok(Buffer::new(CudaBuffer::foreign(device, pointer, bytes, owner)))
        })
    }

    /// Where a buffer is on the device. The address is good for as long as a handle of the buffer is held.
    pub fn raw_pointer(&self, buffer: &Buffer) -> Result<u64, BackendError> {
        let (device, buffer) = (self.device(), buffer.of::<CudaBuffer>(self.name())?);
        let pointer = buffer.pointer(device)?;
        // Foreign streams can't be told to wait until it is cleared.
        device.with(|| device.wait_for_ready(buffer.ready, None))?;
        Ok(pointer)
    }

    /// Work that is submitted to the queue from now on runs after what is on a foreign stream now.
    ///
    /// # Safety
    /// The stream is a `CUstream` or `cudaStream_t` of this device's primary context.
    #[allow(unsafe_code)]
    pub unsafe fn wait_for_stream(&self, stream: usize, order: &Order<'_>) -> Result<Ticket, BackendError> {
        let device = self.device();
        device.with(|| {
            let event = device.api.create_event(false)?;
            let queued = device.api.record(event, stream).map_err(Into::into).and_then(|()| {
                let turn = device.begin(order, 0)?;
                // What the foreign stream does may take long.
                turn.mark()?;
                let ticket = turn.ticket()?;
                device.api.stream_waits(event, turn.queue.stream)?;
                Ok(ticket)
            });
            // The driver keeps it until nothing waits for it.
            device.api.destroy_event(event)?;
            queued
        })
    }

    /// Work that is put on a foreign stream from now on runs after a piece of ours.
    ///
    /// # Safety
    /// As for [`wait_for_stream`](Self::wait_for_stream).
    #[allow(unsafe_code)]
    pub unsafe fn make_stream_wait(&self, ticket: Ticket, stream: usize) -> Result<(), BackendError> {
        let device = self.device();
        device.with(|| device.hold_stream(ticket, stream))
    }

    /// Host memory that the device reaches by itself, all zeros: copies from and to it need no piece of their own and run at the speed
    /// of the bus. It is a scarce good; the system can't use it for anything else.
    pub fn pinned(&self, bytes: usize) -> Result<PinnedMemory, BackendError> {
        let device = self.device();
        let mut memory = device.with(|| Ok(device.api.pin(bytes.max(1))?))?;
        memory.bytes_mut().fill(0);
        Ok(PinnedMemory { device: Arc::clone(device), memory: Some(memory), bytes })
    }
}

/// Pinned bytes of the host.
pub struct PinnedMemory {
    device: Arc<Device>,
    /// `None` only while it is dropped.
    memory: Option<Pinned>,
    bytes: usize,
}

impl Deref for PinnedMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], |memory| &memory.bytes()[..self.bytes])
    }
}

impl DerefMut for PinnedMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        let bytes = self.bytes;
        self.memory.as_mut().map_or(&mut [], |memory| &mut memory.bytes_mut()[..bytes])
    }
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            // Copies have borrowed it while they ran, so none is under way. A fault of earlier work is for the next call to report.
            drop(self.device.with(|| Ok(memory.free(self.device.api)?)));
        }
    }
}
