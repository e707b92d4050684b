//! Words that an invocation filled with one number shortly before and has changed at few places since:
//! `for (var d = 0u; d < 16u; d++) { counts[d * 256u + t] = 0u; }`, then `counts[digit * 256u + t] += 1u` a few times. What such a word holds is found by
//! comparing where it was changed, for devices that load words at places of each lane's own one by one.
//!
//! Between barriers nobody else changes what an invocation writes and reads.

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::values::Values;
use crate::kernel::walk::{Effect, access, blocks, blocks_mut, defined_in, each_inst, each_value_mut};
use crate::kernel::{Address, Binary, Element, End, Inst, Kernel, Loop, Memory, Op, Scalar, Value};

/// Changes since, up to which comparing is faster.
const MOST_CHANGES: usize = 4;

/// Operations that a place may be made by.
const DEEP: u32 = 8;

/// Selects what such words hold instead of loading them.
pub(super) fn run(kernel: &mut Kernel) {
    let mut any = false;
    each_inst(&kernel.body, &mut |inst| any |= matches!(inst, Inst::Loop(_)));
    if !any {
        return;
    }
    let mut pass = Pass { values: Values::with_definitions(kernel), names: HashMap::new() };
    pass.in_insts(&mut kernel.body.insts);
    let Pass { values, names } = pass;
    values.give_back(kernel);
    if !names.is_empty() {
        each_value_mut(&mut kernel.body, &mut |value| *value = names.get(value).copied().unwrap_or(*value));
    }
}

/// A place in a memory in bytes: values times factors, and a constant, modulo 2³².
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Place {
    terms: SmallVec<[(Value, u32); 4]>,
    constant: u32,
}

impl Place {
    fn add(&mut self, value: Value, factor: u32) {
        match self.terms.iter_mut().find(|(other, _)| *other == value) {
            Some((_, own)) => *own = own.wrapping_add(factor),
            None => self.terms.push((value, factor)),
        }
        self.terms.retain(|(_, factor)| *factor != 0);
    }

    fn take(&mut self, value: Value) -> Option<u32> {
        let position = self.terms.iter().position(|(other, _)| *other == value)?;
        Some(self.terms.remove(position).1)
    }
}

/// Words a step apart that were filled.
struct Filled {
    memory: Memory,
    element: Element,
    /// Where the first is.
    first: Place,
    step: u32,
    count: u32,
    with: Value,
    /// Numbers of words that were changed since, and what they are now.
    changes: Vec<(Value, Value)>,
}

struct Pass {
    values: Values,
    /// Loads that give what a value is already.
    names: HashMap<Value, Value>,
}

impl Pass {
    fn in_insts(&mut self, insts: &mut Vec<Inst>) {
        let mut filled: Vec<Filled> = Vec::new();
        let mut out = Vec::with_capacity(insts.len());
        for mut inst in std::mem::take(insts) {
            blocks_mut(&mut inst).for_each(|block| self.in_insts(&mut block.insts));
            match &inst {
                Inst::Let(value, Op::Load { address, element, guard: None }) => {
                    if let Some(found) = filled.iter().find(|filled| self.is_of(filled, *value, *element, address))
                        && let Some(number) = self.number(found, address)
                    {
                        self.select(*value, found, number, &mut out);
                        continue;
                    }
                }
                Inst::Store { address, element, value, guard: None } => {
                    for mut found in std::mem::take(&mut filled) {
                        if found.memory == address.memory {
                            let number = self.number(&found, address);
                            let Some(number) = number.filter(|_| self.is_of(&found, *value, *element, address)) else {
                                continue;
                            };
                            if found.changes.len() == MOST_CHANGES {
                                continue;
                            }
                            found.changes.push((number, *value));
                        }
                        filled.push(found);
                    }
                }
                _ => {
                    filled.retain(|filled| !changes(&inst, filled.memory));
                    if let Inst::Loop(inner) = &inst {
                        filled.extend(self.fills(inner));
                    }
                }
            }
            out.push(inst);
        }
        *insts = out;
    }

    fn is_of(&self, filled: &Filled, value: Value, element: Element, address: &Address) -> bool {
        filled.memory == address.memory
            && filled.element == element
            && self.values.ty(value) == self.values.ty(filled.with)
    }

    /// What a loop fills, where that is all it does.
    fn fills(&self, inner: &Loop) -> Option<Filled> {
        let counter = inner.counter.filter(|counter| counter.step == 1 && inner.params.is_empty())?;
        let mut stores = inner.body.insts.iter().filter_map(|inst| match inst {
            Inst::Store { address, element, value, guard } => Some((address, *element, *value, guard)),
            _ => None,
        });
        let (address, element, with, None) = stores.next()? else { return None };
        let plain = |inst: &Inst| match inst {
            Inst::Store { .. } => true,
            Inst::Let(_, op) => !matches!(op, Op::Load { .. }) && !op.is_across_subgroup(),
            _ => false,
        };
        let all = inner.body.insts.iter().all(plain) && matches!(inner.body.end, End::Continue(_));
        let is_word = element.bits() == 32 && self.values.ty(with).width == 1;
        let count = u32::try_from(self.values.number(counter.to)?).ok()?;
        if self.values.number(counter.from) != Some(0)
            || !all
            || stores.next().is_some()
            || !is_word
            || matches!(address.memory, Memory::Buffer(_))
        {
            return None;
        }
        let inside = defined_in(inner);
        let mut first = self.place(address);
        let step = first.take(counter.value)?;
        let settled = !inside.contains(&with) && first.terms.iter().all(|(value, _)| !inside.contains(value));
        // Where all invocations fill the same words nobody knows who changed them last.
        let is_shared = matches!(address.memory, Memory::Shared(_));
        if is_shared && first.terms.iter().all(|(value, _)| self.values.is_uniform(*value)) {
            return None;
        }
        let apart = step.is_multiple_of(4) && u64::from(step) * u64::from(count) < 1 << 32;
        (settled && apart).then(|| Filled {
            memory: address.memory,
            element,
            first,
            step,
            count,
            with,
            changes: Vec::new(),
        })
    }

    /// Which of some words an address is, where it is one of them.
    fn number(&self, filled: &Filled, address: &Address) -> Option<Value> {
        let mut place = self.place(address);
        for &(value, factor) in &filled.first.terms {
            if place.take(value)? != factor {
                return None;
            }
        }
        match place.terms[..] {
            [(number, step)] if step == filled.step && place.constant == filled.first.constant => {
                // Numbers of words are compared with each other, and so are of one type.
                let fits = self.values.scalar(number) == Scalar::U32 && self.most(number)? < filled.count;
                fits.then_some(number)
            }
            _ => None,
        }
    }

    /// The greatest that a number without a sign can be.
    fn most(&self, number: Value) -> Option<u32> {
        let constant = |value: &Value| self.values.number(*value).and_then(|number| u32::try_from(number).ok());
        let Op::Binary(op, a, b) = self.values.def(number)? else { return None };
        match op {
            Binary::And => [constant(a), constant(b)].into_iter().flatten().min(),
            Binary::Shr => constant(b).filter(|by| *by < 32).map(|by| u32::MAX >> by),
            Binary::Rem => constant(b)?.checked_sub(1),
            _ => None,
        }
    }

    fn place(&self, address: &Address) -> Place {
        let mut place = Place { constant: address.offset, ..Place::default() };
        address.terms.iter().for_each(|&(index, stride)| self.add(index, stride, &mut place, DEEP));
        place
    }

    fn add(&self, value: Value, factor: u32, place: &mut Place, deep: u32) {
        let is_word = |value: Value| matches!(self.values.scalar(value), Scalar::U32 | Scalar::I32);
        let constant = |value: &Value| self.values.number(*value).map(|number| number as u32);
        match self.values.def(value).filter(|_| deep > 0 && is_word(value)) {
            Some(Op::Const(_)) => {
                let number = constant(&value).unwrap_or(0);
                place.constant = place.constant.wrapping_add(number.wrapping_mul(factor));
            }
            Some(Op::Binary(Binary::Add, a, b)) => {
                self.add(*a, factor, place, deep - 1);
                self.add(*b, factor, place, deep - 1);
            }
            Some(Op::Binary(Binary::Mul, a, b)) => match (constant(a), constant(b)) {
                (Some(by), _) => self.add(*b, factor.wrapping_mul(by), place, deep - 1),
                (None, Some(by)) => self.add(*a, factor.wrapping_mul(by), place, deep - 1),
                (None, None) => place.add(value, factor),
            },
            Some(Op::Binary(Binary::Shl, a, b)) => match constant(b).filter(|by| *by < 32) {
                Some(by) => self.add(*a, factor << by, place, deep - 1),
                None => place.add(value, factor),
            },
            Some(Op::BitCast(of)) if is_word(*of) => self.add(*of, factor, place, deep - 1),
            _ => place.add(value, factor),
        }
    }

    /// Gives a value what the word is: the last that it was changed to, or what all were filled with.
    fn select(&mut self, value: Value, filled: &Filled, number: Value, out: &mut Vec<Inst>) {
        let mut now = filled.with;
        for (position, &(other, changed)) in filled.changes.iter().enumerate() {
            if other == number {
                now = changed;
                continue;
            }
            let same = self.values.binary(Binary::Eq, other, number, out);
            let op = Op::Select(same, changed, now);
            if position + 1 == filled.changes.len() {
                self.values.set(value, &op);
                out.push(Inst::Let(value, op));
                return;
            }
            now = self.values.define(self.values.ty(value), op, out);
        }
        let now = self.names.get(&now).copied().unwrap_or(now);
        self.names.insert(value, now);
    }
}

/// Something in a step may change a memory, or others may have changed it behind the step.
fn changes(inst: &Inst, memory: Memory) -> bool {
    let own = match inst {
        Inst::Barrier(_) => matches!(memory, Memory::Shared(_)),
        Inst::Let(_, op) => op.is_across_subgroup(),
        _ => access(inst).is_some_and(|(address, effect)| address.memory == memory && !matches!(effect, Effect::Read)),
    };
    own || blocks(inst).any(|block| block.insts.iter().any(|inst| changes(inst, memory)))
}
