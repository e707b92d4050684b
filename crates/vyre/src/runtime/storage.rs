//! The bytes of an array: one value that may have copies in several places.
//!
//! The value is kept in segments, so that parts that are used apart are ordered, and lost, apart. A segment knows who wrote it last, who
//! has read it since, and which places hold it. Reading it somewhere needs a copy there; writing it makes all other copies stale.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use smallvec::SmallVec;
use vyre_driver::backend::{Binding, Buffer, HostMemory, Order, Ticket};
use vyre_driver::metrics::Counter;
use vyre_spec::codes::Class;
use vyre_spec::{Diagnostic, codes};

use super::host::HostBytes;
use super::{Block, Device, Job};
use crate::Error;
use crate::engine::{Inner, lock};

/// The bytes of an array. Who writes has the only handle.
pub(crate) struct Storage {
    pub(crate) engine: Arc<Inner>,
    pub(crate) bytes: u64,
    label: Mutex<Option<Arc<str>>>,
    state: Mutex<State>,
}

struct State {
    /// In order, without gaps, at least one.
    segments: SmallVec<[Segment; 1]>,
    /// By the number of the place.
    places: SmallVec<[Option<Place>; 2]>,
    /// When it was last used, for choosing what makes room.
    used: u64,
    /// It is in the hands of others and stays where it is.
    pinned: u32,
}

#[derive(Clone)]
struct Segment {
    start: u64,
    end: u64,
    /// One bit for each place that holds the value, or will when `writer` is done.
    valid: u32,
    /// All zeros, though no place holds them yet.
    zero: bool,
    writer: Option<Arc<Job>>,
    readers: SmallVec<[Arc<Job>; 2]>,
    lost: Option<Error>,
}

struct Place {
    memory: PlaceMemory,
    /// The latest work that uses it, one for each device and queue.
    users: SmallVec<[Arc<Job>; 2]>,
    /// The latest move to it.
    moved: Option<Ticket>,
}

enum PlaceMemory {
    /// With the handles of devices that work on it.
    Host(Arc<HostMemory>, SmallVec<[(Arc<Device>, Buffer); 1]>),
    Device(Arc<Device>, Block),
}

/// What a launch has to come after, gathered from its arrays.
#[derive(Default)]
pub(crate) struct Deps {
    pub(crate) after: SmallVec<[Ticket; 8]>,
    pub(crate) parents: SmallVec<[Arc<Job>; 4]>,
    /// The queue of what it continues.
    pub(crate) queue: Option<u32>,
    pub(crate) moved_bytes: u64,
    pub(crate) move_ns: u64,
    pub(crate) deadline: Option<Instant>,
    /// What is ready for this work stays where it is until the work is known.
    pins: SmallVec<[Arc<Storage>; 8]>,
}

impl Drop for Deps {
    fn drop(&mut self) {
        for storage in &self.pins {
            storage.lock().pinned -= 1;
        }
    }
}

impl Deps {
    /// Work that gives up at a deadline.
    pub(crate) fn until(deadline: Option<Instant>) -> Deps {
        let mut deps = Deps::default();
        deps.deadline = deadline;
        deps
    }

    fn pin(&mut self, storage: &Arc<Storage>, state: &mut State) {
        state.pinned += 1;
        self.pins.push(storage.clone());
    }

    fn come_after(&mut self, device: &Device, job: &Job) {
        if job.device.id == device.id && !job.is_known_over() {
            self.after_ticket(job.ticket);
            self.queue = Some(job.ticket.queue);
        }
    }

    fn after_ticket(&mut self, ticket: Ticket) {
        match self.after.iter_mut().find(|known| known.queue == ticket.queue) {
            Some(known) => known.number = known.number.max(ticket.number),
            None => self.after.push(ticket),
        }
    }

    fn order(&self, queue: u32) -> Order<'_> {
        Order { queue, after: &self.after, deadline: self.deadline }
    }

    fn wait_for(&self, job: &Job) -> Result<(), Error> {
        if job.wait(self.deadline)? { Ok(()) } else { Err(late()) }
    }
}

fn late() -> Error {
    Diagnostic::new(&codes::backend::TIMEOUT, "the work that this needs was not done in time").into()
}

/// Keeps the latest job of each queue.
fn remember(jobs: &mut SmallVec<[Arc<Job>; 2]>, job: &Arc<Job>) {
    let same = |known: &Arc<Job>| known.ticket.queue == job.ticket.queue && known.device.id == job.device.id;
    match jobs.iter_mut().find(|known| same(known)) {
        Some(known) => *known = job.clone(),
        None => {
            jobs.retain(|known| !known.is_known_over());
            jobs.push(job.clone());
        }
    }
}

impl Storage {
    /// Zeros, which take no memory yet.
    pub(crate) fn zeros(engine: &Arc<Inner>, bytes: u64) -> Arc<Storage> {
        Storage::new(engine, bytes, SmallVec::new(), 0, true)
    }

    /// Memory of the host that holds the value.
    pub(crate) fn of_host(engine: &Arc<Inner>, memory: Arc<HostMemory>, bytes: u64) -> Arc<Storage> {
        let place = Place { memory: PlaceMemory::Host(memory, SmallVec::new()), users: SmallVec::new(), moved: None };
        Storage::new(engine, bytes, SmallVec::from_iter([Some(place)]), 1, false)
    }

    fn new(
        engine: &Arc<Inner>,
        bytes: u64,
        places: SmallVec<[Option<Place>; 2]>,
        valid: u32,
        zero: bool,
    ) -> Arc<Storage> {
        let segment = Segment { start: 0, end: bytes, valid, zero, writer: None, readers: SmallVec::new(), lost: None };
        let state = State { segments: SmallVec::from_iter([segment]), places, used: engine.tick(), pinned: 0 };
        let storage =
            Arc::new(Storage { engine: engine.clone(), bytes, label: Mutex::new(None), state: Mutex::new(state) });
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
        lock(&self.state)
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
                deps.pin(self, &mut state);
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
                    if !self.engine.make_room(device, self)? {
                        return Err(self.engine.name_holders(device, error));
                    }
                }
                other => {
                    let binding = other?;
                    deps.pin(self, &mut state);
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
        for index in state.indices(range) {
            let segment = &state.segments[index];
            if segment.valid & bit == 0 && write {
                // What another version left here may still be in use.
                let users = state.users(place);
                for user in &users {
                    deps.come_after(device, user);
                    if place == Device::HOST && user.device.id != device.id {
                        deps.wait_for_end(user)?;
                    }
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
                    if place == Device::HOST && reader.device.place == place && reader.device.id != device.id {
                        deps.wait_for_end(reader)?;
                    }
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

    /// Allocates the place where a device works.
    fn ensure_place(&self, state: &mut State, device: &Arc<Device>) -> Result<(), Error> {
        let place = device.place;
        if state.places.len() <= place {
            state.places.resize_with(place + 1, || None);
        }
        if state.places[place].is_none() {
            let memory = match place {
                Device::HOST => PlaceMemory::Host(self.engine.host.take(self.bytes, false)?, SmallVec::new()),
                _ => PlaceMemory::Device(device.clone(), device.memory.take(self.bytes)?),
            };
            state.places[place] = Some(Place { memory, users: SmallVec::new(), moved: None });
        }
        if let Some(Place { memory: PlaceMemory::Host(memory, adopted), .. }) = &mut state.places[place]
            && device.backend.capabilities().resident
            && !adopted.iter().any(|(known, _)| known.id == device.id)
        {
            let buffer = device.backend.adopt(memory)?;
            adopted.push((device.clone(), buffer));
        }
        Ok(())
    }

    /// Makes copies of a range at the place of a device, from wherever it is. The segments end at the range's ends.
    fn bring(&self, state: &mut State, device: &Arc<Device>, range: &Range<u64>, deps: &mut Deps) -> Result<(), Error> {
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
                self.upload(state, device, start, end, deps)?;
                moved += end - start;
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
    fn bring_home(&self, state: &mut State, index: usize, deps: &mut Deps) -> Result<(), Error> {
        let Segment { start, end, valid, writer, .. } = state.segments[index].clone();
        if valid & 1 << Device::HOST != 0 {
            return Ok(());
        }
        if let Some(writer) = &writer {
            deps.wait_for(writer)?;
        }
        if state.places[Device::HOST].is_none() {
            let memory = PlaceMemory::Host(self.engine.host.take(self.bytes, false)?, SmallVec::new());
            state.places[Device::HOST] = Some(Place { memory, users: SmallVec::new(), moved: None });
        }
        for user in &state.users(Device::HOST) {
            deps.wait_for_end(user)?;
        }
        let Some(PlaceMemory::Host(memory, _)) = state.places[Device::HOST].as_ref().map(|place| &place.memory) else {
            return Err(gone());
        };
        let mut bytes = HostBytes::new(memory, start as usize, (end - start) as usize);
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
    fn download(
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

    fn upload(
        &self,
        state: &mut State,
        device: &Arc<Device>,
        start: u64,
        end: u64,
        deps: &mut Deps,
    ) -> Result<(), Error> {
        state.come_after_all(device, deps);
        let Some(PlaceMemory::Host(memory, _)) = state.places[Device::HOST].as_ref().map(|place| &place.memory) else {
            return Err(gone());
        };
        let bytes = HostBytes::new(memory, start as usize, (end - start) as usize);
        let queue = deps.queue.unwrap_or_else(|| device.fresh_queue());
        let to = state.binding(device, &(start..end))?;
        let ticket = device.backend.upload(&to.buffer, to.offset, bytes.as_ref(), &deps.order(queue))?;
        self.engine.metrics.add(Counter::BytesUploaded, end - start);
        deps.queue.get_or_insert(queue);
        deps.after_ticket(ticket);
        state.moved_to(device.place, ticket);
        Ok(())
    }

    fn clear(
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
            if let Some(Place { memory: PlaceMemory::Host(memory, _), .. }) = &state.places[Device::HOST] {
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

    /// Remembers what was launched on a range.
    pub(crate) fn launched(&self, job: &Arc<Job>, range: &Range<u64>, write: bool) {
        let mut state = self.lock();
        let place = job.device.place;
        if let Some(Some(place)) = state.places.get_mut(place) {
            remember(&mut place.users, job);
        }
        if write {
            state.split(range);
            for index in state.indices(range) {
                let segment = &mut state.segments[index];
                segment.valid = 1 << place;
                segment.zero = false;
                segment.lost = None;
                segment.readers.clear();
                segment.writer = Some(job.clone());
            }
            state.join();
        } else {
            for index in state.indices(range) {
                remember(&mut state.segments[index].readers, job);
            }
        }
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
                match state.places[Device::HOST].as_ref().map(|place| &place.memory) {
                    Some(PlaceMemory::Host(memory, _)) => memory.copy_to(from as usize, part),
                    _ => return Err(gone()),
                }
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
        match state.places.get(Device::HOST).and_then(Option::as_ref).map(|place| &place.memory) {
            Some(PlaceMemory::Host(memory, _)) => {
                HostBytes::new(memory, range.start as usize, (range.end - range.start) as usize).as_ref() == expected
            }
            _ => false,
        }
    }

    /// Refuses a range that is known to be lost.
    pub(crate) fn check_lost(&self, range: &Range<u64>) -> Result<(), Error> {
        self.lock().check_lost(range)
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
        if state.places.is_empty() {
            state.places.push(None);
        }
        if state.places[Device::HOST].is_none() {
            let memory = PlaceMemory::Host(self.engine.host.take(self.bytes, false)?, SmallVec::new());
            state.places[Device::HOST] = Some(Place { memory, users: SmallVec::new(), moved: None });
        }
        for user in &state.users(Device::HOST) {
            deps.wait_for_end(user)?;
        }
        let Some(PlaceMemory::Host(memory, _)) = state.places[Device::HOST].as_ref().map(|place| &place.memory) else {
            return Err(gone());
        };
        let memory = memory.clone();
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
        let Ok(mut state) = self.state.try_lock() else { return Ok(0) };
        let state = &mut *state;
        let place = device.place;
        let Some(Some(there)) = state.places.get(place) else { return Ok(0) };
        let busy = |jobs: &[Arc<Job>]| jobs.iter().any(|job| !job.is_over());
        if place == Device::HOST || state.pinned > 0 || busy(&there.users) {
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
        let state = self.state.try_lock().ok()?;
        state.places.get(device.place)?.as_ref().map(|_| state.used)
    }

    /// Work under way that keeps the copy on a device from making room.
    pub(crate) fn user_on(&self, device: &Device) -> Option<Arc<Job>> {
        let mut state = self.state.try_lock().ok()?;
        if state.pinned > 0 {
            return None;
        }
        state.users(device.place).first().cloned()
    }
}

impl Deps {
    /// Waits until the device is done with a job, however it ended.
    fn wait_for_end(&self, job: &Job) -> Result<(), Error> {
        match job.wait(self.deadline) {
            Ok(false) => Err(late()),
            Ok(true) | Err(_) => Ok(()),
        }
    }
}

fn gone() -> Error {
    Diagnostic::new(&codes::engine::LOST, "no place holds the value any more").into()
}

impl State {
    fn indices(&self, range: &Range<u64>) -> Range<usize> {
        if self.segments.len() == 1 {
            return 0..1;
        }
        let first = self.segments.partition_point(|segment| segment.end <= range.start);
        let last = self.segments.partition_point(|segment| segment.start < range.end);
        first..last.max(first)
    }

    fn within(&self, range: &Range<u64>) -> impl Iterator<Item = &Segment> {
        self.segments[self.indices(range)].iter()
    }

    /// The value is there, or is zeros, which are nowhere else either.
    fn is_at(&self, range: &Range<u64>, bit: u32) -> bool {
        self.within(range).all(|segment| segment.valid & bit != 0 || segment.zero)
    }

    fn is_whole_at(&self, range: &Range<u64>, bit: u32) -> bool {
        self.within(range).all(|segment| segment.valid & bit != 0)
    }

    fn check_lost(&self, range: &Range<u64>) -> Result<(), Error> {
        for segment in self.within(range) {
            if let Some(error) = &segment.lost {
                return Err(error.clone());
            }
            if let Some(writer) = &segment.writer
                && let Some(Err(error)) = writer.poll()
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Makes segments end at the ends of a range.
    fn split(&mut self, range: &Range<u64>) {
        for at in [range.start, range.end] {
            let index = self.segments.partition_point(|segment| segment.end <= at);
            let Some(segment) = self.segments.get_mut(index) else { continue };
            if segment.start < at && at < segment.end {
                let mut behind = segment.clone();
                segment.end = at;
                behind.start = at;
                self.segments.insert(index + 1, behind);
            }
        }
    }

    /// Puts neighbours together that have come to have the same story.
    fn join(&mut self) {
        if self.segments.len() == 1 {
            return;
        }
        let same = |a: &Segment, b: &Segment| {
            let writer = match (&a.writer, &b.writer) {
                (Some(a), Some(b)) => Arc::ptr_eq(a, b),
                (None, None) => true,
                _ => false,
            };
            writer
                && a.valid == b.valid
                && a.zero == b.zero
                && a.readers.is_empty()
                && b.readers.is_empty()
                && a.lost.is_none()
                && b.lost.is_none()
        };
        let mut joined: SmallVec<[Segment; 1]> = SmallVec::new();
        for segment in self.segments.drain(..) {
            match joined.last_mut() {
                Some(last) if same(last, &segment) => last.end = segment.end,
                _ => joined.push(segment),
            }
        }
        self.segments = joined;
    }

    fn users(&mut self, place: usize) -> SmallVec<[Arc<Job>; 2]> {
        match self.places.get_mut(place) {
            Some(Some(place)) => {
                place.users.retain(|user| !user.is_known_over());
                place.users.clone()
            }
            _ => SmallVec::new(),
        }
    }

    /// A move comes after all that uses the place, earlier moves among it.
    fn come_after_all(&mut self, device: &Device, deps: &mut Deps) {
        for user in &self.users(device.place) {
            deps.come_after(device, user);
        }
        if let Some(Some(Place { moved: Some(moved), .. })) = self.places.get(device.place)
            && !device.backend.is_over(*moved)
        {
            deps.after_ticket(*moved);
        }
    }

    fn moved_to(&mut self, place: usize, ticket: Ticket) {
        if let Some(Some(place)) = self.places.get_mut(place) {
            place.moved = Some(ticket);
        }
    }

    fn binding(&self, device: &Device, range: &Range<u64>) -> Result<Binding, Error> {
        let bytes = range.end - range.start;
        match self.places.get(device.place).and_then(Option::as_ref).map(|place| &place.memory) {
            Some(PlaceMemory::Device(_, block)) => Ok(block.part(range.start, bytes)),
            Some(PlaceMemory::Host(_, adopted)) => match adopted.iter().find(|(known, _)| known.id == device.id) {
                Some((_, buffer)) => Ok(Binding { buffer: buffer.clone(), offset: range.start, bytes }),
                None => Err(gone()),
            },
            None => Err(gone()),
        }
    }
}

impl Place {
    /// Gives memory back; what work under way uses stays until that is over.
    fn give_back(self, engine: &Inner) {
        match self.memory {
            PlaceMemory::Host(memory, adopted) => {
                drop(adopted);
                engine.host.give(memory);
            }
            PlaceMemory::Device(device, block) => {
                let users = self.users.iter().filter(|user| !user.is_known_over()).map(|user| user.ticket);
                let users = users.chain(self.moved).collect();
                device.memory.give(block, users);
            }
        }
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        for place in state.places.drain(..).flatten() {
            place.give_back(&self.engine);
        }
    }
}
