//! How large a kernel gets by unrolling loops, found by going through the rounds as the rewriter will.

use crate::ir::Literal;
use crate::kernel::{Block, End, Inst, Kernel, Loop, Op, Scalar, Value, ValueInfo, fold};

/// Steps that may be looked at for each that the unrolled loops of a kernel may have in all: constants are folded away, but not for nothing.
const LOOKS: usize = 16;

pub(super) struct Cost<'a> {
    values: &'a [ValueInfo],
    wanted: &'a [bool],
    known: Vec<Option<Literal>>,
    most: usize,
    steps: usize,
    looks: usize,
}

/// More steps than there may be, or more to look at.
struct TooLarge;

impl<'a> Cost<'a> {
    /// Of the loops whose counters are `wanted`, which may have so many steps in all.
    pub(super) fn new(kernel: &'a Kernel, wanted: &'a [bool], most: usize) -> Cost<'a> {
        Cost { values: &kernel.values, wanted, known: vec![None; kernel.values.len()], most, steps: 0, looks: 0 }
    }

    /// The counter of an outermost loop that can't be unrolled any more, if there is one.
    pub(super) fn too_large(&mut self, block: &Block) -> Option<Value> {
        for inst in &block.insts {
            let found = match inst {
                Inst::Let(value, Op::Const(literal)) => {
                    self.known[value.index()] = Some(*literal);
                    None
                }
                Inst::If { then, otherwise, .. } => self.too_large(then).or_else(|| self.too_large(otherwise)),
                Inst::Loop(inner) => match inner.counter {
                    Some(counter) if self.wanted[counter.value.index()] => {
                        self.unrolled(inner).is_err().then_some(counter.value)
                    }
                    _ => self.too_large(&inner.body),
                },
                _ => None,
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }

    fn look(&mut self, remains: bool) -> Result<(), TooLarge> {
        self.looks += 1;
        self.steps += usize::from(remains);
        if self.looks > LOOKS * self.most || self.steps > self.most { Err(TooLarge) } else { Ok(()) }
    }

    fn block(&mut self, block: &Block) -> Result<(), TooLarge> {
        for inst in &block.insts {
            match inst {
                Inst::Let(value, op) => {
                    let known = self.fold(op, self.values[value.index()].ty.scalar);
                    self.known[value.index()] = known;
                    self.look(known.is_none())?;
                }
                Inst::Atomic { result, .. } => {
                    result.iter().for_each(|result| self.known[result.index()] = None);
                    self.look(true)?;
                }
                Inst::Store { .. } | Inst::Barrier(_) => self.look(true)?,
                Inst::If { cond, then, otherwise, results } => match self.known[cond.index()] {
                    Some(Literal::Bool(holds)) => {
                        let way = if holds { then } else { otherwise };
                        self.block(way)?;
                        self.give(results, &way.end);
                    }
                    _ => {
                        self.look(true)?;
                        self.block(then)?;
                        self.block(otherwise)?;
                        self.forget(results);
                    }
                },
                Inst::Loop(inner) => match inner.counter {
                    Some(counter) if self.wanted[counter.value.index()] => self.unrolled(inner)?,
                    counter => {
                        self.look(true)?;
                        counter.iter().for_each(|counter| self.known[counter.value.index()] = None);
                        self.forget(&inner.params);
                        self.block(&inner.body)?;
                        self.forget(&inner.results);
                    }
                },
            }
        }
        Ok(())
    }

    fn unrolled(&mut self, inner: &Loop) -> Result<(), TooLarge> {
        let counter = inner.counter.ok_or(TooLarge)?;
        let bound = |value: Value| self.known[value.index()].as_ref().and_then(fold::integer).ok_or(TooLarge);
        let (mut next, to) = (bound(counter.from)?, bound(counter.to)?);
        let ty = self.values[counter.value.index()].ty.scalar;
        let mut carried: Vec<Option<Literal>> = inner.init.iter().map(|value| self.known[value.index()]).collect();
        while next < to {
            self.look(false)?;
            self.known[counter.value.index()] = Some(fold::of_integer(ty, next));
            for (param, value) in inner.params.iter().zip(&carried) {
                self.known[param.index()] = *value;
            }
            self.block(&inner.body)?;
            if let End::Continue(values) = &inner.body.end {
                carried = values.iter().map(|value| self.known[value.index()]).collect();
            }
            next += i128::from(counter.step);
        }
        for (result, value) in inner.results.iter().zip(carried) {
            self.known[result.index()] = value;
        }
        Ok(())
    }

    fn give(&mut self, results: &[Value], end: &End) {
        if let End::Yield(values) = end {
            for (result, value) in results.iter().zip(values) {
                self.known[result.index()] = self.known[value.index()];
            }
        }
    }

    fn forget(&mut self, values: &[Value]) {
        values.iter().for_each(|value| self.known[value.index()] = None);
    }

    fn fold(&self, op: &Op, ty: Scalar) -> Option<Literal> {
        let known = |value: Value| self.known[value.index()];
        match op {
            Op::Const(literal) => Some(*literal),
            Op::Unary(op, a) => fold::unary(*op, known(*a)?),
            Op::Binary(op, a, b) => fold::binary(*op, known(*a)?, known(*b)?),
            Op::Fma(a, b, c) => fold::fma(known(*a)?, known(*b)?, known(*c)?),
            Op::Select(cond, yes, no) => match known(*cond)? {
                Literal::Bool(true) => known(*yes),
                Literal::Bool(false) => known(*no),
                _ => None,
            },
            Op::Cast(a) => Some(fold::cast(known(*a)?, ty)),
            Op::BitCast(a) => Some(fold::literal(ty, known(*a)?.bits())),
            _ => None,
        }
    }
}
