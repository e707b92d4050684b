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

/// A kernel with one workgroup of 64, and its parameters as ours has them.
pub(crate) struct RawKernel {
    function: Ptr,
    params: [u64; 11],
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
        let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
        call!(self, cuModuleLoadData(&raw mut module, image.as_ptr().cast()));
        call!(self, cuModuleGetFunction(&raw mut function, module, c"vyre_kernel".as_ptr().cast()));
        Ok(RawKernel { function, params: [memory, elements, elements, grid.into(), 1, 1, 0, 0, 0, 0, 0] })
    }

    /// A launch that marks its start in a word, or nowhere.
    pub(crate) fn launch(&self, kernel: &mut RawKernel, mark: u64, stream: Ptr) -> Outcome<()> {
        kernel.params[9] = mark;
        let groups = kernel.params[3] as u32;
        let mut params = kernel.params.each_mut().map(|param| (&raw mut *param).cast::<c_void>());
        let (none, params) = (std::ptr::null_mut(), params.as_mut_ptr());
        call!(self, cuLaunchKernel(kernel.function, groups, 1, 1, 64, 1, 1, 0, stream, params, none));
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
}
