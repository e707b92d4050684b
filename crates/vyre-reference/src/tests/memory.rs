//! Buffers: bounds, stored types, structs, lengths.

use vyre_foundation::ir::{
    Access, AtomicOp, BufferDecl, Count, DataType, Expr, Literal, Member, Node, Program, SpecConstant, TypeDef, TypeId,
};
use vyre_spec::codes;

use super::{bytes, execute, results, words};
use crate::RunOptions;

fn id() -> Expr {
    Expr::global_id(0)
}

fn handle(id: u32) -> DataType {
    DataType::Handle(TypeId(id))
}

fn load(buffer: &str, index: impl Into<Expr>, path: Vec<Access>) -> Expr {
    Expr::Load { buffer: buffer.into(), index: Box::new(index.into()), path }
}

fn store(buffer: &str, index: impl Into<Expr>, path: Vec<Access>, value: impl Into<Expr>) -> Node {
    Node::Store { buffer: buffer.into(), index: index.into(), path, value: value.into() }
}

fn at(index: impl Into<Expr>) -> Access {
    Access::Index(index.into())
}

fn member(name: &str, ty: DataType, offset: u32) -> Member {
    Member { name: name.into(), ty, offset }
}

#[test]
fn outside_reads_zero_and_writes_nothing() {
    let program = Program::wrapped(
        vec![
            BufferDecl::read("in", 0, DataType::U32),
            BufferDecl::output("out", 1, DataType::U32).with_count(5),
            BufferDecl::read_write("rw", 2, DataType::U32),
        ],
        [1, 1, 1],
        vec![
            Node::store("out", 0u32, Expr::load("in", 2u32) + 1u32),
            Node::store("out", 1u32, Expr::load("in", 1u32)),
            Node::store("out", 2u32, Expr::load("in", Expr::i32(-1)) + 2u32),
            Node::store("out", 3u32, Expr::load("in", Expr::u64(1 << 32)) + 3u32),
            Node::store("out", 4u32, Expr::load("in", Expr::i64(i64::MIN)) + 4u32),
            Node::store("out", 5u32, 99u32),
            Node::store("rw", Expr::i32(-1), 99u32),
            Node::store("rw", Expr::u64(1 << 32), 99u32),
            Node::store("rw", Expr::i64(1), 5u32),
        ],
    );
    let options = RunOptions { grid: Some([1, 1, 1]), ..RunOptions::default() };
    let got = execute(&program, &[&bytes(&[10, 20]), &bytes(&[1, 2])], &options).expect("runs");
    assert_eq!(words(&got[0]), [1, 20, 2, 3, 4]);
    assert_eq!(words(&got[1]), [1, 5]);
}

#[test]
fn inputs_and_results_go_by_binding_not_by_declaration() {
    let program = Program::wrapped(
        vec![
            BufferDecl::output("c", 3, DataType::U32).with_count(1),
            BufferDecl::read_write("b", 1, DataType::U32),
            BufferDecl::read("late", 0, DataType::U32).with_group(1),
            BufferDecl::uniform("a", 0, DataType::U32),
        ],
        [1, 1, 1],
        vec![
            Node::store("c", 0u32, Expr::load("a", 0u32) * 100u32 + Expr::load("late", 0u32)),
            Node::store("b", 0u32, Expr::load("b", 0u32) + 1u32),
        ],
    );
    let got = results(&program, &[&bytes(&[7]), &bytes(&[40]), &bytes(&[3])]);
    assert_eq!(got, [bytes(&[41]), bytes(&[703])]);
}

#[test]
fn four_bit_elements_share_bytes() {
    let program = Program::wrapped(
        vec![
            BufferDecl::read("in", 0, DataType::I4),
            BufferDecl::read_write("rw", 1, DataType::I4).with_count(3),
            BufferDecl::output("out", 2, DataType::I32).with_count(4),
            BufferDecl::output("len", 3, DataType::U32).with_count(2),
        ],
        [4, 1, 1],
        vec![
            Node::store("out", id(), Expr::load("in", id())),
            Node::store("rw", 1u32, Expr::i32(-2)),
            Node::store("rw", 3u32, Expr::i32(5)),
            Node::store("len", 0u32, Expr::len("in")),
            Node::store("len", 1u32, Expr::len("rw")),
        ],
    );
    let got = results(&program, &[&[0x8F, 0x71], &[0x33, 0x44]]);
    assert_eq!(got[0], [0xE3, 0x44]);
    assert_eq!(words(&got[1]), [-1, -8, 1, 7].map(|v: i32| v as u32));
    assert_eq!(words(&got[2]), [4, 3]);
}

#[test]
fn stored_types_convert_both_ways() {
    // Each copies three elements through the type they compute as, plus one or plus a half.
    for (ty, add, input, wanted) in [
        (DataType::U8, Expr::u32(1), vec![0, 127, 255], vec![1, 128, 0]),
        (DataType::I8, Expr::i32(1), vec![0xFF, 0x7F, 5], vec![0, 0x80, 6]),
        (DataType::U16, Expr::u32(1), vec![0xFF, 0xFF, 1, 0, 0xFF, 0], vec![0, 0, 2, 0, 0, 1]),
        (DataType::I16, Expr::i32(1), vec![0xFF, 0xFF, 0xFF, 0x7F, 0, 0], vec![0, 0, 0, 0x80, 1, 0]),
        // 1.0, 2.0, −1.0
        (DataType::BF16, Expr::f32(0.5), vec![0x80, 0x3F, 0, 0x40, 0x80, 0xBF], vec![0xC0, 0x3F, 0x20, 0x40, 0, 0xBF]),
        (DataType::F8E4M3, Expr::f32(0.5), vec![0x38, 0x40, 0x7E], vec![0x3C, 0x42, 0x7E]),
        (DataType::F8E5M2, Expr::f32(0.5), vec![0x3C, 0x40, 0x7B], vec![0x3E, 0x41, 0x7B]),
        (
            DataType::F16,
            Expr::f16(half::f16::from_f32(0.5)),
            vec![0, 0x3C, 0, 0x40, 0, 0],
            vec![0, 0x3E, 0, 0x41, 0, 0x38],
        ),
        // 1, −2 | 4, padding: plus a half 1.5, −1.5 | 4 (a tie).
        (DataType::FP4, Expr::f32(0.5), vec![0xC2, 0x06], vec![0xB3, 0x16]),
    ] {
        let program = Program::wrapped(
            vec![BufferDecl::read("in", 0, ty.clone()), BufferDecl::output("out", 1, ty.clone())],
            [4, 1, 1],
            vec![Node::store("out", id(), Expr::load("in", id()) + add)],
        );
        assert_eq!(results(&program, &[&input]), [wanted], "{ty}");
    }
}

#[test]
fn bools_are_words() {
    let program = Program::wrapped(
        vec![BufferDecl::read("in", 0, DataType::Bool), BufferDecl::output("out", 1, DataType::Bool)],
        [4, 1, 1],
        vec![Node::store("out", id(), Expr::load("in", id()))],
    );
    assert_eq!(results(&program, &[&bytes(&[0, 1, 2, 0x8000_0000])]), [bytes(&[0, 1, 1, 1])]);
}

#[test]
fn vectors_of_three_are_spaced_like_four() {
    let vec3 = DataType::vector(DataType::U32, 3);
    let program = Program::wrapped(
        vec![BufferDecl::read("in", 0, vec3.clone()), BufferDecl::read_write("out", 1, vec3)],
        [2, 1, 1],
        vec![
            Node::store("out", id(), Expr::load("in", id())),
            store("out", id(), vec![at(1u32)], load("in", id(), vec![at(2u32)]) * 10u32),
            store("out", id(), vec![at(3u32)], 77u32),
            store("out", id(), vec![at(0u32)], load("in", id(), vec![at(3u32)]) + 5u32),
        ],
    );
    let got = results(&program, &[&bytes(&[1, 2, 3, 4, 5, 6, 7, 8]), &bytes(&[9; 8])]);
    assert_eq!(words(&got[0]), [5, 30, 3, 9, 5, 70, 7, 9]);
}

/// `struct Particle { id: u32, pos: vec3<f32> at 16, tags: array<u32, 2> at 28 }`, and a struct with an open array of it.
fn particles() -> Vec<TypeDef> {
    vec![
        TypeDef::Array { element: DataType::U32, count: Count::Fixed(2), stride: 4 },
        TypeDef::Struct {
            name: "Particle".into(),
            members: vec![
                member("id", DataType::U32, 0),
                member("pos", DataType::vector(DataType::F32, 3), 16),
                member("tags", handle(0), 28),
            ],
            size: 48,
            align: 16,
        },
        TypeDef::Array { element: handle(1), count: Count::Runtime, stride: 48 },
        TypeDef::Struct {
            name: "World".into(),
            members: vec![member("count", DataType::U32, 0), member("all", handle(2), 16)],
            size: 16,
            align: 16,
        },
    ]
}

#[test]
fn structs_have_their_offsets() {
    let program = Program::wrapped(
        vec![BufferDecl::read_write("world", 0, handle(3)), BufferDecl::output("out", 1, DataType::U32).with_count(6)],
        [1, 1, 1],
        vec![
            Node::store("out", 0u32, Expr::len("world")),
            // A whole struct is read, changed, and written elsewhere; its padding stays behind.
            Node::var("p", handle(1), load("world", 0u32, vec![Access::Member(1), at(0u32)])),
            Node::Assign {
                name: "p".into(),
                path: vec![Access::Member(2), at(1u32)],
                value: Expr::Part { value: Box::new(Expr::var("p")), path: vec![Access::Member(0)] } + 1u32,
            },
            Node::Assign { name: "p".into(), path: vec![Access::Member(1), at(2u32)], value: Expr::f32(2.0) },
            Node::Assign { name: "p".into(), path: vec![Access::Member(2), at(2u32)], value: Expr::u32(99) },
            store("world", 0u32, vec![Access::Member(1), at(1u32)], Expr::var("p")),
            // Outside: a second world, a third particle, a third tag.
            Node::store("out", 1u32, load("world", 1u32, vec![Access::Member(0)]) + 1u32),
            Node::store("out", 2u32, load("world", 0u32, vec![Access::Member(1), at(2u32), Access::Member(0)]) + 2u32),
            Node::store(
                "out",
                3u32,
                load("world", 0u32, vec![Access::Member(1), at(0u32), Access::Member(2), at(2u32)]) + 3u32,
            ),
            Node::store(
                "out",
                4u32,
                Expr::Part { value: Box::new(Expr::var("p")), path: vec![Access::Member(2), at(Expr::i32(-1))] } + 4u32,
            ),
            Node::store("out", 5u32, load("world", 0u32, vec![Access::Member(0)])),
            store("world", 0u32, vec![Access::Member(1), at(2u32), Access::Member(0)], 99u32),
            store("world", 1u32, vec![Access::Member(0)], 99u32),
        ],
    )
    .with_types(particles());
    let mut world = vec![0xEEEE_EEEE; 4 + 24];
    world[0] = 2;
    let one = 1f32.to_bits();
    world[4..16].copy_from_slice(&[41, 0xA, 0xB, 0xC, one, one, one, 51, 52, 0xD, 0xE, 0xF]);
    let got = results(&program, &[&bytes(&world)]);
    world[16] = 41;
    world[20..25].copy_from_slice(&[one, one, 2f32.to_bits(), 51, 42]);
    assert_eq!(words(&got[0]), world);
    assert_eq!(words(&got[1]), [2, 1, 2, 3, 4, 2]);
}

#[test]
fn arrays_and_structs_are_values() {
    // A 3×3 matrix as an array of arrays, transposed in place in a variable.
    let types = vec![
        TypeDef::Array { element: DataType::U32, count: Count::Fixed(3), stride: 4 },
        TypeDef::Array { element: handle(0), count: Count::Fixed(3), stride: 16 },
    ];
    let cell = |row: &str, column: &str| Expr::Part {
        value: Box::new(Expr::var("m")),
        path: vec![at(Expr::var(row)), at(Expr::var(column))],
    };
    let set = |row: &str, column: &str, value: Expr| Node::Assign {
        name: "m".into(),
        path: vec![at(Expr::var(row)), at(Expr::var(column))],
        value,
    };
    let row = |a: u32| Expr::construct(handle(0), vec![Expr::u32(a), Expr::u32(a + 1), Expr::u32(a + 2)]);
    let program = Program::wrapped(
        vec![BufferDecl::output("out", 0, handle(1)).with_count(2)],
        [1, 1, 1],
        vec![
            Node::var("m", handle(1), Expr::construct(handle(1), vec![row(1), row(4), row(7)])),
            Node::let_bind("before", Expr::var("m")),
            Node::for_range(
                "i",
                0u32,
                3u32,
                vec![Node::for_range(
                    "j",
                    0u32,
                    Expr::var("i"),
                    vec![
                        Node::let_bind("t", cell("i", "j")),
                        set("i", "j", cell("j", "i")),
                        set("j", "i", Expr::var("t")),
                    ],
                )],
            ),
            Node::store("out", 0u32, Expr::var("m")),
            Node::store("out", 1u32, Expr::var("before")),
        ],
    )
    .with_types(types);
    let options = RunOptions { grid: Some([1, 1, 1]), ..RunOptions::default() };
    let got = execute(&program, &[], &options).expect("runs");
    // Neighbouring rows are 16 bytes apart.
    assert_eq!(words(&got[0]), [1, 4, 7, 0, 2, 5, 8, 0, 3, 6, 9, 0, 1, 2, 3, 0, 4, 5, 6, 0, 7, 8, 9, 0]);
}

#[test]
fn lengths_and_constants_follow_the_launch() {
    let program = Program::wrapped(
        vec![
            BufferDecl::read("in", 0, DataType::U16),
            BufferDecl::output("out", 1, DataType::U32).with_constant_count(Expr::constant("n") * Expr::u32(2)),
        ],
        [4, 1, 1],
        vec![
            Node::store("out", 0u32, Expr::len("in")),
            Node::store("out", 1u32, Expr::len("out")),
            Node::store("out", 2u32, Expr::constant("n")),
            Node::store("out", 3u32, Expr::Builtin(vyre_foundation::ir::Builtin::NumWorkgroups(0))),
        ],
    )
    .with_constants(vec![SpecConstant { name: "n".into(), default: Literal::U32(2) }]);
    assert_eq!(words(&results(&program, &[&[0; 6]])[0]), [3, 4, 2, 1]);
    let options = RunOptions {
        specialization: [("n".into(), Literal::U32(5))].into_iter().collect(),
        domain: Some([10, 1, 1]),
        ..RunOptions::default()
    };
    assert_eq!(words(&execute(&program, &[&[0; 6]], &options).expect("runs")[0])[..4], [3, 10, 5, 3]);
}

#[test]
fn atomics_give_the_old_value() {
    let ops: Vec<(AtomicOp, u32, u32)> = vec![
        (AtomicOp::Add, u32::MAX, 9),
        (AtomicOp::Sub, 11, u32::MAX),
        (AtomicOp::Min, 3, 3),
        (AtomicOp::Max, 30, 30),
        (AtomicOp::And, 6, 2),
        (AtomicOp::Or, 5, 15),
        (AtomicOp::Xor, 3, 9),
        (AtomicOp::Exchange, 77, 77),
        (AtomicOp::Store, 78, 78),
    ];
    let mut body = Vec::new();
    for (i, (op, value, _)) in ops.iter().enumerate() {
        let i = i as u32;
        body.push(Node::Atomic {
            op: *op,
            buffer: "rw".into(),
            index: i.into(),
            path: vec![],
            value: Some((*value).into()),
            compare: None,
            result: (*op != AtomicOp::Store).then(|| format!("old{i}").into()),
        });
        if *op != AtomicOp::Store {
            body.push(Node::store("old", i, Expr::var(format!("old{i}"))));
        }
    }
    let compare = |index: u32, compare: u32, name: &str| Node::Atomic {
        op: AtomicOp::CompareExchange,
        buffer: "rw".into(),
        index: index.into(),
        path: vec![],
        value: Some(55u32.into()),
        compare: Some(compare.into()),
        result: Some(name.into()),
    };
    let load = |index: u32, name: &str| Node::Atomic {
        op: AtomicOp::Load,
        buffer: "rw".into(),
        index: index.into(),
        path: vec![],
        value: None,
        compare: None,
        result: Some(name.into()),
    };
    body.extend([
        compare(9, 10, "hit"),
        compare(10, 11, "miss"),
        load(11, "read"),
        load(12, "outside"),
        Node::atomic(AtomicOp::Add, "rw", 12u32, 1u32),
        Node::store("old", 9u32, Expr::var("hit")),
        Node::store("old", 10u32, Expr::var("miss")),
        Node::store("old", 11u32, Expr::var("read") + Expr::var("outside")),
    ]);
    let program = Program::wrapped(
        vec![
            BufferDecl::read_write("rw", 0, DataType::U32).with_count(12),
            BufferDecl::output("old", 1, DataType::U32).with_count(12),
        ],
        [1, 1, 1],
        body,
    );
    let options = RunOptions { grid: Some([1, 1, 1]), ..RunOptions::default() };
    let got = execute(&program, &[&bytes(&[10; 12])], &options).expect("runs");
    let mut wanted: Vec<u32> = ops.iter().map(|(_, _, after)| *after).collect();
    wanted.extend([55, 10, 10]);
    assert_eq!(words(&got[0]), wanted);
    assert_eq!(words(&got[1]), [10, 10, 10, 10, 10, 10, 10, 10, 0, 10, 10, 10]);
}

#[test]
fn signed_and_wide_atomics() {
    let program = Program::wrapped(
        vec![
            BufferDecl::read_write("small", 0, DataType::I32).with_count(1),
            BufferDecl::read_write("wide", 1, DataType::U64).with_count(1),
        ],
        [1, 1, 1],
        vec![
            Node::atomic(AtomicOp::Min, "small", 0u32, Expr::i32(-5)),
            Node::atomic(AtomicOp::Max, "small", 0u32, Expr::i32(-7)),
            Node::atomic(AtomicOp::Add, "wide", 0u32, Expr::u64(1)),
        ],
    );
    let got = results(&program, &[&bytes(&[3]), &0xFFFF_FFFFu64.to_le_bytes()]);
    assert_eq!(got, [(-5i32).to_le_bytes().to_vec(), 0x1_0000_0000u64.to_le_bytes().to_vec()]);
}

#[test]
fn descriptors_are_refused() {
    let program = Program::wrapped(vec![BufferDecl::read("t", 0, DataType::Bytes)], [1, 1, 1], vec![]);
    let refused =
        crate::interpret(&program, &[&[0; 4]], &RunOptions { grid: Some([1, 1, 1]), ..RunOptions::default() })
            .expect_err("refused");
    assert_eq!(refused.code, &codes::reference::TYPE);
}

#[test]
fn a_buffer_may_be_only_an_open_array() {
    let types = vec![
        TypeDef::Array { element: DataType::U32, count: Count::Runtime, stride: 4 },
        TypeDef::Struct { name: "Tail".into(), members: vec![member("all", handle(0), 0)], size: 0, align: 4 },
    ];
    let whole = |index: Expr| vec![Access::Member(0), at(index)];
    let program = Program::wrapped(
        vec![BufferDecl::read_write("data", 0, handle(1))],
        [4, 1, 1],
        vec![store("data", 0u32, whole(id()), load("data", 0u32, whole(id())) * Expr::len("data"))],
    )
    .with_types(types);
    let options = RunOptions { grid: Some([2, 1, 1]), ..RunOptions::default() };
    let got = crate::interpret(&program, &[&bytes(&[1, 2, 3, 4, 5])], &options).expect("runs");
    assert_eq!(words(&got[0]), [5, 10, 15, 20, 25]);
    let copy = program.with_body(vec![Node::let_bind("all", load("data", 0u32, vec![]))]);
    let refused = crate::interpret(&copy, &[&bytes(&[1])], &options).expect_err("refused");
    assert_eq!(refused.code, &codes::reference::INCONSISTENT);
}
