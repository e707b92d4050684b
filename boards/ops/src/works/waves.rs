//! Fourier transforms.

use std::sync::Arc;

use rayon::prelude::*;
use rustfft::num_complex::Complex32;
use rustfft::{Fft, FftPlanner};
use vyre_ops::Ops;

use crate::data::Data;
use crate::measure::{Work, under_way};

pub(super) fn works(data: &Data) -> Vec<Work<'_>> {
    let all = data.x.len() / 4;
    let mut works = Vec::new();
    for points in data.sizes.points {
        let (here, x) = data.both(&data.x[..2 * all]);
        let here = here.shaped([all / points, points, 2]).expect("waves");
        let fft: Arc<dyn Fft<f32>> = FftPlanner::new().plan_fft_forward(points);
        let mut room = vec![Complex32::default(); all];
        let flops = 5.0 * all as f64 * (points as f64).log2();
        works.push(Work::new(format!("fft of {points}"), 16 * all, flops, move || under_way(here.fft())).beside(
            "rustfft",
            move || {
                let parts = x.par_chunks(2 * points);
                room.par_chunks_mut(points).zip(parts).for_each_init(
                    || vec![Complex32::default(); fft.get_inplace_scratch_len()],
                    |scratch, (out, x)| {
                        let numbers = x.as_chunks().0.iter().map(|[re, im]| Complex32::new(*re, *im));
                        out.iter_mut().zip(numbers).for_each(|(out, x)| *out = x);
                        fft.process_with_scratch(out, scratch);
                    },
                );
            },
        ));
    }
    works
}
