//! Several passes on buffers that stay where they are.

use super::{Home, chance};

const STEP: &str = "
    @group(0) @binding(0) var<storage, read> now: array<u32>;
    @group(0) @binding(1) var<storage, read_write> next: array<u32>;
    override by: u32 = 1u;
    @compute @workgroup_size(64) fn add(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x < arrayLength(&now) { next[id.x] = now[id.x] + by; }
    }
    @compute @workgroup_size(64) fn double(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x < arrayLength(&now) { next[id.x] = now[id.x] * 2u; }
    }";

#[test]
fn buffers_take_turns() {
    let home = Home::new();
    home.file("step.wgsl", STEP);
    let done =
        home.done("run step.wgsl --entry add --in now=iota:100 --swap now,next --steps 7 --out now=now.bin --check");
    assert_eq!(home.numbers("now.bin"), (7..107).collect::<Vec<u32>>());
    assert!(done.said.contains("pass 1 of 1, `add`: ") && done.said.contains("7 steps in "), "{}", done.said);
    assert!(done.out.contains("agrees"), "{}", done.out);
    // Without turns every step does the same.
    home.done("run step.wgsl --entry add --in now=iota:100 --steps 7 --out next=next.bin");
    assert_eq!(home.numbers("next.bin"), (1..101).collect::<Vec<u32>>());
}

/// The first steps are launched pass by pass, the others replayed as one.
#[test]
fn many_steps_are_recorded() {
    let home = Home::new();
    home.file("step.wgsl", STEP);
    let run = "run step.wgsl --pass add --in now=iota:100 --swap now,next --out now=now.bin --check --steps";
    for steps in [64, 65, 66, 300] {
        assert!(home.done(&format!("{run} {steps}")).out.contains("agrees"));
        assert_eq!(home.numbers("now.bin"), (steps..steps + 100).collect::<Vec<u32>>());
    }
    // A limit ends a launch, and nothing ends a part of a recording.
    home.done(&format!("{run} 300 --timeout 60"));
    home.done(&format!("{run} 100 --every 30 --out now=frame-%03d.bin --trace trace.json"));
    assert_eq!(home.numbers("frame-003.bin"), (90..190).collect::<Vec<u32>>());
}

/// Errors add up over steps, and how far they may is found out by evaluating all of them.
#[test]
fn fast_passes_are_checked_too() {
    let home = Home::new();
    home.file(
        "step.wgsl",
        "@group(0) @binding(0) var<storage, read> now: array<f32>;
         @group(0) @binding(1) var<storage, read_write> next: array<f32>;
         @compute @workgroup_size(64) fn add(@builtin(global_invocation_id) id: vec3<u32>) {
             if id.x < arrayLength(&now) { next[id.x] = sin(now[id.x]) / 3.0 + sqrt(now[id.x] * 1.7 + 0.3); }
         }",
    );
    let run = "run step.wgsl --in now=random:f32:200 --swap now,next --steps 6 --check";
    let fast = home.done(&format!("{run} --math fast"));
    assert!(fast.out.contains("as near to the reference interpreter"), "{}", fast.out);
    assert!(home.done(run).out.contains("the reference interpreter agrees"));
}

#[test]
fn passes_come_from_flags_or_a_file() {
    let home = Home::new();
    home.file("step.wgsl", STEP);
    home.done("run step.wgsl --pass add --pass step.wgsl:double --in now=iota:9 --set by=5 --out next=out.bin");
    // Both read `now`, and the second wrote last.
    assert_eq!(home.numbers("out.bin"), (0..9).map(|at| at * 2).collect::<Vec<u32>>());
    home.file(
        "p.toml",
        "steps = 2\nswap = 'now,next'\n[in]\nnow = 'iota:9'\n
         [[pass]]\nkernel = 'step.wgsl'\nentry = 'add'\nset.by = 10\nbind.next = 'between'\n
         [[pass]]\nkernel = 'step.wgsl'\nentry = 'double'\nbind.now = 'between'\n",
    );
    home.done("run p.toml --out now=now.bin --check");
    let expected: Vec<u32> = (0..9).map(|at| ((at + 10) * 2 + 10) * 2).collect();
    assert_eq!(home.numbers("now.bin"), expected);
    // The command line comes before the file.
    home.done("run p.toml --steps 1 --in now=1,2,3 --set by=1 --out now=now.bin");
    assert_eq!(home.numbers("now.bin"), [4, 6, 8]);
    let done = home.done("check p.toml");
    assert!(done.out.contains("`add` is valid") && done.out.contains("`double` is valid"), "{}", done.out);
    let done = home.done("explain p.toml");
    assert!(done.out.contains("`add` runs on") && done.out.contains("`double` runs on"), "{}", done.out);
    let done = home.done("bench p.toml --backend cpu --rounds 3");
    assert!(done.out.contains("cpu"), "{}", done.out);
    let done = home.done("run p.toml --trace trace.json --json");
    let document: serde_json::Value = serde_json::from_str(&done.out).expect("a document");
    assert_eq!((&document["passes"][1]["pass"], &document["steps"]), (&"double".into(), &2.into()));
    assert_eq!(done.said, "");
    let trace = std::fs::read_to_string(home.path("trace.json")).expect("a trace");
    assert!(trace.contains("add") && trace.contains("double"), "{trace}");
}

#[test]
fn frames_are_written_as_they_come() {
    let home = Home::new();
    home.file("step.wgsl", STEP);
    let run = "run step.wgsl --entry add --in now=iota:4 --swap now,next --steps 7";
    home.done(&format!("{run} --every 3 --out now=f-%02d.bin --out next=last.bin"));
    assert_eq!(home.numbers("f-01.bin"), [3, 4, 5, 6]);
    assert_eq!(home.numbers("f-02.bin"), [6, 7, 8, 9]);
    assert!(!home.path("f-03.bin").exists());
    assert_eq!(home.numbers("last.bin"), [6, 7, 8, 9]);
    home.refused(&format!("{run} --out now=f-%02d.bin"), "V1705");
    home.refused(&format!("{run} --every 3 --out now=f.bin"), "V1705");
    home.refused("run step.wgsl --entry add --in now=iota:4 --every 3", "V1705");
}

#[test]
fn the_examples_are_right() {
    let home = Home::new();
    // Life, against one that is written here.
    let (width, height) = (20usize, 13usize);
    let cells = chance(width * height);
    home.file("cells.bin", super::bytes(&cells));
    home.done("run EXAMPLES/life.toml --steps 10 --in now=cells.bin --shape now=13x20 --out now=now.bin --out picture=life.png");
    let mut expected: Vec<u32> = cells.iter().map(|cell| cell & 1).collect();
    for _ in 0..10 {
        let alive = |x: usize, y: usize| expected[y % height * width + x % width];
        let next = |at: usize| {
            let (x, y) = (at % width, at / width);
            let around: u32 =
                (0..9).filter(|n| *n != 4).map(|n| alive(x + width + n % 3 - 1, y + height + n / 3 - 1)).sum();
            u32::from(around == 3 || (around == 2 && expected[at] == 1))
        };
        expected = (0..width * height).map(next).collect();
    }
    assert_eq!(home.numbers("now.bin"), expected);
    assert!(home.path("life.png").metadata().is_ok_and(|there| there.len() > 50));

    // Running sums of more than one block, not of whole blocks.
    let values = chance(70_001);
    home.file("values.bin", super::bytes(&values));
    home.done("run EXAMPLES/scan.toml --in values=values.bin --out sums=sums.bin");
    let mut sum = 0u32;
    let expected: Vec<u32> = values
        .iter()
        .map(|value| {
            sum = sum.wrapping_add(*value);
            sum
        })
        .collect();
    assert_eq!(home.numbers("sums.bin"), expected);

    // A blur in two passes is nearly the one in one pass, whose weights are products.
    home.done("run EXAMPLES/scene.wgsl --shape pixels=40x60 --out pixels=scene.png");
    home.done("run EXAMPLES/blur.wgsl --in image=scene.png --out blurred=one.bin");
    home.done("run EXAMPLES/blur.toml --in image=scene.png --out blurred=two.bin");
    let [one, two] = ["one.bin", "two.bin"].map(|name| home.numbers(name));
    assert_eq!(one.len(), 40 * 60 * 4);
    let far = one.iter().zip(&two).filter(|(a, b)| (f32::from_bits(**a) - f32::from_bits(**b)).abs() > 1e-5).count();
    assert_eq!(far, 0);
}

#[test]
fn mistakes_are_told() {
    let home = Home::new();
    home.file("step.wgsl", STEP);
    home.file("float.wgsl", STEP.replace("array<u32>", "array<f32>").replace("+ by", "+ f32(by)").replace("2u", "2.0"));
    let run = "run step.wgsl --entry add --in now=iota:100 --swap now,next";
    for (words, code, said) in [
        ("run step.wgsl --pass add --pass float.wgsl:double --in now=iota:9", "V1719", "other elements"),
        ("run step.wgsl --pass nothing --in now=iota:9", "V0404", "nothing"),
        ("run step.wgsl --pass add --entry add --in now=iota:9", "V1705", "--pass"),
        ("run step.wgsl --pass add --pass double --in now=iota:9 --grid 1", "V1705", "one pass"),
        ("run step.wgsl --pass add --in now=iota:9 --in then=1", "V1706", "it has now, next"),
        ("run step.wgsl --pass add --in now=iota:9 --in next=iota:9", "V1705", "made by the pass `add`"),
        ("run step.wgsl --pass add --in now=iota:9 --in now=iota:8", "V1705", "twice"),
        ("run step.wgsl --pass add --in now=iota:9 --set bye=1", "V1706", "did you mean `by`?"),
        ("run step.wgsl --pass add --in now=iota:9 --repeat 3", "V1705", "--repeat"),
        ("run step.wgsl --pass add --in now=iota:9 --swap now", "V1705", "two buffers"),
        ("run step.wgsl --pass add --in now=iota:9 --swap now,now", "V1719", "twice"),
        ("run step.wgsl --pass add --in now=iota:9 --shape next=8 --swap now,next", "V1719", "36 bytes"),
        ("run step.wgsl --pass add", "V1707", "input `now` has no contents"),
        ("run missing.toml", "V1701", "missing.toml"),
        ("tune p.toml", "V1705", "is a pipeline"),
        ("emit p.toml --to ptx", "V1705", "is a pipeline"),
    ] {
        home.file("p.toml", "[[pass]]\nkernel = 'step.wgsl'\n");
        let told = home.refused(words, code);
        assert!(told.contains(said), "`vyre {words}` does not say `{said}`:\n{told}");
    }
    home.file("hostile.toml", "[[pass]]\nkernel = 'step.wgsl'\nentry = 'add'\nstep = 3\n");
    let told = home.refused("run hostile.toml --in now=iota:4", "V1718");
    assert!(told.contains("hostile.toml:4:1"), "{told}");
    home.file("hostile.toml", b"\xff\xfe\x00");
    home.refused("run hostile.toml", "V1718");
    home.refused(&format!("{run} --out now=step.wgsl"), "V1702");
}

/// An interrupted run leaves whole frames, and nothing else.
#[cfg(unix)]
#[test]
fn an_interrupted_run_leaves_whole_frames() {
    use std::time::{Duration, Instant};
    let home = Home::new();
    home.file("step.wgsl", STEP);
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_vyre"))
        .args("run step.wgsl --entry add --in now=iota:100000 --swap now,next --steps 1000000 --every 1 --out now=f-%06d.bin".split(' '))
        .current_dir(home.0.path())
        .env("XDG_CACHE_HOME", home.path("cache"))
        .stderr(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("the command starts");
    let started = Instant::now();
    while !home.path("f-000003.bin").exists() && started.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let killed = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(killed.is_ok_and(|status| status.success()));
    assert_eq!(child.wait().expect("it ends").code(), Some(130));
    let mut frames = 0;
    for entry in std::fs::read_dir(home.0.path()).expect("a folder").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        assert!(!name.starts_with(".vyre-"), "{name} is left");
        if name.starts_with("f-") {
            assert_eq!(entry.metadata().expect("a file").len(), 400_000, "{name}");
            frames += 1;
        }
    }
    assert!(frames >= 3);
}
