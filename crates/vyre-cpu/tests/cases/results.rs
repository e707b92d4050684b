//! Results that are copied out of workgroup memory, whose lines are asked for before.

use crate::support::{agree, words};
use vyre_conform::Case;
use vyre_wgsl::{ImportOptions, import};

const PIECE: u32 = 1024;

/// A kernel that turns each `PIECE` words around in workgroup memory. `base` is the first of them and `t` the number of the invocation.
fn turned(what: &str, size: &str, threads: u32, first: &str, out: &str) {
    let text = format!(
        "const T = {threads}u;
         const PIECE = {PIECE}u;
         @group(0) @binding(0) var<storage, read> data: array<u32>;
         @group(0) @binding(1) var<storage, read> sizes: array<u32>;
         @group(0) @binding(2) var<storage, read_write> result: array<u32, 5000>;
         @group(0) @binding(3) var<storage, read_write> pairs: array<vec2u, 2500>;
         var<workgroup> tile: array<u32, PIECE>;
         @compute @workgroup_size({size})
         fn main(@builtin(local_invocation_index) t: u32, @builtin(workgroup_id) group: vec3u) {{
             if (arrayLength(&sizes) == 0u) {{ pairs[t] = vec2u(t); }}
             let base = group.x * PIECE;
             {first}
             for (var k = t; k < PIECE; k += T) {{ tile[PIECE - 1u - k] = data[base + k] * 3u; }}
             workgroupBarrier();
             {out}
         }}"
    );
    let program = import(&text, &ImportOptions::default()).unwrap_or_else(|error| panic!("{what}: {error:?}\n{text}"));
    for groups in [1, 3, 5] {
        let case = Case { grid: Some([groups, 1, 1]), ..Case::new(program.clone(), vec![words(4500), words(3)]) };
        agree(&format!("{what}, {threads} invocations, {groups} workgroups"), &case);
    }
}

#[test]
fn results_copied_out_of_workgroup_memory() {
    let outs = [
        ("strides", "for (var k = 0u; k < PIECE / T; k++) { result[base + k * T + t] = tile[k * T + t]; }"),
        ("from the invocation on", "for (var k = t; k < PIECE; k += T) { result[base + k] = tile[k]; }"),
        ("blocks of each", "for (var k = 0u; k < 4u; k++) { result[base + t * 4u + k] = tile[t * 4u + k]; }"),
        ("two of them", "result[base + t] = tile[t]; result[base + T + t] = tile[T + t];"),
        ("backwards", "for (var k = 4u; k > 0u; k--) { result[base + k * T - T + t] = tile[k * T - T + t]; }"),
        (
            "pairs",
            "for (var k = 0u; k < 2u; k++) { let p = k * T + t; pairs[base / 2u + p] = vec2u(tile[p], tile[p + 1u]); }",
        ),
        ("under a limit", "if (t < T - 7u) { result[base + t] = tile[t]; } result[base + T + t] = tile[T + t];"),
        (
            "by a size",
            "let by = sizes[1] + 7u; for (var k = 0u; k < 3u; k++) { result[base + k * by + t] = tile[k * by + t]; }",
        ),
        ("what was there", "for (var k = 0u; k < 4u; k++) { result[base + own * 2u + k * T] = tile[own + k]; }"),
        (
            "twice",
            "result[base + t] = tile[t]; workgroupBarrier(); tile[t] += own; workgroupBarrier(); result[base + T + t] = tile[t];",
        ),
    ];
    for (size, threads) in [("256", 256), ("32, 8", 256), ("16, 4, 4", 256), ("128", 128), ("96", 96), ("200", 200)] {
        for (what, out) in outs {
            turned(what, size, threads, "let own = t / 2u;", out);
            turned(
                &format!("{what}, behind a branch"),
                size,
                threads,
                "var own = 1u; if (base > 1024u) { own = t & 3u; }",
                out,
            );
        }
    }
}

/// What a place is made of is looked for no further than is worth it.
#[test]
fn results_whose_place_is_made_in_many_steps() {
    for steps in [3, 40, 4000] {
        // Each workgroup has other places.
        let chain = "b = b * 3u + base;".repeat(steps);
        turned(&format!("{steps} steps"), "256", 256, "", &format!("var b = 0u; {chain} result[b + t] = tile[t];"));
    }
}

/// Tables that loaded words choose from, and partners that lie side by side though a loaded number says who they are.
#[test]
fn words_chosen_by_mixed_words_and_by_partners() {
    let boxes = "var x = data[base + t]; var y = data[base + T + t] ^ sizes[0];
        for (var k = 0u; k < 3u; k++) {
            let z = tile[x & 255u] ^ (tile[(y >> 8u) & 255u] << 8u) ^ tile[x >> 24u] ^ tile[(x ^ y) & 15u];
            x = y ^ 0x01020304u; y = z * 0x9e3779b1u;
        }
        result[base + t] = x; result[base + T + t] = y;";
    let partners = "for (var k = 0u; k < 3u; k++) { result[base + k * T + t] = tile[(t ^ sizes[k]) & 255u]; }";
    for threads in [64, 128, 256] {
        turned("boxes", &threads.to_string(), threads, "", boxes);
        turned("partners", &threads.to_string(), threads, "", partners);
    }
}
