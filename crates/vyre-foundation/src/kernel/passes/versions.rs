//! One test before a loop instead of one for each access in it.
//!
//! Where the index of an access grows evenly with a loop's counter, its first value and its last say whether all of them are inside.
//! They are tested once; the loop is then there twice: without these guards, and as it was for when the test fails, which is seldom.
//! Without guards an index can't wrap, so what it grows by becomes part of the address, and of an offset when the loop is unrolled.

use hashbrown::{HashMap, HashSet};

use super::{definitions, ranges};
use crate::kernel::walk::{Effect, access, each_inst, each_use_mut, end_values_mut};
use crate::kernel::{
    Address, Binary, Block, Counter, End, Inst, Kernel, Loop, Memory, Op, Scalar, Value, ValueInfo, fold,
};

/// Steps that a loop may have, as it is there twice.
const MOST_STEPS: usize = 128;
/// Different guards that a loop is tested for.
const MOST_GUARDS: usize = 8;

pub(super) fn run(kernel: &mut Kernel) {
    let mut guarded = false;
    each_inst(&kernel.body, &mut |inst| {
        if let Inst::Loop(inner) = inst
            && inner.counter.is_some()
        {
            each_inst(&inner.body, &mut |inst| guarded |= guard_of(inst).is_some());
        }
    });
    if !guarded {
        return;
    }
    // What will be proven without a test.
    let mut proven = kernel.clone();
    ranges::run(&mut proven);
    let mut open = HashSet::new();
    each_inst(&proven.body, &mut |inst| open.extend(guard_of(inst)));
    let mut versions = Versions { open, defs: definitions(kernel), values: std::mem::take(&mut kernel.values) };
    versions.block(&mut kernel.body);
    kernel.values = versions.values;
}

fn guard_of(inst: &Inst) -> Option<Value> {
    match inst {
        Inst::Let(_, Op::Load { guard, .. }) | Inst::Store { guard, .. } | Inst::Atomic { guard, .. } => *guard,
        _ => None,
    }
}

/// How much an index grows when the counter grows by one, modulo 2³².
#[derive(Clone, Copy, PartialEq, Eq)]
enum Growth {
    By(u32),
    ByValue(Value),
}

/// A guard `index < length` that one test can settle.
struct Even {
    guard: Value,
    index: Value,
    length: Value,
    growth: Growth,
}

struct Versions {
    /// Guards that are not proven.
    open: HashSet<Value>,
    defs: Vec<Option<Op>>,
    values: Vec<ValueInfo>,
}

impl Versions {
    fn block(&mut self, block: &mut Block) {
        let mut insts = Vec::with_capacity(block.insts.len());
        for mut inst in std::mem::take(&mut block.insts) {
            match &mut inst {
                Inst::If { then, otherwise, .. } => {
                    self.block(then);
                    self.block(otherwise);
                }
                Inst::Loop(inner) => {
                    self.block(&mut inner.body);
                    if let Some(both) = self.versions(inner, &mut insts) {
                        inst = both;
                    }
                }
                _ => {}
            }
            insts.push(inst);
        }
        block.insts = insts;
    }

    fn define(&mut self, ty: Scalar, op: Op, insts: &mut Vec<Inst>) -> Value {
        let value = Value(self.values.len() as u32);
        self.values.push(ValueInfo { ty: ty.into(), uniform: false });
        self.defs.push(Some(op.clone()));
        insts.push(Inst::Let(value, op));
        value
    }

    fn renamed(&mut self, old: Value) -> Value {
        let value = Value(self.values.len() as u32);
        self.values.push(self.values[old.index()]);
        self.defs.push(self.defs[old.index()].clone());
        value
    }

    fn number(&self, value: Value) -> Option<i128> {
        match &self.defs[value.index()] {
            Some(Op::Const(literal)) => fold::integer(literal),
            _ => None,
        }
    }

    /// A short innermost loop that other invocations and private arrays have no part in: an array would not become values in the
    /// version that is left as it is, and of workgroup memory that is written in a branch nobody knows that all of it is.
    fn is_simple(inner: &Loop) -> bool {
        let (mut simple, mut steps) = (true, 0);
        each_inst(&inner.body, &mut |inst| {
            steps += 1;
            simple &= match inst {
                Inst::Barrier(_) | Inst::Loop(_) => false,
                Inst::Let(_, op) if op.is_across_subgroup() => false,
                inst => match access(inst) {
                    Some((address, Effect::Read)) => !matches!(address.memory, Memory::Local(_)),
                    Some((address, _)) => matches!(address.memory, Memory::Buffer(_)),
                    None => true,
                },
            };
        });
        simple && steps <= MOST_STEPS
    }

    fn versions(&mut self, inner: &mut Loop, insts: &mut Vec<Inst>) -> Option<Inst> {
        let counter = inner.counter?;
        if !Self::is_simple(inner) {
            return None;
        }
        let inside = defined_in(inner);
        let mut evens: Vec<Even> = Vec::new();
        let mut guards = Vec::new();
        each_inst(&inner.body, &mut |inst| guards.extend(guard_of(inst)));
        for guard in guards {
            if self.open.contains(&guard) && !evens.iter().any(|even| even.guard == guard) {
                evens.extend(self.even(guard, &counter, &inside));
            }
        }
        if evens.is_empty() || evens.len() > MOST_GUARDS {
            return None;
        }
        let span = self.span(&counter, insts);
        let mut all = None;
        let mut firsts = HashMap::new();
        for even in &evens {
            let first = self.at_start(even.index, &counter, &inside, insts);
            firsts.insert(even.guard, first);
            let holds = self.test(even, first, span, insts);
            all = Some(match all {
                Some(all) => self.define(Scalar::Bool, Op::Binary(Binary::And, all, holds), insts),
                None => holds,
            });
        }
        let free = self.without(inner, &counter, &evens, &firsts);
        let mut kept = inner.clone();
        kept.rare = true;
        kept.results = inner.results.iter().map(|result| self.renamed(*result)).collect();
        let way = |version: Loop| {
            let end = End::Yield(version.results.clone());
            Box::new(Block { insts: vec![Inst::Loop(Box::new(version))], end })
        };
        let results = std::mem::take(&mut inner.results);
        Some(Inst::If { cond: all?, then: way(free), otherwise: way(kept), results })
    }

    /// The guard as a comparison of an index that grows evenly with something fixed.
    fn even(&self, guard: Value, counter: &Counter, inside: &HashSet<Value>) -> Option<Even> {
        let Some(Op::Binary(Binary::Lt, index, length)) = self.defs[guard.index()] else { return None };
        if self.values[index.index()].ty.scalar != Scalar::U32 || inside.contains(&length) {
            return None;
        }
        let growth = self.growth(index, counter, inside, 8)?;
        // What shrinks seems to grow by more than half of all numbers.
        if let Growth::By(by) = growth
            && by > i32::MAX as u32
        {
            return None;
        }
        Some(Even { guard, index, length, growth })
    }

    fn growth(&self, value: Value, counter: &Counter, inside: &HashSet<Value>, depth: u32) -> Option<Growth> {
        if value == counter.value {
            return Some(Growth::By(1));
        }
        if !inside.contains(&value) {
            return Some(Growth::By(0));
        }
        let ty = self.values[value.index()].ty;
        if depth == 0 || ty.width != 1 || !matches!(ty.scalar, Scalar::U32 | Scalar::I32) {
            return None;
        }
        let of = |value: Value| self.growth(value, counter, inside, depth - 1);
        match self.defs[value.index()].as_ref()? {
            Op::Binary(Binary::Add, a, b) => match (of(*a)?, of(*b)?) {
                (Growth::By(a), Growth::By(b)) => Some(Growth::By(a.wrapping_add(b))),
                (Growth::By(0), grows) | (grows, Growth::By(0)) => Some(grows),
                _ => None,
            },
            Op::Binary(Binary::Sub, a, b) => match (of(*a)?, of(*b)?) {
                (Growth::By(a), Growth::By(b)) => Some(Growth::By(a.wrapping_sub(b))),
                (grows, Growth::By(0)) => Some(grows),
                _ => None,
            },
            Op::Binary(Binary::Mul, a, b) => {
                let (grows, fixed) = if inside.contains(b) { (b, a) } else { (a, b) };
                if inside.contains(fixed) {
                    return None;
                }
                match (of(*grows)?, self.number(*fixed)) {
                    (Growth::By(by), Some(number)) => Some(Growth::By(by.wrapping_mul(number as u32))),
                    (Growth::By(1), None) if self.values[fixed.index()].ty.scalar == Scalar::U32 => {
                        Some(Growth::ByValue(*fixed))
                    }
                    _ => None,
                }
            }
            Op::Binary(Binary::Shl, a, by) => match (of(*a)?, self.number(*by)?) {
                (Growth::By(grows), by @ 0..=31) => Some(Growth::By(grows << by)),
                _ => None,
            },
            Op::BitCast(a) => of(*a),
            _ => None,
        }
    }

    /// What an index is in the first round.
    fn at_start(&mut self, value: Value, counter: &Counter, inside: &HashSet<Value>, insts: &mut Vec<Inst>) -> Value {
        if value == counter.value {
            return counter.from;
        }
        if !inside.contains(&value) {
            return value;
        }
        let Some(mut op) = self.defs[value.index()].clone() else { return value };
        crate::kernel::walk::each_operand_mut(&mut op, &mut |operand| {
            *operand = self.at_start(*operand, counter, inside, insts);
        });
        self.define(self.values[value.index()].ty.scalar, op, insts)
    }

    /// How far the counter goes at most, as a u64; far too far where the loop has no rounds.
    fn span(&mut self, counter: &Counter, insts: &mut Vec<Inst>) -> Value {
        let ty = self.values[counter.value.index()].ty.scalar;
        let between = self.define(ty, Op::Binary(Binary::Sub, counter.to, counter.from), insts);
        let one = self.define(ty, Op::Const(fold::of_integer(ty, 1)), insts);
        let mut span = self.define(ty, Op::Binary(Binary::Sub, between, one), insts);
        if ty != Scalar::U32 {
            span = self.define(Scalar::U32, Op::BitCast(span), insts);
        }
        self.define(Scalar::U64, Op::Cast(span), insts)
    }

    /// `first + growth · span < length`, without wrapping.
    fn test(&mut self, even: &Even, first: Value, span: Value, insts: &mut Vec<Inst>) -> Value {
        let growth = match even.growth {
            Growth::By(by) => self.define(Scalar::U64, Op::Const(fold::of_integer(Scalar::U64, by.into())), insts),
            Growth::ByValue(value) => self.define(Scalar::U64, Op::Cast(value), insts),
        };
        let grown = self.define(Scalar::U64, Op::Binary(Binary::Mul, span, growth), insts);
        let first = self.define(Scalar::U64, Op::Cast(first), insts);
        let last = self.define(Scalar::U64, Op::Binary(Binary::Add, first, grown), insts);
        let length = self.define(Scalar::U64, Op::Cast(even.length), insts);
        self.define(Scalar::Bool, Op::Binary(Binary::Lt, last, length), insts)
    }

    /// The loop without the guards that were tested, with names of its own.
    fn without(&mut self, inner: &Loop, counter: &Counter, evens: &[Even], firsts: &HashMap<Value, Value>) -> Loop {
        let mut names = HashMap::new();
        let value = self.renamed(counter.value);
        names.insert(counter.value, value);
        let params: Vec<Value> = inner.params.iter().map(|param| self.renamed(*param)).collect();
        names.extend(inner.params.iter().copied().zip(params.iter().copied()));
        let mut body = self.copy(&inner.body, &mut names);
        let mut head = Vec::new();
        let ty = self.values[value.index()].ty.scalar;
        let mut place = self.define(ty, Op::Binary(Binary::Sub, value, counter.from), &mut head);
        if ty != Scalar::U32 {
            place = self.define(Scalar::U32, Op::BitCast(place), &mut head);
        }
        let named: HashMap<Value, (&Even, Value)> = evens
            .iter()
            .map(|even| (names.get(&even.guard).copied().unwrap_or(even.guard), (even, firsts[&even.guard])))
            .collect();
        let indices: HashMap<Value, Value> =
            evens.iter().map(|even| (even.guard, names.get(&even.index).copied().unwrap_or(even.index))).collect();
        let free = &mut |address: &mut Address, guard: &mut Option<Value>| {
            let Some((even, first)) = guard.and_then(|guard| named.get(&guard).copied()) else { return };
            *guard = None;
            let index = indices[&even.guard];
            let Some(term) = address.terms.iter().position(|(value, _)| *value == index) else { return };
            let stride = address.terms[term].1;
            // What grows by a value is one product and sum already.
            let Growth::By(by) = even.growth else { return };
            let Some(grows) = stride.checked_mul(by) else { return };
            address.terms[term].0 = first;
            if by != 0 {
                address.terms.push((place, grows));
            }
        };
        each_access_mut(&mut body, free);
        body.insts.splice(0..0, head);
        Loop {
            counter: Some(Counter { value, ..*counter }),
            params,
            init: inner.init.clone(),
            body,
            results: inner.results.iter().map(|result| self.renamed(*result)).collect(),
            ..*inner
        }
    }

    fn copy(&mut self, block: &Block, names: &mut HashMap<Value, Value>) -> Block {
        let mut insts = Vec::with_capacity(block.insts.len());
        for inst in &block.insts {
            let mut inst = inst.clone();
            each_use_mut(&mut inst, &mut |value| *value = names.get(value).copied().unwrap_or(*value));
            match &mut inst {
                Inst::Let(value, op) => {
                    let new = self.renamed(*value);
                    self.defs[new.index()] = Some(op.clone());
                    names.insert(*value, new);
                    *value = new;
                }
                Inst::Atomic { result: Some(result), .. } => {
                    let new = self.renamed(*result);
                    names.insert(*result, new);
                    *result = new;
                }
                Inst::If { then, otherwise, results, .. } => {
                    **then = self.copy(then, names);
                    **otherwise = self.copy(otherwise, names);
                    for result in results {
                        let new = self.renamed(*result);
                        names.insert(*result, new);
                        *result = new;
                    }
                }
                _ => {}
            }
            insts.push(inst);
        }
        let mut end = block.end.clone();
        end_values_mut(&mut end).iter_mut().for_each(|value| *value = names.get(value).copied().unwrap_or(*value));
        Block { insts, end }
    }
}

fn defined_in(inner: &Loop) -> HashSet<Value> {
    let mut inside: HashSet<Value> = inner.params.iter().copied().collect();
    inside.extend(inner.counter.map(|counter| counter.value));
    each_inst(&inner.body, &mut |inst| match inst {
        Inst::Let(value, _) => _ = inside.insert(*value),
        Inst::Atomic { result, .. } => inside.extend(result),
        Inst::If { results, .. } => inside.extend(results),
        _ => {}
    });
    inside
}

fn each_access_mut(block: &mut Block, visit: &mut impl FnMut(&mut Address, &mut Option<Value>)) {
    for inst in &mut block.insts {
        match inst {
            Inst::Let(_, Op::Load { address, guard, .. })
            | Inst::Store { address, guard, .. }
            | Inst::Atomic { address, guard, .. } => visit(address, guard),
            Inst::If { then, otherwise, .. } => {
                each_access_mut(then, visit);
                each_access_mut(otherwise, visit);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ir::{BufferDecl, DataType, Expr, Node, Program};
    use crate::kernel::{Interpret, Kernel, Options, Unrolling, interpret, lower, verify};

    /// Sums what is at `index` of the counter `k` and of the first word, `x`.
    fn summing(from: Expr, to: Expr, step: u32, index: Expr) -> Program {
        let sum = Expr::var("sum") * Expr::u32(3) + Expr::load("data", index);
        Program::wrapped(
            vec![
                BufferDecl::read("given", 0, DataType::U32).with_count(2),
                BufferDecl::read("data", 1, DataType::U32),
                BufferDecl::output("out", 2, DataType::U32).with_count(1),
            ],
            [1, 1, 1],
            vec![
                Node::let_bind("x", Expr::load("given", Expr::u32(0))),
                Node::let_bind("y", Expr::load("given", Expr::u32(1))),
                Node::var("sum", DataType::U32, Expr::u32(1)),
                Node::For { var: "k".into(), from, to, step, body: vec![Node::assign("sum", sum)] },
                Node::store("out", Expr::u32(0), Expr::var("sum")),
            ],
        )
    }

    fn kernel(program: &Program, one_test: bool, unrolling: Unrolling) -> Kernel {
        let options = Options { one_test, unrolling, rounds_together: 4, ..Options::default() };
        let kernel = lower(&program.validate().expect("valid"), &options).expect("lowers");
        verify(&kernel).expect("well made");
        kernel
    }

    fn run(kernel: &Kernel, given: [u32; 2], length: u32) -> Vec<u8> {
        let words = |words: &mut dyn Iterator<Item = u32>| words.flat_map(u32::to_le_bytes).collect::<Vec<u8>>();
        let mut buffers = [words(&mut given.into_iter()), words(&mut (0..length).map(|i| i * i + 7)), vec![0; 4]];
        let how = Interpret { grid: [1, 1, 1], subgroup_size: 32, budget: 1 << 20, noise: None };
        interpret(kernel, &mut buffers, &how).expect("runs");
        buffers[2].clone()
    }

    fn check(program: &Program) {
        let plain = kernel(program, false, Unrolling::default());
        for unrolling in [Unrolling::default(), Unrolling::FAR] {
            let versions = kernel(program, true, unrolling);
            let text = versions.to_string();
            let free = text.lines().filter(|line| line.contains("load u32 data") && !line.contains(" if %")).count();
            assert!(free > 0, "{text}");
            for x in [0, 1, 2, 3, 20, 60, 63, 64, 90, u32::MAX, u32::MAX - 1, u32::MAX - 30, 1 << 31] {
                for y in [0, 1, 5, 7, 31, 33, 1 << 16, 1 << 31, u32::MAX] {
                    for length in [1, 5, 64, 100] {
                        let (expected, found) = (run(&plain, [x, y], length), run(&versions, [x, y], length));
                        assert_eq!(expected, found, "x {x} y {y} length {length}\n{text}");
                    }
                }
            }
        }
    }

    fn var(name: &str) -> Expr {
        Expr::var(name)
    }

    #[test]
    fn indices_that_grow_by_a_constant() {
        check(&summing(Expr::u32(0), Expr::u32(31), 1, var("x") + var("k")));
        check(&summing(Expr::u32(3), Expr::u32(40), 7, var("k") * Expr::u32(3) + var("x")));
    }

    #[test]
    fn indices_that_begin_below_zero() {
        let around = (var("x").cast(DataType::I32) + var("k")).cast(DataType::U32);
        check(&summing(Expr::i32(-2), Expr::i32(3), 1, around));
    }

    #[test]
    fn indices_that_grow_by_what_is_given() {
        check(&summing(Expr::u32(0), Expr::u32(8), 1, var("k") * var("y") + var("x")));
    }

    #[test]
    fn loops_of_any_length() {
        let to = (var("y") & Expr::u32(63)) + Expr::u32(1);
        check(&summing(Expr::u32(2), to, 1, var("x") + var("k")));
    }
}
