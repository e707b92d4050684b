//! A long kernel, for the time that compiling takes.

use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};

/// Two hundred dense lines: thirty-two stages of different arithmetic, branches and loops.
pub(crate) fn long() -> Program {
    let length = || Expr::len("a");
    let mut body = vec![
        Node::if_then(Expr::global_id(0).ge(length()), vec![Node::Return(None)]),
        Node::var("x", DataType::F32, Expr::load("a", Expr::global_id(0))),
        Node::var("n", DataType::U32, Expr::global_id(0)),
    ];
    for stage in 0..32u32 {
        let scale = 1.0 + stage as f32 / 100.0;
        let rest = (Expr::var("n") % 17u32).cast(DataType::F32);
        body.extend([
            Node::assign("n", Expr::var("n") * (2 * stage + 3) + stage),
            Node::if_else(
                (Expr::var("n") & (stage + 1)).ne(0u32),
                vec![Node::assign("x", Expr::var("x") * scale + rest)],
                vec![Node::assign("x", Expr::var("x").abs().sqrt() + (stage as f32 + 0.5))],
            ),
            Node::for_range(
                "i",
                0u32,
                stage % 5 + 6,
                vec![Node::assign("x", Expr::var("x") + Expr::load("a", (Expr::var("n") + Expr::var("i")) % length()))],
            ),
            Node::assign("x", (-Expr::var("x").abs()).exp() + Expr::var("x") * 0.5f32),
        ]);
    }
    body.push(Node::store("out", Expr::global_id(0), Expr::var("x")));
    Program::wrapped(
        vec![BufferDecl::read("a", 0, DataType::F32), BufferDecl::output("out", 1, DataType::F32)],
        [64, 1, 1],
        body,
    )
}
