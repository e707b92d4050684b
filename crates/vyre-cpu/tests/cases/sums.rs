//! Workgroups whose invocations carry many values through loops, more than there are registers, and across barriers.

use crate::support::{agree, words};
use vyre_conform::Case;
use vyre_wgsl::{ImportOptions, import};

fn case(text: &str, workgroups: [u32; 3], count: u32, sizes: &[u32]) -> Case {
    let program = import(text, &ImportOptions::default()).expect("a kernel");
    let sizes = sizes.iter().flat_map(|size| size.to_le_bytes()).collect();
    Case { grid: Some(workgroups), ..Case::new(program, vec![words(count), sizes]) }
}

/// A kernel that goes over tiles of its input; `round` is done for each word `k` of a tile, with `many` values.
fn over_tiles(size: [u32; 2], many: u32, round: &str, rounds: u32) -> Case {
    let all = size[0] * size[1];
    let text = format!(
        "@group(0) @binding(0) var<storage, read> input: array<u32>;
         @group(0) @binding(1) var<storage, read> sizes: array<u32>;
         @group(0) @binding(2) var<storage, read_write> result: array<u32, {out}>;
         var<workgroup> tile: array<u32, {all}>;
         @compute @workgroup_size({x}, {y})
         fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_id) own: vec3u, @builtin(local_invocation_index) at: u32) {{
             var sums: array<u32, {many}>;
             var last = at;
             for (var t = 0u; t < sizes[0]; t++) {{
                 tile[at] = input[group.x * 64u + t * 16u + at];
                 workgroupBarrier();
                 for (var k = 0u; k < 5u; k++) {{
                     {round}
                 }}
                 workgroupBarrier();
             }}
             for (var i = 0u; i < {many}u; i++) {{
                 result[(group.x * {all}u + at) * {many}u + i] = sums[i] + last;
             }}
         }}",
        out = 3 * all * many,
        x = size[0],
        y = size[1],
    );
    case(&text, [3, 1, 1], 2048, &[rounds])
}

#[test]
fn more_values_than_registers_are_carried() {
    for size in [[16, 16], [8, 8], [32, 2], [24, 3]] {
        let all = size[0] * size[1];
        let mine = format!("tile[(own.x + k) % {all}u]");
        let both = format!(
            "for (var i = 0u; i < 8u; i++) {{
                 let row = tile[(own.y + i * 3u + k) % {all}u];
                 for (var j = 0u; j < 8u; j++) {{
                     sums[i * 8u + j] += row * tile[(own.x * 2u + j + k) % {all}u];
                 }}
             }}"
        );
        // Each is made of its own word; of another one too; of all before it; and a number goes with them that all need.
        let own = format!("for (var i = 0u; i < 48u; i++) {{ sums[i] = sums[i] * 3u + {mine} + i; }}");
        let pairs =
            format!("for (var i = 0u; i < 48u; i++) {{ sums[i] = sums[i] * 3u + sums[i ^ 1u] * {mine} + (i ^ k); }}");
        let chain = "for (var i = 1u; i < 48u; i++) { sums[i] += sums[i - 1u] + tile[at] + i; }".to_owned();
        let number = format!(
            "last = last * 5u + k; for (var i = 0u; i < 48u; i++) {{ sums[i] = (sums[i] ^ last) + {mine} * i; }}"
        );
        for (what, many, round) in
            [("both", 64, both), ("own", 48, own), ("pairs", 48, pairs), ("chain", 48, chain), ("number", 48, number)]
        {
            for rounds in [0, 1, 3] {
                agree(&format!("{what}, {size:?}, {rounds}"), &over_tiles(size, many, &round, rounds));
            }
        }
    }
}

#[test]
fn carried_values_change_places_between_barriers() {
    // What a round makes of a value may be needed with the old one, become another's, or be left as it is on some way.
    let rounds = [
        ("swapped", "let old = a; a = b; b = old + tile[(at + 1u) % 256u];", ""),
        ("both needed", "old = a; a = a * 3u + tile[(at + 7u) % 256u];", "b ^= old + a;"),
        ("old needed later", "let next = a * 5u + tile[(at + 9u) % 256u];", "b += a; a = next;"),
        (
            "on some way",
            "if (t % 2u == 1u) { a += tile[(at + 3u) % 256u] * b; }",
            "if (t == 2u) { continue; } b = a ^ t;",
        ),
        ("twice", "a = a * 7u + tile[(at + 5u) % 256u]; b = a;", "c += b;"),
        ("left", "a = a * 7u + tile[(at + 5u) % 256u]; if (sizes[t] == 9u) { break; }", "b = b * 3u + a;"),
    ];
    for (what, first, second) in rounds {
        let text = format!(
            "@group(0) @binding(0) var<storage, read> input: array<u32>;
             @group(0) @binding(1) var<storage, read> sizes: array<u32>;
             @group(0) @binding(2) var<storage, read_write> result: array<u32, 1536>;
             var<workgroup> tile: array<u32, 256>;
             @compute @workgroup_size(256)
             fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) at: u32) {{
                 var a = input[at];
                 var b = input[at + 5u];
                 var c = input[at + 9u];
                 var old = 0u;
                 for (var t = 0u; t < sizes[0]; t++) {{
                     tile[at] = input[group.x * 64u + t * 16u + at] ^ c;
                     workgroupBarrier();
                     {first}
                     workgroupBarrier();
                     {second}
                 }}
                 result[(group.x * 256u + at) * 3u] = a;
                 result[(group.x * 256u + at) * 3u + 1u] = b;
                 result[(group.x * 256u + at) * 3u + 2u] = c + old;
             }}"
        );
        for sizes in [[0, 1, 1, 1, 1], [1, 9, 1, 1, 1], [5, 1, 1, 9, 1], [5, 1, 1, 1, 1]] {
            agree(&format!("{what}, {sizes:?}"), &case(&text, [2, 1, 1], 1024, &sizes));
        }
    }
}
