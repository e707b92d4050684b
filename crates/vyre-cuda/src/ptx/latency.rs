//! Whether an invocation should have many registers rather than many neighbours.
//!
//! Left alone, the assembler keeps to 32 registers where it can, so that as many warps as possible hide how long each waits. In a loop
//! over workgroup memory there is little to wait for but instructions, and several rounds of it are written side by side; with few
//! registers the assembler puts them one behind the other again. There it is told that fewer warps are enough.
//!
//! The other way round, where a loop uses many words that none of its rounds changes, such as bytes that were taken out of a table before it, the
//! assembler keeps all of them in registers, up to so many that few warps are left. Told how many there should be, it makes some of them again.

use vyre_foundation::kernel::{Block, Inst, Kernel, Memory, Op, Scalar, Value, each_use, end_values};

/// Of a multiprocessor.
const REGISTERS: u32 = 1 << 16;
/// What an invocation needs besides its values: addresses, and room to put steps in another order.
const BESIDES: u32 = 20;
/// With more words in use at once the assembler does not keep to 32 registers anyway.
const MOST_WORDS: u32 = 108;
/// With more words than this that no round of a loop changes, the assembler is told how many warps there should be, unless so many words are in use
/// at once that too many would have to wait in memory.
const MOST_KEPT: u32 = 80;
/// Loops that carry more words than this are left to the assembler: those it cannot make again, and of the others it then stores some.
const MOST_CARRIED: u32 = 32;
const MOST_WORDS_HELD: u32 = 160;
/// Invocations of a multiprocessor that leave 128 registers to each.
const INVOCATIONS: u32 = 512;
/// Longer kernels are not looked at.
const MOST_STEPS: usize = 4096;

/// How many workgroups on a multiprocessor are enough, where fewer than possible are better. As many registers as the values need in
/// the order that they have are left to each invocation, so that none has to wait in memory.
pub(super) fn enough_workgroups(kernel: &Kernel) -> Option<u32> {
    let lives = Lives::of(kernel)?;
    let words = lives.most_words();
    let [x, y, z] = kernel.workgroup_size;
    let invocations = x.saturating_mul(y).saturating_mul(z).max(1);
    if loops_over_workgroup_memory(&kernel.body) && words <= MOST_WORDS {
        return Some((REGISTERS / (words + BESIDES) / invocations).max(1));
    }
    (lives.kept > MOST_KEPT && words <= MOST_WORDS_HELD).then_some((INVOCATIONS / invocations).max(1))
}

/// An innermost loop that reads workgroup memory and no other.
fn loops_over_workgroup_memory(block: &Block) -> bool {
    block.insts.iter().any(|inst| match inst {
        Inst::If { then, otherwise, .. } => loops_over_workgroup_memory(then) || loops_over_workgroup_memory(otherwise),
        Inst::Loop(inner) if inner.rare => false,
        Inst::Loop(inner) => {
            let (mut shared, mut other) = (0, 0);
            for inst in &inner.body.insts {
                match inst {
                    Inst::Let(_, Op::Load { address, .. }) if matches!(address.memory, Memory::Shared(_)) => {
                        shared += 1
                    }
                    Inst::Let(_, Op::Load { .. }) | Inst::Loop(_) | Inst::If { .. } | Inst::Barrier(_) => other += 1,
                    _ => {}
                }
            }
            (shared > 0 && other == 0) || loops_over_workgroup_memory(&inner.body)
        }
        _ => false,
    })
}

/// About how many words of 32 bits are in use at the same time, in the order that the kernel has; nothing for a long one.
pub(super) fn most_words(kernel: &Kernel) -> Option<u32> {
    Lives::of(kernel).map(|lives| lives.most_words())
}

/// The registers of a value.
fn words(kernel: &Kernel, value: Value) -> u32 {
    let ty = kernel.values[value.index()].ty;
    if ty.scalar == Scalar::Bool { 0 } else { ty.scalar.bits().div_ceil(32) * u32::from(ty.width) }
}

/// From which step to which each value is needed.
struct Lives<'k> {
    kernel: &'k Kernel,
    at: usize,
    from: Vec<Option<usize>>,
    to: Vec<usize>,
    /// Where each open loop began, and the values from before it that it uses: they are needed to its end.
    loops: Vec<(usize, Vec<Value>)>,
    /// The most words that a loop which carries few uses and did not make.
    kept: u32,
}

impl<'k> Lives<'k> {
    /// Nothing for a long kernel.
    fn of(kernel: &'k Kernel) -> Option<Lives<'k>> {
        let count = kernel.values.len();
        let (from, to) = (vec![None; count], vec![0; count]);
        let mut lives = Lives { kernel, at: 0, from, to, loops: Vec::new(), kept: 0 };
        lives.block(&kernel.body);
        Some(lives).filter(|lives| lives.at <= MOST_STEPS)
    }

    fn most_words(&self) -> u32 {
        let mut changes = vec![0i64; self.at + 2];
        for (index, (from, to)) in self.from.iter().zip(&self.to).enumerate() {
            let Some(from) = from else { continue };
            let words = i64::from(words(self.kernel, Value(index as u32)));
            changes[*from] += words;
            changes[(*to).max(*from)] -= words;
        }
        let mut words = 0;
        let most = changes.into_iter().map(|change| {
            words += change;
            words
        });
        u32::try_from(most.max().unwrap_or(0)).unwrap_or(0)
    }

    fn define(&mut self, value: Value) {
        self.from[value.index()] = Some(self.at);
        self.to[value.index()] = self.at;
    }

    fn used(&mut self, value: Value) {
        let Some(from) = self.from[value.index()] else { return };
        self.to[value.index()] = self.at;
        if let Some((_, outer)) = self.loops.iter_mut().find(|(began, _)| *began > from) {
            outer.push(value);
        }
    }

    fn block(&mut self, block: &Block) {
        for inst in &block.insts {
            self.at += 1;
            if self.at > MOST_STEPS {
                return;
            }
            each_use(inst, &mut |value| self.used(value));
            match inst {
                // An immediate operand.
                Inst::Let(_, Op::Const(_)) => {}
                Inst::Let(value, _) | Inst::Atomic { result: Some(value), .. } => self.define(*value),
                Inst::If { then, otherwise, results, .. } => {
                    self.block(then);
                    self.block(otherwise);
                    results.iter().for_each(|result| self.define(*result));
                }
                Inst::Loop(inner) => {
                    self.loops.push((self.at, Vec::new()));
                    self.at += 1;
                    inner
                        .params
                        .iter()
                        .chain(inner.counter.as_ref().map(|counter| &counter.value))
                        .for_each(|value| self.define(*value));
                    self.block(&inner.body);
                    self.at += 1;
                    let (_, mut outer) = self.loops.pop().unwrap_or_default();
                    outer.sort_unstable();
                    outer.dedup();
                    let sum = |values: &[Value]| values.iter().map(|value| words(self.kernel, *value)).sum::<u32>();
                    if sum(&inner.params) <= MOST_CARRIED {
                        self.kept = self.kept.max(sum(&outer));
                    }
                    let carried = inner.params.iter().chain(inner.counter.as_ref().map(|counter| &counter.value));
                    carried.chain(&outer).for_each(|value| self.to[value.index()] = self.at);
                    // The registers of what is carried are those of the results.
                    inner.results.iter().for_each(|result| self.define(*result));
                }
                _ => {}
            }
        }
        self.at += 1;
        end_values(&block.end).iter().for_each(|value| self.used(*value));
    }
}

#[cfg(test)]
mod tests {
    use vyre_foundation::ir::{BufferDecl, DataType, Expr, MathOp, Node, Program};
    use vyre_foundation::kernel::{Options, lower};

    use crate::ptx::{Target, emit, lowering};

    /// Sums over a tile, whose elements are taken from `from` for each round; as many sums as are asked for.
    fn text(from: &str, sums: u32) -> String {
        let l = || Expr::local_id(0);
        let name = |sum: u32| format!("sum{sum}");
        let element = Expr::load(from, Expr::var("i"));
        let step = |sum: u32| {
            let root = Expr::math(MathOp::InverseSqrt, vec![element.clone() + Expr::f32(sum as f32)]);
            Node::assign(name(sum), Expr::var(name(sum)) + root)
        };
        let mut body = vec![Node::store("tile", l(), Expr::load("data", Expr::global_id(0))), Node::barrier()];
        body.extend((0..sums).map(|sum| Node::var(name(sum), DataType::F32, Expr::f32(0.0))));
        body.push(Node::for_range("i", Expr::u32(0), Expr::u32(256), (0..sums).map(step).collect()));
        let total = (1..sums).fold(Expr::var(name(0)), |total, sum| total * Expr::var(name(sum)));
        body.push(Node::store("out", Expr::global_id(0), total + Expr::load("tile", l() ^ Expr::u32(1))));
        let program = Program::wrapped(
            vec![
                BufferDecl::read("data", 0, DataType::F32),
                BufferDecl::output("out", 1, DataType::F32),
                BufferDecl::workgroup("tile", 0, DataType::F32).with_count(256),
            ],
            [256, 1, 1],
            body,
        );
        let kernel = lower(&program.validate().expect("valid"), &lowering(Options::default())).expect("lowers");
        emit(&kernel, Target { sm: 90, interruptible: false }).expect("text").text
    }

    /// Adds to each number of a row, times each of some that the loop does not change, and carries sums.
    fn with_kept(words: u32, sums: u32) -> String {
        let name = |word: u32| format!("kept{word}");
        let mut body: Vec<Node> =
            (0..words).map(|word| Node::let_bind(name(word), Expr::load("data", Expr::u32(word)))).collect();
        let at = || Expr::global_id(0) + Expr::var("i") * Expr::u32(1 << 16);
        let x = || Expr::var("x");
        let sum = (0..words).fold(x(), |sum, word| sum + x() * Expr::var(name(word)));
        let mut round = vec![Node::let_bind("x", Expr::load("out", at())), Node::store("out", at(), sum)];
        let carried = |sum: u32| format!("sum{sum}");
        let var = |sum: u32| Expr::var(carried(sum));
        round.extend((0..sums).map(|sum| Node::assign(carried(sum), var(sum) * x() + Expr::f32(sum as f32))));
        body.extend((0..sums).map(|sum| Node::var(carried(sum), DataType::F32, Expr::f32(0.0))));
        body.push(Node::for_range("i", Expr::u32(0), Expr::load("data", Expr::u32(0)).cast(DataType::U32), round));
        body.extend((0..sums).map(|sum| Node::store("out", Expr::global_id(0) + Expr::u32(sum), var(sum))));
        let program = Program::wrapped(
            vec![
                BufferDecl::read("data", 0, DataType::F32).with_count(256),
                BufferDecl::read_write("out", 1, DataType::F32),
            ],
            [256, 1, 1],
            body,
        );
        let kernel = lower(&program.validate().expect("valid"), &lowering(Options::default())).expect("lowers");
        emit(&kernel, Target { sm: 90, interruptible: false }).expect("text").text
    }

    #[test]
    fn words_that_no_round_changes_leave_room_for_a_second_workgroup() {
        assert!(with_kept(100, 1).contains(".minnctapersm 2\n"));
        assert!(!with_kept(40, 1).contains(".minnctapersm"));
        // Most of these would wait in memory.
        assert!(!with_kept(200, 1).contains(".minnctapersm"));
        // And of these some.
        assert!(!with_kept(100, 40).contains(".minnctapersm"));
    }

    #[test]
    fn loops_over_workgroup_memory_are_left_more_registers() {
        let few = text("tile", 1);
        assert!(few.contains(".minnctapersm"), "{few}");
        // What waits for memory wants many warps.
        assert!(!text("data", 1).contains(".minnctapersm"));
        // So many values have their registers anyway.
        assert!(!text("tile", 120).contains(".minnctapersm"));
    }
}
