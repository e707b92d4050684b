//! What a run says of its launch, and what it takes from shapes.

use serde_json::Value;

use super::Home;

const BOX: &str = "
    override width: u32 = 5u;
    override height: u32 = 4u;
    @group(0) @binding(0) var<storage, read> image: array<u32>;
    @group(0) @binding(1) var<storage, read_write> out: array<u32>;
    @compute @workgroup_size(8, 8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x < width && id.y < height { out[id.y * width + id.x] = image[id.y * width + id.x] + width; }
    }";

#[test]
fn every_run_says_how_it_was_launched() {
    let home = Home::new();
    let done = home.done("run EXAMPLES/double.wgsl --in a=iota:1000 --backend cpu");
    let line = done.said.lines().next().unwrap_or_default();
    assert!(line.starts_with("cpu: ") && line.contains("for 1000 invocations (`id.x < arrayLength(&a)`), "), "{line}");
    assert!(line.ends_with('s'), "{line}");
    assert_eq!(done.said.lines().count(), 1);
    let done = home.done("run EXAMPLES/double.wgsl --in a=iota:1000 --backend cpu --grid 16");
    assert!(done.said.contains("16 workgroups of 64 for 1024 invocations (`--grid`)"), "{}", done.said);
    let done = home.done("run EXAMPLES/double.wgsl --in a=iota:1000 --backend reference --domain 1000");
    assert!(done.said.contains("reference: 16 workgroups of 64 for 1000 invocations (`--domain`)"), "{}", done.said);

    let done = home.done("run EXAMPLES/double.wgsl --in a=iota:1000 --backend cpu --json");
    assert_eq!(done.said, "");
    let document: Value = serde_json::from_str(&done.out).expect("a document");
    let launch = &document["launch"];
    assert_eq!((&launch["backend"], &launch["proven"]), (&"cpu".into(), &true.into()));
    assert_eq!(launch["domain"], serde_json::json!([1000, 1, 1]));
    assert!(launch["time_ns"].as_f64().is_some_and(|ns| ns > 0.0));
}

#[test]
fn what_a_launch_leaves_out_is_said() {
    let home = Home::new();
    home.file(
        "k.wgsl",
        "@group(0) @binding(0) var<storage, read> a: array<u32>;
         @group(0) @binding(1) var<storage, read_write> out: array<u32>;
         @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
             if id.x < arrayLength(&out) { out[id.x] = a[id.x]; }
         }",
    );
    let done = home.done("run k.wgsl --in a=iota:1000 --shape out=10");
    assert!(done.said.contains("warning[V0199]") && done.said.contains("only 10 of the 1000"), "{}", done.said);
    assert!(!home.done("run k.wgsl --in a=iota:1000").said.contains("V0199"));
    // So is what was asked for, where that is less than the kernel is for.
    let done = home.done("run k.wgsl --in a=iota:1000 --grid 3");
    assert!(done.said.contains("`--grid` runs 192 of the 1000 invocations"), "{}", done.said);
    assert!(home.done("run k.wgsl --in a=iota:1000 --domain 900").said.contains("`--domain` runs 960 of the 1000"));
    assert!(!home.done("run k.wgsl --in a=iota:1000 --grid 16").said.contains("V0199"));
}

#[test]
fn the_router_is_compared_with_an_oracle_for_a_folder_of_kernels() {
    let home = Home::new();
    std::fs::create_dir(home.path("kernels")).unwrap();
    home.file("kernels/box.wgsl", BOX);
    let done = home.done("route kernels --sizes 20,400 --rounds 3 --json");
    let document: Value = serde_json::from_str(&done.out).expect("a document");
    let backends = document["backends"].as_array().unwrap();
    assert!(backends.contains(&"cpu".into()) && !backends.contains(&"reference".into()), "{backends:?}");
    let rows = document["kernels"].as_array().unwrap();
    assert_eq!((&rows[0]["data"], &rows[1]["data"], rows.len()), (&"host".into(), &"resident".into(), 2));
    for row in rows {
        // Nobody is faster than the fastest, and every choice was charged.
        assert!(row["learnt_to_oracle"].as_f64().is_some_and(|ratio| ratio >= 1.0), "{row}");
        assert_eq!(row["dispatches"], 4, "{row}");
        assert_eq!(row["oracle_ns"].as_array().map(Vec::len), Some(2), "{row}");
    }
}

#[test]
fn a_workgroup_that_changes_results_is_refused() {
    let home = Home::new();
    // Each invocation more does something more.
    home.file(
        "sums.wgsl",
        "@group(0) @binding(0) var<storage, read> a: array<u32>;
         @group(0) @binding(1) var<storage, read_write> out: array<u32>;
         var<workgroup> all: atomic<u32>;
         @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>,
             @builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
             if id.x < arrayLength(&a) { atomicAdd(&all, a[id.x]); }
             workgroupBarrier();
             if local == 0u { out[group.x] = atomicLoad(&all); }
         }",
    );
    let run = "run sums.wgsl --in a=iota:640 --shape out=10 --domain 640";
    home.done(run);
    let said = home.refused(&format!("{run} --workgroup 32"), "V1716");
    assert!(said.contains("which is 64 and not 32") && said.contains("--force"), "{said}");
    let done = home.done(&format!("{run} --workgroup 32 --force"));
    assert!(done.said.contains("warning[V1716]"), "{}", done.said);
    // Where it makes no difference nothing is said.
    let done = home.done("run EXAMPLES/double.wgsl --in a=iota:1000 --workgroup 32");
    assert!(done.said.contains("of 32 for 1000") && !done.said.contains("V1716"), "{}", done.said);
}

#[test]
fn names_of_a_shape_are_filled_and_named() {
    let home = Home::new();
    home.file("box.wgsl", BOX);
    let done = home.done("run box.wgsl --in image=zeros:30x20 --out out=out.bin");
    assert_eq!(home.numbers("out.bin"), vec![20; 600]);
    assert!(
        done.said.contains("; width = 20 (the shape of `image`); height = 30 (the shape of `image`)"),
        "{}",
        done.said
    );
    // What agrees may be said, too.
    home.done("run box.wgsl --in image=zeros:30x20 --set width=20");
    let said = home.refused("run box.wgsl --in image=zeros:30x20 --set width=21", "V1717");
    assert!(said.contains("`width` is set to 21, and the shape of `image` says 20"), "{said}");
    assert!(said.contains("box.wgsl:2:"), "{said}");
    home.done("run box.wgsl --in image=zeros:30x20 --set width=10 --force");
    // Without a shape the kernel's own values hold.
    home.done("run box.wgsl --in image=zeros:20 --out out=out.bin");
    assert_eq!(home.numbers("out.bin"), vec![5; 20]);
    // Two shapes that differ are asked about.
    let said = home.refused("run box.wgsl --in image=zeros:30x20 --shape out=20x30", "V1717");
    assert!(said.contains("20 (`image`) or 30 (`out`)"), "{said}");
}

#[test]
fn overrides_without_a_default_and_uniform_members_are_filled() {
    let home = Home::new();
    home.file("box.wgsl", BOX.replace(" = 5u", "").replace(" = 4u", ""));
    home.done("run box.wgsl --in image=zeros:3x7 --out out=out.bin");
    assert_eq!(home.numbers("out.bin"), vec![7; 21]);
    home.refused("run box.wgsl --in image=zeros:21", "V0409");
    home.done("check box.wgsl");
    home.file(
        "members.wgsl",
        "struct Size { width: u32, scale: f32, height: i32, n: u32 }
         @group(0) @binding(0) var<uniform> size: Size;
         @group(0) @binding(1) var<storage, read> image: array<u32>;
         @group(0) @binding(2) var<storage, read_write> out: array<u32>;
         @compute @workgroup_size(8, 8) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
             if id.x < size.width && i32(id.y) < size.height {
                 out[id.y * size.width + id.x] = image[id.y * size.width + id.x] + size.n * u32(size.scale);
             }
         }",
    );
    let done = home.done("run members.wgsl --in image=ones:6x5 --in size.scale=2 --out out=out.bin");
    assert_eq!(home.numbers("out.bin"), vec![61; 30]);
    for part in ["size.width = 5", "size.height = 6", "size.n = 30"] {
        assert!(done.said.contains(part), "{}", done.said);
    }
    let said = home.refused("run members.wgsl --in image=ones:6x5", "V1707");
    assert!(said.contains("no contents for scale"), "{said}");
    let said = home.refused("run members.wgsl --in image=ones:6x5 --in size=6,2,5,30", "V1717");
    assert!(said.contains("`size.width` is set to 6"), "{said}");
}

#[test]
fn the_examples_work_on_any_picture() {
    let home = Home::new();
    home.done("run EXAMPLES/mandelbrot.wgsl --shape pixels=30x40 --out pixels=small.png");
    let done = home.done("run EXAMPLES/blur.wgsl --in image=small.png --out blurred=blurred.png --check");
    assert!(done.said.contains("40 x 30 invocations"), "{}", done.said);
    // Beyond the picture's lower edge nothing is black.
    let done = home.done("run EXAMPLES/blur.wgsl --in image=small.png --json");
    let document: Value = serde_json::from_str(&done.out).expect("a document");
    assert_eq!(document["results"]["blurred"]["shape"], serde_json::json!([30, 40, 4]));
}

/// `--math` holds for every command that runs a kernel.
#[test]
fn the_arithmetic_that_was_asked_for_is_used() {
    let home = Home::new();
    let exact = home.done("run EXAMPLES/double.wgsl --in a=iota:10 --check --math exact");
    assert!(exact.out.contains("the reference interpreter agrees"), "{}", exact.out);
    let fast = home.done("run EXAMPLES/double.wgsl --in a=iota:10 --check --math fast");
    assert!(fast.out.contains("as near to the reference interpreter"), "{}", fast.out);
}
