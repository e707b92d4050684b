//! The largest elements, found without sorting the others.
//!
//! Keys become unsigned numbers, of which the smallest are wanted. Three passes count digits, the highest first and then among those that share
//! the digits found so far, until the last key that is wanted is known. One more pass takes what is smaller, and of what equals it the first
//! ones; these few are then sorted.

mod rows;

use std::fmt::Write;

use vyre::expression::Term;
use vyre::ir::{BinaryOp, Literal};
use vyre::{Buffer, DataType, Engine, Error};

use crate::fold::{Fold, Kind};
use crate::histogram::histogram;
use crate::launch::{as_a_whole, engine, extents, misfit, misfit_with, room};
use crate::output::Output;
use crate::scan::Scan;
use crate::sort;
pub(crate) use rows::top_k_axis;

/// Where digits begin and how many bits they have, the highest first.
const DIGITS: [(u32, u32); 3] = [(21, 11), (10, 11), (0, 10)];
/// Invocations of a workgroup.
const LANES: usize = 256;
/// Up to so many are sorted by one workgroup.
const FEW: usize = 2048;
/// Below this many elements sorting all of them takes as long.
const WORTH: usize = 1 << 15;

/// The largest elements, the largest first, and their positions; of equal ones the first.
pub(crate) fn top_k(term: &Term, count: usize) -> Result<[Output; 2], Error> {
    let length: usize = extents(term)?.iter().product();
    if length < count {
        let fix = format!("Ask for {length} at most.");
        return Err(misfit_with(format!("{count} elements were asked of {length}"), fix));
    }
    let is_word = matches!(term.data_type(), DataType::U32 | DataType::I32 | DataType::F32);
    if !is_word || length < WORTH || count == 0 || count > length / 4 {
        let [values, positions] = sort::sorted_positions(term, true)?;
        return Ok([front(&values, count)?, front(&positions, count)?]);
    }
    as_a_whole(|| format!("top {count}"), &[term], length / 4, || selected(term, length, count))
}

fn selected(term: &Term, length: usize, count: usize) -> Result<[Output; 2], Error> {
    let engine = engine(term)?;
    let coded = sort::encoded(&flat(term, length)?, true)?;
    let mut found = Found::next(None, &engine, &coded, DIGITS[0], count)?;
    for digit in &DIGITS[1..] {
        found = Found::next(Some(&found), &engine, &coded, *digit, count)?;
    }
    let taken = taken(&coded, &found, count)?;
    let [values, positions] = match count {
        0..=FEW => sorted(&engine, &taken, count, term.data_type())?,
        _ => {
            let [keys, positions] = sorted_twice(&engine, taken, count)?;
            let keys = Term::array(keys, DataType::U32, count.into());
            [sort::decoded(&keys, term.data_type(), true).evaluate()?, positions]
        }
    };
    let shape = vec![count];
    Ok([
        Output { buffer: values, ty: term.data_type().clone(), shape: shape.clone() },
        Output { buffer: positions, ty: DataType::U32, shape },
    ])
}

/// A term with one axis.
fn flat(term: &Term, length: usize) -> Result<Term, Error> {
    match extents(term)?.len() {
        1 => Ok(term.clone()),
        _ => Ok(Term::array(term.evaluate()?, term.data_type().clone(), length.into())),
    }
}

fn word(value: u32) -> Term {
    Term::scalar(Literal::U32(value))
}

/// The key's digits so far, and how many of those that share them are wanted.
struct Found {
    prefix: Term,
    wanted: Term,
}

impl Found {
    /// One digit more of what the last of so many has.
    fn next(
        before: Option<&Found>,
        engine: &Engine,
        coded: &Term,
        (shift, bits): (u32, u32),
        count: usize,
    ) -> Result<Found, Error> {
        let shifted = if shift == 0 { coded.clone() } else { coded.binary(BinaryOp::Shr, &word(shift)) };
        let bins = 1usize << bits;
        let digit = shifted.binary(BinaryOp::And, &word(bins as u32 - 1));
        let counted = match before {
            None => digit,
            Some(Found { prefix, .. }) => {
                let shares = coded.binary(BinaryOp::Shr, &word(shift + bits)).binary(BinaryOp::Eq, prefix);
                // A number behind the last bin is not counted.
                shares.select(&digit, &word(u32::MAX))
            }
        };
        let counts = histogram(&counted, bins)?.buffer;
        let [mut prefix, mut wanted] = [room(engine, &DataType::U32, 1), room(engine, &DataType::U32, 1)];
        let kernel = engine.kernel_of_text(&pick(bins))?;
        let known;
        let call = match before {
            None => kernel.value("before", &0u32).value("wanted", &(count as u32)),
            Some(found) => {
                known = (found.prefix.evaluate()?, found.wanted.evaluate()?);
                kernel.bind("before", &known.0).bind("wanted", &known.1)
            }
        };
        let call = call.bind("counts", &counts).bind("prefix", &mut prefix).bind("rest", &mut wanted);
        call.grid([1, 1, 1]).overwrites().launch()?;
        let one = |buffer: Buffer| Term::array(buffer, DataType::U32, [0usize; 0].into());
        Ok(Found { prefix: one(prefix), wanted: one(wanted) })
    }
}

/// A kernel that finds the bin that holds the last of the wanted ones.
fn pick(bins: usize) -> String {
    let mut text = format!(
        "read counts: u32 @0;\nread before: u32 @1;\nread wanted: u32 @2;\noutput prefix: u32 @3;\noutput rest: u32 @4;\n\
         workgroup sums: u32[{}] @0;\nworkgroup_size [{LANES}, 1, 1];\nentry pick_bin {{\nlet l = local_index;\nlet goal = wanted[0];\n",
        2 * LANES
    );
    find_bin(&mut text, bins, "", &format!("prefix[0] = before[0] * {bins} + bin;\nrest[0] = goal - sum;"));
    text.push_str("}\n");
    text
}

/// A workgroup finds the `bin` of `counts` that holds what has the number `goal`, counted from 1; `sum` are those before it. Names end as told.
fn find_bin(text: &mut String, bins: usize, end: &str, then: &str) {
    let each = bins / LANES;
    let _ = write!(
        text,
        "var own{end}: u32 = 0;\nfor k in 0..{each} {{\nown{end} = own{end} + counts[l * {each} + k];\n}}\nsums[l] = own{end};\nbarrier;\n"
    );
    let (mut distance, mut from, mut to) = (1, 0, LANES);
    while distance < LANES {
        let _ = writeln!(
            text,
            "if l >= {distance} {{\nsums[l + {to}] = sums[l + {from}] + sums[l + {from} - {distance}];\n}} else {{\n\
             sums[l + {to}] = sums[l + {from}];\n}}\nbarrier;"
        );
        distance *= 2;
        std::mem::swap(&mut from, &mut to);
    }
    let _ = write!(
        text,
        "let to{end} = sums[l + {from}];\nlet start{end} = to{end} - own{end};\nif (start{end} < goal{end}) & (goal{end} <= to{end}) {{\nvar sum: u32 = start{end};\n\
         for k in 0..{each} {{\nlet bin = l * {each} + k;\nlet count = counts[bin];\nif (sum < goal{end}) & (goal{end} <= sum + count) {{\n\
         {then}\n}}\nsum = sum + count;\n}}\n}}\n"
    );
}

/// What is smaller than the last key, in any order, and then as many that equal it as are wanted, the first ones: keys, then positions, then
/// how many were smaller.
fn taken(coded: &Term, found: &Found, count: usize) -> Result<Buffer, Error> {
    let Found { prefix: last, wanted } = found;
    let length = extents(coded)?.iter().product();
    let engine = engine(coded)?;
    let shape = || vyre::Shape::from(length);
    let equals = coded.binary(BinaryOp::Eq, last).cast(&DataType::U32);
    let (last, wanted) = (last.broadcast(&engine, shape()), wanted.broadcast(&engine, shape()));
    let each = format!(
        "if VALUE1 <= VALUE2 {{\nvar slot: u32 = {u};\nif VALUE0 != 0 {{\nif PREFIX < VALUE3 {{\nslot = {count} - VALUE3 + PREFIX;\n}}\n}} else {{\n\
         let next = atomic.add(taken[{counter}], 1);\nslot = next;\n}}\nif slot < {count} {{\ntaken[slot] = VALUE1;\ntaken[slot + {count}] = AT;\n}}\n}}",
        u = u32::MAX,
        counter = 2 * count
    );
    let scan = Scan {
        fold: Fold { kind: Kind::Sum, ty: DataType::U32 },
        inclusive: false,
        terms: &[&equals, coded, &last, &wanted],
        along: length,
        outputs: &[("taken", DataType::U32, 2 * count + 1)],
        each: &each,
        end: "",
        covers: false,
    };
    Ok(scan.run()?.swap_remove(0))
}

/// A workgroup sorts what it has in `own` and `place`, a power of two of both, by key and then position: a bitonic sort.
fn sort_by_key(text: &mut String, size: usize) {
    let mut block = 2;
    while block <= size {
        let mut distance = block / 2;
        while distance > 0 {
            let _ = writeln!(
                text,
                "for p in l..{} step {LANES} {{\nlet i = p / {distance} * {} + p % {distance};\nlet j = i + {distance};\n\
                 let falls = (own[i] > own[j]) | (own[i] == own[j]) & (place[i] > place[j]);\nif falls == ((i & {block}) == 0) {{\n\
                 let key = own[i];\nown[i] = own[j];\nown[j] = key;\nlet from = place[i];\nplace[i] = place[j];\nplace[j] = from;\n}}\n}}\nbarrier;",
                size / 2,
                2 * distance
            );
            distance /= 2;
        }
        block *= 2;
    }
}

/// Few keys and their positions, sorted by one workgroup: the elements that they are of, and where those are.
fn sorted(engine: &Engine, taken: &Buffer, count: usize, ty: &DataType) -> Result<[Buffer; 2], Error> {
    let size = count.next_power_of_two().max(2);
    let source = || {
        let (most, element) = (u32::MAX, element(ty, "own[i]")?);
        let mut text = format!(
            "read taken: u32 @0;\noutput out: {ty} @1;\noutput out_at: u32 @2;\nworkgroup own: u32[{size}] @0;\nworkgroup place: u32[{size}] @0;\n\
             workgroup_size [{LANES}, 1, 1];\nentry sort_few {{\nlet l = local_index;\nfor i in l..{size} step {LANES} {{\nlet inside = i < len(out);\n\
             own[i] = select(inside, taken[i], {most});\nplace[i] = select(inside, taken[i + len(out)], {most});\n}}\nbarrier;\n"
        );
        sort_by_key(&mut text, size);
        let _ =
            write!(text, "for i in l..len(out) step {LANES} {{\nout[i] = {element};\nout_at[i] = place[i];\n}}\n}}\n");
        crate::launch::parsed(&text)
    };
    let kernel = engine.kernel_from(&format!("sort few {size} {ty}"), source)?;
    let mut results = [room(engine, ty, count), room(engine, &DataType::U32, count)];
    let [out, out_at] = &mut results;
    kernel.bind("taken", taken).bind("out", out).bind("out_at", out_at).grid([1, 1, 1]).overwrites().launch()?;
    Ok(results)
}

/// The element that a key is of, of which the smallest stand for the largest elements.
fn element(ty: &DataType, key: &str) -> Result<String, Error> {
    let (_, _, decode) = sort::turned(ty, true)?;
    let bits = decode.replace("KEY", key);
    Ok(if *ty == DataType::U32 { bits } else { format!("bitcast<{ty}>({bits})") })
}

/// Keys and positions, sorted by position and then, stably, by key.
fn sorted_twice(engine: &Engine, taken: Buffer, count: usize) -> Result<[Buffer; 2], Error> {
    let all = Term::array(taken, DataType::U32, (2 * count + 1).into());
    let part = |from: usize| {
        let at = Term::positions(engine, count.into()).binary(BinaryOp::Add, &word(from as u32));
        crate::layout::gather(&all, &at).map(|part| part.buffer)
    };
    let (keys, positions) = (part(0)?, part(count)?);
    let term = |buffer: Buffer| Term::array(buffer, DataType::U32, count.into());
    let both = |(a, b): (Buffer, Option<Buffer>)| Ok::<_, Error>((a, b.ok_or_else(|| misfit("values were given"))?));
    let (positions, keys) = both(sort::sort(&term(positions), Some(&term(keys)), false)?)?;
    let (keys, positions) = both(sort::sort(&term(keys), Some(&term(positions)), false)?)?;
    Ok([keys, positions])
}

/// The first elements as an array of their own.
fn front(all: &Output, count: usize) -> Result<Output, Error> {
    let ty = &all.ty;
    let engine = engine(&all.term())?;
    let mut buffer = room(&engine, ty, count);
    if count > 0 {
        let source = format!(
            "read x: {ty} @0;\noutput out: {ty} @1;\nworkgroup_size [64, 1, 1];\ndomain [len(out), 1, 1];\nentry front {{\nlet i = global_id.x;\n\
             if i < len(out) {{\nout[i] = x[i];\n}}\n}}\n"
        );
        engine.kernel_of_text(&source)?.bind("x", &all.buffer).bind("out", &mut buffer).launch()?;
    }
    Ok(Output { buffer, ty: ty.clone(), shape: vec![count] })
}
