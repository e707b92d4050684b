//! The frozen contracts that every other vyre crate agrees on: data types with the tags that go into wire bytes and
//! cache keys, backend ids, and diagnostics with their one code table.
//!
//! This crate knows nothing about programs or devices.
//!
//! ```
//! use vyre_spec::data_type::DataType;
//! let vector = DataType::Vec { element: Box::new(DataType::F32), count: 4 };
//! assert_eq!(vector.tag(), 0x14);
//! assert_ne!(vector.key(), DataType::F32.key());
//! ```
#![forbid(unsafe_code)]

mod backend_id;
pub mod codes;
pub mod data_type;
mod diagnostic;

pub use backend_id::BackendId;
pub use data_type::{DataType, TypeId};
pub use diagnostic::{Diagnostic, Severity, SourceLocation};
pub use smallvec::SmallVec;
