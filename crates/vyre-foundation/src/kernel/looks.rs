//! After how many rounds loops look whether the launch has to end.
//!
//! A look costs a load and a branch, so a loop looks once in some thousand steps: after a number of rounds that depends on how
//! long a round is, and never where all its rounds together are short. A loop around loops of unknown length looks after a few
//! rounds of its own, because the inner ones look only when they are long.

use hashbrown::HashMap;

use super::walk::has_loop;
use super::{Block, Counter, Inst, Kernel, Loop, Op, Value, fold};

/// Steps between two looks of a loop without inner loops of unknown length.
const STEPS: u64 = 1 << 14;
/// Steps of all rounds of a loop that never looks.
const SHORT: u64 = 1 << 16;
/// Rounds between two looks of a loop around others of unknown length.
const OUTER_ROUNDS: u64 = 32;
/// Steps that may pass without a look in nested loops, where each alone is too short to look.
const MOST: u64 = 1 << 24;

/// Says for each loop when it looks. In kernels that are not `interruptible`, only loops look that may never end.
pub(super) fn place(kernel: &mut Kernel, interruptible: bool) {
    if !has_loop(&kernel.body) {
        return;
    }
    let mut looks = Looks { constants: HashMap::new(), interruptible };
    looks.block(&mut kernel.body);
}

struct Looks {
    constants: HashMap<Value, i128>,
    interruptible: bool,
}

/// What passes without a look.
#[derive(Clone, Copy, Default)]
struct Unseen {
    steps: u64,
    /// There is a loop of unknown length.
    open: bool,
}

impl Unseen {
    fn add(&mut self, other: Unseen) {
        self.steps = self.steps.saturating_add(other.steps);
        self.open |= other.open;
    }
}

impl Looks {
    fn block(&mut self, block: &mut Block) -> Unseen {
        let mut sum = Unseen::default();
        for inst in &mut block.insts {
            sum.add(Unseen { steps: 1, open: false });
            match inst {
                Inst::Let(value, Op::Const(literal)) => {
                    if let Some(known) = fold::integer(literal) {
                        self.constants.insert(*value, known);
                    }
                }
                Inst::If { then, otherwise, .. } => {
                    sum.add(self.block(then));
                    sum.add(self.block(otherwise));
                }
                Inst::Loop(inner) => sum.add(self.repeat(inner)),
                _ => {}
            }
        }
        sum
    }

    fn repeat(&mut self, inner: &mut Loop) -> Unseen {
        let round = self.block(&mut inner.body);
        let steps = round.steps.max(1);
        let rounds = inner.counter.and_then(|counter| self.rounds(&counter));
        let between = if round.open || steps >= STEPS { (MOST / steps).clamp(1, OUTER_ROUNDS) } else { STEPS / steps };
        let short = rounds
            .is_some_and(|rounds| if round.open { rounds <= between } else { steps.saturating_mul(rounds) <= SHORT });
        if short {
            inner.look = None;
            return Unseen { steps: steps.saturating_mul(rounds.unwrap_or(1)), open: round.open };
        }
        inner.look = (self.interruptible || !inner.finite).then_some(between as u32);
        Unseen { steps: steps.saturating_mul(between), open: true }
    }

    fn rounds(&self, counter: &Counter) -> Option<u64> {
        let (from, to) = (self.constants.get(&counter.from)?, self.constants.get(&counter.to)?);
        u64::try_from((to - from).max(0)).ok().map(|distance| distance.div_ceil(u64::from(counter.step)))
    }
}
