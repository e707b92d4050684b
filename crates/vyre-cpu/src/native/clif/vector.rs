//! Instructions on lanes.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::types::{F32X4, F64X2, I8X16, I16X8, I32, I32X4, I64, I64X2};
use cranelift_codegen::ir::{ConstantData, Immediate, InstBuilder, InstructionData, Opcode, Type, Value, ValueDef};
use vyre_foundation::kernel::Scalar;

use super::super::asm::VOp;
use super::super::context::{COLUMN, RESULT};
use super::super::lower::Rare;
use super::super::mir::{Class, LaneOp, M, R, Src};
use super::super::ops;
use super::{Emitter, access};

/// Bitwise instructions exist with both element widths.
const fn wide(op: VOp) -> VOp {
    VOp { w: 1, ..op }
}

const VPANDQ: VOp = wide(ops::VPANDD);
const VPORQ: VOp = wide(ops::VPORD);
const VPXORQ: VOp = wide(ops::VPXORD);
const VPBROADCASTQ_VEX: VOp = VOp { w: 0, ..ops::VPBROADCASTQ };

/// A lane of a scalar operation.
#[derive(Clone, Copy)]
enum Each {
    Left,
    Right,
    Arithmetic,
    LeadingZeros,
}

impl Emitter<'_> {
    /// Emits an instruction on lanes; `None` when it has no form here.
    pub(super) fn lanes(&mut self, m: &M) -> Option<()> {
        match *m {
            M::Vec(ref v) => self.vec(v),
            M::Mov { dst, src } => {
                let value = self.get_as(src, I32X4)?;
                self.set_lanes(dst, value)
            }
            M::Reverse { op, dst, src, .. } => {
                let v = self.get_as(src, I32X4)?;
                let value = match op {
                    ops::VEXTRACTI128 => self.shuffle(v, v, [8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7]),
                    ops::VCVTPS2PH => {
                        let halves = self.round_to_halves(v);
                        self.pack_halves(halves)
                    }
                    ops::VPMOVDW => self.pack_halves(v),
                    _ => return None,
                };
                self.set_lanes(dst, value)
            }
            M::Blendv { dst, a, b, mask, .. } => {
                let mask = self.get_as(mask, I32X4)?;
                let (no, yes) = (self.get_as(a, I32X4)?, self.whole(b, I32X4)?);
                let value = self.builder.ins().bitselect(mask, yes, no);
                self.set_lanes(dst, value)
            }
            M::SignBits { dst, src, .. } => {
                let mask = self.get_as(src, I32X4)?;
                let bits = self.builder.ins().vhigh_bits(I32, mask);
                self.set(dst, bits)?;
                self.signs.push((dst, mask));
                Some(())
            }
            M::Broadcast { wide, dst, src, .. } => {
                let src = self.scalar_of(src, wide)?;
                let value = self.builder.ins().splat(if wide { I64X2 } else { I32X4 }, src);
                self.set_lanes(dst, value)
            }
            M::First { wide, dst, src } => {
                let v = self.get_as(src, if wide { I64X2 } else { I32X4 })?;
                let value = self.builder.ins().extractlane(v, 0);
                self.set(dst, value)
            }
            M::Undefined { dst } => match dst.class() {
                Class::General => {
                    let zero = self.builder.ins().iconst(I64, 0);
                    self.set(dst, zero)
                }
                _ => {
                    let zero = self.constant(&[0; 16]);
                    self.set_lanes(dst, zero)
                }
            },
            M::VStore { op, src, at, mask, .. } => self.store_lanes(op, src, at, mask),
            M::Gather { op, dst, at, index, mask, .. } => self.gather(op, dst, at, index, mask),
            M::Scatter { op, src, at, index, mask, .. } => self.scatter(op, src, at, index, mask),
            _ => None,
        }
    }

    /// Sixteen bytes.
    pub(super) fn constant(&mut self, bytes: &[u8; 16]) -> Value {
        let constant = self.builder.func.dfg.constants.insert(ConstantData::from(bytes.as_slice()));
        self.builder.ins().vconst(I32X4, constant)
    }

    /// A word in all lanes.
    pub(super) fn splat(&mut self, word: u32) -> Value {
        let word = word.to_le_bytes();
        self.constant(&std::array::from_fn(|at| word[at % 4]))
    }

    pub(super) fn shuffle(&mut self, a: Value, b: Value, bytes: [u8; 16]) -> Value {
        let mask: Immediate = self.builder.func.dfg.immediates.push(ConstantData::from(bytes.as_slice()));
        let (a, b) = (self.cast(I8X16, a), self.cast(I8X16, b));
        let value = self.builder.ins().shuffle(a, b, mask);
        self.cast(I32X4, value)
    }

    /// A constant that all bits of the value are known to be.
    pub(super) fn all_bytes(&self, value: Value) -> Option<u8> {
        let dfg = &self.builder.func.dfg;
        let ValueDef::Result(inst, _) = dfg.value_def(value) else { return None };
        let InstructionData::UnaryConst { opcode: Opcode::Vconst, constant_handle } = dfg.insts[inst] else {
            return None;
        };
        let bytes = dfg.constants.get(constant_handle).as_slice();
        let first = *bytes.first()?;
        bytes.iter().all(|byte| *byte == first).then_some(first)
    }

    fn pooled<const N: usize>(&self, at: u32) -> Option<[u8; N]> {
        self.pool.get(at as usize..at as usize + N)?.try_into().ok()
    }

    /// A whole vector operand.
    fn whole(&mut self, src: Src, ty: Type) -> Option<Value> {
        match src {
            Src::R(r) => self.get_as(r, ty),
            Src::At(at) => {
                let address = self.address(at)?;
                Some(self.builder.ins().load(ty, access(), address, at.disp))
            }
            Src::Pool(at) => {
                let bytes = self.pooled(at)?;
                let value = self.constant(&bytes);
                Some(self.cast(ty, value))
            }
        }
    }

    /// One element in all lanes.
    fn spread(&mut self, src: Src, ty: Type) -> Option<Value> {
        match src {
            Src::R(r) => {
                let v = self.get_as(r, ty)?;
                let lane = self.builder.ins().extractlane(v, 0);
                Some(self.builder.ins().splat(ty, lane))
            }
            Src::At(at) => {
                let address = self.address(at)?;
                let element = self.builder.ins().load(ty.lane_type(), access(), address, at.disp);
                Some(self.builder.ins().splat(ty, element))
            }
            Src::Pool(at) if ty == I64X2 => {
                let bytes: [u8; 8] = self.pooled(at)?;
                Some(self.constant(&std::array::from_fn(|at| bytes[at % 8])))
            }
            Src::Pool(at) => {
                let bytes: [u8; 4] = self.pooled(at)?;
                Some(self.constant(&std::array::from_fn(|at| bytes[at % 4])))
            }
        }
    }

    fn vec(&mut self, v: &LaneOp) -> Option<()> {
        if v.broadcast {
            return None;
        }
        if let (ops::VPMOVZXBD | ops::VPMOVSXBD | ops::VPMOVZXWD | ops::VPMOVSXWD | ops::VCVTPH2PS, Src::At(at)) =
            (v.op, v.b)
        {
            let value = self.load_narrow(v.op, at, v.mask)?;
            return self.set_lanes(v.dst, value);
        }
        if !v.mask.is_none() {
            return None;
        }
        // Anything with itself: the register need not hold anything before.
        if v.op == ops::VPXORD && v.b == Src::R(v.a) {
            let zero = self.constant(&[0; 16]);
            return self.set_lanes(v.dst, zero);
        }
        let value = match v.op {
            ops::VADDPS | ops::VADDPD => {
                let (a, b) = self.pair(v, v.op == ops::VADDPD)?;
                self.builder.ins().fadd(a, b)
            }
            ops::VSUBPS | ops::VSUBPD => {
                let (a, b) = self.pair(v, v.op == ops::VSUBPD)?;
                self.builder.ins().fsub(a, b)
            }
            ops::VMULPS | ops::VMULPD => {
                let (a, b) = self.pair(v, v.op == ops::VMULPD)?;
                self.builder.ins().fmul(a, b)
            }
            ops::VDIVPS | ops::VDIVPD => {
                let (a, b) = self.pair(v, v.op == ops::VDIVPD)?;
                self.builder.ins().fdiv(a, b)
            }
            // Both give the second source unless the comparison holds.
            ops::VMINPS | ops::VMINPD => {
                let (a, b) = self.pair(v, v.op == ops::VMINPD)?;
                self.choose(FloatCC::LessThan, a, b)
            }
            ops::VMAXPS | ops::VMAXPD => {
                let (a, b) = self.pair(v, v.op == ops::VMAXPD)?;
                self.choose(FloatCC::GreaterThan, a, b)
            }
            ops::VSQRTPS | ops::VSQRTPD => {
                let b = self.whole(v.b, if v.op == ops::VSQRTPD { F64X2 } else { F32X4 })?;
                self.builder.ins().sqrt(b)
            }
            ops::VROUNDPS | ops::VROUNDPD => {
                let b = self.whole(v.b, if v.op == ops::VROUNDPD { F64X2 } else { F32X4 })?;
                let ins = self.builder.ins();
                match v.imm? {
                    8 => ins.nearest(b),
                    9 => ins.floor(b),
                    10 => ins.ceil(b),
                    11 => ins.trunc(b),
                    _ => return None,
                }
            }
            ops::VFMADD231PS
            | ops::VFMADD231PD
            | ops::VFMSUB231PS
            | ops::VFMSUB231PD
            | ops::VFNMADD231PS
            | ops::VFNMADD231PD => {
                let ty = if v.op.w == 1 { F64X2 } else { F32X4 };
                let (a, b, sum) = (self.get_as(v.a, ty)?, self.whole(v.b, ty)?, self.get_as(v.dst, ty)?);
                self.fused_with_sign(v.op, [a, b, sum], ty)
            }
            ops::VFMADD213PS
            | ops::VFMADD213PD
            | ops::VFMSUB213PS
            | ops::VFMSUB213PD
            | ops::VFNMADD213PS
            | ops::VFNMADD213PD => {
                let ty = if v.op.w == 1 { F64X2 } else { F32X4 };
                let (a, sum, b) = (self.get_as(v.a, ty)?, self.whole(v.b, ty)?, self.get_as(v.dst, ty)?);
                self.fused_with_sign(v.op, [a, b, sum], ty)
            }
            ops::VCMPPS | ops::VCMPPD => {
                let (a, b) = self.pair(v, v.op == ops::VCMPPD)?;
                let code = match v.imm? {
                    0x00 => FloatCC::Equal,
                    0x04 => FloatCC::NotEqual,
                    0x07 => FloatCC::Ordered,
                    0x11 => FloatCC::LessThan,
                    0x12 => FloatCC::LessThanOrEqual,
                    0x1d => FloatCC::GreaterThanOrEqual,
                    0x1e => FloatCC::GreaterThan,
                    _ => return None,
                };
                self.builder.ins().fcmp(code, a, b)
            }
            ops::VPCMPD | ops::VPCMPUD | ops::VPCMPQ | ops::VPCMPUQ => self.compare(v)?,
            ops::VPCMPEQD => self.compared(IntCC::Equal, v)?,
            ops::VPCMPGTD => self.compared(IntCC::SignedGreaterThan, v)?,
            ops::VCVTDQ2PS => {
                let b = self.whole(v.b, I32X4)?;
                self.builder.ins().fcvt_from_sint(F32X4, b)
            }
            ops::VCVTUDQ2PS => {
                let b = self.whole(v.b, I32X4)?;
                self.builder.ins().fcvt_from_uint(F32X4, b)
            }
            ops::VCVTTPS2DQ => {
                let b = self.whole(v.b, F32X4)?;
                self.builder.ins().fcvt_to_sint_sat(I32X4, b)
            }
            ops::VCVTTPS2UDQ => {
                let b = self.whole(v.b, F32X4)?;
                self.builder.ins().fcvt_to_uint_sat(I32X4, b)
            }
            ops::VCVTPH2PS => {
                let packed = self.whole(v.b, I16X8)?;
                let halves = self.builder.ins().uwiden_low(packed);
                self.widen_halves(halves)
            }
            ops::VPMOVZXWD => {
                let packed = self.whole(v.b, I16X8)?;
                self.builder.ins().uwiden_low(packed)
            }
            ops::VPMOVZXDQ => {
                let b = self.whole(v.b, I32X4)?;
                self.builder.ins().uwiden_low(b)
            }
            ops::VPMOVSXDQ => {
                let b = self.whole(v.b, I32X4)?;
                self.builder.ins().swiden_low(b)
            }
            ops::VINSERTI128 => {
                let (low, high) = (self.get_as(v.a, I32X4)?, self.whole(v.b, I32X4)?);
                self.shuffle(low, high, [0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23])
            }
            // Two words of each operand.
            ops::VSHUFPS => {
                let (low, high) = (self.get_as(v.a, I32X4)?, self.whole(v.b, I32X4)?);
                let order = v.imm?;
                let byte = |at: usize| (order >> (at / 4 * 2) & 3) * 4 + at as u8 % 4 + if at < 8 { 0 } else { 16 };
                self.shuffle(low, high, std::array::from_fn(byte))
            }
            ops::VPMULUDQ | ops::VPMULDQ => {
                let (a, b) = (self.get_as(v.a, I32X4)?, self.whole(v.b, I32X4)?);
                let even = [0, 1, 2, 3, 8, 9, 10, 11, 0, 1, 2, 3, 8, 9, 10, 11];
                let (a, b) = (self.shuffle(a, a, even), self.shuffle(b, b, even));
                let ins = &mut self.builder;
                let (a, b) = match v.op == ops::VPMULDQ {
                    true => (ins.ins().swiden_low(a), ins.ins().swiden_low(b)),
                    false => (ins.ins().uwiden_low(a), ins.ins().uwiden_low(b)),
                };
                self.builder.ins().imul(a, b)
            }
            ops::VPSLLD | ops::VPSRLD | ops::VPSRAD | ops::VPSRLQ => {
                let b = self.whole(v.b, if v.op == ops::VPSRLQ { I64X2 } else { I32X4 })?;
                let count = self.builder.ins().iconst(I32, i64::from(v.imm?));
                let ins = self.builder.ins();
                match v.op {
                    ops::VPSLLD => ins.ishl(b, count),
                    ops::VPSRAD => ins.sshr(b, count),
                    _ => ins.ushr(b, count),
                }
            }
            ops::VPSLLVD => self.each(Each::Left, v, I32X4)?,
            ops::VPSRLVD => self.each(Each::Right, v, I32X4)?,
            ops::VPSRAVD => self.each(Each::Arithmetic, v, I32X4)?,
            ops::VPSLLVQ => self.each(Each::Left, v, I64X2)?,
            ops::VPSRLVQ => self.each(Each::Right, v, I64X2)?,
            ops::VPSRAVQ => self.each(Each::Arithmetic, v, I64X2)?,
            ops::VPLZCNTD => self.each(Each::LeadingZeros, v, I32X4)?,
            ops::VPABSD => {
                let b = self.whole(v.b, I32X4)?;
                self.builder.ins().iabs(b)
            }
            ops::VPABSQ => {
                let b = self.whole(v.b, I64X2)?;
                self.builder.ins().iabs(b)
            }
            ops::VMOVUPS | ops::VMOVAPS | ops::VMOVUPD | ops::VMOVAPD => self.whole(v.b, I32X4)?,
            ops::VMOVSS | ops::VMOVSD => {
                let Src::At(at) = v.b else { return None };
                self.load_first(if v.op == ops::VMOVSD { I64X2 } else { I32X4 }, at)?
            }
            ops::VBROADCASTSS | ops::VPBROADCASTD => self.spread(v.b, I32X4)?,
            ops::VPBROADCASTQ | VPBROADCASTQ_VEX => self.spread(v.b, I64X2)?,
            ops::VMASKMOVPS | ops::VMASKMOVPD => {
                let Src::At(at) = v.b else { return None };
                self.masked_load(if v.op == ops::VMASKMOVPD { I64X2 } else { I32X4 }, at, v.a)?
            }
            _ => self.integer(v)?,
        };
        self.set_lanes(v.dst, value)
    }

    /// Two float operands.
    fn pair(&mut self, v: &LaneOp, wide: bool) -> Option<(Value, Value)> {
        let ty = if wide { F64X2 } else { F32X4 };
        Some((self.get_as(v.a, ty)?, self.whole(v.b, ty)?))
    }

    fn choose(&mut self, code: FloatCC, a: Value, b: Value) -> Value {
        let ty = self.builder.func.dfg.value_type(a);
        // Written as the comparison that Cranelift knows an instruction for.
        let mask = match code {
            FloatCC::GreaterThan => self.builder.ins().fcmp(FloatCC::LessThan, b, a),
            code => self.builder.ins().fcmp(code, a, b),
        };
        let mask = self.cast(ty, mask);
        self.builder.ins().bitselect(mask, a, b)
    }

    /// `a·b + c`, `a·b − c` or `c − a·b`.
    fn fused_with_sign(&mut self, op: VOp, [a, b, c]: [Value; 3], ty: Type) -> Value {
        let subtracts = matches!(op, ops::VFMSUB231PS | ops::VFMSUB231PD | ops::VFMSUB213PS | ops::VFMSUB213PD);
        let adds = matches!(op, ops::VFMADD231PS | ops::VFMADD231PD | ops::VFMADD213PS | ops::VFMADD213PD);
        let c = if subtracts { self.builder.ins().fneg(c) } else { c };
        let a = if subtracts || adds { a } else { self.builder.ins().fneg(a) };
        self.fused([a, b, c], ty)
    }

    /// `a·b + c`, rounded once; the helper does it where there is no instruction.
    fn fused(&mut self, operands: [Value; 3], ty: Type) -> Value {
        let [a, b, c] = operands;
        if self.target.has_fma() {
            return self.builder.ins().fma(a, b, c);
        }
        for (column, operand) in operands.into_iter().enumerate() {
            self.builder.ins().store(access(), operand, self.scratch, column as i32 * COLUMN);
        }
        self.call(Rare::Fma(if ty == F64X2 { Scalar::F64 } else { Scalar::F32 }).pack());
        self.builder.ins().load(ty, access(), self.scratch, RESULT)
    }

    fn compare(&mut self, v: &LaneOp) -> Option<Value> {
        let (ty, signed) = match v.op {
            ops::VPCMPD => (I32X4, true),
            ops::VPCMPUD => (I32X4, false),
            ops::VPCMPQ => (I64X2, true),
            _ => (I64X2, false),
        };
        let code = match (v.imm?, signed || ty == I64X2) {
            (0, _) => IntCC::Equal,
            (4, _) => IntCC::NotEqual,
            (1, true) => IntCC::SignedLessThan,
            (2, true) => IntCC::SignedLessThanOrEqual,
            (5, true) => IntCC::SignedGreaterThanOrEqual,
            (6, true) => IntCC::SignedGreaterThan,
            (1, false) => IntCC::UnsignedLessThan,
            (2, false) => IntCC::UnsignedLessThanOrEqual,
            (5, false) => IntCC::UnsignedGreaterThanOrEqual,
            (6, false) => IntCC::UnsignedGreaterThan,
            _ => return None,
        };
        let (mut a, mut b) = (self.get_as(v.a, ty)?, self.whole(v.b, ty)?);
        if ty == I64X2 && !signed {
            // There is no unsigned comparison of this width; moved down by half their range, the values compare as signed.
            let bytes = (1u64 << 63).to_le_bytes();
            let top = self.constant(&std::array::from_fn(|at| bytes[at % 8]));
            let top = self.cast(I64X2, top);
            a = self.builder.ins().bxor(a, top);
            b = self.builder.ins().bxor(b, top);
        }
        Some(self.builder.ins().icmp(code, a, b))
    }

    fn compared(&mut self, code: IntCC, v: &LaneOp) -> Option<Value> {
        let (a, b) = (self.get_as(v.a, I32X4)?, self.whole(v.b, I32X4)?);
        Some(self.builder.ins().icmp(code, a, b))
    }

    fn integer(&mut self, v: &LaneOp) -> Option<Value> {
        let ty = match v.op {
            ops::VPADDQ | ops::VPSUBQ | ops::VPMULLQ | ops::VPMINSQ | ops::VPMINUQ | ops::VPMAXSQ | ops::VPMAXUQ => {
                I64X2
            }
            _ => I32X4,
        };
        let (a, b) = (self.get_as(v.a, ty)?, self.whole(v.b, ty)?);
        let ins = self.builder.ins();
        Some(match v.op {
            ops::VPADDD | ops::VPADDQ => ins.iadd(a, b),
            ops::VPSUBD | ops::VPSUBQ => ins.isub(a, b),
            ops::VPMULLD | ops::VPMULLQ => ins.imul(a, b),
            ops::VPMINSD => ins.smin(a, b),
            ops::VPMINUD => ins.umin(a, b),
            ops::VPMAXSD => ins.smax(a, b),
            ops::VPMAXUD => ins.umax(a, b),
            ops::VPANDD | VPANDQ => ins.band(a, b),
            ops::VPANDND => ins.band_not(b, a),
            ops::VPORD | VPORQ => ins.bor(a, b),
            ops::VPXORD | VPXORQ => ins.bxor(a, b),
            ops::VPMINSQ => self.extreme(IntCC::SignedLessThan, a, b),
            ops::VPMAXSQ => self.extreme(IntCC::SignedGreaterThan, a, b),
            ops::VPMINUQ => self.extreme(IntCC::UnsignedLessThan, a, b),
            ops::VPMAXUQ => self.extreme(IntCC::UnsignedGreaterThan, a, b),
            _ => return None,
        })
    }

    /// The smaller or larger of 64-bit lanes.
    fn extreme(&mut self, code: IntCC, a: Value, b: Value) -> Value {
        let (mut x, mut y) = (a, b);
        let signed = match code {
            IntCC::UnsignedLessThan => IntCC::SignedLessThan,
            IntCC::UnsignedGreaterThan => IntCC::SignedGreaterThan,
            code => code,
        };
        if signed != code {
            let bytes = (1u64 << 63).to_le_bytes();
            let top = self.constant(&std::array::from_fn(|at| bytes[at % 8]));
            let top = self.cast(I64X2, top);
            x = self.builder.ins().bxor(a, top);
            y = self.builder.ins().bxor(b, top);
        }
        let mask = self.builder.ins().icmp(signed, x, y);
        self.builder.ins().bitselect(mask, a, b)
    }

    /// An operation that only scalars have, lane by lane.
    fn each(&mut self, op: Each, v: &LaneOp, ty: Type) -> Option<Value> {
        let b = self.whole(v.b, ty)?;
        let a = if v.a.is_none() { b } else { self.get_as(v.a, ty)? };
        if !matches!(op, Each::LeadingZeros)
            && let Some(count) = self.same(b)
        {
            let ins = self.builder.ins();
            return Some(match op {
                Each::Left => ins.ishl(a, count),
                Each::Right => ins.ushr(a, count),
                _ => ins.sshr(a, count),
            });
        }
        let mut value = a;
        for lane in 0..ty.lane_count() as u8 {
            let x = self.builder.ins().extractlane(a, lane);
            let y = self.builder.ins().extractlane(b, lane);
            let ins = self.builder.ins();
            let one = match op {
                Each::Left => ins.ishl(x, y),
                Each::Right => ins.ushr(x, y),
                Each::Arithmetic => ins.sshr(x, y),
                Each::LeadingZeros => ins.clz(y),
            };
            value = self.builder.ins().insertlane(value, one, lane);
        }
        Some(value)
    }

    /// The one word that all lanes of a value are seen to hold.
    fn same(&mut self, value: Value) -> Option<Value> {
        let dfg = &self.builder.func.dfg;
        let ValueDef::Result(inst, _) = dfg.value_def(value) else { return None };
        match dfg.insts[inst] {
            InstructionData::Unary { opcode: Opcode::Splat, arg } => Some(arg),
            // Counts are small, so their lower halves are all of them.
            InstructionData::Unary { opcode: Opcode::UwidenLow, arg } => self.same(arg),
            InstructionData::LoadNoOffset { opcode: Opcode::Bitcast, arg, .. } => self.same(arg),
            InstructionData::Binary { opcode: Opcode::Band, args: [a, b] } => {
                let (a, b) = (self.same(a)?, self.same(b)?);
                Some(self.builder.ins().band(a, b))
            }
            InstructionData::UnaryConst { opcode: Opcode::Vconst, constant_handle } => {
                let bytes: [u8; 16] = dfg.constants.get(constant_handle).as_slice().try_into().ok()?;
                let word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                let same = bytes.chunks(4).all(|other| other == word.to_le_bytes());
                same.then(|| self.builder.ins().iconst(I32, i64::from(word)))
            }
            _ => None,
        }
    }

    /// The lanes of a mask register; `None` where all are known to be set.
    pub(super) fn mask_lanes(&mut self, mask: R, ty: Type) -> Option<Option<Value>> {
        if mask.is_none() {
            return Some(None);
        }
        let value = self.get_as(mask, I32X4)?;
        if self.all_bytes(value) == Some(0xff) {
            return Some(None);
        }
        Some(Some(self.cast(ty, value)))
    }
}
