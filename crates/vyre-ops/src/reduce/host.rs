//! Sums as processors make them: down the rows of an array a row after the other, as it lies in memory, to one of 256 rows of sums; of all of an
//! array a block after the other, with all columns in registers.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use vyre::variant::{HostSlice, Variant, Workers};

use super::{BLOCK, COLUMNS};
use crate::host::{Cell, pieces_of_a_part, room_for, variant, words};

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
        let each = pieces_of_a_part(blocks, 4 * BLOCK, workers);
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
        halves(columns)
    }
}

/// Puts elements to the columns that they belong to.
fn add(columns: &mut [f32; COLUMNS], row: &[[u8; 4]]) {
    for (column, x) in columns.iter_mut().zip(row) {
        *column += f32::from_le_bytes(*x);
    }
}

/// Puts columns together by halves.
fn halves(mut columns: [f32; COLUMNS]) -> f32 {
    let mut half = COLUMNS / 2;
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
            for at in 0..COLUMNS / V::COUNT {
                sums[at].store(columns.as_mut_ptr().add(at * V::COUNT));
            }
        }
        add(&mut columns, rest);
        halves(columns)
    }
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
