//! Statements and control flow.

use std::rc::Rc;

use smallvec::SmallVec;

use super::in_place::{Home, Results};
use super::{Aggregate, Leaves, Lower, MAX_DEPTH, Result, Storage, scan, too_deep};
use crate::ir::{Case, Expr, Literal, Node};
use crate::kernel::shape::ShapeId;
use crate::kernel::{Binary, Counter, End, Inst, Loop, Scalar, Value};

/// Up to this depth the rest of a list is put under a test of the exit flags; deeper, each statement is.
const NESTED_REST: u32 = 64;
/// Up to so many arms a switch nests; beyond, the arms stand one after the other.
const NESTED_ARMS: usize = 16;

/// Something whose end an exit can jump to although it is not the end of a loop.
pub(super) struct Region {
    /// Slot of the flag that says whether it was left.
    flag: u32,
    kind: RegionKind,
}

enum RegionKind {
    /// An inlined function, and where its result goes.
    Function(Option<Rc<Results>>),
    /// `Break` leaves it.
    Switch,
    /// The body of a loop with something to do after it; `Continue` leaves it.
    Body,
}

/// A loop being lowered.
pub(super) struct LoopFrame {
    /// Slots carried from round to round.
    carried: Vec<u32>,
    /// What `Break` leaves when a switch is inside: regions below this one.
    regions: usize,
    /// Region that `Continue` leaves, when it is not the next round itself.
    body: Option<u32>,
    /// Some way breaks.
    breaks: bool,
    /// Some way breaks because the function returns.
    returns: bool,
    /// Some way breaks for another reason.
    breaks_otherwise: bool,
}

/// Where control is after a statement.
pub(super) enum Flow {
    /// At the next statement.
    On,
    /// Left a region, on every way.
    Exit,
    /// Perhaps left a region.
    Maybe,
    /// The block has ended.
    Left(End),
}

/// Where control is, and which regions may have been left.
pub(super) struct State {
    pub(super) flow: Flow,
    pending: SmallVec<[u32; 2]>,
}

impl State {
    fn on() -> State {
        State { flow: Flow::On, pending: SmallVec::new() }
    }

    fn left(end: End) -> State {
        State { flow: Flow::Left(end), pending: SmallVec::new() }
    }

    fn exit(region: u32) -> State {
        State { flow: Flow::Exit, pending: SmallVec::from_slice(&[region]) }
    }

    /// After a choice of two ways.
    fn merge(self, other: State) -> State {
        match (&self.flow, &other.flow) {
            (Flow::Left(_), Flow::Left(_)) => return State::left(End::Unreachable),
            (Flow::Left(_), _) => return other,
            (_, Flow::Left(_)) => return self,
            _ => {}
        }
        let flow = match (&self.flow, &other.flow) {
            (Flow::On, Flow::On) => Flow::On,
            (Flow::Exit, Flow::Exit) => Flow::Exit,
            _ => Flow::Maybe,
        };
        let mut pending = self.pending;
        for region in other.pending {
            if !pending.contains(&region) {
                pending.push(region);
            }
        }
        State { flow, pending }
    }

    /// After the end of a region.
    fn after(mut self, region: u32) -> State {
        let Some(position) = self.pending.iter().position(|&r| r == region) else { return self };
        self.pending.swap_remove(position);
        let flow = if self.pending.is_empty() { Flow::On } else { Flow::Maybe };
        State { flow, pending: self.pending }
    }
}

/// A finished way of an `If` and the slots it changed.
struct Way {
    state: State,
    changed: Vec<(u32, Option<Value>)>,
}

impl<'a> Lower<'a> {
    /// Statements with names of their own.
    pub(super) fn scoped(&mut self, nodes: &'a [Node]) -> Result<State> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(too_deep());
        }
        let scope = self.open_scope();
        let state = self.list(nodes)?;
        self.close_scope(&scope);
        self.depth -= 1;
        Ok(state)
    }

    /// Statements in the present scope.
    fn list(&mut self, nodes: &'a [Node]) -> Result<State> {
        for (i, node) in nodes.iter().enumerate() {
            let rest = &nodes[i + 1..];
            let state = match node {
                Node::If { cond, then, otherwise } => {
                    let (state, done) = self.branch(cond, then, otherwise, rest)?;
                    if done {
                        return Ok(state);
                    }
                    state
                }
                Node::Call { function, args, result } => {
                    let at = std::ptr::from_ref(node) as usize;
                    self.call(function.as_str(), args, result.as_ref().map(|n| n.as_str()), rest, at)?
                }
                node => self.node(node)?,
            };
            match state.flow {
                Flow::On => {}
                Flow::Exit | Flow::Left(_) => return Ok(state),
                Flow::Maybe => return self.guarded(rest, state),
            }
        }
        Ok(State::on())
    }

    pub(super) fn node(&mut self, node: &'a Node) -> Result<State> {
        self.check_size()?;
        let at = std::ptr::from_ref(node) as usize;
        match node {
            Node::Let { name, value } => {
                let value = self.expr(value)?;
                self.declare(name.as_str(), value.shape, Some(value.leaves), at)?;
            }
            Node::Var { name, ty, init } => {
                let shape = self.shapes.of(ty)?;
                let init = match init {
                    Some(expr) if !self.is_zero(expr) => Some(self.expr(expr)?.leaves),
                    _ => None,
                };
                self.declare(name.as_str(), shape, init, at)?;
            }
            Node::Assign { name, path, value } => self.assign(name.as_str(), path, value)?,
            Node::Store { buffer, index, path, value } => {
                let value = self.expr(value)?;
                self.store(buffer.as_str(), index, path, value)?;
            }
            Node::Atomic { op, buffer, index, path, value, compare, result } => {
                let shape_and_value =
                    self.atomic(*op, buffer.as_str(), index, path, value.as_ref(), compare.as_ref(), result.is_some())?;
                if let (Some(name), Some(value)) = (result, shape_and_value) {
                    self.declare(name.as_str(), value.shape, Some(value.leaves), at)?;
                }
            }
            Node::Barrier(scope) => self.builder.push(Inst::Barrier(*scope)),
            Node::If { cond, then, otherwise } => return Ok(self.branch(cond, then, otherwise, &[])?.0),
            Node::Switch { selector, cases } => return self.switch(selector, cases),
            Node::For { var, from, to, step, body } => return self.counted(var.as_str(), from, to, *step, body, at),
            Node::Loop { body, continuing, break_if } => return self.general(body, continuing, break_if.as_ref()),
            Node::Break => return Ok(self.leave()),
            Node::Continue => return Ok(self.next_round()),
            Node::Return(value) => return self.leave_function(value.as_ref()),
            Node::Call { function, args, result } => {
                return self.call(function.as_str(), args, result.as_ref().map(|n| n.as_str()), &[], at);
            }
            Node::Block(body) => return self.scoped(body),
        }
        Ok(State::on())
    }

    fn is_zero(&self, expr: &Expr) -> bool {
        matches!(expr, Expr::Construct { parts, .. } if parts.is_empty())
    }

    // Ways.

    /// Ends a way that began at `mark`: takes its changes back and returns them.
    fn end_way(&mut self, mark: usize, state: State) -> Way {
        let mut changed: Vec<(u32, Option<Value>)> = Vec::new();
        for &(slot, _) in &self.log[mark..] {
            if (slot as usize) < self.env.len() {
                changed.push((slot, self.env[slot as usize]));
            }
        }
        changed.sort_unstable_by_key(|(slot, _)| *slot);
        changed.dedup_by_key(|(slot, _)| *slot);
        while self.log.len() > mark {
            if let Some((slot, old)) = self.log.pop()
                && let Some(value) = self.env.get_mut(slot as usize)
            {
                *value = old;
            }
        }
        Way { state, changed }
    }

    /// Joins two ways whose blocks are the last two opened.
    fn join(&mut self, cond: Value, then: Way, otherwise: Way) -> State {
        let falls = |way: &Way| !matches!(way.state.flow, Flow::Left(_));
        let (then_falls, otherwise_falls) = (falls(&then), falls(&otherwise));
        let mut slots: Vec<u32> = Vec::new();
        if then_falls {
            slots.extend(then.changed.iter().map(|(slot, _)| *slot));
        }
        if otherwise_falls {
            slots.extend(otherwise.changed.iter().map(|(slot, _)| *slot));
        }
        slots.sort_unstable();
        slots.dedup();
        let (mut yields, mut other_yields, mut results) = (Vec::new(), Vec::new(), Vec::new());
        let mut updates: SmallVec<[(u32, Value); 8]> = SmallVec::new();
        for slot in slots {
            let old = self.env[slot as usize];
            let value_in = |way: &Way| match way.changed.binary_search_by_key(&slot, |(slot, _)| *slot) {
                Ok(position) => way.changed[position].1,
                Err(_) => old,
            };
            let (a, b) = (value_in(&then), value_in(&otherwise));
            if then_falls && otherwise_falls && a == b {
                if let Some(value) = a {
                    updates.push((slot, value));
                }
                continue;
            }
            let ty = self.slot_types[slot as usize];
            let zero = if a.is_none() || b.is_none() { Some(self.builder.zero(ty)) } else { None };
            let (Some(a), Some(b)) = (a.or(zero), b.or(zero)) else { continue };
            yields.push(a);
            other_yields.push(b);
            let result = self.builder.value(ty);
            results.push(result);
            updates.push((slot, result));
        }
        let end_of = |state: &State, yields: Vec<Value>| match &state.flow {
            Flow::Left(end) => end.clone(),
            _ => End::Yield(yields),
        };
        let other_end = end_of(&otherwise.state, other_yields);
        let otherwise_block = self.builder.close(other_end);
        let then_end = end_of(&then.state, yields);
        let then_block = self.builder.close(then_end);
        self.builder.push(Inst::If { cond, then: Box::new(then_block), otherwise: Box::new(otherwise_block), results });
        for (slot, value) in updates {
            self.set(slot, value);
        }
        then.state.merge(otherwise.state)
    }

    /// An `if`. When one way leaves a region and the other goes on, the rest of the list goes into the other; says so.
    fn branch(
        &mut self,
        cond: &'a Expr,
        then: &'a [Node],
        otherwise: &'a [Node],
        rest: &'a [Node],
    ) -> Result<(State, bool)> {
        let cond = self.scalar_expr(cond)?;
        if let Some(Literal::Bool(cond)) = self.builder.literal(cond) {
            return Ok((self.scoped(if cond { then } else { otherwise })?, false));
        }
        let nested = self.depth < NESTED_REST && !rest.is_empty();
        let mark = self.log.len();
        self.builder.open();
        let mut first = self.scoped(then)?;
        // Whether the rest belongs into the first way is known only after the second, which may not see its changes.
        let second_exits = nested && matches!(first.flow, Flow::On) && self.exits(otherwise);
        if second_exits {
            first = self.rest(rest)?;
        }
        let first = self.end_way(mark, first);
        self.builder.open();
        let mut second = self.scoped(otherwise)?;
        let mut done = second_exits;
        if nested && !done && matches!(first.state.flow, Flow::Exit) && matches!(second.flow, Flow::On) {
            second = self.rest(rest)?;
            done = true;
        }
        let second = self.end_way(mark, second);
        Ok((self.join(cond, first, second), done))
    }

    fn rest(&mut self, rest: &'a [Node]) -> Result<State> {
        self.depth += 1;
        let state = self.list(rest)?;
        self.depth -= 1;
        Ok(state)
    }

    /// The list surely ends by leaving a region that is not the innermost loop.
    fn exits(&self, nodes: &[Node]) -> bool {
        match nodes.last() {
            Some(Node::Return(_)) => self.function.is_some() && self.loops.len() == self.first_loop,
            Some(Node::Break) => {
                self.regions.len() > self.loops.last().map_or(0, |l| l.regions)
                    && matches!(self.regions.last().map(|r| &r.kind), Some(RegionKind::Switch))
            }
            Some(Node::Continue) => self.loops.last().is_some_and(|l| l.body.is_some()),
            _ => false,
        }
    }

    /// Statements that run only where no region was left.
    fn guarded(&mut self, nodes: &'a [Node], mut state: State) -> Result<State> {
        if nodes.is_empty() {
            return Ok(state);
        }
        if self.depth < NESTED_REST {
            return self.guarded_part(nodes, state);
        }
        for i in 0..nodes.len() {
            state = match state.flow {
                Flow::On => self.list(&nodes[i..=i])?,
                Flow::Exit | Flow::Left(_) => return Ok(state),
                Flow::Maybe => self.guarded_part(&nodes[i..=i], state)?,
            };
        }
        Ok(state)
    }

    fn guarded_part(&mut self, nodes: &'a [Node], state: State) -> Result<State> {
        let mut left: Option<Value> = None;
        for &region in &state.pending {
            let flag = self.regions[region as usize].flag;
            let flag = self.slot(flag);
            left = Some(match left {
                Some(left) => self.builder.binary(Binary::Or, left, flag),
                None => flag,
            });
        }
        let Some(left) = left else { return self.list(nodes) };
        let mark = self.log.len();
        let skipped = State { flow: Flow::Exit, pending: state.pending.clone() };
        self.builder.open();
        let first = self.end_way(mark, skipped);
        self.builder.open();
        let ran = self.rest(nodes)?;
        let second = self.end_way(mark, ran);
        Ok(self.join(left, first, second))
    }

    fn open_region(&mut self, kind: RegionKind) -> Result<u32> {
        let flag = self.new_slots(ShapeId::of(Scalar::Bool, 1))?;
        let no = self.builder.bool(false);
        self.set(flag, no);
        self.regions.push(Region { flag, kind });
        Ok(self.regions.len() as u32 - 1)
    }

    fn exit_region(&mut self, region: u32) -> State {
        let yes = self.builder.bool(true);
        self.set(self.regions[region as usize].flag, yes);
        State::exit(region)
    }

    // Switch.

    fn switch(&mut self, selector: &'a Expr, cases: &'a [Case]) -> Result<State> {
        let selector = self.scalar_expr(selector)?;
        let scope = self.open_scope();
        let region = self.open_region(RegionKind::Switch)?;
        let default = cases.iter().position(|case| case.default);
        let state = if let Some(literal) = self.builder.literal(selector) {
            match cases.iter().position(|case| case.values.contains(&literal)).or(default) {
                Some(position) => self.scoped(&cases[position].body)?,
                None => State::on(),
            }
        } else {
            let mut arms: Vec<(Value, &'a [Node])> = Vec::with_capacity(cases.len());
            for (position, case) in cases.iter().enumerate() {
                if Some(position) == default {
                    continue;
                }
                arms.push((self.matches(selector, case), &case.body));
            }
            let default: &'a [Node] = default.map_or(&[], |position| &cases[position].body);
            if arms.len() <= NESTED_ARMS { self.nested_arms(&arms, default)? } else { self.flat_arms(&arms, default)? }
        };
        self.regions.pop();
        let state = state.after(region);
        self.close_scope(&scope);
        Ok(state)
    }

    fn matches(&mut self, selector: Value, case: &Case) -> Value {
        let mut any = None;
        for value in &case.values {
            let value = self.builder.constant(*value);
            let equal = self.builder.binary(Binary::Eq, selector, value);
            any = Some(match any {
                Some(any) => self.builder.binary(Binary::Or, any, equal),
                None => equal,
            });
        }
        any.unwrap_or_else(|| self.builder.bool(false))
    }

    fn nested_arms(&mut self, arms: &[(Value, &'a [Node])], default: &'a [Node]) -> Result<State> {
        let Some(((cond, body), others)) = arms.split_first() else { return self.scoped(default) };
        let mark = self.log.len();
        self.builder.open();
        let first = self.scoped(body)?;
        let first = self.end_way(mark, first);
        self.builder.open();
        self.depth += 1;
        let second = self.nested_arms(others, default)?;
        self.depth -= 1;
        let second = self.end_way(mark, second);
        Ok(self.join(*cond, first, second))
    }

    /// At most one arm runs, so the order does not matter and an exit of one is no exit of the next.
    fn flat_arms(&mut self, arms: &[(Value, &'a [Node])], default: &'a [Node]) -> Result<State> {
        let mut any = self.builder.bool(false);
        let mut total: Option<State> = None;
        for (cond, _) in arms {
            any = self.builder.binary(Binary::Or, any, *cond);
        }
        let none = self.builder.not(any);
        for (cond, body) in arms.iter().copied().chain([(none, default)]) {
            let mark = self.log.len();
            self.builder.open();
            let first = self.scoped(body)?;
            let first = self.end_way(mark, first);
            self.builder.open();
            let second = self.end_way(mark, State::on());
            let state = self.join(cond, first, second);
            total = Some(match total {
                Some(total) => total.merge(state),
                None => state,
            });
        }
        Ok(total.unwrap_or_else(State::on))
    }

    // Loops.

    /// Slots that the loop's statements may change.
    fn carried(&mut self, lists: [&'a [Node]; 2]) -> Vec<u32> {
        let mut carried = Vec::new();
        let mut returns = false;
        for list in lists {
            let effects = scan::loop_effects(list);
            returns |= effects.returns;
            for name in effects.assigned {
                if let Some(&binding) = self.names.get(name) {
                    let binding = &self.bindings[binding as usize];
                    self.push_slots(binding.shape, &binding.storage, &mut carried);
                }
            }
        }
        if returns && let Some(function) = self.function {
            let region = &self.regions[function as usize];
            carried.push(region.flag);
            if let RegionKind::Function(Some(results)) = &region.kind {
                for (shape, home) in &results.parts {
                    if let Home::Slots(first) = home {
                        carried.extend(*first..first + self.shapes.leaves(*shape));
                    }
                }
            }
        }
        carried.sort_unstable();
        carried.dedup();
        carried
    }

    fn push_slots(&self, shape: ShapeId, storage: &Storage, out: &mut Vec<u32>) {
        match storage {
            Storage::Slots(first) => out.extend(*first..*first + self.shapes.leaves(shape)),
            Storage::Memory(_) => {}
            Storage::Struct(parts) => {
                if let crate::kernel::shape::Shape::Struct(members) = self.shapes.get(shape) {
                    for ((member, _), part) in members.iter().zip(parts) {
                        self.push_slots(*member, part, out);
                    }
                }
            }
        }
    }

    fn slots(&mut self, slots: &[u32]) -> Vec<Value> {
        slots.iter().map(|&slot| self.slot(slot)).collect()
    }

    /// Begins a loop: the carried slots become its parameters.
    fn open_loop(&mut self, carried: Vec<u32>) -> (Vec<Value>, Vec<Value>, usize) {
        let init = self.slots(&carried);
        let mark = self.log.len();
        let mut params = Vec::with_capacity(carried.len());
        for &slot in &carried {
            let param = self.builder.value(self.slot_types[slot as usize]);
            params.push(param);
            self.set(slot, param);
        }
        if let Some(function) = self.function {
            let flag = self.regions[function as usize].flag;
            if carried.contains(&flag) {
                // A round begins only where the function has not returned.
                let no = self.builder.bool(false);
                self.set(flag, no);
            }
        }
        self.loops.push(LoopFrame {
            carried,
            regions: self.regions.len(),
            body: None,
            breaks: false,
            returns: false,
            breaks_otherwise: false,
        });
        self.builder.open();
        (init, params, mark)
    }

    /// Ends a loop whose body's block is still open.
    fn close_loop(
        &mut self,
        counter: Option<Counter>,
        (init, params, mark): (Vec<Value>, Vec<Value>, usize),
        end: End,
    ) -> State {
        let body = self.builder.close(end);
        self.end_way(mark, State::on());
        let Some(frame) = self.loops.pop() else { return State::on() };
        let falls = counter.is_some() || frame.breaks;
        let mut results = Vec::with_capacity(params.len());
        for &slot in &frame.carried {
            let result = self.builder.value(self.slot_types[slot as usize]);
            results.push(result);
            self.set(slot, result);
        }
        let finite = counter.is_some();
        let rare = false;
        self.builder.push(Inst::Loop(Box::new(Loop {
            counter,
            params,
            init,
            body,
            results,
            finite,
            look: None,
            rare,
        })));
        if !falls {
            return State::left(End::Unreachable);
        }
        if frame.returns
            && let Some(function) = self.function
        {
            let always = counter.is_none() && !frame.breaks_otherwise;
            return self.function_left(function, always);
        }
        State::on()
    }

    /// A loop may have been left because the function returns: leave what is around it too.
    fn function_left(&mut self, function: u32, always: bool) -> State {
        if self.loops.len() == self.first_loop {
            let flow = if always { Flow::Exit } else { Flow::Maybe };
            return State { flow, pending: SmallVec::from_slice(&[function]) };
        }
        let flag = self.slot(self.regions[function as usize].flag);
        if always {
            let end = self.break_end(true);
            return State::left(end);
        }
        let mark = self.log.len();
        self.builder.open();
        let end = self.break_end(true);
        let first = self.end_way(mark, State::left(end));
        self.builder.open();
        let second = self.end_way(mark, State::on());
        self.join(flag, first, second);
        let no = self.builder.bool(false);
        self.set(self.regions[function as usize].flag, no);
        State::on()
    }

    fn break_end(&mut self, returns: bool) -> End {
        let Some(frame) = self.loops.last_mut() else { return End::Return };
        frame.breaks = true;
        frame.returns |= returns;
        frame.breaks_otherwise |= !returns;
        let carried = std::mem::take(&mut frame.carried);
        let values = self.slots(&carried);
        if let Some(frame) = self.loops.last_mut() {
            frame.carried = carried;
        }
        End::Break(values)
    }

    fn continue_end(&mut self) -> End {
        let Some(frame) = self.loops.last_mut() else { return End::Return };
        let carried = std::mem::take(&mut frame.carried);
        let values = self.slots(&carried);
        if let Some(frame) = self.loops.last_mut() {
            frame.carried = carried;
        }
        End::Continue(values)
    }

    fn counted(
        &mut self,
        var: &'a str,
        from: &'a Expr,
        to: &'a Expr,
        step: u32,
        body: &'a [Node],
        at: usize,
    ) -> Result<State> {
        let from = self.scalar_expr(from)?;
        let to = self.scalar_expr(to)?;
        let scope = self.open_scope();
        let carried = self.carried([body, &[]]);
        let ty = self.builder.scalar(from);
        let counter = Counter { value: self.builder.value(ty), from, to, step };
        let open = self.open_loop(carried);
        let inner = self.open_scope();
        let leaves = Leaves::from_slice(&[counter.value]);
        self.declare(var, ShapeId::of(ty, 1), Some(leaves), at)?;
        let state = self.scoped(body)?;
        let end = match state.flow {
            Flow::Left(end) => end,
            _ => self.continue_end(),
        };
        self.close_scope(&inner);
        let state = self.close_loop(Some(counter), open, end);
        self.close_scope(&scope);
        Ok(state)
    }

    fn general(&mut self, body: &'a [Node], continuing: &'a [Node], break_if: Option<&'a Expr>) -> Result<State> {
        let carried = self.carried([body, continuing]);
        let open = self.open_loop(carried);
        let scope = self.open_scope();
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(too_deep());
        }
        let after = !continuing.is_empty() || break_if.is_some();
        let region = if after && scan::continues(body) {
            let region = self.open_region(RegionKind::Body)?;
            if let Some(frame) = self.loops.last_mut() {
                frame.body = Some(region);
            }
            Some(region)
        } else {
            None
        };
        // `continuing` sees the names of the body, so both share a scope.
        let mut state = self.list(body)?;
        if let Some(region) = region {
            self.regions.pop();
            state = state.after(region);
        }
        let end = match state.flow {
            Flow::Left(end) => end,
            _ => match self.list(continuing)?.flow {
                Flow::Left(end) => end,
                _ => {
                    if let Some(cond) = break_if {
                        let cond = self.scalar_expr(cond)?;
                        let mark = self.log.len();
                        self.builder.open();
                        let end = self.break_end(false);
                        let first = self.end_way(mark, State::left(end));
                        self.builder.open();
                        let second = self.end_way(mark, State::on());
                        self.join(cond, first, second);
                    }
                    self.continue_end()
                }
            },
        };
        self.depth -= 1;
        self.close_scope(&scope);
        Ok(self.close_loop(None, open, end))
    }

    fn leave(&mut self) -> State {
        let inner = self.loops.last().map_or(0, |frame| frame.regions);
        let switch = (inner..self.regions.len())
            .rev()
            .find(|&r| matches!(self.regions[r].kind, RegionKind::Switch))
            .filter(|&r| self.function.is_none_or(|f| r > f as usize));
        match switch {
            Some(region) => self.exit_region(region as u32),
            None => State::left(self.break_end(false)),
        }
    }

    fn next_round(&mut self) -> State {
        match self.loops.last().and_then(|frame| frame.body) {
            Some(region) => self.exit_region(region),
            None => State::left(self.continue_end()),
        }
    }

    // Functions.

    fn leave_function(&mut self, value: Option<&'a Expr>) -> Result<State> {
        let Some(function) = self.function else { return Ok(State::left(End::Return)) };
        if let Some(value) = value
            && let RegionKind::Function(Some(results)) = &self.regions[function as usize].kind
        {
            let results = Rc::clone(results);
            self.give(&results, value)?;
        }
        let state = self.exit_region(function);
        if self.loops.len() > self.first_loop {
            return Ok(State::left(self.break_end(true)));
        }
        Ok(state)
    }

    fn call(
        &mut self,
        name: &'a str,
        args: &'a [Expr],
        result: Option<&'a str>,
        rest: &'a [Node],
        at: usize,
    ) -> Result<State> {
        let Some(&function) = self.function_of.get(name) else { return Ok(State::on()) };
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(too_deep());
        }
        self.check_size()?;
        let plan = self.plan(function, args, result, rest)?;
        let mut values: Vec<(usize, Aggregate)> = Vec::with_capacity(args.len());
        for (i, arg) in args.iter().enumerate() {
            if plan.copies(i) {
                values.push((i, self.expr(arg)?));
            }
        }
        let scope = self.open_scope();
        let results = match &function.result {
            Some(ty) => {
                let shape = self.shapes.of(ty)?;
                Some(Rc::new(self.results(shape, &plan)?))
            }
            None => None,
        };
        let region = self.open_region(RegionKind::Function(results.clone()))?;
        let caller_function = self.function.replace(region);
        let caller_loop = std::mem::replace(&mut self.first_loop, self.loops.len());
        let caller_names = std::mem::take(&mut self.names);
        let caller_body = std::mem::replace(&mut self.body, &function.body);
        let indexed = Rc::clone(&self.facts(function, 0).indexed);
        let caller_indexed = std::mem::replace(&mut self.indexed, indexed);
        let inner = self.open_scope();
        for (i, value) in values {
            let param = &function.params[i];
            let at = std::ptr::from_ref(param) as usize;
            self.declare(param.name.as_str(), value.shape, Some(value.leaves), at)?;
        }
        let declared = self.take(function, plan)?;
        let state = self.list(&function.body[declared..])?;
        self.close_scope(&inner);
        self.indexed = caller_indexed;
        self.body = caller_body;
        self.names = caller_names;
        self.first_loop = caller_loop;
        self.function = caller_function;
        self.regions.pop();
        let state = state.after(region);
        let values = results.as_ref().map(|results| self.given(results));
        self.close_scope(&scope);
        self.depth -= 1;
        if let (Some(name), Some(results), Some(values)) = (result, results, values) {
            self.name_result(name, &results, values, at)?;
        }
        Ok(state)
    }
}
