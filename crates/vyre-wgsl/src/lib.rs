//! WGSL and SPIR-V in, through naga's front ends, and WGSL text and SPIR-V out.
//!
//! This crate knows nothing about devices. What a kernel means is decided by the program that comes out of the import.
//!
//! ```
//! use vyre_wgsl::{ImportOptions, import};
//! let source = "
//!     @group(0) @binding(0) var<storage, read> xs: array<f32>;
//!     @group(0) @binding(1) var<storage, read_write> ys: array<f32>;
//!     @compute @workgroup_size(64)
//!     fn double(@builtin(global_invocation_id) id: vec3<u32>) {
//!         if id.x < arrayLength(&ys) { ys[id.x] = 2.0 * xs[id.x]; }
//!     }";
//! let program = import(source, &ImportOptions::default()).unwrap();
//! assert_eq!(program.name(), "double");
//! assert_eq!(program.buffers().len(), 2);
//! ```
//!
//! How WGSL maps to a program:
//!
//! - Only the buffers that the entry point, or a function it calls, uses become buffers of the program.
//! - A `read_write` storage buffer that is never read (no load, no atomic) becomes an `output`, which starts as zero and is
//!   no input; one that is read is `read_write`.
//! - A comment `// vyre: output`, `// vyre: read_write` or (for read-only storage) `// vyre: uniform` after a declaration, on
//!   its line, decides the kind instead. A function `fn vyre_domain() -> vec3<u32>` that only returns a vector of sizes
//!   declares the launch domain.
//! - `override` constants become specialization constants. One whose initial value depends on other overrides is computed
//!   from them and can't be set itself; one without a default must be given a value ([`ImportOptions::overrides`]).
//! - A load outside an array gives zero and a store outside is dropped, for run-time arrays, fixed arrays and vectors alike.
//! - Pointers to variables are passed by copying in and out, which WGSL's aliasing rules make indistinguishable; kernels work on
//!   the variables themselves. naga refuses pointers to storage and workgroup memory as arguments of functions.
//! - `var<private>` becomes a variable of the entry point. Matrices become arrays of their columns.
#![forbid(unsafe_code)]

mod export;
mod import;
mod spirv;

pub use export::export;
pub use import::{ImportOptions, catches_panics, entry_points, import, import_all, import_spirv, spirv_entry_points};
pub use spirv::export_spirv;
