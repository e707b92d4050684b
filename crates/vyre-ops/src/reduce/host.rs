//! Sums as processors make them. Down the rows of an array: a row after the other, as it lies in memory, to one of 256 rows of sums. Along them:
//! a block after the other, while the next one is already on its way.

use std::sync::atomic::AtomicU32;

use vyre::variant::{HostSlice, Variant, Workers};

use super::{BLOCK, COLUMNS};
use crate::host::{Cell, in_chunks, pieces_of_a_part, room_for, variant, words};

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

/// Sums of f32 along rows as kernels give them, with 0 put to the last ones.
pub(super) fn along_rows(finished: bool) -> Variant {
    variant(if finished { "sums of blocks" } else { "parts of sums of blocks" }, 1, move |buffers, workers| {
        sum_blocks(buffers, workers, finished);
    })
}

fn sum_blocks(buffers: &mut [HostSlice<'_>], workers: &dyn Workers, finished: bool) {
    let [x, sizes, out] = buffers else { panic!("a sum has three buffers, not {}", buffers.len()) };
    let sizes: Vec<usize> = words(sizes.bytes()).map(|size| size as usize).collect();
    let [along, groups, first, _, _, blocks, ..] = sizes[..] else { panic!("there are {} sizes", sizes.len()) };
    let x = x.bytes().as_chunks::<4>().0;
    let out = &mut out.bytes_mut().as_chunks_mut::<4>().0[first..first + groups];
    let each = pieces_of_a_part(groups, 4 * along.min(BLOCK), workers);
    in_chunks(out, each, workers, |at, out| {
        for (group, out) in (at * each..).zip(out) {
            let (row, start) = (group / blocks * along, group % blocks * BLOCK);
            let sum = block_sum(&x[row + start..row + along.min(start + BLOCK)]);
            *out = if finished { sum + 0.0 } else { sum }.to_le_bytes();
        }
    });
}

/// The sum of a block in the order that reductions have.
fn block_sum(x: &[[u8; 4]]) -> f32 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m256, __m512};

        use crate::lanes::Lanes;
        if __m512::are_here() {
            // SAFETY: the processor has these instructions.
            #[allow(unsafe_code, reason = "instructions that not every processor has")]
            return unsafe { block_sum_512(x) };
        }
        if __m256::are_here() {
            // SAFETY: the processor has these instructions.
            #[allow(unsafe_code, reason = "instructions that not every processor has")]
            return unsafe { block_sum_256(x) };
        }
    }
    columns_sum(x)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq")]
fn block_sum_512(x: &[[u8; 4]]) -> f32 {
    columns_sum(x)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn block_sum_256(x: &[[u8; 4]]) -> f32 {
    columns_sum(x)
}

/// Bytes before it is read at which a line of memory is asked for: processors themselves look no further than to the end of a page.
#[cfg(target_arch = "x86_64")]
const AHEAD: usize = 4096;

#[inline(always)]
fn columns_sum(x: &[[u8; 4]]) -> f32 {
    let mut sums = [-0.0f32; COLUMNS];
    let (rows, rest) = x.as_chunks::<COLUMNS>();
    for row in rows {
        #[cfg(target_arch = "x86_64")]
        for line in row.as_chunks::<16>().0 {
            crate::lanes::soon_read(line.as_ptr().cast::<f32>().wrapping_byte_add(AHEAD));
        }
        for (sum, x) in sums.iter_mut().zip(row) {
            *sum += f32::from_le_bytes(*x);
        }
    }
    for (sum, x) in sums.iter_mut().zip(rest) {
        *sum += f32::from_le_bytes(*x);
    }
    let mut half = COLUMNS / 2;
    while half > 0 {
        let (low, high) = sums.split_at_mut(half);
        low.iter_mut().zip(&*high).for_each(|(low, high)| *low += high);
        half /= 2;
    }
    sums[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Several;

    /// Column by column, and the columns by halves.
    fn plain(x: &[f32]) -> f32 {
        let mut sums: Vec<f32> =
            (0..COLUMNS).map(|column| x.iter().skip(column).step_by(COLUMNS).fold(-0.0, |sum, x| sum + x)).collect();
        while sums.len() > 1 {
            let half = sums.len() / 2;
            sums = (0..half).map(|at| sums[at] + sums[at + half]).collect();
        }
        sums[0]
    }

    #[test]
    fn blocks_are_summed_in_the_order_of_reductions() {
        for (rows, along) in [(1usize, 1usize), (3, 31), (2, 256), (2, 16383), (2, 16384), (3, 16385), (1, 50_000)] {
            let x: Vec<f32> = (0..rows * along).map(|at| ((at * 7919) % 1013) as f32 * 0.37 - 180.0).collect();
            let blocks = along.div_ceil(BLOCK);
            let sizes = [along, rows * blocks, 1, 0, 1, blocks, 0, 0].map(|size| (size as u32).to_le_bytes());
            let bytes: Vec<u8> = x.iter().flat_map(|x| x.to_le_bytes()).collect();
            let mut out = vec![0xff; 4 * (1 + rows * blocks)];
            let slices = [HostSlice::Read(&bytes), HostSlice::Read(sizes.as_flattened()), HostSlice::Write(&mut out)];
            sum_blocks(&mut { slices }, &Several(3), false);
            let sums: Vec<u32> = words(&out).collect();
            assert_eq!(sums[0], u32::MAX, "what is before the first result stays");
            let expected = x.chunks(along).flat_map(|row| row.chunks(BLOCK).map(|block| plain(block).to_bits()));
            assert_eq!(sums[1..], expected.collect::<Vec<_>>(), "{rows} rows of {along}");
        }
    }

    #[test]
    fn a_sum_of_nothing_but_minus_zeros_is_finished_to_zero() {
        let x = [(-0.0f32).to_le_bytes(); 3];
        let sizes = [3u32, 1, 0, 0, 1, 1, 0, 0].map(u32::to_le_bytes);
        for (finished, expected) in [(false, -0.0f32), (true, 0.0)] {
            let mut out = [0xff; 4];
            let slices =
                [HostSlice::Read(x.as_flattened()), HostSlice::Read(sizes.as_flattened()), HostSlice::Write(&mut out)];
            sum_blocks(&mut { slices }, &Several(2), finished);
            assert_eq!(f32::from_le_bytes(out).to_bits(), expected.to_bits());
        }
    }
}
