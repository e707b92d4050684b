//! Loops that move elements of a private array until a test fails, as in an insertion into a sorted list, run through all their rounds.
//!
//! `while (k > 0 && list[k - 1] > x) { list[k] = list[k - 1]; k--; } list[k] = x;` has places that are constants once it is written out,
//! but for the last one. So the loop gets a counter and a flag that says whether it is still under way: what a round stores is stored
//! while it is, and what comes after the loop is stored in the round that would have left it. Only arrays that then become values gain.

use smallvec::{SmallVec, smallvec};

use crate::ir::Literal;
use crate::kernel::passes::values::Values;
use crate::kernel::walk::{each_inst, each_use, each_use_mut};
use crate::kernel::{Binary, Block, Counter, End, Inst, Kernel, Loop, Memory, Op, Scalar, Unary, Value};

/// Gives such loops counters, and returns these.
pub(super) fn run(kernel: &mut Kernel) -> Vec<Value> {
    let values = Values::with_definitions(kernel);
    let mut found = false;
    each_inst(&kernel.body, &mut |inst| {
        found |= matches!(inst, Inst::Loop(inner) if Shape::of(inner, &values).is_some())
    });
    let mut changer = Changer { values, counters: Vec::new() };
    if found {
        changer.block(&mut kernel.body, false);
    }
    changer.values.give_back(kernel);
    changer.counters
}

/// A condition, and what it is while the loop goes on.
type Test = (Value, bool);

/// A loop that changes private arrays only and is left when a value has come down to a constant or a test fails, with what it carries.
struct Shape {
    /// The position of the value that goes down, by one each round.
    down: usize,
    /// The loop goes on while the value is more than this.
    beyond: Literal,
    /// Where it may be left, and the tests for that.
    exits: SmallVec<[(usize, SmallVec<[Test; 2]>); 2]>,
}

impl Shape {
    fn of(inner: &Loop, values: &Values) -> Option<Shape> {
        let End::Continue(next) = &inner.body.end else { return None };
        if inner.counter.is_some() || inner.rare {
            return None;
        }
        let mut exits: SmallVec<[(usize, SmallVec<[Test; 2]>); 2]> = SmallVec::new();
        let mut bound = None;
        for (position, inst) in inner.body.insts.iter().enumerate() {
            let Inst::If { cond, then, otherwise, results } = inst else {
                if !is_private(inst) {
                    return None;
                }
                continue;
            };
            let goes_on = |way: &Block| way.insts.is_empty() && matches!(way.end, End::Yield(_));
            let leaves =
                |way: &Block| way.insts.is_empty() && matches!(&way.end, End::Break(values) if *values == inner.params);
            if !results.is_empty() || !(goes_on(then) && leaves(otherwise) || leaves(then) && goes_on(otherwise)) {
                return None;
            }
            let mut tests = parts(*cond, goes_on(then), values);
            if bound.is_none() {
                let found =
                    tests.iter().enumerate().find_map(|(i, test)| Some((i, bound_of(*test, inner, next, values)?)));
                bound = found.map(|(i, bound)| {
                    tests.remove(i);
                    bound
                });
            }
            exits.push((position, tests));
        }
        let (down, beyond) = bound?;
        Some(Shape { down, beyond, exits })
    }
}

impl Shape {
    /// The first exit with a test of its own, where nothing is stored before it.
    fn first_test(&self, inner: &Loop) -> Option<usize> {
        let first = self.exits.iter().position(|(_, tests)| !tests.is_empty())?;
        let before = &inner.body.insts[..self.exits[first].0];
        (!before.iter().any(|inst| matches!(inst, Inst::Store { .. }))).then_some(first)
    }
}

/// The tests that a condition is made of.
fn parts(cond: Value, holds: bool, values: &Values) -> SmallVec<[Test; 2]> {
    let mut open: SmallVec<[Test; 4]> = smallvec![(cond, holds)];
    let mut parts = SmallVec::new();
    while let Some((cond, holds)) = open.pop() {
        match (values.def(cond), holds) {
            (Some(Op::Unary(Unary::Not, a)), _) => open.push((*a, !holds)),
            (Some(Op::Binary(Binary::And, a, b)), true) | (Some(Op::Binary(Binary::Or, a, b)), false) => {
                open.extend([(*b, holds), (*a, holds)]);
            }
            _ => parts.push((cond, holds)),
        }
    }
    parts
}

/// The position of the carried value that a test bounds and that each round takes one from, and what it is more than while the loop goes on.
fn bound_of((cond, holds): Test, inner: &Loop, next: &[Value], values: &Values) -> Option<(usize, Literal)> {
    let Some(&Op::Binary(op, a, b)) = values.def(cond) else { return None };
    let position = |value: Value| inner.params.iter().position(|param| *param == value);
    let (down, limit, op) = match (position(a), position(b)) {
        (Some(down), _) => (down, b, op),
        (_, Some(down)) => {
            let turned = match op {
                Binary::Lt => Binary::Gt,
                Binary::Gt => Binary::Lt,
                Binary::Le => Binary::Ge,
                Binary::Ge => Binary::Le,
                same => same,
            };
            (down, a, turned)
        }
        _ => return None,
    };
    let limit = values.literal(limit)?;
    let or_equal = match (op, holds) {
        (Binary::Gt, true) | (Binary::Le, false) => false,
        (Binary::Ge, true) | (Binary::Lt, false) => true,
        // Nothing is less.
        (Binary::Ne, true) | (Binary::Eq, false) if limit == Literal::U32(0) => false,
        _ => return None,
    };
    let beyond = match limit {
        Literal::U32(limit) => Literal::U32(limit.checked_sub(or_equal.into())?),
        Literal::I32(limit) => Literal::I32(limit.checked_sub(or_equal.into())?),
        _ => return None,
    };
    let is = |value: Value, number: i128| values.number(value) == Some(number);
    let high = inner.params[down];
    let by_one = match values.def(next[down]) {
        Some(&Op::Binary(Binary::Sub, a, b)) => a == high && is(b, 1),
        Some(&Op::Binary(Binary::Add, a, b)) => a == high && is(b, -1) || b == high && is(a, -1),
        _ => false,
    };
    by_one.then_some((down, beyond))
}

/// Changes nothing but private arrays, and may be done when it is not needed.
fn is_private(inst: &Inst) -> bool {
    match inst {
        Inst::Let(_, Op::Load { address, .. }) | Inst::Store { address, .. } => {
            matches!(address.memory, Memory::Local(_))
        }
        inst => is_free(inst),
    }
}

fn is_free(inst: &Inst) -> bool {
    use Op::{BitCast, Cast, Const, Fma, Select, Unary};
    matches!(inst, Inst::Let(_, Const(_) | Unary(..) | Op::Binary(..) | Fma(..) | Select(..) | Cast(_) | BitCast(_)))
}

struct Changer {
    values: Values,
    counters: Vec<Value>,
}

impl Changer {
    /// `chosen`: only some invocations come here.
    fn block(&mut self, block: &mut Block, chosen: bool) {
        let mut insts = std::mem::take(&mut block.insts).into_iter();
        while let Some(mut inst) = insts.next() {
            match &mut inst {
                Inst::If { then, otherwise, .. } => {
                    self.block(then, true);
                    self.block(otherwise, true);
                }
                Inst::Loop(inner) => {
                    let Some(shape) = Shape::of(inner, &self.values) else {
                        self.block(&mut inner.body, false);
                        block.insts.push(inst);
                        continue;
                    };
                    let tail = tail(&inner.results, &mut insts, &mut block.insts);
                    let from_the_end = self.values.literal(inner.init[shape.down]).is_some();
                    if let (false, true, Some(first)) = (chosen, from_the_end, shape.first_test(inner)) {
                        self.look_first(inner, &shape, first, &tail, &mut block.insts);
                    } else {
                        self.count(inner, &shape, &tail, inner.results.clone(), &mut block.insts);
                    }
                    // What else uses the tail's values finds them here.
                    block.insts.extend(tail.into_iter().filter(|inst| matches!(inst, Inst::Let(..))));
                    continue;
                }
                _ => {}
            }
            block.insts.push(inst);
        }
    }

    fn both(&mut self, a: Option<Value>, b: Value, out: &mut Vec<Inst>) -> Value {
        match a {
            Some(a) => self.values.binary(Binary::And, a, b, out),
            None => b,
        }
    }

    /// Steps with other values in place of some, under a condition.
    fn copy(
        &mut self,
        insts: &[Inst],
        mut known: Vec<(Value, Value)>,
        when: Option<Value>,
        out: &mut Vec<Inst>,
    ) -> Vec<(Value, Value)> {
        for inst in insts {
            let mut inst = inst.clone();
            each_use_mut(&mut inst, &mut |value| *value = renamed(&known, *value));
            match inst {
                Inst::Let(old, op) => {
                    let new = self.values.define(self.values.ty(old), op, out);
                    known.push((old, new));
                }
                Inst::Store { address, element, value, guard } => {
                    let guard = match when {
                        Some(when) => Some(self.both(guard, when, out)),
                        None => guard,
                    };
                    out.push(Inst::Store { address, element, value, guard });
                }
                inst => out.push(inst),
            }
        }
        known
    }

    /// A list that is always searched from the same end mostly stays as it is, and one look says so.
    fn look_first(&mut self, inner: &Loop, shape: &Shape, first: usize, tail: &[Inst], out: &mut Vec<Inst>) {
        let (position, tests) = &shape.exits[first];
        let looks = inner.body.insts[..*position].iter().filter(|inst| matches!(inst, Inst::Let(..))).cloned();
        let looks: Vec<Inst> = looks.collect();
        let known = self.copy(&looks, pairs(&inner.params, &inner.init), None, out);
        let mut moves = self.values.constant_at_start(Literal::Bool(true));
        for (test, holds) in tests {
            let holds_here = self.tested((renamed(&known, *test), *holds), out);
            moves = self.both(Some(moves), holds_here, out);
        }
        let results = self.values.all_like(&inner.results);
        let (mut then, mut otherwise) = (Vec::new(), Vec::new());
        self.count(inner, shape, tail, results.clone(), &mut then);
        self.copy(tail, pairs(&inner.results, &inner.init), None, &mut otherwise);
        out.push(Inst::If {
            cond: moves,
            then: Box::new(Block { insts: then, end: End::Yield(results) }),
            otherwise: Box::new(Block { insts: otherwise, end: End::Yield(inner.init.clone()) }),
            results: inner.results.clone(),
        });
    }

    fn tested(&mut self, (test, holds): Test, out: &mut Vec<Inst>) -> Value {
        if holds { test } else { self.values.define(Scalar::Bool, Op::Unary(Unary::Not, test), out) }
    }

    /// The loop with a counter and a flag. A value that goes down from `first` while it is more than `beyond` is `first + beyond` less a
    /// counter that goes up from `beyond` to `first`.
    fn count(&mut self, inner: &Loop, shape: &Shape, tail: &[Inst], mut results: Vec<Value>, out: &mut Vec<Inst>) {
        let (high, first) = (inner.params[shape.down], inner.init[shape.down]);
        let beyond = self.values.constant_at_start(shape.beyond);
        let (counter, flag) = (self.values.like(high), self.values.fresh(Scalar::Bool));
        let mut body = Vec::with_capacity(inner.body.insts.len() + 8);
        let sum = self.values.binary(Binary::Add, first, beyond, &mut body);
        let place = self.values.binary(Binary::Sub, sum, counter, &mut body);
        let mut given = inner.params.clone();
        given[shape.down] = place;
        let mut known = vec![(high, place)];
        let mut under_way = flag;
        for (position, inst) in inner.body.insts.iter().enumerate() {
            let Some((_, tests)) = shape.exits.iter().find(|(exit, _)| *exit == position) else {
                known = self.copy(std::slice::from_ref(inst), known, Some(under_way), &mut body);
                continue;
            };
            for (test, holds) in tests {
                let test = renamed(&known, *test);
                let holds_here = self.tested((test, *holds), &mut body);
                let fails = self.tested((test, !*holds), &mut body);
                let leaves = self.both(Some(under_way), fails, &mut body);
                self.copy(tail, pairs(&inner.results, &given), Some(leaves), &mut body);
                under_way = self.both(Some(under_way), holds_here, &mut body);
            }
        }
        let mut next = Vec::with_capacity(inner.params.len() + 1);
        if let End::Continue(values) = &inner.body.end {
            for (value, param) in values.iter().zip(&inner.params) {
                let op = Op::Select(under_way, renamed(&known, *value), *param);
                next.push(self.values.define(self.values.ty(*param), op, &mut body));
            }
        }
        next.push(under_way);
        let through = self.values.fresh(Scalar::Bool);
        let yes = self.values.constant_at_start(Literal::Bool(true));
        let mut given = results.clone();
        results.push(through);
        out.push(Inst::Loop(Box::new(Loop {
            counter: Some(Counter { value: counter, from: beyond, to: first, step: 1 }),
            params: inner.params.iter().copied().chain([flag]).collect(),
            init: inner.init.iter().copied().chain([yes]).collect(),
            body: Block { insts: body, end: End::Continue(next) },
            results,
            finite: true,
            look: None,
            rare: false,
        })));
        self.counters.push(counter);
        // After all rounds the value has come down to its bound, if it did not begin below.
        given[shape.down] = self.values.binary(Binary::Min, first, beyond, out);
        self.copy(tail, pairs(&inner.results, &given), Some(through), out);
    }
}

fn pairs(old: &[Value], new: &[Value]) -> Vec<(Value, Value)> {
    old.iter().copied().zip(new.iter().copied()).collect()
}

fn renamed(known: &[(Value, Value)], value: Value) -> Value {
    known.iter().find(|(old, _)| *old == value).map_or(value, |(_, new)| *new)
}

/// The steps after a loop that store to private arrays at places which the loop found, with what they need. What else is there before the
/// last of them goes in front of the loop.
fn tail(results: &[Value], insts: &mut std::vec::IntoIter<Inst>, out: &mut Vec<Inst>) -> Vec<Inst> {
    let mut found: SmallVec<[Value; 16]> = results.into();
    let mut length = 0;
    for (i, inst) in insts.as_slice().iter().enumerate() {
        let mut uses = false;
        each_use(inst, &mut |value| uses |= found.contains(&value));
        match inst {
            Inst::Let(value, _) if is_free(inst) => {
                if uses {
                    found.push(*value);
                }
            }
            Inst::Store { address, .. } if uses && matches!(address.memory, Memory::Local(_)) => length = i + 1,
            _ => break,
        }
    }
    let mut tail = Vec::new();
    for inst in insts.take(length) {
        match &inst {
            Inst::Let(value, _) if !found.contains(value) => out.push(inst),
            _ => tail.push(inst),
        }
    }
    tail
}
