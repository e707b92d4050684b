//! Buffers: outside accesses, lengths, structs, vectors in memory.

use vyre_foundation::ir::{Access, BufferDecl, Count, DataType, Expr, Member, Node, Program, TypeDef, TypeId};

use super::Test;
use super::values::u32s;
use crate::generate::Case;

pub(super) fn add(tests: &mut Vec<Test>) {
    outside(tests);
    lengths(tests);
    bindings(tests);
    structs(tests);
    open_tail(tests);
    vector_parts(tests);
    uniform(tests);
}

/// Indices outside, of every integer type: loads give zero, stores are dropped.
fn outside(tests: &mut Vec<Test>) {
    let indices: [(&str, Vec<Expr>); 4] = [
        ("u32", [4, 5, 1000, 0x4000_0000, 0x8000_0000, u32::MAX].map(Expr::u32).to_vec()),
        ("i32", [-1, 4, i32::MIN, i32::MAX, -4].map(Expr::i32).to_vec()),
        ("u64", [4, 1 << 32, (1 << 32) + 1, 1 << 62, u64::MAX].map(Expr::u64).to_vec()),
        ("i64", [-1, 1 << 32, i64::MIN, i64::MAX, -(1 << 32)].map(Expr::i64).to_vec()),
    ];
    for (name, indices) in indices {
        for (ty, size) in [(DataType::U32, 4), (DataType::vector(DataType::U32, 3), 16), (DataType::U8, 1)] {
            let value = |n: u32| match ty.as_vector() {
                Some(_) => Expr::construct(ty.clone(), vec![Expr::u32(n)]),
                None => Expr::u32(n),
            };
            // An opaque zero keeps the indices from being folded away in one half of the test.
            for folded in [true, false] {
                let mut body = vec![Node::let_bind("zero", Expr::load("zeros", Expr::u32(0)))];
                for (i, index) in indices.iter().enumerate() {
                    let index = if folded {
                        index.clone()
                    } else {
                        index.clone() + Expr::var("zero").cast(type_of_index(name))
                    };
                    body.push(Node::store("data", &index, value(77)));
                    body.push(Node::store("out", Expr::u32(i as u32), Expr::load("data", index)));
                }
                // Inside, as a control.
                body.push(Node::store("data", Expr::u32(3) + Expr::var("zero"), value(9)));
                let count = indices.len() as u32;
                let program = Program::wrapped(
                    vec![
                        BufferDecl::read("zeros", 0, DataType::U32).with_count(1),
                        BufferDecl::read_write("data", 1, ty.clone()),
                        BufferDecl::output("out", 2, ty.clone()).with_count(count),
                    ],
                    [1, 1, 1],
                    body,
                );
                let mut data = vec![0u8; 4 * size];
                data[..size].fill(0xAB);
                if size == 16 {
                    data[12..16].fill(0);
                }
                let mut after = data.clone();
                let lanes = ty.as_vector().map_or(1, |(_, count)| count) as usize;
                for lane in 0..lanes {
                    after[3 * size + lane * 4] = 9;
                }
                let mut case = Case::new(program, vec![u32s([0]), data]);
                case.grid = Some([1; 3]);
                let kind = if folded { "constant" } else { "computed" };
                let test = Test::new(format!("outside/{kind}/{name}/{ty}"), case);
                tests.push(test.gives(vec![after, vec![0; indices.len() * size]]));
            }
        }
    }
    // A buffer without elements.
    let program = Program::wrapped(
        vec![
            BufferDecl::read("none", 0, DataType::U32),
            BufferDecl::read_write("nothing", 1, DataType::F32),
            BufferDecl::output("out", 2, DataType::U32).with_count(3),
        ],
        [4, 1, 1],
        vec![
            Node::store("nothing", Expr::global_id(0), Expr::f32(1.0)),
            Node::store(
                "out",
                Expr::global_id(0),
                Expr::load("none", Expr::global_id(0)) + Expr::len("none") + Expr::len("nothing") + Expr::u32(5),
            ),
        ],
    );
    let test = Test::new("outside/empty buffers", Case::new(program, vec![Vec::new(), Vec::new()]));
    tests.push(test.gives(vec![Vec::new(), u32s([5, 5, 5])]));
}

fn type_of_index(name: &str) -> DataType {
    match name {
        "i32" => DataType::I32,
        "u64" => DataType::U64,
        "i64" => DataType::I64,
        _ => DataType::U32,
    }
}

fn lengths(tests: &mut Vec<Test>) {
    let types = [
        (DataType::U32, 4u32),
        (DataType::U8, 1),
        (DataType::F16, 2),
        (DataType::vector(DataType::F32, 3), 16),
        (DataType::vector(DataType::U32, 2), 8),
        (DataType::Vec4U32, 16),
        (DataType::U64, 8),
    ];
    for (ty, size) in types {
        let program = Program::wrapped(
            vec![
                BufferDecl::read("open", 0, ty.clone()),
                BufferDecl::read("fixed", 1, ty.clone()).with_count(5),
                BufferDecl::output("out", 2, DataType::U32).with_count(2),
            ],
            [1, 1, 1],
            vec![
                Node::store("out", Expr::u32(0), Expr::len("open")),
                Node::store("out", Expr::u32(1), Expr::len("fixed")),
            ],
        );
        let mut case = Case::new(program, vec![vec![0; 13 * size as usize], vec![0; 5 * size as usize]]);
        case.grid = Some([1; 3]);
        tests.push(Test::new(format!("length/{ty}"), case).gives(vec![u32s([13, 5])]));
    }
}

/// Inputs and results are in binding order, whatever the order of declaration; groups come before bindings.
fn bindings(tests: &mut Vec<Test>) {
    let program = Program::wrapped(
        vec![
            BufferDecl::output("c", 7, DataType::U32).with_count(1),
            BufferDecl::read("b", 3, DataType::U32).with_count(1),
            BufferDecl::read_write("d", 0, DataType::U32).with_count(1).with_group(1),
            BufferDecl::uniform("a", 1, DataType::U32),
            BufferDecl::output("e", 2, DataType::U32).with_count(1),
        ],
        [1, 1, 1],
        vec![
            Node::store("c", Expr::u32(0), Expr::load("b", Expr::u32(0)) + Expr::u32(100)),
            Node::store("e", Expr::u32(0), Expr::load("a", Expr::u32(0)) + Expr::u32(200)),
            Node::store("d", Expr::u32(0), Expr::load("d", Expr::u32(0)) + Expr::u32(300)),
        ],
    );
    let case = Case::new(program, vec![u32s([1]), u32s([2]), u32s([3])]);
    tests.push(Test::new("bindings/order", case).gives(vec![u32s([201]), u32s([102]), u32s([303])]));
}

fn member(name: &str, ty: DataType, offset: u32) -> Member {
    Member { name: name.into(), ty, offset }
}

/// A struct with padding, a vector, a nested struct and an array.
fn types() -> Vec<TypeDef> {
    vec![
        TypeDef::Struct {
            name: "Inner".into(),
            members: vec![member("a", DataType::I32, 0), member("b", DataType::F32, 4)],
            size: 8,
            align: 4,
        },
        TypeDef::Array { element: DataType::U32, count: Count::Fixed(3), stride: 4 },
        TypeDef::Struct {
            name: "Outer".into(),
            members: vec![
                member("x", DataType::U32, 0),
                member("v", DataType::vector(DataType::F32, 3), 16),
                member("inner", DataType::Handle(TypeId(0)), 28),
                member("list", DataType::Handle(TypeId(1)), 36),
            ],
            size: 48,
            align: 16,
        },
    ]
}

fn structs(tests: &mut Vec<Test>) {
    let outer = DataType::Handle(TypeId(2));
    let load = |path: Vec<Access>| Expr::Load { buffer: "in".into(), index: Box::new(Expr::global_id(0)), path };
    let store =
        |path: Vec<Access>, value: Expr| Node::Store { buffer: "out".into(), index: Expr::global_id(0), path, value };
    let (x, v, inner, list) = (Access::Member(0), Access::Member(1), Access::Member(2), Access::Member(3));
    let buffers = |ty: &DataType| {
        vec![BufferDecl::read("in", 0, ty.clone()), BufferDecl::output("out", 1, ty.clone()).with_count(4)]
    };
    let mut input = Vec::new();
    for element in 0..4u32 {
        let mut words = [0u32; 12];
        words[0] = element + 1;
        for lane in 0..3 {
            words[4 + lane] = (lane as f32 + 0.5 * element as f32).to_bits();
        }
        words[7] = (-5i32 * element as i32) as u32;
        words[8] = (1.25f32 * element as f32).to_bits();
        words[9..12].copy_from_slice(&[element, element + 10, element + 20]);
        input.extend(u32s(words));
    }
    let copy = Program::wrapped(
        buffers(&outer),
        [4, 1, 1],
        vec![Node::store("out", Expr::global_id(0), Expr::load("in", Expr::global_id(0)))],
    )
    .with_types(types());
    tests.push(Test::new("struct/copy", Case::new(copy, vec![input.clone()])).gives(vec![input.clone()]));

    let third = Access::Index(Expr::global_id(0) % Expr::u32(4));
    let parts = Program::wrapped(
        buffers(&outer),
        [4, 1, 1],
        vec![
            Node::let_bind("whole", Expr::load("in", Expr::global_id(0))),
            store(vec![x.clone()], load(vec![x.clone()]) * Expr::u32(3)),
            // A component by a computed index; the last is outside and dropped.
            store(vec![v.clone(), third.clone()], load(vec![v.clone(), Access::Index(Expr::u32(1))])),
            store(
                vec![inner.clone(), Access::Member(0)],
                Expr::Part { value: Box::new(Expr::var("whole")), path: vec![inner.clone(), Access::Member(0)] }
                    - Expr::i32(1),
            ),
            store(vec![list.clone(), third.clone()], load(vec![list.clone(), third]) + Expr::u32(1)),
        ],
    )
    .with_types(types());
    let mut after = Vec::new();
    for element in 0..4u32 {
        let mut words = [0u32; 12];
        words[0] = (element + 1) * 3;
        if element < 3 {
            words[4 + element as usize] = (1.0 + 0.5 * element as f32).to_bits();
            words[9 + element as usize] = element + 10 * element + 1;
        }
        words[7] = (-5i32 * element as i32 - 1) as u32;
        after.extend(u32s(words));
    }
    tests.push(Test::new("struct/parts", Case::new(parts, vec![input.clone()])).gives(vec![after]));

    let local = Program::wrapped(
        vec![BufferDecl::read("in", 0, outer.clone()), BufferDecl::output("out", 1, DataType::F32).with_count(4)],
        [4, 1, 1],
        vec![
            Node::var("s", outer.clone(), Expr::load("in", Expr::global_id(0))),
            Node::Assign { name: "s".into(), path: vec![inner.clone(), Access::Member(1)], value: Expr::f32(0.25) },
            Node::Assign {
                name: "s".into(),
                path: vec![v.clone(), Access::Index(Expr::u32(2))],
                value: Expr::f32(4.0),
            },
            Node::let_bind("v", Expr::Part { value: Box::new(Expr::var("s")), path: vec![v] }),
            Node::store(
                "out",
                Expr::global_id(0),
                Expr::var("v").lane(0)
                    + Expr::var("v").lane(2)
                    + Expr::Part { value: Box::new(Expr::var("s")), path: vec![inner, Access::Member(1)] }
                    + Expr::Part { value: Box::new(Expr::var("s")), path: vec![list, Access::Index(Expr::u32(2))] }
                        .cast(DataType::F32),
            ),
        ],
    )
    .with_types(types());
    let sums = (0..4).map(|i| (4.25 + 0.5 * i as f32 + (i + 20) as f32).to_bits());
    tests.push(Test::new("struct/variable", Case::new(local, vec![input])).gives(vec![u32s(sums)]));
}

/// A struct whose last member is an array of open length.
fn open_tail(tests: &mut Vec<Test>) {
    let types = vec![
        TypeDef::Array { element: DataType::vector(DataType::U32, 2), count: Count::Runtime, stride: 8 },
        TypeDef::Struct {
            name: "List".into(),
            members: vec![member("scale", DataType::U32, 0), member("items", DataType::Handle(TypeId(0)), 8)],
            size: 8,
            align: 8,
        },
    ];
    let item = |index: Expr| Expr::Load {
        buffer: "list".into(),
        index: Box::new(Expr::u32(0)),
        path: vec![Access::Member(1), Access::Index(index)],
    };
    let scale = Expr::Load { buffer: "list".into(), index: Box::new(Expr::u32(0)), path: vec![Access::Member(0)] };
    let program = Program::wrapped(
        vec![
            BufferDecl::read("list", 0, DataType::Handle(TypeId(1))),
            BufferDecl::output("out", 1, DataType::U32).with_count(5),
        ],
        [8, 1, 1],
        vec![Node::store(
            "out",
            Expr::global_id(0),
            item(Expr::global_id(0)).lane(0) * scale
                + item(Expr::global_id(0)).lane(1)
                + Expr::len("list") * Expr::u32(1000),
        )],
    )
    .with_types(types);
    let input = u32s([10, 0, 1, 2, 3, 4, 5, 6]);
    let case = Case::new(program, vec![input]);
    tests.push(Test::new("struct/open tail", case).gives(vec![u32s([3012, 3034, 3056, 3000, 3000])]));
}

/// Components of vectors in buffers.
fn vector_parts(tests: &mut Vec<Test>) {
    for count in 2..=4u32 {
        let ty = DataType::vector(DataType::I32, count);
        let program = Program::wrapped(
            vec![BufferDecl::read_write("data", 0, ty.clone())],
            [4, 1, 1],
            vec![
                Node::let_bind("i", Expr::global_id(0)),
                Node::Store {
                    buffer: "data".into(),
                    index: Expr::var("i"),
                    path: vec![Access::Index(Expr::var("i"))],
                    value: Expr::Load {
                        buffer: "data".into(),
                        index: Box::new(Expr::var("i")),
                        path: vec![Access::Index(Expr::i32(1) - Expr::var("i").cast(DataType::I32))],
                    } - Expr::i32(100),
                },
            ],
        );
        let stride = if count == 3 { 4 } else { count };
        let words: Vec<u32> = (0..4 * stride).collect();
        let mut after = words.clone();
        for i in 0..4u32 {
            let loaded = if i < 2 { words[(i * stride + 1 - i) as usize] } else { 0 };
            if i < count {
                after[(i * stride + i) as usize] = loaded.wrapping_sub(100);
            }
        }
        let test = Test::new(format!("vector/memory/{ty}"), Case::new(program, vec![u32s(words)]));
        tests.push(test.gives(vec![u32s(after)]));
    }
}

fn uniform(tests: &mut Vec<Test>) {
    let program = Program::wrapped(
        vec![
            BufferDecl::uniform("params", 0, DataType::vector(DataType::F32, 4)).with_count(2),
            BufferDecl::output("out", 1, DataType::F32).with_count(8),
        ],
        [8, 1, 1],
        vec![Node::store(
            "out",
            Expr::global_id(0),
            Expr::Load {
                buffer: "params".into(),
                index: Box::new(Expr::global_id(0) / Expr::u32(4)),
                path: vec![Access::Index(Expr::global_id(0) % Expr::u32(4))],
            },
        )],
    );
    let words: Vec<u32> = (0..8).map(|i| (i as f32 * 1.5).to_bits()).collect();
    let case = Case::new(program, vec![u32s(words.clone())]);
    tests.push(Test::new("uniform/vectors", case).gives(vec![u32s(words)]));
}
