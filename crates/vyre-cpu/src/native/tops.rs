//! The top of a stack is carried from round to round. What a round loads first, at a place that goes up and down, was mostly stored by the round
//! before: it comes from there in a register, where memory would keep the branch that asks for it waiting.

use vyre_foundation::kernel::{
    Address, Binary, Block, Element, End, Inst, Kernel, Loop, Memory, Op, Scalar, Value, ValueInfo, each_use_mut,
};

use super::hash::Map;
use super::visit;
use super::ways::{Bounds, Numbers};

/// Stacks beside the first whose tops are carried too: all of them need registers.
const MOST_OTHERS: usize = 3;

/// The kernel with the tops of its stacks carried; nothing where it has none.
pub(super) fn carried(kernel: &Kernel) -> Option<Kernel> {
    let mut carried = kernel.clone();
    let mut makers = Map::default();
    visit(&kernel.body, &mut |inst| {
        if let Inst::Let(value, op @ (Op::Const(_) | Op::BitCast(_) | Op::Binary(Binary::Add | Binary::Sub, ..))) = inst
        {
            makers.insert(*value, op.clone());
        }
    });
    let sizes = kernel.locals.iter().map(|memory| memory.size).collect();
    let mut stacks = Stacks { makers, sizes, values: &mut carried.values, any: false };
    stacks.block(&mut carried.body);
    let any = stacks.any;
    any.then_some(carried)
}

struct Stacks<'k> {
    /// Constants, and what places are made by.
    makers: Map<Value, Op>,
    /// Bytes of private arrays.
    sizes: Vec<u32>,
    values: &'k mut Vec<ValueInfo>,
    any: bool,
}

impl Numbers for Stacks<'_> {
    fn maker(&self, value: Value) -> Option<&Op> {
        self.makers.get(&value)
    }

    fn scalar(&self, value: Value) -> Scalar {
        self.values[value.index()].ty.scalar
    }

    fn size(&self, local: u32) -> u32 {
        self.sizes[local as usize]
    }
}

/// A word of a stack that a round loads before it may have changed it.
struct Top {
    /// Where in the body it is.
    at: usize,
    value: Value,
    address: Address,
    element: Element,
}

/// What a round begins with.
struct Head {
    /// The first of them is loaded in every round that is not left at once; so the places of the others, which are the same, are inside too.
    tops: Vec<Top>,
    /// What is before it and needs only what the loop carries and what was before the loop.
    before: Vec<(Value, Op)>,
    leaves: Option<Leaves>,
}

/// A round is left at once where this holds, or does not hold.
struct Leaves {
    /// Where in the body it is.
    at: usize,
    test: Value,
    holds: bool,
    results: Vec<Value>,
}

/// A way to the next round.
struct Way {
    /// What was stored where that one loads, where that is known.
    known: Vec<Option<Value>>,
    /// The next round is not left at once.
    stays: bool,
}

impl Stacks<'_> {
    fn block(&mut self, block: &mut Block) {
        for mut inst in std::mem::take(&mut block.insts) {
            let mut entry = None;
            match &mut inst {
                Inst::If { then, otherwise, .. } => {
                    self.block(then);
                    self.block(otherwise);
                }
                Inst::Loop(inner) => {
                    self.block(&mut inner.body);
                    if let Some(mut head) = head_of(inner) {
                        head.tops.extend(others_of(inner, &head.tops[0], &self.sizes));
                        let mut ways = Vec::new();
                        self.ways(inner, &inner.body, &mut Vec::new(), &head, &mut ways);
                        let is_known = |at: usize| ways.iter().any(|way: &Way| way.known[at].is_some());
                        if (0..head.tops.len()).all(is_known) {
                            entry = self.carry(inner, &head, &ways, &mut block.insts);
                            self.any = true;
                        }
                    }
                }
                _ => {}
            }
            block.insts.push(match entry {
                Some(entry) => entry.to(inst),
                None => inst,
            });
        }
    }

    /// The ways to the next round.
    fn ways<'b>(&self, inner: &Loop, block: &'b Block, before: &mut Vec<&'b Inst>, head: &Head, ways: &mut Vec<Way>) {
        let length = before.len();
        for inst in &block.insts {
            if let Inst::If { then, otherwise, .. } = inst {
                self.ways(inner, then, before, head, ways);
                self.ways(inner, otherwise, before, head, ways);
            }
            before.push(inst);
        }
        if let End::Continue(next) = &block.end {
            let known = head.tops.iter().map(|top| self.stored(inner, before, top, next)).collect();
            ways.push(Way { known, stays: self.stays(inner, before, head, next) });
        }
        before.truncate(length);
    }

    /// The next round is known not to be left at once, because this one was not and the number that decides is the same, or goes away from where
    /// it would be.
    fn stays(&self, inner: &Loop, before: &[&Inst], head: &Head, next: &[Value]) -> bool {
        let Some(Leaves { test, holds, .. }) = head.leaves else { return true };
        let made = head.before.iter().find(|(value, _)| *value == test);
        let Some(&(_, Op::Binary(op, a, b))) = made else { return false };
        let (op, param, limit) = match (self.number(a), self.number(b)) {
            (None, Some(limit)) => (Some(op), a, limit),
            (Some(limit), None) => (mirrored(op), b, limit),
            _ => return false,
        };
        let op = if holds { op } else { op.and_then(opposite) };
        let (Some(op), Some(position)) = (op, inner.params.iter().position(|&other| other == param)) else {
            return false;
        };
        let (from, moved) = self.place(next[position]);
        let is_word = matches!(self.scalar(param), Scalar::U32 | Scalar::I32);
        if from != param || !is_word || moved == 0 {
            return from == param && is_word;
        }
        let Some(bounds) = self.bounds(before, param) else { return false };
        let Bounds { least, most } = bounds.without(op, limit);
        let next = Bounds { least: least + moved, most: most + moved };
        let has_sign = self.scalar(param) == Scalar::I32;
        (has_sign || (limit >= 0 && next.least >= 0)) && next.excludes(op, limit)
    }

    /// What was stored last where the next round loads.
    fn stored(&self, inner: &Loop, before: &[&Inst], top: &Top, next: &[Value]) -> Option<Value> {
        let &[(index, stride)] = &top.address.terms[..] else { return None };
        let (param, plus) = self.place(index);
        let position = inner.params.iter().position(|&other| other == param)?;
        let (from, moved) = self.place(next[position]);
        let wanted = (plus + moved) * i64::from(stride) + i64::from(top.address.offset);
        for inst in before.iter().rev() {
            let Inst::Store { address, element, value, guard } = inst else {
                if changes(inst, top.address.memory) {
                    return None;
                }
                continue;
            };
            if address.memory != top.address.memory {
                continue;
            }
            let &[(index, other)] = &address.terms[..] else { return None };
            let place = Some(self.place(index)).filter(|(stored, _)| *stored == from && param == from)?;
            let own = self.values[value.index()].ty;
            if guard.is_some() || other != stride || own.width != 1 || *element != top.element {
                return None;
            }
            // Both are inside of the array, so that neither sum wraps alone.
            let apart = place.1 * i64::from(stride) + i64::from(address.offset) - wanted;
            if apart == 0 {
                return (own == self.values[top.value.index()].ty).then_some(*value);
            }
            if apart.abs() < 4 {
                return None;
            }
        }
        // Nothing was stored there, and the round was at the same place.
        (from == param && moved == 0).then_some(top.value)
    }

    fn fresh(&mut self, like: Value) -> Value {
        self.values.push(self.values[like.index()]);
        Value(self.values.len() as u32 - 1)
    }

    /// Carries the tops. A loop whose rounds may be left at once is entered only where the first is not, and each way to the next round asks for it
    /// where that is not known.
    fn carry(&mut self, inner: &mut Loop, head: &Head, ways: &[Way], before: &mut Vec<Inst>) -> Option<Entry> {
        for top in head.tops.iter().rev() {
            inner.body.insts.remove(top.at);
        }
        let (params, init) = (inner.params.clone(), inner.init.clone());
        let mut names = self.names(&params, &init, head, before);
        let entry = head.leaves.as_ref().map(|Leaves { at, test, holds, results }| {
            inner.body.insts.remove(*at);
            let name = |value: &Value| names.get(value).copied().unwrap_or(*value);
            let (left, given) = (results.iter().map(name).collect(), inner.results.clone());
            for result in &mut inner.results {
                *result = self.fresh(*result);
            }
            Entry { test: name(test), holds: *holds, left, given, stays: inner.results.clone(), loads: Vec::new() }
        });
        let mut loads = Vec::new();
        for top in &head.tops {
            let load = Op::Load { address: top.address.clone(), element: top.element, guard: None };
            inner.init.push(self.made_again(Inst::Let(top.value, load), &mut names, &mut loads));
        }
        let entry = match entry {
            Some(entry) => Some(Entry { loads, ..entry }),
            None => {
                before.append(&mut loads);
                None
            }
        };
        self.pass_on(&mut inner.body, &params, head, &mut ways.iter());
        for top in &head.tops {
            inner.params.push(top.value);
            let result = self.fresh(top.value);
            inner.results.push(result);
        }
        entry
    }

    /// Ends the rounds of a loop with the next tops.
    fn pass_on(&mut self, block: &mut Block, params: &[Value], head: &Head, ways: &mut std::slice::Iter<'_, Way>) {
        for inst in &mut block.insts {
            if let Inst::If { then, otherwise, .. } = inst {
                self.pass_on(then, params, head, ways);
                self.pass_on(otherwise, params, head, ways);
            }
        }
        let tops = || head.tops.iter().map(|top| top.value);
        match &mut block.end {
            End::Continue(next) => {
                let Some(Way { known, stays }) = ways.next() else { return };
                if *stays && known.iter().all(Option::is_some) {
                    next.extend(known.iter().flatten());
                    return;
                }
                let mut names = self.names(params, next, head, &mut block.insts);
                if let Some(Leaves { test, holds, results, .. }) = head.leaves.as_ref().filter(|_| !*stays) {
                    // The loop is left here, so that what comes behind may load.
                    let name = |value: &Value| names.get(value).copied().unwrap_or(*value);
                    let out = End::Break(results.iter().map(name).chain(tops()).collect());
                    let [out, on] = [out, End::Yield(Vec::new())].map(|end| Box::new(Block { insts: Vec::new(), end }));
                    let (then, otherwise) = if *holds { (out, on) } else { (on, out) };
                    block.insts.push(Inst::If { cond: name(test), then, otherwise, results: Vec::new() });
                }
                for (top, known) in head.tops.iter().zip(known) {
                    let load = Op::Load { address: top.address.clone(), element: top.element, guard: None };
                    next.push(match known {
                        Some(known) => *known,
                        None => self.made_again(Inst::Let(top.value, load), &mut names, &mut block.insts),
                    });
                }
            }
            End::Break(results) => results.extend(tops()),
            _ => {}
        }
    }

    /// What is before the tops of a round that begins with these values, made before the round.
    fn names(&mut self, params: &[Value], next: &[Value], head: &Head, insts: &mut Vec<Inst>) -> Map<Value, Value> {
        let mut names: Map<Value, Value> = params.iter().copied().zip(next.iter().copied()).collect();
        for (value, op) in &head.before {
            self.made_again(Inst::Let(*value, op.clone()), &mut names, insts);
        }
        names
    }

    /// A value that is made once more, of other values.
    fn made_again(&mut self, mut inst: Inst, names: &mut Map<Value, Value>, insts: &mut Vec<Inst>) -> Value {
        each_use_mut(&mut inst, &mut |used| *used = names.get(used).copied().unwrap_or(*used));
        let Inst::Let(value, op) = inst else { unreachable!("only values are made again") };
        let fresh = self.fresh(value);
        names.insert(value, fresh);
        insts.push(Inst::Let(fresh, op));
        fresh
    }
}

/// How a loop is entered whose first round may be left at once.
struct Entry {
    /// It is not entered where this holds, or does not hold.
    test: Value,
    holds: bool,
    /// What there is then, and where the loop was gone through.
    left: Vec<Value>,
    stays: Vec<Value>,
    /// What it is called afterwards.
    given: Vec<Value>,
    /// What the first round begins with.
    loads: Vec<Inst>,
}

impl Entry {
    fn to(self, inner: Inst) -> Inst {
        let Entry { test: cond, holds, left, stays, given: results, loads: mut insts } = self;
        insts.push(inner);
        let out = Box::new(Block { insts: Vec::new(), end: End::Yield(left) });
        let on = Box::new(Block { insts, end: End::Yield(stays) });
        let (then, otherwise) = if holds { (out, on) } else { (on, out) };
        Inst::If { cond, then, otherwise, results }
    }
}

/// The comparison with its operands the other way round.
fn mirrored(op: Binary) -> Option<Binary> {
    Some(match op {
        Binary::Lt => Binary::Gt,
        Binary::Le => Binary::Ge,
        Binary::Gt => Binary::Lt,
        Binary::Ge => Binary::Le,
        Binary::Eq | Binary::Ne => op,
        _ => return None,
    })
}

/// The comparison that holds where this does not.
fn opposite(op: Binary) -> Option<Binary> {
    Some(match op {
        Binary::Lt => Binary::Ge,
        Binary::Le => Binary::Gt,
        Binary::Gt => Binary::Le,
        Binary::Ge => Binary::Lt,
        Binary::Eq => Binary::Ne,
        Binary::Ne => Binary::Eq,
        _ => return None,
    })
}

/// What a loop loads first in each round, after it asked whether there is one.
fn head_of(inner: &Loop) -> Option<Head> {
    if inner.counter.is_some() {
        return None;
    }
    let (mut before, mut leaves) = (Vec::new(), None);
    for (at, inst) in inner.body.insts.iter().enumerate() {
        match inst {
            Inst::Let(value, Op::Load { address, element, guard: None })
                if matches!(address.memory, Memory::Local(_)) && element.bits() == 32 =>
            {
                let tops = vec![Top { at, value: *value, address: address.clone(), element: *element }];
                return Some(Head { tops, before, leaves });
            }
            Inst::Let(
                value,
                op @ (Op::Const(_) | Op::Unary(..) | Op::Binary(..) | Op::Cast(_) | Op::BitCast(_) | Op::Select(..)),
            ) => before.push((*value, op.clone())),
            Inst::If { cond, then, otherwise, results } if results.is_empty() && leaves.is_none() => {
                if !then.insts.is_empty() || !otherwise.insts.is_empty() {
                    return None;
                }
                let (holds, results) = match (&then.end, &otherwise.end) {
                    (End::Break(results), End::Yield(_)) => (true, results),
                    (End::Yield(_), End::Break(results)) => (false, results),
                    _ => return None,
                };
                leaves = Some(Leaves { at, test: *cond, holds, results: results.clone() });
            }
            _ => return None,
        }
    }
    None
}

/// Words of other stacks at the same place that a round loads before it may have changed them.
fn others_of(inner: &Loop, first: &Top, sizes: &[u32]) -> Vec<Top> {
    let size = |memory: Memory| match memory {
        Memory::Local(index) => sizes[index as usize],
        _ => 0,
    };
    let mut others: Vec<Top> = Vec::new();
    for (at, inst) in inner.body.insts.iter().enumerate().skip(first.at + 1) {
        let Inst::Let(value, Op::Load { address, element, guard: None }) = inst else { continue };
        let is_other = address.memory != first.address.memory && others.iter().all(|other| other.address != *address);
        let inside = address.terms == first.address.terms
            && address.offset == first.address.offset
            && size(address.memory) >= size(first.address.memory);
        let changed = inner.body.insts[..at].iter().any(|inst| changes(inst, address.memory));
        if is_other && inside && !changed && element.bits() == 32 && others.len() < MOST_OTHERS {
            others.push(Top { at, value: *value, address: address.clone(), element: *element });
        }
    }
    others
}

/// Something in it may change a memory.
fn changes(inst: &Inst, memory: Memory) -> bool {
    let mut any = false;
    let mut look = |inst: &Inst| {
        any |= matches!(inst, Inst::Store { address, .. } | Inst::Atomic { address, .. } if address.memory == memory);
    };
    look(inst);
    match inst {
        Inst::If { then, otherwise, .. } => [then, otherwise].into_iter().for_each(|block| visit(block, &mut look)),
        Inst::Loop(inner) => visit(&inner.body, &mut look),
        _ => {}
    }
    any
}
