//! What the validator refuses, where, and that it accepts the rest.

use vyre_foundation::ir::*;
use vyre_foundation::limits;

fn out() -> BufferDecl {
    BufferDecl::output("out", 0, DataType::U32).with_count(64)
}

fn kernel(body: Vec<Node>) -> Program {
    Program::wrapped(
        vec![
            out(),
            BufferDecl::read("a", 1, DataType::F32),
            BufferDecl::read_write("rw", 2, DataType::U32),
            BufferDecl::uniform("u", 3, DataType::U32),
            BufferDecl::workgroup("shared", 0, DataType::U32).with_count(64),
        ],
        [64, 1, 1],
        body,
    )
}

/// Code and place of each problem.
fn problems(program: &Program) -> Vec<(String, String)> {
    match program.validate() {
        Ok(_) => Vec::new(),
        Err(problems) => problems
            .iter()
            .map(|problem| {
                assert!(!problem.fix.is_empty() && !problem.message.is_empty());
                (problem.code.id.to_owned(), problem.place.clone().unwrap_or_default())
            })
            .collect(),
    }
}

#[track_caller]
fn refused(program: &Program, expected: &[(&str, &str)]) {
    let found = problems(program);
    let expected: Vec<_> = expected.iter().map(|(code, place)| (code.to_string(), place.to_string())).collect();
    assert_eq!(found, expected, "{:#?}", program.validate().err());
}

#[track_caller]
fn accepted(program: &Program) {
    refused(program, &[]);
}

fn gid() -> Expr {
    Expr::global_id(0)
}

fn lid() -> Expr {
    Expr::local_id(0)
}

#[test]
fn all_problems_are_reported_with_their_places() {
    let program = kernel(vec![
        Node::store("out", gid(), Expr::f32(1.0)),
        Node::if_else(
            Expr::u32(1),
            vec![Node::let_bind("x", Expr::var("nowhere"))],
            vec![Node::store("a", gid(), Expr::f32(0.0)), Node::store("missing", gid(), 0u32)],
        ),
        Node::store("out", gid(), Expr::load("out", gid())),
    ]);
    refused(
        &program,
        &[
            ("V0105", "body[0].value"),
            ("V0105", "body[1].cond"),
            ("V0104", "body[1].then[0].value"),
            ("V0109", "body[1].otherwise[0]"),
            ("V0104", "body[1].otherwise[1]"),
            ("V0109", "body[2].value"),
        ],
    );
}

#[test]
fn names_and_bindings_are_unique() {
    let program = Program::wrapped(
        vec![out(), BufferDecl::read("out", 0, DataType::F32), BufferDecl::workgroup("w", 0, DataType::F32)],
        [1, 1, 1],
        vec![
            Node::let_bind("x", 1u32),
            Node::let_bind("x", 2u32),
            Node::Block(vec![Node::let_bind("x", 3u32)]),
            Node::let_bind("", 2u32),
        ],
    )
    .with_constants(vec![
        SpecConstant { name: "n".into(), default: Literal::U32(1) },
        SpecConstant { name: "n".into(), default: Literal::F64(1.0) },
    ]);
    refused(
        &program,
        &[
            ("V0103", "constants[1]"),
            ("V0106", "constants[1]"),
            ("V0103", "buffers[1]"),
            ("V0103", "buffers[1]"),
            ("V0103", "body[1]"),
            ("V0102", "body[3]"),
        ],
    );
}

#[test]
fn descriptors_are_refused() {
    for ty in [
        DataType::Tensor,
        DataType::Bytes,
        DataType::Array { element_size: 4 },
        DataType::SparseCsr { element: Box::new(DataType::F32) },
        DataType::Opaque(TypeId(7)),
        DataType::DeviceMesh { axes: [2, 2].into_iter().collect() },
        DataType::vector(DataType::F32, 5),
        DataType::vector(DataType::I4, 4),
        DataType::vector(DataType::vector(DataType::F32, 2), 2),
        DataType::Handle(TypeId(0)),
    ] {
        let program = Program::wrapped(vec![BufferDecl::read("b", 0, ty.clone())], [1, 1, 1], vec![]);
        refused(&program, &[("V0106", "buffers[0].ty")]);
        let program = kernel(vec![Node::var_zero("v", ty)]);
        refused(&program, &[("V0106", "body[0].ty")]);
    }
    for ty in [DataType::U8, DataType::BF16, DataType::NF4, DataType::vector(DataType::I8, 4), DataType::Vec2U32] {
        accepted(&Program::wrapped(vec![BufferDecl::read("b", 0, ty)], [1, 1, 1], vec![]));
    }
}

fn member(name: &str, ty: DataType, offset: u32) -> Member {
    Member { name: name.into(), ty, offset }
}

fn structure(members: Vec<Member>, size: u32, align: u32) -> TypeDef {
    TypeDef::Struct { name: "S".into(), members, size, align }
}

#[test]
fn layouts_are_checked() {
    let check = |defs: Vec<TypeDef>, expected: &[(&str, &str)]| refused(&Program::empty().with_types(defs), expected);
    let f32_at = |name: &str, offset| member(name, DataType::F32, offset);
    check(vec![structure(vec![f32_at("a", 0), f32_at("b", 4)], 8, 4)], &[]);
    check(vec![structure(vec![f32_at("a", 0), f32_at("b", 2)], 8, 4)], &[("V0107", "types[0].members[1]")]);
    check(vec![structure(vec![f32_at("a", 4), f32_at("b", 0)], 8, 4)], &[("V0107", "types[0].members[1]")]);
    check(vec![structure(vec![f32_at("a", 0), f32_at("a", 4)], 8, 4)], &[("V0103", "types[0].members[1]")]);
    check(vec![structure(vec![f32_at("a", 0)], 2, 2)], &[("V0107", "types[0].members[0]")]);
    check(vec![structure(vec![f32_at("a", 0)], 6, 4)], &[("V0107", "types[0]")]);
    check(vec![structure(vec![f32_at("a", 0)], 12, 12)], &[("V0107", "types[0]")]);
    check(vec![structure(vec![], 4, 4)], &[("V0107", "types[0]")]);
    check(vec![structure(vec![member("a", DataType::I4, 0)], 4, 4)], &[("V0106", "types[0].members[0]")]);
    check(
        vec![structure(vec![member("a", DataType::Handle(TypeId(0)), 0)], 4, 4)],
        &[("V0106", "types[0].members[0]")],
    );
    let vec3 = DataType::vector(DataType::F32, 3);
    check(vec![TypeDef::Array { element: vec3.clone(), count: Count::Fixed(2), stride: 16 }], &[]);
    check(vec![TypeDef::Array { element: vec3, count: Count::Fixed(2), stride: 12 }], &[("V0107", "types[0]")]);
    check(
        vec![TypeDef::Array { element: DataType::F32, count: Count::Fixed(1 << 30), stride: 4 }],
        &[("V0107", "types[0]")],
    );
    check(vec![TypeDef::Array { element: DataType::F32, count: Count::Fixed(0), stride: 4 }], &[("V0118", "types[0]")]);
    check(
        vec![TypeDef::Array { element: DataType::F32, count: Count::Constant(Box::new(Expr::u32(1))), stride: 4 }],
        &[("V0118", "types[0]")],
    );
}

#[test]
fn open_arrays_stand_last_in_a_storage_buffer() {
    let types = vec![
        TypeDef::Array { element: DataType::F32, count: Count::Runtime, stride: 4 },
        structure(vec![member("n", DataType::U32, 0), member("data", DataType::Handle(TypeId(0)), 4)], 4, 4),
    ];
    let ty = DataType::Handle(TypeId(1));
    let path = vec![Access::Member(1), Access::Index(gid())];
    let load = Expr::Load { buffer: "b".into(), index: Box::new(Expr::u32(0)), path };
    let whole = Expr::load("b", 0u32);
    let program = |decl: BufferDecl, value: Expr| {
        Program::wrapped(vec![decl], [1, 1, 1], vec![Node::let_bind("x", value)]).with_types(types.clone())
    };
    accepted(&program(BufferDecl::read("b", 0, ty.clone()), load.clone()));
    refused(&program(BufferDecl::read("b", 0, ty.clone()), whole), &[("V0106", "body[0].value")]);
    refused(&program(BufferDecl::uniform("b", 0, ty.clone()), load.clone()), &[("V0118", "buffers[0].count")]);
    refused(&program(BufferDecl::read("b", 0, ty).with_count(1), load.clone()), &[("V0118", "buffers[0].count")]);
    let array = BufferDecl::read("b", 0, DataType::Handle(TypeId(0)));
    refused(&program(array, Expr::len("b")), &[("V0118", "buffers[0].count")]);
}

#[test]
fn jumps_and_returns_have_their_places() {
    refused(
        &kernel(vec![
            Node::Break,
            Node::Continue,
            Node::Return(Some(Expr::u32(1))),
            Node::Loop {
                body: vec![Node::Switch {
                    selector: Expr::u32(1),
                    cases: vec![Case { values: vec![Literal::U32(1)], default: true, body: vec![Node::Continue] }],
                }],
                continuing: vec![Node::Break, Node::Continue, Node::Return(None)],
                break_if: None,
            },
        ]),
        &[
            ("V0112", "body[0]"),
            ("V0112", "body[1]"),
            ("V0113", "body[2]"),
            ("V0112", "body[3].continuing[0]"),
            ("V0112", "body[3].continuing[1]"),
            ("V0112", "body[3].continuing[2]"),
        ],
    );
    accepted(&kernel(vec![Node::for_range("i", 0u32, 4u32, vec![Node::Continue]), Node::forever(vec![Node::Break])]));
}

#[test]
fn continuing_knows_only_names_that_every_round_declares() {
    let round = |continue_first: bool| {
        let skip = Node::if_then(gid().lt(3u32), vec![Node::Continue]);
        let name = Node::let_bind("x", 1u32);
        let body = if continue_first { vec![skip, name] } else { vec![name, skip] };
        kernel(vec![Node::Loop {
            body,
            continuing: vec![Node::store("out", 0u32, Expr::var("x"))],
            break_if: Some(Expr::bool(true)),
        }])
    };
    accepted(&round(false));
    refused(&round(true), &[("V0104", "body[0].continuing[0].value")]);
}

fn function(name: &str, result: Option<DataType>, body: Vec<Node>) -> Function {
    Function { name: name.into(), params: vec![Param { name: "p".into(), ty: DataType::U32 }], result, body }
}

#[test]
fn functions_return_and_do_not_recurse() {
    let call = |name: &str| Node::Call { function: name.into(), args: vec![Expr::u32(1)], result: None };
    let program = kernel(vec![]).with_functions(vec![
        function(
            "f",
            Some(DataType::U32),
            vec![Node::if_then(Expr::bool(true), vec![Node::Return(Some(1u32.into()))])],
        ),
        function("g", None, vec![call("h")]),
        function("h", None, vec![call("g")]),
        function(
            "ok",
            Some(DataType::U32),
            vec![Node::forever(vec![Node::if_then(gid().lt(3u32), vec![Node::Return(Some(Expr::var("p")))])])],
        ),
    ]);
    refused(&program, &[("V0113", "functions[0]"), ("V0114", "functions[2]")]);
    let misused = kernel(vec![
        Node::Call { function: "f".into(), args: vec![], result: None },
        Node::Call { function: "f".into(), args: vec![Expr::f32(1.0)], result: Some("r".into()) },
        Node::Call { function: "none".into(), args: vec![], result: Some("s".into()) },
        Node::assign("p", 1u32),
    ])
    .with_functions(vec![function("f", None, vec![Node::assign("p", 1u32)])]);
    refused(
        &misused,
        &[
            ("V0110", "functions[0].body[0]"),
            ("V0108", "body[0]"),
            ("V0105", "body[1].args[0]"),
            ("V0113", "body[1]"),
            ("V0104", "body[2]"),
            ("V0104", "body[3]"),
        ],
    );
}

#[test]
fn calls_do_not_explode() {
    let mut functions = vec![function("f0", None, vec![Node::Block(vec![])])];
    for i in 1..40 {
        let call = Node::Call { function: format!("f{}", i - 1).into(), args: vec![Expr::u32(1)], result: None };
        functions.push(function(&format!("f{i}"), None, vec![call.clone(), call]));
    }
    let call = Node::Call { function: "f39".into(), args: vec![Expr::u32(1)], result: None };
    refused(&kernel(vec![call]).with_functions(functions), &[("V0101", "body")]);
}

#[test]
fn atomics_have_their_operands() {
    let atomic = |op, value: Option<u32>, compare: Option<u32>, result: Option<&str>, buffer: &str| Node::Atomic {
        op,
        buffer: buffer.into(),
        index: gid(),
        path: vec![],
        value: value.map(Expr::u32),
        compare: compare.map(Expr::u32),
        result: result.map(Name::from),
    };
    accepted(&kernel(vec![
        atomic(AtomicOp::Add, Some(1), None, Some("old"), "rw"),
        atomic(AtomicOp::Load, None, None, Some("now"), "shared"),
        atomic(AtomicOp::Store, Some(1), None, None, "out"),
        atomic(AtomicOp::CompareExchange, Some(1), Some(2), None, "rw"),
    ]));
    refused(
        &kernel(vec![
            atomic(AtomicOp::Add, None, None, None, "rw"),
            atomic(AtomicOp::Load, Some(1), None, None, "rw"),
            atomic(AtomicOp::Store, Some(1), None, Some("x"), "rw"),
            atomic(AtomicOp::CompareExchange, Some(1), None, None, "rw"),
            atomic(AtomicOp::Max, Some(1), Some(1), None, "rw"),
            atomic(AtomicOp::Load, None, None, None, "u"),
            atomic(AtomicOp::Load, None, None, None, "a"),
        ]),
        &[
            ("V0119", "body[0]"),
            ("V0119", "body[1]"),
            ("V0119", "body[2]"),
            ("V0119", "body[3]"),
            ("V0119", "body[4]"),
            ("V0119", "body[5]"),
            ("V0119", "body[6]"),
            ("V0119", "body[6]"),
        ],
    );
}

#[test]
fn sizes_are_constant_and_fit() {
    let sized = |size: [u32; 3]| Program::wrapped(vec![], size, vec![]);
    accepted(&sized([1024, 1, 1]));
    for size in [[0, 1, 1], [1, 1, 0], [1025, 1, 1], [64, 64, 1], [u32::MAX, u32::MAX, u32::MAX]] {
        refused(&sized(size), &[("V0116", "workgroup_size")]);
    }
    let constant = |default: Literal| vec![SpecConstant { name: "n".into(), default }];
    let by_constant = sized([1, 1, 1]).with_workgroup_exprs([Some(Expr::constant("n") * 2u32), None, None]);
    accepted(&by_constant.clone().with_constants(constant(Literal::U32(32))));
    refused(&by_constant.clone().with_constants(constant(Literal::U32(0))), &[("V0116", "workgroup_size")]);
    refused(&by_constant.clone().with_constants(constant(Literal::F32(1.0))), &[("V0117", "workgroup_size[0]")]);
    refused(&by_constant, &[("V0117", "workgroup_size[0]")]);
    refused(
        &sized([1, 1, 1]).with_domain([gid(), Expr::len("nothing"), Expr::u32(1)]),
        &[("V0117", "domain[0]"), ("V0117", "domain[1]")],
    );
    let shared = |count| {
        Program::wrapped(vec![BufferDecl::workgroup("w", 0, DataType::F32).with_count(count)], [1, 1, 1], vec![])
    };
    accepted(&shared(limits::MAX_WORKGROUP_BYTES as u32 / 4));
    refused(&shared(limits::MAX_WORKGROUP_BYTES as u32 / 4 + 1), &[("V0116", "buffers")]);
    refused(&shared(0), &[("V0118", "buffers[0].count")]);
    let uniform =
        Program::wrapped(vec![BufferDecl::uniform("u", 0, DataType::F32).with_count(1 << 20)], [1, 1, 1], vec![]);
    refused(&uniform, &[("V0118", "buffers[0].count")]);
}

#[test]
fn loops_and_switches_are_checked() {
    refused(
        &kernel(vec![
            Node::For { var: "i".into(), from: 0u32.into(), to: 4i32.into(), step: 0, body: vec![] },
            Node::for_range("j", 0.0f32, 4.0f32, vec![]),
            Node::for_range("k", 0u32, 4u32, vec![Node::assign("k", 1u32)]),
            Node::Switch {
                selector: Expr::u32(1),
                cases: vec![
                    Case { values: vec![Literal::U32(1), Literal::U32(1)], default: true, body: vec![] },
                    Case { values: vec![Literal::I32(2)], default: true, body: vec![] },
                    Case { values: vec![], default: false, body: vec![] },
                ],
            },
        ]),
        &[
            ("V0105", "body[0].to"),
            ("V0120", "body[0].step"),
            ("V0105", "body[1].from"),
            ("V0110", "body[2].body[0]"),
            ("V0121", "body[3].cases[0]"),
            ("V0121", "body[3].cases[1]"),
            ("V0121", "body[3].cases[1]"),
            ("V0121", "body[3].cases[2]"),
        ],
    );
}

#[test]
fn expressions_are_typed() {
    let vec2 = DataType::vector(DataType::F32, 2);
    let v = || Expr::construct(vec2.clone(), vec![Expr::f32(1.0)]);
    let wrong: Vec<Expr> = vec![
        Expr::f32(1.0) + Expr::u32(1),
        -Expr::u32(1),
        !Expr::f32(1.0),
        Expr::u32(1) << Expr::i32(1),
        Expr::bool(true).lt(false),
        Expr::bool(true) + true,
        Expr::u32(1).sqrt(),
        Expr::math(MathOp::Sin, vec![Expr::i32(1)]),
        Expr::math(MathOp::Dot, vec![Expr::f32(1.0), Expr::f32(1.0)]),
        Expr::select(1u32, 1u32, 2u32),
        Expr::select(true, 1u32, 2.0f32),
        v().cast(DataType::U32),
        v().cast(DataType::U8),
        Expr::f32(1.0).bit_cast(DataType::U64),
        Expr::bool(true).bit_cast(DataType::U32),
        v() + Expr::f32(1.0),
        Expr::construct(vec2.clone(), vec![Expr::f32(1.0), Expr::f32(1.0), Expr::f32(1.0)]),
        Expr::construct(vec2.clone(), vec![Expr::u32(1)]),
    ];
    for expr in wrong {
        refused(&kernel(vec![Node::let_bind("x", expr)]), &[("V0105", "body[0].value")]);
    }
    refused(&kernel(vec![Node::let_bind("x", v().lane(2))]), &[("V0111", "body[0].value")]);
    refused(&kernel(vec![Node::let_bind("x", Expr::global_id(3))]), &[("V0122", "body[0].value")]);
    refused(
        &kernel(vec![Node::let_bind("x", Expr::math(MathOp::Min, vec![Expr::u32(1)]))]),
        &[("V0108", "body[0].value")],
    );
    refused(&kernel(vec![Node::let_bind("x", Expr::load("a", 1.0f32))]), &[("V0105", "body[0].value.index")]);
    accepted(&kernel(vec![
        Node::let_bind("a", (v() * v()).lane(1)),
        Node::let_bind("b", v().lt(v())),
        Node::let_bind("c", Expr::math(MathOp::All, vec![Expr::var("b")])),
        Node::let_bind("d", Expr::select(Expr::var("b"), v(), v())),
        Node::let_bind("e", v().bit_cast(DataType::U64)),
        Node::let_bind("f", Expr::load("a", Expr::i64(-1)) + Expr::var("a")),
    ]));
}

#[test]
fn structs_of_stored_types_are_used_by_member() {
    let types = vec![structure(vec![member("a", DataType::U8, 0), member("b", DataType::F32, 4)], 8, 4)];
    let ty = DataType::Handle(TypeId(0));
    let buffers = vec![BufferDecl::read_write("s", 0, ty.clone())];
    let part = |at| Expr::Load { buffer: "s".into(), index: Box::new(gid()), path: vec![Access::Member(at)] };
    let store =
        |at, value: Expr| Node::Store { buffer: "s".into(), index: gid(), path: vec![Access::Member(at)], value };
    let program = |body| Program::wrapped(buffers.clone(), [1, 1, 1], body).with_types(types.clone());
    accepted(&program(vec![store(0, part(0) + 1u32), store(1, part(1) * 2.0f32)]));
    refused(&program(vec![store(2, Expr::u32(1))]), &[("V0111", "body[0].path[0]")]);
    refused(&program(vec![Node::let_bind("x", Expr::load("s", 0u32))]), &[("V0106", "body[0].value")]);
    refused(&program(vec![Node::var_zero("x", ty)]), &[("V0106", "body[0].ty")]);
}

#[test]
fn limits_hold_in_bounded_time() {
    let mut expr = Expr::u32(1);
    for _ in 0..10_000 {
        expr = expr + 1u32;
    }
    refused(&kernel(vec![Node::Break, Node::let_bind("x", expr)]), &[("V0101", "body[1]")]);
    let mut node = Node::Block(vec![]);
    for _ in 0..10_000 {
        node = Node::if_then(Expr::bool(true), vec![node]);
    }
    refused(&kernel(vec![node]), &[("V0101", "body[0]")]);
    let many = (0..100_000).map(|i| BufferDecl::read(format!("b{i}"), i, DataType::F32)).collect();
    refused(&Program::wrapped(many, [1, 1, 1], vec![]), &[("V0101", "buffers")]);
    let long = "x".repeat(1000);
    refused(&kernel(vec![Node::let_bind(&long, 1u32)]), &[("V0102", "body[0]")]);
    let stores = (0..400_000).map(|_| Node::store("out", 0u32, 0u32)).collect();
    refused(&kernel(stores), &[("V0101", "")]);
    let wrong = (0..5000).map(|_| Node::Break).collect();
    assert_eq!(problems(&kernel(wrong)).len(), 1001);
}

#[test]
fn the_deepest_program_is_accepted() {
    let mut expr = gid();
    for _ in 0..limits::MAX_DEPTH - 1 {
        expr = !expr;
    }
    let mut body = vec![Node::barrier(), Node::let_bind("x", expr)];
    for _ in 0..limits::MAX_DEPTH - 1 {
        body = vec![Node::if_then(Expr::load("u", 0u32).lt(7u32), body)];
    }
    let program = kernel(body);
    accepted(&program);
    assert!(vyre_foundation::wire::decode(&vyre_foundation::wire::encode(&program)).expect("deep") == program);
}

#[test]
fn zero_size_everything() {
    accepted(&Program::empty());
    accepted(&Program::wrapped(vec![BufferDecl::output("o", 0, DataType::U32).with_count(0)], [1, 1, 1], vec![]));
    accepted(&kernel(vec![
        Node::Block(vec![]),
        Node::if_else(Expr::bool(true), vec![], vec![]),
        Node::for_range("i", 0u32, 0u32, vec![]),
        Node::Switch { selector: Expr::u32(0), cases: vec![] },
        Node::forever(vec![]),
    ]));
}

/// The single problem's message.
#[track_caller]
fn not_together(body: Vec<Node>, place: &str) -> String {
    let program = kernel(body);
    let problems = program.validate().expect_err("not uniform");
    assert_eq!(problems.len(), 1, "{problems:#?}");
    assert_eq!((problems[0].code.id, problems[0].place.as_deref()), ("V0115", Some(place)), "{problems:#?}");
    problems[0].message.clone()
}

#[test]
fn barriers_are_reached_together() {
    let message = not_together(vec![Node::if_then(lid().lt(3u32), vec![Node::barrier()])], "body[0].then[0]");
    assert!(message.contains("the `if` at `body[0]` depends on `local_id.x`"), "{message}");
    // Early return, break and continue.
    let message = not_together(
        vec![Node::if_then(gid().ge(Expr::len("a")), vec![Node::Return(None)]), Node::barrier()],
        "body[1]",
    );
    assert!(message.contains("leave there by `return`"), "{message}");
    not_together(
        vec![Node::for_range("i", 0u32, 4u32, vec![Node::if_then(lid().lt(3u32), vec![Node::Break]), Node::barrier()])],
        "body[0].body[1]",
    );
    not_together(
        vec![Node::for_range("i", 0u32, 4u32, vec![Node::barrier(), Node::if_then(lid().lt(3u32), vec![Node::Break])])],
        "body[0].body[0]",
    );
    not_together(
        vec![Node::for_range(
            "i",
            0u32,
            4u32,
            vec![Node::if_then(lid().lt(3u32), vec![Node::Continue]), Node::barrier()],
        )],
        "body[0].body[1]",
    );
    not_together(
        vec![Node::for_range(
            "i",
            0u32,
            4u32,
            vec![Node::barrier(), Node::if_then(lid().lt(3u32), vec![Node::Return(None)])],
        )],
        "body[0].body[0]",
    );
    not_together(vec![Node::for_range("i", 0u32, lid(), vec![Node::barrier()])], "body[0].body[0]");
    // A variable that differs.
    not_together(
        vec![
            Node::var("x", DataType::U32, 0u32),
            Node::if_then(lid().lt(3u32), vec![Node::assign("x", 1u32)]),
            Node::if_then(Expr::var("x").eq(0u32), vec![Node::barrier()]),
        ],
        "body[2].then[0]",
    );
    // The number of rounds differs, so what they counted does.
    not_together(
        vec![
            Node::var("x", DataType::U32, 0u32),
            Node::forever(vec![
                Node::assign("x", Expr::var("x") + 1u32),
                Node::if_then(Expr::var("x").gt(lid()), vec![Node::Break]),
            ]),
            Node::if_then(Expr::var("x").eq(2u32), vec![Node::barrier()]),
        ],
        "body[2].then[0]",
    );
    // A chain of copies through the rounds of a loop.
    not_together(
        vec![
            Node::var_zero("x", DataType::U32),
            Node::var_zero("y", DataType::U32),
            Node::var_zero("z", DataType::U32),
            Node::for_range(
                "i",
                0u32,
                9u32,
                vec![
                    Node::if_then(Expr::var("z").eq(1u32), vec![Node::barrier()]),
                    Node::assign("z", Expr::var("y")),
                    Node::assign("y", Expr::var("x")),
                    Node::assign("x", lid()),
                ],
            ),
        ],
        "body[3].body[0].then[0]",
    );
    not_together(
        vec![Node::if_then(Expr::load("rw", 0u32).eq(0u32), vec![Node::barrier()]), Node::store("rw", 0u32, 1u32)],
        "body[0].then[0]",
    );
}

#[test]
fn uniform_flow_is_recognised() {
    let barrier = || vec![Node::barrier()];
    accepted(&kernel(vec![
        Node::if_then(Expr::load("u", 0u32).lt(Expr::workgroup_id(0)), barrier()),
        Node::if_then(Expr::load("a", Expr::workgroup_id(0)).lt(0.5f32), barrier()),
        // Nothing writes `rw`.
        Node::if_then(Expr::load("rw", 3u32).eq(1u32), barrier()),
        Node::if_else(lid().lt(3u32), vec![Node::store("shared", lid(), 1u32)], vec![Node::let_bind("y", 1u32)]),
        Node::barrier(),
        // A reduction with a halving stride.
        Node::var("stride", DataType::U32, 32u32),
        Node::Loop {
            body: vec![
                Node::if_then(Expr::var("stride").eq(0u32), vec![Node::Break]),
                Node::if_then(
                    lid().lt(Expr::var("stride")),
                    vec![Node::store(
                        "shared",
                        lid(),
                        Expr::load("shared", lid()) + Expr::load("shared", lid() + Expr::var("stride")),
                    )],
                ),
                Node::barrier(),
            ],
            continuing: vec![Node::assign("stride", Expr::var("stride") / 2u32)],
            break_if: None,
        },
        // Rounds of different number, and they meet after it.
        Node::forever(vec![Node::if_then(lid().lt(3u32), vec![Node::Break]), Node::Break]),
        Node::barrier(),
        // Reused after it differed.
        Node::var("x", DataType::U32, lid()),
        Node::assign("x", 0u32),
        Node::if_then(Expr::var("x").eq(0u32), barrier()),
        // One value for all, read between two barriers.
        Node::barrier(),
        Node::let_bind("all", Expr::load("shared", 0u32)),
        Node::barrier(),
        Node::if_then(Expr::var("all").eq(7u32), barrier()),
    ]));
}

#[test]
fn functions_are_judged_where_they_are_called() {
    let sync = Function {
        name: "sync".into(),
        params: vec![Param { name: "n".into(), ty: DataType::U32 }],
        result: Some(DataType::U32),
        body: vec![
            Node::if_then(Expr::var("n").gt(2u32), vec![Node::barrier()]),
            Node::Return(Some(Expr::var("n") * 2u32)),
        ],
    };
    let call = |arg: Expr| Node::Call { function: "sync".into(), args: vec![arg], result: Some("r".into()) };
    let used = |arg| {
        kernel(vec![call(arg), Node::if_then(Expr::var("r").eq(1u32), vec![Node::barrier()])])
            .with_functions(vec![sync.clone()])
    };
    accepted(&used(Expr::workgroup_id(0)));
    refused(&used(lid()), &[("V0115", "functions[0].body[0].then[0]"), ("V0115", "body[1].then[0]")]);
    let branch = kernel(vec![Node::if_then(lid().eq(0u32), vec![call(Expr::u32(5))])]).with_functions(vec![sync]);
    let problems = branch.validate().expect_err("called in a branch");
    assert!(problems[0].message.contains("the `if` at `body[0]`"), "{}", problems[0]);
}

#[test]
fn subgroup_operations_are_reached_together() {
    let sum = |value: Expr| Expr::Subgroup { op: SubgroupOp::Add, value: Box::new(value), argument: None };
    accepted(&kernel(vec![Node::store("out", gid(), sum(lid()))]));
    not_together(
        vec![Node::if_then(lid().lt(3u32), vec![Node::store("out", gid(), sum(lid()))])],
        "body[0].then[0].value",
    );
    let broadcast = |lane: Expr| Expr::Subgroup {
        op: SubgroupOp::Broadcast,
        value: Box::new(gid()),
        argument: Some(Box::new(lane)),
    };
    accepted(&kernel(vec![Node::store("out", gid(), broadcast(Expr::u32(3)))]));
    not_together(vec![Node::store("out", gid(), broadcast(lid()))], "body[0].value");
    // A branch on the number of a subgroup, or on what all of it have found together, leaves each subgroup together.
    let number = || Expr::Builtin(Builtin::SubgroupId);
    let inside = || vec![Node::store("out", gid(), sum(lid()))];
    accepted(&kernel(vec![Node::if_then(number().eq(0u32), inside())]));
    accepted(&kernel(vec![Node::if_then(sum(lid()).lt(9u32), inside())]));
    accepted(&kernel(vec![Node::For { var: "i".into(), from: number(), to: Expr::u32(9), step: 1, body: inside() }]));
    accepted(&kernel(vec![Node::if_then(number().eq(1u32), vec![Node::Return(None)]), inside().remove(0)]));
    accepted(&kernel(vec![
        Node::var("row", DataType::U32, number()),
        Node::Loop {
            body: [
                vec![Node::if_then(Expr::var("row").gt(7u32), vec![Node::Break])],
                inside(),
                vec![Node::assign("row", Expr::var("row") + Expr::Builtin(Builtin::NumSubgroups))],
            ]
            .concat(),
            continuing: vec![],
            break_if: None,
        },
        Node::store("out", gid(), broadcast(Expr::var("row"))),
    ]));
    // But not the whole workgroup, and not where its invocations part besides.
    not_together(vec![Node::if_then(number().eq(0u32), vec![Node::barrier()])], "body[0].then[0]");
    not_together(
        vec![Node::if_then(number().eq(0u32), vec![Node::if_then(lid().lt(3u32), inside())])],
        "body[0].then[0].then[0].value",
    );
    not_together(
        vec![Node::if_then(number().lt(lid()), vec![Node::Return(None)]), inside().remove(0)],
        "body[1].value",
    );
    not_together(
        vec![
            Node::var("mine", DataType::U32, number()),
            Node::if_then(lid().lt(3u32), vec![Node::assign("mine", Expr::u32(7))]),
            Node::if_then(Expr::var("mine").eq(7u32), inside()),
        ],
        "body[2].then[0].value",
    );
    let scan = Expr::Subgroup { op: SubgroupOp::InclusiveAdd, value: Box::new(lid()), argument: None };
    not_together(vec![Node::if_then(scan.lt(9u32), inside())], "body[0].then[0].value");
    refused(
        &kernel(vec![Node::let_bind(
            "x",
            Expr::Subgroup { op: SubgroupOp::Shuffle, value: Box::new(gid()), argument: None },
        )]),
        &[("V0108", "body[0].value")],
    );
}

#[test]
fn matrix_operations_take_fragments_and_are_reached_together() {
    let (u32s, f32s) = (|n| DataType::vector(DataType::U32, n), |n| DataType::vector(DataType::F32, n));
    let zero = |ty: DataType| Expr::construct(ty, Vec::new());
    let product = |a, b, c| Expr::matrix_multiply_add(MatrixKind::F16, zero(a), zero(b), zero(c));
    let good = || product(u32s(4), u32s(2), f32s(4));
    accepted(&kernel(vec![Node::let_bind("d", good()), Node::let_bind("x", Expr::var("d").lane(3) + 1.0f32)]));
    for wrong in [
        product(u32s(2), u32s(2), f32s(4)),
        product(u32s(4), u32s(4), f32s(4)),
        product(u32s(4), u32s(2), u32s(4)),
        product(f32s(4), u32s(2), f32s(4)),
    ] {
        refused(&kernel(vec![Node::let_bind("d", wrong)]), &[("V0105", "body[0].value")]);
    }
    not_together(vec![Node::if_then(lid().lt(32u32), vec![Node::let_bind("d", good())])], "body[0].then[0].value");
    // What it gives is not the same for all subgroups.
    not_together(
        vec![Node::let_bind("d", good()), Node::if_then(Expr::var("d").lane(0).lt(1.0f32), vec![Node::barrier()])],
        "body[1].then[0]",
    );
}

#[test]
fn entangled_loops_end() {
    // Each round moves what differs by one variable, so walking until nothing changes would take as many walks.
    let count = 2000;
    let mut body: Vec<Node> = (0..count).map(|i| Node::var_zero(format!("v{i}"), DataType::U32)).collect();
    let mut moves: Vec<Node> =
        (1..count).map(|i| Node::assign(format!("v{}", i - 1), Expr::var(format!("v{i}")))).collect();
    moves.push(Node::assign(format!("v{}", count - 1), lid()));
    moves.push(Node::if_then(Expr::var("v0").eq(0u32), vec![Node::barrier()]));
    body.push(Node::for_range("i", 0u32, 9u32, moves));
    assert_eq!(problems(&kernel(body)).len(), 1);
    // Loops in loops are not walked once per way through them.
    let mut inner = vec![Node::barrier(), Node::if_then(lid().lt(3u32), vec![Node::Break])];
    for i in 0..200 {
        inner = vec![Node::for_range(format!("i{i}"), 0u32, 3u32, inner)];
    }
    assert_eq!(problems(&kernel(inner)).len(), 1);
}
