//! How large a program may be, and the check of it. It comes first and does not recurse, so that everything after it may.

use vyre_spec::codes;

use super::report::{Place, Report};
use crate::ir::{Count, Expr, Name, Node, Program, TypeDef};
use crate::wire;

/// The most buffers.
pub const MAX_BUFFERS: usize = 1024;
/// The most specialization constants.
pub const MAX_CONSTANTS: usize = 1024;
/// The most functions.
pub const MAX_FUNCTIONS: usize = 1024;
/// The most type definitions.
pub const MAX_TYPES: usize = 1024;
/// How deep type definitions may nest.
pub const MAX_TYPE_DEPTH: u32 = 32;
/// The longest name, in bytes.
pub const MAX_NAME_BYTES: usize = 256;
/// The most bytes of all names together.
pub const MAX_NAMES_BYTES: usize = 8 << 20;
/// How deep statements may nest, and how deep the expressions in them.
pub const MAX_DEPTH: u32 = wire::MAX_DEPTH;
/// The most statements, expressions, cases, members and declarations together.
pub const MAX_ITEMS: u32 = wire::MAX_ITEMS;
/// How deep statements may nest when calls are replaced by the functions' bodies.
pub const MAX_INLINED_DEPTH: u32 = MAX_DEPTH;
/// The most statements when calls are replaced by the functions' bodies.
pub const MAX_INLINED_STATEMENTS: u64 = MAX_ITEMS as u64;
/// The most variables (not `let`s) in scope at once.
pub const MAX_VARIABLES: usize = 4096;
/// The most bytes of workgroup memory. Devices have less, each as much as its capabilities say; no GPU has as much.
pub const MAX_WORKGROUP_BYTES: u64 = 1 << 20;
/// The most bytes of a uniform buffer.
pub const MAX_UNIFORM_BYTES: u64 = 64 << 10;
/// The most bytes of one struct or array value, and of all struct and array variables of an invocation.
pub const MAX_PRIVATE_BYTES: u64 = 64 << 10;
/// The most invocations of a workgroup.
pub const MAX_WORKGROUP_INVOCATIONS: u32 = crate::launch::MAX_WORKGROUP_INVOCATIONS;

/// Reports what is too large; true when the rest of the program may be looked at.
pub(super) fn check(program: &Program, report: &mut Report) -> bool {
    let mut walk = Walk { items: 0, name_bytes: 0, waiting: Vec::new(), report };
    walk.declarations(program);
    walk.report.is_empty()
}

struct Walk<'r, 'p> {
    items: u64,
    name_bytes: usize,
    /// What the walk at hand has still to look into.
    waiting: Vec<Item<'p>>,
    report: &'r mut Report,
}

/// Something to look into, with the depth it lies at.
enum Item<'a> {
    List(&'a [Node], u32),
    Expr(&'a Expr, u32),
}

impl<'p> Walk<'_, 'p> {
    fn limit(&mut self, message: String, place: Place) {
        self.report.add(&codes::ir::IR_LIMIT, message, &place);
    }

    fn many(&mut self, count: usize, most: usize, what: &'static str) {
        self.items += count as u64;
        if count > most {
            self.limit(format!("the program has {count} {what}, and the limit is {most}"), Place::of(what));
        }
    }

    fn declarations(&mut self, program: &'p Program) {
        self.many(program.buffers().len(), MAX_BUFFERS, "buffers");
        self.many(program.constants().len(), MAX_CONSTANTS, "constants");
        self.many(program.functions().len(), MAX_FUNCTIONS, "functions");
        self.many(program.types().len(), MAX_TYPES, "types");
        if !self.report.is_empty() {
            return;
        }
        self.name_bytes += program.name().len();
        for (i, def) in program.types().iter().enumerate() {
            match def {
                TypeDef::Struct { name, members, .. } => {
                    self.items += members.len() as u64;
                    self.names(std::iter::once(name).chain(members.iter().map(|member| &member.name)));
                }
                TypeDef::Array { count, .. } => self.count(count, || Place::at("types", i)),
            }
        }
        self.names(program.constants().iter().map(|constant| &constant.name));
        for (i, buffer) in program.buffers().iter().enumerate() {
            self.names([&buffer.name]);
            self.count(&buffer.count, || Place::at("buffers", i));
        }
        for (i, function) in program.functions().iter().enumerate() {
            self.items += function.params.len() as u64;
            self.names(std::iter::once(&function.name).chain(function.params.iter().map(|param| &param.name)));
            self.body(&function.body, &Place::at("functions", i));
        }
        for (i, expr) in program.workgroup_exprs().iter().enumerate() {
            if let Some(expr) = expr {
                self.walk(Item::Expr(expr, 1), || Place::at("workgroup_size", i));
            }
        }
        for (i, expr) in program.domain().into_iter().flatten().enumerate() {
            self.walk(Item::Expr(expr, 1), || Place::at("domain", i));
        }
        self.body(program.body(), &Place::default());
        if self.items > u64::from(MAX_ITEMS) {
            self.limit(format!("the program has {} items, and the limit is {MAX_ITEMS}", self.items), Place::default());
        }
        if self.name_bytes > MAX_NAMES_BYTES {
            let message = format!("the names take {} bytes, and the limit is {MAX_NAMES_BYTES}", self.name_bytes);
            self.limit(message, Place::default());
        }
    }

    fn names<'a>(&mut self, names: impl IntoIterator<Item = &'a Name>) {
        self.name_bytes += names.into_iter().map(|name| name.as_str().len()).sum::<usize>();
    }

    fn count(&mut self, count: &'p Count, place: impl Fn() -> Place) {
        if let Count::Constant(expr) = count {
            self.walk(Item::Expr(expr, 1), || {
                let mut place = place();
                place.push("count");
                place
            });
        }
    }

    /// Each statement of the outermost list by itself, so that a limit can name it.
    fn body(&mut self, body: &'p [Node], place: &Place) {
        for (i, node) in body.iter().enumerate() {
            self.walk(Item::List(std::slice::from_ref(node), 1), || {
                let mut place = place.clone();
                place.push_at("body", i);
                place
            });
        }
    }

    /// `place` is asked for where something is wrong.
    fn walk(&mut self, root: Item<'p>, place: impl Fn() -> Place) {
        self.waiting.clear();
        self.waiting.push(root);
        while let Some(item) = self.waiting.pop() {
            let depth = match &item {
                Item::List(list, depth) if !list.is_empty() => *depth,
                Item::List(..) => continue,
                Item::Expr(_, depth) => *depth,
            };
            if depth > MAX_DEPTH {
                let what = if matches!(item, Item::List(..)) { "statements" } else { "expressions" };
                self.limit(format!("{what} nest deeper than {MAX_DEPTH} levels"), place());
                return;
            }
            match item {
                Item::Expr(expr, depth) => {
                    self.items += 1;
                    match expr {
                        Expr::Var(name) | Expr::Constant(name) | Expr::Length(name) => self.names([name]),
                        Expr::Load { buffer, path, .. } => {
                            self.items += path.len() as u64;
                            self.names([buffer]);
                        }
                        Expr::Part { path, .. } => self.items += path.len() as u64,
                        Expr::Swizzle { lanes, .. } => self.items += lanes.len() as u64,
                        _ => {}
                    }
                    expr.for_each_child(|child| self.waiting.push(Item::Expr(child, depth + 1)));
                }
                Item::List(list, depth) => {
                    for node in list {
                        self.items += 1;
                        match node {
                            Node::Let { name, .. } | Node::Var { name, .. } | Node::For { var: name, .. } => {
                                self.names([name]);
                            }
                            Node::Assign { name, path, .. } | Node::Store { buffer: name, path, .. } => {
                                self.items += path.len() as u64;
                                self.names([name]);
                            }
                            Node::Atomic { buffer: name, path, result, .. } => {
                                self.items += path.len() as u64;
                                self.names(std::iter::once(name).chain(result));
                            }
                            Node::Call { function, result, .. } => {
                                self.names(std::iter::once(function).chain(result));
                            }
                            Node::Switch { cases, .. } => {
                                self.items += cases.iter().map(|case| 1 + case.values.len() as u64).sum::<u64>();
                            }
                            _ => {}
                        }
                        node.for_each_expr(|expr| self.waiting.push(Item::Expr(expr, 1)));
                        node.for_each_list(|list| self.waiting.push(Item::List(list, depth + 1)));
                    }
                }
            }
        }
    }
}
