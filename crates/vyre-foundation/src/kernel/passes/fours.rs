//! Loops over workgroup memory that are too long to be written out: four rounds become one.
//!
//! What neighbouring rounds load at neighbouring places an emitter loads at once: of `tile[row * 16u + k]` with `k` = 4c, 4c + 1, … it sees that
//! the first place is a multiple of four. The four rounds are a loop of their own, which is written out as any other.

use super::straight;
use super::values::Values;
use crate::ir::Literal;
use crate::kernel::walk::{each_inst, each_loop_mut, each_operand};
use crate::kernel::{Binary, Block, Counter, End, Inst, Kernel, Loop, Memory, Op, Scalar, Unrolling, Value};

const FOUR: u32 = 4;

pub(super) fn run(kernel: &mut Kernel, unrolling: &Unrolling) {
    if kernel.shared.is_empty() {
        return;
    }
    let mut constants = vec![None; kernel.values.len()];
    each_inst(&kernel.body, &mut |inst| {
        if let Inst::Let(value, Op::Const(Literal::U32(number))) = inst {
            constants[value.index()] = Some(*number);
        }
    });
    let mut fours = Fours { constants, unrolling, values: Values::of(kernel) };
    each_loop_mut(&mut kernel.body, &mut |inner, before| _ = fours.split(inner, before));
    fours.values.give_back(kernel);
}

struct Fours<'a> {
    constants: Vec<Option<u32>>,
    unrolling: &'a Unrolling,
    values: Values,
}

impl Fours<'_> {
    fn number(&self, value: Value) -> Option<u32> {
        self.constants.get(value.index()).copied().flatten()
    }

    /// The steps of a block, with those of its loops as often as they run.
    fn weight(&self, block: &Block) -> usize {
        let of = |inst: &Inst| match inst {
            Inst::If { then, otherwise, .. } => 1 + self.weight(then) + self.weight(otherwise),
            Inst::Loop(inner) => {
                let rounds = inner.counter.and_then(|counter| {
                    let (from, to) = (self.number(counter.from)?, self.number(counter.to)?);
                    Some(to.saturating_sub(from).div_ceil(counter.step))
                });
                self.weight(&inner.body).saturating_mul(rounds.unwrap_or(1).max(1) as usize)
            }
            _ => 1,
        };
        block.insts.iter().map(of).fold(0, usize::saturating_add)
    }

    /// Some load of workgroup memory is one word further in the next round, and nobody waits or writes there.
    fn walks(&self, inner: &Loop, counter: Value) -> bool {
        let (mut by_rounds, mut walks, mut quiet) = (vec![counter], false, true);
        each_inst(&inner.body, &mut |inst| match inst {
            Inst::Let(_, Op::Load { address, element, .. }) => {
                walks |= matches!(address.memory, Memory::Shared(_))
                    && element.bits() == 32
                    && address.terms.iter().any(|(index, stride)| *stride == 4 && by_rounds.contains(index));
            }
            // Only sums, so that it goes by one.
            Inst::Let(value, op @ Op::Binary(Binary::Add, ..)) => {
                let mut turns = false;
                each_operand(op, &mut |operand| turns |= by_rounds.contains(&operand));
                if turns {
                    by_rounds.push(*value);
                }
            }
            Inst::Let(_, op) => quiet &= !op.is_across_subgroup(),
            Inst::Store { address, .. } => quiet &= matches!(address.memory, Memory::Local(_)),
            Inst::Atomic { .. } | Inst::Barrier(_) => quiet = false,
            Inst::If { .. } => quiet = false,
            Inst::Loop(_) => {}
        });
        walks && quiet
    }

    fn split(&mut self, inner: &mut Loop, before: &mut Vec<Inst>) -> Option<()> {
        let counter = inner.counter.filter(|counter| !inner.rare && counter.step == 1)?;
        let is_word = self.values.scalar(counter.value) == Scalar::U32;
        let to = self.number(counter.to).filter(|to| to.is_multiple_of(FOUR) && *to > FOUR)?;
        if !is_word || self.number(counter.from) != Some(0) || !straight(&inner.body) {
            return None;
        }
        let weight = self.weight(&inner.body);
        let steps = self.unrolling.steps as usize;
        let whole = weight.saturating_mul(to as usize) <= steps && to <= self.unrolling.rounds;
        if whole || weight * FOUR as usize > steps / 2 || !self.walks(inner, counter.value) {
            return None;
        }
        let [from, four, two, fours] =
            [0, FOUR, FOUR.trailing_zeros(), to / FOUR].map(|number| self.values.constant(Scalar::U32, number, before));
        let [params, results] = [(); 2].map(|()| self.values.all_like(&inner.params));
        let [of_four, in_four] = [(); 2].map(|()| self.values.fresh(Scalar::U32));
        let mut around = Vec::new();
        let first = self.values.binary(Binary::Shl, of_four, two, &mut around);
        inner.body.insts.insert(0, Inst::Let(counter.value, Op::Binary(Binary::Add, first, in_four)));
        around.push(Inst::Loop(Box::new(Loop {
            counter: Some(Counter { value: in_four, from, to: four, step: 1 }),
            params: std::mem::take(&mut inner.params),
            init: params.clone(),
            body: std::mem::replace(&mut inner.body, Block { insts: Vec::new(), end: End::Unreachable }),
            results: results.clone(),
            finite: true,
            look: None,
            rare: false,
        })));
        inner.counter = Some(Counter { value: of_four, from, to: fours, step: 1 });
        inner.params = params;
        inner.body = Block { insts: around, end: End::Continue(results) };
        Some(())
    }
}
