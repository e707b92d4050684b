//! Radix sort with one pass over the keys for each digit (Adinets and Merrill, 2022), for devices whose workgroups make progress while
//! others wait and whose subgroups have 32 lanes.
//!
//! All digits are counted in one pass at first. Then, for each digit, a workgroup takes the next tile of keys, finds the rank of each among
//! those of its digit, tells the others how many of each digit it has, adds up what the tiles before it told, and puts its keys where they
//! belong.

use std::fmt::Write;

use vyre::{Buffer, DataType, Engine, Error, Kernel};

use crate::launch::{GROUP, grid, room};

const BITS: usize = 8;
const DIGITS: usize = 1 << BITS;
const SUBGROUP: usize = 32;
/// How a tile's word says that it holds the count of the tile, or of all tiles up to it; the count has the 30 bits below.
const OWN: u32 = 1 << 30;
const ALL: u32 = 1 << 31;
const COUNT: u32 = OWN - 1;

/// Bytes of workgroup memory that are needed at most.
pub(crate) const MEMORY: u64 = 64 << 10;

/// How a tile is cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// Invocations of a workgroup, at least as many as there are digits.
    pub(crate) lanes: usize,
    /// Keys of each.
    pub(crate) items: usize,
}

impl Cut {
    /// Large tiles write long runs; keys and values of a tile have to fit into workgroup memory.
    pub(crate) fn of(bytes: usize) -> Cut {
        match bytes {
            0..=4 => Cut { lanes: 256, items: 24 },
            5..=8 => Cut { lanes: 512, items: 10 },
            _ => Cut { lanes: 256, items: 10 },
        }
    }

    fn tile(self) -> usize {
        self.lanes * self.items
    }
}

/// A sort of keys that are ordered by their bits after `encode`, which is an expression of `KEY`, and before `decode`.
pub(crate) struct Sweep<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) cut: Cut,
    pub(crate) length: usize,
    /// u32, u64 or, as they are in memory, u16.
    pub(crate) ty: DataType,
    pub(crate) value_type: Option<DataType>,
    pub(crate) encode: &'a str,
    pub(crate) decode: &'a str,
}

impl Sweep<'_> {
    /// The keys in ascending order, with the values that go with them.
    pub(crate) fn run(&self, keys: Buffer, values: Option<Buffer>) -> Result<(Buffer, Option<Buffer>), Error> {
        let passes = self.passes();
        let starts = self.starts(&keys)?;
        let tiles = self.length.div_ceil(self.cut.tile());
        let (mut keys, mut values) = (keys, values);
        for pass in 0..passes {
            let mut states = room(self.engine, &DataType::U32, tiles * DIGITS + 1);
            let mut sorted = room(self.engine, &self.ty, self.length);
            let mut moved = self.value_type.as_ref().map(|ty| room(self.engine, ty, self.length));
            let kernel = self.pass(pass == 0, pass + 1 == passes)?;
            let sizes = [self.length, tiles, pass * BITS, pass * DIGITS].map(|size| size as u32);
            let mut call = kernel
                .bind("keys", &keys)
                .value("sizes", &sizes)
                .bind("starts", &starts)
                .bind("states", &mut states)
                .bind("out", &mut sorted);
            if let (Some(values), Some(moved)) = (&values, &mut moved) {
                call = call.bind("values", values).bind("out_values", moved);
            }
            call.grid(grid(tiles)).overwrites().launch()?;
            (keys, values) = (sorted, moved);
        }
        Ok((keys, values))
    }

    fn passes(&self) -> usize {
        self.ty.bits().unwrap_or(32) as usize / BITS
    }

    fn digit(&self, key: &str, shift: &str) -> String {
        match self.ty {
            DataType::U64 => format!("cast<u32>({key} >> {shift}) & {}", DIGITS - 1),
            _ => format!("({key} >> {shift}) & {}", DIGITS - 1),
        }
    }

    /// For each digit of each pass, how many keys have a smaller one.
    fn starts(&self, keys: &Buffer) -> Result<Buffer, Error> {
        const LANES: usize = 256;
        const ITEMS: usize = 8;
        const ROUNDS: usize = 8;
        let all = self.passes() * DIGITS;
        let groups = self.length.div_ceil(LANES * ITEMS * ROUNDS);
        let mut counts = room(self.engine, &DataType::U32, all);
        let kernel = self.engine.kernel_from(&format!("sweep count {} {}", self.ty, self.encode), || {
            let mut text = format!(
                "read keys: {} @0;\nread sizes: u32 @1;\nread_write counts: u32 @2;\nworkgroup found: u32[{all}] @0;\nworkgroup_size [{LANES}, 1, 1];\n\
                 entry count_digits {{\n{GROUP}let l = local_index;\nlet n = sizes[0];\nif group < sizes[1] {{\nfor r in 0..{ROUNDS} {{\n\
                 let start = (group * {ROUNDS} + r) * {} + l;\n",
                self.ty,
                LANES * ITEMS
            );
            for k in 0..ITEMS {
                let _ = writeln!(text, "let key{k} = {};", self.encode.replace("KEY", &format!("keys[start + {}]", k * LANES)));
            }
            for k in 0..ITEMS {
                let _ = writeln!(text, "if start + {} < n {{", k * LANES);
                for pass in 0..self.passes() {
                    let digit = self.digit(&format!("key{k}"), &(pass * BITS).to_string());
                    let _ = writeln!(text, "atomic.add(found[({digit}) + {}], 1);", pass * DIGITS);
                }
                text.push_str("}\n");
            }
            let _ = write!(
                text,
                "}}\nbarrier;\nfor b in l..{all} step {LANES} {{\nlet count = found[b];\nif count != 0 {{\natomic.add(counts[b], count);\n}}\n}}\n}}\n}}\n"
            );
            crate::launch::parsed(&text)
        })?;
        let sizes = [self.length as u32, groups as u32];
        let call = kernel.bind("keys", keys).value("sizes", &sizes).bind("counts", &mut counts);
        call.grid(grid(groups)).launch()?;
        let mut starts = room(self.engine, &DataType::U32, all);
        let source = format!(
            "read counts: u32 @0;\noutput starts: u32 @1;\nworkgroup runs: u32[{}] @0;\nworkgroup_size [{DIGITS}, 1, 1];\n\
             entry scan_digits {{\nlet l = local_index;\nlet at = workgroup_id.x * {DIGITS} + l;\nlet count = counts[at];\n{}starts[at] = before;\n}}\n",
            DIGITS / SUBGROUP,
            before(DIGITS, "count")
        );
        let kernel = self.engine.kernel_of_text(&source)?;
        kernel
            .bind("counts", &counts)
            .bind("starts", &mut starts)
            .grid([self.passes() as u32, 1, 1])
            .overwrites()
            .launch()?;
        Ok(starts)
    }

    fn pass(&self, first: bool, last: bool) -> Result<Kernel, Error> {
        let (encode, decode) = (if first { self.encode } else { "KEY" }, if last { self.decode } else { "KEY" });
        let key = format!("sweep {:?} {} {:?} {encode} {decode}", self.cut, self.ty, self.value_type);
        self.engine.kernel_from(&key, || crate::launch::parsed(&self.source(encode, decode)))
    }

    fn source(&self, encode: &str, decode: &str) -> String {
        let Cut { lanes, items } = self.cut;
        let (tile, subgroups, ty) = (self.cut.tile(), lanes / SUBGROUP, &self.ty);
        let computed = if *ty == DataType::U16 { &DataType::U32 } else { ty };
        let mut text = format!(
            "read keys: {ty} @0;\nread sizes: u32 @1;\nread starts: u32 @2;\nread_write states: u32 @3;\noutput out: {ty} @4;\n"
        );
        if let Some(ty) = &self.value_type {
            let _ = writeln!(
                text,
                "read values: {ty} @5;\noutput out_values: {ty} @6;\nworkgroup kept_values: {ty}[{tile}] @0;"
            );
        }
        // Tiles are taken in their order, so that all before one have been begun when it waits for them.
        let _ = write!(
            text,
            "workgroup kept: {computed}[{tile}] @0;\nworkgroup found: u32[{}] @0;\nworkgroup bases: u32[{DIGITS}] @0;\nworkgroup runs: u32[{subgroups}] @0;\n\
             workgroup ticket: u32[1] @0;\nworkgroup_size [{lanes}, 1, 1];\nentry sort_digit {{\nlet l = local_index;\nif l == 0 {{\n\
             let taken = atomic.add(states[0], 1);\nticket[0] = taken;\n}}\nbarrier;\nlet tile = ticket[0];\nbarrier;\nif tile < sizes[1] {{\n\
             let n = sizes[0];\nlet shift = sizes[2];\nlet lane = l % {SUBGROUP};\nlet row = l / {SUBGROUP} * {DIGITS};\nlet lower = (1 << lane) - 1;\n\
             let start = tile * {tile};\nlet base = start + l / {SUBGROUP} * {} + lane;\nlet left = n - min(n, base);\n",
            subgroups * DIGITS,
            SUBGROUP * items
        );
        // Behind the end are keys that come last.
        let most = if *ty == DataType::U64 { format!("{}u64", u64::MAX) } else { u32::MAX.to_string() };
        for k in 0..items {
            let key = encode.replace("KEY", &format!("keys[base + {}]", k * SUBGROUP));
            let _ = writeln!(text, "let key{k} = select({} < left, {key}, {most});", k * SUBGROUP);
        }
        for k in 0..items {
            let _ = writeln!(
                text,
                "let d{k} = {};\nvar same{k}: u32 = {};",
                self.digit(&format!("key{k}"), "shift"),
                u32::MAX
            );
            for bit in 0..BITS {
                let _ = writeln!(
                    text,
                    "let bit{k}_{bit} = (d{k} & {}) != 0;\nlet votes{k}_{bit} = subgroup.ballot(bit{k}_{bit});\n\
                     same{k} = same{k} & (votes{k}_{bit}.x ^ select(bit{k}_{bit}, 0, {}));",
                    1 << bit,
                    u32::MAX
                );
            }
            // The first lane of each digit counts for all; a barrier orders what is counted of one key after the other. Digit and rank
            // share a register.
            let _ = writeln!(
                text,
                "let below{k} = count_one_bits(same{k} & lower);\nvar seen{k}: u32 = 0;\nif below{k} == 0 {{\n\
                 let old = atomic.add(found[row + d{k}], count_one_bits(same{k}));\nseen{k} = old;\n}}\n\
                 let rank{k} = subgroup.shuffle(seen{k}, count_trailing_zeros(same{k})) + below{k};\n\
                 let both{k} = (rank{k} << {BITS}) | d{k};\nbarrier;"
            );
        }
        // Each of the first invocations cares for a digit: how many the subgroups before have, how many the tile, how many before it.
        let own: String = (0..subgroups).map(|s| format!("let own{s} = found[{} + l];\n", s * DIGITS)).collect();
        let sum: Vec<String> = (0..subgroups).map(|s| format!("own{s}")).collect();
        let _ = write!(
            text,
            "var count: u32 = 0;\nif l < {DIGITS} {{\n{own}count = {};\natomic.store(states[tile * {DIGITS} + l + 1], count | select(tile == 0, {ALL}, {OWN}));\n}}\n{}\
             if l < {DIGITS} {{\nvar place: u32 = before;\n",
            sum.join(" + "),
            before(lanes, "count")
        );
        for s in 0..subgroups {
            let _ = writeln!(
                text,
                "let own{s} = found[{0} + l];\nfound[{0} + l] = place;\nplace = place + own{s};",
                s * DIGITS
            );
        }
        text.push_str("}\nbarrier;\n");
        for k in 0..items {
            let _ = writeln!(
                text,
                "let place{k} = found[row + (both{k} & {})] + (both{k} >> {BITS});\nkept[place{k}] = key{k};",
                DIGITS - 1
            );
        }
        let _ = write!(
            text,
            "if l < {DIGITS} {{\nvar earlier: u32 = 0;\nif tile > 0 {{\nvar from: u32 = tile;\nloop {{\n\
             let told = atomic.load(states[(from - 1) * {DIGITS} + l + 1]);\nif told >= {OWN} {{\nearlier = earlier + (told & {COUNT});\nfrom = from - 1;\n}}\n\
             if told >= {ALL} {{\nbreak;\n}}\n}}\natomic.store(states[tile * {DIGITS} + l + 1], (earlier + count) | {ALL});\n}}\n\
             bases[l] = starts[sizes[3] + l] + earlier - before;\n}}\nbarrier;\nlet here = min(n - start, {tile});\nlet rest = here - min(here, l);\n"
        );
        for k in 0..items {
            let _ = writeln!(
                text,
                "let moved{k} = kept[l + {0}];\nlet to{k} = bases[{1}] + (l + {0});\nif {0} < rest {{\nout[to{k}] = {2};\n}}",
                k * lanes,
                self.digit(&format!("moved{k}"), "shift"),
                decode.replace("KEY", &format!("moved{k}"))
            );
        }
        if self.value_type.is_some() {
            for k in 0..items {
                let _ = writeln!(text, "kept_values[place{k}] = values[base + {}];", k * SUBGROUP);
            }
            text.push_str("barrier;\n");
            for k in 0..items {
                let _ = writeln!(text, "if {0} < rest {{\nout_values[to{k}] = kept_values[l + {0}];\n}}", k * lanes);
            }
        }
        text.push_str("}\n}\n");
        text
    }
}

/// Lines that give `before`, the sum of a value of the invocations before this one; `runs` is workgroup memory for it.
fn before(lanes: usize, value: &str) -> String {
    let subgroups = lanes / SUBGROUP;
    let sums: String = (0..subgroups.saturating_sub(1))
        .map(|s| format!("before = before + select({s} < l / {SUBGROUP}, runs[{s}], 0);\n"))
        .collect();
    format!(
        "let inside = subgroup.exclusive_add({value});\nif l % {SUBGROUP} == {} {{\nruns[l / {SUBGROUP}] = inside + {value};\n}}\nbarrier;\n\
         var before: u32 = inside;\n{sums}",
        SUBGROUP - 1
    )
}
