//! What every backend is judged by: random programs that are valid by construction, and the rules by which results count as
//! equal.
//!
//! This crate knows no backend; a backend's tests call it.
//!
//! ```
//! use vyre_conform::{GenOptions, generate};
//! let case = generate(7, &GenOptions::default());
//! assert_eq!(case.program, generate(7, &GenOptions::default()).program);
//! assert!(case.program.validate().is_ok());
//! ```
#![forbid(unsafe_code)]

mod compare;
pub mod device;
mod execute;
mod filetest;
mod generate;
mod kernel;
mod reduce;
mod report;
mod rng;
mod suite;

pub use compare::{Difference, Rules, Tolerance, compare};
pub use execute::{Outcome, ReferenceBackend, check, check_against, dispatch_config, random_programs, run_reference};
pub use filetest::{FileTest, file_tests, file_tests_in};
pub use generate::{Case, Floats, GenOptions, Subgroups, generate};
pub use kernel::KernelBackend;
pub use reduce::{reduce, statement_count};
pub use report::Report;
pub use suite::{Expectation, Test, suite, suite_with, tests};
