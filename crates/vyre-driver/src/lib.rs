//! The driver layer: the open [`VyreBackend`] trait and the registry of backends, pipeline keys and caches, specialization
//! values, the tuner, routing, launch planning, rendering of diagnostics, and metrics.
//!
//! This crate doesn't know which backends exist.
//!
//! ```
//! use vyre_driver::backend::NullBackend;
//! use vyre_driver::{DispatchConfig, VyreBackend};
//! use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
//!
//! let program = Program::wrapped(
//!     vec![BufferDecl::output("out", 0, DataType::U32).with_count(4)],
//!     [64, 1, 1],
//!     vec![Node::store("out", Expr::global_id(0), Expr::u32(7))],
//! );
//! // The null backend checks everything and computes nothing: every result is zero.
//! let results = NullBackend::new().dispatch(&program, &[], &DispatchConfig::default())?;
//! assert_eq!(results, vec![vec![0; 16]]);
//! # Ok::<(), vyre_driver::BackendError>(())
//! ```
#![deny(unsafe_code)]

pub mod backend;
pub mod diagnostics;
pub mod launch;
pub mod metrics;
pub mod pipeline;
pub mod registry;
pub mod routing;
pub mod specialization;
mod table_file;
pub mod tuner;
pub mod variant;

pub use backend::{BackendError, DispatchConfig, VyreBackend};
