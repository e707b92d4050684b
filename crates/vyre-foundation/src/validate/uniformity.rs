//! Checks that barriers and subgroup operations are reached by all invocations of a workgroup together.
//!
//! A value is *uniform* when all invocations of the workgroup that are at this point hold the same. Flow is uniform when all of
//! them are at this point. Branches on values that are not uniform make the flow inside not uniform; where some invocations
//! leave early there, it stays so up to where they meet again: the end of the round for `continue`, of the loop or switch for
//! `break`, of the function for `return`. What is assigned while the flow is not uniform is not uniform afterwards.
//!
//! A loop's later rounds see what its earlier ones did, so each body is walked again until nothing new is found. The facts at
//! the heads of loops only ever grow; a body that takes too many walks is treated as if all its loops were not uniform.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use vyre_spec::{Diagnostic, codes};

use super::report::{Place, Report};
use crate::ir::{Access, BarrierScope, BufferKind, Builtin, Case, Expr, Name, Node, Program, SubgroupOp};

/// Walks of one body before its loops are given up.
const MAX_WALKS: usize = 16;
/// Ways of calling one function that are told apart before all its arguments count as not uniform.
const MAX_CONTEXTS: usize = 16;

/// Why flow is not uniform: the branch, for the message.
type Cause = Rc<str>;

/// Reports every barrier and subgroup operation that is not reached together.
pub(super) fn check(program: &Program, report: &mut Report) {
    let mut analysis = Analysis {
        functions: program.functions().iter().enumerate().map(|(i, f)| (f.name.as_str(), i)).collect(),
        stable: program.buffers().iter().map(|buffer| (buffer.name.as_str(), stable(buffer.kind))).collect(),
        shared: program
            .buffers()
            .iter()
            .filter(|buffer| buffer.kind == BufferKind::Workgroup)
            .map(|buffer| (buffer.name.as_str(), ()))
            .collect(),
        program,
        contexts: HashMap::new(),
        context_counts: vec![0; program.functions().len()],
        problems: BTreeMap::new(),
    };
    for_each_write(program, &mut |buffer| {
        analysis.stable.entry(buffer).and_modify(|stable| *stable = false);
    });
    // A read_write buffer that nothing writes is as good as a read one; `stable` was true for it until now.
    analysis.body(None, program.body(), Vec::new(), None);
    analysis.problems.into_values().for_each(|problem| report.push(problem));
}

/// Kinds of buffers whose contents stay the same unless the program writes them.
fn stable(kind: BufferKind) -> bool {
    matches!(kind, BufferKind::Read | BufferKind::Uniform | BufferKind::ReadWrite)
}

fn for_each_write<'p>(program: &'p Program, visit: &mut dyn FnMut(&'p str)) {
    let mut waiting: Vec<&[Node]> = program.functions().iter().map(|function| &function.body[..]).collect();
    waiting.push(program.body());
    while let Some(list) = waiting.pop() {
        for node in list {
            if let Node::Store { buffer, .. } | Node::Atomic { buffer, .. } = node {
                visit(buffer.as_str());
            }
            node.for_each_list(|list| waiting.push(list));
        }
    }
}

struct Analysis<'p> {
    program: &'p Program,
    functions: HashMap<&'p str, usize>,
    /// Loads at a uniform index are uniform.
    stable: HashMap<&'p str, bool>,
    shared: HashMap<&'p str, ()>,
    /// Whether the result is uniform, for each function, flow and uniformity of arguments that was met.
    contexts: HashMap<(usize, bool, Vec<bool>), bool>,
    context_counts: Vec<usize>,
    /// By place, so that each is reported once.
    problems: BTreeMap<(Vec<usize>, String), Diagnostic>,
}

impl<'p> Analysis<'p> {
    /// Whether the result of a call is uniform.
    fn call(&mut self, function: usize, mut arguments: Vec<bool>, flow: Option<Cause>) -> bool {
        let mut key = (function, flow.is_some(), arguments);
        if let Some(uniform) = self.contexts.get(&key) {
            return *uniform;
        }
        if self.context_counts[function] >= MAX_CONTEXTS {
            key.2.fill(false);
            if let Some(uniform) = self.contexts.get(&key) {
                return *uniform;
            }
        }
        self.context_counts[function] += 1;
        arguments = key.2.clone();
        let body = &self.program.functions()[function].body;
        let uniform = self.body(Some(function), body, arguments, flow);
        self.contexts.insert(key, uniform);
        uniform
    }

    /// Walks a body until nothing new is found; gives whether its result is uniform.
    fn body(&mut self, function: Option<usize>, body: &'p [Node], arguments: Vec<bool>, flow: Option<Cause>) -> bool {
        let mut facts = Vec::new();
        for walk in 0.. {
            let mut walker = Walker {
                analysis: self,
                place: function.map_or_else(Place::default, |function| Place::at("functions", function)),
                order: vec![function.map_or(usize::MAX, |function| function)],
                scope: HashMap::new(),
                names: Vec::new(),
                varying: Vec::new(),
                flow: flow.clone(),
                targets: Vec::new(),
                returned: None,
                result_uniform: true,
                loops: std::mem::take(&mut facts),
                next_loop: 0,
                changed: false,
                give_up: walk >= MAX_WALKS,
                problems: Vec::new(),
            };
            if let Some(function) = function {
                for (param, uniform) in walker.analysis.program.functions()[function].params.iter().zip(&arguments) {
                    walker.declare(&param.name, !uniform);
                }
            }
            walker.list("body", body);
            let Walker { changed, loops, problems, result_uniform, .. } = walker;
            if !changed || walk >= MAX_WALKS {
                for (key, problem) in problems {
                    self.problems.entry(key).or_insert(problem);
                }
                return result_uniform;
            }
            facts = loops;
        }
        true
    }
}

/// What is known at the head of a loop from the rounds walked so far.
#[derive(Default)]
struct LoopFacts {
    varying: Vec<bool>,
    broke: Option<Cause>,
    returned: Option<Cause>,
}

/// Where a break or continue goes, and who has left for there.
#[derive(Default)]
struct Target {
    is_loop: bool,
    broke: Option<Cause>,
    continued: Option<Cause>,
    /// Variables as they are where the breaks and continues arrive; `None` while none does.
    at_break: Option<Vec<bool>>,
    at_continue: Option<Vec<bool>>,
    /// Variables that exist around the loop or switch.
    visible: usize,
}

/// A name in scope.
#[derive(Clone, Copy)]
enum Local {
    /// Never changes; not uniform.
    Fixed(bool),
    /// Position in `varying`.
    Variable(usize),
}

struct Walker<'a, 'p> {
    analysis: &'a mut Analysis<'p>,
    place: Place,
    /// Position of the statement, to list problems in program order.
    order: Vec<usize>,
    scope: HashMap<&'p str, Vec<Local>>,
    /// The names in scope, innermost last.
    names: Vec<&'p str>,
    /// For each variable in scope: not uniform. Only variables change, so only they are joined where ways meet.
    varying: Vec<bool>,
    /// The branch around here that is not uniform.
    flow: Option<Cause>,
    targets: Vec<Target>,
    returned: Option<Cause>,
    result_uniform: bool,
    loops: Vec<LoopFacts>,
    next_loop: usize,
    changed: bool,
    give_up: bool,
    problems: Vec<((Vec<usize>, String), Diagnostic)>,
}

/// Adds what is not uniform on another way to here; gives whether that is new.
fn join(into: &mut [bool], other: &[bool]) -> bool {
    let mut changed = false;
    for (into, other) in into.iter_mut().zip(other) {
        changed |= *other && !*into;
        *into |= *other;
    }
    changed
}

impl<'p> Walker<'_, 'p> {
    /// Why not all invocations are here, if so.
    fn parted(&self) -> Option<Cause> {
        let left = self.targets.iter().rev().find_map(|target| target.broke.as_ref().or(target.continued.as_ref()));
        self.flow.as_ref().or(left).or(self.returned.as_ref()).cloned()
    }

    fn report(&mut self, message: String) {
        let place = self.place.to_string();
        let key = (self.order.clone(), place.clone());
        self.problems.push((key, Diagnostic::new(&codes::ir::IR_UNIFORMITY, message).at(place)));
    }

    fn declare(&mut self, name: &'p Name, varying: bool) {
        self.declare_local(name, Local::Fixed(varying));
    }

    fn declare_local(&mut self, name: &'p Name, local: Local) {
        self.scope.entry(name.as_str()).or_default().push(local);
        self.names.push(name.as_str());
    }

    fn list(&mut self, field: &'static str, nodes: &'p [Node]) -> bool {
        let visible = self.names.len();
        let falls_through = self.statements(field, nodes);
        self.close(visible);
        falls_through
    }

    fn close(&mut self, visible: usize) {
        while self.names.len() > visible
            && let Some(name) = self.names.pop()
        {
            if let Some(Local::Variable(slot)) = self.scope.get_mut(name).and_then(Vec::pop) {
                self.varying.truncate(slot);
            }
        }
    }

    fn statements(&mut self, field: &'static str, nodes: &'p [Node]) -> bool {
        let mut falls_through = true;
        for (i, node) in nodes.iter().enumerate() {
            self.place.push_at(field, i);
            self.order.push(i);
            // A load from workgroup memory with a barrier right before and right after it: nobody writes in between.
            let alone = |at: Option<usize>| {
                at.and_then(|at| nodes.get(at))
                    .is_some_and(|node| matches!(node, Node::Barrier(BarrierScope::Workgroup)))
            };
            match node {
                Node::Let { name, value: Expr::Load { buffer, index, path } }
                    if self.analysis.shared.contains_key(buffer.as_str())
                        && alone(i.checked_sub(1))
                        && alone(Some(i + 1)) =>
                {
                    let varying = self.varies(index).is_some() | self.path_varies(path).is_some();
                    self.declare(name, varying);
                }
                _ => falls_through &= self.node(node),
            }
            self.order.pop();
            self.place.pop();
        }
        falls_through
    }

    /// Walks an expression at a field of the statement.
    fn varies_at(&mut self, field: &'static str, expr: &'p Expr) -> Option<Why<'p>> {
        self.place.push(field);
        let why = self.varies(expr);
        self.place.pop();
        why
    }

    fn cause(&self, what: &str, why: Why<'p>) -> Cause {
        format!("the {what} at `{}` depends on {}", self.place, why).into()
    }

    fn node(&mut self, node: &'p Node) -> bool {
        match node {
            Node::Let { name, value } => {
                let varying = self.varies_at("value", value).is_some();
                self.declare(name, varying);
            }
            Node::Var { name, init, .. } => {
                let varying = init.as_ref().is_some_and(|init| self.varies_at("init", init).is_some());
                self.declare_local(name, Local::Variable(self.varying.len()));
                self.varying.push(varying);
            }
            Node::Assign { name, path, value } => {
                let mut varying = self.varies_at("value", value).is_some();
                varying |= self.path_varies(path).is_some();
                varying |= self.parted().is_some();
                if let Some(&Local::Variable(slot)) = self.scope.get(name.as_str()).and_then(|locals| locals.last()) {
                    self.varying[slot] = varying || self.varying[slot] && !path.is_empty();
                }
            }
            Node::Store { index, path, value, .. } => {
                self.varies_at("index", index);
                self.path_varies(path);
                self.varies_at("value", value);
            }
            Node::If { cond, then, otherwise } => return self.branch(cond, then, otherwise),
            Node::Switch { selector, cases } => return self.switch(selector, cases),
            Node::For { var, from, to, body, .. } => self.counted(var, from, to, body),
            Node::Loop { body, continuing, break_if } => return self.endless(body, continuing, break_if.as_ref()),
            Node::Break => {
                let parted = self.parted().map(|cause| left_by(&cause, "break"));
                let varying = &self.varying;
                if let Some(target) = self.targets.last_mut() {
                    meet_at(&mut target.at_break, &varying[..target.visible]);
                    target.broke = target.broke.take().or(parted);
                }
                return false;
            }
            Node::Continue => {
                let parted = self.parted().map(|cause| left_by(&cause, "continue"));
                let varying = &self.varying;
                if let Some(at) = self.targets.iter().rposition(|target| target.is_loop) {
                    // A switch in between is left too.
                    for target in &mut self.targets[at..] {
                        target.continued = target.continued.take().or_else(|| parted.clone());
                    }
                    let target = &mut self.targets[at];
                    meet_at(&mut target.at_continue, &varying[..target.visible]);
                }
                return false;
            }
            Node::Return(value) => {
                let varying = value.as_ref().is_some_and(|value| self.varies_at("value", value).is_some());
                let parted = self.parted();
                self.result_uniform &= !varying && parted.is_none();
                self.returned = self.returned.take().or_else(|| parted.map(|cause| left_by(&cause, "return")));
                return false;
            }
            Node::Barrier(_) => {
                if let Some(cause) = self.parted() {
                    self.report(format!("not all invocations of the workgroup reach this barrier: {cause}"));
                }
            }
            Node::Atomic { index, path, value, compare, result, .. } => {
                self.varies_at("index", index);
                self.path_varies(path);
                value.iter().for_each(|value| {
                    self.varies_at("value", value);
                });
                compare.iter().for_each(|compare| {
                    self.varies_at("compare", compare);
                });
                if let Some(result) = result {
                    self.declare(result, true);
                }
            }
            Node::Call { function, args, result } => {
                let mut arguments: Vec<bool> = args.iter().map(|arg| self.varies_at("args", arg).is_none()).collect();
                let mut uniform = true;
                if let Some(&index) = self.analysis.functions.get(function.as_str()) {
                    arguments.resize(self.analysis.program.functions()[index].params.len(), true);
                    let parted = self.parted();
                    uniform = self.analysis.call(index, arguments, parted);
                }
                if let Some(result) = result {
                    self.declare(result, !uniform);
                }
            }
            Node::Block(body) => return self.list("block", body),
        }
        true
    }

    /// An `if`: whether its end is reached.
    fn branch(&mut self, cond: &'p Expr, then: &'p [Node], otherwise: &'p [Node]) -> bool {
        let why = self.varies_at("cond", cond);
        let before = self.enter("`if`", why);
        let start = self.varying.clone();
        let then_falls = self.list("then", then);
        let after_then = std::mem::replace(&mut self.varying, start);
        let otherwise_falls = self.list("otherwise", otherwise);
        self.meet(after_then, then_falls, otherwise_falls);
        self.flow = before;
        then_falls || otherwise_falls
    }

    /// A `switch`: whether its end is reached.
    fn switch(&mut self, selector: &'p Expr, cases: &'p [Case]) -> bool {
        let why = self.varies_at("selector", selector);
        let before = self.enter("`switch`", why);
        let start = self.varying.clone();
        let mut end: Option<Vec<bool>> = if cases.iter().any(|case| case.default) { None } else { Some(start.clone()) };
        self.targets.push(Target { visible: start.len(), ..Target::default() });
        for (i, case) in cases.iter().enumerate() {
            self.place.push_at("cases", i);
            self.order.push(i);
            self.varying.clone_from(&start);
            if self.list("body", &case.body) {
                meet_at(&mut end, &self.varying);
            }
            self.order.pop();
            self.place.pop();
        }
        if let Some(at_break) = self.targets.pop().and_then(|target| target.at_break) {
            meet_at(&mut end, &at_break);
        }
        self.flow = before;
        let falls_through = end.is_some();
        self.varying = end.unwrap_or(start);
        falls_through
    }

    /// A loop that counts.
    fn counted(&mut self, var: &'p Name, from: &'p Expr, to: &'p Expr, body: &'p [Node]) {
        let from = self.varies_at("from", from);
        let to = self.varies_at("to", to);
        let visible = self.names.len();
        let before = self.enter("`for` loop", from.or(to));
        let facts = self.start_loop();
        self.declare(var, from.or(to).is_some());
        let entry = self.varying.clone();
        self.list("body", body);
        self.close(visible);
        let (target, _) = self.end_loop(facts);
        let mut end = entry;
        join(&mut end, &self.varying);
        target.at_break.iter().for_each(|at_break| {
            join(&mut end, at_break);
        });
        self.varying = end;
        self.flow = before;
    }

    /// A loop without a count: whether its end is reached.
    fn endless(&mut self, body: &'p [Node], continuing: &'p [Node], break_if: Option<&'p Expr>) -> bool {
        let visible = self.names.len();
        let facts = self.start_loop();
        let falls_through = self.statements("body", body);
        // Those who continued meet the others here.
        if let Some(target) = self.targets.last_mut() {
            target.continued = None;
            if let Some(mut at_continue) = target.at_continue.take() {
                at_continue.resize(self.varying.len(), true);
                if falls_through {
                    join(&mut self.varying, &at_continue);
                } else {
                    self.varying = at_continue;
                }
            }
        }
        self.statements("continuing", continuing);
        let mut left = false;
        if let Some(break_if) = break_if {
            left = true;
            if let Some(why) = self.varies_at("break_if", break_if) {
                let cause = self.cause("end of the loop", why);
                self.leave_loop(cause);
            } else if let Some(cause) = self.parted() {
                self.leave_loop(cause);
            }
        }
        self.close(visible);
        let (target, head) = self.end_loop(facts);
        let mut end = if left { Some(self.varying.clone()) } else { None };
        if let Some(at_break) = &target.at_break {
            meet_at(&mut end, at_break);
        }
        let falls_through = end.is_some();
        self.varying = end.unwrap_or(head);
        falls_through
    }

    /// Goes into a branch; gives the flow to come back to.
    fn enter(&mut self, what: &str, why: Option<Why<'p>>) -> Option<Cause> {
        let before = self.flow.clone();
        if let (None, Some(why)) = (&before, why) {
            self.flow = Some(self.cause(what, why));
        }
        before
    }

    /// Joins the ends of two ways, the second of which is in `varying`.
    fn meet(&mut self, first: Vec<bool>, first_falls: bool, second_falls: bool) {
        match (first_falls, second_falls) {
            (true, true) => {
                join(&mut self.varying, &first);
            }
            (true, false) => self.varying = first,
            _ => {}
        }
    }

    /// Starts a loop with what its earlier rounds have shown. Gives its number.
    fn start_loop(&mut self) -> usize {
        let number = self.next_loop;
        self.next_loop += 1;
        if self.loops.len() <= number {
            self.loops.resize_with(number + 1, LoopFacts::default);
        }
        let facts = &mut self.loops[number];
        if self.give_up {
            self.varying.fill(true);
            facts.broke.get_or_insert_with(|| format!("the loop at `{}` is too entangled to tell", self.place).into());
        }
        facts.varying.resize(self.varying.len(), false);
        join(&mut facts.varying, &self.varying);
        self.varying.clone_from(&facts.varying);
        self.returned = self.returned.take().or_else(|| facts.returned.clone());
        self.targets.push(Target {
            is_loop: true,
            broke: facts.broke.clone(),
            visible: self.varying.len(),
            ..Target::default()
        });
        number
    }

    fn leave_loop(&mut self, cause: Cause) {
        if let Some(target) = self.targets.last_mut() {
            target.broke.get_or_insert(cause);
        }
    }

    /// Ends a loop: keeps what the next round must know. Gives its target and the variables at its head.
    fn end_loop(&mut self, number: usize) -> (Target, Vec<bool>) {
        let target = self.targets.pop().unwrap_or_default();
        let facts = &mut self.loops[number];
        let mut changed = join(&mut facts.varying, &self.varying);
        if let Some(at_continue) = &target.at_continue {
            changed |= join(&mut facts.varying, at_continue);
            join(&mut self.varying, at_continue);
        }
        if facts.broke.is_none() && target.broke.is_some() {
            facts.broke.clone_from(&target.broke);
            changed = true;
        }
        if facts.returned.is_none() && self.returned.is_some() {
            facts.returned.clone_from(&self.returned);
            changed = true;
        }
        self.changed |= changed;
        (target, facts.varying.clone())
    }

    fn path_varies(&mut self, path: &'p [Access]) -> Option<Why<'p>> {
        let mut why = None;
        for access in path {
            if let Access::Index(index) = access {
                let index = self.varies(index);
                why = why.or(index);
            }
        }
        why
    }

    /// Why a value is not uniform; `None` when it is. Reports subgroup operations inside it that are not reached together.
    fn varies(&mut self, expr: &'p Expr) -> Option<Why<'p>> {
        match expr {
            Expr::Literal(_) | Expr::Constant(_) | Expr::Length(_) => None,
            Expr::Var(name) => {
                let varying = match *self.scope.get(name.as_str())?.last()? {
                    Local::Fixed(varying) => varying,
                    Local::Variable(slot) => self.varying[slot],
                };
                varying.then_some(Why::Variable(name))
            }
            Expr::Builtin(builtin) => match builtin {
                Builtin::WorkgroupId(_)
                | Builtin::NumWorkgroups(_)
                | Builtin::WorkgroupSize(_)
                | Builtin::SubgroupSize
                | Builtin::NumSubgroups => None,
                other => Some(Why::Builtin(*other)),
            },
            Expr::Load { buffer, index, path } => {
                let index = self.varies(index);
                let path = self.path_varies(path);
                let stable = self.analysis.stable.get(buffer.as_str()).copied().unwrap_or(true);
                index.or(path).or(if stable { None } else { Some(Why::Load(buffer)) })
            }
            Expr::Subgroup { op, value, argument } => {
                self.varies(value);
                let lane = argument.as_ref().and_then(|argument| self.varies(argument));
                if let Some(cause) = self.parted() {
                    let name = op.name();
                    self.report(format!("not all invocations of the workgroup reach `subgroup.{name}`: {cause}"));
                }
                if let (SubgroupOp::Broadcast, Some(why)) = (op, lane) {
                    self.report(format!(
                        "the lane of `subgroup.broadcast` is not the same for all: it depends on {why}"
                    ));
                }
                Some(Why::Subgroup(op.name()))
            }
            Expr::MatrixMultiplyAdd { kind, a, b, c } => {
                [a, b, c].into_iter().for_each(|fragment| {
                    self.varies(fragment);
                });
                if let Some(cause) = self.parted() {
                    let name = kind.name();
                    self.report(format!("not all invocations of the workgroup reach `subgroup.{name}`: {cause}"));
                }
                Some(Why::Subgroup(kind.name()))
            }
            other => {
                let mut why = None;
                other.for_each_child(|child| {
                    let child = self.varies(child);
                    why = why.or(child);
                });
                why
            }
        }
    }
}

/// Joins another way into the state at a meeting point.
fn meet_at(at: &mut Option<Vec<bool>>, varying: &[bool]) {
    match at {
        Some(at) => {
            join(at, varying);
        }
        None => *at = Some(varying.to_vec()),
    }
}

fn left_by(cause: &Cause, how: &str) -> Cause {
    if cause.contains("leave there by") {
        cause.clone()
    } else {
        format!("{cause}, and some leave there by `{how}`").into()
    }
}

/// What makes a value differ between invocations.
#[derive(Clone, Copy)]
enum Why<'p> {
    Builtin(Builtin),
    Variable(&'p Name),
    Load(&'p Name),
    Subgroup(&'static str),
}

impl std::fmt::Display for Why<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Why::Builtin(builtin) => write!(f, "`{builtin}`, which differs between invocations"),
            Why::Variable(name) => write!(f, "`{name}`, which may differ between invocations"),
            Why::Load(buffer) => write!(f, "a load from `{buffer}`, which invocations may change"),
            Why::Subgroup(name) => write!(f, "`subgroup.{name}`, which may differ between subgroups"),
        }
    }
}
