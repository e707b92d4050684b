//! Graphs: recorded work whose nodes are kept, so that their parameters can be changed.

use std::ffi::c_uint;

use smallvec::SmallVec;

use super::foreign::addresses;
use super::{Api, CudaError, DevicePointer, Handle, KernelLaunch, Ptr, call, ptr};

/// `CUDA_KERNEL_NODE_PARAMS`.
#[repr(C)]
pub(crate) struct KernelParams {
    pub(super) function: Ptr,
    pub(super) grid: [c_uint; 3],
    pub(super) block: [c_uint; 3],
    pub(super) shared: c_uint,
    pub(super) params: *mut Ptr,
    pub(super) extra: *mut Ptr,
}

/// One side of `CUDA_MEMCPY3D`.
#[repr(C)]
pub(super) struct CopySide {
    x: usize,
    y: usize,
    z: usize,
    level: usize,
    memory_type: c_uint,
    host: Ptr,
    pub(super) device: DevicePointer,
    array: Ptr,
    reserved: Ptr,
    pitch: usize,
    height: usize,
}

/// `CUDA_MEMCPY3D`.
#[repr(C)]
pub(crate) struct CopyParams {
    pub(super) from: CopySide,
    pub(super) to: CopySide,
    pub(super) width: usize,
    height: usize,
    depth: usize,
}

impl CopyParams {
    fn new(from: DevicePointer, to: DevicePointer, bytes: usize) -> CopyParams {
        const DEVICE: c_uint = 2;
        let none = std::ptr::null_mut();
        let side = |device| CopySide {
            x: 0,
            y: 0,
            z: 0,
            level: 0,
            memory_type: DEVICE,
            host: none,
            device,
            array: none,
            reserved: none,
            pitch: bytes,
            height: 1,
        };
        CopyParams { from: side(from), to: side(to), width: bytes, height: 1, depth: 1 }
    }
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[repr(C)]
pub(crate) struct FillParams {
    pub(super) to: DevicePointer,
    pitch: usize,
    value: c_uint,
    element: c_uint,
    pub(super) width: usize,
    height: usize,
}

impl FillParams {
    fn zeros(to: DevicePointer, bytes: usize) -> FillParams {
        FillParams { to, pitch: 0, value: 0, element: 1, width: bytes, height: 1 }
    }
}

/// What one node of a graph does.
pub(crate) enum Node<'a> {
    Kernel(KernelLaunch, &'a mut [u64]),
    Copy { from: DevicePointer, to: DevicePointer, bytes: usize },
    Clear { at: DevicePointer, bytes: usize },
}

type Addresses = SmallVec<[Ptr; 64]>;

fn kernel(launch: &KernelLaunch, params: &mut Addresses) -> KernelParams {
    KernelParams {
        function: ptr(launch.function),
        grid: launch.grid,
        block: launch.block,
        shared: launch.dynamic_shared,
        params: params.as_mut_ptr(),
        extra: std::ptr::null_mut(),
    }
}

impl Api {
    pub(crate) fn create_graph(&self) -> Result<Handle, CudaError> {
        let mut graph = std::ptr::null_mut();
        call!(self, cuGraphCreate(&raw mut graph, 0))?;
        Ok(graph as Handle)
    }

    /// Adds a node that runs after another.
    pub(crate) fn add_node(
        &self,
        graph: Handle,
        after: Option<Handle>,
        node: Node<'_>,
        context: Handle,
    ) -> Result<Handle, CudaError> {
        let before = after.map(ptr);
        let (before, count) =
            (before.as_ref().map_or(std::ptr::null(), std::ptr::from_ref), usize::from(after.is_some()));
        let (graph, mut made) = (ptr(graph), std::ptr::null_mut());
        match node {
            Node::Kernel(launch, params) => {
                let mut params = addresses(params, launch.tensor_maps);
                let params = kernel(&launch, &mut params);
                call!(self, cuGraphAddKernelNode(&raw mut made, graph, before, count, &raw const params))?;
            }
            Node::Copy { from, to, bytes } => {
                let params = CopyParams::new(from, to, bytes);
                let context = ptr(context);
                call!(self, cuGraphAddMemcpyNode(&raw mut made, graph, before, count, &raw const params, context))?;
            }
            Node::Clear { at, bytes } => {
                let params = FillParams::zeros(at, bytes);
                let context = ptr(context);
                call!(self, cuGraphAddMemsetNode(&raw mut made, graph, before, count, &raw const params, context))?;
            }
        }
        Ok(made as Handle)
    }

    /// Changes a node in a graph that is ready to launch, for its next launches.
    pub(crate) fn change_node(
        &self,
        ready: Handle,
        node: Handle,
        new: Node<'_>,
        context: Handle,
    ) -> Result<(), CudaError> {
        match new {
            Node::Kernel(launch, params) => {
                let mut params = addresses(params, launch.tensor_maps);
                let params = kernel(&launch, &mut params);
                call!(self, cuGraphExecKernelNodeSetParams(ptr(ready), ptr(node), &raw const params))
            }
            Node::Copy { from, to, bytes } => {
                let params = CopyParams::new(from, to, bytes);
                call!(self, cuGraphExecMemcpyNodeSetParams(ptr(ready), ptr(node), &raw const params, ptr(context)))
            }
            Node::Clear { at, bytes } => {
                let params = FillParams::zeros(at, bytes);
                call!(self, cuGraphExecMemsetNodeSetParams(ptr(ready), ptr(node), &raw const params, ptr(context)))
            }
        }
    }

    /// Makes a graph ready to launch.
    pub(crate) fn instantiate(&self, graph: Handle) -> Result<Handle, CudaError> {
        let mut ready = std::ptr::null_mut();
        call!(self, cuGraphInstantiate(&raw mut ready, ptr(graph), 0))?;
        Ok(ready as Handle)
    }

    pub(crate) fn launch_graph(&self, ready: Handle, stream: Handle) -> Result<(), CudaError> {
        call!(self, cuGraphLaunch(ptr(ready), ptr(stream)))
    }

    pub(crate) fn destroy_ready(&self, ready: Handle) -> Result<(), CudaError> {
        call!(self, cuGraphExecDestroy(ptr(ready)))
    }

    pub(crate) fn destroy_graph(&self, graph: Handle) -> Result<(), CudaError> {
        call!(self, cuGraphDestroy(ptr(graph)))
    }
}
