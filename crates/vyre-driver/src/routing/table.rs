//! What the router has learnt, in a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use vyre_spec::Diagnostic;

use super::curve::{Cell, Curve};
use super::pgo::FILE;
use super::router::{Crossover, Router};
use crate::table_file::{MAX_TABLE_BYTES, SCHEMA, user_folder};

/// The file's form: curves by op and backend, curves of moves by backend.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    /// The device that each backend's curves were measured on.
    #[serde(default)]
    devices: BTreeMap<String, String>,
    #[serde(default)]
    moves: BTreeMap<String, StoredCurve>,
    /// The same of memory that is the caller's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    loans: BTreeMap<String, StoredCurve>,
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
    /// The same on data of the host, with bringing it there and results back.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    round_trips: BTreeMap<String, StoredCurve>,
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

impl StoredCurve {
    fn samples(&self) -> u64 {
        self.cells.iter().map(|cell| u64::from(cell.count())).sum()
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
        self.take_in(path, FILE.read_toml(path)?, false)
    }

    /// [`Router::load`] that moves a file with contents that can't be used out of the way; the diagnostic tells where it is.
    pub fn load_recovered(&mut self, path: impl AsRef<Path>) -> Option<Diagnostic> {
        let path = path.as_ref();
        let problem = self.load(path).err()?;
        let check = |path: &Path| self.clone().load(path);
        Some(FILE.set_aside(path, problem, check))
    }

    /// Takes in what another machine has learnt, from the text of its file, which `name` stands for in problems. What was measured here
    /// counts more: theirs fills in where nothing was measured, and where their device is another one, it is only a guess.
    pub fn merge_text(&mut self, name: impl AsRef<Path>, text: &str) -> Result<(), Diagnostic> {
        let name = name.as_ref();
        self.take_in(name, FILE.parse(name, text)?, true)
    }

    fn take_in(&mut self, path: &Path, table: toml::Table, foreign: bool) -> Result<(), Diagnostic> {
        /// What another machine has measured counts as so many timings at most, and as one where its device is another.
        const FOREIGN: u32 = 4;
        let stored = decode(path, table)?;
        let mut loaded = self.clone();
        let mut bad = Vec::new();
        let same_device = |backend: &str| match (stored.devices.get(backend), self.device(backend)) {
            (Some(theirs), Some(ours)) => theirs == ours,
            _ => true,
        };
        let take = |curve: &mut Curve, backend: &str, cells: Vec<Cell>| match (foreign, same_device(backend)) {
            (false, true) => curve.restore(cells),
            (false, false) => Ok(()),
            (true, same) => {
                let most = if same { FOREIGN } else { 1 };
                curve.merge(cells.into_iter().map(|cell| cell.weakened(most)).collect())
            }
        };
        for (backend, stored) in &stored.moves {
            if let Some(curve) = loaded.moves_mut(backend)
                && let Err(why) = take(curve, backend, stored.cells.clone())
            {
                bad.push((backend.clone(), why));
            }
        }
        for (backend, stored) in &stored.loans {
            if let Some(curve) = loaded.loans_mut(backend)
                && let Err(why) = take(curve, backend, stored.cells.clone())
            {
                bad.push((backend.clone(), why));
            }
        }
        for (op, stored) in &stored.ops {
            for (backend, stored) in &stored.backends {
                if let Some(curve) = loaded.curve_mut(op, backend)
                    && let Err(why) = take(curve, backend, stored.cells.clone())
                {
                    bad.push((op.clone(), format!("{why} for `{backend}`")));
                }
            }
            for (backend, stored) in &stored.round_trips {
                if let Some(curve) = loaded.round_trip_mut(op, backend)
                    && let Err(why) = take(curve, backend, stored.cells.clone())
                {
                    bad.push((op.clone(), format!("{why} for data of the host on `{backend}`")));
                }
            }
        }
        if let Some(diagnostic) = FILE.bad_entries(path, &bad) {
            return Err(diagnostic);
        }
        for op in stored.ops.keys() {
            loaded.guess_anew(op);
        }
        for (backend, device) in stored.devices.iter().filter(|_| !foreign) {
            if loaded.device(backend).is_none() {
                loaded.set_device(backend, device);
            }
        }
        *self = loaded;
        Ok(())
    }

    /// Adds what was learnt to the file, atomically, with the crossover points. What other processes learnt about
    /// other ops, backends and sizes stays; where both know a size, the one with more timings stays. When the file would grow too
    /// large to be read again, the ops with the fewest timings go.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Diagnostic> {
        FILE.update(path.as_ref(), |path, present| {
            let mut stored = match present {
                Some(text) => decode(path, FILE.parse(path, &text)?)?,
                None => Stored::default(),
            };
            let backends: Vec<&str> = self.backends().collect();
            for &backend in &backends {
                let Some(device) = self.device(backend) else { continue };
                let known = stored.devices.insert(backend.to_owned(), device.to_owned());
                if known.is_some_and(|known| known != device) {
                    // Times of another device say nothing about this one.
                    stored.moves.remove(backend);
                    stored.loans.remove(backend);
                    for op in stored.ops.values_mut() {
                        op.backends.remove(backend);
                        op.round_trips.remove(backend);
                    }
                }
            }
            for backend in &backends {
                if let Some(curve) = self.moves(backend) {
                    merge(&mut stored.moves, backend, curve, false);
                }
                if let Some(curve) = self.loans(backend) {
                    merge(&mut stored.loans, backend, curve, false);
                }
            }
            for op in self.op_names() {
                let entry = stored.ops.entry(op.to_owned()).or_default();
                for backend in &backends {
                    if let Some((curve, replaced)) = self.curve(op, backend) {
                        merge(&mut entry.backends, backend, curve, replaced);
                        if let Some(curve) = self.round_trip(op, backend) {
                            merge(&mut entry.round_trips, backend, curve, replaced);
                        }
                    }
                }
                entry.crossovers = self.crossovers(op);
            }
            stored.ops.retain(|_, op| !op.backends.is_empty() || !op.round_trips.is_empty());
            let text = |stored: &Stored| {
                toml::to_string(stored)
                    .map(|body| format!("schema = {SCHEMA}\n\n{body}"))
                    .map_err(|error| FILE.problem(FILE.unwritable, path, &format!("can't be written: {error}")))
            };
            let mut written = text(&stored)?;
            while written.len() as u64 > MAX_TABLE_BYTES && !stored.ops.is_empty() {
                let samples = |op: &StoredOp| op.backends.values().map(StoredCurve::samples).sum::<u64>();
                let mut order: Vec<(u64, String)> =
                    stored.ops.iter().map(|(name, op)| (samples(op), name.clone())).collect();
                order.sort();
                order.iter().take(order.len().div_ceil(4)).for_each(|(_, name)| drop(stored.ops.remove(name)));
                written = text(&stored)?;
            }
            Ok(written)
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

fn decode(path: &Path, mut table: toml::Table) -> Result<Stored, Diagnostic> {
    let mut stored = Stored::default();
    let mut bad = Vec::new();
    FILE.check_schema(path, table.remove("schema").as_ref())?;
    for (part, value) in table {
        let toml::Value::Table(entries) = value else {
            bad.push((part, "is not a table".to_owned()));
            continue;
        };
        for (name, value) in entries {
            let unusable = |error: toml::de::Error| (name.clone(), format!("can't be read: {}", error.message()));
            match part.as_str() {
                "devices" => match value {
                    toml::Value::String(device) => drop(stored.devices.insert(name, device)),
                    _ => bad.push((name, "is no device's name".to_owned())),
                },
                "moves" => match value.try_into() {
                    Ok(curve) => drop(stored.moves.insert(name, curve)),
                    Err(error) => bad.push(unusable(error)),
                },
                "loans" => match value.try_into() {
                    Ok(curve) => drop(stored.loans.insert(name, curve)),
                    Err(error) => bad.push(unusable(error)),
                },
                "ops" => match value.try_into() {
                    Ok(op) => drop(stored.ops.insert(name, op)),
                    Err(error) => bad.push(unusable(error)),
                },
                _ => bad.push((part.clone(), "is none of `devices`, `moves`, `loans` and `ops`".to_owned())),
            }
        }
    }
    match FILE.bad_entries(path, &bad) {
        Some(diagnostic) => Err(diagnostic),
        None => Ok(stored),
    }
}
