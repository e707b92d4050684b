//! The only place that touches buffer memory through pointers, besides compiled code.
//!
//! Several threads run workgroups of one launch on the same buffers, and a program may race. Every access here is a relaxed
//! atomic of the element's size, so a race gives one of the written values and is never undefined.

use std::alloc::{Layout, alloc_zeroed};
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use vyre_driver::backend::HostMemory;
use vyre_foundation::ir::AtomicOp;
use vyre_foundation::kernel::Element;

/// Bytes that kernels read and write. Aligned to 8 or more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Span {
    start: *mut u8,
    bytes: usize,
    /// The memory that it is all of.
    whole: *const HostMemory,
}

// SAFETY: a span is an address; the bytes behind it are only touched by atomics here and by compiled code, and whoever makes
// one keeps the bytes alive for the launch.
unsafe impl Send for Span {}
// SAFETY: as above.
unsafe impl Sync for Span {}

impl Span {
    /// Part of memory that its owner keeps for the launch. It starts at a multiple of 8.
    pub(crate) fn of(memory: &HostMemory, at: usize, bytes: usize) -> Span {
        assert!(at <= memory.bytes() && bytes <= memory.bytes() - at);
        let start = memory.address().wrapping_add(at);
        assert!(start.addr().is_multiple_of(8));
        let whole: *const HostMemory = if bytes == memory.bytes() { memory } else { std::ptr::null() };
        Span { start, bytes, whole }
    }

    /// Part of it, which starts at a multiple of 8.
    pub(crate) fn part(&self, at: usize, bytes: usize) -> Span {
        assert!(at <= self.bytes && bytes <= self.bytes - at && at.is_multiple_of(8));
        Span { start: self.start.wrapping_add(at), bytes, whole: std::ptr::null() }
    }

    /// Says that the launch which has it leaves nothing but zeros from this byte on.
    pub(crate) fn tell_zeros(&self, from: usize) {
        // SAFETY: whoever made the span keeps its memory for the launch, and memory that is shared does not move.
        if let Some(memory) = unsafe { self.whole.as_ref() } {
            memory.tell_zeros(from);
        }
    }

    /// Makes it zero.
    pub(crate) fn clear(&self) {
        // SAFETY: the bytes of the span; nobody else touches private memory.
        unsafe { std::ptr::write_bytes(self.start, 0, self.bytes) }
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

    /// An atomic on the word at `at`, by the processor's own instruction where it has one; gives the old bits, zero outside.
    pub(crate) fn atomic(&self, op: AtomicOp, signed: bool, at: u64, value: u32, compare: u32) -> u32 {
        let Some(place) = self.place(at, 4) else { return 0 };
        // SAFETY: as in `read_bytes`.
        let (word, integer) = unsafe { (AtomicU32::from_ptr(place.cast()), AtomicI32::from_ptr(place.cast())) };
        // What changes nothing is as good as a load, and takes the word from no other core.
        let known = word.load(SeqCst);
        let changes_nothing = match op {
            AtomicOp::Min if signed => known as i32 <= value as i32,
            AtomicOp::Min => known <= value,
            AtomicOp::Max if signed => known as i32 >= value as i32,
            AtomicOp::Max => known >= value,
            AtomicOp::And => known & value == known,
            AtomicOp::Or => known | value == known,
            _ => false,
        };
        if changes_nothing {
            return known;
        }
        match op {
            AtomicOp::Load => word.load(SeqCst),
            AtomicOp::Store | AtomicOp::Exchange => word.swap(value, SeqCst),
            AtomicOp::Add => word.fetch_add(value, SeqCst),
            AtomicOp::Sub => word.fetch_sub(value, SeqCst),
            AtomicOp::Min if signed => integer.fetch_min(value as i32, SeqCst) as u32,
            AtomicOp::Min => word.fetch_min(value, SeqCst),
            AtomicOp::Max if signed => integer.fetch_max(value as i32, SeqCst) as u32,
            AtomicOp::Max => word.fetch_max(value, SeqCst),
            AtomicOp::And => word.fetch_and(value, SeqCst),
            AtomicOp::Or => word.fetch_or(value, SeqCst),
            AtomicOp::Xor => word.fetch_xor(value, SeqCst),
            AtomicOp::CompareExchange => {
                let (Ok(old) | Err(old)) = word.compare_exchange(compare, value, SeqCst, SeqCst);
                old
            }
        }
    }

    /// Adds the words from byte `at` on to those of `sums`, and makes them zero. Nobody else touches them meanwhile.
    pub(crate) fn take_words(&self, at: usize, sums: &mut [u32]) {
        assert!(at.is_multiple_of(4) && at <= self.bytes && sums.len() <= (self.bytes - at) / 4);
        // SAFETY: inside the span, which starts at a multiple of 8; nobody else touches the words.
        let words = unsafe { std::slice::from_raw_parts_mut(self.start.add(at).cast::<u32>(), sums.len()) };
        for (sum, word) in sums.iter_mut().zip(words) {
            *sum = sum.wrapping_add(std::mem::take(word));
        }
    }

    /// Adds numbers to the words from byte `at` on, as atomics do.
    pub(crate) fn add_words(&self, at: usize, sums: &[u32]) {
        for (index, &sum) in sums.iter().enumerate().filter(|(_, sum)| **sum != 0) {
            self.atomic(AtomicOp::Add, false, (at + 4 * index) as u64, sum, 0);
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

/// Private memory of one thread for the launch that it works on.
#[derive(Debug)]
pub(crate) struct Scratch(HostMemory);

impl Scratch {
    /// So many bytes; `None` when there is no memory for them.
    pub(crate) fn new(bytes: usize) -> Option<Scratch> {
        HostMemory::new(bytes).map(Scratch)
    }

    /// Its size.
    pub(crate) fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// Part of it, which starts at a multiple of 8.
    pub(crate) fn span(&self, at: usize, bytes: usize) -> Span {
        Span::of(&self.0, at, bytes)
    }

    /// The first bytes as so many words.
    pub(crate) fn words(&mut self, count: usize) -> &mut [u64] {
        assert!(count <= self.bytes() / 8);
        // SAFETY: inside the memory, aligned to a cache line; every pattern of bits is a word, and the memory is borrowed whole.
        unsafe { std::slice::from_raw_parts_mut(self.0.address().cast(), count) }
    }
}

/// Zero bytes that the system gives without touching them; `None` when it has none.
pub(crate) fn zeroed(bytes: usize) -> Option<Vec<u8>> {
    if bytes == 0 {
        return Some(Vec::new());
    }
    let layout = Layout::array::<u8>(bytes).ok()?;
    // SAFETY: the size is not zero; the vector gets memory of the layout that it gives back, all of it initialised.
    unsafe {
        let start = alloc_zeroed(layout);
        (!start.is_null()).then(|| Vec::from_raw_parts(start, bytes, bytes))
    }
}

/// The caller's bytes as memory that work only reads.
///
/// # Safety
/// The bytes stay borrowed until all work on the memory is over, and no work writes to it.
pub(crate) unsafe fn to_read(bytes: &[u8]) -> HostMemory {
    // SAFETY: the caller's promise.
    unsafe { HostMemory::foreign(bytes.as_ptr().cast_mut(), bytes.len()) }
}

/// The caller's bytes as memory that work writes.
///
/// # Safety
/// The bytes stay where they are, and nobody else touches them, until all work on the memory is over.
pub(crate) unsafe fn to_write(bytes: &mut [u8]) -> HostMemory {
    // SAFETY: the caller's promise.
    unsafe { HostMemory::foreign(bytes.as_mut_ptr(), bytes.len()) }
}
