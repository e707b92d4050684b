//! Products on processors: columns side by side in vectors, rows in registers.
//!
//! Where it pays, the right factor is first copied to panels of as many columns as a workgroup has, one row of a panel behind the other: what a
//! workgroup reads then lies together, however wide the matrix is. Workgroups go down some tiles of rows, which the second cache holds, then on
//! to the next panel, so that both factors come from memory few times.

use std::fmt::Write;

use vyre::variant::Variant;
use vyre::{Buffer, DataType, Engine, Error, Program};

use super::epilogue::Steps;
use super::{Transposed, begin, narrowed, place_a, place_b, sums_of, widened};
use crate::launch::{GROUP, MOST, grid, parsed, room, size_of};

/// Columns side by side in vectors and rows in registers; the default first.
pub(super) const FORMS: [(usize, usize); 8] =
    [(32, 10), (32, 6), (32, 8), (32, 12), (64, 4), (64, 5), (64, 6), (16, 12)];

/// Columns of a panel.
pub(super) const PANEL: usize = 32;
/// Rows of a panel that an invocation copies.
const COPIED: usize = 64;
/// Rows of the left factor for which a copy of the right one is worth it, and elements of that one.
const WORTH: (usize, usize) = (64, 1 << 14);
/// Bytes of the left factor that stay in the second cache.
const NEAR: usize = 3 << 18;

/// The form where nothing was decided. A loop over panels waits for nothing but its registers, and has enough of them with fewer rows.
pub(super) fn default_form(in_panels: bool) -> (usize, usize) {
    if in_panels { FORMS[1] } else { FORMS[0] }
}

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

/// What processors run in the place of a product of panels.
pub(super) fn function(ty: &DataType, transposed: Transposed) -> Option<Variant> {
    #[cfg(target_arch = "x86_64")]
    if *ty == DataType::F32 {
        return super::host::product(transposed);
    }
    let _ = (ty, transposed);
    None
}

/// Sizes of products that have a kernel of their own: rows, columns, depth and batches.
pub(super) type Sizes = [usize; 4];

/// Each invocation makes some rows of one column. With panels the loop is the same for all columns, those behind the last among them; with sizes
/// that are known nothing in it is tested.
pub(super) fn program(
    ty: &DataType,
    transposed: Transposed,
    (columns, rows): (usize, usize),
    in_panels: bool,
    known: Option<Sizes>,
    steps: Steps,
) -> Result<Program, Error> {
    // The last tile of rows is moved up to the others, and what both make is the same.
    let known = known.filter(|[m, ..]| in_panels && *m >= rows);
    let sum = sums_of(ty);
    let right = if in_panels { &sum } else { ty };
    let [a, b, out] = known.map_or_else(Default::default, |[m, n, k, batches]| {
        [m * k, n.next_multiple_of(columns) * k, m * n].map(|each| format!("[{}]", batches * each))
    });
    let mut text =
        format!("read a: {ty}{a} @0;\nread b: {right}{b} @1;\nread sizes: u32 @2;\noutput out: {ty}{out} @3;\n");
    text.push_str(&steps.declaration(&ty.to_string(), 4));
    let _ = write!(text, "workgroup_size [{columns}, 1, 1];\nentry matmul {{\n");
    text.push_str(&steps.begin(ty));
    text.push_str(&match known {
        Some(sizes) => begin_known(sizes, rows, columns),
        None => begin(rows, columns),
    });
    let _ = write!(
        text,
        "let block = tile / (sizes[4] * tiles_across) * sizes[4];\nlet inside = tile % (sizes[4] * tiles_across);\n\
         let high = max(min(sizes[4], tiles_down - block), 1);\nlet across = min(inside / high, tiles_across - 1);\n\
         let column = across * {columns} + l;\nlet down = (block + inside % high) * {rows};\n"
    );
    let _ = match known {
        Some([m, ..]) => writeln!(text, "let row = min(down, {});", m - rows),
        None => writeln!(text, "let row = down;"),
    };
    for r in 0..rows {
        let own = if known.is_some() { format!("row + {r}") } else { format!("min(row + {r}, m - 1)") };
        let _ = writeln!(text, "var sum{r}: {sum};\nlet row{r} = {own};");
    }
    let (element, before, behind) = match in_panels {
        true => (format!("b[((batch * tiles_across + across) * depth + k) * {columns} + l]"), "", "if column < n {\n"),
        false => (widened(ty, format!("b[{}]", place_b(transposed, "k", "column"))), "if column < n {\n", ""),
    };
    let _ = writeln!(text, "{before}for k in 0..depth {{\nlet right = {element};");
    for r in 0..rows {
        let left = widened(ty, format!("a[{}]", place_a(transposed, &format!("row{r}"), "k")));
        let _ = writeln!(text, "sum{r} = fma({left}, right, sum{r});");
    }
    let _ = write!(text, "}}\n{behind}");
    for r in 0..rows {
        let (lines, done) = steps.lines(ty, &format!("sum{r}"), "column", &r.to_string());
        let _ = writeln!(
            text,
            "if row + {r} < m {{\n{lines}out[out_start + (row + {r}) * n + column] = {};\n}}",
            narrowed(ty, &done)
        );
    }
    text.push_str("}\n}\n}\n");
    parsed(&text)
}

/// As [`begin`], with numbers.
fn begin_known([m, n, k, batches]: Sizes, rows: usize, columns: usize) -> String {
    let (down, across) = (m.div_ceil(rows), n.div_ceil(columns));
    let tiles = down * across;
    format!(
        "{GROUP}let l = local_index;\nlet m = {m};\nlet n = {n};\nlet depth = {k};\nlet tiles_down = {down};\n\
         let tiles_across = {across};\nif group < {} {{\nlet batch = group / {tiles};\nlet tile = group % {tiles};\n\
         let a_start = batch * {};\nlet b_start = batch * {};\nlet out_start = batch * {};\n",
        batches * tiles,
        m * k,
        n * k,
        m * n
    )
}
