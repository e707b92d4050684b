//! Checks statements and expressions: names, types, parts, places of jumps.

use hashbrown::{HashMap, HashSet};
use vyre_spec::Diagnostic;
use vyre_spec::codes::{self, Code};

use super::declarations::{TypeProblem, TypeTable, check_name};
use super::limits::{MAX_PRIVATE_BYTES, MAX_VARIABLES};
use super::report::{Place, Report};
use crate::ir::typing::{self, BOOL, U32, ValueType};
use crate::ir::{
    Access, AtomicOp, BufferDecl, BufferKind, Builtin, Case, DataType, Expr, Function, Literal, Name, Node, Program,
    SubgroupOp, TypeDef,
};
use crate::kernel::Scalar;

/// What later checks need to know about a body.
#[derive(Default)]
pub(super) struct BodyFacts {
    /// Functions that are called, with the depth of the call.
    pub(super) calls: Vec<(usize, u32)>,
    pub(super) statements: u64,
    pub(super) depth: u32,
    /// Bytes of struct and array variables.
    pub(super) private_bytes: u64,
}

/// What later checks need to know about the bodies.
pub(super) struct Facts {
    pub(super) functions: Vec<BodyFacts>,
    pub(super) entry: BodyFacts,
    /// There is a barrier or a subgroup operation.
    pub(super) meets: bool,
}

/// Checks all bodies.
pub(super) fn check<'p>(program: &'p Program, table: &'p TypeTable<'p>, report: &mut Report) -> Facts {
    let mut checker = Checker {
        program,
        table,
        report,
        buffers: program.buffers().iter().map(|buffer| (buffer.name.as_str(), buffer)).collect(),
        constants: program
            .constants()
            .iter()
            .map(|constant| (constant.name.as_str(), ValueType::of(&constant.default.data_type())))
            .collect(),
        functions: HashMap::new(),
        signatures: Vec::new(),
        scope: HashMap::new(),
        frames: Vec::new(),
        targets: Vec::new(),
        place: Place::default(),
        facts: BodyFacts::default(),
        depth: 0,
        variables: 0,
        result: None,
        meets: false,
    };
    checker.declare_functions();
    let mut functions = Vec::with_capacity(program.functions().len());
    for (i, function) in program.functions().iter().enumerate() {
        functions.push(checker.function(i, function));
    }
    checker.place = Place::default();
    checker.entry_name();
    checker.result = None;
    checker.list("body", program.body());
    let entry = std::mem::take(&mut checker.facts);
    Facts { functions, entry, meets: checker.meets }
}

/// A name in scope. The type is unknown where its declaration has a problem, which is reported there and not again.
#[derive(Clone, Copy)]
struct Local {
    ty: Option<ValueType>,
    assignable: bool,
    /// Number of the statement list that declares it.
    frame: usize,
}

/// Where a break or continue goes.
struct Target {
    is_loop: bool,
    /// In the `continuing` of a loop, from which nothing jumps out.
    continuing: bool,
    left_by_break: bool,
    /// How many names of the loop's body were declared at the first `continue`: later ones are not known in `continuing`.
    names_at_continue: Option<usize>,
    /// Which frame holds the names of the loop's body.
    frame: usize,
}

struct Signature {
    params: Vec<Option<ValueType>>,
    /// Outer: declared; inner: usable.
    result: Option<Option<ValueType>>,
}

struct Checker<'p, 'r> {
    program: &'p Program,
    table: &'p TypeTable<'p>,
    report: &'r mut Report,
    buffers: HashMap<&'p str, &'p BufferDecl>,
    constants: HashMap<&'p str, Option<ValueType>>,
    functions: HashMap<&'p str, usize>,
    signatures: Vec<Signature>,
    scope: HashMap<&'p str, Vec<Local>>,
    /// Names declared by each open statement list.
    frames: Vec<Vec<&'p str>>,
    targets: Vec<Target>,
    place: Place,
    facts: BodyFacts,
    depth: u32,
    /// Variables in scope.
    variables: usize,
    /// What the function returns: declared, and usable.
    result: Option<Option<ValueType>>,
    meets: bool,
}

type Checked = Option<ValueType>;

impl<'p> Checker<'p, '_> {
    fn problem(&mut self, code: Code, message: impl Into<String>) {
        self.report.add(code, message, &self.place);
    }

    fn within<T>(&mut self, field: &'static str, inner: impl FnOnce(&mut Self) -> T) -> T {
        self.place.push(field);
        let result = inner(self);
        self.place.pop();
        result
    }

    fn within_at<T>(&mut self, field: &'static str, index: usize, inner: impl FnOnce(&mut Self) -> T) -> T {
        self.place.push_at(field, index);
        let result = inner(self);
        self.place.pop();
        result
    }

    fn entry_name(&mut self) {
        self.place.push("name");
        check_name(&self.program.name().into(), &self.place, self.report);
        self.place.pop();
    }

    fn declare_functions(&mut self) {
        for (i, function) in self.program.functions().iter().enumerate() {
            self.place.push_at("functions", i);
            check_name(&function.name, &self.place, self.report);
            if self.functions.insert(function.name.as_str(), i).is_some() {
                self.problem(&codes::ir::IR_DUPLICATE, format!("there is another function `{}`", function.name));
            }
            let mut params = Vec::with_capacity(function.params.len());
            let mut names = HashSet::new();
            for (j, param) in function.params.iter().enumerate() {
                self.place.push_at("params", j);
                check_name(&param.name, &self.place, self.report);
                if !names.insert(&param.name) {
                    self.problem(&codes::ir::IR_DUPLICATE, format!("there is another parameter `{}`", param.name));
                }
                params.push(self.value_type(&param.ty));
                self.place.pop();
            }
            let result = function.result.as_ref().map(|ty| self.within("result", |this| this.value_type(ty)));
            self.signatures.push(Signature { params, result });
            self.place.pop();
        }
    }

    fn function(&mut self, index: usize, function: &'p Function) -> BodyFacts {
        self.place = Place::at("functions", index);
        self.result = self.signatures[index].result;
        self.frames.push(Vec::new());
        for (j, param) in function.params.iter().enumerate() {
            let local = Local { ty: self.signatures[index].params[j], assignable: false, frame: 1 };
            self.scope.entry(param.name.as_str()).or_default().push(local);
            self.frames[0].push(param.name.as_str());
        }
        let falls_through = self.list("body", &function.body);
        self.close_frame();
        if falls_through && function.result.is_some() {
            let message = format!("function `{}` can reach its end without returning a value", function.name);
            self.problem(&codes::ir::IR_RETURN, message);
        }
        std::mem::take(&mut self.facts)
    }

    /// A type that values have: of a variable, parameter or result.
    fn value_type(&mut self, ty: &DataType) -> Checked {
        let info = match self.table.info(ty) {
            Ok(info) => info,
            Err(TypeProblem::Known) => return None,
            Err(TypeProblem::New(message)) => {
                self.problem(&codes::ir::IR_UNSUPPORTED_TYPE, message);
                return None;
            }
        };
        let problem = if !info.computes {
            format!("{ty} is or holds a type that is only stored; there are no values of it")
        } else if info.open {
            format!("{ty} has an open length; there are no values of it")
        } else if u64::from(info.size) > MAX_PRIVATE_BYTES {
            format!("a value of {} bytes is too large; the limit is {MAX_PRIVATE_BYTES}", info.size)
        } else {
            return ValueType::of(ty);
        };
        self.problem(&codes::ir::IR_UNSUPPORTED_TYPE, problem);
        None
    }

    fn declare(&mut self, name: &'p Name, ty: Checked, assignable: bool) {
        check_name(name, &self.place, self.report);
        let frame = self.frames.len();
        let locals = self.scope.entry(name.as_str()).or_default();
        if locals.last().is_some_and(|local| local.frame == frame) {
            self.problem(&codes::ir::IR_DUPLICATE, format!("`{name}` is declared twice in one statement list"));
            return;
        }
        locals.push(Local { ty, assignable, frame });
        self.variables += usize::from(assignable);
        if self.variables == MAX_VARIABLES + 1 {
            self.problem(&codes::ir::IR_LIMIT, format!("more than {MAX_VARIABLES} variables are in scope at once"));
        }
        if let Some(names) = self.frames.last_mut() {
            names.push(name.as_str());
        }
    }

    fn close_frame(&mut self) {
        for name in self.frames.pop().unwrap_or_default() {
            self.forget(name);
        }
    }

    fn forget(&mut self, name: &'p str) {
        if let Some(local) = self.scope.get_mut(name).and_then(Vec::pop) {
            self.variables -= usize::from(local.assignable);
        }
    }

    fn local(&mut self, name: &Name) -> Option<Local> {
        let local = self.scope.get(name.as_str()).and_then(|locals| locals.last()).copied();
        if local.is_none() {
            self.unknown(name, "variable");
        }
        local
    }

    fn unknown(&mut self, name: &Name, what: &str) {
        let place = self.place.to_string();
        let mut problem =
            Diagnostic::new(&codes::ir::IR_UNKNOWN, format!("there is no {what} `{name}` here")).at(place);
        let key = name.as_str();
        let also = if self.buffers.contains_key(key) {
            Some("a buffer")
        } else if self.constants.contains_key(key) {
            Some("a specialization constant")
        } else if self.functions.contains_key(key) {
            Some("a function")
        } else if self.scope.get(key).is_some_and(|locals| !locals.is_empty()) {
            Some("a variable")
        } else {
            None
        };
        if let Some(also) = also {
            problem = problem.with_fix(format!("`{name}` is the name of {also}; use it as one."));
        }
        self.report.push(problem);
    }

    fn list(&mut self, field: &'static str, nodes: &'p [Node]) -> bool {
        self.frames.push(Vec::new());
        let falls_through = self.statements(field, nodes);
        self.close_frame();
        falls_through
    }

    /// Checks statements in the open frame; true when their end can be reached.
    fn statements(&mut self, field: &'static str, nodes: &'p [Node]) -> bool {
        self.depth += 1;
        self.facts.depth = self.facts.depth.max(self.depth);
        let mut falls_through = true;
        for (i, node) in nodes.iter().enumerate() {
            self.facts.statements += 1;
            falls_through &= self.within_at(field, i, |this| this.node(node));
        }
        self.depth -= 1;
        falls_through
    }

    /// Checks a statement; true when what follows it can be reached.
    fn node(&mut self, node: &'p Node) -> bool {
        match node {
            Node::Let { name, value } => {
                let ty = self.expr_at("value", value);
                self.declare(name, ty, false);
            }
            Node::Var { name, ty, init } => {
                let declared = self.within("ty", |this| this.value_type(ty));
                if let (DataType::Handle(_), Ok(info)) = (ty, self.table.info(ty)) {
                    self.facts.private_bytes = self.facts.private_bytes.saturating_add(u64::from(info.size));
                }
                if let Some(init) = init {
                    let init = self.expr_at("init", init);
                    self.expect("init", init, declared);
                }
                self.declare(name, declared, true);
            }
            Node::Assign { name, path, value } => {
                let value = self.expr_at("value", value);
                let Some(local) = self.local(name) else {
                    self.path_only(path);
                    return true;
                };
                if !local.assignable {
                    let message = format!("`{name}` is not a variable, so it keeps its value");
                    self.problem(&codes::ir::IR_ASSIGN, message);
                }
                let part = match local.ty {
                    Some(ty) => self.path(ty.data_type(), path).and_then(|ty| ValueType::of(&ty)),
                    None => {
                        self.path_only(path);
                        None
                    }
                };
                self.expect("value", value, part);
            }
            Node::Store { buffer, index, path, value } => {
                let value = self.expr_at("value", value);
                let place = self.memory(buffer, index, path);
                if let Some(decl) = self.buffers.get(buffer.as_str()).filter(|decl| !decl.kind.is_writable()) {
                    let message = format!("{} buffer `{buffer}` can't be stored to", decl.kind.name());
                    self.problem(&codes::ir::IR_ACCESS, message);
                }
                let wanted = place.and_then(|ty| self.whole(&ty));
                self.expect("value", value, wanted);
            }
            Node::If { cond, then, otherwise } => {
                let cond = self.expr_at("cond", cond);
                self.expect("cond", cond, Some(BOOL));
                let then = self.list("then", then);
                let otherwise = self.list("otherwise", otherwise);
                return then || otherwise;
            }
            Node::Switch { selector, cases } => return self.switch(selector, cases),
            Node::For { var, from, to, step, body } => {
                let from = self.expr_at("from", from);
                let to = self.expr_at("to", to);
                if !matches!(from, None | Some(ValueType::Scalar(Scalar::U32 | Scalar::I32))) {
                    let message = format!("a loop counts in u32 or i32, not {}", text(from));
                    self.within("from", |this| this.problem(&codes::ir::IR_TYPE, message));
                } else {
                    self.expect("to", to, from);
                }
                if *step == 0 {
                    self.within("step", |this| {
                        this.problem(&codes::ir::IR_STEP, "a loop can't count in steps of 0");
                    });
                }
                // The counter has a frame of its own around the body, which may hide it.
                self.frames.push(Vec::new());
                self.declare(var, from, false);
                self.targets.push(Target::new(true, self.frames.len()));
                self.list("body", body);
                self.targets.pop();
                self.close_frame();
            }
            Node::Loop { body, continuing, break_if } => return self.general_loop(body, continuing, break_if.as_ref()),
            Node::Break => {
                match self.targets.last_mut() {
                    Some(target) if !target.continuing => target.left_by_break = true,
                    Some(_) => self.problem(&codes::ir::IR_JUMP, "a continuing block can't be left by `break`"),
                    None => self.problem(&codes::ir::IR_JUMP, "there is no loop or switch to break out of"),
                }
                return false;
            }
            Node::Continue => {
                match self.targets.iter_mut().rev().find(|target| target.is_loop) {
                    Some(target) if !target.continuing => {
                        let declared = self.frames.get(target.frame).map_or(0, Vec::len);
                        target.names_at_continue.get_or_insert(declared);
                    }
                    Some(_) => self.problem(&codes::ir::IR_JUMP, "a continuing block can't be left by `continue`"),
                    None => self.problem(&codes::ir::IR_JUMP, "there is no loop to continue"),
                }
                return false;
            }
            Node::Return(value) => {
                if self.targets.iter().any(|target| target.continuing) {
                    self.problem(&codes::ir::IR_JUMP, "a continuing block can't be left by `return`");
                }
                match (value, self.result) {
                    (None, None) => {}
                    (Some(value), Some(wanted)) => {
                        let value = self.expr_at("value", value);
                        self.expect("value", value, wanted);
                    }
                    (Some(value), None) => {
                        self.expr_at("value", value);
                        self.problem(&codes::ir::IR_RETURN, "a value is returned where none is declared");
                    }
                    (None, Some(_)) => {
                        self.problem(&codes::ir::IR_RETURN, "nothing is returned where a value is declared");
                    }
                }
                return false;
            }
            Node::Barrier(_) => self.meets = true,
            Node::Atomic { op, buffer, index, path, value, compare, result } => {
                let ty = self.atomic(*op, buffer, index, path, value.as_ref(), compare.as_ref());
                if let Some(result) = result {
                    if *op == AtomicOp::Store {
                        self.problem(&codes::ir::IR_ATOMIC, "an atomic store gives no value to name");
                    }
                    self.declare(result, ty, false);
                }
            }
            Node::Call { function, args, result } => self.call(function, args, result.as_ref()),
            Node::Block(body) => return self.list("block", body),
        }
        true
    }

    fn switch(&mut self, selector: &'p Expr, cases: &'p [Case]) -> bool {
        let selector = self.expr_at("selector", selector);
        if !matches!(selector, None | Some(ValueType::Scalar(Scalar::U32 | Scalar::I32))) {
            let message = format!("a switch selects by u32 or i32, not {}", text(selector));
            self.within("selector", |this| this.problem(&codes::ir::IR_TYPE, message));
        }
        let mut seen: HashSet<Literal> = HashSet::new();
        let mut default = false;
        let mut falls_through = false;
        self.targets.push(Target::new(false, self.frames.len()));
        for (i, case) in cases.iter().enumerate() {
            self.place.push_at("cases", i);
            if case.values.is_empty() && !case.default {
                self.problem(
                    &codes::ir::IR_SWITCH,
                    "nothing leads to this arm: it has no values and is not the default",
                );
            }
            if case.default && std::mem::replace(&mut default, true) {
                self.problem(&codes::ir::IR_SWITCH, "an arm before this one is the default already");
            }
            for value in &case.values {
                let ty = ValueType::of(&value.data_type());
                if selector.is_some() && ty != selector {
                    let message = format!("the switch selects by {} and this arm names {}", text(selector), text(ty));
                    self.problem(&codes::ir::IR_SWITCH, message);
                }
                if !seen.insert(*value) {
                    let message = format!("an arm before this one names {} already", value);
                    self.problem(&codes::ir::IR_SWITCH, message);
                }
            }
            falls_through |= self.list("body", &case.body);
            self.place.pop();
        }
        let left = self.targets.pop().is_some_and(|target| target.left_by_break);
        falls_through || left || !default
    }

    fn general_loop(&mut self, body: &'p [Node], continuing: &'p [Node], break_if: Option<&'p Expr>) -> bool {
        self.targets.push(Target::new(true, self.frames.len()));
        self.frames.push(Vec::new());
        self.statements("body", body);
        if let Some(target) = self.targets.last_mut() {
            target.continuing = true;
            let keep = target.names_at_continue.unwrap_or(usize::MAX);
            while let Some(frame) = self.frames.last_mut().filter(|frame| frame.len() > keep) {
                if let Some(name) = frame.pop() {
                    self.forget(name);
                }
            }
        }
        self.frames.push(Vec::new());
        self.statements("continuing", continuing);
        if let Some(break_if) = break_if {
            let ty = self.expr_at("break_if", break_if);
            self.expect("break_if", ty, Some(BOOL));
        }
        self.close_frame();
        self.close_frame();
        let left = self.targets.pop().is_some_and(|target| target.left_by_break);
        left || break_if.is_some()
    }

    fn atomic(
        &mut self,
        op: AtomicOp,
        buffer: &'p Name,
        index: &'p Expr,
        path: &'p [Access],
        value: Option<&'p Expr>,
        compare: Option<&'p Expr>,
    ) -> Checked {
        let name = op.name();
        let value_type = value.map(|value| self.expr_at("value", value));
        let compare_type = compare.map(|compare| self.expr_at("compare", compare));
        let place = self.memory(buffer, index, path);
        let code = &codes::ir::IR_ATOMIC;
        if let Some(decl) = self.buffers.get(buffer.as_str())
            && !decl.kind.is_writable()
        {
            let message = format!("atomic operations can't be done on {} buffer `{buffer}`", decl.kind.name());
            self.problem(code, message);
        }
        if value.is_some() == (op == AtomicOp::Load) {
            let what = if op == AtomicOp::Load { "takes no value" } else { "needs a value" };
            self.problem(code, format!("atomic `{name}` {what}"));
        }
        if compare.is_some() != (op == AtomicOp::CompareExchange) {
            let what = if compare.is_some() { "compares nothing" } else { "needs a value to compare with" };
            self.problem(code, format!("atomic `{name}` {what}"));
        }
        let place = place?;
        let ty = match ValueType::of(&place) {
            Some(ty @ ValueType::Scalar(Scalar::U32 | Scalar::I32 | Scalar::U64 | Scalar::I64)) => ty,
            _ => {
                self.problem(code, format!("atomic operations can't be done on {place}"));
                return None;
            }
        };
        if self.ends_in_vector(buffer, path) {
            self.problem(code, "atomic operations can't be done on a component of a vector");
        }
        if let Some(value) = value_type {
            self.expect("value", value, Some(ty));
        }
        if let Some(compare) = compare_type {
            self.expect("compare", compare, Some(ty));
        }
        Some(ty)
    }

    /// Whether the last step of a path picks a vector's component.
    fn ends_in_vector(&self, buffer: &Name, path: &[Access]) -> bool {
        let Some(((_, before), decl)) = path.split_last().zip(self.buffers.get(buffer.as_str())) else { return false };
        let mut ty = decl.ty.clone();
        for access in before {
            match typing::step(&ty, access, self.table.defs) {
                Ok(next) => ty = next,
                Err(_) => return false,
            }
        }
        ty.as_vector().is_some()
    }

    fn call(&mut self, function: &'p Name, args: &'p [Expr], result: Option<&'p Name>) {
        let types: Vec<_> =
            args.iter().enumerate().map(|(i, arg)| self.within_at("args", i, |this| this.expr(arg))).collect();
        let Some(&index) = self.functions.get(function.as_str()) else {
            self.unknown(function, "function");
            if let Some(result) = result {
                self.declare(result, None, false);
            }
            return;
        };
        self.facts.calls.push((index, self.depth));
        let wanted = self.signatures[index].params.clone();
        if wanted.len() != types.len() {
            let message = format!("function `{function}` takes {} arguments, not {}", wanted.len(), types.len());
            self.problem(&codes::ir::IR_ARGUMENTS, message);
        }
        for (i, (ty, wanted)) in types.into_iter().zip(wanted).enumerate() {
            self.within_at("args", i, |this| this.expect_here(ty, wanted));
        }
        if let Some(result) = result {
            let returned = self.signatures[index].result;
            if returned.is_none() {
                let message = format!("function `{function}` gives no value to name");
                self.problem(&codes::ir::IR_RETURN, message);
            }
            self.declare(result, returned.flatten(), false);
        }
    }

    fn expect(&mut self, field: &'static str, found: Checked, wanted: Checked) {
        if let (Some(found), Some(wanted)) = (found, wanted)
            && found != wanted
        {
            self.within(field, |this| this.expect_here(Some(found), Some(wanted)));
        }
    }

    fn expect_here(&mut self, found: Checked, wanted: Checked) {
        if let (Some(found), Some(wanted)) = (found, wanted)
            && found != wanted
        {
            self.problem(&codes::ir::IR_TYPE, format!("this is {found}, and {wanted} is needed"));
        }
    }

    /// The type at a place in a buffer, as it is stored.
    fn memory(&mut self, buffer: &Name, index: &'p Expr, path: &'p [Access]) -> Option<DataType> {
        let index = self.expr_at("index", index);
        self.index("index", index);
        let Some(decl) = self.buffers.get(buffer.as_str()).copied() else {
            self.unknown(buffer, "buffer");
            self.path_only(path);
            return None;
        };
        if self.table.info(&decl.ty).is_err() {
            self.path_only(path);
            return None;
        }
        self.path(decl.ty.clone(), path)
    }

    /// The type at a place when all of it is loaded or stored.
    fn whole(&mut self, ty: &DataType) -> Checked {
        match ty {
            DataType::Handle(_) => self.value_type(ty),
            _ => ValueType::computed(ty),
        }
    }

    fn index(&mut self, field: &'static str, ty: Checked) {
        if let Some(ty) = ty.filter(|ty| !typing::is_index(*ty)) {
            self.within(field, |this| this.problem(&codes::ir::IR_TYPE, format!("an index is an integer, not {ty}")));
        }
    }

    fn path(&mut self, mut ty: DataType, path: &'p [Access]) -> Option<DataType> {
        for (i, access) in path.iter().enumerate() {
            let step = self.within_at("path", i, |this| {
                this.access(access);
                typing::step(&ty, access, this.table.defs).map_err(|message| this.problem(&codes::ir::IR_PATH, message))
            });
            match step {
                Ok(next) => ty = next,
                Err(()) => {
                    for (j, access) in path.iter().enumerate().skip(i + 1) {
                        self.within_at("path", j, |this| this.access(access));
                    }
                    return None;
                }
            }
        }
        Some(ty)
    }

    /// Checks the indices of a path into something unknown.
    fn path_only(&mut self, path: &'p [Access]) {
        for (i, access) in path.iter().enumerate() {
            self.within_at("path", i, |this| this.access(access));
        }
    }

    fn access(&mut self, access: &'p Access) {
        if let Access::Index(index) = access {
            let ty = self.expr_at("index", index);
            self.index("index", ty);
        }
    }

    fn expr_at(&mut self, field: &'static str, expr: &'p Expr) -> Checked {
        self.within(field, |this| this.expr(expr))
    }

    /// Reports a rule's problem here.
    fn rule(&mut self, result: Result<ValueType, typing::Problem>) -> Checked {
        result.map_err(|message| self.problem(&codes::ir::IR_TYPE, message)).ok()
    }

    fn expr(&mut self, expr: &'p Expr) -> Checked {
        match expr {
            Expr::Literal(literal) => ValueType::of(&literal.data_type()),
            Expr::Var(name) => self.local(name)?.ty,
            Expr::Constant(name) => match self.constants.get(name.as_str()) {
                Some(ty) => *ty,
                None => {
                    self.unknown(name, "specialization constant");
                    None
                }
            },
            Expr::Load { buffer, index, path } => {
                let ty = self.memory(buffer, index, path);
                if let Some(decl) = self.buffers.get(buffer.as_str()).filter(|decl| !decl.kind.is_readable()) {
                    debug_assert_eq!(decl.kind, BufferKind::Output);
                    let place = self.place.to_string();
                    self.report.push(
                        Diagnostic::new(
                            &codes::ir::IR_ACCESS,
                            format!("output buffer `{buffer}` can't be loaded from"),
                        )
                        .with_fix(format!("Declare `{buffer}` as read_write."))
                        .at(place),
                    );
                }
                self.whole(&ty?)
            }
            Expr::Length(buffer) => {
                if !self.buffers.contains_key(buffer.as_str()) {
                    self.unknown(buffer, "buffer");
                }
                Some(U32)
            }
            Expr::Builtin(builtin) => {
                if let Builtin::GlobalId(axis)
                | Builtin::LocalId(axis)
                | Builtin::WorkgroupId(axis)
                | Builtin::NumWorkgroups(axis)
                | Builtin::WorkgroupSize(axis) = builtin
                    && *axis > 2
                {
                    self.problem(&codes::ir::IR_BUILTIN, format!("there is no axis {axis}"));
                }
                Some(U32)
            }
            Expr::Unary { op, value } => {
                let value = self.expr_at("value", value)?;
                self.rule(typing::unary(*op, value))
            }
            Expr::Binary { op, left, right } => {
                let left = self.expr_at("left", left);
                let right = self.expr_at("right", right);
                self.rule(typing::binary(*op, left?, right?))
            }
            Expr::Math { op, args } => {
                let types = self.exprs("args", args);
                if args.len() != op.arity() {
                    let message = format!("`{}` takes {} arguments, not {}", op.name(), op.arity(), args.len());
                    self.problem(&codes::ir::IR_ARGUMENTS, message);
                    return None;
                }
                self.rule(typing::math(*op, &types?))
            }
            Expr::Select { cond, yes, no } => {
                let cond = self.expr_at("cond", cond);
                let yes = self.expr_at("yes", yes);
                let no = self.expr_at("no", no);
                self.rule(typing::select(cond?, yes?, no?))
            }
            Expr::Cast { to, value } => {
                let value = self.expr_at("value", value)?;
                self.rule(typing::cast(to, value))
            }
            Expr::BitCast { to, value } => {
                let value = self.expr_at("value", value)?;
                self.rule(typing::bit_cast(to, value))
            }
            Expr::Construct { ty, parts } => {
                let types = self.exprs("parts", parts);
                let ty = self.within("ty", |this| this.value_type(ty))?;
                self.construct(ty, &types?)
            }
            Expr::Swizzle { value, lanes } => {
                let value = self.expr_at("value", value)?;
                typing::swizzle(value, lanes).map_err(|message| self.problem(&codes::ir::IR_PATH, message)).ok()
            }
            Expr::Part { value, path } => {
                let value = self.expr_at("value", value);
                if path.is_empty() {
                    self.problem(&codes::ir::IR_PATH, "a part needs at least one step into the value");
                }
                match value {
                    Some(ty) => self.path(ty.data_type(), path).and_then(|ty| ValueType::of(&ty)),
                    None => {
                        self.path_only(path);
                        None
                    }
                }
            }
            Expr::Subgroup { op, value, argument } => {
                self.meets = true;
                let value = self.expr_at("value", value);
                let lane = argument.as_ref().map(|argument| self.expr_at("argument", argument));
                match lane {
                    Some(lane) if op.has_argument() => self.expect("argument", lane, Some(U32)),
                    None if !op.has_argument() => {}
                    _ => self.lane_problem(*op),
                }
                self.rule(typing::subgroup(*op, value?))
            }
            Expr::MatrixMultiplyAdd { kind, a, b, c } => {
                self.meets = true;
                let (a, b, c) = (self.expr_at("a", a), self.expr_at("b", b), self.expr_at("c", c));
                self.rule(typing::matrix(*kind, [a?, b?, c?]))
            }
        }
    }

    fn lane_problem(&mut self, op: SubgroupOp) {
        let what = if op.has_argument() { "needs a lane" } else { "takes no lane" };
        self.problem(&codes::ir::IR_ARGUMENTS, format!("`subgroup.{}` {what}", op.name()));
    }

    fn exprs(&mut self, field: &'static str, exprs: &'p [Expr]) -> Option<Vec<ValueType>> {
        let types: Vec<_> =
            exprs.iter().enumerate().map(|(i, expr)| self.within_at(field, i, |this| this.expr(expr))).collect();
        types.into_iter().collect()
    }

    fn construct(&mut self, ty: ValueType, parts: &[ValueType]) -> Checked {
        let ValueType::Defined(id) = ty else {
            return self.rule(typing::vector(ty, parts));
        };
        if parts.is_empty() {
            return Some(ty);
        }
        let defs = self.table.defs;
        let (count, wanted): (usize, Box<dyn Fn(usize) -> Checked>) = match defs.get(id.0 as usize)? {
            TypeDef::Struct { members, .. } => (members.len(), Box::new(|i| ValueType::of(&members[i].ty))),
            TypeDef::Array { element, count, .. } => match count {
                crate::ir::Count::Fixed(count) => (*count as usize, Box::new(|_| ValueType::of(element))),
                _ => return None,
            },
        };
        if parts.len() != count {
            let message = format!("{ty} takes {count} parts or none, not {}", parts.len());
            self.problem(&codes::ir::IR_ARGUMENTS, message);
            return None;
        }
        for (i, part) in parts.iter().enumerate() {
            self.within_at("parts", i, |this| this.expect_here(Some(*part), wanted(i)));
        }
        Some(ty)
    }
}

impl Target {
    fn new(is_loop: bool, frame: usize) -> Target {
        Target { is_loop, continuing: false, left_by_break: false, names_at_continue: None, frame }
    }
}

fn text(ty: Checked) -> String {
    ty.map_or_else(|| "nothing".to_owned(), |ty| ty.to_string())
}
