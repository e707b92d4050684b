//! Small repairs of machine instructions before they get registers: what nobody reads goes, and a vector that is loaded for one
//! instruction, or put together of two others, is made where that is, by the instruction itself where it can.

use super::asm::Label;
use super::before;
use super::constants::Constants;
use super::flags;
use super::isa::Isa;
use super::jumps;
use super::lower::Lowered;
use super::mir::{At, Class, LaneOp, M, R, Role, Src};
use super::ops;
use super::updates;

/// How often each register is read and written, per class.
pub(super) struct Counts {
    reads: [Vec<u32>; 3],
    writes: [Vec<u32>; 3],
}

impl Counts {
    pub(super) fn of(code: &mut [M], counts: [u32; 3]) -> Counts {
        let none = counts.map(|count| vec![0; count as usize]);
        let mut all = Counts { reads: none.clone(), writes: none };
        for m in code {
            m.visit(&mut |r, role| {
                let (class, index) = (r.class() as usize, r.index());
                all.reads[class][index] += u32::from(role != Role::Def);
                all.writes[class][index] += u32::from(matches!(role, Role::Def | Role::Both));
            });
        }
        all
    }

    /// The register was there when they were counted.
    pub(super) fn knows(&self, r: R) -> bool {
        r.index() < self.reads[r.class() as usize].len()
    }

    pub(super) fn reads(&mut self, r: R) -> &mut u32 {
        &mut self.reads[r.class() as usize][r.index()]
    }

    pub(super) fn writes(&self, r: R) -> u32 {
        self.writes[r.class() as usize][r.index()]
    }
}

/// Repairs the code of a kernel.
pub(super) fn tidy(lowered: &mut Lowered, isa: Isa) {
    if isa == Isa::Simd128 {
        return;
    }
    jumps::straighten(&mut lowered.code, lowered.labels);
    drop_labels(&mut lowered.code, lowered.labels);
    if isa == Isa::Avx2 {
        updates::without_choices(&mut lowered.code, &mut lowered.counts, &lowered.asm.pool);
    }
    let mut counts = Counts::of(&mut lowered.code, lowered.counts);
    flags::branch_by_comparisons(&mut lowered.code, &mut counts);
    drop_copies(&mut lowered.code, &mut counts);
    spread_from_memory(&mut lowered.code, &mut counts);
    let dead = unread(&mut lowered.code, &mut counts);
    let code = std::mem::take(&mut lowered.code);
    let mut late = Late { out: Vec::with_capacity(code.len()), waiting: Vec::new(), counts, isa };
    for (m, dead) in code.into_iter().zip(dead) {
        if !dead {
            late.push(m);
        }
    }
    late.flush();
    lowered.code = late.out;
    flags::compare_in_memory(&mut lowered.code, &mut late.counts);
    before::make_before_loops(&mut lowered.code, lowered.counts[Class::General as usize], lowered.labels);
    let constants = Constants::of(&mut lowered.code, &lowered.asm, isa);
    join_copies(&mut lowered.code, lowered.counts, |r| constants.has(r) && *late.counts.reads(r) > 1);
}

/// Takes out the labels that nothing jumps to: what waits for its use can wait across them.
fn drop_labels(code: &mut Vec<M>, labels: u32) {
    let mut wanted = vec![false; labels as usize];
    for m in &*code {
        if let M::Jump(Label(label)) | M::JumpIf(_, Label(label)) = m {
            wanted[*label as usize] = true;
        }
    }
    code.retain(|m| !matches!(m, M::Label(Label(label)) if !wanted[*label as usize]));
}

/// Gives one name to a vector that is made once and then copied to a register that is written nowhere else.
fn drop_copies(code: &mut Vec<M>, counts: &mut Counts) {
    let mut names: Vec<Option<R>> = vec![None; counts.reads[Class::Vector as usize].len()];
    let mut made = vec![false; names.len()];
    code.retain_mut(|m| match *m {
        M::Mov { dst, src } if is_copy(dst, src, counts) && made[src.index()] => {
            made[dst.index()] = true;
            let name = names[src.index()].unwrap_or(src);
            names[dst.index()] = Some(name);
            *counts.reads(name) += counts.reads[Class::Vector as usize][dst.index()];
            *counts.reads(name) -= 1;
            false
        }
        _ => {
            m.visit(&mut |r, role| {
                if r.class() == Class::Vector && matches!(role, Role::Def | Role::Both) {
                    made[r.index()] = true;
                }
            });
            true
        }
    });
    for m in code {
        m.visit(&mut |r, _| {
            if r.class() == Class::Vector
                && let Some(name) = names[r.index()]
            {
                *r = name;
            }
        });
    }
}

/// Loads a word into all lanes at once where it is loaded only to be spread. The load stays where it was, for whoever reads it; nobody does.
fn spread_from_memory(code: &mut [M], counts: &mut Counts) {
    let mut loads: Vec<(R, At)> = Vec::new();
    for m in code {
        if let M::Broadcast { len, wide: false, dst, src } = *m
            && let Some(&(_, at)) = loads.iter().find(|(r, _)| *r == src)
        {
            *counts.reads(src) -= 1;
            at.registers().for_each(|r| *counts.reads(r) += 1);
            *m = M::Vec(LaneOp::plain(ops::VBROADCASTSS, len, dst, R::NONE, Src::At(at)));
        }
        if m.changes_memory() || matches!(m, M::Label(_) | M::Jump(_) | M::JumpIf(..)) {
            loads.clear();
        }
        m.visit(&mut |r, role| {
            if role != Role::Use && r.class() == Class::General {
                loads.retain(|(loaded, at)| loaded != r && at.registers().all(|other| other != *r));
            }
        });
        if let M::Load { bytes: 4, signed: false, dst, at } = *m
            && dst.fixed().is_none()
            && at.registers().all(|other| other != dst)
        {
            loads.push((dst, at));
        }
    }
}

/// Makes what ends as a copy in the copy's own register, where nobody needs the old value of that one meanwhile: the sums of a loop stay
/// where they are, and need one register each instead of two. What is made in several steps stays apart, for the copy may live on the stack; so
/// do constants, which need no place.
fn join_copies(code: &mut Vec<M>, counts: [u32; 3], mut stays: impl FnMut(R) -> bool) {
    /// Where a register is named.
    #[derive(Clone, Copy)]
    struct Named {
        first: u32,
        /// It is written there, and not read.
        begins: bool,
        /// By how many instructions it is changed.
        changes: u32,
        last: u32,
    }
    let never = Named { first: u32::MAX, begins: false, changes: 0, last: 0 };
    let mut named = counts.map(|count| vec![never; count as usize]);
    // What a register is a copy of at first.
    let mut copies: [Vec<Option<R>>; 3] = counts.map(|count| vec![None; count as usize]);
    for (at, m) in (0..).zip(&mut *code) {
        if let M::Mov { dst, src } = *m
            && !dst.is_none()
            && dst.fixed().is_none()
            && named[dst.class() as usize][dst.index()].first == u32::MAX
        {
            copies[dst.class() as usize][dst.index()] = Some(src);
        }
        m.visit(&mut |r, role| {
            let named = &mut named[r.class() as usize][r.index()];
            if named.first == u32::MAX {
                (named.first, named.begins) = (at, role == Role::Def);
            } else if named.first == at {
                named.begins &= role == Role::Def;
            }
            named.changes += u32::from(role == Role::Both);
            named.last = at;
        });
    }
    let mut names: [Vec<Option<R>>; 3] = counts.map(|count| vec![None; count as usize]);
    // Where a register was named so far, one more than its place.
    let mut seen = counts.map(|count| vec![0u32; count as usize]);
    let mut block = 0;
    let mut joins = false;
    for (at, m) in (0..).zip(&mut *code) {
        if let M::Mov { dst, src } = *m
            && [dst, src].into_iter().all(|r| !r.is_none() && r.fixed().is_none())
            && dst != src
            && dst.class() == src.class()
            && !stays(src)
        {
            let class = dst.class() as usize;
            let Named { first, begins, changes, last } = named[class][src.index()];
            let is_short = changes == 0 || changes == 1 && copies[class][src.index()] == Some(dst);
            if begins && is_short && last == at && first >= block && seen[class][dst.index()] <= first + 1 {
                names[class][src.index()] = Some(dst);
                let target = &mut named[class][dst.index()];
                // Seen from here on it was made where the other was.
                if target.first == at {
                    (target.first, target.begins) = (first, true);
                }
                joins = true;
            }
        }
        m.visit(&mut |r, _| seen[r.class() as usize][r.index()] = at + 1);
        if matches!(m, M::Label(_) | M::Jump(_) | M::JumpIf(..)) {
            block = at + 1;
        }
    }
    if !joins {
        return;
    }
    for m in &mut *code {
        m.visit(&mut |r, _| {
            while let Some(name) = names[r.class() as usize][r.index()] {
                *r = name;
            }
        });
    }
    code.retain(|m| !matches!(m, M::Mov { dst, src } if dst == src));
}

fn is_copy(dst: R, src: R, counts: &Counts) -> bool {
    [dst, src].into_iter().all(|r| r.fixed().is_none() && r.class() == Class::Vector && counts.writes(r) == 1)
}

/// The instructions that only make what nobody reads.
fn unread(code: &mut [M], counts: &mut Counts) -> Vec<bool> {
    let mut dead = vec![false; code.len()];
    for at in (0..code.len()).rev() {
        let m = &mut code[at];
        let may_set_flags = m.makes().is_none();
        let Some(made) = m.makes().or_else(|| before::scalar_of(m)) else { continue };
        // Its own reads don't count: a register is cleared by an instruction that reads it.
        let mut own = 0;
        m.visit(&mut |r, role| own += u32::from(*r == made && role != Role::Def));
        if *counts.reads(made) > own || may_set_flags && before::reads_flags(code, at + 1) {
            continue;
        }
        dead[at] = true;
        code[at].visit(&mut |r, role| {
            if role != Role::Def {
                *counts.reads(*r) -= 1;
            }
        });
    }
    dead
}

/// Code whose loads wait for their use.
struct Late {
    out: Vec<M>,
    waiting: Vec<(R, M)>,
    counts: Counts,
    isa: Isa,
}

/// Loads that wait at most.
const MOST_WAITING: usize = 64;

impl Late {
    fn flush(&mut self) {
        self.out.extend(self.waiting.drain(..).map(|(_, load)| load));
    }

    fn push(&mut self, mut m: M) {
        if let Some(r) = self.can_wait(&m) {
            if self.waiting.len() == MOST_WAITING {
                self.flush();
            }
            self.make_operands(&mut m);
            return self.waiting.push((r, m));
        }
        if self.waiting.is_empty() {
            return self.out.push(m);
        }
        if self.ends_waiting(&mut m) {
            self.flush();
            return self.out.push(m);
        }
        if let M::Vec(v) = &mut m {
            self.fold(v);
        }
        self.make_operands(&mut m);
        self.out.push(m);
    }

    /// Makes what waits and is needed now.
    fn make_operands(&mut self, m: &mut M) {
        let (waiting, out) = (&mut self.waiting, &mut self.out);
        m.visit(&mut |r, role| {
            if role != Role::Def
                && r.class() == Class::Vector
                && let Some(place) = waiting.iter().position(|(other, _)| other == r)
            {
                out.push(waiting.remove(place).1);
            }
        });
    }

    /// A whole vector is loaded or put together for one use.
    fn can_wait(&mut self, m: &M) -> Option<R> {
        let M::Vec(LaneOp { op, len, dst, a, b, mask, .. }) = m else { return None };
        let once = |r: &R| r.fixed().is_none() && self.counts.writes(*r) == 1;
        let lasts = match (*op, b) {
            (ops::VMOVUPS, Src::At(_)) => true,
            (ops::VALIGND, Src::R(b)) => once(a) && once(b),
            _ => false,
        };
        let alone = lasts && mask.is_none() && *len == self.isa.len() && once(dst);
        (alone && *self.counts.reads(*dst) == 1).then_some(*dst)
    }

    /// The instruction may change memory, or an address, or where the code goes on.
    fn ends_waiting(&self, m: &mut M) -> bool {
        let mut changes = m.changes_memory() || matches!(m, M::Label(_) | M::Jump(_) | M::JumpIf(..));
        m.visit(&mut |r, role| {
            let writes = matches!(role, Role::Def | Role::Both);
            changes |= writes && r.class() == Class::General && self.counts.writes(*r) > 1;
        });
        changes
    }

    /// Makes a load that waits an operand of the instruction that needs it.
    fn fold(&mut self, v: &mut LaneOp) {
        let is_load = |m: &M| matches!(m, M::Vec(load) if matches!(load.b, Src::At(_)));
        let place = |waiting: &[(R, M)], wanted: R| waiting.iter().position(|(r, m)| *r == wanted && is_load(m));
        let Src::R(b) = v.b else { return };
        if !v.mask.is_none() || !v.folds() || v.len != self.isa.len() {
            return;
        }
        let mut found = place(&self.waiting, b);
        if found.is_none() && !v.a.is_none() && v.op.commutes() {
            found = place(&self.waiting, v.a);
            if found.is_some() {
                v.a = b;
            }
        }
        if let Some(found) = found
            && let (_, M::Vec(load)) = self.waiting.remove(found)
        {
            v.b = load.b;
        }
    }
}
