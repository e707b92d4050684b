//! Ops next to plain Rust with rayon, interleaved in one process.
//!
//! `cargo bench -p vyre-ops --bench board` prints a table and writes `ops-board.json` beside the build; `-- --docs` also renews the table in
//! `docs/benchmarks/ops.md`. `-- --on cuda --large` measures a GPU at the sizes of its board (without peers: those are in `peers.py`, which
//! is run in the same call), and `--medium` at some of them; `-- sum sort` takes only these works.

mod peers;

use std::fmt::Write;
use std::hint::black_box;
use std::time::{Duration, Instant};

use serde_json::json;
use vyre::{Array, Engine};
use vyre_ops::Ops;

const ROUNDS: usize = 11;
/// Runs before a GPU is measured.
const WARM_RUNS: usize = 200;
const WARM_TIME: Duration = Duration::from_secs(4);

struct Work<'a> {
    name: String,
    /// The least bytes that it has to move, or operations.
    bytes: f64,
    operations: f64,
    /// Launches it, and gives what waits for the result.
    ours: Box<dyn FnMut() -> Wait + 'a>,
    peer: Option<Box<dyn FnMut() + 'a>>,
}

struct Works<'a> {
    list: Vec<Work<'a>>,
    with_peers: bool,
}

impl<'a> Works<'a> {
    fn add(
        &mut self,
        name: &str,
        bytes: usize,
        operations: f64,
        ours: Box<dyn FnMut() -> Wait + 'a>,
        peer: Option<Box<dyn FnMut() + 'a>>,
    ) {
        let peer = peer.filter(|_| self.with_peers);
        self.list.push(Work { name: name.to_owned(), bytes: bytes as f64, operations, ours, peer });
    }
}

struct Row {
    name: String,
    ours_ms: f64,
    peer_ms: Option<f64>,
    /// Peer's time over ours: median, and from the worst to the best round.
    ratio: Option<[f64; 3]>,
    gb_per_s: f64,
    gflops: f64,
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Waits for a launch.
type Wait = Box<dyn FnOnce()>;

/// A peer, which is done when it returns.
fn at_once(run: &mut dyn FnMut()) -> Wait {
    run();
    Box::new(|| {})
}

/// Milliseconds of a run, as the mean of several that are launched one after the other before they are waited for.
fn timed(run: &mut dyn FnMut() -> Wait, runs: u32) -> f64 {
    let started = Instant::now();
    let launched: Vec<Wait> = (0..runs).map(|_| run()).collect();
    launched.into_iter().for_each(|wait| wait());
    started.elapsed().as_secs_f64() * 1e3 / f64::from(runs)
}

/// Without a peer that runs in this process, short works are launched in batches, as the peers in `peers.py` are: what is measured is the device.
fn measure(work: &mut Work<'_>, in_batches: bool) -> Row {
    let (mut ours, mut peers) = (Vec::new(), Vec::new());
    let mut runs = 1;
    if in_batches {
        // The engine has met the work before, as in a program that goes on: it has compared variants and learnt which to use.
        let started = Instant::now();
        (0..WARM_RUNS).take_while(|_| started.elapsed() < WARM_TIME).for_each(|_| _ = timed(&mut *work.ours, 1));
    }
    for round in 0..=ROUNDS {
        let own = timed(&mut *work.ours, runs);
        let other = work.peer.as_mut().map(|peer| timed(&mut || at_once(&mut **peer), 1));
        if round == 0 && in_batches {
            let again = timed(&mut *work.ours, 1);
            runs = (8.0 / again).clamp(1.0, 16.0) as u32;
        }
        // The first round compiles and touches memory.
        if round > 0 {
            ours.push(own);
            peers.extend(other);
        }
    }
    let mut ratios: Vec<f64> = ours.iter().zip(&peers).map(|(own, peer)| peer / own).collect();
    let ratio = (!ratios.is_empty()).then(|| [median(&mut ratios), ratios[0], ratios[ratios.len() - 1]]);
    let ours_ms = median(&mut ours);
    Row {
        name: work.name.clone(),
        ours_ms,
        peer_ms: (!peers.is_empty()).then(|| median(&mut peers)),
        ratio,
        gb_per_s: work.bytes / ours_ms * 1e-6,
        gflops: work.operations / ours_ms * 1e-6,
    }
}

fn engine(on: &str) -> Engine {
    let all = Engine::builder().without_disk().open().expect("the engine opens");
    let only = all.backend(on).expect("the backend is here");
    let builder = Engine::builder().without_disk().without_default_backends().with_backend(only, 1);
    builder.open().expect("the engine opens")
}

/// Numbers from -1 to 1 that look random.
fn units(count: usize) -> Vec<f32> {
    words(count).into_iter().map(|word| (word >> 8) as f32 / (1u32 << 23) as f32 - 1.0).collect()
}

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

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let on = args.iter().position(|arg| arg == "--on").and_then(|at| args.get(at + 1)).map_or("cpu", String::as_str);
    let large = args.iter().any(|arg| arg == "--large");
    let docs = args.iter().any(|arg| arg == "--docs");
    let only: Vec<&str> = args.iter().map(String::as_str).filter(|arg| !arg.starts_with("--") && *arg != on).collect();
    let engine = engine(on);
    let with_peers = on == "cpu";
    // Elements, keys, sides of tables and of matrices.
    let medium = args.iter().any(|arg| arg == "--medium");
    let [n, keys, side, matrix] = match (large, medium) {
        (true, _) => [1 << 28, 1 << 26, 8192, 4096],
        (_, true) => [1 << 26, 1 << 26, 8192, 4096],
        _ => [1 << 24, 1 << 22, 2048, 512],
    };

    let (x, y, k) = (units(n), units(n), words(keys));
    let (a, b) = (engine.array(&x).expect("a"), engine.array(&y).expect("b"));
    let codes: Vec<u32> = words(n).into_iter().map(|word| word & 255).collect();
    let (codes_here, equal_here) = (engine.array(&codes).expect("codes"), engine.full(n, 7u32).expect("equal"));
    let keys_here = engine.array(&k).expect("keys");
    let table = engine.from_shape([side, side], &x[..side * side]).expect("table");
    let left = engine.from_shape([matrix, matrix], &x[..matrix * matrix]).expect("left");
    let right = engine.from_shape([matrix, matrix], &y[..matrix * matrix]).expect("right");
    let halves = |table: &Array<f32>| table.lazy().cast::<half::f16>().eval().expect("halves");
    let (left_half, right_half) = (halves(&left), halves(&right));
    let places: Vec<u32> = k.iter().map(|key| key % n as u32).collect();
    let places_here = engine.array(&places).expect("places");
    fn done<T: vyre::Element>(result: Result<Array<T>, vyre::Error>) -> Wait {
        let array = result.expect("it runs");
        Box::new(move || array.wait().expect("it runs"))
    }
    let mut out = vec![0.0f32; n];
    let out = std::cell::RefCell::new(&mut out);
    let (sorted, spare) = (std::cell::RefCell::new(Vec::new()), std::cell::RefCell::new(Vec::new()));
    let kept = std::cell::RefCell::new(Vec::new());

    let [heads, steps, dim] = if large || medium { [32, 4096, 128] } else { [8, 512, 64] };
    let attended =
        |values: &[f32]| engine.from_shape([heads, steps, dim], &values[..heads * steps * dim]).expect("heads");
    let (queries, keys_of, values_of) = (attended(&x), attended(&y), attended(&x[1..]));
    let [queries_half, keys_half, values_half] = [&queries, &keys_of, &values_of].map(halves);
    let attention_flops = 4.0 * (heads * steps * steps * dim) as f64;
    let attention_bytes = 4 * heads * steps * dim;
    let points = if large || medium { [1024, 1 << 20] } else { [256, 1 << 14] };
    let waves: Vec<Array<f32>> = points
        .iter()
        .map(|points: &usize| engine.from_shape([n / 4 / points, *points, 2], &x[..n / 2]).expect("waves"))
        .collect();
    let bodies = if large || medium { 1 << 15 } else { 1 << 12 };
    let bodies_here = engine.from_shape([bodies, 4], &x[..4 * bodies]).expect("bodies");
    let [images, channels, edge] = if large || medium { [32, 64, 56] } else { [2, 16, 56] };
    let pictures = images * channels * edge * edge;
    let pictures_here = engine.from_shape([images, channels, edge, edge], &x[..pictures]).expect("pictures");
    let windows = engine.from_shape([channels, channels, 3, 3], &y[..channels * channels * 9]).expect("windows");

    let s = side * side;
    let mut works = Works { list: Vec::new(), with_peers };
    let flops = 2.0 * (matrix as f64).powi(3);
    works.add(
        "copy",
        8 * n,
        0.0,
        Box::new(|| done((&a + 0.0).eval())),
        Some(Box::new(|| peers::copy(&x, &mut out.borrow_mut()))),
    );
    works.add(
        "map a*b+1",
        12 * n,
        2.0 * n as f64,
        Box::new(|| done((&a * &b + 1.0).eval())),
        Some(Box::new(|| peers::map(&x, &y, &mut out.borrow_mut()))),
    );
    works.add(
        "sum",
        4 * n,
        n as f64,
        Box::new(|| done(a.sum())),
        Some(Box::new(|| {
            black_box(peers::sum(&x));
        })),
    );
    works.add("sum of a*b", 8 * n, 2.0 * n as f64, Box::new(|| done((&a * &b).sum())), None);
    works.add(
        "argmax",
        4 * n,
        n as f64,
        Box::new(|| done(a.argmax())),
        Some(Box::new(|| {
            black_box(peers::argmax(&x));
        })),
    );
    works.add("sum of columns", 4 * s, s as f64, Box::new(|| done(table.sum_axis(0))), None);
    works.add(
        "cumsum",
        8 * n,
        n as f64,
        Box::new(|| done(a.cumsum())),
        Some(Box::new(|| peers::cumsum(&x, &mut out.borrow_mut()))),
    );
    works.add(
        "compact",
        6 * n,
        n as f64,
        Box::new(|| done(a.compact(&a.lazy().gt(0.0)).map(|found| found.elements))),
        Some(Box::new(|| peers::compact(&x, &mut kept.borrow_mut()))),
    );
    works.add(
        "histogram, random",
        4 * n,
        n as f64,
        Box::new(|| done(codes_here.histogram(256))),
        Some(Box::new(|| {
            black_box(peers::histogram(&codes));
        })),
    );
    works.add("histogram, all equal", 4 * n, n as f64, Box::new(|| done(equal_here.histogram(256))), None);
    works.add(
        "sort u32",
        8 * keys,
        keys as f64,
        Box::new(|| done(keys_here.sort())),
        Some(Box::new(|| peers::sort(&k, &mut sorted.borrow_mut()))),
    );
    if with_peers {
        works.add(
            "sort u32, radix on one thread",
            8 * keys,
            keys as f64,
            Box::new(|| done(keys_here.sort())),
            Some(Box::new(|| peers::radix_sort(&k, &mut sorted.borrow_mut(), &mut spare.borrow_mut()))),
        );
    }
    works.add(
        "sort pairs",
        16 * keys,
        keys as f64,
        Box::new(|| done(keys_here.sort_with(&places_here).map(|pairs| pairs.1))),
        None,
    );
    works.add("top 64", 4 * n, n as f64, Box::new(|| done(a.top_k(64).map(|found| found.0))), None);
    works.add(
        "softmax of rows",
        8 * s,
        4.0 * s as f64,
        Box::new(|| done(table.softmax())),
        Some(Box::new(|| peers::softmax(&x[..s], &mut out.borrow_mut()[..s], side))),
    );
    works.add(
        "layer norm",
        8 * s,
        4.0 * s as f64,
        Box::new(|| done(table.layer_norm(1e-5))),
        Some(Box::new(|| peers::layer_norm(&x[..s], &mut out.borrow_mut()[..s], side))),
    );
    works.add(
        "transpose",
        8 * s,
        0.0,
        Box::new(|| done(table.transpose())),
        Some(Box::new(|| peers::transpose(&x[..s], &mut out.borrow_mut()[..s], side, side))),
    );
    works.add(
        "gather",
        12 * keys,
        0.0,
        Box::new(|| done(a.gather(&places_here))),
        Some(Box::new(|| peers::gather(&x, &places, &mut out.borrow_mut()[..keys]))),
    );
    works.add(
        "matmul",
        12 * matrix * matrix,
        flops,
        Box::new(|| done(left.matmul(&right))),
        Some(Box::new(|| {
            peers::matmul(
                &x[..matrix * matrix],
                &y[..matrix * matrix],
                &mut out.borrow_mut()[..matrix * matrix],
                matrix,
                matrix,
            )
        })),
    );

    works.add(
        "attention",
        4 * attention_bytes,
        attention_flops,
        Box::new(|| done(queries.attention(&keys_of, &values_of, false))),
        Some(Box::new(|| {
            peers::attention([&x, &y, &x[1..]], &mut out.borrow_mut()[..heads * steps * dim], [steps, dim])
        })),
    );
    works.add(
        "attention f16",
        2 * attention_bytes,
        attention_flops,
        Box::new(|| done(queries_half.attention(&keys_half, &values_half, false))),
        None,
    );
    works.add(
        "attention f16, causal",
        2 * attention_bytes,
        attention_flops / 2.0,
        Box::new(|| done(queries_half.attention(&keys_half, &values_half, true))),
        None,
    );

    const FIVE: [f64; 9] = [0.0, 0.25, 0.0, 0.25, 0.5, 0.25, 0.0, 0.25, 0.0];
    works.add(
        "stencil of 5 points",
        8 * s,
        10.0 * s as f64,
        Box::new(|| done(table.stencil(&FIVE, &[3, 3], vyre_ops::Boundary::Zero))),
        Some(Box::new(|| peers::stencil(&x[..s], &mut out.borrow_mut()[..s], side))),
    );
    works.add(
        "bodies",
        28 * bodies,
        20.0 * (bodies as f64).powi(2),
        Box::new(|| done(bodies_here.accelerations(1e-2))),
        Some(Box::new(|| peers::bodies(&x[..4 * bodies], &mut out.borrow_mut()[..3 * bodies]))),
    );
    works.add(
        "convolution 3 x 3",
        8 * pictures,
        18.0 * (pictures * channels) as f64,
        Box::new(|| done(pictures_here.convolution(&windows, 1, 1))),
        None,
    );
    for (points, waves) in points.iter().zip(&waves) {
        let flops = 5.0 * (n / 4) as f64 * (*points as f64).log2();
        works.add(&format!("fft of {points}"), 4 * n, flops, Box::new(move || done(waves.fft())), None);
    }

    if !with_peers {
        works.add("matmul f16", 6 * matrix * matrix, flops, Box::new(|| done(left_half.matmul(&right_half))), None);
    }

    let mut rows = Vec::new();
    for work in works.list.iter_mut().filter(|work| only.is_empty() || only.iter().any(|name| work.name.contains(name)))
    {
        let row = measure(work, on != "cpu");
        eprintln!("{}: {:.3} ms", row.name, row.ours_ms);
        rows.push(row);
    }
    engine.take_notices().iter().for_each(|notice| eprintln!("{notice}"));
    let copy = rows.iter().find(|row| row.name == "copy").map(|row| row.gb_per_s);
    let text = table_of(&rows, copy);
    print!("{text}");
    let json: Vec<_> = rows
        .iter()
        .map(|row| json!({ "work": row.name, "ms": row.ours_ms, "peer_ms": row.peer_ms, "ratio": row.ratio, "gb_per_s": row.gb_per_s, "gflops": row.gflops }))
        .collect();
    let report = json!({ "backend": on, "device": engine.devices().first().and_then(|device| device.state.as_ref().ok().map(|able| able.name.clone())), "rows": json });
    std::fs::write("ops-board.json", format!("{report:#}\n")).expect("the report can be written");
    if docs {
        renew(on, &text);
    }
}

fn table_of(rows: &[Row], copy: Option<f64>) -> String {
    let mut text = "| work | vyre, ms | peer, ms | peer / vyre [worst, best round] | GB/s | of copy | GFLOP/s |\n|---|---|---|---|---|---|---|\n".to_owned();
    for row in rows {
        let peer = row.peer_ms.map_or_else(|| "–".to_owned(), |ms| format!("{ms:.2}"));
        let ratio = row
            .ratio
            .map_or_else(|| "–".to_owned(), |[middle, worst, best]| format!("{middle:.2} [{worst:.2}, {best:.2}]"));
        let of_copy = copy.map_or_else(|| "–".to_owned(), |copy| format!("{:.2}", row.gb_per_s / copy));
        let _ = writeln!(
            text,
            "| {} | {:.2} | {peer} | {ratio} | {:.1} | {of_copy} | {:.1} |",
            row.name, row.ours_ms, row.gb_per_s, row.gflops
        );
    }
    text
}

/// Puts the table between the marks of its backend in the page.
fn renew(on: &str, table: &str) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/benchmarks/ops.md");
    let (begin, end) = (format!("<!-- {on} -->\n"), format!("<!-- end of {on} -->"));
    let mut page = std::fs::read_to_string(path).unwrap_or_else(|_| "# Ops: what was measured\n".to_owned());
    if !page.contains(&begin) {
        let _ = write!(page, "\n## On {on}\n\n{begin}{end}\n");
    }
    let (Some(from), Some(to)) = (page.find(&begin), page.find(&end)) else {
        panic!("the page has one mark for {on} without the other")
    };
    let page = format!("{}{begin}{table}{}", &page[..from], &page[to..]);
    std::fs::write(path, page).expect("the page can be written");
}
