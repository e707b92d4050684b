//! One element at a time, and all of them to one.

use std::hint::black_box;

use ndarray::{ArrayView1, ArrayViewMut1, Zip};
use vyre_ops::Ops;

use crate::data::Data;
use crate::measure::{Work, under_way};
use crate::plain;

fn view(values: &[f32]) -> ArrayView1<'_, f32> {
    ArrayView1::from(values)
}

pub(super) fn works(data: &Data) -> Vec<Work<'_>> {
    let n = data.sizes.elements;
    let ((a, x), (b, y)) = (data.both(&data.x[..n]), data.both(&data.y[..n]));
    let [a1, a2, a3, a4, a5, a6] = [(); 6].map(|()| a.clone());
    let [b2, b4] = [(); 2].map(|()| b.clone());
    let each = n as f64;
    vec![
        Work::new("copy", 8 * n, 0.0, move || under_way((&a1 + 0.0).eval()))
            .beside("rayon", move || plain::copy(x, &mut data.out.borrow_mut()[..n])),
        Work::new("map a*b+1", 12 * n, 2.0 * each, move || under_way((&a2 * &b2 + 1.0).eval()))
            .beside("rayon", move || plain::map(x, y, &mut data.out.borrow_mut()[..n]))
            .beside("ndarray", move || {
                let mut out = data.out.borrow_mut();
                let out = ArrayViewMut1::from(&mut out[..n]);
                Zip::from(out).and(view(x)).and(view(y)).for_each(|out, a, b| *out = a * b + 1.0);
            }),
        Work::new("sum", 4 * n, each, move || under_way(a3.sum()))
            .beside("rayon", move || _ = black_box(plain::sum(x)))
            .beside("ndarray", move || _ = black_box(view(x).sum())),
        Work::new("sum of a*b", 8 * n, 2.0 * each, move || under_way(a4.dot(&b4)))
            .beside("ndarray", move || _ = black_box(view(x).dot(&view(y)))),
        Work::new("argmax", 4 * n, each, move || under_way(a5.argmax()))
            .beside("rayon", move || _ = black_box(plain::argmax(x))),
        Work::new("cumsum", 8 * n, each, move || under_way(a6.cumsum()))
            .beside("rayon", move || plain::cumsum(x, &mut data.out.borrow_mut()[..n])),
        Work::new("top 64", 4 * n, each, move || under_way(a.top_k(64).map(|found| found.0))),
    ]
}
