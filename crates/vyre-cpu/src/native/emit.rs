//! From machine instructions with their registers to bytes: spilled operands, helper calls, prologue and epilogue.

use super::asm::{Alu, Asm, Cond, Extra, Label, Len, Mem, RAX, RBP, RCX, RDX, RSP, Rm, Shift, VOp};
use super::constants::Constants;
use super::context;
use super::isa::Isa;
use super::joins;
use super::jumps;
use super::mir::{At, Class, GSrc, LaneOp, M, R, Src};
use super::ops;
use super::regalloc::{self, Allocation, Available, Place};

/// Registers that a callee keeps.
const SAVED: [u8; 6] = [3, 5, 12, 13, 14, 15];
/// General registers that are given out: all but rax, rcx and rdx (scratch), rsp and r15 (the context).
const GENERAL: [u8; 11] = [6, 7, 8, 9, 10, 11, 3, 12, 13, 14, 5];
/// The largest stack frame; code that needs more is refused.
pub(super) const MAX_FRAME: u32 = 256 << 10;

/// Arguments, saved at the start of the frame: first workgroup along x (moves), end along x, y and z.
pub(super) const ARG_X: i32 = 0;
pub(super) const ARG_X_END: i32 = 4;
pub(super) const ARG_Y: i32 = 8;
pub(super) const ARG_Z: i32 = 12;
const SLOTS_AT: u32 = 64;

/// What became of a lowering.
#[derive(Debug)]
pub(super) struct Emitted {
    pub(super) code: Vec<u8>,
    /// Vector registers that had to live on the stack.
    pub(super) vector_spills: u32,
}

/// Registers that are given out; fewer vectors and masks when some are needed for values on the stack.
fn available(isa: Isa, spare: u8) -> Available {
    let masks = if spare > 0 { 6 } else { 8 };
    Available { regs: [GENERAL.to_vec(), (0..isa.registers() - spare).collect(), (1..masks).collect()] }
}

/// Allocates registers, without emitting anything.
pub(super) fn assign(code: &mut [M], counts: [u32; 3], labels: u32, asm: &Asm, isa: Isa) -> Allocation {
    let constants = Constants::of(code, asm, isa);
    let (intervals, total) = regalloc::intervals(code, counts, labels, |m| constants.is_made_by(m));
    let whole = available(isa, 0);
    if isa == Isa::Avx2 {
        // Of sixteen each counts, and nearly all instructions do with two.
        let allocation = regalloc::allocate(intervals.clone(), total, &whole, &available(isa, 2));
        if !code.iter().any(|m| needs_third(m, &allocation)) {
            return allocation;
        }
    }
    regalloc::allocate(intervals, total, &whole, &available(isa, 3))
}

/// Lets scalars share registers where that saves copies.
pub(super) fn join_scalars(code: &mut Vec<M>, counts: [u32; 3], labels: u32, isa: Isa, allocation: &mut Allocation) {
    if joins::join(code, labels, allocation) {
        // Jumps may have nothing left between them.
        jumps::straighten(code, labels);
        let (intervals, _) = regalloc::intervals(code, counts, labels, |_| false);
        let regs = &available(isa, 0).regs[Class::General as usize];
        let bases: Vec<R> = code.iter().filter_map(base_of_lanes).collect();
        regalloc::allocate_again(allocation, Class::General, intervals, regs, (RBP, &bases));
    }
}

/// An instruction of AVX2 needs three vector registers beside those that are given out.
fn needs_third(m: &M, allocation: &Allocation) -> bool {
    let waits = |r: R| !r.is_none() && !matches!(allocation.place(r), Place::Reg(_));
    match *m {
        M::Vec(v) => {
            let second = matches!(v.b, Src::R(b) if b.class() == Class::Vector && waits(b));
            v.acc && waits(v.dst) && waits(v.a) && second && !(v.folds() && v.len == Len::L256)
        }
        M::Gather { dst, index, mask, .. } => waits(dst) && waits(index) && waits(mask),
        _ => false,
    }
}

/// The base of a gather or scatter, which is better not in rbp.
fn base_of_lanes(m: &M) -> Option<R> {
    match m {
        M::Gather { at, .. } | M::Scatter { at, .. } => {
            Some(at.base).filter(|base| !base.is_none() && base.fixed().is_none())
        }
        _ => None,
    }
}

/// Emits a whole function; `None` when its frame would be too large.
pub(super) fn emit(code: &mut [M], mut asm: Asm, allocation: &Allocation, isa: Isa) -> Option<Emitted> {
    let constants = Constants::of(code, &asm, isa);
    let code = &*code;
    let vector = match isa {
        Isa::Avx512 => 64,
        Isa::Avx2 => 32,
        Isa::Simd128 => 16,
    };
    let masks_at = SLOTS_AT + allocation.slots[1] * vector;
    let general_at = masks_at + allocation.slots[2] * 8;
    let has_call = code.iter().any(|m| matches!(m, M::Call { .. }));
    let save_at = (general_at + allocation.slots[0] * 8).next_multiple_of(64);
    let save = if has_call { 32 * vector + 16 * 8 } else { 0 };
    let frame = (save_at + save).next_multiple_of(64);
    if frame > MAX_FRAME {
        return None;
    }
    for reg in SAVED {
        asm.push(reg);
    }
    // The old stack pointer waits above the frame, which is aligned for whole vectors.
    asm.mov(true, RAX, Rm::Reg(RSP));
    let mut left = frame + 64;
    while left > 0 {
        let step = left.min(4096);
        asm.alu_imm(Alu::Sub, true, RSP, step as i32);
        if left > 4096 {
            asm.store(8, Mem::At { base: RSP, index: None, disp: 0 }, RAX);
        }
        left -= step;
    }
    asm.alu_imm(Alu::And, true, RSP, -64);
    asm.store(8, Mem::At { base: RSP, index: None, disp: frame as i32 }, RAX);
    asm.mov(true, 15, Rm::Reg(7));
    for (disp, reg) in [(ARG_X, 6), (ARG_X_END, 2), (ARG_Y, 1), (ARG_Z, 8)] {
        asm.store(4, Mem::At { base: RSP, index: None, disp }, reg);
    }
    let copies = [None; 3];
    let mut emitter = Emitter { asm, allocation, isa, masks_at, general_at, vector, save_at, copies, constants };
    let heads = Head::all(code, &mut emitter.asm);
    for (at, m) in code.iter().enumerate() {
        if let Some(head) = heads.iter().find(|head| head.at + 2 == at) {
            emitter.asm.bind(head.behind);
        }
        if let M::Jump(label) = m
            && let Some(head) = heads.iter().find(|head| head.label == *label && head.at < at)
        {
            emitter.go_round(code, head, at);
            continue;
        }
        if emitter.is_left_out(m) {
            continue;
        }
        if !emitter.begins_in_scratch(m, code.get(at + 1)) {
            emitter.instruction(m, at);
        }
        if !leaves_scratch(m) {
            emitter.copies = [None; 3];
        }
    }
    let mut asm = emitter.asm;
    asm.vzeroupper();
    asm.mov(true, RSP, Rm::Mem(Mem::At { base: RSP, index: None, disp: frame as i32 }));
    for reg in SAVED.iter().rev() {
        asm.pop(*reg);
    }
    asm.ret();
    Some(Emitted { code: asm.finish()?, vector_spills: allocation.slots[1] })
}

/// What a loop asks at the beginning of each round. A round that goes to the next asks that itself, instead of jumping to where it is asked.
struct Head {
    label: Label,
    /// Where it compares; a branch follows, and then the place `behind`.
    at: usize,
    behind: Label,
    /// What the branch asks, where it goes, and where in the code that is.
    cond: Cond,
    to: Label,
    to_at: usize,
}

impl Head {
    /// Those of all loops.
    fn all(code: &[M], asm: &mut Asm) -> Vec<Head> {
        let is_back = |label: Label, at: usize| code[at..].iter().any(|m| matches!(m, M::Jump(to) if *to == label));
        let mut heads = Vec::new();
        for (at, steps) in code.windows(3).enumerate() {
            let [M::Label(label), M::Cmp { .. } | M::CmpWord { .. } | M::Test { .. }, M::JumpIf(cond, to)] = *steps
            else {
                continue;
            };
            let place = code.iter().position(|m| matches!(m, M::Label(other) if *other == to));
            if let Some(to_at) = place.filter(|_| is_back(label, at)) {
                heads.push(Head { label, at: at + 1, behind: asm.label(), cond, to, to_at });
            }
        }
        heads
    }
}

/// The instruction says by `def_of` and `finish` which vector registers it writes, all of them.
fn leaves_scratch(m: &M) -> bool {
    matches!(m, M::Vec(_) | M::Choose(_) | M::Blendv { .. } | M::Reverse { .. } | M::VStore { .. } | M::Mov { .. })
}

struct Emitter<'a> {
    asm: Asm,
    allocation: &'a Allocation,
    isa: Isa,
    masks_at: u32,
    general_at: u32,
    vector: u32,
    save_at: u32,
    /// The stack slots that vector registers for values on the stack are copies of, so that none is loaded twice in a row.
    copies: [Option<u32>; 3],
    /// What is not stored in slots.
    constants: Constants,
}

impl Emitter<'_> {
    fn evex(&self) -> bool {
        self.isa == Isa::Avx512
    }

    fn full(&self) -> Len {
        if self.evex() { Len::L512 } else { Len::L256 }
    }

    fn slot(&self, class: Class, slot: u32) -> Mem {
        let disp = match class {
            Class::Vector => SLOTS_AT + slot * self.vector,
            Class::Mask => self.masks_at + slot * 8,
            Class::General => self.general_at + slot * 8,
        };
        Mem::At { base: RSP, index: None, disp: disp as i32 }
    }

    /// Where a register is that has a slot: a constant is not stored there.
    fn home(&mut self, r: R, slot: u32) -> Mem {
        match self.constants.place(r, &mut self.asm, self.isa) {
            Some(at) => Mem::Pool(at),
            None => self.slot(r.class(), slot),
        }
    }

    /// The instruction loads a constant that is read from elsewhere.
    fn is_left_out(&mut self, m: &M) -> bool {
        let M::Vec(v) = m else { return false };
        let Place::Slot(slot) = self.allocation.place(v.dst) else { return false };
        if !self.constants.has(v.dst) {
            return false;
        }
        self.copies = self.copies.map(|copy| copy.filter(|&other| other != slot));
        true
    }

    fn load_slot(&mut self, class: Class, reg: u8, from: Mem) {
        let (evex, full) = (self.evex(), self.full());
        match class {
            Class::Vector => self.asm.vector(ops::VMOVUPS, full, evex, reg, 0, Rm::Mem(from), Extra::default()),
            Class::Mask => self.asm.mask(ops::KMOVW, false, reg, 0, Rm::Mem(from), None),
            Class::General => self.asm.mov(true, reg, Rm::Mem(from)),
        }
    }

    fn store_slot(&mut self, class: Class, reg: u8, to: Mem) {
        let (evex, full) = (self.evex(), self.full());
        match class {
            Class::Vector => self.asm.vector(ops::VMOVUPS_STORE, full, evex, reg, 0, Rm::Mem(to), Extra::default()),
            Class::Mask => self.asm.mask(ops::KMOVW_STORE, false, reg, 0, Rm::Mem(to), None),
            Class::General => self.asm.store(8, to, reg),
        }
    }

    fn scratch(&self, class: Class, number: u8) -> u8 {
        match class {
            Class::Vector if self.evex() => 29 + number,
            // The last is given out where nothing needs it.
            Class::Vector => 15 - number,
            Class::Mask => 6 + number,
            Class::General => [RAX, RCX, RDX][usize::from(number)],
        }
    }

    /// The register of a source, loaded into a scratch register when it lives on the stack.
    fn use_of(&mut self, r: R, number: u8) -> u8 {
        match self.allocation.place(r) {
            Place::Reg(reg) => reg,
            Place::Slot(slot) => {
                let scratch = self.scratch(r.class(), number);
                let from = self.home(r, slot);
                let is_there =
                    r.class() == Class::Vector && self.copies[usize::from(number)].replace(slot) == Some(slot);
                if !is_there {
                    self.load_slot(r.class(), scratch, from);
                }
                scratch
            }
            // Read before anything was written: whatever is there will do.
            Place::Nowhere => self.scratch(r.class(), number),
        }
    }

    /// A vector register for values on the stack has this one.
    fn is_copied(&self, r: R, number: usize) -> bool {
        r.class() == Class::Vector
            && matches!(self.allocation.place(r), Place::Slot(slot) if self.copies[number] == Some(slot))
    }

    fn def_of(&mut self, r: R, number: u8) -> u8 {
        match self.allocation.place(r) {
            Place::Reg(reg) => reg,
            _ => {
                if r.class() == Class::Vector {
                    self.copies[usize::from(number)] = None;
                }
                self.scratch(r.class(), number)
            }
        }
    }

    fn finish(&mut self, r: R, reg: u8) {
        if let Place::Slot(slot) = self.allocation.place(r) {
            let to = self.slot(r.class(), slot);
            self.store_slot(r.class(), reg, to);
            if r.class() == Class::Vector {
                self.is_copy(reg, slot);
            }
        }
    }

    /// What a slot holds from here on is in a register; in a scratch register, perhaps.
    fn is_copy(&mut self, reg: u8, slot: u32) {
        for number in 0..self.copies.len() {
            let here = self.scratch(Class::Vector, number as u8) == reg;
            let copy = &mut self.copies[number];
            *copy = if here { Some(slot) } else { copy.filter(|&other| other != slot) };
        }
    }

    /// Begins a value on the stack that the next instruction goes on with: it is not stored before that.
    fn begins_in_scratch(&mut self, m: &M, next: Option<&M>) -> bool {
        let (&M::Mov { dst, src }, Some(M::Vec(next))) = (m, next) else { return false };
        let Place::Slot(slot) = self.allocation.place(dst) else { return false };
        let goes_on = next.acc && next.dst == dst && next.a != dst && next.b != Src::R(dst) && next.mask != dst;
        if dst.class() != Class::Vector || !goes_on {
            return false;
        }
        let from = self.use_of(src, 0);
        let to = self.scratch(Class::Vector, 0);
        if to != from {
            self.plain(ops::VMOVAPS, self.full(), to, 0, Rm::Reg(from));
        }
        self.copies[0] = Some(slot);
        true
    }

    /// A memory operand; uses the scratch registers `first` and the next.
    fn at(&mut self, at: At, first: u8) -> Mem {
        let base = self.use_of(at.base, first);
        let index = (!at.index.is_none()).then(|| (self.use_of(at.index, first + 1), at.scale));
        Mem::At { base, index, disp: at.disp }
    }

    /// The base of a gather or scatter: with rbp, which stands for another segment, they take a third longer.
    fn base_of_many(&mut self, base: R) -> u8 {
        let base = self.use_of(base, 0);
        if base != RBP {
            return base;
        }
        self.asm.mov(true, RAX, Rm::Reg(base));
        RAX
    }

    fn source(&mut self, src: Src, foldable: bool, number: u8) -> Rm {
        match src {
            Src::R(r) => match self.allocation.place(r) {
                Place::Slot(slot) if foldable => Rm::Mem(self.home(r, slot)),
                _ => Rm::Reg(self.use_of(r, number)),
            },
            Src::At(at) => Rm::Mem(self.at(at, 0)),
            Src::Pool(constant) => Rm::Mem(Mem::Pool(constant)),
        }
    }

    fn vec(&mut self, v: &LaneOp, keeps: bool) {
        let evex = self.evex();
        let foldable = v.folds() && v.len == self.full();
        let v = &if foldable { self.with_slot_second(*v) } else { *v };
        let waits = |r: R| !r.is_none() && !matches!(self.allocation.place(r), Place::Reg(_));
        let second = match (waits(v.a), keeps && waits(v.dst)) {
            (false, _) => 1,
            (true, false) => 0,
            (true, true) => 2,
        };
        // What was just made is still where results are made, and may stay there if nothing else comes before the result.
        let is_here = !v.a.is_none() && self.is_copied(v.a, 0) && !(keeps && waits(v.dst));
        let first = if is_here && (foldable || !matches!(v.b, Src::R(b) if waits(b))) { 0 } else { 1 };
        let a = if v.a.is_none() { 0 } else { self.use_of(v.a, first) };
        let b = self.source(v.b, foldable, second);
        let mask = if v.mask.is_none() { 0 } else { self.use_of(v.mask, 1) };
        let dst = if keeps { self.use_of(v.dst, 0) } else { self.def_of(v.dst, 0) };
        let extra = Extra { imm: v.imm, mask, zeroing: v.zeroing, broadcast: v.broadcast, vsib: false };
        self.asm.vector(v.op, v.len, evex, dst, a, b, extra);
        self.finish(v.dst, dst);
    }

    /// The sources the other way round where that makes the one on the stack a memory operand.
    fn with_slot_second(&self, v: LaneOp) -> LaneOp {
        let on_stack = |r: R| matches!(self.allocation.place(r), Place::Slot(_));
        match v.b {
            Src::R(b) if v.op.commutes() && on_stack(v.a) && !on_stack(b) => LaneOp { a: b, b: Src::R(v.a), ..v },
            _ => v,
        }
    }

    fn plain(&mut self, op: VOp, len: Len, dst: u8, a: u8, rm: Rm) {
        let evex = self.evex();
        self.asm.vector(op, len, evex, dst, a, rm, Extra::default());
    }

    fn instruction(&mut self, m: &M, number: usize) {
        match *m {
            M::Vec(ref v) => {
                let keeps = v.acc || (!v.mask.is_none() && !v.zeroing && v.dst.class() == Class::Vector);
                self.vec(v, keeps);
            }
            M::Choose(ref v) => self.vec(v, false),
            M::Reverse { op, len, dst, src, imm } => {
                let src = self.use_of(src, 1);
                let to = self.def_of(dst, 0);
                let evex = self.evex();
                self.asm.vector(op, len, evex, src, 0, Rm::Reg(to), Extra { imm, ..Extra::default() });
                self.finish(dst, to);
            }
            M::Blendv { len, dst, a, b, mask } => {
                let a = self.use_of(a, 1);
                let mask = self.use_of(mask, 0);
                let b = self.source(b, true, 2);
                let to = self.def_of(dst, 0);
                let extra = Extra { imm: Some(mask << 4), ..Extra::default() };
                self.asm.vector(ops::VBLENDVPS, len, false, to, a, b, extra);
                self.finish(dst, to);
            }
            M::StoreFour { src, at, which } => {
                let evex = self.evex();
                let src = self.use_of(src, 0);
                let at = Rm::Mem(self.at(at, 0));
                let (op, len) = if evex { (ops::VEXTRACTF32X4, Len::L512) } else { (ops::VEXTRACTI128, Len::L256) };
                self.asm.vector(op, len, evex, src, 0, at, Extra { imm: Some(which), ..Extra::default() });
            }
            M::StoreOne { bytes, src, at, which } => {
                let src = self.use_of(src, 0);
                let at = Rm::Mem(self.at(at, 0));
                let (op, imm) = match (bytes, which) {
                    (8, 0) => (ops::VMOVSD_STORE, None),
                    (8, _) => (ops::VMOVHPS_STORE, None),
                    (_, 0) => (ops::VMOVSS_STORE, None),
                    (_, which) => (ops::VPEXTRD, Some(which)),
                };
                self.asm.vector(op, Len::L128, false, src, 0, at, Extra { imm, ..Extra::default() });
            }
            M::VStore { op, len, src, at, mask } => {
                let evex = self.evex();
                let src = self.use_of(src, 0);
                let mask = if mask.is_none() { 0 } else { self.use_of(mask, 1) };
                let at = Rm::Mem(self.at(at, 0));
                let (a, mask) = if evex { (0, mask) } else { (mask, 0) };
                // Rounds to nearest even.
                let imm = (op == ops::VCVTPS2PH).then_some(0);
                self.asm.vector(op, len, evex, src, a, at, Extra { mask, imm, ..Extra::default() });
            }
            M::Gather { op, len, dst, at, index: at_index, mask } => {
                let evex = self.evex();
                let index = self.use_of(at_index, 1);
                let base = self.base_of_many(at.base);
                let waits = |r: R| !matches!(self.allocation.place(r), Place::Reg(_));
                let last = match (evex || !waits(at_index), waits(dst)) {
                    (true, _) => 1,
                    (false, false) => 0,
                    (false, true) => 2,
                };
                let mask_reg = self.use_of(mask, last);
                let to = self.use_of(dst, 0);
                let rm = Rm::Mem(Mem::At { base, index: Some((index, at.scale)), disp: at.disp });
                let (a, k) = if evex { (0, mask_reg) } else { (mask_reg, 0) };
                self.asm.vector(op, len, evex, to, a, rm, Extra { mask: k, vsib: true, ..Extra::default() });
                self.finish(mask, mask_reg);
                self.finish(dst, to);
            }
            M::Scatter { op, len, src, at, index, mask } => {
                let index = self.use_of(index, 1);
                let base = self.base_of_many(at.base);
                let mask_reg = self.use_of(mask, 1);
                let from = self.use_of(src, 0);
                let rm = Rm::Mem(Mem::At { base, index: Some((index, at.scale)), disp: at.disp });
                self.asm.vector(op, len, true, from, 0, rm, Extra { mask: mask_reg, vsib: true, ..Extra::default() });
                self.finish(mask, mask_reg);
            }
            M::Mask3 { op, dst, a, b } => {
                let a = self.use_of(a, 0);
                let b = self.use_of(b, 1);
                let to = self.def_of(dst, 0);
                self.asm.mask(op, true, to, a, Rm::Reg(b), None);
                self.finish(dst, to);
            }
            M::MaskNot { dst, a } => {
                let a = self.use_of(a, 1);
                let to = self.def_of(dst, 0);
                self.asm.mask(ops::KNOTW, false, to, 0, Rm::Reg(a), None);
                self.finish(dst, to);
            }
            M::MaskShift { dst, a, count } => {
                let a = self.use_of(a, 1);
                let to = self.def_of(dst, 0);
                self.asm.mask(ops::KSHIFTRW, false, to, 0, Rm::Reg(a), Some(count));
                self.finish(dst, to);
            }
            M::MaskFrom { dst, src } => {
                let src = self.use_of(src, 0);
                let to = self.def_of(dst, 0);
                self.asm.mask(ops::KMOVW_TO, false, to, 0, Rm::Reg(src), None);
                self.finish(dst, to);
            }
            M::MaskTo { dst, src } => {
                let src = self.use_of(src, 0);
                let to = self.def_of(dst, 0);
                self.asm.mask(ops::KMOVW_FROM, false, to, 0, Rm::Reg(src), None);
                self.finish(dst, to);
            }
            M::CountOnes { dst, src } => {
                let src = self.use_of(src, 0);
                let to = self.def_of(dst, 0);
                self.asm.popcnt(to, src);
                self.finish(dst, to);
            }
            M::Deposit { dst, a, b } => {
                let a = self.use_of(a, 0);
                let b = self.use_of(b, 1);
                let to = self.def_of(dst, 0);
                self.asm.mask(ops::PDEP, false, to, a, Rm::Reg(b), None);
                self.finish(dst, to);
            }
            M::LowestBit { others, dst, src } => {
                let src = self.use_of(src, 0);
                let to = self.def_of(dst, 0);
                // Which of its instructions an opcode means stands where others name a register.
                let which = if others { 1 } else { 3 };
                self.asm.mask(ops::BLS, false, which, to, Rm::Reg(src), None);
                self.finish(dst, to);
            }
            M::MaskTest { a, b } => {
                let a = self.use_of(a, 0);
                let b = self.use_of(b, 1);
                self.asm.mask(ops::KORTESTW, false, a, 0, Rm::Reg(b), None);
            }
            M::SignBits { len, dst, src } => {
                let src = self.use_of(src, 0);
                let to = self.def_of(dst, 0);
                self.plain(ops::VMOVMSKPS, len, to, 0, Rm::Reg(src));
                self.finish(dst, to);
            }
            M::Mov { dst, src } => self.copy(dst, src),
            M::Imm { dst, value } => {
                let to = self.def_of(dst, 0);
                self.asm.mov_imm(to, value);
                self.finish(dst, to);
            }
            M::Load { bytes, signed, dst, at } => {
                let at = self.at(at, 0);
                let to = self.def_of(dst, 2);
                match bytes {
                    1 | 2 => self.asm.load_narrow(bytes, signed, to, at),
                    4 if signed => self.asm.movsxd(to, Rm::Mem(at)),
                    _ => self.asm.mov(bytes == 8, to, Rm::Mem(at)),
                }
                self.finish(dst, to);
            }
            M::Store { bytes, src, at } => {
                let at = self.at(at, 0);
                let src = self.use_of(src, 2);
                self.asm.store(bytes, at, src);
            }
            M::Update { op, at, b, whole } => {
                let at = self.at(at, 0);
                let b = match b {
                    GSrc::R(b) => Ok(self.use_of(b, 2)),
                    GSrc::Imm(imm) => Err(imm),
                };
                if whole {
                    self.asm.lock();
                }
                match b {
                    Ok(b) => self.asm.update(op, at, b),
                    Err(imm) => self.asm.update_imm(op, at, imm),
                }
            }
            M::Fetch { adds, dst, at, b } => {
                let at = self.at(at, 0);
                let b = self.use_of(b, 2);
                self.move_general(false, RDX, b);
                self.asm.fetch(adds, at, RDX);
                let to = self.def_of(dst, 2);
                self.move_general(false, to, RDX);
                self.finish(dst, to);
            }
            M::CompareExchange { dst, at, compare, b } => {
                // The instruction has the old value in RAX, so that the address has to do with one register.
                let at = self.at(at, 1);
                self.asm.lea(true, RCX, at);
                let compare = self.use_of(compare, 0);
                self.move_general(false, RAX, compare);
                let b = self.use_of(b, 2);
                self.asm.compare_exchange(Mem::At { base: RCX, index: None, disp: 0 }, b);
                let to = self.def_of(dst, 0);
                self.move_general(false, to, RAX);
                self.finish(dst, to);
            }
            M::Prefetch { at, writes } => {
                let at = self.at(at, 0);
                self.asm.prefetch(at, writes);
            }
            M::Lea { wide, dst, at } => {
                let at = self.at(at, 0);
                let to = self.def_of(dst, 2);
                self.asm.lea(wide, to, at);
                self.finish(dst, to);
            }
            M::Alu { op, wide, dst, a, b } => {
                let a = self.use_of(a, 0);
                let b = match b {
                    GSrc::R(b) => Ok(self.use_of(b, 1)),
                    GSrc::Imm(imm) => Err(imm),
                };
                let to = self.def_of(dst, 0);
                match b {
                    Err(imm) if to != a && op == Alu::Add => {
                        self.asm.lea(wide, to, Mem::At { base: a, index: None, disp: imm });
                    }
                    Err(imm) if to != a && op == Alu::Sub && imm != i32::MIN => {
                        self.asm.lea(wide, to, Mem::At { base: a, index: None, disp: -imm });
                    }
                    Ok(b) if to != a && to != b && op == Alu::Add => {
                        // As a base rbp and r13 need a displacement.
                        let (base, index) = if a & 7 == RBP { (b, a) } else { (a, b) };
                        self.asm.lea(wide, to, Mem::At { base, index: Some((index, 1)), disp: 0 });
                    }
                    Err(imm) => {
                        self.move_general(wide, to, a);
                        self.asm.alu_imm(op, wide, to, imm);
                    }
                    Ok(b) if b == to && a != to => {
                        if op == Alu::Sub {
                            self.asm.mov(wide, RAX, Rm::Reg(a));
                            self.asm.alu(op, wide, RAX, Rm::Reg(b));
                            self.asm.mov(wide, to, Rm::Reg(RAX));
                        } else {
                            self.asm.alu(op, wide, to, Rm::Reg(a));
                        }
                    }
                    Ok(b) => {
                        self.move_general(wide, to, a);
                        self.asm.alu(op, wide, to, Rm::Reg(b));
                    }
                }
                self.finish(dst, to);
            }
            M::Cmp { wide, a, b } => {
                let a = self.use_of(a, 0);
                match b {
                    GSrc::R(b) => {
                        let b = self.use_of(b, 1);
                        self.asm.alu(Alu::Cmp, wide, a, Rm::Reg(b));
                    }
                    GSrc::Imm(0) => self.asm.test(wide, a, a),
                    GSrc::Imm(imm) => self.asm.alu_imm(Alu::Cmp, wide, a, imm),
                }
            }
            M::CmpWord { at, b } => {
                let at = self.at(at, 0);
                match b {
                    GSrc::R(b) => {
                        let b = self.use_of(b, 2);
                        self.asm.update(Alu::Cmp, at, b);
                    }
                    GSrc::Imm(imm) => self.asm.update_imm(Alu::Cmp, at, imm),
                }
            }
            M::Test { wide, a, b } => {
                let a = self.use_of(a, 0);
                let b = self.use_of(b, 1);
                self.asm.test(wide, a, b);
            }
            M::Mul { wide, dst, a, b } => {
                let a = self.use_of(a, 0);
                match b {
                    GSrc::R(b) => {
                        let b = self.use_of(b, 1);
                        let to = self.def_of(dst, 0);
                        if b == to {
                            self.asm.imul(wide, to, Rm::Reg(a));
                        } else {
                            self.move_general(wide, to, a);
                            self.asm.imul(wide, to, Rm::Reg(b));
                        }
                        self.finish(dst, to);
                    }
                    GSrc::Imm(imm) => {
                        let to = self.def_of(dst, 0);
                        self.asm.imul_imm(wide, to, Rm::Reg(a), imm);
                        self.finish(dst, to);
                    }
                }
            }
            M::Shift { op, wide, dst, a, count } => {
                let a = self.use_of(a, 0);
                match count {
                    GSrc::Imm(1) if op == Shift::Left => {
                        let to = self.def_of(dst, 0);
                        if to == a {
                            self.asm.alu(Alu::Add, wide, to, Rm::Reg(a));
                        } else {
                            self.asm.lea(wide, to, Mem::At { base: a, index: Some((a, 1)), disp: 0 });
                        }
                        self.finish(dst, to);
                    }
                    GSrc::Imm(count) => {
                        let to = self.def_of(dst, 0);
                        self.move_general(wide, to, a);
                        self.asm.shift_imm(op, wide, to, count as u8);
                        self.finish(dst, to);
                    }
                    GSrc::R(count) => {
                        let count = self.use_of(count, 1);
                        let to = self.def_of(dst, 0);
                        let by = match op {
                            Shift::Left => ops::SHLX,
                            Shift::Right => ops::SHRX,
                            Shift::Arithmetic => ops::SARX,
                        };
                        self.asm.mask(VOp { w: u8::from(wide), ..by }, false, to, count, Rm::Reg(a), None);
                        self.finish(dst, to);
                    }
                }
            }
            M::Neg { wide, dst, a } | M::Not { wide, dst, a } => {
                let a = self.use_of(a, 0);
                let to = self.def_of(dst, 0);
                self.move_general(wide, to, a);
                match m {
                    M::Neg { .. } => self.asm.neg(wide, to),
                    _ => self.asm.not(wide, to),
                }
                self.finish(dst, to);
            }
            M::Extend { dst, src } => {
                let src = self.use_of(src, 0);
                let to = self.def_of(dst, 0);
                self.asm.movsxd(to, Rm::Reg(src));
                self.finish(dst, to);
            }
            M::Div { wide, signed, rem, dst, a, b } => {
                let a = self.use_of(a, 0);
                let b = self.use_of(b, 1);
                self.division(wide, signed, a, b);
                let result = if rem { RDX } else { RAX };
                let to = self.def_of(dst, 0);
                self.move_general(wide, to, result);
                self.finish(dst, to);
            }
            M::Set { cond, dst } => {
                let to = self.def_of(dst, 0);
                self.asm.setcc(cond, to);
                self.finish(dst, to);
            }
            M::Cmov { cond, dst, src } => {
                let src = self.use_of(src, 1);
                let to = self.use_of(dst, 0);
                self.asm.cmov(cond, to, Rm::Reg(src));
                self.finish(dst, to);
            }
            M::Broadcast { len, wide, dst, src } => {
                let src = self.use_of(src, 0);
                let to = self.def_of(dst, 0);
                if self.evex() {
                    let op = if wide { ops::VPBROADCASTQ_G } else { ops::VPBROADCASTD_G };
                    self.plain(op, len, to, 0, Rm::Reg(src));
                } else {
                    let (put, spread) = match wide {
                        true => (ops::VMOVQ_TO, ops::VPBROADCASTQ),
                        false => (ops::VMOVD_TO, ops::VPBROADCASTD),
                    };
                    self.plain(put, Len::L128, to, 0, Rm::Reg(src));
                    // The VEX form of the quadword broadcast has W = 0.
                    self.plain(VOp { w: 0, ..spread }, len, to, 0, Rm::Reg(to));
                }
                self.finish(dst, to);
            }
            M::First { wide, dst, src } => {
                let src = self.use_of(src, 0);
                let to = self.def_of(dst, 0);
                let op = if wide { ops::VMOVQ_FROM } else { ops::VMOVD_FROM };
                self.plain(op, Len::L128, src, 0, Rm::Reg(to));
                self.finish(dst, to);
            }
            M::Undefined { .. } => {}
            M::Label(label) => self.asm.bind(label),
            M::Jump(label) => self.asm.jump(label),
            M::JumpIf(cond, label) => self.asm.jump_if(cond, label),
            M::Call { code } => self.call(code, number),
        }
    }

    /// Goes to the next round of a loop from the end of one at `at`.
    fn go_round(&mut self, code: &[M], head: &Head, at: usize) {
        self.instruction(&code[head.at], at);
        // A loop that is left from its head goes on with one jump.
        let (cond, to, last, last_at) = match head.to_at > at {
            true => (head.cond.inverse(), head.behind, head.to, head.to_at),
            false => (head.cond, head.to, head.behind, 0),
        };
        self.asm.jump_if(cond, to);
        if last_at != at + 1 {
            self.asm.jump(last);
        }
        self.copies = [None; 3];
    }

    fn move_general(&mut self, wide: bool, to: u8, from: u8) {
        if to != from {
            self.asm.mov(wide, to, Rm::Reg(from));
        }
    }

    fn copy(&mut self, dst: R, src: R) {
        let class = dst.class();
        if let (Place::Reg(to), Place::Slot(slot)) = (self.allocation.place(dst), self.allocation.place(src)) {
            let from = self.home(src, slot);
            return self.load_slot(class, to, from);
        }
        let from = self.use_of(src, 0);
        let to = match self.allocation.place(dst) {
            Place::Reg(to) => to,
            _ => from,
        };
        if to != from {
            match class {
                Class::General => self.asm.mov(true, to, Rm::Reg(from)),
                Class::Mask => self.asm.mask(ops::KMOVW, false, to, 0, Rm::Reg(from), None),
                Class::Vector => self.plain(ops::VMOVAPS, self.full(), to, 0, Rm::Reg(from)),
            }
        }
        self.finish(dst, to);
    }

    /// Quotient in rax, remainder in rdx.
    fn division(&mut self, wide: bool, signed: bool, a: u8, b: u8) {
        let asm = &mut self.asm;
        if b != RCX {
            if a == RCX {
                asm.mov(true, RAX, Rm::Reg(a));
            }
            asm.mov(true, RCX, Rm::Reg(b));
        }
        if a != RAX && a != RCX {
            asm.mov(true, RAX, Rm::Reg(a));
        }
        let (by_zero, by_minus_one, done) = (asm.label(), asm.label(), asm.label());
        asm.test(wide, RCX, RCX);
        asm.jump_if(Cond::Equal, by_zero);
        if signed {
            asm.alu_imm(Alu::Cmp, wide, RCX, -1);
            asm.jump_if(Cond::Equal, by_minus_one);
            asm.cdq(wide);
        } else {
            asm.alu(Alu::Xor, false, RDX, Rm::Reg(RDX));
        }
        asm.div(wide, signed, RCX);
        asm.jump(done);
        if signed {
            asm.bind(by_minus_one);
            asm.neg(wide, RAX);
        }
        asm.bind(by_zero);
        asm.alu(Alu::Xor, false, RDX, Rm::Reg(RDX));
        asm.bind(done);
    }

    fn call(&mut self, code: u64, number: usize) {
        let mut saved: Vec<(Class, u8, Mem)> = Vec::new();
        let mut at = self.save_at;
        for reg in self.allocation.live_across(Class::Vector, number) {
            saved.push((Class::Vector, reg, Mem::At { base: RSP, index: None, disp: at as i32 }));
            at += self.vector;
        }
        for class in [Class::Mask, Class::General] {
            for reg in self.allocation.live_across(class, number) {
                if class == Class::General && SAVED.contains(&reg) {
                    continue;
                }
                saved.push((class, reg, Mem::At { base: RSP, index: None, disp: at as i32 }));
                at += 8;
            }
        }
        for &(class, reg, to) in &saved {
            self.store_slot(class, reg, to);
        }
        self.asm.vzeroupper();
        self.asm.mov(true, 7, Rm::Reg(15));
        self.asm.mov_imm(6, code);
        self.asm.call(Mem::At { base: 15, index: None, disp: context::HELPER });
        for &(class, reg, from) in &saved {
            self.load_slot(class, reg, from);
        }
    }
}

/// Shift counts are taken modulo the width, as the hardware does for scalars.
pub(super) fn shift_of(arithmetic: bool) -> Shift {
    if arithmetic { Shift::Arithmetic } else { Shift::Right }
}
