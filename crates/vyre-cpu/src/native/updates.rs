//! What changes in some lanes only, with AVX2. Choosing between two vectors takes it three times as long as any other step, but where a number is added to,
//! say, the other one can be made zero in the lanes that stay. And of two choices one within the other, the masks are put together instead.

use super::asm::{Len, VOp};
use super::hash::Map;
use super::mir::{Class, LaneOp, M, R, Role, Src};
use super::ops;
use super::tidy::Counts;

/// Takes choices out of code for AVX2.
pub(super) fn without_choices(code: &mut Vec<M>, counts: &mut [u32; 3], pool: &[u8]) {
    if !code.iter().any(|m| matches!(m, M::Blendv { .. })) {
        return;
    }
    let registers = counts[Class::Vector as usize] as usize;
    let mut updates = Updates {
        used: Counts::of(code, *counts),
        facts: Facts::of(code, registers, pool),
        out: Vec::with_capacity(code.len()),
        written: vec![0; registers],
        block: 1,
        copies: Map::default(),
        made: Map::default(),
        both: Map::default(),
        counts,
        pool,
    };
    for mut m in std::mem::take(code) {
        let taken = match m {
            M::Blendv { len: Len::L256, dst, a, b: Src::R(b), mask } => updates.choice(dst, a, b, mask),
            _ => false,
        };
        if !taken {
            updates.push(&mut m);
        }
    }
    *code = updates.out;
}

/// Lanes: those of a mask, or all others.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Lanes {
    mask: R,
    others: bool,
}

/// What a vector is in some lanes, where it is something else in the others.
#[derive(Clone, Copy)]
enum Change {
    /// Another vector.
    To(R),
    /// What an operation makes of it, with an operand that changes nothing where it is zero.
    By(VOp, Src),
}

/// A vector that is another one but in some lanes.
#[derive(Clone, Copy)]
struct Changed {
    of: R,
    change: Change,
    /// All where none are named.
    lanes: Option<Lanes>,
}

struct Updates<'a> {
    used: Counts,
    facts: Facts,
    out: Vec<M>,
    /// Behind which instruction a register was written last, counted from one.
    written: Vec<usize>,
    /// Behind which the present stretch without labels begins.
    block: usize,
    /// What registers are copies of, since when.
    copies: Map<R, (R, usize)>,
    /// What was made in this stretch.
    made: Map<R, (Changed, usize)>,
    both: Map<(Lanes, Lanes), (R, usize)>,
    counts: &'a mut [u32; 3],
    pool: &'a [u8],
}

impl Updates<'_> {
    fn push(&mut self, m: &mut M) {
        let now = self.out.len() + 1;
        if matches!(m, M::Label(_) | M::Jump(_) | M::Call { .. }) {
            self.block = now + 1;
        }
        m.visit(&mut |r, role| {
            if r.class() == Class::Vector && matches!(role, Role::Def | Role::Both) {
                self.written[r.index()] = now;
            }
        });
        match *m {
            M::Mov { dst, src } if dst.class() == Class::Vector && src.class() == Class::Vector => {
                self.copies.insert(dst, (src, now));
            }
            M::Vec(v)
                if v.mask.is_none() && !v.acc && v.imm.is_none() && v.len == Len::L256 && self.is_passed_on(v.dst) =>
            {
                let by = |of: R, by: Src| Changed { of, change: Change::By(v.op, by), lanes: None };
                let changed = match (v.op, v.b) {
                    (ops::VSUBPS | ops::VPSUBD | ops::VPSUBQ, b) if !matches!(b, Src::At(_)) => Some(by(v.a, b)),
                    (ops::VADDPS | ops::VPADDD | ops::VPADDQ | ops::VPXORD | ops::VPORD, b)
                        if !matches!(b, Src::At(_)) =>
                    {
                        Some(by(v.a, b))
                    }
                    _ => None,
                };
                if let Some(changed) = changed {
                    self.made.insert(v.dst, (changed, now));
                }
            }
            M::Blendv { dst, a, b: Src::R(b), mask, .. } if self.is_passed_on(dst) => {
                let lanes = Some(Lanes { mask, others: false });
                self.made.insert(dst, (Changed { of: a, change: Change::To(b), lanes }, now));
            }
            _ => {}
        }
        self.out.push(*m);
    }

    fn emit(&mut self, mut m: M) {
        self.push(&mut m);
    }

    fn vector(&mut self) -> R {
        let count = &mut self.counts[Class::Vector as usize];
        *count += 1;
        self.written.push(0);
        R::new(Class::Vector, *count - 1)
    }

    /// Made once, for one instruction.
    fn is_passed_on(&mut self, r: R) -> bool {
        self.used.knows(r) && self.used.writes(r) == 1 && *self.used.reads(r) == 1
    }

    /// The register is what it was behind an instruction of this stretch.
    fn is_since(&self, r: R, at: usize) -> bool {
        self.written[r.index()] <= at
    }

    /// Both hold the same.
    fn is_same(&self, a: R, b: R) -> bool {
        let copies = |to: R, from: R| {
            matches!(self.copies.get(&to), Some(&(of, at))
                if of == from && at >= self.block && self.written[to.index()] == at && self.is_since(from, at))
        };
        a == b || copies(a, b) || copies(b, a)
    }

    /// How `y` comes from `x`, if it was made so and nothing of that has changed.
    fn change(&self, x: R, y: R) -> Option<Changed> {
        let &(mut changed, at) = self.made.get(&y)?;
        if at < self.block {
            return None;
        }
        if !self.is_same(changed.of, x) {
            // The other way round.
            let (of, change, lanes) = match (changed.change, changed.lanes) {
                (Change::By(op, Src::R(by)), None) if commutes(op) => (by, Change::By(op, Src::R(changed.of)), None),
                (Change::To(other), Some(Lanes { mask, others })) => {
                    (other, Change::To(changed.of), Some(Lanes { mask, others: !others }))
                }
                _ => return None,
            };
            changed = Changed { of, change, lanes };
        }
        let operand = match changed.change {
            Change::To(other) => Some(other),
            Change::By(ops::VADDPS, _) if !self.facts.never_minus_zero(changed.of) => return None,
            Change::By(_, Src::R(by)) => Some(by),
            Change::By(..) => None,
        };
        let named = [Some(changed.of), operand, changed.lanes.map(|lanes| lanes.mask)];
        let lasts = self.is_same(changed.of, x) && named.into_iter().flatten().all(|r| self.is_since(r, at));
        lasts.then_some(changed)
    }

    /// `dst = mask ? b : a`; false where the instruction for that does it best.
    fn choice(&mut self, dst: R, a: R, b: R, mask: R) -> bool {
        for (x, y, others) in [(a, b, false), (b, a, true)] {
            let Some(changed) = self.change(x, y) else { continue };
            let lanes = Lanes { mask, others };
            let lanes = match changed.lanes {
                Some(inner) => self.common(lanes, inner),
                None => lanes,
            };
            self.put(dst, x, changed.change, lanes);
            return true;
        }
        // Zero in some lanes.
        let (op, kept) = match (self.facts.is_zero(a), self.facts.is_zero(b)) {
            (true, _) => (ops::VPANDD, b),
            (_, true) => (ops::VPANDND, a),
            _ => return false,
        };
        self.emit(lane_op(op, dst, mask, Src::R(kept)));
        true
    }

    /// The lanes that are among both.
    fn common(&mut self, outer: Lanes, inner: Lanes) -> Lanes {
        let others = outer.others && inner.others;
        let found = self.both.get(&(outer, inner)).copied();
        let lasts = |&(both, at): &(R, usize)| {
            at >= self.block && [outer.mask, inner.mask, both].into_iter().all(|r| self.is_since(r, at))
        };
        if let Some((mask, _)) = found.filter(lasts) {
            return Lanes { mask, others };
        }
        let mask = self.vector();
        let (op, a, b) = match (outer.others, inner.others) {
            (true, true) => (ops::VPORD, outer.mask, inner.mask),
            (true, false) => (ops::VPANDND, outer.mask, inner.mask),
            (false, true) => (ops::VPANDND, inner.mask, outer.mask),
            (false, false) => (ops::VPANDD, outer.mask, inner.mask),
        };
        self.emit(lane_op(op, mask, a, Src::R(b)));
        self.both.insert((outer, inner), (mask, self.out.len()));
        Lanes { mask, others }
    }

    /// What is made of `x` in some lanes.
    fn put(&mut self, dst: R, x: R, change: Change, lanes: Lanes) {
        let Lanes { mask, others } = lanes;
        let (op, by) = match change {
            Change::To(other) => {
                let (a, b) = if others { (other, x) } else { (x, other) };
                return self.emit(M::Blendv { len: Len::L256, dst, a, b: Src::R(b), mask });
            }
            Change::By(op, by) => (op, by),
        };
        // A mask is minus one.
        let step = match (op, self.facts.constant(by, self.pool)) {
            (ops::VPADDD, Some(1)) | (ops::VPSUBD, Some(u32::MAX)) => Some((ops::VPSUBD, ops::VPADDD)),
            (ops::VPSUBD, Some(1)) | (ops::VPADDD, Some(u32::MAX)) => Some((ops::VPADDD, ops::VPSUBD)),
            _ => None,
        };
        match step {
            Some((forth, _)) if !others => self.emit(lane_op(forth, dst, x, Src::R(mask))),
            Some((_, back)) => {
                let all = self.vector();
                self.emit(lane_op(op, all, x, by));
                self.emit(lane_op(back, dst, all, Src::R(mask)));
            }
            None => {
                let part = self.vector();
                let and = if others { ops::VPANDND } else { ops::VPANDD };
                self.emit(lane_op(and, part, mask, by));
                self.emit(lane_op(op, dst, x, Src::R(part)));
            }
        }
        if self.is_passed_on(dst) {
            let changed = Changed { of: x, change, lanes: Some(lanes) };
            self.made.insert(dst, (changed, self.out.len()));
        }
    }
}

fn lane_op(op: VOp, dst: R, a: R, b: Src) -> M {
    M::Vec(LaneOp::plain(op, Len::L256, dst, a, b))
}

fn commutes(op: VOp) -> bool {
    matches!(op, ops::VADDPS | ops::VPADDD | ops::VPADDQ | ops::VPXORD | ops::VPORD)
}

/// What is known of registers throughout.
struct Facts {
    /// No lane is ever −0, as a float.
    never_minus_zero: Vec<bool>,
    zero: Vec<bool>,
    constants: Vec<Option<u32>>,
}

/// Of which registers it depends that another one is never −0.
enum Rests {
    On(R),
    OnBoth(R, R),
    OnOne(R, R),
}

impl Facts {
    fn of(code: &mut [M], registers: usize, pool: &[u8]) -> Facts {
        let mut facts = Facts {
            never_minus_zero: vec![true; registers],
            zero: vec![true; registers],
            constants: vec![None; registers],
        };
        let mut writes = vec![0u32; registers];
        let mut rests: Vec<(R, Rests)> = Vec::new();
        for m in code {
            let made = m.makes().filter(|r| r.class() == Class::Vector);
            if let (Some(dst), M::Vec(v)) = (made, &*m)
                && v.op == ops::VBROADCASTSS
                && let Src::Pool(at) = v.b
            {
                facts.constants[dst.index()] = word(pool, at);
            }
            // What the code makes of numbers that are not −0, and may not be −0 itself.
            let rest = match *m {
                M::Mov { src, .. } if src.class() == Class::Vector => Some(Some(Rests::On(src))),
                M::Blendv { a, b: Src::R(b), .. } => Some(Some(Rests::OnBoth(a, b))),
                M::Vec(v) if v.mask.is_none() && !v.acc => match (v.op, v.b) {
                    (ops::VPXORD, Src::R(b)) if v.a == v.dst && b == v.dst => Some(None),
                    (ops::VBROADCASTSS, Src::Pool(at)) if word(pool, at).is_some_and(|word| word != MINUS_ZERO) => {
                        Some(None)
                    }
                    (ops::VADDPS, Src::R(b)) => Some(Some(Rests::OnOne(v.a, b))),
                    (ops::VADDPS | ops::VSUBPS, _) => Some(Some(Rests::On(v.a))),
                    (ops::VMULPS, Src::R(b)) if v.a == b => Some(None),
                    (ops::VSQRTPS, Src::R(b)) => Some(Some(Rests::On(b))),
                    (ops::VCVTDQ2PS, _) => Some(None),
                    _ => None,
                },
                _ => None,
            };
            let zeroes = matches!(*m, M::Vec(v) if v.op == ops::VPXORD && v.a == v.dst && v.b == Src::R(v.dst));
            // Where nothing was written it does not matter what is there.
            let matters = !matches!(m, M::Undefined { .. });
            m.visit(&mut |r, role| {
                if matters && r.class() == Class::Vector && matches!(role, Role::Def | Role::Both) {
                    writes[r.index()] += 1;
                    facts.zero[r.index()] &= zeroes;
                    facts.never_minus_zero[r.index()] &= rest.is_some() && made == Some(*r);
                }
            });
            if let (Some(dst), Some(Some(rest))) = (made, rest) {
                rests.push((dst, rest));
            }
        }
        let known = &mut facts.never_minus_zero;
        loop {
            let mut changes = false;
            rests.retain(|(dst, rest)| {
                let holds = match rest {
                    Rests::On(a) => known[a.index()],
                    Rests::OnBoth(a, b) => known[a.index()] && known[b.index()],
                    Rests::OnOne(a, b) => known[a.index()] || known[b.index()],
                };
                if !holds {
                    changes |= std::mem::replace(&mut known[dst.index()], false);
                }
                holds
            });
            if !changes {
                break;
            }
        }
        for (index, &writes) in writes.iter().enumerate() {
            // What nothing writes is anything.
            facts.zero[index] &= writes > 0;
            facts.never_minus_zero[index] &= writes > 0;
            if writes != 1 {
                facts.constants[index] = None;
            }
        }
        facts
    }

    fn never_minus_zero(&self, r: R) -> bool {
        self.never_minus_zero.get(r.index()).is_some_and(|&never| never)
    }

    fn is_zero(&self, r: R) -> bool {
        self.zero.get(r.index()).is_some_and(|&zero| zero)
    }

    /// The word that an operand has in all lanes.
    fn constant(&self, src: Src, pool: &[u8]) -> Option<u32> {
        match src {
            Src::R(r) => self.constants.get(r.index()).copied().flatten(),
            Src::Pool(at) => {
                let first = word(pool, at)?;
                (1..Len::L256.bytes() as u32 / 4).all(|lane| word(pool, at + 4 * lane) == Some(first)).then_some(first)
            }
            Src::At(_) => None,
        }
    }
}

const MINUS_ZERO: u32 = 1 << 31;

fn word(pool: &[u8], at: u32) -> Option<u32> {
    let bytes = pool.get(at as usize..at as usize + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}
