//! Runs code: workgroups in order, and within a workgroup each invocation, in order, until it ends or must wait.

use vyre_foundation::ir::{BinaryOp, Builtin, Literal};
use vyre_spec::{Diagnostic, codes};

use crate::code::{Access, Action, Code, Expr, Slot, Step};
use crate::matrix;
use crate::memory::{Buffer, Place};
use crate::operation::{self, Contribution, integer};
use crate::resolve::Launch;
use crate::types::Type;
use crate::value::{Composite, Value};

/// Why a run ended early.
pub(crate) enum Stop {
    Budget,
    Diverged,
    /// An operation met values that it does not take.
    Inconsistent(&'static str),
}

impl From<Stop> for Diagnostic {
    fn from(stop: Stop) -> Diagnostic {
        match stop {
            Stop::Budget => Diagnostic::new(&codes::reference::BUDGET, "the instruction budget is spent"),
            Stop::Diverged => Diagnostic::new(
                &codes::reference::DIVERGED,
                "some invocations of a workgroup or subgroup wait where others do not come",
            ),
            Stop::Inconsistent(what) => Diagnostic::new(
                &codes::reference::INCONSISTENT,
                format!("{what} got values of types that it does not take"),
            ),
        }
    }
}

/// A run in progress.
pub(crate) struct Machine<'a> {
    pub(crate) code: &'a Code,
    pub(crate) launch: &'a Launch,
    /// In the order of declaration.
    pub(crate) buffers: Vec<Buffer<'a>>,
    /// Positions of the workgroup buffers.
    pub(crate) shared: Vec<usize>,
    pub(crate) budget: u64,
}

/// What stands in a slot that nothing was put in yet.
const NOTHING: Value = Value::Scalar(Literal::U32(0));

/// Where an invocation stands.
struct Invocation {
    local_index: u32,
    local_id: [u32; 3],
    workgroup_id: [u32; 3],
    at: usize,
    /// Where the functions that it is in go back to.
    calls: Vec<usize>,
    slots: Vec<Value>,
    ended: bool,
}

impl Machine<'_> {
    pub(crate) fn run(&mut self) -> Result<(), Stop> {
        let [nx, ny, nz] = self.launch.grid;
        // Invocations that never wait need no state of their own.
        let alive = if self.code.collective { self.launch.invocations() } else { 1 };
        let mut invocations: Vec<Invocation> = (0..alive).map(|_| Invocation::new(self.code)).collect();
        for z in 0..nz {
            for y in 0..ny {
                for x in 0..nx {
                    for &shared in &self.shared {
                        let bytes = self.buffers[shared].bytes.to_mut();
                        bytes.fill(0);
                        // Clearing costs an instruction for a cache line, so that the budget bounds it too.
                        self.budget = self.budget.checked_sub(bytes.len() as u64 / 64).ok_or(Stop::Budget)?;
                    }
                    self.run_workgroup([x, y, z], &mut invocations)?;
                }
            }
        }
        Ok(())
    }

    fn run_workgroup(&mut self, id: [u32; 3], invocations: &mut [Invocation]) -> Result<(), Stop> {
        if let [invocation] = invocations {
            for index in 0..self.launch.invocations() {
                invocation.start(index, self.launch.workgroup_size, id);
                // Without others to wait for, it goes on at once; a subgroup of one is its own.
                loop {
                    self.run_invocation(invocation)?;
                    if invocation.ended {
                        break;
                    }
                    self.resume(std::slice::from_mut(invocation))?;
                }
            }
            return Ok(());
        }
        for (index, invocation) in invocations.iter_mut().enumerate() {
            invocation.start(index as u32, self.launch.workgroup_size, id);
        }
        while invocations.iter().any(|invocation| !invocation.ended) {
            for subgroup in invocations.chunks_mut(self.launch.subgroup_size as usize) {
                self.run_subgroup(subgroup)?;
            }
            // All that have not ended now wait at barriers.
            if same_place(invocations)? {
                invocations.iter_mut().filter(|invocation| !invocation.ended).for_each(|invocation| invocation.at += 1);
            }
        }
        Ok(())
    }

    /// Runs the invocations of a subgroup until each has ended or waits at a barrier.
    fn run_subgroup(&mut self, subgroup: &mut [Invocation]) -> Result<(), Stop> {
        loop {
            for invocation in subgroup.iter_mut().filter(|invocation| !invocation.ended) {
                self.run_invocation(invocation)?;
            }
            let Some(waiting) = subgroup.iter().find(|invocation| !invocation.ended) else { return Ok(()) };
            if let Action::Barrier = self.code.instructions[waiting.at].action {
                return Ok(());
            }
            self.resume(subgroup)?;
        }
    }

    /// Lets the invocations of a subgroup that wait at a subgroup operation exchange their values.
    fn resume(&mut self, subgroup: &mut [Invocation]) -> Result<(), Stop> {
        same_place(subgroup)?;
        let mut waiting: Vec<_> = subgroup.iter_mut().filter(|invocation| !invocation.ended).collect();
        let Some(first) = waiting.first() else { return Ok(()) };
        let action = &self.code.instructions[first.at].action;
        if let Action::Subgroup { op, value, argument, result } = action {
            let mut contributions = Vec::with_capacity(waiting.len());
            for invocation in &waiting {
                contributions.push(Contribution {
                    lane: invocation.local_index % self.launch.subgroup_size,
                    value: self.eval(value, invocation)?,
                    argument: match argument {
                        Some(argument) => {
                            let lane = self.eval(argument, invocation)?.u32();
                            Some(lane.ok_or(Stop::Inconsistent("a subgroup operation"))?)
                        }
                        None => None,
                    },
                });
            }
            let results = operation::subgroup(*op, &contributions);
            let results = results.ok_or(Stop::Inconsistent("a subgroup operation"))?;
            for (invocation, value) in waiting.iter_mut().zip(results) {
                invocation.slots[*result as usize] = value;
            }
        }
        if let Action::Matrix { kind, fragments, result } = action {
            let mut lanes = Vec::with_capacity(waiting.len());
            for invocation in &waiting {
                let [a, b, c] = &**fragments;
                lanes.push([self.eval(a, invocation)?, self.eval(b, invocation)?, self.eval(c, invocation)?]);
            }
            let results = matrix::multiply_add(*kind, &lanes).ok_or(Stop::Inconsistent("a matrix operation"))?;
            for (invocation, value) in waiting.iter_mut().zip(results) {
                invocation.slots[*result as usize] = value;
            }
        }
        waiting.into_iter().for_each(|invocation| invocation.at += 1);
        Ok(())
    }

    /// Runs one invocation until it ends, or stands at a barrier or subgroup operation.
    fn run_invocation(&mut self, invocation: &mut Invocation) -> Result<(), Stop> {
        let code = self.code;
        loop {
            let instruction = &code.instructions[invocation.at];
            self.budget = self.budget.checked_sub(instruction.cost).ok_or(Stop::Budget)?;
            let mut next = invocation.at + 1;
            match &instruction.action {
                Action::Set { slot, value } => {
                    let value = self.eval(value, invocation)?;
                    invocation.slots[*slot as usize] = value;
                }
                Action::SetPart { slot, path, value } => {
                    let value = self.eval(value, invocation)?;
                    self.set_part(*slot, path, value, invocation)?;
                }
                Action::Store { place, value } => {
                    let value = self.eval(value, invocation)?;
                    if let Some(at) = self.locate(place, invocation)? {
                        let stored = self.buffers[place.buffer as usize].store(at, &value);
                        stored.ok_or(Stop::Inconsistent("a store"))?;
                    }
                }
                Action::Atomic { op, place, value, compare, result, outside } => {
                    let value = value.as_ref().map(|value| self.eval(value, invocation)).transpose()?;
                    let compare = compare.as_ref().map(|value| self.eval(value, invocation)).transpose()?;
                    let mut old = outside.clone();
                    if let Some(at) = self.locate(place, invocation)? {
                        let buffer = &mut self.buffers[place.buffer as usize];
                        old = buffer.load(at);
                        let new = operation::atomic(*op, &old, value.as_ref(), compare.as_ref());
                        let stored = new.and_then(|new| buffer.store(at, &new));
                        stored.ok_or(Stop::Inconsistent("an atomic operation"))?;
                    }
                    if let Some(slot) = result {
                        invocation.slots[*slot as usize] = old;
                    }
                }
                Action::Jump(target) => next = *target,
                Action::JumpUnless { cond, target } => {
                    let cond = self.eval(cond, invocation)?.bool();
                    if !cond.ok_or(Stop::Inconsistent("a condition"))? {
                        next = *target;
                    }
                }
                Action::Switch { selector, targets, default } => {
                    let selector = self.eval(selector, invocation)?.scalar();
                    let selector = selector.ok_or(Stop::Inconsistent("a switch"))?;
                    next = *targets.get(&selector).unwrap_or(default);
                }
                Action::CountTest { counter, limit, exit } => {
                    let (counter, limit) = (invocation.integer(*counter)?, invocation.integer(*limit)?);
                    if counter >= limit {
                        next = *exit;
                    }
                }
                Action::CountStep { counter, limit, step, again } => {
                    let count = invocation.integer(*counter)? + i128::from(*step);
                    if count < invocation.integer(*limit)? {
                        let value = &mut invocation.slots[*counter as usize];
                        *value = Value::Scalar(match value {
                            Value::Scalar(Literal::I32(_)) => Literal::I32(count as i32),
                            _ => Literal::U32(count as u32),
                        });
                        next = *again;
                    }
                }
                Action::Call { function, args } => {
                    for (slot, arg) in args {
                        let value = self.eval(arg, invocation)?;
                        invocation.slots[*slot as usize] = value;
                    }
                    if invocation.calls.len() >= code.functions.len() {
                        return Err(Stop::Inconsistent("a recursive function"));
                    }
                    invocation.calls.push(next);
                    next = code.functions[*function as usize];
                }
                Action::Return { value } => {
                    if let Some((slot, value)) = value {
                        let value = self.eval(value, invocation)?;
                        invocation.slots[*slot as usize] = value;
                    }
                    match invocation.calls.pop() {
                        Some(caller) => next = caller,
                        None => {
                            invocation.ended = true;
                            return Ok(());
                        }
                    }
                }
                Action::Barrier | Action::Subgroup { .. } | Action::Matrix { .. } => return Ok(()),
            }
            invocation.at = next;
        }
    }

    /// The part of a buffer that an access means; `None` when some index is outside.
    fn locate<'t>(&self, access: &'t Access, invocation: &Invocation) -> Result<Option<Place<'t>>, Stop> {
        let buffer = &self.buffers[access.buffer as usize];
        let index = self.index(&access.index, invocation)?;
        let mut place = buffer.element(&access.ty, index);
        for step in &access.path {
            let Some(inside) = place else { return Ok(None) };
            place = match step {
                Step::Member(member) => inside.member(*member),
                Step::Index(index) => {
                    let index = self.index(index, invocation)?;
                    buffer.index(inside, index).ok_or(Stop::Inconsistent("an index"))?
                }
            };
        }
        Ok(place)
    }

    fn set_part(&self, slot: Slot, path: &[Step], value: Value, invocation: &mut Invocation) -> Result<(), Stop> {
        let mut indices = Vec::with_capacity(path.len());
        for step in path {
            indices.push(match self.step(step, invocation)? {
                Some(index) => index,
                None => return Ok(()),
            });
        }
        let mut part = &mut invocation.slots[slot as usize];
        for (i, &index) in indices.iter().enumerate() {
            match part {
                Value::Composite(composite) => match composite.parts.get_mut(index) {
                    Some(inner) => part = inner,
                    None => return Ok(()),
                },
                // A component of a vector is always the last step.
                Value::Vector(_) if i + 1 == indices.len() => {
                    let scalar = value.scalar().ok_or(Stop::Inconsistent("an assignment"))?;
                    if let Some(lane) = part.lanes_mut().get_mut(index) {
                        *lane = scalar;
                    }
                    return Ok(());
                }
                _ => return Err(Stop::Inconsistent("an assignment")),
            }
        }
        *part = value;
        Ok(())
    }

    /// The position that a step means; `None` when it is outside of everything.
    fn step(&self, step: &Step, invocation: &Invocation) -> Result<Option<usize>, Stop> {
        Ok(match step {
            Step::Member(member) => Some(*member as usize),
            Step::Index(index) => self.index(index, invocation)?.and_then(|index| usize::try_from(index).ok()),
        })
    }

    /// An index; `None` when it is negative.
    fn index(&self, index: &Expr, invocation: &Invocation) -> Result<Option<u64>, Stop> {
        self.operand(index, invocation, &mut NOTHING.clone())?.index().ok_or(Stop::Inconsistent("an index"))
    }

    fn eval(&self, expr: &Expr, invocation: &Invocation) -> Result<Value, Stop> {
        match expr {
            Expr::Literal(value) => Ok(value.clone()),
            Expr::Slot(slot) => Ok(invocation.slots[*slot as usize].clone()),
            Expr::Binary { op, operands } => {
                let [left, right] = &**operands;
                let (mut left_space, mut right_space) = (NOTHING, NOTHING);
                let left = self.operand(left, invocation, &mut left_space)?;
                let right = self.operand(right, invocation, &mut right_space)?;
                operation::binary(*op, left, right).ok_or(Stop::Inconsistent(binary_name(*op)))
            }
            Expr::Unary { op, value } => {
                let value = self.eval(value, invocation)?;
                operation::unary(*op, &value).ok_or(Stop::Inconsistent("a unary operation"))
            }
            Expr::Load { place, outside } => match self.locate(place, invocation)? {
                Some(at) => Ok(self.buffers[place.buffer as usize].load(at)),
                None => Ok(outside.clone()),
            },
            Expr::Builtin(builtin) => Ok(Value::Scalar(Literal::U32(self.builtin(*builtin, invocation)))),
            Expr::Cast { to, value } => {
                let value = self.eval(value, invocation)?;
                operation::cast(*to, &value).ok_or(Stop::Inconsistent("a conversion"))
            }
            Expr::Math { .. } | Expr::Select(_) | Expr::BitCast { .. } => self.eval_function(expr, invocation),
            Expr::Vector { .. } | Expr::Composite { .. } => self.eval_construct(expr, invocation),
            Expr::Swizzle { value, lanes } => {
                let value = self.eval(value, invocation)?;
                let mut chosen = [Literal::U32(0); 4];
                for (chosen, &lane) in chosen.iter_mut().zip(lanes) {
                    *chosen = *value.lanes().get(usize::from(lane)).ok_or(Stop::Inconsistent("a swizzle"))?;
                }
                let value = chosen.get(..lanes.len()).and_then(Value::from_lanes);
                value.ok_or(Stop::Inconsistent("a swizzle"))
            }
            Expr::Part { value, path } => match &**value {
                Expr::Slot(slot) => self.part(&invocation.slots[*slot as usize], path, invocation),
                value => self.part(&self.eval(value, invocation)?, path, invocation),
            },
        }
    }

    /// The value of an expression, without a copy where it lies in a slot or in the code; `space` holds it otherwise.
    fn operand<'v>(&self, expr: &'v Expr, invocation: &'v Invocation, space: &'v mut Value) -> Result<&'v Value, Stop> {
        Ok(match expr {
            Expr::Literal(value) => value,
            Expr::Slot(slot) => &invocation.slots[*slot as usize],
            _ => {
                *space = self.eval(expr, invocation)?;
                space
            }
        })
    }

    /// The rarer expressions stand apart to keep the stack of deep ones small.
    #[inline(never)]
    fn eval_function(&self, expr: &Expr, invocation: &Invocation) -> Result<Value, Stop> {
        match expr {
            Expr::Math { op, args } => {
                let args: Result<Vec<_>, _> = args.iter().map(|arg| self.eval(arg, invocation)).collect();
                let args = args?;
                let args: Vec<&Value> = args.iter().collect();
                operation::math(*op, &args).ok_or(Stop::Inconsistent("a function"))
            }
            Expr::Select(operands) => {
                let [cond, yes, no] = &**operands;
                let cond = self.eval(cond, invocation)?;
                let (yes, no) = (self.eval(yes, invocation)?, self.eval(no, invocation)?);
                operation::select(&cond, yes, no).ok_or(Stop::Inconsistent("a selection"))
            }
            Expr::BitCast { to, count, value } => {
                let value = self.eval(value, invocation)?;
                operation::bit_cast(*to, *count, &value).ok_or(Stop::Inconsistent("a bit cast"))
            }
            _ => Err(Stop::Inconsistent("a function")),
        }
    }

    #[inline(never)]
    fn eval_construct(&self, expr: &Expr, invocation: &Invocation) -> Result<Value, Stop> {
        match expr {
            Expr::Vector { count, parts } => {
                let mut lanes = Vec::with_capacity(4);
                for part in parts {
                    lanes.extend_from_slice(self.eval(part, invocation)?.lanes());
                }
                if let [lane] = lanes[..] {
                    lanes = vec![lane; usize::from(*count)];
                }
                let vector = if lanes.len() == usize::from(*count) { Value::from_lanes(&lanes) } else { None };
                vector.ok_or(Stop::Inconsistent("a vector"))
            }
            Expr::Composite { ty, parts } => {
                let parts: Result<Vec<_>, _> = parts.iter().map(|part| self.eval(part, invocation)).collect();
                Ok(Value::Composite(Composite { ty: ty.clone(), parts: parts? }))
            }
            _ => Err(Stop::Inconsistent("a construction")),
        }
    }

    /// A part of a value; zero outside of it.
    fn part(&self, whole: &Value, path: &[Step], invocation: &Invocation) -> Result<Value, Stop> {
        let Some((step, rest)) = path.split_first() else { return Ok(whole.clone()) };
        let index = self.step(step, invocation)?;
        match whole {
            Value::Vector(_) => {
                let lanes = whole.lanes();
                let zero = || Literal::zero(&lanes[0].data_type()).unwrap_or(lanes[0]);
                Ok(Value::Scalar(index.and_then(|index| lanes.get(index)).copied().unwrap_or_else(zero)))
            }
            Value::Composite(composite) => match index.and_then(|index| composite.parts.get(index)) {
                Some(part) => self.part(part, rest, invocation),
                None => match &*composite.ty {
                    Type::Array { element, .. } => self.part(&element.zero(), rest, invocation),
                    _ => Err(Stop::Inconsistent("a part")),
                },
            },
            Value::Scalar(_) => Err(Stop::Inconsistent("a part")),
        }
    }

    fn builtin(&self, builtin: Builtin, invocation: &Invocation) -> u32 {
        let size = self.launch.workgroup_size;
        match builtin {
            Builtin::GlobalId(axis) => {
                let axis = usize::from(axis);
                invocation.workgroup_id[axis].wrapping_mul(size[axis]).wrapping_add(invocation.local_id[axis])
            }
            Builtin::LocalId(axis) => invocation.local_id[usize::from(axis)],
            Builtin::WorkgroupId(axis) => invocation.workgroup_id[usize::from(axis)],
            Builtin::NumWorkgroups(axis) => self.launch.grid[usize::from(axis)],
            Builtin::WorkgroupSize(axis) => size[usize::from(axis)],
            Builtin::LocalIndex => invocation.local_index,
            Builtin::SubgroupSize => self.launch.subgroup_size,
            Builtin::SubgroupLane => invocation.local_index % self.launch.subgroup_size,
            Builtin::SubgroupId => invocation.local_index / self.launch.subgroup_size,
            Builtin::NumSubgroups => self.launch.invocations().div_ceil(self.launch.subgroup_size),
        }
    }
}

impl Invocation {
    fn new(code: &Code) -> Invocation {
        Invocation {
            local_index: 0,
            local_id: [0; 3],
            workgroup_id: [0; 3],
            at: 0,
            calls: Vec::new(),
            slots: vec![NOTHING; code.slots as usize],
            ended: false,
        }
    }

    fn start(&mut self, local_index: u32, [x, y, _]: [u32; 3], workgroup_id: [u32; 3]) {
        self.local_index = local_index;
        self.local_id = [local_index % x, local_index / x % y, local_index / x / y];
        self.workgroup_id = workgroup_id;
        self.at = 0;
        self.calls.clear();
        self.ended = false;
    }

    fn integer(&self, slot: Slot) -> Result<i128, Stop> {
        let value = self.slots[slot as usize].scalar().and_then(integer);
        value.ok_or(Stop::Inconsistent("a loop"))
    }
}

/// Whether somebody waits; all who do must wait at the same place.
fn same_place(invocations: &[Invocation]) -> Result<bool, Stop> {
    let mut waiting = invocations.iter().filter(|invocation| !invocation.ended);
    let Some(first) = waiting.next() else { return Ok(false) };
    if waiting.all(|other| other.at == first.at && other.calls.iter().eq(&first.calls)) {
        Ok(true)
    } else {
        Err(Stop::Diverged)
    }
}

fn binary_name(op: BinaryOp) -> &'static str {
    if op.is_comparison() { "a comparison" } else { "a binary operation" }
}
