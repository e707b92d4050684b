//! Products of f16 and bf16 matrices on matrix fragments, with f32 sums.
//!
//! Four subgroups make a block of 128 x 128, each of them 64 x 64 of it. A depth of 32 at a time goes from the buffers to workgroup memory;
//! while it is worked on, the next is on its way. Which element of the depth stands where in a fragment does not matter as long as both
//! factors agree, so a lane has its parts of two steps next to each other: the left factor lies there as whole fragments, the right one by
//! columns, 16 bytes at a time either way.

use vyre::ir::{BufferDecl, DataType, Expr, MatrixKind, Node, Program};

use super::epilogue::Steps;

/// Rows and columns that a workgroup makes.
pub(super) const BLOCK: usize = 128;
/// Steps of `k` at a time.
pub(super) const DEPTH: usize = 32;

const INVOCATIONS: u32 = 128;
/// Pieces of 16 bytes in a row of a tile.
const PIECES: u32 = 4;
const TILE: u32 = BLOCK as u32 * PIECES;

fn u(value: u32) -> Expr {
    Expr::u32(value)
}

fn id() -> Expr {
    Expr::local_id(0)
}

fn var(name: String) -> Expr {
    Expr::var(name)
}

fn quad() -> DataType {
    DataType::vector(DataType::U32, 4)
}

/// `C[m][n] = A[m][k] · B[n][k]ᵀ`, in as many workgroups as there are blocks, and a row of workgroups for each matrix of a batch. Sizes are
/// multiples of the block's. With an epilogue there are `told`, whose first word is the scale, and `bias`.
pub(super) fn program(ty: &DataType, [m, n, k]: [u32; 3], steps: Steps) -> Program {
    let (line, rounds, block) = (k / 8, k / DEPTH as u32, BLOCK as u32);
    // Row blocks that are worked on together, so that the columns they need stay in the cache.
    let together = [8, 4, 2].into_iter().find(|count| (m / block).is_multiple_of(*count)).unwrap_or(1);
    let within = || Expr::workgroup_id(0) % u(together * (n / block));
    let first = Expr::workgroup_id(0) / u(together * (n / block)) * u(together) + within() % u(together);
    let batch = || Expr::workgroup_id(1);
    let mut body = vec![
        Node::let_bind("a_row", first * u(block) + batch() * u(m)),
        Node::let_bind("b_row", within() / u(together) * u(block) + batch() * u(n)),
        // Where this lane's part of its subgroup's first fragment lies.
        Node::let_bind("lane_a", id() / u(64) * u(64 * PIECES) + id() % u(32)),
        Node::let_bind("lane_b", id() / u(32) % u(2) * u(64 * PIECES) + id() % u(32)),
    ];
    fetch(line, u(0), &mut body);
    keep(u(0), &mut body);
    let sums = DataType::vector(DataType::F32, 4);
    for i in 0..4 {
        for j in 0..8 {
            body.push(Node::var_zero(format!("sum_{i}_{j}"), sums.clone()));
        }
    }
    body.push(Node::barrier());
    let mut round = vec![Node::let_bind("tile", Expr::var("step") % u(2) * u(2 * TILE))];
    // Behind the last column this reads what nobody needs.
    fetch(line, Expr::var("step") + u(1), &mut round);
    let kind = if *ty == DataType::BF16 { MatrixKind::Bf16 } else { MatrixKind::F16 };
    multiply(kind, &mut round);
    keep((Expr::var("step") + u(1)) % u(2), &mut round);
    round.push(Node::barrier());
    body.push(Node::for_range("step", u(0), u(rounds), round));
    store(ty, n, steps, &mut body);
    let mut buffers = vec![
        BufferDecl::read("a", 0, quad()),
        BufferDecl::read("b", 1, quad()),
        BufferDecl::output("out", 2, pair(ty)),
    ];
    if !steps.is_none() {
        buffers.push(BufferDecl::read("told", 3, DataType::U32));
    }
    if steps.bias {
        buffers.push(BufferDecl::read("bias", 4, ty.clone()));
    }
    buffers.push(BufferDecl::workgroup("tiles", 0, quad()).with_count(4 * TILE));
    Program::wrapped(buffers, [INVOCATIONS, 1, 1], body)
}

/// Fetches four pieces of each matrix per invocation; of the left one from two pairs of rows that lie eight apart.
fn fetch(line: u32, step: Expr, out: &mut Vec<Node>) {
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
}

/// Puts what was fetched into one of the two tiles.
fn keep(tile: Expr, out: &mut Vec<Node>) {
    for i in 0..2 {
        for step in 0..2 {
            let (low, high) = (format!("next_a{}", i * 2), format!("next_a{}", i * 2 + 1));
            let lane = |name: &String, lane: u32| var(name.clone()).lane(lane as u8);
            let first = step * 2;
            let words = vec![lane(&low, first), lane(&high, first), lane(&low, first + 1), lane(&high, first + 1)];
            let at = id() / u(32) * u(64) + id() % u(32) + u(i * 256 + step * 32);
            out.push(Node::store("tiles", tile.clone() * u(2 * TILE) + at, Expr::construct(quad(), words)));
        }
    }
    for i in 0..4 {
        let at = tile.clone() * u(2 * TILE) + u(TILE + i * INVOCATIONS) + id();
        out.push(Node::store("tiles", at, var(format!("next_b{i}"))));
    }
}

/// The products of a tile.
fn multiply(kind: MatrixKind, round: &mut Vec<Node>) {
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
                let (sum, rows) = (format!("sum_{i}_{j}"), var(format!("rows_{i}_{step}")));
                let product = Expr::matrix_multiply_add(kind, rows, b, Expr::var(sum.as_str()));
                round.push(Node::assign(sum.as_str(), product));
            }
        }
    }
}

/// Two elements of the result.
fn pair(ty: &DataType) -> DataType {
    if *ty == DataType::BF16 { DataType::BF16 } else { DataType::vector(DataType::F16, 2) }
}

fn store(ty: &DataType, n: u32, steps: Steps, body: &mut Vec<Node>) {
    // The rows of `out` are counted through the batch, and so are those of the left factor.
    body.push(Node::let_bind("row", Expr::var("a_row") + id() / u(64) * u(64) + id() % u(32) / u(4)));
    let column = Expr::var("b_row") - Expr::workgroup_id(1) * u(n) + id() / u(32) % u(2) * u(64);
    body.push(Node::let_bind("column", column + id() % u(4) * u(2)));
    for i in 0..4 {
        for j in 0..8 {
            for (row, first) in [(0, 0), (8, 2)] {
                let mut done = |lane: u8| {
                    let column = Expr::var("column") + u(j * 8 + u32::from(lane % 2));
                    let sum = var(format!("sum_{i}_{j}")).lane(lane);
                    steps.nodes(ty, sum, column, format!("begun_{i}_{j}_{lane}"), body)
                };
                let (left, right) = (done(first), done(first + 1));
                let at = (Expr::var("row") + u(i * 16 + row)) * u(n) + Expr::var("column") + u(j * 8);
                if *ty == DataType::BF16 {
                    // What is stored as bf16 is computed as f32.
                    body.push(Node::store("out", at.clone(), left));
                    body.push(Node::store("out", at + u(1), right));
                    continue;
                }
                let two = Expr::construct(pair(ty), vec![left.cast(DataType::F16), right.cast(DataType::F16)]);
                body.push(Node::store("out", at / u(2), two));
            }
        }
    }
}
