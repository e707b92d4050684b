//! The disk cache on a simulated disk that loses power, fills up and fails: contract section 4.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use vyre_driver::pipeline::{
    DiskCacheOptions, DiskPipelineCache, Found, Lock, PipelineDeviceFingerprint, Storage, Stored,
};

/// A small generator, so that every run is the same.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// A change of names that the disk may not have yet. `None` removes.
#[derive(Clone)]
struct Change {
    path: String,
    file: Option<u64>,
    /// Changes of one rename happen together or not at all.
    group: u64,
}

#[derive(Clone, Default)]
struct Disk {
    /// What running programs see.
    names: BTreeMap<String, u64>,
    folders: BTreeSet<String>,
    data: HashMap<u64, Vec<u8>>,
    /// What a power loss can't take away.
    safe_names: BTreeMap<String, u64>,
    safe_folders: BTreeSet<String>,
    synced: BTreeSet<u64>,
    /// In order, since the last sync of their folder.
    pending: Vec<Change>,
    next: u64,
    clock: u64,
    used: HashMap<u64, u64>,
    /// Operations done, and which of them fails or is the last.
    steps: u64,
    fail_at: Option<(u64, io::ErrorKind)>,
    crash_at: Option<u64>,
    capacity: Option<usize>,
}

fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

impl Disk {
    fn step(&mut self) -> io::Result<()> {
        self.steps += 1;
        if self.crash_at.is_some_and(|at| self.steps >= at) {
            return Err(io::Error::other("no power"));
        }
        match self.fail_at {
            Some((at, kind)) if self.steps == at => Err(kind.into()),
            _ => Ok(()),
        }
    }

    fn change(&mut self, changes: &[(&str, Option<u64>)]) {
        self.next += 1;
        for (path, file) in changes {
            match file {
                Some(file) => self.names.insert((*path).to_owned(), *file),
                None => self.names.remove(*path),
            };
            self.pending.push(Change { path: (*path).to_owned(), file: *file, group: self.next });
        }
    }

    fn file(&self, path: &str) -> io::Result<u64> {
        self.names.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn space_for(&self, bytes: usize) -> io::Result<()> {
        let used: usize = self.names.values().map(|file| self.data[file].len()).sum();
        match self.capacity {
            Some(capacity) if used + bytes > capacity => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }

    /// The disk after the power came back: of what was not synced, any part may be there.
    fn after_power_loss(&self, random: &mut Random) -> Disk {
        let mut names = self.safe_names.clone();
        let mut folders = self.safe_folders.clone();
        folders.extend(self.folders.iter().filter(|_| random.below(2) == 0).cloned());
        let mut kept: HashMap<u64, bool> = HashMap::new();
        for change in &self.pending {
            if *kept.entry(change.group).or_insert_with(|| random.below(2) == 0) {
                match change.file {
                    Some(file) => names.insert(change.path.clone(), file),
                    None => names.remove(&change.path),
                };
            }
        }
        // A file can't be there without its folder.
        names.retain(|path, _| folder_of(path).is_empty() || folders.contains(folder_of(path)));
        let mut data = self.data.clone();
        for (file, bytes) in &mut data {
            if !self.synced.contains(file) {
                // Data that was never synced: cut, zeroed or garbage.
                bytes.truncate(random.below(bytes.len() as u64 + 1) as usize);
                if random.below(2) == 0 {
                    bytes.iter_mut().for_each(|byte| *byte = 0);
                }
            }
        }
        Disk {
            safe_names: names.clone(),
            safe_folders: folders.clone(),
            synced: data.keys().copied().collect(),
            names,
            folders,
            data,
            next: self.next,
            clock: self.clock,
            used: self.used.clone(),
            ..Disk::default()
        }
    }
}

#[derive(Clone, Default)]
struct Simulated(Arc<Mutex<Disk>>);

impl Simulated {
    fn disk(&self) -> std::sync::MutexGuard<'_, Disk> {
        self.0.lock().unwrap()
    }

    fn open(&self) -> io::Result<DiskPipelineCache> {
        self.open_with(u64::MAX)
    }

    fn open_with(&self, max_bytes: u64) -> io::Result<DiskPipelineCache> {
        let mut options = DiskCacheOptions::default();
        options.max_bytes = max_bytes;
        options.recency = Duration::ZERO;
        DiskPipelineCache::with_storage("/simulated", Box::new(self.clone()), options)
    }
}

impl Storage for Simulated {
    fn writable(&self) -> bool {
        true
    }

    fn read(&self, path: &str, limit: u64) -> io::Result<Found> {
        let mut disk = self.disk();
        disk.step()?;
        let file = disk.file(path)?;
        let bytes = &disk.data[&file];
        if bytes.len() as u64 > limit {
            return Ok(Found::TooLarge);
        }
        let used = disk.used.get(&file).copied().unwrap_or(0);
        let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(used);
        Ok(Found::File { bytes: bytes.clone(), modified })
    }

    fn create(&self, path: &str, parts: &[&[u8]]) -> io::Result<Lock> {
        let mut disk = self.disk();
        disk.step()?;
        if disk.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if !folder_of(path).is_empty() && !disk.folders.contains(folder_of(path)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        disk.next += 1;
        disk.clock += 1;
        let (file, now) = (disk.next, disk.clock);
        disk.used.insert(file, now);
        disk.data.insert(file, Vec::new());
        disk.change(&[(path, Some(file))]);
        let bytes = parts.concat();
        // The file is there before its data is, and may stay half written.
        let room = disk.step().and_then(|()| disk.space_for(bytes.len()));
        let written = if room.is_ok() { bytes.len() } else { bytes.len() / 2 };
        disk.data.insert(file, bytes[..written].to_vec());
        room.map(|()| Lock::default())
    }

    fn sync_file(&self, path: &str, _created: &Lock) -> io::Result<()> {
        let mut disk = self.disk();
        disk.step()?;
        let file = disk.file(path)?;
        disk.synced.insert(file);
        Ok(())
    }

    fn append(&self, path: &str, record: &[u8]) -> io::Result<u64> {
        let mut disk = self.disk();
        disk.step()?;
        disk.space_for(record.len())?;
        let file = match disk.file(path) {
            Ok(file) => file,
            Err(_) => {
                disk.next += 1;
                let file = disk.next;
                disk.data.insert(file, Vec::new());
                disk.change(&[(path, Some(file))]);
                file
            }
        };
        disk.synced.remove(&file);
        let bytes = disk.data.get_mut(&file).unwrap();
        bytes.extend_from_slice(record);
        Ok(bytes.len() as u64)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut disk = self.disk();
        disk.step()?;
        let file = disk.file(from)?;
        disk.change(&[(from, None), (to, Some(file))]);
        Ok(())
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        let mut disk = self.disk();
        disk.step()?;
        let file = disk.file(from)?;
        if disk.names.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        disk.change(&[(to, Some(file))]);
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut disk = self.disk();
        disk.step()?;
        disk.file(path)?;
        disk.change(&[(path, None)]);
        Ok(())
    }

    fn make_dir(&self, path: &str) -> io::Result<bool> {
        let mut disk = self.disk();
        disk.step()?;
        Ok(disk.folders.insert(path.to_owned()))
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        let mut disk = self.disk();
        disk.step()?;
        if path.is_empty() {
            disk.safe_folders = disk.folders.clone();
        }
        // A rename is safe when the folder it went to is; its other half goes with it.
        let groups: BTreeSet<u64> = disk
            .pending
            .iter()
            .filter(|change| change.file.is_some() && folder_of(&change.path) == path)
            .chain(disk.pending.iter().filter(|change| change.file.is_none() && folder_of(&change.path) == path))
            .map(|change| change.group)
            .collect();
        let (safe, pending) = std::mem::take(&mut disk.pending).into_iter().partition(|c| groups.contains(&c.group));
        disk.pending = pending;
        for change in safe {
            match change.file {
                Some(file) => disk.safe_names.insert(change.path, file),
                None => disk.safe_names.remove(&change.path),
            };
        }
        Ok(())
    }

    fn list(&self, path: &str) -> io::Result<Vec<Stored>> {
        let mut disk = self.disk();
        disk.step()?;
        let of = |(name, file): (&String, &u64)| Stored {
            name: name.rsplit('/').next().unwrap().to_owned(),
            plain: true,
            bytes: disk.data[file].len() as u64,
            modified: SystemTime::UNIX_EPOCH + Duration::from_secs(disk.used.get(file).copied().unwrap_or(0)),
        };
        Ok(disk.names.iter().filter(|(name, _)| folder_of(name) == path).map(of).collect())
    }

    fn touch(&self, path: &str) -> io::Result<()> {
        let mut disk = self.disk();
        disk.step()?;
        let file = disk.file(path)?;
        disk.clock += 1;
        let now = disk.clock;
        disk.used.insert(file, now);
        Ok(())
    }

    fn try_lock(&self, _path: &str) -> io::Result<Option<Lock>> {
        self.disk().step()?;
        Ok(Some(Lock::default()))
    }
}

fn device() -> PipelineDeviceFingerprint {
    PipelineDeviceFingerprint::from_parts(1, 2, "driver", "runtime")
}

fn blob(key: u8, version: u32) -> Vec<u8> {
    let mut bytes = vec![key; 40 + usize::from(key) * 7];
    bytes[..4].copy_from_slice(&version.to_le_bytes());
    bytes
}

fn version_of(key: u8, bytes: &[u8]) -> u32 {
    let version = u32::from_le_bytes(bytes[..4].try_into().unwrap());
    assert_eq!(bytes, blob(key, version), "torn or foreign bytes for key {key}");
    version
}

/// What a run stored: per key the last version that was flushed and the last that was begun.
#[derive(Default)]
struct Log {
    flushed: HashMap<u8, u32>,
    begun: HashMap<u8, u32>,
}

/// Writes and flushes until the end or the first error.
fn run(disk: &Simulated, random: &mut Random, log: &mut Log) -> io::Result<()> {
    let cache = disk.open()?;
    for version in 1..40 {
        let key = random.below(6) as u8;
        log.begun.insert(key, version);
        cache.write([key; 32], device(), &blob(key, version))?;
        if random.below(3) == 0 {
            let written = log.begun.clone();
            cache.flush()?;
            log.flushed = written;
        }
    }
    Ok(())
}

#[test]
fn nothing_flushed_is_lost_and_nothing_torn_is_returned_after_a_power_loss() {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut steps = Random(77);
    let (mut losses, mut survived) = (0, 0);
    for _ in 0..1500 {
        let disk = Simulated::default();
        disk.disk().crash_at = Some(1 + steps.below(420));
        let mut log = Log::default();
        losses += u32::from(run(&disk, &mut random, &mut log).is_err());
        let after = Simulated(Arc::new(Mutex::new(disk.disk().after_power_loss(&mut random))));
        let cache = after.open().expect("a cache opens after any power loss");
        for key in 0..6u8 {
            let found = cache.read([key; 32], device()).unwrap();
            let version = found.map(|bytes| version_of(key, &bytes));
            if let Some(&flushed) = log.flushed.get(&key) {
                let version = version.unwrap_or_else(|| panic!("key {key}: flushed version {flushed} is lost"));
                assert!(version >= flushed, "key {key}: {version} is older than the flushed {flushed}");
                assert!(version <= log.begun[&key]);
                survived += 1;
            }
        }
        // And it goes on working.
        cache.write([9; 32], device(), b"new").unwrap();
        assert_eq!(cache.read([9; 32], device()).unwrap().as_deref(), Some(&b"new"[..]));
        assert!(after.disk().names.keys().all(|name| folder_of(name) != "tmp"), "abandoned files stay");
    }
    assert!(losses > 1000 && survived > 1000, "{losses} losses, {survived} survivors: the test tests too little");
}

#[test]
fn every_single_failing_operation_is_an_error_or_harmless() {
    let kinds = [io::ErrorKind::Other, io::ErrorKind::StorageFull, io::ErrorKind::PermissionDenied];
    for kind in kinds {
        for at in 1..420 {
            let disk = Simulated::default();
            disk.disk().fail_at = Some((at, kind));
            let mut log = Log::default();
            let _ = run(&disk, &mut Random(at * 2 + 1), &mut log);
            disk.disk().fail_at = None;
            let cache = disk.open().unwrap();
            for key in 0..6u8 {
                let found = cache.read([key; 32], device()).unwrap().map(|bytes| version_of(key, &bytes));
                if let Some(&flushed) = log.flushed.get(&key) {
                    assert!(found.is_some_and(|version| version >= flushed), "step {at}: key {key} lost");
                }
            }
            assert!(disk.disk().names.keys().all(|name| folder_of(name) != "tmp"), "step {at}: abandoned file");
        }
    }
}

#[test]
fn errors_carry_a_diagnostic_and_their_kind() {
    let disk = Simulated::default();
    let cache = disk.open().unwrap();
    let next = disk.disk().steps + 3;
    disk.disk().fail_at = Some((next, io::ErrorKind::StorageFull));
    let error = cache.write([1; 32], device(), b"code").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert!(error.to_string().contains("V0809") && error.to_string().contains("Fix:"), "{error}");
}

#[test]
fn a_full_disk_refuses_new_entries_and_keeps_the_old() {
    let disk = Simulated::default();
    let cache = disk.open().unwrap();
    cache.write([1; 32], device(), &blob(1, 1)).unwrap();
    cache.flush().unwrap();
    {
        let mut disk = disk.disk();
        let used: usize = disk.names.values().map(|file| disk.data[file].len()).sum();
        disk.capacity = Some(used + 100);
    }
    let error = cache.write([1; 32], device(), &blob(1, 2)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(version_of(1, &cache.read([1; 32], device()).unwrap().unwrap()), 1);
    assert!(disk.disk().names.keys().all(|name| folder_of(name) != "tmp"), "half a file stays");
}

#[test]
fn a_failed_flush_is_done_again_by_the_next() {
    let disk = Simulated::default();
    let cache = disk.open().unwrap();
    cache.flush().unwrap();
    for key in 0..6u8 {
        cache.write([key; 32], device(), &blob(key, 1)).unwrap();
    }
    let next = disk.disk().steps + 3;
    disk.disk().fail_at = Some((next, io::ErrorKind::Other));
    cache.flush().unwrap_err();
    cache.flush().unwrap();
    let mut random = Random(5);
    for _ in 0..50 {
        let after = Simulated(Arc::new(Mutex::new(disk.disk().after_power_loss(&mut random))));
        let cache = after.open().unwrap();
        for key in 0..6u8 {
            assert!(cache.read([key; 32], device()).unwrap().is_some());
        }
    }
}

#[test]
fn eviction_follows_use_exactly() {
    let disk = Simulated::default();
    let cache = disk.open_with(2000).unwrap();
    let mut order: Vec<u8> = Vec::new();
    let mut random = Random(3);
    for _ in 0..300 {
        let key = random.below(30) as u8;
        if cache.read([key; 32], device()).unwrap().is_none() {
            cache.write([key; 32], device(), &[key; 172]).unwrap();
        }
        order.retain(|used| *used != key);
        order.push(key);
        let here: Vec<u8> = (0..30)
            .filter(|key| {
                let path = cache.path_for([*key; 32], device());
                let relative = path.strip_prefix("/simulated").unwrap().to_str().unwrap().to_owned();
                disk.disk().names.contains_key(&relative)
            })
            .collect();
        // 300 bytes an entry with its key and tag: six may stay, and those are the last six used, or fewer after an eviction.
        assert!(here.len() <= 6, "{here:?}");
        let last: BTreeSet<u8> = order.iter().rev().take(here.len()).copied().collect();
        assert_eq!(here.iter().copied().collect::<BTreeSet<_>>(), last);
    }
    assert!(cache.stats().evicted > 100);
}
