//! Another order of instructions, for code with far more values than registers.
//!
//! The vectors of a large workgroup go through a step one after the other, so that all of them wait on the stack for the next step. Here
//! what a result is made of is made right before it, one result after the other: most values are then needed soon after they are made,
//! and only those that other vectors need wait.

use std::ops::RangeInclusive;

use super::asm::Len;
use super::hash::{Map, Set};
use super::mir::{At, Class, LaneOp, M, R, Role, Src};

/// Instructions without a jump or a scalar between them below which their order is left as it is.
const SHORTEST: usize = 128;

/// Bytes of workgroup memory that are told apart.
const GRAIN: i32 = 32;

/// Where memories begin: those of buffers, and that of the workgroup, which is none of them.
#[derive(Clone, Copy)]
pub(super) struct Memories<'a> {
    pub(super) buffers: &'a [R],
    pub(super) shared: R,
}

/// The memory that an instruction touches.
enum Touched {
    /// Buffers may be bound to the same memory.
    Buffers,
    /// Workgroup memory, at known places.
    Shared(RangeInclusive<i32>),
}

/// The code with the long runs of vector instructions in the order of what they end in.
pub(super) fn by_results(code: &[M], memories: Memories<'_>) -> Vec<M> {
    let mut out = Vec::with_capacity(code.len());
    let mut rest = code;
    while !rest.is_empty() {
        let run = memories.run(rest);
        if run >= SHORTEST {
            let mut needs = Needs {
                memories,
                count: 0,
                registers: Map::default(),
                buffers: Last::default(),
                shared: Map::default(),
            };
            let before: Vec<Vec<u32>> = rest[..run].iter().map(|m| needs.next(*m)).collect();
            out.extend(ordered(&before).into_iter().map(|at| rest[at as usize]));
        } else {
            out.extend_from_slice(&rest[..run]);
        }
        let others = rest[run..].iter().position(|m| memories.is_movable(m)).unwrap_or(rest.len() - run);
        out.extend_from_slice(&rest[run..run + others]);
        rest = &rest[run + others..];
    }
    out
}

impl Memories<'_> {
    /// Instructions that can be in another order. What they store in workgroup memory none of them loads again: a load that takes from
    /// two stores has to wait until both are done, so they had better be long ago.
    fn run(self, code: &[M]) -> usize {
        let mut stored: Set<i32> = Set::default();
        let ends = |m: &M| {
            if !self.is_movable(m) {
                return true;
            }
            match self.access(m) {
                Some((Touched::Shared(grains), true)) => stored.extend(grains),
                Some((Touched::Shared(mut grains), false)) => return grains.any(|grain| stored.contains(&grain)),
                _ => {}
            }
            false
        };
        code.iter().position(ends).unwrap_or(code.len())
    }

    /// It changes vectors and masks, or moves them between registers and memories.
    fn is_movable(self, m: &M) -> bool {
        match m {
            M::Vec(_) | M::Choose(_) | M::Blendv { .. } | M::VStore { .. } => {
                accessed(m).is_none() || self.access(m).is_some()
            }
            M::Mask3 { .. } | M::MaskNot { .. } | M::MaskShift { .. } => true,
            M::Mov { dst, src } => dst.class() != Class::General && src.class() != Class::General,
            _ => false,
        }
    }

    /// What a vector instruction reads or writes (true) of the memories.
    fn access(self, m: &M) -> Option<(Touched, bool)> {
        let (at, len, writes) = accessed(m)?;
        if self.buffers.contains(&at.base) {
            return Some((Touched::Buffers, writes));
        }
        let known = at.base == self.shared && at.index.is_none();
        let grains = at.disp.div_euclid(GRAIN)..=(at.disp + len.bytes() - 1).div_euclid(GRAIN);
        known.then_some((Touched::Shared(grains), writes))
    }
}

/// Where a vector instruction reads or writes memory (true), this many bytes of it at most.
fn accessed(m: &M) -> Option<(At, Len, bool)> {
    match *m {
        M::VStore { at, len, .. } => Some((at, len, true)),
        M::Vec(LaneOp { b: Src::At(at), len, .. }) | M::Choose(LaneOp { b: Src::At(at), len, .. }) => {
            Some((at, len, false))
        }
        M::Blendv { b: Src::At(at), len, .. } => Some((at, len, false)),
        _ => None,
    }
}

/// An order in which everything comes after what it needs: for each that nothing else needs, what it needs and then itself.
fn ordered(before: &[Vec<u32>]) -> Vec<u32> {
    let mut needed = vec![false; before.len()];
    before.iter().flatten().for_each(|&at| needed[at as usize] = true);
    let (mut order, mut seen) = (Vec::with_capacity(before.len()), vec![false; before.len()]);
    let mut open: Vec<(u32, usize)> = Vec::new();
    for root in (0..before.len()).filter(|&at| !needed[at]) {
        open.push((root as u32, 0));
        seen[root] = true;
        while let Some((at, next)) = open.last_mut() {
            match before[*at as usize].get(*next) {
                Some(&other) => {
                    *next += 1;
                    if !std::mem::replace(&mut seen[other as usize], true) {
                        open.push((other, 0));
                    }
                }
                None => {
                    order.push(*at);
                    open.pop();
                }
            }
        }
    }
    order
}

/// Who wrote something last, and who has read it since.
#[derive(Clone, Default)]
struct Last {
    written: Option<u32>,
    read: Vec<u32>,
}

impl Last {
    fn read(&mut self, by: u32, before: &mut Vec<u32>) {
        before.extend(self.written);
        self.read.push(by);
    }

    fn write(&mut self, by: u32, before: &mut Vec<u32>) {
        before.extend(self.written.replace(by));
        before.append(&mut self.read);
    }
}

/// Finds what each instruction of a run has to come after.
struct Needs<'a> {
    memories: Memories<'a>,
    count: u32,
    registers: Map<R, Last>,
    buffers: Last,
    shared: Map<i32, Last>,
}

impl Needs<'_> {
    fn next(&mut self, mut m: M) -> Vec<u32> {
        let (by, mut before) = (self.count, Vec::new());
        self.count += 1;
        m.visit(&mut |r, role| {
            // No instruction of a run writes a scalar.
            if r.class() == Class::General {
                return;
            }
            let last = self.registers.entry(*r).or_default();
            if role != Role::Def {
                last.read(by, &mut before);
            }
            if matches!(role, Role::Def | Role::Both) {
                last.write(by, &mut before);
            }
        });
        if let Some((touched, writes)) = self.memories.access(&m) {
            let mut touch = |last: &mut Last| match writes {
                true => last.write(by, &mut before),
                false => last.read(by, &mut before),
            };
            match touched {
                Touched::Buffers => touch(&mut self.buffers),
                Touched::Shared(grains) => grains.for_each(|grain| touch(self.shared.entry(grain).or_default())),
            }
        }
        before.retain(|&other| other != by);
        before.sort_unstable();
        before.dedup();
        before
    }
}

#[cfg(test)]
mod tests {
    use super::super::ops;
    use super::*;

    /// The registers that an instruction reads or writes (true).
    fn registers(m: &M) -> Vec<(R, bool)> {
        let mut registers = Vec::new();
        let mut m = *m;
        m.visit(&mut |r, role| {
            if r.class() == Class::Vector {
                registers.extend((role != Role::Def).then_some((*r, false)));
                registers.extend(matches!(role, Role::Def | Role::Both).then_some((*r, true)));
            }
        });
        registers
    }

    /// The order of two instructions matters: one of them writes what the other one reads or writes.
    fn meet(a: &M, b: &M, memories: Memories<'_>) -> bool {
        let memory = accessed(a).zip(accessed(b)).is_some_and(|((at, _, writes), (bt, _, also))| {
            let shared = at.base == memories.shared;
            // Nothing is known of where buffers lie.
            let near = shared == (bt.base == memories.shared) && (!shared || (at.disp - bt.disp).abs() < 32);
            near && (writes || also)
        });
        let others = registers(b);
        memory || registers(a).iter().any(|(r, writes)| others.iter().any(|(s, also)| r == s && (*writes || *also)))
    }

    #[test]
    fn what_meets_stays_in_order() {
        let (shared, buffers) = (R::new(Class::General, 0), [R::new(Class::General, 1), R::new(Class::General, 2)]);
        let memories = Memories { buffers: &buffers, shared };
        let mut state = 7u32;
        let mut next = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % below
        };
        let mut moved = 0;
        for _ in 0..20 {
            // Each number in its place tells the instructions apart.
            let code: Vec<M> = (0..400)
                .map(|number| {
                    let mut r = || R::new(Class::Vector, next(40));
                    let (dst, a, b) = (r(), r(), r());
                    let base = [shared, shared, buffers[0], buffers[1]][next(4) as usize];
                    let (kind, here) = (next(4), 8 * next(200) as i32 - 160);
                    // Seldom is anything loaded where something was stored.
                    let apart = if (kind == 1) == (next(100) > 0) { 4096 } else { 0 };
                    let at = At::new(base, if base == shared { here + apart } else { number });
                    let op = |b, a| {
                        let op = if a == R::NONE { ops::VMOVUPS } else { ops::VPADDD };
                        LaneOp { imm: Some(number as u8), ..LaneOp::plain(op, Len::L256, dst, a, b) }
                    };
                    match kind {
                        0 => M::Vec(op(Src::At(at), R::NONE)),
                        1 => M::VStore { op: ops::VMOVUPS_STORE, len: Len::L256, src: a, at, mask: R::NONE },
                        _ => M::Vec(op(Src::R(b), a)),
                    }
                })
                .collect();
            let ordered = by_results(&code, memories);
            let text = |m: &M| format!("{m:?}");
            let mut left: Vec<M> = code.clone();
            for m in &ordered {
                let place = left.iter().position(|other| text(other) == text(m)).expect("one of them");
                assert!(!left[..place].iter().any(|before| meet(before, m, memories)), "{m:?} comes too early");
                left.remove(place);
                moved += usize::from(place > 0);
            }
            assert!(left.is_empty());
        }
        assert!(moved > 100, "{moved}");
    }
}
