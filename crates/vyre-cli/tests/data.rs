//! Data as people have it: what goes in by type and by name comes out by type and by name.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const DOUBLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/double.wgsl");
const BODIES: &str = "
    struct Body { at: vec3<f32>, mass: f32, id: u32 }
    struct Params { dt: f32, n: u32 }
    @group(0) @binding(0) var<storage, read> bodies: array<Body>;
    @group(0) @binding(1) var<uniform> params: Params;
    @group(0) @binding(2) var<storage, read_write> moved: array<Body>;
    @compute @workgroup_size(64)
    fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x >= arrayLength(&bodies) { return; }
        var body = bodies[id.x];
        body.at += vec3<f32>(params.dt, 0.0, 0.0);
        body.id += params.n;
        moved[id.x] = body;
    }
";
const VECTORS: &str = "
    @group(0) @binding(0) var<storage, read> a: array<vec3<f32>>;
    @group(0) @binding(1) var<storage, read_write> out: array<vec3<f32>>;
    @compute @workgroup_size(64)
    fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x < arrayLength(&a) { out[id.x] = a[id.x] + vec3<f32>(1.0); }
    }
";
const COPY: &str = "
    @group(0) @binding(0) var<storage, read> a: array<u32>;
    @group(0) @binding(1) var<storage, read_write> out: array<u32>;
    @compute @workgroup_size(64)
    fn main(@builtin(global_invocation_id) id: vec3<u32>) { if id.x < arrayLength(&a) { out[id.x] = a[id.x]; } }
";

struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Home {
        let home = Home(tempfile::tempdir().expect("a folder"));
        home.file("bodies.wgsl", BODIES);
        home.file("vectors.wgsl", VECTORS);
        home.file("copy.wgsl", COPY);
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), bytes).expect("a file");
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vyre"));
        command.args(words).current_dir(self.0.path());
        command.env("XDG_CACHE_HOME", self.path("cache")).env("XDG_CONFIG_HOME", self.path("config"));
        command
    }

    fn vyre(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("the command starts")
    }

    /// What the command prints.
    #[track_caller]
    fn ok(&self, words: &[&str]) -> String {
        let output = self.vyre(words);
        assert!(output.status.success(), "{words:?}\n{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// What the command says when it refuses.
    #[track_caller]
    fn refused(&self, words: &[&str], said: &[&str]) {
        let output = self.vyre(words);
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}\n{told}");
        assert!(told.contains("Fix: "), "{words:?} has no cure:\n{told}");
        for part in said {
            assert!(told.contains(part), "{words:?} does not say `{part}`:\n{told}");
        }
    }

    /// The command with something on its standard input.
    fn fed(&self, words: &[&str], input: &[u8]) -> Output {
        let mut child = self
            .command(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        child.stdin.take().expect("a pipe").write_all(input).expect("it reads");
        child.wait_with_output().expect("it ends")
    }
}

fn npy(header: &str, data: &[u8]) -> Vec<u8> {
    let mut out = b"\x93NUMPY\x01\0".to_vec();
    out.extend((header.len() as u16).to_le_bytes());
    out.extend(header.as_bytes());
    out.extend(data);
    out
}

#[test]
fn structs_come_and_go_by_member() {
    let home = Home::new();
    home.file("bodies.csv", "id,mass,at.x,at.y,at.z\n7,2.5,1,2,3\n8,3.5,4,5,6\n");
    let params = ["--in", "params.dt=0.5", "--in", "params.n=10"];
    let run = |more: &[&str]| home.ok(&[&["run", "bodies.wgsl"], &params[..], more].concat());
    let shown = run(&["--in", "bodies=bodies.csv"]);
    assert!(
        shown.contains("Body [2]") && shown.contains("{at.x: 1.5, at.y: 2, at.z: 3, mass: 2.5, id: 17}"),
        "{shown}"
    );
    assert!(shown.contains("mass: min 2.5, max 3.5, mean 3"), "{shown}");
    run(&[
        "--in",
        "bodies=bodies.csv",
        "--out",
        "moved=moved.csv",
        "--out",
        "moved=moved.npy",
        "--out",
        "moved=moved.bin",
    ]);
    let expected = "at.x,at.y,at.z,mass,id\n1.5,2,3,2.5,17\n4.5,5,6,3.5,18\n";
    assert_eq!(String::from_utf8(home.read("moved.csv")).unwrap(), expected);
    let records = home.read("moved.npy");
    let header = String::from_utf8_lossy(&records[10..128]).into_owned();
    assert!(header.contains("[('at', '<f4', (3,)), ('mass', '<f4'), ('id', '<u4')]"), "{header}");
    assert_eq!(home.read("moved.bin").len(), 64, "bytes lie as in the buffer");
    // Whatever was written can be read, and means the same.
    for file in ["moved.npy", "moved.csv", "moved.bin"] {
        let again = run(&["--in", &format!("bodies={file}")]);
        assert!(again.contains("{at.x: 2, at.y: 2, at.z: 3, mass: 2.5, id: 27}"), "{file}: {again}");
    }
    // A list of numbers is taken by type, too.
    let list = run(&["--in", "bodies=1,2,3,4,5"]);
    assert!(list.contains("{at.x: 1.5, at.y: 2, at.z: 3, mass: 4, id: 15}"), "{list}");
    let json: serde_json::Value = serde_json::from_str(&run(&["--in", "bodies=bodies.csv", "--json"])).expect("JSON");
    assert_eq!(json["results"]["moved"]["members"]["id"]["values"], serde_json::json!([17, 18]));
    assert_eq!(json["problems"], serde_json::json!([]));
}

#[test]
fn members_are_set_one_by_one() {
    let home = Home::new();
    let run = |more: &[&'static str]| [&["run", "bodies.wgsl", "--in", "bodies=1,2,3,4,5"], more].concat();
    home.refused(&run(&["--in", "params.n=1"]), &["V1707", "`params` has no contents for dt", "--in params.dt=1"]);
    home.refused(&run(&["--in", "params.dr=0.5"]), &["V1706", "did you mean `dt`"]);
    home.refused(&run(&["--in", "params.n=0.5", "--in", "params.dt=1"]), &["V1708", "params.n"]);
    home.refused(&run(&["--in", "params.n=1,2", "--in", "params.dt=1"]), &["V1709", "params.n"]);
    home.refused(
        &run(&["--in", "bodies.mass=1", "--in", "params=1,2", "--in", "bodies=9,9,9,9,9"]),
        &["V1705", "twice"],
    );
    // One member over all that was given.
    let shown = home.ok(&run(&["--in", "params=0.5,3", "--in", "params.n=4"]));
    assert!(shown.contains("id: 9}"), "{shown}");
    home.refused(&run(&[]), &["V1707", "--in params.dt=1"]);
    home.file("wrong.csv", "x,y,z,mass,id\n1,2,3,4,5\n");
    home.refused(&["run", "bodies.wgsl", "--in", "bodies=wrong.csv", "--in", "params=1,2"], &["V1706", "at.x"]);
}

#[test]
fn numbers_are_converted_where_nothing_is_lost() {
    let home = Home::new();
    let header =
        |descr: &str, count: usize| format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({count},), }}");
    let longs = |values: [i64; 2]| npy(&header("<i8", 2), &values.map(i64::to_le_bytes).concat());
    home.file("longs.npy", longs([1, 4_000_000_000]));
    assert!(home.ok(&["run", "copy.wgsl", "--in", "a=longs.npy"]).contains("1, 4000000000"));
    home.file("longs.npy", longs([1, -1]));
    home.refused(&["run", "copy.wgsl", "--in", "a=longs.npy"], &["V1708", "-1 does not fit u32 (element 1)", "--cast"]);
    assert!(home.ok(&["run", "copy.wgsl", "--in", "a=longs.npy", "--cast"]).contains("1, 4294967295"));
    home.file("doubles.npy", npy(&header("<f8", 2), &[0.5f64, 0.1].map(f64::to_le_bytes).concat()));
    home.refused(&["run", DOUBLE, "--in", "a=doubles.npy"], &["V1708", "0.1 is not exact in f32"]);
    assert!(home.ok(&["run", DOUBLE, "--in", "a=doubles.npy", "--cast"]).contains("f32 [2]"));
    home.file("text.txt", "AB");
    assert!(home.ok(&["run", "copy.wgsl", "--in", "a=bytes:text.txt"]).contains("65, 66"));
    home.file("text.txt", "ABCD");
    assert!(home.ok(&["run", "copy.wgsl", "--in", "a=raw:text.txt"]).contains("1145258561"));
}

#[test]
fn vectors_of_three_lie_as_in_the_buffer_in_bytes_and_close_together_elsewhere() {
    let home = Home::new();
    let outs = ["--out", "out=out.bin", "--out", "out=out.csv"];
    home.ok(&[&["run", "vectors.wgsl", "--in", "a=1,2,3,4,5,6"], &outs[..]].concat());
    let bytes = home.read("out.bin");
    assert_eq!((bytes.len(), &bytes[16..20]), (32, &5f32.to_le_bytes()[..]));
    assert_eq!(home.read("out.csv"), b"2,3,4\n5,6,7\n");
    assert!(home.ok(&["run", "vectors.wgsl", "--in", "a=out.bin"]).contains("3, 4, 5, 6, 7, 8"));
    home.file("packed.bin", [0; 24]);
    home.refused(&["run", "vectors.wgsl", "--in", "a=packed.bin"], &["V1709", "16 bytes"]);
}

#[test]
fn standard_streams_are_files_too() {
    let home = Home::new();
    let output = home.fed(&["run", "copy.wgsl", "--in", "a=-", "--out", "out=-"], b"1 2\n3 4\n");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "1,2\n3,4\n", "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stderr).contains("out: u32 [2 x 2]"));
    let output = home.fed(&["run", "copy.wgsl", "--in", "a=raw:-", "--out", "out=raw:-"], &[1, 2, 3, 4]);
    assert_eq!(output.stdout, [1, 2, 3, 4]);
    let twice = ["run", "copy.wgsl", "--in", "a=1", "--out", "out=-", "--out", "out=/dev/stdout"];
    home.refused(&twice, &["V1702", "the same file"]);
    home.refused(&["run", "copy.wgsl", "--in", "a=1", "--out", "out=-", "--trace", "-"], &["V1702", "the trace"]);
}

#[cfg(unix)]
#[test]
fn pipes_and_devices_work_or_are_refused() {
    let home = Home::new();
    let pipe = home.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().is_ok_and(|made| made.success()));
    let mut child = home.command(&["run", "copy.wgsl", "--in", "a=csv:pipe"]).stdout(Stdio::piped()).spawn().unwrap();
    std::fs::OpenOptions::new().write(true).open(&pipe).and_then(|mut file| file.write_all(b"5,6")).unwrap();
    let mut shown = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut shown).unwrap();
    assert!(child.wait().unwrap().success() && shown.contains("5, 6"), "{shown}");
    if Path::new("/dev/zero").exists() {
        home.refused(&["run", "copy.wgsl", "--in", "a=raw:/dev/zero"], &["V1701", "no end"]);
    }
    let mut child = home.command(&["run", "copy.wgsl", "--in", "a=7", "--out", "out=csv:pipe"]).spawn().unwrap();
    let mut read = String::new();
    let mut file = std::fs::File::open(&pipe).unwrap();
    std::io::Read::read_to_string(&mut file, &mut read).unwrap();
    assert!(child.wait().unwrap().success() && read == "7\n", "{read}");
}

#[test]
fn nothing_is_lost_under_one_name() {
    let home = Home::new();
    let kernel = home.path("copy.wgsl");
    let before = std::fs::read(&kernel).unwrap();
    std::fs::create_dir(home.path("sub")).unwrap();
    let run = |more: &[&'static str]| [&["run", "copy.wgsl", "--in", "a=1"], more].concat();
    home.refused(&run(&["--out", "out=x.csv", "--out", "out=sub/../x.csv"]), &["V1702", "the same file"]);
    home.refused(&run(&["--out", "out=x.csv", "--trace", "./x.csv"]), &["V1702", "the trace"]);
    home.refused(&run(&["--out", "out=raw:sub/../copy.wgsl"]), &["V1702", "the kernel"]);
    home.refused(&run(&["--out", "out=x.jpg"]), &["V1702", ".jpg"]);
    home.refused(&["emit", "copy.wgsl", "--to", "wgsl", "--output", "./copy.wgsl"], &["V1702", "the kernel"]);
    home.refused(&["run", "copy.wgsl", "--in", "a=1", "--in", "a=2"], &["V1705", "twice"]);
    assert_eq!(std::fs::read(&kernel).unwrap(), before);
    assert!(!home.path("x.csv").exists());
    // A file may be read and replaced in one run.
    home.file("a.csv", "3,4");
    home.ok(&["run", "copy.wgsl", "--in", "a=a.csv", "--out", "out=a.csv"]);
    assert_eq!(home.read("a.csv"), b"3\n4\n");
}

#[test]
fn counters_start_at_zero() {
    let home = Home::new();
    home.file(
        "count.wgsl",
        "@group(0) @binding(0) var<storage, read> a: array<u32>;
        @group(0) @binding(1) var<storage, read_write> bins: array<atomic<u32>, 4>;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x < arrayLength(&a) { atomicAdd(&bins[a[id.x] % 4u], 1u); }
        }",
    );
    let run = ["run", "count.wgsl", "--in", "a=0,1,1,5,3", "--grid", "1"];
    assert!(home.ok(&run).contains("bins: u32 [4]  1, 3, 0, 1"));
    assert!(home.ok(&[&run[..], &["--in", "bins=10,10,10,10"]].concat()).contains("11, 13, 10, 11"));
}

#[test]
fn shapes_and_lengths_are_told() {
    let home = Home::new();
    let mandelbrot = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/mandelbrot.wgsl");
    home.refused(&["run", mandelbrot], &["V1709", "--shape pixels=600x900", "var<storage"]);
    assert!(home.ok(&["run", "copy.wgsl", "--in", "a=zeros:1e3", "--shape", "out=1e3"]).contains("u32 [1000]"));
    // More than any machine has.
    home.refused(&["run", mandelbrot, "--shape", "pixels=1e6x1e5"], &["V1714", "GB of memory"]);
}
