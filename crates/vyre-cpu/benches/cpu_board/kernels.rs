//! The board's kernels as programs.

use vyre_foundation::ir::{AtomicOp, BufferDecl, DataType, Expr, Node, Program};

use crate::{Work, peers};

fn values(count: usize, scale: f32, shift: f32) -> Vec<f32> {
    let mut state = 0x2545_f491u32;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / 16_777_216.0 * scale + shift
        })
        .collect()
}

fn var(name: &str) -> Expr {
    Expr::var(name)
}

/// Every work of the board.
pub(crate) fn works() -> Vec<Work> {
    vec![map("map", 1 << 23), logistic(), sigmoid(), reduction(), stencil(), mandelbrot(), matmul(), histogram()]
}

/// `a·b + 1`.
pub(crate) fn map(name: &'static str, count: usize) -> Work {
    let i = || Expr::global_id(0);
    let program = Program::wrapped(
        vec![
            BufferDecl::read("a", 0, DataType::F32),
            BufferDecl::read("b", 1, DataType::F32),
            BufferDecl::output("out", 2, DataType::F32),
        ],
        [64, 1, 1],
        vec![Node::store("out", i(), Expr::load("a", i()) * Expr::load("b", i()) + 1.0f32)],
    );
    Work {
        name,
        program,
        buffers: vec![values(count, 2.0, -1.0), values(count, 3.0, 0.0), vec![0.0; count]],
        grid: [(count / 64) as u32, 1, 1],
        peer: peers::map,
        tolerance: 0.0,
    }
}

fn one_to_one(name: &'static str, body: Vec<Node>, count: usize, input: Vec<f32>, peer: fn(&mut [Vec<f32>])) -> Work {
    let program = Program::wrapped(
        vec![BufferDecl::read("a", 0, DataType::F32), BufferDecl::output("out", 1, DataType::F32)],
        [64, 1, 1],
        body,
    );
    let grid = [(count / 64) as u32, 1, 1];
    Work { name, program, buffers: vec![input, vec![0.0; count]], grid, peer, tolerance: 1e-5 }
}

fn logistic() -> Work {
    let count = 1 << 20;
    let step = Expr::f32(3.7) * var("x") * (Expr::f32(1.0) - var("x"));
    let body = vec![
        Node::var("x", DataType::F32, Expr::load("a", Expr::global_id(0))),
        Node::for_range("k", 0u32, 64u32, vec![Node::assign("x", step)]),
        Node::store("out", Expr::global_id(0), var("x")),
    ];
    let mut work = one_to_one("logistic", body, count, values(count, 0.98, 0.01), peers::logistic);
    work.tolerance = 0.0;
    work
}

fn sigmoid() -> Work {
    let count = 1 << 22;
    let body = vec![Node::store(
        "out",
        Expr::global_id(0),
        Expr::f32(1.0) / (Expr::f32(1.0) + (-Expr::load("a", Expr::global_id(0))).exp()),
    )];
    one_to_one("sigmoid", body, count, values(count, 16.0, -8.0), peers::sigmoid)
}

/// Sums of 256 neighbours, as a tree in workgroup memory.
fn reduction() -> Work {
    let count: usize = 1 << 24;
    let lid = || Expr::local_id(0);
    let program = Program::wrapped(
        vec![
            BufferDecl::read("a", 0, DataType::F32),
            BufferDecl::output("out", 1, DataType::F32),
            BufferDecl::workgroup("part", 0, DataType::F32).with_count(256),
        ],
        [256, 1, 1],
        vec![
            Node::store("part", lid(), Expr::load("a", Expr::global_id(0))),
            Node::barrier(),
            Node::var("half", DataType::U32, 128u32),
            Node::Loop {
                body: vec![
                    Node::if_then(var("half").eq(0u32), vec![Node::Break]),
                    Node::if_then(
                        lid().lt(var("half")),
                        vec![Node::store(
                            "part",
                            lid(),
                            Expr::load("part", lid()) + Expr::load("part", lid() + var("half")),
                        )],
                    ),
                    Node::barrier(),
                    Node::assign("half", var("half") / 2u32),
                ],
                continuing: Vec::new(),
                break_if: None,
            },
            Node::if_then(lid().eq(0u32), vec![Node::store("out", Expr::workgroup_id(0), Expr::load("part", 0u32))]),
        ],
    );
    Work {
        name: "reduction",
        program,
        buffers: vec![values(count, 1.0, 0.0), vec![0.0; count / 256]],
        grid: [(count / 256) as u32, 1, 1],
        peer: peers::reduction,
        tolerance: 1e-5,
    }
}

/// Side of the stencil's grid.
pub(crate) const SIDE: usize = 2048;

fn stencil() -> Work {
    let side = SIDE as u32;
    let (x, y) = (|| var("x"), || var("y"));
    let at = |x: Expr, y: Expr| Expr::load("a", y * side + x);
    let inside = x().gt(0u32) & x().lt(side - 1) & y().gt(0u32) & y().lt(side - 1);
    let sum = at(x(), y()) * 0.5f32
        + (at(x() - 1u32, y()) + at(x() + 1u32, y()) + at(x(), y() - 1u32) + at(x(), y() + 1u32)) * 0.125f32;
    let program = Program::wrapped(
        vec![BufferDecl::read("a", 0, DataType::F32), BufferDecl::output("out", 1, DataType::F32)],
        [32, 8, 1],
        vec![
            Node::let_bind("x", Expr::global_id(0)),
            Node::let_bind("y", Expr::global_id(1)),
            Node::if_then(inside, vec![Node::store("out", y() * side + x(), sum)]),
        ],
    );
    Work {
        name: "stencil",
        program,
        buffers: vec![values(SIDE * SIDE, 1.0, 0.0), vec![0.0; SIDE * SIDE]],
        grid: [side / 32, side / 8, 1],
        peer: peers::stencil,
        tolerance: 1e-6,
    }
}

/// Side of the picture.
pub(crate) const PICTURE: usize = 1024;

fn mandelbrot() -> Work {
    let side = PICTURE as u32;
    let scale = 3.0 / PICTURE as f32;
    let program = Program::wrapped(
        vec![BufferDecl::output("out", 0, DataType::F32)],
        [64, 1, 1],
        vec![
            Node::let_bind("i", Expr::global_id(0)),
            Node::let_bind("cx", (var("i") % side).cast(DataType::F32) * scale - 2.0f32),
            Node::let_bind("cy", (var("i") / side).cast(DataType::F32) * scale - 1.5f32),
            Node::var("x", DataType::F32, 0.0f32),
            Node::var("y", DataType::F32, 0.0f32),
            Node::var("n", DataType::U32, 0u32),
            Node::forever(vec![
                Node::let_bind("xx", var("x") * var("x")),
                Node::let_bind("yy", var("y") * var("y")),
                Node::if_then((var("xx") + var("yy")).gt(4.0f32) | var("n").ge(256u32), vec![Node::Break]),
                Node::let_bind("xy", var("x") * var("y")),
                Node::assign("x", var("xx") - var("yy") + var("cx")),
                Node::assign("y", var("xy") + var("xy") + var("cy")),
                Node::assign("n", var("n") + 1u32),
            ]),
            Node::store("out", var("i"), var("n").cast(DataType::F32)),
        ],
    );
    Work {
        name: "mandelbrot",
        program,
        buffers: vec![vec![0.0; PICTURE * PICTURE]],
        grid: [(PICTURE * PICTURE / 64) as u32, 1, 1],
        peer: peers::mandelbrot,
        tolerance: 0.0,
    }
}

/// Side of the matrices.
pub(crate) const MATRIX: usize = 512;

fn matmul() -> Work {
    let n = MATRIX as u32;
    let (lx, ly) = (|| Expr::local_id(0), || Expr::local_id(1));
    let (gx, gy) = (|| Expr::global_id(0), || Expr::global_id(1));
    let program = Program::wrapped(
        vec![
            BufferDecl::read("a", 0, DataType::F32),
            BufferDecl::read("b", 1, DataType::F32),
            BufferDecl::output("out", 2, DataType::F32),
            BufferDecl::workgroup("ta", 0, DataType::F32).with_count(256),
            BufferDecl::workgroup("tb", 0, DataType::F32).with_count(256),
        ],
        [16, 16, 1],
        vec![
            Node::var("sum", DataType::F32, 0.0f32),
            Node::for_range(
                "t",
                0u32,
                n / 16,
                vec![
                    Node::store("ta", ly() * 16u32 + lx(), Expr::load("a", gy() * n + var("t") * 16u32 + lx())),
                    Node::store("tb", ly() * 16u32 + lx(), Expr::load("b", (var("t") * 16u32 + ly()) * n + gx())),
                    Node::barrier(),
                    Node::for_range(
                        "k",
                        0u32,
                        16u32,
                        vec![Node::assign(
                            "sum",
                            var("sum")
                                + Expr::load("ta", ly() * 16u32 + var("k")) * Expr::load("tb", var("k") * 16u32 + lx()),
                        )],
                    ),
                    Node::barrier(),
                ],
            ),
            Node::store("out", gy() * n + gx(), var("sum")),
        ],
    );
    Work {
        name: "matmul",
        program,
        buffers: vec![
            values(MATRIX * MATRIX, 1.0, -0.5),
            values(MATRIX * MATRIX, 1.0, -0.5),
            vec![0.0; MATRIX * MATRIX],
        ],
        grid: [n / 16, n / 16, 1],
        peer: peers::matmul,
        tolerance: 1e-2,
    }
}

/// Bins of the histogram.
pub(crate) const BINS: usize = 256;

/// How often each last byte occurs, counted by atomics in workgroup memory and added up by atomics.
fn histogram() -> Work {
    const EACH: u32 = 64;
    let count: usize = 1 << 24;
    let (lid, bins) = (|| Expr::local_id(0), BINS as u32);
    let at = Expr::workgroup_id(0) * (bins * EACH) + var("k") * bins + lid();
    let program = Program::wrapped(
        vec![
            BufferDecl::read("a", 0, DataType::U32),
            BufferDecl::read_write("out", 1, DataType::U32),
            BufferDecl::workgroup("part", 0, DataType::U32).with_count(bins),
        ],
        [bins, 1, 1],
        vec![
            Node::for_range(
                "k",
                0u32,
                EACH,
                vec![Node::atomic(AtomicOp::Add, "part", Expr::load("a", at) & (bins - 1), 1u32)],
            ),
            Node::barrier(),
            Node::atomic(AtomicOp::Add, "out", lid(), Expr::load("part", lid())),
        ],
    );
    let input = values(count, 1.0, 0.0).into_iter().map(|value| f32::from_bits(value.to_bits() >> 3)).collect();
    Work {
        name: "histogram",
        program,
        buffers: vec![input, vec![0.0; BINS]],
        grid: [(count / BINS) as u32 / EACH, 1, 1],
        peer: peers::histogram,
        tolerance: 0.0,
    }
}
