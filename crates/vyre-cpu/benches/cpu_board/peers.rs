//! The same works in plain Rust with rayon. Inner loops are functions that LLVM compiles for the instruction set in use.

use rayon::iter::{IndexedParallelIterator, IntoParallelRefIterator, ParallelIterator};
use rayon::slice::{ParallelSlice, ParallelSliceMut};

use crate::kernels::{BINS, MATRIX, PICTURE, SIDE};

/// Compiles a function twice, for AVX-512 and for AVX2, and calls the one that fits.
macro_rules! vectorised {
    ($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*) $body:block) => {
        $(#[$doc])*
        fn $name($($arg: $ty),*) {
            #[inline(always)]
            fn plain($($arg: $ty),*) $body
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,bmi1,bmi2")]
            fn wide($($arg: $ty),*) {
                plain($($arg),*)
            }
            #[target_feature(enable = "avx2,fma,bmi1,bmi2")]
            fn narrow($($arg: $ty),*) {
                plain($($arg),*)
            }
            let forced = std::env::var_os("VYRE_CPU").is_some_and(|path| path == "avx2");
            if is_x86_feature_detected!("avx512dq") && is_x86_feature_detected!("avx512vl") && !forced {
                // SAFETY: the features were just found.
                unsafe { wide($($arg),*) }
            } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                // SAFETY: as above.
                unsafe { narrow($($arg),*) }
            } else {
                plain($($arg),*)
            }
        }
    };
}

const CHUNK: usize = 1 << 14;

vectorised! {
    fn map_chunk(a: &[f32], b: &[f32], out: &mut [f32]) {
        for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
            *out = a * b + 1.0;
        }
    }
}

/// `a·b + 1`.
pub(crate) fn map(buffers: &mut [Vec<f32>]) {
    let [a, b, out] = buffers else { return };
    out.par_chunks_mut(CHUNK)
        .zip(a.par_chunks(CHUNK))
        .zip(b.par_chunks(CHUNK))
        .for_each(|((out, a), b)| map_chunk(a, b, out));
}

vectorised! {
    fn logistic_chunk(a: &[f32], out: &mut [f32]) {
        // Eight vectors of sixteen at once hide the latency of the chain.
        for (out, a) in out.chunks_exact_mut(128).zip(a.chunks_exact(128)) {
            let mut x = [0.0f32; 128];
            x.copy_from_slice(a);
            for _ in 0..64 {
                for x in &mut x {
                    *x = 3.7 * *x * (1.0 - *x);
                }
            }
            out.copy_from_slice(&x);
        }
    }
}

/// 64 steps of the logistic map.
pub(crate) fn logistic(buffers: &mut [Vec<f32>]) {
    let [a, out] = buffers else { return };
    out.par_chunks_mut(CHUNK).zip(a.par_chunks(CHUNK)).for_each(|(out, a)| logistic_chunk(a, out));
}

#[inline(always)]
fn exp(x: f32) -> f32 {
    let x = x.clamp(-87.0, 88.0);
    let n = (x * std::f32::consts::LOG2_E).round_ties_even();
    let r = n.mul_add(-0.693_359_4, x);
    let r = n.mul_add(2.121_944_4e-4, r);
    let mut p = 1.987_569_1e-4f32;
    for c in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 5e-1] {
        p = p.mul_add(r, c);
    }
    let p = (p * r).mul_add(r, r) + 1.0;
    p * f32::from_bits(((n as i32 + 127) << 23) as u32)
}

vectorised! {
    fn sigmoid_chunk(a: &[f32], out: &mut [f32]) {
        for (out, a) in out.iter_mut().zip(a) {
            *out = 1.0 / (1.0 + exp(-a));
        }
    }
}

/// `1 / (1 + e⁻ˣ)`.
pub(crate) fn sigmoid(buffers: &mut [Vec<f32>]) {
    let [a, out] = buffers else { return };
    out.par_chunks_mut(CHUNK).zip(a.par_chunks(CHUNK)).for_each(|(out, a)| sigmoid_chunk(a, out));
}

vectorised! {
    fn reduction_chunk(a: &[f32], out: &mut [f32]) {
        for (out, a) in out.iter_mut().zip(a.chunks_exact(256)) {
            let mut sums = [0.0f32; 64];
            for part in a.chunks_exact(64) {
                for (sum, a) in sums.iter_mut().zip(part) {
                    *sum += a;
                }
            }
            let mut half = 32;
            while half > 0 {
                for at in 0..half {
                    sums[at] += sums[at + half];
                }
                half /= 2;
            }
            *out = sums[0];
        }
    }
}

/// Sums of 256 neighbours.
pub(crate) fn reduction(buffers: &mut [Vec<f32>]) {
    let [a, out] = buffers else { return };
    out.par_chunks_mut(256).zip(a.par_chunks(256 * 256)).for_each(|(out, a)| reduction_chunk(a, out));
}

vectorised! {
    fn stencil_row(up: &[f32], row: &[f32], down: &[f32], out: &mut [f32]) {
        let last = SIDE - 2;
        let (left, middle, right) = (&row[..last], &row[1..=last], &row[2..]);
        let (up, down, out) = (&up[1..=last], &down[1..=last], &mut out[1..=last]);
        for at in 0..last {
            out[at] = middle[at] * 0.5 + (left[at] + right[at] + up[at] + down[at]) * 0.125;
        }
    }
}

/// Five points.
pub(crate) fn stencil(buffers: &mut [Vec<f32>]) {
    let [a, out] = buffers else { return };
    let rows: Vec<&[f32]> = a.chunks_exact(SIDE).collect();
    out.par_chunks_mut(SIDE).enumerate().for_each(|(y, out)| {
        if y > 0 && y < SIDE - 1 {
            stencil_row(rows[y - 1], rows[y], rows[y + 1], out);
        }
    });
}

vectorised! {
    fn mandelbrot_row(y: usize, out: &mut [f32]) {
        const LANES: usize = 64;
        let scale = 3.0 / PICTURE as f32;
        let cy = y as f32 * scale - 1.5;
        for (block, out) in out.chunks_exact_mut(LANES).enumerate() {
            let mut cx = [0.0f32; LANES];
            for (lane, cx) in cx.iter_mut().enumerate() {
                *cx = (block * LANES + lane) as f32 * scale - 2.0;
            }
            let (mut x, mut y, mut n) = ([0.0f32; LANES], [0.0f32; LANES], [0u32; LANES]);
            for _ in 0..256 {
                let mut live = 0u32;
                for lane in 0..LANES {
                    let (xx, yy) = (x[lane] * x[lane], y[lane] * y[lane]);
                    let on = xx + yy <= 4.0;
                    let xy = x[lane] * y[lane];
                    let (next_x, next_y) = (xx - yy + cx[lane], xy + xy + cy);
                    x[lane] = if on { next_x } else { x[lane] };
                    y[lane] = if on { next_y } else { y[lane] };
                    n[lane] += u32::from(on);
                    live |= u32::from(on);
                }
                if live == 0 {
                    break;
                }
            }
            for (out, n) in out.iter_mut().zip(n) {
                *out = n as f32;
            }
        }
    }
}

/// Rounds until the point leaves.
pub(crate) fn mandelbrot(buffers: &mut [Vec<f32>]) {
    let [out] = buffers else { return };
    out.par_chunks_mut(PICTURE).enumerate().for_each(|(y, out)| mandelbrot_row(y, out));
}

vectorised! {
    fn matmul_rows(a: &[f32], b: &[f32], out: &mut [f32]) {
        // Four rows of the result at a time share the row of `b`.
        for (a, out) in a.chunks_exact(4 * MATRIX).zip(out.chunks_exact_mut(4 * MATRIX)) {
            out.fill(0.0);
            let (o0, rest) = out.split_at_mut(MATRIX);
            let (o1, rest) = rest.split_at_mut(MATRIX);
            let (o2, o3) = rest.split_at_mut(MATRIX);
            for k in 0..MATRIX {
                let (a0, a1, a2, a3) = (a[k], a[MATRIX + k], a[2 * MATRIX + k], a[3 * MATRIX + k]);
                let row = &b[k * MATRIX..(k + 1) * MATRIX];
                for at in 0..MATRIX {
                    o0[at] += a0 * row[at];
                    o1[at] += a1 * row[at];
                    o2[at] += a2 * row[at];
                    o3[at] += a3 * row[at];
                }
            }
        }
    }
}

/// The product of two square matrices.
pub(crate) fn matmul(buffers: &mut [Vec<f32>]) {
    let [a, b, out] = buffers else { return };
    let b = &*b;
    let rows: Vec<&[f32]> = a.chunks_exact(16 * MATRIX).collect();
    out.par_chunks_mut(16 * MATRIX).zip(rows.par_iter()).for_each(|(out, a)| matmul_rows(a, b, out));
}

/// How often each last byte occurs; each thread counts for itself.
pub(crate) fn histogram(buffers: &mut [Vec<f32>]) {
    let [a, out] = buffers else { return };
    let none = || [0u32; BINS];
    let counted = a.par_chunks(1 << 18).fold(none, |mut bins, part| {
        for value in part {
            bins[value.to_bits() as usize & (BINS - 1)] += 1;
        }
        bins
    });
    let sum = counted.reduce(none, |mut all, bins| {
        all.iter_mut().zip(bins).for_each(|(all, bins)| *all += bins);
        all
    });
    out.iter_mut().zip(sum).for_each(|(out, sum)| *out = f32::from_bits(sum));
}
