//! Warm packs of everything that an engine has compiled and learnt.

use std::io::{Read, Write};

use vyre_driver::pipeline::{DiskPipelineCache, PackContents, PackKey};
use vyre_driver::tuner::{Mode, Tuner};
use vyre_spec::{Diagnostic, codes};

use super::Engine;
use crate::Error;

/// The name of what the router has learnt among a pack's files.
const ROUTES: &str = "routes.toml";

/// What went into a pack or came out of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PackReport {
    /// Compiled pipelines.
    pub pipelines: u64,
    /// Tuning decisions.
    pub decisions: u64,
    /// Whether the router's knowledge is in it.
    pub routes: bool,
}

impl Engine {
    /// Writes everything that was compiled, decided and learnt into one file for other machines.
    pub fn export_pack(&self, out: impl Write, key: PackKey<'_>) -> Result<PackReport, Error> {
        self.flush()?;
        let disk = self.disk_of_packs()?;
        let mut contents = PackContents::default();
        let mut report = PackReport::default();
        for path in self.inner.tuning.folder().into_iter().flat_map(|folder| std::fs::read_dir(folder).into_iter()) {
            for entry in path.flatten().filter(|entry| entry.path().extension().is_some_and(|ending| ending == "toml"))
            {
                let tuner = Tuner::at(entry.path(), Mode::OffUseDefault);
                if let Some(problem) = tuner.load_error() {
                    return Err(problem.clone().into());
                }
                report.decisions += tuner.decisions().count() as u64;
                let bytes = std::fs::read(entry.path()).map_err(|error| unusable("a table can't be read", &error))?;
                contents.decisions.push((entry.file_name().to_string_lossy().into_owned(), bytes));
            }
        }
        contents.decisions.sort();
        if let Some(bytes) = self.inner.routes.path().and_then(|path| std::fs::read(path).ok()) {
            contents.decisions.push((ROUTES.to_owned(), bytes));
            report.routes = true;
        }
        report.pipelines =
            disk.export(out, &contents, key).map_err(|error| unusable("the pack can't be made", &error))?;
        Ok(report)
    }

    /// Takes in what another machine has exported, after checking every record: pipelines go to the cache, decisions and routes are merged
    /// with those that are here. Pipelines are executed later, so import without a key only what you trust.
    pub fn import_pack(&self, pack: impl Read, key: PackKey<'_>) -> Result<PackReport, Error> {
        let disk = self.disk_of_packs()?;
        let (pipelines, contents) =
            disk.import(pack, key).map_err(|error| unusable("the pack can't be imported", &error))?;
        let mut report = PackReport { pipelines, ..PackReport::default() };
        for (name, bytes) in contents.decisions {
            let text = String::from_utf8(bytes)
                .map_err(|_| Diagnostic::new(&codes::cache::BAD_PACK, format!("bad pack: `{name}` is not text")))?;
            if name == ROUTES {
                self.inner.routes.merge(&name, &text)?;
                report.routes = true;
            } else if let Some(folder) = self.inner.tuning.folder() {
                if std::path::Path::new(&name).file_name() != Some(std::ffi::OsStr::new(&name)) {
                    let message = format!("bad pack: `{name}` is not the name of a file");
                    return Err(Diagnostic::new(&codes::cache::BAD_PACK, message).into());
                }
                let theirs = Tuner::from_text(&name, &text)?;
                let mut ours = Tuner::at(folder.join(&name), Mode::OffUseDefault);
                for (key, decision) in theirs.decisions() {
                    ours.merge(key, decision.clone());
                    report.decisions += 1;
                }
                ours.save()?;
            }
        }
        Ok(report)
    }

    fn disk_of_packs(&self) -> Result<&DiskPipelineCache, Error> {
        let none = || {
            Diagnostic::new(&codes::engine::NO_DISK_CACHE, "there is no pipeline cache on disk to pack from or into")
        };
        Ok(self.inner.pipelines.disk().ok_or_else(none)?)
    }
}

/// The diagnostic inside an error of the cache, or one that says what was being done.
fn unusable(what: &str, error: &std::io::Error) -> Diagnostic {
    let told = vyre_driver::diagnostics::inside(error).cloned();
    told.unwrap_or_else(|| Diagnostic::new(&codes::cache::IO, format!("{what}: {error}")))
}
