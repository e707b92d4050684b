//! What only a device can show. Without one every test is skipped, and the reason is printed.
//!
//! `VYRE_RANDOM` sets how many random programs of each kind are compared with the reference, `VYRE_SEED` where they start.

use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use vyre_conform::device::{DEVICE_CHECKS, Patient, add_one, words, works};
use vyre_conform::{GenOptions, Report, Rules, Subgroups, random_programs, suite};
use vyre_cuda::CudaBackend;
use vyre_driver::backend::{Binding, CompileOptions, Launch, Order};
use vyre_driver::{DispatchConfig, VyreBackend};
use vyre_foundation::ir::{AtomicOp, BufferDecl, DataType, Expr, MathOp, Node, Program};
use vyre_spec::codes;

type Test = fn(&CudaBackend) -> Result<(), Failed>;

fn main() {
    let mut arguments = Arguments::from_args();
    // One test at a time: a fault loses the buffers of all users of a device.
    arguments.test_threads = Some(1);
    let backend = match CudaBackend::open(0) {
        Ok(backend) => Some(Arc::new(backend)),
        Err(reason) => {
            println!("skipped: {}", reason.message);
            None
        }
    };
    let tests: [(&str, Test); 12] = [
        ("conformance suite", conformance),
        ("random programs", random),
        ("random functions", random_functions),
        ("random programs in fast arithmetic", random_fast),
        ("functions of every number", every_number),
        ("random programs with timeouts", random_interruptible),
        ("workgroups run together", together),
        ("foreign memory is wrapped", wrapped),
        ("pinned memory is copied as it is", pinned),
        ("many launches wait for a place", many),
        ("out of memory, then normal work", out_of_memory),
        ("faults end", faults),
    ];
    let checks = DEVICE_CHECKS.into_iter().map(|(name, check)| {
        let on = backend.clone();
        let run = move || Ok(on.as_deref().map_or_else(|| Err("no device".into()), |backend| check(backend))?);
        Trial::test(name, run).with_ignored_flag(backend.is_none())
    });
    // The last test may leave no usable device behind.
    let trials = checks.chain(tests.into_iter().map(|(name, test)| {
        let on = backend.clone();
        let run = move || on.as_deref().map_or_else(|| Err("no device".into()), test);
        Trial::test(name, run).with_ignored_flag(backend.is_none())
    }));
    libtest_mimic::run(&arguments, trials.collect()).exit();
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn expect(good: bool, what: impl FnOnce() -> String) -> Result<(), Failed> {
    if good { Ok(()) } else { Err(what().into()) }
}

fn judge(report: &Report) -> Result<(), Failed> {
    println!("{} passed, {} failed, {} skipped", report.passed, report.failed.len(), report.skipped.len());
    expect(report.is_good() && report.skipped.is_empty(), || report.to_string())
}

fn conformance(backend: &CudaBackend) -> Result<(), Failed> {
    judge(&suite(backend))
}

fn random_with(backend: &dyn VyreBackend, share: u64, options: &GenOptions) -> Result<(), Failed> {
    let (count, first) = (number("VYRE_RANDOM", 400) / share, number("VYRE_SEED", 0));
    judge(&random_programs(backend, first..first + count, options, &Rules::exact()))
}

fn random(backend: &CudaBackend) -> Result<(), Failed> {
    random_with(backend, 1, &GenOptions { subgroups: Subgroups::FixedSize, ..GenOptions::default() })
}

fn random_functions(backend: &CudaBackend) -> Result<(), Failed> {
    random_with(backend, 4, &GenOptions { math: true, ..GenOptions::default() })
}

fn random_fast(backend: &CudaBackend) -> Result<(), Failed> {
    random_with(backend, 2, &GenOptions::fast())
}

/// f32 functions of all 2³² arguments against the same functions of f64, rounded: how many units in the last place they are apart.
fn every_number(backend: &CudaBackend) -> Result<(), Failed> {
    let functions = [
        (MathOp::InverseSqrt, 0),
        (MathOp::Exp, 2),
        (MathOp::Exp2, 2),
        (MathOp::Log, 2),
        (MathOp::Log2, 2),
        (MathOp::Tanh, 4),
        (MathOp::Sin, 4),
        (MathOp::Cos, 4),
        (MathOp::Asin, 3),
        (MathOp::Acos, 2),
        (MathOp::Atan, 2),
    ];
    for (op, most) in functions {
        let worst = worst_of_all(backend, op)?;
        println!("{op:?}: {} units at {:e}", worst >> 32, f32::from_bits(worst as u32));
        expect(worst >> 32 <= most, || format!("{op:?} is {} units off", worst >> 32))?;
    }
    Ok(())
}

/// The greatest distance, and above it in a word the argument's bits.
fn worst_of_all(backend: &CudaBackend, op: MathOp) -> Result<u64, Failed> {
    const ROUNDS: u32 = 1 << 10;
    let var = |name: &str| Expr::var(name);
    // Neighbouring floats are neighbouring integers; zeros are one.
    let place = |bits: &str| {
        let size = (var(bits) & Expr::u32(0x7fff_ffff)).cast(DataType::I32);
        Expr::select(var(bits).lt(Expr::u32(1 << 31)), size.clone(), Expr::i32(0) - size)
    };
    let is_nan = |bits: &str| (var(bits) & Expr::u32(0x7fff_ffff)).gt(Expr::u32(0x7f80_0000));
    let exact = match op {
        // f64 sines are good to 2³⁰ only; the f32 ones have a way of their own beyond, which other tests hold.
        MathOp::Sin | MathOp::Cos => Expr::select(
            var("x").abs().lt(Expr::f32(1e9)),
            Expr::math(op, vec![var("x").cast(DataType::F64)]),
            Expr::math(op, vec![var("x")]).cast(DataType::F64),
        ),
        _ => Expr::math(op, vec![var("x").cast(DataType::F64)]),
    };
    let body = vec![
        Node::let_bind("bits", var("first") + var("i")),
        Node::let_bind("x", var("bits").bit_cast(DataType::F32)),
        Node::let_bind("near", Expr::math(op, vec![var("x")]).bit_cast(DataType::U32)),
        Node::let_bind("right", exact.cast(DataType::F32).bit_cast(DataType::U32)),
        Node::let_bind("apart", (place("near") - place("right")).abs().cast(DataType::U64)),
        Node::let_bind(
            "error",
            Expr::select(
                is_nan("near") | is_nan("right"),
                Expr::select(is_nan("near").ne(is_nan("right")), Expr::u64(u64::from(u32::MAX)), Expr::u64(0)),
                var("apart"),
            ),
        ),
        Node::assign("worst", var("worst").max((var("error") << 32u32) | var("bits").cast(DataType::U64))),
    ];
    let program = Program::wrapped(
        vec![BufferDecl::read_write("worst_of_all", 0, DataType::U64)],
        [256, 1, 1],
        vec![
            Node::let_bind("first", Expr::global_id(0) * Expr::u32(ROUNDS)),
            Node::var("worst", DataType::U64, Expr::u64(0)),
            Node::For { var: "i".into(), from: Expr::u32(0), to: Expr::u32(ROUNDS), step: 1, body },
            Node::atomic(AtomicOp::Max, "worst_of_all", Expr::u32(0), var("worst")),
        ],
    );
    let mut config = DispatchConfig::default();
    config.grid_override = Some([(1 << 22) / 256, 1, 1]);
    let results = backend.dispatch(&program, &[vec![0; 8]], &config)?;
    let bytes = results.first().and_then(|bytes| bytes.first_chunk()).ok_or("no result")?;
    Ok(u64::from_le_bytes(*bytes))
}

fn random_interruptible(backend: &CudaBackend) -> Result<(), Failed> {
    random_with(&Patient(backend), 8, &GenOptions::default())
}

/// Grids that are and are not whole multiples of what a block can run.
fn together(backend: &CudaBackend) -> Result<(), Failed> {
    let at = || Expr::global_id(0) + Expr::global_id(1) * Expr::u32(64 * 17000);
    let program = Program::wrapped(
        vec![BufferDecl::read_write("data", 0, DataType::U32)],
        [64, 1, 1],
        vec![Node::store("data", at(), Expr::load("data", at()) + at())],
    );
    for workgroups in [16383u32, 16384, 16385, 16387, 17000] {
        let input = words((0..64 * 17000 * 2).map(|i| i ^ 5));
        let mut config = DispatchConfig::default();
        config.grid_override = Some([workgroups, 2, 1]);
        let results = backend.dispatch(&program, &[input], &config)?;
        let touched = |i: u32| if i % (64 * 17000) < 64 * workgroups { i } else { 0 };
        let expected = words((0..64 * 17000 * 2).map(|i| (i ^ 5) + touched(i)));
        expect(results == [expected], || format!("{workgroups} workgroups are wrong"))?;
    }
    Ok(())
}

/// A buffer of ours in the place of somebody else's memory: the device, the context and the addresses are the same.
#[allow(unsafe_code)]
fn wrapped(backend: &CudaBackend) -> Result<(), Failed> {
    let valid = add_one().validate().map_err(|problems| problems[0].to_string())?;
    let pipeline = backend.compile(&valid, &CompileOptions::default())?;
    let owner = backend.allocate(4096)?;
    let pointer = backend.raw_pointer(&owner)?;
    // SAFETY: the owner is the buffer whose memory it is; the default stream is one of the primary context.
    let (buffer, outside, before) = unsafe {
        let outside = backend.wrap(0x10, 16, Box::new(()));
        (backend.wrap(pointer, 4096, Box::new(owner))?, outside, backend.wait_for_stream(0, &Order::default())?)
    };
    expect(outside.is_err(), || "an address of nowhere was wrapped".to_owned())?;
    backend.forget(before);
    let bindings = [Binding::from(buffer.clone())];
    let ticket = backend.submit(&pipeline, &Launch::new(&bindings, [16, 1, 1]))?;
    // SAFETY: as above.
    unsafe { backend.make_stream_wait(ticket, 0)? };
    let mut out = vec![0; 4096];
    backend.download(&buffer, 0, &mut out, &Order::default())?;
    expect(out == words([1; 1024]), || format!("{:?}", &out[..16]))
}

fn pinned(backend: &CudaBackend) -> Result<(), Failed> {
    const BYTES: usize = 3 << 20;
    let (mut from, mut to) = (backend.pinned(BYTES)?, backend.pinned(BYTES)?);
    from.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 7 + i / 1000) as u8);
    let buffer = backend.allocate(BYTES as u64)?;
    let ticket = backend.upload(&buffer, 0, &from, &Order::default())?;
    backend.forget(ticket);
    backend.download(&buffer, 0, &mut to, &Order::default())?;
    expect(from[..] == to[..], || "pinned bytes changed on the way".to_owned())
}

/// Behind a launch that does not end, submitting waits at some point, and no longer than it may.
fn many(backend: &CudaBackend) -> Result<(), Failed> {
    let endless = Program::wrapped(
        vec![BufferDecl::read_write("data", 0, DataType::U32)],
        [64, 1, 1],
        vec![Node::forever(vec![Node::atomic(AtomicOp::Add, "data", Expr::u32(0), Expr::u32(1))])],
    );
    let valid = endless.validate().map_err(|problems| problems[0].to_string())?;
    let mut options = CompileOptions::default();
    options.interruptible = true;
    let endless = backend.compile(&valid, &options)?;
    let valid = add_one().validate().map_err(|problems| problems[0].to_string())?;
    let pipeline = backend.compile(&valid, &CompileOptions::default())?;
    let buffer = backend.allocate(256)?;
    let (counted, own) = ([Binding::from(buffer.clone())], [Binding::from(backend.allocate(4)?)]);
    let first = backend.submit(&endless, &Launch::new(&own, [1; 3]))?;
    let mut submitted = 0u32;
    let error = loop {
        let deadline = Some(std::time::Instant::now() + std::time::Duration::from_millis(20));
        let order = Order { deadline, ..Order::default() };
        match backend.submit(&pipeline, &Launch { order, ..Launch::new(&counted, [1; 3]) }) {
            Ok(_) if submitted > 100_000 => return Err("submitting never waits".into()),
            Ok(ticket) => backend.forget(ticket),
            Err(error) => break error,
        }
        submitted += 1;
    };
    println!("{submitted} launches behind an endless one: {error}");
    expect(error.code() == codes::backend::TIMEOUT.id, || error.to_string())?;
    backend.cancel(first)?;
    let mut out = vec![0; 256];
    backend.download(&buffer, 0, &mut out, &Order::default())?;
    expect(out == words([submitted; 64]), || format!("{:?} after {submitted} launches", &out[..4]))
}

fn out_of_memory(backend: &CudaBackend) -> Result<(), Failed> {
    let total = backend.capabilities().limits.memory_bytes.ok_or("unknown memory")?;
    for bytes in [u64::MAX, u64::MAX / 2, total - (1 << 20)] {
        let error = backend.allocate(bytes).err().ok_or_else(|| format!("{bytes} bytes were allocated"))?;
        expect(error.code() == codes::backend::OUT_OF_MEMORY.id, || error.to_string())?;
        works(backend)?;
    }
    let mut held = Vec::new();
    let error = loop {
        match backend.allocate(total / 10) {
            Ok(buffer) => held.push(buffer),
            Err(error) => break error,
        }
    };
    expect(error.code() == codes::backend::OUT_OF_MEMORY.id && held.len() >= 5, || error.to_string())?;
    drop(held);
    works(backend)?;
    drop(backend.allocate(total / 2)?);
    Ok(())
}

fn faults(backend: &CudaBackend) -> Result<(), Failed> {
    // A pipeline whose code traps: another text in the place of its own.
    let program = add_one();
    let valid = program.validate().map_err(|problems| problems[0].to_string())?;
    let options = CompileOptions::default();
    let good = backend.compile(&valid, &options)?;
    let bytes = good.artifact().ok_or("no artifact")?;
    let code = bytes.windows(8).position(|start| start == b".version").ok_or("no text in the artifact")?;
    let text = trapping(backend.compute_capability());
    let length = (text.len() as u32).to_le_bytes();
    let trap = backend.load(&valid, &options, &[&bytes[..code - 4], &length, text.as_bytes()].concat())?;
    let bindings = [Binding::from(backend.allocate(4096)?)];
    let launch = Launch::new(&bindings, [1, 1, 1]);
    let done = backend.submit(&good, &launch)?;
    backend.wait(done, None)?;
    let queue = |queue| Launch { order: Order { queue, ..Order::default() }, ..launch };
    let pending = [backend.submit(&trap, &queue(1))?, backend.submit(&good, &queue(1))?];
    let waiting = std::thread::scope(|scope| {
        let waits = pending.map(|ticket| scope.spawn(move || backend.wait(ticket, None)));
        waits.map(|wait| wait.join())
    });
    for waited in waiting {
        let error = waited.map_err(|_| "a waiting thread panicked")?.err().ok_or("a trap went unnoticed")?;
        println!("a trap: {error}");
        expect(error.code() == codes::cuda::FAULT.id, || error.to_string())?;
    }
    expect(backend.poll(done)?.is_some(), || "work from before the trap is lost".to_owned())?;
    let error = backend.allocate(16).err().ok_or("there is memory after a trap")?;
    println!("after the trap: {error}");
    expect(error.code() == codes::backend::DEVICE_LOST.id, || error.to_string())
}

fn trapping(sm: u32) -> String {
    // It takes none of the parameters that it is given.
    let entry = |name: &str| format!(".visible .entry {name}()\n.reqntid 64, 1, 1\n{{\ntrap;\n}}\n");
    let (single, together) = (entry("vyre_kernel"), entry("vyre_kernel_together"));
    format!(".version 7.8\n.target sm_{}\n.address_size 64\n{single}{together}", sm.min(90))
}
