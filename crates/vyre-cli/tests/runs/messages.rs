//! Messages that once said little, or something wrong.

use serde_json::Value;

use super::{Done, Home};

/// Mistakes in WGSL are told in WGSL's words.
#[test]
fn the_front_end_speaks_wgsl() {
    let home = Home::new();
    let head = "@group(0) @binding(0) var<storage, read_write> out: array<f32>;
        @group(0) @binding(1) var<storage, read> only: array<f32>;
        fn half(x: f32) -> f32 { return x * 0.5; }";
    let main = |body: &str| {
        format!(
            "{head}\n@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{ {body} }}"
        )
    };
    for (text, said) in [
        (main("out[id.x] = f32(id.x) + 1u;"), "can't work with f32 and u32"),
        (main("only[id.x] = 1.0;"), "declared to be read only"),
        (main("out[id.x] = half(1u);"), "the first argument has not the type"),
        (main("half();"), "Requires 1 arguments"),
        (main("out[id.x] = id.x;"), "f32"),
        (main("var v = vec3<f32>(1.0, 2.0);"), "expects 3 components, found 2"),
        (main("let q: i32 = 1.5;"), "number with a fraction"),
        (main("out[id.x] = 1.0 }; fn f( {"), "expected"),
        (main("if 1 { }"), ""),
        (main("let m = mat3x3<f32>() * vec2<f32>(1.0);"), ""),
        (main("out[id.x] = only;"), ""),
        (main("out[1.5] = 0.0;"), ""),
        (main("let s = sqrt(1u);"), ""),
        (main("out[id.x] = unknown(3);"), "unknown"),
        (main("switch id.x { case 1.0: { } default: { } }"), ""),
        (
            format!("{head}\nfn f(a: i32) -> f32 {{ return a; }}\n{}", &main("")[head.len()..]),
            "what is returned has not the type",
        ),
        (format!("{head}\nfn g() -> f32 {{ }}\n{}", &main("")[head.len()..]), ""),
        (format!("{head}\nvar<workgroup> w: array<f32>;\n{}", &main("w[0] = 1.0;")[head.len()..]), ""),
    ] {
        home.file("k.wgsl", &text);
        let output = home.vyre("check k.wgsl");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}\n{told}");
        // The line of the kernel may have anything in it.
        let ours: Vec<&str> = told.lines().filter(|line| line.starts_with("error") || line.contains("Fix:")).collect();
        let ours = ours.join("\n");
        assert!(ours.contains(said), "{text}\n{told}");
        for word in
            ["Scalar", "Some(", "Entry point", "see msg", "Abstract", "Expression [", "Function [", "kind:", "Handle"]
        {
            assert!(!ours.contains(word), "`{word}` is naga's own:\n{ours}");
        }
        let numbered =
            ours.split('[').skip(1).any(|rest| rest.split(']').next().is_some_and(|n| n.parse::<u32>().is_ok()));
        assert!(!numbered, "a number of naga's tables:\n{ours}");
        assert!(told.contains("k.wgsl:"), "no line:\n{told}");
    }
}

#[test]
fn nothing_is_expected_of_a_backend_that_is_not_here() {
    let home = Home::new();
    let devices: Value = serde_json::from_str(&home.done("devices --json").out).expect("a document");
    let explained: Value = serde_json::from_str(&home.done("explain EXAMPLES/double.wgsl --in a=iota:1000 --json").out)
        .expect("a document");
    for device in devices["devices"].as_array().expect("a list") {
        let choices = explained["others"].as_array().expect("a list");
        if let Some(choice) = choices.iter().find(|choice| choice["backend"] == device["id"]) {
            assert_eq!(device["present"] == true, choice["excluded"].is_null(), "{choice} {device}");
        }
    }
}

#[test]
fn lengths_are_asked_for_as_the_command_takes_them() {
    let home = Home::new();
    home.file(
        "h.wgsl",
        "@group(0) @binding(0) var<storage, read> data: array<u32>;
         @group(0) @binding(1) var<storage, read_write> bins: array<atomic<u32>>;
         @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
             if id.x < arrayLength(&data) { atomicAdd(&bins[data[id.x]], 1u); }
         }",
    );
    let told = home.refused("run h.wgsl --in data=1,2,3", "V1707");
    assert!(told.contains("only counts into it") && told.contains("--shape bins=256"), "{told}");
    home.done("run h.wgsl --in data=1,2,3 --shape bins=256");
    let told = home.refused("run EXAMPLES/mandelbrot.wgsl", "V1709");
    assert!(told.contains("--shape pixels=600x900") && told.contains("mandelbrot.wgsl:6:"), "{told}");
    home.done("run EXAMPLES/mandelbrot.wgsl --shape pixels=600x900");
}

/// What a message suggests is taken.
#[test]
fn suggested_contents_are_taken() {
    let home = Home::new();
    for (declared, used) in [
        ("array<f32>", "data[id.x]"),
        ("array<vec2<f32>>", "data[id.x].y"),
        ("array<vec3<u32>>", "f32(data[id.x].z)"),
        ("array<i32, 8>", "f32(data[id.x])"),
        ("array<u32, 3>", "f32(data[id.x])"),
        ("vec4<f32>", "data.w"),
    ] {
        home.file(
            "k.wgsl",
            format!(
                "@group(0) @binding(0) var<storage, read> data: {declared};
                 @group(0) @binding(1) var<storage, read_write> out: array<f32, 2>;
                 @compute @workgroup_size(2) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{ out[id.x] = {used}; }}"
            ),
        );
        let told = home.refused("run k.wgsl", "V1707");
        let suggested =
            told.split("for example `").nth(1).and_then(|rest| rest.split('`').next()).expect("a suggestion");
        home.done(&format!("run k.wgsl {suggested}"));
    }
}

#[test]
fn explain_takes_what_run_takes() {
    let home = Home::new();
    home.file(
        "two.wgsl",
        "override by: u32;
         @group(0) @binding(0) var<storage, read_write> out: array<u32, 64>;
         @compute @workgroup_size(64) fn one(@builtin(global_invocation_id) id: vec3<u32>) { out[id.x] = by; }
         @compute @workgroup_size(32) fn other(@builtin(global_invocation_id) id: vec3<u32>) { out[id.x] = by + 1u; }",
    );
    let done = home.done("explain two.wgsl --entry other --set by=3 --grid 1 --backend cpu");
    assert!(
        done.out.contains("`other` runs on cpu") && done.out.contains("1 x 1 x 1 workgroups of 32"),
        "{}",
        done.out
    );
    home.refused("explain two.wgsl --entry other", "V0409");
    let told = home.refused("explain two.wgsl --set by=3", "V0405");
    assert!(told.contains("--entry one"), "{told}");
}

/// A barrier that not all invocations reach is shown, also where there are several.
#[test]
fn barriers_are_shown_where_they_stand() {
    let home = Home::new();
    home.file(
        "k.wgsl",
        "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
var<workgroup> w: array<u32, 64>;
@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) at: u32) {
    w[at] = at;
    workgroupBarrier();
    if at < 7u {
        workgroupBarrier();
        w[at] = 1u;
    }
    workgroupBarrier();
    out[at] = w[at];
}",
    );
    let told = home.refused("check k.wgsl", "V0115");
    assert!(told.contains("k.wgsl:7:9"), "{told}");
    assert_eq!(told.matches("V0115").count(), 1, "{told}");
}

#[test]
fn a_subgroup_operation_that_some_miss_is_shown_among_others() {
    let home = Home::new();
    let kernel = |from: &str| {
        format!(
            "enable subgroups;
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) at: u32,
    @builtin(subgroup_id) subgroup_id: u32) {{
    let whole = subgroupAdd(a[id.x]);
    for (var row = {from}; row < 3u; row += 1u) {{
        out[id.x] += whole + subgroupAdd(a[row]);
    }}
}}"
        )
    };
    home.file("k.wgsl", &kernel("at"));
    let told = home.refused("check k.wgsl", "V0115");
    assert!(told.contains("k.wgsl:8:30"), "{told}");
    // What a whole subgroup does together is fine.
    home.file("k.wgsl", &kernel("subgroup_id"));
    home.done("check k.wgsl");
}

#[test]
fn a_length_that_was_taken_from_an_input_is_said() {
    let home = Home::new();
    home.file(
        "k.wgsl",
        "@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@compute @workgroup_size(64) fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) at: u32) {
    for (var i = at; i < 300u; i += 64u) { out[group.x * 300u + i] = a[i % 100u]; }
}",
    );
    let run = "run k.wgsl --in a=iota:f32:100 --grid 4 --backend cpu";
    let said = home.done(run).said;
    assert!(said.contains("V0188") && said.contains("--shape out=N") && said.contains("k.wgsl:2:48"), "{said}");
    let Done { out, said } = home.done(&format!("{run} --shape out=1200"));
    assert!(!said.contains("V0188") && out.contains("out: f32 [1200]"), "{out}{said}");
}
