//! Programs as people and front ends write them: a tree of statements over named buffers and variables.

mod buffer;
mod builder;

mod element;
mod expr;
mod literal;
mod matrix;
mod name;
mod node;
mod ops;
mod program;
mod types;
pub mod typing;
mod visit;

pub use buffer::{BufferDecl, BufferKind, Count};
pub use builder::{
    Array, Body, Buffer, Constant, Field, FunctionHandle, Operand, Place, ProgramBuilder, Struct, Switch, Value, Var,
};
pub use element::{Element, Scalar};
pub use expr::{Access, BinaryOp, Builtin, Expr, MathOp, SubgroupOp, UnaryOp};
pub use literal::Literal;
pub use matrix::{MATRIX_COLUMNS, MATRIX_LANES, MATRIX_ROWS, MatrixKind};
pub use name::Name;
pub use node::{AtomicOp, BarrierScope, Case, Node};
pub(crate) use program::Parts;
pub use program::{Function, Math, Param, Program, SpecConstant, Specialization};
pub use types::{Layout, Member, TypeDef, layout_of};
pub use vyre_spec::data_type::{DataType, TypeId};
