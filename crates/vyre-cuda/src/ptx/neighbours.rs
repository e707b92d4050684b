//! Neighbours in workgroup memory that one instruction loads.

use std::collections::HashMap;
use std::fmt::Write;

use vyre_foundation::ir::Literal;
use vyre_foundation::kernel::{Address, Binary, Block, Element, Inst, Kernel, Memory, Op, Value};

use super::{Emitter, line};

/// What becomes of a step of a block.
pub(super) enum Step {
    /// Loads these neighbours.
    First(Vec<Value>, Address, &'static str),
    /// Was loaded by an earlier step.
    Done,
}

/// Powers of two that divide the values, as their exponents: as far as shifts, products and sums show it.
pub(super) fn powers(kernel: &Kernel) -> Vec<u8> {
    let mut powers = vec![0; kernel.values.len()];
    if !kernel.shared.is_empty() {
        note(&kernel.body, &mut powers, &mut HashMap::new());
    }
    powers
}

fn note(block: &Block, powers: &mut [u8], constants: &mut HashMap<Value, u32>) {
    for inst in &block.insts {
        match inst {
            Inst::Let(value, op) => {
                let of = |value: &Value| powers[value.index()];
                powers[value.index()] = match op {
                    Op::Const(Literal::U32(known)) => {
                        constants.insert(*value, *known);
                        known.trailing_zeros() as u8
                    }
                    Op::Const(Literal::I32(known)) => {
                        constants.insert(*value, *known as u32);
                        known.trailing_zeros() as u8
                    }
                    Op::Binary(Binary::Shl, a, by) => of(a) + constants.get(by).map_or(0, |by| (by % 32) as u8),
                    Op::Binary(Binary::Mul, a, b) => of(a) + of(b),
                    Op::Binary(Binary::Add | Binary::Sub | Binary::Or, a, b) => of(a).min(of(b)),
                    Op::Binary(Binary::And, a, b) => of(a).max(of(b)),
                    Op::BitCast(a) => of(a),
                    _ => 0,
                }
                .min(32);
            }
            Inst::If { then, otherwise, .. } => {
                note(then, powers, constants);
                note(otherwise, powers, constants);
            }
            Inst::Loop(inner) => note(&inner.body, powers, constants),
            _ => {}
        }
    }
}

/// Loads of one array at one index: their offsets, values and positions in the block.
type Loads = Vec<(u32, Value, usize)>;

impl Emitter<'_> {
    /// The steps of a block that load neighbours at once. Nothing writes the array between the first of them and the last.
    pub(super) fn neighbours(&self, block: &Block) -> HashMap<usize, Step> {
        let mut steps = HashMap::new();
        if self.kernel.shared.is_empty() {
            return steps;
        }
        let mut open: Vec<(&Address, Element, Loads)> = Vec::new();
        for (i, inst) in block.insts.iter().enumerate() {
            let ends = |address: &Address| match inst {
                Inst::Let(..) => false,
                Inst::Store { address: other, .. } | Inst::Atomic { address: other, .. } => {
                    other.memory == address.memory
                }
                _ => true,
            };
            open.retain(|(address, element, loads)| {
                let done = ends(address);
                if done {
                    self.join(address, *element, loads, &mut steps);
                }
                !done
            });
            if let Inst::Let(value, Op::Load { address, element, guard: None }) = inst
                && let Memory::Shared(_) = address.memory
                && matches!(element, Element::U32 | Element::I32 | Element::F32)
                && self.kernel.values[value.index()].ty.width == 1
            {
                let same = |(other, _, _): &&mut (&Address, Element, Loads)| {
                    other.memory == address.memory && other.terms == address.terms
                };
                match open.iter_mut().find(same) {
                    Some((_, _, loads)) => loads.push((address.offset, *value, i)),
                    None => open.push((address, *element, vec![(address.offset, *value, i)])),
                }
            }
        }
        for (address, element, loads) in &open {
            self.join(address, *element, loads, &mut steps);
        }
        steps
    }

    fn join(&self, address: &Address, element: Element, loads: &Loads, steps: &mut HashMap<usize, Step>) {
        if loads.len() < 2 {
            return;
        }
        // The array itself starts at a multiple of 16 bytes.
        let known = |(value, stride): &(Value, u32)| u32::from(self.powers[value.index()]) + stride.trailing_zeros();
        let aligned = address.terms.iter().map(known).min().unwrap_or(4).min(4);
        let mut loads = loads.clone();
        loads.sort_unstable_by_key(|(offset, _, i)| (*offset, *i));
        loads.dedup_by_key(|(offset, _, _)| *offset);
        let mut rest = &loads[..];
        while let Some((offset, _, _)) = rest.first() {
            let fits = |count: usize| {
                let bytes = 4 * count as u32;
                1 << aligned >= bytes
                    && offset.is_multiple_of(bytes)
                    && rest.len() >= count
                    && rest[..count].iter().zip(0..).all(|((other, _, _), n)| *other == offset + 4 * n)
            };
            let count = if fits(4) {
                4
            } else if fits(2) {
                2
            } else {
                1
            };
            if count > 1 {
                let first = rest[..count].iter().map(|(_, _, i)| *i).min().unwrap_or_default();
                for (_, _, i) in &rest[..count] {
                    steps.insert(*i, Step::Done);
                }
                let values = rest[..count].iter().map(|(_, value, _)| *value).collect();
                let ty = super::memory::access(element).0;
                steps.insert(first, Step::First(values, Address { offset: *offset, ..address.clone() }, ty));
            }
            rest = &rest[count..];
        }
    }

    pub(super) fn load_neighbours(&mut self, values: &[Value], address: &Address, ty: &str) {
        let targets: Vec<String> = values.iter().map(|value| self.component(*value, 0)).collect();
        let at = self.address(address);
        line!(self, "ld.shared.v{}.{ty} {{{}}}, [{at}]", values.len(), targets.join(", "));
    }
}
