//! Bounds of what loops carry. They hold in every round because they hold in the first one, and whatever a round within them passes on to the
//! next is within them too.

use super::{Bounds, MADE_OF, Ranges, full};
use crate::kernel::walk::each_inst;
use crate::kernel::{Binary, Block, End, Inst, Loop, Op, Scalar, Unary, Value, fold};

/// Ways from the beginning of a round to the next one that are looked at.
const WAYS: usize = 16;
/// How often bounds are moved to the next number that a condition names; then to those of their type.
const MOVES: usize = 8;

/// A way from the beginning of a round to the next one.
struct Way<'b> {
    conditions: Vec<(Value, bool)>,
    passes_on: &'b [Value],
}

impl Ranges<'_> {
    /// Bounds the whole numbers that a loop carries from round to round.
    pub(super) fn bound_carried(&mut self, inner: &Loop) {
        let carried: Vec<usize> =
            (0..inner.params.len()).filter(|&place| self.is_integer(inner.params[place])).collect();
        let mut ways = Vec::new();
        ways_round(&inner.body, &mut Vec::new(), &mut ways);
        if carried.is_empty() || ways.len() > WAYS {
            return;
        }
        let named = self.named_in(&inner.body);
        let mut bounds: Vec<Bounds> = carried.iter().map(|&place| self.of(inner.init[place])).collect();
        for moves in 0.. {
            for (&place, &known) in carried.iter().zip(&bounds) {
                self.bounds[inner.params[place].index()] = known;
            }
            let mut is_steady = true;
            for (known, passed) in bounds.iter_mut().zip(self.passed_on(&ways, &carried)) {
                let Some((passed, ty)) = passed else { continue };
                let all = full(ty);
                let steps = named.iter().copied().filter(|_| moves < MOVES);
                if passed.0 < known.0 {
                    known.0 = steps.clone().filter(|&step| step <= passed.0).max().unwrap_or(all.0).max(all.0);
                    is_steady = false;
                }
                if passed.1 > known.1 {
                    known.1 = steps.filter(|&step| step >= passed.1).min().unwrap_or(all.1).min(all.1);
                    is_steady = false;
                }
            }
            if is_steady {
                return;
            }
        }
    }

    /// What rounds pass on, if what they begin with is within its present bounds.
    fn passed_on(&mut self, ways: &[Way<'_>], carried: &[usize]) -> Vec<Option<(Bounds, Scalar)>> {
        let mut passed: Vec<Option<(Bounds, Scalar)>> = vec![None; carried.len()];
        for way in ways {
            let mark = self.mark();
            for &(cond, holds) in &way.conditions {
                self.assume(cond, holds);
            }
            // A way that cannot be gone from these bounds passes on nothing.
            let all: Option<Vec<Bounds>> =
                carried.iter().map(|&place| self.reached(way.passes_on[place], MADE_OF)).collect();
            for ((passed, &place), (low, high)) in passed.iter_mut().zip(carried).zip(all.into_iter().flatten()) {
                let value = way.passes_on[place];
                let before = passed.map_or((low, high), |(before, _)| before);
                let ty = self.values.scalar(value);
                *passed = Some(((before.0.min(low), before.1.max(high)), ty));
            }
            self.forget_since(mark);
        }
        passed
    }

    /// The numbers that conditions compare with and that others are kept below or above, and their neighbours.
    fn named_in(&self, body: &Block) -> Vec<i128> {
        let (mut conditions, mut compared): (Vec<Value>, Vec<Value>) = Default::default();
        each_inst(body, &mut |inst| match inst {
            Inst::If { cond, .. } | Inst::Let(_, Op::Select(cond, ..)) => conditions.push(*cond),
            Inst::Let(_, Op::Binary(Binary::Min | Binary::Max, a, b)) => compared.extend([*a, *b]),
            _ => {}
        });
        while let Some(cond) = conditions.pop() {
            match self.values.def(cond) {
                Some(&Op::Unary(Unary::Not, a)) => conditions.push(a),
                Some(&Op::Binary(Binary::And | Binary::Or, a, b)) => conditions.extend([a, b]),
                Some(&Op::Binary(_, a, b)) => compared.extend([a, b]),
                _ => {}
            }
        }
        let mut named: Vec<i128> = Vec::new();
        for value in compared.into_iter().filter(|value| self.is_integer(*value)) {
            let all = full(self.values.scalar(value));
            let (low, high) = match self.values.def(value) {
                Some(Op::Const(literal)) => fold::integer(literal).map_or(all, |known| (known, known)),
                _ => self.of(value),
            };
            let ends = [low, high].into_iter().filter(|&end| end != all.0 && end != all.1);
            named.extend(ends.flat_map(|end| end - 1..=end + 1));
        }
        named
    }
}

fn ways_round<'b>(block: &'b Block, conditions: &mut Vec<(Value, bool)>, ways: &mut Vec<Way<'b>>) {
    let before = conditions.len();
    for inst in &block.insts {
        let Inst::If { cond, then, otherwise, .. } = inst else { continue };
        for (way, holds) in [(then, true), (otherwise, false)] {
            conditions.push((*cond, holds));
            ways_round(way, conditions, ways);
            conditions.pop();
        }
        match (&then.end, &otherwise.end) {
            (End::Yield(_), End::Yield(_)) => {}
            (End::Yield(_), _) => conditions.push((*cond, true)),
            _ => conditions.push((*cond, false)),
        }
    }
    if let End::Continue(passes_on) = &block.end {
        ways.push(Way { conditions: conditions.clone(), passes_on });
    }
    conditions.truncate(before);
}
