use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use vyre_driver::VyreBackend;
use vyre_driver::backend::Ticket;
use vyre_spec::BackendId;

use super::memory::Memory;
use super::{Deps, Watcher};

/// A backend that is open, as the runtime sees it.
pub(crate) struct Device {
    pub(crate) id: BackendId,
    pub(crate) backend: Arc<dyn VyreBackend>,
    pub(crate) memory: Memory,
    /// The engine's threads that wait for work.
    pub(crate) watcher: Arc<Watcher>,
    /// Where its copies of arrays are among an array's places: [`Device::HOST`] where it works on the host's memory.
    pub(crate) place: usize,
    /// Parts of buffers that are bound begin at multiples of this.
    pub(crate) alignment: u64,
    queues: u32,
    next_queue: AtomicU32,
}

/// Launches on one queue that may be under way before a caller has to wait.
const IN_FLIGHT: u64 = 4096;

/// One piece of work in so many looks whether too much is under way. A prime, so that work in turns is met in all its kinds.
const LOOKS: u64 = 61;

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
            alignment: u64::from(able.limits.binding_alignment.max(1)),
            queues: able.queues.max(1),
            backend,
            watcher: watcher.clone(),
            next_queue: AtomicU32::new(0),
        }
    }

    /// A queue for work that continues nothing: one that is idle, so that it does not wait for work that may never end, else the next.
    pub(crate) fn fresh_queue(&self) -> u32 {
        if self.queues == 1 {
            return 0;
        }
        // Two threads may be given the same one, which is no harm: all queues are in use then.
        let next = self.next_queue.load(Ordering::Relaxed) % self.queues;
        let mut from_next = (0..self.queues).map(|step| (next + step) % self.queues);
        let queue = from_next.find(|&queue| self.backend.is_idle(queue)).unwrap_or(next);
        self.next_queue.store(queue + 1, Ordering::Relaxed);
        queue
    }

    /// The queue for work that comes after some: that of what it continues, or a fresh one.
    pub(crate) fn queue_of(&self, deps: &Deps) -> u32 {
        deps.queue.unwrap_or_else(|| self.fresh_queue())
    }

    /// Work that was just submitted is done, and well, and is forgotten: the processor does what is small on the caller's thread. No other
    /// device is that soon, and asking one takes a while.
    pub(crate) fn is_done_at_once(&self, ticket: Ticket) -> bool {
        self.place == Device::HOST && self.backend.forget_done(ticket)
    }

    /// Waits where too much is under way behind a launch.
    pub(crate) fn throttle(&self, ticket: Ticket) {
        if ticket.number.is_multiple_of(LOOKS) && ticket.number > IN_FLIGHT {
            // How that work ended is for those who own it.
            let _ = self.backend.wait(Ticket { number: ticket.number - IN_FLIGHT, ..ticket }, None);
        }
    }
}
