//! Weighted sums of neighbours in two or three axes.
//!
//! **Order.** A chain of `fma` over the weights that are not zero, in their order, from 0.

mod host;

use std::fmt::Write;

use vyre::expression::{Fused, Term};
use vyre::ir::Literal;
use vyre::{DataType, Error};

use crate::launch::{
    GROUP, MOST, Traits, as_a_whole, count, extents, grid, is_plain, misfit, mistyped, room, with_function,
};
use crate::output::Output;

/// What is behind the edge of an array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Boundary {
    /// Zeros.
    #[default]
    Zero,
    /// The element at the edge.
    Edge,
    /// The other side.
    Wrap,
    /// The elements before the edge, which itself is not repeated.
    Reflect,
}

impl Boundary {
    /// The one of a name: `zero`, `edge`, `wrap` or `reflect`.
    pub fn named(name: &str) -> Option<Boundary> {
        let all = [
            ("zero", Boundary::Zero),
            ("edge", Boundary::Edge),
            ("wrap", Boundary::Wrap),
            ("reflect", Boundary::Reflect),
        ];
        all.into_iter().find(|(own, _)| *own == name).map(|(_, boundary)| boundary)
    }
}

/// Invocations of a workgroup.
const LANES: usize = 256;
/// Words of weights that go with a launch.
const FEW_WORDS: usize = 32;
/// Weights that are not zero.
const MOST_WEIGHTS: usize = 343;
/// With more of them the text of sixteen sums gets long, and what is shared is in registers anyway.
const MOST_FOR_QUADS: usize = 49;

/// How a workgroup's tile is cut: so many invocations are side by side, and each has so many neighbouring columns of so many rows.
#[derive(Clone, Copy, Debug)]
struct Cut {
    across: usize,
    columns: usize,
    rows: usize,
}

impl Cut {
    const PLAIN: Cut = Cut { across: 64, columns: 1, rows: 4 };
    /// On GPUs, of arrays whose rows are made of whole vectors.
    const QUADS: Cut = Cut { across: 32, columns: 4, rows: 4 };

    fn width(self) -> usize {
        self.across * self.columns
    }

    fn height(self) -> usize {
        LANES / self.across * self.rows
    }

    fn is_quads(self) -> bool {
        self.columns == 4
    }
}

/// Where a weight looks, along depth, height and width.
type Offset = [isize; 3];

/// The weights have two or three axes, their middle is the element itself, and axes of the array before these are a batch.
pub(crate) fn stencil(term: &Term, weights: &[f64], sides: &[usize], boundary: Boundary) -> Result<Output, Error> {
    let op = || format!("stencil {}", weights.iter().filter(|weight| **weight != 0.0).count());
    as_a_whole(op, &[term], count(&[term]) / 4, || stencil_here(term, weights, sides, boundary))
}

fn stencil_here(term: &Term, weights: &[f64], sides: &[usize], boundary: Boundary) -> Result<Output, Error> {
    let ty = term.data_type().clone();
    if !matches!(ty, DataType::F32 | DataType::F64) {
        return Err(mistyped(format!("stencils are of f32 and f64, not of {ty}")));
    }
    let shape = extents(term)?;
    let depth_of = |all: &[usize]| if sides.len() == 3 { all[all.len() - 3] } else { 1 };
    if !matches!(sides.len(), 2 | 3) || shape.len() < sides.len() || sides.iter().product::<usize>() != weights.len() {
        let message =
            format!("weights of {sides:?} are no stencil for an array of {shape:?}: they have two or three axes");
        return Err(misfit(message));
    }
    let [.., height, width] = shape[..] else { return Err(misfit("a stencil takes two axes")) };
    let (deep, high, wide) = (depth_of(sides), sides[sides.len() - 2], sides[sides.len() - 1]);
    let taps: Vec<(Offset, f64)> = weights
        .iter()
        .enumerate()
        .filter(|(_, weight)| **weight != 0.0)
        .map(|(at, weight)| {
            let place = [at / (high * wide), at / wide % high, at % wide];
            let from = |axis: usize, side: usize| place[axis] as isize - (side / 2) as isize;
            ([from(0, deep), from(1, high), from(2, wide)], *weight)
        })
        .collect();
    if taps.len() > MOST_WEIGHTS {
        let message = format!("{} weights are more than a stencil has, which is {MOST_WEIGHTS}", taps.len());
        return Err(misfit(message));
    }
    let fused = Fused::new(&[term])?;
    let engine = fused.engine().clone();
    let elements = fused.elements();
    let mut out = room(&engine, &ty, elements);
    if elements > MOST {
        return Err(misfit(format!("{elements} elements are more than are taken at once, which is {MOST}")));
    }
    if elements == 0 || taps.is_empty() {
        return Ok(Output { buffer: out, ty, shape });
    }
    let offsets: Vec<Offset> = taps.iter().map(|(offset, _)| *offset).collect();
    // Elements of an array that nothing is done to before come four at a time.
    let whole = term.stored().filter(|(_, stored)| **stored == DataType::F32).map(|(buffer, _)| buffer);
    let fits = width.is_multiple_of(4) && taps.len() <= MOST_FOR_QUADS;
    let whole = whole.filter(|_| fits && Traits::of(&engine).is_gpu);
    let cut = if whole.is_some() { Cut::QUADS } else { Cut::PLAIN };
    let mut key = format!("stencil {boundary:?} {cut:?} ");
    offsets.iter().for_each(|[z, y, x]| _ = write!(key, "{z},{y},{x};"));
    key.push_str(&fused.key());
    let kernel = engine.kernel_from_with(&key, || {
        let plain = is_plain(term, &fused) && !cut.is_quads();
        let function = plain.then(|| host::rows(&ty, &offsets, boundary)).flatten();
        let program = crate::launch::parsed(&source(&fused, &ty, &offsets, boundary, cut))?;
        Ok((program, with_function(&engine, function)))
    })?;
    let planes = elements / (height * width);
    let (across, down) = (width.div_ceil(cut.width()), height.div_ceil(cut.height()));
    let groups = planes * across * down;
    let sizes = [width, height, depth_of(&shape), across, down, groups].map(|size| size as u32);
    let words: Vec<u32> = taps
        .iter()
        .flat_map(|(_, weight)| match ty {
            DataType::F64 => vec![weight.to_bits() as u32, (weight.to_bits() >> 32) as u32],
            _ => vec![(*weight as f32).to_bits()],
        })
        .collect();
    let many;
    let mut call = fused.bind(kernel.call(), 0..elements).value("sizes", &sizes);
    if words.len() <= FEW_WORDS {
        // They go with the launch: an array of their own would be moved to the device first.
        let mut few = [0; FEW_WORDS];
        few[..words.len()].copy_from_slice(&words);
        call = call.value("weights", &few);
    } else {
        many = engine.array(&words)?.into_buffer();
        call = call.bind("weights", &many);
    }
    if let Some(buffer) = whole {
        call = call.bind("quads", buffer);
    }
    call.bind("out", &mut out).grid(grid(groups)).overwrites().launch()?;
    Ok(Output { buffer: out, ty, shape })
}

/// The weights that an array has, for [`stencil`].
pub(crate) fn stencil_of(term: &Term, weights: &Term, boundary: Boundary) -> Result<Output, Error> {
    let sides = extents(weights)?;
    let bytes = weights.evaluate()?.to_vec()?;
    let numbers: Vec<f64> = match weights.data_type() {
        DataType::F32 => bytes.as_chunks().0.iter().map(|part| f64::from(f32::from_le_bytes(*part))).collect(),
        DataType::F64 => bytes.as_chunks().0.iter().map(|part| f64::from_le_bytes(*part)).collect(),
        other => return Err(mistyped(format!("weights of a stencil are f32 or f64, not {other}"))),
    };
    stencil(term, &numbers, &sides, boundary)
}

fn source(fused: &Fused, ty: &DataType, offsets: &[Offset], boundary: Boundary, cut: Cut) -> String {
    let at = fused.bindings();
    let Cut { across, columns, rows } = cut;
    let zero = vyre::expression::literal_text(&Literal::zero(ty).unwrap_or(Literal::U32(0)));
    let mut text = fused.declarations(0, None);
    let _ = write!(
        text,
        "read sizes: u32 @{at};\nread weights: u32 @{};\noutput out: {} @{};\n{}workgroup_size [{LANES}, 1, 1];\nentry stencil {{\n{GROUP}\
         let l = local_index;\nlet width = sizes[0];\nlet height = sizes[1];\nlet depth = sizes[2];\n{}if group < sizes[5] {{\n\
         let plane = group / (sizes[3] * sizes[4]);\nlet z = plane % depth;\nlet left = group % sizes[3] * {};\n\
         let top = group / sizes[3] % sizes[4] * {};\nlet x = left + l % {across} * {columns};\nlet y = top + l / {across} * {rows};\n",
        at + 1,
        if cut.is_quads() { format!("vec<{ty}, 4>") } else { ty.to_string() },
        at + 2,
        if cut.is_quads() { format!("read quads: vec<{ty}, 4> @{};\n", at + 3) } else { String::new() },
        fused.uniform_lines(),
        cut.width(),
        cut.height()
    );
    for k in 0..offsets.len() {
        let weight = match ty {
            DataType::F64 => {
                format!("bitcast<f64>(cast<u64>(weights[{}]) | (cast<u64>(weights[{}]) << 32))", 2 * k, 2 * k + 1)
            }
            _ => format!("bitcast<f32>(weights[{k}])"),
        };
        let _ = writeln!(text, "let weight{k} = {weight};");
    }
    let reach = |axis: usize| {
        let all = || offsets.iter().map(|offset| offset[axis]);
        [all().min().unwrap_or(0).min(0).unsigned_abs(), all().max().unwrap_or(0).max(0).unsigned_abs()]
    };
    let ([back, ahead], [up, down], [before, behind]) = (reach(0), reach(1), reach(2));
    // Where all that a tile looks at is there, no place has to be thought about. With vectors, each invocation asks for itself: few tiles of
    // their width are not at an edge.
    let [first_x, first_y, wide, high] = match cut.is_quads() {
        true => ["x", "y", &columns.to_string(), &rows.to_string()].map(str::to_owned),
        false => ["left", "top", &cut.width().to_string(), &cut.height().to_string()].map(str::to_owned),
    };
    let _ = writeln!(
        text,
        "if (z >= {back}) & (z + {ahead} < depth) & ({first_y} >= {up}) & ({first_y} + {high} + {down} <= height) & ({first_x} >= {before}) & \
         ({first_x} + {wide} + {behind} <= width) {{\nlet own = (plane * height + y) * width + x;",
    );
    let moved = |[dz, dy, dx]: Offset| {
        let term = |by: isize, unit: &str| match by {
            0 => String::new(),
            _ => format!(" {} {}{unit}", if by < 0 { "-" } else { "+" }, by.unsigned_abs()),
        };
        format!("own{}{}{}", term(dz, " * height * width"), term(dy, " * width"), term(dx, ""))
    };
    let mut vectors: Vec<Offset> = Vec::new();
    let inside = |text: &mut String, offset: Offset, at: usize| {
        if !cut.is_quads() {
            return read(text, fused, &format!("in{at}"), &moved(offset));
        }
        let [dz, dy, dx] = offset;
        let vector = [dz, dy, dx.div_euclid(4) * 4];
        let number = vectors.iter().position(|own| *own == vector).unwrap_or_else(|| {
            let _ = writeln!(text, "let quad{} = quads[({}) / 4];", vectors.len(), moved(vector));
            vectors.push(vector);
            vectors.len() - 1
        });
        format!("quad{number}.{}", LANE_NAMES[dx.rem_euclid(4) as usize])
    };
    sums(&mut text, offsets, cut, &zero, "in", inside);
    store(&mut text, cut, "in", "own");
    text.push_str("} else {\n");
    let edge = |[dz, dy, dx]: Offset| {
        let parts = [("z", dz, "depth"), ("y", dy, "height"), ("x", dx, "width")];
        let [z, y, x] = parts.map(|(own, by, end)| placed(own, by, end, boundary));
        let place = match dz {
            0 => format!("(plane * height + {y}) * width + {x}"),
            _ => format!("((plane - z + {z}) * height + {y}) * width + {x}"),
        };
        let inside = (boundary == Boundary::Zero).then(|| format!("({z} < depth) & ({y} < height) & ({x} < width)"));
        (place, inside)
    };
    let at_edge = |text: &mut String, offset: Offset, at: usize| {
        let (place, inside) = edge(offset);
        let value = read(text, fused, &format!("at{at}"), &place);
        match inside {
            Some(inside) => format!("select({inside}, {value}, {zero})"),
            None => value,
        }
    };
    sums(&mut text, offsets, cut, &zero, "at", at_edge);
    text.push_str("if x < width {\n");
    store(&mut text, cut, "at", "(plane * height + y) * width + x");
    text.push_str("}\n}\n}\n}\n");
    text
}

const LANE_NAMES: [&str; 4] = ["x", "y", "z", "w"];

/// An element at a place.
fn read(text: &mut String, fused: &Fused, name: &str, place: &str) -> String {
    let (lines, values) = fused.lines(&format!("place_{name}"), &format!("_{name}"));
    let _ = write!(text, "let place_{name} = {place};\n{lines}");
    values[0].clone()
}

/// The sums of an invocation. What several of them look at is read once, by `element`, which gets a number for it.
fn sums(
    text: &mut String,
    offsets: &[Offset],
    cut: Cut,
    zero: &str,
    name: &str,
    mut element: impl FnMut(&mut String, Offset, usize) -> String,
) {
    let mut known: Vec<Offset> = Vec::new();
    for row in 0..cut.rows {
        for column in 0..cut.columns {
            let mut sum = zero.to_owned();
            for (k, [dz, dy, dx]) in offsets.iter().enumerate() {
                let offset = [*dz, *dy + row as isize, *dx + column as isize];
                let at = known.iter().position(|own| *own == offset).unwrap_or_else(|| {
                    let value = element(text, offset, known.len());
                    let _ = writeln!(text, "let {name}_v{} = {value};", known.len());
                    known.push(offset);
                    known.len() - 1
                });
                let _ = writeln!(text, "let {name}_s{row}_{column}_{k} = fma(weight{k}, {name}_v{at}, {sum});");
                sum = format!("{name}_s{row}_{column}_{k}");
            }
            let _ = writeln!(text, "let sum_{name}{row}_{column} = {sum};");
        }
    }
}

/// Stores the sums of those rows that there are.
fn store(text: &mut String, cut: Cut, name: &str, place: &str) {
    for row in 0..cut.rows {
        let own = |column: usize| format!("sum_{name}{row}_{column}");
        let (place, value) = match cut.is_quads() {
            true => {
                let all: Vec<String> = (0..4).map(own).collect();
                (format!("({place} + {row} * width) / 4"), format!("vec<f32, 4>({})", all.join(", ")))
            }
            false => (format!("{place} + {row} * width"), own(0)),
        };
        let _ = match name {
            "in" => writeln!(text, "out[{place}] = {value};"),
            _ => writeln!(text, "if y + {row} < height {{\nout[{place}] = {value};\n}}"),
        };
    }
}

/// A coordinate so far from its own, as the boundary has it.
fn placed(own: &str, by: isize, end: &str, boundary: Boundary) -> String {
    let far = by.unsigned_abs();
    let moved = if by < 0 { format!("{own} - {far}") } else { format!("{own} + {far}") };
    match boundary {
        // Before the first it wraps around to what is behind every last one.
        Boundary::Zero => format!("({moved})"),
        Boundary::Edge if by < 0 => format!("min({own} - min({own}, {far}), {end} - 1)"),
        Boundary::Edge => format!("min({moved}, {end} - 1)"),
        Boundary::Wrap if by < 0 => format!("(({own} + {end} * {far} - {far}) % {end})"),
        Boundary::Wrap => format!("(({moved}) % {end})"),
        Boundary::Reflect => {
            let period = format!("(2 * ({end} - 1))");
            let ahead = if by < 0 {
                format!("({own} + {period} * {far} - min({period} * {far}, {far}))")
            } else {
                format!("({moved})")
            };
            format!("min({ahead} % {period}, {period} - {ahead} % {period})")
        }
    }
}
