//! Private arrays of up to 32 booleans whose indices are not constant are the bits of one word.

use crate::ir::Literal;
use crate::kernel::passes::values::Values;
use crate::kernel::walk::{access, each_inst, replace_insts};
use crate::kernel::{Address, Binary, Element, Inst, Kernel, KernelMemory, Memory, Op, Scalar, Unary, Value};

/// Bytes of a boolean in an array.
const BYTES: u32 = 4;

/// Makes words of arrays of booleans; gives whether there were any.
pub(in crate::kernel::passes) fn bits(kernel: &mut Kernel) -> bool {
    let fits =
        |memory: &KernelMemory| memory.element == Some((Element::Bool, 1)) && (1..=32 * BYTES).contains(&memory.size);
    let mut chosen: Vec<bool> = kernel.locals.iter().map(fits).collect();
    if !chosen.contains(&true) {
        return false;
    }
    each_inst(&kernel.body, &mut |inst| {
        let Some((Address { memory: Memory::Local(local), terms, offset }, _)) = access(inst) else { return };
        let is_whole = match inst {
            Inst::Let(value, Op::Load { element, .. }) | Inst::Store { value, element, .. } => {
                *element == Element::Bool && kernel.values[value.index()].ty.width == 1
            }
            _ => false,
        };
        let is_index = |(value, stride): &(Value, u32)| {
            stride.is_multiple_of(BYTES) && kernel.values[value.index()].ty.scalar == Scalar::U32
        };
        chosen[*local as usize] &= is_whole && offset.is_multiple_of(BYTES) && terms.iter().all(is_index);
    });
    if !chosen.contains(&true) {
        return false;
    }
    for (memory, _) in kernel.locals.iter_mut().zip(&chosen).filter(|(_, chosen)| **chosen) {
        (memory.size, memory.element) = (BYTES, Some((Element::U32, 1)));
    }
    let mut bits = Bits { values: Values::of(kernel) };
    let is_chosen = |address: &Address| matches!(address.memory, Memory::Local(local) if chosen[local as usize]);
    replace_insts(&mut kernel.body, &mut |inst, insts| match inst {
        Inst::Let(value, Op::Load { address, guard, .. }) if is_chosen(&address) => {
            bits.load(value, &address, guard, insts);
        }
        Inst::Store { address, value, guard, .. } if is_chosen(&address) => bits.store(&address, value, guard, insts),
        inst => insts.push(inst),
    });
    bits.values.give_back(kernel);
    true
}

struct Bits {
    values: Values,
}

impl Bits {
    fn constant(&mut self, number: u32) -> Value {
        self.values.constant_at_start(Literal::U32(number))
    }

    fn define(&mut self, op: Op, insts: &mut Vec<Inst>) -> Value {
        self.values.define(Scalar::U32, op, insts)
    }

    /// Which bit of its word a boolean is.
    fn bit(&mut self, address: &Address, insts: &mut Vec<Inst>) -> Value {
        let mut sum = self.constant(address.offset / BYTES);
        for (index, stride) in &address.terms {
            let scale = self.constant(stride / BYTES);
            let scaled = self.values.binary(Binary::Mul, *index, scale, insts);
            sum = self.values.binary(Binary::Add, scaled, sum, insts);
        }
        sum
    }

    fn word(&mut self, memory: Memory, insts: &mut Vec<Inst>) -> (Address, Value) {
        let address = Address { memory, terms: Default::default(), offset: 0 };
        let load = Op::Load { address: address.clone(), element: Element::U32, guard: None };
        (address, self.define(load, insts))
    }

    fn load(&mut self, value: Value, address: &Address, guard: Option<Value>, insts: &mut Vec<Inst>) {
        let (_, word) = self.word(address.memory, insts);
        let bit = self.bit(address, insts);
        let [zero, one] = [0, 1].map(|number| self.constant(number));
        let shifted = self.values.binary(Binary::Shr, word, bit, insts);
        let lowest = self.values.binary(Binary::And, shifted, one, insts);
        let is_set = if guard.is_some() { self.values.fresh(Scalar::Bool) } else { value };
        insts.push(Inst::Let(is_set, Op::Binary(Binary::Ne, lowest, zero)));
        if let Some(guard) = guard {
            insts.push(Inst::Let(value, Op::Binary(Binary::And, guard, is_set)));
        }
    }

    fn store(&mut self, address: &Address, value: Value, guard: Option<Value>, insts: &mut Vec<Inst>) {
        let (at, word) = self.word(address.memory, insts);
        let bit = self.bit(address, insts);
        let one = self.constant(1);
        let mask = self.values.binary(Binary::Shl, one, bit, insts);
        let set = self.values.binary(Binary::Or, word, mask, insts);
        let others = self.define(Op::Unary(Unary::Not, mask), insts);
        let cleared = self.values.binary(Binary::And, word, others, insts);
        let mut new = self.define(Op::Select(value, set, cleared), insts);
        if let Some(guard) = guard {
            new = self.define(Op::Select(guard, new, word), insts);
        }
        insts.push(Inst::Store { address: at, element: Element::U32, value: new, guard: None });
    }
}
