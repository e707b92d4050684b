//! What this machine can do at most, measured: copying, and fused products of f32.

use std::hint::black_box;
use std::time::Instant;

use rayon::prelude::*;

pub(crate) struct Limits {
    pub(crate) threads: usize,
    pub(crate) gb_per_s: f64,
    pub(crate) gflops: f64,
}

/// Elements of f32 of a copy.
const COPIED: usize = 1 << 25;
/// Sums that a thread keeps, enough to hide how long one takes.
const SUMS: usize = 256;
const STEPS: usize = 1 << 16;

impl Limits {
    /// The best of several tries, on all threads.
    pub(crate) fn measured() -> Limits {
        let (from, mut to) = (vec![1.0f32; COPIED], vec![0.0f32; COPIED]);
        let mut copy = f64::INFINITY;
        for _ in 0..9 {
            let started = Instant::now();
            crate::plain::copy(&from, black_box(&mut to));
            copy = copy.min(started.elapsed().as_secs_f64());
        }
        let threads = rayon::current_num_threads();
        let mut products = f64::INFINITY;
        for _ in 0..9 {
            let started = Instant::now();
            (0..threads).into_par_iter().for_each(|at| {
                black_box(chains(at as f32));
            });
            products = products.min(started.elapsed().as_secs_f64());
        }
        let flops = 2.0 * (SUMS * STEPS * threads) as f64;
        Limits { threads, gb_per_s: 8.0 * COPIED as f64 / copy * 1e-9, gflops: flops / products * 1e-9 }
    }
}

fn chains(start: f32) -> f32 {
    #[inline(always)]
    fn plain(start: f32) -> f32 {
        let mut sums = [start; SUMS];
        for _ in 0..STEPS {
            for sum in &mut sums {
                *sum = sum.mul_add(0.999, 0.001);
            }
        }
        sums.iter().sum()
    }
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx512f,avx512vl")]
        fn wide(start: f32) -> f32 {
            plain(start)
        }
        #[target_feature(enable = "avx2,fma")]
        fn narrow(start: f32) -> f32 {
            plain(start)
        }
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
            // SAFETY: the processor has these instructions.
            return unsafe { wide(start) };
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the processor has these instructions.
            return unsafe { narrow(start) };
        }
    }
    plain(start)
}
