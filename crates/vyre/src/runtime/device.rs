use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use vyre_driver::VyreBackend;
use vyre_driver::backend::Ticket;
use vyre_spec::BackendId;

use super::Watcher;
use super::memory::Memory;

/// A backend that is open, as the runtime sees it.
pub(crate) struct Device {
    pub(crate) id: BackendId,
    pub(crate) backend: Arc<dyn VyreBackend>,
    pub(crate) memory: Memory,
    /// The engine's threads that wait for work.
    pub(crate) watcher: Arc<Watcher>,
    /// Where its copies of arrays are among an array's places: [`Device::HOST`] where it works on the host's memory.
    pub(crate) place: usize,
    next_queue: AtomicU32,
    launches: AtomicU64,
}

/// Launches on one queue that may be under way before a caller has to wait.
const IN_FLIGHT: u64 = 4096;

impl Device {
    /// The place of the host among the places of an array.
    pub(crate) const HOST: usize = 0;

    /// `number` counts from 1 in the order of opening.
    pub(crate) fn new(
        backend: Arc<dyn VyreBackend>,
        number: usize,
        budget: Option<u64>,
        watcher: &Arc<Watcher>,
    ) -> Device {
        let able = backend.capabilities();
        let on_host = !able.resident || able.unified_memory;
        Device {
            id: backend.id().into(),
            place: if on_host { Device::HOST } else { number },
            memory: Memory::new(backend.clone(), budget),
            backend,
            watcher: watcher.clone(),
            next_queue: AtomicU32::new(0),
            launches: AtomicU64::new(0),
        }
    }

    /// A queue for work that continues nothing.
    pub(crate) fn fresh_queue(&self) -> u32 {
        let queues = self.backend.capabilities().queues.max(1);
        if queues == 1 { 0 } else { self.next_queue.fetch_add(1, Ordering::Relaxed) % queues }
    }

    /// Waits where too much is under way behind a launch.
    pub(crate) fn throttle(&self, ticket: Ticket) {
        let launches = self.launches.fetch_add(1, Ordering::Relaxed);
        if launches % 64 == 63 && ticket.number > IN_FLIGHT {
            // How that work ended is for those who own it.
            let _ = self.backend.wait(Ticket { number: ticket.number - IN_FLIGHT, ..ticket }, None);
        }
    }
}
