//! Operations on lanes.

use vyre_foundation::kernel::{Binary, Op, Scalar, Unary, Value};

use super::super::asm::{Alu, Len, VOp};
use super::super::isa::Isa;
use super::super::mir::{GSrc, LaneOp, M, R, Src};
use super::super::ops;
use super::super::shape::Lane;
use super::facts::{Bounded, ChosenEnd, Counted, visit_operands};
use super::known::compares;
use super::value::{Lin, Rep};
use super::{Lower, Made};

/// Bits of a float constant as the vector form holds it: f16 is computed as f32.
fn float_bits(scalar: Scalar, bits: u64) -> u64 {
    match scalar {
        Scalar::F16 => u64::from(half::f16::from_bits(bits as u16).to_f32().to_bits()),
        _ => bits,
    }
}

const TWO_TO_31: f64 = 2_147_483_648.0;
const TWO_TO_31_BITS: u32 = (TWO_TO_31 as f32).to_bits();

/// What makes a reciprocal so much greater that no rounding brings a product with it below the quotient.
const ABOVE_ONE: f64 = 1.0 + 4.0 * f64::EPSILON;

/// Whole numbers up to this are divided by constants without a division, where that is the same for all of them.
const MOST_DIVIDED: u32 = 1023;

/// A whole number up to a greatest one times the reciprocal of another number, made good by what that is off, is the quotient.
fn is_quotient_exact(by: f32, max: u32) -> bool {
    let reciprocal = 1.0 / by;
    let usual = |x: f32| (1e-9..1e9).contains(&x.abs());
    usual(by)
        && (0..=max).all(|whole| {
            let x = whole as f32;
            let near = x * reciprocal;
            let quotient = near.mul_add(-by, x).mul_add(reciprocal, near);
            quotient.to_bits() == (x / by).to_bits()
        })
}

impl<'k> Lower<'k> {
    /// Defines a value for a component.
    pub(super) fn define(&mut self, value: Value, op: &'k Op, c: usize) {
        self.define_anew(value, op, c);
        // A register that others use too must stay what it is, whatever becomes of this value.
        if self.facts.uses[value.index()] != 1 {
            return;
        }
        let mut shared = false;
        visit_operands(op, &mut |operand| {
            shared |= self.facts.uses[operand.index()] > 1
                && self.registers(operand, c).any(|r| self.registers(value, c).any(|own| own == r));
        });
        if shared {
            self.facts.uses[value.index()] += 1;
        }
    }

    /// The vector registers that a value is in.
    fn registers(&self, value: Value, c: usize) -> impl Iterator<Item = R> {
        (0..self.width_of(value)).filter_map(move |component| match self.rep(value, component, c) {
            Rep::Vector(r, _) => Some(r),
            _ => None,
        })
    }

    fn define_anew(&mut self, value: Value, op: &'k Op, c: usize) {
        let scalar = self.scalar_of(value);
        if let Some(rep) = self.settled_rep(value) {
            return self.set_rep(value, 0, c, rep);
        }
        if let Some(rep) = self.evened_rep(value, c) {
            return self.set_rep(value, 0, c, rep);
        }
        // What all vectors have in common though they begin at different places is what the lane alone adds. It may be wanted before any place is known.
        if let Op::Binary(Binary::And, a, _) = op
            && self.is_scalar(value)
            && self.shape_of(value).axes == 0
            && self.shape_of(*a).axes != 0
        {
            return self.set_rep(value, 0, c, Rep::General(Lin::imm(0)));
        }
        if let Op::Load { address, element, guard } = op {
            return self.load(value, address, *element, *guard, c);
        }
        match op {
            Op::Extract(a, component) => {
                let rep = self.rep(*a, *component, c);
                // Lanes of the whole and of its part may differ in shape only towards the whole's.
                return self.set_rep(value, 0, c, rep);
            }
            Op::Construct(parts) => {
                for (component, part) in parts.iter().enumerate() {
                    let rep = self.rep(*part, 0, c);
                    let rep = match rep {
                        // The whole may vary where a part does not.
                        Rep::General(_) if scalar == Scalar::Bool && !self.is_scalar(value) => {
                            Rep::Mask(self.mask_of(*part, c))
                        }
                        Rep::General(_) if !self.is_scalar(value) => {
                            let low = self.vector_part(*part, 0, c, 0);
                            let high = if scalar.bits() == 64 { self.vector_part(*part, 0, c, 1) } else { R::NONE };
                            Rep::Vector(low, high)
                        }
                        rep => rep,
                    };
                    self.set_rep(value, component as u8, c, rep);
                }
                return;
            }
            _ => {}
        }
        if self.is_scalar(value) {
            let rep = match self.scalar_op(value, op, c) {
                Some(rep) => rep,
                None => {
                    // Computed in all lanes and taken from the first.
                    let rep = self.vector_op(value, op, c);
                    self.set_rep(value, 0, c, rep);
                    let r = match rep {
                        Rep::Lanes(bits) => {
                            return self.set_rep(value, 0, c, Rep::General(Lin::imm(bits as i32 & 1)));
                        }
                        Rep::Mask(mask) => {
                            let bits = self.mask_bits(mask);
                            self.alu(Alu::And, false, bits, GSrc::Imm(1))
                        }
                        Rep::Vector(v, _) => {
                            let r = self.general();
                            self.push(M::First { wide: scalar.bits() == 64, dst: r, src: v });
                            r
                        }
                        _ => return,
                    };
                    Rep::General(Lin::reg(r))
                }
            };
            return self.set_rep(value, 0, c, rep);
        }
        let rep = match self.known_vector(value, op, c) {
            Some(rep) => rep,
            None => self.vector_op(value, op, c),
        };
        self.set_rep(value, 0, c, rep);
    }

    /// The same value in 1 or 2 parts.
    fn each_part(&mut self, scalar: Scalar, mut f: impl FnMut(&mut Self, usize) -> R) -> Rep {
        let low = f(self, 0);
        let high = if scalar.bits() == 64 { f(self, 1) } else { R::NONE };
        Rep::Vector(low, high)
    }

    /// Rounds what was computed as f32 to f16.
    pub(super) fn round_half(&mut self, v: R) -> R {
        let halves = self.packed_halves(v);
        let rounded = self.vec(ops::VCVTPH2PS, R::NONE, Src::R(halves));
        self.remember(Made::Halves(rounded), halves);
        rounded
    }

    /// Floats as half precision numbers, packed; what was just made of such numbers is these.
    pub(super) fn packed_halves(&mut self, v: R) -> R {
        if let Some(halves) = self.made.get(Made::Halves(v)).filter(|_| !self.made.changing.contains(&v)) {
            return halves;
        }
        let halves = self.vector();
        // The destination of this conversion is its r/m operand.
        self.push(M::Reverse { op: ops::VCVTPS2PH, len: self.len(), dst: halves, src: v, imm: Some(0) });
        halves
    }

    fn rounded(&mut self, scalar: Scalar, rep: Rep) -> Rep {
        match (scalar, rep) {
            (Scalar::F16, Rep::Vector(v, _)) => Rep::Vector(self.round_half(v), R::NONE),
            _ => rep,
        }
    }

    fn vector_op(&mut self, value: Value, op: &'k Op, c: usize) -> Rep {
        let scalar = self.scalar_of(value);
        match op {
            Op::Const(literal) => Rep::Float(float_bits(scalar, literal.bits())),
            Op::Builtin(builtin) => self.builtin_lanes(*builtin, c),
            Op::Unary(op, a) => self.unary(*op, *a, c),
            Op::Binary(op, a, b) => match self.facts.dots.get(&value) {
                Some(&dot) => self.byte_dot(dot, c),
                None => match self.counted(value, c) {
                    Some(rep) => rep,
                    None => self.binary(*op, *a, *b, c),
                },
            },
            Op::Fma(a, b, d) => self.fma(scalar, [*a, *b, *d], c),
            Op::Select(cond, yes, no) => self.select(value, *cond, *yes, *no, c),
            Op::Cast(a) => self.cast(value, *a, c),
            Op::BitCast(a) => self.bit_cast(value, *a, c),
            // Made elsewhere; kernels with matrix operations are refused before they come here.
            Op::Subgroup(..) | Op::Matrix(_) | Op::Length(_) | Op::Load { .. } | Op::Extract(..) | Op::Construct(_) => {
                Rep::None
            }
        }
    }

    /// A built-in that is different in each lane.
    fn builtin_lanes(&mut self, builtin: vyre_foundation::ir::Builtin, c: usize) -> Rep {
        use vyre_foundation::ir::Builtin;
        let size = self.facts.kernel.workgroup_size;
        let lanes = self.lanes();
        // Blocks that hold whole workgroups: the place of every lane is known.
        let component = self.active.components[c];
        let first = component.x * lanes + size[0] * component.y + size[0] * size[1] * component.z;
        let of = |lane: u32, axis: u8| match axis {
            0 => lane % size[0],
            1 => lane / size[0] % size[1],
            _ => lane / (size[0] * size[1]),
        };
        let subgroup = crate::launch::SUBGROUP_SIZE;
        if !self.position.line.reg.is_none() {
            return self.builtin_of_line(builtin, c);
        }
        let first = first + self.position.line.add as u32;
        let constants = |f: &dyn Fn(u32) -> u32| -> Vec<u32> { (0..lanes).map(|lane| f(first + lane)).collect() };
        let r = match builtin {
            Builtin::LocalId(axis) => self.lanes_constant(&constants(&|lane| of(lane, axis))),
            Builtin::GlobalId(axis) => {
                let local = self.lanes_constant(&constants(&|lane| of(lane, axis)));
                let origin = match axis {
                    0 => self.position.x,
                    1 => self.position.y,
                    _ => self.position.z,
                };
                let origin = self.materialise(origin);
                let origin = self.spread(origin, false);
                self.vec(ops::VPADDD, origin, Src::R(local))
            }
            Builtin::SubgroupLane => self.lanes_constant(&constants(&|lane| lane % subgroup)),
            Builtin::SubgroupId => self.lanes_constant(&constants(&|lane| lane / subgroup)),
            _ => {
                let lin = self.builtin(builtin, c);
                let r = self.materialise(lin);
                self.spread(r, false)
            }
        };
        Rep::Vector(r, R::NONE)
    }

    /// As `builtin_lanes`, where only the running code knows which piece of the workgroup this is.
    fn builtin_of_line(&mut self, builtin: vyre_foundation::ir::Builtin, c: usize) -> Rep {
        use vyre_foundation::ir::Builtin;
        let size = self.facts.kernel.workgroup_size;
        let line = self.builtin(Builtin::LocalIndex, c);
        let line = self.ramp(line, 1);
        let subgroup = crate::launch::SUBGROUP_SIZE;
        let r = match builtin {
            Builtin::LocalId(axis) | Builtin::GlobalId(axis) => {
                let row = self.divided(line, size[0]);
                let layer = self.divided(line, size[0] * size[1]);
                let local = match axis {
                    0 => self.less_rows(line, row, size[0]),
                    1 => self.less_rows(row, layer, size[1]),
                    _ => layer,
                };
                let origin = match (builtin, axis) {
                    (Builtin::LocalId(_), _) => Lin::imm(0),
                    (_, 0) => self.position.x,
                    (_, 1) => self.position.y,
                    _ => self.position.z,
                };
                let origin = self.materialise(origin);
                let origin = self.spread(origin, false);
                self.vec(ops::VPADDD, origin, Src::R(local))
            }
            Builtin::SubgroupLane => {
                let most = self.constant(subgroup - 1);
                self.vec(ops::VPANDD, line, Src::R(most))
            }
            Builtin::SubgroupId => self.divided(line, subgroup),
            _ => {
                let lin = self.builtin(builtin, c);
                let r = self.materialise(lin);
                self.spread(r, false)
            }
        };
        Rep::Vector(r, R::NONE)
    }

    /// Numbers of invocations of a workgroup, divided: below 2¹⁰, so that a product with the rounded up inverse is exact.
    fn divided(&mut self, v: R, by: u32) -> R {
        if by == 1 {
            return v;
        }
        let inverse = self.constant((1u32 << 20).div_ceil(by));
        let product = self.vec(ops::VPMULLD, v, Src::R(inverse));
        self.vec_imm(ops::VPSRLD, R::NONE, Src::R(product), 20)
    }

    /// `v - rows · width`.
    fn less_rows(&mut self, v: R, rows: R, width: u32) -> R {
        let width = self.constant(width);
        let whole = self.vec(ops::VPMULLD, rows, Src::R(width));
        self.vec(ops::VPSUBD, v, Src::R(whole))
    }

    fn unary(&mut self, op: Unary, a: Value, c: usize) -> Rep {
        let scalar = self.scalar_of(a);
        let wide = scalar.bits() == 64;
        let rich = self.facts.isa.is_rich();
        match (op, scalar) {
            (Unary::Not, Scalar::Bool) if self.known_mask(a, c).is_some() => {
                Rep::Lanes(self.known_mask(a, c).map_or(0, |bits| !bits & self.all_lanes()))
            }
            (Unary::Not, Scalar::Bool) => {
                let mask = self.mask_of(a, c);
                Rep::Mask(self.mask_not(mask))
            }
            (Unary::Not, _) => self.each_part(scalar, |this, part| {
                let v = this.vector_part(a, 0, c, part);
                let ones = this.constant(u32::MAX);
                this.vec(ops::VPXORD, v, Src::R(ones))
            }),
            (Unary::Neg, _) if scalar.is_float() => self.each_part(scalar, |this, part| {
                let v = this.vector_part(a, 0, c, part);
                let sign = if wide { this.constant64(1 << 63) } else { this.constant(1 << 31) };
                this.vec(ops::VPXORD, v, Src::R(sign))
            }),
            (Unary::Neg, _) => self.each_part(scalar, |this, part| {
                let zero = this.constant(0);
                let v = this.vector_part(a, 0, c, part);
                this.vec(if wide { ops::VPSUBQ } else { ops::VPSUBD }, zero, Src::R(v))
            }),
            (Unary::Abs, _) if scalar.is_float() => self.each_part(scalar, |this, part| {
                let v = this.vector_part(a, 0, c, part);
                let rest = if wide { this.constant64(!(1 << 63)) } else { this.constant(!(1 << 31)) };
                this.vec(ops::VPANDD, v, Src::R(rest))
            }),
            (Unary::Abs, Scalar::U32 | Scalar::U64) => self.copy_rep(a, c),
            (Unary::Abs, Scalar::I32) => self.each_part(scalar, |this, part| {
                let v = this.vector_part(a, 0, c, part);
                this.vec(ops::VPABSD, R::NONE, Src::R(v))
            }),
            (Unary::Abs, Scalar::I64) if rich => self.each_part(scalar, |this, part| {
                let v = this.vector_part(a, 0, c, part);
                this.vec(ops::VPABSQ, R::NONE, Src::R(v))
            }),
            (Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc, _) if scalar.is_float() => {
                let mode = match op {
                    Unary::Round => 8,
                    Unary::Floor => 9,
                    Unary::Ceil => 10,
                    _ => 11,
                };
                self.each_part(scalar, |this, part| {
                    let v = this.vector_part(a, 0, c, part);
                    this.vec_imm(if wide { ops::VROUNDPD } else { ops::VROUNDPS }, R::NONE, Src::R(v), mode)
                })
            }
            (Unary::Sqrt, _) => {
                let rep = self.each_part(scalar, |this, part| {
                    let v = this.vector_part(a, 0, c, part);
                    this.vec(if wide { ops::VSQRTPD } else { ops::VSQRTPS }, R::NONE, Src::R(v))
                });
                self.rounded(scalar, rep)
            }
            (Unary::RoughInverseSqrt, Scalar::F32) => self.each_part(scalar, |this, part| {
                let v = this.vector_part(a, 0, c, part);
                this.rough_inverse_sqrt(v)
            }),
            (Unary::RoughReciprocal, Scalar::F32) => self.each_part(scalar, |this, part| {
                let v = this.vector_part(a, 0, c, part);
                this.rough_reciprocal(v)
            }),
            (
                Unary::ReverseBits
                | Unary::CountOneBits
                | Unary::CountLeadingZeros
                | Unary::CountTrailingZeros
                | Unary::FirstTrailingBit
                | Unary::FirstLeadingBit
                | Unary::Sign,
                Scalar::U32 | Scalar::I32,
            ) => {
                let v = self.vector_of(a, c);
                match self.bits(op, scalar, v) {
                    Some(r) => Rep::Vector(r, R::NONE),
                    None => self.rare_unary(op, a, c),
                }
            }
            _ => self.rare_unary(op, a, c),
        }
    }

    /// `1 / sqrt(x)` to within one unit in the last place.
    fn rough_inverse_sqrt(&mut self, x: R) -> R {
        if self.facts.isa != Isa::Avx512 {
            let root = self.vec(ops::VSQRTPS, R::NONE, Src::R(x));
            let one = self.constant(1f32.to_bits());
            return self.vec(ops::VDIVPS, one, Src::R(root));
        }
        // 14 good bits, and Newton's step.
        let y = self.vec(ops::VRSQRT14PS, R::NONE, Src::R(x));
        let (minus_one, half) = (self.constant((-1f32).to_bits()), self.constant((-0.5f32).to_bits()));
        let high = self.vec(ops::VMULPS, x, Src::R(y));
        let d = self.multiply_add(ops::VFMADD231PS, high, y, minus_one);
        // Not a number where `y` is zero or infinite; with this it stays what it is, because the second operand is taken then.
        let d = self.vec(ops::VMAXPS, d, Src::R(minus_one));
        let step = self.vec(ops::VMULPS, y, Src::R(d));
        self.multiply_add(ops::VFMADD231PS, step, half, y)
    }

    /// `1 / x` to within one unit in the last place.
    fn rough_reciprocal(&mut self, x: R) -> R {
        if self.facts.isa != Isa::Avx512 {
            let one = self.constant(1f32.to_bits());
            return self.vec(ops::VDIVPS, one, Src::R(x));
        }
        // 14 good bits, and Newton's step.
        let y = self.vec(ops::VRCP14PS, R::NONE, Src::R(x));
        let minus_one = self.constant((-1f32).to_bits());
        let d = self.multiply_add(ops::VFMADD231PS, x, y, minus_one);
        // Not a number where `x` is zero or infinite, and infinite where only `y` is; the one of less magnitude leaves `y` what it is there.
        let d = self.vec_imm(ops::VRANGEPS, d, Src::R(minus_one), 0x06);
        self.multiply_add(ops::VFNMADD231PS, y, d, y)
    }

    /// `a·b + sum` of f32, or what else the operation makes of the three.
    fn multiply_add(&mut self, op: VOp, a: R, b: R, sum: R) -> R {
        let dst = self.vector();
        self.push(M::Mov { dst, src: sum });
        let v = LaneOp { acc: true, ..self.lane_op(op, dst, a, Src::R(b)) };
        self.push(M::Vec(v));
        dst
    }

    /// Small whole numbers divided by a constant, as an image's bytes are by 255: by its reciprocal and one step that makes good what that
    /// is off. A division takes many times as long.
    fn divide_whole(&mut self, a: Value, b: Value, c: usize) -> Option<Rep> {
        let (max, Rep::Float(bits)) = (self.shape_of(a).max, self.rep(b, 0, c)) else { return None };
        let single = self.scalar_of(a) == Scalar::F32 && self.facts.isa != Isa::Simd128;
        if !single || max > MOST_DIVIDED || self.is_scalar(a) {
            return None;
        }
        let by = f32::from_bits(bits as u32);
        let exact = *self.made.exact_quotients.entry((bits as u32, max)).or_insert_with(|| is_quotient_exact(by, max));
        if !exact {
            return None;
        }
        let (x, by, reciprocal) =
            (self.vector_of(a, c), self.constant(by.to_bits()), self.constant((1.0 / by).to_bits()));
        let near = self.vec(ops::VMULPS, x, Src::R(reciprocal));
        let off = self.vector();
        self.push(M::Mov { dst: off, src: x });
        self.push(M::Vec(LaneOp { acc: true, ..self.lane_op(ops::VFNMADD231PS, off, near, Src::R(by)) }));
        Some(Rep::Vector(self.multiply_add(ops::VFMADD231PS, off, reciprocal, near), R::NONE))
    }

    /// The vector form of a value as a rep of its own.
    fn copy_rep(&mut self, a: Value, c: usize) -> Rep {
        let scalar = self.scalar_of(a);
        self.each_part(scalar, |this, part| this.vector_part(a, 0, c, part))
    }

    /// An instruction on all parts, the second operand from memory where it can be. Exchanges the operands of a commutative one
    /// when that helps.
    fn binary_op(&mut self, op: VOp, commutes: bool, a: Value, b: Value, c: usize) -> Rep {
        let scalar = self.scalar_of(a);
        let (a, b) = match (self.rep(a, 0, c), self.rep(b, 0, c)) {
            (Rep::Float(_) | Rep::Later(_) | Rep::General(_) | Rep::Wide(_), Rep::Vector(..)) if commutes => (b, a),
            _ => (a, b),
        };
        self.each_part(scalar, |this, part| {
            let left = this.vector_part(a, 0, c, part);
            let (right, broadcast) = this.source(b, c, part);
            let dst = this.vector();
            let v = LaneOp { broadcast, ..this.lane_op(op, dst, left, right) };
            this.push(M::Vec(v));
            dst
        })
    }

    fn binary(&mut self, op: Binary, a: Value, b: Value, c: usize) -> Rep {
        let scalar = self.scalar_of(a);
        let wide = scalar.bits() == 64;
        let rich = self.facts.isa.is_rich();
        if compares(op) {
            return self.compare(op, a, b, c);
        }
        if scalar == Scalar::Bool {
            let all = self.all_lanes();
            match (op, self.known_mask(a, c), self.known_mask(b, c)) {
                (Binary::And, Some(x), Some(y)) => return Rep::Lanes(x & y),
                (Binary::Or, Some(x), Some(y)) => return Rep::Lanes(x | y),
                (Binary::Xor, Some(x), Some(y)) => return Rep::Lanes(x ^ y),
                (Binary::And, Some(0), _) | (Binary::And, _, Some(0)) => return Rep::Lanes(0),
                (Binary::Or, Some(x), _) | (Binary::Or, _, Some(x)) if x == all => return Rep::Lanes(all),
                (Binary::And, Some(x), None) if x == all => return Rep::Mask(self.mask_of(b, c)),
                (Binary::And, None, Some(y)) if y == all => return Rep::Mask(self.mask_of(a, c)),
                _ => {}
            }
            let (x, y) = (self.mask_of(a, c), self.mask_of(b, c));
            return Rep::Mask(match op {
                Binary::And => self.mask_and(x, y),
                Binary::Or => self.mask_or(x, y),
                _ => self.mask_xor(x, y),
            });
        }
        if scalar.is_float() {
            let pick = |single: VOp, double: VOp| if wide { double } else { single };
            let rep = match op {
                Binary::Add => self.binary_op(pick(ops::VADDPS, ops::VADDPD), true, a, b, c),
                Binary::Sub => self.binary_op(pick(ops::VSUBPS, ops::VSUBPD), false, a, b, c),
                Binary::Mul => self.binary_op(pick(ops::VMULPS, ops::VMULPD), true, a, b, c),
                Binary::Div => match self.divide_whole(a, b, c) {
                    Some(rep) => rep,
                    None => self.binary_op(pick(ops::VDIVPS, ops::VDIVPD), false, a, b, c),
                },
                // `b < a ? b : a`: the instruction gives its second source unless the comparison holds.
                // One of two halves is a half.
                Binary::Min => return self.binary_op(pick(ops::VMINPS, ops::VMINPD), false, b, a, c),
                Binary::Max => return self.binary_op(pick(ops::VMAXPS, ops::VMAXPD), false, b, a, c),
                _ => return self.rare_binary(op, a, b, c),
            };
            return self.rounded(scalar, rep);
        }
        let signed = scalar.is_signed();
        match (op, wide) {
            (Binary::Add, false) => self.binary_op(ops::VPADDD, true, a, b, c),
            (Binary::Sub, false) => self.binary_op(ops::VPSUBD, false, a, b, c),
            (Binary::Mul, false) => self.binary_op(ops::VPMULLD, true, a, b, c),
            (Binary::Add, true) => self.binary_op(ops::VPADDQ, true, a, b, c),
            (Binary::Sub, true) => self.binary_op(ops::VPSUBQ, false, a, b, c),
            (Binary::Mul, true) if rich => self.binary_op(ops::VPMULLQ, true, a, b, c),
            (Binary::Mul, true) if self.facts.isa == Isa::Avx2 => self.multiply_wide(a, b, c),
            (Binary::And, _) => self.binary_op(VOp { w: u8::from(wide), ..ops::VPANDD }, true, a, b, c),
            (Binary::Or, false) if let Some((x, by)) = self.rotation(a, b, c) => {
                let v = self.vector_of(x, c);
                if self.facts.isa == Isa::Avx512 {
                    return Rep::Vector(self.vec_imm(ops::VPROLD, R::NONE, Src::R(v), by), R::NONE);
                }
                // Whole bytes, each from so many places below it in its word.
                let bytes = u32::from(by) / 8;
                let from = |word: u32| (0..4).map(|at| (4 * (word % 4) + (at + 4 - bytes) % 4) << (8 * at)).sum();
                let words: Vec<u32> = (0..self.lanes()).map(from).collect();
                let order = self.lanes_constant(&words);
                Rep::Vector(self.vec(ops::VPSHUFB, v, Src::R(order)), R::NONE)
            }
            (Binary::Or, _) => self.binary_op(VOp { w: u8::from(wide), ..ops::VPORD }, true, a, b, c),
            (Binary::Xor, _) => self.binary_op(VOp { w: u8::from(wide), ..ops::VPXORD }, true, a, b, c),
            (Binary::Min, false) => self.binary_op(if signed { ops::VPMINSD } else { ops::VPMINUD }, true, a, b, c),
            (Binary::Max, false) => self.binary_op(if signed { ops::VPMAXSD } else { ops::VPMAXUD }, true, a, b, c),
            (Binary::Min, true) if rich => {
                self.binary_op(if signed { ops::VPMINSQ } else { ops::VPMINUQ }, true, a, b, c)
            }
            (Binary::Max, true) if rich => {
                self.binary_op(if signed { ops::VPMAXSQ } else { ops::VPMAXUQ }, true, a, b, c)
            }
            (Binary::Shl | Binary::Shr, _) => self.shift(op, a, b, c),
            (Binary::MulHigh, false) => self.multiply_high(a, b, c),
            (Binary::Div | Binary::Rem, false) if self.facts.isa != Isa::Simd128 => self.divide(op, a, b, c),
            _ => self.rare_binary(op, a, b, c),
        }
    }

    /// A number less a mask that is a vector, which is one more where that holds.
    fn counted(&mut self, value: Value, c: usize) -> Option<Rep> {
        let &Counted { of, holds } = self.facts.counted.get(&value)?;
        let Rep::Mask(mask) = self.rep(holds, 0, c) else { return None };
        if self.facts.isa != Isa::Avx2 || self.opposite(mask).is_some() {
            return None;
        }
        let v = self.vector_of(of, c);
        Some(Rep::Vector(self.vec(ops::VPSUBD, v, Src::R(mask)), R::NONE))
    }

    /// What `a | b` is rotated from, and by how much to the left, where both are shifts of one word by constants.
    fn rotation(&self, a: Value, b: Value, c: usize) -> Option<(Value, u8)> {
        if self.facts.isa == Isa::Simd128 {
            return None;
        }
        let shifted = |value: Value| match self.facts.makers.ops[value.index()] {
            Some(Op::Binary(op @ (Binary::Shl | Binary::Shr), x, count)) => {
                Some((*op, *x, self.constant_of(*count, c)?))
            }
            _ => None,
        };
        let (left, right) = (shifted(a)?, shifted(b)?);
        let (left, right) = if left.0 == Binary::Shl { (left, right) } else { (right, left) };
        let whole = left.1 == right.1 && left.0 != right.0 && left.2 + right.2 == 32;
        // Without an instruction for it, bytes can be put in another order.
        let fits = self.facts.isa == Isa::Avx512 || left.2 % 8 == 0;
        (whole && fits && self.scalar_of(left.1) == Scalar::U32).then_some((left.1, left.2 as u8))
    }

    fn shift(&mut self, op: Binary, a: Value, b: Value, c: usize) -> Rep {
        let scalar = self.scalar_of(a);
        let wide = scalar.bits() == 64;
        let arithmetic = op == Binary::Shr && scalar.is_signed();
        let variable = match (op, arithmetic, wide) {
            (Binary::Shl, _, false) => ops::VPSLLVD,
            (Binary::Shl, _, true) => ops::VPSLLVQ,
            (_, true, false) => ops::VPSRAVD,
            (_, true, true) if self.facts.isa.is_rich() => ops::VPSRAVQ,
            (_, true, true) => return self.rare_binary(op, a, b, c),
            (_, false, false) => ops::VPSRLVD,
            (_, false, true) => ops::VPSRLVQ,
        };
        if let Rep::General(lin) = self.rep(b, 0, c)
            && let Some(count) = lin.constant()
            && self.shape_of(b).lane == Lane::Same
            && !wide
        {
            let by = match (op, arithmetic) {
                (Binary::Shl, _) => ops::VPSLLD,
                (_, true) => ops::VPSRAD,
                (_, false) => ops::VPSRLD,
            };
            let v = self.vector_of(a, c);
            return Rep::Vector(self.vec_imm(by, R::NONE, Src::R(v), count as u8 & 31), R::NONE);
        }
        // Counts are u32; 64-bit lanes need them widened.
        let mut counts = self.vector_of(b, c);
        if self.shape_of(b).max >= scalar.bits() {
            let limit = self.constant(scalar.bits() - 1);
            counts = self.vec(ops::VPANDD, counts, Src::R(limit));
        }
        self.each_part(scalar, |this, part| {
            let v = this.vector_part(a, 0, c, part);
            let count = if wide { this.widen(counts, part, false) } else { counts };
            this.vec(variable, v, Src::R(count))
        })
    }

    /// Half of the 32-bit lanes as 64-bit ones.
    pub(super) fn widen(&mut self, v: R, part: usize, signed: bool) -> R {
        let half = if part == 0 { v } else { self.upper_half(v) };
        self.vec(if signed { ops::VPMOVSXDQ } else { ops::VPMOVZXDQ }, R::NONE, Src::R(half))
    }

    /// Products of 64 bits, of halves: those of the upper halves with the lower add to the upper half.
    fn multiply_wide(&mut self, a: Value, b: Value, c: usize) -> Rep {
        let is_half = |value: Value| matches!(self.facts.makers.ops[value.index()], Some(Op::Cast(of)) if self.scalar_of(*of) == Scalar::U32);
        let halves = [is_half(a), is_half(b)];
        self.each_part(Scalar::U64, |this, part| {
            let (x, y) = (this.vector_part(a, 0, c, part), this.vector_part(b, 0, c, part));
            let mut product = this.vec(ops::VPMULUDQ, x, Src::R(y));
            for (is_half, of, with) in [(halves[0], x, y), (halves[1], y, x)] {
                if !is_half {
                    let upper = this.vec_imm(ops::VPSRLQ, R::NONE, Src::R(of), 32);
                    let cross = this.vec(ops::VPMULUDQ, upper, Src::R(with));
                    let cross = this.vec_imm(ops::VPSLLQ, R::NONE, Src::R(cross), 32);
                    product = this.vec(ops::VPADDQ, product, Src::R(cross));
                }
            }
            product
        })
    }

    fn multiply_high(&mut self, a: Value, b: Value, c: usize) -> Rep {
        let signed = self.scalar_of(a).is_signed();
        let op = if signed { ops::VPMULDQ } else { ops::VPMULUDQ };
        let (x, y) = (self.vector_of(a, c), self.vector_of(b, c));
        let even = self.vec(op, x, Src::R(y));
        let x_odd = self.vec_imm(ops::VPSRLQ, R::NONE, Src::R(x), 32);
        let y_odd = self.vec_imm(ops::VPSRLQ, R::NONE, Src::R(y), 32);
        let odd = self.vec(op, x_odd, Src::R(y_odd));
        let even = self.vec_imm(ops::VPSRLQ, R::NONE, Src::R(even), 32);
        let upper = self.constant64(0xffff_ffff_0000_0000);
        let odd = self.vec(ops::VPANDD, odd, Src::R(upper));
        Rep::Vector(self.vec(ops::VPORD, even, Src::R(odd)), R::NONE)
    }

    /// 32-bit division through f64, which is exact: no quotient of 32-bit integers rounds up to the next integer.
    fn divide(&mut self, op: Binary, a: Value, b: Value, c: usize) -> Rep {
        let signed = self.scalar_of(a).is_signed();
        let (x, y) = (self.vector_of(a, c), self.vector_of(b, c));
        if self.is_scalar(b) && self.shape_of(b).lane == Lane::Same {
            let narrow = signed || self.shape_of(a).max < 1 << 31;
            return Rep::Vector(self.divide_by_one(op, x, y, signed, narrow), R::NONE);
        }
        let mut halves = [R::NONE; 2];
        for (part, half) in halves.iter_mut().enumerate() {
            let (x, y) = if part == 0 { (x, y) } else { (self.upper_half(x), self.upper_half(y)) };
            let (x, y) = (self.as_doubles(x, signed), self.as_doubles(y, signed));
            let quotient = self.vec(ops::VDIVPD, x, Src::R(y));
            *half = self.doubles_to_words(quotient, signed);
        }
        let mut quotient = self.join_halves(halves[0], halves[1]);
        if self.facts.isa == Isa::Avx2 && !signed {
            let turned = self.constant(1 << 31);
            quotient = self.vec(ops::VPXORD, quotient, Src::R(turned));
        }
        let zero = self.constant(0);
        let by_zero = self.mask_of_equal(y, zero);
        if op == Binary::Div {
            return Rep::Vector(self.blend(Scalar::U32, by_zero, Src::R(x), false, quotient), R::NONE);
        }
        let product = self.vec(ops::VPMULLD, quotient, Src::R(y));
        let rem = self.vec(ops::VPSUBD, x, Src::R(product));
        Rep::Vector(self.blend(Scalar::U32, by_zero, Src::R(zero), false, rem), R::NONE)
    }

    /// Division of all lanes by one number `d`, whose reciprocal is made once for the whole block.
    ///
    /// The product is exact. The reciprocal, what makes it greater and the product are each rounded, by no more than 2⁻⁵³ of them: what
    /// comes is `p = x / d · (1 + e)`, where `e` is 2⁻⁵⁰ give or take a little more than 3 · 2⁻⁵³, so above 0 and below 2⁻⁴⁹. Without
    /// signs, `p` is no less than `x / d`, and above it by less than `2³² / d · 2⁻⁴⁹ < 1 / d`. The next whole number is at least `1 / d`
    /// above `x / d`, so `p` stays below it, and its whole part is the quotient. Signs change nothing: everything here is rounded alike
    /// on both sides of zero. The least integer by -1 does not fit and is converted to the least integer.
    ///
    /// By zero it is `x`, and nothing remains, as by one.
    fn divide_by_one(&mut self, op: Binary, x: R, y: R, signed: bool, narrow: bool) -> R {
        let made = Made::Quotient(x, y, signed);
        let quotient = match self.made.get(made) {
            Some(quotient) => quotient,
            None => {
                let quotient = self.quotient_by_one(x, y, signed, narrow);
                if !self.made.changing.contains(&x) {
                    self.remember(made, quotient);
                }
                quotient
            }
        };
        if op == Binary::Div {
            return quotient;
        }
        let by = self.divisor(y);
        let product = self.vec(ops::VPMULLD, quotient, Src::R(by));
        self.vec(ops::VPSUBD, x, Src::R(product))
    }

    /// `narrow`: signed conversions do, because the numbers have signs or are below 2³¹.
    fn quotient_by_one(&mut self, x: R, y: R, signed: bool, narrow: bool) -> R {
        let reciprocal = self.reciprocal(y, signed);
        let turns = self.facts.isa == Isa::Avx2 && !narrow;
        let halves = [0, 1].map(|part| {
            let half = if part == 0 { x } else { self.upper_half(x) };
            let product = if turns {
                // (x - 2³¹) · r + 2³¹ · r is rounded once, so it is the product of x.
                let turned = self.constant(1 << 31);
                let half = self.vec(ops::VPXORD, half, Src::R(turned));
                let shifted = self.vec(ops::VCVTDQ2PD, R::NONE, Src::R(half));
                let back = self.shifted_back(reciprocal);
                self.push(M::Vec(LaneOp {
                    acc: true,
                    ..self.lane_op(ops::VFMADD213PD, shifted, reciprocal, Src::R(back))
                }));
                shifted
            } else {
                let x = self.as_doubles(half, narrow);
                self.vec(ops::VMULPD, x, Src::R(reciprocal))
            };
            self.doubles_to_words(product, narrow)
        });
        let quotient = self.join_halves(halves[0], halves[1]);
        if !turns {
            return quotient;
        }
        let turned = self.constant(1 << 31);
        self.vec(ops::VPXORD, quotient, Src::R(turned))
    }

    /// A number in all lanes by which is divided: 1 in the place of 0.
    fn divisor(&mut self, y: R) -> R {
        let made = Made::Divisor(y);
        if let Some(r) = self.made.get(made) {
            return r;
        }
        let (zero, one) = (self.constant(0), self.constant(1));
        let by_zero = self.mask_of_equal(y, zero);
        let r = self.blend(Scalar::U32, by_zero, Src::R(one), false, y);
        self.remember(made, r);
        r
    }

    /// A little more than the reciprocal of a number in all lanes, as doubles.
    fn reciprocal(&mut self, y: R, signed: bool) -> R {
        let made = Made::Reciprocal(y, signed);
        if let Some(r) = self.made.get(made) {
            return r;
        }
        let by = self.divisor(y);
        let by = self.as_doubles(by, signed);
        let (one, above) = (self.constant64(1f64.to_bits()), self.constant64(ABOVE_ONE.to_bits()));
        // One lane is enough, and a division of few lanes takes less time.
        let quotient = self.vector();
        self.push(M::Vec(LaneOp { len: Len::L128, ..self.lane_op(ops::VDIVPD, quotient, one, Src::R(by)) }));
        let more = self.vector();
        self.push(M::Vec(LaneOp { len: Len::L128, ..self.lane_op(ops::VMULPD, more, quotient, Src::R(above)) }));
        let op = VOp { w: u8::from(self.facts.isa == Isa::Avx512), ..ops::VPBROADCASTQ };
        let r = self.vec(op, R::NONE, Src::R(more));
        self.remember(made, r);
        r
    }

    /// 2³¹ times a reciprocal.
    fn shifted_back(&mut self, reciprocal: R) -> R {
        let made = Made::ShiftedBack(reciprocal);
        if let Some(r) = self.made.get(made) {
            return r;
        }
        let by = self.constant64(TWO_TO_31.to_bits());
        let r = self.vec(ops::VMULPD, reciprocal, Src::R(by));
        self.remember(made, r);
        r
    }

    /// The lanes in which words are equal.
    pub(super) fn mask_of_equal(&mut self, a: R, b: R) -> R {
        if self.facts.isa == Isa::Avx2 {
            return self.vec(ops::VPCMPEQD, a, Src::R(b));
        }
        let mask = self.new_mask();
        self.push(M::Vec(LaneOp { imm: Some(0), ..self.lane_op(ops::VPCMPD, mask, a, Src::R(b)) }));
        mask
    }

    /// Half of the lanes as doubles. AVX2 only knows signed ones: others are shifted by 2³¹ and back.
    fn as_doubles(&mut self, half: R, signed: bool) -> R {
        if signed || self.facts.isa != Isa::Avx2 {
            return self.vec(if signed { ops::VCVTDQ2PD } else { ops::VCVTUDQ2PD }, R::NONE, Src::R(half));
        }
        let turned = self.constant(1 << 31);
        let half = self.vec(ops::VPXORD, half, Src::R(turned));
        let shifted = self.vec(ops::VCVTDQ2PD, R::NONE, Src::R(half));
        let by = self.constant64(TWO_TO_31.to_bits());
        self.vec(ops::VADDPD, shifted, Src::R(by))
    }

    /// The whole part of doubles as half of the lanes; under AVX2, less 2³¹ when they have no sign.
    fn doubles_to_words(&mut self, v: R, signed: bool) -> R {
        if signed || self.facts.isa != Isa::Avx2 {
            return self.vec(if signed { ops::VCVTTPD2DQ } else { ops::VCVTTPD2UDQ }, R::NONE, Src::R(v));
        }
        let whole = self.vec_imm(ops::VROUNDPD, R::NONE, Src::R(v), 11);
        let by = self.constant64(TWO_TO_31.to_bits());
        let shifted = self.vec(ops::VSUBPD, whole, Src::R(by));
        self.vec(ops::VCVTTPD2DQ, R::NONE, Src::R(shifted))
    }

    fn compare(&mut self, op: Binary, a: Value, b: Value, c: usize) -> Rep {
        if self.active.compare_under.is_none()
            && let Some(bits) = self.known_lanes(op, a, b, c)
        {
            return Rep::Lanes(bits);
        }
        if self.active.compare_under.is_none()
            && op == Binary::Lt
            && let Some(mask) = self.below_limit(a, b, c)
        {
            return Rep::Mask(mask);
        }
        let scalar = self.scalar_of(a);
        if scalar == Scalar::Bool {
            let (x, y) = (self.mask_of(a, c), self.mask_of(b, c));
            let differ = self.mask_xor(x, y);
            return Rep::Mask(if op == Binary::Ne { differ } else { self.mask_not(differ) });
        }
        let wide = scalar.bits() == 64;
        // A constant on the left goes to the right.
        let constant = |rep: Rep| matches!(rep, Rep::Float(_) | Rep::Wide(_) | Rep::General(_) | Rep::Later(_));
        let (op, a, b) = match constant(self.rep(a, 0, c)) && matches!(self.rep(b, 0, c), Rep::Vector(..)) {
            true => (swapped(op), b, a),
            false => (op, a, b),
        };
        if scalar.is_float() {
            let predicate = match op {
                Binary::Eq => 0x00,
                Binary::Ne => 0x04,
                Binary::Lt => 0x11,
                Binary::Le => 0x12,
                Binary::Gt => 0x1e,
                _ => 0x1d,
            };
            let code = if wide { ops::VCMPPD } else { ops::VCMPPS };
            return self.compare_parts(code, predicate, a, b, c);
        }
        let signed = scalar.is_signed();
        if self.facts.isa.is_rich() {
            let predicate = match op {
                Binary::Eq => 0,
                Binary::Lt => 1,
                Binary::Le => 2,
                Binary::Ne => 4,
                Binary::Ge => 5,
                _ => 6,
            };
            let code = match (signed, wide) {
                (true, false) => ops::VPCMPD,
                (false, false) => ops::VPCMPUD,
                (true, true) => ops::VPCMPQ,
                (false, true) => ops::VPCMPUQ,
            };
            return self.compare_parts(code, predicate, a, b, c);
        }
        if wide && self.facts.isa == Isa::Avx2 {
            return self.compare_wide(op, a, b, c);
        }
        if wide {
            return self.rare_binary(op, a, b, c);
        }
        let x = self.vector_of(a, c);
        // Below 2³¹ signs make no difference.
        let signed = signed || [a, b].iter().all(|&value| self.shape_of(value).max < 1 << 31);
        if let (false, Some(bits)) = (signed, self.constant_of(b, c)) {
            // Unsigned: x < y where the smaller of x and y - 1 is x, x > y where the greater of x and y + 1 is.
            let (by, pick) = match op {
                Binary::Lt => ((bits as u32).checked_sub(1), ops::VPMINUD),
                Binary::Gt => ((bits as u32).checked_add(1), ops::VPMAXUD),
                _ => (None, ops::VPMINUD),
            };
            if let Some(by) = by {
                let by = self.constant(by);
                let picked = self.vec(pick, x, Src::R(by));
                return Rep::Mask(self.vec(ops::VPCMPEQD, picked, Src::R(x)));
            }
        }
        let (y, _) = self.source(b, c, 0);
        let mask = match (op, signed) {
            (Binary::Eq, _) => self.vec(ops::VPCMPEQD, x, y),
            (Binary::Ne, _) => {
                let same = self.vec(ops::VPCMPEQD, x, y);
                self.mask_other_than(same)
            }
            (Binary::Gt, true) => self.vec(ops::VPCMPGTD, x, y),
            (Binary::Lt, true) => {
                let y = self.vector_of(b, c);
                self.vec(ops::VPCMPGTD, y, Src::R(x))
            }
            (Binary::Le, true) => {
                let above = self.vec(ops::VPCMPGTD, x, y);
                self.mask_other_than(above)
            }
            (_, true) => {
                let y = self.vector_of(b, c);
                let below = self.vec(ops::VPCMPGTD, y, Src::R(x));
                self.mask_other_than(below)
            }
            // Unsigned: x <= y where the smaller of both is x.
            (Binary::Le | Binary::Gt, false) => {
                let least = self.vec(ops::VPMINUD, x, y);
                let le = self.vec(ops::VPCMPEQD, least, Src::R(x));
                if op == Binary::Le { le } else { self.mask_other_than(le) }
            }
            (_, false) => {
                let most = self.vec(ops::VPMAXUD, x, y);
                let ge = self.vec(ops::VPCMPEQD, most, Src::R(x));
                if op == Binary::Ge { ge } else { self.mask_other_than(ge) }
            }
        };
        Rep::Mask(mask)
    }

    /// Words of 64 bits: there are two comparisons, of numbers with signs.
    fn compare_wide(&mut self, op: Binary, a: Value, b: Value, c: usize) -> Rep {
        let signed = self.scalar_of(a).is_signed() || matches!(op, Binary::Eq | Binary::Ne);
        let mut masks = [R::NONE; 2];
        for (part, mask) in masks.iter_mut().enumerate() {
            let [x, y] = [a, b].map(|value| {
                let v = self.vector_part(value, 0, c, part);
                match signed {
                    true => v,
                    // Without signs the order is that of numbers with the highest bit the other way round.
                    false => {
                        let highest = self.constant64(1 << 63);
                        self.vec(ops::VPXORD, v, Src::R(highest))
                    }
                }
            });
            *mask = match op {
                Binary::Eq | Binary::Ne => self.vec(ops::VPCMPEQQ, x, Src::R(y)),
                Binary::Gt | Binary::Le => self.vec(ops::VPCMPGTQ, x, Src::R(y)),
                _ => self.vec(ops::VPCMPGTQ, y, Src::R(x)),
            };
        }
        let mask = self.join_masks(Scalar::U64, masks);
        Rep::Mask(match op {
            Binary::Eq | Binary::Lt | Binary::Gt => mask,
            _ => self.mask_other_than(mask),
        })
    }

    /// Lanes of `base + lane · stride` that are below a limit of the whole block. What is left from the base to the limit serves
    /// all vectors that begin at a constant distance from the base.
    fn below_limit(&mut self, a: Value, b: Value, c: usize) -> Option<R> {
        const HALF: u32 = 1 << 31;
        let (left, right) = (self.shape_of(a), self.shape_of(b));
        let Lane::Affine(stride) = left.lane else { return None };
        let Rep::General(base) = self.rep(a, 0, c) else { return None };
        let fits = self.scalar_of(a) == Scalar::U32
            && right.is_uniform()
            && left.max < HALF
            && right.max < HALF
            && !base.reg.is_none()
            && (0..1 << 30).contains(&base.add)
            && (1..1 << 15).contains(&stride);
        if !fits {
            return None;
        }
        let limit = self.scalar_reg(b, c);
        let distance = self.distance(limit, base.reg);
        Some(self.mask_below_from(distance, base.add as u32, stride as u32))
    }

    fn compare_parts(&mut self, code: VOp, predicate: u8, a: Value, b: Value, c: usize) -> Rep {
        let scalar = self.scalar_of(a);
        let mut masks = [R::NONE; 2];
        for (part, made) in masks.iter_mut().enumerate().take(Self::parts(scalar)) {
            let left = self.vector_part(a, 0, c, part);
            let (right, broadcast) = self.source(b, c, part);
            let under = self.active.compare_under;
            // The opposite of a predicate differs from it in one bit.
            let (dst, mask, predicate) = match under {
                None => (self.new_mask(), R::NONE, predicate),
                Some((mask, unless)) => (mask, mask, if unless { predicate ^ 4 } else { predicate }),
            };
            let v = LaneOp { imm: Some(predicate), broadcast, mask, ..self.lane_op(code, dst, left, right) };
            self.push(M::Vec(v));
            *made = dst;
        }
        Rep::Mask(self.join_masks(scalar, masks))
    }

    /// Removes the lanes from a mask for which a comparison of 32-bit values holds, or for which it does not.
    pub(super) fn narrow(&mut self, op: Binary, a: Value, b: Value, c: usize, mask: R, unless: bool) {
        self.active.compare_under = Some((mask, unless));
        self.compare(op, a, b, c);
        self.active.compare_under = None;
    }

    /// The masks of the parts as one.
    pub(super) fn join_masks(&mut self, scalar: Scalar, masks: [R; 2]) -> R {
        if scalar.bits() != 64 {
            return masks[0];
        }
        match self.facts.isa {
            Isa::Avx512 => {
                let dst = self.new_mask();
                self.push(M::Mask3 { op: ops::KUNPCKBW, dst, a: masks[1], b: masks[0] });
                dst
            }
            _ => self.even_words(masks[0], masks[1]),
        }
    }

    /// The even words of both vectors.
    pub(super) fn even_words(&mut self, low: R, high: R) -> R {
        let words = self.vec_imm(ops::VSHUFPS, low, Src::R(high), 0x88);
        match self.facts.isa {
            // They come out by 128-bit halves and are put in order.
            Isa::Avx2 => self.vec_imm(ops::VPERMQ, R::NONE, Src::R(words), 0xd8),
            _ => words,
        }
    }

    fn fma(&mut self, scalar: Scalar, [x, y, z]: [Value; 3], c: usize) -> Rep {
        let wide = match scalar {
            Scalar::F32 => false,
            Scalar::F64 => true,
            _ => return self.rare_fma([x, y, z], c),
        };
        // The sign of one of them is a matter of the instruction.
        let (x, y, z, product, op) = match (self.facts.negated.get(&x), self.facts.negated.get(&z)) {
            (Some(&x), _) if wide => (x, y, z, ops::VFNMADD213PD, ops::VFNMADD231PD),
            (Some(&x), _) => (x, y, z, ops::VFNMADD213PS, ops::VFNMADD231PS),
            (None, Some(&z)) if wide => (x, y, z, ops::VFMSUB213PD, ops::VFMSUB231PD),
            (None, Some(&z)) => (x, y, z, ops::VFMSUB213PS, ops::VFMSUB231PS),
            _ if wide => (x, y, z, ops::VFMADD213PD, ops::VFMADD231PD),
            _ => (x, y, z, ops::VFMADD213PS, ops::VFMADD231PS),
        };
        let (x, y) = match (self.rep(x, 0, c), self.rep(y, 0, c)) {
            (Rep::Float(_) | Rep::Later(_), Rep::Vector(..)) => (y, x),
            // Of two vectors the one that nobody else needs may be overwritten.
            (Rep::Vector(..), Rep::Vector(..)) if self.facts.uses[x.index()] > 1 && self.facts.uses[y.index()] == 1 => {
                (y, x)
            }
            _ => (x, y),
        };
        let constant = |this: &Self, value: Value| match this.rep(value, 0, c) {
            Rep::Float(bits) => Some(bits),
            _ => None,
        };
        let (y_constant, z_constant) = (constant(self, y), constant(self, z));
        self.each_part(scalar, |this, part| {
            if z_constant.is_some() && this.facts.isa != Isa::Simd128 {
                // x·y + constant: the constant comes from memory, x is overwritten, or another constant, which with AVX2 is loaded for that.
                let (left, middle) = match y_constant {
                    Some(bits) if this.facts.isa == Isa::Avx2 => {
                        (this.constant_anew(bits, wide), this.vector_part(x, 0, c, part))
                    }
                    _ => (this.vector_part(x, 0, c, part), this.vector_part(y, 0, c, part)),
                };
                let (right, broadcast) = this.source(z, c, part);
                let dst = this.vector();
                this.push(M::Mov { dst, src: left });
                let v = LaneOp { broadcast, acc: true, ..this.lane_op(product, dst, middle, right) };
                this.push(M::Vec(v));
                return dst;
            }
            let left = this.vector_part(x, 0, c, part);
            let (right, broadcast) = this.source(y, c, part);
            let sum = this.vector_part(z, 0, c, part);
            let dst = this.vector();
            this.push(M::Mov { dst, src: sum });
            let v = LaneOp { broadcast, acc: true, ..this.lane_op(op, dst, left, right) };
            this.push(M::Vec(v));
            dst
        })
    }

    pub(super) fn select(&mut self, value: Value, cond: Value, yes: Value, no: Value, c: usize) -> Rep {
        let scalar = self.scalar_of(value);
        if let Some(bits) = self.known_mask(cond, c)
            && (bits == 0 || bits == self.all_lanes())
        {
            let taken = if bits == 0 { no } else { yes };
            return match scalar {
                Scalar::Bool => Rep::Mask(self.mask_of(taken, c)),
                _ => self.copy_rep(taken, c),
            };
        }
        if let Some(bits) = self.known_mask(cond, c) {
            let others = !bits & self.all_lanes();
            for (taken, left, lanes) in [(yes, no, others), (no, yes, bits)] {
                if self.is_zero(left, c) && self.is_zero_in(taken, lanes, c) {
                    return self.copy_rep(taken, c);
                }
            }
        }
        if let Some(&ChosenEnd { cond, greater, ends: (a, b), no }) = self.facts.ends.get(&value)
            && self.facts.isa == Isa::Avx2
        {
            let end = if greater { Binary::Max } else { Binary::Min };
            if let Rep::Vector(end, _) = self.binary(end, a, b, c) {
                let (mask, no) = (self.mask_of(cond, c), self.vector_of(no, c));
                return Rep::Vector(self.blend(scalar, mask, Src::R(end), false, no), R::NONE);
            }
        }
        let mask = self.mask_of(cond, c);
        if scalar == Scalar::Bool {
            let (yes, no) = (self.mask_of(yes, c), self.mask_of(no, c));
            let yes = self.mask_and(yes, mask);
            let no = self.mask_minus(no, mask);
            return Rep::Mask(self.mask_or(yes, no));
        }
        let zeros = [yes, no].map(|value| self.facts.isa == Isa::Avx2 && self.is_zero(value, c));
        if zeros != [false; 2] {
            return self.each_part(scalar, |this, part| {
                let kept = this.vector_part(if zeros[0] { no } else { yes }, 0, c, part);
                let mask = this.part_mask(mask, scalar, part);
                if zeros[0] { this.cleared(kept, mask) } else { this.masked_zero(kept, mask) }
            });
        }
        self.each_part(scalar, |this, part| {
            let no = this.vector_part(no, 0, c, part);
            let (yes, broadcast) = this.source(yes, c, part);
            let mask = this.part_mask(mask, scalar, part);
            this.blend(scalar, mask, yes, broadcast, no)
        })
    }

    /// All bits of a constant are zero.
    fn is_zero(&self, value: Value, c: usize) -> bool {
        self.constant_of(value, c) == Some(0) || matches!(self.rep(value, 0, c), Rep::Float(0))
    }

    /// All bits of a value are zero in some lanes.
    fn is_zero_in(&self, value: Value, lanes: u32, c: usize) -> bool {
        let Rep::Vector(r, _) = self.rep(value, 0, c) else { return false };
        self.made.zero_below.get(&r).is_some_and(|&below| lanes >> below == 0)
    }

    fn cast(&mut self, value: Value, a: Value, c: usize) -> Rep {
        let (from, to) = (self.scalar_of(a), self.scalar_of(value));
        let rich = self.facts.isa.is_rich();
        let halves = self.facts.isa != Isa::Simd128;
        use Scalar::{Bool, F16, F32, F64, I32, I64, U32, U64};
        let single = |r: R| Rep::Vector(r, R::NONE);
        match (from, to) {
            (Bool, Bool) => Rep::Mask(self.mask_of(a, c)),
            (from, to) if from == to => self.copy_rep(a, c),
            (U32 | I32, U32 | I32) | (U64 | I64, U64 | I64) | (F16, F32) => self.copy_rep(a, c),
            (U32 | I32, U64 | I64) if halves => {
                let v = self.vector_of(a, c);
                self.each_part(to, |this, part| this.widen(v, part, from == I32))
            }
            (U64 | I64, U32 | I32) if halves => {
                let (low, high) = (self.vector_part(a, 0, c, 0), self.vector_part(a, 0, c, 1));
                single(self.truncate(low, high))
            }
            (F32 | F16, F64) if halves => {
                let v = self.vector_of(a, c);
                self.each_part(to, |this, part| {
                    let half = if part == 0 { v } else { this.upper_half(v) };
                    this.vec(ops::VCVTPS2PD, R::NONE, Src::R(half))
                })
            }
            (F64, F32) if halves => {
                let parts = [0, 1].map(|part| {
                    let v = self.vector_part(a, 0, c, part);
                    self.vec(ops::VCVTPD2PS, R::NONE, Src::R(v))
                });
                single(self.join_halves(parts[0], parts[1]))
            }
            (U64 | I64, F64) if rich => self.each_part(to, |this, part| {
                let v = this.vector_part(a, 0, c, part);
                this.vec(if from == I64 { ops::VCVTQQ2PD } else { ops::VCVTUQQ2PD }, R::NONE, Src::R(v))
            }),
            (F32, F16) => {
                let v = self.vector_of(a, c);
                single(self.round_half(v))
            }
            (Bool, U32 | I32) => {
                let mask = self.mask_of(a, c);
                let one = self.constant(1);
                single(self.masked_zero(one, mask))
            }
            (Bool, F32 | F16) => {
                let mask = self.mask_of(a, c);
                let one = self.constant(1f32.to_bits());
                single(self.masked_zero(one, mask))
            }
            (U32 | I32, Bool) => {
                let v = self.vector_of(a, c);
                Rep::Mask(self.mask_not_zero(v))
            }
            (I32, F32) => {
                let v = self.vector_of(a, c);
                single(self.vec(ops::VCVTDQ2PS, R::NONE, Src::R(v)))
            }
            (U32, F32) if rich => {
                let v = self.vector_of(a, c);
                single(self.vec(ops::VCVTUDQ2PS, R::NONE, Src::R(v)))
            }
            (U32, F32) if self.shape_of(a).max < 1 << 31 => {
                let v = self.vector_of(a, c);
                single(self.vec(ops::VCVTDQ2PS, R::NONE, Src::R(v)))
            }
            (U32, F32) => {
                // Both halves are exact, so the sum is rounded once.
                let v = self.vector_of(a, c);
                let high = self.vec_imm(ops::VPSRLD, R::NONE, Src::R(v), 16);
                let low_bits = self.constant(0xffff);
                let low = self.vec(ops::VPANDD, v, Src::R(low_bits));
                let high = self.vec(ops::VCVTDQ2PS, R::NONE, Src::R(high));
                let low = self.vec(ops::VCVTDQ2PS, R::NONE, Src::R(low));
                let scale = self.constant(65536f32.to_bits());
                let high = self.vec(ops::VMULPS, high, Src::R(scale));
                single(self.vec(ops::VADDPS, high, Src::R(low)))
            }
            (F32 | F16, I32) => {
                let v = self.vector_of(a, c);
                single(self.float_to_signed(value, v, self.fits_31_bits(a)))
            }
            (F32 | F16, U32) => {
                let v = self.without_negative(value, a, c);
                single(match (rich, self.fits_31_bits(a)) {
                    (true, _) => self.vec(ops::VCVTTPS2UDQ, R::NONE, Src::R(v)),
                    (false, true) => self.vec(ops::VCVTTPS2DQ, R::NONE, Src::R(v)),
                    (false, false) => self.float_to_unsigned(v),
                })
            }
            _ => self.rare_cast(value, a, c),
        }
    }

    /// No number of an f32 is 2³¹ or more.
    fn fits_31_bits(&self, value: Value) -> bool {
        self.scalar_of(value) == Scalar::F32 && self.shape_of(value).top < TWO_TO_31_BITS
    }

    /// What becomes an unsigned number, with zero in the place of NaN and of what is negative: that serves for a bound of zero, too.
    fn without_negative(&mut self, value: Value, a: Value, c: usize) -> R {
        let zero = self.constant(0);
        let bounded = self.facts.bounded.get(&value).copied();
        if let Some(Bounded { of, most }) = bounded
            && let Rep::Vector(v, _) = self.rep(of, 0, c)
        {
            let v = self.vec(ops::VMAXPS, v, Src::R(zero));
            let Some(most) = most else { return v };
            let (most, broadcast) = self.source(most, c, 0);
            let dst = self.vector();
            self.push(M::Vec(LaneOp { broadcast, ..self.lane_op(ops::VMINPS, dst, v, most) }));
            return dst;
        }
        let v = self.vector_of(a, c);
        self.vec(ops::VMAXPS, v, Src::R(zero))
    }

    fn float_to_signed(&mut self, value: Value, v: R, fits: bool) -> R {
        let mut whole = self.vec(ops::VCVTTPS2DQ, R::NONE, Src::R(v));
        if self.facts.isa == Isa::Simd128 {
            // There the conversion saturates.
            return whole;
        }
        if !fits {
            // Too large gives the least integer; flip it to the greatest.
            let limit = self.constant(TWO_TO_31_BITS);
            let over = self.float_mask(0x1d, v, limit);
            whole = match self.facts.isa {
                Isa::Avx2 => self.vec(ops::VPXORD, whole, Src::R(over)),
                _ => {
                    let greatest = self.constant(i32::MAX as u32);
                    self.blend(Scalar::I32, over, Src::R(greatest), false, whole)
                }
            };
        }
        // NaN gives zero, and the least integer is zero but for its highest bit.
        if !self.facts.highest_read[value.index()] {
            return whole;
        }
        let number = self.float_mask(0x07, v, v);
        self.masked_zero(whole, number)
    }

    /// For processors that only have the conversion to signed integers; of what is not below zero.
    fn float_to_unsigned(&mut self, v: R) -> R {
        let half = self.constant(TWO_TO_31_BITS);
        // From 2³¹ on the rest is converted, without rounding, and the highest bit set.
        let large = self.float_mask(0x1d, v, half);
        let less = self.vec(ops::VPANDD, large, Src::R(half));
        let rest = self.vec(ops::VSUBPS, v, Src::R(less));
        let whole = self.vec(ops::VCVTTPS2DQ, R::NONE, Src::R(rest));
        let highest = self.vec_imm(ops::VPSLLD, R::NONE, Src::R(large), 31);
        let whole = self.vec(ops::VPXORD, whole, Src::R(highest));
        let limit = self.constant(4294967296f32.to_bits());
        let over = self.float_mask(0x1d, v, limit);
        self.vec(ops::VPORD, whole, Src::R(over))
    }

    fn float_mask(&mut self, predicate: u8, a: R, b: R) -> R {
        let dst = self.new_mask();
        let m = LaneOp { imm: Some(predicate), ..self.lane_op(ops::VCMPPS, dst, a, Src::R(b)) };
        self.push(M::Vec(m));
        dst
    }

    fn bit_cast(&mut self, value: Value, a: Value, c: usize) -> Rep {
        let (from, to) = (self.scalar_of(a), self.scalar_of(value));
        match (from, to) {
            (Scalar::F16, Scalar::F16) => self.copy_rep(a, c),
            (Scalar::F16, _) => {
                let v = self.vector_of(a, c);
                let halves = self.packed_halves(v);
                Rep::Vector(self.vec(ops::VPMOVZXWD, R::NONE, Src::R(halves)), R::NONE)
            }
            (_, Scalar::F16) => self.rare_bit_cast(value, a, c),
            _ => self.copy_rep(a, c),
        }
    }
}

/// The comparison with its operands exchanged.
pub(super) fn swapped(op: Binary) -> Binary {
    match op {
        Binary::Lt => Binary::Gt,
        Binary::Gt => Binary::Lt,
        Binary::Le => Binary::Ge,
        Binary::Ge => Binary::Le,
        same => same,
    }
}
