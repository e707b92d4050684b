//! Sources that are wrong, huge or hostile give diagnostics in bounded time and memory.

use vyre_spec::Diagnostic;
use vyre_wgsl::{ImportOptions, import, import_spirv};

fn problems(source: &str) -> Vec<Diagnostic> {
    let options = ImportOptions { file: Some("kernel.wgsl".into()), ..Default::default() };
    import(source, &options).expect_err("the source is not good")
}

fn codes(source: &str) -> Vec<&'static str> {
    problems(source).iter().map(|problem| problem.code.id).collect()
}

fn with_body(body: &str) -> String {
    format!(
        "@group(0) @binding(0) var<storage, read_write> out: array<i32>;\n\
         @compute @workgroup_size(1) fn main() {{ var a = 1; {body} }}"
    )
}

#[test]
fn errors_show_the_line() {
    let found = problems("@compute @workgroup_size(1)\nfn main() {\n    let x: i32 = 1.5;\n}");
    assert_eq!(found.len(), 1);
    let source = found[0].source.as_ref().expect("a place");
    assert_eq!((found[0].code.id, source.line, source.text.as_str()), ("V0401", 3, "    let x: i32 = 1.5;"));
    assert_eq!(source.file.as_deref(), Some("kernel.wgsl"));
    let found =
        problems("fn f() -> u32 { if true { return 1u; } }\n@compute @workgroup_size(1) fn main() { _ = f(); }");
    assert_eq!(found[0].code.id, "V0402", "{}", found[0]);
    assert!(found[0].source.is_some());
}

#[test]
fn entry_points_are_named() {
    let two = "@compute @workgroup_size(1) fn first() {} @compute @workgroup_size(1) fn second() {}
               @fragment fn paint() {}";
    let found = problems(two);
    assert_eq!(found[0].code.id, "V0405");
    assert!(found[0].message.contains("first, second"), "{}", found[0]);
    let entry = |name: &str| import(two, &ImportOptions { entry: Some(name.into()), ..Default::default() });
    assert_eq!(entry("second").expect("it exists").name(), "second");
    for (name, word) in [("third", "first, second"), ("paint", "Fragment")] {
        let found = entry(name).expect_err("no such compute entry point");
        assert!(found[0].code.id == "V0404" && found[0].message.contains(word), "{}", found[0]);
    }
    assert_eq!(codes("fn helper() {}"), ["V0404"]);
    assert_eq!(codes(""), ["V0404"]);
}

#[test]
fn several_problems_are_reported_together() {
    let found = problems(
        "@group(0) @binding(0) var t: texture_2d<f32>;
         @group(0) @binding(1) var s: sampler;
         @group(0) @binding(2) var<storage, read_write> out: array<f32>;
         override size: u32;
         @compute @workgroup_size(1) fn main() {
             out[0] = textureSampleLevel(t, s, vec2(0.5), 0.0).x;
             out[1] = f32(size);
         }",
    );
    let lines: Vec<_> = found.iter().map(|p| (p.code.id, p.source.as_ref().map_or(0, |s| s.line))).collect();
    assert!(
        lines.contains(&("V0403", 1)) && lines.contains(&("V0403", 2)) && lines.contains(&("V0409", 4)),
        "{lines:?}"
    );
}

#[test]
fn deep_sources_are_refused() {
    let deep = |open: &str, close: &str, n: usize| with_body(&format!("a = {}1{};", open.repeat(n), close.repeat(n)));
    for source in [
        deep("(", ")", 10_000),
        deep("-", "", 10_000),
        deep("1+", "", 10_000),
        deep("1+(", ")", 10_000),
        deep("max(1,", ")", 10_000),
        with_body(&format!("{}{}", "{".repeat(10_000), "}".repeat(10_000))),
        with_body(&format!("if a == 1 {{}} {}", "else if a == 2 {} ".repeat(10_000))),
        with_body(&format!("{}{}", "loop { ".repeat(5_000), "}".repeat(5_000))),
        "(".repeat(1 << 20),
    ] {
        assert_eq!(codes(&source), ["V0406"], "{}", &source[..200.min(source.len())]);
    }
    // naga takes more than twice as long for a function twice as long.
    let cases: String = (0..65_535).map(|case| format!("case {case}: {{ a = {case}; }} ")).collect();
    assert_eq!(codes(&with_body(&format!("switch a {{ {cases} default: {{}} }}"))), ["V0406"]);
    assert_eq!(codes(&with_body(&"a = a * 3 + 1; ".repeat(20_000))), ["V0406"]);
    let function = |n: u32| format!("fn f{n}(a: u32) -> u32 {{ {} return a; }}\n", "_ = a; ".repeat(400));
    let functions: String = (0..200).map(function).collect();
    import(&format!("{functions}{}", with_body("a = 1;")), &ImportOptions::default())
        .expect("functions of usual length");
    assert_eq!(codes(&" ".repeat((4 << 20) + 1)), ["V0406"]);
}

#[test]
fn long_sources_are_fine() {
    // A sum of 1900 terms has no deep tree, and neither has a long function.
    let sum = with_body(&format!("out[0] = a{};", " + a".repeat(1_900)));
    let program = import(&sum, &ImportOptions::default()).expect("a long sum");
    program.validate().expect("valid");
    let mut megabyte = String::new();
    let mut count = 0;
    while megabyte.len() < 1 << 20 {
        megabyte.push_str(&format!(
            "fn helper_{count}(x: i32) -> i32 {{ var y = x; if y > {count} {{ y -= 1; }} return y; }}\n"
        ));
        count += 1;
    }
    megabyte.push_str(&with_body("out[0] = helper_1(a) + helper_7(a);"));
    let program = import(&megabyte, &ImportOptions::default()).expect("a megabyte of functions");
    assert_eq!(program.functions().len(), 2);
    program.validate().expect("valid");
}

#[test]
fn mutilated_sources_never_panic() {
    let kernels = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/kernels");
    let mut state = 12345u32;
    let mut random = |below: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % below
    };
    let words = ["u32", "f32", "(", ")", "{", "}", "0", "4294967295u", "-", "&", "array<", ">", "let", ";", "é", "@"];
    let (mut good, mut bad) = (0, 0);
    for entry in std::fs::read_dir(kernels).expect("the folder of kernels") {
        let source = std::fs::read_to_string(entry.expect("an entry").path()).expect("a kernel");
        for _ in 0..8 {
            let mut text: Vec<char> = source.chars().collect();
            for _ in 0..=random(3) {
                let at = random(text.len());
                let end = (at + random(6)).min(text.len());
                text.splice(at..end, words[random(words.len())].chars());
            }
            let text: String = text.into_iter().collect();
            match import(&text, &ImportOptions::default()) {
                Ok(program) => {
                    let _ = program.validate();
                    good += 1;
                }
                Err(problems) => {
                    assert!(!problems.is_empty() && problems.iter().all(|problem| !problem.fix.is_empty()));
                    bad += 1;
                }
            }
        }
    }
    assert!(good > 0 && bad > 100, "{good} good, {bad} bad");
}

/// `out[id.x] = id.x * 3`, four invocations a workgroup.
fn spirv() -> Vec<u8> {
    let instructions: &[&[u32]] = &[
        &[17, 1],                       // OpCapability Shader
        &[14, 0, 1],                    // OpMemoryModel Logical GLSL450
        &[15, 5, 1, 0x6e69_616d, 0, 2], // OpEntryPoint GLCompute %1 "main" %2
        &[16, 1, 17, 4, 1, 1],          // OpExecutionMode %1 LocalSize 4 1 1
        &[71, 2, 11, 28],               // OpDecorate %2 BuiltIn GlobalInvocationId
        &[71, 9, 6, 4],                 // OpDecorate %9 ArrayStride 4
        &[72, 10, 0, 35, 0],            // OpMemberDecorate %10 0 Offset 0
        &[71, 10, 3],                   // OpDecorate %10 BufferBlock
        &[71, 12, 34, 0],               // OpDecorate %12 DescriptorSet 0
        &[71, 12, 33, 0],               // OpDecorate %12 Binding 0
        &[19, 3],                       // %3 = OpTypeVoid
        &[33, 4, 3],                    // %4 = OpTypeFunction %3
        &[21, 5, 32, 0],                // %5 = OpTypeInt 32 0
        &[23, 6, 5, 3],                 // %6 = OpTypeVector %5 3
        &[32, 7, 1, 6],                 // %7 = OpTypePointer Input %6
        &[59, 7, 2, 1],                 // %2 = OpVariable %7 Input
        &[29, 9, 5],                    // %9 = OpTypeRuntimeArray %5
        &[30, 10, 9],                   // %10 = OpTypeStruct %9
        &[32, 11, 2, 10],               // %11 = OpTypePointer Uniform %10
        &[59, 11, 12, 2],               // %12 = OpVariable %11 Uniform
        &[32, 13, 2, 5],                // %13 = OpTypePointer Uniform %5
        &[43, 5, 14, 0],                // %14 = OpConstant %5 0
        &[43, 5, 15, 3],                // %15 = OpConstant %5 3
        &[54, 3, 1, 0, 4],              // %1 = OpFunction %3 None %4
        &[248, 16],                     // %16 = OpLabel
        &[61, 6, 17, 2],                // %17 = OpLoad %6 %2
        &[81, 5, 18, 17, 0],            // %18 = OpCompositeExtract %5 %17 0
        &[132, 5, 19, 18, 15],          // %19 = OpIMul %5 %18 %15
        &[65, 13, 20, 12, 14, 18],      // %20 = OpAccessChain %13 %12 %14 %18
        &[62, 20, 19],                  // OpStore %20 %19
        &[253],                         // OpReturn
        &[56],                          // OpFunctionEnd
    ];
    let mut words = vec![0x0723_0203, 0x0001_0000, 0, 21, 0];
    for instruction in instructions {
        words.push((instruction.len() as u32) << 16 | instruction[0]);
        words.extend(&instruction[1..]);
    }
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn spirv_imports_and_runs() {
    let program =
        import_spirv(&spirv(), &ImportOptions::default()).unwrap_or_else(|problems| panic!("{}", problems[0]));
    let valid = program.validate().unwrap_or_else(|problems| panic!("{}\n{program:?}", problems[0]));
    let name = program.buffers()[0].name.clone();
    let options =
        vyre_reference::RunOptions { grid: Some([2, 1, 1]), output_elements: vec![(name, 6)], ..Default::default() };
    let results = vyre_reference::run(&valid, &[], &options).unwrap_or_else(|problem| panic!("{problem}"));
    assert_eq!(results[0], [0u32, 3, 6, 9, 12, 15].map(u32::to_le_bytes).concat());
}

#[test]
fn damaged_spirv_never_panics() {
    let good = spirv();
    for bad in [Vec::new(), vec![1, 2, 3], vec![0; 64], good[..good.len() - 4].to_vec(), good[..50].to_vec()] {
        assert!(import_spirv(&bad, &ImportOptions::default()).is_err());
    }
    for at in (0..good.len()).step_by(3) {
        let mut bad = good.clone();
        bad[at] ^= 0x15;
        let _ = import_spirv(&bad, &ImportOptions::default()).map(|program| program.validate().is_ok());
    }
}
