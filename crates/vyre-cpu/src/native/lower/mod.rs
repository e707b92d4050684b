//! From the kernel form to machine instructions, a block of vectors at a time.
//!
//! A straight run of steps is emitted vector by vector, so that temporaries live shortly. What a step needs only once for
//! several vectors is emitted once.

mod arith;
mod assume;
mod atomic;
mod bits;
mod bounds;
mod bytes;
mod cells;
mod flow;
mod known;
mod lines;
mod memory;
mod narrow;
mod rare;
mod records;
mod regions;
mod scalar;
mod stream;
mod strides;
mod structures;
mod subgroup;
mod tiles;
mod totals;
mod value;

use std::collections::HashMap;

use vyre_foundation::ir::Builtin;
use vyre_foundation::kernel::{Block, ByteDot, End, Inst, Kernel, Loop, Memory, Op, Scalar, Unary, Value, byte_dots};

use super::asm::{Alu, Asm, Cond, Label, Len};
use super::context;
use super::emit::{ARG_X, ARG_X_END, ARG_Y, ARG_Z};
use super::hash::{Map, Set};
use super::isa::Isa;
use super::mir::{At, Class, GSrc, M, R};
use super::shape::{self, Layout, Shape, Shapes};
use assume::Plan;
pub(super) use atomic::SPILL;
pub(super) use rare::{Access, OLD_UNUSED, Rare};
pub(super) use regions::can_split;
use value::{Lin, Rep};

/// One vector of a block, by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Component {
    x: u32,
    y: u32,
    z: u32,
}

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
    pub(super) buffers: Vec<R>,
    /// Buffers that are written past the caches where the launch says so, and bytes of each invocation.
    pub(super) streamed: Vec<(u32, u32)>,
    /// Lanes go over rows of their own, which may have different lengths.
    pub(super) tiled: bool,
}

/// What makes a scalar, for finding it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Made {
    Sum(R, i32),
    Extended(R),
    Distance(R, R),
    Alu(Alu, bool, R, GSrc),
    Mul(bool, R, GSrc),
    Shl(bool, R, i32),
    /// A scalar in all lanes of a vector.
    Spread(R, bool),
    /// `spread + lane·stride + add`.
    Ramp(R, i32, i32),
    /// Bytes of each half word, those in even or odd places, as numbers with or without sign.
    Bytes(R, bool, bool),
    /// The first lane of a vector, and whether the others don't go on from there by a step.
    First(R),
    Apart(R, i32),
    Constant(u32),
    Constant64(u64),
    Pool(u32),
    /// A mask of known lanes.
    Lanes(u32),
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
    body: *const Block,
    /// Its rounds are emitted one after the other; true once one of them leaves.
    rounds: Option<bool>,
    /// Where memory is read in the next round.
    ahead: Option<Ahead>,
}

/// An index that each round of a loop goes on by the same step, and what it will be in the next.
#[derive(Clone, Copy)]
struct Ahead {
    now: [R; 2],
    next: R,
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
            body: std::ptr::from_ref(&inner.body),
            rounds: None,
            ahead: None,
        }
    }
}

pub(super) struct Lower<'k> {
    kernel: &'k Kernel,
    isa: Isa,
    shapes: &'k Shapes,
    tiling: Tiling,
    code: Vec<M>,
    counts: [u32; 3],
    asm: Asm,
    labels: u32,
    /// First column of each value.
    columns: Vec<u32>,
    uses: Vec<u32>,
    makers: bounds::Makers<'k>,
    /// Negations that stand before the `fma` that alone uses them, with what they negate.
    negated: Map<Value, Value>,
    /// Sums of products of bytes.
    dots: HashMap<Value, ByteDot>,
    components: Vec<Component>,
    /// For each set of axes, the first component that shares a component's place on them.
    shared: Vec<Vec<usize>>,
    reps: Vec<Rep>,
    /// What is known of workgroup memory here.
    cells: Vec<cells::Cell>,
    /// Registers that are written more than once.
    changing: Set<R>,
    shared_writes: Vec<cells::SharedWrite>,
    /// What happens to workgroup memory, in the order of the code.
    touches: Vec<(usize, cells::Touch)>,
    /// Workgroup memories that are read where they lie.
    shared_read: Vec<bool>,
    /// Registers with zeros in the first so many lanes.
    zero_below: Map<R, u32>,
    /// Numbers by which whole numbers up to some greatest one were to be divided, and whether a product can take the place of that.
    exact_quotients: Map<(u32, u32), bool>,
    /// Masks of the first so many lanes.
    prefixes: Map<R, u32>,
    /// Something came out otherwise than it was foreseen, and the code is of no use.
    failed: bool,
    /// Active lanes; `None` when all are.
    exec: Vec<Option<R>>,
    divergent: u32,
    loops: Vec<LoopFrame<'k>>,
    made: Map<Made, R>,
    /// Things made, in order, to forget them at the end of their scope.
    made_log: Vec<Made>,
    buffers: Vec<Option<R>>,
    zeros: R,
    shared_base: R,
    locals_base: R,
    /// Loads of the current run that may be put off until their use.
    deferrable: Vec<Value>,
    /// A comparison takes the lanes for which it holds out of this mask; none when it makes a mask of its own.
    compare_under: R,
    /// Bools that are the same for all lanes of the block, tested before it.
    settled: Vec<Option<bool>>,
    /// Values that were made before the block.
    ready: Vec<bool>,
    /// Places that are known to be aligned, for stores that go past the caches.
    aligned: Vec<stream::Aligned>,
    streamed: Vec<(u32, u32)>,
    /// Components of the current run.
    current: Vec<usize>,
    /// First invocation of the block along x, or first of the workgroup.
    origin_x: Lin,
    origin_y: Lin,
    origin_z: Lin,
    groups: [Lin; 3],
    /// Where the piece of a workgroup begins along x, y and z, and in the line of its invocations.
    local: [Lin; 3],
    line: Lin,
    regions: Option<regions::Regions<'k>>,
    /// Where loads of loops find the words of all lanes that were loaded rounds before, and the end of those places.
    tiles: Map<(Value, usize), tiles::Tile>,
    tiles_end: i32,
    /// There were some.
    tiled: bool,
    frame_bytes: u32,
    block_end: Label,
    stop_label: Label,
    stop_at: R,
    shared_at: Vec<u32>,
    shared_bytes: u32,
    /// Behind the workgroup memory: where sums begin that are added to a buffer at the end, and their bytes.
    totals: Vec<Option<(u32, u32)>>,
    locals_at: Vec<u32>,
    lane_bytes: u32,
}

/// Where private memories lie.
pub(super) struct Places {
    pub(super) shared: Vec<u32>,
    pub(super) shared_bytes: u32,
    totals: Vec<Option<(u32, u32)>>,
    pub(super) locals: Vec<u32>,
    pub(super) lane_bytes: u32,
}

/// The places of workgroup memory, of the sums of a call, and of one invocation's arrays.
pub(super) fn frame(kernel: &Kernel) -> Places {
    let place = |end: &mut u32, size: u32| {
        let at = *end;
        *end += size.next_multiple_of(64);
        at
    };
    let mut shared_bytes = 0;
    let shared = kernel.shared.iter().map(|memory| place(&mut shared_bytes, memory.size)).collect();
    let totals = totals::sizes(kernel).into_iter();
    let totals = totals.map(|bytes| bytes.map(|bytes| (place(&mut shared_bytes, bytes), bytes))).collect();
    let mut lane_bytes = 0;
    let locals = kernel.locals.iter().map(|memory| place(&mut lane_bytes, memory.size)).collect();
    Places { shared, shared_bytes, totals, locals, lane_bytes }
}

/// Lowers a kernel; `None` when the interpreter has to do.
pub(super) fn lower(kernel: &Kernel, isa: Isa, shapes: &Shapes, tiling: Tiling) -> Option<Lowered> {
    let mut columns = Vec::with_capacity(kernel.values.len());
    let mut count = 0;
    for info in &kernel.values {
        columns.push(count);
        count += u32::from(info.ty.width);
    }
    let mut uses = vec![0; kernel.values.len()];
    count_uses(&kernel.body, &mut uses);
    let Places { shared: shared_at, shared_bytes, totals, locals: locals_at, lane_bytes } = frame(kernel);
    let mut asm = Asm::default();
    let (block_end, stop_label) = (asm.label(), asm.label());
    let mut lower = Lower {
        kernel,
        isa,
        shapes,
        tiling,
        code: Vec::with_capacity(256),
        counts: [0; 3],
        asm,
        labels: 2,
        columns,
        makers: bounds::Makers::of(kernel),
        negated: negated(&kernel.body, &uses),
        // Cranelift has other instructions for it.
        dots: if isa == Isa::Simd128 { HashMap::new() } else { byte_dots(kernel) },
        uses,
        components: Vec::new(),
        shared: Vec::new(),
        reps: vec![Rep::None; count as usize],
        cells: Vec::new(),
        changing: Set::default(),
        shared_writes: Vec::new(),
        touches: Vec::new(),
        shared_read: vec![false; kernel.shared.len()],
        zero_below: Map::default(),
        exact_quotients: Map::default(),
        prefixes: Map::default(),
        failed: false,
        exec: Vec::new(),
        divergent: 0,
        loops: Vec::new(),
        made: Map::default(),
        made_log: Vec::new(),
        buffers: vec![None; kernel.buffers.len()],
        zeros: R::NONE,
        shared_base: R::NONE,
        locals_base: R::NONE,
        deferrable: Vec::new(),
        compare_under: R::NONE,
        settled: vec![None; kernel.values.len()],
        ready: vec![false; kernel.values.len()],
        aligned: Vec::new(),
        streamed: Vec::new(),
        current: Vec::new(),
        origin_x: Lin::imm(0),
        origin_y: Lin::imm(0),
        origin_z: Lin::imm(0),
        groups: [Lin::imm(0); 3],
        local: [Lin::imm(0); 3],
        line: Lin::imm(0),
        regions: None,
        tiles: Map::default(),
        tiles_end: context::TILES,
        tiled: false,
        frame_bytes: 0,
        block_end,
        stop_label,
        stop_at: R::NONE,
        shared_at,
        shared_bytes,
        totals,
        locals_at,
        lane_bytes,
    };
    lower.function();
    lower.drop_writes();
    let Lower { code, counts, labels, asm, frame_bytes, buffers, streamed, tiled, .. } = lower;
    let buffers = buffers.into_iter().flatten().collect();
    let done = Lowered { code, counts, labels, asm, frame_bytes, buffers, streamed, tiled };
    (!lower.failed).then_some(done)
}

/// Negations that stand right before the `fma` that alone uses them.
fn negated(block: &Block, uses: &[u32]) -> Map<Value, Value> {
    let mut found = Map::default();
    let mut open = vec![block];
    while let Some(block) = open.pop() {
        for pair in block.insts.windows(2) {
            if let [Inst::Let(minus, Op::Unary(Unary::Neg, of)), Inst::Let(_, Op::Fma(a, _, c))] = pair
                && (minus == a) != (minus == c)
                && uses[minus.index()] == 1
            {
                found.insert(*minus, *of);
            }
        }
        for inst in &block.insts {
            match inst {
                Inst::If { then, otherwise, .. } => open.extend([&**then, &**otherwise]),
                Inst::Loop(inner) => open.push(&inner.body),
                _ => {}
            }
        }
    }
    found
}

fn count_uses(block: &Block, uses: &mut [u32]) {
    visit_values(block, &mut |value| uses[value.index()] += 1);
}

/// Shows every use of a value in a block and the blocks in it.
fn visit_values(block: &Block, f: &mut dyn FnMut(Value)) {
    block.insts.iter().for_each(|inst| visit_inst_values(inst, f));
    match &block.end {
        End::Yield(values) | End::Continue(values) | End::Break(values) => values.iter().for_each(|&value| f(value)),
        End::Return | End::Unreachable => {}
    }
}

/// Shows every use of a value in a step and the blocks in it.
fn visit_inst_values(inst: &Inst, f: &mut dyn FnMut(Value)) {
    match inst {
        Inst::Let(_, op) => visit_operands(op, f),
        Inst::Store { address, value, guard, .. } => {
            address.terms.iter().for_each(|&(index, _)| f(index));
            f(*value);
            guard.iter().for_each(|&guard| f(guard));
        }
        Inst::Atomic { address, value, compare, guard, .. } => {
            address.terms.iter().for_each(|&(index, _)| f(index));
            [value, compare, guard].into_iter().flatten().for_each(|&value| f(value));
        }
        Inst::Barrier(_) => {}
        Inst::If { cond, then, otherwise, .. } => {
            f(*cond);
            visit_values(then, f);
            visit_values(otherwise, f);
        }
        Inst::Loop(inner) => {
            inner.init.iter().for_each(|&value| f(value));
            if let Some(counter) = &inner.counter {
                f(counter.from);
                f(counter.to);
            }
            visit_values(&inner.body, f);
        }
    }
}

fn visit_operands(op: &Op, f: &mut dyn FnMut(Value)) {
    match op {
        Op::Const(_) | Op::Builtin(_) | Op::Length(_) => {}
        Op::Unary(_, a) | Op::Cast(a) | Op::BitCast(a) | Op::Extract(a, _) => f(*a),
        Op::Binary(_, a, b) => {
            f(*a);
            f(*b);
        }
        Op::Fma(a, b, c) | Op::Select(a, b, c) => {
            f(*a);
            f(*b);
            f(*c);
        }
        Op::Load { address, guard, .. } => {
            address.terms.iter().for_each(|&(index, _)| f(index));
            guard.iter().for_each(|&guard| f(guard));
        }
        Op::Construct(parts) => parts.iter().for_each(|&part| f(part)),
        Op::Subgroup(_, a, b) => {
            f(*a);
            b.iter().for_each(|&b| f(b));
        }
        Op::Matrix(matrix) => matrix.operands().for_each(f),
    }
}

impl<'k> Lower<'k> {
    fn lanes(&self) -> u32 {
        self.isa.lanes()
    }

    fn len(&self) -> Len {
        self.isa.len()
    }

    fn scalar_of(&self, value: Value) -> Scalar {
        self.kernel.values[value.index()].ty.scalar
    }

    fn width_of(&self, value: Value) -> u8 {
        self.kernel.values[value.index()].ty.width
    }

    fn shape_of(&self, value: Value) -> Shape {
        self.shapes.of(value)
    }

    fn reg(&mut self, class: Class) -> R {
        let count = &mut self.counts[class as usize];
        *count += 1;
        R::new(class, *count - 1)
    }

    fn general(&mut self) -> R {
        self.reg(Class::General)
    }

    fn vector(&mut self) -> R {
        self.reg(Class::Vector)
    }

    fn label(&mut self) -> Label {
        self.labels += 1;
        self.asm.label()
    }

    fn push(&mut self, m: M) {
        self.code.push(m);
    }

    /// Binds a label; what was made before it is not known to have been made on every way to it, unless `keep`.
    fn bind(&mut self, label: Label) {
        self.cells.clear();
        self.push(M::Label(label));
    }

    /// Remembers what is made from here on, to forget it with [`Lower::leave_scope`].
    fn enter_scope(&self) -> usize {
        self.made_log.len()
    }

    fn leave_scope(&mut self, mark: usize) {
        for made in self.made_log.drain(mark..) {
            self.made.remove(&made);
        }
    }

    fn remember(&mut self, made: Made, r: R) {
        if self.made.insert(made, r).is_none() {
            self.made_log.push(made);
        }
    }

    fn function(&mut self) {
        self.zeros = self.general();
        self.push(M::Load { bytes: 8, signed: false, dst: self.zeros, at: At::new(R::CONTEXT, context::ZEROS) });
        if self.shared_bytes > 0 {
            self.shared_base = self.general();
            let at = At::new(R::CONTEXT, context::SHARED);
            self.push(M::Load { bytes: 8, signed: false, dst: self.shared_base, at });
        }
        if self.lane_bytes > 0 {
            self.locals_base = self.general();
            let at = At::new(R::CONTEXT, context::LOCALS);
            self.push(M::Load { bytes: 8, signed: false, dst: self.locals_base, at });
        }
        if looks(&self.kernel.body) {
            self.stop_at = self.general();
            self.push(M::Load { bytes: 8, signed: false, dst: self.stop_at, at: At::new(R::CONTEXT, context::STOP) });
        }
        let mut used = vec![false; self.kernel.buffers.len()];
        used_buffers(&self.kernel.body, &mut used);
        for (index, used) in used.into_iter().enumerate() {
            if used {
                let r = self.general();
                let at = At::new(R::CONTEXT, context::BUFFERS + 16 * index as i32);
                self.push(M::Load { bytes: 8, signed: false, dst: r, at });
                self.buffers[index] = Some(r);
            }
        }
        for (axis, disp) in [(1, ARG_Y), (2, ARG_Z)] {
            let r = self.general();
            self.push(M::Load { bytes: 4, signed: false, dst: r, at: At::new(R::STACK, disp) });
            self.groups[axis] = Lin::reg(r);
        }
        let size = self.kernel.workgroup_size;
        self.origin_y = self.scaled(self.groups[1], size[1]);
        self.origin_z = self.scaled(self.groups[2], size[2]);
        self.clear_totals();
        match self.tiling.layout {
            Layout::Rows => self.layers(),
            Layout::Group | Layout::Line => self.groups(),
        }
        self.add_totals();
        self.note_over();
        let stop = self.stop_label;
        if self.stop_at.is_none() {
            self.bind(stop);
            return;
        }
        let end = self.label();
        self.push(M::Jump(end));
        self.bind(stop);
        let ended = self.general();
        self.push(M::Imm { dst: ended, value: 1 });
        self.push(M::Store { bytes: 8, src: ended, at: At::new(R::CONTEXT, context::ENDED) });
        self.bind(end);
    }

    fn scaled(&mut self, lin: Lin, by: u32) -> Lin {
        if by == 1 {
            return lin;
        }
        let from = self.materialise(lin);
        let r = self.general();
        self.push(M::Mul { wide: false, dst: r, a: from, b: GSrc::Imm(by as i32) });
        Lin::reg(r)
    }

    fn set_components(&mut self, components: Vec<Component>) {
        let count = components.len();
        // Axes on which the components differ at all.
        let differ = |axis: u8, place: fn(&Component) -> u32| {
            if components.windows(2).any(|pair| place(&pair[0]) != place(&pair[1])) { axis } else { 0 }
        };
        let varying = differ(shape::X, |at| at.x) | differ(shape::Y, |at| at.y) | differ(shape::Z, |at| at.z);
        self.shared = (0..8u8)
            .map(|axes| {
                if axes & varying == 0 {
                    return vec![0; count];
                }
                if axes & varying == varying {
                    return (0..count).collect();
                }
                (0..count)
                    .map(|c| {
                        let same = |d: usize| {
                            (axes & shape::X == 0 || components[c].x == components[d].x)
                                && (axes & shape::Y == 0 || components[c].y == components[d].y)
                                && (axes & shape::Z == 0 || components[c].z == components[d].z)
                        };
                        (0..=c).find(|&d| same(d)).unwrap_or(c)
                    })
                    .collect()
            })
            .collect();
        let columns = self
            .columns
            .last()
            .map_or(0, |&last| last as usize + usize::from(self.kernel.values.last().map_or(1, |info| info.ty.width)));
        self.tiles.clear();
        self.tiles_end = context::TILES;
        self.reps = vec![Rep::None; columns * count.max(1)];
        self.components = components;
        self.exec = vec![None; count];
    }

    fn body(&mut self) {
        if self.tiling.layout == Layout::Rows && self.lane_bytes > 0 {
            self.clear_locals();
        }
        let all: Vec<usize> = (0..self.components.len()).collect();
        let end = self.label();
        self.block_end = end;
        let mark = self.enter_scope();
        let kernel = self.kernel;
        self.block(&kernel.body, &all, None);
        self.leave_scope(mark);
        self.bind(end);
    }

    /// The rows of one layer of the workgroups after the other.
    fn layers(&mut self) {
        let depth = self.kernel.workgroup_size[2];
        if depth == 1 {
            return self.rows();
        }
        let (layer, again) = (self.general(), self.label());
        self.push(M::Imm { dst: layer, value: 0 });
        let first = self.materialise(self.origin_z);
        self.bind(again);
        let mark = self.enter_scope();
        let z = self.general();
        self.push(M::Alu { op: Alu::Add, wide: false, dst: z, a: first, b: GSrc::R(layer) });
        (self.origin_z, self.local[2]) = (Lin::reg(z), Lin::reg(layer));
        self.rows();
        self.leave_scope(mark);
        self.push(M::Alu { op: Alu::Add, wide: false, dst: layer, a: layer, b: GSrc::Imm(1) });
        self.push(M::Cmp { wide: false, a: layer, b: GSrc::Imm(depth as i32) });
        self.push(M::JumpIf(Cond::Below, again));
    }

    /// Behind the last invocation of a row, and its first.
    fn ends_of_row(&mut self) -> [R; 2] {
        let size = self.kernel.workgroup_size[0];
        [ARG_X_END, ARG_X].map(|disp| {
            let dst = self.general();
            self.push(M::Load { bytes: 4, signed: false, dst, at: At::new(R::STACK, disp) });
            if size != 1 {
                self.push(M::Mul { wide: false, dst, a: dst, b: GSrc::Imm(size as i32) });
            }
            dst
        })
    }

    /// Vectors along whole rows: full blocks first, then single vectors with a mask.
    fn rows(&mut self) {
        let size = self.kernel.workgroup_size;
        let Tiling { vectors, rows, .. } = self.tiling;
        let [end, first] = self.ends_of_row();
        let origin_y = self.origin_y;
        let row_loop = (size[1] / rows > 1).then(|| {
            let row = self.general();
            self.push(M::Imm { dst: row, value: 0 });
            let label = self.label();
            self.bind(label);
            (row, label)
        });
        let mark = self.enter_scope();
        if let Some((row, _)) = row_loop {
            let y = self.general();
            let base = self.materialise(origin_y);
            self.push(M::Alu { op: Alu::Add, wide: false, dst: y, a: base, b: GSrc::R(row) });
            self.origin_y = Lin::reg(y);
        }
        let x = self.general();
        self.push(M::Mov { dst: x, src: first });
        self.origin_x = Lin::reg(x);
        let (main, tail, done) = (self.label(), self.label(), self.label());
        let (mut plan, mut streams) = (Plan::default(), Plan::default());
        if vectors > 1 {
            (plan, streams) = (self.plan(), self.plan_streams());
        } else if self.isa != Isa::Simd128 {
            plan = Some(self.plan()).filter(Plan::is_worth_one).unwrap_or_default();
        }
        self.streamed = streams.written();
        // Where a vector that is done alone ends at the latest, and where blocks begin that write past the caches.
        let apart = (!streams.streams.is_empty()).then(|| (self.general(), self.label()));
        // A block that is not inside of what the kernel sets as limits goes vector by vector; one where more was taken as settled, as any.
        let more = streams.settles_more(&plan);
        if let Some((until, stream)) = apart {
            self.push(M::Mov { dst: until, src: end });
            self.jump_if_streaming(Cond::Equal, main);
            if self.may_begin_anywhere() {
                self.first_aligned(&streams, rows, (x, until, end));
                self.push(M::Cmp { wide: false, a: until, b: GSrc::R(x) });
                self.push(M::JumpIf(Cond::NotEqual, tail));
                self.push(M::Mov { dst: until, src: end });
            }
            self.bind(stream);
            let again = self.label();
            self.bind(again);
            let inner = self.enter_scope();
            self.begin_block(x, end, tail);
            self.assume(&streams, if more { main } else { tail });
            self.assume_aligned(&streams, main);
            self.end_block(x);
            self.push(M::Jump(again));
            self.leave_scope(inner);
        }
        if vectors > 1 {
            self.bind(main);
            let inner = self.enter_scope();
            self.begin_block(x, end, tail);
            // A block at the edge goes vector by vector.
            self.assume(&plan, tail);
            self.end_block(x);
            if let Some((_, stream)) = apart.filter(|_| more) {
                self.jump_if_streaming(Cond::NotEqual, stream);
            }
            self.push(M::Jump(main));
            self.leave_scope(inner);
        }
        self.bind(tail);
        let inner = self.enter_scope();
        self.push(M::Cmp { wide: false, a: x, b: GSrc::R(end) });
        self.push(M::JumpIf(Cond::AboveEqual, done));
        // Where no limit was settled a block is not whole because the row ends.
        let again = if vectors == 1 || plan.is_empty() { tail } else { main };
        let (limit, after) = (apart.map_or(end, |(until, _)| until), self.label());
        if plan.is_worth_one() && self.isa != Isa::Simd128 {
            self.whole_vector_alone(&plan, (x, limit), after);
        }
        self.vector_alone(x, limit);
        self.bind(after);
        if let Some((until, stream)) = apart {
            self.push(M::Cmp { wide: false, a: x, b: GSrc::R(until) });
            self.push(M::Cmov { cond: Cond::Above, dst: x, src: until });
            self.push(M::Mov { dst: until, src: end });
            self.jump_if_streaming(Cond::Equal, again);
            self.push(M::Jump(stream));
        } else {
            self.push(M::Jump(again));
        }
        self.leave_scope(inner);
        self.bind(done);
        self.leave_scope(mark);
        if let Some((row, label)) = row_loop {
            self.push(M::Alu { op: Alu::Add, wide: false, dst: row, a: row, b: GSrc::Imm(rows as i32) });
            self.push(M::Cmp { wide: false, a: row, b: GSrc::Imm(size[1] as i32) });
            self.push(M::JumpIf(Cond::Below, label));
        }
    }

    /// Invocations of a block along x.
    fn block_step(&self) -> i32 {
        (self.tiling.vectors * self.lanes()) as i32
    }

    /// Goes to `tail` where the row has no whole block any more.
    fn begin_block(&mut self, x: R, end: R, tail: Label) {
        let Tiling { vectors, rows, .. } = self.tiling;
        let next = self.general();
        self.push(M::Lea { wide: false, dst: next, at: At::new(x, self.block_step()) });
        self.push(M::Cmp { wide: false, a: next, b: GSrc::R(end) });
        self.push(M::JumpIf(Cond::Above, tail));
        self.set_components((0..rows).flat_map(|y| (0..vectors).map(move |x| Component { x, y, z: 0 })).collect());
    }

    /// The kernel for the block from `x` on, which is then the next one's.
    fn end_block(&mut self, x: R) {
        self.body();
        self.assume_nothing();
        self.push(M::Alu { op: Alu::Add, wide: false, dst: x, a: x, b: GSrc::Imm(self.block_step()) });
    }

    /// The kernel for one vector of each row where it is inside all bounds, though a block is not; `after` is where the code goes on then.
    fn whole_vector_alone(&mut self, plan: &Plan<'k>, (x, limit): (R, R), after: Label) {
        let (at_edge, mark) = (self.label(), self.enter_scope());
        let next = self.general();
        self.push(M::Lea { wide: false, dst: next, at: At::new(x, self.lanes() as i32) });
        self.push(M::Cmp { wide: false, a: next, b: GSrc::R(limit) });
        self.push(M::JumpIf(Cond::Above, at_edge));
        self.set_components((0..self.tiling.rows).map(|y| Component { x: 0, y, z: 0 }).collect());
        self.assume(plan, at_edge);
        self.body();
        self.assume_nothing();
        self.push(M::Alu { op: Alu::Add, wide: false, dst: x, a: x, b: GSrc::Imm(self.lanes() as i32) });
        self.leave_scope(mark);
        self.push(M::Jump(after));
        self.bind(at_edge);
    }

    /// The kernel for one vector of each row, which ends at `limit` at the latest.
    fn vector_alone(&mut self, x: R, limit: R) {
        let rows = self.tiling.rows;
        self.set_components((0..rows).map(|y| Component { x: 0, y, z: 0 }).collect());
        let left = self.general();
        self.push(M::Alu { op: Alu::Sub, wide: false, dst: left, a: limit, b: GSrc::R(x) });
        let mask = self.mask_below(left);
        self.exec = vec![Some(mask); rows as usize];
        self.body();
        self.push(M::Alu { op: Alu::Add, wide: false, dst: x, a: x, b: GSrc::Imm(self.lanes() as i32) });
    }

    /// One workgroup after the other, each as one block or in pieces.
    fn groups(&mut self) {
        let size = self.kernel.workgroup_size;
        let lanes = self.lanes();
        let (again, done) = (self.label(), self.label());
        let group = self.general();
        self.push(M::Load { bytes: 4, signed: false, dst: group, at: At::new(R::STACK, ARG_X) });
        let end = self.general();
        self.push(M::Load { bytes: 4, signed: false, dst: end, at: At::new(R::STACK, ARG_X_END) });
        self.bind(again);
        let mark = self.enter_scope();
        self.push(M::Cmp { wide: false, a: group, b: GSrc::R(end) });
        self.push(M::JumpIf(Cond::AboveEqual, done));
        self.groups[0] = Lin::reg(group);
        self.origin_x = self.scaled(Lin::reg(group), size[0]);
        let total = size[0] * size[1] * size[2];
        if self.tiling.vectors > 0 {
            self.clear_private();
            let Tiling { vectors, rows, .. } = self.tiling;
            self.set_components((0..rows).flat_map(|y| (0..vectors).map(move |x| Component { x, y, z: 0 })).collect());
            self.regions();
            return self.next_group(group, again, done, mark);
        }
        let components = match self.tiling.layout {
            Layout::Group => (0..size[2])
                .flat_map(|z| (0..size[1]).flat_map(move |y| (0..size[0] / lanes).map(move |x| Component { x, y, z })))
                .collect(),
            _ => (0..total.div_ceil(lanes)).map(|x| Component { x, y: 0, z: 0 }).collect::<Vec<_>>(),
        };
        let plan = if self.isa == Isa::Simd128 { Plan::default() } else { self.plan() };
        let next = self.label();
        for settled in [true, false] {
            if settled && !plan.is_worth_two(components.len()) {
                continue;
            }
            self.set_components(components.clone());
            let inner = self.enter_scope();
            if !total.is_multiple_of(lanes) {
                let last = self.exec.len() - 1;
                let bits = self.general();
                self.push(M::Imm { dst: bits, value: u64::from(total % lanes) });
                let mask = self.mask_below(bits);
                self.exec[last] = Some(mask);
            }
            let edge = self.label();
            if settled {
                self.assume(&plan, edge);
            }
            self.clear_private();
            self.body();
            self.note_over();
            self.leave_scope(inner);
            if settled {
                self.assume_nothing();
                self.drop_writes();
                self.push(M::Jump(next));
            }
            self.bind(edge);
        }
        self.bind(next);
        self.next_group(group, again, done, mark);
    }

    fn next_group(&mut self, group: R, again: Label, done: Label, mark: usize) {
        self.push(M::Alu { op: Alu::Add, wide: false, dst: group, a: group, b: GSrc::Imm(1) });
        self.push(M::Jump(again));
        self.leave_scope(mark);
        self.bind(done);
    }

    /// What a built-in is for a component: the value of its first lane.
    fn builtin(&mut self, builtin: Builtin, c: usize) -> Lin {
        let size = self.kernel.workgroup_size;
        let Component { x, y, z } = self.components[c];
        let lanes = self.lanes();
        let rows = self.tiling.layout == Layout::Rows;
        // In one line of a workgroup without extent along x, every lane is at 0.
        let folded = self.tiling.layout == Layout::Line && (size[1] > 1 || size[2] > 1);
        let x = if folded { 0 } else { x };
        match builtin {
            Builtin::LocalIndex if !rows => {
                let x = self.components[c].x;
                self.line.plus((x * lanes + size[0] * y + size[0] * size[1] * z) as i32)
            }
            Builtin::GlobalId(0) => self.origin_x.plus((x * lanes) as i32),
            Builtin::GlobalId(1) => self.origin_y.plus(y as i32),
            Builtin::GlobalId(_) => self.origin_z.plus(z as i32),
            Builtin::LocalId(0) if rows => {
                let at = self.origin_x.plus((x * lanes) as i32);
                let at = self.materialise(at);
                Lin::reg(self.alu(Alu::And, false, at, GSrc::Imm(size[0] as i32 - 1)))
            }
            Builtin::LocalIndex => self.builtin(Builtin::LocalId(0), c),
            Builtin::LocalId(_) if folded => Lin::imm(0),
            Builtin::LocalId(0) => self.local[0].plus((x * lanes) as i32),
            Builtin::LocalId(1) if rows => {
                // The row within the workgroup: rows of a block never leave it.
                let at = self.origin_y.plus(y as i32);
                let at = self.materialise(at);
                let first = self.scaled(self.groups[1], size[1]);
                let first = self.materialise(first);
                Lin::reg(self.alu(Alu::Sub, false, at, GSrc::R(first)))
            }
            Builtin::LocalId(1) => self.local[1].plus(y as i32),
            Builtin::LocalId(_) => self.local[2].plus(z as i32),
            Builtin::WorkgroupId(0) if rows => {
                let at = self.origin_x.plus((x * lanes) as i32);
                let at = self.materialise(at);
                let r = self.general();
                let count = GSrc::Imm(size[0].trailing_zeros() as i32);
                self.push(M::Shift { op: super::asm::Shift::Right, wide: false, dst: r, a: at, count });
                Lin::reg(r)
            }
            Builtin::WorkgroupId(axis) => self.groups[usize::from(axis.min(2))],
            Builtin::NumWorkgroups(axis) => {
                let r = self.general();
                let at = At::new(R::CONTEXT, context::GROUPS + 4 * i32::from(axis.min(2)));
                self.push(M::Load { bytes: 4, signed: false, dst: r, at });
                Lin::reg(r)
            }
            Builtin::WorkgroupSize(axis) => Lin::imm(size[usize::from(axis.min(2))] as i32),
            Builtin::SubgroupSize => Lin::imm(crate::launch::SUBGROUP_SIZE as i32),
            Builtin::NumSubgroups => {
                Lin::imm(size.iter().product::<u32>().div_ceil(crate::launch::SUBGROUP_SIZE) as i32)
            }
            // Not affine; made from the local index where they are used.
            Builtin::SubgroupLane | Builtin::SubgroupId => self.builtin(Builtin::LocalIndex, c),
        }
    }
}

/// Some loop looks whether the launch has to end.
fn looks(block: &Block) -> bool {
    block.insts.iter().any(|inst| match inst {
        Inst::If { then, otherwise, .. } => looks(then) || looks(otherwise),
        Inst::Loop(inner) => inner.look.is_some() || looks(&inner.body),
        _ => false,
    })
}

fn used_buffers(block: &Block, used: &mut [bool]) {
    let mut mark = |memory: Memory| {
        if let Memory::Buffer(index) = memory {
            used[index as usize] = true;
        }
    };
    for inst in &block.insts {
        match inst {
            Inst::Let(_, Op::Load { address, .. }) | Inst::Store { address, .. } | Inst::Atomic { address, .. } => {
                mark(address.memory);
            }
            _ => {}
        }
    }
    for inst in &block.insts {
        match inst {
            Inst::If { then, otherwise, .. } => {
                used_buffers(then, used);
                used_buffers(otherwise, used);
            }
            Inst::Loop(inner) => used_buffers(&inner.body, used),
            _ => {}
        }
    }
}
