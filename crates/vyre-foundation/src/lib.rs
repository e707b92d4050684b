//! What a vyre program *is*: the IR and its builder, the wire and text forms, the validator, and the optimiser that turns
//! a validated program into the kernel form that every emitter reads.
//!
//! This crate knows nothing about devices or files.
//!
//! ```
//! use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
//! let program = Program::wrapped(
//!     vec![BufferDecl::output("out", 0, DataType::U32).with_count(4)],
//!     [64, 1, 1],
//!     vec![Node::store("out", Expr::global_id(0), Expr::global_id(0) * Expr::u32(2))],
//! );
//! assert!(program.validate().is_ok());
//! ```
#![forbid(unsafe_code)]

pub mod ir;
pub mod kernel;
pub mod launch;
pub mod near;
pub mod text;
mod validate;
pub mod wire;

/// A digest of the sources that turn a program into the kernel form. Code that is stored beyond a process is kept apart by it, so
/// that a change of the optimiser needs no number to be raised by hand.
pub const SOURCE_DIGEST: &str = env!("VYRE_FOUNDATION_SOURCES");

pub use validate::{ValidProgram, limits};
