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
pub mod dlpack;
mod engine;
mod error;
pub mod expression;
mod graph;
mod interop;
mod kernels;
mod launches;
mod reference;
mod runtime;
#[cfg(feature = "macros")]
#[doc(hidden)]
pub mod typed;

pub use array::{Array, ArrayView, ArrayViewMut, Buffer, Counted, Element, Layout, Read, Shape, Vec3};
#[cfg(feature = "disasm")]
pub use asm::to_asm;
pub use engine::{
    Certified, Choice, Decided, Decisions, DeviceInfo, Engine, EngineBuilder, Explanation, Go, PackReport, Prepared,
    Racer, TimedLaunches, TuneSample,
};
pub use error::Error;
pub use expression::{Expression, Number};
pub use graph::{Graph, Place, RecordedLaunch, Recorder, Replay};
#[cfg(feature = "wgpu")]
pub use interop::WgpuView;
#[cfg(feature = "cuda")]
pub use interop::{CudaMemory, CudaView};
pub use kernels::{Bindable, Call, Kernel};
pub use launches::Launch;
pub use reference::ReferenceBackend;
pub use runtime::MemoryUse;
pub use vyre_driver::launch::{plan, plan_with};
pub use vyre_driver::{BackendError, DispatchConfig, VyreBackend, backend, diagnostics, metrics, pipeline, registry};
pub use vyre_driver::{routing, specialization, tuner, variant};
pub use vyre_foundation::ir::{DataType, Program};
pub use vyre_foundation::{ValidProgram, ir, kernel, launch, near, text, wire};
pub use vyre_spec::{BackendId, Diagnostic, Severity, SourceLocation, codes};
/// The crate that [`EngineBuilder::wgpu_device`] takes its device from.
#[cfg(feature = "wgpu")]
pub use vyre_wgpu::wgpu;
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
    let options = vyre_cuda::ptx::lowering(options.clone());
    let target = vyre_cuda::ptx::Target { sm: capability, interruptible: false };
    Ok(vyre_cuda::ptx::emit(&kernel::lower(program, &options)?, target)?.text)
}

/// The kernel that the wgpu backend makes of a program for a device that has everything, as WGSL; [`to_wgsl`] writes the program itself.
#[cfg(feature = "wgpu")]
pub fn to_kernel_wgsl(program: &ValidProgram, options: &kernel::Options) -> Result<String, Diagnostic> {
    let options = kernel::Options {
        expand_math: true,
        approximations: kernel::Approximations::Functions,
        narrow: kernel::Narrow::Words,
        ..options.clone()
    };
    vyre_wgpu::emit::wgsl(&vyre_wgpu::emit::emit(
        &kernel::lower(program, &options)?,
        vyre_wgpu::emit::Target::default(),
    )?)
}

/// Makes typed kernels of a WGSL file: `vyre::kernels!(mod life = "life.wgsl")`, with the path from the folder of your `Cargo.toml`.
///
/// The module has, for every compute entry point such as `fn step`:
///
/// - `life::Step`, a struct with a field for each binding: `&Array<T>` for what the kernel only reads, `&mut Array<T>` for what it writes,
///   and the value itself for a uniform. A struct that ends in an array of open length is a [`Buffer`] of bytes.
/// - `life::step(&engine)`, which gives a `life::StepKernel`. Its `launch` takes a `life::Step`; its `call` does too and gives a [`Call`],
///   for `grid`, `on`, `timeout` and `label`; its `kernel` is the same kernel by name, for graphs and explanations.
/// - where the file has `override` constants, `life::StepConstants`, whose `Default` has the file's values, and
///   `life::step_with(&engine, constants)`.
///
/// Structs that buffers hold are there under their own names, laid out as WGSL does: where it leaves gaps, they are made with `new` or
/// `default`. An element `vec3<f32>` is a [`Vec3`], a member `[f32; 3]`; matrices are arrays of their columns.
///
/// A wrong name or type, or a mistake in the file, is an error of the compiler; a changed file is compiled again. What is bound goes
/// through [`Call::bind`] and [`Call::value`], so a typed launch and one by name are the same.
///
/// ```
/// vyre::kernels!(mod life = "tests/kernels/life.wgsl");
///
/// # fn main() -> Result<(), vyre::Error> {
/// let engine = vyre::Engine::builder().without_disk().open()?;
/// let step = life::step_with(&engine, life::StepConstants { width: 5, height: 5 })?;
/// let rule = life::Rule { birth: 1 << 3, survive: 1 << 2 | 1 << 3 };
/// let upright: [u32; 25] = std::array::from_fn(|cell| u32::from([7, 12, 17].contains(&cell)));
/// let mut now = engine.array(&upright)?;
/// let mut next = engine.zeros_like(&now)?;
/// for _ in 0..3 {
///     step.launch(life::Step { now: &now, next: &mut next, rule })?;
///     std::mem::swap(&mut now, &mut next);
/// }
/// let lying: [u32; 25] = std::array::from_fn(|cell| u32::from([11, 12, 13].contains(&cell)));
/// assert_eq!(now.to_vec()?, lying);
/// # Ok(())
/// # }
/// ```
///
/// Elements of another type do not compile:
///
/// ```compile_fail,E0308
/// vyre::kernels!(mod life = "tests/kernels/life.wgsl");
///
/// fn step(kernel: &life::StepKernel, now: &vyre::Array<f32>, next: &mut vyre::Array<u32>, rule: life::Rule) {
///     kernel.launch(life::Step { now, next, rule });
/// }
/// ```
///
/// Nor does what is written but not lent to be written, nor a name that the file does not have, nor one that is left out:
///
/// ```compile_fail,E0308
/// vyre::kernels!(mod life = "tests/kernels/life.wgsl");
///
/// fn step(kernel: &life::StepKernel, now: &vyre::Array<u32>, next: &vyre::Array<u32>, rule: life::Rule) {
///     kernel.launch(life::Step { now, next, rule });
/// }
/// ```
///
/// ```compile_fail,E0560
/// vyre::kernels!(mod life = "tests/kernels/life.wgsl");
///
/// fn step(kernel: &life::StepKernel, now: &vyre::Array<u32>, then: &mut vyre::Array<u32>, rule: life::Rule) {
///     kernel.launch(life::Step { now, then, rule });
/// }
/// ```
///
/// ```compile_fail,E0063
/// vyre::kernels!(mod life = "tests/kernels/life.wgsl");
///
/// fn step(kernel: &life::StepKernel, now: &vyre::Array<u32>, next: &mut vyre::Array<u32>) {
///     kernel.launch(life::Step { now, next });
/// }
/// ```
#[cfg(feature = "macros")]
#[macro_export]
macro_rules! kernels {
    ($($module:tt)*) => { $crate::typed::kernels! { $crate, $($module)* } };
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
    #[doc = include_str!("../../../docs/runtime.md")]
    struct Runtime;
    #[doc = include_str!("../../../docs/variants.md")]
    struct Variants;
    #[doc = include_str!("../../../docs/warm-pack.md")]
    struct WarmPack;
}
