//! How often each number occurs.

mod bytes;
mod host;

use std::fmt::Write;

use vyre::expression::{Fused, Term};
use vyre::{DataType, Error};

use crate::launch::{
    GROUP, MOST, Traits, as_a_whole, count, grid, is_plain, kernel_of_forms_or, magnitude, misfit, mistyped, room,
};
use crate::output::Output;
use crate::tuning::Axis;

/// Counts of up to so many bins are kept in workgroup memory.
const LOCAL_BINS: usize = 2048;
/// Invocations, and elements that each of them fetches at once, the default first.
const CUTS: [(usize, usize); 4] = [(256, 8), (128, 16), (64, 32), (32, 64)];
/// Elements of a round.
const ROUND: usize = 2048;
/// A workgroup takes so many rounds of all its invocations at least, so that it counts more than it tells.
const ROUNDS: usize = 8;
/// More workgroups than this keep no device busier.
const MOST_GROUPS: usize = 2048;

/// What may be tuned about a histogram.
pub(crate) const SPACE: &[Axis] = &[
    Axis {
        name: "invocations x elements at once",
        on: "all; more than 256 bins, or processors",
        values: &["256 x 8", "128 x 16", "64 x 32", "32 x 64"],
    },
    Axis { name: "elements at once", on: "GPUs, up to 256 bins", values: &["8", "4", "2"] },
];

/// How many elements are 0, 1 and so on up to the number of bins; others are not counted.
pub(crate) fn histogram(term: &Term, bins: usize) -> Result<Output, Error> {
    if *term.data_type() != DataType::U32 {
        return Err(mistyped(format!("a histogram is of u32, not of {}", term.data_type())));
    }
    let op = || format!("histogram of 2^{}", magnitude(bins));
    as_a_whole(op, &[term], count(&[term]) / 4, || histogram_here(term, bins))
}

fn histogram_here(term: &Term, bins: usize) -> Result<Output, Error> {
    let fused = Fused::new(&[term])?;
    let engine = fused.engine().clone();
    let elements = fused.elements();
    if elements > u32::MAX as usize || bins > MOST {
        return Err(misfit(format!("{bins} counts of {elements} elements are more than u32 can count")));
    }
    let mut counts = room(&engine, &DataType::U32, bins);
    if elements == 0 || bins == 0 {
        return Ok(Output { buffer: counts, ty: DataType::U32, shape: vec![bins] });
    }
    let traits = Traits::of(&engine);
    if traits.is_gpu && bins <= bytes::MOST_BINS && traits.memory >= bytes::MEMORY {
        return bytes::histogram(&fused, bins);
    }
    let local = (bins <= LOCAL_BINS).then_some(bins);
    let key = format!("histogram {local:?} {}", fused.key());
    let forms = || CUTS.iter().map(|cut| (format!("{} x {}", cut.0, cut.1), source(&fused, local, *cut))).collect();
    let kernel = kernel_of_forms_or(&engine, &key, forms, || is_plain(term, &fused).then(host::counted))?;
    for part in fused.parts(1)? {
        let rounds = part.len().div_ceil(ROUND * MOST_GROUPS).max(ROUNDS);
        let groups = part.len().div_ceil(ROUND * rounds);
        let sizes = [part.len(), bins, groups, rounds].map(|size| size as u32);
        let call = fused.bind(kernel.call(), part).value("sizes", &sizes).bind("counts", &mut counts);
        call.grid(grid(groups)).launch()?;
    }
    Ok(Output { buffer: counts, ty: DataType::U32, shape: vec![bins] })
}

fn source(fused: &Fused, local: Option<usize>, (lanes, items): (usize, usize)) -> String {
    let at = fused.bindings();
    let mut text = fused.declarations(0, None);
    let _ = writeln!(text, "read sizes: u32 @{at};\nread_write counts: u32 @{};", at + 1);
    if let Some(bins) = local {
        let _ = writeln!(text, "workgroup found: u32[{bins}] @0;");
    }
    let _ = write!(
        text,
        "workgroup_size [{lanes}, 1, 1];\nentry histogram {{\n{GROUP}let l = local_index;\nlet n = sizes[0];\nlet bins = sizes[1];\n{}\
         if group < sizes[2] {{\nfor r in 0..sizes[3] {{\nlet start = (group * sizes[3] + r) * {ROUND} + l;\n",
        fused.uniform_lines()
    );
    let place = if local.is_some() { "found" } else { "counts" };
    for k in 0..items {
        let _ = writeln!(text, "let at{k} = start + {};", k * lanes);
        let (lines, values) = fused.lines(&format!("at{k}"), &format!("_{k}"));
        let key = &values[0];
        let _ = writeln!(text, "{lines}if (at{k} < n) & ({key} < bins) {{\natomic.add({place}[{key}], 1);\n}}");
    }
    text.push_str("}\n");
    if local.is_some() {
        let _ = write!(
            text,
            "barrier;\nfor b in l..bins step {lanes} {{\nlet count = found[b];\nif count != 0 {{\natomic.add(counts[b], count);\n}}\n}}\n"
        );
    }
    text.push_str("}\n}\n");
    text
}
