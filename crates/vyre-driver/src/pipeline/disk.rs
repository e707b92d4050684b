//! Compiled pipelines on disk. What is read from here is executed, so nothing is returned that this user did not write.
//!
//! Layout under the root, which is private to its owner:
//! `<2 hex>/<64 hex>.bin` entries; `key` the secret that authenticates them; `tmp/` files under construction;
//! `quarantine/` what failed its check; `trace/` what was stored, to say why a look-up missed; `usage` sizes of what was
//! stored since the last collection; `lock` held by the process that collects.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use vyre_spec::codes::{self, Code};
use vyre_spec::{Diagnostic, Severity};

use super::entry::{self, Secret, TRAILER_BYTES};
use super::storage::{FileStorage, Found, Storage, Stored};
use super::trace::{self, EntryKey, MissReason};
use super::{PipelineDeviceFingerprint, hex_encode};

/// The largest pipeline that the disk cache keeps.
pub const MAX_DISK_PIPELINE_BLOB_BYTES: u64 = 64 << 20;

/// How a cache keeps house.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DiskCacheOptions {
    /// Most bytes of all entries together; the least recently used are removed above it.
    pub max_bytes: u64,
    /// A read marks its entry as used when the last mark is older than this, so most reads write nothing.
    pub recency: Duration,
    /// What was stored for another driver of the same device goes when the same is stored for this one, unless it was used within this
    /// time: then a program that was built otherwise may live beside this one.
    pub superseded_after: Duration,
}

impl Default for DiskCacheOptions {
    fn default() -> Self {
        DiskCacheOptions {
            max_bytes: 2 << 30,
            recency: Duration::from_secs(3600),
            superseded_after: Duration::from_secs(24 * 3600),
        }
    }
}

/// What a look-up gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The stored bytes, authenticated.
    Hit(Vec<u8>),
    /// Nothing usable, and why.
    Miss(MissReason),
}

/// What a cache has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct DiskCacheStats {
    /// Look-ups that found their entry.
    pub hits: u64,
    /// Look-ups that did not, in the order of [`MissReason::ALL`].
    pub misses: [u64; 6],
    /// Entries stored.
    pub writes: u64,
    /// Bytes of pipelines read.
    pub bytes_read: u64,
    /// Bytes of pipelines stored.
    pub bytes_written: u64,
    /// Files put aside because they failed their check.
    pub quarantined: u64,
    /// Entries removed to keep the size cap.
    pub evicted: u64,
    /// Writes not done because the folder is read-only.
    pub refused_writes: u64,
    /// Times that bookkeeping (usage, traces, marks) failed; entries are not affected.
    pub bookkeeping_errors: u64,
}

impl DiskCacheStats {
    /// Look-ups that missed for this reason.
    pub fn missed(&self, reason: MissReason) -> u64 {
        self.misses[reason as usize]
    }
}

#[derive(Default)]
pub(super) struct Counters {
    hits: AtomicU64,
    misses: [AtomicU64; 6],
    writes: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    pub(super) quarantined: AtomicU64,
    pub(super) evicted: AtomicU64,
    refused_writes: AtomicU64,
    pub(super) bookkeeping_errors: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// How many diagnostics wait to be taken; the oldest are dropped.
const WAITING_DIAGNOSTICS: usize = 64;
const KEY_FILE: &str = "key";

/// The disk cache. Threads and processes may share one folder.
pub struct DiskPipelineCache {
    root: PathBuf,
    pub(super) storage: Box<dyn Storage>,
    pub(super) options: DiskCacheOptions,
    secret: Option<Secret>,
    /// Makes names of temporary files unique among processes, also where they don't see each other's numbers.
    nonce: String,
    serial: AtomicU64,
    unsynced: Mutex<BTreeSet<String>>,
    pub(super) counters: Counters,
    diagnostics: Mutex<VecDeque<Diagnostic>>,
    said_read_only: AtomicBool,
}

impl std::fmt::Debug for DiskPipelineCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DiskPipelineCache").field("root", &self.root).field("options", &self.options).finish()
    }
}

impl DiskPipelineCache {
    /// Opens the cache in a folder, which is made where there is none. A folder that other users can write to, or that
    /// belongs to someone else, is refused: the error holds the diagnostic.
    pub fn open(root: impl Into<PathBuf>) -> io::Result<Self> {
        Self::open_with(root, DiskCacheOptions::default())
    }

    /// [`DiskPipelineCache::open`] with options.
    pub fn open_with(root: impl Into<PathBuf>, options: DiskCacheOptions) -> io::Result<Self> {
        let root = root.into();
        let storage = FileStorage::open(&root).map_err(|error| io_diagnostic("open the cache folder", error))?;
        Self::with_storage(root, Box::new(storage), options)
    }

    /// A cache over any storage; `root` only serves [`DiskPipelineCache::root`] and [`DiskPipelineCache::path_for`].
    pub fn with_storage(
        root: impl Into<PathBuf>,
        storage: Box<dyn Storage>,
        options: DiskCacheOptions,
    ) -> io::Result<Self> {
        let mut nonce = [0; 8];
        getrandom::fill(&mut nonce).map_err(|error| io::Error::other(error.to_string()))?;
        let mut cache = DiskPipelineCache {
            root: root.into(),
            storage,
            options,
            secret: None,
            nonce: hex_encode(&nonce),
            serial: AtomicU64::new(0),
            unsynced: Mutex::default(),
            counters: Counters::default(),
            diagnostics: Mutex::default(),
            said_read_only: AtomicBool::new(false),
        };
        if cache.storage.writable() {
            let ready = ["tmp", "quarantine"].iter().try_for_each(|folder| cache.make_dir(folder));
            ready.and_then(|()| cache.sweep()).map_err(|error| io_diagnostic("open the cache folder", error))?;
        }
        cache.secret = cache.load_secret()?;
        Ok(cache)
    }

    /// `$XDG_CACHE_HOME/vyre/pipelines`, else the platform's cache folder.
    pub fn default_root() -> PathBuf {
        user_cache_folder().join("vyre").join("pipelines")
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Only reads are possible.
    pub fn is_read_only(&self) -> bool {
        !self.storage.writable()
    }

    /// Where the entry of a digest on a device is or would be.
    pub fn path_for(&self, digest: [u8; 32], fingerprint: PipelineDeviceFingerprint) -> PathBuf {
        self.root.join(entry_path(&fingerprint.cache_key(digest)))
    }

    /// The stored bytes, checked against digest and key; `None` when there are none that can be used.
    pub fn read(&self, digest: [u8; 32], fingerprint: PipelineDeviceFingerprint) -> io::Result<Option<Vec<u8>>> {
        match self.look_up(&EntryKey::new(digest, fingerprint))? {
            Lookup::Hit(blob) => Ok(Some(blob)),
            Lookup::Miss(_) => Ok(None),
        }
    }

    /// [`DiskPipelineCache::read`] that says why it missed.
    pub fn look_up(&self, key: &EntryKey) -> io::Result<Lookup> {
        let path = entry_path(&key.fingerprint.cache_key(key.digest));
        let reason = match self.fetch(&path)? {
            Fetched::Entry { blob, digest, fingerprint, modified } => {
                if digest == key.digest && fingerprint == key.fingerprint {
                    count(&self.counters.hits, 1);
                    count(&self.counters.bytes_read, blob.len() as u64);
                    self.mark_used(&path, modified);
                    return Ok(Lookup::Hit(blob));
                }
                self.quarantine(&path, &codes::cache::CORRUPT, "it was stored under another key");
                MissReason::Corrupt
            }
            Fetched::Refused => MissReason::Corrupt,
            Fetched::Nothing => trace::reason(&*self.storage, key).unwrap_or_else(|_| {
                count(&self.counters.bookkeeping_errors, 1);
                MissReason::Absent
            }),
        };
        count(&self.counters.misses[reason as usize], 1);
        Ok(Lookup::Miss(reason))
    }

    /// Stores bytes. Every reader sees the old entry or the new one, whole. See [`DiskPipelineCache::flush`] for when they
    /// are safe.
    pub fn write(&self, digest: [u8; 32], fingerprint: PipelineDeviceFingerprint, blob: &[u8]) -> io::Result<()> {
        self.store(&EntryKey::new(digest, fingerprint), blob)
    }

    /// [`DiskPipelineCache::write`] that lets later misses be explained.
    pub fn store(&self, key: &EntryKey, blob: &[u8]) -> io::Result<()> {
        if blob.len() as u64 > MAX_DISK_PIPELINE_BLOB_BYTES {
            let message = format!("a pipeline of {} bytes is over the limit", blob.len());
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                Diagnostic::new(&codes::cache::TOO_LARGE, message),
            ));
        }
        let (true, Some(secret)) = (self.storage.writable(), &self.secret) else {
            count(&self.counters.refused_writes, 1);
            if !self.said_read_only.swap(true, Ordering::Relaxed) {
                let message = format!("the cache folder {} can't be written", self.root.display());
                self.report(Diagnostic::new(&codes::cache::READ_ONLY, message));
            }
            return Ok(());
        };
        let trailer = entry::seal(secret, &key.digest, &key.fingerprint, blob);
        let path = entry_path(&key.fingerprint.cache_key(key.digest));
        self.install(&path, &[blob, &trailer]).map_err(|error| io_diagnostic("store a pipeline", error))?;
        count(&self.counters.writes, 1);
        count(&self.counters.bytes_written, blob.len() as u64);
        self.book(self.drop_superseded(key));
        self.book(trace::note(&*self.storage, key, || self.temp_path()));
        self.book(self.note_usage((blob.len() + TRAILER_BYTES) as u64));
        Ok(())
    }

    /// Returns when everything stored so far survives a power loss: data was on the disk before it got its name, and now
    /// the names are.
    pub fn flush(&self) -> io::Result<()> {
        let mut folders = std::mem::take(&mut *lock(&self.unsynced));
        while let Some(folder) = folders.pop_last() {
            if let Err(error) = self.storage.sync_dir(&folder) {
                folders.insert(folder);
                lock(&self.unsynced).append(&mut folders);
                return Err(io_diagnostic("flush the cache", error));
            }
        }
        Ok(())
    }

    /// Removes the entries of those digests whose place in `impacted` holds something other than zero, on one device.
    /// Digests without a place in `impacted` stay.
    pub fn invalidate_impacted(
        &self,
        impacted: &[u32],
        digests: &[[u8; 32]],
        fingerprint: PipelineDeviceFingerprint,
    ) -> io::Result<()> {
        for (_, digest) in impacted.iter().zip(digests).filter(|(impacted, _)| **impacted != 0) {
            let path = entry_path(&fingerprint.cache_key(*digest));
            match self.storage.remove(&path) {
                Ok(()) => drop(lock(&self.unsynced).insert(shard_of(&path).to_owned())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(io_diagnostic("remove a pipeline", error)),
            }
        }
        Ok(())
    }

    /// Removes what was stored under this key for other drivers of the device and is no longer in use.
    fn drop_superseded(&self, key: &EntryKey) -> io::Result<()> {
        for fingerprint in trace::earlier(&*self.storage, key)? {
            let path = entry_path(&fingerprint.cache_key(key.digest));
            let stored = self.storage.list(shard_of(&path))?;
            let entry = stored.iter().find(|stored| path.ends_with(&stored.name));
            let is_idle =
                |entry: &Stored| entry.modified.elapsed().is_ok_and(|unused| unused >= self.options.superseded_after);
            let impacted = u32::from(entry.is_some_and(is_idle));
            self.invalidate_impacted(&[impacted], &[key.digest], fingerprint)?;
        }
        Ok(())
    }

    /// Puts the entry of a key aside: its backend could not load it.
    pub fn reject(&self, key: &EntryKey) {
        let path = entry_path(&key.fingerprint.cache_key(key.digest));
        self.quarantine(&path, &codes::cache::CORRUPT, "its backend could not load it");
    }

    /// What the cache has done since it was opened.
    pub fn stats(&self) -> DiskCacheStats {
        let counters = &self.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DiskCacheStats {
            hits: read(&counters.hits),
            misses: std::array::from_fn(|i| read(&counters.misses[i])),
            writes: read(&counters.writes),
            bytes_read: read(&counters.bytes_read),
            bytes_written: read(&counters.bytes_written),
            quarantined: read(&counters.quarantined),
            evicted: read(&counters.evicted),
            refused_writes: read(&counters.refused_writes),
            bookkeeping_errors: read(&counters.bookkeeping_errors),
        }
    }

    /// Takes what the cache has to say: entries put aside, a folder that can't be written.
    pub fn take_diagnostics(&self) -> Vec<Diagnostic> {
        lock(&self.diagnostics).drain(..).collect()
    }

    pub(super) fn report(&self, diagnostic: Diagnostic) {
        match diagnostic.severity {
            Severity::Note => tracing::info!(code = diagnostic.code.id, "{}", diagnostic.message),
            _ => tracing::warn!(code = diagnostic.code.id, "{}", diagnostic.message),
        }
        let mut waiting = lock(&self.diagnostics);
        if waiting.len() == WAITING_DIAGNOSTICS {
            waiting.pop_front();
        }
        waiting.push_back(diagnostic);
    }

    /// Bookkeeping may fail without harm; it is counted.
    pub(super) fn book<T>(&self, result: io::Result<T>) -> Option<T> {
        result.inspect_err(|_| count(&self.counters.bookkeeping_errors, 1)).ok()
    }

    /// Reads one entry and checks form and tag, but not under which key it was looked up.
    pub(super) fn fetch(&self, path: &str) -> io::Result<Fetched> {
        let found = match self.storage.read(path, MAX_DISK_PIPELINE_BLOB_BYTES + TRAILER_BYTES as u64) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Fetched::Nothing),
            Err(error) => return Err(io_diagnostic("read a pipeline", error)),
        };
        let (code, why): (Code, _) = match found {
            Found::NotPlain => (&codes::cache::NOT_PLAIN, "it is not a plain file"),
            Found::TooLarge => (&codes::cache::CORRUPT, "it is over the size limit"),
            Found::File { mut bytes, modified } => {
                let opened = match (bytes.split_last_chunk::<TRAILER_BYTES>(), &self.secret) {
                    (Some((blob, trailer)), Some(secret)) => entry::open(secret, trailer, blob),
                    _ => None,
                };
                if let Some((digest, fingerprint)) = opened {
                    bytes.truncate(bytes.len() - TRAILER_BYTES);
                    return Ok(Fetched::Entry { blob: bytes, digest, fingerprint, modified });
                }
                (&codes::cache::CORRUPT, "its digest is wrong, or this user did not write it")
            }
        };
        self.quarantine(path, code, why);
        Ok(Fetched::Refused)
    }

    /// Moves what is at a path out of the way, and says so.
    pub(super) fn quarantine(&self, path: &str, code: Code, why: &str) {
        let mut message = format!("cache entry {path} was not used: {why}");
        if self.storage.writable() {
            // Where the folder of the entry is the thing that is not what it should be, that is what goes.
            let shard = shard_of(path);
            let is_shard =
                matches!(self.storage.make_dir(shard), Err(error) if error.kind() == io::ErrorKind::NotADirectory);
            let from = if is_shard { shard } else { path };
            let name = from.rsplit('/').next().unwrap_or(from);
            let to = format!("quarantine/{name}.{}-{}", self.nonce, self.serial.fetch_add(1, Ordering::Relaxed));
            match self.storage.rename(from, &to) {
                Ok(()) => count(&self.counters.quarantined, 1),
                // Another process was quicker.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => message = format!("{message}; it could not be put aside: {error}"),
            }
        }
        self.report(Diagnostic::new(code, message));
    }

    fn mark_used(&self, path: &str, modified: SystemTime) {
        if self.storage.writable() && modified.elapsed().unwrap_or_default() >= self.options.recency {
            match self.storage.touch(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    count(&self.counters.bookkeeping_errors, 1);
                }
                _ => {}
            }
        }
    }

    /// Puts a file in place: data to the disk, then the name. The folder follows at the next flush.
    fn install(&self, path: &str, parts: &[&[u8]]) -> io::Result<()> {
        let shard = shard_of(path);
        let mut attempts = 0;
        loop {
            attempts += 1;
            let temp = self.temp_path();
            let installed = (|| {
                self.make_dir(shard)?;
                let in_use = self.storage.create(&temp, parts)?;
                self.storage.sync_file(&temp, &in_use)?;
                self.storage.rename(&temp, path)
            })();
            let Err(error) = installed else {
                lock(&self.unsynced).insert(shard.to_owned());
                return Ok(());
            };
            // The file may not even have been made; what counts is the first error.
            let _ = self.storage.remove(&temp);
            if attempts == 3 {
                return Err(error);
            }
            match error.kind() {
                // Something that is not ours stands where the entry or its folder goes.
                io::ErrorKind::IsADirectory
                | io::ErrorKind::NotADirectory
                | io::ErrorKind::DirectoryNotEmpty
                | io::ErrorKind::AlreadyExists => {
                    self.quarantine(path, &codes::cache::NOT_PLAIN, "it is not a plain file");
                }
                // The folder was removed under us, or the temporary file was swept.
                io::ErrorKind::NotFound => {
                    self.make_dir("tmp")?;
                    self.make_dir("quarantine")?;
                }
                _ => return Err(error),
            }
        }
    }

    pub(super) fn temp_path(&self) -> String {
        format!("tmp/{}-{}", self.nonce, self.serial.fetch_add(1, Ordering::Relaxed))
    }

    fn make_dir(&self, folder: &str) -> io::Result<()> {
        if self.storage.make_dir(folder)? {
            lock(&self.unsynced).insert(String::new());
        }
        Ok(())
    }

    /// The secret of this cache. The first process makes it; the others find it.
    fn load_secret(&self) -> io::Result<Option<Secret>> {
        for _ in 0..8 {
            match self.storage.read(KEY_FILE, 32) {
                Ok(found) => {
                    let private = match self.storage.is_private(KEY_FILE) {
                        Ok(private) => private,
                        // Replaced meanwhile.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                        Err(error) => return Err(io_diagnostic("look at the cache's key", error)),
                    };
                    let message = match found {
                        Found::File { bytes, .. } if bytes.len() == 32 && private => {
                            let mut secret = [0; 32];
                            secret.copy_from_slice(&bytes);
                            return Ok(Some(secret));
                        }
                        // Whoever knows the key can put code into the cache.
                        Found::File { .. } if !private => "others can read or write the cache's key, or it is theirs",
                        _ => "the cache's key is not 32 bytes in a plain file",
                    };
                    if !self.storage.writable() {
                        self.report(Diagnostic::new(&codes::cache::BAD_SECRET, message));
                        return Ok(None);
                    }
                    let to = format!("quarantine/{KEY_FILE}.{}", self.nonce);
                    match self.storage.rename(KEY_FILE, &to) {
                        Ok(()) => self.report(Diagnostic::new(&codes::cache::BAD_SECRET, message)),
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                        Err(error) => return Err(io_diagnostic("replace the cache's key", error)),
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    if !self.storage.writable() {
                        return Ok(None);
                    }
                    self.create_secret().map_err(|error| io_diagnostic("make the cache's key", error))?;
                }
                Err(error) => return Err(io_diagnostic("read the cache's key", error)),
            }
        }
        Err(io::Error::other(Diagnostic::new(&codes::cache::IO, "the cache's key keeps changing")))
    }

    fn create_secret(&self) -> io::Result<()> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|error| io::Error::other(error.to_string()))?;
        let temp = self.temp_path();
        let linked = (|| {
            let in_use = self.storage.create(&temp, &[&secret])?;
            self.storage.sync_file(&temp, &in_use)?;
            // A link fails where the name is taken, so of several processes one wins and all use its secret.
            self.storage.link(&temp, KEY_FILE)
        })();
        let _ = self.storage.remove(&temp);
        match linked {
            // Entries are worthless without their secret, so it is made safe before the first of them.
            Ok(()) => self.storage.sync_dir(""),
            // Another process was quicker, or took the file for abandoned; the caller looks again.
            Err(error) if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// What is at the path of an entry.
pub(super) enum Fetched {
    /// An authentic entry, stored under this key.
    Entry { blob: Vec<u8>, digest: [u8; 32], fingerprint: PipelineDeviceFingerprint, modified: SystemTime },
    /// Something that failed its check; it was put aside.
    Refused,
    /// Nothing.
    Nothing,
}

/// Relative path of an entry.
pub(super) fn entry_path(key: &[u8; 32]) -> String {
    let name = hex_encode(key);
    format!("{}/{name}.bin", &name[..2])
}

fn shard_of(path: &str) -> &str {
    path.split_once('/').map_or("", |(shard, _)| shard)
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is left half done under these locks, so a panic elsewhere spoils nothing.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An I/O error with the diagnostic in it, unless it has one already.
pub(super) fn io_diagnostic(what: &str, error: io::Error) -> io::Error {
    if error.get_ref().is_some_and(|inner| inner.is::<Diagnostic>()) {
        return error;
    }
    let kind = error.kind();
    io::Error::new(kind, Diagnostic::new(&codes::cache::IO, format!("can't {what}: {error}")))
}

/// The folder for files that can be made again.
fn user_cache_folder() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // The specification says that relative paths in the variable are to be ignored.
    if let Some(folder) = variable("XDG_CACHE_HOME").filter(|folder| folder.is_absolute()) {
        return folder;
    }
    let platform = if cfg!(windows) {
        variable("LOCALAPPDATA")
    } else if cfg!(target_os = "macos") {
        variable("HOME").map(|home| home.join("Library").join("Caches"))
    } else {
        variable("HOME").map(|home| home.join(".cache"))
    };
    platform.unwrap_or_else(std::env::temp_dir)
}
