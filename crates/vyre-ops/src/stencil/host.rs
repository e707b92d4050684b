//! Stencils as processors make them: a row after the other, many neighbouring sums at a time.

use vyre::DataType;
use vyre::variant::{HostSlice, Variant, Workers};

use super::{Boundary, Offset};
use crate::host::{in_chunks, pieces_of_a_part, room_for, variant, words};
use crate::reference::inside;

/// Sums at a time, which stay in registers or the first cache.
#[cfg(not(target_arch = "x86_64"))]
const TOGETHER: usize = 64;

/// The stencil with weights at these places, where the processor adds products without rounding them.
pub(super) fn rows(ty: &DataType, offsets: &[Offset], boundary: Boundary) -> Option<Variant> {
    let offsets = offsets.to_vec();
    (has_fma() && *ty == DataType::F32).then(|| {
        variant("rows", 1, move |buffers: &mut [HostSlice<'_>], workers: &dyn Workers| {
            run(buffers, workers, &offsets, boundary);
        })
    })
}

#[cfg(target_arch = "x86_64")]
fn has_fma() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_fma() -> bool {
    cfg!(target_arch = "aarch64")
}

fn run(buffers: &mut [HostSlice<'_>], workers: &dyn Workers, offsets: &[Offset], boundary: Boundary) {
    let [x, sizes, weights, out] = buffers else { return };
    let sizes: Vec<usize> = words(sizes.bytes()).map(|size| size as usize).collect();
    let &[width, height, depth, ..] = &sizes[..] else { return };
    let x = x.bytes().as_chunks::<4>().0;
    let out = out.bytes_mut().as_chunks_mut::<4>().0;
    if width * height * depth == 0 || out.len() != x.len() || !x.len().is_multiple_of(width * height * depth) {
        return;
    }
    let weights: Vec<f32> = words(weights.bytes()).map(f32::from_bits).collect();
    let zeros = room_for([0; 4], width);
    let each = pieces_of_a_part(x.len() / width, 4 * width, workers);
    in_chunks(out, each * width, workers, |part, out| {
        let mut taps = Vec::with_capacity(offsets.len());
        for (row, out) in (part * each..).zip(out.chunks_mut(width)) {
            let (plane, y) = (row / height, row % height);
            let z = plane % depth;
            let line = |[dz, dy, _]: &Offset| {
                let z_there = inside(z as isize + dz, depth, boundary)?;
                let y_there = inside(y as isize + dy, height, boundary)?;
                let row = (plane - z + z_there) * height + y_there;
                Some(&x[row * width..(row + 1) * width])
            };
            taps.clear();
            taps.extend(offsets.iter().zip(&weights).map(|(offset, weight)| Tap {
                line: line(offset).unwrap_or(&zeros),
                by: offset[2],
                weight: *weight,
            }));
            fill_row(&taps, boundary, out);
        }
    });
}

/// What a weight looks at in one row: the line, and how far from its own place.
struct Tap<'a> {
    line: &'a [[u8; 4]],
    by: isize,
    weight: f32,
}

impl Tap<'_> {
    #[inline(always)]
    fn put(&self, at: usize, sum: f32) -> f32 {
        self.weight.mul_add(f32::from_le_bytes(self.line[at]), sum)
    }
}

#[cfg(target_arch = "x86_64")]
fn fill_row(taps: &[Tap<'_>], boundary: Boundary, out: &mut [[u8; 4]]) {
    use std::arch::x86_64::{__m256, __m512};

    use crate::lanes::Lanes;

    #[target_feature(enable = "avx512f,avx512dq,fma")]
    fn wide(taps: &[Tap<'_>], boundary: Boundary, out: &mut [[u8; 4]]) {
        sums_of_row(taps, boundary, out, 4 * __m512::COUNT, in_registers::<__m512>);
    }
    #[target_feature(enable = "avx2,fma")]
    fn narrow(taps: &[Tap<'_>], boundary: Boundary, out: &mut [[u8; 4]]) {
        sums_of_row(taps, boundary, out, 4 * __m256::COUNT, in_registers::<__m256>);
    }
    #[allow(unsafe_code, reason = "the processor was asked")]
    // SAFETY: there is no variant where the processor has not the narrower ones, and the wider ones are here where they are used.
    unsafe {
        if __m512::are_here() { wide(taps, boundary, out) } else { narrow(taps, boundary, out) }
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn fill_row(taps: &[Tap<'_>], boundary: Boundary, out: &mut [[u8; 4]]) {
    sums_of_row(taps, boundary, out, TOGETHER, together);
}

/// Neighbouring sums from a place on, four registers of them.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn in_registers<V: crate::lanes::Lanes>(taps: &[Tap<'_>], at: usize, out: &mut [[u8; 4]]) {
    #[allow(unsafe_code, reason = "instructions that not every processor has")]
    // SAFETY: called from functions that are compiled for them alone; all addresses are of slices that are long enough.
    unsafe {
        let mut sums = [V::splat(0.0); 4];
        for tap in taps {
            let line = tap.line[at.wrapping_add_signed(tap.by)..][..4 * V::COUNT].as_ptr().cast::<f32>();
            let weight = V::splat(tap.weight);
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = weight.times_plus(V::load(line.add(i * V::COUNT)), *sum);
            }
        }
        let out = out[at..][..4 * V::COUNT].as_mut_ptr().cast::<f32>();
        for (i, sum) in sums.iter().enumerate() {
            sum.store(out.add(i * V::COUNT));
        }
    }
}

/// Neighbouring sums from a place on.
#[cfg(not(target_arch = "x86_64"))]
fn together(taps: &[Tap<'_>], at: usize, out: &mut [[u8; 4]]) {
    let mut sums = [0.0f32; TOGETHER];
    for tap in taps {
        let line = &tap.line[at.wrapping_add_signed(tap.by)..][..TOGETHER];
        for (sum, x) in sums.iter_mut().zip(line) {
            *sum = tap.weight.mul_add(f32::from_le_bytes(*x), *sum);
        }
    }
    for (out, sum) in out[at..].iter_mut().zip(sums) {
        *out = sum.to_le_bytes();
    }
}

/// All sums of a row, so many at a time by `make` where nothing is behind an edge.
#[inline(always)]
fn sums_of_row(
    taps: &[Tap<'_>],
    boundary: Boundary,
    out: &mut [[u8; 4]],
    together: usize,
    make: impl Fn(&[Tap<'_>], usize, &mut [[u8; 4]]),
) {
    let width = out.len();
    let before = taps.iter().map(|tap| -tap.by).max().unwrap_or(0).max(0) as usize;
    let behind = taps.iter().map(|tap| tap.by).max().unwrap_or(0).max(0) as usize;
    let first = before.min(width);
    let last = width.saturating_sub(behind);
    // The last ones are made with some before them, a second time.
    let mut at = first;
    while first + together <= last && at < last {
        at = at.min(last - together);
        make(taps, at, out);
        at += together;
    }
    for place in (0..first).chain(at..width) {
        let put = |sum: f32, tap: &Tap<'_>| match inside(place as isize + tap.by, width, boundary) {
            Some(there) => tap.put(there, sum),
            None => tap.weight.mul_add(0.0, sum),
        };
        out[place] = taps.iter().fold(0.0, put).to_le_bytes();
    }
}
