//! Tables: rows, columns, and neighbours in both.

use std::hint::black_box;

use ndarray::{ArrayView2, ArrayViewMut2, Axis};
use vyre_ops::{Boundary, Ops};

use crate::data::Data;
use crate::measure::{Work, under_way};
use crate::plain;

/// A stencil of the five points around and at an element.
const FIVE: [f64; 9] = [0.0, 0.25, 0.0, 0.25, 0.5, 0.25, 0.0, 0.25, 0.0];

pub(super) fn table(values: &[f32], side: usize) -> ArrayView2<'_, f32> {
    ArrayView2::from_shape((side, side), &values[..side * side]).expect("a table")
}

/// Rows of the chain, and how many of its results are kept.
const CHAINED: usize = 1000;
const KEPT: usize = 64;

pub(super) fn works(data: &Data) -> Vec<Work<'_>> {
    let side = data.sizes.side;
    let chained = data.array(&[CHAINED, side], &data.x);
    let (by_rows, rows_alone) = (chained.clone(), chained.clone());
    let s = side * side;
    let each = s as f64;
    let (all, x) = data.both(&data.x[..s]);
    let all = all.shaped([side, side]).expect("a table");
    let [t1, t2, t3, t4] = [(); 4].map(|()| all.clone());
    vec![
        Work::new("sum of columns", 4 * s, each, move || under_way(all.sum_axis(0)))
            .beside("ndarray", move || drop(black_box(table(x, side).sum_axis(Axis(0))))),
        Work::new("softmax of rows", 8 * s, 4.0 * each, move || under_way(t1.softmax()))
            .beside("rayon", move || plain::softmax(x, &mut data.out.borrow_mut()[..s], side)),
        Work::new("layer norm", 8 * s, 4.0 * each, move || under_way(t2.layer_norm(1e-5)))
            .beside("rayon", move || plain::layer_norm(x, &mut data.out.borrow_mut()[..s], side)),
        Work::new("transpose", 8 * s, 0.0, move || under_way(t3.transpose()))
            .beside("rayon", move || plain::transpose(x, &mut data.out.borrow_mut()[..s], side, side))
            .beside("ndarray", move || {
                let mut out = data.out.borrow_mut();
                let mut out = ArrayViewMut2::from_shape((side, side), &mut out[..s]).expect("a table");
                out.assign(&table(x, side).t());
            }),
        Work::new("stencil of 5 points", 8 * s, 10.0 * each, move || {
            under_way(t4.stencil(&FIVE, &[3, 3], Boundary::Zero))
        })
        .beside("rayon", move || plain::stencil(x, &mut data.out.borrow_mut()[..s], side)),
        // What it has to move at least: all elements once.
        Work::new(
            "layer norm, softmax, top 64 of rows",
            4 * CHAINED * side,
            8.0 * (CHAINED * side) as f64,
            move || {
                let found = by_rows.layer_norm(1e-5).and_then(|x| x.softmax()?.top_k_axis(KEPT, 1));
                under_way(found.map(|found| found.0))
            },
        ),
        Work::new("top 64 of rows", 4 * CHAINED * side, (CHAINED * side) as f64, move || {
            under_way(rows_alone.top_k_axis(KEPT, 1).map(|found| found.0))
        }),
        Work::new("layer norm, softmax, top 64", 4 * CHAINED * side, 8.0 * (CHAINED * side) as f64, move || {
            under_way(chained.layer_norm(1e-5).and_then(|x| x.softmax()?.top_k(KEPT)).map(|found| found.0))
        }),
    ]
}
