//! A workgroup of more vectors than one block should have: each part of the kernel between two barriers is a loop over pieces of
//! the workgroup, a few vectors at a time.
//!
//! Control flow around barriers is the same for all invocations and stays what it is. Values that all invocations share stay in
//! registers. Others that one part makes and another needs are made again where that is cheap, and else wait in a frame, where
//! every vector of the workgroup has its place.

use vyre_foundation::ir::Builtin;
use vyre_foundation::kernel::{Binary, Block, End, Inst, Loop, Op, Scalar, Value};

use super::super::asm::{Alu, Cond};
use super::super::context;
use super::super::hash::{Map, Set};
use super::super::isa::Isa;
use super::super::mir::{At, GSrc, M, R, Src};
use super::super::ops;
use super::super::shape::{Lane, Layout, Shapes, X, Y, Z, collect_ends};
use super::facts::{visit_inst_values, visit_operands};
use super::flow::returns;
use super::results::Written;
use super::value::{Lin, Rep};
use super::{Label, LoopFrame, Lower};

/// What the parts of a kernel know of each other.
pub(super) struct Regions<'k> {
    /// Vectors of the workgroup.
    vectors: u32,
    /// Axes on which they differ.
    varying: u8,
    /// Uses of each value in the whole kernel.
    uses: Vec<u32>,
    /// Where in the frame the first vector of a value lies.
    slots: Map<Value, u32>,
    /// Values that are cheaper to make again.
    again: Map<Value, &'k Op>,
    /// The frame's address.
    base: R,
    frame_bytes: u32,
    /// Places of results whose lines the first part asks for.
    results: Vec<Written<'k>>,
}

/// Where the values go that a block of regions ends with.
#[derive(Clone, Copy)]
struct Targets<'k> {
    results: &'k [Value],
    /// No other way leads there, so that the values need not move.
    only: bool,
}

/// The pieces of a workgroup that a part is run for.
#[derive(Clone, Copy)]
enum Pieces {
    All,
    /// The one that begins at this invocation.
    One(u32),
    /// Those that begin before this invocation.
    Below(Lin),
}

/// Every barrier is in control flow that is the same for all invocations, as far as is known here.
pub(in super::super) fn can_split(body: &Block, shapes: &Shapes) -> bool {
    let last = last_barrier(body);
    splits(&body.insts[..last], shapes, false)
}

/// The number of steps up to the last one with a barrier in it.
fn last_barrier(body: &Block) -> usize {
    body.insts.iter().rposition(has_barrier).map_or(0, |at| at + 1)
}

fn splits(insts: &[Inst], shapes: &Shapes, in_loop: bool) -> bool {
    insts.iter().all(|inst| match inst {
        Inst::If { cond, then, otherwise, .. } if is_structure(inst, in_loop) => {
            shapes.of(*cond).is_uniform()
                && splits(&then.insts, shapes, in_loop)
                && splits(&otherwise.insts, shapes, in_loop)
        }
        Inst::Loop(inner) if is_structure(inst, in_loop) => {
            !shapes.parts(inner) && splits(&inner.body.insts, shapes, true)
        }
        _ => true,
    })
}

/// Control flow that pieces of a workgroup can't go through one after the other.
fn is_structure(inst: &Inst, in_loop: bool) -> bool {
    let leaves = match inst {
        Inst::If { then, otherwise, .. } => [then, otherwise].into_iter().any(|block| {
            let mut ends = Vec::new();
            collect_ends(block, &mut ends);
            returns(block) || in_loop && !ends.is_empty()
        }),
        Inst::Loop(inner) => returns(&inner.body),
        _ => false,
    };
    leaves || has_barrier(inst)
}

pub(super) fn has_barrier(inst: &Inst) -> bool {
    match inst {
        Inst::Barrier(_) => true,
        Inst::If { then, otherwise, .. } => {
            [then, otherwise].into_iter().any(|block| block.insts.iter().any(has_barrier))
        }
        Inst::Loop(inner) => inner.body.insts.iter().any(has_barrier),
        _ => false,
    }
}

/// Shows every value that a step makes, the blocks in it included.
pub(super) fn visit_made(inst: &Inst, f: &mut dyn FnMut(Value)) {
    match inst {
        Inst::Let(value, _) => f(*value),
        Inst::Atomic { result, .. } => result.iter().for_each(|&value| f(value)),
        Inst::Store { .. } | Inst::Barrier(_) => {}
        Inst::If { then, otherwise, results, .. } => {
            results.iter().for_each(|&value| f(value));
            for block in [then, otherwise] {
                block.insts.iter().for_each(|inst| visit_made(inst, f));
            }
        }
        Inst::Loop(inner) => {
            inner.results.iter().chain(&inner.params).for_each(|&value| f(value));
            inner.counter.iter().for_each(|counter| f(counter.value));
            inner.body.insts.iter().for_each(|inst| visit_made(inst, f));
        }
    }
}

/// Some step, or one inside it, writes this memory.
fn writes(insts: &[&Inst], memory: vyre_foundation::kernel::Memory) -> bool {
    insts.iter().any(|inst| match inst {
        Inst::Store { address, .. } | Inst::Atomic { address, .. } => address.memory == memory,
        Inst::If { then, otherwise, .. } => {
            [then, otherwise].into_iter().any(|block| writes(&block.insts.iter().collect::<Vec<_>>(), memory))
        }
        Inst::Loop(inner) => writes(&inner.body.insts.iter().collect::<Vec<_>>(), memory),
        _ => false,
    })
}

impl<'k> Lower<'k> {
    /// The whole kernel for one workgroup, piece by piece.
    pub(super) fn regions(&mut self) {
        let size = self.facts.kernel.workgroup_size;
        let vectors = size.iter().product::<u32>().div_ceil(self.lanes());
        let along = if self.facts.tiling.layout == Layout::Group { size[0] / self.lanes() } else { vectors };
        let mut varying = if along > 1 { X } else { 0 };
        if self.facts.tiling.layout == Layout::Group {
            varying |= if size[1] > 1 { Y } else { 0 } | if size[2] > 1 { Z } else { 0 };
        }
        let base = self.general();
        self.push(M::Load { bytes: 8, signed: false, dst: base, at: At::new(R::CONTEXT, context::FRAME) });
        self.regions = Some(Regions {
            vectors,
            varying,
            uses: self.facts.uses.clone(),
            slots: Map::default(),
            again: Map::default(),
            base,
            frame_bytes: 0,
            results: self.results_to_ask_for(),
        });
        let end = self.label();
        self.block_end = end;
        let mark = self.enter_scope();
        let kernel = self.facts.kernel;
        let last = last_barrier(&kernel.body);
        if self.region(&kernel.body, last, None) {
            let tail: Vec<&'k Inst> = kernel.body.insts[last..].iter().collect();
            let tail = self.ahead(&tail);
            self.part(&tail, &[], true);
        }
        self.leave_scope(mark);
        self.bind(end);
        let bytes = self.regions.as_ref().map_or(0, |regions| regions.frame_bytes);
        self.frame_bytes = self.frame_bytes.max(bytes);
    }

    /// One value serves the whole workgroup.
    fn is_shared(&self, value: Value) -> bool {
        let varying = self.regions.as_ref().map_or(0, |regions| regions.varying);
        self.shape_of(value).axes & varying == 0
    }

    /// Emits the first steps of a block with barriers, and its end when they are all of them. False when it is known that
    /// nothing comes out.
    fn region(&mut self, block: &'k Block, count: usize, targets: Option<Targets<'k>>) -> bool {
        let in_loop = !self.loops.is_empty();
        let mut open: Vec<&'k Inst> = Vec::new();
        let mut sealed = false;
        for inst in &block.insts[..count] {
            match inst {
                // The part ends here, but what follows may still belong to the same pieces.
                Inst::Barrier(_) => sealed = true,
                Inst::If { cond, then, otherwise, results } if is_structure(inst, in_loop) => {
                    let rest = self.ahead(&open);
                    self.part(&rest, &[], false);
                    (open, sealed) = (Vec::new(), false);
                    if !self.region_branch(*cond, then, otherwise, results) {
                        return false;
                    }
                }
                Inst::Loop(inner) if is_structure(inst, in_loop) => {
                    let rest = self.ahead(&open);
                    (open, sealed) = (Vec::new(), false);
                    self.region_loop(inner, &rest);
                }
                inst => {
                    sealed |= self.is_wide(inst) && open.iter().any(|inst| self.is_wide(inst));
                    if std::mem::take(&mut sealed) {
                        let rest = self.ahead(&open);
                        self.part(&rest, &[], false);
                        open.clear();
                    }
                    open.push(inst);
                }
            }
        }
        let rest = self.ahead(&open);
        if count < block.insts.len() || std::ptr::eq(block, &self.facts.kernel.body) {
            self.part(&rest, &[], false);
            return true;
        }
        self.region_end(block, &rest, targets)
    }

    /// A loop that carries many vectors: two of them in one part would both have theirs in registers.
    fn is_wide(&self, inst: &Inst) -> bool {
        let Inst::Loop(inner) = inst else { return false };
        let vectors = inner.params.iter().filter(|&&param| self.shape_of(param).lane == Lane::Vary).count();
        vectors >= usize::from(self.facts.isa.registers()) / 4
    }

    fn region_end(&mut self, block: &'k Block, rest: &[&'k Inst], targets: Option<Targets<'k>>) -> bool {
        match &block.end {
            End::Yield(values) => {
                match targets {
                    Some(Targets { results, only: true }) => self.hand_over_names(results, values, rest),
                    Some(Targets { results, .. }) => self.hand_over(results, values, rest, &[]),
                    None => self.part(rest, &[], false),
                }
                true
            }
            End::Continue(values) | End::Break(values) => {
                let leaves = matches!(block.end, End::Break(_));
                let Some(frame) = self.loops.last() else { return false };
                let (next, exit, own) = (frame.next, frame.exit, std::ptr::eq(frame.body, block));
                let (to, rounds) = (if leaves { frame.results } else { frame.params }, frame.rounds);
                let shared = if leaves { frame.shared.clone() } else { vec![false; to.len()] };
                if let Some(left) = rounds {
                    self.hand_over_names(to, values, rest);
                    self.failed |= leaves && left;
                    if let (true, Some(frame)) = (leaves, self.loops.last_mut()) {
                        frame.rounds = Some(true);
                    }
                    return false;
                }
                self.hand_over(to, values, rest, &shared);
                if leaves {
                    self.push(M::Jump(exit));
                } else if !own {
                    self.push(M::Jump(next));
                }
                false
            }
            End::Return => {
                self.part(rest, &[], false);
                let end = self.block_end;
                self.push(M::Jump(end));
                false
            }
            End::Unreachable => {
                self.part(rest, &[], false);
                false
            }
        }
    }

    /// Emits a part and gives values to the names that they have from here on, except those of `skip`.
    fn hand_over(&mut self, to: &'k [Value], from: &'k [Value], rest: &[&'k Inst], skip: &[bool]) {
        let moves: Vec<(Value, Value)> = (to.iter().copied().zip(from.iter().copied()).enumerate())
            .filter(|&(at, (to, _))| !skip.get(at).copied().unwrap_or(false) && self.facts.uses[to.index()] > 0)
            .map(|(_, pair)| pair)
            .collect();
        let (same, mut apart): (Vec<_>, Vec<_>) = moves.into_iter().partition(|&(to, _)| self.is_shared(to));
        apart.retain(|&(to, from)| !self.is_in_place(to, from));
        self.part(rest, &apart, false);
        self.assign(&same, &[0], false);
    }

    /// As `hand_over`, where names of one round of a loop are known to follow those of another.
    fn hand_over_names(&mut self, to: &'k [Value], from: &'k [Value], rest: &[&'k Inst]) {
        let (same, apart): (Vec<_>, Vec<_>) =
            (to.iter().copied().zip(from.iter().copied())).partition(|&(to, _)| self.is_shared(to));
        self.part(rest, &apart, false);
        let reps: Vec<Rep> = same.iter().map(|&(to, from)| self.alias_of(to, from, 0)).collect();
        for ((to, _), rep) in same.into_iter().zip(reps) {
            self.set_rep(to, 0, 0, rep);
        }
    }

    /// Registers for values that the whole workgroup shares, places in the frame for the others.
    fn make_room(&mut self, value: Value) {
        if self.is_shared(value) {
            self.fresh(value, &[0]);
        } else {
            self.slot_of(value);
        }
    }

    fn slot_of(&mut self, value: Value) -> u32 {
        let parts = Self::parts(self.scalar_of(value)) as u32 * u32::from(self.width_of(value));
        let bytes = self.len().bytes() as u32;
        let Some(regions) = &mut self.regions else { return 0 };
        *regions.slots.entry(value).or_insert_with(|| {
            let at = regions.frame_bytes;
            regions.frame_bytes += parts * regions.vectors * bytes;
            at
        })
    }

    /// False when it is known that nothing comes out.
    fn region_branch(&mut self, cond: Value, then: &'k Block, otherwise: &'k Block, results: &'k [Value]) -> bool {
        let taken = self.constant_of(cond, 0).map(|bits| if bits != 0 { then } else { otherwise });
        let targets = Some(Targets { results, only: taken.is_some() });
        if let Some(taken) = taken {
            return self.region(taken, taken.insts.len(), targets);
        }
        for &result in results {
            self.make_room(result);
        }
        if self.loops.iter().any(|frame| frame.rounds.is_some()) && (leaves_round(then) || leaves_round(otherwise)) {
            // The rounds were counted without this way out.
            self.failed = true;
        }
        let (no, done) = (self.label(), self.label());
        let test = self.scalar_reg(cond, 0);
        self.push(M::Test { wide: false, a: test, b: test });
        self.push(M::JumpIf(Cond::Equal, no));
        let mark = self.enter_scope();
        if self.region(then, then.insts.len(), targets) {
            self.push(M::Jump(done));
        }
        self.leave_scope(mark);
        self.bind(no);
        let mark = self.enter_scope();
        self.region(otherwise, otherwise.insts.len(), targets);
        self.leave_scope(mark);
        self.bind(done);
        true
    }

    /// A loop with barriers; `rest` is the part before it.
    fn region_loop(&mut self, inner: &'k Loop, rest: &[&'k Inst]) {
        let all: Vec<usize> = (0..self.active.components.len()).collect();
        let rounds = self.known_rounds(inner, &all);
        let mut ends = Vec::new();
        collect_ends(&inner.body, &mut ends);
        let shared: Vec<bool> = (0..inner.params.len())
            .map(|position| {
                rounds.is_none()
                    && ends.iter().all(|(leaves, values)| !leaves || values[position] == inner.params[position])
                    && self.shape_of(inner.params[position]) == self.shape_of(inner.results[position])
            })
            .collect();
        for (position, (&param, &result)) in inner.params.iter().zip(&inner.results).enumerate() {
            if shared[position] || inner.counter.is_some() {
                self.facts.uses[param.index()] += self.facts.uses[result.index()];
            }
            self.make_room(param);
            if !shared[position] {
                self.make_room(result);
            } else if !self.is_shared(param) {
                let slot = self.slot_of(param);
                if let Some(regions) = &mut self.regions {
                    regions.slots.insert(result, slot);
                }
            }
        }
        if rounds.is_none() {
            self.stay_in_place(inner);
        }
        let (next, exit) = (self.label(), self.label());
        let frame = LoopFrame {
            shared: shared.clone(),
            rounds: rounds.map(|_| false),
            ..LoopFrame::together(inner, next, exit)
        };
        if let Some(rounds) = rounds {
            self.hand_over_names(&inner.params, &inner.init, rest);
            self.loops.push(frame);
            self.region_rounds(inner, rounds);
            return;
        }
        self.hand_over(&inner.params, &inner.init, rest, &[]);
        self.loops.push(frame);
        let start = self.label();
        if let Some(counter) = &inner.counter {
            let signed = self.scalar_of(counter.value).is_signed();
            self.fresh(counter.value, &[0]);
            let value = self.scalar_reg(counter.value, 0);
            let from = self.scalar_reg(counter.from, 0);
            self.push(M::Mov { dst: value, src: from });
            let (first, to) = (self.lin(counter.from, 0), self.lin(counter.to, 0));
            let runs = match (first.constant(), to.constant()) {
                (Some(first), Some(to)) if signed => first < to,
                (Some(first), Some(to)) => (first as u32) < to as u32,
                _ => false,
            };
            if !runs {
                // A loop without rounds has the values it was given.
                let run = self.label();
                let to = self.scalar_reg(counter.to, 0);
                self.push(M::Cmp { wide: false, a: value, b: GSrc::R(to) });
                self.push(M::JumpIf(if signed { Cond::Less } else { Cond::Below }, run));
                let mark = self.enter_scope();
                self.hand_over(&inner.results, &inner.params, &[], &shared);
                self.leave_scope(mark);
                self.push(M::Jump(exit));
                self.bind(run);
            }
        }
        let stretch = self.first_stretch(inner, 0);
        self.bind(start);
        let mark = self.enter_scope();
        if inner.counter.is_none() && inner.look.is_some() {
            self.look();
        }
        self.region(&inner.body, inner.body.insts.len(), None);
        self.leave_scope(mark);
        self.bind(next);
        match &inner.counter {
            Some(counter) => {
                let value = self.scalar_reg(counter.value, 0);
                self.next_counter(counter, value, start, stretch.as_ref(), &[0]);
                self.hand_over(&inner.results, &inner.params, &[], &shared);
            }
            None if ends.iter().any(|(leaves, _)| !leaves) => self.push(M::Jump(start)),
            None => {}
        }
        self.bind(exit);
        self.loops.pop();
        for (position, (&param, &result)) in inner.params.iter().zip(&inner.results).enumerate() {
            if shared[position] && self.is_shared(param) {
                let rep = self.rep(param, 0, 0);
                self.set_rep(result, 0, 0, rep);
            }
        }
    }

    /// Gives what a round makes of a carried value the place of that value in the frame, where nobody needs the old one from there on.
    fn stay_in_place(&mut self, inner: &'k Loop) {
        let End::Continue(next) = &inner.body.end else { return };
        let insts = &inner.body.insts;
        for (&param, &value) in inner.params.iter().zip(next) {
            let makes = |inst: &Inst| {
                let mut made = false;
                visit_made(inst, &mut |other| made |= other == value);
                made && !is_structure(inst, true)
            };
            let Some(at) = insts.iter().position(makes) else { continue };
            let mut needed = next.contains(&param);
            insts[at + 1..].iter().for_each(|inst| visit_inst_values(inst, &mut |used| needed |= used == param));
            let alike = self.shape_of(param).lane == self.shape_of(value).lane
                && self.shape_of(param).axes == self.shape_of(value).axes;
            // Cheap values are not kept at all.
            let waits = !self.is_scalar(value) && self.scalar_of(value) != Scalar::Bool;
            if needed || !alike || !waits || self.is_shared(param) {
                continue;
            }
            let slot = self.slot_of(param);
            if let Some(regions) = &mut self.regions {
                regions.slots.entry(value).or_insert(slot);
            }
        }
    }

    /// The place of a value in the frame is already that of another.
    fn is_in_place(&self, to: Value, from: Value) -> bool {
        let slot = |value: Value| self.regions.as_ref().and_then(|regions| regions.slots.get(&value));
        slot(to).is_some_and(|to| Some(to) == slot(from))
    }

    /// So many rounds of a loop, one after the other.
    fn region_rounds(&mut self, inner: &'k Loop, rounds: u32) {
        let mut now = inner.counter.as_ref().and_then(|counter| self.constant_of(counter.from, 0));
        for _ in 0..rounds {
            if let (Some(counter), Some(value)) = (&inner.counter, &mut now) {
                self.set_rep(counter.value, 0, 0, Rep::General(Lin::imm(*value as u32 as i32)));
                *value = value.wrapping_add(u64::from(counter.step));
            }
            self.region(&inner.body, inner.body.insts.len(), None);
        }
        let left = self.loops.pop().is_some_and(|frame| frame.rounds == Some(true));
        if !left {
            // Only a counter ends a loop without a break.
            self.failed |= inner.counter.is_none();
            self.hand_over_names(&inner.results, &inner.params, &[]);
        }
    }

    /// Emits what the whole workgroup shares once, and gives the other steps.
    fn ahead(&mut self, insts: &[&'k Inst]) -> Vec<&'k Inst> {
        let mut kept: Vec<&'k Inst> = Vec::new();
        let mut made: Set<Value> = Set::default();
        for &inst in insts {
            let once = match inst {
                Inst::Let(value, op) if self.is_shared(*value) => {
                    let mut ready = !matches!(op, Op::Subgroup(..) | Op::Matrix(_));
                    visit_operands(op, &mut |operand| ready &= !made.contains(&operand));
                    if let Op::Load { address, .. } = op {
                        // What is between may be why the place is known to be inside.
                        let ways = kept.iter().any(|inst| matches!(inst, Inst::If { .. } | Inst::Loop(_)));
                        ready &= !ways && !writes(insts, address.memory);
                    }
                    ready
                }
                _ => false,
            };
            if once {
                self.run(&[inst], &[0]);
                continue;
            }
            visit_made(inst, &mut |value| {
                made.insert(value);
            });
            kept.push(inst);
        }
        kept
    }

    /// Emits steps between two barriers for the whole workgroup, then moves values to their places in the frame. Invocations may
    /// return from the last part.
    fn part(&mut self, insts: &[&'k Inst], moves: &[(Value, Value)], last: bool) {
        if insts.is_empty() && moves.is_empty() {
            return;
        }
        let mut inside: Set<Value> = Set::default();
        for inst in insts {
            visit_made(inst, &mut |value| {
                inside.insert(value);
            });
        }
        let mut used: Map<Value, u32> = Map::default();
        let mut order: Vec<Value> = Vec::new();
        let mut note = |value: Value| {
            let count = used.entry(value).or_insert(0);
            *count += 1;
            if *count == 1 && !inside.contains(&value) {
                order.push(value);
            }
        };
        insts.iter().for_each(|inst| visit_inst_values(inst, &mut note));
        moves.iter().for_each(|&(_, from)| note(from));
        // What later parts need.
        let mut kept: Vec<Value> = Vec::new();
        for inst in insts {
            let again = match inst {
                Inst::Let(value, op) if self.is_cheap(*value, op) => Some((*value, op)),
                _ => None,
            };
            if let (Some((value, op)), Some(regions)) = (again, &mut self.regions) {
                regions.again.insert(value, op);
                continue;
            }
            let mut keep = |value: Value| {
                let more = self.regions.as_ref().map_or(0, |regions| regions.uses[value.index()]);
                if more > used.get(&value).copied().unwrap_or(0) && !self.is_shared(value) {
                    kept.push(value);
                }
            };
            match inst {
                Inst::Let(value, _) => keep(*value),
                Inst::Atomic { result, .. } => result.iter().for_each(|&value| keep(value)),
                Inst::If { results, .. } => results.iter().for_each(|&value| keep(value)),
                Inst::Loop(inner) => inner.results.iter().for_each(|&value| keep(value)),
                _ => {}
            }
        }
        let (pieces, insts) = match kept.is_empty() && moves.is_empty() {
            true => self.narrowed(insts),
            false => (Pieces::All, insts.to_vec()),
        };
        let results = self.regions.as_mut().map(|regions| std::mem::take(&mut regions.results)).unwrap_or_default();
        let whole = matches!(pieces, Pieces::All);
        self.pieces(pieces, |this| {
            let mut ready: Set<Value> = Set::default();
            for &value in &order {
                this.restore(value, &mut ready);
            }
            let all: Vec<usize> = (0..this.active.components.len()).collect();
            let skip = this.label();
            let outer = std::mem::replace(&mut this.block_end, skip);
            let mut skips = None;
            let kernel = this.facts.kernel;
            this.emit_steps(insts.iter().copied(), &kernel.body, &all, skip, &mut skips);
            if let Some(mark) = skips {
                this.leave_scope(mark);
            }
            if last {
                this.bind(skip);
            } else {
                this.failed |= skips.is_some();
            }
            this.block_end = outer;
            if whole {
                this.ask_for_results(&results, &insts);
            }
            let from: Vec<Value> = moves.iter().map(|&(_, from)| from).collect();
            // A place may be read by another move, but everything was read before.
            for (&(to, _), from) in moves.iter().zip(from) {
                this.save(to, from);
            }
            for &value in &kept {
                this.save(value, value);
            }
        });
    }

    /// A scalar that costs a few integer instructions, made of what every part has.
    fn is_cheap(&self, value: Value, op: &Op) -> bool {
        let pure = matches!(
            op,
            Op::Const(_)
                | Op::Builtin(_)
                | Op::Unary(..)
                | Op::Binary(..)
                | Op::Cast(_)
                | Op::BitCast(_)
                | Op::Select(..)
        );
        let Some(regions) = &self.regions else { return false };
        // A test of places says for which invocations a part is, and is no more to make than to keep.
        let tests = matches!(op, Op::Binary(_, a, _) if self.scalar_of(value) == Scalar::Bool && self.is_scalar(*a));
        let mut cheap = pure && (tests || self.is_scalar(value)) && !self.is_shared(value);
        visit_operands(op, &mut |operand| cheap &= self.is_shared(operand) || regions.again.contains_key(&operand));
        cheap
    }

    /// The components that have a register of their own for a value.
    fn holders(&self, value: Value) -> Vec<usize> {
        let axes = usize::from(self.shape_of(value).axes);
        (0..self.active.components.len()).filter(|&c| self.active.shared[axes][c] == c).collect()
    }

    /// Where a vector of a value lies in the frame.
    fn frame_at(&self, slot: u32, part: u32, c: usize) -> At {
        let (bytes, lanes) = (self.len().bytes(), self.lanes() as i32);
        let (base, vectors) = self.regions.as_ref().map_or((R::NONE, 0), |regions| (regions.base, regions.vectors));
        let line = self.position.line.plus(c as i32 * lanes);
        let disp = slot as i32 + (part * vectors) as i32 * bytes + line.add / lanes * bytes;
        At { base, index: line.reg, scale: (bytes / lanes) as u8, disp }
    }

    /// Makes a value of an earlier part known in this one.
    fn restore(&mut self, value: Value, ready: &mut Set<Value>) {
        if self.is_shared(value) || !ready.insert(value) {
            return;
        }
        let Some(regions) = &self.regions else { return };
        if let Some(&op) = regions.again.get(&value) {
            let mut operands = Vec::new();
            visit_operands(op, &mut |operand| operands.push(operand));
            for operand in operands {
                self.restore(operand, ready);
            }
            for c in self.holders(value) {
                self.active.current = vec![c];
                self.define(value, op, c);
            }
            return;
        }
        let Some(&slot) = regions.slots.get(&value) else {
            self.failed = true;
            return;
        };
        let scalar = self.scalar_of(value);
        let parts = Self::parts(scalar) as u32;
        for component in 0..self.width_of(value) {
            for c in self.holders(value) {
                let first = self.frame_at(slot, u32::from(component) * parts, c);
                let rep = if self.is_scalar(value) {
                    let r = self.general();
                    self.push(M::Load { bytes: if parts == 2 { 8 } else { 4 }, signed: false, dst: r, at: first });
                    Rep::General(Lin::reg(r))
                } else if scalar == Scalar::Bool && self.facts.isa == Isa::Avx512 {
                    let (r, mask) = (self.general(), self.new_mask());
                    self.push(M::Load { bytes: 4, signed: false, dst: r, at: first });
                    self.push(M::MaskFrom { dst: mask, src: r });
                    Rep::Mask(mask)
                } else {
                    let low = self.vec(ops::VMOVUPS, R::NONE, Src::At(first));
                    let high = match parts {
                        2 => {
                            let at = self.frame_at(slot, u32::from(component) * parts + 1, c);
                            self.vec(ops::VMOVUPS, R::NONE, Src::At(at))
                        }
                        _ => R::NONE,
                    };
                    if scalar == Scalar::Bool { Rep::Mask(low) } else { Rep::Vector(low, high) }
                };
                self.set_rep(value, component, c, rep);
            }
        }
    }

    /// Writes what `from` is in this part to the place of `to`.
    fn save(&mut self, to: Value, from: Value) {
        let slot = self.slot_of(to);
        let scalar = self.scalar_of(to);
        let parts = Self::parts(scalar) as u32;
        for component in 0..self.width_of(to) {
            for c in self.holders(to) {
                let first = self.frame_at(slot, u32::from(component) * parts, c);
                if self.is_scalar(to) {
                    let src = self.scalar_part(from, component, c);
                    self.push(M::Store { bytes: if parts == 2 { 8 } else { 4 }, src, at: first });
                    continue;
                }
                if scalar == Scalar::Bool && self.facts.isa == Isa::Avx512 {
                    let mask = self.mask_part(from, component, c);
                    let src = self.mask_bits(mask);
                    self.push(M::Store { bytes: 4, src, at: first });
                    continue;
                }
                for part in 0..parts {
                    let src = match scalar {
                        Scalar::Bool => self.mask_part(from, component, c),
                        _ => self.vector_part(from, component, c, part as usize),
                    };
                    let at = self.frame_at(slot, u32::from(component) * parts + part, c);
                    self.push(M::VStore { op: ops::VMOVUPS_STORE, len: self.len(), src, at, mask: R::NONE });
                }
            }
        }
    }

    /// The pieces that have something to do, where a part is only for the first invocations or for one: `if local_id < n`.
    fn narrowed(&mut self, insts: &[&'k Inst]) -> (Pieces, Vec<&'k Inst>) {
        let all = (Pieces::All, insts.to_vec());
        let size = self.facts.kernel.workgroup_size;
        let ([_, 1, 1], Some(branches)) = (size, self.branches_of_few(insts)) else { return all };
        let step = self.lanes() * self.active.components.len() as u32;
        let constant = |&(limit, equal): &(Value, bool)| {
            self.constant_of(limit, 0).map(|bits| (bits as u32).saturating_add(u32::from(equal)).min(size[0]))
        };
        match branches[..] {
            [(limit, false)] if self.constant_of(limit, 0).is_none() => (Pieces::Below(self.lin(limit, 0)), all.1),
            [(place, true)] => match self.constant_of(place, 0).map(|bits| bits as u32) {
                Some(place) if place < size[0] => (Pieces::One(place / step * step), all.1),
                _ => all,
            },
            _ => {
                let Some(limits) = branches.iter().map(constant).collect::<Option<Vec<u32>>>() else { return all };
                let limit = limits.into_iter().max().unwrap_or(0);
                if limit == 0 {
                    return (Pieces::Below(Lin::imm(0)), Vec::new());
                }
                let mut insts = all.1;
                // All invocations of these pieces are among the first.
                if let ([_], Some(Inst::If { then, .. })) = (&branches[..], insts.last())
                    && limit.is_multiple_of(step)
                    && matches!(then.end, End::Yield(_))
                {
                    insts.pop();
                    insts.extend(&then.insts);
                }
                (Pieces::Below(Lin::imm(limit as i32)), insts)
            }
        }
    }

    /// What the places of invocations are below, or equal to, in the branches of steps that do nothing outside of these.
    fn branches_of_few(&self, insts: &[&'k Inst]) -> Option<Vec<(Value, bool)>> {
        let op_of = |value: Value| {
            let here = insts.iter().find_map(|inst| match inst {
                Inst::Let(made, op) if *made == value => Some(op),
                _ => None,
            });
            here.or_else(|| self.regions.as_ref().and_then(|regions| regions.again.get(&value).copied()))
        };
        let is_place = |value: Value| {
            matches!(op_of(value), Some(Op::Builtin(Builtin::LocalId(0) | Builtin::LocalIndex)))
                && self.shape_of(value).lane == Lane::Affine(1)
        };
        let nothing =
            |block: &Block| block.insts.is_empty() && matches!(&block.end, End::Yield(values) if values.is_empty());
        let mut branches = Vec::new();
        for inst in insts {
            let cond = match inst {
                Inst::Let(_, Op::Load { .. } | Op::Subgroup(..) | Op::Matrix(_)) => return None,
                Inst::Let(..) => continue,
                Inst::If { cond, otherwise, results, .. } if results.is_empty() && nothing(otherwise) => cond,
                _ => return None,
            };
            let (limit, equal) = match op_of(*cond) {
                Some(&Op::Binary(Binary::Lt, a, b)) if is_place(a) => (b, false),
                Some(&Op::Binary(Binary::Gt, b, a)) if is_place(a) => (b, false),
                Some(&Op::Binary(Binary::Eq, a, b)) if is_place(a) => (b, true),
                Some(&Op::Binary(Binary::Eq, b, a)) if is_place(a) => (b, true),
                _ => return None,
            };
            let here = insts.iter().any(|inst| matches!(inst, Inst::Let(value, _) if *value == limit));
            if here || !self.shape_of(limit).is_uniform() || self.scalar_of(limit) != Scalar::U32 {
                return None;
            }
            branches.push((limit, equal));
        }
        (!branches.is_empty()).then_some(branches)
    }

    /// Emits something for each of the pieces.
    fn pieces(&mut self, pieces: Pieces, body: impl FnOnce(&mut Self)) {
        let size = self.facts.kernel.workgroup_size;
        let step = self.lanes() * self.active.components.len() as u32;
        let total = self.regions.as_ref().map_or(0, |regions| regions.vectors) * self.lanes();
        let end = match pieces {
            Pieces::One(_) => Lin::imm(0),
            Pieces::All => Lin::imm(total as i32),
            Pieces::Below(limit) => limit,
        };
        if end.constant() == Some(0) && !matches!(pieces, Pieces::One(_)) {
            return;
        }
        let outer = (self.position.x, self.position.y, self.position.z, self.bases.locals);
        let mark = self.enter_scope();
        let single = match pieces {
            Pieces::One(first) => Some(first),
            _ => end.constant().filter(|&end| end as u32 <= step).map(|_| 0),
        };
        let (again, done) = (self.label(), self.label());
        let mut places = [R::NONE; 3];
        let mut limit = GSrc::Imm(0);
        match single {
            Some(first) => {
                self.position.line = Lin::imm(first as i32);
                self.position.local = [Lin::imm(first as i32), Lin::imm(0), Lin::imm(0)];
            }
            None => {
                let line = self.general();
                self.push(M::Imm { dst: line, value: 0 });
                limit = match end.constant() {
                    Some(end) => GSrc::Imm(end),
                    None => {
                        // No further than the workgroup goes, and not at all where nobody is below.
                        let (most, least) = (self.materialise(end), self.general());
                        self.push(M::Imm { dst: least, value: u64::from(total) });
                        self.push(M::Cmp { wide: false, a: most, b: GSrc::Imm(total as i32) });
                        self.push(M::Cmov { cond: Cond::Below, dst: least, src: most });
                        self.push(M::Test { wide: false, a: least, b: least });
                        self.push(M::JumpIf(Cond::Equal, done));
                        GSrc::R(least)
                    }
                };
                self.position.line = Lin::reg(line);
                self.position.local = [Lin::imm(0); 3];
                let rows = self.facts.tiling.layout == Layout::Group;
                let along = if rows { size[0] } else { total };
                let (wide, high) = (along > step, rows && size[1] > self.facts.tiling.rows);
                let deep = rows && size[2] > 1;
                if wide && !high && !deep {
                    // Along one row the place is the number of the invocation.
                    self.position.local[0] = Lin::reg(line);
                } else {
                    for (axis, moves) in [wide, high, deep].into_iter().enumerate() {
                        if moves {
                            places[axis] = self.general();
                            self.push(M::Imm { dst: places[axis], value: 0 });
                            self.position.local[axis] = Lin::reg(places[axis]);
                        }
                    }
                }
                self.bind(again);
            }
        }
        let inner = self.enter_scope();
        self.begin_piece(outer.3);
        body(self);
        self.leave_scope(inner);
        (self.position.x, self.position.y, self.position.z, self.bases.locals) = outer;
        self.active.exec.fill(None);
        if let (None, Some(line)) = (single, Some(self.position.line.reg)) {
            self.next_piece(places, step);
            self.push(M::Alu { op: Alu::Add, wide: false, dst: line, a: line, b: GSrc::Imm(step as i32) });
            self.push(M::Cmp { wide: false, a: line, b: limit });
            self.push(M::JumpIf(Cond::Below, again));
            self.bind(done);
        }
        self.leave_scope(mark);
    }

    /// What the steps of a piece take its place from.
    fn begin_piece(&mut self, locals: R) {
        let size = self.facts.kernel.workgroup_size;
        let total: u32 = size.iter().product();
        let (lanes, line) = (self.lanes(), self.position.line);
        // In a line of invocations with several axes each lane finds its own place.
        if self.facts.tiling.layout == Layout::Group || (size[1] == 1 && size[2] == 1) {
            let [x, y, z] = self.position.local;
            self.position.x = self.sum(self.position.x, x);
            self.position.y = self.sum(self.position.y, y);
            self.position.z = self.sum(self.position.z, z);
        }
        if self.frame.lane_bytes > 0 {
            let first = self.materialise(line);
            let bytes = self.product(true, first, GSrc::Imm(self.frame.lane_bytes as i32));
            self.bases.locals = self.alu(Alu::Add, true, locals, GSrc::R(bytes));
            let scratch = self.scratch();
            self.push(M::Store { bytes: 4, src: first, at: At::new(scratch, context::FIRST) });
        }
        self.active.exec.fill(None);
        if !total.is_multiple_of(lanes) {
            // Only the last vector of the workgroup is not full.
            let last = self.active.components.len() - 1;
            let before = self.materialise(line.plus(last as i32 * lanes as i32));
            let left = self.general();
            let all = self.materialise(Lin::imm(total as i32));
            self.push(M::Alu { op: Alu::Sub, wide: false, dst: left, a: all, b: GSrc::R(before) });
            let mask = self.mask_below(left);
            self.active.exec[last] = Some(mask);
        }
    }

    fn sum(&mut self, a: Lin, b: Lin) -> Lin {
        match (a.reg.is_none(), b.reg.is_none()) {
            (_, true) => a.plus(b.add),
            (true, _) => b.plus(a.add),
            _ => Lin::reg(self.alu(Alu::Add, false, a.reg, GSrc::R(b.reg))).plus(a.add).plus(b.add),
        }
    }

    /// Along x, then to the next rows, then to the next layer.
    fn next_piece(&mut self, places: [R; 3], step: u32) {
        let [x, y, z] = places;
        let [width, height, _] = self.facts.kernel.workgroup_size;
        let done = self.label();
        let add = |this: &mut Self, r: R, by: u32| {
            this.push(M::Alu { op: Alu::Add, wide: false, dst: r, a: r, b: GSrc::Imm(by as i32) });
        };
        let ends = |this: &mut Self, r: R, end: u32, done: Label| {
            this.push(M::Cmp { wide: false, a: r, b: GSrc::Imm(end as i32) });
            this.push(M::JumpIf(Cond::Below, done));
            this.push(M::Imm { dst: r, value: 0 });
        };
        if !x.is_none() {
            add(self, x, step);
            ends(self, x, width, done);
        }
        if !y.is_none() {
            add(self, y, self.facts.tiling.rows);
            ends(self, y, height, done);
        }
        if !z.is_none() {
            add(self, z, 1);
        }
        self.bind(done);
    }
}

/// Some way through the block leaves the loop that it is in, or the kernel.
fn leaves_round(block: &Block) -> bool {
    let mut ends = Vec::new();
    collect_ends(block, &mut ends);
    returns(block) || !ends.is_empty()
}
