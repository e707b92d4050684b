//! From a program to [`Code`].

use std::collections::HashMap;
use std::rc::Rc;

use vyre_foundation::ir::{self, Builtin, Case, DataType, Element, Literal, MATRIX_LANES, Name, Node, Program};
use vyre_foundation::launch::{Constants, check_matrix_workgroup};
use vyre_spec::{Diagnostic, codes};

use crate::code::{Access, Action, Code, Expr, Instruction, Slot, Step, Target};
use crate::operation::computing;
use crate::types::{Type, Types};
use crate::value::Value;

/// What is the same for the whole launch.
pub(crate) struct Launch {
    pub(crate) workgroup_size: [u32; 3],
    pub(crate) grid: [u32; 3],
    pub(crate) subgroup_size: u32,
    /// Number of elements of each buffer, in the order of declaration.
    pub(crate) lengths: Vec<u32>,
    /// Most bytes that the values of the program may take.
    pub(crate) memory: u64,
}

impl Launch {
    pub(crate) fn invocations(&self) -> u32 {
        self.workgroup_size.iter().product()
    }
}

/// Makes a program ready to run.
pub(crate) fn resolve(
    program: &Program,
    types: &Types,
    constants: &Constants<'_>,
    launch: &Launch,
) -> Result<Code, Diagnostic> {
    let mut resolver = Resolver {
        program,
        types,
        constants,
        launch,
        buffers: program.buffers().iter().enumerate().map(|(i, buffer)| (buffer.name.as_str(), i)).collect(),
        functions: program.functions().iter().enumerate().map(|(i, f)| (f.name.as_str(), i)).collect(),
        signatures: Vec::new(),
        names: HashMap::new(),
        declared: Vec::new(),
        slots: Vec::new(),
        next_slot: 0,
        exits: Vec::new(),
        result: None,
        cost: 0,
        code_leaves: 0,
        code: Code::default(),
    };
    for function in program.functions() {
        let params: Result<Vec<_>, _> = function.params.iter().map(|p| resolver.new_variable_of(&p.ty)).collect();
        let result = function.result.as_ref().map(|ty| resolver.new_variable_of(ty)).transpose()?;
        resolver.signatures.push(Signature { params: params?, result });
    }
    resolver.list(program.body())?;
    resolver.emit(Action::Return { value: None });
    for (i, function) in program.functions().iter().enumerate() {
        resolver.code.functions.push(resolver.code.instructions.len());
        resolver.next_slot = resolver.slots.len() as Slot;
        resolver.result = resolver.signatures[i].result;
        let mark = resolver.enter();
        for (param, variable) in function.params.iter().zip(resolver.signatures[i].params.clone()) {
            resolver.declare(&param.name, variable);
        }
        resolver.list(&function.body)?;
        resolver.leave(mark);
        resolver.emit(Action::Return { value: None });
    }
    let mut code = resolver.code;
    code.slots = resolver.slots.len() as u32;
    code.slot_leaves = resolver.slots.iter().fold(0, |sum: u64, leaves| sum.saturating_add(*leaves));
    // Without waiting, one invocation at a time is alive.
    let alive = if code.collective { u64::from(launch.invocations()) } else { 1 };
    let leaves = code.slot_leaves.saturating_mul(alive).saturating_add(resolver.code_leaves);
    check_memory(launch, leaves)?;
    Ok(code)
}

fn check_memory(launch: &Launch, leaves: u64) -> Result<(), Diagnostic> {
    let bytes = leaves.saturating_mul(size_of::<Value>() as u64);
    if bytes > launch.memory {
        let message = format!("variables and values take {bytes} bytes, and {} are left", launch.memory);
        return Err(Diagnostic::new(&codes::reference::MEMORY, message));
    }
    Ok(())
}

fn inconsistent(message: String) -> Diagnostic {
    Diagnostic::new(&codes::reference::INCONSISTENT, message)
}

/// A name's slot, and how many scalars and vectors its value holds at most.
#[derive(Clone, Copy)]
struct Variable {
    slot: Slot,
    leaves: u64,
}

struct Signature {
    params: Vec<Variable>,
    result: Option<Variable>,
}

/// Jumps out of a loop or switch whose end is not known yet.
struct Exits {
    breaks: Vec<Target>,
    /// `None` for a switch.
    continues: Option<Vec<Target>>,
}

/// What is visible at the start of a statement list.
struct Mark {
    declared: usize,
    next_slot: Slot,
}

struct Resolver<'p> {
    program: &'p Program,
    types: &'p Types,
    constants: &'p Constants<'p>,
    launch: &'p Launch,
    buffers: HashMap<&'p str, usize>,
    functions: HashMap<&'p str, usize>,
    signatures: Vec<Signature>,
    /// Visible names; the last of the list is the innermost.
    names: HashMap<&'p str, Vec<Variable>>,
    /// Names in the order of their declaration, to be forgotten at the end of the list that declared them.
    declared: Vec<&'p str>,
    /// For every slot, the most leaves that it ever holds.
    slots: Vec<u64>,
    next_slot: Slot,
    exits: Vec<Exits>,
    /// Result of the function being resolved.
    result: Option<Variable>,
    /// Of the expressions since the last instruction.
    cost: u64,
    /// Leaves of structs and arrays in the code, and of those that its expressions make.
    code_leaves: u64,
    code: Code,
}

impl<'p> Resolver<'p> {
    fn emit(&mut self, action: Action) -> Target {
        let cost = std::mem::take(&mut self.cost).saturating_add(1);
        self.code.instructions.push(Instruction { action, cost });
        self.code.instructions.len() - 1
    }

    fn here(&self) -> Target {
        self.code.instructions.len()
    }

    /// Lets a jump go to the next instruction.
    fn land(&mut self, jump: Target) {
        let here = self.here();
        match &mut self.code.instructions[jump].action {
            Action::Jump(target) | Action::JumpUnless { target, .. } | Action::CountTest { exit: target, .. } => {
                *target = here;
            }
            _ => {}
        }
    }

    fn enter(&self) -> Mark {
        Mark { declared: self.declared.len(), next_slot: self.next_slot }
    }

    fn leave(&mut self, mark: Mark) {
        for name in self.declared.drain(mark.declared..) {
            if let Some(variables) = self.names.get_mut(name) {
                variables.pop();
            }
        }
        self.next_slot = mark.next_slot;
    }

    fn new_variable(&mut self, leaves: u64) -> Variable {
        let slot = self.next_slot;
        self.next_slot += 1;
        match self.slots.get_mut(slot as usize) {
            Some(most) => *most = leaves.max(*most),
            None => self.slots.push(leaves),
        }
        Variable { slot, leaves }
    }

    fn new_variable_of(&mut self, ty: &DataType) -> Result<Variable, Diagnostic> {
        let leaves = self.types.get(ty)?.leaves();
        Ok(self.new_variable(leaves))
    }

    fn declare(&mut self, name: &'p Name, variable: Variable) {
        self.names.entry(name.as_str()).or_default().push(variable);
        self.declared.push(name.as_str());
    }

    fn variable(&self, name: &Name) -> Result<Variable, Diagnostic> {
        let innermost = self.names.get(name.as_str()).and_then(|variables| variables.last());
        innermost.copied().ok_or_else(|| inconsistent(format!("nothing is named `{name}` here")))
    }

    fn buffer(&self, name: &Name) -> Result<usize, Diagnostic> {
        let buffer = self.buffers.get(name.as_str()).copied();
        buffer.ok_or_else(|| inconsistent(format!("the program has no buffer `{name}`")))
    }

    /// Statements with names of their own.
    fn list(&mut self, nodes: &'p [Node]) -> Result<(), Diagnostic> {
        let mark = self.enter();
        for node in nodes {
            self.node(node)?;
        }
        self.leave(mark);
        Ok(())
    }

    fn node(&mut self, node: &'p Node) -> Result<(), Diagnostic> {
        match node {
            Node::Let { name, value } => {
                let (value, leaves) = self.expr(value)?;
                let variable = self.new_variable(leaves);
                self.emit(Action::Set { slot: variable.slot, value });
                self.declare(name, variable);
            }
            Node::Var { name, ty, init } => {
                let ty = self.types.get(ty)?;
                let value = match init {
                    Some(init) => self.expr(init)?.0,
                    None => Expr::Literal(self.zero(&ty)?),
                };
                let variable = self.new_variable(ty.leaves());
                self.emit(Action::Set { slot: variable.slot, value });
                self.declare(name, variable);
            }
            Node::Assign { name, path, value } => {
                let slot = self.variable(name)?.slot;
                let path = self.path(path)?;
                let value = self.expr(value)?.0;
                self.emit(if path.is_empty() {
                    Action::Set { slot, value }
                } else {
                    Action::SetPart { slot, path, value }
                });
            }
            Node::Store { buffer, index, path, value } => {
                let place = self.access(buffer, index, path)?.0;
                let value = self.expr(value)?.0;
                self.emit(Action::Store { place, value });
            }
            Node::If { cond, then, otherwise } => {
                let cond = self.expr(cond)?.0;
                let skip = self.emit(Action::JumpUnless { cond, target: 0 });
                self.list(then)?;
                if otherwise.is_empty() {
                    self.land(skip);
                } else {
                    let end = self.emit(Action::Jump(0));
                    self.land(skip);
                    self.list(otherwise)?;
                    self.land(end);
                }
            }
            Node::Switch { selector, cases } => self.switch(selector, cases)?,
            Node::For { var, from, to, step, body } => self.counted_loop(var, [from, to], *step, body)?,
            Node::Loop { body, continuing, break_if } => self.general_loop(body, continuing, break_if.as_ref())?,
            Node::Break => {
                let jump = self.emit(Action::Jump(0));
                let exits = self.exits.last_mut();
                exits.ok_or_else(|| inconsistent("a break stands outside a loop or switch".into()))?.breaks.push(jump);
            }
            Node::Continue => {
                let jump = self.emit(Action::Jump(0));
                let continues = self.exits.iter_mut().rev().find_map(|exits| exits.continues.as_mut());
                continues.ok_or_else(|| inconsistent("a continue stands outside a loop".into()))?.push(jump);
            }
            Node::Return(value) => {
                let value = match (value, self.result) {
                    (Some(value), Some(result)) => Some((result.slot, self.expr(value)?.0)),
                    (None, None) => None,
                    _ => return Err(inconsistent("a return does not fit its function".into())),
                };
                self.emit(Action::Return { value });
            }
            Node::Barrier(_) => {
                self.code.collective = true;
                self.emit(Action::Barrier);
            }
            Node::Atomic { op, buffer, index, path, value, compare, result } => {
                let (place, ty) = self.access(buffer, index, path)?;
                let value = value.as_ref().map(|value| self.expr(value)).transpose()?.map(|(value, _)| value);
                let compare = compare.as_ref().map(|value| self.expr(value)).transpose()?.map(|(value, _)| value);
                let outside = self.zero(&ty)?;
                let variable = result.as_ref().map(|_| self.new_variable(1));
                let slot = variable.map(|variable| variable.slot);
                self.emit(Action::Atomic { op: *op, place, value, compare, result: slot, outside });
                if let (Some(name), Some(variable)) = (result, variable) {
                    self.declare(name, variable);
                }
            }
            Node::Call { function, args, result } => self.call(function, args, result.as_ref())?,
            Node::Block(nodes) => self.list(nodes)?,
        }
        Ok(())
    }

    fn switch(&mut self, selector: &'p ir::Expr, cases: &'p [Case]) -> Result<(), Diagnostic> {
        let selector = self.expr(selector)?.0;
        let at = self.emit(Action::Jump(0));
        self.exits.push(Exits { breaks: Vec::new(), continues: None });
        let mut arms = HashMap::new();
        let mut chosen_otherwise = None;
        for case in cases {
            let here = self.here();
            arms.extend(case.values.iter().map(|value| (*value, here)));
            if case.default {
                chosen_otherwise = Some(here);
            }
            self.list(&case.body)?;
            let end = self.emit(Action::Jump(0));
            if let Some(exits) = self.exits.last_mut() {
                exits.breaks.push(end);
            }
        }
        let default = chosen_otherwise.unwrap_or_else(|| self.here());
        self.code.instructions[at].action = Action::Switch { selector, targets: arms, default };
        self.land_breaks();
        Ok(())
    }

    fn land_breaks(&mut self) {
        for jump in self.exits.pop().into_iter().flat_map(|exits| exits.breaks) {
            self.land(jump);
        }
    }

    fn land_continues(&mut self) {
        let continues = self.exits.last_mut().and_then(|exits| exits.continues.take());
        for jump in continues.into_iter().flatten() {
            self.land(jump);
        }
    }

    fn counted_loop(
        &mut self,
        var: &'p Name,
        [from, to]: [&'p ir::Expr; 2],
        step: u32,
        body: &'p [Node],
    ) -> Result<(), Diagnostic> {
        let mark = self.enter();
        let from = self.expr(from)?.0;
        let counter = self.new_variable(1);
        self.emit(Action::Set { slot: counter.slot, value: from });
        let to = self.expr(to)?.0;
        let limit = self.new_variable(1);
        self.emit(Action::Set { slot: limit.slot, value: to });
        self.declare(var, counter);
        let (counter, limit) = (counter.slot, limit.slot);
        let test = self.emit(Action::CountTest { counter, limit, exit: 0 });
        let again = self.here();
        self.exits.push(Exits { breaks: Vec::new(), continues: Some(Vec::new()) });
        self.list(body)?;
        self.land_continues();
        self.emit(Action::CountStep { counter, limit, step, again });
        self.land(test);
        self.land_breaks();
        self.leave(mark);
        Ok(())
    }

    fn general_loop(
        &mut self,
        body: &'p [Node],
        continuing: &'p [Node],
        break_if: Option<&'p ir::Expr>,
    ) -> Result<(), Diagnostic> {
        let mark = self.enter();
        let again = self.here();
        self.exits.push(Exits { breaks: Vec::new(), continues: Some(Vec::new()) });
        for node in body.iter() {
            self.node(node)?;
        }
        self.land_continues();
        for node in continuing {
            self.node(node)?;
        }
        match break_if {
            Some(cond) => {
                let cond = self.expr(cond)?.0;
                self.emit(Action::JumpUnless { cond, target: again });
            }
            None => {
                self.emit(Action::Jump(again));
            }
        }
        self.land_breaks();
        self.leave(mark);
        Ok(())
    }

    fn call(&mut self, name: &Name, args: &'p [ir::Expr], result: Option<&'p Name>) -> Result<(), Diagnostic> {
        let function = self.functions.get(name.as_str()).copied();
        let function = function.ok_or_else(|| inconsistent(format!("the program has no function `{name}`")))?;
        let args = self.exprs(args)?;
        let signature = &self.signatures[function];
        let returned = signature.result;
        let args = signature.params.iter().map(|param| param.slot).zip(args).collect();
        self.emit(Action::Call { function: function as u32, args });
        if let Some(name) = result {
            let returned = returned.ok_or_else(|| inconsistent(format!("a function gives nothing for `{name}`")))?;
            let variable = self.new_variable(returned.leaves);
            self.cost += returned.leaves;
            self.emit(Action::Set { slot: variable.slot, value: Expr::Slot(returned.slot) });
            self.declare(name, variable);
        }
        Ok(())
    }

    /// The zero of a type, as part of the code.
    fn zero(&mut self, ty: &Rc<Type>) -> Result<Value, Diagnostic> {
        self.add_leaves(ty)?;
        Ok(ty.zero())
    }

    /// Accounts for a value of this type that the code holds or makes.
    fn add_leaves(&mut self, ty: &Type) -> Result<u64, Diagnostic> {
        let leaves = ty.leaves();
        self.cost = self.cost.saturating_add(leaves);
        if leaves > 1 {
            self.code_leaves = self.code_leaves.saturating_add(leaves);
            check_memory(self.launch, self.code_leaves)?;
        }
        Ok(leaves)
    }

    fn path(&mut self, path: &'p [ir::Access]) -> Result<Vec<Step>, Diagnostic> {
        let mut steps = Vec::with_capacity(path.len());
        for access in path {
            steps.push(match access {
                ir::Access::Member(member) => Step::Member(*member),
                ir::Access::Index(index) => Step::Index(self.expr(index)?.0),
            });
        }
        Ok(steps)
    }

    /// A part of a buffer and its type.
    fn access(
        &mut self,
        buffer: &Name,
        index: &'p ir::Expr,
        path: &'p [ir::Access],
    ) -> Result<(Access, Rc<Type>), Diagnostic> {
        let buffer = self.buffer(buffer)?;
        let ty = self.types.get(&self.program.buffers()[buffer].ty)?;
        let index = self.expr(index)?.0;
        let path = self.path(path)?;
        let mut part = ty.clone();
        for step in &path {
            let next = match (&*part, step) {
                (Type::Struct { members, .. }, Step::Member(member)) => {
                    members.get(*member as usize).map(|(ty, _)| ty.clone())
                }
                (Type::Array { element, .. } | Type::Vector { element, .. }, Step::Index(_)) => Some(element.clone()),
                _ => None,
            };
            part = next.ok_or_else(|| inconsistent("a path leads into something without parts".into()))?;
        }
        if matches!(*part, Type::Array { count: None, .. }) || part.has_open_tail() {
            return Err(inconsistent("a value of open length is loaded or stored as a whole".into()));
        }
        Ok((Access { buffer: buffer as u32, ty, index, path }, part))
    }

    /// The expression, and how many leaves its value has at most.
    fn expr(&mut self, expr: &'p ir::Expr) -> Result<(Expr, u64), Diagnostic> {
        self.cost += 1;
        let scalar = |value: Literal| Expr::Literal(Value::Scalar(value));
        let mut leaves = 1;
        let resolved = match expr {
            ir::Expr::Literal(value) => scalar(*value),
            ir::Expr::Var(name) => {
                let variable = self.variable(name)?;
                leaves = variable.leaves;
                if leaves > 1 {
                    self.cost = self.cost.saturating_add(leaves);
                }
                Expr::Slot(variable.slot)
            }
            ir::Expr::Constant(name) => {
                let value = self.constants.get(name.as_str());
                scalar(value.ok_or_else(|| inconsistent(format!("the program has no constant `{name}`")))?)
            }
            ir::Expr::Load { buffer, index, path } => {
                let (place, ty) = self.access(buffer, index, path)?;
                leaves = self.add_leaves(&ty)?;
                Expr::Load { place: Box::new(place), outside: self.zero(&ty)? }
            }
            ir::Expr::Length(buffer) => scalar(Literal::U32(self.launch.lengths[self.buffer(buffer)?])),
            ir::Expr::Builtin(builtin) => match self.uniform(*builtin)? {
                Some(value) => scalar(Literal::U32(value)),
                None => Expr::Builtin(*builtin),
            },
            ir::Expr::Unary { op, value } => Expr::Unary { op: *op, value: self.boxed(value)? },
            ir::Expr::Binary { op, left, right } => {
                Expr::Binary { op: *op, operands: Box::new([self.expr(left)?.0, self.expr(right)?.0]) }
            }
            ir::Expr::Math { op, args } => {
                if args.len() != op.arity() {
                    return Err(inconsistent(format!("{op:?} takes {} arguments, not {}", op.arity(), args.len())));
                }
                Expr::Math { op: *op, args: self.exprs(args)? }
            }
            ir::Expr::Select { cond, yes, no } => {
                let cond = self.expr(cond)?.0;
                let (yes, yes_leaves) = self.expr(yes)?;
                let (no, no_leaves) = self.expr(no)?;
                leaves = yes_leaves.max(no_leaves);
                Expr::Select(Box::new([cond, yes, no]))
            }
            ir::Expr::Cast { to, value } => Expr::Cast { to: self.computing(to)?.0, value: self.boxed(value)? },
            ir::Expr::BitCast { to, value } => {
                let (to, count) = self.computing(to)?;
                Expr::BitCast { to, count, value: self.boxed(value)? }
            }
            ir::Expr::Construct { ty, parts } => {
                let ty = self.types.get(ty)?;
                leaves = self.add_leaves(&ty)?;
                if parts.is_empty() {
                    Expr::Literal(self.zero(&ty)?)
                } else {
                    let parts = self.exprs(parts)?;
                    match &*ty {
                        Type::Vector { count, .. } => Expr::Vector { count: *count, parts },
                        Type::Scalar(_) => return Err(inconsistent("a scalar is made of parts".into())),
                        Type::Array { .. } | Type::Struct { .. } => Expr::Composite { ty, parts },
                    }
                }
            }
            ir::Expr::Swizzle { value, lanes } => Expr::Swizzle { value: self.boxed(value)?, lanes: lanes.to_vec() },
            ir::Expr::Part { value, path } => {
                let cost = self.cost;
                let (value, whole) = self.expr(value)?;
                if matches!(value, Expr::Slot(_)) {
                    // Read in place: the whole is not copied.
                    self.cost = cost + 1;
                }
                leaves = whole;
                Expr::Part { value: Box::new(value), path: self.path(path)? }
            }
            ir::Expr::Subgroup { op, value, argument } => {
                let value = self.expr(value)?.0;
                let argument = argument.as_ref().map(|argument| self.expr(argument)).transpose()?.map(|(e, _)| e);
                if op.has_argument() != argument.is_some() {
                    return Err(inconsistent(format!("{op:?} has the wrong number of arguments")));
                }
                // Evaluation has no side effects, so it can happen before the rest of its statement.
                let result = self.new_variable(1).slot;
                self.code.collective = true;
                self.emit(Action::Subgroup { op: *op, value, argument, result });
                Expr::Slot(result)
            }
            ir::Expr::MatrixMultiplyAdd { kind, a, b, c } => {
                check_matrix_workgroup(self.launch.workgroup_size)?;
                if self.launch.subgroup_size != MATRIX_LANES {
                    let message =
                        format!("a matrix operation can't run with subgroups of {}", self.launch.subgroup_size);
                    return Err(Diagnostic::new(&codes::ir::LAUNCH_MATRIX, message));
                }
                let fragments = Box::new([self.expr(a)?.0, self.expr(b)?.0, self.expr(c)?.0]);
                let result = self.new_variable(1).slot;
                self.code.collective = true;
                self.emit(Action::Matrix { kind: *kind, fragments, result });
                Expr::Slot(result)
            }
        };
        Ok((resolved, leaves))
    }

    fn boxed(&mut self, expr: &'p ir::Expr) -> Result<Box<Expr>, Diagnostic> {
        Ok(Box::new(self.expr(expr)?.0))
    }

    fn exprs(&mut self, exprs: &'p [ir::Expr]) -> Result<Vec<Expr>, Diagnostic> {
        exprs.iter().map(|expr| Ok(self.expr(expr)?.0)).collect()
    }

    /// Scalar and number of lanes of a type that computes.
    fn computing(&self, ty: &DataType) -> Result<(Element, usize), Diagnostic> {
        let (element, count) = ty.as_vector().unwrap_or_else(|| (ty.clone(), 1));
        let element = computing(&element);
        let element =
            element.ok_or_else(|| Diagnostic::new(&codes::reference::TYPE, format!("nothing converts to {ty}")))?;
        Ok((element, count as usize))
    }

    /// The built-in values that are the same for the whole launch.
    fn uniform(&self, builtin: Builtin) -> Result<Option<u32>, Diagnostic> {
        let axis = |sizes: [u32; 3], axis: u8| {
            let size = sizes.get(usize::from(axis)).copied();
            size.ok_or_else(|| inconsistent(format!("there is no axis {axis}"))).map(Some)
        };
        match builtin {
            Builtin::NumWorkgroups(i) => axis(self.launch.grid, i),
            Builtin::WorkgroupSize(i) => axis(self.launch.workgroup_size, i),
            Builtin::SubgroupSize => Ok(Some(self.launch.subgroup_size)),
            Builtin::NumSubgroups => Ok(Some(self.launch.invocations().div_ceil(self.launch.subgroup_size))),
            Builtin::GlobalId(i) | Builtin::LocalId(i) | Builtin::WorkgroupId(i) => axis([0; 3], i).map(|_| None),
            Builtin::LocalIndex | Builtin::SubgroupLane | Builtin::SubgroupId => Ok(None),
        }
    }
}
