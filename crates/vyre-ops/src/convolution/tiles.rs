//! Convolutions on devices with many invocations: a product of the weights and of windows that are never written to memory.
//!
//! A workgroup makes 64 outputs at 128 places. An invocation fetches the windows of one place, a channel or a few at a time, into tiles in
//! workgroup memory, two of them in turn, and has 8 x 8 of the sums, as in products of matrices.

use std::fmt::Write;

use vyre::expression::Fused;

use super::Sizes;

/// Outputs and places of a workgroup; it has an invocation for each place.
const OUTPUTS: usize = 64;
const PLACES: usize = 128;
/// Outputs and places that an invocation has side by side; its parts are so wide, half a tile apart.
const SIDE: usize = 4;
/// Steps of the sum that are fetched at a time, where windows are smaller.
const STEPS: usize = 8;
/// The largest windows, whose every element is written out.
const MOST_WINDOW: usize = 25;
/// With fewer outputs most of a tile would be empty.
const FEWEST_OUTPUTS: usize = 16;

pub(super) fn suits(sizes: &Sizes, memory: u64) -> bool {
    sizes.outputs >= FEWEST_OUTPUTS && sizes.window() <= MOST_WINDOW && Tiles::of(sizes).bytes() <= memory
}

pub(super) fn groups(sizes: &Sizes) -> usize {
    sizes.outputs.div_ceil(OUTPUTS) * sizes.places().div_ceil(PLACES)
}

/// What is fetched at a time.
struct Tiles<'s> {
    sizes: &'s Sizes,
    channels: usize,
    /// Steps of the sum.
    steps: usize,
    /// Weights that an invocation fetches, and the row of the tile that they fill; a few of them are behind the tile and never read.
    weights: usize,
    width: usize,
}

impl Tiles<'_> {
    fn of(sizes: &Sizes) -> Tiles<'_> {
        let channels = (STEPS / sizes.window()).clamp(1, sizes.channels);
        let steps = channels * sizes.window();
        let weights = (OUTPUTS * steps).div_ceil(PLACES);
        let width = (weights * PLACES).div_ceil(steps).next_multiple_of(SIDE) + SIDE;
        Tiles { sizes, channels, steps, weights, width }
    }

    fn bytes(&self) -> u64 {
        (2 * 4 * self.steps * (self.width + PLACES)) as u64
    }

    /// Channels end within what is fetched at a time.
    fn is_ragged(&self) -> bool {
        !self.sizes.channels.is_multiple_of(self.channels)
    }

    /// Fetches from a channel on.
    fn fetch(&self, text: &mut String, fused: &Fused, name: &str, channel: &str) {
        let Sizes { channels, image: [h, w], kernel: [_, kw], .. } = *self.sizes;
        let window = self.sizes.window();
        for t in 0..self.weights {
            let _ = writeln!(text, "let {name}_k{t} = ({channel}) * {window} + (l + {}) % {};", t * PLACES, self.steps);
            let place = format!("(row + (l + {}) / {}) * {} + {name}_k{t}", t * PLACES, self.steps, channels * window);
            let _ = match self.is_ragged() {
                true => writeln!(
                    text,
                    "let {name}_w{t} = select({name}_k{t} < {}, weights[{place}], 0.0);",
                    channels * window
                ),
                false => writeln!(text, "let {name}_w{t} = weights[{place}];"),
            };
        }
        for t in 0..self.steps {
            let (own, ky, kx) = (t / window, t % window / kw, t % kw);
            let _ =
                writeln!(text, "let {name}_p{t} = start + ({channel}) * {} + {};", h * w, own * h * w + ky * w + kx);
            let (lines, values) = fused.lines(&format!("{name}_p{t}"), &format!("_{name}_{t}"));
            let there = if self.is_ragged() { format!(" & (({channel}) + {own} < {channels})") } else { String::new() };
            let _ = writeln!(
                text,
                "{lines}let {name}_x{t} = select((y + {ky} < {h}) & (x + {kx} < {w}){there}, {}, 0.0);",
                values[0]
            );
        }
    }

    /// Puts what was fetched into one of the two tiles.
    fn keep(&self, text: &mut String, name: &str, half: usize) {
        for t in 0..self.weights {
            let at = format!("(l + {0}) % {1} * {2} + (l + {0}) / {1}", t * PLACES, self.steps, self.width);
            let _ = writeln!(text, "left{half}[{at}] = {name}_w{t};");
        }
        for t in 0..self.steps {
            let _ = writeln!(text, "right{half}[l + {}] = {name}_x{t};", t * PLACES);
        }
    }

    fn multiply(&self, text: &mut String, half: usize) {
        for d in 0..self.steps {
            for (name, from, own, width, side) in
                [("a", "left", "down", self.width, OUTPUTS), ("b", "right", "across", PLACES, PLACES)]
            {
                for i in 0..2 * SIDE {
                    let at = d * width + i / SIDE * side / 2 + i % SIDE;
                    let _ = writeln!(text, "let {name}{half}_{d}_{i} = {from}{half}[{own} * {SIDE} + {at}];");
                }
            }
            for i in 0..2 * SIDE {
                for j in 0..2 * SIDE {
                    let _ = writeln!(text, "sum{i}_{j} = fma(a{half}_{d}_{i}, b{half}_{d}_{j}, sum{i}_{j});");
                }
            }
        }
    }
}

pub(super) fn source(sizes: &Sizes, fused: &Fused) -> String {
    let tiles = Tiles::of(sizes);
    let Sizes { outputs, channels, image: [h, w], result: [down, across], stride, padding, .. } = *sizes;
    let (each, at) = (down * across, fused.bindings());
    let vectors = each.is_multiple_of(SIDE);
    let mut text = fused.declarations(0, None);
    let element = if vectors { "vec<f32, 4>" } else { "f32" };
    let _ = write!(text, "read weights: f32 @{at};\noutput out: {element} @{};\n", at + 1);
    for half in 0..2 {
        let _ = writeln!(
            text,
            "workgroup left{half}: f32[{}] @0;\nworkgroup right{half}: f32[{}] @0;",
            tiles.steps * tiles.width,
            tiles.steps * PLACES
        );
    }
    let rows = outputs.div_ceil(OUTPUTS);
    let _ = write!(
        text,
        "workgroup_size [{PLACES}, 1, 1];\nentry convolution {{\n{}let l = local_index;\nif group < {} {{\n{}\
         let row = group % {rows} * {OUTPUTS};\nlet column = group / {rows} * {PLACES};\n\
         let across = l / 32 % 2 * 8 + l % 8;\nlet down = l / 64 * 4 + l % 32 / 8;\nlet own = column + l;\n\
         let y = own % {each} / {across} * {stride} - {padding};\nlet x = own % {across} * {stride} - {padding};\n\
         let start = (own / {each} * {} + y) * {w} + x;\n",
        crate::launch::GROUP,
        groups(sizes),
        fused.uniform_lines(),
        channels * h
    );
    for i in 0..2 * SIDE {
        for j in 0..2 * SIDE {
            let _ = writeln!(text, "var sum{i}_{j}: f32;");
        }
    }
    tiles.fetch(&mut text, fused, "first", "0");
    tiles.keep(&mut text, "first", 0);
    let rounds = channels.div_ceil(tiles.channels);
    let _ = writeln!(text, "barrier;\nfor channel in 0..{channels} step {} {{", 2 * tiles.channels);
    for half in 0..2 {
        let name = format!("next{half}");
        let ahead = (half + 1) * tiles.channels;
        let ends = half == 1 && !rounds.is_multiple_of(2);
        if ends {
            let _ = writeln!(text, "if channel + {} < {channels} {{", tiles.channels);
        }
        tiles.fetch(&mut text, fused, &name, &format!("channel + {ahead}"));
        tiles.multiply(&mut text, half);
        tiles.keep(&mut text, &name, 1 - half);
        text.push_str("barrier;\n");
        if ends {
            text.push_str("}\n");
        }
    }
    text.push_str("}\n");
    store(&mut text, sizes, vectors);
    text.push_str("}\n}\n");
    text
}

/// Each sum at its place: outputs of an image lie behind each other.
fn store(text: &mut String, sizes: &Sizes, vectors: bool) {
    let (outputs, each, places) = (sizes.outputs, sizes.result[0] * sizes.result[1], sizes.places());
    let step = if vectors { SIDE } else { 1 };
    for j in (0..2 * SIDE).step_by(step) {
        let at = j / SIDE * PLACES / 2 + j % SIDE;
        let _ = writeln!(
            text,
            "let place{j} = column + across * {SIDE} + {at};\nlet to{j} = place{j} / {each} * {} + place{j} % {each};",
            outputs * each
        );
        for i in 0..2 * SIDE {
            let output = format!("row + down * {SIDE} + {}", i / SIDE * OUTPUTS / 2 + i % SIDE);
            let value = match vectors {
                true => format!("vec<f32, 4>(sum{i}_{j}, sum{i}_{}, sum{i}_{}, sum{i}_{})", j + 1, j + 2, j + 3),
                false => format!("sum{i}_{j}"),
            };
            let place = format!("to{j} + ({output}) * {each}");
            let place = if vectors { format!("({place}) / 4") } else { place };
            let _ = writeln!(text, "if (place{j} < {places}) & ({output} < {outputs}) {{\nout[{place}] = {value};\n}}");
        }
    }
}
