//! How much work a workgroup of a kernel is.

use vyre_foundation::ir::AtomicOp;
use vyre_foundation::kernel::{Block, Counter, Inst, Kernel, Loop, Memory, Op};

/// Rounds of a loop whose count is not known.
const ROUNDS: u64 = 16;

/// Steps of one workgroup, roughly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Effort {
    pub(crate) steps: u64,
    /// Additions to words of buffers whose old values nobody needs.
    pub(crate) additions: u64,
    /// Every loop ends after a number of rounds that stands in the kernel.
    pub(crate) is_known: bool,
}

impl Effort {
    /// The effort of a kernel.
    pub(crate) fn of(kernel: &Kernel) -> Effort {
        let constants = vec![None; kernel.values.len()];
        let mut survey = Survey { kernel, constants, times: 1, additions: 0, is_known: true };
        let invocations: u64 = kernel.workgroup_size.iter().map(|&n| u64::from(n)).product();
        let steps = survey.block(&kernel.body).saturating_mul(invocations);
        let additions = survey.additions.saturating_mul(invocations);
        Effort { steps, additions, is_known: survey.is_known }
    }
}

struct Survey<'a> {
    kernel: &'a Kernel,
    constants: Vec<Option<u64>>,
    /// How often the block at hand runs.
    times: u64,
    additions: u64,
    is_known: bool,
}

impl Survey<'_> {
    fn block(&mut self, block: &Block) -> u64 {
        block.insts.iter().fold(0, |sum: u64, inst| sum.saturating_add(self.inst(inst)))
    }

    fn inst(&mut self, inst: &Inst) -> u64 {
        match inst {
            Inst::If { then, otherwise, .. } => 1 + self.block(then).saturating_add(self.block(otherwise)),
            Inst::Loop(inner) => {
                let rounds = self.rounds(inner);
                let outer = self.times;
                self.times = outer.saturating_mul(rounds);
                let steps = self.block(&inner.body).saturating_mul(rounds);
                self.times = outer;
                steps
            }
            Inst::Atomic { op: AtomicOp::Add | AtomicOp::Sub, address, result: None, .. } => {
                let buffer = matches!(address.memory, Memory::Buffer(_));
                self.additions = self.additions.saturating_add(if buffer { self.times } else { 0 });
                1
            }
            Inst::Let(value, Op::Const(literal)) => {
                self.constants[value.index()] = Some(literal.bits());
                1
            }
            // A gather or a scatter is many steps, but so is a miss of the cache.
            Inst::Let(_, Op::Load { address, .. }) | Inst::Store { address, .. } => match address.memory {
                Memory::Buffer(_) => 4,
                Memory::Shared(_) | Memory::Local(_) => 1,
            },
            _ => 1,
        }
    }

    fn rounds(&mut self, inner: &Loop) -> u64 {
        let Some(Counter { value, from, to, step }) = &inner.counter else {
            self.is_known = false;
            return ROUNDS;
        };
        match (self.constants[from.index()], self.constants[to.index()]) {
            (Some(from), Some(to)) => {
                let signed = self.kernel.values[value.index()].ty.scalar.is_signed();
                let wide = |bits: u64| if signed { i64::from(bits as i32) } else { i64::from(bits as u32) };
                let range = u64::try_from(wide(to) - wide(from)).unwrap_or(0);
                range.div_ceil(u64::from(*step).max(1))
            }
            _ => {
                self.is_known = false;
                ROUNDS
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
    use vyre_foundation::kernel::{Options, Passes, lower};

    use super::*;

    fn effort(to: Expr) -> Effort {
        let sum = Node::assign("sum", Expr::var("sum") * 3u32 + Expr::load("a", Expr::var("i")));
        let program = Program::wrapped(
            vec![BufferDecl::read("a", 0, DataType::U32), BufferDecl::output("out", 1, DataType::U32).with_count(1)],
            [1, 1, 1],
            vec![
                Node::var("sum", DataType::U32, 0u32),
                Node::for_range("i", 0u32, to, vec![sum]),
                Node::store("out", 0u32, Expr::var("sum")),
            ],
        );
        let options = Options { passes: Passes::all().without(Passes::UNROLL), ..Options::default() };
        Effort::of(&lower(&program.validate().unwrap(), &options).unwrap())
    }

    #[test]
    fn only_counts_that_stand_in_the_kernel_are_known() {
        let (few, many) = (effort(Expr::u32(10)), effort(Expr::u32(1000)));
        assert!(few.is_known && many.is_known);
        assert!(many.steps > 50 * few.steps, "{few:?} {many:?}");
        assert!(!effort(Expr::load("a", 0u32)).is_known);
    }
}
