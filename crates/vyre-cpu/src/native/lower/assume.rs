//! One test for a whole block instead of one for each lane.
//!
//! Nearly every block of a launch is inside the bounds of all buffers, and inside the limits that a kernel sets itself: `if x <
//! width`. What such a comparison says of all lanes is known from the first and the last of them. So a block begins with a test
//! of those, and its code takes the comparisons as settled; where the test fails, other code does the work lane by lane.

use vyre_foundation::ir::Builtin;
use vyre_foundation::kernel::{Address, Binary, Block, End, Inst, Kernel, Memory, Op, Scalar, Unary, Value};

use super::super::asm::{Alu, Cond, Label};
use super::super::hash::Map;
use super::super::isa::Isa;
use super::super::mir::{At, GSrc, M, R};
use super::super::shape::{Lane, Layout};
use super::super::{MOST_GROUP_STEPS, visit};
use super::Lower;
use super::arith::swapped;
use super::bounds::{Makers, Upper};
use super::even::{InLoop, Part};
use super::facts::visit_operands;
use super::flow::{breaks_only, falls_through};
use super::known::compares;
use super::value::{Lin, Rep};

/// Most comparisons that are tested before a block.
const MOST_TESTS: usize = 128;

/// Most steps of a kernel of which code for one vector is made twice: where it is inside all bounds, and where not.
const SHORT: usize = 256;

/// How far beside an invocation's place its neighbours are at most.
const NEAR: u32 = 1 << 16;

/// Operations that a comparison of places may be made by.
const DEEP: u32 = 16;

/// Instructions that a comparison of an index with a limit takes: both in all lanes, and what they say. AVX2 knows neither numbers without
/// signs nor what is not so, and what it does with a mask are instructions of their own.
const COMPARISON: u32 = 3;
const COMPARISON_256: u32 = 10;

/// The weight of a comparison that most of the kernel is behind: without it every access is under a mask.
const GATE: u32 = 64;

/// So many times the steps of what is done instead of the rest of a kernel are no more than the kernel has.
const LITTLE: usize = 4;

/// What a block may take as settled.
#[derive(Default)]
pub(super) struct Plan<'k> {
    /// What the comparisons are made of, in order.
    slice: Vec<(Value, &'k Op)>,
    tests: Vec<Test>,
    /// Bools that hold where a number is less than a value, or is not, whatever the lanes and rounds.
    bounds: Vec<Bound>,
    /// How often the comparisons are needed, and all that something is guarded by; those in loops count more.
    weight: (u32, u32),
    /// The part of the first that is for comparisons in all rounds of a loop.
    in_rounds: u32,
    /// Steps of the kernel.
    steps: usize,
    /// The same, those in loops counting as their comparisons do.
    work: u32,
    /// It loops.
    loops: bool,
    /// Instructions that a comparison of lanes takes.
    comparison: u32,
    /// Stores of whole vectors that may go past the caches, where the block was tested.
    pub(super) streams: Vec<Stream<'k>>,
    /// Some of the slice differs evenly.
    even: bool,
    pub(super) even_in_loops: Vec<InLoop>,
    /// Values that would have to differ evenly, and can't be tested for it before the block.
    pub(super) untested: Vec<Value>,
}

/// A store of which the lanes lie side by side, at a place that is known at the start of a block.
pub(super) struct Stream<'k> {
    pub(super) address: &'k Address,
    /// From one lane to the next.
    pub(super) step: u32,
}

impl Plan<'_> {
    pub(super) fn is_empty(&self) -> bool {
        self.tests.is_empty() && self.bounds.is_empty()
    }

    pub(super) fn has_even(&self) -> bool {
        self.even || !self.even_in_loops.is_empty()
    }

    /// There is little code for each vector.
    pub(super) fn is_short(&self) -> bool {
        self.steps <= SHORT
    }

    /// Buffers that are written past the caches, and bytes of each invocation.
    pub(super) fn written(&self) -> Vec<(u32, u32)> {
        let mut written: Vec<(u32, u32)> = Vec::new();
        for Stream { address, step } in &self.streams {
            let Memory::Buffer(buffer) = address.memory else { continue };
            match written.iter_mut().find(|(other, _)| *other == buffer) {
                Some((_, bytes)) => *bytes += step,
                None => written.push((buffer, *step)),
            }
        }
        written
    }

    /// Code for a single vector is made, too, for where it is inside all bounds: of a kernel that is not long, and in which masks are much of
    /// the work. Where it loops they are only where each round has some, and it is done for blocks of no more than this vector.
    pub(super) fn is_worth_one(&self, vectors: u32) -> bool {
        let much = !self.loops || (vectors == 1 && self.masks_are_much_of_loops());
        !self.is_empty() && self.steps <= SHORT && much
    }

    /// A comparison is several instructions where a step is one; where all else is much more, it is not what takes the time.
    fn masks_are_much_of_loops(&self) -> bool {
        self.in_rounds.saturating_mul(4 * self.comparison) >= self.work
    }

    /// The same where those outside of loops that can be settled are most there, too.
    fn masks_are_much_of_all(&self) -> bool {
        let once = [self.weight.0, self.weight.1].map(|weight| weight.saturating_sub(self.in_rounds));
        !self.tests.is_empty()
            && 2 * once[0] >= once[1]
            && self.weight.0.saturating_mul(8 * self.comparison) >= self.work
    }

    /// Some comparisons are settled that another does not settle.
    pub(super) fn settles_more(&self, other: &Plan<'_>) -> bool {
        self.tests.len() > other.tests.len()
    }

    /// Another version for blocks of so many vectors is not much code.
    pub(super) fn is_little_code(&self, vectors: usize) -> bool {
        self.steps * vectors <= MOST_GROUP_STEPS / 2
    }

    /// Little is left to compare lane by lane, and a second version for the edge is not much code.
    pub(super) fn is_worth_two(&self, vectors: usize) -> bool {
        let settles = |weight: u32| 2 * weight >= self.weight.1;
        let alone = !self.tests.is_empty() && settles(self.weight.0 - self.in_rounds);
        let in_rounds = settles(self.weight.0) && (self.masks_are_much_of_loops() || self.masks_are_much_of_all());
        // Where nothing is left to compare, the code for the edge is most of all.
        let most = if alone && self.weight.0 >= self.weight.1 { 4 * MOST_GROUP_STEPS } else { MOST_GROUP_STEPS / 2 };
        !self.is_empty() && (alone || in_rounds) && self.steps * vectors <= most
    }
}

/// `a` compares so with `b`, which is the same for all lanes, times a power of two.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Test {
    op: Binary,
    a: Value,
    b: Value,
    /// Which power.
    shift: u8,
    /// One of them may be less than nothing.
    signed: bool,
    /// Lanes may be so great that they wrap, and then are small.
    wraps: bool,
    /// The bool that says so, or the contrary.
    value: Value,
    holds: bool,
}

/// A number is less than a limit in all lanes and rounds, or in none.
#[derive(PartialEq)]
struct Bound {
    less: bool,
    number: Upper,
    limit: Value,
    /// The bool that says so.
    value: Value,
}

/// How a range of lanes is compared, whether it or its limit may be less than nothing, whether it may wrap, and how far its limit is shifted.
type Compared = (Binary, bool, bool, u8);

/// What is found on the way through a kernel.
struct Search<'k, 'm> {
    kernel: &'k Kernel,
    makers: &'m Makers<'k>,
    ops: Vec<Option<&'k Op>>,
    /// Bools, what they should be, and how often they are needed: nothing where most of the kernel is behind them.
    wanted: Vec<(Value, bool, u32)>,
    steps: usize,
    /// Steps of the kernel that read or write memory.
    accesses: usize,
    /// How much an access counts here.
    weight: u32,
    /// No condition has been passed: one may be why a load needs no guard, and then it can't come before.
    unconditional: bool,
    /// A branch with something to do on both ways is taken as settled, too, where one is much more.
    both_ways: bool,
    /// Blocks lie along rows. Of a workgroup in pieces few invocations may be behind a condition, and a test is for all of them.
    along_rows: bool,
    /// Stores on the way.
    stores: Vec<&'k Inst>,
    /// Numbers that are less than others in the branches around.
    less: Vec<(Value, Value)>,
    /// Bools that are only made where the number that they compare is less than another, and that one.
    below: Map<Value, Value>,
}

impl<'k> Lower<'k> {
    /// Finds the comparisons that guard accesses, or most of the kernel, and that can be made at the start of a block.
    pub(super) fn plan(&self) -> Plan<'k> {
        self.plan_of(&|_| false)
    }

    /// The same with the stores to some buffers that lie side by side. More is taken as settled then: where it is not, the block is done as if
    /// there were no such stores.
    pub(super) fn plan_of(&self, streams: &dyn Fn(Memory) -> bool) -> Plan<'k> {
        let kernel = self.facts.kernel;
        let both_ways = (0..kernel.buffers.len()).any(|index| streams(Memory::Buffer(index as u32)));
        let (ops, steps) = (vec![None; kernel.values.len()], steps(&kernel.body));
        let accesses = accesses(&kernel.body);
        let makers = Makers::of(kernel);
        let mut search = Search {
            kernel,
            makers: &makers,
            ops,
            wanted: Vec::new(),
            steps,
            accesses,
            weight: 2,
            unconditional: true,
            both_ways,
            along_rows: self.facts.tiling.layout == Layout::Rows,
            stores: Vec::new(),
            less: Vec::new(),
            below: Map::default(),
        };
        search.block(&kernel.body);
        let mut loops = false;
        visit(&kernel.body, &mut |inst| loops |= matches!(inst, Inst::Loop(_)));
        let comparison = if self.facts.isa == Isa::Avx2 { COMPARISON_256 } else { COMPARISON };
        let mut plan = Plan { steps, loops, comparison, work: work(&kernel.body, 2), ..Plan::default() };
        let is_whole = self.facts.tiling.layout != Layout::Rows && !self.in_pieces();
        search.wanted.retain(|&(value, ..)| !(is_whole && self.is_of_place(&makers, value, 0)));
        plan.weight.1 = search.wanted.iter().map(|&(_, _, weight)| weight).sum();
        let mut needed = vec![false; kernel.values.len()];
        // Only a comparison that differs from lane to lane costs so much that it is worth it.
        let mut apart = false;
        while let Some((value, holds, weight)) = search.wanted.pop() {
            match makers.ops[value.index()] {
                Some(Op::Binary(Binary::And, a, b)) if holds => {
                    search.wanted.extend([(*a, true, weight.div_ceil(2)), (*b, true, weight.div_ceil(2))]);
                }
                Some(Op::Binary(Binary::Or, a, b)) if !holds => {
                    search.wanted.extend([(*a, false, weight.div_ceil(2)), (*b, false, weight.div_ceil(2))]);
                }
                Some(Op::Unary(Unary::Not, a)) => search.wanted.push((*a, !holds, weight)),
                Some(Op::Binary(op, a, b)) if compares(*op) => {
                    let known = |operand: Value| self.evaluable(&search.ops, operand, 0);
                    let test = self.test(value, holds, *op, *a, *b);
                    // Products of all pieces of a workgroup would be too many.
                    let few = |operand: Value| !self.in_pieces() || self.is_sum(&makers, operand, 4);
                    let Some(test) = test.filter(|test| known(test.a) && known(test.b) && few(test.a)) else {
                        if plan.bounds.iter().any(|bound| bound.value == value) {
                            plan.weight.0 += weight;
                            plan.in_rounds += weight;
                        } else if holds
                            && matches!(op, Binary::Lt | Binary::Ge)
                            && self.scalar_of(*a) == Scalar::U32
                            && self.shape_of(*b).is_uniform()
                            && known(*b)
                            && let Some(number) = self.upper(&makers, &known, *a, 0).or_else(|| {
                                let end = *search.below.get(&value)?;
                                let ends = self.shape_of(end).is_uniform() && known(end);
                                ends.then_some(Upper::Round { from: None, first: None, end, unit: 1 })
                            })
                            && (*op == Binary::Lt || number.has_lower())
                        {
                            plan.weight.0 += weight;
                            plan.in_rounds += weight;
                            apart |= !self.shape_of(value).is_uniform();
                            number.each_value(&mut |value| search.need(value, &mut needed));
                            search.need(*b, &mut needed);
                            plan.bounds.push(Bound { less: *op == Binary::Lt, number, limit: *b, value });
                        } else if !self.shape_of(value).is_uniform()
                            && [*a, *b].iter().all(|&operand| self.is_place(&makers, operand, 4))
                        {
                            // Where invocations are in their workgroup is known in each round of a tree, and takes no mask.
                            plan.weight.1 = plan.weight.1.saturating_sub(weight);
                        }
                        continue;
                    };
                    // Were the same bool wanted both ways, no block could have it.
                    if let Some(other) = plan.tests.iter().find(|other| other.value == value) {
                        plan.weight.0 += if other.holds == holds { weight } else { 0 };
                        continue;
                    }
                    plan.weight.0 += if weight == 0 { GATE } else { weight };
                    apart |= !self.shape_of(value).is_uniform();
                    plan.tests.push(test);
                    search.need(test.a, &mut needed);
                    search.need(test.b, &mut needed);
                }
                _ => {}
            }
        }
        let unwanted = match self.active.even {
            Some(_) => self.in_pieces() && !plan.is_worth_two(self.piece().len()),
            None => !apart,
        };
        if unwanted || plan.tests.len() + plan.bounds.len() > MOST_TESTS {
            plan = Plan { steps, ..Plan::default() };
            needed.fill(false);
        }
        self.plan_evens(&search, &mut plan, &mut needed);
        for inst in &search.stores {
            let Inst::Store { address, element, value, .. } = inst else { continue };
            let step = element.bits() / 8 * u32::from(self.width_of(*value));
            let known = |&(index, _): &(Value, u32)| self.evaluable(&search.ops, index, 0);
            if streams(address.memory) && self.step_of(address) == Some(step) && address.terms.iter().all(known) {
                address.terms.iter().for_each(|&(index, _)| search.need(index, &mut needed));
                plan.streams.push(Stream { address, step });
            }
        }
        // Values are numbered as they are made, or later than what they are made of.
        let mut order: Vec<Value> = Vec::new();
        collect(&kernel.body, &needed, &mut order);
        plan.slice = order.into_iter().filter_map(|value| Some((value, search.ops[value.index()]?))).collect();
        plan
    }

    /// It is made of an invocation's place in its workgroup and of what all of them have in common.
    fn is_place(&self, makers: &Makers<'_>, value: Value, deep: u32) -> bool {
        let of = |operand: &Value| deep > 0 && self.is_place(makers, *operand, deep - 1);
        self.shape_of(value).is_uniform()
            || match makers.ops[value.index()] {
                Some(Op::Builtin(Builtin::LocalId(_) | Builtin::LocalIndex)) => true,
                Some(Op::Binary(_, a, b)) => of(a) && of(b),
                Some(Op::Cast(a) | Op::BitCast(a)) => of(a),
                _ => false,
            }
    }

    /// It is made of places in the workgroup, and what all invocations have in common is added: one number and constants, however many vectors
    /// there are.
    fn is_sum(&self, makers: &Makers<'k>, value: Value, deep: u32) -> bool {
        let of = |operand: &Value| deep > 0 && self.is_sum(makers, *operand, deep - 1);
        self.shape_of(value).is_uniform()
            || self.is_of_place(makers, value, 0)
            || match makers.ops[value.index()] {
                Some(Op::Builtin(_)) => true,
                Some(Op::Binary(Binary::Add | Binary::Sub, a, b)) => of(a) && of(b),
                Some(Op::Cast(a) | Op::BitCast(a)) => of(a),
                _ => false,
            }
    }

    /// Notes what differs evenly, and how that is tested.
    fn plan_evens(&self, search: &Search<'k, '_>, plan: &mut Plan<'k>, needed: &mut [bool]) {
        let Some(shapes) = &self.active.even else { return };
        let known = |value: Value| self.evaluable(&search.ops, value, 0);
        for value in (0..self.facts.kernel.values.len() as u32).map(Value).filter(|&value| shapes.is_even(value)) {
            if known(value) && !self.in_pieces() {
                plan.even = true;
                search.need(value, needed);
                continue;
            }
            let Some(Op::Binary(op, a, b)) = self.facts.makers.ops[value.index()] else { continue };
            let (of, edge) = self.followed(*a, *b);
            let goes = known(edge) && (!matches!(op, Binary::Div | Binary::Shr) || self.goes_in_steps(value, *op));
            let parts = self.parts_of(&self.facts.makers, &known, of, true, 0).filter(|_| goes);
            let Some(parts) = parts else {
                plan.untested.push(value);
                continue;
            };
            search.need(edge, needed);
            for (_, part) in &parts {
                match *part {
                    Part::Known(value) | Part::Place { value, .. } => search.need(value, needed),
                    Part::Counter { from, to } => [from, to].into_iter().for_each(|end| search.need(end, needed)),
                }
            }
            plan.even_in_loops.push(InLoop { value, parts });
        }
    }

    /// A comparison as one that can be tested for a whole block.
    fn test(&self, value: Value, holds: bool, op: Binary, a: Value, b: Value) -> Option<Test> {
        let op = if holds { op } else { negated(op)? };
        let of =
            |op, a, b| self.test_of(value, holds, op, a, b).or_else(|| self.test_of_quotient(value, holds, op, a, b));
        match [a, b].map(|operand| self.shape_of(operand).is_uniform()) {
            [_, true] => of(op, a, b).or_else(|| of(swapped(op), b, a)),
            _ => of(swapped(op), b, a),
        }
    }

    /// The same for one whose second operand is the same for all lanes.
    fn test_of(&self, value: Value, holds: bool, op: Binary, a: Value, b: Value) -> Option<Test> {
        let (left, right) = (self.shape_of(a), self.shape_of(b));
        let small = |max: u32| max < 1 << 31;
        let near = self.scalar_of(a) == Scalar::I32 && self.is_near(a);
        let fits = match self.scalar_of(a) {
            Scalar::U32 => true,
            Scalar::I32 => small(left.max) || near,
            _ => false,
        };
        // Whatever the sign of the limit, lanes that have none don't wrap, and neither do those near them.
        let signed = self.scalar_of(a) == Scalar::I32 && !(small(left.max) && small(right.max));
        let op = match op {
            // More than nothing.
            Binary::Ne if right.max == 0 && small(left.max) => Binary::Gt,
            op => op,
        };
        let goes = match op {
            Binary::Lt | Binary::Le => true,
            Binary::Ne => !near,
            Binary::Gt | Binary::Ge => true,
            _ => false,
        };
        // Of what is more than a limit the greatest lane must not wrap; those without a sign are tested for it.
        let wraps = matches!(op, Binary::Gt | Binary::Ge) && !small(left.max) && !near;
        let goes = goes && !(wraps && self.scalar_of(a) == Scalar::I32);
        let fits = fits && goes && left.lane != Lane::Vary && right.is_uniform();
        fits.then_some(Test { op, a, b, shift: 0, signed, wraps, value, holds })
    }

    /// The same for words of which each has several lanes' parts: a quotient is below a limit where the number is below so many times that.
    fn test_of_quotient(&self, value: Value, holds: bool, op: Binary, a: Value, b: Value) -> Option<Test> {
        let Some(&Op::Binary(Binary::Shr, number, by)) = self.facts.makers.ops[a.index()] else { return None };
        let shift = self.facts.makers.constant(by).filter(|by| (1..32).contains(by))? as u8;
        let fits = op == Binary::Lt
            && self.scalar_of(number) == Scalar::U32
            && self.shape_of(number).lane != Lane::Vary
            && self.shape_of(b).is_uniform();
        fits.then_some(Test { op, a: number, b, shift, signed: false, wraps: false, value, holds })
    }

    /// It is a little more or less than a number without a sign, and neither wraps.
    fn is_near(&self, value: Value) -> bool {
        let constant = |value: Value| self.facts.makers.constant(value).map(u32::cast_signed);
        match self.facts.makers.ops[value.index()] {
            Some(Op::Binary(Binary::Add | Binary::Sub, a, b)) => {
                let by = constant(*b).map(i32::unsigned_abs);
                by.is_some_and(|by| by <= NEAR && self.shape_of(*a).max <= i32::MAX as u32 - NEAR)
            }
            _ => false,
        }
    }

    /// The value can be made at the start of a block.
    fn evaluable(&self, ops: &[Option<&'k Op>], value: Value, depth: u32) -> bool {
        let Some(op) = ops[value.index()] else { return false };
        let known = |operand: Value| self.evaluable(ops, operand, depth + 1);
        if depth > 16 || !self.is_scalar(value) {
            return false;
        }
        match op {
            Op::Const(_) | Op::Length(_) => true,
            Op::Builtin(builtin) => !matches!(builtin, Builtin::SubgroupLane | Builtin::SubgroupId),
            Op::Unary(_, a) | Op::Cast(a) | Op::BitCast(a) | Op::Extract(a, _) => known(*a),
            Op::Binary(_, a, b) => known(*a) && known(*b),
            Op::Select(cond, yes, no) => known(*cond) && known(*yes) && known(*no),
            // What nobody writes is the same at the start.
            Op::Load { address, guard, .. } => {
                let Memory::Buffer(index) = address.memory else { return false };
                let buffer = &self.facts.kernel.buffers[index as usize];
                !buffer.written
                    && self.shape_of(value).is_uniform()
                    && address.terms.iter().all(|&(index, _)| known(index))
                    && guard.is_none_or(known)
            }
            _ => false,
        }
    }

    /// Where a workgroup is one block this is known of each invocation: its place in the workgroup decides it.
    fn is_of_place(&self, makers: &Makers<'k>, value: Value, depth: u32) -> bool {
        let of_place = |operand: Value| self.is_of_place(makers, operand, depth + 1);
        match makers.ops[value.index()].filter(|_| depth <= DEEP) {
            Some(Op::Const(_) | Op::Builtin(Builtin::LocalId(_) | Builtin::LocalIndex)) => true,
            Some(Op::Unary(_, a) | Op::Cast(a) | Op::BitCast(a)) => of_place(*a),
            Some(Op::Binary(_, a, b)) => of_place(*a) && of_place(*b),
            _ => false,
        }
    }

    /// Emits the tests of a plan for all components; where one fails, the code goes to `otherwise`. From here on the comparisons
    /// are settled.
    pub(super) fn assume(&mut self, plan: &Plan<'k>, otherwise: Label) {
        let comps: Vec<usize> = (0..self.active.components.len()).collect();
        self.define_slice(plan, &comps, Some(otherwise));
        self.settle(plan, &comps, otherwise);
    }

    /// The same for all pieces of the workgroup that begins here, which make the values of their own.
    pub(super) fn assume_of_group(&mut self, plan: &Plan<'k>, otherwise: Label) {
        (self.position.local, self.position.line) = ([Lin::imm(0); 3], Lin::imm(0));
        self.set_components(self.whole_group());
        let comps: Vec<usize> = (0..self.active.components.len()).collect();
        self.define_slice(plan, &comps, None);
        self.settle(plan, &comps, otherwise);
        self.active.ready.fill(false);
    }

    /// Emits the tests of a plan whose values are made.
    fn settle(&mut self, plan: &Plan<'k>, comps: &[usize], otherwise: Label) {
        plan.even_in_loops.iter().for_each(|even| self.assume_even_in_loop(even, otherwise));
        // Ranges of lanes that are compared with the same limit are one range.
        let mut ranges: Vec<(Compared, Lin, R, i64, i64)> = Vec::new();
        for test in &plan.tests {
            let limit = self.lin(test.b, 0);
            let reach = match self.shape_of(test.a).lane {
                Lane::Affine(stride) => i64::from(stride) * i64::from(self.lanes() - 1),
                _ => 0,
            };
            for &c in comps {
                let lin = self.lin(test.a, c);
                let (low, high) = (i64::from(lin.add) + reach.min(0), i64::from(lin.add) + reach.max(0));
                let compared = (test.op, test.signed, test.wraps, test.shift);
                let same = |range: &&mut (Compared, Lin, R, i64, i64)| {
                    (range.0, range.1, range.2) == (compared, limit, lin.reg)
                };
                match ranges.iter_mut().find(same) {
                    Some(range) => (range.3, range.4) = (range.3.min(low), range.4.max(high)),
                    None => ranges.push((compared, limit, lin.reg, low, high)),
                }
            }
        }
        for ((op, signed, wraps, shift), limit, r, low, high) in ranges {
            let (Ok(first), Ok(span)) = (i32::try_from(low), i32::try_from(high - low)) else {
                self.push(M::Jump(otherwise));
                continue;
            };
            let first = self.materialise(Lin { reg: r, add: first });
            if op == Binary::Ne {
                // As far from the first lane as the last is, or less, it is one of those between.
                let limit = self.materialise(limit);
                let from = self.alu(Alu::Sub, false, limit, GSrc::R(first));
                self.push(M::Cmp { wide: false, a: from, b: GSrc::Imm(span) });
                self.push(M::JumpIf(Cond::BelowEqual, otherwise));
                continue;
            }
            if wraps {
                let last = self.alu(Alu::Add, false, first, GSrc::Imm(span));
                self.push(M::Cmp { wide: false, a: last, b: GSrc::R(first) });
                self.push(M::JumpIf(Cond::Below, otherwise));
            }
            let first = if signed { self.extended(first) } else { first };
            let limit = match limit.constant() {
                _ if shift > 0 => {
                    // Where that is beyond 32 bits, all numbers are below it, and the last lane may wrap around.
                    let limit = self.materialise(limit);
                    GSrc::R(self.shifted(true, limit, i32::from(shift)))
                }
                Some(constant) if constant >= 0 => GSrc::Imm(constant),
                _ if signed => {
                    let limit = self.materialise(limit);
                    GSrc::R(self.extended(limit))
                }
                _ => GSrc::R(self.materialise(limit)),
            };
            // Below: the last lane, as a sum that can't wrap. Above: the first.
            let (of, fails) = match (op, signed) {
                (Binary::Lt, false) => (self.beyond(first, span), Cond::AboveEqual),
                (Binary::Lt, true) => (self.beyond(first, span), Cond::GreaterEqual),
                (Binary::Le, false) => (self.beyond(first, span), Cond::Above),
                (Binary::Le, true) => (self.beyond(first, span), Cond::Greater),
                (Binary::Gt, false) => (first, Cond::BelowEqual),
                (Binary::Gt, true) => (first, Cond::LessEqual),
                (_, false) => (first, Cond::Below),
                (_, true) => (first, Cond::Less),
            };
            self.push(M::Cmp { wide: true, a: of, b: limit });
            self.push(M::JumpIf(fails, otherwise));
        }
        for (at, bound) in plan.bounds.iter().enumerate() {
            // Several accesses may be bounded by the same.
            let Bound { less, number, limit, value } = bound;
            let is_same = |other: &&Bound| (other.less, &other.number, other.limit) == (*less, number, *limit);
            if let Some(other) = plan.bounds[..at].iter().find(is_same) {
                self.active.settled[value.index()] = self.active.settled[other.value.index()];
                continue;
            }
            let Some(upper) = self.upper_in_register(number) else { continue };
            let limit = self.scalar_reg(*limit, 0);
            if *less {
                self.push(M::Cmp { wide: true, a: upper, b: GSrc::R(limit) });
                self.push(M::JumpIf(Cond::AboveEqual, otherwise));
            } else {
                let Some(lower) = self.lower_in_register(number) else { continue };
                let most = self.materialise(Lin::imm(-1));
                self.push(M::Cmp { wide: true, a: upper, b: GSrc::R(most) });
                self.push(M::JumpIf(Cond::AboveEqual, otherwise));
                self.push(M::Cmp { wide: true, a: lower, b: GSrc::R(limit) });
                self.push(M::JumpIf(Cond::Below, otherwise));
            }
            self.active.settled[value.index()] = Some(true);
        }
        for test in &plan.tests {
            self.active.settled[test.value.index()] = Some(test.holds);
            self.active.holds[test.value.index()] = test.holds;
        }
    }

    fn beyond(&mut self, first: R, span: i32) -> R {
        if span == 0 {
            return first;
        }
        let r = self.general();
        self.push(M::Lea { wide: true, dst: r, at: At::new(first, span) });
        r
    }

    /// Makes what the comparisons and the places of stores are made of. Where something does not differ as evenly as was taken for granted, the
    /// code goes to `otherwise`.
    pub(super) fn define_slice(&mut self, plan: &Plan<'k>, comps: &[usize], otherwise: Option<Label>) {
        self.active.current = comps.to_vec();
        for &(value, op) in &plan.slice {
            if let Some(otherwise) = otherwise.filter(|_| self.is_even(value)) {
                self.define_even(value, op, comps, otherwise);
                self.active.ready[value.index()] = true;
                continue;
            }
            let shared = &self.active.shared[usize::from(self.shape_of(value).axes)];
            for c in comps.iter().copied().filter(|&c| shared[c] == c).collect::<Vec<_>>() {
                self.define(value, op, c);
            }
            self.active.ready[value.index()] = true;
        }
    }

    /// Nothing is settled any more.
    pub(super) fn assume_nothing(&mut self) {
        self.active.ready.fill(false);
        self.active.settled.fill(None);
        self.active.holds.fill(false);
        self.active.evened.clear();
        self.streams.aligned.clear();
    }

    /// What a settled bool is.
    pub(super) fn settled_rep(&self, value: Value) -> Option<Rep> {
        let holds = self.active.settled[value.index()]?;
        Some(match self.is_scalar(value) {
            true => Rep::General(Lin::imm(i32::from(holds))),
            false => Rep::Lanes(if holds { self.all_lanes() } else { 0 }),
        })
    }

    /// The way that all components take at a branch, when that is known.
    pub(super) fn known_way_of(&self, cond: Value, comps: &[usize]) -> Option<bool> {
        if let Some(bits) = self.constant_of(cond, comps[0]) {
            return Some(bits != 0);
        }
        let all = self.all_lanes();
        let first = self.known_mask(cond, comps[0]).filter(|&bits| bits == 0 || bits == all)?;
        comps.iter().all(|&c| self.known_mask(cond, c) == Some(first)).then_some(first == all)
    }
}

impl<'k> Search<'k, '_> {
    /// Notes a value and what it is made of.
    fn need(&self, value: Value, needed: &mut [bool]) {
        let mut open = vec![value];
        while let Some(value) = open.pop() {
            if !std::mem::replace(&mut needed[value.index()], true)
                && let Some(op) = self.ops[value.index()]
            {
                visit_operands(op, &mut |operand| open.push(operand));
            }
        }
    }

    /// A load of what is inside by the declared size of its buffer, whatever the conditions before it say.
    fn is_always_inside(&self, value: Value, op: &Op) -> bool {
        let Op::Load { address, element, guard: None, .. } = op else { return false };
        let Memory::Buffer(index) = address.memory else { return false };
        let buffer = &self.kernel.buffers[index as usize];
        let bytes = element.bits() / 8 * u32::from(self.kernel.values[value.index()].ty.width);
        let end = u64::from(address.offset) + u64::from(bytes);
        let declared =
            buffer.count.filter(|_| buffer.header == 0).map(|count| u64::from(count) * u64::from(buffer.stride));
        element.bits() >= 8 && address.terms.is_empty() && declared.is_some_and(|declared| end <= declared)
    }

    /// A block that every invocation goes through, or the settled way of a branch.
    fn block(&mut self, block: &'k Block) {
        for inst in &block.insts {
            match inst {
                Inst::Let(value, op) => {
                    if self.unconditional || !matches!(op, Op::Load { .. }) || self.is_always_inside(*value, op) {
                        self.ops[value.index()] = Some(op);
                    }
                    self.guard(inst);
                }
                // What does not hold for the rest of the kernel, or does.
                Inst::If { cond, then, otherwise, .. } if only_returns(then) && falls_through(otherwise) => {
                    self.unconditional = false;
                    self.wanted.push((*cond, false, 0));
                }
                Inst::If { cond, then, otherwise, .. } if falls_through(then) && only_returns(otherwise) => {
                    self.unconditional = false;
                    self.wanted.push((*cond, true, 0));
                }
                // Little is done for a few before they leave, as at the border of a grid.
                Inst::If { cond, then, otherwise, .. }
                    if then.end == End::Return
                        && falls_through(otherwise)
                        && LITTLE * steps(then) <= self.steps
                        && !has_loop(then) =>
                {
                    self.unconditional = false;
                    self.wanted.push((*cond, false, 0));
                }
                Inst::If { cond, then, otherwise, results } if results.is_empty() && falls_through(otherwise) => {
                    self.unconditional = false;
                    let is_most = 2 * steps(then) >= self.steps || accesses(then) == self.accesses;
                    if matches!(then.end, End::Yield(_)) && is_most {
                        // Where it does not hold there is little to do.
                        self.wanted.push((*cond, true, 0));
                        self.block(then);
                    } else {
                        self.guards(then);
                    }
                }
                Inst::If { cond, then, otherwise, .. } if self.both_ways && steps(then) >= 2 * steps(otherwise) => {
                    self.unconditional = false;
                    self.wanted.push((*cond, true, 0));
                    self.block(then);
                }
                inst => {
                    self.unconditional &= !matches!(inst, Inst::If { .. } | Inst::Loop(_));
                    self.stores.extend(Some(inst).filter(|inst| matches!(inst, Inst::Store { .. })));
                    self.inner(inst);
                }
            }
        }
    }

    fn inner(&mut self, inst: &'k Inst) {
        match inst {
            // Lanes that stay in a loop together need no masks. Most loops are left by all at once, so that nothing is missed where it is not settled.
            Inst::If { cond, then, otherwise, .. } if falls_through(then) && breaks_only(otherwise) => {
                self.wanted.extend(self.is_limit(*cond).then_some((*cond, true, 0)));
            }
            Inst::If { cond, then, otherwise, .. } if breaks_only(then) && falls_through(otherwise) => {
                self.wanted.extend(self.is_limit(*cond).then_some((*cond, false, 0)));
            }
            Inst::If { cond, then, otherwise, .. } => {
                for (holds, way, other) in [(true, then, otherwise), (false, otherwise, then)] {
                    let behind = buffer_accesses(way) as u32;
                    if behind > 0 && accesses(other) == 0 && self.are_limits(*cond) {
                        self.wanted.push((*cond, holds, behind.saturating_mul(self.weight)));
                    }
                }
                for (holds, other) in [(true, otherwise), (false, then)] {
                    if self.kernel.values[cond.index()].uniform && is_rare(other) {
                        self.wanted.push((*cond, holds, 1));
                    }
                }
                let less = self.less_in(*cond);
                self.less.extend(less);
                self.guards(then);
                self.less.truncate(self.less.len() - usize::from(less.is_some()));
                self.guards(otherwise);
            }
            // Whatever is done there is seldom done.
            Inst::Loop(inner) if inner.rare => {}
            Inst::Loop(inner) => {
                self.weight = in_loop(self.weight);
                self.guards(&inner.body);
                self.weight = (self.weight / 8).max(2);
            }
            inst => {
                // It can be made before the condition that it stands behind: it reads nothing.
                if let Inst::Let(value, op) = inst
                    && self.along_rows
                    && !matches!(op, Op::Load { .. })
                {
                    self.ops[value.index()] = Some(op);
                }
                if let Inst::Let(value, Op::Binary(Binary::Lt, number, _)) = inst
                    && let Some(end) = self.end_of(*number)
                {
                    self.below.insert(*value, end);
                }
                self.guard(inst);
            }
        }
    }

    /// What is less than what where a condition holds.
    fn less_in(&self, cond: Value) -> Option<(Value, Value)> {
        match self.makers.ops[cond.index()] {
            Some(Op::Binary(Binary::Lt, a, b)) => {
                (self.kernel.values[a.index()].ty.scalar == Scalar::U32).then_some((*a, *b))
            }
            _ => None,
        }
    }

    /// What a number is less than in the branches around: the same number is, or what has to be added to another one is less than
    /// what that one lacks, if anything.
    fn end_of(&self, number: Value) -> Option<Value> {
        let op = |value: Value| self.makers.ops[value.index()];
        self.less.iter().find_map(|&(less, end)| {
            if less == number {
                return Some(end);
            }
            let end = match op(end) {
                Some(Op::Binary(Binary::Min, end, most)) if self.makers.constant(*most).is_some() => *end,
                _ => end,
            };
            let Some(Op::Binary(Binary::Sub, most, reached)) = op(end) else { return None };
            let Some(Op::Binary(Binary::Max, a, b)) = op(*most) else { return None };
            let Some(Op::Binary(Binary::Add, c, d)) = op(number) else { return None };
            let end = [(a, b), (b, a)].into_iter().find(|(_, other)| *other == reached).map(|(end, _)| *end)?;
            [[*c, *d], [*d, *c]].contains(&[*reached, less]).then_some(end)
        })
    }

    /// A comparison with something that is only known at run time: most lanes are inside of that.
    fn is_limit(&self, cond: Value) -> bool {
        let Some(Op::Binary(op, a, b)) = self.makers.ops[cond.index()] else { return false };
        let constant = |value: &Value| matches!(self.makers.ops[value.index()], Some(Op::Const(_)));
        compares(*op) && !constant(a) && !constant(b)
    }

    /// Limits, or edges of a grid of a known size.
    fn are_limits(&self, cond: Value) -> bool {
        match self.makers.ops[cond.index()] {
            Some(Op::Binary(Binary::And | Binary::Or, a, b)) => self.are_limits(*a) && self.are_limits(*b),
            Some(Op::Unary(Unary::Not, a)) => self.are_limits(*a),
            Some(Op::Binary(op, a, _)) if compares(*op) => self.is_limit(cond) || self.is_of_grid(*a, 0),
            _ => false,
        }
    }

    /// An invocation's place in the grid, a multiple of it, or one beside it.
    fn is_of_grid(&self, value: Value, depth: u32) -> bool {
        let of_grid = |value: Value| self.is_of_grid(value, depth + 1);
        match self.makers.ops[value.index()].filter(|_| depth < DEEP) {
            Some(Op::Builtin(Builtin::GlobalId(_) | Builtin::WorkgroupId(_))) => true,
            Some(Op::Cast(a) | Op::BitCast(a)) => of_grid(*a),
            Some(Op::Binary(Binary::Add, a, b)) => {
                (of_grid(*a) && self.is_beside(*b)) || (of_grid(*b) && self.is_beside(*a))
            }
            Some(Op::Binary(Binary::Sub, a, b)) => of_grid(*a) && self.makers.constant(*b).is_some(),
            Some(Op::Binary(Binary::Mul | Binary::Shl, a, b)) => of_grid(*a) && self.makers.constant(*b).is_some(),
            _ => false,
        }
    }

    /// A constant, an invocation's place in its workgroup, or a multiple of a round.
    fn is_beside(&self, value: Value) -> bool {
        let is_place = |op: Option<&Op>| matches!(op, Some(Op::Builtin(Builtin::LocalId(_) | Builtin::LocalIndex)));
        self.makers.counter(value).is_some()
            || match self.makers.ops[value.index()] {
                Some(Op::Const(_)) => true,
                Some(Op::Cast(a) | Op::BitCast(a)) => is_place(self.makers.ops[a.index()]),
                Some(Op::Binary(Binary::Mul | Binary::Shl, a, b)) => {
                    self.makers.counter(*a).is_some() && self.makers.constant(*b).is_some()
                }
                op => is_place(op),
            }
    }

    fn guards(&mut self, block: &'k Block) {
        let around = self.less.len();
        for inst in &block.insts {
            self.inner(inst);
            // Who goes on with this round is inside its limit.
            if let Inst::If { cond, then, otherwise, .. } = inst
                && falls_through(then)
                && breaks_only(otherwise)
            {
                self.less.extend(self.less_in(*cond));
            }
        }
        self.less.truncate(around);
    }

    fn guard(&mut self, inst: &Inst) {
        let (guard, moved) = match inst {
            Inst::Let(value, Op::Load { guard, .. }) | Inst::Store { guard, value, .. } => (*guard, Some(*value)),
            Inst::Atomic { guard, .. } => (*guard, None),
            _ => (None, None),
        };
        // Each register of vectors that lie side by side has a mask of its own.
        let registers = moved.map_or(1, |value| match self.kernel.values[value.index()].ty.width {
            3 => 1,
            width => u32::from(width),
        });
        // One that is the same for all lanes is no mask.
        let weight = |guard: Value| match self.kernel.values[guard.index()].uniform {
            true => 1,
            false => self.weight.saturating_mul(registers),
        };
        self.wanted.extend(guard.map(|guard| (guard, true, weight(guard))));
    }
}

fn only_returns(block: &Block) -> bool {
    block.insts.is_empty() && block.end == End::Return
}

/// All that it does for memory is in loops that are seldom gone through, and there are some.
fn is_rare(block: &Block) -> bool {
    let rare = |inst: &Inst| matches!(inst, Inst::Loop(inner) if inner.rare);
    let plain = |inst: &Inst| matches!(inst, Inst::Let(_, op) if !matches!(op, Op::Load { .. }));
    block.insts.iter().any(rare) && block.insts.iter().all(|inst| rare(inst) || plain(inst))
}

fn has_loop(block: &Block) -> bool {
    let mut any = false;
    visit(block, &mut |inst| any |= matches!(inst, Inst::Loop(_)));
    any
}

/// The values of a block that are needed, in the order in which they are made.
fn collect(block: &Block, needed: &[bool], order: &mut Vec<Value>) {
    for inst in &block.insts {
        match inst {
            Inst::Let(value, _) if needed[value.index()] => order.push(*value),
            Inst::If { then, otherwise, .. } => {
                collect(then, needed, order);
                collect(otherwise, needed, order);
            }
            Inst::Loop(inner) => collect(&inner.body, needed, order),
            _ => {}
        }
    }
}

fn steps(block: &Block) -> usize {
    let mut count = 0;
    visit(block, &mut |_| count += 1);
    count
}

fn accesses(block: &Block) -> usize {
    let mut count = 0;
    visit(block, &mut |inst| {
        let is_access = matches!(inst, Inst::Let(_, Op::Load { .. }) | Inst::Store { .. } | Inst::Atomic { .. });
        count += usize::from(is_access);
    });
    count
}

/// Steps of a block that read or write buffers.
fn buffer_accesses(block: &Block) -> usize {
    let mut count = 0;
    visit(block, &mut |inst| {
        count += usize::from(match inst {
            Inst::Let(_, Op::Load { address, .. }) | Inst::Store { address, .. } | Inst::Atomic { address, .. } => {
                matches!(address.memory, Memory::Buffer(_))
            }
            _ => false,
        });
    });
    count
}

/// Invocations meet in every round of a loop, which has none inside.
fn is_tree(body: &Block) -> bool {
    let (mut meets, mut plain) = (false, true);
    visit(body, &mut |inst| {
        meets |= matches!(inst, Inst::Barrier(_));
        plain &= !matches!(inst, Inst::Loop(_));
    });
    meets && plain
}

/// How much something counts in a loop that counts so much outside of it.
fn in_loop(weight: u32) -> u32 {
    weight.saturating_mul(8).min(1 << 12)
}

/// Steps of a block, those in loops counting more, and atomics as what they are for all lanes.
fn work(block: &Block, weight: u32) -> u32 {
    block.insts.iter().fold(0, |sum: u32, inst| {
        sum.saturating_add(match inst {
            Inst::If { then, otherwise, .. } => work(then, weight).saturating_add(work(otherwise, weight)),
            // The rounds of a tree are for fewer and fewer lanes.
            Inst::Loop(inner) if inner.rare => 0,
            Inst::Loop(inner) if is_tree(&inner.body) => work(&inner.body, weight),
            Inst::Loop(inner) => work(&inner.body, in_loop(weight)),
            Inst::Atomic { .. } => 32 * weight,
            _ => weight,
        })
    })
}

fn negated(op: Binary) -> Option<Binary> {
    Some(match op {
        Binary::Lt => Binary::Ge,
        Binary::Le => Binary::Gt,
        Binary::Gt => Binary::Le,
        Binary::Ge => Binary::Lt,
        Binary::Eq => Binary::Ne,
        _ => return None,
    })
}
