//! Invocations with a stack of their own in a private array, in loops that some leave long before others: these are done one after the other.

use std::time::{Duration, Instant};

use crate::support::{agree, words};
use vyre_conform::Case;
use vyre_cpu::{CpuBackend, CpuPath};
use vyre_driver::{DispatchConfig, VyreBackend};
use vyre_spec::codes;
use vyre_wgsl::{ImportOptions, import};

/// Each invocation has `item`, a word of its own, and `result`, and a stack of 16 words of which it uses `top`. `step` is done until the stack
/// is empty, and `bound` ends it at the latest.
fn with_stack(what: &str, size: [u32; 2], step: &str) {
    let [x, y] = size;
    let text = format!(
        "@group(0) @binding(0) var<storage, read> data: array<u32>;
         @group(0) @binding(1) var<storage, read_write> results: array<u32, 415>;
         @compute @workgroup_size({x}, {y})
         fn main(@builtin(global_invocation_id) id: vec3u, @builtin(local_invocation_id) local: vec3u,
                 @builtin(workgroup_id) group: vec3u) {{
             let place = id.y * 83u + id.x;
             if (id.x >= 83u || id.y >= 5u) {{ return; }}
             let item = data[place];
             if (item % 11u == 3u) {{
                 results[place] = 5u;
                 return;
             }}
             var stack: array<u32, 16>;
             var weight: array<f32, 16>;
             var top = 1i;
             var result = local.x + 16u * group.x;
             var shade = 1.5f;
             var bound = 0u;
             stack[0] = item;
             weight[0] = f32(item & 255u);
             while (top > 0) {{
                 bound++;
                 if (bound > 300u) {{ break; }}
                 {step}
             }}
             results[place] = result + bitcast<u32>(shade) + bound * 7u + stack[3] + bitcast<u32>(weight[2]);
         }}"
    );
    let program = import(&text, &ImportOptions::default()).expect("a kernel");
    let inputs = vec![words(83 * 5)];
    let case = Case { grid: Some([83_u32.div_ceil(x), 5_u32.div_ceil(y), 1]), ..Case::new(program, inputs) };
    agree(&format!("{what}, workgroups of {x} x {y}"), &case);
}

#[test]
fn stacks_go_up_and_down() {
    for size in [[64, 1], [16, 4], [32, 2]] {
        with_stack(
            "a tree of numbers",
            size,
            "top--;
             let node = stack[top];
             result = result * 31u + node;
             if ((node & 3u) != 0u && top < 14) {
                 stack[top] = node >> 2u;
                 top++;
                 if ((node & 4u) != 0u) {
                     stack[top] = (node >> 3u) ^ 1u;
                     top++;
                 }
             }",
        );
        with_stack(
            "numbers and floats, and words of a buffer",
            size,
            "top--;
             let node = stack[top];
             let by = weight[top];
             shade = max(shade * 0.75 + by, sqrt(by) - shade);
             let next = data[node % arrayLength(&data)];
             if (next % 5u < 3u && by > 2.0) {
                 stack[top] = next;
                 weight[top] = by * 0.5;
                 top++;
             } else if (next % 7u == 0u) {
                 result++;
                 continue;
             }
             if (top < 12 && by < 40.0 && next % 3u == 0u) {
                 stack[top] = next ^ node;
                 weight[top] = by - 1.0;
                 top++;
             }",
        );
    }
}

/// Reads give nothing beyond the array, and what is written there is lost.
#[test]
fn stacks_run_over() {
    with_stack(
        "a stack that is too small",
        [64, 1],
        "let node = stack[top - 1];
         result = result * 3u + (node ^ bound);
         if (node % 4u != 1u) {
             stack[top] = node * 5u + 1u;
             weight[top] = f32(node % 9u);
             top++;
         } else {
             shade += weight[top];
             top -= 2;
         }",
    );
    with_stack(
        "a number that wraps",
        [64, 1],
        "let node = stack[top & 15];
         result ^= node;
         if ((node & 1u) == 0u) {
             top += 0x30000001;
             stack[(top >> 4u) & 15] = node / 2u + 1u;
         } else {
             top -= 3;
             stack[top & 15] = node / 2u;
         }",
    );
}

/// The lowest bit of a set, and the set without it, in all the ways that people write them.
#[test]
fn bits_of_a_set_are_taken_one_by_one() {
    for lowest in
        ["open & (~open + 1u)", "(0u - open) & open", "u32(i32(open) & -i32(open))", "open & (0u - (open ^ 1u))"]
    {
        with_stack(
            lowest,
            [64, 1],
            &format!(
                "let open = stack[top - 1];
                 let bit = {lowest};
                 stack[top - 1] = open ^ bit;
                 result = result * 5u + bit + (bit ^ open);
                 if (open == 0u) {{
                     top--;
                 }} else if (top < 12 && bit > 64u) {{
                     stack[top] = open % (bit + 1u);
                     top++;
                 }}"
            ),
        );
    }
}

#[test]
fn tops_that_were_stored_before() {
    for size in [[64, 1], [16, 4]] {
        for (what, step) in [
            (
                "the top goes on in every way",
                "let open = stack[top];
                 if (open == 0u) { top--; continue; }
                 let bit = open & (0u - open);
                 stack[top] = open ^ bit;
                 if (top == 9) { result++; continue; }
                 result = result * 3u + bit;
                 top++;
                 stack[top] = (item >> u32(top)) & ~bit & 31u;",
            ),
            (
                "two are put on it",
                "let node = stack[top - 1];
                 top--;
                 result = result * 31u + node;
                 if (node > 40u && top < 13) {
                     stack[top] = node >> 3u;
                     stack[top + 1] = node >> 5u;
                     top += 2;
                 }",
            ),
            (
                "another place is stored last",
                "let node = stack[top];
                 stack[top + 1] = node >> 1u;
                 stack[top] = node + 3u;
                 if ((node & 7u) < 5u && top < 12) { top++; } else { top -= 2; if (top > 2) { stack[item % 4u] = result; } }
                 result = result * 7u + node;",
            ),
            (
                "with what a loop within found",
                "if (top == 12 || (stack[top] & 3u) == 1u) {
                     top--;
                     while (top >= 1 && stack[top] % 3u == 2u) { top--; }
                     if (top < 1) { break; }
                     stack[top] = stack[top] * 3u + 2u;
                     result += 1u;
                     continue;
                 }
                 stack[top + 1] = stack[top] / 2u + item % 97u;
                 top++;",
            ),
        ] {
            with_stack(what, size, step);
        }
    }
}

/// Rounds that are left at once by a test of the top, of either sign and in either direction, which some ways to the next round need not make again
/// and others must.
#[test]
fn rounds_that_begin_with_a_test() {
    let search = "let open = stack[top];
        if (open == 0u) { top DOWN ONE; bound++; if (bound > 24u) { break; } continue; }
        let bit = open & (0u - open);
        let before = other[top];
        stack[top] = open ^ bit;
        if (top == LAST) { result = result * 5u + bit; continue; }
        if (bit == 0x4000u) { top DOWN TWO; bound++; if (bound > 24u) { break; } continue; }
        top UP ONE;
        other[top] = before ^ bit;
        stack[top] = item ^ bit;";
    let rising = [("+=", "UP"), ("-=", "DOWN")];
    let falling = [("-=", "UP"), ("+=", "DOWN")];
    for (what, kind, first, head, ways) in [
        ("above a number", "i32", "4", "top > 3", rising),
        ("not below a number", "i32", "4", "4 <= top", rising),
        ("not nothing", "u32", "1", "top != 0u", rising),
        ("above nothing", "u32", "2", "top > 1u", rising),
        ("not below one, without a sign", "u32", "2", "top >= 2u", rising),
        ("downwards", "i32", "12", "top < 13", falling),
        ("downwards without a sign", "u32", "12", "top <= 12u", falling),
        ("not a number", "i32", "4", "top != 3", rising),
        ("what another number decides", "i32", "4", "bound < 15u", rising),
        ("a limit that changes", "i32", "4", "top > i32(result & 3u)", rising),
    ] {
        let (one, two) = if kind == "u32" { ("1u", "2u") } else { ("1", "2") };
        let last = if ways == rising { "13" } else { "2" };
        let step = ways.iter().fold(search.to_owned(), |step, (op, way)| step.replace(way, op));
        let step = step.replace("ONE", one).replace("TWO", two).replace("LAST", &format!("{kind}({last})"));
        for step in [step.clone(), format!("if (!({head})) {{ break; }} {step}")] {
            let text = format!(
                "@group(0) @binding(0) var<storage, read> data: array<u32>;
                 @group(0) @binding(1) var<storage, read_write> results: array<u32, 200>;
                 @compute @workgroup_size(64)
                 fn main(@builtin(global_invocation_id) id: vec3u) {{
                     if (id.x >= 200u) {{ return; }}
                     let item = data[id.x];
                     var stack: array<u32, 16>;
                     var other: array<u32, 16>;
                     var top = {kind}({first});
                     var result = 1u;
                     var bound = 0u;
                     stack[top] = item & 0x3f0ffu;
                     while ({head}) {{
                         {step}
                     }}
                     results[id.x] = result + bound * 3u + u32(top) * 7u + stack[5] + other[6];
                 }}"
            );
            let program = import(&text, &ImportOptions::default()).expect("a kernel");
            let case = Case { grid: Some([4, 1, 1]), ..Case::new(program, vec![words(200)]) };
            agree(what, &case);
        }
    }
}

/// A search that never ends is left soon after its time is up, whichever ways it goes.
#[test]
fn endless_searches_end_when_their_time_is_up() {
    for (what, step) in [
        (
            "up and down",
            "if ((open & 1u) == 0u && top < 9) {
                 stack[top] = open | 1u;
                 top++;
                 stack[top] = open + 2u;
             } else {
                 stack[top] = 0u;
                 top--;
                 if (top < 4 && open != 77u) { top = 4; stack[top] = open * 4u; }
             }",
        ),
        (
            "up and all the way down",
            "stack[top] = open + 1u;
             if (open == 0xfffffff3u) { top--; stack[top] = 1u; } else if (top < 9) { top++; stack[top] = open | 8u; } else { top = 4; }",
        ),
        (
            "at one place",
            "stack[top] = open * 5u + 1u;
             if (open == 77u) { top--; stack[top] = 1u; } else if (open == 78u && top < 9) { top++; stack[top] = 1u; }",
        ),
    ] {
        let text = format!(
            "@group(0) @binding(0) var<storage, read> data: array<u32>;
             @group(0) @binding(1) var<storage, read_write> results: array<u32, 64>;
             @compute @workgroup_size(64)
             fn main(@builtin(global_invocation_id) id: vec3u) {{
                 var stack: array<u32, 16>;
                 var top = 4;
                 stack[4] = data[id.x] * 4u;
                 while (top >= 4) {{
                     let open = stack[top];
                     {step}
                 }}
                 results[id.x] = stack[5];
             }}"
        );
        let program = import(&text, &ImportOptions::default()).expect("a kernel");
        let mut config = DispatchConfig::default();
        config.timeout = Some(Duration::from_millis(50));
        for path in CpuPath::ALL.into_iter().filter(|path| path.is_here()) {
            let started = Instant::now();
            let backend = CpuBackend::with_path(path).expect("it is here");
            let error = backend.dispatch(&program, &[words(64)], &config).unwrap_err();
            assert_eq!(error.code(), codes::backend::TIMEOUT.id, "{what} on {path}: {error}");
            assert!(started.elapsed() < Duration::from_secs(20), "{what} on {path} took {:?}", started.elapsed());
        }
    }
}
