//! The driver without anything around it, on the same kernel and in the same run: what our figures are held against.

use std::ffi::{c_int, c_uint, c_void};

use libloading::Library;

pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error>>;
type Ptr = *mut c_void;

macro_rules! table {
    ($($name:ident = $symbol:literal ($($arg:ty),*);)*) => {
        #[allow(non_snake_case)]
        struct Table { $($name: unsafe extern "system" fn($($arg),*) -> c_int,)* }

        impl Table {
            fn load(library: &Library) -> Outcome<Table> {
                // SAFETY: the types are those of the driver's header for these symbols.
                Ok(Table { $($name: unsafe { *library.get($symbol)? },)* })
            }
        }
    };
}

table! {
    cuInit = b"cuInit" (c_uint);
    cuDeviceGet = b"cuDeviceGet" (*mut c_int, c_int);
    cuDevicePrimaryCtxRetain = b"cuDevicePrimaryCtxRetain" (*mut Ptr, c_int);
    cuCtxSetCurrent = b"cuCtxSetCurrent" (Ptr);
    cuModuleLoadData = b"cuModuleLoadData" (*mut Ptr, *const c_void);
    cuModuleGetFunction = b"cuModuleGetFunction" (*mut Ptr, Ptr, *const i8);
    cuStreamCreate = b"cuStreamCreate" (*mut Ptr, c_uint);
    cuStreamSynchronize = b"cuStreamSynchronize" (Ptr);
    cuStreamWriteValue64 = b"cuStreamWriteValue64_v2" (Ptr, u64, u64, c_uint);
    cuEventCreate = b"cuEventCreate" (*mut Ptr, c_uint);
    cuEventRecord = b"cuEventRecord" (Ptr, Ptr);
    cuMemAlloc = b"cuMemAlloc_v2" (*mut u64, usize);
    cuMemFree = b"cuMemFree_v2" (u64);
    cuMemHostAlloc = b"cuMemHostAlloc" (*mut Ptr, usize, c_uint);
    cuMemFreeHost = b"cuMemFreeHost" (Ptr);
    cuMemcpyHtoDAsync = b"cuMemcpyHtoDAsync_v2" (u64, *const c_void, usize, Ptr);
    cuMemcpyDtoHAsync = b"cuMemcpyDtoHAsync_v2" (Ptr, u64, usize, Ptr);
    cuLaunchKernel = b"cuLaunchKernel"
        (Ptr, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Ptr, *mut Ptr, *mut Ptr);
    cuStreamBeginCapture = b"cuStreamBeginCapture_v2" (Ptr, c_int);
    cuStreamEndCapture = b"cuStreamEndCapture" (Ptr, *mut Ptr);
    cuGraphInstantiate = b"cuGraphInstantiateWithFlags" (*mut Ptr, Ptr, u64);
    cuGraphLaunch = b"cuGraphLaunch" (Ptr, Ptr);
    cuGraphCreate = b"cuGraphCreate" (*mut Ptr, c_uint);
    cuGraphAddKernelNode = b"cuGraphAddKernelNode_v2" (*mut Ptr, Ptr, *const Ptr, usize, *const NodeParams);
    cuGraphExecKernelNodeSetParams = b"cuGraphExecKernelNodeSetParams_v2" (Ptr, Ptr, *const NodeParams);
}

/// The driver in the primary context of the first device.
pub(crate) struct Raw {
    table: Table,
    _library: Library,
}

macro_rules! call {
    ($raw:expr, $name:ident($($arg:expr),*)) => {{
        // SAFETY: the arguments are of the header's types; pointers among them point to what lives across the call.
        match unsafe { ($raw.table.$name)($($arg),*) } {
            0 => {}
            code => return Err(format!("{} answered {code}", stringify!($name)).into()),
        }
    }};
}

/// `CUDA_KERNEL_NODE_PARAMS`.
#[repr(C)]
struct NodeParams {
    function: Ptr,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    params: *mut Ptr,
    extra: *mut Ptr,
    kernel: Ptr,
    context: Ptr,
}

/// The parameters that our kernels can have, in order; a kernel has those whose bits are set in its artifact.
const OF_A_BUFFER: usize = 3;
const OTHERS: usize = 9;
const MARK: usize = 6;
const PARAMS: usize = OF_A_BUFFER + OTHERS;

/// A kernel with workgroups of 64, and its parameters as ours has them.
pub(crate) struct RawKernel {
    function: Ptr,
    groups: u32,
    params: [u64; PARAMS],
    /// Where the kernel has the address of its mark.
    mark: Option<usize>,
}

impl RawKernel {
    fn addresses(&mut self) -> [Ptr; PARAMS] {
        self.params.each_mut().map(|param| (&raw mut *param).cast::<c_void>())
    }

    fn node(&self, params: &mut [Ptr; PARAMS]) -> NodeParams {
        let none = std::ptr::null_mut();
        NodeParams {
            function: self.function,
            grid: [self.groups, 1, 1],
            block: [64, 1, 1],
            shared: 0,
            params: params.as_mut_ptr(),
            extra: std::ptr::null_mut(),
            kernel: none,
            context: none,
        }
    }
}

/// A graph whose nodes can be changed.
pub(crate) struct RawGraph {
    ready: Ptr,
    nodes: Vec<Ptr>,
}

impl Raw {
    pub(crate) fn new() -> Outcome<Raw> {
        // SAFETY: the driver's library runs its own start-up code, which expects nothing of us.
        let library = unsafe { Library::new("libcuda.so.1") }?;
        let raw = Raw { table: Table::load(&library)?, _library: library };
        let (mut device, mut context) = (0, std::ptr::null_mut());
        call!(raw, cuInit(0));
        call!(raw, cuDeviceGet(&raw mut device, 0));
        call!(raw, cuDevicePrimaryCtxRetain(&raw mut context, device));
        call!(raw, cuCtxSetCurrent(context));
        Ok(raw)
    }

    pub(crate) fn stream(&self) -> Outcome<Ptr> {
        let mut stream = std::ptr::null_mut();
        call!(self, cuStreamCreate(&raw mut stream, 1));
        Ok(stream)
    }

    pub(crate) fn synchronize(&self, stream: Ptr) -> Outcome<()> {
        call!(self, cuStreamSynchronize(stream));
        Ok(())
    }

    pub(crate) fn pinned(&self, bytes: usize) -> Outcome<Ptr> {
        let mut memory = std::ptr::null_mut();
        call!(self, cuMemHostAlloc(&raw mut memory, bytes, 3));
        Ok(memory)
    }

    pub(crate) fn free_pinned(&self, memory: Ptr) -> Outcome<()> {
        call!(self, cuMemFreeHost(memory));
        Ok(())
    }

    pub(crate) fn memory(&self, bytes: usize) -> Outcome<u64> {
        let mut memory = 0;
        call!(self, cuMemAlloc(&raw mut memory, bytes));
        Ok(memory)
    }

    pub(crate) fn free(&self, memory: u64) -> Outcome<()> {
        call!(self, cuMemFree(memory));
        Ok(())
    }

    /// The kernel of a stored pipeline with one buffer, which is bound to so many elements of memory.
    pub(crate) fn kernel(&self, artifact: &[u8], memory: u64, elements: u64, grid: u32) -> Outcome<RawKernel> {
        let code = artifact.windows(4).position(|four| four == b"\x7fELF").ok_or("no machine code in the artifact")?;
        let image = artifact[code..].to_vec();
        // Which parameters there are stands before the length of the code.
        let word = |back: usize| -> Outcome<u32> {
            let at = code.checked_sub(back).ok_or("the artifact is too short")?;
            Ok(u32::from_le_bytes(artifact[at..at + 4].try_into()?))
        };
        let (of_buffer, others) = (word(12)?, word(8)?);
        let all = [memory, elements, elements, grid.into(), 1, 1, 0, 0, 0, 0, 0, 0];
        let is_there = |at: usize| match at.checked_sub(OF_A_BUFFER) {
            None => of_buffer & 1 << at != 0,
            Some(other) => others & 1 << other != 0,
        };
        let (mut params, mut mark) = ([0; PARAMS], None);
        for (to, at) in (0..PARAMS).filter(|&at| is_there(at)).enumerate() {
            params[to] = all[at];
            mark = if at == OF_A_BUFFER + MARK { Some(to) } else { mark };
        }
        let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
        call!(self, cuModuleLoadData(&raw mut module, image.as_ptr().cast()));
        call!(self, cuModuleGetFunction(&raw mut function, module, c"vyre_kernel".as_ptr().cast()));
        Ok(RawKernel { function, groups: grid, params, mark })
    }

    /// A launch that marks its start in a word, or nowhere.
    pub(crate) fn launch(&self, kernel: &mut RawKernel, mark: u64, stream: Ptr) -> Outcome<()> {
        if let Some(at) = kernel.mark {
            kernel.params[at] = mark;
        }
        let (function, groups, mut params) = (kernel.function, kernel.groups, kernel.addresses());
        let (none, params) = (std::ptr::null_mut(), params.as_mut_ptr());
        call!(self, cuLaunchKernel(function, groups, 1, 1, 64, 1, 1, 0, stream, params, none));
        Ok(())
    }

    pub(crate) fn write_value(&self, word: u64, value: u64, stream: Ptr) -> Outcome<()> {
        call!(self, cuStreamWriteValue64(stream, word, value, 0));
        Ok(())
    }

    /// Waits until a word of pinned memory has a value.
    pub(crate) fn spin(&self, word: u64, value: u64) {
        // SAFETY: the word was pinned here, and the device writes all of it at once.
        while unsafe { (word as *const u64).read_volatile() } != value {
            std::hint::spin_loop();
        }
    }

    pub(crate) fn event(&self) -> Outcome<Ptr> {
        let mut event = std::ptr::null_mut();
        call!(self, cuEventCreate(&raw mut event, 2));
        Ok(event)
    }

    pub(crate) fn record(&self, event: Ptr, stream: Ptr) -> Outcome<()> {
        call!(self, cuEventRecord(event, stream));
        Ok(())
    }

    /// Starts a copy from pinned memory.
    pub(crate) fn upload(&self, to: u64, from: Ptr, bytes: usize, stream: Ptr) -> Outcome<()> {
        call!(self, cuMemcpyHtoDAsync(to, from, bytes, stream));
        Ok(())
    }

    /// Starts a copy to pinned memory.
    pub(crate) fn download(&self, to: Ptr, from: u64, bytes: usize, stream: Ptr) -> Outcome<()> {
        call!(self, cuMemcpyDtoHAsync(to, from, bytes, stream));
        Ok(())
    }

    /// A graph of so many launches, one after another.
    pub(crate) fn graph(&self, kernel: &mut RawKernel, launches: u32, stream: Ptr) -> Outcome<Ptr> {
        let (mut graph, mut ready) = (std::ptr::null_mut(), std::ptr::null_mut());
        call!(self, cuStreamBeginCapture(stream, 1));
        for _ in 0..launches {
            self.launch(kernel, 0, stream)?;
        }
        call!(self, cuStreamEndCapture(stream, &raw mut graph));
        call!(self, cuGraphInstantiate(&raw mut ready, graph, 0));
        Ok(ready)
    }

    pub(crate) fn launch_graph(&self, graph: Ptr, stream: Ptr) -> Outcome<()> {
        call!(self, cuGraphLaunch(graph, stream));
        Ok(())
    }

    /// The same, with its nodes.
    pub(crate) fn changeable(&self, kernel: &mut RawKernel, launches: u32) -> Outcome<RawGraph> {
        let (mut graph, mut ready) = (std::ptr::null_mut(), std::ptr::null_mut());
        call!(self, cuGraphCreate(&raw mut graph, 0));
        let mut nodes: Vec<Ptr> = Vec::new();
        let mut params = kernel.addresses();
        let node = kernel.node(&mut params);
        for _ in 0..launches {
            let (before, mut made) = (nodes.last().copied(), std::ptr::null_mut());
            let (first, count) = (before.as_ref().map_or(std::ptr::null(), std::ptr::from_ref), before.iter().count());
            call!(self, cuGraphAddKernelNode(&raw mut made, graph, first, count, &raw const node));
            nodes.push(made);
        }
        call!(self, cuGraphInstantiate(&raw mut ready, graph, 0));
        Ok(RawGraph { ready, nodes })
    }

    /// Gives every node other memory and launches the graph.
    pub(crate) fn launch_changed(
        &self,
        graph: &RawGraph,
        kernel: &mut RawKernel,
        memory: u64,
        stream: Ptr,
    ) -> Outcome<()> {
        kernel.params[0] = memory;
        let mut params = kernel.addresses();
        let changed = kernel.node(&mut params);
        for &node in &graph.nodes {
            call!(self, cuGraphExecKernelNodeSetParams(graph.ready, node, &raw const changed));
        }
        self.launch_graph(graph.ready, stream)
    }
}
