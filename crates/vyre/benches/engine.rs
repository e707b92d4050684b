//! What the engine itself costs: steady dispatches of a prepared program on the null backend, and the heap they use.
//!
//! `cargo bench -p vyre --bench engine` prints a table and writes `target/engine-board.json`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use vyre::backend::{Binding, Launch, NullBackend};
use vyre::{Engine, VyreBackend, to_bytes};

struct Counting;
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged; counting touches nothing of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps `dealloc`'s contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const DISPATCHES: u64 = 200_000;
const ROUNDS: usize = 9;

/// Median nanoseconds of one call over interleaved rounds, and allocations per call.
fn measure(threads: u64, work: impl Fn() + Sync) -> (f64, f64) {
    let mut times = Vec::new();
    let mut allocations = 0;
    for round in 0..=ROUNDS {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        let started = Instant::now();
        if threads == 1 {
            (0..DISPATCHES).for_each(|_| work());
        } else {
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| (0..DISPATCHES).for_each(|_| work()));
                }
            });
        }
        // The first round warms up.
        if round > 0 {
            times.push(started.elapsed().as_nanos() as f64 / DISPATCHES as f64);
            allocations += ALLOCATIONS.load(Ordering::Relaxed) - before;
        }
    }
    times.sort_by(f64::total_cmp);
    (times[ROUNDS / 2], allocations as f64 / (ROUNDS as u64 * DISPATCHES * threads) as f64)
}

fn main() {
    let program = vyre::wgsl(
        "@group(0) @binding(0) var<storage, read> a: array<f32>;
         @group(0) @binding(1) var<storage, read_write> out: array<f32>;
         @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
             if id.x < arrayLength(&a) { out[id.x] = a[id.x]; }
         }",
    )
    .expect("the kernel is good");
    let backend = Arc::new(NullBackend::new());
    let builder = Engine::builder().without_default_backends().without_disk().tuner(vyre::tuner::Mode::OffUseDefault);
    let engine = builder.with_backend(backend.clone(), 1).open().expect("the engine opens");
    let prepared = engine.prepare(&program).expect("it is valid");
    prepared.set("a", to_bytes(&[0f32; 256])).expect("an input");
    prepared.run().expect("it runs");
    // The peer: the same launch straight to the backend.
    let valid = program.validate().expect("it is valid");
    let pipeline = backend.compile(&valid, &Default::default()).expect("it compiles");
    let bindings: Vec<Binding> = (0..2).map(|_| Binding::from(backend.allocate(1024).expect("a buffer"))).collect();
    let direct = || {
        let launch = Launch { bindings: &bindings, grid: [4, 1, 1], timed: false };
        let pending = backend.submit(&pipeline, &launch).expect("it is submitted");
        backend.wait(pending, None).expect("it is done");
    };
    let through = || {
        let pending = prepared.dispatch().expect("it is submitted");
        prepared.wait(pending).expect("it is done");
    };
    let run = || {
        prepared.run().expect("it runs");
    };
    println!("{:<38} {:>8} {:>12} {:>14}", "steady dispatch, null backend", "threads", "ns a call", "allocations");
    let mut rows = Vec::new();
    for threads in [1, 2] {
        for (name, work) in [
            ("submit and wait, no engine", &direct as &(dyn Fn() + Sync)),
            ("dispatch and wait", &through),
            ("run", &run),
        ] {
            let (ns, allocations) = measure(threads, work);
            println!("{name:<38} {threads:>8} {ns:>12.1} {allocations:>14.6}");
            rows.push(serde_json::json!({ "name": name, "threads": threads, "ns": ns, "allocations": allocations }));
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/engine-board.json");
    if let Err(error) = std::fs::write(path, format!("{:#}", serde_json::Value::from(rows))) {
        eprintln!("{path} can't be written: {error}");
    }
}
