//! What others do: plain Rust with rayon, with the vector instructions of this processor.

use rayon::prelude::*;

/// Elements that a thread takes at a time.
const CHUNK: usize = 1 << 16;

/// Compiles a function for AVX-512, AVX2 and anything, and calls the best that this processor has.
macro_rules! fast {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) $(-> $out:ty)? $body:block)*) => {
        $(fn $name($($arg: $ty),*) $(-> $out)? {
            #[inline(always)]
            fn plain($($arg: $ty),*) $(-> $out)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
                fn wide($($arg: $ty),*) $(-> $out)? { plain($($arg),*) }
                #[target_feature(enable = "avx2,fma")]
                fn narrow($($arg: $ty),*) $(-> $out)? { plain($($arg),*) }
                if is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vl") && is_x86_feature_detected!("avx512dq") {
                    // SAFETY: the processor has these instructions.
                    return unsafe { wide($($arg),*) };
                }
                if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                    // SAFETY: the processor has these instructions.
                    return unsafe { narrow($($arg),*) };
                }
            }
            plain($($arg),*)
        })*
    };
}

fast! {
    fn map_part(a: &[f32], b: &[f32], out: &mut [f32]) {
        for ((out, a), b) in out.iter_mut().zip(a).zip(b) {
            *out = a * b + 1.0;
        }
    }
    fn sum_part(x: &[f32]) -> f32 {
        // Columns, so that vectors can be used.
        let mut columns = [0.0f32; 64];
        let parts = x.chunks_exact(64);
        let rest: f32 = parts.remainder().iter().sum();
        for part in parts {
            for (column, x) in columns.iter_mut().zip(part) {
                *column += x;
            }
        }
        columns.iter().sum::<f32>() + rest
    }
    fn argmax_part(x: &[f32]) -> (f32, usize) {
        let most = x.iter().copied().fold(f32::NEG_INFINITY, |a, b| if b > a { b } else { a });
        (most, x.iter().position(|x| *x == most).unwrap_or(0))
    }
    fn softmax_row(x: &[f32], out: &mut [f32]) {
        let most = x.iter().copied().fold(f32::NEG_INFINITY, |a, b| if b > a { b } else { a });
        for (out, x) in out.iter_mut().zip(x) {
            *out = (x - most).exp();
        }
        let sum = out.iter().sum::<f32>();
        for out in out {
            *out /= sum;
        }
    }
    fn norm_row(x: &[f32], out: &mut [f32]) {
        let count = x.len() as f32;
        let mean = x.iter().sum::<f32>() / count;
        let variance = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / count;
        let scale = 1.0 / (variance + 1e-5).sqrt();
        for (out, x) in out.iter_mut().zip(x) {
            *out = (x - mean) * scale;
        }
    }
    // Rows of the product: four rows of `a` at a time, all columns of a block in registers or the first cache.
    fn product_rows(a: &[f32], b: &[f32], out: &mut [f32], k: usize, n: usize) {
        const WIDE: usize = 32;
        for (a, out) in a.chunks(4 * k).zip(out.chunks_mut(4 * n)) {
            let rows = out.len() / n;
            let mut column = 0;
            while column + WIDE <= n && rows == 4 {
                let mut sums = [[0.0f32; WIDE]; 4];
                for d in 0..k {
                    let right = &b[d * n + column..][..WIDE];
                    for (row, sums) in sums.iter_mut().enumerate() {
                        let left = a[row * k + d];
                        for (sum, right) in sums.iter_mut().zip(right) {
                            *sum = left.mul_add(*right, *sum);
                        }
                    }
                }
                for (row, sums) in sums.iter().enumerate() {
                    out[row * n + column..][..WIDE].copy_from_slice(sums);
                }
                column += WIDE;
            }
            for row in 0..rows {
                for column in column..n {
                    out[row * n + column] = (0..k).fold(0.0, |sum, d| a[row * k + d].mul_add(b[d * n + column], sum));
                }
            }
        }
    }
}

pub(crate) fn copy(x: &[f32], out: &mut [f32]) {
    out.par_chunks_mut(CHUNK).zip(x.par_chunks(CHUNK)).for_each(|(out, x)| out.copy_from_slice(x));
}

pub(crate) fn map(a: &[f32], b: &[f32], out: &mut [f32]) {
    let parts = out.par_chunks_mut(CHUNK).zip(a.par_chunks(CHUNK)).zip(b.par_chunks(CHUNK));
    parts.for_each(|((out, a), b)| map_part(a, b, out));
}

pub(crate) fn sum(x: &[f32]) -> f32 {
    x.par_chunks(CHUNK).map(sum_part).sum()
}

pub(crate) fn argmax(x: &[f32]) -> usize {
    let parts = x.par_chunks(CHUNK).enumerate().map(|(part, x)| {
        let (most, at) = argmax_part(x);
        (most, part * CHUNK + at)
    });
    parts.reduce(|| (f32::NEG_INFINITY, usize::MAX), |a, b| if b.0 > a.0 || b.0 == a.0 && b.1 < a.1 { b } else { a }).1
}

pub(crate) fn cumsum(x: &[f32], out: &mut [f32]) {
    let size = x.len().div_ceil(rayon::current_num_threads() * 4).max(1);
    let sums: Vec<f32> = x.par_chunks(size).map(sum_part).collect();
    let mut before = 0.0;
    let mut start = |sum: &f32| {
        let own = before;
        before += sum;
        own
    };
    let starts: Vec<f32> = sums.iter().map(&mut start).collect();
    out.par_chunks_mut(size).zip(x.par_chunks(size)).zip(starts).for_each(|((out, x), start)| {
        let mut sum = start;
        for (out, x) in out.iter_mut().zip(x) {
            sum += x;
            *out = sum;
        }
    });
}

pub(crate) fn compact(x: &[f32], out: &mut Vec<f32>) {
    let parts: Vec<Vec<f32>> = x.par_chunks(CHUNK).map(|x| x.iter().copied().filter(|x| *x > 0.0).collect()).collect();
    out.clear();
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

pub(crate) fn histogram(x: &[u32]) -> Vec<u32> {
    let size = x.len().div_ceil(rayon::current_num_threads() * 4).max(1);
    let parts = x.par_chunks(size).map(|x| {
        // Four tables, so that equal neighbours don't wait for each other.
        let mut counts = vec![0u32; 4 * 256];
        for four in x.chunks(4) {
            for (table, key) in four.iter().enumerate() {
                counts[table * 256 + (*key & 255) as usize] += 1;
            }
        }
        counts
    });
    let all = parts.reduce(
        || vec![0; 4 * 256],
        |mut a, b| {
            a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
            a
        },
    );
    (0..256).map(|bin| (0..4).map(|table| all[table * 256 + bin]).sum()).collect()
}

pub(crate) fn sort(x: &[u32], out: &mut Vec<u32>) {
    out.clear();
    out.extend_from_slice(x);
    out.par_sort_unstable();
}

pub(crate) fn softmax(x: &[f32], out: &mut [f32], along: usize) {
    out.par_chunks_mut(along).zip(x.par_chunks(along)).for_each(|(out, x)| softmax_row(x, out));
}

pub(crate) fn layer_norm(x: &[f32], out: &mut [f32], along: usize) {
    out.par_chunks_mut(along).zip(x.par_chunks(along)).for_each(|(out, x)| norm_row(x, out));
}

pub(crate) fn transpose(x: &[f32], out: &mut [f32], rows: usize, columns: usize) {
    const TILE: usize = 32;
    out.par_chunks_mut(TILE * rows).enumerate().for_each(|(part, out)| {
        let first = part * TILE;
        for down in (0..rows).step_by(TILE) {
            for column in 0..out.len() / rows {
                for row in down..rows.min(down + TILE) {
                    out[column * rows + row] = x[row * columns + first + column];
                }
            }
        }
    });
}

pub(crate) fn matmul(a: &[f32], b: &[f32], out: &mut [f32], k: usize, n: usize) {
    out.par_chunks_mut(16 * n).zip(a.par_chunks(16 * k)).for_each(|(out, a)| product_rows(a, b, out, k, n));
}

pub(crate) fn gather(x: &[f32], at: &[u32], out: &mut [f32]) {
    out.par_chunks_mut(CHUNK).zip(at.par_chunks(CHUNK)).for_each(|(out, at)| {
        for (out, at) in out.iter_mut().zip(at) {
            *out = x[*at as usize];
        }
    });
}

/// Queries on all threads, a row of scores for each.
pub(crate) fn attention([q, k, v]: [&[f32]; 3], out: &mut [f32], [steps, dim]: [usize; 2]) {
    out.par_chunks_mut(dim).enumerate().for_each_init(
        || vec![0.0f32; steps],
        |scores, (at, out)| {
            let start = at / steps * steps * dim;
            attend(
                &q[at * dim..(at + 1) * dim],
                &k[start..start + steps * dim],
                &v[start..start + steps * dim],
                scores,
                out,
            );
        },
    );
}

pub(crate) fn stencil(x: &[f32], out: &mut [f32], side: usize) {
    out.par_chunks_mut(side).enumerate().for_each(|(row, out)| {
        let none = vec![0.0; side];
        let line = |row: Option<usize>| match row.filter(|row| *row < side) {
            Some(row) => &x[row * side..(row + 1) * side],
            None => &none,
        };
        stencil_row([line(row.checked_sub(1)), line(Some(row)), line(Some(row + 1))], out);
    });
}

pub(crate) fn bodies(x: &[f32], out: &mut [f32]) {
    // Coordinates by themselves, so that vectors can be used.
    let part = |at: usize| x.chunks_exact(4).map(|body| body[at]).collect::<Vec<f32>>();
    let parts = [part(0), part(1), part(2), part(3)];
    out.par_chunks_mut(3).zip(x.par_chunks(4)).for_each(|(out, own)| {
        out.copy_from_slice(&pull(own, &parts));
    });
}

fast! {
    fn stencil_row(rows: [&[f32]; 3], out: &mut [f32]) {
        let [above, own, below] = rows;
        let last = out.len() - 1;
        for at in 1..last {
            out[at] = 0.25 * above[at] + 0.25 * own[at - 1] + 0.5 * own[at] + 0.25 * own[at + 1] + 0.25 * below[at];
        }
        for at in [0, last] {
            let (left, right) = (if at > 0 { own[at - 1] } else { 0.0 }, if at < last { own[at + 1] } else { 0.0 });
            out[at] = 0.25 * above[at] + 0.25 * left + 0.5 * own[at] + 0.25 * right + 0.25 * below[at];
        }
    }
    fn pull(own: &[f32], parts: &[Vec<f32>; 4]) -> [f32; 3] {
        let mut sums = [[0.0f32; 16]; 3];
        let [x, y, z, m] = parts.each_ref().map(|part| part.chunks_exact(16));
        for (((x, y), z), m) in x.zip(y).zip(z).zip(m) {
            for k in 0..16 {
                let (dx, dy, dz) = (x[k] - own[0], y[k] - own[1], z[k] - own[2]);
                let far = dz.mul_add(dz, dy.mul_add(dy, dx.mul_add(dx, 1e-4)));
                let by = m[k] / (far * far.sqrt());
                sums[0][k] = dx.mul_add(by, sums[0][k]);
                sums[1][k] = dy.mul_add(by, sums[1][k]);
                sums[2][k] = dz.mul_add(by, sums[2][k]);
            }
        }
        sums.map(|all| all.iter().sum())
    }
    fn attend(q: &[f32], k: &[f32], v: &[f32], scores: &mut [f32], out: &mut [f32]) {
        let scale = 1.0 / (q.len() as f32).sqrt();
        let mut most = f32::NEG_INFINITY;
        for (score, key) in scores.iter_mut().zip(k.chunks_exact(q.len())) {
            let mut columns = [0.0f32; 16];
            for (a, b) in q.chunks_exact(16).zip(key.chunks_exact(16)) {
                for ((column, a), b) in columns.iter_mut().zip(a).zip(b) {
                    *column = a.mul_add(*b, *column);
                }
            }
            *score = columns.iter().sum::<f32>() * scale;
            most = if *score > most { *score } else { most };
        }
        out.fill(0.0);
        let mut sum = 0.0;
        for (score, value) in scores.iter().zip(v.chunks_exact(q.len())) {
            let weight = (score - most).exp();
            sum += weight;
            for (out, value) in out.iter_mut().zip(value) {
                *out = weight.mul_add(*value, *out);
            }
        }
        for out in out.iter_mut() {
            *out /= sum;
        }
    }
}
