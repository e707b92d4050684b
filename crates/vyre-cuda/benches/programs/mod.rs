//! Programs that the board measures and the assembler test holds to their registers.

use vyre_foundation::ir::{BufferDecl, DataType, Expr, MatrixKind, Node, Program};

/// Rows and columns that a workgroup of [`matmul`] makes.
pub(crate) const BLOCK: u32 = 128;

/// Row blocks that are worked on together, so that the columns they need stay in the cache.
const GROUP: u32 = 8;

/// `C[m][n] = A[m][k] · B[n][k]ᵀ` for f16 or bf16 and f32 sums, on matrix fragments.
///
/// Four subgroups make a block of 128 x 128, each of them 64 x 64 of it. A depth of 32 at a time goes from the buffers to
/// workgroup memory; while it is worked on, the next is on its way. Which element of the depth stands where in a fragment does not
/// matter as long as A and B agree, so a lane has its parts of two steps next to each other. A lies there as whole fragments, B by
/// columns: 16 bytes at a time either way, and lanes side by side. Sizes are multiples of the block's, `m` of eight blocks.
pub(crate) fn matmul(kind: MatrixKind, m: u32, n: u32, k: u32) -> Program {
    const INVOCATIONS: u32 = 128;
    const PIECES: u32 = 4; // of 16 bytes in a row of a tile
    const TILE: u32 = BLOCK * PIECES;
    let u = Expr::u32;
    let var = |name: String| Expr::var(name);
    let (quad, sums) = (DataType::vector(DataType::U32, 4), DataType::vector(DataType::F32, 4));
    let (line, steps) = (k / 8, k / 32);
    let id = || Expr::local_id(0);
    // Four pieces of each matrix per invocation; of A from two pairs of rows that lie eight apart.
    let fetch = |step: Expr, out: &mut Vec<Node>| {
        let mut piece = |matrix: &str, i: u32, row: Expr| {
            let at = (row + var(format!("{matrix}_row"))) * u(line) + step.clone() * u(PIECES) + id() % u(PIECES);
            out.push(Node::let_bind(format!("next_{matrix}{i}"), Expr::load(matrix, at)));
        };
        for i in 0..4 {
            let row = id() / u(32) * u(16) + id() / u(PIECES) % u(8);
            piece("a", i, row + u(i / 2 * 64 + i % 2 * 8));
        }
        for i in 0..4 {
            piece("b", i, id() / u(PIECES) + u(i * INVOCATIONS / PIECES));
        }
    };
    let keep = |tile: Expr, out: &mut Vec<Node>| {
        for i in 0..2 {
            for step in 0..2 {
                let (low, high) = (format!("next_a{}", i * 2), format!("next_a{}", i * 2 + 1));
                let lane = |name: &String, lane: u32| var(name.clone()).lane(lane as u8);
                let first = step * 2;
                let words = vec![lane(&low, first), lane(&high, first), lane(&low, first + 1), lane(&high, first + 1)];
                let at = id() / u(32) * u(64) + id() % u(32) + u(i * 256 + step * 32);
                out.push(Node::store("tiles", tile.clone() * u(2 * TILE) + at, Expr::construct(quad.clone(), words)));
            }
        }
        for i in 0..4 {
            let at = tile.clone() * u(2 * TILE) + u(TILE + i * INVOCATIONS) + id();
            out.push(Node::store("tiles", at, var(format!("next_b{i}"))));
        }
    };
    let mut body = vec![
        Node::let_bind("group", Expr::workgroup_id(0) / u(GROUP * (n / BLOCK))),
        Node::let_bind("within", Expr::workgroup_id(0) % u(GROUP * (n / BLOCK))),
        Node::let_bind("a_row", (Expr::var("group") * u(GROUP) + Expr::var("within") % u(GROUP)) * u(BLOCK)),
        Node::let_bind("b_row", Expr::var("within") / u(GROUP) * u(BLOCK)),
        // Where this lane's part of its subgroup's first fragment lies.
        Node::let_bind("lane_a", id() / u(64) * u(64 * PIECES) + id() % u(32)),
        Node::let_bind("lane_b", id() / u(32) % u(2) * u(64 * PIECES) + id() % u(32)),
    ];
    fetch(u(0), &mut body);
    keep(u(0), &mut body);
    for i in 0..4 {
        for j in 0..8 {
            body.push(Node::var_zero(format!("sum_{i}_{j}"), sums.clone()));
        }
    }
    body.push(Node::barrier());
    let mut round = vec![Node::let_bind("tile", Expr::var("step") % u(2) * u(2 * TILE))];
    // Behind the last column this reads what nobody needs.
    fetch(Expr::var("step") + u(1), &mut round);
    for i in 0..4 {
        for step in 0..2 {
            let at = Expr::var("tile") + Expr::var("lane_a") + u((i * 2 + step) * 32);
            round.push(Node::let_bind(format!("rows_{i}_{step}"), Expr::load("tiles", at)));
        }
    }
    for j in 0..8 {
        let at = Expr::var("tile") + Expr::var("lane_b") + u(TILE + j * 8 * PIECES);
        round.push(Node::let_bind(format!("column_{j}"), Expr::load("tiles", at)));
        for i in 0..4 {
            for step in 0..2 {
                let column = |lane| var(format!("column_{j}")).lane(lane);
                let words = vec![column(step * 2), column(step * 2 + 1)];
                let b = Expr::construct(DataType::vector(DataType::U32, 2), words);
                let sum = format!("sum_{i}_{j}");
                let rows = var(format!("rows_{i}_{step}"));
                round.push(Node::assign(
                    sum.as_str(),
                    Expr::matrix_multiply_add(kind, rows, b, Expr::var(sum.as_str())),
                ));
            }
        }
    }
    keep((Expr::var("step") + u(1)) % u(2), &mut round);
    round.push(Node::barrier());
    body.push(Node::for_range("step", u(0), u(steps), round));
    body.push(Node::let_bind("row", Expr::var("a_row") + id() / u(64) * u(64) + id() % u(32) / u(4)));
    body.push(Node::let_bind("column", Expr::var("b_row") + id() / u(32) % u(2) * u(64) + id() % u(4) * u(2)));
    let pair = DataType::vector(DataType::F32, 2);
    for i in 0..4 {
        for j in 0..8 {
            for (row, first) in [(0, 0), (8, 2)] {
                let sum = |lane| var(format!("sum_{i}_{j}")).lane(lane);
                let at = ((Expr::var("row") + u(i * 16 + row)) * u(n) + Expr::var("column") + u(j * 8)) / u(2);
                body.push(Node::store("c", at, Expr::construct(pair.clone(), vec![sum(first), sum(first + 1)])));
            }
        }
    }
    Program::wrapped(
        vec![
            BufferDecl::read("a", 0, quad.clone()).with_count(m * line),
            BufferDecl::read("b", 1, quad.clone()).with_count(n * line),
            BufferDecl::output("c", 2, pair).with_count(m * n / 2),
            BufferDecl::workgroup("tiles", 0, quad).with_count(4 * TILE),
        ],
        [INVOCATIONS, 1, 1],
        body,
    )
}
