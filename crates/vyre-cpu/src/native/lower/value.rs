//! Where values are, and their scalar, vector and mask forms.

use vyre_foundation::kernel::{Scalar, Value};

use super::super::asm::{Alu, Cond, Label, Len, VOp};
use super::super::isa::Isa;
use super::super::mir::{At, Class, GSrc, LaneOp, M, R, Role, Src};
use super::super::ops;
use super::super::shape::Lane;
use super::{Lower, Made};

/// `reg + add`, 32 bits (64 for 64-bit values); only the constant where there is no register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lin {
    pub(super) reg: R,
    pub(super) add: i32,
}

impl Lin {
    pub(super) fn imm(add: i32) -> Lin {
        Lin { reg: R::NONE, add }
    }

    pub(super) fn reg(reg: R) -> Lin {
        Lin { reg, add: 0 }
    }

    pub(super) fn plus(self, add: i32) -> Lin {
        Lin { add: self.add.wrapping_add(add), ..self }
    }

    pub(super) fn constant(self) -> Option<i32> {
        self.reg.is_none().then_some(self.add)
    }
}

/// Where the value of a component is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rep {
    None,
    /// A scalar; with the shape's stride for affine values.
    General(Lin),
    /// A 64-bit constant.
    Wide(u64),
    /// The same float in all lanes.
    Float(u64),
    /// Lanes; 64-bit ones in two registers.
    Vector(R, R),
    /// One bit a lane; a vector of all ones and zeros under AVX2.
    Mask(R),
    /// A mask that is known.
    Lanes(u32),
    /// A load of one element for all lanes that was put off until its only use.
    Later(At),
}

impl<'k> Lower<'k> {
    fn slot(&self, value: Value, component: u8, c: usize) -> usize {
        let axes = self.shape_of(value).axes;
        let shared = self.active.shared[usize::from(axes)][c];
        (self.facts.columns[value.index()] as usize + usize::from(component)) * self.active.components.len() + shared
    }

    pub(super) fn rep(&self, value: Value, component: u8, c: usize) -> Rep {
        self.reps[self.slot(value, component, c)]
    }

    pub(super) fn set_rep(&mut self, value: Value, component: u8, c: usize, rep: Rep) {
        let slot = self.slot(value, component, c);
        self.reps[slot] = rep;
    }

    /// Parts of a vector value.
    pub(super) fn parts(scalar: Scalar) -> usize {
        if scalar.bits() == 64 { 2 } else { 1 }
    }

    /// The scalar in a register.
    pub(super) fn materialise(&mut self, lin: Lin) -> R {
        if lin.reg.is_none() {
            let made = Made::Sum(R::NONE, lin.add);
            if let Some(r) = self.made.get(made) {
                return r;
            }
            let r = self.general();
            self.push(M::Imm { dst: r, value: u64::from(lin.add as u32) });
            self.remember(made, r);
            return r;
        }
        if lin.add == 0 {
            return lin.reg;
        }
        let made = Made::Sum(lin.reg, lin.add);
        if let Some(r) = self.made.get(made) {
            return r;
        }
        let r = self.general();
        self.push(M::Lea { wide: false, dst: r, at: At::new(lin.reg, lin.add) });
        self.remember(made, r);
        r
    }

    pub(super) fn alu(&mut self, op: Alu, wide: bool, a: R, b: GSrc) -> R {
        let made = Made::Alu(op, wide, a, b);
        if let Some(r) = self.made.get(made) {
            return r;
        }
        let r = self.general();
        self.push(M::Alu { op, wide, dst: r, a, b });
        self.remember(made, r);
        r
    }

    /// The scalar form of a 32-bit or bool value (of the first lane, when it is affine).
    pub(super) fn lin(&mut self, value: Value, c: usize) -> Lin {
        match self.rep(value, 0, c) {
            Rep::General(lin) => lin,
            _ => Lin::reg(self.scalar_reg(value, c)),
        }
    }

    /// A scalar in a register, from whatever form it has.
    pub(super) fn scalar_reg(&mut self, value: Value, c: usize) -> R {
        self.scalar_part(value, 0, c)
    }

    /// A component of a vector that is the same for all lanes, in a register.
    pub(super) fn scalar_part(&mut self, value: Value, component: u8, c: usize) -> R {
        let wide = self.scalar_of(value).bits() == 64;
        match self.rep(value, component, c) {
            Rep::General(lin) => self.materialise(lin),
            Rep::Wide(bits) | Rep::Float(bits) => {
                let r = self.general();
                self.push(M::Imm { dst: r, value: bits });
                r
            }
            Rep::Mask(mask) => {
                let bits = self.mask_bits(mask);
                self.alu(Alu::And, false, bits, GSrc::Imm(1))
            }
            Rep::Lanes(bits) => self.materialise(Lin::imm(bits as i32 & 1)),
            _ => {
                let v = self.vector_part(value, component, c, 0);
                let r = self.general();
                self.push(M::First { wide, dst: r, src: v });
                r
            }
        }
    }

    /// Emits a vector instruction into a new register.
    pub(super) fn vec(&mut self, op: VOp, a: R, b: Src) -> R {
        let dst = self.vector();
        self.push(M::Vec(LaneOp { ..self.lane_op(op, dst, a, b) }));
        dst
    }

    pub(super) fn lane_op(&self, op: VOp, dst: R, a: R, b: Src) -> LaneOp {
        LaneOp::plain(op, self.len(), dst, a, b)
    }

    pub(super) fn vec_imm(&mut self, op: VOp, a: R, b: Src, imm: u8) -> R {
        let dst = self.vector();
        self.push(M::Vec(LaneOp { imm: Some(imm), ..self.lane_op(op, dst, a, b) }));
        dst
    }

    /// A 32-bit constant in all lanes, in a register.
    pub(super) fn constant(&mut self, bits: u32) -> R {
        let made = Made::Constant(bits);
        if let Some(r) = self.made.get(made) {
            return r;
        }
        let r = self.constant_anew(u64::from(bits), false);
        self.remember(made, r);
        r
    }

    pub(super) fn constant64(&mut self, bits: u64) -> R {
        let made = Made::Constant64(bits);
        if let Some(r) = self.made.get(made) {
            return r;
        }
        let r = self.constant_anew(bits, true);
        self.remember(made, r);
        r
    }

    /// A constant of 32 or 64 bits in all lanes, in a register of its own.
    pub(super) fn constant_anew(&mut self, bits: u64, wide: bool) -> R {
        if wide {
            let pool = self.emission.asm.constant(&bits.to_le_bytes());
            let op = VOp { w: u8::from(self.facts.isa == Isa::Avx512), ..ops::VPBROADCASTQ };
            return self.vec(op, R::NONE, Src::Pool(pool));
        }
        if bits == 0 {
            let r = self.vector();
            self.push(M::Vec(LaneOp { len: Len::L256, ..self.lane_op(ops::VPXORD, r, r, Src::R(r)) }));
            // Reads its own register, whose contents don't matter.
            return r;
        }
        let pool = self.emission.asm.constant(&(bits as u32).to_le_bytes());
        self.vec(ops::VBROADCASTSS, R::NONE, Src::Pool(pool))
    }

    /// A constant vector in a register.
    pub(super) fn lanes_constant(&mut self, lanes: &[u32]) -> R {
        let bytes: Vec<u8> = lanes.iter().flat_map(|lane| lane.to_le_bytes()).collect();
        let pool = self.emission.asm.constant(&bytes);
        let made = Made::Pool(pool);
        if let Some(r) = self.made.get(made) {
            return r;
        }
        let r = self.vec(ops::VMOVUPS, R::NONE, Src::Pool(pool));
        self.made.words.insert(r, lanes.into());
        self.remember(made, r);
        r
    }

    /// One scalar in all lanes.
    pub(super) fn spread(&mut self, r: R, wide: bool) -> R {
        let made = Made::Spread(r, wide);
        if let Some(r) = self.made.get(made) {
            return r;
        }
        let dst = self.vector();
        self.push(M::Broadcast { len: self.len(), wide, dst, src: r });
        self.remember(made, dst);
        dst
    }

    /// `base + lane·stride` in a register.
    pub(super) fn ramp(&mut self, base: Lin, stride: i32) -> R {
        let lanes: Vec<u32> =
            (0..self.lanes()).map(|lane| (lane as i32).wrapping_mul(stride).wrapping_add(base.add) as u32).collect();
        if base.reg.is_none() {
            return self.lanes_constant(&lanes);
        }
        let made = Made::Ramp(base.reg, stride, base.add);
        if let Some(r) = self.made.get(made) {
            return r;
        }
        let spread = self.spread(base.reg, false);
        let r = if lanes.iter().all(|&lane| lane == 0) {
            spread
        } else {
            let bytes: Vec<u8> = lanes.iter().flat_map(|lane| lane.to_le_bytes()).collect();
            let pool = self.emission.asm.constant(&bytes);
            self.vec(ops::VPADDD, spread, Src::Pool(pool))
        };
        self.remember(made, r);
        r
    }

    /// The vector form of a component of a value: `part` 1 is the upper half of the lanes of a 64-bit one.
    pub(super) fn vector_part(&mut self, value: Value, component: u8, c: usize, part: usize) -> R {
        let scalar = self.scalar_of(value);
        let wide = scalar.bits() == 64;
        match self.rep(value, component, c) {
            Rep::Vector(low, high) => {
                if part == 0 {
                    low
                } else {
                    high
                }
            }
            Rep::General(lin) if wide => {
                let r = self.materialise(lin);
                self.spread(r, true)
            }
            Rep::General(lin) => match self.shape_of(value).lane {
                Lane::Affine(stride) => self.ramp(lin, stride),
                _ if lin.reg.is_none() => self.constant(lin.add as u32),
                _ => self.ramp(lin, 0),
            },
            Rep::Wide(bits) => self.constant64(bits),
            Rep::Float(bits) if wide => self.constant64(bits),
            Rep::Float(bits) => self.constant(bits as u32),
            Rep::Later(at) => self.load_later(scalar, at),
            Rep::Mask(mask) => {
                let one = self.constant(1);
                self.masked_zero(one, mask)
            }
            Rep::Lanes(bits) => {
                let lanes: Vec<u32> = (0..self.lanes()).map(|lane| bits >> lane & 1).collect();
                self.lanes_constant(&lanes)
            }
            Rep::None => self.constant(0),
        }
    }

    /// The lanes of a value that has 32-bit lanes.
    pub(super) fn vector_of(&mut self, value: Value, c: usize) -> R {
        self.vector_part(value, 0, c, 0)
    }

    /// A value as second operand of a vector instruction, and whether it is one element in memory for all lanes.
    pub(super) fn source(&mut self, value: Value, c: usize, part: usize) -> (Src, bool) {
        let scalar = self.scalar_of(value);
        let wide = scalar.bits() == 64;
        let evex = self.facts.isa == Isa::Avx512;
        let bits = match self.rep(value, 0, c) {
            Rep::Float(bits) | Rep::Wide(bits) => Some(bits),
            Rep::General(Lin { reg, add }) if reg.is_none() && !wide && self.shape_of(value).lane == Lane::Same => {
                Some(u64::from(add as u32))
            }
            Rep::Later(at) if evex && scalar != Scalar::F16 => return (Src::At(at), true),
            _ => None,
        };
        if let Some(bits) = bits {
            let in_register = if wide { Made::Constant64(bits) } else { Made::Constant(bits as u32) };
            if let Some(r) = self.made.get(in_register) {
                return (Src::R(r), false);
            }
            let word = match wide {
                true => bits.to_le_bytes().to_vec(),
                false => (bits as u32).to_le_bytes().to_vec(),
            };
            // Without embedded broadcasts the constant is there for every lane.
            let whole = if evex { word } else { word.repeat(self.len().bytes() as usize / word.len()) };
            return (Src::Pool(self.emission.asm.constant(&whole)), evex);
        }
        (Src::R(self.vector_part(value, 0, c, part)), false)
    }

    // Masks.

    pub(super) fn mask_class(&self) -> Class {
        match self.facts.isa {
            Isa::Avx512 => Class::Mask,
            _ => Class::Vector,
        }
    }

    pub(super) fn new_mask(&mut self) -> R {
        let class = self.mask_class();
        self.reg(class)
    }

    fn mask_op(&mut self, mask: VOp, vector: VOp, dst: R, a: R, b: R) {
        match self.facts.isa {
            Isa::Avx512 => self.push(M::Mask3 { op: mask, dst, a, b }),
            _ => {
                let v = self.lane_op(vector, dst, a, Src::R(b));
                self.push(M::Vec(v));
            }
        }
    }

    /// What a mask has all lanes of but those, where it was made so.
    pub(super) fn opposite(&self, mask: R) -> Option<R> {
        self.made.opposites.get(&mask).copied()
    }

    pub(super) fn mask_and(&mut self, a: R, b: R) -> R {
        if let [Some(a), Some(b)] = [a, b].map(|mask| self.made.known.get(&mask).copied()) {
            return self.mask_known(a & b);
        }
        match (self.opposite(a), self.opposite(b)) {
            (_, Some(b)) => return self.mask_minus(a, b),
            (Some(a), _) => return self.mask_minus(b, a),
            _ => {}
        }
        let dst = self.new_mask();
        self.mask_op(ops::KANDW, ops::VPANDD, dst, a, b);
        dst
    }

    /// `a` without `b`.
    pub(super) fn mask_minus(&mut self, a: R, b: R) -> R {
        if let Some(b) = self.opposite(b) {
            return self.mask_and(a, b);
        }
        let dst = self.new_mask();
        self.mask_op(ops::KANDNW, ops::VPANDND, dst, b, a);
        dst
    }

    pub(super) fn mask_and_into(&mut self, dst: R, b: R) {
        match self.opposite(b) {
            Some(others) => self.mask_minus_into(dst, others),
            None => self.mask_op(ops::KANDW, ops::VPANDD, dst, dst, b),
        }
    }

    pub(super) fn mask_minus_into(&mut self, dst: R, b: R) {
        self.mask_op(ops::KANDNW, ops::VPANDND, dst, b, dst);
    }

    pub(super) fn mask_or(&mut self, a: R, b: R) -> R {
        let dst = self.new_mask();
        self.mask_or_into(dst, a, b);
        dst
    }

    pub(super) fn mask_or_into(&mut self, dst: R, a: R, b: R) {
        self.mask_op(ops::KORW, ops::VPORD, dst, a, b);
    }

    pub(super) fn mask_xor(&mut self, a: R, b: R) -> R {
        let dst = self.new_mask();
        self.mask_op(ops::KXORW, ops::VPXORD, dst, a, b);
        dst
    }

    /// All lanes but those of a mask that is never written again. Without registers for masks most of what is done with such a one can be
    /// done with the other: the instruction that makes it is left out where nobody needs it.
    pub(super) fn mask_other_than(&mut self, a: R) -> R {
        let mask = self.mask_not(a);
        if self.facts.isa == Isa::Avx2 {
            self.made.opposites.insert(mask, a);
        }
        mask
    }

    pub(super) fn mask_not(&mut self, a: R) -> R {
        if let Some(a) = self.opposite(a) {
            return a;
        }
        match self.facts.isa {
            Isa::Avx512 => {
                let dst = self.new_mask();
                self.push(M::MaskNot { dst, a });
                dst
            }
            _ => {
                let ones = self.constant(u32::MAX);
                self.mask_xor(a, ones)
            }
        }
    }

    /// All lanes or none.
    pub(super) fn mask_fill(&mut self, dst: R, all: bool) {
        match self.facts.isa {
            Isa::Avx512 => {
                let r = self.materialise(Lin::imm(if all { 0xffff } else { 0 }));
                self.push(M::MaskFrom { dst, src: r });
            }
            _ => {
                let src = self.constant(if all { u32::MAX } else { 0 });
                self.push(M::Mov { dst, src });
            }
        }
    }

    /// A mask whose lanes are known.
    pub(super) fn mask_known(&mut self, bits: u32) -> R {
        let mask = match self.facts.isa {
            Isa::Avx512 => {
                let r = self.materialise(Lin::imm(bits as i32));
                let dst = self.new_mask();
                self.push(M::MaskFrom { dst, src: r });
                dst
            }
            _ => {
                let lanes: Vec<u32> = (0..self.lanes()).map(|lane| 0u32.wrapping_sub(bits >> lane & 1)).collect();
                self.lanes_constant(&lanes)
            }
        };
        self.made.known.insert(mask, bits);
        let count = bits.trailing_ones();
        if bits == (1 << count) - 1 && matches!(count, 1 | 2 | 4 | 8) && count < self.lanes() {
            self.made.prefixes.insert(mask, count);
        }
        mask
    }

    pub(super) fn mask_all(&mut self) -> R {
        let dst = self.new_mask();
        self.mask_fill(dst, true);
        dst
    }

    /// `limit - base`, or zero where the base is above the limit.
    pub(super) fn distance(&mut self, limit: R, base: R) -> R {
        let made = Made::Distance(limit, base);
        if let Some(r) = self.made.get(made) {
            return r;
        }
        let zero = self.materialise(Lin::imm(0));
        let r = self.general();
        self.push(M::Alu { op: Alu::Sub, wide: false, dst: r, a: limit, b: GSrc::R(base) });
        self.push(M::Cmp { wide: false, a: limit, b: GSrc::R(base) });
        self.push(M::Cmov { cond: Cond::Below, dst: r, src: zero });
        self.remember(made, r);
        r
    }

    /// The lanes below a scalar count.
    pub(super) fn mask_below(&mut self, count: R) -> R {
        self.mask_below_from(count, 0, 1)
    }

    /// The lanes where `first + lane · stride` is below a scalar count less than 2³¹.
    pub(super) fn mask_below_from(&mut self, count: R, first: u32, stride: u32) -> R {
        let lanes: Vec<u32> = (0..self.lanes()).map(|lane| first + lane * stride).collect();
        let spread = self.spread(count, false);
        match self.facts.isa {
            Isa::Avx512 => {
                let dst = self.new_mask();
                let bytes: Vec<u8> = lanes.iter().flat_map(|lane| lane.to_le_bytes()).collect();
                let pool = self.emission.asm.constant(&bytes);
                // count > lane
                let v = LaneOp { imm: Some(6), ..self.lane_op(ops::VPCMPUD, dst, spread, Src::Pool(pool)) };
                self.push(M::Vec(v));
                dst
            }
            _ => {
                let bytes: Vec<u8> = lanes.iter().flat_map(|lane| lane.to_le_bytes()).collect();
                let pool = self.emission.asm.constant(&bytes);
                self.vec(ops::VPCMPGTD, spread, Src::Pool(pool))
            }
        }
    }

    /// One bit a lane in a scalar register.
    pub(super) fn mask_bits(&mut self, mask: R) -> R {
        let dst = self.general();
        match self.facts.isa {
            Isa::Avx512 => self.push(M::MaskTo { dst, src: mask }),
            _ => self.push(M::SignBits { len: self.len(), dst, src: mask }),
        }
        dst
    }

    /// A bool value as a mask.
    pub(super) fn mask_of(&mut self, value: Value, c: usize) -> R {
        self.mask_part(value, 0, c)
    }

    /// A component of a bool value as a mask.
    pub(super) fn mask_part(&mut self, value: Value, component: u8, c: usize) -> R {
        match self.rep(value, component, c) {
            Rep::Mask(mask) => mask,
            Rep::Lanes(bits) => self.mask_known(bits),
            Rep::General(lin) => match lin.constant() {
                Some(constant) => {
                    let dst = self.new_mask();
                    self.mask_fill(dst, constant != 0);
                    dst
                }
                None => {
                    let r = self.materialise(lin);
                    self.mask_of_truth(r)
                }
            },
            _ => self.mask_all(),
        }
    }

    /// All lanes where a scalar is 1, none where it is 0.
    pub(super) fn mask_of_truth(&mut self, truth: R) -> R {
        let all = self.general();
        self.push(M::Neg { wide: false, dst: all, a: truth });
        match self.facts.isa {
            Isa::Avx512 => {
                let dst = self.new_mask();
                self.push(M::MaskFrom { dst, src: all });
                dst
            }
            _ => self.spread(all, false),
        }
    }

    /// The lanes that are not zero.
    pub(super) fn mask_not_zero(&mut self, v: R) -> R {
        let zero = self.constant(0);
        if self.facts.isa == Isa::Avx512 {
            let dst = self.new_mask();
            let m = LaneOp { imm: Some(4), ..self.lane_op(ops::VPCMPD, dst, v, Src::R(zero)) };
            self.push(M::Vec(m));
            return dst;
        }
        let same = self.vec(ops::VPCMPEQD, v, Src::R(zero));
        self.mask_other_than(same)
    }

    /// Jumps when no lane of the masks is set.
    pub(super) fn jump_if_none(&mut self, masks: &[R], label: Label) {
        self.test_masks(masks);
        self.push(M::JumpIf(Cond::Equal, label));
    }

    /// Jumps when some lane of the masks is set.
    pub(super) fn jump_if_any(&mut self, masks: &[R], label: Label) {
        self.test_masks(masks);
        self.push(M::JumpIf(Cond::NotEqual, label));
    }

    /// Sets "equal" when no lane of the masks is set.
    fn test_masks(&mut self, masks: &[R]) {
        let mut masks = masks.to_vec();
        masks.dedup();
        let Some((&first, rest)) = masks.split_first() else { return };
        match self.facts.isa {
            Isa::Avx512 => {
                let mut any = first;
                // The last pair is tested without a union of its own.
                let (last, middle) = match rest.split_last() {
                    Some((&last, middle)) => (last, middle),
                    None => (first, rest),
                };
                for &mask in middle {
                    any = self.mask_or(any, mask);
                }
                self.push(M::MaskTest { a: any, b: last });
            }
            _ => {
                let mut any = first;
                if let (Some(others), true) = (self.opposite(first), rest.is_empty()) {
                    let bits = self.mask_bits(others);
                    return self.push(M::Cmp { wide: false, a: bits, b: GSrc::Imm(self.all_lanes() as i32) });
                }
                for &mask in rest {
                    any = self.mask_or(any, mask);
                }
                let bits = self.mask_bits(any);
                self.push(M::Test { wide: false, a: bits, b: bits });
            }
        }
    }

    /// The half of a mask that belongs to a part of 64-bit lanes.
    pub(super) fn part_mask(&mut self, mask: R, scalar: Scalar, part: usize) -> R {
        if scalar.bits() != 64 {
            return mask;
        }
        match self.facts.isa {
            Isa::Avx512 if part == 0 => mask,
            Isa::Avx512 => {
                let dst = self.new_mask();
                self.push(M::MaskShift { dst, a: mask, count: 8 });
                dst
            }
            _ => {
                let half = if part == 0 { mask } else { self.upper_half(mask) };
                self.vec(ops::VPMOVSXDQ, R::NONE, Src::R(half))
            }
        }
    }

    /// The upper half of a vector, in the lower half of a new one.
    pub(super) fn upper_half(&mut self, v: R) -> R {
        // The destination of an extract is its r/m operand.
        let dst = self.vector();
        let op = match self.facts.isa {
            Isa::Avx512 => ops::VEXTRACTI64X4,
            _ => ops::VEXTRACTI128,
        };
        self.push(M::Reverse { op, len: self.len(), dst, src: v, imm: Some(1) });
        dst
    }

    /// Two halves as one vector.
    pub(super) fn join_halves(&mut self, low: R, high: R) -> R {
        let op = match self.facts.isa {
            Isa::Avx512 => ops::VINSERTI64X4,
            _ => ops::VINSERTI128,
        };
        self.vec_imm(op, low, Src::R(high), 1)
    }

    /// The lanes of the mask, zero elsewhere.
    pub(super) fn masked_zero(&mut self, v: R, mask: R) -> R {
        match self.facts.isa {
            Isa::Avx512 => {
                let dst = self.vector();
                let m = LaneOp { mask, zeroing: true, ..self.lane_op(ops::VMOVAPS, dst, R::NONE, Src::R(v)) };
                self.push(M::Vec(m));
                dst
            }
            _ => match self.opposite(mask) {
                Some(others) => self.vec(ops::VPANDND, others, Src::R(v)),
                None => self.vec(ops::VPANDD, mask, Src::R(v)),
            },
        }
    }

    /// `mask ? yes : no`, one part.
    pub(super) fn blend(&mut self, scalar: Scalar, mask: R, yes: Src, broadcast: bool, no: R) -> R {
        if let Some((both, yes)) = self.blended_twice(mask, yes, no) {
            return self.blend(scalar, both, Src::R(yes), broadcast, no);
        }
        if self.facts.isa == Isa::Avx2
            && let Some(r) = self.blend_with_zero(mask, yes, no)
        {
            return r;
        }
        let dst = self.vector();
        match self.facts.isa {
            Isa::Avx512 => {
                let op = if scalar.bits() == 64 { ops::VPBLENDMQ } else { ops::VPBLENDMD };
                // Not `zeroing` and not `keeps`: the instruction takes the first source outside the mask.
                let m = LaneOp { mask, zeroing: false, broadcast, ..self.lane_op(op, dst, no, yes) };
                self.push(M::Choose(m));
            }
            _ => match (self.opposite(mask), yes) {
                (Some(mask), Src::R(yes)) => self.push(M::Blendv { len: self.len(), dst, a: yes, b: Src::R(no), mask }),
                _ => self.push(M::Blendv { len: self.len(), dst, a: no, b: yes, mask }),
            },
        }
        dst
    }

    /// Zero in the lanes of a mask, without masks of their own.
    pub(super) fn cleared(&mut self, v: R, mask: R) -> R {
        match self.opposite(mask) {
            Some(others) => self.vec(ops::VPANDD, others, Src::R(v)),
            None => self.vec(ops::VPANDND, mask, Src::R(v)),
        }
    }

    /// A choice between a vector and zero: the instruction for any two takes three times as long as one that clears lanes.
    fn blend_with_zero(&mut self, mask: R, yes: Src, no: R) -> Option<R> {
        let zero = self.made.get(Made::Constant(0))?;
        match yes {
            Src::R(yes) if yes == zero => Some(self.cleared(no, mask)),
            Src::R(yes) if no == zero => Some(self.masked_zero(yes, mask)),
            _ => None,
        }
    }

    /// What was chosen in some lanes of a mask, else `no`, and is chosen now in some lanes, else `no`: the lanes of both, and what it was. The
    /// instruction for it takes three times as long as one that puts masks together.
    fn blended_twice(&mut self, mask: R, yes: Src, no: R) -> Option<(R, R)> {
        let Src::R(yes) = yes else { return None };
        if self.facts.isa != Isa::Avx2 {
            return None;
        }
        let mut later: Vec<R> = Vec::new();
        for at in (0..self.emission.code.len()).rev().take(16) {
            let mut m = self.emission.code[at];
            if let M::Blendv { dst, a, b: Src::R(b), mask: inner, .. } = m
                && dst == yes
            {
                let kept = !later.contains(&dst) && [a, b, inner].iter().all(|r| !later.contains(r) && *r != dst);
                return match kept {
                    true if a == no => Some((self.mask_and(mask, inner), b)),
                    // The other way round, with the opposite of a mask.
                    true if b == no => Some((self.mask_minus(mask, inner), a)),
                    _ => None,
                };
            }
            if matches!(m, M::Label(_) | M::Jump(_) | M::JumpIf(..) | M::Call { .. }) {
                return None;
            }
            m.visit(&mut |r, role| {
                if matches!(role, Role::Def | Role::Both) {
                    later.push(*r);
                }
            });
        }
        None
    }

    /// Overwrites a register with another, only in the lanes of the mask when there is one.
    pub(super) fn overwrite(&mut self, scalar: Scalar, dst: R, src: R, mask: Option<R>) {
        let Some(mask) = mask else {
            if dst != src {
                self.push(M::Mov { dst, src });
            }
            return;
        };
        match self.facts.isa {
            Isa::Avx512 => {
                let op = if scalar.bits() == 64 { ops::VMOVAPD } else { ops::VMOVAPS };
                let m = LaneOp { mask, ..self.lane_op(op, dst, R::NONE, Src::R(src)) };
                self.push(M::Vec(m));
            }
            _ => match self.opposite(mask) {
                Some(mask) => self.push(M::Blendv { len: self.len(), dst, a: src, b: Src::R(dst), mask }),
                None => self.push(M::Blendv { len: self.len(), dst, a: dst, b: Src::R(src), mask }),
            },
        }
    }
}
