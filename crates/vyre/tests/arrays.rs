//! Arrays and launches: values, order, loss, deadlines, memory.

mod support;

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use support::{ENDLESS, Sim};
use vyre::{Array, Engine, Error, Kernel, Program, VyreBackend, codes};

const ADD: &str = "
    @group(0) @binding(0) var<storage, read> a: array<u32>;
    @group(0) @binding(1) var<storage, read_write> out: array<u32>;
    override step: u32 = 1u;
    @compute @workgroup_size(64) fn add(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x < arrayLength(&out) { out[id.x] = a[id.x] + step; }
    }";

const INCREMENT: &str = "
    @group(0) @binding(0) var<storage, read_write> x: array<u32>;
    @compute @workgroup_size(64) fn increment(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x < arrayLength(&x) { x[id.x] += 1u; }
    }";

const SCALE: &str = "
    struct Params { factor: f32, offset: f32 }
    @group(0) @binding(0) var<uniform> params: Params;
    @group(0) @binding(1) var<storage, read> x: array<f32>;
    @group(0) @binding(2) var<storage, read_write> y: array<f32>;
    @compute @workgroup_size(64) fn scale(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x < arrayLength(&y) { y[id.x] = x[id.x] * params.factor + params.offset; }
    }";

/// A kernel that would not end is ended after this; it is compiled within it, which takes a while on a busy machine.
const ENDS_AFTER: Duration = Duration::from_secs(2);

/// Never ends by itself on any backend, and writes to `x`.
fn endless() -> Program {
    let source = format!(
        "@group(0) @binding(0) var<storage, read_write> x: array<u32>;
         fn vyre_domain() -> vec3<u32> {{ return vec3<u32>(64u, 1u, 1u); }}
         @compute @workgroup_size(64) fn {ENDLESS}(@builtin(global_invocation_id) id: vec3<u32>) {{
             loop {{ if x[0] == 4000000000u {{ break; }} x[id.x % 2u] = 7u; }}
         }}"
    );
    vyre::wgsl(&source).unwrap()
}

/// An endless launch was ended at its time, or by a driver that can't make so many rounds.
fn is_ended(error: &Error) -> bool {
    [codes::backend::TIMEOUT.id, codes::wgpu::LOOP_LIMIT.id].contains(&error.code())
}

fn engine_of(backends: Vec<Arc<dyn VyreBackend>>) -> Engine {
    let builder = Engine::builder().without_default_backends().without_disk();
    let count = backends.len() as i32;
    let with = backends.into_iter().enumerate();
    with.fold(builder, |builder, (at, backend)| builder.with_backend(backend, count - at as i32)).open().unwrap()
}

/// An engine on every kind of device that is here: simulated ones with their own memory, and the processor.
fn engines() -> Vec<(&'static str, Engine)> {
    let sim = |queues| -> Arc<dyn VyreBackend> { Arc::new(Sim::new("sim", queues, 1 << 30)) };
    #[allow(unused_mut, reason = "the processor is a feature")]
    let mut engines = vec![("one queue", engine_of(vec![sim(1)])), ("four queues", engine_of(vec![sim(4)]))];
    #[cfg(feature = "cpu")]
    engines.push(("cpu", engine_of(vec![Arc::new(vyre_cpu::CpuBackend::new().unwrap())])));
    #[cfg(feature = "wgpu")]
    match vyre_wgpu::WgpuBackend::probe() {
        Ok(adapter) => engines.push(("wgpu", engine_of(vec![adapter]))),
        Err(absent) => println!("not on wgpu: {}", absent.message),
    }
    #[cfg(feature = "cuda")]
    match vyre_cuda::CudaBackend::probe() {
        Ok(device) => engines.push(("cuda", engine_of(vec![device]))),
        Err(absent) => println!("not on CUDA: {}", absent.message),
    }
    engines
}

fn kernel(engine: &Engine, source: &str) -> Kernel {
    engine.kernel(&vyre::wgsl(source).unwrap()).unwrap()
}

#[test]
fn the_result_of_one_launch_is_the_input_of_the_next() {
    for (name, engine) in engines() {
        let add = kernel(&engine, ADD);
        let mut now = engine.array(&[0u32, 10, 20, 30, 40]).unwrap();
        let mut next = engine.zeros_like(&now).unwrap();
        for _ in 0..50 {
            add.bind("a", &now).bind("out", &mut next).launch().unwrap();
            std::mem::swap(&mut now, &mut next);
        }
        assert_eq!(now.to_vec().unwrap(), [50, 60, 70, 80, 90], "{name}");
        let by_seven = add.set("step", 7u32).unwrap();
        by_seven.bind("a", &now).bind("out", &mut next).launch().unwrap();
        assert_eq!(next.to_vec().unwrap(), [57, 67, 77, 87, 97], "{name}");
    }
}

/// A launch on a device that it names says nothing of where the next one goes.
#[test]
fn naming_a_device_is_for_one_launch() {
    let sims = ["fast", "slow"].map(|id| Arc::new(Sim::new(id, 1, 1 << 20)));
    let engine = engine_of(sims.iter().map(|sim| sim.clone() as Arc<dyn VyreBackend>).collect());
    let increment = kernel(&engine, INCREMENT);
    let ran_on = || increment.explain().backend.unwrap();
    let mut x = engine.zeros::<u32>(64).unwrap();
    increment.bind("x", &mut x).run().unwrap();
    let chosen = ran_on();
    let other = if chosen == "fast" { "slow" } else { "fast" };
    let mut y = engine.zeros::<u32>(64).unwrap();
    increment.bind("x", &mut y).on(other).run().unwrap();
    assert_eq!(ran_on(), other);
    increment.bind("x", &mut x).run().unwrap();
    assert_eq!((ran_on(), x.to_vec().unwrap()), (chosen, vec![2; 64]));
}

/// A replay that the device refuses half-way has changed its arrays: they are lost, not as they were.
#[test]
fn a_replay_that_fails_half_way_loses_what_it_writes() {
    let sim = Arc::new(Sim::new("sim", 1, 1 << 20));
    let engine = engine_of(vec![sim.clone()]);
    let increment = kernel(&engine, INCREMENT);
    let mut recorder = engine.record();
    let place = recorder.place::<u32>("x", 64);
    for _ in 0..3 {
        recorder.launch(&increment).bind("x", place).add().unwrap();
    }
    let graph = recorder.finish().unwrap();
    let mut x = engine.zeros::<u32>(64).unwrap();
    graph.replay().bind("x", &mut x).run().unwrap();
    assert_eq!(x.to_vec().unwrap(), [3; 64]);
    sim.takes.store(0, std::sync::atomic::Ordering::SeqCst);
    assert!(graph.replay().bind("x", &mut x).launch().is_err());
    assert_eq!(x.to_vec().unwrap(), [3; 64]);
    sim.takes.store(2, std::sync::atomic::Ordering::SeqCst);
    assert!(graph.replay().bind("x", &mut x).run().is_err());
    assert!(x.to_vec().is_err());
    sim.takes.store(u64::MAX, std::sync::atomic::Ordering::SeqCst);
    x.write(&[5; 64]).unwrap();
    graph.replay().bind("x", &mut x).run().unwrap();
    assert_eq!(x.to_vec().unwrap(), [8; 64]);
}

/// A chain that nobody waited for is settled with little stack, however long it is.
#[test]
fn long_chains_take_little_stack() {
    const LAUNCHES: u32 = 4000;
    let sim = Arc::new(Sim::new("sim", 2, 1 << 20));
    let engine = engine_of(vec![sim.clone()]);
    let increment = kernel(&engine, INCREMENT);
    let mut x = engine.zeros::<u32>(64).unwrap();
    increment.bind("x", &mut x).run().unwrap();
    sim.hold(true);
    for _ in 0..LAUNCHES {
        increment.bind("x", &mut x).launch().unwrap();
    }
    sim.hold(false);
    let small = std::thread::Builder::new().stack_size(128 << 10);
    let read = small.spawn(move || x.to_vec().unwrap()).unwrap().join().unwrap();
    assert_eq!(read, vec![LAUNCHES + 1; 64]);
}

#[test]
fn a_clone_is_a_value_of_its_own() {
    for (name, engine) in engines() {
        let increment = kernel(&engine, INCREMENT);
        let mut x = engine.array(&[1u32, 2, 3]).unwrap();
        let before = x.clone();
        increment.bind("x", &mut x).launch().unwrap();
        let between = x.clone();
        increment.bind("x", &mut x).launch().unwrap();
        x.write_at(0, &[100]).unwrap();
        assert_eq!(before.to_vec().unwrap(), [1, 2, 3], "{name}");
        assert_eq!(between.to_vec().unwrap(), [2, 3, 4], "{name}");
        assert_eq!(x.to_vec().unwrap(), [100, 4, 5], "{name}");
        let mut copy = engine.zeros::<u32>(3).unwrap();
        copy.copy_from(&x).unwrap();
        increment.bind("x", &mut copy).run().unwrap();
        assert_eq!((x.to_vec().unwrap(), copy.to_vec().unwrap()), (vec![100, 4, 5], vec![101, 5, 6]), "{name}");
    }
}

#[test]
fn parts_are_read_written_and_ordered_by_range() {
    for (name, engine) in engines() {
        let increment = kernel(&engine, INCREMENT);
        let mut x = engine.array(&(0..1000).collect::<Vec<u32>>()).unwrap().shaped([10, 100]).unwrap();
        {
            let (mut low, high) = x.split_at_mut(3).unwrap();
            assert_eq!((low.shape(), high.shape()), (&[3, 100][..], &[7, 100][..]));
            increment.bind("x", high).launch().unwrap();
            low.write(&[5; 300]).unwrap();
            increment.bind("x", low).launch().unwrap();
        }
        // A part that starts where no device can bind it.
        let odd = x.view_mut().unwrap().slice(9..).unwrap();
        increment.bind("x", odd).launch().unwrap();
        let mut flat = x.clone().shaped(1000).unwrap();
        increment.bind("x", flat.slice_mut(1..4).unwrap()).launch().unwrap();
        let expected: Vec<u32> = (0..1000).map(|i| if i < 300 { 6 } else { i + 1 + u32::from(i >= 900) }).collect();
        assert_eq!(x.to_vec().unwrap(), expected, "{name}");
        assert_eq!(flat.slice(..6).unwrap().to_vec().unwrap(), [6, 7, 7, 7, 6, 6], "{name}");
        assert_eq!(x.slice(9..10).unwrap().slice(..).unwrap().to_vec().unwrap(), expected[900..], "{name}");
        assert_eq!(x.slice(4..11).err().unwrap().code(), codes::engine::SHAPE.id);
    }
}

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Params {
    factor: f32,
    offset: f32,
}

impl vyre::Element for Params {}

#[test]
fn values_are_given_with_the_launch() {
    for (name, engine) in engines() {
        let scale = kernel(&engine, SCALE);
        let x = engine.array(&[1.0f32, 2.0, 3.0]).unwrap();
        let mut y = engine.zeros_like(&x).unwrap();
        for (factor, offset) in [(2.0, 0.0), (2.0, 0.0), (10.0, 1.0)] {
            scale.value("params", &Params { factor, offset }).bind("x", &x).bind("y", &mut y).launch().unwrap();
        }
        assert_eq!(y.to_vec().unwrap(), [11.0, 21.0, 31.0], "{name}");
    }
}

#[test]
fn mistakes_are_told_before_anything_runs() {
    let engine = engine_of(vec![Arc::new(Sim::new("sim", 1, 1 << 30))]);
    let add = kernel(&engine, ADD);
    let (a, mut out) = (engine.array(&[1u32, 2]).unwrap(), engine.array(&[9u32, 9]).unwrap());
    let code =
        |outcome: Result<vyre::Launch, Error>| outcome.err().map(|error| (error.code(), error.to_string())).unwrap();
    let (id, text) = code(add.bind("aa", &a).bind("out", &mut out).launch());
    assert_eq!(id, codes::engine::UNKNOWN_BUFFER.id);
    assert!(text.contains("Did you mean `a`?"), "{text}");
    assert_eq!(code(add.bind("a", &a).launch()).0, codes::engine::NOT_SET.id);
    assert_eq!(code(add.bind("a", &a).bind("a", &a).bind("out", &mut out).launch()).0, codes::engine::BOUND_TWICE.id);
    let (id, text) = code(add.bind("a", &a).bind("out", &a).launch());
    assert_eq!(id, codes::engine::READ_ONLY.id);
    assert!(text.contains("&mut"), "{text}");
    let floats = engine.array(&[1.0f32]).unwrap();
    assert_eq!(code(add.bind("a", &floats).bind("out", &mut out).launch()).0, codes::engine::WRONG_ELEMENT.id);
    let scale = kernel(&engine, SCALE);
    let (x, mut y) = (engine.array(&[1.0f32]).unwrap(), engine.zeros::<f32>(1).unwrap());
    let short = scale.value("params", &1.0f32).bind("x", &x).bind("y", &mut y).launch();
    assert_eq!(code(short).0, codes::ir::LAUNCH_INPUT_SIZE.id);
    assert_eq!(out.to_vec().unwrap(), [9, 9], "nothing has changed");
    assert_eq!(engine.array(&[1u32]).unwrap().shaped([2, 3]).unwrap_err().code(), codes::engine::SHAPE.id);
    assert!(engine.zeros::<u32>([usize::MAX, 2]).is_err());
    assert_eq!(add.on("nowhere").err().unwrap().code(), codes::registry::UNKNOWN.id);
}

#[test]
fn empty_arrays_work() {
    for (name, engine) in engines() {
        let add = kernel(&engine, ADD);
        let a = engine.array::<u32>(&[]).unwrap();
        let mut out = engine.zeros_like(&a).unwrap();
        add.bind("a", &a).bind("out", &mut out).run().unwrap();
        assert!(out.to_vec().unwrap().is_empty(), "{name}");
    }
}

#[test]
fn a_launch_past_its_deadline_ends_alone_and_loses_what_it_writes() {
    for (name, engine) in engines() {
        let (forever, increment) = (engine.kernel(&endless()).unwrap(), kernel(&engine, INCREMENT));
        let (mut bad, mut good) = (engine.zeros::<u32>(64).unwrap(), engine.zeros::<u32>(64).unwrap());
        increment.bind("x", &mut good).launch().unwrap();
        let late = ENDS_AFTER;
        let launch = forever.bind("x", &mut bad).timeout(late).label("runaway").launch().unwrap();
        for _ in 0..10 {
            increment.bind("x", &mut good).launch().unwrap();
        }
        // What follows from something lost is lost too, whenever it was launched.
        let mut after = engine.zeros::<u32>(64).unwrap();
        let followed = kernel(&engine, ADD).bind("a", &bad).bind("out", &mut after).launch().unwrap();
        let error = launch.wait().unwrap_err();
        assert!(is_ended(&error) && error.message().contains("runaway"), "{name}: {error}");
        assert!(is_ended(&bad.to_vec().unwrap_err()), "{name}");
        assert!(followed.wait().unwrap_err().message().contains("runaway"), "{name}");
        assert!(after.to_vec().unwrap_err().message().contains("runaway"), "{name}");
        let refused = increment.bind("x", &mut bad).launch().expect_err("it is lost");
        assert!(refused.message().contains("runaway"), "{name}: {refused}");
        assert_eq!(good.to_vec().unwrap(), [11; 64], "{name}: nobody else notices");
        // Writing all of it revives it.
        bad.write(&[3; 64]).unwrap();
        increment.bind("x", &mut bad).launch().unwrap();
        assert_eq!(bad.to_vec().unwrap(), [4; 64], "{name}");
    }
}

#[test]
fn cancelling_ends_one_launch_and_waiting_ends_none() {
    for (name, engine) in engines() {
        let forever = engine.kernel(&endless()).unwrap();
        let mut x = engine.zeros::<u32>(64).unwrap();
        let launch = forever.bind("x", &mut x).cancellable().launch().unwrap();
        match launch.wait_timeout(Duration::from_millis(30)) {
            Err(error) if error.code() == codes::wgpu::LOOP_LIMIT.id => {
                println!("not on {name}, whose driver ends long loops by itself");
                continue;
            }
            goes_on => assert!(!goes_on.unwrap(), "{name}: it goes on"),
        }
        let early = x.to_vec_within(Duration::from_millis(10)).unwrap_err();
        if early.code() == codes::wgpu::LOOP_LIMIT.id {
            println!("not on {name}, whose driver ends long loops by itself");
            continue;
        }
        assert_eq!(early.code(), codes::backend::TIMEOUT.id, "{name}");
        assert!(!launch.is_done(), "{name}");
        launch.cancel().unwrap();
        assert_eq!(launch.wait().unwrap_err().code(), codes::engine::CANCELLED.id, "{name}");
        assert_eq!(x.to_vec().unwrap_err().code(), codes::engine::CANCELLED.id, "{name}");
        // A launch that is done stays done.
        let mut y = engine.zeros::<u32>(4).unwrap();
        let done = kernel(&engine, INCREMENT).bind("x", &mut y).cancellable().launch().unwrap();
        done.wait().unwrap();
        done.cancel().unwrap();
        done.wait().unwrap();
        assert_eq!(y.to_vec().unwrap(), [1; 4], "{name}");
    }
}

#[test]
fn an_error_that_nobody_asks_about_becomes_a_notice() {
    for (name, engine) in engines() {
        let forever = engine.kernel(&endless()).unwrap();
        // Both are timed, so that the engine itself waits for them.
        for label in ["orphan", "second"] {
            let mut x = engine.zeros::<u32>(64).unwrap();
            drop(forever.bind("x", &mut x).timeout(ENDS_AFTER).label(label).launch().unwrap());
            drop(x);
            engine.synchronize();
            let notices = engine.take_notices();
            assert!(notices.iter().any(|notice| notice.message.contains(label)), "{name}: {notices:?}");
        }
    }
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn launches_and_reads_are_futures_and_call_back() {
    for (name, engine) in engines() {
        let increment = kernel(&engine, INCREMENT);
        let mut x = engine.zeros::<u32>(100_000).unwrap();
        let (send, receive) = mpsc::channel();
        let read = {
            let launch = increment.bind("x", &mut x).launch().unwrap();
            launch.on_done(move |outcome| send.send(outcome.is_ok()).unwrap()).unwrap();
            block_on(launch).unwrap();
            increment.bind("x", &mut x).launch().unwrap();
            x.read_async()
        };
        // The future holds the value of when it was made.
        increment.bind("x", &mut x).launch().unwrap();
        assert_eq!(block_on(read).unwrap(), vec![2; 100_000], "{name}");
        assert_eq!(x.to_vec().unwrap(), vec![3; 100_000], "{name}");
        assert!(receive.recv_timeout(Duration::from_secs(10)).unwrap(), "{name}");
        let mut y = engine.zeros::<u32>(64).unwrap();
        let late = engine.kernel(&endless()).unwrap();
        let launch = late.bind("x", &mut y).timeout(ENDS_AFTER).launch().unwrap();
        assert!(is_ended(&block_on(launch).unwrap_err()), "{name}");
    }
}

/// The futures bring no executor along, need none of a kind, and leave its one thread free while they wait.
#[test]
fn launches_and_reads_are_awaited_under_tokio() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    for (name, engine) in engines() {
        let increment = kernel(&engine, INCREMENT);
        let work = |rounds: u32| {
            let (engine, increment) = (engine.clone(), increment.clone());
            async move {
                let mut x = engine.zeros::<u32>(100_000).unwrap();
                for _ in 0..rounds {
                    increment.bind("x", &mut x).launch().unwrap().await.unwrap();
                }
                x.read_async().await.unwrap()
            }
        };
        runtime.block_on(async {
            let tasks: Vec<_> = (1..5).map(|rounds| tokio::spawn(work(rounds))).collect();
            for (rounds, task) in (1..).zip(tasks) {
                assert_eq!(task.await.unwrap(), vec![rounds; 100_000], "{name}");
            }
            // Whoever gives up waiting goes on at once; the launch ends by its own limit.
            let mut y = engine.zeros::<u32>(64).unwrap();
            let late = engine.kernel(&endless()).unwrap();
            let launch = late.bind("x", &mut y).timeout(Duration::from_secs(2)).launch().unwrap();
            let began = Instant::now();
            let given = tokio::time::timeout(Duration::from_millis(50), launch).await;
            // A driver in software ends loops that are too long by itself.
            assert!(given.is_err() || is_ended(&given.unwrap().unwrap_err()), "{name}");
            assert!(began.elapsed() < Duration::from_secs(2), "{name}");
        });
    }
}

#[test]
fn independent_launches_run_at_once_where_there_are_queues() {
    let sim = Arc::new(Sim::new("sim", 4, 1 << 30));
    let engine = engine_of(vec![sim]);
    let (forever, increment) = (engine.kernel(&endless()).unwrap(), kernel(&engine, INCREMENT));
    let (mut stuck, mut free) = (engine.zeros::<u32>(64).unwrap(), engine.zeros::<u32>(64).unwrap());
    let launch = forever.bind("x", &mut stuck).cancellable().launch().unwrap();
    increment.bind("x", &mut free).launch().unwrap();
    assert_eq!(free.to_vec().unwrap(), [1; 64], "it does not wait for the endless one");
    assert!(!launch.is_done());
    launch.cancel().unwrap();
    assert!(launch.wait().is_err());
}

/// Whatever work comes, it is not put behind one that never ends.
#[test]
fn no_launch_is_queued_behind_one_that_never_ends() {
    let sim: Arc<dyn VyreBackend> = Arc::new(Sim::new("sim", 4, 1 << 30));
    for backend in [sim, Arc::new(vyre_cpu::CpuBackend::new().unwrap())] {
        let engine = engine_of(vec![backend]);
        let (forever, increment) = (engine.kernel(&endless()).unwrap(), kernel(&engine, INCREMENT));
        let mut stuck = engine.zeros::<u32>(64).unwrap();
        let launch = forever.bind("x", &mut stuck).cancellable().launch().unwrap();
        let done = (0..200).all(|_| {
            let mut free = engine.array(&[1u32; 5000]).unwrap();
            let next = increment.bind("x", &mut free).cancellable().launch().unwrap();
            next.wait_timeout(Duration::from_secs(20)).unwrap() && free.to_vec().unwrap()[4999] == 2
        });
        launch.cancel().unwrap();
        assert!(launch.wait().is_err());
        assert!(done, "a launch waited for the endless one on {}", increment.explain());
    }
}

/// Kernels of which the tuner still learns the launch don't wait for each other either.
#[test]
fn a_new_kernel_does_not_wait_for_another_that_never_ends() {
    let engine = engine_of(vec![Arc::new(vyre_cpu::CpuBackend::new().unwrap())]);
    let forever = "
        @group(0) @binding(0) var<storage, read_write> x: array<u32>;
        @compute @workgroup_size(64) fn NAME(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x < arrayLength(&x) { loop { if x[id.x] == 4000000000u { break; } x[id.x] = 7u; } }
        }";
    let forever = kernel(&engine, &forever.replace("NAME", ENDLESS));
    let (mut stuck, mut free) = (engine.zeros::<u32>(4096).unwrap(), engine.zeros::<u32>(4096).unwrap());
    let launch = forever.bind("x", &mut stuck).cancellable().launch().unwrap();
    let increment = kernel(&engine, INCREMENT);
    let next = increment.bind("x", &mut free).cancellable().launch().unwrap();
    for kernel in [&forever, &increment] {
        let explained = kernel.explain().to_string();
        assert!(explained.contains("others are being tried"), "{explained}");
    }
    let done = next.wait_timeout(Duration::from_secs(10));
    launch.cancel().unwrap();
    assert!(launch.wait().is_err());
    assert!(matches!(done, Ok(true)), "it waited for the endless one: {done:?}");
    assert_eq!(free.to_vec().unwrap()[..2], [1, 1]);
}

#[test]
fn data_follows_the_work_between_devices() {
    let (one, two) = (Arc::new(Sim::new("one", 2, 1 << 30)), Arc::new(Sim::new("two", 1, 1 << 30)));
    let engine = engine_of(vec![one, two, Arc::new(vyre::ReferenceBackend)]);
    let increment = kernel(&engine, INCREMENT);
    let mut x = engine.array(&[0u32; 1000]).unwrap();
    for round in 0..30u32 {
        let on = ["one", "two", "reference", "two"][(round % 4) as usize];
        increment.bind("x", &mut x).on(on).launch().unwrap();
        if round % 7 == 0 {
            x.write_at(5, &[round]).unwrap();
        }
    }
    let values = x.to_vec().unwrap();
    assert_eq!((values[0], values[5]), (30, 28 + 1));
}

/// Small launches on the processor use arrays without their locks while nothing is under way on them; whatever others do in between counts.
#[cfg(feature = "cpu")]
#[test]
fn small_launches_see_what_others_did() {
    let cpu: Arc<dyn VyreBackend> = Arc::new(vyre_cpu::CpuBackend::new().unwrap());
    let engine = engine_of(vec![cpu, Arc::new(Sim::new("sim", 2, 1 << 30)), Arc::new(vyre::ReferenceBackend)]);
    let (add, increment) = (kernel(&engine, ADD), kernel(&engine, INCREMENT));
    let (mut x, mut out) = (engine.array(&[0u32; 64]).unwrap(), engine.zeros::<u32>(64).unwrap());
    let (mut value, mut snapshots) = (0, Vec::new());
    for round in 0..400u32 {
        let on = match round % 16 {
            5 => "sim",
            9 => "reference",
            _ => "cpu",
        };
        increment.bind("x", &mut x).on(on).launch().unwrap();
        value += 1;
        match round % 50 {
            20 => (_, value) = (x.write(&[round; 64]).unwrap(), round),
            30 => snapshots.push((x.clone(), value)),
            40 => add.bind("a", &x).bind("out", &mut out).on("sim").launch().unwrap().wait().unwrap(),
            _ => add.bind("a", &x).bind("out", &mut out).on("cpu").launch().unwrap().wait().unwrap(),
        }
        if round % 50 > 30 {
            assert_eq!(out.to_vec().unwrap(), [value + 1; 64], "round {round}");
        }
    }
    for (snapshot, value) in snapshots {
        assert_eq!(snapshot.to_vec().unwrap(), vec![value; 64]);
    }
    drop((x, out));
    assert_eq!(engine.memory()[0].used, 0, "what was used without locks is given back");
}

#[cfg(feature = "cpu")]
#[test]
fn small_launches_wait_for_large_ones() {
    const LATE: &str = "
        @group(0) @binding(0) var<storage, read> a: array<u32>;
        @group(0) @binding(1) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(64) fn late(@builtin(global_invocation_id) id: vec3<u32>) {
            var at = id.x;
            for (var round = 0u; round < 3000u; round++) { at = at * 1664525u + 1013904223u; }
            if id.x < arrayLength(&out) { out[id.x] = a[at % 64u]; }
        }";
    let engine = engine_of(vec![Arc::new(vyre_cpu::CpuBackend::new().unwrap())]);
    let (late, increment) = (kernel(&engine, LATE), kernel(&engine, INCREMENT));
    let (mut a, mut out) = (engine.array(&[0u32; 64]).unwrap(), engine.zeros::<u32>(1 << 14).unwrap());
    for round in 0..30u32 {
        late.bind("a", &a).bind("out", &mut out).launch().unwrap();
        increment.bind("x", &mut a).launch().unwrap();
        assert_eq!(out.to_vec().unwrap(), vec![round; 1 << 14], "it read what was there when it was launched");
    }
}

#[test]
fn halves_of_one_array_live_on_two_devices() {
    let (one, two) = (Arc::new(Sim::new("one", 2, 1 << 30)), Arc::new(Sim::new("two", 1, 1 << 30)));
    let engine = engine_of(vec![one, two]);
    let increment = kernel(&engine, INCREMENT);
    let mut x = engine.zeros::<u32>(2000).unwrap();
    for _ in 0..5 {
        let (low, high) = x.split_at_mut(1000).unwrap();
        increment.bind("x", low).on("one").launch().unwrap();
        increment.bind("x", high).on("two").launch().unwrap();
    }
    assert_eq!(x.to_vec().unwrap(), vec![5; 2000]);
    increment.bind("x", &mut x).launch().unwrap();
    assert_eq!(x.to_vec().unwrap(), vec![6; 2000]);
}

#[test]
fn a_full_device_sends_idle_arrays_home_and_then_names_the_largest() {
    let sim = Arc::new(Sim::new("sim", 1, 600 << 10));
    let engine = engine_of(vec![sim]);
    let increment = kernel(&engine, INCREMENT);
    let mut arrays: Vec<Array<u32>> =
        (0..6).map(|i| engine.zeros(1 << 16).unwrap().labelled(&format!("array {i}"))).collect();
    for _ in 0..2 {
        for x in &mut arrays {
            increment.bind("x", x).launch().unwrap();
        }
    }
    for x in &arrays {
        assert_eq!(x.to_vec().unwrap(), vec![2; 1 << 16], "what made room is not lost");
    }
    let mut huge = engine.zeros::<u32>(1 << 18).unwrap();
    let error = increment.bind("x", &mut huge).launch().expect_err("1 MiB does not fit in 600 KiB");
    assert_eq!(error.code(), codes::backend::OUT_OF_MEMORY.id);
    assert_eq!(huge.to_vec().unwrap()[0], 0, "nothing was launched");
    increment.bind("x", &mut arrays[0]).run().unwrap();
    assert_eq!(arrays[0].to_vec().unwrap()[7], 3, "one launch that does not fit is no reason to stop");
}

#[test]
fn a_lost_device_takes_only_what_it_alone_holds() {
    let (one, two) = (Arc::new(Sim::new("one", 2, 1 << 30)), Arc::new(Sim::new("two", 1, 1 << 30)));
    let engine = engine_of(vec![one.clone(), two]);
    let increment = kernel(&engine, INCREMENT);
    let kept = engine.array(&[1u32; 100]).unwrap();
    let (mut there, mut copied) = (kept.clone(), kept.clone());
    increment.bind("x", &mut there).on("one").launch().unwrap();
    increment.bind("x", &mut copied).on("one").launch().unwrap();
    let copy = copied.to_vec().unwrap();
    engine.synchronize();
    one.lose();
    assert_eq!(there.to_vec().unwrap_err().code(), codes::backend::DEVICE_LOST.id);
    assert_eq!((copy[0], kept.to_vec().unwrap()[0]), (2, 1));
    // The next work goes elsewhere by itself, and the user is told.
    let mut fresh = kept.clone();
    increment.bind("x", &mut fresh).launch().unwrap();
    assert_eq!(fresh.to_vec().unwrap(), [2; 100]);
    there.write(&[7; 100]).unwrap();
    increment.bind("x", &mut there).launch().unwrap();
    assert_eq!(there.to_vec().unwrap(), [8; 100]);
}

#[test]
fn waiters_of_a_lost_device_wake() {
    let one = Arc::new(Sim::new("one", 2, 1 << 30));
    let engine = engine_of(vec![one.clone()]);
    let mut x = engine.zeros::<u32>(64).unwrap();
    let launch = engine.kernel(&endless()).unwrap().bind("x", &mut x).cancellable().launch().unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| launch.wait());
        std::thread::sleep(Duration::from_millis(30));
        one.lose();
        assert_eq!(waiter.join().unwrap().unwrap_err().code(), codes::backend::DEVICE_LOST.id);
    });
}

#[test]
fn prepared_programs_keep_to_their_timeout_when_read() {
    for (name, engine) in engines() {
        let mut config = vyre::DispatchConfig::default();
        config.timeout = Some(ENDS_AFTER);
        let prepared = engine.prepare_with(&endless(), &config).unwrap();
        prepared.set("x", vyre::to_bytes(&[0u32; 64])).unwrap();
        let started = Instant::now();
        prepared.dispatch().unwrap();
        assert!(is_ended(&prepared.get("x").unwrap_err()), "{name}");
        assert!(started.elapsed() < Duration::from_secs(20), "{name}");
        // An earlier failure in a chain does not pass silently.
        assert!(prepared.dispatch().and_then(|launch| launch.wait()).is_err(), "{name}");
        prepared.set("x", vyre::to_bytes(&[4_000_000_000u32; 64])).unwrap();
    }
}

#[test]
fn a_result_stays_readable_when_the_input_changes_its_size() {
    for (name, engine) in engines() {
        let prepared = engine.prepare(&vyre::wgsl(ADD).unwrap()).unwrap();
        prepared.set("a", vyre::to_bytes(&[1u32, 2, 3])).unwrap();
        prepared.run().unwrap();
        prepared.set("a", vyre::to_bytes(&[5u32])).unwrap();
        assert_eq!(vyre::from_bytes::<u32>(&prepared.get("out").unwrap()), [2, 3, 4], "{name}");
        prepared.run().unwrap();
        assert_eq!(vyre::from_bytes::<u32>(&prepared.get("out").unwrap()), [6], "{name}");
    }
}

#[test]
fn results_go_into_the_callers_memory() {
    for (name, engine) in engines() {
        let program = vyre::wgsl(ADD).unwrap();
        let a: Vec<u32> = (0..1000).collect();
        let mut out = vec![0u32; 1000];
        let config = vyre::DispatchConfig::default();
        let results = &mut [bytemuck::cast_slice_mut(&mut out[..])];
        engine.run_into(&program, &[vyre::to_bytes(&a)], results, &config).unwrap();
        assert_eq!(out, (1..1001).collect::<Vec<u32>>(), "{name}");
        // Memory that starts anywhere.
        let (bytes, mut odd) = ([0u8, 1, 0, 0, 0, 2, 0, 0, 0], [9u8; 9]);
        engine.run_into(&program, &[&bytes[1..]], &mut [&mut odd[1..]], &config).unwrap();
        assert_eq!(odd, [9, 2, 0, 0, 0, 3, 0, 0, 0], "{name}");
        let increment = vyre::wgsl(INCREMENT).unwrap();
        engine.run_into(&increment, &[], &mut [bytemuck::cast_slice_mut(&mut out[..])], &config).unwrap();
        assert_eq!(out[10], 12, "{name}");
        assert!(engine.run_into(&increment, &[&bytes], &mut [], &config).is_err(), "{name}");
    }
}

#[test]
fn threads_share_kernels_and_values() {
    for (name, engine) in engines() {
        let add = kernel(&engine, ADD);
        let source = engine.array(&(0..5000).collect::<Vec<u32>>()).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..10 {
                        let mut own = engine.zeros_like(&source).unwrap();
                        add.bind("a", &source).bind("out", &mut own).launch().unwrap();
                        let mut again = engine.zeros_like(&source).unwrap();
                        add.bind("a", &own).bind("out", &mut again).launch().unwrap();
                        assert_eq!(again.to_vec().unwrap()[4999], 5001, "{name}");
                    }
                });
            }
        });
    }
}

#[test]
fn graphs_replay_what_was_recorded_on_other_arrays() {
    for (name, engine) in engines() {
        let (add, increment) = (kernel(&engine, ADD), kernel(&engine, INCREMENT));
        let mut recorder = engine.record();
        let x = recorder.place::<u32>("x", 100);
        let (between, total) = (recorder.array::<u32>(100), recorder.array::<u32>(100));
        for _ in 0..3 {
            recorder.launch(&add).bind("a", x).bind("out", between).add().unwrap();
            recorder.copy(between, x).unwrap();
        }
        recorder.launch(&increment).bind("x", total).add().unwrap();
        recorder.copy(total, between).unwrap();
        let graph = recorder.finish().unwrap();
        assert_eq!(graph.steps(), 8);
        let (mut one, mut two) = (engine.zeros::<u32>(100).unwrap(), engine.array(&[1000u32; 100]).unwrap());
        let mut three = engine.array(&[2000u32; 100]).unwrap();
        let snapshot = one.clone();
        // Two in turn, and then a third: what is recorded for two is changed for it.
        for _ in 0..20 {
            graph.replay().bind("x", &mut one).launch().unwrap();
            graph.replay().bind("x", &mut two).launch().unwrap();
        }
        for _ in 0..5 {
            graph.replay().bind("x", &mut three).launch().unwrap();
            graph.replay().bind("x", &mut two).launch().unwrap();
        }
        increment.bind("x", &mut one).launch().unwrap();
        assert_eq!(one.to_vec().unwrap(), [61; 100], "{name}");
        assert_eq!(two.to_vec().unwrap(), [1075; 100], "{name}");
        assert_eq!(three.to_vec().unwrap(), [2015; 100], "{name}");
        assert_eq!(snapshot.to_vec().unwrap(), [0; 100], "{name}");
        let mut short = engine.zeros::<u32>(5).unwrap();
        assert_eq!(graph.replay().bind("x", &mut short).launch().unwrap_err().code(), codes::engine::SHAPE.id);
        assert_eq!(graph.replay().launch().unwrap_err().code(), codes::engine::NOT_SET.id);
        assert_eq!(graph.replay().bind("y", &mut one).launch().unwrap_err().code(), codes::engine::UNKNOWN_BUFFER.id);
        let unwritable = graph.replay().bind("x", &one).launch().unwrap_err();
        assert!(unwritable.message().contains("`x` is written"), "{unwritable}");
        let foreign = engine.record().launch(&add).bind("a", x).add().unwrap_err();
        assert_eq!(foreign.code(), codes::engine::UNKNOWN_BUFFER.id, "{name}");
        let mut recorder = engine.record();
        let y = recorder.array::<u32>(4);
        let twice = recorder.launch(&add).bind("a", y).bind("out", y).add();
        assert_eq!(twice.unwrap_err().code(), codes::engine::BOUND_TWICE.id, "{name}");
    }
}

#[test]
fn a_replay_past_its_deadline_ends_alone_and_one_that_is_cancelled_too() {
    for (name, engine) in engines() {
        let (endless, increment) = (engine.kernel(&endless()).unwrap(), kernel(&engine, INCREMENT));
        let mut recorder = engine.record();
        recorder.cancellable();
        let (x, y) = (recorder.place::<u32>("x", 64), recorder.place::<u32>("y", 64));
        recorder.launch(&increment).bind("x", y).add().unwrap();
        recorder.launch(&endless).bind("x", x).add().unwrap();
        recorder.copy(x, y).unwrap();
        let graph = recorder.finish().unwrap();
        let mut other = engine.zeros::<u32>(64).unwrap();
        for cancelled in [false, true] {
            let mut x = engine.zeros::<u32>(64).unwrap();
            let mut y = engine.zeros::<u32>(64).unwrap();
            let replay = graph.replay().bind("x", &mut x).bind("y", &mut y).label("looping");
            let replay = if cancelled { replay } else { replay.timeout(Duration::from_millis(100)) };
            let launch = replay.launch().unwrap();
            if cancelled {
                std::thread::sleep(Duration::from_millis(30));
                launch.cancel().unwrap();
            }
            let error = launch.wait().unwrap_err();
            if !cancelled {
                assert!(is_ended(&error) && error.message().contains("looping"), "{name}: {error}");
            }
            assert!(x.to_vec().is_err() && y.to_vec().is_err(), "{name}: what it would have written is lost");
            increment.bind("x", &mut other).launch().unwrap();
        }
        assert_eq!(other.to_vec().unwrap()[0], 2, "{name}: others go on");
        let mut recorder = engine.record();
        let z = recorder.place::<u32>("z", 64);
        recorder.launch(&increment).bind("x", z).add().unwrap();
        let plain = recorder.finish().unwrap();
        let late = plain.replay().bind("z", &mut other).timeout(Duration::from_secs(1)).launch();
        assert_eq!(late.map(drop).unwrap_err().code(), codes::engine::NOT_CANCELLABLE.id, "{name}");
    }
}

/// What a graph adds up is lost with the replay that was to add to it, and goes on from what it is given then.
#[test]
fn an_array_of_a_graph_that_is_lost_is_given_contents_again() {
    for recording in [false, true] {
        let sim = Sim::new("sim", 2, 1 << 20);
        let sim = Arc::new(if recording { sim.recording() } else { sim });
        let engine = engine_of(vec![sim.clone()]);
        let (increment, add) = (kernel(&engine, INCREMENT), kernel(&engine, ADD));
        let mut recorder = engine.record();
        let (sum, out) = (recorder.array::<u32>(64), recorder.place::<u32>("out", 64));
        recorder.launch(&increment).bind("x", sum).add().unwrap();
        recorder.launch(&add).bind("a", sum).bind("out", out).add().unwrap();
        let graph = recorder.finish().unwrap();
        let mut x = engine.zeros::<u32>(64).unwrap();
        for _ in 0..2 {
            graph.replay().bind("out", &mut x).run().unwrap();
        }
        assert_eq!((graph.read(sum).unwrap(), x.to_vec().unwrap()), (vec![2; 64], vec![3; 64]));
        sim.hold(true);
        let launch = graph.replay().bind("out", &mut x).label("third").launch().unwrap();
        launch.cancel().unwrap();
        sim.hold(false);
        assert_eq!(launch.wait().unwrap_err().code(), codes::engine::CANCELLED.id);
        assert!(graph.read(sum).is_err());
        for _ in 0..2 {
            let told = graph.replay().bind("out", &mut x).run().unwrap_err();
            assert_eq!(told.code(), codes::engine::CANCELLED.id);
            assert!(told.message().contains("third") && told.fix().contains("Graph::write"), "{told}");
        }
        graph.write(sum, &[40; 64]).unwrap();
        x.write(&[0; 64]).unwrap();
        graph.replay().bind("out", &mut x).run().unwrap();
        assert_eq!((graph.read(sum).unwrap(), x.to_vec().unwrap()), (vec![41; 64], vec![42; 64]));
        assert_eq!(graph.write(sum, &[1; 63]).unwrap_err().code(), codes::engine::SHAPE.id);
        assert_eq!(graph.read(out).unwrap_err().code(), codes::engine::UNKNOWN_BUFFER.id);
        let foreign = engine.record().array::<u32>(64);
        assert_eq!(graph.write(foreign, &[1; 64]).unwrap_err().code(), codes::engine::UNKNOWN_BUFFER.id);
    }
}

/// Threads that replay one graph at once take turns with what is the graph's own, its arrays as well as the sizes of its launches.
#[test]
fn replays_of_several_threads_take_turns_with_what_is_the_graphs_own() {
    const THREADS: u32 = 4;
    const REPLAYS: u32 = 50;
    for (name, engine) in engines() {
        let (increment, add) = (kernel(&engine, INCREMENT), kernel(&engine, ADD));
        let mut recorder = engine.record();
        let (sum, scratch) = (recorder.array::<u32>(64), recorder.array::<u32>(64));
        let (a, out) = (recorder.place::<u32>("a", 64), recorder.place::<u32>("out", 64));
        recorder.launch(&increment).bind("x", sum).add().unwrap();
        recorder.launch(&add).bind("a", a).bind("out", scratch).add().unwrap();
        recorder.launch(&add).bind("a", scratch).bind("out", out).add().unwrap();
        let graph = recorder.finish().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (engine, graph, name) = (&engine, &graph, &name);
                scope.spawn(move || {
                    let a = engine.array(&[100 * thread; 64]).unwrap();
                    let mut out = engine.zeros::<u32>(64).unwrap();
                    for _ in 0..REPLAYS {
                        graph.replay().bind("a", &a).bind("out", &mut out).launch().unwrap();
                        assert_eq!(out.to_vec().unwrap(), [100 * thread + 2; 64], "{name}");
                    }
                });
            }
        });
        assert_eq!(graph.read(sum).unwrap(), [THREADS * REPLAYS; 64], "{name}");
    }
}

#[test]
fn launches_of_replays_are_timed_now_and_then() {
    for (name, engine) in engines() {
        let id = engine.backend_ids()[0].as_str().to_owned();
        if !engine.backend(&id).unwrap().capabilities().timestamps {
            println!("not on {name}: it takes no times");
            continue;
        }
        let increment = kernel(&engine, INCREMENT);
        let mut recorder = engine.record();
        let x = recorder.place::<u32>("x", 64);
        recorder.launch(&increment).bind("x", x).add().unwrap();
        let graph = recorder.finish().unwrap();
        let mut values = engine.zeros::<u32>(64).unwrap();
        let waits = || engine.metrics().latency(vyre::metrics::Stage::Wait).count;
        let before = waits();
        for _ in 0..600 {
            graph.replay().bind("x", &mut values).run().unwrap();
        }
        assert!(values.to_vec().unwrap().iter().all(|&x| x == 600), "{name}");
        let taken = waits() - before;
        // What is submitted step by step is timed like any launch.
        let is_recorded = engine.backend(&id).unwrap().capabilities().recordings;
        let most = if is_recorded { 9 } else { 600 };
        assert!((1..=most).contains(&taken), "{name}: {taken} of 600 replays were timed");
    }
}

/// A launch on memory that the device reaches by itself does not wait for the copy; whoever writes that memory next does.
#[test]
fn copies_are_queued_and_writers_of_what_is_copied_wait_for_them() {
    let sim = Arc::new(Sim::new("sim", 2, 1 << 30));
    sim.reaches_host.store(true, std::sync::atomic::Ordering::Relaxed);
    #[allow(unused_mut, reason = "the processor is a feature")]
    let mut backends: Vec<Arc<dyn VyreBackend>> = vec![sim.clone()];
    #[cfg(feature = "cpu")]
    backends.push(Arc::new(vyre_cpu::CpuBackend::new().unwrap()));
    let engine = engine_of(backends);
    let (add, increment) = (kernel(&engine, ADD), kernel(&engine, INCREMENT));
    type Way<'a> = &'a (dyn Fn(&mut Array<u32>) + Sync);
    let ways: [Way<'_>; 2] = [&|a| a.write(&[70; 100]).unwrap(), &|a| {
        for _ in 0..2 {
            increment.bind("x", &mut *a).on("cpu").launch().unwrap().wait().unwrap();
        }
    }];
    if cfg!(feature = "cpu") {
        increment.bind("x", &mut engine.zeros::<u32>(100).unwrap()).on("cpu").run().unwrap();
    }
    for (way, expected) in ways.into_iter().zip([70, 42]).take(1 + usize::from(cfg!(feature = "cpu"))) {
        let mut a = engine.array(&[40u32; 100]).unwrap();
        let mut out = engine.zeros::<u32>(100).unwrap();
        sim.hold(true);
        let launch = add.bind("a", &a).bind("out", &mut out).on("sim").launch().unwrap();
        assert!(!launch.is_done(), "nothing was waited for");
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| way(&mut a));
            std::thread::sleep(Duration::from_millis(50));
            assert!(!writer.is_finished(), "what is still to be copied was written");
            sim.hold(false);
        });
        assert_eq!(out.to_vec().unwrap(), [41; 100]);
        assert_eq!(a.to_vec().unwrap(), [expected; 100]);
        // What is dropped before it is copied is kept for that.
        sim.hold(true);
        let b = engine.array(&vec![7u32; 100_000]).unwrap();
        let mut sum = engine.zeros::<u32>(100_000).unwrap();
        add.bind("a", &b).bind("out", &mut sum).on("sim").launch().unwrap();
        drop(b);
        let other = engine.array(&vec![9u32; 100_000]).unwrap();
        sim.hold(false);
        assert!(sum.to_vec().unwrap().iter().all(|&x| x == 8));
        assert!(other.to_vec().unwrap().iter().all(|&x| x == 9));
    }
}

/// What launches of a graph take is learnt from, and what was decided is recorded in the place of what was.
#[test]
fn graphs_learn_from_their_launches_and_take_over_what_was_decided() {
    let sim = Arc::new(Sim::new("sim", 1, 1 << 30).recording());
    let builder = Engine::builder().without_default_backends().without_disk();
    let engine = builder.with_backend(sim.clone(), 1).tuner(vyre::tuner::Mode::NaturalGradient).open().unwrap();
    let add = kernel(&engine, ADD);
    let mut recorder = engine.record();
    let (x, y) = (recorder.place::<u32>("x", 256), recorder.array::<u32>(256));
    for _ in 0..8 {
        recorder.launch(&add).bind("a", x).bind("out", y).add().unwrap();
        recorder.launch(&add).bind("a", y).bind("out", x).add().unwrap();
    }
    let graph = recorder.finish().unwrap();
    let mut values = engine.zeros::<u32>(256).unwrap();
    let decided = || engine.metrics().counter(vyre::metrics::Counter::TuningDecisions);
    let mut replays = 0u32;
    graph.replay().bind("x", &mut values).run().unwrap();
    assert_eq!(sim.ran(), (16, 64), "as the kernel is written");
    while decided() == 0 {
        graph.replay().bind("x", &mut values).run().unwrap();
        replays += 1;
        assert!(replays < 20_000, "nothing was decided");
    }
    // The next that is taken apart takes it over, and so those that are not.
    for _ in 0..300 {
        graph.replay().bind("x", &mut values).run().unwrap();
        replays += 1;
    }
    assert_eq!(sim.ran().1, 256, "the fastest");
    assert_eq!(values.to_vec().unwrap(), [16 * (replays + 1); 256]);
}

/// Steps on several devices: what they have in common is moved between, and a device that refuses its steps after others have done
/// theirs fails the replay.
#[test]
fn a_graph_of_several_devices_moves_what_they_share() {
    let sims = ["one", "two"].map(|id| Arc::new(Sim::new(id, 2, 1 << 20).recording()));
    let engine = engine_of(sims.iter().map(|sim| sim.clone() as Arc<dyn VyreBackend>).collect());
    let (add, increment) = (kernel(&engine, ADD), kernel(&engine, INCREMENT));
    let mut recorder = engine.record();
    let (x, out, other) =
        (recorder.place::<u32>("x", 100), recorder.place::<u32>("out", 100), recorder.place::<u32>("other", 100));
    recorder.launch(&increment).bind("x", x).on("one").add().unwrap();
    recorder.launch(&increment).bind("x", other).on("one").add().unwrap();
    recorder.launch(&add).bind("a", x).bind("out", out).on("two").add().unwrap();
    recorder.launch(&increment).bind("x", out).on("two").add().unwrap();
    recorder.copy(out, x).unwrap();
    recorder.launch(&increment).bind("x", x).on("one").add().unwrap();
    let graph = recorder.finish().unwrap();
    assert_eq!((graph.backend(), graph.steps()), ("one", 6));
    let [mut x, mut out, mut other] = [(); 3].map(|()| engine.zeros::<u32>(100).unwrap());
    for round in 1..=3 {
        let launch = graph.replay().bind("x", &mut x).bind("out", &mut out).bind("other", &mut other).launch().unwrap();
        let (told, hears) = mpsc::channel();
        launch.on_done(move |outcome| told.send(outcome.is_ok()).unwrap()).unwrap();
        assert_eq!(hears.recv_timeout(Duration::from_secs(20)), Ok(true));
        assert!(launch.is_done() && launch.wait_timeout(Duration::ZERO).unwrap());
        assert_eq!(x.to_vec().unwrap(), [4 * round; 100]);
        assert_eq!(out.to_vec().unwrap(), [4 * round - 1; 100]);
        assert_eq!(other.to_vec().unwrap(), [round; 100]);
    }
    assert_eq!(sims.each_ref().map(|sim| sim.ran().0), [9, 6]);
    // The second device is gone after the first has done its part.
    sims[1].lose();
    let kept = other.clone();
    let launch = graph.replay().bind("x", &mut x).bind("out", &mut out).bind("other", &mut other).launch().unwrap();
    assert!(launch.wait().is_err());
    assert!(
        x.to_vec().is_err() && out.to_vec().is_err() && other.to_vec().is_err(),
        "all that the graph writes is lost"
    );
    assert_eq!(kept.to_vec().unwrap(), [3; 100], "and nothing else");
    // Where the first part is refused nothing has changed.
    sims[0].lose();
    let mut fresh = [(); 3].map(|()| engine.array(&[5u32; 100]).unwrap());
    let [x, out, other] = &mut fresh;
    assert!(graph.replay().bind("x", x).bind("out", out).bind("other", other).launch().is_err());
    assert!(fresh.iter().all(|array| array.to_vec().unwrap() == [5; 100]));
}

/// A device that is full of arrays makes room for memory that the caller lends, and has it back when a launch can't begin.
#[test]
fn lent_memory_finds_room_and_is_given_back_whatever_becomes_of_the_launch() {
    let engine = engine_of(vec![Arc::new(Sim::new("sim", 1, 600 << 10))]);
    let (increment, add) = (kernel(&engine, INCREMENT), kernel(&engine, ADD));
    let mut arrays: Vec<Array<u32>> = (0..2).map(|_| engine.zeros(1 << 16).unwrap()).collect();
    for x in &mut arrays {
        increment.bind("x", x).run().unwrap();
    }
    let mut lent = vec![0; 512 << 10];
    increment.call().bytes_mut("x", &mut lent).run().unwrap();
    assert_eq!(lent[..4], [1, 0, 0, 0], "idle arrays made room");
    assert_eq!(arrays[1].to_vec().unwrap()[0], 1, "what made room is not lost");
    // The input fits and the result does not.
    let (a, mut out) = (vec![0; 400 << 10], vec![0; 400 << 10]);
    for _ in 0..3 {
        let error = add.call().bytes("a", &a).bytes_mut("out", &mut out).run().unwrap_err();
        assert_eq!(error.code(), codes::backend::OUT_OF_MEMORY.id);
    }
    drop(arrays);
    // What was on its way there may have to arrive first.
    let is_used = || engine.memory().iter().any(|memory| memory.device == "sim" && memory.used > 0);
    let started = Instant::now();
    while is_used() {
        assert!(started.elapsed() < Duration::from_secs(10), "what could not be launched holds memory");
        std::thread::yield_now();
    }
    increment.call().bytes_mut("x", &mut lent).run().unwrap();
    assert_eq!(lent[..4], [2, 0, 0, 0]);
}

/// A launch that its caller ends is over: it is not done once more, elsewhere or again.
#[test]
fn a_launch_that_was_stopped_is_not_tried_again() {
    let (one, two) = (Arc::new(Sim::new("one", 1, 1 << 30)), Arc::new(Sim::new("two", 1, 1 << 30)));
    let engine = engine_of(vec![one, two]);
    let endless = engine.kernel(&endless()).unwrap();
    let mut x = [0u8; 256];
    for _ in 0..2 {
        // Asked again, it would say that the launch may go on, for as long as it likes.
        let asked = std::sync::atomic::AtomicBool::new(false);
        let stop = move || !asked.swap(true, std::sync::atomic::Ordering::Relaxed);
        let (told, done) = mpsc::channel();
        std::thread::scope(|scope| {
            let call = endless.call().bytes_mut("x", &mut x).timeout(Duration::from_secs(20)).stop_when(stop);
            let started = Instant::now();
            scope.spawn(move || told.send(call.run().map_err(|error| error.code())));
            let outcome = done.recv().unwrap();
            assert_eq!(outcome, Err(codes::engine::CANCELLED.id));
            assert!(started.elapsed() < Duration::from_secs(10), "it was launched again");
        });
    }
}

/// Of two results one came back before the device failed: the caller's memory has changed, so that the work is not done once more on it.
#[test]
fn work_whose_results_came_back_half_is_not_done_again() {
    let (one, two) = (Arc::new(Sim::new("one", 1, 1 << 30)), Arc::new(Sim::new("two", 1, 1 << 30)));
    one.gives.store(1, std::sync::atomic::Ordering::SeqCst);
    let engine = engine_of(vec![one, two]);
    let both = kernel(
        &engine,
        "@group(0) @binding(0) var<storage, read_write> x: array<u32>;
         @group(0) @binding(1) var<storage, read_write> y: array<u32>;
         @compute @workgroup_size(64) fn both(@builtin(global_invocation_id) id: vec3<u32>) {
             if id.x < arrayLength(&x) && id.x < arrayLength(&y) { x[id.x] += 1u; y[id.x] += 1u; }
         }",
    );
    let (mut x, mut y) = ([0u8; 256], [0u8; 256]);
    let outcome = both.call().bytes_mut("x", &mut x).bytes_mut("y", &mut y).run();
    assert_eq!(outcome.unwrap_err().code(), codes::backend::FAILED.id);
    assert_eq!((x[0], y[0]), (1, 0), "half of the results, and an error that says so");
}

/// Untyped buffers and numbers in a graph, and another number each time.
#[test]
fn graphs_take_buffers_and_values() {
    const SCALE: &str = "
        @group(0) @binding(0) var<storage, read> a: array<f32>;
        @group(0) @binding(1) var<uniform> k: f32;
        @group(0) @binding(2) var<storage, read_write> out: array<f32>;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x < arrayLength(&out) { out[id.x] = a[id.x] * k; }
        }";
    for (name, engine) in engines() {
        let scale = kernel(&engine, SCALE);
        let mut recorder = engine.record();
        let (a, out) = (recorder.buffer("a", 12), recorder.buffer("out", 12));
        let k = recorder.place::<f32>("k", 1);
        recorder.launch(&scale).bind("a", a).bind("k", k).bind("out", out).add().unwrap();
        let graph = recorder.finish().unwrap();
        let a = engine.array(&[1f32, 2.0, 3.0]).unwrap();
        let mut kept = Vec::new();
        for step in 0..5 {
            let mut out = engine.buffer(12);
            graph.replay().bind("a", &a).bind("k", step as f32).bind("out", &mut out).launch().unwrap();
            kept.push(out);
        }
        for (step, out) in kept.iter().enumerate() {
            let expected = [1f32, 2.0, 3.0].map(|x| x * step as f32);
            assert_eq!(out.to_vec().unwrap(), bytemuck::cast_slice::<f32, u8>(&expected), "{name}");
        }
        let mut out = engine.buffer(12);
        let wrong = graph.replay().bind("a", &a).bind("k", 1u32).bind("out", &mut out).launch().unwrap_err();
        assert_eq!(wrong.code(), codes::engine::WRONG_ELEMENT.id, "{name}");
    }
}
