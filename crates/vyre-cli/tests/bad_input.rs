//! Bad input: each kind is refused with a code, a cure and the documented exit code, and leaves nothing half-written.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const DOUBLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/double.wgsl");
const FOUR: &str = "
    @group(0) @binding(0) var<storage, read> a: array<f32, 4>;
    @group(0) @binding(1) var<storage, read_write> out: array<f32, 4>;
    @compute @workgroup_size(4)
    fn main(@builtin(global_invocation_id) id: vec3<u32>) { out[id.x] = a[id.x]; }
";

/// A folder with its own caches.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Home {
        Home(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        std::fs::write(self.path(name), bytes).expect("a file");
        self.path(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vyre"));
        command.args(words).current_dir(self.0.path());
        command.env("XDG_CACHE_HOME", self.path("cache")).env("XDG_CONFIG_HOME", self.path("config"));
        // Without it drivers complain on standard error.
        command.env("XDG_RUNTIME_DIR", self.0.path());
        command
    }

    fn vyre(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("the command starts")
    }

    /// The command fails with this exit code, says all of this on standard error, and leaves no file behind.
    #[track_caller]
    fn refused(&self, words: &[&str], exit: i32, said: &[&str]) {
        let before = listing(self.0.path());
        let output = self.vyre(words);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(exit), "{words:?}\n{told}");
        for part in said {
            assert!(told.contains(part), "{words:?} does not say `{part}`:\n{told}");
        }
        if exit == 1 {
            assert!(told.contains("[V") && told.contains("Fix: "), "{words:?} has no code or no cure:\n{told}");
        }
        let mut after = listing(self.0.path());
        after.retain(|name| name != "cache" && name != "config");
        let mut before = before;
        before.retain(|name| name != "cache" && name != "config");
        assert_eq!(before, after, "{words:?} left something behind");
    }
}

fn listing(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder").flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn npy(header: &str, data: &[u8]) -> Vec<u8> {
    let mut out = b"\x93NUMPY\x01\0".to_vec();
    out.extend((header.len() as u16).to_le_bytes());
    out.extend(header.as_bytes());
    out.extend(data);
    out
}

#[test]
fn files_that_are_missing_or_no_kernels() {
    let home = Home::new();
    home.refused(&["run", "nothing.wgsl"], 1, &["V1701", "nothing.wgsl"]);
    home.refused(&["run", DOUBLE, "--in", "a=nothing.npy"], 1, &["V1701", "nothing.npy"]);
    home.refused(&["run", "."], 1, &["V1701"]);
    home.file("binary.wgsl", [0xff, 0xfe, 0, 1]);
    home.refused(&["check", "binary.wgsl"], 1, &["V1703", "not text"]);
    home.file("short.spv", [3, 2, 0x23]);
    home.refused(&["check", "short.spv"], 1, &["V04"]);
    home.refused(&["explain", "V9999"], 1, &["V1711"]);
}

#[test]
fn inputs_of_the_wrong_type_or_length_show_the_declaration() {
    let home = Home::new();
    let doubles = [0.5f64, 0.1].map(f64::to_le_bytes).concat();
    home.file("f64.npy", npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }", &doubles));
    home.refused(&["run", DOUBLE, "--in", "a=f64.npy"], 1, &["V1708", "0.1", "array<f32>", "--cast"]);
    home.file("four.wgsl", FOUR);
    home.refused(&["run", "four.wgsl", "--in", "a=1,2,3"], 1, &["V1709", "array<f32, 4>"]);
    home.refused(&["run", "four.wgsl"], 1, &["V1707", "array<f32, 4>", "--in a="]);
    home.file("half.bin", [0; 7]);
    home.refused(&["run", DOUBLE, "--in", "a=half.bin"], 1, &["V"]);
    home.refused(&["run", DOUBLE, "--in", "a=1,2,x"], 1, &["V1704", "`x`"]);
    home.refused(&["run", DOUBLE, "--in", "a=range:10"], 1, &["V1704", "iota"]);
    home.refused(&["run", DOUBLE, "--in", "a=zeroes:10"], 1, &["V1704", "did you mean `zeros`"]);
    home.refused(&["run", DOUBLE, "--in", "a=0xzz"], 1, &["V1704", "0xzz"]);
    home.refused(&["run", DOUBLE, "--in", "a=picture.jpg"], 1, &["V1701", "no such file"]);
    home.file("picture.jpg", "bytes");
    home.refused(&["run", DOUBLE, "--in", "a=picture.jpg"], 1, &["V1703", "raw:picture.jpg"]);
    home.file("book.txt", "It was the best of times");
    home.refused(&["run", DOUBLE, "--in", "a=book.txt"], 1, &["V1703", "bytes:book.txt"]);
    home.file("gap.csv", "1,,3");
    home.refused(&["run", DOUBLE, "--in", "a=gap.csv"], 1, &["V1703", "field 2 is empty"]);
    home.file("words.csv", "1, 2\nthree");
    home.refused(&["run", DOUBLE, "--in", "a=words.csv"], 1, &["V1703", "line 2"]);
}

#[test]
fn hostile_npy_files() {
    let home = Home::new();
    let header =
        |shape: &str| npy(&format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"), &[0; 16]);
    let mut bomb = b"\x93NUMPY\x02\0".to_vec();
    bomb.extend(u32::MAX.to_le_bytes());
    let files: &[(&str, Vec<u8>)] = &[
        ("truncated", header("(8,)")),
        ("longer", header("(2,)")),
        ("empty", Vec::new()),
        ("magic", b"\x93NUMPY".to_vec()),
        ("bomb", bomb),
        ("huge", header("(18446744073709551615, 4)")),
        ("overflow", header("(99999999999999999999999999,)")),
        ("negative", header("(-4,)")),
        ("nan", header("(nan,)")),
        ("deep", npy(&"{".repeat(60_000), &[])),
        ("axes", header(&format!("({})", "1,".repeat(5000)))),
        ("records", npy("{'descr': [('x', '<f4'], 'fortran_order': False, 'shape': (1,), }", &[0; 4])),
        ("object", npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", &[0; 8])),
        ("code", npy("__import__('os').system('touch owned')", &[])),
    ];
    for (name, bytes) in files {
        home.file(&format!("{name}.npy"), bytes);
        home.refused(&["run", DOUBLE, "--in", &format!("a={name}.npy")], 1, &["V1703", name]);
    }
    for length in 0..20 {
        home.file("cut.npy", &header("(4,)")[..length * 4]);
        home.refused(&["run", DOUBLE, "--in", "a=cut.npy"], 1, &["V1703"]);
    }
}

#[test]
fn sizes_that_are_no_sizes() {
    let home = Home::new();
    for size in ["NaN", "-1", "inf", "-inf", "1e30", "1.5", "1e10", "99999999x99999999", "", "x", "0x"] {
        home.refused(&["run", DOUBLE, "--in", &format!("a=zeros:{size}")], 1, &["V1704"]);
    }
    home.refused(&["run", DOUBLE, "--in", "a=random:8:low=NaN"], 1, &["V1704"]);
    home.refused(&["run", DOUBLE, "--in", "a=random:8:seed=1.5"], 1, &["V1704"]);
    for shape in ["NaN", "-1", "99999999999999x99999999999999", "4x"] {
        home.refused(&["run", DOUBLE, "--in", "a=iota:4", "--shape", &format!("out={shape}")], 1, &["V1705"]);
    }
    home.refused(&["run", DOUBLE, "--in", "a=iota:4", "--grid", "0"], 2, &["not a size"]);
    home.refused(&["run", DOUBLE, "--in", "a=iota:4", "--timeout", "NaN"], 2, &["seconds"]);
    home.refused(&["run", DOUBLE, "--in", "a=iota:4", "--workgroup", "4294967295x4294967295"], 1, &["V0194"]);
    home.refused(&["route", DOUBLE, "--in", "a=iota:N", "--sizes", "NaN"], 1, &["V1705"]);
    home.refused(&["route", DOUBLE, "--in", "a=iota:8"], 1, &["V1705", "N"]);
    home.refused(&["route", DOUBLE, "--in", "a=iota:N", "--backend", "cpu"], 1, &["V1705", "bench"]);
}

/// What a run needs is known before its inputs are made.
#[cfg(unix)]
#[test]
fn more_memory_than_there_is_is_refused_at_once() {
    let home = Home::new();
    let kernel = home.file("k.wgsl", FOUR.replace(", 4>", ">"));
    let started = std::time::Instant::now();
    let output = Command::new("sh")
        .args(["-c", "ulimit -v 8000000; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_vyre"), "run"])
        .arg(kernel)
        .args(["--in", "a=random:f32:1e9"])
        .output()
        .expect("the command starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("V1714") && said.contains("16.0 GB of memory"), "{said}");
    assert!(started.elapsed().as_secs() < 20, "it made the numbers first: {:?}", started.elapsed());
}

#[test]
fn names_that_nobody_has_come_with_the_nearest() {
    let home = Home::new();
    home.refused(&["run", DOUBLE, "--in", "a=iota:4", "--out", "outt=x.npy"], 1, &["V1706", "did you mean `out`"]);
    home.refused(&["run", DOUBLE, "--in", "aa=iota:4"], 1, &["V1706", "did you mean `a`"]);
    home.refused(&["run", DOUBLE, "--in", "a=iota:4", "--backend", "cpuu"], 1, &["V1710", "did you mean `cpu`"]);
    let gpus = if cfg!(feature = "cuda") { "those for GPUs are cuda" } else { "GPUs" };
    home.refused(&["run", DOUBLE, "--in", "a=iota:4", "--backend", "gpu"], 1, &["V1710", gpus]);
    home.refused(&["bench", DOUBLE, "--in", "a=iota:4", "--backend", "refrence"], 1, &["V1710", "`reference`"]);
    home.refused(&["tune", DOUBLE, "--in", "a=iota:4", "--backend", "zpu9"], 1, &["V1710"]);
    let mandelbrot = format!("{ROOT}/examples/mandelbrot.wgsl");
    home.refused(&["run", &mandelbrot, "--set", "widht=3"], 1, &["V1706", "did you mean `width`"]);
    home.refused(&["run", &mandelbrot, "--set", "width=wide"], 1, &["V1708", "override width", "--set width=64"]);
    home.refused(&["run", DOUBLE, "--in", "a=iota:4", "--set", "x"], 1, &["V1705"]);
    home.refused(&["frobnicate"], 2, &["frobnicate"]);
    home.refused(&["run", DOUBLE, "--in"], 2, &["--in"]);
}

#[test]
fn three_errors_are_three_diagnostics() {
    let home = Home::new();
    home.file(
        "three.wgsl",
        "@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let x: u32 = 1.5;
    let y = missing + 2.0;
    let z = x + y;
    out[id.x] = a[id.x] + true;
}
",
    );
    home.refused(&["check", "three.wgsl"], 1, &["three.wgsl:5:", "three.wgsl:6:", "three.wgsl:8:"]);
    let told = home.vyre(&["check", "three.wgsl"]);
    let told = String::from_utf8_lossy(&told.stderr);
    assert_eq!(told.matches("error[V").count(), 3, "what only follows from the others is not told:\n{told}");
    home.refused(&["run", "three.wgsl", "--in", "a=iota:4"], 1, &["three.wgsl:5:", "three.wgsl:6:", "three.wgsl:8:"]);
    home.file("three.vyre", "@a;\n@b;\n@c;\n");
    home.refused(&["check", "three.vyre"], 1, &["three.vyre:1:", "three.vyre:2:", "three.vyre:3:"]);
    // Wrong inputs are told together, too.
    let output = home.vyre(&["run", DOUBLE, "--in", "b=iota:4", "--shape", "out=NaN", "--set", "n=1"]);
    let told = String::from_utf8_lossy(&output.stderr);
    for code in ["V1705", "V1706", "V1707"] {
        assert!(told.contains(code), "{told}");
    }
}

#[test]
fn results_that_cant_be_written() {
    let home = Home::new();
    home.file("old.npy", "old");
    home.refused(&["run", DOUBLE, "--in", "a=iota:4", "--out", "out=absent/out.npy"], 1, &["V1702"]);
    home.refused(&["run", DOUBLE, "--in", "a=iota:4", "--out", "out=/proc/out.npy"], 1, &["V1702"]);
    home.refused(&["run", DOUBLE, "--in", "a=iota:4", "--out", "out=."], 1, &["V1702"]);
    home.refused(&["run", DOUBLE, "--in", "a=iota:4", "--out", "out=x.png"], 1, &["V1702", "--shape"]);
    // The first could be written, but not both.
    let both = ["run", DOUBLE, "--in", "a=iota:4", "--out", "out=old.npy", "--out", "out=absent/out.npy"];
    home.refused(&both, 1, &["V1702"]);
    assert_eq!(std::fs::read(home.path("old.npy")).unwrap(), b"old");
    home.refused(&["emit", DOUBLE, "--to", "wgsl", "--output", "absent/x.wgsl"], 1, &["V1702"]);
}

#[cfg(target_os = "linux")]
#[test]
fn full_disks() {
    let home = Home::new();
    home.refused(&["run", DOUBLE, "--in", "a=iota:4", "--out", "out=/dev/full"], 1, &["V1702", "No space"]);
    assert!(!Path::new("/dev/full").is_file());
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let output = home.command(&["run", DOUBLE, "--in", "a=iota:4"]).stdout(full()).output().expect("it starts");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && told.contains("V1702"), "{told}");
    // A disk with room for a page, where one may be mounted.
    let small = home.path("small");
    std::fs::create_dir(&small).unwrap();
    let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(&small).output();
    if !mount.is_ok_and(|mount| mount.status.success()) {
        eprintln!("no small disk could be mounted; /dev/full has to do");
        return;
    }
    std::fs::write(small.join("out.bin"), "old").unwrap();
    let output = home.vyre(&["run", DOUBLE, "--in", "a=iota:1e6", "--out", "out=small/out.bin"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let left = (listing(&small), std::fs::read(small.join("out.bin")).unwrap());
    let unmounted = Command::new("umount").arg(&small).status();
    assert!(output.status.code() == Some(1) && told.contains("V1702"), "{told}");
    assert_eq!(left, (vec!["out.bin".to_owned()], b"old".to_vec()));
    assert!(unmounted.is_ok_and(|status| status.success()));
}

#[cfg(unix)]
#[test]
fn folders_that_may_only_be_read() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    let locked = home.path("locked");
    std::fs::create_dir(&locked).unwrap();
    std::fs::set_permissions(&locked, std::fs::Permissions::from_mode(0o555)).unwrap();
    if std::fs::write(locked.join("probe"), "").is_ok() {
        // The superuser may write everywhere but where the kernel itself says no.
        std::fs::remove_file(locked.join("probe")).unwrap();
        home.refused(&["run", DOUBLE, "--in", "a=iota:4", "--out", "out=/sys/out.npy"], 1, &["V1702"]);
    } else {
        home.refused(&["run", DOUBLE, "--in", "a=iota:4", "--out", "out=locked/out.npy"], 1, &["V1702", "ermission"]);
    }
}

#[cfg(unix)]
#[test]
fn cache_folders_that_cant_be_trusted() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    let pipelines = home.path("cache/vyre/pipelines");
    std::fs::create_dir_all(&pipelines).unwrap();
    std::fs::set_permissions(&pipelines, std::fs::Permissions::from_mode(0o777)).unwrap();
    home.refused(&["cache", "stats"], 1, &["V0805", "chmod 700"]);
    home.refused(&["cache", "export", "pack", "--unsigned"], 1, &["V0805"]);
    let checked = home.vyre(&["doctor"]);
    assert_eq!(checked.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&checked.stderr).contains("V1303"));
    // A kernel still runs, and says that nothing is kept.
    let run = home.vyre(&["run", DOUBLE, "--in", "a=1,2"]);
    let told = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success() && told.contains("V1303") && told.contains("chmod 700"), "{told}");
    std::fs::set_permissions(&pipelines, std::fs::Permissions::from_mode(0o700)).unwrap();
    if std::os::unix::fs::chown(&pipelines, Some(65_534), None).is_ok() {
        home.refused(&["cache", "stats"], 1, &["V0806", "XDG_CACHE_HOME"]);
    }
    std::fs::remove_dir_all(home.path("cache")).unwrap();
    home.file("cache", "not a folder");
    home.refused(&["cache", "verify"], 1, &["V0809"]);
    let run = home.vyre(&["run", DOUBLE, "--in", "a=1,2"]);
    assert!(run.status.success() && String::from_utf8_lossy(&run.stderr).contains("V1303"));
}

#[test]
fn packs_that_are_not_what_they_should_be() {
    let home = Home::new();
    home.file("key", [7; 32]);
    home.file("hex", "07".repeat(32) + "\n");
    home.file("other", [8; 32]);
    assert!(home.vyre(&["run", DOUBLE, "--in", "a=1,2"]).status.success());
    assert!(home.vyre(&["cache", "export", "pack", "--key", "key"]).status.success());
    home.refused(&["cache", "import", "pack", "--key", "other"], 1, &["V0808"]);
    home.refused(&["cache", "import", "pack", "--unsigned"], 1, &["V0808"]);
    home.refused(&["cache", "import", "pack"], 2, &["--key", "--unsigned"]);
    home.refused(&["cache", "import", "absent", "--key", "key"], 1, &["V1701"]);
    home.refused(&["cache", "import", "pack", "--key", "pack"], 1, &["V1703", "32"]);
    home.refused(&["cache", "export", "absent/pack", "--key", "key"], 1, &["V1702"]);
    let whole = std::fs::read(home.path("pack")).unwrap();
    for cut in [0, 20, 44, 60, whole.len() - 1] {
        home.file("cut", &whole[..cut]);
        home.refused(&["cache", "import", "cut", "--key", "key"], 1, &["V0808"]);
    }
    assert!(home.vyre(&["cache", "import", "pack", "--key", "hex"]).status.success());
}

#[test]
fn tables_that_cant_be_read_are_told() {
    let home = Home::new();
    let folder = home.path("cache/vyre");
    // On a machine that is too noisy to tell, nothing is kept.
    for _ in 0..50 {
        assert!(home.vyre(&["tune", DOUBLE, "--in", "a=iota:64", "--backend", "cpu"]).status.success());
        if folder.join("tuner").exists() {
            break;
        }
    }
    std::fs::write(folder.join("routes.toml"), "= nonsense").unwrap();
    let entries = std::fs::read_dir(folder.join("tuner")).unwrap().flatten().map(|entry| entry.path());
    let tables: Vec<_> = entries.filter(|path| path.extension().is_some_and(|ending| ending == "toml")).collect();
    assert!(!tables.is_empty());
    // Who finds such a table tells it and sets it aside.
    let spoil = || tables.iter().for_each(|table| std::fs::write(table, "= nonsense").unwrap());
    spoil();
    let checked = home.vyre(&["doctor"]);
    let told = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.code() == Some(1) && told.contains("V1004") && told.contains("V11"), "{told}");
    spoil();
    let explained = home.vyre(&["explain", DOUBLE, "--in", "a=iota:64"]);
    let told = String::from_utf8_lossy(&explained.stderr);
    assert!(explained.status.success() && told.contains("warning[V1004]"), "{told}");
}

/// Tables that could not be written whole leave nothing of themselves.
#[cfg(target_os = "linux")]
#[test]
fn full_disks_keep_no_half_tables() {
    let home = Home::new();
    // No file may grow; the signal for that is ignored, so that writes fail as on a full disk.
    let script = "trap '' XFSZ; ulimit -f 0; exec \"$0\" tune \"$1\" --in a=iota:64 --backend cpu";
    let output = Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_vyre"), DOUBLE])
        .current_dir(home.0.path())
        .env("XDG_CACHE_HOME", home.path("cache"))
        .env("XDG_CONFIG_HOME", home.path("config"))
        .output()
        .expect("a shell");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("can't be written") || told.contains("too large"), "{told}");
    let mut folders = vec![home.path("cache")];
    while let Some(folder) = folders.pop() {
        for name in listing(&folder) {
            assert!(!name.ends_with(".tmp"), "{name} is left in {}", folder.display());
            if folder.join(&name).is_dir() {
                folders.push(folder.join(name));
            }
        }
    }
}

#[test]
fn damaged_entries_make_a_check_of_the_cache_fail() {
    let home = Home::new();
    assert!(home.vyre(&["run", DOUBLE, "--in", "a=1,2", "--backend", "cpu"]).status.success());
    assert!(home.vyre(&["cache", "verify"]).status.success());
    let pipelines = home.path("cache/vyre/pipelines");
    for shard in listing(&pipelines).into_iter().filter(|name| name.len() == 2) {
        for entry in listing(&pipelines.join(&shard)) {
            std::fs::write(pipelines.join(&shard).join(entry), "not code").unwrap();
        }
    }
    let checked = home.vyre(&["cache", "verify"]);
    let told = String::from_utf8_lossy(&checked.stderr);
    assert!(checked.status.code() == Some(1) && told.contains("V0801"), "{told}");
    let cleared = home.vyre(&["cache", "clear"]);
    assert!(cleared.status.success() && String::from_utf8_lossy(&cleared.stdout).contains("removed"));
}

/// What makes a front end panic is told as a diagnostic, and the panic is not.
#[test]
fn spirv_that_stops_the_front_end_is_a_diagnostic() {
    let home = Home::new();
    assert!(home.vyre(&["emit", DOUBLE, "--to", "spirv", "--output", "double.spv"]).status.success());
    let whole = std::fs::read(home.path("double.spv")).unwrap();
    for at in (20..whole.len()).step_by(97) {
        let mut altered = whole.clone();
        altered[at] ^= 0x55;
        home.file("altered.spv", &altered);
        let output = home.vyre(&["check", "altered.spv"]);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!told.contains("panicked"), "byte {at}:\n{told}");
        assert!(matches!(output.status.code(), Some(0 | 1)), "byte {at}: {:?}\n{told}", output.status);
    }
}

/// Every entry point of a file is checked, and overrides without a default are given one.
#[test]
fn every_entry_point_is_checked() {
    let home = Home::new();
    let two = "
        override size: u32;
        @group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(64) fn first(@builtin(global_invocation_id) id: vec3<u32>) { out[id.x] = id.x; }
        @compute @workgroup_size(64) fn second(@builtin(global_invocation_id) id: vec3<u32>) { out[id.x] = size; }
    ";
    home.file("two.wgsl", two);
    let output = home.vyre(&["check", "two.wgsl"]);
    let (shown, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.code() == Some(1) && shown.contains("`first` is valid"), "{shown}");
    assert!(told.contains("V0409") && told.contains("--set size="), "{told}");
    let output = home.vyre(&["check", "two.wgsl", "--set", "size=7"]);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && shown.contains("`first`") && shown.contains("`second`"), "{shown}");
    let run = home.vyre(&["run", "two.wgsl", "--entry", "second", "--set", "size=7", "--shape", "out=64"]);
    assert!(String::from_utf8_lossy(&run.stdout).contains("7, 7"), "{}", String::from_utf8_lossy(&run.stderr));
}

/// `--json` is one document on standard output, and nothing anywhere else, whatever happens.
#[test]
fn json_is_one_document() {
    let home = Home::new();
    for (words, code) in [
        (&["run", DOUBLE, "--in", "a=1,2", "--backend", "cpu", "--explain", "--json"][..], 0),
        (&["run", DOUBLE, "--in", "b=1,2", "--json"], 1),
        (&["check", "absent.wgsl", DOUBLE, "--json"], 1),
        (&["devices", "--json"], 0),
        (&["doctor", "--json"], 0),
        (&["explain", "V0190", "--json"], 0),
    ] {
        let output = home.vyre(words);
        let document: Result<serde_json::Value, _> = serde_json::from_slice(&output.stdout);
        assert_eq!(output.status.code(), Some(code), "{words:?}");
        assert!(output.stderr.is_empty(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        let problems = document.expect("one document")["problems"].as_array().map(Vec::len);
        assert_eq!(problems.is_some_and(|count| count > 0), code != 0, "{words:?}");
    }
    let run = home.vyre(&["run", DOUBLE, "--in", "a=1,2", "--backend", "cpu", "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(document["results"]["out"]["values"], serde_json::json!([3.0, 5.0]));
}

#[test]
fn a_check_that_takes_too_long_says_so() {
    let home = Home::new();
    home.file(
        "long.wgsl",
        "@group(0) @binding(0) var<storage, read> a: array<u32>;
        @group(0) @binding(1) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            var x = a[id.x];
            for (var i = 0u; i < 1000u; i++) { x = x * 1664525u + 1013904223u; }
            out[id.x] = x;
        }",
    );
    let run = ["run", "long.wgsl", "--in", "a=iota:2e4", "--backend", "cpu", "--check", "--timeout", "2"];
    home.refused(&run, 1, &["V1715", "about ", "2 s"]);
}

#[test]
fn a_barrier_that_not_all_reach_is_shown() {
    let home = Home::new();
    home.file(
        "barrier.wgsl",
        "var<workgroup> tile: array<u32, 64>;
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) i: u32) {
    tile[i] = i;
    if i < 7u {
        workgroupBarrier();
    }
    out[i] = tile[63u - i];
}
",
    );
    home.refused(&["check", "barrier.wgsl"], 1, &["V"]);
    let told = home.vyre(&["check", "barrier.wgsl"]);
    let told = String::from_utf8_lossy(&told.stderr);
    assert!(told.contains("barrier.wgsl:7:") || told.contains("workgroupBarrier();"), "{told}");
}

#[test]
fn events_reach_the_user() {
    let home = Home::new();
    let quiet = home.vyre(&["run", DOUBLE, "--in", "a=1,2", "--backend", "cpu"]);
    // Only how it was launched.
    assert_eq!(String::from_utf8_lossy(&quiet.stderr).lines().count(), 1, "{}", String::from_utf8_lossy(&quiet.stderr));
    let told = home.vyre(&["run", DOUBLE, "--in", "a=1,2,3", "--backend", "cpu", "-v"]);
    assert!(String::from_utf8_lossy(&told.stderr).contains("took"), "{}", String::from_utf8_lossy(&told.stderr));
    let wrong = home.command(&["devices"]).env("VYRE_LOG", "loud").output().unwrap();
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("VYRE_LOG"));
}

/// An interrupt, while the kernel runs and while results are written, ends the command with 130 and leaves nothing.
#[cfg(unix)]
#[test]
fn interrupted_commands_leave_nothing() {
    use std::time::{Duration, Instant};
    let home = Home::new();
    std::fs::create_dir(home.path("results")).unwrap();
    let interrupt = |words: &[&str], ready: &dyn Fn(u32) -> bool| {
        let mut child = home.command(words).stdout(std::process::Stdio::null()).spawn().expect("it starts");
        let started = Instant::now();
        while !ready(child.id()) && started.elapsed() < Duration::from_secs(30) && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        assert!(sent.is_ok_and(|sent| sent.success()));
        child.wait().unwrap().code()
    };
    // The process has a handler for it; where that can't be seen, time has to tell.
    let handles = |process: u32| {
        const INTERRUPT: u64 = 1 << 1;
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
        Some(u64::from_str_radix(caught.trim(), 16).ok()? & INTERRUPT != 0)
    };
    // Many rounds, long after the handler is in place.
    let long = ["run", DOUBLE, "--in", "a=iota:1e5", "--repeat", "100000000", "--out", "out=results/out.bin"];
    let begun = Instant::now();
    let runs = |process| begun.elapsed() > Duration::from_millis(700) && handles(process).unwrap_or(true);
    assert_eq!(interrupt(&long, &runs), Some(130));
    assert!(listing(&home.path("results")).is_empty());
    // A result that takes a while to write: the interrupt comes when the unfinished file is seen.
    let large = ["run", DOUBLE, "--in", "a=zeros:5e7", "--backend", "cpu", "--out", "out=results/out.bin"];
    let code = interrupt(&large, &|_| !listing(&home.path("results")).is_empty());
    let left = listing(&home.path("results"));
    match code {
        Some(130) => assert!(left.is_empty(), "{left:?}"),
        // It was faster than the interrupt.
        code => assert_eq!((code, left), (Some(0), vec!["out.bin".to_owned()])),
    }
}

/// As in NumPy: -1 is the last axis.
#[test]
fn axes_are_counted_from_both_ends() {
    let home = Home::new();
    let sum = |axis: &str| {
        let words = ["op", "sum", "--in", "x=random:f32:2x3", "--axis", axis, "--backend", "cpu"];
        home.command(&words).output().expect("it starts")
    };
    for (axis, shape) in [("0", "[3]"), ("-1", "[2]"), ("-2", "[3]"), ("1", "[2]")] {
        let done = sum(axis);
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(done.status.success() && text.contains(&format!("f32 {shape}")), "{axis}: {done:?}");
    }
    for axis in ["2", "-3", "9223372036854775807"] {
        let refused = sum(axis);
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && told.contains("from -1, the last one, to -2"), "{axis}: {told}");
    }
}

/// What people write who have not read much of the help.
#[test]
fn ops_take_what_is_meant_or_say_what_to_write() {
    let home = Home::new();
    home.file("flags.npy", flags());
    let run = |line: &str| {
        let words: Vec<&str> = ["op"].into_iter().chain(line.split(' ')).chain(["--backend", "cpu"]).collect();
        let done = home.command(&words).output().expect("it starts");
        let told =
            String::from_utf8_lossy(if done.status.success() { &done.stdout } else { &done.stderr }).into_owned();
        (done.status.success(), told)
    };
    let good = [
        ("sum --in 1,2,3", "f32 []  6"),
        ("sum --in x=iota:4", "f32 []  6"),
        ("sum --in random:f32:0:seed=1", "f32 []  0"),
        ("dot --in b=3,4 --in 1,2", "f32 []  11"),
        ("any --in flags.npy", "u32 []  1"),
        ("all --in flags.npy", "u32 []  0"),
        ("sum --in flags.npy", "u32 []  2"),
        ("sort --in 3,1,2 --out sorted.csv", "written to sorted.csv"),
        ("find --in text:hello --in text:l --count 9", "count: u32 []  2"),
    ];
    for (line, expected) in good {
        let (is_good, told) = run(line);
        assert!(is_good && told.contains(expected), "{line}: {told}");
    }
    // What goes to a pipe is the result and nothing else.
    let piped =
        home.command(&["op", "sort", "--in", "3,1,2", "--out", "-", "--backend", "cpu"]).output().expect("it starts");
    assert_eq!(String::from_utf8_lossy(&piped.stdout), "1\n2\n3\n");
    assert!(String::from_utf8_lossy(&piped.stderr).contains("written to -"));
    let bad = [
        ("summ --in 1,2", "did you mean `sum`?"),
        ("sum --in 1,2 --in 3,4", "there is nothing left that it could be"),
        ("sum --in z=1,2", "Write --in x=…."),
        ("sum --in x=", "Write --in x=…."),
        ("mean --in iota:i32:5", "--type f32"),
        ("histogram --in 1,2 --count 3", "--type"),
        ("sum --in 1,2 --count 3", "Leave it out; there is --axis."),
        ("transpose --in 1,2", "rows and columns"),
        ("find --in text:hello --in text:", "it has no letters"),
    ];
    for (line, expected) in bad {
        let (is_good, told) = run(line);
        assert!(!is_good && told.contains(expected), "{line}: {told}");
    }
}

/// Three truth values as NumPy writes them: true, false, true.
fn flags() -> Vec<u8> {
    let mut header = "{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }".to_owned();
    header.push_str(&" ".repeat(128 - 10 - header.len() - 1));
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend([1, 0, 1]);
    bytes
}
