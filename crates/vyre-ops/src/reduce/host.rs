//! Sums as processors make them: down the rows of an array a row after the other, as it lies in memory, to one of 256 rows of sums; of all of an
//! array a block after the other, with all columns in registers.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use vyre::variant::{HostSlice, Variant, Workers};

use super::{BLOCK, COLUMNS};
use crate::host::{Cell, in_chunks, pieces_of_a_part, room_for, variant, words};

/// Results side by side that a part has at most: whole pages are read faster than pieces of them. And bytes that it reads at most.
const WIDEST: usize = 4096;
const MOST_BYTES: usize = 8 << 20;
/// Shares that the rows of a block are dealt out in at most, and results side by side of which one thread puts all shares together.
const MOST_SHARES: usize = 64;
const PUT_TOGETHER: usize = 512;

/// Sums of f32 as kernels give them, with 0 put to the last ones.
pub(super) fn down_rows(finished: bool) -> Variant {
    variant(if finished { "sums of rows" } else { "parts of sums of rows" }, 2, move |buffers, workers| {
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
    let (rows, width) = (along.min(BLOCK), inner.min(WIDEST));
    let strips = inner.div_ceil(width);
    let wholes = outer * blocks * strips;
    // Several parts for each thread, so that those who finish early can take over.
    let wanted = (4 * workers.threads()).div_ceil(wholes.max(1)).max((4 * width * rows).div_ceil(MOST_BYTES));
    let shares = wanted.min(rows).next_power_of_two().min(MOST_SHARES);
    let place = |whole: usize| {
        let (strip, block, row) = (whole % strips, whole / strips % blocks, whole / strips / blocks);
        (strip * width..inner.min((strip + 1) * width), block, row)
    };
    let add = |whole: usize, share: usize, to: &mut [f32]| {
        let (columns, block, row) = place(whole);
        let rows = block * BLOCK..along.min((block + 1) * BLOCK);
        let line = |a: usize| {
            let line = (row * along + rows.start + a) * inner;
            &x[line + columns.start..line + columns.end]
        };
        share_of_sums(line, rows.len(), [share, shares], &mut to[..columns.len()]);
    };
    let put = |whole: usize, first: usize, sums: &[f32]| {
        let (columns, block, row) = place(whole);
        let to = &out[(row * blocks + block) * inner + columns.start + first..];
        for (to, sum) in to.iter().zip(sums) {
            to.put(if finished { sum + 0.0 } else { *sum }.to_le_bytes());
        }
    };
    if shares == 1 {
        workers.run(wholes, &|whole| {
            let mut sums = room_for(-0.0, place(whole).0.len());
            add(whole, 0, &mut sums);
            put(whole, 0, &sums);
        });
        return;
    }
    let mut sums = room_for(-0.0f32, wholes * shares * width);
    in_chunks(&mut sums, width, workers, |part, sums| add(part / shares, part % shares, sums));
    let pieces = width.div_ceil(PUT_TOGETHER);
    workers.run(wholes * pieces, &|part| {
        let (whole, first) = (part / pieces, part % pieces * PUT_TOGETHER);
        let columns = place(whole).0.len();
        let own = columns.min(first)..columns.min(first + PUT_TOGETHER);
        let line = |share: usize| sums[(whole * shares + share) * width..][own.clone()].to_vec();
        let mut lines: Vec<Vec<f32>> = (0..shares).map(line).collect();
        by_halves(&mut lines);
        put(whole, own.start, &lines[0]);
    });
}

/// The sum of all elements of an array: what each block gives, and all of that together.
pub(super) fn at_once(finished: bool) -> Variant {
    variant("blocks in registers", 1, move |buffers, workers| {
        let [x, sizes, out, states] = buffers else { panic!("a sum has four buffers, not {}", buffers.len()) };
        let sizes: Vec<usize> = words(sizes.bytes()).take(2).map(|size| size as usize).collect();
        let (x, blocks) = (&x.bytes().as_chunks::<4>().0[..sizes[0]], sizes[1]);
        let Some((count, sums)) = AtomicU32::all(states.bytes_mut()).split_first() else {
            panic!("there is no room for what {blocks} blocks give")
        };
        let block = block();
        // Few threads read half a megabyte at a time a hundredth faster than a quarter of one.
        const MOST: usize = (1 << 19) / (4 * BLOCK);
        let longest = blocks.div_ceil(16 * workers.threads()).min(MOST);
        let each = pieces_of_a_part(blocks, 4 * BLOCK, workers).max(longest);
        let is_done = workers.run(blocks.div_ceil(each), &|part| {
            for (sum, x) in sums.iter().zip(x.chunks(BLOCK)).skip(part * each).take(each) {
                sum.put(block(x).to_le_bytes());
            }
        });
        if !is_done {
            return;
        }
        count.put((blocks as u32).to_le_bytes());
        let sums: Vec<[u8; 4]> = sums.iter().take(blocks).map(|sum| sum.load(Relaxed).to_le_bytes()).collect();
        let sum = block(&sums);
        out.bytes_mut().as_chunks_mut::<4>().0[0] = if finished { sum + 0.0 } else { sum }.to_le_bytes();
    })
}

/// What puts a block together on this processor.
fn block() -> fn(&[[u8; 4]]) -> f32 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m256, __m512};

        use crate::lanes::Lanes;
        if __m512::are_here() {
            return registers::wide;
        }
        if __m256::are_here() {
            return registers::narrow;
        }
    }
    |x| {
        let mut columns = [-0.0; COLUMNS];
        x.chunks(COLUMNS).for_each(|row| add(&mut columns, row));
        halves(&mut columns)
    }
}

/// Puts elements to the columns that they belong to.
fn add(columns: &mut [f32; COLUMNS], row: &[[u8; 4]]) {
    for (column, x) in columns.iter_mut().zip(row) {
        *column += f32::from_le_bytes(*x);
    }
}

/// Puts columns together by halves; there is a power of two of them.
fn halves(columns: &mut [f32]) -> f32 {
    let mut half = columns.len() / 2;
    while half > 0 {
        let (low, high) = columns.split_at_mut(half);
        low.iter_mut().zip(high).for_each(|(low, high)| *low += *high);
        half /= 2;
    }
    columns[0]
}

#[cfg(target_arch = "x86_64")]
mod registers {
    #![allow(unsafe_code, reason = "instructions that not every processor has")]
    #![allow(clippy::needless_range_loop, reason = "registers are named by numbers that the compiler knows")]

    use std::arch::x86_64::{__m256, __m512};

    use super::{COLUMNS, add, halves};
    use crate::lanes::Lanes;

    pub(super) fn wide(x: &[[u8; 4]]) -> f32 {
        #[target_feature(enable = "avx512f,avx512dq")]
        unsafe fn sums(x: &[[u8; 4]]) -> f32 {
            // SAFETY: the processor has the instructions.
            unsafe { sum::<__m512>(x) }
        }
        // SAFETY: whoever calls this has seen that the processor has the instructions.
        unsafe { sums(x) }
    }

    pub(super) fn narrow(x: &[[u8; 4]]) -> f32 {
        #[target_feature(enable = "avx2,fma")]
        unsafe fn sums(x: &[[u8; 4]]) -> f32 {
            // SAFETY: the processor has the instructions.
            unsafe { sum::<__m256>(x) }
        }
        // SAFETY: whoever calls this has seen that the processor has the instructions.
        unsafe { sums(x) }
    }

    /// Registers of the narrowest kind that all columns fill.
    const REGISTERS: usize = COLUMNS / 8;

    /// # Safety
    /// As [`Lanes`] says.
    #[inline(always)]
    unsafe fn sum<V: Lanes>(x: &[[u8; 4]]) -> f32 {
        let (rows, rest) = x.as_chunks::<COLUMNS>();
        let mut columns = [0.0; COLUMNS];
        // SAFETY: a row has as many numbers as the registers that are used have together, and so have the columns.
        unsafe {
            let mut sums = [V::splat(-0.0); REGISTERS];
            for row in rows {
                for at in 0..COLUMNS / V::COUNT {
                    sums[at] = sums[at].plus(V::load(row.as_ptr().cast::<f32>().add(at * V::COUNT)));
                }
            }
            if !rest.is_empty() {
                for at in 0..COLUMNS / V::COUNT {
                    sums[at].store(columns.as_mut_ptr().add(at * V::COUNT));
                }
                add(&mut columns, rest);
                return halves(&mut columns);
            }
            // The same halves, but in registers, while the next block is on its way.
            let mut half = COLUMNS / V::COUNT / 2;
            while half > 0 {
                for at in 0..half {
                    sums[at] = sums[at].plus(sums[at + half]);
                }
                half /= 2;
            }
            sums[0].store(columns.as_mut_ptr());
            halves(&mut columns[..V::COUNT])
        }
    }
}

/// Puts the sums of each place in so many lines to zeros, of those lines that belong to a share: of the 256 sums that they go to in turn every so
/// manieth, put together by halves. Sums that no line goes to change nothing.
fn share_of_sums<'a>(line: impl Fn(usize) -> &'a [[u8; 4]], lines: usize, [share, shares]: [usize; 2], to: &mut [f32]) {
    let firsts = (share..lines.next_power_of_two().min(COLUMNS)).step_by(shares);
    let mut sums: Vec<Vec<f32>> = firsts.clone().map(|_| room_for(-0.0, to.len())).collect();
    // All lines of a sum one after another, so that it stays in the first cache.
    for (sums, first) in sums.iter_mut().zip(firsts) {
        for at in (first..lines).step_by(COLUMNS) {
            for (sum, x) in sums.iter_mut().zip(line(at)) {
                *sum += f32::from_le_bytes(*x);
            }
        }
    }
    by_halves(&mut sums);
    if let Some(sums) = sums.first() {
        to.copy_from_slice(sums);
    }
}

/// Puts lines together by halves, all to the first; there is a power of two of them.
fn by_halves(lines: &mut [Vec<f32>]) {
    let mut half = lines.len() / 2;
    while half > 0 {
        let (low, high) = lines.split_at_mut(half);
        for (low, high) in low.iter_mut().zip(high) {
            low.iter_mut().zip(&*high).for_each(|(low, high)| *low += high);
        }
        half /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Several;

    /// What the kernels say: lines go to 256 sums in turn, which are put together by halves.
    fn plain(x: &[f32], along: usize, inner: usize) -> Vec<f32> {
        let mut sums = vec![vec![-0.0f32; inner]; COLUMNS];
        for (at, line) in x.chunks(inner).take(along).enumerate() {
            sums[at % COLUMNS].iter_mut().zip(line).for_each(|(sum, x)| *sum += x);
        }
        by_halves(&mut sums);
        sums.swap_remove(0)
    }

    #[test]
    fn rows_are_put_together_in_the_stated_order() {
        // Rows before the axis, along it, and behind it; few rows, fewer than shares, several blocks of which the last is short, several strips.
        let shapes = [[1, 1, 1], [3, 2, 5], [1, 5, 9000], [1, 300, 70], [2, 2048, 33], [1, BLOCK + 3, 21], [0, 4, 4]];
        for [outer, along, inner] in shapes {
            let blocks = along.div_ceil(BLOCK);
            let x: Vec<f32> = (0..outer * along * inner).map(|at| ((at * 7919 % 1013) as f32 - 500.0) * 0.37).collect();
            let bytes: Vec<u8> = x.iter().flat_map(|x| x.to_le_bytes()).collect();
            let sizes: Vec<u8> =
                [along, 0, 0, 0, inner, blocks, 0, 0].iter().flat_map(|&size| (size as u32).to_le_bytes()).collect();
            for threads in [1, 2, 16] {
                let mut out = vec![0xff; 4 * outer * blocks * inner];
                let slices = [HostSlice::Read(&bytes), HostSlice::Read(&sizes), HostSlice::Write(&mut out)];
                sum(&mut { slices }, &Several(threads), false);
                let found: Vec<u32> = words(&out).collect();
                let expected = x.chunks(along * inner).flat_map(|row| {
                    row.chunks(BLOCK * inner).flat_map(|block| plain(block, block.len() / inner, inner))
                });
                let expected: Vec<u32> = expected.map(f32::to_bits).collect();
                assert!(found == expected, "{outer} {along} {inner} with {threads} threads");
            }
        }
    }
}
