//! Several neighbouring invocations in one, so that they share what they have in common.
//!
//! Every step that differs between the neighbours is there once for each of them, one copy beside the other; what is the same for all
//! is there once. A loop that all of them go through alike stays one loop: a product of matrices whose invocations take four rows each
//! loads a column once for all four. Where neighbours go different ways, each way is taken for one after the other.
//!
//! Invocations that leave at once, as those beyond the domain do, would tear their neighbours apart. Whether all stay is tested once;
//! where not, a loop over the neighbours does what the kernel did before.
//!
//! Steps of different invocations change their order, so that this is only for kernels whose invocations don't see each other.

use hashbrown::{HashMap, HashSet};
use smallvec::SmallVec;

use super::values::Values;
use crate::ir::Builtin;
use crate::kernel::walk::{Effect, access, blocks, blocks_mut, each_inst, each_operand_mut, leaves, results, written};
use crate::kernel::{Binary, Block, Counter, End, Inst, Kernel, Loop, Memory, Op, Scalar, Unary, Value};

/// Steps that a kernel may have when all neighbours' are counted.
const MOST_STEPS: usize = 4096;

/// Why invocations can't be merged.
pub(super) type Refusal = &'static str;

/// The copies of a value, one for each neighbour.
type Copies = SmallVec<[Value; 8]>;

/// Lets each invocation do the work of so many neighbours along each axis.
pub(super) fn run(kernel: &mut Kernel, merged: [u32; 3]) -> Result<(), Refusal> {
    let items = merged.iter().product::<u32>() as usize;
    if items < 2 {
        return Ok(());
    }
    check(kernel, items)?;
    let original = kernel.body.clone();
    let (written, values) = (written(&original), Values::of(kernel));
    let mut merge = Merge { merged, items, written, values, names: HashMap::new() };
    let body = merge.body(&original);
    merge.values.give_back(kernel);
    kernel.body = body?;
    Ok(())
}

fn check(kernel: &Kernel, items: usize) -> Result<(), Refusal> {
    if !kernel.resizable {
        return Err("its results depend on the workgroup");
    }
    if !kernel.shared.is_empty() {
        return Err("it has workgroup memory");
    }
    if !kernel.locals.is_empty() {
        return Err("it has private arrays");
    }
    let is_id = |inst: &Inst| matches!(inst, Inst::Let(_, Op::Builtin(Builtin::GlobalId(_))));
    let (mut steps, mut ids, mut plain) = (0, 0, true);
    each_inst(&kernel.body, &mut |inst| {
        steps += 1;
        ids += usize::from(is_id(inst));
        plain &= match inst {
            Inst::Barrier(_) => false,
            Inst::Let(_, op) => !op.is_across_subgroup(),
            Inst::Loop(inner) => !returns(&inner.body),
            _ => true,
        };
    });
    // Ids are asked for before everything else.
    plain &= ids == kernel.body.insts.iter().filter(|inst| is_id(inst)).count();
    match (plain, steps * items <= MOST_STEPS) {
        (false, _) => Err("invocations meet, or end within a loop"),
        (_, false) => Err("it would be too long"),
        (true, true) => Ok(()),
    }
}

/// Some way in it ends the invocation.
fn returns(block: &Block) -> bool {
    block.end == End::Return || block.insts.iter().flat_map(blocks).any(returns)
}

struct Merge {
    merged: [u32; 3],
    items: usize,
    /// What the kernel changes.
    written: HashSet<Memory>,
    values: Values,
    /// What differs between the neighbours.
    names: HashMap<Value, Copies>,
}

impl Merge {
    fn number(&mut self, number: u32, insts: &mut Vec<Inst>) -> Value {
        self.values.constant(Scalar::U32, number, insts)
    }

    /// What a neighbour calls a value.
    fn name(&self, value: Value, item: usize) -> Value {
        self.names.get(&value).map_or(value, |copies| copies[item])
    }

    fn differs(&self, value: Value) -> bool {
        self.names.get(&value).is_some_and(|copies| copies.iter().any(|copy| *copy != copies[0]))
    }

    /// The place of a neighbour along an axis.
    fn place(&self, item: usize, axis: usize) -> u32 {
        let [x, y, _] = self.merged;
        let item = item as u32;
        [item % x, item / x % y, item / (x * y)][axis]
    }

    /// The id of the first neighbour along an axis.
    fn first_id(&mut self, axis: usize, insts: &mut Vec<Inst>) -> Value {
        let id = self.values.define(Scalar::U32, Op::Builtin(Builtin::GlobalId(axis as u8)), insts);
        let by = self.number(self.merged[axis], insts);
        self.values.binary(Binary::Mul, id, by, insts)
    }

    fn body(&mut self, original: &Block) -> Result<Block, Refusal> {
        let mut insts = Vec::new();
        let end = self.top(original, 0, &mut insts)?;
        Ok(Block { insts, end })
    }

    /// The steps of the kernel's own block from one on.
    fn top(&mut self, original: &Block, from: usize, insts: &mut Vec<Inst>) -> Result<End, Refusal> {
        for (at, inst) in original.insts.iter().enumerate().skip(from) {
            let Inst::If { cond, then, otherwise, .. } = inst else {
                self.step(inst, insts)?;
                continue;
            };
            if !self.differs(*cond) || !(returns(then) || returns(otherwise)) {
                self.step(inst, insts)?;
                continue;
            }
            // Some neighbours may leave here.
            let goes_on = End::Yield(Vec::new());
            let empty = then.insts.is_empty() && otherwise.insts.is_empty();
            let leaves_when = match (&then.end, &otherwise.end) {
                (End::Return, end) if empty && *end == goes_on => true,
                (end, End::Return) if empty && *end == goes_on => false,
                _ => return Err("invocations end in the middle of it"),
            };
            if original.insts[..at].iter().any(has_effect) {
                return Err("invocations end after some have written");
            }
            let mut all: Option<Value> = None;
            for copy in self.names[cond].clone() {
                let stays = match leaves_when {
                    true => self.values.define(Scalar::Bool, Op::Unary(Unary::Not, copy), insts),
                    false => copy,
                };
                all = Some(match all {
                    Some(all) => self.values.binary(Binary::And, all, stays, insts),
                    None => stays,
                });
            }
            let Some(all) = all else { return Err("it has no neighbours") };
            let mut together = Vec::new();
            let end = self.top(original, at + 1, &mut together)?;
            let end = if end == End::Return { goes_on } else { end };
            let then = Box::new(Block { insts: together, end });
            let otherwise = Box::new(self.one_by_one(original));
            insts.push(Inst::If { cond: all, then, otherwise, results: Vec::new() });
            return Ok(End::Return);
        }
        Ok(original.end.clone())
    }

    /// The kernel as it was, in a loop over the neighbours.
    fn one_by_one(&mut self, original: &Block) -> Block {
        let mut before = Vec::new();
        let (from, to) = (self.number(0, &mut before), self.number(self.items as u32, &mut before));
        let item = self.values.like(from);
        let mut insts = Vec::new();
        let [x, y, _] = self.merged;
        let mut ids: [Option<Value>; 3] = [None; 3];
        for (axis, id) in ids.iter_mut().enumerate() {
            if self.merged[axis] == 1 {
                continue;
            }
            let first = self.first_id(axis, &mut insts);
            let (below, of) = ([1, x, x * y][axis], self.merged[axis]);
            let (below, of) = (self.number(below, &mut insts), self.number(of, &mut insts));
            let place = self.values.binary(Binary::Div, item, below, &mut insts);
            let place = self.values.binary(Binary::Rem, place, of, &mut insts);
            *id = Some(self.values.binary(Binary::Add, first, place, &mut insts));
        }
        let mut names = HashMap::new();
        let mut body = Block { insts, end: End::Continue(Vec::new()) };
        for inst in &original.insts {
            match inst {
                Inst::Let(value, Op::Builtin(Builtin::GlobalId(axis))) if ids[usize::from(*axis)].is_some() => {
                    names.extend(ids[usize::from(*axis)].map(|id| (*value, id)));
                }
                inst => {
                    let mut copy = self.values.copy_inst(inst, &mut names);
                    go_on_at_end(&mut copy);
                    body.insts.push(copy);
                }
            }
        }
        if original.end == End::Unreachable {
            body.end = End::Unreachable;
        }
        let counter = Some(Counter { value: item, from, to, step: 1 });
        let (params, init, results) = (Vec::new(), Vec::new(), Vec::new());
        let over = Loop { counter, params, init, body, results, finite: true, look: None, rare: true };
        before.push(Inst::Loop(Box::new(over)));
        Block { insts: before, end: End::Yield(Vec::new()) }
    }

    /// A step for all neighbours.
    fn step(&mut self, inst: &Inst, insts: &mut Vec<Inst>) -> Result<(), Refusal> {
        match inst {
            Inst::Let(value, Op::Builtin(Builtin::GlobalId(axis))) if self.merged[usize::from(*axis)] > 1 => {
                let axis = usize::from(*axis);
                let first = self.first_id(axis, insts);
                let mut along: Vec<Value> = vec![first];
                for place in 1..self.merged[axis] {
                    let place = self.number(place, insts);
                    along.push(self.values.binary(Binary::Add, first, place, insts));
                }
                let copies = (0..self.items).map(|item| along[self.place(item, axis) as usize]).collect();
                self.names.insert(*value, copies);
            }
            Inst::Let(value, op) => self.compute(*value, op, insts),
            Inst::Store { .. } | Inst::Atomic { .. } => {
                for item in 0..self.items {
                    self.copy_for(inst, item, insts);
                }
            }
            Inst::Barrier(_) => return Err("invocations meet"),
            Inst::If { cond, then, otherwise, results } => {
                if !self.differs(*cond) {
                    let results = self.expand(results);
                    let cond = self.name(*cond, 0);
                    let (then, otherwise) = (Box::new(self.block(then)?), Box::new(self.block(otherwise)?));
                    insts.push(Inst::If { cond, then, otherwise, results });
                } else if leaves(then) || leaves(otherwise) {
                    return Err("invocations leave on different ways");
                } else {
                    (0..self.items).for_each(|item| self.copy_for(inst, item, insts));
                }
            }
            Inst::Loop(inner) => {
                let values = self.values.len();
                let names = self.names.clone();
                match self.together(inner) {
                    Some(inner) => insts.push(Inst::Loop(Box::new(inner))),
                    None => {
                        self.values.truncate(values);
                        self.names = names;
                        (0..self.items).for_each(|item| self.copy_for(inst, item, insts));
                    }
                }
            }
        }
        Ok(())
    }

    /// A loop that all neighbours go through alike.
    fn together(&mut self, inner: &Loop) -> Option<Loop> {
        let counter = inner.counter?;
        if self.differs(counter.from) || self.differs(counter.to) {
            return None;
        }
        let counter = Counter { from: self.name(counter.from, 0), to: self.name(counter.to, 0), ..counter };
        let init = self.spread(&inner.init);
        let params = self.expand(&inner.params);
        let body = self.block(&inner.body).ok()?;
        let results = self.expand(&inner.results);
        Some(Loop { counter: Some(counter), params, init, body, results, ..*inner })
    }

    fn block(&mut self, block: &Block) -> Result<Block, Refusal> {
        let mut insts = Vec::new();
        for inst in &block.insts {
            self.step(inst, &mut insts)?;
        }
        let end = match &block.end {
            End::Yield(values) => End::Yield(self.spread(values)),
            End::Continue(values) => End::Continue(self.spread(values)),
            End::Break(values) => End::Break(self.spread(values)),
            End::Return => End::Return,
            End::Unreachable => End::Unreachable,
        };
        Ok(Block { insts, end })
    }

    /// What each neighbour has for some values.
    fn spread(&self, values: &[Value]) -> Vec<Value> {
        values.iter().flat_map(|value| (0..self.items).map(|item| self.name(*value, item))).collect()
    }

    /// New values for each neighbour in place of some.
    fn expand(&mut self, values: &[Value]) -> Vec<Value> {
        let mut all = Vec::with_capacity(values.len() * self.items);
        for value in values {
            let copies: Copies = (0..self.items).map(|_| self.values.like(*value)).collect();
            all.extend(copies.iter().copied());
            self.names.insert(*value, copies);
        }
        all
    }

    /// An operation, once for each neighbour who gets something else.
    fn compute(&mut self, value: Value, op: &Op, insts: &mut Vec<Inst>) {
        let of_own = match op {
            Op::Load { address, .. } => {
                !matches!(address.memory, Memory::Buffer(_)) || self.written.contains(&address.memory)
            }
            _ => false,
        };
        let mut made: SmallVec<[(Op, Value); 8]> = SmallVec::new();
        let mut copies = Copies::new();
        for item in 0..self.items {
            let mut own = op.clone();
            each_operand_mut(&mut own, &mut |operand| *operand = self.name(*operand, item));
            let known = made.iter().find(|(known, _)| !of_own && *known == own).map(|(_, copy)| *copy);
            copies.push(known.unwrap_or_else(|| {
                let copy = self.values.like(value);
                insts.push(Inst::Let(copy, own.clone()));
                made.push((own, copy));
                copy
            }));
        }
        self.names.insert(value, copies);
    }

    /// A step for one neighbour, with everything in it.
    fn copy_for(&mut self, inst: &Inst, item: usize, insts: &mut Vec<Inst>) {
        let mut names = self.names.iter().map(|(value, copies)| (*value, copies[item])).collect();
        let copy = self.values.copy_inst(inst, &mut names);
        for result in results(inst) {
            let own = names[result];
            let items = self.items;
            self.names.entry(*result).or_insert_with(|| std::iter::repeat_n(own, items).collect())[item] = own;
        }
        insts.push(copy);
    }
}

/// Lets who ended in a step go on with the next round, which is rare.
fn go_on_at_end(inst: &mut Inst) {
    if let Inst::Loop(inner) = inst {
        inner.rare = true;
    }
    for block in blocks_mut(inst) {
        block.insts.iter_mut().for_each(go_on_at_end);
        if block.end == End::Return {
            block.end = End::Continue(Vec::new());
        }
    }
}

/// It writes, or something in it does.
fn has_effect(inst: &Inst) -> bool {
    let writes = |inst: &Inst| matches!(access(inst), Some((_, Effect::Write | Effect::Both)));
    writes(inst) || blocks(inst).any(|block| block.insts.iter().any(has_effect))
}

#[cfg(test)]
mod tests {
    use crate::ir::{BufferDecl, DataType, Expr, Node, Program};
    use crate::kernel::{Interpret, Kernel, Loads, Options, Unrolling, interpret, lower, verify};

    fn id(axis: u8) -> Expr {
        Expr::global_id(axis)
    }

    fn var(name: &str) -> Expr {
        Expr::var(name)
    }

    fn declared(body: Vec<Node>) -> Program {
        let buffers = vec![
            BufferDecl::read("a", 0, DataType::U32),
            BufferDecl::read("size", 1, DataType::U32).with_count(2),
            BufferDecl::output("out", 2, DataType::U32),
        ];
        let mut all = vec![
            Node::let_bind("w", Expr::load("size", Expr::u32(0))),
            Node::let_bind("h", Expr::load("size", Expr::u32(1))),
        ];
        all.extend(body);
        Program::wrapped(buffers, [8, 4, 1], all)
    }

    /// Leaves beyond `w` x `h`, and stores what `value` is after `steps`.
    fn picture(steps: Vec<Node>, value: Expr) -> Program {
        let beyond = id(0).ge(var("w")) | id(1).ge(var("h"));
        let mut body = vec![Node::if_then(beyond, vec![Node::Return(None)])];
        body.extend(steps);
        body.push(Node::store("out", id(1) * var("w") + id(0), value));
        declared(body)
    }

    fn sum_over(to: Expr, index: Expr) -> Vec<Node> {
        let sum = var("sum") * Expr::u32(3) + Expr::load("a", index);
        vec![
            Node::var("sum", DataType::U32, Expr::u32(1)),
            Node::for_range("k", 0u32, to, vec![Node::assign("sum", sum)]),
        ]
    }

    fn kernel(program: &Program, merged: [u32; 3], far: bool) -> Result<Kernel, String> {
        let unrolling = if far { Unrolling::FAR } else { Unrolling::default() };
        let workgroup_size = Some([8, 4, 1]);
        let options =
            Options { merged, unrolling, one_test: far, rounds_together: 4, workgroup_size, ..Options::default() };
        let kernel = lower(&program.validate().expect("valid"), &options).map_err(|problem| problem.message)?;
        verify(&kernel).expect("well made");
        Ok(kernel)
    }

    fn run(kernel: &Kernel, [w, h]: [u32; 2]) -> Vec<u8> {
        let words = |words: &mut dyn Iterator<Item = u32>| words.flat_map(u32::to_le_bytes).collect::<Vec<u8>>();
        let data = words(&mut (0..200u32).map(|i| i.wrapping_mul(2_654_435_761) >> 7));
        let mut buffers = [data, words(&mut [w, h].into_iter()), vec![0; (w * h * 4) as usize]];
        let grid = [w.div_ceil(8), h.div_ceil(4), 1];
        interpret(kernel, &mut buffers, &Interpret { grid, subgroup_size: 32, budget: 1 << 22, noise: None })
            .expect("runs");
        buffers[2].clone()
    }

    fn check(program: &Program) {
        let plain = kernel(program, [1; 3], false).expect("lowers");
        for merged in [[2, 1, 1], [1, 2, 1], [4, 4, 1], [8, 1, 1], [2, 4, 1]] {
            for far in [false, true] {
                let made = kernel(program, merged, far).expect("it can be merged");
                assert_eq!(made.workgroup_size, [8 / merged[0], 4 / merged[1], 1]);
                for size in [[1, 1], [8, 4], [9, 5], [16, 8], [13, 9], [3, 17], [31, 2]] {
                    assert_eq!(run(&plain, size), run(&made, size), "{merged:?} at {size:?}\n{made}");
                }
            }
        }
    }

    fn loads(kernel: &Kernel) -> u64 {
        Loads::of(kernel).in_loops
    }

    #[test]
    fn neighbours_give_what_each_gives_alone() {
        check(&picture(Vec::new(), id(0) * Expr::u32(7) + id(1)));
        check(&picture(Vec::new(), Expr::load("a", id(1) * var("w") + id(0) + Expr::u32(1))));
    }

    #[test]
    fn a_loop_that_all_go_through_stays_one_and_shares_its_loads() {
        let product = picture(sum_over(Expr::u32(40), var("k") * var("w") + id(0)), var("sum") + id(1));
        check(&product);
        let (plain, rows) = (kernel(&product, [1; 3], false).unwrap(), kernel(&product, [1, 4, 1], false).unwrap());
        let columns = kernel(&product, [4, 1, 1], false).unwrap();
        assert_eq!(loads(&rows), loads(&plain), "four rows need what one does\n{rows}");
        assert!(loads(&columns) > loads(&plain), "{columns}");
    }

    #[test]
    fn loops_of_different_lengths_come_one_after_the_other() {
        check(&picture(sum_over(id(0) % Expr::u32(5) + Expr::u32(3), var("k") + id(1)), var("sum")));
    }

    #[test]
    fn different_ways_come_one_after_the_other() {
        let odd = (id(0) & Expr::u32(1)).eq(Expr::u32(1));
        let mut steps = sum_over(Expr::u32(9), var("k") + id(0));
        steps.push(Node::if_else(
            odd,
            vec![Node::assign("sum", var("sum") + id(1))],
            sum_over(Expr::u32(3), id(0)).split_off(1),
        ));
        check(&picture(steps, var("sum")));
    }

    #[test]
    fn two_tests_before_anything_is_written() {
        let exit = |cond: Expr| Node::if_then(cond, vec![Node::Return(None)]);
        let mut body = vec![exit(id(0).ge(var("w"))), exit(id(1).ge(var("h")))];
        body.extend(sum_over(Expr::u32(5), var("k") + id(0)));
        body.push(Node::store("out", id(1) * var("w") + id(0), var("sum")));
        check(&declared(body));
    }

    #[test]
    fn what_depends_on_others_is_refused() {
        // Neighbours write to the same place.
        let clash = declared(vec![Node::store("out", id(0) / Expr::u32(2), id(1))]);
        assert!(kernel(&clash, [2, 1, 1], false).unwrap_err().contains("can't be merged"));
        let local = declared(vec![Node::store("out", Expr::local_id(0), Expr::u32(1))]);
        assert!(kernel(&local, [2, 1, 1], false).unwrap_err().contains("can't be merged"));
        let odd = picture(Vec::new(), id(0));
        assert!(kernel(&odd, [3, 1, 1], false).unwrap_err().contains("multiples"));
        assert!(kernel(&odd, [0, 1, 1], false).unwrap_err().contains("multiples"));
    }
}
