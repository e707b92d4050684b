//! Several rounds of a loop over memory at once, so that their loads are under way together.
//!
//! `for i in from..to` becomes a loop that takes four rounds while all four are there, and the loop as it was for the rest. Of the four
//! rounds, what does not depend on carried values (addresses, loads, most arithmetic) comes first, step by step for all four; then, in
//! order, what does.
//!
//! Where a loop has branches or may be left from within, so that the rounds can't be mixed, they follow each other in one body: there is one
//! test of the counter for all of them, and their addresses are one with offsets. Where the number of rounds is not known, or leaves a rest, only loops
//! that nothing leaves, because a rest must not run where the loop was left.

use hashbrown::HashMap;

use super::straight;
use super::values::{Values, named};
use crate::kernel::walk::{
    Effect, access, blocks, defined_in, each_inst, each_loop_mut, each_use, exits, results, written,
};
use crate::kernel::{Address, Binary, Block, Counter, End, Inst, Kernel, Loop, Memory, Op, Scalar, Value};

/// Steps that a round may have.
const MOST_STEPS: usize = 48;
/// Steps of a round of which twice as many are taken at once, where that leaves no rest.
const MOST_STEPS_TWICE: usize = 40;
/// Loads that a round may have.
const MOST_LOADS: usize = 8;
/// Steps that a round may have where rounds follow each other.
const MOST_STEPS_IN_TURN: usize = 64;
/// Steps of such a round of which twice as many follow each other, where that leaves no rest: short ones wait for what they load.
const MOST_STEPS_IN_TURN_TWICE: usize = 16;

/// Takes so many rounds at once.
pub(super) fn run(kernel: &mut Kernel, together: u32) {
    if together < 2 {
        return;
    }
    let mut nested = Vec::new();
    note_nested(&kernel.body, false, &mut nested);
    let mut batch = Batch { together, nested, values: Values::with_definitions(kernel) };
    each_loop_mut(&mut kernel.body, &mut |inner, before| batch.batch(inner, before));
    batch.values.give_back(kernel);
}

/// A loop that goes on by a value while it is below another one.
struct Strides {
    /// What goes on, among the carried values.
    index: usize,
    /// Where it is tested.
    test: usize,
    to: Value,
    stride: Value,
}

struct Batch {
    together: u32,
    /// Counters of loops in loops.
    nested: Vec<Value>,
    values: Values,
}

impl Batch {
    /// The loop gains, and no round can see what another does but through carried values.
    fn gains(&self, inner: &Loop, counter: &Counter) -> bool {
        let body = &inner.body;
        let plain = |inst: &Inst| match inst {
            Inst::Let(_, op) => !op.is_across_subgroup(),
            Inst::Store { .. } => true,
            _ => false,
        };
        if !straight(body) || body.insts.len() > MOST_STEPS || !body.insts.iter().all(plain) {
            return false;
        }
        let mut loads: Vec<Memory> = Vec::new();
        let mut stores: Vec<Memory> = Vec::new();
        for (address, effect) in body.insts.iter().filter_map(access) {
            match effect {
                Effect::Read => loads.push(address.memory),
                _ => stores.push(address.memory),
            }
        }
        let elsewhere = |memory: &Memory| !stores.contains(memory) && !matches!(memory, Memory::Local(_));
        let few_rounds = match (self.values.number(counter.from), self.values.number(counter.to)) {
            (Some(from), Some(to)) => to - from <= i128::from(counter.step) * 2 * i128::from(self.together),
            _ => false,
        };
        !loads.is_empty() && loads.len() <= MOST_LOADS && loads.iter().all(elsewhere) && !few_rounds
    }

    /// Puts a loop over several rounds each before `inner`, which keeps the rest.
    fn batch(&mut self, inner: &mut Loop, insts: &mut Vec<Inst>) {
        if inner.rare {
            return;
        }
        let Some(counter) = inner.counter else { return self.batch_strides(inner, insts) };
        if counter.step > 1 << 24 {
            return;
        }
        if !self.gains(inner, &counter) {
            return match self.may_leave_a_rest(inner, &counter) {
                true => self.batch_rounds(inner, counter, insts),
                false => self.follow(inner, counter),
            };
        }
        let few = self.together;
        if inner.body.insts.len() <= MOST_STEPS_TWICE
            && let (Some(from), Some(to)) = (self.values.number(counter.from), self.values.number(counter.to))
        {
            let rounds = (to - from + i128::from(counter.step) - 1) / i128::from(counter.step);
            if rounds % i128::from(2 * few) == 0 {
                self.together = 2 * few;
            }
        }
        self.batch_rounds(inner, counter, insts);
        self.together = few;
    }

    /// A short loop with branches that none of them leaves, and with as many rounds as turn out. Loops in loops, as over the neighbours of a
    /// pixel, have few, most of which would be the rest.
    fn may_leave_a_rest(&self, inner: &Loop, counter: &Counter) -> bool {
        let (mut continues, mut breaks) = (Vec::new(), Vec::new());
        exits(&inner.body, &mut continues, &mut breaks);
        let goes_on_at_end = matches!(inner.body.end, End::Continue(_)) && continues.len() == 1 && breaks.is_empty();
        let is_known = self.values.number(counter.from).is_some() && self.values.number(counter.to).is_some();
        let has_branches = inner.body.insts.iter().any(|inst| matches!(inst, Inst::If { .. }));
        let loads = each_load(&inner.body);
        goes_on_at_end
            && !is_known
            && !self.nested.contains(&counter.value)
            && has_branches
            && (1..=MOST_LOADS).contains(&loads)
            && steps_in_turn(&inner.body).is_some_and(|steps| steps <= MOST_STEPS)
    }

    /// Puts several rounds of a loop with branches, which may leave it, into one, one after the other.
    fn follow(&mut self, inner: &mut Loop, counter: Counter) {
        let (Some(from), Some(to)) = (self.values.number(counter.from), self.values.number(counter.to)) else { return };
        let (step, mut together) = (i128::from(counter.step), i128::from(self.together));
        let rounds = (to - from + step - 1) / step;
        let (mut continues, mut breaks) = (Vec::new(), Vec::new());
        exits(&inner.body, &mut continues, &mut breaks);
        let goes_on_at_end = matches!(inner.body.end, End::Continue(_)) && continues.len() == 1;
        let has_branches = inner.body.insts.iter().any(|inst| matches!(inst, Inst::If { .. }));
        if !has_branches && breaks.is_empty() || !goes_on_at_end || rounds % together != 0 || rounds <= 2 * together {
            return;
        }
        let Some(steps) = steps_in_turn(&inner.body).filter(|steps| *steps <= MOST_STEPS_IN_TURN) else { return };
        if steps <= MOST_STEPS_IN_TURN_TWICE && breaks.is_empty() && rounds % (2 * together) == 0 {
            together *= 2;
        }
        let End::Continue(ends) = inner.body.end.clone() else { return };
        let ty = self.values.scalar(counter.value);
        // A loop that may be left loads nothing for rounds that do not come.
        let late = if breaks.is_empty() { waits(inner) } else { vec![true; inner.body.insts.len()] };
        let rest = std::mem::take(&mut inner.body.insts);
        let (mut insts, mut later) = (Vec::new(), Vec::new());
        for round in 1..together {
            let ahead = self.values.constant(ty, round * step, &mut insts);
            let at = self.values.binary(Binary::Add, counter.value, ahead, &mut insts);
            later.push((round * step, HashMap::from([(counter.value, at)])));
        }
        for (inst, _) in rest.iter().zip(&late).filter(|(_, late)| !**late) {
            insts.push(inst.clone());
            for (ahead, names) in &mut later {
                let copy = self.copy_in_turn(inst, names, &counter, *ahead, &rest);
                insts.push(copy);
            }
        }
        insts.extend(rest.iter().zip(&late).filter(|(_, late)| **late).map(|(inst, _)| inst.clone()));
        let mut carried = ends.clone();
        for (ahead, names) in &mut later {
            names.extend(inner.params.iter().copied().zip(carried));
            for (inst, _) in rest.iter().zip(&late).filter(|(_, late)| **late) {
                let copy = self.copy_in_turn(inst, names, &counter, *ahead, &rest);
                insts.push(copy);
            }
            carried = ends.iter().map(|value| named(*value, names)).collect();
        }
        inner.body = Block { insts, end: End::Continue(carried) };
        inner.counter = Some(Counter { step: counter.step * together as u32, ..counter });
    }

    /// A step with the names of a round that is so many of the counter's steps behind the first, and its address by that of the first.
    fn copy_in_turn(
        &mut self,
        inst: &Inst,
        names: &mut HashMap<Value, Value>,
        counter: &Counter,
        ahead: i128,
        rest: &[Inst],
    ) -> Inst {
        let mut copy = self.values.copy_inst(inst, names);
        if let (Some((first, _)), Some(address)) = (access(inst), address_mut(&mut copy)) {
            self.take_from_first(first, address, counter, ahead, rest);
        }
        copy
    }

    /// Takes an address of a round from that of the first round, which is so many of the counter's steps before: where an index is a multiple of
    /// the counter, it differs by a constant.
    fn take_from_first(&self, first: &Address, address: &mut Address, counter: &Counter, ahead: i128, rest: &[Inst]) {
        for ((known, _), (index, stride)) in first.terms.iter().zip(&mut address.terms) {
            let is_at_hand = rest.iter().any(|inst| matches!(inst, Inst::Let(value, _) if value == known));
            let Some(multiple) = self.multiple(*known, counter) else { continue };
            let offset = i128::from(address.offset) + ahead * multiple * i128::from(*stride);
            if let (Ok(offset), true) = (u32::try_from(offset), is_at_hand || *known == counter.value) {
                (*index, address.offset) = (*known, offset);
            }
        }
    }

    /// What the counter is multiplied by to give a value, where that never wraps.
    fn multiple(&self, value: Value, counter: &Counter) -> Option<i128> {
        let multiple = match self.values.def(value) {
            _ if value == counter.value => 1,
            Some(&Op::Binary(Binary::Mul, a, by)) => self.multiple(a, counter)?.checked_mul(self.values.number(by)?)?,
            Some(&Op::Binary(Binary::Shl, a, by)) => {
                let by = self.values.number(by).filter(|by| (0..32).contains(by))?;
                self.multiple(a, counter)?.checked_mul(1 << by)?
            }
            _ => return None,
        };
        let is_unsigned = self.values.scalar(value) == Scalar::U32;
        let most = multiple.checked_mul(self.values.number(counter.to)?)?;
        (is_unsigned && multiple >= 0 && most <= i128::from(u32::MAX)).then_some(multiple)
    }

    fn batch_rounds(&mut self, inner: &mut Loop, counter: Counter, insts: &mut Vec<Inst>) {
        let ty = self.values.scalar(counter.value);
        let (least, most) =
            if ty == Scalar::I32 { (i128::from(i32::MIN), i128::from(i32::MAX)) } else { (0, u32::MAX.into()) };
        let step = i128::from(counter.step);
        let ahead = step * i128::from(self.together - 1);
        // While the last of the rounds is there.
        let to = match self.values.number(counter.to) {
            Some(to) => self.values.constant(ty, (to - ahead).max(least), insts),
            None => {
                let (floor, ahead) =
                    (self.values.constant(ty, least + ahead, insts), self.values.constant(ty, ahead, insts));
                let raised = self.values.binary(Binary::Max, counter.to, floor, insts);
                self.values.binary(Binary::Sub, raised, ahead, insts)
            }
        };
        let first = self.values.like(counter.value);
        let params = self.values.all_like(&inner.params);
        let results = self.values.all_like(&inner.params);
        let (mut body, carried) = self.rounds(inner, &counter, first, &params);
        let (place, reached) = (self.values.like(counter.value), self.values.like(counter.value));
        let advance = self.values.constant(ty, step * i128::from(self.together), &mut body);
        let mut next = self.values.binary(Binary::Add, first, advance, &mut body);
        if self.values.number(counter.to).is_none_or(|to| to + step > most) {
            // Beyond the greatest number nothing is left.
            let wrapped = self.values.binary(Binary::Lt, next, first, &mut body);
            next = self.values.define(ty, Op::Select(wrapped, counter.to, next), &mut body);
        }
        let with = |values: &[Value], last: Value| [values, &[last]].concat();
        insts.push(Inst::Loop(Box::new(Loop {
            counter: Some(Counter { value: first, from: counter.from, to, step: counter.step * self.together }),
            params: with(&params, place),
            init: with(&inner.init, counter.from),
            body: Block { insts: body, end: End::Continue(with(&carried, next)) },
            results: with(&results, reached),
            finite: true,
            look: None,
            rare: false,
        })));
        let left = match (self.values.number(counter.from), self.values.number(counter.to)) {
            (Some(from), Some(to)) => (to - from + step - 1) / step % i128::from(self.together),
            _ => 1,
        };
        // Nothing is left where all rounds are taken at once.
        let from = if left == 0 { counter.to } else { reached };
        inner.counter = Some(Counter { from, ..counter });
        inner.init = results;
    }

    /// The steps of all rounds, and what they carry on.
    fn rounds(&mut self, inner: &Loop, counter: &Counter, first: Value, params: &[Value]) -> (Vec<Inst>, Vec<Value>) {
        let ty = self.values.scalar(counter.value);
        let mut insts = Vec::new();
        let mut names: Vec<HashMap<Value, Value>> = Vec::new();
        for round in 0..self.together {
            let ahead = i128::from(round) * i128::from(counter.step);
            let at = match round {
                0 => first,
                _ => {
                    let ahead = self.values.constant(ty, ahead, &mut insts);
                    self.values.binary(Binary::Add, first, ahead, &mut insts)
                }
            };
            names.push(HashMap::from([(counter.value, at)]));
        }
        let carried = self.mixed(inner, &mut names, params, &mut insts);
        self.take_from_one(inner, counter, &names, &mut insts);
        (insts, carried)
    }

    /// Adds the steps of rounds with these names, and gives what they carry on.
    fn mixed(
        &mut self,
        inner: &Loop,
        names: &mut [HashMap<Value, Value>],
        params: &[Value],
        insts: &mut Vec<Inst>,
    ) -> Vec<Value> {
        let late = waits(inner);
        for (inst, _) in inner.body.insts.iter().zip(&late).filter(|(_, late)| !**late) {
            for names in names.iter_mut() {
                let copy = self.values.copy_inst(inst, names);
                insts.push(copy);
            }
        }
        let mut carried = params.to_vec();
        let End::Continue(ends) = &inner.body.end else { return carried };
        for names in names {
            names.extend(inner.params.iter().copied().zip(carried.iter().copied()));
            for (inst, _) in inner.body.insts.iter().zip(&late).filter(|(_, late)| **late) {
                let copy = self.values.copy_inst(inst, names);
                insts.push(copy);
            }
            carried = ends.iter().map(|value| named(*value, names)).collect();
        }
        carried
    }

    /// The same for a loop over a grid, `while i < n { …; i += stride }` with a stride that is only known when it runs. All rounds of four are there
    /// while `i` is less than `n - 3 * stride`; where that is less than nothing, or too much, the loop is left as it is.
    fn batch_strides(&mut self, inner: &mut Loop, insts: &mut Vec<Inst>) {
        let Some(Strides { index, test, to, stride }) = self.strides(inner) else { return };
        let mut counted = inner.clone();
        counted.body.insts.remove(test);
        let End::Continue(ends) = &mut counted.body.end else { return };
        ends.remove(index);
        let place = counted.params.remove(index);
        counted.init.remove(index);
        let from = inner.init[index];
        if !self.gains(&counted, &Counter { value: place, from, to, step: 1 }) {
            return;
        }
        let ty = Scalar::U32;
        let ahead = i128::from(self.together - 1);
        let (zero, rounds) = (self.values.constant(ty, 0, insts), self.values.constant(ty, ahead, insts));
        let most = self.values.constant(ty, i128::from(u32::MAX) / ahead, insts);
        let ahead = self.values.binary(Binary::Mul, stride, rounds, insts);
        let fits = self.values.binary(Binary::Le, stride, most, insts);
        let some = self.values.binary(Binary::Lt, ahead, to, insts);
        let both = self.values.binary(Binary::And, fits, some, insts);
        let left = self.values.binary(Binary::Sub, to, ahead, insts);
        let end = self.values.define(ty, Op::Select(both, left, zero), insts);
        let first = self.values.like(place);
        let params = self.values.all_like(&counted.params);
        let mut results = self.values.all_like(&inner.params);
        let reached = results.remove(index);
        let with = |values: &[Value], last: Value| [values, &[last]].concat();
        let mut body = Vec::new();
        let goes = self.values.binary(Binary::Lt, first, end, &mut body);
        body.push(Inst::If {
            cond: goes,
            then: Box::new(Block { insts: Vec::new(), end: End::Yield(Vec::new()) }),
            otherwise: Box::new(Block { insts: Vec::new(), end: End::Break(with(&params, first)) }),
            results: Vec::new(),
        });
        let mut names = vec![HashMap::from([(place, first)])];
        let mut next = self.values.binary(Binary::Add, first, stride, &mut body);
        for _ in 1..self.together {
            names.push(HashMap::from([(place, next)]));
            next = self.values.binary(Binary::Add, next, stride, &mut body);
        }
        let carried = self.mixed(&counted, &mut names, &params, &mut body);
        insts.push(Inst::Loop(Box::new(Loop {
            counter: None,
            params: with(&params, first),
            init: with(&counted.init, from),
            body: Block { insts: body, end: End::Continue(with(&carried, next)) },
            results: with(&results, reached),
            ..*inner
        })));
        results.insert(index, reached);
        inner.init = results;
    }

    fn strides(&self, inner: &Loop) -> Option<Strides> {
        let test = inner.body.insts.iter().position(|inst| !matches!(inst, Inst::Let(..)))?;
        let Inst::If { cond, then, otherwise, results } = &inner.body.insts[test] else { return None };
        let Some(&Op::Binary(Binary::Lt, place, to)) = self.values.def(*cond) else { return None };
        let (mut continues, mut breaks) = (Vec::new(), Vec::new());
        exits(&inner.body, &mut continues, &mut breaks);
        let goes_on = then.insts.is_empty() && matches!(&then.end, End::Yield(values) if values.is_empty());
        let leaves =
            otherwise.insts.is_empty() && matches!(&otherwise.end, End::Break(values) if *values == inner.params);
        let alone = continues.len() == 1 && breaks.len() == 1 && results.is_empty();
        let index = inner.params.iter().position(|param| *param == place)?;
        let End::Continue(next) = &inner.body.end else { return None };
        let stride = match self.values.def(next[index]) {
            Some(&Op::Binary(Binary::Add, a, b)) if a == place => b,
            Some(&Op::Binary(Binary::Add, a, b)) if b == place => a,
            _ => return None,
        };
        let inside = defined_in(inner);
        let fixed = !inside.contains(&to) && !inside.contains(&stride);
        let is_word = self.values.ty(place) == Scalar::U32.into();
        (goes_on && leaves && alone && fixed && is_word).then_some(Strides { index, test, to, stride })
    }

    /// Takes addresses that go up with the counter from that of the first round, and those that go down to zero with the last one from that of the last
    /// round at once: they differ by a constant.
    fn take_from_one(&self, inner: &Loop, counter: &Counter, names: &[HashMap<Value, Value>], insts: &mut [Inst]) {
        let mut others = HashMap::new();
        let made = inner.body.insts.iter().filter_map(|inst| match inst {
            Inst::Let(value, _) => Some(*value),
            _ => None,
        });
        for value in made.chain([counter.value]) {
            let one = match (self.is_gone(value, counter), self.is_left(value, counter)) {
                (true, _) => 0,
                (_, true) => names.len() - 1,
                _ => continue,
            };
            let Some(base) = names[one].get(&value) else { continue };
            for (round, names) in names.iter().enumerate().filter(|(round, _)| *round != one) {
                let steps = round.abs_diff(one) as u32 * counter.step;
                others.extend(names.get(&value).map(|value| (*value, (*base, steps))));
            }
        }
        for inst in insts.iter_mut().filter(|_| !others.is_empty()) {
            each_address_mut(inst, &mut |address| {
                for (index, stride) in &mut address.terms {
                    let Some((base, steps)) = others.get(index) else { continue };
                    let more = steps.checked_mul(*stride).and_then(|more| address.offset.checked_add(more));
                    if let Some(offset) = more {
                        (*index, address.offset) = (*base, offset);
                    }
                }
            });
        }
    }

    /// The value is how far a counter is from where it begins, or itself, as a u32 that does not wrap.
    fn is_gone(&self, value: Value, counter: &Counter) -> bool {
        if self.values.scalar(value) != Scalar::U32 {
            return false;
        }
        let difference = match self.values.def(value) {
            Some(&Op::BitCast(bits)) => bits,
            _ => value,
        };
        match self.values.def(difference) {
            Some(&Op::Binary(Binary::Sub, at, from)) => at == counter.value && from == counter.from,
            _ => difference == counter.value && (value == difference || self.values.number(counter.from) >= Some(0)),
        }
    }

    /// The value is how far a counter is from the last number before its limit, as a u32.
    fn is_left(&self, value: Value, counter: &Counter) -> bool {
        if self.values.scalar(value) != Scalar::U32 {
            return false;
        }
        let difference = match self.values.def(value) {
            Some(&Op::BitCast(bits)) => bits,
            _ => value,
        };
        let Some(&Op::Binary(Binary::Sub, end, taken)) = self.values.def(difference) else { return false };
        let is_last = match (self.values.number(end), self.values.number(counter.to)) {
            (Some(end), Some(to)) => end == to - 1,
            _ => match self.values.def(end) {
                Some(&Op::Binary(Binary::Sub, to, one)) => to == counter.to && self.values.number(one) == Some(1),
                Some(&Op::Binary(Binary::Add, to, one)) => to == counter.to && self.values.number(one) == Some(-1),
                _ => false,
            },
        };
        taken == counter.value && is_last
    }
}

/// Which steps of a round wait for the rounds before it: what carried values decide, what is stored and what branches do, which keep their
/// order, and what is loaded where something is stored.
fn waits(inner: &Loop) -> Vec<bool> {
    let stored = written(&inner.body);
    let mut waiting: Vec<Value> = inner.params.clone();
    let mut late = Vec::with_capacity(inner.body.insts.len());
    for inst in &inner.body.insts {
        let mut waits =
            !matches!(inst, Inst::Let(..)) || access(inst).is_some_and(|(at, _)| stored.contains(&at.memory));
        each_use(inst, &mut |value| waits |= waiting.contains(&value));
        if waits {
            waiting.extend(results(inst));
        }
        late.push(waits);
    }
    late
}

fn each_address_mut(inst: &mut Inst, change: &mut impl FnMut(&mut Address)) {
    match inst {
        Inst::If { then, otherwise, .. } => {
            for inst in then.insts.iter_mut().chain(&mut otherwise.insts) {
                each_address_mut(inst, change);
            }
        }
        inst => address_mut(inst).into_iter().for_each(change),
    }
}

fn address_mut(inst: &mut Inst) -> Option<&mut Address> {
    match inst {
        Inst::Let(_, Op::Load { address, .. }) | Inst::Store { address, .. } => Some(address),
        _ => None,
    }
}

fn note_nested(block: &Block, in_loop: bool, nested: &mut Vec<Value>) {
    for inst in &block.insts {
        if let (Inst::Loop(inner), true) = (inst, in_loop) {
            nested.extend(inner.counter.map(|counter| counter.value));
        }
        blocks(inst).for_each(|block| note_nested(block, in_loop || matches!(inst, Inst::Loop(_)), nested));
    }
}

/// How much a block and its branches load.
fn each_load(block: &Block) -> usize {
    let mut count = 0;
    each_inst(block, &mut |inst| count += usize::from(matches!(inst, Inst::Let(_, Op::Load { .. }))));
    count
}

/// The steps of a block that rounds which follow each other may have: what computes, loads and changes memory, and ways that come to their end or
/// leave the loop. `None` where there is anything else.
fn steps_in_turn(block: &Block) -> Option<usize> {
    let mut steps = 0;
    for inst in &block.insts {
        steps += match inst {
            Inst::Let(_, op) if !op.is_across_subgroup() => 1,
            Inst::Store { .. } | Inst::Atomic { result: None, .. } => 1,
            Inst::If { then, otherwise, .. } => 1 + steps_in_turn(then)? + steps_in_turn(otherwise)?,
            _ => return None,
        };
    }
    Some(steps)
}

#[cfg(test)]
mod tests {
    use crate::ir::{BufferDecl, DataType, Expr, Node, Program};
    use crate::kernel::{Inst, Interpret, Kernel, Options, Passes, interpret, lower, verify, walk};

    /// Sums elements with counters from `bounds`, or with constant ones; the order shows.
    fn summing(ty: &DataType, constant: Option<(Expr, Expr)>, step: u32) -> Program {
        let bound = |at: u32| Expr::load("bounds", Expr::u32(at)).cast(ty.clone());
        let (from, to) = constant.unwrap_or_else(|| (bound(0), bound(1)));
        let place = (Expr::var("i").cast(DataType::U32) + Expr::u32(7)) & Expr::u32(63);
        let sum =
            Expr::var("sum") * Expr::u32(3) + Expr::load("data", place.clone()) + Expr::var("i").cast(DataType::U32);
        Program::wrapped(
            vec![
                BufferDecl::read("bounds", 0, DataType::U32),
                BufferDecl::read("data", 1, DataType::U32),
                BufferDecl::output("out", 2, DataType::U32).with_count(1),
                BufferDecl::output("seen", 3, DataType::U32).with_count(64),
            ],
            [1, 1, 1],
            vec![
                Node::var("sum", DataType::U32, Expr::u32(1)),
                Node::For {
                    var: "i".into(),
                    from,
                    to,
                    step,
                    body: vec![Node::assign("sum", sum), Node::store("seen", place, Expr::var("sum"))],
                },
                Node::store("out", Expr::u32(0), Expr::var("sum")),
            ],
        )
    }

    fn kernel(program: &Program, rounds_together: u32) -> Kernel {
        let options = Options { passes: Passes::all().without(Passes::UNROLL), rounds_together, ..Options::default() };
        let kernel = lower(&program.validate().expect("valid"), &options).expect("lowers");
        verify(&kernel).expect("well made");
        kernel
    }

    fn run(kernel: &Kernel, bounds: [u32; 2]) -> Vec<Vec<u8>> {
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let data: Vec<u32> = (0..64).map(|i| i * i * 31 + 5).collect();
        let mut buffers = [words(&bounds), words(&data), vec![0; 4], vec![0; 256]];
        let how = Interpret { grid: [1, 1, 1], subgroup_size: 32, budget: 1 << 20, noise: None };
        interpret(kernel, &mut buffers, &how).expect("runs");
        buffers[2..].to_vec()
    }

    fn loops(kernel: &Kernel) -> usize {
        let mut count = 0;
        walk::each_inst(&kernel.body, &mut |inst| count += usize::from(matches!(inst, Inst::Loop(_))));
        count
    }

    #[test]
    fn rounds_at_once_give_what_rounds_one_by_one_give() {
        for ty in [DataType::U32, DataType::I32] {
            for step in [1, 2, 3, 7, 1000] {
                let program = summing(&ty, None, step);
                let (one, four) = (kernel(&program, 1), kernel(&program, 4));
                assert_eq!((loops(&one), loops(&four)), (1, 2));
                let end = if ty == DataType::U32 { u32::MAX } else { i32::MAX as u32 };
                let start = if ty == DataType::U32 { 0 } else { i32::MIN as u32 };
                for rounds in 0..14u32 {
                    let span = rounds * step;
                    for bounds in [
                        [0, span],
                        [5, 5u32.wrapping_add(span)],
                        [start, start.wrapping_add(span)],
                        [end - span, end],
                        [end - span.saturating_sub(1), end],
                        [9, 2],
                    ] {
                        assert_eq!(run(&one, bounds), run(&four, bounds), "{ty} {bounds:?} by {step}");
                    }
                }
            }
        }
    }

    /// Sums elements that others select, in a loop or in one within another.
    fn selecting(ty: &DataType, nested: bool) -> Program {
        let bound = |at: u32| Expr::load("bounds", Expr::u32(at)).cast(ty.clone());
        let place = (Expr::var("i").cast(DataType::U32) + Expr::u32(7)) & Expr::u32(63);
        let is_odd = (Expr::load("data", place.clone()) & Expr::u32(1)).eq(1u32);
        let sum = Expr::var("sum") * Expr::u32(3) + Expr::load("data", place.clone() ^ Expr::u32(5));
        let body = vec![
            Node::if_then(is_odd, vec![Node::assign("sum", sum)]),
            Node::if_then(Expr::var("sum").gt(9u32), vec![Node::store("seen", place, Expr::var("sum"))]),
        ];
        let rounds = Node::For { var: "i".into(), from: bound(0), to: bound(1), step: 1, body };
        let rounds = match nested {
            true => Node::for_range("k", Expr::u32(0), Expr::load("bounds", Expr::u32(1)) & Expr::u32(3), vec![rounds]),
            false => rounds,
        };
        summing(ty, None, 1).with_body(vec![
            Node::var("sum", DataType::U32, Expr::u32(1)),
            rounds,
            Node::store("out", Expr::u32(0), Expr::var("sum")),
        ])
    }

    #[test]
    fn rounds_with_branches_follow_each_other_whatever_their_number() {
        for ty in [DataType::U32, DataType::I32] {
            let program = selecting(&ty, false);
            let plain = Options { passes: Passes::none(), ..Options::default() };
            let plain = lower(&program.validate().expect("valid"), &plain).expect("lowers");
            let (one, four) = (kernel(&program, 1), kernel(&program, 4));
            assert_eq!((loops(&one), loops(&four)), (1, 2), "{one}\n{four}");
            let end = if ty == DataType::U32 { u32::MAX } else { i32::MAX as u32 };
            let start = if ty == DataType::U32 { 0 } else { i32::MIN as u32 };
            for rounds in 0..14u32 {
                for bounds in [[0, rounds], [start, start + rounds], [end - rounds, end], [9, 2]] {
                    let expected = run(&plain, bounds);
                    assert_eq!(run(&one, bounds), expected, "{ty} {bounds:?}");
                    assert_eq!(run(&four, bounds), expected, "{ty} {bounds:?}");
                }
            }
            assert_eq!(loops(&kernel(&selecting(&ty, true), 4)), 2, "most of a loop in a loop would be the rest");
        }
    }

    #[test]
    fn constant_bounds_too() {
        // Where all rounds are taken at once, no second loop is left.
        for (from, to, count) in [(0u32, 64u32, 2), (3, 61, 1), (u32::MAX - 40, u32::MAX, 2)] {
            let program = summing(&DataType::U32, Some((Expr::u32(from), Expr::u32(to))), 3);
            let (one, four) = (kernel(&program, 1), kernel(&program, 4));
            assert_eq!(loops(&four), count);
            assert_eq!(run(&one, [0, 0]), run(&four, [0, 0]), "{from}..{to}");
        }
    }

    /// Looks for the first element that is at most the bound among so many, or for the last one; `seen` says how far it came.
    fn searching([from, to, step]: [u32; 3], leaves: bool) -> Program {
        // What a branch that goes on does is too much to be chosen instead.
        let bits = Expr::load("seen", Expr::var("i") & Expr::u32(63));
        let found_one = match leaves {
            true => Node::Break,
            false => Node::store("seen", Expr::var("i") & Expr::u32(63), bits + Expr::var("sum")),
        };
        let element = Expr::load("data", Expr::var("i") * Expr::u32(3));
        let found = Expr::var("element").le(Expr::load("bounds", Expr::u32(0)));
        Program::wrapped(
            vec![
                BufferDecl::read("bounds", 0, DataType::U32),
                BufferDecl::read("data", 1, DataType::U32),
                BufferDecl::output("out", 2, DataType::U32).with_count(2),
                BufferDecl::read_write("seen", 3, DataType::U32).with_count(64),
            ],
            [1, 1, 1],
            vec![
                Node::var("at", DataType::U32, Expr::u32(1_000)),
                Node::var("sum", DataType::U32, Expr::u32(1)),
                Node::For {
                    var: "i".into(),
                    from: Expr::u32(from),
                    to: Expr::u32(to),
                    step,
                    body: vec![
                        Node::let_bind("element", element),
                        Node::if_then(found, vec![Node::assign("at", Expr::var("i")), found_one]),
                        Node::assign("sum", Expr::var("sum") * Expr::u32(3) + Expr::var("element")),
                        Node::store("seen", Expr::var("i") & Expr::u32(63), Expr::var("sum")),
                    ],
                },
                Node::store("out", Expr::u32(0), Expr::var("at")),
                Node::store("out", Expr::u32(1), Expr::var("sum")),
            ],
        )
    }

    #[test]
    fn rounds_that_may_be_the_last_follow_each_other() {
        // Descending, so that each bound is first met elsewhere.
        let data: Vec<u32> = (0..3 * 64).map(|i| (3 * 64 - 1 - i) * 10 / 3).collect();
        let search = |kernel: &Kernel, bound: u32| {
            let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
            let mut buffers = [words(&[bound]), words(&data), vec![0; 8], vec![0; 256]];
            let how = Interpret { grid: [1, 1, 1], subgroup_size: 32, budget: 1 << 20, noise: None };
            interpret(kernel, &mut buffers, &how).expect("runs");
            buffers[2..].to_vec()
        };
        let steps = |kernel: &Kernel| {
            let mut steps = Vec::new();
            walk::each_inst(&kernel.body, &mut |inst| {
                if let Inst::Loop(inner) = inst {
                    steps.extend(inner.counter.map(|counter| counter.step));
                }
            });
            steps
        };
        // Rounds that none leaves before the next are short enough to be taken eight at a time.
        let loops =
            [(0, 64, 1, [4, 8]), (3, 51, 1, [4, 8]), (0, 63, 1, [1, 1]), (2, 62, 3, [12, 12]), (0, 8, 1, [1, 1])];
        for ((from, to, step, taken), leaves) in loops.into_iter().flat_map(|case| [(case, true), (case, false)]) {
            let program = searching([from, to, step], leaves);
            let (one, four) = (kernel(&program, 1), kernel(&program, 4));
            assert_eq!(steps(&four), [taken[usize::from(!leaves)]], "{from}..{to} by {step}");
            for bound in (0..64).map(|i| i * 10).chain([u32::MAX]) {
                assert_eq!(search(&one, bound), search(&four, bound), "{from}..{to} by {step}, up to {bound}");
            }
            // Nothing is that small.
            assert_eq!(search(&one, 0), search(&four, 0));
        }
    }
}
