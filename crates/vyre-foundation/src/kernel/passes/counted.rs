//! Finds loops that count: a test of a carried value against something fixed comes first, and every round adds a constant, or takes one
//! away.
//!
//! `for (var i = id; i < n; i += 64u)` may wrap where `n` is nearly the greatest number, and then it does not end when `i` comes to `n`. It
//! counts to a number that is small enough, and a loop as it was comes after it for the rest, behind a test of `n`.

use super::steps_alone;
use super::values::Values;
use crate::kernel::walk::{blocks, defined_in, each_inst, each_value_mut, exits};
use crate::kernel::{Binary, Block, Counter, End, Inst, Kernel, Loop, Op, Scalar, Unary, Value, fold};

/// Steps of a loop that may come twice.
const MOST_STEPS_OF_REST: usize = 64;

pub(super) fn run(kernel: &mut Kernel) {
    if !has_uncounted(&kernel.body) {
        return;
    }
    let mut finder = Finder { values: Values::with_definitions(kernel), around: Vec::new() };
    finder.block(&mut kernel.body);
    finder.values.give_back(kernel);
}

/// Some loop does not count yet.
fn has_uncounted(block: &Block) -> bool {
    let is_uncounted = |inst: &Inst| matches!(inst, Inst::Loop(inner) if inner.counter.is_none());
    block.insts.iter().any(|inst| is_uncounted(inst) || blocks(inst).any(has_uncounted))
}

struct Finder {
    values: Values,
    /// Counters of the loops around.
    around: Vec<Counter>,
}

/// What a carried value that goes up is tested against.
struct Limit {
    value: Value,
    /// A limit up to which nothing wraps.
    most: i128,
    step: u32,
}

/// A carried value that goes down.
struct Down {
    low: Value,
    /// The loop goes on while the value is more than this, or else than `low`.
    beyond: Option<i128>,
    step: u32,
}

impl Finder {
    fn block(&mut self, block: &mut Block) {
        let mut insts = Vec::with_capacity(block.insts.len());
        for mut inst in std::mem::take(&mut block.insts) {
            let mut rest = None;
            match &mut inst {
                Inst::If { then, otherwise, .. } => {
                    self.block(then);
                    self.block(otherwise);
                }
                Inst::Loop(inner) => {
                    self.inside(inner);
                    if inner.counter.is_none() && !inner.rare {
                        rest = self.recognise(inner, &mut insts);
                        if inner.counter.is_some() && has_uncounted(&inner.body) {
                            // Loops in it may end by its counter.
                            self.values.note(&inner.body);
                            self.inside(inner);
                        }
                    }
                }
                _ => {}
            }
            insts.push(inst);
            insts.extend(rest);
        }
        block.insts = insts;
    }

    fn inside(&mut self, inner: &mut Loop) {
        let outside = self.around.len();
        self.around.extend(inner.counter);
        self.block(&mut inner.body);
        self.around.truncate(outside);
    }

    /// Gives a loop its counter. What has to come before it is added to `before`, and what has to come after it is returned.
    fn recognise(&mut self, inner: &mut Loop, before: &mut Vec<Inst>) -> Option<Inst> {
        let position = inner.body.insts.iter().position(|inst| !matches!(inst, Inst::Let(..)))?;
        let Inst::If { cond, then, otherwise, results } = &inner.body.insts[position] else { return None };
        let (mut continues, mut breaks) = (Vec::new(), Vec::new());
        exits(&inner.body, &mut continues, &mut breaks);
        // What the loop gives when it ends by itself: the carried values, or what they always are.
        let carried = |i: usize, value: Value| {
            value == inner.params[i]
                || (value == inner.init[i]
                    && continues.iter().all(|values| values[i] == inner.params[i] || values[i] == inner.init[i]))
        };
        let leaves = |block: &Block| {
            block.insts.is_empty()
                && matches!(&block.end, End::Break(values)
                    if values.iter().enumerate().all(|(i, value)| carried(i, *value)))
        };
        let goes_on =
            |block: &Block| block.insts.is_empty() && matches!(&block.end, End::Yield(values) if values.is_empty());
        if !results.is_empty() {
            return None;
        }
        // `holds`: what the condition is while the loop goes on.
        let mut holds = match (then, otherwise) {
            (then, otherwise) if goes_on(then) && leaves(otherwise) => true,
            (then, otherwise) if leaves(then) && goes_on(otherwise) => false,
            _ => return None,
        };
        let mut cond = *cond;
        while let Some(&Op::Unary(Unary::Not, x)) = self.values.def(cond) {
            cond = x;
            holds = !holds;
        }
        let Some(&Op::Binary(op, a, b)) = self.values.def(cond) else { return None };
        // The loop goes on while `low < high`, or `low <= high`.
        let (low, high, or_equal) = match (op, holds) {
            (Binary::Lt, true) | (Binary::Ge, false) => (a, b, false),
            (Binary::Gt, true) | (Binary::Le, false) => (b, a, false),
            (Binary::Le, true) | (Binary::Gt, false) => (a, b, true),
            (Binary::Ge, true) | (Binary::Lt, false) => (b, a, true),
            _ => return None,
        };
        let Some(index) = inner.params.iter().position(|param| *param == low) else {
            // Of loops with another exit, lists that are kept sorted are written out with their test, which needs it as it is.
            if breaks.len() == 1
                && let Some(index) = inner.params.iter().position(|param| *param == high)
                && let Some(down) = self.down(inner, low, index, or_equal, &continues)
            {
                inner.body.insts.remove(position);
                self.count_down(inner, index, down);
            }
            return None;
        };
        let ty = self.values.scalar(low);
        if !matches!(ty, Scalar::U32 | Scalar::I32) || defined_in(inner).contains(&high) {
            return None;
        }
        let step = continues.first().and_then(|values| self.step(low, values[index]));
        let step = step?;
        if !continues.iter().all(|values| self.step(low, values[index]) == Some(step)) {
            return None;
        }
        let most = if ty == Scalar::U32 { i128::from(u32::MAX) } else { i128::from(i32::MAX) };
        let limit = self.values.number(high);
        // The sum must not wrap before the test fails.
        let (to, fits) = match (limit, or_equal) {
            (Some(limit), true) if limit < most => (Some(limit + 1), limit + i128::from(step) <= most),
            (Some(limit), false) => (None, limit - 1 + i128::from(step) <= most),
            (None, false) if step == 1 => (None, true),
            // One more than what is less than something.
            (None, true) if step == 1 && self.around.iter().any(|counter| counter.value == high) => (None, true),
            (None, true)
                if step == 1 && self.values.range(high, &self.around).is_some_and(|range| *range.end() < most) =>
            {
                (None, true)
            }
            // Of short loops to `n` with the number itself, several rounds at once are slower on an NVIDIA GPU.
            (None, false) if breaks.len() == 1 && may_come_twice(&inner.body) => (None, false),
            _ => return None,
        };
        let mut rest = None;
        let to = match to {
            Some(to) if fits => self.constant(ty, to),
            None if fits && or_equal => {
                let one = self.constant(ty, 1);
                self.values.binary(Binary::Add, high, one, before)
            }
            None if fits => high,
            None if limit.is_none() => {
                let most = if ty == Scalar::U32 { 1 << 31 } else { most - i128::from(step) + 1 };
                let limit = Limit { value: high, most, step };
                let (to, after) = self.split(inner, index, &limit, before);
                rest = Some(after);
                to
            }
            _ => return None,
        };
        let counter = self.values.fresh(ty);
        inner.body.insts.remove(position);
        replace(&mut inner.body, low, counter);
        inner.counter = Some(Counter { value: counter, from: inner.init[index], to, step });
        inner.finite = true;
        rest
    }

    /// How far a loop counts that does not go further than `limit.most`, and the loop for the rest.
    fn split(&mut self, inner: &mut Loop, index: usize, limit: &Limit, before: &mut Vec<Inst>) -> (Value, Inst) {
        let ty = self.values.scalar(limit.value);
        let most = self.constant(ty, limit.most);
        let to = self.values.binary(Binary::Min, limit.value, most, before);
        let cond = self.values.binary(Binary::Lt, most, limit.value, before);
        let mut insts = Vec::new();
        let reached = self.reached(inner.init[index], to, limit.step, &mut insts);
        let mut rest = inner.clone();
        rest.params = self.values.all_like(&inner.params);
        let mut names = inner.params.iter().copied().zip(rest.params.iter().copied()).collect();
        rest.body = self.values.copy_block(&inner.body, &mut names);
        let given = self.values.all_like(&inner.results);
        rest.init.clone_from(&given);
        rest.init[index] = reached;
        rest.results = self.values.all_like(&inner.results);
        rest.rare = true;
        let results = std::mem::replace(&mut inner.results, given.clone());
        let more = rest.results.clone();
        insts.push(Inst::Loop(Box::new(rest)));
        let then = Block { insts, end: End::Yield(more) };
        let otherwise = Block { insts: Vec::new(), end: End::Yield(given) };
        (to, Inst::If { cond, then: Box::new(then), otherwise: Box::new(otherwise), results })
    }

    /// Where a counter is after its loop: it need not be carried for that.
    fn reached(&mut self, from: Value, to: Value, step: u32, insts: &mut Vec<Inst>) -> Value {
        let ty = self.values.scalar(from);
        let (one, step) = (self.constant(Scalar::U32, 1), self.constant(Scalar::U32, step.into()));
        let distance = self.values.binary(Binary::Sub, to, from, insts);
        let distance = self.values.define(Scalar::U32, Op::BitCast(distance), insts);
        let distance = self.values.binary(Binary::Sub, distance, one, insts);
        let rounds = self.values.binary(Binary::Div, distance, step, insts);
        let rounds = self.values.binary(Binary::Add, rounds, one, insts);
        let way = self.values.binary(Binary::Mul, rounds, step, insts);
        let way = self.values.define(ty, Op::BitCast(way), insts);
        let end = self.values.binary(Binary::Add, from, way, insts);
        let goes = self.values.binary(Binary::Lt, from, to, insts);
        self.values.define(ty, Op::Select(goes, end, from), insts)
    }

    fn constant(&mut self, ty: Scalar, number: i128) -> Value {
        self.values.constant_at_start(fold::of_integer(ty, number))
    }

    /// How the carried value at a position goes down to `low`, where every round takes the same from it and it does not wrap.
    fn down(&self, inner: &Loop, low: Value, index: usize, or_equal: bool, continues: &[&[Value]]) -> Option<Down> {
        let high = inner.params[index];
        let ty = self.values.scalar(high);
        let least = match ty {
            Scalar::U32 => 0,
            Scalar::I32 => i128::from(i32::MIN),
            _ => return None,
        };
        if defined_in(inner).contains(&low) {
            return None;
        }
        let steps = |values: &&[Value]| self.step_down(high, values[index]);
        let step = continues.first().and_then(steps)?;
        if !continues.iter().all(|values| steps(values) == Some(step)) {
            return None;
        }
        let limit = self.values.number(low);
        // It goes on while the value is more than this.
        let beyond = match (limit, or_equal) {
            (Some(limit), true) if limit > least => Some(limit - 1),
            (Some(limit), false) => Some(limit),
            (None, false) => None,
            _ => return None,
        };
        // Neither the value nor the counter may wrap before the test fails.
        let most = if ty == Scalar::U32 { i128::from(u32::MAX) } else { i128::from(i32::MAX) };
        let from = self.values.number(inner.init[index]);
        let fits = step == 1
            || matches!((beyond, from), (Some(beyond), Some(from))
                if beyond - i128::from(step) + 1 >= least && from - 1 + i128::from(step) <= most);
        fits.then_some(Down { low, beyond, step })
    }

    /// A value that goes down from `first` while it is more than `beyond` is `first + beyond` less a counter that goes up from `beyond` to
    /// `first`.
    fn count_down(&mut self, inner: &mut Loop, index: usize, down: Down) {
        let (high, first) = (inner.params[index], inner.init[index]);
        let ty = self.values.scalar(high);
        let beyond = match down.beyond {
            Some(beyond) => self.constant(ty, beyond),
            None => down.low,
        };
        let [counter, sum, value] = [0; 3].map(|_| self.values.fresh(ty));
        replace(&mut inner.body, high, value);
        let both = [
            Inst::Let(sum, Op::Binary(Binary::Add, first, beyond)),
            Inst::Let(value, Op::Binary(Binary::Sub, sum, counter)),
        ];
        inner.body.insts.splice(0..0, both);
        inner.counter = Some(Counter { value: counter, from: beyond, to: first, step: down.step });
        inner.finite = true;
    }

    /// `next = high - step`.
    fn step_down(&self, high: Value, next: Value) -> Option<u32> {
        let step = match *self.values.def(next)? {
            Op::Binary(Binary::Sub, a, b) if a == high => self.values.number(b)?,
            Op::Binary(Binary::Add, a, b) if a == high => -self.values.number(b)?,
            Op::Binary(Binary::Add, a, b) if b == high => -self.values.number(a)?,
            _ => return None,
        };
        (1..=i128::from(i32::MAX)).contains(&step).then_some(step as u32)
    }

    /// `next = low + step`.
    fn step(&self, low: Value, next: Value) -> Option<u32> {
        let Some(&Op::Binary(Binary::Add, a, b)) = self.values.def(next) else { return None };
        let step = match (a == low, b == low) {
            (true, _) => self.values.number(b)?,
            (_, true) => self.values.number(a)?,
            _ => return None,
        };
        (1..=i128::from(i32::MAX)).contains(&step).then_some(step as u32)
    }
}

/// The body is short, nobody waits in it for others, and nothing in it comes twice already.
fn may_come_twice(body: &Block) -> bool {
    let mut rare = false;
    each_inst(body, &mut |inst| rare |= matches!(inst, Inst::Loop(inner) if inner.rare));
    !rare && steps_alone(body).is_some_and(|steps| steps <= MOST_STEPS_OF_REST)
}

/// Replaces a value in a block.
fn replace(block: &mut Block, old: Value, new: Value) {
    each_value_mut(block, &mut |value| {
        if *value == old {
            *value = new;
        }
    });
}
