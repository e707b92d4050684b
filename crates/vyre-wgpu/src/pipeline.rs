//! A kernel made ready to run on a device, and the bytes it is kept as.

use std::sync::{Arc, Mutex, PoisonError};

use vyre_driver::BackendError;
use vyre_driver::backend::{BoundShape, Pipeline, Reader, Writer};
use vyre_foundation::ir::Builtin;
use vyre_foundation::kernel::{Block, Inst, Kernel, Op};
use vyre_spec::codes;

use crate::context::Context;
use crate::device::Device;
use crate::emit::{Facts, Target};
use crate::loops::Loops;
use crate::raw::{self, Code};

/// Rounds of loops that are nothing beside the cost of a launch.
const FEW_ROUNDS: u64 = 256;

/// What an invocation with more rounds counts for.
const LOOP_WEIGHT: u64 = 1024;

/// A compiled kernel.
pub(crate) struct WgpuPipeline {
    pub(crate) device: Arc<Device>,
    /// Among all pipelines of the process.
    pub(crate) number: u64,
    pub(crate) shapes: Vec<BoundShape>,
    workgroup_size: [u32; 3],
    traits: Traits,
    code: Code,
    /// What the driver had made of it before.
    cached: Vec<u8>,
    made: Mutex<Option<Arc<Made>>>,
}

/// What launches have to know of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traits {
    pub(crate) interruptible: bool,
    /// Its rounds are counted.
    counted: bool,
    /// Its loops make few rounds.
    quick: bool,
    /// All its loops end.
    finite: bool,
    /// It asks how many workgroups there are.
    asks_grid: bool,
}

impl Traits {
    pub(crate) fn new(kernel: &Kernel, loops: Loops, target: Target) -> Traits {
        Traits {
            interruptible: target.interruptible,
            counted: target.rounds.is_some(),
            quick: loops.most.is_some_and(|most| most <= FEW_ROUNDS),
            finite: loops.finite,
            asks_grid: asks_grid(&kernel.body),
        }
    }

    fn bits(self) -> u32 {
        let Traits { interruptible, counted, quick, finite, asks_grid } = self;
        [interruptible, counted, quick, finite, asks_grid].iter().rev().fold(0, |bits, &bit| bits << 1 | u32::from(bit))
    }

    fn from_bits(bits: u32) -> Option<Traits> {
        let bit = |at: u32| bits >> at & 1 == 1;
        (bits < 32).then(|| Traits {
            interruptible: bit(0),
            counted: bit(1),
            quick: bit(2),
            finite: bit(3),
            asks_grid: bit(4),
        })
    }
}

fn asks_grid(block: &Block) -> bool {
    block.insts.iter().any(|inst| match inst {
        Inst::Let(_, op) => matches!(op, Op::Builtin(Builtin::NumWorkgroups(_))),
        Inst::If { then, otherwise, .. } => asks_grid(then) || asks_grid(otherwise),
        Inst::Loop(inner) => asks_grid(&inner.body),
        Inst::Store { .. } | Inst::Atomic { .. } | Inst::Barrier(_) => false,
    })
}

/// The pipeline in one generation of the device.
pub(crate) struct Made {
    pub(crate) generation: u64,
    pub(crate) pipeline: wgpu::ComputePipeline,
    pub(crate) layout: wgpu::BindGroupLayout,
    cache: Option<wgpu::PipelineCache>,
}

/// Which code made it is part of the device's fingerprint.
const MAGIC: &[u8; 8] = b"vyrewgpu";

impl WgpuPipeline {
    pub(crate) fn new(device: Arc<Device>, kernel: &Kernel, traits: Traits, code: Code) -> WgpuPipeline {
        WgpuPipeline {
            number: device.next_number(),
            device,
            shapes: BoundShape::of(&kernel.buffers),
            workgroup_size: kernel.workgroup_size,
            traits,
            code,
            cached: Vec::new(),
            made: Mutex::new(None),
        }
    }

    /// Reads what [`artifact`](Pipeline::artifact) wrote.
    pub(crate) fn decode(device: Arc<Device>, bytes: &[u8], buffers: usize) -> Option<WgpuPipeline> {
        let mut input = Reader::new(bytes, MAGIC)?;
        let workgroup_size = [input.word()?, input.word()?, input.word()?];
        let traits = Traits::from_bits(input.word()?)?;
        let shapes = BoundShape::read_all(&mut input, buffers)?;
        let code = input.words()?;
        let cached = input.bytes()?.to_vec();
        input.is_empty().then(|| WgpuPipeline {
            number: device.next_number(),
            device,
            shapes,
            workgroup_size,
            traits,
            code: Code::Spirv(code),
            cached,
            made: Mutex::new(None),
        })
    }

    pub(crate) fn is_interruptible(&self) -> bool {
        self.traits.interruptible
    }

    /// The kernel has to be told the grid, so it must be known when the launch is recorded.
    pub(crate) fn asks_grid(&self) -> bool {
        self.traits.asks_grid
    }

    /// Launches have stop words.
    pub(crate) fn may_end_early(&self) -> bool {
        self.traits.interruptible || self.traits.counted
    }

    /// Nobody knows that a launch ends soon, so it is submitted alone.
    pub(crate) fn may_be_long(&self) -> bool {
        !self.traits.finite || (self.traits.interruptible && !self.traits.quick)
    }

    /// Invocations of a launch, more where each has much to do.
    pub(crate) fn weight(&self, grid: [u32; 3]) -> u64 {
        let each = if self.traits.quick { 1 } else { LOOP_WEIGHT };
        self.workgroup_size.iter().chain(&grid).fold(each, |product, &size| product.saturating_mul(size.into()))
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
            let stop = self.may_end_early().then_some(true);
            let written = self.shapes.iter().map(BoundShape::is_written).chain(stop);
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
        let mut out = Writer::new(MAGIC);
        self.workgroup_size.iter().for_each(|&size| out.word(size));
        out.word(self.traits.bits());
        BoundShape::write_all(&self.shapes, &mut out);
        out.words(code);
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let cached = made.and_then(|made| made.cache.as_ref().and_then(wgpu::PipelineCache::get_data));
        out.bytes(cached.as_deref().unwrap_or(&self.cached));
        Some(out.finish())
    }
}
