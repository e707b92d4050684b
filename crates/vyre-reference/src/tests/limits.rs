//! What ends a run early: the budget, the memory limit, options that can't be used.

use vyre_foundation::ir::{
    BufferDecl, Count, DataType, Expr, Function, MathOp, Node, Program, SubgroupOp, TypeDef, TypeId,
};
use vyre_spec::codes::{self, Code};

use super::{execute, words};
use crate::RunOptions;

#[track_caller]
fn refused(program: &Program, options: &RunOptions, code: Code) {
    let diagnostic = execute(program, &[], options).expect_err("refused");
    assert_eq!(diagnostic.code, code, "{diagnostic}");
}

fn one_output(body: Vec<Node>) -> Program {
    Program::wrapped(vec![BufferDecl::output("out", 0, DataType::U32).with_count(1)], [1, 1, 1], body)
}

#[test]
fn endless_loops_spend_the_budget() {
    let endless = one_output(vec![
        Node::var("i", DataType::U32, 0u32),
        Node::Loop {
            body: vec![Node::assign("i", Expr::var("i") + 1u32)],
            continuing: vec![],
            break_if: Some(Expr::var("i").lt(0u32)),
        },
    ]);
    refused(&endless, &RunOptions { budget: 100_000, ..RunOptions::default() }, &codes::reference::BUDGET);
    // So does a launch of very many invocations that do nothing.
    let options = RunOptions { budget: 100_000, grid: Some([u32::MAX; 3]), ..RunOptions::default() };
    refused(&one_output(vec![]), &options, &codes::reference::BUDGET);
}

#[test]
fn the_budget_counts_statements_and_operations() {
    // A store with two literals and a sum of two, and the end of the invocation.
    let program = one_output(vec![Node::store("out", 0u32, Expr::u32(1) + Expr::u32(2))]);
    let needed = 1 + 4 + 1;
    let with = |budget| RunOptions { budget, ..RunOptions::default() };
    assert_eq!(words(&execute(&program, &[], &with(needed)).expect("enough")[0]), [3]);
    refused(&program, &with(needed - 1), &codes::reference::BUDGET);
}

#[test]
fn huge_memory_is_refused_before_it_is_taken() {
    let huge = Program::wrapped(
        vec![BufferDecl::output("out", 0, DataType::vector(DataType::F64, 4)).with_count(4_000_000_000)],
        [64, 1, 1],
        vec![],
    );
    refused(&huge, &RunOptions::default(), &codes::reference::MEMORY);
    let array = |count| vec![TypeDef::Array { element: DataType::U32, count: Count::Fixed(count), stride: 4 }];
    let ty = || DataType::Handle(TypeId(0));
    let variable = |count| one_output(vec![Node::var_zero("a", ty())]).with_types(array(count));
    let options = RunOptions { memory: 1 << 20, ..RunOptions::default() };
    refused(&variable(16_000), &options, &codes::reference::MEMORY);
    assert!(execute(&variable(1_000), &[], &options).is_ok());
    // The same small array is too much for a whole workgroup that waits.
    let waiting =
        variable(1_000).with_workgroup_size([256, 1, 1]).with_body(vec![Node::var_zero("a", ty()), Node::barrier()]);
    refused(&waiting, &options, &codes::reference::MEMORY);
}

#[test]
fn subgroup_sizes_have_limits() {
    for subgroup_size in [0, 129] {
        let options = RunOptions { subgroup_size, ..RunOptions::default() };
        refused(&one_output(vec![]), &options, &codes::reference::SUBGROUP_SIZE);
    }
}

/// Expressions and statements about as deep as validation lets them be, on a thread with the usual stack.
#[test]
fn deep_programs_fit_a_small_stack() {
    let depth = 180;
    let mut value = Expr::load("out", 0u32);
    for i in 0..depth {
        value = match i % 4 {
            0 => value + 1u32,
            1 => Expr::select(Expr::bool(true), value, 0u32),
            2 => value.max(1u32),
            _ => Expr::construct(DataType::Vec2U32, vec![value, Expr::u32(0)]).lane(0),
        };
    }
    let mut nested = vec![Node::store("out", 0u32, Expr::u32(7))];
    for i in 0..depth {
        nested = match i % 3 {
            0 => vec![Node::if_then(Expr::bool(true), nested)],
            1 => vec![Node::for_range("i", 0u32, 1u32, nested)],
            _ => vec![Node::Block(nested)],
        };
    }
    nested.push(Node::store("out", 0u32, value));
    let program =
        Program::wrapped(vec![BufferDecl::read_write("out", 0, DataType::U32).with_count(1)], [1, 1, 1], nested);
    let run = move || {
        let valid = program.validate().expect("valid");
        crate::run(&valid, &[&[0; 4]], &RunOptions::default()).expect("runs")
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(run).expect("a thread");
    assert_eq!(words(&thread.join().expect("no overflow")[0]), [7 + depth / 4]);
}

#[test]
fn nothing_runs_in_an_empty_grid() {
    let program = one_output(vec![Node::store("out", 0u32, 1u32)]);
    let options = RunOptions { grid: Some([1, 0, 1]), ..RunOptions::default() };
    assert_eq!(execute(&program, &[], &options).expect("runs"), [[0; 4]]);
}

/// Programs that validation refuses end in a diagnostic, not in a panic or a hang.
#[test]
fn contradictions_are_found() {
    let refused = |program: &Program, code: Code| {
        let options = RunOptions { grid: Some([1, 1, 1]), ..RunOptions::default() };
        let diagnostic = crate::interpret(program, &[], &options).expect_err("refused");
        assert_eq!(diagnostic.code, code, "{diagnostic}");
    };
    let first = || Expr::local_id(0).eq(0u32);
    for body in [
        vec![Node::if_else(first(), vec![Node::barrier()], vec![Node::barrier()])],
        vec![
            Node::if_then(
                first(),
                vec![Node::store(
                    "out",
                    0u32,
                    Expr::Subgroup { op: SubgroupOp::Add, value: Box::new(Expr::u32(1)), argument: None },
                )],
            ),
            Node::barrier(),
        ],
    ] {
        refused(&one_output(body).with_workgroup_size([2, 1, 1]), &codes::reference::DIVERGED);
    }
    for body in [
        vec![Node::store("out", 0u32, Expr::u32(1) + Expr::f32(1.0))],
        vec![Node::store("out", 0u32, Expr::f32(1.0))],
        vec![Node::store("nowhere", 0u32, 1u32)],
        vec![Node::store("out", 0u32, Expr::var("nothing"))],
        vec![Node::store("out", Expr::bool(true), 1u32)],
        vec![Node::if_then(Expr::u32(1), vec![])],
        vec![Node::Break],
        vec![Node::Return(Some(Expr::u32(1)))],
        vec![Node::Call { function: "none".into(), args: vec![], result: None }],
        vec![Node::store("out", 0u32, Expr::u32(1).lane(2))],
        vec![Node::store("out", 0u32, Expr::math(MathOp::Max, vec![Expr::u32(1)]))],
    ] {
        refused(&one_output(body), &codes::reference::INCONSISTENT);
    }
    let endless = Function { name: "f".into(), params: vec![], result: None, body: vec![call("f")] };
    refused(&one_output(vec![call("f")]).with_functions(vec![endless]), &codes::reference::INCONSISTENT);
}

fn call(name: &str) -> Node {
    Node::Call { function: name.into(), args: vec![], result: None }
}
