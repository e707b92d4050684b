//! What is known of a value: its segments and its places.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;
use vyre_driver::backend::{Binding, Buffer, HostMemory, Ticket};

use super::super::deps::Deps;
use super::super::{Block, Device, Job};
use super::gone;
use crate::Error;
use crate::engine::Inner;

pub(super) struct State {
    /// In order, without gaps, at least one.
    pub(super) segments: SmallVec<[Segment; 1]>,
    /// By the number of the place.
    pub(super) places: SmallVec<[Option<Place>; 2]>,
    /// When it was last used, for choosing what makes room.
    pub(super) used: u64,
    /// It is in the hands of others and stays where it is.
    pub(super) pinned: u32,
}

#[derive(Clone)]
pub(super) struct Segment {
    pub(super) start: u64,
    pub(super) end: u64,
    /// One bit for each place that holds the value, or will when `writer` is done.
    pub(super) valid: u32,
    /// All zeros, though no place holds them yet.
    pub(super) zero: bool,
    pub(super) writer: Option<Arc<Job>>,
    pub(super) readers: SmallVec<[Arc<Job>; 2]>,
    pub(super) lost: Option<Error>,
}

pub(super) struct Place {
    pub(super) memory: PlaceMemory,
    /// The latest work that uses it, one for each device and queue.
    pub(super) users: SmallVec<[Arc<Job>; 2]>,
    /// The latest move to it.
    pub(super) moved: Option<Ticket>,
}

pub(super) enum PlaceMemory {
    /// With the handles of devices that work on it.
    Host(Arc<HostMemory>, SmallVec<[(Arc<Device>, Buffer); 1]>),
    Device(Arc<Device>, Block),
}

impl State {
    pub(super) fn indices(&self, range: &Range<u64>) -> Range<usize> {
        if self.segments.len() == 1 {
            return 0..1;
        }
        let first = self.segments.partition_point(|segment| segment.end <= range.start);
        let last = self.segments.partition_point(|segment| segment.start < range.end);
        first..last.max(first)
    }

    pub(super) fn within(&self, range: &Range<u64>) -> impl Iterator<Item = &Segment> {
        self.segments[self.indices(range)].iter()
    }

    /// The value is there, or is zeros, which are nowhere else either.
    pub(super) fn is_at(&self, range: &Range<u64>, bit: u32) -> bool {
        self.within(range).all(|segment| segment.valid & bit != 0 || segment.zero)
    }

    pub(super) fn is_whole_at(&self, range: &Range<u64>, bit: u32) -> bool {
        self.within(range).all(|segment| segment.valid & bit != 0)
    }

    pub(super) fn check_lost(&self, range: &Range<u64>) -> Result<(), Error> {
        for segment in self.within(range) {
            if let Some(error) = &segment.lost {
                return Err(error.clone());
            }
            if let Some(writer) = &segment.writer
                && writer.is_known_over()
                && let Some(Err(error)) = writer.poll()
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Makes segments end at the ends of a range.
    pub(super) fn split(&mut self, range: &Range<u64>) {
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
    pub(super) fn join(&mut self) {
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

    /// Memory of the host, where the value has a place there.
    pub(super) fn host(&self) -> Option<&Arc<HostMemory>> {
        match self.places.get(Device::HOST)?.as_ref()?.memory {
            PlaceMemory::Host(ref memory, _) => Some(memory),
            PlaceMemory::Device(..) => None,
        }
    }

    /// Puts memory in a place that has none.
    pub(super) fn set_place(&mut self, place: usize, memory: PlaceMemory) {
        if self.places.len() <= place {
            self.places.resize_with(place + 1, || None);
        }
        self.places[place] = Some(Place { memory, users: SmallVec::new(), moved: None });
    }

    /// Remembers what was launched on a range.
    pub(super) fn launched(&mut self, job: &Arc<Job>, range: &Range<u64>, write: bool) {
        let place = job.device.place;
        self.used_by(place, job);
        if write
            && let [segment] = &mut self.segments[..]
            && segment.start == range.start
            && segment.end == range.end
        {
            segment.written(place, Some(job));
        } else if write {
            self.split(range);
            for index in self.indices(range) {
                self.segments[index].written(place, Some(job));
            }
            self.join();
        } else {
            for index in self.indices(range) {
                remember(&mut self.segments[index].readers, job);
            }
        }
    }

    /// A job uses a place, whose memory stays as it is until the job is over.
    pub(super) fn used_by(&mut self, place: usize, job: &Arc<Job>) {
        if let Some(Some(there)) = self.places.get_mut(place) {
            remember(&mut there.users, job);
        }
    }

    /// Other devices that copy from the host's memory, or work on it, and are not known to be done with it.
    pub(super) fn others_on_host<'a>(&'a self, device: &'a Arc<Device>) -> impl Iterator<Item = &'a Arc<Job>> {
        let users = self.places.get(Device::HOST).into_iter().flatten().flat_map(|place| &place.users);
        users.filter(move |user| !Arc::ptr_eq(&user.device, device) && !user.is_known_over())
    }

    pub(super) fn has_place(&self, place: usize) -> bool {
        self.places.get(place).is_some_and(Option::is_some)
    }

    pub(super) fn users(&mut self, place: usize) -> SmallVec<[Arc<Job>; 2]> {
        match self.places.get_mut(place) {
            Some(Some(place)) => {
                place.users.retain(|user| !user.is_known_over());
                place.users.clone()
            }
            _ => SmallVec::new(),
        }
    }

    /// A move comes after all that uses the place, earlier moves among it.
    pub(super) fn come_after_all(&mut self, device: &Device, deps: &mut Deps) {
        for user in &self.users(device.place) {
            deps.come_after(device, user);
        }
        if let Some(Some(Place { moved: Some(moved), .. })) = self.places.get(device.place)
            && !device.backend.is_over(*moved)
        {
            deps.after_ticket(*moved);
        }
    }

    pub(super) fn moved_to(&mut self, place: usize, ticket: Ticket) {
        if let Some(Some(place)) = self.places.get_mut(place) {
            place.moved = Some(ticket);
        }
    }

    pub(super) fn binding(&self, device: &Device, range: &Range<u64>) -> Result<Binding, Error> {
        let bytes = range.end - range.start;
        match self.places.get(device.place).and_then(Option::as_ref).map(|place| &place.memory) {
            Some(PlaceMemory::Device(_, block)) => Ok(block.part(range.start, bytes)),
            Some(PlaceMemory::Host(_, adopted)) => {
                match adopted.iter().find(|(known, _)| std::ptr::eq(&**known, device)) {
                    Some((_, buffer)) => Ok(Binding { buffer: buffer.clone(), offset: range.start, bytes }),
                    None => Err(gone()),
                }
            }
            None => Err(gone()),
        }
    }
}

impl Segment {
    /// Only this place holds the value now, or will when the job is done.
    pub(super) fn written(&mut self, place: usize, job: Option<&Arc<Job>>) {
        self.valid = 1 << place;
        self.zero = false;
        self.lost = None;
        self.readers.clear();
        self.writer = job.cloned();
    }
}

impl Place {
    /// Gives memory back; what work under way uses stays until that is over.
    pub(super) fn give_back(self, engine: &Inner) {
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

/// Keeps the latest job of each queue.
fn remember(jobs: &mut SmallVec<[Arc<Job>; 2]>, job: &Arc<Job>) {
    let same = |known: &Arc<Job>| known.ticket.queue == job.ticket.queue && Arc::ptr_eq(&known.device, &job.device);
    match jobs.iter_mut().find(|known| same(known)) {
        Some(known) => *known = job.clone(),
        None => {
            jobs.retain(|known| !known.is_known_over());
            jobs.push(job.clone());
        }
    }
}
