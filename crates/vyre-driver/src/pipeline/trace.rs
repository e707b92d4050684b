//! Why a look-up missed: short records of what was stored, from which can be told what has changed since.

use std::io;

use vyre_foundation::ValidProgram;

use super::key::normalized_program_cache_digest;
use super::storage::{Found, Storage};
use super::{PipelineDeviceFingerprint, PipelineKey};
use crate::backend::CompileOptions;

/// Why a look-up missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MissReason {
    /// Nothing like it is or was here.
    Absent,
    /// A pipeline of the same name was stored for another program.
    ProgramChanged,
    /// It was stored for another device.
    DeviceChanged,
    /// It was stored for another driver of the same device.
    DriverChanged,
    /// It was stored under another policy: specialization, workgroup size, profile, accuracy.
    PolicyChanged,
    /// It was here, damaged or not authentic.
    Corrupt,
}

impl MissReason {
    /// All reasons, in the order in which counters list them.
    pub const ALL: [MissReason; 6] = [
        MissReason::Absent,
        MissReason::ProgramChanged,
        MissReason::DeviceChanged,
        MissReason::DriverChanged,
        MissReason::PolicyChanged,
        MissReason::Corrupt,
    ];

    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            MissReason::Absent => "absent",
            MissReason::ProgramChanged => "program changed",
            MissReason::DeviceChanged => "device changed",
            MissReason::DriverChanged => "driver changed",
            MissReason::PolicyChanged => "policy changed",
            MissReason::Corrupt => "corrupt",
        }
    }
}

impl std::fmt::Display for MissReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What an entry is stored under. `digest` and `fingerprint` find it; the rest only serves to say why it was not found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntryKey {
    /// Digest of program, backend and policy.
    pub digest: [u8; 32],
    /// Device and driver.
    pub fingerprint: PipelineDeviceFingerprint,
    /// Digest of the program on this backend.
    pub program: Option<[u8; 32]>,
    /// A name that stays when the program changes.
    pub name: Option<String>,
}

impl EntryKey {
    /// A key of which no more is known.
    pub fn new(digest: [u8; 32], fingerprint: PipelineDeviceFingerprint) -> Self {
        EntryKey { digest, fingerprint, program: None, name: None }
    }

    /// The key of a program's pipeline.
    pub fn of(key: &PipelineKey, program: &ValidProgram, options: &CompileOptions) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("vyre program on backend 1");
        hasher.update(&normalized_program_cache_digest(program));
        hasher.update(key.pipeline.backend_id.as_str().as_bytes());
        // Entry points are mostly called `main`, which says nothing about which program it was.
        let name = options.label.clone().or_else(|| (program.name() != "main").then(|| program.name().to_owned()));
        let program = Some(*hasher.finalize().as_bytes());
        EntryKey { digest: key.digest(), fingerprint: key.device, program, name }
    }
}

const WORDS: usize = 9;
const RECORD_BYTES: usize = (WORDS + 1) * 8;
/// A log over this is cut to its younger half.
const LOG_LIMIT: u64 = 256 << 10;

/// 64-bit digests are enough here: a collision gives a wrong reason, or costs a compile, but never gives a wrong pipeline. The device is
/// there as it is, so that what was stored for another driver can be found again.
#[derive(Clone, Copy, PartialEq)]
struct Record {
    digest: u64,
    fingerprint: PipelineDeviceFingerprint,
    program: u64,
    name: u64,
}

impl Record {
    fn of(key: &EntryKey) -> Record {
        let word = |bytes: &[u8]| {
            let mut word = [0; 8];
            word.copy_from_slice(&blake3::hash(bytes).as_bytes()[..8]);
            // Zero stands for "not known".
            u64::from_le_bytes(word).max(1)
        };
        Record {
            digest: word(&key.digest),
            fingerprint: key.fingerprint,
            program: key.program.as_ref().map_or(0, |program| word(program)),
            name: key.name.as_ref().map_or(0, |name| word(name.as_bytes())),
        }
    }

    fn words(&self) -> [u64; WORDS] {
        let PipelineDeviceFingerprint { vendor, device, driver_digest } = self.fingerprint;
        let mut words = [0; WORDS];
        words[..5].copy_from_slice(&[
            u64::from_le_bytes(*b"vyretrc2"),
            self.digest,
            u64::from(vendor) << 32 | u64::from(device),
            self.program,
            self.name,
        ]);
        for (word, part) in words[5..].iter_mut().zip(driver_digest.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*part);
        }
        words
    }

    fn is_same_device(&self, other: &Record) -> bool {
        let [a, b] = [self, other].map(|record| (record.fingerprint.vendor, record.fingerprint.device));
        a == b
    }

    fn to_bytes(self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        let words = self.words();
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(words.into_iter().chain([check(&words)])) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Record> {
        let mut words = [0; WORDS + 1];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(chunk.try_into().ok()?);
        }
        let [_, digest, device, program, name, ..] = words;
        let mut driver_digest = [0; 32];
        for (part, word) in driver_digest.as_chunks_mut::<8>().0.iter_mut().zip(&words[5..WORDS]) {
            *part = word.to_le_bytes();
        }
        let fingerprint =
            PipelineDeviceFingerprint { vendor: (device >> 32) as u32, device: device as u32, driver_digest };
        let record = Record { digest, fingerprint, program, name };
        (record.words() == words[..WORDS] && check(&record.words()) == words[WORDS]).then_some(record)
    }

    /// The logs that hold it, so that it is found from any of its parts.
    fn logs(&self) -> Vec<String> {
        let mut logs: Vec<u64> = [self.digest, self.program, self.name].into_iter().filter(|&part| part != 0).collect();
        logs.iter_mut().for_each(|part| *part &= 0xff);
        logs.sort_unstable();
        logs.dedup();
        logs.into_iter().map(|log| format!("trace/{log:02x}")).collect()
    }
}

fn check(words: &[u64; WORDS]) -> u64 {
    words.iter().fold(0xcbf2_9ce4_8422_2325, |sum: u64, word| (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Notes that an entry was stored.
pub(super) fn note(storage: &dyn Storage, key: &EntryKey, temp: impl Fn() -> String) -> io::Result<()> {
    let record = Record::of(key);
    let known = known(storage, &record)?;
    if known.contains(&record) {
        return Ok(());
    }
    storage.make_dir("trace")?;
    for log in record.logs() {
        if storage.append(&log, &record.to_bytes())? > LOG_LIMIT {
            let mut records = read_log(storage, &log)?;
            let younger = records.split_off(records.len() / 2);
            let bytes: Vec<u8> = younger.into_iter().flat_map(Record::to_bytes).collect();
            let temp = temp();
            storage.create(&temp, &[&bytes])?;
            storage.rename(&temp, &log)?;
        }
    }
    Ok(())
}

/// What changed since something like this was stored. `Absent` where that can't be told.
pub(super) fn reason(storage: &dyn Storage, key: &EntryKey) -> io::Result<MissReason> {
    let wanted = Record::of(key);
    let known = known(storage, &wanted)?;
    let any = |is: &dyn Fn(&Record) -> bool| known.iter().any(is);
    let same = |a: u64, b: u64| a != 0 && a == b;
    Ok(if any(&|r| *r == wanted) {
        // It was here and was evicted or removed.
        MissReason::Absent
    } else if any(&|r| r.digest == wanted.digest && r.is_same_device(&wanted)) {
        MissReason::DriverChanged
    } else if any(&|r| r.digest == wanted.digest) {
        MissReason::DeviceChanged
    } else if any(&|r| same(r.program, wanted.program) && r.digest != wanted.digest) {
        MissReason::PolicyChanged
    } else if any(&|r| same(r.name, wanted.name) && r.program != wanted.program) {
        MissReason::ProgramChanged
    } else {
        MissReason::Absent
    })
}

/// The device with other drivers or builds for which the same was stored before.
pub(super) fn earlier(storage: &dyn Storage, key: &EntryKey) -> io::Result<Vec<PipelineDeviceFingerprint>> {
    let wanted = Record::of(key);
    let mut earlier: Vec<_> = known(storage, &wanted)?
        .into_iter()
        .filter(|r| r.digest == wanted.digest && r.is_same_device(&wanted) && r.fingerprint != wanted.fingerprint)
        .map(|r| r.fingerprint)
        .collect();
    earlier.sort_unstable();
    earlier.dedup();
    Ok(earlier)
}

fn known(storage: &dyn Storage, record: &Record) -> io::Result<Vec<Record>> {
    let mut known = Vec::new();
    for log in record.logs() {
        known.extend(read_log(storage, &log)?);
    }
    Ok(known)
}

fn read_log(storage: &dyn Storage, log: &str) -> io::Result<Vec<Record>> {
    match storage.read(log, 2 * LOG_LIMIT) {
        Ok(Found::File { bytes, .. }) => Ok(bytes.chunks_exact(RECORD_BYTES).filter_map(Record::from_bytes).collect()),
        // Whatever else is there is no log of ours.
        Ok(Found::NotPlain | Found::TooLarge) => Ok(Vec::new()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
