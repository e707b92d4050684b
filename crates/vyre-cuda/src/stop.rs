//! Stop words: where a launch that can be stopped looks whether it has to end, and says that it did.
//!
//! They are in memory that host and device share page by page: the device has a copy of its own to look at, which a write of the host takes
//! away. So telling a launch to end needs no call of the driver, which may keep a caller waiting for the very launch that is to end (while it
//! loads a module, for one). Where the device can't share memory so, the words are in its memory and are written through a stream of their own.

use std::collections::HashMap;
use std::sync::Mutex;

use vyre_driver::backend::Ticket;

use crate::api::{Api, Attribute, CudaError, DevicePointer, Handle};
use crate::device::locked;

/// A slot is two words of 32 bits: "end", written by the host, and "I left before my work was done", written by the kernel.
pub(crate) struct Stops {
    device: i32,
    stream: Handle,
    slots: Mutex<Slots>,
    /// The host writes the words itself.
    is_shared: bool,
    /// The slots of launches that can be told to end, and whether they were. Never held across a call of the driver.
    watched: Mutex<HashMap<Ticket, (DevicePointer, bool)>>,
    /// A slot that nobody writes to, for launches of recordings.
    pub(crate) never: DevicePointer,
}

#[derive(Default)]
struct Slots {
    idle: Vec<DevicePointer>,
    blocks: Vec<DevicePointer>,
}

/// Bytes between two slots, so that each has a sector of its own.
const APART: u64 = 32;
/// More than can be in flight on all queues, so that a second block is hardly ever needed.
const IN_BLOCK: u64 = 4096;
/// Where in a slot the kernel's word is.
const LEFT: u64 = 4;

impl Stops {
    pub(crate) fn open(api: &Api, device: i32) -> Result<Stops, CudaError> {
        let mut stops = Stops {
            device,
            stream: api.create_stream(true)?,
            slots: Mutex::default(),
            is_shared: api.attribute(device, Attribute::ConcurrentManagedAccess)? != 0,
            watched: Mutex::default(),
            never: 0,
        };
        stops.never = stops.take(api)?;
        Ok(stops)
    }

    pub(crate) fn close(&self, api: &Api) -> Result<(), CudaError> {
        let slots = std::mem::take(&mut *locked(&self.slots));
        slots.blocks.into_iter().try_for_each(|block| api.free_fixed(block))?;
        api.destroy_stream(self.stream)
    }

    /// A slot whose words are zero.
    pub(crate) fn take(&self, api: &Api) -> Result<DevicePointer, CudaError> {
        let mut slots = locked(&self.slots);
        if let Some(slot) = slots.idle.pop() {
            return Ok(slot);
        }
        let bytes = (IN_BLOCK * APART) as usize;
        let block = if self.is_shared { api.allocate_shared(bytes, self.device)? } else { api.allocate_fixed(bytes)? };
        slots.blocks.push(block);
        if !self.is_shared {
            api.upload(block, &vec![0; bytes], self.stream)?;
            api.synchronize(self.stream)?;
        }
        slots.idle.extend((1..IN_BLOCK).map(|index| block + index * APART));
        Ok(block)
    }

    /// Remembers the slot of a launch.
    pub(crate) fn watch(&self, ticket: Ticket, slot: DevicePointer) {
        locked(&self.watched).insert(ticket, (slot, false));
    }

    /// Tells a launch to end, where the host can by itself; says whether it could.
    pub(crate) fn tell(&self, api: &Api, ticket: Ticket) -> bool {
        if self.is_shared
            && let Some((slot, is_cancelled)) = locked(&self.watched).get_mut(&ticket)
        {
            api.write_shared(*slot, 1);
            *is_cancelled = true;
        }
        self.is_shared
    }

    /// A launch is over; says whether it was told to end.
    pub(crate) fn unwatch(&self, ticket: Ticket) -> bool {
        locked(&self.watched).remove(&ticket).is_some_and(|(_, is_cancelled)| is_cancelled)
    }

    /// Tells the launch of a slot to end.
    pub(crate) fn stop(&self, api: &Api, slot: DevicePointer) -> Result<(), CudaError> {
        api.upload(slot, &1u32.to_le_bytes(), self.stream)
    }

    /// Takes the slot of a launch that is over. Says whether it left before its work was done, which only one that was told to can.
    pub(crate) fn give_back(&self, api: &Api, slot: DevicePointer, is_cancelled: bool) -> Result<bool, CudaError> {
        let mut left = [0; 4];
        if is_cancelled && self.is_shared {
            left = api.read_shared(slot + LEFT).to_le_bytes();
            api.write_shared(slot, 0);
            api.write_shared(slot + LEFT, 0);
        } else if is_cancelled {
            api.download(&mut left, slot + LEFT, self.stream)?;
            api.upload(slot, &[0; 8], self.stream)?;
            api.synchronize(self.stream)?;
        }
        locked(&self.slots).idle.push(slot);
        Ok(left != [0; 4])
    }
}
