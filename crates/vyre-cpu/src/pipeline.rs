//! A kernel made ready to run on the processor.

use std::sync::OnceLock;

use vyre_driver::BackendError;
use vyre_driver::backend::{CompileOptions, Pipeline};
use vyre_foundation::ValidProgram;
use vyre_foundation::ir::{BufferKind, Node, Program};
use vyre_foundation::kernel::{self, Block, Inst, Kernel, KernelBuffer, Memory, Op, Options, Passes};
use vyre_spec::codes;

use crate::artifact::{MAGIC, Reader, Writer};
use crate::interp::Interpreted;
use crate::launch::{self, Grid, Stop};
use crate::memory::Span;
use crate::native::{self, Native};
use crate::path::CpuPath;

/// A compiled kernel.
#[derive(Debug)]
pub(crate) struct CpuPipeline {
    program: ValidProgram,
    options: Options,
    workgroup_size: [u32; 3],
    buffers: Vec<Bound>,
    native: Option<Native>,
    /// Why there is no machine code.
    refusal: Option<String>,
    /// For kernels without machine code, and for launches too large for it; made when first needed.
    interpreted: OnceLock<Interpreted>,
    /// Steps of one workgroup, roughly.
    steps: u64,
    /// Every loop ends by itself.
    finite: bool,
}

/// How the elements of a buffer lie in its bytes.
#[derive(Clone, Copy, Debug)]
struct Bound {
    header: u32,
    stride: u32,
    /// Two elements in a byte.
    packed: bool,
    count: Option<u32>,
}

impl Bound {
    fn of(buffer: &KernelBuffer) -> Bound {
        Bound {
            header: buffer.header,
            stride: buffer.stride.max(1),
            packed: buffer.element.is_some_and(|(element, _)| element.bits() == 4),
            count: buffer.count.filter(|_| buffer.header == 0),
        }
    }

    fn length(&self, bytes: u64) -> u64 {
        let open = bytes.saturating_sub(u64::from(self.header)) / u64::from(self.stride);
        let open = if self.packed { open * 2 } else { open };
        self.count.map_or(open, |count| open.min(u64::from(count)))
    }
}

impl Pipeline for CpuPipeline {
    fn workgroup_size(&self) -> [u32; 3] {
        self.workgroup_size
    }

    fn artifact(&self) -> Option<Vec<u8>> {
        let native = self.native.as_ref()?;
        let mut out = Writer(MAGIC.to_vec());
        for size in self.workgroup_size {
            out.word(size);
        }
        out.word(self.steps as u32);
        out.word((self.steps >> 32) as u32);
        out.word(u32::from(self.finite));
        out.word(self.buffers.len() as u32);
        for buffer in &self.buffers {
            out.word(buffer.header);
            out.word(buffer.stride);
            out.word(u32::from(buffer.packed) | u32::from(buffer.count.is_some()) << 1);
            out.word(buffer.count.unwrap_or(0));
        }
        native.write(&mut out);
        Some(out.0)
    }
}

fn lowering(program: &Program, options: &CompileOptions) -> Options {
    let passes = Passes::all();
    Options {
        specialization: options.specialization.clone(),
        workgroup_size: options.workgroup_size,
        passes: if gains_by_unrolling(program) { passes } else { passes.without(Passes::UNROLL) },
        expand_math: true,
        array_values: ARRAY_VALUES,
        interruptible: options.interruptible,
        ..Options::default()
    }
}

/// Scalars of private arrays that become values: more would only be stored and loaded again, and carried ones twice.
const ARRAY_VALUES: u32 = 24;

/// Loops up to which a program may grow by unrolling them.
const FEW_LOOPS: usize = 4;

/// A few short loops are better repeated, because then one test does for the bounds of all their accesses. With workgroup memory
/// a round is for all vectors of a workgroup, and has few instructions for the loop itself; many loops would be much code.
fn gains_by_unrolling(program: &Program) -> bool {
    let mut loops = 0;
    let mut open: Vec<&[Node]> = program.functions().iter().map(|function| function.body.as_slice()).collect();
    open.push(program.body());
    while let Some(nodes) = open.pop() {
        for node in nodes {
            match node {
                Node::If { then, otherwise, .. } => open.extend([then.as_slice(), otherwise.as_slice()]),
                Node::Switch { cases, .. } => open.extend(cases.iter().map(|case| case.body.as_slice())),
                Node::For { body, .. } => {
                    loops += 1;
                    open.push(body);
                }
                Node::Loop { body, continuing, .. } => {
                    loops += 1;
                    open.extend([body.as_slice(), continuing.as_slice()]);
                }
                _ => {}
            }
        }
    }
    loops <= FEW_LOOPS && !program.buffers().iter().any(|buffer| buffer.kind == BufferKind::Workgroup)
}

impl CpuPipeline {
    /// Compiles a program for a path; `check` may refuse its kernel.
    pub(crate) fn new(
        program: &ValidProgram,
        options: &CompileOptions,
        path: CpuPath,
        check: impl FnOnce(&Kernel) -> Result<(), BackendError>,
    ) -> Result<CpuPipeline, BackendError> {
        let options = lowering(program, options);
        let kernel = kernel::lower(program, &options)?;
        check(&kernel)?;
        let invocations: u64 = kernel.workgroup_size.iter().map(|&n| u64::from(n)).product();
        let steps = steps(&kernel.body).saturating_mul(invocations);
        let refusal = path.isa().and_then(|isa| native::refusal(&kernel, isa));
        let native = match (path.isa(), &refusal) {
            (Some(isa), None) => native::compile(&kernel, isa),
            _ => None,
        };
        let refusal = match (path.isa(), &native) {
            (Some(_), None) => Some(refusal.unwrap_or_else(|| "its code does not fit in a stack frame".to_owned())),
            _ => None,
        };
        let interpreted = OnceLock::new();
        let pipeline = CpuPipeline {
            program: program.clone(),
            options,
            workgroup_size: kernel.workgroup_size,
            buffers: kernel.buffers.iter().map(Bound::of).collect(),
            steps,
            finite: is_finite(&kernel.body),
            refusal,
            interpreted,
            native,
        };
        if pipeline.native.is_none() {
            pipeline.interpreted.get_or_init(|| Interpreted::new(kernel));
        }
        Ok(pipeline)
    }

    /// Reads what [`Pipeline::artifact`] wrote; `None` when it is not that, or for another path.
    pub(crate) fn read(
        program: &ValidProgram,
        options: &CompileOptions,
        path: CpuPath,
        bytes: &[u8],
    ) -> Option<CpuPipeline> {
        let mut input = Reader(bytes.strip_prefix(MAGIC)?);
        let workgroup_size = [input.word()?, input.word()?, input.word()?];
        let steps = u64::from(input.word()?) | u64::from(input.word()?) << 32;
        let finite = input.word()? != 0;
        let count = input.word()? as usize;
        if count != program.binding_order().len() {
            return None;
        }
        let mut buffers = Vec::with_capacity(count);
        for _ in 0..count {
            let (header, stride, flags, fixed) = (input.word()?, input.word()?, input.word()?, input.word()?);
            let count = (flags & 2 != 0).then_some(fixed);
            buffers.push(Bound { header, stride: stride.max(1), packed: flags & 1 != 0, count });
        }
        let native = Native::read(&mut input, path.isa()?)?;
        input.is_empty().then_some(CpuPipeline {
            program: program.clone(),
            options: lowering(program, options),
            workgroup_size,
            buffers,
            native: Some(native),
            refusal: None,
            interpreted: OnceLock::new(),
            steps,
            finite,
        })
    }

    /// How the kernel runs, for people.
    pub(crate) fn describe(&self) -> String {
        match (&self.native, &self.refusal) {
            (Some(native), _) => native.describe(),
            (None, Some(reason)) => format!("interpreted, because {reason}"),
            (None, None) => "interpreted".to_owned(),
        }
    }

    /// The machine code, where there is some.
    pub(crate) fn machine_code(&self) -> Option<&[u8]> {
        self.native.as_ref().map(Native::bytes)
    }

    /// The program that it was made from.
    pub(crate) fn program(&self) -> &ValidProgram {
        &self.program
    }

    /// Buffers that have to be bound.
    pub(crate) fn bindings(&self) -> usize {
        self.buffers.len()
    }

    /// Elements of each buffer when so many bytes are bound.
    pub(crate) fn lengths(&self, bytes: impl Iterator<Item = u64>) -> Vec<u64> {
        self.buffers.iter().zip(bytes).map(|(buffer, bytes)| buffer.length(bytes)).collect()
    }

    /// So little work, sure to end, that queueing it would cost more.
    pub(crate) fn is_small(&self, grid: [u32; 3]) -> bool {
        let groups = grid.iter().fold(1u64, |all, &n| all.saturating_mul(u64::from(n)));
        self.finite && groups.saturating_mul(self.steps) < launch::SMALL_LAUNCH
    }

    /// Runs the grid to its end, or until `stop`.
    pub(crate) fn run(&self, buffers: &[Span], grid: &Grid, stop: &Stop) -> Result<(), BackendError> {
        let out_of_memory = |_| {
            BackendError::with_code(
                &codes::backend::OUT_OF_MEMORY,
                "there is no memory for the workgroup memory and local arrays of the kernel",
            )
        };
        if let Some(native) = self.native.as_ref().filter(|native| native.fits(self.workgroup_size, buffers, grid)) {
            return launch::spread(
                grid,
                self.steps,
                stop,
                || native.worker(buffers, grid, stop),
                |worker, stretch| native.run(worker, stretch),
            )
            .map_err(out_of_memory);
        }
        let interpreted = match self.interpreted.get() {
            Some(interpreted) => interpreted,
            None => {
                let kernel = kernel::lower(&self.program, &self.options)?;
                self.interpreted.get_or_init(|| Interpreted::new(kernel))
            }
        };
        launch::spread(
            grid,
            self.steps.saturating_mul(16),
            stop,
            || interpreted.scratch(),
            |scratch, stretch| {
                for x in stretch.first..stretch.end {
                    if stop.is_set() {
                        return;
                    }
                    interpreted.run(scratch, buffers, grid, [x, stretch.y, stretch.z], stop);
                }
            },
        )
        .map_err(out_of_memory)
    }
}

/// Steps of one invocation, roughly: a loop whose count is not known counts for 16 rounds.
fn steps(block: &Block) -> u64 {
    let of = |inst: &Inst| match inst {
        Inst::If { then, otherwise, .. } => 1 + steps(then).saturating_add(steps(otherwise)),
        Inst::Loop(inner) => steps(&inner.body).saturating_mul(16),
        // A gather or a scatter is many steps, but so is a miss of the cache.
        Inst::Let(_, Op::Load { address, .. }) | Inst::Store { address, .. } => match address.memory {
            Memory::Buffer(_) => 4,
            Memory::Shared(_) | Memory::Local(_) => 1,
        },
        _ => 1,
    };
    block.insts.iter().fold(0, |sum: u64, inst| sum.saturating_add(of(inst)))
}

/// No loop has to look whether the launch has to end: none may be endless and, where launches can be ended, none is long.
fn is_finite(block: &Block) -> bool {
    block.insts.iter().all(|inst| match inst {
        Inst::If { then, otherwise, .. } => is_finite(then) && is_finite(otherwise),
        Inst::Loop(inner) => inner.look.is_none() && is_finite(&inner.body),
        _ => true,
    })
}
