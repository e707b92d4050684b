//! What invocations share: workgroup memory, barriers, atomics and subgroups.

use vyre_foundation::ir::{AtomicOp, BarrierScope, BufferDecl, Builtin, DataType, Expr, Node, Program, SubgroupOp};
use vyre_foundation::kernel::Scalar;

use super::Test;
use super::values::{pack, u32s};
use crate::generate::Case;

pub(super) fn add(tests: &mut Vec<Test>) {
    workgroup_memory(tests);
    tiles_of_rows(tests);
    reduction(tests);
    storage_barrier(tests);
    for scalar in [Scalar::U32, Scalar::I32, Scalar::U64, Scalar::I64] {
        atomic_values(tests, scalar);
        atomic_counts(tests, scalar);
    }
    atomic_rest(tests);
    subgroups(tests);
}

fn local_index() -> Expr {
    Expr::Builtin(Builtin::LocalIndex)
}

fn workgroup_memory(tests: &mut Vec<Test>) {
    for (size, groups) in [(64u32, 3u32), (7, 5), (256, 1), (33, 2)] {
        let total = size * groups;
        let reverse = Program::wrapped(
            vec![
                BufferDecl::workgroup("tile", 0, DataType::U32).with_count(size),
                BufferDecl::output("out", 0, DataType::U32).with_count(total),
            ],
            [size, 1, 1],
            vec![
                Node::store("tile", local_index(), Expr::global_id(0) * Expr::u32(3)),
                Node::barrier(),
                Node::store("out", Expr::global_id(0), Expr::load("tile", Expr::u32(size - 1) - local_index())),
            ],
        );
        let expected = (0..total).map(|i| (i / size * size + size - 1 - i % size) * 3);
        let test = Test::new(format!("workgroup/reverse/{size}x{groups}"), Case::new(reverse, Vec::new()));
        tests.push(test.gives(vec![u32s(expected)]));

        // Zero at the start of every workgroup, though the one before left something.
        let zeroed = Program::wrapped(
            vec![
                BufferDecl::workgroup("tile", 0, DataType::U32).with_count(size),
                BufferDecl::output("out", 0, DataType::U32).with_count(total),
            ],
            [size, 1, 1],
            vec![
                Node::let_bind("seen", Expr::load("tile", local_index())),
                Node::barrier(),
                Node::store("tile", local_index(), Expr::u32(0xFFFF_FFFF)),
                Node::store("out", Expr::global_id(0), Expr::var("seen") + Expr::u32(1)),
            ],
        );
        let test = Test::new(format!("workgroup/zero/{size}x{groups}"), Case::new(zeroed, Vec::new()));
        tests.push(test.gives(vec![u32s((0..total).map(|_| 1))]));
    }
    // Outside a workgroup buffer.
    let outside = Program::wrapped(
        vec![
            BufferDecl::workgroup("tile", 0, DataType::U32).with_count(4),
            BufferDecl::workgroup("beside", 0, DataType::U32).with_count(4),
            BufferDecl::output("out", 0, DataType::U32).with_count(8),
        ],
        [8, 1, 1],
        vec![
            Node::store("tile", local_index(), Expr::u32(5)),
            Node::barrier(),
            Node::store(
                "out",
                Expr::global_id(0),
                Expr::load("tile", local_index()) + Expr::load("beside", local_index()),
            ),
        ],
    );
    let test = Test::new("workgroup/outside", Case::new(outside, Vec::new()));
    tests.push(test.gives(vec![u32s([5, 5, 5, 5, 0, 0, 0, 0])]));
    // Other element types.
    for ty in [
        DataType::Bool,
        DataType::F32,
        DataType::I32,
        DataType::F16,
        DataType::U64,
        DataType::F64,
        DataType::vector(DataType::F32, 3),
        DataType::vector(DataType::U32, 4),
        DataType::U8,
        DataType::BF16,
    ] {
        let scalar = ty.as_vector().map_or(ty.clone(), |(element, _)| element);
        let computes = vyre_foundation::kernel::Element::of(&scalar).map_or(DataType::U32, |e| e.scalar().data_type());
        let value = (local_index() + Expr::u32(1)).cast(computes.clone());
        let value = if ty.as_vector().is_some() { Expr::construct(ty.clone(), vec![value]) } else { value };
        let back = Expr::load("tile", (local_index() + Expr::u32(1)) % Expr::u32(16));
        let back = if ty.as_vector().is_some() { back.lane(1) } else { back };
        let program = Program::wrapped(
            vec![
                BufferDecl::workgroup("tile", 0, ty.clone()).with_count(16),
                BufferDecl::output("out", 0, DataType::U32).with_count(16),
            ],
            [16, 1, 1],
            vec![
                Node::store("tile", local_index(), value),
                Node::barrier(),
                Node::store("out", Expr::global_id(0), back.cast(DataType::U32)),
            ],
        );
        let expected = (0..16).map(|i| if ty == DataType::Bool { 1 } else { (i + 1) % 16 + 1 });
        let test = Test::new(format!("workgroup/type/{ty}"), Case::new(program, Vec::new()));
        tests.push(test.gives(vec![u32s(expected)]));
    }
}

/// A tree of sums with barriers in a uniform loop.
/// Each invocation takes four neighbours of a row to a tile in every round. Rows begin at multiples of four or not, rounds go over their ends, and the last
/// ones over the end of the table.
fn tiles_of_rows(tests: &mut Vec<Test>) {
    let (lanes, rows) = (16u32, 3u32);
    let wide = lanes * 4;
    for (columns, missing) in [(64u32, 0u32), (68, 0), (66, 0), (65, 0), (68, 1), (68, 2), (128, 4), (4, 0), (7, 0)] {
        let (l, step, columns_given) = (local_index, || Expr::var("step"), || Expr::load("columns", Expr::u32(0)));
        let at = |i: u32| {
            Expr::workgroup_id(0) * columns_given() + step() * Expr::u32(wide) + l() * Expr::u32(4) + Expr::u32(i)
        };
        let mut round: Vec<Node> =
            (0..4).map(|i| Node::store("tile", l() * Expr::u32(4) + Expr::u32(i), Expr::load("data", at(i)))).collect();
        round.push(Node::barrier());
        let other = |i: u32| Expr::load("tile", Expr::u32(wide - 1 - i * lanes) - l());
        let sum = (0..4).fold(Expr::var("sum") * Expr::u32(5), |sum, i| sum * Expr::u32(3) + other(i));
        round.extend([Node::assign("sum", sum), Node::barrier()]);
        let rounds = columns_given() / Expr::u32(wide) + Expr::u32(2);
        let program = Program::wrapped(
            vec![
                BufferDecl::read("data", 0, DataType::U32),
                BufferDecl::output("out", 1, DataType::U32).with_count(rows * lanes),
                BufferDecl::uniform("columns", 2, DataType::U32).with_count(1),
                BufferDecl::workgroup("tile", 0, DataType::U32).with_count(wide),
            ],
            [lanes, 1, 1],
            vec![
                Node::var("sum", DataType::U32, Expr::u32(1)),
                Node::for_range("step", Expr::u32(0), rounds, round),
                Node::store("out", Expr::global_id(0), Expr::var("sum")),
            ],
        );
        let data = u32s((0..rows * columns - missing).map(|i| i.wrapping_mul(2_654_435_761)));
        let inputs = vec![data, u32s([columns].into_iter())];
        let mut case = Case::new(program, inputs);
        case.grid = Some([rows, 1, 1]);
        tests.push(Test::new(format!("workgroup/rows/{columns}less{missing}"), case));
    }
}

fn reduction(tests: &mut Vec<Test>) {
    let size = 64u32;
    let program = Program::wrapped(
        vec![
            BufferDecl::workgroup("tile", 0, DataType::U32).with_count(size),
            BufferDecl::read("in", 0, DataType::U32),
            BufferDecl::output("sums", 1, DataType::U32).with_count(4),
        ],
        [size, 1, 1],
        vec![
            Node::store("tile", local_index(), Expr::load("in", Expr::global_id(0))),
            Node::barrier(),
            Node::for_range(
                "level",
                Expr::u32(0),
                Expr::u32(6),
                vec![
                    Node::let_bind("half", Expr::u32(32) >> Expr::var("level")),
                    Node::if_then(
                        local_index().lt(Expr::var("half")),
                        vec![Node::store(
                            "tile",
                            local_index(),
                            Expr::load("tile", local_index()) + Expr::load("tile", local_index() + Expr::var("half")),
                        )],
                    ),
                    Node::barrier(),
                ],
            ),
            Node::if_then(
                local_index().eq(Expr::u32(0)),
                vec![Node::store("sums", Expr::workgroup_id(0), Expr::load("tile", Expr::u32(0)))],
            ),
        ],
    );
    let input: Vec<u32> = (0..200).map(|i| i * i).collect();
    let sums: Vec<u32> = input.chunks(64).map(|chunk| chunk.iter().sum()).collect();
    let mut case = Case::new(program, vec![u32s(input)]);
    case.grid = Some([4, 1, 1]);
    tests.push(Test::new("workgroup/reduction", case).gives(vec![u32s(sums)]));
}

/// A storage barrier orders buffers within a workgroup.
fn storage_barrier(tests: &mut Vec<Test>) {
    let program = Program::wrapped(
        vec![
            BufferDecl::read_write("data", 0, DataType::U32),
            BufferDecl::output("out", 1, DataType::U32).with_count(64),
        ],
        [32, 1, 1],
        vec![
            Node::store("data", Expr::global_id(0), Expr::global_id(0) + Expr::u32(1)),
            Node::Barrier(BarrierScope::Storage),
            Node::let_bind("next", (local_index() + Expr::u32(1)) % Expr::u32(32)),
            Node::store(
                "out",
                Expr::global_id(0),
                Expr::load("data", Expr::workgroup_id(0) * Expr::u32(32) + Expr::var("next")),
            ),
        ],
    );
    let after = u32s(1..=64);
    let out = u32s((0..64).map(|i| i / 32 * 32 + (i + 1) % 32 + 1));
    let test = Test::new("barrier/storage", Case::new(program, vec![vec![0; 256]]));
    tests.push(test.gives(vec![after, out]));
}

const OPERATIONS: [AtomicOp; 9] = [
    AtomicOp::Add,
    AtomicOp::Sub,
    AtomicOp::Min,
    AtomicOp::Max,
    AtomicOp::And,
    AtomicOp::Or,
    AtomicOp::Xor,
    AtomicOp::Exchange,
    AtomicOp::CompareExchange,
];

/// Old and new values of each operation, each invocation on an element of its own.
fn atomic_values(tests: &mut Vec<Test>, scalar: Scalar) {
    let ty = scalar.data_type();
    let top = 1u64 << (scalar.bits() - 1);
    let list = [0, 1, 5, top, top - 1, top + 1, u64::MAX >> (64 - scalar.bits())];
    let olds: Vec<u64> = list.iter().flat_map(|&a| std::iter::repeat_n(a, list.len())).collect();
    let news: Vec<u64> = list.iter().cycle().take(olds.len()).copied().collect();
    let signed = |word: u64| if scalar.bits() == 32 { i64::from(word as u32 as i32) } else { word as i64 };
    let mask = u64::MAX >> (64 - scalar.bits());
    for workgroup in [false, true] {
        for op in OPERATIONS {
            let count = olds.len() as u32;
            let target = if workgroup { "tile" } else { "data" };
            let index = if workgroup { local_index() } else { Expr::global_id(0) };
            let value = Expr::load("values", Expr::global_id(0));
            let compare = (op == AtomicOp::CompareExchange).then(|| Expr::u32(5).cast(ty.clone()));
            let mut body = Vec::new();
            if workgroup {
                body.push(Node::Atomic {
                    op: AtomicOp::Store,
                    buffer: "tile".into(),
                    index: local_index(),
                    path: Vec::new(),
                    value: Some(Expr::load("data", Expr::global_id(0))),
                    compare: None,
                    result: None,
                });
            }
            body.push(Node::Atomic {
                op,
                buffer: target.into(),
                index: index.clone(),
                path: Vec::new(),
                value: Some(value),
                compare,
                result: Some("old".into()),
            });
            body.push(Node::store("olds", Expr::global_id(0), Expr::var("old")));
            if workgroup {
                body.push(Node::Atomic {
                    op: AtomicOp::Load,
                    buffer: "tile".into(),
                    index,
                    path: Vec::new(),
                    value: None,
                    compare: None,
                    result: Some("new".into()),
                });
                body.push(Node::store("data", Expr::global_id(0), Expr::var("new")));
            }
            let program = Program::wrapped(
                vec![
                    BufferDecl::read_write("data", 0, ty.clone()).with_count(count),
                    BufferDecl::read("values", 1, ty.clone()).with_count(count),
                    BufferDecl::output("olds", 2, ty.clone()).with_count(count),
                    BufferDecl::workgroup("tile", 0, ty.clone()).with_count(64),
                ],
                [64, 1, 1],
                body,
            );
            let after = olds.iter().zip(&news).map(|(&a, &b)| match op {
                AtomicOp::Add => a.wrapping_add(b) & mask,
                AtomicOp::Sub => a.wrapping_sub(b) & mask,
                AtomicOp::Min if scalar.is_signed() => {
                    if signed(b) < signed(a) {
                        b
                    } else {
                        a
                    }
                }
                AtomicOp::Max if scalar.is_signed() => {
                    if signed(b) > signed(a) {
                        b
                    } else {
                        a
                    }
                }
                AtomicOp::Min => a.min(b),
                AtomicOp::Max => a.max(b),
                AtomicOp::And => a & b,
                AtomicOp::Or => a | b,
                AtomicOp::Xor => a ^ b,
                AtomicOp::Exchange => b,
                _ => {
                    if a == 5 {
                        b
                    } else {
                        a
                    }
                }
            });
            let after: Vec<u64> = after.collect();
            let place = if workgroup { "workgroup" } else { "buffer" };
            let case = Case::new(program, vec![pack(&ty, &olds), pack(&ty, &news)]);
            let test = Test::new(format!("atomic/{place}/{op:?}/{ty}"), case);
            tests.push(test.gives(vec![pack(&ty, &after), pack(&ty, &olds)]));
        }
    }
}

/// Many invocations on few elements.
fn atomic_counts(tests: &mut Vec<Test>, scalar: Scalar) {
    let ty = scalar.data_type();
    let id = || Expr::global_id(0);
    let program = Program::wrapped(
        vec![
            BufferDecl::read_write("data", 0, ty.clone()).with_count(7),
            BufferDecl::workgroup("tile", 0, ty.clone()).with_count(1),
            BufferDecl::output("sums", 1, ty.clone()).with_count(16),
        ],
        [64, 1, 1],
        vec![
            Node::atomic(AtomicOp::Add, "data", id() % Expr::u32(3), id().cast(ty.clone())),
            Node::atomic(AtomicOp::Max, "data", Expr::u32(3), id().cast(ty.clone())),
            Node::atomic(AtomicOp::Min, "data", Expr::u32(4), id().cast(ty.clone())),
            Node::atomic(AtomicOp::Xor, "data", Expr::u32(5), id().cast(ty.clone())),
            Node::atomic(AtomicOp::Or, "data", Expr::u32(6), id().cast(ty.clone())),
            // Outside: nothing happens.
            Node::atomic(AtomicOp::Add, "data", Expr::u32(7) + id(), id().cast(ty.clone())),
            Node::atomic(AtomicOp::Add, "tile", Expr::u32(0), id().cast(ty.clone())),
            Node::barrier(),
            Node::if_then(
                local_index().eq(Expr::u32(0)),
                vec![
                    Node::Atomic {
                        op: AtomicOp::Load,
                        buffer: "tile".into(),
                        index: Expr::u32(0),
                        path: Vec::new(),
                        value: None,
                        compare: None,
                        result: Some("sum".into()),
                    },
                    Node::store("sums", Expr::workgroup_id(0), Expr::var("sum")),
                ],
            ),
        ],
    );
    let total = 64 * 16u64;
    let mut after = [0u64; 7];
    after[4] = 100;
    let before = pack(&ty, &after);
    for i in 0..total {
        after[(i % 3) as usize] += i;
        after[3] = after[3].max(i);
        after[4] = after[4].min(i);
        after[5] ^= i;
        after[6] |= i;
    }
    let sums: Vec<u64> = (0..16).map(|group| (group * 64..group * 64 + 64).sum()).collect();
    let mut case = Case::new(program, vec![before]);
    case.grid = Some([16, 1, 1]);
    tests.push(Test::new(format!("atomic/many/{ty}"), case).gives(vec![pack(&ty, &after), pack(&ty, &sums)]));
}

fn atomic_rest(tests: &mut Vec<Test>) {
    // Tickets: every invocation gets its own number, so the marks are all set once.
    let program = Program::wrapped(
        vec![
            BufferDecl::read_write("next", 0, DataType::U32).with_count(1),
            BufferDecl::output("marks", 1, DataType::U32).with_count(320),
        ],
        [32, 1, 1],
        vec![
            Node::Atomic {
                op: AtomicOp::Add,
                buffer: "next".into(),
                index: Expr::u32(0),
                path: Vec::new(),
                value: Some(Expr::u32(1)),
                compare: None,
                result: Some("ticket".into()),
            },
            Node::atomic(AtomicOp::Add, "marks", Expr::var("ticket"), Expr::u32(1)),
        ],
    );
    let mut case = Case::new(program, vec![u32s([0])]);
    case.grid = Some([10, 1, 1]);
    tests.push(Test::new("atomic/tickets", case).gives(vec![u32s([320]), u32s((0..320).map(|_| 1))]));
    // Outside: the old value is zero.
    let program = Program::wrapped(
        vec![
            BufferDecl::read_write("data", 0, DataType::U32).with_count(2),
            BufferDecl::output("olds", 1, DataType::U32).with_count(4),
        ],
        [4, 1, 1],
        vec![
            Node::Atomic {
                op: AtomicOp::Exchange,
                buffer: "data".into(),
                index: Expr::global_id(0),
                path: Vec::new(),
                value: Some(Expr::u32(9)),
                compare: None,
                result: Some("old".into()),
            },
            Node::store("olds", Expr::global_id(0), Expr::var("old")),
        ],
    );
    let case = Case::new(program, vec![u32s([5, 6])]);
    tests.push(Test::new("atomic/outside", case).gives(vec![u32s([9, 9]), u32s([5, 6, 0, 0])]));
}

/// Tests that hold for every subgroup size.
fn subgroups(tests: &mut Vec<Test>) {
    let lane = || Expr::Builtin(Builtin::SubgroupLane);
    let call = |op: SubgroupOp, value: Expr, argument: Option<Expr>| Expr::Subgroup {
        op,
        value: Box::new(value),
        argument: argument.map(Box::new),
    };
    let id = || Expr::global_id(0);
    let mixed = || (id() * Expr::u32(2654435761)) >> Expr::u32(7);
    for size in [32u32, 64, 7, 96] {
        // Each is one where it holds.
        let checks: Vec<(&str, Expr)> = vec![
            (
                "scan",
                (call(SubgroupOp::InclusiveAdd, mixed(), None) - call(SubgroupOp::ExclusiveAdd, mixed(), None))
                    .eq(mixed()),
            ),
            ("own lane", call(SubgroupOp::Shuffle, mixed(), Some(lane())).eq(mixed())),
            (
                "first",
                call(SubgroupOp::Broadcast, mixed(), Some(Expr::u32(0))).eq(call(
                    SubgroupOp::BroadcastFirst,
                    mixed(),
                    None,
                )),
            ),
            ("bounds", lane().lt(Expr::Builtin(Builtin::SubgroupSize))),
            (
                "ordered",
                Expr::binary(
                    vyre_foundation::ir::BinaryOp::And,
                    call(SubgroupOp::Min, mixed(), None).le(mixed()),
                    call(SubgroupOp::Max, mixed(), None).ge(mixed()),
                ),
            ),
            (
                "ballot",
                (Expr::Part {
                    value: Box::new(call(SubgroupOp::Ballot, (mixed() % Expr::u32(3)).eq(Expr::u32(1)), None)),
                    path: vec![vyre_foundation::ir::Access::Index(lane() / Expr::u32(32))],
                } >> (lane() % Expr::u32(32))
                    & Expr::u32(1))
                .eq(Expr::select((mixed() % Expr::u32(3)).eq(Expr::u32(1)), Expr::u32(1), Expr::u32(0))),
            ),
            (
                "shift",
                Expr::select(
                    lane().eq(Expr::u32(0)),
                    call(SubgroupOp::ShuffleUp, mixed(), Some(Expr::u32(1))).eq(Expr::u32(0)),
                    call(SubgroupOp::ShuffleUp, lane(), Some(Expr::u32(1))).eq(lane() - Expr::u32(1)),
                ),
            ),
            ("all", call(SubgroupOp::All, lane().lt(Expr::u32(128)), None)),
            ("any", call(SubgroupOp::Any, lane().eq(Expr::u32(0)), None)),
        ];
        for (name, check) in checks {
            let program = Program::wrapped(
                vec![BufferDecl::output("out", 0, DataType::Bool).with_count(size * 2)],
                [size, 1, 1],
                vec![Node::let_bind("holds", check), Node::store("out", id(), Expr::var("holds"))],
            );
            let test = Test::new(format!("subgroup/{name}/{size}"), Case::new(program, Vec::new()));
            tests.push(test.gives(vec![u32s((0..size * 2).map(|_| 1))]));
        }
        // The sums of all subgroups make the sum of the workgroup, and one lane of each is the first.
        let program = Program::wrapped(
            vec![
                BufferDecl::workgroup("sum", 0, DataType::U32).with_count(2),
                BufferDecl::output("out", 0, DataType::U32).with_count(2),
            ],
            [size, 1, 1],
            vec![
                Node::let_bind("part", call(SubgroupOp::Add, local_index(), None)),
                Node::let_bind("lanes", call(SubgroupOp::Add, Expr::u32(1), None)),
                Node::if_then(
                    lane().eq(Expr::u32(0)),
                    vec![
                        Node::atomic(AtomicOp::Add, "sum", Expr::u32(0), Expr::var("part")),
                        Node::atomic(AtomicOp::Add, "sum", Expr::u32(1), Expr::var("lanes")),
                    ],
                ),
                Node::barrier(),
                Node::if_then(
                    local_index().lt(Expr::u32(2)),
                    vec![Node::store("out", local_index(), Expr::load("sum", local_index()))],
                ),
            ],
        );
        let mut case = Case::new(program, Vec::new());
        case.grid = Some([1; 3]);
        let test = Test::new(format!("subgroup/sum/{size}"), case);
        tests.push(test.gives(vec![u32s([(0..size).sum(), size])]));
    }
}
