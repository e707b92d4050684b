//! Products of matrices on devices with many invocations: tiles in workgroup memory, two of them in turn, and parts of them in registers.

use std::fmt::Write;

use vyre::{DataType, Engine, Error, Kernel, Program};

use super::epilogue::Steps;
use super::{Transposed, begin, head, narrowed, place_a, place_b, sums_of, widened};

/// Invocations of a workgroup.
const LANES: usize = 256;
/// Rows and columns that an invocation has side by side; its parts are so wide, half a tile apart.
const SIDE: usize = 4;

/// How a kernel is cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// Rows and columns of a workgroup's tile.
    pub(super) tile: usize,
    /// Steps of `k` that it holds.
    pub(super) depth: usize,
    /// Four elements that lie side by side are fetched and stored at once; every row has a multiple of four.
    pub(super) vectors: bool,
    /// Tiles fill the matrices, so nothing has to be compared with their sizes.
    pub(super) whole: bool,
}

impl Cut {
    pub(super) fn of(ty: &DataType, sizes: [usize; 3], transposed: Transposed) -> Cut {
        let [m, n, _] = sizes;
        match ty {
            DataType::F64 => Cut::with(ty, sizes, transposed, 64, 8),
            // Half of a larger tile would be empty.
            DataType::F32 if m.min(n) <= 64 => Cut::with(ty, sizes, transposed, 64, 16),
            _ => Cut::with(ty, sizes, transposed, 128, 8),
        }
    }

    /// Others that may be faster.
    pub(super) fn others(ty: &DataType, sizes: [usize; 3], transposed: Transposed) -> Vec<Cut> {
        let own = Cut::of(ty, sizes, transposed);
        let cuts: &[(usize, usize)] = if *ty == DataType::F32 { &[(128, 8), (128, 16), (64, 16)] } else { &[] };
        let cuts = cuts.iter().filter(|cut| **cut != (own.tile, own.depth));
        cuts.map(|&(tile, depth)| Cut::with(ty, sizes, transposed, tile, depth)).collect()
    }

    fn with(ty: &DataType, [m, n, k]: [usize; 3], transposed: Transposed, tile: usize, depth: usize) -> Cut {
        let widths = [if transposed.a { m } else { k }, if transposed.b { k } else { n }, n];
        let vectors = *ty == DataType::F32 && widths.iter().all(|width| width.is_multiple_of(4));
        let whole = m.is_multiple_of(tile) && n.is_multiple_of(tile) && k.is_multiple_of(2 * depth);
        Cut { tile, depth, vectors, whole }
    }

    /// Parts of an invocation along one side.
    fn parts(self) -> usize {
        self.tile / (16 * SIDE)
    }
}

pub(super) fn kernel(
    engine: &Engine,
    ty: &DataType,
    transposed: Transposed,
    cut: Cut,
    steps: Steps,
) -> Result<Kernel, Error> {
    let key = format!("matmul tiles {ty} {transposed:?} {cut:?} {steps:?}");
    engine.kernel_from(&key, || program(ty, transposed, cut, steps))
}

pub(super) fn program(ty: &DataType, transposed: Transposed, cut: Cut, steps: Steps) -> Result<Program, Error> {
    crate::launch::parsed(&source(ty, transposed, cut, steps))
}

fn source(ty: &DataType, transposed: Transposed, cut: Cut, steps: Steps) -> String {
    let tile = cut.tile;
    // Four more than there are keep the lanes on different banks and rows at multiples of four.
    let row = tile + 4;
    let sum = sums_of(ty);
    let mut text = match cut.vectors {
        true => head(&format!("vec<{ty}, 4>")),
        false => head(&ty.to_string()),
    };
    text.push_str(&steps.declaration(&ty.to_string(), 4));
    let fetches = Fetches::new(ty, transposed, cut);
    if cut.whole {
        let _ = writeln!(text, "workgroup places: u32[{LANES}] @0;");
    }
    for (tile, factor) in [("left", &fetches.a), ("right", &fetches.b)] {
        for half in 0..2 {
            let _ = match factor.is_wide {
                true => writeln!(text, "workgroup {tile}{half}: vec<{ty}, 4>[{}] @0;", cut.depth * row / 4),
                false => writeln!(text, "workgroup {tile}{half}: {sum}[{}] @0;", cut.depth * row),
            };
        }
    }
    // A subgroup is 8 across and 4 down, so that it reads few different elements. One bit of both places is among the lowest two of `l`: NVIDIA's workgroup memory
    // gives 16 bytes each to 16 lanes at once where every second one, or every second pair, wants the same, and otherwise to 8.
    let _ = write!(
        text,
        "workgroup_size [{LANES}, 1, 1];\nentry matmul {{\n{}let row = tile / tiles_across * {tile};\nlet column = tile % tiles_across * {tile};\n\
         let across = l / 32 % 2 * 8 + l / 4 % 4 * 2 + l % 2;\nlet down = l / 64 * 4 + l / 16 % 2 * 2 + l / 2 % 2;\n",
        begin(tile, tile)
    );
    let side = cut.parts() * SIDE;
    for i in 0..side {
        for j in 0..side {
            let _ = writeln!(text, "var sum{i}_{j}: {sum};");
        }
    }
    fetches.fetch(&mut text, "first", "0");
    fetches.keep(&mut text, "first", 0);
    if cut.whole {
        // Where the results go is needed again only after the products, which need all registers.
        text.push_str("places[l] = out_start + (row + down * 4) * n + column + across * 4;\n");
    }
    let _ = writeln!(text, "barrier;\nfor k in 0..depth step {} {{", 2 * cut.depth);
    for half in 0..2 {
        let name = format!("next{half}");
        fetches.fetch(&mut text, &name, &format!("k + {}", (half + 1) * cut.depth));
        for d in 0..cut.depth {
            for (factor, own, from) in [(&fetches.a, "down", "left"), (&fetches.b, "across", "right")] {
                let name = factor.name;
                for part in 0..cut.parts() {
                    let at = d * row + part * (tile / cut.parts());
                    if factor.is_wide {
                        let _ = writeln!(text, "let {name}{half}_{d}_part{part} = {from}{half}[{own} + {}];", at / 4);
                    }
                    for (i, lane) in VECTOR.iter().enumerate() {
                        let value = match factor.is_wide {
                            true => format!("{name}{half}_{d}_part{part}.{lane}"),
                            false => format!("{from}{half}[{own} * {SIDE} + {}]", at + i),
                        };
                        let _ = writeln!(text, "let {name}{half}_{d}_{} = {value};", part * SIDE + i);
                    }
                }
            }
            for i in 0..side {
                for j in 0..side {
                    let _ = writeln!(text, "sum{i}_{j} = fma(a{half}_{d}_{i}, b{half}_{d}_{j}, sum{i}_{j});");
                }
            }
        }
        fetches.keep(&mut text, &name, 1 - half);
        text.push_str("barrier;\n");
    }
    text.push_str("}\n");
    let from = |i: usize| i / SIDE * (tile / cut.parts()) + i % SIDE;
    text.push_str(&steps.begin(ty));
    match cut.whole {
        true if steps.bias => text.push_str("let to = places[l];\nlet own_column = to % n;\n"),
        true => text.push_str("let to = places[l];\n"),
        false => {
            for i in 0..side {
                let _ = writeln!(
                    text,
                    "let row{i} = row + down * {SIDE} + {0};\nlet column{i} = column + across * {SIDE} + {0};",
                    from(i)
                );
            }
        }
    }
    for i in 0..side {
        for j in (0..side).step_by(if cut.vectors { SIDE } else { 1 }) {
            let place = match cut.whole {
                true => format!("to + {} * n + {}", from(i), from(j)),
                false => format!("out_start + row{i} * n + column{j}"),
            };
            let mut done = Vec::new();
            let mut made = String::new();
            for j in j..j + if cut.vectors { SIDE } else { 1 } {
                let column = match cut.whole {
                    true => format!("own_column + {}", from(j)),
                    false => format!("column{j}"),
                };
                let (lines, value) = steps.lines(ty, &format!("sum{i}_{j}"), &column, &format!("{i}_{j}"));
                made.push_str(&lines);
                done.push(value);
            }
            let store = match cut.vectors {
                true => format!("{made}out[({place}) / 4] = vec<{ty}, 4>({});", done.join(", ")),
                false => format!("{made}out[{place}] = {};", narrowed(ty, &done[0])),
            };
            let _ = match cut.whole {
                true => writeln!(text, "{store}"),
                false => writeln!(text, "if (row{i} < m) & (column{j} < n) {{\n{store}\n}}"),
            };
        }
    }
    text.push_str("}\n}\n");
    text
}

const VECTOR: [&str; 4] = ["x", "y", "z", "w"];

/// What an invocation fetches of the tiles of both factors.
struct Fetches {
    ty: DataType,
    transposed: Transposed,
    cut: Cut,
    /// Elements at once, and how many times.
    width: usize,
    times: usize,
    a: Factor,
    b: Factor,
}

struct Factor {
    name: &'static str,
    /// Neighbours in memory are neighbours along `k`.
    along_depth: bool,
    /// The tile holds vectors.
    is_wide: bool,
}

impl Fetches {
    fn new(ty: &DataType, transposed: Transposed, cut: Cut) -> Fetches {
        let width = if cut.vectors { 4 } else { 1 };
        let factor = |name, along_depth| Factor { name, along_depth, is_wide: cut.vectors && !along_depth };
        let (a, b) = (factor("a", !transposed.a), factor("b", transposed.b));
        Fetches { ty: ty.clone(), transposed, cut, width, times: cut.tile * cut.depth / LANES / width, a, b }
    }

    /// Where a fetch of an invocation is in a tile: along the tile and in depth. Neighbours in the workgroup fetch neighbours in memory.
    fn places(&self, time: usize, factor: &Factor) -> (String, String) {
        let own = format!("(l + {})", time * LANES);
        match factor.along_depth {
            true => {
                let per_row = self.cut.depth / self.width;
                (format!("{own} / {per_row}"), format!("{own} % {per_row} * {}", self.width))
            }
            false => {
                let per_row = self.cut.tile / self.width;
                (format!("{own} % {per_row} * {}", self.width), format!("{own} / {per_row}"))
            }
        }
    }

    /// Fetches the tiles from a step of `k` on into `NAME_a…` and `NAME_b…`; zeros outside.
    fn fetch(&self, text: &mut String, name: &str, k: &str) {
        let zero = match (self.cut.vectors, &self.ty) {
            (true, ty) => format!("vec<{ty}, 4>(0.0, 0.0, 0.0, 0.0)"),
            (false, DataType::F64) => "0.0f64".to_owned(),
            _ => "0.0".to_owned(),
        };
        let divided = |place: String| if self.cut.vectors { format!("({place}) / 4") } else { place };
        for time in 0..self.times {
            let (along, depth) = self.places(time, &self.a);
            let place = divided(place_a(self.transposed, &format!("(row + {along})"), &format!("({k} + {depth})")));
            let inside = format!("(row + {along} < m) & ({k} + {depth} < depth)");
            let _ = writeln!(
                text,
                "let {name}_a{time} = {};",
                self.guarded(&inside, widened(&self.ty, format!("a[{place}]")), &zero)
            );
            let (along, depth) = self.places(time, &self.b);
            let place = divided(place_b(self.transposed, &format!("({k} + {depth})"), &format!("(column + {along})")));
            let inside = format!("(column + {along} < n) & ({k} + {depth} < depth)");
            let _ = writeln!(
                text,
                "let {name}_b{time} = {};",
                self.guarded(&inside, widened(&self.ty, format!("b[{place}]")), &zero)
            );
        }
    }

    /// Whole tiles have nothing outside, except behind the last, which is fetched and not used.
    fn guarded(&self, inside: &str, value: String, zero: &str) -> String {
        if self.cut.whole { value } else { format!("select({inside}, {value}, {zero})") }
    }

    /// Puts what was fetched into one of the two tiles.
    fn keep(&self, text: &mut String, name: &str, half: usize) {
        let row = self.cut.tile + 4;
        for time in 0..self.times {
            for (factor, tile) in [(&self.a, "left"), (&self.b, "right")] {
                let (along, depth) = self.places(time, factor);
                let value = format!("{name}_{}{time}", factor.name);
                if factor.is_wide {
                    let along = format!("(l + {}) % {}", time * LANES, self.cut.tile / 4);
                    let _ = writeln!(text, "{tile}{half}[({depth}) * {} + {along}] = {value};", row / 4);
                    continue;
                }
                for (part, lane) in VECTOR.iter().enumerate().take(self.width) {
                    let value = if self.cut.vectors { format!("{value}.{lane}") } else { value.clone() };
                    let _ = writeln!(text, "{tile}{half}[({depth} + {part}) * {row} + {along}] = {value};");
                }
            }
        }
    }
}
