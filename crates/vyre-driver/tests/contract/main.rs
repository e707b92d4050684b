//! The driver contract, sentence by sentence; `COVERAGE.md` beside this folder says which test covers which.

mod backends;
mod diagnostics;
mod keys;
mod launch;
mod memory;
mod metrics;
mod registry;
mod specialization;

use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program, SpecConstant};

/// `out[i] = value`, for four elements.
pub fn store_program(value: u32) -> Program {
    Program::wrapped(
        vec![BufferDecl::output("out", 0, DataType::U32).with_count(4)],
        [64, 1, 1],
        vec![Node::store("out", Expr::global_id(0), Expr::u32(value))],
    )
}

/// A program with one constant of each type that constants have.
pub fn program_with_constants() -> Program {
    let constant = |name: &str, default| SpecConstant { name: name.into(), default };
    store_program(1).with_constants(vec![
        constant("flag", false.into()),
        constant("half", half::f16::from_f32(1.0).into()),
        constant("scale", 1.0f32.into()),
        constant("signed", (-1i32).into()),
        constant("tile", 16u32.into()),
    ])
}
