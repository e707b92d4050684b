//! Host memory that the device reaches by itself.

use std::ffi::c_uint;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Api, CudaError, DevicePointer, call, ptr};

/// Pages that stay where they are. Given back with [`free`](Pinned::free).
pub(crate) struct Pinned {
    memory: usize,
    bytes: usize,
}

impl Api {
    pub(crate) fn pin(&self, bytes: usize) -> Result<Pinned, CudaError> {
        // For every context, and under the same address on the device.
        const PORTABLE_AND_MAPPED: c_uint = 3;
        let mut memory = std::ptr::null_mut();
        call!(self, cuMemHostAlloc(&raw mut memory, bytes, PORTABLE_AND_MAPPED))?;
        Ok(Pinned { memory: memory as usize, bytes })
    }
}

impl Pinned {
    pub(crate) fn address(&self) -> usize {
        self.memory
    }

    /// Writes behind so many bytes; what does not fit is left out.
    pub(crate) fn write_at(&mut self, start: usize, bytes: &[u8]) {
        let room = self.bytes.saturating_sub(start).min(bytes.len());
        // SAFETY: the memory has that many bytes behind `start`, and nobody has a reference to them.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), (self.memory + start) as *mut u8, room) };
    }

    /// Reads from the start.
    pub(crate) fn read(&self, bytes: &mut [u8]) {
        // SAFETY: as above.
        unsafe {
            std::ptr::copy_nonoverlapping(self.memory as *const u8, bytes.as_mut_ptr(), bytes.len().min(self.bytes))
        };
    }

    /// The bytes, for memory that no copy is using.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the memory has that many bytes, which were zeros or were written since; whoever borrows them keeps copies away.
        unsafe { std::slice::from_raw_parts(self.memory as *const u8, self.bytes) }
    }

    /// The bytes, to be changed.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else has a reference.
        unsafe { std::slice::from_raw_parts_mut(self.memory as *mut u8, self.bytes) }
    }

    /// Gives the memory back; its copies are done.
    pub(crate) fn free(self, api: &Api) -> Result<(), CudaError> {
        call!(api, cuMemFreeHost(ptr(self.memory)))
    }
}

/// Numbers of 64 bits that the device writes and the host looks at, each in a cache line of its own.
pub(crate) struct Words(Pinned);

impl Words {
    const APART: usize = 64;

    /// So many zeros.
    pub(crate) fn new(api: &Api, count: usize) -> Result<Words, CudaError> {
        let mut memory = api.pin(count.max(1) * Self::APART)?;
        memory.bytes_mut().fill(0);
        Ok(Words(memory))
    }

    /// What a word holds.
    pub(crate) fn load(&self, index: usize) -> u64 {
        let address = self.address(index) as *mut u64;
        // SAFETY: the word is inside the memory and aligned; the device writes all of it at once.
        unsafe { AtomicU64::from_ptr(address) }.load(Ordering::Acquire)
    }

    /// Where a word is, for host and device.
    pub(crate) fn address(&self, index: usize) -> DevicePointer {
        assert!((index + 1) * Self::APART <= self.0.bytes, "there is no word {index}");
        (self.0.memory + index * Self::APART) as DevicePointer
    }

    /// Gives the memory back; nothing on the device writes to it any more, and nobody looks.
    pub(crate) fn close(&self, api: &Api) -> Result<(), CudaError> {
        call!(api, cuMemFreeHost(ptr(self.0.memory)))
    }
}
