//! The driver's own board: cache reads against plain file reads, writes, opening a large cache, and the null backend.
//!
//! `cargo bench -p vyre-driver` prints a table and writes `driver-board.json` beside the build's temporary files.

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use vyre_driver::backend::{Binding, CompileOptions, Launch, NullBackend, VyreBackend};
use vyre_driver::metrics::{Counter, Metrics, Stage};
use vyre_driver::pipeline::{DiskPipelineCache, PipelineDeviceFingerprint, hex_encode};
use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};

fn main() {
    let mut rows = Vec::new();
    let mut row = |what: &str, samples: Vec<f64>, unit: &str, note: String| {
        let (low, median, high) = spread(samples);
        println!("{what:<44} {median:>10.2} {unit:<4} ({low:.2} to {high:.2}) {note}");
        rows.push(json!({ "what": what, "median": median, "low": low, "high": high, "unit": unit, "note": note }));
        median
    };

    let folder = tempfile::tempdir().expect("a temporary folder");
    let (cache_reads, plain_reads) = reads(folder.path());
    let ratio: Vec<f64> = cache_reads.iter().zip(&plain_reads).map(|(cache, plain)| plain / cache).collect();
    row("read 64 KiB, std::fs::read", plain_reads, "us", String::new());
    row("read 64 KiB, authenticated", cache_reads, "us", String::new());
    row("  speed against std::fs::read", ratio, "x", "at least 0.5 is wanted".to_owned());

    let folder = tempfile::tempdir().expect("a temporary folder");
    row("write 64 KiB and flush", writes(folder.path()), "us", String::new());

    let folder = tempfile::tempdir().expect("a temporary folder");
    row("open a cache of 100,000 entries", opens(folder.path()), "ms", "at most 50 is wanted".to_owned());

    row("null backend: submit and wait", null_dispatch(), "ns", "two bindings".to_owned());
    row("metrics: one counter and one latency", metrics(), "ns", String::new());

    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("driver-board.json");
    let board = json!({ "board": "driver", "rows": rows, "machine": machine() });
    std::fs::write(&path, format!("{board:#}")).expect("the board can be written");
    println!("written to {}", path.display());
}

fn device() -> PipelineDeviceFingerprint {
    PipelineDeviceFingerprint::from_parts(1, 2, "driver", "runtime")
}

/// Microseconds per read of the cache and of a plain file of the same size, in alternating rounds.
fn reads(folder: &Path) -> (Vec<f64>, Vec<f64>) {
    const ENTRIES: u8 = 32;
    let cache = DiskPipelineCache::open(folder).expect("a cache");
    let blob: Vec<u8> = (0..64u32 << 10).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for i in 0..ENTRIES {
        cache.write([i; 32], device(), &blob).expect("room for the entries");
    }
    let paths: Vec<_> = (0..ENTRIES).map(|i| cache.path_for([i; 32], device())).collect();
    let mut times = (Vec::new(), Vec::new());
    for _ in 0..60 {
        let start = Instant::now();
        for path in &paths {
            black_box(std::fs::read(path).expect("the entry"));
        }
        times.1.push(per(start.elapsed(), u32::from(ENTRIES)) / 1000.0);
        let start = Instant::now();
        for i in 0..ENTRIES {
            black_box(cache.read([i; 32], device()).expect("no error").expect("a hit"));
        }
        times.0.push(per(start.elapsed(), u32::from(ENTRIES)) / 1000.0);
    }
    times
}

fn writes(folder: &Path) -> Vec<f64> {
    let cache = DiskPipelineCache::open(folder).expect("a cache");
    let blob = vec![7; 64 << 10];
    let write = |i: u8| {
        let start = Instant::now();
        cache.write([i; 32], device(), &blob).expect("room");
        cache.flush().expect("a disk");
        per(start.elapsed(), 1) / 1000.0
    };
    (0..100).map(write).collect()
}

fn opens(folder: &Path) -> Vec<f64> {
    drop(DiskPipelineCache::open(folder).expect("a cache"));
    for i in 0..100_000u32 {
        let name = hex_encode(&device().cache_key(std::array::from_fn(|at| i.to_le_bytes()[at % 4])));
        let shard = folder.join(&name[..2]);
        if !shard.exists() {
            std::fs::create_dir(&shard).expect("a folder");
        }
        std::fs::write(shard.join(format!("{name}.bin")), [1; 200]).expect("room");
    }
    let open = |_| {
        let start = Instant::now();
        black_box(DiskPipelineCache::open(folder).expect("a cache"));
        per(start.elapsed(), 1) / 1e6
    };
    (0..20).map(open).collect()
}

fn null_dispatch() -> Vec<f64> {
    let program = Program::wrapped(
        vec![BufferDecl::read("a", 0, DataType::U32), BufferDecl::output("b", 1, DataType::U32)],
        [64, 1, 1],
        vec![Node::store("b", Expr::global_id(0), Expr::load("a", Expr::global_id(0)))],
    );
    let null = NullBackend::new();
    let backend: &dyn VyreBackend = black_box(&null);
    let valid = program.validate().expect("a valid program");
    let pipeline = backend.compile(&valid, &CompileOptions::default()).expect("a pipeline");
    let bindings: Vec<Binding> = (0..2).map(|_| backend.allocate(4096).expect("a buffer").into()).collect();
    let round = |_| {
        let start = Instant::now();
        for _ in 0..10_000 {
            let ticket = backend.submit(&pipeline, &Launch::new(&bindings, [16, 1, 1])).expect("a launch");
            black_box(backend.wait(ticket, None).expect("a result"));
        }
        per(start.elapsed(), 10_000)
    };
    (0..30).map(round).collect()
}

fn metrics() -> Vec<f64> {
    let metrics = Metrics::new();
    let round = |_| {
        let start = Instant::now();
        for ns in 0..10_000 {
            metrics.add(Counter::Dispatches, 1);
            metrics.record(Stage::Submit, black_box(ns));
        }
        per(start.elapsed(), 10_000)
    };
    (0..30).map(round).collect()
}

/// Nanoseconds of one of `count`.
fn per(elapsed: Duration, count: u32) -> f64 {
    elapsed.as_nanos() as f64 / f64::from(count)
}

/// Lower quartile, median, upper quartile.
fn spread(mut samples: Vec<f64>) -> (f64, f64, f64) {
    samples.sort_by(f64::total_cmp);
    let at = |per_cent: usize| samples[(samples.len() - 1) * per_cent / 100];
    (at(25), at(50), at(75))
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!("{} {}, {cores} cores", std::env::consts::OS, std::env::consts::ARCH)
}
