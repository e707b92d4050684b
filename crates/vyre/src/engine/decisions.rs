//! What was decided, for its owner: to look at, to forget, to pin and to freeze.

use std::path::{Path, PathBuf};

use vyre_driver::tuner::{Decision, Lock, Mode, Tuner};
use vyre_spec::{Diagnostic, codes};

use super::Engine;
use crate::Error;

/// The decisions that an engine uses and keeps, of every device that it has met, also in other processes.
pub struct Decisions<'a> {
    engine: &'a Engine,
}

/// A decision and where it is kept.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Decided {
    /// What it is called, `v1-` and 64 hex digits.
    pub key: String,
    /// The device that it is for.
    pub adapter: String,
    /// How to launch, and why.
    pub decision: Decision,
}

impl<'a> Decisions<'a> {
    pub(super) fn new(engine: &'a Engine) -> Decisions<'a> {
        Decisions { engine }
    }

    /// Every launch that was decided, by device and program. With a lock file it is what that says.
    pub fn launches(&self) -> Result<Vec<Decided>, Error> {
        let mut found = Vec::new();
        if let Some(lock) = self.engine.inner.tuning.lock_file() {
            for (adapter, launches) in &lock.launches {
                for (key, decision) in launches {
                    let (key, adapter) = (key.clone(), adapter.clone());
                    found.push(Decided { key, adapter, decision: decision.clone() });
                }
            }
        } else {
            self.each_tuner(|adapter, tuner| {
                for (key, decision) in tuner.decisions() {
                    let (key, adapter) = (key.to_owned(), adapter.to_owned());
                    found.push(Decided { key, adapter, decision: decision.clone() });
                }
                Ok(())
            })?;
        }
        found.sort_by(|a, b| {
            let order =
                |one: &Decided| (one.adapter.clone(), one.decision.subject.program.clone(), one.decision.subject.grid);
            order(a).cmp(&order(b)).then_with(|| a.key.cmp(&b.key))
        });
        Ok(found)
    }

    /// The launches that were decided for the device of a backend.
    pub fn on(&self, backend: &str) -> Result<Vec<Decided>, Error> {
        let backend = self.engine.inner.registry.acquire(backend)?;
        // This opens the file, so that one that can't be used is told.
        self.engine.inner.tuning.on_tuner(&*backend, |_| ());
        let adapter = super::tuning::adapter_stem(&*backend);
        Ok(self.launches()?.into_iter().filter(|decided| decided.adapter == adapter).collect())
    }

    /// The decisions that a word means: a key, the beginning of one, or the name of a program. An unknown one is an error.
    pub fn find(&self, word: &str) -> Result<Vec<Decided>, Error> {
        let mut found = self.launches()?;
        let is_key = |decided: &Decided| {
            let digits = decided.key.strip_prefix("v1-").unwrap_or(&decided.key);
            word.len() >= 4 && (decided.key.starts_with(word) || digits.starts_with(word))
        };
        found.retain(|decided| decided.decision.subject.program == word || is_key(decided));
        if found.is_empty() {
            let message = format!("no decision is called `{word}`");
            return Err(Diagnostic::new(&codes::tuner::UNKNOWN_DECISION, message).into());
        }
        Ok(found)
    }

    /// Forgets the decisions that a word means, as [`Decisions::find`] takes it; how many.
    pub fn forget(&self, word: &str) -> Result<usize, Error> {
        self.change("a decision is to be forgotten", word, |tuner, key| tuner.forget(key))
    }

    /// Pins the decisions that a word means, so that they are used as they are and never measured again, or lets them go; how many.
    pub fn pin(&self, word: &str, pinned: bool) -> Result<usize, Error> {
        self.change("a decision is to be pinned", word, |tuner, key| tuner.pin(key, pinned))
    }

    /// What is used now, as the contents of a lock file.
    pub fn freeze(&self) -> Result<Lock, Error> {
        let mut lock = Lock { routes: self.engine.inner.routes.spans(), ..Lock::default() };
        for Decided { key, adapter, mut decision } in self.launches()? {
            // What else was measured is of no use to who never measures.
            decision.rivals.clear();
            decision.evidence.timings.clear();
            decision.evidence.rejected.clear();
            lock.launches.entry(adapter).or_default().insert(key, decision);
        }
        Ok(lock)
    }

    fn change(&self, what: &str, word: &str, work: impl Fn(&mut Tuner, &str) -> bool) -> Result<usize, Error> {
        self.engine.inner.tuning.check_unlocked(what)?;
        let found = self.find(word)?;
        let mut changed = 0;
        self.each_tuner(|adapter, tuner| {
            for decided in found.iter().filter(|decided| decided.adapter == adapter) {
                changed += usize::from(work(tuner, &decided.key));
            }
            if tuner.is_changed() { tuner.save() } else { Ok(()) }
        })?;
        Ok(changed)
    }

    /// Works on every tuner: those in use, and those of files that are not.
    fn each_tuner(&self, mut work: impl FnMut(&str, &mut Tuner) -> Result<(), Diagnostic>) -> Result<(), Error> {
        let tuning = &self.engine.inner.tuning;
        let mut seen: Vec<PathBuf> = Vec::new();
        tuning.each_open(|adapter, tuner| {
            seen.push(tuner.path().to_owned());
            work(adapter, tuner)
        })?;
        let Some(folder) = tuning.folder() else { return Ok(()) };
        let Ok(entries) = std::fs::read_dir(&folder) else { return Ok(()) };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "toml")) {
            if seen.contains(&path) {
                continue;
            }
            let mut tuner = Tuner::at(&path, Mode::OffUseDefault);
            if let Some(problem) = tuner.load_error() {
                tuning.tell(problem.clone());
                continue;
            }
            work(stem(&path), &mut tuner)?;
        }
        Ok(())
    }
}

fn stem(path: &Path) -> &str {
    path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default()
}
