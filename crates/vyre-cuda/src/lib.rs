//! vyre's CUDA backend: kernels become PTX text, which the CUDA driver compiles. The driver is loaded at run time, so a binary
//! with this crate in it builds and starts on machines without CUDA.
//!
//! This crate knows the kernel form and the driver's backend trait; it knows neither the other backends nor the program text.
//!
//! ```
//! use vyre_cuda::CudaBackend;
//! use vyre_driver::DispatchConfig;
//! use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
//!
//! let program = Program::wrapped(
//!     vec![BufferDecl::output("out", 0, DataType::U32).with_count(4)],
//!     [64, 1, 1],
//!     vec![Node::store("out", Expr::global_id(0), Expr::global_id(0) * Expr::u32(3))],
//! );
//! match CudaBackend::probe() {
//!     Ok(backend) => {
//!         let results = backend.dispatch(&program, &[], &DispatchConfig::default())?;
//!         assert_eq!(results, [[0u32, 3, 6, 9].map(u32::to_le_bytes).concat()]);
//!     }
//!     Err(reason) => println!("no CUDA here: {}", reason.message),
//! }
//! # Ok::<(), vyre_driver::BackendError>(())
//! ```

#![deny(unsafe_code)]

// The only module with calls of the driver in it.
#[allow(unsafe_code)]
mod api;
mod backend;
mod batch;
mod capabilities;
mod device;
mod foreign;
mod interop;
mod launch;
mod memory;
mod pipeline;
pub mod ptx;
mod queue;
mod recording;
mod ring;
mod staging;
mod stop;
#[cfg(test)]
mod tests;

pub use backend::CudaBackend;
pub use interop::PinnedMemory;
