//! The engine against backends whose behaviour and speed are known.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use support::Sim;
use vyre::ir::Math;
use vyre::metrics::Counter;
use vyre::pipeline::PackKey;
use vyre::tuner::{Mode, Verdict};
use vyre::{
    BackendError, DispatchConfig, Engine, EngineBuilder, Program, ReferenceBackend, Severity, VyreBackend, from_bytes,
    to_bytes,
};

const DOUBLE: &str = "
    @group(0) @binding(0) var<storage, read> a: array<u32>;
    @group(0) @binding(1) var<storage, read_write> out: array<u32>;
    @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x < arrayLength(&a) { out[id.x] = a[id.x] * 2u; }
    }";

fn double() -> Program {
    vyre::wgsl(DOUBLE).expect("the kernel is good")
}

fn only(backends: Vec<Arc<dyn VyreBackend>>) -> EngineBuilder {
    let count = backends.len() as i32;
    let builder = Engine::builder().without_default_backends().without_disk();
    backends
        .into_iter()
        .enumerate()
        .fold(builder, |builder, (at, backend)| builder.with_backend(backend, count - at as i32))
}

/// Fails, or works as the reference does, and counts.
struct Scripted {
    id: &'static str,
    fails: bool,
    calls: AtomicU64,
}

impl Scripted {
    fn new(id: &'static str, fails: bool) -> Arc<Scripted> {
        Arc::new(Scripted { id, fails, calls: AtomicU64::new(0) })
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }
}

impl VyreBackend for Scripted {
    fn id(&self) -> &'static str {
        self.id
    }

    fn dispatch(
        &self,
        program: &Program,
        inputs: &[Vec<u8>],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if self.fails {
            return Err(BackendError::new("the device caught fire"));
        }
        ReferenceBackend.dispatch(program, inputs, config)
    }
}

#[test]
fn a_backend_that_fails_is_taken_out_and_the_work_is_done_elsewhere() {
    let (broken, good) = (Scripted::new("broken", true), Scripted::new("good", false));
    let engine = only(vec![broken.clone(), good.clone()]).open().unwrap();
    for _ in 0..3 {
        let out = engine.run(&double(), &[to_bytes(&[1u32, 2, 3])]).unwrap();
        assert_eq!(from_bytes::<u32>(&out[0]), [2, 4, 6]);
    }
    assert_eq!(broken.calls(), 1, "it is not asked again");
    assert_eq!(good.calls(), 3);
    assert_eq!(engine.metrics().counter(Counter::Fallbacks), 1);
    let notices = engine.take_notices();
    assert!(notices.iter().any(|notice| notice.message.contains("the device caught fire")), "{notices:?}");
    assert!(engine.take_notices().is_empty(), "each notice is given once");
}

/// A device that does not keep subnormal numbers.
struct Rough(Arc<Scripted>);

impl VyreBackend for Rough {
    fn id(&self) -> &'static str {
        self.0.id
    }

    fn dispatch(
        &self,
        program: &Program,
        inputs: &[Vec<u8>],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        self.0.dispatch(program, inputs, config)
    }

    fn gives_exact(&self, program: &vyre::ValidProgram) -> bool {
        program.math() == Math::Fast
    }
}

#[test]
fn a_device_that_is_not_exact_gets_fast_arithmetic_only() {
    let rough = Scripted::new("rough", false);
    let alone = only(vec![Arc::new(Rough(rough.clone()))]).open().unwrap();
    let exact = Scripted::new("exact", false);
    let engine = only(vec![Arc::new(Rough(rough.clone())), exact.clone()]).open().unwrap();
    let input = to_bytes(&[1u32, 2, 3]);
    for _ in 0..20 {
        engine.run(&double(), &[input]).unwrap();
    }
    assert_eq!((rough.calls(), exact.calls()), (0, 20));
    engine.run_on("rough", &double(), &[input], &DispatchConfig::default()).unwrap();
    assert_eq!(rough.calls(), 1, "who asks for it by name gets it");
    let error = alone.run(&double(), &[input]).unwrap_err();
    assert!(error.message().contains("exact arithmetic"), "{error}");
    alone.run(&double().with_math(Math::Fast), &[input]).unwrap();
    assert_eq!(rough.calls(), 2);
}

/// A GPU on which a kernel faulted: the process gets no other context, and every call says so.
struct Faulted(vyre::codes::Code);

impl VyreBackend for Faulted {
    fn id(&self) -> &'static str {
        "gpu"
    }

    fn dispatch(&self, _: &Program, _: &[Vec<u8>], _: &DispatchConfig) -> Result<Vec<Vec<u8>>, BackendError> {
        Err(BackendError::with_code(self.0, "the context is lost"))
    }
}

#[test]
fn a_device_that_faulted_is_left_for_another() {
    for code in [&vyre::codes::cuda::FAULT, &vyre::codes::backend::DEVICE_LOST] {
        let good = Scripted::new("good", false);
        let engine = only(vec![Arc::new(Faulted(code)), good.clone()]).open().unwrap();
        for _ in 0..2 {
            let out = engine.run(&double(), &[to_bytes(&[4u32])]).unwrap();
            assert_eq!(from_bytes::<u32>(&out[0]), [8]);
        }
        assert_eq!(good.calls(), 2);
        let notices = engine.take_notices();
        assert!(notices.iter().any(|notice| notice.message.contains("the context is lost")), "{notices:?}");
        let error = engine.run_on("gpu", &double(), &[to_bytes(&[4u32])], &DispatchConfig::default()).unwrap_err();
        assert_eq!(error.code(), code.id, "who asks for that device is told why it can't");
    }
}

#[test]
fn the_callers_own_mistakes_are_told_at_once_and_blame_no_backend() {
    let (first, second) = (Scripted::new("first", false), Scripted::new("second", false));
    let engine = only(vec![first.clone(), second.clone()]).open().unwrap();
    let error = engine.run(&double(), &[]).unwrap_err();
    assert_eq!(error.code(), vyre::codes::ir::LAUNCH_INPUT_COUNT.id);
    assert_eq!((first.calls(), second.calls()), (0, 0));
    assert!(engine.take_notices().is_empty());
    let mut config = DispatchConfig::default();
    config.specialization.insert("TILE", 4u32);
    let error = engine.run_with(&double(), &[to_bytes(&[1u32])], &config).unwrap_err();
    assert_eq!(error.code(), vyre::codes::specialization::UNKNOWN_CONSTANT.id);
}

#[test]
fn without_any_backend_the_error_says_so() {
    let engine = only(Vec::new()).open().unwrap();
    let error = engine.run(&double(), &[to_bytes(&[1u32])]).unwrap_err();
    assert!(error.to_string().contains("Fix:"), "{error}");
}

#[test]
fn two_backends_of_one_name_are_refused() {
    let twins: Vec<Arc<dyn VyreBackend>> = vec![Scripted::new("twin", false), Scripted::new("twin", false)];
    assert!(only(twins).open().is_err());
}

fn simulated() -> Arc<Sim> {
    Arc::new(Sim::new("simulated", 1, 1 << 30))
}

fn numbers(count: u32) -> Vec<u32> {
    (0..count).collect()
}

#[test]
fn real_runs_teach_the_launch_and_the_next_process_knows_it() {
    let folder = tempfile::tempdir().unwrap();
    let open = |device: Arc<Sim>| {
        let builder = Engine::builder().without_default_backends().cache_at(folder.path());
        builder.with_backend(device, 1).tuner(Mode::NaturalGradient).open().unwrap()
    };
    let device = simulated();
    let engine = open(device.clone());
    let prepared = engine.prepare(&double()).unwrap();
    let input = numbers(1024);
    prepared.set("a", to_bytes(&input)).unwrap();
    for _ in 0..400 {
        prepared.run().unwrap();
        // Candidates are compiled beside the caller.
        std::thread::sleep(Duration::from_micros(200));
    }
    let doubled: Vec<u32> = input.iter().map(|x| x * 2).collect();
    assert_eq!(from_bytes::<u32>(&prepared.get("out").unwrap()), doubled);
    let explanation = engine.explain(&prepared);
    assert_eq!(explanation.workgroup_size, Some([256, 1, 1]), "{explanation}");
    assert!(explanation.to_string().contains("faster than the default"), "{explanation}");
    assert!(engine.metrics().counter(Counter::TuningDecisions) == 1);
    engine.flush().unwrap();
    drop((prepared, engine));

    let engine = open(device);
    let prepared = engine.prepare(&double()).unwrap();
    prepared.set("a", to_bytes(&input)).unwrap();
    prepared.run().unwrap();
    assert_eq!(engine.explain(&prepared).workgroup_size, Some([256, 1, 1]));
    assert_eq!(engine.metrics().counter(Counter::TuningSamples), 0, "nothing is measured again");
}

#[test]
fn a_sweep_finds_the_fastest_that_gives_the_same_results() {
    let engine = only(vec![simulated()]).tuner(Mode::On).open().unwrap();
    let input = numbers(1024);
    engine.run(&double(), &[to_bytes(&input)]).unwrap();
    let decision = engine.tune("simulated", &double(), &[to_bytes(&input)], &DispatchConfig::default(), None).unwrap();
    assert_eq!(decision.candidate.workgroup_size, [256, 1, 1]);
    assert_eq!(decision.verdict, Verdict::Winner);

    let engine = only(vec![Arc::new(Sim::new("simulated", 1, 1 << 30).lying(256))]).tuner(Mode::On).open().unwrap();
    let decision = engine.tune("simulated", &double(), &[to_bytes(&input)], &DispatchConfig::default(), None).unwrap();
    assert_eq!(decision.candidate.workgroup_size, [128, 1, 1], "the fastest lies, so the next one wins");
    assert!(decision.evidence.rejected.iter().any(|reason| reason.contains("256")), "{:?}", decision.evidence.rejected);
}

#[test]
fn a_decision_for_another_size_is_a_first_guess_that_is_checked_again() {
    let engine = only(vec![simulated()]).tuner(Mode::On).open().unwrap();
    let tune = |count: u32| {
        let input = numbers(count);
        engine.tune("simulated", &double(), &[to_bytes(&input)], &DispatchConfig::default(), None).unwrap()
    };
    let first = tune(256);
    assert_eq!(first.evidence.candidates, 6);
    let second = tune(4096);
    assert_eq!(second.candidate.workgroup_size, [256, 1, 1]);
    assert_eq!(second.evidence.candidates, 2, "only the guess and the default are compared");
}

#[test]
fn a_size_that_the_caller_names_is_not_tuned() {
    let engine = only(vec![simulated()]).tuner(Mode::On).open().unwrap();
    let mut config = DispatchConfig::default();
    config.workgroup_override = Some([32, 1, 1]);
    let prepared = engine.prepare_with(&double(), &config).unwrap();
    prepared.set("a", to_bytes(&numbers(100))).unwrap();
    prepared.run().unwrap();
    let explanation = prepared.explain();
    assert_eq!(explanation.workgroup_size, Some([32, 1, 1]));
    assert_eq!(explanation.grid, Some([4, 1, 1]));
    assert!(explanation.launch.contains("asked for"), "{explanation}");
}

#[test]
fn prepared_programs_follow_their_inputs() {
    let engine = only(vec![simulated()]).open().unwrap();
    let prepared = engine.prepare(&double()).unwrap();
    assert_eq!(prepared.run().unwrap_err().code(), vyre::codes::engine::NOT_SET.id);
    assert_eq!(prepared.set("b", &[]).unwrap_err().code(), vyre::codes::engine::UNKNOWN_BUFFER.id);
    assert_eq!(prepared.get("out").unwrap_err().code(), vyre::codes::engine::NOT_RUN.id);
    for input in [vec![1u32, 2], vec![3, 4], vec![5], numbers(300)] {
        prepared.set("a", to_bytes(&input)).unwrap();
        prepared.run().unwrap();
        let doubled: Vec<u32> = input.iter().map(|x| x * 2).collect();
        assert_eq!(from_bytes::<u32>(&prepared.get("out").unwrap()), doubled);
    }
}

#[test]
fn threads_share_an_engine() {
    let engine = Engine::builder().without_disk().open().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let engine = engine.clone();
            scope.spawn(move || {
                for round in 0..20 {
                    let input = vec![thread, round, 7];
                    let out = engine.run(&double(), &[to_bytes(&input)]).unwrap();
                    assert_eq!(from_bytes::<u32>(&out[0]), [2 * thread, 2 * round, 14]);
                }
            });
        }
    });
    assert_eq!(engine.metrics().counter(Counter::Dispatches), 80);
}

/// Right or wrong, and slow by so many microseconds.
struct Paced {
    id: &'static str,
    micros: u64,
    lies: bool,
}

impl VyreBackend for Paced {
    fn id(&self) -> &'static str {
        self.id
    }

    fn dispatch(
        &self,
        program: &Program,
        inputs: &[Vec<u8>],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        std::thread::sleep(Duration::from_micros(self.micros));
        let mut results = ReferenceBackend.dispatch(program, inputs, config)?;
        if self.lies {
            results[0][0] ^= 1;
        }
        Ok(results)
    }
}

#[test]
fn certified_routes_are_remembered_and_liars_are_out() {
    let folder = tempfile::tempdir().unwrap();
    let paced = |id, micros, lies| Arc::new(Paced { id, micros, lies });
    let open = || {
        let builder = Engine::builder().without_default_backends().cache_at(folder.path());
        builder.with_backend(paced("slow", 40_000, false), 3).with_backend(paced("fast", 10, false), 2)
    };
    let input = numbers(256);
    let engine = open().with_backend(paced("liar", 1, true), 1).open().unwrap();
    let mut runs = 0;
    let config = DispatchConfig::default();
    let certified = engine.certify(&double(), &[to_bytes(&input)], &config, 5, &mut || runs += 1).unwrap();
    assert_eq!((certified.n, runs), (256, 3 + 2 * 5));
    let named = |id: &str| certified.racers.iter().find(|racer| racer.backend == id).unwrap();
    assert_eq!(named("slow").times.as_ref().unwrap().len(), 5);
    assert!(named("liar").times.as_ref().unwrap_err().contains("differ"), "{certified:?}");
    assert_eq!(certified.routes.chosen.as_deref(), Some("fast"));
    engine.flush().unwrap();
    drop(engine);

    let engine = open().open().unwrap();
    let prepared = engine.prepare(&double()).unwrap();
    prepared.set("a", to_bytes(&input)).unwrap();
    prepared.run().unwrap();
    let explanation = prepared.explain();
    assert_eq!(explanation.backend.as_deref(), Some("fast"), "{explanation}");
}

#[test]
fn a_pack_carries_what_was_learnt_to_another_folder() {
    let [here, there] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let open = |folder: &tempfile::TempDir| {
        let builder = Engine::builder().without_default_backends().cache_at(folder.path());
        builder.with_backend(simulated(), 1).open().unwrap()
    };
    let input = numbers(1024);
    let config = DispatchConfig::default();
    let engine = open(&here);
    engine.tune("simulated", &double(), &[to_bytes(&input)], &config, None).unwrap();
    engine.certify(&double(), &[to_bytes(&input)], &config, 3, &mut || {}).unwrap();
    let secret = [7; 32];
    let mut pack = Vec::new();
    let report = engine.export_pack(&mut pack, PackKey::Secret(&secret)).unwrap();
    assert_eq!((report.decisions, report.routes), (1, true));

    let engine = open(&there);
    let wrong = engine.import_pack(&pack[..], PackKey::Secret(&[8; 32])).unwrap_err();
    assert_eq!(wrong.diagnostic().code.id, "V0808");
    assert_eq!(engine.import_pack(&pack[..], PackKey::Secret(&secret)).unwrap(), report);
    let engine = open(&there);
    assert_eq!(engine.decisions().on("simulated").unwrap().len(), 1);
    let prepared = engine.prepare(&double()).unwrap();
    prepared.set("a", to_bytes(&input)).unwrap();
    prepared.run().unwrap();
    let explanation = prepared.explain();
    assert_eq!(explanation.workgroup_size, Some([256, 1, 1]), "{explanation}");
    assert!(explanation.others[0].samples >= 3, "{explanation}");
}

#[test]
fn a_table_of_decisions_that_cant_be_read_is_a_notice() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let builder = Engine::builder().without_default_backends().cache_at(folder.path());
        builder.with_backend(simulated(), 1).open().unwrap()
    };
    let input = numbers(64);
    open().tune("simulated", &double(), &[to_bytes(&input)], &DispatchConfig::default(), None).unwrap();
    let tables = std::fs::read_dir(folder.path().join("tuner")).unwrap().flatten().map(|entry| entry.path());
    let table = tables.into_iter().find(|path| path.extension().is_some_and(|ending| ending == "toml")).unwrap();
    std::fs::write(table, "this is no table").unwrap();
    let engine = open();
    engine.run(&double(), &[to_bytes(&input)]).unwrap();
    let notices = engine.take_notices();
    assert!(
        notices.iter().any(|notice| notice.code.id == "V1004" && notice.severity == Severity::Warning),
        "{notices:?}"
    );
}

#[test]
#[cfg(feature = "cpu")]
fn code_for_the_processor_is_compiled_once_and_then_read_from_disk() {
    let folder = tempfile::tempdir().unwrap();
    let input = numbers(300);
    let run = || {
        let engine = Engine::builder().cache_at(folder.path()).open().unwrap();
        engine.metrics().start_trace();
        let results = engine.run_on("cpu", &double(), &[to_bytes(&input)], &DispatchConfig::default()).unwrap();
        assert_eq!(from_bytes::<u32>(&results[0]), input.iter().map(|n| n * 2).collect::<Vec<_>>());
        engine.flush().unwrap();
        let stages = engine.metrics().finish_trace();
        assert!(stages.contains("\"wait\""), "{stages}");
        let count = |counter| engine.metrics().counter(counter);
        (
            count(Counter::Compiles),
            count(Counter::DiskHits),
            stages.contains("\"compile\""),
            stages.contains("\"load\""),
        )
    };
    assert_eq!(run(), (1, 0, true, false));
    // A processor that no code is made for has nothing to store.
    let stored = Engine::builder().cache_at(folder.path()).open().unwrap();
    if stored.pipelines().disk().unwrap().usage().unwrap().entries > 0 {
        assert_eq!(run(), (0, 1, false, true));
    }
}

#[test]
fn a_wrong_guess_of_where_to_run_is_mended_after_a_few_launches() {
    let paced = |id, micros| Arc::new(Paced { id, micros, lies: false });
    let engine = only(vec![paced("slow", 60_000), paced("fast", 10)]).open().unwrap();
    let input = numbers(256);
    let (program, config) = (double(), DispatchConfig::default());
    let backend = || engine.kernel_with(&program, &config).unwrap().explain().backend;
    let mut went: Vec<String> = Vec::new();
    for _ in 0..12 {
        engine.run_with(&program, &[to_bytes(&input)], &config).unwrap();
        went.extend(backend());
    }
    assert_eq!(went[0], "slow", "nothing is known, and it is preferred");
    assert!(went.iter().filter(|id| *id == "slow").count() <= 2 && went[11] == "fast", "{went:?}");

    // The same on arrays.
    let engine = only(vec![paced("slow", 60_000), paced("fast", 10)]).open().unwrap();
    let prepared = engine.prepare(&program).unwrap();
    prepared.set("a", to_bytes(&input)).unwrap();
    for _ in 0..12 {
        prepared.run().unwrap();
    }
    let explanation = prepared.explain();
    assert_eq!(explanation.backend.as_deref(), Some("fast"), "{explanation}");
}

#[test]
fn a_device_that_the_caller_opened_is_open_for_the_router_too() {
    // A GPU by its name, which is not opened for work as small as this.
    let engine = only(vec![Arc::new(Sim::new("cuda", 1, 1 << 30)), Scripted::new("cpu", false)]).open().unwrap();
    let input = numbers(1 << 16);
    let (program, config) = (double(), DispatchConfig::default());
    let ran_on = || {
        engine.run_with(&program, &[to_bytes(&input)], &config).unwrap();
        engine.kernel_with(&program, &config).unwrap().explain().backend
    };
    assert_eq!(ran_on().as_deref(), Some("cpu"));
    engine.backend("cuda").unwrap();
    let went: Vec<_> = (0..3).filter_map(|_| ran_on()).collect();
    assert!(
        went.contains(&"cuda".to_owned()),
        "the interpreter took long, and a GPU is thought to be faster: {went:?}"
    );
}

/// Doubles so often, with a kernel that is found by its key.
fn doubled(engine: &Engine, input: &vyre::Array<u32>, times: usize) -> Result<vyre::Array<u32>, vyre::Error> {
    let mut now = input.clone();
    for _ in 0..times {
        let mut next = engine.zeros::<u32>(now.len())?;
        engine.kernel_from("double", || Ok(double()))?.bind("a", &now).bind("out", &mut next).launch()?;
        now = next;
    }
    Ok(now)
}

#[test]
fn work_as_a_whole_goes_where_all_of_its_launches_take_least() {
    let paced = |id, micros| Arc::new(Paced { id, micros, lies: false });
    // One launch of the first takes longer than all that the second needs for the same.
    let engine = only(vec![paced("slow", 40_000), paced("fast", 50)]).open().unwrap();
    let input = engine.array(&numbers(64)).unwrap();
    let mut places: Vec<String> = Vec::new();
    let is_settled =
        |places: &[String]| places.len() >= 12 && places[places.len() - 12..].iter().all(|place| place == "fast");
    // A busy machine makes either look slow for a while.
    while !is_settled(&places) {
        assert!(places.len() < 60, "{places:?}");
        let result = engine.as_a_whole("quadruple", 64, &[], || {
            let place = engine.place().expect("it has a place");
            places.push(place.to_string());
            match place.as_str() {
                "slow" => {
                    let mut out = engine.zeros::<u32>(64)?;
                    let kernel = engine.kernel_from("quadruple", || vyre::wgsl(&DOUBLE.replace("2u", "4u")))?;
                    kernel.bind("a", &input).bind("out", &mut out).launch().map(|_| out)
                }
                _ => doubled(&engine, &input, 2),
            }
        });
        let expected: Vec<u32> = (0..64).map(|x| 4 * x).collect();
        assert_eq!(result.unwrap().to_vec().unwrap(), expected);
        assert_eq!(engine.place(), None);
    }
}

#[test]
fn work_that_a_device_refuses_begins_anew_elsewhere() {
    let (broken, good) = (Scripted::new("broken", true), Scripted::new("good", false));
    let engine = only(vec![broken.clone(), good.clone()]).open().unwrap();
    let input = engine.array(&[1u32, 2, 3]).unwrap();
    let mut places = Vec::new();
    for _ in 0..3 {
        let result = engine.as_a_whole("quadruple", 3, &[], || {
            places.push(engine.place().unwrap().to_string());
            doubled(&engine, &input, 2)
        });
        assert_eq!(result.unwrap().to_vec().unwrap(), [4, 8, 12]);
    }
    assert_eq!(places, ["broken", "good", "good", "good"]);
    assert_eq!((broken.calls(), good.calls()), (1, 6));
    let notices = engine.take_notices();
    assert!(notices.iter().any(|notice| notice.message.contains("the device caught fire")), "{notices:?}");
}

#[test]
fn work_in_exact_arithmetic_is_not_placed_on_a_rough_device() {
    let (rough, exact) = (Scripted::new("rough", false), Scripted::new("exact", false));
    let engine = only(vec![Arc::new(Rough(rough.clone())), exact.clone()]).open().unwrap();
    let input = engine.array(&[1u32, 2, 3]).unwrap();
    for _ in 0..3 {
        let result = engine.as_a_whole("double", 3, &[], || doubled(&engine, &input, 1));
        assert_eq!(result.unwrap().to_vec().unwrap(), [2, 4, 6]);
    }
    assert_eq!((rough.calls(), exact.calls()), (0, 3));
}

#[test]
fn mistakes_in_work_as_a_whole_are_the_callers() {
    let engine = only(vec![Scripted::new("first", false), Scripted::new("second", false)]).open().unwrap();
    let mut runs = 0;
    let error = engine.as_a_whole("wrong", 1, &[], || {
        runs += 1;
        engine.kernel_from("double", || Ok(double()))?.call().launch().map(drop)
    });
    assert_eq!((error.unwrap_err().code(), runs), (vyre::codes::engine::NOT_SET.id, 1));
    assert_eq!(engine.place(), None, "also after an error");
}
