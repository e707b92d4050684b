//! The few file operations that the disk cache is made of, so that crashes, full disks and I/O errors can be put under it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

#[cfg(unix)]
use vyre_spec::{Diagnostic, codes};

/// What reading a path found.
#[derive(Debug)]
pub enum Found {
    /// A plain file.
    File {
        /// All of it.
        bytes: Vec<u8>,
        /// When it was last used.
        modified: SystemTime,
    },
    /// A link, folder, pipe or device; it was not read.
    NotPlain,
    /// A file over the limit; it was not read.
    TooLarge,
}

/// What a folder holds.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Name in its folder.
    pub name: String,
    /// A plain file, not a link.
    pub plain: bool,
    /// Size.
    pub bytes: u64,
    /// When it was last used.
    pub modified: SystemTime,
}

/// A file that is held open and locked, so that it is not taken for abandoned.
#[derive(Debug, Default)]
pub struct Lock {
    file: Option<File>,
}

/// File operations under one root. Paths are relative, with `/`; the root itself is the empty path.
pub trait Storage: Send + Sync {
    /// Things can be written.
    fn writable(&self) -> bool;

    /// Reads a whole file of at most `limit` bytes. Never follows a link, never blocks on a pipe, and allocates only for what
    /// is there.
    fn read(&self, path: &str, limit: u64) -> io::Result<Found>;

    /// Only this user can have read or written a file. Storages without users say yes.
    fn is_private(&self, path: &str) -> io::Result<bool> {
        let _ = path;
        Ok(true)
    }

    /// Creates a new file of these parts, readable by its owner only.
    fn create(&self, path: &str, parts: &[&[u8]]) -> io::Result<Lock>;

    /// Returns when the data of a file just created is on the disk.
    fn sync_file(&self, path: &str, created: &Lock) -> io::Result<()>;

    /// Adds to the end of a file, which is created where there is none, and gives its length. Whole records of several
    /// processes don't mix.
    fn append(&self, path: &str, record: &[u8]) -> io::Result<u64>;

    /// Puts a file in another's place at one instant.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Gives a file a second name, which must be free.
    fn link(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file, a link, or a folder that was put aside.
    fn remove(&self, path: &str) -> io::Result<()>;

    /// Makes a folder unless it is there, and says whether it was made. Anything there but a real folder is an error of
    /// kind `NotADirectory`.
    fn make_dir(&self, path: &str) -> io::Result<bool>;

    /// Returns when the names in a folder are on the disk.
    fn sync_dir(&self, path: &str) -> io::Result<()>;

    /// What a folder holds; nothing when there is none.
    fn list(&self, path: &str) -> io::Result<Vec<Stored>>;

    /// Marks a file as used now.
    fn touch(&self, path: &str) -> io::Result<()>;

    /// Locks a file, which is created where there is none; `None` when another process or thread holds it.
    fn try_lock(&self, path: &str) -> io::Result<Option<Lock>>;
}

/// [`Storage`] on the file system.
#[derive(Debug)]
pub struct FileStorage {
    root: PathBuf,
    #[cfg(target_os = "linux")]
    folder: File,
    writable: bool,
}

impl FileStorage {
    /// Opens a folder, and makes it where there is none. Refuses one that others could put code into.
    pub fn open(root: &Path) -> io::Result<Self> {
        match fs::metadata(root) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                folder_builder(true).create(root)?;
                if let Some(parent) = root.parent() {
                    sync_folder(parent)?;
                }
            }
            Err(error) => return Err(error),
        }
        let metadata = fs::metadata(root)?;
        if !metadata.is_dir() {
            return Err(io::Error::new(io::ErrorKind::NotADirectory, format!("{} is not a folder", root.display())));
        }
        let writable = check_private(root, &metadata)?;
        Ok(FileStorage {
            root: root.to_owned(),
            #[cfg(target_os = "linux")]
            folder: File::open(root)?,
            writable,
        })
    }

    /// Opens a file for reading; `None` when it or its folder is a link or no file.
    fn open_entry(&self, path: &str) -> io::Result<Option<File>> {
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::{Mode, OFlags, ResolveFlags};
            // One call that can't be led outside the folder. Kernels and sandboxes without it, and a folder that was
            // replaced since it was opened, go the long way.
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            if let Ok(file) = rustix::fs::openat2(&self.folder, path, flags, Mode::empty(), resolve) {
                return Ok(Some(file.into()));
            }
        }
        if let Some((folder, _)) = path.rsplit_once('/')
            && !fs::symlink_metadata(self.path(folder))?.is_dir()
        {
            return Ok(None);
        }
        let file = private(OpenOptions::new().read(true)).open(self.path(path))?;
        // Where links can't be refused by a flag they are looked for.
        if cfg!(not(unix)) && !fs::symlink_metadata(self.path(path))?.is_file() {
            return Ok(None);
        }
        Ok(Some(file))
    }

    fn path(&self, path: &str) -> PathBuf {
        if path.is_empty() { self.root.clone() } else { self.root.join(path) }
    }
}

impl Storage for FileStorage {
    fn writable(&self) -> bool {
        self.writable
    }

    fn read(&self, path: &str, limit: u64) -> io::Result<Found> {
        let file = match self.open_entry(path) {
            Ok(Some(file)) => file,
            Ok(None) => return Ok(Found::NotPlain),
            Err(error) if is_link_error(&error) => return Ok(Found::NotPlain),
            Err(error) => return Err(error),
        };
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Ok(Found::NotPlain);
        }
        if metadata.len() > limit {
            return Ok(Found::TooLarge);
        }
        let modified = metadata.modified()?;
        let mut bytes = Vec::with_capacity(metadata.len() as usize);
        // A file that grows meanwhile is cut at the size that was checked; it then fails its digest.
        file.take(metadata.len()).read_to_end(&mut bytes)?;
        Ok(Found::File { bytes, modified })
    }

    #[cfg(unix)]
    fn is_private(&self, path: &str) -> io::Result<bool> {
        use std::os::unix::fs::MetadataExt;
        let metadata = fs::symlink_metadata(self.path(path))?;
        Ok(metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o077 == 0)
    }

    fn create(&self, path: &str, parts: &[&[u8]]) -> io::Result<Lock> {
        let mut file = private(OpenOptions::new().write(true).create_new(true)).open(self.path(path))?;
        // Without the lock a sweep could only guess whether the file is abandoned; file systems that have no locks lose
        // nothing but that, and a swept file is written again.
        let _ = file.try_lock();
        for part in parts {
            file.write_all(part)?;
        }
        Ok(Lock { file: Some(file) })
    }

    fn sync_file(&self, _path: &str, created: &Lock) -> io::Result<()> {
        created.file.as_ref().map_or(Ok(()), File::sync_data)
    }

    fn append(&self, path: &str, record: &[u8]) -> io::Result<u64> {
        let mut file = private(OpenOptions::new().append(true).create(true)).open(self.path(path))?;
        file.write_all(record)?;
        Ok(file.metadata()?.len())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        fs::hard_link(self.path(from), self.path(to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let path = self.path(path);
        match fs::remove_file(&path) {
            // A folder can only be something that was put aside.
            Err(_) if fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir()) => fs::remove_dir_all(&path),
            result => result,
        }
    }

    fn make_dir(&self, path: &str) -> io::Result<bool> {
        let folder = self.path(path);
        match folder_builder(false).create(&folder) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if fs::symlink_metadata(&folder)?.is_dir() {
                    return Ok(false);
                }
                Err(io::Error::new(io::ErrorKind::NotADirectory, format!("{} is not a folder", folder.display())))
            }
            Err(error) => Err(error),
        }
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        sync_folder(&self.path(path))
    }

    fn list(&self, path: &str) -> io::Result<Vec<Stored>> {
        let folder = self.path(path);
        let entries = match fs::symlink_metadata(&folder) {
            Ok(metadata) if metadata.is_dir() => fs::read_dir(&folder)?,
            Ok(_) => return Ok(Vec::new()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut stored = Vec::new();
        for entry in entries {
            let entry = entry?;
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                // Removed by another process since the folder was read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let Ok(name) = entry.file_name().into_string() else { continue };
            let modified = metadata.modified()?;
            stored.push(Stored { name, plain: metadata.is_file(), bytes: metadata.len(), modified });
        }
        Ok(stored)
    }

    fn touch(&self, path: &str) -> io::Result<()> {
        private(OpenOptions::new().append(true)).open(self.path(path))?.set_modified(SystemTime::now())
    }

    fn try_lock(&self, path: &str) -> io::Result<Option<Lock>> {
        let file = private(OpenOptions::new().append(true).create(true)).open(self.path(path))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock { file: Some(file) })),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }
}

#[cfg(unix)]
fn refusal(code: codes::Code, message: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, Diagnostic::new(code, message))
}

/// Refuses a folder that someone else owns or may write to; says whether we may write, and closes it to readers if so.
#[cfg(unix)]
fn check_private(root: &Path, metadata: &fs::Metadata) -> io::Result<bool> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        let message = format!("the cache folder {} belongs to user {}", root.display(), metadata.uid());
        return Err(refusal(&codes::cache::FOREIGN_OWNER, message));
    }
    let mode = metadata.mode() & 0o7777;
    if mode & 0o022 != 0 {
        let message = format!("other users can write to the cache folder {} (mode {mode:03o})", root.display());
        return Err(refusal(&codes::cache::NOT_PRIVATE, message));
    }
    // The bit counts even for root, who could write anyway: whoever took it away wants no writing.
    let writable = mode & 0o200 != 0 && rustix::fs::access(root, rustix::fs::Access::WRITE_OK).is_ok();
    if writable && mode & 0o077 != 0 {
        fs::set_permissions(root, fs::Permissions::from_mode(0o700))?;
    }
    Ok(writable)
}

#[cfg(not(unix))]
fn check_private(_root: &Path, metadata: &fs::Metadata) -> io::Result<bool> {
    // Folders under the user's profile are private by their access lists there.
    Ok(!metadata.permissions().readonly())
}

#[cfg(unix)]
fn folder_builder(recursive: bool) -> fs::DirBuilder {
    use std::os::unix::fs::DirBuilderExt;
    let mut builder = fs::DirBuilder::new();
    builder.recursive(recursive).mode(0o700);
    builder
}

#[cfg(not(unix))]
fn folder_builder(recursive: bool) -> fs::DirBuilder {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(recursive);
    builder
}

/// Files are readable by their owner only, and links are not followed.
#[cfg(unix)]
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    options.mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
}

#[cfg(not(unix))]
fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

#[cfg(unix)]
fn is_link_error(error: &io::Error) -> bool {
    // A link where none may be, a socket, or a device without driver.
    matches!(error.raw_os_error(), Some(libc::ELOOP | libc::ENXIO | libc::ENOTDIR | libc::ENODEV))
}

#[cfg(not(unix))]
fn is_link_error(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotADirectory
}

#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_folder: &Path) -> io::Result<()> {
    // Names are durable with their files there.
    Ok(())
}
