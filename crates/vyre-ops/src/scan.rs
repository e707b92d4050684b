//! Scans, and what puts elements where a scan of flags says.
//!
//! **Order.** A row is cut into chunks of one to four tiles; a tile is a run of 8 elements for each of 32 to 256 lanes. Runs are put together
//! from first to last, 32 neighbouring runs by doubling distances (1, 2, 4, 8, 16), and then first to last: these groups to tiles, tiles to
//! chunks, 32 chunks to spans and spans to rows. An element's result is what is before its span and in its span before its chunk, then before
//! its tile, its group and its run, each of which was put together by itself, and then its run up to it. Lanes and tiles depend on the length
//! of the row alone.
//!
//! Where workgroups make progress while others wait, a scan goes over the elements once: each workgroup takes the next chunk, tells its
//! value, and adds up what the chunks of its span and the spans before it told (decoupled look-back; Merrill and Garland, 2016), spans from the
//! nearest that knows everything before it, and all in order, so that floats are added as everywhere. So what is before a chunk is known as
//! soon as the chunks before it have been read, of which 1024 may be under way. Elsewhere it takes three passes. Where bulk copies are, a variant
//! has more chunks on their way (`bulk.rs`).

mod bulk;
mod host;
mod parts;
#[cfg(target_arch = "x86_64")]
mod wide;

use std::fmt::Write;

use vyre::expression::{Fused, Term};
use vyre::{Buffer, DataType, Engine, Error, Kernel};

use crate::fold::Fold;
use crate::launch::{
    GROUP, MOST, Traits, as_a_whole, count, grid, is_plain, magnitude, misfit, room, size_of, with_function,
};

const ITEMS: usize = 8;
const LANES: usize = 256;
const SUBGROUP: usize = 32;
/// Chunks of a span.
const SPAN: usize = 32;

/// A scan along rows and what is done with each element's prefix.
pub(crate) struct Scan<'a> {
    pub(crate) fold: Fold,
    /// The prefix includes the element.
    pub(crate) inclusive: bool,
    /// The expressions of each position: the first is scanned.
    pub(crate) terms: &'a [&'a Term],
    /// Elements along a row; all elements are rows one after the other.
    pub(crate) along: usize,
    /// Results besides: name, type, elements.
    pub(crate) outputs: &'a [(&'a str, DataType, usize)],
    /// What is done at each position: `VALUE0`, `VALUE1`… are the expressions, `PREFIX` is the prefix, `AT` the position.
    pub(crate) each: &'a str,
    /// What is done once for each row with `TOTAL`, by one invocation.
    pub(crate) end: &'a str,
    /// Every element of the results is written.
    pub(crate) covers: bool,
}

/// How rows are cut.
#[derive(Clone, Copy, Debug)]
struct Cut {
    lanes: usize,
    /// Tiles of a chunk.
    tiles: usize,
}

impl Cut {
    fn of(along: usize, most: usize) -> Cut {
        let lanes = along.div_ceil(ITEMS).next_power_of_two().clamp(SUBGROUP, LANES);
        Cut { lanes, tiles: along.div_ceil(lanes * ITEMS).clamp(1, most) }
    }

    fn tile(self) -> usize {
        self.lanes * ITEMS
    }

    fn chunk(self) -> usize {
        self.tile() * self.tiles
    }
}

/// How a workgroup comes to know what is before its chunk.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Before {
    /// A row is one chunk.
    Nothing,
    /// From the chunks before it, as they are done.
    LookBack,
    /// From an earlier pass.
    Offsets,
}

/// The ways that kernels may be written here.
struct Form {
    cut: Cut,
    subgroups: bool,
    /// Banks of workgroup memory count.
    padded: bool,
    /// The whole chunk stays in workgroup memory, which leaves registers to other workgroups.
    kept: bool,
}

impl Scan<'_> {
    /// The outputs, in their order.
    pub(crate) fn run(&self) -> Result<Vec<Buffer>, Error> {
        let op = || {
            let Scan { fold, outputs, along, .. } = self;
            // One line of all elements is one op to the router, however long it is.
            let lines = match count(self.terms) == *along {
                true => "all".to_owned(),
                false => format!("2^{}", magnitude(*along)),
            };
            format!("scan {:?} of {lines} to {}", fold.kind, outputs.len())
        };
        as_a_whole(op, self.terms, count(self.terms) / 4, || self.run_here())
    }

    fn run_here(&self) -> Result<Vec<Buffer>, Error> {
        let fused = Fused::new(self.terms)?;
        let engine = fused.engine().clone();
        let mut outputs: Vec<Buffer> =
            self.outputs.iter().map(|(_, ty, elements)| room(&engine, ty, *elements)).collect();
        let elements = fused.elements();
        if elements == 0 {
            return Ok(outputs);
        }
        if elements > MOST {
            return Err(misfit(format!("{elements} elements are more than a scan takes at once, which is {MOST}")));
        }
        let along = self.along.max(1);
        let rows = elements / along;
        let traits = Traits::of(&engine);
        // A chunk of wide elements is more than a kernel may have.
        let kept = traits.is_gpu && traits.memory >= 48 << 10 && size_of(&self.fold.ty) <= 4;
        // Several expressions need registers. They stand beside sums of whole numbers, which have no order.
        let cut = Cut::of(along, if self.terms.len() > 1 && !kept { 2 } else { 4 });
        let form = Form { cut, subgroups: traits.subgroups_on_gpu(), padded: traits.is_gpu, kept };
        let chunks = along.div_ceil(cut.chunk());
        let spans = chunks.div_ceil(SPAN);
        let sizes = [along, chunks, rows * chunks, spans].map(|size| size as u32);
        let before = match chunks {
            1 => Before::Nothing,
            // Workgroups on few threads would rather read twice than wait for each other; the function that processors have for it does not.
            _ if traits.waits && self.is_word() && (traits.is_gpu || self.has_function(&fused)) => Before::LookBack,
            _ => Before::Offsets,
        };
        let mut known = match before {
            Before::Nothing => None,
            // The first word counts the chunks that were taken; those of chunks and of spans follow.
            Before::LookBack => Some(room(&engine, &DataType::U64, 1 + rows * (chunks + spans))),
            Before::Offsets => Some(self.offsets(&fused, &form, &engine, rows, chunks, &sizes)?),
        };
        let kernel = self.kernel(&fused, &form, &engine, before)?;
        let mut call = fused.bind(kernel.call(), 0..elements).value("sizes", &sizes).grid(grid(rows * chunks));
        match (before, &mut known) {
            (Before::LookBack, Some(states)) => call = call.bind("states", states),
            (_, Some(offsets)) => call = call.bind("offsets", &*offsets),
            _ => {}
        }
        for ((name, ..), buffer) in self.outputs.iter().zip(&mut outputs) {
            call = call.bind(name, buffer);
        }
        if self.covers {
            call = call.overwrites();
        }
        call.launch()?;
        Ok(outputs)
    }

    /// Processors have a function for it.
    fn has_function(&self, fused: &Fused) -> bool {
        host::takes(self) && is_plain(self.terms[0], fused)
    }

    /// Values that fit into a word, beside which another says what it is.
    fn is_word(&self) -> bool {
        matches!(self.fold.ty, DataType::U32 | DataType::I32 | DataType::F32)
    }

    /// For each chunk everything before it in its row.
    fn offsets(
        &self,
        fused: &Fused,
        form: &Form,
        engine: &Engine,
        rows: usize,
        chunks: usize,
        sizes: &[u32; 4],
    ) -> Result<Buffer, Error> {
        let ty = &self.fold.ty;
        let mut totals = room(engine, ty, rows * chunks);
        let kernel = self.totals_kernel(fused, form, engine)?;
        fused
            .bind(kernel.call(), 0..fused.elements())
            .value("sizes", sizes)
            .bind("totals", &mut totals)
            .grid(grid(rows * chunks))
            .overwrites()
            .launch()?;
        let neutral = self.fold.neutral();
        // One invocation puts the values of a row's chunks together, which the others fetch and store.
        let source = format!(
            "read totals: {ty} @0;\nread sizes: u32 @1;\noutput offsets: {ty} @2;\nworkgroup values: {ty}[{LANES}] @0;\nworkgroup_size [{LANES}, 1, 1];\n\
             entry chain_chunks {{\n{GROUP}let l = local_index;\nlet chunks = sizes[0];\nif group < sizes[1] {{\nvar before: {ty} = {neutral};\nvar inside: {ty} = {neutral};\n\
             for r in 0..chunks step {LANES} {{\nlet own = r + l;\nlet at = group * chunks + own;\nvalues[l] = totals[at];\nbarrier;\nif l == 0 {{\n\
             for j in 0..{LANES} {{\nlet value = values[j];\nvalues[j] = {};\ninside = {};\nif j % {SPAN} == {SPAN} - 1 {{\nbefore = {};\ninside = {neutral};\n}}\n}}\n}}\n\
             barrier;\nif own < chunks {{\noffsets[at] = values[l];\n}}\nbarrier;\n}}\n}}\n}}\n",
            self.fold.combined("before", "inside"),
            self.fold.combined("inside", "value"),
            self.fold.combined("before", "inside")
        );
        let mut offsets = room(engine, ty, rows * chunks);
        engine
            .kernel_of_text(&source)?
            .bind("totals", &totals)
            .value("sizes", &[chunks as u32, rows as u32])
            .bind("offsets", &mut offsets)
            .grid(grid(rows))
            .overwrites()
            .launch()?;
        Ok(offsets)
    }

    fn key(&self, what: &str, fused: &Fused, form: &Form) -> String {
        let Scan { fold, inclusive, outputs, each, end, .. } = self;
        let Form { cut, subgroups, padded, kept } = form;
        let mut key =
            format!("scan {what} {} {inclusive} {each} {end} {cut:?} {subgroups} {padded} {kept} ", fold.kind as u8);
        outputs.iter().for_each(|(_, ty, _)| _ = write!(key, "{} ", ty.tag()));
        key.push_str(&fused.key());
        key
    }

    fn totals_kernel(&self, fused: &Fused, form: &Form, engine: &Engine) -> Result<Kernel, Error> {
        engine.kernel_from_with(&self.key("totals", fused, form), || {
            let at = fused.bindings();
            let mut text = fused.declarations(0, None);
            let _ = write!(
                text,
                "read sizes: u32 @{at};\noutput totals: {} @{};\n{}",
                self.fold.ty,
                at + 1,
                self.memory(form)
            );
            let _ = write!(text, "entry scan_totals {{\n{GROUP}{}", self.begin(fused, form));
            self.chunk(&mut text, fused, form);
            text.push_str("if l == 0 {\ntotals[group] = chunk_value;\n}\n}\n}\n");
            let function = self.has_function(fused).then(|| host::totals(&self.fold.ty, form.cut));
            Ok((crate::launch::parsed(&text)?, with_function(engine, function)))
        })
    }

    fn kernel(&self, fused: &Fused, form: &Form, engine: &Engine, before: Before) -> Result<Kernel, Error> {
        engine.kernel_from_with(&self.key(&format!("{before:?}"), fused, form), || {
            let ty = &self.fold.ty;
            let mut at = fused.bindings();
            let mut text = fused.declarations(0, None);
            let _ = writeln!(text, "read sizes: u32 @{at};");
            match before {
                Before::Nothing => {}
                Before::LookBack => {
                    at += 1;
                    let _ = writeln!(text, "read_write states: u64 @{at};");
                }
                Before::Offsets => {
                    at += 1;
                    let _ = writeln!(text, "read offsets: {ty} @{at};");
                }
            }
            for (name, ty, _) in self.outputs {
                at += 1;
                let kind = if self.each.contains(&format!("atomic.add({name}[")) { "read_write" } else { "output" };
                let _ = writeln!(text, "{kind} {name}: {ty} @{at};");
            }
            text.push_str(&self.memory(form));
            let neutral = self.fold.neutral();
            match before {
                Before::LookBack => {
                    // Chunks are taken in their order, so that all before one have been begun when it waits for them.
                    let _ = write!(
                        text,
                        "workgroup chunks: {ty}[{SPAN}] @0;\nworkgroup spans: {ty}[{SPAN}] @0;\nworkgroup nearest: u32[1] @0;\nworkgroup carried: {ty}[1] @0;\nworkgroup ticket: u32[1] @0;\n\
                         entry scan {{\nif local_index == 0 {{\nlet taken = atomic.add(states[0], 1u64);\nticket[0] = cast<u32>(taken);\n}}\nbarrier;\n\
                         let group = ticket[0];\nbarrier;\n"
                    );
                }
                _ => {
                    let _ = write!(text, "entry scan {{\n{GROUP}");
                }
            }
            text.push_str(&self.begin(fused, form));
            self.chunk(&mut text, fused, form);
            match before {
                Before::Nothing => {
                    let _ = writeln!(text, "let carry = {neutral};");
                }
                Before::Offsets => text.push_str("let carry = offsets[group];\n"),
                Before::LookBack => self.look_back(&mut text),
            }
            // Read again, the number costs less than the registers that would keep what follows from it all the while.
            let group = if before == Before::LookBack { "ticket[0]" } else { "group" };
            let _ = write!(text, "let group_again = {group};\n{}", self.position(form, "group_again", "_again"));
            self.store(&mut text, fused, form);
            if !self.end.is_empty() {
                let end = self.end.replace("TOTAL", &format!("({})", self.fold.combined("carry", "chunk_value")));
                let _ = writeln!(text, "if (l == 0) & (chunk + 1 == sizes[1]) {{\n{end}\n}}");
            }
            text.push_str("}\n}\n");
            let function = self.has_function(fused).then(|| host::scanned(self, form.cut, before));
            let bulk = (function.is_some() && before == Before::LookBack).then(|| bulk::variant(self, form.cut));
            let code = function.into_iter().chain(bulk.flatten());
            Ok((crate::launch::parsed(&text)?, with_function(engine, code)))
        })
    }
}
