//! Write a compute kernel once, in WGSL or with the Rust builder; vyre runs it on whatever is fastest on this machine, with a
//! tuned launch, cached pipelines, the same answer everywhere, and an explanation for every choice.
//!
//! This crate is the facade: [`Engine`] is the one object that most users need. The layers below are re-exported where they
//! are useful by themselves.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let program = vyre::wgsl("
//!     @group(0) @binding(0) var<storage, read> a: array<f32>;
//!     @group(0) @binding(1) var<storage, read_write> out: array<f32>;
//!     @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
//!         if id.x < arrayLength(&a) { out[id.x] = a[id.x] * 2.0 + 1.0; }
//!     }")?;
//! let engine = vyre::Engine::open()?;
//! let a = engine.array(&[1.0f32, 2.0, 3.0])?;
//! let mut out = engine.zeros_like(&a)?;
//! engine.kernel(&program)?.bind("a", &a).bind("out", &mut out).launch()?;
//! assert_eq!(out.to_vec()?, [3.0, 5.0, 7.0]);
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_code)]

mod array;
#[cfg(feature = "disasm")]
mod asm;
mod engine;
mod error;
mod graph;
mod kernels;
mod launches;
mod reference;
mod runtime;

pub use array::{Array, ArrayView, ArrayViewMut, Buffer, Element, Read, Shape};
#[cfg(feature = "disasm")]
pub use asm::to_asm;
pub use engine::{
    Certified, Choice, DeviceInfo, Engine, EngineBuilder, Explanation, PackReport, Prepared, Racer, TuneSample,
};
pub use error::Error;
pub use graph::{Graph, Place, RecordedLaunch, Recorder, Replay};
pub use kernels::{Bindable, Call, Kernel};
pub use launches::Launch;
pub use reference::ReferenceBackend;
pub use runtime::MemoryUse;
pub use vyre_driver::{BackendError, DispatchConfig, VyreBackend, backend, diagnostics, metrics, pipeline, registry};
pub use vyre_driver::{routing, specialization, tuner};
pub use vyre_foundation::ir::{DataType, Program};
pub use vyre_foundation::{ValidProgram, ir, kernel, launch, text, wire};
pub use vyre_spec::{BackendId, Diagnostic, Severity, SourceLocation, codes};
pub use vyre_wgsl::{
    ImportOptions, catches_panics, entry_points as wgsl_entry_points, export as to_wgsl, import as import_wgsl,
    import_spirv, spirv_entry_points,
};

/// The one compute entry point of a WGSL text as a program. [`import_wgsl`] has the options.
pub fn wgsl(source: &str) -> Result<Program, Error> {
    Ok(import_wgsl(source, &ImportOptions::default())?)
}

/// The bytes of a SPIR-V module for Vulkan.
pub fn to_spirv(program: &ValidProgram, options: &kernel::Options) -> Result<Vec<u8>, Diagnostic> {
    vyre_wgsl::export_spirv(program, &options.specialization, options.workgroup_size)
}

/// The PTX text that the CUDA backend makes of a program, for a device of this compute capability (90 is 9.0).
#[cfg(feature = "cuda")]
pub fn to_ptx(program: &ValidProgram, options: &kernel::Options, capability: u32) -> Result<String, Diagnostic> {
    let options = kernel::Options { expand_math: true, ..options.clone() };
    let target = vyre_cuda::ptx::Target { sm: capability, interruptible: false };
    Ok(vyre_cuda::ptx::emit(&kernel::lower(program, &options)?, target)?.text)
}

/// The kernel that the wgpu backend makes of a program for a device that has everything, as WGSL; [`to_wgsl`] writes the program itself.
#[cfg(feature = "wgpu")]
pub fn to_kernel_wgsl(program: &ValidProgram, options: &kernel::Options) -> Result<String, Diagnostic> {
    let options = kernel::Options { expand_math: true, narrow: kernel::Narrow::Words, ..options.clone() };
    vyre_wgpu::emit::wgsl(&vyre_wgpu::emit::emit(
        &kernel::lower(program, &options)?,
        vyre_wgpu::emit::Target::default(),
    )?)
}

/// The bytes of plain numbers.
pub fn to_bytes<T: bytemuck::NoUninit>(values: &[T]) -> &[u8] {
    bytemuck::cast_slice(values)
}

/// Plain numbers from their bytes. Bytes after the last whole number are left out.
pub fn from_bytes<T: bytemuck::AnyBitPattern>(bytes: &[u8]) -> Vec<T> {
    let size = std::mem::size_of::<T>().max(1);
    bytes.chunks_exact(size).map(bytemuck::pod_read_unaligned).collect()
}

/// The examples in the project's pages run as tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/backend.md")]
    struct Backend;
    #[doc = include_str!("../../../docs/ir.md")]
    struct Ir;
    #[doc = include_str!("../../../docs/warm-pack.md")]
    struct WarmPack;
}
