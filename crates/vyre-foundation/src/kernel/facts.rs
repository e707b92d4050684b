//! What can be read off a finished kernel: accesses, features, uniformity, and whether its workgroup size matters.

use super::walk::{Effect, each_inst, each_operand};
use super::{Address, Block, Element, End, Features, Inst, Kernel, Loop, Memory, Op, Scalar, Value, ValueInfo};
use crate::ir::{AtomicOp, BufferKind, Builtin};

/// Fills in the facts of a kernel.
pub(super) fn fill(kernel: &mut Kernel) {
    let mut facts = Facts::default();
    for buffer in &mut kernel.buffers {
        (buffer.read, buffer.written, buffer.atomic) = (false, false, false);
    }
    let (buffers, shared, values) = (&mut kernel.buffers, &mut kernel.shared, &kernel.values);
    each_inst(&kernel.body, &mut |inst| {
        facts.inst(inst, values);
        if let Some((address, effect)) = super::walk::access(inst)
            && let Memory::Buffer(buffer) = address.memory
        {
            let buffer = &mut buffers[buffer as usize];
            buffer.read |= effect != Effect::Write;
            buffer.written |= effect != Effect::Read;
        }
        if let Inst::Atomic { address, .. } = inst {
            match address.memory {
                Memory::Buffer(buffer) => buffers[buffer as usize].atomic = true,
                Memory::Shared(memory) => shared[memory as usize].atomic = true,
                Memory::Local(_) => {}
            }
        }
    });
    kernel.features = facts.features;
    kernel.has_barrier = facts.barrier;
    kernel.resizable &= !facts.sized;
    uniform(kernel);
}

#[derive(Default)]
struct Facts {
    features: Features,
    barrier: bool,
    sized: bool,
}

impl Facts {
    fn need(&mut self, feature: Features) {
        self.features = self.features.union(feature);
    }

    fn element(&mut self, element: Element) {
        self.scalar(element.scalar());
        if element.bits() < 16 || matches!(element, Element::U16 | Element::I16 | Element::BF16) {
            self.need(Features::NARROW);
        }
    }

    fn scalar(&mut self, scalar: Scalar) {
        match scalar {
            Scalar::F16 => self.need(Features::F16),
            Scalar::F64 => self.need(Features::F64),
            Scalar::U64 | Scalar::I64 => self.need(Features::INT64),
            _ => {}
        }
    }

    fn inst(&mut self, inst: &Inst, values: &[ValueInfo]) {
        match inst {
            Inst::Let(value, op) => {
                self.scalar(values[value.index()].ty.scalar);
                match op {
                    Op::Builtin(Builtin::GlobalId(_)) => {}
                    Op::Builtin(builtin) => {
                        self.sized = true;
                        if let Builtin::SubgroupSize
                        | Builtin::SubgroupLane
                        | Builtin::SubgroupId
                        | Builtin::NumSubgroups = builtin
                        {
                            self.need(Features::SUBGROUP);
                        }
                    }
                    Op::Subgroup(..) => {
                        self.sized = true;
                        self.need(Features::SUBGROUP);
                    }
                    Op::Matrix(_) => {
                        self.sized = true;
                        self.need(Features::SUBGROUP.union(Features::MATRIX));
                    }
                    Op::Load { address, element, .. } => {
                        self.element(*element);
                        self.shared(address);
                    }
                    _ => {}
                }
            }
            Inst::Store { address, element, .. } => {
                self.element(*element);
                self.shared(address);
            }
            Inst::Atomic { address, element, .. } => {
                self.shared(address);
                if element.bits() == 64 {
                    self.need(Features::ATOMIC64);
                    self.need(Features::INT64);
                }
            }
            Inst::Barrier(_) => {
                self.barrier = true;
                self.sized = true;
            }
            Inst::If { .. } | Inst::Loop(_) => {}
        }
    }

    fn shared(&mut self, address: &Address) {
        if let Memory::Shared(_) = address.memory {
            self.sized = true;
        }
    }
}

/// Marks the values that are the same for all invocations of a workgroup.
///
/// A loop's carried values start as uniform as what they begin with and lose it when a round or a way out brings something
/// that is not. Everything else follows in order, so this is repeated only while a round takes it from a carried value, which was
/// read before that.
fn uniform(kernel: &mut Kernel) {
    let mut marks = Marks {
        uniform: vec![true; kernel.values.len()],
        constant_buffers: kernel.buffers.iter().map(|b| b.kind == BufferKind::Uniform || !b.written).collect(),
        workgroup_size: kernel.workgroup_size,
        changed: true,
    };
    while std::mem::take(&mut marks.changed) {
        let mut frame = Frame::default();
        marks.block(&kernel.body, true, &mut frame);
    }
    for (info, uniform) in kernel.values.iter_mut().zip(&marks.uniform) {
        info.uniform = *uniform;
    }
}

struct Marks {
    uniform: Vec<bool>,
    constant_buffers: Vec<bool>,
    workgroup_size: [u32; 3],
    changed: bool,
}

/// The innermost loop: whether all invocations leave it together and go round together.
#[derive(Default)]
struct Frame<'a> {
    breaks: Vec<&'a [Value]>,
    continues: Vec<&'a [Value]>,
    /// Some exit is taken by a part of the invocations.
    split: bool,
}

impl Marks {
    fn clear(&mut self, value: Value) {
        self.uniform[value.index()] = false;
    }

    fn set(&mut self, value: Value, uniform: bool) {
        self.uniform[value.index()] &= uniform;
    }

    /// `together`: all invocations that entered the innermost loop are here.
    fn block<'a>(&mut self, block: &'a Block, together: bool, frame: &mut Frame<'a>) {
        for (i, inst) in block.insts.iter().enumerate() {
            if let Inst::Let(value, Op::Load { address, guard, .. }) = inst
                && let Memory::Shared(_) = address.memory
                && between_barriers(&block.insts, i)
            {
                // Nobody writes between two meetings of the workgroup with only this in between.
                let same = self.same_place(address, *guard);
                self.set(*value, same);
                continue;
            }
            self.inst(inst, together, frame);
        }
        match &block.end {
            End::Break(values) => {
                frame.breaks.push(values);
                frame.split |= !together;
            }
            End::Continue(values) => {
                frame.continues.push(values);
                frame.split |= !together;
            }
            End::Return | End::Yield(_) | End::Unreachable => {}
        }
    }

    fn inst<'a>(&mut self, inst: &'a Inst, together: bool, frame: &mut Frame<'a>) {
        match inst {
            Inst::Let(value, op) => {
                let uniform = self.op(op);
                self.set(*value, uniform);
            }
            Inst::Atomic { result, .. } => {
                if let Some(result) = result {
                    self.clear(*result);
                }
            }
            Inst::If { cond, then, otherwise, results } => {
                let same = self.uniform[cond.index()];
                self.block(then, together && same, frame);
                self.block(otherwise, together && same, frame);
                for (i, result) in results.iter().enumerate() {
                    let mut uniform = true;
                    let mut ways = 0;
                    for block in [then, otherwise] {
                        if let End::Yield(values) = &block.end {
                            uniform &= self.uniform[values[i].index()];
                            ways += 1;
                        }
                    }
                    self.set(*result, uniform && (same || ways < 2));
                }
            }
            Inst::Loop(body) => self.repeat(body),
            Inst::Store { .. } | Inst::Barrier(_) => {}
        }
    }

    fn repeat(&mut self, body: &Loop) {
        let counted = body.counter.is_none_or(|c| self.uniform[c.from.index()] && self.uniform[c.to.index()]);
        if let Some(counter) = body.counter {
            self.set(counter.value, self.uniform[counter.from.index()]);
        }
        for (param, init) in body.params.iter().zip(&body.init) {
            self.set(*param, self.uniform[init.index()]);
        }
        let mut frame = Frame::default();
        // Only those that entered count, so they begin together.
        self.block(&body.body, true, &mut frame);
        // Invocations that leave in different rounds take different values with them, even where each round's is uniform.
        let split = frame.split || !counted;
        for i in 0..body.params.len() {
            let carried = frame.continues.iter().all(|values| self.uniform[values[i].index()]);
            let one_way = frame.continues.len() < 2 || !frame.split;
            let still = carried && one_way;
            self.changed |= self.uniform[body.params[i].index()] && !still;
            self.set(body.params[i], still);
            let mut same = frame.breaks.iter().all(|values| self.uniform[values[i].index()]);
            if body.counter.is_some() {
                same &= self.uniform[body.params[i].index()];
            }
            self.set(body.results[i], same && !split);
        }
    }

    /// All invocations access the same element, or none.
    fn same_place(&self, address: &Address, guard: Option<Value>) -> bool {
        guard.is_none_or(|guard| self.uniform[guard.index()])
            && address.terms.iter().all(|(value, _)| self.uniform[value.index()])
    }

    fn op(&self, op: &Op) -> bool {
        match op {
            Op::Const(_) | Op::Length(_) => true,
            Op::Builtin(builtin) => match builtin {
                Builtin::WorkgroupId(_)
                | Builtin::NumWorkgroups(_)
                | Builtin::WorkgroupSize(_)
                | Builtin::SubgroupSize
                | Builtin::NumSubgroups => true,
                Builtin::GlobalId(axis) => self.workgroup_size[usize::from((*axis).min(2))] == 1,
                _ => false,
            },
            Op::Load { address, guard, .. } => {
                let fixed = match address.memory {
                    Memory::Buffer(buffer) => self.constant_buffers[buffer as usize],
                    Memory::Shared(_) | Memory::Local(_) => false,
                };
                fixed && self.same_place(address, *guard)
            }
            // The subgroups of a workgroup differ.
            Op::Subgroup(..) | Op::Matrix(_) => false,
            op => {
                let mut uniform = true;
                each_operand(op, &mut |value| uniform &= self.uniform[value.index()]);
                uniform
            }
        }
    }
}

/// Barriers stand before and after a step, with nothing but values being computed in between.
fn between_barriers(insts: &[Inst], i: usize) -> bool {
    let meets = |inst: Option<&Inst>| matches!(inst, Some(Inst::Barrier(_)));
    let acts = |inst: &&Inst| !matches!(inst, Inst::Let(..));
    meets(insts[..i].iter().rev().find(acts)) && meets(insts[i + 1..].iter().find(acts))
}

/// An atomic load does not write.
pub(super) fn atomic_effect(op: AtomicOp) -> Effect {
    match op {
        AtomicOp::Load => Effect::Read,
        AtomicOp::Store => Effect::Write,
        _ => Effect::Both,
    }
}
