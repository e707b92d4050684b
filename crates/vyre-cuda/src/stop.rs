//! Stop words: where a launch that can be stopped looks whether it has to end, and says that it did.
//!
//! They are in device memory, because every workgroup looks at its own launch's word, and are written through a stream of their own
//! that no launch holds up.

use std::sync::Mutex;

use crate::api::{Api, CudaError, DevicePointer, Handle};
use crate::device::locked;

/// A slot is two words of 32 bits: "end", written by the host, and "I left before my work was done", written by the kernel.
pub(crate) struct Stops {
    stream: Handle,
    slots: Mutex<Slots>,
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
    pub(crate) fn open(api: &Api) -> Result<Stops, CudaError> {
        let mut stops = Stops { stream: api.create_stream(true)?, slots: Mutex::default(), never: 0 };
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
        let block = api.allocate_fixed((IN_BLOCK * APART) as usize)?;
        slots.blocks.push(block);
        api.upload(block, &vec![0; (IN_BLOCK * APART) as usize], self.stream)?;
        api.synchronize(self.stream)?;
        slots.idle.extend((1..IN_BLOCK).map(|index| block + index * APART));
        Ok(block)
    }

    /// Tells the launch of a slot to end.
    pub(crate) fn stop(&self, api: &Api, slot: DevicePointer) -> Result<(), CudaError> {
        api.upload(slot, &1u32.to_le_bytes(), self.stream)
    }

    /// Takes the slot of a launch that is over. Says whether it left before its work was done, which only one that was told to can.
    pub(crate) fn give_back(&self, api: &Api, slot: DevicePointer, is_cancelled: bool) -> Result<bool, CudaError> {
        let mut left = [0; 4];
        if is_cancelled {
            api.download(&mut left, slot + LEFT, self.stream)?;
            api.upload(slot, &[0; 8], self.stream)?;
            api.synchronize(self.stream)?;
        }
        locked(&self.slots).idle.push(slot);
        Ok(left != [0; 4])
    }
}
