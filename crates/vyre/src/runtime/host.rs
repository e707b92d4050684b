//! Memory of the host: reuse of what was freed, and the caller's own.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use vyre_driver::backend::{HostMemory, in_huge_pages};
use vyre_spec::{Diagnostic, codes};

use crate::engine::lock;
use crate::{Element, Error};

/// Freed host memory that is kept, because touching fresh pages takes longer than most kernels.
pub(crate) struct HostPool {
    idle: Mutex<Idle>,
    most_idle: u64,
    used: AtomicU64,
}

#[derive(Default)]
struct Idle {
    by_size: BTreeMap<usize, Vec<Arc<HostMemory>>>,
    bytes: u64,
}

/// What is smaller is left to the allocator.
const SMALLEST: usize = 64 << 10;

impl HostPool {
    /// A pool that keeps at most so many bytes idle.
    pub(crate) fn new(most_idle: u64) -> HostPool {
        HostPool { idle: Mutex::default(), most_idle, used: AtomicU64::new(0) }
    }

    /// Memory of at least so many bytes, with any contents, or zeros where asked for.
    pub(crate) fn take(&self, bytes: u64, zeroed: bool) -> Result<Arc<HostMemory>, Error> {
        let out_of_memory =
            || Diagnostic::new(&codes::backend::OUT_OF_MEMORY, format!("the host has no memory for {bytes} bytes"));
        let size = usize::try_from(bytes).map_err(|_| out_of_memory())?;
        let memory = match self.reuse(size) {
            Some(memory) => {
                if zeroed {
                    memory.clear(0, size);
                }
                memory
            }
            None => {
                let fresh = HostMemory::new(size).or_else(|| {
                    self.trim();
                    HostMemory::new(size)
                });
                Arc::new(fresh.ok_or_else(out_of_memory)?)
            }
        };
        self.used.fetch_add(memory.bytes() as u64, Ordering::Relaxed);
        Ok(memory)
    }

    fn reuse(&self, size: usize) -> Option<Arc<HostMemory>> {
        if size < SMALLEST {
            return None;
        }
        let mut idle = lock(&self.idle);
        let mut found = None;
        for (&kept, list) in idle.by_size.range_mut(size..=size + size / 8) {
            // Work that is under way still holds what it works on. What was used last is the likeliest to be in caches.
            let free = list.iter_mut().rposition(|memory| Arc::get_mut(memory).map(HostMemory::settle).is_some());
            if let Some(at) = free {
                found = Some((kept, list.remove(at)));
                break;
            }
        }
        let (kept, memory) = found?;
        if idle.by_size.get(&kept).is_some_and(Vec::is_empty) {
            idle.by_size.remove(&kept);
        }
        idle.bytes -= kept as u64;
        Some(memory)
    }

    /// Takes memory back.
    pub(crate) fn give(&self, memory: Arc<HostMemory>) {
        if memory.is_foreign() {
            return;
        }
        let bytes = memory.bytes();
        self.used.fetch_sub(bytes as u64, Ordering::Relaxed);
        if bytes < SMALLEST {
            return;
        }
        let mut idle = lock(&self.idle);
        if idle.bytes + bytes as u64 <= self.most_idle {
            idle.bytes += bytes as u64;
            idle.by_size.entry(bytes).or_default().push(memory);
        }
    }

    /// Frees what is idle.
    pub(crate) fn trim(&self) -> u64 {
        std::mem::take(&mut *lock(&self.idle)).bytes
    }

    /// Bytes in arrays, and bytes that are idle.
    pub(crate) fn usage(&self) -> [u64; 2] {
        [self.used.load(Ordering::Relaxed), lock(&self.idle).bytes]
    }
}

/// Room for elements that are about to be read.
pub(crate) fn room_for<T: Element>(count: usize) -> Vec<T> {
    let mut elements = vec![T::zeroed(); count];
    in_huge_pages(bytemuck::cast_slice_mut(&mut elements));
    elements
}

/// The caller's bytes as memory that kernels only read. Whoever makes it waits for that work before the borrow ends.
pub(crate) fn foreign_ref(bytes: &[u8]) -> Arc<HostMemory> {
    // SAFETY: the caller of this private function binds it only to be read, and blocks until that work is over.
    Arc::new(unsafe { HostMemory::foreign(bytes.as_ptr().cast_mut(), bytes.len()) })
}

/// The caller's bytes as memory that kernels write. Whoever makes it waits for that work before the borrow ends.
pub(crate) fn foreign_mut(bytes: &mut [u8]) -> Arc<HostMemory> {
    // SAFETY: as above; the borrow is exclusive.
    Arc::new(unsafe { HostMemory::foreign(bytes.as_mut_ptr(), bytes.len()) })
}

/// Part of host memory as plain bytes, for a copy. Whoever makes it holds the lock of the array that the memory belongs to, and no work
/// that is under way uses that part.
pub(super) struct HostBytes<'a> {
    memory: &'a HostMemory,
    at: usize,
    bytes: usize,
}

impl<'a> HostBytes<'a> {
    pub(super) fn new(memory: &'a HostMemory, at: usize, bytes: usize) -> HostBytes<'a> {
        assert!(at <= memory.bytes() && bytes <= memory.bytes() - at, "{bytes} bytes at {at} of {}", memory.bytes());
        HostBytes { memory, at, bytes }
    }
}

impl AsRef<[u8]> for HostBytes<'_> {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: inside the memory, which is initialised; nobody writes it now, see above.
        unsafe { std::slice::from_raw_parts(self.memory.address_to_read().add(self.at), self.bytes) }
    }
}

impl AsMut<[u8]> for HostBytes<'_> {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; nobody else uses it now.
        unsafe { std::slice::from_raw_parts_mut(self.memory.address().add(self.at), self.bytes) }
    }
}
