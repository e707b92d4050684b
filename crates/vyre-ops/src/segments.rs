//! Reductions of segments of any lengths, and sums that are scattered in a fixed order.
//!
//! **Order.** Element `i` of a segment belongs to column `i mod c`. Each column is put together from its first element to its last, and columns
//! by halves. There are 256 columns where segments have 512 elements or more on the average, else 32 where they have 8 or more, else one; where
//! elements are rows themselves, one.

use std::fmt::Write;

use vyre::expression::{Fused, Term};
use vyre::ir::BinaryOp;
use vyre::{Buffer, DataType, Error, Shape};

use crate::fold::{Fold, Kind};
use crate::launch::{GROUP, MOST, Traits, as_a_whole, count, engine, extents, grid, magnitude, misfit, mistyped, room};
use crate::layout::gather;
use crate::output::Output;
use crate::search::bounds;
use crate::sort;

/// Puts elements along the first axis together: segment `j` goes from `offsets[j]` to `offsets[j + 1]`.
pub(crate) fn reduce_segments(term: &Term, offsets: &Term, kind: Kind) -> Result<Output, Error> {
    let op = || format!("segments {kind:?} 2^{}", magnitude(count(&[offsets])));
    as_a_whole(op, &[term, offsets], count(&[term]) / 4, || reduce_segments_here(term, offsets, kind))
}

fn reduce_segments_here(term: &Term, offsets: &Term, kind: Kind) -> Result<Output, Error> {
    if *offsets.data_type() != DataType::U32 {
        return Err(mistyped(format!("offsets are u32, not {}", offsets.data_type())));
    }
    let own = extents(term)?;
    let [bounds] = extents(offsets)?[..] else { return Err(misfit("offsets have one axis")) };
    let Some((&length, row)) = own.split_first() else { return Err(misfit("a number has no segments")) };
    let segments = bounds.saturating_sub(1);
    let inner: usize = row.iter().product();
    let mut shape = vec![segments];
    shape.extend(row);
    let ty = term.data_type().clone();
    if ty == DataType::F16 {
        return Err(mistyped("segments of f16 are not put together; cast them first"));
    }
    let engine = engine(term)?;
    let mut out = room(&engine, &ty, segments * inner);
    if (length * inner).max(segments * inner) > MOST {
        return Err(misfit(format!("{} elements are more than are taken at once, which is {MOST}", length * inner)));
    }
    if segments * inner > 0 {
        let fold = Fold { kind, ty: ty.clone() };
        let columns = match length / segments {
            _ if inner > 1 => 1,
            0..8 => 1,
            8..512 => 32,
            _ => 256,
        };
        // Nothing is loaded where there is nothing.
        let zero = Term::scalar(vyre::ir::Literal::zero(&ty).unwrap_or(vyre::ir::Literal::U32(0)));
        let empty = zero.broadcast(&engine, Shape::from([1usize]));
        let fused = Fused::new(&[if length == 0 { &empty } else { term }])?;
        let offsets = offsets.evaluate()?;
        let subgroups = Traits::of(&engine).subgroups_on_gpu();
        let (lines, values) = fused.lines("i", "");
        let declarations = fused.declarations(0, None);
        let key = format!(
            "segments {kind:?} {columns} {subgroups}\n{declarations}{}{lines}{values:?}",
            fused.uniform_lines()
        );
        let kernel = engine.kernel_from(&key, || crate::launch::parsed(&source(&fused, &fold, columns, subgroups)))?;
        let groups = if columns == 1 { (segments * inner).div_ceil(64) } else { segments };
        let sizes = [length, segments, inner].map(|size| size as u32);
        let call = fused.bind(kernel.call(), 0..fused.elements()).bind("offsets", &offsets).value("sizes", &sizes);
        call.bind("out", &mut out).grid(grid(groups)).overwrites().launch()?;
    }
    Ok(Output { buffer: out, ty, shape })
}

fn source(fused: &Fused, fold: &Fold, columns: usize, subgroups: bool) -> String {
    let Fold { ty, .. } = fold;
    let at = fused.bindings();
    let lanes = if columns == 1 { 64 } else { columns };
    let mut text = fused.declarations(0, None);
    let _ = writeln!(text, "read offsets: u32 @{at};\nread sizes: u32 @{};\noutput out: {ty} @{};", at + 1, at + 2);
    if columns > 1 {
        let _ = writeln!(text, "workgroup tile: {ty}[{columns}] @0;");
    }
    // The neutral element of float sums is -0; the sum of nothing is 0.
    let finish = match (fold.kind, ty) {
        (Kind::Sum, DataType::F64) => " + 0.0f64",
        (Kind::Sum, DataType::F32) => " + 0.0",
        _ => "",
    };
    let _ = write!(
        text,
        "workgroup_size [{lanes}, 1, 1];\nentry reduce_segments {{\n{GROUP}let l = local_index;\n{}",
        fused.uniform_lines()
    );
    let (lines, values) = fused.lines("place", "");
    let combined = fold.combined("sum", &values[0]);
    let neutral = fold.neutral();
    // An offset behind the end must not wrap around to the front.
    let bounds = "let first = min(offsets[segment], sizes[0]);\nlet end = min(offsets[segment + 1], sizes[0]);\n";
    let _ = match columns {
        1 => write!(
            text,
            "let own = group * {lanes} + l;\nif own < sizes[1] * sizes[2] {{\nlet segment = own / sizes[2];\n{bounds}var sum: {ty} = {neutral};\n\
             for i in first..end {{\nlet place = i * sizes[2] + own % sizes[2];\n{lines}sum = {combined};\n}}\nout[own] = sum{finish};\n}}\n}}\n"
        ),
        _ => {
            let mut halves = String::new();
            let result = fold.halves(&mut halves, "tile", columns, subgroups);
            write!(
                text,
                "if group < sizes[1] {{\nlet segment = group;\n{bounds}var sum: {ty} = {neutral};\nfor place in first + l..end step {columns} {{\n\
                 {lines}sum = {combined};\n}}\ntile[l] = sum;\nbarrier;\n{halves}if l == 0 {{\nout[segment] = {result}{finish};\n}}\n}}\n}}\n"
            )
        }
    };
    text
}

/// `base` with the sums of all values that go to each of its rows, in the order of the values.
pub(crate) fn scatter_sums(base: &Term, positions: &Term, values: &Term) -> Result<Output, Error> {
    let shape = extents(base)?;
    let count: usize = extents(positions)?.iter().product();
    let engine = engine(base)?;
    let flat = Term::array(positions.evaluate()?, DataType::U32, count.into());
    let (sorted, order) = sort::sort(&flat, Some(&Term::positions(&engine, count.into())), false)?;
    let order = order.ok_or_else(|| misfit("values were given"))?;
    let sorted = Term::array(sorted, DataType::U32, count.into());
    let rows = shape.first().copied().unwrap_or(0);
    let offsets = bounds(&sorted, &Term::positions(&engine, Shape::from(rows + 1)), false)?;
    let mut row = vec![count];
    row.extend(&shape[1..]);
    let values = Term::array(values.evaluate()?, values.data_type().clone(), (&row[..]).into());
    let moved = gather(&values, &Term::array(order, DataType::U32, count.into()))?;
    let sums = reduce_segments(&moved.term(), &offsets.term(), Kind::Sum)?;
    let buffer = base.binary(BinaryOp::Add, &sums.term()).evaluate()?;
    Ok(Output { buffer, ty: base.data_type().clone(), shape })
}

/// Sums up to each element, with it, that begin anew with each segment along the first axis. What is in no segment is zero.
///
/// Segments of 8 elements or more on the average are taken by a workgroup each, 32 or 256 elements at a time: these by doubling distances, and to
/// all of them what was before.
pub(crate) fn scan_segments(term: &Term, offsets: &Term) -> Result<Output, Error> {
    if *offsets.data_type() != DataType::U32 {
        return Err(mistyped(format!("offsets are u32, not {}", offsets.data_type())));
    }
    let shape = extents(term)?;
    let [bounds] = extents(offsets)?[..] else { return Err(misfit("offsets have one axis")) };
    let Some((&length, row)) = shape.split_first() else { return Err(misfit("a number has no segments")) };
    let (segments, inner) = (bounds.saturating_sub(1), row.iter().product::<usize>());
    let ty = term.data_type().clone();
    if ty == DataType::F16 {
        return Err(mistyped("segments of f16 are not put together; cast them first"));
    }
    if (length * inner).max(segments * inner) > MOST {
        return Err(misfit(format!("{} elements are more than are taken at once, which is {MOST}", length * inner)));
    }
    let engine = engine(term)?;
    let mut out = room(&engine, &ty, length * inner);
    if segments * inner * length > 0 {
        let fold = Fold { kind: Kind::Sum, ty: ty.clone() };
        let lanes = match length / segments {
            _ if inner > 1 => 1,
            0..8 => 1,
            8..512 => 32,
            _ => 256,
        };
        let fused = Fused::new(&[term])?;
        let offsets = offsets.evaluate()?;
        let (lines, values) = fused.lines("i", "");
        let key =
            format!("segment scan {lanes}\n{}{}{lines}{values:?}", fused.declarations(0, None), fused.uniform_lines());
        let kernel = engine.kernel_from(&key, || crate::launch::parsed(&scan_source(&fused, &fold, lanes)))?;
        let groups = if lanes == 1 { (segments * inner).div_ceil(64) } else { segments };
        let sizes = [length, segments, inner].map(|size| size as u32);
        let call = fused.bind(kernel.call(), 0..fused.elements()).bind("offsets", &offsets).value("sizes", &sizes);
        call.bind("out", &mut out).grid(grid(groups)).launch()?;
    }
    Ok(Output { buffer: out, ty, shape })
}

/// The elements of each segment in ascending or descending order. What is in no segment is zero.
///
/// All elements are sorted with the numbers of their segments, and then, which keeps the order of equal ones, by these numbers.
pub(crate) fn sort_segments(term: &Term, offsets: &Term, descending: bool) -> Result<Output, Error> {
    let op = || format!("segment sort 2^{}", magnitude(count(&[offsets])));
    as_a_whole(op, &[term, offsets], 2 * count(&[term]), || sort_segments_here(term, offsets, descending))
}

fn sort_segments_here(term: &Term, offsets: &Term, descending: bool) -> Result<Output, Error> {
    if *offsets.data_type() != DataType::U32 {
        return Err(mistyped(format!("offsets are u32, not {}", offsets.data_type())));
    }
    let [length] = extents(term)?[..] else { return Err(misfit("what is sorted in segments has one axis")) };
    let [ends] = extents(offsets)?[..] else { return Err(misfit("offsets have one axis")) };
    let (ty, engine) = (term.data_type().clone(), engine(term)?);
    // How many offsets are not behind an element: none where it is before all segments, all where it is behind them.
    let segments = bounds(offsets, &Term::positions(&engine, Shape::from(length)), true)?;
    let paired = |(sorted, moved): (Buffer, Option<Buffer>), types: [&DataType; 2]| -> Result<[Term; 2], Error> {
        let moved = moved.ok_or_else(|| misfit("values were given"))?;
        let [a, b] = [(sorted, types[0]), (moved, types[1])];
        Ok([a, b].map(|(buffer, ty)| Term::array(buffer, ty.clone(), Shape::from(length))))
    };
    let [keys, own] = paired(sort::sort(term, Some(&segments.term()), descending)?, [&ty, &DataType::U32])?;
    let [own, keys] = paired(sort::sort(&own, Some(&keys), false)?, [&DataType::U32, &ty])?;
    let number = |value: usize| Term::scalar(vyre::ir::Literal::U32(value as u32));
    // Number 0 becomes the largest.
    let inside = own.binary(BinaryOp::Sub, &number(1)).binary(BinaryOp::Lt, &number(ends.saturating_sub(1)));
    let zero = vyre::ir::Literal::zero(&ty).ok_or_else(|| mistyped(format!("{ty} has no zero")))?;
    let buffer = inside.select(&keys, &Term::scalar(zero)).evaluate()?;
    Ok(Output { buffer, ty, shape: vec![length] })
}

fn scan_source(fused: &Fused, fold: &Fold, lanes: usize) -> String {
    let Fold { ty, .. } = fold;
    let at = fused.bindings();
    let size = if lanes == 1 { 64 } else { lanes };
    let mut text = fused.declarations(0, None);
    let _ = writeln!(text, "read offsets: u32 @{at};\nread sizes: u32 @{};\noutput out: {ty} @{};", at + 1, at + 2);
    if lanes > 1 {
        let _ = writeln!(text, "workgroup runs: {ty}[{}] @0;", 2 * lanes);
    }
    let (lines, values) = fused.lines("place", "");
    let (neutral, zero) = (fold.neutral(), crate::launch::is_float(ty));
    let finish = match ty {
        DataType::F64 => " + 0.0f64",
        _ if zero => " + 0.0",
        _ => "",
    };
    let bounds = "let first = offsets[segment];\nlet end = min(offsets[segment + 1], sizes[0]);\n";
    let _ = write!(
        text,
        "workgroup_size [{size}, 1, 1];\nentry scan_segments {{\n{GROUP}let l = local_index;\n{}",
        fused.uniform_lines()
    );
    if lanes == 1 {
        let _ = write!(
            text,
            "let own = group * {size} + l;\nif own < sizes[1] * sizes[2] {{\nlet segment = own / sizes[2];\n{bounds}var sum: {ty} = {neutral};\n\
             for i in first..end {{\nlet place = i * sizes[2] + own % sizes[2];\n{lines}sum = sum + {};\nout[place] = sum{finish};\n}}\n}}\n}}\n",
            values[0]
        );
        return text;
    }
    let _ = write!(
        text,
        "if group < sizes[1] {{\nlet segment = group;\n{bounds}var carry: {ty} = {neutral};\nfor start in first..end step {lanes} {{\n\
         let place = start + l;\n{lines}runs[l] = select(place < end, {}, {neutral});\nbarrier;\n",
        values[0]
    );
    let from = fold.doubled(&mut text, "l", lanes, lanes);
    let _ = write!(
        text,
        "if place < end {{\nout[place] = carry + runs[l + {from}]{finish};\n}}\ncarry = carry + runs[{}];\nbarrier;\n}}\n}}\n}}\n",
        from + lanes - 1
    );
    text
}
