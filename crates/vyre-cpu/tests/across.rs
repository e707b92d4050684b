//! Kernels in which neighbours along x write far from each other, and those of the next row beside them, as when something is transposed: all
//! rows of a workgroup are done for a few neighbours before the next ones.

mod support;

use support::{agree, words};
use vyre_conform::Case;
use vyre_wgsl::{ImportOptions, import};

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
    let program = import(&text, &ImportOptions::default()).expect("a kernel");
    let grid = [nx.div_ceil(size[0]), ny.div_ceil(size[1]), nz.div_ceil(size[2])];
    let sizes = [nx, ny, nz].into_iter().flat_map(u32::to_le_bytes).collect();
    Case { grid: Some(grid), ..Case::new(program, vec![sizes, words(nx * ny * nz)]) }
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
