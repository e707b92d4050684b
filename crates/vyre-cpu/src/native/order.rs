//! Another order of instructions, for code with far more values than registers.
//!
//! The vectors of a large workgroup go through a step one after the other, so that all of them wait on the stack for the next step. Here
//! what a result is made of is made right before it, one result after the other: most values are then needed soon after they are made,
//! and only those that other vectors need wait.

use super::hash::Map;
use super::mir::{At, Class, LaneOp, M, R, Role, Src};

/// Instructions without a jump or a scalar between them below which their order is left as it is.
const SHORTEST: usize = 128;

/// The code with the long runs of vector instructions in the order of what they end in. `buffers`: where those begin.
pub(super) fn by_results(code: &[M], buffers: &[R]) -> Vec<M> {
    let mut out = Vec::with_capacity(code.len());
    let mut rest = code;
    while !rest.is_empty() {
        let run = rest.iter().position(|m| !is_movable(m, buffers)).unwrap_or(rest.len());
        if run >= SHORTEST {
            let mut needs = Needs::default();
            let before: Vec<Vec<u32>> = rest[..run].iter().map(|m| needs.next(*m)).collect();
            out.extend(ordered(&before).into_iter().map(|at| rest[at as usize]));
        } else {
            out.extend_from_slice(&rest[..run]);
        }
        let others = rest[run..].iter().position(|m| is_movable(m, buffers)).unwrap_or(rest.len() - run);
        out.extend_from_slice(&rest[run..run + others]);
        rest = &rest[run + others..];
    }
    out
}

/// It changes vectors and masks, or moves them between registers and buffers. Workgroup memory is left alone: a load that takes from two
/// stores has to wait until both are done, so they had better be long ago.
fn is_movable(m: &M, buffers: &[R]) -> bool {
    match m {
        M::Vec(_) | M::Choose(_) | M::Blendv { .. } | M::VStore { .. } => {
            access(m).is_none_or(|(at, _)| buffers.contains(&at.base))
        }
        M::Mask3 { .. } | M::MaskNot { .. } | M::MaskShift { .. } => true,
        M::Mov { dst, src } => dst.class() != Class::General && src.class() != Class::General,
        _ => false,
    }
}

/// Where a vector instruction reads or writes memory (true).
fn access(m: &M) -> Option<(At, bool)> {
    match *m {
        M::VStore { at, .. } => Some((at, true)),
        M::Vec(LaneOp { b: Src::At(at), .. }) | M::Choose(LaneOp { b: Src::At(at), .. }) => Some((at, false)),
        M::Blendv { b: Src::At(at), .. } => Some((at, false)),
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
#[derive(Default)]
struct Needs {
    count: u32,
    registers: Map<R, Last>,
    /// Buffers may be bound to the same memory.
    buffers: Last,
}

impl Needs {
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
        match access(&m) {
            Some((_, true)) => self.buffers.write(by, &mut before),
            Some((_, false)) => self.buffers.read(by, &mut before),
            None => {}
        }
        before.retain(|&other| other != by);
        before.sort_unstable();
        before.dedup();
        before
    }
}
