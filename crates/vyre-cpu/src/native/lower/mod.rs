//! From the kernel form to machine instructions, a block of vectors at a time.
//!
//! A straight run of steps is emitted vector by vector, so that temporaries live shortly. What a step needs only once for
//! several vectors is emitted once.

mod active;
mod arith;
mod arrange;
mod assume;
mod atomic;
mod bits;
mod bounds;
mod bytes;
mod cells;
mod emission;
mod even;
mod facts;
mod few_words;
mod flow;
mod frame;
mod known;
mod lines;
mod made;
mod memory;
mod narrow;
mod packed;
mod placed;
mod rare;
mod records;
mod regions;
mod results;
mod rows;
mod scalar;
mod stream;
mod strides;
mod structures;
mod subgroup;
mod tables;
mod tiles;
mod totals;
mod value;
mod walk;
mod windows;

use vyre_foundation::kernel::{Block, Kernel, Loop, Value};

use super::asm::{Asm, Label};
use super::hash::Map;
use super::isa::Isa;
use super::mir::{M, R};
use super::order::Memories;
use super::shape::{Layout, Shapes};
use active::Active;
pub(super) use atomic::SPILL;
use cells::Workgroup;
use emission::Emission;
use facts::Facts;
use frame::Bases;
pub(super) use frame::{Frame, lies_lane_beside_lane};
use made::{Made, MadeBefore};
pub(super) use rare::{Access, OLD_UNUSED, Rare};
use regions::Regions;
pub(super) use regions::can_split;
use stream::Streams;
use tiles::Tiles;
use value::Rep;
use walk::Position;

/// How a kernel is laid over vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tiling {
    pub(super) layout: Layout,
    /// Vectors along x and rows of a block. In layouts of workgroups it is a piece of one, and no vectors mean all of it.
    pub(super) vectors: u32,
    pub(super) rows: u32,
}

/// Machine instructions of a whole kernel.
pub(super) struct Lowered {
    pub(super) code: Vec<M>,
    pub(super) counts: [u32; 3],
    pub(super) labels: u32,
    pub(super) asm: Asm,
    /// Bytes of what waits while other parts of a kernel run.
    pub(super) frame_bytes: u32,
    /// Where buffers begin.
    buffers: Vec<R>,
    /// Where workgroup memory begins.
    shared: R,
    /// Buffers that are written past the caches where the launch says so, and bytes of each invocation.
    pub(super) streamed: Vec<(u32, u32)>,
    /// Lanes go over rows of their own, which may have different lengths.
    pub(super) tiled: bool,
}

impl Lowered {
    /// The memories that its vectors move between.
    pub(super) fn memories(&self) -> Memories<'_> {
        Memories { buffers: &self.buffers, shared: self.shared }
    }
}

/// An enclosing loop.
struct LoopFrame<'k> {
    params: &'k [Value],
    results: &'k [Value],
    /// Lanes still in the loop, per component; empty for a loop whose lanes stay together.
    live: Vec<R>,
    /// Lanes that left by `Break`, per component, when some return.
    left: Vec<R>,
    next: Label,
    exit: Label,
    parts: bool,
    /// Arithmetic and `if cond { break }` only.
    plain: bool,
    /// Results that are the parameters themselves.
    shared: Vec<bool>,
    body: &'k Block,
    /// Its rounds are emitted one after the other; true once one of them leaves.
    rounds: Option<bool>,
    /// Where memory is read in the next round.
    ahead: Option<Ahead>,
    /// The counter of one that counts by one to a known number, and that number.
    counted: Option<(R, u32)>,
    /// Each way to the next round looks whether the launch has to end, but for those that end these blocks.
    short: Option<Vec<&'k Block>>,
}

/// An index that each round of a loop goes on by the same step, and what it will be in the next.
#[derive(Clone, Copy)]
struct Ahead {
    now: [R; 2],
    next: R,
    step: R,
}

impl<'k> LoopFrame<'k> {
    /// A loop whose lanes stay together, with results of its own.
    fn together(inner: &'k Loop, next: Label, exit: Label) -> LoopFrame<'k> {
        LoopFrame {
            params: &inner.params,
            results: &inner.results,
            live: Vec::new(),
            left: Vec::new(),
            next,
            exit,
            parts: false,
            plain: false,
            shared: vec![false; inner.params.len()],
            body: &inner.body,
            rounds: None,
            ahead: None,
            counted: None,
            short: None,
        }
    }
}

/// A kernel on its way to machine instructions, in parts with owners.
pub(super) struct Lower<'k> {
    facts: Facts<'k>,
    emission: Emission,
    active: Active,
    made: MadeBefore,
    frame: Frame,
    bases: Bases,
    position: Position,
    workgroup: Workgroup,
    streams: Streams,
    tiles: Tiles,
    regions: Option<Regions<'k>>,
    loops: Vec<LoopFrame<'k>>,
    /// Where values are.
    reps: Vec<Rep>,
    /// Results of `If`s whose lanes part, and how many loops they are in.
    parted: Map<Value, usize>,
    /// Loads of the current run that may be put off until their use.
    deferrable: Vec<Value>,
    /// Bytes of what waits while other parts of a kernel run.
    frame_bytes: u32,
    block_end: Label,
    stop_label: Label,
    /// Something came out otherwise than it was foreseen, and the code is of no use.
    failed: bool,
}

/// Lowers a kernel; `None` when the interpreter has to do.
pub(super) fn lower(kernel: &Kernel, isa: Isa, shapes: &Shapes, tiling: Tiling) -> Option<Lowered> {
    let mut emission = Emission::new();
    let (block_end, stop_label) = (emission.label(), emission.label());
    let mut lower = Lower {
        facts: Facts::of(kernel, isa, shapes, tiling),
        emission,
        active: Active::new(kernel.values.len()),
        made: MadeBefore::default(),
        frame: Frame::of(kernel),
        bases: Bases::new(kernel),
        position: Position::new(),
        workgroup: Workgroup::new(kernel),
        streams: Streams::default(),
        tiles: Tiles::default(),
        regions: None,
        loops: Vec::new(),
        reps: Vec::new(),
        parted: Map::default(),
        deferrable: Vec::new(),
        frame_bytes: 0,
        block_end,
        stop_label,
        failed: false,
    };
    lower.function();
    lower.drop_writes();
    let Lower { emission, frame_bytes, bases, streams, tiles, failed, .. } = lower;
    let Emission { code, counts, labels, asm } = emission;
    let buffers = bases.buffers.into_iter().flatten().collect();
    let (shared, streamed, tiled) = (bases.shared, streams.written, tiles.any);
    let done = Lowered { code, counts, labels, asm, frame_bytes, buffers, shared, streamed, tiled };
    (!failed).then_some(done)
}
