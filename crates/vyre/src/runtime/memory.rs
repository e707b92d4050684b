//! The memory of one device: large pieces from the backend, cut into blocks for arrays.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde::Serialize;
use smallvec::SmallVec;
use vyre_driver::backend::{Binding, Buffer, Ticket};
use vyre_driver::{BackendError, VyreBackend};
use vyre_spec::{Diagnostic, codes};

use super::Device;
use crate::Error;
use crate::engine::lock;

/// Memory of a device as its engine uses it, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MemoryUse {
    /// The backend's name, or `host`.
    pub device: String,
    /// In arrays and in work that is under way.
    pub used: u64,
    /// Taken from the device and kept for later.
    pub idle: u64,
    /// Most that may be taken from the device, where that is limited.
    pub budget: Option<u64>,
    /// The largest arrays, with their labels or their types.
    pub holders: Vec<(String, u64)>,
}

/// Part of a device's memory, on loan.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) buffer: Buffer,
    pub(crate) offset: u64,
    bytes: u64,
    /// The slab that it is cut from; `None` where it is a buffer of its own.
    slab: Option<u64>,
    foreign: bool,
}

impl Block {
    /// A buffer of somebody else's. It is not counted, and goes back to nobody but its owner.
    #[cfg(any(feature = "cuda", feature = "wgpu"))]
    pub(crate) fn foreign(buffer: Buffer) -> Block {
        Block { bytes: buffer.bytes(), buffer, offset: 0, slab: None, foreign: true }
    }

    /// It is somebody else's, and stays where it is.
    pub(crate) fn is_foreign(&self) -> bool {
        self.foreign
    }

    /// A part of the block.
    pub(crate) fn part(&self, start: u64, bytes: u64) -> Binding {
        Binding { buffer: self.buffer.clone(), offset: self.offset + start, bytes }
    }
}

/// Device memory of one launch, which goes back when it is dropped, however the launch ends.
pub(crate) struct Loan {
    device: Arc<Device>,
    block: Option<Block>,
    /// Work that uses it though the launch may never come.
    users: SmallVec<[Ticket; 4]>,
}

impl Loan {
    pub(crate) fn new(device: &Arc<Device>, block: Block) -> Loan {
        Loan { device: device.clone(), block: Some(block), users: SmallVec::new() }
    }

    /// The first bytes of it.
    pub(crate) fn binding(&self, bytes: u64) -> Binding {
        self.block.as_ref().expect("it is there until the loan is dropped").part(0, bytes)
    }

    /// Keeps the memory from others until this work is over.
    pub(crate) fn used_by(&mut self, ticket: Ticket) {
        self.users.push(ticket);
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.device.memory.give(block, std::mem::take(&mut self.users));
        }
    }
}

/// The pool of one device.
pub(crate) struct Memory {
    backend: Arc<dyn VyreBackend>,
    budget: Option<u64>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By number, so that a slab can go without renaming the others.
    slabs: BTreeMap<u64, Slab>,
    next_slab: u64,
    /// Whole buffers that are idle, by size.
    whole: BTreeMap<u64, Vec<Buffer>>,
    /// Given back, but work that is under way uses them.
    parked: Vec<(Block, SmallVec<[Ticket; 4]>)>,
    /// Bytes that the backend has given.
    held: u64,
    used: u64,
}

struct Slab {
    buffer: Buffer,
    /// Free parts, by offset.
    free: BTreeMap<u64, u64>,
}

/// Blocks start at multiples of this, which suits every device.
const ALIGN: u64 = 256;
const SLAB: u64 = 32 << 20;
/// Blocks up to this size are cut from slabs.
const CUT: u64 = 4 << 20;

impl Memory {
    pub(crate) fn new(backend: Arc<dyn VyreBackend>, budget: Option<u64>) -> Memory {
        Memory { backend, budget, state: Mutex::default() }
    }

    /// A block with any contents. When the device is full, what is idle is freed and the exact size is tried again.
    pub(crate) fn take(&self, bytes: u64) -> Result<Block, Error> {
        let size = bytes.max(1).checked_next_multiple_of(ALIGN).ok_or_else(|| self.full(bytes))?;
        let mut state = lock(&self.state);
        self.reclaim(&mut state);
        let block = if size <= CUT && self.backend.capabilities().shares_buffers {
            self.cut(&mut state, size)
        } else {
            self.whole(&mut state, if self.backend.capabilities().shares_buffers { size } else { bytes.max(1) })
        };
        let block = block.map_err(|error| match error.code() == codes::backend::OUT_OF_MEMORY.id {
            true => self.full(bytes),
            false => error.into(),
        })?;
        state.used += block.bytes;
        Ok(block)
    }

    fn full(&self, bytes: u64) -> Error {
        let budget = self.budget.map_or(String::new(), |budget| format!(" within its budget of {budget} bytes"));
        let message = format!("`{}` has no room for {bytes} bytes{budget}", self.backend.id());
        Diagnostic::new(&codes::backend::OUT_OF_MEMORY, message).into()
    }

    fn cut(&self, state: &mut State, size: u64) -> Result<Block, BackendError> {
        let found = state.slabs.iter().find_map(|(&number, slab)| {
            let fits = slab.free.iter().filter(|(_, free)| **free >= size).min_by_key(|(_, free)| **free);
            fits.map(|(&offset, _)| (number, offset))
        });
        let (number, offset) = match found {
            Some(found) => found,
            None => {
                // A device that has no room for another slab may have it for this block.
                let bytes = if self.within(state, SLAB) { SLAB } else { size };
                let buffer = match self.allocate(state, bytes) {
                    Err(_) if bytes > size => self.allocate(state, size)?,
                    other => other?,
                };
                let number = state.next_slab;
                state.next_slab += 1;
                let free = BTreeMap::from([(0, buffer.bytes())]);
                state.slabs.insert(number, Slab { buffer, free });
                (number, 0)
            }
        };
        let slab = state.slabs.get_mut(&number).expect("it was found or made above");
        let free = slab.free.remove(&offset).expect("it was found above");
        if free > size {
            slab.free.insert(offset + size, free - size);
        }
        Ok(Block { buffer: slab.buffer.clone(), offset, bytes: size, slab: Some(number), foreign: false })
    }

    fn whole(&self, state: &mut State, size: u64) -> Result<Block, BackendError> {
        let fits = state.whole.range(size..=size + size / 8).next().map(|(&kept, _)| kept);
        let buffer = match fits.and_then(|kept| state.whole.get_mut(&kept)).and_then(Vec::pop) {
            Some(buffer) => {
                state.whole.retain(|_, list| !list.is_empty());
                buffer
            }
            None => self.allocate(state, size)?,
        };
        Ok(Block { bytes: buffer.bytes(), buffer, offset: 0, slab: None, foreign: false })
    }

    fn within(&self, state: &State, bytes: u64) -> bool {
        self.budget.is_none_or(|budget| state.held.saturating_add(bytes) <= budget)
    }

    fn allocate(&self, state: &mut State, bytes: u64) -> Result<Buffer, BackendError> {
        let attempt = |state: &State| match self.within(state, bytes) {
            true => self.backend.allocate(bytes),
            false => Err(BackendError::with_code(&codes::backend::OUT_OF_MEMORY, "the budget is spent")),
        };
        let buffer = match attempt(state) {
            Err(error) if error.code() == codes::backend::OUT_OF_MEMORY.id && free_idle(state) > 0 => attempt(state)?,
            other => other?,
        };
        state.held += buffer.bytes();
        Ok(buffer)
    }

    /// Takes a block back; it is used again when the work that these tickets name is over.
    pub(crate) fn give(&self, block: Block, users: SmallVec<[Ticket; 4]>) {
        if block.foreign {
            // Its backend keeps it until the work is over that uses it.
            return;
        }
        let mut state = lock(&self.state);
        state.parked.push((block, users));
        self.reclaim(&mut state);
    }

    fn reclaim(&self, state: &mut State) {
        // Whether work failed does not matter here, only whether it is over.
        let over = |ticket: &Ticket| !matches!(self.backend.poll(*ticket), Ok(None));
        let mut at = 0;
        while at < state.parked.len() {
            if state.parked[at].1.iter().all(over) {
                let (block, _) = state.parked.swap_remove(at);
                state.used -= block.bytes;
                match block.slab {
                    Some(number) => put_back(state, number, &block),
                    None => state.whole.entry(block.bytes).or_default().push(block.buffer),
                }
            } else {
                at += 1;
            }
        }
    }

    /// Frees what is idle.
    pub(crate) fn trim(&self) -> u64 {
        let mut state = lock(&self.state);
        self.reclaim(&mut state);
        free_idle(&mut state)
    }

    /// Bytes in use and bytes that are idle.
    pub(crate) fn usage(&self) -> [u64; 2] {
        let mut state = lock(&self.state);
        self.reclaim(&mut state);
        [state.used, state.held - state.used.min(state.held)]
    }

    pub(crate) fn budget(&self) -> Option<u64> {
        self.budget
    }

    /// Something that was given back is still in use by work under way.
    pub(crate) fn has_parked(&self) -> Option<Ticket> {
        lock(&self.state).parked.iter().flat_map(|(_, users)| users.iter()).copied().next()
    }
}

fn put_back(state: &mut State, number: u64, block: &Block) {
    let Some(slab) = state.slabs.get_mut(&number) else { return };
    let (mut offset, mut size) = (block.offset, block.bytes);
    if let Some((&before, &free)) = slab.free.range(..offset).next_back()
        && before + free == offset
    {
        slab.free.remove(&before);
        (offset, size) = (before, size + free);
    }
    if let Some(free) = slab.free.remove(&(offset + size)) {
        size += free;
    }
    slab.free.insert(offset, size);
}

fn free_idle(state: &mut State) -> u64 {
    let before = state.held;
    let State { slabs, whole, held, .. } = state;
    slabs.retain(|_, slab| {
        let idle = slab.free.get(&0) == Some(&slab.buffer.bytes());
        *held -= if idle { slab.buffer.bytes() } else { 0 };
        !idle
    });
    *held -= whole.iter().map(|(size, list)| size * list.len() as u64).sum::<u64>();
    whole.clear();
    before - *held
}

#[cfg(test)]
mod tests {
    use vyre_driver::backend::NullBackend;

    use super::*;

    #[test]
    fn blocks_are_cut_put_back_and_joined() {
        let memory = Memory::new(Arc::new(NullBackend::new()), Some(64 << 20));
        let blocks: Vec<Block> = (0..4).map(|_| memory.take(1000).unwrap()).collect();
        assert_eq!(blocks.iter().map(|block| block.offset).collect::<Vec<_>>(), [0, 1024, 2048, 3072]);
        assert_eq!(memory.usage()[0], 4096);
        for block in blocks.into_iter().rev() {
            memory.give(block, SmallVec::new());
        }
        assert_eq!(memory.usage(), [0, SLAB]);
        let again = memory.take(3 << 20).unwrap();
        assert_eq!(again.offset, 0, "the parts were joined");
        memory.give(again, SmallVec::new());
        assert_eq!(memory.trim(), SLAB);
    }

    #[test]
    fn large_blocks_have_their_exact_size_and_keep_to_the_budget() {
        let memory = Memory::new(Arc::new(NullBackend::new()), Some(100 << 20));
        let large = memory.take(60 << 20).unwrap();
        assert_eq!(memory.usage(), [60 << 20, 0]);
        let error = memory.take(50 << 20).unwrap_err();
        assert_eq!(error.code(), codes::backend::OUT_OF_MEMORY.id);
        let small = memory.take(100).unwrap();
        memory.give(small, SmallVec::new());
        memory.give(large, SmallVec::new());
        // What is idle makes room.
        assert!(memory.take(90 << 20).is_ok());
    }
}
