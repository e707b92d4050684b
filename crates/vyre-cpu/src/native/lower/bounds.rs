//! The greatest that an index can become in all rounds of the loops around it.
//!
//! An index such as `row * width + k`, with `k` the counter of a loop, is inside a buffer in every round when it is for the greatest `k`.
//! What is found here is never less than the index, whatever wraps: a sum modulo 2³² is at most the sum.

use vyre_foundation::kernel::{Binary, Counter, Inst, Kernel, Op, Scalar, Value};

use super::super::asm::{Alu, Cond, Shift};
use super::super::hash::Map;
use super::super::mir::{At, GSrc, M, R};
use super::super::shape::Lane;
use super::Lower;
use super::value::Lin;

/// How deep an index is looked into.
const DEEPEST: u32 = 12;

/// Below this a number has no sign as one with 32 bits.
const SIGN: u32 = 1 << 31;

/// A number of 64 bits that a value of 32 bits is never greater than.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Upper {
    Constant(u32),
    /// A value that is not greater than this, whatever it is.
    AtMost(u32),
    /// The last lane of a value that is made before the block.
    Value(Value),
    /// The last round of a loop, which is before its end, such a value.
    Round {
        /// The first one, where that can be made before the block.
        from: Option<Value>,
        /// What the first round is at most, where it could have a sign.
        first: Option<Box<Upper>>,
        end: Value,
        /// A power of two that all rounds are multiples of.
        unit: u32,
    },
    Sum(Box<[Upper; 2]>),
    /// A difference is at most what it is taken from, where that is never less than what is taken away; else it could be anything.
    Difference(Box<[Upper; 2]>),
    Product(Box<[Upper; 2]>),
    Shifted(Box<Upper>, u8),
    /// A number without a sign, shifted down.
    Down(Box<Upper>, u8),
    Least(Box<[Upper; 2]>),
    Most(Box<[Upper; 2]>),
}

impl Upper {
    /// What it is at least can be found in the same way.
    pub(super) fn has_lower(&self) -> bool {
        match self {
            Upper::Constant(_) | Upper::Value(_) => true,
            Upper::Round { from, .. } => from.is_some(),
            Upper::Sum(parts) => parts.iter().any(Upper::has_lower),
            Upper::Product(parts) => parts.iter().all(Upper::has_lower),
            Upper::Difference(parts) => parts[0].has_lower(),
            Upper::Shifted(of, _) => of.has_lower(),
            // Where what is shifted down wraps, its upper bound does not say so any more.
            Upper::Down(..) | Upper::AtMost(_) | Upper::Least(_) | Upper::Most(_) => false,
        }
    }

    /// Shows the values that it is made of.
    pub(super) fn each_value(&self, f: &mut dyn FnMut(Value)) {
        match self {
            Upper::Constant(_) | Upper::AtMost(_) => {}
            Upper::Value(value) => f(*value),
            Upper::Round { from, first, end, .. } => {
                first.iter().for_each(|first| first.each_value(f));
                from.iter().for_each(|from| f(*from));
                f(*end);
            }
            Upper::Shifted(of, _) | Upper::Down(of, _) => of.each_value(f),
            Upper::Sum(parts)
            | Upper::Difference(parts)
            | Upper::Product(parts)
            | Upper::Least(parts)
            | Upper::Most(parts) => {
                parts.iter().for_each(|part| part.each_value(f));
            }
        }
    }
}

/// What all values of a kernel are made of, also in loops and branches.
pub(super) struct Makers<'k> {
    pub(super) ops: Vec<Option<&'k Op>>,
    counters: Map<Value, Counter>,
    /// What loops carry, and what they begin with.
    begins: Map<Value, Value>,
}

impl<'k> Makers<'k> {
    pub(super) fn of(kernel: &'k Kernel) -> Makers<'k> {
        let ops = vec![None; kernel.values.len()];
        let mut makers = Makers { ops, counters: Map::default(), begins: Map::default() };
        let mut open = vec![&kernel.body];
        while let Some(block) = open.pop() {
            for inst in &block.insts {
                match inst {
                    Inst::Let(value, op) => makers.ops[value.index()] = Some(op),
                    Inst::If { then, otherwise, .. } => open.extend([&**then, &**otherwise]),
                    Inst::Loop(inner) => {
                        makers.counters.extend(inner.counter.iter().map(|counter| (counter.value, *counter)));
                        makers.begins.extend(inner.params.iter().copied().zip(inner.init.iter().copied()));
                        open.push(&inner.body);
                    }
                    _ => {}
                }
            }
        }
        makers
    }

    /// What a loop begins with that carries this value.
    pub(super) fn begin(&self, value: Value) -> Option<Value> {
        self.begins.get(&value).copied()
    }

    pub(super) fn counter(&self, value: Value) -> Option<&Counter> {
        self.counters.get(&value)
    }

    pub(super) fn constant(&self, value: Value) -> Option<u32> {
        match self.ops[value.index()] {
            Some(Op::Const(literal)) => Some(literal.bits() as u32),
            _ => None,
        }
    }
}

impl<'k> Lower<'k> {
    /// What an index is at most, of values that `known` says can be made before the block. Where numbers of lanes may be less than nothing
    /// there is nothing: such an index may be large in most blocks, and a test of it for nothing.
    pub(super) fn upper(
        &self,
        makers: &Makers<'k>,
        known: &dyn Fn(Value) -> bool,
        value: Value,
        depth: u32,
    ) -> Option<Upper> {
        if depth > DEEPEST || !matches!(self.scalar_of(value), Scalar::U32 | Scalar::I32) {
            return None;
        }
        if let Some(bits) = makers.constant(value) {
            return (bits < SIGN).then_some(Upper::Constant(bits));
        }
        let of = |value: Value| self.upper(makers, known, value, depth + 1);
        if let Some(counter) = makers.counters.get(&value) {
            // It is never less than its start.
            let first = match self.have_no_sign(makers, [counter.from; 2], 0) {
                true => None,
                false => Some(Box::new(of(counter.from)?)),
            };
            let starts_at_none = makers.constant(counter.from) == Some(0);
            let unit = if starts_at_none && counter.step.is_power_of_two() { counter.step } else { 1 };
            if let (None, Some(end @ 1..SIGN)) = (&first, makers.constant(counter.to)) {
                return Some(Upper::AtMost((end - 1) & !(unit - 1)));
            }
            let ends = self.shape_of(counter.to).is_uniform() && known(counter.to);
            let from = Some(counter.from).filter(|&from| known(from));
            return ends.then_some(Upper::Round { from, first, end: counter.to, unit });
        }
        // Sizes, and what is made of them.
        if self.shape_of(value).is_uniform() && known(value) {
            return Some(Upper::Value(value));
        }
        if self.is_even(value) {
            return self.upper_of_even(makers, known, value);
        }
        let both = |a: Value, b: Value| Some(Box::new([of(a)?, of(b)?]));
        let found = match makers.ops[value.index()]? {
            Op::Builtin(_) | Op::Length(_) => Some(Upper::Value(value)).filter(|_| known(value)),
            Op::Cast(a) | Op::BitCast(a) => of(*a),
            Op::Binary(Binary::Add, a, b) => match (of(*a), makers.constant(*b)) {
                // The neighbour before a place.
                (Some(a), Some(less @ SIGN..)) if a.has_lower() => {
                    Some(Upper::Difference(Box::new([a, Upper::Constant(less.wrapping_neg())])))
                }
                (a, _) => Some(Upper::Sum(Box::new([a?, of(*b)?]))),
            },
            Op::Binary(Binary::Sub, a, b) if self.scalar_of(value) == Scalar::U32 => {
                both(*a, *b).filter(|parts| parts[0].has_lower()).map(Upper::Difference)
            }
            Op::Binary(Binary::Mul, a, b) => both(*a, *b).map(Upper::Product),
            Op::Binary(Binary::Shl, a, b) => {
                let count = makers.constant(*b)? & 31;
                of(*a).map(|of| match of {
                    Upper::Constant(bits) if bits.leading_zeros() >= count => Upper::Constant(bits << count),
                    Upper::AtMost(bits) if bits.leading_zeros() >= count => Upper::AtMost(bits << count),
                    of => Upper::Shifted(Box::new(of), count as u8),
                })
            }
            Op::Binary(Binary::Shr, a, b) if self.scalar_of(value) == Scalar::U32 => {
                let count = makers.constant(*b)? & 31;
                of(*a).map(|of| Upper::Down(Box::new(of), count as u8))
            }
            // Of numbers with signs the greater may be the one that is large without it.
            Op::Binary(Binary::Min, a, b) if self.have_no_sign(makers, [*a, *b], 0) => match (of(*a), of(*b)) {
                (Some(a), Some(b)) => Some(Upper::Least(Box::new([a, b]))),
                (one, other) => one.or(other),
            },
            // Beside a number without sign the other is the least, as long as it has none; with one it is the result, and large.
            Op::Binary(Binary::Min, a, b) if self.have_no_sign(makers, [*a; 2], 0) => of(*b),
            Op::Binary(Binary::Min, a, b) if self.have_no_sign(makers, [*b; 2], 0) => of(*a),
            Op::Binary(Binary::Max, a, b) if self.have_no_sign(makers, [*a, *b], 0) => both(*a, *b).map(Upper::Most),
            // What is not taken for the least number is the least of two without signs.
            Op::Binary(Binary::Max, least, none) if makers.constant(*none) == Some(0) => {
                match makers.ops[least.index()]? {
                    Op::Binary(Binary::Min, a, b) => of(*b).or_else(|| of(*a)),
                    _ => None,
                }
            }
            _ => None,
        };
        let max = self.shape_of(value).max;
        found.or_else(|| (max <= u32::from(u16::MAX)).then_some(Upper::AtMost(max)))
    }

    /// The greatest of an even value: its last lane, or the edge that it is clamped to.
    fn upper_of_even(&self, makers: &Makers<'k>, known: &dyn Fn(Value) -> bool, value: Value) -> Option<Upper> {
        let own = Some(Upper::Value(value)).filter(|_| known(value));
        // What is clamped for one row is no sum of what is clamped for another.
        if own.is_some() && !self.in_pieces() {
            return own;
        }
        let Some(Op::Binary(op, a, b)) = makers.ops[value.index()] else { return own };
        let (of, edge) = self.followed(*a, *b);
        let limit = match op {
            // Not less than nothing, and not above the edge, which has no sign then either.
            Binary::Min if known(edge) && self.have_no_sign(makers, [of; 2], 0) => Some(Upper::Value(edge)),
            Binary::Max if self.have_no_sign(makers, [value; 2], 0) && self.is_even(of) => {
                match makers.ops[of.index()]? {
                    Op::Binary(Binary::Min, a, b) => {
                        Some(Upper::Value(self.followed(*a, *b).1)).filter(|_| known(self.followed(*a, *b).1))
                    }
                    _ => None,
                }
            }
            _ => None,
        };
        limit.or(own)
    }

    fn have_no_sign(&self, makers: &Makers<'k>, values: [Value; 2], depth: u32) -> bool {
        values.into_iter().all(|value| self.scalar_of(value) == Scalar::U32 || self.has_no_sign(makers, value, depth))
    }

    /// The value is less than 2³¹.
    fn has_no_sign(&self, makers: &Makers<'k>, value: Value, depth: u32) -> bool {
        let signed = self.scalar_of(value) == Scalar::I32;
        let inner = |value: Value| depth < DEEPEST && self.has_no_sign(makers, value, depth + 1);
        self.shape_of(value).max < SIGN
            || match makers.ops[value.index()] {
                Some(Op::Const(literal)) => (literal.bits() as u32) < SIGN,
                Some(Op::Cast(a) | Op::BitCast(a)) => {
                    matches!(self.scalar_of(*a), Scalar::U32 | Scalar::I32) && inner(*a)
                }
                Some(Op::Binary(Binary::Max, a, b)) if signed => inner(*a) || inner(*b),
                Some(Op::Binary(Binary::Min, a, b)) if signed => inner(*a) && inner(*b),
                Some(Op::Binary(Binary::Min, a, b)) => inner(*a) || inner(*b),
                _ => false,
            }
    }

    /// The number in a register; `None` where it is not one for all components.
    pub(super) fn upper_in_register(&mut self, upper: &Upper) -> Option<R> {
        Some(match upper {
            Upper::Constant(bits) | Upper::AtMost(bits) => self.materialise(Lin::imm(*bits as i32)),
            Upper::Value(value) => self.last_lane(*value)?,
            Upper::Difference(parts) => {
                let (up, taken) = (self.upper_in_register(&parts[0])?, self.upper_in_register(&parts[1])?);
                let (low, dst) = (self.lower_in_register(&parts[0])?, self.general());
                let most = self.materialise(Lin::imm(-1));
                self.push(M::Mov { dst, src: up });
                self.push(M::Cmp { wide: true, a: low, b: GSrc::R(taken) });
                self.push(M::Cmov { cond: Cond::Below, dst, src: most });
                dst
            }
            Upper::Round { first, end, unit, .. } => {
                let end = self.scalar_reg(*end, 0);
                let mut last = self.alu(Alu::Sub, false, end, GSrc::Imm(1));
                if *unit > 1 {
                    last = self.alu(Alu::And, false, last, GSrc::Imm(!(*unit - 1) as i32));
                }
                let Some(first) = first else { return Some(last) };
                // With a sign it could be anything.
                let (first, dst) = (self.upper_in_register(first)?, self.general());
                let (sign, most) = (self.materialise(Lin::imm(i32::MIN)), self.materialise(Lin::imm(-1)));
                self.push(M::Mov { dst, src: last });
                self.push(M::Cmp { wide: true, a: first, b: GSrc::R(sign) });
                self.push(M::Cmov { cond: Cond::AboveEqual, dst, src: most });
                dst
            }
            Upper::Sum(parts) => {
                let (a, b) = (self.upper_of_32_bits(&parts[0])?, self.upper_of_32_bits(&parts[1])?);
                self.alu(Alu::Add, true, a, GSrc::R(b))
            }
            Upper::Product(parts) => {
                let (a, b) = (self.upper_of_32_bits(&parts[0])?, self.upper_of_32_bits(&parts[1])?);
                self.product(true, a, GSrc::R(b))
            }
            Upper::Shifted(of, count) => {
                let of = self.upper_of_32_bits(of)?;
                self.shifted(true, of, i32::from(*count))
            }
            Upper::Down(of, count) => {
                let (of, dst) = (self.upper_of_32_bits(of)?, self.general());
                self.push(M::Shift { op: Shift::Right, wide: true, dst, a: of, count: GSrc::Imm(i32::from(*count)) });
                dst
            }
            Upper::Least(parts) | Upper::Most(parts) => {
                let (a, b) = (self.upper_in_register(&parts[0])?, self.upper_in_register(&parts[1])?);
                let other = if matches!(upper, Upper::Least(_)) { Cond::Above } else { Cond::Below };
                self.unless_so(a, other, b)
            }
        })
    }

    /// What the value is at least, where it is no greater than its upper bound is found to be, which is less than 2³² - 1: nothing wraps then.
    pub(super) fn lower_in_register(&mut self, upper: &Upper) -> Option<R> {
        Some(match upper {
            Upper::Constant(bits) => self.materialise(Lin::imm(*bits as i32)),
            Upper::Value(value) => self.first_lane(*value)?,
            Upper::Round { from: Some(from), .. } => self.first_lane(*from)?,
            Upper::Sum(parts) => {
                let (a, b) = (self.lower_in_register(&parts[0])?, self.lower_in_register(&parts[1])?);
                self.alu(Alu::Add, true, a, GSrc::R(b))
            }
            Upper::Product(parts) => {
                let (a, b) = (self.lower_in_register(&parts[0])?, self.lower_in_register(&parts[1])?);
                self.product(true, a, GSrc::R(b))
            }
            Upper::Shifted(of, count) => {
                let of = self.lower_in_register(of)?;
                self.shifted(true, of, i32::from(*count))
            }
            Upper::Difference(parts) => {
                let (low, taken) = (self.lower_in_register(&parts[0])?, self.upper_in_register(&parts[1])?);
                let least = self.alu(Alu::Sub, true, low, GSrc::R(taken));
                let (dst, none) = (self.general(), self.materialise(Lin::imm(0)));
                self.push(M::Mov { dst, src: least });
                self.push(M::Cmp { wide: true, a: low, b: GSrc::R(taken) });
                self.push(M::Cmov { cond: Cond::Below, dst, src: none });
                dst
            }
            // Nothing is less than nothing.
            Upper::Round { from: None, .. } | Upper::Down(..) | Upper::AtMost(_) | Upper::Least(_) | Upper::Most(_) => {
                self.materialise(Lin::imm(0))
            }
        })
    }

    /// A value of 32 bits is never greater than what 32 bits can say, and a sum or product of two such numbers fits into 64.
    fn upper_of_32_bits(&mut self, upper: &Upper) -> Option<R> {
        let r = self.upper_in_register(upper)?;
        let fits = match upper {
            Upper::Constant(_) | Upper::AtMost(_) | Upper::Round { .. } => true,
            Upper::Value(value) => self.shape_of(*value).is_uniform(),
            _ => false,
        };
        let most = self.materialise(Lin::imm(-1));
        Some(if fits { r } else { self.unless_so(r, Cond::Above, most) })
    }

    /// One number, or the other where the first compares so with it.
    fn unless_so(&mut self, one: R, cond: Cond, other: R) -> R {
        let dst = self.general();
        self.push(M::Mov { dst, src: one });
        self.push(M::Cmp { wide: true, a: dst, b: GSrc::R(other) });
        self.push(M::Cmov { cond, dst, src: other });
        dst
    }

    /// The least lane of all components of a value whose lanes don't wrap.
    fn first_lane(&mut self, value: Value) -> Option<R> {
        let (first, _) = self.ends_of_lanes(value)?;
        Some(first)
    }

    /// The last lane of the last component of a value, as a sum that does not wrap.
    fn last_lane(&mut self, value: Value) -> Option<R> {
        let (first, span) = self.ends_of_lanes(value)?;
        if span == 0 {
            return Some(first);
        }
        let last = self.general();
        self.push(M::Lea { wide: true, dst: last, at: At::new(first, span) });
        Some(last)
    }

    /// The first lane of all components of a value, and how far the last is from there.
    pub(super) fn ends_of_lanes(&mut self, value: Value) -> Option<(R, i32)> {
        let reach = match self.shape_of(value).lane {
            Lane::Affine(stride) => i64::from(stride) * i64::from(self.lanes() - 1),
            Lane::Same => 0,
            Lane::Vary => return None,
        };
        let lins: Vec<Lin> = (0..self.active.components.len()).map(|c| self.lin(value, c)).collect();
        if lins.iter().any(|lin| lin.reg != lins[0].reg) {
            return None;
        }
        let adds = || lins.iter().map(|lin| i64::from(lin.add));
        let (low, high) = (adds().min()? + reach.min(0), adds().max()? + reach.max(0));
        let first = self.materialise(Lin { reg: lins[0].reg, add: i32::try_from(low).ok()? });
        Some((first, i32::try_from(high - low).ok()?))
    }
}
