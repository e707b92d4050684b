//! DLPack: arrays of other libraries in the same process, in and out, without a copy where that can be. The structs are those of
//! `dlpack.h`; Python's `__dlpack__` passes pointers to them in capsules.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::sync::Arc;

use smallvec::SmallVec;
use vyre_driver::backend::HostMemory;
use vyre_foundation::ir::DataType;
use vyre_spec::{Diagnostic, codes};

use crate::array::{Array, Element, Layout, Shape};
#[cfg(feature = "cuda")]
use crate::runtime::Export;
use crate::runtime::Storage;
use crate::{Engine, Error};

/// The host's own memory, as [`DLDevice::device_type`].
pub const DL_CPU: i32 = 1;
/// Memory of a CUDA device.
pub const DL_CUDA: i32 = 2;
/// Pinned memory of the host.
pub const DL_CUDA_HOST: i32 = 3;

/// Where memory is.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDevice {
    /// [`DL_CPU`], [`DL_CUDA`] or another kind.
    pub device_type: i32,
    /// Which one of its kind.
    pub device_id: i32,
}

/// What an element is.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDataType {
    /// 0 signed, 1 unsigned, 2 float, 4 bfloat.
    pub code: u8,
    /// Its bits.
    pub bits: u8,
    /// Components; 1 where it is no vector.
    pub lanes: u16,
}

/// Elements in memory.
#[repr(C)]
#[derive(Debug)]
pub struct DLTensor {
    /// Where the memory starts.
    pub data: *mut c_void,
    /// Where the memory is.
    pub device: DLDevice,
    /// Number of axes.
    pub ndim: i32,
    /// What an element is.
    pub dtype: DLDataType,
    /// The extents.
    pub shape: *mut i64,
    /// The distances of neighbours in elements; null where they lie one after another.
    pub strides: *mut i64,
    /// Where in the memory the first element is.
    pub byte_offset: u64,
}

/// A tensor with its owner.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensor {
    /// The elements.
    pub dl_tensor: DLTensor,
    /// The owner's.
    pub manager_ctx: *mut c_void,
    /// Called once by whoever has the tensor when it needs it no more.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

/// The version of DLPack that a struct follows.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLPackVersion {
    /// Structs of another one can't be read.
    pub major: u32,
    /// Structs of another one can.
    pub minor: u32,
}

/// A tensor with its owner, from version 1 on.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensorVersioned {
    /// The version.
    pub version: DLPackVersion,
    /// The owner's.
    pub manager_ctx: *mut c_void,
    /// Called once by whoever has the tensor when it needs it no more.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    /// Bit 0: it must not be written.
    pub flags: u64,
    /// The elements.
    pub dl_tensor: DLTensor,
}

const VERSION: DLPackVersion = DLPackVersion { major: 1, minor: 0 };
const READ_ONLY: u64 = 1;
/// More axes than any library has.
const MOST_AXES: i32 = 32;

/// The two forms that a tensor comes in.
trait Managed: Sized + 'static {
    fn tensor(&self) -> &DLTensor;
    fn is_read_only(&self) -> bool;
    /// Tells the owner; it is called once.
    unsafe fn delete(this: *mut Self);
    fn make(tensor: DLTensor, owner: *mut c_void) -> Self;
    fn owner(&self) -> *mut c_void;
}

impl Managed for DLManagedTensor {
    fn tensor(&self) -> &DLTensor {
        &self.dl_tensor
    }

    fn is_read_only(&self) -> bool {
        false
    }

    unsafe fn delete(this: *mut Self) {
        // SAFETY: the tensor is whole until its deleter was called.
        if let Some(deleter) = unsafe { (*this).deleter } {
            // SAFETY: called once, by the one who has it.
            unsafe { deleter(this) }
        }
    }

    fn make(dl_tensor: DLTensor, manager_ctx: *mut c_void) -> Self {
        DLManagedTensor { dl_tensor, manager_ctx, deleter: Some(drop_exported::<Self>) }
    }

    fn owner(&self) -> *mut c_void {
        self.manager_ctx
    }
}

impl Managed for DLManagedTensorVersioned {
    fn tensor(&self) -> &DLTensor {
        &self.dl_tensor
    }

    fn is_read_only(&self) -> bool {
        self.flags & READ_ONLY != 0
    }

    unsafe fn delete(this: *mut Self) {
        // SAFETY: the tensor is whole until its deleter was called.
        if let Some(deleter) = unsafe { (*this).deleter } {
            // SAFETY: called once, by the one who has it.
            unsafe { deleter(this) }
        }
    }

    fn make(dl_tensor: DLTensor, manager_ctx: *mut c_void) -> Self {
        let deleter = Some(drop_exported::<Self> as unsafe extern "C" fn(*mut Self));
        DLManagedTensorVersioned { version: VERSION, manager_ctx, deleter, flags: 0, dl_tensor }
    }

    fn owner(&self) -> *mut c_void {
        self.manager_ctx
    }
}

/// A tensor that was given to us.
struct Taken<M: Managed>(*mut M);

// SAFETY: DLPack's tensors may be deleted by any thread; nothing else is done with it once its memory is known.
unsafe impl<M: Managed> Send for Taken<M> {}

impl<M: Managed> Drop for Taken<M> {
    fn drop(&mut self) {
        // SAFETY: it is ours, and this happens once.
        unsafe { M::delete(self.0) }
    }
}

fn refused(message: String) -> Error {
    Diagnostic::new(&codes::engine::FOREIGN_TENSOR, message).into()
}

impl Engine {
    /// An array with the elements of a DLPack tensor, which is consumed: its deleter is called once, when its memory is no longer needed,
    /// or before an error is given.
    ///
    /// Memory of the host is used in place; it is copied where its elements don't lie one after another or don't start at a multiple of
    /// eight bytes. CUDA memory is used in place, on the device `cuda`, `cuda:1` and so on; where its elements don't lie one after another
    /// it is refused. `stream` is the CUDA stream whose work so far comes first, if any.
    ///
    /// # Safety
    /// `tensor` points to a tensor as `dlpack.h` says, which the caller has and gives up. Nobody else writes its memory while the array is
    /// there. The stream is one of the device's primary context.
    pub unsafe fn from_dlpack<T: Element>(
        &self,
        tensor: *mut DLManagedTensor,
        stream: Option<usize>,
    ) -> Result<Array<T>, Error> {
        // SAFETY: the caller's promise.
        unsafe { self.take(tensor, stream) }
    }

    /// [`from_dlpack`](Self::from_dlpack) of a tensor that says its version. One that must not be written is copied.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn from_dlpack_versioned<T: Element>(
        &self,
        tensor: *mut DLManagedTensorVersioned,
        stream: Option<usize>,
    ) -> Result<Array<T>, Error> {
        // SAFETY: the caller's promise. Of another version nothing but version and deleter may be looked at.
        if !tensor.is_null() && unsafe { (*tensor).version.major } != VERSION.major {
            // SAFETY: as above.
            let major = unsafe { (*tensor).version.major };
            drop(Taken(tensor));
            return Err(refused(format!("the tensor follows version {major} of DLPack, which is not known here")));
        }
        // SAFETY: the caller's promise.
        unsafe { self.take(tensor, stream) }
    }

    unsafe fn take<T: Element, M: Managed>(&self, managed: *mut M, stream: Option<usize>) -> Result<Array<T>, Error> {
        if managed.is_null() {
            return Err(refused("there is no tensor".to_owned()));
        }
        let owner = Taken(managed);
        // SAFETY: not null, and whole until its deleter is called.
        let (tensor, is_read_only) = unsafe { ((*managed).tensor(), (*managed).is_read_only()) };
        if dtype::<T>() != Some(tensor.dtype) {
            let DLDataType { code, bits, lanes } = tensor.dtype;
            let message =
                format!("the tensor's elements (code {code}, {bits} bits, {lanes} lanes) are not the array's");
            return Err(Diagnostic::new(&codes::engine::WRONG_ELEMENT, message).into());
        }
        // SAFETY: the caller's promise about shape and strides.
        let layout = unsafe { layout(tensor)? };
        let shape = Shape::from(layout.shape());
        let (length, span) = (layout.len(), layout.span());
        if length == 0 {
            return self.zeros(shape);
        }
        let bytes = span.len().checked_mul(size_of::<T>()).filter(|&bytes| bytes <= isize::MAX as usize);
        let bytes = bytes.ok_or_else(|| refused("the tensor has more bytes than there can be".to_owned()))?;
        let at =
            tensor.byte_offset as isize + (span.start as isize - layout.offset() as isize) * size_of::<T>() as isize;
        let start = tensor.data.cast::<u8>().wrapping_offset(at);
        match tensor.device.device_type {
            DL_CPU | DL_CUDA_HOST => {
                if layout.is_contiguous() && !is_read_only && start.addr().is_multiple_of(8) {
                    // SAFETY: the caller's promise; the tensor is deleted when the memory is dropped.
                    let memory = unsafe { HostMemory::owned_by(start, bytes, Box::new(owner)) };
                    let storage = Storage::of_host(&self.inner, Arc::new(memory), bytes as u64);
                    return Array::new(storage, length.into(), length).shaped(shape);
                }
                let mut elements = Vec::with_capacity(length);
                for position in layout.positions() {
                    // SAFETY: within the span, as the caller promises; it need not be aligned.
                    elements.push(unsafe { start.cast::<T>().add(position - span.start).read_unaligned() });
                }
                drop(owner);
                self.array_of_vec(elements)?.shaped(shape)
            }
            DL_CUDA => {
                if !layout.is_contiguous() {
                    return Err(refused("a CUDA tensor's elements don't lie one after another".to_owned()));
                }
                // SAFETY: the caller's promise.
                let array = unsafe {
                    self.take_cuda::<T>(tensor.device.device_id, start.addr() as u64, stream, Box::new(owner), length)?
                };
                let array = if is_read_only { array.copied()? } else { array };
                array.shaped(shape)
            }
            other => Err(refused(format!("the tensor is on a device of kind {other}, which is neither host nor CUDA"))),
        }
    }

    #[cfg(feature = "cuda")]
    unsafe fn take_cuda<T: Element>(
        &self,
        device: i32,
        pointer: u64,
        stream: Option<usize>,
        owner: Box<dyn std::any::Any + Send>,
        length: usize,
    ) -> Result<Array<T>, Error> {
        let memory = crate::CudaMemory { pointer, stream, owner };
        // SAFETY: the caller's promise.
        unsafe { self.wrap_cuda(&cuda_name(device), memory, length) }
    }

    #[cfg(not(feature = "cuda"))]
    unsafe fn take_cuda<T: Element>(
        &self,
        device: i32,
        _: u64,
        _: Option<usize>,
        _: Box<dyn std::any::Any + Send>,
        _: usize,
    ) -> Result<Array<T>, Error> {
        Err(refused(format!("the tensor is on CUDA device {device}, and this build has no CUDA")))
    }
}

#[cfg(feature = "cuda")]
fn cuda_name(device: i32) -> String {
    if device == 0 { "cuda".to_owned() } else { format!("cuda:{device}") }
}

/// The element of an array as DLPack names it; `None` for vectors and structs.
fn dtype<T: Element>() -> Option<DLDataType> {
    use DataType::{BF16, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
    let (code, bits) = match T::data_type()? {
        I8 => (0, 8),
        I16 => (0, 16),
        I32 => (0, 32),
        I64 => (0, 64),
        U8 => (1, 8),
        U16 => (1, 16),
        U32 => (1, 32),
        U64 => (1, 64),
        F16 => (2, 16),
        F32 => (2, 32),
        F64 => (2, 64),
        BF16 => (4, 16),
        _ => return None,
    };
    // An array of numbers that is no vector has the type of its elements.
    (size_of::<T>() * 8 == usize::from(bits)).then_some(DLDataType { code, bits, lanes: 1 })
}

/// The layout of a tensor, with the first position that it uses as position 0.
unsafe fn layout(tensor: &DLTensor) -> Result<Layout, Error> {
    let wrong = || refused("the tensor's shape is none".to_owned());
    let axes = Some(tensor.ndim).filter(|axes| (0..=MOST_AXES).contains(axes)).ok_or_else(wrong)? as usize;
    if axes > 0 && tensor.shape.is_null() {
        return Err(wrong());
    }
    let mut extents: SmallVec<[usize; 4]> = SmallVec::new();
    let mut strides: SmallVec<[isize; 4]> = SmallVec::new();
    for axis in 0..axes {
        // SAFETY: there is one for each axis.
        extents.push(usize::try_from(unsafe { tensor.shape.add(axis).read() }).map_err(|_| wrong())?);
        if !tensor.strides.is_null() {
            // SAFETY: there is one for each axis.
            strides.push(unsafe { tensor.strides.add(axis).read() } as isize);
        }
    }
    if tensor.strides.is_null() || extents.contains(&0) {
        return Layout::contiguous(&extents[..]);
    }
    let mut before = 0usize;
    for (&extent, &stride) in extents.iter().zip(&strides) {
        if stride < 0 {
            let far = (extent - 1).checked_mul(stride.unsigned_abs()).and_then(|far| before.checked_add(far));
            before = far.filter(|&far| far <= isize::MAX as usize).ok_or_else(wrong)?;
        }
    }
    Layout::strided(&extents[..], &strides, before, isize::MAX as usize)
}

/// An array that was given away: the tensor, and what keeps its memory.
struct Exported<M> {
    managed: Option<M>,
    shape: Vec<i64>,
    strides: Vec<i64>,
    kept: Kept,
}

#[allow(clippy::large_enum_variant, reason = "there is one for each tensor in the hands of others")]
enum Kept {
    Host(#[allow(dead_code, reason = "it is kept for its memory")] Arc<Storage>),
    #[cfg(feature = "cuda")]
    Cuda(Box<Export>, Option<usize>),
}

impl<M> Drop for Exported<M> {
    fn drop(&mut self) {
        match &self.kept {
            Kept::Host(_) => {}
            #[cfg(feature = "cuda")]
            Kept::Cuda(export, stream) => crate::interop::give_back(export, *stream, true),
        }
    }
}

unsafe extern "C" fn drop_exported<M: Managed>(managed: *mut M) {
    // SAFETY: whoever has the tensor calls this once; the owner is the box that was made for it.
    drop(unsafe { Box::from_raw((*managed).owner().cast::<Exported<M>>()) });
}

impl<T: Element> Array<T> {
    /// The elements as a DLPack tensor for somebody else, who calls its deleter. They are given where they are: on the CUDA device that
    /// holds them, else on the host. The host waits for the work that they need, unless they are on a CUDA device and `stream` says whose
    /// later work waits for it instead.
    ///
    /// # Safety
    /// The stream is one of the device's primary context.
    pub unsafe fn into_dlpack(self, stream: Option<usize>) -> Result<*mut DLManagedTensor, Error> {
        // SAFETY: the caller's promise.
        unsafe { self.give(stream) }
    }

    /// [`into_dlpack`](Self::into_dlpack) as a tensor that says its version.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn into_dlpack_versioned(self, stream: Option<usize>) -> Result<*mut DLManagedTensorVersioned, Error> {
        // SAFETY: the caller's promise.
        unsafe { self.give(stream) }
    }

    #[cfg_attr(not(feature = "cuda"), allow(unused_variables, reason = "streams are CUDA's"))]
    unsafe fn give<M: Managed>(mut self, stream: Option<usize>) -> Result<*mut M, Error> {
        let dtype = dtype::<T>().ok_or_else(|| {
            let message = "vectors and structs have no name in DLPack";
            Error::from(Diagnostic::new(&codes::engine::WRONG_ELEMENT, message).with_fix("Use an array of numbers."))
        })?;
        self.unshare()?;
        let layout = Layout::contiguous(self.shape())?;
        let whole = 0..self.storage().bytes;
        let on_cuda: Option<(DLDevice, *mut c_void, Kept)> = {
            #[cfg(feature = "cuda")]
            let lent = crate::interop::lend(self.storage(), stream)?.map(|(number, export, pointer)| {
                let device = DLDevice { device_type: DL_CUDA, device_id: number };
                (device, pointer as usize as *mut c_void, Kept::Cuda(Box::new(export), stream))
            });
            #[cfg(not(feature = "cuda"))]
            let lent = None;
            lent
        };
        let (device, data, kept) = match on_cuda {
            Some(lent) => lent,
            None => {
                let data = self.storage().on_host(&whole, true, None)?.address().cast();
                (DLDevice { device_type: DL_CPU, device_id: 0 }, data, Kept::Host(self.storage().clone()))
            }
        };
        let mut exported = Box::new(Exported {
            managed: None,
            shape: layout.shape().iter().map(|&extent| extent as i64).collect(),
            strides: layout.strides().iter().map(|&stride| stride as i64).collect(),
            kept,
        });
        let tensor = DLTensor {
            data,
            device,
            ndim: exported.shape.len() as i32,
            dtype,
            shape: exported.shape.as_mut_ptr(),
            strides: exported.strides.as_mut_ptr(),
            byte_offset: 0,
        };
        let exported = Box::into_raw(exported);
        // SAFETY: just made, and nobody else has it.
        Ok(unsafe { (*exported).managed.insert(M::make(tensor, exported.cast())) })
    }
}
