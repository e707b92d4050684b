//! Rust functions that the processor runs in the place of a kernel, where libraries have what a kernel can't say, such as bytes side by side in
//! registers, or where a kernel's way is not a processor's, such as counters that many invocations share. They are variants like any other: held
//! against the kernel, and used where they are faster.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use vyre::variant::{HostSlice, Variant, Workers};

/// Bytes of a part: worth a thread, and done so soon that a launch which is told to end does.
pub(crate) const PART: usize = 1 << 20;

/// A function that gives what the kernel gives, which its tests show, and leaves all work that takes long to the backend's threads.
pub(crate) fn variant(
    name: &str,
    revision: u64,
    function: impl Fn(&mut [HostSlice<'_>], &dyn Workers) + Send + Sync + 'static,
) -> Variant {
    Variant::host_in_parts(name, revision, function).vouched()
}

/// Gives words of a result to a function, with the number of the first of them, in as many parts as so many bytes of work are worth.
pub(crate) fn fill(
    out: &mut HostSlice<'_>,
    work: usize,
    workers: &dyn Workers,
    fill: impl Fn(usize, &mut [[u8; 4]]) + Sync,
) {
    let words = out.bytes_mut().as_chunks_mut().0;
    let each = words.len().div_ceil((work / PART).max(1)).max(1);
    in_chunks(words, each, workers, |at, part| fill(at * each, part));
}

/// Gives each chunk of so many elements, and its number, to a function.
pub(crate) fn in_chunks<T: Send>(
    all: &mut [T],
    each: usize,
    workers: &dyn Workers,
    function: impl Fn(usize, &mut [T]) + Sync,
) {
    // Each is locked once, by whom its number was given to.
    let chunks: Vec<Mutex<&mut [T]>> = all.chunks_mut(each).map(Mutex::new).collect();
    workers.run(chunks.len(), &|at| function(at, &mut chunks[at].lock().unwrap_or_else(PoisonError::into_inner)));
}

/// How many of so many equal pieces make a part, where each has so many bytes: all threads get several parts, so that none waits long for the
/// last one of another, but few where each would be less than is worth it.
pub(crate) fn pieces_of_a_part(pieces: usize, bytes: usize, workers: &dyn Workers) -> usize {
    let (threads, bytes) = (workers.threads(), bytes.max(1));
    let worth_it = pieces.div_ceil(threads * 4).min((PART / 16).div_ceil(bytes));
    pieces.div_ceil(threads * 16).max(worth_it).min((PART / 4).div_ceil(bytes)).max(1)
}

/// So many of one value. Where there is no memory for them the launch fails, and nothing else.
pub(crate) fn room_for<T: Clone>(value: T, count: usize) -> Vec<T> {
    let mut all = Vec::new();
    if all.try_reserve_exact(count).is_err() {
        panic!("there is no memory for {count} numbers");
    }
    all.resize(count, value);
    all
}

/// The words of a buffer.
pub(crate) fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word))
}

/// A number of `N` bytes that several threads may write. Each is written by one of them; if a function gets that wrong, its results are wrong,
/// and nothing else.
pub(crate) trait Cell<const N: usize>: Sync + Sized {
    /// The numbers of a result.
    fn all(bytes: &mut [u8]) -> &[Self];

    fn put(&self, value: [u8; N]);
}

macro_rules! cell {
    ($atomic:ty, $bytes:literal, $number:ty) => {
        impl Cell<$bytes> for $atomic {
            #[allow(unsafe_code, reason = "there is no safe way to share a slice that one thread has for itself")]
            fn all(bytes: &mut [u8]) -> &[Self] {
                // SAFETY: all patterns of bits are numbers, and what is borrowed for one alone may be shared by many who use atomics.
                unsafe { bytes.align_to_mut::<$atomic>() }.1
            }

            fn put(&self, value: [u8; $bytes]) {
                self.store(<$number>::from_le_bytes(value), Relaxed);
            }
        }
    };
}

cell!(AtomicU16, 2, u16);
cell!(AtomicU32, 4, u32);
cell!(AtomicU64, 8, u64);

/// Says that this place will be written soon. Numbers that go to hundreds of places in turn would else wait for each line of memory.
#[inline]
pub(crate) fn soon_written<T>(all: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    #[allow(unsafe_code, reason = "the one way to say it")]
    // SAFETY: no address can make a prefetch fail.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(all.as_ptr().wrapping_add(at).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (all, at);
}

/// Workers for tests: so many threads of their own, which take parts in turn.
#[cfg(test)]
pub(crate) struct Several(pub(crate) usize);

#[cfg(test)]
impl Workers for Several {
    fn threads(&self) -> usize {
        self.0
    }

    fn run(&self, parts: usize, part: &(dyn Fn(usize) + Sync)) -> bool {
        std::thread::scope(|threads| {
            for first in 0..self.0 {
                threads.spawn(move || (first..parts).step_by(self.0).for_each(part));
            }
        });
        true
    }
}
