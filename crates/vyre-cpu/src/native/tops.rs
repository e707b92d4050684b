//! The top of a stack is carried from round to round. What a round loads first, at a place that goes up and down, was mostly stored by the round
//! before: it comes from there in a register, where memory would keep the branch that asks for it waiting.

use vyre_foundation::kernel::{
    Address, Binary, Block, Element, End, Inst, Kernel, Loop, Memory, Op, Scalar, Unary, Value, ValueInfo, each_use_mut,
};

use super::hash::Map;
use super::visit;

/// Steps that a place is made by.
const DEEP: u32 = 8;

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
    stacks.block(&mut carried.body);
    let any = stacks.any;
    any.then_some(carried)
}

struct Stacks<'k> {
    /// Constants, and what places are made by.
    makers: Map<Value, Op>,
    values: &'k mut Vec<ValueInfo>,
    any: bool,
}

/// What a round loads first.
struct Top {
    /// Where in the body it is.
    at: usize,
    value: Value,
    address: Address,
    element: Element,
    /// What is before it and needs only what the loop carries and what was before the loop.
    before: Vec<(Value, Op)>,
    /// It is loaded where this does not hold, or holds.
    test: Option<(Value, bool)>,
}

impl Stacks<'_> {
    fn block(&mut self, block: &mut Block) {
        for mut inst in std::mem::take(&mut block.insts) {
            match &mut inst {
                Inst::If { then, otherwise, .. } => {
                    self.block(then);
                    self.block(otherwise);
                }
                Inst::Loop(inner) => {
                    self.block(&mut inner.body);
                    if let Some(top) = top_of(inner) {
                        let mut ways = Vec::new();
                        self.ways(inner, &inner.body, &mut Vec::new(), &top, &mut ways);
                        if ways.iter().any(Option::is_some) {
                            self.carry(inner, &top, &ways, &mut block.insts);
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
        top: &Top,
        ways: &mut Vec<Option<Value>>,
    ) {
        let length = before.len();
        for inst in &block.insts {
            if let Inst::If { then, otherwise, .. } = inst {
                self.ways(inner, then, before, top, ways);
                self.ways(inner, otherwise, before, top, ways);
            }
            before.push(inst);
        }
        if let End::Continue(next) = &block.end {
            ways.push(self.stored(inner, before, top, next));
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
        None
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
        let Some(deep) = deep.checked_sub(1) else { return None };
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

    fn carry(&mut self, inner: &mut Loop, top: &Top, ways: &[Option<Value>], before: &mut Vec<Inst>) {
        inner.body.insts.remove(top.at);
        let (params, init) = (inner.params.clone(), inner.init.clone());
        let first = self.load(&params, &init, top, before);
        inner.init.push(first);
        self.pass_on(&mut inner.body, &params, top, &mut ways.iter());
        inner.params.push(top.value);
        let result = self.fresh(top.value);
        inner.results.push(result);
    }

    /// Ends the rounds of a loop with the next top.
    fn pass_on(
        &mut self,
        block: &mut Block,
        params: &[Value],
        top: &Top,
        ways: &mut std::slice::Iter<'_, Option<Value>>,
    ) {
        for inst in &mut block.insts {
            if let Inst::If { then, otherwise, .. } = inst {
                self.pass_on(then, params, top, ways);
                self.pass_on(otherwise, params, top, ways);
            }
        }
        match &mut block.end {
            End::Continue(next) => {
                let known = ways.next().copied().flatten();
                let value = match known {
                    Some(value) => value,
                    None => self.load(params, next, top, &mut block.insts),
                };
                next.push(value);
            }
            End::Break(results) => results.push(top.value),
            _ => {}
        }
    }

    /// Loads the top of a round that begins with these values.
    fn load(&mut self, params: &[Value], next: &[Value], top: &Top, insts: &mut Vec<Inst>) -> Value {
        let mut names: Map<Value, Value> = params.iter().copied().zip(next.iter().copied()).collect();
        let mut again = |this: &mut Self, mut inst: Inst| {
            each_use_mut(&mut inst, &mut |used| *used = names.get(used).copied().unwrap_or(*used));
            if let Inst::Let(value, op) = inst {
                let fresh = this.fresh(value);
                names.insert(value, fresh);
                insts.push(Inst::Let(fresh, op));
                return fresh;
            }
            unreachable!("only values are made again")
        };
        for (value, op) in &top.before {
            again(self, Inst::Let(*value, op.clone()));
        }
        let guard = top.test.map(|(test, leaves)| match leaves {
            true => again(self, Inst::Let(test, Op::Unary(Unary::Not, test))),
            false => test,
        });
        let load = Op::Load { address: top.address.clone(), element: top.element, guard };
        again(self, Inst::Let(top.value, load))
    }
}

/// What a loop loads first in each round, after it asked whether there is one.
fn top_of(inner: &Loop) -> Option<Top> {
    if inner.counter.is_some() {
        return None;
    }
    let (mut before, mut test) = (Vec::new(), None);
    for (at, inst) in inner.body.insts.iter().enumerate() {
        match inst {
            Inst::Let(value, Op::Load { address, element, guard: None })
                if matches!(address.memory, Memory::Local(_)) && element.bits() == 32 =>
            {
                return Some(Top { at, value: *value, address: address.clone(), element: *element, before, test });
            }
            Inst::Let(
                value,
                op @ (Op::Const(_) | Op::Unary(..) | Op::Binary(..) | Op::Cast(_) | Op::BitCast(_) | Op::Select(..)),
            ) => before.push((*value, op.clone())),
            Inst::If { cond, then, otherwise, results } if results.is_empty() && test.is_none() => {
                if !then.insts.is_empty() || !otherwise.insts.is_empty() {
                    return None;
                }
                test = match (&then.end, &otherwise.end) {
                    (End::Break(_), End::Yield(_)) => Some((*cond, true)),
                    (End::Yield(_), End::Break(_)) => Some((*cond, false)),
                    _ => return None,
                };
            }
            _ => return None,
        }
    }
    None
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
