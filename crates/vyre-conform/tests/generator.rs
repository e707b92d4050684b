//! The generator keeps its promises: the same program everywhere, and programs worth running.

use vyre_conform::{Floats, GenOptions, Rules, Subgroups, compare, generate};

fn options() -> [GenOptions; 4] {
    [
        GenOptions::default(),
        GenOptions::portable(),
        GenOptions { math: true, ..GenOptions::default() },
        GenOptions { subgroups: Subgroups::AnySize, floats: Floats::None, ..GenOptions::default() },
    ]
}

#[test]
fn programs_validate() {
    for options in options() {
        for seed in 0..300 {
            let case = generate(seed, &options);
            if let Err(problems) = case.program.validate() {
                panic!("seed {seed}: {}\n{:#?}", problems[0], case.program);
            }
        }
    }
}

#[test]
fn a_seed_gives_one_program() {
    for seed in 0..50 {
        let (a, b) = (generate(seed, &GenOptions::default()), generate(seed, &GenOptions::default()));
        assert_eq!(a.program, b.program);
        assert_eq!(a.inputs, b.inputs);
        assert_ne!(a.program, generate(seed + 1, &GenOptions::default()).program);
    }
}

#[test]
fn results_compare_by_value() {
    use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
    let program = |value: Expr| {
        Program::wrapped(
            vec![BufferDecl::output("out", 0, DataType::F32).with_count(2)],
            [1, 1, 1],
            vec![Node::store("out", Expr::u32(0), value)],
        )
    };
    let bytes = |a: f32, b: f32| vec![[a.to_le_bytes(), b.to_le_bytes()].concat()];
    let near = f32::from_bits(1.0f32.to_bits() + 1);
    let exact = program(Expr::f32(1.0) + Expr::f32(2.0));
    let sine = program(Expr::f32(1.0).sin());
    let rules = Rules::exact();
    assert!(compare(&bytes(1.0, f32::NAN), &bytes(1.0, -f32::NAN), &exact, &rules).is_ok());
    assert!(compare(&bytes(0.0, 1.0), &bytes(-0.0, 1.0), &exact, &rules).is_err());
    assert!(compare(&bytes(0.0, 1.0), &bytes(-0.0, 1.0), &exact, &Rules::wgsl()).is_ok());
    assert!(compare(&bytes(1.0, 1.0), &bytes(1.0, near), &sine, &rules).is_ok());
    let difference = compare(&bytes(1.0, 1.0), &bytes(1.0, near), &exact, &rules).unwrap_err();
    assert_eq!((difference.buffer.as_str(), difference.element), ("out", 1));
    assert!(compare(&bytes(1.0, 1.0), &bytes(1.0, f32::NAN), &sine, &rules).is_err());
}
