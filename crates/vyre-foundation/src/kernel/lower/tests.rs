use crate::ir::{Access, BufferDecl, DataType, Expr, Function, Literal, Node, Param, Program, SpecConstant};
use crate::kernel::{Options, Passes, lower};

fn text(program: &Program, passes: Passes) -> String {
    let valid = program.validate().expect("valid");
    lower(&valid, &Options { passes, ..Options::default() }).expect("lowers").to_string()
}

fn body_of(text: &str) -> String {
    text.lines().skip_while(|line| !line.trim_start().starts_with('%')).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_map_is_one_guarded_load_and_store() {
    let program = Program::wrapped(
        vec![BufferDecl::read("a", 0, DataType::F32), BufferDecl::output("b", 1, DataType::F32)],
        [64, 1, 1],
        vec![Node::store("b", Expr::global_id(0), Expr::load("a", Expr::global_id(0)) * Expr::f32(2.0))],
    );
    let text = text(&program, Passes::none());
    assert!(text.contains("load f32 a[%0*4] if %"), "{text}");
    assert!(text.contains("store f32 b[%0*4], %"), "{text}");
    assert!(text.contains("workgroup(64, 1, 1) resizable"), "{text}");
}

#[test]
fn a_false_if_on_a_constant_leaves_no_code_behind() {
    let program = |value| {
        Program::wrapped(
            vec![BufferDecl::output("b", 0, DataType::U32).with_count(4)],
            [1, 1, 1],
            vec![Node::if_then(Expr::constant("debug"), vec![Node::store("b", Expr::global_id(0), Expr::u32(1))])],
        )
        .with_constants(vec![SpecConstant { name: "debug".into(), default: Literal::Bool(value) }])
    };
    assert!(text(&program(true), Passes::all()).contains("store"));
    for passes in [Passes::all(), Passes::none()] {
        let text = text(&program(false), passes);
        assert!(!text.contains("store") && !text.contains("if %"), "{text}");
    }
}

#[test]
fn an_early_return_of_a_function_becomes_a_choice() {
    let function = Function {
        name: "clip".into(),
        params: vec![Param { name: "x".into(), ty: DataType::U32 }],
        result: Some(DataType::U32),
        body: vec![
            Node::if_then(Expr::var("x").gt(Expr::u32(9)), vec![Node::Return(Some(Expr::u32(9)))]),
            Node::Return(Some(Expr::var("x") + Expr::u32(1))),
        ],
    };
    let program = Program::wrapped(
        vec![BufferDecl::output("b", 0, DataType::U32).with_count(4)],
        [1, 1, 1],
        vec![
            Node::Call { function: "clip".into(), args: vec![Expr::global_id(0)], result: Some("r".into()) },
            Node::store("b", Expr::global_id(0), Expr::var("r")),
        ],
    )
    .with_functions(vec![function]);
    let text = text(&program, Passes::none());
    assert!(body_of(&text).contains("} else {"), "{text}");
    assert!(!text.contains("loop"), "{text}");
}

#[test]
fn many_early_returns_do_not_nest_without_bound() {
    let body: Vec<Node> = (0..2000)
        .map(|i| Node::if_then(Expr::var("x").eq(Expr::u32(i)), vec![Node::Return(Some(Expr::u32(i * 7)))]))
        .chain([Node::Return(Some(Expr::u32(1)))])
        .collect();
    let function = Function {
        name: "table".into(),
        params: vec![Param { name: "x".into(), ty: DataType::U32 }],
        result: Some(DataType::U32),
        body,
    };
    let program = Program::wrapped(
        vec![BufferDecl::output("b", 0, DataType::U32).with_count(4)],
        [1, 1, 1],
        vec![
            Node::Call { function: "table".into(), args: vec![Expr::global_id(0)], result: Some("r".into()) },
            Node::store("b", Expr::global_id(0), Expr::var("r")),
        ],
    )
    .with_functions(vec![function]);
    let valid = program.validate().expect("valid");
    for passes in [Passes::none(), Passes::all()] {
        lower(&valid, &Options { passes, ..Options::default() }).expect("lowers");
    }
}

#[test]
fn deep_blocks_are_lowered_or_refused() {
    let mut body = vec![Node::store("b", Expr::u32(0), Expr::var("x"))];
    for i in 0..250 {
        body = vec![Node::if_then(Expr::load("a", Expr::u32(i)).eq(Expr::u32(i)), body)];
    }
    body.insert(0, Node::var("x", DataType::U32, Expr::u32(1)));
    let program = Program::wrapped(
        vec![BufferDecl::read("a", 0, DataType::U32), BufferDecl::output("b", 1, DataType::U32).with_count(4)],
        [1, 1, 1],
        body,
    );
    let valid = program.validate().expect("valid");
    for passes in [Passes::none(), Passes::all()] {
        lower(&valid, &Options { passes, ..Options::default() }).expect("lowers");
    }
}

#[test]
fn an_array_with_dynamic_indices_is_memory_and_one_without_is_values() {
    let array = DataType::Handle(crate::ir::TypeId(0));
    let types =
        vec![crate::ir::TypeDef::Array { element: DataType::F32, count: crate::ir::Count::Fixed(4), stride: 4 }];
    let program = |index: Expr| {
        Program::wrapped(
            vec![BufferDecl::output("b", 0, DataType::F32).with_count(4)],
            [1, 1, 1],
            vec![
                Node::var_zero("v", array.clone()),
                Node::Assign { name: "v".into(), path: vec![Access::Index(index.clone())], value: Expr::f32(1.0) },
                Node::store(
                    "b",
                    Expr::u32(0),
                    Expr::Part { value: Box::new(Expr::var("v")), path: vec![Access::Index(index)] },
                ),
            ],
        )
        .with_types(types.clone())
    };
    assert!(!text(&program(Expr::u32(2)), Passes::none()).contains("local"));
    let dynamic = text(&program(Expr::global_id(0)), Passes::none());
    assert!(dynamic.contains("local 0 v: 16 bytes of f32"), "{dynamic}");
}

/// Local memories, and accesses of them.
fn locals(text: &str) -> (usize, usize) {
    let declared = text.lines().filter(|line| line.trim_start().starts_with("local ")).count();
    (declared, text.matches(" local ").count() - declared)
}

fn parsed(source: &str) -> Program {
    crate::text::parse(source).expect("parses")
}

/// A function that changes an array and returns from within a loop, and calls of it.
fn sinks(calls: &str) -> String {
    format!(
        "type 0 = array<u32, 32> stride 4;
        type 1 = struct Found size 132 align 4 {{ at: u32 at 0, a: type<0> at 4 }};
        read_write b: u32 @0;
        workgroup_size [64, 1, 1];
        fn sink(a_in: type<0>, i: u32) -> Found {{
            var a: type<0> = a_in;
            var at: u32 = i;
            loop {{
                if a[at] == 0 {{
                    return Found(at, a);
                }}
                if at > 20 {{
                    break;
                }}
                a[at] = a[at + 1];
                at = at + a[at];
            }}
            return Found(99, a);
        }}
        fn twice(a_in: type<0>, i: u32) -> Found {{
            var a: type<0> = a_in;
            let first = call sink(a, i);
            a = first.1;
            let second = call sink(a, first.0);
            a = second.1;
            return Found(second.0, a);
        }}
        fn read(a: type<0>, i: u32) -> u32 {{
            return a[i];
        }}
        entry main {{
            var x: type<0>;
            x[global_id.x] = b[global_id.x];
            {calls}
        }}"
    )
}

#[test]
fn a_call_with_what_it_gives_back_works_in_place() {
    let once = "let r = call sink(x, b[1]); x = r.1; b[0] = x[b[2]] + r.0;";
    for passes in [Passes::only(Passes::IN_PLACE), Passes::all()] {
        let text = text(&parsed(&sinks(once)), passes);
        // One store and one load around the call, three loads and a store in it.
        assert_eq!(locals(&text), (1, 6), "{text}");
        let carried = text.lines().filter(|line| line.contains("= loop with")).map(|line| line.matches(": ").count());
        // The place, the result, and whether it returned: as results and as parameters.
        assert!(carried.max().is_some_and(|most| most <= 6), "{text}");
    }
    let copied = text(&parsed(&sinks(once)), Passes::all().without(Passes::IN_PLACE));
    assert!(locals(&copied).1 > 100, "{copied}");
}

#[test]
fn what_is_handed_on_and_what_is_only_read_is_not_copied() {
    let calls = "let r = call twice(x, b[1]); x = r.1; let v = call read(x, b[2]); b[0] = v + r.0;";
    let text = text(&parsed(&sinks(calls)), Passes::only(Passes::IN_PLACE));
    assert_eq!(locals(&text), (1, 10), "{text}");
}

#[test]
fn a_copy_that_somebody_sees_is_made() {
    // The variable before the result is put back, the result afterwards, another variable, or one that is read as well.
    for calls in [
        "let r = call sink(x, b[1]); b[0] = x[b[2]]; x = r.1;",
        "let r = call sink(x, b[1]); x = r.1; x[b[3]] = 4; b[0] = r.1[b[2]] + x[b[4]];",
        "let r = call sink(x, b[1]); b[0] = r.1[b[2]] + x[b[4]];",
        "var y: type<0>; y[b[4]] = 1; let r = call sink(x, b[1]); y = r.1; b[0] = x[b[2]] + y[b[2]];",
    ] {
        let text = text(&parsed(&sinks(calls)), Passes::only(Passes::IN_PLACE));
        assert!(locals(&text).0 >= 2 && locals(&text).1 > 64, "{calls}:\n{text}");
    }
}
