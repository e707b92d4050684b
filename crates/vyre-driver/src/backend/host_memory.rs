//! Memory of the host that kernels and copies work on through raw addresses.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes of a huge page on most machines.
const HUGE_PAGE: usize = 2 << 20;
/// Memory from this size on is in huge pages where the system gives them.
const LARGE: usize = 2 * HUGE_PAGE;

/// Memory in huge pages starts a multiple of this behind the start of one, another for each of so many that follow each other. Buffers
/// that all started alike would have the bytes that a kernel uses together, an input and the result at the same place, at the same place
/// of their huge pages: they would meet in the same banks of memory and sets of caches. A stencil of 4096 x 4096 takes 1650 µs on 16 cores
/// so, and 584 µs with 4160 bytes between its buffers.
const STAGGER: usize = 4096 + 64;
const STAGGERED: usize = 15;

/// Kernels read columns, gather, and stride over memory: with small pages each access can be a walk through the page tables, which
/// in a virtual machine are two. Systems give huge pages to those who ask before the memory is first touched.
#[cfg(target_os = "linux")]
fn ask_for_huge_pages(start: *mut u8, bytes: usize) {
    // A refusal costs nothing but speed. Only whole huge pages, so that nobody else's memory is meant.
    // SAFETY: the pages lie within memory that was just allocated, and the advice changes none of its contents.
    let _ = unsafe { libc::madvise(start.cast(), bytes / HUGE_PAGE * HUGE_PAGE, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn ask_for_huge_pages(_: *mut u8, _: usize) {}

/// Asks for huge pages for memory that is large and was not touched so far: to get it in small ones takes as long as several copies of it.
pub fn in_huge_pages(bytes: &mut [u8]) {
    let before = bytes.as_ptr().align_offset(HUGE_PAGE);
    if bytes.len() >= LARGE && before < bytes.len() {
        ask_for_huge_pages(bytes[before..].as_mut_ptr(), bytes.len() - before);
    }
}

/// Bytes of the host, aligned to a cache line, that live until their last owner is gone.
///
/// Several launches may work on parts of it at once, so nobody holds a Rust reference to the bytes: they are reached by copying in
/// and out, and by address. Who may touch which part when is decided by the order of the work (see [`Order`](super::Order)).
pub struct HostMemory {
    start: *mut u8,
    bytes: usize,
    /// How it is given back, and how far the start is behind that of the allocation; `None` where it belongs to somebody else.
    layout: Option<(Layout, usize)>,
    /// Dropped with it.
    owner: Option<Box<dyn Any + Send>>,
    zeros: Zeros,
}

/// What is known of the end of some memory, so that zeros need not be written where there are zeros.
struct Zeros {
    /// There were zeros from this byte on when nobody used the memory.
    from: AtomicUsize,
    /// How often somebody could write to it since then.
    writers: AtomicUsize,
    /// From where on there are zeros since then, as who wrote to it says.
    told: AtomicUsize,
}

impl Zeros {
    fn known(from: usize) -> Zeros {
        Zeros { from: AtomicUsize::new(from), writers: AtomicUsize::new(0), told: AtomicUsize::new(usize::MAX) }
    }
}

// SAFETY: the bytes are owned, or promised to outlive this by whoever made it; they have no thread of their own.
unsafe impl Send for HostMemory {}
// SAFETY: shared use goes through copies and raw addresses, whose users keep to the order of the work.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// Alignment of memory that is made here.
    pub const ALIGN: usize = 64;

    /// So many zero bytes; `None` when there is no memory for them.
    pub fn new(bytes: usize) -> Option<HostMemory> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let large = bytes >= LARGE && cfg!(target_os = "linux");
        let before = if large { NEXT.fetch_add(1, Relaxed) % STAGGERED * STAGGER } else { 0 };
        let align = if large { HUGE_PAGE } else { Self::ALIGN };
        let layout = Layout::from_size_align(bytes.max(1).checked_add(before)?, align).ok()?;
        // SAFETY: the size is not zero.
        let start = unsafe { if large { alloc(layout) } else { alloc_zeroed(layout) } };
        if start.is_null() {
            return None;
        }
        if large {
            ask_for_huge_pages(start, layout.size());
            // SAFETY: allocated just now, with this size.
            unsafe { std::ptr::write_bytes(start, 0, layout.size()) }
        }
        // SAFETY: inside of what was allocated.
        let start = unsafe { start.add(before) };
        Some(HostMemory { start, bytes, layout: Some((layout, before)), owner: None, zeros: Zeros::known(0) })
    }

    /// Memory that belongs to somebody else.
    ///
    /// # Safety
    /// The bytes stay allocated, and nobody else reads what work on this memory writes or writes what it reads, until every owner
    /// of this value is gone and all work on it is over. Memory that may not be written is only bound to be read.
    pub unsafe fn foreign(start: *mut u8, bytes: usize) -> HostMemory {
        HostMemory { start, bytes, layout: None, owner: None, zeros: Zeros::known(bytes) }
    }

    /// Memory that belongs to `owner`, who is dropped when the last owner of this value is gone.
    ///
    /// # Safety
    /// As for [`foreign`](Self::foreign), but the bytes stay allocated at least until `owner` is dropped.
    pub unsafe fn owned_by(start: *mut u8, bytes: usize, owner: Box<dyn Any + Send>) -> HostMemory {
        HostMemory { start, bytes, layout: None, owner: Some(owner), zeros: Zeros::known(bytes) }
    }

    /// It belongs to somebody else.
    pub fn is_foreign(&self) -> bool {
        self.layout.is_none()
    }

    /// Its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where it starts, for who may write there.
    pub fn address(&self) -> *mut u8 {
        self.zeros.writers.fetch_add(1, Relaxed);
        self.start
    }

    /// Where it starts, for who only reads.
    pub fn address_to_read(&self) -> *const u8 {
        self.start
    }

    /// Says that there are nothing but zeros from this byte on. It is believed of the only one who asked for the [address](Self::address).
    pub fn tell_zeros(&self, from: usize) {
        self.zeros.told.store(from, Relaxed);
    }

    /// Takes note of where its zeros are. Nobody uses the memory now: what was said of them holds.
    pub fn settle(&mut self) {
        let Zeros { from, writers, told } = &mut self.zeros;
        let now = match *writers.get_mut() {
            0 => *from.get_mut(),
            1 => self.bytes.min(*told.get_mut()),
            _ => self.bytes,
        };
        self.zeros = Zeros::known(now);
    }

    fn check(&self, at: usize, bytes: usize) {
        assert!(at <= self.bytes && bytes <= self.bytes - at, "{bytes} bytes at {at} of {}", self.bytes);
    }

    /// Copies bytes in.
    pub fn fill(&self, at: usize, from: &[u8]) {
        self.check(at, from.len());
        self.zeros.writers.fetch_add(1, Relaxed);
        // SAFETY: inside the memory; `from` is a reference, so it can't overlap memory that is only reached by address.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.start.add(at), from.len()) }
    }

    /// Copies bytes out.
    pub fn copy_to(&self, at: usize, to: &mut [u8]) {
        self.check(at, to.len());
        // SAFETY: as in `fill`.
        unsafe { std::ptr::copy_nonoverlapping(self.start.add(at), to.as_mut_ptr(), to.len()) }
    }

    /// Copies bytes from other memory, or from another part of this.
    pub fn copy_from(&self, at: usize, other: &HostMemory, from: usize, bytes: usize) {
        self.check(at, bytes);
        other.check(from, bytes);
        self.zeros.writers.fetch_add(1, Relaxed);
        // SAFETY: both parts are inside; `copy` allows them to overlap.
        unsafe { std::ptr::copy(other.start.add(from), self.start.add(at), bytes) }
    }

    /// Makes part of it zero.
    pub fn clear(&self, at: usize, bytes: usize) {
        self.check(at, bytes);
        let is_known = self.zeros.writers.load(Relaxed) == 0;
        let bytes = if is_known { bytes.min(self.zeros.from.load(Relaxed).saturating_sub(at)) } else { bytes };
        // SAFETY: inside the memory.
        unsafe { std::ptr::write_bytes(self.start.add(at), 0, bytes) }
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        drop(self.owner.take());
        if let Some((layout, before)) = self.layout {
            // SAFETY: allocated with this layout, so far before the start.
            unsafe { dealloc(self.start.sub(before), layout) }
        }
    }
}

impl fmt::Debug for HostMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostMemory({} bytes)", self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_every_size_is_zero_and_aligned() {
        for bytes in [0, 1, 4096, LARGE - 1, LARGE, LARGE + HUGE_PAGE / 2 + 12] {
            let memory = HostMemory::new(bytes).expect("there is memory");
            assert_eq!((memory.bytes(), memory.address().addr() % HostMemory::ALIGN), (bytes, 0));
            let mut all = vec![1; bytes];
            memory.copy_to(0, &mut all);
            assert!(all.iter().all(|&byte| byte == 0), "{bytes} bytes");
            memory.fill(bytes.saturating_sub(1), &all[..bytes.min(1)]);
        }
    }

    #[test]
    fn zeros_are_written_where_there_may_be_others() {
        let all_ones = |memory: &HostMemory| {
            // Not told to the memory, so that what it clears can be seen.
            // SAFETY: nobody else has the memory.
            unsafe { std::ptr::write_bytes(memory.start, 1, memory.bytes) }
        };
        let ones = |memory: &HostMemory| {
            let mut all = vec![0; memory.bytes()];
            memory.copy_to(0, &mut all);
            all.iter().filter(|&&byte| byte == 1).count()
        };
        let cleared = |memory: &HostMemory, at: usize, bytes: usize| {
            all_ones(memory);
            memory.clear(at, bytes);
            100 - ones(memory)
        };
        let mut memory = HostMemory::new(100).expect("there is memory");
        assert_eq!(cleared(&memory, 0, 100), 0, "it begins with zeros");
        memory.address();
        assert_eq!(cleared(&memory, 0, 100), 100, "somebody may have written");
        memory.tell_zeros(30);
        assert_eq!(cleared(&memory, 0, 100), 100, "who says it may go on writing");
        memory.settle();
        assert_eq!(cleared(&memory, 0, 100), 30);
        assert_eq!((cleared(&memory, 20, 30), cleared(&memory, 40, 60)), (10, 0));
        memory.settle();
        assert_eq!(cleared(&memory, 0, 100), 30, "nobody wrote");
        memory.address();
        memory.tell_zeros(10);
        memory.fill(50, &[1]);
        memory.settle();
        assert_eq!(cleared(&memory, 0, 100), 100, "somebody else wrote");
        memory.address();
        memory.settle();
        assert_eq!(cleared(&memory, 0, 100), 100, "nobody said anything");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn large_buffers_start_at_different_places_of_their_pages() {
        let all = [(); 3].map(|()| HostMemory::new(LARGE).expect("there is memory"));
        let places = [0, 1, 2].map(|at: usize| all[at].address().addr() % HUGE_PAGE);
        assert!(places[0] != places[1] && places[1] != places[2], "{places:?}");
    }
}
