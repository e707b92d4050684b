//! The column interpreter: evaluates the kernel form for a whole workgroup at once, one column of lanes per value.
//!
//! It needs no code generation, so it runs everywhere, and every native path has it to lean on. Because all invocations of the
//! workgroup advance together, barriers have nothing left to do. Divergence is a list of the lanes that are here.

mod subgroup;

use vyre_foundation::ir::{AtomicOp, Builtin};
use vyre_foundation::kernel::{Address, Block, End, Inst, Kernel, Loop, Memory, Op, Scalar, Value, eval};

use crate::launch::{Grid, SUBGROUP_SIZE, Stop};
use crate::memory::{Scratch, Span};

/// Lanes of the workgroup that are at one place, in order.
type Lanes = Vec<u32>;

/// Where a kernel's private memories lie.
#[derive(Debug)]
struct Frame {
    /// Byte offset of each shared memory.
    shared: Vec<usize>,
    shared_bytes: usize,
    /// Byte offset and size of each local memory within one lane's part.
    locals: Vec<usize>,
    lane_bytes: usize,
}

/// A kernel that is ready to be interpreted.
#[derive(Debug)]
pub(crate) struct Interpreted {
    kernel: Kernel,
    /// First column of each value.
    columns: Vec<u32>,
    column_count: usize,
    frame: Frame,
    lanes: usize,
}

fn round_up(at: usize, align: usize) -> usize {
    at.div_ceil(align) * align
}

impl Interpreted {
    pub(crate) fn new(kernel: Kernel) -> Interpreted {
        let mut column_count = 0;
        let columns = kernel
            .values
            .iter()
            .map(|info| {
                let first = column_count;
                column_count += u32::from(info.ty.width);
                first
            })
            .collect();
        let mut shared_bytes = 0;
        let shared = kernel.shared.iter().map(|memory| place(&mut shared_bytes, memory.size)).collect();
        let mut lane_bytes = 0;
        let locals = kernel.locals.iter().map(|memory| place(&mut lane_bytes, memory.size)).collect();
        let lanes = kernel.workgroup_size.iter().product::<u32>() as usize;
        let frame = Frame { shared, shared_bytes, locals, lane_bytes };
        Interpreted { kernel, columns, column_count: column_count as usize, frame, lanes }
    }

    /// Bytes of private memory that one thread needs: the columns, then workgroup memory, then the invocations' arrays.
    pub(crate) fn scratch_bytes(&self) -> Option<usize> {
        let cells = self.column_count.checked_mul(self.lanes)?.checked_mul(8)?;
        let locals = self.frame.lane_bytes.checked_mul(self.lanes)?;
        cells.checked_add(self.frame.shared_bytes)?.checked_add(locals)
    }

    /// Runs one workgroup; false when it ended because it was told to stop.
    pub(crate) fn run(
        &self,
        scratch: &mut Scratch,
        buffers: &[Span],
        grid: &Grid<'_>,
        at: [u32; 3],
        stop: Option<&Stop>,
    ) -> bool {
        let cells = self.column_count * self.lanes;
        let shared = scratch.span(cells * 8, self.frame.shared_bytes);
        let locals = scratch.span(cells * 8 + self.frame.shared_bytes, self.frame.lane_bytes * self.lanes);
        shared.clear();
        locals.clear();
        let mut machine = Machine {
            code: self,
            cells: scratch.words(cells),
            shared,
            locals,
            buffers,
            grid,
            workgroup: at,
            stop,
            stopped: false,
            loops: Vec::new(),
        };
        machine.block(&self.kernel.body, (0..self.lanes as u32).collect());
        !machine.stopped
    }
}

fn place(end: &mut usize, size: u32) -> usize {
    let at = round_up(*end, 16);
    *end = at + round_up(size as usize, 16);
    at
}

/// Where the lanes of a loop went in this round.
#[derive(Default)]
struct Round {
    continued: Lanes,
    left: Lanes,
}

struct Machine<'a> {
    code: &'a Interpreted,
    cells: &'a mut [u64],
    shared: Span,
    locals: Span,
    buffers: &'a [Span],
    grid: &'a Grid<'a>,
    workgroup: [u32; 3],
    stop: Option<&'a Stop>,
    /// A loop was left because of it.
    stopped: bool,
    loops: Vec<(&'a Loop, Round)>,
}

impl<'a> Machine<'a> {
    fn cell(&self, value: Value, component: usize, lane: u32) -> usize {
        (self.code.columns[value.index()] as usize + component) * self.code.lanes + lane as usize
    }

    fn get(&self, value: Value, lane: u32) -> u64 {
        self.cells[self.cell(value, 0, lane)]
    }

    fn set(&mut self, value: Value, component: usize, lane: u32, bits: u64) {
        let cell = self.cell(value, component, lane);
        self.cells[cell] = bits;
    }

    fn scalar(&self, value: Value) -> Scalar {
        self.code.kernel.values[value.index()].ty.scalar
    }

    fn width(&self, value: Value) -> usize {
        usize::from(self.code.kernel.values[value.index()].ty.width)
    }

    /// Runs the lanes through a block and gives those that come out of its end, in order.
    fn block(&mut self, block: &'a Block, mut lanes: Lanes) -> Lanes {
        for inst in &block.insts {
            if lanes.is_empty() {
                return lanes;
            }
            match inst {
                Inst::Let(value, op) => self.define(*value, op, &lanes),
                Inst::Store { address, element, value, guard } => {
                    let step = u64::from(if element.bits() == 4 { 1 } else { element.bits() / 8 });
                    for &lane in &lanes {
                        if !self.allowed(*guard, lane) {
                            continue;
                        }
                        let (span, at) = self.resolve(address, lane);
                        for component in 0..self.width(*value) {
                            let bits = self.cells[self.cell(*value, component, lane)];
                            span.write(*element, at + component as u64 * step, eval::encode(*element, bits));
                        }
                    }
                }
                Inst::Atomic { op, address, element, value, compare, result, guard } => {
                    let scalar = element.scalar();
                    for &lane in &lanes {
                        let mut old = 0;
                        if self.allowed(*guard, lane) {
                            let (span, at) = self.resolve(address, lane);
                            let operand = value.map_or(0, |value| self.get(value, lane));
                            let compare = compare.map_or(0, |value| self.get(value, lane));
                            old = match op {
                                AtomicOp::Load => span.update(*element, at, |old| old),
                                _ => span.update(*element, at, |old| eval::atomic(*op, scalar, old, operand, compare)),
                            };
                        }
                        if let Some(result) = result {
                            self.set(*result, 0, lane, old);
                        }
                    }
                }
                // Every lane that is still there has come this far.
                Inst::Barrier(_) => {}
                Inst::If { cond, then, otherwise, results } => {
                    let (yes, no): (Lanes, Lanes) = lanes.iter().partition(|&&lane| self.get(*cond, lane) != 0);
                    let yes = self.branch(then, yes, results);
                    let no = self.branch(otherwise, no, results);
                    lanes = merge(yes, no);
                }
                Inst::Loop(inner) => lanes = self.run_loop(inner, lanes),
            }
        }
        if lanes.is_empty() {
            return lanes;
        }
        match &block.end {
            End::Yield(_) => lanes,
            End::Continue(values) => {
                if let Some(&(target, _)) = self.loops.last() {
                    self.copy(values, &target.params, &lanes);
                }
                if let Some((_, round)) = self.loops.last_mut() {
                    round.continued.extend(lanes);
                }
                Lanes::new()
            }
            End::Break(values) => {
                if let Some(&(target, _)) = self.loops.last() {
                    self.copy(values, &target.results, &lanes);
                }
                if let Some((_, round)) = self.loops.last_mut() {
                    round.left.extend(lanes);
                }
                Lanes::new()
            }
            End::Return | End::Unreachable => Lanes::new(),
        }
    }

    fn branch(&mut self, block: &'a Block, lanes: Lanes, results: &[Value]) -> Lanes {
        if lanes.is_empty() {
            return lanes;
        }
        let lanes = self.block(block, lanes);
        if let End::Yield(values) = &block.end {
            self.copy(values, results, &lanes);
        }
        lanes
    }

    /// Assigns all at once: a target may be among the sources.
    fn copy(&mut self, from: &[Value], to: &[Value], lanes: &Lanes) {
        let mut held: Vec<u64> = Vec::with_capacity(from.len());
        for &lane in lanes {
            held.clear();
            held.extend(from.iter().map(|&value| self.get(value, lane)));
            for (&value, &bits) in to.iter().zip(&held) {
                self.set(value, 0, lane, bits);
            }
        }
    }

    fn run_loop(&mut self, inner: &'a Loop, lanes: Lanes) -> Lanes {
        self.copy(&inner.init, &inner.params, &lanes);
        self.loops.push((inner, Round::default()));
        let mut active = lanes;
        if let Some(counter) = &inner.counter {
            let signed = self.scalar(counter.value).is_signed();
            for &lane in &active {
                let from = self.get(counter.from, lane);
                self.set(counter.value, 0, lane, from);
            }
            active = self.count(inner, active, |machine, lane| {
                let (from, to) = (machine.get(counter.from, lane), machine.get(counter.to, lane));
                if signed { (from as i32) < (to as i32) } else { from < to }
            });
        }
        while !active.is_empty() {
            if inner.look.is_some() && self.stop.is_some_and(Stop::is_set) {
                self.stopped = true;
                break;
            }
            self.block(&inner.body, active);
            let (_, round) = self.loops.last_mut().expect("the loop is on its own stack");
            active = std::mem::take(&mut round.continued);
            active.sort_unstable();
            if let Some(counter) = &inner.counter {
                active = self.count(inner, active, |machine, lane| {
                    let at = machine.get(counter.value, lane) as u32;
                    let left = (machine.get(counter.to, lane) as u32).wrapping_sub(at);
                    machine.set(counter.value, 0, lane, u64::from(at.wrapping_add(counter.step)));
                    left > counter.step
                });
            }
        }
        let (_, round) = self.loops.pop().expect("the loop is on its own stack");
        let mut left = round.left;
        left.sort_unstable();
        left
    }

    /// Keeps the lanes whose counter goes on; the others leave with the carried values.
    fn count(&mut self, inner: &'a Loop, lanes: Lanes, goes_on: impl Fn(&mut Self, u32) -> bool) -> Lanes {
        let (on, done): (Lanes, Lanes) = lanes.into_iter().partition(|&lane| goes_on(self, lane));
        self.copy(&inner.params, &inner.results, &done);
        let (_, round) = self.loops.last_mut().expect("the loop is on its own stack");
        round.left.extend(done);
        on
    }

    fn allowed(&self, guard: Option<Value>, lane: u32) -> bool {
        guard.is_none_or(|guard| self.get(guard, lane) != 0)
    }

    /// The memory and the place in it that an address names for a lane.
    fn resolve(&self, address: &Address, lane: u32) -> (Span, u64) {
        let mut at = u64::from(address.offset);
        for &(index, stride) in &address.terms {
            at = at.wrapping_add(self.get(index, lane).wrapping_mul(u64::from(stride)));
        }
        let kernel = &self.code.kernel;
        let frame = &self.code.frame;
        let span = match address.memory {
            Memory::Buffer(index) => self.buffers[index as usize],
            Memory::Shared(index) => {
                let bytes = round_up(kernel.shared[index as usize].size as usize, 16);
                self.shared.part(frame.shared[index as usize], bytes)
            }
            Memory::Local(index) => {
                let bytes = round_up(kernel.locals[index as usize].size as usize, 16);
                let first = lane as usize * frame.lane_bytes;
                self.locals.part(first + frame.locals[index as usize], bytes)
            }
        };
        (span, at)
    }

    fn define(&mut self, value: Value, op: &Op, lanes: &Lanes) {
        let scalar = self.scalar(value);
        match op {
            Op::Const(literal) => {
                let bits = literal.bits();
                self.each(value, lanes, |_, _| bits);
            }
            Op::Builtin(builtin) => self.each(value, lanes, |machine, lane| machine.builtin(*builtin, lane)),
            Op::Length(buffer) => {
                let length = self.grid.lengths[*buffer as usize];
                let length = if scalar.bits() == 64 { length } else { length.min(u64::from(u32::MAX)) };
                self.each(value, lanes, |_, _| length);
            }
            Op::Unary(op, a) => {
                let ty = self.scalar(*a);
                self.each(value, lanes, |machine, lane| eval::unary(*op, ty, machine.get(*a, lane)));
            }
            Op::Binary(op, a, b) => {
                let ty = self.scalar(*a);
                self.each(value, lanes, |machine, lane| {
                    eval::binary(*op, ty, machine.get(*a, lane), machine.get(*b, lane))
                });
            }
            Op::Fma(a, b, c) => self.each(value, lanes, |machine, lane| {
                eval::fma(scalar, machine.get(*a, lane), machine.get(*b, lane), machine.get(*c, lane))
            }),
            Op::Select(cond, yes, no) => self.each(value, lanes, |machine, lane| {
                machine.get(if machine.get(*cond, lane) != 0 { *yes } else { *no }, lane)
            }),
            Op::Cast(a) => {
                let from = self.scalar(*a);
                self.each(value, lanes, |machine, lane| eval::cast(from, scalar, machine.get(*a, lane)));
            }
            Op::BitCast(a) => {
                let from = self.scalar(*a);
                self.each(value, lanes, |machine, lane| eval::bit_cast(from, scalar, machine.get(*a, lane)));
            }
            Op::Load { address, element, guard } => {
                let step = u64::from(if element.bits() == 4 { 1 } else { element.bits() / 8 });
                for &lane in lanes {
                    let allowed = self.allowed(*guard, lane);
                    let (span, at) = self.resolve(address, lane);
                    for component in 0..self.width(value) {
                        let bits = match allowed {
                            true => eval::decode(*element, span.read(*element, at + component as u64 * step)),
                            false => 0,
                        };
                        self.set(value, component, lane, bits);
                    }
                }
            }
            Op::Extract(a, component) => {
                let component = usize::from(*component);
                self.each(value, lanes, |machine, lane| machine.cells[machine.cell(*a, component, lane)]);
            }
            Op::Construct(parts) => {
                for (component, part) in parts.iter().enumerate() {
                    for &lane in lanes {
                        let bits = self.get(*part, lane);
                        self.set(value, component, lane, bits);
                    }
                }
            }
            Op::Subgroup(op, a, argument) => self.subgroup(value, *op, *a, *argument, lanes),
            Op::Matrix(matrix) => self.matrix(value, matrix),
        }
    }

    fn each(&mut self, value: Value, lanes: &Lanes, compute: impl Fn(&Self, u32) -> u64) {
        for &lane in lanes {
            let bits = compute(self, lane);
            self.set(value, 0, lane, bits);
        }
    }

    fn builtin(&self, builtin: Builtin, lane: u32) -> u64 {
        let size = self.code.kernel.workgroup_size;
        let local = |axis: u8| match axis {
            0 => lane % size[0],
            1 => lane / size[0] % size[1],
            _ => lane / (size[0] * size[1]),
        };
        let axis = |axis: u8| usize::from(axis.min(2));
        u64::from(match builtin {
            Builtin::GlobalId(a) => self.workgroup[axis(a)].wrapping_mul(size[axis(a)]).wrapping_add(local(a)),
            Builtin::LocalId(a) => local(a),
            Builtin::WorkgroupId(a) => self.workgroup[axis(a)],
            Builtin::NumWorkgroups(a) => self.grid.workgroups[axis(a)],
            Builtin::WorkgroupSize(a) => size[axis(a)],
            Builtin::LocalIndex => lane,
            Builtin::SubgroupSize => SUBGROUP_SIZE,
            Builtin::SubgroupLane => lane % SUBGROUP_SIZE,
            Builtin::SubgroupId => lane / SUBGROUP_SIZE,
            Builtin::NumSubgroups => (self.code.lanes as u32).div_ceil(SUBGROUP_SIZE),
        })
    }
}

/// Two ordered lists as one.
fn merge(a: Lanes, b: Lanes) -> Lanes {
    if a.is_empty() {
        return b;
    }
    if b.is_empty() {
        return a;
    }
    let mut all = a;
    all.extend(b);
    all.sort_unstable();
    all
}
