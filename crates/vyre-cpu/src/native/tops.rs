//! The top of a stack is carried from round to round. What a round loads first, at a place that goes up and down, was mostly stored by the round
//! before: it comes from there in a register, where memory would keep the branch that asks for it waiting.

use vyre_foundation::kernel::{
    Address, Binary, Block, Element, End, Inst, Kernel, Loop, Memory, Op, Scalar, Unary, Value, ValueInfo, each_use_mut,
};

use super::hash::Map;
use super::visit;

/// Steps that a place is made by.
const DEEP: u32 = 8;

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
    let mut stacks = Stacks { makers, values: &mut carried.values, any: false };
    let sizes: Vec<u32> = kernel.locals.iter().map(|memory| memory.size).collect();
    stacks.block(&mut carried.body, &sizes);
    let any = stacks.any;
    any.then_some(carried)
}

struct Stacks<'k> {
    /// Constants, and what places are made by.
    makers: Map<Value, Op>,
    values: &'k mut Vec<ValueInfo>,
    any: bool,
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
    test: Value,
    holds: bool,
    results: Vec<Value>,
}

impl Stacks<'_> {
    fn block(&mut self, block: &mut Block, sizes: &[u32]) {
        for mut inst in std::mem::take(&mut block.insts) {
            match &mut inst {
                Inst::If { then, otherwise, .. } => {
                    self.block(then, sizes);
                    self.block(otherwise, sizes);
                }
                Inst::Loop(inner) => {
                    self.block(&mut inner.body, sizes);
                    if let Some(mut head) = head_of(inner) {
                        head.tops.extend(others_of(inner, &head.tops[0], sizes));
                        let mut ways = Vec::new();
                        self.ways(inner, &inner.body, &mut Vec::new(), &head.tops, &mut ways);
                        let is_known = |at: usize| ways.iter().any(|way: &Vec<Option<Value>>| way[at].is_some());
                        if (0..head.tops.len()).all(is_known) {
                            self.carry(inner, &head, &ways, &mut block.insts);
                            self.any = true;
                        }
                    }
                }
                _ => {}
            }
            block.insts.push(inst);
        }
    }

    /// For each way to the next round what was stored there, where that is known.
    fn ways<'b>(
        &self,
        inner: &Loop,
        block: &'b Block,
        before: &mut Vec<&'b Inst>,
        tops: &[Top],
        ways: &mut Vec<Vec<Option<Value>>>,
    ) {
        let length = before.len();
        for inst in &block.insts {
            if let Inst::If { then, otherwise, .. } = inst {
                self.ways(inner, then, before, tops, ways);
                self.ways(inner, otherwise, before, tops, ways);
            }
            before.push(inst);
        }
        if let End::Continue(next) = &block.end {
            ways.push(tops.iter().map(|top| self.stored(inner, before, top, next)).collect());
        }
        before.truncate(length);
    }

    /// What was stored last where the next round loads.
    fn stored(&self, inner: &Loop, before: &[&Inst], top: &Top, next: &[Value]) -> Option<Value> {
        let &[(index, stride)] = &top.address.terms[..] else { return None };
        let (param, plus) = self.place(index, DEEP)?;
        let position = inner.params.iter().position(|&other| other == param)?;
        let (from, moved) = self.place(next[position], DEEP)?;
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
            let place = self.place(index, DEEP).filter(|(stored, _)| *stored == from && param == from)?;
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

    /// A value as another one and a small number more.
    fn place(&self, value: Value, deep: u32) -> Option<(Value, i64)> {
        let number = |value: &Value| match self.makers.get(value) {
            Some(Op::Const(literal)) => u32::try_from(literal.bits())
                .ok()
                .map(|bits| i64::from(bits.cast_signed()))
                .filter(|n| n.abs() < 1 << 16),
            _ => None,
        };
        let word = |value: &Value| matches!(self.values[value.index()].ty.scalar, Scalar::U32 | Scalar::I32);
        let deep = deep.checked_sub(1)?;
        match self.makers.get(&value) {
            Some(Op::BitCast(a)) if word(a) => self.place(*a, deep),
            Some(Op::Binary(op, a, b)) if word(a) && number(b).is_some() => {
                let by = number(b)? * if *op == Binary::Add { 1 } else { -1 };
                self.place(*a, deep).map(|(from, plus)| (from, plus + by))
            }
            _ => Some((value, 0)),
        }
    }

    fn fresh(&mut self, like: Value) -> Value {
        self.values.push(self.values[like.index()]);
        Value(self.values.len() as u32 - 1)
    }

    fn carry(&mut self, inner: &mut Loop, head: &Head, ways: &[Vec<Option<Value>>], before: &mut Vec<Inst>) {
        for top in head.tops.iter().rev() {
            inner.body.insts.remove(top.at);
        }
        let (params, init) = (inner.params.clone(), inner.init.clone());
        let mut names = self.names(&params, &init, head, before);
        let guard = head.leaves.as_ref().map(|leaves| {
            let test = names[&leaves.test];
            match leaves.holds {
                true => {
                    self.made_again(Inst::Let(leaves.test, Op::Unary(Unary::Not, test)), &mut Map::default(), before)
                }
                false => test,
            }
        });
        for top in &head.tops {
            let load = Op::Load { address: top.address.clone(), element: top.element, guard };
            inner.init.push(self.made_again(Inst::Let(top.value, load), &mut names, before));
        }
        self.pass_on(&mut inner.body, &params, head, &mut ways.iter());
        for top in &head.tops {
            inner.params.push(top.value);
            let result = self.fresh(top.value);
            inner.results.push(result);
        }
    }

    /// Ends the rounds of a loop with the next tops.
    fn pass_on(
        &mut self,
        block: &mut Block,
        params: &[Value],
        head: &Head,
        ways: &mut std::slice::Iter<'_, Vec<Option<Value>>>,
    ) {
        for inst in &mut block.insts {
            if let Inst::If { then, otherwise, .. } = inst {
                self.pass_on(then, params, head, ways);
                self.pass_on(otherwise, params, head, ways);
            }
        }
        let tops = || head.tops.iter().map(|top| top.value);
        match &mut block.end {
            End::Continue(next) => {
                let Some(known) = ways.next() else { return };
                if known.iter().all(Option::is_some) {
                    next.extend(known.iter().flatten());
                    return;
                }
                let mut names = self.names(params, next, head, &mut block.insts);
                if let Some(Leaves { test, holds, results }) = &head.leaves {
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
                leaves = Some(Leaves { test: *cond, holds, results: results.clone() });
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
