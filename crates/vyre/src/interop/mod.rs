//! Memory of others: the caller's own vectors, `ndarray`'s arrays, and memory of CUDA and wgpu programs in the same process. Libraries
//! that speak DLPack are in `dlpack.rs`.

#[cfg(feature = "cuda")]
mod cuda;
mod host;
#[cfg(feature = "ndarray")]
mod ndarray;
#[cfg(feature = "wgpu")]
mod wgpu;

#[cfg(feature = "cuda")]
pub use cuda::{CudaMemory, CudaView};
#[cfg(feature = "cuda")]
pub(crate) use cuda::{give_back, lend};
#[cfg(feature = "wgpu")]
pub use wgpu::WgpuView;
