//! Files that appear whole or not at all, also when the command is interrupted while it writes them.

use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::NamedTempFile;
use vyre::{Diagnostic, codes};

/// Files that are being written under another name.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The exit code of an interrupted command, as shells have it.
pub(crate) const INTERRUPTED: i32 = 130;

/// From here on, an interrupted command takes its unfinished files with it.
pub(crate) fn clean_up_when_interrupted() -> Result<(), Diagnostic> {
    ctrlc::set_handler(|| {
        // The lock is held to the end, so that no file is begun or put in its place meanwhile.
        for path in unfinished().iter() {
            let _ = std::fs::remove_file(path);
        }
        // What comes next on the terminal has a line of its own.
        if std::io::stderr().is_terminal() {
            eprintln!();
        }
        std::process::exit(INTERRUPTED);
    })
    .map_err(|error| Diagnostic::new(&codes::command::CANT_WRITE, format!("interruptions can't be handled: {error}")))
}

/// Results on their way to their files. Nothing is in its place before [`Outbox::deliver`], and then everything is.
#[derive(Default)]
pub(crate) struct Outbox {
    staged: Vec<Staged>,
}

enum Staged {
    /// Written beside its place.
    Beside(NamedTempFile, PathBuf),
    /// For what is no plain file: a device, a pipe.
    Through(PathBuf, Vec<u8>),
}

impl Outbox {
    /// Writes a file beside its place.
    pub(crate) fn stage(&mut self, path: &Path, bytes: Vec<u8>) -> Result<(), Diagnostic> {
        self.stage_with(path, |file| file.write_all(&bytes))
    }

    /// [`Outbox::stage`] for what is not in memory as a whole.
    pub(crate) fn stage_with<T>(
        &mut self,
        path: &Path,
        write: impl FnOnce(&mut dyn Write) -> io::Result<T>,
    ) -> Result<T, Diagnostic> {
        self.try_stage(path, write).map_err(|error| cant_write(path, &error))
    }

    fn try_stage<T>(&mut self, path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<T>) -> io::Result<T> {
        // Where the name is a link, the file behind it is meant.
        let place = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        match std::fs::metadata(&place) {
            Ok(there) if there.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            Ok(there) if !there.is_file() => {
                let mut bytes = Vec::new();
                let done = write(&mut bytes)?;
                self.staged.push(Staged::Through(place, bytes));
                return Ok(done);
            }
            _ => {}
        }
        let folder = place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut builder = tempfile::Builder::new();
        builder.prefix(".vyre-");
        // Results are for everyone that the user's umask lets in, unlike other temporary files.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let mut file = {
            let mut unfinished = unfinished();
            let file = builder.tempfile_in(folder)?;
            unfinished.push(file.path().to_owned());
            file
        };
        let done = write(&mut file)?;
        file.as_file().sync_all()?;
        self.staged.push(Staged::Beside(file, place));
        Ok(done)
    }

    /// Puts everything in its place.
    pub(crate) fn deliver(self) -> Result<(), Diagnostic> {
        let mut unfinished = unfinished();
        for staged in self.staged {
            match staged {
                Staged::Beside(file, place) => {
                    file.persist(&place).map_err(|error| cant_write(&place, &error.error))?;
                }
                Staged::Through(place, bytes) => OpenOptions::new()
                    .write(true)
                    .open(&place)
                    .and_then(|mut file| file.write_all(&bytes))
                    .map_err(|error| cant_write(&place, &error))?,
            }
        }
        unfinished.clear();
        Ok(())
    }
}

/// One file.
pub(crate) fn replace(path: &Path, bytes: Vec<u8>) -> Result<(), Diagnostic> {
    let mut outbox = Outbox::default();
    outbox.stage(path, bytes)?;
    outbox.deliver()
}

fn cant_write(path: &Path, error: &io::Error) -> Diagnostic {
    // What refused to be written may have said more than the system does.
    match vyre::diagnostics::inside(error) {
        Some(diagnostic) => diagnostic.clone(),
        None => {
            // The name that it was to have meanwhile says nothing to the user.
            let error = error.to_string();
            let why = error.split_once(" at path ").map_or(error.as_str(), |(why, _)| why);
            Diagnostic::new(&codes::command::CANT_WRITE, format!("`{}` can't be written: {why}", path.display()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_in_its_place_before_delivery_and_nothing_is_left_of_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let [old, new] = ["old.bin", "new.bin"].map(|name| folder.path().join(name));
        std::fs::write(&old, "before").unwrap();
        let mut outbox = Outbox::default();
        outbox.stage(&old, b"after".to_vec()).unwrap();
        outbox.stage(&new, b"new".to_vec()).unwrap();
        assert_eq!(std::fs::read(&old).unwrap(), b"before");
        assert!(!new.exists());
        let refused = outbox.stage(&folder.path().join("absent/x.bin"), b"x".to_vec()).unwrap_err();
        assert_eq!(refused.code.id, codes::command::CANT_WRITE.id);
        drop(outbox);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn links_and_devices_stay_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| folder.path().join(name));
        std::fs::write(&file, "before").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        replace(&link, b"after".to_vec()).unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"after");
        assert!(link.is_symlink());
        replace(Path::new("/dev/null"), b"gone".to_vec()).unwrap();
        assert!(!Path::new("/dev/null").is_file());
        assert!(replace(folder.path(), b"x".to_vec()).is_err());
    }
}
