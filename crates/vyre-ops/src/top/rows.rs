//! The largest elements of each row, in one launch: a workgroup finds the last one that is wanted, digit by digit, first of its key and then of its
//! position, takes everything before it, and sorts that.

use std::fmt::Write;

use vyre::expression::{Fused, Term};
use vyre::ir::{BinaryOp, Literal};
use vyre::variant::{HostSlice, Workers};
use vyre::{DataType, Engine, Error};

use super::{DIGITS, LANES, element, find_bin, sort_by_key};
use crate::host::{in_chunks, variant, words};
use crate::launch::{
    GROUP, MOST, as_a_whole, engine, extents, grid, is_plain, magnitude, misfit, misfit_with, parsed, room, split,
    with_function,
};
use crate::layout::{gather, permute};
use crate::output::Output;
use crate::sort;

/// Up to so many are taken of each row, and rows have fewer elements than this: what a workgroup has memory and digits for.
const FEW: usize = 512;
const LONGEST: usize = 1 << 22;
/// Bits of a position's digit.
const BITS: u32 = 11;

/// The largest elements along an axis, the largest first, and their positions along it; of equal ones the first.
pub(crate) fn top_k_axis(term: &Term, count: usize, axis: usize) -> Result<[Output; 2], Error> {
    let own = extents(term)?;
    let [_, along, inner] = split(&own, axis)?;
    if along < count {
        let fix = format!("Ask for {along} at most.");
        return Err(misfit_with(format!("{count} elements were asked of rows of {along}"), fix));
    }
    if inner != 1 {
        // Elements along the axis are brought side by side, and back.
        let mut order: Vec<usize> = (0..own.len()).filter(|&other| other != axis).collect();
        order.push(axis);
        let moved = permute(term, &order)?;
        let back: Vec<usize> = (0..own.len()).map(|at| order.iter().position(|&own| own == at).unwrap_or(at)).collect();
        let [values, positions] = top_k_axis(&moved.term(), count, own.len() - 1)?;
        return Ok([permute(&values.term(), &back)?, permute(&positions.term(), &back)?]);
    }
    let ty = term.data_type().clone();
    let mut shape = own.clone();
    shape[axis] = count;
    let engine = engine(term)?;
    let rows = own.iter().product::<usize>() / along.max(1);
    if rows * along > MOST {
        return Err(misfit(format!("{} elements are more than are taken at once, which is {MOST}", rows * along)));
    }
    let results: usize = shape.iter().product();
    if results == 0 {
        let output = |ty: DataType| Output { buffer: room(&engine, &ty, 0), ty, shape: shape.clone() };
        return Ok([output(ty), output(DataType::U32)]);
    }
    let is_word = matches!(ty, DataType::U32 | DataType::I32 | DataType::F32);
    let op = || format!("top 2^{} of 2^{}", magnitude(count), magnitude(along));
    let [values, positions] =
        as_a_whole(op, &[term], rows * along / 4, || match is_word && count <= FEW && along < LONGEST {
            true => selected(&engine, term, [rows, along, count]),
            false => sorted(&engine, term, [rows, along, count]),
        })?;
    let output = |ty: DataType, buffer| Output { buffer, ty, shape: shape.clone() };
    Ok([output(ty, values), output(DataType::U32, positions)])
}

/// One workgroup for each row.
fn selected(engine: &Engine, term: &Term, [rows, along, count]: [usize; 3]) -> Result<[vyre::Buffer; 2], Error> {
    let ty = term.data_type();
    let fused = Fused::new(&[term])?;
    let (lines, values) = fused.lines("i", "");
    let positions = digits_of(along);
    let key = format!(
        "top of rows {ty} {count} {}\n{}{}{lines}{values:?}",
        positions.len(),
        fused.declarations(0, None),
        fused.uniform_lines()
    );
    let kernel = engine.kernel_from_with(&key, || {
        let function = is_plain(term, &fused).then(|| {
            let (ty, name) = (ty.clone(), format!("the largest {count}"));
            variant(&name, 1, move |buffers, workers| select(buffers, workers, &ty))
        });
        Ok((parsed(&source(&fused, ty, count, &positions)?)?, with_function(engine, function)))
    })?;
    let mut out = [room(engine, ty, rows * count), room(engine, &DataType::U32, rows * count)];
    let [largest, places] = &mut out;
    let sizes = [along, rows, count].map(|size| size as u32);
    let call = fused.bind(kernel.call(), 0..fused.elements()).value("sizes", &sizes);
    call.bind("out", largest).bind("out_at", places).grid(grid(rows)).overwrites().launch()?;
    Ok(out)
}

/// Where the digits of positions in rows of so many begin, and how many bits they have.
fn digits_of(along: usize) -> Vec<(u32, u32)> {
    match along <= 1 << BITS {
        true => vec![(0, BITS)],
        false => vec![(BITS, BITS), (0, BITS)],
    }
}

fn source(fused: &Fused, ty: &DataType, count: usize, positions: &[(u32, u32)]) -> Result<String, Error> {
    let (_, encode, _) = sort::turned(ty, true)?;
    let (lines, values) = fused.lines("i", "");
    let (at, size, most) = (fused.bindings(), count.next_power_of_two().max(2), u32::MAX);
    let bits = |value: &str| if *ty == DataType::U32 { value.to_owned() } else { format!("bitcast<u32>({value})") };
    let load = format!(
        "let i = start + j;\n{lines}let bits_of = {};\nlet key = {};\n",
        bits(&values[0]),
        encode.replace("KEY", "bits_of")
    );
    let mut text = fused.declarations(0, None);
    let _ = write!(
        text,
        "read sizes: u32 @{at};\noutput out: {ty} @{};\noutput out_at: u32 @{};\nworkgroup counts: u32[{}] @0;\nworkgroup sums: u32[{}] @0;\n\
         workgroup own: u32[{size}] @0;\nworkgroup place: u32[{size}] @0;\nworkgroup found: u32[3] @0;\nworkgroup taken: u32[1] @0;\n\
         workgroup_size [{LANES}, 1, 1];\nentry top_of_rows {{\n{GROUP}let l = local_index;\nlet along = sizes[0];\n{}if group < sizes[1] {{\n\
         let start = group * along;\nfor k in l..{size} step {LANES} {{\nown[k] = {most};\nplace[k] = {most};\n}}\n\
         var last: u32 = 0;\nvar last_at: u32 = 0;\nvar wanted: u32 = {count};\n",
        at + 1,
        at + 2,
        1 << BITS,
        2 * LANES,
        fused.uniform_lines()
    );
    let passes = DIGITS.iter().map(|digit| (digit, true)).chain(positions.iter().map(|digit| (digit, false)));
    for (pass, (&(shift, width), is_key)) in passes.enumerate() {
        let bins = 1usize << width;
        // Of what shares the digits that were found before, none has any above the first.
        let above =
            |value: &str| if shift + width >= 32 { "0".to_owned() } else { format!("({value} >> {})", shift + width) };
        let (shares, digit) = match is_key {
            true => (format!("{} == last", above("key")), format!("(key >> {shift}) & {}", bins - 1)),
            false => (format!("(key == last) & ({} == last_at)", above("j")), format!("(j >> {shift}) & {}", bins - 1)),
        };
        // Where all that equal the last one are wanted, which is usual, none of them has to be told from another.
        let to = if is_key { "along" } else { "ties" };
        if pass == DIGITS.len() {
            text.push_str("let ties = select(found[2] == wanted, 0, along);\n");
        }
        let _ = write!(
            text,
            "for b in l..{bins} step {LANES} {{\natomic.store(counts[b], 0);\n}}\nbarrier;\nfor j in l..{to} step {LANES} {{\n{load}if {shares} {{\n\
             atomic.add(counts[{digit}], 1);\n}}\n}}\nbarrier;\nlet goal_{pass} = wanted;\n"
        );
        find_bin(
            &mut text,
            bins,
            &format!("_{pass}"),
            &format!("found[0] = bin;\nfound[1] = goal_{pass} - sum;\nfound[2] = count;"),
        );
        let known = if is_key { "last" } else { "last_at" };
        let _ = write!(text, "barrier;\n{known} = {known} * {bins} + found[0];\nwanted = found[1];\nbarrier;\n");
    }
    let _ = write!(
        text,
        "for j in l..along step {LANES} {{\n{load}if (key < last) | (key == last) & ((j <= last_at) | (ties == 0)) {{\nlet slot = atomic.add(taken[0], 1);\n\
         if slot < {size} {{\nown[slot] = key;\nplace[slot] = j;\n}}\n}}\n}}\nbarrier;\n"
    );
    sort_by_key(&mut text, size);
    let value = element(ty, "own[k]")?;
    let _ = write!(
        text,
        "for k in l..{count} step {LANES} {{\nout[group * {count} + k] = {value};\nout_at[group * {count} + k] = place[k];\n}}\n}}\n}}\n"
    );
    Ok(text)
}

/// The same on processors.
fn select(buffers: &mut [HostSlice<'_>], workers: &dyn Workers, ty: &DataType) {
    let [x, sizes, out, out_at] = buffers else {
        panic!("the largest of rows have four buffers, not {}", buffers.len())
    };
    let sizes: Vec<usize> = words(sizes.bytes()).map(|size| size as usize).collect();
    let &[along, rows, count, ..] = &sizes[..] else { panic!("three sizes are told, not {}", sizes.len()) };
    let top = 1u32 << 31;
    // The smallest of these numbers are the largest elements.
    let encoded = |bits: u32| match ty {
        DataType::U32 => !bits,
        DataType::I32 => !(bits ^ top),
        _ => !(bits ^ if bits >= top { u32::MAX } else { top }),
    };
    let x = &x.bytes().as_chunks::<4>().0[..rows * along];
    let results = out.bytes_mut().as_chunks_mut::<4>().0.chunks_mut(count);
    let places = out_at.bytes_mut().as_chunks_mut::<4>().0.chunks_mut(count);
    let mut pairs: Vec<_> = x.chunks(along).zip(results.zip(places)).collect();
    let each = rows.div_ceil(4 * workers.threads()).min((crate::host::PART / (4 * along)).max(1)).max(1);
    in_chunks(&mut pairs, each, workers, |_, part| {
        let mut keys: Vec<u64> = Vec::with_capacity(along);
        for (row, (results, places)) in part {
            keys.clear();
            let key = |(at, bits): (usize, &[u8; 4])| u64::from(encoded(u32::from_le_bytes(*bits))) << 32 | at as u64;
            keys.extend(row.iter().enumerate().map(key));
            if count < along {
                keys.select_nth_unstable(count - 1);
            }
            keys[..count].sort_unstable();
            for ((result, place), key) in results.iter_mut().zip(places.iter_mut()).zip(&keys) {
                let at = *key as u32;
                *result = row[at as usize];
                *place = at.to_le_bytes();
            }
        }
    });
}

/// All rows sorted at once, by key and then, stably, by row; for wide keys, and many of them.
fn sorted(engine: &Engine, term: &Term, [rows, along, count]: [usize; 3]) -> Result<[vyre::Buffer; 2], Error> {
    let word = |value: usize| Term::scalar(Literal::U32(value as u32));
    let flat = Term::array(term.evaluate()?, term.data_type().clone(), (rows * along).into());
    let [_, places] = sort::sorted_positions(&flat, true)?;
    let row = places.term().binary(BinaryOp::Div, &word(along));
    let (_, places) = sort::sort(&row, Some(&places.term()), false)?;
    let places = places.ok_or_else(|| misfit("values were given"))?;
    let at = Term::positions(engine, (rows * count).into());
    let row_start = at.binary(BinaryOp::Div, &word(count)).binary(BinaryOp::Mul, &word(along));
    let at = row_start.binary(BinaryOp::Add, &at.binary(BinaryOp::Rem, &word(count)));
    let taken = gather(&Term::array(places, DataType::U32, (rows * along).into()), &at)?;
    let values = gather(&flat, &taken.term())?.buffer;
    Ok([values, taken.term().binary(BinaryOp::Rem, &word(along)).evaluate()?])
}
