//! What the queues carry: launches, moves of bytes, and recordings of both.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use vyre_driver::BackendError;
use vyre_driver::backend::{Binding, DeviceBuffer, HostMemory, INDIRECT_BYTES, Pipeline, indirect_grid};
use vyre_spec::codes;

use crate::launch::{Grid, Split, Stop, workgroups};
use crate::memory::{Scratch, Span};
use crate::pace::Expected;
use crate::pipeline::{CpuPipeline, Way};
use crate::pool::{Threads, Work};
use crate::record::Steps;
use crate::sums::Sums;

/// Memory of the host as a buffer.
pub(crate) struct HostBuffer {
    pub(crate) memory: Arc<HostMemory>,
}

impl DeviceBuffer for HostBuffer {
    fn bytes(&self) -> u64 {
        self.memory.bytes() as u64
    }
}

/// The places and lengths of a launch's buffers, kept to be filled again.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Places {
    spans: Vec<Span>,
    lengths: Vec<u64>,
}

impl Places {
    /// Takes other places; the bindings were checked.
    pub(crate) fn fill(&mut self, pipeline: &CpuPipeline, bindings: &[Binding], id: &str) -> Result<(), BackendError> {
        self.spans.clear();
        self.lengths.clear();
        for Binding { buffer, offset, bytes } in bindings {
            let host = buffer.of::<HostBuffer>(id)?;
            self.spans.push(Span::of(&host.memory, *offset as usize, *bytes as usize));
        }
        self.lengths.extend(pipeline.lengths(bindings.iter().map(|binding| binding.bytes)));
        Ok(())
    }

    /// Takes memory that is bound as a whole.
    pub(crate) fn fill_whole(&mut self, pipeline: &CpuPipeline, memory: &[HostMemory]) {
        self.spans.clear();
        self.lengths.clear();
        self.spans.extend(memory.iter().map(|memory| Span::of(memory, 0, memory.bytes())));
        self.lengths.extend(pipeline.lengths(memory.iter().map(|memory| memory.bytes() as u64)));
    }

    /// How a launch on these places runs on so many threads.
    pub(crate) fn plan(&self, pipeline: &CpuPipeline, grid: [u32; 3], threads: usize) -> Result<Plan, BackendError> {
        let way = pipeline.way(&self.spans, grid)?;
        let scratch_bytes = pipeline.scratch_bytes(way).ok_or_else(|| {
            BackendError::with_code(
                &codes::backend::OUT_OF_MEMORY,
                "the workgroup memory and local arrays of the kernel don't fit in memory",
            )
        })?;
        let expected = pipeline.pace.expected(workgroups(grid));
        let split = Split::new(grid, pipeline.steps(way), threads, pipeline.parts(), expected);
        let small = pipeline.small_effort(way, &self.spans, grid);
        let (streams, brief) = (self.streams(pipeline, way, grid), pipeline.is_brief(way, grid, split.parts()));
        let alone = small.is_some() || split.parts() == 1;
        let copy_bytes = if alone { None } else { pipeline.copy_bytes(way, &self.spans, grid, threads) };
        let copy_bytes = copy_bytes.unwrap_or(0);
        Ok(Plan { way, grid, split, scratch_bytes, small, expected, streams, copy_bytes, brief })
    }

    /// A launch on these places writes so much that its results go past the caches.
    fn streams(&self, pipeline: &CpuPipeline, way: Way, grid: [u32; 3]) -> bool {
        way == Way::Native && pipeline.streams(&self.spans, grid)
    }

    /// Runs all parts of a small launch.
    pub(crate) fn run_all(&self, pipeline: &CpuPipeline, plan: &Plan, scratch: &mut Scratch) {
        let stop = Stop::default();
        for part in 0..plan.split.parts() {
            self.run(pipeline, plan, part, scratch, &stop, None);
        }
    }

    /// Runs a part of a launch, on copies where it has some; false when it was left because of `stop`.
    pub(crate) fn run(
        &self,
        pipeline: &CpuPipeline,
        plan: &Plan,
        part: u64,
        scratch: &mut Scratch,
        stop: &Stop,
        sums: Option<&Sums>,
    ) -> bool {
        let copy = sums.filter(|_| plan.copy_bytes > 0).and_then(|sums| sums.take(plan.copy_bytes));
        let instead = copy.as_ref().map(|copy| copy.instead_of(&self.spans, pipeline.copied()));
        let spans = instead.as_deref().unwrap_or(&self.spans);
        let (lengths, streams) = (self.lengths.as_slice(), plan.streams);
        let grid = Grid { workgroups: plan.grid, lengths, streams, copies: copy.is_some() };
        let whole = pipeline.run(plan.way, spans, &grid, stop, plan.split.stretches(part), scratch);
        if let (Some(sums), Some(copy)) = (sums, copy) {
            sums.give_back(copy);
        }
        whole
    }
}

/// How a launch runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Plan {
    way: Way,
    grid: [u32; 3],
    pub(crate) split: Split,
    /// Private memory that every thread needs.
    pub(crate) scratch_bytes: usize,
    /// Its steps, where they are so few and so sure to end that queueing it would cost more.
    pub(crate) small: Option<u64>,
    /// How long it would take one thread, where launches before have shown that.
    expected: Option<Expected>,
    /// Results go past the caches.
    streams: bool,
    /// Bytes of each thread's copies of buffers that are only added to; none where they are not worth it.
    copy_bytes: usize,
    /// Every part ends soon, whatever is in the buffers.
    brief: bool,
}

impl Plan {
    /// The same way with a smaller grid, on the same places.
    fn with_grid(&self, pipeline: &CpuPipeline, places: &Places, grid: [u32; 3], threads: usize) -> Plan {
        Plan {
            grid,
            split: Split::new(grid, pipeline.steps(self.way), threads, pipeline.parts(), None),
            small: None,
            expected: None,
            streams: places.streams(pipeline, self.way, grid),
            copy_bytes: 0,
            brief: false,
            ..*self
        }
    }
}

/// Where the grid of a launch is when its turn comes.
#[derive(Debug)]
pub(crate) struct GridPlace {
    pub(crate) memory: Arc<HostMemory>,
    pub(crate) at: usize,
    pub(crate) threads: usize,
}

/// A launch with everything that it uses.
#[derive(Debug, Default)]
pub(crate) struct BoundLaunch {
    pipeline: Option<Arc<dyn Pipeline>>,
    /// The buffers live until the launch is over.
    bindings: Vec<Binding>,
    steady: Steady,
    expected: Option<Expected>,
}

/// What is mostly the same when the same is launched again, on cache lines of its own: what is not written, all threads have from the launch before.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Steady {
    places: Places,
    plan: Plan,
}

impl Steady {
    /// Takes another launch; its places are swapped with those that were here.
    fn fill(&mut self, places: &mut Places, plan: Plan) {
        if self.places != *places {
            std::mem::swap(&mut self.places, places);
        }
        // How long it takes is learnt in each launch.
        let plan = Plan { expected: None, ..plan };
        if self.plan != plan {
            self.plan = plan;
        }
    }
}

impl BoundLaunch {
    pub(crate) fn new(pipeline: &Arc<dyn Pipeline>, bindings: &[Binding], places: Places, plan: Plan) -> BoundLaunch {
        let steady = Steady { places, plan };
        BoundLaunch {
            pipeline: Some(Arc::clone(pipeline)),
            bindings: bindings.to_vec(),
            steady,
            expected: plan.expected,
        }
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.steady.plan
    }

    /// Takes another launch; its places may be swapped with those that were here.
    fn fill(&mut self, pipeline: &Arc<dyn Pipeline>, bindings: &[Binding], places: &mut Places, plan: Plan) {
        self.pipeline = Some(Arc::clone(pipeline));
        self.bindings.clear();
        self.bindings.extend_from_slice(bindings);
        self.steady.fill(places, plan);
        self.expected = plan.expected;
    }

    fn clear(&mut self) {
        self.pipeline = None;
        self.bindings.clear();
    }

    fn pipeline(&self) -> Option<&CpuPipeline> {
        self.pipeline.as_deref()?.downcast_ref()
    }

    /// Both are launches of one pipeline.
    pub(crate) fn is_like(&self, other: &BoundLaunch) -> bool {
        matches!((&self.pipeline, &other.pipeline), (Some(own), Some(other)) if Arc::ptr_eq(own, other))
    }

    /// Phases: the workgroups, and where they add to copies, putting these together.
    pub(crate) fn phases(&self) -> usize {
        if self.plan().copy_bytes > 0 { 2 } else { 1 }
    }

    pub(crate) fn parts(&self, phase: usize) -> u64 {
        if phase == 0 { self.plan().split.parts() } else { Sums::parts(self.plan().copy_bytes) }
    }

    /// Runs a part of a phase. Where there is nowhere to sum up, the first is all there is to do.
    pub(crate) fn run(&self, phase: usize, part: u64, scratch: &mut Scratch, stop: &Stop, sums: Option<&Sums>) -> bool {
        let Some(pipeline) = self.pipeline() else { return true };
        let Steady { places, plan } = &self.steady;
        if phase > 0 {
            if let Some(sums) = sums {
                sums.put_together(part, plan.copy_bytes, &places.spans, pipeline.copied());
            }
            return true;
        }
        // One in the middle is more like the others than one at the rim.
        let timed = (part == plan.split.parts() / 2).then(Instant::now);
        let whole = places.run(pipeline, plan, part, scratch, stop, sums);
        if let Some(began) = timed.filter(|_| whole) {
            let groups = plan.split.stretches(part).map(|stretch| u64::from(stretch.end - stretch.first)).sum();
            pipeline.pace.note(groups, u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
        whole
    }
}

/// Bytes that go from one place to another, or zeros where there is no source.
#[derive(Debug)]
pub(crate) struct Move {
    pub(crate) from: Option<(Arc<HostMemory>, usize)>,
    pub(crate) to: (Arc<HostMemory>, usize),
    pub(crate) bytes: usize,
}

impl Move {
    /// Bytes of one part.
    pub(crate) const PART: usize = 1 << 20;

    pub(crate) fn parts(&self) -> u64 {
        self.bytes.div_ceil(Self::PART) as u64
    }

    pub(crate) fn run(&self, part: u64) {
        let first = part as usize * Self::PART;
        let bytes = Self::PART.min(self.bytes - first);
        let (to, at) = &self.to;
        match &self.from {
            Some((from, from_at)) => to.copy_from(at + first, from, from_at + first, bytes),
            None => to.clear(at + first, bytes),
        }
    }
}

/// One step of a recording.
#[derive(Debug)]
pub(crate) enum Recorded {
    Launch(Box<BoundLaunch>),
    Move(Move),
}

impl Recorded {
    /// Its steps, where they are few; as a launch counts them.
    pub(crate) fn small_effort(&self) -> Option<u64> {
        match self {
            Recorded::Launch(launch) => launch.plan().small,
            Recorded::Move(bytes) => (bytes.bytes <= Move::PART).then_some(bytes.bytes as u64 / 4),
        }
    }

    /// Every part ends soon.
    pub(crate) fn is_brief(&self) -> bool {
        match self {
            Recorded::Launch(launch) => launch.plan().brief,
            Recorded::Move(_) => true,
        }
    }

    pub(crate) fn phases(&self) -> usize {
        match self {
            Recorded::Launch(launch) => launch.phases(),
            Recorded::Move(_) => 1,
        }
    }

    pub(crate) fn parts(&self, phase: usize) -> u64 {
        match self {
            Recorded::Launch(launch) => launch.parts(phase),
            Recorded::Move(bytes) => bytes.parts(),
        }
    }

    pub(crate) fn run(&self, phase: usize, part: u64, scratch: &mut Scratch, stop: &Stop, sums: Option<&Sums>) -> bool {
        match self {
            Recorded::Launch(launch) => launch.run(phase, part, scratch, stop, sums),
            Recorded::Move(bytes) => {
                bytes.run(part);
                true
            }
        }
    }
}

/// One piece of work of a queue.
#[derive(Debug, Default)]
pub(crate) struct CpuWork {
    launch: BoundLaunch,
    kind: Kind,
    sums: Sums,
}

/// A function of the number of a part.
#[derive(Debug)]
struct PartsOf {
    parts: u64,
    function: *const (dyn Fn(usize) + Sync),
}

// SAFETY: the function may be called from several threads at once, and whoever made this waits until nobody does.
unsafe impl Send for PartsOf {}
// SAFETY: as above.
unsafe impl Sync for PartsOf {}

#[derive(Debug, Default)]
enum Kind {
    #[default]
    Nothing,
    Launch,
    /// Its grid is read in the first phase, and runs in the second.
    Indirect(GridPlace, OnceLock<Plan>),
    Move(Move),
    Replay(Steps),
    Function(PartsOf),
}

impl CpuWork {
    pub(crate) fn launch(
        &mut self,
        pipeline: &Arc<dyn Pipeline>,
        bindings: &[Binding],
        places: &mut Places,
        plan: Plan,
    ) {
        self.launch.fill(pipeline, bindings, places, plan);
        self.kind = Kind::Launch;
    }

    /// The plan is that of the largest grid.
    pub(crate) fn launch_indirect(
        &mut self,
        pipeline: &Arc<dyn Pipeline>,
        bindings: &[Binding],
        places: &mut Places,
        plan: Plan,
        grid: GridPlace,
    ) {
        self.launch.fill(pipeline, bindings, places, plan);
        self.kind = Kind::Indirect(grid, OnceLock::new());
    }

    pub(crate) fn move_bytes(&mut self, bytes: Move) {
        self.kind = Kind::Move(bytes);
    }

    pub(crate) fn replay(&mut self, steps: Steps) {
        self.kind = Kind::Replay(steps);
    }

    /// Calls of a function, one for each part.
    ///
    /// # Safety
    /// The function lives until this is cleared.
    pub(crate) unsafe fn call(&mut self, parts: usize, function: &(dyn Fn(usize) + Sync)) {
        // SAFETY: only the lifetime is another, which the caller sees to.
        let function =
            unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(function) };
        self.kind = Kind::Function(PartsOf { parts: parts as u64, function });
    }
}

impl Work for CpuWork {
    fn phases(&self) -> usize {
        match &self.kind {
            Kind::Launch => self.launch.phases(),
            Kind::Replay(steps) => steps.phases.len(),
            Kind::Indirect(..) => 2,
            _ => 1,
        }
    }

    fn parts(&self, phase: usize) -> u64 {
        match &self.kind {
            Kind::Nothing => 0,
            Kind::Launch => self.launch.parts(phase),
            Kind::Indirect(_, plan) => match phase {
                0 => 1,
                _ => plan.get().map_or(0, |plan| plan.split.parts()),
            },
            Kind::Move(bytes) => bytes.parts(),
            Kind::Replay(steps) => {
                let (step, phase) = steps.phases[phase];
                steps.all[step].parts(phase)
            }
            Kind::Function(function) => function.parts,
        }
    }

    fn is_brief(&self) -> bool {
        match &self.kind {
            Kind::Nothing | Kind::Move(_) => true,
            Kind::Launch => self.launch.plan().brief,
            // Its grid is not known yet.
            Kind::Indirect(..) => false,
            Kind::Replay(steps) => steps.are_brief,
            // Nobody knows what it does.
            Kind::Function(_) => false,
        }
    }

    fn threads_at_first(&self) -> Threads {
        match (&self.kind, self.launch.expected) {
            (Kind::Launch, Some(expected)) => Threads { any: expected.threads(), awake: expected.threads_awake() },
            _ => Threads::ALL,
        }
    }

    fn run(&self, phase: usize, part: u64, scratch: &mut Scratch, stop: &Stop) -> bool {
        match &self.kind {
            Kind::Nothing => true,
            Kind::Launch => self.launch.run(phase, part, scratch, stop, Some(&self.sums)),
            Kind::Indirect(grid, plan) => {
                let Some(pipeline) = self.launch.pipeline() else { return true };
                if phase > 0 {
                    let run = |plan| self.launch.steady.places.run(pipeline, plan, part, scratch, stop, None);
                    return plan.get().is_none_or(run);
                }
                let mut bytes = [0; INDIRECT_BYTES];
                grid.memory.copy_to(grid.at, &mut bytes);
                let most = self.launch.plan();
                let workgroups = indirect_grid(&bytes, most.grid);
                let _ = plan.set(most.with_grid(pipeline, &self.launch.steady.places, workgroups, grid.threads));
                true
            }
            Kind::Move(bytes) => {
                bytes.run(part);
                true
            }
            Kind::Replay(steps) => {
                let (step, phase) = steps.phases[phase];
                steps.all[step].run(phase, part, scratch, stop, Some(&self.sums))
            }
            Kind::Function(PartsOf { function, .. }) => {
                // SAFETY: it lives until this is cleared, and nobody clears what runs.
                let function = unsafe { &**function };
                function(part as usize);
                true
            }
        }
    }

    fn clear(&mut self) {
        self.launch.clear();
        self.sums.clear();
        self.kind = Kind::Nothing;
    }
}
