//! Scalars of a loop that no round changes, such as where the row of a tile begins that a piece of a workgroup reads: they are made once
//! before the loop. Only the innermost loops are looked at, whose few instructions count.

use super::asm::{Alu, Label};
use super::hash::{Map, Set};
use super::mir::{Class, GSrc, M, R, Role};

/// Scalars that a loop may name for there to be registers for all of them; of others some would wait on the stack.
const MOST_KEPT: usize = 10;

/// Makes what no round of a loop changes before the loop.
pub(super) fn make_before_loops(code: &mut Vec<M>, scalars: u32, labels: u32) {
    let loops = innermost_loops(code, labels);
    if loops.is_empty() {
        return;
    }
    let mut once = vec![0u32; scalars as usize];
    for m in &mut *code {
        m.visit(&mut |r, role| {
            if r.class() == Class::General && role != Role::Use {
                once[r.index()] += 1;
            }
        });
    }
    let once: Vec<bool> = once.into_iter().map(|writes| writes == 1).collect();
    let moved: Vec<(usize, Vec<usize>)> = loops
        .into_iter()
        .map(|(start, end)| (start, unchanging(code, start, end, &once)))
        .filter(|(_, steps)| !steps.is_empty())
        .collect();
    if moved.is_empty() {
        return;
    }
    let gone: Set<usize> = moved.iter().flat_map(|(_, steps)| steps.iter().copied()).collect();
    let mut before: Map<usize, Vec<M>> =
        moved.into_iter().map(|(start, steps)| (start, steps.into_iter().map(|step| code[step]).collect())).collect();
    let mut out = Vec::with_capacity(code.len());
    for (at, m) in code.iter().enumerate() {
        out.extend(before.remove(&at).into_iter().flatten());
        if !gone.contains(&at) {
            out.push(*m);
        }
    }
    *code = out;
}

/// The first and last instructions of loops that have none inside, and into which no way leads but from just before them.
fn innermost_loops(code: &[M], labels: u32) -> Vec<(usize, usize)> {
    let mut bound = vec![usize::MAX; labels as usize];
    // The first and the last jump to each label.
    let mut jumps = vec![(usize::MAX, 0); labels as usize];
    for (at, m) in code.iter().enumerate() {
        match m {
            M::Label(Label(label)) => bound[*label as usize] = at,
            M::Jump(Label(label)) | M::JumpIf(_, Label(label)) => {
                let (first, last) = &mut jumps[*label as usize];
                (*first, *last) = ((*first).min(at), (*last).max(at));
            }
            _ => {}
        }
    }
    let mut loops: Vec<(usize, usize)> = bound
        .iter()
        .zip(&jumps)
        .filter(|(start, (first, last))| **start != usize::MAX && *first != usize::MAX && **start <= *last)
        .map(|(&start, &(_, last))| (start, last))
        .collect();
    loops.sort_unstable();
    let starts: Vec<usize> = loops.iter().map(|(start, _)| *start).collect();
    let has_none_inside = |&(start, end): &(usize, usize)| {
        let next = starts.partition_point(|&other| other <= start);
        starts.get(next).is_none_or(|&other| other > end)
    };
    let is_entered_from_before = |&(start, end): &(usize, usize)| {
        start > 0
            && !matches!(code[start - 1], M::Jump(_))
            && code[start..=end].iter().all(|m| match m {
                M::Label(Label(label)) => {
                    let (first, last) = jumps[*label as usize];
                    first == usize::MAX || (first >= start && last <= end)
                }
                _ => true,
            })
    };
    loops.retain(|range| has_none_inside(range) && is_entered_from_before(range));
    loops
}

/// The instructions of a loop that make the same in each round, and only scalars that are made nowhere else.
fn unchanging(code: &mut [M], start: usize, end: usize, once: &[bool]) -> Vec<usize> {
    if reads_flags(code, start) {
        return Vec::new();
    }
    let mut written: Set<R> = Set::default();
    for m in &mut code[start..=end] {
        m.visit(&mut |r, role| {
            if r.class() == Class::General && role != Role::Use {
                written.insert(*r);
            }
        });
    }
    let mut steps: Vec<usize> = Vec::new();
    for at in start + 1..end {
        let Some(made) = scalar_of(&code[at]).filter(|made| once[made.index()]) else { continue };
        let mut stays = true;
        code[at].visit(&mut |r, role| stays &= role == Role::Def || !written.contains(r));
        if stays && !reads_flags(code, at + 1) {
            written.remove(&made);
            steps.push(at);
        }
    }
    // What others that are moved are made of needs no register in the loop, unless the loop needs it, too.
    let moved: Set<usize> = steps.iter().copied().collect();
    let mut needed: Set<R> = Set::default();
    for at in (start..=end).filter(|at| !moved.contains(at)) {
        code[at].visit(&mut |r, role| {
            if role != Role::Def && r.class() == Class::General {
                needed.insert(*r);
            }
        });
    }
    if needed.len() <= MOST_KEPT { steps } else { Vec::new() }
}

/// What an instruction makes that does nothing but compute a scalar, and can be done anywhere.
pub(super) fn scalar_of(m: &M) -> Option<R> {
    match *m {
        M::Lea { dst, .. }
        | M::Alu { op: Alu::Add | Alu::Sub | Alu::And | Alu::Or | Alu::Xor, dst, .. }
        | M::Mul { dst, .. }
        | M::Shift { dst, count: GSrc::Imm(_), .. }
        | M::Extend { dst, .. } => Some(dst),
        _ => None,
    }
    .filter(|r| r.fixed().is_none() && r.class() == Class::General)
}

/// What is compared before an instruction is still asked for from there on.
pub(super) fn reads_flags(code: &[M], at: usize) -> bool {
    for m in &code[at..] {
        match m {
            // Nobody knows what is behind a jump.
            M::JumpIf(..) | M::Cmov { .. } | M::Set { .. } | M::Jump(_) => return true,
            M::Cmp { .. }
            | M::CmpWord { .. }
            | M::Test { .. }
            | M::MaskTest { .. }
            | M::Alu { .. }
            | M::Mul { .. }
            | M::Shift { .. }
            | M::Neg { .. }
            | M::Call { .. } => return false,
            _ => {}
        }
    }
    false
}
