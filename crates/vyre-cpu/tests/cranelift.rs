//! The path through Cranelift makes code for what the other compiled paths do, and its code can be kept and loaded again.

use vyre_conform::{Case, GenOptions, generate};
use vyre_cpu::{CpuBackend, CpuPath};
use vyre_driver::VyreBackend;
use vyre_driver::backend::CompileOptions;
use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};

fn backend() -> Option<CpuBackend> {
    let path = CpuPath::Cranelift;
    if !path.is_here() {
        println!("skipped: there is no path through Cranelift on this machine");
        return None;
    }
    Some(CpuBackend::with_path(path).expect("a path that is here"))
}

fn cases(seeds: std::ops::Range<u64>) -> impl Iterator<Item = Case> {
    seeds.map(|seed| generate(seed, &GenOptions::default()))
}

#[test]
fn only_kernels_of_too_much_code_are_interpreted() {
    let Some(backend) = backend() else { return };
    let mut compiled = 0;
    for case in cases(0..60) {
        let Ok(valid) = case.program.validate() else { continue };
        let Ok(pipeline) = backend.compile(&valid, &CompileOptions::default()) else { continue };
        let explained = backend.explain(&pipeline).expect("a pipeline of this backend");
        match explained.strip_prefix("interpreted, because ") {
            None => compiled += 1,
            Some(reason) => assert!(reason.contains("too much code") || reason.contains("stack frame"), "{reason}"),
        }
    }
    assert!(compiled > 30, "{compiled}");
}

/// Code is for a few vectors at a time, however many a workgroup has.
#[test]
fn code_does_not_grow_with_the_workgroup() {
    let Some(backend) = backend() else { return };
    let bytes_of = |size: u32| {
        let neighbour = (Expr::local_id(0) + 1u32) % size;
        let program = Program::wrapped(
            vec![
                BufferDecl::read_write("data", 0, DataType::U32),
                BufferDecl::workgroup("tile", 0, DataType::U32).with_count(size),
            ],
            [size, 1, 1],
            vec![
                Node::let_bind("own", Expr::load("data", Expr::global_id(0))),
                Node::store("tile", Expr::local_id(0), Expr::var("own")),
                Node::barrier(),
                Node::store("data", Expr::global_id(0), Expr::load("tile", neighbour) * Expr::var("own")),
            ],
        );
        let pipeline = backend.compile(&program.validate().expect("valid"), &CompileOptions::default());
        let pipeline = pipeline.expect("it compiles");
        let explained = backend.explain(&pipeline).expect("a pipeline of this backend");
        assert!(explained.contains("pieces"), "{explained}");
        backend.machine_code(&pipeline).expect("its own pipeline").expect("machine code").len()
    };
    let (few, many) = (bytes_of(128), bytes_of(1024));
    assert!(many < few + few / 4, "{few} and {many} bytes");
}

/// Cranelift takes more than twice as long for twice as many steps, so there is an end to them.
#[test]
fn kernels_of_very_many_steps_are_interpreted() {
    let Some(backend) = backend() else { return };
    for (lines, is_compiled) in [(300, true), (5_000, false)] {
        let mut body = vec![Node::var("x", DataType::U32, Expr::load("data", Expr::global_id(0)))];
        body.extend((0..lines).map(|line| {
            let other = Expr::load("data", Expr::u32(line % 50));
            Node::assign("x", Expr::var("x") * Expr::u32(line + 3) + other)
        }));
        body.push(Node::store("data", Expr::global_id(0), Expr::var("x")));
        let program = Program::wrapped(vec![BufferDecl::read_write("data", 0, DataType::U32)], [64, 1, 1], body);
        let pipeline = backend.compile(&program.validate().expect("valid"), &CompileOptions::default());
        let explained = backend.explain(&pipeline.expect("it runs")).expect("a pipeline of this backend");
        assert_eq!(!explained.contains("too much code"), is_compiled, "{explained}");
    }
}

#[test]
fn kept_code_runs_again() {
    let Some(backend) = backend() else { return };
    let mut loaded = 0;
    for case in cases(1000..1020) {
        let Ok(valid) = case.program.validate() else { continue };
        let options = CompileOptions::default();
        let Some(bytes) = backend.compile(&valid, &options).ok().and_then(|pipeline| pipeline.artifact()) else {
            continue;
        };
        let again = backend.load(&valid, &options, &bytes).expect("code of this backend");
        assert_eq!(again.artifact().as_deref(), Some(bytes.as_slice()));
        // Code for a processor with other features is refused: their names stand in front of it.
        let name = b"has_";
        let place = bytes.windows(name.len()).position(|window| window == name).expect("the processor's features");
        let mut other = bytes.clone();
        other[place] ^= 1;
        assert!(backend.load(&valid, &options, &other).is_err());
        assert!(backend.load(&valid, &options, &bytes[..bytes.len() - 1]).is_err());
        loaded += 1;
    }
    assert!(loaded > 5, "{loaded}");
}
