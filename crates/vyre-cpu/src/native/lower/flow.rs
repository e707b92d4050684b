//! Control flow: uniform branches stay branches, others become masks.

use vyre_foundation::kernel::{Address, Binary, Block, Counter, Element, End, Inst, Loop, Memory, Op, Scalar, Value};

use super::super::asm::{Alu, Cond};
use super::super::hash::{Map, Set};
use super::super::isa::Isa;
use super::super::mir::{At, Class, GSrc, LaneOp, M, R, Role, Src};
use super::super::ops;
use super::super::shape::{Lane, Layout, collect_ends};
use super::super::ways::{Numbers, short_ways};
use super::facts::{visit_inst_values, visit_operands, visit_values};
use super::tiles::makes;
use super::value::{Lin, Rep};
use super::{Ahead, LoopFrame, Lower};

/// Where the values of a block's `Yield` go.
#[derive(Clone)]
pub(super) struct Yields<'k> {
    results: &'k [Value],
    /// Only in the active lanes.
    masked: bool,
    /// Gathers the lanes that come out, per component; empty when all do.
    out: Vec<R>,
}

/// Rounds of a counted loop between two looks whether the launch has to end.
#[derive(Clone, Copy)]
pub(super) struct Stretch {
    /// Where the loop ends.
    limit: R,
    /// Where the present stretch ends.
    end: R,
    length: i32,
}

/// Registers that a step of a component works with.
const WORKING: u32 = 3;

/// Vectors whose gathers keep the processor busy.
const GATHERING: usize = 2;

/// Steps up to which both ways of an `If` are computed and the results selected.
const FLAT: usize = 12;

/// How a loop goes through its rounds.
struct Round<'a, 'k> {
    /// The lanes in it, where they don't stay together.
    live: &'a [R],
    plain: bool,
    /// It looks in each round whether the launch has to end.
    looks: bool,
    /// An index and its step.
    stride: Option<(R, R)>,
    tiles: Option<&'a super::tiles::LoopTiles<'k>>,
}

/// How an `If` leaves a loop by one of its ways.
struct Leaves<'k> {
    where_it_holds: bool,
    with: &'k [Value],
}

impl<'k> Leaves<'k> {
    fn of(then: &'k Block, otherwise: &'k Block) -> Leaves<'k> {
        match (&then.end, &otherwise.end) {
            (End::Break(with), _) => Leaves { where_it_holds: true, with },
            (_, End::Break(with)) => Leaves { where_it_holds: false, with },
            _ => Leaves { where_it_holds: false, with: &[] },
        }
    }
}

impl Numbers for Lower<'_> {
    fn maker(&self, value: Value) -> Option<&Op> {
        self.facts.makers.ops[value.index()]
    }

    fn scalar(&self, value: Value) -> Scalar {
        self.scalar_of(value)
    }

    fn size(&self, local: u32) -> u32 {
        self.facts.kernel.locals[local as usize].size
    }
}

impl<'k> Lower<'k> {
    /// Emits a block for some components. Afterwards `exec` is what comes out of its end.
    /// False when it is known that nothing does.
    pub(super) fn block(&mut self, block: &'k Block, comps: &[usize], yields: Option<&Yields<'k>>) -> bool {
        let skip = self.label();
        // What is made after a jump to the end of the block is not known there.
        let mut skips: Option<usize> = None;
        let goes_on = self.emit_steps(block.insts.iter(), block, comps, skip, &mut skips);
        if goes_on {
            self.end(block, comps, yields);
        }
        if let Some(mark) = skips {
            self.leave_scope(mark);
            self.bind(skip);
        }
        goes_on && matches!(block.end, End::Yield(_))
    }

    /// Emits steps of a block. Where no lane is left it goes to `skip`, and what is made after the first such jump is in the scope
    /// `skips`. False when it is known that nothing comes out.
    pub(super) fn emit_steps(
        &mut self,
        insts: impl Iterator<Item = &'k Inst>,
        block: &Block,
        comps: &[usize],
        skip: super::Label,
        skips: &mut Option<usize>,
    ) -> bool {
        let mut run: Vec<&'k Inst> = Vec::new();
        // Memories that the run reads or writes.
        let mut touched: Vec<(Memory, bool)> = Vec::new();
        for inst in insts {
            if run.is_empty() {
                touched.clear();
            }
            match inst {
                Inst::Let(value, Op::Subgroup(op, operand, argument)) => {
                    self.run(&run, comps);
                    run.clear();
                    self.subgroup(*value, *op, *operand, *argument, comps);
                }
                Inst::Let(..) | Inst::Store { .. } | Inst::Atomic { .. } => {
                    if let Some((memory, writes)) = accesses(inst) {
                        if self.begins_run(inst, &run, &touched, comps) {
                            self.run(&run, comps);
                            run.clear();
                            touched.clear();
                        }
                        if !touched.contains(&(memory, writes)) {
                            touched.push((memory, writes));
                        }
                    }
                    self.join_atomics(&mut run, inst);
                }
                // All invocations of the workgroup are in this block, and none has gone further.
                Inst::Barrier(_) => {
                    self.run(&run, comps);
                    run.clear();
                }
                Inst::If { cond, then, otherwise, results }
                    if results.is_empty() && self.is_plain_break(block, *cond, then, otherwise) =>
                {
                    let leaves = Leaves::of(then, otherwise);
                    let tests = self.break_tests(&mut run, *cond, &leaves);
                    self.run(&run, comps);
                    run.clear();
                    match tests {
                        Some(tests) => self.stay(&tests, leaves.where_it_holds, comps),
                        None => self.plain_break(*cond, &leaves, comps),
                    }
                }
                Inst::If { cond, then, otherwise, results } => {
                    let late = self.late_condition(&run, *cond, then, otherwise, comps);
                    if late.is_some() {
                        run.pop();
                    }
                    self.run(&run, comps);
                    run.clear();
                    if late.is_none() && self.branch_by_words(*cond, then, otherwise, results, comps) {
                        continue;
                    }
                    let taken = self.known_way_of(*cond, comps).map(|holds| if holds { then } else { otherwise });
                    if let Some(taken) = taken.filter(|taken| !self.leaves_apart(taken)) {
                        if self.known_branch(taken, results, comps) {
                            continue;
                        }
                        return false;
                    }
                    if let Some(late) = late {
                        self.narrowing_branch(late, *cond, then, otherwise, results, comps);
                        continue;
                    }
                    if self.branch(*cond, then, otherwise, results, comps) {
                        // Nothing may be left to do, and nothing after this is safe to do for nobody.
                        let masks: Option<Vec<R>> = comps.iter().map(|&c| self.active.exec[c]).collect();
                        if let Some(masks) = masks {
                            self.jump_if_none(&masks, skip);
                            skips.get_or_insert(self.enter_scope());
                        }
                    }
                }
                Inst::Loop(inner) => {
                    self.run(&run, comps);
                    run.clear();
                    let returned = if comps.len() > GATHERING && self.ends_by_vector(inner) {
                        self.repeats(inner);
                        comps.chunks(GATHERING).for_each(|comps| _ = self.run_loop(inner, comps));
                        false
                    } else {
                        self.run_loop(inner, comps)
                    };
                    if returned {
                        let masks: Option<Vec<R>> = comps.iter().map(|&c| self.active.exec[c]).collect();
                        if let Some(masks) = masks {
                            self.jump_if_none(&masks, skip);
                            skips.get_or_insert(self.enter_scope());
                        }
                    }
                }
            }
        }
        self.run(&run, comps);
        true
    }

    /// A step can't be in a run: it reads or writes what the run wrote, or writes what it read. And an atomic is many instructions: whatever
    /// all vectors read from buffers is better asked for before them.
    fn begins_run(&self, inst: &Inst, run: &[&'k Inst], touched: &[(Memory, bool)], comps: &[usize]) -> bool {
        let Some((memory, writes)) = accesses(inst) else { return false };
        let joins =
            touched.contains(&(memory, true)) && (self.joins_stores(run, inst, comps) || self.joins_atomics(run, inst));
        let is_long = matches!(inst, Inst::Atomic { .. });
        touched.iter().any(|&(other, wrote)| {
            let conflicts = other == memory && (wrote || writes) && !(wrote && writes && joins);
            conflicts || (is_long && matches!(other, Memory::Buffer(_)))
        })
    }

    /// `if cond { break }`, or `if cond { } else { break }`, right in the body of a loop whose every way out is like that: the lanes still in
    /// the loop are then the active ones, and one mask does for both.
    fn is_plain_break(&self, block: &Block, cond: Value, then: &Block, otherwise: &Block) -> bool {
        let in_plain_loop = self.loops.last().is_some_and(|frame| frame.plain && std::ptr::eq(frame.body, block));
        in_plain_loop && !self.is_scalar(cond) && only_leaves(then, otherwise)
    }

    /// Takes the comparisons that make the condition of a break out of the run, when the break is all that they are for and
    /// it gives no values: each can then be made under the mask of the lanes still in the loop.
    fn break_tests(
        &self,
        run: &mut Vec<&'k Inst>,
        cond: Value,
        leaves: &Leaves<'k>,
    ) -> Option<Vec<(Binary, Value, Value)>> {
        let gives = |frame: &LoopFrame<'_>| leaves.with.len() != frame.shared.iter().filter(|s| **s).count();
        if self.facts.isa != super::Isa::Avx512 || self.loops.last().is_none_or(gives) {
            return None;
        }
        let (mut wanted, mut places, mut tests) = (vec![cond], Vec::new(), Vec::new());
        while let Some(value) = wanted.pop() {
            let place = run.iter().position(|inst| matches!(inst, Inst::Let(made, _) if *made == value))?;
            let Inst::Let(_, Op::Binary(op, a, b)) = run[place] else { return None };
            if self.facts.uses[value.index()] != 1 {
                return None;
            }
            let scalar = self.scalar_of(*a);
            match op {
                Binary::Or if leaves.where_it_holds => wanted.extend([*a, *b]),
                Binary::And if !leaves.where_it_holds => wanted.extend([*a, *b]),
                Binary::Eq | Binary::Ne | Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge
                    if scalar.bits() == 32 && scalar != Scalar::Bool && !self.is_scalar(value) =>
                {
                    tests.push((*op, *a, *b));
                }
                _ => return None,
            }
            places.push(place);
        }
        places.sort_unstable();
        for place in places.into_iter().rev() {
            run.remove(place);
        }
        // Floats are ready last.
        tests.sort_by_key(|&(_, a, _)| self.scalar_of(a).is_float());
        Some(tests)
    }

    /// Lanes for which some comparison holds leave the loop, or for which some does not.
    fn stay(&mut self, tests: &[(Binary, Value, Value)], unless: bool, comps: &[usize]) {
        let Some(frame) = self.loops.last() else { return };
        let live = frame.live.clone();
        for &c in comps {
            for &(op, a, b) in tests {
                self.narrow(op, a, b, c, live[c], unless);
            }
            self.active.exec[c] = Some(live[c]);
        }
    }

    fn plain_break(&mut self, cond: Value, leaves: &Leaves<'k>, comps: &[usize]) {
        let Some(frame) = self.loops.last() else { return };
        let live = frame.live.clone();
        let moves: Vec<(Value, Value)> = frame
            .results
            .iter()
            .copied()
            .zip(leaves.with.iter().copied())
            .zip(&frame.shared)
            .filter(|(_, shared)| !**shared)
            .map(|(pair, _)| pair)
            .collect();
        if !moves.is_empty() {
            for &c in comps {
                let cond = self.mask_of(cond, c);
                let leaving = match leaves.where_it_holds {
                    true => self.mask_and(live[c], cond),
                    false => self.mask_minus(live[c], cond),
                };
                self.active.exec[c] = Some(leaving);
            }
            self.assign(&moves, comps, true);
        }
        for &c in comps {
            let cond = self.mask_of(cond, c);
            match leaves.where_it_holds {
                true => self.mask_minus_into(live[c], cond),
                false => self.mask_and_into(live[c], cond),
            }
            self.active.exec[c] = Some(live[c]);
        }
    }

    /// A comparison of an affine value with a limit that is only needed by the `If` after it: where the first lane of a vector
    /// is not below the limit, none is, and the vector is passed over without a comparison of its lanes.
    fn late_condition(
        &self,
        run: &[&'k Inst],
        cond: Value,
        then: &Block,
        otherwise: &Block,
        comps: &[usize],
    ) -> Option<(&'k Op, Value, Value)> {
        let Some(Inst::Let(value, op @ Op::Binary(Binary::Lt, a, b))) = run.last().copied() else { return None };
        let (left, right) = (self.shape_of(*a), self.shape_of(*b));
        let fits = *value == cond
            && self.settled_rep(cond).is_none()
            && self.facts.uses[cond.index()] == 1
            && !self.is_scalar(cond)
            && comps.len() > 1
            && self.scalar_of(*a) == Scalar::U32
            && matches!(left.lane, Lane::Affine(stride) if stride > 0)
            && left.max < 1 << 31
            && right.is_uniform()
            && self.constant_of(*b, comps[0]).is_none()
            && otherwise.insts.is_empty()
            && !leaves(otherwise)
            && !leaves(then)
            && !needs_all(then)
            && self.is_flat(then) > FLAT;
        fits.then_some((op, *a, *b))
    }

    fn narrowing_branch(
        &mut self,
        (op, a, b): (&'k Op, Value, Value),
        cond: Value,
        then: &'k Block,
        otherwise: &'k Block,
        results: &'k [Value],
        comps: &[usize],
    ) {
        for &result in results {
            self.fresh(result, comps);
        }
        let before = self.active.exec.clone();
        self.active.divergent += 1;
        let limit = self.scalar_reg(b, comps[0]);
        // What the other way gives is overwritten in the lanes of this one.
        let given: &[Value] = match &otherwise.end {
            End::Yield(values) => values,
            _ => &[],
        };
        let moves: Vec<(Value, Value)> = results.iter().copied().zip(given.iter().copied()).collect();
        let yields = Yields { results, masked: true, out: Vec::new() };
        for &c in comps {
            // Other vectors may take it from the same register.
            given.iter().for_each(|value| self.facts.uses[value.index()] += 1);
            self.assign(&moves, &[c], false);
            let next = self.label();
            let mark = self.enter_scope();
            match self.lin(a, c).constant() {
                Some(first) => self.push(M::Cmp { wide: false, a: limit, b: GSrc::Imm(first) }),
                None => {
                    let first = self.scalar_reg(a, c);
                    self.push(M::Cmp { wide: false, a: limit, b: GSrc::R(first) });
                }
            }
            self.push(M::JumpIf(Cond::BelowEqual, next));
            let inner = self.enter_scope();
            self.active.current = vec![c];
            self.define(cond, op, c);
            let holds = self.mask_of(cond, c);
            self.active.exec[c] = Some(before[c].map_or(holds, |exec| self.mask_and(exec, holds)));
            self.block(then, &[c], Some(&yields));
            self.leave_scope(inner);
            self.bind(next);
            self.leave_scope(mark);
        }
        self.active.divergent -= 1;
        self.active.exec = before;
    }

    /// A straight run of steps, component by component.
    pub(super) fn run(&mut self, run: &[&'k Inst], comps: &[usize]) {
        if run.is_empty() {
            return;
        }
        self.find_deferrable(run);
        self.active.current.clear();
        self.active.current.extend_from_slice(comps);
        let groups = self.groups_of(run);
        // What is stored together waits for the last of it, so one vector is done before the next.
        let together = groups.iter().any(|group| !group.scattered);
        let mut bounds = if together { vec![0, run.len()] } else { self.stretches(run, comps) };
        self.keep_shared_loads(run, comps);
        let mut at = 0;
        while at < run.len() {
            let mut next = at + 1;
            if self.is_together(run[at]) {
                next = at + self.atomics_in_a_row(&run[at..]).max(1);
                bounds.retain(|&bound| bound <= at || bound >= next);
                bounds.extend([at, next]);
            }
            at = next;
        }
        bounds.sort_unstable();
        bounds.dedup();
        let count = self.active.components.len();
        // One component shares nothing.
        let alone = comps.len() == 1 && groups.is_empty();
        let mut done = if alone { Vec::new() } else { vec![false; run.len() * count] };
        for stretch in bounds.windows(2).map(|pair| pair[0]..pair[1]) {
            if let [inst] = &run[stretch.clone()]
                && self.atomics_together(inst, comps)
            {
                continue;
            }
            if self.atomics_in_a_row(&run[stretch.clone()]) > 1 {
                self.atomics_in_any_order(&run[stretch], comps);
                continue;
            }
            for &c in comps {
                for number in stretch.clone() {
                    if self.step_in_group(&groups, run, number, &mut done, c) {
                        continue;
                    }
                    match run[number] {
                        Inst::Let(value, _) if self.active.ready[value.index()] => {}
                        Inst::Let(value, op) if alone => self.define(*value, op, c),
                        Inst::Let(value, op) => {
                            let axes = self.shape_of(*value).axes;
                            let place = number * count + self.active.shared[usize::from(axes)][c];
                            if !std::mem::replace(&mut done[place], true) {
                                self.define(*value, op, c);
                            }
                        }
                        Inst::Store { address, element, value, guard } => {
                            self.store(address, *element, *value, *guard, c);
                        }
                        Inst::Atomic { op, address, element, value, compare, result, guard } => {
                            self.atomic(*op, address, *element, *value, *compare, *result, *guard, c);
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    /// Does a step of a run for a vector together with others, before them or after; false where it has to be done by itself.
    fn step_in_group(
        &mut self,
        groups: &[super::structures::Group],
        run: &[&'k Inst],
        number: usize,
        done: &mut [bool],
        c: usize,
    ) -> bool {
        let is_in = |group: &&super::structures::Group| group.steps.iter().any(|&(step, _)| step == number);
        let Some(group) = groups.iter().find(is_in) else { return false };
        let [Some(&(first, _)), Some(&(last, _))] = [group.steps.first(), group.steps.last()] else { return false };
        if group.stores {
            if number == last && !self.store_group(group, run, c) {
                for &(step, _) in &group.steps {
                    if let Inst::Store { address, element, value, guard } = run[step] {
                        self.store(address, *element, *value, *guard, c);
                    }
                }
            }
            return true;
        }
        let place = |this: &Self, step: usize| {
            let axes = defined(run[step]).map_or(0, |value| this.shape_of(value).axes);
            step * this.active.components.len() + this.active.shared[usize::from(axes)][c]
        };
        if number == first && !done[place(self, first)] && self.load_group(group, run, c) {
            for &(step, _) in &group.steps {
                done[place(self, step)] = true;
            }
        }
        done[place(self, number)]
    }

    /// Where the parts of a run begin and the last one ends; all components go through a part before the next. What is loaded once
    /// for all of them stays in a register where there is room, instead of being loaded again for each; each such load begins a part
    /// where there is room for what all components carry from part to part.
    fn stretches(&mut self, run: &[&'k Inst], comps: &[usize]) -> Vec<usize> {
        let whole = || vec![0, run.len()];
        let is_one = |this: &Self, value: Value| {
            let places = &this.active.shared[usize::from(this.shape_of(value).axes)];
            comps.iter().all(|&c| places[c] == places[comps[0]])
        };
        let deferrable: Set<Value> = self.deferrable.iter().copied().collect();
        let deferred = |this: &Self, inst: &Inst| {
            defined(inst).filter(|value| deferrable.contains(value)).is_some_and(|value| {
                this.shape_of(value).lane == Lane::Same && !this.is_scalar(value) && is_one(this, value)
            })
        };
        if comps.len() == 1 || deferrable.is_empty() {
            return whole();
        }
        let loads: Vec<usize> = (0..run.len()).filter(|&at| deferred(self, run[at])).collect();
        if loads.is_empty() {
            return whole();
        }
        let carried = self.carried(run, comps, &loads);
        let room = u32::from(self.facts.isa.registers()) - WORKING;
        let most = loads.iter().map(|&at| carried[at]).max().unwrap_or(0);
        let at_ends = carried[0].max(carried[run.len()]);
        let bounds = if most < room {
            // Steps of different components wait for nothing of each other.
            [0].into_iter().chain(loads[1..].iter().copied()).chain([run.len()]).collect()
        } else if at_ends + loads.len() as u32 <= room {
            whole()
        } else {
            return whole();
        };
        let kept: Set<Value> = loads.iter().filter_map(|&at| defined(run[at])).collect();
        self.deferrable.retain(|value| !kept.contains(value));
        bounds
    }

    /// What some components share is loaded for the first of them, and stays in a register for the others where there is room: AVX2 knows no
    /// operand that is one word for all lanes, so that each load is an instruction.
    fn keep_shared_loads(&mut self, run: &[&'k Inst], comps: &[usize]) {
        if self.facts.isa != Isa::Avx2 || comps.len() == 1 || self.deferrable.is_empty() {
            return;
        }
        let is_shared = |value: Value| {
            let places = &self.active.shared[usize::from(self.shape_of(value).axes)];
            comps.iter().any(|&c| places[c] != c && comps.contains(&places[c]))
        };
        let loads: Vec<usize> = (0..run.len())
            .filter(|&at| defined(run[at]).is_some_and(|value| self.deferrable.contains(&value) && is_shared(value)))
            .collect();
        if loads.is_empty() {
            return;
        }
        let carried = self.carried(run, comps, &loads);
        // What comes from before, and what is left: sums are where they were.
        let at_ends = carried[0].max(carried[run.len()].saturating_sub(carried[0]));
        if at_ends + loads.len() as u32 <= u32::from(self.facts.isa.registers()) - WORKING {
            let kept: Vec<Value> = loads.iter().filter_map(|&at| defined(run[at])).collect();
            self.deferrable.retain(|value| !kept.contains(value));
        }
    }

    /// Before each step of a run, and after the last, the registers of all components together that hold what was made earlier and
    /// is needed later, but for some loads.
    fn carried(&self, run: &[&'k Inst], comps: &[usize], loads: &[usize]) -> Vec<u32> {
        // Where a value is made and last needed, and how many of its uses were seen.
        let mut lives: Map<Value, (usize, usize, u32)> = Map::default();
        let mut besides: Set<Value> = loads.iter().filter_map(|&at| defined(run[at])).collect();
        for (at, inst) in run.iter().enumerate() {
            visit_inst_values(inst, &mut |value| {
                let life = lives.entry(value).or_insert((0, 0, 0));
                (life.1, life.2) = (at, life.2 + 1);
            });
            if let Some(value) = defined(inst) {
                lives.insert(value, (at + 1, at, 0));
            }
            if let Inst::Let(value, Op::Const(_)) = inst {
                besides.insert(*value);
            }
        }
        // How many more registers are needed before a step than before the one before it.
        let mut changes = vec![0i32; run.len() + 2];
        for (value, (made, last, seen)) in lives {
            let known = made == 0 && !matches!(self.rep(value, 0, comps[0]), Rep::Vector(..) | Rep::Mask(_));
            if known
                || besides.contains(&value)
                || self.is_scalar(value)
                || self.active.settled[value.index()].is_some()
            {
                continue;
            }
            let places = &self.active.shared[usize::from(self.shape_of(value).axes)];
            let mut places: Vec<usize> = comps.iter().map(|&c| places[c]).collect();
            places.sort_unstable();
            places.dedup();
            let size = match self.scalar_of(value) {
                // There are fewer registers for masks.
                Scalar::Bool => 4,
                scalar => Self::parts(scalar) as i32,
            };
            // What comes from before the run is there all the time, because a loop may need it again.
            let end = if made == 0 || seen < self.facts.uses[value.index()] { run.len() } else { last };
            if made <= end {
                changes[made] += size * places.len() as i32;
                changes[end + 1] -= size * places.len() as i32;
            }
        }
        changes.pop();
        let mut now = 0;
        changes.into_iter().map(|change| (now += change, now as u32).1).collect()
    }

    /// Loads of the run whose only use is an operation of the run.
    fn find_deferrable(&mut self, run: &[&'k Inst]) {
        self.deferrable.clear();
        for (position, inst) in run.iter().enumerate() {
            let Inst::Let(value, Op::Load { .. }) = inst else { continue };
            if self.facts.uses[value.index()] != 1 {
                continue;
            }
            let used = run[position + 1..].iter().any(|later| {
                let Inst::Let(_, op @ (Op::Binary(..) | Op::Fma(..))) = later else { return false };
                let mut found = false;
                visit_operands(op, &mut |operand| found |= operand == *value);
                found
            });
            if used {
                self.deferrable.push(*value);
            }
        }
    }

    fn end(&mut self, block: &'k Block, comps: &[usize], yields: Option<&Yields<'k>>) {
        match &block.end {
            End::Yield(values) => {
                let Some(yields) = yields else { return };
                let moves: Vec<(Value, Value)> = yields.results.iter().copied().zip(values.iter().copied()).collect();
                self.assign(&moves, comps, yields.masked);
                if !yields.out.is_empty() {
                    for &c in comps {
                        let out = yields.out[c];
                        match self.active.exec[c] {
                            Some(mask) => self.mask_or_into(out, out, mask),
                            None => self.mask_fill(out, true),
                        }
                    }
                }
            }
            End::Continue(values) | End::Break(values)
                if self.loops.last().is_some_and(|frame| frame.rounds.is_some()) =>
            {
                self.end_of_round(values, matches!(block.end, End::Break(_)), comps);
            }
            End::Continue(values) => {
                let is_short = |short: &Vec<&Block>| short.iter().any(|&other| std::ptr::eq(other, block));
                if self.loops.last().is_some_and(|frame| frame.short.as_ref().is_some_and(|short| !is_short(short))) {
                    self.look();
                }
                let Some(frame) = self.loops.last() else { return };
                let (parts, next, params, own) =
                    (frame.parts, frame.next, frame.params, std::ptr::eq(frame.body, block));
                let moves: Vec<(Value, Value)> = params.iter().copied().zip(values.iter().copied()).collect();
                // In a plain loop nothing happens to lanes that left, so only what they leave with has to stay.
                let stays: Vec<bool> = (frame.shared.iter().zip(frame.results))
                    .map(|(shared, result)| parts && (!frame.plain || (*shared && self.facts.uses[result.index()] > 0)))
                    .collect();
                self.assign_each(&moves, comps, &stays);
                if !parts && !own {
                    self.push(M::Jump(next));
                }
            }
            End::Break(values) => {
                let Some(frame) = self.loops.last() else { return };
                let (parts, exit) = (frame.parts, frame.exit);
                let moves: Vec<(Value, Value)> = frame
                    .results
                    .iter()
                    .copied()
                    .zip(values.iter().copied())
                    .zip(&frame.shared)
                    .filter(|(_, shared)| !**shared)
                    .map(|(pair, _)| pair)
                    .collect();
                let (live, left) = (frame.live.clone(), frame.left.clone());
                self.assign(&moves, comps, parts);
                if parts {
                    for &c in comps {
                        match self.active.exec[c] {
                            Some(mask) => {
                                if !left.is_empty() {
                                    self.mask_or_into(left[c], left[c], mask);
                                }
                                self.mask_minus_into(live[c], mask);
                            }
                            None => {
                                if !left.is_empty() {
                                    self.mask_fill(left[c], true);
                                }
                                self.mask_fill(live[c], false);
                            }
                        }
                    }
                } else {
                    self.push(M::Jump(exit));
                }
            }
            End::Return => {
                if self.active.divergent == 0 {
                    let end = self.block_end;
                    if !std::ptr::eq(block, &self.facts.kernel.body) {
                        self.push(M::Jump(end));
                    }
                    return;
                }
                for depth in 0..self.loops.len() {
                    if !self.loops[depth].parts {
                        continue;
                    }
                    let live = self.loops[depth].live.clone();
                    for &c in comps {
                        match self.active.exec[c] {
                            Some(mask) => self.mask_minus_into(live[c], mask),
                            None => self.mask_fill(live[c], false),
                        }
                    }
                }
            }
            End::Unreachable => {}
        }
    }

    /// A register of the right kind for each component that a value needs.
    pub(super) fn fresh(&mut self, value: Value, comps: &[usize]) {
        let scalar = self.scalar_of(value);
        let mut done = vec![false; self.active.components.len()];
        let axes = self.shape_of(value).axes;
        for &c in comps {
            if std::mem::replace(&mut done[self.active.shared[usize::from(axes)][c]], true) {
                continue;
            }
            let rep = if self.is_scalar(value) {
                Rep::General(Lin::reg(self.general()))
            } else if scalar == Scalar::Bool {
                Rep::Mask(self.new_mask())
            } else {
                let low = self.vector();
                let high = if scalar.bits() == 64 { self.vector() } else { R::NONE };
                self.made.changing.insert(low);
                Rep::Vector(low, high)
            };
            self.set_rep(value, 0, c, rep);
        }
    }

    /// Keeps the registers of a value from here on.
    fn occupy(&mut self, value: Value, comps: &[usize]) {
        for &c in comps {
            match self.rep(value, 0, c) {
                Rep::Mask(dst) => self.push(M::Undefined { dst }),
                Rep::Vector(low, high) => {
                    for dst in [low, high].into_iter().filter(|r| !r.is_none()) {
                        self.push(M::Undefined { dst });
                    }
                }
                _ => {}
            }
        }
    }

    /// Moves values into the registers of others, all at once; only in active lanes when `masked`.
    pub(super) fn assign(&mut self, moves: &[(Value, Value)], comps: &[usize], masked: bool) {
        self.assign_each(moves, comps, &vec![masked; moves.len()]);
    }

    /// As `assign`, with a `masked` for each.
    fn assign_each(&mut self, moves: &[(Value, Value)], comps: &[usize], masked: &[bool]) {
        // Register by register: (destination, source, mask, what it is).
        let mut pending: Vec<(R, R, Option<R>, Scalar)> = Vec::new();
        let mut single: Set<R> = Set::default();
        for (&(to, from), &masked) in moves.iter().zip(masked) {
            if self.facts.uses[to.index()] == 0 {
                continue;
            }
            let scalar = self.scalar_of(to);
            let axes = self.shape_of(to).axes;
            let mut done = vec![false; self.active.components.len()];
            for &c in comps {
                if std::mem::replace(&mut done[self.active.shared[usize::from(axes)][c]], true) {
                    continue;
                }
                let mask = if masked { self.active.exec[c] } else { None };
                match self.rep(to, 0, c) {
                    Rep::General(target) => {
                        let source = match self.rep(from, 0, c) {
                            Rep::General(lin) if lin.reg == target.reg && lin.add == 0 => continue,
                            _ => self.scalar_reg(from, c),
                        };
                        pending.push((target.reg, source, None, scalar));
                    }
                    Rep::Mask(target) => {
                        let source = self.mask_of(from, c);
                        pending.push((target, source, mask, scalar));
                    }
                    Rep::Vector(low, high) => {
                        for (part, target) in [low, high].into_iter().enumerate().take(Self::parts(scalar)) {
                            let source = self.vector_part(from, 0, c, part);
                            if self.facts.uses[from.index()] == 1 && matches!(self.rep(from, 0, c), Rep::Vector(..)) {
                                single.insert(source);
                            }
                            let mask = mask.map(|mask| self.part_mask(mask, scalar, part));
                            pending.push((target, source, mask, scalar));
                        }
                    }
                    _ => {}
                }
            }
        }
        pending.retain(|(to, from, ..)| to != from);
        // A source that is about to be overwritten is kept aside. Those copies come before the moves, because they are pushed first.
        let mut written: Set<R> = Set::default();
        let mut readers: Map<R, u32> = Map::default();
        for (to, source, ..) in &mut pending {
            if written.contains(source) {
                let kept = self.reg(source.class());
                self.push(M::Mov { dst: kept, src: *source });
                *source = kept;
            }
            written.insert(*to);
            *readers.entry(*source).or_default() += 1;
        }
        single.retain(|r| readers.get(r) == Some(&1));
        for (to, from, mask, scalar) in pending {
            let whole = mask.is_none() || scalar.bits() != 64;
            if whole && single.contains(&from) && self.compute_into(to, from, mask) {
                continue;
            }
            if scalar == Scalar::Bool && to.class() == self.mask_class() && !matches!(to.class(), Class::General) {
                match mask {
                    None => self.push(M::Mov { dst: to, src: from }),
                    Some(mask) => {
                        let new = self.mask_and(from, mask);
                        self.mask_minus_into(to, mask);
                        self.mask_or_into(to, to, new);
                    }
                }
            } else if to.class() == Class::General {
                self.push(M::Mov { dst: to, src: from });
            } else {
                self.overwrite(scalar, to, from, mask);
            }
        }
    }

    /// Lets the instruction that made `from` write to `to` instead, when nothing in between minds.
    fn compute_into(&mut self, to: R, from: R, mask: Option<R>) -> bool {
        if to.class() != Class::Vector {
            return false;
        }
        let mut made = None;
        for at in (0..self.emission.code.len()).rev().take(96) {
            if matches!(self.emission.code[at], M::Label(_) | M::Jump(_) | M::JumpIf(..) | M::Call { .. }) {
                return false;
            }
            // Most instructions are of this kind and have nothing to do with either.
            if let M::Vec(LaneOp { dst, a, b, mask, .. }) = &self.emission.code[at]
                && [dst, a, mask].into_iter().all(|r| *r != to && *r != from)
                && !matches!(b, Src::R(r) if *r == to || *r == from)
            {
                continue;
            }
            let (mut makes, mut touches_to, mut touches_from) = (false, false, false);
            let mut reads_to_only = true;
            self.emission.code[at].visit(&mut |r, role| {
                if *r == from {
                    touches_from = true;
                    makes |= role == Role::Def;
                }
                if *r == to {
                    touches_to = true;
                    reads_to_only &= matches!(role, Role::Use | Role::Fold);
                }
            });
            if makes {
                if touches_to && !reads_to_only {
                    return false;
                }
                made = Some(at);
                break;
            }
            // Another use of either in between would see the wrong value.
            if touches_to || touches_from {
                return false;
            }
        }
        let Some(at) = made else { return false };
        if self.made.holds(from) {
            return false;
        }
        match &mut self.emission.code[at] {
            M::Vec(v) if v.dst == from && v.mask.is_none() && !v.acc => {
                if let Some(mask) = mask {
                    // The mask must have been there already, and whole vectors only.
                    if self.facts.isa != super::Isa::Avx512 || !v.op.full || v.op.w != 0 {
                        return false;
                    }
                    let mask_made_after = self.emission.code[at..].iter().any(|m| {
                        let mut m = *m;
                        let mut makes = false;
                        m.visit(&mut |r, role| makes |= *r == mask && !matches!(role, Role::Use | Role::Fold));
                        makes
                    });
                    if mask_made_after {
                        return false;
                    }
                    if let M::Vec(v) = &mut self.emission.code[at] {
                        v.mask = mask;
                        v.dst = to;
                    }
                    return true;
                }
                v.dst = to;
                true
            }
            _ => false,
        }
    }

    /// Number of steps when both ways can simply be computed; more than the limit when not.
    fn is_flat(&self, block: &Block) -> usize {
        let mut steps = 0;
        for inst in &block.insts {
            steps += match inst {
                Inst::Let(value, Op::Load { address, guard: None, .. }) if self.is_inside_anyway(*value, address) => 1,
                Inst::Let(_, Op::Load { address, element, guard: Some(guard) })
                    if self.active.holds[guard.index()] && self.lies_beside_loaded(address, *element) =>
                {
                    1
                }
                Inst::Let(_, Op::Load { .. } | Op::Subgroup(..)) => FLAT + 1,
                Inst::Let(..) => 1,
                Inst::If { then, otherwise, .. } => self.is_flat(then) + self.is_flat(otherwise),
                _ => FLAT + 1,
            };
        }
        if matches!(block.end, End::Yield(_)) { steps } else { FLAT + 1 }
    }

    /// What all lanes read from one place is inside its buffer whatever led there: the numbers alone say so, and no condition.
    fn is_inside_anyway(&self, value: Value, address: &Address) -> bool {
        let Memory::Buffer(buffer) = address.memory else { return false };
        let buffer = &self.facts.kernel.buffers[buffer as usize];
        let Some(count) = buffer.count else { return false };
        let one_place = address.terms.iter().all(|&(index, _)| {
            self.is_scalar(index) && self.shape_of(index).is_uniform() && self.scalar_of(index) == Scalar::U32
        });
        let last = address.terms.iter().fold(u128::from(address.offset), |last, &(index, stride)| {
            last + u128::from(self.shape_of(index).max) * u128::from(stride)
        });
        let bytes = u128::from(self.width_of(value)) * u128::from(self.scalar_of(value).bits().div_ceil(8));
        let size = u128::from(buffer.header) + u128::from(count) * u128::from(buffer.stride);
        let whole_bytes = buffer.element.is_none_or(|(element, _)| element.bits() >= 8);
        one_place && whole_bytes && last + bytes <= size
    }

    /// Emits an `If`; true when lanes may have left.
    fn branch(
        &mut self,
        cond: Value,
        then: &'k Block,
        otherwise: &'k Block,
        results: &'k [Value],
        comps: &[usize],
    ) -> bool {
        if self.is_scalar(cond) {
            return self.uniform_branch(cond, then, otherwise, results, comps);
        }
        if self.is_flat(then) + self.is_flat(otherwise) <= FLAT {
            self.flat_branch(cond, then, otherwise, results, comps);
            return false;
        }
        let leaves = leaves(then) || leaves(otherwise);
        let mut taken = Vec::new();
        for (position, &result) in results.iter().enumerate() {
            match self.carried_into(then, otherwise, position, result, comps).filter(|kept| !taken.contains(kept)) {
                Some(kept) if !leaves => {
                    for &c in comps {
                        let rep = self.rep(kept, 0, c);
                        self.set_rep(result, 0, c, rep);
                    }
                    taken.push(kept);
                }
                _ => self.fresh(result, comps),
            }
            self.parted.insert(result, self.loops.len());
        }
        let out: Vec<R> = if leaves {
            (0..self.active.components.len())
                .map(|c| {
                    let r = self.new_mask();
                    if comps.contains(&c) {
                        self.mask_fill(r, false);
                    }
                    r
                })
                .collect()
        } else {
            Vec::new()
        };
        let before = self.active.exec.clone();
        self.active.divergent += 1;
        if needs_all(then) || needs_all(otherwise) {
            self.divergent_ways(cond, then, otherwise, results, &out, comps);
        } else {
            // What a way gives that was made before is given to other vectors from the same register.
            for block in [then, otherwise].into_iter().filter(|_| comps.len() > 1) {
                let End::Yield(values) = &block.end else { continue };
                let before = values.iter().filter(|value| !makes(block, **value));
                before.for_each(|value| self.facts.uses[value.index()] += 1);
            }
            // None of them changes what another one's lanes are.
            for &c in comps {
                self.divergent_ways(cond, then, otherwise, results, &out, &[c]);
            }
        }
        self.active.divergent -= 1;
        self.active.exec = before;
        if leaves {
            for &c in comps {
                self.active.exec[c] = Some(out[c]);
            }
        }
        leaves
    }

    /// What a loop carries and one way of an `If` gives unchanged, as `if (x < least) { least = x; }` does, where nobody asks for the old
    /// value afterwards: the result can take its registers, and the other way changes them in its lanes.
    fn carried_into(
        &self,
        then: &Block,
        otherwise: &Block,
        position: usize,
        result: Value,
        comps: &[usize],
    ) -> Option<Value> {
        let frame = self.loops.last()?;
        let given = |block: &Block| match &block.end {
            End::Yield(values) if block.insts.is_empty() => Some(values[position]),
            _ => None,
        };
        // It is made anew in each round.
        let carries = |kept: &Value| frame.rounds.is_none() && frame.params.contains(kept);
        let in_round = |kept: &Value| self.parted.get(kept) == Some(&self.loops.len());
        let kept = given(otherwise).or_else(|| given(then)).filter(|kept| carries(kept) || in_round(kept))?;
        let mut so_far = 0;
        let mut count = |value: Value| so_far += u32::from(value == kept);
        for block in [then, otherwise] {
            visit_values(block, &mut count);
        }
        // What came before in the round has seen it already, if it is not the same register by another name.
        let is_here = |inst: &Inst| matches!(inst, Inst::If { results, .. } if results.contains(&result));
        if let Some(here) = frame.body.insts.iter().position(is_here) {
            for inst in &frame.body.insts[..here] {
                let keeps_no_name = match inst {
                    Inst::Let(_, Op::Binary(..) | Op::Fma(..)) | Inst::Store { .. } => true,
                    // It has left then.
                    Inst::If { then, otherwise, .. } => only_leaves(then, otherwise),
                    _ => false,
                };
                if keeps_no_name {
                    visit_inst_values(inst, &mut count);
                }
            }
        }
        let alike = self.shape_of(kept).axes == self.shape_of(result).axes
            && self.scalar_of(kept) == self.scalar_of(result)
            && self.facts.named[kept.index()] == so_far;
        let changes = |&c: &usize| matches!(self.rep(kept, 0, c), Rep::Vector(r, _) if self.made.changing.contains(&r));
        (alike && comps.iter().all(changes)).then_some(kept)
    }

    fn divergent_ways(
        &mut self,
        cond: Value,
        then: &'k Block,
        otherwise: &'k Block,
        results: &'k [Value],
        out: &[R],
        comps: &[usize],
    ) {
        let before: Vec<Option<R>> = comps.iter().map(|&c| self.active.exec[c]).collect();
        // What a way without steps gives, as where something outside is zero, the other way overwrites in its lanes.
        let given = |block: &&'k Block| block.insts.is_empty() && matches!(block.end, End::Yield(_));
        let unknown = comps.iter().any(|&c| self.known_mask(cond, c).is_none());
        let first = [otherwise, then].into_iter().find(given).filter(|_| out.is_empty() && unknown);
        if let Some(Block { end: End::Yield(values), .. }) = first {
            // Other vectors may take it from the same register.
            values.iter().for_each(|value| self.facts.uses[value.index()] += 1);
            let moves: Vec<(Value, Value)> = results.iter().copied().zip(values.iter().copied()).collect();
            self.assign(&moves, comps, false);
        }
        for (block, is_then) in [(then, true), (otherwise, false)] {
            if first.is_some_and(|first| std::ptr::eq(first, block)) {
                continue;
            }
            let all = self.all_lanes();
            let known = |&c: &usize| self.known_mask(cond, c).map(|bits| (c, if is_then { bits } else { !bits & all }));
            if let Some(known) = comps.iter().map(known).collect::<Option<Vec<(usize, u32)>>>() {
                self.known_way(block, &known, results, out);
                for (&c, &exec) in comps.iter().zip(&before) {
                    self.active.exec[c] = exec;
                }
                continue;
            }
            let masks: Vec<R> = comps
                .iter()
                .zip(&before)
                .map(|(&c, &before)| {
                    let cond = self.mask_of(cond, c);
                    match (before, is_then) {
                        (Some(exec), true) => self.mask_and(exec, cond),
                        (Some(exec), false) => self.mask_minus(exec, cond),
                        (None, true) => cond,
                        (None, false) => self.mask_not(cond),
                    }
                })
                .collect();
            for (&c, &mask) in comps.iter().zip(&masks) {
                self.active.exec[c] = Some(mask);
            }
            let done = self.label();
            // Cheap blocks without side effects need no test of their own.
            self.jump_if_none(&masks, done);
            let mark = self.enter_scope();
            let yields = Yields { results, masked: true, out: out.to_vec() };
            self.block(block, comps, Some(&yields));
            self.leave_scope(mark);
            self.bind(done);
        }
    }

    /// One way of an `If` for vectors whose lanes that take it are known; those without any are left out.
    fn known_way(&mut self, block: &'k Block, lanes: &[(usize, u32)], results: &'k [Value], out: &[R]) {
        let taken: Vec<(usize, u32)> = lanes.iter().copied().filter(|&(_, lanes)| lanes != 0).collect();
        let comps: Vec<usize> = taken.iter().map(|&(c, _)| c).collect();
        if comps.is_empty() {
            return;
        }
        let mark = self.enter_scope();
        // Lanes of which it is not known whether they are active.
        let unsure: Vec<bool> = comps.iter().map(|&c| self.active.exec[c].is_some()).collect();
        for &(c, lanes) in &taken {
            if lanes != self.all_lanes() {
                let mask = self.mask_known(lanes);
                let exec = self.active.exec[c];
                self.active.exec[c] = Some(exec.map_or(mask, |exec| self.mask_and(exec, mask)));
            }
        }
        let masks: Option<Vec<R>> = comps.iter().map(|&c| self.active.exec[c]).collect();
        let partly = taken.iter().any(|&(_, lanes)| lanes != self.all_lanes());
        let maybe_nobody = !unsure.contains(&false) && (partly || needs_all(block));
        let done = masks.filter(|_| maybe_nobody).map(|masks| {
            let done = self.label();
            self.jump_if_none(&masks, done);
            done
        });
        let inner = self.enter_scope();
        let yields = Yields { results, masked: true, out: out.to_vec() };
        self.block(block, &comps, Some(&yields));
        self.leave_scope(inner);
        if let Some(done) = done {
            self.bind(done);
        }
        self.leave_scope(mark);
    }

    /// Lanes load words side by side, from a buffer that all of them load from in any case: the words around those are likely to be near, and
    /// cost less than asking who wants them.
    fn lies_beside_loaded(&self, address: &Address, element: Element) -> bool {
        let is_loaded = |inst: &Inst| matches!(inst, Inst::Let(_, Op::Load { address: other, .. }) if other.memory == address.memory);
        matches!(address.memory, Memory::Buffer(_))
            && element.bits() == 32
            && self.step_of(address) == Some(4)
            && self.facts.kernel.body.insts.iter().any(is_loaded)
    }

    /// Both ways are short and have no effect: compute both and select.
    fn flat_branch(
        &mut self,
        cond: Value,
        then: &'k Block,
        otherwise: &'k Block,
        results: &'k [Value],
        comps: &[usize],
    ) {
        for block in [then, otherwise] {
            for inst in &block.insts {
                match inst {
                    Inst::If { cond, then, otherwise, results } => {
                        self.branch(*cond, then, otherwise, results, comps);
                    }
                    inst => self.run(&[inst], comps),
                }
            }
        }
        let (End::Yield(yes), End::Yield(no)) = (&then.end, &otherwise.end) else { return };
        for ((&result, &yes), &no) in results.iter().zip(yes).zip(no) {
            let mut done = Vec::new();
            for &c in comps {
                let shared = self.active.shared[usize::from(self.shape_of(result).axes)][c];
                if done.contains(&shared) {
                    continue;
                }
                done.push(shared);
                let rep = self.select(result, cond, yes, no, c);
                self.set_rep(result, 0, c, rep);
            }
        }
    }

    fn uniform_branch(
        &mut self,
        cond: Value,
        then: &'k Block,
        otherwise: &'k Block,
        results: &'k [Value],
        comps: &[usize],
    ) -> bool {
        for &result in results {
            self.fresh(result, comps);
        }
        let apart = self.leaves_apart(then) || self.leaves_apart(otherwise);
        let out: Vec<R> = if apart {
            (0..self.active.components.len())
                .map(|c| {
                    let r = self.new_mask();
                    if comps.contains(&c) {
                        self.mask_fill(r, false);
                    }
                    r
                })
                .collect()
        } else {
            Vec::new()
        };
        let before = self.active.exec.clone();
        let (no, done) = (self.label(), self.label());
        let test = self.scalar_reg(cond, comps[0]);
        self.push(M::Test { wide: false, a: test, b: test });
        let has_else = !otherwise.insts.is_empty()
            || !matches!(&otherwise.end, End::Yield(values) if values.is_empty() && out.is_empty());
        self.push(M::JumpIf(Cond::Equal, if has_else { no } else { done }));
        let yields = Yields { results, masked: false, out: out.clone() };
        let mark = self.enter_scope();
        self.block(then, comps, Some(&yields));
        self.leave_scope(mark);
        if has_else {
            self.push(M::Jump(done));
            self.active.exec.clone_from(&before);
            self.bind(no);
            let mark = self.enter_scope();
            self.block(otherwise, comps, Some(&yields));
            self.leave_scope(mark);
        }
        self.bind(done);
        self.active.exec = before;
        if apart {
            for &c in comps {
                self.active.exec[c] = Some(out[c]);
            }
        }
        apart
    }

    /// Some lanes leave from inside, while others go on.
    fn leaves_apart(&self, block: &Block) -> bool {
        block.insts.iter().any(|inst| match inst {
            Inst::If { cond, then, otherwise, .. } => {
                if self.shape_of(*cond).is_uniform() {
                    self.leaves_apart(then) || self.leaves_apart(otherwise)
                } else {
                    leaves(then) || leaves(otherwise)
                }
            }
            Inst::Loop(inner) => returns(&inner.body),
            _ => false,
        }) || (self.active.divergent > 0 && block.end == End::Return)
            || (matches!(block.end, End::Break(_) | End::Continue(_))
                && self.loops.last().is_some_and(|frame| frame.parts))
    }

    /// All lanes of a vector have the same end, as where some of them go over one row, and each vector has its own. Gathers of two vectors keep the
    /// processor busy, and wait for the longest row of few.
    fn ends_by_vector(&self, inner: &Loop) -> bool {
        let own = |to: Value| self.shape_of(to).lane == Lane::Same && !self.shape_of(to).is_uniform();
        let gathers = inner.body.insts.iter().any(|inst| {
            let Inst::Let(_, Op::Load { address, .. }) = inst else { return false };
            let by_lanes = address.terms.iter().any(|&(index, _)| !self.is_scalar(index));
            by_lanes && matches!(address.memory, Memory::Buffer(_))
        });
        let counts = inner.counter.as_ref().is_some_and(|counter| own(counter.to));
        counts && gathers && self.shapes().parts(inner) && !needs_all(&inner.body) && !returns(&inner.body)
    }

    /// Emits a loop; true when lanes may have returned from inside.
    fn run_loop(&mut self, inner: &'k Loop, comps: &[usize]) -> bool {
        let parts = self.shapes().parts(inner);
        if !parts && self.run_by_rows(inner, comps) {
            return false;
        }
        if !parts
            && self.active.divergent == 0
            && let Some(rounds) = self.known_rounds(inner, comps)
        {
            self.run_rounds(inner, rounds, comps);
            return false;
        }
        let mut ends = Vec::new();
        collect_ends(&inner.body, &mut ends);
        let shared = self.fresh_results(inner, &ends, parts, comps);
        let moves: Vec<(Value, Value)> = inner.params.iter().copied().zip(inner.init.iter().copied()).collect();
        self.assign(&moves, comps, false);
        let may_return = returns(&inner.body) && (parts || self.active.divergent > 0);
        let (next, exit) = (self.label(), self.label());
        let entry = self.active.exec.clone();
        let (live, left) = if parts { self.loop_masks(may_return, comps) } else { (Vec::new(), Vec::new()) };
        self.hoist(inner, comps);
        let plain = parts && !may_return && inner.counter.is_none() && is_plain_loop(&inner.body);
        let short = self.short_ways(inner);
        let looks_late = short.is_some();
        let frame = LoopFrame {
            plain,
            short,
            live: live.clone(),
            left: left.clone(),
            parts,
            shared: shared.clone(),
            ..LoopFrame::together(inner, next, exit)
        };
        self.loops.push(frame);
        self.active.divergent += u32::from(parts);
        let start = self.label();
        match &inner.counter {
            Some(counter) if parts => self.start_counter_apart(inner, counter, &live, &left, comps),
            Some(counter) => {
                self.start_counter(counter, exit, comps);
                self.note_counted(counter, comps[0]);
            }
            None => {}
        }
        let tiles = self.tiles_of(inner, comps);
        let stretch = if parts { None } else { self.first_stretch(inner, comps[0]) };
        let stride = if parts { None } else { self.stride(inner, &ends, comps[0]) };
        self.bind(start);
        let mark = self.enter_scope();
        let round =
            Round { live: &live, plain, looks: stretch.is_none() && !looks_late, stride, tiles: tiles.as_ref() };
        self.round(inner, &round, comps);
        self.bind(next);
        if let Some(tiles) = &tiles {
            self.next_tiles(tiles, comps);
        }
        let mut goes_on = parts;
        match &inner.counter {
            Some(counter) if parts && self.counts_together(counter) => {
                self.next_counter_together(inner, counter, start, comps);
                goes_on = false;
            }
            Some(counter) if parts => self.next_counter_apart(inner, counter, &live, &left, comps),
            Some(counter) => {
                let value = self.scalar_reg(counter.value, comps[0]);
                self.next_counter(counter, value, start, stretch.as_ref(), comps);
            }
            None => {}
        }
        if goes_on {
            let masks: Vec<R> = comps.iter().map(|&c| live[c]).collect();
            self.jump_if_any(&masks, start);
        } else if inner.counter.is_none() && ends.iter().any(|(leaves, _)| !leaves) {
            self.push(M::Jump(start));
        }
        self.leave_scope(mark);
        if let Some(tiles) = &tiles {
            self.empty_tiles(tiles, comps);
        }
        if !parts && inner.counter.is_some() {
            // The counter ran out: the results are the carried values.
            self.counted_out(inner, comps);
        }
        self.bind(exit);
        if let Some(tiles) = &tiles {
            self.leave_tiles(tiles, comps);
        }
        self.active.divergent -= u32::from(parts);
        self.loops.pop();
        for (position, (&param, &result)) in inner.params.iter().zip(&inner.results).enumerate() {
            if shared[position] {
                for &c in comps {
                    let rep = self.rep(param, 0, c);
                    self.set_rep(result, 0, c, rep);
                }
            }
        }
        self.active.exec = entry;
        if may_return && parts {
            for &c in comps {
                self.active.exec[c] = Some(left[c]);
            }
            return true;
        }
        false
    }

    /// Registers for the parameters and results of a loop; which results are the parameters themselves.
    fn fresh_results(
        &mut self,
        inner: &'k Loop,
        ends: &[(bool, &'k [Value])],
        parts: bool,
        comps: &[usize],
    ) -> Vec<bool> {
        // Where every way out gives the parameter itself, the result needs no register of its own.
        let shared: Vec<bool> = (0..inner.params.len())
            .map(|position| {
                ends.iter().all(|(leaves, values)| !leaves || values[position] == inner.params[position])
                    && self.scalar_of(inner.params[position]) == self.scalar_of(inner.results[position])
                    && self.shape_of(inner.params[position]) == self.shape_of(inner.results[position])
            })
            .collect();
        for (position, (&param, &result)) in inner.params.iter().zip(&inner.results).enumerate() {
            // A parameter that only the result needs is still needed.
            if shared[position] || inner.counter.is_some() {
                self.facts.uses[param.index()] += self.facts.uses[result.index()];
            }
            self.fresh(param, comps);
            if !shared[position] {
                self.fresh(result, comps);
                if parts {
                    // Lanes that leave early keep their result through the later rounds.
                    self.occupy(result, comps);
                }
            }
        }
        shared
    }

    /// Masks of the lanes that are in a loop, and of those that left it by `Break`, where some return.
    fn loop_masks(&mut self, may_return: bool, comps: &[usize]) -> (Vec<R>, Vec<R>) {
        let (mut live, mut left) = (Vec::new(), Vec::new());
        for (c, entered) in self.active.exec.clone().into_iter().enumerate() {
            let r = self.new_mask();
            if comps.contains(&c) {
                match entered {
                    Some(mask) => self.push(M::Mov { dst: r, src: mask }),
                    None => self.mask_fill(r, true),
                }
            }
            live.push(r);
        }
        if may_return {
            for c in 0..self.active.components.len() {
                let r = self.new_mask();
                if comps.contains(&c) {
                    self.mask_fill(r, false);
                }
                left.push(r);
            }
        }
        (live, left)
    }

    /// What a loop does in one round.
    fn round(&mut self, inner: &'k Loop, round: &Round<'_, 'k>, comps: &[usize]) {
        let &Round { live, plain, looks, stride, tiles } = round;
        if !live.is_empty() {
            // Masks made in the round from `live` must not change when `live` does.
            for &c in comps {
                if plain {
                    self.active.exec[c] = Some(live[c]);
                    continue;
                }
                let now = self.new_mask();
                self.push(M::Mov { dst: now, src: live[c] });
                self.active.exec[c] = Some(now);
            }
        }
        if looks && inner.look.is_some() {
            self.look();
        }
        if let Some(tiles) = tiles {
            self.fill_tiles(tiles, comps);
        }
        let round = self.enter_scope();
        if let (Some((index, step)), Some(frame)) = (stride, self.loops.len().checked_sub(1)) {
            let (now, next) = (self.extended(index), self.general());
            self.push(M::Lea { wide: true, dst: next, at: At { base: now, index: step, scale: 1, disp: 0 } });
            self.loops[frame].ahead = Some(Ahead { now: [index, now], next, step });
        }
        if plain {
            // Vectors of a plain loop have nothing to do with each other: one after the other needs the fewest registers.
            for &c in comps {
                self.block(&inner.body, &[c], None);
            }
        } else {
            self.block(&inner.body, comps, None);
        }
        self.leave_scope(round);
    }

    /// The index of a loop that goes on by a step which is only known when it runs, and the step. Asked for where atomics fill the
    /// time of a round, so that the processor does not see the loads of the next one early enough; and what lies so far apart is
    /// foreseen by no processor.
    fn stride(&mut self, inner: &'k Loop, ends: &[(bool, &'k [Value])], c: usize) -> Option<(R, R)> {
        let has_atomics = inner.body.insts.iter().any(|inst| matches!(inst, Inst::Atomic { .. }));
        let [(false, next)] = *ends.iter().filter(|(leaves, _)| !leaves).collect::<Vec<_>>() else { return None };
        if !has_atomics || inner.counter.is_some() || self.facts.isa == Isa::Simd128 {
            return None;
        }
        let (param, step) = inner.params.iter().zip(*next).find_map(|(&param, &next)| {
            inner.body.insts.iter().find_map(|inst| match inst {
                Inst::Let(value, Op::Binary(Binary::Add, a, b)) if *value == next && *a == param => Some((param, *b)),
                Inst::Let(value, Op::Binary(Binary::Add, a, b)) if *value == next && *b == param => Some((param, *a)),
                _ => None,
            })
        })?;
        let is_word = |value: Value| self.is_scalar(value) && self.scalar_of(value).bits() == 32;
        let inside = inner.body.insts.iter().any(|inst| matches!(inst, Inst::Let(value, _) if *value == step));
        if inside || !is_word(param) || !is_word(step) || !self.shape_of(step).is_uniform() {
            return None;
        }
        let (index, step) = (self.scalar_reg(param, c), self.scalar_reg(step, c));
        Some((index, self.extended(step)))
    }

    fn counted_out(&mut self, inner: &'k Loop, comps: &[usize]) {
        let Some(frame) = self.loops.last() else { return };
        let moves: Vec<(Value, Value)> = inner
            .results
            .iter()
            .copied()
            .zip(inner.params.iter().copied())
            .zip(&frame.shared)
            .filter(|(_, shared)| !**shared)
            .map(|(pair, _)| pair)
            .collect();
        self.assign(&moves, comps, false);
    }

    fn start_counter(&mut self, counter: &Counter, exit: super::Label, comps: &[usize]) {
        let signed = self.scalar_of(counter.value).is_signed();
        self.fresh(counter.value, comps);
        let c = comps[0];
        let value = self.scalar_reg(counter.value, c);
        let from = self.scalar_reg(counter.from, c);
        self.push(M::Mov { dst: value, src: from });
        let (first, to) = (self.lin(counter.from, c), self.lin(counter.to, c));
        if let (Some(first), Some(to)) = (first.constant(), to.constant())
            && (if signed { first < to } else { (first as u32) < to as u32 })
        {
            return;
        }
        // A loop without rounds has the values it was given.
        let run = self.label();
        let to = self.scalar_reg(counter.to, c);
        self.push(M::Cmp { wide: false, a: value, b: GSrc::R(to) });
        self.push(M::JumpIf(if signed { Cond::Less } else { Cond::Below }, run));
        let Some(frame) = self.loops.last() else { return };
        let moves: Vec<(Value, Value)> = frame
            .results
            .iter()
            .copied()
            .zip(frame.params.iter().copied())
            .zip(&frame.shared)
            .filter(|(_, shared)| !**shared)
            .map(|(pair, _)| pair)
            .collect();
        let mark = self.enter_scope();
        self.assign(&moves, comps, false);
        self.leave_scope(mark);
        self.push(M::Jump(exit));
        self.bind(run);
    }

    /// Keeps in mind where the innermost loop ends that counts by one, where that is known.
    fn note_counted(&mut self, counter: &Counter, c: usize) {
        let to = self.constant_of(counter.to, c).and_then(|to| u32::try_from(to).ok());
        let Some(to) = to.filter(|_| counter.step == 1) else { return };
        let value = self.scalar_reg(counter.value, c);
        if let Some(frame) = self.loops.last_mut() {
            frame.counted = Some((value, to));
        }
    }

    /// The ways to the next round of a loop that need not look whether the launch has to end; nothing where each round looks. One invocation alone
    /// has numbers that its accesses bound; of many nobody may be where the code is.
    fn short_ways(&self, inner: &'k Loop) -> Option<Vec<&'k Block>> {
        let is_alone = self.facts.tiling.layout == Layout::Single && inner.counter.is_none() && inner.look.is_some();
        is_alone.then(|| short_ways(self, inner)).filter(|short| !short.is_empty())
    }

    /// Leaves the code when the launch has to end.
    pub(super) fn look(&mut self) {
        let word = self.general();
        self.push(M::Load { bytes: 4, signed: false, dst: word, at: At::new(self.bases.stop, 0) });
        self.push(M::Test { wide: false, a: word, b: word });
        let stop = self.stop_label;
        self.push(M::JumpIf(Cond::NotEqual, stop));
    }

    /// Where a counted loop that looks now and then goes without it.
    pub(super) fn first_stretch(&mut self, inner: &Loop, c: usize) -> Option<Stretch> {
        let (counter, rounds) = (inner.counter?, inner.look?);
        let length = rounds.saturating_mul(counter.step).min(i32::MAX as u32) / counter.step * counter.step;
        let (limit, end) = (self.scalar_reg(counter.to, c), self.general());
        let stretch = Stretch { limit, end, length: length as i32 };
        let value = self.scalar_reg(counter.value, c);
        self.stretch(&stretch, value);
        Some(stretch)
    }

    /// The next look is a stretch away, or there is none when the loop ends before.
    fn stretch(&mut self, stretch: &Stretch, value: R) {
        let Stretch { limit, end, length } = *stretch;
        let (left, far) = (self.general(), self.label());
        self.push(M::Alu { op: Alu::Sub, wide: false, dst: left, a: limit, b: GSrc::R(value) });
        self.push(M::Alu { op: Alu::Add, wide: false, dst: end, a: value, b: GSrc::Imm(length) });
        self.push(M::Cmp { wide: false, a: left, b: GSrc::Imm(length) });
        self.push(M::JumpIf(Cond::Above, far));
        self.push(M::Mov { dst: end, src: limit });
        self.bind(far);
    }

    pub(super) fn next_counter(
        &mut self,
        counter: &Counter,
        value: R,
        start: super::Label,
        stretch: Option<&Stretch>,
        comps: &[usize],
    ) {
        let Some(stretch) = stretch else { return self.count(counter, value, None, start, comps) };
        self.count(counter, value, Some(stretch.end), start, comps);
        let done = self.label();
        self.push(M::Cmp { wide: false, a: stretch.end, b: GSrc::R(stretch.limit) });
        self.push(M::JumpIf(Cond::Equal, done));
        self.look();
        self.stretch(stretch, value);
        self.push(M::Jump(start));
        self.bind(done);
    }

    /// Goes on at `start` unless the counter is at `end`, or at its limit.
    fn count(&mut self, counter: &Counter, value: R, end: Option<R>, start: super::Label, comps: &[usize]) {
        let c = comps[0];
        let signed = self.scalar_of(counter.value).is_signed();
        if counter.step == 1 {
            self.push(M::Alu { op: Alu::Add, wide: false, dst: value, a: value, b: GSrc::Imm(1) });
            let to = match (end, self.lin(counter.to, c).constant()) {
                (Some(end), _) => GSrc::R(end),
                (None, Some(to)) => GSrc::Imm(to),
                (None, None) => GSrc::R(self.scalar_reg(counter.to, c)),
            };
            self.push(M::Cmp { wide: false, a: value, b: to });
            self.push(M::JumpIf(if signed { Cond::Less } else { Cond::Below }, start));
            return;
        }
        // The distance to the limit never wraps, the counter might.
        let to = end.unwrap_or_else(|| self.scalar_reg(counter.to, c));
        let left = self.general();
        self.push(M::Alu { op: Alu::Sub, wide: false, dst: left, a: to, b: GSrc::R(value) });
        self.push(M::Alu { op: Alu::Add, wide: false, dst: value, a: value, b: GSrc::Imm(counter.step as i32) });
        self.push(M::Cmp { wide: false, a: left, b: GSrc::Imm(counter.step as i32) });
        self.push(M::JumpIf(Cond::Above, start));
    }

    /// Lanes whose counter is at its end leave with the carried values.
    fn leave_counted(&mut self, inner: &'k Loop, live: &[R], left: &[R], comps: &[usize], stays: &[R]) {
        let before = self.active.exec.clone();
        let mut leaving = Vec::new();
        for (&c, &stays) in comps.iter().zip(stays) {
            let out = self.mask_minus(live[c], stays);
            leaving.push(out);
            self.active.exec[c] = Some(out);
        }
        let Some(frame) = self.loops.last() else { return };
        let moves: Vec<(Value, Value)> = inner
            .results
            .iter()
            .copied()
            .zip(inner.params.iter().copied())
            .zip(&frame.shared)
            .filter(|(_, shared)| !**shared)
            .map(|(pair, _)| pair)
            .collect();
        // What is made of carried values changes with them.
        let mark = self.enter_scope();
        self.assign(&moves, comps, true);
        self.leave_scope(mark);
        for (&c, &out) in comps.iter().zip(&leaving) {
            if !left.is_empty() {
                self.mask_or_into(left[c], left[c], out);
            }
            self.mask_minus_into(live[c], out);
        }
        self.active.exec = before;
    }

    /// The counter of a loop whose lanes part is one number, and so is its end.
    fn counts_together(&self, counter: &Counter) -> bool {
        [counter.value, counter.to].into_iter().all(|value| self.shape_of(value).is_uniform())
    }

    /// The counter for all lanes. It is not remembered, because the counter changes.
    fn vector_of_counter(&mut self, counter: &Counter, c: usize) -> R {
        let mark = self.enter_scope();
        let value = self.vector_of(counter.value, c);
        self.leave_scope(mark);
        value
    }

    fn start_counter_apart(&mut self, inner: &'k Loop, counter: &Counter, live: &[R], left: &[R], comps: &[usize]) {
        self.fresh(counter.value, comps);
        self.facts.uses[counter.value.index()] += 1;
        self.assign(&[(counter.value, counter.from)], comps, false);
        let ends = [counter.from, counter.to].map(|end| self.constant_of(end, comps[0]));
        let signed = self.scalar_of(counter.value).is_signed();
        if let (true, [Some(from), Some(to)]) = (self.counts_together(counter), ends)
            && (if signed { (from as i32) < to as i32 } else { (from as u32) < to as u32 })
        {
            return;
        }
        let mut stays = Vec::new();
        for &c in comps {
            let (value, to) = (self.vector_of_counter(counter, c), self.vector_of(counter.to, c));
            stays.push(self.mask_less(value, to, signed));
        }
        self.leave_counted(inner, live, left, comps, &stays);
        let masks: Vec<R> = comps.iter().map(|&c| live[c]).collect();
        let exit = self.loops.last().map(|frame| frame.exit);
        if let Some(exit) = exit {
            self.jump_if_none(&masks, exit);
        }
    }

    fn next_counter_apart(&mut self, inner: &'k Loop, counter: &Counter, live: &[R], left: &[R], comps: &[usize]) {
        let (mut stays, mut counted) = (Vec::new(), Vec::new());
        let is_scalar = self.is_scalar(counter.value);
        for &c in comps {
            let (value, to) = (self.vector_of_counter(counter, c), self.vector_of(counter.to, c));
            let distance = self.vec(ops::VPSUBD, to, Src::R(value));
            let step = self.constant(counter.step);
            stays.push(self.mask_less(step, distance, false));
            if !is_scalar {
                let next = self.lane_op(ops::VPADDD, value, value, Src::R(step));
                self.push(M::Vec(next));
            }
        }
        for &c in comps.iter().filter(|_| is_scalar) {
            let value = self.scalar_reg(counter.value, c);
            if !counted.contains(&value) {
                counted.push(value);
                let step = GSrc::Imm(counter.step as i32);
                self.push(M::Alu { op: Alu::Add, wide: false, dst: value, a: value, b: step });
            }
        }
        self.leave_counted(inner, live, left, comps, &stays);
    }

    /// Goes on with the next round where some lanes are still in the loop; behind the last one they leave with the carried values.
    fn next_counter_together(&mut self, inner: &'k Loop, counter: &Counter, start: super::Label, comps: &[usize]) {
        let Some(frame) = self.loops.last() else { return };
        let (live, left, exit) = (frame.live.clone(), frame.left.clone(), frame.exit);
        let masks: Vec<R> = comps.iter().map(|&c| live[c]).collect();
        self.jump_if_none(&masks, exit);
        let value = self.scalar_reg(counter.value, comps[0]);
        self.count(counter, value, None, start, comps);
        let nobody: Vec<R> = comps
            .iter()
            .map(|_| {
                let mask = self.new_mask();
                self.mask_fill(mask, false);
                mask
            })
            .collect();
        self.leave_counted(inner, &live, &left, comps, &nobody);
    }

    /// Makes vector forms of what a loop needs of the values from outside, before the loop.
    fn hoist(&mut self, inner: &'k Loop, comps: &[usize]) {
        let mut inside: Vec<Value> = inner.params.clone();
        inside.extend(inner.counter.iter().map(|counter| counter.value));
        let mut wanted: Vec<Value> = Vec::new();
        self.collect_wanted(&inner.body, comps, &mut inside, &mut wanted);
        inside.sort_unstable();
        wanted.sort_unstable();
        wanted.dedup();
        for value in wanted {
            if inside.binary_search(&value).is_ok() {
                continue;
            }
            for &c in comps {
                match self.rep(value, 0, c) {
                    Rep::General(lin) if self.scalar_of(value) != Scalar::Bool => {
                        let affine = matches!(self.shape_of(value).lane, Lane::Affine(_));
                        // Constants are memory operands, and ramps without a register too.
                        if !lin.reg.is_none() || (affine && comps.len() <= 4) {
                            self.vector_of(value, c);
                        }
                    }
                    Rep::Float(_) => {
                        self.vector_part(value, 0, c, 0);
                    }
                    _ => {}
                }
            }
        }
    }

    fn collect_wanted(&mut self, block: &'k Block, comps: &[usize], inside: &mut Vec<Value>, wanted: &mut Vec<Value>) {
        for inst in &block.insts {
            match inst {
                // Constants need no place of their own.
                Inst::Let(value, op @ Op::Const(_)) => self.define(*value, op, comps[0]),
                Inst::Let(value, op) => {
                    inside.push(*value);
                    if self.is_scalar(*value) || matches!(op, Op::Load { .. }) {
                        continue;
                    }
                    let first = match op {
                        Op::Binary(Binary::Sub | Binary::Div, a, _) => Some(*a),
                        Op::Select(_, _, no) => Some(*no),
                        _ => None,
                    };
                    visit_operands(op, &mut |operand| {
                        if self.is_scalar(operand) || Some(operand) == first {
                            wanted.push(operand);
                        }
                    });
                }
                Inst::Atomic { result, .. } => inside.extend(result),
                Inst::If { then, otherwise, results, .. } => {
                    inside.extend(results);
                    self.collect_wanted(then, comps, inside, wanted);
                    self.collect_wanted(otherwise, comps, inside, wanted);
                }
                Inst::Loop(inner) => {
                    inside.extend(inner.params.iter().chain(&inner.results));
                    inside.extend(inner.counter.iter().map(|counter| counter.value));
                    self.collect_wanted(&inner.body, comps, inside, wanted);
                }
                _ => {}
            }
        }
    }

    /// Lanes where `a` is less than `b`.
    pub(super) fn mask_less(&mut self, a: R, b: R, signed: bool) -> R {
        match self.facts.isa {
            super::Isa::Avx512 | super::Isa::Simd128 => {
                let dst = self.new_mask();
                let op = if signed { ops::VPCMPD } else { ops::VPCMPUD };
                let v = LaneOp { imm: Some(1), ..self.lane_op(op, dst, a, Src::R(b)) };
                self.push(M::Vec(v));
                dst
            }
            super::Isa::Avx2 if signed => self.vec(ops::VPCMPGTD, b, Src::R(a)),
            super::Isa::Avx2 => {
                let most = self.vec(ops::VPMAXUD, a, Src::R(b));
                let at_least = self.vec(ops::VPCMPEQD, most, Src::R(a));
                self.mask_other_than(at_least)
            }
        }
    }
}

/// The memory that a step reads, or writes (true).
fn accesses(inst: &Inst) -> Option<(Memory, bool)> {
    match inst {
        Inst::Let(_, Op::Load { address, .. }) => Some((address.memory, false)),
        Inst::Store { address, .. } | Inst::Atomic { address, .. } => Some((address.memory, true)),
        _ => None,
    }
}

/// The value that a step of a run makes.
fn defined(inst: &Inst) -> Option<Value> {
    match inst {
        Inst::Let(value, _) => Some(*value),
        Inst::Atomic { result, .. } => *result,
        _ => None,
    }
}

/// Only leaves the loop.
pub(super) fn breaks_only(block: &Block) -> bool {
    block.insts.is_empty() && matches!(block.end, End::Break(_))
}

/// Does nothing and gives nothing.
pub(super) fn falls_through(block: &Block) -> bool {
    block.insts.is_empty() && matches!(&block.end, End::Yield(values) if values.is_empty())
}

/// One way only leaves the loop, and the other one goes on.
fn only_leaves(then: &Block, otherwise: &Block) -> bool {
    (breaks_only(then) && falls_through(otherwise)) || (breaks_only(otherwise) && falls_through(then))
}

/// Arithmetic and `if cond { break }`, nothing else, then the next round.
fn is_plain_loop(body: &Block) -> bool {
    matches!(body.end, End::Continue(_))
        && body.insts.iter().all(|inst| match inst {
            Inst::Let(_, Op::Load { .. } | Op::Subgroup(..)) => false,
            Inst::Let(..) => true,
            Inst::If { then, otherwise, results, .. } => results.is_empty() && only_leaves(then, otherwise),
            _ => false,
        })
}

/// Vectors can't go through the block one after the other, or would lose by it.
fn needs_all(block: &Block) -> bool {
    block.insts.iter().any(|inst| match inst {
        Inst::If { then, otherwise, .. } => needs_all(then) || needs_all(otherwise),
        Inst::Loop(_) | Inst::Barrier(_) | Inst::Let(_, Op::Subgroup(..)) => true,
        _ => false,
    })
}

/// Some way through the block does not come out of its end.
pub(super) fn leaves(block: &Block) -> bool {
    !matches!(block.end, End::Yield(_))
        || block.insts.iter().any(|inst| match inst {
            Inst::If { then, otherwise, .. } => leaves(then) || leaves(otherwise),
            Inst::Loop(inner) => returns(&inner.body),
            _ => false,
        })
}

pub(super) fn returns(block: &Block) -> bool {
    block.end == End::Return
        || block.insts.iter().any(|inst| match inst {
            Inst::If { then, otherwise, .. } => returns(then) || returns(otherwise),
            Inst::Loop(inner) => returns(&inner.body),
            _ => false,
        })
}
