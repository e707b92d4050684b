//! Masked, gathered and scattered accesses, lane by lane. No branch depends on a lane: lanes that are not active read zeros and
//! write to a place that nobody reads.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8X16, I16X8, I32, I32X4, I64, I64X2};
use cranelift_codegen::ir::{InstBuilder, InstructionData, Opcode, Type, Value, ValueDef};

use super::super::asm::VOp;
use super::super::mir::{At, R};
use super::super::ops;
use super::{Emitter, access};

impl Emitter<'_> {
    /// Where a lane reads or writes.
    fn lane_address(&mut self, address: Value, active: Option<(Value, u8)>, otherwise: Value) -> Value {
        let Some((mask, lane)) = active else { return address };
        let test = self.builder.ins().extractlane(mask, lane);
        self.builder.ins().select(test, address, otherwise)
    }

    fn offset(&mut self, address: Value, by: i64) -> Value {
        let by = self.builder.ins().iconst(I64, by);
        self.builder.ins().iadd(address, by)
    }

    /// Runs `all` when every lane of the mask is set and `some` when not; both give a vector or nothing.
    fn if_all(
        &mut self,
        mask: Value,
        result: Option<Type>,
        all: impl FnOnce(&mut Self) -> Option<Value>,
        some: impl FnOnce(&mut Self) -> Option<Value>,
    ) -> Option<Value> {
        let [whole, part, done] = [0; 3].map(|_| self.builder.create_block());
        let value = result.map(|ty| self.builder.append_block_param(done, ty));
        let test = self.all_set(mask);
        self.builder.ins().brif(test, whole, &[], part, &[]);
        // Only the edges of the work have lanes that are not active. On riscv64 branches to the end of the code would be too far.
        if !self.target.is_riscv() {
            self.builder.set_cold_block(part);
        }
        self.enter(whole);
        let made = all(self);
        self.builder.ins().jump(done, &made.map(Into::into).into_iter().collect::<Vec<_>>());
        self.enter(part);
        let made = some(self);
        self.builder.ins().jump(done, &made.map(Into::into).into_iter().collect::<Vec<_>>());
        self.enter(done);
        value
    }

    /// The lanes of a mask that is a constant.
    fn known_lanes(&self, mask: Value) -> Option<Vec<u8>> {
        let InstructionData::UnaryConst { opcode: Opcode::Vconst, constant_handle } = self.made_by(mask)? else {
            return None;
        };
        let dfg = &self.builder.func.dfg;
        let bytes = dfg.value_type(mask).lane_type().bytes() as usize;
        let lanes = dfg.constants.get(constant_handle).as_slice().chunks_exact(bytes).enumerate();
        Some(lanes.filter(|(_, lane)| lane[0] != 0).map(|(at, _)| at as u8).collect())
    }

    /// Whether every lane of a mask is set.
    fn all_set(&mut self, mask: Value) -> Value {
        match self.made_by(mask) {
            Some(InstructionData::Binary { opcode: Opcode::Band, args: [a, b] }) => {
                let (a, b) = (self.all_set(a), self.all_set(b));
                return self.builder.ins().band(a, b);
            }
            Some(InstructionData::IntCompare { cond, args: [a, b], .. }) => {
                if let Some(test) = self.all_hold(cond, a, b) {
                    return test;
                }
            }
            _ => {}
        }
        if !self.target.is_x86() {
            return self.builder.ins().vall_true(mask);
        }
        // Lanes of a mask are all ones or all zeros, so their signs do, which are one instruction there.
        let ty = self.builder.func.dfg.value_type(mask);
        let signs = self.builder.ins().vhigh_bits(I32, mask);
        let all = self.builder.ins().iconst(I32, (1 << ty.lane_count()) - 1);
        self.builder.ins().icmp(IntCC::Equal, signs, all)
    }

    /// Whether a comparison holds in all lanes, as a comparison of scalars.
    fn all_hold(&mut self, cond: IntCC, a: Value, b: Value) -> Option<Value> {
        if self.builder.func.dfg.value_type(a) != I32X4 {
            return None;
        }
        match cond {
            // Constants less than one number: the largest says it.
            IntCC::SignedGreaterThan => {
                let (count, lanes) = (self.splatted(a)?, self.words(b)?);
                let most = self.builder.ins().iconst(I32, i64::from(lanes.into_iter().max()?));
                Some(self.builder.ins().icmp(IntCC::SignedGreaterThan, count, most))
            }
            IntCC::UnsignedGreaterThan => self.all_hold(IntCC::UnsignedLessThan, b, a),
            // A number and small constants added to it: none wraps and is still less than the limit when the first is less than
            // the limit less the largest distance.
            IntCC::UnsignedLessThan => {
                let limit = self.splatted(b)?;
                let Some(InstructionData::Binary { opcode: Opcode::Iadd, args: [base, steps] }) = self.made_by(a)
                else {
                    return None;
                };
                let (base, steps) = (self.splatted(base)?, self.words(steps)?);
                let (least, most) = (*steps.iter().min()?, *steps.iter().max()?);
                let distance = most.checked_sub(least).filter(|&distance| distance < 1 << 20)?;
                let by = self.builder.ins().iconst(I32, i64::from(least as u32));
                let first = self.builder.ins().iadd(base, by);
                let distance = self.builder.ins().iconst(I32, i64::from(distance));
                let zero = self.builder.ins().iconst(I32, 0);
                let room = self.builder.ins().isub(limit, distance);
                let any = self.builder.ins().icmp(IntCC::UnsignedGreaterThan, limit, distance);
                let room = self.builder.ins().select(any, room, zero);
                Some(self.builder.ins().icmp(IntCC::UnsignedLessThan, first, room))
            }
            _ => None,
        }
    }

    fn made_by(&self, value: Value) -> Option<InstructionData> {
        let dfg = &self.builder.func.dfg;
        match dfg.value_def(value) {
            ValueDef::Result(inst, _) => Some(dfg.insts[inst]),
            _ => None,
        }
    }

    /// The word that all lanes hold.
    fn splatted(&self, value: Value) -> Option<Value> {
        match self.made_by(value)? {
            InstructionData::Unary { opcode: Opcode::Splat, arg } => Some(arg),
            _ => None,
        }
    }

    /// The lanes of a constant.
    fn words(&self, value: Value) -> Option<Vec<i32>> {
        let InstructionData::UnaryConst { opcode: Opcode::Vconst, constant_handle } = self.made_by(value)? else {
            return None;
        };
        let words = self.builder.func.dfg.constants.get(constant_handle).as_slice().chunks_exact(4);
        Some(words.filter_map(|word| Some(i32::from_le_bytes(word.try_into().ok()?))).collect())
    }

    pub(super) fn masked_load(&mut self, ty: Type, at: At, mask: R) -> Option<Value> {
        let address = self.address(at)?;
        let Some(mask) = self.mask_lanes(mask, ty)? else {
            return Some(self.builder.ins().load(ty, access(), address, at.disp));
        };
        if let Some(lanes) = self.known_lanes(mask) {
            if lanes == [0, 1] && ty == I32X4 {
                let both = self.builder.ins().load(I64, access(), address, at.disp);
                let both = self.builder.ins().scalar_to_vector(I64X2, both);
                return Some(self.cast(ty, both));
            }
            if lanes == [0] {
                return self.load_first(ty, at);
            }
            let mut value = self.constant(&[0; 16]);
            value = self.cast(ty, value);
            for lane in lanes {
                let disp = i32::try_from(at.lane(ty, lane)).ok()?;
                let element = self.builder.ins().load(ty.lane_type(), access(), address, disp);
                value = self.builder.ins().insertlane(value, element, lane);
            }
            return Some(value);
        }
        self.if_all(
            mask,
            Some(ty),
            |this| Some(this.builder.ins().load(ty, access(), address, at.disp)),
            |this| Some(this.load_each(ty, mask, |this, lane| this.offset(address, at.lane(ty, lane)))),
        )
    }

    /// Loads the first element, zero in the others.
    pub(super) fn load_first(&mut self, ty: Type, at: At) -> Option<Value> {
        let address = self.address(at)?;
        let first = self.builder.ins().load(ty.lane_type(), access(), address, at.disp);
        Some(self.builder.ins().scalar_to_vector(ty, first))
    }

    /// Loads the active lanes from where `place` says, zero in the others.
    fn load_each(&mut self, ty: Type, mask: Value, mut place: impl FnMut(&mut Self, u8) -> Value) -> Value {
        let mut value = self.constant(&[0; 16]);
        value = self.cast(ty, value);
        for lane in 0..ty.lane_count() as u8 {
            let address = place(self, lane);
            let address = self.lane_address(address, Some((mask, lane)), self.zeros);
            let element = self.builder.ins().load(ty.lane_type(), access(), address, 0);
            value = self.builder.ins().insertlane(value, element, lane);
        }
        value
    }

    pub(super) fn store_lanes(&mut self, op: VOp, src: R, at: At, mask: R) -> Option<()> {
        if matches!(op, ops::VPMOVDB | ops::VPMOVDW | ops::VCVTPS2PH) {
            return self.store_narrow(op, src, at, mask);
        }
        if matches!(op, ops::VMOVSS_STORE | ops::VMOVSD_STORE) {
            let address = self.address(at)?;
            let value = self.get_as(src, if op == ops::VMOVSD_STORE { I64X2 } else { I32X4 })?;
            let first = self.builder.ins().extractlane(value, 0);
            self.builder.ins().store(access(), first, address, at.disp);
            return Some(());
        }
        let ty = match op {
            ops::VMOVUPS_STORE | ops::VMASKMOVPS_STORE => I32X4,
            ops::VMOVUPD_STORE | ops::VMASKMOVPD_STORE => I64X2,
            _ => return None,
        };
        let address = self.address(at)?;
        let value = self.get_as(src, ty)?;
        let Some(mask) = self.mask_lanes(mask, ty)? else {
            self.builder.ins().store(access(), value, address, at.disp);
            return Some(());
        };
        if let Some(lanes) = self.known_lanes(mask) {
            if lanes == [0, 1] && ty == I32X4 {
                let both = self.cast(I64X2, value);
                let both = self.builder.ins().extractlane(both, 0);
                self.builder.ins().store(access(), both, address, at.disp);
                return Some(());
            }
            for lane in lanes {
                let disp = i32::try_from(at.lane(ty, lane)).ok()?;
                let element = self.builder.ins().extractlane(value, lane);
                self.builder.ins().store(access(), element, address, disp);
            }
            return Some(());
        }
        self.if_all(
            mask,
            None,
            |this| {
                this.builder.ins().store(access(), value, address, at.disp);
                None
            },
            |this| {
                let dump = this.builder.ins().stack_addr(I64, this.dump, 0);
                for lane in 0..ty.lane_count() as u8 {
                    let place = this.offset(address, at.lane(ty, lane));
                    let place = this.lane_address(place, Some((mask, lane)), dump);
                    let element = this.builder.ins().extractlane(value, lane);
                    this.builder.ins().store(access(), element, place, 0);
                }
                None
            },
        );
        Some(())
    }

    /// Widens elements of 1 or 2 bytes to words.
    pub(super) fn load_narrow(&mut self, op: VOp, at: At, mask: R) -> Option<Value> {
        let bytes = if matches!(op, ops::VPMOVZXBD | ops::VPMOVSXBD) { 1 } else { 2 };
        let signed = matches!(op, ops::VPMOVSXBD | ops::VPMOVSXWD);
        let address = self.address(at)?;
        let whole = |this: &mut Self| {
            let mut value = if bytes == 1 {
                let all = this.builder.ins().load(I32, access(), address, at.disp);
                let all = this.builder.ins().scalar_to_vector(I32X4, all);
                let all = this.cast(I8X16, all);
                this.widen(all, signed)
            } else {
                let all = this.builder.ins().load(I64, access(), address, at.disp);
                let all = this.builder.ins().scalar_to_vector(I64X2, all);
                this.cast(I16X8, all)
            };
            value = this.widen(value, signed);
            value
        };
        let value = match self.mask_lanes(mask, I32X4)? {
            None => whole(self),
            Some(mask) => self.if_all(
                mask,
                Some(I32X4),
                |this| Some(whole(this)),
                |this| {
                    let mut value = this.constant(&[0; 16]);
                    for lane in 0..4 {
                        let place = this.offset(address, i64::from(at.disp) + i64::from(lane) * bytes);
                        let place = this.lane_address(place, Some((mask, lane)), this.zeros);
                        let ins = this.builder.ins();
                        let element = match (bytes, signed) {
                            (1, false) => ins.uload8(I32, access(), place, 0),
                            (1, true) => ins.sload8(I32, access(), place, 0),
                            (_, false) => ins.uload16(I32, access(), place, 0),
                            (_, true) => ins.sload16(I32, access(), place, 0),
                        };
                        value = this.builder.ins().insertlane(value, element, lane);
                    }
                    Some(value)
                },
            )?,
        };
        Some(if op == ops::VCVTPH2PS { self.widen_halves(value) } else { value })
    }

    fn widen(&mut self, value: Value, signed: bool) -> Value {
        let ins = self.builder.ins();
        if signed { ins.swiden_low(value) } else { ins.uwiden_low(value) }
    }

    /// Stores the low 1 or 2 bytes of words.
    fn store_narrow(&mut self, op: VOp, src: R, at: At, mask: R) -> Option<()> {
        let bytes = if op == ops::VPMOVDB { 1 } else { 2 };
        let address = self.address(at)?;
        let mut value = self.get_as(src, I32X4)?;
        if op == ops::VCVTPS2PH {
            value = self.round_to_halves(value);
        }
        let whole = |this: &mut Self| {
            if bytes == 1 {
                let packed = this.shuffle(value, value, [0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12]);
                let packed = this.builder.ins().extractlane(packed, 0);
                this.builder.ins().store(access(), packed, address, at.disp);
            } else {
                let packed = this.pack_halves(value);
                let packed = this.cast(I64X2, packed);
                let packed = this.builder.ins().extractlane(packed, 0);
                this.builder.ins().store(access(), packed, address, at.disp);
            }
        };
        let Some(mask) = self.mask_lanes(mask, I32X4)? else {
            whole(self);
            return Some(());
        };
        self.if_all(
            mask,
            None,
            |this| {
                whole(this);
                None
            },
            |this| {
                let dump = this.builder.ins().stack_addr(I64, this.dump, 0);
                for lane in 0..4 {
                    let place = this.offset(address, i64::from(at.disp) + i64::from(lane) * bytes);
                    let place = this.lane_address(place, Some((mask, lane)), dump);
                    let element = this.builder.ins().extractlane(value, lane);
                    let ins = this.builder.ins();
                    match bytes {
                        1 => ins.istore8(access(), element, place, 0),
                        _ => ins.istore16(access(), element, place, 0),
                    };
                }
                None
            },
        );
        Some(())
    }

    /// The address of a lane of a gather or scatter.
    fn indexed(&mut self, base: Value, at: At, index: Value, lane: u8) -> Value {
        let index = self.builder.ins().extractlane(index, lane);
        let index = self.builder.ins().sextend(I64, index);
        let index = self.scaled(index, at.scale);
        let address = self.builder.ins().iadd(base, index);
        self.offset(address, i64::from(at.disp))
    }

    pub(super) fn gather(&mut self, op: VOp, dst: R, at: At, index: R, mask: R) -> Option<()> {
        let ty = if op == ops::VPGATHERDQ { I64X2 } else { I32X4 };
        let base = self.get(at.base)?;
        let index = self.get_as(index, I32X4)?;
        let value = match self.mask_lanes(mask, ty)? {
            Some(mask) => {
                let old = self.get_as(dst, ty)?;
                let loaded = self.load_each(ty, mask, |this, lane| this.indexed(base, at, index, lane));
                match self.all_bytes(old) {
                    Some(0) => loaded,
                    _ => self.builder.ins().bitselect(mask, loaded, old),
                }
            }
            None => {
                let mut value = self.constant(&[0; 16]);
                value = self.cast(ty, value);
                for lane in 0..ty.lane_count() as u8 {
                    let address = self.indexed(base, at, index, lane);
                    let element = self.builder.ins().load(ty.lane_type(), access(), address, 0);
                    value = self.builder.ins().insertlane(value, element, lane);
                }
                value
            }
        };
        self.set_lanes(dst, value)
    }

    pub(super) fn scatter(&mut self, op: VOp, src: R, at: At, index: R, mask: R) -> Option<()> {
        let ty = if op == ops::VPSCATTERDQ { I64X2 } else { I32X4 };
        let base = self.get(at.base)?;
        let index = self.get_as(index, I32X4)?;
        let value = self.get_as(src, ty)?;
        let mask = self.mask_lanes(mask, ty)?;
        let dump = self.builder.ins().stack_addr(I64, self.dump, 0);
        for lane in 0..ty.lane_count() as u8 {
            let address = self.indexed(base, at, index, lane);
            let address = self.lane_address(address, mask.map(|mask| (mask, lane)), dump);
            let element = self.builder.ins().extractlane(value, lane);
            self.builder.ins().store(access(), element, address, 0);
        }
        Some(())
    }
}

impl At {
    /// The displacement of a lane of a contiguous access.
    fn lane(self, ty: Type, lane: u8) -> i64 {
        i64::from(self.disp) + i64::from(lane) * i64::from(ty.lane_type().bytes())
    }
}
