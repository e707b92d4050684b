//! What a program uses, as a file for version control.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use vyre_spec::{Diagnostic, codes};

use super::{Decision, TunerProgramKey};
use crate::table_file::{SCHEMA, TableFile};

static FILE: TableFile = TableFile {
    what: "lock file",
    unreadable: &codes::tuner::LOCK_UNUSABLE,
    too_large: &codes::tuner::LOCK_UNUSABLE,
    invalid: &codes::tuner::LOCK_UNUSABLE,
    entry: &codes::tuner::LOCK_UNUSABLE,
    unwritable: &codes::tuner::FILE_UNWRITABLE,
};

/// Decisions that are used exactly as they are: nothing is measured, and nothing changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lock {
    /// Launches by adapter and key.
    #[serde(default)]
    pub launches: BTreeMap<String, BTreeMap<String, Decision>>,
    /// Where each op runs, by size.
    #[serde(default)]
    pub routes: BTreeMap<String, Vec<Span>>,
}

/// From a size on, up to the next span, an op runs here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Span {
    /// The smallest size.
    pub from: u64,
    /// The backend.
    pub backend: String,
}

impl Lock {
    /// Reads a file, which must be there. Whatever in it can't be used is an error that names it: a lock is used as a whole or not at
    /// all.
    pub fn load(path: impl AsRef<Path>) -> Result<Lock, Diagnostic> {
        let path = path.as_ref();
        match FILE.read(path)? {
            Some(text) => Lock::from_text(path, &text),
            None => Err(FILE.problem(&codes::tuner::LOCK_UNUSABLE, path, "is not there")),
        }
    }

    /// Reads the text of a file, which `name` stands for in problems.
    pub fn from_text(name: impl AsRef<Path>, text: &str) -> Result<Lock, Diagnostic> {
        let path = name.as_ref();
        let mut table = FILE.parse(path, text)?;
        let Some(schema) = table.remove("schema") else {
            return Err(FILE.problem(FILE.invalid, path, "has no `schema`, so it is no lock file"));
        };
        FILE.check_schema(path, Some(&schema))?;
        let mut lock = Lock::default();
        let mut bad = Vec::new();
        for (part, value) in table {
            let toml::Value::Table(entries) = value else {
                bad.push((part, "is not a table".to_owned()));
                continue;
            };
            for (name, value) in entries {
                match part.as_str() {
                    "launches" => read_launches(&mut lock, &name, value, &mut bad),
                    "routes" => match value.try_into::<Vec<Span>>() {
                        Ok(spans) if !spans.is_empty() && spans.windows(2).all(|pair| pair[0].from < pair[1].from) => {
                            lock.routes.insert(name, spans);
                        }
                        Ok(_) => bad.push((name, "has sizes that are not in order".to_owned())),
                        Err(error) => bad.push((name, format!("can't be read: {}", error.message()))),
                    },
                    _ => bad.push((part.clone(), "is neither `launches` nor `routes`".to_owned())),
                }
            }
        }
        FILE.bad_entries(path, &bad).map_or(Ok(lock), Err)
    }

    /// Writes the file anew, atomically.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Diagnostic> {
        FILE.update(path.as_ref(), |path, _| {
            let body = toml::to_string(self)
                .map_err(|error| FILE.problem(FILE.unwritable, path, &format!("can't be written: {error}")))?;
            Ok(format!(
                "# What vyre uses with VYRE_DECISIONS set to this file; `vyre decisions freeze` writes it.\nschema = {SCHEMA}\n\n{body}"
            ))
        })
    }

    /// The launch for a key.
    pub fn launch(&self, adapter: &str, key: &TunerProgramKey) -> Option<&Decision> {
        self.launches.get(adapter)?.get(key.as_str())
    }

    /// Where an op of this size runs.
    pub fn route(&self, op: &str, n: u64) -> Option<&str> {
        let spans = self.routes.get(op)?;
        let at = spans.partition_point(|span| span.from <= n).max(1) - 1;
        spans.get(at).map(|span| span.backend.as_str())
    }
}

fn read_launches(lock: &mut Lock, adapter: &str, value: toml::Value, bad: &mut Vec<(String, String)>) {
    let toml::Value::Table(entries) = value else {
        bad.push((adapter.to_owned(), "is not a table".to_owned()));
        return;
    };
    for (key, value) in entries {
        match value.try_into::<Decision>() {
            Ok(decision) if decision.candidate.workgroup_size.contains(&0) => {
                bad.push((key, "has a workgroup size of zero".to_owned()));
            }
            Ok(decision) => {
                lock.launches.entry(adapter.to_owned()).or_default().insert(key, decision);
            }
            Err(error) => bad.push((key, format!("can't be read: {}", error.message()))),
        }
    }
}
