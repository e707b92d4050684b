//! A kernel made ready to run on a device, and the bytes it is kept as.

use std::sync::{Arc, Mutex, PoisonError};

use vyre_driver::BackendError;
use vyre_driver::backend::Pipeline;
use vyre_foundation::kernel::Kernel;
use vyre_spec::codes;

use crate::context::{Context, Device};
use crate::emit::Facts;
use crate::raw::{self, Code};

/// A buffer of a kernel: how many elements it has when so many bytes are bound, and whether it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    header: u32,
    stride: u32,
    /// Two for the 4-bit types.
    per_stride: u32,
    /// The declared number of elements.
    count: Option<u32>,
    pub(crate) written: bool,
}

impl Shape {
    pub(crate) fn elements(&self, bytes: u64) -> u64 {
        let open = bytes.saturating_sub(u64::from(self.header)) / u64::from(self.stride.max(1));
        let open = open.saturating_mul(u64::from(self.per_stride));
        self.count.map_or(open, |count| open.min(u64::from(count)))
    }
}

/// A compiled kernel.
pub(crate) struct WgpuPipeline {
    pub(crate) device: Arc<Device>,
    /// Among all pipelines of the process.
    pub(crate) number: u64,
    pub(crate) shapes: Vec<Shape>,
    pub(crate) workgroup_size: [u32; 3],
    pub(crate) interruptible: bool,
    code: Code,
    /// What the driver had made of it before.
    cached: Vec<u8>,
    made: Mutex<Option<Arc<Made>>>,
}

/// The pipeline in one generation of the device.
pub(crate) struct Made {
    pub(crate) generation: u64,
    pub(crate) pipeline: wgpu::ComputePipeline,
    pub(crate) layout: wgpu::BindGroupLayout,
    cache: Option<wgpu::PipelineCache>,
}

/// Then a hash of the rest; then words: workgroup size, whether it can be told to end, number of buffers, for each its shape,
/// number of words of code, the code; then what the driver made of it.
const MAGIC: &[u8] = b"vyrewg03";

impl WgpuPipeline {
    /// Wraps the code of a kernel.
    pub(crate) fn new(device: Arc<Device>, kernel: &Kernel, interruptible: bool, code: Code) -> WgpuPipeline {
        let shapes = kernel.buffers.iter().map(|buffer| Shape {
            header: buffer.header,
            stride: buffer.stride,
            per_stride: if buffer.element.is_some_and(|(element, _)| element.bits() == 4) { 2 } else { 1 },
            count: if buffer.header == 0 { buffer.count } else { None },
            written: buffer.written || buffer.atomic,
        });
        WgpuPipeline {
            number: device.next_number(),
            device,
            shapes: shapes.collect(),
            workgroup_size: kernel.workgroup_size,
            interruptible,
            code,
            cached: Vec::new(),
            made: Mutex::new(None),
        }
    }

    /// Reads what [`artifact`](Pipeline::artifact) wrote.
    pub(crate) fn decode(device: Arc<Device>, bytes: &[u8], buffers: usize) -> Result<WgpuPipeline, BackendError> {
        let bad = |what: &str| BackendError::with_code(&codes::backend::BAD_ARTIFACT, what);
        let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| bad("the bytes are not a wgpu pipeline of this version"))?;
        let whole = rest.split_at_checked(32).filter(|(hash, rest)| *blake3::hash(rest).as_bytes() == **hash);
        let (_, rest) = whole.ok_or_else(|| bad("the stored wgpu pipeline is damaged"))?;
        let mut words = rest.chunks_exact(4).map(|word| u32::from_le_bytes(std::array::from_fn(|i| word[i])));
        let mut taken = 0usize;
        let mut next = |limit: u32| {
            taken += 1;
            match words.next() {
                Some(word) if word <= limit => Ok(word),
                Some(_) => Err(bad("a stored wgpu pipeline has a number out of range")),
                None => Err(bad("the stored wgpu pipeline is cut off")),
            }
        };
        let workgroup_size = [next(1 << 16)?, next(1 << 16)?, next(1 << 16)?];
        let interruptible = next(1)? == 1;
        if next(4096)? as usize != buffers {
            return Err(bad("the stored wgpu pipeline is one of another program"));
        }
        let mut shapes = Vec::with_capacity(buffers);
        for _ in 0..buffers {
            let (header, stride, per_stride) = (next(u32::MAX)?, next(u32::MAX)?, next(2)?);
            let (written, counted, count) = (next(1)? == 1, next(1)? == 1, next(u32::MAX)?);
            shapes.push(Shape { header, stride, per_stride, count: counted.then_some(count), written });
        }
        let length = next(1 << 24)? as usize;
        let end = (taken + length) * 4;
        let (Some(code), Some(cached)) = (rest.get(taken * 4..end), rest.get(end..)) else {
            return Err(bad("the stored wgpu pipeline is cut off"));
        };
        let code = code.chunks_exact(4).map(|word| u32::from_le_bytes(std::array::from_fn(|i| word[i]))).collect();
        Ok(WgpuPipeline {
            number: device.next_number(),
            device,
            shapes,
            workgroup_size,
            interruptible,
            code: Code::Spirv(code),
            cached: cached.to_vec(),
            made: Mutex::new(None),
        })
    }

    /// Bytes of immediate data.
    pub(crate) fn facts(&self) -> u32 {
        Facts::words(self.shapes.len()) as u32 * 4
    }

    /// The driver's pipeline, made if it is not there yet.
    pub(crate) fn made(&self, context: &Context) -> Result<Arc<Made>, BackendError> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = &*made
            && made.generation == context.generation
        {
            return Ok(Arc::clone(made));
        }
        let fresh = Arc::new(self.make(context)?);
        *made = Some(Arc::clone(&fresh));
        Ok(fresh)
    }

    fn make(&self, context: &Context) -> Result<Made, BackendError> {
        let device = &context.device;
        context.scoped(&codes::wgpu::COMPILE_FAILED, || {
            let entry = |(binding, written): (usize, bool)| wgpu::BindGroupLayoutEntry {
                binding: binding as u32,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer {
                    ty: wgpu::BufferBindingType::Storage { read_only: !written },
                    has_dynamic_offset: false,
                    min_binding_size: None,
                },
                count: None,
            };
            let stop = self.interruptible.then_some(true);
            let written = self.shapes.iter().map(|shape| shape.written).chain(stop);
            let entries: Vec<_> = written.enumerate().map(entry).collect();
            let layout =
                device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries });
            let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label: None,
                bind_group_layouts: &[Some(&layout)],
                immediate_size: self.facts(),
            });
            let module = raw::shader(device, &self.code, self.workgroup_size);
            let cache = context
                .features
                .contains(wgpu::Features::PIPELINE_CACHE)
                .then(|| raw::pipeline_cache(device, (!self.cached.is_empty()).then_some(self.cached.as_slice())));
            let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: None,
                layout: Some(&pipeline_layout),
                module: &module,
                entry_point: Some(crate::emit::ENTRY),
                compilation_options: wgpu::PipelineCompilationOptions {
                    // The kernel does it with all its invocations.
                    zero_initialize_workgroup_memory: false,
                    ..Default::default()
                },
                cache: cache.as_ref(),
            });
            Made { generation: context.generation, pipeline, layout, cache }
        })
    }
}

impl Pipeline for WgpuPipeline {
    fn workgroup_size(&self) -> [u32; 3] {
        self.workgroup_size
    }

    fn artifact(&self) -> Option<Vec<u8>> {
        let Code::Spirv(code) = &self.code else { return None };
        let mut bytes = Vec::with_capacity(code.len() * 4 + 256);
        let mut word = |value: u32| bytes.extend_from_slice(&value.to_le_bytes());
        self.workgroup_size.iter().for_each(|&size| word(size));
        word(self.interruptible.into());
        word(self.shapes.len() as u32);
        for shape in &self.shapes {
            word(shape.header);
            word(shape.stride);
            word(shape.per_stride);
            word(shape.written.into());
            word(shape.count.is_some().into());
            word(shape.count.unwrap_or(0));
        }
        word(code.len() as u32);
        code.iter().for_each(|&value| word(value));
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let cached = made.and_then(|made| made.cache.as_ref().and_then(wgpu::PipelineCache::get_data));
        bytes.extend_from_slice(cached.as_deref().unwrap_or(&self.cached));
        Some([MAGIC, blake3::hash(&bytes).as_bytes().as_slice(), &bytes].concat())
    }
}
