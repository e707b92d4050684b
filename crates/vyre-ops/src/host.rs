//! Rust functions that the processor runs in the place of a kernel, where libraries have what a kernel can't say: bytes side by side in
//! registers, carry-less products. They are variants like any other: held against the kernel, and used where they are faster.

use vyre::variant::HostSlice;

/// Bytes for which a thread of its own is worth starting.
const WORTH: usize = 1 << 19;

/// Gives words of a result to a function, with the number of the first of them, in parts on as many threads as so many bytes of work are
/// worth and the process may use.
pub(crate) fn fill(out: &mut HostSlice<'_>, work: usize, fill: impl Fn(usize, &mut [[u8; 4]]) + Sync) {
    let words = out.bytes_mut().as_chunks_mut().0;
    let each = words.len().div_ceil((work / WORTH).clamp(1, most_threads())).max(1);
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

/// As many as the processor's backend works with: what `VYRE_THREADS` says (it refuses what is no number), else what the process may use.
fn most_threads() -> usize {
    let said = std::env::var("VYRE_THREADS").ok().and_then(|word| word.trim().parse::<usize>().ok());
    said.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1)
}

/// The words of a buffer.
pub(crate) fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word))
}
