//! Decisions are kept with their evidence, and found again.

use vyre_driver::pipeline::PipelineFeatureFlags;
use vyre_driver::specialization::SpecMap;
use vyre_driver::tuner::{
    Campaign, Candidate, Decision, DecisionKey, DecisionTable, Known, Plan, Space, Step, Verdict, WORKGROUP_CANDIDATES,
};
use vyre_foundation::ir::Program;

fn decide(measured_at: u64) -> Decision {
    let space = Space::new().with_shapes_up_to(2, 64).with_constant("tile", [4u32, 8, 16]);
    let default = Candidate { workgroup_size: [64, 1, 1], specialization: SpecMap::new() };
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
    Decision::new(&candidates, &outcome, "a device", "driver 1.2", measured_at)
}

fn key(values: &[(&str, u32)], circumstances: &[(&str, &str)]) -> DecisionKey {
    let fixed: SpecMap = values.iter().map(|(name, value)| (*name, *value)).collect();
    DecisionKey::new(&Program::empty(), &fixed, PipelineFeatureFlags::empty(), circumstances)
}

#[test]
fn evidence_survives_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("evidence.toml");
    let decision = decide(1_000);
    assert_eq!(decision.evidence.default_ns, 1_700);
    assert_eq!(decision.evidence.chosen_ns, 1_000);
    assert!((decision.evidence.difference - (1.0 / 1.7 - 1.0)).abs() < 1e-9);
    let [low, high] = decision.evidence.interval;
    assert!(low <= decision.evidence.difference && decision.evidence.difference <= high && high < 0.0);
    assert!(decision.evidence.pairs >= 5 && decision.evidence.samples > decision.evidence.pairs);
    assert_eq!(decision.evidence.rejected.len(), 2);
    assert!(decision.evidence.rejected[0].contains("differs at byte 4"));
    assert!(decision.evidence.rejected[1].contains("lost"));
    let mut table = DecisionTable::default();
    table.insert(&key(&[], &[]), decision.clone());
    table.save(&path).unwrap();
    let loaded = DecisionTable::load(&path).unwrap();
    assert_eq!(loaded, table);
    assert_eq!(loaded.find(&key(&[], &[])), Known::Same(&decision));
    assert_eq!(loaded.iter().count(), 1);
}

#[test]
fn correctness_must_match_and_circumstances_may_differ() {
    let (old, new) = (decide(1_000), decide(2_000));
    let mut table = DecisionTable::default();
    table.insert(&key(&[("n", 1)], &[("driver", "1"), ("size", "2^20")]), old.clone());
    table.insert(&key(&[("n", 1)], &[("driver", "2"), ("size", "2^20")]), new.clone());
    assert_eq!(table.find(&key(&[("n", 1)], &[("size", "2^20"), ("driver", "1")])), Known::Same(&old));
    assert_eq!(table.find(&key(&[("n", 1)], &[("driver", "3")])), Known::Other(&new), "the latest is the better guess");
    assert_eq!(table.find(&key(&[("n", 2)], &[("driver", "1"), ("size", "2^20")])), Known::Nothing);
    let features = PipelineFeatureFlags(2);
    let other = DecisionKey::new(&Program::empty(), &SpecMap::new(), features, &[]);
    assert_ne!(other, key(&[], &[]));
    assert_ne!(key(&[], &[("ab", "c")]), key(&[], &[("a", "bc")]));
}

#[test]
fn the_later_decision_stays_and_bad_entries_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("evidence.toml");
    let mut table = DecisionTable::default();
    table.insert(&key(&[], &[]), decide(2_000));
    table.save(&path).unwrap();
    let mut late = DecisionTable::default();
    late.insert(&key(&[], &[]), decide(1_000));
    late.insert(&key(&[("x", 1)], &[]), decide(1_000));
    late.save(&path).unwrap();
    let merged = DecisionTable::load(&path).unwrap();
    assert_eq!(merged.iter().count(), 2);
    let Known::Same(decision) = merged.find(&key(&[], &[])) else { panic!("it is there") };
    assert_eq!(decision.evidence.measured_at, 2_000);

    let text = std::fs::read_to_string(&path).unwrap();
    for (from, to) in
        [("verdict = \"winner\"", "verdict = \"perhaps\""), ("workgroup_size = [", "workgroup_size = [0, ")]
    {
        assert!(text.contains(from), "{text}");
        std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let error = DecisionTable::load(&path).unwrap_err();
        assert!(error.message.contains("\"v1-") && error.code.id == "V1007", "{error}");
        assert!(late.save(&path).is_err());
    }
}

#[test]
fn an_old_decision_is_confirmed_cheaply_or_dropped() {
    let again = |times: [u64; 2]| {
        let mut campaign = Campaign::recheck(Plan::default());
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
    assert!(confirmed.samples <= 2 * WORKGROUP_CANDIDATES.len(), "{} samples", confirmed.samples);
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
