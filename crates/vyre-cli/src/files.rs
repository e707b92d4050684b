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
        if crate::tune::interrupted_gently() {
            return;
        }
        // The lock is held to the end, so that no file is begun or put in its place meanwhile.
        for path in unfinished().iter() {
            let _ = std::fs::remove_file(path);
        }
        // What comes next on the terminal has a line of its own.
        if std::io::stderr().is_terminal() {
            eprintln!();
        }
        end(INTERRUPTED);
    })
    .map_err(|error| Diagnostic::new(&codes::command::CANT_WRITE, format!("interruptions can't be handled: {error}")))
}

/// Ends the process at once. What drivers have registered for its end takes apart what their own threads still work with: one interrupt
/// of forty ended in a segmentation fault.
#[cfg(unix)]
fn end(code: i32) -> ! {
    signal_hook::low_level::exit(code)
}

#[cfg(not(unix))]
fn end(code: i32) -> ! {
    std::process::exit(code)
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
    /// For standard output.
    Out(Vec<u8>),
}

/// Names of standard output.
pub(crate) fn is_standard_output(path: &Path) -> bool {
    ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].iter().any(|name| path == Path::new(name))
}

/// Where a file is or will be, with links followed, also those that lead to nothing yet.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    if let Ok(place) = std::fs::canonicalize(path) {
        return Ok(place);
    }
    const MOST_LINKS: usize = 40;
    let mut place = path.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(target) = std::fs::read_link(&place) else { break };
        place = place.parent().unwrap_or(Path::new("")).join(target);
    }
    let folder = place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = place.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    Ok(std::fs::canonicalize(folder)?.join(name))
}

/// What tells one file from another, however its name is spelt.
#[derive(PartialEq)]
enum Identity {
    Output,
    #[cfg(unix)]
    Node(u64, u64),
    Place(PathBuf),
    /// A device, a pipe, or what can't be reached: writing it will tell.
    Other,
}

fn identity(path: &Path) -> Identity {
    if is_standard_output(path) {
        return Identity::Output;
    }
    match std::fs::metadata(path) {
        #[cfg(unix)]
        Ok(there) if there.is_file() => {
            use std::os::unix::fs::MetadataExt;
            Identity::Node(there.dev(), there.ino())
        }
        Ok(there) if !there.is_file() => Identity::Other,
        _ => resolve(path).map_or(Identity::Other, Identity::Place),
    }
}

/// Refuses two names for one file, where one would be lost. Each comes with what it is for.
pub(crate) fn distinct(files: &[(String, &Path)]) -> Result<(), Diagnostic> {
    let identities: Vec<Identity> = files.iter().map(|(_, path)| identity(path)).collect();
    for (at, identity) in identities.iter().enumerate() {
        if let Some(before) = identities[..at].iter().position(|other| other == identity && *other != Identity::Other) {
            let message =
                format!("{} and {} are the same file, `{}`", files[before].0, files[at].0, files[at].1.display());
            return Err(Diagnostic::new(&codes::command::CANT_WRITE, message).with_fix("Give each a file of its own."));
        }
    }
    Ok(())
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
        let there = std::fs::metadata(path).ok();
        if there.as_ref().is_some_and(std::fs::Metadata::is_dir) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let is_out = is_standard_output(path);
        if is_out || there.as_ref().is_some_and(|there| !there.is_file()) {
            let mut bytes = Vec::new();
            let done = write(&mut bytes)?;
            self.staged.push(if is_out { Staged::Out(bytes) } else { Staged::Through(path.to_owned(), bytes) });
            return Ok(done);
        }
        let place = resolve(path)?;
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
        if let Some(there) = &there
            && !inherit(&file, there)
        {
            // Only writing through the file keeps whose it is.
            let bytes = std::fs::read(file.path())?;
            OpenOptions::new().write(true).open(&place)?;
            self.staged.push(Staged::Through(place, bytes));
            return Ok(done);
        }
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
                Staged::Through(place, bytes) => {
                    write_through(&place, &bytes).map_err(|error| cant_write(&place, &error))?;
                }
                Staged::Out(bytes) => {
                    let mut out = io::stdout().lock();
                    match out.write_all(&bytes).and_then(|()| out.flush()) {
                        // Whoever reads has seen enough.
                        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                        done => done.map_err(|error| cant_write(Path::new("-"), &error))?,
                    }
                }
            }
        }
        unfinished.clear();
        Ok(())
    }
}

/// The new file gets the old one's owner, group and mode; false where it may not.
#[cfg(unix)]
fn inherit(file: &NamedTempFile, old: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::{MetadataExt, fchown};
    let new = file.as_file().metadata();
    let same = new.is_ok_and(|new| (new.uid(), new.gid()) == (old.uid(), old.gid()));
    (same || fchown(file.as_file(), Some(old.uid()), Some(old.gid())).is_ok())
        && file.as_file().set_permissions(old.permissions()).is_ok()
}

#[cfg(not(unix))]
fn inherit(_: &NamedTempFile, _: &std::fs::Metadata) -> bool {
    true
}

/// Writes into what is there: a device, a pipe, somebody else's file.
fn write_through(place: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true);
    let is_file = std::fs::metadata(place)?.is_file();
    options.truncate(is_file);
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if std::fs::metadata(place)?.file_type().is_fifo() {
            return crate::pipe::write(place, bytes);
        }
    }
    options.open(place)?.write_all(bytes)
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

    #[cfg(unix)]
    #[test]
    fn a_replaced_file_keeps_its_mode_and_a_link_to_nothing_is_followed() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let [file, link, new] = ["file", "link", "new"].map(|name| folder.path().join(name));
        std::fs::write(&file, "before").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        let owned = std::os::unix::fs::chown(&file, Some(12), Some(34)).is_ok();
        replace(&file, b"after".to_vec()).unwrap();
        let there = std::fs::metadata(&file).unwrap();
        assert_eq!(there.mode() & 0o7777, 0o640);
        assert!(!owned || (there.uid(), there.gid()) == (12, 34));
        symlink("new", &link).unwrap();
        replace(&link, b"made".to_vec()).unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&new).unwrap(), b"made");
    }

    #[cfg(unix)]
    #[test]
    fn one_file_has_one_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("old"), "x").unwrap();
        std::fs::hard_link(path("old"), path("hard")).unwrap();
        std::fs::create_dir(path("sub")).unwrap();
        std::os::unix::fs::symlink("new", path("link")).unwrap();
        let same = |a: &Path, b: &Path| distinct(&[("one".to_owned(), a), ("other".to_owned(), b)]).is_err();
        assert!(same(&path("old"), &path("hard")));
        assert!(same(&path("new"), &path("sub/../new")));
        assert!(same(&path("link"), &path("new")));
        assert!(same(Path::new("-"), Path::new("/dev/stdout")));
        assert!(!same(&path("old"), &path("new")));
        assert!(!same(Path::new("/dev/null"), Path::new("/dev/null")));
    }
}
