//! One pass of a transform: its stages in one kernel.

use std::fmt::Write;

use vyre::{Buffer, DataType, Engine, Error};

use super::NEIGHBOURS;
use super::butterflies::{Complex, Lines};
use crate::launch::{GROUP, Traits, grid, room};

/// Points of a workgroup's transforms, where they are shorter.
const TOGETHER: usize = 1024;
/// Points for each invocation.
const POINTS: usize = 8;

/// Where points are: steps from one transform of a batch to the next, and from one point to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) transform: usize,
    pub(super) index: usize,
    /// Neighbouring invocations have neighbouring points, not transforms.
    pub(super) by_index: bool,
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
}

impl Pass {
    fn points(&self) -> usize {
        self.radices.iter().product()
    }

    /// Transforms of a workgroup.
    fn together(&self) -> usize {
        let points = self.points();
        match self.from.by_index && self.to.by_index {
            true => (TOGETHER / points).max(1),
            // Neighbours in memory belong to different transforms: four of them fill a sector.
            false => (TOGETHER / points).max(4),
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
        let padded = traits.is_gpu;
        let key = format!("fft {self:?} {padded}");
        let kernel = engine.kernel_from(&key, || crate::launch::parsed(&self.source(padded)))?;
        let groups = transforms.div_ceil(self.together());
        let mut out = room(engine, &DataType::F32, transforms * self.points() * 2);
        let sizes = [transforms as u32];
        let call = kernel.bind("x", source).bind("table", table).value("sizes", &sizes).bind("out", &mut out);
        call.grid(grid(groups)).overwrites().launch()?;
        Ok(out)
    }

    fn source(&self, padded: bool) -> String {
        let (n, together) = (self.points(), self.together());
        let lanes = (n * together / POINTS).next_power_of_two().clamp(32, 256);
        let room = if padded { n * together + n * together / 32 } else { n * together };
        let mut text =
            "read x: vec<f32, 2> @0;\nread table: vec<f32, 2> @1;\nread sizes: u32 @2;\noutput out: vec<f32, 2> @3;\n"
                .to_owned();
        if self.radices.len() > 1 {
            let _ = write!(text, "workgroup real: f32[{room}] @0;\nworkgroup imaginary: f32[{room}] @0;\n");
        }
        let _ = write!(
            text,
            "workgroup_size [{lanes}, 1, 1];\nentry fft {{\n{GROUP}let l = local_index;\nlet first = group * {together};\n"
        );
        let last = self.radices.len() - 1;
        let mut before = 1;
        for (stage, &radix) in self.radices.iter().enumerate() {
            let count = n * together / radix;
            let layout = if stage == 0 { self.from } else { self.to };
            let times = count.div_ceil(lanes);
            let mut stores = String::new();
            for u in 0..times {
                let own = format!("{stage}_{u}");
                // Which transform and which of its butterflies.
                let (at, within) = match layout.by_index {
                    true => (format!("flat{own} / {}", n / radix), format!("flat{own} % {}", n / radix)),
                    false => (format!("flat{own} % {together}"), format!("flat{own} / {together}")),
                };
                let _ = write!(
                    text,
                    "let flat{own} = l + {};\nlet t{own} = {at};\nlet j{own} = {within};\nlet k{own} = j{own} % {before};\n",
                    u * lanes
                );
                let points = self.read(&mut text, stage, &own, [n, radix, before], padded);
                let mut lines = Lines { text: &mut text, prefix: format!("c{own}"), count: 0 };
                let made = lines.transform(&points);
                let whole = count.is_multiple_of(lanes);
                if !whole {
                    let _ = writeln!(stores, "if flat{own} < {count} {{");
                }
                for (i, point) in made.iter().enumerate() {
                    let place = format!("(j{own} - k{own}) * {radix} + k{own} + {}", i * before);
                    match stage == last {
                        true => self.write(&mut stores, &own, i, &place, point),
                        false => {
                            let at = memory(
                                &format!("t{own} * {n} + {place}"),
                                padded,
                                &format!("to{own}_{i}"),
                                &mut stores,
                            );
                            let _ = writeln!(stores, "real[{at}] = {};\nimaginary[{at}] = {};", point.re, point.im);
                        }
                    }
                }
                if !whole {
                    stores.push_str("}\n");
                }
            }
            // Everything is read before anything is written.
            if stage > 0 && stage < last {
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

    /// The points of a butterfly, turned by what the stages before it left.
    fn read(
        &self,
        text: &mut String,
        stage: usize,
        own: &str,
        [n, radix, before]: [usize; 3],
        padded: bool,
    ) -> Vec<Complex> {
        let mut points = Vec::new();
        if stage == 0 {
            let Layout { transform, index, .. } = self.from;
            let _ = write!(
                text,
                "let which{own} = first + t{own};\nlet from{own} = which{own} / {0} * {1} + which{own} % {0} * {transform};\n",
                self.per_batch, self.batch
            );
            for i in 0..radix {
                let point = Complex::named(&format!("x{own}_{i}"));
                let (re, im) = if self.swapped { ("y", "x") } else { ("x", "y") };
                let _ = write!(
                    text,
                    "let given{own}_{i} = x[from{own} + (j{own} + {}) * {index}];\nlet {} = given{own}_{i}.{re};\nlet {} = given{own}_{i}.{im};\n",
                    i * (n / radix),
                    point.re,
                    point.im
                );
                points.push(point);
            }
            return points;
        }
        for i in 0..radix {
            let point = Complex::named(&format!("x{own}_{i}"));
            let place = format!("t{own} * {n} + j{own} + {}", i * (n / radix));
            let at = memory(&place, padded, &format!("at{own}_{i}"), text);
            let _ = writeln!(text, "let {} = real[{at}];\nlet {} = imaginary[{at}];", point.re, point.im);
            if i == 0 {
                points.push(point);
                continue;
            }
            let turn = Complex { re: format!("turn{own}_{i}.x"), im: format!("turn{own}_{i}.y") };
            let _ = writeln!(text, "let turn{own}_{i} = table[k{own} * {}];", i * (n / (before * radix)));
            let mut lines = Lines { text, prefix: format!("t{own}_{i}"), count: 0 };
            points.push(lines.product(&point, &turn));
        }
        points
    }

    /// A result to its place in the buffer.
    fn write(&self, text: &mut String, own: &str, i: usize, place: &str, point: &Complex) {
        let n = self.points();
        let name = format!("{own}_{i}");
        let Layout { transform, index, .. } = self.to;
        if i == 0 {
            let _ = write!(
                text,
                "let to{own} = first + t{own};\nlet start{own} = to{own} / {0} * {1} + to{own} % {0} * {transform};\n",
                self.per_batch, self.batch
            );
        }
        let _ = writeln!(text, "let place{name} = {place};");
        let mut point = point.clone();
        if self.turned.is_some() {
            let _ = write!(
                text,
                "let angle{name} = to{own} % {0} * place{name};\nlet near{name} = table[{n} + angle{name} % {NEIGHBOURS}];\n\
                 let far{name} = table[{1} + angle{name} / {NEIGHBOURS}];\n",
                self.per_batch,
                n + NEIGHBOURS
            );
            let of = |kind: &str| Complex { re: format!("{kind}{name}.x"), im: format!("{kind}{name}.y") };
            let mut lines = Lines { text, prefix: format!("w{name}"), count: 0 };
            let turn = lines.product(&of("near"), &of("far"));
            point = lines.product(&point, &turn);
        }
        let (mut re, mut im) = (point.re, point.im);
        if let Some(count) = self.scale {
            let by = format!("f32#{:08x}", ((1.0 / count as f64) as f32).to_bits());
            (re, im) = (format!("{re} * {by}"), format!("{im} * {by}"));
        }
        if self.swapped {
            std::mem::swap(&mut re, &mut im);
        }
        let _ = writeln!(
            text,
            "if to{own} < sizes[0] {{\nout[start{own} + place{name} * {index}] = vec<f32, 2>({re}, {im});\n}}"
        );
    }
}

/// Where a point is in workgroup memory: one of padding in 32 keeps the lanes on different banks.
fn memory(place: &str, padded: bool, name: &str, text: &mut String) -> String {
    let _ = writeln!(text, "let {name} = {place};");
    if padded { format!("{name} + {name} / 32") } else { name.to_owned() }
}
