//! The lines of results, asked for while there is other work.
//!
//! A store brings its cache line first. Where the results of a workgroup are copied out of its memory at its end, one behind the other, the next
//! workgroup waits behind these stores. Their lines are so asked for in the first part, piece by piece.

use vyre_foundation::kernel::{Address, Binary, Inst, Loop, Memory, Op, Scalar, Value};

use super::super::hash::Set;
use super::super::isa::Isa;
use super::super::mir::{At, M};
use super::super::visit;
use super::Lower;
use super::facts::visit_operands;
use super::memory::Place;
use super::regions::{has_barrier, visit_made};
use super::value::{Lin, Rep};

/// Bytes of a workgroup's results that the first cache has room for beside what the workgroup works on.
const MOST_BYTES: u64 = 8 << 10;

/// Bytes of a cache line.
const LINE: i32 = 64;

/// Steps that the place of a result is made of, and how far back it is looked for them.
const MOST_STEPS: usize = 32;

/// Most rounds of a loop that writes results.
const MOST_ROUNDS: u32 = 16;

/// Where each invocation writes a result.
pub(super) struct Written<'k> {
    address: &'k Address,
    /// In each round of a loop: its counter, from a number on and so much further.
    rounds: Option<(Value, [u32; 3])>,
}

impl<'k> Lower<'k> {
    /// Places that the workgroup copies to behind its barriers, in buffers that it does nothing else with: few, and side by side.
    pub(super) fn results_to_ask_for(&self) -> Vec<Written<'k>> {
        let kernel = self.facts.kernel;
        if self.facts.isa == Isa::Simd128 {
            return Vec::new();
        }
        let mut written: Vec<Written<'k>> = Vec::new();
        for inst in kernel.body.insts.iter().skip_while(|inst| !has_barrier(inst)) {
            match inst {
                Inst::Store { address, value, .. } if self.is_copied(*value) => {
                    written.push(Written { address, rounds: None });
                }
                Inst::Loop(inner) if !has_barrier(inst) => {
                    let Some(rounds) = self.few_rounds(inner) else { continue };
                    written.extend(inner.body.insts.iter().filter_map(|inst| {
                        let Inst::Store { address, value, .. } = inst else { return None };
                        self.is_copied(*value).then_some(Written { address, rounds: Some(rounds) })
                    }));
                }
                _ => {}
            }
        }
        let place = |address: &Address| (address.memory, address.offset / LINE as u32);
        let step = |written: &Written<'_>| self.step_of(written.address).filter(|step| (1..=16).contains(step));
        written.retain(|written| matches!(written.address.memory, Memory::Buffer(_)) && step(written).is_some());
        written.dedup_by(|a, b| place(a.address) == place(b.address) && a.address.terms == b.address.terms);
        let bytes = written.iter().map(|written| {
            let rounds = written.rounds.map_or(1, |(_, [from, to, by])| (to - from).div_ceil(by));
            u64::from(step(written).unwrap_or(0)) * u64::from(rounds)
        });
        let invocations = kernel.workgroup_size.iter().map(|&size| u64::from(size)).product::<u64>();
        if written.is_empty() || bytes.sum::<u64>() * invocations > MOST_BYTES {
            return Vec::new();
        }
        visit(&kernel.body, &mut |inst| {
            if let Inst::Let(_, Op::Load { address, .. }) | Inst::Atomic { address, .. } = inst {
                written.retain(|written| written.address.memory != address.memory);
            }
        });
        written
    }

    /// A word of workgroup memory. What is computed just before it is written gives its line time to come.
    fn is_copied(&self, value: Value) -> bool {
        let op = self.facts.makers.ops[value.index()];
        op.is_some_and(|op| matches!(op, Op::Load { address, .. } if matches!(address.memory, Memory::Shared(_))))
    }

    /// The counter of a loop of few rounds, from where to where it goes, and by how much.
    fn few_rounds(&self, inner: &Loop) -> Option<(Value, [u32; 3])> {
        let counter = inner.counter?;
        let [from, to] = [counter.from, counter.to].map(|end| self.facts.makers.constant(end));
        let (from, to) = (from?, to?);
        let few = from < to && to <= i32::MAX as u32 && (to - from).div_ceil(counter.step) <= MOST_ROUNDS;
        few.then_some((counter.value, [from, to, counter.step]))
    }

    /// Asks for the lines of results that this piece of the workgroup will write. The part with these steps ends here, before any control flow
    /// with barriers.
    pub(super) fn ask_for_results(&mut self, written: &[Written<'k>], steps: &[&'k Inst]) {
        let Some(&last) = steps.last() else { return };
        // Counters are there in each of their rounds.
        let mut made: Set<Value> = written.iter().filter_map(|written| Some(written.rounds?.0)).collect();
        for inst in &self.facts.kernel.body.insts {
            if has_barrier(inst) {
                return;
            }
            if !matches!(inst, Inst::If { .. } | Inst::Loop(_)) {
                visit_made(inst, &mut |value| {
                    made.insert(value);
                });
            }
            if std::ptr::eq(inst, last) {
                break;
            }
        }
        for written in written {
            let mut slice = Vec::new();
            let mut terms = written.address.terms.iter();
            if terms.all(|&(index, _)| self.slice_of_place(index, &made, MOST_STEPS, &mut slice)) {
                (0..self.active.components.len()).for_each(|c| self.ask_for_result(written, &slice, c));
            }
        }
    }

    /// Adds the steps that make a place of what is there; false where more than arithmetic would be needed.
    fn slice_of_place(
        &self,
        value: Value,
        made: &Set<Value>,
        far_back: usize,
        slice: &mut Vec<(Value, &'k Op)>,
    ) -> bool {
        if slice.iter().any(|&(other, _)| other == value) {
            return true;
        }
        let is_there = made.contains(&value);
        let op = self.facts.makers.ops[value.index()];
        let simple = op.filter(|op| {
            let sum = matches!(op, Op::Binary(Binary::Add | Binary::Sub | Binary::Mul | Binary::Shl | Binary::Or, ..));
            sum || matches!(op, Op::Const(_) | Op::Builtin(_) | Op::BitCast(_))
        });
        let is_number = self.is_scalar(value) && matches!(self.scalar_of(value), Scalar::U32 | Scalar::I32);
        let Some(op) = simple.filter(|_| !(is_there && self.shape_of(value).is_uniform())) else {
            return is_there && is_number && self.shape_of(value).is_uniform();
        };
        let mut all = is_number && far_back > 0 && slice.len() < MOST_STEPS;
        visit_operands(op, &mut |operand| all = all && self.slice_of_place(operand, made, far_back - 1, slice));
        slice.push((value, op));
        all
    }

    fn ask_for_result(&mut self, written: &Written<'k>, slice: &[(Value, &'k Op)], c: usize) {
        let Written { address, rounds } = *written;
        let counter = rounds.map(|(counter, _)| counter);
        let changed = || slice.iter().map(|&(value, _)| value).chain(counter);
        // Each part has registers of its own for them.
        let before: Vec<Rep> = changed().map(|value| self.rep(value, 0, c)).collect();
        let current = std::mem::replace(&mut self.active.current, vec![c]);
        let [from, to, by] = rounds.map_or([0, 1, 1], |(_, rounds)| rounds);
        for round in (from..to).step_by(by as usize) {
            if let Some(counter) = counter {
                self.set_rep(counter, 0, c, Rep::General(Lin::imm(round as i32)));
            }
            slice.iter().for_each(|&(value, op)| self.define(value, op, c));
            let is_there = |&(index, _): &(Value, u32)| matches!(self.rep(index, 0, c), Rep::General(_));
            let place = if address.terms.iter().all(is_there) { self.place(address, c) } else { None };
            let Some(Place::Affine(at, step)) = place else { break };
            let bytes = self.lanes() as i32 * step;
            let begins = self.active.components[c].x as i32 * bytes % LINE == 0;
            for line in (0..bytes).step_by(LINE as usize).filter(|_| begins) {
                self.push(M::Prefetch { at: At { disp: at.disp + line, ..at }, writes: true });
            }
        }
        self.active.current = current;
        changed().zip(before).for_each(|(value, rep)| self.set_rep(value, 0, c, rep));
    }
}
