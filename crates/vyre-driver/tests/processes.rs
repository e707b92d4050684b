//! The disk cache among many processes, under `kill -9`, and against ten thousand damaged files: contract section 4.
#![cfg(unix)]

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use vyre_driver::pipeline::{DiskPipelineCache, PipelineDeviceFingerprint};

const FOLDER: &str = "VYRE_TEST_CACHE_FOLDER";
const SEED: &str = "VYRE_TEST_SEED";

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

fn device() -> PipelineDeviceFingerprint {
    PipelineDeviceFingerprint::from_parts(1, 2, "driver", "runtime")
}

/// Bytes that say which key and version they are of, so that torn or swapped ones show.
fn blob(key: u8, version: u32) -> Vec<u8> {
    let words = 16 + (version % 1000) as usize * 4;
    let mut bytes = vec![key];
    for word in 0..words as u32 {
        bytes.extend(version.wrapping_mul(word | 1).wrapping_add(u32::from(key)).to_le_bytes());
    }
    bytes.extend(version.to_le_bytes());
    bytes
}

fn version_of(key: u8, bytes: &[u8]) -> u32 {
    let version = u32::from_le_bytes(bytes[bytes.len() - 4..].try_into().unwrap());
    assert!(bytes == blob(key, version), "torn or foreign bytes for key {key}");
    version
}

/// Runs one test of this program in another process.
fn child(test: &str, folder: &Path, seed: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .env(SEED, seed.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn as_child() -> Option<(DiskPipelineCache, u64)> {
    let folder = std::env::var_os(FOLDER)?;
    let seed = std::env::var(SEED).unwrap().parse().unwrap();
    Some((DiskPipelineCache::open(Path::new(&folder)).unwrap(), seed))
}

#[test]
fn writer_that_gets_killed() {
    let Some((cache, seed)) = as_child() else { return };
    let mut random = Random(seed);
    let out = std::io::stdout();
    // Versions grow from process to process.
    for step in 0..100_000 {
        let version = seed as u32 * 100_000 + step;
        let key = random.below(20) as u8;
        cache.write([key; 32], device(), &blob(key, version)).unwrap();
        let flushed = random.below(2) == 0;
        if flushed {
            cache.flush().unwrap();
        }
        let mut out = out.lock();
        writeln!(out, "stored {key} {version} {}", u8::from(flushed)).unwrap();
        out.flush().unwrap();
    }
}

#[test]
fn kill_9_at_any_moment_tears_nothing_and_loses_nothing_flushed() {
    if std::env::var_os(FOLDER).is_some() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random(42);
    let mut flushed: HashMap<u8, u32> = HashMap::new();
    let (mut writes, mut kills, mut seed) = (0, 0, 0);
    while writes < 1000 {
        seed += 1;
        let mut writer = child("writer_that_gets_killed", folder.path(), seed);
        let mut lines = BufReader::new(writer.stdout.take().unwrap()).lines();
        let stop_after = 1 + random.below(60);
        let mut acknowledged = 0;
        let mut recent: HashMap<u8, u32> = HashMap::new();
        let mut take = |line: String, flushed: &mut HashMap<u8, u32>| {
            // The test harness prints the name of the test on the first line.
            let Some(at) = line.find("stored ") else { return false };
            let numbers: Vec<u32> = line[at + 7..].split(' ').filter_map(|number| number.parse().ok()).collect();
            let [key, version, done] = numbers[..] else { return false };
            recent.insert(key as u8, version);
            if done == 1 {
                flushed.extend(recent.iter());
            }
            true
        };
        while acknowledged < stop_after {
            let line = lines.next().expect("the writer goes on until it is killed").unwrap();
            acknowledged += u64::from(take(line, &mut flushed));
        }
        std::thread::sleep(Duration::from_micros(random.below(3000)));
        writer.kill().unwrap();
        writer.wait().unwrap();
        kills += 1;
        for line in lines.map_while(Result::ok) {
            // The last line may itself be cut off; what it would have said is then not known to be flushed.
            acknowledged +=
                u64::from(line.ends_with(['0', '1']) && line.split(' ').count() >= 4 && take(line, &mut flushed));
        }
        writes += acknowledged;
        let cache = DiskPipelineCache::open(folder.path()).unwrap();
        for key in 0..20u8 {
            let version = cache.read([key; 32], device()).unwrap().map(|bytes| version_of(key, &bytes));
            if let Some(&wanted) = flushed.get(&key) {
                assert!(version.is_some_and(|found| found >= wanted), "key {key}: {version:?}, flushed {wanted}");
            }
        }
        assert_eq!(cache.stats().quarantined, 0, "a torn entry was found");
        let left = fs::read_dir(folder.path().join("tmp")).unwrap().count();
        assert_eq!(left, 0, "what the killed process left behind stays");
    }
    assert!(kills > 10, "{kills} kills");
}

#[test]
fn one_of_many_processes() {
    let Some((cache, seed)) = as_child() else { return };
    let mut random = Random(seed);
    for step in 0..120 {
        let key = random.below(12) as u8;
        match random.below(4) {
            0 | 1 => {
                let version = seed as u32 * 1000 + step;
                cache.write([key; 32], device(), &blob(key, version)).unwrap();
            }
            2 => {
                if let Some(bytes) = cache.read([key; 32], device()).unwrap() {
                    version_of(key, &bytes);
                }
            }
            _ => {
                cache.invalidate_impacted(&[1], &[[key; 32]], device()).unwrap();
            }
        }
    }
    cache.flush().unwrap();
    assert_eq!(cache.stats().quarantined, 0);
    println!("child is well");
}

#[test]
fn many_processes_share_a_folder() {
    if std::env::var_os(FOLDER).is_some() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // The folder is new, so they also race for making its key.
    let root = folder.path().join("cache");
    let children: Vec<Child> = (1..=8).map(|seed| child("one_of_many_processes", &root, seed)).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains("child is well"), "{text}");
    }
    let cache = DiskPipelineCache::open(&root).unwrap();
    assert_eq!(cache.verify().unwrap().bad, 0);
    assert_eq!(fs::read_dir(root.join("quarantine")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(root.join("tmp")).unwrap().count(), 0);
}

#[test]
fn a_reader_sees_whole_entries_at_every_instant() {
    if std::env::var_os(FOLDER).is_some() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let cache = DiskPipelineCache::open(folder.path()).unwrap();
    cache.write([1; 32], device(), &blob(1, 0)).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let writer = DiskPipelineCache::open(folder.path()).unwrap();
            for version in 1..150 {
                writer.write([1; 32], device(), &blob(1, version * 7)).unwrap();
            }
            done.store(true, std::sync::atomic::Ordering::Release);
        });
        let mut last = 0;
        let mut reads = 0;
        while !done.load(std::sync::atomic::Ordering::Acquire) {
            let bytes = cache.read([1; 32], device()).unwrap().expect("there is an entry at every instant");
            let version = version_of(1, &bytes);
            assert!(version >= last, "an older entry came back");
            last = version;
            reads += 1;
        }
        assert!(reads > 100, "{reads} reads");
    });
    assert_eq!(cache.stats().quarantined, 0);
}

#[test]
fn ten_thousand_damaged_files_give_no_wrong_bytes() {
    if std::env::var_os(FOLDER).is_some() {
        return;
    }
    let started = Instant::now();
    let folder = tempfile::tempdir().unwrap();
    let cache = DiskPipelineCache::open(folder.path()).unwrap();
    let keys: Vec<u8> = (0..50).collect();
    for &key in &keys {
        cache.write([key; 32], device(), &blob(key, u32::from(key) * 3)).unwrap();
    }
    let files: Vec<Vec<u8>> = keys.iter().map(|key| fs::read(cache.path_for([*key; 32], device())).unwrap()).collect();
    let mut random = Random(7);
    let mut damaged = 0;
    while damaged < 10_000 {
        let at = random.below(keys.len() as u64) as usize;
        let (key, whole) = (keys[at], &files[at]);
        let other = &files[random.below(files.len() as u64) as usize];
        let mut bytes = whole.clone();
        let place = random.below(bytes.len() as u64) as usize;
        match random.below(8) {
            0 => bytes[place] ^= 1 << random.below(8),
            1 => bytes.truncate(place),
            2 => bytes.extend((0..=random.below(64)).map(|i| i as u8)),
            3 => bytes[place..].fill(0),
            4 => bytes.clone_from(other),
            // The blob of one with the key and tag of another.
            5 => bytes = [&whole[..whole.len() - 128], &other[other.len() - 128..]].concat(),
            6 => bytes.iter_mut().for_each(|byte| *byte = random.below(256) as u8),
            // A length that promises more than there is.
            _ => {
                bytes[whole.len() - 40..whole.len() - 32].copy_from_slice(&(u64::MAX >> random.below(64)).to_le_bytes())
            }
        }
        if bytes == *whole {
            continue;
        }
        damaged += 1;
        fs::write(cache.path_for([key; 32], device()), &bytes).unwrap();
        assert_eq!(cache.read([key; 32], device()).unwrap(), None, "damaged bytes were returned");
    }
    assert_eq!(cache.stats().quarantined, 10_000);
    cache.gc().unwrap();
    assert!(cache.usage().unwrap().quarantined <= 256, "what was put aside is bounded");
    println!("10,000 damaged files in {:?}", started.elapsed());
}
