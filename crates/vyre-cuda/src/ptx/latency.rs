//! Whether an invocation should have many registers rather than many neighbours.
//!
//! Left alone, the assembler keeps to 32 registers where it can, so that as many warps as possible hide how long each waits. In a loop
//! over workgroup memory there is little to wait for but instructions, and several rounds of it are written side by side; with few
//! registers the assembler puts them one behind the other again. There it is told that fewer warps are enough.

use vyre_foundation::kernel::{Block, Inst, Kernel, Memory, Op, Scalar, Value, each_use, end_values};

/// Of a multiprocessor.
const REGISTERS: u32 = 1 << 16;
/// What an invocation needs besides its values: addresses, and room to put steps in another order.
const BESIDES: u32 = 20;
/// With more words in use at once the assembler does not keep to 32 registers anyway.
const MOST_WORDS: u32 = 108;
/// Longer kernels are not looked at.
const MOST_STEPS: usize = 4096;

/// How many workgroups on a multiprocessor are enough, where fewer than possible are better. As many registers as the values need in
/// the order that they have are left to each invocation, so that none has to wait in memory.
pub(super) fn enough_workgroups(kernel: &Kernel) -> Option<u32> {
    if !loops_over_workgroup_memory(&kernel.body) {
        return None;
    }
    let words = most_words(kernel).filter(|words| *words <= MOST_WORDS)?;
    let [x, y, z] = kernel.workgroup_size;
    let invocations = x.saturating_mul(y).saturating_mul(z).max(1);
    Some((REGISTERS / (words + BESIDES) / invocations).max(1))
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
    let count = kernel.values.len();
    let mut lives = Lives { at: 0, from: vec![None; count], to: vec![0; count], loops: Vec::new() };
    lives.block(&kernel.body);
    if lives.at > MOST_STEPS {
        return None;
    }
    let mut changes = vec![0i64; lives.at + 2];
    for (info, (from, to)) in kernel.values.iter().zip(lives.from.iter().zip(&lives.to)) {
        let Some(from) = from else { continue };
        let words = match info.ty.scalar {
            Scalar::Bool => 0,
            scalar => i64::from(scalar.bits().div_ceil(32) * u32::from(info.ty.width)),
        };
        changes[*from] += words;
        changes[(*to).max(*from)] -= words;
    }
    let mut words = 0;
    let most = changes.into_iter().map(|change| {
        words += change;
        words
    });
    u32::try_from(most.max().unwrap_or(0)).ok()
}

/// From which step to which each value is needed.
struct Lives {
    at: usize,
    from: Vec<Option<usize>>,
    to: Vec<usize>,
    /// Where each open loop began, and the values from before it that it uses: they are needed to its end.
    loops: Vec<(usize, Vec<Value>)>,
}

impl Lives {
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
                    let (_, outer) = self.loops.pop().unwrap_or_default();
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
