use super::{MAGIC, VERSION};
use crate::ir::{
    Access, BarrierScope, BufferKind, Builtin, Case, Count, DataType, Expr, Literal, Math, Name, Node, Program, TypeDef,
};

/// The bytes of a program.
pub fn encode(program: &Program) -> Vec<u8> {
    let mut out = Encoder { bytes: Vec::with_capacity(256) };
    out.bytes.extend(MAGIC);
    out.word(VERSION);
    out.word(0);
    let start = out.bytes.len();
    out.program(program);
    let length = (out.bytes.len() - start) as u32;
    out.bytes[start - 4..start].copy_from_slice(&length.to_le_bytes());
    out.bytes
}

/// What is still to be written, last first: a list instead of recursion, because a program that nobody has checked yet may
/// be of any depth.
enum Item<'a> {
    Expr(&'a Expr),
    Access(&'a Access),
    Node(&'a Node),
    Case(&'a Case),
}

struct Encoder {
    bytes: Vec<u8>,
}

impl Encoder {
    fn byte(&mut self, value: u8) {
        self.bytes.push(value);
    }

    fn word(&mut self, value: u32) {
        self.bytes.extend(value.to_le_bytes());
    }

    fn count<T>(&mut self, list: &[T]) {
        self.word(list.len() as u32);
    }

    fn name(&mut self, name: &Name) {
        self.count(name.as_str().as_bytes());
        self.bytes.extend(name.as_str().as_bytes());
    }

    fn optional_name(&mut self, name: &Option<Name>) {
        self.byte(u8::from(name.is_some()));
        if let Some(name) = name {
            self.name(name);
        }
    }

    fn ty(&mut self, ty: &DataType) {
        ty.write_key(&mut self.bytes);
    }

    fn literal(&mut self, literal: &Literal) {
        self.ty(&literal.data_type());
        let bytes = match literal {
            Literal::Bool(_) => 1,
            Literal::F16(_) => 2,
            Literal::U32(_) | Literal::I32(_) | Literal::F32(_) => 4,
            Literal::U64(_) | Literal::I64(_) | Literal::F64(_) => 8,
        };
        self.bytes.extend(&literal.bits().to_le_bytes()[..bytes]);
    }

    fn program(&mut self, program: &Program) {
        let parts = program.parts();
        self.byte(u8::from(parts.name.is_some()) | u8::from(parts.math == Math::Fast) << 1);
        if let Some(name) = &parts.name {
            self.name(name);
        }
        self.count(&parts.types);
        parts.types.iter().for_each(|def| self.type_def(def));
        self.count(&parts.constants);
        for constant in &parts.constants {
            self.name(&constant.name);
            self.literal(&constant.default);
        }
        self.count(&parts.buffers);
        for buffer in &parts.buffers {
            self.name(&buffer.name);
            self.word(buffer.group);
            self.word(buffer.binding);
            self.byte(match buffer.kind {
                BufferKind::Read => 0,
                BufferKind::ReadWrite => 1,
                BufferKind::Output => 2,
                BufferKind::Uniform => 3,
                BufferKind::Workgroup => 4,
            });
            self.ty(&buffer.ty);
            self.element_count(&buffer.count);
        }
        self.count(&parts.functions);
        for function in &parts.functions {
            self.name(&function.name);
            self.count(&function.params);
            for param in &function.params {
                self.name(&param.name);
                self.ty(&param.ty);
            }
            self.byte(u8::from(function.result.is_some()));
            if let Some(result) = &function.result {
                self.ty(result);
            }
            self.body(&function.body);
        }
        parts.workgroup_size.iter().for_each(|&size| self.word(size));
        parts.workgroup_exprs.iter().for_each(|expr| self.optional(expr.as_ref()));
        self.byte(u8::from(parts.domain.is_some()));
        parts.domain.iter().flatten().for_each(|expr| self.expr(expr));
        self.body(&parts.body);
    }

    fn type_def(&mut self, def: &TypeDef) {
        match def {
            TypeDef::Struct { name, members, size, align } => {
                self.byte(0);
                self.name(name);
                self.count(members);
                for member in members {
                    self.name(&member.name);
                    self.ty(&member.ty);
                    self.word(member.offset);
                }
                self.word(*size);
                self.word(*align);
            }
            TypeDef::Array { element, count, stride } => {
                self.byte(1);
                self.ty(element);
                self.element_count(count);
                self.word(*stride);
            }
        }
    }

    fn element_count(&mut self, count: &Count) {
        match count {
            Count::Runtime => self.byte(0),
            Count::Fixed(count) => {
                self.byte(1);
                self.word(*count);
            }
            Count::Constant(expr) => {
                self.byte(2);
                self.expr(expr);
            }
        }
    }

    fn optional(&mut self, expr: Option<&Expr>) {
        self.byte(u8::from(expr.is_some()));
        if let Some(expr) = expr {
            self.expr(expr);
        }
    }

    fn expr(&mut self, expr: &Expr) {
        self.items(vec![Item::Expr(expr)]);
    }

    fn body(&mut self, body: &[Node]) {
        self.count(body);
        self.items(body.iter().rev().map(Item::Node).collect());
    }

    fn items(&mut self, mut waiting: Vec<Item<'_>>) {
        while let Some(item) = waiting.pop() {
            let start = waiting.len();
            match item {
                Item::Expr(expr) => self.expr_fields(expr, &mut waiting),
                Item::Access(Access::Member(member)) => {
                    self.byte(0);
                    self.word(*member);
                }
                Item::Access(Access::Index(index)) => {
                    self.byte(1);
                    waiting.push(Item::Expr(index));
                }
                Item::Node(node) => self.node_fields(node, &mut waiting),
                Item::Case(case) => {
                    self.count(&case.values);
                    case.values.iter().for_each(|value| self.literal(value));
                    self.byte(u8::from(case.default));
                    self.count(&case.body);
                    waiting.extend(case.body.iter().map(Item::Node));
                }
            }
            // What was just found comes next, in its own order.
            waiting[start..].reverse();
        }
    }

    /// Writes the expression's own fields and lists what is inside it.
    fn expr_fields<'a>(&mut self, expr: &'a Expr, inside: &mut Vec<Item<'a>>) {
        match expr {
            Expr::Literal(literal) => {
                self.byte(0);
                self.literal(literal);
            }
            Expr::Var(name) => {
                self.byte(1);
                self.name(name);
            }
            Expr::Constant(name) => {
                self.byte(2);
                self.name(name);
            }
            Expr::Load { buffer, index, path } => {
                self.byte(3);
                self.name(buffer);
                self.count(path);
                inside.push(Item::Expr(index));
                inside.extend(path.iter().map(Item::Access));
            }
            Expr::Length(name) => {
                self.byte(4);
                self.name(name);
            }
            Expr::Builtin(builtin) => {
                self.byte(5);
                match builtin {
                    Builtin::GlobalId(axis) => self.bytes.extend([0, *axis]),
                    Builtin::LocalId(axis) => self.bytes.extend([1, *axis]),
                    Builtin::WorkgroupId(axis) => self.bytes.extend([2, *axis]),
                    Builtin::NumWorkgroups(axis) => self.bytes.extend([3, *axis]),
                    Builtin::WorkgroupSize(axis) => self.bytes.extend([4, *axis]),
                    Builtin::LocalIndex => self.byte(5),
                    Builtin::SubgroupSize => self.byte(6),
                    Builtin::SubgroupLane => self.byte(7),
                    Builtin::SubgroupId => self.byte(8),
                    Builtin::NumSubgroups => self.byte(9),
                }
            }
            Expr::Unary { op, value } => {
                self.bytes.extend([6, op.number()]);
                inside.push(Item::Expr(value));
            }
            Expr::Binary { op, left, right } => {
                self.bytes.extend([7, op.number()]);
                inside.extend([Item::Expr(left), Item::Expr(right)]);
            }
            Expr::Math { op, args } => {
                self.bytes.extend([8, op.number()]);
                self.count(args);
                inside.extend(args.iter().map(Item::Expr));
            }
            Expr::Select { cond, yes, no } => {
                self.byte(9);
                inside.extend([Item::Expr(cond), Item::Expr(yes), Item::Expr(no)]);
            }
            Expr::Cast { to, value } => {
                self.byte(10);
                self.ty(to);
                inside.push(Item::Expr(value));
            }
            Expr::BitCast { to, value } => {
                self.byte(11);
                self.ty(to);
                inside.push(Item::Expr(value));
            }
            Expr::Construct { ty, parts } => {
                self.byte(12);
                self.ty(ty);
                self.count(parts);
                inside.extend(parts.iter().map(Item::Expr));
            }
            Expr::Swizzle { value, lanes } => {
                self.byte(13);
                self.count(lanes);
                self.bytes.extend(lanes);
                inside.push(Item::Expr(value));
            }
            Expr::Part { value, path } => {
                self.byte(14);
                self.count(path);
                inside.push(Item::Expr(value));
                inside.extend(path.iter().map(Item::Access));
            }
            Expr::Subgroup { op, value, argument } => {
                self.bytes.extend([15, op.number(), u8::from(argument.is_some())]);
                inside.push(Item::Expr(value));
                inside.extend(argument.as_deref().map(Item::Expr));
            }
            Expr::MatrixMultiplyAdd { kind, a, b, c } => {
                self.bytes.extend([16, kind.number()]);
                inside.extend([Item::Expr(a), Item::Expr(b), Item::Expr(c)]);
            }
        }
    }

    /// Writes the statement's own fields and lists what is inside it.
    fn node_fields<'a>(&mut self, node: &'a Node, inside: &mut Vec<Item<'a>>) {
        match node {
            Node::Let { name, value } => {
                self.byte(0);
                self.name(name);
                inside.push(Item::Expr(value));
            }
            Node::Var { name, ty, init } => {
                self.byte(1);
                self.name(name);
                self.ty(ty);
                self.byte(u8::from(init.is_some()));
                inside.extend(init.as_ref().map(Item::Expr));
            }
            Node::Assign { name, path, value } => {
                self.byte(2);
                self.name(name);
                self.count(path);
                inside.extend(path.iter().map(Item::Access));
                inside.push(Item::Expr(value));
            }
            Node::Store { buffer, index, path, value } => {
                self.byte(3);
                self.name(buffer);
                self.count(path);
                inside.push(Item::Expr(index));
                inside.extend(path.iter().map(Item::Access));
                inside.push(Item::Expr(value));
            }
            Node::If { cond, then, otherwise } => {
                self.byte(4);
                self.count(then);
                self.count(otherwise);
                inside.push(Item::Expr(cond));
                inside.extend(then.iter().chain(otherwise).map(Item::Node));
            }
            Node::Switch { selector, cases } => {
                self.byte(5);
                self.count(cases);
                inside.push(Item::Expr(selector));
                inside.extend(cases.iter().map(Item::Case));
            }
            Node::For { var, from, to, step, body } => {
                self.byte(6);
                self.name(var);
                self.word(*step);
                self.count(body);
                inside.extend([Item::Expr(from), Item::Expr(to)]);
                inside.extend(body.iter().map(Item::Node));
            }
            Node::Loop { body, continuing, break_if } => {
                self.byte(7);
                self.count(body);
                self.count(continuing);
                self.byte(u8::from(break_if.is_some()));
                inside.extend(body.iter().chain(continuing).map(Item::Node));
                inside.extend(break_if.as_ref().map(Item::Expr));
            }
            Node::Break => self.byte(8),
            Node::Continue => self.byte(9),
            Node::Return(value) => {
                self.bytes.extend([10, u8::from(value.is_some())]);
                inside.extend(value.as_ref().map(Item::Expr));
            }
            Node::Barrier(scope) => self.bytes.extend([
                11,
                match scope {
                    BarrierScope::Workgroup => 0,
                    BarrierScope::Storage => 1,
                },
            ]),
            Node::Atomic { op, buffer, index, path, value, compare, result } => {
                self.bytes.extend([12, op.number()]);
                self.name(buffer);
                self.count(path);
                self.bytes.extend([u8::from(value.is_some()), u8::from(compare.is_some())]);
                self.optional_name(result);
                inside.push(Item::Expr(index));
                inside.extend(path.iter().map(Item::Access));
                inside.extend(value.iter().chain(compare).map(Item::Expr));
            }
            Node::Call { function, args, result } => {
                self.byte(13);
                self.name(function);
                self.count(args);
                self.optional_name(result);
                inside.extend(args.iter().map(Item::Expr));
            }
            Node::Block(body) => {
                self.byte(14);
                self.count(body);
                inside.extend(body.iter().map(Item::Node));
            }
        }
    }
}
