//! Products on processors: columns side by side in vectors, rows in registers.
//!
//! Where it pays, the right factor is first copied to panels of as many columns as a workgroup has, one row of a panel behind the other: what a
//! workgroup reads then lies together, however wide the matrix is. Workgroups go down some tiles of rows, which the second cache holds, then on
//! to the next panel, so that both factors come from memory few times.

use std::fmt::Write;

use vyre::{Buffer, DataType, Engine, Error, Program};

use super::{Transposed, begin, narrowed, place_a, place_b, sums_of, widened};
use crate::launch::{GROUP, MOST, grid, parsed, room, size_of};

/// Columns side by side in vectors and rows in registers; the default first.
pub(super) const FORMS: [(usize, usize); 8] =
    [(32, 10), (32, 6), (32, 8), (32, 12), (64, 4), (64, 5), (64, 6), (16, 12)];

/// Columns of a panel.
const PANEL: usize = 32;
/// Rows of a panel that an invocation copies.
const COPIED: usize = 64;
/// Rows of the left factor for which a copy of the right one is worth it, and elements of that one.
const WORTH: (usize, usize) = (64, 1 << 14);
/// Bytes of the left factor that stay in the second cache.
const NEAR: usize = 3 << 18;

/// The forms that fit panels, or all.
pub(super) fn forms(in_panels: bool) -> impl Iterator<Item = &'static (usize, usize)> {
    FORMS.iter().filter(move |(columns, _)| !in_panels || *columns == PANEL)
}

/// Workgroups of a form.
pub(super) fn groups([m, n]: [usize; 2], batches: usize, (columns, rows): (usize, usize)) -> usize {
    batches * m.div_ceil(rows) * n.div_ceil(columns)
}

/// Tiles of rows that workgroups take before they go on to the next columns.
pub(super) fn tiles_near(ty: &DataType, depth: usize, rows: usize) -> usize {
    (NEAR / (rows * depth.max(1) * size_of(ty) as usize)).max(1)
}

/// Copying the right factor to panels is worth it.
pub(super) fn is_worth([m, n, k]: [usize; 3], batches: usize) -> bool {
    m >= WORTH.0 && n * k >= WORTH.1 && batches * n.next_multiple_of(PANEL) * k <= MOST
}

/// The right factor in panels, in the type of the sums; zeros behind the last column.
pub(super) fn packed(
    engine: &Engine,
    b: &Buffer,
    ty: &DataType,
    [n, k]: [usize; 2],
    batches: usize,
    transposed: Transposed,
) -> Result<Buffer, Error> {
    let sum = sums_of(ty);
    let panels = n.div_ceil(PANEL);
    let mut out = room(engine, &sum, batches * panels * PANEL * k);
    let kernel = engine.kernel_from(&format!("matmul panels {ty} {}", transposed.b), || {
        let mut text = format!("read b: {ty} @0;\nread sizes: u32 @1;\noutput out: {sum} @2;\n");
        let _ = write!(
            text,
            "workgroup_size [{PANEL}, 1, 1];\nentry panels {{\n{GROUP}let l = local_index;\nlet n = sizes[0];\nlet depth = sizes[1];\n\
             let panels = (n + {}) / {PANEL};\nlet parts = (depth + {}) / {COPIED};\nif group < sizes[2] * panels * parts {{\n\
             let batch = group / (panels * parts);\nlet panel = group / parts % panels;\nlet first = group % parts * {COPIED};\n\
             let b_start = batch * depth * n;\nlet column = panel * {PANEL} + l;\nfor k in first..min(first + {COPIED}, depth) {{\n\
             var element: {sum};\nif column < n {{\nelement = {};\n}}\nout[((batch * panels + panel) * depth + k) * {PANEL} + l] = element;\n}}\n}}\n}}\n",
            PANEL - 1,
            COPIED - 1,
            widened(ty, format!("b[{}]", place_b(transposed, "k", "column")))
        );
        parsed(&text)
    })?;
    let sizes = [n, k, batches].map(|size| size as u32);
    let groups = batches * panels * k.div_ceil(COPIED);
    kernel.bind("b", b).value("sizes", &sizes).bind("out", &mut out).grid(grid(groups)).overwrites().launch()?;
    Ok(out)
}

/// Each invocation makes some rows of one column.
pub(super) fn program(
    ty: &DataType,
    transposed: Transposed,
    (columns, rows): (usize, usize),
    in_panels: bool,
) -> Result<Program, Error> {
    let sum = sums_of(ty);
    let right = if in_panels { &sum } else { ty };
    let mut text = format!("read a: {ty} @0;\nread b: {right} @1;\nread sizes: u32 @2;\noutput out: {ty} @3;\n");
    let _ = write!(
        text,
        "workgroup_size [{columns}, 1, 1];\nentry matmul {{\n{}let block = tile / (sizes[4] * tiles_across) * sizes[4];\n\
         let inside = tile % (sizes[4] * tiles_across);\nlet high = min(sizes[4], tiles_down - block);\n\
         let row = (block + inside % high) * {rows};\nlet across = inside / high;\nlet column = across * {columns} + l;\n",
        begin(rows, columns)
    );
    for r in 0..rows {
        let _ = writeln!(text, "var sum{r}: {sum};\nlet row{r} = min(row + {r}, m - 1);");
    }
    let element = match in_panels {
        true => format!("b[((batch * tiles_across + across) * depth + k) * {columns} + l]"),
        false => widened(ty, format!("b[{}]", place_b(transposed, "k", "column"))),
    };
    let _ = writeln!(text, "if column < n {{\nfor k in 0..depth {{\nlet right = {element};");
    for r in 0..rows {
        let left = widened(ty, format!("a[{}]", place_a(transposed, &format!("row{r}"), "k")));
        let _ = writeln!(text, "sum{r} = fma({left}, right, sum{r});");
    }
    text.push_str("}\n");
    for r in 0..rows {
        let _ = writeln!(
            text,
            "if row + {r} < m {{\nout[out_start + (row + {r}) * n + column] = {};\n}}",
            narrowed(ty, &format!("sum{r}"))
        );
    }
    text.push_str("}\n}\n}\n");
    parsed(&text)
}
