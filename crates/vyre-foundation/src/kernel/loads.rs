//! How much an invocation of a kernel loads, roughly.

use super::{Block, Counter, Inst, Kernel, Loop, Memory, Op};

/// Rounds of a loop whose count is not known.
const ROUNDS: u64 = 16;

/// What an invocation does, as far as the kernel tells; loops that seldom come to run don't count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loads {
    /// Loads from buffers that are carried out, with those of every round.
    pub executed: u64,
    /// Those of them that stand in loops.
    pub in_loops: u64,
    /// Steps that stand in the kernel.
    pub steps: u64,
}

impl Loads {
    /// The loads of a kernel.
    pub fn of(kernel: &Kernel) -> Loads {
        let mut survey = Survey { constants: vec![None; kernel.values.len()], loads: Loads::default() };
        survey.block(&kernel.body, 1);
        survey.loads
    }
}

struct Survey {
    constants: Vec<Option<u64>>,
    loads: Loads,
}

impl Survey {
    fn block(&mut self, block: &Block, times: u64) {
        for inst in &block.insts {
            self.loads.steps += 1;
            match inst {
                Inst::Let(value, Op::Const(literal)) => self.constants[value.index()] = Some(literal.bits()),
                Inst::Let(_, Op::Load { address, .. }) if matches!(address.memory, Memory::Buffer(_)) => {
                    self.loads.executed = self.loads.executed.saturating_add(times);
                    if times > 1 {
                        self.loads.in_loops = self.loads.in_loops.saturating_add(times);
                    }
                }
                Inst::If { then, otherwise, .. } => {
                    // The longer way is the usual one.
                    let before = self.loads;
                    self.block(then, times);
                    let first = std::mem::replace(&mut self.loads, before);
                    self.block(otherwise, times);
                    let steps = first.steps.saturating_add(self.loads.steps - before.steps);
                    if first.executed >= self.loads.executed {
                        self.loads = first;
                    }
                    self.loads.steps = steps;
                }
                Inst::Loop(inner) if !inner.rare => {
                    let rounds = self.rounds(inner);
                    self.block(&inner.body, times.saturating_mul(rounds));
                }
                _ => {}
            }
        }
    }

    fn rounds(&self, inner: &Loop) -> u64 {
        let Some(Counter { from, to, step, .. }) = &inner.counter else { return ROUNDS };
        match (self.constants[from.index()], self.constants[to.index()]) {
            // Counters are of 32 bits.
            (Some(from), Some(to)) => {
                u64::from((to as u32).wrapping_sub(from as u32)).div_ceil(u64::from(*step).max(1))
            }
            _ => ROUNDS,
        }
    }
}
