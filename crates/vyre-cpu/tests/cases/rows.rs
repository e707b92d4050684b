//! A row of its own for each invocation, which a loop reads and writes word by word: some rounds are moved at once, whatever the lengths of rows,
//! buffers and loops.

use crate::support::{agree, words};
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

/// Rows in workgroup memory, `length` words that are `apart` words from each other, in which `body` does something with words of `own` rows.
fn shared_rows(what: &str, threads: u32, length: u32, apart: u32, body: &str) {
    let words_of_all = threads * apart + length;
    let text = format!(
        "const LENGTH = {length}u;
         var<workgroup> first: array<u32, {words_of_all}>;
         var<workgroup> second: array<f32, {words_of_all}>;
         @group(0) @binding(0) var<storage, read> data: array<u32>;
         @group(0) @binding(1) var<storage, read_write> result: array<u32>;
         @compute @workgroup_size({threads})
         fn main(@builtin(local_invocation_index) own: u32, @builtin(workgroup_id) group: vec3u) {{
             // So that what was there before counts.
             if (arrayLength(&data) == 0u) {{ result[own] += 1u; }}
             for (var i = own; i < {words_of_all}u; i += {threads}u) {{
                 first[i] = data[(i * 7u + group.x) % 900u];
                 second[i] = f32(data[(i * 5u) % 900u] & 1023u) * 0.25;
             }}
             workgroupBarrier();
             let row = own * {apart}u;
             let mine = data[own] ^ 77u;
             let part = f32(data[own + 300u] & 255u) - 17.5;
             {body}
             workgroupBarrier();
             for (var i = own; i < {words_of_all}u; i += {threads}u) {{
                 result[group.x * {words_of_all}u + i] = first[i] ^ bitcast<u32>(second[i]);
             }}
         }}"
    );
    let program = import(&text, &ImportOptions::default()).unwrap_or_else(|error| panic!("{what}: {error:?}\n{text}"));
    let case = Case { grid: Some([2, 1, 1]), ..Case::new(program, vec![words(900), words(2 * words_of_all)]) };
    agree(&format!("{what}, {threads} rows of {length} words, {apart} apart"), &case);
}

#[test]
fn words_of_rows_in_workgroup_memory_are_changed() {
    let bodies = [
        ("sums", "for (var j = 0u; j < LENGTH; j++) { first[row + j] += mine; }"),
        ("products", "for (var j = 0u; j < LENGTH; j++) { second[row + j] = second[row + j] * part + 1.5; }"),
        ("filled", "for (var j = 0u; j < LENGTH; j++) { first[row + j] = mine; }"),
        ("cleared", "for (var j = 0u; j < LENGTH; j++) { first[row + j] = 7u; }"),
        ("copies", "for (var j = 0u; j < LENGTH; j++) { second[row + j] = f32(first[row + j] & 4095u); }"),
        (
            "both",
            "for (var j = 0u; j < LENGTH; j++) { first[row + j] = first[row + j] * 3u; second[row + j] += part; }",
        ),
        (
            "chosen",
            "for (var j = 0u; j < LENGTH; j++) { first[row + j] = select(mine, first[row + j], first[row + j] > mine); }",
        ),
        (
            "divided",
            "for (var j = 0u; j < LENGTH; j++) { first[row + j] = first[row + j] / (mine % 5u) + first[row + j] % (mine & 7u); }",
        ),
        (
            "shifted",
            "for (var j = 0u; j < LENGTH; j++) { first[row + j] = (first[row + j] << (mine & 31u)) | (mine >> 3u); }",
        ),
        ("roots", "for (var j = 0u; j < LENGTH; j++) { second[row + j] = sqrt(abs(second[row + j] - part)) / part; }"),
        (
            "two numbers",
            "let other = data[own + 90u]; for (var j = 0u; j < LENGTH; j++) { first[row + j] = first[row + j] * mine + other; }",
        ),
        (
            "signed",
            "for (var j = 0; j < i32(LENGTH); j++) { first[i32(row) + j] = u32(abs(i32(first[i32(row) + j]) - i32(mine))); }",
        ),
        // Sums of the words so far.
        (
            "carried",
            "var sum = 0u; for (var j = 0u; j < LENGTH; j++) { let now = first[row + j]; first[row + j] = sum; sum += now; }",
        ),
        (
            "sums so far",
            "var sum = mine; for (var j = 0u; j < LENGTH; j++) { sum += first[row + j]; first[row + j] = sum; } first[row] ^= sum;",
        ),
        (
            "sums from a place",
            "var sum = own; for (var j = 0u; j < LENGTH; j++) { let now = first[row + j]; first[row + j] = sum * 3u; sum = (now ^ mine) + sum; }
             first[row + 1u] -= sum;",
        ),
        (
            "two sums",
            "var sum = 7; var other = 0u;
             for (var j = 0u; j < LENGTH; j++) {
                 let now = first[row + j];
                 first[row + j] = u32(sum) ^ other;
                 second[row + j] = f32(other & 255u) + part;
                 sum += i32(now) >> 3u;
                 other += now & 15u;
             }
             first[row] += u32(sum) * other;",
        ),
        (
            "a sum of other words",
            "var sum = 0u; for (var j = 0u; j < LENGTH; j++) { sum += first[row + j] >> 2u; second[row + j] = f32(sum & 1023u); }
             first[row] = sum;",
        ),
        (
            "a sum again",
            "for (var k = 0u; k < 3u; k++) { var sum = k; for (var j = 0u; j < LENGTH; j++) { sum += first[row + j]; first[row + j] = sum; } }",
        ),
        // Of these some words need others in another way, or the number of their round.
        (
            "a sum of sums",
            "var sum = 0u; var all = 1u; for (var j = 0u; j < LENGTH; j++) { sum += first[row + j]; all += sum; first[row + j] = all; }",
        ),
        (
            "a sum of what was stored",
            "var sum = 0u; for (var j = 0u; j < LENGTH; j++) { first[row + j] = sum; sum += first[row + j] + 1u; } first[row] ^= sum;",
        ),
        ("a sum taken twice", "var sum = 3u; for (var j = 0u; j < LENGTH; j++) { sum += sum; first[row + j] += sum; }"),
        (
            "floats",
            "var sum = 0.0; for (var j = 0u; j < LENGTH; j++) { sum += second[row + j]; second[row + j] = sum; } second[row] += sum;",
        ),
        ("numbers", "for (var j = 0u; j < LENGTH; j++) { first[row + j] = j; }"),
        ("numbers times three", "for (var j = 0u; j < LENGTH; j++) { first[row + j] = j * 3u; }"),
        ("numbers from one on", "for (var j = 0u; j < LENGTH; j++) { first[row + j] = j + mine; }"),
        ("places", "for (var j = 0u; j < LENGTH; j++) { first[row + j] = row + j; }"),
        ("compared", "for (var j = 0u; j < LENGTH; j++) { first[row + j] = select(mine, 5u, j < mine % 16u); }"),
        ("alike", "let alike = data[7u]; for (var j = 0u; j < LENGTH; j++) { first[row + j] += alike; } first[row] ^= alike;"),
        ("counted", "for (var j = 0u; j < LENGTH; j++) { first[row + j] += mine * j; }"),
        ("moved", "for (var j = 0u; j + 1u < LENGTH; j++) { first[row + j] = first[row + j + 1u] + mine; }"),
        ("later ones", "for (var j = LENGTH / 2u; j < LENGTH; j++) { first[row + j] += mine; }"),
        ("twice", "for (var j = 0u; j < LENGTH; j++) { first[row + j] = mine; first[row + j] += first[row + j]; }"),
        ("of some", "if (mine % 2u == 0u) { for (var j = 0u; j < LENGTH; j++) { first[row + j] += mine; } }"),
        (
            "again",
            "for (var k = 0u; k < 3u; k++) { for (var j = 0u; j < LENGTH; j++) { first[row + j] += mine ^ k; } }",
        ),
    ];
    for (threads, length, apart) in [
        (64, 16, 16),
        (64, 16, 17),
        (256, 16, 16),
        (128, 32, 33),
        (48, 8, 24),
        (64, 24, 24),
        (32, 64, 64),
        (40, 16, 20),
    ] {
        for (what, body) in bodies {
            shared_rows(what, threads, length, apart, body);
        }
    }
}

/// Counters of each invocation, which it clears and counts in: `body` follows.
fn counters(what: &str, threads: u32, digits: u32, body: &str) {
    let text = format!(
        "const THREADS = {threads}u;
         const DIGITS = {digits}u;
         var<workgroup> counts: array<u32, DIGITS * THREADS>;
         @group(0) @binding(0) var<storage, read> data: array<u32>;
         @group(0) @binding(1) var<storage, read_write> result: array<u32>;
         @compute @workgroup_size(THREADS)
         fn main(@builtin(local_invocation_index) t: u32, @builtin(workgroup_id) group: vec3u) {{
             let place = group.x * THREADS + t;
             // So that what was there before counts.
             if (arrayLength(&data) == 0u) {{ result[place] += 1u; }}
             for (var d = 0u; d < DIGITS; d++) {{ counts[d * THREADS + t] = 5u; }}
             var seen = 1u;
             {body}
             workgroupBarrier();
             var sum = seen;
             for (var d = 0u; d < DIGITS; d++) {{ sum = sum * 31u + counts[t * DIGITS + d]; }}
             result[place] = sum;
         }}"
    );
    let program = import(&text, &ImportOptions::default()).unwrap_or_else(|error| panic!("{what}: {error:?}\n{text}"));
    let case = Case { grid: Some([3, 1, 1]), ..Case::new(program, vec![words(900), words(3 * threads)]) };
    agree(&format!("{what}, {threads} invocations, {digits} digits"), &case);
}

#[test]
fn counters_that_were_cleared_before_are_counted_in() {
    let count = |key: &str| {
        format!("{{ let c = ({key} & (DIGITS - 1u)) * THREADS + t; seen = seen * 3u + counts[c]; counts[c] += 1u; }}")
    };
    let keys = ["data[t]", "(data[t + 9u] >> 3u)", "data[t * 2u]", "data[3u * t + 1u]", "data[7u]", "t"];
    let some = |keys: &[&str]| keys.iter().map(|key| count(key)).collect::<String>();
    let cases = [
        ("one", some(&keys[..1])),
        ("four", some(&keys[..4])),
        ("more than are compared", some(&keys)),
        ("one of all", some(&["data[t]", "5u", "data[t]", "t"])),
        ("a barrier between", format!("{} workgroupBarrier(); {}", count(keys[0]), count(keys[1]))),
        ("others' words", format!("{} workgroupBarrier(); counts[t ^ 1u] = 9u; workgroupBarrier(); {}", count(keys[0]), count(keys[1]))),
        ("in a branch", format!("{} if (data[t] % 3u == 0u) {{ {} }} {}", count(keys[0]), count(keys[1]), count(keys[2]))),
        ("in rounds", format!("for (var k = 0u; k < 4u; k++) {{ {} }}", count("data[t * 4u + k]"))),
        ("in more rounds", format!("for (var k = 0u; k < data[t] % 9u; k++) {{ {} }}", count("data[t * 3u + k]"))),
        ("by remainders", "let c = (data[t] % DIGITS) * THREADS + t; counts[c] = counts[c] * 7u; seen = counts[c];".to_owned()),
        ("signed and unsigned", format!("{} let d = i32(data[t + 5u]) & i32(DIGITS - 1u); let c = u32(d) * THREADS + t; seen = seen * 3u + counts[c]; counts[c] += 1u; {}", count(keys[0]), count(keys[1]))),
        ("further than was cleared", "let c = min((data[t] & 63u) * THREADS + t, DIGITS * THREADS - 1u); seen = counts[c] * u32(c % THREADS == t);".to_owned()),
    ];
    for (threads, digits) in [(256, 16), (64, 16), (64, 4), (32, 32), (48, 8)] {
        for (what, body) in &cases {
            if *what != "further than was cleared" || threads == 256 {
                counters(what, threads, digits, body);
            }
        }
    }
}
