//! CUDA memory and streams of others in the same process. They share the device's primary context, as everything does that is built on
//! CUDA's runtime.
#![allow(unsafe_code)]

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use vyre_cuda::CudaBackend;
use vyre_driver::backend::Order;
use vyre_spec::{Diagnostic, codes};

use crate::array::{Array, Element};
use crate::runtime::{Device, Export, Storage};
use crate::{Engine, Error};

/// Device memory of somebody else.
pub struct CudaMemory {
    /// Where it starts on the device, at a multiple of 16.
    pub pointer: u64,
    /// The `CUstream` or `cudaStream_t` whose work so far comes first; `None` where all of it is over.
    pub stream: Option<usize>,
    /// Dropped when the array no longer needs the memory.
    pub owner: Box<dyn Any + Send>,
}

/// CUDA's own backend behind a device.
pub(crate) fn backend(device: &Device) -> Option<&CudaBackend> {
    device.backend.as_any()?.downcast_ref()
}

fn known(device: &Device) -> Result<&CudaBackend, Error> {
    backend(device).ok_or_else(|| {
        let message = format!("`{}` is not a CUDA device", device.id);
        Diagnostic::new(&codes::backend::FOREIGN_HANDLE, message).with_fix("Name one, such as `cuda`.").into()
    })
}

impl Engine {
    /// An array in device memory of somebody else, without a copy. It is a value like others: what is launched on it on that device works
    /// in that memory, and [`Array::cuda`] brings there what was changed elsewhere.
    ///
    /// # Safety
    /// The memory is of this device and holds `length` elements, up to a whole multiple of 16 bytes, until `owner` is dropped. Nobody else
    /// writes it while the array is there, nor reads it but through [`Array::cuda`]. The stream is one of the device's primary context.
    pub unsafe fn wrap_cuda<T: Element>(
        &self,
        backend: &str,
        memory: CudaMemory,
        length: usize,
    ) -> Result<Array<T>, Error> {
        let device = self.inner.device(backend)?;
        let cuda = known(&device)?;
        let bytes = (length as u64).saturating_mul(size_of::<T>() as u64);
        // SAFETY: the caller's promise.
        let buffer = unsafe { cuda.wrap(memory.pointer, bytes, memory.owner)? };
        let mut ready = None;
        if let Some(stream) = memory.stream {
            let order = Order { queue: device.fresh_queue(), ..Order::default() };
            // SAFETY: the caller's promise.
            ready = Some(unsafe { cuda.wait_for_stream(stream, &order)? });
        }
        let storage = Storage::of_device(&self.inner, &device, buffer, bytes, ready);
        Ok(Array::new(storage, length.into(), length))
    }
}

impl<T: Element> Array<T> {
    /// Where the elements are on a CUDA device, for work that others put on a stream: that work comes after ours that makes the elements,
    /// and ours that comes later waits for what is on the stream when the view is dropped. The elements stay there meanwhile.
    ///
    /// # Safety
    /// The stream is one of the device's primary context. What is put on it only reads the elements.
    pub unsafe fn cuda(&self, backend: &str, stream: usize) -> Result<CudaView<'_>, Error> {
        // SAFETY: the caller's promise.
        unsafe { CudaView::new(self.storage(), backend, stream, false) }
    }

    /// [`cuda`](Self::cuda) for work that also writes the elements.
    ///
    /// # Safety
    /// The stream is one of the device's primary context.
    pub unsafe fn cuda_mut(&mut self, backend: &str, stream: usize) -> Result<CudaView<'_>, Error> {
        self.unshare()?;
        // SAFETY: the caller's promise.
        unsafe { CudaView::new(self.storage(), backend, stream, true) }
    }
}

/// Elements of an array on a CUDA device, in the hands of others until it is dropped.
pub struct CudaView<'a> {
    export: Export,
    pointer: u64,
    stream: usize,
    write: bool,
    array: PhantomData<&'a ()>,
}

impl<'a> CudaView<'a> {
    unsafe fn new(storage: &Arc<Storage>, backend: &str, stream: usize, write: bool) -> Result<CudaView<'a>, Error> {
        let device = storage.engine.device(backend)?;
        known(&device)?;
        let export = storage.export(&device, write)?;
        let cuda = known(&device)?;
        let pointer = cuda.raw_pointer(&export.binding().buffer)? + export.binding().offset;
        for &ticket in export.after() {
            // SAFETY: the caller's promise.
            unsafe { cuda.make_stream_wait(ticket, stream)? };
        }
        Ok(CudaView { export, pointer, stream, write, array: PhantomData })
    }

    /// Where the elements start on the device.
    pub fn pointer(&self) -> u64 {
        self.pointer
    }

    /// How many bytes they are.
    pub fn bytes(&self) -> u64 {
        self.export.binding().bytes
    }
}

impl Drop for CudaView<'_> {
    fn drop(&mut self) {
        give_back(&self.export, Some(self.stream), self.write);
    }
}

/// The elements of an array that are on a CUDA device, for others: its number, and where they are.
pub(crate) fn lend(storage: &Arc<Storage>, stream: Option<usize>) -> Result<Option<(i32, Export, u64)>, Error> {
    let Some(device) = storage.only_on() else { return Ok(None) };
    let Some(cuda) = backend(&device) else { return Ok(None) };
    let export = storage.export(&device, true)?;
    match stream {
        Some(stream) => {
            for &ticket in export.after() {
                // SAFETY: the promise of whoever gives the stream.
                unsafe { cuda.make_stream_wait(ticket, stream)? };
            }
        }
        None => storage.settle(&(0..storage.bytes), None)?,
    }
    let pointer = cuda.raw_pointer(&export.binding().buffer)? + export.binding().offset;
    let number = device.id.as_str().split_once(':').and_then(|(_, number)| number.parse().ok()).unwrap_or(0);
    Ok(Some((number, export, pointer)))
}

/// What was lent comes back: what is on the stream now comes before the memory is used for something else.
pub(crate) fn give_back(export: &Export, stream: Option<usize>, written: bool) {
    let (Some(cuda), Some(stream)) = (backend(export.device()), stream) else {
        return export.returned(None, written);
    };
    let order = Order { queue: export.device().fresh_queue(), ..Order::default() };
    // SAFETY: the promise of whoever gave the stream.
    match unsafe { cuda.wait_for_stream(stream, &order) } {
        Ok(ticket) => export.returned(Some(ticket), written),
        // The device is lost, and everything on it; who reads the array is told.
        Err(error) => tracing::warn!(code = error.code(), "a CUDA stream can't be waited for: {}", error.message()),
    }
}
