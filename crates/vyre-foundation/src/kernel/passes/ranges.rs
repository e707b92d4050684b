//! Bounds of integers, from how they are made and from the conditions around them; drops the guards that always hold.

mod rounds;

use smallvec::SmallVec;

use super::floats::Interval;
use super::values::Values;
use crate::ir::{Builtin, Literal};
use crate::kernel::walk::each_inst;
use crate::kernel::{
    Address, Binary, Block, Element, End, Inst, Kernel, KernelBuffer, Loop, Op, Scalar, Unary, Value, fold,
};

/// How many steps a proof may have.
const DEPTH: u32 = 5;
/// Steps that are looked at again of what a value is made of.
const MADE_OF: u32 = 5;
/// How many conditions around an access are looked at.
const FACTS: usize = 64;

/// Gives what is known of each f32. `values` say then how they are made, but for what became of the addresses and guards of loads.
/// `small_grids` is [`super::super::Options::small_grids`]; `looks_again` says that places which were made before a branch are bounded anew in it.
pub(super) fn run(kernel: &mut Kernel, values: &mut Values, small_grids: bool, looks_again: bool) -> Vec<Interval> {
    let mut ranges = Ranges {
        bounds: values.all().map(|value| full(values.scalar(value))).collect(),
        floats: vec![Interval::ANY; values.len()],
        joins: joins(&kernel.body, values.len()),
        values,
        facts: Vec::new(),
        log: Vec::new(),
        indices: Vec::new(),
        workgroup_size: kernel.workgroup_size,
        small_grids,
        small_lengths: small_grids && !kernel.buffers.iter().any(has_half_bytes),
        looks_again,
        nowhere: false,
        moves_left: rounds::MOVES_IN_ALL,
    };
    ranges.block(&mut kernel.body);
    ranges.floats
}

fn has_half_bytes(buffer: &KernelBuffer) -> bool {
    buffer.element.is_some_and(|(element, _)| element.bits() == 4)
}

/// Least and most.
type Bounds = (i128, i128);

fn full(ty: Scalar) -> Bounds {
    match ty {
        Scalar::U32 => (0, u32::MAX.into()),
        Scalar::I32 => (i32::MIN.into(), i32::MAX.into()),
        Scalar::U64 => (0, u64::MAX.into()),
        Scalar::I64 => (i64::MIN.into(), i64::MAX.into()),
        _ => (0, 1),
    }
}

/// `less < more`, or `less <= more`.
struct Fact {
    less: Value,
    more: Value,
    strict: bool,
}

/// A value that a branch or a choice gives: which way is taken, and what each of them gives, if it comes out.
#[derive(Clone, Copy)]
struct Join {
    cond: Value,
    ways: [Option<Value>; 2],
    /// What else holds where each way ends, because it was left otherwise.
    also: [Option<(Value, bool)>; 2],
}

/// The whole numbers that branches give.
fn joins(body: &Block, values: usize) -> Vec<Option<Join>> {
    let mut joins = vec![None; values];
    each_inst(body, &mut |inst| {
        let Inst::If { cond, then, otherwise, results } = inst else { return };
        let also = [then, otherwise].map(|way| way.insts.iter().rev().find_map(rounds::stays));
        for (place, result) in results.iter().enumerate() {
            let given = |block: &Block| match &block.end {
                End::Yield(values) => Some(values[place]),
                _ => None,
            };
            joins[result.index()] = Some(Join { cond: *cond, ways: [given(then), given(otherwise)], also });
        }
    });
    joins
}

struct Ranges<'a> {
    values: &'a mut Values,
    joins: Vec<Option<Join>>,
    bounds: Vec<Bounds>,
    /// What floats of 32 bits can be.
    floats: Vec<Interval>,
    facts: Vec<Fact>,
    /// Bounds before a condition narrowed them.
    log: Vec<(Value, Bounds)>,
    /// Indices that the access at hand needs, to be put before it.
    indices: Vec<Inst>,
    workgroup_size: [u32; 3],
    /// [`super::super::Options::small_grids`].
    small_grids: bool,
    /// Lengths are below 2^31 too: a buffer has no more elements than bytes.
    small_lengths: bool,
    looks_again: bool,
    /// What was assumed last cannot be: nothing comes here.
    nowhere: bool,
    /// How often bounds of what loops carry may still be moved.
    moves_left: usize,
}

impl Ranges<'_> {
    fn is_integer(&self, value: Value) -> bool {
        let ty = self.values.ty(value);
        !ty.scalar.is_float() && ty.scalar != Scalar::Bool && ty.width == 1
    }

    fn of(&self, value: Value) -> Bounds {
        self.bounds[value.index()]
    }

    fn narrow(&mut self, value: Value, (low, high): Bounds) {
        let old = self.of(value);
        let new = (old.0.max(low), old.1.min(high));
        // An empty range means that this is never reached; the old one does no harm.
        self.nowhere |= new.0 > new.1;
        if new != old && new.0 <= new.1 {
            self.log.push((value, old));
            self.bounds[value.index()] = new;
        }
    }

    /// What is known now, to come back to.
    fn mark(&self) -> (usize, usize) {
        (self.facts.len(), self.log.len())
    }

    fn forget_since(&mut self, (facts, log): (usize, usize)) {
        self.facts.truncate(facts);
        for (value, old) in self.log.drain(log..).rev() {
            self.bounds[value.index()] = old;
        }
    }

    fn less(&mut self, less: Value, more: Value, strict: bool) {
        if !self.is_integer(less) {
            return;
        }
        self.facts.push(Fact { less, more, strict });
        let gap = i128::from(strict);
        let (low, high) = (self.of(less).0, self.of(more).1);
        self.narrow(less, (i128::MIN, high - gap));
        self.narrow(more, (low + gap, i128::MAX));
    }

    fn assume(&mut self, cond: Value, holds: bool) {
        let mut stack: SmallVec<[(Value, bool); 8]> = SmallVec::from_slice(&[(cond, holds)]);
        while let Some((cond, holds)) = stack.pop() {
            match (self.values.def(cond), holds) {
                (Some(Op::Unary(Unary::Not, a)), _) => stack.push((*a, !holds)),
                (Some(Op::Binary(Binary::And, a, b)), true) | (Some(Op::Binary(Binary::Or, a, b)), false)
                    if self.values.scalar(*a) == Scalar::Bool =>
                {
                    stack.extend([(*a, holds), (*b, holds)]);
                }
                (Some(Op::Binary(op, a, b)), _) => {
                    let (op, a, b) = (*op, *a, *b);
                    match (op, holds) {
                        (Binary::Lt, true) | (Binary::Ge, false) => self.less(a, b, true),
                        (Binary::Gt, true) | (Binary::Le, false) => self.less(b, a, true),
                        (Binary::Le, true) | (Binary::Gt, false) => self.less(a, b, false),
                        (Binary::Ge, true) | (Binary::Lt, false) => self.less(b, a, false),
                        (Binary::Eq, true) | (Binary::Ne, false) => {
                            self.less(a, b, false);
                            self.less(b, a, false);
                        }
                        (Binary::Eq, false) | (Binary::Ne, true) if self.is_integer(a) => {
                            let (value, known) = (self.of(a), self.of(b));
                            if known.0 == known.1 && known.0 == value.0 {
                                self.narrow(a, (value.0 + 1, value.1));
                            } else if known.0 == known.1 && known.0 == value.1 {
                                self.narrow(a, (value.0, value.1 - 1));
                            }
                        }
                        _ => {}
                    }
                }
                _ => {}
            }
        }
    }

    /// Assumes conditions; false where they cannot hold together.
    fn can_be(&mut self, conditions: impl IntoIterator<Item = (Value, bool)>) -> bool {
        let before = std::mem::replace(&mut self.nowhere, false);
        for (cond, holds) in conditions {
            self.assume(cond, holds);
        }
        !std::mem::replace(&mut self.nowhere, before)
    }

    /// `a < b`, or `a <= b`, whenever control is here.
    fn prove(&mut self, a: Value, b: Value, strict: bool, depth: u32) -> bool {
        if a == b {
            return !strict;
        }
        let gap = i128::from(strict);
        if self.of(a).1 + gap <= self.of(b).0 {
            return true;
        }
        if depth == 0 {
            return false;
        }
        let first = self.facts.len().saturating_sub(FACTS);
        for i in (first..self.facts.len()).rev() {
            let Fact { less, more, strict: already } = self.facts[i];
            if less == a && self.prove(more, b, strict && !already, depth - 1) {
                return true;
            }
        }
        let unsigned = matches!(self.values.scalar(a), Scalar::U32 | Scalar::U64);
        let above = match self.values.def(a) {
            Some(&Op::Binary(op, p, q)) => match op {
                Binary::Min => self.prove(p, b, strict, depth - 1) || self.prove(q, b, strict, depth - 1),
                Binary::And if unsigned => self.prove(p, b, strict, depth - 1) || self.prove(q, b, strict, depth - 1),
                Binary::Rem if unsigned || self.of(p).0 >= 0 => {
                    self.prove(p, b, strict, depth - 1) || (self.of(q).0 >= 1 && self.prove(q, b, false, depth - 1))
                }
                Binary::Shr | Binary::Div if unsigned || (self.of(p).0 >= 0 && self.of(q).0 >= 0) => {
                    self.prove(p, b, strict, depth - 1)
                }
                Binary::Sub if self.of(q).0 >= 0 && self.of(p).0 >= self.of(q).1 => self.prove(p, b, strict, depth - 1),
                _ => false,
            },
            Some(&Op::Select(_, p, q)) => self.prove(p, b, strict, depth - 1) && self.prove(q, b, strict, depth - 1),
            Some(&Op::BitCast(p)) if self.is_integer(p) && self.of(p).0 >= 0 => {
                self.prove_bits(p, b, strict, depth - 1)
            }
            _ => false,
        };
        if above {
            return true;
        }
        match self.values.def(b) {
            Some(&Op::Binary(Binary::Min, p, q)) => {
                self.prove(a, p, strict, depth - 1) && self.prove(a, q, strict, depth - 1)
            }
            Some(&Op::Binary(Binary::Max, p, q)) => {
                self.prove(a, p, strict, depth - 1) || self.prove(a, q, strict, depth - 1)
            }
            Some(&Op::Select(_, p, q)) => self.prove(a, p, strict, depth - 1) && self.prove(a, q, strict, depth - 1),
            // What grows without wrapping is at least what it was.
            Some(&Op::Binary(op @ (Binary::Add | Binary::Mul | Binary::Shl), p, q)) if unsigned => {
                let ty = self.values.scalar(b);
                let (least, most) = self.binary(op, self.of(p), self.of(q), ty);
                // Of a shift by more than the width nothing is known, and the bounds of all numbers don't show that it wraps.
                let is_known = op != Binary::Shl || self.of(q).1 < i128::from(ty.bits());
                if !is_known || least < 0 || most > full(ty).1 {
                    return false;
                }
                match op {
                    Binary::Add => self.prove(a, p, strict, depth - 1) || self.prove(a, q, strict, depth - 1),
                    Binary::Mul if self.of(q).0 < 1 => false,
                    _ => self.prove(a, p, strict, depth - 1),
                }
            }
            _ => false,
        }
    }

    /// The same for the bits of a signed number that is not negative: what it is less than is not negative either.
    fn prove_bits(&mut self, p: Value, b: Value, strict: bool, depth: u32) -> bool {
        let first = self.facts.len().saturating_sub(FACTS);
        for i in (first..self.facts.len()).rev() {
            let Fact { less, more, strict: already } = self.facts[i];
            if less != p {
                continue;
            }
            let Some(&(Op::BitCast(bits) | Op::Cast(bits))) = self.values.def(more) else { continue };
            let same = self.values.ty(bits) == self.values.ty(b);
            if !same || !self.is_integer(bits) {
                continue;
            }
            let old = self.of(bits);
            self.bounds[bits.index()].1 = old.1.min(self.of(more).1);
            let proven = self.prove(bits, b, strict && !already, depth.saturating_sub(1));
            self.bounds[bits.index()] = old;
            if proven {
                return true;
            }
        }
        false
    }

    /// The part of a guard that is not proven.
    fn rest_of(&mut self, guard: Value) -> Option<Value> {
        let (op, a, b) = match self.values.def(guard) {
            Some(&Op::Const(Literal::Bool(true))) => return None,
            Some(&Op::Binary(op, a, b)) => (op, a, b),
            _ => return Some(guard),
        };
        match op {
            Binary::Lt if self.is_integer(a) && self.prove(a, b, true, DEPTH) => None,
            Binary::And if self.values.scalar(a) == Scalar::Bool => match (self.rest_of(a), self.rest_of(b)) {
                (None, rest) | (rest, None) => rest,
                _ => Some(guard),
            },
            _ => Some(guard),
        }
    }

    /// An index `x + c` that can't wrap is the index `x` and an offset, wherever in a sum the constant stands.
    fn split(&mut self, address: &mut Address) {
        for (index, stride) in &mut address.terms {
            let mut parts = SmallVec::new();
            let c = self.summands(*index, DEPTH, &mut parts);
            let offset = i128::from(address.offset) + c * i128::from(*stride);
            let (Ok(offset), false, false) = (u32::try_from(offset), c == 0, parts.is_empty()) else { continue };
            let whole = match self.values.def(*index) {
                Some(&Op::Binary(Binary::Add, x, last)) if self.of(last) == (c, c) => Some(x),
                _ if self.values.scalar(*index) == Scalar::U32 => None,
                _ => continue,
            };
            address.offset = offset;
            *index = whole.unwrap_or_else(|| self.sum(&parts));
        }
    }

    /// What a number is the sum of, of which nothing is negative and nothing wraps; gives the constant among it.
    fn summands(&self, value: Value, depth: u32, parts: &mut SmallVec<[Value; 8]>) -> i128 {
        match self.values.def(value) {
            Some(&Op::Const(literal)) if let Some(known) = fold::integer(&literal).filter(|known| *known >= 0) => known,
            Some(&Op::Binary(Binary::Add, a, b)) if depth > 0 && self.is_integer(value) => {
                let (a_bounds, b_bounds) = (self.of(a), self.of(b));
                let most = full(self.values.scalar(value)).1;
                if a_bounds.0 < 0 || b_bounds.0 < 0 || a_bounds.1 + b_bounds.1 > most {
                    parts.push(value);
                    return 0;
                }
                self.summands(a, depth - 1, parts) + self.summands(b, depth - 1, parts)
            }
            Some(&Op::BitCast(a)) if depth > 0 && self.is_integer(a) && self.of(a).0 >= 0 => {
                self.summands(a, depth - 1, parts)
            }
            _ => {
                parts.push(value);
                0
            }
        }
    }

    /// The sum of numbers that are not negative, as a u32.
    fn sum(&mut self, parts: &[Value]) -> Value {
        let mut sum: Option<Value> = None;
        for part in parts {
            let part = match self.values.scalar(*part) {
                Scalar::U32 => *part,
                _ => self.index(Op::BitCast(*part)),
            };
            sum = Some(match sum {
                Some(sum) => self.index(Op::Binary(Binary::Add, sum, part)),
                None => part,
            });
        }
        sum.unwrap_or_else(|| self.index(Op::Const(Literal::U32(0))))
    }

    fn index(&mut self, op: Op) -> Value {
        self.bounds.push(full(Scalar::U32));
        self.floats.push(Interval::ANY);
        self.values.define(Scalar::U32, op, &mut self.indices)
    }

    fn insts(&mut self, block: &mut Block) {
        let mut insts = Vec::with_capacity(block.insts.len());
        for mut inst in std::mem::take(&mut block.insts) {
            self.inst(&mut inst);
            insts.append(&mut self.indices);
            insts.push(inst);
        }
        block.insts = insts;
    }

    fn block(&mut self, block: &mut Block) {
        let mark = self.mark();
        self.insts(block);
        self.forget_since(mark);
    }

    fn way(&mut self, block: &mut Block, cond: Value, holds: bool) -> Vec<Bounds> {
        let mark = self.mark();
        self.assume(cond, holds);
        self.insts(block);
        let yielded = match &block.end {
            End::Yield(values) => values.iter().map(|value| self.of(*value)).collect(),
            _ => Vec::new(),
        };
        self.forget_since(mark);
        yielded
    }

    fn inst(&mut self, inst: &mut Inst) {
        match inst {
            Inst::Let(value, op) => self.define(*value, op),
            Inst::Store { guard, address, .. } | Inst::Atomic { guard, address, .. } => {
                if let Some(value) = *guard {
                    *guard = self.rest_of(value);
                }
                self.split(address);
            }
            Inst::Barrier(_) => {}
            Inst::If { cond, then, otherwise, results } => {
                let yes = self.way(then, *cond, true);
                let no = self.way(otherwise, *cond, false);
                let (first, second) = (matches!(then.end, End::Yield(_)), matches!(otherwise.end, End::Yield(_)));
                for (i, result) in results.iter().enumerate() {
                    self.bounds[result.index()] = match (first, second) {
                        (true, true) => (yes[i].0.min(no[i].0), yes[i].1.max(no[i].1)),
                        (true, false) => yes[i],
                        (false, true) => no[i],
                        (false, false) => continue,
                    };
                }
                if !first {
                    self.assume(*cond, false);
                } else if !second {
                    self.assume(*cond, true);
                }
            }
            Inst::Loop(inner) => self.repeat(inner),
        }
    }

    fn repeat(&mut self, inner: &mut Loop) {
        let mark = self.mark();
        self.bound_loop(inner);
        self.block(&mut inner.body);
        self.bound_results(inner);
        self.forget_since(mark);
    }

    fn define(&mut self, value: Value, op: &mut Op) {
        if let Op::Load { guard, address, .. } = op {
            if let Some(value) = *guard {
                *guard = self.rest_of(value);
            }
            self.split(address);
        }
        if let Op::Binary(compare, a, b) = *op
            && self.is_integer(a)
        {
            let (a, b) = (a, b);
            let known = match compare {
                Binary::Lt => self.order(a, b, true),
                Binary::Ge => self.order(a, b, true).map(|less| !less),
                Binary::Gt => self.order(b, a, true),
                Binary::Le => self.order(b, a, true).map(|less| !less),
                _ => None,
            };
            if let Some(known) = known {
                *op = Op::Const(Literal::Bool(known));
                self.values.set(value, op);
                return;
            }
        }
        if self.values.ty(value) == Scalar::F32.into() {
            self.floats[value.index()] = self.float(op);
        }
        if let Op::Binary(Binary::Lt, a, b) = *op
            && let Some(&Op::Const(Literal::F32(most))) = self.values.def(b)
            && !self.floats[a.index()].nan
            && self.floats[a.index()].high < f64::from(most)
        {
            *op = Op::Const(Literal::Bool(true));
            self.values.set(value, op);
            return;
        }
        if self.is_integer(value) {
            let (mut low, high) = self.range(value, op);
            if let Op::Binary(Binary::Sub, a, b) = *op
                && low < 0
                && high >= 0
                && matches!(self.values.scalar(value), Scalar::U32 | Scalar::U64)
                && self.prove(b, a, false, DEPTH)
            {
                low = 0;
            }
            let all = full(self.values.scalar(value));
            self.bounds[value.index()] = if low >= all.0 && high <= all.1 { (low, high) } else { all };
            self.divide_unsigned(op);
        }
    }

    /// Quotients and remainders of signed numbers that are not negative, by a constant: of unsigned ones they take fewer operations.
    fn divide_unsigned(&mut self, op: &mut Op) {
        if let Op::Binary(divide @ (Binary::Div | Binary::Rem), a, b) = *op
            && self.values.ty(a) == Scalar::I32.into()
            && self.of(a).0 >= 0
            && let Some(&Op::Const(Literal::I32(by @ 1..))) = self.values.def(b)
        {
            let by = self.index(Op::Const(Literal::U32(by as u32)));
            let whole = self.index(Op::BitCast(a));
            *op = Op::BitCast(self.index(Op::Binary(divide, whole, by)));
        }
    }

    /// What an operation that gives an f32 can give.
    fn float(&self, op: &Op) -> Interval {
        let of = |value: &Value| self.floats[value.index()];
        match op {
            Op::Const(Literal::F32(known)) => Interval::constant(*known),
            Op::Cast(a) if self.is_integer(*a) => {
                let (low, high) = self.of(*a);
                Interval::new(low as f64, high as f64).rounded()
            }
            Op::Cast(a) if self.values.scalar(*a) == Scalar::Bool => Interval::new(0.0, 1.0),
            Op::Unary(Unary::Neg, a) => of(a).negated(),
            Op::Unary(Unary::Abs, a) => of(a).size(),
            Op::Unary(Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc, a) => {
                let Interval { low, high, nan } = of(a);
                Interval { low: low.floor(), high: high.ceil(), nan }
            }
            Op::Binary(Binary::Add, a, b) => of(a).plus(of(b)).rounded(),
            Op::Binary(Binary::Sub, a, b) => of(a).plus(of(b).negated()).rounded(),
            Op::Binary(Binary::Mul, a, b) if a == b => of(a).square().rounded(),
            Op::Binary(Binary::Mul, a, b) => of(a).times(of(b)).rounded(),
            Op::Binary(Binary::Div, a, b) => match self.values.def(*b) {
                Some(&Op::Const(Literal::F32(by))) if by.is_normal() => {
                    let inverse = 1.0 / f64::from(by);
                    of(a).times(Interval::new(inverse, inverse)).rounded()
                }
                _ => Interval::ANY,
            },
            Op::Binary(op @ (Binary::Min | Binary::Max), a, b) => of(a).either_end(of(b), *op == Binary::Min),
            Op::Select(_, a, b) => of(a).or(of(b)),
            Op::Fma(a, b, c) => {
                let product = if a == b { of(a).square() } else { of(a).times(of(b)) };
                product.plus(of(c)).rounded()
            }
            _ => Interval::ANY,
        }
    }

    /// Whether `a < b` always or never holds.
    fn order(&mut self, a: Value, b: Value, strict: bool) -> Option<bool> {
        if self.prove(a, b, strict, DEPTH) {
            Some(true)
        } else if self.prove(b, a, !strict, DEPTH) {
            Some(false)
        } else if self.log.is_empty() || !self.looks_again {
            None
        } else {
            let (left, right) = (self.here(a, MADE_OF), self.here(b, MADE_OF));
            let always = left.1 + i128::from(strict) <= right.0;
            let never = right.1 + i128::from(!strict) <= left.0;
            (always != never).then_some(always)
        }
    }

    /// What a value can be here, where more may be known of what it is made of than where it was made.
    fn here(&mut self, value: Value, depth: u32) -> Bounds {
        self.reached(value, depth).unwrap_or(self.of(value))
    }

    /// The same; nothing where the value can be nothing at all, so that this is never reached.
    fn reached(&mut self, value: Value, depth: u32) -> Option<Bounds> {
        let known = self.of(value);
        let ty = self.values.scalar(value);
        let (low, high) = match self.values.def(value) {
            _ if depth == 0 || !self.is_integer(value) => return Some(known),
            Some(&Op::Binary(op, a, b)) if self.is_integer(a) => {
                let (a, b) = (self.here(a, depth - 1), self.here(b, depth - 1));
                self.binary(op, a, b, ty)
            }
            Some(&Op::Select(cond, yes, no)) => {
                self.joined(Join { cond, ways: [Some(yes), Some(no)], also: [None; 2] }, depth - 1)
            }
            Some(&(Op::Cast(a) | Op::BitCast(a))) if self.is_integer(a) => self.here(a, depth - 1),
            None if let Some(join) = self.joins.get(value.index()).copied().flatten() => self.joined(join, depth - 1),
            _ => return Some(known),
        };
        let (new, all) = ((low.max(known.0), high.min(known.1)), full(ty));
        // What may wrap says nothing.
        match low >= all.0 && high <= all.1 {
            true => (new.0 <= new.1).then_some(new),
            false => Some(known),
        }
    }

    /// What a branch can give here.
    fn joined(&mut self, join: Join, depth: u32) -> Bounds {
        let mut all: Option<Bounds> = None;
        for ((given, also), holds) in join.ways.into_iter().zip(join.also).zip([true, false]) {
            let Some(given) = given else { continue };
            let mark = self.mark();
            if self.can_be([(join.cond, holds)].into_iter().chain(also)) {
                let (low, high) = self.here(given, depth);
                all = Some(all.map_or((low, high), |all| (all.0.min(low), all.1.max(high))));
            }
            self.forget_since(mark);
        }
        all.unwrap_or((i128::MIN, i128::MAX))
    }

    /// What the operation can give; outside of the type when it can wrap.
    fn range(&self, value: Value, op: &Op) -> Bounds {
        let ty = self.values.scalar(value);
        let all = full(ty);
        match op {
            Op::Const(literal) => fold::integer(literal).map_or(all, |known| (known, known)),
            Op::Builtin(builtin) => {
                let [x, y, z] = self.workgroup_size.map(i128::from);
                match builtin {
                    Builtin::LocalId(axis) => (0, [x, y, z][usize::from((*axis).min(2))] - 1),
                    Builtin::LocalIndex => (0, x * y * z - 1),
                    Builtin::SubgroupLane => (0, 127),
                    Builtin::SubgroupSize => (1, 128),
                    Builtin::SubgroupId => (0, x * y * z - 1),
                    Builtin::NumSubgroups => (1, x * y * z),
                    Builtin::GlobalId(_) if self.small_grids => (0, i128::from(i32::MAX)),
                    Builtin::WorkgroupId(axis) | Builtin::NumWorkgroups(axis) if self.small_grids => {
                        (0, i128::from(i32::MAX) / [x, y, z][usize::from((*axis).min(2))].max(1))
                    }
                    _ => all,
                }
            }
            Op::Unary(op, a) => {
                let bits = i128::from(self.values.scalar(*a).bits());
                match op {
                    Unary::CountOneBits | Unary::CountLeadingZeros | Unary::CountTrailingZeros => (0, bits),
                    Unary::Neg if self.is_integer(*a) => (-self.of(*a).1, -self.of(*a).0),
                    Unary::Abs if self.is_integer(*a) => {
                        let (low, high) = self.of(*a);
                        if low >= 0 { (low, high) } else { (0, high.max(-low)) }
                    }
                    _ => all,
                }
            }
            Op::Binary(op, a, b) if self.is_integer(*a) => self.binary(*op, self.of(*a), self.of(*b), ty),
            Op::Select(_, yes, no) => {
                let (yes, no) = (self.of(*yes), self.of(*no));
                (yes.0.min(no.0), yes.1.max(no.1))
            }
            Op::Length(_) if self.small_lengths => (0, i128::from(i32::MAX)),
            Op::Cast(a) if self.values.scalar(*a) == Scalar::Bool => (0, 1),
            Op::Cast(a) | Op::BitCast(a) if self.is_integer(*a) => self.of(*a),
            Op::Load { element, .. } => match element {
                Element::U8 => (0, 255),
                Element::U16 => (0, 65535),
                Element::I8 => (-128, 127),
                Element::I16 => (-32768, 32767),
                Element::I4 => (-8, 7),
                _ => all,
            },
            _ => all,
        }
    }

    fn binary(&self, op: Binary, a: Bounds, b: Bounds, ty: Scalar) -> Bounds {
        let all = full(ty);
        let unsigned = all.0 == 0;
        let width = i128::from(ty.bits());
        match op {
            Binary::Add => (a.0 + b.0, a.1 + b.1),
            Binary::Sub => (a.0 - b.1, a.1 - b.0),
            Binary::Mul if a.0 >= 0 && b.0 >= 0 => (a.0.saturating_mul(b.0), a.1.saturating_mul(b.1)),
            Binary::Div if a.0 >= 0 && b.0 >= 1 => (a.0 / b.1, a.1 / b.0),
            Binary::Div if a.0 >= 0 && b.0 >= 0 => (0, a.1),
            Binary::Rem if a.0 >= 0 && b.0 >= 0 => (0, a.1.min((b.1 - 1).max(0))),
            Binary::And if unsigned || (a.0 >= 0 && b.0 >= 0) => (0, a.1.min(b.1)),
            Binary::And if a.0 >= 0 => (0, a.1),
            Binary::And if b.0 >= 0 => (0, b.1),
            Binary::Or | Binary::Xor if a.0 >= 0 && b.0 >= 0 => {
                let bits = 128 - a.1.max(b.1).leading_zeros();
                (0, (1i128 << bits) - 1)
            }
            Binary::Shl if a.0 >= 0 && b.1 < width => (a.0 << b.0, a.1 << b.1),
            Binary::Shr if a.0 >= 0 && b.1 < width => (a.0 >> b.1, a.1 >> b.0),
            Binary::Shr if a.0 >= 0 => (0, a.1),
            Binary::Min => (a.0.min(b.0), a.1.min(b.1)),
            Binary::Max => (a.0.max(b.0), a.1.max(b.1)),
            Binary::MulHigh if a.0 >= 0 && b.0 >= 0 && unsigned => ((a.0 * b.0) >> 32, (a.1 * b.1) >> 32),
            _ => all,
        }
    }
}
