//! Buffers of a program's own wgpu device.

use std::marker::PhantomData;
use std::sync::Arc;

use vyre_spec::{Diagnostic, codes};
use vyre_wgpu::{WgpuBackend, wgpu};

use crate::array::{Array, Element};
use crate::runtime::{Device, Export, Storage};
use crate::{Engine, Error};

fn known(device: &Device) -> Result<&WgpuBackend, Error> {
    device.backend.as_any().and_then(|backend| backend.downcast_ref()).ok_or_else(|| {
        let message = format!("`{}` is not a wgpu device", device.id);
        Diagnostic::new(&codes::backend::FOREIGN_HANDLE, message).with_fix("Name one, such as `wgpu`.").into()
    })
}

impl Engine {
    /// An array in a buffer of the device that the engine was [opened with](crate::EngineBuilder::wgpu_device), without a copy. It needs
    /// the usages `STORAGE`, `COPY_SRC` and `COPY_DST`. It is a value like others: what is launched on it on that device works in that
    /// buffer, and [`Array::wgpu`] brings there what was changed elsewhere.
    pub fn wrap_wgpu<T: Element>(&self, backend: &str, buffer: wgpu::Buffer) -> Result<Array<T>, Error> {
        let device = self.inner.device(backend)?;
        let bytes = buffer.size();
        let buffer = known(&device)?.wrap(buffer)?;
        let storage = Storage::of_device(&self.inner, &device, buffer, bytes, None);
        crate::Buffer::new(storage).into_array()
    }
}

impl<T: Element> Array<T> {
    /// The buffer with the elements on a wgpu device, for work that the caller submits to its queue: that work comes after ours that makes
    /// the elements, and ours that is launched later comes after it. The elements stay there until the view is dropped.
    pub fn wgpu(&self, backend: &str) -> Result<WgpuView<'_>, Error> {
        WgpuView::new(self.storage(), backend, false)
    }

    /// [`wgpu`](Self::wgpu) for work that also writes the elements.
    pub fn wgpu_mut(&mut self, backend: &str) -> Result<WgpuView<'_>, Error> {
        self.unshare()?;
        WgpuView::new(self.storage(), backend, true)
    }
}

/// Elements of an array in a wgpu buffer, in the hands of the caller until it is dropped.
pub struct WgpuView<'a> {
    export: Export,
    buffer: wgpu::Buffer,
    write: bool,
    array: PhantomData<&'a ()>,
}

impl WgpuView<'_> {
    fn new(storage: &Arc<Storage>, backend: &str, write: bool) -> Result<Self, Error> {
        let device = storage.engine.device(backend)?;
        known(&device)?;
        let export = storage.export(&device, write)?;
        // Gives all that was launched to the queue.
        let buffer = known(&device)?.raw_buffer(&export.binding().buffer)?.clone();
        Ok(WgpuView { export, buffer, write, array: PhantomData })
    }

    /// The buffer; the elements start at its first byte.
    pub fn buffer(&self) -> &wgpu::Buffer {
        &self.buffer
    }

    /// How many bytes the elements are; the buffer may have more.
    pub fn bytes(&self) -> u64 {
        self.export.binding().bytes
    }
}

impl Drop for WgpuView<'_> {
    fn drop(&mut self) {
        self.export.returned(None, self.write);
    }
}
