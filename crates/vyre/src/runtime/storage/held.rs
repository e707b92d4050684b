//! Arrays that are where a launch needs them already, which is how nearly every launch finds them.

use std::ops::Range;
use std::sync::{Arc, MutexGuard};

use smallvec::SmallVec;
use vyre_driver::backend::Binding;

use super::Storage;
use super::state::State;
use crate::runtime::{Deps, Device, Job};

/// The arrays of one launch, kept where they are until the launch is noted on them. Each is locked once or twice, and never while
/// another is waited for.
#[derive(Default)]
pub(crate) struct Held<'a> {
    arrays: SmallVec<[HeldArray<'a>; 8]>,
    /// Those that write what the launch only reads, and of whom nobody knows yet how they end.
    parents: SmallVec<[Arc<Job>; 4]>,
}

enum HeldArray<'a> {
    /// Others may read it at the same time, so it is pinned and not locked; on the host nothing would make it go away.
    Read { storage: &'a Storage, range: Range<u64>, is_pinned: bool },
    /// All of it, of which the launch has the only handle; `keep` where the launch works on what is there.
    Write { storage: &'a Storage, state: MutexGuard<'a, State>, keep: bool },
}

impl<'a> Held<'a> {
    /// Holds a range on a device, to be read, or all of an array, to be written. `None` where something has to be done or waited for
    /// first, or is to be told; [`Storage::prepare`] does that.
    pub(crate) fn hold(
        &mut self,
        storage: &'a Storage,
        device: &Arc<Device>,
        range: &Range<u64>,
        (keep, write): (bool, bool),
        deps: &mut Deps,
    ) -> Option<Binding> {
        let mut state = storage.try_lock()?;
        let place = device.place;
        let [segment] = &state.segments[..] else { return None };
        let is_there = segment.valid & 1 << place != 0 && segment.lost.is_none();
        if !is_there || (write && *range != (0..storage.bytes)) {
            return None;
        }
        if let Some(writer) = &segment.writer {
            if writer.is_known_over() {
                writer.is_good().then_some(())?;
            } else {
                Arc::ptr_eq(&writer.device, device).then_some(())?;
                deps.come_after_running(writer);
                if !write {
                    self.parents.push(writer.clone());
                }
            }
        }
        if write {
            for reader in &segment.readers {
                if Arc::ptr_eq(&reader.device, device) && !reader.is_known_over() {
                    deps.come_after_running(reader);
                }
            }
        }
        let there = state.places[place].as_ref()?;
        if place == Device::HOST {
            if write && there.others(device).next().is_some() {
                return None;
            }
        } else if let Some(moved) = there.moved
            && !device.backend.is_over(moved)
        {
            deps.after_ticket(moved);
        }
        let binding = state.binding(device, range).ok()?;
        state.used = storage.engine.tick();
        if write {
            self.arrays.push(HeldArray::Write { storage, state, keep });
        } else {
            let is_pinned = place != Device::HOST;
            state.pinned += u32::from(is_pinned);
            storage.calm_down(&mut state, device);
            self.arrays.push(HeldArray::Read { storage, range: range.clone(), is_pinned });
        }
        Some(binding)
    }

    /// Those whose results the launch works on and of whom nobody knows yet how they end. To be asked once, and followed by
    /// [`Held::launched`].
    pub(crate) fn parents(&mut self) -> SmallVec<[Arc<Job>; 4]> {
        let mut parents = std::mem::take(&mut self.parents);
        for held in &mut self.arrays {
            if let HeldArray::Write { state, keep, .. } = held
                && let Some(replaced) = state.segments[0].writer.take_if(|writer| *keep && !writer.is_done())
            {
                parents.push(replaced);
            }
        }
        parents
    }

    /// Notes that all was done before anybody could ask: nothing is left to wait for, or to fail.
    pub(crate) fn done(&mut self, device: &Arc<Device>) {
        for held in &mut self.arrays {
            if let HeldArray::Write { storage, state, .. } = held {
                state.segments[0].written(device.place, None);
                storage.calm_down(state, device);
            }
        }
    }

    /// Notes what was launched.
    pub(crate) fn launched(&mut self, job: &Arc<Job>) {
        for held in self.arrays.drain(..) {
            match held {
                HeldArray::Read { storage, range, is_pinned } => {
                    let mut state = storage.lock();
                    state.pinned -= u32::from(is_pinned);
                    state.launched(job, &range, false);
                }
                HeldArray::Write { mut state, .. } => {
                    let whole = 0..state.segments[0].end;
                    state.launched(job, &whole, true);
                }
            }
        }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        for held in &self.arrays {
            if let HeldArray::Read { storage, is_pinned: true, .. } = held {
                storage.unpin();
            }
        }
    }
}
