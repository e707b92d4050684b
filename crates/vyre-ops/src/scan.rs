//! Scans, and what puts elements where a scan of flags says.
//!
//! **Order.** A row is cut into chunks of whole tiles of 2048 elements. The value of a chunk is put together as reductions are: 256 columns,
//! then halves. Chunk values are scanned by the same rule. Within a tile each run of 8 elements is put together from first to last, the 256
//! runs by doubling distances (1, 2, 4 …), and an element's result is (everything before the tile, then the runs before its own), then its run
//! up to it. How many tiles a chunk has depends on the length of the row alone.

use std::fmt::Write;

use vyre::expression::{Fused, Term};
use vyre::{Buffer, DataType, Engine, Error, Kernel, Shape};

use crate::fold::Fold;
use crate::launch::{GROUP, MOST, grid, misfit, room};

const LANES: usize = 256;
const ITEMS: usize = 8;
const TILE: usize = LANES * ITEMS;

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
}

/// Tiles of a chunk: many chunks keep every core of a device busy, few are scanned soon.
fn tiles_of(along: usize) -> usize {
    (along / TILE / 2048).clamp(1, 64)
}

impl Scan<'_> {
    /// The outputs, in their order.
    pub(crate) fn run(&self) -> Result<Vec<Buffer>, Error> {
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
        let tiles = tiles_of(along);
        let chunks = along.div_ceil(tiles * TILE);
        let sizes = [along, chunks, tiles, rows * chunks].map(|size| size as u32);
        let offsets = match chunks {
            1 => None,
            _ => Some(self.offsets(&fused, &engine, rows, chunks, &sizes)?),
        };
        let kernel = self.kernel(&fused, &engine, offsets.is_some())?;
        let mut call = fused.bind(kernel.call(), 0..elements).value("sizes", &sizes).grid(grid(rows * chunks));
        if let Some(offsets) = &offsets {
            call = call.bind("offsets", offsets);
        }
        for ((name, ..), buffer) in self.outputs.iter().zip(&mut outputs) {
            call = call.bind(name, buffer);
        }
        call.launch()?;
        Ok(outputs)
    }

    /// For each chunk everything before it in its row.
    fn offsets(
        &self,
        fused: &Fused,
        engine: &Engine,
        rows: usize,
        chunks: usize,
        sizes: &[u32; 4],
    ) -> Result<Buffer, Error> {
        let mut totals = room(engine, &self.fold.ty, rows * chunks);
        let kernel = self.totals_kernel(fused, engine)?;
        fused
            .bind(kernel.call(), 0..fused.elements())
            .value("sizes", sizes)
            .bind("totals", &mut totals)
            .grid(grid(rows * chunks))
            .launch()?;
        let term = Term::array(totals, self.fold.ty.clone(), Shape::from([rows, chunks]));
        let scan = Scan {
            fold: self.fold.clone(),
            inclusive: false,
            terms: &[&term],
            along: chunks,
            outputs: &[("out", self.fold.ty.clone(), rows * chunks)],
            each: "out[AT] = PREFIX;",
            end: "",
        };
        Ok(scan.run()?.swap_remove(0))
    }

    fn key(&self, what: &str, fused: &Fused) -> String {
        let (lines, values) = fused.lines("i", "");
        let Scan { fold, inclusive, outputs, each, end, .. } = self;
        let types: Vec<&DataType> = outputs.iter().map(|(_, ty, _)| ty).collect();
        let declarations = fused.declarations(0);
        format!(
            "scan {what} {:?} {inclusive} {types:?} {each} {end}\n{declarations}{}{lines}{values:?}",
            fold.kind,
            fused.uniform_lines()
        )
    }

    /// Where a workgroup is: row, chunk, first element along the row.
    fn begin(&self, fused: &Fused) -> String {
        format!(
            "{GROUP}let l = local_index;\nlet n = sizes[0];\nlet chunks = sizes[1];\n{}if group < sizes[3] {{\nlet row = group / chunks;\n\
             let start = group % chunks * sizes[2] * {TILE};\n",
            fused.uniform_lines()
        )
    }

    fn totals_kernel(&self, fused: &Fused, engine: &Engine) -> Result<Kernel, Error> {
        engine.kernel_from(&self.key("totals", fused), || {
            let Fold { ty, .. } = &self.fold;
            let neutral = self.fold.neutral();
            let at = fused.bindings();
            let mut text = fused.declarations(0);
            let _ = write!(
                text,
                "read sizes: u32 @{at};\noutput totals: {ty} @{};\nworkgroup tile: {ty}[{LANES}] @0;\nworkgroup_size [{LANES}, 1, 1];\n\
                 entry scan_totals {{\n{}var sum: {ty} = {neutral};\nlet end = min(n, start + sizes[2] * {TILE});\n\
                 let rounds = (end - start + {}) / {TILE};\nfor r in 0..rounds {{\n",
                at + 1,
                self.begin(fused),
                TILE - 1
            );
            for k in 0..ITEMS {
                let _ = writeln!(text, "let a{k} = start + r * {TILE} + {} + l;\nlet at{k} = row * n + a{k};", k * LANES);
                let (lines, values) = fused.lines(&format!("at{k}"), &format!("_{k}"));
                let _ = writeln!(text, "{lines}let g{k} = select(a{k} < end, {}, {neutral});", values[0]);
                let _ = writeln!(text, "sum = {};", self.fold.combined("sum", &format!("g{k}")));
            }
            text.push_str("}\ntile[l] = sum;\nbarrier;\n");
            let mut half = LANES / 2;
            while half > 0 {
                let combined = self.fold.combined("tile[l]", &format!("tile[l + {half}]"));
                let _ = writeln!(text, "if l < {half} {{\ntile[l] = {combined};\n}}\nbarrier;");
                half /= 2;
            }
            text.push_str("if l == 0 {\ntotals[group] = tile[0];\n}\n}\n}\n");
            Ok(vyre::text::parse(&text)?)
        })
    }

    fn kernel(&self, fused: &Fused, engine: &Engine, has_offsets: bool) -> Result<Kernel, Error> {
        let what = if has_offsets { "chunks" } else { "one" };
        engine.kernel_from(&self.key(what, fused), || {
            let Fold { ty, .. } = &self.fold;
            let neutral = self.fold.neutral();
            let mut at = fused.bindings();
            let mut text = fused.declarations(0);
            let _ = writeln!(text, "read sizes: u32 @{at};");
            if has_offsets {
                at += 1;
                let _ = writeln!(text, "read offsets: {ty} @{at};");
            }
            for (name, ty, _) in self.outputs {
                at += 1;
                let _ = writeln!(text, "output {name}: {ty} @{at};");
            }
            // One element of padding in 32 keeps the lanes on different banks.
            let padded = TILE + TILE / 32;
            let pad = |index: String| format!("({index}) + ({index}) / 32");
            let _ = write!(
                text,
                "workgroup tile: {ty}[{padded}] @0;\nworkgroup runs: {ty}[{}] @0;\nworkgroup_size [{LANES}, 1, 1];\nentry scan {{\n{}\
                 var carry: {ty} = {};\nlet rounds = min(sizes[2], (n - start + {}) / {TILE});\nfor r in 0..rounds {{\n",
                2 * LANES,
                self.begin(fused),
                if has_offsets { "offsets[group]" } else { &neutral },
                TILE - 1
            );
            for k in 0..ITEMS {
                let _ = writeln!(text, "let a{k} = start + r * {TILE} + {} + l;\nlet at{k} = row * n + a{k};", k * LANES);
                let (lines, values) = fused.lines(&format!("at{k}"), &format!("_{k}"));
                let place = pad(format!("l + {}", k * LANES));
                let _ = writeln!(text, "{lines}tile[{place}] = select(a{k} < n, {}, {neutral});", values[0]);
            }
            text.push_str("barrier;\n");
            for k in 0..ITEMS {
                let own = format!("tile[{}]", pad(format!("l * {ITEMS} + {k}")));
                let value = if k == 0 { own } else { self.fold.combined(&format!("s{}_own", k - 1), &own) };
                let _ = writeln!(text, "let s{k}_own = {value};");
            }
            let _ = writeln!(text, "runs[l] = s{}_own;\nbarrier;", ITEMS - 1);
            let (mut distance, mut from, mut to) = (1, 0, LANES);
            while distance < LANES {
                let combined = self.fold.combined(&format!("runs[l + {from} - {distance}]"), &format!("runs[l + {from}]"));
                let _ = writeln!(
                    text,
                    "if l >= {distance} {{\nruns[l + {to}] = {combined};\n}} else {{\nruns[l + {to}] = runs[l + {from}];\n}}\nbarrier;"
                );
                distance *= 2;
                std::mem::swap(&mut from, &mut to);
            }
            let before = self.fold.combined("carry", &format!("runs[l + {from} - 1]"));
            let _ = writeln!(text, "var before: {ty} = carry;\nif l > 0 {{\nbefore = {before};\n}}");
            for k in 0..ITEMS {
                let value = match (self.inclusive, k) {
                    (true, _) => self.fold.combined("before", &format!("s{k}_own")),
                    (false, 0) => "before".to_owned(),
                    (false, _) => self.fold.combined("before", &format!("s{}_own", k - 1)),
                };
                let _ = writeln!(text, "tile[{}] = {value};", pad(format!("l * {ITEMS} + {k}")));
            }
            let total = self.fold.combined("carry", &format!("runs[{}]", from + LANES - 1));
            let _ = writeln!(text, "let total = {total};\nbarrier;\ncarry = total;");
            for k in 0..ITEMS {
                let (_, values) = fused.lines(&format!("at{k}"), &format!("_{k}"));
                let mut each = self.each.replace("PREFIX", &format!("p{k}")).replace("AT", &format!("at{k}"));
                for (at, value) in values.iter().enumerate() {
                    each = each.replace(&format!("VALUE{at}"), value);
                }
                let place = pad(format!("l + {}", k * LANES));
                let _ = writeln!(text, "if a{k} < n {{\nlet p{k} = tile[{place}];\n{each}\n}}");
            }
            text.push_str("barrier;\n}\n");
            if !self.end.is_empty() {
                let end = self.end.replace("TOTAL", "carry");
                let _ = writeln!(text, "if (l == 0) & (group % chunks + 1 == chunks) {{\n{end}\n}}");
            }
            text.push_str("}\n}\n");
            Ok(vyre::text::parse(&text)?)
        })
    }
}
