//! What the emitter writes is valid, without any device.

use vyre_conform::{GenOptions, Subgroups, generate};
use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
use vyre_foundation::kernel::{Kernel, Narrow, Options, Passes, lower};
use vyre_wgpu::emit::{self, Arithmetic, FloatControls, Spirv, Target};

fn kernel(program: &Program, passes: Passes) -> Kernel {
    let valid = program.validate().expect("a valid program");
    let options = Options { expand_math: true, narrow: Narrow::Words, passes, ..Options::default() };
    lower(&valid, &options).expect("a kernel")
}

/// A device that rounds nothing as it should.
const INEXACT: Arithmetic =
    Arithmetic { fma: [false; 3], divide: [false; 3], sqrt: [false; 3], zeros: false, subnormals: false, f64: true };

#[test]
fn random_kernels_become_valid_modules() {
    let count = std::env::var("VYRE_RANDOM").ok().and_then(|text| text.parse().ok()).unwrap_or(300);
    let options = GenOptions { subgroups: Subgroups::FixedSize, ..GenOptions::default() };
    let functions = GenOptions { math: true, ..options.clone() };
    for seed in 0..count {
        let case = generate(seed, if seed % 4 == 0 { &functions } else { &options });
        let passes = if seed % 3 == 0 { Passes::none() } else { Passes::all() };
        let kernel = kernel(&case.program, passes);
        let arithmetic = if seed % 2 == 0 { INEXACT } else { Arithmetic::exact() };
        let rounds = (seed % 7 == 0).then_some(1000);
        let target = Target { interruptible: seed % 5 == 0, rounds, arithmetic };
        let module = match emit::emit(&kernel, target) {
            Ok(module) => module,
            Err(problem) if problem.code.id == "V0704" => continue,
            Err(problem) => panic!("seed {seed}: {problem}"),
        };
        if let Err(problem) = emit::spirv(&module, Spirv::default()) {
            panic!("seed {seed}: {problem}\n{kernel}");
        }
        if seed % 8 == 0
            && let Err(problem) = emit::wgsl(&module)
        {
            panic!("seed {seed}: {problem}");
        }
    }
}

fn double() -> Program {
    let at = || Expr::global_id(0);
    Program::wrapped(
        vec![BufferDecl::read("a", 0, DataType::F32), BufferDecl::output("out", 1, DataType::F32)],
        [64, 1, 1],
        vec![Node::store("out", at(), Expr::load("a", at()) * Expr::f32(2.0) + Expr::f32(1.0))],
    )
}

#[test]
fn float_arithmetic_is_marked_against_contraction() {
    let module = emit::emit(&kernel(&double(), Passes::all()), Target::default()).expect("a module");
    let words = emit::spirv(&module, Spirv::default()).expect("SPIR-V");
    let decorated = words.windows(3).filter(|three| three[0] == (3 << 16 | 71) && three[2] == 42).count();
    assert!(decorated >= 2, "{decorated} results are decorated");
    assert_eq!(words[0], 0x0723_0203);
}

#[test]
fn drivers_are_told_what_to_keep_of_floats() {
    let module = emit::emit(&kernel(&double(), Passes::all()), Target::default()).expect("a module");
    let controls = FloatControls { subnormals: [true; 3], specials: [true; 3], nearest: [true; 3] };
    let words = emit::spirv(&module, Spirv { controls, ..Spirv::default() }).expect("SPIR-V");
    let modes: Vec<_> =
        words.windows(4).filter(|four| four[0] == (4 << 16 | 16)).map(|four| (four[2], four[3])).collect();
    // The module has no floats but f32.
    assert_eq!(modes, [(4459, 32), (4461, 32), (4462, 32)]);
    let capabilities: Vec<_> = words.windows(2).filter(|two| two[0] == (2 << 16 | 17)).map(|two| two[1]).collect();
    assert!([4464, 4466, 4467].iter().all(|capability| capabilities.contains(capability)), "{capabilities:?}");
}

#[test]
fn only_unproven_accesses_are_guarded() {
    let module = emit::emit(&kernel(&double(), Passes::all()), Target::default()).expect("a module");
    let text = emit::wgsl(&module).expect("WGSL");
    // Both buffers have open lengths, so the load and the store are guarded, each by its own length.
    assert!(text.contains("facts.length_0") && text.contains("facts.length_1"), "{text}");
    let fixed = Program::wrapped(
        vec![BufferDecl::output("out", 0, DataType::U32).with_count(64)],
        [64, 1, 1],
        vec![Node::store("out", Expr::local_id(0), Expr::u32(1))],
    );
    let module = emit::emit(&kernel(&fixed, Passes::all()), Target::default()).expect("a module");
    let text = emit::wgsl(&module).expect("WGSL");
    assert!(!text.contains("if "), "an access that was proven is guarded:\n{text}");
}
