//! Checks that barriers are reached by all invocations of a workgroup together, and subgroup operations by all of a subgroup.
//!
//! A value is *uniform* when all invocations of the workgroup that are at this point hold the same. Flow is uniform when all of
//! them are at this point. Branches on values that are not uniform make the flow inside not uniform; where some invocations
//! leave early there, it stays so up to where they meet again: the end of the round for `continue`, of the loop or switch for
//! `break`, of the function for `return`. What is assigned while the flow is not uniform is not uniform afterwards. The same is
//! followed for subgroups: the number of a subgroup, or the sum over one, differs only between subgroups, and a branch on it
//! leaves the invocations of each together.
//!
//! A loop's later rounds see what its earlier ones did, so each body is walked again until nothing new is found. The facts at
//! the heads of loops only ever grow; a body that takes too many walks is treated as if all its loops were not uniform.

use std::collections::BTreeMap;
use std::rc::Rc;

use hashbrown::HashMap;
use vyre_spec::{Diagnostic, codes};

use super::report::{Place, Report};
use crate::ir::{Access, BarrierScope, BufferKind, Builtin, Case, Expr, Name, Node, Program, SubgroupOp};

/// Walks of one body before its loops are given up.
const MAX_WALKS: usize = 16;
/// Ways of calling one function that are told apart before all its arguments count as not uniform.
const MAX_CONTEXTS: usize = 16;

/// Why flow is not uniform: the branch, for the message.
type Cause = Rc<str>;

/// The smallest group whose invocations may hold different values or be at different places.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Within {
    /// The invocations of each subgroup agree.
    Workgroup,
    Subgroup,
}

/// Where a value differs; `None` when it is uniform.
type Spread = Option<Within>;

/// Why invocations are not at this point, if so.
#[derive(Clone, Default)]
struct Parted {
    /// Not all of the workgroup.
    workgroup: Option<Cause>,
    /// Not all of a subgroup, which is not all of the workgroup either.
    subgroup: Option<Cause>,
}

impl Parted {
    fn by(within: Within, cause: Cause) -> Self {
        let subgroup = (within == Within::Subgroup).then(|| cause.clone());
        Self { workgroup: Some(cause), subgroup }
    }

    fn spread(&self) -> Spread {
        let workgroup = self.workgroup.as_ref().map(|_| Within::Workgroup);
        self.subgroup.as_ref().map(|_| Within::Subgroup).or(workgroup)
    }

    /// Adds what else keeps invocations away; gives whether that is new.
    fn add(&mut self, other: &Parted) -> bool {
        let before = self.spread();
        if self.workgroup.is_none() {
            self.workgroup.clone_from(&other.workgroup);
        }
        if self.subgroup.is_none() {
            self.subgroup.clone_from(&other.subgroup);
        }
        self.spread() != before
    }

    /// The same for those who leave.
    fn left_by(&self, how: &str) -> Parted {
        let left = |cause: &Option<Cause>| cause.as_ref().map(|cause| left_by(cause, how));
        Parted { workgroup: left(&self.workgroup), subgroup: left(&self.subgroup) }
    }
}

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
    analysis.body(None, program.body(), Vec::new(), &Parted::default());
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
    /// Where the result differs, for each function, flow and spread of arguments that was met.
    contexts: HashMap<(usize, Spread, Vec<Spread>), Spread>,
    context_counts: Vec<usize>,
    /// By place, so that each is reported once.
    problems: BTreeMap<(Vec<usize>, String), Diagnostic>,
}

impl<'p> Analysis<'p> {
    /// Where the result of a call differs.
    fn call(&mut self, function: usize, mut arguments: Vec<Spread>, flow: &Parted) -> Spread {
        let mut key = (function, flow.spread(), arguments);
        if let Some(result) = self.contexts.get(&key) {
            return *result;
        }
        if self.context_counts[function] >= MAX_CONTEXTS {
            key.2.fill(Some(Within::Subgroup));
            if let Some(result) = self.contexts.get(&key) {
                return *result;
            }
        }
        self.context_counts[function] += 1;
        arguments = key.2.clone();
        let body = &self.program.functions()[function].body;
        let result = self.body(Some(function), body, arguments, flow);
        self.contexts.insert(key, result);
        result
    }

    /// Walks a body until nothing new is found; gives where its result differs.
    fn body(&mut self, function: Option<usize>, body: &'p [Node], arguments: Vec<Spread>, flow: &Parted) -> Spread {
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
                returned: Parted::default(),
                result: None,
                loops: std::mem::take(&mut facts),
                next_loop: 0,
                changed: false,
                give_up: walk >= MAX_WALKS,
                problems: Vec::new(),
            };
            if let Some(function) = function {
                for (param, spread) in walker.analysis.program.functions()[function].params.iter().zip(&arguments) {
                    walker.declare(&param.name, *spread);
                }
            }
            walker.list("body", body);
            let Walker { changed, loops, problems, result, .. } = walker;
            if !changed || walk >= MAX_WALKS {
                for (key, problem) in problems {
                    self.problems.entry(key).or_insert(problem);
                }
                return result;
            }
            facts = loops;
        }
        None
    }
}

/// What is known at the head of a loop from the rounds walked so far.
#[derive(Default)]
struct LoopFacts {
    varying: Vec<Spread>,
    broke: Parted,
    returned: Parted,
}

/// Where a break or continue goes, and who has left for there.
#[derive(Default)]
struct Target {
    is_loop: bool,
    broke: Parted,
    continued: Parted,
    /// Variables as they are where the breaks and continues arrive; `None` while none does.
    at_break: Option<Vec<Spread>>,
    at_continue: Option<Vec<Spread>>,
    /// Variables that exist around the loop or switch.
    visible: usize,
}

/// A name in scope.
#[derive(Clone, Copy)]
enum Local {
    /// Never changes.
    Fixed(Spread),
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
    /// For each variable in scope: where it differs. Only variables change, so only they are joined where ways meet.
    varying: Vec<Spread>,
    /// The branch around here that is not uniform.
    flow: Parted,
    targets: Vec<Target>,
    returned: Parted,
    result: Spread,
    loops: Vec<LoopFacts>,
    next_loop: usize,
    changed: bool,
    give_up: bool,
    problems: Vec<((Vec<usize>, String), Diagnostic)>,
}

/// Adds what is not uniform on another way to here; gives whether that is new.
fn join(into: &mut [Spread], other: &[Spread]) -> bool {
    let mut changed = false;
    for (into, other) in into.iter_mut().zip(other) {
        changed |= *other > *into;
        *into = (*into).max(*other);
    }
    changed
}

impl<'p> Walker<'_, 'p> {
    /// Why not all invocations are here, if so.
    fn parted(&self) -> Parted {
        let mut parted = self.flow.clone();
        for target in self.targets.iter().rev() {
            parted.add(&target.broke);
            parted.add(&target.continued);
        }
        parted.add(&self.returned);
        parted
    }

    fn report(&mut self, message: String) {
        let place = self.place.to_string();
        let key = (self.order.clone(), place.clone());
        self.problems.push((key, Diagnostic::new(&codes::ir::IR_UNIFORMITY, message).at(place)));
    }

    fn declare(&mut self, name: &'p Name, spread: Spread) {
        self.declare_local(name, Local::Fixed(spread));
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
                    let index = self.varies(index);
                    let path = self.path_varies(path);
                    self.declare(name, wider(index, path).map(|differs| differs.within));
                }
                _ => falls_through &= self.node(node),
            }
            self.order.pop();
            self.place.pop();
        }
        falls_through
    }

    /// Walks an expression at a field of the statement.
    fn varies_at(&mut self, field: &'static str, expr: &'p Expr) -> Option<Differs<'p>> {
        self.place.push(field);
        let why = self.varies(expr);
        self.place.pop();
        why
    }

    fn spread_at(&mut self, field: &'static str, expr: &'p Expr) -> Spread {
        self.varies_at(field, expr).map(|differs| differs.within)
    }

    fn parts(&self, what: &str, differs: Differs<'p>) -> Parted {
        Parted::by(differs.within, format!("the {what} at `{}` depends on {}", self.place, differs.why).into())
    }

    fn node(&mut self, node: &'p Node) -> bool {
        match node {
            Node::Let { name, value } => {
                let spread = self.spread_at("value", value);
                self.declare(name, spread);
            }
            Node::Var { name, init, .. } => {
                let spread = init.as_ref().and_then(|init| self.spread_at("init", init));
                self.declare_local(name, Local::Variable(self.varying.len()));
                self.varying.push(spread);
            }
            Node::Assign { name, path, value } => {
                let mut spread = self.spread_at("value", value);
                spread = spread.max(self.path_varies(path).map(|differs| differs.within));
                spread = spread.max(self.parted().spread());
                if let Some(&Local::Variable(slot)) = self.scope.get(name.as_str()).and_then(|locals| locals.last()) {
                    // What is assigned in part keeps what the rest was.
                    self.varying[slot] = if path.is_empty() { spread } else { spread.max(self.varying[slot]) };
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
                let parted = self.parted().left_by("break");
                let varying = &self.varying;
                if let Some(target) = self.targets.last_mut() {
                    meet_at(&mut target.at_break, &varying[..target.visible]);
                    target.broke.add(&parted);
                }
                return false;
            }
            Node::Continue => {
                let parted = self.parted().left_by("continue");
                let varying = &self.varying;
                if let Some(at) = self.targets.iter().rposition(|target| target.is_loop) {
                    // A switch in between is left too.
                    for target in &mut self.targets[at..] {
                        target.continued.add(&parted);
                    }
                    let target = &mut self.targets[at];
                    meet_at(&mut target.at_continue, &varying[..target.visible]);
                }
                return false;
            }
            Node::Return(value) => {
                let spread = value.as_ref().and_then(|value| self.spread_at("value", value));
                let parted = self.parted();
                self.result = self.result.max(spread).max(parted.spread());
                self.returned.add(&parted.left_by("return"));
                return false;
            }
            Node::Barrier(_) => {
                if let Some(cause) = self.parted().workgroup {
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
                    self.declare(result, Some(Within::Subgroup));
                }
            }
            Node::Call { function, args, result } => {
                let mut arguments: Vec<Spread> = args.iter().map(|arg| self.spread_at("args", arg)).collect();
                let mut spread = None;
                if let Some(&index) = self.analysis.functions.get(function.as_str()) {
                    arguments.resize(self.analysis.program.functions()[index].params.len(), None);
                    let parted = self.parted();
                    spread = self.analysis.call(index, arguments, &parted);
                }
                if let Some(result) = result {
                    self.declare(result, spread);
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
        let mut end: Option<Vec<Spread>> =
            if cases.iter().any(|case| case.default) { None } else { Some(start.clone()) };
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
        let differs = wider(from, to);
        let before = self.enter("`for` loop", differs);
        let facts = self.start_loop();
        self.declare(var, differs.map(|differs| differs.within));
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
            target.continued = Parted::default();
            if let Some(mut at_continue) = target.at_continue.take() {
                at_continue.resize(self.varying.len(), Some(Within::Subgroup));
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
            let mut parted = Parted::default();
            if let Some(differs) = self.varies_at("break_if", break_if) {
                parted = self.parts("end of the loop", differs);
            }
            parted.add(&self.parted());
            if let Some(target) = self.targets.last_mut() {
                target.broke.add(&parted);
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
    fn enter(&mut self, what: &str, differs: Option<Differs<'p>>) -> Parted {
        let before = self.flow.clone();
        if let Some(differs) = differs {
            let parted = self.parts(what, differs);
            self.flow.add(&parted);
        }
        before
    }

    /// Joins the ends of two ways, the second of which is in `varying`.
    fn meet(&mut self, first: Vec<Spread>, first_falls: bool, second_falls: bool) {
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
            self.varying.fill(Some(Within::Subgroup));
            let cause = format!("the loop at `{}` is too entangled to tell", self.place).into();
            facts.broke.add(&Parted::by(Within::Subgroup, cause));
        }
        facts.varying.resize(self.varying.len(), None);
        join(&mut facts.varying, &self.varying);
        self.varying.clone_from(&facts.varying);
        self.returned.add(&facts.returned);
        self.targets.push(Target {
            is_loop: true,
            broke: facts.broke.clone(),
            visible: self.varying.len(),
            ..Target::default()
        });
        number
    }

    /// Ends a loop: keeps what the next round must know. Gives its target and the variables at its head.
    fn end_loop(&mut self, number: usize) -> (Target, Vec<Spread>) {
        let target = self.targets.pop().unwrap_or_default();
        let facts = &mut self.loops[number];
        let mut changed = join(&mut facts.varying, &self.varying);
        if let Some(at_continue) = &target.at_continue {
            changed |= join(&mut facts.varying, at_continue);
            join(&mut self.varying, at_continue);
        }
        changed |= facts.broke.add(&target.broke);
        changed |= facts.returned.add(&self.returned);
        self.changed |= changed;
        (target, facts.varying.clone())
    }

    fn path_varies(&mut self, path: &'p [Access]) -> Option<Differs<'p>> {
        let mut differs = None;
        for access in path {
            if let Access::Index(index) = access {
                let index = self.varies(index);
                differs = wider(differs, index);
            }
        }
        differs
    }

    /// Where and why a value is not uniform; `None` when it is. Reports subgroup operations inside it that are not reached together.
    fn varies(&mut self, expr: &'p Expr) -> Option<Differs<'p>> {
        match expr {
            Expr::Literal(_) | Expr::Constant(_) | Expr::Length(_) => None,
            Expr::Var(name) => {
                let spread = match *self.scope.get(name.as_str())?.last()? {
                    Local::Fixed(spread) => spread,
                    Local::Variable(slot) => self.varying[slot],
                };
                spread.map(|within| Differs { within, why: Why::Variable(name) })
            }
            Expr::Builtin(builtin) => match builtin {
                Builtin::WorkgroupId(_)
                | Builtin::NumWorkgroups(_)
                | Builtin::WorkgroupSize(_)
                | Builtin::SubgroupSize
                | Builtin::NumSubgroups => None,
                Builtin::SubgroupId => Some(Differs { within: Within::Workgroup, why: Why::Builtin(*builtin) }),
                other => Some(Differs { within: Within::Subgroup, why: Why::Builtin(*other) }),
            },
            Expr::Load { buffer, index, path } => {
                let index = self.varies(index);
                let path = self.path_varies(path);
                let stable = self.analysis.stable.get(buffer.as_str()).copied().unwrap_or(true);
                let contents = (!stable).then_some(Differs { within: Within::Subgroup, why: Why::Load(buffer) });
                wider(wider(index, path), contents)
            }
            Expr::Subgroup { op, value, argument } => {
                self.varies(value);
                let lane = argument.as_ref().and_then(|argument| self.varies(argument));
                if let Some(cause) = self.parted().subgroup {
                    let name = op.name();
                    self.report(format!("not all invocations of the subgroup reach `subgroup.{name}`: {cause}"));
                }
                if let (SubgroupOp::Broadcast, Some(Differs { within: Within::Subgroup, why })) = (op, lane) {
                    self.report(format!(
                        "the lane of `subgroup.broadcast` is not the same for all: it depends on {why}"
                    ));
                }
                let within = if same_for_all(*op) { Within::Workgroup } else { Within::Subgroup };
                Some(Differs { within, why: Why::Subgroup(op.name()) })
            }
            Expr::MatrixMultiplyAdd { kind, a, b, c } => {
                [a, b, c].into_iter().for_each(|fragment| {
                    self.varies(fragment);
                });
                if let Some(cause) = self.parted().workgroup {
                    let name = kind.name();
                    self.report(format!("not all invocations of the workgroup reach `subgroup.{name}`: {cause}"));
                }
                Some(Differs { within: Within::Subgroup, why: Why::Subgroup(kind.name()) })
            }
            other => {
                let mut differs = None;
                other.for_each_child(|child| {
                    let child = self.varies(child);
                    differs = wider(differs, child);
                });
                differs
            }
        }
    }
}

/// Whether every invocation of a subgroup gets the same.
fn same_for_all(op: SubgroupOp) -> bool {
    match op {
        SubgroupOp::Add
        | SubgroupOp::Mul
        | SubgroupOp::Min
        | SubgroupOp::Max
        | SubgroupOp::And
        | SubgroupOp::Or
        | SubgroupOp::Xor
        | SubgroupOp::All
        | SubgroupOp::Any
        | SubgroupOp::Ballot
        | SubgroupOp::BroadcastFirst
        | SubgroupOp::Broadcast => true,
        SubgroupOp::InclusiveAdd
        | SubgroupOp::ExclusiveAdd
        | SubgroupOp::InclusiveMul
        | SubgroupOp::ExclusiveMul
        | SubgroupOp::Shuffle
        | SubgroupOp::ShuffleXor
        | SubgroupOp::ShuffleUp
        | SubgroupOp::ShuffleDown => false,
    }
}

/// Joins another way into the state at a meeting point.
fn meet_at(at: &mut Option<Vec<Spread>>, varying: &[Spread]) {
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

/// Where a value differs, and why.
#[derive(Clone, Copy)]
struct Differs<'p> {
    within: Within,
    why: Why<'p>,
}

/// Of two reasons the one that reaches further, else the first.
fn wider<'p>(first: Option<Differs<'p>>, second: Option<Differs<'p>>) -> Option<Differs<'p>> {
    let within = |differs: &Option<Differs<'p>>| differs.as_ref().map(|differs| differs.within);
    if within(&second) > within(&first) { second } else { first }
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
