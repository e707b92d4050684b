//! Sums down the rows of an array as processors make them: a row after the other, as it lies in memory, to one of 256 rows of sums.

use std::sync::atomic::AtomicU32;

use vyre::variant::{HostSlice, Variant, Workers};

use super::{BLOCK, COLUMNS};
use crate::host::{Cell, room_for, variant, words};

/// Results side by side that a part has at least, so that it reads whole lines, and bytes that it reads at most.
const NARROWEST: usize = 64;
const MOST_BYTES: usize = 8 << 20;

/// Sums of f32 as kernels give them, with 0 put to the last ones.
pub(super) fn down_rows(finished: bool) -> Variant {
    variant(if finished { "sums of rows" } else { "parts of sums of rows" }, 1, move |buffers, workers| {
        sum(buffers, workers, finished);
    })
}

fn sum(buffers: &mut [HostSlice<'_>], workers: &dyn Workers, finished: bool) {
    let [x, sizes, out] = buffers else { return };
    let sizes: Vec<usize> = words(sizes.bytes()).map(|size| size as usize).collect();
    let &[along, _, first, _, inner, blocks, ..] = &sizes[..] else { return };
    let x = x.bytes().as_chunks::<4>().0;
    let Some(out) = AtomicU32::all(out.bytes_mut()).get(first..) else { return };
    if along * inner == 0 {
        return;
    }
    let outer = x.len() / (along * inner);
    if out.len() < outer * blocks * inner {
        return;
    }
    let widest = (MOST_BYTES / (4 * along.min(BLOCK))).max(NARROWEST);
    // Several parts for each thread, so that those who finish early can take over.
    let width = inner.div_ceil(4 * workers.threads()).next_multiple_of(NARROWEST).min(widest / NARROWEST * NARROWEST);
    let strips = inner.div_ceil(width);
    workers.run(outer * blocks * strips, &|part| {
        let (strip, block, row) = (part % strips, part / strips % blocks, part / strips / blocks);
        let columns = strip * width..inner.min((strip + 1) * width);
        let rows = block * BLOCK..along.min((block + 1) * BLOCK);
        let lines = rows.map(|a| {
            let line = (row * along + a) * inner;
            &x[line + columns.start..line + columns.end]
        });
        let to = &out[(row * blocks + block) * inner..][columns.clone()];
        for (to, sum) in to.iter().zip(strip_sums(lines, columns.len())) {
            to.put(if finished { sum + 0.0 } else { sum }.to_le_bytes());
        }
    });
}

/// The sums of each place in lines of so many numbers, in the order that reductions have.
fn strip_sums<'a>(lines: impl Iterator<Item = &'a [[u8; 4]]>, width: usize) -> Vec<f32> {
    let mut sums = room_for(-0.0f32, COLUMNS * width);
    for (at, line) in lines.enumerate() {
        let sums = &mut sums[at % COLUMNS * width..][..width];
        for (sum, x) in sums.iter_mut().zip(line) {
            *sum += f32::from_le_bytes(*x);
        }
    }
    let mut half = COLUMNS / 2;
    while half > 0 {
        let (low, high) = sums.split_at_mut(half * width);
        low.iter_mut().zip(&*high).for_each(|(low, high)| *low += high);
        sums.truncate(half * width);
        half /= 2;
    }
    sums
}
