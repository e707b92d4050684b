//! What only an adapter can show; Mesa's software one will do. Without any, every test but the first is skipped, and the reason
//! is printed.
//!
//! `VYRE_RANDOM` sets how many random programs of each kind are compared with the reference, `VYRE_SEED` where they start,
//! `VYRE_WGPU_ADAPTER` the number of the adapter.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use vyre_conform::device::{DEVICE_CHECKS, Patient, add_one, refused, words, works};
use vyre_conform::{GenOptions, Report, Rules, Subgroups, random_programs, suite_with};
use vyre_driver::backend::{Binding, CompileOptions, DeviceKind, Launch, Order, Pipeline};
use vyre_driver::{BackendError, DispatchConfig, VyreBackend};
use vyre_foundation::ir::{Access, AtomicOp, BufferDecl, Count, DataType, Expr, Node, Program, TypeDef, TypeId};
use vyre_foundation::kernel::Features;
use vyre_spec::codes;
use vyre_wgpu::{WgpuBackend, adapters};

type Test = fn(&WgpuBackend) -> Result<(), Failed>;

/// Set in the process that looks for adapters where there are none.
const ALONE: &str = "VYRE_TEST_NO_ADAPTER";

fn main() {
    if std::env::var_os(ALONE).is_some() {
        let error = WgpuBackend::probe().err().expect("no adapter is found without drivers");
        println!("{} {}", error.code.id, error.message);
        return;
    }
    let mut arguments = Arguments::from_args();
    // One test at a time: a loss takes the buffers of all users of a device.
    arguments.test_threads = Some(1);
    let backend = match WgpuBackend::open(number("VYRE_WGPU_ADAPTER", 0) as usize) {
        Ok(backend) => {
            println!("on {} ({})", backend.capabilities().name, backend.capabilities().driver);
            println!("{:?}", backend.arithmetic());
            Some(Arc::new(backend))
        }
        Err(reason) => {
            println!("skipped: {}", reason.message);
            None
        }
    };
    let tests: [(&str, Test); 20] = [
        ("adapters are described", described),
        ("conformance suite", conformance),
        ("random programs", random),
        ("programs that once went wrong", once_wrong),
        ("random functions", random_functions),
        ("random programs in fast arithmetic", random_fast),
        ("random programs with timeouts", random_interruptible),
        ("random programs with subgroups", random_subgroups),
        ("changed artifacts are refused", checked_artifact),
        ("limits are kept", limits),
        ("missing features are named", missing_features),
        ("a buffer that is read and written is refused", aliased),
        ("two adapters don't mix", foreign),
        ("a lost device comes back", lost),
        ("a lost device wakes who waits for it", lost_while_waiting),
        ("many launches can be stopped at once", many_stoppable),
        ("threads write bytes of the same words", shared_words),
        ("long loops are right or refused", long_loops),
        ("large private arrays are right or refused", large_arrays),
        ("a device of the caller's own", own_device),
    ];
    let mut trials = vec![Trial::test("no adapter has its own diagnostic", no_adapter)];
    trials.extend(DEVICE_CHECKS.into_iter().map(|(name, check)| {
        let on = backend.clone();
        let run = move || Ok(on.as_deref().map_or_else(|| Err("no adapter".into()), |backend| check(backend))?);
        // Only Vulkan launches can be told to end.
        let skipped =
            backend.as_deref().is_none_or(|backend| name == "endless loops end" && backend.adapter().api != "Vulkan");
        Trial::test(name, run).with_ignored_flag(skipped)
    }));
    trials.extend(tests.into_iter().map(|(name, test)| {
        let on = backend.clone();
        let run = move || on.as_deref().map_or_else(|| Err("no adapter".into()), test);
        Trial::test(name, run).with_ignored_flag(backend.is_none())
    }));
    libtest_mimic::run(&arguments, trials).exit();
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn expect(good: bool, what: impl FnOnce() -> String) -> Result<(), Failed> {
    if good { Ok(()) } else { Err(what().into()) }
}

/// Drivers are looked for where there are none, in a process of its own.
fn no_adapter() -> Result<(), Failed> {
    let nowhere = "/nonexistent/icd.json";
    let output = Command::new(std::env::current_exe()?)
        .env(ALONE, "1")
        .env("VK_DRIVER_FILES", nowhere)
        .env("VK_ICD_FILENAMES", nowhere)
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    // Metal and DX12 can't be told to hide.
    let hidden = cfg!(target_os = "linux");
    expect(!hidden || text.starts_with(codes::wgpu::NO_ADAPTER.id), || {
        format!("{text}{}", String::from_utf8_lossy(&output.stderr))
    })
}

fn described(backend: &WgpuBackend) -> Result<(), Failed> {
    let found = adapters().map_err(|problem| problem.to_string())?;
    for (position, adapter) in found.iter().enumerate() {
        let able = &adapter.capabilities;
        println!("{}: {} over {}, {:?}, {}", adapter.id, able.name, adapter.api, able.kind, able.driver);
        expect(!able.name.is_empty() && able.resident && able.limits.max_buffer_bytes > 0, || format!("{able:?}"))?;
        let rest = &found[position + 1..];
        expect(rest.iter().all(|other| other.id != adapter.id), || "two adapters have one name".to_owned())?;
        // Software comes behind everything else.
        let hard = |kind| kind != DeviceKind::Software;
        expect(hard(able.kind) || !rest.iter().any(|other| hard(other.capabilities.kind)), || {
            format!("{} is before a GPU", able.name)
        })?;
    }
    let again = adapters().map_err(|problem| problem.to_string())?;
    let same = found.iter().zip(&again).all(|(a, b)| a.capabilities.fingerprint == b.capabilities.fingerprint);
    expect(same, || "a fingerprint changed".to_owned())?;
    let id = backend.adapter().id;
    expect(backend.id() == id && found.iter().any(|adapter| adapter.id == id), || id.to_owned())
}

/// What the adapter lacks is skipped, and nothing else.
fn judge(backend: &WgpuBackend, report: &Report) -> Result<(), Failed> {
    println!("{} passed, {} failed, {} skipped", report.passed, report.failed.len(), report.skipped.len());
    let all = Features::F16
        .union(Features::F64)
        .union(Features::INT64)
        .union(Features::ATOMIC64)
        .union(Features::SUBGROUP)
        .union(Features::MATRIX);
    let complete = backend.capabilities().features.contains(all);
    expect(report.is_good() && (report.skipped.is_empty() || !complete), || report.to_string())
}

fn conformance(backend: &WgpuBackend) -> Result<(), Failed> {
    judge(backend, &suite_with(backend, &rules(backend)))
}

/// Bit for bit, but where the adapter takes subnormal numbers for zero: then what WGSL promises.
fn rules(backend: &WgpuBackend) -> Rules {
    if backend.arithmetic().subnormals { Rules::exact() } else { Rules::wgsl() }
}

fn random_with(on: &dyn VyreBackend, backend: &WgpuBackend, share: u64, options: &GenOptions) -> Result<(), Failed> {
    let (count, first) = (number("VYRE_RANDOM", 60) / share, number("VYRE_SEED", 0));
    let rules = rules(backend);
    let portable = GenOptions {
        math: options.math,
        subgroups: options.subgroups,
        int64: true,
        atomics64: true,
        ..GenOptions::portable()
    };
    let options = if rules.exact { options } else { &portable };
    judge(backend, &random_programs(on, first..first + count.max(1), options, &rules))
}

fn random(backend: &WgpuBackend) -> Result<(), Failed> {
    random_with(backend, backend, 1, &GenOptions::default())
}

/// Zeros that a driver's compiler finds by itself, from a shifted integer or an array that nothing was stored to.
fn once_wrong(backend: &WgpuBackend) -> Result<(), Failed> {
    let subgroups = GenOptions { subgroups: Subgroups::AnySize, ..GenOptions::default() };
    let plain = GenOptions::default();
    if !rules(backend).exact {
        println!("left out: this adapter is not compared bit for bit");
        return Ok(());
    }
    for (seed, options) in [(1383, &plain), (1586, &plain), (1859, &plain), (201, &subgroups)] {
        judge(backend, &random_programs(backend, seed..seed + 1, options, &Rules::exact()))?;
    }
    Ok(())
}

fn random_functions(backend: &WgpuBackend) -> Result<(), Failed> {
    random_with(backend, backend, 10, &GenOptions { math: true, ..GenOptions::default() })
}

fn random_fast(backend: &WgpuBackend) -> Result<(), Failed> {
    let (count, first) = (number("VYRE_RANDOM", 60) / 5, number("VYRE_SEED", 0));
    let features = backend.capabilities().features;
    let options = GenOptions {
        f16: features.contains(Features::F16),
        f64: features.contains(Features::F64),
        int64: features.contains(Features::INT64),
        ..GenOptions::fast()
    };
    judge(backend, &random_programs(backend, first..first + count.max(1), &options, &Rules::wgsl()))
}

fn random_subgroups(backend: &WgpuBackend) -> Result<(), Failed> {
    random_with(backend, backend, 5, &GenOptions { subgroups: Subgroups::AnySize, ..GenOptions::default() })
}

fn random_interruptible(backend: &WgpuBackend) -> Result<(), Failed> {
    random_with(&Patient(backend), backend, 5, &GenOptions::default())
}

/// What was stored is taken only as it was, and for the options that it was made for.
fn checked_artifact(backend: &WgpuBackend) -> Result<(), Failed> {
    let valid = add_one().validate().map_err(|problems| problems[0].to_string())?;
    let options = CompileOptions::default();
    let Some(bytes) = backend.compile(&valid, &options)?.artifact() else {
        return expect(backend.adapter().api != "Vulkan", || "Vulkan gives no artifact".to_owned());
    };
    let mut longer = bytes.clone();
    longer.push(0);
    refused(backend.load(&valid, &options, &longer), &codes::backend::BAD_ARTIFACT, "a longer artifact")?;
    let mut interruptible = CompileOptions::default();
    interruptible.interruptible = true;
    refused(backend.load(&valid, &interruptible, &bytes), &codes::backend::BAD_ARTIFACT, "one of other options")?;
    Ok(())
}

fn limits(backend: &WgpuBackend) -> Result<(), Failed> {
    let most = backend.capabilities().limits.max_buffer_bytes;
    for bytes in [most + 1, u64::MAX] {
        refused(backend.allocate(bytes), &codes::backend::OUT_OF_MEMORY, "a buffer over the limit")?;
    }
    let elements = u32::try_from(most / 4 + 64)?;
    let large = Program::wrapped(
        vec![BufferDecl::output("out", 0, DataType::U32).with_count(elements)],
        [64, 1, 1],
        vec![Node::store("out", Expr::global_id(0), Expr::u32(1))],
    );
    refused(
        backend.dispatch(&large, &[], &DispatchConfig::default()),
        &codes::backend::LIMIT,
        "a program with a buffer over the limit",
    )?;
    let wide = backend.capabilities().limits.max_workgroup_size[0];
    let mut config = DispatchConfig::default();
    config.workgroup_override = Some([wide.saturating_mul(2), 1, 1]);
    let too_wide = backend.dispatch(&add_one(), &[words(0..4)], &config);
    expect(too_wide.is_err(), || "a workgroup over the limit ran".to_owned())?;
    Ok(works(backend)?)
}

/// The same adapter as if it had no f16 and no 64-bit types.
fn missing_features(backend: &WgpuBackend) -> Result<(), Failed> {
    let bare = WgpuBackend::on(backend.adapter().without_optional_types()).map_err(|problem| problem.to_string())?;
    for (ty, name) in [(DataType::F16, "f16"), (DataType::F64, "f64"), (DataType::U64, "u64")] {
        let program = Program::wrapped(
            vec![BufferDecl::read_write("data", 0, ty)],
            [64, 1, 1],
            vec![Node::store("data", Expr::global_id(0), Expr::load("data", Expr::u32(0)))],
        );
        let error = bare.dispatch(&program, &[vec![0; 64]], &DispatchConfig::default()).err();
        let error = error.ok_or_else(|| format!("{name} ran without the feature"))?;
        println!("{error}");
        let named = error.message().contains(name);
        expect(named && error.code() == codes::backend::UNSUPPORTED_FEATURE.id, || error.to_string())?;
    }
    // Inside a kernel, where no buffer shows it.
    let inner = Program::wrapped(
        vec![BufferDecl::read_write("data", 0, DataType::F32)],
        [64, 1, 1],
        vec![Node::store(
            "data",
            Expr::global_id(0),
            Expr::load("data", Expr::global_id(0)).cast(DataType::F16).cast(DataType::F32),
        )],
    );
    refused(
        bare.dispatch(&inner, &[vec![0; 64]], &DispatchConfig::default()),
        &codes::backend::UNSUPPORTED_FEATURE,
        "f16 in a kernel",
    )?;
    // Without wide types, functions are the adapter's own.
    let sine = Program::wrapped(
        vec![BufferDecl::read_write("data", 0, DataType::F32).with_count(1)],
        [1, 1, 1],
        vec![Node::store(
            "data",
            Expr::u32(0),
            Expr::Math { op: vyre_foundation::ir::MathOp::Sin, args: vec![Expr::load("data", Expr::u32(0))] },
        )],
    );
    let results = bare.dispatch(&sine, &[1f32.to_le_bytes().to_vec()], &DispatchConfig::default())?;
    let result = f32::from_le_bytes(std::array::from_fn(|i| results[0][i]));
    expect((result - 1f32.sin()).abs() < 1e-3, || format!("the sine of 1 is {result}"))?;
    Ok(works(&bare)?)
}

fn aliased(backend: &WgpuBackend) -> Result<(), Failed> {
    let program = Program::wrapped(
        vec![BufferDecl::read("from", 0, DataType::U32), BufferDecl::read_write("to", 1, DataType::U32)],
        [64, 1, 1],
        vec![Node::store("to", Expr::global_id(0), Expr::load("from", Expr::global_id(0)))],
    );
    let valid = program.validate().map_err(|problems| problems[0].to_string())?;
    let pipeline = backend.compile(&valid, &CompileOptions::default())?;
    let buffer = backend.allocate(256)?;
    let bindings = [Binding::from(buffer.clone()), Binding::from(buffer)];
    let launch = Launch::new(&bindings, [1, 1, 1]);
    refused(backend.submit(&pipeline, &launch), &codes::backend::BINDINGS, "one buffer twice")?;
    let launch = Launch { bindings: &bindings[..1], ..launch };
    refused(backend.submit(&pipeline, &launch), &codes::backend::BINDINGS, "too few buffers")?;
    Ok(works(backend)?)
}

fn foreign(backend: &WgpuBackend) -> Result<(), Failed> {
    let other = WgpuBackend::on(backend.adapter().clone()).map_err(|problem| problem.to_string())?;
    let program = add_one();
    let valid = program.validate().map_err(|problems| problems[0].to_string())?;
    let pipeline = backend.compile(&valid, &CompileOptions::default())?;
    let theirs = [Binding::from(other.allocate(64)?)];
    let launch = Launch::new(&theirs, [1, 1, 1]);
    refused(backend.submit(&pipeline, &launch), &codes::backend::FOREIGN_HANDLE, "another device's buffer")?;
    refused(other.submit(&pipeline, &launch), &codes::backend::FOREIGN_HANDLE, "another device's pipeline")?;
    Ok(())
}

fn lost(backend: &WgpuBackend) -> Result<(), Failed> {
    let program = add_one();
    let valid = program.validate().map_err(|problems| problems[0].to_string())?;
    let pipeline = backend.compile(&valid, &CompileOptions::default())?;
    let old = backend.allocate(256)?;
    let bindings = [Binding::from(old.clone())];
    let launch = Launch::new(&bindings, [1, 1, 1]);
    let pending = backend.submit(&pipeline, &launch)?;
    backend.reset()?;
    let waited = backend.wait(pending, None);
    refused(waited, &codes::backend::DEVICE_LOST, "a launch on a lost device")?;
    refused(backend.submit(&pipeline, &launch), &codes::backend::DEVICE_LOST, "a buffer of a lost device")?;
    refused(
        backend.download(&old, 0, &mut [0; 4], &Order::default()),
        &codes::backend::DEVICE_LOST,
        "reading a lost buffer",
    )?;
    works(backend)?;
    // Pipelines stay.
    let fresh = backend.allocate(256)?;
    let bindings = [Binding::from(fresh.clone())];
    let pending = backend.submit(&pipeline, &Launch::new(&bindings, [1, 1, 1]))?;
    backend.wait(pending, None)?;
    let mut out = vec![0; 256];
    backend.download(&fresh, 0, &mut out, &Order::default())?;
    expect(out == words([1; 64]), || "a pipeline from before the loss is wrong".to_owned())
}

fn compiled(backend: &WgpuBackend, program: &Program, interruptible: bool) -> Result<Arc<dyn Pipeline>, Failed> {
    let valid = program.validate().map_err(|problems| problems[0].to_string())?;
    let mut options = CompileOptions::default();
    options.interruptible = interruptible;
    Ok(backend.compile(&valid, &options)?)
}

fn lost_while_waiting(backend: &WgpuBackend) -> Result<(), Failed> {
    let forever = Node::forever(vec![Node::atomic(AtomicOp::Add, "data", Expr::u32(0), Expr::u32(1))]);
    let buffers = vec![BufferDecl::read_write("data", 0, DataType::U32)];
    let endless = compiled(backend, &Program::wrapped(buffers, [64, 1, 1], vec![forever]), true)?;
    let bindings = [Binding::from(backend.allocate(4)?)];
    let ticket = backend.submit(&endless, &Launch::new(&bindings, [1 << 12, 1, 1]))?;
    let (waited, read) = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| backend.wait(ticket, None));
        let reading = scope.spawn(|| backend.download(&bindings[0].buffer, 0, &mut [0; 4], &Order::default()));
        std::thread::sleep(Duration::from_millis(50));
        let given_back = backend.reset();
        given_back.map(|()| (waiting.join(), reading.join()))
    })?;
    let panicked = |_| Failed::from("a waiting thread panicked");
    refused(waited.map_err(panicked)?, &codes::backend::DEVICE_LOST, "waiting for a launch on a device that is lost")?;
    refused(read.map_err(panicked)?, &codes::backend::DEVICE_LOST, "reading from a device that is lost")?;
    Ok(works(backend)?)
}

/// More than there are stop words in one buffer.
fn many_stoppable(backend: &WgpuBackend) -> Result<(), Failed> {
    let pipeline = compiled(backend, &add_one(), true)?;
    let buffer = backend.allocate(1 << 12)?;
    let bindings = [Binding::from(buffer.clone())];
    let mut tickets = Vec::new();
    for _ in 0..1500 {
        tickets.push(backend.submit(&pipeline, &Launch::new(&bindings, [16, 1, 1]))?);
    }
    backend.cancel(tickets[1499])?;
    let mut done = 0;
    for ticket in tickets {
        match backend.wait(ticket, Some(Duration::from_secs(60))) {
            Ok(completion) => done += u32::from(completion.is_some()),
            Err(error) => expect(error.code() == codes::backend::STOPPED.id, || error.to_string())?,
        }
    }
    let mut out = vec![0; 1 << 12];
    backend.download(&buffer, 0, &mut out, &Order::default())?;
    expect(done >= 1499, || format!("{done} of 1500 launches were done"))?;
    // The last one may have been stopped after some of its work.
    let at_least = |word: &[u8]| (1499..=done).contains(&u32::from_le_bytes(std::array::from_fn(|i| word[i])));
    expect(out.chunks_exact(4).all(at_least) || done == 1499, || "a launch is missing".to_owned())
}

/// Each thread has its own bytes; wgpu moves words.
fn shared_words(backend: &WgpuBackend) -> Result<(), Failed> {
    const BYTES: u64 = 30;
    let buffer = backend.allocate(BYTES)?;
    let buffer = &buffer;
    std::thread::scope(|scope| {
        let write = |thread: u64| {
            move || -> Result<(), BackendError> {
                for round in 0..40u8 {
                    for at in (thread..BYTES).step_by(3) {
                        let ticket = backend.upload(buffer, at, &[round + thread as u8], &Order::default())?;
                        backend.forget(ticket);
                    }
                }
                Ok(())
            }
        };
        let threads: Vec<_> = (0..3).map(|thread| scope.spawn(write(thread))).collect();
        threads.into_iter().try_for_each(|thread| Ok(thread.join().map_err(|_| "a thread panicked")??))
    })
    .map_err(|error: Box<dyn std::error::Error>| Failed::from(error.to_string()))?;
    let mut out = [0; BYTES as usize];
    backend.download(buffer, 0, &mut out, &Order::default())?;
    expect(out.iter().enumerate().all(|(at, &byte)| byte == 39 + (at % 3) as u8), || format!("{out:?}"))
}

/// Some drivers end loops after some rounds without a word.
fn long_loops(backend: &WgpuBackend) -> Result<(), Failed> {
    let at = || Expr::global_id(0);
    let sum = |value: Expr| Node::assign("sum", Expr::var("sum") * Expr::u32(3) + value);
    // Each invocation makes other rounds, and each round of the outer loop.
    let inner = Expr::load("rounds", (at() + Expr::var("i")) & Expr::u32(63));
    let count = |name: &str, to: Expr, body: Vec<Node>| Node::for_range(name, Expr::u32(0), to, body);
    let program = Program::wrapped(
        vec![BufferDecl::read("rounds", 0, DataType::U32), BufferDecl::output("out", 1, DataType::U32).with_count(64)],
        [64, 1, 1],
        vec![
            Node::var("sum", DataType::U32, Expr::u32(0)),
            count("i", Expr::load("rounds", Expr::u32(64)), vec![count("j", inner, vec![sum(Expr::var("j"))])]),
            Node::store("out", at(), Expr::var("sum")),
        ],
    );
    let mut right = 0;
    for (most, outer) in [(10, 5), (100_000, 1), (3_000, 64), (40_000, 64), (2_000_000, 3)] {
        let rounds: Vec<u32> = (0..64).map(|lane| if lane % 5 == 0 { most } else { lane }).chain([outer]).collect();
        let expected = (0..64).map(|lane| {
            let all = (0..outer).flat_map(|i| 0..rounds[(lane + i) as usize & 63]);
            all.fold(0u32, |sum, j| sum.wrapping_mul(3).wrapping_add(j))
        });
        match backend.dispatch(&program, &[words(rounds.iter().copied())], &DispatchConfig::default()) {
            Ok(results) => {
                right += 1;
                expect(results == [words(expected)], || format!("{most} rounds, {outer} times, are wrong"))?;
            }
            Err(error) => {
                println!("{most} rounds, {outer} times: {error}");
                expect(error.code() == codes::wgpu::LOOP_LIMIT.id, || error.to_string())?;
            }
        }
    }
    let software = backend.capabilities().name.contains("llvmpipe");
    expect(right == 5 || (software && right >= 3), || format!("only {right} of 5 are right"))?;
    Ok(works(backend)?)
}

/// Some drivers take minutes for large private arrays, or lose the device.
fn large_arrays(backend: &WgpuBackend) -> Result<(), Failed> {
    let at = || Expr::global_id(0);
    for (count, is_small) in [(128u32, true), (8192, false)] {
        let array = TypeDef::Array { element: DataType::U32, count: Count::Fixed(count), stride: 4 };
        let mut program = Program::wrapped(
            vec![
                BufferDecl::read("input", 0, DataType::U32),
                BufferDecl::output("out", 1, DataType::U32).with_count(64),
            ],
            [64, 1, 1],
            vec![
                Node::Var { name: "table".into(), ty: DataType::Handle(TypeId(0)), init: None },
                Node::for_range(
                    "i",
                    Expr::u32(0),
                    Expr::u32(count),
                    vec![Node::Assign {
                        name: "table".into(),
                        path: vec![Access::Index(Expr::var("i"))],
                        value: (Expr::var("i") * Expr::u32(7)) ^ at(),
                    }],
                ),
                Node::store(
                    "out",
                    at(),
                    Expr::Part {
                        value: Box::new(Expr::var("table")),
                        path: vec![Access::Index(Expr::load("input", at()))],
                    },
                ),
            ],
        );
        program = program.with_types(vec![array]);
        let places = (0..64u32).map(|lane| lane * 37 % count);
        match backend.dispatch(&program, &[words(places.clone())], &DispatchConfig::default()) {
            Ok(results) => {
                let expected = places.zip(0..).map(|(place, lane): (u32, u32)| (place * 7) ^ lane);
                expect(results == [words(expected)], || format!("an array of {count} is wrong"))?;
            }
            Err(error) => expect(!is_small && error.code() == codes::wgpu::ARRAY_LIMIT.id, || error.to_string())?,
        }
    }
    Ok(works(backend)?)
}

fn ready<T>(future: impl Future<Output = T>) -> Result<T, Failed> {
    match std::pin::pin!(future).poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(value) => Ok(value),
        std::task::Poll::Pending => Err("wgpu is not ready".into()),
    }
}

/// The same adapter, opened by the caller with little more than it must have; buffers go both ways.
fn own_device(backend: &WgpuBackend) -> Result<(), Failed> {
    use wgpu::BufferUsages as Usage;
    let backends = wgpu::Backends::VULKAN | wgpu::Backends::METAL | wgpu::Backends::DX12;
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends,
        flags: wgpu::InstanceFlags::empty(),
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    });
    let mut adapters = ready(instance.enumerate_adapters(backends))?.into_iter();
    let adapter = adapters.find(|adapter| adapter.get_info().name == backend.capabilities().name);
    let adapter = adapter.ok_or("the adapter is gone")?;
    let descriptor = wgpu::DeviceDescriptor {
        required_features: wgpu::Features::IMMEDIATES,
        required_limits: adapter.limits(),
        ..Default::default()
    };
    let (device, queue) = ready(adapter.request_device(&descriptor))??;
    let own = WgpuBackend::from_device(&adapter, device.clone(), queue.clone()).map_err(|why| why.to_string())?;
    works(&own)?;
    let buffer = |size, usage| {
        device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage, mapped_at_creation: false })
    };
    let theirs = buffer(20, Usage::STORAGE | Usage::COPY_SRC | Usage::COPY_DST);
    queue.write_buffer(&theirs, 0, &words([1, 2, 3, 4, 5]));
    queue.submit([]);
    let wrapped = own.wrap(theirs.clone())?;
    let other = own.allocate(20)?;
    let pipeline = compiled(&own, &add_one(), false)?;
    let bindings = [Binding::from(wrapped.clone())];
    let order = Order::default();
    for _ in 0..10 {
        own.submit(&pipeline, &Launch::new(&bindings, [1, 1, 1])).map(|ticket| own.forget(ticket))?;
    }
    own.copy(&Binding::from(wrapped), &Binding::from(other.clone()), &order).map(|ticket| own.forget(ticket))?;
    // Work of the caller on both, behind that.
    let read = buffer(40, Usage::MAP_READ | Usage::COPY_DST);
    let mut encoder = device.create_command_encoder(&Default::default());
    encoder.copy_buffer_to_buffer(&theirs, 0, &read, 0, 20);
    encoder.copy_buffer_to_buffer(own.raw_buffer(&other)?, 0, &read, 20, 20);
    let index = queue.submit([encoder.finish()]);
    read.map_async(wgpu::MapMode::Read, .., |_| {});
    device.poll(wgpu::PollType::Wait { submission_index: Some(index), timeout: None })?;
    let expected = words([11, 12, 13, 14, 15, 11, 12, 13, 14, 15]);
    let found = read.get_mapped_range(..)?.to_vec();
    expect(found == expected, || format!("{found:?}"))?;
    let plain = buffer(16, Usage::STORAGE);
    refused(own.wrap(plain), &codes::backend::BAD_RANGE, "a buffer without usages")?;
    refused(backend.raw_buffer(&other), &codes::backend::FOREIGN_HANDLE, "a buffer of another device")?;
    // Its loss is the backend's.
    device.destroy();
    let after = own.dispatch(&add_one(), &[words(0..4)], &DispatchConfig::default());
    refused(after, &codes::backend::DEVICE_LOST, "a dispatch on a device that its owner destroyed")?;
    Ok(works(backend)?)
}
