//! The backend on a model of the driver: what does not depend on a GPU is held here, on every machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use vyre_conform::device::{DEVICE_CHECKS, add_one, words};
use vyre_driver::VyreBackend;
use vyre_driver::backend::{Binding, Buffer, CompileOptions, Completion, Launch, Order, Pipeline, Step, Ticket};
use vyre_foundation::ir::{AtomicOp, BufferDecl, DataType, Expr, Node, Program};
use vyre_spec::codes;

use crate::CudaBackend;
use crate::api::Api;
use crate::api::fake::{Fresh, world};

const LONG: Duration = Duration::from_secs(30);

fn open() -> CudaBackend {
    CudaBackend::open_with(Box::leak(Box::new(Api::fake())), 0).expect("the model has a device")
}

fn compile(backend: &CudaBackend, program: &Program, interruptible: bool) -> Arc<dyn Pipeline> {
    let mut options = CompileOptions::default();
    options.interruptible = interruptible;
    backend.compile(&program.validate().expect("it is valid"), &options).expect("the model compiles everything")
}

fn endless() -> Program {
    Program::wrapped(
        vec![BufferDecl::read_write("data", 0, DataType::U32)],
        [64, 1, 1],
        vec![Node::forever(vec![Node::atomic(AtomicOp::Add, "data", Expr::u32(0), Expr::u32(1))])],
    )
}

fn read(backend: &CudaBackend, buffer: &Buffer) -> Vec<u8> {
    let mut bytes = vec![0; buffer.bytes() as usize];
    backend.download(buffer, 0, &mut bytes, &Order::default()).expect("it is there");
    bytes
}

fn first_word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().expect("there are four"))
}

fn calls(name: &str) -> u32 {
    world().calls.get(name).copied().unwrap_or(0)
}

/// Nothing was wrong, and nothing is left of the backend.
fn close(backend: CudaBackend) {
    drop(backend);
    let begin = Instant::now();
    // The thread that sends kept launches may look at the device right now.
    while !world().left().is_empty() && begin.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let world = world();
    assert!(world.wrong.is_empty(), "{:?}", world.wrong);
    assert!(world.left().is_empty(), "{:?} are left", world.left());
}

#[test]
fn what_every_device_must_do() {
    // These run kernels that the model does not know.
    const REAL: [&str; 4] = [
        "large grids are split",
        "what compilers get wrong",
        "counters pass zero",
        "quotients of 64 bits by constants",
    ];
    for (name, check) in DEVICE_CHECKS.into_iter().filter(|(name, _)| !REAL.contains(name)) {
        let _fresh = Fresh::new();
        let backend = open();
        println!("{name}");
        if let Err(error) = check(&backend) {
            panic!("{name}: {error}; {:?}", world().wrong);
        }
        close(backend);
    }
}

#[test]
fn launches_cost_nothing_but_themselves_until_somebody_asks() {
    let _fresh = Fresh::new();
    let backend = open();
    let pipeline = compile(&backend, &add_one(), false);
    let bindings = [Binding::from(backend.allocate(256).unwrap())];
    let launch = Launch::new(&bindings, [1; 3]);
    let first = backend.submit(&pipeline, &launch).unwrap();
    assert!(backend.wait(first, Some(LONG)).unwrap().is_some());
    let before = calls("cuStreamWriteValue64");
    let tickets: Vec<Ticket> = (0..300).map(|_| backend.submit(&pipeline, &launch).unwrap()).collect();
    // All but the last are known from the kernels behind them.
    for &ticket in &tickets[..299] {
        assert!(backend.wait(ticket, Some(LONG)).unwrap().is_some());
    }
    assert_eq!(calls("cuStreamWriteValue64"), before);
    assert!(backend.wait(tickets[299], Some(LONG)).unwrap().is_some());
    assert_eq!(calls("cuStreamWriteValue64"), before + 1);
    assert_eq!(calls("cuEventRecord"), 0);
    assert_eq!(first_word(&read(&backend, &bindings[0].buffer)), 301);
    // Who asks in passing about the last one learns it, too, but has to ask again.
    let before = calls("cuStreamWriteValue64");
    for _ in 0..100 {
        let ticket = backend.submit(&pipeline, &launch).unwrap();
        backend.poll(ticket).unwrap();
    }
    assert_eq!(calls("cuStreamWriteValue64"), before);
    let ticket = backend.submit(&pipeline, &launch).unwrap();
    let begin = Instant::now();
    while backend.poll(ticket).unwrap().is_none() {
        assert!(begin.elapsed() < LONG, "asking again and again tells nothing");
    }
    assert_eq!(calls("cuStreamWriteValue64"), before + 1);
    drop((bindings, pipeline));
    close(backend);
}

#[test]
fn launches_in_a_row_are_sent_together() {
    let _fresh = Fresh::new();
    let backend = open();
    let pipeline = compile(&backend, &add_one(), false);
    let bindings = [Binding::from(backend.allocate(256).unwrap())];
    let launch = Launch::new(&bindings, [1; 3]);
    let submit = |count: u32| (0..count).map(|_| backend.submit(&pipeline, &launch).unwrap()).last().unwrap();
    assert!(backend.wait(submit(512), Some(LONG)).unwrap().is_some());
    assert_eq!(first_word(&read(&backend, &bindings[0].buffer)), 512);
    let (one_by_one, together) = (calls("cuLaunchKernel"), calls("cuGraphLaunch"));
    assert!(one_by_one < 300 && together >= 8, "{one_by_one} alone, {together} graphs");
    // Timed ones in between are in order, too.
    for _ in 0..4 {
        let _ = submit(40);
        let _ = backend.submit(&pipeline, &Launch::new(&bindings, [1; 3]).timed()).unwrap();
    }
    // Nobody asks about these, and still they run.
    let last = submit(20);
    let begin = Instant::now();
    while !backend.is_over(Ticket { number: last.number - 1, ..last }) {
        assert!(begin.elapsed() < LONG, "what was kept is never sent");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(first_word(&read(&backend, &bindings[0].buffer)), 512 + 4 * 41 + 20);
    // What the driver does not take together it gets one by one.
    world().graph_launches_left = Some(1);
    assert!(backend.wait(submit(200), Some(LONG)).unwrap().is_some());
    assert_eq!(first_word(&read(&backend, &bindings[0].buffer)), 512 + 4 * 41 + 20 + 200);
    // The graphs that are left name a kernel that goes.
    drop((bindings, pipeline));
    close(backend);
}

#[test]
fn nobody_waits_for_what_is_behind() {
    let _fresh = Fresh::new();
    let backend = open();
    let (add, endless) = (compile(&backend, &add_one(), false), compile(&backend, &endless(), true));
    let buffer = backend.allocate(256).unwrap();
    let (bindings, own) = ([Binding::from(buffer.clone())], [Binding::from(backend.allocate(4).unwrap())]);
    let steps = [Step::Launch { pipeline: Arc::clone(&add), bindings: bindings.to_vec(), grid: [1; 3] }];
    let recording = backend.record(&steps).unwrap();
    let launch = Launch::new(&bindings, [1; 3]);
    // A launch, a copy and a recording before a launch that does not end.
    let last = [
        backend.submit(&add, &launch).unwrap(),
        backend.clear(&bindings[0], &Order::default()).unwrap(),
        backend.replay(&recording, &Order::default()).unwrap(),
    ];
    let blocker = backend.submit(&endless, &Launch::new(&own, [1; 3])).unwrap();
    let behind = backend.submit(&add, &launch).unwrap();
    for ticket in last {
        assert!(backend.wait(ticket, Some(LONG)).unwrap().is_some());
    }
    // Nor does another queue that comes after it, nor one who reads there.
    let order = Order { queue: 2, after: &last, deadline: None };
    let beside = backend.submit(&add, &Launch { order, ..launch }).unwrap();
    assert!(backend.wait(beside, Some(LONG)).unwrap().is_some());
    // What waits for an endless launch on another queue does not hide what is before it.
    let after = [blocker];
    let before = backend.submit(&add, &Launch { order: Order { queue: 3, ..Order::default() }, ..launch }).unwrap();
    let held = Order { queue: 3, after: &after, deadline: None };
    let held = backend.submit(&add, &Launch { order: held, ..launch }).unwrap();
    assert!(backend.wait(before, Some(LONG)).unwrap().is_some());
    assert_eq!(backend.poll(held), Ok(None));
    let mut bytes = [0; 4];
    backend.download(&buffer, 0, &mut bytes, &Order { queue: 2, ..Order::default() }).unwrap();
    assert_eq!(bytes, [3, 0, 0, 0]);
    assert_eq!(backend.poll(behind), Ok(None));
    // A buffer that is dropped stays until the launch that uses it is over, and nobody waits for that.
    drop((buffer, bindings, own));
    backend.cancel(blocker).unwrap();
    let error = backend.wait(blocker, Some(LONG)).unwrap_err();
    assert_eq!(error.code(), codes::backend::STOPPED.id);
    for ticket in [behind, held] {
        assert!(backend.wait(ticket, Some(LONG)).unwrap().is_some());
    }
    drop((add, endless, recording, steps));
    close(backend);
}

#[test]
fn what_is_forgotten_early_is_not_kept() {
    let _fresh = Fresh::new();
    let backend = open();
    let (add, endless) = (compile(&backend, &add_one(), false), compile(&backend, &endless(), true));
    let (bindings, own) =
        ([Binding::from(backend.allocate(256).unwrap())], [Binding::from(backend.allocate(4).unwrap())]);
    let blocker = backend.submit(&endless, &Launch::new(&own, [1; 3])).unwrap();
    let timed = backend.submit(&add, &Launch::new(&bindings, [1; 3]).timed()).unwrap();
    let kept = backend.submit(&add, &Launch::new(&bindings, [1; 3]).timed()).unwrap();
    backend.cancel(blocker).unwrap();
    backend.forget(blocker);
    backend.forget(timed);
    assert!(backend.wait(kept, Some(LONG)).unwrap().unwrap().device_ns.is_some());
    for forgotten in [blocker, timed] {
        assert_eq!(backend.poll(forgotten), Ok(Some(Completion::default())));
    }
    drop((add, endless, bindings, own));
    close(backend);
}

/// Threads with chains of their own over all queues, beside launches that are cancelled at any time, buffers that are dropped while
/// they are in use, and recordings. Every chain has all its results.
#[test]
fn threads_chain_over_all_queues() {
    const THREADS: u64 = 6;
    const ROUNDS: u32 = 300;
    let _fresh = Fresh::new();
    let backend = open();
    let (add, stoppable) = (compile(&backend, &add_one(), false), compile(&backend, &add_one(), true));
    let endless = compile(&backend, &endless(), true);
    let work = |thread: u64| {
        let mut state = thread * 7919 + 1;
        let mut random = |below: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) % u64::from(below)) as u32
        };
        let mut buffer = backend.allocate(256).unwrap();
        let (mut last, mut expected): (Option<Ticket>, u32) = (None, 0);
        for _ in 0..ROUNDS {
            let after = last.as_slice();
            let order = Order { queue: random(4), after, deadline: None };
            let bindings = [Binding::from(buffer.clone())];
            let launch = Launch { order, timed: random(16) == 0, ..Launch::new(&bindings, [1; 3]) };
            last = match random(12) {
                0 => {
                    // Beside the chain, on memory that nobody else has, and told to end at once.
                    let own = [Binding::from(backend.allocate(4).unwrap())];
                    let other = backend.submit(&endless, &Launch { order, ..Launch::new(&own, [1; 3]) }).unwrap();
                    backend.cancel(other).unwrap();
                    if random(2) == 0 {
                        assert_eq!(backend.wait(other, Some(LONG)).unwrap_err().code(), codes::backend::STOPPED.id);
                    }
                    backend.forget(other);
                    last
                }
                1 => {
                    let fresh = backend.allocate(256).unwrap();
                    let copied = backend.copy(&bindings[0], &Binding::from(fresh.clone()), &order).unwrap();
                    buffer = fresh;
                    Some(copied)
                }
                2 => {
                    let step = Step::Launch { pipeline: Arc::clone(&add), bindings: bindings.to_vec(), grid: [1; 3] };
                    let recording = backend.record(&[step.clone(), step]).unwrap();
                    expected += 2;
                    Some(backend.replay(&recording, &order).unwrap())
                }
                3 => {
                    let mut bytes = [0; 256];
                    backend.download(&buffer, 0, &mut bytes, &order).unwrap();
                    assert_eq!(bytes.to_vec(), words([expected; 64]));
                    last
                }
                4 => {
                    expected = random(1000);
                    Some(backend.upload(&buffer, 0, &words([expected; 64]), &order).unwrap())
                }
                5 => {
                    // Cancelled too late or in time: done with all its results, or not at all, for one workgroup.
                    let ticket = backend.submit(&stoppable, &launch).unwrap();
                    backend.cancel(ticket).unwrap();
                    match backend.wait(ticket, Some(LONG)) {
                        Ok(done) => {
                            assert!(done.is_some(), "a cancelled launch goes on");
                            expected += 1;
                        }
                        Err(error) => assert_eq!(error.code(), codes::backend::STOPPED.id),
                    }
                    backend.forget(ticket);
                    Some(ticket)
                }
                6 => {
                    let ticket = backend.submit(&add, &launch).unwrap();
                    assert!(backend.wait(ticket, Some(LONG)).unwrap().is_some());
                    backend.forget(ticket);
                    expected += 1;
                    Some(ticket)
                }
                _ => {
                    let ticket = backend.submit(if random(2) == 0 { &add } else { &stoppable }, &launch).unwrap();
                    expected += 1;
                    Some(ticket)
                }
            };
        }
        let mut bytes = [0; 256];
        backend.download(&buffer, 0, &mut bytes, &Order { after: last.as_slice(), ..Order::default() }).unwrap();
        assert_eq!(bytes.to_vec(), words([expected; 64]));
    };
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    drop((add, stoppable, endless));
    close(backend);
}

#[test]
fn a_graph_is_made_anew_where_the_driver_refuses_a_change() {
    let _fresh = Fresh::new();
    let backend = open();
    let add = compile(&backend, &add_one(), false);
    let buffers = [backend.allocate(256).unwrap(), backend.allocate(256).unwrap()];
    let step = |buffer: &Buffer| Step::Launch {
        pipeline: Arc::clone(&add),
        bindings: vec![Binding::from(buffer.clone())],
        grid: [1; 3],
    };
    let recording = backend.record(&[step(&buffers[0]), step(&buffers[0])]).unwrap();
    world().refuses_changes = true;
    let made = calls("cuGraphInstantiate");
    backend.revise(&recording, &[(1, step(&buffers[1]))]).unwrap();
    let ticket = backend.replay(&recording, &Order::default()).unwrap();
    assert_eq!(calls("cuGraphInstantiate"), made + 1);
    assert!(backend.wait(ticket, Some(LONG)).unwrap().is_some());
    assert_eq!([read(&backend, &buffers[0]), read(&backend, &buffers[1])], [words([1; 64]), words([1; 64])]);
    drop((recording, buffers));
    drop(add);
    close(backend);
}

/// A long recording is several graphs; steps of all of them are changed, and a refusal after some have run is a failure of the work.
#[test]
fn a_long_recording_is_replayed_in_parts() {
    const STEPS: usize = 1000;
    let _fresh = Fresh::new();
    let backend = open();
    let add = compile(&backend, &add_one(), false);
    let buffers = [backend.allocate(256).unwrap(), backend.allocate(256).unwrap()];
    let step = |buffer: usize| Step::Launch {
        pipeline: Arc::clone(&add),
        bindings: vec![Binding::from(buffers[buffer].clone())],
        grid: [1; 3],
    };
    let replayed = |recording| {
        let ticket = backend.replay(recording, &Order::default())?;
        let waited = backend.wait(ticket, Some(LONG)).map(|over| assert!(over.is_some()));
        backend.forget(ticket);
        waited
    };
    let recording = backend.record(&vec![step(0); STEPS]).unwrap();
    assert!(calls("cuGraphInstantiate") > 1);
    replayed(&recording).unwrap();
    assert_eq!(read(&backend, &buffers[0]), words([STEPS as u32; 64]));
    // Every third step, and the last change of one counts.
    let changed: Vec<_> = (0..STEPS).step_by(3).flat_map(|at| [(at, step(0)), (at, step(1))]).collect();
    backend.revise(&recording, &changed).unwrap();
    replayed(&recording).unwrap();
    let third = STEPS.div_ceil(3) as u32;
    assert_eq!(read(&backend, &buffers[1]), words([third; 64]));
    assert_eq!(read(&backend, &buffers[0]), words([2 * STEPS as u32 - third; 64]));
    // Nothing has run where the first part is refused; where a later one is, the work has failed.
    world().graph_launches_left = Some(0);
    assert!(backend.replay(&recording, &Order::default()).is_err());
    assert_eq!(read(&backend, &buffers[1]), words([third; 64]));
    world().graph_launches_left = Some(2);
    let ticket = backend.replay(&recording, &Order::default()).unwrap();
    assert!(backend.wait(ticket, Some(LONG)).is_err());
    world().graph_launches_left = None;
    replayed(&recording).unwrap();
    drop((recording, changed, buffers));
    drop(add);
    close(backend);
}

/// Memory of others is kept until the work that uses it is over, and their streams wait for ours and ours for theirs.
#[test]
#[allow(unsafe_code)]
fn foreign_memory_and_streams_are_in_order() {
    struct Owner(Arc<AtomicBool>, #[allow(dead_code)] Buffer);
    impl Drop for Owner {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let _fresh = Fresh::new();
    let backend = open();
    let (add, endless) = (compile(&backend, &add_one(), false), compile(&backend, &endless(), true));
    let api = backend.device().api;
    let stream = backend.device().with(|| Ok(api.create_stream(false)?)).unwrap();
    let is_gone = Arc::new(AtomicBool::new(false));
    let owner = backend.allocate(256).unwrap();
    let pointer = backend.raw_pointer(&owner).unwrap();
    // SAFETY: the owner is the buffer whose memory it is.
    let buffer = unsafe { backend.wrap(pointer, 256, Box::new(Owner(Arc::clone(&is_gone), owner))) }.unwrap();
    // SAFETY: as above; these addresses are refused.
    let refused = unsafe { [backend.wrap(pointer + 4, 4, Box::new(())), backend.wrap(16, 16, Box::new(()))] };
    for error in refused.map(Result::unwrap_err) {
        assert_eq!(error.code(), codes::backend::BAD_RANGE.id);
    }
    let (bindings, own) = ([Binding::from(buffer)], [Binding::from(backend.allocate(4).unwrap())]);
    let blocker = backend.submit(&endless, &Launch::new(&own, [1; 3])).unwrap();
    let added = backend.submit(&add, &Launch::new(&bindings, [1; 3])).unwrap();
    let order = Order { queue: 1, ..Order::default() };
    // SAFETY: the stream is one of this context.
    let behind = unsafe {
        backend.make_stream_wait(added, stream).unwrap();
        backend.wait_for_stream(stream, &order).unwrap()
    };
    drop(bindings);
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!((backend.poll(behind), is_gone.load(Ordering::Relaxed)), (Ok(None), false));
    backend.cancel(blocker).unwrap();
    assert!(backend.wait(behind, Some(LONG)).unwrap().is_some());
    assert!(backend.poll(added).unwrap().is_some(), "what the stream waited for is not over");
    backend.device().sweep();
    assert!(is_gone.load(Ordering::Relaxed), "foreign memory is kept for ever");
    backend.device().with(|| Ok(api.destroy_stream(stream)?)).unwrap();
    drop((add, endless, own));
    close(backend);
}

#[test]
fn submitting_waits_for_a_place_and_no_longer_than_it_may() {
    let _fresh = Fresh::new();
    let backend = open();
    let (add, endless) = (compile(&backend, &add_one(), false), compile(&backend, &endless(), true));
    let buffer = backend.allocate(256).unwrap();
    let (bindings, own) = ([Binding::from(buffer.clone())], [Binding::from(backend.allocate(4).unwrap())]);
    let blocker = backend.submit(&endless, &Launch::new(&own, [1; 3])).unwrap();
    let mut submitted = 0;
    let error = loop {
        let order = Order { deadline: Some(Instant::now() + Duration::from_millis(20)), ..Order::default() };
        match backend.submit(&add, &Launch { order, ..Launch::new(&bindings, [1; 3]) }) {
            Ok(_) => submitted += 1,
            Err(error) => break error,
        }
        assert!(submitted < 10_000, "submitting never waits");
    };
    assert_eq!(error.code(), codes::backend::TIMEOUT.id);
    // Others are not held up, and cancelling needs no place.
    let other = Launch { order: Order { queue: 1, ..Order::default() }, ..Launch::new(&bindings, [0; 3]) };
    let beside = backend.submit(&add, &other).unwrap();
    assert!(backend.wait(beside, Some(LONG)).unwrap().is_some());
    backend.cancel(blocker).unwrap();
    assert_eq!(read(&backend, &buffer), words([submitted; 64]));
    drop((add, endless, bindings, own, buffer));
    close(backend);
}

/// As many small uploads as there is room for wait for their turn without their callers; then a caller waits, as long as it may.
#[test]
fn small_uploads_wait_for_their_turn_by_themselves() {
    const BYTES: usize = 5000;
    let _fresh = Fresh::new();
    let backend = open();
    let endless = compile(&backend, &endless(), true);
    let (buffer, own) = (backend.allocate(BYTES as u64).unwrap(), [Binding::from(backend.allocate(4).unwrap())]);
    let blocker = backend.submit(&endless, &Launch::new(&own, [1; 3])).unwrap();
    let mut uploads = 0;
    let error = loop {
        let order = Order { deadline: Some(Instant::now() + Duration::from_millis(20)), ..Order::default() };
        match backend.upload(&buffer, 0, &[uploads; BYTES], &order) {
            Ok(_) => uploads += 1,
            Err(error) => break error,
        }
    };
    assert!(uploads > 10 && error.code() == codes::backend::TIMEOUT.id, "{uploads}, {error}");
    backend.cancel(blocker).unwrap();
    for _ in 0..50 {
        backend.upload(&buffer, 0, &[uploads; BYTES], &Order::default()).map(|ticket| backend.forget(ticket)).unwrap();
        uploads += 1;
    }
    assert_eq!(read(&backend, &buffer), [uploads - 1; BYTES]);
    drop((endless, buffer, own));
    close(backend);
}

#[test]
fn what_is_given_back_can_be_had_again() {
    let _fresh = Fresh::new();
    let backend = open();
    let add = compile(&backend, &add_one(), false);
    let used = world().memory_limit.insert(1 << 20).to_owned();
    for _ in 0..20 {
        // In use when it is dropped, by the last launch of a queue that nobody asks about.
        let bindings = [Binding::from(backend.allocate(used as u64 / 2).unwrap())];
        let launch = Launch { order: Order { queue: 3, ..Order::default() }, ..Launch::new(&bindings, [1; 3]) };
        let ticket = backend.submit(&add, &launch).unwrap();
        backend.forget(ticket);
    }
    let error = backend.allocate(used as u64 + 1).unwrap_err();
    assert_eq!(error.code(), codes::backend::OUT_OF_MEMORY.id);
    drop(add);
    close(backend);
}

#[test]
fn a_fault_wakes_everybody_and_keeps_what_was_done() {
    let _fresh = Fresh::new();
    let backend = open();
    let add = compile(&backend, &add_one(), false);
    let bytes = add.artifact().unwrap();
    let text = bytes.windows(8).position(|part| part == b".version").unwrap();
    let trap = b".version 7.8\n.entry vyre_kernel vyre_kernel_together { trap; }";
    let bytes = [&bytes[..text - 4], &(trap.len() as u32).to_le_bytes(), trap].concat();
    let trap = backend.load(&add_one().validate().unwrap(), &CompileOptions::default(), &bytes).unwrap();
    let bindings = [Binding::from(backend.allocate(256).unwrap())];
    let launch = Launch::new(&bindings, [1; 3]);
    let done = backend.submit(&add, &launch).unwrap();
    assert!(backend.wait(done, Some(LONG)).unwrap().is_some());
    let other = Launch { order: Order { queue: 1, ..Order::default() }, ..launch };
    let lost = [backend.submit(&trap, &launch).unwrap(), backend.submit(&add, &launch).unwrap()];
    let codes = std::thread::scope(|scope| {
        let backend = &backend;
        let waits = lost.map(|ticket| scope.spawn(move || backend.wait(ticket, Some(LONG)).unwrap_err().code()));
        waits.map(|wait| wait.join().unwrap())
    });
    assert_eq!(codes, [codes::cuda::FAULT.id; 2]);
    assert!(backend.poll(done).unwrap().is_some());
    let error = backend.submit(&add, &other).unwrap_err();
    assert_eq!(error.code(), codes::backend::DEVICE_LOST.id);
    assert!(error.fix().contains("anew"), "{error}");
}

#[test]
fn kernels_are_compiled_as_a_whole() {
    use vyre_driver::variant::{Blocks, Param, Ptx, Variant};

    let _fresh = Fresh::new();
    let backend = open();
    let program = add_one();
    let linked = calls("cuLinkCreate");
    drop(compile(&backend, &program, false));
    // The linker takes several times the registers.
    assert_eq!(calls("cuLinkCreate"), linked, "a kernel was linked");
    let ptx = Ptx {
        target: "sm_70".to_owned(),
        entry: "theirs".to_owned(),
        text: ".visible .entry theirs() { setmaxnreg.inc.sync.aligned.u32 240; }".to_owned(),
        block: [128, 1, 1],
        blocks: Blocks::AsPlanned,
        shared: 0,
        tensor_maps: Vec::new(),
        params: vec![Param::Buffer(0)],
    };
    let mut options = CompileOptions::default();
    #[allow(unsafe_code, reason = "nothing runs")]
    // SAFETY: it is never launched.
    let variant = unsafe { Variant::ptx("theirs", ptx.clone()) };
    options.variant = Some(variant);
    let valid = program.validate().expect("it is valid");
    let pipeline = backend.compile(&valid, &options).expect("the model compiles everything");
    // The linker ignores `setmaxnreg`.
    assert_eq!(calls("cuLinkCreate"), linked, "a variant was linked");
    // What is kept of it loads without the linker, too.
    let artifact = pipeline.artifact().expect("it can be kept");
    drop(pipeline);
    drop(backend.load(&valid, &options, &artifact).expect("it was just kept"));
    assert_eq!(calls("cuLinkCreate"), linked, "a variant was linked");
    // Only where the driver does not take a text the linker is asked what is wrong with it.
    #[allow(unsafe_code, reason = "nothing runs")]
    // SAFETY: it is never launched.
    let missing = unsafe { Variant::ptx("missing", Ptx { entry: "another".to_owned(), ..ptx }) };
    options.variant = Some(missing);
    assert!(backend.compile(&valid, &options).is_err(), "there is no such entry");
    close(backend);
}
