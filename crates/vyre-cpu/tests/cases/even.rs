//! Indices that differ evenly unless a block reaches an edge: clamped, wrapped around, taken apart into row and column. A block is tested for
//! it as a whole; whatever the edges are, every lane gets what the reference gives it.

use crate::support::{agree, words};
use vyre_conform::Case;
use vyre_foundation::ir::{BufferDecl, Builtin, DataType, Expr, MathOp, Node, Program};

fn var(name: &str) -> Expr {
    Expr::var(name)
}

fn min(a: impl Into<Expr>, b: impl Into<Expr>) -> Expr {
    Expr::math(MathOp::Min, vec![a.into(), b.into()])
}

fn max(a: impl Into<Expr>, b: impl Into<Expr>) -> Expr {
    Expr::math(MathOp::Max, vec![a.into(), b.into()])
}

/// `limits` at run time, so that nothing is known of them.
fn limit(at: u32) -> Expr {
    Expr::load("limits", at)
}

fn signed(value: Expr) -> Expr {
    value.cast(DataType::I32)
}

fn unsigned(value: Expr) -> Expr {
    value.cast(DataType::U32)
}

/// A kernel over `a`, which has so many words, with three limits.
fn case(size: [u32; 3], grid: [u32; 3], count: u32, limits: [u32; 3], body: Vec<Node>) -> Case {
    let out = size[0] * size[1] * grid[0] * grid[1];
    let program = Program::wrapped(
        vec![
            BufferDecl::read("a", 0, DataType::U32),
            BufferDecl::read("limits", 1, DataType::U32).with_count(3),
            BufferDecl::output("out", 2, DataType::U32).with_count(out),
        ],
        size,
        body,
    );
    let limits = limits.into_iter().flat_map(u32::to_le_bytes).collect();
    Case { grid: Some(grid), ..Case::new(program, vec![words(count), limits]) }
}

const SIZES: [[u32; 3]; 3] = [[64, 1, 1], [16, 4, 1], [8, 8, 1]];

const WIDTHS: [u32; 9] = [1, 5, 16, 31, 64, 100, 129, 200, 300];

/// Neighbours of a point, found in one way each, over a plane.
fn planes(what: &str, neighbour: impl Fn(Expr, Expr, i32) -> Expr) {
    for size in SIZES {
        for width in WIDTHS {
            let height = 6;
            let (x, y) = (|| Expr::global_id(0), || Expr::global_id(1));
            let sum = [-4, -1, 0, 1, 3].into_iter().fold(Expr::u32(7), |sum, by| {
                (sum * 5u32) ^ Expr::load("a", y() * limit(0) + neighbour(x(), limit(0), by))
            });
            let grid = [width.div_ceil(size[0]), 6u32.div_ceil(size[1]), 1];
            let inside = vec![Node::store("out", y() * (size[0] * grid[0]) + x(), sum)];
            let body = vec![Node::if_then(x().lt(limit(0)) & y().lt(limit(1)), inside)];
            // Also where the width is not what the buffer was made for.
            for limits in
                [[width, height, 0], [width, height - 2, 0], [0, height, 0], [u32::MAX, height, 0], [1 << 31, 3, 0]]
            {
                let name = format!("{what}, {width} wide, {limits:?} in {size:?}");
                agree(&name, &case(size, grid, width * height, limits, body.clone()));
            }
        }
    }
}

#[test]
fn neighbours_that_are_clamped() {
    planes("clamped with signs", |x, width, by| {
        let most = signed(width) - Expr::i32(1);
        unsigned(min(max(signed(x) + Expr::i32(by), Expr::i32(0)), most))
    });
    planes("clamped the other way round", |x, width, by| {
        let most = signed(width) - Expr::i32(1);
        unsigned(max(min(most, signed(x) + Expr::i32(by)), Expr::i32(0)))
    });
    planes("below an edge", |x, width, by| min(x + by.unsigned_abs(), width - 1u32));
    planes("above an edge", |x, _, by| max(x, by.unsigned_abs()) - by.unsigned_abs());
    planes("above an edge with signs", |x, _, by| unsigned(max(signed(x) - Expr::i32(by.abs()), Expr::i32(-2))));
    planes("clamped twice", |x, width, by| {
        let once = min(max(signed(x) + Expr::i32(by), Expr::i32(0)), signed(width.clone()) - Expr::i32(1));
        unsigned(min(max(once + Expr::i32(1), Expr::i32(3)), signed(width) - Expr::i32(2)))
    });
}

#[test]
fn neighbours_that_wrap_around() {
    planes("wrapped", |x, width, by| (x + width.clone() + Expr::i32(by).cast(DataType::U32)) % width);
    planes("wrapped with signs", |x, width, by| unsigned((signed(x) + Expr::i32(by)) % signed(width)));
    planes("wrapped by a power", |x, _, by| (x + Expr::i32(by).cast(DataType::U32)) & 63u32);
    planes("by a number", |x, _, by| (x + by.unsigned_abs()) % 100u32 + 1u32);
    planes("wrapped and clamped", |x, width, by| min((x + by.unsigned_abs()) % width.clone(), width - 2u32));
}

/// Steps of a divisor apart, which needs no test: bytes of words.
#[test]
fn parts_of_numbers_that_are_steps_apart() {
    planes("words", |x, _, by| (x * 4u32 + by.unsigned_abs()) >> 2u32);
    planes("words of larger steps", |x, _, by| (x * 12u32 + by.unsigned_abs()) / 6u32 + (x_of(by) & 7u32));
    planes("bytes", |x, width, by| {
        (x.clone() * 4u32 + Expr::i32(by).cast(DataType::U32)) % width + (x * 8u32 + x_of(by)) % 8u32
    });
    planes("with signs", |x, _, by| unsigned((signed(x.clone()) * Expr::i32(4) + Expr::i32(by)) >> 2u32) + x);
    planes("eights with signs", |x, _, by| unsigned(((signed(x) + Expr::i32(by)) >> 3u32) + Expr::i32(2)));
    planes("steps with signs", |x, _, by| unsigned((signed(x) * Expr::i32(4) + Expr::i32(by)) / Expr::i32(2)));
    planes("that wrap", |x, _, by| ((x * 4u32 + x_of(by)) >> 2u32) & 15u32);
}

fn x_of(by: i32) -> Expr {
    Expr::i32(by).cast(DataType::U32)
}

#[test]
fn rows_and_columns_of_one_number() {
    let i = || Expr::global_id(0);
    for width in WIDTHS {
        for (what, column, row) in [
            ("any", i() % limit(0), i() / limit(0)),
            ("with signs", unsigned(signed(i()) % signed(limit(0))), unsigned(signed(i()) / signed(limit(0)))),
            ("a power", i() & 31u32, i() >> 5u32),
            ("a number", i() % 48u32, i() / 48u32),
            ("before the first", (i() - 40u32) % limit(0), (i() - 40u32) / limit(0)),
        ] {
            let at = |x: Expr, y: Expr| Expr::load("a", y * limit(0) + x);
            let (x, y) = (|| var("x"), || var("y"));
            let right = min(x() + 1u32, limit(0) - 1u32);
            let sum = (at(x(), y() + 1u32) * 3u32) ^ (at(right, y()) + at(x(), y() - 1u32) * 7u32) ^ y();
            let body = vec![
                Node::if_then(i().ge(limit(1)), vec![Node::Return(None)]),
                Node::let_bind("x", column),
                Node::let_bind("y", row),
                Node::store("out", i(), sum + Expr::select(x().lt(limit(0) - 1u32), x(), 9u32)),
            ];
            let (count, groups) = (width * 9, (width * 9).div_ceil(64));
            for limits in [[width, count, 0], [width, count - 3, 0], [0, count, 0], [u32::MAX, count, 0]] {
                let name = format!("{what}, {width} wide, {limits:?}");
                agree(&name, &case([64, 1, 1], [groups, 1, 1], count, limits, body.clone()));
            }
        }
    }
}

#[test]
fn rounds_that_are_clamped_or_wrap() {
    let (x, y) = (|| Expr::global_id(0), || Expr::global_id(1));
    let k = || var("k");
    for width in WIDTHS {
        let grid = [width.div_ceil(64) + 1, 3, 1];
        for (what, place) in [
            ("clamped", unsigned(min(max(signed(x()) + k(), Expr::i32(0)), signed(limit(0)) - Expr::i32(1)))),
            ("wrapped", (x() + limit(0) + unsigned(k())) % limit(0)),
            ("by a power", (x() + unsigned(k())) & 127u32),
            ("taken away", unsigned(max(signed(x()) - k(), Expr::i32(0)))),
        ] {
            let body = vec![
                Node::var("sum", DataType::U32, 0u32),
                Node::for_range(
                    "k",
                    Expr::i32(0) - signed(limit(1)),
                    signed(limit(2)),
                    vec![Node::assign("sum", var("sum") * 3u32 + Expr::load("a", y() * limit(0) + place))],
                ),
                Node::store("out", y() * (64 * grid[0]) + x(), var("sum")),
            ];
            for [before, behind] in [[2, 3], [0, 1], [0, 0], [9, 20], [3, u32::MAX - 1]] {
                let name = format!("{what}, {width} wide, from {before} before to {behind} behind");
                agree(&name, &case([64, 1, 1], grid, width * 3, [width, before, behind], body.clone()));
            }
        }
    }
}

/// The same in workgroups that wait for each other, as one block and in pieces.
#[test]
fn tiles_that_reach_an_edge() {
    for size in [[64, 1, 1], [16, 16, 1], [8, 8, 1], [256, 1, 1], [32, 16, 1]] {
        let total = size[0] * size[1];
        for width in [20, 100, 300] {
            let grid = [3, 2, 1];
            let (x, y, local) = (|| Expr::global_id(0), || Expr::global_id(1), || Expr::Builtin(Builtin::LocalIndex));
            let clamped = |by: i32| {
                let most = signed(limit(0)) - Expr::i32(1);
                unsigned(min(max(signed(x()) + Expr::i32(by), Expr::i32(0)), most))
            };
            for (what, place) in [
                ("clamped", clamped(-3)),
                ("below", min(x() + 2u32, limit(0) - 1u32)),
                ("wrapped", (x() + limit(1)) % limit(0)),
                (
                    "in rounds",
                    unsigned(min(max(signed(x()) + signed(var("k")), Expr::i32(1)), signed(limit(0)) - Expr::i32(1))),
                ),
                ("a row of all", (local() + limit(1)) % limit(0)),
                ("wrapped by a power", (x() + 1023u32) & 511u32),
            ] {
                let program = Program::wrapped(
                    vec![
                        BufferDecl::read("a", 0, DataType::U32),
                        BufferDecl::read("limits", 1, DataType::U32).with_count(3),
                        BufferDecl::output("out", 2, DataType::U32).with_count(total * 6),
                        BufferDecl::workgroup("tile", 0, DataType::U32).with_count(total),
                    ],
                    size,
                    vec![
                        Node::var("sum", DataType::U32, 1u32),
                        Node::for_range(
                            "k",
                            0u32,
                            limit(2),
                            vec![
                                Node::store("tile", local(), Expr::load("a", y() * limit(0) + place) + var("k")),
                                Node::barrier(),
                                Node::assign(
                                    "sum",
                                    var("sum") * 3u32 + Expr::load("tile", Expr::u32(total - 1) - local()),
                                ),
                                Node::barrier(),
                            ],
                        ),
                        Node::store("out", y() * (size[0] * grid[0]) + x(), var("sum") + Expr::load("a", clamped(1))),
                    ],
                );
                for limits in
                    [[width, 5, 3], [width, width - 1, 1], [width, 2 * width + 1, 2], [0, 1, 2], [1 << 31, 1, 1]]
                {
                    let bytes = limits.into_iter().flat_map(u32::to_le_bytes).collect();
                    let case = Case::new(program.clone(), vec![words(width * size[1] * 2), bytes]);
                    agree(&format!("{what}, {limits:?} in {size:?}"), &Case { grid: Some(grid), ..case });
                }
            }
        }
    }
}

/// Loops that lanes leave one by one, and numbers that those which stay have in common.
#[test]
fn rounds_that_lanes_leave_one_by_one() {
    let i = || Expr::global_id(0);
    let (k, p) = (|| var("k"), || var("p"));
    let sum = |by: Expr| Node::assign("sum", var("sum") * 3u32 + by);
    let leave = |when: Expr| Node::if_then(when, vec![Node::Break]);
    for count in [1, 40, 64, 150] {
        let a = |at: Expr| Expr::load("a", at);
        let bodies = [
            // Up to the lane's own place, from a place of all lanes or of its own.
            ("to its own", vec![Node::for_range("k", 0u32, i() % 9u32, vec![sum(a(k()) + a(i() + k()))])]),
            ("from its own", vec![Node::for_range("k", i(), limit(0), vec![sum(a(k()) ^ k())])]),
            ("from behind", vec![Node::for_range("k", Expr::u32(70) - i(), limit(0), vec![sum(a(k()) ^ k())])]),
            (
                "by an exit",
                vec![Node::for_range("k", 0u32, limit(1), vec![leave((a(i() + k()) & 7u32).eq(3u32)), sum(a(k()))])],
            ),
            (
                "by a return",
                vec![
                    Node::store("out", i(), 5u32),
                    Node::for_range(
                        "k",
                        limit(2),
                        limit(1),
                        vec![Node::if_then((a(i() + k()) & 3u32).eq(3u32), vec![Node::Return(None)]), sum(a(k()))],
                    ),
                ],
            ),
            (
                "a number of all",
                vec![
                    Node::var("p", DataType::U32, 0u32),
                    Node::forever(vec![
                        leave(p().gt(i() % 11u32)),
                        sum(a(p()) + a(i() * 2u32 + p())),
                        Node::assign("p", p() + 1u32),
                    ]),
                    sum(p()),
                ],
            ),
            (
                "a number of its own, and rounds that are left out",
                vec![
                    Node::var("p", DataType::U32, i()),
                    Node::forever(vec![
                        leave(p().ge(limit(0) + 20u32)),
                        Node::assign("p", p() + 5u32),
                        Node::if_then((p() % 3u32).eq(1u32), vec![Node::Continue]),
                        sum(a(p() - 3u32)),
                    ]),
                    sum(p()),
                ],
            ),
            (
                "going down",
                vec![
                    Node::var("p", DataType::U32, i() * 2u32 + 3u32),
                    Node::forever(vec![sum(a(p())), leave(p().lt(4u32)), Node::assign("p", p() - 3u32)]),
                    sum(p()),
                ],
            ),
        ];
        for (what, mut body) in bodies {
            body.insert(0, Node::var("sum", DataType::U32, 1u32));
            body.push(Node::store("out", i(), var("sum")));
            for limits in [[count, 9, 0], [count / 2, 3, 1], [200, 0, 0], [count, 2, 5]] {
                let name = format!("{what}, {count} words, {limits:?}");
                agree(&name, &case([64, 1, 1], [2, 1, 1], count, limits, body.clone()));
            }
        }
    }
}
