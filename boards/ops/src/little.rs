//! What ops of a few elements cost: launched one after another before any of them is waited for, and each waited for by itself.

use std::time::Instant;

use vyre::{Array, Engine, Error};
use vyre_ops::{Boundary, Ops};

use crate::data::words;

const ROUNDS: usize = 15;
/// Runs of a batch.
const BATCH: usize = 256;

type Run = fn(&Array<f32>) -> Result<Array<f32>, Error>;

/// The same shapes as in `peers.py`.
const OPS: [(&str, [usize; 2], Run); 8] = [
    ("map a*a+1 of 16", [1, 16], |x| (x * x + 1.0).eval()),
    ("map a*a+1 of 65536", [256, 256], |x| (x * x + 1.0).eval()),
    ("sum of 16", [1, 16], |x| x.sum()),
    ("sum of 65536", [256, 256], |x| x.sum()),
    ("softmax of 32 x 128", [32, 128], |x| x.softmax()),
    ("stencil of 64 x 64", [64, 64], |x| {
        x.stencil(&[0.0, 0.25, 0.0, 0.25, 0.5, 0.25, 0.0, 0.25, 0.0], &[3, 3], Boundary::Zero)
    }),
    ("cumsum of 4096", [1, 4096], |x| x.cumsum()),
    ("matmul 64", [64, 64], |x| x.matmul(x)),
];

/// Prints microseconds of a run.
pub(crate) fn print(engine: &Engine, only: &[&String]) {
    println!("| op | in batches, µs | one at a time, µs |\n|---|---|---|");
    for (name, shape, run) in OPS {
        if !only.is_empty() && !only.iter().any(|only| name.starts_with(only.as_str())) {
            continue;
        }
        let values: Vec<f32> =
            words(shape[0] * shape[1]).iter().map(|word| (word >> 8) as f32 / (1 << 24) as f32).collect();
        let x = engine.from_shape(shape, &values).expect("an array");
        let batch = || {
            let made: Vec<Array<f32>> = (0..BATCH).map(|_| run(&x).expect("it runs")).collect();
            made.iter().for_each(|array| array.wait().expect("it runs"));
        };
        let single = || (0..BATCH).for_each(|_| run(&x).and_then(|array| array.wait()).expect("it runs"));
        // The engine learns, and compiles what it tries.
        let begun = Instant::now();
        while begun.elapsed().as_secs_f64() < 0.4 {
            single();
        }
        println!("| {name} | {:.2} | {:.2} |", median(batch), median(single));
    }
}

fn median(run: impl Fn()) -> f64 {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let started = Instant::now();
            run();
            started.elapsed().as_secs_f64() * 1e6 / BATCH as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[ROUNDS / 2]
}
