//! Histograms of few bins on GPUs, where many invocations would meet at one counter: each has its own, a byte for each bin, and empties them
//! before they can overflow.

use std::fmt::Write;

use vyre::expression::Fused;
use vyre::{DataType, Error};

use crate::launch::{GROUP, grid, kernel_of_forms, room};
use crate::output::Output;

/// Bins whose counters fit into workgroup memory.
pub(super) const MOST_BINS: usize = 256;
const LANES: usize = 128;
/// Bytes of workgroup memory that are needed at most.
pub(super) const MEMORY: u64 = (MOST_BINS * LANES) as u64;
/// Words of four counters that an invocation has at most; this many invocations add up one half of them each.
const WORDS: usize = MOST_BINS / 4;
/// Elements that are fetched at once, the default first.
const ITEMS: [usize; 3] = [8, 4, 2];
/// Elements that an invocation counts before the counters are emptied: what a byte can count.
const PERIOD: usize = 248;
const MOST_GROUPS: usize = 8192;

pub(super) fn histogram(fused: &Fused, bins: usize) -> Result<Output, Error> {
    let engine = fused.engine().clone();
    let mut counts = room(&engine, &DataType::U32, bins);
    let (lines, values) = fused.lines("i", "");
    let words = bins.div_ceil(4);
    let key = format!(
        "histogram of bytes {words}\n{}{}{lines}{values:?}",
        fused.declarations(0, None),
        fused.uniform_lines()
    );
    let kernel = kernel_of_forms(&engine, &key, || {
        ITEMS.iter().map(|items| (items.to_string(), source(fused, words, *items))).collect()
    })?;
    for part in fused.parts(1)? {
        let periods = part.len().div_ceil(LANES * PERIOD);
        let each = periods.div_ceil(MOST_GROUPS);
        let groups = periods.div_ceil(each);
        let sizes = [part.len(), bins, groups, each].map(|size| size as u32);
        let call = fused.bind(kernel.call(), part).value("sizes", &sizes).bind("counts", &mut counts);
        call.grid(grid(groups)).launch()?;
    }
    Ok(Output { buffer: counts, ty: DataType::U32, shape: vec![bins] })
}

fn source(fused: &Fused, words: usize, items: usize) -> String {
    let rounds = PERIOD / items;
    let at = fused.bindings();
    let mut text = fused.declarations(0, None);
    let _ = write!(
        text,
        "read sizes: u32 @{at};\nread_write counts: u32 @{};\nworkgroup own: u32[{}] @0;\nworkgroup_size [{LANES}, 1, 1];\nentry histogram {{\n{GROUP}\
         let l = local_index;\nlet n = sizes[0];\nlet bins = sizes[1];\n{}if group < sizes[2] {{\nlet word = l % {WORDS};\n\
         var count0: u32 = 0;\nvar count1: u32 = 0;\nvar count2: u32 = 0;\nvar count3: u32 = 0;\nlet first = group * sizes[3] * {};\n",
        at + 1,
        words * LANES,
        fused.uniform_lines(),
        PERIOD * LANES
    );
    // Elements are fetched a round before they are counted.
    let fetch = |text: &mut String, start: &str, name: &str| {
        let _ = writeln!(text, "let {name}_at = {start} + l;");
        for k in 0..items {
            let (lines, values) = fused.lines(&format!("{name}_at{k}"), &format!("_{name}_{k}"));
            let _ = writeln!(
                text,
                "let {name}_at{k} = {name}_at + {};\n{lines}let {name}{k} = select({name}_at{k} < n, {}, {});",
                k * LANES,
                values[0],
                u32::MAX
            );
        }
    };
    fetch(&mut text, "first", "early");
    for k in 0..items {
        let _ = writeln!(text, "var bin{k}: u32 = early{k};");
    }
    let _ = writeln!(text, "for p in 0..sizes[3] {{\nfor r in 0..{rounds} {{");
    fetch(&mut text, &format!("first + (p * {rounds} + r + 1) * {}", LANES * items), "next");
    for k in 0..items {
        let _ = writeln!(
            text,
            "if bin{k} < bins {{\nlet place{k} = bin{k} / 4 * {LANES} + l;\nown[place{k}] = own[place{k}] + (1 << (bin{k} % 4 * 8));\n}}"
        );
    }
    for k in 0..items {
        let _ = writeln!(text, "bin{k} = next{k};");
    }
    // Invocations begin at different ones, so that they read from different banks; halves of words add up bytes without overflow.
    let _ = write!(
        text,
        "}}\nbarrier;\nif word < {words} {{\nvar even: u32 = 0;\nvar odd: u32 = 0;\nfor t in 0..{WORDS} {{\n\
         let place = word * {LANES} + l / {WORDS} * {WORDS} + (t + l) % {WORDS};\nlet four = own[place];\nown[place] = 0;\neven = even + (four & 16711935);\n\
         odd = odd + ((four >> 8) & 16711935);\n}}\ncount0 = count0 + (even & 65535);\ncount1 = count1 + (odd & 65535);\n\
         count2 = count2 + (even >> 16);\ncount3 = count3 + (odd >> 16);\n}}\nbarrier;\n}}\nif word < {words} {{\n"
    );
    for k in 0..4 {
        let _ = writeln!(
            text,
            "if (count{k} != 0) & (word * 4 + {k} < bins) {{\natomic.add(counts[word * 4 + {k}], count{k});\n}}"
        );
    }
    text.push_str("}\n}\n}\n");
    text
}
