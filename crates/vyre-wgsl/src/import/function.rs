//! Functions and statements. naga's expressions form a graph that `Emit` statements evaluate at given points; here an
//! expression is written where it is used, unless it is used more than once, has a name in the source, or reads something
//! that a statement in between may change.

use std::collections::HashMap;

use naga::valid::{FunctionInfo, ModuleInfo};
use naga::{
    Arena, AtomicFunction, Barrier, Binding, Block, BuiltIn, CollectiveOperation, Constant, Expression, GatherMode,
    GlobalVariable, Handle, LocalVariable, Span, Statement, SubgroupOperation, SwitchValue, Type, TypeInner,
};
use vyre_foundation::ir::{
    Access, AtomicOp, BarrierScope, Builtin, Case, DataType, Expr, Function, Literal, Name, Node, Param, SubgroupOp,
    UnaryOp,
};
use vyre_spec::{Diagnostic, codes};

use super::expr::is_trivial;
use super::module::{Failed, Importer, Res};
use super::uses::{self, FunctionUses, operands};

/// Expressions deeper than this are named, so that no tree grows with the length of a source line.
const MAX_DEPTH: u16 = 40;
/// Calls within calls.
const MAX_CALL_DEPTH: u32 = 200;

/// One step of a pointer.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Member(u32),
    Index(Expr),
}

/// What a pointer points to.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) root: Root,
    pub(super) path: Vec<Step>,
}

/// The variable of a place.
#[derive(Clone, Debug)]
pub(super) enum Root {
    Buffer(Handle<GlobalVariable>),
    Variable(Name),
}

impl Place {
    fn variable(name: Name) -> Place {
        Place { root: Root::Variable(name), path: Vec::new() }
    }

    pub(super) fn accesses(path: &[Step]) -> Vec<Access> {
        path.iter()
            .map(|step| match step {
                Step::Member(index) => Access::Member(*index),
                Step::Index(index) => Access::Index(index.clone()),
            })
            .collect()
    }
}

#[derive(Clone)]
pub(super) enum Argument {
    Value(Expr),
    Pointer(Place),
}

/// What a `return` gives back.
enum Returns {
    /// As the source says.
    Plain,
    /// A record of the value and of the variables that were passed in by pointer.
    Record { ty: DataType, variables: Vec<Name> },
}

/// `a && b` or `a || b` in naga's spelling.
struct Logical {
    result: Handle<LocalVariable>,
    right: Handle<Expression>,
    is_or: bool,
}

#[derive(Clone, Copy)]
pub(super) enum TypesOf<'a> {
    Function(&'a FunctionInfo),
    Module(&'a ModuleInfo),
}

pub(super) struct FunctionCx<'m, 'a> {
    pub(super) im: &'m mut Importer<'a>,
    pub(super) arena: &'a Arena<Expression>,
    pub(super) types: TypesOf<'a>,
    pub(super) arguments: Vec<Argument>,
    pub(super) out: Vec<Node>,
    pub(super) local_values: HashMap<Handle<LocalVariable>, Expr>,
    function: Option<&'a naga::Function>,
    counts: Vec<u32>,
    values: Vec<Option<Expr>>,
    changeable: Vec<bool>,
    depths: Vec<u16>,
    pending: Vec<Handle<Expression>>,
    consumed: Vec<bool>,
    locals: HashMap<Handle<LocalVariable>, Name>,
    local_order: Vec<Handle<LocalVariable>>,
    privates: HashMap<Handle<GlobalVariable>, Name>,
    constants: HashMap<Handle<Constant>, Name>,
    prologue: Vec<Node>,
    returns: Returns,
}

impl<'m, 'a> FunctionCx<'m, 'a> {
    fn new(im: &'m mut Importer<'a>, function: Option<&'a naga::Function>, types: TypesOf<'a>) -> Self {
        let module = im.module;
        let arena = function.map_or(&module.global_expressions, |function| &function.expressions);
        let is_pointer = |handle| is_pointer(inner_type(module, types, handle));
        let counts = function.map(|function| uses::count(function, &is_pointer)).unwrap_or_default();
        let size = arena.len();
        FunctionCx {
            im,
            arena,
            types,
            arguments: Vec::new(),
            out: Vec::new(),
            local_values: HashMap::new(),
            function,
            counts,
            values: vec![None; size],
            changeable: vec![false; size],
            depths: vec![0; size],
            pending: Vec::new(),
            consumed: vec![false; size],
            locals: HashMap::new(),
            local_order: Vec::new(),
            privates: HashMap::new(),
            constants: HashMap::new(),
            prologue: Vec::new(),
            returns: Returns::Plain,
        }
    }

    /// For the module's own constant expressions.
    pub(super) fn global(im: &'m mut Importer<'a>) -> Self {
        let info = im.info;
        FunctionCx::new(im, None, TypesOf::Module(info))
    }

    /// The body of an entry point.
    pub(super) fn entry(im: &'m mut Importer<'a>, entry: usize) -> Res<Vec<Node>> {
        let module = im.module;
        let function = &module.entry_points[entry].function;
        let info = im.info.get_entry_point(entry);
        let uses = im.uses.entry(module, function);
        let mut cx = FunctionCx::new(im, Some(function), TypesOf::Function(info));
        for argument in &function.arguments {
            let value = cx.input(argument.ty, argument.binding.as_ref())?;
            cx.arguments.push(Argument::Value(value));
        }
        for &global in uses.privates.keys() {
            let wanted = module.global_variables[global].name.as_deref().unwrap_or("private");
            let name = cx.im.names.fresh(wanted);
            let var = cx.im.private_var(global, name.clone())?;
            cx.prologue.push(var);
            cx.privates.insert(global, name);
        }
        cx.body(function)
    }

    /// The body of a function without arguments that nothing calls.
    pub(super) fn lone(im: &'m mut Importer<'a>, handle: Handle<naga::Function>) -> Res<Vec<Node>> {
        let function = &im.module.functions[handle];
        let info = &im.info[handle];
        FunctionCx::new(im, Some(function), TypesOf::Function(info)).body(function)
    }

    /// What a stage input is.
    fn input(&mut self, ty: Handle<Type>, binding: Option<&Binding>) -> Res<Expr> {
        let module = self.im.module;
        let span = module.types.get_span(ty);
        if let Some(binding) = binding {
            let Binding::BuiltIn(builtin) = binding else {
                return self.im.unsupported("an input with a location", span);
            };
            return self.builtin(*builtin, span);
        }
        let TypeInner::Struct { ref members, .. } = module.types[ty].inner else {
            return self.im.unsupported("an entry point argument without a built-in", span);
        };
        let parts =
            members.iter().map(|member| self.input(member.ty, member.binding.as_ref())).collect::<Res<Vec<_>>>()?;
        let ty = self.im.ty(ty, span)?;
        Ok(Expr::construct(ty, parts))
    }

    fn builtin(&mut self, builtin: BuiltIn, span: Span) -> Res<Expr> {
        let axes = |make: fn(u8) -> Builtin| {
            let parts = (0..3).map(|axis| Expr::Builtin(make(axis))).collect();
            Ok(Expr::construct(DataType::vector(DataType::U32, 3), parts))
        };
        match builtin {
            BuiltIn::GlobalInvocationId => axes(Builtin::GlobalId),
            BuiltIn::LocalInvocationId => axes(Builtin::LocalId),
            BuiltIn::WorkGroupId => axes(Builtin::WorkgroupId),
            BuiltIn::NumWorkGroups => axes(Builtin::NumWorkgroups),
            BuiltIn::WorkGroupSize => axes(Builtin::WorkgroupSize),
            BuiltIn::LocalInvocationIndex => Ok(Expr::Builtin(Builtin::LocalIndex)),
            BuiltIn::SubgroupSize => Ok(Expr::Builtin(Builtin::SubgroupSize)),
            BuiltIn::SubgroupInvocationId => Ok(Expr::Builtin(Builtin::SubgroupLane)),
            BuiltIn::SubgroupId => Ok(Expr::Builtin(Builtin::SubgroupId)),
            BuiltIn::NumSubgroups => Ok(Expr::Builtin(Builtin::NumSubgroups)),
            other => self.im.unsupported(format_args!("the built-in {other:?}"), span),
        }
    }

    /// Translates a function, once.
    fn helper(im: &'m mut Importer<'a>, handle: Handle<naga::Function>, span: Span) -> Res<Name> {
        if let Some(name) = im.translated.get(&handle) {
            return Ok(name.clone());
        }
        let module = im.module;
        let function = &module.functions[handle];
        let info = &im.info[handle];
        if im.depth >= MAX_CALL_DEPTH {
            let message = format!("functions call each other more than {MAX_CALL_DEPTH} deep");
            im.problem(Diagnostic::new(&codes::wgsl::WGSL_TOO_LARGE, message), span);
            return Err(Failed);
        }
        im.depth += 1;
        let name = im.names.fresh(function.name.as_deref().unwrap_or("function"));
        let uses = im.uses.of(handle).clone();
        let mut cx = FunctionCx::new(im, Some(function), TypesOf::Function(info));
        let made = cx.helper_parts(&uses, function, &name).and_then(|parts| Ok((parts, cx.body(function)?)));
        cx.im.depth -= 1;
        let ((params, result), body) = made?;
        cx.im.functions.push(Function { name: name.clone(), params, result, body });
        cx.im.translated.insert(handle, name.clone());
        Ok(name)
    }

    /// Sets up arguments and returns, and gives the parameters and the type of the result.
    fn helper_parts(
        &mut self,
        uses: &FunctionUses,
        function: &'a naga::Function,
        name: &Name,
    ) -> Res<(Vec<Param>, Option<DataType>)> {
        let module = self.im.module;
        let mut params = Vec::new();
        let mut outs: Vec<(Name, DataType)> = Vec::new();
        for (i, argument) in function.arguments.iter().enumerate() {
            let wanted = argument.name.clone().unwrap_or_else(|| format!("arg{i}"));
            let span = module.types.get_span(argument.ty);
            let (ty, by_pointer) = match module.types[argument.ty].inner {
                TypeInner::Pointer { base, .. } => (self.im.ty(base, span)?, true),
                TypeInner::ValuePointer { size, scalar, .. } => {
                    let scalar = self.im.scalar(scalar, span)?;
                    (size.map_or(scalar.clone(), |size| DataType::vector(scalar.clone(), size.into())), true)
                }
                _ => (self.im.ty(argument.ty, span)?, false),
            };
            if !by_pointer {
                let param = self.im.names.fresh(&wanted);
                params.push(Param { name: param.clone(), ty });
                self.arguments.push(Argument::Value(Expr::Var(param)));
            } else {
                let variable = self.passed_in(&wanted, ty, uses.written[i], &mut params, &mut outs);
                self.arguments.push(Argument::Pointer(Place::variable(variable)));
            }
        }
        for (&global, &written) in &uses.privates {
            let wanted = module.global_variables[global].name.as_deref().unwrap_or("private");
            let ty = self.im.ty(module.global_variables[global].ty, module.global_variables.get_span(global))?;
            let variable = self.passed_in(wanted, ty, written, &mut params, &mut outs);
            self.privates.insert(global, variable);
        }
        let value = match &function.result {
            Some(result) => Some(self.im.ty(result.ty, Span::UNDEFINED)?),
            None => None,
        };
        if outs.is_empty() {
            return Ok((params, value));
        }
        let variables: Vec<_> = outs.iter().map(|(name, _)| name.clone()).collect();
        let parts = value.map(|ty| (Name::from("value"), ty)).into_iter().chain(outs).collect();
        let ty = self.im.record(&format!("{name}_result"), parts);
        self.returns = Returns::Record { ty: ty.clone(), variables };
        Ok((params, Some(ty)))
    }

    /// A variable that is passed in by value, and out again when it is written.
    fn passed_in(
        &mut self,
        wanted: &str,
        ty: DataType,
        written: bool,
        params: &mut Vec<Param>,
        outs: &mut Vec<(Name, DataType)>,
    ) -> Name {
        let variable = self.im.names.fresh(wanted);
        if !written {
            params.push(Param { name: variable.clone(), ty });
            return variable;
        }
        let param = self.im.names.fresh(&format!("{wanted}_in"));
        params.push(Param { name: param.clone(), ty: ty.clone() });
        self.prologue.push(Node::Var { name: variable.clone(), ty: ty.clone(), init: Some(Expr::Var(param)) });
        outs.push((variable.clone(), ty));
        variable
    }

    fn body(&mut self, function: &'a naga::Function) -> Res<Vec<Node>> {
        self.block(&function.body);
        if matches!(self.returns, Returns::Record { .. })
            && function.result.is_none()
            && !matches!(self.out.last(), Some(Node::Return(_)))
        {
            let value = self.returned(None);
            self.out.push(Node::Return(value));
        }
        let mut body = std::mem::take(&mut self.out);
        leave_at_the_end(&mut body);
        let mut order = std::mem::take(&mut self.local_order);
        order.sort();
        for local in order {
            let declared = &function.local_variables[local];
            let span = function.local_variables.get_span(local);
            let ty = self.im.ty(declared.ty, span)?;
            let init = declared.init.map(|init| self.value(init)).transpose()?;
            let name = self.locals[&local].clone();
            self.out.push(Node::Var { name, ty, init });
        }
        let locals = std::mem::take(&mut self.out);
        let mut nodes = std::mem::take(&mut self.prologue);
        nodes.extend(locals);
        nodes.extend(body);
        Ok(nodes)
    }

    // Values.

    /// The expression that computes a value. What is not named by a `let` is written out, which uses it up.
    pub(super) fn value(&mut self, handle: Handle<Expression>) -> Res<Expr> {
        if let Some(value) = &self.values[handle.index()] {
            return Ok(value.clone());
        }
        self.consumed[handle.index()] = true;
        self.compute(handle)
    }

    /// The type of an expression.
    pub(super) fn inner(&self, handle: Handle<Expression>) -> &'a TypeInner {
        inner_type(self.im.module, self.types, handle)
    }

    pub(super) fn span(&self, handle: Handle<Expression>) -> Span {
        self.arena.get_span(handle)
    }

    /// Names a value that one expression needs more than once. Constant expressions have no statements, so there it is
    /// repeated.
    pub(super) fn bind(&mut self, value: Expr) -> Expr {
        if self.function.is_none() || is_trivial(&value) { value } else { self.name_value("t", value) }
    }

    /// Names a value that later statements need.
    fn freeze(&mut self, value: Expr) -> Expr {
        if matches!(value, Expr::Literal(_) | Expr::Constant(_) | Expr::Builtin(_)) {
            value
        } else {
            self.name_value("t", value)
        }
    }

    fn name_value(&mut self, wanted: &str, value: Expr) -> Expr {
        let name = self.im.names.fresh(wanted);
        self.out.push(Node::Let { name: name.clone(), value });
        Expr::Var(name)
    }

    /// A constant of the module. Arrays are named once per function, because they are usually indexed in loops.
    pub(super) fn module_constant(&mut self, handle: Handle<Constant>) -> Res<Expr> {
        if let Some(name) = self.constants.get(&handle) {
            return Ok(Expr::Var(name.clone()));
        }
        let constant = &self.im.module.constants[handle];
        let value = self.im.global_expr(constant.init)?;
        if self.function.is_some() && matches!(&value, Expr::Construct { parts, .. } if parts.len() > 4) {
            let name = self.im.names.fresh(constant.name.as_deref().unwrap_or("table"));
            self.prologue.push(Node::Let { name: name.clone(), value });
            self.constants.insert(handle, name.clone());
            return Ok(Expr::Var(name));
        }
        Ok(value)
    }

    pub(super) fn local(&mut self, handle: Handle<LocalVariable>) -> Name {
        if let Some(name) = self.locals.get(&handle) {
            return name.clone();
        }
        let wanted = self.function.and_then(|function| function.local_variables[handle].name.as_deref());
        let name = self.im.names.fresh(wanted.unwrap_or("v"));
        self.locals.insert(handle, name.clone());
        self.local_order.push(handle);
        name
    }

    pub(super) fn private(&mut self, handle: Handle<GlobalVariable>) -> Option<Name> {
        self.privates.get(&handle).cloned()
    }

    /// Evaluates what an `Emit` names.
    fn emit(&mut self, handle: Handle<Expression>) -> Res<()> {
        let at = handle.index();
        let (mut changeable, mut depth) = (self.reads_changeable(handle), 0);
        operands(&self.arena[handle], &mut |part| {
            if self.values[part.index()].is_none() {
                changeable |= self.changeable[part.index()];
                depth = depth.max(self.depths[part.index()]);
            }
        });
        self.changeable[at] = changeable;
        self.depths[at] = depth + 1;
        if self.counts[at] == 0 || self.values[at].is_some() || is_pointer(self.inner(handle)) {
            return Ok(());
        }
        if let Expression::Load { pointer } = self.arena[handle]
            && self.is_atomic(pointer)
        {
            let name = self.im.names.fresh("loaded");
            let place = self.place(pointer)?;
            self.atomic_node(AtomicOp::Load, &place, None, None, Some(name.clone()), self.span(handle))?;
            self.values[at] = Some(Expr::Var(name));
            return Ok(());
        }
        let source_name = self.function.and_then(|function| function.named_expressions.get(&handle));
        if source_name.is_some() || self.counts[at] > 1 || depth >= MAX_DEPTH {
            let value = self.value(handle)?;
            let value = if !changeable && is_trivial(&value) {
                value
            } else {
                self.name_value(source_name.map_or("t", |name| name.as_str()), value)
            };
            self.values[at] = Some(value);
        } else if changeable {
            self.pending.push(handle);
        }
        Ok(())
    }

    /// The expression itself reads something that statements can change.
    fn reads_changeable(&self, handle: Handle<Expression>) -> bool {
        let Expression::Load { mut pointer } = self.arena[handle] else { return false };
        loop {
            match self.arena[pointer] {
                Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => pointer = base,
                Expression::GlobalVariable(global) => {
                    return match self.im.module.global_variables[global].space {
                        naga::AddressSpace::Uniform => false,
                        naga::AddressSpace::Storage { access } => access.contains(naga::StorageAccess::STORE),
                        _ => true,
                    };
                }
                _ => return true,
            }
        }
    }

    fn is_atomic(&self, pointer: Handle<Expression>) -> bool {
        match *self.inner(pointer) {
            TypeInner::Pointer { base, .. } => matches!(self.im.module.types[base].inner, TypeInner::Atomic(_)),
            _ => false,
        }
    }

    /// Names what was evaluated before the statement that comes now and is used after it.
    fn settle(&mut self) {
        for handle in std::mem::take(&mut self.pending) {
            let at = handle.index();
            if self.consumed[at] || self.values[at].is_some() {
                continue;
            }
            if let Ok(value) = self.value(handle) {
                self.values[at] = Some(self.name_value("t", value));
            }
        }
    }

    // Statements.

    /// Translates a list of statements into `self.out`. A statement that fails is left out, so that more problems are found.
    fn block(&mut self, block: &Block) {
        for (statement, span) in block.span_iter() {
            if self.statement(statement, *span).is_err() {
                continue;
            }
        }
    }

    /// A list of statements with names of their own.
    fn nested(&mut self, block: &Block) -> Vec<Node> {
        let outer = std::mem::take(&mut self.out);
        self.block(block);
        self.settle();
        std::mem::replace(&mut self.out, outer)
    }

    fn statement(&mut self, statement: &Statement, span: Span) -> Res<()> {
        match statement {
            Statement::Emit(range) => {
                // A failed part makes what depends on it fail silently later.
                for handle in range.clone() {
                    let _ = self.emit(handle);
                }
                return Ok(());
            }
            Statement::Block(inner) => {
                self.settle();
                let nodes = self.nested(inner);
                self.out.push(Node::Block(nodes));
            }
            Statement::If { condition, accept, reject } => {
                if let Some(operator) = self.short_circuit(accept, reject) {
                    return self.logical(*condition, accept, operator);
                }
                let cond = self.value(*condition);
                self.settle();
                let then = self.nested(accept);
                let otherwise = self.nested(reject);
                self.out.push(Node::If { cond: cond?, then, otherwise });
            }
            Statement::Switch { selector, cases } => {
                let selector = self.value(*selector);
                self.settle();
                let cases = self.cases(cases, span);
                self.out.push(Node::Switch { selector: selector?, cases: cases? });
            }
            Statement::Loop { body, continuing, break_if } => {
                self.settle();
                let body = self.nested(body);
                let outer = std::mem::take(&mut self.out);
                self.block(continuing);
                let break_if = break_if.map(|cond| self.value(cond)).transpose();
                self.settle();
                let continuing = std::mem::replace(&mut self.out, outer);
                self.out.push(Node::Loop { body, continuing, break_if: break_if? });
            }
            Statement::Break => self.out.push(Node::Break),
            Statement::Continue => self.out.push(Node::Continue),
            Statement::Return { value } => {
                let value = value.map(|value| self.value(value)).transpose()?;
                let value = self.returned(value);
                self.out.push(Node::Return(value));
            }
            Statement::ControlBarrier(flags) => {
                self.settle();
                self.barrier(*flags, span)?;
            }
            Statement::Store { pointer, value } => {
                let place = self.place(*pointer)?;
                let value = self.value(*value)?;
                self.settle();
                if self.is_atomic(*pointer) {
                    self.atomic_node(AtomicOp::Store, &place, Some(value), None, None, span)?;
                } else {
                    self.store(&place, value)?;
                }
            }
            Statement::Atomic { pointer, fun, value, result } => {
                let (place, value) = (self.place(*pointer)?, self.value(*value)?);
                self.atomic(&place, fun, value, *result, span)?;
            }
            Statement::WorkGroupUniformLoad { pointer, result } => {
                let place = self.place(*pointer)?;
                self.settle();
                self.out.push(Node::Barrier(BarrierScope::Workgroup));
                let value = if self.is_atomic(*pointer) {
                    let name = self.im.names.fresh("loaded");
                    self.atomic_node(AtomicOp::Load, &place, None, None, Some(name.clone()), span)?;
                    Expr::Var(name)
                } else {
                    let value = self.load(&place)?;
                    self.name_value(self.source_name(*result), value)
                };
                self.values[result.index()] = Some(value);
                self.out.push(Node::Barrier(BarrierScope::Workgroup));
            }
            Statement::Call { function, arguments, result } => self.call(*function, arguments, *result, span)?,
            Statement::SubgroupBallot { result, predicate } => {
                let value = match predicate {
                    Some(value) => self.value(*value)?,
                    None => Expr::bool(true),
                };
                self.subgroup(SubgroupOp::Ballot, value, None, *result);
            }
            Statement::SubgroupGather { mode, argument, result } => {
                let value = self.value(*argument)?;
                let (op, lane) = self.gather(mode)?;
                self.subgroup(op, value, lane, *result);
            }
            Statement::SubgroupCollectiveOperation { op, collective_op, argument, result } => {
                let value = self.value(*argument)?;
                let Some(op) = collective(*op, *collective_op) else {
                    return self.im.unsupported("this scan over the subgroup", span);
                };
                self.subgroup(op, value, None, *result);
            }
            Statement::Kill => return self.im.unsupported("`discard`", span),
            Statement::MemoryBarrier(_) => return self.im.unsupported("a memory barrier that nobody waits at", span),
            Statement::ImageStore { .. } | Statement::ImageAtomic { .. } => {
                return self.im.unsupported("a texture operation", span);
            }
            Statement::RayQuery { .. } | Statement::RayPipelineFunction(_) => {
                return self.im.unsupported("a ray operation", span);
            }
            Statement::CooperativeStore { .. } => return self.im.unsupported("a cooperative matrix", span),
        }
        Ok(())
    }

    fn source_name(&self, handle: Handle<Expression>) -> &'a str {
        self.function.and_then(|function| function.named_expressions.get(&handle)).map_or("t", |name| name.as_str())
    }

    /// naga writes `a && b` and `a || b` as an `if` that sets a variable without a name. Evaluation has no side effects
    /// here, so the plain operator is the same where the right side is an expression only.
    fn short_circuit(&self, accept: &Block, reject: &Block) -> Option<Logical> {
        let stored = |block: &Block| match block.last() {
            Some(Statement::Store { pointer, value }) => match self.arena[*pointer] {
                Expression::LocalVariable(local) => Some((local, *value)),
                _ => None,
            },
            _ => None,
        };
        let ((result, right), (other, constant)) = (stored(accept)?, stored(reject)?);
        let Expression::Literal(naga::Literal::Bool(is_or)) = self.arena[constant] else { return None };
        if result != other || self.function?.local_variables[result].name.is_some() || !self.im.is_text() {
            return None;
        }
        let simple = |statement: &Statement| match statement {
            Statement::Emit(_) => true,
            Statement::If { accept, reject, .. } => self.short_circuit(accept, reject).is_some(),
            _ => false,
        };
        let rest = |block: &Block| block.iter().take(block.len().saturating_sub(1)).all(simple);
        (rest(accept) && rest(reject)).then_some(Logical { result, right, is_or })
    }

    fn logical(&mut self, condition: Handle<Expression>, accept: &Block, operator: Logical) -> Res<()> {
        let condition = self.value(condition);
        for (statement, span) in accept.span_iter().take(accept.len().saturating_sub(1)) {
            self.statement(statement, *span)?;
        }
        let (condition, right) = (condition?, self.value(operator.right)?);
        // `a || b` tests `!a`.
        let both = match &condition {
            _ if !operator.is_or => condition & right,
            Expr::Unary { op: UnaryOp::Not, value } => (**value).clone() | right,
            negated => !(*negated).clone() | right,
        };
        self.local_values.insert(operator.result, both);
        Ok(())
    }

    fn cases(&mut self, cases: &[naga::SwitchCase], span: Span) -> Res<Vec<Case>> {
        let mut made = Vec::new();
        let (mut values, mut default) = (Vec::new(), false);
        for case in cases {
            match case.value {
                SwitchValue::I32(value) => values.push(Literal::I32(value)),
                SwitchValue::U32(value) => values.push(Literal::U32(value)),
                SwitchValue::Default => default = true,
            }
            if case.fall_through && case.body.is_empty() {
                continue;
            }
            if case.fall_through {
                return self.im.unsupported("a switch case that falls through", span);
            }
            let body = self.nested(&case.body);
            made.push(Case { values: std::mem::take(&mut values), default: std::mem::take(&mut default), body });
        }
        Ok(made)
    }

    fn returned(&self, value: Option<Expr>) -> Option<Expr> {
        match &self.returns {
            Returns::Plain => value,
            Returns::Record { ty, variables } => {
                let parts = value.into_iter().chain(variables.iter().cloned().map(Expr::Var)).collect();
                Some(Expr::construct(ty.clone(), parts))
            }
        }
    }

    fn barrier(&mut self, flags: Barrier, span: Span) -> Res<()> {
        if flags.contains(Barrier::TEXTURE) {
            return self.im.unsupported("a texture barrier", span);
        }
        // A barrier of the subgroup is one of the workgroup that fewer wait at; the stronger one is correct for both.
        if flags.intersects(Barrier::STORAGE | Barrier::SUB_GROUP) {
            self.out.push(Node::Barrier(BarrierScope::Storage));
        }
        if flags.intersects(Barrier::WORK_GROUP | Barrier::SUB_GROUP) {
            self.out.push(Node::Barrier(BarrierScope::Workgroup));
        }
        if flags.is_empty() {
            self.out.push(Node::Barrier(BarrierScope::Workgroup));
        }
        Ok(())
    }

    fn subgroup(&mut self, op: SubgroupOp, value: Expr, lane: Option<Expr>, result: Handle<Expression>) {
        self.settle();
        let value = Expr::Subgroup { op, value: Box::new(value), argument: lane.map(Box::new) };
        let named = self.name_value(self.source_name(result), value);
        self.values[result.index()] = Some(named);
    }

    fn gather(&mut self, mode: &GatherMode) -> Res<(SubgroupOp, Option<Expr>)> {
        let lane = Expr::Builtin(Builtin::SubgroupLane);
        Ok(match *mode {
            GatherMode::BroadcastFirst => (SubgroupOp::BroadcastFirst, None),
            GatherMode::Broadcast(index) => (SubgroupOp::Broadcast, Some(self.lane_index(index)?)),
            GatherMode::Shuffle(index) => (SubgroupOp::Shuffle, Some(self.lane_index(index)?)),
            GatherMode::ShuffleDown(index) => (SubgroupOp::ShuffleDown, Some(self.lane_index(index)?)),
            GatherMode::ShuffleUp(index) => (SubgroupOp::ShuffleUp, Some(self.lane_index(index)?)),
            GatherMode::ShuffleXor(index) => (SubgroupOp::ShuffleXor, Some(self.lane_index(index)?)),
            GatherMode::QuadBroadcast(index) => (SubgroupOp::Shuffle, Some((lane & !3u32) + self.lane_index(index)?)),
            GatherMode::QuadSwap(direction) => (SubgroupOp::ShuffleXor, Some(Expr::u32(direction as u32 + 1))),
        })
    }

    fn lane_index(&mut self, handle: Handle<Expression>) -> Res<Expr> {
        let value = self.value(handle)?;
        let unsigned = matches!(self.inner(handle), TypeInner::Scalar(naga::Scalar::U32));
        Ok(if unsigned { value } else { value.cast(DataType::U32) })
    }

    fn atomic(
        &mut self,
        place: &Place,
        fun: &AtomicFunction,
        value: Expr,
        result: Option<Handle<Expression>>,
        span: Span,
    ) -> Res<()> {
        let (op, compare) = match *fun {
            AtomicFunction::Add => (AtomicOp::Add, None),
            AtomicFunction::Subtract => (AtomicOp::Sub, None),
            AtomicFunction::And => (AtomicOp::And, None),
            AtomicFunction::ExclusiveOr => (AtomicOp::Xor, None),
            AtomicFunction::InclusiveOr => (AtomicOp::Or, None),
            AtomicFunction::Min => (AtomicOp::Min, None),
            AtomicFunction::Max => (AtomicOp::Max, None),
            AtomicFunction::Exchange { compare: None } => (AtomicOp::Exchange, None),
            AtomicFunction::Exchange { compare: Some(compare) } => {
                (AtomicOp::CompareExchange, Some(self.value(compare)?))
            }
        };
        // The result struct compares the old value with what was expected, so that is needed twice.
        let compare = compare.map(|compare| self.freeze(compare));
        self.settle();
        let used = result.filter(|result| self.counts[result.index()] > 0);
        let name =
            used.map(|result| self.im.names.fresh(if compare.is_some() { "old" } else { self.source_name(result) }));
        self.atomic_node(op, place, Some(value), compare.clone(), name.clone(), span)?;
        if let (Some(result), Some(name)) = (used, name) {
            let old = Expr::Var(name);
            let value = match (compare, &self.arena[result]) {
                (Some(compare), Expression::AtomicResult { ty, comparison: true }) => {
                    let ty = self.im.ty(*ty, span)?;
                    let exchanged = self.name_value("exchanged", old.clone().eq(compare));
                    Expr::construct(ty, vec![old, exchanged])
                }
                _ => old,
            };
            self.values[result.index()] = Some(value);
        }
        Ok(())
    }

    fn atomic_node(
        &mut self,
        op: AtomicOp,
        place: &Place,
        value: Option<Expr>,
        compare: Option<Expr>,
        result: Option<Name>,
        span: Span,
    ) -> Res<()> {
        let Root::Buffer(global) = place.root else {
            return self.im.unsupported("an atomic operation on a variable of one invocation", span);
        };
        if let TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) = self.place_scalar(place)
            && scalar.kind == naga::ScalarKind::Float
        {
            return self.im.unsupported("an atomic operation on floats", span);
        }
        if op != AtomicOp::Store {
            self.im.mark_read(global);
        }
        let (buffer, index, path) = self.buffer_place(global, &place.path)?;
        self.out.push(Node::Atomic { op, buffer, index, path, value, compare, result });
        Ok(())
    }

    /// The type at the end of an atomic's path.
    fn place_scalar(&self, place: &Place) -> TypeInner {
        let module = self.im.module;
        let Root::Buffer(global) = place.root else { return TypeInner::Scalar(naga::Scalar::U32) };
        let mut ty = module.global_variables[global].ty;
        for step in &place.path {
            match (&module.types[ty].inner, step) {
                (TypeInner::Array { base, .. }, _) => ty = *base,
                (TypeInner::Struct { members, .. }, Step::Member(member)) => ty = members[*member as usize].ty,
                _ => break,
            }
        }
        module.types[ty].inner.clone()
    }

    fn call(
        &mut self,
        function: Handle<naga::Function>,
        arguments: &[Handle<Expression>],
        result: Option<Handle<Expression>>,
        span: Span,
    ) -> Res<()> {
        let module = self.im.module;
        let callee = &module.functions[function];
        let uses = self.im.uses.of(function).clone();
        let mut args = Vec::with_capacity(arguments.len());
        let mut outs = Vec::new();
        for (i, (&argument, declared)) in arguments.iter().zip(&callee.arguments).enumerate() {
            if !is_pointer(&module.types[declared.ty].inner) {
                if matches!(module.types[declared.ty].inner, TypeInner::Image { .. } | TypeInner::Sampler { .. }) {
                    return self.im.unsupported("a texture or sampler as an argument", span);
                }
                args.push(self.value(argument)?);
                continue;
            }
            let mut place = self.place(argument)?;
            if matches!(place.root, Root::Buffer(_)) {
                return self.im.unsupported("a pointer to storage or workgroup memory as an argument", span);
            }
            if uses.written[i] {
                for step in &mut place.path {
                    if let Step::Index(index) = step {
                        *index = self.freeze(index.clone());
                    }
                }
            }
            args.push(self.load(&place)?);
            if uses.written[i] {
                outs.push(place);
            }
        }
        for (&global, &written) in &uses.privates {
            let Some(name) = self.private(global) else { return Err(Failed) };
            args.push(Expr::Var(name.clone()));
            if written {
                outs.push(Place::variable(name));
            }
        }
        self.settle();
        let name = FunctionCx::helper(self.im, function, span)?;
        let used = result.filter(|result| self.counts[result.index()] > 0);
        if outs.is_empty() {
            let named = used.map(|result| self.im.names.fresh(self.source_name(result)));
            if let (Some(result), Some(named)) = (used, &named) {
                self.values[result.index()] = Some(Expr::Var(named.clone()));
            }
            self.out.push(Node::Call { function: name, args, result: named });
            return Ok(());
        }
        let record = self.im.names.fresh(&format!("{name}_out"));
        self.out.push(Node::Call { function: name, args, result: Some(record.clone()) });
        let part = |index: usize| Expr::Part {
            value: Box::new(Expr::Var(record.clone())),
            path: vec![Access::Member(index as u32)],
        };
        if let Some(result) = used {
            self.values[result.index()] = Some(part(0));
        }
        let first = usize::from(callee.result.is_some());
        for (i, place) in outs.into_iter().enumerate() {
            self.store(&place, part(first + i))?;
        }
        Ok(())
    }
}

fn inner_type<'a>(module: &'a naga::Module, types: TypesOf<'a>, handle: Handle<Expression>) -> &'a TypeInner {
    match types {
        TypesOf::Function(info) => info[handle].ty.inner_with(&module.types),
        TypesOf::Module(info) => info[handle].inner_with(&module.types),
    }
}

pub(super) fn is_pointer(inner: &TypeInner) -> bool {
    matches!(inner, TypeInner::Pointer { .. } | TypeInner::ValuePointer { .. })
}

/// Takes out what returns right before the end. The front end puts a `return` at the end of every branch, and a kernel whose work stands in
/// an `if` would have two ways out instead of one.
fn leave_at_the_end(body: &mut Vec<Node>) {
    while matches!(body.last(), Some(Node::Return(None))) {
        body.pop();
    }
    match body.last_mut() {
        Some(Node::If { then, otherwise, .. }) => {
            leave_at_the_end(then);
            leave_at_the_end(otherwise);
        }
        Some(Node::Switch { cases, .. }) => cases.iter_mut().for_each(|case| leave_at_the_end(&mut case.body)),
        Some(Node::Block(inner)) => leave_at_the_end(inner),
        _ => {}
    }
}

fn collective(op: SubgroupOperation, mode: CollectiveOperation) -> Option<SubgroupOp> {
    Some(match (op, mode) {
        (SubgroupOperation::All, CollectiveOperation::Reduce) => SubgroupOp::All,
        (SubgroupOperation::Any, CollectiveOperation::Reduce) => SubgroupOp::Any,
        (SubgroupOperation::Add, CollectiveOperation::Reduce) => SubgroupOp::Add,
        (SubgroupOperation::Mul, CollectiveOperation::Reduce) => SubgroupOp::Mul,
        (SubgroupOperation::Min, CollectiveOperation::Reduce) => SubgroupOp::Min,
        (SubgroupOperation::Max, CollectiveOperation::Reduce) => SubgroupOp::Max,
        (SubgroupOperation::And, CollectiveOperation::Reduce) => SubgroupOp::And,
        (SubgroupOperation::Or, CollectiveOperation::Reduce) => SubgroupOp::Or,
        (SubgroupOperation::Xor, CollectiveOperation::Reduce) => SubgroupOp::Xor,
        (SubgroupOperation::Add, CollectiveOperation::InclusiveScan) => SubgroupOp::InclusiveAdd,
        (SubgroupOperation::Add, CollectiveOperation::ExclusiveScan) => SubgroupOp::ExclusiveAdd,
        (SubgroupOperation::Mul, CollectiveOperation::InclusiveScan) => SubgroupOp::InclusiveMul,
        (SubgroupOperation::Mul, CollectiveOperation::ExclusiveScan) => SubgroupOp::ExclusiveMul,
        _ => return None,
    })
}
