//! Copies of buffers that a launch only adds to, one for each thread that works on it: so nobody waits for a word that another has. What
//! they came to is added to the buffers when all workgroups are done.

use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Release};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use vyre_driver::backend::HostMemory;

use crate::memory::Span;

/// Bytes of all threads' copies that a launch may take, and that are kept for the next.
const MOST_BYTES: usize = 64 << 20;
const KEPT_BYTES: usize = 8 << 20;

/// Additions for each word of a thread's copy below which clearing and reading it costs more than it gains.
const ADDITIONS_FOR_A_WORD: u64 = 2;

/// Bytes that are put together at once.
const PART: usize = 16 << 10;

/// Where the copies of a launch's buffers lie in those of a thread.
pub(crate) fn layout(buffers: &[Span], copied: &[u32]) -> impl Iterator<Item = (usize, usize)> {
    let mut end = 0;
    copied.iter().map(move |&index| {
        let at = end;
        end += buffers[index as usize].bytes().next_multiple_of(64);
        (index as usize, at)
    })
}

/// Bytes of the copies of each of so many threads, where so many additions are worth them.
pub(crate) fn worth(buffers: &[Span], copied: &[u32], additions: u64, threads: usize) -> Option<usize> {
    let bytes = layout(buffers, copied).last().map(|(index, at)| at + buffers[index].bytes().next_multiple_of(64))?;
    let all = bytes.checked_mul(threads).filter(|&all| all <= MOST_BYTES)?;
    let gains = (all as u64 / 4).saturating_mul(ADDITIONS_FOR_A_WORD) <= additions;
    (threads > 1 && bytes > 0 && gains).then_some(bytes)
}

/// A copy that one thread adds to.
#[derive(Debug)]
pub(crate) struct Copy {
    owner: ThreadId,
    memory: HostMemory,
}

impl Copy {
    /// The buffers of a launch with this in the place of those that are copied.
    pub(crate) fn instead_of(&self, buffers: &[Span], copied: &[u32]) -> Vec<Span> {
        let mut instead = buffers.to_vec();
        for (index, at) in layout(buffers, copied) {
            instead[index] = Span::of(&self.memory, at, buffers[index].bytes());
        }
        instead
    }
}

#[derive(Debug, Default)]
struct Copies {
    /// Added to by the launch at hand.
    used: Vec<Copy>,
    /// All zero.
    spare: Vec<HostMemory>,
}

/// The copies of the launches of one piece of work, one launch after the other.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    copies: Mutex<Copies>,
    /// Parts of the launch at hand that are put together.
    done: AtomicU64,
}

impl Sums {
    fn copies(&self) -> MutexGuard<'_, Copies> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy of so many bytes for this thread, the one that it had before where it had one; `None` where there is no memory.
    pub(crate) fn take(&self, bytes: usize) -> Option<Copy> {
        let owner = std::thread::current().id();
        let mut copies = self.copies();
        if let Some(at) = copies.used.iter().position(|copy| copy.owner == owner) {
            return Some(copies.used.swap_remove(at));
        }
        while let Some(memory) = copies.spare.pop() {
            if memory.bytes() >= bytes {
                return Some(Copy { owner, memory });
            }
        }
        drop(copies);
        HostMemory::new(bytes).map(|memory| Copy { owner, memory })
    }

    /// A part is done; others of the same thread go on with its copy.
    pub(crate) fn give_back(&self, copy: Copy) {
        self.copies().used.push(copy);
    }

    /// Parts in which copies of so many bytes are put together.
    pub(crate) fn parts(bytes: usize) -> u64 {
        bytes.div_ceil(PART) as u64
    }

    /// Adds a part of what all threads have to the buffers; the last one makes the copies free for another launch.
    pub(crate) fn put_together(&self, part: u64, bytes: usize, buffers: &[Span], copied: &[u32]) {
        let spans: Vec<Span> = self.copies().used.iter().map(|copy| Span::of(&copy.memory, 0, bytes)).collect();
        let first = part as usize * PART;
        let end = (first + PART).min(bytes);
        let mut sums = [0; PART / 4];
        for (index, at) in layout(buffers, copied) {
            let (from, to) = (first.max(at), end.min(at + buffers[index].bytes() / 4 * 4));
            if from >= to {
                continue;
            }
            let sums = &mut sums[..(to - from) / 4];
            sums.fill(0);
            for span in &spans {
                span.take_words(from, sums);
            }
            buffers[index].add_words(from - at, sums);
        }
        if self.done.fetch_add(1, AcqRel) + 1 == Self::parts(bytes) {
            self.done.store(0, Release);
            let mut copies = self.copies();
            let used = std::mem::take(&mut copies.used);
            let kept = KEPT_BYTES / bytes.max(1);
            copies.spare.extend(used.into_iter().map(|copy| copy.memory));
            copies.spare.truncate(kept);
        }
    }

    /// The work is over. What was not put together, because it was stopped, is lost with it.
    pub(crate) fn clear(&mut self) {
        *self.done.get_mut() = 0;
        self.copies.get_mut().unwrap_or_else(PoisonError::into_inner).used.clear();
    }
}
