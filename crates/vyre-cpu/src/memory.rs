//! The only place that touches buffer memory through pointers, besides compiled code.
//!
//! Several threads run workgroups of one launch on the same buffers, and a program may race. Every access here is a relaxed
//! atomic of the element's size, so a race gives one of the written values and is never undefined.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use vyre_foundation::kernel::Element;

/// Bytes that kernels read and write. Aligned to 8 or more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: a span is an address; the bytes behind it are only touched by atomics here and by compiled code, and whoever makes
// one keeps the bytes alive for the launch.
unsafe impl Send for Span {}
// SAFETY: as above.
unsafe impl Sync for Span {}

impl Span {
    /// A span over memory that may be written.
    ///
    /// # Safety
    /// The bytes stay allocated, and are not touched through references, as long as the span is used. `start` is a multiple
    /// of 8.
    pub(crate) unsafe fn new(start: *mut u8, bytes: usize) -> Span {
        Span { start, bytes }
    }

    /// First byte.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    /// Number of bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of `size` bytes at `at`, when they are inside and aligned.
    fn place(&self, at: u64, size: usize) -> Option<*mut u8> {
        let at = usize::try_from(at).ok()?;
        if at.checked_add(size)? > self.bytes || !at.is_multiple_of(size) {
            return None;
        }
        // SAFETY: `at` is inside the span.
        Some(unsafe { self.start.add(at) })
    }

    /// The stored bits of the element at byte `at` (at element `at` for 4-bit elements); zero outside.
    pub(crate) fn read(&self, element: Element, at: u64) -> u64 {
        if element.bits() == 4 {
            let byte = self.read_bytes(at / 2, 1);
            return byte >> (at % 2 * 4) & 15;
        }
        self.read_bytes(at, element.bits() as usize / 8)
    }

    fn read_bytes(&self, at: u64, size: usize) -> u64 {
        let Some(place) = self.place(at, size) else { return 0 };
        // SAFETY: `place` gave an address inside, aligned to its size.
        unsafe {
            match size {
                1 => u64::from(AtomicU8::from_ptr(place).load(Relaxed)),
                2 => u64::from(AtomicU16::from_ptr(place.cast()).load(Relaxed)),
                4 => u64::from(AtomicU32::from_ptr(place.cast()).load(Relaxed)),
                _ => AtomicU64::from_ptr(place.cast()).load(Relaxed),
            }
        }
    }

    /// Stores the bits of an element; nothing outside.
    pub(crate) fn write(&self, element: Element, at: u64, bits: u64) {
        let size = (element.bits() as usize / 8).max(1);
        if element.bits() == 4 {
            let Some(place) = self.place(at / 2, 1) else { return };
            let shift = at % 2 * 4;
            // SAFETY: as in `read_bytes`. Two lanes share a byte, so it changes in one step.
            let byte = unsafe { AtomicU8::from_ptr(place) };
            let put = |old: u8| Some(old & !(15 << shift) | ((bits as u8 & 15) << shift));
            // The closure never gives up, so the update always succeeds.
            let _ = byte.fetch_update(Relaxed, Relaxed, put);
            return;
        }
        let Some(place) = self.place(at, size) else { return };
        // SAFETY: as in `read_bytes`.
        unsafe {
            match size {
                1 => AtomicU8::from_ptr(place).store(bits as u8, Relaxed),
                2 => AtomicU16::from_ptr(place.cast()).store(bits as u16, Relaxed),
                4 => AtomicU32::from_ptr(place.cast()).store(bits as u32, Relaxed),
                _ => AtomicU64::from_ptr(place.cast()).store(bits, Relaxed),
            }
        }
    }

    /// Replaces the 4 or 8 bytes at `at` by what `change` makes of them, in one step; gives the old bits, zero outside.
    pub(crate) fn update(&self, element: Element, at: u64, change: impl Fn(u64) -> u64) -> u64 {
        let size = element.bits() as usize / 8;
        let Some(place) = self.place(at, size) else { return 0 };
        // SAFETY: as in `read_bytes`.
        unsafe {
            if size == 8 {
                let cell = AtomicU64::from_ptr(place.cast());
                let (Ok(old) | Err(old)) = cell.fetch_update(SeqCst, SeqCst, |old| Some(change(old)));
                old
            } else {
                let cell = AtomicU32::from_ptr(place.cast());
                let change = |old| Some(change(u64::from(old)) as u32);
                let (Ok(old) | Err(old)) = cell.fetch_update(SeqCst, SeqCst, change);
                u64::from(old)
            }
        }
    }
}

/// Zeroed memory of our own, aligned to a cache line.
#[derive(Debug)]
pub(crate) struct Arena {
    start: *mut u8,
    layout: std::alloc::Layout,
}

// SAFETY: the arena owns its bytes.
unsafe impl Send for Arena {}
// SAFETY: shared use goes through spans, see there.
unsafe impl Sync for Arena {}

impl Arena {
    /// Alignment of every arena.
    pub(crate) const ALIGN: usize = 64;

    /// So many zeroed bytes; `None` when there is no memory for them.
    pub(crate) fn new(bytes: usize) -> Option<Arena> {
        let layout = std::alloc::Layout::from_size_align(bytes.max(1), Self::ALIGN).ok()?;
        // SAFETY: the size is not zero.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        (!start.is_null()).then_some(Arena { start, layout })
    }

    /// Part of the arena.
    pub(crate) fn span(&self, at: usize, bytes: usize) -> Span {
        assert!(at <= self.layout.size() && bytes <= self.layout.size() - at && at.is_multiple_of(8));
        // SAFETY: inside the arena, which outlives its use by the launch that borrows it.
        unsafe { Span::new(self.start.add(at), bytes) }
    }

    /// Copies bytes in.
    pub(crate) fn fill(&self, at: usize, from: &[u8]) {
        assert!(at <= self.layout.size() && from.len() <= self.layout.size() - at);
        // SAFETY: inside the arena; `from` is a reference, so it can't overlap memory that is only reached by spans.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.start.add(at), from.len()) }
    }

    /// Copies bytes out.
    pub(crate) fn copy_to(&self, at: usize, to: &mut [u8]) {
        assert!(at <= self.layout.size() && to.len() <= self.layout.size() - at);
        // SAFETY: as in `fill`.
        unsafe { std::ptr::copy_nonoverlapping(self.start.add(at), to.as_mut_ptr(), to.len()) }
    }

    /// Copies bytes from another arena, or from a part of this one that does not overlap.
    pub(crate) fn copy_from(&self, at: usize, other: &Arena, from: usize, bytes: usize) {
        assert!(at <= self.layout.size() && bytes <= self.layout.size() - at);
        assert!(from <= other.layout.size() && bytes <= other.layout.size() - from);
        // SAFETY: both parts are inside; `copy` allows them to overlap.
        unsafe { std::ptr::copy(other.start.add(from), self.start.add(at), bytes) }
    }

    /// Makes part of it zero again.
    pub(crate) fn clear(&self, at: usize, bytes: usize) {
        assert!(at <= self.layout.size() && bytes <= self.layout.size() - at);
        // SAFETY: as in `fill`.
        unsafe { std::ptr::write_bytes(self.start.add(at), 0, bytes) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { std::alloc::dealloc(self.start, self.layout) }
    }
}
