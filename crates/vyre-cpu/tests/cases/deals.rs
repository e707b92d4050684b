//! Products in tiles whose columns are dealt out to neighbours while a loop goes on, where all columns are treated alike; and those that look like them.

use crate::support::{agree, words};
use vyre_conform::Case;
use vyre_foundation::kernel::{Options, lower};
use vyre_wgsl::{ImportOptions, import};

/// A workgroup, and how an invocation's place in its row and its row are asked for.
struct Rows {
    size: [u32; 2],
    count: u32,
    place: &'static str,
    row: &'static str,
}

const ROWS: [Rows; 5] = [
    Rows { size: [16, 4], count: 16, place: "own.x", row: "own.y" },
    Rows { size: [64, 1], count: 16, place: "(li % 16u)", row: "(li / 16u)" },
    Rows { size: [128, 1], count: 32, place: "(own.x & 31u)", row: "(own.x >> 5u)" },
    Rows { size: [32, 2], count: 16, place: "(li % 16u)", row: "(li / 16u)" },
    Rows { size: [32, 1], count: 32, place: "li", row: "0u" },
];
/// Shorter than any vector.
const SHORT: Rows = Rows { size: [4, 8], count: 4, place: "own.x", row: "own.y" };

/// Each invocation has two rows and so many columns; `step` changes `acc[m * $e + n]` by the words `a` and `b`.
fn product(rows: &Rows, each: u32, wide: bool, before: &str, step: &str, rounds: &str) -> Case {
    let all = rows.size[0] * rows.size[1];
    let (tile, load) = match wide {
        true => ("array<vec4<u32>, $columns * 2u>", "tile_b[k * $q + $place][n]"),
        false => ("array<u32, $columns * 8u>", "tile_b[k * $columns + $place * $e + n]"),
    };
    let fill = match wide {
        true => "tile_b[i / 4u][i % 4u] = image[(t * 37u + i * 5u + group.x) % 512u];",
        false => "tile_b[i] = image[(t * 37u + i * 5u + group.x) % 512u];",
    };
    let (depth, one_by_one) = if wide { ("2u", "i += $all") } else { ("8u", "i += $all") };
    let text = format!(
        "@group(0) @binding(0) var<storage, read> image: array<u32>;
         @group(0) @binding(1) var<storage, read_write> result: array<u32, {words}>;
         var<workgroup> tile_a: array<u32, 8u * $rows * 2u>;
         var<workgroup> tile_b: {tile};
         @compute @workgroup_size({x}, {y})
         fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_id) own: vec3u, @builtin(local_invocation_index) li: u32) {{
             let q = $place;
             let r = $row;
             var acc: array<u32, 2u * $e>;
             {before}
             for (var t = 0u; t < 3u; t++) {{
                 for (var i = li; i < 8u * $rows * 2u; i += $all) {{ tile_a[i] = image[(t * 11u + i * 3u) % 512u]; }}
                 for (var i = li; i < $columns * {depth}{four}; {one_by_one}) {{ {fill} }}
                 workgroupBarrier();
                 for (var k = 0u; k < {rounds}; k++) {{
                     for (var m = 0u; m < 2u; m++) {{
                         let a = tile_a[k * $rows * 2u + r * 2u + m];
                         for (var n = 0u; n < $e; n++) {{
                             let b = {load};
                             let at = m * $e + n;
                             {step}
                         }}
                     }}
                 }}
                 workgroupBarrier();
             }}
             for (var n = 0u; n < 2u * $e; n++) {{ result[(group.x * $all + li) * 2u * $e + n] = acc[n]; }}
         }}",
        words = 2 * all * 2 * each,
        x = rows.size[0],
        y = rows.size[1],
        four = if wide { " * 4u / $e" } else { "" },
    );
    let text = text
        .replace("$place", rows.place)
        .replace("$row", "@row")
        .replace("@rows", &(all / rows.count).to_string())
        .replace("@row", rows.row)
        .replace("$columns", &format!("{}u", rows.count * each / if wide { 4 } else { 1 }))
        .replace("$all", &format!("{all}u"))
        .replace("$q", &format!("{}u", rows.count))
        .replace("$e", &format!("{each}u"));
    let program = import(&text, &ImportOptions::default()).unwrap_or_else(|problem| panic!("{problem:?}\n{text}"));
    Case { grid: Some([2, 1, 1]), ..Case::new(program, vec![words(512)]) }
}

/// The words of neighbours are exchanged after the loop.
fn is_dealt(case: &Case) -> bool {
    let options = Options { words_dealt: Some(8), ..Options::default() };
    let kernel = lower(&case.program.validate().expect("valid"), &options).expect("a kernel");
    kernel.shared.iter().any(|memory| memory.name.as_str() == "exchanged")
}

fn check(what: &str, dealt: bool, before: &str, step: &str, rounds: &str) {
    for rows in ROWS.iter().chain([&SHORT]) {
        for each in [2, 4, 8] {
            let what = format!("{what}: {each} for each of {:?}, {}", rows.size, rows.place);
            let case = product(rows, each, false, before, step, rounds);
            assert_eq!(is_dealt(&case), dealt && rows.count >= 8, "{what}");
            agree(&what, &case);
        }
    }
}

const SUM: &str = "acc[at] = acc[at] * 3u + (a ^ b);";

#[test]
fn columns_that_are_treated_alike_are_dealt_out() {
    check("sums", true, "", SUM, "8u");
    check("selected", true, "", "acc[at] = select(acc[at] + a * 7u, b, b > acc[at]) ^ (acc[at] >> (a & 7u));", "8u");
    check("from a word of the row", true, "for (var n = 0u; n < 2u * $e; n++) { acc[n] = image[r]; }", SUM, "8u");
    check("a row has its own rounds", true, "", SUM, "3u + r % 5u");
    let by_row = "acc[at] = select((acc[at] << 1u) ^ b, acc[at] + b, (a & 1u) == 0u);";
    check("a row has its own way", true, "", by_row, "8u");
}

#[test]
fn vectors_of_columns_are_dealt_out() {
    for rows in &ROWS {
        let case = product(rows, 4, true, "", SUM, "2u");
        assert!(is_dealt(&case), "{:?}", rows.size);
        agree(&format!("vectors: {:?}, {}", rows.size, rows.place), &case);
    }
}

#[test]
fn columns_with_something_of_their_own_stay() {
    check("a number of its own", false, "", "acc[at] += b * (a + n);", "8u");
    check("the neighbour's word", false, "", "acc[at] = acc[at] * 3u + b + acc[m * $e + (n + 1u) % $e];", "8u");
    check("the invocation's place", false, "", "acc[at] += b * (a + q);", "8u");
    check("an invocation's rounds", false, "", SUM, "3u + q % 5u");
    check("a start of its own", false, "for (var n = 0u; n < 2u * $e; n++) { acc[n] = n; }", SUM, "8u");
    check("an invocation's start", false, "for (var n = 0u; n < 2u * $e; n++) { acc[n] = q; }", SUM, "8u");
    let each_alone = "if ((a & 1u) == 0u) { acc[at] += b; } else { acc[at] = (acc[at] << 1u) ^ b; }";
    check("a branch for each", false, "", each_alone, "8u");
    check("an invocation's way", false, "", "if (q > a % 16u) { acc[at] += b; }", "8u");
    check("a word decides", false, "", "if (b > acc[at]) { acc[at] += a; if (acc[at] > 77u) { break; } }", "8u");
}

#[test]
fn own_words_are_not_dealt_out_before_all_meet() {
    for each in [2, 4, 8] {
        for barrier in ["", "workgroupBarrier();"] {
            let text = format!(
                "@group(0) @binding(0) var<storage, read> image: array<u32>;
                 @group(0) @binding(1) var<storage, read_write> result: array<u32, {all}>;
                 var<workgroup> tile: array<u32, {all}>;
                 @compute @workgroup_size(64)
                 fn main(@builtin(local_invocation_index) li: u32) {{
                     var acc: array<u32, {each}>;
                     for (var t = 0u; t < 3u; t++) {{
                         for (var n = 0u; n < {each}; n++) {{ tile[li * {each} + n] = image[(t + li * {each} + n) % 512u]; }}
                         {barrier}
                         for (var n = 0u; n < {each}; n++) {{ acc[n] = acc[n] * 3u + tile[li * {each} + n]; }}
                         workgroupBarrier();
                     }}
                     for (var n = 0u; n < {each}; n++) {{ result[li * {each} + n] = acc[n]; }}
                 }}",
                all = 64 * each,
            );
            let program = import(&text, &ImportOptions::default()).expect("a kernel");
            let case = Case { grid: Some([1, 1, 1]), ..Case::new(program, vec![words(512)]) };
            assert_eq!(is_dealt(&case), !barrier.is_empty(), "{each} {barrier}");
            agree(&format!("own words, {each} {barrier}"), &case);
        }
    }
}
