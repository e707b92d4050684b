//! Control flow, functions, variables and specialization.

use half::f16;
use vyre_foundation::ir::{
    Access, BufferDecl, Case as Arm, Count, DataType, Expr, Function, Literal, Node, Param, Program, SpecConstant,
    TypeDef, TypeId,
};

use super::Test;
use super::values::u32s;
use crate::generate::Case;

pub(super) fn add(tests: &mut Vec<Test>) {
    branches(tests);
    counted(tests);
    general(tests);
    switches(tests);
    functions(tests);
    arrays(tests);
    constants(tests);
}

fn id() -> Expr {
    Expr::global_id(0)
}

/// A program that leaves `result(i)` in a variable `r` for each of `count` invocations.
fn computing(name: &str, count: u32, mut body: Vec<Node>, result: impl Fn(u32) -> u32) -> Test {
    body.insert(0, Node::var("r", DataType::U32, Expr::u32(0)));
    body.push(Node::store("out", id(), Expr::var("r")));
    let program =
        Program::wrapped(vec![BufferDecl::output("out", 0, DataType::U32).with_count(count)], [32, 1, 1], body);
    Test::new(name, Case::new(program, Vec::new())).gives(vec![u32s((0..count).map(result))])
}

fn set(value: Expr) -> Node {
    Node::assign("r", value)
}

fn grow(by: Expr) -> Node {
    set(Expr::var("r") + by)
}

fn branches(tests: &mut Vec<Test>) {
    let nested = vec![Node::if_else(
        (id() % Expr::u32(2)).eq(Expr::u32(0)),
        vec![Node::if_else(
            id().lt(Expr::u32(10)),
            vec![set(Expr::u32(1))],
            vec![set(Expr::u32(2)), Node::if_then(id().gt(Expr::u32(30)), vec![set(Expr::u32(3))])],
        )],
        vec![set(id())],
    )];
    tests.push(computing("control/if", 50, nested, |i| match i {
        _ if i % 2 == 1 => i,
        0..10 => 1,
        31.. => 3,
        _ => 2,
    }));
    // A name may hide an outer one, for as long as its list.
    let hiding = vec![
        Node::let_bind("x", Expr::u32(1)),
        Node::Block(vec![Node::let_bind("x", Expr::u32(5)), grow(Expr::var("x"))]),
        grow(Expr::var("x")),
    ];
    tests.push(computing("control/hiding", 4, hiding, |_| 6));
    // After a return nothing happens, to that invocation only.
    let program = Program::wrapped(
        vec![BufferDecl::output("out", 0, DataType::U32).with_count(40)],
        [32, 1, 1],
        vec![
            Node::store("out", id(), Expr::u32(1)),
            Node::if_then((id() % Expr::u32(3)).eq(Expr::u32(0)), vec![Node::Return(None)]),
            Node::store("out", id(), Expr::u32(2)),
        ],
    );
    let test = Test::new("control/return", Case::new(program, Vec::new()));
    tests.push(test.gives(vec![u32s((0..40).map(|i| if i % 3 == 0 { 1 } else { 2 }))]));
}

fn counted(tests: &mut Vec<Test>) {
    let sum = |from: Expr, to: Expr, step: u32| {
        let value = Expr::var("i").cast(DataType::U32);
        vec![Node::For { var: "i".into(), from, to, step, body: vec![grow(value), grow(Expr::u32(1))] }]
    };
    let cases = [
        ("up", sum(Expr::u32(2), Expr::u32(7), 1), 25),
        ("step", sum(Expr::u32(0), Expr::u32(10), 4), 15),
        ("none", sum(Expr::u32(5), Expr::u32(5), 1), 0),
        ("backwards", sum(Expr::u32(5), Expr::u32(2), 1), 0),
        ("signed", sum(Expr::i32(-2), Expr::i32(3), 1), 5),
        ("edge", sum(Expr::u32(u32::MAX - 2), Expr::u32(u32::MAX), 1), (u32::MAX - 2).wrapping_add(u32::MAX - 1) + 2),
        ("edge step", sum(Expr::u32(u32::MAX - 2), Expr::u32(u32::MAX), 5), u32::MAX - 1),
        ("signed edge", sum(Expr::i32(i32::MAX - 1), Expr::i32(i32::MAX), 7), i32::MAX as u32),
        ("signed ends", sum(Expr::i32(i32::MIN), Expr::i32(i32::MIN + 2), 1), (1u32 << 31).wrapping_mul(2) + 3),
    ];
    for (name, body, result) in cases {
        tests.push(computing(&format!("control/for/{name}"), 3, body, |_| result));
    }
    // The bounds are those of the beginning, and differ between invocations.
    let bounds = vec![
        Node::var("n", DataType::U32, id()),
        Node::for_range("i", Expr::u32(0), Expr::var("n"), vec![Node::assign("n", Expr::u32(0)), grow(Expr::var("i"))]),
    ];
    tests.push(computing("control/for/bounds", 20, bounds, |i| i * i.saturating_sub(1) / 2));
    let leaving = vec![Node::for_range(
        "i",
        Expr::u32(0),
        Expr::u32(20),
        vec![
            Node::if_then((Expr::var("i") % Expr::u32(2)).eq(Expr::u32(1)), vec![Node::Continue]),
            Node::if_then(Expr::var("i").gt(id()), vec![Node::Break]),
            grow(Expr::u32(1)),
        ],
    )];
    tests.push(computing("control/for/break and continue", 25, leaving, |i| (i / 2 + 1).min(10)));
    let nested = vec![Node::for_range(
        "i",
        Expr::u32(0),
        Expr::u32(5),
        vec![
            Node::for_range(
                "j",
                Expr::u32(0),
                Expr::u32(100),
                vec![Node::if_then(Expr::var("j").ge(Expr::var("i")), vec![Node::Break]), grow(Expr::u32(1))],
            ),
            grow(Expr::u32(100)),
        ],
    )];
    tests.push(computing("control/for/nested", 2, nested, |_| 510));
}

fn general(tests: &mut Vec<Test>) {
    let n = || Expr::var("n");
    let start = Node::var("n", DataType::U32, Expr::u32(0));
    let step = Node::assign("n", n() + Expr::u32(1));
    let plain = vec![
        start.clone(),
        Node::forever(vec![Node::if_then(n().ge(id()), vec![Node::Break]), step.clone(), grow(n())]),
    ];
    tests.push(computing("control/loop/break", 12, plain, |i| i * (i + 1) / 2));
    let continuing = vec![
        start.clone(),
        Node::Loop {
            body: vec![
                Node::let_bind("odd", n() % Expr::u32(2)),
                Node::if_then(Expr::var("odd").eq(Expr::u32(1)), vec![Node::Continue]),
                grow(Expr::u32(10)),
            ],
            // Sees the names of the body, also after `continue`.
            continuing: vec![step.clone(), grow(Expr::u32(1))],
            break_if: Some(n().ge(Expr::u32(6))),
        },
    ];
    tests.push(computing("control/loop/continuing", 3, continuing, |_| 36));
    let returning = Program::wrapped(
        vec![BufferDecl::output("out", 0, DataType::U32).with_count(10)],
        [16, 1, 1],
        vec![
            start,
            Node::forever(vec![
                step,
                Node::if_then(n().gt(id()), vec![Node::store("out", id(), n() * Expr::u32(7)), Node::Return(None)]),
            ]),
        ],
    );
    let test = Test::new("control/loop/return", Case::new(returning, Vec::new()));
    tests.push(test.gives(vec![u32s((1..=10).map(|i| i * 7))]));
    // Collatz: lengths that differ much between neighbours.
    let collatz = vec![
        Node::var("n", DataType::U32, id() + Expr::u32(1)),
        Node::Loop {
            body: vec![
                Node::if_then(n().eq(Expr::u32(1)), vec![Node::Break]),
                Node::if_else(
                    (n() % Expr::u32(2)).eq(Expr::u32(0)),
                    vec![Node::assign("n", n() / Expr::u32(2))],
                    vec![Node::assign("n", n() * Expr::u32(3) + Expr::u32(1))],
                ),
            ],
            continuing: vec![grow(Expr::u32(1))],
            break_if: None,
        },
    ];
    tests.push(computing("control/loop/collatz", 60, collatz, |i| {
        let (mut n, mut steps) = (i + 1, 0);
        while n != 1 {
            n = if n % 2 == 0 { n / 2 } else { n * 3 + 1 };
            steps += 1;
        }
        steps
    }));
}

fn switches(tests: &mut Vec<Test>) {
    let arm = |values: Vec<Literal>, default: bool, body: Vec<Node>| Arm { values, default, body };
    let value = |n: u32| vec![set(Expr::u32(n))];
    let unsigned = vec![Node::Switch {
        selector: id(),
        cases: vec![
            arm(vec![Literal::U32(1), Literal::U32(4)], false, value(10)),
            arm(vec![Literal::U32(2)], true, value(20)),
            arm(vec![Literal::U32(3)], false, Vec::new()),
        ],
    }];
    tests.push(computing("control/switch/u32", 8, unsigned, |i| match i {
        1 | 4 => 10,
        3 => 0,
        _ => 20,
    }));
    let signed = vec![Node::Switch {
        selector: id().cast(DataType::I32) - Expr::i32(2),
        cases: vec![
            arm(vec![Literal::I32(-2), Literal::I32(0)], false, value(1)),
            arm(vec![Literal::I32(i32::MIN), Literal::I32(-1)], false, value(2)),
            arm(Vec::new(), true, Vec::new()),
        ],
    }];
    tests.push(computing("control/switch/i32", 8, signed, |i| match i {
        0 | 2 => 1,
        1 => 2,
        _ => 0,
    }));
    // `break` leaves the switch, `continue` goes on with the loop around it.
    let inside = vec![Node::for_range(
        "i",
        Expr::u32(0),
        Expr::u32(6),
        vec![
            Node::Switch {
                selector: Expr::var("i"),
                cases: vec![
                    arm(
                        vec![Literal::U32(1)],
                        false,
                        vec![Node::if_then(id().gt(Expr::u32(0)), vec![Node::Break]), grow(Expr::u32(100))],
                    ),
                    arm(vec![Literal::U32(2)], false, vec![Node::Continue]),
                    arm(Vec::new(), true, vec![grow(Expr::u32(1))]),
                ],
            },
            grow(Expr::u32(10)),
        ],
    )];
    tests.push(computing("control/switch/in a loop", 4, inside, |i| if i > 0 { 54 } else { 154 }));
}

fn functions(tests: &mut Vec<Test>) {
    let param = |name: &str, ty: DataType| Param { name: name.into(), ty };
    let vector = DataType::vector(DataType::U32, 2);
    let twice = Function {
        name: "twice".into(),
        params: vec![param("x", DataType::U32)],
        result: Some(DataType::U32),
        body: vec![Node::Return(Some(Expr::var("x") * Expr::u32(2)))],
    };
    let early = Function {
        name: "early".into(),
        params: vec![param("x", DataType::U32), param("v", vector.clone())],
        result: Some(DataType::U32),
        body: vec![
            Node::for_range(
                "i",
                Expr::u32(0),
                Expr::u32(8),
                vec![Node::if_then(
                    Expr::var("i").eq(Expr::var("x")),
                    vec![Node::Return(Some(Expr::var("v").lane(0) + Expr::var("i")))],
                )],
            ),
            Node::Call { function: "twice".into(), args: vec![Expr::var("x")], result: Some("y".into()) },
            Node::Return(Some(Expr::var("y") + Expr::var("v").lane(1))),
        ],
    };
    let note = Function {
        name: "note".into(),
        params: vec![param("at", DataType::U32), param("what", DataType::U32)],
        result: None,
        body: vec![
            Node::if_then(Expr::var("what").eq(Expr::u32(102)), vec![Node::Return(None)]),
            Node::store("out", Expr::var("at"), Expr::var("what")),
        ],
    };
    let program = Program::wrapped(
        vec![BufferDecl::output("out", 0, DataType::U32).with_count(12)],
        [4, 1, 1],
        vec![
            Node::Call {
                function: "early".into(),
                args: vec![id(), Expr::construct(vector, vec![Expr::u32(100), Expr::u32(200)])],
                result: Some("r".into()),
            },
            Node::Call { function: "note".into(), args: vec![id(), Expr::var("r")], result: None },
        ],
    )
    .with_functions(vec![twice, early, note]);
    let results = (0..12).map(|i| match i {
        2 => 0,
        0..8 => 100 + i,
        _ => i * 2 + 200,
    });
    tests.push(Test::new("function/calls", Case::new(program, Vec::new())).gives(vec![u32s(results)]));
}

fn arrays(tests: &mut Vec<Test>) {
    let array = DataType::Handle(TypeId(0));
    let types = vec![TypeDef::Array { element: DataType::U32, count: Count::Fixed(8), stride: 4 }];
    let at = |index: Expr| Expr::Part { value: Box::new(Expr::var("a")), path: vec![Access::Index(index)] };
    let put = |index: Expr, value: Expr| Node::Assign { name: "a".into(), path: vec![Access::Index(index)], value };
    let program = Program::wrapped(
        vec![BufferDecl::output("out", 0, DataType::U32).with_count(16)],
        [8, 1, 1],
        vec![
            Node::var_zero("a", array.clone()),
            Node::for_range("i", Expr::u32(0), Expr::u32(8), vec![put(Expr::var("i"), Expr::var("i") * id())]),
            // Outside: dropped, and read as zero.
            put(id() + Expr::u32(8), Expr::u32(1000)),
            put(Expr::i32(-1) - id().cast(DataType::I32), Expr::u32(1000)),
            Node::var("copy", array.clone(), Expr::var("a")),
            put(Expr::u32(1), Expr::u32(5000)),
            Node::store(
                "out",
                id(),
                at(id())
                    + at(Expr::u32(7))
                    + at(Expr::i32(-3))
                    + Expr::Part { value: Box::new(Expr::var("copy")), path: vec![Access::Index(Expr::u32(1))] },
            ),
        ],
    )
    .with_types(types);
    let results = (0..16u32).map(|i| match i {
        1 => 5000 + 7 + 1,
        0..8 => i * i + 7 * i + i,
        _ => 7 * i + i,
    });
    tests.push(Test::new("array/variable", Case::new(program, Vec::new())).gives(vec![u32s(results)]));
    // An array of vectors, made from its parts and filled in a loop that keeps it alive.
    let types =
        vec![TypeDef::Array { element: DataType::vector(DataType::F32, 3), count: Count::Fixed(2), stride: 16 }];
    let vec3 = |x: f32| Expr::construct(DataType::vector(DataType::F32, 3), vec![Expr::f32(x)]);
    let program = Program::wrapped(
        vec![BufferDecl::output("out", 0, DataType::F32).with_count(6)],
        [8, 1, 1],
        vec![
            Node::var("a", array.clone(), Expr::construct(array, vec![vec3(1.0), vec3(2.0)])),
            Node::for_range(
                "i",
                Expr::u32(0),
                Expr::u32(3),
                vec![Node::Assign {
                    name: "a".into(),
                    path: vec![Access::Index(Expr::var("i") % Expr::u32(2)), Access::Index(Expr::var("i"))],
                    value: Expr::f32(0.5),
                }],
            ),
            Node::store(
                "out",
                id(),
                Expr::Part {
                    value: Box::new(Expr::var("a")),
                    path: vec![Access::Index(id() / Expr::u32(3)), Access::Index(id() % Expr::u32(3))],
                },
            ),
        ],
    )
    .with_types(types);
    let results = [0.5f32, 1.0, 0.5, 2.0, 0.5, 2.0].map(f32::to_bits);
    tests.push(Test::new("array/vectors", Case::new(program, Vec::new())).gives(vec![u32s(results)]));
}

fn constants(tests: &mut Vec<Test>) {
    let constant = |name: &str, default: Literal| SpecConstant { name: name.into(), default };
    let build = || {
        Program::wrapped(
            vec![BufferDecl::output("out", 0, DataType::U32).with_count(5)],
            [1, 1, 1],
            vec![
                Node::store("out", Expr::u32(0), Expr::constant("u")),
                Node::store("out", Expr::u32(1), Expr::constant("i").cast(DataType::U32)),
                Node::store("out", Expr::u32(2), (Expr::constant("f") * Expr::f32(4.0)).cast(DataType::U32)),
                Node::if_else(
                    Expr::constant("b"),
                    vec![Node::store("out", Expr::u32(3), Expr::u32(1))],
                    vec![Node::store("out", Expr::u32(3), Expr::u32(2))],
                ),
                Node::let_bind("sum", Expr::constant("u") + Expr::u32(1)),
                Node::store("out", Expr::u32(4), Expr::var("sum") << Expr::constant("u")),
            ],
        )
        .with_constants(vec![
            constant("u", Literal::U32(3)),
            constant("i", Literal::I32(-4)),
            constant("f", Literal::F32(1.5)),
            constant("b", Literal::Bool(true)),
        ])
    };
    let one = |mut case: Case| {
        case.grid = Some([1; 3]);
        case
    };
    let defaults = Test::new("specialization/defaults", one(Case::new(build(), Vec::new())));
    tests.push(defaults.gives(vec![u32s([3, -4i32 as u32, 6, 1, 32])]));
    let mut case = one(Case::new(build(), Vec::new()));
    case.specialization.extend([
        ("u".into(), Literal::U32(7)),
        ("i".into(), Literal::I32(i32::MIN)),
        ("f".into(), Literal::F32(-0.25)),
        ("b".into(), Literal::Bool(false)),
    ]);
    tests.push(Test::new("specialization/set", case).gives(vec![u32s([7, 1 << 31, 0, 2, 1024])]));

    let half = Program::wrapped(
        vec![BufferDecl::output("out", 0, DataType::F16).with_count(1)],
        [1, 1, 1],
        vec![Node::store("out", Expr::u32(0), Expr::constant("h") + Expr::f16(f16::ONE))],
    )
    .with_constants(vec![constant("h", Literal::F16(f16::from_f32(0.5)))]);
    let mut case = Case::new(half, Vec::new());
    case.specialization.insert("h".into(), Literal::F16(f16::from_f32(2.0)));
    let three = f16::from_f32(3.0).to_le_bytes().to_vec();
    tests.push(Test::new("specialization/f16", case).gives(vec![three]));

    // The size of the workgroup and of its memory.
    let sized = Program::wrapped(
        vec![
            BufferDecl::workgroup("tile", 0, DataType::U32).with_constant_count(Expr::constant("size") * Expr::u32(2)),
            BufferDecl::output("out", 0, DataType::U32).with_count(24),
        ],
        [1, 1, 1],
        vec![
            Node::store("tile", Expr::local_id(0) * Expr::u32(2) + Expr::u32(1), Expr::local_id(0)),
            Node::barrier(),
            Node::store(
                "out",
                id(),
                Expr::load("tile", Expr::constant("size") * Expr::u32(2) - Expr::u32(1))
                    + Expr::len("tile") * Expr::u32(100),
            ),
        ],
    )
    .with_constants(vec![constant("size", Literal::U32(8))])
    .with_workgroup_exprs([Some(Expr::constant("size")), None, None]);
    tests.push(
        Test::new("specialization/size default", Case::new(sized.clone(), Vec::new()))
            .gives(vec![u32s((0..24).map(|_| 1607))]),
    );
    let mut case = Case::new(sized, Vec::new());
    case.specialization.insert("size".into(), Literal::U32(12));
    tests.push(Test::new("specialization/size set", case).gives(vec![u32s((0..24).map(|_| 2411))]));

    for (name, key, value) in [("unknown name", "nothing", Literal::U32(1)), ("wrong type", "u", Literal::F32(1.0))] {
        let mut case = one(Case::new(build(), Vec::new()));
        case.specialization.insert(key.into(), value);
        let mut test = Test::new(format!("specialization/{name}"), case);
        test.expectation = super::Expectation::Error;
        tests.push(test);
    }
}
