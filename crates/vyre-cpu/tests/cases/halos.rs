//! Tiles with borders that invocations fill by their numbers: row and column of a place are a quotient and a remainder by a constant, so they are
//! known for each lane, and a vector's words lie in few rows of the image.

use crate::support::{agree, words};
use vyre_conform::Case;
use vyre_wgsl::{ImportOptions, import};

/// How an image is looked at.
#[derive(Clone, Copy)]
struct Look<'t> {
    /// The place of a pixel, and whether it is looked at.
    place: &'t str,
    test: &'t str,
    /// The width that the kernel is told.
    width: u32,
    signed: bool,
}

/// A kernel that fills a tile and then reads around its own place.
fn tiled(size: [u32; 2], border: u32, [columns, rows]: [u32; 2], look: Look<'_>) -> Case {
    let Look { place, test, width, signed } = look;
    let (across, down) = (size[0] + 2 * border, size[1] + 2 * border);
    let (number, zero) = if signed { ("i32", "0") } else { ("u32", "0u") };
    let text = format!(
        "override N: i32 = {columns};
         @group(0) @binding(0) var<storage, read> image: array<u32>;
         @group(0) @binding(1) var<storage, read> sizes: array<i32>;
         @group(0) @binding(2) var<storage, read_write> result: array<u32, {out}>;
         var<workgroup> tile: array<u32, {words}>;
         @compute @workgroup_size({x}, {y})
         fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_id) own: vec3u, @builtin(local_invocation_index) first: u32) {{
             let width = sizes[0];
             let height = sizes[1];
             for (var i = {number}(first); i < {words}; i += {all}) {{
                 let x = i32(group.x) * {x} + i32(i % {across}) - {border};
                 let y = i32(group.y) * {y} + i32(i / {across}) - {border};
                 var found = 0xabcdu;
                 if ({test}) {{
                     found = image[{place}];
                 }}
                 tile[i + {zero}] = found;
             }}
             workgroupBarrier();
             let at = own.y * {across} + own.x;
             var sum = 0u;
             for (var dy = 0u; dy <= {two}u; dy++) {{
                 for (var dx = 0u; dx <= {two}u; dx++) {{
                     sum = sum * 3u ^ tile[at + dy * {across} + dx];
                 }}
             }}
             let x = group.x * {x} + own.x;
             let y = group.y * {y} + own.y;
             result[y * {wide} + x] = sum;
         }}",
        words = across * down,
        out = columns.div_ceil(size[0]) * size[0] * rows.div_ceil(size[1]) * size[1],
        all = size[0] * size[1],
        x = size[0],
        y = size[1],
        two = 2 * border,
        wide = columns.div_ceil(size[0]) * size[0],
    );
    let program = import(&text, &ImportOptions::default()).expect("a kernel");
    let grid = [columns.div_ceil(size[0]), rows.div_ceil(size[1]), 1];
    let sizes = [width, rows].into_iter().flat_map(u32::to_le_bytes).collect();
    Case { grid: Some(grid), ..Case::new(program, vec![words(columns * rows), sizes]) }
}

#[test]
fn tiles_are_filled_with_what_is_there() {
    let inside = "x >= 0 && y >= 0 && x < N && y < height";
    for size in [[16, 16], [8, 8], [32, 4], [16, 2], [64, 1]] {
        for border in [1, 2, 3] {
            for [columns, rows] in [[50, 20], [16, 3], [7, 5]] {
                let in_width = "x >= 0 && y >= 0 && x < width && y < height";
                for (what, place, test, width, signed) in [
                    ("constant width", "y * N + x", inside, columns, true),
                    ("width at run time", "u32(y * width + x)", in_width, columns, false),
                    // Nothing but the bounds of the buffer, at places that wrap.
                    ("no test", "u32(y * N + x)", "x < 100000", columns, false),
                    ("other width", "y * width + x", "x >= -1 && y < height + 2", columns + 3, true),
                    ("every other column", "u32(y) * u32(N) + u32(x) * 2u", inside, columns, true),
                ] {
                    let name = format!("{what}: {columns} x {rows} with {border} around {size:?}");
                    agree(&name, &tiled(size, border, [columns, rows], Look { place, test, width, signed }));
                }
            }
        }
    }
}

/// Large workgroups are taken in pieces; where all of one is inside of what the kernel sets as limits, its code has no masks and nobody leaves a
/// loop early.
#[test]
fn limits_of_workgroups_in_pieces() {
    for (rows, size) in [(4, [16, 64]), (1, [256, 4]), (3, [32, 32])] {
        for (at, clamp) in [("min(max(y, 0), height - 1)", "min(x, width - 1u)"), ("max(min(y, height - 1), 0)", "x")] {
            for [width, height] in [[48u32, 200u32], [41, 65], [300, 5], [16, 64], [1, 1]] {
                let [x, y] = size;
                let text = format!(
                    "@group(0) @binding(0) var<storage, read> image: array<u32>;
                     @group(0) @binding(1) var<storage, read> sizes: array<u32>;
                     @group(0) @binding(2) var<storage, read_write> result: array<u32, {count}>;
                     var<workgroup> tile: array<array<u32, {x}>, {tall}>;
                     @compute @workgroup_size({x}, {y})
                     fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_id) own: vec3u) {{
                         let width = sizes[0];
                         let height = i32(sizes[1]);
                         let x = group.x * {x} + own.x;
                         for (var r = own.y; r < {tall}; r += {y}) {{
                             let y = i32(group.y * {out}) + i32(r) - 2;
                             tile[r][own.x] = image[u32({at}) * width + {clamp}];
                         }}
                         workgroupBarrier();
                         if (x >= width) {{ return; }}
                         for (var r = own.y; r < {out}; r += {y}) {{
                             let y = group.y * {out} + r;
                             if (y >= u32(height)) {{ break; }}
                             var sum = 0u;
                             for (var k = 0u; k < 5u; k++) {{ sum = sum * 7u ^ tile[r + k][own.x]; }}
                             result[y * width + x] = sum;
                         }}
                     }}",
                    count = width * height,
                    out = y * rows,
                    tall = y * rows + 4,
                );
                let program = import(&text, &ImportOptions::default()).expect("a kernel");
                let grid = [width.div_ceil(x), height.div_ceil(y * rows), 1];
                let sizes = [width, height].into_iter().flat_map(u32::to_le_bytes).collect();
                let case = Case { grid: Some(grid), ..Case::new(program, vec![words(width * height), sizes]) };
                agree(&format!("{size:?} over {width} x {height}, {at}, {clamp}"), &case);
            }
        }
    }
}
