//! Another order of instructions, for code with far more values than registers.
//!
//! The vectors of a large workgroup go through a step one after the other, so that all of them wait on the stack for the next step. Here
//! what a result is made of is made right before it, one result after the other: most values are then needed soon after they are made,
//! and only those that other vectors need wait.

use super::hash::Map;
use super::mir::{At, Class, M, R, Role, Src};

/// Instructions without a jump or a scalar between them below which their order is left as it is.
const SHORTEST: usize = 128;

/// Memories that can't be the same.
pub(super) struct Memories {
    /// Where the workgroup's memory begins.
    pub(super) shared: R,
    pub(super) buffers: Vec<R>,
}

/// The code with the long runs of vector instructions in the order of what they end in.
pub(super) fn by_results(code: &[M], memories: &Memories) -> Vec<M> {
    let mut out = Vec::with_capacity(code.len());
    let mut rest = code;
    while !rest.is_empty() {
        let run = rest.iter().position(|m| !memories.is_movable(m)).unwrap_or(rest.len());
        if run >= SHORTEST {
            let mut needs = Needs::default();
            let before: Vec<Vec<u32>> = rest[..run].iter().map(|m| needs.next(*m, memories)).collect();
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

impl Memories {
    /// The instruction changes vectors, masks and memory only, and it is known which memory it reads or writes.
    fn is_movable(&self, m: &M) -> bool {
        match m {
            M::Vec(_) | M::Choose(_) | M::Blendv { .. } | M::VStore { .. } => {
                access(m).is_none_or(|(at, ..)| self.is_word(at) || self.buffers.contains(&at.base))
            }
            M::Mask3 { .. } | M::MaskNot { .. } | M::MaskShift { .. } => true,
            M::Mov { dst, src } => dst.class() != Class::General && src.class() != Class::General,
            _ => false,
        }
    }

    /// A known place of workgroup memory.
    fn is_word(&self, at: At) -> bool {
        at.base == self.shared && !self.shared.is_none() && at.index.is_none()
    }
}

/// Where a vector instruction reads or writes memory (true), and how many bytes at most.
fn access(m: &M) -> Option<(At, i32, bool)> {
    match *m {
        M::VStore { at, len, .. } => Some((at, len.bytes(), true)),
        M::Vec(v) | M::Choose(v) => match v.b {
            Src::At(at) => Some((at, v.len.bytes(), false)),
            _ => None,
        },
        M::Blendv { b: Src::At(at), len, .. } => Some((at, len.bytes(), false)),
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
    /// Words of workgroup memory, by their number.
    words: Map<i32, Last>,
    /// Buffers may be bound to the same memory.
    buffers: Last,
}

impl Needs {
    fn next(&mut self, mut m: M, memories: &Memories) -> Vec<u32> {
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
        if let Some((at, bytes, writes)) = access(&m) {
            let mut touch =
                |last: &mut Last| if writes { last.write(by, &mut before) } else { last.read(by, &mut before) };
            if memories.is_word(at) {
                let words = at.disp.div_euclid(4)..=(at.disp + bytes - 1).div_euclid(4);
                words.for_each(|word| touch(self.words.entry(word).or_default()));
            } else {
                touch(&mut self.buffers);
            }
        }
        before.retain(|&other| other != by);
        before.sort_unstable();
        before.dedup();
        before
    }
}
