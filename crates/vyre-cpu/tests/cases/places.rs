//! Places that are taken apart into rows, columns and channels and put together again, places that a loop moves on by as much in every round, and
//! vectors of channels that lie in rows.

use crate::support::{agree, words};
use vyre_conform::Case;
use vyre_wgsl::{ImportOptions, import};

/// A kernel with `i`, the number of the invocation, over words, vectors and a few weights.
fn check(what: &str, size: u32, invocations: u32, body: &str) {
    let text = format!(
        "@group(0) @binding(0) var<storage, read> data: array<u32>;
         @group(0) @binding(1) var<storage, read> vectors: array<vec4f>;
         @group(0) @binding(2) var<storage, read> pairs: array<vec2u>;
         @group(0) @binding(3) var<storage, read_write> result: array<u32, 700>;
         @group(0) @binding(4) var<storage, read_write> shades: array<vec4f, 700>;
         @compute @workgroup_size({size})
         fn main(@builtin(global_invocation_id) id: vec3u) {{
             let i = id.x;
             if (i >= {invocations}u) {{ return; }}
             if (arrayLength(&data) == 0u || arrayLength(&pairs) == 0u) {{ result[i] = data[0] + pairs[0].x; }}
             if (arrayLength(&vectors) == 0u) {{ shades[i] = vectors[0]; }}
             {body}
         }}"
    );
    let program = import(&text, &ImportOptions::default()).unwrap_or_else(|error| panic!("{what}: {error:?}\n{text}"));
    let floats: Vec<u8> = (0..1600u32).flat_map(|i| ((i * 37 % 251) as f32 / 8.0 - 9.0).to_le_bytes()).collect();
    let inputs = vec![words(1500), floats, words(600)];
    let case = Case { grid: Some([invocations.div_ceil(size), 1, 1]), ..Case::new(program, inputs) };
    agree(&format!("{what}, workgroups of {size}, {invocations} invocations"), &case);
}

const SIZES: [u32; 4] = [32, 48, 64, 128];

#[test]
fn rows_columns_and_channels() {
    for size in SIZES {
        for (channels, width) in [(1u32, 8u32), (2, 16), (4, 8), (8, 4), (8, 10), (3, 7), (5, 16), (16, 4), (32, 2)] {
            for signed in [false, true] {
                let (ty, number) = if signed { ("i32", "i32(i)") } else { ("u32", "i") };
                // Neighbours to all sides, those outside of the picture left out.
                let body = format!(
                    "let number = {number};
                     let c = number % {channels};
                     let x = (number / {channels}) % {width};
                     let y = number / ({channels} * {width});
                     var sum = vectors[c];
                     var other = data[u32(c)];
                     for (var ky: {ty} = 0; ky < 3; ky++) {{
                         let iy = y + ky - 1;
                         if (iy < 0 || iy >= 9) {{ continue; }}
                         for (var kx: {ty} = 0; kx < 3; kx++) {{
                             let ix = x + kx - 1;
                             if (ix < 0 || ix >= {width}) {{ continue; }}
                             sum += vectors[(iy * {width} + ix) * {channels} + c] * vectors[(ky * 3 + kx) * {channels} + c];
                             other = other * 5u + data[(iy * {width} + ix) * {channels} + c];
                         }}
                     }}
                     other += data[y * {width} * {channels} + x * {channels} + ({channels} - 1 - c)];
                     other += pairs[c].x + 3u * pairs[number % 4].y;
                     shades[i] = clamp(sum, vec4f(-50.0), vec4f(900.0));
                     result[(y * {width} + x) * {channels} + c] = other;"
                );
                // Unsigned numbers less than nothing are large ones.
                let body = if signed { body } else { body.replace("iy < 0 ||", "").replace("ix < 0 ||", "") };
                for invocations in [200, 331, 640] {
                    check(&format!("{channels} channels, {width} columns, {ty}"), size, invocations, &body);
                }
            }
        }
    }
}

#[test]
fn sums_of_quotients() {
    for size in SIZES {
        for body in [
            // All of it comes together, or some, or with what is not a remainder of it.
            "result[i] = data[(i / 16u) * 16u + i % 16u] + data[(i / 16u) * 17u + i % 16u];",
            "result[i] = data[(i >> 4u) * 16u + ((i >> 2u) & 3u) * 4u + (i & 3u)] + data[(i >> 4u) * 16u + ((i >> 2u) & 3u) * 4u + (~i & 3u)];",
            "result[i] = data[(i / 12u) * 12u + ((i / 3u) % 4u) * 3u + i % 3u];",
            "result[i] = data[(i / 12u) * 12u + ((i / 4u) % 3u) * 4u + i % 4u] + data[(i / 12u) * 12u + ((i / 3u) % 3u) * 3u + i % 3u];",
            "let j = i * 2654435761u; result[i] = (j / 7u) * 7u + j % 7u + (j >> 29u) * 8u + ((j >> 3u) & 67108863u);",
            "let j = i32(i) - 90; result[i] = u32((j / 8) * 8 + j % 8) + u32((j / 5) * 5 + j % 5);",
            "let j = i32(i) - 90; result[i] = data[u32((j >> 3u) * 8 + (j & 7) + 90)];",
            "let a = i % 8u; let b = (i / 8u) % 8u; result[b * 8u + a + (i / 64u) * 64u] = data[a * 8u + b + (i / 64u) * 64u];",
            "let a = (i + 5u) % 8u; result[i] = data[((i + 5u) / 8u) * 8u + a] * 3u + data[(i / 8u) * 8u + a];",
            "result[i] = data[i % 1024u] + data[(i / 1024u) * 1024u + i % 1024u] + data[i & 7u] + data[(i >> 3u) & 63u];",
        ] {
            for invocations in [64, 331, 700] {
                check(body, size, invocations, body);
            }
        }
    }
}

#[test]
fn places_that_move_on_in_every_round() {
    for size in SIZES {
        for body in [
            "var at = i; var sum = 0u; for (var k = 0u; k < 9u; k++) { sum = sum * 3u + data[at]; at += 83u; } result[i] = sum + at;",
            "var at = 900i + i32(i); var sum = 0u; for (var k = 0; k < 9; k++) { sum = sum * 3u + data[at]; at -= 70; } result[i] = sum + u32(at);",
            "var at = i; var sum = 0u; for (var k = 3u; k < 3u + data[2] % 9u; k++) { sum = sum * 3u + data[at]; at += data[1] % 50u; } result[i] = sum ^ at;",
            "var at = i + 4294967200u; var sum = 0u; for (var k = 0u; k < 9u; k++) { if (at < 1500u) { sum = sum * 3u + data[at]; } at += 40u; } result[i] = sum + at;",
            "var at = i; var sum = 0u; for (var k = 0u; k < 20u; k++) { if (data[at] % 13u == 4u) { break; } sum += data[at]; at += 31u; } result[i] = sum + at * 7u;",
            "var at = i; var sum = 0u; for (var k = 0u; k < 20u; k++) { at += 31u; if (data[k] % 3u == 1u) { continue; } sum = sum * 5u + data[at - 31u]; } result[i] = sum + at;",
            "var at = i; var sum = 0u; for (var k = 0u; k < 6u; k++) { for (var j = 0u; j < 5u; j++) { sum = sum * 3u + data[at]; at += 9u; } at += 60u; } result[i] = sum + at;",
            "var at = i * 2u; for (var k = 0u; k < 3u; k++) { result[at % 700u] = data[at]; at += 1u + (i & 1u); }",
        ] {
            for invocations in [64, 331] {
                let body =
                    if body.contains("result[at") { body.replace("i * 2u", "i * 6u % 694u") } else { body.to_owned() };
                // Nobody writes what another one writes.
                let invocations = if body.contains("% 694u") { 64 } else { invocations };
                check(&body, size, invocations, &body);
            }
        }
    }
}

/// Words of a tile at places that differ from a counter's by what is known of each invocation.
fn around(what: &str, size: u32, words: u32, place: &str, body: &str) {
    let text = format!(
        "var<workgroup> tile: array<f32, {words}>;
         var<workgroup> beside: array<u32, 16>;
         @group(0) @binding(0) var<storage, read> data: array<u32>;
         @group(0) @binding(1) var<storage, read_write> result: array<f32>;
         @compute @workgroup_size({size})
         fn main(@builtin(local_invocation_index) t: u32, @builtin(workgroup_id) group: vec3u) {{
             for (var i = t; i < {words}u; i += {size}u) {{ tile[i] = f32(data[(i * 5u + group.x) % 900u] & 1023u); }}
             if (t < 16u) {{ beside[t] = data[t]; }}
             workgroupBarrier();
             // So that what was there before counts.
             if (arrayLength(&data) == 0u) {{ result[t] += f32(beside[t % 16u]); }}
             var sum = 0.5;
             {body}
             result[group.x * {size}u + t] = sum;
         }}"
    )
    .replace("PLACE", place);
    let program = import(&text, &ImportOptions::default()).unwrap_or_else(|error| panic!("{what}: {error:?}\\n{text}"));
    let case = Case {
        grid: Some([2, 1, 1]),
        ..Case::new(program, vec![crate::support::words(900), crate::support::words(2 * size)])
    };
    agree(&format!("{what}, {size} invocations, {words} words"), &case);
}

#[test]
fn words_at_known_distances_from_a_counter_are_found() {
    let bodies = [
        ("in rounds", "for (var k = 0u; k < 16u; k++) { sum = sum * 1.5 + tile[PLACE]; }"),
        ("to a limit that is loaded", "for (var k = data[3] % 5u; k < data[4] % 13u; k++) { sum += tile[PLACE]; }"),
        ("in a branch", "if (data[t] % 3u == 0u) { for (var k = 0u; k < 9u; k++) { sum += tile[PLACE]; } }"),
        ("left early", "for (var k = 0u; k < 16u; k++) { if (data[t + k] % 7u == 0u) { break; } sum += tile[PLACE]; }"),
        (
            "of four columns",
            "for (var k = 0u; k < 13u; k++) { sum += tile[PLACE] * 2.0 + tile[PLACE + 1u] - tile[PLACE + 2u] * tile[PLACE + 3u]; }",
        ),
        (
            "with stores between",
            "for (var k = 0u; k < 6u; k++) { sum += tile[PLACE]; workgroupBarrier(); tile[t] = sum; workgroupBarrier(); }",
        ),
    ];
    for (size, words) in [(64, 256), (128, 500), (256, 256), (48, 300)] {
        for place in [
            "k * 16u + (t % 4u) * 4u",
            "(t / 4u % 12u) * 16u + k",
            "k * 12u + t % 3u",
            "k + (t % 8u) * 9u",
            "k * 8u + (15u - t % 16u)",
            "(t / 16u % 8u) * 16u + k",
            "k * 3u + (t & 1u) * 7u + (t / 8u & 1u) * 20u",
            "u32(i32(k) * 4 + 40 - i32(t % 5u) * 8)",
            "(k * 31u + t % 4u) % 200u",
            "(t % 7u) * (t % 5u) + k * 2u",
        ] {
            for (what, body) in bodies {
                around(&format!("{place}, {what}"), size, words, place, body);
            }
        }
        // To the last word, behind which there is nothing.
        around("the last row", size, 64, "k * 4u + t % 4u", "for (var k = 0u; k < 16u; k++) { sum += tile[PLACE]; }");
        around(
            "the last words",
            size,
            67,
            "k * 4u + (t % 2u) * 6u",
            "for (var k = 0u; k < 16u; k++) { sum += tile[PLACE]; }",
        );
    }
}

/// What is far from the number that it is added to comes back to a place in the array.
#[test]
fn rows_of_workgroup_memory_far_from_the_number_that_says_them() {
    for (far, columns) in [(487u32, 1024u32), (524_287, 1024), (1 << 19, 2048), ((1 << 20) - 1, 512), (1 << 20, 4096)] {
        let text = format!(
            "@group(0) @binding(0) var<storage, read> sizes: array<u32>;
             @group(0) @binding(1) var<storage, read_write> result: array<u32>;
             var<workgroup> rows: array<array<u32, {columns}>, 3>;
             @compute @workgroup_size(64)
             fn main(@builtin(local_invocation_id) own: vec3u, @builtin(workgroup_id) group: vec3u) {{
                 let t = own.x;
                 if (arrayLength(&sizes) == 0u) {{ result[t] += 1u; }}
                 for (var k = t; k < 3u * {columns}u; k += 64u) {{ rows[k / {columns}u][k % {columns}u] = k * 7u; }}
                 workgroupBarrier();
                 let row = clamp(sizes[0], {far}u, {far}u + 1u);
                 var all = 0u;
                 for (var k = 0u; k < min(sizes[1], 12u); k++) {{ all = all * 31u + rows[(row - {far}u) + (t & 1u)][k]; }}
                 result[group.x * 64u + t] = all;
             }}"
        );
        let program = import(&text, &ImportOptions::default()).unwrap_or_else(|error| panic!("{error:?}\n{text}"));
        for row in [0, far, far + 1, far + 9] {
            let sizes = [row, 9].into_iter().flat_map(u32::to_le_bytes).collect();
            let case = Case { grid: Some([1, 1, 1]), ..Case::new(program.clone(), vec![sizes, words(64)]) };
            agree(&format!("{far} from row {row}, {columns} columns"), &case);
        }
    }
}
