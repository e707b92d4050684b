//! The kernels that programs are made of, for arrays and expressions of [`vyre`]: reductions, scans, sorts, products.
//!
//! [`Ops`] has them as methods. An expression that feeds an op is computed inside of its kernel, results stay on the device until they
//! are read, and every op gives the same on every backend.
//!
//! ```
//! # fn main() -> Result<(), vyre::Error> {
//! use vyre_ops::Ops;
//!
//! let engine = vyre::Engine::builder().without_disk().open()?;
//! let a = engine.array(&[1.0f32, 2.0, 3.0])?;
//! let b = engine.array(&[4.0f32, 5.0, 6.0])?;
//! assert_eq!((&a * &b).sum()?.value()?, 32.0);
//! let centred = (&a - &a.mean()?).eval()?;
//! assert_eq!(centred.to_vec()?, [-1.0, 0.0, 1.0]);
//! # Ok(())
//! # }
//! ```
//!
//! The crate knows nothing of devices: it writes kernels in the text form of programs, and the engine decides where they run.
#![deny(unsafe_code)]

mod attention;
mod bodies;
mod bytes;
mod convolution;
mod digest;
mod exponential;
mod fft;
mod fold;
mod histogram;
mod hopper;
mod host;
#[cfg(target_arch = "x86_64")]
mod lanes;
mod launch;
mod layout;
mod matrix;
mod onesweep;
mod ops;
mod output;
mod random;
mod reduce;
mod reference;
mod registry;
mod rows;
mod run;
mod scan;
mod search;
mod segments;
mod select;
mod sort;
mod stencil;
mod top;
mod tuning;

pub use attention::attention_bf16;
pub use bytes::{Found, Patterns, find_bytes};
pub use digest::{crc32_bytes, sha256_bytes};
pub use matrix::{Activation, Epilogue, Transposed, matmul_bf16, matmul_bf16_with};
pub use ops::Ops;
pub use output::Output;
pub use random::Random;
pub use reference::{Numbers, Plain};
pub use registry::{Cost, Op, Parameter, Parameters, Types, op, ops};
pub use select::Counted;
pub use stencil::Boundary;
pub use tuning::{Axis, Contents, Sample};

/// The examples in the page on ops run as tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/ops.md")]
    struct Ops;
}
