//! The CUDA driver API: a table of functions that is filled from the driver's library at run time, and checked calls of them.
//!
//! All of this crate's `unsafe` is here, but for the marks of the two methods that take addresses from outside. Handles are plain
//! numbers.

#[cfg(test)]
pub(crate) mod fake;
mod foreign;
mod graph;
mod pinned;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) use graph::Node;
pub(crate) use pinned::{Pinned, Words};
use vyre_spec::{Diagnostic, codes};

/// A handle or pointer of the driver; only the driver looks behind it.
pub(crate) type Handle = usize;
/// An address in device memory.
pub(crate) type DevicePointer = u64;

/// What a call answered when it failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CudaError {
    call: &'static str,
    code: c_int,
    text: String,
}

impl CudaError {
    /// The device or the process's share of it has not enough memory.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        self.code == 2
    }

    /// The context can't be used any more.
    pub(crate) fn is_fault(&self) -> bool {
        // Deinitialized, destroyed and corrupted contexts, ECC and link errors, faults of kernels, and "unknown".
        matches!(self.code, 4 | 201 | 214 | 220 | 226 | 700 | 702 | 709 | 710 | 714..=719 | 999)
    }

    fn new(api: Option<&Api>, call: &'static str, code: c_int) -> CudaError {
        let text = api.map_or(String::new(), |api| api.describe(code));
        CudaError { call, code, text }
    }
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} answered {}", self.call, self.code)?;
        if self.text.is_empty() { Ok(()) } else { write!(f, ", {}", self.text) }
    }
}

type Result<T> = std::result::Result<T, CudaError>;

macro_rules! table {
    ($($name:ident = $symbol:literal ($($arg:ty),* $(,)?);)*) => {
        /// The functions, by their names in the header. A suffix of the symbol is the version of its interface.
        #[allow(non_snake_case)]
        struct Table {
            $($name: unsafe extern "system" fn($($arg),*) -> c_int,)*
            /// Keeps the functions where they are.
            _library: Option<libloading::Library>,
        }

        impl Table {
            fn load(library: libloading::Library) -> std::result::Result<Table, libloading::Error> {
                Ok(Table {
                    // SAFETY: the types are those of the driver's header for these symbols.
                    $($name: unsafe { *library.get($symbol)? },)*
                    _library: Some(library),
                })
            }

            /// Functions of our own in the place of the driver's.
            #[cfg(test)]
            fn fake() -> Table {
                Table { $($name: fake::$name,)* _library: None }
            }
        }
    };
}

type Out<T> = *mut T;
type Ptr = *mut c_void;

table! {
    cuInit = b"cuInit" (c_uint);
    cuDriverGetVersion = b"cuDriverGetVersion" (Out<c_int>);
    cuGetErrorName = b"cuGetErrorName" (c_int, Out<*const c_char>);
    cuGetErrorString = b"cuGetErrorString" (c_int, Out<*const c_char>);
    cuDeviceGetCount = b"cuDeviceGetCount" (Out<c_int>);
    cuDeviceGet = b"cuDeviceGet" (Out<c_int>, c_int);
    cuDeviceGetName = b"cuDeviceGetName" (Out<c_char>, c_int, c_int);
    cuDeviceGetAttribute = b"cuDeviceGetAttribute" (Out<c_int>, c_int, c_int);
    cuDeviceTotalMem = b"cuDeviceTotalMem_v2" (Out<usize>, c_int);
    cuDevicePrimaryCtxRetain = b"cuDevicePrimaryCtxRetain" (Out<Ptr>, c_int);
    cuDevicePrimaryCtxRelease = b"cuDevicePrimaryCtxRelease_v2" (c_int);
    cuCtxGetStreamPriorityRange = b"cuCtxGetStreamPriorityRange" (Out<c_int>, Out<c_int>);
    cuCtxGetCurrent = b"cuCtxGetCurrent" (Out<Ptr>);
    cuCtxSetCurrent = b"cuCtxSetCurrent" (Ptr);
    cuStreamCreate = b"cuStreamCreateWithPriority" (Out<Ptr>, c_uint, c_int);
    cuStreamDestroy = b"cuStreamDestroy_v2" (Ptr);
    cuStreamSynchronize = b"cuStreamSynchronize" (Ptr);
    cuStreamQuery = b"cuStreamQuery" (Ptr);
    cuStreamWaitEvent = b"cuStreamWaitEvent" (Ptr, Ptr, c_uint);
    cuStreamWriteValue64 = b"cuStreamWriteValue64_v2" (Ptr, DevicePointer, u64, c_uint);
    cuStreamWaitValue64 = b"cuStreamWaitValue64_v2" (Ptr, DevicePointer, u64, c_uint);
    cuGraphCreate = b"cuGraphCreate" (Out<Ptr>, c_uint);
    cuGraphAddKernelNode = b"cuGraphAddKernelNode" (Out<Ptr>, Ptr, *const Ptr, usize, *const graph::KernelParams);
    cuGraphAddMemcpyNode = b"cuGraphAddMemcpyNode" (Out<Ptr>, Ptr, *const Ptr, usize, *const graph::CopyParams, Ptr);
    cuGraphAddMemsetNode = b"cuGraphAddMemsetNode" (Out<Ptr>, Ptr, *const Ptr, usize, *const graph::FillParams, Ptr);
    cuGraphExecKernelNodeSetParams = b"cuGraphExecKernelNodeSetParams" (Ptr, Ptr, *const graph::KernelParams);
    cuGraphExecMemcpyNodeSetParams = b"cuGraphExecMemcpyNodeSetParams" (Ptr, Ptr, *const graph::CopyParams, Ptr);
    cuGraphExecMemsetNodeSetParams = b"cuGraphExecMemsetNodeSetParams" (Ptr, Ptr, *const graph::FillParams, Ptr);
    cuGraphInstantiate = b"cuGraphInstantiateWithFlags" (Out<Ptr>, Ptr, u64);
    cuGraphLaunch = b"cuGraphLaunch" (Ptr, Ptr);
    cuGraphExecDestroy = b"cuGraphExecDestroy" (Ptr);
    cuGraphDestroy = b"cuGraphDestroy" (Ptr);
    cuEventCreate = b"cuEventCreate" (Out<Ptr>, c_uint);
    cuEventRecord = b"cuEventRecord" (Ptr, Ptr);
    cuEventDestroy = b"cuEventDestroy_v2" (Ptr);
    cuEventSynchronize = b"cuEventSynchronize" (Ptr);
    cuEventElapsedTime = b"cuEventElapsedTime" (Out<f32>, Ptr, Ptr);
    cuDeviceGetDefaultMemPool = b"cuDeviceGetDefaultMemPool" (Out<Ptr>, c_int);
    cuMemPoolSetAttribute = b"cuMemPoolSetAttribute" (Ptr, c_int, Ptr);
    cuMemPoolTrimTo = b"cuMemPoolTrimTo" (Ptr, usize);
    cuMemAllocAsync = b"cuMemAllocAsync" (Out<DevicePointer>, usize, Ptr);
    cuMemFreeAsync = b"cuMemFreeAsync" (DevicePointer, Ptr);
    cuMemsetD8Async = b"cuMemsetD8Async" (DevicePointer, u8, usize, Ptr);
    cuMemcpyHtoDAsync = b"cuMemcpyHtoDAsync_v2" (DevicePointer, *const c_void, usize, Ptr);
    cuMemcpyDtoHAsync = b"cuMemcpyDtoHAsync_v2" (Ptr, DevicePointer, usize, Ptr);
    cuMemcpyDtoDAsync = b"cuMemcpyDtoDAsync_v2" (DevicePointer, DevicePointer, usize, Ptr);
    cuMemAlloc = b"cuMemAlloc_v2" (Out<DevicePointer>, usize);
    cuMemFree = b"cuMemFree_v2" (DevicePointer);
    cuMemAllocManaged = b"cuMemAllocManaged" (Out<DevicePointer>, usize, c_uint);
    cuMemAdvise = b"cuMemAdvise" (DevicePointer, usize, c_int, c_int);
    cuPointerGetAttribute = b"cuPointerGetAttribute" (Ptr, c_int, DevicePointer);
    cuMemHostAlloc = b"cuMemHostAlloc" (Out<Ptr>, usize, c_uint);
    cuMemFreeHost = b"cuMemFreeHost" (Ptr);
    cuLinkCreate = b"cuLinkCreate_v2" (c_uint, Out<c_int>, Out<Ptr>, Out<Ptr>);
    cuLinkAddData = b"cuLinkAddData_v2" (Ptr, c_int, Ptr, usize, *const c_char, c_uint, Out<c_int>, Out<Ptr>);
    cuLinkComplete = b"cuLinkComplete" (Ptr, Out<Ptr>, Out<usize>);
    cuLinkDestroy = b"cuLinkDestroy" (Ptr);
    cuModuleLoadData = b"cuModuleLoadData" (Out<Ptr>, *const c_void);
    cuModuleUnload = b"cuModuleUnload" (Ptr);
    cuModuleGetFunction = b"cuModuleGetFunction" (Out<Ptr>, Ptr, *const c_char);
    cuFuncSetAttribute = b"cuFuncSetAttribute" (Ptr, c_int, c_int);
    cuFuncGetAttribute = b"cuFuncGetAttribute" (Out<c_int>, c_int, Ptr);
    cuLaunchKernel = b"cuLaunchKernel" (Ptr, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Ptr, Out<Ptr>, Out<Ptr>);
}

/// The driver of this process.
pub(crate) struct Api {
    table: Table,
}

/// Calls a function of the table and turns its answer into a `Result`.
macro_rules! call {
    ($api:expr, $name:ident($($arg:expr),* $(,)?)) => {{
        // SAFETY: the arguments are of the types that the driver's header declares; pointers among them point to values that
        // live across the call, and sizes are those of what they point to.
        let code = unsafe { ($api.table.$name)($($arg),*) };
        if code == 0 { Ok(()) } else { Err(CudaError::new(Some($api), stringify!($name), code)) }
    }};
}
use call;

fn ptr(handle: Handle) -> Ptr {
    handle as Ptr
}

/// Attributes of a device, by their numbers in the header.
#[derive(Clone, Copy)]
pub(crate) enum Attribute {
    MaxThreadsPerBlock = 1,
    MaxBlockX = 2,
    MaxBlockY = 3,
    MaxBlockZ = 4,
    CapabilityMajor = 75,
    CapabilityMinor = 76,
    SharedMemoryOptIn = 97,
    ConcurrentManagedAccess = 89,
    MemoryPools = 115,
    LongStreamWords = 122,
    Integrated = 18,
}

impl Api {
    /// The driver, loaded and initialised once for the process; or why there is none, in one line.
    pub(crate) fn get() -> std::result::Result<&'static Api, Diagnostic> {
        static API: OnceLock<std::result::Result<Api, Diagnostic>> = OnceLock::new();
        API.get_or_init(|| Api::load(if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" }))
            .as_ref()
            .map_err(Clone::clone)
    }

    fn load(name: &str) -> std::result::Result<Api, Diagnostic> {
        let absent = |why: String| {
            let why = why.lines().next().unwrap_or_default().to_owned();
            Diagnostic::new(&codes::cuda::NO_DRIVER, format!("there is no usable CUDA driver: {why}"))
        };
        // SAFETY: the driver's library runs its own start-up code, which expects nothing of us.
        let library = unsafe { libloading::Library::new(name) }.map_err(|error| absent(error.to_string()))?;
        let table = Table::load(library).map_err(|error| absent(error.to_string()))?;
        let api = Api { table };
        call!(&api, cuInit(0)).map_err(|error| absent(error.to_string()))?;
        Ok(api)
    }

    /// A driver that is a model of one, for tests.
    #[cfg(test)]
    pub(crate) fn fake() -> Api {
        Api { table: Table::fake() }
    }

    fn describe(&self, code: c_int) -> String {
        let text = |function: unsafe extern "system" fn(c_int, Out<*const c_char>) -> c_int| {
            let mut text: *const c_char = std::ptr::null();
            // SAFETY: the driver writes the address of a string that it never frees, or null.
            unsafe {
                if function(code, &raw mut text) != 0 || text.is_null() {
                    return None;
                }
                Some(CStr::from_ptr(text).to_string_lossy().into_owned())
            }
        };
        match (text(self.table.cuGetErrorName), text(self.table.cuGetErrorString)) {
            (Some(name), Some(meaning)) => format!("{name}: {meaning}"),
            (Some(name), None) => name,
            _ => String::new(),
        }
    }

    pub(crate) fn driver_version(&self) -> Result<i32> {
        let mut version = 0;
        call!(self, cuDriverGetVersion(&raw mut version))?;
        Ok(version)
    }

    pub(crate) fn device_count(&self) -> Result<i32> {
        let mut count = 0;
        call!(self, cuDeviceGetCount(&raw mut count))?;
        Ok(count)
    }

    pub(crate) fn device(&self, ordinal: i32) -> Result<c_int> {
        let mut device = 0;
        call!(self, cuDeviceGet(&raw mut device, ordinal))?;
        Ok(device)
    }

    pub(crate) fn device_name(&self, device: c_int) -> Result<String> {
        let mut name = [0u8; 256];
        call!(self, cuDeviceGetName(name.as_mut_ptr().cast(), 256, device))?;
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        Ok(String::from_utf8_lossy(&name[..end]).into_owned())
    }

    pub(crate) fn attribute(&self, device: c_int, attribute: Attribute) -> Result<u32> {
        let mut value = 0;
        call!(self, cuDeviceGetAttribute(&raw mut value, attribute as c_int, device))?;
        Ok(value.max(0) as u32)
    }

    pub(crate) fn total_memory(&self, device: c_int) -> Result<u64> {
        let mut bytes = 0;
        call!(self, cuDeviceTotalMem(&raw mut bytes, device))?;
        Ok(bytes as u64)
    }

    pub(crate) fn retain_context(&self, device: c_int) -> Result<Handle> {
        let mut context = std::ptr::null_mut();
        call!(self, cuDevicePrimaryCtxRetain(&raw mut context, device))?;
        Ok(context as Handle)
    }

    /// Gives a context back. Once nobody in the process holds it any more, it is gone with all that is in it.
    pub(crate) fn release_context(&self, device: c_int) -> Result<()> {
        call!(self, cuDevicePrimaryCtxRelease(device))
    }

    /// Makes a context the one that this thread's calls mean, until the answer is dropped.
    pub(crate) fn enter(&self, context: Handle) -> Result<Entered<'_>> {
        // Looking costs a fraction of setting, and mostly it is the one already.
        let mut current = std::ptr::null_mut();
        call!(self, cuCtxGetCurrent(&raw mut current))?;
        let before = current as Handle;
        if before == context {
            return Ok(Entered { api: self, back: None });
        }
        call!(self, cuCtxSetCurrent(ptr(context)))?;
        // A thread that had none keeps this one.
        Ok(Entered { api: self, back: Some(before).filter(|&before| before != 0) })
    }

    /// A stream that does not wait for the default stream. Urgent ones never share a channel of the hardware with the others, so
    /// that they reach the device while those are blocked.
    pub(crate) fn create_stream(&self, urgent: bool) -> Result<Handle> {
        const NON_BLOCKING: c_uint = 1;
        let (mut stream, mut least, mut greatest) = (std::ptr::null_mut(), 0, 0);
        call!(self, cuCtxGetStreamPriorityRange(&raw mut least, &raw mut greatest))?;
        let priority = if urgent { greatest } else { least };
        call!(self, cuStreamCreate(&raw mut stream, NON_BLOCKING, priority))?;
        Ok(stream as Handle)
    }

    pub(crate) fn destroy_stream(&self, stream: Handle) -> Result<()> {
        call!(self, cuStreamDestroy(ptr(stream)))
    }

    pub(crate) fn synchronize(&self, stream: Handle) -> Result<()> {
        call!(self, cuStreamSynchronize(ptr(stream)))
    }

    /// Asks only whether the context is still well: work that is under way is no error.
    pub(crate) fn is_well(&self, stream: Handle) -> Result<()> {
        const NOT_READY: c_int = 600;
        match call!(self, cuStreamQuery(ptr(stream))) {
            Err(error) if error.code != NOT_READY => Err(error),
            _ => Ok(()),
        }
    }

    /// Writes a word when all earlier work of the stream is over.
    pub(crate) fn write_value(&self, word: DevicePointer, value: u64, stream: Handle) -> Result<()> {
        call!(self, cuStreamWriteValue64(ptr(stream), word, value, 0))
    }

    /// Later work of the stream waits until a word is at least so large.
    pub(crate) fn wait_value(&self, word: DevicePointer, value: u64, stream: Handle) -> Result<()> {
        const AT_LEAST: c_uint = 0;
        call!(self, cuStreamWaitValue64(ptr(stream), word, value, AT_LEAST))
    }

    /// Later work of the stream waits for what lies before the event.
    pub(crate) fn stream_waits(&self, event: Handle, stream: Handle) -> Result<()> {
        call!(self, cuStreamWaitEvent(ptr(stream), ptr(event), 0))
    }

    pub(crate) fn destroy_event(&self, event: Handle) -> Result<()> {
        call!(self, cuEventDestroy(ptr(event)))
    }

    pub(crate) fn create_event(&self, timed: bool) -> Result<Handle> {
        const NO_TIMING: c_uint = 2;
        let mut event = std::ptr::null_mut();
        call!(self, cuEventCreate(&raw mut event, if timed { 0 } else { NO_TIMING }))?;
        Ok(event as Handle)
    }

    pub(crate) fn record(&self, event: Handle, stream: Handle) -> Result<()> {
        call!(self, cuEventRecord(ptr(event), ptr(stream)))
    }

    pub(crate) fn wait_event(&self, event: Handle) -> Result<()> {
        call!(self, cuEventSynchronize(ptr(event)))
    }

    pub(crate) fn elapsed_ns(&self, from: Handle, to: Handle) -> Result<u64> {
        let mut milliseconds = 0f32;
        call!(self, cuEventElapsedTime(&raw mut milliseconds, ptr(from), ptr(to)))?;
        Ok((f64::from(milliseconds) * 1e6).max(0.0) as u64)
    }

    /// The pool from which `allocate` takes; it keeps up to `keep` bytes that were freed.
    pub(crate) fn default_pool(&self, device: c_int, keep: u64) -> Result<Handle> {
        const RELEASE_THRESHOLD: c_int = 4;
        let (mut pool, mut keep) = (std::ptr::null_mut(), keep);
        call!(self, cuDeviceGetDefaultMemPool(&raw mut pool, device))?;
        call!(self, cuMemPoolSetAttribute(pool, RELEASE_THRESHOLD, (&raw mut keep).cast()))?;
        Ok(pool as Handle)
    }

    pub(crate) fn trim_pool(&self, pool: Handle) -> Result<()> {
        call!(self, cuMemPoolTrimTo(ptr(pool), 0))
    }

    pub(crate) fn allocate(&self, bytes: usize, stream: Handle) -> Result<DevicePointer> {
        let mut pointer = 0;
        call!(self, cuMemAllocAsync(&raw mut pointer, bytes, ptr(stream)))?;
        Ok(pointer)
    }

    pub(crate) fn free(&self, pointer: DevicePointer, stream: Handle) -> Result<()> {
        call!(self, cuMemFreeAsync(pointer, ptr(stream)))
    }

    pub(crate) fn clear(&self, at: DevicePointer, bytes: usize, stream: Handle) -> Result<()> {
        call!(self, cuMemsetD8Async(at, 0, bytes, ptr(stream)))
    }

    /// Copies from memory that the driver did not pin: it takes a copy before it returns.
    pub(crate) fn upload(&self, to: DevicePointer, from: &[u8], stream: Handle) -> Result<()> {
        call!(self, cuMemcpyHtoDAsync(to, from.as_ptr().cast(), from.len(), ptr(stream)))
    }

    /// Copies to memory that the driver did not pin, after all earlier work of the stream: returns when it is done.
    pub(crate) fn download(&self, to: &mut [u8], from: DevicePointer, stream: Handle) -> Result<()> {
        call!(self, cuMemcpyDtoHAsync(to.as_mut_ptr().cast(), from, to.len(), ptr(stream)))?;
        self.synchronize(stream)
    }

    pub(crate) fn copy(&self, to: DevicePointer, from: DevicePointer, bytes: usize, stream: Handle) -> Result<()> {
        call!(self, cuMemcpyDtoDAsync(to, from, bytes, ptr(stream)))
    }

    /// Copies to memory that the device reaches by itself, in order with the stream.
    pub(crate) fn download_async(&self, to: usize, from: DevicePointer, bytes: usize, stream: Handle) -> Result<()> {
        call!(self, cuMemcpyDtoHAsync(ptr(to), from, bytes, ptr(stream)))
    }

    /// Copies from memory that the device reaches by itself, in order with the stream.
    pub(crate) fn upload_async(&self, to: DevicePointer, from: usize, bytes: usize, stream: Handle) -> Result<()> {
        call!(self, cuMemcpyHtoDAsync(to, from as *const c_void, bytes, ptr(stream)))
    }

    /// Memory of the device outside the pool; for the few words that outlive all work.
    pub(crate) fn allocate_fixed(&self, bytes: usize) -> Result<DevicePointer> {
        let mut pointer = 0;
        call!(self, cuMemAlloc(&raw mut pointer, bytes))?;
        Ok(pointer)
    }

    /// Zeros that host and device reach at the same address at the same time, of which both keep copies while nobody writes.
    pub(crate) fn allocate_shared(&self, bytes: usize, device: c_int) -> Result<DevicePointer> {
        const ATTACH_GLOBAL: c_uint = 1;
        const READ_MOSTLY: c_int = 1;
        let mut pointer = 0;
        call!(self, cuMemAllocManaged(&raw mut pointer, bytes, ATTACH_GLOBAL))?;
        // SAFETY: the memory was just allocated with that many bytes, and nothing runs that knows of it.
        unsafe { std::ptr::write_bytes(pointer as *mut u8, 0, bytes) };
        call!(self, cuMemAdvise(pointer, bytes, READ_MOSTLY, device))?;
        Ok(pointer)
    }

    /// Writes a word of memory that [`allocate_shared`](Self::allocate_shared) gave, while the device may be reading it.
    pub(crate) fn write_shared(&self, at: DevicePointer, word: u32) {
        // SAFETY: the callers pass addresses of whole words of such memory, which lives as long as the device.
        unsafe { AtomicU32::from_ptr(at as *mut u32) }.store(word, Ordering::Release);
    }

    /// Reads such a word.
    pub(crate) fn read_shared(&self, at: DevicePointer) -> u32 {
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(at as *mut u32) }.load(Ordering::Acquire)
    }

    pub(crate) fn free_fixed(&self, pointer: DevicePointer) -> Result<()> {
        call!(self, cuMemFree(pointer))
    }

    /// The driver knows this address as host memory that the device reaches by itself.
    pub(crate) fn is_pinned(&self, address: usize) -> bool {
        const HOST: u32 = 1;
        self.pointer_attribute(address as u64, PointerAttribute::MemoryType) == Some(HOST)
    }

    /// The address is one of device memory of this device.
    pub(crate) fn is_on(&self, pointer: DevicePointer, device: c_int) -> bool {
        const DEVICE: u32 = 2;
        self.pointer_attribute(pointer, PointerAttribute::MemoryType) == Some(DEVICE)
            && self.pointer_attribute(pointer, PointerAttribute::Device) == Some(device as u32)
    }

    /// `None` for addresses that the driver knows nothing of.
    fn pointer_attribute(&self, pointer: DevicePointer, attribute: PointerAttribute) -> Option<u32> {
        let mut value = 0u32;
        call!(self, cuPointerGetAttribute((&raw mut value).cast(), attribute as c_int, pointer)).ok()?;
        Some(value)
    }

    /// Compiles PTX for the current context's device and gives the cubin, or the driver's complaints.
    pub(crate) fn link(&self, ptx: &str) -> std::result::Result<Vec<u8>, (CudaError, String)> {
        const ERROR_LOG: c_int = 5;
        const ERROR_LOG_BYTES: c_int = 6;
        const PTX: c_int = 1;
        let mut log = vec![0u8; 8192];
        let mut options = [ERROR_LOG, ERROR_LOG_BYTES];
        let mut values: [Ptr; 2] = [log.as_mut_ptr().cast(), log.len() as Ptr];
        let mut state = std::ptr::null_mut();
        let complaints = |log: &[u8]| {
            let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
            String::from_utf8_lossy(&log[..end]).trim().to_owned()
        };
        let options_count = options.len() as c_uint;
        call!(self, cuLinkCreate(options_count, options.as_mut_ptr(), values.as_mut_ptr(), &raw mut state))
            .map_err(|error| (error, String::new()))?;
        let mut text = ptx.as_bytes().to_vec();
        text.push(0);
        let (mut cubin, mut size) = (std::ptr::null_mut(), 0usize);
        let none = std::ptr::null_mut::<c_void>();
        let added = call!(
            self,
            cuLinkAddData(
                state,
                PTX,
                text.as_mut_ptr().cast(),
                text.len(),
                c"kernel".as_ptr(),
                0,
                none.cast(),
                none.cast()
            )
        );
        let linked = added.and_then(|()| call!(self, cuLinkComplete(state, &raw mut cubin, &raw mut size)));
        let result = match linked {
            // SAFETY: the driver wrote the address and size of the cubin, which lives until the link state is destroyed.
            Ok(()) => Ok(unsafe { std::slice::from_raw_parts(cubin.cast::<u8>(), size) }.to_vec()),
            Err(error) => Err((error, complaints(&log))),
        };
        call!(self, cuLinkDestroy(state)).map_err(|error| (error, String::new()))?;
        result
    }

    /// Loads a cubin (or PTX text that ends in a zero byte).
    pub(crate) fn load_module(&self, image: &[u8]) -> Result<Handle> {
        // The driver reads as far as the image's own headers say; a text ends at its zero byte.
        let mut image = image.to_vec();
        image.push(0);
        let mut module = std::ptr::null_mut();
        call!(self, cuModuleLoadData(&raw mut module, image.as_ptr().cast()))?;
        Ok(module as Handle)
    }

    pub(crate) fn unload_module(&self, module: Handle) -> Result<()> {
        call!(self, cuModuleUnload(ptr(module)))
    }

    pub(crate) fn function(&self, module: Handle, name: &CStr) -> Result<Handle> {
        let mut function = std::ptr::null_mut();
        call!(self, cuModuleGetFunction(&raw mut function, ptr(module), name.as_ptr()))?;
        // Drivers load a function when it is first needed, and may wait for everything that runs to do so. Asking for its
        // registers needs it now; the first launch might be one beside a launch that does not end.
        const REGISTERS: c_int = 4;
        let mut registers = 0;
        call!(self, cuFuncGetAttribute(&raw mut registers, REGISTERS, function))?;
        Ok(function as Handle)
    }

    pub(crate) fn allow_dynamic_shared(&self, function: Handle, bytes: u32) -> Result<()> {
        const MAX_DYNAMIC_SHARED: c_int = 8;
        call!(self, cuFuncSetAttribute(ptr(function), MAX_DYNAMIC_SHARED, bytes as c_int))
    }

    /// Queues a launch. Every parameter takes eight bytes here; a 32-bit one is read from the first four.
    pub(crate) fn launch(&self, launch: &KernelLaunch, params: &mut [u64], stream: Handle) -> Result<()> {
        let mut addresses = foreign::addresses(params, launch.tensor_maps);
        let KernelLaunch { function, grid: [gx, gy, gz], block: [bx, by, bz], dynamic_shared, .. } = *launch;
        let (addresses, none) = (addresses.as_mut_ptr(), std::ptr::null_mut());
        let stream = ptr(stream);
        call!(self, cuLaunchKernel(ptr(function), gx, gy, gz, bx, by, bz, dynamic_shared, stream, addresses, none))
    }
}

#[derive(Clone, Copy)]
enum PointerAttribute {
    MemoryType = 2,
    Device = 9,
}

/// A context is current on this thread; the one that was before comes back in the end.
pub(crate) struct Entered<'a> {
    api: &'a Api,
    back: Option<Handle>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.back {
            // Nobody could be told; the thread's next call says it if that context is gone.
            _ = call!(self.api, cuCtxSetCurrent(ptr(before)));
        }
    }
}

/// What is launched and how.
#[derive(Clone, Copy)]
pub(crate) struct KernelLaunch {
    pub(crate) function: Handle,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) dynamic_shared: u32,
    /// Parameters at the beginning that are tensor maps, of sixteen words each.
    pub(crate) tensor_maps: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_or_foreign_library_is_one_line() {
        for name in ["libnothing-of-this-name.so.1", "libm.so.6"] {
            let reason = Api::load(name).err().expect("there is no driver by this name");
            assert_eq!(reason.code.id, codes::cuda::NO_DRIVER.id);
            assert!(!reason.message.contains('\n'), "{}", reason.message);
        }
    }
}
