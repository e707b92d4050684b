//! Reductions, whole or along an axis, fused with the expression that feeds them.
//!
//! **Order.** Along the axis elements are taken in blocks of 16384. Element `i` of a block belongs to column `i mod 256`; each column is put
//! together from its first element to its last, and the 256 columns by halves: column `c` with `c + 128`, then with `c + 64`, down to one.
//! The values of the blocks are put together by the same rule. So a result depends on nothing but the elements, on every backend.
//!
//! A workgroup has a block, and another launch puts together what they give. Where processors are all there is, sums of all elements of an
//! array are one launch, in which the workgroup that is done last does that.

mod host;

use std::fmt::Write;
use std::ops::Range;

use vyre::expression::{Fused, Term};
use vyre::variant::Variant;
use vyre::{Buffer, DataType, Engine, Error, Shape};

use crate::fold::{Fold, Kind};
use crate::launch::{
    GROUP, MOST, Traits, as_a_whole, count, engine, extents, grid, is_plain, kernel_of_forms_or, magnitude, misfit,
    parsed, room, split, with_function,
};
use crate::tuning::Axis;

/// Columns of a block.
const COLUMNS: usize = 256;
/// Elements of a block.
const BLOCK: usize = 16384;
/// How blocks of whole rows are cut: invocations, which have a column each or several, elements of a column that are fetched at once, and
/// whether the columns of an invocation lie side by side. The default first.
const CUTS: [Cut; 7] = [
    Cut { lanes: 256, at_once: 8, together: false },
    Cut { lanes: 256, at_once: 16, together: false },
    Cut { lanes: 256, at_once: 4, together: false },
    Cut { lanes: 128, at_once: 8, together: false },
    Cut { lanes: 64, at_once: 4, together: false },
    Cut { lanes: 32, at_once: 2, together: false },
    Cut { lanes: 64, at_once: 4, together: true },
];

#[derive(Clone, Copy, Debug)]
struct Cut {
    lanes: usize,
    at_once: usize,
    together: bool,
}

impl Cut {
    fn columns(self) -> usize {
        COLUMNS / self.lanes
    }

    fn name(self) -> String {
        let together = if self.together { ", side by side" } else { "" };
        format!("{} x {} x {}{together}", self.lanes, self.columns(), self.at_once)
    }
}

/// What may be tuned about reductions of all elements or along the last axis.
pub(crate) const SPACE: &[Axis] = &[Axis {
    name: "invocations x columns x elements at once",
    on: "all",
    values: &[
        "256 x 1 x 8",
        "256 x 1 x 16",
        "256 x 1 x 4",
        "128 x 2 x 8",
        "64 x 4 x 4",
        "32 x 8 x 2",
        "64 x 4 x 4, side by side",
    ],
}];
/// Up to so many elements along the axis one invocation puts together by itself.
const FEW: usize = 32;
/// Results side by side in a workgroup that works across rows.
const SIDE: usize = 16;
/// The same where each invocation has a result for itself.
const OWN_SIDE: usize = 128;
/// Results from which on that fills the threads of a processor.
const MANY: usize = 16 * OWN_SIDE;

/// How results are shared out among invocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// One for each, of a few elements.
    Few,
    /// One for a workgroup.
    AlongRows,
    /// 16 neighbours for a workgroup.
    AcrossRows,
    /// One for each, of many elements: neighbours go down their rows together, so that more of a row is read at a time.
    DownRows,
}

impl Way {
    fn of([outer, along, inner]: [usize; 3], blocks: usize, is_gpu: bool) -> Way {
        if along <= FEW {
            return Way::Few;
        }
        let down = !is_gpu && along >= COLUMNS && inner >= OWN_SIDE / 2 && outer * blocks * inner >= MANY;
        match inner {
            1 => Way::AlongRows,
            _ if down => Way::DownRows,
            _ => Way::AcrossRows,
        }
    }

    /// Results side by side in a workgroup.
    fn side(self) -> usize {
        match self {
            Way::Few => COLUMNS,
            Way::AlongRows => 1,
            Way::AcrossRows => SIDE,
            Way::DownRows => OWN_SIDE,
        }
    }

    /// Elements of workgroup memory.
    fn room(self) -> usize {
        match self {
            Way::Few => 0,
            Way::AlongRows | Way::AcrossRows => COLUMNS,
            // One for each size of what waits for its other half.
            Way::DownRows => (COLUMNS.ilog2() as usize + 1) * OWN_SIDE,
        }
    }
}

/// What is done to the last value: `#` stands for it.
pub(crate) type Finish<'a> = Option<&'a str>;

/// Puts a term together along an axis, or all of it. The result and, for kinds that have one, the index.
pub(crate) fn reduce(
    term: &Term,
    axis: Option<usize>,
    kind: Kind,
    finish: Finish<'_>,
    stored: &DataType,
) -> Result<Vec<Buffer>, Error> {
    let extents = extents(term)?;
    let [outer, along, inner] = match axis {
        Some(axis) => split(&extents, axis)?,
        None => [1, extents.iter().product(), 1],
    };
    if kind.has_index() && along as u64 > u64::from(u32::MAX) {
        return Err(misfit(format!("indices of {along} elements are more than a u32 can count")));
    }
    let shape = Shape::from([outer, along, inner]);
    let job = Job { fold: Fold { kind, ty: term.data_type().clone() }, count: along, finish, stored };
    let op = || match (outer, inner) {
        // All sizes are one op to the router, which so knows of each what the others took.
        (1, 1) => format!("reduce {kind:?} of all"),
        _ => format!("reduce {kind:?} of 2^{} by 2^{}", magnitude(along), magnitude(inner)),
    };
    as_a_whole(op, &[term], count(&[term]) / 4, || job.pass(&[term], &shape, true))
}

struct Job<'a> {
    fold: Fold,
    /// Elements along the axis, for the finish.
    count: usize,
    finish: Finish<'a>,
    stored: &'a DataType,
}

/// One kernel and how it is launched.
struct Pass {
    outer: usize,
    along: usize,
    inner: usize,
    blocks: usize,
}

impl Job<'_> {
    /// Puts each block together; what it gives is put together again while there are several.
    fn pass(&self, terms: &[&Term], shape: &Shape, first: bool) -> Result<Vec<Buffer>, Error> {
        let &[outer, along, inner] = shape.extents() else { return Err(misfit("three extents are needed")) };
        let blocks = along.div_ceil(BLOCK).max(1);
        let last = blocks == 1;
        let results = outer * inner * blocks;
        let engine = engine(terms[0])?;
        let mut types = self.fold.types();
        if last {
            types[0] = self.stored.clone();
        }
        let mut buffers: Vec<Buffer> = types.iter().map(|ty| room(&engine, ty, results)).collect();
        if results == 0 {
            return Ok(buffers);
        }
        let traits = Traits::of(&engine);
        let way = Way::of([outer, along, inner], blocks, traits.is_gpu);
        let pass = Pass { outer, along, inner, blocks };
        let fused = match along {
            // Nothing is loaded where there is nothing.
            0 => Fused::new(&terms.iter().map(|term| zero(term)).collect::<Vec<_>>().iter().collect::<Vec<_>>())?,
            _ => Fused::new(terms)?,
        };
        let is_one = [outer, inner] == [1, 1] && (2..=BLOCK).contains(&blocks) && along <= MOST;
        if first && is_one && traits.waits && !traits.is_gpu && self.is_sum() && is_plain(terms[0], &fused) {
            return Ok(vec![self.at_once(&engine, &fused, &pass)?]);
        }
        let baked = match way {
            Way::Few => [along, inner],
            Way::AcrossRows => [along.min(COLUMNS).div_ceil(SIDE), 0],
            Way::AlongRows | Way::DownRows => [0, 0],
        };
        let finish = self.finish.filter(|_| last).unwrap_or("#");
        let mut key = String::with_capacity(128);
        let _ = write!(
            key,
            "reduce {} {} {} {} {} {first} {finish} ",
            self.fold.kind as u8,
            self.fold.ty.tag(),
            way as u8,
            baked[0],
            baked[1]
        );
        types.iter().for_each(|ty| _ = write!(key, "{} ", ty.tag()));
        key.push_str(&fused.key());
        let function = || self.function(way, finish, first && is_plain(terms[0], &fused));
        let forms = || {
            let form = |cut: &Cut| {
                let (body, lanes) = match way {
                    Way::Few => (self.few(&fused, &pass, first), COLUMNS),
                    Way::AlongRows => (self.along_rows(&fused, first, *cut), cut.lanes),
                    Way::AcrossRows => (self.across_rows(&fused, baked[0], first), COLUMNS),
                    Way::DownRows => (self.down_rows(&fused, first), OWN_SIDE),
                };
                (cut.name(), self.source(&fused, &types, finish, way.room(), lanes, &body))
            };
            let cuts = if way == Way::AlongRows { &CUTS[..] } else { &CUTS[..1] };
            cuts.iter().map(form).collect()
        };
        let kernel = kernel_of_forms_or(&engine, &key, forms, function)?;
        let count = self.count_bits();
        let all = pass.parts(&fused)?;
        let parts = all.len();
        for Part { positions, along, outer, first_result, base } in all {
            let blocks = along.div_ceil(BLOCK).max(1);
            let groups = match way {
                Way::Few => (outer * inner).div_ceil(way.side()),
                _ => outer * blocks * inner.div_ceil(way.side()),
            };
            let total = if way == Way::Few { outer * inner } else { groups };
            let sizes = [along, total, first_result, base, inner, blocks].map(|size| size as u32);
            let sizes = [sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], count[0], count[1]];
            let mut call = fused.bind(kernel.call(), positions).value("sizes", &sizes).grid(grid(groups));
            for (at, buffer) in buffers.iter_mut().enumerate() {
                call = call.bind(["out", "out_index"][at], buffer);
            }
            // Several launches write parts of the result each.
            match parts {
                1 => call.overwrites().launch()?,
                _ => call.launch()?,
            };
        }
        if last {
            return Ok(buffers);
        }
        let shape = Shape::from([outer, blocks, inner]);
        let terms: Vec<Term> = buffers
            .into_iter()
            .zip(&types)
            .map(|(buffer, ty)| Term::array(buffer, ty.clone(), shape.clone()))
            .collect();
        self.pass(&terms.iter().collect::<Vec<_>>(), &shape, false)
    }

    /// All blocks of an array, and what they give, in one launch.
    fn at_once(&self, engine: &Engine, fused: &Fused, pass: &Pass) -> Result<Buffer, Error> {
        let &Pass { along, blocks, .. } = pass;
        let finish = self.finish.unwrap_or("#");
        let kernel = engine.kernel_from_with(&format!("sum at once {finish} {}", fused.key()), || {
            let mut body = self.blocks_of_rows(fused, true, CUTS[0]);
            body.push_str(
                "if l == 0 {\natomic.store(states[group + 1], bitcast<u32>(tile[0]));\nlet done = atomic.add(states[0], 1);\nlast[0] = done;\n}\n\
                 barrier;\nlet before = last[0];\nbarrier;\nif before + 1 == total {\nvar all: f32 = -0.0;\nfor r in 0..total step 256 {\nif r + l < total {\n\
                 let more = atomic.load(states[r + l + 1]);\nall = all + bitcast<f32>(more);\n}\n}\n",
            );
            self.halves(&mut body, &["all".to_owned()], "l", COLUMNS / 2, 1);
            body.push_str("if l == 0 {\nlet result = tile[0];\nout[0] = FINISH;\n}\n}\n}\n");
            let source = self.source(fused, &[DataType::F32], finish, COLUMNS, COLUMNS, &body);
            let states = format!("read_write states: u32 @{};\nworkgroup last: u32[1] @0;\nworkgroup_size", fused.bindings() + 2);
            let source = source.replacen("workgroup_size", &states, 1);
            Ok((parsed(&source)?, with_function(engine, self.finished(finish).map(host::at_once))))
        })?;
        // How many blocks are done, and the bits of what each gives.
        let mut states = room(engine, &DataType::U32, 1 + blocks);
        let mut out = room(engine, &DataType::F32, 1);
        let count = self.count_bits();
        let sizes = [along as u32, blocks as u32, 0, 0, 1, blocks as u32, count[0], count[1]];
        let call = fused.bind(kernel.call(), 0..along).value("sizes", &sizes).bind("out", &mut out);
        call.bind("states", &mut states).grid(grid(blocks)).overwrites().launch()?;
        Ok(out)
    }

    /// A sum of f32.
    fn is_sum(&self) -> bool {
        self.fold.kind == Kind::Sum && self.fold.ty == DataType::F32 && *self.stored == DataType::F32
    }

    /// Whether 0 is put to the last value of a sum, and nothing else is done to it.
    fn finished(&self, finish: &str) -> Option<bool> {
        match finish {
            "#" => Some(false),
            "# + 0.0" => Some(true),
            _ => None,
        }
    }

    /// What processors run instead, where it is of an array.
    fn function(&self, way: Way, finish: &str, of_array: bool) -> Option<Variant> {
        let finished = self.finished(finish)?;
        (of_array && self.is_sum() && way == Way::DownRows).then(|| host::down_rows(finished))
    }

    /// The number of elements along the axis, in the type that is computed.
    fn count_bits(&self) -> [u32; 2] {
        match self.fold.ty {
            DataType::F64 => {
                let bits = (self.count as f64).to_bits();
                [bits as u32, (bits >> 32) as u32]
            }
            _ => [(self.count as f32).to_bits(), 0],
        }
    }

    fn source(&self, fused: &Fused, types: &[DataType], finish: &str, room: usize, lanes: usize, body: &str) -> String {
        let mut text = fused.declarations(0, None);
        let mut at = fused.bindings();
        let _ = writeln!(text, "read sizes: u32 @{at};");
        for (name, ty) in ["out", "out_index"].iter().zip(types) {
            at += 1;
            let _ = writeln!(text, "output {name}: {ty} @{at};");
        }
        if room > 0 {
            for (name, ty) in ["tile", "tile_index"].iter().zip(self.fold.types()) {
                let _ = writeln!(text, "workgroup {name}: {ty}[{room}] @0;");
            }
        }
        let count = match self.fold.ty {
            DataType::F64 => "bitcast<f64>(cast<u64>(sizes[6]) | (cast<u64>(sizes[7]) << 32))",
            _ => "bitcast<f32>(sizes[6])",
        };
        let result = finish.replace("count", count).replace('#', "(result)");
        let _ = write!(
            text,
            "workgroup_size [{lanes}, 1, 1];\nentry reduce {{\n{GROUP}let l = local_index;\nlet n = sizes[0];\nlet total = sizes[1];\n\
             let inner = sizes[4];\nlet blocks = sizes[5];\n{}{}}}\n",
            fused.uniform_lines(),
            body.replace("FINISH", &result)
        );
        text
    }

    fn variables(&self, suffix: &str) -> Vec<String> {
        ["sum", "index"].iter().take(self.fold.types().len()).map(|name| format!("{name}{suffix}")).collect()
    }

    /// Variables that nothing was put to. In the first pass an index begins with that of its column's first element, number `along` of the
    /// row, if it is there: no neutral value is put to it later, though it may be as large.
    fn declare(&self, text: &mut String, suffix: &str, first: bool, along: &str, guard: &str) {
        let mut begins = self.fold.neutrals();
        if let Some(index) = begins.get_mut(1).filter(|_| first) {
            *index = format!("select({guard}, {along} + sizes[3], {index})");
        }
        for ((name, ty), begin) in self.variables(suffix).iter().zip(self.fold.types()).zip(begins) {
            let _ = writeln!(text, "var {name}: {ty} = {begin};");
        }
    }

    /// Puts the element at `index` of the expression, number `along` of its row, to variables, if a condition holds.
    fn take(&self, text: &mut String, fused: &Fused, first: bool, places: &Taken<'_>) {
        let Taken { index, along, guard, into, suffix } = places;
        let (lines, values) = fused.lines(index, suffix);
        text.push_str(&lines);
        if first && self.fold.kind.has_index() {
            // Indices ascend along each column, so that of equal ones those stay that are there.
            let _ = writeln!(text, "let g0{suffix} = select({guard}, {}, {});", values[0], self.fold.neutral());
            let more = [format!("g0{suffix}"), format!("({along} + sizes[3])")];
            return self.fold.put_later(text, &self.variables(into), &more);
        }
        let guarded: Vec<String> = values
            .iter()
            .zip(self.fold.neutrals())
            .enumerate()
            .map(|(at, (value, neutral))| {
                let _ = writeln!(text, "let g{at}{suffix} = select({guard}, {value}, {neutral});");
                format!("g{at}{suffix}")
            })
            .collect();
        self.fold.put(text, &self.variables(into), &guarded);
    }

    /// A workgroup for each block of each row.
    fn along_rows(&self, fused: &Fused, first: bool, cut: Cut) -> String {
        let mut text = self.blocks_of_rows(fused, first, cut);
        text.push_str("if l == 0 {\nlet result = tile[0];\nout[group + sizes[2]] = FINISH;\n");
        if self.fold.kind.has_index() {
            text.push_str("out_index[group + sizes[2]] = tile_index[0];\n");
        }
        text.push_str("}\n}\n");
        text
    }

    /// What comes before anything is done to what a block gives, in a block of its own.
    fn blocks_of_rows(&self, fused: &Fused, first: bool, cut: Cut) -> String {
        let Cut { lanes, at_once, together } = cut;
        let columns = cut.columns();
        let (own, apart) = if together { (columns, 1) } else { (1, lanes) };
        let mut text = format!(
            "if group < total {{\nlet row = group / blocks;\nlet start = group % blocks * 16384 + l * {own};\n"
        );
        for column in 0..columns {
            let along = format!("start + {}", column * apart);
            self.declare(&mut text, &column.to_string(), first, &along, &format!("{along} < n"));
        }
        // Columns are 256 apart; the last round may reach beyond the row, and puts neutral values there.
        let _ = writeln!(
            text,
            "let rows = min((n - group % blocks * 16384 + 255) / 256, 64);\nfor r in 0..rows step {at_once} {{"
        );
        for (k, column) in (0..at_once).flat_map(|k| (0..columns).map(move |column| (k, column))) {
            let name = format!("{k}_{column}");
            let _ = writeln!(
                text,
                "let a{name} = start + (r + {k}) * 256 + {};\nlet at{name} = row * n + a{name};",
                column * apart
            );
            let places = Taken {
                index: &format!("at{name}"),
                along: &format!("a{name}"),
                guard: &format!("a{name} < n"),
                into: &column.to_string(),
                suffix: &format!("_{name}"),
            };
            self.take(&mut text, fused, first, &places);
        }
        text.push_str("}\n");
        match together {
            true => self.halves_of_all(&mut text, lanes, columns),
            false => {
                let mut half = columns / 2;
                while half > 0 {
                    for k in 0..half {
                        let (into, from) = (self.variables(&k.to_string()), self.variables(&(k + half).to_string()));
                        self.fold.put(&mut text, &into, &from);
                    }
                    half /= 2;
                }
                for (name, own) in self.variables("").iter().zip(self.variables("0")) {
                    let _ = writeln!(text, "let {name} = {own};");
                }
                self.halves(&mut text, &self.variables(""), "l", lanes / 2, 1);
            }
        }
        text
    }

    /// Puts neighbouring columns that each invocation has together by halves, in workgroup memory.
    fn halves_of_all(&self, text: &mut String, lanes: usize, columns: usize) {
        let names = &["tile", "tile_index"][..self.fold.types().len()];
        for column in 0..columns {
            for (variable, name) in self.variables(&column.to_string()).iter().zip(names) {
                let _ = writeln!(text, "{name}[l * {columns} + {column}] = {variable};");
            }
        }
        text.push_str("barrier;\n");
        let mut half = lanes * columns / 2;
        while half > 0 {
            for from in (0..half).step_by(lanes) {
                let at = |offset: usize| names.iter().map(|name| format!("{name}[l + {offset}]")).collect::<Vec<_>>();
                let _ = writeln!(text, "if l + {from} < {half} {{");
                self.fold.put(text, &at(from), &at(from + half));
                text.push_str("}\n");
            }
            text.push_str("barrier;\n");
            half /= 2;
        }
    }

    /// Puts what the invocations hold together by halves, in workgroup memory.
    fn halves(&self, text: &mut String, held: &[String], lane: &str, from: usize, apart: usize) {
        let names = ["tile", "tile_index"];
        for (variable, name) in held.iter().zip(names) {
            let _ = writeln!(text, "{name}[l] = {variable};");
        }
        text.push_str("barrier;\n");
        let mut half = from;
        while half > 0 {
            let _ = writeln!(text, "if {lane} < {half} {{");
            let at = |offset: usize| -> Vec<String> {
                names.iter().take(self.fold.types().len()).map(|name| format!("{name}[l + {offset}]")).collect()
            };
            let own: Vec<String> = at(0).iter().map(|place| place.replace(" + 0", "")).collect();
            self.fold.put(text, &own, &at(half * apart));
            text.push_str("}\nbarrier;\n");
            half /= 2;
        }
    }

    /// A workgroup for 16 neighbours behind the axis; 16 invocations for each of them, with 16 columns each.
    fn across_rows(&self, fused: &Fused, columns: usize, first: bool) -> String {
        let mut text = format!(
            "if group < total {{\nlet tiles = (inner + {d}) / {SIDE};\nlet o = group % tiles * {SIDE} + l % {SIDE};\nlet g = l / {SIDE};\n\
             let block = group / tiles % blocks;\nlet row = group / tiles / blocks;\n",
            d = SIDE - 1
        );
        for k in 0..columns {
            let along = format!("block * 16384 + g + {}", k * SIDE);
            self.declare(&mut text, &k.to_string(), first, &along, &format!("({along} < n) & (o < inner)"));
        }
        let _ = writeln!(text, "let rows = min((n - block * 16384 + 255) / 256, 64);\nfor r in 0..rows {{");
        for k in 0..columns {
            let _ = writeln!(
                text,
                "let a{k} = block * 16384 + r * 256 + g + {};\nlet at{k} = (row * n + a{k}) * inner + o;",
                k * SIDE
            );
            let places = Taken {
                index: &format!("at{k}"),
                along: &format!("a{k}"),
                guard: &format!("(a{k} < n) & (o < inner)"),
                into: &k.to_string(),
                suffix: &format!("_{k}"),
            };
            self.take(&mut text, fused, first, &places);
        }
        text.push_str("}\n");
        let mut half = SIDE / 2;
        while half > 0 {
            for k in (0..half).filter(|k| k + half < columns) {
                let (into, from) = (self.variables(&k.to_string()), self.variables(&(k + half).to_string()));
                self.fold.put(&mut text, &into, &from);
            }
            half /= 2;
        }
        for (name, own) in self.variables("").iter().zip(self.variables("0")) {
            let _ = writeln!(text, "let {name} = {own};");
        }
        self.halves(&mut text, &self.variables(""), "g", SIDE / 2, SIDE);
        text.push_str("if g == 0 {\nif o < inner {\nlet at = sizes[2] + (row * blocks + block) * inner + o;\nlet result = tile[l];\nout[at] = FINISH;\n");
        if self.fold.kind.has_index() {
            text.push_str("out_index[at] = tile_index[l];\n");
        }
        text.push_str("}\n}\n}\n");
        text
    }

    /// An invocation for each result. The columns come in the order in which halves meet, each is put to what waits for it, and what that
    /// gives to what waits for that, as long as something does.
    fn down_rows(&self, fused: &Fused, first: bool) -> String {
        let mut text = format!(
            "if group < total {{\nlet tiles = (inner + {d}) / {OWN_SIDE};\nlet o = group % tiles * {OWN_SIDE} + l;\n\
             let block = group / tiles % blocks;\nlet row = group / tiles / blocks;\nif o < inner {{\n\
             let rows = min((n - block * 16384 + 255) / 256, 64);\nfor turn in 0..{COLUMNS} {{\n\
             let column = block * 16384 + (reverse_bits(turn) >> {shift});\n",
            d = OWN_SIDE - 1,
            shift = 32 - COLUMNS.ilog2()
        );
        self.declare(&mut text, "0", first, "column", "column < n");
        text.push_str("for r in 0..rows {\nlet a = column + r * 256;\nlet at = (row * n + a) * inner + o;\n");
        self.take(&mut text, fused, first, &Taken { index: "at", along: "a", guard: "a < n", into: "0", suffix: "_0" });
        let _ = writeln!(
            text,
            "}}\nvar waits: u32 = l;\nfor level in 0..{} {{\nif ((turn >> level) & 1) == 0 {{\nbreak;\n}}",
            COLUMNS.ilog2()
        );
        let names = &["tile", "tile_index"][..self.fold.types().len()];
        let own = self.variables("0");
        for (own, name) in own.iter().zip(names) {
            let _ = writeln!(text, "let later_{own} = {own};\n{own} = {name}[waits];");
        }
        let later: Vec<String> = own.iter().map(|own| format!("later_{own}")).collect();
        self.fold.put(&mut text, &own, &later);
        let _ = writeln!(text, "waits = waits + {OWN_SIDE};\n}}");
        for (own, name) in own.iter().zip(names) {
            let _ = writeln!(text, "{name}[waits] = {own};");
        }
        let last = COLUMNS.ilog2() as usize * OWN_SIDE;
        let _ = write!(
            text,
            "}}\nlet at = sizes[2] + (row * blocks + block) * inner + o;\nlet result = tile[l + {last}];\nout[at] = FINISH;\n"
        );
        if self.fold.kind.has_index() {
            let _ = writeln!(text, "out_index[at] = tile_index[l + {last}];");
        }
        text.push_str("}\n}\n");
        text
    }

    /// An invocation for each result: the same tree of halves, of as many columns as there are elements.
    fn few(&self, fused: &Fused, pass: &Pass, first: bool) -> String {
        let Pass { along, inner, .. } = *pass;
        let mut text = "let o = group * 256 + l;\nif o < total {\n".to_owned();
        if inner == 1 {
            let _ = writeln!(text, "let start = o * {along};");
        } else {
            let _ = writeln!(text, "let start = o / {inner} * {} + o % {inner};", along * inner);
        }
        let columns = along.next_power_of_two().max(1);
        for k in 0..columns.min(along.max(1)) {
            let guard = if k < along { "true" } else { "false" };
            self.declare(&mut text, &k.to_string(), first, &k.to_string(), guard);
            if k >= along {
                continue;
            }
            let _ = writeln!(text, "let at{k} = start + {};", k * inner);
            let places = Taken {
                index: &format!("at{k}"),
                along: &k.to_string(),
                guard: "true",
                into: &k.to_string(),
                suffix: &format!("_{k}"),
            };
            self.take(&mut text, fused, first, &places);
        }
        let mut half = columns / 2;
        while half > 0 {
            for k in (0..half).filter(|k| k + half < along) {
                let (into, from) = (self.variables(&k.to_string()), self.variables(&(k + half).to_string()));
                self.fold.put(&mut text, &into, &from);
            }
            half /= 2;
        }
        text.push_str("let result = sum0;\nout[o + sizes[2]] = FINISH;\n");
        if self.fold.kind.has_index() {
            text.push_str("out_index[o + sizes[2]] = index0;\n");
        }
        text.push_str("}\n");
        text
    }
}

/// Where an element is, when it is there, and where it goes.
struct Taken<'a> {
    index: &'a str,
    along: &'a str,
    guard: &'a str,
    into: &'a str,
    suffix: &'a str,
}

/// Positions of one launch: elements along the axis and rows in it, and where its results begin.
struct Part {
    positions: Range<usize>,
    along: usize,
    outer: usize,
    first_result: usize,
    base: usize,
}

impl Pass {
    /// All positions, in launches whose indices u32 can count.
    fn parts(&self, fused: &Fused) -> Result<Vec<Part>, Error> {
        let Pass { outer, along, inner, blocks } = *self;
        let row = along * inner;
        if outer * row <= MOST {
            return Ok(vec![Part { positions: 0..outer * row, along, outer, first_result: 0, base: 0 }]);
        }
        fused.parts(1)?;
        if row <= MOST {
            let rows = MOST / row;
            let part = |start: usize| {
                let here = rows.min(outer - start);
                let positions = start * row..(start + here) * row;
                Part { positions, along, outer: here, first_result: start * blocks * inner, base: 0 }
            };
            return Ok((0..outer).step_by(rows).map(part).collect());
        }
        if inner > 1 {
            let message = format!("{along} x {inner} elements along and behind an axis are more than one launch takes");
            return Err(misfit(message));
        }
        let mut parts = Vec::new();
        for at in 0..outer {
            for base in (0..along).step_by(MOST) {
                let here = MOST.min(along - base);
                let start = at * along + base;
                let first_result = at * blocks + base / BLOCK;
                parts.push(Part { positions: start..start + here, along: here, outer: 1, first_result, base });
            }
        }
        Ok(parts)
    }
}

/// A number of the type of a term, for every position of its shape.
fn zero(term: &Term) -> Term {
    let value = vyre::ir::Literal::zero(term.data_type()).unwrap_or(vyre::ir::Literal::U32(0));
    match (term.engine(), term.shape()) {
        (Some(engine), Some(shape)) => Term::scalar(value).broadcast(engine, shape.clone()),
        _ => Term::scalar(value),
    }
}
