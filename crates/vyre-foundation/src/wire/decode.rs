use std::collections::HashMap;

use smallvec::SmallVec;
use vyre_spec::{Diagnostic, codes};

use super::{MAGIC, MAX_BYTES, MAX_DEPTH, MAX_ITEMS, VERSION};
use crate::ir::{
    Access, AtomicOp, BarrierScope, BinaryOp, BufferDecl, BufferKind, Builtin, Case, Count, DataType, Expr, Function,
    Literal, Math, MathOp, MatrixKind, Member, Name, Node, Param, Parts, Program, SpecConstant, SubgroupOp, TypeDef,
    UnaryOp,
};

type Result<T> = std::result::Result<T, Diagnostic>;

/// The program of these bytes. Anything but the bytes that [`super::encode`] makes is refused.
pub fn decode(bytes: &[u8]) -> Result<Program> {
    if bytes.len() > MAX_BYTES {
        return Err(Diagnostic::new(
            &codes::wire::WIRE_LIMIT,
            format!("{} bytes are more than the limit of {MAX_BYTES}", bytes.len()),
        ));
    }
    let mut decoder =
        Decoder { rest: bytes, total: bytes.len(), items: 0, expr_depth: 0, node_depth: 0, names: HashMap::new() };
    if !bytes.starts_with(&MAGIC) {
        return Err(Diagnostic::new(&codes::wire::WIRE_HEADER, "the bytes don't start with `VYRE`"));
    }
    decoder.take(MAGIC.len())?;
    let version = decoder.word()?;
    if version != VERSION {
        return Err(Diagnostic::new(
            &codes::wire::WIRE_VERSION,
            format!("the bytes have version {version}, and this decoder reads version {VERSION}"),
        ));
    }
    let length = decoder.word()? as usize;
    if length != decoder.rest.len() {
        return Err(Diagnostic::new(
            &codes::wire::WIRE_LENGTH,
            format!("the header announces {length} bytes and {} follow", decoder.rest.len()),
        ));
    }
    let program = decoder.program()?;
    if !decoder.rest.is_empty() {
        return Err(decoder.invalid(format!("{} bytes follow the program", decoder.rest.len())));
    }
    Ok(program)
}

struct Decoder<'a> {
    rest: &'a [u8],
    total: usize,
    items: u32,
    expr_depth: u32,
    node_depth: u32,
    names: HashMap<&'a [u8], Name>,
}

impl<'a> Decoder<'a> {
    fn place(&self) -> String {
        format!("byte {}", self.total - self.rest.len())
    }

    fn invalid(&self, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(&codes::wire::WIRE_INVALID, message).at(self.place())
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        match self.rest.split_at_checked(count) {
            Some((head, rest)) => {
                self.rest = rest;
                Ok(head)
            }
            None => {
                Err(Diagnostic::new(&codes::wire::WIRE_LENGTH, "the bytes end in the middle of a program")
                    .at(self.place()))
            }
        }
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    fn word(&mut self) -> Result<u32> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn flag(&mut self) -> Result<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.invalid(format!("{other} is neither yes nor no"))),
        }
    }

    /// Counts items, so that a small input can't become a huge program.
    fn item(&mut self) -> Result<()> {
        self.items += 1;
        if self.items > MAX_ITEMS {
            return Err(Diagnostic::new(
                &codes::wire::WIRE_LIMIT,
                format!("the program has more than {MAX_ITEMS} items"),
            )
            .at(self.place()));
        }
        Ok(())
    }

    /// Reads `count` things. Space is taken as they come, never for a count that the bytes only claim.
    fn many<T>(&mut self, count: u32, mut one: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut list = Vec::new();
        for _ in 0..count {
            self.item()?;
            list.push(one(self)?);
        }
        Ok(list)
    }

    fn list<T>(&mut self, one: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let count = self.word()?;
        self.many(count, one)
    }

    fn optional<T>(&mut self, one: impl FnOnce(&mut Self) -> Result<T>) -> Result<Option<T>> {
        if self.flag()? { one(self).map(Some) } else { Ok(None) }
    }

    fn name(&mut self) -> Result<Name> {
        let length = self.word()? as usize;
        let bytes = self.take(length)?;
        // A name is used many times; one copy of it serves all.
        if let Some(name) = self.names.get(bytes) {
            return Ok(name.clone());
        }
        let Ok(text) = std::str::from_utf8(bytes) else { return Err(self.invalid("a name is not UTF-8")) };
        let name = Name::from(text);
        self.names.insert(bytes, name.clone());
        Ok(name)
    }

    fn ty(&mut self) -> Result<DataType> {
        let mut rest = self.rest;
        match DataType::read_key(&mut rest) {
            Some(ty) => {
                self.rest = rest;
                Ok(ty)
            }
            None => Err(self.invalid("no data type stands here")),
        }
    }

    fn literal(&mut self) -> Result<Literal> {
        let ty = self.ty()?;
        let bytes = match ty {
            DataType::Bool => return Ok(Literal::Bool(self.flag()?)),
            DataType::F16 => 2,
            DataType::U64 | DataType::I64 | DataType::F64 => 8,
            _ => 4,
        };
        let mut bits = [0; 8];
        bits[..bytes].copy_from_slice(self.take(bytes)?);
        Literal::from_bits(&ty, u64::from_le_bytes(bits)).ok_or_else(|| self.invalid(format!("{ty} has no literals")))
    }

    fn op<T: Copy>(&mut self, all: &[T]) -> Result<T> {
        let number = self.byte()?;
        all.get(number as usize).copied().ok_or_else(|| self.invalid(format!("{number} is no operation")))
    }

    fn program(&mut self) -> Result<Program> {
        let flags = self.byte()?;
        if flags > 3 {
            return Err(self.invalid(format!("{flags} says nothing about a name and the arithmetic")));
        }
        let math = if flags & 2 == 0 { Math::Exact } else { Math::Fast };
        let name = if flags & 1 == 0 { None } else { Some(self.name()?) };
        if name.as_ref().is_some_and(|name| *name == "main") {
            return Err(self.invalid("the name `main` is written by leaving it out"));
        }
        let types = self.list(Self::type_def)?;
        let constants = self.list(|this| Ok(SpecConstant { name: this.name()?, default: this.literal()? }))?;
        let buffers = self.list(Self::buffer)?;
        let functions = self.list(Self::function)?;
        let workgroup_size = [self.word()?, self.word()?, self.word()?];
        let workgroup_exprs = [self.optional(Self::expr)?, self.optional(Self::expr)?, self.optional(Self::expr)?];
        let domain = self.optional(|this| Ok([this.expr()?, this.expr()?, this.expr()?]))?;
        let body = self.list(Self::node)?;
        Ok(Program::from_parts(Parts {
            name,
            types,
            constants,
            buffers,
            functions,
            workgroup_size,
            workgroup_exprs,
            domain,
            math,
            body,
        }))
    }

    fn type_def(&mut self) -> Result<TypeDef> {
        Ok(match self.byte()? {
            0 => TypeDef::Struct {
                name: self.name()?,
                members: self.list(|this| Ok(Member { name: this.name()?, ty: this.ty()?, offset: this.word()? }))?,
                size: self.word()?,
                align: self.word()?,
            },
            1 => TypeDef::Array { element: self.ty()?, count: self.element_count()?, stride: self.word()? },
            other => return Err(self.invalid(format!("{other} is no kind of type definition"))),
        })
    }

    fn element_count(&mut self) -> Result<Count> {
        Ok(match self.byte()? {
            0 => Count::Runtime,
            1 => Count::Fixed(self.word()?),
            2 => Count::Constant(Box::new(self.expr()?)),
            other => return Err(self.invalid(format!("{other} is no kind of count"))),
        })
    }

    fn buffer(&mut self) -> Result<BufferDecl> {
        Ok(BufferDecl {
            name: self.name()?,
            group: self.word()?,
            binding: self.word()?,
            kind: match self.byte()? {
                0 => BufferKind::Read,
                1 => BufferKind::ReadWrite,
                2 => BufferKind::Output,
                3 => BufferKind::Uniform,
                4 => BufferKind::Workgroup,
                other => return Err(self.invalid(format!("{other} is no kind of buffer"))),
            },
            ty: self.ty()?,
            count: self.element_count()?,
        })
    }

    fn function(&mut self) -> Result<Function> {
        Ok(Function {
            name: self.name()?,
            params: self.list(|this| Ok(Param { name: this.name()?, ty: this.ty()? }))?,
            result: self.optional(Self::ty)?,
            body: self.list(Self::node)?,
        })
    }

    fn too_deep(&self) -> Diagnostic {
        Diagnostic::new(&codes::wire::WIRE_LIMIT, format!("the program nests deeper than {MAX_DEPTH} levels"))
            .at(self.place())
    }

    fn expr(&mut self) -> Result<Expr> {
        if self.expr_depth == MAX_DEPTH {
            return Err(self.too_deep());
        }
        self.expr_depth += 1;
        let expr = self.expr_here();
        self.expr_depth -= 1;
        expr
    }

    fn boxed(&mut self) -> Result<Box<Expr>> {
        self.item()?;
        self.expr().map(Box::new)
    }

    fn access(&mut self) -> Result<Access> {
        Ok(match self.byte()? {
            0 => Access::Member(self.word()?),
            1 => Access::Index(self.expr()?),
            other => return Err(self.invalid(format!("{other} is no kind of access"))),
        })
    }

    fn expr_here(&mut self) -> Result<Expr> {
        Ok(match self.byte()? {
            0 => Expr::Literal(self.literal()?),
            1 => Expr::Var(self.name()?),
            2 => Expr::Constant(self.name()?),
            3 => {
                let buffer = self.name()?;
                let steps = self.word()?;
                Expr::Load { buffer, index: self.boxed()?, path: self.many(steps, Self::access)? }
            }
            4 => Expr::Length(self.name()?),
            5 => Expr::Builtin(match self.byte()? {
                0 => Builtin::GlobalId(self.byte()?),
                1 => Builtin::LocalId(self.byte()?),
                2 => Builtin::WorkgroupId(self.byte()?),
                3 => Builtin::NumWorkgroups(self.byte()?),
                4 => Builtin::WorkgroupSize(self.byte()?),
                5 => Builtin::LocalIndex,
                6 => Builtin::SubgroupSize,
                7 => Builtin::SubgroupLane,
                8 => Builtin::SubgroupId,
                9 => Builtin::NumSubgroups,
                other => return Err(self.invalid(format!("{other} is no built-in value"))),
            }),
            6 => Expr::Unary { op: self.op(UnaryOp::ALL)?, value: self.boxed()? },
            7 => Expr::Binary { op: self.op(BinaryOp::ALL)?, left: self.boxed()?, right: self.boxed()? },
            8 => Expr::Math { op: self.op(MathOp::ALL)?, args: self.list(Self::expr)? },
            9 => Expr::Select { cond: self.boxed()?, yes: self.boxed()?, no: self.boxed()? },
            10 => Expr::Cast { to: self.ty()?, value: self.boxed()? },
            11 => Expr::BitCast { to: self.ty()?, value: self.boxed()? },
            12 => Expr::Construct { ty: self.ty()?, parts: self.list(Self::expr)? },
            13 => {
                let count = self.word()? as usize;
                let lanes = SmallVec::from_slice(self.take(count)?);
                Expr::Swizzle { value: self.boxed()?, lanes }
            }
            14 => {
                let steps = self.word()?;
                Expr::Part { value: self.boxed()?, path: self.many(steps, Self::access)? }
            }
            15 => {
                let op = self.op(SubgroupOp::ALL)?;
                let argument = self.flag()?;
                Expr::Subgroup { op, value: self.boxed()?, argument: if argument { Some(self.boxed()?) } else { None } }
            }
            16 => Expr::MatrixMultiplyAdd {
                kind: self.op(MatrixKind::ALL)?,
                a: self.boxed()?,
                b: self.boxed()?,
                c: self.boxed()?,
            },
            other => return Err(self.invalid(format!("{other} is no kind of expression"))),
        })
    }

    fn node(&mut self) -> Result<Node> {
        if self.node_depth == MAX_DEPTH {
            return Err(self.too_deep());
        }
        self.node_depth += 1;
        let node = self.node_here();
        self.node_depth -= 1;
        node
    }

    fn node_here(&mut self) -> Result<Node> {
        Ok(match self.byte()? {
            0 => Node::Let { name: self.name()?, value: self.expr()? },
            1 => Node::Var { name: self.name()?, ty: self.ty()?, init: self.optional(Self::expr)? },
            2 => {
                let name = self.name()?;
                let steps = self.word()?;
                Node::Assign { name, path: self.many(steps, Self::access)?, value: self.expr()? }
            }
            3 => {
                let buffer = self.name()?;
                let steps = self.word()?;
                let index = self.expr()?;
                Node::Store { buffer, index, path: self.many(steps, Self::access)?, value: self.expr()? }
            }
            4 => {
                let (then, otherwise) = (self.word()?, self.word()?);
                Node::If {
                    cond: self.expr()?,
                    then: self.many(then, Self::node)?,
                    otherwise: self.many(otherwise, Self::node)?,
                }
            }
            5 => {
                let cases = self.word()?;
                Node::Switch { selector: self.expr()?, cases: self.many(cases, Self::case)? }
            }
            6 => {
                let var = self.name()?;
                let step = self.word()?;
                let body = self.word()?;
                Node::For { var, step, from: self.expr()?, to: self.expr()?, body: self.many(body, Self::node)? }
            }
            7 => {
                let (body, continuing, break_if) = (self.word()?, self.word()?, self.flag()?);
                Node::Loop {
                    body: self.many(body, Self::node)?,
                    continuing: self.many(continuing, Self::node)?,
                    break_if: if break_if { Some(self.expr()?) } else { None },
                }
            }
            8 => Node::Break,
            9 => Node::Continue,
            10 => Node::Return(self.optional(Self::expr)?),
            11 => Node::Barrier(match self.byte()? {
                0 => BarrierScope::Workgroup,
                1 => BarrierScope::Storage,
                other => return Err(self.invalid(format!("{other} is no scope of a barrier"))),
            }),
            12 => {
                let op = self.op(AtomicOp::ALL)?;
                let buffer = self.name()?;
                let steps = self.word()?;
                let (value, compare) = (self.flag()?, self.flag()?);
                let result = self.optional(Self::name)?;
                Node::Atomic {
                    op,
                    buffer,
                    result,
                    index: self.expr()?,
                    path: self.many(steps, Self::access)?,
                    value: if value { Some(self.expr()?) } else { None },
                    compare: if compare { Some(self.expr()?) } else { None },
                }
            }
            13 => {
                let function = self.name()?;
                let args = self.word()?;
                let result = self.optional(Self::name)?;
                Node::Call { function, result, args: self.many(args, Self::expr)? }
            }
            14 => Node::Block(self.list(Self::node)?),
            other => return Err(self.invalid(format!("{other} is no kind of statement"))),
        })
    }

    fn case(&mut self) -> Result<Case> {
        Ok(Case { values: self.list(Self::literal)?, default: self.flag()?, body: self.list(Self::node)? })
    }
}
