//! One pass of a transform: its stages in one kernel.

use std::fmt::Write;
use std::ops::RangeInclusive;

use vyre::variant::Variant;
use vyre::{ArrayView, ArrayViewMut, Buffer, DataType, Engine, Error, Kernel};

use super::NEIGHBOURS;
use super::butterflies::{Complex, Lines};
use crate::launch::{GROUP, Traits, grid, parsed, room, with_function};

/// Points of a workgroup's transforms, where they are shorter.
const TOGETHER: usize = 1024;
/// Columns of so many points are taken sixteen together where memory has room for twice as many; shorter ones were not measured.
const SIXTEEN_OF: usize = 256;
/// Points for each invocation, where two stages follow each other in its registers, and of the largest butterflies.
const POINTS: usize = 8;
const MANY_POINTS: usize = 16;
const MOST_POINTS: usize = 32;
/// The most invocations of a workgroup, and of those for more points than these have.
const LANES: usize = 256;
const MANY_LANES: usize = 512;
const MOST_LANES: usize = 1024;

/// Invocations of processors that have a transform each, and how long such may be, so that there is workgroup memory for all of them.
const BESIDE: usize = 16;
const MOST_BESIDE: RangeInclusive<usize> = 16..=256;

/// A complex number.
pub(super) type Point = [f32; 2];

const BUFFERS: &str =
    "read x: vec<f32, 2> @0;\nread table: vec<f32, 2> @1;\nread sizes: u32 @2;\noutput out: vec<f32, 2> @3;\n";

/// Where points are: steps from one transform of a batch to the next, and from one point to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) transform: usize,
    pub(super) index: usize,
    /// Neighbouring invocations have neighbouring points, not transforms.
    pub(super) by_index: bool,
    /// Transforms are in runs of so many, and so far from one run to the next.
    pub(super) runs: Option<(usize, usize)>,
}

impl Layout {
    /// Where a transform of a batch begins.
    fn start(&self, transform: &str) -> String {
        match self.runs {
            None => format!("{transform} * {}", self.transform),
            Some((count, step)) => {
                format!("{transform} % {count} * {} + {transform} / {count} * {step}", self.transform)
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct Pass {
    pub(super) radices: Vec<usize>,
    /// Transforms of a batch, and its points.
    pub(super) per_batch: usize,
    pub(super) batch: usize,
    pub(super) from: Layout,
    pub(super) to: Layout,
    /// Results are turned by the product of their place and the transform's, over so many.
    pub(super) turned: Option<usize>,
    /// Real and imaginary parts change places on the way in and out, which makes the inverse.
    pub(super) swapped: bool,
    /// Results are divided by this.
    pub(super) scale: Option<usize>,
    /// Points that workgroup memory has room for.
    pub(super) room: usize,
}

impl Pass {
    fn points(&self) -> usize {
        self.radices.iter().product()
    }

    fn largest(&self) -> usize {
        self.radices.iter().copied().max().unwrap_or(1)
    }

    /// Neighbours in memory belong to one transform.
    fn is_rows(&self) -> bool {
        self.from.by_index && self.to.by_index
    }

    /// Points that there is room for with what pads them.
    fn room_beside_padding(&self) -> usize {
        if self.points().is_multiple_of(SWIZZLED) { self.room } else { self.room / 8 * 7 }
    }

    /// Transforms of a workgroup.
    fn together(&self) -> usize {
        let points = self.points();
        match self.is_rows() {
            true => (TOGETHER / points).max(1),
            // Neighbours in memory belong to different transforms: four of them fill a sector, and eight what memory gives at once.
            false => (TOGETHER / points)
                .max(if points == SIXTEEN_OF && self.room >= 32 * SIXTEEN_OF { 16 } else { 8 })
                .min(self.room_beside_padding() / points)
                .max(1),
        }
    }

    /// The first two stages need no exchange where an invocation has the points of both.
    fn joins(&self, pairs: bool) -> bool {
        pairs && self.radices.len() > 2 && self.radices[..2] == [4, 4]
    }

    /// Invocations of a workgroup.
    fn lanes(&self, pairs: bool) -> usize {
        let all = self.points() * self.together();
        let points = if self.joins(pairs) { MANY_POINTS } else { self.largest().max(POINTS) };
        let most = match pairs {
            true if self.is_rows() && all > MANY_LANES * points => MOST_LANES,
            true if all > LANES * points => MANY_LANES,
            _ => LANES,
        };
        (all / points).next_power_of_two().clamp(32, most)
    }

    /// The most registers of an invocation, where it is better to say so.
    fn registers(&self, pairs: bool) -> Option<u32> {
        let lanes = self.lanes(pairs);
        match self.largest() {
            // One such workgroup has room on a multiprocessor, or two of half as many, or four.
            MOST_POINTS => Some(if lanes == LANES { 112 } else { 128 }),
            _ if lanes >= MANY_LANES => Some(64),
            // Three, where the assembler would leave room for two; but where all stages have so many points, it would have to put some aside.
            MANY_POINTS if pairs => {
                let all = self.is_rows() && self.radices.iter().all(|radix| *radix == MANY_POINTS);
                Some(if all { 128 } else { 80 })
            }
            _ => None,
        }
    }

    pub(super) fn run(
        &self,
        engine: &Engine,
        traits: &Traits,
        source: &Buffer,
        table: &Buffer,
        transforms: usize,
    ) -> Result<Buffer, Error> {
        self.run_with(engine, traits, source, table, transforms, true)
    }

    /// With what processors have in the place of kernels, or without.
    pub(super) fn run_with(
        &self,
        engine: &Engine,
        traits: &Traits,
        source: &Buffer,
        table: &Buffer,
        transforms: usize,
        functions: bool,
    ) -> Result<Buffer, Error> {
        let (kernel, together) = self.kernel(engine, traits, transforms, functions)?;
        let mut out = room(engine, &DataType::F32, transforms * self.points() * 2);
        let sizes = [transforms as u32];
        let call = kernel.bind("x", source).bind("table", table).value("sizes", &sizes).bind("out", &mut out);
        call.grid(grid(transforms.div_ceil(together))).overwrites().launch()?;
        Ok(out)
    }

    /// From a part of an array to a part of another.
    pub(super) fn run_between(
        &self,
        engine: &Engine,
        traits: &Traits,
        x: ArrayView<'_, Point>,
        table: &Buffer,
        out: ArrayViewMut<'_, Point>,
    ) -> Result<(), Error> {
        let transforms = x.len() / self.points();
        let (kernel, together) = self.kernel(engine, traits, transforms, true)?;
        let sizes = [transforms as u32];
        let call = kernel.bind("x", x).bind("table", table).value("sizes", &sizes).bind("out", out);
        call.grid(grid(transforms.div_ceil(together))).overwrites().launch()?;
        Ok(())
    }

    /// The kernel for so many transforms, and how many of them a workgroup has.
    fn kernel(
        &self,
        engine: &Engine,
        traits: &Traits,
        transforms: usize,
        functions: bool,
    ) -> Result<(Kernel, usize), Error> {
        let pairs = traits.is_gpu;
        // Two halves of real and of imaginary parts.
        let memory = (4 * size_of::<f32>() * BESIDE * self.points()) as u64;
        if !pairs && transforms >= BESIDE && MOST_BESIDE.contains(&self.points()) && traits.memory >= memory {
            let kernel = engine.kernel_from_with(&format!("fft beside {self:?} {functions}"), || {
                Ok((parsed(&self.source_beside())?, with_function(engine, self.function().filter(|_| functions))))
            })?;
            return Ok((kernel, BESIDE));
        }
        // A few transforms leave registers of a processor empty.
        let several = functions && transforms >= BESIDE;
        let key = format!("fft {self:?} {pairs} {several}");
        let kernel = engine.kernel_from_with(&key, || {
            let mut config = with_function(engine, self.function().filter(|_| several));
            config.knobs.registers = self.registers(pairs);
            Ok((parsed(&self.source(pairs))?, config))
        })?;
        Ok((kernel, self.together()))
    }

    /// What processors run in its place.
    fn function(&self) -> Option<Variant> {
        #[cfg(target_arch = "x86_64")]
        return super::host::side_by_side(self);
        #[cfg(not(target_arch = "x86_64"))]
        None
    }

    /// Each invocation has a transform of its own, and points of neighbours lie side by side: they are whole registers, angles are the same
    /// for all, and nobody waits.
    fn source_beside(&self) -> String {
        let n = self.points();
        let mut text = format!(
            "{BUFFERS}workgroup real: f32[{0}] @0;\nworkgroup imaginary: f32[{0}] @0;\nworkgroup_size [{BESIDE}, 1, 1];\nentry fft {{\n{GROUP}\
             let l = local_index;\nlet first = group * {BESIDE};\n",
            2 * n * BESIDE
        );
        let last = self.radices.len() - 1;
        let mut before = 1;
        for (stage, &radix) in self.radices.iter().enumerate() {
            let own = stage.to_string();
            // A stage reads from one half and writes to the other.
            let [from, to] = [stage + 1, stage].map(|half| Memory { beside: Some(half % 2), ..Memory::of(n) });
            let _ =
                write!(text, "for j{own} in 0..{} {{\nlet t{own} = l;\nlet k{own} = j{own} % {before};\n", n / radix);
            let points = self.read(&mut text, stage, &own, [n, radix, before], &from);
            let made = Lines { text: &mut text, prefix: format!("c{own}"), count: 0 }.transform(&points);
            if stage == last {
                self.write(&mut text, &own, before, &made);
            }
            for (i, point) in made.iter().enumerate().filter(|_| stage < last) {
                let place = format!("((j{own} - k{own}) * {radix} + k{own} + {})", i * before);
                let at = format!("to{own}_{i}");
                let _ = writeln!(text, "let {at} = {};", to.place(&format!("t{own}"), &place));
                to.store(&mut text, &at, point);
            }
            text.push_str("}\n");
            before *= radix;
        }
        text.push_str("}\n");
        text
    }

    fn source(&self, pairs: bool) -> String {
        let (n, together) = (self.points(), self.together());
        let (joined, lanes) = (self.joins(pairs), self.lanes(pairs));
        let memory = Memory { pairs, apart: !self.is_rows(), ..Memory::of(n) };
        let mut text = BUFFERS.to_owned();
        if self.radices.len() > 1 {
            text.push_str(&memory.declarations(together));
        }
        let _ = write!(
            text,
            "workgroup_size [{lanes}, 1, 1];\nentry fft {{\n{GROUP}let l = local_index;\nlet first = group * {together};\n"
        );
        let last = self.radices.len() - 1;
        let mut before = 1;
        for (stage, &radix) in self.radices.iter().enumerate() {
            if joined && stage == 0 {
                before *= radix;
                continue;
            }
            let is_joined = joined && stage == 1;
            let count = n * together / if is_joined { radix * radix } else { radix };
            let by_index = match stage {
                0 => self.from.by_index,
                1 if is_joined => self.from.by_index,
                _ => stage < last || self.to.by_index,
            };
            let times = count.div_ceil(lanes);
            let mut stores = String::new();
            for u in 0..times {
                let own = format!("{stage}_{u}");
                // Which transform and which of its butterflies.
                let butterflies = count / together;
                let (at, within) = match by_index {
                    true => (format!("flat{own} / {butterflies}"), format!("flat{own} % {butterflies}")),
                    false => (format!("flat{own} % {together}"), format!("flat{own} / {together}")),
                };
                let _ = write!(
                    text,
                    "let flat{own} = l + {};\nlet t{own} = {at};\nlet j{own} = {within};\nlet k{own} = j{own} % {before};\n",
                    u * lanes
                );
                let made = if is_joined {
                    self.two_stages(&mut text, &own, n)
                } else {
                    let points = self.read(&mut text, stage, &own, [n, radix, before], &memory);
                    Lines { text: &mut text, prefix: format!("c{own}"), count: 0 }.transform(&points)
                };
                let whole = count.is_multiple_of(lanes);
                if !whole {
                    let _ = writeln!(stores, "if flat{own} < {count} {{");
                }
                if stage == last {
                    self.write(&mut stores, &own, before, &made);
                }
                for (i, point) in made.iter().enumerate().filter(|_| stage < last) {
                    let place = match is_joined {
                        true => format!("j{own} * {} + {i}", radix * radix),
                        false => format!("(j{own} - k{own}) * {radix} + k{own} + {}", i * before),
                    };
                    let to = format!("to{own}_{i}");
                    let _ = writeln!(stores, "let {to} = {};", memory.place(&format!("t{own}"), &place));
                    memory.store(&mut stores, &to, point);
                }
                if !whole {
                    stores.push_str("}\n");
                }
            }
            // Everything is read before anything is written.
            if stage > 0 && stage < last && !is_joined {
                text.push_str("barrier;\n");
            }
            text.push_str(&stores);
            if stage < last {
                text.push_str("barrier;\n");
            }
            before *= radix;
        }
        text.push_str("}\n");
        text
    }

    /// The first two stages, both of radix 4, with the arithmetic that they have one by one: results in the order of their places.
    fn two_stages(&self, text: &mut String, own: &str, n: usize) -> Vec<Complex> {
        let given = self.given(text, own, 16, n / 16);
        let first: Vec<Vec<Complex>> = (0..4)
            .map(|i| {
                let points: Vec<Complex> = (0..4).map(|at| given[i + 4 * at].clone()).collect();
                Lines { text: &mut *text, prefix: format!("c{own}_{i}"), count: 0 }.transform(&points)
            })
            .collect();
        let mut made = vec![Complex::named(""); 16];
        for k in 0..4 {
            let angle = |power: usize| {
                let [re, im] = super::angle(k * power * (n / 16), n).map(|part| format!("f32#{:08x}", part.to_bits()));
                format!("vec<f32, 2>({re}, {im})")
            };
            let turns = powers(text, &format!("turn{own}_{k}"), 4, &angle);
            let points: Vec<Complex> = first.iter().map(|made| made[k].clone()).collect();
            let turned = turn(text, &format!("t{own}_{k}"), &points, &turns);
            let results = Lines { text: &mut *text, prefix: format!("d{own}_{k}"), count: 0 }.transform(&turned);
            for (i, result) in results.into_iter().enumerate() {
                made[k + 4 * i] = result;
            }
        }
        made
    }

    /// So many points from the buffer, with steps of so many between them.
    fn given(&self, text: &mut String, own: &str, count: usize, step: usize) -> Vec<Complex> {
        let Layout { index, .. } = self.from;
        let _ = write!(
            text,
            "let which{own} = first + t{own};\nlet in_batch{own} = which{own} % {0};\nlet from{own} = which{own} / {0} * {1} + {2};\n",
            self.per_batch,
            self.batch,
            self.from.start(&format!("in_batch{own}"))
        );
        let mut points = Vec::new();
        for i in 0..count {
            let point = Complex::named(&format!("x{own}_{i}"));
            let (re, im) = if self.swapped { ("y", "x") } else { ("x", "y") };
            let _ = write!(
                text,
                "let given{own}_{i} = x[from{own} + (j{own} + {}) * {index}];\nlet {} = given{own}_{i}.{re};\nlet {} = given{own}_{i}.{im};\n",
                i * step,
                point.re,
                point.im
            );
            points.push(point);
        }
        points
    }

    /// The points of a butterfly, turned by what the stages before it left.
    fn read(
        &self,
        text: &mut String,
        stage: usize,
        own: &str,
        [n, radix, before]: [usize; 3],
        memory: &Memory,
    ) -> Vec<Complex> {
        if stage == 0 {
            return self.given(text, own, radix, n / radix);
        }
        let mut points = Vec::new();
        for i in 0..radix {
            let at = format!("at{own}_{i}");
            let place = memory.place(&format!("t{own}"), &format!("(j{own} + {})", i * (n / radix)));
            let _ = writeln!(text, "let {at} = {place};");
            points.push(memory.load(text, &at, &format!("x{own}_{i}")));
        }
        let turns = powers(text, &format!("turn{own}"), radix, &|power| {
            format!("table[k{own} * {}]", power * (n / (before * radix)))
        });
        turn(text, &format!("t{own}"), &points, &turns)
    }

    /// The results of a butterfly to their places in the buffer.
    fn write(&self, text: &mut String, own: &str, before: usize, points: &[Complex]) {
        let n = self.points();
        let Layout { transform, index, .. } = self.to;
        // The last stage has all butterflies in one run, so that the first result's place is the butterfly's.
        let _ = write!(
            text,
            "let to{own} = first + t{own};\nlet start{own} = to{own} / {0} * {1} + to{own} % {0} * {transform} + j{own} * {index};\n",
            self.per_batch, self.batch
        );
        let mut points = points.to_vec();
        if self.turned.is_some() {
            // Turned by the first place, and by as many steps as there are between it and their own.
            let _ = writeln!(text, "let column{own} = to{own} % {};", self.per_batch);
            let mut angle = |name: &str, by: &str| {
                let _ = write!(
                    text,
                    "let angle_{name}{own} = column{own} * {by};\nlet near_{name}{own} = table[{n} + angle_{name}{own} % {NEIGHBOURS}];\n\
                     let far_{name}{own} = table[{} + angle_{name}{own} / {NEIGHBOURS}];\n",
                    n + NEIGHBOURS
                );
                let of =
                    |kind: &str| Complex { re: format!("{kind}_{name}{own}.x"), im: format!("{kind}_{name}{own}.y") };
                let mut lines = Lines { text, prefix: format!("{name}{own}"), count: 0 };
                lines.product(&of("near"), &of("far"))
            };
            let first = angle("first", &format!("j{own}"));
            let steps: Vec<(usize, Complex)> = [1, 2, 4, 8]
                .into_iter()
                .filter(|power| *power < points.len())
                .map(|power| (power, angle(&format!("step{power}_"), &(power * before).to_string())))
                .collect();
            let mut lines = Lines { text, prefix: format!("w{own}"), count: 0 };
            for (i, point) in points.iter_mut().enumerate() {
                let mut turn = first.clone();
                for (power, step) in &steps {
                    if i & power != 0 {
                        turn = lines.product(&turn, step);
                    }
                }
                *point = lines.product(point, &turn);
            }
        }
        let _ = writeln!(text, "if to{own} < sizes[0] {{");
        for (i, point) in points.iter().enumerate() {
            let (mut re, mut im) = (point.re.clone(), point.im.clone());
            if let Some(count) = self.scale {
                let by = format!("f32#{:08x}", ((1.0 / count as f64) as f32).to_bits());
                (re, im) = (format!("{re} * {by}"), format!("{im} * {by}"));
            }
            if self.swapped {
                std::mem::swap(&mut re, &mut im);
            }
            let _ = writeln!(text, "out[start{own} + {}] = vec<f32, 2>({re}, {im});", i * before * index);
        }
        text.push_str("}\n");
    }
}

/// Points times their angles.
fn turn(text: &mut String, prefix: &str, points: &[Complex], turns: &[Option<Complex>]) -> Vec<Complex> {
    let mut lines = Lines { text, prefix: prefix.to_owned(), count: 0 };
    let turned = points.iter().zip(turns).map(|(point, turn)| match turn {
        Some(turn) => lines.product(point, turn),
        None => point.clone(),
    });
    turned.collect()
}

/// The powers of an angle up to so many: those of 1, 2 and 4 are read, and others are products of these.
fn powers(text: &mut String, name: &str, count: usize, read: &dyn Fn(usize) -> String) -> Vec<Option<Complex>> {
    let mut all: Vec<Option<Complex>> = vec![None];
    for power in 1..count {
        let highest = 1 << power.ilog2();
        if power == highest {
            let _ = writeln!(text, "let {name}_{power} = {};", read(power));
            all.push(Some(Complex { re: format!("{name}_{power}.x"), im: format!("{name}_{power}.y") }));
        } else if let (Some(a), Some(b)) = (all[highest].clone(), all[power - highest].clone()) {
            let mut lines = Lines { text: &mut *text, prefix: format!("{name}_{power}"), count: 0 };
            all.push(Some(lines.product(&a, &b)));
        }
    }
    all
}

/// Points that fill the banks of workgroup memory as pairs. So many change places by the number of their run and of their transform, which keeps
/// invocations on different banks whatever the steps between their points are.
const SWIZZLED: usize = 16;

/// Workgroup memory for transforms of so many points: as pairs, swizzled or with one of padding in 16, or real and imaginary parts by themselves.
struct Memory {
    pairs: bool,
    points: usize,
    /// Neighbouring invocations may have neighbouring transforms.
    apart: bool,
    /// Points of neighbouring transforms lie side by side, in one of two halves.
    beside: Option<usize>,
}

impl Memory {
    fn of(points: usize) -> Memory {
        Memory { pairs: false, points, apart: false, beside: None }
    }

    fn is_swizzled(&self) -> bool {
        self.pairs && self.points.is_multiple_of(SWIZZLED)
    }

    fn pitch(&self) -> usize {
        let padded = self.points + self.points / 16;
        match (self.pairs, self.apart) {
            _ if self.is_swizzled() => self.points,
            (true, true) => padded.next_multiple_of(16) + 2,
            (true, false) => padded,
            (false, _) => self.points,
        }
    }

    fn declarations(&self, transforms: usize) -> String {
        let room = transforms * self.pitch();
        match self.pairs {
            true => format!("workgroup points: vec<f32, 2>[{room}] @0;\n"),
            false => format!("workgroup real: f32[{room}] @0;\nworkgroup imaginary: f32[{room}] @0;\n"),
        }
    }

    fn place(&self, transform: &str, at: &str) -> String {
        if let Some(half) = self.beside {
            return format!("{at} * {BESIDE} + {transform} + {}", half * self.points * BESIDE);
        }
        let pitch = self.pitch();
        if self.is_swizzled() {
            let by = match self.apart {
                true => format!("((({at}) / {SWIZZLED}) ^ ({transform} * 2))"),
                false => format!("(({at}) / {SWIZZLED})"),
            };
            return format!("{transform} * {pitch} + (({at}) ^ ({by} % {SWIZZLED}))");
        }
        match self.pairs {
            true => format!("{transform} * {pitch} + ({at}) + ({at}) / 16"),
            false => format!("{transform} * {pitch} + {at}"),
        }
    }

    fn load(&self, text: &mut String, at: &str, name: &str) -> Complex {
        if self.pairs {
            let _ = writeln!(text, "let {name} = points[{at}];");
            return Complex { re: format!("{name}.x"), im: format!("{name}.y") };
        }
        let point = Complex::named(name);
        let _ = writeln!(text, "let {} = real[{at}];\nlet {} = imaginary[{at}];", point.re, point.im);
        point
    }

    fn store(&self, text: &mut String, at: &str, point: &Complex) {
        let Complex { re, im } = point;
        let _ = match self.pairs {
            true => writeln!(text, "points[{at}] = vec<f32, 2>({re}, {im});"),
            false => writeln!(text, "real[{at}] = {re};\nimaginary[{at}] = {im};"),
        };
    }
}
