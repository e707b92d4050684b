//! Numbers that depend on nothing but an invocation's place in its workgroup are looked up: the same bits as where they are made, which the
//! interpreter does, whatever the workgroup and wherever they are asked for.

use vyre_cpu::{CpuBackend, CpuPath};
use vyre_driver::{DispatchConfig, VyreBackend};
use vyre_foundation::kernel::{Options, lower};
use vyre_wgsl::{ImportOptions, import};

/// Each invocation gives a number that `body` makes of its place, exchanged with a neighbour.
fn with_places(what: &str, body: &str) {
    for [x, y, z] in [[16, 1, 1], [40, 1, 1], [96, 1, 1], [256, 1, 1], [16, 8, 1], [8, 4, 4], [10, 10, 1], [5, 3, 2]] {
        let lanes = x * y * z;
        let text = format!(
            "@group(0) @binding(0) var<storage, read> data: array<u32>;
             @group(0) @binding(1) var<storage, read_write> results: array<f32, {all}>;
             var<workgroup> line: array<f32, {lanes}>;
             @compute @workgroup_size({x}, {y}, {z})
             fn main(
                 @builtin(local_invocation_id) id: vec3u,
                 @builtin(local_invocation_index) t: u32,
                 @builtin(workgroup_id) group: vec3u,
             ) {{
                 let place = group.x * {lanes}u + t;
                 let own = f32(data[place] >> 8u);
                 var sum = 0.0;
                 {body}
                 line[t] = sum;
                 workgroupBarrier();
                 results[place] = line[{lanes}u - 1u - t] + sum;
             }}",
            all = 5 * lanes,
        );
        let program = import(&text, &ImportOptions::default()).expect("a kernel");
        let data = (0..5 * lanes).flat_map(|i: u32| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
        let mut config = DispatchConfig::default();
        config.grid_override = Some([5, 1, 1]);
        let inputs: [Vec<u8>; 1] = [data];
        let give = |path: CpuPath| {
            let backend = CpuBackend::with_path(path).expect("a path that is here");
            backend.dispatch(&program, &inputs, &config).unwrap_or_else(|error| panic!("{what} on {path}: {error:?}"))
        };
        let expected = give(CpuPath::Interpret);
        for path in CpuPath::ALL.into_iter().filter(|path| path.is_here()) {
            assert!(give(path) == expected, "{what}, workgroups of {x} x {y} x {z} on {path}");
        }
    }
}

#[test]
fn factors_of_places_are_the_same_bits() {
    with_places("the whole place", "sum = own * cos(f32(t) * 0.37) + sin(f32(t) * -0.37);");
    with_places("places that come again", "sum = own * cos(f32(t & 3u) * 0.4) + sin(f32(t & 31u) * 0.1) * own;");
    with_places("one axis", "sum = own * exp(f32(id.x) * -0.3) + log(f32(id.y + 1u)) * own + tan(f32(id.z));");
    with_places("large angles", "sum = own * sin(f32(t) * 1.0e6) + cos(f32(t) * 3.0e30);");
    with_places("the same for all", "sum = own * cos(f32(t & 0u) + 1.0);");
    with_places("a factor and what is made of it", "let c = cos(f32(t)); sum = own * c + (own - 3.0) * -c;");
}

#[test]
fn factors_within_branches_and_loops_are_the_same_bits() {
    with_places(
        "branches",
        "if ((data[place] & 1u) == 1u) { sum = own * cos(f32(t) * 0.7); } else { sum = own + sin(f32(t) * 0.7); }",
    );
    with_places("loops", "for (var k = 0u; k < data[place] % 5u; k++) { sum += own * cos(f32(t) + 0.1); }");
    with_places(
        "written-out rounds",
        "for (var p = 1u; p < 64u; p <<= 2u) { sum = sum * 0.5 + own * sin(f32(t & (p - 1u)) / f32(2u * p)); }",
    );
}

#[test]
fn factors_of_rounds_in_which_invocations_meet_are_the_same_bits() {
    let round = "let k = t & (p - 1u);
        let angle = -3.1415927 * f32(k) / f32(2u * p);
        line[t] = (own + sum) * cos(angle) - sum * sin(2.0 * angle);
        workgroupBarrier();
        sum = line[t ^ (p & 1u)] * 0.5 + line[k];
        workgroupBarrier();";
    with_places("rounds that spread", &format!("for (var p = 1u; p < 128u; p <<= 2u) {{ {round} }}"));
    with_places(
        "a loop that is left",
        &format!("var p = 1u; loop {{ {round} p <<= 2u; if (p == 256u) {{ break; }} }}"),
    );
}

#[test]
fn small_and_infinite_numbers_of_places_are_the_same_bits() {
    with_places("numbers near zero", "sum = exp2(-126.0 - f32(t % 24u)) * (own + 1.0);");
    with_places("infinite numbers", "sum = exp(f32(t) * 40.0) + own;");
    with_places("roots", "sum = own * sqrt(sqrt(sqrt(sqrt(sqrt(sqrt(f32(t) * 3.0))))));");
}

/// Words of the tables of a kernel whose invocations each give `sum`.
fn tables(sum: &str, exchange: &str) -> Vec<usize> {
    let text = format!(
        "@group(0) @binding(0) var<storage, read> data: array<f32>;
         @group(0) @binding(1) var<storage, read_write> results: array<f32>;
         var<workgroup> line: array<f32, 256>;
         @compute @workgroup_size(256)
         fn main(@builtin(local_invocation_index) t: u32, @builtin(global_invocation_id) id: vec3u) {{
             let own = data[id.x];
             line[t] = {sum};
             {exchange}
             results[id.x] = line[255u - t];
         }}"
    );
    let program = import(&text, &ImportOptions::default()).expect("a kernel").validate().expect("a valid program");
    let options = Options { expand_math: true, places_tabled: true, ..Options::default() };
    let kernel = lower(&program, &options).expect("a kernel form");
    kernel.locals.iter().filter_map(|memory| Some(memory.words.as_ref()?.len())).collect()
}

#[test]
fn tables_are_as_long_as_numbers_differ() {
    let meet = "workgroupBarrier();";
    assert_eq!(tables("own * cos(f32(t) * 0.01)", meet), [256]);
    assert_eq!(tables("own * cos(f32(t & 63u) * 0.01) + sin(f32(t & 3u))", meet), [64, 16]);
    // The same numbers are one table, and what is soon made of them is no other one.
    assert_eq!(tables("own * cos(f32(t)) - (own - 1.0) * -cos(f32(t))", meet), [256]);
    // Short ones are made, and so are those that depend on more.
    assert_eq!(tables("own * (f32(t) * 0.5)", meet), [0; 0]);
    assert_eq!(tables("cos(own * f32(t))", meet), [0; 0]);
    // Invocations that don't meet are taken across workgroups.
    assert_eq!(tables("own * cos(f32(t) * 0.01)", ""), [0; 0]);
}
