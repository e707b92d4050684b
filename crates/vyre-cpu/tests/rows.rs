//! A row of its own for each invocation, which a loop reads and writes word by word: some rounds are moved at once, whatever the lengths of rows,
//! buffers and loops.

mod support;

use support::{agree, words};
use vyre_conform::Case;
use vyre_wgsl::{ImportOptions, import};

const INVOCATIONS: u32 = 100;

/// `body` for rows `width` apart, in loops from `from` to `to`, of buffers with so many words.
fn rows(what: &str, width: u32, [from, to]: [u32; 2], [read, written]: [u32; 2], body: &str) {
    for (place, known) in [("own.x * width", false), (&*format!("own.x * {width}u"), true)] {
        let text = format!(
            "struct Sizes {{ width: u32, start: u32, stop: u32, count: u32 }}
             @group(0) @binding(0) var<storage, read> sizes: Sizes;
             @group(0) @binding(1) var<storage, read> data: array<u32>;
             @group(0) @binding(2) var<storage, read_write> result: array<u32>;
             @compute @workgroup_size(64)
             fn main(@builtin(global_invocation_id) own: vec3u) {{
                 let width = sizes.width;
                 let row = {place};
                 if (own.x >= sizes.count) {{ return; }}
                 // So that what was there before counts.
                 if (sizes.count == 0u) {{ result[own.x] += data[own.x]; }}
                 {body}
             }}"
        );
        let program = import(&text, &ImportOptions::default()).expect("a kernel");
        let sizes = [width, from, to, INVOCATIONS].into_iter().flat_map(u32::to_le_bytes).collect();
        let inputs = vec![sizes, words(read), words(written)];
        let case = Case { grid: Some([INVOCATIONS.div_ceil(64), 1, 1]), ..Case::new(program, inputs) };
        agree(&format!("{what}, {width} wide, {from} to {to} of {read} and {written}, known: {known}"), &case);
    }
}

#[test]
fn rows_are_read_and_written() {
    let copy = "for (var j = sizes.start; j < sizes.stop; j++) { result[row + j] = data[row + j] * 3u + j; }";
    let in_place = "var sum = 1u;
        for (var j = sizes.start; j < sizes.stop; j++) {
            let word = result[row + j];
            sum = sum * 5u + word;
            result[row + j] = sum;
        }
        for (var j = sizes.start; j < sizes.stop; j++) { result[row + j] = result[row + j] ^ sum; }";
    let in_a_branch = "if (data[own.x] % 3u == 0u) {
            for (var j = sizes.start; j < sizes.stop; j++) { result[row + j] = j ^ 77u; }
        } else {
            for (var j = sizes.start; j < sizes.stop; j++) { result[row + j] += data[j]; }
        }";
    // What is left early, or done in some rounds only, or touches other words of the buffer.
    let left = "for (var j = sizes.start; j < sizes.stop; j++) {
            if (j == 7u) { break; }
            result[row + j] = data[row + j];
        }";
    let sometimes = "for (var j = sizes.start; j < sizes.stop; j++) {
            if (data[row + j] % 2u == 0u) { result[row + j] = j; }
        }";
    let behind = "for (var j = sizes.start; j < sizes.stop; j++) {
            result[row + j] = result[row + j - min(j, 1u)] + 1u;
        }";
    let twice = "for (var j = sizes.start; j < sizes.stop; j++) {
            result[row + j] = j;
            result[row + j] = result[row + j] + data[row + j];
        }";
    let nested = "for (var k = 0u; k < 3u; k++) {
            for (var j = sizes.start; j < sizes.stop; j++) { result[row + j] = result[row + j] * 2u + k; }
        }";
    let few = "for (var j = 1u; j < 12u; j++) { result[row + j] = data[row + j] * 3u + result[row + j]; }";
    let many = "for (var j = 0u; j < 16u; j++) { result[row + j] = data[row + j] * 3u + result[row + j]; }";
    let signed = "let first = i32(row);
        for (var j = i32(sizes.start); j < i32(sizes.stop); j++) { result[first + j] = data[first + j] * 3u + u32(j); }";
    let signed_in_place = "let first = i32(row);
        for (var j = 0; j < 16; j++) { result[first + j] = data[first + j] * 5u + result[first + j]; }";
    for (what, body) in [
        ("signed", signed),
        ("signed, in place", signed_in_place),
        ("few", few),
        ("many", many),
        ("copy", copy),
        ("in place", in_place),
        ("in a branch", in_a_branch),
        ("left", left),
        ("sometimes", sometimes),
        ("behind", behind),
        ("twice", twice),
        ("nested", nested),
    ] {
        for width in [16, 21, 64, 100] {
            let all = width * INVOCATIONS;
            for range in [[0, width], [0, 0], [1, 2], [3, 6], [0, 5], [2, width.min(13)], [5, width.min(42)]] {
                rows(what, width, range, [all, all], body);
            }
            // The last rows end before they should, or are not there at all.
            rows(what, width, [0, width], [all - 3, all - 7], body);
            rows(what, width, [0, width], [all, width / 2], body);
            rows(what, width, [0, width], [2, all], body);
        }
    }
}
