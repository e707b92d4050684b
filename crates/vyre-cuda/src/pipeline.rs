//! A kernel made ready to run on the device, and the bytes it is kept as.

use std::sync::{Arc, Mutex, PoisonError};

use vyre_driver::BackendError;
use vyre_driver::backend::Pipeline;
use vyre_foundation::kernel::Kernel;
use vyre_spec::codes;

use crate::api::{CudaError, Handle};
use crate::context::{Context, Device};
use crate::ptx::{self, Ptx};

/// How many elements a buffer has when so many bytes are bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    header: u32,
    stride: u32,
    /// Two for the 4-bit types.
    per_stride: u32,
    /// The declared number of elements.
    count: Option<u32>,
}

impl Shape {
    pub(crate) fn elements(&self, bytes: u64) -> u64 {
        let open = bytes.saturating_sub(u64::from(self.header)) / u64::from(self.stride.max(1));
        let open = open.saturating_mul(u64::from(self.per_stride));
        self.count.map_or(open, |count| open.min(u64::from(count)))
    }
}

/// A compiled kernel.
pub(crate) struct CudaPipeline {
    pub(crate) device: Arc<Device>,
    pub(crate) shapes: Vec<Shape>,
    pub(crate) workgroup_size: [u32; 3],
    pub(crate) dynamic_shared: u32,
    together: bool,
    cubin: Vec<u8>,
    loaded: Mutex<Option<Loaded>>,
}

/// The module in one generation of the context.
#[derive(Clone, Copy)]
struct Loaded {
    generation: u64,
    module: Handle,
    functions: Functions,
}

/// The entries of a module.
#[derive(Clone, Copy)]
pub(crate) struct Functions {
    /// One workgroup in a block.
    pub(crate) single: Handle,
    /// [`ptx::TOGETHER`] of them, where the kernel gains by it.
    pub(crate) together: Option<Handle>,
}

/// Then a hash of the rest; then numbers of eight bytes: workgroup size, dynamic shared memory, whether there is a
/// second entry, number of buffers, and for each
/// its shape; then the machine code.
const MAGIC: &[u8] = b"vyrecu02";

impl CudaPipeline {
    /// Wraps machine code for a kernel.
    pub(crate) fn new(device: Arc<Device>, kernel: &Kernel, ptx: &Ptx, cubin: Vec<u8>) -> CudaPipeline {
        let shapes = kernel.buffers.iter().map(|buffer| Shape {
            header: buffer.header,
            stride: buffer.stride,
            per_stride: if buffer.element.is_some_and(|(element, _)| element.bits() == 4) { 2 } else { 1 },
            count: if buffer.header == 0 { buffer.count } else { None },
        });
        CudaPipeline {
            device,
            shapes: shapes.collect(),
            workgroup_size: kernel.workgroup_size,
            dynamic_shared: ptx.dynamic_shared,
            together: ptx.together,
            cubin,
            loaded: Mutex::new(None),
        }
    }

    /// Reads what [`artifact`](Pipeline::artifact) wrote.
    pub(crate) fn decode(device: Arc<Device>, bytes: &[u8], buffers: usize) -> Result<CudaPipeline, BackendError> {
        let bad = |what: &str| BackendError::with_code(&codes::backend::BAD_ARTIFACT, what);
        let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| bad("the bytes are not a CUDA pipeline of this version"))?;
        // The driver reads as far as the code's own headers say, so code that was cut off must not get there.
        let whole = rest.split_at_checked(32).filter(|(hash, rest)| *blake3::hash(rest).as_bytes() == **hash);
        let (_, rest) = whole.ok_or_else(|| bad("the stored CUDA pipeline is damaged"))?;
        let mut words = rest.chunks_exact(8).map(|word| u64::from_le_bytes(std::array::from_fn(|i| word[i])));
        let mut short = |limit: u32| match words.next() {
            Some(word) if word <= limit.into() => Ok(word as u32),
            Some(_) => Err(bad("a stored CUDA pipeline has a number out of range")),
            None => Err(bad("the stored CUDA pipeline is cut off")),
        };
        let workgroup_size = [short(1024)?, short(1024)?, short(1024)?];
        let dynamic_shared = short(1 << 24)?;
        let together = short(1)? == 1;
        let count = short(4096)? as usize;
        if count != buffers {
            return Err(bad("the stored CUDA pipeline is one of another program"));
        }
        let mut shapes = Vec::with_capacity(count);
        for _ in 0..count {
            let (header, stride) = (short(u32::MAX)?, short(u32::MAX)?);
            let per_stride = short(2)?;
            let count = if short(1)? == 1 { Some(short(u32::MAX)?) } else { None };
            shapes.push(Shape { header, stride, per_stride, count });
        }
        // A count takes a word only where there is one.
        let head = shapes.iter().map(|shape| 4 + usize::from(shape.count.is_some())).sum::<usize>() + 6;
        let head = head * 8;
        let cubin = rest.get(head..).unwrap_or_default().to_vec();
        Ok(CudaPipeline { device, shapes, workgroup_size, dynamic_shared, together, cubin, loaded: Mutex::new(None) })
    }

    /// The kernel's entries, loaded into the context if they are not there yet.
    pub(crate) fn functions(&self, context: &Context) -> Result<Functions, CudaError> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = &*loaded
            && loaded.generation == context.generation
        {
            return Ok(loaded.functions);
        }
        let module = context.api.load_module(&self.cubin)?;
        match self.find(context, module) {
            Ok(functions) => {
                *loaded = Some(Loaded { generation: context.generation, module, functions });
                Ok(functions)
            }
            Err(error) => {
                context.api.unload_module(module)?;
                Err(error)
            }
        }
    }

    fn find(&self, context: &Context, module: Handle) -> Result<Functions, CudaError> {
        let single = context.api.function(module, ptx::ENTRY_C)?;
        if self.dynamic_shared > 0 {
            context.api.allow_dynamic_shared(single, self.dynamic_shared)?;
        }
        let together = match self.together {
            true => Some(context.api.function(module, ptx::ENTRY_TOGETHER_C)?),
            false => None,
        };
        Ok(Functions { single, together })
    }
}

impl Pipeline for CudaPipeline {
    fn workgroup_size(&self) -> [u32; 3] {
        self.workgroup_size
    }

    fn artifact(&self) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(self.cubin.len() + 256);
        let mut word = |value: u64| bytes.extend_from_slice(&value.to_le_bytes());
        self.workgroup_size.iter().for_each(|&size| word(size.into()));
        word(self.dynamic_shared.into());
        word(self.together.into());
        word(self.shapes.len() as u64);
        for shape in &self.shapes {
            word(shape.header.into());
            word(shape.stride.into());
            word(shape.per_stride.into());
            word(shape.count.is_some().into());
            shape.count.into_iter().for_each(|count| word(count.into()));
        }
        bytes.extend_from_slice(&self.cubin);
        Some([MAGIC, blake3::hash(&bytes).as_bytes().as_slice(), &bytes].concat())
    }
}

impl Drop for CudaPipeline {
    fn drop(&mut self) {
        let loaded = self.loaded.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Some(loaded) = loaded else { return };
        let unloaded = self.device.with(|context| {
            if context.generation == loaded.generation {
                // Its last launch may still be running.
                context.api.synchronize(context.stream)?;
                context.api.unload_module(loaded.module)?;
            }
            Ok(())
        });
        // A fault of earlier work is for the next call to report.
        drop(unloaded);
    }
}
