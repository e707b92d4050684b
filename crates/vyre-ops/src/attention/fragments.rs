//! f16 and bf16 on matrix fragments with f32 sums: each subgroup has 16 queries, and the weights go from one product to the next in registers.
//!
//! Which position of the depth stands where in a fragment does not matter as long as both factors agree. So a lane has its parts of two steps
//! next to each other, 16 bytes at a time: of a key's row as it lies in memory, of the values by pairs of keys for each position of the
//! result, even positions before odd ones. Pieces of a row change places by its number, which keeps the lanes on different banks.

use std::fmt::Write;

use vyre::DataType;

use super::{KEYS, begin};

const SUBGROUPS: usize = 8;
const LANES: usize = SUBGROUPS * 32;
/// Queries of a workgroup.
pub(super) const ROWS: usize = SUBGROUPS * 16;
/// A score that counts for nothing.
const NOTHING: &str = "-1.0e30";

pub(super) fn suits(dim: usize) -> bool {
    dim.is_multiple_of(32)
}

/// Pieces of 16 bytes in a row of keys.
fn pieces(dim: usize) -> usize {
    (dim / 8).next_multiple_of(8)
}

/// Bytes of workgroup memory: keys and values.
pub(super) fn bytes(dim: usize) -> u64 {
    (16 * (KEYS * pieces(dim) + dim * 8)) as u64
}

pub(super) fn source(ty: &DataType, dim: usize, causal: bool) -> String {
    let product = product(ty);
    let (line, width) = (dim / 8, pieces(dim));
    let mut text = format!(
        "read q: vec<u32, 4> @0;\nread k: vec<u32, 4> @1;\nread v: u32 @2;\nread sizes: u32 @3;\noutput out: {} @4;\n\
         workgroup keys: vec<u32, 4>[{}] @0;\nworkgroup values: vec<u32, 4>[{}] @0;\nworkgroup_size [{LANES}, 1, 1];\nmath fast;\n\
         entry attention {{\n{}let lane = l % 32;\nlet row = lane / 4;\nlet part = lane % 4;\nlet turn = row % 2 * 4 + row / 2;\n\
         let power = scale * 1.442695;\n\
         let top = first_row + l / 32 * 16 + row;\nlet low = top + 8;\nlet top_at = (row_start + min(top, m - 1)) * {line} + part;\n\
         let low_at = (row_start + min(low, m - 1)) * {line} + part;\n",
        if *ty == DataType::BF16 { "bf16" } else { "vec<f16, 2>" },
        KEYS * width,
        dim * 8,
        begin(ROWS, dim, causal),
    );
    for s in 0..dim / 32 {
        let _ = write!(
            text,
            "let top{s} = q[top_at + {0}];\nlet low{s} = q[low_at + {0}];\nlet q{1} = vec<u32, 4>(top{s}.x, low{s}.x, top{s}.y, low{s}.y);\n\
             let q{2} = vec<u32, 4>(top{s}.z, low{s}.z, top{s}.w, low{s}.w);\n",
            s * 4,
            s * 2,
            s * 2 + 1
        );
    }
    let fetched = (KEYS * line).div_ceil(LANES);
    let fetch_keys = |text: &mut String, first: &str| {
        for t in 0..fetched {
            let own = format!("(l + {})", t * LANES);
            let _ = writeln!(
                text,
                "key{t} = k[key_start / 8 + min({first} + {own} / {line}, n - 1) * {line} + {own} % {line}];"
            );
        }
    };
    for t in 0..fetched {
        let _ = writeln!(text, "var key{t}: vec<u32, 4>;");
    }
    fetch_keys(&mut text, "0");
    for j in 0..dim / 8 {
        let _ = writeln!(text, "var result{j}: vec<f32, 4>;");
    }
    for row in ["top", "low"] {
        let _ = writeln!(text, "var most_{row}: f32 = {NOTHING};\nvar divisor_{row}: f32 = 0.0;");
    }
    let _ = writeln!(text, "for first in 0..end step {KEYS} {{");
    for t in 0..fetched {
        let own = format!("(l + {})", t * LANES);
        let at =
            format!("{own} / {line} * {width} + ({own} % {line} ^ ({own} / {line} % 2 * 4 + {own} / {line} / 2 % 4))");
        let store = format!("keys[{at}] = key{t};");
        let _ = match KEYS * line >= LANES * (t + 1) {
            true => writeln!(text, "{store}"),
            false => writeln!(text, "if {own} < {} {{\n{store}\n}}", KEYS * line),
        };
    }
    text.push_str("barrier;\n");
    let units = (4 * dim).div_ceil(LANES);
    fetch_values(&mut text, dim, units);
    scores(&mut text, product, dim, width);
    weights(&mut text, ty, dim, causal);
    for unit in 0..units {
        let own = format!("(l + {})", unit * LANES);
        let (pair, piece) = (format!("({own} % {})", dim / 2), format!("{own} / {}", dim / 2));
        for (half, shift) in [("low", "& 65535"), ("high", ">> 16")] {
            let place = if half == "low" { pair.clone() } else { format!("({pair} + {})", dim / 2) };
            let words: Vec<String> = (0..4)
                .map(|w| {
                    let [a, b] = [2 * w, 2 * w + 1].map(|at| format!("value{unit}_{at}"));
                    if half == "low" {
                        format!("({a} {shift}) | ({b} << 16)")
                    } else {
                        format!("({a} {shift}) | ({b} & 4294901760)")
                    }
                })
                .collect();
            let at = format!("{place} * 8 + ({piece} ^ ({place} % 2 * 4 + {place} / 2 % 4))");
            let _ = writeln!(text, "if {own} < {} {{\nvalues[{at}] = vec<u32, 4>({});\n}}", 4 * dim, words.join(", "));
        }
    }
    text.push_str("barrier;\n");
    fetch_keys(&mut text, &format!("first + {KEYS}"));
    for t in 0..KEYS / 32 {
        let _ = writeln!(text, "let piece{t} = row * 8 + (({} + part) ^ turn);", t * 4);
        for j in 0..dim / 8 {
            let from = format!("value{t}_of{j}");
            let _ = writeln!(text, "let {from} = values[piece{t} + {}];", j * 64);
            for (step, words) in [("x", "y"), ("z", "w")].iter().enumerate() {
                let _ = writeln!(
                    text,
                    "result{j} = {product}(p{}, vec<u32, 2>({from}.{}, {from}.{}), result{j});",
                    t * 2 + step,
                    words.0,
                    words.1
                );
            }
        }
    }
    text.push_str("barrier;\n}\n");
    for (row, lanes) in [("top", ["x", "y"]), ("low", ["z", "w"])] {
        for distance in [1, 2] {
            let _ = writeln!(
                text,
                "let more_{row}_{distance} = subgroup.shuffle_xor(divisor_{row}, {distance});\ndivisor_{row} = divisor_{row} + more_{row}_{distance};"
            );
        }
        let _ = writeln!(
            text,
            "let part_{row} = 1.0 / divisor_{row};\nif {row} < m {{\nlet to_{row} = (row_start + {row}) * {} + part * 2;",
            dim / 2
        );
        for j in 0..dim / 16 {
            for (at, lane) in lanes.iter().enumerate() {
                let [even, odd] = [j, j + dim / 16].map(|j| format!("result{j}.{lane} * part_{row}"));
                let to = format!("to_{row} + {}", j * 8 + at);
                let _ = match ty {
                    // What is stored as bf16 is computed as f32.
                    DataType::BF16 => writeln!(text, "out[({to}) * 2] = {even};\nout[({to}) * 2 + 1] = {odd};"),
                    _ => writeln!(text, "out[{to}] = vec<f16, 2>(cast<f16>({even}), cast<f16>({odd}));"),
                };
            }
        }
        text.push_str("}\n");
    }
    text.push_str("}\n}\n");
    text
}

/// The product of fragments, with what is added to it.
fn product(ty: &DataType) -> &'static str {
    if *ty == DataType::BF16 { "subgroup.matrix_bf16" } else { "subgroup.matrix_f16" }
}

/// Two values in a word.
fn halves(ty: &DataType, [a, b]: &[String; 2]) -> String {
    match ty {
        DataType::BF16 => format!("(({} >> 16) | ({} & 4294901760))", rounded(a), rounded(b)),
        _ => format!("bitcast<u32>(vec<f16, 2>(cast<f16>({a}), cast<f16>({b})))"),
    }
}

/// The upper half of the result is the bf16 that is nearest, of two the even one. What is not a number stays so.
fn rounded(given: &str) -> String {
    let bits = format!("bitcast<u32>({given})");
    format!("select(({bits} & 2147483647) > 2139095040, {bits} | 4194304, {bits} + 32767 + (({bits} >> 16) & 1))")
}

/// Two positions of eight values: those that stand in the four registers of a lane's two steps.
fn fetch_values(text: &mut String, dim: usize, units: usize) {
    for unit in 0..units {
        let own = format!("(l + {})", unit * LANES);
        let _ = write!(
            text,
            "let pair{unit} = key_start / 2 + {own} % {0};\nlet first{unit} = first + {own} / {0} / 4 * 32 + {own} / {0} % 4 * 2;\n",
            dim / 2
        );
        for at in 0..8 {
            let key = format!("first{unit} + {}", at / 2 * 8 + at % 2);
            let _ =
                writeln!(text, "let value{unit}_{at} = select({key} < n, v[pair{unit} + ({key}) * {}], 0);", dim / 2);
        }
    }
}

fn scores(text: &mut String, product: &str, dim: usize, width: usize) {
    for s in 0..dim / 32 {
        let _ = writeln!(text, "let column{s} = row * {width} + (({} + part) ^ turn);", s * 4);
    }
    for j in 0..KEYS / 8 {
        let _ = writeln!(text, "var score{j}: vec<f32, 4>;");
        for s in 0..dim / 32 {
            let from = format!("key_{j}_{s}");
            let _ = write!(
                text,
                "let {from} = keys[column{s} + {}];\nscore{j} = {product}(q{}, vec<u32, 2>({from}.x, {from}.y), score{j});\n\
                 score{j} = {product}(q{}, vec<u32, 2>({from}.z, {from}.w), score{j});\n",
                j * 8 * width,
                s * 2,
                s * 2 + 1
            );
        }
    }
}

/// From scores to weights, as the left factor of the next product, and what becomes of the sums.
fn weights(text: &mut String, ty: &DataType, dim: usize, causal: bool) {
    let all_see = if causal { "min(n, first_row + 1)" } else { "n" };
    let _ = writeln!(text, "if first + {KEYS} > {all_see} {{");
    for row in ["top", "low"] {
        let seen = if causal { format!("min(n, {row} + 1)") } else { "n".to_owned() };
        let _ = writeln!(text, "let seen_{row} = {seen};");
    }
    for j in 0..KEYS / 8 {
        let parts = [("top", "x", 0), ("top", "y", 1), ("low", "z", 0), ("low", "w", 1)].map(|(row, lane, at)| {
            let key = j * 8 + at;
            format!("select(first + part * 2 + {key} < seen_{row}, score{j}.{lane}, {NOTHING})")
        });
        let _ = writeln!(text, "score{j} = vec<f32, 4>({});", parts.join(", "));
    }
    text.push_str("}\n");
    for (row, lanes) in [("top", ["x", "y"]), ("low", ["z", "w"])] {
        let _ = writeln!(text, "var now_{row}: f32 = most_{row};");
        for j in 0..KEYS / 8 {
            for lane in lanes {
                let _ = writeln!(text, "now_{row} = max(now_{row}, score{j}.{lane});");
            }
        }
        for distance in [1, 2] {
            let _ = writeln!(
                text,
                "let other_{row}_{distance} = subgroup.shuffle_xor(now_{row}, {distance});\nnow_{row} = max(now_{row}, other_{row}_{distance});"
            );
        }
        // Weights are powers of two, so that the scale takes part in the product that they need anyway.
        let _ = writeln!(
            text,
            "let shrink_{row} = exp2((most_{row} - now_{row}) * power);\nmost_{row} = now_{row};\nlet base_{row} = now_{row} * power;\nvar sum_{row}: f32 = 0.0;"
        );
        for j in 0..KEYS / 8 {
            for lane in lanes {
                let _ = writeln!(
                    text,
                    "let w{j}_{lane} = exp2(fma(score{j}.{lane}, power, -base_{row}));\nsum_{row} = sum_{row} + w{j}_{lane};"
                );
            }
        }
        let _ = writeln!(text, "divisor_{row} = divisor_{row} * shrink_{row} + sum_{row};");
    }
    for j in 0..dim / 8 {
        let shrinks = "shrink_top, shrink_top, shrink_low, shrink_low";
        let _ = writeln!(text, "result{j} = result{j} * vec<f32, 4>({shrinks});");
    }
    for t in 0..KEYS / 16 {
        let pair = |j: usize, [a, b]: [&str; 2]| halves(ty, &[format!("w{j}_{a}"), format!("w{j}_{b}")]);
        let words = [
            pair(2 * t, ["x", "y"]),
            pair(2 * t, ["z", "w"]),
            pair(2 * t + 1, ["x", "y"]),
            pair(2 * t + 1, ["z", "w"]),
        ];
        let _ = writeln!(text, "let p{t} = vec<u32, 4>({});", words.join(", "));
    }
}
