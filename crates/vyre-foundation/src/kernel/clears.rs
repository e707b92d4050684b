//! Finds the workgroup memory that need not be zero at the start, because everything is written before anything is read.
//!
//! One walk in the order of execution keeps what all invocations together have surely written, and what of it they have met for
//! since: a barrier stands in uniform control flow, so whoever comes there has done what stands before it in its block. What a
//! branch or a loop writes is forgotten after it, as it may not have run. Where each invocation writes is found by computing its
//! index from its place in the workgroup.

use hashbrown::HashMap;

use super::walk::{access, each_inst};
use super::{Address, Binary, Block, Counter, End, Inst, Kernel, Loop, Memory, Op, Scalar, Value};
use crate::ir::{Builtin, Literal};

/// Words of a memory that is looked at, and stores of a loop that are followed.
const MOST: u32 = 1 << 14;

/// Marks the memories that must be cleared.
pub(super) fn run(kernel: &mut Kernel) {
    if kernel.shared.is_empty() {
        return;
    }
    let must = Walk::of(kernel);
    for (memory, must) in kernel.shared.iter_mut().zip(must) {
        memory.cleared = must;
    }
}

struct Walk<'a> {
    kernel: &'a Kernel,
    ops: HashMap<Value, &'a Op>,
    /// Values of each invocation, where they follow from its place.
    lanes: HashMap<Value, Option<Vec<u32>>>,
    must: Vec<bool>,
    /// Words that were written.
    written: Vec<Vec<bool>>,
    /// All words were written before a barrier that was passed.
    waited_for: Vec<bool>,
}

impl<'a> Walk<'a> {
    /// Which memories something may be read of before it is written.
    fn of(kernel: &'a Kernel) -> Vec<bool> {
        let mut ops = HashMap::new();
        each_inst(&kernel.body, &mut |inst| {
            if let Inst::Let(value, op @ (Op::Const(_) | Op::Builtin(_) | Op::Binary(..) | Op::BitCast(_))) = inst {
                ops.insert(*value, op);
            }
        });
        let words = |size: u32| size.div_ceil(4).min(MOST) as usize;
        let mut walk = Walk {
            kernel,
            ops,
            lanes: HashMap::new(),
            must: kernel.shared.iter().map(|memory| memory.size > 4 * MOST).collect(),
            written: kernel.shared.iter().map(|memory| vec![false; words(memory.size)]).collect(),
            waited_for: vec![false; kernel.shared.len()],
        };
        walk.block(&kernel.body, None);
        walk.must
    }

    /// `rounds`: the loop whose only block this is, where all its rounds are followed.
    fn block(&mut self, block: &'a Block, rounds: Option<&'a Counter>) {
        for inst in &block.insts {
            match inst {
                Inst::Store { address, element, value, guard: None } if element.bits() >= 32 => {
                    let words = element.bits() / 32 * u32::from(self.kernel.values[value.index()].ty.width);
                    self.store(address, words, rounds);
                }
                Inst::Barrier(_) => {
                    for (waited_for, written) in self.waited_for.iter_mut().zip(&self.written) {
                        *waited_for |= !written.contains(&false);
                    }
                }
                Inst::If { then, otherwise, .. } => {
                    self.apart(|walk| walk.block(then, None));
                    self.apart(|walk| walk.block(otherwise, None));
                }
                Inst::Loop(inner) => self.repeat(inner),
                Inst::Store { .. } => {}
                inst => {
                    if let Some((Address { memory: Memory::Shared(shared), .. }, _)) = access(inst) {
                        self.must[*shared as usize] |= !self.waited_for[*shared as usize];
                    }
                }
            }
        }
    }

    fn apart(&mut self, walk: impl FnOnce(&mut Self)) {
        let before = (self.written.clone(), self.waited_for.clone());
        walk(self);
        (self.written, self.waited_for) = before;
    }

    fn repeat(&mut self, inner: &'a Loop) {
        let simple = matches!(inner.body.end, End::Continue(_))
            && inner.body.insts.iter().all(|inst| matches!(inst, Inst::Let(..) | Inst::Store { .. }));
        match &inner.counter {
            // Every invocation goes through all its rounds.
            Some(counter) if simple => self.block(&inner.body, Some(counter)),
            _ => self.apart(|walk| walk.block(&inner.body, None)),
        }
    }

    fn store(&mut self, address: &Address, words: u32, rounds: Option<&'a Counter>) {
        let Memory::Shared(shared) = address.memory else { return };
        let shared = shared as usize;
        if self.must[shared] || self.waited_for[shared] {
            return;
        }
        let invocations = self.kernel.workgroup_size.iter().product::<u32>() as usize;
        let mut places = vec![address.offset; invocations];
        let mut stride_of_counter = 0;
        for (index, stride) in &address.terms {
            if rounds.is_some_and(|counter| counter.value == *index) {
                stride_of_counter += *stride;
                continue;
            }
            let Some(lanes) = self.lanes(*index) else { return };
            for (place, lane) in places.iter_mut().zip(lanes) {
                *place = place.wrapping_add(lane.wrapping_mul(*stride));
            }
        }
        let Some(counter) = rounds else {
            places.iter().for_each(|place| self.mark(shared, *place, words));
            return;
        };
        // Only counters of u32, which no sum of them makes negative.
        if self.kernel.values[counter.value.index()].ty.scalar != Scalar::U32 {
            return;
        }
        let (Some(from), Some(to)) = (self.lanes(counter.from).cloned(), self.lanes(counter.to).cloned()) else {
            return;
        };
        let mut left = MOST;
        for ((place, from), to) in places.into_iter().zip(from).zip(to) {
            let mut at = from;
            while at < to && left > 0 {
                self.mark(shared, place.wrapping_add(at.wrapping_mul(stride_of_counter)), words);
                left -= 1;
                match at.checked_add(counter.step) {
                    Some(next) => at = next,
                    None => break,
                }
            }
        }
    }

    fn mark(&mut self, shared: usize, place: u32, words: u32) {
        let first = (place / 4) as usize;
        if place.is_multiple_of(4)
            && let Some(range) = self.written[shared].get_mut(first..first + words as usize)
        {
            range.fill(true);
        }
    }

    /// The value in each invocation of a workgroup, where it follows from its place.
    fn lanes(&mut self, value: Value) -> Option<&Vec<u32>> {
        if !self.lanes.contains_key(&value) {
            // In case it comes by itself again, which it does not in a kernel that is well made.
            self.lanes.insert(value, None);
            let lanes = self.compute(value);
            self.lanes.insert(value, lanes);
        }
        self.lanes.get(&value)?.as_ref()
    }

    fn compute(&mut self, value: Value) -> Option<Vec<u32>> {
        let [x, y, z] = self.kernel.workgroup_size;
        let each = |place: &dyn Fn(u32) -> u32| (0..x * y * z).map(place).collect();
        match *self.ops.get(&value)? {
            Op::Const(Literal::U32(known)) => Some(each(&|_| *known)),
            Op::Const(Literal::I32(known)) => Some(each(&|_| *known as u32)),
            Op::Builtin(Builtin::LocalIndex) => Some(each(&|i| i)),
            Op::Builtin(Builtin::LocalId(0)) => Some(each(&|i| i % x)),
            Op::Builtin(Builtin::LocalId(1)) => Some(each(&|i| i / x % y)),
            Op::Builtin(Builtin::LocalId(2)) => Some(each(&|i| i / (x * y))),
            Op::BitCast(a) => self.lanes(*a).cloned(),
            Op::Binary(op, a, b) => {
                let combine: fn(u32, u32) -> u32 = match op {
                    Binary::Add => u32::wrapping_add,
                    Binary::Sub => u32::wrapping_sub,
                    Binary::Mul => u32::wrapping_mul,
                    Binary::And => |a, b| a & b,
                    Binary::Or => |a, b| a | b,
                    Binary::Xor => |a, b| a ^ b,
                    Binary::Shl => u32::wrapping_shl,
                    // Of signed numbers these are others.
                    _ if self.kernel.values[value.index()].ty.scalar != Scalar::U32 => return None,
                    Binary::Shr => u32::wrapping_shr,
                    Binary::Min => u32::min,
                    Binary::Max => u32::max,
                    Binary::Div => |a, b| a.checked_div(b).unwrap_or(a),
                    Binary::Rem => |a, b| a.checked_rem(b).unwrap_or(0),
                    _ => return None,
                };
                let a = self.lanes(*a)?.clone();
                let b = self.lanes(*b)?;
                Some(a.iter().zip(b).map(|(a, b)| combine(*a, *b)).collect())
            }
            _ => None,
        }
    }
}
