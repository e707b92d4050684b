//! Loops over private arrays whose number of rounds is only known to be small, as that of the inner loop of a triangle.
//!
//! `for (k = 0; k <= step; k++) { v[k] = v[k] + v[k + 1]; }` with `step` from 0 to 63 has constant places once all of its 64 rounds are written out,
//! each behind the test whether it is one of those that run. Eight rounds together are behind one test, so that those that don't run
//! take little time. Only arrays that then become values gain.

use crate::kernel::passes::straight;
use crate::kernel::passes::values::Values;
use crate::kernel::walk::{access, each_inst};
use crate::kernel::{Binary, Block, Counter, End, Inst, Kernel, Loop, Memory, Value, fold};

/// Rounds behind one test.
const TOGETHER: u32 = 8;
/// Most rounds of a loop.
const MOST: i128 = 128;

/// Gives such loops bounds that are constants, and returns their counters. Those that are `unrolled` anyway stay what they are.
pub(super) fn run(kernel: &mut Kernel, unrolled: &[bool]) -> Vec<Value> {
    let values = Values::with_definitions(kernel);
    let mut changer = Changer { values, around: Vec::new(), counters: Vec::new(), unrolled };
    changer.block(&mut kernel.body);
    changer.values.give_back(kernel);
    changer.counters
}

struct Changer<'a> {
    values: Values,
    /// Counters of the loops around.
    around: Vec<Counter>,
    counters: Vec<Value>,
    unrolled: &'a [bool],
}

impl Changer<'_> {
    fn block(&mut self, block: &mut Block) {
        for inst in &mut block.insts {
            match inst {
                Inst::If { then, otherwise, .. } => {
                    self.block(then);
                    self.block(otherwise);
                }
                Inst::Loop(inner) => {
                    let outside = self.around.len();
                    self.around.extend(inner.counter);
                    self.block(&mut inner.body);
                    self.around.truncate(outside);
                    if let Some((counter, end)) = self.bound(inner) {
                        self.change(inner, counter, end);
                    }
                }
                _ => {}
            }
        }
    }

    /// The counter of a loop that may be changed, and a number that it never reaches.
    fn bound(&self, inner: &Loop) -> Option<(Counter, i128)> {
        let counter = inner.counter.filter(|_| !inner.rare && straight(&inner.body))?;
        if self.unrolled.get(counter.value.index()) == Some(&true) || !uses_arrays(&inner.body) {
            return None;
        }
        let of = |value: Value| self.values.range(value, &self.around);
        let (from, to) = (of(counter.from)?, of(counter.to)?);
        let fits =
            from.start() == from.end() && to.start() != to.end() && (1..=MOST).contains(&(to.end() - from.start()));
        fits.then_some((counter, *to.end()))
    }

    /// `for k in from..to` becomes `for first in (from..end).step_by(8) { if first < to { for k in first..first + 8 { if k < to`.
    fn change(&mut self, inner: &mut Loop, counter: Counter, end: i128) {
        let ty = self.values.scalar(counter.value);
        let step = counter.step * TOGETHER;
        let [end, far] = [end, step.into()].map(|number| self.values.constant_at_start(fold::of_integer(ty, number)));
        let first = self.values.like(counter.value);
        let [carried, round, part, chosen] = [(); 4].map(|()| self.values.all_like(&inner.params));
        let mut body = Vec::new();
        let goes = self.values.binary(Binary::Lt, first, counter.to, &mut body);
        let mut together = Vec::new();
        let behind = self.values.binary(Binary::Add, first, far, &mut together);
        let behind = self.values.binary(Binary::Min, behind, end, &mut together);
        let mut one = Vec::new();
        let runs = self.values.binary(Binary::Lt, counter.value, counter.to, &mut one);
        let End::Continue(next) = std::mem::replace(&mut inner.body.end, End::Unreachable) else { return };
        one.push(Inst::If {
            cond: runs,
            then: Box::new(Block { insts: std::mem::take(&mut inner.body.insts), end: End::Yield(next) }),
            otherwise: Box::new(Block { insts: Vec::new(), end: End::Yield(inner.params.clone()) }),
            results: round.clone(),
        });
        together.push(Inst::Loop(Box::new(Loop {
            counter: Some(Counter { from: first, to: behind, ..counter }),
            params: std::mem::replace(&mut inner.params, carried.clone()),
            init: carried.clone(),
            body: Block { insts: one, end: End::Continue(round) },
            results: part.clone(),
            finite: true,
            look: None,
            rare: false,
        })));
        body.push(Inst::If {
            cond: goes,
            then: Box::new(Block { insts: together, end: End::Yield(part) }),
            otherwise: Box::new(Block { insts: Vec::new(), end: End::Yield(carried) }),
            results: chosen.clone(),
        });
        inner.counter = Some(Counter { value: first, from: counter.from, to: end, step });
        inner.body = Block { insts: body, end: End::Continue(chosen) };
        self.counters.extend([first, counter.value]);
    }
}

fn uses_arrays(block: &Block) -> bool {
    let mut found = false;
    each_inst(block, &mut |inst| {
        found |= access(inst).is_some_and(|(address, _)| matches!(address.memory, Memory::Local(_)));
    });
    found
}
