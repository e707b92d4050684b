//! Many threads, many devices, random chains on shared arrays, with timeouts, cancellations, full and lost devices: every value is that of
//! a serial run, or an error on exactly the arrays concerned, and nobody waits for ever.
//!
//! The short form runs with the tests; `VYRE_STRESS=100000 cargo test --release -p vyre --test stress` is the long one. With
//! `VYRE_STRESS_DEVICES=1` the GPUs of this machine take part, besides those that are simulated.

mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use support::{ENDLESS, Sim};
use vyre::{Array, Engine, Kernel, VyreBackend, codes};

const MIX: &str = "
    @group(0) @binding(0) var<storage, read> a: array<u32>;
    @group(0) @binding(1) var<storage, read_write> x: array<u32>;
    @compute @workgroup_size(32) fn mix(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x < arrayLength(&x) { x[id.x] = x[id.x] * 3u + a[id.x % arrayLength(&a)]; }
    }";

const LENGTH: usize = 96;
const THREADS: u64 = 8;

/// What an array must hold, or that it is lost.
#[derive(Clone, PartialEq, Debug)]
enum Model {
    Holds(Vec<u32>),
    Lost,
}

struct Shared {
    array: Array<u32>,
    model: Model,
}

fn next(random: &mut u64) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    *random
}

fn mixed(model: &Model, other: &Model) -> Model {
    match (model, other) {
        (Model::Holds(x), Model::Holds(a)) => {
            Model::Holds(x.iter().enumerate().map(|(at, x)| x.wrapping_mul(3).wrapping_add(a[at % a.len()])).collect())
        }
        _ => Model::Lost,
    }
}

/// Each array is behind its own lock, which is held for the calls and not for the work; two are always locked in order.
fn work(engine: &Engine, mix: &Kernel, endless: &Kernel, arrays: &[Mutex<Shared>], seed: u64, launches: u64) -> u64 {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut launched = 0;
    while launched < launches {
        let first = next(&mut random) as usize % arrays.len();
        let second = next(&mut random) as usize % arrays.len();
        if first == second {
            continue;
        }
        let mut low = arrays[first.min(second)].lock().unwrap();
        let mut high = arrays[first.max(second)].lock().unwrap();
        let (from, to) = if first < second { (&mut *low, &mut *high) } else { (&mut *high, &mut *low) };
        match next(&mut random) % 100 {
            // A launch on both, mostly wherever it is fastest.
            0..80 => {
                let on = ["one", "two", "three", "cpu", "cuda", "wgpu"][next(&mut random) as usize % 6];
                let mut call = mix.bind("a", &from.array).bind("x", &mut to.array).label("mix");
                if next(&mut random).is_multiple_of(3) && engine.backend(on).is_ok() {
                    call = call.on(on);
                }
                launched += 1;
                match call.launch() {
                    Ok(_) => to.model = mixed(&to.model, &from.model),
                    Err(error) => {
                        // Nothing was launched: the target is as it was, unless it was lost before.
                        let lost = from.model == Model::Lost || to.model == Model::Lost;
                        assert!(lost || error.code() == codes::backend::OUT_OF_MEMORY.id, "{error}");
                    }
                }
            }
            // One that never ends, and is ended.
            80..84 => {
                let call = endless.bind("x", &mut to.array).label("endless");
                let timeout = next(&mut random).is_multiple_of(2);
                let call = if timeout { call.timeout(Duration::from_millis(2)) } else { call.cancellable() };
                launched += 1;
                match call.launch() {
                    Ok(launch) => {
                        to.model = Model::Lost;
                        if !timeout {
                            launch.cancel().unwrap();
                        }
                    }
                    // The time may be over before it begins.
                    Err(error) => {
                        assert!(to.model == Model::Lost || error.code() == codes::backend::TIMEOUT.id, "{error}")
                    }
                }
            }
            84..90 => {
                to.array = from.array.clone();
                to.model = from.model.clone();
            }
            90..94 => {
                let values: Vec<u32> = (0..LENGTH).map(|_| next(&mut random) as u32).collect();
                to.array.write(&values).unwrap();
                to.model = Model::Holds(values);
            }
            _ => check(from),
        }
    }
    launched
}

fn check(shared: &Shared) {
    match (shared.array.to_vec(), &shared.model) {
        (Ok(values), Model::Holds(expected)) => assert_eq!(&values, expected),
        (Err(error), Model::Lost) => {
            let told = [codes::backend::TIMEOUT.id, codes::engine::CANCELLED.id];
            assert!(told.contains(&error.code()) && error.message().contains("endless"), "{error}");
        }
        (got, expected) => panic!("{got:?} instead of {expected:?}"),
    }
}

fn engine() -> Engine {
    let sims: [Arc<dyn VyreBackend>; 3] = [
        Arc::new(Sim::new("one", 4, 1 << 30)),
        Arc::new(Sim::new("two", 1, 1 << 30)),
        // This one is full most of the time.
        Arc::new(Sim::new("three", 2, 8 << 10)),
    ];
    let mut builder = Engine::builder().without_disk();
    let has_devices = std::env::var_os("VYRE_STRESS_DEVICES").is_some();
    if !has_devices {
        builder = builder.without_default_backends();
    }
    for (at, sim) in sims.into_iter().enumerate() {
        builder = builder.with_backend(sim, 9 - at as i32);
    }
    #[cfg(feature = "cpu")]
    if !has_devices {
        builder = builder.with_backend(Arc::new(vyre_cpu::CpuBackend::new().unwrap()), 5);
    }
    builder.open().unwrap()
}

#[test]
fn random_chains_on_shared_arrays_give_what_a_serial_run_gives() {
    let launches: u64 = std::env::var("VYRE_STRESS").ok().and_then(|n| n.parse().ok()).unwrap_or(2_000);
    let engine = engine();
    let mix = engine.kernel(&vyre::wgsl(MIX).unwrap()).unwrap();
    let endless = engine.kernel(
        &vyre::wgsl(&format!(
            "@group(0) @binding(0) var<storage, read_write> x: array<u32>;
             fn vyre_domain() -> vec3<u32> {{ return vec3<u32>(64u, 1u, 1u); }}
             @compute @workgroup_size(32) fn {ENDLESS}(@builtin(global_invocation_id) id: vec3<u32>) {{
                 loop {{ if x[0] == 4000000001u {{ break; }} x[id.x % 2u] = 7u; }}
             }}"
        ))
        .unwrap(),
    );
    let endless = endless.unwrap();
    let arrays: Vec<Mutex<Shared>> = (0..24)
        .map(|at| {
            let values: Vec<u32> = (0..LENGTH as u32).map(|i| i * 31 + at).collect();
            Mutex::new(Shared { array: engine.array(&values).unwrap(), model: Model::Holds(values) })
        })
        .collect();
    let launched = AtomicU64::new(0);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (engine, mix, endless, arrays, launched) = (&engine, &mix, &endless, &arrays, &launched);
            scope.spawn(move || {
                let done = work(engine, mix, endless, arrays, thread + 1, launches / THREADS);
                launched.fetch_add(done, Ordering::Relaxed);
            });
        }
    });
    for array in &arrays {
        check(&array.lock().unwrap());
    }
    engine.synchronize();
    for device in engine.devices() {
        println!("{}: {}", device.id, device.state.map_or_else(|absent| absent.to_string(), |there| there.name));
    }
    println!("{} launches in {:.1} s", launched.load(Ordering::Relaxed), started.elapsed().as_secs_f64());
}

/// The error is that of the device that comes and goes. A launch that ran while it came back was told to end.
fn is_loss(error: &vyre::Error) -> bool {
    [codes::backend::DEVICE_LOST.id, codes::engine::CANCELLED.id].contains(&error.code())
}

/// Counts a thread that has ended, however it did.
struct Ended<'a>(&'a AtomicU64);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Threads launch on arrays of their own while the device is lost and comes back again and again: a value is right, or its error is the
/// device's.
#[test]
fn a_device_that_is_lost_takes_only_what_was_on_it() {
    let (fragile, steady) = (Arc::new(Sim::new("fragile", 3, 1 << 30)), Arc::new(Sim::new("steady", 1, 1 << 30)));
    let builder = Engine::builder().without_default_backends().without_disk();
    let engine = builder.with_backend(fragile.clone(), 2).with_backend(steady, 1).open().unwrap();
    let mix = engine.kernel(&vyre::wgsl(MIX).unwrap()).unwrap();
    let ones = engine.array(&[1u32; 4]).unwrap();
    let running = AtomicU64::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let _ended = Ended(&running);
                for round in 0..60u32 {
                    let mut x = engine.array(&[round; 40]).unwrap();
                    let mut expected = round;
                    let on = if round % 2 == 0 { "fragile" } else { "steady" };
                    for step in 0..4 {
                        let call = mix.bind("a", &ones).bind("x", &mut x);
                        let call = if step == 0 { call.on(on) } else { call };
                        match call.launch() {
                            Ok(_) => expected = expected.wrapping_mul(3).wrapping_add(1),
                            Err(error) => {
                                assert!(is_loss(&error), "{error}");
                                break;
                            }
                        }
                    }
                    match x.to_vec() {
                        Ok(values) => assert_eq!(values, [expected; 40]),
                        Err(error) => assert!(is_loss(&error), "{error}"),
                    }
                }
            });
        }
        while running.load(Ordering::Relaxed) > 0 {
            std::thread::sleep(Duration::from_millis(15));
            fragile.lose();
            std::thread::sleep(Duration::from_millis(3));
            fragile.come_back();
        }
    });
}
