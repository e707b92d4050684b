//! Keeping the disk cache in order: size cap, abandoned files, checking everything.

use std::io;
use std::time::{Duration, SystemTime};

use super::disk::{DiskPipelineCache, Fetched, count, entry_path, io_diagnostic};
use super::storage::{Found, Stored};

/// Usage records after which the file is summed up again.
const USAGE_RECORDS: u64 = 4096;
/// Files put aside are kept for a look, but not for ever.
const QUARANTINE_FILES: usize = 256;
const QUARANTINE_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// What is on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct DiskUsage {
    /// Entries.
    pub entries: u64,
    /// Their bytes, keys and tags included.
    pub bytes: u64,
    /// Files put aside.
    pub quarantined: u64,
}

/// What a collection did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct GcReport {
    /// False when another process was at it, or the folder is read-only.
    pub ran: bool,
    /// What is left.
    pub usage: DiskUsage,
    /// Entries removed.
    pub evicted: u64,
    /// Bytes freed by that.
    pub evicted_bytes: u64,
    /// Temporary files removed.
    pub swept: u64,
}

/// What checking all entries found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Authentic entries in their place.
    pub good: u64,
    /// Entries that failed and were put aside.
    pub bad: u64,
    /// Bytes of the good ones.
    pub bytes: u64,
}

struct Entry {
    path: String,
    bytes: u64,
    modified: SystemTime,
}

impl DiskPipelineCache {
    /// Counts what is on the disk; reads all folders.
    pub fn usage(&self) -> io::Result<DiskUsage> {
        let entries = self.entries()?;
        Ok(DiskUsage {
            entries: entries.len() as u64,
            bytes: entries.iter().map(|entry| entry.bytes).sum(),
            quarantined: self.storage.list("quarantine")?.len() as u64,
        })
    }

    /// Checks every entry, and puts aside what fails.
    pub fn verify(&self) -> io::Result<VerifyReport> {
        self.verify_watched(|| {})
    }

    /// [`DiskPipelineCache::verify`] that calls after each entry.
    pub fn verify_watched(&self, mut watch: impl FnMut()) -> io::Result<VerifyReport> {
        let mut report = VerifyReport::default();
        self.for_each_entry(|checked| {
            watch();
            match checked {
                Some((_, _, blob)) => {
                    report.good += 1;
                    report.bytes += blob.len() as u64;
                }
                None => report.bad += 1,
            }
            Ok(())
        })?;
        Ok(report)
    }

    /// Removes the least recently used entries down to the size cap, abandoned temporary files, and old quarantined ones.
    pub fn gc(&self) -> io::Result<GcReport> {
        self.collect(self.options.max_bytes)
    }

    /// Removes all entries and everything put aside, and gives how many files that were. The key stays.
    pub fn clear(&self) -> io::Result<u64> {
        let mut removed = 0;
        let entries = self.entries()?.into_iter().map(|entry| entry.path);
        let quarantined =
            self.storage.list("quarantine")?.into_iter().map(|stored| format!("quarantine/{}", stored.name));
        for path in entries.chain(quarantined) {
            match self.storage.remove(&path) {
                Ok(()) => removed += 1,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(io_diagnostic("clear the cache", error)),
            }
        }
        self.gc()?;
        Ok(removed)
    }

    /// Calls with every authentic entry, and with `None` for every other.
    pub(super) fn for_each_entry(
        &self,
        mut each: impl FnMut(Option<([u8; 32], super::PipelineDeviceFingerprint, Vec<u8>)>) -> io::Result<()>,
    ) -> io::Result<()> {
        for entry in self.entries()? {
            match self.fetch(&entry.path)? {
                Fetched::Entry { digest, fingerprint, .. }
                    if entry_path(&fingerprint.cache_key(digest)) != entry.path =>
                {
                    let why = "it was stored under another key";
                    self.quarantine(&entry.path, &vyre_spec::codes::cache::CORRUPT, why);
                    each(None)?;
                }
                Fetched::Entry { blob, digest, fingerprint, .. } => each(Some((digest, fingerprint, blob)))?,
                Fetched::Refused => each(None)?,
                // Removed meanwhile.
                Fetched::Nothing => {}
            }
        }
        Ok(())
    }

    /// Removes temporary files that no process is writing.
    pub(super) fn sweep(&self) -> io::Result<u64> {
        let mut swept = 0;
        for Stored { name, .. } in self.storage.list("tmp")? {
            let path = format!("tmp/{name}");
            // Whoever writes a file holds its lock, and a killed process holds none.
            if let Some(_abandoned) = self.book(self.storage.try_lock(&path)).flatten() {
                match self.storage.remove(&path) {
                    Ok(()) => swept += 1,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => drop(self.book::<()>(Err(error))),
                }
            }
        }
        Ok(swept)
    }

    /// Adds to the usage file, and collects when the sum is over the cap. The sum may drift (replaced entries count twice,
    /// records may be lost in a crash); every collection sets it right.
    pub(super) fn note_usage(&self, bytes: u64) -> io::Result<()> {
        let length = self.storage.append("usage", &bytes.to_le_bytes())?;
        let total = match self.storage.read("usage", 16 * USAGE_RECORDS)? {
            Found::File { bytes, .. } if length % 8 == 0 => bytes
                .chunks_exact(8)
                .filter_map(|record| record.try_into().ok())
                .fold(0u64, |total, record| total.saturating_add(u64::from_le_bytes(record))),
            // Not what was written: count again.
            _ => u64::MAX,
        };
        if total > self.options.max_bytes || length > 8 * USAGE_RECORDS {
            // Some room is made, so that the next entry does not collect again.
            self.collect(self.options.max_bytes - self.options.max_bytes / 8)?;
        }
        Ok(())
    }

    fn collect(&self, target: u64) -> io::Result<GcReport> {
        let mut report = GcReport::default();
        if !self.storage.writable() {
            return Ok(report);
        }
        let Some(_collecting) = self.storage.try_lock("lock")? else { return Ok(report) };
        report.ran = true;
        report.swept = self.sweep()?;
        let mut entries = self.entries()?;
        let mut total: u64 = entries.iter().map(|entry| entry.bytes).sum();
        let mut left = entries.len() as u64;
        if total > self.options.max_bytes {
            entries.sort_by(|a, b| (a.modified, &a.path).cmp(&(b.modified, &b.path)));
            for entry in entries {
                if total <= target {
                    break;
                }
                match self.storage.remove(&entry.path) {
                    Ok(()) => {
                        report.evicted += 1;
                        report.evicted_bytes += entry.bytes;
                    }
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
                total -= entry.bytes;
                left -= 1;
            }
        }
        count(&self.counters.evicted, report.evicted);
        report.usage = DiskUsage { entries: left, bytes: total, quarantined: self.trim_quarantine()? };
        let temp = self.temp_path();
        self.storage.create(&temp, &[&total.to_le_bytes()])?;
        self.storage.rename(&temp, "usage")?;
        Ok(report)
    }

    fn trim_quarantine(&self) -> io::Result<u64> {
        let mut kept = self.storage.list("quarantine")?;
        kept.sort_by_key(|stored| stored.modified);
        let surplus = kept.len().saturating_sub(QUARANTINE_FILES);
        let mut left = kept.len() as u64;
        for (position, stored) in kept.iter().enumerate() {
            let old = stored.modified.elapsed().unwrap_or_default() > QUARANTINE_AGE;
            if (position < surplus || old) && self.storage.remove(&format!("quarantine/{}", stored.name)).is_ok() {
                left -= 1;
            }
        }
        Ok(left)
    }

    fn entries(&self) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for shard in 0..=255u8 {
            let shard = format!("{shard:02x}");
            for Stored { name, plain, bytes, modified } in self.storage.list(&shard)? {
                if plain && is_entry_name(&shard, &name) {
                    entries.push(Entry { path: format!("{shard}/{name}"), bytes, modified });
                }
            }
        }
        Ok(entries)
    }
}

fn is_entry_name(shard: &str, name: &str) -> bool {
    name.strip_suffix(".bin").is_some_and(|stem| {
        stem.len() == 64
            && stem.starts_with(shard)
            && stem.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    })
}
