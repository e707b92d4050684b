//! Tiles of queries, keys and values in workgroup memory and parts of their products in registers, on devices with many invocations.
//!
//! Sixteen invocations share four or eight queries: each has four neighbouring keys of a block, and four neighbouring positions in 64 of the results.
//! While keys are multiplied, values are on their way, and the next keys while values are.

use std::fmt::Write;

use vyre::DataType;

use super::{KEYS, begin};
use crate::exponential::exponential;

/// A row of the tile of keys; four more than there are keep the lanes on different banks and rows at multiples of four.
const WIDTH: usize = KEYS + 4;

/// What a workgroup has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile {
    /// Queries, ...
    pub(super) rows: usize,
    /// ... and those of each invocation.
    each: usize,
}

/// The fastest on an H200 first: the more an invocation has, the less it loads for each product. The last one is for little work and little
/// memory.
const TILES: [Tile; 3] = [Tile { rows: 128, each: 8 }, Tile { rows: 64, each: 8 }, Tile { rows: 32, each: 4 }];
/// So many workgroups keep all multiprocessors of a large device busy.
const MANY: usize = 256;

impl Tile {
    /// The fastest one that there is memory for and of which there are many, for so many queries of several batches.
    pub(super) fn of(dim: usize, queries: usize, memory: u64) -> Option<Tile> {
        let mut able = TILES.into_iter().filter(|tile| dim.is_multiple_of(16) && tile.bytes(dim) <= memory);
        able.clone().find(|tile| queries / tile.rows >= MANY).or(able.next_back())
    }

    /// Bytes of workgroup memory: queries, keys or values, weights.
    fn bytes(self, dim: usize) -> u64 {
        (4 * (WIDTH * dim + (self.rows + 4) * (dim + KEYS))) as u64
    }
}

pub(super) fn source(ty: &DataType, dim: usize, causal: bool, Tile { rows, each }: Tile) -> String {
    let (_, falling) = exponential(&DataType::F32);
    let wide = |element: String| if *ty == DataType::F16 { format!("cast<f32>({element})") } else { element };
    let (lanes, width) = (rows * 16 / each, rows + 4);
    // Parts of 64 positions in which an invocation has results.
    let parts = dim.div_ceil(64);
    let mut text = format!(
        "read q: vec<{ty}, 4> @0;\nread k: vec<{ty}, 4> @1;\nread v: vec<{ty}, 4> @2;\nread sizes: u32 @3;\noutput out: {ty} @4;\n\
         workgroup own: f32[{}] @0;\nworkgroup stage: f32[{}] @0;\nworkgroup weights: vec<f32, 4>[{}] @0;\nworkgroup_size [{lanes}, 1, 1];\n{falling}\
         entry attention {{\n{}let across = l % 16;\nlet down = l / 16;\nlet own_row = l / 4;\nlet own_part = l % 4;\n",
        dim * width,
        dim * WIDTH,
        KEYS * width / 4,
        begin(rows, dim, causal),
    );
    // Four positions of a row at a time, four invocations side by side; as many rounds as it takes for all rows.
    let together = lanes / 4;
    let (rounds, own_rounds) = (KEYS / together, rows / together);
    let fetch = |text: &mut String, buffer: &str, rounds: usize, row: &dyn Fn(usize) -> String| {
        for round in 0..rounds {
            for t in 0..dim / 16 {
                let at = row(round * together);
                let _ = writeln!(text, "next{round}_{t} = {buffer}[({at}) / 4 + own_part + {}];", t * 4);
            }
        }
    };
    let keep = |text: &mut String, tile: &str, rounds: usize, width: usize| {
        for round in 0..rounds {
            for t in 0..dim / 16 {
                for (u, lane) in ["x", "y", "z", "w"].iter().enumerate() {
                    let value = wide(format!("next{round}_{t}.{lane}"));
                    let (down, across) = (t * 16 + u, round * together);
                    let _ = writeln!(text, "{tile}[(own_part * 4 + {down}) * {width} + own_row + {across}] = {value};");
                }
            }
        }
    };
    let key = |first: String| move |ahead: usize| format!("key_start + min({first}own_row + {ahead}, n - 1) * {dim}");
    for round in 0..rounds.max(own_rounds) {
        for t in 0..dim / 16 {
            let _ = writeln!(text, "var next{round}_{t}: vec<{ty}, 4>;");
        }
    }
    let query = |ahead: usize| format!("(row_start + min(first_row + own_row + {ahead}, m - 1)) * {dim}");
    fetch(&mut text, "q", own_rounds, &query);
    keep(&mut text, "own", own_rounds, width);
    fetch(&mut text, "k", rounds, &key(String::new()));
    for i in 0..each {
        let _ = writeln!(text, "var most{i}: f32 = f32#ff800000;\nvar divisor{i}: f32 = 0.0;");
        for j in 0..4 * parts {
            let _ = writeln!(text, "var result{i}_{j}: f32 = 0.0;");
        }
    }
    let _ = writeln!(text, "for first in 0..end step {KEYS} {{");
    keep(&mut text, "stage", rounds, WIDTH);
    text.push_str("barrier;\n");
    // Values lie in the tile as they do in memory; what is behind the last key is nothing.
    let values = dim * KEYS / lanes / 4;
    let fours = dim / 4;
    let _ = writeln!(
        text,
        "let values = (key_start + first * {dim}) / 4 + l;\nlet there = (n - first) * {fours} - min((n - first) * {fours}, l);"
    );
    for t in 0..values {
        let ahead = t * lanes;
        let _ = writeln!(text, "let value{t} = v[values + {ahead}];\nlet is{t} = {ahead} < there;");
    }
    for i in 0..each {
        for j in 0..4 {
            let _ = writeln!(text, "var score{i}_{j}: f32 = 0.0;");
        }
    }
    // Counted by fours and not in steps of four, so that the last of them is known to lie in the tile.
    let _ = writeln!(text, "for d4 in 0..{fours} {{\nlet d = d4 * 4;");
    for u in 0..4 {
        for i in 0..each {
            let _ = writeln!(text, "let a{u}_{i} = own[(d + {u}) * {width} + down * {each} + {i}];");
        }
        for i in 0..4 {
            let _ = writeln!(text, "let b{u}_{i} = stage[(d + {u}) * {WIDTH} + across * 4 + {i}];");
        }
        for i in 0..each {
            for j in 0..4 {
                let _ = writeln!(text, "score{i}_{j} = fma(a{u}_{i}, b{u}_{j}, score{i}_{j});");
            }
        }
    }
    text.push_str("}\n");
    for i in 0..each {
        let seen = if causal { format!("min(n, first_row + down * {each} + {})", i + 1) } else { "n".to_owned() };
        let _ = writeln!(text, "let seen{i} = {seen};\nvar now{i}: f32 = most{i};");
        for j in 0..4 {
            let _ = writeln!(
                text,
                "score{i}_{j} = select(first + across * 4 + {j} < seen{i}, score{i}_{j} * scale, f32#ff800000);\nnow{i} = max(now{i}, score{i}_{j});"
            );
        }
        for distance in [8, 4, 2, 1] {
            let _ = writeln!(
                text,
                "let other{i}_{distance} = subgroup.shuffle_xor(now{i}, {distance});\nnow{i} = max(now{i}, other{i}_{distance});"
            );
        }
        let _ = writeln!(text, "let shrink{i} = call falling(most{i} - now{i});\nmost{i} = now{i};");
        for j in 0..4 {
            let _ = writeln!(text, "let w{i}_{j} = call falling(score{i}_{j} - now{i});");
        }
        let _ = writeln!(text, "var sum{i}: f32 = w{i}_0 + w{i}_1 + w{i}_2 + w{i}_3;");
        for distance in [8, 4, 2, 1] {
            let _ = writeln!(
                text,
                "let more{i}_{distance} = subgroup.shuffle_xor(sum{i}, {distance});\nsum{i} = sum{i} + more{i}_{distance};"
            );
        }
        let _ = writeln!(text, "divisor{i} = divisor{i} * shrink{i} + sum{i};");
        for j in 0..4 * parts {
            let _ = writeln!(text, "result{i}_{j} = result{i}_{j} * shrink{i};");
        }
    }
    for j in 0..4 {
        for four in 0..each / 4 {
            let own: Vec<String> = (four * 4..four * 4 + 4).map(|i| format!("w{i}_{j}")).collect();
            let place = format!("(across * 4 + {j}) * {} + down * {} + {four}", width / 4, each / 4);
            let _ = writeln!(text, "weights[{place}] = vec<f32, 4>({});", own.join(", "));
        }
    }
    text.push_str("barrier;\n");
    for t in 0..values {
        for (u, lane) in ["x", "y", "z", "w"].iter().enumerate() {
            let value = wide(format!("value{t}.{lane}"));
            let _ = writeln!(text, "stage[(l + {}) * 4 + {u}] = select(is{t}, {value}, 0.0);", t * lanes);
        }
    }
    text.push_str("barrier;\n");
    fetch(&mut text, "k", rounds, &key(format!("first + {KEYS} + ")));
    let _ = writeln!(text, "for j2 in 0..{} {{\nlet j = j2 * 2;", KEYS / 2);
    for u in 0..2 {
        for four in 0..each / 4 {
            let place = format!("(j + {u}) * {} + down * {} + {four}", width / 4, each / 4);
            let _ = writeln!(text, "let weight{u}_{four} = weights[{place}];");
        }
        for c in 0..4 * parts {
            let at = format!("{} + across * 4", c / 4 * 64 + c % 4);
            let _ = writeln!(text, "let x{u}_{c} = stage[(j + {u}) * {dim} + {at}];");
        }
        for i in 0..each {
            let weight = format!("weight{u}_{}.{}", i / 4, ["x", "y", "z", "w"][i % 4]);
            for c in 0..4 * parts {
                let _ = writeln!(text, "result{i}_{c} = fma({weight}, x{u}_{c}, result{i}_{c});");
            }
        }
    }
    text.push_str("}\nbarrier;\n}\n");
    for i in 0..each {
        let _ = writeln!(
            text,
            "let part{i} = 1.0 / divisor{i};\nlet row{i} = first_row + down * {each} + {i};\nif row{i} < m {{\nlet to{i} = (row_start + row{i}) * {dim};"
        );
        for c in 0..4 * parts {
            let result = format!("result{i}_{c} * part{i}");
            let result = if *ty == DataType::F16 { format!("cast<f16>({result})") } else { result };
            let at = c / 4 * 64 + c % 4;
            let store = format!("out[to{i} + {at} + across * 4] = {result};");
            let _ = match dim.is_multiple_of(64) {
                true => writeln!(text, "{store}"),
                false => writeln!(text, "if {at} + across * 4 < {dim} {{\n{store}\n}}"),
            };
        }
        text.push_str("}\n");
    }
    text.push_str("}\n}\n");
    text
}
