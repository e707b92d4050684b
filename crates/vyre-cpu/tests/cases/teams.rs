//! Some invocations of a workgroup that work on one thing: what the number of a team says is the same for all lanes of a vector where teams are
//! no smaller, and the places in a team lie side by side.

use crate::support::{agree, words};
use vyre_conform::Case;
use vyre_wgsl::{ImportOptions, import};

const GROUPS: u32 = 3;

/// A kernel of so many invocations, over inputs of so many words.
fn teams(what: &str, size: u32, read: u32, written: u32, body: &str) {
    let text = format!(
        "@group(0) @binding(0) var<storage, read> rows: array<u32>;
         @group(0) @binding(1) var<storage, read> data: array<u32>;
         @group(0) @binding(2) var<storage, read_write> result: array<u32>;
         @group(0) @binding(3) var<storage, read_write> counts: array<atomic<u32>>;
         var<workgroup> shared_words: array<u32, {size}>;
         @compute @workgroup_size({size})
         fn main(@builtin(local_invocation_index) own: u32, @builtin(workgroup_id) group: vec3u) {{
             let place = group.x * {size}u + own;
             // So that what was there before counts.
             if (arrayLength(&rows) == 0u) {{ result[place] += atomicLoad(&counts[0]); }}
             {body}
         }}"
    );
    let program = import(&text, &ImportOptions::default()).unwrap_or_else(|error| panic!("{what}: {error:?}"));
    let inputs = vec![words(read), words(read), words(written), words(40)];
    let case = Case { grid: Some([GROUPS, 1, 1]), ..Case::new(program, inputs) };
    agree(&format!("{what}, workgroups of {size}, {read} words read, {written} written"), &case);
}

const SIZES: [u32; 5] = [16, 64, 72, 128, 256];

#[test]
fn each_team_has_a_row() {
    for size in SIZES {
        for team in [4u32, 8, 16, 32, 64] {
            // No two workgroups write one row.
            let rows = size.div_ceil(team);
            for read in [5, 300, 4000] {
                let body = format!(
                    "let lane = own & {team}u - 1u;
                     let row = group.x * {rows}u + own / {team}u;
                     var sum = 0u;
                     if (row < arrayLength(&rows) / 2u) {{
                         let end = rows[row] % 1000u + rows[row + 1u] % 150u;
                         for (var k = rows[row] % 1000u + lane; k < end; k += {team}u) {{
                             sum = sum * 3u + data[k] + data[data[k] % 900u];
                         }}
                     }}
                     shared_words[own] = sum;
                     workgroupBarrier();
                     for (var half = {team}u / 2u; half >= 1u; half /= 2u) {{
                         if (lane < half && own + half < {size}u) {{
                             shared_words[own] += shared_words[own + half] * 5u;
                         }}
                         workgroupBarrier();
                     }}
                     if (lane == 0u && row < arrayLength(&rows)) {{ result[row] = shared_words[own]; }}
                     atomicAdd(&counts[own / {team}u], sum);"
                );
                teams(&format!("rows of teams of {team}"), size, read, 100, &body);
            }
        }
    }
}

#[test]
fn a_row_is_left_early() {
    for size in SIZES {
        let body = "let lane = own % 32u;
            let row = own >> 5u;
            var k = rows[row] % 200u + lane;
            var found = 0u;
            loop {
                if (k >= rows[row + 1u] % 500u) { break; }
                if (data[data[k] % 256u] % 7u == 3u) { found = k; break; }
                k += 32u;
            }
            shared_words[own] = k;
            workgroupBarrier();
            result[place] = found ^ shared_words[own ^ 1u];";
        teams("left early", size, 700, 1000, body);
    }
}

#[test]
fn bits_of_places() {
    let indices = [
        "own & 31u",
        "own & 48u",
        "own & 7u",
        "own & 23u",
        "own >> 3u",
        "own >> 4u",
        "own >> 2u",
        "(own >> 5u) * 7u",
        "own ^ 32u",
        "own ^ 24u",
        "own | 64u",
        "own | 3u",
        "(own * 2u) & 31u",
        "(own * 2u) & 63u",
        "(own * 4u) >> 5u",
        "(own * 4u) >> 2u",
        "(own + 16u) & 31u",
        "(own + 8u) & 31u",
        "(own + 8u) >> 4u",
        "(place + 32u) >> 5u",
        "place & 15u",
        "own / 48u",
        "own % 24u",
        "(0u - own) >> 4u",
        "(own - 64u) >> 4u",
        "((own & 31u) * 5u) ^ (own & 96u)",
        "(own >> 4u) << 4u | (15u - (own & 15u))",
        "u32(i32(own) - 64 >> 4u) & 127u",
        "u32(i32(own) % 32)",
    ];
    for (number, index) in indices.into_iter().enumerate() {
        for size in [64, 72, 256] {
            for read in [20, 1000] {
                let body = format!(
                    "let index = {index};
                     shared_words[own] = data[index] + rows[place];
                     workgroupBarrier();
                     var sum = index * 3u;
                     if (index < data[1] % 100u) {{ sum += shared_words[index % {size}u]; }}
                     if (data[index] % 2u == 0u) {{ sum = sum * 5u + rows[index + 1u]; }}
                     sum += select(7u, data[index], index < 20u) + u32(index == 3u);
                     atomicMax(&counts[index % 40u], sum);
                     result[place] = sum;"
                );
                teams(&format!("bits {number}: {index}"), size, read, 700, &body);
                let alone = format!(
                    "let index = {index};
                     var sum = 0u;
                     for (var k = index; k < rows[index] % 90u; k += 3u) {{ sum += data[k] + data[sum % 64u]; }}
                     result[place] = sum + select(index, rows[index], (index & 4u) == 0u);"
                );
                teams(&format!("bits {number} without a barrier: {index}"), size, read, 700, &alone);
            }
        }
    }
}
