//! Turns arrays whose indices are all constant into values.
//!
//! The kernel's control flow is structured, so one walk is enough: it keeps the present value of every scalar, an `if` gives
//! what its ways left different as results, and a loop carries what its body stores.

use std::collections::HashMap;

use smallvec::SmallVec;

use super::plan::tables;
use super::{candidates, scalars};
use crate::ir::Literal;
use crate::kernel::passes::values::Values;
use crate::kernel::walk::{access, blocks_mut, each_inst, each_use_mut, end_values_mut};
use crate::kernel::{Address, Block, End, Inst, Kernel, Loop, Memory, Op, Scalar, Type, Value, fold};

/// Turns arrays of `most` scalars in all into values, and drops those that nothing reads. Says whether there were some and others are
/// left: what was loaded from the ones may be places in the others.
pub(in crate::kernel::passes) fn promote(kernel: &mut Kernel, most: u32) -> bool {
    let layout = Layout::of(kernel, most);
    if layout.slots.is_empty() {
        drop_unused(kernel);
        return false;
    }
    let values = Values::of(kernel);
    let mut promoter = Promoter {
        subst: values.all().collect(),
        values,
        present: Vec::with_capacity(layout.slots.len()),
        layout,
        parts: HashMap::new(),
        zeros: Vec::new(),
        carried: Vec::new(),
    };
    for i in 0..promoter.layout.slots.len() {
        let zero = promoter.zero(promoter.layout.slots[i]);
        promoter.present.push(zero);
    }
    promoter.block(&mut kernel.body);
    promoter.values.give_back(kernel);
    drop_unused(kernel);
    !kernel.locals.is_empty()
}

/// Which scalars of which arrays become values.
struct Layout {
    /// First slot of each array and the distance of its scalars in bytes, where it becomes values.
    arrays: Vec<Option<(u32, u32)>>,
    /// Type of each slot.
    slots: Vec<Scalar>,
    constants: HashMap<Value, u64>,
}

impl Layout {
    fn of(kernel: &Kernel, most: u32) -> Layout {
        let mut layout =
            Layout { arrays: vec![None; kernel.locals.len()], slots: Vec::new(), constants: HashMap::new() };
        let mut constant = vec![true; kernel.locals.len()];
        each_inst(&kernel.body, &mut |inst| match inst {
            Inst::Let(value, Op::Const(Literal::U32(known))) => {
                layout.constants.insert(*value, (*known).into());
            }
            Inst::Let(value, Op::Const(Literal::U64(known))) => {
                layout.constants.insert(*value, *known);
            }
            Inst::Let(value, Op::Load { address, .. }) => {
                layout.check(kernel, address, kernel.values[value.index()].ty.width, &mut constant);
            }
            Inst::Store { address, value, .. } => {
                layout.check(kernel, address, kernel.values[value.index()].ty.width, &mut constant);
            }
            Inst::Atomic { address: Address { memory: Memory::Local(local), .. }, .. } => {
                constant[*local as usize] = false;
            }
            _ => {}
        });
        let tables = tables(kernel);
        let chosen = candidates(kernel, most, |local| constant[local] && !tables[local]);
        let becomes = |local: usize| chosen[local] || tables[local] && constant[local];
        for (local, memory) in kernel.locals.iter().enumerate().filter(|(local, _)| becomes(*local)) {
            let (Some((count, stride)), Some((element, _))) = (scalars(memory), memory.element) else { continue };
            layout.arrays[local] = Some((layout.slots.len() as u32, stride));
            layout.slots.extend(std::iter::repeat_n(element.scalar(), count as usize));
        }
        layout
    }

    fn check(&self, kernel: &Kernel, address: &Address, width: u8, constant: &mut [bool]) {
        let Memory::Local(local) = address.memory else { return };
        let bits = kernel.locals[local as usize].element.map_or(0, |(element, _)| element.bits());
        let end = self.offset(address).map(|offset| offset + u64::from(bits / 8) * u64::from(width));
        constant[local as usize] &= end.is_some_and(|end| end <= u64::from(kernel.locals[local as usize].size));
    }

    /// The place in an array, when it is constant.
    fn offset(&self, address: &Address) -> Option<u64> {
        address.terms.iter().try_fold(u64::from(address.offset), |sum, (value, stride)| {
            self.constants.get(value)?.checked_mul(u64::from(*stride))?.checked_add(sum)
        })
    }

    /// The first slot of an access, when its array becomes values.
    fn slot(&self, address: &Address) -> Option<usize> {
        let Memory::Local(local) = address.memory else { return None };
        let (first, stride) = self.arrays[local as usize]?;
        Some(first as usize + (self.offset(address)? / u64::from(stride)) as usize)
    }
}

struct Promoter {
    values: Values,
    /// What stands for a value of the old kernel.
    subst: Vec<Value>,
    layout: Layout,
    /// Value of each slot here.
    present: Vec<Value>,
    /// The parts of vectors.
    parts: HashMap<Value, SmallVec<[Value; 4]>>,
    zeros: Vec<(Scalar, Value)>,
    /// The slots that the open loops carry.
    carried: Vec<Vec<usize>>,
}

impl Promoter {
    fn value(&mut self, ty: impl Into<Type>) -> Value {
        let value = self.values.fresh(ty);
        self.subst.push(value);
        value
    }

    fn zero(&mut self, ty: Scalar) -> Value {
        if let Some((_, value)) = self.zeros.iter().find(|(zero, _)| *zero == ty) {
            return *value;
        }
        let value = self.values.constant_at_start(fold::literal(ty, 0));
        self.subst.push(value);
        self.zeros.push((ty, value));
        value
    }

    fn block(&mut self, block: &mut Block) {
        let mut out = Vec::with_capacity(block.insts.len());
        for mut inst in std::mem::take(&mut block.insts) {
            each_use_mut(&mut inst, &mut |value| *value = self.subst[value.index()]);
            self.inst(inst, &mut out);
        }
        block.insts = out;
        for value in end_values_mut(&mut block.end) {
            *value = self.subst[value.index()];
        }
        if let (End::Continue(values) | End::Break(values), Some(carried)) = (&mut block.end, self.carried.last()) {
            values.extend(carried.iter().map(|slot| self.present[*slot]));
        }
    }

    fn inst(&mut self, inst: Inst, out: &mut Vec<Inst>) {
        match inst {
            Inst::Let(value, Op::Extract(whole, lane)) if self.parts.contains_key(&whole) => {
                self.subst[value.index()] = self.parts[&whole][usize::from(lane)];
            }
            Inst::Let(value, Op::Construct(parts)) => {
                self.parts.insert(value, parts.clone());
                out.push(Inst::Let(value, Op::Construct(parts)));
            }
            Inst::Let(value, Op::Load { ref address, guard, .. }) => match self.layout.slot(address) {
                Some(slot) => self.load(value, slot, guard, out),
                None => out.push(inst),
            },
            Inst::Store { ref address, value, guard, .. } => match self.layout.slot(address) {
                Some(slot) => self.store(value, slot, guard, out),
                None => out.push(inst),
            },
            Inst::If { cond, then, otherwise, results } => self.branch(cond, [then, otherwise], results, out),
            Inst::Loop(inner) => {
                let inner = self.repeat(*inner);
                out.push(Inst::Loop(Box::new(inner)));
            }
            inst => out.push(inst),
        }
    }

    fn select(&mut self, guard: Option<Value>, yes: Value, no: Value, out: &mut Vec<Inst>) -> Value {
        let Some(guard) = guard.filter(|_| yes != no) else { return yes };
        let value = self.value(self.values.ty(yes));
        out.push(Inst::Let(value, Op::Select(guard, yes, no)));
        value
    }

    fn load(&mut self, value: Value, slot: usize, guard: Option<Value>, out: &mut Vec<Inst>) {
        let ty = self.values.ty(value);
        let zero = self.zero(ty.scalar);
        let parts: SmallVec<[Value; 4]> = (slot..slot + usize::from(ty.width))
            .map(|slot| self.select(guard, self.present[slot], zero, out))
            .collect();
        if let [only] = parts[..] {
            self.subst[value.index()] = only;
        } else {
            self.parts.insert(value, parts.clone());
            out.push(Inst::Let(value, Op::Construct(parts)));
        }
    }

    fn store(&mut self, value: Value, slot: usize, guard: Option<Value>, out: &mut Vec<Inst>) {
        let ty = self.values.ty(value);
        for lane in 0..ty.width {
            let part = match self.parts.get(&value) {
                _ if ty.width == 1 => value,
                Some(parts) => parts[usize::from(lane)],
                None => {
                    let part = self.value(ty.scalar);
                    out.push(Inst::Let(part, Op::Extract(value, lane)));
                    part
                }
            };
            let slot = slot + usize::from(lane);
            self.present[slot] = self.select(guard, part, self.present[slot], out);
        }
    }

    fn branch(&mut self, cond: Value, ways: [Box<Block>; 2], mut results: Vec<Value>, out: &mut Vec<Inst>) {
        let before = self.present.clone();
        let [mut then, mut otherwise] = ways;
        self.block(&mut then);
        let yes = std::mem::replace(&mut self.present, before);
        let before = self.present.clone();
        self.block(&mut otherwise);
        let no = std::mem::replace(&mut self.present, before);
        let yields = |block: &Block| matches!(block.end, End::Yield(_));
        let slots = if yields(&then) || yields(&otherwise) { self.present.len() } else { 0 };
        for slot in 0..slots {
            // A way that does not come here has no say.
            let a = if yields(&then) { yes[slot] } else { no[slot] };
            let b = if yields(&otherwise) { no[slot] } else { yes[slot] };
            if a == self.present[slot] && b == self.present[slot] {
                continue;
            }
            let result = self.value(self.layout.slots[slot]);
            results.push(result);
            for (block, value) in [(&mut then, a), (&mut otherwise, b)] {
                if let End::Yield(values) = &mut block.end {
                    values.push(value);
                }
            }
            self.present[slot] = result;
        }
        out.push(Inst::If { cond, then, otherwise, results });
    }

    fn repeat(&mut self, mut inner: Loop) -> Loop {
        let mut stored = vec![false; self.present.len()];
        each_inst(&inner.body, &mut |inst| {
            if let Inst::Store { address, value, .. } = inst
                && let Some(slot) = self.layout.slot(address)
            {
                stored[slot..slot + usize::from(self.values.ty(*value).width)].fill(true);
            }
        });
        let carried: Vec<usize> = (0..stored.len()).filter(|slot| stored[*slot]).collect();
        for slot in &carried {
            inner.init.push(self.present[*slot]);
            let param = self.value(self.layout.slots[*slot]);
            inner.params.push(param);
            self.present[*slot] = param;
        }
        self.carried.push(carried);
        self.block(&mut inner.body);
        for slot in self.carried.pop().unwrap_or_default() {
            let result = self.value(self.layout.slots[slot]);
            inner.results.push(result);
            self.present[slot] = result;
        }
        inner
    }
}

/// Drops the arrays that nothing reads, with what is stored to them.
fn drop_unused(kernel: &mut Kernel) {
    let mut read = vec![false; kernel.locals.len()];
    each_inst(&kernel.body, &mut |inst| {
        if let (Some((Address { memory: Memory::Local(local), .. }, _)), false) =
            (access(inst), matches!(inst, Inst::Store { .. }))
        {
            read[*local as usize] = true;
        }
    });
    if !read.contains(&false) {
        return;
    }
    let mut next = 0;
    let places: Vec<Option<u32>> = read
        .iter()
        .map(|read| {
            next += u32::from(*read);
            read.then(|| next - 1)
        })
        .collect();
    renumber(&mut kernel.body, &places);
    let mut kept = read.into_iter();
    kernel.locals.retain(|_| kept.next().unwrap_or(true));
}

fn renumber(block: &mut Block, places: &[Option<u32>]) {
    let place = |address: &Address| match address.memory {
        Memory::Local(local) => places[local as usize].map(Memory::Local),
        memory => Some(memory),
    };
    block.insts.retain_mut(|inst| match inst {
        Inst::Let(_, Op::Load { address, .. }) | Inst::Store { address, .. } | Inst::Atomic { address, .. } => {
            match place(address) {
                Some(memory) => {
                    address.memory = memory;
                    true
                }
                None => false,
            }
        }
        inst => {
            blocks_mut(inst).for_each(|block| renumber(block, places));
            true
        }
    });
}
