//! Products of f32 as processors make them, of a right factor in panels. Rows of the left factor are copied to panels as well, and steps of `k`
//! are taken so many at a time that a panel of the right factor stays in the first cache and the rows in the second one; sums wait in the result.

#![allow(
    unsafe_code,
    reason = "instructions that not every processor has, and results whose parts lie between those of others"
)]
#![allow(clippy::undocumented_unsafe_blocks, reason = "blocks in unsafe functions stand on what their callers promise")]
#![allow(clippy::needless_range_loop, reason = "registers are named by numbers that the compiler knows")]

use std::arch::x86_64::{__m256, __m512};
use std::cell::RefCell;
use std::ops::Range;

use vyre::variant::{HostSlice, Variant, Workers};

use super::Transposed;
use super::panels::PANEL;
use crate::host::{room_for, variant, words};
use crate::lanes::{Lanes, Shared};

/// Steps of `k` at a time.
const DEPTH: usize = 256;
/// Rows of a part, in tiles of as many as registers have room for: a multiple of both.
const ROWS: usize = 96;
const WIDE_TILE: usize = 12;
const NARROW_TILE: usize = 6;
/// Registers side by side in a tile.
const ACROSS: usize = 2;
/// The most products of a part, which take a few milliseconds.
const MOST_OF_A_PART: usize = 1 << 27;

/// The product of f32 whose right factor is in panels.
pub(super) fn product(transposed: Transposed) -> Option<Variant> {
    let run = if __m512::are_here() {
        run_wide
    } else if __m256::are_here() {
        run_narrow
    } else {
        return None;
    };
    Some(variant("tiles in registers", 1, move |buffers: &mut [HostSlice<'_>], workers: &dyn Workers| {
        let [a, b, sizes, out] = buffers else { panic!("a product has four buffers, not {}", buffers.len()) };
        let sizes: Vec<usize> = words(sizes.bytes()).map(|size| size as usize).collect();
        let &[m, n, k, batches, ..] = &sizes[..] else { panic!("a product has five sizes, not {}", sizes.len()) };
        let fits = |bytes: &[u8], elements: usize| bytes.len() >= 4 * batches * elements;
        assert!(fits(a.bytes(), m * k) && fits(b.bytes(), n.next_multiple_of(PANEL) * k) && fits(out.bytes(), m * n));
        let [a, b] = [a.bytes(), b.bytes()].map(|bytes| Shared::of(bytes.as_ptr().cast_mut().cast()));
        let product = Product { a, b, out: Shared::of(out.bytes_mut().as_mut_ptr().cast()), m, n, k, transposed };
        // SAFETY: the processor has the instructions, and all matrices their elements, of which no two parts have the same of `out`.
        unsafe { run(&product, batches, workers) };
    }))
}

/// Matrices, of which there are several behind each other.
struct Product {
    a: Shared,
    b: Shared,
    out: Shared,
    m: usize,
    n: usize,
    k: usize,
    transposed: Transposed,
}

/// A part of the work: rows, and panels of columns.
struct Part {
    batch: usize,
    rows: Range<usize>,
    panels: Range<usize>,
}

#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn run_wide(product: &Product, batches: usize, workers: &dyn Workers) {
    #[target_feature(enable = "avx512f,avx512dq")]
    unsafe fn part(product: &Product, part: &Part) {
        unsafe { product.part::<__m512, WIDE_TILE>(part) }
    }
    // SAFETY: what the caller has promised.
    unsafe { product.in_parts(batches, workers, part) }
}

#[target_feature(enable = "avx2,fma")]
unsafe fn run_narrow(product: &Product, batches: usize, workers: &dyn Workers) {
    #[target_feature(enable = "avx2,fma")]
    unsafe fn part(product: &Product, part: &Part) {
        unsafe { product.part::<__m256, NARROW_TILE>(part) }
    }
    // SAFETY: what the caller has promised.
    unsafe { product.in_parts(batches, workers, part) }
}

thread_local! {
    /// Room for the rows of a part.
    static ROOM: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Numbers of a line of memory.
const LINE: usize = 16;

impl Product {
    unsafe fn in_parts(&self, batches: usize, workers: &dyn Workers, work: unsafe fn(&Product, &Part)) {
        let (down, panels) = (self.m.div_ceil(ROWS), self.n.div_ceil(PANEL));
        // Several parts for each thread, so that those who finish early can take over.
        let across = (4 * workers.threads()).div_ceil(batches * down);
        let across = across.max((ROWS * self.n * self.k).div_ceil(MOST_OF_A_PART)).clamp(1, panels);
        workers.run(batches * down * across, &|part| {
            let (batch, block, column) = (part / (down * across), part / across % down, part % across);
            let rows = block * ROWS..self.m.min((block + 1) * ROWS);
            let panels = column * panels / across..(column + 1) * panels / across;
            // SAFETY: these rows and columns are this part's alone.
            unsafe { work(self, &Part { batch, rows, panels }) }
        });
    }

    /// Nothing that works on registers is in a closure, because those are not compiled for their instructions.
    #[inline(always)]
    unsafe fn part<V: Lanes, const R: usize>(&self, part: &Part) {
        let &Product { b, out, m, n, k, .. } = self;
        let mut room = ROOM.take();
        if room.len() < ROWS * DEPTH + 2 * LINE {
            room = room_for(0.0, ROWS * DEPTH + 2 * LINE);
        }
        let skipped = room.as_ptr().align_offset(4 * LINE).min(LINE);
        let left = room[skipped..].as_mut_ptr();
        for first in (0..k).step_by(DEPTH) {
            let depth = DEPTH.min(k - first);
            unsafe {
                for row in part.rows.clone().step_by(R) {
                    let count = R.min(part.rows.end - row);
                    self.copy_rows::<V, R>(
                        part.batch,
                        [row, count],
                        [first, depth],
                        left.add((row - part.rows.start) * depth),
                    );
                }
                for panel in part.panels.clone() {
                    let right = b.at(((part.batch * n.div_ceil(PANEL) + panel) * k + first) * PANEL);
                    for across in (0..PANEL).step_by(ACROSS * V::COUNT) {
                        let column = panel * PANEL + across;
                        for row in part.rows.clone().step_by(R) {
                            let count = [R.min(part.rows.end - row), (ACROSS * V::COUNT).min(n - column.min(n))];
                            let left = left.add((row - part.rows.start) * depth);
                            let to = out.at((part.batch * m + row) * n + column.min(n));
                            tile::<V, R>(
                                left,
                                right.add(across),
                                depth,
                                Sums { to, step: n, count, begins: first == 0 },
                            );
                        }
                    }
                }
            }
        }
        ROOM.set(room);
    }

    /// Rows of the left factor as a panel: all rows of a step of `k`, then the next step; zeros behind the last row.
    #[inline(always)]
    unsafe fn copy_rows<V: Lanes, const R: usize>(
        &self,
        batch: usize,
        [row, count]: [usize; 2],
        [first, depth]: [usize; 2],
        to: *mut f32,
    ) {
        let &Product { a, m, k, transposed, .. } = self;
        let (down, along) = if transposed.a { (1, m) } else { (k, 1) };
        unsafe {
            let from = a.at(batch * m * k + row * down + first * along);
            let mut done = 0;
            if along == 1 && count == R && R <= V::COUNT {
                // What is written beyond a step is written over by the next one, or behind the last one in room that is there for it.
                while done + V::COUNT <= depth {
                    let mut rows = [V::splat(0.0); 16];
                    for r in 0..R {
                        rows[r] = V::load(from.add(r * down + done));
                    }
                    V::transpose(&mut rows);
                    for (step, row) in rows.iter().enumerate().take(V::COUNT) {
                        row.store(to.add((done + step) * R));
                    }
                    done += V::COUNT;
                }
            }
            for step in done..depth {
                for r in 0..R {
                    *to.add(step * R + r) = if r < count { *from.add(r * down + step * along) } else { 0.0 };
                }
            }
        }
    }
}

/// Where sums are, and how many rows and columns of them there are.
struct Sums {
    to: *mut f32,
    step: usize,
    count: [usize; 2],
    /// They begin as zeros.
    begins: bool,
}

/// Adds the products of so many steps of `k` to a tile of sums.
#[inline(always)]
unsafe fn tile<V: Lanes, const R: usize>(left: *const f32, right: *const f32, depth: usize, sums: Sums) {
    let width = ACROSS * V::COUNT;
    let Sums { to, step, count: [rows, columns], begins } = sums;
    if rows == R && columns == width {
        unsafe { whole_tile::<V, R>(left, right, depth, to, step, begins) };
        return;
    }
    // Some of it is not there: it is made elsewhere.
    let mut made = [0.0f32; WIDE_TILE * PANEL];
    unsafe {
        for r in 0..if begins { 0 } else { rows } {
            std::ptr::copy_nonoverlapping(to.add(r * step), made[r * width..].as_mut_ptr(), columns);
        }
        whole_tile::<V, R>(left, right, depth, made.as_mut_ptr(), width, false);
        for r in 0..rows {
            std::ptr::copy_nonoverlapping(made[r * width..].as_ptr(), to.add(r * step), columns);
        }
    }
}

#[inline(always)]
unsafe fn whole_tile<V: Lanes, const R: usize>(
    left: *const f32,
    right: *const f32,
    depth: usize,
    to: *mut f32,
    step: usize,
    begins: bool,
) {
    unsafe {
        let mut sums = [[V::splat(0.0); ACROSS]; R];
        if !begins {
            for r in 0..R {
                sums[r] = [V::load(to.add(r * step)), V::load(to.add(r * step + V::COUNT))];
            }
        }
        for k in 0..depth {
            let right = right.add(k * PANEL);
            let (first, second) = (V::load(right), V::load(right.add(V::COUNT)));
            for r in 0..R {
                let left = V::splat(*left.add(k * R + r));
                sums[r] = [left.times_plus(first, sums[r][0]), left.times_plus(second, sums[r][1])];
            }
        }
        for r in 0..R {
            sums[r][0].store(to.add(r * step));
            sums[r][1].store(to.add(r * step + V::COUNT));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Several;

    type Run = unsafe fn(&Product, usize, &dyn Workers);

    #[test]
    fn sums_are_chains_over_ascending_k() {
        let numbers = |count: usize, seed: usize| -> Vec<f32> {
            (0..count).map(|at| ((at * 7919 + seed) % 2003) as f32 / 997.0 - 1.0).collect()
        };
        let shapes = [([1, 1, 1], 1), ([96, 32, 256], 1), ([97, 33, 257], 2), ([12, 64, 600], 3), ([205, 100, 31], 2)];
        for ((sizes, batches), is_transposed) in shapes.into_iter().flat_map(|shape| [(shape, false), (shape, true)]) {
            let [m, n, k] = sizes;
            let transposed = Transposed { a: is_transposed, b: false };
            let (a, b) = (numbers(batches * m * k, 1), numbers(batches * k * n, 5));
            let panels = n.div_ceil(PANEL);
            let mut packed = vec![0.0f32; batches * panels * PANEL * k];
            for (at, element) in packed.iter_mut().enumerate() {
                let (lane, step, panel) = (at % PANEL, at / PANEL % k, at / PANEL / k);
                let (batch, column) = (panel / panels, panel % panels * PANEL + lane);
                *element = if column < n { b[(batch * k + step) * n + column] } else { 0.0 };
            }
            let expected = |at: usize| {
                let (batch, row, column) = (at / (m * n), at / n % m, at % n);
                let left = |step: usize| match is_transposed {
                    true => a[(batch * k + step) * m + row],
                    false => a[(batch * m + row) * k + step],
                };
                (0..k).fold(0.0f32, |sum, step| left(step).mul_add(b[(batch * k + step) * n + column], sum))
            };
            let ways: [(bool, Run); 2] = [(__m512::are_here(), run_wide), (__m256::are_here(), run_narrow)];
            for (_, run) in ways.into_iter().filter(|(is_here, _)| *is_here) {
                for threads in [1, 3] {
                    let mut out = vec![f32::NAN; batches * m * n];
                    let [left, right] = [&a, &packed].map(|all| Shared::of(all.as_ptr().cast_mut()));
                    let product = Product { a: left, b: right, out: Shared::of(out.as_mut_ptr()), m, n, k, transposed };
                    // SAFETY: the instructions are here, and all elements are.
                    unsafe { run(&product, batches, &Several(threads)) };
                    let differ = (0..out.len()).find(|&at| out[at].to_bits() != expected(at).to_bits());
                    assert_eq!(differ, None, "{sizes:?} {batches} {is_transposed}");
                }
            }
        }
    }
}
