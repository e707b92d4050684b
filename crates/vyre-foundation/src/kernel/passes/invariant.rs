//! Moves out of loops what is the same in every round.
//!
//! Arithmetic moves from anywhere in a loop. A load moves only from where every round comes by unless it is the last, only where nothing
//! in the loop may change its memory, and only with its guard, because the loop may have no rounds at all; one without a guard only from a known
//! place of a memory that is long enough, since what proves another to be inside may be asked in the loop. A known place of a uniform is loaded
//! before the loop even where few rounds come by: it is small, nobody changes it, and all invocations find it near.

use crate::ir::BufferKind;
use crate::kernel::walk::{Effect, access, continues, each_inst, each_operand, has_loop};
use crate::kernel::{Address, Block, Element, Inst, Kernel, KernelBuffer, Loop, Memory, Op};

const OUTSIDE: u32 = 0;
/// Steps of a loop of one round whose loads from fixed places may be done before it.
const FEW_STEPS: usize = 64;

/// Gives whether anything left a loop that does not count.
pub(super) fn run(kernel: &mut Kernel) -> bool {
    if !has_loop(&kernel.body) {
        return false;
    }
    let mut everywhere = Written::default();
    each_inst(&kernel.body, &mut |inst| everywhere.note(inst));
    let is_uniform = kernel.buffers.iter().map(|buffer| buffer.kind == BufferKind::Uniform).collect();
    let bytes = kernel.buffers.iter().map(KernelBuffer::fixed_bytes).collect();
    let widths = kernel.values.iter().map(|value| value.ty.width).collect();
    let loop_of = vec![OUTSIDE; kernel.values.len()];
    let mut mover = Mover { loop_of, next: 1, everywhere, is_uniform, bytes, widths, left_uncounted: false };
    mover.block(&mut kernel.body, OUTSIDE);
    mover.left_uncounted
}

struct Mover {
    /// The innermost loop in which each value is defined.
    loop_of: Vec<u32>,
    next: u32,
    /// What the kernel changes anywhere.
    everywhere: Written,
    /// Which buffers are uniforms.
    is_uniform: Vec<bool>,
    /// How long each buffer is whatever is bound.
    bytes: Vec<u64>,
    /// How wide each value is.
    widths: Vec<u8>,
    left_uncounted: bool,
}

impl Mover {
    /// Moves out of the loops in a block, inner ones first.
    fn block(&mut self, block: &mut Block, inside: u32) {
        // Where no loop stands nothing is put before a step.
        if !block.insts.iter().any(|inst| matches!(inst, Inst::Loop(_))) {
            block.insts.iter_mut().for_each(|inst| self.inst(inst, inside, &mut Vec::new()));
            return;
        }
        let mut out = Vec::with_capacity(block.insts.len() + 8);
        for mut inst in std::mem::take(&mut block.insts) {
            self.inst(&mut inst, inside, &mut out);
            out.push(inst);
        }
        block.insts = out;
    }

    /// What moves out of a loop is added to `out`.
    fn inst(&mut self, inst: &mut Inst, inside: u32, out: &mut Vec<Inst>) {
        match inst {
            Inst::Let(value, _) => self.loop_of[value.index()] = inside,
            Inst::Atomic { result: Some(result), .. } => self.loop_of[result.index()] = inside,
            Inst::If { then, otherwise, results, .. } => {
                self.block(then, inside);
                self.block(otherwise, inside);
                results.iter().for_each(|result| self.loop_of[result.index()] = inside);
            }
            Inst::Loop(inner) => {
                self.repeat(inner, inside, out);
                inner.results.iter().for_each(|result| self.loop_of[result.index()] = inside);
            }
            _ => {}
        }
    }

    fn repeat(&mut self, inner: &mut Loop, outside: u32, out: &mut Vec<Inst>) {
        let this = self.next;
        self.next += 1;
        inner.params.iter().for_each(|param| self.loop_of[param.index()] = this);
        if let Some(counter) = &inner.counter {
            self.loop_of[counter.value.index()] = this;
        }
        self.block(&mut inner.body, this);
        // Rounds that were written out one after the other are a loop of one round: most invocations may leave it at its first exit, and
        // would do the work of all of them before it. A few loads from places that are the same for all are better done at once.
        let once = !continues(&inner.body);
        let mut steps = 0;
        each_inst(&inner.body, &mut |_| steps += 1);
        if steps > FEW_STEPS && once {
            return;
        }
        let mut written = Written::default();
        each_inst(&inner.body, &mut |inst| written.note(inst));
        let before = out.len();
        self.pull(&mut inner.body, (this, outside), &written, (true, once), out);
        self.left_uncounted |= inner.counter.is_none() && out.len() > before;
    }

    /// A known place of a uniform.
    fn is_at_hand(&self, address: &Address) -> bool {
        let is_uniform = |memory| matches!(memory, Memory::Buffer(index) if self.is_uniform[index as usize]);
        address.terms.is_empty() && is_uniform(address.memory)
    }

    /// A known place that is inside whatever is asked before.
    fn is_inside(&self, address: &Address, element: Element, width: u8) -> bool {
        let end = u64::from(address.offset) + u64::from(width) * u64::from(element.bits()).div_ceil(8);
        address.terms.is_empty()
            && match address.memory {
                Memory::Buffer(index) => end <= self.bytes[index as usize],
                Memory::Shared(_) | Memory::Local(_) => true,
            }
    }

    fn pull(
        &mut self,
        block: &mut Block,
        (this, outside): (u32, u32),
        written: &Written,
        (mut always, once): (bool, bool),
        out: &mut Vec<Inst>,
    ) {
        block.insts.retain_mut(|inst| {
            match inst {
                Inst::Let(value, op) => {
                    let movable = match op {
                        Op::Subgroup(..) | Op::Matrix(_) => false,
                        Op::Load { address, element, guard } => {
                            let is_inside = || self.is_inside(address, *element, self.widths[value.index()]);
                            (always || self.is_at_hand(address))
                                && (guard.is_some() || is_inside())
                                && (!once || address.terms.is_empty())
                                && !written.contains(address.memory, &self.everywhere)
                        }
                        _ => !once,
                    };
                    let mut fixed = movable;
                    each_operand(op, &mut |operand| fixed &= self.loop_of[operand.index()] != this);
                    if fixed {
                        self.loop_of[value.index()] = outside;
                        out.push(Inst::Let(*value, op.clone()));
                        return false;
                    }
                }
                Inst::If { then, otherwise, .. } => {
                    self.pull(then, (this, outside), written, (false, once), out);
                    self.pull(otherwise, (this, outside), written, (false, once), out);
                    // What follows may not be reached in every round; where the loop ends, no other round comes.
                    always &= !continues(then) && !continues(otherwise);
                }
                _ => {}
            }
            true
        });
    }
}

/// The memories that a loop may change.
#[derive(Default)]
struct Written {
    memories: Vec<Memory>,
    barrier: bool,
}

impl Written {
    fn note(&mut self, inst: &Inst) {
        match inst {
            Inst::Barrier(_) => self.barrier = true,
            inst => {
                if let Some((address, Effect::Write | Effect::Both)) = access(inst)
                    && !self.memories.contains(&address.memory)
                {
                    self.memories.push(address.memory);
                }
            }
        }
    }

    /// After a barrier other invocations' writes are seen, which can come from anywhere in the kernel.
    fn contains(&self, memory: Memory, everywhere: &Written) -> bool {
        let others = self.barrier && !matches!(memory, Memory::Local(_));
        self.memories.contains(&memory) || (others && everywhere.memories.contains(&memory))
    }
}
