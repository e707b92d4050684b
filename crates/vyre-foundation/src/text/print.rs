use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use super::{FUNCTIONS, LANES, Scope, is_bare};
use crate::ir::typing::step;
use crate::ir::{
    Access, BarrierScope, BinaryOp, Count, DataType, Expr, Literal, Math, MathOp, Name, Node, Program, TypeDef, UnaryOp,
};

/// The text of a program.
pub fn print(program: &Program) -> String {
    let mut printer = Printer {
        program,
        out: String::new(),
        indent: 0,
        scope: Scope::default(),
        constants: program.constants().iter().map(|constant| constant.name.as_str()).collect(),
        buffers: HashMap::new(),
        known_types: 0,
        type_names: type_names(program.types()),
        member_names: program.types().iter().map(member_names).collect(),
    };
    printer.program();
    printer.out
}

/// What is still to be written. A list instead of recursion, because a program that nobody has checked may be of any depth.
enum Item<'a> {
    Text(&'static str),
    Owned(String),
    Name(&'a Name),
    /// In parentheses when it binds less than that.
    Expr(&'a Expr, u8),
    /// Steps into something of a type that may be known.
    Path(&'a [Access], Option<DataType>),
    Node(&'a Node),
    /// A statement list in braces, with names of its own.
    List(&'a [Node]),
    Line,
    Indent(i32),
    Open,
    Close,
    Declare(&'a Name, Option<&'a DataType>),
}

use Item::{Expr as E, Text as T};

struct Printer<'a> {
    program: &'a Program,
    out: String,
    indent: i32,
    scope: Scope,
    constants: HashSet<&'a str>,
    /// Types of buffers, known once bodies begin.
    buffers: HashMap<&'a str, &'a DataType>,
    known_types: usize,
    /// For each type, the name by which it can be written.
    type_names: Vec<Option<&'a Name>>,
    /// For each struct, the names by which its members can be written.
    member_names: Vec<Vec<Option<&'a Name>>>,
}

/// Structs can be written by their name where it is bare, not that of a function, and no other struct has it.
fn type_names(types: &[TypeDef]) -> Vec<Option<&Name>> {
    let usable = |name: &str| is_bare(name) && MathOp::named(name).is_none() && !FUNCTIONS.contains(&name);
    let mut names = unique(types.iter().map(struct_name));
    names.iter_mut().for_each(|entry| *entry = entry.filter(|name| usable(name.as_str())));
    names
}

fn struct_name(def: &TypeDef) -> Option<&Name> {
    match def {
        TypeDef::Struct { name, .. } => Some(name),
        TypeDef::Array { .. } => None,
    }
}

fn member_names(def: &TypeDef) -> Vec<Option<&Name>> {
    match def {
        TypeDef::Struct { members, .. } => unique(members.iter().map(|member| Some(&member.name))),
        TypeDef::Array { .. } => Vec::new(),
    }
}

/// The names that occur once.
fn unique<'n>(names: impl Iterator<Item = Option<&'n Name>>) -> Vec<Option<&'n Name>> {
    let names: Vec<_> = names.collect();
    let mut counts: HashMap<&Name, u32> = HashMap::new();
    names.iter().flatten().for_each(|name| *counts.entry(name).or_default() += 1);
    names.into_iter().map(|name| name.filter(|name| counts[name] == 1)).collect()
}

/// How strongly an operator binds.
pub(super) fn precedence(op: BinaryOp) -> u8 {
    match op {
        BinaryOp::Mul | BinaryOp::Div | BinaryOp::Rem => 7,
        BinaryOp::Add | BinaryOp::Sub => 6,
        BinaryOp::Shl | BinaryOp::Shr => 5,
        BinaryOp::And => 4,
        BinaryOp::Xor => 3,
        BinaryOp::Or => 2,
        _ => 1,
    }
}
const UNARY: u8 = 8;
const ATOM: u8 = 9;

pub(super) fn quoted(name: &str) -> String {
    if is_bare(name) { name.to_owned() } else { format!("{name:?}") }
}

impl<'a> Printer<'a> {
    fn program(&mut self) {
        let program = self.program;
        for constant in program.constants() {
            self.line(format!("override {} = {};", quoted(constant.name.as_str()), constant.default));
        }
        for (i, def) in program.types().iter().enumerate() {
            self.known_types = i;
            match def {
                TypeDef::Struct { name, members, size, align } => {
                    let name = quoted(name.as_str());
                    self.line(format!("type {i} = struct {name} size {size} align {align} {{"));
                    for member in members {
                        let ty = self.ty(&member.ty);
                        self.line(format!("    {}: {ty} at {},", quoted(member.name.as_str()), member.offset));
                    }
                    self.line("};".to_owned());
                }
                TypeDef::Array { element, count, stride } => {
                    let element = self.ty(element);
                    self.out.push_str(&format!("type {i} = array<{element}"));
                    match count {
                        Count::Runtime => {}
                        Count::Fixed(count) => self.out.push_str(&format!(", {count}")),
                        Count::Constant(expr) => {
                            // In parentheses, so that no `>` in it ends the type.
                            self.run(vec![T(", ("), E(expr, 0), T(")")]);
                        }
                    }
                    self.line(format!("> stride {stride};"));
                }
            }
        }
        self.known_types = program.types().len();
        for buffer in program.buffers() {
            let ty = self.ty(&buffer.ty);
            self.out.push_str(&format!("{} {}: {ty}", buffer.kind.name(), quoted(buffer.name.as_str())));
            match &buffer.count {
                Count::Runtime => {}
                Count::Fixed(count) => self.out.push_str(&format!("[{count}]")),
                Count::Constant(expr) => {
                    self.out.push('[');
                    self.size(expr);
                    self.out.push(']');
                }
            }
            match buffer.group {
                0 => self.line(format!(" @{};", buffer.binding)),
                group => self.line(format!(" @{group}:{};", buffer.binding)),
            }
        }
        let [x, y, z] = program.workgroup_size();
        self.line(format!("workgroup_size [{x}, {y}, {z}];"));
        if program.workgroup_exprs().iter().any(Option::is_some) {
            self.sizes("workgroup_exprs", program.workgroup_exprs().iter().map(Option::as_ref));
        }
        if let Some(domain) = program.domain() {
            self.sizes("domain", domain.iter().map(Some));
        }
        if program.math() != Math::Exact {
            self.line(format!("math {};", program.math().name()));
        }
        for buffer in program.buffers() {
            self.buffers.entry(buffer.name.as_str()).or_insert(&buffer.ty);
        }
        for function in program.functions() {
            self.scope.open();
            self.out.push_str(&format!("\nfn {}(", quoted(function.name.as_str())));
            for (i, param) in function.params.iter().enumerate() {
                let ty = self.ty(&param.ty);
                let comma = if i == 0 { "" } else { ", " };
                self.out.push_str(&format!("{comma}{}: {ty}", quoted(param.name.as_str())));
                self.scope.declare(&param.name, Some(&param.ty));
            }
            self.out.push_str(") ");
            if let Some(result) = &function.result {
                let ty = self.ty(result);
                self.out.push_str(&format!("-> {ty} "));
            }
            self.run(vec![Item::List(&function.body), Item::Line]);
            self.scope.close();
        }
        self.out.push_str(&format!("\nentry {} ", quoted(program.name())));
        self.run(vec![Item::List(program.body()), Item::Line]);
    }

    fn line(&mut self, text: String) {
        self.out.push_str(&text);
        self.out.push('\n');
    }

    /// An expression where a bare number would mean a fixed count.
    fn size(&mut self, expr: &'a Expr) {
        let literal = matches!(expr, Expr::Literal(Literal::U32(_)));
        self.run(if literal { vec![T("("), E(expr, 0), T(")")] } else { vec![E(expr, 0)] });
    }

    fn sizes(&mut self, what: &'static str, exprs: impl Iterator<Item = Option<&'a Expr>>) {
        self.out.push_str(what);
        for (i, expr) in exprs.enumerate() {
            self.out.push_str(if i == 0 { " [" } else { ", " });
            match expr {
                Some(expr) => self.run(vec![E(expr, 0)]),
                None => self.out.push('_'),
            }
        }
        self.line("];".to_owned());
    }

    fn ty(&self, ty: &DataType) -> String {
        match ty {
            DataType::Handle(id) => match self.type_names[..self.known_types].get(id.0 as usize) {
                Some(Some(name)) => name.to_string(),
                _ => ty.to_string(),
            },
            _ => ty.to_string(),
        }
    }

    fn run(&mut self, mut waiting: Vec<Item<'a>>) {
        waiting.reverse();
        let mut found = Vec::new();
        while let Some(item) = waiting.pop() {
            self.item(item, &mut found);
            waiting.extend(found.drain(..).rev());
        }
    }

    /// Writes an item, or lists what it consists of.
    fn item(&mut self, item: Item<'a>, to: &mut Vec<Item<'a>>) {
        match item {
            Item::Text(text) => self.out.push_str(text),
            Item::Owned(text) => self.out.push_str(&text),
            Item::Name(name) => self.out.push_str(&quoted(name.as_str())),
            Item::Expr(expr, least) => self.expr(expr, least, to),
            Item::Path(path, ty) => self.path(path, ty, to),
            Item::Node(node) => self.node(node, to),
            Item::List(list) => {
                to.extend([T("{"), Item::Open, Item::Indent(1)]);
                to.extend(list.iter().flat_map(|node| [Item::Line, Item::Node(node)]));
                to.extend([Item::Indent(-1), Item::Close]);
                to.extend(if list.is_empty() { vec![T("}")] } else { vec![Item::Line, T("}")] });
            }
            Item::Line => {
                self.out.push('\n');
                // Text nested to absurd depths would otherwise be mostly blanks.
                (0..self.indent.min(40)).for_each(|_| self.out.push_str("    "));
            }
            Item::Indent(by) => self.indent += by,
            Item::Open => self.scope.open(),
            Item::Close => self.scope.close(),
            Item::Declare(name, ty) => self.scope.declare(name, ty),
        }
    }

    /// `name[index]` of a buffer, and on from there.
    fn element(&self, buffer: &'a Name, index: &'a Expr, path: &'a [Access], to: &mut Vec<Item<'a>>) {
        if self.scope.has(buffer.as_str()) {
            to.push(T("@"));
        }
        let ty = self.buffers.get(buffer.as_str()).map(|ty| (*ty).clone());
        to.extend([Item::Name(buffer), T("["), E(index, 0), T("]"), Item::Path(path, ty)]);
    }

    /// A variable, and on from there.
    fn variable(&self, name: &'a Name, path: &'a [Access], to: &mut Vec<Item<'a>>) {
        let known = self.scope.get(name.as_str());
        let constant = self.constants.contains(name.as_str());
        if known.is_none() && (constant || matches!(path.first(), Some(Access::Index(_)))) {
            to.push(T("%"));
        }
        to.extend([Item::Name(name), Item::Path(path, known.flatten().cloned())]);
    }

    fn path(&self, path: &'a [Access], mut ty: Option<DataType>, to: &mut Vec<Item<'a>>) {
        for access in path {
            match access {
                Access::Index(index) => to.extend([T("["), E(index, 0), T("]")]),
                Access::Member(at) => {
                    let name = match ty {
                        Some(DataType::Handle(id)) => {
                            self.member_names.get(id.0 as usize).and_then(|names| *names.get(*at as usize)?)
                        }
                        _ => None,
                    };
                    to.push(Item::Owned(match name {
                        Some(name) => format!(".{}", quoted(name.as_str())),
                        None => format!(".{at}"),
                    }));
                }
            }
            ty = ty.and_then(|ty| step(&ty, access, self.program.types()).ok());
        }
    }

    /// The type at the end of a load or part of a variable, as far as declarations tell it.
    fn end_type(&self, expr: &Expr) -> Option<DataType> {
        let (start, path): (DataType, &[Access]) = match expr {
            Expr::Var(name) => (self.scope.get(name.as_str())??.clone(), &[]),
            Expr::Load { buffer, path, .. } => ((*self.buffers.get(buffer.as_str())?).clone(), path),
            Expr::Part { value, path } => match &**value {
                Expr::Var(name) => (self.scope.get(name.as_str())??.clone(), path),
                _ => return None,
            },
            _ => return None,
        };
        path.iter().try_fold(start, |ty, access| step(&ty, access, self.program.types()).ok())
    }

    fn list(&self, name: String, args: impl Iterator<Item = &'a Expr>, to: &mut Vec<Item<'a>>) {
        to.extend([Item::Owned(name), T("(")]);
        for (i, arg) in args.enumerate() {
            if i > 0 {
                to.push(T(", "));
            }
            to.push(E(arg, 0));
        }
        to.push(T(")"));
    }

    fn expr(&self, expr: &'a Expr, least: u8, to: &mut Vec<Item<'a>>) {
        let binds = match expr {
            Expr::Binary { op, .. } => precedence(*op),
            Expr::Unary { .. } => UNARY,
            // A minus sign in front must not be taken for an operator's operand.
            Expr::Literal(literal) if literal.to_string().starts_with('-') => UNARY,
            _ => ATOM,
        };
        if binds < least {
            to.extend([T("("), E(expr, 0), T(")")]);
            return;
        }
        match expr {
            Expr::Literal(literal) => to.push(Item::Owned(literal.to_string())),
            Expr::Var(name) => self.variable(name, &[], to),
            Expr::Constant(name) => {
                if self.scope.has(name.as_str()) || !self.constants.contains(name.as_str()) {
                    to.push(T("$"));
                }
                to.push(Item::Name(name));
            }
            Expr::Load { buffer, index, path } => self.element(buffer, index, path, to),
            Expr::Length(buffer) => to.extend([T("len("), Item::Name(buffer), T(")")]),
            Expr::Builtin(builtin) => to.push(Item::Owned(builtin.to_string())),
            Expr::Unary { op, value } => {
                let literal = *op == UnaryOp::Neg && matches!(**value, Expr::Literal(_));
                to.extend([T(op.name()), E(value, if literal { u8::MAX } else { UNARY })]);
            }
            Expr::Binary { op, left, right } => {
                let own = precedence(*op);
                let left_least = if op.is_comparison() { own + 1 } else { own };
                to.extend([E(left, left_least), T(" "), T(op.name()), T(" "), E(right, own + 1)]);
            }
            Expr::Math { op, args } => self.list(op.name().to_owned(), args.iter(), to),
            Expr::Select { cond, yes, no } => {
                self.list("select".to_owned(), [&**cond, &**yes, &**no].into_iter(), to);
            }
            Expr::Cast { to: ty, value } => self.list(format!("cast<{}>", self.ty(ty)), std::iter::once(&**value), to),
            Expr::BitCast { to: ty, value } => {
                self.list(format!("bitcast<{}>", self.ty(ty)), std::iter::once(&**value), to);
            }
            Expr::Construct { ty, parts } => self.list(self.ty(ty), parts.iter(), to),
            Expr::Swizzle { value, lanes } => {
                let letters: Option<String> =
                    lanes.iter().map(|lane| LANES.get(usize::from(*lane)).map(|letter| char::from(*letter))).collect();
                let on_struct = self
                    .end_type(value)
                    .is_some_and(|ty| matches!(ty, DataType::Handle(id) if is_struct(self.program.types(), id.0)));
                match letters {
                    Some(letters) if !letters.is_empty() && !on_struct => {
                        match &**value {
                            Expr::Var(_) | Expr::Load { .. } => to.push(E(value, 0)),
                            Expr::Part { value: whole, path }
                                if matches!(**whole, Expr::Var(_)) && !path.is_empty() =>
                            {
                                to.push(E(value, 0));
                            }
                            _ => to.extend([T("("), E(value, 0), T(")")]),
                        }
                        to.push(Item::Owned(format!(".{letters}")));
                    }
                    _ => {
                        to.extend([T("swizzle("), E(value, 0)]);
                        to.extend(lanes.iter().map(|lane| Item::Owned(format!(", {lane}"))));
                        to.push(T(")"));
                    }
                }
            }
            Expr::Part { value, path } => match &**value {
                _ if path.is_empty() => to.extend([T("part("), E(value, 0), T(")")]),
                Expr::Var(name) => self.variable(name, path, to),
                _ => to.extend([T("("), E(value, 0), T(")"), Item::Path(path, None)]),
            },
            Expr::Subgroup { op, value, argument } => {
                let args = std::iter::once(&**value).chain(argument.as_deref());
                self.list(format!("subgroup.{}", op.name()), args, to);
            }
            Expr::MatrixMultiplyAdd { kind, a, b, c } => {
                self.list(format!("subgroup.{}", kind.name()), [&**a, &**b, &**c].into_iter(), to);
            }
        }
    }

    fn node(&self, node: &'a Node, to: &mut Vec<Item<'a>>) {
        match node {
            Node::Let { name, value } => {
                let pieces = [T("let "), Item::Name(name), T(" = "), E(value, 0), T(";"), Item::Declare(name, None)];
                to.extend(pieces);
            }
            Node::Var { name, ty, init } => {
                to.extend([T("var "), Item::Name(name), T(": "), Item::Owned(self.ty(ty))]);
                if let Some(init) = init {
                    to.extend([T(" = "), E(init, 0)]);
                }
                to.extend([T(";"), Item::Declare(name, Some(ty))]);
            }
            Node::Assign { name, path, value } => {
                let known = self.scope.get(name.as_str());
                if known.is_none() && matches!(path.first(), Some(Access::Index(_))) {
                    to.push(T("%"));
                }
                to.extend([Item::Name(name), Item::Path(path, known.flatten().cloned())]);
                to.extend([T(" = "), E(value, 0), T(";")]);
            }
            Node::Store { buffer, index, path, value } => {
                self.element(buffer, index, path, to);
                to.extend([T(" = "), E(value, 0), T(";")]);
            }
            Node::If { cond, then, otherwise } => {
                to.extend([T("if "), E(cond, 0), T(" "), Item::List(then)]);
                match &otherwise[..] {
                    [] => {}
                    [chained @ Node::If { .. }] => {
                        to.extend([T(" else "), Item::Open, Item::Node(chained), Item::Close]);
                    }
                    _ => to.extend([T(" else "), Item::List(otherwise)]),
                }
            }
            Node::Switch { selector, cases } => {
                to.extend([T("switch "), E(selector, 0), T(" {"), Item::Indent(1)]);
                for case in cases {
                    let mut heads: Vec<String> = case.values.iter().map(Literal::to_string).collect();
                    let mut head = String::new();
                    if heads.is_empty() && case.default {
                        head.push_str("default ");
                    } else {
                        if case.default {
                            heads.push("default".to_owned());
                        }
                        let _ = write!(head, "case {}{}", heads.join(", "), if heads.is_empty() { "" } else { " " });
                    }
                    to.extend([Item::Line, Item::Owned(head), Item::List(&case.body)]);
                }
                to.extend([Item::Indent(-1), Item::Line, T("}")]);
            }
            Node::For { var, from, to: limit, step, body } => {
                to.extend([T("for "), Item::Name(var), T(" in "), E(from, 0), T(".."), E(limit, 0), T(" ")]);
                if *step != 1 {
                    to.push(Item::Owned(format!("step {step} ")));
                }
                to.extend([Item::Open, Item::Declare(var, None), Item::List(body), Item::Close]);
            }
            Node::Loop { body, continuing, break_if } => {
                // The names of the body are known to the end of the statement.
                to.extend([T("loop {"), Item::Open, Item::Indent(1)]);
                to.extend(body.iter().flat_map(|node| [Item::Line, Item::Node(node)]));
                to.extend([Item::Indent(-1), Item::Line, T("}")]);
                if !continuing.is_empty() {
                    to.extend([T(" continuing {"), Item::Indent(1)]);
                    to.extend(continuing.iter().flat_map(|node| [Item::Line, Item::Node(node)]));
                    to.extend([Item::Indent(-1), Item::Line, T("}")]);
                }
                if let Some(break_if) = break_if {
                    to.extend([T(" until "), E(break_if, 0), T(";")]);
                }
                to.push(Item::Close);
            }
            Node::Break => to.push(T("break;")),
            Node::Continue => to.push(T("continue;")),
            Node::Return(None) => to.push(T("return;")),
            Node::Return(Some(value)) => to.extend([T("return "), E(value, 0), T(";")]),
            Node::Barrier(BarrierScope::Workgroup) => to.push(T("barrier;")),
            Node::Barrier(BarrierScope::Storage) => to.push(T("storage_barrier;")),
            Node::Atomic { op, buffer, index, path, value, compare, result } => {
                if let Some(result) = result {
                    to.extend([T("let "), Item::Name(result), T(" = ")]);
                }
                to.extend([T("atomic."), T(op.name()), T("(")]);
                self.element(buffer, index, path, to);
                if let Some(value) = value {
                    to.extend([T(", "), E(value, 0)]);
                }
                if let Some(compare) = compare {
                    to.extend([T(", compare: "), E(compare, 0)]);
                }
                to.push(T(");"));
                to.extend(result.iter().map(|result| Item::Declare(result, None)));
            }
            Node::Call { function, args, result } => {
                if let Some(result) = result {
                    to.extend([T("let "), Item::Name(result), T(" = ")]);
                }
                self.list(format!("call {}", quoted(function.as_str())), args.iter(), to);
                to.push(T(";"));
                to.extend(result.iter().map(|result| Item::Declare(result, None)));
            }
            Node::Block(body) => to.push(Item::List(body)),
        }
    }
}

fn is_struct(types: &[TypeDef], id: u32) -> bool {
    matches!(types.get(id as usize), Some(TypeDef::Struct { .. }))
}
