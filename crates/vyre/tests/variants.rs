//! Implementations that only one backend can run: candidates like any other, behind a gate.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use vyre::tuner::Mode;
use vyre::variant::{Blocks, HostSlice, Tolerance, Variant, Workers};
use vyre::{DispatchConfig, Engine, Kernel, Program};

/// Sums of whole numbers, one addition at a time.
const SLOW: &str = "
    @group(0) @binding(0) var<storage, read> x: array<u32>;
    @group(0) @binding(1) var<storage, read_write> y: array<u32>;
    @compute @workgroup_size(64) fn triangle(@builtin(global_invocation_id) id: vec3u) {
        if id.x >= arrayLength(&y) { return; }
        var sum = 0u;
        for (var i = 0u; i <= x[id.x]; i += 1u) { sum = (sum ^ i) + 2u * (sum & i); }
        y[id.x] = sum;
    }";

fn program() -> Program {
    vyre::wgsl(SLOW).expect("it is WGSL")
}

fn engine(mode: Mode) -> Engine {
    Engine::builder().without_disk().tuner(mode).open().unwrap()
}

/// The closed form, `off` too large from the element `from` on; and how often it ran.
fn closed(name: &str, off: u32, from: usize) -> (Variant, Arc<AtomicU32>) {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let variant = Variant::host(name, 1, move |buffers: &mut [HostSlice<'_>]| {
        counted.fetch_add(1, Ordering::Relaxed);
        let [x, y] = buffers else { panic!("two buffers") };
        for (at, (y, x)) in y.bytes_mut().chunks_exact_mut(4).zip(x.bytes().chunks_exact(4)).enumerate() {
            let x = u32::from_le_bytes(x.try_into().unwrap());
            let sum = (u64::from(x) * (u64::from(x) + 1) / 2) as u32;
            y.copy_from_slice(&(sum + if at >= from { off } else { 0 }).to_le_bytes());
        }
    });
    (variant, calls)
}

fn input(count: u32) -> Vec<u32> {
    // So large that the closed form is much faster, whatever it is compiled with.
    (0..count).map(|i| 8000 + i % 77).collect()
}

fn expected(input: &[u32]) -> Vec<u32> {
    input.iter().map(|x| x * (x + 1) / 2).collect()
}

/// Launches so many times and compares each result.
fn launch(engine: &Engine, kernel: &Kernel, count: u32, times: u32) {
    let given = input(count);
    let (x, kernel) = (engine.array(&given).unwrap(), kernel.on("cpu").unwrap());
    for _ in 0..times {
        let mut y = engine.zeros::<u32>(count as usize).unwrap();
        kernel.bind("x", &x).bind("y", &mut y).launch().unwrap().wait().unwrap();
        assert_eq!(y.to_vec().unwrap(), expected(&given));
    }
}

#[test]
fn a_faster_variant_is_compared_then_learnt_then_used_and_explained() {
    let engine = engine(Mode::NaturalGradient);
    let (variant, calls) = closed("closed form", 0, 0);
    let kernel = engine.kernel(&program()).unwrap().variant(variant).unwrap().on("cpu").unwrap();
    launch(&engine, &kernel, 4096, 1);
    assert!(calls.load(Ordering::Relaxed) >= 1, "it was compared");
    for _ in 0..100 {
        launch(&engine, &kernel, 4096, 10);
        if kernel.explain().variants.iter().any(|line| line.contains("in use")) {
            break;
        }
    }
    let explained = kernel.explain().to_string();
    assert!(explained.contains("launch: closed form of"), "{explained}");
    assert!(explained.contains("variant closed form (a Rust function): in use"), "{explained}");
    let before = calls.load(Ordering::Relaxed);
    launch(&engine, &kernel, 4096, 5);
    assert_eq!(calls.load(Ordering::Relaxed) - before, 5, "every launch is one call");
}

/// As ops launch: with a grid of their own, and results that are written whole.
#[test]
fn a_decided_variant_runs_every_time_where_the_caller_gives_the_grid() {
    let given = input(4096);
    // Two stalls in a row can make the function look slow, and the program's own launch is kept then.
    for _ in 0..5 {
        let engine = engine(Mode::NaturalGradient);
        let (variant, calls) = closed("closed form", 0, 0);
        let kernel = engine.kernel(&program()).unwrap().variant(variant).unwrap().on("cpu").unwrap();
        let x = engine.array(&given).unwrap();
        let launch = |times: u32| {
            for _ in 0..times {
                let mut y = engine.zeros::<u32>(4096).unwrap();
                let call = kernel.bind("x", &x).bind("y", &mut y).grid([64, 1, 1]).overwrites();
                call.launch().unwrap().wait().unwrap();
                assert_eq!(y.to_vec().unwrap(), expected(&given));
            }
        };
        let is_decided = || kernel.explain().variants.iter().any(|line| line.contains("in use"));
        if (0..100).any(|_| {
            launch(10);
            is_decided()
        }) {
            let before = calls.load(Ordering::Relaxed);
            launch(200);
            assert_eq!(calls.load(Ordering::Relaxed) - before, 200, "{}", kernel.explain());
            return;
        }
    }
    panic!("a function that takes a fraction of the time was decided for by none of five engines");
}

/// Somebody answers for it: no launch waits for the slow program to find out that it is the slower one.
#[test]
fn a_function_that_is_vouched_for_runs_from_the_first_launch_on() {
    let engine = engine(Mode::NaturalGradient);
    let (variant, calls) = closed("closed form", 0, 0);
    let kernel = engine.kernel(&program()).unwrap().variant(variant.vouched()).unwrap().on("cpu").unwrap();
    launch(&engine, &kernel, 4096, 20);
    assert_eq!(calls.load(Ordering::Relaxed), 20, "{}", kernel.explain());
    // So do launches of which many are under way at once.
    let given = input(2048);
    let x = engine.array(&given).unwrap();
    let mut all: Vec<_> = (0..8).map(|_| engine.zeros::<u32>(2048).unwrap()).collect();
    all.iter_mut().for_each(|y| drop(kernel.bind("x", &x).bind("y", y).launch().unwrap()));
    all.iter().for_each(|y| assert_eq!(y.to_vec().unwrap(), expected(&given)));
    assert_eq!(calls.load(Ordering::Relaxed), 28, "{}", kernel.explain());
    for _ in 0..20 {
        launch(&engine, &kernel, 4096, 10);
    }
    assert!(kernel.explain().variants.iter().any(|line| line.contains("in use")), "{}", kernel.explain());
    let (timed, calls) = closed("closed form", 0, 0);
    let mut config = DispatchConfig::default();
    config.variants = vec![timed.vouched()];
    config.timeout = Some(std::time::Duration::from_secs(60));
    launch(&engine, &engine.kernel_with(&program(), &config).unwrap(), 512, 3);
    assert_eq!(calls.load(Ordering::Relaxed), 0, "nothing in a function looks whether it has to end");
}

/// A function that is vouched for and is the slower one is left for the program.
#[test]
fn a_vouched_function_that_is_slow_is_found_out() {
    let engine = engine(Mode::NaturalGradient);
    let slow = Variant::host("asleep", 1, |buffers: &mut [HostSlice<'_>]| {
        let [x, y] = buffers else { panic!("two buffers") };
        std::thread::sleep(std::time::Duration::from_millis(20));
        for (y, x) in y.bytes_mut().chunks_exact_mut(4).zip(x.bytes().chunks_exact(4)) {
            let x = u32::from_le_bytes(x.try_into().unwrap());
            y.copy_from_slice(&(x * (x + 1) / 2).to_le_bytes());
        }
    });
    let kernel = engine.kernel(&program()).unwrap().variant(slow.vouched()).unwrap().on("cpu").unwrap();
    for _ in 0..30 {
        launch(&engine, &kernel, 64, 10);
    }
    let explained = kernel.explain();
    assert!(explained.variants.iter().all(|line| !line.contains("in use")), "{explained}");
}

#[test]
fn a_variant_that_differs_is_told_of_and_never_used() {
    for mode in [Mode::NaturalGradient, Mode::On] {
        let engine = engine(mode);
        let (variant, calls) = closed("off by one", 1, 4000);
        let kernel = engine.kernel(&program()).unwrap().variant(variant).unwrap().on("cpu").unwrap();
        launch(&engine, &kernel, 4096, 20);
        assert_eq!(calls.load(Ordering::Relaxed), 1, "only on copies");
        let notices = engine.take_notices();
        let told = notices.iter().filter(|notice| notice.code.id == vyre::codes::tuner::VARIANT_REJECTED.id);
        assert_eq!(told.count(), 1, "{notices:?}");
        assert!(kernel.explain().to_string().contains("not used: its result `y` differs at byte 16000"));
        // What is right at one size is compared again at another.
        launch(&engine, &kernel, 4000, 1);
        assert!(calls.load(Ordering::Relaxed) >= 2);
    }
}

#[test]
fn tuning_on_request_chooses_a_variant_and_the_engine_uses_what_was_chosen() {
    let engine = engine(Mode::On);
    let ((good, good_calls), (bad, _)) = (closed("closed form", 0, 0), closed("off by one", 1, 0));
    let mut config = DispatchConfig::default();
    config.variants = vec![bad, good];
    let given = input(4096);
    let bytes: Vec<u8> = given.iter().flat_map(|x| x.to_le_bytes()).collect();
    config.output_elements.insert("y".to_owned(), 4096);
    let decision = engine.tune("cpu", &program(), &[&bytes], &config, None).unwrap();
    assert_eq!(decision.candidate.to_string(), "closed form");
    assert!(decision.evidence.rejected.iter().any(|reason| reason.contains("off by one")), "{decision:?}");
    let before = good_calls.load(Ordering::Relaxed);
    config.output_elements.clear();
    let kernel = engine.kernel_with(&program(), &config).unwrap();
    launch(&engine, &kernel, 4096, 3);
    assert!(good_calls.load(Ordering::Relaxed) >= before + 3);
}

#[test]
fn launches_that_may_be_stopped_or_name_their_workgroups_run_the_program() {
    let engine = engine(Mode::On);
    let (variant, calls) = closed("closed form", 0, 0);
    let mut config = DispatchConfig::default();
    config.variants = vec![variant];
    config.timeout = Some(std::time::Duration::from_secs(60));
    launch(&engine, &engine.kernel_with(&program(), &config).unwrap(), 512, 3);
    config.timeout = None;
    config.workgroup_override = Some([32, 1, 1]);
    launch(&engine, &engine.kernel_with(&program(), &config).unwrap(), 512, 3);
    assert_eq!(calls.load(Ordering::Relaxed), 0);
}

#[test]
fn a_variant_that_panics_is_not_used() {
    let engine = engine(Mode::On);
    let variant = Variant::host("broken", 1, |_: &mut [HostSlice<'_>]| panic!("on purpose"));
    let kernel = engine.kernel(&program()).unwrap().variant(variant).unwrap().on("cpu").unwrap();
    launch(&engine, &kernel, 512, 3);
    assert!(kernel.explain().to_string().contains("not used: the launch panicked: on purpose"));
}

#[test]
fn a_tolerance_is_the_variants_own() {
    let program = vyre::wgsl(
        "@group(0) @binding(0) var<storage, read> x: array<f32>;
         @group(0) @binding(1) var<storage, read_write> y: array<f32>;
         @compute @workgroup_size(64) fn halve(@builtin(global_invocation_id) id: vec3u) {
             if id.x < arrayLength(&y) { y[id.x] = 0.5 * x[id.x]; }
         }",
    )
    .unwrap();
    let near = |buffers: &mut [HostSlice<'_>]| {
        let [x, y] = buffers else { panic!("two buffers") };
        for (y, x) in y.bytes_mut().chunks_exact_mut(4).zip(x.bytes().chunks_exact(4)) {
            let half = 0.5 * f32::from_le_bytes(x.try_into().unwrap());
            y.copy_from_slice(&f32::from_bits(half.to_bits() + 1).to_le_bytes());
        }
    };
    for (tolerance, agrees) in [(Tolerance::default(), false), (Tolerance { ulps: 1, of_largest: 0.0 }, true)] {
        let engine = engine(Mode::NaturalGradient);
        let variant = Variant::host("near", 1, near).within(tolerance);
        let kernel = engine.kernel(&program).unwrap().variant(variant).unwrap().on("cpu").unwrap();
        let (x, mut y) = (engine.array(&[1f32, 2.0, 3.0]).unwrap(), engine.zeros::<f32>(3).unwrap());
        kernel.bind("x", &x).bind("y", &mut y).launch().unwrap().wait().unwrap();
        assert_eq!(!kernel.explain().to_string().contains("not used"), agrees);
    }
}

#[test]
fn another_program_can_be_a_variant() {
    let engine = engine(Mode::On);
    let closed = vyre::wgsl(
        "@group(0) @binding(0) var<storage, read> x: array<u32>;
         @group(0) @binding(1) var<storage, read_write> y: array<u32>;
         @compute @workgroup_size(128) fn closed(@builtin(global_invocation_id) id: vec3u) {
             if id.x < arrayLength(&y) { y[id.x] = x[id.x] * (x[id.x] + 1u) / 2u; }
         }",
    )
    .unwrap();
    let variant = Variant::program("closed", &closed.validate().unwrap(), Blocks::Each([128, 1, 1]));
    let kernel = engine.kernel(&program()).unwrap().variant(variant).unwrap().on("cpu").unwrap();
    launch(&engine, &kernel, 4097, 3);
    let explanation = kernel.explain();
    assert!(explanation.to_string().contains("variant closed (another program): in use"), "{explanation}");
    assert_eq!((explanation.grid, explanation.workgroup_size), (Some([33, 1, 1]), Some([128, 1, 1])));
}

/// The closed form in parts of 64 elements, with something done in each before.
fn in_parts(name: &str, each: impl Fn(usize) + Send + Sync + 'static) -> (Variant, Arc<AtomicU32>) {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let function = move |buffers: &mut [HostSlice<'_>], workers: &dyn Workers| {
        counted.fetch_add(1, Ordering::Relaxed);
        let [x, y] = buffers else { panic!("two buffers") };
        let x = x.bytes();
        let parts: Vec<Mutex<&mut [u8]>> = y.bytes_mut().chunks_mut(256).map(Mutex::new).collect();
        workers.run(parts.len(), &|part| {
            each(part);
            let mut y = parts[part].lock().unwrap();
            for (y, x) in y.chunks_exact_mut(4).zip(x[256 * part..].chunks_exact(4)) {
                let x = u32::from_le_bytes(x.try_into().unwrap());
                y.copy_from_slice(&(x * (x + 1) / 2).to_le_bytes());
            }
        });
    };
    (Variant::host_in_parts(name, 1, function).vouched(), calls)
}

#[test]
fn a_function_in_parts_has_the_threads_of_the_backend_and_ends_when_it_has_to() {
    let engine = engine(Mode::NaturalGradient);
    let threads = engine.backend("cpu").unwrap().capabilities().threads as usize;
    let seen = Arc::new(Mutex::new(HashSet::new()));
    let met = Arc::clone(&seen);
    let (variant, calls) = in_parts("meeting", move |_| {
        met.lock().unwrap().insert(std::thread::current().id());
        // Another thread gets time to come.
        let until = Instant::now() + Duration::from_millis(100);
        while met.lock().unwrap().len() < threads.min(2) && Instant::now() < until {
            std::thread::yield_now();
        }
    });
    let mut config = DispatchConfig::default();
    config.variants = vec![variant];
    // It runs also where a launch has a timeout.
    config.timeout = Some(Duration::from_secs(60));
    launch(&engine, &engine.kernel_with(&program(), &config).unwrap(), 4096, 5);
    assert_eq!(calls.load(Ordering::Relaxed), 5);
    assert!(seen.lock().unwrap().len() >= threads.min(2));
    // No part begins after its time.
    let (endless, calls) = in_parts("asleep", |_| std::thread::sleep(Duration::from_millis(20)));
    config.variants = vec![endless];
    config.timeout = Some(Duration::from_secs(3));
    let kernel = engine.kernel_with(&program(), &config).unwrap().on("cpu").unwrap();
    let (x, began) = (engine.array(&input(1 << 20)).unwrap(), Instant::now());
    let mut y = engine.zeros::<u32>(1 << 20).unwrap();
    let error = kernel.bind("x", &x).bind("y", &mut y).launch().and_then(|launch| launch.wait()).unwrap_err();
    assert_eq!(error.code(), vyre::codes::backend::TIMEOUT.id, "{error}");
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    assert!(began.elapsed() < Duration::from_secs(60), "16384 parts would take minutes");
    // A panic in a part is the launch's.
    let (broken, _) = in_parts("broken", |part| assert!(part != 5, "on purpose"));
    config.variants = vec![broken];
    config.timeout = None;
    let kernel = engine.kernel_with(&program(), &config).unwrap().on("cpu").unwrap();
    let (x, mut y) = (engine.array(&input(4096)).unwrap(), engine.zeros::<u32>(4096).unwrap());
    let error = kernel.bind("x", &x).bind("y", &mut y).launch().and_then(|launch| launch.wait()).unwrap_err();
    assert!(error.to_string().contains("the launch panicked: on purpose"), "{error}");
}
