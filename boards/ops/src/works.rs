//! What is measured, and how each library does it.

use std::cell::RefCell;
use std::hint::black_box;
use std::sync::Arc;

use gemm::Parallelism;
use ndarray::{ArrayView1, ArrayView2, ArrayViewMut2, Axis, Zip};
use rayon::prelude::*;
use rustfft::num_complex::Complex32;
use rustfft::{Fft, FftPlanner};
use voracious_radix_sort::RadixSort;
use vyre::{Array, Engine};
use vyre_ops::{Ops, Patterns, crc32_bytes};

use crate::{Work, plain};

const ELEMENTS: usize = 1 << 24;
const KEYS: usize = 1 << 22;
const SIDE: usize = 2048;
const BODIES: usize = 1 << 12;
const BYTES: usize = 1 << 26;
/// Bytes of a message that has a checksum, and of the part of a text that a thread searches.
const MESSAGE: usize = 4096;
const PART: usize = 1 << 20;
const NEEDLE: &[u8] = b"Zarathustra spoke";

/// Numbers and texts that the works share, on the host and in an engine that has this processor alone.
pub(crate) struct Data {
    engine: Engine,
    x: Vec<f32>,
    y: Vec<f32>,
    keys: Vec<u32>,
    codes: Vec<u32>,
    text: Vec<u8>,
    words: Vec<Vec<u8>>,
    out: RefCell<Vec<f32>>,
    sorted: RefCell<Vec<u32>>,
    kept: RefCell<Vec<f32>>,
}

/// Words that look random.
fn words(count: usize) -> Vec<u32> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u32
    };
    (0..count).map(|_| next()).collect()
}

impl Data {
    pub(crate) fn new() -> Data {
        let all = Engine::builder().without_disk().open().expect("the engine opens");
        let cpu = all.backend("cpu").expect("the processor is here");
        let engine = Engine::builder().without_disk().without_default_backends().with_backend(cpu, 1).open();
        let unit = |word: &u32| (word >> 8) as f32 / (1u32 << 23) as f32 - 1.0;
        let random = words(2 * ELEMENTS);
        // Letters about as often as in English, and what is looked for a few times.
        let letters = b"etaoinshrdlucmfwypvbgkqjxz     ETAOINSHRDLU,.\n";
        let mut text: Vec<u8> =
            words(BYTES).iter().map(|word| letters[(word % 64).min(word >> 8 & 63) as usize % letters.len()]).collect();
        for at in (1..8).map(|part| part * BYTES / 8) {
            text[at..at + NEEDLE.len()].copy_from_slice(NEEDLE);
        }
        let words_of = words(1 << 12);
        let pattern = |at: usize| words_of[at * 8..at * 8 + 8].iter().map(|word| b'a' + (word % 26) as u8).collect();
        Data {
            engine: engine.expect("the engine opens"),
            x: random[..ELEMENTS].iter().map(unit).collect(),
            y: random[ELEMENTS..].iter().map(unit).collect(),
            keys: random[..KEYS].to_vec(),
            codes: random[..ELEMENTS].iter().map(|word| word & 255).collect(),
            text,
            words: (0..256).map(pattern).collect(),
            out: RefCell::new(vec![0.0; ELEMENTS]),
            sorted: RefCell::new(Vec::new()),
            kept: RefCell::new(Vec::new()),
        }
    }

    fn array(&self, shape: &[usize], values: &[f32]) -> Array<f32> {
        let count: usize = shape.iter().product();
        self.engine.from_shape(shape, &values[..count]).expect("an array")
    }
}

fn done<T: vyre::Element>(result: Result<Array<T>, vyre::Error>) {
    result.and_then(|array| array.wait()).expect("it runs");
}

fn view(values: &[f32]) -> ArrayView1<'_, f32> {
    ArrayView1::from(values)
}

fn table(values: &[f32], side: usize) -> ArrayView2<'_, f32> {
    ArrayView2::from_shape((side, side), &values[..side * side]).expect("a table")
}

/// Works of one kind follow each other.
pub(crate) fn all(data: &Data) -> Vec<Work<'_>> {
    let mut works = elements(data);
    works.extend(moves(data));
    works.extend(tables(data));
    works.extend(products(data));
    works.extend(waves(data));
    works.extend(texts(data));
    works
}

fn elements(data: &Data) -> Vec<Work<'_>> {
    let n = ELEMENTS;
    let (a, b) = (data.array(&[n], &data.x), data.array(&[n], &data.y));
    let (a2, b2, a3, a4, a5) = (a.clone(), b.clone(), a.clone(), a.clone(), a.clone());
    vec![
        Work {
            name: "map a*b+1",
            bytes: 12.0 * n as f64,
            operations: 2.0 * n as f64,
            ours: Box::new(move || done((&a * &b + 1.0).eval())),
            peers: vec![
                ("rayon", Box::new(move || plain::map(&data.x, &data.y, &mut data.out.borrow_mut()))),
                (
                    "ndarray",
                    Box::new(move || {
                        let mut out = data.out.borrow_mut();
                        let out = ndarray::ArrayViewMut1::from(&mut out[..]);
                        Zip::from(out).and(view(&data.x)).and(view(&data.y)).for_each(|out, a, b| *out = a * b + 1.0);
                    }),
                ),
            ],
        },
        Work {
            name: "sum",
            bytes: 4.0 * n as f64,
            operations: n as f64,
            ours: Box::new(move || done(a2.sum())),
            peers: vec![
                (
                    "rayon",
                    Box::new(move || {
                        let _ = black_box(plain::sum(&data.x));
                    }),
                ),
                (
                    "ndarray",
                    Box::new(move || {
                        let _ = black_box(view(&data.x).sum());
                    }),
                ),
            ],
        },
        Work {
            name: "dot",
            bytes: 8.0 * n as f64,
            operations: 2.0 * n as f64,
            ours: Box::new(move || done(a3.dot(&b2))),
            peers: vec![(
                "ndarray",
                Box::new(move || {
                    let _ = black_box(view(&data.x).dot(&view(&data.y)));
                }),
            )],
        },
        Work {
            name: "argmax",
            bytes: 4.0 * n as f64,
            operations: n as f64,
            ours: Box::new(move || done(a4.argmax())),
            peers: vec![(
                "rayon",
                Box::new(move || {
                    let _ = black_box(plain::argmax(&data.x));
                }),
            )],
        },
        Work {
            name: "cumsum",
            bytes: 8.0 * n as f64,
            operations: n as f64,
            ours: Box::new(move || done(a5.cumsum())),
            peers: vec![("rayon", Box::new(move || plain::cumsum(&data.x, &mut data.out.borrow_mut())))],
        },
    ]
}

fn moves(data: &Data) -> Vec<Work<'_>> {
    let n = ELEMENTS;
    let a = data.array(&[n], &data.x);
    let (codes, keys) = (data.engine.array(&data.codes).expect("codes"), data.engine.array(&data.keys).expect("keys"));
    let places: Vec<u32> = data.keys.iter().map(|key| key % n as u32).collect();
    let (places_here, a2) = (data.engine.array(&places).expect("places"), a.clone());
    vec![
        Work {
            name: "compact",
            bytes: 6.0 * n as f64,
            operations: n as f64,
            ours: Box::new(move || done(a.compact(&a.lazy().gt(0.0)).map(|found| found.elements))),
            peers: vec![("rayon", Box::new(move || plain::compact(&data.x, &mut data.kept.borrow_mut())))],
        },
        Work {
            name: "histogram",
            bytes: 4.0 * n as f64,
            operations: n as f64,
            ours: Box::new(move || done(codes.histogram(256))),
            peers: vec![("rayon", Box::new(move || drop(black_box(plain::histogram(&data.codes)))))],
        },
        Work {
            name: "sort u32",
            bytes: 8.0 * KEYS as f64,
            operations: KEYS as f64,
            ours: Box::new(move || done(keys.sort())),
            peers: vec![
                ("rayon", Box::new(move || plain::sort(&data.keys, &mut data.sorted.borrow_mut()))),
                (
                    "voracious",
                    Box::new(move || {
                        let mut sorted = data.sorted.borrow_mut();
                        sorted.clear();
                        sorted.extend_from_slice(&data.keys);
                        sorted.voracious_mt_sort(rayon::current_num_threads());
                    }),
                ),
            ],
        },
        Work {
            name: "gather",
            bytes: 12.0 * KEYS as f64,
            operations: 0.0,
            ours: Box::new(move || done(a2.gather(&places_here))),
            peers: vec![(
                "rayon",
                Box::new(move || plain::gather(&data.x, &places, &mut data.out.borrow_mut()[..KEYS])),
            )],
        },
    ]
}

fn tables(data: &Data) -> Vec<Work<'_>> {
    let s = SIDE * SIDE;
    let t = data.array(&[SIDE, SIDE], &data.x);
    let (t2, t3, t4, t5) = (t.clone(), t.clone(), t.clone(), t.clone());
    let weights = [0.0, 0.25, 0.0, 0.25, 0.5, 0.25, 0.0, 0.25, 0.0];
    vec![
        Work {
            name: "sum of columns",
            bytes: 4.0 * s as f64,
            operations: s as f64,
            ours: Box::new(move || done(t5.sum_axis(0))),
            peers: vec![("ndarray", Box::new(move || drop(black_box(table(&data.x, SIDE).sum_axis(Axis(0))))))],
        },
        Work {
            name: "softmax of rows",
            bytes: 8.0 * s as f64,
            operations: 4.0 * s as f64,
            ours: Box::new(move || done(t.softmax())),
            peers: vec![(
                "rayon",
                Box::new(move || plain::softmax(&data.x[..s], &mut data.out.borrow_mut()[..s], SIDE)),
            )],
        },
        Work {
            name: "layer norm",
            bytes: 8.0 * s as f64,
            operations: 4.0 * s as f64,
            ours: Box::new(move || done(t2.layer_norm(1e-5))),
            peers: vec![(
                "rayon",
                Box::new(move || plain::layer_norm(&data.x[..s], &mut data.out.borrow_mut()[..s], SIDE)),
            )],
        },
        Work {
            name: "transpose",
            bytes: 8.0 * s as f64,
            operations: 0.0,
            ours: Box::new(move || done(t3.transpose())),
            peers: vec![
                (
                    "rayon",
                    Box::new(move || plain::transpose(&data.x[..s], &mut data.out.borrow_mut()[..s], SIDE, SIDE)),
                ),
                (
                    "ndarray",
                    Box::new(move || {
                        let mut out = data.out.borrow_mut();
                        let mut out = ArrayViewMut2::from_shape((SIDE, SIDE), &mut out[..s]).expect("a table");
                        out.assign(&table(&data.x, SIDE).t());
                    }),
                ),
            ],
        },
        Work {
            name: "stencil of 5 points",
            bytes: 8.0 * s as f64,
            operations: 10.0 * s as f64,
            ours: Box::new(move || done(t4.stencil(&weights, &[3, 3], vyre_ops::Boundary::Zero))),
            peers: vec![(
                "rayon",
                Box::new(move || plain::stencil(&data.x[..s], &mut data.out.borrow_mut()[..s], SIDE)),
            )],
        },
    ]
}

fn products(data: &Data) -> Vec<Work<'_>> {
    let mut works = Vec::new();
    for (name, side) in [("matmul 512", 512usize), ("matmul 2048", 2048)] {
        let (a, b) = (data.array(&[side, side], &data.x), data.array(&[side, side], &data.y));
        let s = side * side;
        works.push(Work {
            name,
            bytes: 12.0 * s as f64,
            operations: 2.0 * (side as f64).powi(3),
            ours: Box::new(move || done(a.matmul(&b))),
            peers: vec![
                (
                    "rayon",
                    Box::new(move || {
                        plain::matmul(&data.x[..s], &data.y[..s], &mut data.out.borrow_mut()[..s], side, side);
                    }),
                ),
                ("gemm", Box::new(move || product(&data.x, &data.y, &mut data.out.borrow_mut(), side))),
                ("ndarray", Box::new(move || drop(black_box(table(&data.x, side).dot(&table(&data.y, side)))))),
            ],
        });
    }
    let bodies = data.array(&[BODIES, 4], &data.x);
    works.push(Work {
        name: "bodies",
        bytes: 28.0 * BODIES as f64,
        operations: 20.0 * (BODIES as f64).powi(2),
        ours: Box::new(move || done(bodies.accelerations(1e-2))),
        peers: vec![(
            "rayon",
            Box::new(move || plain::bodies(&data.x[..4 * BODIES], &mut data.out.borrow_mut()[..3 * BODIES])),
        )],
    });
    works
}

fn product(a: &[f32], b: &[f32], out: &mut [f32], side: usize) {
    let stride = side as isize;
    // SAFETY: the three matrices have so many rows and columns, one row after another.
    unsafe {
        gemm::gemm(
            side,
            side,
            side,
            out.as_mut_ptr(),
            1,
            stride,
            false,
            a.as_ptr(),
            1,
            stride,
            b.as_ptr(),
            1,
            stride,
            0.0f32,
            1.0f32,
            false,
            false,
            false,
            Parallelism::Rayon(0),
        );
    }
}

fn waves(data: &Data) -> Vec<Work<'_>> {
    let mut works = Vec::new();
    let all = ELEMENTS / 4;
    for (name, points) in [("fft of 256", 256usize), ("fft of 16384", 1 << 14)] {
        let here = data.array(&[all / points, points, 2], &data.x);
        let fft: Arc<dyn Fft<f32>> = FftPlanner::new().plan_fft_forward(points);
        let start: Vec<Complex32> =
            data.x[..2 * all].as_chunks().0.iter().map(|[re, im]| Complex32::new(*re, *im)).collect();
        let mut room = vec![Complex32::default(); all];
        works.push(Work {
            name,
            bytes: 16.0 * all as f64,
            operations: 5.0 * all as f64 * (points as f64).log2(),
            ours: Box::new(move || done(here.fft())),
            peers: vec![(
                "rustfft",
                Box::new(move || {
                    room.par_chunks_mut(points).zip(start.par_chunks(points)).for_each_init(
                        || vec![Complex32::default(); fft.get_inplace_scratch_len()],
                        |scratch, (out, x)| {
                            out.copy_from_slice(x);
                            fft.process_with_scratch(out, scratch);
                        },
                    );
                }),
            )],
        });
    }
    works
}

/// Where something begins, found by threads that have a part of the text each and look a little beyond it.
fn in_parts(text: &[u8], beyond: usize, find: impl Fn(&[u8], usize) -> Vec<usize> + Sync) -> Vec<usize> {
    let parts = text.len().div_ceil(PART);
    let found: Vec<Vec<usize>> = (0..parts)
        .into_par_iter()
        .map(|part| {
            let (start, end) = (part * PART, (part + 1) * PART);
            find(&text[start..text.len().min(end + beyond)], end - start).into_iter().map(|at| start + at).collect()
        })
        .collect();
    found.concat()
}

fn texts(data: &Data) -> Vec<Work<'_>> {
    let text = data.engine.array(&data.text).expect("a text");
    let patterns: Vec<&[u8]> = data.words.iter().map(Vec::as_slice).collect();
    let one = Patterns::new(&data.engine, &[b"Q"]).expect("a pattern");
    let needle = Patterns::new(&data.engine, &[NEEDLE]).expect("a pattern");
    let few = Patterns::new(&data.engine, &patterns[..8]).expect("patterns");
    let many = Patterns::new(&data.engine, &patterns).expect("patterns");
    let messages = data.engine.from_shape([BYTES / MESSAGE, MESSAGE], &data.text).expect("messages");
    let (text2, text3, text4) = (text.clone(), text.clone(), text.clone());
    let n = BYTES as f64;
    let most = 1 << 20;
    let automaton = |count: usize| aho_corasick::AhoCorasick::new(&patterns[..count]).expect("an automaton");
    let (few_of, many_of) = (automaton(8), automaton(patterns.len()));
    let finder = memchr::memmem::Finder::new(NEEDLE).into_owned();
    let finder2 = finder.clone();
    let search = |automaton: aho_corasick::AhoCorasick| {
        move || {
            let find = |part: &[u8], end: usize| {
                automaton.find_overlapping_iter(part).map(|found| found.start()).filter(|at| *at < end).collect()
            };
            black_box(in_parts(&data.text, 16, find));
        }
    };
    vec![
        Work {
            name: "find a byte",
            bytes: n,
            operations: n,
            ours: Box::new(move || done(one.find(&text, most).map(|found| found.positions.elements))),
            peers: vec![
                (
                    "memchr",
                    Box::new(move || drop(black_box(memchr::memchr_iter(b'Q', &data.text).collect::<Vec<_>>()))),
                ),
                (
                    "memchr and rayon",
                    Box::new(move || {
                        let find = |part: &[u8], _: usize| memchr::memchr_iter(b'Q', part).collect();
                        drop(black_box(in_parts(&data.text, 0, find)));
                    }),
                ),
            ],
        },
        Work {
            name: "find a pattern",
            bytes: n,
            operations: n,
            ours: Box::new(move || done(needle.find(&text2, most).map(|found| found.positions.elements))),
            peers: vec![
                ("memchr", Box::new(move || drop(black_box(finder.find_iter(&data.text).collect::<Vec<_>>())))),
                (
                    "memchr and rayon",
                    Box::new(move || {
                        let find = |part: &[u8], end: usize| finder2.find_iter(part).filter(|at| *at < end).collect();
                        drop(black_box(in_parts(&data.text, NEEDLE.len(), find)));
                    }),
                ),
            ],
        },
        Work {
            name: "find 8 patterns",
            bytes: n,
            operations: n,
            ours: Box::new(move || done(few.find(&text3, most).map(|found| found.positions.elements))),
            peers: vec![(
                "aho-corasick and rayon",
                Box::new(move || {
                    let find = |part: &[u8], end: usize| {
                        few_of.find_iter(part).map(|found| found.start()).filter(|at| *at < end).collect()
                    };
                    drop(black_box(in_parts(&data.text, 16, find)));
                }),
            )],
        },
        Work {
            name: "find 256 patterns",
            bytes: n,
            operations: n,
            ours: Box::new(move || done(many.find(&text4, most).map(|found| found.positions.elements))),
            peers: vec![("aho-corasick and rayon", Box::new(search(many_of)))],
        },
        Work {
            name: "crc32 of 4 KB",
            bytes: n,
            operations: n,
            ours: Box::new(move || done(crc32_bytes(&messages))),
            peers: vec![(
                "crc32fast and rayon",
                Box::new(move || {
                    drop(black_box(data.text.par_chunks(MESSAGE).map(crc32fast::hash).collect::<Vec<_>>()));
                }),
            )],
        },
    ]
}
