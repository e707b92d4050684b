use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use vyre_foundation::ir::Program;
use vyre_spec::{Diagnostic, codes};

use super::cache::adapter_file;
use super::{Candidate, Candidates, Outcome, Verdict};
use crate::pipeline::PipelineFeatureFlags;
use crate::specialization::SpecMap;
use crate::table_file::TableFile;

static FILE: TableFile = TableFile {
    what: "table of tuning decisions",
    unreadable: &codes::tuner::FILE_UNREADABLE,
    too_large: &codes::tuner::FILE_TOO_LARGE,
    invalid: &codes::tuner::FILE_INVALID,
    entry: &codes::tuner::DECISION_ENTRY,
    unwritable: &codes::tuner::FILE_UNWRITABLE,
};

/// What a decision rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// How many candidates there were.
    pub candidates: usize,
    /// Timed samples of all of them.
    pub samples: usize,
    /// Timed samples of the chosen one, paired with the default's.
    pub pairs: usize,
    /// Time relative to the default's, less one: −0.3 is 30% faster.
    pub difference: f64,
    /// The interval of that difference, at 95%.
    pub interval: [f64; 2],
    /// Typical time of the chosen candidate.
    pub chosen_ns: u64,
    /// Typical time of the default.
    pub default_ns: u64,
    /// The device's name.
    pub device: String,
    /// The driver's name and version.
    pub driver: String,
    /// When it was measured, in seconds since 1970.
    pub measured_at: u64,
    /// Candidates that failed or gave other results than the default, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<String>,
}

/// How to launch a program, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The winner, or the earliest of those that tie.
    pub verdict: Verdict,
    /// How to launch.
    #[serde(flatten)]
    pub candidate: Candidate,
    /// What was measured.
    pub evidence: Evidence,
}

impl Decision {
    /// The decision that a campaign's outcome stands for.
    pub fn new(candidates: &Candidates, outcome: &Outcome, device: &str, driver: &str, measured_at: u64) -> Self {
        let rejected = |(index, reason): &(usize, String)| {
            let candidate = &candidates.list[*index];
            let constants: Vec<_> = candidate.specialization.iter().map(|(name, v)| format!(" {name}={v:?}")).collect();
            format!("{:?}{}: {reason}", candidate.workgroup_size, constants.concat())
        };
        Decision {
            verdict: outcome.verdict,
            candidate: candidates.list[outcome.chosen].clone(),
            evidence: Evidence {
                candidates: candidates.list.len(),
                samples: outcome.samples,
                pairs: outcome.pairs,
                difference: outcome.difference,
                interval: outcome.interval,
                chosen_ns: outcome.chosen_ns,
                default_ns: outcome.default_ns,
                device: device.to_owned(),
                driver: driver.to_owned(),
                measured_at,
                rejected: outcome.rejected.iter().map(rejected).collect(),
            },
        }
    }
}

/// Where a decision is kept. The first half names what the decision is about and must match; the second half names the
/// circumstances it was measured in, and a decision from other circumstances is still a good first guess.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DecisionKey {
    correctness: String,
    performance: String,
}

impl DecisionKey {
    /// `fixed` are the specialization values that the caller asks for and that are not tuned. `circumstances` are pairs of a
    /// name and a value: driver, clocks, power cap, sizes.
    pub fn new(
        program: &Program,
        fixed: &SpecMap,
        features: PipelineFeatureFlags,
        circumstances: &[(&str, &str)],
    ) -> Self {
        let mut correctness = blake3::Hasher::new_derive_key("vyre tuner decision key v1");
        correctness.update(&program.fingerprint());
        correctness.update(&fixed.digest());
        correctness.update(&features.bits().to_le_bytes());
        let mut performance = blake3::Hasher::new_derive_key("vyre tuner circumstances v1");
        let mut sorted = circumstances.to_vec();
        sorted.sort_unstable();
        for part in sorted.iter().flat_map(|(name, value)| [name, value]) {
            // Lengths keep neighbours apart.
            performance.update(&(part.len() as u64).to_le_bytes());
            performance.update(part.as_bytes());
        }
        DecisionKey {
            correctness: correctness.finalize().to_hex().to_string(),
            performance: performance.finalize().to_hex()[..32].to_owned(),
        }
    }

    /// The key as text: `v1-`, 64 hex digits, `-`, 32 hex digits.
    pub fn to_text(&self) -> String {
        format!("v1-{}-{}", self.correctness, self.performance)
    }
}

/// What the table knows about a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Known<'a> {
    /// Decided in these very circumstances.
    Same(&'a Decision),
    /// Decided in other circumstances: a warm start that is to be checked again with [`Campaign::recheck`](super::Campaign::recheck).
    Other(&'a Decision),
    /// Never decided.
    Nothing,
}

/// Decisions with their evidence, for one adapter.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DecisionTable {
    entries: BTreeMap<String, Decision>,
}

impl DecisionTable {
    /// `$XDG_CACHE_HOME/vyre/tuner/evidence/<adapter_fp>.toml`, safe for every string as the tuner's own file is.
    pub fn path_for_adapter(adapter_fp: impl AsRef<str>) -> PathBuf {
        adapter_file(&["tuner", "evidence"], adapter_fp.as_ref())
    }

    /// What is known about a key. Of several decisions from other circumstances it is the latest.
    pub fn find(&self, key: &DecisionKey) -> Known<'_> {
        if let Some(decision) = self.entries.get(&key.to_text()) {
            return Known::Same(decision);
        }
        let prefix = format!("v1-{}-", key.correctness);
        let others = self.entries.range(prefix.clone()..).take_while(|(text, _)| text.starts_with(&prefix));
        match others.map(|(_, decision)| decision).max_by_key(|decision| decision.evidence.measured_at) {
            Some(decision) => Known::Other(decision),
            None => Known::Nothing,
        }
    }

    /// Keeps a decision.
    pub fn insert(&mut self, key: &DecisionKey, decision: Decision) {
        self.entries.insert(key.to_text(), decision);
    }

    /// Every decision with its key as text.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Decision)> {
        self.entries.iter().map(|(key, decision)| (key.as_str(), decision))
    }

    /// Reads a file, by the rules of [`TunerCache::load`](super::TunerCache::load).
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Diagnostic> {
        let path = path.as_ref();
        decode(path, FILE.read_toml(path)?)
    }

    /// Reads the text of a file, which `name` stands for in problems.
    pub fn from_text(name: impl AsRef<Path>, text: &str) -> Result<Self, Diagnostic> {
        let name = name.as_ref();
        decode(name, FILE.parse(name, text)?)
    }

    /// Adds the decisions to the file, atomically. Where another process decided the same, the later decision
    /// stays.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Diagnostic> {
        FILE.update(path.as_ref(), |path, present| {
            let mut merged = match present {
                Some(text) => decode(path, FILE.parse(path, &text)?)?,
                None => DecisionTable::default(),
            };
            for (key, decision) in &self.entries {
                let older = |present: &Decision| present.evidence.measured_at <= decision.evidence.measured_at;
                if merged.entries.get(key).is_none_or(older) {
                    merged.entries.insert(key.clone(), decision.clone());
                }
            }
            toml::to_string(&merged.entries)
                .map_err(|error| FILE.problem(FILE.unwritable, path, &format!("can't be written: {error}")))
        })
    }
}

fn decode(path: &Path, table: toml::Table) -> Result<DecisionTable, Diagnostic> {
    let mut entries = BTreeMap::new();
    let mut bad = Vec::new();
    for (key, value) in table {
        match value.try_into::<Decision>() {
            Ok(decision) if decision.candidate.workgroup_size.contains(&0) => {
                bad.push((key, "has a workgroup size of zero".to_owned()));
            }
            Ok(decision) => {
                entries.insert(key, decision);
            }
            Err(error) => bad.push((key, format!("can't be read: {}", error.message()))),
        }
    }
    match FILE.bad_entries(path, &bad) {
        Some(diagnostic) => Err(diagnostic),
        None => Ok(DecisionTable { entries }),
    }
}
