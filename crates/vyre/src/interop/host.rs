//! Host memory that is somebody's own: vectors, and memory that a device reaches by itself.
#![allow(unsafe_code)]

use std::sync::Arc;

use vyre_driver::backend::HostMemory;

use crate::array::{Array, Element, Shape};
use crate::runtime::Storage;
use crate::{Engine, Error};

/// Where host memory has to start for all backends to work on it in place.
pub(super) const ALIGN: usize = 8;

impl Engine {
    /// An array in the memory of a vector, which is not copied where the processor can work on it as it lies.
    pub fn array_of_vec<T: Element>(&self, mut elements: Vec<T>) -> Result<Array<T>, Error> {
        let length = elements.len();
        let (start, bytes) = (elements.as_mut_ptr().cast::<u8>(), size_of_val(&elements[..]));
        if bytes == 0 || !start.addr().is_multiple_of(ALIGN) {
            return self.array(&elements);
        }
        // SAFETY: a vector's memory stays where it is while it is moved, and nobody touches it until it is dropped with the memory.
        let memory = unsafe { HostMemory::owned_by(start, bytes, Box::new(elements)) };
        Ok(Array::new(Storage::of_host(&self.inner, Arc::new(memory), bytes as u64), length.into(), length))
    }

    /// An array of zeros whose memory on the host is pinned, so that it moves to and from a CUDA device at the full speed of the bus and
    /// beside other work. It is a scarce good: the system can't use it for anything else. Without a CUDA device it is an array like
    /// others.
    pub fn pinned<T: Element>(&self, shape: impl Into<Shape>) -> Result<Array<T>, Error> {
        let array: Array<T> = self.zeros(shape)?;
        #[cfg(feature = "cuda")]
        if !array.is_empty()
            && let Ok(device) = self.inner.device("cuda")
            && let Some(cuda) = super::cuda::backend(&device)
        {
            let bytes = array.storage().bytes;
            let mut memory = cuda.pinned(bytes as usize)?;
            let start = memory.as_mut_ptr();
            // SAFETY: pinned memory stays where it is until it is dropped, which is done with this.
            let memory = unsafe { HostMemory::owned_by(start, bytes as usize, Box::new(memory)) };
            let storage = Storage::of_host(&self.inner, Arc::new(memory), bytes);
            return Array::new(storage, array.len().into(), array.len()).shaped(array.shape());
        }
        Ok(array)
    }
}
