//! How many rounds a loop takes, found by trying: its constants are computed round by round, and the rest is unknown.
//!
//! So `for (var step = 1u; step < 512u; step <<= 1u)` has nine rounds, although it does not count.

use hashbrown::{HashMap, HashSet};

use crate::ir::Literal;
use crate::kernel::walk::defined_in;
use crate::kernel::{Block, End, Inst, Loop, Op, Value, ValueInfo, fold};

/// What was found of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trial {
    /// Rounds that are begun; the last of them may leave the loop.
    pub(super) rounds: u32,
    /// Something that is not known here may end the loop before that.
    pub(super) left_early: bool,
}

/// Tries at most `most` rounds. `outside` knows the constants among what the loop is given.
pub(super) fn rounds(
    inner: &Loop,
    init: &[Option<Literal>],
    values: &[ValueInfo],
    outside: impl Fn(Value) -> Option<Literal>,
    most: u32,
) -> Option<Trial> {
    let mut tried = Tried { values, outside, inside: defined_in(inner), known: HashMap::new(), left_early: false };
    let mut carried = init.to_vec();
    for round in 1..=most {
        tried.known.clear();
        for (param, value) in inner.params.iter().zip(&carried) {
            tried.set(*param, *value);
        }
        match tried.block(&inner.body)? {
            Way::Ends => return Some(Trial { rounds: round, left_early: tried.left_early }),
            Way::Carries(next) => carried = next,
            Way::Yields(_) => return None,
        }
    }
    None
}

/// Where a block goes when everything that is not known goes on.
enum Way {
    Yields(Vec<Option<Literal>>),
    Carries(Vec<Option<Literal>>),
    Ends,
}

struct Tried<'a, F> {
    values: &'a [ValueInfo],
    outside: F,
    inside: HashSet<Value>,
    known: HashMap<Value, Literal>,
    left_early: bool,
}

impl<F: Fn(Value) -> Option<Literal>> Tried<'_, F> {
    fn set(&mut self, value: Value, literal: Option<Literal>) {
        match literal {
            Some(literal) => _ = self.known.insert(value, literal),
            None => _ = self.known.remove(&value),
        }
    }

    fn of(&self, value: Value) -> Option<Literal> {
        if self.inside.contains(&value) { self.known.get(&value).copied() } else { (self.outside)(value) }
    }

    fn all(&self, values: &[Value]) -> Vec<Option<Literal>> {
        values.iter().map(|value| self.of(*value)).collect()
    }

    fn block(&mut self, block: &Block) -> Option<Way> {
        for inst in &block.insts {
            match inst {
                Inst::Let(value, op) => {
                    let literal = self.compute(*value, op);
                    self.set(*value, literal);
                }
                Inst::If { cond, then, otherwise, results } => match self.of(*cond) {
                    Some(Literal::Bool(holds)) => match self.block(if holds { then } else { otherwise })? {
                        Way::Yields(yielded) => {
                            results.iter().zip(yielded).for_each(|(result, literal)| self.set(*result, literal));
                        }
                        way => return Some(way),
                    },
                    _ => {
                        self.unknown(then)?;
                        self.unknown(otherwise)?;
                        results.iter().for_each(|result| self.set(*result, None));
                    }
                },
                Inst::Loop(inner) => inner.results.iter().for_each(|result| self.set(*result, None)),
                _ => {}
            }
        }
        match &block.end {
            End::Yield(values) => Some(Way::Yields(self.all(values))),
            End::Continue(values) => Some(Way::Carries(self.all(values))),
            End::Break(_) => Some(Way::Ends),
            End::Return | End::Unreachable => None,
        }
    }

    /// A way that may be taken or not. It may end the loop or the invocation; that it begins the next round is more than straight
    /// steps can say.
    fn unknown(&mut self, block: &Block) -> Option<()> {
        for inst in &block.insts {
            if let Inst::If { then, otherwise, .. } = inst {
                self.unknown(then)?;
                self.unknown(otherwise)?;
            }
        }
        match block.end {
            End::Continue(_) => return None,
            End::Break(_) => self.left_early = true,
            _ => {}
        }
        Some(())
    }

    fn compute(&self, value: Value, op: &Op) -> Option<Literal> {
        let ty = self.values[value.index()].ty.scalar;
        match op {
            Op::Const(literal) => Some(*literal),
            Op::Unary(op, a) => fold::unary(*op, self.of(*a)?),
            Op::Binary(op, a, b) => fold::binary(*op, self.of(*a)?, self.of(*b)?),
            Op::Select(cond, yes, no) => match self.of(*cond)? {
                Literal::Bool(holds) => self.of(if holds { *yes } else { *no }),
                _ => None,
            },
            Op::Cast(a) => Some(fold::cast(self.of(*a)?, ty)),
            Op::BitCast(a) => Some(fold::literal(ty, self.of(*a)?.bits())),
            _ => None,
        }
    }
}
