//! What lanes do with words that don't lie side by side, with the bits of words, and in loops that they go through side by side: every
//! path gives what the reference gives.

use crate::support::{agree, words};
use vyre_conform::Case;
use vyre_foundation::ir::{BufferDecl, Builtin, DataType, Expr, MathOp, Node, Program};
use vyre_wgsl::{ImportOptions, import};

#[test]
fn functions_of_bits() {
    let edges = [0, 1, 2, 3, 0x8000_0000, 0xffff_ffff, 0x7fff_ffff, 0x0001_0000, 0xffff_0000, 0xaaaa_aaaa, 0xf0f0_0001];
    let numbers = edges.into_iter().chain((0..21u32).map(|i| i.wrapping_mul(2_654_435_761)));
    let input: Vec<u8> = numbers.flat_map(u32::to_le_bytes).collect();
    for ty in [DataType::U32, DataType::I32] {
        for op in [
            MathOp::ReverseBits,
            MathOp::CountOneBits,
            MathOp::CountLeadingZeros,
            MathOp::CountTrailingZeros,
            MathOp::FirstLeadingBit,
            MathOp::FirstTrailingBit,
            MathOp::Sign,
        ] {
            if op == MathOp::Sign && ty == DataType::U32 {
                continue;
            }
            let value = Expr::math(op, vec![Expr::load("a", Expr::global_id(0))]);
            let program = Program::wrapped(
                vec![BufferDecl::read("a", 0, ty.clone()), BufferDecl::output("out", 1, ty.clone()).with_count(32)],
                [32, 1, 1],
                vec![Node::store("out", Expr::global_id(0), value)],
            );
            agree(&format!("{op:?} of {ty}"), &Case::new(program, vec![input.clone()]));
        }
    }
}

/// Vectors of halves, of several sizes, whole ones and at the edge of a block.
#[test]
fn halves_that_lie_apart() {
    for lanes in [1, 2, 4] {
        for count in [1u32, 5, 16, 37, 64, 200] {
            let ty = if lanes == 1 { DataType::F16 } else { DataType::vector(DataType::F16, lanes) };
            let i = || Expr::global_id(0);
            let sum = Expr::load("a", i()) + Expr::load("a", Expr::u32(count - 1) - i());
            let program = Program::wrapped(
                vec![
                    BufferDecl::read("a", 0, ty.clone()).with_count(count),
                    BufferDecl::output("out", 1, ty).with_count(count),
                ],
                [64, 1, 1],
                vec![Node::if_then(i().lt(count), vec![Node::store("out", i(), sum)])],
            );
            // Exponents in the middle, so that no sum is infinite.
            let halves = (0..count * lanes).flat_map(|i| (0x3000 | (i * 733 % 0x1000) as u16).to_le_bytes());
            let case = Case { grid: Some([count.div_ceil(64), 1, 1]), ..Case::new(program, vec![halves.collect()]) };
            agree(&format!("{count} times {lanes} halves"), &case);
        }
    }
}

/// Words, and pairs of them, stored wherever the input says and far apart, by all lanes and by some.
#[test]
fn stores_that_lie_apart() {
    let size = 64u32;
    for ty in [DataType::U32, DataType::U64] {
        for place in 0..3 {
            for some in [false, true] {
                let i = || Expr::global_id(0);
                let index = match place {
                    // Every place once, in another order.
                    0 => (i() * 29u32) % size,
                    1 => i() * 3u32,
                    _ => Expr::u32(3 * size - 1) - i() * 2u32,
                };
                let value = Expr::load("a", i()).cast(ty.clone()) * Expr::u32(3).cast(ty.clone());
                let store = Node::store("out", index, value);
                let body = if some {
                    vec![Node::if_then((Expr::load("a", i()) % 3u32).ne(1u32), vec![store])]
                } else {
                    vec![store]
                };
                let program = Program::wrapped(
                    vec![
                        BufferDecl::read("a", 0, DataType::U32),
                        BufferDecl::output("out", 1, ty.clone()).with_count(3 * size),
                    ],
                    [size, 1, 1],
                    body,
                );
                let case = Case { grid: Some([1, 1, 1]), ..Case::new(program, vec![words(size)]) };
                agree(&format!("{ty} at {place}, some {some}"), &case);
            }
        }
    }
}

/// Loops from the invocation's place, by the size of the workgroup or of the grid, with workgroup memory and without.
#[test]
fn loops_side_by_side() {
    let size = 64u32;
    for length in [0u32, 1, 15, 63, 64, 65, 200, 256, 300, 1000] {
        for shared in [false, true] {
            for whole_grid in [false, true] {
                let i = || Expr::var("i");
                let from = if whole_grid { Expr::global_id(0) } else { Expr::local_id(0) };
                let step = match whole_grid {
                    true => Expr::Builtin(Builtin::NumWorkgroups(0)) * size,
                    false => Expr::u32(size),
                };
                let round = vec![
                    Node::If { cond: i().lt(Expr::load("n", 0u32)), then: vec![], otherwise: vec![Node::Break] },
                    Node::assign("sum", Expr::var("sum") * 5u32 + Expr::load("a", i())),
                    Node::store("out", i() + size * 2, Expr::var("sum") ^ i()),
                ];
                let next = vec![Node::assign("i", i() + step)];
                let mut body = vec![
                    Node::var("sum", DataType::U32, Expr::u32(1)),
                    Node::var("i", DataType::U32, from),
                    Node::Loop { body: round, continuing: next, break_if: None },
                ];
                if shared {
                    body.push(Node::store("tile", Expr::local_id(0), Expr::var("sum")));
                    body.push(Node::barrier());
                    let other = Expr::load("tile", Expr::u32(size - 1) - Expr::local_id(0));
                    body.push(Node::assign("sum", Expr::var("sum") + other));
                }
                body.push(Node::store("out", Expr::global_id(0), Expr::var("sum")));
                let mut buffers = vec![
                    BufferDecl::read("a", 0, DataType::U32),
                    BufferDecl::read("n", 1, DataType::U32),
                    BufferDecl::output("out", 2, DataType::U32).with_count(1000 + 2 * size),
                ];
                if shared {
                    buffers.push(BufferDecl::workgroup("tile", 0, DataType::U32).with_count(size));
                }
                let program = Program::wrapped(buffers, [size, 1, 1], body);
                let inputs = vec![words(1000), length.to_le_bytes().to_vec()];
                // Without the whole grid in the step every workgroup writes the same places.
                let groups = if whole_grid { 2 } else { 1 };
                let case = Case { grid: Some([groups, 1, 1]), ..Case::new(program, inputs) };
                agree(&format!("{length} long, shared {shared}, whole grid {whole_grid}"), &case);
            }
        }
    }
}

/// Vectors of two and four words one after another, in buffers and in workgroup memory, whole blocks and at their edge, by all lanes
/// and by some.
#[test]
fn vectors_side_by_side() {
    for lanes in [2, 4] {
        for count in [1u32, 16, 37, 128, 200] {
            for some in [false, true] {
                let ty = DataType::vector(DataType::U32, lanes);
                let i = || Expr::global_id(0);
                let odd = (Expr::load("which", i()) % 3u32).ne(1u32);
                let store = Node::store("out", i(), Expr::load("tile", Expr::local_id(0)) + Expr::load("a", i()));
                let body = vec![
                    Node::if_then(
                        i().lt(count),
                        vec![Node::store("tile", Expr::local_id(0), Expr::load("a", Expr::u32(count - 1) - i()))],
                    ),
                    Node::barrier(),
                    Node::if_then(i().lt(count), vec![if some { Node::if_then(odd, vec![store]) } else { store }]),
                ];
                let program = Program::wrapped(
                    vec![
                        BufferDecl::read("a", 0, ty.clone()).with_count(count),
                        BufferDecl::read("which", 1, DataType::U32),
                        BufferDecl::output("out", 2, ty.clone()).with_count(count),
                        BufferDecl::workgroup("tile", 0, ty).with_count(64),
                    ],
                    [64, 1, 1],
                    body,
                );
                let inputs = vec![words(count * lanes), words(count)];
                let case = Case { grid: Some([count.div_ceil(64), 1, 1]), ..Case::new(program, inputs) };
                agree(&format!("{count} times {lanes} words, some {some}"), &case);
            }
        }
    }
}

/// Words and vectors of workgroup memory at computed places, which lie side by side in some rounds of a loop and not in others.
#[test]
fn places_that_turn_out_side_by_side() {
    let count = 128u32;
    for lanes in [1, 2, 4] {
        let ty = if lanes == 1 { DataType::U32 } else { DataType::vector(DataType::U32, lanes) };
        let lid = || Expr::local_id(0);
        let step = |times: u32| (Expr::u32(times) << Expr::var("s")) & Expr::u32(count - 1);
        let round = vec![
            Node::let_bind("x", Expr::load("tile", lid() ^ step(1))),
            Node::barrier(),
            Node::store("tile", lid() ^ step(3), Expr::var("x") + Expr::load("a", lid())),
            Node::barrier(),
        ];
        let program = Program::wrapped(
            vec![
                BufferDecl::read("a", 0, ty.clone()).with_count(count),
                BufferDecl::output("out", 1, ty.clone()).with_count(count),
                BufferDecl::workgroup("tile", 0, ty).with_count(count),
            ],
            [count, 1, 1],
            vec![
                Node::store("tile", lid(), Expr::load("a", lid())),
                Node::barrier(),
                // So many rounds that they are not written out.
                Node::for_range(
                    "r",
                    0u32,
                    300u32,
                    vec![Node::let_bind("s", Expr::var("r") % 9u32)].into_iter().chain(round).collect(),
                ),
                Node::store("out", lid(), Expr::load("tile", lid())),
            ],
        );
        let case = Case { grid: Some([1, 1, 1]), ..Case::new(program, vec![words(count * lanes)]) };
        agree(&format!("vectors of {lanes}"), &case);
    }
}

/// Sums of the products of bytes with and without sign, where both words differ from lane to lane and where one is the same.
#[test]
fn products_of_bytes() {
    let count = 200u32;
    for ty in [DataType::U32, DataType::I32] {
        for same in [false, true] {
            let signed = ty == DataType::I32;
            let byte = |word: &str, place: u32| match (signed, place) {
                (true, 3) => Expr::var(word) >> 24u32,
                (true, _) => (Expr::var(word) << (24 - 8 * place)) >> 24u32,
                (false, 0) => Expr::var(word) & 255u32,
                (false, 3) => Expr::var(word) >> 24u32,
                (false, _) => (Expr::var(word) >> (8 * place)) & 255u32,
            };
            let product = |place: u32| byte("x", place) * byte("y", place);
            let other = if same { Expr::var("k") } else { Expr::u32(count - 1) - Expr::global_id(0) };
            let sum = Expr::var("sum") + (product(0) + product(1) + product(2) + product(3));
            let program = Program::wrapped(
                vec![BufferDecl::read("a", 0, ty.clone()), BufferDecl::output("out", 1, ty.clone()).with_count(count)],
                [64, 1, 1],
                vec![
                    Node::if_then(Expr::global_id(0).ge(count), vec![Node::Return(None)]),
                    Node::var("sum", ty.clone(), Expr::u32(7).cast(ty.clone())),
                    Node::for_range(
                        "k",
                        0u32,
                        9u32,
                        vec![
                            Node::let_bind("x", Expr::load("a", Expr::global_id(0))),
                            Node::let_bind("y", Expr::load("a", other)),
                            Node::assign("sum", sum),
                        ],
                    ),
                    Node::store("out", Expr::global_id(0), Expr::var("sum")),
                ],
            );
            // Extreme bytes too: the products of the least two are the greatest.
            let mut input = words(count);
            input[..8].fill(0x80);
            input[8..16].fill(0xff);
            let case = Case { grid: Some([count.div_ceil(64), 1, 1]), ..Case::new(program, vec![input]) };
            agree(&format!("bytes of {ty}, one word the same {same}"), &case);
        }
    }
}

/// Words of workgroup memory that lie across what two vectors stored, as in a scan.
#[test]
fn words_across_vectors() {
    for (size, step) in [(64u32, 1u32), (64, 5), (64, 16), (128, 33), (48, 7)] {
        let lid = || Expr::local_id(0);
        let round = |step: u32| {
            vec![
                Node::var(format!("left{step}"), DataType::U32, Expr::u32(0)),
                Node::if_then(
                    lid().ge(step),
                    vec![Node::assign(format!("left{step}"), Expr::load("tile", lid() - step))],
                ),
                Node::barrier(),
                Node::store("tile", lid(), Expr::load("tile", lid()) + Expr::var(format!("left{step}"))),
                Node::barrier(),
            ]
        };
        let mut body = vec![Node::store("tile", lid(), Expr::load("a", Expr::global_id(0))), Node::barrier()];
        body.extend(round(step));
        body.extend(round(step + 2));
        body.push(Node::store("out", Expr::global_id(0), Expr::load("tile", lid())));
        let program = Program::wrapped(
            vec![
                BufferDecl::read("a", 0, DataType::U32),
                BufferDecl::output("out", 1, DataType::U32).with_count(2 * size),
                BufferDecl::workgroup("tile", 0, DataType::U32).with_count(size),
            ],
            [size, 1, 1],
            body,
        );
        let case = Case { grid: Some([2, 1, 1]), ..Case::new(program, vec![words(2 * size)]) };
        agree(&format!("{size} invocations, {step} apart"), &case);
    }
}

/// A neighbour in workgroup memory that the first invocations don't have, taken or left by a condition that says so, or another.
#[test]
fn words_before_the_first() {
    let lid = || Expr::local_id(0);
    for (size, step) in [(64u32, 1u32), (64, 3), (64, 7), (32, 8), (64, 15), (128, 16), (48, 5)] {
        for ty in [DataType::U32, DataType::F32] {
            let number = |value: u32| Expr::u32(value).cast(ty.clone());
            let near = || Expr::load("tile", lid() - step);
            let chosen = [
                Expr::select(lid().ge(step), near(), number(0)),
                Expr::select(lid().lt(step), number(0), near()),
                Expr::select(lid().lt(step), number(7), near()),
                Expr::select(lid().ge(step + 1), near(), number(0)),
                Expr::select(lid().ge(step - 1), near(), number(0)),
                Expr::select(lid().lt(step + 2), number(0), near() + number(1)),
                near() * number(3) + number(1),
            ];
            let mut body = vec![
                Node::store("tile", lid(), Expr::load("a", Expr::global_id(0)).cast(ty.clone())),
                Node::barrier(),
                Node::var("sum", ty.clone(), number(0)),
            ];
            for (at, chosen) in chosen.into_iter().enumerate() {
                let by = number(at as u32 * 2 + 1);
                body.push(Node::assign("sum", Expr::var("sum") * number(3) + chosen * by));
                body.extend([Node::barrier(), Node::store("tile", lid(), Expr::var("sum")), Node::barrier()]);
            }
            body.push(Node::store("out", Expr::global_id(0), Expr::load("tile", lid())));
            let program = Program::wrapped(
                vec![
                    BufferDecl::read("a", 0, DataType::U32),
                    BufferDecl::output("out", 1, ty.clone()).with_count(2 * size),
                    BufferDecl::workgroup("tile", 0, ty.clone()).with_count(size),
                ],
                [size, 1, 1],
                body,
            );
            let numbers = (0..2 * size).flat_map(|i| (i * 37 % 101).to_le_bytes()).collect();
            let case = Case { grid: Some([2, 1, 1]), ..Case::new(program, vec![numbers]) };
            agree(&format!("{size} invocations of {ty:?}, {step} apart"), &case);
        }
    }
}

/// Words that are a few words apart, in buffers that end with the last of them, by all lanes and at the edge of a block.
#[test]
fn words_a_few_apart() {
    for apart in 2..=8u32 {
        for (count, first) in [(16u32, 0u32), (64, 1), (128, apart - 1), (100, 0), (5, 1)] {
            let i = || Expr::global_id(0);
            let length = (count - 1) * apart + first + 1;
            let at = || i() * apart + first;
            let body = vec![Node::if_then(
                i().lt(count),
                vec![Node::store("out", at(), Expr::load("a", at()) * 3u32 + Expr::load("a", i() * apart))],
            )];
            let program = Program::wrapped(
                vec![
                    BufferDecl::read("a", 0, DataType::U32).with_count(length),
                    BufferDecl::read_write("out", 1, DataType::U32).with_count(length),
                ],
                [64, 1, 1],
                body,
            );
            let inputs = vec![words(length), words(length)];
            let case = Case { grid: Some([count.div_ceil(64), 1, 1]), ..Case::new(program, inputs) };
            agree(&format!("{count} words, each {apart} from {first} on"), &case);
        }
    }
}

/// Vectors of four that are as long as what is between them, or longer: the parts of a structure.
#[test]
fn vectors_of_four_apart() {
    let ty = || DataType::vector(DataType::U32, 4);
    for apart in 2..=5u32 {
        for (count, first) in [(16u32, 0u32), (64, 1), (128, apart - 1), (100, 0), (5, 1)] {
            let i = || Expr::global_id(0);
            let length = (count - 1) * apart + first + 1;
            let at = || i() * apart + first;
            let body = vec![Node::if_then(
                i().lt(count),
                vec![Node::store("out", at(), Expr::load("a", at()) + Expr::load("a", i() * apart))],
            )];
            let program = Program::wrapped(
                vec![
                    BufferDecl::read("a", 0, ty()).with_count(length),
                    BufferDecl::read_write("out", 1, ty()).with_count(length),
                ],
                [64, 1, 1],
                body,
            );
            let inputs = vec![words(4 * length), words(4 * length)];
            let case = Case { grid: Some([count.div_ceil(64), 1, 1]), ..Case::new(program, inputs) };
            agree(&format!("{count} vectors, each {apart} from {first} on"), &case);
        }
    }
}

/// Bytes divided by constants, for which a product may take the place of a division, and by others for which none can.
#[test]
fn whole_numbers_divided() {
    let tiny = f32::from_bits(5);
    let by = [255.0f32, 127.0, -3.0, 10.0, 0.1, 1023.0, 1e-20, 1e30, tiny, f32::MAX, 7.0, 1.0 / 3.0];
    for (most, shift) in [(255u32, 0u32), (255, 8), (1023, 22), (4095, 20)] {
        for by in by {
            let i = || Expr::global_id(0);
            let whole = (Expr::load("a", i()) >> shift) & most;
            let quotient = whole.cast(DataType::F32) / by;
            let mixed = Expr::select(
                Expr::load("a", i()).lt(1u32 << 31),
                (Expr::load("a", i()) & 7u32).cast(DataType::F32),
                Expr::f32(tiny),
            );
            let program = Program::wrapped(
                vec![
                    BufferDecl::read("a", 0, DataType::U32),
                    BufferDecl::output("out", 1, DataType::F32).with_count(2048),
                    BufferDecl::output("mixed", 2, DataType::F32).with_count(2048),
                ],
                [64, 1, 1],
                vec![Node::store("out", i(), quotient), Node::store("mixed", i(), mixed / by)],
            );
            let numbers = (0..2048u32).flat_map(|i| (i | i << 8 | i << 20).to_le_bytes());
            let case = Case { grid: Some([32, 1, 1]), ..Case::new(program, vec![numbers.collect()]) };
            agree(&format!("up to {most} by {by}"), &case);
        }
    }
}

/// Workgroups of several rows that each have a stretch of memory to themselves, as for many small matrices.
#[test]
fn a_matrix_for_each_workgroup() {
    for size in [[16u32, 16u32], [16, 4], [32, 2], [8, 8], [4, 3]] {
        let [x, y] = size;
        let (row, column) = (|| Expr::local_id(1), || Expr::local_id(0));
        let first = || Expr::workgroup_id(0) * (x * y);
        let body = vec![
            Node::var("sum", DataType::U32, Expr::u32(0)),
            Node::for_range(
                "k",
                0u32,
                y,
                vec![Node::assign(
                    "sum",
                    Expr::var("sum")
                        + Expr::load("a", first() + row() * x + Expr::var("k"))
                            * Expr::load("a", first() + Expr::var("k") * x + column()),
                )],
            ),
            Node::store("out", first() + row() * x + column(), Expr::var("sum")),
        ];
        for (groups, missing) in [(1u32, 0u32), (5, 0), (40, 7)] {
            let length = groups * x * y;
            let program = Program::wrapped(
                vec![
                    BufferDecl::read("a", 0, DataType::U32).with_count(length - missing),
                    BufferDecl::output("out", 1, DataType::U32).with_count(length),
                ],
                [x, y, 1],
                body.clone(),
            );
            let case = Case { grid: Some([groups, 1, 1]), ..Case::new(program, vec![words(length - missing)]) };
            agree(&format!("{groups} of {x} x {y}, {missing} missing"), &case);
        }
    }
}

/// Structures of some words side by side, of which all are read and written or only some, to the last word of the buffers; what is between
/// stays as it was.
#[test]
fn structures_of_a_few_words() {
    for apart in (2..=13u32).chain([16, 17]) {
        let sets: [Vec<u32>; 5] = [
            (0..apart).collect(),
            (0..apart - 1).collect(),
            (1..apart).rev().collect(),
            vec![0, apart - 1],
            (0..apart).step_by(2).collect(),
        ];
        for used in sets {
            let last = used.iter().max().expect("some word");
            for count in [16u32, 37, 64, 200] {
                let length = (count - 1) * apart + last + 1;
                let at = |word: u32| Expr::global_id(0) * apart + word;
                let mut body = vec![Node::if_then(at(*last).ge(Expr::len("a")), vec![Node::Return(None)])];
                let mut sum = Expr::u32(1);
                for &word in &used {
                    body.push(Node::let_bind(format!("w{word}"), Expr::load("a", at(word))));
                    sum = sum * 3u32 + Expr::var(format!("w{word}"));
                }
                body.push(Node::let_bind("sum", sum));
                for &word in &used {
                    // A load between two stores, of what nobody writes.
                    let other = Expr::load("by", Expr::u32(word));
                    body.push(Node::store(
                        "out",
                        at(word),
                        Expr::var("sum") * (word + 2) + Expr::var(format!("w{word}")) + other,
                    ));
                }
                let program = Program::wrapped(
                    vec![
                        BufferDecl::read("a", 0, DataType::U32),
                        BufferDecl::read("by", 1, DataType::U32),
                        BufferDecl::read_write("out", 2, DataType::U32),
                    ],
                    [64, 1, 1],
                    body,
                );
                let inputs = vec![words(length), words(20), words(length)];
                let case = Case { grid: Some([count.div_ceil(64), 1, 1]), ..Case::new(program, inputs) };
                agree(&format!("{count} structures of {apart} words, of which {used:?}"), &case);
            }
        }
    }
}

/// Words of structures that are changed in place, and vectors of three with a word between them.
#[test]
fn structures_in_place() {
    for count in [16u32, 37, 200] {
        let at = |word: u32| Expr::global_id(0) * 3u32 + word;
        let load = |word: u32| Node::let_bind(format!("w{word}"), Expr::load("data", at(word)));
        let turn = |word: u32| {
            let sum = Expr::var(format!("w{}", (word + 1) % 3)) * 5u32 + Expr::var(format!("w{word}"));
            Node::store("data", at(word), sum)
        };
        let mut body = vec![Node::if_then(Expr::global_id(0).ge(count), vec![Node::Return(None)])];
        body.extend((0..3).map(load));
        body.extend((0..3).map(turn));
        // Once more, of what was just written.
        body.push(Node::let_bind("x", Expr::load("data", at(1)) + Expr::load("data", at(0))));
        body.push(Node::store("data", at(0), Expr::var("x")));
        let program = Program::wrapped(vec![BufferDecl::read_write("data", 0, DataType::U32)], [64, 1, 1], body);
        let case = Case { grid: Some([count.div_ceil(64), 1, 1]), ..Case::new(program, vec![words(3 * count)]) };
        agree(&format!("{count} in place"), &case);
        let three = DataType::vector(DataType::F32, 3);
        let i = || Expr::global_id(0);
        let body = vec![
            Node::if_then(i().ge(count), vec![Node::Return(None)]),
            Node::store("out", i(), Expr::load("a", i()) + Expr::load("a", Expr::u32(count - 1) - i())),
        ];
        let program = Program::wrapped(
            vec![
                BufferDecl::read("a", 0, three.clone()).with_count(count),
                BufferDecl::read_write("out", 1, three).with_count(count),
            ],
            [64, 1, 1],
            body,
        );
        let numbers = |add: u32| (0..4 * count).flat_map(|i| (((i * 37 + add) % 101) as f32).to_le_bytes()).collect();
        let case = Case { grid: Some([count.div_ceil(64), 1, 1]), ..Case::new(program, vec![numbers(0), numbers(7)]) };
        agree(&format!("{count} vectors of three"), &case);
    }
}

/// Rows of different length in one array, as in a sparse matrix: some empty, some that end behind it or begin there.
#[test]
fn rows_of_different_length() {
    for (rows, longest, length) in
        [(16u32, 3u32, 40u32), (37, 11, 150), (64, 1, 64), (200, 19, 1600), (20, 9, 3), (16, 40, 500)]
    {
        for ty in [DataType::U32, DataType::I32] {
            for stops in [false, true] {
                let row = || Expr::global_id(0);
                let number = |value: u32| Expr::u32(value).cast(ty.clone());
                let at = || Expr::var("k");
                let mut round = vec![
                    Node::let_bind("value", Expr::load("values", at())),
                    Node::let_bind("next", Expr::load("values", at() + number(1))),
                    Node::let_bind("column", Expr::load("columns", at())),
                ];
                if stops {
                    let leaves = (Expr::var("value") % 7u32).eq(3u32);
                    round.push(Node::if_then(leaves, vec![Node::Break]));
                }
                let sum = Expr::var("sum") * 3u32 + Expr::var("value") * Expr::load("x", Expr::var("column") % 50u32);
                round.push(Node::assign("sum", sum + Expr::var("next")));
                let program = Program::wrapped(
                    vec![
                        BufferDecl::read("starts", 0, ty.clone()),
                        BufferDecl::read("ends", 1, ty.clone()),
                        BufferDecl::read("values", 2, DataType::U32),
                        BufferDecl::read("columns", 3, DataType::U32),
                        BufferDecl::read("x", 4, DataType::U32),
                        BufferDecl::output("out", 5, DataType::U32).with_count(rows),
                    ],
                    [64, 1, 1],
                    vec![
                        Node::if_then(row().ge(rows), vec![Node::Return(None)]),
                        Node::var("sum", DataType::U32, row()),
                        Node::for_range("k", Expr::load("starts", row()), Expr::load("ends", row()), round),
                        Node::store("out", row(), Expr::var("sum")),
                    ],
                );
                let start = |row: u32| row.wrapping_mul(2_654_435_761) % (length + 3);
                let end = |row: u32| start(row) + row.wrapping_mul(40_503) % (longest + 1);
                let bytes =
                    |of: &dyn Fn(u32) -> u32| (0..rows).flat_map(|row| of(row).to_le_bytes()).collect::<Vec<u8>>();
                let inputs = vec![bytes(&start), bytes(&end), words(length), words(length + 5), words(50)];
                let case = Case { grid: Some([rows.div_ceil(64), 1, 1]), ..Case::new(program, inputs) };
                agree(&format!("{rows} rows of {ty}, at most {longest} of {length}, stops {stops}"), &case);
            }
        }
    }
}

/// Vectors at places from a buffer, some of them out of bounds, by all lanes and by some.
#[test]
fn vectors_at_places_of_their_own() {
    for lanes in [2, 3, 4] {
        for some in [false, true] {
            let (count, there) = (200u32, 77u32);
            let ty = DataType::vector(DataType::U32, lanes);
            let i = || Expr::global_id(0);
            let place = Expr::load("places", i()) % (there + 9);
            let store = Node::store("out", i(), Expr::load("a", place));
            let odd = (Expr::load("places", i()) % 3u32).ne(1u32);
            let body = vec![
                Node::if_then(i().ge(count), vec![Node::Return(None)]),
                if some { Node::if_then(odd, vec![store]) } else { store },
            ];
            let program = Program::wrapped(
                vec![
                    BufferDecl::read("a", 0, ty.clone()),
                    BufferDecl::read("places", 1, DataType::U32),
                    BufferDecl::output("out", 2, ty).with_count(count),
                ],
                [64, 1, 1],
                body,
            );
            let words_of_one = if lanes == 3 { 4 } else { lanes };
            let inputs = vec![words(there * words_of_one), words(count)];
            let case = Case { grid: Some([count.div_ceil(64), 1, 1]), ..Case::new(program, inputs) };
            agree(&format!("vectors of {lanes}, some {some}"), &case);
        }
    }
}

/// Floats of every size as whole numbers without sign, and workgroups that are deep.
#[test]
fn whole_numbers_of_floats() {
    let edges =
        [0.0f32, -0.0, 0.99, -0.99, 1.5, -7.0, 2147483520.0, 2147483648.0, 2147483904.0, 4294967040.0, 4294967296.0];
    let more = [1e20, -1e20, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MIN_POSITIVE, 16777217.0, 3e9, 255.9];
    let floats: Vec<f32> =
        edges.into_iter().chain(more).chain((0..492).map(|i| i as f32 * 9_000_123.7 - 1e8)).collect();
    let i = || Expr::global_id(0) + (Expr::global_id(1) + Expr::global_id(2) * 8u32) * 8u32;
    for size in [[8, 4, 2], [4, 4, 4], [16, 1, 8], [8, 8, 1], [3, 2, 5]] {
        let inside = [0, 1, 2].into_iter().fold(Expr::bool(true), |all, axis| all & Expr::global_id(axis).lt(8u32));
        let local = Expr::local_id(2) * 100u32 + Expr::local_id(1) * 10u32 + Expr::workgroup_id(2);
        let body = vec![Node::if_then(
            inside,
            vec![Node::store("out", i(), Expr::load("a", i()).cast(DataType::U32)), Node::store("places", i(), local)],
        )];
        let program = Program::wrapped(
            vec![
                BufferDecl::read("a", 0, DataType::F32),
                BufferDecl::output("out", 1, DataType::U32).with_count(512),
                BufferDecl::output("places", 2, DataType::U32).with_count(512),
            ],
            size,
            body,
        );
        let input = floats.iter().flat_map(|float| float.to_le_bytes()).collect();
        let grid = size.map(|size| 8u32.div_ceil(size));
        agree(&format!("workgroups of {size:?}"), &Case { grid: Some(grid), ..Case::new(program, vec![input]) });
    }
}

/// Words of structures at places from a buffer, which are inside whatever the places, by all lanes and by some, and in a loop.
#[test]
fn structures_at_places_of_their_own() {
    let (count, there) = (200u32, 64u32);
    for (apart, used) in
        [(2u32, vec![0u32, 1]), (3, vec![0, 1, 2]), (4, vec![3, 2, 0]), (5, vec![4, 1, 2, 3]), (7, vec![6, 0, 5])]
    {
        for some in [false, true] {
            let i = || Expr::global_id(0);
            let mut round = Vec::new();
            for &word in &used {
                let at = Expr::var("place") * apart + word;
                round.push(Node::assign("sum", Expr::var("sum") * 3u32 + Expr::load("a", at)));
            }
            let odd = (Expr::var("place") % 3u32).ne(1u32);
            let round = if some { vec![Node::if_then(odd, round)] } else { round };
            let place = Node::let_bind("place", (Expr::load("places", i()) + Expr::var("k")) & (there - 1));
            let rounds = Node::for_range("k", 0u32, i() % 5u32, [vec![place], round].concat());
            let program = Program::wrapped(
                vec![
                    BufferDecl::read("a", 0, DataType::U32).with_count(there * apart),
                    BufferDecl::read("places", 1, DataType::U32).with_count(count),
                    BufferDecl::output("out", 2, DataType::U32).with_count(count),
                ],
                [64, 1, 1],
                vec![
                    Node::if_then(i().ge(count), vec![Node::Return(None)]),
                    Node::var("sum", DataType::U32, i()),
                    rounds,
                    Node::store("out", i(), Expr::var("sum")),
                ],
            );
            let inputs = vec![words(there * apart), words(count)];
            let case = Case { grid: Some([count.div_ceil(64), 1, 1]), ..Case::new(program, inputs) };
            agree(&format!("words {used:?} of {apart}, some {some}"), &case);
        }
    }
}

/// Arrays of constants of several lengths, at places that lanes compute, some of them outside; and arrays that look like that until
/// something else is written to them.
#[test]
fn arrays_of_constants() {
    for count in [3u32, 8, 13, 16, 29, 100] {
        for change in ["", "a[1] = x[i];", "if x[i] % 3 == 1 { a[2] = 5; }", "a[x[i] % 4] = 9;"] {
            let constants: String = (0..count)
                .filter(|place| place % 7 != 5)
                .map(|place| format!("a[{place}] = {};\n", place.wrapping_mul(2_654_435_761)))
                .collect();
            let text = format!(
                "type 0 = array<u32, {count}> stride 4;
                read x: u32[300] @0;
                output y: u32[300] @1;
                workgroup_size [64, 1, 1];
                entry main {{
                    var a: type<0>;
                    let i = global_id.x;
                    {constants}
                    if i >= 300 {{
                        return;
                    }}
                    var sum: u32 = a[x[i] % {outside}] + a[i % 3] * 5 + a[i / 64];
                    {change}
                    if x[i] % 5 != 2 {{
                        sum = sum * 3 + a[x[i] / 8 % {count}];
                    }}
                    for k in 0..x[i] % 4 {{
                        sum = sum * 3 + a[(x[i] + k) % {outside}] + a[k];
                    }}
                    y[i] = sum;
                }}",
                outside = count + 3,
            );
            let program = vyre_foundation::text::parse(&text).unwrap_or_else(|problems| panic!("{problems:?}\n{text}"));
            let case = Case { grid: Some([5, 1, 1]), ..Case::new(program, vec![words(300)]) };
            agree(&format!("{count} constants, then `{change}`"), &case);
        }
    }
}

/// Vectors at places that lanes compute, in buffers, in workgroup memory and in arrays of constants, by all lanes and by some.
#[test]
fn vectors_that_lie_apart() {
    for (width, stride) in [(2u32, 8u32), (3, 16), (4, 16)] {
        for some in ["if i < 256 ", "if x[i] % 3 == 1 "] {
            let parts = |first: u32| (0..width).map(|part| format!("{}", first + part)).collect::<Vec<_>>().join(", ");
            let constants: String =
                (0..9).map(|place| format!("a[{place}] = vec<u32, {width}>({});\n", parts(place * 10))).collect();
            let text = format!(
                "type 0 = array<vec<u32, {width}>, 9> stride {stride};
                read x: u32[256] @0;
                read v: vec<u32, {width}>[256] @1;
                output y: vec<u32, {width}>[256] @2;
                output z: vec<u32, {width}>[256] @3;
                workgroup shared: vec<u32, {width}>[64] @0;
                workgroup_size [64, 1, 1];
                entry main {{
                    var a: type<0>;
                    let i = global_id.x;
                    {constants}
                    let k = i * 29 % 64;
                    {some}{{
                        shared[k] = v[x[i] % 256] + a[x[i] / 256 % 11];
                    }}
                    barrier;
                    z[i] = shared[x[i] % 70];
                    {some}{{
                        y[i / 64 * 64 + k] = shared[63 - k] + v[i];
                    }}
                }}"
            );
            let program = vyre_foundation::text::parse(&text).unwrap_or_else(|problems| panic!("{problems:?}\n{text}"));
            let vectors = words(256 * stride / 4);
            let case = Case { grid: Some([4, 1, 1]), ..Case::new(program, vec![words(256), vectors]) };
            agree(&format!("vectors of {width}, {some}"), &case);
        }
    }
}

/// Each lane goes over a row of its own, from the first or the second word on, and writes one; some rows end behind the memory.
#[test]
fn rows_of_their_own() {
    for length in [16u32, 33, 64, 256] {
        for from in [0u32, 1] {
            for there in [70u32, 63] {
                let text = format!(
                    "read x: u32[{words}] @0;
                    output y: u32[{words}] @1;
                    output most: u32[70] @2;
                    workgroup_size [64, 1, 1];
                    entry main {{
                        let i = global_id.x;
                        if i >= 70 {{
                            return;
                        }}
                        var sum: u32 = x[i * {length}];
                        var at: u32 = 0;
                        for k in {from}..{length} {{
                            let word = x[i * {length} + k];
                            sum = sum * 3 + word;
                            y[i * {length} + k] = sum;
                            if word > x[i * {length} + at] {{
                                at = k;
                            }}
                        }}
                        most[i] = at;
                    }}",
                    words = there * length - 5,
                );
                let program =
                    vyre_foundation::text::parse(&text).unwrap_or_else(|problems| panic!("{problems:?}\n{text}"));
                let case = Case { grid: Some([2, 1, 1]), ..Case::new(program, vec![words(there * length - 5)]) };
                agree(&format!("{there} rows of {length} from {from} on"), &case);
            }
        }
    }
}

/// Words that lie a few words apart for neighbouring lanes, of which some lanes are out of bounds or don't take part.
#[test]
fn some_words_a_few_apart() {
    for apart in 2..=6u32 {
        for (count, workgroup) in [(3 * apart + 1, 64), (61 * apart + 1, 64), (512 * apart - 1, 256), (700, 512)] {
            let place = |add: u32| Expr::global_id(0) * Expr::u32(apart) + Expr::u32(add);
            let sum = Expr::load("a", place(1)) + Expr::load("a", place(0));
            let chosen = (Expr::load("a", Expr::global_id(0)) & Expr::u32(1024)).ne(0u32);
            let program = Program::wrapped(
                vec![
                    BufferDecl::read("a", 0, DataType::U32).with_count(count),
                    BufferDecl::read_write("out", 1, DataType::U32).with_count(count),
                    BufferDecl::workgroup("kept", 0, DataType::U32).with_count(workgroup),
                ],
                [workgroup, 1, 1],
                vec![
                    Node::store("kept", Expr::local_id(0), sum),
                    Node::barrier(),
                    Node::store("out", place(0), Expr::load("kept", Expr::u32(workgroup - 1) - Expr::local_id(0))),
                    Node::if_then(chosen, vec![Node::store("out", place(1), Expr::load("kept", Expr::local_id(0)))]),
                ],
            );
            let grid = Some([count.div_ceil(workgroup * apart) + 1, 1, 1]);
            let case = Case { grid, ..Case::new(program, vec![words(count), words(count)]) };
            agree(&format!("{count} words, {apart} apart, workgroups of {workgroup}"), &case);
        }
    }
}

/// A tree of sums up and down, as in a scan, in workgroups of several sizes; the last goes beyond its input.
#[test]
fn trees_up_and_down() {
    for size in [32u32, 128, 512] {
        let text = format!(
            "@group(0) @binding(0) var<storage, read> input: array<u32>;
            @group(0) @binding(1) var<storage, read_write> output: array<u32, {all}>;
            var<workgroup> tile: array<u32, {twice}>;
            @compute @workgroup_size({size})
            fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_id) lid: vec3u) {{
                let start = group.x * {twice}u;
                let t = lid.x;
                tile[2u * t] = input[start + 2u * t];
                tile[2u * t + 1u] = input[start + 2u * t + 1u];
                var offset = 1u;
                for (var d = {size}u; d > 0u; d >>= 1u) {{
                    workgroupBarrier();
                    if (t < d) {{
                        let i = offset * (2u * t + 1u) - 1u;
                        let j = offset * (2u * t + 2u) - 1u;
                        tile[j] += tile[i];
                    }}
                    offset *= 2u;
                }}
                if (t == 0u) {{ tile[{last}] = 0u; }}
                for (var d = 1u; d < {twice}u; d *= 2u) {{
                    offset >>= 1u;
                    workgroupBarrier();
                    if (t < d) {{
                        let i = offset * (2u * t + 1u) - 1u;
                        let j = offset * (2u * t + 2u) - 1u;
                        let held = tile[i];
                        tile[i] = tile[j];
                        tile[j] += held;
                    }}
                }}
                workgroupBarrier();
                output[start + 2u * t] = tile[2u * t];
                output[start + 2u * t + 1u] = tile[2u * t + 1u];
            }}",
            all = 6 * size,
            twice = 2 * size,
            last = 2 * size - 1,
        );
        let program = vyre_wgsl::import(&text, &vyre_wgsl::ImportOptions::default()).expect("a kernel");
        let count = 4 * size + size / 2 + 3;
        let case = Case { grid: Some([3, 1, 1]), ..Case::new(program, vec![words(count)]) };
        agree(&format!("a tree of {size}"), &case);
    }
}

/// The first reduction that everybody writes, and bytes that are taken out of words.
#[test]
fn remainders_of_steps_and_bytes_of_words() {
    let text = "@group(0) @binding(0) var<storage, read> input: array<u32>;
        @group(0) @binding(1) var<storage, read_write> output: array<u32, 384>;
        var<workgroup> sums: array<u32, 128>;
        fn byte(i: u32) -> u32 { return (input[i / 4u] >> (8u * (i % 4u))) & 255u; }
        fn half(i: u32) -> u32 { return (input[i / 2u] >> (16u * (i % 2u))) & 0xffffu; }
        @compute @workgroup_size(128)
        fn main(@builtin(global_invocation_id) id: vec3u, @builtin(local_invocation_id) lid: vec3u,
                @builtin(workgroup_id) group: vec3u) {
            sums[lid.x] = byte(id.x) + half(id.x + 3u) + byte(id.x * 3u + 1u);
            workgroupBarrier();
            for (var s = 1u; s < 128u; s *= 2u) {
                if (lid.x % (2u * s) == 0u) { sums[lid.x] += sums[lid.x + s]; }
                workgroupBarrier();
            }
            output[id.x] = sums[lid.x];
        }";
    let program = vyre_wgsl::import(text, &vyre_wgsl::ImportOptions::default()).expect("a kernel");
    for count in [5, 96, 383] {
        let case = Case { grid: Some([3, 1, 1]), ..Case::new(program.clone(), vec![words(count)]) };
        agree(&format!("{count} words"), &case);
    }
}

/// What invocations far apart in workgroup memory do to words close together, at known places: with gaps, in two memories, backwards, at
/// the end of a memory, of words that another one reads or changes, and of what is known of an invocation.
#[test]
fn branches_by_words() {
    let bodies = [
        ("gaps", "t < (128u >> k)", "let i = (2u * t + 1u) * step - 1u; let j = (2u * t + 2u) * step - 1u;
            a[j + j / 32u] += a[i + i / 32u];"),
        ("two memories", "t < (128u >> k)", "let i = 2u * t * step; let held = a[i]; let other = b[i + step];
            a[i] = min(b[i], other) + a[i + step]; b[i + step] = held * 3u; b[i] = select(other, held, (t & 1u) == 0u);"),
        ("backwards", "t < (128u >> k)", "let i = 255u - 2u * t * step; a[i] -= a[i - step] * 5u;"),
        ("remainders", "t % (2u * step) == 0u", "a[t + 160u % step] = a[t] ^ a[t + step]; b[t] += a[t + 1u];"),
        ("read by another", "t < (64u >> k)", "let i = 2u * t * step; b[i] = a[i + 2u * step] + a[i];"),
        ("known", "(t & 3u) == k % 4u", "a[t] = t * 7u + b[t ^ 1u]; b[t] = select(step, t, t > 100u) + a[t];"),
        ("at the end", "t < 6u", "let i = 69u - t * (k % 3u + 1u); c[i] = c[i] * 3u + t;"),
        ("one place", "t == 7u * k", "a[t + 3u] = a[t] + 9u; a[t] = a[t + 3u];"),
    ];
    for (what, cond, body) in bodies {
        for size in [96u32, 128, 256] {
            let text = format!(
                "@group(0) @binding(0) var<storage, read> input: array<u32>;
                @group(0) @binding(1) var<storage, read_write> output: array<u32, {all}>;
                var<workgroup> a: array<u32, 512>;
                var<workgroup> b: array<u32, 512>;
                var<workgroup> c: array<u32, 70>;
                @compute @workgroup_size({size})
                fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_id) lid: vec3u) {{
                    let t = lid.x;
                    for (var i = t; i < 512u; i += {size}u) {{ a[i] = input[i]; b[i] = input[i + 512u]; }}
                    if (t < 70u) {{ c[t] = input[t + 1024u]; }}
                    for (var k = 0u; k < 7u; k++) {{
                        let step = 1u << k;
                        workgroupBarrier();
                        if ({cond}) {{ {body} }}
                    }}
                    workgroupBarrier();
                    for (var i = t; i < 512u; i += {size}u) {{
                        output[group.x * 1094u + i] = a[i];
                        output[group.x * 1094u + 512u + i] = b[i];
                    }}
                    if (t < 70u) {{ output[group.x * 1094u + 1024u + t] = c[t]; }}
                }}",
                all = 2 * 1094,
            );
            let program = vyre_wgsl::import(&text, &vyre_wgsl::ImportOptions::default()).expect("a kernel");
            let case = Case { grid: Some([2, 1, 1]), ..Case::new(program, vec![words(1100)]) };
            agree(&format!("{what}, workgroups of {size}"), &case);
        }
    }
}

/// Halves two apart, three apart and anywhere, with and without a guard.
#[test]
fn halves_anywhere() {
    for place in ["2u * id.x + k", "3u * id.x + k", "(id.x * 37u) % 191u + 200u * k", "2u * (id.x ^ 5u) + k"] {
        for guard in ["true", "i < 333u"] {
            let text = format!(
                "enable f16;
                @group(0) @binding(0) var<storage, read> x: array<f16>;
                @group(0) @binding(1) var<storage, read_write> y: array<f16, 600>;
                @compute @workgroup_size(64)
                fn main(@builtin(global_invocation_id) id: vec3u) {{
                    for (var k = 0u; k < 2u; k++) {{
                        let i = {place};
                        if ({guard}) {{ y[i] = x[i + 1u] * 2.0h - 1.0h; }}
                    }}
                }}"
            );
            let program = vyre_wgsl::import(&text, &vyre_wgsl::ImportOptions::default()).expect("a kernel");
            let halves = (0..601u32).flat_map(|i| (0x3000 + (i * 977) as u16 % 0x1c00).to_le_bytes()).collect();
            let case = Case { grid: Some([3, 1, 1]), ..Case::new(program, vec![halves]) };
            agree(&format!("{place} if {guard}"), &case);
        }
    }
}

/// Few invocations of a workgroup go through a loop, and a tile has rows that are shorter than a vector.
#[test]
fn loops_of_few_and_short_rows() {
    let text = "@group(0) @binding(0) var<storage, read> input: array<u32>;
        @group(0) @binding(1) var<storage, read_write> output: array<u32, 1536>;
        var<workgroup> s: array<u32, 512>;
        var<workgroup> level: array<u32, 16>;
        var<workgroup> tile: array<array<u32, 20>, 20>;
        @compute @workgroup_size(256)
        fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) t: u32) {
            s[t] = input[t] >> 16u;
            s[t + 256u] = input[t + 256u * group.x] >> 16u;
            for (var i = t; i < 400u; i += 256u) { tile[i / 20u][i % 20u] = input[i + group.x]; }
            workgroupBarrier();
            if (t < 16u) {
                var sum = 0u;
                for (var i = 0u; i < 32u; i++) { sum += s[t * 32u + i]; s[t * 32u + i] = sum; }
                level[t] = sum;
            } else if (t > 200u && t < 230u) {
                var i = t;
                loop {
                    if (i > 390u) { break; }
                    tile[i / 20u][i % 20u] += 3u;
                    i += 30u;
                }
            }
            workgroupBarrier();
            if (t == 0u) {
                var sum = 0u;
                for (var i = 0u; i < 16u; i++) { let v = level[i]; level[i] = sum; sum += v; }
            }
            workgroupBarrier();
            var around = 0u;
            for (var i = t; i < 324u; i += 256u) {
                let y = i / 18u + 1u;
                let x = i % 18u + 1u;
                around += tile[y - 1u][x] + tile[y + 1u][x] + tile[y][x - 1u] * 3u + tile[y][x + 1u];
            }
            output[group.x * 512u + t] = s[t] + level[t / 32u] + around;
            output[group.x * 512u + t + 256u] = s[t + 256u] + level[8u + t / 32u];
        }";
    let program = vyre_wgsl::import(text, &vyre_wgsl::ImportOptions::default()).expect("a kernel");
    let case = Case { grid: Some([3, 1, 1]), ..Case::new(program, vec![words(900)]) };
    agree("a workgroup", &case);
}

/// What a loop carries and a condition leaves as it is: exchanged, by another name, asked for before and after, in conditions in conditions.
#[test]
fn carried_through_conditions() {
    let bodies = [
        "if (x < least) { second = least; least = x; place = k; }",
        "if (x < least) { let t = second; second = least; least = min(t, x); } else { place += k; }",
        "let was = bitcast<u32>(least); if (x < second) { second = least + x; least = x; } place ^= was >> 3u;",
        "let was = bitcast<u32>(least); if (x < least) { least = x - 0.25 * second; for (var j = 0u; j < (k & 3u); j++) { second += x; } } place += was & 15u;",
        "if (k % 3u == i % 3u) { } else { least = min(least, x); second = second * 0.5 + x; place += 1u; for (var j = 0u; j < x32 % 4u; j++) { place ^= j << k; } }",
        "if (x < second) { if (x < least) { for (var j = 0u; j < x32 % 5u; j++) { least = least - 0.125 * x; } second = x; } place = k; } out[i + 200u] = least;",
        "if (x < least) { for (var j = 0u; j < x32 % 3u; j++) { least = x; } } if (second < x) { for (var j = 0u; j < x32 % 3u; j++) { second = least; } } if (x32 % 2u == 0u) { least = second; place++; out[i + 400u] = x; }",
        "if (x < least) { for (var j = 0u; j < x32 % 3u; j++) { second -= x; } least = second; second = x; } if (x32 % 5u == 0u) { break; }",
    ];
    for body in bodies {
        let text = format!(
            "@group(0) @binding(0) var<storage, read> input: array<u32>;
            @group(0) @binding(1) var<storage, read_write> out: array<f32, 800>;
            @compute @workgroup_size(64)
            fn main(@builtin(global_invocation_id) id: vec3u) {{
                let i = id.x;
                var least = 1000.0;
                var second = 2000.0;
                var place = 7u;
                for (var k = 0u; k < 21u; k++) {{
                    let x32 = input[(i * 5u + k * 11u) % 301u] >> 8u;
                    let x = f32(x32 % 1024u) - 100.0;
                    {body}
                }}
                if (i < 150u) {{ out[i] = least + 2.0 * second + f32(place % 4096u); }}
            }}"
        );
        let program = vyre_wgsl::import(&text, &vyre_wgsl::ImportOptions::default()).expect("a kernel");
        agree(body, &Case { grid: Some([3, 1, 1]), ..Case::new(program, vec![words(301)]) });
    }
}

/// Unsigned numbers beside limits that are and are not known, and words turned by bytes.
#[test]
fn unsigned_limits_and_turned_words() {
    let edges = [0u32, 1, 2, 7, 8, 0x7fff_ffff, 0x8000_0000, 0x8000_0001, 0xffff_fffe, 0xffff_ffff];
    let input: Vec<u8> = edges
        .into_iter()
        .chain((0..54).map(|i: u32| i.wrapping_mul(2_654_435_761)))
        .flat_map(u32::to_le_bytes)
        .collect();
    let limits =
        ["0u", "1u", "8u", "0x7fffffffu", "0x80000000u", "0xfffffffeu", "0xffffffffu", "other", "one", "(other >> 1u)"];
    for limit in limits {
        let mut steps = String::new();
        for (at, op) in ["<", "<=", ">", ">=", "==", "!="].into_iter().enumerate() {
            steps += &format!(
                "if (x {op} {limit}) {{ r += {at}u + (other & 3u); }}
                 r += select(x & 31u, other & 63u, x {op} {limit}) << {at}u;
                 if (x {op} {limit} && !(other {op} {limit})) {{ for (var j = 0u; j < (other & 3u); j++) {{ r ^= x >> j; }} }}\n"
            );
        }
        let text = format!(
            "@group(0) @binding(0) var<storage, read> input: array<u32, 64>;
            @group(0) @binding(1) var<storage, read_write> out: array<u32, 64>;
            @compute @workgroup_size(64)
            fn main(@builtin(global_invocation_id) id: vec3u) {{
                let x = input[id.x];
                let one = input[3];
                let other = input[(id.x * 7u + 3u) % 64u];
                var r = 0u;
                {steps}
                for (var k = 0u; k < 4u; k++) {{
                    r ^= ((x << 8u) | (x >> 24u)) + ((r >> 16u) | (r << 16u));
                    r += ((other >> 8u) | (other << 24u)) ^ ((r << 7u) | (r >> 25u));
                }}
                out[id.x] = r;
            }}"
        );
        let program = vyre_wgsl::import(&text, &vyre_wgsl::ImportOptions::default()).expect("a kernel");
        agree(limit, &Case::new(program, vec![input.clone()]));
    }
}

/// Vectors of halves, two to a word, that lie side by side or apart, for all lanes or some.
#[test]
fn vectors_of_halves_are_moved_in_words() {
    for (ty, count, bytes) in [("vec2<f16>", 2, 4), ("vec3<f16>", 3, 8), ("vec4<f16>", 4, 8)] {
        for (index, limit) in [("i", "i < arrayLength(&a)"), ("i * 3u", "i % 3u != 1u"), ("300u - i", "a[i].x < 1.0h")]
        {
            let text = format!(
                "enable f16;
                @group(0) @binding(0) var<storage, read> a: array<{ty}>;
                @group(0) @binding(1) var<storage, read_write> b: array<{ty}, 400>;
                @compute @workgroup_size(64)
                fn main(@builtin(global_invocation_id) id: vec3u) {{
                    let i = id.x;
                    if ({limit}) {{
                        b[{index}] = clamp(a[i] * 1.5h + a[{index}], {ty}(-100.0h), max(a[i], {ty}(2.0h)));
                    }}
                }}"
            );
            let program = vyre_wgsl::import(&text, &vyre_wgsl::ImportOptions::default()).expect("a kernel");
            for length in [130u32, 256, 301] {
                // No NaNs: their bits are nobody's.
                let halves = (0..length * bytes / 2).map(|i| (i.wrapping_mul(40_503) & 0xbfff) as u16 & !0x0400);
                let data = halves.flat_map(u16::to_le_bytes).collect();
                let case = Case { grid: Some([5, 1, 1]), ..Case::new(program.clone(), vec![data]) };
                agree(&format!("{length} of {count} halves at {index} where {limit}"), &case);
            }
        }
    }
}

/// Loops of few rounds that lanes leave one by one, at the ends of buffers too.
#[test]
fn short_searches() {
    let hit = "var sum = 3u;
        for (var k = 0u; k < 6u; k++) {
            if (data[own.x + k] % 4u == sought[k] % 4u) { sum += 100u + k; break; }
            sum = sum * 3u + k;
        }
        result[own.x] += sum;";
    let inside = "var sum = 0u;
        for (var k = 0u; k < 7u; k++) {
            if (own.x + k >= arrayLength(&data)) { sum ^= 77u; break; }
            sum += data[own.x + k] & 255u;
        }
        result[own.x] += sum;";
    let before = "var last = 1u;
        for (var k = 1u; k < 8u; k += 2u) {
            let word = data[own.x + k];
            last = last * 5u + word % 7u;
            if (word % 3u == 0u) { last = word ^ k; break; }
        }
        result[own.x] += last;";
    let bytes = "var found = 0u;
        for (var b = 0u; b < 4u; b++) {
            let start = own.x * 4u + b;
            if (start + 3u <= arrayLength(&data) * 4u) {
                var same = true;
                for (var k = 0u; k < 3u; k++) {
                    let place = start + k;
                    if (((data[place >> 2u] >> ((place & 3u) * 8u)) & 3u) != (sought[k] & 3u)) { same = false; break; }
                }
                if (same) { found++; }
            }
        }
        result[own.x] += found;";
    let by_data = "var at = data[own.x] % 50u;
        for (var k = 0u; k < 5u; k++) {
            if (data[at + k] % 5u == 0u) { at += 1000u; break; }
        }
        result[own.x] += at;";
    let twice = "var at = 9u;
        for (var k = 0u; k < 5u; k++) {
            if (data[own.x + k] % 5u == 1u) { break; }
            if (data[own.x + k] % 5u == 2u) { at = k; break; }
        }
        result[own.x] += at;";
    let kinds = [
        ("hit", hit),
        ("inside", inside),
        ("before", before),
        ("bytes", bytes),
        ("by data", by_data),
        ("twice", twice),
    ];
    for (what, body) in kinds {
        let text = format!(
            "@group(0) @binding(0) var<storage, read> data: array<u32>;
             @group(0) @binding(1) var<storage, read> sought: array<u32, 6>;
             @group(0) @binding(2) var<storage, read_write> result: array<u32>;
             @compute @workgroup_size(64)
             fn main(@builtin(global_invocation_id) own: vec3u) {{
                 result[own.x] ^= sought[own.x % 6u];
                 {body}
             }}"
        );
        let program = import(&text, &ImportOptions::default()).expect("a kernel");
        for count in [1u32, 3, 8, 60, 64, 150, 300] {
            let inputs = vec![words(count), words(6), vec![0; 4 * 256]];
            let case = Case { grid: Some([4, 1, 1]), ..Case::new(program.clone(), inputs) };
            agree(&format!("{what} in {count} words"), &case);
        }
    }
}
