//! SPIR-V out, and in again.

use vyre_foundation::ValidProgram;
use vyre_foundation::ir::{Literal, Specialization};
use vyre_reference::{RunOptions, run};
use vyre_wgsl::{ImportOptions, export_spirv, import, import_spirv};

fn program(text: &str) -> ValidProgram {
    let program = import(text, &ImportOptions::default()).unwrap_or_else(|problems| panic!("{}", problems[0]));
    program.validate().unwrap_or_else(|problems| panic!("{}", problems[0]))
}

fn again(bytes: &[u8]) -> ValidProgram {
    let program = import_spirv(bytes, &ImportOptions::default()).unwrap_or_else(|problems| panic!("{}", problems[0]));
    program.validate().unwrap_or_else(|problems| panic!("{}", problems[0]))
}

#[test]
fn every_example_kernel_has_spirv_that_is_read_again() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/kernels");
    let (mut made, mut read) = (0, 0);
    for entry in std::fs::read_dir(folder).expect("the kernels are there").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(entry.path()).expect("a kernel");
        let first = program(&text);
        let bytes = export_spirv(&first, &Specialization::new(), None).unwrap_or_else(|why| panic!("{name}: {why}"));
        made += 1;
        let second = match import_spirv(&bytes, &ImportOptions::default()) {
            Ok(second) => second.validate().unwrap_or_else(|problems| panic!("{name}: {}", problems[0])),
            // naga's SPIR-V front end does not understand the zeroing of atomics that its back end writes.
            Err(problems) => {
                assert!(text.contains("atomic"), "{name}: {}", problems[0]);
                continue;
            }
        };
        read += 1;
        assert_eq!(first.name(), second.name().trim_end_matches('_'), "{name}");
        let names = |program: &ValidProgram| -> Vec<String> {
            let order = program.binding_order();
            // What is a word of WGSL has a dash behind it since.
            order.iter().map(|&index| program.buffers()[index].name.as_str().trim_end_matches('_').to_owned()).collect()
        };
        assert_eq!(names(&first), names(&second), "{name}");
    }
    assert!(made > 30 && read > 25, "only {made} kernels were found, and {read} read again");
}

#[test]
fn constants_and_sizes_are_filled_in() {
    let first = program(
        "override factor: f32 = 2.0;
         override wide: u32 = 4u;
         @group(0) @binding(0) var<storage, read> a: array<f32>;
         @group(0) @binding(1) var<storage, read_write> out: array<f32>;
         @compute @workgroup_size(wide) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
             if id.x < arrayLength(&a) { out[id.x] = a[id.x] * factor + f32(wide); }
         }",
    );
    let input: Vec<u8> = [1.0f32, 2.0, 3.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    for factor in [0.5f32, 3.0] {
        let values = Specialization::from([("factor".into(), Literal::F32(factor)), ("wide".into(), Literal::U32(8))]);
        let second = again(&export_spirv(&first, &values, None).unwrap());
        assert_eq!(second.workgroup_size(), [8, 1, 1]);
        let options = RunOptions { specialization: values.clone(), ..RunOptions::default() };
        let expected = run(&first, &[&input], &options).unwrap();
        assert_eq!(run(&second, &[&input], &RunOptions::default()).unwrap(), expected);
        let resized = again(&export_spirv(&first, &values, Some([16, 1, 1])).unwrap());
        assert_eq!(resized.workgroup_size(), [16, 1, 1]);
        assert_eq!(run(&resized, &[&input], &RunOptions::default()).unwrap(), expected);
    }
    let unknown = Specialization::from([("facto".into(), Literal::F32(1.0))]);
    assert_eq!(export_spirv(&first, &unknown, None).unwrap_err().code.id, "V0410");
}

/// Numbers at the edges, as bits: whole ones of both kinds, then floats.
const EDGES: [u32; 18] = [
    0,
    1,
    7,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fff9,
    0xffff_ffff,
    0x3fc0_0000, // 1.5
    0xc020_0000, // -2.5
    0x4f00_0000, // 2³¹
    0x4f32_d05e, // 3e9
    0xcf32_d05e, // -3e9
    0x4f80_0000, // 2³²
    0x0000_0100, // a subnormal float
    0x7f7f_ffff, // the largest
    0x7f80_0000, // infinity
    0xff80_0000, // and the other
    0x7fc0_0000, // no number
];

/// What is computed of `a`, `b` and `c`; a number or, in brackets, a truth value.
const OF_WHOLE: [&str; 22] = [
    "a / b",
    "a % b",
    "a / (b | T(1))",
    "a >> U(5u)",
    "a << U(5u)",
    "min(a, b)",
    "max(a, b)",
    "clamp(a, min(b, c), max(b, c))",
    "abs(a)",
    "countLeadingZeros(a)",
    "countTrailingZeros(a)",
    "countOneBits(a)",
    "reverseBits(a)",
    "firstLeadingBit(a)",
    "firstTrailingBit(a)",
    "extractBits(a, 3u, 9u)",
    "insertBits(a, b, 3u, 9u)",
    "~a",
    "[a < b]",
    "[(a <= b) & (b < c)]",
    "[(a == b) | !(b >= c)]",
    "select(a, b, a > c)",
];
const OF_FLOATS: [&str; 20] = [
    "a / b",
    "a % b",
    "min(a, b)",
    "max(a, b)",
    "clamp(a, b, c)",
    "abs(a)",
    "sign(a)",
    "floor(a)",
    "round(a)",
    "trunc(a)",
    "fma(a, b, c)",
    "inverseSqrt(a)",
    "F(I(a))",
    "F(U(a))",
    "[a < b]",
    "[a != b]",
    "[(a >= b) & (b != c)]",
    "[!(a <= b)]",
    "select(a, b, (a == b) | (b > c))",
    "-a",
];

/// A kernel that takes three words of `bits` and writes what comes of each expression, for numbers of a kind and vectors of them.
fn kernel(kind: &str, expressions: &[&str], lanes: u32) -> String {
    let of = |kind: &str| if lanes == 1 { kind.to_owned() } else { format!("vec{lanes}<{kind}>") };
    let [t, u, i, f] = [kind, "u32", "i32", "f32"].map(of);
    let mut lines = String::new();
    for (at, expression) in expressions.iter().enumerate() {
        let (text, is_truth) = match expression.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
            Some(text) => (text, true),
            None => (*expression, false),
        };
        // Letters that stand for types are followed by a bracket.
        let text = text.replace("T(", &format!("{t}(")).replace("U(", &format!("{u}("));
        let text = text.replace("I(", &format!("{i}(")).replace("F(", &format!("{f}("));
        let value = if is_truth { format!("select({u}(), {u}(1u), {text})") } else { format!("bitcast<{u}>({text})") };
        let last = if lanes == 1 { "" } else { ".y" };
        lines += &format!("    out[id.x * {}u + {at}u] = ({value}){last};\n", expressions.len());
    }
    let load = |k: u32| {
        let lane = |l: u32| format!("bits[(id.x * {}u + {}u + {l}u) % arrayLength(&bits)]", 1 + 4 * k, k * k);
        let lanes: Vec<String> = (0..lanes).map(|l| if l == 1 || lanes == 1 { lane(k) } else { lane(l + 3) }).collect();
        format!("bitcast<{t}>({u}({}))", lanes.join(", "))
    };
    format!(
        "@group(0) @binding(0) var<storage, read> bits: array<u32>;
         @group(0) @binding(1) var<storage, read_write> out: array<u32, {}>;
         @compute @workgroup_size(18) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
             let a = {};
             let b = {};
             let c = {};
         {lines}}}",
        EDGES.len() * expressions.len(),
        load(0),
        load(1),
        load(2)
    )
}

#[test]
fn functions_give_the_same_bits_through_spirv() {
    let input: Vec<u8> = EDGES.iter().flat_map(|bits| bits.to_le_bytes()).collect();
    let zeros = |program: &ValidProgram| {
        let is_input = |index: &&usize| program.buffers()[**index].kind.is_input();
        program.binding_order().iter().filter(is_input).count() > 1
    };
    for (kind, expressions) in [("i32", &OF_WHOLE[..]), ("u32", &OF_WHOLE), ("f32", &OF_FLOATS)] {
        for lanes in 1..=4 {
            let text = kernel(kind, expressions, lanes);
            let first = program(&text);
            let second = again(&export_spirv(&first, &Specialization::new(), None).unwrap());
            let result = vec![0; 4 * EDGES.len() * expressions.len()];
            let given: Vec<&[u8]> = if zeros(&first) { vec![&input, &result] } else { vec![&input] };
            let given_again: Vec<&[u8]> = if zeros(&second) { vec![&input, &result] } else { vec![&input] };
            let expected = run(&first, &given, &RunOptions::default()).unwrap();
            let found = run(&second, &given_again, &RunOptions::default()).unwrap();
            let words = |bytes: &[u8]| -> Vec<u32> {
                bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
            };
            for (at, (expected, found)) in words(&expected[0]).into_iter().zip(words(&found[0])).enumerate() {
                let (row, which) = (at / expressions.len(), expressions[at % expressions.len()]);
                // Which NaN it is is nobody's business.
                let nan = |bits: u32| kind == "f32" && f32::from_bits(bits).is_nan() && !which.starts_with('[');
                assert!(
                    expected == found || (nan(expected) && nan(found)),
                    "{which} of {kind}, {lanes} lanes, with a = {:#x}: {found:#x} instead of {expected:#x}",
                    EDGES[row]
                );
            }
        }
    }
}
