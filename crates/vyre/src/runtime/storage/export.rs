//! Values in the hands of others.

use std::sync::Arc;

use vyre_driver::backend::{Binding, Ticket};

use super::super::Device;
use super::super::deps::Deps;
use super::Storage;
#[cfg(feature = "cuda")]
use super::state::PlaceMemory;
use crate::Error;

/// A value that others use on a device; it stays there until this is dropped.
pub(crate) struct Export {
    storage: Arc<Storage>,
    device: Arc<Device>,
    binding: Binding,
    /// What their work comes after. Keeps the value in its place.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "other devices have one queue"))]
    deps: Deps,
}

impl Storage {
    /// Makes the value whole on a device, for others. Nothing is waited for that the device can wait for itself.
    pub(crate) fn export(self: &Arc<Self>, device: &Arc<Device>, write: bool) -> Result<Export, Error> {
        let mut deps = Deps::default();
        let binding = self.prepare(device, &(0..self.bytes), true, write, &mut deps)?;
        Ok(Export { storage: self.clone(), device: device.clone(), binding, deps })
    }

    /// The device that holds the whole value while the host does not.
    #[cfg(feature = "cuda")]
    pub(crate) fn only_on(&self) -> Option<Arc<Device>> {
        let (state, whole) = (self.lock(), 0..self.bytes);
        if state.is_at(&whole, 1 << Device::HOST) {
            return None;
        }
        let held = |place: &usize| state.is_whole_at(&whole, 1 << place);
        let place = (Device::HOST + 1..state.places.len()).find(held)?;
        match &state.places[place].as_ref()?.memory {
            PlaceMemory::Device(device, _) => Some(device.clone()),
            PlaceMemory::Host(..) => None,
        }
    }
}

impl Export {
    #[cfg(feature = "cuda")]
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Where the value is.
    pub(crate) fn binding(&self) -> &Binding {
        &self.binding
    }

    /// What the work of others has to come after.
    #[cfg(feature = "cuda")]
    pub(crate) fn after(&self) -> &[Ticket] {
        &self.deps.after
    }

    /// Others are done with it once the work of a ticket is over, and have written it or not.
    pub(crate) fn returned(&self, over: Option<Ticket>, written: bool) {
        let mut state = self.storage.lock();
        if let Some(over) = over {
            state.moved_to(self.device.place, over);
        }
        if written {
            let whole = 0..self.storage.bytes;
            for index in state.indices(&whole) {
                let segment = &mut state.segments[index];
                (segment.valid, segment.zero, segment.lost) = (1 << self.device.place, false, None);
                segment.writer = None;
                segment.readers.clear();
            }
        }
    }
}
