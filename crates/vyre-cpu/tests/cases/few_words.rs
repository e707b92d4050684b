//! Additions to few words of workgroup memory at places that data says, several at the same places: sums and counts of clusters.

use crate::support::{agree, words};
use vyre_conform::Case;
use vyre_wgsl::{ImportOptions, import};

/// Arrays of atomics, what each round does with a word `v` of the input, and how many words come out.
struct Sums<'a> {
    size: u32,
    arrays: &'a str,
    /// What is done before the first round.
    start: &'a str,
    round: &'a str,
    /// What comes out at `i`.
    result: &'a str,
}

fn case(sums: &Sums, grid: u32, rounds: u32) -> Case {
    let Sums { size, arrays, start, round, result } = sums;
    let text = format!(
        "@group(0) @binding(0) var<storage, read> input: array<u32>;
         @group(0) @binding(1) var<storage, read> limits: array<u32>;
         @group(0) @binding(2) var<storage, read_write> result: array<u32, {out}>;
         {arrays}
         @compute @workgroup_size({size})
         fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_id) own: vec3u) {{
             {start}
             for (var at = own.x; at < limits[0]; at += {size}u) {{
                 let v = input[group.x * 37u + at];
                 {round}
             }}
             workgroupBarrier();
             for (var i = own.x; i < 64u; i += {size}u) {{
                 result[group.x * 64u + i] = {result};
             }}
         }}",
        out = 64 * grid,
    );
    let program = import(&text, &ImportOptions::default()).expect("a kernel");
    let limit = (size * rounds - 3).to_le_bytes().to_vec();
    Case { grid: Some([grid, 1, 1]), ..Case::new(program, vec![words(2048), limit]) }
}

/// Sizes of workgroups and how many rounds each goes, so that vectors are whole, begun, and few or many.
const SHAPES: [(u32, u32); 6] = [(8, 5), (16, 2), (40, 3), (64, 4), (128, 1), (256, 4)];

fn agree_on(what: &str, arrays: &str, round: &str, result: &str) {
    agree_after(what, arrays, "", round, result);
}

fn agree_after(what: &str, arrays: &str, start: &str, round: &str, result: &str) {
    for (size, rounds) in SHAPES {
        let sums = Sums { size, arrays, start, round, result };
        agree(&format!("{what}, {rounds} rounds of {size}"), &case(&sums, 3, rounds));
    }
}

#[test]
fn sums_of_clusters() {
    for clusters in [1, 2, 3, 8, 9, 15, 16, 17, 32, 40] {
        let arrays = format!(
            "var<workgroup> x: array<atomic<u32>, {clusters}>;
             var<workgroup> y: array<atomic<i32>, {clusters}>;
             var<workgroup> count: array<atomic<u32>, {clusters}>;"
        );
        let round = format!(
            "let k = (v >> 7u) % {clusters}u;
             atomicAdd(&x[k], v);
             atomicSub(&y[k], i32(v >> 3u));
             atomicAdd(&count[k], 1u);"
        );
        let result = format!(
            "atomicLoad(&x[i % {clusters}u]) ^ u32(atomicLoad(&y[i % {clusters}u])) ^ atomicLoad(&count[i % {clusters}u]) << 16u"
        );
        agree_on(&format!("{clusters} clusters"), &arrays, &round, &result);
    }
}

#[test]
fn records_of_clusters() {
    // Words of one array, three and four apart, and an array beside it that must stay as it is.
    for (clusters, apart) in [(2, 3), (5, 3), (8, 3), (16, 3), (4, 4), (12, 5)] {
        let arrays = format!(
            "var<workgroup> before: array<u32, 5>;
             var<workgroup> sums: array<atomic<u32>, {}>;
             var<workgroup> behind: array<u32, 5>;",
            clusters * apart
        );
        let round = format!(
            "let k = (v >> 5u) % {clusters}u;
             if (own.x < 5u) {{ before[own.x] = v; behind[own.x] = ~v; }}
             atomicAdd(&sums[{apart}u * k], v);
             atomicAdd(&sums[{apart}u * k + 1u], v >> 9u);
             atomicAdd(&sums[{apart}u * k + 2u], 1u);"
        );
        let result =
            format!("atomicLoad(&sums[i % {}u]) + before[i % 5u] * 3u + behind[(i + 1u) % 5u]", clusters * apart);
        agree_on(&format!("{clusters} records of {apart}"), &arrays, &round, &result);
    }
}

#[test]
fn some_lanes_add_to_arrays_of_different_lengths() {
    let arrays = "var<workgroup> wide: array<array<atomic<u32>, 4>, 9>;
                  var<workgroup> short: array<array<atomic<u32>, 4>, 2>;
                  var<workgroup> last: array<atomic<u32>, 1>;";
    let result = "atomicLoad(&wide[i % 9u][i % 4u]) + 5u * atomicLoad(&short[i % 2u][i % 4u]) + atomicLoad(&last[0])";
    let rounds = [
        // Both at one number, which is below both lengths, behind a condition of each lane.
        "let k = v & 1u;
         if (v % 3u != 0u) { atomicAdd(&wide[k][1], v); atomicAdd(&short[k][2], v >> 1u); atomicAdd(&last[0], 1u); }",
        // Out of bounds for some lanes.
        "let k = v % 11u; atomicAdd(&wide[k][3], v); atomicAdd(&wide[k][0], 7u); atomicAdd(&short[k][1], 3u);",
        // Other operations on other words between them.
        "let k = v % 9u; atomicAdd(&wide[k][1], v); atomicXor(&short[v & 1u][0], v >> 2u); atomicAdd(&wide[k][1], 5u);
         atomicMax(&last[0], v); atomicSub(&wide[k][2], v >> 4u);",
        // Lanes leave before they add.
        "if (v % 5u == 0u) { continue; }
         let k = v % 7u; atomicAdd(&wide[k][2], own.x); atomicSub(&wide[k][2], v); if (v % 29u == 0u) { break; }
         atomicAdd(&short[k & 1u][3], 1u);",
    ];
    for (number, round) in rounds.into_iter().enumerate() {
        agree_on(&format!("round {number}"), arrays, round, result);
    }
}

#[test]
fn words_that_were_just_stored_are_added_to_more_than_once() {
    for clusters in [1, 4, 8, 13, 16] {
        let arrays = format!("var<workgroup> sums: array<atomic<u32>, {clusters}>;");
        let start =
            format!("if (own.x < {clusters}u) {{ atomicStore(&sums[own.x], own.x * 77u + 5u); }} workgroupBarrier();");
        let add = format!(
            "let k = v % {clusters}u; atomicAdd(&sums[k], v); atomicAdd(&sums[k], 0u); atomicSub(&sums[k], 9u);"
        );
        let result = format!("atomicLoad(&sums[i % {clusters}u])");
        agree_after(&format!("{clusters} words, stored before"), &arrays, &start, &add, &result);
        agree_on(&format!("{clusters} words"), &arrays, &add, &result);
    }
}
