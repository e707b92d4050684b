//! An adapter with its device, and how that is replaced when it is lost.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use vyre_driver::BackendError;
use vyre_driver::backend::{Binding, DeviceBuffer, Ledger, foreign};
use vyre_spec::codes;

use crate::adapter::Adapter;
use crate::context::Context;

/// An adapter and its device.
pub(crate) struct Device {
    pub(crate) adapter: Adapter,
    /// What became of the work on all generations of the device.
    pub(crate) ledger: Arc<Ledger>,
    context: RwLock<Option<Arc<Context>>>,
    generations: AtomicU64,
    numbers: AtomicU64,
}

impl Device {
    fn new(adapter: Adapter) -> Device {
        Device {
            adapter,
            ledger: Arc::new(Ledger::new(1)),
            context: RwLock::new(None),
            generations: AtomicU64::new(0),
            numbers: AtomicU64::new(1),
        }
    }

    pub(crate) fn open(adapter: Adapter) -> Result<Arc<Device>, BackendError> {
        let device = Device::new(adapter);
        device.reopen()?;
        Ok(Arc::new(device))
    }

    /// Somebody's own device.
    pub(crate) fn adopt(adapter: Adapter, device: wgpu::Device, queue: wgpu::Queue) -> Arc<Device> {
        let own = Device::new(adapter);
        let context = Context::adopt(&own.adapter, Arc::clone(&own.ledger), device, queue);
        *own.context.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(context));
        Arc::new(own)
    }

    /// A number that no other pipeline or buffer of this device has.
    pub(crate) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// The device, lost or not.
    pub(crate) fn latest(&self) -> Option<Arc<Context>> {
        self.context.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Runs something on the device, on a fresh one where the last was lost.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&Context) -> Result<T, BackendError>) -> Result<T, BackendError> {
        let context = loop {
            match self.latest() {
                Some(context) if !context.is_lost() => break context,
                _ => self.reopen()?,
            }
        };
        let done = work(&context);
        if context.is_lost() {
            context.lose();
            return Err(context.lost_error());
        }
        done
    }

    fn reopen(&self) -> Result<(), BackendError> {
        let mut context = self.context.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = &*context {
            if !old.is_lost() {
                // Somebody else was here first.
                return Ok(());
            }
            old.lose();
            if old.is_adopted() {
                return Err(old.lost_error());
            }
        }
        let generation = self.generations.fetch_add(1, Ordering::Relaxed) + 1;
        *context = Some(Arc::new(Context::open(&self.adapter, generation, Arc::clone(&self.ledger))?));
        Ok(())
    }
}

/// Device memory.
pub(crate) struct WgpuBuffer {
    pub(crate) device: Arc<Device>,
    pub(crate) generation: u64,
    pub(crate) number: u64,
    pub(crate) buffer: wgpu::Buffer,
    pub(crate) bytes: u64,
    /// Somebody else may map or destroy it, and so make submissions fail that use it.
    pub(crate) is_wrapped: bool,
}

impl WgpuBuffer {
    /// Refuses a buffer of another device, or one that was lost.
    pub(crate) fn check(&self, device: &Device, context: &Context) -> Result<&wgpu::Buffer, BackendError> {
        if !std::ptr::eq(&raw const *self.device, device) {
            return Err(foreign("buffer", device.adapter.id));
        }
        if self.generation != context.generation {
            return Err(BackendError::with_code(
                &codes::backend::DEVICE_LOST,
                "the buffer was lost with its device Fix: Allocate it again, and upload what it held.",
            ));
        }
        Ok(&self.buffer)
    }
}

impl WgpuBuffer {
    /// Where a part ends; to the end means to the end of the room behind it.
    pub(crate) fn end_of(&self, part: &Binding) -> u64 {
        let end = part.offset + part.bytes;
        if end == self.bytes { self.buffer.size() } else { end }
    }
}

impl DeviceBuffer for WgpuBuffer {
    fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for WgpuBuffer {
    fn drop(&mut self) {
        // What was kept for it holds its memory.
        if let Some(context) = self.device.latest()
            && context.generation == self.generation
        {
            context.forget_buffer(self.number);
        }
    }
}
