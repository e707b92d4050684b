//! Vectors that are worked on component by component have an invocation for each component, where components are treated alike and places in the
//! grid say only which vector it is; and kernels that look like such.

use crate::support::{agree, words};
use vyre_conform::Case;
use vyre_foundation::kernel::{Options, lower};
use vyre_wgsl::{ImportOptions, import};

/// A kernel that has vectors `data`, words `more`, and `out` and `own` to write.
fn case(size: [u32; 3], grid: [u32; 3], body: &str) -> Case {
    let text = format!(
        "@group(0) @binding(0) var<storage, read> data: array<vec4<u32>>;
         @group(0) @binding(1) var<storage, read> more: array<u32>;
         @group(0) @binding(2) var<storage, read_write> out: array<vec4<u32>, 700>;
         var<workgroup> tile: array<array<u32, 20>, 16>;
         var<workgroup> quads: array<array<vec4<u32>, 8>, 16>;
         @compute @workgroup_size({}, {}, {})
         fn main(@builtin(global_invocation_id) id: vec3u, @builtin(workgroup_id) group: vec3u, @builtin(local_invocation_id) own: vec3u,
                 @builtin(local_invocation_index) li: u32) {{ {body} }}",
        size[0], size[1], size[2]
    );
    let program = import(&text, &ImportOptions::default()).unwrap_or_else(|problem| panic!("{problem:?}\n{text}"));
    let mut more = words(64);
    // Limits that are near, far, and as far as can be.
    let limits = [5u32, 0x4000_0000, 0x4000_0003, 0xffff_ffff, 0x2000_0001, 61];
    for (at, limit) in limits.iter().enumerate() {
        more[at * 4..at * 4 + 4].copy_from_slice(&limit.to_le_bytes());
    }
    // Buffers that nobody names are not asked for.
    let mut inputs = vec![words(4 * 600)];
    inputs.extend(body.contains("more[").then_some(more));
    Case { grid: Some(grid), ..Case::new(program, inputs) }
}

fn is_apart(case: &Case) -> bool {
    let options =
        Options { components_apart: Some(8), rows_of_tiles: Some(8), small_grids: true, ..Options::default() };
    lower(&case.program.validate().expect("valid"), &options).expect("a kernel").parts == 4
}

fn check(what: &str, apart: bool, size: [u32; 3], grid: [u32; 3], body: &str) {
    let case = case(size, grid, body);
    assert_eq!(is_apart(&case), apart, "{what}");
    agree(what, &case);
}

#[test]
fn components_that_are_treated_alike_are_apart() {
    for (size, grid) in
        [([8, 4, 2], [3, 2, 1]), ([64, 1, 1], [9, 1, 1]), ([2, 8, 1], [5, 2, 1]), ([16, 4, 1], [2, 3, 1])]
    {
        let at = format!("let at = (id.z * {} + id.y) * {}u + id.x;", size[1] * grid[1], size[0] * grid[0]);
        let go = |what: &str, body: &str| check(what, true, size, grid, &format!("{at} {body}"));
        go("plain", "out[at] = data[at] * 3u + 7u;");
        go("copied", "out[at] = data[at];");
        go("a limit", "if (id.x >= 5u) { return; } out[at] = data[at] ^ data[id.x];");
        go("a way by the row", "var v = data[at]; if (id.y > 1u) { v += data[at + 1u] * more[id.y]; } out[at] = v;");
        go(
            "rounds",
            "var v = data[at]; for (var i = 0u; i < 3u + id.y; i++) { v = (v << vec4<u32>(1u)) ^ data[at + i * 8u]; } out[at] = v;",
        );
        go(
            "left early",
            "var v = vec4<u32>(1u); var i = 0u;
             loop { if (i >= more[5] % 9u + id.y) { break; } v = v * 5u + data[at + i]; i += 1u; } out[at] = v / (i + 1u);",
        );
        go("selected", "let a = data[at]; let b = data[at ^ 0u]; out[at] = select(a, b + 1u, a > b * 3u);");
    }
}

/// The index times four would be one of another vector. Each invocation writes words of its own.
#[test]
fn far_places_are_out_of_bounds() {
    let near_ends = ["0x3fffffffu", "0x3ffffffdu", "0x40000000u", "0x80000001u", "0xbffffffeu", "0xc0000000u"];
    for far in near_ends.into_iter().chain(["0x20000000u", "0x1ffffffeu", "0xffffffffu", "0xfffffffbu"]) {
        for size in [[8, 4, 1], [64, 1, 1]] {
            let varied = format!("id.x + {far} + more[id.y + 8u] % 7u");
            for index in [format!("id.x + {far}"), format!("id.x - {far}"), varied] {
                let load = format!("let at = id.y * 64u + id.x; out[at] = data[at] + data[{index}];");
                check(&load, true, size, [1, 1, 1], &load);
                let store = format!("out[{index} + id.y * 64u] = data[id.y * 64u + id.x] * 5u + 1u;");
                check(&store, true, size, [1, 1, 1], &store);
            }
        }
    }
}

#[test]
fn limits_may_be_far() {
    for limit in 0..6 {
        for test in ["id.x < more[{}]", "more[{}] > id.x", "!(id.x >= more[{}])", "id.x + 3u < more[{}]"] {
            let test = test.replace("{}", &format!("{limit}u"));
            let apart = !test.contains("3u <");
            check(
                &test,
                apart,
                [32, 2, 1],
                [2, 1, 1],
                &format!("if ({test}) {{ out[id.y * 64u + id.x] = data[id.x] + 1u; }}"),
            );
        }
    }
}

#[test]
fn tiles_are_filled_by_all() {
    let product = |fill: &str| {
        format!(
            "var acc: array<vec4<u32>, 2>;
             for (var k = 0u; k < 3u; k++) {{
                 {fill}
                 quads[own.y][own.x] = data[(k * 16u + own.y) * 8u + own.x];
                 workgroupBarrier();
                 for (var i = 0u; i < 16u; i++) {{
                     for (var r = 0u; r < 2u; r++) {{ acc[r] = acc[r] * 3u + tile[i][own.y + r * 4u] * quads[i][own.x]; }}
                 }}
                 workgroupBarrier();
             }}
             for (var r = 0u; r < 2u; r++) {{ out[((group.x * 2u + r) * 16u + own.y) * 8u + own.x] = acc[r] + data[own.x]; }}"
        )
    };
    let fill = "for (var i = li; i < 320u; i += 128u) { tile[i % 16u][i / 16u] = more[(k + i * 3u) % 64u]; }";
    check("a product", true, [8, 16, 1], [2, 1, 1], &product(fill));
    let own = "tile[own.y][own.x] = more[own.y + k];";
    check("words of an invocation", false, [8, 16, 1], [2, 1, 1], &product(own));
    let same = "for (var i = li; i < 320u; i += 128u) { tile[i % 4u][i / 16u] = more[(k + i * 3u) % 64u]; }";
    check("words of several rounds", false, [8, 16, 1], [2, 1, 1], &product(same));
}

#[test]
fn others_stay_together() {
    let go = |what: &str, body: &str| {
        check(what, false, [8, 4, 1], [2, 1, 1], &format!("let at = id.y * 16u + id.x; {body}"))
    };
    go("another order", "out[at] = data[at].yxzw;");
    go("one component", "out[at] = data[at] * data[at].x;");
    go("another constant", "out[at] = data[at] + vec4<u32>(1u, 2u, 3u, 4u);");
    go("of the place", "out[at] = data[at] + id.x;");
    go("a way by a component", "if (data[at].y > 9u) { out[at] = data[at]; }");
    go("a way by the place", "if (more[id.x] > 9u) { out[at] = data[at]; }");
    go("far apart", "out[at * 2u] = data[at];");
    go("two kinds", "var v = data[at]; v.w = v.w * 3u; out[at] = v;");
    go("exchanged", "var v = data[at]; for (var i = 0u; i < 3u; i++) { v = v.wxyz + 1u; } out[at] = v;");
}
