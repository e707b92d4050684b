//! What the router has learnt, in a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use vyre_spec::Diagnostic;

use super::curve::{Cell, Curve};
use super::pgo::FILE;
use super::router::{Crossover, Router};
use crate::table_file::user_folder;

/// The file's form: curves by op and backend, curves of moves by backend.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    #[serde(default)]
    moves: BTreeMap<String, StoredCurve>,
    #[serde(default)]
    ops: BTreeMap<String, StoredOp>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredOp {
    /// For people and other tools; the router computes them anew.
    #[serde(default)]
    crossovers: Vec<Crossover>,
    #[serde(default)]
    backends: BTreeMap<String, StoredCurve>,
}

/// The parameters are for people and other tools; the curve is its cells.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredCurve {
    overhead_ns: f64,
    a: f64,
    b: f64,
    spread: f64,
    cells: Vec<Cell>,
}

impl StoredCurve {
    fn of(curve: &Curve) -> Self {
        let fit = curve.fit();
        StoredCurve { overhead_ns: fit.overhead, a: fit.a, b: fit.b, spread: fit.spread, cells: curve.cells().to_vec() }
    }
}

/// `$XDG_CACHE_HOME/vyre/routes.toml`.
pub fn default_routes_path() -> PathBuf {
    user_folder("XDG_CACHE_HOME", ".cache").join("vyre").join("routes.toml")
}

impl Router {
    /// Takes in what a file knows about the router's backends. A missing file says nothing; one that can't be read, is over
    /// 4 MiB, is not TOML or has an entry that can't be used is an error that names the file and the entry, and nothing is
    /// taken from it.
    pub fn load(&mut self, path: impl AsRef<Path>) -> Result<(), Diagnostic> {
        let path = path.as_ref();
        self.take_in(path, FILE.read_toml(path)?)
    }

    /// [`Router::load`] from the text of a file, which `name` stands for in problems.
    pub fn load_text(&mut self, name: impl AsRef<Path>, text: &str) -> Result<(), Diagnostic> {
        let name = name.as_ref();
        self.take_in(name, FILE.parse(name, text)?)
    }

    fn take_in(&mut self, path: &Path, table: toml::Table) -> Result<(), Diagnostic> {
        let stored = decode(path, table)?;
        let mut loaded = self.clone();
        let mut bad = Vec::new();
        for (backend, stored) in stored.moves {
            if let Some(curve) = loaded.moves_mut(&backend)
                && let Err(why) = curve.restore(stored.cells)
            {
                bad.push((backend, why));
            }
        }
        for (op, stored) in stored.ops {
            for (backend, stored) in stored.backends {
                if let Some(curve) = loaded.curve_mut(&op, &backend)
                    && let Err(why) = curve.restore(stored.cells)
                {
                    bad.push((op.clone(), format!("{why} for `{backend}`")));
                }
            }
        }
        if let Some(diagnostic) = FILE.bad_entries(path, &bad) {
            return Err(diagnostic);
        }
        *self = loaded;
        Ok(())
    }

    /// Adds what was learnt to the file, atomically, with the crossover points. What other processes learnt about
    /// other ops, backends and sizes stays; where both know a size, the one with more timings stays.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Diagnostic> {
        FILE.update(path.as_ref(), |path, present| {
            let mut stored = match present {
                Some(text) => decode(path, FILE.parse(path, &text)?)?,
                None => Stored::default(),
            };
            let backends: Vec<&str> = self.backends().collect();
            for backend in &backends {
                if let Some(curve) = self.moves(backend) {
                    merge(&mut stored.moves, backend, curve, false);
                }
            }
            for op in self.op_names() {
                let entry = stored.ops.entry(op.to_owned()).or_default();
                for backend in &backends {
                    if let Some((curve, replaced)) = self.curve(op, backend) {
                        merge(&mut entry.backends, backend, curve, replaced);
                    }
                }
                entry.crossovers = self.crossovers(op);
            }
            toml::to_string(&stored)
                .map_err(|error| FILE.problem(FILE.unwritable, path, &format!("can't be written: {error}")))
        })
    }
}

/// A curve whose device has changed replaces the stored one; else each size is known by whoever measured it more.
fn merge(stored: &mut BTreeMap<String, StoredCurve>, backend: &str, curve: &Curve, replaced: bool) {
    if curve.samples() == 0 {
        return;
    }
    let mut new = StoredCurve::of(curve);
    if let Some(old) = stored.get(backend).filter(|_| !replaced) {
        let mut cells: BTreeMap<i32, Cell> = old.cells.iter().map(|cell| (cell.at(), *cell)).collect();
        for cell in new.cells {
            let known = cells.entry(cell.at()).or_insert(cell);
            if cell.count() >= known.count() {
                *known = cell;
            }
        }
        new.cells = cells.into_values().collect();
    }
    stored.insert(backend.to_owned(), new);
}

fn decode(path: &Path, table: toml::Table) -> Result<Stored, Diagnostic> {
    let mut stored = Stored::default();
    let mut bad = Vec::new();
    for (part, value) in table {
        let toml::Value::Table(entries) = value else {
            bad.push((part, "is not a table".to_owned()));
            continue;
        };
        for (name, value) in entries {
            let unusable = |error: toml::de::Error| (name.clone(), format!("can't be read: {}", error.message()));
            match part.as_str() {
                "moves" => match value.try_into() {
                    Ok(curve) => drop(stored.moves.insert(name, curve)),
                    Err(error) => bad.push(unusable(error)),
                },
                "ops" => match value.try_into() {
                    Ok(op) => drop(stored.ops.insert(name, op)),
                    Err(error) => bad.push(unusable(error)),
                },
                _ => bad.push((part.clone(), "is neither `moves` nor `ops`".to_owned())),
            }
        }
    }
    match FILE.bad_entries(path, &bad) {
        Some(diagnostic) => Err(diagnostic),
        None => Ok(stored),
    }
}
