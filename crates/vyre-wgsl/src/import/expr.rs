//! Expressions and places.

use naga::{BinaryOperator, Expression, GlobalVariable, Handle, RelationalFunction, TypeInner, UnaryOperator};
use smallvec::SmallVec;
use vyre_foundation::ir::{Access, BinaryOp, DataType, Expr, Literal, MathOp, Name, Node, UnaryOp};

use super::function::{Argument, FunctionCx, Place, Root, Step};
use super::module::{Failed, Res, scalar_type};

/// A scalar or vector type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) scalar: naga::Scalar,
    pub(super) size: Option<u32>,
}

impl Shape {
    pub(super) fn of(inner: &TypeInner) -> Option<Shape> {
        match *inner {
            TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) => Some(Shape { scalar, size: None }),
            TypeInner::Vector { size, scalar } => Some(Shape { scalar, size: Some(size.into()) }),
            _ => None,
        }
    }

    pub(super) fn is_float(self) -> bool {
        self.scalar.kind == naga::ScalarKind::Float
    }

    pub(super) fn is_signed(self) -> bool {
        self.scalar.kind == naga::ScalarKind::Sint
    }

    /// The scalar type; only asked for types that were translated before.
    pub(super) fn element(self) -> DataType {
        scalar_type(self.scalar).unwrap_or(DataType::U32)
    }

    pub(super) fn data(self) -> DataType {
        self.with_element(self.element())
    }

    pub(super) fn with_element(self, element: DataType) -> DataType {
        match self.size {
            Some(size) => DataType::vector(element, size),
            None => element,
        }
    }

    /// A number in every component.
    pub(super) fn number(self, value: f64) -> Expr {
        self.fill(Expr::Literal(number(&self.element(), value)))
    }

    /// A scalar in every component.
    pub(super) fn fill(self, scalar: Expr) -> Expr {
        match self.size {
            Some(size) => splat(scalar, self.element(), size),
            None => scalar,
        }
    }
}

/// A literal of a scalar type.
pub(super) fn number(ty: &DataType, value: f64) -> Literal {
    match ty {
        DataType::Bool => Literal::Bool(value != 0.0),
        DataType::I32 => Literal::I32(value as i32),
        DataType::U64 => Literal::U64(value as u64),
        DataType::I64 => Literal::I64(value as i64),
        DataType::F16 => Literal::F16(half::f16::from_f64(value)),
        DataType::F32 => Literal::F32(value as f32),
        DataType::F64 => Literal::F64(value),
        _ => Literal::U32(value as u32),
    }
}

pub(super) fn splat(scalar: Expr, element: DataType, size: u32) -> Expr {
    Expr::construct(DataType::vector(element, size), vec![scalar])
}

/// Costs nothing to write twice and can't change.
pub(super) fn is_trivial(value: &Expr) -> bool {
    match value {
        Expr::Literal(_) | Expr::Var(_) | Expr::Constant(_) | Expr::Builtin(_) | Expr::Length(_) => true,
        Expr::Swizzle { value, lanes } => lanes.len() == 1 && matches!(**value, Expr::Var(_)),
        Expr::Part { value, path } => {
            matches!(**value, Expr::Var(_)) && path.iter().all(|step| matches!(step, Access::Member(_)))
        }
        Expr::Construct { ty, parts } => ty.as_vector().is_some() && parts.iter().all(is_trivial),
        _ => false,
    }
}

/// One component of a vector.
pub(super) fn lane(value: Expr, index: u8) -> Expr {
    swizzle(value, &[index], &DataType::U32)
}

/// Components of a vector whose scalars are `element`.
pub(super) fn swizzle(value: Expr, lanes: &[u8], element: &DataType) -> Expr {
    match &value {
        Expr::Construct { ty, parts } => {
            let size = ty.as_vector().map_or(0, |(_, size)| size as usize);
            // As many parts as components: each part is a scalar.
            let scalar = |lane: u8| match parts.len() {
                1 => Some(parts[0].clone()),
                count if count == size => parts.get(lane as usize).cloned(),
                _ => None,
            };
            let picked: Option<Vec<Expr>> = lanes.iter().map(|&lane| scalar(lane)).collect();
            if let Some(mut picked) = picked {
                return match picked.len() {
                    1 => picked.remove(0),
                    count => Expr::construct(DataType::vector(element.clone(), count as u32), picked),
                };
            }
        }
        Expr::Swizzle { value: inner, lanes: before } => {
            let lanes: SmallVec<[u8; 4]> = lanes.iter().map(|&lane| before[lane as usize]).collect();
            return Expr::Swizzle { value: inner.clone(), lanes };
        }
        _ => {}
    }
    Expr::Swizzle { value: Box::new(value), lanes: SmallVec::from_slice(lanes) }
}

/// Part of a struct or array value.
pub(super) fn part(mut value: Expr, step: Access) -> Expr {
    if let Expr::Construct { ty: DataType::Handle(_), parts } = &value {
        let index = match &step {
            Access::Member(index) => Some(*index as usize),
            Access::Index(Expr::Literal(Literal::U32(index))) => Some(*index as usize),
            Access::Index(Expr::Literal(Literal::I32(index))) => usize::try_from(*index).ok(),
            Access::Index(_) => None,
        };
        if let Some(part) = index.and_then(|index| parts.get(index)) {
            return part.clone();
        }
    }
    if let Expr::Part { path, .. } = &mut value {
        path.push(step);
        return value;
    }
    Expr::Part { value: Box::new(value), path: vec![step] }
}

/// An element by constant position.
pub(super) fn element(value: Expr, index: u32) -> Expr {
    part(value, Access::Index(Expr::u32(index)))
}

impl FunctionCx<'_, '_> {
    /// Writes an expression out.
    pub(super) fn compute(&mut self, handle: Handle<Expression>) -> Res<Expr> {
        let span = self.span(handle);
        match self.arena[handle] {
            Expression::Literal(literal) => match literal_of(literal) {
                Some(literal) => Ok(Expr::Literal(literal)),
                None => self.im.unsupported("a literal of this type", span),
            },
            Expression::Constant(constant) => self.module_constant(constant),
            Expression::Override(constant) => self.im.constant(constant),
            Expression::ZeroValue(ty) => {
                let ty = self.im.ty(ty, span)?;
                Ok(zero(ty))
            }
            Expression::Compose { ty, ref components } => {
                let ty = self.im.ty(ty, span)?;
                let parts = components.iter().map(|&part| self.value(part)).collect::<Res<Vec<_>>>()?;
                Ok(Expr::construct(ty, parts))
            }
            Expression::Access { base, index } => {
                let (value, index) = (self.value(base)?, self.value(index)?);
                Ok(part(value, Access::Index(index)))
            }
            Expression::AccessIndex { base, index } => {
                let value = self.value(base)?;
                Ok(match self.inner(base) {
                    TypeInner::Vector { .. } => lane(value, index as u8),
                    TypeInner::Struct { .. } => part(value, Access::Member(index)),
                    _ => element(value, index),
                })
            }
            Expression::Splat { size, value } => {
                let Some(shape) = Shape::of(self.inner(value)) else { return Err(Failed) };
                let scalar = self.im.scalar(shape.scalar, span)?;
                Ok(splat(self.value(value)?, scalar, size.into()))
            }
            Expression::Swizzle { size, vector, pattern } => {
                let Some(shape) = Shape::of(self.inner(vector)) else { return Err(Failed) };
                let lanes: Vec<u8> = pattern[..size as usize].iter().map(|&lane| lane as u8).collect();
                Ok(swizzle(self.value(vector)?, &lanes, &shape.element()))
            }
            Expression::FunctionArgument(index) => match self.arguments.get(index as usize) {
                Some(Argument::Value(value)) => Ok(value.clone()),
                _ => self.im.unsupported("a pointer stored as a value", span),
            },
            Expression::Load { pointer } => {
                if let Expression::LocalVariable(local) = self.arena[pointer]
                    && let Some(value) = self.local_values.get(&local)
                {
                    return Ok(value.clone());
                }
                let place = self.place(pointer)?;
                self.load(&place)
            }
            Expression::Unary { op, expr } => {
                let value = self.value(expr)?;
                Ok(match op {
                    UnaryOperator::Negate => Expr::unary(UnaryOp::Neg, value),
                    UnaryOperator::LogicalNot | UnaryOperator::BitwiseNot => Expr::unary(UnaryOp::Not, value),
                })
            }
            Expression::Binary { op, left, right } => self.binary(op, left, right, handle),
            Expression::Select { condition, accept, reject } => {
                let cond = self.value(condition)?;
                let (yes, no) = (self.value(accept)?, self.value(reject)?);
                Ok(Expr::select(cond, yes, no))
            }
            Expression::Relational { fun, argument } => self.relational(fun, argument),
            Expression::Math { fun, arg, arg1, arg2, arg3 } => {
                let mut args = Vec::with_capacity(4);
                for handle in [Some(arg), arg1, arg2, arg3].into_iter().flatten() {
                    args.push((self.value(handle)?, self.inner(handle)));
                }
                self.math(fun, args, handle)
            }
            Expression::As { expr, kind, convert } => self.convert(expr, kind, convert, handle),
            Expression::ArrayLength(pointer) => {
                let place = self.place(pointer)?;
                match place.root {
                    Root::Buffer(global) => Ok(Expr::Length(self.im.buffer(global)?.name)),
                    Root::Variable(_) => Err(Failed),
                }
            }
            Expression::CallResult(_)
            | Expression::AtomicResult { .. }
            | Expression::WorkGroupUniformLoadResult { .. }
            | Expression::SubgroupBallotResult
            | Expression::SubgroupOperationResult { .. } => {
                // What gives the result failed, and said so.
                if self.im.has_problems() { Err(Failed) } else { self.im.unsupported("a result out of order", span) }
            }
            Expression::ImageSample { .. } | Expression::ImageLoad { .. } | Expression::ImageQuery { .. } => {
                self.im.unsupported("a texture operation", span)
            }
            Expression::Derivative { .. } => self.im.unsupported("a derivative", span),
            Expression::RayQueryVertexPositions { .. }
            | Expression::RayQueryProceedResult
            | Expression::RayQueryGetIntersection { .. } => self.im.unsupported("a ray query", span),
            Expression::CooperativeLoad { .. } | Expression::CooperativeMultiplyAdd { .. } => {
                self.im.unsupported("a cooperative matrix", span)
            }
            Expression::GlobalVariable(global) => {
                // A texture or sampler as a value: the buffer's own problem says it best.
                self.im.buffer(global)?;
                self.im.unsupported("a pointer stored as a value", span)
            }
            Expression::LocalVariable(_) => self.im.unsupported("a pointer stored as a value", span),
        }
    }

    fn binary(
        &mut self,
        op: BinaryOperator,
        left: Handle<Expression>,
        right: Handle<Expression>,
        handle: Handle<Expression>,
    ) -> Res<Expr> {
        let (left_type, right_type) = (self.inner(left), self.inner(right));
        let (mut a, mut b) = (self.value(left)?, self.value(right)?);
        if matches!(left_type, TypeInner::Matrix { .. }) || matches!(right_type, TypeInner::Matrix { .. }) {
            return self.matrix_binary(op, (a, left_type), (b, right_type), handle);
        }
        let (Some(left), Some(right)) = (Shape::of(left_type), Shape::of(right_type)) else {
            return self.im.unsupported("an operation on this type", self.span(handle));
        };
        match (left.size, right.size) {
            (Some(size), None) => b = splat(b, right.element(), size),
            (None, Some(size)) => a = splat(a, left.element(), size),
            _ => {}
        }
        let op = match op {
            BinaryOperator::Add => BinaryOp::Add,
            BinaryOperator::Subtract => BinaryOp::Sub,
            BinaryOperator::Multiply => BinaryOp::Mul,
            BinaryOperator::Divide => BinaryOp::Div,
            BinaryOperator::Modulo => BinaryOp::Rem,
            BinaryOperator::Equal => BinaryOp::Eq,
            BinaryOperator::NotEqual => BinaryOp::Ne,
            BinaryOperator::Less => BinaryOp::Lt,
            BinaryOperator::LessEqual => BinaryOp::Le,
            BinaryOperator::Greater => BinaryOp::Gt,
            BinaryOperator::GreaterEqual => BinaryOp::Ge,
            BinaryOperator::And | BinaryOperator::LogicalAnd => BinaryOp::And,
            BinaryOperator::ExclusiveOr => BinaryOp::Xor,
            BinaryOperator::InclusiveOr | BinaryOperator::LogicalOr => BinaryOp::Or,
            BinaryOperator::ShiftLeft => BinaryOp::Shl,
            BinaryOperator::ShiftRight => BinaryOp::Shr,
        };
        if op.is_shift() && right.scalar != naga::Scalar::U32 {
            let shape = Shape { size: left.size.or(right.size), ..right };
            b = b.cast(shape.with_element(DataType::U32));
        }
        Ok(Expr::binary(op, a, b))
    }

    fn relational(&mut self, fun: RelationalFunction, argument: Handle<Expression>) -> Res<Expr> {
        let value = self.value(argument)?;
        let Some(shape) = Shape::of(self.inner(argument)) else { return Err(Failed) };
        Ok(match fun {
            // On a scalar both give it back.
            RelationalFunction::All | RelationalFunction::Any if shape.size.is_none() => value,
            RelationalFunction::All => Expr::math(MathOp::All, vec![value]),
            RelationalFunction::Any => Expr::math(MathOp::Any, vec![value]),
            RelationalFunction::IsNan => {
                let value = self.bind(value);
                value.clone().ne(value)
            }
            RelationalFunction::IsInf => value.abs().eq(shape.number(f64::INFINITY)),
        })
    }

    fn convert(
        &mut self,
        expr: Handle<Expression>,
        kind: naga::ScalarKind,
        convert: Option<u8>,
        handle: Handle<Expression>,
    ) -> Res<Expr> {
        let span = self.span(handle);
        let from = self.inner(expr);
        let value = self.value(expr)?;
        if let TypeInner::Matrix { columns, rows, scalar } = *from {
            let to = naga::Scalar { kind, width: convert.unwrap_or(scalar.width) };
            let column = DataType::vector(self.im.scalar(to, span)?, rows.into());
            let whole = self.im.inner_type(&TypeInner::Matrix { columns, rows, scalar: to }, span)?;
            let value = self.bind(value);
            let parts = (0..columns as u32).map(|i| element(value.clone(), i).cast(column.clone())).collect();
            return Ok(Expr::construct(whole, parts));
        }
        let Some(shape) = Shape::of(from) else {
            return self.im.unsupported("a conversion of this type", span);
        };
        let to = naga::Scalar { kind, width: convert.unwrap_or(shape.scalar.width) };
        let ty = shape.with_element(self.im.scalar(to, span)?);
        if to == shape.scalar {
            return Ok(value);
        }
        Ok(if convert.is_some() { value.cast(ty) } else { value.bit_cast(ty) })
    }

    /// What a pointer points to.
    pub(super) fn place(&mut self, pointer: Handle<Expression>) -> Res<Place> {
        match self.arena[pointer] {
            Expression::GlobalVariable(global) => {
                if let Some(name) = self.private(global) {
                    return Ok(Place { root: Root::Variable(name), path: Vec::new() });
                }
                self.im.buffer(global)?;
                Ok(Place { root: Root::Buffer(global), path: Vec::new() })
            }
            Expression::LocalVariable(local) => Ok(Place { root: Root::Variable(self.local(local)), path: Vec::new() }),
            Expression::FunctionArgument(index) => match self.arguments.get(index as usize) {
                Some(Argument::Pointer(place)) => Ok(place.clone()),
                _ => Err(Failed),
            },
            Expression::Access { base, index } => {
                let mut place = self.place(base)?;
                place.path.push(Step::Index(self.value(index)?));
                Ok(place)
            }
            Expression::AccessIndex { base, index } => {
                let mut place = self.place(base)?;
                place.path.push(if self.points_to_struct(base) {
                    Step::Member(index)
                } else {
                    Step::Index(Expr::u32(index))
                });
                Ok(place)
            }
            _ => self.im.unsupported("this pointer", self.span(pointer)),
        }
    }

    fn points_to_struct(&self, pointer: Handle<Expression>) -> bool {
        match *self.inner(pointer) {
            TypeInner::Pointer { base, .. } => matches!(self.im.module.types[base].inner, TypeInner::Struct { .. }),
            _ => false,
        }
    }

    /// Name, element and path within a buffer.
    pub(super) fn buffer_place(
        &mut self,
        global: Handle<GlobalVariable>,
        path: &[Step],
    ) -> Res<(Name, Expr, Vec<Access>)> {
        let buffer = self.im.buffer(global)?;
        if !buffer.by_element {
            return Ok((buffer.name, Expr::u32(0), Place::accesses(path)));
        }
        let path = match path {
            [Step::Member(_), rest @ ..] if buffer.wrapped => rest,
            path => path,
        };
        match path.split_first() {
            Some((Step::Index(index), rest)) => Ok((buffer.name, index.clone(), Place::accesses(rest))),
            _ => self.im.unsupported(
                "an array of run-time length used as a whole",
                self.im.module.global_variables.get_span(global),
            ),
        }
    }

    pub(super) fn load(&mut self, place: &Place) -> Res<Expr> {
        match &place.root {
            Root::Variable(name) if place.path.is_empty() => Ok(Expr::Var(name.clone())),
            Root::Variable(name) => {
                Ok(Expr::Part { value: Box::new(Expr::Var(name.clone())), path: Place::accesses(&place.path) })
            }
            Root::Buffer(global) => {
                self.im.mark_read(*global);
                let (buffer, index, path) = self.buffer_place(*global, &place.path)?;
                Ok(Expr::Load { buffer, index: Box::new(index), path })
            }
        }
    }

    pub(super) fn store(&mut self, place: &Place, value: Expr) -> Res<()> {
        let node = match &place.root {
            Root::Variable(name) => Node::Assign { name: name.clone(), path: Place::accesses(&place.path), value },
            Root::Buffer(global) => {
                let (buffer, index, path) = self.buffer_place(*global, &place.path)?;
                Node::Store { buffer, index, path, value }
            }
        };
        self.out.push(node);
        Ok(())
    }
}

fn zero(ty: DataType) -> Expr {
    match Literal::zero(&ty) {
        Some(literal) => Expr::Literal(literal),
        None => Expr::construct(ty, Vec::new()),
    }
}

fn literal_of(literal: naga::Literal) -> Option<Literal> {
    Some(match literal {
        naga::Literal::F64(value) => Literal::F64(value),
        naga::Literal::F32(value) => Literal::F32(value),
        naga::Literal::F16(value) => Literal::F16(half::f16::from_bits(value.to_bits())),
        naga::Literal::U32(value) => Literal::U32(value),
        naga::Literal::I32(value) => Literal::I32(value),
        naga::Literal::U64(value) => Literal::U64(value),
        naga::Literal::I64(value) => Literal::I64(value),
        naga::Literal::Bool(value) => Literal::Bool(value),
        _ => return None,
    })
}
