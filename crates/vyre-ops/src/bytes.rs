//! Where patterns of bytes begin: one, or many at once.
//!
//! A first pass goes over all bytes and counts for blocks of them, and a second one looks only at those where something was found. One pattern
//! is looked for by the two of its bytes that are probably the rarest; where processors are all there is, in one pass. Of many, the first two bytes are looked up in a table of bits, and what
//! passes walks down the tree of the patterns from there (Lin et al., 2013).

mod host;

use std::fmt::Write;

use vyre::expression::Term;
use vyre::{Array, Buffer, DataType, Engine, Error, Shape};

use crate::fold::{Fold, Kind};
use crate::host::variant;
use crate::launch::{
    GROUP, Traits, as_a_whole, count, engine, extents, grid, misfit, misfit_with, mistyped, parsed, room, runnable,
    with_function, with_variants,
};
use crate::output::Output;
use crate::scan::Scan;
use crate::select::Counted;

const LANES: usize = 256;
/// Positions of an invocation.
const ITEMS: usize = 16;
/// Positions that are looked at before the first of them is looked at again.
const AT_ONCE: usize = 4;
/// Positions of a workgroup.
const BLOCK: usize = LANES * ITEMS;
/// Bits of a word, and how many words of them an invocation has that searches in one pass.
const BITS: usize = 32;
const WORDS: usize = 8;
/// Positions of a workgroup of such, so that few wait for each other.
const LONG_BLOCK: usize = LANES * BITS * WORDS;
/// Bytes whose positions a u32 can count, up to the end of the last block.
const MOST_BYTES: usize = u32::MAX as usize - 2 * LONG_BLOCK;
/// Words of the table of pairs of bytes.
const PAIRS: usize = (1 << 16) / 32;
/// How many were found before, and all of them.
const SUM: Fold = Fold { kind: Kind::Sum, ty: DataType::U32 };
/// Words of tables that are made of patterns.
const MOST_WORDS: usize = 1 << 26;

/// Patterns that are looked for together, ready for searches.
///
/// ```
/// # fn main() -> Result<(), vyre::Error> {
/// let engine = vyre::Engine::builder().without_disk().open()?;
/// let text = engine.array(b"she sells sea shells")?;
/// let found = vyre_ops::Patterns::new(&engine, &[b"sea", b"she", b"shell"])?.find(&text, 10)?;
/// assert_eq!(found.positions.to_vec()?, [0, 10, 14]);
/// assert_eq!(found.patterns.to_vec()?[..3], [1, 0, 2]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Patterns {
    engine: Engine,
    form: Form,
    shortest: usize,
    /// The bytes of the pattern, or all tables.
    data: Buffer,
    /// What the kernels are told about them.
    told: [u32; 4],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Pair,
    Tree,
}

/// What a search found.
pub struct Found {
    /// Where patterns begin, ascending.
    pub positions: Counted<u32>,
    /// Which begins there, by its place in the list; of several the longest.
    pub patterns: Array<u32>,
}

impl Patterns {
    /// Patterns, each of one byte or more. Of equal ones the first is found.
    pub fn new(engine: &Engine, patterns: &[&[u8]]) -> Result<Patterns, Error> {
        let Some(shortest) = patterns.iter().map(|pattern| pattern.len()).min() else {
            return Err(misfit_with("there is no pattern to look for", "Give one pattern at least."));
        };
        if shortest == 0 {
            return Err(misfit_with(
                "a pattern of no bytes is everywhere; it can't be looked for",
                "Leave empty patterns out.",
            ));
        }
        let (form, data, told) = match patterns {
            [one] => {
                let [first, second] = rarest(one);
                let told = [first as u32, second as u32, u32::from(one[first]), u32::from(one[second])];
                (Form::Pair, engine.buffer_of(one)?, told)
            }
            _ => {
                let Tables { words, states, classes } = Tables::of(patterns)?;
                let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
                (Form::Tree, engine.buffer_of(&bytes)?, [states as u32, classes as u32, 0, 0])
            }
        };
        Ok(Patterns { engine: engine.clone(), form, shortest, data, told })
    }

    /// The first occurrences, up to so many; they may overlap.
    pub fn find(&self, bytes: &Array<u8>, most: usize) -> Result<Found, Error> {
        let [positions, patterns, count] = self.search(&bytes.lazy().term().clone(), most)?;
        Ok(Found { positions: Counted::of([positions, count])?, patterns: patterns.typed()? })
    }

    /// How many positions there are where a pattern begins.
    pub fn count(&self, bytes: &Array<u8>) -> Result<Array<u32>, Error> {
        let (buffer, length) = haystack(bytes.lazy().term())?;
        let starts = (length + 1).saturating_sub(self.shortest);
        let counts = self.counted(&buffer, length, starts)?;
        let sum = crate::reduce::reduce(&counts, None, Kind::Sum, None, &DataType::U32)?.swap_remove(0);
        Output { buffer: sum, ty: DataType::U32, shape: Vec::new() }.typed()
    }

    /// Positions, patterns, and how many there are of both.
    fn search(&self, bytes: &Term, most: usize) -> Result<[Output; 3], Error> {
        let op = || format!("search {:?} {}", self.form, self.shortest);
        as_a_whole(op, &[bytes], count(&[bytes]) / 16, || self.search_here(bytes, most))
    }

    fn search_here(&self, bytes: &Term, most: usize) -> Result<[Output; 3], Error> {
        let (buffer, length) = haystack(bytes)?;
        let starts = (length + 1).saturating_sub(self.shortest);
        let most = most.min(starts);
        let word = |buffer: Buffer, shape: Vec<usize>| Output { buffer, ty: DataType::U32, shape };
        let mut positions = room(&self.engine, &DataType::U32, most);
        let mut patterns = room(&self.engine, &DataType::U32, most);
        let traits = Traits::of(&self.engine);
        if self.form == Form::Pair && traits.waits && !traits.is_gpu && most > 0 {
            let count = self.search_once(&buffer, &mut positions, [length, starts, most])?;
            // There is one pattern, and its place is 0, as all elements are that nobody wrote.
            return Ok([word(positions, vec![most]), word(patterns, vec![most]), word(count, Vec::new())]);
        }
        if most == 0 {
            let none = room(&self.engine, &DataType::U32, 1);
            return Ok([word(positions, vec![0]), word(patterns, vec![0]), word(none, Vec::new())]);
        }
        let counts = self.counted(&buffer, length, starts)?;
        let blocks = starts.div_ceil(BLOCK);
        let scan = Scan {
            fold: SUM,
            inclusive: false,
            terms: &[&counts],
            along: blocks,
            outputs: &[("out", DataType::U32, blocks), ("count", DataType::U32, 1)],
            each: "out[AT] = PREFIX;",
            end: &format!("count[0] = min(TOTAL, {most});"),
            covers: true,
        };
        let mut scanned = scan.run()?;
        let (count, before) = (scanned.swap_remove(1), scanned.swap_remove(0));
        let kernel = self.engine.kernel_from_with(&format!("matches {:?}", self.form), || {
            let function = (self.form == Form::Pair).then(|| variant("memchr", 1, host::find_pair));
            Ok((parsed(&self.form.matches_source())?, with_function(&self.engine, function)))
        })?;
        let counts = counts.evaluate()?;
        let sizes = self.sizes(length, starts, most);
        let call = kernel.bind("x", &buffer).bind("data", &self.data).value("sizes", &sizes);
        let call = call.bind("counts", &counts).bind("before", &before);
        call.bind("out", &mut positions).bind("which", &mut patterns).grid(grid(blocks)).launch()?;
        Ok([word(positions, vec![most]), word(patterns, vec![most]), word(count, Vec::new())])
    }

    /// One pattern in one pass. Gives how often it was found.
    fn search_once(
        &self,
        bytes: &Buffer,
        positions: &mut Buffer,
        [length, starts, most]: [usize; 3],
    ) -> Result<Buffer, Error> {
        let kernel = self.engine.kernel_from_with("find a pattern in one pass", || {
            let function = Some(variant("memchr in one pass", 1, host::find_once));
            Ok((parsed(&Form::Pair.once_source())?, with_function(&self.engine, function)))
        })?;
        let blocks = starts.div_ceil(LONG_BLOCK);
        // How many blocks were taken, and how often it was found up to each of them, and one more.
        let mut states = room(&self.engine, &DataType::U32, 1 + blocks);
        let mut count = room(&self.engine, &DataType::U32, 1);
        let mut sizes = self.sizes(length, starts, most);
        sizes[2] = blocks as u32;
        let call = kernel.bind("x", bytes).bind("data", &self.data).value("sizes", &sizes).bind("states", &mut states);
        // Who runs instead of the kernel says how much of the result's memory is still zeros, which so need not be written again.
        call.bind("out", positions).bind("count", &mut count).grid(grid(blocks)).launch()?;
        Ok(count)
    }

    fn sizes(&self, length: usize, starts: usize, most: usize) -> [u32; 8] {
        let [a, b, c, d] = self.told;
        let blocks = starts.div_ceil(BLOCK);
        let (length, starts) = (length as u32, starts as u32);
        [length, starts, blocks as u32, most.min(u32::MAX as usize) as u32, a, b, c, d]
    }

    /// How many patterns begin in each block.
    fn counted(&self, bytes: &Buffer, length: usize, starts: usize) -> Result<Term, Error> {
        let blocks = starts.div_ceil(BLOCK);
        let mut counts = room(&self.engine, &DataType::U32, blocks);
        if blocks > 0 {
            let kernel = self.engine.kernel_from_with(&format!("count matches {:?}", self.form), || {
                let variant = match self.form {
                    Form::Pair => variant("memchr", 1, host::count_pair),
                    Form::Tree => variant("aho-corasick", 1, host::count_tree),
                };
                Ok((parsed(&self.form.count_source())?, with_variants(runnable(&self.engine, vec![variant]))))
            })?;
            let sizes = self.sizes(length, starts, 0);
            let call = kernel.bind("x", bytes).bind("data", &self.data).value("sizes", &sizes);
            call.bind("counts", &mut counts).grid(grid(blocks)).overwrites().launch()?;
        }
        Ok(Term::array(counts, DataType::U32, Shape::from(blocks)))
    }
}

/// Positions where a pattern begins, ascending: the first of them, up to so many.
pub fn find_bytes(bytes: &Array<u8>, pattern: &[u8], most: usize) -> Result<Counted<u32>, Error> {
    let engine = engine(bytes.lazy().term())?;
    Ok(Patterns::new(&engine, &[pattern])?.find(bytes, most)?.positions)
}

/// For the registry: the bytes of all patterns, and where each begins and the last ends.
pub(crate) fn find_all(bytes: &Term, patterns: &Term, offsets: &Term, most: usize) -> Result<Vec<Output>, Error> {
    let (all, length) = haystack(patterns)?;
    if *offsets.data_type() != DataType::U32 {
        return Err(mistyped(format!("offsets are u32, not {}", offsets.data_type())));
    }
    let (all, offsets) = (all.to_vec()?, offsets.evaluate()?.to_vec()?);
    let offsets: Vec<usize> = offsets.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word) as usize).collect();
    let part = |ends: &[usize]| {
        all.get(ends[0]..ends[1]).ok_or_else(|| misfit(format!("offsets {ends:?} are not in {length} bytes")))
    };
    let parts = offsets.windows(2).map(part).collect::<Result<Vec<&[u8]>, Error>>()?;
    Ok(Patterns::new(&engine(bytes)?, &parts)?.search(bytes, most)?.into())
}

/// For the registry: one pattern.
pub(crate) fn find_one(bytes: &Term, pattern: &Term, most: usize) -> Result<Vec<Output>, Error> {
    let pattern = haystack(pattern)?.0.to_vec()?;
    let [positions, _, count] = Patterns::new(&engine(bytes)?, &[&pattern])?.search(bytes, most)?;
    Ok(vec![positions, count])
}

/// The bytes of a term and how many there are.
fn haystack(bytes: &Term) -> Result<(Buffer, usize), Error> {
    let length: usize = extents(bytes)?.iter().product();
    if length > MOST_BYTES {
        return Err(misfit(format!("{length} bytes are more than are searched at once, which is {MOST_BYTES}")));
    }
    match bytes.stored() {
        Some((buffer, DataType::U8)) => Ok((buffer.clone(), length)),
        _ => Err(mistyped(format!("bytes are an array of u8, not of {}", bytes.data_type()))),
    }
}

/// The places of the two bytes that probably occur least in texts and in data.
fn rarest(pattern: &[u8]) -> [usize; 2] {
    let often = |byte: u8| match byte {
        b' ' | 0 => 6,
        b'e' | b't' | b'a' | b'o' | b'i' | b'n' | b's' | b'r' | b'\n' | 0xff => 5,
        b'a'..=b'z' => 4,
        b'0'..=b'9' | b',' | b'.' | b'-' | b'_' => 3,
        b'A'..=b'Z' => 2,
        b'!'..=b'~' => 1,
        _ => 0,
    };
    let mut places: Vec<usize> = (0..pattern.len()).collect();
    places.sort_by_key(|&place| (often(pattern[place]), place));
    [places[0], *places.get(1).unwrap_or(&places[0])]
}

/// The tree of patterns: bits of the pairs that begin one, classes of bytes that patterns don't tell apart, which pattern ends at a state
/// (counted from 1), and the next state for each state and class, 0 where there is none.
struct Tables {
    words: Vec<u32>,
    states: usize,
    classes: usize,
}

impl Tables {
    fn of(patterns: &[&[u8]]) -> Result<Tables, Error> {
        let mut class_of = [0u32; 256];
        let mut classes = 1;
        for &byte in patterns.iter().copied().flatten() {
            if class_of[usize::from(byte)] == 0 {
                class_of[usize::from(byte)] = classes;
                classes += 1;
            }
        }
        let classes = classes as usize;
        let total: usize = patterns.iter().map(|pattern| pattern.len()).sum();
        if (total + 1) * (classes + 1) + PAIRS + 256 > MOST_WORDS {
            return Err(misfit(format!("patterns of {total} bytes together are more than one search takes")));
        }
        let (mut pairs, mut ends, mut next) = (vec![0u32; PAIRS], vec![0u32], vec![0u32; classes]);
        for (pattern, number) in patterns.iter().zip(1..) {
            let seconds = if pattern.len() > 1 { pattern[1]..=pattern[1] } else { 0..=255 };
            for second in seconds {
                let pair = usize::from(pattern[0]) | usize::from(second) << 8;
                pairs[pair / 32] |= 1 << (pair % 32);
            }
            let mut state = 0;
            for &byte in *pattern {
                let place = state * classes + class_of[usize::from(byte)] as usize;
                if next[place] == 0 {
                    next[place] = ends.len() as u32;
                    ends.push(0);
                    next.resize(next.len() + classes, 0);
                }
                state = next[place] as usize;
            }
            if ends[state] == 0 {
                ends[state] = number;
            }
        }
        let states = ends.len();
        let words = [pairs, class_of.to_vec(), ends, next].concat();
        Ok(Tables { words, states, classes })
    }
}

impl Form {
    fn declarations(self) -> String {
        let data = if self == Form::Pair { "u8" } else { "u32" };
        format!("read x: u8 @0;\nread data: {data} @1;\nread sizes: u32 @2;\n")
    }

    /// What is the same for all positions.
    fn begin(self) -> &'static str {
        match self {
            Form::Pair => {
                "let last = sizes[1];\nlet near_first = sizes[4];\nlet near_second = sizes[5];\nlet first = sizes[6];\nlet second = sizes[7];\n"
            }
            Form::Tree => "let last = sizes[1];\n",
        }
    }

    /// Whether a pattern may begin at `i{k}`.
    fn near(self, k: usize) -> String {
        match self {
            Form::Pair => format!(
                "let near{k} = (x[i{k} + near_first] == first) & (x[i{k} + near_second] == second) & (i{k} < last);\n"
            ),
            Form::Tree => format!(
                "let pair{k} = x[i{k}] | (x[i{k} + 1] << 8);\nlet near{k} = (((data[pair{k} >> 5] >> (pair{k} & 31)) & 1) == 1) & (i{k} < last);\n"
            ),
        }
    }

    /// Which pattern begins at `i{k}`, counted from 1, in `hit{k}`.
    fn exact(self, k: usize) -> String {
        match self {
            Form::Pair => format!(
                "var hit{k}: u32 = 1;\nfor j in 0..len(data) {{\nif x[i{k} + j] != data[j] {{\nhit{k} = 0;\nbreak;\n}}\n}}\n"
            ),
            Form::Tree => format!(
                "var hit{k}: u32 = 0;\nvar state{k}: u32 = 0;\nfor j in i{k}..sizes[0] {{\n\
                 let next = data[{} + sizes[4] + state{k} * sizes[5] + data[{PAIRS} + x[j]]];\nif next == 0 {{\nbreak;\n}}\nstate{k} = next;\n\
                 let end = data[{} + next];\nif end != 0 {{\nhit{k} = end;\n}}\n}}\n",
                PAIRS + 256,
                PAIRS + 256
            ),
        }
    }

    fn count_source(self) -> String {
        let mut text = self.declarations();
        let _ = write!(
            text,
            "output counts: u32 @3;\nworkgroup found: u32[1] @0;\nworkgroup_size [{LANES}, 1, 1];\nentry count_matches {{\n{GROUP}let l = local_index;\n{}\
             if group < sizes[2] {{\nlet start = group * {BLOCK} + l;\nvar own: u32 = 0;\nfor r in 0..{ITEMS} step {AT_ONCE} {{\n",
            self.begin()
        );
        for k in 0..AT_ONCE {
            let _ = write!(text, "let i{k} = start + (r + {k}) * {LANES};\n{}", self.near(k));
        }
        let any: Vec<String> = (0..AT_ONCE).map(|k| format!("near{k}")).collect();
        let _ = writeln!(text, "if {} {{", any.join(" | "));
        for k in 0..AT_ONCE {
            let _ = write!(text, "if near{k} {{\n{}own = own + min(hit{k}, 1);\n}}\n", self.exact(k));
        }
        text.push_str(
            "}\n}\nif own != 0 {\natomic.add(found[0], own);\n}\nbarrier;\nif l == 0 {\ncounts[group] = found[0];\n}\n}\n}\n",
        );
        text
    }

    /// Both passes in one: blocks are taken in their order, and each waits for the one before it to tell how many were found up to there. The
    /// last one clears what is left of the result.
    fn once_source(self) -> String {
        let mut text = self.declarations();
        let _ = write!(
            text,
            "read_write states: u32 @3;\noutput out: u32 @4;\noutput count: u32 @5;\nworkgroup runs: u32[{}] @0;\nworkgroup held: u32[{}] @0;\nworkgroup ticket: u32[1] @0;\nworkgroup found: u32[1] @0;\n\
             workgroup_size [{LANES}, 1, 1];\nentry find_matches {{\nlet l = local_index;\nif l == 0 {{\nlet taken = atomic.add(states[0], 1);\n\
             ticket[0] = taken;\n}}\nbarrier;\nlet group = ticket[0];\nbarrier;\n{}if group < sizes[2] {{\n{}",
            2 * LANES,
            WORDS * LANES,
            self.begin(),
            self.words()
        );
        let from = SUM.doubled(&mut text, "l", LANES, LANES);
        let _ = write!(
            text,
            "let own = runs[{from} + {}];\nif l == 0 {{\nvar before: u32 = 1;\nif group > 0 {{\nloop {{\nlet seen = atomic.load(states[group]);\n\
             before = seen;\nif seen != 0 {{\nbreak;\n}}\n}}\n}}\natomic.store(states[group + 1], before + own);\nfound[0] = before - 1;\n}}\n\
             barrier;\nlet before = found[0];\nvar place: u32 = before + runs[l + {from}] - many;\nfor w in 0..{WORDS} {{\n\
             let bits = held[w * {LANES} + l];\nfor r in 0..{BITS} {{\nif ((bits >> r) & 1) == 1 {{\nif place < sizes[3] {{\n\
             out[place] = start + w * {BITS} + r;\n}}\nplace = place + 1;\n}}\n}}\n}}\n\
             if group + 1 == sizes[2] {{\nlet all = min(before + own, sizes[3]);\nif l == 0 {{\ncount[0] = all;\n}}\n\
             for i in all..sizes[3] step {LANES} {{\nif i + l < sizes[3] {{\nout[i + l] = 0;\n}}\n}}\n}}\n}}\n}}\n",
            LANES - 1
        );
        text
    }

    /// Which of the neighbouring positions of an invocation begin a pattern, and how many do in `runs`.
    fn bits(self) -> String {
        format!(
            "let start = group * {BLOCK} + l * {ITEMS};\nvar bits: u32 = 0;\nfor r in 0..{ITEMS} {{\nlet i0 = start + r;\n{}if near0 {{\n{}\
             bits = bits | (min(hit0, 1) << r);\n}}\n}}\nruns[l] = count_one_bits(bits);\nbarrier;\n",
            self.near(0),
            self.exact(0)
        )
    }

    /// The same of many more positions: which they are in `held`, and how many in `runs`.
    fn words(self) -> String {
        format!(
            "let start = group * {LONG_BLOCK} + l * {};\nvar many: u32 = 0;\nfor w in 0..{WORDS} {{\nvar bits: u32 = 0;\nfor r in 0..{BITS} {{\n\
             let i0 = start + w * {BITS} + r;\n{}if near0 {{\n{}bits = bits | (min(hit0, 1) << r);\n}}\n}}\nheld[w * {LANES} + l] = bits;\n\
             many = many + count_one_bits(bits);\n}}\nruns[l] = many;\nbarrier;\n",
            BITS * WORDS,
            self.near(0),
            self.exact(0)
        )
    }

    /// Neighbouring positions belong to an invocation, so that a scan of how many each has found says where they go.
    fn matches_source(self) -> String {
        let mut text = self.declarations();
        let _ = write!(
            text,
            "read counts: u32 @3;\nread before: u32 @4;\nread_write out: u32 @5;\nread_write which: u32 @6;\nworkgroup runs: u32[{}] @0;\n\
             workgroup_size [{LANES}, 1, 1];\nentry find_matches {{\n{GROUP}let l = local_index;\n{}if group < sizes[2] {{\nif counts[group] != 0 {{\n{}",
            2 * LANES,
            self.begin(),
            self.bits()
        );
        let from = SUM.doubled(&mut text, "l", LANES, LANES);
        let _ = write!(
            text,
            "var place: u32 = before[group] + runs[l + {from}] - count_one_bits(bits);\nfor r in 0..{ITEMS} {{\nif ((bits >> r) & 1) == 1 {{\n\
             if place < sizes[3] {{\nlet i0 = start + r;\n{}out[place] = i0;\nwhich[place] = hit0 - 1;\n}}\nplace = place + 1;\n}}\n}}\n}}\n}}\n}}\n",
            self.exact(0)
        );
        text
    }
}
