//! Loops with remainders of their counter: `rows[k % 3u]`, as where three rows take turns, or `k & 1u` where even and odd rounds do.
//!
//! As many rounds as the remainders take to come again are written out in one, in which each remainder is a constant. What is left of the rounds
//! has the loop as it was. No sum in a remainder wraps: counters that are not known to stay small go to a number that is.

use hashbrown::HashMap;

use super::values::Values;
use crate::ir::Literal;
use crate::kernel::walk::{each_inst, each_inst_mut, each_loop_mut, exits};
use crate::kernel::{Binary, Block, Counter, End, Inst, Kernel, Loop, Op, Value, fold};

/// Steps of all rounds that are written out.
const MOST_STEPS: usize = 256;
/// The greatest divisor.
const MOST_ROUNDS: i128 = 7;
/// Where a counter ends whose limit is not known.
const MOST: i128 = 1 << 30;

pub(super) fn run(kernel: &mut Kernel) {
    let mut found = false;
    let meet = kernel.has_barrier;
    each_inst(&kernel.body, &mut |inst| {
        found |= match inst {
            Inst::Let(_, Op::Binary(op, ..)) => *op == Binary::Rem || *op == Binary::And && meet,
            _ => false,
        };
    });
    if !found {
        return;
    }
    let mut periods = Periods { values: Values::with_definitions(kernel) };
    each_loop_mut(&mut kernel.body, &mut |inner, before| _ = periods.write_out(inner, before));
    periods.values.give_back(kernel);
}

struct Periods {
    values: Values,
}

/// A value that is the remainder of the counter and a number.
struct Remainder {
    value: Value,
    ahead: i128,
}

impl Periods {
    /// The divisor of the first remainder of the counter, and all remainders with it. Of a power of two they are one step, so they
    /// count where invocations meet in each round: what they read and write there is at places that are known then.
    fn remainders(&self, inner: &Loop, counter: &Counter, from: i128) -> Option<(i128, Vec<Remainder>)> {
        let ahead = |value: Value| match self.values.def(value) {
            _ if value == counter.value => Some(0),
            Some(&Op::Binary(Binary::Add, a, b)) if a == counter.value => self.values.number(b),
            Some(&Op::Binary(Binary::Sub, a, b)) if a == counter.value => self.values.number(b).map(|less| -less),
            _ => None,
        };
        let meet = inner.body.insts.iter().any(|inst| matches!(inst, Inst::Barrier(_)));
        let (mut divisor, mut found) = (None, Vec::new());
        each_inst(&inner.body, &mut |inst| {
            let by = |op: Binary, number: i128| match op {
                Binary::Rem => Some(number).filter(|by| by.count_ones() > 1),
                Binary::And => Some(number + 1).filter(|by| meet && by.count_ones() == 1),
                _ => None,
            };
            if let Inst::Let(value, Op::Binary(op, a, number)) = inst
                && let (Some(ahead), Some(number)) = (ahead(*a), self.values.number(*number))
                && let Some(by) = by(*op, number)
                && (2..=MOST_ROUNDS).contains(&by)
                && (0..MOST).contains(&(from + ahead))
                && *divisor.get_or_insert(by) == by
            {
                found.push(Remainder { value: *value, ahead });
            }
        });
        Some((divisor?, found))
    }

    /// Puts a loop with several rounds in one before `inner`, which keeps the rest.
    fn write_out(&mut self, inner: &mut Loop, insts: &mut Vec<Inst>) -> Option<()> {
        let counter = inner.counter.filter(|counter| !inner.rare && counter.step <= 1 << 20)?;
        let from = self.values.number(counter.from).filter(|from| (0..MOST).contains(from))?;
        let (divisor, remainders) = self.remainders(inner, &counter, from)?;
        let step = i128::from(counter.step);
        let rounds = (1..=divisor).find(|rounds| rounds * step % divisor == 0)?;
        let (mut continues, mut breaks) = (Vec::new(), Vec::new());
        exits(&inner.body, &mut continues, &mut breaks);
        let mut steps = 0;
        each_inst(&inner.body, &mut |_| steps += 1);
        if continues.len() != 1 || !breaks.is_empty() || steps * rounds as usize > MOST_STEPS || rounds < 2 {
            return None;
        }
        let ty = self.values.scalar(counter.value);
        let (ahead, together) = (step * (rounds - 1), step * rounds);
        let to = match self.values.number(counter.to) {
            Some(to) if to > MOST || to - from <= together => return None,
            Some(to) => self.values.constant(ty, to - ahead, insts),
            None => {
                let most = self.values.constant(ty, MOST, insts);
                let to = self.values.binary(Binary::Min, counter.to, most, insts);
                let ahead = self.values.constant(ty, ahead, insts);
                let raised = self.values.binary(Binary::Max, to, ahead, insts);
                self.values.binary(Binary::Sub, raised, ahead, insts)
            }
        };
        let first = self.values.like(counter.value);
        let [place, reached] = [0; 2].map(|_| self.values.like(counter.value));
        let params = self.values.all_like(&inner.params);
        let results = self.values.all_like(&inner.params);
        let (mut body, mut carried) = (Vec::new(), params.clone());
        for round in 0..rounds {
            let further = self.values.constant(ty, round * step, &mut body);
            let at = self.values.binary(Binary::Add, first, further, &mut body);
            let mut names: HashMap<Value, Value> = inner.params.iter().copied().zip(carried).collect();
            names.insert(counter.value, at);
            let mut copy = self.values.copy_block(&inner.body, &mut names);
            let known = remainders.iter().map(|remainder| {
                let number = (from + round * step + remainder.ahead) % divisor;
                (names[&remainder.value], fold::of_integer(ty, number))
            });
            make_constant(&mut copy, &known.collect());
            body.append(&mut copy.insts);
            let End::Continue(ends) = copy.end else { return None };
            carried = ends;
        }
        let together = self.values.constant(ty, together, &mut body);
        carried.push(self.values.binary(Binary::Add, first, together, &mut body));
        let with = |values: &[Value], last: Value| [values, &[last]].concat();
        insts.push(Inst::Loop(Box::new(Loop {
            counter: Some(Counter { value: first, from: counter.from, to, step: counter.step * rounds as u32 }),
            params: with(&params, place),
            init: with(&inner.init, counter.from),
            body: Block { insts: body, end: End::Continue(carried) },
            results: with(&results, reached),
            finite: true,
            look: inner.look,
            rare: false,
        })));
        let left = match self.values.number(counter.to) {
            Some(to) => {
                let all = (to - from + step - 1) / step;
                self.values.constant(ty, from + all / rounds * rounds * step, insts)
            }
            None => reached,
        };
        inner.counter = Some(Counter { from: left, ..counter });
        inner.init = results;
        Some(())
    }
}

/// Makes constants of values that a block defines.
fn make_constant(block: &mut Block, known: &HashMap<Value, Literal>) {
    each_inst_mut(block, &mut |inst| {
        if let Inst::Let(value, op) = inst
            && let Some(literal) = known.get(value)
        {
            *op = Op::Const(*literal);
        }
    });
}
