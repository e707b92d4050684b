//! What the engine itself costs: steady launches on arrays, of prepared programs and of graphs, next to the same launch straight to the
//! backend, and the heap they use. On the null backend everything but the engine costs nothing; on the processor a small launch runs on
//! the caller's thread.
//!
//! `cargo bench -p vyre --bench engine` prints a table and writes `target/engine-board.json`. `VYRE_DISPATCHES` makes rounds shorter, and a
//! word as argument runs only the rows that have it in backend, name and threads (`cpu launch on arrays and wait 1`): what counting
//! instructions needs.

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

const ROUNDS: usize = 9;

/// Calls of one round.
fn dispatches() -> u64 {
    std::env::var("VYRE_DISPATCHES").ok().and_then(|count| count.parse().ok()).unwrap_or(100_000)
}

/// Median nanoseconds of one call over interleaved rounds, and allocations per call.
fn measure(threads: u64, work: impl Fn() + Sync) -> (f64, f64) {
    let (mut times, mut allocations, dispatches) = (Vec::new(), 0, dispatches());
    for round in 0..=ROUNDS {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        let started = Instant::now();
        if threads == 1 {
            (0..dispatches).for_each(|_| work());
        } else {
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| (0..dispatches).for_each(|_| work()));
                }
            });
        }
        // The first round warms up.
        if round > 0 {
            times.push(started.elapsed().as_nanos() as f64 / dispatches as f64);
            allocations += ALLOCATIONS.load(Ordering::Relaxed) - before;
        }
    }
    times.sort_by(f64::total_cmp);
    (times[ROUNDS / 2], allocations as f64 / (ROUNDS as u64 * dispatches * threads) as f64)
}

/// One row: the backend's own submit, or a way through the engine.
struct Row<'a> {
    name: &'static str,
    work: &'a (dyn Fn() + Sync),
}

fn board(label: &str, backend: Arc<dyn VyreBackend>, rows: &mut Vec<serde_json::Value>) {
    let program = vyre::wgsl(
        "@group(0) @binding(0) var<storage, read> a: array<f32>;
         @group(0) @binding(1) var<storage, read_write> out: array<f32>;
         @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
             if id.x < arrayLength(&a) { out[id.x] = a[id.x]; }
         }",
    )
    .expect("the kernel is good");
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
        let ticket = backend.submit(&pipeline, &Launch::new(&bindings, [4, 1, 1])).expect("it is submitted");
        backend.wait(ticket, None).expect("it is done");
        backend.forget(ticket);
    };
    let kernel = engine.kernel(&program).expect("it is valid");
    let a = engine.zeros::<f32>(256).expect("an array");
    // Every thread has a result of its own.
    let on_arrays = || {
        thread_local! {
            static OUT: std::cell::RefCell<Option<vyre::Array<f32>>> = const { std::cell::RefCell::new(None) };
        }
        OUT.with_borrow_mut(|out| {
            let out = out.get_or_insert_with(|| engine.zeros(256).expect("an array"));
            kernel.bind("a", &a).bind("out", out).launch().expect("it is launched").wait().expect("it is done");
        });
    };
    let dispatch = || prepared.dispatch().expect("it is submitted").wait().expect("it is done");
    const NODES: usize = 16;
    let mut recorder = engine.record();
    let (from, to) = (recorder.array::<f32>(256), recorder.array::<f32>(256));
    for _ in 0..NODES {
        recorder.launch(&kernel).bind("a", from).bind("out", to).add().expect("a step");
    }
    let graph = recorder.finish().expect("a graph");
    let replay = || graph.replay().run().expect("it is replayed");
    let table = [
        Row { name: "submit and wait, no engine", work: &direct },
        Row { name: "launch on arrays and wait", work: &on_arrays },
        Row { name: "prepared dispatch and wait", work: &dispatch },
        Row { name: "replay of 16 nodes and wait", work: &replay },
    ];
    println!("{:<8} {:<30} {:>8} {:>12} {:>14}", "backend", "", "threads", "ns a call", "allocations");
    for threads in [1, 2] {
        let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
        let is_wanted = |row: &&Row<'_>| {
            let name = format!("{label} {} {threads}", row.name);
            only.as_ref().is_none_or(|word| name.contains(word))
        };
        for Row { name, work } in table.iter().filter(is_wanted) {
            let (ns, allocations) = measure(threads, work);
            println!("{label:<8} {name:<30} {threads:>8} {ns:>12.1} {allocations:>14.6}");
            rows.push(serde_json::json!({
                "backend": label, "name": name, "threads": threads, "ns": ns, "allocations": allocations
            }));
        }
    }
}

fn main() {
    let mut rows = Vec::new();
    board("null", Arc::new(NullBackend::new()), &mut rows);
    #[cfg(feature = "cpu")]
    board("cpu", Arc::new(vyre_cpu::CpuBackend::new().expect("the processor")), &mut rows);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/engine-board.json");
    if let Err(error) = std::fs::write(path, format!("{:#}", serde_json::Value::from(rows))) {
        eprintln!("{path} can't be written: {error}");
    }
}
