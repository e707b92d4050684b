//! Loops whose invocations start side by side and go on in the same steps: `for (i = local_id.x; i < n; i += 256u)`.
//!
//! Invocations leave such a loop one by one, at its end. Until the one that is furthest comes to the limit they can go round together,
//! so the loop becomes two: one that counts where the first invocation of the workgroup is, which is the same for all of them, and the
//! loop as it was for the rest. Where all invocations make equally many rounds there is no rest. Where a step takes the first invocation
//! past the last one, each has one round left at most, which comes before the loop as an `if`: its places are side by side too. The loop
//! is then only gone through where numbers are so large that they might wrap.
//!
//! For each invocation by itself nothing changes, whatever the others do: `i` is the count plus the invocation's place, in both loops.

use hashbrown::HashMap;

use super::steps_alone;
use super::values::Values;
use crate::ir::Builtin;
use crate::kernel::walk::{defined_in, each_inst, each_loop_mut, exits, has_loop};
use crate::kernel::{Binary, Block, Counter, End, Inst, Kernel, Loop, Memory, Op, Scalar, Value};

/// Steps that a loop may have: it comes twice.
const MOST_STEPS: usize = 512;
/// Steps of a loop whose last round comes alone: it comes three times.
const MOST_STEPS_OF_LAST: usize = 64;
/// How far apart the first and the last invocation may be.
const MOST_APART: u64 = 1 << 20;
/// Operations that are looked through.
const DEPTH: u32 = 8;

/// Makes two loops of those that gain by it.
pub(super) fn run(kernel: &mut Kernel) {
    if !has_loop(&kernel.body) {
        return;
    }
    let mut together = Together {
        size: kernel.workgroup_size,
        written: kernel.buffers.iter().map(|buffer| buffer.written || buffer.atomic).collect(),
        values: Values::with_definitions(kernel),
    };
    each_loop_mut(&mut kernel.body, &mut |inner, before| together.change(inner, before));
    together.values.give_back(kernel);
}

struct Together {
    size: [u32; 3],
    /// Buffers that the kernel changes.
    written: Vec<bool>,
    values: Values,
}

/// A number that is `rest + place · scale`, with a rest that is the same for the workgroup.
struct Placed {
    place: Builtin,
    scale: u32,
    /// Nothing where it is zero.
    rest: Option<Value>,
}

/// The test at the head of a loop.
struct Head {
    /// Its place among the steps.
    at: usize,
    /// Which of the carried numbers has to be less than the limit.
    which: usize,
    limit: Value,
    /// Where it does not hold, the loop gives what it carries, and nothing that was made before the test.
    leaves_as_carried: bool,
}

/// What the loop of all invocations needs.
struct Start {
    ty: Scalar,
    /// Where the first invocation of the workgroup starts.
    first: Value,
    /// How far behind it this invocation is.
    behind: Value,
    /// How far behind it the last one is.
    apart: u32,
}

impl Together {
    fn change(&mut self, inner: &mut Loop, before: &mut Vec<Inst>) {
        if may_come_twice(&inner.body) {
            match inner.counter {
                Some(counter) => self.counted(inner, counter, before),
                None => self.tested(inner, before),
            }
        }
    }

    /// It is the same for all invocations of a workgroup, as far as can be seen. Nothing but speed depends on it.
    fn is_shared(&self, value: Value, depth: u32) -> bool {
        let stays = |memory: Memory| matches!(memory, Memory::Buffer(index) if !self.written[index as usize]);
        is_shared(&self.values, &stays, &|_| false, value, depth)
    }

    /// A number as something shared and a multiple of a place in the workgroup.
    fn placed(&mut self, value: Value, depth: u32, insts: &mut Vec<Inst>) -> Option<Placed> {
        if depth == 0 {
            return None;
        }
        let ty = self.values.scalar(value);
        if !matches!(ty, Scalar::U32 | Scalar::I32) {
            return None;
        }
        match self.values.def(value)?.clone() {
            Op::Builtin(place @ (Builtin::LocalId(_) | Builtin::LocalIndex)) => {
                Some(Placed { place, scale: 1, rest: None })
            }
            Op::Builtin(Builtin::GlobalId(axis)) => {
                let group = self.values.define(ty, Op::Builtin(Builtin::WorkgroupId(axis)), insts);
                let size = self.values.constant(ty, self.size[usize::from(axis.min(2))], insts);
                let rest = self.values.binary(Binary::Mul, group, size, insts);
                Some(Placed { place: Builtin::LocalId(axis), scale: 1, rest: Some(rest) })
            }
            Op::Binary(Binary::Add, a, b) => {
                let (a, b) = if self.is_shared(b, DEPTH) { (a, b) } else { (b, a) };
                if !self.is_shared(b, DEPTH) {
                    return None;
                }
                let placed = self.placed(a, depth - 1, insts)?;
                let rest = match placed.rest {
                    Some(rest) => self.values.binary(Binary::Add, rest, b, insts),
                    None => b,
                };
                Some(Placed { rest: Some(rest), ..placed })
            }
            Op::Binary(op @ (Binary::Mul | Binary::Shl), a, b) => {
                let by = u32::try_from(self.values.number(b)?).ok()?;
                let by = if op == Binary::Shl { 1u32.checked_shl(by)? } else { by };
                let placed = self.placed(a, depth - 1, insts)?;
                let rest = placed.rest.map(|rest| self.values.binary(op, rest, b, insts));
                Some(Placed { scale: placed.scale.checked_mul(by)?, rest, ..placed })
            }
            Op::Cast(a) | Op::BitCast(a) if matches!(self.values.scalar(a), Scalar::U32 | Scalar::I32) => {
                let placed = self.placed(a, depth - 1, insts)?;
                let rest = placed.rest.map(|rest| self.values.define(ty, Op::Cast(rest), insts));
                Some(Placed { rest, ..placed })
            }
            _ => None,
        }
    }

    /// Where invocations start that start side by side.
    fn start(&mut self, from: Value, insts: &mut Vec<Inst>) -> Option<Start> {
        let ty = self.values.scalar(from);
        let Placed { place, scale, rest } = self.placed(from, DEPTH, insts)?;
        let places = match place {
            Builtin::LocalId(axis) => self.size[usize::from(axis.min(2))],
            _ => self.size.iter().product(),
        };
        let apart = u64::from(scale) * u64::from(places - 1);
        if apart == 0 || apart > MOST_APART {
            return None;
        }
        let mut behind = self.values.define(Scalar::U32, Op::Builtin(place), insts);
        if scale != 1 {
            let scale = self.values.constant(Scalar::U32, scale, insts);
            behind = self.values.binary(Binary::Mul, behind, scale, insts);
        }
        if ty != Scalar::U32 {
            behind = self.values.define(ty, Op::Cast(behind), insts);
        }
        let first = match rest {
            Some(rest) => rest,
            None => self.values.constant(ty, 0, insts),
        };
        Some(Start { ty, first, behind, apart: apart as u32 })
    }

    /// `limit` less `apart`, and the least number where that would be less.
    fn less(&mut self, limit: Value, apart: u32, insts: &mut Vec<Inst>) -> Value {
        let ty = self.values.scalar(limit);
        let least = if ty == Scalar::I32 { i128::from(i32::MIN) } else { 0 };
        let lowest = self.values.constant(ty, least + i128::from(apart), insts);
        let apart = self.values.constant(ty, apart, insts);
        let raised = self.values.binary(Binary::Max, limit, lowest, insts);
        self.values.binary(Binary::Sub, raised, apart, insts)
    }

    /// A limit of a counter from which no step wraps, of a number that is not known.
    fn is_bounded(&self, to: Value, step: u32) -> bool {
        let Some(&Op::Binary(Binary::Min, _, most)) = self.values.def(to) else { return false };
        let greatest = if self.values.scalar(to) == Scalar::U32 { 1 << 31 } else { (1 << 31) - i128::from(step) };
        self.values.number(most).is_some_and(|most| most <= greatest)
    }

    /// Puts the loop of all invocations before a counted one, or makes it that.
    fn counted(&mut self, inner: &mut Loop, counter: Counter, insts: &mut Vec<Inst>) {
        if self.is_shared(counter.from, DEPTH) || !self.is_shared(counter.to, DEPTH) || counter.step > 1 << 24 {
            return;
        }
        let mut before = Vec::new();
        let Some(start) = self.start(counter.from, &mut before) else { return };
        let Start { ty, first, behind, apart } = start;
        let bounded = self.values.number(counter.to).is_some() || self.is_bounded(counter.to, counter.step);
        let to = match self.values.number(counter.to) {
            Some(to) => {
                let apart = i128::from(apart);
                // No count passes the greatest number.
                if to <= apart || to > 1 << 30 || (ty == Scalar::I32 && self.values.number(first) != Some(0)) {
                    return;
                }
                let rounds = |behind: i128| (to - behind + i128::from(counter.step) - 1) / i128::from(counter.step);
                if self.values.number(first) == Some(0) && rounds(0) == rounds(apart) {
                    // The last invocation makes as many rounds as the first.
                    let count = self.values.fresh(ty);
                    let here = Inst::Let(counter.value, Op::Binary(Binary::Add, count, behind));
                    inner.body.insts.insert(0, here);
                    inner.counter = Some(Counter { value: count, from: first, ..counter });
                    return insts.append(&mut before);
                }
                self.values.constant(ty, (to - apart) as u32, &mut before)
            }
            None if bounded && (ty == Scalar::U32 || self.values.number(first) == Some(0)) => {
                self.less(counter.to, apart, &mut before)
            }
            None if ty == Scalar::I32 => return,
            None => {
                // No count passes the greatest number here either.
                let most = self.values.constant(ty, 1u32 << 31, &mut before);
                let zero = self.values.constant(ty, 0, &mut before);
                let small = self.values.binary(Binary::Lt, counter.to, most, &mut before);
                let limit = self.values.define(ty, Op::Select(small, counter.to, zero), &mut before);
                self.less(limit, apart, &mut before)
            }
        };
        let (mut continues, mut breaks) = (Vec::new(), Vec::new());
        exits(&inner.body, &mut continues, &mut breaks);
        if continues.len() != 1 || !breaks.is_empty() {
            return;
        }
        let count = self.values.fresh(ty);
        let params = self.values.all_like(&inner.params);
        let results = self.values.all_like(&inner.params);
        // Where the count is when the loop ends is carried.
        let (at, reached) = (self.values.fresh(ty), self.values.fresh(ty));
        let mut body = Vec::new();
        let here = self.values.binary(Binary::Add, count, behind, &mut body);
        let mut names: HashMap<Value, Value> = inner.params.iter().copied().zip(params.iter().copied()).collect();
        names.insert(counter.value, here);
        let copy = self.values.copy_block(&inner.body, &mut names);
        body.extend(copy.insts);
        let End::Continue(mut carried) = copy.end else { return };
        let step = self.values.constant(ty, counter.step, &mut body);
        carried.push(self.values.binary(Binary::Add, count, step, &mut body));
        insts.append(&mut before);
        let with = |values: &[Value], last: Value| [values, &[last]].concat();
        let together = Inst::Loop(Box::new(Loop {
            counter: Some(Counter { value: count, from: first, to, step: counter.step }),
            params: with(&params, at),
            init: with(&inner.init, first),
            body: Block { insts: body, end: End::Continue(carried) },
            results: with(&results, reached),
            finite: true,
            look: inner.look,
            rare: inner.rare,
        }));
        let original = inner.clone();
        inner.init = results;
        if apart >= counter.step || !is_short(&inner.body) {
            insts.push(together);
            let from = self.values.binary(Binary::Add, reached, behind, insts);
            inner.counter = Some(Counter { from, ..counter });
            return;
        }
        let mut parted = vec![together];
        let from = self.values.binary(Binary::Add, reached, behind, &mut parted);
        let mut names = named(inner);
        names.insert(counter.value, from);
        let round = self.values.copy_block(&inner.body, &mut names);
        if bounded && self.values.number(first) == Some(0) {
            // Nothing wraps.
            let holds = self.values.binary(Binary::Lt, from, counter.to, &mut parted);
            self.last_round(inner, holds, round, &mut parted);
            insts.append(&mut parted);
        } else {
            let holds = self.is_before([reached, behind, counter.to], apart, &mut parted);
            self.last_round(inner, holds, round, &mut parted);
            let whole = self.are_small(first, Some(counter.to).filter(|_| !bounded), insts);
            self.only_where(whole, parted, &original, inner, insts);
        }
        self.no_rounds(inner, insts);
    }

    /// Whoever is so far `behind` the place that was reached, `apart` at most, comes before a limit.
    fn is_before(&mut self, [reached, behind, limit]: [Value; 3], apart: u32, insts: &mut Vec<Inst>) -> Value {
        let end = self.values.binary(Binary::Max, limit, reached, insts);
        let left = self.values.binary(Binary::Sub, end, reached, insts);
        // It is known to be a small number then, which is compared by fewer instructions.
        let most = self.values.constant(self.values.scalar(left), apart + 1, insts);
        let left = self.values.binary(Binary::Min, left, most, insts);
        self.values.binary(Binary::Lt, behind, left, insts)
    }

    /// Puts a round that some invocations make before a loop.
    fn last_round(&mut self, inner: &mut Loop, holds: Value, mut round: Block, insts: &mut Vec<Inst>) {
        if let End::Continue(values) = &mut round.end {
            round.end = End::Yield(std::mem::take(values));
        }
        let otherwise = Block { insts: Vec::new(), end: End::Yield(inner.init.clone()) };
        let results = self.values.all_like(&inner.params);
        inner.init.clone_from(&results);
        insts.push(Inst::If { cond: holds, then: Box::new(round), otherwise: Box::new(otherwise), results });
    }

    /// A number is so small that no step from it wraps, and so is another.
    fn are_small(&mut self, number: Value, other: Option<Value>, insts: &mut Vec<Inst>) -> Value {
        let small = self.is_small(number, insts);
        let Some(other) = other else { return small };
        let also = self.is_small(other, insts);
        self.values.binary(Binary::And, small, also, insts)
    }

    fn is_small(&mut self, number: Value, insts: &mut Vec<Inst>) -> Value {
        let ty = self.values.scalar(number);
        if ty == Scalar::U32 {
            let most = self.values.constant(ty, 1u32 << 31, insts);
            return self.values.binary(Binary::Lt, number, most, insts);
        }
        let [least, most] = [-(1 << 30), 1 << 30].map(|end: i128| self.values.constant(ty, end, insts));
        let above = self.values.binary(Binary::Ge, number, least, insts);
        let below = self.values.binary(Binary::Lt, number, most, insts);
        self.values.binary(Binary::And, above, below, insts)
    }

    /// Does what comes instead of a loop where a condition holds, which it nearly always does, and else the loop as it was.
    fn only_where(&mut self, cond: Value, parted: Vec<Inst>, original: &Loop, inner: &mut Loop, insts: &mut Vec<Inst>) {
        let copy = Loop { rare: true, ..self.values.copy_loop(original, &mut HashMap::new()) };
        let otherwise = End::Yield(copy.results.clone());
        let results = self.values.all_like(&inner.params);
        let given = std::mem::replace(&mut inner.init, results.clone());
        insts.push(Inst::If {
            cond,
            then: Box::new(Block { insts: parted, end: End::Yield(given) }),
            otherwise: Box::new(Block { insts: vec![Inst::Loop(Box::new(copy))], end: otherwise }),
            results,
        });
    }

    /// All rounds of a loop are made before it, which then gives what it begins with.
    fn no_rounds(&mut self, inner: &mut Loop, insts: &mut Vec<Inst>) {
        let (value, ty) = match inner.counter {
            Some(counter) => (counter.value, self.values.scalar(counter.value)),
            None => (self.values.fresh(Scalar::U32), Scalar::U32),
        };
        let none = self.values.constant(ty, 0, insts);
        inner.counter = Some(Counter { value, from: none, to: none, step: 1 });
    }

    /// Puts the loop of all invocations before one that tests a carried number against a limit at its head.
    fn tested(&mut self, inner: &mut Loop, insts: &mut Vec<Inst>) {
        let Some(Head { at: head, which, limit, leaves_as_carried }) = self.head(inner) else { return };
        let End::Continue(next) = &inner.body.end else { return };
        let Some(&Op::Binary(Binary::Add, a, b)) = self.values.def(next[which]) else { return };
        let step = match (a == inner.params[which], b == inner.params[which]) {
            (true, false) => b,
            (false, true) => a,
            _ => return,
        };
        let init = inner.init[which];
        if self.is_shared(init, DEPTH) || !self.is_shared(limit, DEPTH) || !self.is_shared(step, DEPTH) {
            return;
        }
        let inside = defined_in(inner);
        let is_word = matches!(self.values.scalar(init), Scalar::U32 | Scalar::I32);
        if [limit, step].iter().any(|value| inside.contains(value)) || !is_word {
            return;
        }
        let mut before = Vec::new();
        let Some(Start { first, behind, apart, .. }) = self.start(init, &mut before) else { return };
        let whole = limit;
        let limit = self.less(limit, apart, &mut before);
        let params = self.values.all_like(&inner.params);
        let results = self.values.all_like(&inner.params);
        let count = params[which];
        let mut names: HashMap<Value, Value> = inner.params.iter().copied().zip(params.iter().copied()).collect();
        let mut body = Vec::new();
        let goes_on = self.values.binary(Binary::Lt, count, limit, &mut body);
        body.push(Inst::If {
            cond: goes_on,
            then: Box::new(Block { insts: Vec::new(), end: End::Yield(Vec::new()) }),
            otherwise: Box::new(Block { insts: Vec::new(), end: End::Break(params.clone()) }),
            results: Vec::new(),
        });
        let here = self.values.binary(Binary::Add, count, behind, &mut body);
        names.insert(inner.params[which], here);
        // All but the test, which holds.
        let mut rest = inner.body.clone();
        rest.insts.remove(head);
        let copy = self.values.copy_block(&rest, &mut names);
        body.extend(copy.insts);
        let End::Continue(mut carried) = copy.end else { return };
        carried[which] = self.values.binary(Binary::Add, count, step, &mut body);
        insts.append(&mut before);
        let together = Inst::Loop(Box::new(Loop {
            counter: None,
            params,
            init: inner.init.iter().enumerate().map(|(at, &init)| if at == which { first } else { init }).collect(),
            body: Block { insts: body, end: End::Continue(carried) },
            results: results.clone(),
            finite: inner.finite,
            look: inner.look,
            rare: inner.rare,
        }));
        let original = inner.clone();
        let reached = results[which];
        inner.init = results;
        let ends = self.values.number(step).is_some_and(|step| i128::from(apart) < step && step <= 1 << 24);
        // A loop of no rounds gives what it carries.
        if !ends || !leaves_as_carried || !is_short(&inner.body) {
            insts.push(together);
            inner.init[which] = self.values.binary(Binary::Add, reached, behind, insts);
            return;
        }
        let mut parted = vec![together];
        inner.init[which] = self.values.binary(Binary::Add, reached, behind, &mut parted);
        let round = self.values.copy_block(&rest, &mut named(inner));
        let holds = self.is_before([reached, behind, whole], apart, &mut parted);
        self.last_round(inner, holds, round, &mut parted);
        let small = self.are_small(first, Some(whole), insts);
        self.only_where(small, parted, &original, inner, insts);
        self.no_rounds(inner, insts);
    }

    /// The step at the head of a loop that leaves it unless a carried number is less than a limit.
    fn head(&self, inner: &Loop) -> Option<Head> {
        let (mut continues, mut breaks) = (Vec::new(), Vec::new());
        exits(&inner.body, &mut continues, &mut breaks);
        if continues.len() != 1 || breaks.len() != 1 {
            return None;
        }
        let head = inner.body.insts.iter().position(|inst| !matches!(inst, Inst::Let(_, op) if op.is_plain()))?;
        let Inst::If { cond, then, otherwise, results } = &inner.body.insts[head] else { return None };
        let goes_on = |block: &Block| block.insts.is_empty() && block.end == End::Yield(Vec::new());
        let leaves = |block: &Block| block.insts.is_empty() && matches!(block.end, End::Break(_));
        let holds = match (goes_on(then) && leaves(otherwise), leaves(then) && goes_on(otherwise)) {
            (true, _) => true,
            (_, true) => false,
            _ => return None,
        };
        if !results.is_empty() {
            return None;
        }
        let (number, limit) = match (self.values.def(*cond), holds) {
            (Some(Op::Binary(Binary::Lt, a, b)), true) | (Some(Op::Binary(Binary::Ge, a, b)), false) => (*a, *b),
            (Some(Op::Binary(Binary::Gt, a, b)), true) | (Some(Op::Binary(Binary::Le, a, b)), false) => (*b, *a),
            _ => return None,
        };
        let which = inner.params.iter().position(|param| *param == number)?;
        Some(Head { at: head, which, limit, leaves_as_carried: breaks[0] == inner.params })
    }
}

/// A value is the same for all invocations of a workgroup, of memories that nobody changes and of what is said to be shared.
pub(super) fn is_shared(
    values: &Values,
    stays: &dyn Fn(Memory) -> bool,
    said: &dyn Fn(Value) -> bool,
    value: Value,
    depth: u32,
) -> bool {
    let shared = |value: Value| depth > 0 && is_shared(values, stays, said, value, depth - 1);
    match values.def(value) {
        _ if said(value) => true,
        Some(Op::Const(_) | Op::Length(_)) => true,
        Some(Op::Builtin(builtin)) => {
            matches!(builtin, Builtin::WorkgroupId(_) | Builtin::NumWorkgroups(_) | Builtin::WorkgroupSize(_))
        }
        Some(Op::Unary(_, a) | Op::Cast(a) | Op::BitCast(a) | Op::Extract(a, _)) => shared(*a),
        Some(Op::Binary(_, a, b)) => shared(*a) && shared(*b),
        Some(Op::Load { address, guard, .. }) => {
            stays(address.memory) && address.terms.iter().all(|(index, _)| shared(*index)) && guard.is_none_or(shared)
        }
        _ => false,
    }
}

/// The body is not long, nobody waits in it for others, and all come to its end.
fn may_come_twice(body: &Block) -> bool {
    let mut returns = false;
    each_inst(body, &mut |inst| {
        if let Inst::If { then, otherwise, .. } = inst {
            returns |= then.end == End::Return || otherwise.end == End::Return;
        }
    });
    let short = steps_alone(body).is_some_and(|steps| steps <= MOST_STEPS);
    short && !returns && matches!(body.end, End::Continue(_))
}

fn is_short(body: &Block) -> bool {
    steps_alone(body).is_some_and(|steps| steps <= MOST_STEPS_OF_LAST)
}

/// What a loop carries, in its first round.
fn named(inner: &Loop) -> HashMap<Value, Value> {
    inner.params.iter().copied().zip(inner.init.iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use crate::ir::{BufferDecl, Builtin, DataType, Expr, Node, Program};
    use crate::kernel::{Inst, Interpret, Kernel, Options, Passes, interpret, lower, verify, walk};

    const SIZE: [u32; 3] = [4, 2, 1];
    const GROUPS: u32 = 3;

    fn builtin(builtin: Builtin) -> Expr {
        Expr::Builtin(builtin)
    }

    /// Every invocation sums what it meets on its way from `from` to `to`; the order shows.
    fn program(from: Expr, to: Expr, step: Option<u32>) -> Program {
        program_of(DataType::U32, from, to, step)
    }

    /// The same, with a number of some type where the loop does not count.
    fn program_of(ty: DataType, from: Expr, to: Expr, step: Option<u32>) -> Program {
        let i = || Expr::var("i").cast(DataType::U32);
        let place = (i() + Expr::u32(7)) & Expr::u32(63);
        let sum = Expr::var("sum") * Expr::u32(3) + Expr::load("data", place) + i();
        let mut body = vec![Node::assign("sum", sum)];
        let rounds = match step {
            Some(step) => vec![Node::For { var: "i".into(), from, to, step, body }],
            None => {
                let all = (builtin(Builtin::NumWorkgroups(0)) * Expr::u32(SIZE[0])).cast(ty.clone());
                let (from, to) = (from.cast(ty.clone()), to.cast(ty.clone()));
                body.insert(0, Node::If { cond: Expr::var("i").lt(to), then: vec![], otherwise: vec![Node::Break] });
                let next = Node::assign("i", Expr::var("i") + all);
                vec![Node::var("i", ty, from), Node::Loop { body, continuing: vec![next], break_if: None }]
            }
        };
        let row = builtin(Builtin::GlobalId(1)) * Expr::u32(SIZE[0] * GROUPS) + builtin(Builtin::GlobalId(0));
        let mut nodes = vec![Node::var("sum", DataType::U32, Expr::u32(1))];
        nodes.extend(rounds);
        nodes.push(Node::store("out", row, Expr::var("sum")));
        Program::wrapped(
            vec![
                BufferDecl::read("bounds", 0, DataType::U32),
                BufferDecl::read("data", 1, DataType::U32),
                BufferDecl::output("out", 2, DataType::U32).with_count(SIZE[0] * SIZE[1] * GROUPS),
            ],
            SIZE,
            nodes,
        )
    }

    fn kernel(program: &Program, strides_together: bool) -> Kernel {
        let options = Options { passes: Passes::all().without(Passes::UNROLL), strides_together, ..Options::default() };
        let kernel = lower(&program.validate().expect("valid"), &options).expect("lowers");
        verify(&kernel).expect("well made");
        kernel
    }

    fn run(kernel: &Kernel, bounds: [u32; 2]) -> Vec<u8> {
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let data: Vec<u32> = (0..64).map(|i| i * i * 31 + 5).collect();
        let mut buffers = [words(&bounds), words(&data), vec![0; (SIZE[0] * SIZE[1] * GROUPS * 4) as usize]];
        let how = Interpret { grid: [GROUPS, 1, 1], subgroup_size: 32, budget: 1 << 20, noise: None };
        interpret(kernel, &mut buffers, &how).expect("runs");
        buffers[2].clone()
    }

    fn loops(kernel: &Kernel) -> usize {
        let mut count = 0;
        walk::each_inst(&kernel.body, &mut |inst| count += usize::from(matches!(inst, Inst::Loop(_))));
        count
    }

    fn starts() -> Vec<Expr> {
        let bound = || Expr::load("bounds", Expr::u32(0));
        vec![
            builtin(Builtin::LocalId(0)),
            builtin(Builtin::GlobalId(0)),
            builtin(Builtin::LocalId(1)),
            builtin(Builtin::LocalIndex),
            builtin(Builtin::LocalId(0)) + bound(),
            bound() + builtin(Builtin::GlobalId(0)) * Expr::u32(3),
        ]
    }

    #[test]
    fn counted_loops_give_what_they_gave() {
        let to = || Expr::load("bounds", Expr::u32(1));
        for start in starts() {
            for step in [1, 4, 5, 8] {
                let program = program(start.clone(), to(), step.into());
                let (apart, together) = (kernel(&program, false), kernel(&program, true));
                assert_eq!((loops(&apart), loops(&together)), (1, 2), "{start:?}");
                let ends = [0, 1, 3, 4, 7, 8, 9, 31, 40];
                for bounds in ends.into_iter().flat_map(|end| [[0, end], [2, end], [u32::MAX - 3, end]]) {
                    assert_eq!(run(&apart, bounds), run(&together, bounds), "{start:?} {bounds:?} by {step}");
                }
                for bounds in [[u32::MAX - 60, u32::MAX], [u32::MAX - 40, u32::MAX - 9], [0x7fff_fff0, 0x8000_0010]] {
                    if !matches!(start, Expr::Builtin(_)) {
                        assert_eq!(run(&apart, bounds), run(&together, bounds), "{start:?} {bounds:?} by {step}");
                    }
                }
            }
        }
    }

    #[test]
    fn tested_loops_give_what_they_gave() {
        let to = || Expr::load("bounds", Expr::u32(1));
        for (start, ty) in
            starts().into_iter().flat_map(|start| [(start.clone(), DataType::U32), (start, DataType::I32)])
        {
            let program = program_of(ty.clone(), start.clone(), to(), None);
            let (apart, together) = (kernel(&program, false), kernel(&program, true));
            assert_eq!((loops(&apart), loops(&together)), (1, 2), "{start:?}");
            for bounds in [[0, 0], [0, 3], [1, 12], [0, 13], [5, 64], [7, 100], [u32::MAX - 9, 30]] {
                assert_eq!(run(&apart, bounds), run(&together, bounds), "{start:?} {bounds:?}");
            }
            // From below nothing to there and beyond, near the ends of all numbers too.
            for (from, to) in [
                (-60, -3),
                (-30, 1),
                (-30, 25),
                (-9, -8),
                (-2, i32::MIN + 2),
                (i32::MIN, i32::MIN + 40),
                (i32::MIN, i32::MIN + 1),
            ] {
                let bounds = [from, to].map(i32::cast_unsigned);
                if ty == DataType::I32 {
                    assert_eq!(run(&apart, bounds), run(&together, bounds), "{start:?} {bounds:?}");
                }
            }
        }
    }

    /// What is made in a round before the test is made once more than the rest, and the loop may give that.
    #[test]
    fn what_a_round_makes_before_its_test_is_not_lost() {
        let start = builtin(Builtin::LocalId(0));
        for (ty, step, before) in [DataType::U32, DataType::I32]
            .into_iter()
            .flat_map(|ty| [4, 7, 32].map(|step| (ty.clone(), step)))
            .flat_map(|(ty, step)| [false, true].map(|before| (ty.clone(), step, before)))
        {
            let (from, to) = (start.clone() + Expr::load("bounds", Expr::u32(0)), Expr::load("bounds", Expr::u32(1)));
            let test =
                Node::If { cond: Expr::var("i").lt(to.cast(ty.clone())), then: vec![], otherwise: vec![Node::Break] };
            let changes = Node::assign("sum", Expr::var("sum") * Expr::u32(3) + Expr::u32(1));
            let place = Expr::var("i").cast(DataType::U32) & Expr::u32(63);
            let rest = Node::assign("sum", Expr::var("sum") ^ Expr::load("data", place));
            let next = Node::assign("i", Expr::var("i") + Expr::u32(step).cast(ty.clone()));
            let body = if before { vec![changes, test, rest] } else { vec![test, changes, rest] };
            let row = builtin(Builtin::GlobalId(1)) * Expr::u32(SIZE[0] * GROUPS) + builtin(Builtin::GlobalId(0));
            let nodes = vec![
                Node::var("sum", DataType::U32, Expr::u32(1)),
                Node::var("i", ty.clone(), from.cast(ty.clone())),
                Node::Loop { body, continuing: vec![next], break_if: None },
                Node::store("out", row, Expr::var("sum")),
            ];
            let buffers = program(start.clone(), Expr::u32(0), Some(1)).buffers().to_vec();
            let program = Program::wrapped(buffers, SIZE, nodes);
            let (apart, together) = (kernel(&program, false), kernel(&program, true));
            // Signed numbers that only count are left alone.
            assert_eq!(loops(&together) > loops(&apart), before || ty == DataType::U32, "{ty} by {step}, {before}");
            for (from, to) in [(0, 0), (0, 1), (0, 3), (0, 4), (1, 30), (2, 64), (5, 100), (-40, 3), (-9, -9), (3, -5)]
            {
                let bounds = [from, to].map(i32::cast_unsigned);
                if ty == DataType::I32 || from >= 0 && to >= 0 {
                    assert_eq!(run(&apart, bounds), run(&together, bounds), "{ty} by {step}, {before}: {from} to {to}");
                }
            }
            for bounds in [[u32::MAX - 60, u32::MAX - 40], [i32::MAX as u32 - 60, i32::MAX as u32 - 33]] {
                assert_eq!(run(&apart, bounds), run(&together, bounds), "{ty} by {step}, {before}: {bounds:?}");
            }
        }
    }

    #[test]
    fn rounds_that_all_or_some_make_need_one_loop() {
        for (ty, to, step, wanted) in [
            (DataType::U32, 64, 4, 1),
            (DataType::I32, 64, 4, 1),
            (DataType::U32, 63, 4, 1),
            (DataType::I32, 63, 4, 1),
            (DataType::U32, 66, 4, 1),
            (DataType::U32, 64, 3, 2),
        ] {
            let from = builtin(Builtin::LocalId(0)).cast(ty.clone());
            let to = Expr::u32(to).cast(ty.clone());
            let program = program(from, to, Some(step));
            let (apart, together) = (kernel(&program, false), kernel(&program, true));
            assert_eq!((loops(&apart), loops(&together)), (1, wanted), "{ty} by {step}\n{together}");
            assert_eq!(run(&apart, [0, 0]), run(&together, [0, 0]), "{ty} by {step}");
        }
    }

    #[test]
    fn a_loop_that_lanes_leave_early_stays_one() {
        let mut program = program(builtin(Builtin::LocalId(0)), Expr::load("bounds", Expr::u32(1)), Some(4));
        let again = Expr::var("i").gt(Expr::u32(9));
        let body = vec![Node::If { cond: again, then: vec![Node::Break], otherwise: vec![] }];
        let Node::For { body: old, .. } = &program.body()[1] else { panic!("a loop") };
        let rounds = Node::For {
            var: "i".into(),
            from: builtin(Builtin::LocalId(0)),
            to: Expr::load("bounds", Expr::u32(1)),
            step: 4,
            body: [body, old.clone()].concat(),
        };
        let nodes = [&program.body()[..1], &[rounds], &program.body()[2..]].concat();
        program = Program::wrapped(program.buffers().to_vec(), SIZE, nodes);
        let (apart, together) = (kernel(&program, false), kernel(&program, true));
        assert_eq!((loops(&apart), loops(&together)), (1, 1));
        assert_eq!(run(&apart, [0, 50]), run(&together, [0, 50]));
    }
}
