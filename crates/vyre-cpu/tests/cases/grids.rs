//! Kernels over grids. Some do something else for a few invocations and leave, as at the border: blocks without any of those don't ask lane by lane. In
//! others neighbours along x write far from each other, and those of the next row beside them, as when something is transposed: all rows of a
//! workgroup are done for a few neighbours before the next ones.

use crate::support::{agree, words};
use vyre_conform::Case;
use vyre_wgsl::{ImportOptions, import};

/// A kernel over a grid whose invocations have a word each, which it is given after its parameters.
fn over(text: &str, size: [u32; 3], extent: [u32; 3], params: Vec<u8>) -> Case {
    let program = import(text, &ImportOptions::default()).expect("a kernel");
    let grid = [0, 1, 2].map(|axis| extent[axis].div_ceil(size[axis]));
    Case { grid: Some(grid), ..Case::new(program, vec![params, words(extent.iter().product())]) }
}

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
    let params = [nx, ny, nz, nx / 2, 0u32.wrapping_sub(5), 0, 0, 0].into_iter().flat_map(u32::to_le_bytes).collect();
    over(&text, size, [nx, ny, nz], params)
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

fn turned(size: [u32; 3], [nx, ny, nz]: [u32; 3], place: &str) -> Case {
    let text = format!(
        "@group(0) @binding(0) var<storage, read> sizes: array<u32>;
         @group(0) @binding(1) var<storage, read> before: array<u32>;
         @group(0) @binding(2) var<storage, read_write> after: array<u32, {all}>;
         @compute @workgroup_size({x}, {y}, {z})
         fn main(@builtin(global_invocation_id) p: vec3u) {{
             let nx = sizes[0];
             let ny = sizes[1];
             if (p.x < nx && p.y < ny && p.z < sizes[2]) {{
                 after[{place}] = before[(p.z * ny + p.y) * nx + p.x] + p.x * 3u + p.y;
             }}
         }}",
        all = nx * ny * nz,
        x = size[0],
        y = size[1],
        z = size[2],
    );
    let sizes = [nx, ny, nz].into_iter().flat_map(u32::to_le_bytes).collect();
    over(&text, size, [nx, ny, nz], sizes)
}

#[test]
fn every_place_is_written_once() {
    for (size, grid) in [
        ([8, 8, 1], [67, 19, 1]),
        ([16, 16, 1], [300, 40, 1]),
        ([4, 4, 4], [130, 9, 6]),
        ([64, 2, 1], [64, 2, 3]),
        ([8, 8, 1], [5, 70, 1]),
        ([32, 8, 1], [1024, 16, 1]),
    ] {
        let constant = format!("(p.z * {}u + p.x) * {}u + p.y", grid[0], grid[1]);
        agree(&format!("{size:?}, {grid:?}"), &turned(size, grid, "(p.z * nx + p.x) * ny + p.y"));
        agree(&format!("{size:?}, {grid:?}, known"), &turned(size, grid, &constant));
    }
}

/// A kernel that adds up a window of neighbours, of which those that lie outside are left out, as `outside` has it, in a grid of known size.
fn windowed(size: [u32; 3], [nx, ny]: [u32; 2], outside: &str) -> Case {
    let text = format!(
        "struct Params {{
             size: vec2i,
             far: i32,
             spare: i32,
         }}
         @group(0) @binding(0) var<uniform> params: Params;
         @group(0) @binding(1) var<storage, read> field: array<u32>;
         @group(0) @binding(2) var<storage, read_write> result: array<u32, {all}>;
         const WIDTH = {nx}i;
         const HEIGHT = {ny}i;
         @compute @workgroup_size({x}, {y}, {z})
         fn main(@builtin(global_invocation_id) p: vec3u) {{
             let here = vec2i(p.xy);
             if (any(here >= vec2i(WIDTH, HEIGHT))) {{
                 return;
             }}
             var sum = u32(params.far);
             for (var dy = -2; dy <= 2; dy++) {{
                 for (var dx = -2; dx <= 2; dx++) {{
                     let x = here.x + dx;
                     let y = here.y + dy;
                     {outside}
                     sum = sum * 3u + field[y * WIDTH + x];
                 }}
             }}
             result[here.y * WIDTH + here.x] = sum;
         }}",
        all = nx * ny,
        x = size[0],
        y = size[1],
        z = size[2],
    );
    let params = [nx, ny, 70000, 0].into_iter().flat_map(u32::to_le_bytes).collect();
    over(&text, size, [nx, ny, 1], params)
}

#[test]
fn windows_end_at_the_border() {
    let ways = [
        ("a known size", "if (x < 0 || x >= WIDTH || y < 0 || y >= HEIGHT) { continue; }"),
        ("a size that is given", "if (x < 0 || x >= params.size.x || y < 0 || y >= params.size.y) { continue; }"),
        ("numbers without a sign", "if (u32(x) >= u32(WIDTH) || u32(y) >= u32(HEIGHT)) { continue; }"),
        ("one side only", "if (x < 0) { sum ^= 1u; continue; }"),
        ("not the border", "if (x < 3 || x + 4 >= WIDTH) { continue; } if (y == 7) { sum++; }"),
        ("the other way", "if (x >= 1 && y - 1 > 0 && x <= WIDTH - 2) { sum += field[x]; }"),
        (
            "far away",
            "if (x + 70000 >= params.far + WIDTH || x - 70000 >= 0) { continue; } if (y - 60000 < -60000) { continue; }",
        ),
    ];
    for (what, outside) in ways {
        for (size, extent) in
            [([16, 16, 1], [211, 37]), ([64, 1, 1], [256, 9]), ([8, 8, 1], [40, 40]), ([32, 4, 1], [131, 5])]
        {
            agree(&format!("{what}, workgroups of {size:?}, {extent:?}"), &windowed(size, extent, outside));
        }
    }
}
