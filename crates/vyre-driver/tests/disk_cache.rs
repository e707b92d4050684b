//! The disk cache on the real file system: contract section 4, one test per sentence.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use vyre_driver::diagnostics::Diagnostic;
use vyre_driver::pipeline::{
    DiskCacheOptions, DiskPipelineCache, EntryKey, Lookup, MAX_DISK_PIPELINE_BLOB_BYTES, MissReason, PackContents,
    PackKey, PipelineDeviceFingerprint, hex_encode,
};

fn device() -> PipelineDeviceFingerprint {
    PipelineDeviceFingerprint::from_parts(0x10de, 7, "driver 1", "runtime 2")
}

fn small_cache(root: &Path, max_bytes: u64) -> DiskPipelineCache {
    let mut options = DiskCacheOptions::default();
    options.max_bytes = max_bytes;
    options.recency = Duration::ZERO;
    DiskPipelineCache::open_with(root, options).unwrap()
}

fn code_of(error: &std::io::Error) -> &'static str {
    error.get_ref().unwrap().downcast_ref::<Diagnostic>().unwrap().code.id
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o777
}

#[test]
fn stores_and_finds_again_in_another_instance() {
    let folder = tempfile::tempdir().unwrap();
    let cache = DiskPipelineCache::open(folder.path()).unwrap();
    assert_eq!(cache.root(), folder.path());
    assert_eq!(cache.read([7; 32], device()).unwrap(), None);
    cache.write([7; 32], device(), b"machine code").unwrap();
    cache.write([8; 32], device(), b"").unwrap();
    cache.write([7; 32], device(), b"better code").unwrap();
    let again = DiskPipelineCache::open(folder.path()).unwrap();
    for cache in [&cache, &again] {
        assert_eq!(cache.read([7; 32], device()).unwrap().as_deref(), Some(&b"better code"[..]));
        assert_eq!(cache.read([8; 32], device()).unwrap().as_deref(), Some(&b""[..]));
    }
    assert_eq!(cache.stats().missed(MissReason::Absent), 1);
    assert_eq!(cache.stats().hits, 2);
    assert!(cache.take_diagnostics().is_empty());
}

#[test]
fn entries_live_under_the_first_two_digits_of_their_key() {
    let folder = tempfile::tempdir().unwrap();
    let cache = DiskPipelineCache::open(folder.path()).unwrap();
    cache.write([7; 32], device(), b"code").unwrap();
    let name = hex_encode(&device().cache_key([7; 32]));
    let path = folder.path().join(&name[..2]).join(format!("{name}.bin"));
    assert_eq!(cache.path_for([7; 32], device()), path);
    assert!(path.is_file());
}

#[test]
fn everything_is_private() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("new/folder");
    let cache = DiskPipelineCache::open(&root).unwrap();
    cache.write([7; 32], device(), b"code").unwrap();
    assert_eq!(mode(&root), 0o700);
    let entry = cache.path_for([7; 32], device());
    assert_eq!(mode(entry.parent().unwrap()), 0o700);
    let mut waiting = vec![root];
    let mut files = 0;
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                assert_eq!(mode(&path), 0o700, "{}", path.display());
                waiting.push(path);
            } else {
                assert_eq!(mode(&path), 0o600, "{}", path.display());
                files += 1;
            }
        }
    }
    assert!(files >= 2, "an entry and the key");
}

#[test]
fn a_folder_that_others_may_read_is_closed_to_them() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    DiskPipelineCache::open(folder.path()).unwrap();
    assert_eq!(mode(folder.path()), 0o700);
}

#[test]
fn a_folder_that_others_can_write_is_refused() {
    for bits in [0o777, 0o770, 0o702, 0o720] {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(bits)).unwrap();
        let error = DiskPipelineCache::open(folder.path()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
        assert_eq!(code_of(&error), "V0805");
        assert!(error.to_string().contains("Fix:"), "{error}");
        assert_eq!(mode(folder.path()), bits, "a refused folder is left as it is");
    }
}

#[test]
fn a_folder_of_someone_else_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    // Only root can give a folder away; anyone else finds one of root's.
    let foreign = match std::os::unix::fs::chown(folder.path(), Some(12345), None) {
        Ok(()) => folder.path(),
        Err(_) => Path::new("/usr"),
    };
    let error = DiskPipelineCache::open(foreign).unwrap_err();
    assert_eq!(code_of(&error), "V0806");
}

#[test]
fn altered_truncated_and_swapped_files_are_misses_and_put_aside() {
    let blob: Vec<u8> = (0..5000u32).map(|i| i as u8).collect();
    type Spoil<'a> = (&'a str, &'a dyn Fn(&Path));
    let spoil: [Spoil; 6] = [
        ("first byte", &|path| alter(path, 0)),
        ("key", &|path| alter(path, 5020)),
        ("tag", &|path| alter(path, 5100)),
        ("blob", &|path| alter(path, 4000)),
        ("cut", &|path| fs::write(path, &fs::read(path).unwrap()[..3000]).unwrap()),
        ("longer", &|path| fs::write(path, [fs::read(path).unwrap(), vec![0]].concat()).unwrap()),
    ];
    for (what, spoil) in spoil {
        let folder = tempfile::tempdir().unwrap();
        let cache = DiskPipelineCache::open(folder.path()).unwrap();
        cache.write([7; 32], device(), &blob).unwrap();
        let path = cache.path_for([7; 32], device());
        spoil(&path);
        assert_eq!(
            cache.look_up(&EntryKey::new([7; 32], device())).unwrap(),
            Lookup::Miss(MissReason::Corrupt),
            "{what}"
        );
        assert!(!path.exists(), "{what}: still there");
        assert_eq!(fs::read_dir(folder.path().join("quarantine")).unwrap().count(), 1, "{what}");
        assert_eq!(cache.stats().quarantined, 1, "{what}");
        assert_eq!(cache.stats().missed(MissReason::Corrupt), 1, "{what}");
        let said = cache.take_diagnostics();
        assert_eq!(said.len(), 1, "{what}");
        assert_eq!(said[0].code.id, "V0801", "{what}");
        cache.write([7; 32], device(), &blob).unwrap();
        assert_eq!(cache.read([7; 32], device()).unwrap().as_deref(), Some(&blob[..]), "{what}: written again");
    }
}

fn alter(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn an_entry_under_the_name_of_another_is_a_miss() {
    let folder = tempfile::tempdir().unwrap();
    let cache = DiskPipelineCache::open(folder.path()).unwrap();
    cache.write([1; 32], device(), b"one").unwrap();
    cache.write([2; 32], device(), b"two").unwrap();
    let (one, two) = (cache.path_for([1; 32], device()), cache.path_for([2; 32], device()));
    fs::copy(&one, &two).unwrap();
    assert_eq!(cache.read([2; 32], device()).unwrap(), None);
    assert_eq!(cache.read([1; 32], device()).unwrap().as_deref(), Some(&b"one"[..]));
    assert_eq!(cache.stats().quarantined, 1);
}

#[test]
fn an_entry_of_another_user_is_a_miss() {
    // Another cache folder has another secret, as another user's has.
    let (mine, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let cache = DiskPipelineCache::open(mine.path()).unwrap();
    let foreign = DiskPipelineCache::open(theirs.path()).unwrap();
    foreign.write([7; 32], device(), b"evil code").unwrap();
    let path = cache.path_for([7; 32], device());
    fs::create_dir(path.parent().unwrap()).unwrap();
    fs::copy(foreign.path_for([7; 32], device()), &path).unwrap();
    assert_eq!(cache.read([7; 32], device()).unwrap(), None);
    assert_eq!(cache.stats().quarantined, 1);
}

#[test]
fn links_folders_and_pipes_are_neither_followed_nor_read_nor_written_through() {
    let folder = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    let cache = DiskPipelineCache::open(folder.path()).unwrap();
    cache.write([7; 32], device(), b"code").unwrap();
    let path = cache.path_for([7; 32], device());
    let target = outside.path().join("target");
    let place: [(&str, &dyn Fn()); 4] = [
        ("link", &|| symlink(&target, &path).unwrap()),
        ("dangling link", &|| symlink(outside.path().join("nothing"), &path).unwrap()),
        ("folder", &|| {
            fs::create_dir(&path).unwrap();
            fs::write(path.join("inside"), "x").unwrap();
        }),
        ("pipe", &|| {
            assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        }),
    ];
    for (what, place) in place {
        // The link's target is a true entry: it would be returned if the link were followed.
        cache.write([7; 32], device(), b"code").unwrap();
        fs::rename(&path, &target).unwrap();
        let bytes = fs::read(&target).unwrap();
        cache.take_diagnostics();
        place();
        assert_eq!(
            cache.look_up(&EntryKey::new([7; 32], device())).unwrap(),
            Lookup::Miss(MissReason::Corrupt),
            "{what}"
        );
        assert_eq!(cache.take_diagnostics()[0].code.id, "V0802", "{what}");
        assert!(fs::symlink_metadata(&path).is_err(), "{what}: put aside");
        place();
        cache.write([7; 32], device(), b"new code").unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_file(), "{what}: replaced by a file");
        assert_eq!(fs::read(&target).unwrap(), bytes, "{what}: written through");
        assert!(!outside.path().join("nothing").exists(), "{what}: written through");
        assert_eq!(cache.read([7; 32], device()).unwrap().as_deref(), Some(&b"new code"[..]), "{what}");
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_link_in_place_of_the_folder_of_entries_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    let cache = DiskPipelineCache::open(folder.path()).unwrap();
    cache.write([7; 32], device(), b"code").unwrap();
    let path = cache.path_for([7; 32], device());
    let shard = path.parent().unwrap();
    fs::rename(shard, outside.path().join("shard")).unwrap();
    symlink(outside.path().join("shard"), shard).unwrap();
    assert_eq!(cache.read([7; 32], device()).unwrap(), None);
    symlink(outside.path().join("shard"), shard).unwrap();
    let before = fs::read_dir(outside.path().join("shard")).unwrap().count();
    cache.write([7; 32], device(), b"new").unwrap();
    assert_eq!(fs::read_dir(outside.path().join("shard")).unwrap().count(), before);
    assert_eq!(cache.read([7; 32], device()).unwrap().as_deref(), Some(&b"new"[..]));
}

#[test]
fn blobs_over_the_limit_are_refused_both_ways() {
    let folder = tempfile::tempdir().unwrap();
    let cache = DiskPipelineCache::open(folder.path()).unwrap();
    assert_eq!(MAX_DISK_PIPELINE_BLOB_BYTES, 64 << 20);
    let error = cache.write([7; 32], device(), &vec![0; (64 << 20) + 1]).unwrap_err();
    assert_eq!(code_of(&error), "V0803");
    let path = cache.path_for([7; 32], device());
    assert!(!path.exists());
    // A sparse file of a terabyte: reading it, or allocating for it, would not go unnoticed.
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    assert_eq!(cache.read([7; 32], device()).unwrap(), None);
    assert_eq!(cache.stats().quarantined, 1);
}

#[test]
fn the_least_recently_used_go_first() {
    let folder = tempfile::tempdir().unwrap();
    let cache = small_cache(folder.path(), 10_000);
    let blob = vec![1; 2000];
    for i in 0..4 {
        cache.write([i; 32], device(), &blob).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(cache.read([0; 32], device()).unwrap().is_some());
    std::thread::sleep(Duration::from_millis(20));
    cache.write([9; 32], device(), &blob).unwrap();
    let here: Vec<u8> = (0..10).filter(|&i| cache.path_for([i; 32], device()).exists()).collect();
    assert_eq!(here, [0, 2, 3, 9], "1 was not used for longest");
    assert!(cache.usage().unwrap().bytes <= 10_000);
    assert_eq!(cache.stats().evicted, 1);
}

#[test]
fn the_cap_holds_over_many_short_lived_processes() {
    let folder = tempfile::tempdir().unwrap();
    for i in 0..40 {
        small_cache(folder.path(), 20_000).write([i; 32], device(), &[1; 1500]).unwrap();
    }
    let usage = small_cache(folder.path(), 20_000).usage().unwrap();
    assert!(usage.bytes <= 20_000, "{usage:?}");
    assert!(usage.entries >= 8, "{usage:?}");
}

#[test]
fn abandoned_temporary_files_are_swept_and_files_in_use_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let cache = DiskPipelineCache::open(folder.path()).unwrap();
    let abandoned = folder.path().join("tmp/abandoned");
    let in_use = folder.path().join("tmp/in-use");
    fs::write(&abandoned, "half an en").unwrap();
    let writing = fs::File::create(&in_use).unwrap();
    writing.lock().unwrap();
    DiskPipelineCache::open(folder.path()).unwrap();
    assert!(!abandoned.exists());
    assert!(in_use.exists());
    drop(writing);
    assert_eq!(cache.gc().unwrap().swept, 1);
    assert!(!in_use.exists());
}

#[test]
fn a_read_only_folder_is_read_and_says_so_once() {
    let folder = tempfile::tempdir().unwrap();
    DiskPipelineCache::open(folder.path()).unwrap().write([7; 32], device(), b"code").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o500)).unwrap();
    let cache = DiskPipelineCache::open(folder.path()).unwrap();
    assert!(cache.is_read_only());
    assert_eq!(cache.read([7; 32], device()).unwrap().as_deref(), Some(&b"code"[..]));
    cache.write([8; 32], device(), b"more").unwrap();
    cache.write([9; 32], device(), b"more").unwrap();
    cache.flush().unwrap();
    assert_eq!(cache.read([8; 32], device()).unwrap(), None);
    assert!(!cache.gc().unwrap().ran);
    let said = cache.take_diagnostics();
    assert_eq!(said.iter().map(|d| d.code.id).collect::<Vec<_>>(), ["V0804"]);
    assert_eq!(cache.stats().refused_writes, 2);
    // Damage is a miss there too, but nothing is moved.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    alter(&cache.path_for([7; 32], device()), 130);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o500)).unwrap();
    assert_eq!(cache.read([7; 32], device()).unwrap(), None);
    assert!(cache.path_for([7; 32], device()).exists());
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn a_damaged_key_is_replaced_and_old_entries_are_misses() {
    let folder = tempfile::tempdir().unwrap();
    DiskPipelineCache::open(folder.path()).unwrap().write([7; 32], device(), b"code").unwrap();
    fs::write(folder.path().join("key"), b"short").unwrap();
    let cache = DiskPipelineCache::open(folder.path()).unwrap();
    assert_eq!(cache.take_diagnostics()[0].code.id, "V0807");
    assert_eq!(cache.read([7; 32], device()).unwrap(), None);
    cache.write([7; 32], device(), b"code").unwrap();
    let again = DiskPipelineCache::open(folder.path()).unwrap();
    assert_eq!(again.read([7; 32], device()).unwrap().as_deref(), Some(&b"code"[..]));
}

#[test]
fn a_key_that_others_could_know_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    let refused = |spoil: &dyn Fn()| {
        DiskPipelineCache::open(folder.path()).unwrap().write([7; 32], device(), b"code").unwrap();
        let before = fs::read(&key).unwrap();
        spoil();
        let cache = DiskPipelineCache::open(folder.path()).unwrap();
        assert_eq!(cache.take_diagnostics()[0].code.id, "V0807");
        assert_eq!(cache.read([7; 32], device()).unwrap(), None);
        assert_ne!(fs::read(&key).unwrap(), before);
        assert_eq!(mode(&key), 0o600);
    };
    for open in [0o666, 0o640, 0o602] {
        refused(&|| fs::set_permissions(&key, fs::Permissions::from_mode(open)).unwrap());
    }
    if std::os::unix::fs::chown(&key, Some(65_534), None).is_ok() {
        std::os::unix::fs::chown(&key, Some(0), None).unwrap();
        refused(&|| std::os::unix::fs::chown(&key, Some(65_534), None).unwrap());
    }
}

#[test]
fn the_reason_of_a_miss_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let cache = DiskPipelineCache::open(folder.path()).unwrap();
    let key = |digest: u8, program: u8, name: &str, fingerprint| {
        let mut key = EntryKey::new([digest; 32], fingerprint);
        key.program = Some([program; 32]);
        key.name = Some(name.to_owned());
        key
    };
    cache.store(&key(1, 10, "blur", device()), b"code").unwrap();
    let driver = PipelineDeviceFingerprint::from_parts(0x10de, 7, "driver 2", "runtime 2");
    let other = PipelineDeviceFingerprint::from_parts(0x10de, 8, "driver 1", "runtime 2");
    let miss = |key: EntryKey| match cache.look_up(&key).unwrap() {
        Lookup::Miss(reason) => reason,
        Lookup::Hit(_) => panic!("hit"),
    };
    assert_eq!(miss(key(9, 90, "sum", device())), MissReason::Absent);
    assert_eq!(miss(key(2, 20, "blur", device())), MissReason::ProgramChanged);
    assert_eq!(miss(key(3, 10, "blur", device())), MissReason::PolicyChanged);
    assert_eq!(miss(key(1, 10, "blur", driver)), MissReason::DriverChanged);
    assert_eq!(miss(key(1, 10, "blur", other)), MissReason::DeviceChanged);
    // Device and driver are told without knowing more than digest and device.
    assert_eq!(miss(EntryKey::new([1; 32], driver)), MissReason::DriverChanged);
    assert_eq!(miss(EntryKey::new([1; 32], other)), MissReason::DeviceChanged);
    alter(&cache.path_for([1; 32], device()), 130);
    assert_eq!(miss(key(1, 10, "blur", device())), MissReason::Corrupt);
    assert_eq!(miss(key(1, 10, "blur", device())), MissReason::Absent, "it is gone now");
    assert_eq!(cache.stats().misses, [2, 1, 2, 2, 1, 1]);
}

#[test]
fn impacted_entries_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let cache = DiskPipelineCache::open(folder.path()).unwrap();
    let digests = [[1; 32], [2; 32], [3; 32], [4; 32]];
    for digest in digests {
        cache.write(digest, device(), b"code").unwrap();
    }
    let other = PipelineDeviceFingerprint::from_parts(1, 1, "", "");
    cache.write([2; 32], other, b"code").unwrap();
    cache.invalidate_impacted(&[0, 1, 7], &digests, device()).unwrap();
    let here = digests.map(|digest| cache.read(digest, device()).unwrap().is_some());
    assert_eq!(here, [true, false, false, true]);
    assert!(cache.read([2; 32], other).unwrap().is_some(), "the other device's entry stays");
    cache.invalidate_impacted(&[0, 1], &digests, device()).unwrap();
}

#[test]
fn verify_finds_what_is_damaged_or_misplaced() {
    let folder = tempfile::tempdir().unwrap();
    let cache = DiskPipelineCache::open(folder.path()).unwrap();
    for i in 0..5 {
        cache.write([i; 32], device(), &[i; 100]).unwrap();
    }
    alter(&cache.path_for([0; 32], device()), 140);
    fs::copy(cache.path_for([2; 32], device()), cache.path_for([1; 32], device())).unwrap();
    let report = cache.verify().unwrap();
    assert_eq!((report.good, report.bad, report.bytes), (3, 2, 300));
    assert_eq!(cache.usage().unwrap().entries, 3);
    assert_eq!(cache.usage().unwrap().quarantined, 2);
}

#[test]
fn clearing_removes_entries_and_what_was_put_aside() {
    let folder = tempfile::tempdir().unwrap();
    let cache = DiskPipelineCache::open(folder.path()).unwrap();
    for i in 0..5 {
        cache.write([i; 32], device(), &[i; 100]).unwrap();
    }
    alter(&cache.path_for([0; 32], device()), 140);
    assert_eq!(cache.read([0; 32], device()).unwrap(), None);
    fs::create_dir(cache.path_for([0; 32], device())).unwrap();
    assert_eq!(cache.read([0; 32], device()).unwrap(), None, "a folder is put aside too");
    assert_eq!(cache.clear().unwrap(), 6);
    assert_eq!((cache.usage().unwrap().entries, cache.usage().unwrap().quarantined), (0, 0));
    cache.write([1; 32], device(), b"new").unwrap();
    let again = DiskPipelineCache::open(folder.path()).unwrap();
    assert!(again.read([1; 32], device()).unwrap().is_some());
}

#[test]
fn a_pack_carries_everything_to_another_cache() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let source = DiskPipelineCache::open(here.path()).unwrap();
    let target = DiskPipelineCache::open(there.path()).unwrap();
    for i in 0..5 {
        source.write([i; 32], device(), &[i; 1000]).unwrap();
    }
    let contents = PackContents {
        decisions: vec![("gpu-1.toml".to_owned(), b"a = 1".to_vec())],
        programs: vec![b"wire 1".to_vec(), b"wire 2".to_vec()],
    };
    let key = [3; 32];
    let mut pack = Vec::new();
    assert_eq!(source.export(&mut pack, &contents, PackKey::Secret(&key)).unwrap(), 5);
    assert_eq!(target.import(&pack[..], PackKey::Secret(&key)).unwrap(), (5, contents.clone()));
    for i in 0..5 {
        assert_eq!(target.read([i; 32], device()).unwrap().as_deref(), Some(&[i; 1000][..]));
    }
    let wrong = target.import(&pack[..], PackKey::Secret(&[4; 32])).unwrap_err();
    assert_eq!(code_of(&wrong), "V0808");
    assert_eq!(code_of(&target.import(&pack[..], PackKey::Open).unwrap_err()), "V0808");
    // Every cut and every altered byte is found.
    for at in (0..pack.len()).step_by(101) {
        assert_eq!(code_of(&target.import(&pack[..at], PackKey::Secret(&key)).unwrap_err()), "V0808");
        let mut altered = pack.clone();
        altered[at] ^= 0x10;
        assert_eq!(code_of(&target.import(&altered[..], PackKey::Secret(&key)).unwrap_err()), "V0808");
    }
    let longer = [&pack[..], b"x"].concat();
    assert_eq!(code_of(&target.import(&longer[..], PackKey::Secret(&key)).unwrap_err()), "V0808");
    let mut open = Vec::new();
    source.export(&mut open, &contents, PackKey::Open).unwrap();
    assert_eq!(target.import(&open[..], PackKey::Open).unwrap().0, 5);
    let bad = PackContents { decisions: vec![("../x".to_owned(), Vec::new())], programs: Vec::new() };
    assert_eq!(code_of(&source.export(Vec::new(), &bad, PackKey::Open).unwrap_err()), "V0808");
}

#[test]
fn the_default_folder_follows_the_environment() {
    // The only test of this program that reads or sets these variables, in a child so that threads don't matter.
    if std::env::var_os("VYRE_TEST_PRINT_ROOT").is_some() {
        println!("root={}", DiskPipelineCache::default_root().display());
        return;
    }
    let root = |xdg: Option<&str>| {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "the_default_folder_follows_the_environment", "--nocapture"]);
        child.env("VYRE_TEST_PRINT_ROOT", "1").env("HOME", "/home/someone").env_remove("XDG_CACHE_HOME");
        if let Some(xdg) = xdg {
            child.env("XDG_CACHE_HOME", xdg);
        }
        let text = String::from_utf8(child.output().unwrap().stdout).unwrap();
        text.split_once("root=").unwrap().1.lines().next().unwrap().to_owned()
    };
    assert_eq!(root(Some("/var/cache/me")), "/var/cache/me/vyre/pipelines");
    let platform = if cfg!(target_os = "macos") { "/home/someone/Library/Caches" } else { "/home/someone/.cache" };
    assert_eq!(root(None), format!("{platform}/vyre/pipelines"));
    assert_eq!(root(Some("")), format!("{platform}/vyre/pipelines"));
}
