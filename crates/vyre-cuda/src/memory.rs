//! Device memory: buffers from the driver's pool, and memory of others.

use std::any::Any;
use std::sync::{Arc, Mutex};

use vyre_driver::BackendError;
use vyre_driver::backend::DeviceBuffer;
use vyre_spec::codes;

use crate::api::{Api, CudaError, DevicePointer, Handle};
use crate::device::{Device, Failure, Leftover, Uses, locked};
use crate::queue::QUEUES;

/// The pool, with a stream of its own on which memory is taken, cleared and given back. Other streams use memory from when the
/// host or they themselves have seen that it is cleared, until the host has seen that the last of them is done.
pub(crate) struct Memory {
    stream: Handle,
    pool: Handle,
    /// Counts what was taken; the word behind those of the queues says how many of them are cleared.
    taken: Mutex<u64>,
}

impl Memory {
    pub(crate) fn open(api: &Api, device: i32, keep: u64) -> Result<Memory, CudaError> {
        Ok(Memory { stream: api.create_stream(true)?, pool: api.default_pool(device, keep)?, taken: Mutex::new(0) })
    }

    pub(crate) fn close(&self, api: &Api) -> Result<(), CudaError> {
        api.synchronize(self.stream)?;
        api.destroy_stream(self.stream)
    }

    pub(crate) fn free(&self, api: &Api, pointer: DevicePointer) -> Result<(), CudaError> {
        api.free(pointer, self.stream)
    }
}

impl Device {
    /// New memory, and the count at which it is all zeros. What the pool keeps is given back when there is no other memory left.
    pub(crate) fn take_memory(&self, bytes: usize) -> Result<(DevicePointer, u64), CudaError> {
        let Memory { stream, pool, ref taken } = self.memory;
        self.sweep();
        let pointer = match self.api.allocate(bytes, stream) {
            Err(error) if error.is_out_of_memory() => {
                self.sweep_all();
                // Whatever was given back is free for good when the stream is there.
                self.api.synchronize(stream)?;
                self.api.trim_pool(pool)?;
                self.api.allocate(bytes, stream)?
            }
            other => other?,
        };
        let word = self.words.address(QUEUES as usize);
        let mut taken = locked(taken);
        let cleared = self.api.clear(pointer, bytes, stream);
        match cleared.and_then(|()| self.api.write_value(word, *taken + 1, stream)) {
            Ok(()) => {
                *taken += 1;
                Ok((pointer, *taken))
            }
            Err(error) => {
                self.api.free(pointer, stream)?;
                Err(error)
            }
        }
    }
}

/// A buffer.
pub(crate) struct CudaBuffer {
    device: Arc<Device>,
    pointer: DevicePointer,
    bytes: u64,
    /// The count at which it is all zeros.
    pub(crate) ready: u64,
    pub(crate) uses: Uses,
    /// Whose memory it is, when not ours.
    owner: Mutex<Option<Box<dyn Any + Send>>>,
}

impl CudaBuffer {
    pub(crate) fn new(device: &Arc<Device>, bytes: u64, size: usize) -> Result<CudaBuffer, Failure> {
        let (pointer, ready) = device.take_memory(size)?;
        let (device, uses) = (Arc::clone(device), Uses::default());
        Ok(CudaBuffer { device, pointer, bytes, ready, uses, owner: Mutex::default() })
    }

    pub(crate) fn foreign(
        device: &Arc<Device>,
        pointer: DevicePointer,
        bytes: u64,
        owner: Box<dyn Any + Send>,
    ) -> CudaBuffer {
        let (device, uses) = (Arc::clone(device), Uses::default());
        CudaBuffer { device, pointer, bytes, ready: 0, uses, owner: Mutex::new(Some(owner)) }
    }

    /// The address, for the device that it is on.
    pub(crate) fn pointer(&self, device: &Arc<Device>) -> Result<DevicePointer, BackendError> {
        if Arc::ptr_eq(&self.device, device) {
            return Ok(self.pointer);
        }
        Err(BackendError::with_code(
            &codes::backend::FOREIGN_HANDLE,
            "a buffer of one CUDA device was passed to another",
        ))
    }
}

impl DeviceBuffer for CudaBuffer {
    fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for CudaBuffer {
    fn drop(&mut self) {
        let owner = locked(&self.owner).take();
        let left = owner.map_or(Leftover::Memory(self.pointer), Leftover::Foreign);
        self.device.park(&self.uses, left);
    }
}
