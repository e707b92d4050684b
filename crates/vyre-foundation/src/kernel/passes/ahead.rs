//! Loops over tiles: what the next round loads is under way while this round computes.
//!
//! A round of such a loop loads from buffers that nobody writes, puts that into workgroup memory, waits at a barrier for the others to do
//! the same, and computes. Behind the barrier the loads of the next round are put, whose results are carried to it; the first round's
//! come before the loop. Loads that there is no round for are guarded.

use hashbrown::{HashMap, HashSet};
use smallvec::SmallVec;

use super::straight;
use super::values::Values;
use crate::ir::BufferKind;
use crate::kernel::walk::{blocks, each_loop_mut, each_use, each_value};
use crate::kernel::{Binary, Block, Counter, End, Inst, Kernel, Loop, Memory, Op, Scalar, Type, Value, end_values};

/// Words of 32 bits that are carried: each needs a register all along.
const MOST_WORDS: u32 = 16;
/// Steps that say where a round's loads are.
const MOST_STEPS: usize = 96;

/// Puts loads of loops over tiles a round ahead.
pub(super) fn run(kernel: &mut Kernel) {
    let constant = kernel.buffers.iter().map(|buffer| {
        matches!(buffer.kind, BufferKind::Read | BufferKind::Uniform) && !buffer.written && !buffer.atomic
    });
    let mut ahead = Ahead { constant: constant.collect(), values: Values::with_definitions(kernel) };
    each_loop_mut(&mut kernel.body, &mut |inner, before| ahead.change(inner, before));
    ahead.values.give_back(kernel);
}

struct Ahead {
    /// Buffers that nobody changes while the kernel runs.
    constant: Vec<bool>,
    values: Values,
}

/// What goes ahead: positions in the body.
struct Plan {
    loads: Vec<usize>,
    /// The loads, and what says where they are.
    steps: Vec<usize>,
    /// The barrier behind which nobody needs what this round loaded.
    barrier: usize,
}

impl Ahead {
    fn change(&mut self, inner: &mut Loop, before: &mut Vec<Inst>) {
        if let Some(counter) = inner.counter
            && let Some(plan) = self.plan(inner)
        {
            self.apply(inner, counter, &plan, before);
        }
    }

    fn plan(&self, inner: &Loop) -> Option<Plan> {
        let insts = &inner.body.insts;
        if inner.rare || !straight(&inner.body) || !insts.iter().any(|inst| matches!(inst, Inst::Barrier(_))) {
            return None;
        }
        // Behind a branch there may be fewer guards, because of what the branch tested.
        let plain =
            insts.iter().position(|inst| matches!(inst, Inst::If { .. } | Inst::Loop(_))).unwrap_or(insts.len());
        // What is known before the round begins, and where it is defined.
        let mut known: HashMap<Value, usize> = HashMap::new();
        let mut unknown: HashSet<Value> = inner.params.iter().copied().collect();
        let mut loads = Vec::new();
        for (i, inst) in insts[..plain].iter().enumerate() {
            let mut free = true;
            each_use(inst, &mut |value| free &= !unknown.contains(&value));
            match inst {
                Inst::Let(value, Op::Load { address, .. }) => {
                    unknown.insert(*value);
                    let constant = matches!(address.memory, Memory::Buffer(index) if self.constant[index as usize]);
                    if free && constant {
                        loads.push(i);
                    }
                }
                Inst::Let(value, op) if free && !op.is_across_subgroup() => _ = known.insert(*value, i),
                Inst::Let(value, _) | Inst::Atomic { result: Some(value), .. } => _ = unknown.insert(*value),
                _ => {}
            }
        }
        self.chosen(&inner.body, &known, loads)
    }

    /// Of the loads that could go ahead, those whose results are needed up to a barrier only.
    fn chosen(&self, body: &Block, known: &HashMap<Value, usize>, mut loads: Vec<usize>) -> Option<Plan> {
        let loaded = |i: usize| match &body.insts[i] {
            Inst::Let(value, _) => Some(*value),
            _ => None,
        };
        let mut last: HashMap<Value, usize> = loads.iter().filter_map(|i| Some((loaded(*i)?, *i))).collect();
        for (i, inst) in body.insts.iter().enumerate() {
            uses(inst, &mut |value| {
                last.entry(value).and_modify(|last| *last = i);
            });
        }
        end_values(&body.end).iter().for_each(|value| _ = last.remove(value));
        let barrier_after = |at: usize| {
            let barrier = body.insts[at..].iter().position(|inst| matches!(inst, Inst::Barrier(_)));
            barrier.map(|barrier| at + barrier)
        };
        let needed_to = |i: &usize| loaded(*i).and_then(|value| last.get(&value)).and_then(|last| barrier_after(*last));
        loads.retain(|i| needed_to(i).is_some());
        let barrier = loads.iter().filter_map(needed_to).max()?;
        let words = |value: Value| {
            let ty = self.values.ty(value);
            ty.scalar.bits().div_ceil(32) * u32::from(ty.width)
        };
        if loads.iter().filter_map(|i| loaded(*i)).map(words).sum::<u32>() > MOST_WORDS {
            return None;
        }
        let mut steps: Vec<usize> = loads.clone();
        let mut at = 0;
        while at < steps.len() {
            each_use(&body.insts[steps[at]], &mut |value| {
                if let Some(place) = known.get(&value)
                    && !steps.contains(place)
                {
                    steps.push(*place);
                }
            });
            at += 1;
            if steps.len() > MOST_STEPS {
                return None;
            }
        }
        steps.sort_unstable();
        Some(Plan { loads, steps, barrier })
    }

    fn apply(&mut self, inner: &mut Loop, counter: Counter, plan: &Plan, before: &mut Vec<Inst>) {
        let End::Continue(_) = &inner.body.end else { return };
        let ty = self.values.scalar(counter.value);
        let begins = match (self.values.number(counter.from), self.values.number(counter.to)) {
            (Some(from), Some(to)) if from < to => None,
            _ => Some(self.values.binary(Binary::Lt, counter.from, counter.to, before)),
        };
        let first = self.round(inner, plan, counter, counter.from, begins, before);
        let mut ahead = Vec::new();
        let step = self.values.constant(ty, counter.step, &mut ahead);
        let next = self.values.binary(Binary::Add, counter.value, step, &mut ahead);
        // The counter is less than the limit, so that the distance is a positive number of 32 bits without a sign.
        let left = self.values.binary(Binary::Sub, counter.to, counter.value, &mut ahead);
        let left = match ty {
            Scalar::U32 => left,
            _ => self.values.define(Scalar::U32, Op::BitCast(left), &mut ahead),
        };
        let step = self.values.constant(Scalar::U32, counter.step, &mut ahead);
        let goes_on = self.values.binary(Binary::Lt, step, left, &mut ahead);
        let carried = self.round(inner, plan, counter, next, Some(goes_on), &mut ahead);
        inner.init.extend(first);
        let End::Continue(ends) = &mut inner.body.end else { return };
        ends.extend(carried);
        let body = std::mem::take(&mut inner.body.insts);
        for (i, inst) in body.into_iter().enumerate() {
            match inst {
                // What was loaded is what the round before carries here.
                Inst::Let(value, _) if plan.loads.contains(&i) => match self.values.ty(value) {
                    Type { width: 1, .. } => {
                        inner.params.push(value);
                        inner.results.push(self.values.like(value));
                    }
                    Type { scalar, width } => {
                        let parts: SmallVec<[Value; 4]> = (0..width).map(|_| self.values.fresh(scalar)).collect();
                        inner.params.extend(parts.iter().copied());
                        inner.results.extend((0..width).map(|_| self.values.fresh(scalar)));
                        inner.body.insts.push(Inst::Let(value, Op::Construct(parts)));
                    }
                },
                inst => inner.body.insts.push(inst),
            }
            if i == plan.barrier {
                inner.body.insts.append(&mut ahead);
            }
        }
    }

    /// The loads of the round with this count, where a condition holds.
    fn round(
        &mut self,
        inner: &Loop,
        plan: &Plan,
        counter: Counter,
        count: Value,
        holds: Option<Value>,
        insts: &mut Vec<Inst>,
    ) -> Vec<Value> {
        let mut names: HashMap<Value, Value> = HashMap::from([(counter.value, count)]);
        let mut results = Vec::with_capacity(plan.loads.len());
        for i in &plan.steps {
            let mut copy = self.values.copy_inst(&inner.body.insts[*i], &mut names);
            let Inst::Let(new, op) = &mut copy else { continue };
            let new = *new;
            if let Op::Load { guard, .. } = op
                && let Some(holds) = holds
            {
                *guard = match *guard {
                    Some(guard) => Some(self.values.binary(Binary::And, holds, guard, insts)),
                    None => Some(holds),
                };
            }
            insts.push(copy);
            if plan.loads.contains(i) {
                match self.values.ty(new) {
                    Type { width: 1, .. } => results.push(new),
                    Type { scalar, width } => {
                        let part = |lane: u8| self.values.define(scalar, Op::Extract(new, lane), insts);
                        results.extend((0..width).map(part));
                    }
                }
            }
        }
        results
    }
}

/// Every value that a step and the steps inside it use.
fn uses(inst: &Inst, visit: &mut impl FnMut(Value)) {
    each_use(inst, visit);
    blocks(inst).for_each(|block| each_value(block, visit));
}

#[cfg(test)]
mod tests {
    use crate::ir::{BufferDecl, DataType, Expr, Node, Program};
    use crate::kernel::{Interpret, Kernel, Options, Passes, interpret, lower, verify};

    const LANES: u32 = 4;

    /// Tiles of what `data` holds, each summed up by every invocation so that the order shows.
    fn tiles(ty: &DataType, step: u32, in_loop: Vec<Node>) -> Program {
        let bound = |at: u32| Expr::load("bounds", Expr::u32(at)).cast(ty.clone());
        let (l, sum) = (|| Expr::local_id(0), || Expr::var("sum"));
        let place = (Expr::var("k").cast(DataType::U32) * Expr::u32(LANES) + l()) & Expr::u32(63);
        let add = Node::assign("sum", sum() * Expr::u32(3) + Expr::load("tile", Expr::var("j")));
        let mut body = in_loop;
        body.extend([
            Node::store("tile", l(), Expr::load("data", place.clone()) + Expr::load("data", place ^ Expr::u32(32))),
            Node::barrier(),
            Node::for_range("j", Expr::u32(0), Expr::u32(LANES), vec![add]),
            Node::barrier(),
        ]);
        Program::wrapped(
            vec![
                BufferDecl::read("bounds", 0, DataType::U32),
                BufferDecl::read("data", 1, DataType::U32),
                BufferDecl::output("out", 2, DataType::U32).with_count(LANES),
                BufferDecl::workgroup("tile", 0, DataType::U32).with_count(LANES),
            ],
            [LANES, 1, 1],
            vec![
                Node::var("sum", DataType::U32, Expr::u32(1)),
                Node::For { var: "k".into(), from: bound(0), to: bound(1), step, body },
                Node::store("out", l(), sum()),
            ],
        )
    }

    fn kernel(program: &Program, round_ahead: bool) -> Kernel {
        let options = Options { passes: Passes::all(), round_ahead, ..Options::default() };
        let kernel = lower(&program.validate().expect("valid"), &options).expect("lowers");
        verify(&kernel).expect("well made");
        kernel
    }

    fn run(kernel: &Kernel, bounds: [u32; 2]) -> Vec<u8> {
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        // Less than every place that is looked at: what is out of bounds reads zero.
        let data: Vec<u32> = (0..61).map(|i| i * i * 31 + 5).collect();
        let mut buffers = [words(&bounds), words(&data), vec![0; 4 * LANES as usize]];
        let how = Interpret { grid: [1, 1, 1], subgroup_size: 32, budget: 1 << 20, noise: None };
        interpret(kernel, &mut buffers, &how).expect("runs");
        buffers[2].clone()
    }

    fn loads(kernel: &Kernel) -> usize {
        kernel.to_string().matches("= load u32 data").count()
    }

    #[test]
    fn the_next_rounds_tile_is_loaded_while_this_one_is_used() {
        for ty in [DataType::U32, DataType::I32] {
            for step in [1, 2, 7] {
                let program = tiles(&ty, step, Vec::new());
                let (plain, ahead) = (kernel(&program, false), kernel(&program, true));
                assert_eq!((loads(&plain), loads(&ahead)), (2, 4), "{ahead}");
                let end = if ty == DataType::U32 { u32::MAX } else { i32::MAX as u32 };
                let start = if ty == DataType::U32 { 0 } else { i32::MIN as u32 };
                for span in [0, 1, 2, 3, 13, 14, 15] {
                    for bounds in
                        [[0, span], [5, 5 + span], [start, start.wrapping_add(span)], [end - span, end], [9, 2]]
                    {
                        assert_eq!(run(&plain, bounds), run(&ahead, bounds), "{ty} {bounds:?} by {step}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_may_end_the_invocation_first_stays_first() {
        let leaves = Node::if_then(Expr::var("k").gt(Expr::u32(40)), vec![Node::Return(None)]);
        let program = tiles(&DataType::U32, 1, vec![leaves]);
        let (plain, ahead) = (kernel(&program, false), kernel(&program, true));
        assert_eq!(loads(&plain), loads(&ahead), "{ahead}");
    }
}
