//! Machine instructions over virtual registers, in the order in which they will run.

use super::asm::{Alu, Cond, Label, Len, Shift, VOp};

/// What a register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Class {
    /// A scalar or an address.
    General,
    /// Lanes.
    Vector,
    /// One bit a lane.
    Mask,
}

/// A virtual register, or one of the fixed ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct R(u32);

impl R {
    /// No register.
    pub(super) const NONE: R = R(u32::MAX);
    /// The launch's context, in r15 throughout.
    pub(super) const CONTEXT: R = R(3 << 28 | 15);
    /// The stack pointer.
    pub(super) const STACK: R = R(3 << 28 | 4);

    pub(super) fn new(class: Class, index: u32) -> R {
        R((class as u32) << 28 | index)
    }

    pub(super) fn is_none(self) -> bool {
        self == R::NONE
    }

    /// The physical register of a fixed one.
    pub(super) fn fixed(self) -> Option<u8> {
        (self != R::NONE && self.0 >> 28 == 3).then_some(self.0 as u8)
    }

    pub(super) fn class(self) -> Class {
        match self.0 >> 28 {
            0 => Class::General,
            1 => Class::Vector,
            _ => Class::Mask,
        }
    }

    pub(super) fn index(self) -> usize {
        (self.0 & 0x0fff_ffff) as usize
    }
}

/// `base + index·scale + disp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct At {
    pub(super) base: R,
    pub(super) index: R,
    pub(super) scale: u8,
    pub(super) disp: i32,
}

impl At {
    pub(super) fn new(base: R, disp: i32) -> At {
        At { base, index: R::NONE, scale: 1, disp }
    }
}

/// A vector operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Src {
    R(R),
    At(At),
    /// A constant of the pool.
    Pool(u32),
}

/// A scalar operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum GSrc {
    R(R),
    Imm(i32),
}

/// `dst = op(a, b)` on lanes.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaneOp {
    pub(super) op: VOp,
    pub(super) len: Len,
    pub(super) dst: R,
    /// First source; none for instructions with one.
    pub(super) a: R,
    pub(super) b: Src,
    pub(super) imm: Option<u8>,
    pub(super) mask: R,
    /// Lanes outside the mask become zero; else they keep their value.
    pub(super) zeroing: bool,
    /// The memory operand is one element.
    pub(super) broadcast: bool,
    /// The destination is a source too.
    pub(super) acc: bool,
}

/// One machine instruction, or a short fixed sequence.
#[derive(Clone, Copy, Debug)]
pub(super) enum M {
    Vec(LaneOp),
    /// As `Vec`, but lanes outside the mask come from the first source.
    Choose(LaneOp),
    /// An instruction whose destination is its r/m operand: extracts and narrowing conversions.
    Reverse {
        op: VOp,
        len: Len,
        dst: R,
        src: R,
        imm: Option<u8>,
    },
    /// `dst = mask ? b : a` with a vector mask.
    Blendv {
        len: Len,
        dst: R,
        a: R,
        b: Src,
        mask: R,
    },
    /// Under AVX2 the mask is a vector and the instruction a masked move.
    /// Stores four words of a vector: the first, the second four, and so on.
    StoreFour {
        src: R,
        at: At,
        which: u8,
    },
    /// Stores one element of the lower half of a vector of AVX2.
    StoreOne {
        bytes: u32,
        src: R,
        at: At,
        which: u8,
    },
    VStore {
        op: VOp,
        len: Len,
        src: R,
        at: At,
        mask: R,
    },
    /// Sets the lanes of `dst` where the mask is set, from `at` plus the lane of `index` times the scale of `at`. Clears the
    /// mask.
    Gather {
        op: VOp,
        len: Len,
        dst: R,
        at: At,
        index: R,
        mask: R,
    },
    Scatter {
        op: VOp,
        len: Len,
        src: R,
        at: At,
        index: R,
        mask: R,
    },
    Mask3 {
        op: VOp,
        dst: R,
        a: R,
        b: R,
    },
    MaskNot {
        dst: R,
        a: R,
    },
    MaskShift {
        dst: R,
        a: R,
        count: u8,
    },
    MaskFrom {
        dst: R,
        src: R,
    },
    MaskTo {
        dst: R,
        src: R,
    },
    /// How many bits are set in 32.
    CountOnes {
        dst: R,
        src: R,
    },
    /// The bits of `a`, one after the other, at the places of those of `b`.
    Deposit {
        dst: R,
        a: R,
        b: R,
    },
    /// The lowest bit of 32 that is set, or all that are set but for it.
    LowestBit {
        others: bool,
        dst: R,
        src: R,
    },
    /// Sets "equal" when both are empty.
    MaskTest {
        a: R,
        b: R,
    },
    /// Signs of the lanes as bits.
    SignBits {
        len: Len,
        dst: R,
        src: R,
    },
    Mov {
        dst: R,
        src: R,
    },
    Imm {
        dst: R,
        value: u64,
    },
    /// The register holds something from here on, no matter what.
    Undefined {
        dst: R,
    },
    Load {
        bytes: u32,
        signed: bool,
        dst: R,
        at: At,
    },
    Store {
        bytes: u32,
        src: R,
        at: At,
    },
    /// `memory = op(memory, b)`, on a word; `whole` where no other thread may see it half done.
    Update {
        op: Alu,
        at: At,
        b: GSrc,
        whole: bool,
    },
    /// `dst = memory`, and in the same step `memory = b`, or `memory + b` where it adds; on a word.
    Fetch {
        adds: bool,
        dst: R,
        at: At,
        b: R,
    },
    /// `dst = memory`, and in the same step `memory = b` where that was `compare`; on a word.
    CompareExchange {
        dst: R,
        at: At,
        compare: R,
        b: R,
    },
    /// Asks for the cache line there, which may be anywhere, to read it or to write it.
    Prefetch {
        at: At,
        writes: bool,
    },
    Lea {
        wide: bool,
        dst: R,
        at: At,
    },
    Alu {
        op: Alu,
        wide: bool,
        dst: R,
        a: R,
        b: GSrc,
    },
    Cmp {
        wide: bool,
        a: R,
        b: GSrc,
    },
    /// Compares a word of memory. Only repairs make it of a load and a comparison.
    CmpWord {
        at: At,
        b: GSrc,
    },
    Test {
        wide: bool,
        a: R,
        b: R,
    },
    Mul {
        wide: bool,
        dst: R,
        a: R,
        b: GSrc,
    },
    Shift {
        op: Shift,
        wide: bool,
        dst: R,
        a: R,
        count: GSrc,
    },
    Neg {
        wide: bool,
        dst: R,
        a: R,
    },
    Not {
        wide: bool,
        dst: R,
        a: R,
    },
    /// Sign-extends 32 to 64 bits.
    Extend {
        dst: R,
        src: R,
    },
    /// `x / 0 = x`, `x % 0 = 0`, `MIN / -1 = MIN`.
    Div {
        wide: bool,
        signed: bool,
        rem: bool,
        dst: R,
        a: R,
        b: R,
    },
    Set {
        cond: Cond,
        dst: R,
    },
    /// `dst = cond ? src : dst`.
    Cmov {
        cond: Cond,
        dst: R,
        src: R,
    },
    /// One scalar in every lane.
    Broadcast {
        len: Len,
        wide: bool,
        dst: R,
        src: R,
    },
    /// The first lane.
    First {
        wide: bool,
        dst: R,
        src: R,
    },
    Label(Label),
    Jump(Label),
    JumpIf(Cond, Label),
    /// Calls the helper that the context names, with a word that says what to do.
    Call {
        code: u64,
    },
}

/// How an instruction touches a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Use,
    /// A use that can read a stack slot as well as a register.
    Fold,
    /// Written after all uses.
    Def,
    Both,
}

impl At {
    /// The virtual registers that it is made of.
    pub(super) fn registers(&self) -> impl Iterator<Item = R> {
        [self.base, self.index].into_iter().filter(|r| !r.is_none() && r.fixed().is_none())
    }

    fn visit(&mut self, go: &mut dyn FnMut(&mut R, Role)) {
        go(&mut self.base, Role::Use);
        go(&mut self.index, Role::Use);
    }
}

impl Src {
    fn visit(&mut self, role: Role, go: &mut dyn FnMut(&mut R, Role)) {
        match self {
            Src::R(r) => go(r, role),
            Src::At(at) => at.visit(go),
            Src::Pool(_) => {}
        }
    }
}

impl LaneOp {
    /// On all lanes, with nothing but two sources.
    pub(super) fn plain(op: VOp, len: Len, dst: R, a: R, b: Src) -> LaneOp {
        let (imm, mask) = (None, R::NONE);
        LaneOp { op, len, dst, a, b, imm, mask, zeroing: false, broadcast: false, acc: false }
    }

    /// The second operand can be memory, when it has the width of the registers.
    pub(super) fn folds(&self) -> bool {
        self.op.full && self.op.ext.is_none() && matches!(self.b, Src::R(r) if r.class() == Class::Vector)
    }

    fn second(&mut self, go: &mut dyn FnMut(&mut R, Role)) {
        let role = if self.folds() { Role::Fold } else { Role::Use };
        self.b.visit(role, go);
    }
}

impl M {
    /// The register that an instruction is only for.
    pub(super) fn makes(&self) -> Option<R> {
        match *self {
            M::Vec(v) if v.mask.is_none() || v.zeroing => Some(v.dst),
            M::Choose(v) => Some(v.dst),
            M::MaskFrom { dst, .. }
            | M::Blendv { dst, .. }
            | M::Reverse { dst, .. }
            | M::First { dst, .. }
            | M::Mov { dst, .. }
            | M::Imm { dst, .. }
            | M::Load { dst, .. }
            | M::Lea { dst, .. }
            | M::Extend { dst, .. }
            | M::Mask3 { dst, .. }
            | M::MaskNot { dst, .. }
            | M::MaskShift { dst, .. }
            | M::Deposit { dst, .. }
            | M::CountOnes { dst, .. }
            | M::LowestBit { dst, .. }
            | M::Neg { dst, .. }
            | M::Broadcast { dst, .. } => Some(dst),
            _ => None,
        }
        .filter(|r| r.fixed().is_none())
    }

    /// It writes memory, or may.
    pub(super) fn changes_memory(&self) -> bool {
        matches!(
            self,
            M::VStore { .. }
                | M::StoreFour { .. }
                | M::StoreOne { .. }
                | M::Scatter { .. }
                | M::Store { .. }
                | M::Update { .. }
                | M::Fetch { .. }
                | M::CompareExchange { .. }
                | M::Call { .. }
        )
    }

    /// Shows every virtual register with its role.
    pub(super) fn visit(&mut self, f: &mut dyn FnMut(&mut R, Role)) {
        let mut go = |r: &mut R, role: Role| {
            if !r.is_none() && r.fixed().is_none() {
                f(r, role);
            }
        };
        fn gsrc(src: &mut GSrc, go: &mut dyn FnMut(&mut R, Role)) {
            if let GSrc::R(r) = src {
                go(r, Role::Use);
            }
        }
        match self {
            M::Vec(v) => {
                go(&mut v.a, Role::Use);
                v.second(&mut go);
                go(&mut v.mask, Role::Use);
                let keeps = v.acc || (!v.mask.is_none() && !v.zeroing && v.dst.class() == Class::Vector);
                go(&mut v.dst, if keeps { Role::Both } else { Role::Def });
            }
            M::Choose(v) => {
                go(&mut v.a, Role::Use);
                v.second(&mut go);
                go(&mut v.mask, Role::Use);
                go(&mut v.dst, Role::Def);
            }
            M::Blendv { dst, a, b, mask, .. } => {
                go(a, Role::Use);
                b.visit(Role::Fold, &mut go);
                go(mask, Role::Use);
                go(dst, Role::Def);
            }
            M::StoreFour { src, at: place, .. } | M::StoreOne { src, at: place, .. } => {
                go(src, Role::Use);
                place.visit(&mut go);
            }
            M::VStore { src, at: place, mask, .. } => {
                go(src, Role::Use);
                place.visit(&mut go);
                go(mask, Role::Use);
            }
            M::Gather { dst, at: place, index, mask, .. } => {
                go(index, Role::Use);
                place.visit(&mut go);
                go(mask, Role::Both);
                go(dst, Role::Both);
            }
            M::Scatter { src, at: place, index, mask, .. } => {
                go(src, Role::Use);
                go(index, Role::Use);
                place.visit(&mut go);
                go(mask, Role::Both);
            }
            M::Mask3 { dst, a, b, .. } | M::Deposit { dst, a, b } => {
                go(a, Role::Use);
                go(b, Role::Use);
                go(dst, Role::Def);
            }
            M::MaskNot { dst, a }
            | M::MaskShift { dst, a, .. }
            | M::MaskFrom { dst, src: a }
            | M::MaskTo { dst, src: a }
            | M::CountOnes { dst, src: a }
            | M::LowestBit { dst, src: a, .. }
            | M::SignBits { dst, src: a, .. }
            | M::Reverse { dst, src: a, .. }
            | M::Mov { dst, src: a }
            | M::Neg { dst, a, .. }
            | M::Not { dst, a, .. }
            | M::Extend { dst, src: a }
            | M::Broadcast { dst, src: a, .. }
            | M::First { dst, src: a, .. } => {
                go(a, Role::Use);
                go(dst, Role::Def);
            }
            M::MaskTest { a, b } | M::Test { a, b, .. } => {
                go(a, Role::Use);
                go(b, Role::Use);
            }
            M::Imm { dst, .. } | M::Undefined { dst } => go(dst, Role::Def),
            M::Load { dst, at: place, .. } | M::Lea { dst, at: place, .. } => {
                place.visit(&mut go);
                go(dst, Role::Def);
            }
            M::Store { src, at: place, .. } => {
                go(src, Role::Use);
                place.visit(&mut go);
            }
            M::Prefetch { at: place, .. } => place.visit(&mut go),
            M::Update { at: place, b, .. } => {
                place.visit(&mut go);
                gsrc(b, &mut go);
            }
            M::Fetch { dst, at: place, b, .. } => {
                place.visit(&mut go);
                go(b, Role::Use);
                go(dst, Role::Def);
            }
            M::CompareExchange { dst, at: place, compare, b } => {
                place.visit(&mut go);
                go(compare, Role::Use);
                go(b, Role::Use);
                go(dst, Role::Def);
            }
            M::Alu { dst, a, b, .. } | M::Mul { dst, a, b, .. } | M::Shift { dst, a, count: b, .. } => {
                go(a, Role::Use);
                gsrc(b, &mut go);
                go(dst, Role::Def);
            }
            M::Cmp { a, b, .. } => {
                go(a, Role::Use);
                gsrc(b, &mut go);
            }
            M::CmpWord { at: place, b } => {
                place.visit(&mut go);
                gsrc(b, &mut go);
            }
            M::Div { dst, a, b, .. } => {
                go(a, Role::Use);
                go(b, Role::Use);
                go(dst, Role::Def);
            }
            M::Set { dst, .. } => go(dst, Role::Def),
            M::Cmov { dst, src, .. } => {
                go(src, Role::Use);
                go(dst, Role::Both);
            }
            M::Label(_) | M::Jump(_) | M::JumpIf(..) | M::Call { .. } => {}
        }
    }
}
