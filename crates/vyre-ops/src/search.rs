//! Ops on arrays that are sorted: where something belongs in one, and two made to one.

use vyre::expression::{Fused, Term};
use vyre::{DataType, Error, Shape};

use crate::launch::{MOST, engine, extents, misfit, mistyped, room};
use crate::output::Output;
use crate::sort;

/// Lines that find in `low` how many elements of `sorted` are before `VALUE`, or with `<=` also those that equal it.
const BOUND: &str = "var low: u32 = 0;\nvar high: u32 = len(sorted);\nloop {\nif low >= high {\nbreak;\n}\nlet middle = low + (high - low) / 2;\n\
                     if sorted[middle] ORDER VALUE {\nlow = middle + 1;\n} else {\nhigh = middle;\n}\n}\n";

fn bound(upper: bool, value: &str) -> String {
    BOUND.replace("ORDER", if upper { "<=" } else { "<" }).replace("VALUE", value)
}

/// How many elements of a term, which it has to have one axis.
fn length(term: &Term) -> Result<usize, Error> {
    match extents(term)?[..] {
        [length] if length <= MOST => Ok(length),
        [length] => Err(misfit(format!("{length} elements are more than are searched, which is {MOST}"))),
        _ => Err(misfit("what is sorted has one axis")),
    }
}

fn same_type(a: &Term, b: &Term) -> Result<(), Error> {
    match a.data_type() == b.data_type() {
        true => Ok(()),
        false => Err(mistyped(format!("{} and {} are not of one type", a.data_type(), b.data_type()))),
    }
}

/// For each element of `wanted` how many of `sorted` are smaller, or with `upper` not larger.
pub(crate) fn bounds(sorted: &Term, wanted: &Term, upper: bool) -> Result<Output, Error> {
    same_type(sorted, wanted)?;
    length(sorted)?;
    let shape = extents(wanted)?;
    let engine = engine(sorted)?;
    let (sorted, wanted) = (sort::encoded(sorted, false)?, sort::encoded(wanted, false)?);
    let ty = sorted.data_type().clone();
    let elements: usize = shape.iter().product();
    let mut out = room(&engine, &DataType::U32, elements);
    if elements > MOST {
        return Err(misfit(format!("{elements} elements are more than are searched at once, which is {MOST}")));
    }
    if elements > 0 {
        let fused = Fused::new(&[&wanted])?;
        let buffer = sorted.evaluate()?;
        let (lines, values) = fused.lines("i", "");
        let declarations = fused.declarations(0, None);
        let at = fused.bindings();
        let source = format!(
            "{declarations}read sorted: {ty} @{at};\noutput out: u32 @{};\nworkgroup_size [64, 1, 1];\ndomain [len(out), 1, 1];\nentry search {{\n\
             let i = global_id.x;\nif i < len(out) {{\n{}{lines}{}out[i] = low;\n}}\n}}\n",
            at + 1,
            fused.uniform_lines(),
            bound(upper, &values[0])
        );
        let kernel = engine.kernel_of_text(&source)?;
        fused.bind(kernel.call(), 0..elements).bind("sorted", &buffer).bind("out", &mut out).launch()?;
    }
    Ok(Output { buffer: out, ty: DataType::U32, shape })
}

/// All elements of two sorted arrays, sorted; of equal ones those of the first come first.
pub(crate) fn merge(a: &Term, b: &Term) -> Result<Output, Error> {
    same_type(a, b)?;
    let lengths = [length(a)?, length(b)?];
    let all = lengths[0] + lengths[1];
    if all > MOST {
        return Err(misfit(format!("{all} elements are more than are merged at once, which is {MOST}")));
    }
    let engine = engine(a)?;
    let coded = [sort::encoded(a, false)?, sort::encoded(b, false)?];
    let ty = coded[0].data_type().clone();
    let buffers = [coded[0].evaluate()?, coded[1].evaluate()?];
    let mut out = room(&engine, &ty, all);
    for (own, upper) in [(0, false), (1, true)] {
        if lengths[own] == 0 {
            continue;
        }
        let source = format!(
            "read own: {ty} @0;\nread sorted: {ty} @1;\nread_write out: {ty} @2;\nworkgroup_size [64, 1, 1];\ndomain [len(own), 1, 1];\nentry merge {{\n\
             let i = global_id.x;\nif i < len(own) {{\nlet key = own[i];\n{}out[low + i] = key;\n}}\n}}\n",
            bound(upper, "key")
        );
        let kernel = engine.kernel_of_text(&source)?;
        kernel.bind("own", &buffers[own]).bind("sorted", &buffers[1 - own]).bind("out", &mut out).launch()?;
    }
    let merged = Term::array(out, ty, Shape::from(all));
    let buffer = sort::decoded(&merged, a.data_type(), false).evaluate()?;
    Ok(Output { buffer, ty: a.data_type().clone(), shape: vec![all] })
}
