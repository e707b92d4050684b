//! Barriers at which only the invocations of the first warp have anything to tell each other.
//!
//! A sum by halves, as it is written everywhere, meets after each step: `if lane < width { part[lane] += part[lane + width]; } barrier`. From
//! 32 on down only the first warp works, and it need not wait for the others, which have nothing to do until the last step.
//!
//! What stands between two barriers is *narrow* where only invocations of the first warp reach memory that others see. A barrier with
//! something narrow on both sides is one for that warp: of two accesses by different warps one at least is not in anything narrow, and the
//! barriers on both sides of that are for all.

use std::collections::{HashMap, HashSet};

use vyre_foundation::ir::{Builtin, Literal};
use vyre_foundation::kernel::{Binary, Block, End, Inst, Kernel, Memory, Op, Unary, Value};

use super::early::is_constant;

const WARP: i64 = 32;

/// The barriers that are only for the first warp, by their number in the order of the text.
pub(super) fn of_a_warp(kernel: &Kernel) -> HashSet<usize> {
    let [x, y, z] = kernel.workgroup_size;
    let mut found = HashSet::new();
    if y == 1 && z == 1 && x.is_multiple_of(WARP as u32) {
        Narrow::of(kernel).block(&kernel.body, true, &mut 0, &mut found);
    }
    found
}

/// What is known of lanes and conditions.
struct Narrow<'k> {
    kernel: &'k Kernel,
    /// The position in the workgroup.
    lanes: HashSet<Value>,
    constants: HashMap<Value, i64>,
    /// Conditions that only invocations of the first warp fulfil, and those that all others do.
    if_true: HashSet<Value>,
    if_false: HashSet<Value>,
}

impl<'k> Narrow<'k> {
    fn of(kernel: &'k Kernel) -> Self {
        let mut narrow = Narrow {
            kernel,
            lanes: HashSet::new(),
            constants: HashMap::new(),
            if_true: HashSet::new(),
            if_false: HashSet::new(),
        };
        narrow.learn(&kernel.body);
        narrow
    }

    fn learn(&mut self, block: &Block) {
        for inst in &block.insts {
            match inst {
                Inst::Let(value, op) => self.learn_op(*value, op),
                Inst::If { then, otherwise, .. } => {
                    self.learn(then);
                    self.learn(otherwise);
                }
                Inst::Loop(inner) => self.learn(&inner.body),
                _ => {}
            }
        }
    }

    fn learn_op(&mut self, value: Value, op: &Op) {
        match op {
            Op::Const(Literal::U32(known)) => _ = self.constants.insert(value, i64::from(*known)),
            Op::Const(Literal::I32(known)) => _ = self.constants.insert(value, i64::from(*known)),
            _ => {}
        }
        let is_lane = match op {
            Op::Builtin(Builtin::LocalId(0) | Builtin::LocalIndex) => true,
            Op::BitCast(of) => self.lanes.contains(of),
            _ => false,
        };
        let of = |value: &Value| (self.if_true.contains(value), self.if_false.contains(value));
        let (if_true, if_false) = match op {
            Op::Unary(Unary::Not, a) => (of(a).1, of(a).0),
            Op::Binary(Binary::And, a, b) => (of(a).0 || of(b).0, of(a).1 && of(b).1),
            Op::Binary(Binary::Or, a, b) => (of(a).0 && of(b).0, of(a).1 || of(b).1),
            Op::Binary(binary, a, b) => self.compared(*binary, *a, *b),
            _ => (false, false),
        };
        for (set, holds) in [(&mut self.lanes, is_lane), (&mut self.if_true, if_true), (&mut self.if_false, if_false)] {
            if holds {
                set.insert(value);
            }
        }
    }

    /// Whether only the first warp fulfils a comparison, and whether all others do.
    fn compared(&self, binary: Binary, a: Value, b: Value) -> (bool, bool) {
        // The lane on the left; it is small, so that signed and unsigned numbers are the same.
        let (binary, known) = match (self.lanes.contains(&a), self.lanes.contains(&b)) {
            (true, false) => (binary, self.constants.get(&b)),
            (false, true) => (mirrored(binary), self.constants.get(&a)),
            _ => return (false, false),
        };
        let Some(&known) = known else { return (false, false) };
        match binary {
            Binary::Lt => (known <= WARP, false),
            Binary::Le | Binary::Eq => (known < WARP, false),
            Binary::Ge => (false, known <= WARP),
            Binary::Gt | Binary::Ne => (false, known < WARP),
            _ => (false, false),
        }
    }

    /// Looks through a block that all invocations come through, or none, and notes its barriers. Nothing is before and behind the whole kernel;
    /// what is before and behind an inner block is not looked at.
    fn block(&self, block: &Block, whole: bool, number: &mut usize, found: &mut HashSet<usize>) {
        // The last barrier, where what was before it is narrow.
        let mut last = None;
        let (mut begin, mut is_first) = (0, true);
        for (i, inst) in block.insts.iter().enumerate() {
            match inst {
                Inst::Barrier(_) => {
                    let narrow = self.is_narrow(&block.insts[begin..i], false);
                    found.extend(last.filter(|_| narrow));
                    last = (narrow && (whole || !is_first)).then_some(*number);
                    (begin, is_first) = (i + 1, false);
                    *number += 1;
                }
                Inst::If { then, otherwise, .. } => {
                    self.block(then, false, number, found);
                    self.block(otherwise, false, number, found);
                }
                Inst::Loop(inner) => self.block(&inner.body, false, number, found),
                _ => {}
            }
        }
        found.extend(last.filter(|_| whole && self.is_narrow(&block.insts[begin..], false)));
    }

    /// Only invocations of the first warp reach memory that others see in these steps, in which nobody meets; `first`: only they come here.
    fn is_narrow(&self, insts: &[Inst], mut first: bool) -> bool {
        for inst in insts {
            let is_private = |memory| matches!(memory, Memory::Local(_)) || is_constant(self.kernel, memory);
            let is_first = |guard: &Option<Value>| first || guard.is_some_and(|guard| self.if_true.contains(&guard));
            let narrow = match inst {
                Inst::Let(_, Op::Load { address, guard, .. })
                | Inst::Store { address, guard, .. }
                | Inst::Atomic { address, guard, .. } => is_private(address.memory) || is_first(guard),
                Inst::Let(..) => true,
                Inst::Barrier(_) => false,
                Inst::If { cond, then, otherwise, .. } => {
                    let (yes, no) = (self.if_true.contains(cond), self.if_false.contains(cond));
                    let narrow =
                        self.is_narrow(&then.insts, first || yes) && self.is_narrow(&otherwise.insts, first || no);
                    // Whoever goes on went the other way.
                    first |= (no && then.end == End::Return) || (yes && otherwise.end == End::Return);
                    narrow
                }
                Inst::Loop(inner) => self.is_narrow(&inner.body.insts, first),
            };
            if !narrow {
                return false;
            }
        }
        true
    }
}

/// The comparison with its sides exchanged.
fn mirrored(binary: Binary) -> Binary {
    match binary {
        Binary::Lt => Binary::Gt,
        Binary::Le => Binary::Ge,
        Binary::Gt => Binary::Lt,
        Binary::Ge => Binary::Le,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
    use vyre_foundation::kernel::{Options, lower};

    use crate::ptx::{Target, emit, lowering};

    /// Barriers for all and for a warp in a sum by halves, by lanes from one on.
    fn barriers(lanes: u32, from: u32, interruptible: bool) -> (usize, usize) {
        let l = || Expr::local_id(0);
        let mut body = vec![Node::store("part", l(), Expr::load("data", Expr::global_id(0))), Node::barrier()];
        let mut half = lanes / 2;
        while half > 0 {
            let sum = Expr::load("part", l()) + Expr::load("part", l() + Expr::u32(half));
            let is_there = l().ge(from) & l().lt(from + half);
            body.extend([Node::if_then(is_there, vec![Node::store("part", l(), sum)]), Node::barrier()]);
            half /= 2;
        }
        body.push(Node::if_then(
            l().eq(0u32),
            vec![Node::store("out", Expr::workgroup_id(0), Expr::load("part", l()))],
        ));
        let program = Program::wrapped(
            vec![
                BufferDecl::read("data", 0, DataType::F32),
                BufferDecl::read_write("out", 1, DataType::F32),
                BufferDecl::workgroup("part", 0, DataType::F32).with_count(lanes),
            ],
            [lanes, 1, 1],
            body,
        );
        let options = lowering(Options { interruptible, ..Options::default() });
        let kernel = lower(&program.validate().expect("valid"), &options).expect("lowers");
        let text = emit(&kernel, Target { sm: 90, interruptible }).expect("text").text;
        (text.matches("bar.sync").count(), text.matches("bar.warp.sync").count())
    }

    #[test]
    fn the_last_steps_of_a_sum_are_of_one_warp() {
        // 128, 64 and 32 lanes read what others wrote; then one warp is left, and only its first lane reads the sum.
        assert_eq!(barriers(256, 0, false), (3, 6));
        assert_eq!(barriers(64, 0, false), (1, 6));
        // Sixteen lanes from 17 on are of two warps, eight are not.
        assert_eq!(barriers(256, 17, false), (5, 4));
        // Some may have left.
        assert_eq!(barriers(256, 0, true), (9, 0));
    }
}
