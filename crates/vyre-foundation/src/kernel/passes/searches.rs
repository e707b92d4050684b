//! Short searches: loops of few rounds that only load and compare, and that are left where something is found.
//!
//! Lanes of a vector leave such a loop one by one while the others go on, under masks. All rounds are done for all of them instead, one after
//! the other without a branch, and what the first hit gave is selected. Words are looked at that the search would not have come to, so they have to
//! be guarded by what their own index says, and to lie where the place of the invocation says: neighbours find them side by side then.

use hashbrown::HashMap;

use super::values::{Values, named};
use crate::kernel::walk::{each_inst, has_loop, replace_insts};
use crate::kernel::{Address, Binary, Block, Element, End, Inst, Kernel, KernelBuffer, Loop, Memory, Op, Value};

/// Most rounds, and most steps and loads of all of them.
const MOST_ROUNDS: usize = 8;
const MOST_STEPS: usize = 96;
const MOST_LOADS: usize = 16;
/// Most steps of searches in all rounds of a loop around them.
const MOST_STEPS_AROUND: usize = 384;

/// Operations that a place may be made by.
const DEEP: u32 = 8;

/// Writes searches out, and gives the counters of the loops of few rounds around them: what is the same in several rounds is looked at once
/// where these are written out too.
pub(super) fn run(kernel: &mut Kernel) -> Vec<Value> {
    let mut counters: Vec<Value> = Vec::new();
    each_inst(&kernel.body, &mut |inst| {
        if let Inst::Loop(inner) = inst {
            counters.extend(inner.counter.map(|counter| counter.value));
        }
    });
    if counters.is_empty() {
        return Vec::new();
    }
    let bytes: Vec<u64> = kernel.buffers.iter().map(KernelBuffer::fixed_bytes).collect();
    let mut values = Values::with_definitions(kernel);
    let (mut around, mut steps) = (Vec::new(), 0);
    replace_insts(&mut kernel.body, &mut |inst, insts| match inst {
        Inst::Loop(inner) => match Search::of(&inner, &values, &counters, &bytes) {
            Some(search) => {
                search.write_out(&mut values, insts);
                steps += search.rounds.len() * inner.body.insts.len();
            }
            None => {
                // Inner loops come before outer ones.
                let found = std::mem::take(&mut steps);
                let is_short = found > 0
                    && found.saturating_mul(rounds_of(&inner, &values)) <= MOST_STEPS_AROUND
                    && !has_loop(&inner.body);
                around.extend(inner.counter.filter(|_| is_short).map(|counter| counter.value));
                insts.push(Inst::Loop(inner));
            }
        },
        inst => insts.push(inst),
    });
    values.give_back(kernel);
    around
}

/// How many rounds a loop has, where that is known.
fn rounds_of(inner: &Loop, values: &Values) -> usize {
    let rounds = inner.counter.and_then(|counter| {
        let (from, to) = (values.number(counter.from)?, values.number(counter.to)?);
        usize::try_from((to - from).max(0) / i128::from(counter.step) + 1).ok()
    });
    rounds.unwrap_or(usize::MAX)
}

struct Search<'a> {
    inner: &'a Loop,
    /// What the counter is in each round.
    rounds: Vec<i128>,
    /// Where the branch stands that leaves, and what it asks.
    branch: usize,
    cond: Value,
    found: &'a Block,
}

impl<'a> Search<'a> {
    fn of(inner: &'a Loop, values: &Values, counters: &[Value], bytes: &[u64]) -> Option<Search<'a>> {
        let counter = inner.counter.filter(|_| !inner.rare)?;
        let (from, to) = (values.number(counter.from)?, values.number(counter.to)?);
        let rounds: Vec<i128> = (from..to).step_by(counter.step as usize).take(MOST_ROUNDS + 1).collect();
        let mut branches = inner.body.insts.iter().enumerate().filter_map(|(at, inst)| match inst {
            Inst::If { cond, then, otherwise, results } => Some((at, *cond, then, otherwise, results)),
            _ => None,
        });
        let (branch, cond, found, otherwise, results) = branches.next()?;
        let leaves = matches!(found.end, End::Break(_)) && otherwise.insts.is_empty() && results.is_empty();
        let goes_on = matches!(inner.body.end, End::Continue(_)) && matches!(otherwise.end, End::Yield(_));
        let steps = inner.body.insts.len() + found.insts.len();
        let fits = (2..=MOST_ROUNDS).contains(&rounds.len()) && rounds.len() * steps <= MOST_STEPS;
        if branches.next().is_some() || !leaves || !goes_on || !fits {
            return None;
        }
        if inner.results.iter().any(|&result| values.ty(result).width != 1) {
            return None;
        }
        let mut loads = 0;
        for inst in inner.body.insts.iter().chain(&found.insts) {
            match inst {
                Inst::Let(_, Op::Load { address, element, guard }) => {
                    let place = Place { values, counter: counter.value, counters, bytes, last: *rounds.last()? };
                    if !place.is_inside(address, *element, *guard) || !place.is_near(address) {
                        return None;
                    }
                    loads += 1;
                }
                Inst::Let(_, op) if op.is_plain() => {}
                Inst::If { .. } => {}
                _ => return None,
            }
        }
        (loads > 0 && rounds.len() * loads <= MOST_LOADS).then_some(Search { inner, rounds, branch, cond, found })
    }

    fn write_out(&self, values: &mut Values, insts: &mut Vec<Inst>) {
        let Search { inner, ref rounds, branch, cond, found } = *self;
        let Some(counter) = inner.counter else { return };
        let mut carried = inner.init.clone();
        let mut hits: Vec<(Value, Vec<Value>)> = Vec::with_capacity(rounds.len());
        for &round in rounds {
            let mut names: HashMap<Value, Value> = inner.params.iter().copied().zip(carried.iter().copied()).collect();
            let now = values.constant(values.scalar(counter.value), round, insts);
            names.insert(counter.value, now);
            for (at, inst) in inner.body.insts.iter().enumerate() {
                if at != branch {
                    insts.push(values.copy_inst(inst, &mut names));
                    continue;
                }
                let hit = named(cond, &names);
                for inst in &found.insts {
                    insts.push(values.copy_inst(inst, &mut names));
                }
                if let End::Break(given) = &found.end {
                    hits.push((hit, given.iter().map(|value| named(*value, &names)).collect()));
                }
            }
            if let End::Continue(next) = &inner.body.end {
                carried = next.iter().map(|value| named(*value, &names)).collect();
            }
        }
        // The first hit is the last to be selected.
        for (round, (hit, given)) in hits.iter().enumerate().rev() {
            for (position, &result) in inner.results.iter().enumerate() {
                let value = if round == 0 { result } else { values.like(result) };
                let op = Op::Select(*hit, given[position], carried[position]);
                values.set(value, &op);
                insts.push(Inst::Let(value, op));
                carried[position] = value;
            }
        }
    }
}

/// What is known of the places that a search looks at.
struct Place<'a> {
    values: &'a Values,
    counter: Value,
    /// Those of all loops.
    counters: &'a [Value],
    bytes: &'a [u64],
    /// The counter in the last round.
    last: i128,
}

impl Place<'_> {
    /// It is inside, whatever else was asked before it.
    fn is_inside(&self, address: &Address, element: Element, guard: Option<Value>) -> bool {
        let Memory::Buffer(buffer) = address.memory else { return false };
        let is_length = |value: Value| match self.values.def(value) {
            Some(Op::Length(of)) => *of == buffer,
            Some(Op::Binary(Binary::Min, a, b)) => {
                let of = |value: &Value| matches!(self.values.def(*value), Some(Op::Length(of)) if *of == buffer);
                (of(a) && self.values.number(*b).is_some()) || (of(b) && self.values.number(*a).is_some())
            }
            _ => false,
        };
        match (guard, &address.terms[..]) {
            (Some(guard), &[(index, _)]) => match self.values.def(guard) {
                Some(Op::Binary(Binary::Lt, a, b)) => *a == index && is_length(*b),
                _ => false,
            },
            // By the counter alone, in a buffer that is long enough.
            (None, &[(index, stride)]) => {
                let end = self.last * i128::from(stride) + i128::from(address.offset) + i128::from(element.bits() / 8);
                index == self.counter && end <= i128::from(self.bytes[buffer as usize])
            }
            _ => false,
        }
    }

    /// The place of the invocation and the round say where it is, and no data.
    fn is_near(&self, address: &Address) -> bool {
        address.terms.iter().all(|&(index, _)| self.is_place(index, DEEP))
    }

    fn is_place(&self, value: Value, deep: u32) -> bool {
        use Binary::{Add, And, Max, Min, Shl, Shr, Sub};
        let of = |value: Value| self.is_place(value, deep - 1);
        if self.counters.contains(&value) {
            return true;
        }
        match self.values.def(value).filter(|_| deep > 0) {
            Some(Op::Const(_) | Op::Builtin(_) | Op::Length(_)) => true,
            Some(&Op::Cast(a) | &Op::BitCast(a)) => of(a),
            Some(&Op::Binary(Add | Sub | Shl | Shr | And | Min | Max, a, b)) => of(a) && of(b),
            _ => false,
        }
    }
}
