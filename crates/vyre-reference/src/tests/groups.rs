//! Workgroups, barriers and subgroups.

use vyre_foundation::ir::{
    AtomicOp, BarrierScope, BufferDecl, Builtin, DataType, Expr, Function, Literal, Node, Param, Program, SubgroupOp,
};

use super::{bytes, execute, results, words};
use crate::RunOptions;
use crate::operation::{self, Contribution};
use crate::value::Value;

fn id() -> Expr {
    Expr::global_id(0)
}

fn local() -> Expr {
    Expr::local_id(0)
}

#[test]
fn tree_reduction() {
    let stride = || Expr::var("stride");
    let program = Program::wrapped(
        vec![
            BufferDecl::read("in", 0, DataType::U32),
            BufferDecl::output("out", 1, DataType::U32).with_count(2),
            BufferDecl::workgroup("shared", 0, DataType::U32).with_count(64),
        ],
        [64, 1, 1],
        vec![
            Node::store("shared", local(), Expr::load("in", id())),
            Node::barrier(),
            Node::var("stride", DataType::U32, 32u32),
            Node::Loop {
                body: vec![
                    Node::if_then(stride().eq(0u32), vec![Node::Break]),
                    Node::if_then(
                        local().lt(stride()),
                        vec![Node::store(
                            "shared",
                            local(),
                            Expr::load("shared", local()) + Expr::load("shared", local() + stride()),
                        )],
                    ),
                    Node::barrier(),
                ],
                continuing: vec![Node::assign("stride", stride() / 2u32)],
                break_if: None,
            },
            Node::if_then(
                local().eq(0u32),
                vec![Node::store("out", Expr::workgroup_id(0), Expr::load("shared", 0u32))],
            ),
        ],
    );
    let input: Vec<u32> = (0..100).collect();
    let options = RunOptions { grid: Some([2, 1, 1]), ..RunOptions::default() };
    let got = execute(&program, &[&bytes(&input)], &options).expect("runs");
    assert_eq!(words(&got[0]), [64 * 63 / 2, 100 * 99 / 2 - 64 * 63 / 2]);
}

/// Hillis and Steele's scan, whose step is a function with barriers in it.
#[test]
fn scan_with_barriers_in_a_function() {
    let step = Function {
        name: "step".into(),
        params: vec![Param { name: "by".into(), ty: DataType::U32 }],
        result: None,
        body: vec![
            Node::var("add", DataType::U32, 0u32),
            Node::if_then(
                local().ge(Expr::var("by")),
                vec![Node::assign("add", Expr::load("shared", local() - Expr::var("by")))],
            ),
            Node::barrier(),
            Node::store("shared", local(), Expr::load("shared", local()) + Expr::var("add")),
            Node::Barrier(BarrierScope::Workgroup),
        ],
    };
    let program = Program::wrapped(
        vec![
            BufferDecl::read_write("data", 0, DataType::U32),
            BufferDecl::workgroup("shared", 0, DataType::U32).with_count(16),
        ],
        [16, 1, 1],
        vec![
            Node::store("shared", local(), Expr::load("data", id())),
            Node::barrier(),
            Node::for_range(
                "i",
                0u32,
                4u32,
                vec![Node::Call { function: "step".into(), args: vec![Expr::u32(1) << Expr::var("i")], result: None }],
            ),
            Node::store("data", id(), Expr::load("shared", local())),
        ],
    )
    .with_functions(vec![step]);
    let input: Vec<u32> = (1..=32).collect();
    let scan = |values: &[u32]| -> Vec<u32> {
        values.iter().scan(0, |sum, value| Some(*sum + value).inspect(|next| *sum = *next)).collect()
    };
    let wanted = [scan(&input[..16]), scan(&input[16..])].concat();
    assert_eq!(words(&results(&program, &[&bytes(&input)])[0]), wanted);
}

#[test]
fn histogram_in_workgroup_memory() {
    let program = Program::wrapped(
        vec![
            BufferDecl::read("in", 0, DataType::U8),
            BufferDecl::output("out", 1, DataType::U32).with_count(4),
            BufferDecl::workgroup("bins", 0, DataType::U32).with_count(4),
        ],
        [8, 1, 1],
        vec![
            Node::if_then(
                id().lt(Expr::len("in")),
                vec![Node::atomic(AtomicOp::Add, "bins", Expr::load("in", id()) & 3u32, 1u32)],
            ),
            Node::barrier(),
            Node::if_then(
                local().lt(4u32),
                vec![Node::atomic(AtomicOp::Add, "out", local(), Expr::load("bins", local()))],
            ),
        ],
    );
    let input: Vec<u8> = (0..29u32).map(|i| (i * i) as u8).collect();
    let options = RunOptions { grid: Some([4, 1, 1]), ..RunOptions::default() };
    let got = execute(&program, &[&input], &options).expect("runs");
    // Squares are 0 or 1 modulo 4, by the parity of the root.
    assert_eq!(words(&got[0]), [15, 14, 0, 0]);
}

#[test]
fn ids_in_three_dimensions() {
    let b = Expr::Builtin;
    // Position in the whole grid of (2·2)×(1·3)×(2·1) invocations, with the local index beside it.
    let linear = id() + Expr::global_id(1) * 4u32 + Expr::global_id(2) * 12u32;
    let program = Program::wrapped(
        vec![BufferDecl::output("out", 0, DataType::U32).with_count(24)],
        [2, 3, 1],
        vec![
            Node::let_bind(
                "group",
                Expr::workgroup_id(0) + Expr::workgroup_id(1) * 10u32 + Expr::workgroup_id(2) * 100u32,
            ),
            Node::store("out", linear, Expr::var("group") * 10u32 + b(Builtin::LocalIndex)),
        ],
    );
    let options = RunOptions { grid: Some([2, 1, 2]), ..RunOptions::default() };
    let layer = |z: u32| [0, 1, 10, 11, 2, 3, 12, 13, 4, 5, 14, 15].map(|value| z * 1000 + value);
    assert_eq!(words(&execute(&program, &[], &options).expect("runs")[0]), [layer(0), layer(1)].concat());
}

/// Runs one subgroup operation in a workgroup of ten with subgroups of four: two whole ones and one of two.
fn subgroup(op: SubgroupOp, ty: DataType, value: Expr, argument: Option<Expr>) -> Vec<u32> {
    let program = Program::wrapped(
        vec![BufferDecl::output("out", 0, ty).with_count(10)],
        [10, 1, 1],
        vec![Node::store(
            "out",
            local(),
            Expr::Subgroup { op, value: Box::new(value), argument: argument.map(Box::new) },
        )],
    );
    let options = RunOptions { subgroup_size: 4, ..RunOptions::default() };
    words(&execute(&program, &[], &options).expect("runs")[0])
}

#[test]
fn subgroup_reductions_and_scans() {
    let run = |op| subgroup(op, DataType::U32, local() + 1u32, None);
    // Values are 1 2 3 4 | 5 6 7 8 | 9 10.
    assert_eq!(run(SubgroupOp::Add), [10, 10, 10, 10, 26, 26, 26, 26, 19, 19]);
    assert_eq!(run(SubgroupOp::Mul), [24, 24, 24, 24, 1680, 1680, 1680, 1680, 90, 90]);
    assert_eq!(run(SubgroupOp::Min), [1, 1, 1, 1, 5, 5, 5, 5, 9, 9]);
    assert_eq!(run(SubgroupOp::Max), [4, 4, 4, 4, 8, 8, 8, 8, 10, 10]);
    assert_eq!(run(SubgroupOp::And), [0, 0, 0, 0, 0, 0, 0, 0, 8, 8]);
    assert_eq!(run(SubgroupOp::Or), [7, 7, 7, 7, 15, 15, 15, 15, 11, 11]);
    assert_eq!(run(SubgroupOp::Xor), [4, 4, 4, 4, 12, 12, 12, 12, 3, 3]);
    assert_eq!(run(SubgroupOp::InclusiveAdd), [1, 3, 6, 10, 5, 11, 18, 26, 9, 19]);
    assert_eq!(run(SubgroupOp::ExclusiveAdd), [0, 1, 3, 6, 0, 5, 11, 18, 0, 9]);
    assert_eq!(run(SubgroupOp::InclusiveMul), [1, 2, 6, 24, 5, 30, 210, 1680, 9, 90]);
    assert_eq!(run(SubgroupOp::ExclusiveMul), [1, 1, 2, 6, 1, 5, 30, 210, 1, 9]);
    assert_eq!(run(SubgroupOp::BroadcastFirst), [1, 1, 1, 1, 5, 5, 5, 5, 9, 9]);
    // Floats are added from the lowest lane up: ((1e30 − 1e30) + 3) + 4 in the first subgroup.
    let far = Expr::select(local().eq(0u32), Expr::f32(1e30), Expr::f32(-1e30));
    let value = Expr::select(local().lt(2u32), far, (local() + 1u32).cast(DataType::F32));
    let sums = [7f32, 7.0, 7.0, 7.0, 26.0, 26.0, 26.0, 26.0, 19.0, 19.0].map(f32::to_bits);
    assert_eq!(subgroup(SubgroupOp::Add, DataType::F32, value, None), sums);
}

#[test]
fn subgroup_exchanges() {
    let run = |op, argument: Expr| subgroup(op, DataType::U32, local() + 1u32, Some(argument));
    let lane = || Expr::Builtin(Builtin::SubgroupLane);
    assert_eq!(run(SubgroupOp::Broadcast, Expr::u32(2)), [3, 3, 3, 3, 7, 7, 7, 7, 0, 0]);
    assert_eq!(run(SubgroupOp::Broadcast, Expr::u32(1)), [2, 2, 2, 2, 6, 6, 6, 6, 10, 10]);
    assert_eq!(run(SubgroupOp::Shuffle, Expr::u32(3) - lane()), [4, 3, 2, 1, 8, 7, 6, 5, 0, 0]);
    assert_eq!(run(SubgroupOp::ShuffleXor, Expr::u32(1)), [2, 1, 4, 3, 6, 5, 8, 7, 10, 9]);
    assert_eq!(run(SubgroupOp::ShuffleXor, Expr::u32(4)), [0; 10]);
    assert_eq!(run(SubgroupOp::ShuffleUp, Expr::u32(1)), [0, 1, 2, 3, 0, 5, 6, 7, 0, 9]);
    assert_eq!(run(SubgroupOp::ShuffleDown, Expr::u32(1)), [2, 3, 4, 0, 6, 7, 8, 0, 10, 0]);
    assert_eq!(run(SubgroupOp::ShuffleDown, Expr::u32(u32::MAX)), [0; 10]);
}

#[test]
fn subgroup_votes() {
    let vote = |op| subgroup(op, DataType::Bool, local().lt(6u32), None);
    assert_eq!(vote(SubgroupOp::All), [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(vote(SubgroupOp::Any), [1, 1, 1, 1, 1, 1, 1, 1, 0, 0]);
    let ballot = subgroup(SubgroupOp::Ballot, DataType::Vec4U32, local().lt(6u32), None);
    let masks: Vec<u32> = ballot.chunks(4).map(|words| words[0]).collect();
    assert_eq!(masks, [15, 15, 15, 15, 3, 3, 3, 3, 0, 0]);
    assert!(ballot.chunks(4).all(|words| words[1..] == [0, 0, 0]));
}

#[test]
fn lanes_that_have_ended_take_no_part() {
    let lanes = |values: &[(u32, u32)]| -> Vec<Contribution> {
        let lane = |&(lane, value)| Contribution { lane, value: Value::Scalar(Literal::U32(value)), argument: Some(1) };
        values.iter().map(lane).collect()
    };
    let run = |op| -> Vec<u32> {
        let results = operation::subgroup(op, &lanes(&[(1, 5), (2, 6), (70, 7)])).expect("fits");
        results.iter().map(|value| value.u32().expect("a u32")).collect()
    };
    assert_eq!(run(SubgroupOp::Add), [18, 18, 18]);
    assert_eq!(run(SubgroupOp::ExclusiveAdd), [0, 5, 11]);
    assert_eq!(run(SubgroupOp::BroadcastFirst), [5, 5, 5]);
    assert_eq!(run(SubgroupOp::Broadcast), [5, 5, 5]);
    assert_eq!(run(SubgroupOp::ShuffleUp), [0, 5, 0]);
    assert_eq!(run(SubgroupOp::ShuffleXor), [0, 0, 0]);
    let mut voters = lanes(&[(1, 0), (2, 0), (70, 0)]);
    voters.iter_mut().for_each(|voter| voter.value = Value::Scalar(Literal::Bool(true)));
    let ballot = operation::subgroup(SubgroupOp::Ballot, &voters).expect("fits");
    assert_eq!(ballot[0].lanes(), [6u32, 0, 64, 0].map(Literal::U32));
}

/// Subgroup operations inside each other, in conditions, and between barriers; every size of subgroup gives the sum.
#[test]
fn nested_subgroup_operations_for_every_size() {
    let reduce = |op, value: Expr| Expr::Subgroup { op, value: Box::new(value), argument: None };
    let program = Program::wrapped(
        vec![
            BufferDecl::output("out", 0, DataType::U32).with_count(48),
            BufferDecl::workgroup("sums", 0, DataType::U32).with_count(48),
        ],
        [48, 1, 1],
        vec![
            Node::let_bind("sum", reduce(SubgroupOp::Max, reduce(SubgroupOp::Add, local()))),
            Node::if_then(
                Expr::Builtin(Builtin::SubgroupLane).eq(0u32),
                vec![Node::store("sums", Expr::Builtin(Builtin::SubgroupId), Expr::var("sum"))],
            ),
            Node::barrier(),
            Node::var("total", DataType::U32, 0u32),
            Node::for_range(
                "i",
                0u32,
                Expr::Builtin(Builtin::NumSubgroups),
                vec![Node::assign("total", Expr::var("total") + Expr::load("sums", Expr::var("i")))],
            ),
            Node::store("out", local(), Expr::var("total")),
        ],
    );
    for subgroup_size in [1, 2, 3, 7, 16, 32, 47, 48, 64, 128] {
        let options = RunOptions { subgroup_size, ..RunOptions::default() };
        let got = execute(&program, &[], &options).expect("runs");
        assert_eq!(words(&got[0]), [48 * 47 / 2; 48], "subgroups of {subgroup_size}");
    }
}
