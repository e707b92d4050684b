//! The tuner's part of the contract, sentence by sentence.

#[path = "decide_support/process.rs"]
mod process;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use process::{all_succeed, child, role};
use proptest::prelude::*;
use vyre_driver::tuner::{
    BackendTimer, DefaultPolicy, Mode, NaturalGradientPolicy, NaturalGradientTuningError, Q16_ONE, StaticProgramShape,
    Tuner, TunerCache, TunerFeedback, TunerProgramKey, TuningMeasurement, WORKGROUP_CANDIDATES, identity_fisher_q16,
    identity_fisher_q16_into,
};
use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};

fn program(value: u32) -> Program {
    Program::wrapped(
        vec![BufferDecl::output("out", 0, DataType::U32).with_count(4)],
        [64, 1, 1],
        vec![Node::store("out", Expr::global_id(0), Expr::u32(value))],
    )
}

#[test]
fn candidates_and_modes_are_the_named_ones() {
    assert_eq!(WORKGROUP_CANDIDATES, [32, 64, 128, 256, 512, 1024]);
    assert_eq!(Mode::production_default(), Mode::NaturalGradient);
    let words = [
        ("on", Mode::On),
        ("natural", Mode::NaturalGradient),
        ("ng", Mode::NaturalGradient),
        ("off", Mode::OffUseDefault),
        ("default", Mode::OffUseDefault),
    ];
    for (word, mode) in words {
        assert_eq!(Mode::from_word(Some(word)), (mode, None));
    }
    assert_eq!(Mode::from_word(None), (Mode::NaturalGradient, None));
    let (mode, warning) = Mode::from_word(Some("fast"));
    let warning = warning.unwrap();
    assert_eq!(mode, Mode::NaturalGradient);
    assert_eq!(warning.severity, vyre_spec::Severity::Warning);
    for (word, _) in words {
        assert!(warning.fix.contains(&format!("`{word}`")), "{}", warning.fix);
    }
}

#[test]
fn the_mode_is_read_from_the_environment() {
    if let Some(role) = role() {
        assert_eq!(format!("{:?}", Mode::from_env()), role[0]);
        assert_eq!(Mode::from_env_checked().1.is_some(), role[1] == "warns");
        return;
    }
    let name = "the_mode_is_read_from_the_environment";
    let cases = [
        (Some("on"), "On", ""),
        (Some("ng"), "NaturalGradient", ""),
        (Some("off"), "OffUseDefault", ""),
        (None, "NaturalGradient", ""),
        (Some("ON"), "NaturalGradient", "warns"),
        (Some(""), "NaturalGradient", "warns"),
    ];
    let start = |(word, mode, warns): (Option<&str>, &str, &str)| {
        let mut command = child(name, &[mode, warns]);
        match word {
            Some(word) => command.env("VYRE_AUTOTUNER", word),
            None => command.env_remove("VYRE_AUTOTUNER"),
        };
        command.spawn().unwrap()
    };
    all_succeed(cases.into_iter().map(start).collect());
}

#[test]
fn keys_tell_programs_and_shapes_apart() {
    let shape = StaticProgramShape::new(&program(1), None, 16);
    assert_eq!(shape.workgroup_size, [64, 1, 1]);
    let key = TunerProgramKey::from_program(&program(1), &shape);
    assert_eq!(key, TunerProgramKey::from_program(&program(1), &shape));
    let digits = key.as_str().strip_prefix("v1-").unwrap();
    assert!(digits.len() == 64 && digits.bytes().all(|b| b.is_ascii_hexdigit()));
    assert_eq!(AsRef::<str>::as_ref(&key), key.as_str());
    let shapes = [
        shape.clone(),
        StaticProgramShape { workgroup_size: [1, 64, 1], ..shape.clone() },
        StaticProgramShape { workgroup_count: Some([0, 0, 0]), ..shape.clone() },
        StaticProgramShape { workgroup_count: Some([1, 0, 0]), ..shape.clone() },
        StaticProgramShape { output_bytes: 17, ..shape.clone() },
        StaticProgramShape { input_bytes: vec![0], ..shape.clone() },
        StaticProgramShape { input_bytes: vec![1 << 20, 1 << 16], ..shape.clone() },
        StaticProgramShape { input_bytes: vec![1 << 16, 1 << 20], ..shape },
    ];
    let keys: BTreeSet<_> = shapes
        .iter()
        .flat_map(|shape| [program(1), program(2)].map(|program| TunerProgramKey::from_program(&program, shape)))
        .collect();
    assert_eq!(keys.len(), 16);
}

#[test]
fn a_saved_cache_is_toml_with_one_line_per_entry() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/er/cache.toml");
    assert_eq!(TunerCache::load(&path).unwrap(), TunerCache::default());
    let mut cache = TunerCache::default();
    cache.set("plain", [64, 1, 1]);
    cache.set("quote \" and \\ and\nnew line\u{7f}\u{2028}é = [1,2,3]", [1, 2, u32::MAX]);
    cache.set("", [1, 1, 1]);
    cache.set("dotted.key", [8, 8, 8]);
    let shape = StaticProgramShape::new(&program(1), None, 16);
    let key = TunerProgramKey::from_program(&program(1), shape);
    cache.set_key(&key, [128, 1, 1]);
    cache.save(&path).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), cache.entries.len());
    assert_eq!(text.parse::<toml::Table>().unwrap().len(), cache.entries.len());
    let loaded = TunerCache::load(path.as_path()).unwrap();
    assert_eq!(loaded, cache);
    assert_eq!(loaded.get("plain"), Some([64, 1, 1]));
    assert_eq!(loaded.get_key(&key), Some([128, 1, 1]));
    assert_eq!(loaded.get("other"), None);
}

#[test]
fn a_bad_file_is_an_error_and_never_an_empty_cache() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache.toml");
    let refused = |what: &str| {
        let error = TunerCache::load(&path).unwrap_err();
        assert!(error.contains("cache.toml") && error.contains("Fix:"), "{error}");
        assert!(error.contains(what), "{error} does not say {what}");
        // Saving must not replace what it can't understand.
        let before = fs::read(&path).ok();
        let mut cache = TunerCache::default();
        cache.set("new", [1, 1, 1]);
        assert!(cache.save(&path).is_err());
        assert_eq!(fs::read(&path).ok(), before);
    };
    fs::write(&path, "this is not toml").unwrap();
    refused("line 1");
    fs::write(&path, [0xff, 0xfe, 0]).unwrap();
    refused("UTF-8");
    fs::write(&path, "\"a\" = [1, 1, 1]\n\"a\" = [2, 1, 1]\n").unwrap();
    refused("line 2");
    for bad in
        ["[0, 1, 1]", "[1, 1]", "[1, 1, 1, 1]", "[-1, 1, 1]", "[4294967296, 1, 1]", "\"x\"", "[1.0, 1, 1]", "{}", "[]"]
    {
        fs::write(&path, format!("good = [1, 1, 1]\n\"wrong one\" = {bad}\n")).unwrap();
        refused("\"wrong one\"");
    }
    fs::write(&path, "[section]\nx = [1, 1, 1]\n").unwrap();
    refused("\"section\"");
    fs::write(&path, format!("{}\n", "[".repeat(100_000))).unwrap();
    refused("TOML");
    fs::write(&path, format!("\"k\" = [1, 1, 1] #{}", " ".repeat(4 << 20))).unwrap();
    refused("4194304");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    refused("plain file");
}

#[test]
fn a_cache_that_would_be_unreadable_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache.toml");
    let mut cache = TunerCache::default();
    cache.set("zero", [64, 0, 1]);
    assert!(cache.save(&path).unwrap_err().contains("\"zero\""));
    let mut cache = TunerCache::default();
    cache.set("x".repeat(5 << 20), [64, 1, 1]);
    assert!(cache.save(&path).unwrap_err().contains("4194304"));
    assert!(!path.exists());
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let mut cache = TunerCache::default();
    cache.set("k", [64, 1, 1]);
    assert!(cache.save(file.join("below.toml")).unwrap_err().contains("Fix:"));
}

#[test]
fn saves_merge_with_what_others_saved() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache.toml");
    let mut mine = TunerCache::load(&path).unwrap();
    let mut theirs = TunerCache::load(&path).unwrap();
    mine.set("mine", [1, 1, 1]);
    theirs.set("theirs", [2, 2, 2]);
    theirs.set("both", [3, 3, 3]);
    mine.set("both", [4, 4, 4]);
    theirs.save(&path).unwrap();
    mine.save(&path).unwrap();
    let merged = TunerCache::load(&path).unwrap();
    assert_eq!(merged.get("mine"), Some([1, 1, 1]));
    assert_eq!(merged.get("theirs"), Some([2, 2, 2]));
    assert_eq!(merged.get("both"), Some([4, 4, 4]), "the later save wins");
    assert!(!fs::read_dir(folder.path()).unwrap().any(|e| e.unwrap().file_name().to_string_lossy().ends_with("tmp")));
}

#[cfg(unix)]
#[test]
fn names_of_one_file_share_its_decisions() {
    let folder = tempfile::tempdir().unwrap();
    let (path, link) = (folder.path().join("cache.toml"), folder.path().join("link.toml"));
    let mut cache = TunerCache::default();
    cache.set("a", [1, 1, 1]);
    cache.save(&path).unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let mut cache = TunerCache::default();
    cache.set("b", [1, 1, 1]);
    cache.save(&link).unwrap();
    assert!(link.is_symlink());
    assert_eq!(TunerCache::load(&path).unwrap().entries.len(), 2);
}

fn measurements(times: &[u64]) -> Vec<TuningMeasurement> {
    let sizes = 1u32..;
    times
        .iter()
        .zip(sizes)
        .map(|(&elapsed_ns, x)| TuningMeasurement { workgroup_size: [x, 1, 1], elapsed_ns })
        .collect()
}

#[test]
fn the_policy_refuses_what_it_cannot_weigh() {
    let policy = NaturalGradientPolicy::default();
    assert_eq!(policy.temperature_ns, 10_000);
    assert_eq!(policy.suggest(&[], &[]), Err(NaturalGradientTuningError::EmptyMeasurements));
    let two = measurements(&[5, 6]);
    let shape = NaturalGradientTuningError::FisherMatrixShape { measurements: 2, cells: 3 };
    assert_eq!(policy.suggest(&two, &[0; 3]), Err(shape));
    let cold = NaturalGradientPolicy { temperature_ns: 0 };
    assert_eq!(cold.suggest(&two, &identity_fisher_q16(2)), Err(NaturalGradientTuningError::ZeroTemperature));
}

#[test]
fn the_policy_selects_the_largest_result_and_the_earliest_on_a_tie() {
    let policy = NaturalGradientPolicy { temperature_ns: 4_000 };
    let samples = measurements(&[12_000, 8_000, 10_000]);
    let step = policy.suggest(&samples, &identity_fisher_q16(3)).unwrap();
    assert_eq!(step.selected_workgroup_size, [2, 1, 1]);
    assert_eq!((step.best_measured_workgroup_size, step.best_measured_elapsed_ns), ([2, 1, 1], 8_000));
    assert_eq!(step.natural_gradient_q16, step.policy_weights_q16, "the identity changes nothing");
    // exp(-1), 1 and exp(-1/2), divided by their sum.
    for (weight, exact) in step.policy_weights_q16.iter().zip([12210.9, 33192.7, 20132.4]) {
        assert!((f64::from(*weight) - exact).abs() < 1.1, "{weight} is not {exact}");
    }
    let mut matrix = identity_fisher_q16(3);
    matrix[0] = 8 * Q16_ONE;
    let step = policy.suggest(&samples, &matrix).unwrap();
    assert_eq!(step.selected_workgroup_size, [1, 1, 1], "the matrix steers");
    assert_eq!(step.best_measured_workgroup_size, [2, 1, 1], "but changes no measurement");
    // Rows are outputs: this moves the second weight to the third candidate.
    let step = policy.suggest(&samples, &[0, 0, 0, 0, 0, 0, 0, Q16_ONE, 0]).unwrap();
    assert_eq!(step.selected_workgroup_size, [3, 1, 1]);
    for times in [&[7, 7, 7][..], &[u64::MAX; 5], &[0; 64]] {
        let samples = measurements(times);
        let step = policy.suggest(&samples, &identity_fisher_q16(samples.len())).unwrap();
        assert_eq!(step.selected_workgroup_size, [1, 1, 1]);
        assert_eq!(step.best_measured_workgroup_size, [1, 1, 1]);
        let zeros = vec![0; samples.len() * samples.len()];
        assert_eq!(policy.suggest(&samples, &zeros).unwrap().selected_workgroup_size, [1, 1, 1]);
        let full = vec![u32::MAX; samples.len() * samples.len()];
        let step = policy.suggest(&samples, &full).unwrap();
        assert!(step.natural_gradient_q16.iter().all(|&cell| cell == u32::MAX));
    }
    let mut into = vec![9; 100];
    identity_fisher_q16_into(2, &mut into);
    assert_eq!(into, [Q16_ONE, 0, 0, Q16_ONE]);
    assert!(identity_fisher_q16(0).is_empty());
}

proptest! {
    #[test]
    fn weights_always_sum_to_one(
        times in prop::collection::vec(
            prop_oneof![any::<u64>(), 0u64..50_000, Just(0), Just(u64::MAX), Just(u64::MAX - 1)], 1..200),
        temperature_ns in prop_oneof![1u64..100_000, Just(1), Just(u64::MAX)],
    ) {
        let samples = measurements(&times);
        let step = NaturalGradientPolicy { temperature_ns }.suggest(&samples, &identity_fisher_q16(samples.len())).unwrap();
        prop_assert_eq!(step.policy_weights_q16.iter().map(|&w| u64::from(w)).sum::<u64>(), u64::from(Q16_ONE));
        let best = *times.iter().min().unwrap();
        let exact: Vec<f64> = times.iter().map(|&t| (-((t - best) as f64) / temperature_ns as f64).exp()).collect();
        let sum: f64 = exact.iter().sum();
        for (weight, exact) in step.policy_weights_q16.iter().zip(exact) {
            prop_assert!((f64::from(*weight) - exact / sum * 65536.0).abs() <= 1.000001);
        }
        for (a, b) in times.iter().zip(&step.policy_weights_q16) {
            for (c, d) in times.iter().zip(&step.policy_weights_q16) {
                prop_assert!(a >= c || b >= d, "a faster candidate weighs no less");
            }
        }
    }
}

#[test]
fn weights_sum_to_one_for_more_candidates_than_units() {
    let samples = measurements(&vec![3; 400]);
    let hot = NaturalGradientPolicy { temperature_ns: u64::MAX };
    let step = hot.suggest(&samples, &identity_fisher_q16(400)).unwrap();
    assert_eq!(step.policy_weights_q16.iter().sum::<u32>(), Q16_ONE);
}

struct Times(Vec<[u32; 3]>, Option<u32>);

impl BackendTimer for Times {
    type Error = String;

    fn measure_candidate_ns(&mut self, _: &Program, size: [u32; 3]) -> Result<u64, String> {
        self.0.push(size);
        if self.1 == Some(size[0]) {
            return Err(format!("{} broke", size[0]));
        }
        Ok(u64::from(size[0].abs_diff(200)))
    }
}

fn in_private_home(name: &str, test: impl FnOnce(&Path)) {
    match role() {
        Some(role) => test(Path::new(&role[0])),
        None => {
            let home = tempfile::tempdir().unwrap();
            let mut command = child(name, &[home.path().to_str().unwrap()]);
            command.env("XDG_CACHE_HOME", home.path().join("cache")).env("XDG_CONFIG_HOME", home.path().join("config"));
            all_succeed(vec![command.spawn().unwrap()]);
        }
    }
}

#[test]
fn a_sweep_returns_the_fastest_and_stops_at_the_first_error() {
    in_private_home("a_sweep_returns_the_fastest_and_stops_at_the_first_error", |_| {
        let tuner = Tuner::new("sweeps", Mode::On);
        let sizes = WORKGROUP_CANDIDATES.iter().map(|&x| [x, 1, 1]);
        let mut timer = Times(Vec::new(), None);
        let best = tuner.best_of(&program(1), sizes.clone(), &mut timer).unwrap().unwrap();
        assert_eq!((best.workgroup_size, best.elapsed_ns), ([256, 1, 1], 56));
        assert_eq!(timer.0.len(), 6);
        let tied = tuner.best_of(&program(1), [[190, 1, 1], [210, 1, 1]], &mut timer).unwrap().unwrap();
        assert_eq!(tied.workgroup_size, [190, 1, 1]);
        assert_eq!(tuner.best_of(&program(1), [], &mut timer), Ok(None));

        let mut broken = Times(Vec::new(), Some(128));
        assert_eq!(tuner.best_of(&program(1), sizes.clone(), &mut broken), Err("128 broke".to_owned()));
        assert_eq!(broken.0.len(), 3, "the sweep stops");
        let policy = NaturalGradientPolicy::default();
        let fisher = identity_fisher_q16(6);
        let step =
            tuner.best_of_natural_gradient(&program(1), sizes.clone(), &mut timer, &fisher, policy).unwrap().unwrap();
        assert_eq!(step.selected_workgroup_size, [256, 1, 1]);
        let refused = tuner.best_of_natural_gradient(&program(1), sizes.clone(), &mut timer, &[], policy).unwrap();
        assert_eq!(refused, Err(NaturalGradientTuningError::FisherMatrixShape { measurements: 6, cells: 0 }));
        assert!(tuner.best_of_natural_gradient(&program(1), sizes, &mut broken, &fisher, policy).is_err());
        let samples = measurements(&[9, 3]);
        let step = tuner.natural_gradient_step(&samples, &identity_fisher_q16(2), policy).unwrap();
        assert_eq!(step.best_measured_workgroup_size, [2, 1, 1]);

        tuner.persist().unwrap();
        assert!(TunerCache::load(tuner.path()).unwrap().entries.is_empty(), "sweeps record nothing");
    });
}

#[test]
fn decisions_outlive_the_tuner() {
    in_private_home("decisions_outlive_the_tuner", |home| {
        let path = Tuner::cache_path_for_adapter("adapter-1.2");
        assert_eq!(path, home.join("cache/vyre/tuner/adapter-1.2.toml"));
        let key = TunerProgramKey::from_program(&program(1), StaticProgramShape::new(&program(1), None, 16));
        let mut tuner = Tuner::new("adapter-1.2", Mode::On);
        assert_eq!(tuner.mode(), Mode::On);
        assert_eq!(tuner.resolve("p"), [64, 1, 1]);
        assert_eq!(Tuner::default_workgroup_size(), vyre_driver::pipeline::DEFAULT_1D_WORKGROUP_SIZE);
        assert_eq!(tuner.candidates_for(256), [32, 64, 128, 256]);
        assert!(tuner.candidates_for(31).is_empty());
        assert_eq!(tuner.candidates_for(u32::MAX), WORKGROUP_CANDIDATES);
        tuner.record_decision("p", [128, 1, 1]);
        tuner.record_key_decision(&key, [8, 8, 1]);
        let other = Tuner::new("adapter-1.2", Mode::On);
        assert_eq!(other.resolve("p"), [64, 1, 1], "nothing is stored before persist");
        tuner.persist().unwrap();
        let mut again = Tuner::new("adapter-1.2", Mode::OffUseDefault);
        assert_eq!((again.resolve("p"), again.resolve_key(&key)), ([128, 1, 1], [8, 8, 1]));
        assert_eq!(Tuner::new("adapter-1.3", Mode::On).resolve("p"), [64, 1, 1]);

        // A tuner that only read a decision does not write it back over a newer one.
        tuner.record_decision("p", [256, 1, 1]);
        tuner.persist().unwrap();
        again.record_decision("q", [32, 1, 1]);
        again.persist().unwrap();
        let last = Tuner::new("adapter-1.2", Mode::On);
        assert_eq!((last.resolve("p"), last.resolve("q")), ([256, 1, 1], [32, 1, 1]));

        fs::write(&path, "broken").unwrap();
        let mut broken = Tuner::new("adapter-1.2", Mode::On);
        assert!(broken.load_error().is_some());
        assert_eq!(broken.resolve("p"), [64, 1, 1]);
        broken.record_decision("p", [32, 1, 1]);
        assert!(broken.persist().unwrap_err().contains("adapter-1.2.toml"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "broken");
    });
}

#[test]
fn every_string_is_a_safe_adapter_name() {
    in_private_home("every_string_is_a_safe_adapter_name", |home| {
        let folder = home.join("cache/vyre/tuner");
        let mut names: Vec<String> =
            ["", ".", "..", "../../etc/passwd", "/abs", "a/b", "a%2fb", "C:\\x", "nul", "a\0b", "%"]
                .map(str::to_owned)
                .to_vec();
        let alphabet = ["a", "A", ".", "/", "\\", "%", "2", "f", "\0", " ", ":", "é"];
        for first in alphabet {
            for second in alphabet {
                names.push(format!("{first}{second}"));
                names.extend(alphabet.map(|third| format!("{first}{second}{third}")));
            }
        }
        names.push("long".repeat(4_000));
        names.push("long".repeat(4_001));
        let distinct: BTreeSet<_> = names.iter().collect();
        let paths: BTreeSet<_> = distinct.iter().map(Tuner::cache_path_for_adapter).collect();
        assert_eq!(paths.len(), distinct.len(), "two names share a file");
        for path in &paths {
            assert_eq!(path.parent(), Some(folder.as_path()), "{path:?} leaves the folder");
            assert!(path.to_str().unwrap().ends_with(".toml"));
        }
        for name in names.iter().take(11).chain(names.last()) {
            let mut tuner = Tuner::new(name, Mode::On);
            tuner.record_decision(name.clone(), [32, 1, 1]);
            tuner.persist().unwrap();
            assert_eq!(Tuner::new(name, Mode::On).resolve(name), [32, 1, 1]);
        }
    });
}

#[test]
fn without_the_variable_the_home_folder_is_used() {
    let name = "without_the_variable_the_home_folder_is_used";
    if let Some(role) = role() {
        let home = Path::new(&role[0]);
        assert_eq!(Tuner::cache_path_for_adapter("a"), home.join(".cache/vyre/tuner/a.toml"));
        assert_eq!(vyre_driver::routing::default_pgo_path(), home.join(".config/vyre/pgo.toml"));
        return;
    }
    let command = || {
        let mut command = child(name, &["/some/home"]);
        command.env("HOME", "/some/home");
        command
    };
    let unset = command().env_remove("XDG_CACHE_HOME").env_remove("XDG_CONFIG_HOME").spawn().unwrap();
    let empty = command().env("XDG_CACHE_HOME", "").env("XDG_CONFIG_HOME", "").spawn().unwrap();
    all_succeed(vec![unset, empty]);
}

#[test]
fn feedback_resizes_within_the_limits() {
    let policy = DefaultPolicy::default();
    assert_eq!((policy.adapter_max_workgroup_size_x, policy.minimum_workgroup_size_x), (1024, 32));
    assert_eq!((policy.saturation_threshold_per_us, policy.idle_shrink_us), (1.0, 100_000));
    let feedback = |size, idle_us, throughput| TunerFeedback {
        per_opcode_counts: vec![(1, 2)],
        wall_time_us: 1_000_000,
        idle_us,
        observed_workgroup_size_x: size,
        observed_throughput_per_us: throughput,
    };
    let cases = [
        (256, 100_001, 0.1, Some(128)),
        (256, 100_000, 0.1, Some(512)),
        (64, 100_001, 9.0, Some(32)),
        (32, 100_001, 0.1, None),
        (0, u64::MAX, 0.1, None),
        (512, 0, 0.99, Some(1024)),
        (1024, 0, 0.0, None),
        (u32::MAX, 0, 0.0, None),
        (256, 0, 1.0, None),
        (256, 0, f64::NAN, None),
    ];
    for (size, idle, throughput, wanted) in cases {
        assert_eq!(policy.suggest_resize(&feedback(size, idle, throughput)), wanted, "{size} {idle} {throughput}");
    }
    let boundless = DefaultPolicy { adapter_max_workgroup_size_x: u32::MAX, minimum_workgroup_size_x: 0, ..policy };
    assert_eq!(boundless.suggest_resize(&feedback(1 << 31, 0, 0.0)), None);
    assert_eq!(boundless.suggest_resize(&feedback(1, 100_001, 0.0)), None);
}
