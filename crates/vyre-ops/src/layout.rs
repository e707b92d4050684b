//! Ops that move elements: transpose and permute, gather and scatter.

use std::fmt::Write;

use vyre::expression::{Fused, Term};
use vyre::{Buffer, DataType, Error};

use crate::launch::{
    GROUP, MOST, Traits, as_a_whole, count, engine, extents, grid, kernel_of_forms, misfit, misfit_with, mistyped,
    room, size_of,
};
use crate::output::Output;
use crate::tuning::Axis;

/// Invocations that turn a tile in workgroup memory, the default of GPUs first and that of processors last.
const LANES: [usize; 4] = [256, 128, 64, 32];

/// What may be tuned about a transpose.
pub(crate) const SPACE: &[Axis] = &[
    Axis { name: "invocations of a tile", on: "GPUs", values: &["256", "128", "64", "32"] },
    Axis { name: "invocations of a tile", on: "processors", values: &["32", "64", "128", "256"] },
];

/// Rows and columns of a tile: on GPUs, where they have the memory, each invocation has many elements under way.
fn tile_side(engine: &vyre::Engine, ty: &DataType) -> usize {
    let traits = Traits::of(engine);
    match traits.is_gpu && traits.memory >= 64 * 65 * size_of(ty) {
        true => 64,
        false => 32,
    }
}

/// Swaps the last two axes.
pub(crate) fn transpose(term: &Term) -> Result<Output, Error> {
    let axes = extents(term)?.len();
    if axes < 2 {
        return Err(misfit_with(
            format!("what is transposed has two axes at least, not {axes}"),
            "Give it a shape of rows and columns first.",
        ));
    }
    let mut order: Vec<usize> = (0..axes).collect();
    order.swap(axes - 1, axes - 2);
    permute(term, &order)
}

/// Axis `i` of the result is axis `order[i]` of the term.
pub(crate) fn permute(term: &Term, order: &[usize]) -> Result<Output, Error> {
    as_a_whole(|| format!("permute {order:?}"), &[term], count(&[term]) / 4, || permute_here(term, order))
}

fn permute_here(term: &Term, order: &[usize]) -> Result<Output, Error> {
    let own = extents(term)?;
    let mut seen = order.to_vec();
    seen.sort_unstable();
    if seen != (0..own.len()).collect::<Vec<_>>() {
        return Err(misfit(format!("{order:?} is no order of {} axes", own.len())));
    }
    let shape: Vec<usize> = order.iter().map(|&axis| own[axis]).collect();
    let fused = Fused::new(&[term])?;
    let engine = fused.engine().clone();
    let ty = stored(term);
    let elements = fused.elements();
    let mut out = room(&engine, &ty, elements);
    if elements > MOST {
        return Err(misfit(format!("{elements} elements are more than are moved at once, which is {MOST}")));
    }
    if elements > 0 {
        let (lines, values) = fused.lines("i", "");
        let told = format!("{ty}\n{}{}{lines}{values:?}", fused.declarations(0, None), fused.uniform_lines());
        let axes = order.len();
        let turns = axes >= 2 && order[..axes - 2].iter().copied().eq(0..axes - 2) && order[axes - 1] == axes - 2;
        if turns {
            let (rows, columns) = (own[axes - 2], own[axes - 1]);
            let side = tile_side(&engine, &ty);
            let kernel = kernel_of_forms(&engine, &format!("transpose {side} {told}"), || {
                let form = |lanes: &usize| (lanes.to_string(), turned(&fused, &ty, side, *lanes));
                let mut forms: Vec<_> = LANES.iter().filter(|lanes| **lanes >= side).map(form).collect();
                if !Traits::of(&engine).is_gpu {
                    forms.reverse();
                }
                forms
            })?;
            let tiles = [rows.div_ceil(side), columns.div_ceil(side)];
            let groups = elements / (rows * columns) * tiles[0] * tiles[1];
            let sizes = [rows, columns, tiles[0], tiles[1], groups].map(|size| size as u32);
            let call = fused.bind(kernel.call(), 0..elements).value("sizes", &sizes).bind("out", &mut out);
            call.grid(grid(groups)).overwrites().launch()?;
        } else {
            let place = placed(&own, order, &shape);
            let kernel = engine.kernel_from(&format!("permute {place} {told}"), || {
                let (lines, values) = fused.lines("from", "");
                let mut text = fused.declarations(0, None);
                let _ = write!(
                    text,
                    "output out: {ty} @{};\nworkgroup_size [64, 1, 1];\nentry permute {{\nlet i = global_id.x;\nif i < len(out) {{\n{}\
                     let from = {place};\n{lines}out[i] = {};\n}}\n}}\n",
                    fused.bindings(),
                    fused.uniform_lines(),
                    values[0]
                );
                crate::launch::parsed(&text)
            })?;
            fused.bind(kernel.call(), 0..elements).bind("out", &mut out).overwrites().launch()?;
        }
    }
    Ok(Output { buffer: out, ty, shape })
}

fn stored(term: &Term) -> DataType {
    match term.data_type() {
        DataType::Bool => DataType::U32,
        other => other.clone(),
    }
}

/// Where the element of position `i` of the result comes from.
fn placed(own: &[usize], order: &[usize], shape: &[usize]) -> String {
    let mut terms = Vec::new();
    let mut over = 1usize;
    for (at, &axis) in order.iter().enumerate().rev() {
        let stride: usize = own[axis + 1..].iter().product();
        if shape[at] > 1 {
            terms.push(format!("i / {over} % {} * {stride}", shape[at]));
        }
        over *= shape[at];
    }
    if terms.is_empty() { "i".to_owned() } else { terms.join(" + ") }
}

fn turned(fused: &Fused, ty: &DataType, side: usize, lanes: usize) -> String {
    let at = fused.bindings();
    let mut text = fused.declarations(0, None);
    // A column more than there is keeps the lanes on different banks when they go down.
    let _ = write!(
        text,
        "read sizes: u32 @{at};\noutput out: {ty} @{};\nworkgroup tile: {ty}[{}] @0;\nworkgroup_size [{lanes}, 1, 1];\nentry transpose {{\n{GROUP}\
         let rows = sizes[0];\nlet columns = sizes[1];\n{}if group < sizes[4] {{\nlet l = local_index;\nlet x = l % {side};\nlet y = l / {side};\n\
         let per_matrix = sizes[2] * sizes[3];\nlet start = group / per_matrix * rows * columns;\nlet down = group % per_matrix / sizes[3] * {side};\n\
         let across = group % sizes[3] * {side};\n",
        at + 1,
        side * (side + 1),
        fused.uniform_lines()
    );
    // So many rows are moved at once. All are on their way before the first is needed; what is outside is not stored later.
    let step = lanes / side;
    let mut stores = String::new();
    for k in 0..side / step {
        let r = k * step;
        let (lines, values) = fused.lines(&format!("from{k}"), &format!("_{k}"));
        let _ = writeln!(text, "let from{k} = start + (down + y + {r}) * columns + across + x;\n{lines}");
        let _ = writeln!(stores, "tile[(y + {r}) * {} + x] = {};", side + 1, values[0]);
    }
    text.push_str(&stores);
    text.push_str("barrier;\n");
    for k in 0..side / step {
        let r = k * step;
        let _ = writeln!(
            text,
            "if (across + y + {r} < columns) & (down + x < rows) {{\nout[start + (across + y + {r}) * rows + down + x] = tile[x * {} + y + {r}];\n}}",
            side + 1
        );
    }
    text.push_str("}\n}\n");
    text
}

/// Checks positions and gives the elements of a row along the first axis of what they point into.
fn row_of(source: &Term, positions: &Term) -> Result<(Vec<usize>, usize), Error> {
    if *positions.data_type() != DataType::U32 {
        return Err(mistyped(format!("positions are u32, not {}", positions.data_type())));
    }
    let own = extents(source)?;
    match own.split_first() {
        Some((_, row)) => Ok((row.to_vec(), row.iter().product())),
        None => Err(misfit("a number has no positions")),
    }
}

/// The rows of `source` along its first axis that `positions` name; zeros where there is none.
pub(crate) fn gather(source: &Term, positions: &Term) -> Result<Output, Error> {
    let (row_shape, row) = row_of(source, positions)?;
    let mut shape = extents(positions)?;
    shape.extend(row_shape);
    let elements: usize = shape.iter().product();
    let engine = engine(source)?;
    let ty = stored(source);
    let mut out = room(&engine, &ty, elements);
    if elements > MOST {
        return Err(misfit(format!("{elements} elements are more than are moved at once, which is {MOST}")));
    }
    if elements > 0 {
        let fused = Fused::new(&[positions])?;
        let buffer = source.evaluate()?;
        let (lines, values) = fused.lines("p", "");
        let key =
            format!("gather {ty} {row}\n{}{}{lines}{values:?}", fused.declarations(0, None), fused.uniform_lines());
        let kernel = engine.kernel_from(&key, || {
            let at = fused.bindings();
            let mut text = fused.declarations(0, None);
            // A position behind the last row must not wrap around to the first.
            let place = match row {
                1 => values[0].clone(),
                _ => format!("select({v} < len(source) / {row}, {v} * {row} + i % {row}, {})", u32::MAX, v = values[0]),
            };
            let _ = write!(
                text,
                "read source: {ty} @{at};\noutput out: {ty} @{};\nworkgroup_size [64, 1, 1];\ndomain [len(out), 1, 1];\nentry gather {{\nlet i = global_id.x;\n\
                 if i < len(out) {{\n{}let p = i / {row};\n{lines}out[i] = source[{place}];\n}}\n}}\n",
                at + 1,
                fused.uniform_lines()
            );
            crate::launch::parsed(&text)
        })?;
        let call = fused.bind(kernel.call(), 0..fused.elements()).bind("source", &buffer).bind("out", &mut out);
        call.overwrites().launch()?;
    }
    Ok(Output { buffer: out, ty, shape })
}

/// `base` with `values` written to, or added to, the rows that `positions` name.
pub(crate) fn scatter(base: &Term, positions: &Term, values: &Term, add: bool) -> Result<Output, Error> {
    let (row_shape, row) = row_of(base, positions)?;
    let ty = stored(base);
    let mut expected = extents(positions)?;
    expected.extend(row_shape);
    if extents(values)? != expected || stored(values) != ty {
        return Err(misfit(format!("values of {:?} were given for {expected:?}", extents(values)?)));
    }
    let engine = engine(base)?;
    let elements: usize = expected.iter().product();
    let shape = extents(base)?;
    if elements.max(shape.iter().product()) > MOST {
        return Err(misfit(format!("{elements} elements are more than are moved at once, which is {MOST}")));
    }
    // Only sums that have no order can be added as they come.
    if add && !matches!(ty, DataType::U32 | DataType::I32) {
        return crate::segments::scatter_sums(base, positions, values);
    }
    // Written while others hold the same elements, it becomes a value of its own.
    let mut out = base.evaluate()?;
    if elements > 0 {
        let (values, positions) = (values.evaluate()?, positions.evaluate()?);
        let (read, store) = match add {
            true => ("", "atomic.add(out[at], values[i]);"),
            false => ("read last: u32 @3;\n", "if last[p] == i / ROW + 1 {\nout[at] = values[i];\n}"),
        };
        let source = format!(
            "read values: {ty} @0;\nread positions: u32 @1;\nread_write out: {ty} @2;\n{read}workgroup_size [64, 1, 1];\n\
             domain [len(values), 1, 1];\nentry scatter {{\nlet i = global_id.x;\nif i < len(values) {{\nlet p = positions[i / {row}];\n\
             if p < len(out) / {row} {{\nlet at = p * {row} + i % {row};\n{}\n}}\n}}\n}}\n",
            store.replace("ROW", &row.to_string())
        );
        let kernel = engine.kernel_of_text(&source)?;
        let last = if add { None } else { Some(last_of_each(&engine, &positions, shape[0])?) };
        let mut call = kernel.bind("values", &values).bind("positions", &positions).bind("out", &mut out);
        if let Some(last) = &last {
            call = call.bind("last", last);
        }
        call.launch()?;
    }
    Ok(Output { buffer: out, ty, shape })
}

/// For each row which of the positions names it last, counted from 1, so that what is written twice does not depend on who is first.
fn last_of_each(engine: &vyre::Engine, positions: &Buffer, rows: usize) -> Result<Buffer, Error> {
    let mut last = room(engine, &DataType::U32, rows);
    let source = "read positions: u32 @0;\nread_write last: u32 @1;\nworkgroup_size [64, 1, 1];\ndomain [len(positions), 1, 1];\n\
                  entry last_of_each {\nlet i = global_id.x;\nif i < len(positions) {\nlet p = positions[i];\nif p < len(last) {\n\
                  atomic.max(last[p], i + 1);\n}\n}\n}\n";
    engine.kernel_of_text(source)?.bind("positions", positions).bind("last", &mut last).launch()?;
    Ok(last)
}
