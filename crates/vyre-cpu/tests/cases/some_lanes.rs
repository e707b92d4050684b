//! Numbers that are changed in some lanes only: sums, counts, signs and bits under conditions, in branches and branches within them; lanes that leave a
//! loop by one way of a condition or the other; floats that become whole numbers of which only some bits are wanted.

use crate::support::{agree, words};
use vyre_conform::Case;
use vyre_wgsl::{ImportOptions, import};

/// Zeros of both signs, what is too large or not a number, and halves.
const NUMBERS: [f32; 16] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -2.5,
    3.5,
    1e-40,
    -1e-40,
    2_147_483_648.0,
    -2_147_483_648.0,
    4e9,
    -1e30,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
];

fn check(what: &str, body: &str) {
    let text = format!(
        "@group(0) @binding(0) var<storage, read> input: array<f32, 32>;
         @group(0) @binding(1) var<storage, read> bits: array<u32, 32>;
         @group(0) @binding(2) var<storage, read_write> result: array<vec4f, 1024>;
         @compute @workgroup_size(64)
         fn main(@builtin(global_invocation_id) at: vec3u) {{
             let a = input[at.x / 32u];
             let b = input[at.x % 32u];
             let word = bits[at.x % 32u];
             {body}
         }}"
    );
    let program = import(&text, &ImportOptions::default()).expect("a kernel");
    let numbers = NUMBERS.iter().flat_map(|number| number.to_le_bytes()).chain(words(16)).collect();
    let case = Case { grid: Some([16, 1, 1]), ..Case::new(program, vec![numbers, words(32)]) };
    agree(what, &case);
}

#[test]
fn numbers_are_added_under_conditions() {
    let sums = |first: &str| {
        format!(
            "var s = vec2f({first}); var less = {first}; var count = 3u; var down = 7;
             for (var i = 0u; i < 32u; i++) {{
                 if (i != at.x % 32u) {{
                     let x = input[i];
                     if (x < a) {{ s += vec2f(x, b); count += 1u; }}
                     if (x <= b) {{ less -= x; down -= 1; }}
                     if (((word >> i) & 1u) == 0u) {{ s.y += 0.25; count -= i; }}
                 }}
             }}
             result[at.x] = vec4f(s, less, f32(count) + f32(down) * 65536.0);"
        )
    };
    check("from zero", &sums("0.0"));
    check("from the other zero", &sums("-0.0"));
    check("from a number that is loaded", &sums("a"));
    let zeros = "var s = -0.0; var t = 0.0;
        if (at.x % 3u == 0u) { s += input[at.x / 64u + at.x % 2u]; } else { t += s; }
        if (at.x % 5u == 0u) { t = -t; }
        result[at.x] = vec4f(s, t, 1.0 / s, 1.0 / t);";
    check("zeros of both signs", zeros);
}

#[test]
fn bits_and_signs_are_changed_under_conditions() {
    let table = "var x = 5u;
        for (var i = 0u; i < 32u; i++) { if ((word & (1u << i)) != 0u) { x ^= bits[i]; } }
        for (var i = 0u; i < 32u; i++) { if ((word & (1u << i)) == 0u) { x |= bits[i] & 0xf0f0u; } }
        for (var i = 0u; i < 40u; i++) { if (i < word % 33u) { x += bits[i] >> 3u; } }
        result[at.x] = vec4f(f32(x & 0xffffu), f32(x >> 16u), 0.0, 0.0);";
    check("words of a table", table);
    let signs = "let h = word * 2654435761u;
        var x = select(a, -a, (h & 1u) != 0u); var y = select(b, -b, (h & 2u) == 0u);
        if ((h & 4u) != 0u) { let t = x; x = y; y = t; if ((h & 8u) != 0u) { x = 0.0; } }
        result[at.x] = vec4f(x, y, select(0.0, a, b < a), select(a, 0.0, b < a));";
    check("signs", signs);
}

#[test]
fn lanes_leave_by_either_way() {
    let body = |test: &str| {
        format!(
            "var x = 0.0; var y = 0.0; var i = 0u; let c = (f32(at.x) - 600.0) / 400.0;
             loop {{ {test} let z = x * x - y * y + c; y = 2.0 * x * y + 0.3; x = z; i++; }}
             result[at.x] = vec4f(f32(i), 0.0, 0.0, 0.0);"
        )
    };
    check("where it holds", &body("if (i >= 50u || !(x * x + y * y < 4.0)) { break; }"));
    check("where it does not", &body("if (i < 50u && x * x + y * y < 4.0) { } else { break; }"));
    let gives = "var x = a; var y = b; var i = 0u;
        while (i < 20u && x * x < 100.0) { x = x * 1.25 + 0.5; y = y + x; i++; if (y > 1e3) { break; } }
        result[at.x] = vec4f(x, y, f32(i), 0.0);";
    check("with numbers", gives);
}

#[test]
fn parts_of_whole_numbers_are_converted() {
    let parts = "let n = i32(round(min(a * 3.0, 128.0))); let m = i32(floor(b));
        let x = bitcast<u32>(n << 23u) >> 20u; let y = bitcast<u32>(m) & 255u; let z = bitcast<u32>((m + 127) << 4u) >> 8u;
        result[at.x] = vec4f(f32(x), f32(y), f32(z), f32(n) + f32(m));";
    check("all of one", parts);
    let few = "let n = i32(round(min(a * 3.0, 128.0))); let m = i32(floor(b));
        result[at.x] = vec4f(f32(bitcast<u32>(n << 23u) >> 20u), f32(bitcast<u32>(m) & 255u), f32(bitcast<u32>((m ^ 5) * 3 << 4u) >> 8u), 0.0);";
    check("few bits", few);
    let clamped = "let n = vec2<i32>(vec2f(clamp(a, 0.0, 1.0), min(b, a)) * 255.0 + 0.5);
        result[at.x] = vec4f(f32(n.x), f32(n.y), f32(i32(min(b, 7.5))), f32(i32(max(min(a, 9.0), min(b, 3e9)))));";
    check("between bounds", clamped);
    let shifts = "let s = (word >> 28u) + 4u;
        result[at.x] = vec4f(f32(word >> s), f32((word << s) >> 9u), f32(word >> (s + 20u)), f32(bitcast<i32>(word) >> (word % 37u)));";
    check("shifts", shifts);
}
