//! Loops with remainders of their counter: `rows[k % 3u]`, as where three rows take turns.
//!
//! As many rounds as the remainders take to come again are written out in one, in which each remainder is a constant. What is left of the rounds
//! has the loop as it was. No sum in a remainder wraps: counters that are not known to stay small go to a number that is.

use hashbrown::HashMap;

use super::{copy_block, definitions};
use crate::ir::Literal;
use crate::kernel::walk::{each_inst, each_loop_mut, exits};
use crate::kernel::{Binary, Block, Counter, End, Inst, Kernel, Loop, Op, Scalar, Value, ValueInfo, fold};

/// Steps of all rounds that are written out.
const MOST_STEPS: usize = 256;
/// The greatest divisor.
const MOST_ROUNDS: i128 = 7;
/// Where a counter ends whose limit is not known.
const MOST: i128 = 1 << 30;

pub(super) fn run(kernel: &mut Kernel) {
    let mut found = false;
    each_inst(&kernel.body, &mut |inst| found |= matches!(inst, Inst::Let(_, Op::Binary(Binary::Rem, ..))));
    if !found {
        return;
    }
    let mut periods = Periods { defs: definitions(kernel), values: std::mem::take(&mut kernel.values) };
    each_loop_mut(&mut kernel.body, &mut |inner, before| _ = periods.write_out(inner, before));
    kernel.values = periods.values;
}

struct Periods {
    defs: Vec<Option<Op>>,
    values: Vec<ValueInfo>,
}

/// A value that is the remainder of the counter and a number.
struct Remainder {
    value: Value,
    ahead: i128,
}

impl Periods {
    fn number(&self, value: Value) -> Option<i128> {
        match &self.defs[value.index()] {
            Some(Op::Const(literal)) => fold::integer(literal),
            _ => None,
        }
    }

    fn like(&mut self, like: Value) -> Value {
        let value = Value(self.values.len() as u32);
        self.values.push(self.values[like.index()]);
        self.defs.push(None);
        value
    }

    fn define(&mut self, ty: Scalar, op: Op, insts: &mut Vec<Inst>) -> Value {
        let value = Value(self.values.len() as u32);
        self.values.push(ValueInfo { ty: ty.into(), uniform: false });
        self.defs.push(Some(op.clone()));
        insts.push(Inst::Let(value, op));
        value
    }

    fn constant(&mut self, ty: Scalar, number: i128, insts: &mut Vec<Inst>) -> Value {
        self.define(ty, Op::Const(fold::of_integer(ty, number)), insts)
    }

    /// The divisor of the first remainder of the counter, and all remainders with it. Of a power of two they are one step.
    fn remainders(&self, inner: &Loop, counter: &Counter, from: i128) -> Option<(i128, Vec<Remainder>)> {
        let ahead = |value: Value| match self.defs[value.index()] {
            _ if value == counter.value => Some(0),
            Some(Op::Binary(Binary::Add, a, b)) if a == counter.value => self.number(b),
            Some(Op::Binary(Binary::Sub, a, b)) if a == counter.value => self.number(b).map(|less| -less),
            _ => None,
        };
        let (mut divisor, mut found) = (None, Vec::new());
        each_inst(&inner.body, &mut |inst| {
            if let Inst::Let(value, Op::Binary(Binary::Rem, a, by)) = inst
                && let (Some(ahead), Some(by)) = (ahead(*a), self.number(*by))
                && (3..=MOST_ROUNDS).contains(&by)
                && by.count_ones() > 1
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
        let from = self.number(counter.from).filter(|from| (0..MOST).contains(from))?;
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
        let ty = self.values[counter.value.index()].ty.scalar;
        let (ahead, together) = (step * (rounds - 1), step * rounds);
        let to = match self.number(counter.to) {
            Some(to) if to > MOST || to - from <= together => return None,
            Some(to) => self.constant(ty, to - ahead, insts),
            None => {
                let most = self.constant(ty, MOST, insts);
                let to = self.define(ty, Op::Binary(Binary::Min, counter.to, most), insts);
                let ahead = self.constant(ty, ahead, insts);
                let raised = self.define(ty, Op::Binary(Binary::Max, to, ahead), insts);
                self.define(ty, Op::Binary(Binary::Sub, raised, ahead), insts)
            }
        };
        let first = self.like(counter.value);
        let [place, reached] = [0; 2].map(|_| self.like(counter.value));
        let params: Vec<Value> = inner.params.iter().map(|param| self.like(*param)).collect();
        let results: Vec<Value> = inner.params.iter().map(|param| self.like(*param)).collect();
        let (mut body, mut carried) = (Vec::new(), params.clone());
        for round in 0..rounds {
            let further = self.constant(ty, round * step, &mut body);
            let at = self.define(ty, Op::Binary(Binary::Add, first, further), &mut body);
            let mut names: HashMap<Value, Value> = inner.params.iter().copied().zip(carried).collect();
            names.insert(counter.value, at);
            let mut copy = copy_block(&inner.body, &mut names, &mut |value, _| self.like(value));
            let known = remainders.iter().map(|remainder| {
                let number = (from + round * step + remainder.ahead) % divisor;
                (names[&remainder.value], fold::of_integer(ty, number))
            });
            make_constant(&mut copy, &known.collect());
            body.append(&mut copy.insts);
            let End::Continue(ends) = copy.end else { return None };
            carried = ends;
        }
        let together = self.constant(ty, together, &mut body);
        carried.push(self.define(ty, Op::Binary(Binary::Add, first, together), &mut body));
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
        let left = match self.number(counter.to) {
            Some(to) => {
                let all = (to - from + step - 1) / step;
                self.constant(ty, from + all / rounds * rounds * step, insts)
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
    for inst in &mut block.insts {
        match inst {
            Inst::Let(value, op) => {
                if let Some(literal) = known.get(value) {
                    *op = Op::Const(*literal);
                }
            }
            Inst::If { then, otherwise, .. } => {
                make_constant(then, known);
                make_constant(otherwise, known);
            }
            Inst::Loop(inner) => make_constant(&mut inner.body, known),
            _ => {}
        }
    }
}
