//! Calls that work on the caller's variables.
//!
//! Functions take and give values. What a front end writes for a pointer is therefore a copy in and a copy out:
//!
//! ```text
//! fn f(a_in) { var a = a_in; … return record(a); }
//! r = f(x); x = r.0;
//! ```
//!
//! Nobody sees `x` between the two copies, so `a` may be `x` itself; and a parameter is never assigned, so it may be the variable that was
//! passed, unless the same call changes that one. Arrays in memory are then not copied, and loops that return carry no results for them.

use std::rc::Rc;

use hashbrown::{HashMap, HashSet};
use smallvec::SmallVec;

use super::{Lower, MAX_DEPTH, Result, Storage, scan};
use crate::ir::{Access, Expr, Function, Node};
use crate::kernel::Value;
use crate::kernel::shape::{Shape, ShapeId};

/// A parameter that only starts a variable which every `return` gives back.
struct Handed<'a> {
    param: usize,
    variable: &'a str,
    /// Position of the variable's declaration in the body.
    node: usize,
    /// Member of the result; nothing where it is the result.
    member: Option<u32>,
}

/// What is known of a function before any call of it is lowered.
#[derive(Default)]
pub(super) struct Facts<'a> {
    /// Names that are indexed by something not constant, here or in a function they are passed to.
    pub(super) indexed: Rc<HashSet<&'a str>>,
    /// The same of the parameters, and of the variables that they are handed to.
    indexed_params: Vec<bool>,
    handed: Vec<Handed<'a>>,
}

/// Where the parts of a function's result go.
#[derive(Clone)]
pub(super) enum Home {
    /// Consecutive slots.
    Slots(u32),
    /// They are there already.
    Handed(Storage),
}

/// Where a function's result goes: to one home, or each member to its own.
pub(super) struct Results {
    pub(super) shape: ShapeId,
    pub(super) parts: SmallVec<[(ShapeId, Home); 2]>,
    /// Members have homes of their own.
    record: bool,
}

/// A variable of the function that is one of the caller.
struct Taken {
    param: usize,
    node: usize,
    member: Option<u32>,
    shape: ShapeId,
    storage: Storage,
}

/// What one call does in place.
#[derive(Default)]
pub(super) struct Plan {
    taken: SmallVec<[Taken; 2]>,
    /// Parameters that are the caller's variables.
    lent: SmallVec<[(usize, ShapeId, Storage); 2]>,
}

impl Plan {
    /// The argument's value is needed.
    pub(super) fn copies(&self, param: usize) -> bool {
        self.taken.iter().all(|taken| taken.param != param) && self.lent.iter().all(|lent| lent.0 != param)
    }
}

impl<'a> Lower<'a> {
    /// What is known of a function.
    pub(super) fn facts(&mut self, function: &'a Function, depth: u32) -> Rc<Facts<'a>> {
        if let Some(known) = self.facts.get(function.name.as_str()) {
            return Rc::clone(known);
        }
        let mut facts = Facts { indexed: self.indexed_in(&function.body, depth), ..Facts::default() };
        if self.in_place {
            facts.handed = handed(function);
            facts.indexed_params =
                function.params.iter().map(|param| facts.indexed.contains(param.name.as_str())).collect();
            for handed in &facts.handed {
                facts.indexed_params[handed.param] |= facts.indexed.contains(handed.variable);
            }
        }
        let facts = Rc::new(facts);
        self.facts.insert(function.name.as_str(), Rc::clone(&facts));
        facts
    }

    /// Names that are indexed by something not constant in a body, or in a function that they are passed to.
    pub(super) fn indexed_in(&mut self, body: &'a [Node], depth: u32) -> Rc<HashSet<&'a str>> {
        let mut indexed = HashSet::new();
        scan::indexed(body, self.constants, &mut indexed);
        // Deeper calls end in an error.
        if !self.in_place || self.function_of.is_empty() || depth > MAX_DEPTH {
            return Rc::new(indexed);
        }
        scan::each_node(body, &mut |node| {
            let Node::Call { function, args, .. } = node else { return };
            let Some(&function) = self.function_of.get(function.as_str()) else { return };
            if args.iter().all(|arg| place(arg).is_none()) {
                return;
            }
            let facts = self.facts(function, depth + 1);
            for (arg, is_indexed) in args.iter().zip(&facts.indexed_params) {
                if let (true, Some((name, _))) = (*is_indexed, place(arg)) {
                    indexed.insert(name);
                }
            }
        });
        Rc::new(indexed)
    }

    /// What a call can do in place; `rest` are the statements after it.
    pub(super) fn plan(
        &mut self,
        function: &'a Function,
        args: &'a [Expr],
        result: Option<&'a str>,
        rest: &'a [Node],
    ) -> Result<Plan> {
        let mut plan = Plan::default();
        if !self.in_place || args.iter().all(|arg| place(arg).is_none()) {
            return Ok(plan);
        }
        let facts = self.facts(function, 0);
        let mut changed: SmallVec<[&'a str; 2]> = SmallVec::new();
        if let Some(result) = result.filter(|_| !facts.handed.is_empty()) {
            let back: SmallVec<[_; 4]> = rest.iter().map_while(|node| put_back(node, result)).collect();
            for handed in &facts.handed {
                let Some((name, path)) = place(&args[handed.param]) else { continue };
                let mut own = back.iter().filter(|back| back.name == name);
                let (Some(own), None) = (own.next(), own.next()) else { continue };
                if own.path != path || own.member != handed.member || changed.contains(&name) {
                    continue;
                }
                if back.iter().any(|back| back.depends_on(name)) {
                    continue;
                }
                let Some((shape, storage)) = self.storage_of(name, path) else { continue };
                let in_slots = matches!(storage, Storage::Slots(_));
                if shape != self.shapes.of(&function.params[handed.param].ty)?
                    || in_slots && facts.indexed.contains(handed.variable) && self.shapes.has_array(shape)
                    || !self.read_once(result, handed.member)
                {
                    continue;
                }
                changed.push(name);
                let (param, node, member) = (handed.param, handed.node, handed.member);
                plan.taken.push(Taken { param, node, member, shape, storage });
            }
        }
        for (param, arg) in args.iter().enumerate() {
            if let Some((name, path)) = place(arg)
                && !changed.contains(&name)
                && let Some((shape, storage)) = self.storage_of(name, path)
                && in_memory(&storage)
                && shape == self.shapes.of(&function.params[param].ty)?
            {
                plan.lent.push((param, shape, storage));
            }
        }
        Ok(plan)
    }

    /// The result is read once: by the statement that puts it back.
    fn read_once(&mut self, result: &'a str, member: Option<u32>) -> bool {
        let body = self.body;
        let reads = self.reads.entry(body.as_ptr() as usize).or_insert_with(|| reads(body));
        let Some(reads) = reads.get(result) else { return false };
        match member {
            None => reads.all == 1,
            Some(member) => {
                reads.all == reads.members.len() as u32 && reads.members.iter().filter(|&&m| m == member).count() == 1
            }
        }
    }

    /// Where a variable's part is, if it has a place of its own.
    fn storage_of(&self, name: &str, path: &[Access]) -> Option<(ShapeId, Storage)> {
        let binding = &self.bindings[*self.names.get(name)? as usize];
        let (mut shape, mut storage) = (binding.shape, binding.storage.clone());
        for access in path {
            let (Access::Member(member), Shape::Struct(members)) = (access, self.shapes.get(shape)) else {
                return None;
            };
            let before = members.get(..*member as usize)?;
            storage = match storage {
                Storage::Slots(first) => {
                    Storage::Slots(first + before.iter().map(|(m, _)| self.shapes.leaves(*m)).sum::<u32>())
                }
                Storage::Struct(mut parts) => parts.swap_remove(*member as usize),
                Storage::Memory(_) => return None,
            };
            shape = members.get(*member as usize)?.0;
        }
        Some((shape, storage))
    }

    /// The value is what is in the variable's part already.
    pub(super) fn is_there(&self, name: &str, path: &[Access], value: &'a Expr) -> bool {
        let Some((from, from_path)) = place(value) else { return false };
        match (self.storage_of(name, path), self.storage_of(from, from_path)) {
            (Some((shape, to)), Some((from_shape, from))) => shape == from_shape && to == from,
            _ => false,
        }
    }

    /// Makes room for a result.
    pub(super) fn results(&mut self, shape: ShapeId, plan: &Plan) -> Result<Results> {
        let home = |taken: &Taken| Home::Handed(taken.storage.clone());
        let whole = match plan.taken.iter().find(|taken| taken.member.is_none()) {
            Some(taken) => Some(home(taken)),
            None if plan.taken.is_empty() => Some(Home::Slots(self.new_slots(shape)?)),
            None => None,
        };
        if let Some(home) = whole {
            return Ok(Results { shape, parts: SmallVec::from_iter([(shape, home)]), record: false });
        }
        let mut parts = SmallVec::new();
        for (i, member) in self.members(shape).into_iter().enumerate() {
            let home = match plan.taken.iter().find(|taken| taken.member == Some(i as u32)) {
                Some(taken) => home(taken),
                None => Home::Slots(self.new_slots(member)?),
            };
            parts.push((member, home));
        }
        Ok(Results { shape, parts, record: true })
    }

    /// Puts a returned value where it belongs.
    pub(super) fn give(&mut self, results: &Results, value: &'a Expr) -> Result<()> {
        let members = match value {
            Expr::Construct { parts, .. } if results.record => parts.as_slice(),
            whole => std::slice::from_ref(whole),
        };
        for ((_, home), value) in results.parts.iter().zip(members) {
            if let Home::Slots(first) = home {
                for (i, leaf) in self.expr(value)?.leaves.into_iter().enumerate() {
                    self.set(first + i as u32, leaf);
                }
            }
        }
        Ok(())
    }

    /// The values of a result that are in slots, in order.
    pub(super) fn given(&mut self, results: &Results) -> SmallVec<[Value; 4]> {
        let mut values = SmallVec::new();
        for (shape, home) in &results.parts {
            if let Home::Slots(first) = home {
                values.extend((*first..first + self.shapes.leaves(*shape)).map(|slot| self.slot(slot)));
            }
        }
        values
    }

    /// Names a result of which the caller has parts already; `values` are the others.
    pub(super) fn name_result(
        &mut self,
        name: &'a str,
        results: &Results,
        values: SmallVec<[Value; 4]>,
        at: usize,
    ) -> Result<()> {
        if let [(shape, home)] = results.parts.as_slice()
            && !results.record
        {
            match home {
                Home::Slots(_) => self.declare(name, *shape, Some(values), at)?,
                Home::Handed(storage) => self.bind(name, *shape, storage.clone()),
            }
            return Ok(());
        }
        let mut values = values.into_iter();
        let mut storages = Vec::with_capacity(results.parts.len());
        for (shape, home) in &results.parts {
            storages.push(match home {
                Home::Handed(storage) => storage.clone(),
                Home::Slots(_) => {
                    let first = self.new_slots(*shape)?;
                    for (slot, value) in (first..first + self.shapes.leaves(*shape)).zip(&mut values) {
                        self.set(slot, value);
                    }
                    Storage::Slots(first)
                }
            });
        }
        self.bind(name, results.shape, Storage::Struct(storages));
        Ok(())
    }

    /// Lowers the declarations at the start of a function, of which the caller's variables take the place of some, and says how many
    /// there are.
    pub(super) fn take(&mut self, function: &'a Function, plan: Plan) -> Result<usize> {
        for (param, shape, storage) in plan.lent {
            self.bind(function.params[param].name.as_str(), shape, storage);
        }
        let count = plan.taken.iter().map(|taken| taken.node + 1).max().unwrap_or(0);
        for (i, node) in function.body[..count].iter().enumerate() {
            match (plan.taken.iter().find(|taken| taken.node == i), node) {
                (Some(taken), Node::Var { name, .. }) => self.bind(name.as_str(), taken.shape, taken.storage.clone()),
                _ => _ = self.node(node)?,
            }
        }
        Ok(count)
    }
}

/// A variable, or a member of one.
fn place(expr: &Expr) -> Option<(&str, &[Access])> {
    match expr {
        Expr::Var(name) => Some((name.as_str(), &[])),
        Expr::Part { value, path } => match &**value {
            Expr::Var(name) if path.iter().all(|access| matches!(access, Access::Member(_))) => {
                Some((name.as_str(), path))
            }
            _ => None,
        },
        _ => None,
    }
}

/// A statement that puts a member of a result, or all of it, into a variable.
struct Back<'a> {
    name: &'a str,
    path: &'a [Access],
    member: Option<u32>,
}

impl Back<'_> {
    /// Where it goes depends on a variable, which has to be what it was before the call if it is put back later.
    fn depends_on(&self, name: &str) -> bool {
        self.path.iter().any(|access| matches!(access, Access::Index(Expr::Var(index)) if index.as_str() == name))
    }
}

fn put_back<'a>(node: &'a Node, result: &str) -> Option<Back<'a>> {
    let Node::Assign { name, path, value } = node else { return None };
    let member = match place(value)? {
        (from, []) if from == result => None,
        (from, [Access::Member(member)]) if from == result => Some(*member),
        _ => return None,
    };
    let plain = |access: &Access| match access {
        Access::Member(_) => true,
        Access::Index(index) => matches!(index, Expr::Literal(_) | Expr::Constant(_) | Expr::Var(_)),
    };
    path.iter().all(plain).then_some(Back { name: name.as_str(), path, member })
}

fn in_memory(storage: &Storage) -> bool {
    match storage {
        Storage::Slots(_) => false,
        Storage::Memory(_) => true,
        Storage::Struct(parts) => parts.iter().any(in_memory),
    }
}

/// How a name is read in a body.
#[derive(Default)]
pub(super) struct Reads {
    all: u32,
    /// The member of each read of a member.
    members: SmallVec<[u32; 4]>,
}

fn reads(body: &[Node]) -> HashMap<&str, Reads> {
    let mut reads: HashMap<&str, Reads> = HashMap::new();
    scan::each_node(body, &mut |node| {
        scan::each_expr(node, &mut |expr| match expr {
            Expr::Var(name) => reads.entry(name.as_str()).or_default().all += 1,
            Expr::Part { value, path } => {
                if let (Expr::Var(name), Some(Access::Member(member))) = (&**value, path.first()) {
                    reads.entry(name.as_str()).or_default().members.push(*member);
                }
            }
            _ => {}
        });
    });
    reads
}

/// The parameters of a function that it gives back changed.
fn handed(function: &Function) -> Vec<Handed<'_>> {
    let starts = |node: &Node| matches!(node, Node::Var { .. });
    let count = function.body.iter().take_while(|node| starts(node)).count();
    let mut found: Vec<(usize, &str, usize)> = Vec::new();
    for (at, node) in function.body[..count].iter().enumerate() {
        if let Node::Var { name, init: Some(Expr::Var(from)), .. } = node
            && let Some(param) = function.params.iter().position(|param| param.name == *from)
        {
            found.push((param, name.as_str(), at));
        }
    }
    if found.is_empty() {
        return Vec::new();
    }
    let mut declared: HashMap<&str, u32> = HashMap::new();
    function.params.iter().for_each(|param| *declared.entry(param.name.as_str()).or_default() += 1);
    let mut returned: Vec<&Expr> = Vec::new();
    scan::each_node(&function.body, &mut |node| match node {
        Node::Let { name, .. } | Node::Var { name, .. } | Node::For { var: name, .. } => {
            *declared.entry(name.as_str()).or_default() += 1;
        }
        Node::Atomic { result: Some(name), .. } | Node::Call { result: Some(name), .. } => {
            *declared.entry(name.as_str()).or_default() += 1;
        }
        Node::Return(value) => returned.extend(value),
        _ => {}
    });
    let reads = reads(&function.body);
    let once = |name: &str| declared.get(name) == Some(&1);
    found.retain(|(param, variable, _)| {
        let param = function.params[*param].name.as_str();
        once(variable) && once(param) && reads.get(param).is_some_and(|reads| reads.all == 1)
    });
    let is = |expr: &Expr, variable: &str| matches!(expr, Expr::Var(name) if name.as_str() == variable);
    let mut all = Vec::new();
    for (param, variable, node) in found {
        if returned.iter().all(|value| is(value, variable)) {
            all.push(Handed { param, variable, node, member: None });
        }
        let Some(Expr::Construct { parts, .. }) = returned.first() else { continue };
        for member in 0..parts.len() {
            let gives = |value: &&Expr| match value {
                Expr::Construct { parts, .. } => parts.get(member).is_some_and(|part| is(part, variable)),
                _ => false,
            };
            if returned.iter().all(gives) {
                all.push(Handed { param, variable, node, member: Some(member as u32) });
            }
        }
    }
    all
}
