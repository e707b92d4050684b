//! Products of matrices, batched, with transposes.
//!
//! **Order.** Each element is a chain of `fma(a, b, sum)` from 0 over ascending `k`, whatever the kernel's form, so it is the same everywhere.

use std::fmt::Write;

use vyre::expression::Term;
use vyre::{DataType, Engine, Error};

use crate::launch::{GROUP, MOST, engine, extents, grid, is_gpu, misfit, mistyped, room};
use crate::output::Output;

/// Which factors are given transposed: `[.., k, m]` instead of `[.., m, k]`, and `[.., n, k]` instead of `[.., k, n]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transposed {
    /// The left factor.
    pub a: bool,
    /// The right factor.
    pub b: bool,
}

/// Rows, columns and depth of a workgroup's tile on devices with many invocations, and what each invocation makes of it.
const TILE: usize = 128;
const DEPTH: usize = 8;
const PART: usize = 8;
/// Columns side by side in vectors and rows in registers, on processors.
const LANES: usize = 32;
const ROWS: usize = 10;

pub(crate) fn matmul(a: &Term, b: &Term, transposed: Transposed) -> Result<Output, Error> {
    let ty = a.data_type().clone();
    if ty != *b.data_type() || !matches!(ty, DataType::F32 | DataType::F64) {
        return Err(mistyped(format!("products of matrices are of f32 or f64, not of {ty} and {}", b.data_type())));
    }
    let (left, right) = (extents(a)?, extents(b)?);
    let ([batch_a @ .., a0, a1], [batch_b @ .., b0, b1]) = (&left[..], &right[..]) else {
        return Err(misfit("matrices have two axes at least"));
    };
    let (m, k) = if transposed.a { (*a1, *a0) } else { (*a0, *a1) };
    let (depth, n) = if transposed.b { (*b1, *b0) } else { (*b0, *b1) };
    let batches: usize = batch_a.iter().product();
    if k != depth || batch_a != batch_b {
        let message = format!("a product of {left:?} and {right:?} does not fit");
        return Err(misfit(message));
    }
    let mut shape = batch_a.to_vec();
    shape.extend([m, n]);
    let engine = engine(a)?;
    let most = [batches * m * k, batches * k * n, batches * m * n].into_iter().max().unwrap_or(0);
    if most > MOST {
        return Err(misfit(format!("a matrix of {most} elements is more than are taken at once, which is {MOST}")));
    }
    let mut out = room(&engine, &ty, batches * m * n);
    if batches * m * n == 0 || k == 0 {
        return Ok(Output { buffer: out, ty, shape });
    }
    let (a, b) = (a.evaluate()?, b.evaluate()?);
    let wide = is_gpu(&engine);
    let (kernel, groups) = if wide {
        let kernel = tiles(&engine, &ty, transposed)?;
        (kernel, batches * m.div_ceil(TILE) * n.div_ceil(TILE))
    } else {
        let kernel = lanes(&engine, &ty, transposed)?;
        (kernel, batches * m.div_ceil(ROWS) * n.div_ceil(LANES))
    };
    let sizes = [m, n, k, groups].map(|size| size as u32);
    let call = kernel.bind("a", &a).bind("b", &b).value("sizes", &sizes).bind("out", &mut out);
    call.grid(grid(groups)).launch()?;
    Ok(Output { buffer: out, ty, shape })
}

fn head(ty: &DataType) -> String {
    format!("read a: {ty} @0;\nread b: {ty} @1;\nread sizes: u32 @2;\noutput out: {ty} @3;\n")
}

/// Where an element of a factor is, from the start of its matrix.
fn place_a(transposed: Transposed, row: &str, k: &str) -> String {
    if transposed.a { format!("a_start + ({k}) * m + {row}") } else { format!("a_start + ({row}) * depth + {k}") }
}

fn place_b(transposed: Transposed, k: &str, column: &str) -> String {
    if transposed.b { format!("b_start + ({column}) * depth + {k}") } else { format!("b_start + ({k}) * n + {column}") }
}

fn begin(rows: usize, columns: usize) -> String {
    format!(
        "{GROUP}let l = local_index;\nlet m = sizes[0];\nlet n = sizes[1];\nlet depth = sizes[2];\nif group < sizes[3] {{\n\
         let tiles_down = (m + {}) / {rows};\nlet tiles_across = (n + {}) / {columns};\nlet batch = group / (tiles_down * tiles_across);\n\
         let tile = group % (tiles_down * tiles_across);\nlet a_start = batch * m * depth;\nlet b_start = batch * depth * n;\n\
         let out_start = batch * m * n;\n",
        rows - 1,
        columns - 1
    )
}

/// Columns in vectors: each invocation makes some rows of one column.
fn lanes(engine: &Engine, ty: &DataType, transposed: Transposed) -> Result<vyre::Kernel, Error> {
    engine.kernel_from(&format!("matmul lanes {ty} {transposed:?}"), || {
        let mut text = head(ty);
        // Tiles go down a column first, so that the part of `b` that they share stays in the cache.
        let _ = write!(
            text,
            "workgroup_size [{LANES}, 1, 1];\nentry matmul {{\n{}let row = tile % tiles_down * {ROWS};\n\
             let column = tile / tiles_down * {LANES} + l;\n",
            begin(ROWS, LANES)
        );
        for r in 0..ROWS {
            let _ = writeln!(text, "var sum{r}: {ty};\nlet row{r} = min(row + {r}, m - 1);");
        }
        let _ = writeln!(
            text,
            "if column < n {{\nfor k in 0..depth {{\nlet right = b[{}];",
            place_b(transposed, "k", "column")
        );
        for r in 0..ROWS {
            let _ = writeln!(text, "sum{r} = fma(a[{}], right, sum{r});", place_a(transposed, &format!("row{r}"), "k"));
        }
        text.push_str("}\n");
        for r in 0..ROWS {
            let _ = writeln!(text, "if row + {r} < m {{\nout[out_start + (row + {r}) * n + column] = sum{r};\n}}");
        }
        text.push_str("}\n}\n}\n");
        Ok(vyre::text::parse(&text)?)
    })
}

/// Tiles in workgroup memory: each invocation makes 8 x 8 elements in registers.
fn tiles(engine: &Engine, ty: &DataType, transposed: Transposed) -> Result<vyre::Kernel, Error> {
    engine.kernel_from(&format!("matmul tiles {ty} {transposed:?}"), || {
        const INVOCATIONS: usize = TILE / PART * (TILE / PART);
        const FETCHED: usize = TILE * DEPTH / INVOCATIONS;
        let mut text = head(ty);
        let _ = write!(
            text,
            "workgroup left: {ty}[{t}] @0;\nworkgroup right: {ty}[{t}] @0;\nworkgroup_size [{INVOCATIONS}, 1, 1];\nentry matmul {{\n{}\
             let row = tile / tiles_across * {TILE};\nlet column = tile % tiles_across * {TILE};\nlet down = l / {s};\nlet across = l % {s};\n",
            begin(TILE, TILE),
            t = TILE * DEPTH,
            s = TILE / PART
        );
        for i in 0..PART {
            for j in 0..PART {
                let _ = writeln!(text, "var sum{i}_{j}: {ty};");
            }
        }
        let _ = writeln!(text, "for k in 0..depth step {DEPTH} {{");
        for f in 0..FETCHED {
            // Neighbours in the workgroup fetch neighbours in memory, whichever way the matrix lies.
            let (row, k_a) = match transposed.a {
                true => (format!("(l + {}) % {TILE}", f * INVOCATIONS), format!("(l + {}) / {TILE}", f * INVOCATIONS)),
                false => (format!("(l + {}) / {DEPTH}", f * INVOCATIONS), format!("(l + {}) % {DEPTH}", f * INVOCATIONS)),
            };
            let (column, k_b) = match transposed.b {
                false => (format!("(l + {}) % {TILE}", f * INVOCATIONS), format!("(l + {}) / {TILE}", f * INVOCATIONS)),
                true => (format!("(l + {}) / {DEPTH}", f * INVOCATIONS), format!("(l + {}) % {DEPTH}", f * INVOCATIONS)),
            };
            let zero = if *ty == DataType::F64 { "0.0f64" } else { "0.0" };
            let _ = writeln!(
                text,
                "let ra{f} = {row};\nlet ka{f} = {k_a};\nlet cb{f} = {column};\nlet kb{f} = {k_b};\n\
                 left[ka{f} * {TILE} + ra{f}] = select((row + ra{f} < m) & (k + ka{f} < depth), a[{}], {zero});\n\
                 right[kb{f} * {TILE} + cb{f}] = select((column + cb{f} < n) & (k + kb{f} < depth), b[{}], {zero});",
                place_a(transposed, &format!("(row + ra{f})"), &format!("(k + ka{f})")),
                place_b(transposed, &format!("(k + kb{f})"), &format!("(column + cb{f})"))
            );
        }
        let _ = writeln!(text, "barrier;\nfor d in 0..{DEPTH} {{");
        for i in 0..PART {
            // Sixteen apart, so that lanes read from different banks and write side by side.
            let s = TILE / PART;
            let _ = writeln!(text, "let a{i} = left[d * {TILE} + down + {}];\nlet b{i} = right[d * {TILE} + across + {}];", i * s, i * s);
        }
        for i in 0..PART {
            for j in 0..PART {
                let _ = writeln!(text, "sum{i}_{j} = fma(a{i}, b{j}, sum{i}_{j});");
            }
        }
        text.push_str("}\nbarrier;\n}\n");
        for i in 0..PART {
            let s = TILE / PART;
            let _ = writeln!(text, "let row{i} = row + down + {};\nlet column{i} = column + across + {};", i * s, i * s);
        }
        for i in 0..PART {
            for j in 0..PART {
                let _ = writeln!(
                    text,
                    "if (row{i} < m) & (column{j} < n) {{\nout[out_start + row{i} * n + column{j}] = sum{i}_{j};\n}}"
                );
            }
        }
        text.push_str("}\n}\n");
        Ok(vyre::text::parse(&text)?)
    })
}
