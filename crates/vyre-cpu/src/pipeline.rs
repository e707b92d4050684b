//! A kernel made ready to run on the processor.

use std::fmt;
use std::sync::OnceLock;

use vyre_driver::BackendError;
use vyre_driver::backend::{BoundShape, CompileOptions, Pipeline, Reader, Writer};
use vyre_driver::variant::{Code, HostFunction, Variant};
use vyre_foundation::ValidProgram;
use vyre_foundation::ir::{BufferKind, Node, Program};
use vyre_foundation::kernel::{self, Kernel, Options, Passes};
use vyre_spec::codes;

use crate::effort::Effort;
use crate::foreign::{self, Helpers};
use crate::interp::Interpreted;
use crate::launch::{Grid, SMALL_LAUNCH, Stop, Stretch, workgroups};
use crate::memory::{Scratch, Span};
use crate::native::{self, Isa, Native};
use crate::pace::Pace;
use crate::path::CpuPath;
use crate::pool::Crew;
use crate::sums;
use crate::work::CpuWork;

/// Starts every artifact.
const MAGIC: &[u8; 8] = b"vyre cpu";

/// A digest of the sources by which this crate makes code.
pub(crate) const SOURCE_DIGEST: &str = env!("VYRE_CPU_SOURCES");

/// A compiled kernel.
#[derive(Debug)]
pub(crate) struct CpuPipeline {
    program: ValidProgram,
    options: Options,
    /// Invocations of the kernel, of which so many neighbours do what one of the program's does.
    workgroup_size: [u32; 3],
    parts_each: u32,
    shapes: Vec<BoundShape>,
    native: Option<Native>,
    /// What runs instead of all that, where a variant was asked for.
    foreign: Option<Foreign>,
    /// Why there is no machine code.
    refusal: Option<String>,
    /// For kernels without machine code, and for launches too large for it; made when first needed.
    interpreted: OnceLock<Interpreted>,
    /// Steps of one workgroup.
    effort: Effort,
    /// Launches look at their stop word.
    interruptible: bool,
    /// Parts of a launch for each thread, where that is asked for.
    parts: Option<u32>,
    /// Bytes from which on what a launch writes goes past the caches.
    streams_from: u64,
    pub(crate) pace: Pace,
}

/// Which of its two forms a launch of a kernel takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Way {
    /// Machine code.
    #[default]
    Native,
    /// The interpreter: there is no machine code, or the launch is too large for it.
    Interpreted,
    /// A Rust function.
    Foreign,
}

/// A Rust function, which buffers it may write, and who helps it.
struct Foreign {
    variant: Variant,
    function: HostFunction,
    written: Vec<bool>,
    crew: Crew<CpuWork>,
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.variant.fmt(f)
    }
}

impl Pipeline for CpuPipeline {
    fn workgroup_size(&self) -> [u32; 3] {
        let [x, y, z] = self.workgroup_size;
        [x / self.parts_each, y, z]
    }

    fn artifact(&self) -> Option<Vec<u8>> {
        let native = self.native.as_ref()?;
        let mut out = Writer::new(MAGIC);
        out.bytes(vyre_foundation::SOURCE_DIGEST.as_bytes());
        out.bytes(SOURCE_DIGEST.as_bytes());
        self.workgroup_size.into_iter().chain([self.parts_each]).for_each(|size| out.word(size));
        out.long(self.effort.steps);
        out.long(self.effort.additions);
        out.word(u32::from(self.effort.is_known) | u32::from(self.interruptible) << 1);
        BoundShape::write_all(&self.shapes, &mut out);
        native.write(&mut out);
        Some(out.finish())
    }
}

fn lowering(program: &Program, options: &CompileOptions, path: CpuPath) -> Options {
    let passes = Passes::all();
    let lanes = path.isa().filter(|isa| *isa != Isa::Simd128).map(Isa::lanes);
    Options {
        specialization: options.specialization.clone(),
        workgroup_size: options.workgroup_size,
        merged: options.knobs.merged,
        rounds_together: options.knobs.rounds.unwrap_or(1),
        passes: if gains_by_unrolling(program) { passes } else { passes.without(Passes::UNROLL) },
        expand_math: true,
        array_values: ARRAY_VALUES,
        straight_array_values: STRAIGHT_ARRAY_VALUES,
        strides_together: true,
        trees_written_out: true,
        searches_written_out: true,
        rows_of_tiles: lanes,
        words_dealt: lanes,
        made_of_counters: true,
        rejoined: true,
        places_compared: lanes.is_some(),
        parts_of_words: true,
        bools_as_words: true,
        shared_exponentials: true,
        interruptible: options.interruptible,
        ..Options::default()
    }
}

/// Scalars of private arrays that become values: more would only be stored and loaded again, and carried ones twice.
const ARRAY_VALUES: u32 = 32;

/// The same in code without loops, where the constant places of arrays are worth more than that.
const STRAIGHT_ARRAY_VALUES: u32 = 48;

/// Steps of all invocations of a part that takes some milliseconds.
const BRIEF_PART: u64 = 1 << 24;

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
        let (interruptible, parts) = (options.interruptible, options.knobs.parts);
        let options = lowering(program, options, path);
        // Grids that are too large for machine code are interpreted (`Native::fits`), without tables.
        let here = path.isa().is_some();
        let components_apart = options.words_dealt;
        let small = Options { small_grids: here, places_tabled: here, components_apart, ..options.clone() };
        let mut kernel = kernel::lower(program, &small)?;
        if kernel.parts > 1 && path.isa().is_some_and(|isa| !native::gains_by_components(&kernel, isa)) {
            kernel = kernel::lower(program, &Options { components_apart: None, ..small })?;
        }
        check(&kernel)?;
        let effort = Effort::of(&kernel);
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
        let kernel = if native.is_none() && path.isa().is_some() { kernel::lower(program, &options)? } else { kernel };
        let pipeline = CpuPipeline {
            program: program.clone(),
            options,
            workgroup_size: kernel.workgroup_size,
            parts_each: kernel.parts,
            shapes: BoundShape::of(&kernel.buffers),
            effort,
            interruptible,
            parts,
            streams_from: u64::MAX,
            pace: Pace::default(),
            refusal,
            interpreted,
            native,
            foreign: None,
        };
        if pipeline.native.is_none() {
            pipeline.interpreted.get_or_init(|| Interpreted::new(kernel));
        }
        Ok(pipeline)
    }

    /// The same, whose results go past the caches where a launch writes so many bytes.
    pub(crate) fn streaming_from(self, bytes: u64) -> CpuPipeline {
        CpuPipeline { streams_from: bytes, ..self }
    }

    /// A variant in the place of a program. Nothing of it can be stored.
    pub(crate) fn of_variant(
        program: &ValidProgram,
        options: &CompileOptions,
        variant: &Variant,
        crew: Crew<CpuWork>,
    ) -> Result<CpuPipeline, BackendError> {
        let Code::Host(function) = variant.code() else {
            let message = format!("the processor can't run {variant}");
            return Err(BackendError::with_code(&codes::backend::UNSUPPORTED_FEATURE, message));
        };
        let lowered = lowering(program, options, CpuPath::Interpret);
        let kernel = kernel::lower(program, &lowered)?;
        let order = program.binding_order();
        let written = order.iter().map(|&index| program.buffers()[index].kind.is_result()).collect();
        Ok(CpuPipeline {
            program: program.clone(),
            options: lowered,
            workgroup_size: kernel.workgroup_size,
            parts_each: kernel.parts,
            shapes: BoundShape::of(&kernel.buffers),
            effort: Effort { steps: u64::MAX, additions: 0, is_known: false },
            interruptible: options.interruptible,
            parts: None,
            streams_from: u64::MAX,
            pace: Pace::default(),
            refusal: None,
            interpreted: OnceLock::new(),
            native: None,
            foreign: Some(Foreign { variant: variant.clone(), function: function.clone(), written, crew }),
        })
    }

    /// Reads what [`Pipeline::artifact`] wrote; `None` when it is not that, or for another path.
    pub(crate) fn read(
        program: &ValidProgram,
        options: &CompileOptions,
        path: CpuPath,
        bytes: &[u8],
    ) -> Option<CpuPipeline> {
        let mut input = Reader::new(bytes, MAGIC)?;
        // Code that other sources made is not what these would make.
        for digest in [vyre_foundation::SOURCE_DIGEST, SOURCE_DIGEST] {
            if input.bytes()? != digest.as_bytes() {
                return None;
            }
        }
        let workgroup_size = [input.word()?, input.word()?, input.word()?];
        let parts_each = input.word()?.max(1);
        let (steps, additions, flags) = (input.long()?, input.long()?, input.word()?);
        if (flags >> 1 != 0) != options.interruptible {
            return None;
        }
        let shapes = BoundShape::read_all(&mut input, program.binding_order().len())?;
        let native = Native::read(&mut input, path.isa()?)?;
        input.is_empty().then_some(CpuPipeline {
            program: program.clone(),
            options: lowering(program, options, path),
            workgroup_size,
            parts_each,
            shapes,
            native: Some(native),
            foreign: None,
            refusal: None,
            interpreted: OnceLock::new(),
            effort: Effort { steps, additions, is_known: flags & 1 != 0 },
            interruptible: options.interruptible,
            parts: options.knobs.parts,
            streams_from: u64::MAX,
            pace: Pace::default(),
        })
    }

    /// How the kernel runs, for people.
    pub(crate) fn describe(&self) -> String {
        if let Some(foreign) = &self.foreign {
            return foreign.variant.to_string();
        }
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

    /// Buffers that have to be bound.
    pub(crate) fn bindings(&self) -> usize {
        self.shapes.len()
    }

    /// Elements of each buffer when so many bytes are bound.
    pub(crate) fn lengths(&self, bytes: impl Iterator<Item = u64>) -> impl Iterator<Item = u64> {
        self.shapes.iter().zip(bytes).map(|(shape, bytes)| shape.elements(bytes))
    }

    /// The steps of a launch that is so little work, and so sure to end soon, that queueing it would cost more.
    pub(crate) fn small_effort(&self, way: Way, buffers: &[Span], grid: [u32; 3]) -> Option<u64> {
        if let Some(foreign) = &self.foreign {
            return (foreign.variant.is_stoppable() && foreign::is_small(buffers)).then_some(SMALL_LAUNCH / 2);
        }
        let steps = workgroups(grid).saturating_mul(self.steps(way));
        (self.effort.is_known && steps < SMALL_LAUNCH).then_some(steps)
    }

    /// Every one of so many parts of a launch ends soon, whatever is in its buffers.
    pub(crate) fn is_brief(&self, way: Way, grid: [u32; 3], parts: u64) -> bool {
        let steps = workgroups(grid).saturating_mul(self.steps(way)) / parts.max(1);
        self.effort.is_known && steps < BRIEF_PART
    }

    /// The form that a launch takes.
    pub(crate) fn way(&self, buffers: &[Span], grid: [u32; 3]) -> Result<Way, BackendError> {
        if self.foreign.is_some() {
            return Ok(Way::Foreign);
        }
        if self.native.as_ref().is_some_and(|native| native.fits(self.workgroup_size, buffers, grid)) {
            return Ok(Way::Native);
        }
        if self.interpreted.get().is_none() {
            let kernel = kernel::lower(&self.program, &self.options)?;
            self.interpreted.get_or_init(|| Interpreted::new(kernel));
        }
        Ok(Way::Interpreted)
    }

    /// A launch writes so much that it goes past the caches.
    pub(crate) fn streams(&self, buffers: &[Span], grid: [u32; 3]) -> bool {
        let Some(native) = &self.native else { return false };
        let bytes = native.streamed_bytes(self.workgroup_size, buffers, grid);
        bytes > 0 && bytes >= self.streams_from
    }

    /// Buffers in whose place machine code takes copies that are put together at the end.
    pub(crate) fn copied(&self) -> &[u32] {
        self.native.as_ref().map_or(&[], Native::copied)
    }

    /// Bytes of each thread's copies, where a launch has so much to add that they are worth it.
    pub(crate) fn copy_bytes(&self, way: Way, buffers: &[Span], grid: [u32; 3], threads: usize) -> Option<usize> {
        let additions = workgroups(grid).saturating_mul(self.effort.additions);
        (way == Way::Native).then(|| sums::worth(buffers, self.copied(), additions, threads))?
    }

    /// Parts of a launch for each thread, where that is asked for.
    pub(crate) fn parts(&self) -> Option<u32> {
        self.parts
    }

    /// Steps of one workgroup, as many as machine code would take in the same time.
    pub(crate) fn steps(&self, way: Way) -> u64 {
        match way {
            Way::Native | Way::Foreign => self.effort.steps,
            Way::Interpreted => self.effort.steps.saturating_mul(16),
        }
    }

    /// Bytes of private memory that every thread needs; `None` when that is no number of bytes.
    pub(crate) fn scratch_bytes(&self, way: Way) -> Option<usize> {
        match (way, &self.native, self.interpreted.get()) {
            (Way::Foreign, _, _) => Some(0),
            (Way::Native, Some(native), _) => Some(native.scratch_bytes(self.shapes.len())),
            (_, _, Some(interpreted)) => interpreted.scratch_bytes(),
            _ => None,
        }
    }

    /// Runs some workgroups; false when they were left because of `stop`.
    pub(crate) fn run(
        &self,
        way: Way,
        buffers: &[Span],
        grid: &Grid<'_>,
        stop: &Stop,
        mut stretches: impl Iterator<Item = Stretch>,
        scratch: &mut Scratch,
    ) -> bool {
        if let Some(Foreign { function, written, crew, .. }) = &self.foreign {
            // The grid is one workgroup, so this is all of it.
            if !stop.is_set() && stretches.next().is_some() {
                foreign::call(function, buffers, written, &Helpers { crew, stop, buffers });
            }
            // It may have left out parts since.
            return !stop.is_set();
        }
        match (way, &self.native, self.interpreted.get()) {
            (Way::Native, Some(native), _) => native.run(scratch, buffers, grid, stop, stretches),
            (_, _, Some(interpreted)) => stretches.all(|Stretch { first, end, y, z }| {
                let look = self.interruptible.then_some(stop);
                (first..end).all(|x| !stop.is_set() && interpreted.run(scratch, buffers, grid, [x, y, z], look))
            }),
            // Nobody plans a launch in a form that is not there.
            _ => false,
        }
    }
}
