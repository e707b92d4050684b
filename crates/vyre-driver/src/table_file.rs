//! How a table of decisions lives in one TOML file that many processes share: bounded reads, and updates that lock, read,
//! merge and replace, so that a reader sees a whole old file or a whole new one and no process loses another's decisions.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use vyre_spec::codes::Code;
use vyre_spec::{Diagnostic, codes};

/// More than any sane table holds; what is larger is not read at all.
pub(crate) const MAX_TABLE_BYTES: u64 = 4 * 1024 * 1024;

/// The version of every table's form; raised when an older vyre could not read what is written.
pub(crate) const SCHEMA: u32 = 1;

/// A file whose lock is held.
struct Locked {
    path: PathBuf,
    folder: PathBuf,
    name: std::ffi::OsString,
    _lock: File,
}

/// The words and codes with which one kind of table speaks of its file.
pub(crate) struct TableFile {
    /// What the file is, such as `tuner cache`.
    pub(crate) what: &'static str,
    pub(crate) unreadable: Code,
    pub(crate) too_large: Code,
    pub(crate) invalid: Code,
    pub(crate) entry: Code,
    pub(crate) unwritable: Code,
}

impl TableFile {
    /// The file's text; `None` when there is no file.
    pub(crate) fn read(&self, path: &Path) -> Result<Option<String>, Diagnostic> {
        let unreadable = |error: io::Error| self.problem(self.unreadable, path, &format!("can't be read: {error}"));
        // Looked at before it is opened, because opening a pipe would wait for its other end.
        match fs::metadata(path) {
            Ok(metadata) if !metadata.is_file() => {
                return Err(self.problem(self.unreadable, path, "is not a plain file"));
            }
            Ok(metadata) if metadata.len() > MAX_TABLE_BYTES => return Err(self.oversized(path, metadata.len())),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(error)),
        }
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unreadable(error)),
        };
        let mut bytes = Vec::new();
        file.take(MAX_TABLE_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > MAX_TABLE_BYTES {
            return Err(self.oversized(path, bytes.len() as u64));
        }
        String::from_utf8(bytes).map(Some).map_err(|_| self.problem(self.invalid, path, "is not UTF-8 text"))
    }

    /// The file as a TOML table; empty when there is no file.
    pub(crate) fn read_toml(&self, path: &Path) -> Result<toml::Table, Diagnostic> {
        match self.read(path)? {
            Some(text) => self.parse(path, &text),
            None => Ok(toml::Table::new()),
        }
    }

    /// Text as a TOML table.
    pub(crate) fn parse(&self, path: &Path, text: &str) -> Result<toml::Table, Diagnostic> {
        text.parse::<toml::Table>().map_err(|error| {
            // The error's own text shows the line; one sentence of it is enough here.
            let place = error.span().map_or(0, |span| text[..span.start.min(text.len())].matches('\n').count()) + 1;
            self.problem(self.invalid, path, &format!("is not valid TOML at line {place}: {}", error.message()))
        })
    }

    /// Replaces the file by what `merge` makes of its present text, while no other process does the same. At every instant,
    /// also after a power loss, the file is whole: the old one or the new one. When this returns, no killed process can
    /// undo it.
    pub(crate) fn update(
        &self,
        path: &Path,
        merge: impl FnOnce(&Path, Option<String>) -> Result<String, Diagnostic>,
    ) -> Result<(), Diagnostic> {
        let unwritable = |step: &str, error: io::Error| {
            self.problem(self.unwritable, path, &format!("can't be written: {step}: {error}"))
        };
        let Locked { path, folder, name, _lock } = &self.lock(path)?;
        let text = merge(path, self.read(path)?)?;
        if text.len() as u64 > MAX_TABLE_BYTES {
            return Err(self.oversized(path, text.len() as u64));
        }
        // Only the holder of the lock writes this file, so one that is already there was abandoned by a process that died.
        let temporary = sibling(folder, name, "tmp");
        let install = || -> io::Result<()> {
            match fs::remove_file(&temporary) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = private(OpenOptions::new().write(true).create_new(true)).open(&temporary)?;
            file.write_all(text.as_bytes())?;
            // Before the rename, or a power loss could leave the new name with half of the data.
            file.sync_data()?;
            drop(file);
            fs::rename(&temporary, path)
        };
        install().map_err(|error| {
            // A disk that is full should not keep half a file; the first error is the one that counts.
            let _ = fs::remove_file(&temporary);
            unwritable("replacing it", error)
        })
    }

    /// Moves a file out of the way whose contents can't be used, so that a new one can begin; `problem` is what `check` says of it.
    /// What comes back is that problem as a warning with where the file is now. A file that can't be read at all, or that a newer
    /// vyre has written, stays where it is.
    pub(crate) fn set_aside(
        &self,
        path: &Path,
        mut problem: Diagnostic,
        check: impl FnOnce(&Path) -> Result<(), Diagnostic>,
    ) -> Diagnostic {
        let corrupt = |problem: &Diagnostic| {
            [self.too_large, self.invalid, self.entry].iter().any(|code| std::ptr::eq(*code, problem.code))
        };
        problem.severity = problem.severity.min(vyre_spec::Severity::Warning);
        if !corrupt(&problem) {
            return problem;
        }
        let Ok(Locked { path, folder, name, _lock }) = &self.lock(path) else { return problem };
        // Another process may have done the same meanwhile and begun anew.
        if check(path).is_err_and(|now| corrupt(&now)) {
            let mut aside = name.clone();
            aside.push(".corrupt");
            let aside = folder.join(aside);
            if fs::rename(path, &aside).is_ok() {
                problem.message += &format!("; it was set aside as `{}`", aside.display());
            }
        }
        problem
    }

    /// Refuses what a newer vyre has written; `schema` is what the file says, if it does.
    pub(crate) fn check_schema(&self, path: &Path, schema: Option<&toml::Value>) -> Result<(), Diagnostic> {
        match schema.map(|schema| schema.as_integer()) {
            None => Ok(()),
            Some(Some(version)) if (1..=i64::from(SCHEMA)).contains(&version) => Ok(()),
            Some(Some(version)) if version > i64::from(SCHEMA) => Err(self.problem(
                &codes::tuner::SCHEMA,
                path,
                &format!("has schema {version}; this vyre knows up to {SCHEMA}"),
            )),
            Some(_) => Err(self.problem(self.invalid, path, "has a schema that is no version")),
        }
    }

    /// Takes the lock of a file, in a folder that is made if it is not there.
    fn lock(&self, path: &Path) -> Result<Locked, Diagnostic> {
        let unwritable = |step: &str, error: io::Error| {
            self.problem(self.unwritable, path, &format!("can't be written: {step}: {error}"))
        };
        // Where the name is a link, the file behind it is meant, and every name of that file must share one lock.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let name = path
            .file_name()
            .ok_or_else(|| self.problem(self.unwritable, &path, "can't be written: the path names no file"))?
            .to_owned();
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        create_private_folder(&folder).map_err(|error| unwritable("making its folder", error))?;
        // The lock is a file of its own, because the table's file is replaced while the lock is held.
        let lock = private(OpenOptions::new().write(true).create(true).truncate(false))
            .open(sibling(&folder, &name, "lock"))
            .map_err(|error| unwritable("opening its lock", error))?;
        lock.lock().map_err(|error| unwritable("locking", error))?;
        Ok(Locked { path, folder, name, _lock: lock })
    }

    /// A diagnostic that names the file.
    pub(crate) fn problem(&self, code: Code, path: &Path, what: &str) -> Diagnostic {
        Diagnostic::new(code, format!("the {} `{}` {what}", self.what, path.display()))
    }

    /// Names every entry that can't be used; `None` when there is none.
    pub(crate) fn bad_entries(&self, path: &Path, bad: &[(String, String)]) -> Option<Diagnostic> {
        const SHOWN: usize = 8;
        if bad.is_empty() {
            return None;
        }
        let mut shown: Vec<String> =
            bad.iter().take(SHOWN).map(|(name, why)| format!("entry {} {why}", quoted(name))).collect();
        if bad.len() > SHOWN {
            shown.push(format!("and {} more", bad.len() - SHOWN));
        }
        Some(self.problem(self.entry, path, &format!("has entries that can't be used: {}", shown.join("; "))))
    }

    fn oversized(&self, path: &Path, bytes: u64) -> Diagnostic {
        self.problem(
            self.too_large,
            path,
            &format!("has or would have {bytes} bytes, over the {MAX_TABLE_BYTES} allowed"),
        )
    }
}

/// A string as a TOML basic string on one line.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The absolute path in an environment variable, else `$HOME/<otherwise>`, else `<otherwise>` below the working folder.
pub(crate) fn user_folder(variable: &str, otherwise: &str) -> PathBuf {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(variable).unwrap_or_else(|| absolute("HOME").unwrap_or_default().join(otherwise))
}

fn sibling(folder: &Path, name: &std::ffi::OsStr, ending: &str) -> PathBuf {
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(".");
    hidden.push(ending);
    folder.join(hidden)
}

#[cfg(unix)]
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    options.mode(0o600)
}

#[cfg(not(unix))]
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

fn create_private_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}
