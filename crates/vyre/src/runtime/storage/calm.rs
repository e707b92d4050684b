//! Arrays of the host that nothing is under way on. A small launch on the processor is over before anything else can begin on them, so it
//! uses them without their locks.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use vyre_driver::backend::Binding;

use super::state::{Segment, State};
use super::{Device, Storage};

/// What is known of an array without its lock. Whoever takes the lock makes it unknown.
#[derive(Default)]
pub(super) struct Calm {
    may: AtomicU8,
    /// All of it, for the device that found it so. Memory of the host stays the array's until its end.
    whole: OnceLock<(Arc<Device>, Binding)>,
}

/// Its value is on the host, and nobody is about to write it.
const BE_READ: u8 = 1;
/// Besides, no other place holds it, and nobody reads it.
const BE_WRITTEN: u8 = 2;

impl Storage {
    /// A range of an array that nothing is under way on, for a device that works on the host's memory. The caller has borrowed the
    /// array, to be written as the only one who can, so it stays as it is until the caller returns.
    pub(crate) fn calm(&self, device: &Arc<Device>, range: &Range<u64>, write: bool) -> Option<Binding> {
        if self.calm.may.load(Ordering::Acquire) < if write { BE_WRITTEN } else { BE_READ } {
            return None;
        }
        let (known, whole) = self.calm.whole.get()?;
        let bytes = range.end - range.start;
        let is_bindable = Arc::ptr_eq(known, device) && range.start.is_multiple_of(device.alignment);
        is_bindable.then(|| Binding { buffer: whole.buffer.clone(), offset: range.start, bytes })
    }

    /// Somebody looks at the state and may change it.
    pub(super) fn stir(&self) {
        self.calm.may.store(0, Ordering::Relaxed);
    }

    /// Notes what the next launch may do without a look at the state.
    pub(super) fn calm_down(&self, state: &mut State, device: &Arc<Device>) {
        let [Segment { valid, zero: false, writer, readers, lost: None, .. }] = &mut state.segments[..] else { return };
        let Some(Some(host)) = state.places.get_mut(Device::HOST) else { return };
        let is_written = writer.as_ref().is_none_or(|writer| writer.is_good());
        if device.place != Device::HOST || *valid & 1 << Device::HOST == 0 || !is_written {
            return;
        }
        *writer = None;
        readers.retain(|reader| !reader.is_known_over());
        host.users.retain(|user| !user.is_known_over());
        let is_alone = *valid == 1 << Device::HOST && readers.is_empty() && host.users.is_empty();
        let Ok(whole) = state.binding(device, &(0..self.bytes)) else { return };
        let (known, _) = self.calm.whole.get_or_init(|| (device.clone(), whole));
        if Arc::ptr_eq(known, device) {
            self.calm.may.store(if is_alone { BE_WRITTEN } else { BE_READ }, Ordering::Release);
        }
    }

    /// Lets go of the memory, which others may then have.
    pub(super) fn end_calm(&mut self) {
        self.calm = Calm::default();
    }
}
