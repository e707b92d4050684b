//! vyre's wgpu backend: kernels become naga modules, which wgpu runs on Vulkan, Metal and DX12.
//!
//! This crate knows the kernel form and the driver's backend trait; it knows neither the other backends nor the program text.
//!
//! ```
//! use vyre_driver::{DispatchConfig, VyreBackend};
//! use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
//! use vyre_wgpu::WgpuBackend;
//!
//! let program = Program::wrapped(
//!     vec![BufferDecl::output("out", 0, DataType::U32).with_count(4)],
//!     [64, 1, 1],
//!     vec![Node::store("out", Expr::global_id(0), Expr::global_id(0) * Expr::u32(3))],
//! );
//! match WgpuBackend::open(0) {
//!     Ok(backend) => {
//!         let results = backend.dispatch(&program, &[], &DispatchConfig::default())?;
//!         assert_eq!(results, [[0u32, 3, 6, 9].map(u32::to_le_bytes).concat()]);
//!     }
//!     Err(reason) => println!("no adapter here: {}", reason.message),
//! }
//! # Ok::<(), vyre_driver::BackendError>(())
//! ```

#![deny(unsafe_code)]

mod adapter;
mod arithmetic;
mod backend;
mod context;
mod device;
pub mod emit;
mod loops;
mod pipeline;
// The only module with calls that wgpu can't check.
#[allow(unsafe_code)]
mod raw;
mod recording;
mod transfer;
mod work;

pub use adapter::{Adapter, adapters};
pub use backend::WgpuBackend;
/// The crate whose devices, queues and buffers are taken and given.
pub use wgpu;
