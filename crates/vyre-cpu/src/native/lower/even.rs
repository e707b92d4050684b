//! Indices that differ evenly from lane to lane unless a block reaches an edge: neighbours that are clamped to an image, places that wrap around,
//! the row and the column that one number stands for, partners in an exchange.
//!
//! As far as the text says such an index may be anything, and what it finds would be gathered. But where no lane of a block is beyond the edge, a
//! clamp changes nothing, a remainder is a difference, a quotient is the same for all, and bits above those that lanes differ in are turned
//! around for all. That is tested with the first and the last lane before the block, for all rounds of the loops around it; where it does
//! not hold, the block is done as if nothing were known.

use std::rc::Rc;

use vyre_foundation::ir::Builtin;
use vyre_foundation::kernel::{Binary, Inst, Kernel, Memory, Op, Scalar, Value};

use super::super::asm::{Alu, Cond, Label};
use super::super::emit::shift_of;
use super::super::mir::{At, GSrc, M, R};
use super::super::shape::{Lane, Shapes, Tested, analyse_tested};
use super::super::visit;
use super::assume::Plan;
use super::bounds::Makers;
use super::facts::{Facts, visit_operands};
use super::value::{Lin, Rep};
use super::{Lower, Made};

/// How often values that can't be tested are left out before it is given up.
const ATTEMPTS: usize = 4;

/// How deep a sum is looked into.
const DEEPEST: u32 = 8;

/// A part of a sum that is at hand before the block, or counts from one number to another in a loop, or says where in its workgroup an
/// invocation is, at most so far from the first.
#[derive(Clone, Copy)]
pub(super) enum Part {
    Known(Value),
    Counter { from: Value, to: Value },
    Place { value: Value, reach: u32 },
}

/// A value in a loop that differs evenly, and the parts of the operand that it follows, each added or taken away.
pub(super) struct InLoop {
    pub(super) value: Value,
    pub(super) parts: Vec<(bool, Part)>,
}

/// Numbers from one on, and how far they go; both as 64 bits, without signs or with them as their scalar says.
#[derive(Clone, Copy)]
struct Range {
    low: R,
    span: GSrc,
}

/// The integer operations that memory is found by and that can be even, by value; none where there are none.
fn candidates(kernel: &Kernel, makers: &Makers<'_>) -> Option<Vec<bool>> {
    let mut open: Vec<Value> = Vec::new();
    visit(&kernel.body, &mut |inst| match inst {
        Inst::Let(_, Op::Load { address, .. }) | Inst::Store { address, .. } | Inst::Atomic { address, .. }
            if matches!(address.memory, Memory::Buffer(_)) =>
        {
            open.extend(address.terms.iter().map(|&(index, _)| index));
        }
        _ => {}
    });
    let (mut seen, mut found) = (vec![false; kernel.values.len()], vec![false; kernel.values.len()]);
    let mut any = false;
    while let Some(value) = open.pop() {
        if std::mem::replace(&mut seen[value.index()], true) {
            continue;
        }
        let Some(op) = makers.ops[value.index()] else { continue };
        if let Op::Binary(op, ..) = op {
            use Binary::{And, Div, Max, Min, Rem, Shr, Xor};
            found[value.index()] = matches!(op, And | Div | Max | Min | Rem | Shr | Xor);
            any |= found[value.index()];
        }
        if matches!(op, Op::Binary(..) | Op::Cast(_) | Op::BitCast(_) | Op::Select(..)) {
            visit_operands(op, &mut |operand| open.push(operand));
        }
    }
    any.then_some(found)
}

impl<'k> Lower<'k> {
    /// What a block takes as settled that reaches no edge, and how its values change then; none where that makes no difference.
    pub(super) fn plan_even(&mut self) -> Option<(Rc<Shapes>, Plan<'k>)> {
        let kernel = self.facts.kernel;
        let mut may_be = candidates(kernel, &self.facts.makers)?;
        for _ in 0..ATTEMPTS {
            let tested = Tested { may_be_even: &may_be, ..Tested::default() };
            self.active.even = Some(Rc::new(self.shapes_of_tested(&tested)));
            let plan = self.plan();
            let shapes = self.active.even.take()?;
            if plan.untested.is_empty() {
                return plan.has_even().then_some((shapes, plan));
            }
            plan.untested.iter().for_each(|value| may_be[value.index()] = false);
        }
        None
    }

    pub(super) fn is_even(&self, value: Value) -> bool {
        self.active.even.as_ref().is_some_and(|shapes| shapes.is_even(value))
    }

    /// A workgroup is taken in pieces.
    pub(super) fn in_pieces(&self) -> bool {
        !self.facts.tiling.layout.is_along_rows() && self.facts.tiling.vectors > 0
    }

    /// How far the last invocation of a workgroup is from the first.
    fn reach_in_group(&self, builtin: Builtin) -> Option<u32> {
        let size = self.facts.kernel.workgroup_size;
        Some(match builtin {
            Builtin::GlobalId(axis) | Builtin::LocalId(axis) => size[usize::from(axis.min(2))] - 1,
            Builtin::LocalIndex => size.iter().product::<u32>() - 1,
            _ => return None,
        })
    }

    /// The operand that an even value follows, and the edge.
    pub(super) fn followed(&self, a: Value, b: Value) -> (Value, Value) {
        if matches!(self.shape_of(b).lane, Lane::Affine(_)) { (b, a) } else { (a, b) }
    }

    /// What a sum is made of that can be told before the block for all rounds of the loops around it.
    pub(super) fn parts_of(
        &self,
        makers: &Makers<'k>,
        known: &dyn Fn(Value) -> bool,
        value: Value,
        added: bool,
        depth: u32,
    ) -> Option<Vec<(bool, Part)>> {
        // What is known of a piece of a workgroup is not known of the others.
        if known(value) && (!self.in_pieces() || self.shape_of(value).is_uniform()) {
            return Some(vec![(added, Part::Known(value))]);
        }
        if let Some(counter) = makers.counter(value) {
            let ends = [counter.from, counter.to];
            let fits = ends.iter().all(|&end| known(end) && self.shape_of(end).is_uniform());
            return fits.then(|| vec![(added, Part::Counter { from: counter.from, to: counter.to })]);
        }
        if depth > DEEPEST {
            return None;
        }
        let of = |value: Value, added: bool| self.parts_of(makers, known, value, added, depth + 1);
        match makers.ops[value.index()]? {
            Op::Cast(a) | Op::BitCast(a) if matches!(self.scalar_of(*a), Scalar::U32 | Scalar::I32) => of(*a, added),
            Op::Binary(op @ (Binary::Add | Binary::Sub), a, b) => {
                let mut parts = of(*a, added)?;
                parts.extend(of(*b, added == (*op == Binary::Add))?);
                Some(parts)
            }
            Op::Builtin(builtin) => {
                let reach = self.reach_in_group(*builtin)?;
                known(value).then(|| vec![(added, Part::Place { value, reach })])
            }
            // What is followed already is as even as this.
            Op::Binary(Binary::Min | Binary::Max, a, b) if self.is_even(value) => of(self.followed(*a, *b).0, added),
            _ => None,
        }
    }

    /// Makes an even value for all components before the block; where it is not even the code goes to `otherwise`.
    pub(super) fn define_even(&mut self, value: Value, made: &'k Op, comps: &[usize], otherwise: Label) {
        let Op::Binary(op, a, b) = *made else { return };
        let (of, edge) = self.followed(a, b);
        let (steps, signed) = (self.goes_in_steps(value, op), self.scalar_of(value).is_signed());
        let reach = match self.shape_of(of).lane {
            Lane::Affine(stride) => i64::from(stride) * i64::from(self.lanes() - 1),
            _ => 0,
        };
        let lins: Vec<Lin> = comps.iter().map(|&c| self.lin(of, c)).collect();
        let mut done: Vec<R> = Vec::new();
        for first in &lins {
            if done.contains(&first.reg) {
                continue;
            }
            done.push(first.reg);
            let adds = || lins.iter().filter(|lin| lin.reg == first.reg).map(|lin| i64::from(lin.add));
            let low = adds().min().unwrap_or(0) + reach.min(0);
            let high = adds().max().unwrap_or(0) + reach.max(0);
            let (Ok(low), Ok(span)) = (i32::try_from(low), i32::try_from(high - low)) else {
                self.push(M::Jump(otherwise));
                return;
            };
            let start = self.materialise(Lin { reg: first.reg, add: low });
            let range = Range { low: start, span: GSrc::Imm(span) };
            if steps {
                self.test_steps((op, signed), range, otherwise);
                continue;
            }
            let base = self.test_even((op, signed), range, edge, otherwise);
            for (&c, lin) in comps.iter().zip(&lins).filter(|(_, lin)| lin.reg == first.reg) {
                let lin = match base {
                    None => *lin,
                    Some(base) if self.shape_of(value).lane == Lane::Same => Lin::reg(base),
                    Some(base) => Lin::reg(base).plus(lin.add.wrapping_sub(low)),
                };
                self.set_rep(value, 0, c, Rep::General(lin));
            }
        }
        for &c in comps.iter().filter(|_| steps) {
            self.define(value, made, c);
        }
    }

    /// Lanes are whole steps of a divisor apart, and so are the quotients.
    pub(super) fn goes_in_steps(&self, value: Value, op: Binary) -> bool {
        matches!(op, Binary::Div | Binary::Shr) && matches!(self.shape_of(value).lane, Lane::Affine(_))
    }

    /// How values change in the block at hand, with all that was tested for it.
    pub(super) fn shapes_of_settled(&self) -> Shapes {
        let may_be_even = self.active.even.as_ref().map_or(&[][..], |shapes| shapes.even());
        let tested = Tested { may_be_even, settled: &self.active.settled };
        self.shapes_of_tested(&tested)
    }

    fn shapes_of_tested(&self, tested: &Tested<'_>) -> Shapes {
        let Facts { kernel, isa, tiling, .. } = &self.facts;
        analyse_tested(kernel, *isa, tiling.layout, tiling.rows.max(1), tested)
    }

    /// Tests that a value is even in all rounds of the loops around it.
    pub(super) fn assume_even_in_loop(&mut self, even: &InLoop, otherwise: Label) {
        let Some(Op::Binary(op, a, b)) = self.facts.makers.ops[even.value.index()] else { return };
        let edge = self.followed(*a, *b).1;
        let zero = self.materialise(Lin::imm(0));
        let (mut low, mut span) = (zero, zero);
        for &(added, part) in &even.parts {
            let (first, reach) = match part {
                Part::Known(value) => {
                    let Some((first, reach)) = self.ends_of_lanes(value) else {
                        self.push(M::Jump(otherwise));
                        return;
                    };
                    (first, GSrc::Imm(reach))
                }
                Part::Place { value, reach } => (self.scalar_reg(value, 0), GSrc::Imm(reach as i32)),
                Part::Counter { from, to } => {
                    let signed = self.scalar_of(from).is_signed();
                    let (from, to) = (self.scalar_reg(from, 0), self.scalar_reg(to, 0));
                    let last = self.alu(Alu::Sub, false, to, GSrc::Imm(1));
                    let difference = self.alu(Alu::Sub, false, last, GSrc::R(from));
                    // Where there is no round nothing is asked.
                    let reach = self.general();
                    self.push(M::Mov { dst: reach, src: difference });
                    self.push(M::Cmp { wide: false, a: from, b: GSrc::R(to) });
                    let none = if signed { Cond::GreaterEqual } else { Cond::AboveEqual };
                    self.push(M::Cmov { cond: none, dst: reach, src: zero });
                    (from, GSrc::R(reach))
                }
            };
            low = match added {
                true => self.alu(Alu::Add, false, low, GSrc::R(first)),
                false => {
                    let last = self.alu(Alu::Add, false, first, reach);
                    self.alu(Alu::Sub, false, low, GSrc::R(last))
                }
            };
            span = self.alu(Alu::Add, true, span, reach);
        }
        let (range, signed) = (Range { low, span: GSrc::R(span) }, self.scalar_of(even.value).is_signed());
        if self.goes_in_steps(even.value, *op) {
            return self.test_steps((*op, signed), range, otherwise);
        }
        let base = self.test_even((*op, signed), range, edge, otherwise);
        let less = base.map(|base| self.alu(Alu::Sub, false, low, GSrc::R(base)));
        self.active.evened.insert(even.value, less);
    }

    /// What a value in a loop is that was found to be even.
    pub(super) fn evened_rep(&mut self, value: Value, c: usize) -> Option<Rep> {
        let less = *self.active.evened.get(&value)?;
        let Some(Op::Binary(_, a, b)) = self.facts.makers.ops[value.index()] else { return None };
        let lin = self.lin(self.followed(*a, *b).0, c);
        let Some(less) = less else { return Some(Rep::General(lin)) };
        // A constant kept aside would be added to what may be less than nothing.
        let from = self.materialise(lin);
        Some(Rep::General(Lin::reg(self.alu(Alu::Sub, false, from, GSrc::R(less)))))
    }

    /// Tests that an operation takes a range of numbers to one of the same length, or to one number, and gives what it takes the
    /// first to; nothing where that is the number itself.
    fn test_even(&mut self, (op, signed): (Binary, bool), range: Range, edge: Value, otherwise: Label) -> Option<R> {
        let Range { low, span } = range;
        match op {
            Binary::Min | Binary::Max => {
                let edge = self.scalar_reg(edge, 0);
                let (low, edge) = if signed { (self.extended(low), self.extended(edge)) } else { (low, edge) };
                let high = self.beyond_by(low, span);
                let most = match (op, signed) {
                    (Binary::Min, _) => GSrc::R(edge),
                    // The last of them must not wrap.
                    (_, true) => GSrc::Imm(i32::MAX),
                    (_, false) => GSrc::R(self.materialise(Lin::imm(-1))),
                };
                self.push(M::Cmp { wide: true, a: high, b: most });
                self.push(M::JumpIf(if signed { Cond::Greater } else { Cond::Above }, otherwise));
                if op == Binary::Max {
                    self.push(M::Cmp { wide: true, a: low, b: GSrc::R(edge) });
                    self.push(M::JumpIf(if signed { Cond::Less } else { Cond::Below }, otherwise));
                }
                None
            }
            Binary::And | Binary::Shr => {
                let bits = self.lin(edge, 0).constant().unwrap_or(0);
                let mask = if op == Binary::And { bits } else { (1i32 << (bits & 31)).wrapping_sub(1) };
                let rest = self.alu(Alu::And, false, low, GSrc::Imm(mask));
                let high = self.beyond_by(rest, span);
                let most = self.materialise(Lin::imm(mask));
                self.push(M::Cmp { wide: true, a: high, b: GSrc::R(most) });
                self.push(M::JumpIf(Cond::Above, otherwise));
                if op == Binary::And {
                    return Some(rest);
                }
                let (dst, shift) = (self.general(), shift_of(signed));
                self.push(M::Shift { op: shift, wide: false, dst, a: low, count: GSrc::Imm(bits & 31) });
                Some(dst)
            }
            // The bits below the lowest that is turned around are all in which the numbers differ.
            Binary::Xor => {
                let turned = self.scalar_reg(edge, 0);
                let before = self.alu(Alu::Sub, false, turned, GSrc::Imm(1));
                let kept = self.alu(Alu::Xor, false, turned, GSrc::Imm(-1));
                let mask = self.alu(Alu::And, false, before, GSrc::R(kept));
                let rest = self.alu(Alu::And, false, low, GSrc::R(mask));
                let high = self.beyond_by(rest, span);
                self.push(M::Cmp { wide: true, a: high, b: GSrc::R(mask) });
                self.push(M::JumpIf(Cond::Above, otherwise));
                Some(self.alu(Alu::Xor, false, low, GSrc::R(turned)))
            }
            _ => {
                let by = self.scalar_reg(edge, 0);
                self.test_sign(signed, low, otherwise);
                self.test_unwrapped(signed, range, otherwise);
                let quotient = self.quotient(signed, low, by);
                let whole = self.product(false, quotient, GSrc::R(by));
                let rest = self.alu(Alu::Sub, false, low, GSrc::R(whole));
                let high = self.beyond_by(rest, span);
                // By less than nothing is not taken apart like that.
                let by = if signed { self.extended(by) } else { by };
                self.push(M::Cmp { wide: true, a: high, b: GSrc::R(by) });
                self.push(M::JumpIf(if signed { Cond::GreaterEqual } else { Cond::AboveEqual }, otherwise));
                Some(if op == Binary::Rem { rest } else { quotient })
            }
        }
    }

    /// Tests that quotients of numbers that are whole steps of the divisor apart are as many steps apart.
    fn test_steps(&mut self, (op, signed): (Binary, bool), range: Range, otherwise: Label) {
        // Division goes towards zero from both sides.
        self.test_sign(signed && op == Binary::Div, range.low, otherwise);
        self.test_unwrapped(signed, range, otherwise);
    }

    /// Tests that a number is not less than nothing.
    fn test_sign(&mut self, signed: bool, low: R, otherwise: Label) {
        if signed {
            self.push(M::Test { wide: false, a: low, b: low });
            self.push(M::JumpIf(Cond::Less, otherwise));
        }
    }

    /// Tests that none of a range of numbers is beyond what its kind can say.
    fn test_unwrapped(&mut self, signed: bool, Range { low, span }: Range, otherwise: Label) {
        let low = if signed { self.extended(low) } else { low };
        let most = self.materialise(Lin::imm(if signed { i32::MAX } else { -1 }));
        let last = self.beyond_by(low, span);
        self.push(M::Cmp { wide: true, a: last, b: GSrc::R(most) });
        self.push(M::JumpIf(if signed { Cond::Greater } else { Cond::Above }, otherwise));
    }

    fn quotient(&mut self, signed: bool, a: R, b: R) -> R {
        let made = Made::Quotient(a, b, signed);
        if let Some(r) = self.made.get(made) {
            return r;
        }
        let dst = self.general();
        self.push(M::Div { wide: false, signed, rem: false, dst, a, b });
        self.remember(made, dst);
        dst
    }

    /// A number and how far others go beyond it, as 64 bits.
    fn beyond_by(&mut self, low: R, span: GSrc) -> R {
        match span {
            GSrc::Imm(span) => {
                let r = self.general();
                self.push(M::Lea { wide: true, dst: r, at: At::new(low, span) });
                r
            }
            span => self.alu(Alu::Add, true, low, span),
        }
    }
}
