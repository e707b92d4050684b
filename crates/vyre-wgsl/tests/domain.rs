//! How many invocations a kernel is launched with when nobody says: what its ids are compared with and what they index.

use vyre_foundation::ValidProgram;
use vyre_foundation::launch::{LaunchPlan, LaunchRequest, plan};
use vyre_wgsl::{ImportOptions, import};

/// What is bound to a kernel, by binding: `data`, `out` and what a test declares besides.
type Given<'a> = &'a [&'a [u8]];

fn program(source: &str) -> ValidProgram {
    let program = import(source, &ImportOptions::default()).unwrap_or_else(|problems| panic!("{problems:?}"));
    program.validate().unwrap_or_else(|problems| panic!("{problems:?}"))
}

fn launch_with(source: &str, given: Given<'_>, at_hand: bool) -> Result<LaunchPlan, String> {
    let program = program(source);
    let (mut bytes, mut contents, mut outputs) = (Vec::new(), Vec::new(), Vec::new());
    for index in program.binding_order() {
        let buffer = &program.buffers()[index];
        let given = given[buffer.binding as usize];
        if buffer.kind.is_input() {
            bytes.push(given.len() as u64);
            contents.push(at_hand.then_some(given));
        } else {
            outputs.push((buffer.name.clone(), given.len() as u64 / 4));
        }
    }
    let request = LaunchRequest {
        input_bytes: &bytes,
        contents: &contents,
        output_elements: &outputs,
        ..LaunchRequest::default()
    };
    plan(&program, &request).map_err(|problem| problem.to_string())
}

fn launch(source: &str, given: Given<'_>) -> LaunchPlan {
    launch_with(source, given, true).unwrap_or_else(|problem| panic!("{problem}\n{source}"))
}

fn domain(source: &str, given: Given<'_>) -> [u64; 3] {
    launch(source, given).domain
}

fn question(source: &str, given: Given<'_>) -> String {
    match launch_with(source, given, true) {
        Ok(plan) => panic!("launched {:?}, {}\n{source}", plan.domain, plan.origin),
        Err(problem) => problem,
    }
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// A kernel of one entry point with `data` to read and `out` to write.
fn map(declarations: &str, size: &str, body: &str) -> String {
    format!(
        "@group(0) @binding(0) var<storage, read> data: array<u32>;
         @group(0) @binding(1) var<storage, read_write> out: array<u32>;
         {declarations}
         @compute @workgroup_size({size})
         fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>,
                 @builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {{ {body} }}"
    )
}

#[test]
fn ids_that_are_compared_with_a_length_cover_it() {
    let data = vec![0u8; 1000 * 4];
    for body in [
        "if id.x < arrayLength(&data) { out[data[id.x] % 16u] = 1u; }",
        "if id.x >= arrayLength(&data) { return; } out[data[id.x] % 16u] = 1u;",
        "if !(id.x < arrayLength(&data)) { return; } out[0] = 1u;",
        "if arrayLength(&data) > id.x && data[id.x] > 3u { out[data[id.x]] = 1u; }",
        "let i = i32(id.x); if i >= i32(arrayLength(&data)) { return; } out[0] = 1u;",
        "let i = wid.x * 64u + lid.x; if i < arrayLength(&data) { out[0] = 1u; }",
        "if id.x < arrayLength(&data) && id.y == 0u { out[0] = 1u; }",
        "if id.x > arrayLength(&data) - 1u { return; } out[0] = 1u;",
        "for (var i = id.x; i < arrayLength(&data); i += groups.x * 64u) { out[data[i]] = 1u; }",
        "var i = id.x; loop { if i >= arrayLength(&data) { break; } out[data[i]] = 1u; i = i + groups.x * 64u; }",
    ] {
        assert_eq!(domain(&map("", "64", body), &[&data, &[0; 64]]), [1000, 1, 1], "{body}");
    }
}

#[test]
fn a_condition_in_a_function_counts() {
    let inside = "fn inside(i: u32) -> bool { if i >= arrayLength(&data) { return false; } return data[i] != 7u; }";
    let skip = "fn add(i: u32) { if i >= arrayLength(&data) { return; } out[data[i]] = 1u; }";
    let data = vec![0u8; 4000];
    let inputs: &[&[u8]] = &[&data, &[0; 64]];
    assert_eq!(domain(&map(inside, "64", "if inside(id.x) { out[0] = 1u; }"), inputs), [1000, 1, 1]);
    assert_eq!(domain(&map(skip, "64", "add(id.x);"), inputs), [1000, 1, 1]);
}

#[test]
fn ids_that_only_index_cover_what_they_index() {
    let data = vec![0u8; 4000];
    let inputs: &[&[u8]] = &[&data, &[0; 64]];
    // A histogram and a search, without a condition.
    assert_eq!(domain(&map("", "64", "out[data[id.x] % 16u] += 1u;"), inputs), [1000, 1, 1]);
    assert_eq!(domain(&map("", "64", "if data[id.x] == 3u { out[0] = id.x; }"), inputs), [1000, 1, 1]);
    // What is stored is what counts.
    assert_eq!(domain(&map("", "64", "out[id.x] = data[id.x * 2u] + data[id.x + 1u];"), inputs), [16, 1, 1]);
    assert_eq!(domain(&map("", "64", "out[id.x * 4u + 3u] = data[id.x];"), inputs), [4, 1, 1]);
    assert_eq!(
        domain(&map("", "64", "for (var k = 0u; k < 4u; k++) { out[id.x * 4u + k] = data[id.x]; }"), inputs),
        [4, 1, 1]
    );
    assert_eq!(domain(&map("", "64", "out[arrayLength(&out) - 1u - id.x] = data[id.x];"), inputs), [16, 1, 1]);
    assert_eq!(domain(&map("", "8, 8", "out[id.y * 4u + id.x] = 1u;"), inputs), [4, 4, 1]);
    assert_eq!(domain(&map("", "4, 4, 4", "out[(id.z * 2u + id.y) * 2u + id.x] = 1u;"), inputs), [2, 2, 4]);
    assert_eq!(domain(&map("", "4, 4, 4", "out[id.x * 8u + id.y * 2u + id.z] = 1u;"), inputs), [2, 4, 2]);
    let rows = "let row = id.x / 4u; let column = id.x % 4u; if row >= 3u { return; } out[row * 4u + column] = 1u;";
    assert_eq!(domain(&map("", "64", rows), inputs), [12, 1, 1]);
    let flat = "out[id.x + id.y * groups.x * 8u] = 1u;";
    assert_eq!(domain(&map("", "8, 8", flat), inputs), [16, 1, 1]);
}

#[test]
fn numbers_in_uniforms_and_constants_bound_ids() {
    let sizes = "struct Size { width: u32, height: u32, more: vec2<u32> }
                 @group(0) @binding(2) var<uniform> p: Size;
                 override depth: u32 = 5u;";
    let data = vec![0u8; 4000];
    let p = words(&[30, 20, 0, 7]);
    let inputs: &[&[u8]] = &[&data, &[0; 4000], &p];
    let guarded = "if id.x >= p.width || id.y >= p.height { return; } out[id.y * p.width + id.x] = 1u;";
    assert_eq!(domain(&map(sizes, "8, 8", guarded), inputs), [30, 20, 1]);
    assert_eq!(domain(&map(sizes, "8, 8", "out[id.y * p.width + id.x] = 1u;"), inputs), [30, 34, 1]);
    let vector = "if all(id.xy < p.more + vec2(1u, 1u)) { out[0] = 1u; }";
    assert_eq!(domain(&map(sizes, "8, 8", vector), inputs), [1, 8, 1]);
    let three = "if id.x < p.width && id.y < 4u && id.z < depth { out[0] = 1u; }";
    assert_eq!(domain(&map(sizes, "8, 8", three), inputs), [30, 4, 5]);
    let origin = launch(&map(sizes, "8, 8", guarded), inputs).origin;
    assert_eq!(&*origin, "`id.x < p.width`, `id.y < p.height`");
}

#[test]
fn a_kernel_without_ids_runs_once() {
    let data = vec![0u8; 4000];
    let serial = "for (var i = 0u; i < arrayLength(&data); i++) { out[0] += data[i]; }";
    let plan = launch(&map("", "1", serial), &[&data, &[0; 4]]);
    assert_eq!((plan.domain, plan.grid, &*plan.origin), ([1, 1, 1], [1, 1, 1], "no id is used"));
    // Each workgroup would do the same.
    let local = "for (var i = lid.x; i < arrayLength(&data); i += 64u) { out[i] = data[i]; }";
    let plan = launch(&map("", "64", local), &[&data, &[0; 4000]]);
    assert_eq!((plan.domain, plan.grid), ([64, 1, 1], [1, 1, 1]));
}

#[test]
fn a_workgroup_for_each_result() {
    let data = vec![0u8; 4000];
    let shared = "var<workgroup> tile: array<u32, 64>;";
    let sums = "tile[lid.x] = data[id.x]; workgroupBarrier(); if lid.x == 0u { out[wid.x] = tile[0] + tile[63]; }";
    let plan = launch(&map(shared, "64", sums), &[&data, &[0; 64]]);
    assert_eq!((plan.domain, plan.grid, &*plan.origin), ([1024, 1, 1], [16, 1, 1], "`out[group.x]`"));
}

#[test]
fn what_does_not_follow_is_asked_for() {
    let data = vec![0u8; 4000];
    let inputs: &[&[u8]] = &[&data, &[0; 64]];
    let asked = question(&map("", "64", "out[(id.x * 2654435761u) % 16u] = 1u;"), inputs);
    assert!(asked.contains("V0198") && asked.contains("--domain") && asked.contains("`id.x` is used"), "{asked}");
    let two = question(&map("", "64", "out[0] = data[id.x] + out[id.x];"), inputs);
    assert!(two.contains("16 (`out[id.x]`)") && two.contains("1000 (`data[id.x]`)"), "{two}");
    let strided = question(&map("", "64", "for (var i = id.x; i < 1000u; i += 256u) { out[i] = 1u; }"), inputs);
    assert!(strided.contains("256") && strided.contains("16 (`out[id.x + …]`)"), "{strided}");
    // Where both are as long, there is nothing to ask.
    assert_eq!(domain(&map("", "64", "out[0] = data[id.x] + out[id.x];"), &[&data, &data]), [1000, 1, 1]);
}

#[test]
fn a_number_that_is_not_at_hand_is_asked_for_only_where_it_matters() {
    let declared = "@group(0) @binding(2) var<uniform> n: u32;";
    let ask = |body: &str| launch_with(&map(declared, "64", body), &[&[0; 4000], &[0; 64], &[9; 4]], false);
    let missing = ask("if id.x < n { out[data[id.x]] = 1u; }").unwrap_err();
    assert!(missing.contains("depends on `n`"), "{missing}");
    // No more than `out` has in any case.
    assert_eq!(ask("if id.x < n { out[id.x] = 1u; }").map(|plan| plan.domain), Ok([16, 1, 1]));
}

#[test]
fn a_launch_that_reaches_little_is_told() {
    let p = words(&[100]);
    let declared = "@group(0) @binding(2) var<uniform> n: u32;";
    let body = "if id.x < n { out[id.x] = data[id.x]; }";
    let data = vec![0u8; 4000];
    let source = map(declared, "64", body);
    let given = |inputs: &[&[u8]]| launch(&source, inputs);
    let warnings = given(&[&data, &data, &p]).warnings;
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].message.contains("only 100 of the 1000 elements of `data`"), "{warnings:?}");
    assert!(given(&[&data[..400], &data[..400], &p]).warnings.is_empty());
    // A border is left out on purpose.
    let border =
        "if id.x == 0u || id.x >= arrayLength(&data) - 1u { return; } out[id.x] = data[id.x - 1u] + data[id.x + 1u];";
    let plan = launch(&map("", "64", border), &[&data, &data]);
    assert_eq!((plan.domain, plan.warnings.len()), ([999, 1, 1], 0));
}

#[test]
fn a_launch_is_free_where_results_are_proven_to_stay() {
    use vyre_foundation::launch::{Shapes, freedom};
    let sizes = "struct Size { width: u32, height: u32 } @group(0) @binding(2) var<uniform> p: Size;";
    let of = |declared: &str, size: &str, body: &str| {
        let freedom = freedom(&program(&map(declared, size, body)), None).unwrap();
        (freedom.shapes, freedom.axes, freedom.why.clone())
    };
    let picture = "if id.x >= p.width || id.y >= p.height { return; }
                   out[id.y * p.width + id.x] = data[id.y * p.width + id.x + 1u];";
    let (shapes, axes, _) = of(sizes, "4, 4", picture);
    assert_eq!((shapes, axes), (Shapes::Any, [true, true, false]));
    assert_eq!(of("", "64", "if id.x < arrayLength(&out) { out[id.x] += data[id.x]; }").0, Shapes::Any);
    assert_eq!(of("", "64", "out[2u * id.x] = 1u; out[2u * id.x + 1u] = 2u;").0, Shapes::Any);
    let counts = "@group(0) @binding(2) var<storage, read_write> bins: array<atomic<u32>>;";
    let histogram = "if id.x < arrayLength(&data) { atomicAdd(&bins[data[id.x]], 1u); }";
    assert_eq!(of(counts, "64", histogram).0, Shapes::Any);
    // Each invocation beyond the data would count, so exactly the same ones must run.
    assert_eq!(of(counts, "64", "atomicAdd(&bins[data[id.x]], 1u);").0, Shapes::SameInvocations);
    for (declared, body, why) in [
        ("", "out[id.x] = out[id.x + 1u];", "`out[id.x + 1]`"),
        ("", "out[id.x / 2u] = id.x;", "`out["),
        ("", "out[data[id.x]] = id.x;", "`out["),
        (sizes, "out[id.y * p.width + id.x] = id.x;", "`out["),
        (counts, "if id.x < 9u { out[id.x] = atomicAdd(&bins[0], 1u); }", "depends on their order"),
    ] {
        let (shapes, _, told) = of(declared, "64", body);
        assert!(shapes == Shapes::Unproven && told.contains(why), "{shapes:?} {told}: {body}");
    }
    for (declared, body, why) in [
        ("", "out[wid.x] = 1u;", "`workgroup_id.x` is used"),
        ("", "out[id.x] = lid.x;", "`local_id.x` is used"),
        ("var<workgroup> tile: array<u32, 64>;", "tile[id.x] = 1u; out[id.x] = tile[0];", "workgroup memory `tile`"),
        ("", "out[id.x] = groups.x;", "`num_workgroups.x` is used"),
    ] {
        let (shapes, axes, told) = of(declared, "64", body);
        assert!(shapes == Shapes::Own && axes == [false; 3] && told.contains(why), "{shapes:?} {told}: {body}");
    }
}

/// A size that does not fit names the type as the source does.
#[test]
fn a_wrong_size_is_told_with_the_type_of_the_source() {
    let program = program(
        "struct Body { at: vec2<f32>, mass: f32 }
         @group(0) @binding(0) var<storage, read> bodies: array<Body, 4>;
         @group(0) @binding(1) var<storage, read_write> out: array<f32, 4>;
         @compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) { out[id.x] = bodies[id.x].mass; }",
    );
    let request = LaunchRequest { input_bytes: &[60], ..LaunchRequest::default() };
    let problem = plan(&program, &request).expect_err("60 bytes are not four bodies");
    assert_eq!(problem.code.id, "V0192");
    assert!(problem.message.contains("4 elements of Body, 64 bytes"), "{}", problem.message);
}
