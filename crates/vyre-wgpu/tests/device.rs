//! What only an adapter can show; Mesa's software one will do. Without any, every test but the first is skipped, and the reason
//! is printed.
//!
//! `VYRE_RANDOM` sets how many random programs of each kind are compared with the reference, `VYRE_SEED` where they start,
//! `VYRE_WGPU_ADAPTER` the number of the adapter.

use std::process::Command;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};
use vyre_conform::device::{DEVICE_CHECKS, Patient, add_one, refused, words, works};
use vyre_conform::{GenOptions, Report, Rules, Subgroups, random_programs, suite_with};
use vyre_driver::backend::{Binding, CompileOptions, DeviceKind, Launch};
use vyre_driver::{DispatchConfig, VyreBackend};
use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
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
    let tests: [(&str, Test); 13] = [
        ("adapters are described", described),
        ("conformance suite", conformance),
        ("random programs", random),
        ("programs that once went wrong", once_wrong),
        ("random functions", random_functions),
        ("random programs with timeouts", random_interruptible),
        ("random programs with subgroups", random_subgroups),
        ("changed artifacts are refused", checked_artifact),
        ("limits are kept", limits),
        ("missing features are named", missing_features),
        ("a buffer that is read and written is refused", aliased),
        ("two adapters don't mix", foreign),
        ("a lost device comes back", lost),
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
    let (count, first) = (number("VYRE_RANDOM", 200) / share, number("VYRE_SEED", 0));
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

fn random_subgroups(backend: &WgpuBackend) -> Result<(), Failed> {
    random_with(backend, backend, 5, &GenOptions { subgroups: Subgroups::AnySize, ..GenOptions::default() })
}

fn random_interruptible(backend: &WgpuBackend) -> Result<(), Failed> {
    random_with(&Patient(backend), backend, 5, &GenOptions::default())
}

/// What was stored is taken only whole, and for the options that it was made for.
fn checked_artifact(backend: &WgpuBackend) -> Result<(), Failed> {
    let valid = add_one().validate().map_err(|problems| problems[0].to_string())?;
    let options = CompileOptions::default();
    let Some(bytes) = backend.compile(&valid, &options)?.artifact() else {
        return expect(backend.adapter().api != "Vulkan", || "Vulkan gives no artifact".to_owned());
    };
    let mut changed = bytes.clone();
    changed[bytes.len() / 2] ^= 1;
    refused(backend.load(&valid, &options, &changed), &codes::backend::BAD_ARTIFACT, "a changed artifact")?;
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
    let launch = Launch { bindings: &bindings, grid: [1, 1, 1], timed: false };
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
    let launch = Launch { bindings: &theirs, grid: [1, 1, 1], timed: false };
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
    let launch = Launch { bindings: &bindings, grid: [1, 1, 1], timed: false };
    let pending = backend.submit(&pipeline, &launch)?;
    backend.reset()?;
    let waited = backend.wait(pending, None);
    refused(waited, &codes::backend::DEVICE_LOST, "a launch on a lost device")?;
    refused(backend.submit(&pipeline, &launch), &codes::backend::DEVICE_LOST, "a buffer of a lost device")?;
    refused(backend.download(&old, 0, &mut [0; 4]), &codes::backend::DEVICE_LOST, "reading a lost buffer")?;
    works(backend)?;
    // Pipelines stay.
    let fresh = backend.allocate(256)?;
    let bindings = [Binding::from(fresh.clone())];
    let pending = backend.submit(&pipeline, &Launch { bindings: &bindings, grid: [1, 1, 1], timed: false })?;
    backend.wait(pending, None)?;
    let mut out = vec![0; 256];
    backend.download(&fresh, 0, &mut out)?;
    expect(out == words([1; 64]), || "a pipeline from before the loss is wrong".to_owned())
}
