//! Decisions are kept with their evidence in the tuner's one file, found again, merged and bounded.

use std::path::Path;

use vyre_driver::DispatchConfig;
use vyre_driver::tuner::{
    Campaign, Candidate, Decision, DefaultPolicy, Known, Lock, Measured, Mode, Plan, Source, Space, Span,
    StaticProgramShape, Step, Subject, Tuner, TunerCache, TunerProgramKey, Verdict, family,
};
use vyre_foundation::ir::Program;

fn decide(measured_at: u64) -> Decision {
    let space = Space::new().with_shapes_up_to(2, 64).with_constant("tile", [4u32, 8, 16]);
    let default = Candidate::of_shape([64, 1, 1]);
    let candidates = space.candidates(default, 1024, 100);
    let mut campaign = Campaign::new(candidates.list.len(), Plan::default());
    loop {
        match campaign.step() {
            Step::Check(3) => campaign.checked(3, Err("its result `out` differs at byte 4".to_owned())),
            Step::Check(candidate) => campaign.checked(candidate, Ok(())),
            Step::Measure(5) => campaign.reject(5, "failed with V0701: lost".to_owned()),
            Step::Measure(candidate) => campaign.observe(candidate, 1_000 + 100 * (candidate as u64).abs_diff(7)),
            Step::Done => break,
        }
    }
    let outcome = campaign.outcome().unwrap();
    assert_eq!((outcome.chosen, outcome.verdict), (7, Verdict::Winner));
    Decision::new(subject(&[]), &candidates, &outcome, measured(measured_at, "build 1"))
}

fn measured(at: u64, build: &str) -> Measured {
    let (device, driver) = ("a device".to_owned(), "driver 1.2".to_owned());
    Measured { source: Source::Tuned, device, driver, build: build.to_owned(), grid: None, at }
}

fn config(values: &[(&str, u32)]) -> DispatchConfig {
    let mut config = DispatchConfig::default();
    config.specialization = values.iter().map(|(name, value)| (*name, *value)).collect();
    config
}

fn subject(values: &[(&str, u32)]) -> Subject {
    Subject {
        program: "main".to_owned(),
        family: family(&Program::empty(), &config(values)),
        own: [64, 1, 1],
        grid: [16, 1, 1],
        proven: true,
    }
}

fn key(values: &[(&str, u32)], grid: u32) -> TunerProgramKey {
    let shape = StaticProgramShape::new(&Program::empty(), Some([grid, 1, 1]), 64).class();
    TunerProgramKey::of_dispatch(&Program::empty(), shape, &config(values))
}

fn find<'a>(tuner: &'a Tuner, values: &[(&str, u32)], grid: u32, build: &str) -> Known<'a> {
    tuner.find(&key(values, grid), &family(&Program::empty(), &config(values)), build)
}

#[test]
fn one_file_holds_the_triple_and_its_evidence() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("adapter.toml");
    let decision = decide(1_000);
    assert_eq!(decision.evidence.default_ns, 1_700);
    assert_eq!(decision.evidence.chosen_ns, 1_000);
    assert!((decision.evidence.difference - (1.0 / 1.7 - 1.0)).abs() < 1e-9);
    let [low, high] = decision.evidence.interval;
    assert!(low <= decision.evidence.difference && decision.evidence.difference <= high && high < 0.0);
    assert_eq!(decision.evidence.rejected.len(), 2);
    assert!(decision.evidence.rejected[0].contains("differs at byte 4"));
    assert!(decision.evidence.timings.len() > 4, "others are kept too: {:?}", decision.evidence.timings);
    let mut tuner = Tuner::at(&path, Mode::On);
    tuner.record(key(&[], 16), decision.clone());
    tuner.save().unwrap();

    let plain = TunerCache::load(&path).unwrap();
    assert_eq!(plain.get_key(&key(&[], 16)), Some(decision.candidate.workgroup_size), "the triple is an entry");
    assert_eq!(plain.entries.len(), 1);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("schema = 1"), "{text}");
    assert_eq!(find(&Tuner::at(&path, Mode::On), &[], 16, "build 1"), Known::Decided(&decision));

    // Who knows only triples keeps the rest as it is.
    let mut other = TunerCache::default();
    other.set("another", [8, 8, 1]);
    other.save(&path).unwrap();
    let section = |text: &str| text[text.find("[evidence]").unwrap()..].to_owned();
    assert_eq!(section(&std::fs::read_to_string(&path).unwrap()), section(&text));
    let again = Tuner::at(&path, Mode::On);
    assert_eq!(find(&again, &[], 16, "build 1"), Known::Decided(&decision));
    assert_eq!(again.resolve("another"), [8, 8, 1]);
}

#[test]
fn a_triple_that_was_written_by_hand_comes_first_and_one_taken_out_takes_the_decision_along() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("adapter.toml");
    let mut tuner = Tuner::at(&path, Mode::On);
    tuner.record(key(&[], 16), decide(1_000));
    tuner.save().unwrap();
    let mut cache = TunerCache::default();
    cache.set_key(key(&[], 16), [32, 2, 1]);
    cache.save(&path).unwrap();
    assert_eq!(find(&Tuner::at(&path, Mode::On), &[], 16, "build 1"), Known::Written([32, 2, 1]));
    let text = std::fs::read_to_string(&path).unwrap();
    let without: String = text.lines().skip(1).map(|line| format!("{line}\n")).collect();
    std::fs::write(&path, without).unwrap();
    let tuner = Tuner::at(&path, Mode::On);
    assert!(matches!(find(&tuner, &[], 16, "build 1"), Known::Guess(_)), "it is a guess at most");
}

#[test]
fn other_sizes_and_builds_are_guesses_and_other_constants_and_tolerances_are_nothing() {
    let mut tuner = Tuner::in_memory(Mode::On);
    let decision = decide(1_000);
    tuner.record(key(&[("n", 1)], 16), Decision { subject: subject(&[("n", 1)]), ..decision.clone() });
    assert!(matches!(find(&tuner, &[("n", 1)], 16, "build 1"), Known::Decided(_)));
    assert!(matches!(find(&tuner, &[("n", 1)], 12, "build 1"), Known::Decided(_)), "a size of the same class");
    assert!(matches!(find(&tuner, &[("n", 1)], 17, "build 1"), Known::Guess(_)));
    assert!(matches!(find(&tuner, &[("n", 1)], 16, "build 2"), Known::Guess(_)));
    assert_eq!(find(&tuner, &[("n", 2)], 16, "build 1"), Known::Nothing);
    let shape = StaticProgramShape::new(&Program::empty(), Some([16, 1, 1]), 64);
    let mut tolerant = config(&[("n", 1)]);
    tolerant.ulp_budget = Some(4);
    let other = TunerProgramKey::of_dispatch(&Program::empty(), &shape, &tolerant);
    assert_eq!(tuner.find(&other, &family(&Program::empty(), &tolerant), "build 1"), Known::Nothing);
    assert_eq!(
        TunerProgramKey::of_dispatch(&Program::empty(), &shape, &DispatchConfig::default()),
        TunerProgramKey::from_program(&Program::empty(), shape),
        "a configuration that changes nothing has the plain key"
    );
    assert!(tuner.pin(key(&[("n", 1)], 16).as_str(), true));
    assert!(matches!(find(&tuner, &[("n", 1)], 16, "build 2"), Known::Decided(_)), "a pinned one is used as it is");
    tuner.record(key(&[("n", 1)], 16), Decision { verdict: Verdict::Tie, ..decision });
    let Known::Decided(kept) = find(&tuner, &[("n", 1)], 16, "build 2") else { panic!("it is there") };
    assert!(kept.pinned && kept.verdict == Verdict::Winner, "and not replaced");
    assert!(tuner.forget(key(&[("n", 1)], 16).as_str()));
    assert_eq!(find(&tuner, &[("n", 1)], 16, "build 1"), Known::Nothing);
}

fn with(decision: &Decision, size: u32, samples: usize, measured_at: u64) -> Decision {
    let mut decision = decision.clone();
    decision.candidate.workgroup_size = [size, 1, 1];
    decision.evidence.samples = samples;
    decision.evidence.measured_at = measured_at;
    decision
}

#[test]
fn more_and_newer_evidence_counts_more_and_both_are_kept_where_they_disagree() {
    let base = decide(1_000);
    const DAY: u64 = 86_400;
    let merged = |ours: &Decision, theirs: &Decision| {
        let mut tuner = Tuner::in_memory(Mode::On);
        tuner.merge("k", ours.clone());
        tuner.merge("k", theirs.clone());
        tuner.merge("k", theirs.clone());
        tuner.decisions().next().unwrap().1.clone()
    };
    let (many, few) = (with(&base, 128, 1_000, 1_000 * DAY), with(&base, 256, 3, 1_000 * DAY));
    for (ours, theirs) in [(&many, &few), (&few, &many)] {
        let kept = merged(ours, theirs);
        assert_eq!(kept.candidate, many.candidate, "3 foreign timings don't replace 1,000 of our own");
        assert_eq!((kept.rivals.len(), &kept.rivals[0].candidate), (1, &few.candidate));
    }
    let (old, new) = (with(&base, 128, 100, 10 * DAY), with(&base, 256, 60, 1_000 * DAY));
    assert_eq!(merged(&old, &new).candidate, new.candidate);
    let agreeing = merged(&many, &with(&base, 128, 5, 1_000 * DAY));
    assert_eq!((agreeing.rivals.len(), agreeing.evidence.samples), (0, 1_000));
}

#[test]
fn what_was_decided_anew_replaces_what_was_known_and_weighs_what_came_in_between() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("adapter.toml");
    let (key, base) = (key(&[], 16), decide(1_000));
    let mut first = Tuner::at(&path, Mode::On);
    first.record(&key, with(&base, 128, 1_000, 1_000));
    first.save().unwrap();
    // The device has changed: fewer timings, but in full knowledge of those before.
    first.record(&key, with(&base, 256, 60, 1_100));
    first.save().unwrap();
    let stored = |path: &Path| Tuner::at(path, Mode::On).decisions().next().unwrap().1.clone();
    assert_eq!(stored(&path).candidate.workgroup_size, [256, 1, 1]);
    let mut second = Tuner::at(&path, Mode::On);
    let mut third = Tuner::at(&path, Mode::On);
    second.record(&key, with(&base, 512, 900, 1_200));
    second.save().unwrap();
    third.record(&key, with(&base, 32, 10, 1_201));
    third.save().unwrap();
    let kept = stored(&path);
    assert_eq!((kept.candidate.workgroup_size, kept.rivals.len()), ([512, 1, 1], 1));
    assert_eq!(TunerCache::load(&path).unwrap().get_key(&key), Some([512, 1, 1]), "the triple follows");
}

#[test]
fn a_full_file_makes_room_and_stays_readable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("adapter.toml");
    let base = decide(1_000);
    let mut tuner = Tuner::at(&path, Mode::On);
    let key = |n: u32| key(&[], 1 << (n % 31)).as_str().replace("v1-", &format!("v1-{n:08}"));
    for n in 0..2_000u32 {
        let mut decision = with(&base, 128, 10, u64::from(n));
        decision.subject.program = "long ".repeat(500);
        decision.pinned = n == 3;
        tuner.merge(&key(n), decision);
    }
    tuner.save().unwrap();
    for n in 2_000..2_010u32 {
        tuner.merge(&key(n), with(&base, 128, 10, u64::from(n)));
    }
    tuner.save().unwrap();
    assert!(std::fs::metadata(&path).unwrap().len() <= 4 << 20);
    let again = Tuner::at(&path, Mode::On);
    assert!(again.load_error().is_none());
    let kept: Vec<_> = again.decisions().map(|(_, decision)| decision.evidence.measured_at).collect();
    assert!(kept.contains(&3), "pinned ones stay");
    assert!(kept.contains(&2_009) && !kept.contains(&0), "the oldest go");
    assert!(kept.len() > 500, "{} are left", kept.len());
    assert_eq!(again.triples().count(), kept.len());
}

#[test]
fn bad_evidence_is_named_and_a_corrupt_file_is_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("adapter.toml");
    let mut tuner = Tuner::at(&path, Mode::On);
    tuner.record(key(&[], 16), decide(2_000));
    tuner.save().unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let bad = [
        ("verdict = \"winner\"", "verdict = \"perhaps\"", "V1005"),
        ("workgroup_size = [", "workgroup_size = [0, ", "V1005"),
        ("difference = ", "difference = nan #", "V1005"),
        ("[evidence]", "[evidence", "V1004"),
    ];
    for (from, to, code) in bad {
        assert!(text.contains(from), "{text}");
        std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let refused = Tuner::at(&path, Mode::On);
        assert_eq!(refused.load_error().map(|error| error.code.id), Some(code), "{to}: {:?}", refused.load_error());
        let (mut fresh, notice) = Tuner::recovered_at(&path, Mode::On);
        let notice = notice.unwrap();
        assert!(notice.message.contains("set aside as") && notice.message.contains("adapter.toml.corrupt"), "{notice}");
        assert_eq!(notice.severity, vyre_spec::Severity::Warning);
        assert!(!path.exists() && folder.path().join("adapter.toml.corrupt").exists());
        fresh.record(key(&[], 16), decide(3_000));
        fresh.save().unwrap();
    }
    // What a newer vyre has written is not corrupt, and not ours to move.
    std::fs::write(&path, text.replacen("schema = 1", "schema = 2", 1)).unwrap();
    let (mut tuner, notice) = Tuner::recovered_at(&path, Mode::On);
    assert_eq!(notice.unwrap().code.id, "V1009");
    tuner.record(key(&[], 16), decide(3_000));
    assert_eq!(tuner.save().unwrap_err().code.id, "V1009");
    assert!(path.exists());
}

#[test]
fn feedback_of_other_programs_gives_the_policy_a_size_to_begin_with() {
    let mut tuner = Tuner::in_memory(Mode::On);
    assert_eq!(tuner.feedback(), None);
    let base = decide(1_000);
    for (n, size) in [256, 256, 128].into_iter().enumerate() {
        tuner.merge(&format!("v1-{n}"), with(&base, size, 50, 1_000));
    }
    let feedback = tuner.feedback().unwrap();
    assert_eq!(feedback.observed_workgroup_size_x, 256);
    // 16 workgroups of 64 in a microsecond, three times.
    assert!((feedback.observed_throughput_per_us - 1_024.0).abs() < 1.0, "{feedback:?}");
    assert_eq!(DefaultPolicy::default().suggest_resize(&feedback), None, "fast enough to stay");
}

#[test]
fn a_lock_is_used_as_a_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vyre.lock");
    assert_eq!(Lock::load(&path).unwrap_err().code.id, "V1011", "one that is named must be there");
    let mut lock = Lock::default();
    let launches = lock.launches.entry("an adapter".to_owned()).or_default();
    launches.insert(key(&[], 16).as_str().to_owned(), decide(1_000));
    let span = |from, backend: &str| Span { from, backend: backend.to_owned() };
    lock.routes.insert("op".to_owned(), vec![span(0, "cpu"), span(1_000, "cuda")]);
    lock.save(&path).unwrap();
    let loaded = Lock::load(&path).unwrap();
    assert_eq!(loaded, lock);
    assert_eq!(loaded.launch("an adapter", &key(&[], 16)), Some(&decide(1_000)));
    assert_eq!(loaded.launch("another", &key(&[], 16)), None);
    let route = |n| loaded.route("op", n);
    assert_eq!(
        (route(0), route(999), route(1_000), route(u64::MAX)),
        (Some("cpu"), Some("cpu"), Some("cuda"), Some("cuda"))
    );
    assert_eq!(loaded.route("other", 1), None);
    let text = std::fs::read_to_string(&path).unwrap();
    let hostile = [
        ("schema = 1", "schema = 99"),
        ("schema = 1", "schema = \"new\""),
        ("schema = 1", ""),
        ("workgroup_size = [", "workgroup_size = [0, "),
        ("from = 1000", "from = 0"),
        ("from = 1000", "from = -5"),
        ("verdict = \"winner\"", "verdict = 7"),
        ("[launches", "[lunches"),
        ("samples = ", "samples = -"),
    ];
    for (from, to) in hostile {
        assert!(text.contains(from), "{text}");
        let error = Lock::from_text("vyre.lock", &text.replacen(from, to, 1)).unwrap_err();
        assert!(error.to_string().contains("vyre.lock") && error.to_string().contains("Fix:"), "{error}");
    }
    for junk in ["\0\0", "[[[[", "schema = 1\nlaunches = 3\n", "schema = 1\n[routes]\nx = []\n"] {
        assert!(Lock::from_text("vyre.lock", junk).is_err(), "{junk:?}");
    }
}

#[test]
fn an_old_decision_is_confirmed_cheaply_or_dropped() {
    let again = |times: [u64; 2]| {
        let mut campaign = Campaign::new(2, Plan::default());
        loop {
            match campaign.step() {
                Step::Check(candidate) => campaign.checked(candidate, Ok(())),
                Step::Measure(candidate) => campaign.observe(candidate, times[candidate]),
                Step::Done => return campaign.outcome().unwrap(),
            }
        }
    };
    let confirmed = again([2_000, 1_000]);
    assert_eq!((confirmed.chosen, confirmed.verdict), (1, Verdict::Winner));
    assert!(confirmed.samples <= 40, "{} samples", confirmed.samples);
    assert_eq!(again([1_000, 2_000]).chosen, 0);
    let tie = again([1_000, 1_000]);
    assert_eq!((tie.chosen, tie.verdict), (0, Verdict::Tie));
}

#[test]
fn a_default_that_fails_ends_the_campaign() {
    let mut campaign = Campaign::new(3, Plan::default());
    assert_eq!(campaign.step(), Step::Check(0));
    campaign.checked(0, Err("no device".to_owned()));
    assert_eq!(campaign.step(), Step::Done);
    assert!(campaign.outcome().is_none());
    assert_eq!(campaign.default_failure(), Some("no device"));
}

#[test]
fn when_all_others_fail_the_default_is_used() {
    let mut campaign = Campaign::new(3, Plan::default());
    loop {
        match campaign.step() {
            Step::Check(0) => campaign.checked(0, Ok(())),
            Step::Check(candidate) => campaign.checked(candidate, Err("wrong".to_owned())),
            Step::Measure(candidate) => campaign.observe(candidate, 10),
            Step::Done => break,
        }
    }
    let outcome = campaign.outcome().unwrap();
    assert_eq!((outcome.chosen, outcome.default_ns, outcome.rejected.len()), (0, 10, 2));
    let mut single = Campaign::new(1, Plan::default());
    single.checked(0, Ok(()));
    single.observe(0, 5);
    assert_eq!(single.outcome().unwrap().chosen, 0);
}
