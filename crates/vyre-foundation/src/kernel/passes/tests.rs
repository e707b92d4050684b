use crate::ir::{BinaryOp, BufferDecl, DataType, Expr, Node, Program};
use crate::kernel::{Interpret, Options, Passes, interpret, lower};

fn text(buffers: Vec<BufferDecl>, size: u32, body: Vec<Node>) -> String {
    let program = Program::wrapped(buffers, [size, 1, 1], body);
    let valid = program.validate().expect("valid");
    lower(&valid, &Options::default()).expect("lowers").to_string()
}

/// Accesses that still have a guard.
fn guards(text: &str) -> usize {
    text.lines().filter(|line| (line.contains("load ") || line.contains("store ")) && line.contains(" if %")).count()
}

fn data() -> Vec<BufferDecl> {
    vec![BufferDecl::read_write("a", 0, DataType::F32)]
}

fn shared() -> Vec<BufferDecl> {
    vec![
        BufferDecl::output("out", 0, DataType::F32).with_count(64),
        BufferDecl::workgroup("s", 0, DataType::F32).with_count(64),
    ]
}

fn i() -> Expr {
    Expr::global_id(0)
}

#[test]
fn a_test_against_the_length_replaces_the_guards() {
    let change = Node::store("a", i(), Expr::load("a", i()) * Expr::f32(2.0));
    assert_eq!(guards(&text(data(), 64, vec![change.clone()])), 2);
    let inside = text(data(), 64, vec![Node::if_then(i().lt(Expr::len("a")), vec![change.clone()])]);
    assert_eq!(guards(&inside), 0, "{inside}");
    let early = text(data(), 64, vec![Node::if_then(i().ge(Expr::len("a")), vec![Node::Return(None)]), change]);
    assert_eq!(guards(&early), 0, "{early}");
}

#[test]
fn a_loop_up_to_the_length_needs_no_guards() {
    let sum = |var: &str| Node::assign("x", Expr::var("x") + Expr::load("a", Expr::var(var)));
    let finish = Node::store("a", Expr::u32(0), Expr::var("x"));
    let begin = Node::var("x", DataType::F32, Expr::f32(0.0));
    let counted = text(
        data(),
        1,
        vec![begin.clone(), Node::for_range("k", Expr::u32(0), Expr::len("a"), vec![sum("k")]), finish.clone()],
    );
    assert_eq!(guards(&counted), 1, "only the store at the end:\n{counted}");
    // As a WGSL `for` is imported.
    let general = Node::Loop {
        body: vec![Node::if_else(Expr::var("k").lt(Expr::len("a")), vec![], vec![Node::Break]), sum("k")],
        continuing: vec![Node::assign("k", Expr::var("k") + Expr::u32(1))],
        break_if: None,
    };
    let general = text(data(), 1, vec![begin, Node::var("k", DataType::U32, Expr::u32(0)), general, finish]);
    assert!(general.contains("for %"), "{general}");
    assert_eq!(guards(&general), 1, "{general}");
}

#[test]
fn masks_remainders_minima_and_local_ids_stay_in_their_arrays() {
    let n = Expr::u32(64);
    for index in [
        i() & Expr::u32(63),
        i() % n.clone(),
        i().min(Expr::u32(63)),
        Expr::local_id(0),
        Expr::local_id(0) >> Expr::u32(1),
        Expr::local_id(0) / Expr::u32(2) + Expr::u32(3),
    ] {
        let text = text(shared(), 64, vec![Node::store("s", index.clone(), Expr::load("s", index.clone()))]);
        assert_eq!(guards(&text), 0, "{index:?}\n{text}");
    }
    let outside = text(shared(), 65, vec![Node::store("s", Expr::local_id(0), Expr::f32(1.0))]);
    assert_eq!(guards(&outside), 1, "{outside}");
}

#[test]
fn a_tree_reduction_needs_no_guards() {
    let l = || Expr::local_id(0);
    let step = Node::if_then(
        l().lt(Expr::var("n")),
        vec![Node::store("s", l(), Expr::load("s", l()) + Expr::load("s", l() + Expr::var("n")))],
    );
    let reduce = Node::Loop {
        body: vec![Node::if_then(Expr::var("n").eq(Expr::u32(0)), vec![Node::Break]), step, Node::barrier()],
        continuing: vec![Node::assign("n", Expr::var("n") >> Expr::u32(1))],
        break_if: None,
    };
    let text = text(shared(), 64, vec![Node::var("n", DataType::U32, Expr::u32(32)), reduce]);
    assert_eq!(guards(&text), 0, "{text}");
}

#[test]
fn short_loops_are_unrolled_and_invariants_leave_loops() {
    let add = |index: Expr| Node::assign("x", Expr::var("x") + Expr::load("a", index));
    let around = |to: u32, node: Node| {
        let body = Node::for_range("k", Expr::u32(0), Expr::u32(to), vec![node]);
        let begin = Node::var("x", DataType::F32, Expr::f32(0.0));
        vec![begin, body, Node::store("a", i(), Expr::var("x"))]
    };
    let short = text(data(), 64, around(4, add(Expr::var("k"))));
    assert!(!short.contains("for %") && short.matches("load f32").count() == 4, "{short}");
    let long = text(data(), 64, around(400, add(i() * Expr::u32(3))));
    let before = long.split("for %").next().expect("text");
    assert!(before.contains("load f32"), "{long}");
}

#[test]
fn neighbours_in_workgroup_memory_differ_by_an_offset() {
    let l = || Expr::local_id(0);
    let sum = Expr::load("s", l()) + Expr::load("s", l() + Expr::u32(1)) + Expr::load("s", l() + Expr::u32(2));
    let text = text(shared(), 32, vec![Node::store("out", l(), sum)]);
    assert!(text.contains("*4 + 4]") && text.contains("*4 + 8]"), "{text}");
    assert_eq!(guards(&text), 0, "{text}");
}

#[test]
fn the_same_value_is_computed_once() {
    let square = Expr::load("a", i()) * Expr::load("a", i());
    let text = text(data(), 64, vec![Node::store("a", i(), square.clone() + square)]);
    assert_eq!(text.matches("load f32").count(), 1, "{text}");
    assert_eq!(text.matches("mul ").count(), 1, "{text}");
}

#[test]
fn divisions_by_constants_give_the_quotients() {
    let samples: Vec<u32> = (0..200u32)
        .map(|n| n.wrapping_mul(0x9e37_79b9))
        .chain([0, 1, 2, 6, 7, 8, 0x7fff_ffff, 0x8000_0000, 0x8000_0001, u32::MAX - 1, u32::MAX])
        .collect();
    let input: Vec<u8> = samples.iter().flat_map(|n| n.to_le_bytes()).collect();
    let divisors =
        [1u32, 2, 3, 5, 6, 7, 9, 10, 25, 64, 100, 641, 1 << 20, 0x7fff_ffff, 0x8000_0000, 0x8000_0001, u32::MAX];
    for divisor in divisors {
        for (signed, op) in
            [(false, BinaryOp::Div), (false, BinaryOp::Rem), (true, BinaryOp::Div), (true, BinaryOp::Rem)]
        {
            let (ty, constant) =
                if signed { (DataType::I32, Expr::i32(divisor as i32)) } else { (DataType::U32, Expr::u32(divisor)) };
            let program = Program::wrapped(
                vec![BufferDecl::read("in", 0, ty.clone()), BufferDecl::output("out", 1, ty)],
                [64, 1, 1],
                vec![Node::store("out", i(), Expr::binary(op, Expr::load("in", i()), constant))],
            );
            let valid = program.validate().expect("valid");
            let run = |passes| {
                let kernel = lower(&valid, &Options { passes, ..Options::default() }).expect("lowers");
                let mut buffers = [input.clone(), vec![0; input.len()]];
                let how = Interpret { grid: [4, 1, 1], subgroup_size: 32, budget: u64::MAX };
                interpret(&kernel, &mut buffers, &how).expect("runs");
                (buffers[1].clone(), kernel.to_string())
            };
            let (expected, _) = run(Passes::none());
            let (actual, kernel) = run(Passes::all());
            assert!(actual == expected, "{op:?} by {divisor} (signed: {signed})\n{kernel}");
            assert!(signed || !kernel.contains("= div ") && !kernel.contains("= rem "), "{kernel}");
        }
    }
}

#[test]
fn only_kernels_that_ask_for_global_ids_alone_may_be_resized() {
    let resizable =
        |index: Expr, size| text(data(), size, vec![Node::store("a", index, Expr::f32(1.0))]).contains("resizable");
    assert!(resizable(i(), 64));
    assert!(!resizable(Expr::local_id(0), 64));
    // Folded to zero here, but another size would show.
    assert!(!resizable(Expr::local_id(0), 1));
    assert!(!resizable(Expr::workgroup_id(0), 64));
}

#[test]
fn bit_casts_of_f16_stay_two() {
    let half = DataType::vector(DataType::F16, 2);
    let buffers = vec![BufferDecl::read("h", 0, half), BufferDecl::output("out", 1, DataType::I32)];
    // verify, which runs at the end of the passes, refuses a cast of f16 to i32.
    let kernel = text(buffers, 64, vec![Node::store("out", i(), Expr::load("h", i()).bit_cast(DataType::I32))]);
    assert!(kernel.contains("bits"), "{kernel}");
    let one = vec![BufferDecl::read("h", 0, DataType::F16), BufferDecl::output("out", 1, DataType::F32)];
    let pair =
        Expr::construct(DataType::vector(DataType::F16, 2), vec![Expr::load("h", i()), Expr::f16(half::f16::ZERO)]);
    text(one, 64, vec![Node::store("out", i(), pair.bit_cast(DataType::F32))]);
}
