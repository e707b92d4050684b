//! Sums of powers that are put together with their greatest exponents: of two exponentials one is that of nothing.

use crate::support::{agree, words};
use vyre_conform::Case;
use vyre_foundation::kernel::{Options, lower};
use vyre_wgsl::{ImportOptions, import};

/// Pairs of all of these, and of as many with any bits, meet in both orders.
const NUMBERS: [f32; 16] = [
    0.0,
    -0.0,
    1.0,
    1.000_000_1,
    -1.0,
    87.5,
    -87.5,
    -104.0,
    3.0e38,
    -3.0e38,
    1e-40,
    -1e-40,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    std::f32::consts::LN_2,
];

fn case(body: &str) -> Case {
    let text = format!(
        "@group(0) @binding(0) var<storage, read> input: array<f32, 32>;
         @group(0) @binding(1) var<storage, read_write> result: array<vec4f, 1024>;
         fn merge(a: vec2f, b: vec2f) -> vec2f {{
             let m = max(a.x, b.x);
             return vec2f(m, a.y * exp(a.x - m) + b.y * exp(b.x - m));
         }}
         @compute @workgroup_size(64)
         fn main(@builtin(global_invocation_id) at: vec3u) {{
             let a = input[at.x / 32u];
             let b = input[at.x % 32u];
             {body}
         }}"
    );
    let program = import(&text, &ImportOptions::default()).expect("a kernel");
    let bytes = NUMBERS.iter().flat_map(|number| number.to_le_bytes()).chain(words(16)).collect();
    Case { grid: Some([16, 1, 1]), ..Case::new(program, vec![bytes]) }
}

fn exponentials(case: &Case, shared_exponentials: bool) -> usize {
    let options = Options { shared_exponentials, ..Options::default() };
    let kernel = lower(&case.program.validate().expect("valid"), &options).expect("a kernel");
    kernel.to_string().matches("= exp ").count()
}

fn check(what: &str, left: usize, body: &str) {
    let case = case(body);
    assert_eq!(exponentials(&case, true), left, "{what}");
    agree(what, &case);
}

#[test]
fn one_of_two_is_computed() {
    check("each", 1, "let m = max(a, b); result[at.x] = vec4f(exp(a - m), exp(b - m), m, 0.0);");
    check("the other first", 1, "let m = max(a, b); result[at.x] = vec4f(exp(b - m), exp(a - m), m, 0.0);");
    check("pairs", 1, "let both = merge(vec2f(a, 1.5), vec2f(b, 2.0)); result[at.x] = vec4f(both, a, b);");
    let rounds = "var sum = vec2f(a, 1.0);
        for (var i = 0u; i < 16u; i++) { if (i % 3u != at.x % 5u) { sum = merge(sum, vec2f(input[i] * b, 1.0)); } }
        result[at.x] = vec4f(sum, a, b);";
    check("in a loop", 1, rounds);
}

#[test]
fn others_stay() {
    check("the least", 2, "let m = min(a, b); result[at.x] = vec4f(exp(a - m), exp(b - m), m, 0.0);");
    check("of another", 2, "let m = max(a, b); result[at.x] = vec4f(exp(a - m), exp(2.0 * b - m), m, 0.0);");
    let apart = "let m = max(a, b); var e = exp(a - m); if (at.x % 3u == 0u) { e += exp(b - m); } result[at.x] = vec4f(e, m, a, b);";
    check("in a branch", 2, apart);
}
