//! What the importer makes of WGSL, and what it says about what it can't import.

use vyre_foundation::ir::{BufferKind, Count, Program};
use vyre_spec::Diagnostic;
use vyre_wgsl::{ImportOptions, import};

fn ok(source: &str) -> Program {
    match import(source, &ImportOptions::default()) {
        Ok(program) => {
            if let Err(problems) = program.validate() {
                panic!(
                    "not valid: {}\n{program:#?}",
                    problems.iter().map(|p| p.to_string()).collect::<Vec<_>>().join("\n")
                );
            }
            program
        }
        Err(problems) => panic!("{}", problems.iter().map(|p| p.to_string()).collect::<Vec<_>>().join("\n")),
    }
}

fn problems(source: &str) -> Vec<Diagnostic> {
    import(source, &ImportOptions { file: Some("kernel.wgsl".into()), ..Default::default() }).unwrap_err()
}

#[test]
fn buffers_take_their_kind_from_how_they_are_used() {
    let program = ok("
        struct Params { n: u32, scale: f32 }
        @group(0) @binding(0) var<uniform> params: Params;
        @group(0) @binding(1) var<storage, read> xs: array<f32>;
        @group(0) @binding(2) var<storage, read_write> ys: array<f32>;
        @group(0) @binding(3) var<storage, read_write> sums: array<atomic<u32>, 4>;
        @group(1) @binding(0) var<storage, read_write> state: array<vec4<f32>>;
        @group(1) @binding(1) var<storage, read> unused: array<u32>;
        var<workgroup> shared_sum: array<f32, 64>;
        @compute @workgroup_size(64)
        fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) li: u32) {
            if id.x >= params.n { return; }
            ys[id.x] = xs[id.x] * params.scale;
            shared_sum[li] = 1.0;
            atomicAdd(&sums[id.x % 4u], 1u);
            state[id.x] += vec4<f32>(1.0);
        }");
    let kind = |name: &str| program.buffer(name).unwrap().kind;
    assert_eq!(kind("params"), BufferKind::Uniform);
    assert_eq!(kind("xs"), BufferKind::Read);
    assert_eq!(kind("ys"), BufferKind::Output);
    assert_eq!(kind("sums"), BufferKind::ReadWrite);
    assert_eq!(kind("state"), BufferKind::ReadWrite);
    assert_eq!(kind("shared_sum"), BufferKind::Workgroup);
    assert!(program.buffer("unused").is_none());
    assert_eq!(program.buffer("sums").unwrap().count, Count::Fixed(4));
    assert_eq!(program.buffer("ys").unwrap().count, Count::Runtime);
    assert_eq!(program.buffer("state").unwrap().group, 1);
}

#[test]
fn names_that_are_wrong_are_told_with_what_to_do() {
    let fix = |line: &str| {
        let found = problems(&format!("@compute @workgroup_size(1) fn main() {{ {line} }}"));
        found.first().map_or(String::new(), |problem| problem.fix.to_string())
    };
    assert!(fix("let from = 1u;").contains("another name"), "{}", fix("let from = 1u;"));
    assert!(fix("let a = missing + 1u;").contains("Define it"), "{}", fix("let a = missing + 1u;"));
}

#[test]
fn every_unsupported_feature_is_reported_with_its_line() {
    let found = problems(
        "
        @group(0) @binding(0) var picture: texture_2d<f32>;
        @group(0) @binding(1) var<storage, read_write> out: array<f32>;
        @compute @workgroup_size(1)
        fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            out[0] = textureLoad(picture, vec2<i32>(0, 0), 0).x;
        }",
    );
    let text = found.iter().map(|p| p.to_string()).collect::<Vec<_>>().join("\n");
    assert!(found.iter().all(|p| p.code.id == "V0403" && p.source.is_some()), "{text}");
    assert!(text.contains("texture_2d<f32>") && text.contains("kernel.wgsl:2:"), "{text}");
}
