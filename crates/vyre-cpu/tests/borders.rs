//! Kernels that do something else for a few invocations and leave, as at the border of a grid: blocks without any of those don't ask lane by lane.

mod support;

use support::{agree, words};
use vyre_conform::Case;
use vyre_wgsl::{ImportOptions, import};

/// A kernel that copies what is at the border, as `test` has it, and adds up neighbours elsewhere.
fn bordered(size: [u32; 3], [nx, ny, nz]: [u32; 3], test: &str) -> Case {
    let text = format!(
        "struct Params {{
             size: vec3u,
             special: u32,
             start: i32,
         }}
         @group(0) @binding(0) var<uniform> params: Params;
         @group(0) @binding(1) var<storage, read> field: array<u32>;
         @group(0) @binding(2) var<storage, read_write> result: array<u32, {all}>;
         @compute @workgroup_size({x}, {y}, {z})
         fn main(@builtin(global_invocation_id) p: vec3u) {{
             if (any(p >= params.size)) {{
                 return;
             }}
             let i = (p.z * params.size.y + p.y) * params.size.x + p.x;
             if ({test}) {{
                 result[i] = field[i] ^ 1u;
                 return;
             }}
             let dy = params.size.x;
             let dz = params.size.x * params.size.y;
             let near = field[i - 1u] + 3u * field[i + 1u] + 5u * field[i - dy] + 7u * field[i + dy];
             let far = (field[i - dz] ^ 0x55u) + (field[i + dz] << 3u) + (field[i] >> 2u);
             result[i] = near * 9u + far * 11u + field[i] * field[i + 1u];
         }}",
        all = nx * ny * nz,
        x = size[0],
        y = size[1],
        z = size[2],
    );
    let program = import(&text, &ImportOptions::default()).expect("a kernel");
    let grid = [nx.div_ceil(size[0]), ny.div_ceil(size[1]), nz.div_ceil(size[2])];
    let params = [nx, ny, nz, nx / 2, 0u32.wrapping_sub(5), 0, 0, 0].into_iter().flat_map(u32::to_le_bytes).collect();
    Case { grid: Some(grid), ..Case::new(program, vec![params, words(nx * ny * nz)]) }
}

#[test]
fn borders_are_found() {
    let tests = [
        ("border", "any(p == vec3u(0u)) || any(p == params.size - vec3u(1u))"),
        ("left", "p.x == 0u"),
        ("right", "p.x + 1u == params.size.x"),
        ("a column", "p.x == params.special"),
        ("columns around it", "p.x + 2u == params.special || p.x == params.special + 19u || p.x == 16u"),
        ("with a sign", "i32(p.x) + params.start == 3 || i32(p.x) + params.start == -2"),
        ("every second", "p.x * 2u == params.special"),
        ("from above", "params.special - p.x == 7u || params.special - p.x == 0xfffffff0u"),
        ("by what is there", "p.x == 40u || field[i] % 5u == 0u"),
    ];
    for (what, test) in tests {
        for (size, grid) in [
            ([4, 4, 4], [160, 9, 5]),
            ([4, 4, 4], [300, 5, 4]),
            ([64, 1, 1], [333, 4, 3]),
            ([8, 8, 1], [49, 17, 3]),
            ([4, 4, 4], [7, 5, 4]),
        ] {
            agree(&format!("{what}, {size:?}, {grid:?}"), &bordered(size, grid, test));
        }
    }
}
