//! One measured winner per op, kept in a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use vyre_foundation::ir::Program;
use vyre_spec::{Diagnostic, codes};

use super::agree::difference;
use crate::table_file::{MAX_TABLE_BYTES, SCHEMA, TableFile, user_folder};
use crate::{BackendError, DispatchConfig, VyreBackend};

pub(super) static FILE: TableFile = TableFile {
    what: "routing table",
    unreadable: &codes::routing::FILE_UNREADABLE,
    too_large: &codes::routing::FILE_TOO_LARGE,
    invalid: &codes::routing::FILE_INVALID,
    entry: &codes::routing::FILE_ENTRY,
    unwritable: &codes::routing::FILE_UNWRITABLE,
};

/// The backend that defines what a program means, where it takes part.
const REFERENCE: &str = "reference";
/// Timed rounds: at least so many, and more while they are so quick that the clock matters.
const ROUNDS: usize = 3;
const MOST_ROUNDS: usize = 15;
const QUICK: Duration = Duration::from_millis(5);

/// How long a backend took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendLatency {
    /// The backend's id.
    pub backend: String,
    /// Median time of a dispatch.
    #[serde(with = "wide")]
    pub latency_ns: u128,
}

/// The winner for an op, and what it was measured against.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteDecision {
    /// The winner's id.
    pub backend: String,
    /// Every backend that gave the right results, fastest first, then by name.
    #[serde(default)]
    pub observations: Vec<BackendLatency>,
}

/// Why a backend can't win an op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The backend's id.
    pub backend: String,
    /// What it did: its error, or where its results differ.
    pub reason: String,
}

/// The winner of every op that was certified.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PgoTable {
    /// Op to decision. What failed or disagreed when an op was last certified stands beside it, under the op's name and
    /// `#rejected`, without a winner: [`PgoTable::rejections`] reads it.
    #[serde(default)]
    pub routes: BTreeMap<String, RouteDecision>,
}

/// What is added to an op's name to keep what was rejected.
const REJECTED: &str = "#rejected";

impl PgoTable {
    /// As [`PgoTable::certify_op_borrowed`], on owned inputs, which are not copied.
    pub fn certify_op(
        &mut self,
        op_id: impl Into<String>,
        program: &Program,
        inputs: &[Vec<u8>],
        config: &DispatchConfig,
        backends: &[&dyn VyreBackend],
    ) -> Result<&RouteDecision, BackendError> {
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        self.certify_op_borrowed(op_id, program, &inputs, config, backends)
    }

    /// Runs an op on every backend, in turns, and stores the fastest of those that gave the right results.
    ///
    /// Right is what most backends agree on; of equally large groups, the one with the backend that stands earliest in
    /// `backends`, so that the most trusted one is listed first. A backend with the id `reference` defines what a program means
    /// and outvotes all others. A backend that fails or disagrees is kept with the reason ([`PgoTable::rejections`]); the
    /// others' measurements stand. When every backend fails, that is an error, and an earlier decision stays.
    pub fn certify_op_borrowed(
        &mut self,
        op_id: impl Into<String>,
        program: &Program,
        inputs: &[&[u8]],
        config: &DispatchConfig,
        backends: &[&dyn VyreBackend],
    ) -> Result<&RouteDecision, BackendError> {
        let op_id = op_id.into();
        if backends.is_empty() {
            let message = format!("op `{op_id}` was to be certified, but no backend was given");
            return Err(Diagnostic::new(&codes::routing::NO_BACKENDS, message).into());
        }
        let mut runs: Vec<Run<'_>> =
            backends.iter().map(|backend| Run::warmed_up(*backend, program, inputs, config)).collect();
        reject_disagreeing(program, config, &mut runs);
        for round in 0..MOST_ROUNDS {
            let slowest = runs.iter().filter_map(|run| run.samples.iter().max()).max();
            if round >= ROUNDS && slowest.is_none_or(|slowest| *slowest > QUICK) {
                break;
            }
            for run in &mut runs {
                run.sample(program, inputs, config);
            }
        }

        let mut observations = Vec::new();
        let mut rejections = Vec::new();
        for run in runs {
            let backend = run.backend.id().to_owned();
            match run.outcome {
                Ok(_) => observations.push(BackendLatency { backend, latency_ns: median(run.samples).as_nanos() }),
                Err(reason) => rejections.push(Rejection { backend, reason }),
            }
        }
        self.record(op_id, observations, rejections)
    }

    /// Keeps what was measured of an op: the fastest backend wins, and those that failed or disagreed are kept with the reason. When
    /// every backend failed, that is an error, and an earlier decision stays.
    pub fn record(
        &mut self,
        op_id: impl Into<String>,
        mut observations: Vec<BackendLatency>,
        rejections: Vec<Rejection>,
    ) -> Result<&RouteDecision, BackendError> {
        let op_id = op_id.into();
        observations.sort_by(|a, b| (a.latency_ns, &a.backend).cmp(&(b.latency_ns, &b.backend)));
        let failure = observations.is_empty().then(|| {
            let reasons: Vec<_> = rejections.iter().map(|r| format!("{}: {}", r.backend, r.reason)).collect();
            let message = format!("op `{op_id}` ran on no backend: {}", reasons.join("; "));
            BackendError::from(Diagnostic::new(&codes::routing::ALL_REJECTED, message))
        });
        let beside = format!("{op_id}{REJECTED}");
        if rejections.is_empty() {
            self.routes.remove(&beside);
        } else {
            let entry = |rejection: Rejection| BackendLatency {
                backend: format!("{}: {}", rejection.backend, rejection.reason),
                latency_ns: u128::MAX,
            };
            let observations = rejections.into_iter().map(entry).collect();
            self.routes.insert(beside, RouteDecision { backend: String::new(), observations });
        }
        if let Some(failure) = failure {
            return Err(failure);
        }
        let decision = RouteDecision { backend: observations[0].backend.clone(), observations };
        Ok(self.routes.entry(op_id).insert_entry(decision).into_mut())
    }

    /// The winner for an op.
    pub fn fastest_backend(&self, op_id: &str) -> Option<&str> {
        self.routes.get(op_id).map(|decision| decision.backend.as_str()).filter(|backend| !backend.is_empty())
    }

    /// Why backends could not win an op.
    pub fn rejections(&self, op_id: &str) -> Vec<Rejection> {
        let kept = self.routes.get(&format!("{op_id}{REJECTED}"));
        let entries = kept.into_iter().flat_map(|decision| &decision.observations);
        let read = |entry: &BackendLatency| {
            let (backend, reason) = entry.backend.split_once(": ").unwrap_or((&entry.backend, ""));
            Rejection { backend: backend.to_owned(), reason: reason.to_owned() }
        };
        entries.map(read).collect()
    }

    /// Reads a file. A missing one is an empty table; one that can't be read, is over 4 MiB, is not TOML or has an entry that
    /// can't be used is an error that names the file and the entry.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, String> {
        let path = path.as_ref();
        FILE.read_toml(path).and_then(|table| decode(path, table)).map_err(|diagnostic| diagnostic.to_string())
    }

    /// [`PgoTable::load`] that moves a file with contents that can't be used out of the way; the diagnostic tells where it is.
    pub fn load_recovered(path: impl AsRef<Path>) -> (Self, Option<Diagnostic>) {
        let path = path.as_ref();
        let load = |path: &Path| FILE.read_toml(path).and_then(|table| decode(path, table));
        match load(path) {
            Ok(table) => (table, None),
            Err(problem) => (PgoTable::default(), Some(FILE.set_aside(path, problem, |path| load(path).map(drop)))),
        }
    }

    /// Adds the decisions to the file, atomically: what other processes stored for other ops stays, as far as the file does not grow
    /// too large to be read again. A file that [`PgoTable::load`] would refuse is an error and stays as it is.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), String> {
        let merge = |path: &Path, present: Option<String>| {
            let mut merged = match present {
                Some(text) => decode(path, FILE.parse(path, &text)?)?,
                None => PgoTable::default(),
            };
            for (op, decision) in &self.routes {
                // What was rejected belongs to the decision it was part of.
                merged.routes.remove(&format!("{op}{REJECTED}"));
                merged.routes.insert(op.clone(), decision.clone());
            }
            let rejected = self.routes.iter().filter(|(op, _)| op.ends_with(REJECTED));
            merged.routes.extend(rejected.map(|(op, decision)| (op.clone(), decision.clone())));
            let text = |table: &PgoTable| {
                toml::to_string(table)
                    .map(|body| format!("schema = {SCHEMA}\n\n{body}"))
                    .map_err(|error| FILE.problem(FILE.unwritable, path, &format!("can't be written: {error}")))
            };
            let mut written = text(&merged)?;
            while written.len() as u64 > MAX_TABLE_BYTES {
                // Nobody knows how old those of others are; these are wanted now.
                let others = merged.routes.keys().filter(|op| !self.routes.contains_key(*op));
                let mut others: Vec<String> = others.cloned().collect();
                if others.is_empty() {
                    break;
                }
                others.truncate(others.len().div_ceil(4));
                others.iter().for_each(|op| drop(merged.routes.remove(op)));
                written = text(&merged)?;
            }
            Ok(written)
        };
        FILE.update(path.as_ref(), merge).map_err(|diagnostic| diagnostic.to_string())
    }
}

/// `$XDG_CONFIG_HOME/vyre/pgo.toml`.
pub fn default_pgo_path() -> PathBuf {
    user_folder("XDG_CONFIG_HOME", ".config").join("vyre").join("pgo.toml")
}

fn decode(path: &Path, mut table: toml::Table) -> Result<PgoTable, Diagnostic> {
    let mut bad = Vec::new();
    FILE.check_schema(path, table.remove("schema").as_ref())?;
    let mut part = |name: &str| match table.remove(name) {
        None => toml::Table::new(),
        Some(toml::Value::Table(part)) => part,
        Some(_) => {
            bad.push((name.to_owned(), "is not a table".to_owned()));
            toml::Table::new()
        }
    };
    let routes = part("routes");
    bad.extend(table.keys().map(|name| (name.clone(), "is not `routes`".to_owned())));
    let decoded = PgoTable { routes: entries(routes, &mut bad) };
    match FILE.bad_entries(path, &bad) {
        Some(diagnostic) => Err(diagnostic),
        None => Ok(decoded),
    }
}

fn entries<T: for<'de> Deserialize<'de>>(table: toml::Table, bad: &mut Vec<(String, String)>) -> BTreeMap<String, T> {
    let mut out = BTreeMap::new();
    for (name, value) in table {
        match value.try_into() {
            Ok(entry) => {
                out.insert(name, entry);
            }
            Err(error) => bad.push((name, format!("can't be read: {}", error.message()))),
        }
    }
    out
}

/// One backend while it is being certified.
struct Run<'a> {
    backend: &'a dyn VyreBackend,
    outcome: Result<Vec<Vec<u8>>, String>,
    samples: Vec<Duration>,
}

impl<'a> Run<'a> {
    /// The first dispatch compiles and gives the results; it is not timed.
    fn warmed_up(
        backend: &'a dyn VyreBackend,
        program: &Program,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Run<'a> {
        let outcome = backend.dispatch_borrowed(program, inputs, config).map_err(|error| failed(&error));
        Run { backend, outcome, samples: Vec::with_capacity(MOST_ROUNDS) }
    }

    fn sample(&mut self, program: &Program, inputs: &[&[u8]], config: &DispatchConfig) {
        let Ok(expected) = &self.outcome else { return };
        let start = Instant::now();
        let results = self.backend.dispatch_borrowed(program, inputs, config);
        let elapsed = start.elapsed();
        // Every timed result counts, so that a backend can't be fast by giving up half way.
        let reason = match results {
            Ok(results) => difference(program, config.ulp_budget, &results, expected)
                .map(|what| format!("disagrees with its own first results: {what}")),
            Err(error) => Some(failed(&error)),
        };
        match reason {
            Some(reason) => self.outcome = Err(reason),
            None => self.samples.push(elapsed),
        }
    }
}

fn failed(error: &BackendError) -> String {
    format!("failed with {}: {}", error.code(), error.message())
}

/// Finds the results to trust and rejects every run that has others.
fn reject_disagreeing(program: &Program, config: &DispatchConfig, runs: &mut [Run<'_>]) {
    let agree = |a: &Run<'_>, b: &Run<'_>| match (&a.outcome, &b.outcome) {
        (Ok(a), Ok(b)) => difference(program, config.ulp_budget, a, b).is_none(),
        _ => false,
    };
    let votes = |run: &Run<'_>| runs.iter().filter(|other| agree(run, other)).count();
    let reference = runs.iter().position(|run| run.backend.id() == REFERENCE && run.outcome.is_ok());
    let mut trusted = reference;
    if trusted.is_none() {
        for (index, run) in runs.iter().enumerate().filter(|(_, run)| run.outcome.is_ok()) {
            if trusted.is_none_or(|best| votes(run) > votes(&runs[best])) {
                trusted = Some(index);
            }
        }
    }
    let Some(trusted) = trusted else { return };
    let (name, agreeing) = (runs[trusted].backend.id(), votes(&runs[trusted]));
    let Ok(expected) = runs[trusted].outcome.clone() else { return };
    for run in runs {
        if let Ok(results) = &run.outcome
            && let Some(what) = difference(program, config.ulp_budget, results, &expected)
        {
            run.outcome = Err(format!("disagrees with `{name}` and the {agreeing} that agree: {what}"));
        }
    }
}

fn median(mut samples: Vec<Duration>) -> Duration {
    samples.sort();
    samples.get(samples.len() / 2).copied().unwrap_or_default()
}

/// TOML integers have 64 bits; what is larger is written as text.
mod wide {
    use serde::de::{Deserializer, Error, Visitor};
    use serde::ser::Serializer;

    pub(super) fn serialize<S: Serializer>(value: &u128, serializer: S) -> Result<S::Ok, S::Error> {
        match i64::try_from(*value) {
            Ok(value) => serializer.serialize_i64(value),
            Err(_) => serializer.serialize_str(&value.to_string()),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u128, D::Error> {
        struct Wide;
        impl Visitor<'_> for Wide {
            type Value = u128;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a count of nanoseconds")
            }
            fn visit_i64<E: Error>(self, value: i64) -> Result<u128, E> {
                u128::try_from(value).map_err(|_| E::custom("a time is negative"))
            }
            fn visit_u64<E: Error>(self, value: u64) -> Result<u128, E> {
                Ok(value.into())
            }
            fn visit_u128<E: Error>(self, value: u128) -> Result<u128, E> {
                Ok(value)
            }
            fn visit_str<E: Error>(self, value: &str) -> Result<u128, E> {
                value.parse().map_err(|_| E::custom("a time is not a number"))
            }
        }
        deserializer.deserialize_any(Wide)
    }
}
