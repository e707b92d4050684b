//! What is loaded from buffers that nobody writes is asked for before a barrier rather than behind it, so that one wait hides the other.
//!
//! Such loads are written as ordinary ones: the assembler moves those that say that nobody writes back behind the barrier.

use std::collections::HashSet;

use vyre_foundation::ir::BufferKind;
use vyre_foundation::kernel::{Block, Inst, Kernel, Loop, Memory, Op, Value, each_use};

/// Loads that are taken over a barrier: each needs a register for longer.
const MOST_LOADS: usize = 8;

/// The kernel with loads before barriers, and which they are; `None` where it stays as it is.
pub(super) fn early(kernel: &Kernel) -> Option<(Kernel, HashSet<Value>)> {
    let none = || vec![false; kernel.values.len()];
    let mut early = Early { kernel, stays: none(), moves: none(), loads: HashSet::new() };
    let body = early.block(&kernel.body)?;
    Some((Kernel { body, ..kernel.clone() }, early.loads))
}

/// Nobody changes what is in it while the kernel runs.
pub(super) fn is_constant(kernel: &Kernel, memory: Memory) -> bool {
    let Memory::Buffer(index) = memory else { return false };
    let buffer = &kernel.buffers[index as usize];
    matches!(buffer.kind, BufferKind::Read | BufferKind::Uniform) && !buffer.written && !buffer.atomic
}

struct Early<'k> {
    kernel: &'k Kernel,
    /// Values that are defined behind the barrier and can't be known before it.
    stays: Vec<bool>,
    /// Values that are computed before the barrier.
    moves: Vec<bool>,
    loads: HashSet<Value>,
}

impl Early<'_> {
    /// A block with loads before barriers; `None` where it stays as it is.
    fn block(&mut self, block: &Block) -> Option<Block> {
        let mut changed = false;
        let mut insts = Vec::with_capacity(block.insts.len());
        for inst in &block.insts {
            let inner = match inst {
                Inst::If { cond, then, otherwise, results } => match (self.block(then), self.block(otherwise)) {
                    (None, None) => None,
                    (new_then, new_otherwise) => Some(Inst::If {
                        cond: *cond,
                        then: new_then.map_or_else(|| then.clone(), Box::new),
                        otherwise: new_otherwise.map_or_else(|| otherwise.clone(), Box::new),
                        results: results.clone(),
                    }),
                },
                Inst::Loop(inner) => {
                    let body = self.block(&inner.body);
                    body.map(|body| Inst::Loop(Box::new(Loop { body, ..(**inner).clone() })))
                }
                _ => None,
            };
            changed |= inner.is_some();
            insts.push(inner.unwrap_or_else(|| inst.clone()));
        }
        let mut at = 0;
        while let Some(barrier) = insts[at..].iter().position(|inst| matches!(inst, Inst::Barrier(_))) {
            at += barrier;
            let moved = self.over(&mut insts, at);
            changed |= moved > 0;
            at += moved + 1;
        }
        changed.then(|| Block { insts, end: block.end.clone() })
    }

    /// Takes what is loaded behind a barrier, and what says where, before it; says how many steps these are.
    fn over(&mut self, insts: &mut [Inst], barrier: usize) -> usize {
        let ends = |inst: &Inst| matches!(inst, Inst::If { .. } | Inst::Loop(_) | Inst::Barrier(_));
        let rest = &insts[barrier + 1..];
        let behind = &rest[..rest.iter().position(ends).unwrap_or(rest.len())];
        let mut loads = Vec::new();
        self.stays.fill(false);
        for inst in behind {
            let mut free = true;
            each_use(inst, &mut |value| free &= !self.stays[value.index()]);
            match inst {
                Inst::Let(value, Op::Load { address, .. }) => {
                    free &= is_constant(self.kernel, address.memory) && loads.len() < MOST_LOADS;
                    self.stays[value.index()] = !free;
                    loads.extend(free.then_some(*value));
                }
                Inst::Let(value, op) => self.stays[value.index()] = !free || op.is_across_subgroup(),
                Inst::Atomic { result: Some(value), .. } => self.stays[value.index()] = true,
                _ => {}
            }
        }
        if loads.is_empty() {
            return 0;
        }
        self.moves.fill(false);
        loads.iter().for_each(|value| self.moves[value.index()] = true);
        self.loads.extend(&loads);
        for inst in behind.iter().rev() {
            if let Inst::Let(value, _) = inst
                && self.moves[value.index()]
            {
                each_use(inst, &mut |value| self.moves[value.index()] = true);
            }
        }
        let moves = |inst: &Inst| matches!(inst, Inst::Let(value, _) if self.moves[value.index()]);
        let steps = behind.len();
        let (first, then): (Vec<Inst>, Vec<Inst>) = behind.iter().cloned().partition(moves);
        let moved = first.len();
        let barrier_inst = insts[barrier].clone();
        let all = first.into_iter().chain([barrier_inst]).chain(then);
        insts[barrier..=barrier + steps].iter_mut().zip(all).for_each(|(place, inst)| *place = inst);
        moved
    }
}

#[cfg(test)]
mod tests {
    use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
    use vyre_foundation::kernel::{Options, lower};

    use crate::ptx::{Target, emit, lowering};

    /// A tile whose first and last elements branches load, in a loop with barriers that counts as nobody can foresee.
    fn text(from: &str) -> String {
        let (l, k) = (|| Expr::local_id(0), || Expr::var("k"));
        let edge = |cond: Expr, place: u32| {
            let load = Expr::load(from, k() * Expr::u32(64) + l() + Expr::u32(place));
            Node::if_then(cond, vec![Node::store("tile", l() + Expr::u32(place), load)])
        };
        let program = Program::wrapped(
            vec![
                BufferDecl::read("data", 0, DataType::F32),
                BufferDecl::read_write("out", 1, DataType::F32),
                BufferDecl::workgroup("tile", 0, DataType::F32).with_count(80),
            ],
            [64, 1, 1],
            vec![
                Node::var("k", DataType::U32, Expr::u32(1)),
                Node::Loop {
                    body: vec![
                        Node::if_then(k().gt(Expr::len("data")), vec![Node::Break]),
                        Node::barrier(),
                        edge(l().lt(4u32), 0),
                        edge(l().gt(60u32), 7),
                        Node::barrier(),
                        Node::store("out", k() + l(), Expr::load("tile", l() ^ Expr::u32(1))),
                    ],
                    continuing: vec![Node::assign("k", k() * Expr::u32(5) + Expr::u32(1))],
                    break_if: None,
                },
            ],
        );
        let kernel = lower(&program.validate().expect("valid"), &lowering(Options::default())).expect("lowers");
        emit(&kernel, Target { sm: 90, interruptible: false }).expect("text").text
    }

    #[test]
    fn what_branches_load_is_under_way_before_the_barrier() {
        let count = |text: &str, what: &str| text.matches(what).count();
        let until = |text: &str| text.split("st.shared.f32").next().unwrap_or_default().to_owned();
        let constant = text("data");
        let before = until(&constant);
        assert_eq!(count(&before, "ld.global.f32"), 2, "{constant}");
        let barrier = before.rfind("bar.sync").expect("a barrier");
        assert!(before.rfind("ld.global.f32").expect("loads") < barrier, "{constant}");
        // What others may write is loaded behind the barrier.
        let changing = text("out");
        let before = until(&changing);
        assert!(
            before.rfind("bar.sync").expect("a barrier") < before.find("ld.global.f32").expect("loads"),
            "{changing}"
        );
    }
}
