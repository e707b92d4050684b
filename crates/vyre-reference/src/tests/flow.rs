//! Control flow, names and functions.

use vyre_foundation::ir::{BufferDecl, Case, DataType, Expr, Function, Literal, Node, Param, Program};

use super::{bytes, results, words};

/// Runs a body that stores to `out`, one invocation of a workgroup of four.
fn four(body: Vec<Node>) -> Vec<u32> {
    let program = Program::wrapped(vec![BufferDecl::output("out", 0, DataType::U32).with_count(4)], [4, 1, 1], body);
    words(&results(&program, &[])[0])
}

fn id() -> Expr {
    Expr::global_id(0)
}

#[test]
fn if_takes_one_way() {
    let body = vec![Node::if_else(
        id().lt(2u32),
        vec![Node::store("out", id(), 10u32)],
        vec![Node::store("out", id(), 20u32)],
    )];
    assert_eq!(four(body), [10, 10, 20, 20]);
}

#[test]
fn switch_chooses_an_arm_and_break_leaves_it() {
    let arm = |values: &[u32], default, body| Case {
        values: values.iter().map(|&v| Literal::U32(v)).collect(),
        default,
        body,
    };
    let body = vec![Node::Switch {
        selector: id(),
        cases: vec![
            arm(&[0, 3], false, vec![Node::store("out", id(), 7u32)]),
            arm(&[], true, vec![Node::store("out", id(), 8u32), Node::Break, Node::store("out", id(), 9u32)]),
            arm(&[1], false, vec![]),
        ],
    }];
    assert_eq!(four(body), [7, 0, 8, 7]);
}

#[test]
fn counted_loops_stop_before_the_limit_and_never_wrap() {
    let count = |from: u32, to: u32, step: u32| Node::For {
        var: "i".into(),
        from: from.into(),
        to: to.into(),
        step,
        body: vec![Node::assign("n", Expr::var("n") + 1u32)],
    };
    let body = vec![
        Node::var("n", DataType::U32, 0u32),
        count(0, 10, 3),
        Node::store("out", 0u32, Expr::var("n")),
        count(u32::MAX - 3, u32::MAX, 2),
        Node::store("out", 1u32, Expr::var("n")),
        count(5, 5, 1),
        Node::For {
            var: "j".into(),
            from: Expr::i32(-2),
            to: Expr::i32(i32::MAX),
            step: i32::MAX as u32,
            body: vec![Node::assign("n", Expr::var("n") + 1u32)],
        },
        Node::store("out", 2u32, Expr::var("n")),
    ];
    assert_eq!(four(body), [4, 6, 8, 0]);
}

#[test]
fn continue_break_and_continuing() {
    // Adds the odd numbers below `id + 6`, leaving at 7.
    let body = vec![
        Node::var("i", DataType::U32, 0u32),
        Node::var("sum", DataType::U32, 0u32),
        Node::Loop {
            body: vec![
                Node::if_then((Expr::var("i") & 1u32).eq(0u32), vec![Node::Continue]),
                Node::if_then(Expr::var("i").eq(7u32), vec![Node::Break]),
                Node::assign("sum", Expr::var("sum") + Expr::var("i")),
            ],
            continuing: vec![Node::assign("i", Expr::var("i") + 1u32)],
            break_if: Some(Expr::var("i").ge(id() + 6u32)),
        },
        Node::store("out", id(), Expr::var("sum") * 100u32 + Expr::var("i")),
    ];
    assert_eq!(four(body), [906, 907, 907, 907]);
}

#[test]
fn continue_inside_a_switch_goes_to_the_loop() {
    let body = vec![
        Node::var("n", DataType::U32, 0u32),
        Node::for_range(
            "i",
            0u32,
            6u32,
            vec![
                Node::Switch {
                    selector: Expr::var("i"),
                    cases: vec![
                        Case { values: vec![Literal::U32(2)], default: false, body: vec![Node::Continue] },
                        Case { values: vec![], default: true, body: vec![Node::Break] },
                    ],
                },
                Node::assign("n", Expr::var("n") + 1u32),
            ],
        ),
        Node::store("out", id(), Expr::var("n")),
    ];
    assert_eq!(four(body), [5; 4]);
}

#[test]
fn inner_names_hide_outer_ones_only_inside() {
    let body = vec![
        Node::let_bind("a", 1u32),
        Node::Block(vec![
            Node::let_bind("b", 2u32),
            Node::let_bind("c", Expr::var("a") + Expr::var("b")),
            Node::Block(vec![Node::let_bind("a", Expr::var("a") + 9u32), Node::store("out", 0u32, Expr::var("a"))]),
            Node::store("out", 1u32, Expr::var("c")),
        ]),
        Node::let_bind("d", 5u32),
        Node::store("out", 2u32, Expr::var("a") + Expr::var("d")),
    ];
    assert_eq!(four(body), [10, 3, 6, 0]);
}

#[test]
fn functions_take_arguments_and_return_early() {
    let param = |name: &str| Param { name: name.into(), ty: DataType::U32 };
    // Greatest common divisor, and a function that calls it.
    let gcd = Function {
        name: "gcd".into(),
        params: vec![param("x"), param("y")],
        result: Some(DataType::U32),
        body: vec![
            Node::var("a", DataType::U32, Expr::var("x")),
            Node::var("b", DataType::U32, Expr::var("y")),
            Node::forever(vec![
                Node::if_then(Expr::var("b").eq(0u32), vec![Node::Return(Some(Expr::var("a")))]),
                Node::let_bind("t", Expr::var("a") % Expr::var("b")),
                Node::assign("a", Expr::var("b")),
                Node::assign("b", Expr::var("t")),
            ]),
        ],
    };
    let call = |args: Vec<Expr>, result: &str| Node::Call { function: "gcd".into(), args, result: Some(result.into()) };
    let gcd3 = Function {
        name: "gcd3".into(),
        params: vec![param("x"), param("y"), param("z")],
        result: Some(DataType::U32),
        body: vec![
            call(vec![Expr::var("x"), Expr::var("y")], "g"),
            call(vec![Expr::var("g"), Expr::var("z")], "h"),
            Node::Return(Some(Expr::var("h"))),
        ],
    };
    let program = Program::wrapped(
        vec![BufferDecl::read("in", 0, DataType::U32), BufferDecl::output("out", 1, DataType::U32).with_count(2)],
        [2, 1, 1],
        vec![
            Node::Call {
                function: "gcd3".into(),
                args: (0u32..3).map(|i| Expr::load("in", id() * 3u32 + i)).collect(),
                result: Some("g".into()),
            },
            Node::store("out", id(), Expr::var("g")),
        ],
    )
    .with_functions(vec![gcd, gcd3]);
    assert_eq!(words(&results(&program, &[&bytes(&[12, 18, 27, 48, 180, 36])])[0]), [3, 12]);
}

#[test]
fn return_ends_the_invocation() {
    let body = vec![Node::if_then(id().ge(2u32), vec![Node::Return(None)]), Node::store("out", id(), 1u32)];
    assert_eq!(four(body), [1, 1, 0, 0]);
}
