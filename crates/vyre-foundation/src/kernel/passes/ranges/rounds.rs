//! Bounds of what loops carry. They hold in every round because they hold in the first one, and whatever a round within them passes on to the
//! next is within them too. What the loops within a round leave is bounded anew each time.

use super::{Bounds, MADE_OF, Ranges, full};
use crate::kernel::walk::each_inst;
use crate::kernel::{Binary, Block, End, Inst, Loop, Op, Unary, Value, fold};

/// Ways through a round that are looked at.
const WAYS: usize = 16;
/// How often bounds are moved to the next number that a condition names; then to those of their type.
const MOVES: usize = 8;
/// How often bounds are moved in a whole kernel, loops within loops included.
pub(super) const MOVES_IN_ALL: usize = 1 << 10;

/// A way from the beginning of a round to the next one, or out of the loop.
struct Way<'b> {
    conditions: Vec<(Value, bool)>,
    passes_on: &'b [Value],
}

impl Ranges<'_> {
    /// Bounds the whole numbers that a loop counts by and carries from round to round.
    pub(super) fn bound_loop(&mut self, inner: &Loop) {
        if let Some(counter) = inner.counter {
            let (from, to) = (self.here(counter.from, MADE_OF), self.here(counter.to, MADE_OF));
            let all = full(self.values.scalar(counter.value));
            self.bounds[counter.value.index()] = if from.0 < to.1 { (from.0, to.1 - 1) } else { all };
            self.less(counter.value, counter.to, true);
            self.less(counter.from, counter.value, false);
        }
        self.bound_carried(inner);
    }

    /// Bounds the whole numbers that a loop leaves.
    pub(super) fn bound_results(&mut self, inner: &Loop) {
        let left: Vec<usize> = (0..inner.results.len()).filter(|&at| self.is_integer(inner.results[at])).collect();
        let mut ways = Vec::new();
        if !left.is_empty() {
            ways_out(&inner.body, &mut Vec::new(), &mut ways, &|end| match end {
                End::Break(values) => Some(values),
                _ => None,
            });
        }
        if ways.len() > WAYS {
            ways.clear();
        } else if !left.is_empty() {
            for (&at, passed) in left.iter().zip(self.passed_on(&ways, &left)) {
                let mut ends = inner.counter.map(|_| self.of(inner.params[at])).into_iter().chain(passed);
                let Some(first) = ends.next() else { continue };
                let bounds = ends.fold(first, |all, end| (all.0.min(end.0), all.1.max(end.1)));
                self.bounds[inner.results[at].index()] = bounds;
            }
            return;
        }
        for at in left {
            self.bounds[inner.results[at].index()] = full(self.values.scalar(inner.results[at]));
        }
    }

    fn bound_carried(&mut self, inner: &Loop) {
        let carried: Vec<usize> =
            (0..inner.params.len()).filter(|&place| self.is_integer(inner.params[place])).collect();
        if carried.is_empty() {
            return;
        }
        let mut ways = Vec::new();
        ways_out(&inner.body, &mut Vec::new(), &mut ways, &|end| match end {
            End::Continue(values) => Some(values),
            _ => None,
        });
        let mut bounds: Vec<Bounds> = carried.iter().map(|&place| self.here(inner.init[place], MADE_OF)).collect();
        let named = self.named_in(&inner.body);
        for moves in 0.. {
            let gives_up = ways.len() > WAYS || self.moves_left == 0;
            for (&place, &known) in carried.iter().zip(&bounds) {
                let param = inner.params[place];
                self.bounds[param.index()] = if gives_up { full(self.values.scalar(param)) } else { known };
            }
            if gives_up {
                return;
            }
            self.moves_left -= 1;
            self.bound_within(&inner.body);
            let mut is_steady = true;
            for ((known, passed), &place) in bounds.iter_mut().zip(self.passed_on(&ways, &carried)).zip(&carried) {
                let Some(passed) = passed else { continue };
                let all = full(self.values.scalar(inner.params[place]));
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

    /// Bounds what the loops in a round leave, if what the round begins with is within its present bounds.
    fn bound_within(&mut self, block: &Block) {
        if !block.insts.iter().any(|inst| matches!(inst, Inst::If { .. } | Inst::Loop(_))) {
            return;
        }
        let mark = self.mark();
        for inst in &block.insts {
            match inst {
                Inst::If { cond, then, otherwise, .. } => {
                    for (way, holds) in [(then, true), (otherwise, false)] {
                        let mark = self.mark();
                        if self.can_be([(*cond, holds)]) {
                            self.bound_within(way);
                        }
                        self.forget_since(mark);
                    }
                    if let Some((cond, holds)) = stays(inst) {
                        self.assume(cond, holds);
                    }
                }
                Inst::Loop(inner) => {
                    let mark = self.mark();
                    self.bound_loop(inner);
                    self.bound_results(inner);
                    self.forget_since(mark);
                }
                _ => {}
            }
        }
        self.forget_since(mark);
    }

    /// What ways pass on, if what the round begins with is within its present bounds; nothing where none is gone.
    fn passed_on(&mut self, ways: &[Way<'_>], places: &[usize]) -> Vec<Option<Bounds>> {
        let mut passed: Vec<Option<Bounds>> = vec![None; places.len()];
        for way in ways {
            let mark = self.mark();
            // A way that cannot be gone from these bounds passes on nothing.
            let all: Option<Vec<Bounds>> = match self.can_be(way.conditions.iter().copied()) {
                true => places.iter().map(|&place| self.reached(way.passes_on[place], MADE_OF)).collect(),
                false => None,
            };
            for (passed, (low, high)) in passed.iter_mut().zip(all.into_iter().flatten()) {
                let before = passed.unwrap_or((low, high));
                *passed = Some((before.0.min(low), before.1.max(high)));
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

/// What holds behind a branch of which one way leaves.
pub(super) fn stays(inst: &Inst) -> Option<(Value, bool)> {
    let Inst::If { cond, then, otherwise, .. } = inst else { return None };
    match (&then.end, &otherwise.end) {
        (End::Yield(_), End::Yield(_)) => None,
        (End::Yield(_), _) => Some((*cond, true)),
        _ => Some((*cond, false)),
    }
}

/// The ways through a round that end as asked for.
fn ways_out<'b>(
    block: &'b Block,
    conditions: &mut Vec<(Value, bool)>,
    ways: &mut Vec<Way<'b>>,
    ends: &dyn Fn(&'b End) -> Option<&'b Vec<Value>>,
) {
    let before = conditions.len();
    for inst in &block.insts {
        let Inst::If { cond, then, otherwise, .. } = inst else { continue };
        for (way, holds) in [(then, true), (otherwise, false)] {
            conditions.push((*cond, holds));
            ways_out(way, conditions, ways, ends);
            conditions.pop();
        }
        conditions.extend(stays(inst));
    }
    if let Some(passes_on) = ends(&block.end) {
        ways.push(Way { conditions: conditions.clone(), passes_on });
    }
    conditions.truncate(before);
}
