use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vyre_spec::{Diagnostic, codes};

use super::{Array, Element};
use crate::runtime::Storage;
use crate::{Engine, Error};

/// Bytes without a type: what an [`Array`] is made of. Everything that is said there of values, order and loss holds here.
#[derive(Clone)]
pub struct Buffer {
    pub(crate) storage: Arc<Storage>,
}

impl Engine {
    /// A buffer of so many zero bytes.
    pub fn buffer(&self, bytes: u64) -> Buffer {
        Buffer::new(Storage::zeros(&self.inner, bytes))
    }

    /// A buffer with these bytes, which are copied before this returns.
    pub fn buffer_of(&self, bytes: &[u8]) -> Result<Buffer, Error> {
        let memory = self.inner.host.take(bytes.len() as u64, false)?;
        memory.fill(0, bytes);
        Ok(Buffer::new(Storage::of_host(&self.inner, memory, bytes.len() as u64)))
    }
}

impl Buffer {
    pub(crate) fn new(storage: Arc<Storage>) -> Buffer {
        Buffer { storage }
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.storage.bytes
    }

    /// The contents, after the work that they need.
    pub fn to_vec(&self) -> Result<Vec<u8>, Error> {
        self.read_until(None)
    }

    /// Waits for the work that its contents need, but not longer than this; false when that goes on.
    pub fn wait_timeout(&self, limit: Duration) -> Result<bool, Error> {
        let deadline = Instant::now().checked_add(limit);
        for writer in self.storage.writers(&(0..self.storage.bytes)) {
            if !writer.wait(deadline)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(crate) fn read_until(&self, deadline: Option<Instant>) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; self.storage.bytes as usize];
        self.storage.read(0, &mut bytes, deadline)?;
        Ok(bytes)
    }

    /// Reads all bytes into the caller's memory, which has to be as large.
    pub fn read_into(&self, bytes: &mut [u8]) -> Result<(), Error> {
        super::same_length(self.storage.bytes as usize, bytes.len())?;
        self.storage.read(0, bytes, None)
    }

    /// Writes all bytes; there have to be as many as before.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        super::same_length(self.storage.bytes as usize, bytes.len())?;
        if Arc::strong_count(&self.storage) > 1 {
            *self = Engine { inner: self.storage.engine.clone() }.buffer_of(bytes)?;
            return Ok(());
        }
        self.storage.write(0, bytes, None)
    }

    /// The bytes as elements of a type.
    pub fn into_array<T: Element>(self) -> Result<Array<T>, Error> {
        let size = size_of::<T>().max(1) as u64;
        if !self.storage.bytes.is_multiple_of(size) {
            let message = format!("{} bytes are not whole elements of {size} bytes", self.storage.bytes);
            return Err(Diagnostic::new(&codes::engine::SHAPE, message).into());
        }
        let length = (self.storage.bytes / size) as usize;
        Ok(Array::new(self.storage, length.into(), length))
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.storage.bytes)
    }
}
