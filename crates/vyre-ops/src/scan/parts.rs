//! The parts of a scan's kernels, in the text form.

use std::fmt::Write;

use vyre::DataType;
use vyre::expression::Fused;

use super::{Cut, Form, ITEMS, SPAN, SUBGROUP, Scan};
use crate::fold::Fold;

impl Scan<'_> {
    /// Workgroup memory and size.
    pub(super) fn memory(&self, form: &Form) -> String {
        let Cut { lanes, tiles } = form.cut;
        let ty = &self.fold.ty;
        let tile = form.cut.tile();
        let padded = if form.padded { tile + tile / 32 } else { tile } * if form.kept { tiles } else { 1 };
        let runs = if form.subgroups { String::new() } else { format!("workgroup runs: {ty}[{}] @0;\n", 2 * lanes) };
        format!(
            "workgroup tile: {ty}[{padded}] @0;\nworkgroup groups: {ty}[{}] @0;\n{runs}workgroup_size [{lanes}, 1, 1];\n",
            tiles * lanes / SUBGROUP
        )
    }

    /// Where a workgroup is: row, chunk, first element along the row.
    pub(super) fn begin(&self, fused: &Fused, form: &Form) -> String {
        format!(
            "let l = local_index;\nlet lane = l % {SUBGROUP};\nlet n = sizes[0];\n{}if group < sizes[2] {{\n\
             let chunk = group % sizes[1];\n{}{}",
            fused.uniform_lines(),
            self.position(form, "group", ""),
            form.places()
        )
    }

    /// Where the first element of an invocation is, and how many are behind it in its row.
    pub(super) fn position(&self, form: &Form, group: &str, suffix: &str) -> String {
        format!(
            "let start{suffix} = {group} % sizes[1] * {} + l;\nlet place{suffix} = {group} / sizes[1] * n + start{suffix};\n\
             let left{suffix} = n - min(n, start{suffix});\n",
            form.cut.chunk()
        )
    }

    /// Puts a chunk together: `s{t}_{k}` are the runs up to each element, `r{t}` the runs before in the group, `g{t}` the groups before in the
    /// tile, `q{t}` the tiles before in the chunk, `chunk_value` all of it.
    pub(super) fn chunk(&self, text: &mut String, fused: &Fused, form: &Form) {
        let Cut { lanes, tiles } = form.cut;
        let groups = lanes / SUBGROUP;
        let ty = &self.fold.ty;
        let neutral = self.fold.neutral();
        for t in 0..tiles {
            for k in 0..ITEMS {
                let ahead = t * form.cut.tile() + k * lanes;
                let (lines, values) = fused.lines(&format!("at{t}_{k}"), &format!("_{t}_{k}"));
                let _ = writeln!(
                    text,
                    "let at{t}_{k} = place + {ahead};\n{lines}let e{t}_{k} = select({ahead} < left, {}, {neutral});",
                    values[0]
                );
            }
        }
        let fill = |text: &mut String, t: usize| {
            for k in 0..ITEMS {
                let _ = writeln!(text, "tile[{}] = e{t}_{k};", form.across(t, k));
            }
        };
        if form.kept {
            (0..tiles).for_each(|t| fill(text, t));
            text.push_str("barrier;\n");
        }
        for t in 0..tiles {
            if !form.kept {
                fill(text, t);
                text.push_str("barrier;\n");
            }
            for k in 0..ITEMS {
                let own = format!("tile[{}]", form.along(t, k));
                let value = if k == 0 { own } else { self.fold.combined(&format!("s{t}_{}", k - 1), &own) };
                let _ = writeln!(text, "let s{t}_{k} = {value};");
            }
            if form.kept {
                for k in 1..ITEMS {
                    let _ = writeln!(text, "tile[{}] = s{t}_{k};", form.along(t, k));
                }
            }
            let last = format!("s{t}_{}", ITEMS - 1);
            if form.subgroups {
                let _ = writeln!(text, "var sum{t}: {ty} = {last};");
                for distance in [1, 2, 4, 8, 16] {
                    let both = self.fold.combined(&format!("up{t}_{distance}"), &format!("sum{t}"));
                    let _ = writeln!(
                        text,
                        "let up{t}_{distance} = subgroup.shuffle_up(sum{t}, {distance});\nsum{t} = select(lane >= {distance}, {both}, sum{t});"
                    );
                }
                let _ = writeln!(
                    text,
                    "let up{t} = subgroup.shuffle_up(sum{t}, 1);\nlet r{t} = select(lane > 0, up{t}, {neutral});"
                );
            } else {
                let _ = writeln!(text, "runs[l] = {last};\nbarrier;");
                let from = self.fold.doubled(text, "lane", SUBGROUP, lanes);
                let _ = writeln!(
                    text,
                    "let sum{t} = runs[l + {from}];\nvar r{t}: {ty} = {neutral};\nif lane > 0 {{\nr{t} = runs[l + {from} - 1];\n}}"
                );
            }
            let _ =
                writeln!(text, "if lane == {} {{\ngroups[{} + l / {SUBGROUP}] = sum{t};\n}}", SUBGROUP - 1, t * groups);
            if !form.kept || !form.subgroups || t + 1 == tiles {
                text.push_str("barrier;\n");
            }
        }
        for t in 0..tiles {
            let _ = writeln!(text, "var g{t}: {ty} = {neutral};\nvar tile{t}: {ty} = {neutral};");
            for w in 0..groups {
                let _ = writeln!(text, "if l / {SUBGROUP} == {w} {{\ng{t} = tile{t};\n}}\ntile{t} = {};", {
                    self.fold.combined(&format!("tile{t}"), &format!("groups[{}]", t * groups + w))
                });
            }
            let before = if t == 0 {
                neutral.clone()
            } else {
                self.fold.combined(&format!("q{}", t - 1), &format!("tile{}", t - 1))
            };
            let _ = writeln!(text, "let q{t} = {before};");
        }
        let last = tiles - 1;
        let all = if last == 0 {
            "tile0".to_owned()
        } else {
            self.fold.combined(&format!("q{last}"), &format!("tile{last}"))
        };
        let _ = writeln!(text, "let chunk_value = {all};");
    }

    /// `carry` becomes what the chunks before this one in its row are together.
    pub(super) fn look_back(&self, text: &mut String) {
        let Fold { ty, .. } = &self.fold;
        let neutral = self.fold.neutral();
        let packed = |known: &str, value: &str| {
            let bits = if *ty == DataType::U32 { value.to_owned() } else { format!("bitcast<u32>({value})") };
            format!("(cast<u64>({known}) << 32) | cast<u64>({bits})")
        };
        let word = "cast<u32>(told & 4294967295u64)";
        let value = if *ty == DataType::U32 { word.to_owned() } else { format!("bitcast<{ty}>({word})") };
        let last = SPAN - 1;
        // What an invocation waits for: at a place, where a condition holds, until it tells more than that.
        let wait = |text: &mut String, condition: &str, place: &str, more_than: &str| {
            let _ = write!(
                text,
                "var told: u64 = 0u64;\nif {condition} {{\nloop {{\nlet seen = atomic.load(states[{place}]);\ntold = seen;\n\
                 if (seen >> 32) > {more_than} {{\nbreak;\n}}\n}}\n}}\n"
            );
        };
        let sum = |text: &mut String, name: &str, of: &str, value: &dyn Fn(usize) -> String| {
            for u in 0..SPAN {
                let _ = writeln!(text, "let {of}{u} = {of}[{u}];");
            }
            for u in 0..SPAN {
                let _ = writeln!(text, "{name} = {};", self.fold.combined(name, &value(u)));
            }
        };
        // A subgroup waits for the chunks of the span before this one; one invocation adds them up, which the last chunk tells as the value of
        // the span. Then another waits for each of the spans before to tell its own value (1) or that of everything up to it (2); the farthest
        // has to tell the latter.
        let _ = write!(
            text,
            "if l == 0 {{\natomic.store(states[group + 1], {});\n}}\nlet within = chunk % {SPAN};\nlet span = chunk / {SPAN};\n\
             let own_span = sizes[2] + 1 + group / sizes[1] * sizes[3] + span;\nif l < {SPAN} {{\n",
            packed("1", "chunk_value")
        );
        wait(text, "l < within", "group + 1 - within + l", "0u64");
        let _ = write!(
            text,
            "chunks[l] = select(l < within, {value}, {neutral});\n}}\nbarrier;\nvar inside: {ty} = {neutral};\nif l == 0 {{\n"
        );
        sum(text, "inside", "chunks", &|u| format!("chunks{u}"));
        let _ = write!(
            text,
            "if within == {last} {{\nlet whole = {};\natomic.store(states[own_span], {});\n}}\n}}\nif (l >= {SPAN}) & (l < {}) {{\n\
             let back = {} - l;\n",
            self.fold.combined("inside", "chunk_value"),
            packed("1", "whole"),
            2 * SPAN,
            2 * SPAN
        );
        wait(text, "back <= span", "own_span - back", &format!("select(l == {SPAN}, 1u64, 0u64)"));
        let _ = write!(
            text,
            "spans[l - {SPAN}] = select(back <= span, {value}, {neutral});\nif (told >> 32) == 2u64 {{\natomic.max(nearest[0], l - {SPAN});\n}}\n}}\n\
             barrier;\nif l == 0 {{\nlet first = nearest[0];\nvar before: {ty} = {neutral};\n"
        );
        sum(text, "before", "spans", &|u| format!("select({u} >= first, spans{u}, {neutral})"));
        let _ = write!(
            text,
            "if within == {last} {{\nlet whole = {};\nlet all = {};\natomic.store(states[own_span], {});\n}}\ncarried[0] = {};\n}}\nbarrier;\n\
             let carry = carried[0];\n",
            self.fold.combined("inside", "chunk_value"),
            self.fold.combined("before", "whole"),
            packed("2", "all"),
            self.fold.combined("before", "inside")
        );
    }

    /// Gives each position its prefix.
    pub(super) fn store(&self, text: &mut String, fused: &Fused, form: &Form) {
        let tiles = form.cut.tiles;
        let fold = &self.fold;
        for t in 0..tiles {
            let _ = writeln!(text, "let b{t}_0 = {};", fold.combined("carry", &format!("q{t}")));
            let _ = writeln!(text, "let b{t}_1 = {};", fold.combined(&format!("b{t}_0"), &format!("g{t}")));
            let _ = writeln!(text, "let before{t} = {};", fold.combined(&format!("b{t}_1"), &format!("r{t}")));
            if form.kept {
                for k in 0..ITEMS {
                    let _ = writeln!(text, "let u{t}_{k} = tile[{}];", form.along(t, k));
                }
            }
            let own = if form.kept { "u" } else { "s" };
            for k in 0..ITEMS {
                let value = match (self.inclusive, k) {
                    (true, _) => fold.combined(&format!("before{t}"), &format!("{own}{t}_{k}")),
                    (false, 0) => format!("before{t}"),
                    (false, _) => fold.combined(&format!("before{t}"), &format!("{own}{t}_{}", k - 1)),
                };
                let _ = writeln!(text, "tile[{}] = {value};", form.along(t, k));
            }
            if form.kept {
                continue;
            }
            text.push_str("barrier;\n");
            self.give(text, fused, form, t);
            if t + 1 < tiles {
                text.push_str("barrier;\n");
            }
        }
        if form.kept {
            text.push_str("barrier;\n");
            (0..tiles).for_each(|t| self.give(text, fused, form, t));
        }
    }

    /// What is done at the positions of a tile.
    fn give(&self, text: &mut String, fused: &Fused, form: &Form, t: usize) {
        for k in 0..ITEMS {
            let ahead = t * form.cut.tile() + k * form.cut.lanes;
            let at = format!("place_again + {ahead}");
            // Elements that are needed again are in the cache.
            let (mut lines, mut values) = fused.lines(&format!("at{t}_{k}"), &format!("_{t}_{k}"));
            match form.kept && self.each.contains("VALUE") {
                true => (lines, values) = fused.lines(&format!("({at})"), &format!("_{t}_{k}_again")),
                false => lines.clear(),
            }
            let mut each = self.each.replace("PREFIX", &format!("p{t}_{k}")).replace("AT", &at);
            for (at, value) in values.iter().enumerate() {
                each = each.replace(&format!("VALUE{at}"), value);
            }
            let place = form.across(t, k);
            let _ = writeln!(text, "{lines}if {ahead} < left_again {{\nlet p{t}_{k} = tile[{place}];\n{each}\n}}");
        }
    }
}

impl Form {
    /// Where the elements of a tile are in workgroup memory: one of padding in 32 keeps the lanes on different banks.
    fn places(&self) -> &'static str {
        match self.padded {
            true => "let across = l + l / 32;\nlet along = l * 8 + l / 4;\n",
            false => "let across = l;\nlet along = l * 8;\n",
        }
    }

    /// The element of a tile that is so many rows of lanes behind that of the lane.
    fn across(&self, t: usize, k: usize) -> String {
        let ahead = k * self.cut.lanes;
        format!("across + {}", self.first(t) + if self.padded { ahead + ahead / 32 } else { ahead })
    }

    /// An element of the lane's run in a tile.
    fn along(&self, t: usize, k: usize) -> String {
        format!("along + {}", self.first(t) + k)
    }

    /// Where a tile begins.
    fn first(&self, t: usize) -> usize {
        let tile = self.cut.tile();
        match self.kept {
            true => t * if self.padded { tile + tile / 32 } else { tile },
            false => 0,
        }
    }
}
