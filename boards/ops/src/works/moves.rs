//! Elements that go elsewhere, and how many of each there are.

use std::hint::black_box;

use rayon::prelude::*;
use voracious_radix_sort::RadixSort;
use vyre_ops::Ops;

use crate::data::Data;
use crate::measure::{Work, under_way};
use crate::plain;

pub(super) fn works(data: &Data) -> Vec<Work<'_>> {
    let (n, keys) = (data.sizes.elements, data.sizes.keys);
    let (a, x) = data.both(&data.x[..n]);
    let a2 = a.clone();
    let (codes, plain_codes) = data.both(&data.codes);
    let equal = data.engine.full(n, 7u32).expect("equal codes");
    let unsorted = data.engine.array(&data.keys).expect("keys");
    let places = data.engine.array(&data.places).expect("places");
    let (unsorted2, places2) = (unsorted.clone(), places.clone());
    let (each, each_key) = (n as f64, keys as f64);
    let (halves, plain_halves) = data.both(&data.x[..keys].iter().map(|&x| half::f16::from_f32(x)).collect::<Vec<_>>());
    let mut sorted_halves = plain_halves.to_vec();
    vec![
        Work::new("compact", 6 * n, each, move || under_way(a.compact(&a.lazy().gt(0.0)).map(|found| found.elements)))
            .beside("rayon", move || plain::compact(x, &mut data.kept.borrow_mut())),
        Work::new("histogram, random", 4 * n, each, move || under_way(codes.histogram(256)))
            .beside("rayon", move || drop(black_box(plain::histogram(plain_codes)))),
        Work::new("histogram, all equal", 4 * n, each, move || under_way(equal.histogram(256))),
        Work::new("sort u32", 8 * keys, each_key, move || under_way(unsorted.sort()))
            .beside("rayon", move || plain::sort(&data.keys, &mut data.sorted.borrow_mut()))
            .beside("voracious", move || {
                let mut sorted = data.sorted.borrow_mut();
                sorted.clear();
                sorted.extend_from_slice(&data.keys);
                sorted.voracious_mt_sort(rayon::current_num_threads());
            }),
        Work::new("sort f16", 4 * keys, each_key, move || under_way(halves.sort())).beside("rayon", move || {
            sorted_halves.copy_from_slice(plain_halves);
            sorted_halves.par_sort_unstable_by(half::f16::total_cmp);
        }),
        Work::new("sort pairs", 16 * keys, each_key, move || {
            under_way(unsorted2.sort_with(&places2).map(|pairs| pairs.1))
        }),
        Work::new("gather", 12 * keys, 0.0, move || under_way(a2.gather(&places)))
            .beside("rayon", move || plain::gather(x, &data.places, &mut data.out.borrow_mut()[..keys])),
    ]
}
