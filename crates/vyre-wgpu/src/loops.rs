//! How many rounds the loops of a kernel make, where that can be told.

use std::collections::{HashMap, HashSet};

use vyre_foundation::ir::{AtomicOp, Builtin, Literal};
use vyre_foundation::kernel::{Address, Block, Counter, End, Inst, Kernel, Memory, Op, Value};

/// What is known of the loops of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loops {
    /// Most rounds that an invocation makes in all of them together, where known. Holds for any set of invocations that take
    /// their branches and loops together, too.
    pub(crate) most: Option<u64>,
    /// Each of them is proven to end.
    pub(crate) finite: bool,
    /// All invocations of a workgroup that are still there make the same rounds.
    pub(crate) uniform: bool,
}

/// Where a driver ends loops without a word: rounds that it is sure to make of all loops of some invocations that it runs together, and
/// how many those are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoundLimit {
    pub(crate) together: u32,
    pub(crate) lanes: u32,
}

impl RoundLimit {
    /// Rounds that each invocation may make, where it might make more. Invocations that take their loops one after the other add up.
    pub(crate) fn of(self, loops: Loops) -> Option<u32> {
        let is_below = loops.most.is_some_and(|most| most <= u64::from(self.together));
        let adding_up = if loops.uniform { 1 } else { self.lanes.max(1) };
        (!is_below).then_some(self.together / adding_up)
    }
}

impl Loops {
    pub(crate) fn of(kernel: &Kernel) -> Loops {
        let mut constants = HashMap::new();
        find_constants(&kernel.body, &mut constants);
        // Workgroup memory is cleared first, by all invocations of the workgroup.
        let invocations = kernel.workgroup_size.iter().map(|&size| u64::from(size)).product::<u64>().max(1);
        let cleared = kernel.shared.iter().map(|memory| u64::from(memory.size) / invocations + 1).sum();
        Loops {
            most: rounds(&kernel.body, &constants).map(|rounds| rounds.saturating_add(cleared)),
            finite: is_finite(&kernel.body),
            uniform: Uniform { kernel, values: HashSet::new() }.block(&kernel.body, false),
        }
    }
}

fn find_constants(block: &Block, constants: &mut HashMap<Value, i64>) {
    for inst in &block.insts {
        match inst {
            Inst::Let(value, Op::Const(Literal::U32(number))) => _ = constants.insert(*value, i64::from(*number)),
            Inst::Let(value, Op::Const(Literal::I32(number))) => _ = constants.insert(*value, i64::from(*number)),
            Inst::If { then, otherwise, .. } => {
                find_constants(then, constants);
                find_constants(otherwise, constants);
            }
            Inst::Loop(repeat) => find_constants(&repeat.body, constants),
            _ => {}
        }
    }
}

fn rounds(block: &Block, constants: &HashMap<Value, i64>) -> Option<u64> {
    let mut all = 0u64;
    for inst in &block.insts {
        let more = match inst {
            Inst::If { then, otherwise, .. } => rounds(then, constants)?.saturating_add(rounds(otherwise, constants)?),
            Inst::Loop(repeat) => {
                let Counter { from, to, step, .. } = repeat.counter?;
                let way = (constants.get(&to)? - constants.get(&from)?).max(0) as u64;
                // The last look at the counter is counted as a round too.
                let turns = way.div_ceil(u64::from(step.max(1))) + 1;
                turns.saturating_mul(rounds(&repeat.body, constants)?.saturating_add(1))
            }
            // Some are loops that try until nobody else was faster.
            Inst::Atomic { op: AtomicOp::Min | AtomicOp::Max, .. } => return None,
            _ => 0,
        };
        all = all.saturating_add(more);
    }
    Some(all)
}

fn is_finite(block: &Block) -> bool {
    block.insts.iter().all(|inst| match inst {
        Inst::If { then, otherwise, .. } => is_finite(then) && is_finite(otherwise),
        Inst::Loop(repeat) => (repeat.finite || repeat.counter.is_some()) && is_finite(&repeat.body),
        _ => true,
    })
}

/// Finds loops whose rounds are the same for all invocations of a workgroup.
struct Uniform<'k> {
    kernel: &'k Kernel,
    /// Values that are.
    values: HashSet<Value>,
}

impl Uniform<'_> {
    fn all(&self, values: &[Value]) -> bool {
        values.iter().all(|value| self.values.contains(value))
    }

    fn op(&self, op: &Op) -> bool {
        match op {
            Op::Const(_) | Op::Length(_) => true,
            Op::Builtin(builtin) => {
                matches!(builtin, Builtin::WorkgroupId(_) | Builtin::NumWorkgroups(_) | Builtin::WorkgroupSize(_))
            }
            Op::Unary(_, a) | Op::Cast(a) | Op::BitCast(a) | Op::Extract(a, _) => self.all(&[*a]),
            Op::Binary(_, a, b) => self.all(&[*a, *b]),
            Op::Fma(a, b, c) | Op::Select(a, b, c) => self.all(&[*a, *b, *c]),
            Op::Load { address, guard, .. } => {
                self.is_constant(address) && guard.is_none_or(|guard| self.all(&[guard]))
            }
            _ => false,
        }
    }

    /// The address is the same for all, and nobody writes there.
    fn is_constant(&self, address: &Address) -> bool {
        let Memory::Buffer(buffer) = address.memory else { return false };
        let is_read_only =
            self.kernel.buffers.get(buffer as usize).is_some_and(|buffer| !buffer.written && !buffer.atomic);
        is_read_only && address.terms.iter().all(|(value, _)| self.values.contains(value))
    }

    fn block(&mut self, block: &Block, in_loop: bool) -> bool {
        block.insts.iter().all(|inst| match inst {
            Inst::Let(value, op) => {
                if self.op(op) {
                    self.values.insert(*value);
                }
                true
            }
            Inst::If { cond, then, otherwise, .. } => {
                let matters = has_loop(then) || has_loop(otherwise) || in_loop && (leaves(then) || leaves(otherwise));
                (!matters || self.values.contains(cond)) && self.block(then, in_loop) && self.block(otherwise, in_loop)
            }
            Inst::Loop(repeat) => {
                if let Some(counter) = &repeat.counter {
                    if !self.all(&[counter.from, counter.to]) {
                        return false;
                    }
                    self.values.insert(counter.value);
                }
                self.block(&repeat.body, true)
            }
            Inst::Atomic { op: AtomicOp::Min | AtomicOp::Max, .. } => false,
            _ => true,
        })
    }
}

fn has_loop(block: &Block) -> bool {
    block.insts.iter().any(|inst| match inst {
        Inst::If { then, otherwise, .. } => has_loop(then) || has_loop(otherwise),
        Inst::Loop(_) => true,
        _ => false,
    })
}

/// Some invocations leave the round, the loop or the kernel in it.
fn leaves(block: &Block) -> bool {
    let is_inner = |inst: &Inst| matches!(inst, Inst::If { then, otherwise, .. } if leaves(then) || leaves(otherwise));
    !matches!(block.end, End::Yield(_)) || block.insts.iter().any(is_inner)
}
