use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use super::{BackendError, Buffer, VyreBackend};

/// Device buffers that are used again instead of being freed, in sizes of powers of two.
///
/// A buffer from the pool holds whatever its last user left; [`VyreBackend::clear`] makes it zero where that matters.
/// Because work runs in order, a buffer may be taken again while the work of its last user is still under way.
#[derive(Clone)]
pub struct BufferPool {
    shared: Arc<Shared>,
}

struct Shared {
    backend: Arc<dyn VyreBackend>,
    max_idle_bytes: u64,
    idle: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    by_size: BTreeMap<u64, Vec<Buffer>>,
    bytes: u64,
}

impl Idle {
    fn take(&mut self, size: u64) -> Option<Buffer> {
        let buffer = self.by_size.get_mut(&size)?.pop()?;
        self.bytes -= size;
        Some(buffer)
    }
}

const SMALLEST: u64 = 256;

impl BufferPool {
    /// A pool that keeps at most so many bytes idle.
    pub fn new(backend: Arc<dyn VyreBackend>, max_idle_bytes: u64) -> Self {
        BufferPool { shared: Arc::new(Shared { backend, max_idle_bytes, idle: Mutex::default() }) }
    }

    /// A buffer of at least so many bytes. It goes back to the pool when it is dropped.
    pub fn take(&self, bytes: u64) -> Result<PooledBuffer, BackendError> {
        // Sizes that have no power of two above them are for the backend to refuse.
        let size = bytes.max(SMALLEST).checked_next_power_of_two().unwrap_or(bytes);
        let limit = self.shared.backend.capabilities().limits.max_buffer_bytes;
        let size = if size > limit { bytes } else { size };
        let idle = self.shared.lock().take(size);
        let buffer = match idle {
            Some(buffer) => buffer,
            None => match self.shared.backend.allocate(size) {
                Ok(buffer) => buffer,
                // Idle memory may be what is missing.
                Err(_) if self.trim() > 0 => self.shared.backend.allocate(size)?,
                Err(error) => return Err(error),
            },
        };
        Ok(PooledBuffer { buffer: Some(buffer), pool: self.shared.clone() })
    }

    /// Frees what is idle, and gives the number of bytes.
    pub fn trim(&self) -> u64 {
        std::mem::take(&mut *self.shared.lock()).bytes
    }

    /// Bytes that are idle.
    pub fn idle_bytes(&self) -> u64 {
        self.shared.lock().bytes
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A buffer on loan from a [`BufferPool`].
pub struct PooledBuffer {
    buffer: Option<Buffer>,
    pool: Arc<Shared>,
}

impl Deref for PooledBuffer {
    type Target = Buffer;

    fn deref(&self) -> &Buffer {
        self.buffer.as_ref().expect("the buffer is taken out only by drop")
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        let Some(buffer) = self.buffer.take() else { return };
        let size = buffer.bytes();
        let mut idle = self.pool.lock();
        // A buffer that someone still has a handle of is theirs.
        if buffer.is_unshared() && idle.bytes.saturating_add(size) <= self.pool.max_idle_bytes {
            idle.bytes += size;
            idle.by_size.entry(size).or_default().push(buffer);
        }
    }
}
