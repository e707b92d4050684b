//! How a value comes to the places where it is needed.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;
use vyre_driver::backend::{HostMemory, Order, Ticket};
use vyre_driver::metrics::Counter;
use vyre_spec::codes::Class;

use super::super::Device;
use super::super::deps::Deps;
use super::super::host::HostBytes;
use super::state::{Place, PlaceMemory, Segment, State};
use super::{Storage, gone};
use crate::Error;

impl Storage {
    /// Allocates the place where a device works.
    pub(super) fn ensure_place(&self, state: &mut State, device: &Arc<Device>) -> Result<(), Error> {
        let place = device.place;
        if place == Device::HOST {
            self.host_place(state)?;
        } else if !state.has_place(place) {
            state.set_place(place, PlaceMemory::Device(device.clone(), device.memory.take(self.bytes)?));
        }
        if let Some(Place { memory: PlaceMemory::Host(memory, adopted), .. }) = &mut state.places[place]
            && device.backend.capabilities().resident
            && !adopted.iter().any(|(known, _)| Arc::ptr_eq(known, device))
        {
            let buffer = device.backend.adopt(memory)?;
            adopted.push((device.clone(), buffer));
        }
        Ok(())
    }

    /// Memory of the host for the value, taken where there is none.
    pub(super) fn host_place(&self, state: &mut State) -> Result<Arc<HostMemory>, Error> {
        if let Some(memory) = state.host() {
            return Ok(memory.clone());
        }
        let memory = self.engine.host.take(self.bytes, false)?;
        state.set_place(Device::HOST, PlaceMemory::Host(memory.clone(), SmallVec::new()));
        Ok(memory)
    }

    /// Makes copies of a range at the place of a device, from wherever it is. The segments end at the range's ends.
    pub(super) fn bring(
        &self,
        state: &mut State,
        device: &Arc<Device>,
        range: &Range<u64>,
        deps: &mut Deps,
    ) -> Result<(), Error> {
        let (place, started) = (device.place, Instant::now());
        let mut moved = 0;
        for index in state.indices(range) {
            let Segment { start, end, valid, zero, .. } = state.segments[index];
            if valid & 1 << place != 0 {
                continue;
            }
            if zero {
                self.clear(state, device, start, end, deps)?;
            } else if place == Device::HOST {
                self.bring_home(state, index, deps)?;
                moved += end - start;
            } else {
                if valid & 1 << Device::HOST == 0 {
                    self.bring_home(state, index, deps)?;
                }
                let writer = state.segments[index].writer.clone();
                if let Some(writer) = writer.filter(|writer| writer.device.place == Device::HOST) {
                    deps.wait_for(&writer)?;
                }
                if self.upload(state, device, start, end, deps)? {
                    moved += end - start;
                }
            }
            let segment = &mut state.segments[index];
            segment.valid |= 1 << place;
            if zero {
                segment.zero = false;
            }
        }
        deps.moved_bytes += moved;
        deps.move_ns += started.elapsed().as_nanos() as u64;
        Ok(())
    }

    /// Copies one segment from the device that has it to the host.
    pub(super) fn bring_home(&self, state: &mut State, index: usize, deps: &mut Deps) -> Result<(), Error> {
        let Segment { start, end, valid, writer, .. } = state.segments[index].clone();
        if valid & 1 << Device::HOST != 0 {
            return Ok(());
        }
        if let Some(writer) = &writer {
            deps.wait_for(writer)?;
        }
        let memory = self.host_place(state)?;
        for user in &state.users(Device::HOST) {
            deps.wait_for_end(user)?;
        }
        let mut bytes = HostBytes::new(&memory, start as usize, (end - start) as usize);
        let copied = self.download(state, valid, start, bytes.as_mut(), deps.deadline);
        if let Err(error) = copied {
            // A read that took too long says nothing of the value.
            if error.class() == Class::Device {
                state.segments[index].lost.get_or_insert_with(|| error.clone());
            }
            return Err(error);
        }
        state.segments[index].valid |= 1 << Device::HOST;
        Ok(())
    }

    /// Reads bytes from a device's place; the work that wrote them is over.
    pub(super) fn download(
        &self,
        state: &State,
        valid: u32,
        start: u64,
        bytes: &mut [u8],
        deadline: Option<Instant>,
    ) -> Result<(), Error> {
        let at = (Device::HOST + 1..state.places.len()).find(|&place| valid & 1 << place != 0);
        let place = at.and_then(|at| state.places[at].as_ref());
        let Some(Place { memory: PlaceMemory::Device(device, block), moved, .. }) = place else { return Err(gone()) };
        let after: SmallVec<[Ticket; 1]> = moved.iter().copied().collect();
        // A queue of its own keeps the read from waiting for later work.
        let order = Order { queue: device.fresh_queue(), after: &after, deadline };
        let read = device.backend.download(&block.buffer, block.offset + start, bytes, &order).map_err(Error::from);
        read.inspect_err(|error| self.engine.device_failed(device, error))?;
        self.engine.metrics.add(Counter::BytesDownloaded, bytes.len() as u64);
        Ok(())
    }

    /// Copies bytes of the host to a device's place. False where that was only queued, so that how long it takes is not known.
    fn upload(
        &self,
        state: &mut State,
        device: &Arc<Device>,
        start: u64,
        end: u64,
        deps: &mut Deps,
    ) -> Result<bool, Error> {
        state.come_after_all(device, deps);
        let memory = state.host().ok_or_else(gone)?.clone();
        let queue = device.queue_of(deps);
        let to = state.binding(device, &(start..end))?;
        let order = deps.order(queue);
        let queued = device.backend.upload_queued(&to.buffer, to.offset, &memory, start, end - start, &order)?;
        let ticket = match queued {
            Some(ticket) => ticket,
            None => {
                let bytes = HostBytes::new(&memory, start as usize, (end - start) as usize);
                device.backend.upload(&to.buffer, to.offset, bytes.as_ref(), &order)?
            }
        };
        self.engine.metrics.add(Counter::BytesUploaded, end - start);
        deps.queue.get_or_insert(queue);
        deps.after_ticket(ticket);
        state.moved_to(device.place, ticket);
        if queued.is_some() {
            // Who writes the host's memory next comes after it, and what is launched on the copy is worth as much as the copy.
            let job = self.engine.start_job(device, ticket, None, SmallVec::new());
            state.used_by(Device::HOST, &job);
            deps.parents.push(job);
        }
        Ok(queued.is_none())
    }

    pub(super) fn clear(
        &self,
        state: &mut State,
        device: &Arc<Device>,
        start: u64,
        end: u64,
        deps: &mut Deps,
    ) -> Result<(), Error> {
        if device.place == Device::HOST {
            for user in &state.users(Device::HOST) {
                deps.wait_for_end(user)?;
            }
            if let Some(memory) = state.host() {
                memory.clear(start as usize, (end - start) as usize);
            }
            return Ok(());
        }
        state.come_after_all(device, deps);
        let queue = deps.queue.unwrap_or_else(|| device.fresh_queue());
        let ticket = device.backend.clear(&state.binding(device, &(start..end))?, &deps.order(queue))?;
        deps.queue.get_or_insert(queue);
        deps.after_ticket(ticket);
        state.moved_to(device.place, ticket);
        Ok(())
    }
}
