//! Rust functions that the processor runs in the place of a kernel, where libraries have what a kernel can't say: bytes side by side in
//! registers, carry-less products. They are variants like any other: held against the kernel, and used where they are faster.

use vyre::Engine;
use vyre::variant::{HostSlice, Variant};

/// Bytes for which a thread of its own is worth starting.
const WORTH: usize = 1 << 19;

/// A function that gives what the kernel gives, which its tests show, and keeps to the threads that the engine's processor works with.
pub(crate) fn variant(
    engine: &Engine,
    name: &str,
    revision: u64,
    function: impl Fn(&mut [HostSlice<'_>], Threads) + Send + Sync + 'static,
) -> Variant {
    let threads = Threads::of(engine);
    Variant::host(name, revision, move |buffers: &mut [HostSlice<'_>]| function(buffers, threads)).vouched()
}

/// The most threads that a function uses at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Threads(usize);

impl Threads {
    /// As many as the engine's processor works with. No other backend is asked: that would open it.
    fn of(engine: &Engine) -> Threads {
        Threads(engine.backend("cpu").map_or(1, |processor| processor.capabilities().threads.max(1)) as usize)
    }

    #[cfg(test)]
    pub(crate) fn some(count: usize) -> Threads {
        Threads(count)
    }
}

/// Gives words of a result to a function, with the number of the first of them, in parts on as many threads as so many bytes of work are
/// worth.
pub(crate) fn fill(
    out: &mut HostSlice<'_>,
    work: usize,
    Threads(most): Threads,
    fill: impl Fn(usize, &mut [[u8; 4]]) + Sync,
) {
    let words = out.bytes_mut().as_chunks_mut().0;
    let each = words.len().div_ceil((work / WORTH).clamp(1, most.max(1))).max(1);
    std::thread::scope(|threads| {
        let mut parts = words.chunks_mut(each).enumerate();
        // This thread has a part, too.
        let own = parts.next();
        for (at, part) in parts {
            let fill = &fill;
            threads.spawn(move || fill(at * each, part));
        }
        if let Some((_, part)) = own {
            fill(0, part);
        }
    });
}

/// The words of a buffer.
pub(crate) fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word))
}
