//! What an engine decides is in its tuner's file, is its owner's, and is used exactly where its owner says so.

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use support::Sim;
use vyre::metrics::Counter;
use vyre::routing::PgoTable;
use vyre::tuner::{Mode, Source, TunerCache};
use vyre::{DispatchConfig, Engine, EngineBuilder, Go, Program, from_bytes, to_bytes};

const DOUBLE: &str = "
    @group(0) @binding(0) var<storage, read> a: array<u32>;
    @group(0) @binding(1) var<storage, read_write> out: array<u32>;
    @compute @workgroup_size(64) fn double(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x < arrayLength(&a) { out[id.x] = a[id.x] * 2u; }
    }";

/// Each invocation looks at its neighbour's result, so that nothing is proven.
const UNPROVEN: &str = "
    @group(0) @binding(0) var<storage, read_write> a: array<u32>;
    @compute @workgroup_size(64) fn shift(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x < arrayLength(&a) { a[id.x] = a[(id.x + 1u) % arrayLength(&a)]; }
    }";

/// Neighbours along each axis load the same, so that one thread for several has less to load.
const PRODUCT: &str = "
    @group(0) @binding(0) var<storage, read> a: array<u32>;
    @group(0) @binding(1) var<storage, read_write> out: array<u32>;
    @compute @workgroup_size(8, 8) fn product(@builtin(global_invocation_id) id: vec3<u32>) {
        let rows = arrayLength(&a) / 16u;
        if id.x >= 16u || id.y >= rows { return; }
        var sum = 0u;
        for (var k = 0u; k < 16u; k++) { sum += a[id.y * 16u + k] * a[k * 16u + id.x]; }
        out[id.y * 16u + id.x] = sum;
    }";

fn program(text: &str) -> Program {
    vyre::wgsl(text).expect("the kernel is good")
}

fn numbers(count: u32) -> Vec<u32> {
    (0..count).collect()
}

fn builder(folder: &Path) -> EngineBuilder {
    let builder = Engine::builder().without_default_backends().cache_at(folder);
    builder.with_backend(Arc::new(Sim::new("simulated", 1, 1 << 30)), 1).tuner(Mode::NaturalGradient)
}

fn tune(engine: &Engine, text: &str, count: u32) -> vyre::tuner::Decision {
    let config = DispatchConfig::default();
    engine.tune("simulated", &program(text), &[to_bytes(&numbers(count))], &config, None).expect("it is tuned")
}

/// The workgroup size that a run of the program used.
fn used(engine: &Engine, text: &str, count: u32) -> [u32; 3] {
    let prepared = engine.prepare(&program(text)).expect("prepared");
    prepared.set("a", to_bytes(&numbers(count))).expect("set");
    prepared.run().expect("run");
    prepared.explain().workgroup_size.expect("it has run")
}

fn table(folder: &Path) -> PathBuf {
    let entries = std::fs::read_dir(folder.join("tuner")).expect("a folder").flatten().map(|entry| entry.path());
    entries.into_iter().find(|path| path.extension().is_some_and(|ending| ending == "toml")).expect("a table")
}

#[test]
fn a_plain_triple_is_what_the_engine_wrote_and_one_written_by_hand_is_honoured() {
    let folder = tempfile::tempdir().unwrap();
    let engine = builder(folder.path()).open().unwrap();
    assert_eq!(tune(&engine, DOUBLE, 1024).candidate.workgroup_size, [256, 1, 1]);
    engine.flush().unwrap();
    let path = table(folder.path());
    let mut cache = TunerCache::load(&path).unwrap();
    assert_eq!(cache.entries.values().copied().collect::<Vec<_>>(), [[256, 1, 1]]);
    let key = cache.entries.keys().next().unwrap().clone();
    assert!(key.starts_with("v1-") && key.len() == 67, "{key}");

    cache.set(key.clone(), [512, 1, 1]);
    cache.save(&path).unwrap();
    let engine = builder(folder.path()).open().unwrap();
    assert_eq!(used(&engine, DOUBLE, 1024), [512, 1, 1]);
    assert_eq!(engine.metrics().counter(Counter::TuningSamples), 0);
    assert!(engine.take_notices().is_empty());
    // The same number for the whole class of sizes, and the kernel's own for others.
    assert_eq!(used(&engine, DOUBLE, 1000), [512, 1, 1]);
    assert_eq!(used(&engine, DOUBLE, 5000), [64, 1, 1]);
}

#[test]
fn knobs_of_the_compiler_are_searched_kept_and_used_like_a_workgroup_size() {
    let folder = tempfile::tempdir().unwrap();
    let engine = builder(folder.path()).open().unwrap();
    let decision = tune(&engine, PRODUCT, 512);
    assert!(decision.candidate.knobs.merges() && decision.subject.proven, "{}", decision.candidate);
    assert!(decision.candidate.to_string().contains("in one"), "{}", decision.candidate);
    engine.flush().unwrap();
    let launch = |engine: &Engine| {
        let prepared = engine.prepare(&program(PRODUCT)).unwrap();
        prepared.set("a", to_bytes(&numbers(512))).unwrap();
        prepared.run().unwrap();
        (prepared.explain().launch, from_bytes::<u32>(&prepared.get("out").unwrap()).to_vec())
    };
    let engine = builder(folder.path()).open().unwrap();
    let (used, results) = launch(&engine);
    assert!(used.starts_with(&decision.candidate.to_string()), "{used}");
    assert_eq!(engine.metrics().counter(Counter::TuningSamples), 0, "nothing is measured again");
    let file = folder.path().join("vyre.lock");
    engine.decisions().freeze().unwrap().save(&file).unwrap();
    let locked = builder(folder.path()).decisions_from(&file).open().unwrap();
    assert!(launch(&locked).0.starts_with(&decision.candidate.to_string()));
    // Who names knobs gets them, where the compiler can do it.
    let mut config = DispatchConfig::default();
    config.knobs.merged = [1, 4, 1];
    let processor = Engine::builder().without_disk().open().unwrap();
    let inputs = numbers(512);
    for merged in [[1, 4, 1], [2, 2, 1], [8, 1, 1]] {
        config.knobs.merged = merged;
        let found = processor.run_with(&program(PRODUCT), &[to_bytes(&inputs)], &config).unwrap();
        assert_eq!(from_bytes::<u32>(&found[0]), results, "{merged:?}");
    }
    let refused = processor.run_with(&program(UNPROVEN), &[to_bytes(&inputs)], &config).unwrap_err();
    assert_eq!(refused.code(), "V0189", "{refused}");
}

#[test]
fn what_is_not_proven_is_kept_but_used_only_when_pinned() {
    let folder = tempfile::tempdir().unwrap();
    let engine = builder(folder.path()).open().unwrap();
    let decision = tune(&engine, UNPROVEN, 1024);
    assert_eq!((decision.candidate.workgroup_size, decision.subject.proven), ([256, 1, 1], false));
    assert_eq!(used(&engine, UNPROVEN, 1024), [64, 1, 1]);
    assert_eq!(engine.decisions().pin("shift", true).unwrap(), 1);
    drop(engine);
    let engine = builder(folder.path()).open().unwrap();
    assert_eq!(used(&engine, UNPROVEN, 1024), [256, 1, 1], "its owner has taken it on");
    assert_eq!(used(&engine, UNPROVEN, 1000), [64, 1, 1], "for exactly that size");
    assert_eq!(engine.decisions().pin("shift", false).unwrap(), 1);
    drop(engine);

    let path = table(folder.path());
    let mut cache = TunerCache::load(&path).unwrap();
    let key = cache.entries.keys().next().unwrap().clone();
    cache.set(key, [128, 1, 1]);
    cache.save(&path).unwrap();
    let engine = builder(folder.path()).open().unwrap();
    assert_eq!(used(&engine, UNPROVEN, 1024), [64, 1, 1], "a size by hand is no proof");
    let notices = engine.take_notices();
    assert!(notices.iter().any(|notice| notice.code.id == "V1008"), "{notices:?}");
}

/// An engine that learns on a simulated device, and a kernel that it runs.
struct Learner {
    device: Arc<Sim>,
    engine: Engine,
    prepared: vyre::Prepared,
}

impl Learner {
    fn new(folder: &Path) -> Learner {
        let device = Arc::new(Sim::new("simulated", 1, 1 << 30));
        let engine = Engine::builder().without_default_backends().cache_at(folder).tuner(Mode::NaturalGradient);
        let engine = engine.with_backend(device.clone(), 1).open().unwrap();
        let prepared = engine.prepare(&program(DOUBLE)).unwrap();
        prepared.set("a", to_bytes(&numbers(128))).unwrap();
        Learner { device, engine, prepared }
    }

    fn run(&self, times: u32) {
        for _ in 0..times {
            self.prepared.run().unwrap();
        }
    }

    fn used(&self) -> [u32; 3] {
        self.prepared.explain().workgroup_size.unwrap()
    }

    fn told(&self) -> Vec<String> {
        let notices = self.engine.take_notices().into_iter();
        notices.filter(|notice| notice.code.id == "V1016").map(|notice| notice.message).collect()
    }

    /// What is tried is compiled beside the runs, however long that takes.
    fn run_until(&self, wanted: [u32; 3]) {
        let begin = Instant::now();
        self.run(50);
        while self.used() != wanted && begin.elapsed() < Duration::from_secs(60) {
            self.run(50);
        }
        assert_eq!(self.used(), wanted, "{}", self.prepared.explain());
    }
}

#[test]
fn a_launch_that_has_lastingly_become_slow_is_learnt_anew_and_that_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let learner = Learner::new(folder.path());
    learner.run_until([256, 1, 1]);
    learner.run(1_300);
    assert!(learner.told().is_empty(), "nothing has changed");
    learner.device.is_hot.store(true, Ordering::Relaxed);
    learner.run_until([128, 1, 1]);
    let [told] = &learner.told()[..] else { panic!("told once") };
    assert!(told.contains("longer") && told.contains("128 instead of 256"), "{told}");
    learner.run(1_300);
    assert!(learner.told().is_empty() && learner.used() == [128, 1, 1], "it does not go to and fro");
    learner.engine.flush().unwrap();
    let [decided] = &learner.engine.decisions().find("double").unwrap()[..] else { panic!("one") };
    assert_eq!(decided.decision.candidate.workgroup_size, [128, 1, 1]);
    // What was decided before is not forgotten.
    assert_eq!(decided.decision.rivals[0].candidate.workgroup_size, [256, 1, 1]);
}

/// What is learnt while others use the device holds as long as they do, in this process and in others.
#[test]
fn when_a_device_is_free_again_so_is_the_launch_that_was_learnt_before() {
    let folder = tempfile::tempdir().unwrap();
    let disturb = |learner: &Learner, is_disturbed: bool| {
        learner.device.is_hot.store(is_disturbed, Ordering::Relaxed);
        learner.device.is_busy.store(is_disturbed, Ordering::Relaxed);
    };
    let learner = Learner::new(folder.path());
    learner.run_until([256, 1, 1]);
    disturb(&learner, true);
    learner.run_until([128, 1, 1]);
    assert!(learner.told()[0].contains("longer"));
    disturb(&learner, false);
    learner.run_until([256, 1, 1]);
    let [told] = &learner.told()[..] else { panic!("told once") };
    assert!(told.contains("less time") && told.contains("256 instead of 128"), "{told}");
    let decided = learner.engine.metrics().counter(Counter::TuningDecisions);
    learner.run(5_000);
    assert_eq!((learner.used(), learner.told().len()), ([256, 1, 1], 0), "it does not go to and fro");
    assert_eq!(learner.engine.metrics().counter(Counter::TuningDecisions), decided);

    disturb(&learner, true);
    learner.run_until([128, 1, 1]);
    drop(learner);
    let learner = Learner::new(folder.path());
    learner.run(1);
    assert_eq!(learner.used(), [128, 1, 1], "as it was left");
    learner.run_until([256, 1, 1]);
    assert!(learner.told()[0].contains("256 instead of 128"));
}

/// Both devices say that the work takes the same, but on one of them who waits is told late.
#[test]
fn what_who_waits_sees_is_routed_by() {
    let (late, prompt) = (Sim::new("late", 1, 1 << 30), Sim::new("prompt", 1, 1 << 30));
    late.tells_after.store(40_000, Ordering::Relaxed);
    let (late, prompt) = (Arc::new(late), Arc::new(prompt));
    let engine = Engine::builder().without_default_backends().without_disk().tuner(Mode::OffUseDefault);
    let engine = engine.with_backend(late.clone(), 2).with_backend(prompt.clone(), 1).open().unwrap();
    let prepared = engine.prepare(&program(DOUBLE)).unwrap();
    prepared.set("a", to_bytes(&numbers(128))).unwrap();
    prepared.run().unwrap();
    assert_eq!(prepared.explain().backend.as_deref(), Some("late"), "the preferred one comes first");
    // A busy machine makes either look late for a while.
    let begin = Instant::now();
    while prepared.explain().backend.as_deref() != Some("prompt") {
        assert!(begin.elapsed() < Duration::from_secs(60), "{}", prepared.explain());
        for _ in 0..200 {
            prepared.run().unwrap();
        }
    }
}

#[test]
fn a_device_that_swings_between_two_speeds_is_tuned_like_a_steady_one() {
    let device = Arc::new(Sim::new("simulated", 1, 1 << 30));
    device.swings.store(true, Ordering::Relaxed);
    let engine = Engine::builder().without_default_backends().without_disk().tuner(Mode::NaturalGradient);
    let engine = engine.with_backend(device, 1).open().unwrap();
    let decision = tune(&engine, DOUBLE, 128);
    assert_eq!(decision.candidate.workgroup_size, [256, 1, 1]);
    let gain = Sim::cost(256) as f64 / Sim::cost(decision.subject.own[0]) as f64 - 1.0;
    let [low, high] = decision.evidence.interval;
    assert!(low - 0.01 <= gain && gain <= high + 0.01 && high - low < 0.2, "{gain} in {low} to {high}");
}

#[test]
fn what_no_launch_would_change_is_refused_once() {
    let small = Arc::new(Sim::new("small", 1, 1 << 30).with_workgroup_memory(16));
    let large = Arc::new(Sim::new("large", 1, 1 << 30));
    let engine = Engine::builder().without_default_backends().without_disk().tuner(Mode::OffUseDefault);
    let engine = engine.with_backend(small.clone(), 2).with_backend(large.clone(), 1).open().unwrap();
    let reversed = program(
        "@group(0) @binding(0) var<storage, read> a: array<u32>;
         @group(0) @binding(1) var<storage, read_write> out: array<u32>;
         var<workgroup> all: array<u32, 64>;
         @compute @workgroup_size(64) fn reversed(@builtin(local_invocation_index) i: u32) {
             all[i] = a[i];
             workgroupBarrier();
             out[i] = all[63u - i];
         }",
    );
    for _ in 0..5 {
        let results = engine.run(&reversed, &[to_bytes(&numbers(64))]).unwrap();
        assert_eq!(results[0], to_bytes(&(0..64).rev().collect::<Vec<u32>>()));
    }
    assert_eq!((small.compiles.load(Ordering::Relaxed), large.ran().0), (1, 5));
}

/// Runs for so long on a device whose times are up to ten percent more or less than they are, after its launch was learnt: the launches
/// and what was told meanwhile.
fn under_noise(time: Duration) -> (u64, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let device = Arc::new(Sim::new("simulated", 1, 1 << 30));
    device.noise.store(10, Ordering::Relaxed);
    let engine = Engine::builder().without_default_backends().cache_at(folder.path()).tuner(Mode::NaturalGradient);
    let engine = engine.with_backend(device.clone(), 1).open().unwrap();
    let prepared = engine.prepare(&program(DOUBLE)).unwrap();
    prepared.set("a", to_bytes(&numbers(128))).unwrap();
    let decisions = || engine.metrics().counter(Counter::TuningDecisions);
    let begin = Instant::now();
    while decisions() == 0 {
        prepared.run().unwrap();
        assert!(begin.elapsed() < Duration::from_secs(60), "nothing was decided");
    }
    prepared.run().unwrap();
    let used = || prepared.explain().workgroup_size.unwrap();
    let (learnt, begin, mut runs) = (used(), Instant::now(), 0);
    while begin.elapsed() < time {
        for _ in 0..100 {
            prepared.run().unwrap();
        }
        runs += 100;
        assert_eq!(used(), learnt, "after {runs} runs");
    }
    assert_eq!(decisions(), 1, "nothing was measured again");
    (runs, engine.take_notices().into_iter().map(|notice| notice.message).collect())
}

#[test]
fn noise_of_ten_percent_changes_nothing() {
    let (runs, told) = under_noise(Duration::from_secs(2));
    println!("{runs} runs");
    assert!(told.is_empty(), "{told:?}");
}

#[test]
#[ignore = "ten minutes"]
fn ten_minutes_of_noise_change_nothing() {
    let (runs, told) = under_noise(Duration::from_secs(600));
    println!("{runs} runs in ten minutes");
    assert!(told.is_empty(), "{told:?}");
}

/// A caller who launches hundreds before waiting for any learns as well as one who waits for each, and is told of no candidate's failure.
#[test]
fn hundreds_of_launches_in_flight_are_learnt_from_a_few_at_a_time() {
    const LAUNCHES: u32 = 300;
    let sim = Arc::new(Sim::new("simulated", 4, 1 << 30).refusing(512));
    let engine = Engine::builder().without_default_backends().without_disk().tuner(Mode::NaturalGradient);
    let engine = engine.with_backend(sim.clone(), 1).open().unwrap();
    let double = engine.kernel(&program(DOUBLE)).unwrap();
    let (count, decided) = (512, || engine.metrics().counter(Counter::TuningDecisions));
    let a = engine.array(&numbers(count)).unwrap();
    let mut results: Vec<_> = (0..8).map(|_| engine.zeros::<u32>(count as usize).unwrap()).collect();
    let mut rounds = 0;
    while decided() == 0 {
        sim.hold(true);
        for launch in 0..LAUNCHES as usize {
            double.bind("a", &a).bind("out", &mut results[launch % 8]).launch().unwrap();
        }
        // Once it is decided, one launch in so many is timed, however many are under way.
        let is_learning = decided() == 0;
        let most = sim.most_timed_under_way();
        assert!(!is_learning || (1..=2).contains(&most), "{most} of one kind");
        sim.hold(false);
        engine.synchronize();
        rounds += 1;
        assert!(rounds < 200, "nothing was decided");
    }
    println!("decided after {rounds} rounds of {LAUNCHES} launches");
    for out in &mut results {
        double.bind("a", &a).bind("out", &mut *out).launch().unwrap();
        assert!(out.to_vec().unwrap().iter().zip(0u32..).all(|(&x, at)| x == 2 * at));
    }
    assert_eq!(sim.ran().1, 256, "the fastest");
    assert_eq!(engine.metrics().counter(Counter::Errors), 0);
    assert!(engine.take_notices().is_empty());
    assert_eq!(sim.refusals.load(Ordering::Relaxed), 1, "what has failed once is not tried again");
}

#[test]
fn decisions_can_be_listed_found_and_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let engine = builder(folder.path()).open().unwrap();
    assert!(engine.decisions().launches().unwrap().is_empty());
    assert_eq!(engine.decisions().find("double").unwrap_err().code(), "V1014");
    tune(&engine, DOUBLE, 1024);
    let [decided] = &engine.decisions().launches().unwrap()[..] else { panic!("one") };
    assert_eq!(decided.decision.subject.program, "double");
    assert_eq!(decided.decision.evidence.source, Source::Tuned);
    assert!(decided.decision.evidence.timings.len() >= 5, "{:?}", decided.decision.evidence.timings);
    assert_eq!(engine.decisions().find(&decided.key[3..12]).unwrap().len(), 1);
    assert_eq!(engine.decisions().on("simulated").unwrap().len(), 1);
    assert_eq!(engine.decisions().forget("double").unwrap(), 1);
    drop(engine);
    assert!(TunerCache::load(table(folder.path())).unwrap().entries.is_empty());
}

#[test]
fn a_lock_file_is_used_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let lock = folder.path().join("vyre.lock");
    let engine = builder(folder.path()).open().unwrap();
    tune(&engine, DOUBLE, 1024);
    engine.decisions().freeze().unwrap().save(&lock).unwrap();
    drop(engine);
    std::fs::remove_dir_all(folder.path().join("tuner")).unwrap();

    let engine = builder(folder.path()).decisions_from(&lock).open().unwrap();
    assert_eq!(used(&engine, DOUBLE, 1024), [256, 1, 1]);
    assert!(engine.take_notices().iter().all(|notice| !notice.message.contains("no launch")));
    for _ in 0..100 {
        assert_eq!(used(&engine, DOUBLE, 100_000), [64, 1, 1]);
    }
    assert_eq!(engine.metrics().counter(Counter::TuningSamples), 0, "nothing is measured");
    let notices = engine.take_notices();
    let missing = notices.iter().filter(|notice| notice.code.id == "V1012" && notice.message.contains("double"));
    assert!(missing.count() >= 1, "what is missing is told, and once: {notices:?}");
    let config = DispatchConfig::default();
    let refused = engine.tune("simulated", &program(DOUBLE), &[to_bytes(&numbers(64))], &config, None).unwrap_err();
    assert_eq!(refused.code(), "V1013");
    assert_eq!(engine.decisions().pin("double", true).unwrap_err().code(), "V1013");
    engine.flush().unwrap();
    assert!(!folder.path().join("tuner").exists(), "nothing changes");

    std::fs::write(&lock, "schema = 1\n[launches.x]\nkey = 3\n").unwrap();
    let refused = builder(folder.path()).decisions_from(&lock).open().err().expect("it is no lock file");
    assert!(refused.code() == "V1011" && refused.to_string().contains("Fix:"), "{refused}");
    assert_eq!(builder(folder.path()).decisions_from("/nowhere").open().err().unwrap().code(), "V1011");
}

#[test]
fn an_interrupted_campaign_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let engine = builder(folder.path()).open().unwrap();
    let input = numbers(1024);
    let tune = |watch: &mut dyn FnMut(vyre::TuneSample<'_>) -> Go| {
        let config = DispatchConfig::default();
        engine.tune_watched("simulated", &program(DOUBLE), &[to_bytes(&input)], &config, None, None, watch)
    };
    let stopped = tune(&mut |sample| if sample.taken < 20 { Go::On } else { Go::Stop }).unwrap_err();
    assert!(stopped.to_string().contains("20 timings are kept"), "{stopped}");
    let before = engine.metrics().counter(Counter::TuningSamples);
    assert_eq!(before, 20);
    let decision = tune(&mut |_| Go::On).unwrap();
    assert_eq!(decision.candidate.workgroup_size, [256, 1, 1]);
    let taken = engine.metrics().counter(Counter::TuningSamples) - before;
    assert_eq!(taken as usize, decision.evidence.samples - 20, "what was measured is not measured again");
}

#[test]
fn the_fastest_of_all_launches_is_timed_again() {
    let folder = tempfile::tempdir().unwrap();
    let engine = builder(folder.path()).open().unwrap();
    let (input, config) = (numbers(1024), DispatchConfig::default());
    let asked_about = vyre::tuner::Candidate::of_shape([128, 1, 1]);
    let inputs = [to_bytes(&input)];
    let timed = engine.time_launches("simulated", &program(DOUBLE), &inputs, &config, None, &asked_about, 6).unwrap();
    assert_eq!(timed.fastest.workgroup_size, [256, 1, 1]);
    assert!(timed.all.len() > 3 && timed.all.iter().all(|(_, times)| (2..=6).contains(&times.len())));
    let [own, asked, fastest] = &timed.again;
    assert!(own.len() == asked.len() && asked.len() == fastest.len() && own.len() >= 24);
    let slower = vyre::tuner::relative(asked, fastest);
    assert!(slower.interval[0] > 0.0, "{slower:?}");
}

#[test]
fn what_was_certified_is_in_the_pgo_table_and_answers_where_nothing_else_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let builder = builder(folder.path());
        builder.with_backend(Arc::new(Sim::new("other", 1, 1 << 30)), 2).open().unwrap()
    };
    let engine = open();
    let input = numbers(256);
    engine.certify(&program(DOUBLE), &[to_bytes(&input)], &DispatchConfig::default(), 3, &mut || {}).unwrap();
    engine.flush().unwrap();
    drop(engine);
    let path = folder.path().join("pgo.toml");
    let mut table = PgoTable::load(&path).unwrap();
    let (op, decision) = table.routes.iter().next().map(|(op, decision)| (op.clone(), decision.clone())).unwrap();
    assert_eq!(decision.observations.len(), 2, "{decision:?}");
    assert_eq!(table.fastest_backend(&op), Some(decision.backend.as_str()));
    // Without what the router has learnt about sizes, the table answers, whatever it says.
    for wanted in ["simulated", "other"] {
        std::fs::remove_file(folder.path().join("routes.toml")).ok();
        table.routes.get_mut(&op).unwrap().backend = wanted.to_owned();
        table.save(&path).unwrap();
        let engine = open();
        let prepared = engine.prepare(&program(DOUBLE)).unwrap();
        prepared.set("a", to_bytes(&input)).unwrap();
        prepared.run().unwrap();
        assert_eq!(prepared.explain().backend.as_deref(), Some(wanted));
        assert_eq!(from_bytes::<u32>(&prepared.get("out").unwrap())[3], 6);
    }
}
