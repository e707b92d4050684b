//! The bytes of an array: one value that may have copies in several places.
//!
//! The value is kept in segments, so that parts that are used apart are ordered, and lost, apart. A segment knows who wrote it last, who
//! has read it since, and which places hold it. Reading it somewhere needs a copy there; writing it makes all other copies stale.

mod calm;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod export;
mod held;
mod moves;
mod state;

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(crate) use export::Export;
pub(crate) use held::Held;
use smallvec::SmallVec;
use vyre_driver::backend::{Binding, HostMemory};
#[cfg(any(feature = "cuda", feature = "wgpu"))]
use vyre_driver::backend::{Buffer, Ticket};
use vyre_spec::{Diagnostic, codes};

use self::calm::Calm;
use self::state::{PlaceMemory, Segment, State};
#[cfg(any(feature = "cuda", feature = "wgpu"))]
use super::Block;
use super::deps::{Deps, late};
use super::host::HostBytes;
use super::{Device, Job};
use crate::Error;
use crate::engine::{Inner, lock};

/// The bytes of an array. Who writes has the only handle.
pub(crate) struct Storage {
    pub(crate) engine: Arc<Inner>,
    pub(crate) bytes: u64,
    label: Mutex<Option<Arc<str>>>,
    state: Mutex<State>,
    calm: Calm,
}

impl Storage {
    /// Zeros, which take no memory yet.
    pub(crate) fn zeros(engine: &Arc<Inner>, bytes: u64) -> Arc<Storage> {
        Storage::new(engine, bytes, None, true)
    }

    /// Memory of the host that holds the value.
    pub(crate) fn of_host(engine: &Arc<Inner>, memory: Arc<HostMemory>, bytes: u64) -> Arc<Storage> {
        let place = PlaceMemory::Host(memory, SmallVec::new());
        Storage::new(engine, bytes, Some((Device::HOST, place)), false)
    }

    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    /// Memory of a device, somebody else's, that holds the value once the work of a ticket is over.
    pub(crate) fn of_device(
        engine: &Arc<Inner>,
        device: &Arc<Device>,
        buffer: Buffer,
        bytes: u64,
        ready: Option<Ticket>,
    ) -> Arc<Storage> {
        let place = PlaceMemory::Device(device.clone(), Block::foreign(buffer));
        let storage = Storage::new(engine, bytes, Some((device.place, place)), false);
        if let Some(ready) = ready {
            storage.lock().moved_to(device.place, ready);
        }
        storage
    }

    fn new(engine: &Arc<Inner>, bytes: u64, place: Option<(usize, PlaceMemory)>, zero: bool) -> Arc<Storage> {
        let valid = place.as_ref().map_or(0, |(place, _)| 1 << place);
        let segment = Segment { start: 0, end: bytes, valid, zero, writer: None, readers: SmallVec::new(), lost: None };
        let segments = SmallVec::from_iter([segment]);
        let mut state = State { segments, places: SmallVec::new(), used: engine.tick(), pinned: 0 };
        if let Some((place, memory)) = place {
            state.set_place(place, memory);
        }
        let (state, label) = (Mutex::new(state), Mutex::new(None));
        let storage = Arc::new(Storage { engine: engine.clone(), bytes, label, state, calm: Calm::default() });
        engine.arrays.add(&storage);
        storage
    }

    pub(crate) fn set_label(&self, label: &str) {
        *lock(&self.label) = Some(label.into());
    }

    pub(crate) fn label(&self) -> Option<Arc<str>> {
        lock(&self.label).clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        let state = lock(&self.state);
        self.stir();
        state
    }

    /// Its state, unless somebody else uses it now.
    fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        let state = self.state.try_lock().ok()?;
        self.stir();
        Some(state)
    }

    /// Work that kept it where it is does no more.
    pub(super) fn unpin(&self) {
        self.lock().pinned -= 1;
    }

    /// Bytes of a range that a place holds now.
    pub(crate) fn bytes_at(&self, place: usize, range: &Range<u64>) -> u64 {
        let state = self.lock();
        let held = |segment: &&Segment| segment.valid & 1 << place != 0 || segment.zero;
        state
            .within(range)
            .filter(held)
            .map(|segment| segment.end.min(range.end) - segment.start.max(range.start))
            .sum()
    }

    /// Makes a range ready to be used on a device: a copy is there or on its way, and `deps` names what it comes after. With `keep`
    /// the value as it is now is needed; with `write` the work will change it. `None` when it would have to be moved and may not be.
    pub(crate) fn prepare_here(
        self: &Arc<Self>,
        device: &Arc<Device>,
        range: &Range<u64>,
        keep: bool,
        write: bool,
        deps: &mut Deps,
    ) -> Result<Option<Binding>, Error> {
        let mut state = self.lock();
        state.used = self.engine.tick();
        if keep && !state.is_at(range, 1 << device.place) {
            return Ok(None);
        }
        match self.prepare_locked(&mut state, device, range, keep, write, deps) {
            Err(error) if error.code() == codes::backend::OUT_OF_MEMORY.id => Ok(None),
            other => {
                let binding = other?;
                deps.pin(self, &mut state.pinned);
                Ok(Some(binding))
            }
        }
    }

    /// [`prepare_here`](Self::prepare_here) that moves what has to be moved.
    pub(crate) fn prepare(
        self: &Arc<Self>,
        device: &Arc<Device>,
        range: &Range<u64>,
        keep: bool,
        write: bool,
        deps: &mut Deps,
    ) -> Result<Binding, Error> {
        loop {
            let mut state = self.lock();
            state.used = self.engine.tick();
            match self.prepare_locked(&mut state, device, range, keep, write, deps) {
                Err(error) if error.code() == codes::backend::OUT_OF_MEMORY.id => {
                    drop(state);
                    if !self.engine.make_room(device, Some(self), deps.deadline)? {
                        return Err(self.engine.name_holders(device, error));
                    }
                }
                other => {
                    let binding = other?;
                    deps.pin(self, &mut state.pinned);
                    return Ok(binding);
                }
            }
        }
    }

    fn prepare_locked(
        &self,
        state: &mut State,
        device: &Arc<Device>,
        range: &Range<u64>,
        keep: bool,
        write: bool,
        deps: &mut Deps,
    ) -> Result<Binding, Error> {
        let place = device.place;
        let bit = 1u32 << place;
        self.ensure_place(state, device)?;
        if keep {
            state.check_lost(range)?;
        }
        if keep && !state.is_whole_at(range, bit) {
            state.split(range);
            self.bring(state, device, range, deps)?;
        }
        if write && place == Device::HOST {
            for other in state.others_on_host(device) {
                deps.wait_for_end(other)?;
            }
        }
        for index in state.indices(range) {
            let segment = &state.segments[index];
            if segment.valid & bit == 0 && write {
                // What another version left here may still be in use.
                let users = state.users(place);
                for user in &users {
                    deps.come_after(device, user);
                }
            }
            let segment = &state.segments[index];
            if let Some(writer) = &segment.writer
                && !writer.is_good()
            {
                if keep {
                    if writer.device.place != place {
                        deps.wait_for(writer)?;
                    } else if writer.device.id != device.id {
                        // Two devices on the host's memory have no order of their own.
                        deps.wait_for(writer)?;
                    } else {
                        deps.parents.push(writer.clone());
                    }
                }
                deps.come_after(device, writer);
            }
            if write {
                for reader in &segment.readers {
                    deps.come_after(device, reader);
                }
            }
        }
        if let Some(moved) = state.places[place].as_ref().and_then(|place| place.moved)
            && device.place != Device::HOST
            && !device.backend.is_over(moved)
        {
            deps.after_ticket(moved);
        }
        state.binding(device, range)
    }

    /// Remembers what was launched on a range.
    pub(crate) fn launched(&self, job: &Arc<Job>, range: &Range<u64>, write: bool) {
        self.lock().launched(job, range, write);
    }

    /// What a host backend computed, which is there already.
    pub(crate) fn written_on_host(&self, range: &Range<u64>) {
        let mut state = self.lock();
        state.split(range);
        for index in state.indices(range) {
            let segment = &mut state.segments[index];
            (segment.valid, segment.zero, segment.lost, segment.writer) = (1 << Device::HOST, false, None, None);
            segment.readers.clear();
        }
        state.join();
    }

    /// Waits for whoever writes a range and reads it. Nobody else is kept waiting meanwhile.
    pub(crate) fn read(&self, start: u64, bytes: &mut [u8], deadline: Option<Instant>) -> Result<(), Error> {
        let range = start..start + bytes.len() as u64;
        self.settle(&range, deadline)?;
        let state = self.lock();
        state.check_lost(&range)?;
        for segment in state.within(&range) {
            let (from, to) = (segment.start.max(range.start), segment.end.min(range.end));
            let part = &mut bytes[(from - start) as usize..(to - start) as usize];
            if segment.zero {
                part.fill(0);
            } else if segment.valid & 1 << Device::HOST != 0 {
                state.host().ok_or_else(gone)?.copy_to(from as usize, part);
            } else {
                self.download(&state, segment.valid, from, part, deadline)?;
            }
        }
        Ok(())
    }

    /// Waits for whoever writes a range; an error is the one that it ended with.
    pub(crate) fn settle(&self, range: &Range<u64>, deadline: Option<Instant>) -> Result<(), Error> {
        loop {
            let pending = {
                let mut state = self.lock();
                state.check_lost(range)?;
                let pending = {
                    let mut writers = state.within(range).filter_map(|segment| segment.writer.as_ref());
                    writers.find(|writer| !writer.is_good()).cloned()
                };
                match pending {
                    Some(writer) => writer,
                    None => {
                        for index in state.indices(range) {
                            state.segments[index].writer = None;
                        }
                        return Ok(());
                    }
                }
            };
            match pending.wait(deadline) {
                Ok(true) => {}
                Ok(false) => return Err(late()),
                Err(error) => {
                    let mut state = self.lock();
                    for index in state.indices(range) {
                        let segment = &mut state.segments[index];
                        if segment.writer.as_ref().is_some_and(|writer| Arc::ptr_eq(writer, &pending)) {
                            segment.lost = Some(error.clone());
                        }
                    }
                    return Err(error);
                }
            }
        }
    }

    /// A range is known to hold these bytes: they are on the host and nobody is about to write them.
    pub(crate) fn holds(&self, range: &Range<u64>, expected: &[u8]) -> bool {
        let state = self.lock();
        let settled = |segment: &Segment| segment.writer.as_ref().is_none_or(|writer| writer.is_good());
        let mut segments = state.within(range);
        if !segments.all(|segment| segment.valid & 1 << Device::HOST != 0 && settled(segment) && segment.lost.is_none())
        {
            return false;
        }
        state.host().is_some_and(|memory| {
            HostBytes::new(memory, range.start as usize, (range.end - range.start) as usize).as_ref() == expected
        })
    }

    /// Refuses a range that is known to be lost.
    pub(crate) fn check_lost(&self, range: &Range<u64>) -> Result<(), Error> {
        self.lock().check_lost(range)
    }

    /// All of it is lost, for this reason.
    pub(crate) fn lose(&self, error: &Error) {
        for segment in &mut self.lock().segments {
            segment.lost = Some(error.clone());
        }
    }

    /// The latest work that writes a range.
    pub(crate) fn writers(&self, range: &Range<u64>) -> SmallVec<[Arc<Job>; 2]> {
        let state = self.lock();
        state.within(range).filter_map(|segment| segment.writer.clone()).collect()
    }

    /// Host memory to work on directly, with a valid copy of the range where `keep`; all work on it is over.
    pub(crate) fn on_host(
        &self,
        range: &Range<u64>,
        keep: bool,
        deadline: Option<Instant>,
    ) -> Result<Arc<HostMemory>, Error> {
        if keep {
            self.settle(range, deadline)?;
        }
        let mut deps = Deps::until(deadline);
        let mut state = self.lock();
        let memory = self.host_place(&mut state)?;
        for user in &state.users(Device::HOST) {
            deps.wait_for_end(user)?;
        }
        if keep && !state.is_whole_at(range, 1 << Device::HOST) {
            state.split(range);
            for index in state.indices(range) {
                if state.segments[index].zero {
                    let Segment { start, end, .. } = state.segments[index];
                    memory.clear(start as usize, (end - start) as usize);
                    state.segments[index].zero = false;
                    state.segments[index].valid = 1 << Device::HOST;
                } else {
                    self.bring_home(&mut state, index, &mut deps)?;
                }
            }
        }
        Ok(memory)
    }

    /// Writes host bytes; whoever reads or writes the range now comes first.
    pub(crate) fn write(&self, start: u64, bytes: &[u8], deadline: Option<Instant>) -> Result<(), Error> {
        let range = start..start + bytes.len() as u64;
        // A part of a segment that only a device has would take the rest of it along, so it is cut out first.
        self.lock().split(&range);
        let memory = self.on_host(&range, false, deadline)?;
        memory.fill(start as usize, bytes);
        self.written_on_host(&range);
        Ok(())
    }

    /// A storage of its own with the same value. Nothing is waited for where a device can copy.
    pub(crate) fn duplicate(self: &Arc<Storage>) -> Result<Arc<Storage>, Error> {
        let whole = 0..self.bytes;
        let device = {
            let state = self.lock();
            state.check_lost(&whole)?;
            if state.segments.iter().all(|segment| segment.zero) {
                return Ok(Storage::zeros(&self.engine, self.bytes));
            }
            let place = (Device::HOST + 1..state.places.len()).find(|&place| state.is_whole_at(&whole, 1 << place));
            place.and_then(|place| state.places[place].as_ref()).and_then(|place| match &place.memory {
                PlaceMemory::Device(device, _) => Some(device.clone()),
                PlaceMemory::Host(..) => None,
            })
        };
        let copy = Storage::zeros(&self.engine, self.bytes);
        if let Some(device) = device {
            match copy.copy_from(self, 0, 0, self.bytes, &device) {
                // A full device is no reason not to copy elsewhere.
                Err(error) if error.code() == codes::backend::OUT_OF_MEMORY.id => {}
                done => return done.map(|()| copy),
            }
        }
        let from = self.on_host(&whole, true, None)?;
        let to = copy.on_host(&whole, false, None)?;
        to.copy_from(0, &from, 0, self.bytes as usize);
        copy.written_on_host(&whole);
        Ok(copy)
    }

    /// Copies a range of another storage on a device, in order with other work.
    pub(crate) fn copy_from(
        self: &Arc<Self>,
        other: &Arc<Storage>,
        from: u64,
        to: u64,
        bytes: u64,
        device: &Arc<Device>,
    ) -> Result<(), Error> {
        let (source, target) = (from..from + bytes, to..to + bytes);
        let mut deps = Deps::default();
        let source_binding = other.prepare(device, &source, true, false, &mut deps)?;
        let target_binding = self.prepare(device, &target, false, true, &mut deps)?;
        let queue = deps.queue.unwrap_or_else(|| device.fresh_queue());
        let ticket = device.backend.copy(&source_binding, &target_binding, &deps.order(queue))?;
        let job = self.engine.start_job(device, ticket, None, deps.parents.clone());
        other.launched(&job, &source, false);
        self.launched(&job, &target, true);
        Ok(())
    }

    /// Gives the copy on a device up where the value is on the host, or can be brought there; the bytes that it held.
    pub(crate) fn leave(&self, device: &Device) -> Result<u64, Error> {
        // Who uses it now keeps it.
        let Some(mut state) = self.try_lock() else { return Ok(0) };
        let state = &mut *state;
        let place = device.place;
        let Some(Some(there)) = state.places.get(place) else { return Ok(0) };
        let busy = |jobs: &[Arc<Job>]| jobs.iter().any(|job| !job.is_over());
        let foreign = matches!(&there.memory, PlaceMemory::Device(_, block) if block.is_foreign());
        if place == Device::HOST || foreign || state.pinned > 0 || busy(&there.users) {
            return Ok(0);
        }
        let mut deps = Deps::default();
        for index in 0..state.segments.len() {
            let segment = &state.segments[index];
            if segment.lost.is_none() && !segment.zero && segment.valid & 1 << place != 0 {
                self.bring_home(state, index, &mut deps)?;
            }
            state.segments[index].valid &= !(1 << place);
        }
        if let Some(there) = state.places[place].take() {
            there.give_back(&self.engine);
        }
        Ok(self.bytes)
    }

    /// When it was last used, and whether a device holds a copy.
    pub(crate) fn use_on(&self, device: &Device) -> Option<u64> {
        let state = self.try_lock()?;
        state.places.get(device.place)?.as_ref().map(|_| state.used)
    }

    /// Work under way that keeps the copy on a device from making room.
    pub(crate) fn user_on(&self, device: &Device) -> Option<Arc<Job>> {
        let mut state = self.try_lock()?;
        if state.pinned > 0 {
            return None;
        }
        state.users(device.place).first().cloned()
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.end_calm();
        let state = self.state.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        for place in state.places.drain(..).flatten() {
            place.give_back(&self.engine);
        }
    }
}

fn gone() -> Error {
    Diagnostic::new(&codes::engine::LOST, "no place holds the value any more").into()
}
