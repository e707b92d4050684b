//! A query for each invocation: queries, scores and results stand side by side in workgroup memory, keys and values are the same for all.

use std::fmt::Write;

use vyre::DataType;

use super::{KEYS, begin};
use crate::exponential::exponential;

/// Keys, and positions of a result, that are worked on together.
const TOGETHER: usize = 8;

/// Bytes of workgroup memory.
pub(super) fn bytes(dim: usize, lanes: usize) -> u64 {
    (4 * lanes * (dim + dim.next_multiple_of(TOGETHER) + KEYS)) as u64
}

pub(super) fn source(ty: &DataType, dim: usize, causal: bool, lanes: usize) -> String {
    let (_, falling) = exponential(&DataType::F32);
    let wide = |element: String| if *ty == DataType::F16 { format!("cast<f32>({element})") } else { element };
    let results = dim.next_multiple_of(TOGETHER);
    let mut text = format!(
        "read q: {ty} @0;\nread k: {ty} @1;\nread v: {ty} @2;\nread sizes: u32 @3;\noutput out: {ty} @4;\nworkgroup own: f32[{}] @0;\n\
         workgroup results: f32[{}] @0;\nworkgroup scores: f32[{}] @0;\nworkgroup_size [{lanes}, 1, 1];\n{falling}entry attention {{\n{}\
         let row = first_row + l;\nlet place = (row_start + min(row, m - 1)) * {dim};\nlet seen = {};\n\
         for d in 0..{dim} {{\nown[d * {lanes} + l] = {};\n}}\nfor d in 0..{results} {{\nresults[d * {lanes} + l] = 0.0;\n}}\n\
         var most: f32 = f32#ff800000;\nvar divisor: f32 = 0.0;\nfor first in 0..end step {KEYS} {{\n",
        dim * lanes,
        results * lanes,
        KEYS * lanes,
        begin(lanes, dim, causal),
        if causal { "min(n, row + 1)" } else { "n" },
        wide("q[place + d]".to_owned()),
    );
    let _ = writeln!(text, "for j in 0..{KEYS} step {TOGETHER} {{");
    for u in 0..TOGETHER {
        let _ =
            writeln!(text, "let at{u} = key_start + min(first + j + {u}, n - 1) * {dim};\nvar score{u}: f32 = 0.0;");
    }
    let _ = writeln!(text, "for d in 0..{dim} {{\nlet x = own[d * {lanes} + l];");
    for u in 0..TOGETHER {
        let _ = writeln!(text, "score{u} = fma(x, {}, score{u});", wide(format!("k[at{u} + d]")));
    }
    text.push_str("}\n");
    for u in 0..TOGETHER {
        let _ = writeln!(
            text,
            "scores[(j + {u}) * {lanes} + l] = select(first + j + {u} < seen, score{u} * scale, f32#ff800000);"
        );
    }
    let _ = write!(
        text,
        "}}\nvar now: f32 = most;\nfor j in 0..{KEYS} {{\nnow = max(now, scores[j * {lanes} + l]);\n}}\nlet shrink = call falling(most - now);\nmost = now;\n"
    );
    for run in 0..KEYS / 4 {
        for u in 0..4 {
            let at = format!("scores[{} + l]", (run * 4 + u) * lanes);
            let sum = if u == 0 { format!("w{run}_0") } else { format!("run{run}_{} + w{run}_{u}", u - 1) };
            let _ = writeln!(
                text,
                "let w{run}_{u} = call falling({at} - now);\n{at} = w{run}_{u};\nlet run{run}_{u} = {sum};"
            );
        }
    }
    let mut runs: Vec<String> = (0..KEYS / 4).map(|run| format!("run{run}_3")).collect();
    while runs.len() > 1 {
        let half = runs.len() / 2;
        runs = (0..half).map(|at| format!("({} + {})", runs[at], runs[at + half])).collect();
    }
    let _ = write!(
        text,
        "divisor = divisor * shrink + {};\nlet count = min({KEYS}, end - first);\nlet values = key_start + first * {dim};\n\
         for d in 0..{results} step {TOGETHER} {{\n",
        runs[0]
    );
    for u in 0..TOGETHER {
        let _ = writeln!(text, "var result{u}: f32 = results[(d + {u}) * {lanes} + l] * shrink;");
    }
    let _ = writeln!(
        text,
        "for j in 0..count {{\nlet weight = scores[j * {lanes} + l];\nlet from = values + j * {dim} + d;"
    );
    for u in 0..TOGETHER {
        // What is behind the row is not stored.
        let _ = writeln!(text, "result{u} = fma(weight, {}, result{u});", wide(format!("v[from + {u}]")));
    }
    text.push_str("}\n");
    for u in 0..TOGETHER {
        let _ = writeln!(text, "results[(d + {u}) * {lanes} + l] = result{u};");
    }
    let result = format!("results[d * {lanes} + l] * part");
    let result = if *ty == DataType::F16 { format!("cast<f16>({result})") } else { result };
    let _ = write!(
        text,
        "}}\n}}\nlet part = 1.0 / divisor;\nif row < m {{\nfor d in 0..{dim} {{\nout[place + d] = {result};\n}}\n}}\n}}\n}}\n"
    );
    text
}
