//! Numbers that are bounded and converted, and chosen among few, for which instruction sets have different instructions: every path gives
//! what the reference gives.

use crate::support::{agree, words};
use vyre_conform::Case;
use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
use vyre_wgsl::{ImportOptions, import};

fn kernel(text: &str) -> Program {
    import(text, &ImportOptions::default()).expect("a kernel")
}

/// Numbers at the edges of what integers hold, and others.
fn floats() -> Vec<u8> {
    let edges = [
        f32::NAN,
        -f32::NAN,
        0.0,
        -0.0,
        1e-45,
        -1e-45,
        0.5,
        0.999,
        -0.5,
        -1.0,
        254.5,
        255.0,
        255.5,
        300.0,
        2_147_483_520.0,
        2_147_483_648.0,
        2_147_483_904.0,
        4_294_967_040.0,
        4_294_967_296.0,
        1e30,
        -2_147_483_648.0,
        -2_147_483_904.0,
        -1e30,
        f32::INFINITY,
        f32::NEG_INFINITY,
    ];
    let others = (0..175u32).map(|i| i.wrapping_mul(2_654_435_761) as f32 / 1e7 - 100.0);
    edges.into_iter().chain(others).flat_map(f32::to_le_bytes).collect()
}

#[test]
fn conversions_of_bounded_numbers() {
    for value in [
        "u32(x)",
        "bitcast<u32>(i32(x))",
        "u32(clamp(x, 0.0, 255.0))",
        "u32(clamp(x, -0.0, 0.0))",
        "u32(clamp(x, -3.0, 255.9))",
        "u32(clamp(x, 3.0, 255.9))",
        "u32(max(x, 0.0))",
        "u32(max(0.0, x))",
        "u32(max(-7.0, x))",
        "u32(max(min(x, 9.5), 0.0))",
        "u32(min(x, 300.0))",
        "u32(min(300.0, x))",
        "u32(min(300.0, max(x, 0.0)))",
        "u32(min(max(x, 0.0), 3000000000.0))",
        "u32(min(x, 2147483648.0))",
        "u32(min(x, 2147483520.0))",
        "bitcast<u32>(i32(min(x, 2147483520.0)))",
        "bitcast<u32>(i32(min(77.5, x)))",
        "bitcast<u32>(i32(clamp(x, -5.0, 5.0)))",
        "u32(floor(clamp(x, 0.0, 1.0) * 255.0 + 0.5))",
        "u32(round(min(x, 1.0) * 65535.0))",
        "u32(min(x, 1.0) - 0.75)",
        "u32(min(x, 100.0) / 0.0000001)",
        "u32(min(x, 1.0) * -4.0)",
        "u32(min(x, 65536.0) * 65536.0)",
        "u32(select(min(x, 5.0), 9.0, x > 1.0))",
        "u32(select(min(x, 5.0), x, x > 1.0))",
        "u32(f32(u32(clamp(x, 0.0, 255.0))) / 3.0)",
        "u32(f32(bitcast<u32>(x)))",
        "u32(f32(bitcast<i32>(x)))",
        "u32(fma(min(x, 2.0), 3.0, min(x, 1.0)))",
        "u32(clamp(x, 0.0, 255.0)) + bitcast<u32>(clamp(x, 0.0, 255.0))",
        "u32(clamp(x, 0.0, 255.0)) % 7u",
    ] {
        let program = kernel(&format!(
            "@group(0) @binding(0) var<storage, read> numbers: array<f32>;
            @group(0) @binding(1) var<storage, read_write> output: array<u32, 200>;
            @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3u) {{
                let x = numbers[id.x];
                if (id.x < 200u) {{ output[id.x] = {value}; }}
            }}"
        ));
        agree(value, &Case { grid: Some([4, 1, 1]), ..Case::new(program, vec![floats()]) });
    }
}

/// What a loop carries has no bound because it begins with one.
#[test]
fn conversions_in_loops() {
    let program = kernel(
        "@group(0) @binding(0) var<storage, read> numbers: array<f32>;
        @group(0) @binding(1) var<storage, read_write> output: array<u32, 200>;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3u) {
            var x = 1.0;
            var all = 0u;
            for (var i = 0u; i < arrayLength(&numbers) / 9u; i++) {
                all = all * 3u + u32(x) + u32(min(x, 9.0));
                x = x * 3.5 + clamp(numbers[(id.x + i) % 200u], 0.0, 1.0);
            }
            if (id.x < 200u) { output[id.x] = all; }
        }",
    );
    agree("numbers that grow", &Case { grid: Some([4, 1, 1]), ..Case::new(program, vec![floats()]) });
}

/// A list that numbers are inserted into, whatever they are.
#[test]
fn insertions() {
    for ty in ["f32", "u32", "i32"] {
        for order in ["list[k - 1] > value", "list[k - 1] < value", "value < list[k - 1]"] {
            let program = kernel(&format!(
                "@group(0) @binding(0) var<storage, read> numbers: array<{ty}>;
                @group(0) @binding(1) var<storage, read_write> output: array<{ty}, 800>;
                @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3u) {{
                    var list: array<{ty}, 6>;
                    var count = 0;
                    for (var i = 0u; i < 6u; i++) {{
                        let value = numbers[(id.x + 31u * i) % 200u];
                        var k = count;
                        while (k > 0 && {order}) {{ list[k] = list[k - 1]; k--; }}
                        list[k] = value;
                        count++;
                    }}
                    if (id.x < 200u) {{
                        output[4u * id.x] = list[0]; output[4u * id.x + 1u] = list[2];
                        output[4u * id.x + 2u] = list[3]; output[4u * id.x + 3u] = list[5];
                    }}
                }}"
            ));
            agree(&format!("{order} of {ty}"), &Case { grid: Some([4, 1, 1]), ..Case::new(program, vec![floats()]) });
        }
    }
}

#[test]
fn choices_among_constants() {
    for value in [
        "select(0u, a, a < b)",
        "select(a, 0u, a < b)",
        "select(0u, 7u, a == b)",
        "select(7u, 0u, a == b)",
        "select(2u, 0xffffffffu, a != b)",
        "select(2u, 3u, a <= b) + select(5u, 9u, b >= a)",
        "select(select(select(1u, 0u, a % 3u == 0u), 0u, a > b), 0u, b % 5u == 1u)",
        "bitcast<u32>(select(0.0, bitcast<f32>(a), a < b))",
        "bitcast<u32>(select(-0.0, bitcast<f32>(a), a < b))",
        "bitcast<u32>(select(1.5, 0.25, a % 4u != 2u))",
        "u32(a < b && a % 3u != 0u) * 5u + select(0u, b, !(a > b))",
        "(a | 3u) % 97u + (b >> 4u ^ 5u) / 3u",
    ] {
        let program = kernel(&format!(
            "@group(0) @binding(0) var<storage, read> numbers: array<u32>;
            @group(0) @binding(1) var<storage, read_write> output: array<u32, 200>;
            @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3u) {{
                let a = numbers[id.x];
                let b = numbers[id.x ^ 1u] / (1u + (id.x & 1u));
                if (id.x < 200u) {{ output[id.x] = {value}; }}
            }}"
        ));
        agree(value, &Case { grid: Some([4, 1, 1]), ..Case::new(program, vec![words(200)]) });
    }
}

#[test]
fn products_and_comparisons_of_64_bits() {
    for ty in [DataType::U64, DataType::I64] {
        let wide = |number: u32| Expr::u32(number).cast(ty.clone());
        let i = || Expr::global_id(0);
        let (a, b) = (|| Expr::load("a", i()), || Expr::load("a", i() ^ 1u32));
        let half = |at: Expr| Expr::load("b", at).cast(ty.clone());
        for (what, value) in [
            ("product", a() * b()),
            ("product with a half", a() * half(i())),
            ("product of halves", half(i()) * half(i() ^ 3u32)),
            ("less", Expr::select(a().lt(b()), a(), wide(0))),
            ("no more", Expr::select(a().le(b()), wide(3), b())),
            ("greater", Expr::select(a().gt(b()), wide(3), wide(9))),
            ("no less", Expr::select(a().ge(half(i())), a(), b())),
            ("equal", Expr::select(a().eq(a() & wide(0xffff_ff7f)), wide(0), b())),
            ("not equal", Expr::select(a().ne(half(i() * 2u32)), wide(0), b())),
        ] {
            let program = Program::wrapped(
                vec![
                    BufferDecl::read("a", 0, ty.clone()).with_count(104),
                    BufferDecl::read("b", 1, DataType::U32).with_count(208),
                    BufferDecl::output("out", 2, ty.clone()).with_count(104),
                ],
                [32, 1, 1],
                vec![Node::if_then(i().lt(104u32), vec![Node::store("out", i(), value)])],
            );
            // Some differ in one half only, or not at all.
            let mut numbers = words(208);
            numbers.copy_within(0..4, 8);
            numbers.copy_within(4..8, 20);
            numbers.copy_within(32..40, 40);
            let case = Case { grid: Some([4, 1, 1]), ..Case::new(program, vec![numbers.clone(), numbers]) };
            agree(&format!("{what} of {ty}"), &case);
        }
    }
}

/// Bytes around an invocation's place in words that may end before, inside of a border.
#[test]
fn bytes_around_places() {
    for length in [1, 40, 64 * 16 / 4 - 1, 64 * 16 / 4] {
        for border in [0, 1, 3] {
            let program = kernel(&format!(
                "@group(0) @binding(0) var<storage, read> image: array<u32>;
                @group(0) @binding(1) var<storage, read_write> output: array<u32, 1024>;
                fn pixel(x: i32, y: i32) -> u32 {{
                    let i = u32(y * 64 + x);
                    return (image[i / 4u] >> (8u * (i % 4u))) & 255u;
                }}
                @compute @workgroup_size(32, 2) fn main(@builtin(global_invocation_id) id: vec3u) {{
                    let x = i32(id.x);
                    let y = i32(id.y);
                    if (x < {border} || y < {border} || x >= 64 - {border} || y >= 16 - {border}) {{ return; }}
                    var code = pixel(x, y);
                    for (var dx = -3; dx <= 3; dx++) {{
                        code = (code << 1u) + u32(pixel(x + dx, y - {border}) < pixel(x, y + {border}));
                    }}
                    output[y * 64 + x] = code;
                }}"
            ));
            let case = Case { grid: Some([2, 8, 1]), ..Case::new(program, vec![words(length)]) };
            agree(&format!("{length} words, a border of {border}"), &case);
        }
    }
}

/// Short branches that load beside what is loaded anyway, also where nothing is there.
#[test]
fn short_branches_that_load() {
    for length in [1, 100, 1000, 1024] {
        for (what, limit) in [("none", "true"), ("own", "q < 700"), ("other", "q < i32(arrayLength(&before))")] {
            let program = kernel(&format!(
                "@group(0) @binding(0) var<storage, read> kind: array<u32>;
                @group(0) @binding(1) var<storage, read> before: array<u32>;
                @group(0) @binding(2) var<storage, read_write> output: array<u32, 1024>;
                @compute @workgroup_size(32) fn main(@builtin(global_invocation_id) id: vec3u) {{
                    let i = i32(id.x);
                    if (i >= 1024) {{ return; }}
                    var least = before[i];
                    for (var d = -1; d <= 1; d++) {{
                        let q = i + 32 * d;
                        if (q < 0 || q >= 1024) {{ continue; }}
                        if (kind[q] % 3u == kind[i] % 3u && {limit}) {{ least = min(least, before[q]); }}
                    }}
                    output[i] = least;
                }}"
            ));
            let case = Case { grid: Some([32, 1, 1]), ..Case::new(program, vec![words(1024), words(length)]) };
            agree(&format!("{length} words, limit {what}"), &case);
        }
    }
}
