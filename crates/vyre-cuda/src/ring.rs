//! Pinned memory for small uploads behind work that is not over: from ordinary memory the driver may wait for that work.

use std::collections::VecDeque;

use crate::api::{Api, CudaError, Pinned};

const BYTES: usize = 256 << 10;
const LINE: usize = 64;

/// Parts are taken one behind another and come back in the same order.
pub(crate) struct Ring {
    /// `None` when it is closed.
    memory: Option<Pinned>,
    taken: VecDeque<Part>,
    /// Behind the last part.
    next: usize,
}

struct Part {
    /// The upload that reads it.
    number: u64,
    start: usize,
}

impl Ring {
    /// Pinned at once: drivers may wait for what runs before they pin more.
    pub(crate) fn open(api: &Api) -> Result<Ring, CudaError> {
        Ok(Ring { memory: Some(api.pin(BYTES)?), taken: VecDeque::new(), next: 0 })
    }

    /// Copies bytes, and says where they are for the upload of this number, once there is room; uploads up to another are over.
    pub(crate) fn put(&mut self, bytes: &[u8], number: u64, over: u64) -> Option<usize> {
        while self.taken.front().is_some_and(|part| part.number <= over) {
            self.taken.pop_front();
        }
        let start = self.room(bytes.len().next_multiple_of(LINE))?;
        let memory = self.memory.as_mut()?;
        memory.write_at(start, bytes);
        self.taken.push_back(Part { number, start });
        self.next = start + bytes.len().next_multiple_of(LINE);
        Some(memory.address() + start)
    }

    /// Where so many bytes in a row are free. The end of the last part never touches the start of the first from behind.
    fn room(&self, bytes: usize) -> Option<usize> {
        let Some(first) = self.taken.front() else { return (bytes <= BYTES).then_some(0) };
        if self.next < first.start {
            return (self.next + bytes < first.start).then_some(self.next);
        }
        if self.next + bytes <= BYTES { Some(self.next) } else { (bytes < first.start).then_some(0) }
    }

    /// The upload whose end makes room next.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.taken.front().map(|part| part.number)
    }

    pub(crate) fn close(&mut self, api: &Api) -> Result<(), CudaError> {
        self.memory.take().map_or(Ok(()), |memory| memory.free(api))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_are_in_use_are_never_given_again() {
        let mut ring = Ring { memory: None, taken: VecDeque::new(), next: 0 };
        let (mut number, mut over, mut state) = (0u64, 0u64, 1u64);
        let mut live: VecDeque<(u64, usize, usize)> = VecDeque::new();
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let bytes = (((state >> 40) as usize % 65_536) + 1).next_multiple_of(LINE);
            match ring.room(bytes) {
                Some(start) => {
                    assert!(start + bytes <= BYTES);
                    let apart =
                        |&(_, other, size): &(u64, usize, usize)| start + bytes <= other || other + size <= start;
                    assert!(live.iter().all(apart), "{bytes} bytes at {start} are in use");
                    number += 1;
                    ring.taken.push_back(Part { number, start });
                    ring.next = start + bytes;
                    live.push_back((number, start, bytes));
                }
                None => over += 1 + (state >> 60),
            }
            over = over.min(number);
            while ring.taken.front().is_some_and(|part| part.number <= over) {
                ring.taken.pop_front();
                live.pop_front();
            }
        }
        assert!(number > 10_000, "there is hardly ever room");
    }
}
