//! vyre's embedded backend: it runs any valid program on the processor, with no system dependency.
//!
//! The invocations of a workgroup are the lanes of vectors, and workgroups are spread over the backend's own threads, one for each
//! processor that the process may use (or as many as `VYRE_THREADS` says). This crate knows the
//! kernel form and the driver's backend trait; it knows neither the other backends nor the program text.
//!
//! ```
//! use vyre_cpu::CpuBackend;
//! use vyre_driver::{DispatchConfig, VyreBackend};
//! use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
//!
//! let program = Program::wrapped(
//!     vec![BufferDecl::output("out", 0, DataType::U32).with_count(4)],
//!     [64, 1, 1],
//!     vec![Node::store("out", Expr::global_id(0), Expr::global_id(0) * Expr::u32(3))],
//! );
//! let results = CpuBackend::new()?.dispatch(&program, &[], &DispatchConfig::default())?;
//! assert_eq!(results, [[0u32, 3, 6, 9].map(u32::to_le_bytes).concat()]);
//! # Ok::<(), vyre_driver::BackendError>(())
//! ```

mod backend;
mod caches;
mod dispatch;
mod effort;
mod foreign;
mod interp;
mod launch;
mod memory;
mod native;
mod pace;
mod path;
mod pipeline;
mod pool;
mod record;
mod sums;
mod threads;
mod work;

pub use backend::{CpuBackend, CpuOptions};
pub use path::CpuPath;
