//! The frame of the code: over the rows or the workgroups of a launch, a block of vectors at a time.

use std::rc::Rc;

use vyre_foundation::ir::Builtin;
use vyre_foundation::kernel::{Binary, Inst, Memory, Op, Value};

use super::super::asm::{Alu, Cond, Label, Shift};
use super::super::context;
use super::super::emit::{ARG_X, ARG_X_END, ARG_Y, ARG_Z};
use super::super::isa::Isa;
use super::super::mir::{At, GSrc, M, R};
use super::super::shape::Layout;
use super::super::visit;
use super::active::Component;
use super::assume::Plan;
use super::facts::{looks, used_buffers, visit_operands};
use super::value::Lin;
use super::{Lower, Tiling};

/// Bytes of a line of a cache.
const LINE: i64 = 64;

/// How deep a place in memory is looked into.
const DEEPEST: u32 = 12;

/// Where the block at hand is in the launch.
pub(super) struct Position {
    /// First invocation of the block along x, or first of the workgroup.
    pub(super) x: Lin,
    pub(super) y: Lin,
    pub(super) z: Lin,
    pub(super) groups: [Lin; 3],
    /// Where the piece of a workgroup begins along x, y and z, and in the line of its invocations.
    pub(super) local: [Lin; 3],
    pub(super) line: Lin,
}

impl Position {
    pub(super) fn new() -> Position {
        let zero = Lin::imm(0);
        Position { x: zero, y: zero, z: zero, groups: [zero; 3], local: [zero; 3], line: zero }
    }
}

impl<'k> Lower<'k> {
    pub(super) fn function(&mut self) {
        self.bases.zeros = self.general();
        self.push(M::Load { bytes: 8, signed: false, dst: self.bases.zeros, at: At::new(R::CONTEXT, context::ZEROS) });
        if self.frame.shared_bytes > 0 {
            self.bases.shared = self.general();
            let at = At::new(R::CONTEXT, context::SHARED);
            self.push(M::Load { bytes: 8, signed: false, dst: self.bases.shared, at });
        }
        if self.frame.lane_bytes > 0 {
            self.bases.locals = self.general();
            let at = At::new(R::CONTEXT, context::LOCALS);
            self.push(M::Load { bytes: 8, signed: false, dst: self.bases.locals, at });
        }
        if looks(&self.facts.kernel.body) {
            self.bases.stop = self.general();
            self.push(M::Load {
                bytes: 8,
                signed: false,
                dst: self.bases.stop,
                at: At::new(R::CONTEXT, context::STOP),
            });
        }
        let mut used = vec![false; self.facts.kernel.buffers.len()];
        used_buffers(&self.facts.kernel.body, &mut used);
        for (index, used) in used.into_iter().enumerate() {
            if used {
                let r = self.general();
                let at = At::new(R::CONTEXT, context::BUFFERS + 16 * index as i32);
                self.push(M::Load { bytes: 8, signed: false, dst: r, at });
                self.bases.buffers[index] = Some(r);
            }
        }
        for (axis, disp) in [(1, ARG_Y), (2, ARG_Z)] {
            let r = self.general();
            self.push(M::Load { bytes: 4, signed: false, dst: r, at: At::new(R::STACK, disp) });
            self.position.groups[axis] = Lin::reg(r);
        }
        let size = self.facts.kernel.workgroup_size;
        self.position.y = self.scaled(self.position.groups[1], size[1]);
        self.position.z = self.scaled(self.position.groups[2], size[2]);
        self.clear_totals();
        self.fill_tables();
        match self.facts.tiling.layout {
            Layout::Rows | Layout::Single => self.layers(),
            Layout::Group | Layout::Line => self.groups(),
        }
        self.add_totals();
        self.note_over();
        let stop = self.stop_label;
        if self.bases.stop.is_none() {
            self.bind(stop);
            return;
        }
        let end = self.label();
        self.push(M::Jump(end));
        self.bind(stop);
        let ended = self.general();
        self.push(M::Imm { dst: ended, value: 1 });
        self.push(M::Store { bytes: 8, src: ended, at: At::new(R::CONTEXT, context::ENDED) });
        self.bind(end);
    }

    pub(super) fn scaled(&mut self, lin: Lin, by: u32) -> Lin {
        if by == 1 {
            return lin;
        }
        let from = self.materialise(lin);
        let r = self.general();
        self.push(M::Mul { wide: false, dst: r, a: from, b: GSrc::Imm(by as i32) });
        Lin::reg(r)
    }

    pub(super) fn body(&mut self) {
        if self.facts.tiling.layout.is_along_rows() && self.frame.lane_bytes > 0 {
            self.clear_locals();
        }
        let all: Vec<usize> = (0..self.active.components.len()).collect();
        let end = self.label();
        self.block_end = end;
        let mark = self.enter_scope();
        let kernel = self.facts.kernel;
        self.block(&kernel.body, &all, None);
        self.leave_scope(mark);
        self.bind(end);
    }

    /// The rows of one layer of the workgroups after the other.
    pub(super) fn layers(&mut self) {
        let depth = self.facts.kernel.workgroup_size[2];
        if depth == 1 {
            return self.rows();
        }
        let (layer, again) = (self.general(), self.label());
        self.push(M::Imm { dst: layer, value: 0 });
        let first = self.materialise(self.position.z);
        self.bind(again);
        let mark = self.enter_scope();
        let z = self.general();
        self.push(M::Alu { op: Alu::Add, wide: false, dst: z, a: first, b: GSrc::R(layer) });
        (self.position.z, self.position.local[2]) = (Lin::reg(z), Lin::reg(layer));
        self.rows();
        self.leave_scope(mark);
        self.push(M::Alu { op: Alu::Add, wide: false, dst: layer, a: layer, b: GSrc::Imm(1) });
        self.push(M::Cmp { wide: false, a: layer, b: GSrc::Imm(depth as i32) });
        self.push(M::JumpIf(Cond::Below, again));
    }

    /// Behind the last invocation of a row, and its first.
    pub(super) fn ends_of_row(&mut self) -> [R; 2] {
        let size = self.facts.kernel.workgroup_size[0];
        [ARG_X_END, ARG_X].map(|disp| {
            let dst = self.general();
            self.push(M::Load { bytes: 4, signed: false, dst, at: At::new(R::STACK, disp) });
            if size != 1 {
                self.push(M::Mul { wide: false, dst, a: dst, b: GSrc::Imm(size as i32) });
            }
            dst
        })
    }

    /// The invocations of whole rows.
    pub(super) fn rows(&mut self) {
        let size = self.facts.kernel.workgroup_size;
        let Tiling { layout, rows, .. } = self.facts.tiling;
        let [mut end, mut first] = self.ends_of_row();
        let origin_y = self.position.y;
        let stretch = (size[1] / rows > 1 && self.lies_across()).then(|| {
            let (last, next) = (end, self.label());
            (first, end) = self.first_stretch_of_row(first, last, next);
            (last, next)
        });
        let row_loop = (size[1] / rows > 1).then(|| {
            let row = self.general();
            self.push(M::Imm { dst: row, value: 0 });
            let label = self.label();
            self.bind(label);
            (row, label)
        });
        let mark = self.enter_scope();
        if let Some((row, _)) = row_loop {
            let y = self.general();
            let base = self.materialise(origin_y);
            self.push(M::Alu { op: Alu::Add, wide: false, dst: y, a: base, b: GSrc::R(row) });
            self.position.y = Lin::reg(y);
        }
        let x = self.general();
        self.push(M::Mov { dst: x, src: first });
        self.position.x = Lin::reg(x);
        if layout == Layout::Single {
            self.invocations_of_row(x, end);
        } else {
            self.blocks_of_row(x, end);
        }
        self.leave_scope(mark);
        if let Some((row, label)) = row_loop {
            self.push(M::Alu { op: Alu::Add, wide: false, dst: row, a: row, b: GSrc::Imm(rows as i32) });
            self.push(M::Cmp { wide: false, a: row, b: GSrc::Imm(size[1] as i32) });
            self.push(M::JumpIf(Cond::Below, label));
        }
        if let Some((last, next)) = stretch {
            self.push(M::Mov { dst: first, src: end });
            self.push(M::Cmp { wide: false, a: first, b: GSrc::R(last) });
            self.push(M::JumpIf(Cond::Below, next));
        }
    }

    /// One invocation after the other.
    fn invocations_of_row(&mut self, x: R, end: R) {
        let (again, done) = (self.label(), self.label());
        self.push(M::Cmp { wide: false, a: x, b: GSrc::R(end) });
        self.push(M::JumpIf(Cond::AboveEqual, done));
        self.bind(again);
        let inner = self.enter_scope();
        self.set_components(vec![Component { x: 0, y: 0, z: 0 }]);
        self.body();
        self.leave_scope(inner);
        self.push(M::Alu { op: Alu::Add, wide: false, dst: x, a: x, b: GSrc::Imm(1) });
        self.push(M::Cmp { wide: false, a: x, b: GSrc::R(end) });
        self.push(M::JumpIf(Cond::Below, again));
        self.bind(done);
    }

    /// Vectors: full blocks first, then single ones with a mask.
    fn blocks_of_row(&mut self, x: R, end: R) {
        let Tiling { vectors, rows, .. } = self.facts.tiling;
        let (main, tail, done) = (self.label(), self.label(), self.label());
        let (mut plan, mut streams) = (Plan::default(), Plan::default());
        let even = if self.facts.isa == Isa::Simd128 { None } else { self.plan_even() };
        let shapes = even.as_ref().map(|(shapes, _)| shapes.clone());
        if vectors > 1 {
            self.active.even = shapes.clone();
            streams = self.plan_streams();
            self.active.even = None;
            plan = self.plan();
        } else if self.facts.isa != Isa::Simd128 {
            plan = Some(self.plan()).filter(|plan| plan.is_worth_one(vectors)).unwrap_or_default();
        }
        self.streams.written = streams.written();
        // Where a vector that is done alone ends at the latest, and where blocks begin that write past the caches.
        let apart = (!streams.streams.is_empty()).then(|| (self.general(), self.label()));
        // A block that is not inside of what the kernel sets as limits goes vector by vector; one where more was taken as settled, as any.
        let more = streams.settles_more(&plan) || even.is_some();
        // Where a block is tried first.
        let (top, single) = if even.is_some() { (self.label(), self.label()) } else { (main, tail) };
        let top = if even.is_none() && vectors == 1 { tail } else { top };
        // Where the vector ends that was last found to be at an edge; at the next edge, only if that is elsewhere, one vector is done alone.
        let at_edge = even.as_ref().filter(|(_, plan)| vectors > 1 && plan.is_short()).map(|_| self.general());
        if let Some(at_edge) = at_edge {
            self.push(M::Mov { dst: at_edge, src: end });
        }
        if let Some((until, stream)) = apart {
            self.push(M::Mov { dst: until, src: end });
            self.jump_if_streaming(Cond::Equal, top);
            if self.may_begin_anywhere() && even.is_none() {
                self.first_aligned(&streams, rows, (x, until, end));
                self.push(M::Cmp { wide: false, a: until, b: GSrc::R(x) });
                self.push(M::JumpIf(Cond::NotEqual, tail));
                self.push(M::Mov { dst: until, src: end });
            }
            self.bind(stream);
            let again = self.label();
            self.bind(again);
            let inner = self.enter_scope();
            self.active.even = shapes.clone();
            self.begin_block(x, end, single);
            self.assume(&streams, if more { top } else { tail });
            self.assume_aligned(&streams, top);
            self.end_block(x);
            self.active.even = None;
            self.push(M::Jump(again));
            self.leave_scope(inner);
        }
        if let Some((_, plan)) = &even {
            self.bind(top);
            let inner = self.enter_scope();
            self.active.even = shapes;
            self.begin_block(x, end, single);
            self.assume(plan, single);
            self.end_block(x);
            if let Some((_, stream)) = apart {
                self.jump_if_streaming(Cond::NotEqual, stream);
            }
            self.push(M::Jump(top));
            self.leave_scope(inner);
            self.bind(single);
            if vectors * rows > 1 && plan.is_short() {
                self.whole_vector_alone(plan, (x, end), top);
            }
            self.active.even = None;
        }
        if let Some(at_edge) = at_edge {
            self.push(M::Cmp { wide: false, a: at_edge, b: GSrc::R(x) });
            self.push(M::Lea { wide: false, dst: at_edge, at: At::new(x, self.lanes() as i32) });
            self.push(M::JumpIf(Cond::NotEqual, tail));
        }
        if vectors > 1 {
            self.bind(main);
            let inner = self.enter_scope();
            self.begin_block(x, end, tail);
            // A block at the edge goes vector by vector.
            self.assume(&plan, tail);
            self.end_block(x);
            if let Some(at_edge) = at_edge {
                self.push(M::Mov { dst: at_edge, src: x });
            }
            if let Some((_, stream)) = apart.filter(|_| more) {
                self.jump_if_streaming(Cond::NotEqual, stream);
            }
            self.push(M::Jump(top));
            self.leave_scope(inner);
        }
        self.bind(tail);
        let inner = self.enter_scope();
        self.push(M::Cmp { wide: false, a: x, b: GSrc::R(end) });
        self.push(M::JumpIf(Cond::AboveEqual, done));
        // Where no limit was settled a block is not whole because the row ends.
        let again = if even.is_none() && (vectors == 1 || plan.is_empty()) { tail } else { top };
        let (limit, after) = (apart.map_or(end, |(until, _)| until), self.label());
        if plan.is_worth_one(vectors) && self.facts.isa != Isa::Simd128 {
            self.whole_vector_alone(&plan, (x, limit), after);
        }
        self.vector_alone(x, limit);
        self.bind(after);
        if let Some((until, stream)) = apart {
            self.push(M::Cmp { wide: false, a: x, b: GSrc::R(until) });
            self.push(M::Cmov { cond: Cond::Above, dst: x, src: until });
            self.push(M::Mov { dst: until, src: end });
            self.jump_if_streaming(Cond::Equal, again);
            self.push(M::Jump(stream));
        } else {
            self.push(M::Jump(again));
        }
        self.leave_scope(inner);
        self.bind(done);
    }

    /// The first invocation and the end of a stretch of one block, the first one now and others each time the code comes to `next`.
    fn first_stretch_of_row(&mut self, first: R, last: R, next: Label) -> (R, R) {
        let (from, to) = (self.general(), self.general());
        self.push(M::Mov { dst: from, src: first });
        self.bind(next);
        self.push(M::Lea { wide: false, dst: to, at: At::new(from, self.block_step()) });
        self.push(M::Cmp { wide: false, a: to, b: GSrc::R(last) });
        self.push(M::Cmov { cond: Cond::Above, dst: to, src: last });
        (from, to)
    }

    /// Something is read or written of which neighbours along x lie in different lines of memory, and those of the next rows in the same: all rows
    /// of a workgroup are done for a block before the next block, or else the lines would be gone from the caches when the next row comes. A
    /// kernel that loops spends its time otherwise.
    fn lies_across(&self) -> bool {
        let (mut across, mut loops) = (false, false);
        visit(&self.facts.kernel.body, &mut |inst| {
            loops |= matches!(inst, Inst::Loop(_));
            let (Inst::Let(_, Op::Load { address, .. }) | Inst::Store { address, .. }) = inst else { return };
            let far = self.step_of(address).is_none_or(|step| i64::from(step) >= LINE);
            let down = address.terms.iter().try_fold(0, |sum: i64, &(index, stride)| {
                Some(sum.saturating_add(self.step_down(index, DEEPEST)?.saturating_mul(stride.into())))
            });
            let buffer = matches!(address.memory, Memory::Buffer(_));
            across |= buffer && far && down.is_some_and(|down| 0 < down && down < LINE);
        });
        across && !loops
    }

    /// How much a value grows from one row to the next, where that is known.
    fn step_down(&self, value: Value, deep: u32) -> Option<i64> {
        let op = self.facts.makers.ops[value.index()].filter(|_| deep > 0)?;
        let of = |value: &Value| self.step_down(*value, deep - 1);
        let constant = |value: &Value| match self.facts.makers.ops[value.index()] {
            Some(Op::Const(literal)) => u32::try_from(literal.bits()).ok().map(i64::from),
            _ => None,
        };
        match op {
            Op::Builtin(Builtin::GlobalId(1) | Builtin::LocalId(1)) => Some(1),
            Op::Builtin(_) | Op::Const(_) | Op::Length(_) => Some(0),
            Op::Cast(a) | Op::BitCast(a) => of(a),
            Op::Binary(Binary::Add, a, b) => Some(of(a)?.saturating_add(of(b)?)),
            Op::Binary(Binary::Sub, a, b) => Some(of(a)?.saturating_sub(of(b)?)),
            Op::Binary(Binary::Shl, a, b) if constant(b).is_some() => {
                Some(of(a)?.saturating_mul(1 << (constant(b)? & 31)))
            }
            Op::Binary(Binary::Mul, a, b) if constant(b).is_some() => Some(of(a)?.saturating_mul(constant(b)?)),
            Op::Binary(Binary::Mul, a, b) if constant(a).is_some() => Some(of(b)?.saturating_mul(constant(a)?)),
            op => {
                let mut same = true;
                visit_operands(op, &mut |operand| same &= of(&operand) == Some(0));
                same.then_some(0)
            }
        }
    }

    /// Invocations of a block along x.
    pub(super) fn block_step(&self) -> i32 {
        (self.facts.tiling.vectors * self.lanes()) as i32
    }

    /// Goes to `tail` where the row has no whole block any more.
    pub(super) fn begin_block(&mut self, x: R, end: R, tail: Label) {
        let Tiling { vectors, rows, .. } = self.facts.tiling;
        let next = self.general();
        self.push(M::Lea { wide: false, dst: next, at: At::new(x, self.block_step()) });
        self.push(M::Cmp { wide: false, a: next, b: GSrc::R(end) });
        self.push(M::JumpIf(Cond::Above, tail));
        self.set_components((0..rows).flat_map(|y| (0..vectors).map(move |x| Component { x, y, z: 0 })).collect());
    }

    /// The kernel for the block from `x` on, which is then the next one's.
    pub(super) fn end_block(&mut self, x: R) {
        self.body();
        self.assume_nothing();
        self.push(M::Alu { op: Alu::Add, wide: false, dst: x, a: x, b: GSrc::Imm(self.block_step()) });
    }

    /// The kernel for one vector of each row where it is inside all bounds, though a block is not; `after` is where the code goes on then.
    pub(super) fn whole_vector_alone(&mut self, plan: &Plan<'k>, (x, limit): (R, R), after: Label) {
        let (at_edge, mark) = (self.label(), self.enter_scope());
        let next = self.general();
        self.push(M::Lea { wide: false, dst: next, at: At::new(x, self.lanes() as i32) });
        self.push(M::Cmp { wide: false, a: next, b: GSrc::R(limit) });
        self.push(M::JumpIf(Cond::Above, at_edge));
        self.set_components((0..self.facts.tiling.rows).map(|y| Component { x: 0, y, z: 0 }).collect());
        self.assume(plan, at_edge);
        self.body();
        self.assume_nothing();
        self.push(M::Alu { op: Alu::Add, wide: false, dst: x, a: x, b: GSrc::Imm(self.lanes() as i32) });
        self.leave_scope(mark);
        self.push(M::Jump(after));
        self.bind(at_edge);
    }

    /// The kernel for one vector of each row, which ends at `limit` at the latest.
    pub(super) fn vector_alone(&mut self, x: R, limit: R) {
        let rows = self.facts.tiling.rows;
        self.set_components((0..rows).map(|y| Component { x: 0, y, z: 0 }).collect());
        let left = self.general();
        self.push(M::Alu { op: Alu::Sub, wide: false, dst: left, a: limit, b: GSrc::R(x) });
        let mask = self.mask_below(left);
        self.active.exec = vec![Some(mask); rows as usize];
        self.body();
        self.push(M::Alu { op: Alu::Add, wide: false, dst: x, a: x, b: GSrc::Imm(self.lanes() as i32) });
    }

    /// One workgroup after the other, each as one block or in pieces.
    pub(super) fn groups(&mut self) {
        let size = self.facts.kernel.workgroup_size;
        let lanes = self.lanes();
        let (again, done) = (self.label(), self.label());
        let group = self.general();
        self.push(M::Load { bytes: 4, signed: false, dst: group, at: At::new(R::STACK, ARG_X) });
        let end = self.general();
        self.push(M::Load { bytes: 4, signed: false, dst: end, at: At::new(R::STACK, ARG_X_END) });
        self.bind(again);
        let mark = self.enter_scope();
        self.push(M::Cmp { wide: false, a: group, b: GSrc::R(end) });
        self.push(M::JumpIf(Cond::AboveEqual, done));
        self.position.groups[0] = Lin::reg(group);
        self.position.x = self.scaled(Lin::reg(group), size[0]);
        let total = size[0] * size[1] * size[2];
        if self.facts.tiling.vectors > 0 {
            self.clear_private();
            self.group_in_pieces();
            return self.next_group(group, again, done, mark);
        }
        let components = self.whole_group();
        let (mut plan, mut even) = (Plan::default(), None);
        if self.facts.isa != Isa::Simd128 {
            (plan, even) = (self.plan(), self.plan_even());
        }
        let mut versions = vec![None];
        if plan.is_worth_two(components.len()) {
            versions.insert(0, Some((None, plan)));
        }
        if let Some((shapes, plan)) = even.filter(|(_, plan)| plan.is_little_code(components.len())) {
            versions.insert(0, Some((Some(shapes), plan)));
        }
        let next = self.label();
        for version in versions {
            self.active.even = version.as_ref().and_then(|(shapes, _)| shapes.clone());
            self.set_components(components.clone());
            let inner = self.enter_scope();
            if !total.is_multiple_of(lanes) {
                let last = self.active.exec.len() - 1;
                let bits = self.general();
                self.push(M::Imm { dst: bits, value: u64::from(total % lanes) });
                let mask = self.mask_below(bits);
                self.active.exec[last] = Some(mask);
            }
            let edge = self.label();
            if let Some((_, plan)) = &version {
                self.assume(plan, edge);
            }
            self.clear_private();
            self.body();
            self.note_over();
            self.leave_scope(inner);
            if version.is_some() {
                self.assume_nothing();
                self.active.even = None;
                self.drop_writes();
                self.push(M::Jump(next));
            }
            self.bind(edge);
        }
        self.bind(next);
        self.next_group(group, again, done, mark);
    }

    /// All vectors of a workgroup.
    pub(super) fn whole_group(&self) -> Vec<Component> {
        let (size, lanes) = (self.facts.kernel.workgroup_size, self.lanes());
        match self.facts.tiling.layout {
            Layout::Group => (0..size[2])
                .flat_map(|z| (0..size[1]).flat_map(move |y| (0..size[0] / lanes).map(move |x| Component { x, y, z })))
                .collect(),
            _ => (0..size.iter().product::<u32>().div_ceil(lanes)).map(|x| Component { x, y: 0, z: 0 }).collect(),
        }
    }

    /// The vectors of a piece of a workgroup.
    pub(super) fn piece(&self) -> Vec<Component> {
        let Tiling { vectors, rows, .. } = self.facts.tiling;
        (0..rows).flat_map(|y| (0..vectors).map(move |x| Component { x, y, z: 0 })).collect()
    }

    /// A workgroup piece by piece; twice where its code may be simpler as long as it reaches no edge.
    fn group_in_pieces(&mut self) {
        let next = self.label();
        let plan = match self.facts.isa {
            Isa::Simd128 => None,
            _ => self.plan_even().map(|(shapes, plan)| (Some(shapes), plan)).or_else(|| {
                let plan = self.plan();
                plan.is_worth_two(self.piece().len()).then_some((None, plan))
            }),
        };
        if let Some((shapes, plan)) = plan {
            let (edge, mark) = (self.label(), self.enter_scope());
            self.active.even = shapes;
            self.assume_of_group(&plan, edge);
            self.active.even = Some(Rc::new(self.shapes_of_settled()));
            self.set_components(self.piece());
            self.regions();
            self.note_over();
            self.leave_scope(mark);
            self.assume_nothing();
            self.active.even = None;
            self.drop_writes();
            self.push(M::Jump(next));
            self.bind(edge);
        }
        self.set_components(self.piece());
        self.regions();
        self.bind(next);
    }

    pub(super) fn next_group(&mut self, group: R, again: Label, done: Label, mark: usize) {
        self.push(M::Alu { op: Alu::Add, wide: false, dst: group, a: group, b: GSrc::Imm(1) });
        self.push(M::Jump(again));
        self.leave_scope(mark);
        self.bind(done);
    }

    /// What a built-in is for a component: the value of its first lane.
    pub(super) fn builtin(&mut self, builtin: Builtin, c: usize) -> Lin {
        let size = self.facts.kernel.workgroup_size;
        let Component { x, y, z } = self.active.components[c];
        let lanes = self.lanes();
        let rows = self.facts.tiling.layout.is_along_rows();
        // In one line of a workgroup without extent along x, every lane is at 0.
        let folded = self.facts.tiling.layout == Layout::Line && (size[1] > 1 || size[2] > 1);
        let x = if folded { 0 } else { x };
        match builtin {
            Builtin::LocalIndex if !rows => {
                let x = self.active.components[c].x;
                self.position.line.plus((x * lanes + size[0] * y + size[0] * size[1] * z) as i32)
            }
            Builtin::GlobalId(0) => self.position.x.plus((x * lanes) as i32),
            Builtin::GlobalId(1) => self.position.y.plus(y as i32),
            Builtin::GlobalId(_) => self.position.z.plus(z as i32),
            Builtin::LocalId(0) if rows => {
                let at = self.position.x.plus((x * lanes) as i32);
                let at = self.materialise(at);
                Lin::reg(self.alu(Alu::And, false, at, GSrc::Imm(size[0] as i32 - 1)))
            }
            Builtin::LocalIndex => self.builtin(Builtin::LocalId(0), c),
            Builtin::LocalId(_) if folded => Lin::imm(0),
            Builtin::LocalId(0) => self.position.local[0].plus((x * lanes) as i32),
            Builtin::LocalId(1) if rows => {
                // The row within the workgroup: rows of a block never leave it.
                let at = self.position.y.plus(y as i32);
                let at = self.materialise(at);
                let first = self.scaled(self.position.groups[1], size[1]);
                let first = self.materialise(first);
                Lin::reg(self.alu(Alu::Sub, false, at, GSrc::R(first)))
            }
            Builtin::LocalId(1) => self.position.local[1].plus(y as i32),
            Builtin::LocalId(_) => self.position.local[2].plus(z as i32),
            Builtin::WorkgroupId(0) if rows => {
                let at = self.position.x.plus((x * lanes) as i32);
                let at = self.materialise(at);
                let r = self.general();
                let count = GSrc::Imm(size[0].trailing_zeros() as i32);
                self.push(M::Shift { op: Shift::Right, wide: false, dst: r, a: at, count });
                Lin::reg(r)
            }
            Builtin::WorkgroupId(axis) => self.position.groups[usize::from(axis.min(2))],
            Builtin::NumWorkgroups(axis) => {
                let r = self.general();
                let at = At::new(R::CONTEXT, context::GROUPS + 4 * i32::from(axis.min(2)));
                self.push(M::Load { bytes: 4, signed: false, dst: r, at });
                Lin::reg(r)
            }
            Builtin::WorkgroupSize(axis) => Lin::imm(size[usize::from(axis.min(2))] as i32),
            Builtin::SubgroupSize => Lin::imm(crate::launch::SUBGROUP_SIZE as i32),
            Builtin::NumSubgroups => {
                Lin::imm(size.iter().product::<u32>().div_ceil(crate::launch::SUBGROUP_SIZE) as i32)
            }
            // Not affine; made from the local index where they are used.
            Builtin::SubgroupLane | Builtin::SubgroupId => self.builtin(Builtin::LocalIndex, c),
        }
    }
}
