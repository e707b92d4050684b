//! Expressions.

use smallvec::SmallVec;

use super::memory::Index;
use super::{Aggregate, BufferPlace, Leaves, Lower, Result, Storage, binary_op, fold};
use crate::ir::{Access, BinaryOp, DataType, Expr, Literal, MathOp, MatrixKind, SubgroupOp, UnaryOp};
use crate::kernel::shape::{Shape, ShapeId};
use crate::kernel::{Binary, MatrixMultiplyAdd, Op, Scalar, Type, Unary, Value};
use crate::launch::check_matrix_workgroup;

/// Up to so many scalars an array value is indexed by selection; larger ones go to memory.
const SELECT_LEAVES: u32 = 16;

/// Where a path leads inside a value, as far as it is constant.
struct Narrowed<'a> {
    first: u32,
    shape: ShapeId,
    rest: &'a [Access],
    outside: bool,
}

impl<'a> Lower<'a> {
    pub(super) fn scalar_expr(&mut self, expr: &'a Expr) -> Result<Value> {
        let value = self.expr(expr)?;
        match value.leaves.first() {
            Some(leaf) => Ok(*leaf),
            None => Ok(self.builder.u32(0)),
        }
    }

    pub(super) fn expr(&mut self, expr: &'a Expr) -> Result<Aggregate> {
        match expr {
            Expr::Literal(literal) => Ok(self.one(*literal)),
            Expr::Constant(name) => {
                let literal = self.constants.get(name.as_str()).unwrap_or(Literal::U32(0));
                Ok(self.one(literal))
            }
            Expr::Var(name) => self.variable(name.as_str(), &[]),
            Expr::Load { buffer, index, path } => {
                let mut place = self.buffer_place(buffer.as_str(), index)?;
                self.follow(&mut place, path)?;
                self.read(&place)
            }
            Expr::Length(name) => {
                let value = match self.buffer_of[name.as_str()] {
                    BufferPlace::Shared(_, count) => self.builder.u32(count),
                    BufferPlace::Bound(id) => match self.buffers[id as usize].count {
                        Some(count) => self.builder.u32(count),
                        None => self.builder.length(id, Scalar::U32),
                    },
                };
                Ok(self.scalar_value(value))
            }
            Expr::Builtin(builtin) => {
                let value = self.builtin(*builtin);
                Ok(self.scalar_value(value))
            }
            Expr::Unary { op, value } => {
                let op = match op {
                    UnaryOp::Neg => Unary::Neg,
                    UnaryOp::Not => Unary::Not,
                };
                let value = self.expr(value)?;
                Ok(self.map(value, |lower, leaf| lower.builder.unary(op, leaf)))
            }
            Expr::Binary { op, left, right } => {
                let left = self.expr(left)?;
                let right = self.expr(right)?;
                Ok(self.zip(left, right, |lower, a, b| lower.binary(*op, a, b)))
            }
            Expr::Math { op, args } => self.math(*op, args),
            Expr::Select { cond, yes, no } => {
                let cond = self.expr(cond)?;
                let yes = self.expr(yes)?;
                let no = self.expr(no)?;
                let leaves = (0..yes.leaves.len())
                    .map(|i| {
                        let cond = if cond.leaves.len() == 1 { cond.leaves[0] } else { cond.leaves[i] };
                        self.builder.select(cond, yes.leaves[i], no.leaves[i])
                    })
                    .collect();
                Ok(Aggregate { shape: yes.shape, leaves })
            }
            Expr::Cast { to, value } => {
                let shape = self.shapes.of(to)?;
                let scalar = self.scalar_of(shape);
                let value = self.expr(value)?;
                let leaves = value.leaves.iter().map(|&leaf| self.builder.cast(leaf, scalar)).collect();
                Ok(Aggregate { shape, leaves })
            }
            Expr::BitCast { to, value } => {
                let value = self.expr(value)?;
                self.bit_cast(to, value)
            }
            Expr::Construct { ty, parts } => self.construct(ty, parts),
            Expr::Swizzle { value, lanes } => {
                let value = self.expr(value)?;
                let scalar = self.scalar_of(value.shape);
                let leaves: Leaves =
                    lanes.iter().filter_map(|&lane| value.leaves.get(usize::from(lane)).copied()).collect();
                Ok(Aggregate { shape: ShapeId::of(scalar, lanes.len() as u8), leaves })
            }
            Expr::Part { value, path } => match &**value {
                Expr::Var(name) => self.variable(name.as_str(), path),
                other => {
                    let value = self.expr(other)?;
                    self.part(value, path)
                }
            },
            Expr::Subgroup { op, value, argument } => self.subgroup(*op, value, argument.as_deref()),
            Expr::MatrixMultiplyAdd { kind, a, b, c } => self.matrix(*kind, a, b, c),
        }
    }

    fn one(&mut self, literal: Literal) -> Aggregate {
        let value = self.builder.constant(literal);
        self.scalar_value(value)
    }

    fn scalar_value(&self, value: Value) -> Aggregate {
        Aggregate { shape: ShapeId::of(self.builder.scalar(value), 1), leaves: Leaves::from_slice(&[value]) }
    }

    fn scalar_of(&self, shape: ShapeId) -> Scalar {
        match self.shapes.get(shape) {
            Shape::Vector(element, _) => element.scalar(),
            _ => Scalar::U32,
        }
    }

    /// A scalar or vector of these components.
    fn components(&self, leaves: Leaves) -> Aggregate {
        let scalar = leaves.first().map_or(Scalar::U32, |leaf| self.builder.scalar(*leaf));
        Aggregate { shape: ShapeId::of(scalar, leaves.len().clamp(1, 4) as u8), leaves }
    }

    fn map(&mut self, value: Aggregate, mut op: impl FnMut(&mut Self, Value) -> Value) -> Aggregate {
        let leaves = value.leaves.iter().map(|&leaf| op(self, leaf)).collect();
        self.components(leaves)
    }

    fn zip(&mut self, a: Aggregate, b: Aggregate, mut op: impl FnMut(&mut Self, Value, Value) -> Value) -> Aggregate {
        let count = a.leaves.len().max(b.leaves.len());
        let at = |leaves: &Leaves, i: usize| if leaves.len() == 1 { leaves[0] } else { leaves[i] };
        let leaves = (0..count).map(|i| op(self, at(&a.leaves, i), at(&b.leaves, i))).collect();
        self.components(leaves)
    }

    fn binary(&mut self, op: BinaryOp, a: Value, b: Value) -> Value {
        if op == BinaryOp::Rem && self.builder.scalar(a).is_float() {
            let quotient = self.builder.binary(Binary::Div, a, b);
            let whole = self.builder.unary(Unary::Trunc, quotient);
            let product = self.builder.binary(Binary::Mul, b, whole);
            return self.builder.binary(Binary::Sub, a, product);
        }
        self.builder.binary(binary_op(op), a, b)
    }

    fn construct(&mut self, ty: &DataType, parts: &'a [Expr]) -> Result<Aggregate> {
        let shape = self.shapes.of(ty)?;
        if parts.is_empty() {
            return self.zeros(shape);
        }
        let mut leaves = Leaves::new();
        for part in parts {
            leaves.extend(self.expr(part)?.leaves);
        }
        if let Shape::Vector(_, width) = self.shapes.get(shape)
            && leaves.len() == 1
        {
            leaves.resize(usize::from(*width), leaves[0]);
        }
        Ok(Aggregate { shape: self.shapes.computed(shape), leaves })
    }

    fn math(&mut self, op: MathOp, args: &'a [Expr]) -> Result<Aggregate> {
        let mut values: SmallVec<[Aggregate; 4]> = SmallVec::new();
        for arg in args {
            values.push(self.expr(arg)?);
        }
        if op == MathOp::Dot {
            let (a, b) = (&values[0], &values[1]);
            let mut sum = None;
            for (&x, &y) in a.leaves.iter().zip(&b.leaves) {
                let product = self.builder.binary(Binary::Mul, x, y);
                sum = Some(match sum {
                    Some(sum) => self.builder.binary(Binary::Add, sum, product),
                    None => product,
                });
            }
            let sum = sum.unwrap_or_else(|| self.builder.u32(0));
            return Ok(self.scalar_value(sum));
        }
        if let MathOp::All | MathOp::Any = op {
            let join = if op == MathOp::All { Binary::And } else { Binary::Or };
            let mut leaves = values[0].leaves.iter().copied();
            let mut result = leaves.next().unwrap_or_else(|| self.builder.bool(op == MathOp::All));
            for leaf in leaves {
                result = self.builder.binary(join, result, leaf);
            }
            return Ok(self.scalar_value(result));
        }
        let count = values.iter().map(|value| value.leaves.len()).max().unwrap_or(0);
        let mut leaves = Leaves::new();
        for i in 0..count {
            let args: SmallVec<[Value; 4]> = values
                .iter()
                .map(|value| if value.leaves.len() == 1 { value.leaves[0] } else { value.leaves[i] })
                .collect();
            leaves.push(self.scalar_math(op, &args));
        }
        Ok(self.components(leaves))
    }

    fn scalar_math(&mut self, op: MathOp, args: &[Value]) -> Value {
        let a = args[0];
        let unsigned = matches!(self.builder.scalar(a), Scalar::U32 | Scalar::U64);
        let unary = match op {
            MathOp::Abs if unsigned => return a,
            MathOp::Abs => Unary::Abs,
            MathOp::Sign => Unary::Sign,
            MathOp::Floor => Unary::Floor,
            MathOp::Ceil => Unary::Ceil,
            MathOp::Round => Unary::Round,
            MathOp::Trunc => Unary::Trunc,
            MathOp::Sqrt => Unary::Sqrt,
            MathOp::InverseSqrt => Unary::InverseSqrt,
            MathOp::Exp => Unary::Exp,
            MathOp::Exp2 => Unary::Exp2,
            MathOp::Log => Unary::Log,
            MathOp::Log2 => Unary::Log2,
            MathOp::Sin => Unary::Sin,
            MathOp::Cos => Unary::Cos,
            MathOp::Tan => Unary::Tan,
            MathOp::Asin => Unary::Asin,
            MathOp::Acos => Unary::Acos,
            MathOp::Atan => Unary::Atan,
            MathOp::Sinh => Unary::Sinh,
            MathOp::Cosh => Unary::Cosh,
            MathOp::Tanh => Unary::Tanh,
            MathOp::Asinh => Unary::Asinh,
            MathOp::Acosh => Unary::Acosh,
            MathOp::Atanh => Unary::Atanh,
            MathOp::CountOneBits => Unary::CountOneBits,
            MathOp::CountLeadingZeros => Unary::CountLeadingZeros,
            MathOp::CountTrailingZeros => Unary::CountTrailingZeros,
            MathOp::ReverseBits => Unary::ReverseBits,
            MathOp::FirstLeadingBit => Unary::FirstLeadingBit,
            MathOp::FirstTrailingBit => Unary::FirstTrailingBit,
            MathOp::Min => return self.builder.binary(Binary::Min, a, args[1]),
            MathOp::Max => return self.builder.binary(Binary::Max, a, args[1]),
            MathOp::Pow => return self.builder.binary(Binary::Pow, a, args[1]),
            MathOp::Atan2 => return self.builder.binary(Binary::Atan2, a, args[1]),
            MathOp::MulHigh => return self.builder.binary(Binary::MulHigh, a, args[1]),
            MathOp::Fma => return self.builder.fma(a, args[1], args[2]),
            MathOp::Clamp => {
                let low = self.builder.binary(Binary::Max, a, args[1]);
                return self.builder.binary(Binary::Min, low, args[2]);
            }
            MathOp::Fract => {
                let floor = self.builder.unary(Unary::Floor, a);
                return self.builder.binary(Binary::Sub, a, floor);
            }
            MathOp::ExtractBits => return self.extract_bits(a, args[1], args[2]),
            MathOp::InsertBits => return self.insert_bits(a, args[1], args[2], args[3]),
            // Handled for whole vectors.
            MathOp::Dot | MathOp::All | MathOp::Any => return a,
        };
        self.builder.unary(unary, a)
    }

    /// The offset up to 32, the count up to what is left, and `32 - count`.
    fn field(&mut self, offset: Value, count: Value) -> (Value, Value, Value) {
        let width = self.builder.u32(32);
        let offset = self.builder.binary(Binary::Min, offset, width);
        let left = self.builder.binary(Binary::Sub, width, offset);
        let count = self.builder.binary(Binary::Min, count, left);
        let unused = self.builder.binary(Binary::Sub, width, count);
        (offset, count, unused)
    }

    fn extract_bits(&mut self, value: Value, offset: Value, count: Value) -> Value {
        let (offset, count, unused) = self.field(offset, count);
        // Up to the top, then down: the second shift extends the sign of an i32.
        let up = self.builder.binary(Binary::Sub, unused, offset);
        let raised = self.builder.binary(Binary::Shl, value, up);
        let field = self.builder.binary(Binary::Shr, raised, unused);
        let zero = self.builder.u32(0);
        let none = self.builder.binary(Binary::Eq, count, zero);
        let zero = self.builder.zero(self.builder.scalar(value));
        self.builder.select(none, zero, field)
    }

    fn insert_bits(&mut self, value: Value, new: Value, offset: Value, count: Value) -> Value {
        let ty = self.builder.scalar(value);
        let (offset, count, unused) = self.field(offset, count);
        let ones = self.builder.u32(u32::MAX);
        let low = self.builder.binary(Binary::Shr, ones, unused);
        let mask = self.builder.binary(Binary::Shl, low, offset);
        let mask = self.builder.bit_cast(mask, ty);
        let outside = self.builder.not(mask);
        let kept = self.builder.binary(Binary::And, value, outside);
        let raised = self.builder.binary(Binary::Shl, new, offset);
        let put = self.builder.binary(Binary::And, raised, mask);
        let both = self.builder.binary(Binary::Or, kept, put);
        let zero = self.builder.u32(0);
        let none = self.builder.binary(Binary::Eq, count, zero);
        self.builder.select(none, value, both)
    }

    fn bit_cast(&mut self, to: &DataType, value: Aggregate) -> Result<Aggregate> {
        let shape = self.shapes.of(to)?;
        let scalar = self.scalar_of(shape);
        let from = self.scalar_of(value.shape);
        if from.bits() == scalar.bits() {
            let leaves = value.leaves.iter().map(|&leaf| self.builder.bit_cast(leaf, scalar)).collect();
            return Ok(Aggregate { shape, leaves });
        }
        // Through words of 32 bits, low ones first.
        let mut words: SmallVec<[Value; 8]> = SmallVec::new();
        let half = self.builder.u32(16);
        let word = self.builder.u32(32);
        match from.bits() {
            16 => {
                for pair in value.leaves.chunks(2) {
                    let mut bits = self.builder.bit_cast(pair[0], Scalar::U32);
                    if let Some(&high) = pair.get(1) {
                        let high = self.builder.bit_cast(high, Scalar::U32);
                        let high = self.builder.binary(Binary::Shl, high, half);
                        bits = self.builder.binary(Binary::Or, bits, high);
                    }
                    words.push(bits);
                }
            }
            64 => {
                for &leaf in &value.leaves {
                    let bits = self.builder.bit_cast(leaf, Scalar::U64);
                    words.push(self.builder.cast(bits, Scalar::U32));
                    let high = self.builder.binary(Binary::Shr, bits, word);
                    words.push(self.builder.cast(high, Scalar::U32));
                }
            }
            _ => {
                for &leaf in &value.leaves {
                    words.push(self.builder.bit_cast(leaf, Scalar::U32));
                }
            }
        }
        let mut leaves = Leaves::new();
        match scalar.bits() {
            16 => {
                for &bits in &words {
                    let mask = self.builder.u32(0xffff);
                    let low = self.builder.binary(Binary::And, bits, mask);
                    leaves.push(self.builder.bit_cast(low, scalar));
                    let high = self.builder.binary(Binary::Shr, bits, half);
                    leaves.push(self.builder.bit_cast(high, scalar));
                }
            }
            64 => {
                for pair in words.chunks(2) {
                    let mut bits = self.builder.cast(pair[0], Scalar::U64);
                    if let Some(&high) = pair.get(1) {
                        let high = self.builder.cast(high, Scalar::U64);
                        let high = self.builder.binary(Binary::Shl, high, word);
                        bits = self.builder.binary(Binary::Or, bits, high);
                    }
                    leaves.push(self.builder.bit_cast(bits, scalar));
                }
            }
            _ => {
                for &bits in &words {
                    leaves.push(self.builder.bit_cast(bits, scalar));
                }
            }
        }
        leaves.truncate(self.shapes.leaves(shape) as usize);
        Ok(Aggregate { shape, leaves })
    }

    fn subgroup(&mut self, op: SubgroupOp, value: &'a Expr, argument: Option<&'a Expr>) -> Result<Aggregate> {
        let value = self.expr(value)?;
        let argument = argument.map(|argument| self.scalar_expr(argument)).transpose()?;
        if op == SubgroupOp::Ballot {
            let ty = Type { scalar: Scalar::U32, width: 4 };
            let ballot = self.builder.emit(ty, Op::Subgroup(op, value.leaves[0], None));
            let leaves = (0..4).map(|lane| self.builder.emit(Scalar::U32, Op::Extract(ballot, lane))).collect();
            return Ok(Aggregate { shape: ShapeId::of(Scalar::U32, 4), leaves });
        }
        Ok(self.map(value, |lower, leaf| {
            let ty = lower.builder.scalar(leaf);
            lower.builder.emit(ty, Op::Subgroup(op, leaf, argument))
        }))
    }

    fn matrix(&mut self, kind: MatrixKind, a: &'a Expr, b: &'a Expr, c: &'a Expr) -> Result<Aggregate> {
        check_matrix_workgroup(self.workgroup_size)?;
        let (a, b, c) = (self.expr(a)?, self.expr(b)?, self.expr(c)?);
        let matrix = MatrixMultiplyAdd {
            kind,
            a: std::array::from_fn(|i| a.leaves[i]),
            b: std::array::from_fn(|i| b.leaves[i]),
            c: std::array::from_fn(|i| c.leaves[i]),
        };
        let ty = Type { scalar: Scalar::F32, width: 4 };
        let sums = self.builder.emit(ty, Op::Matrix(Box::new(matrix)));
        let leaves = (0..4).map(|lane| self.builder.emit(Scalar::F32, Op::Extract(sums, lane))).collect();
        Ok(Aggregate { shape: ShapeId::of(Scalar::F32, 4), leaves })
    }

    // Variables and parts.

    fn variable(&mut self, name: &str, path: &'a [Access]) -> Result<Aggregate> {
        let Some(&binding) = self.names.get(name) else { return Ok(self.one(Literal::U32(0))) };
        let binding = self.bindings[binding as usize].clone();
        let (mut shape, mut storage, mut path) = (binding.shape, &binding.storage, path);
        while let (Storage::Struct(parts), [Access::Member(member), rest @ ..]) = (storage, path) {
            let Shape::Struct(members) = self.shapes.get(shape) else { break };
            shape = members[*member as usize].0;
            storage = &parts[*member as usize];
            path = rest;
        }
        match storage {
            _ if path.is_empty() => self.read_storage(shape, storage),
            Storage::Memory(first) => {
                let mut place = self.local_place(shape, *first);
                self.follow(&mut place, path)?;
                self.read(&place)
            }
            Storage::Slots(first) => {
                let narrowed = self.narrow(shape, path);
                if narrowed.outside {
                    return self.outside(&narrowed);
                }
                let slots = Storage::Slots(first + narrowed.first);
                let value = self.read_storage(narrowed.shape, &slots)?;
                self.part(value, narrowed.rest)
            }
            Storage::Struct(_) => {
                let value = self.read_storage(shape, storage)?;
                self.part(value, path)
            }
        }
    }

    /// Follows a path as long as it is constant.
    fn narrow(&self, shape: ShapeId, path: &'a [Access]) -> Narrowed<'a> {
        let mut at = Narrowed { first: 0, shape, rest: path, outside: false };
        while let [access, rest @ ..] = at.rest {
            match (access, self.shapes.get(at.shape)) {
                (Access::Member(member), Shape::Struct(members)) => {
                    let before: u32 = members[..*member as usize].iter().map(|(m, _)| self.shapes.leaves(*m)).sum();
                    at.first += before;
                    at.shape = members[*member as usize].0;
                }
                (Access::Index(index), shape) => {
                    let Some(index) = self.literal(index).as_ref().and_then(fold::integer) else { return at };
                    let (element, count) = match shape {
                        Shape::Vector(element, width) => (ShapeId::vector(*element, 1), u32::from(*width)),
                        Shape::Array { element, count, .. } => (*element, count.unwrap_or(0)),
                        Shape::Struct(_) => return at,
                    };
                    at.shape = element;
                    match u32::try_from(index) {
                        Ok(index) if index < count => at.first += index * self.shapes.leaves(element),
                        _ => at.outside = true,
                    }
                }
                (Access::Member(_), _) => return at,
            }
            at.rest = rest;
        }
        at
    }

    /// What follows an index that is outside leads to zeros too, whatever it is.
    fn outside(&mut self, narrowed: &Narrowed<'a>) -> Result<Aggregate> {
        let mut shape = narrowed.shape;
        for access in narrowed.rest {
            shape = match (self.shapes.get(shape), access) {
                (Shape::Vector(element, _), _) => ShapeId::vector(*element, 1),
                (Shape::Array { element, .. }, _) => *element,
                (Shape::Struct(members), Access::Member(member)) => members[*member as usize].0,
                (Shape::Struct(_), Access::Index(_)) => shape,
            };
        }
        self.zeros(self.shapes.computed(shape))
    }

    /// Part of a value.
    fn part(&mut self, value: Aggregate, path: &'a [Access]) -> Result<Aggregate> {
        let narrowed = self.narrow(value.shape, path);
        if narrowed.outside {
            return self.outside(&narrowed);
        }
        let first = narrowed.first as usize;
        let count = self.shapes.leaves(narrowed.shape) as usize;
        let shape = self.shapes.computed(narrowed.shape);
        let leaves = Leaves::from_slice(&value.leaves[first..first + count]);
        let value = Aggregate { shape, leaves };
        let [Access::Index(index), rest @ ..] = narrowed.rest else { return Ok(value) };
        let (element, count) = match *self.shapes.get(narrowed.shape) {
            Shape::Vector(element, width) => (ShapeId::of(element.scalar(), 1), u32::from(width)),
            Shape::Array { element, count, .. } => (element, count.unwrap_or(0)),
            Shape::Struct(_) => return Ok(value),
        };
        if self.shapes.leaves(narrowed.shape) > SELECT_LEAVES {
            let mut place = self.spill(&value)?;
            self.follow(&mut place, narrowed.rest)?;
            return self.read(&place);
        }
        let mut result = self.zeros(self.shapes.computed(element))?;
        match self.index(index)? {
            Index::Known(known) => {
                if let Ok(known) = usize::try_from(known)
                    && known < count as usize
                {
                    let size = result.leaves.len();
                    result.leaves = Leaves::from_slice(&value.leaves[known * size..(known + 1) * size]);
                }
            }
            Index::Value(index) => {
                let ty = self.builder.scalar(index);
                let size = result.leaves.len();
                for position in 0..count as usize {
                    let at = self.builder.integer(ty, position as i128);
                    let here = self.builder.binary(Binary::Eq, index, at);
                    for leaf in 0..size {
                        let yes = value.leaves[position * size + leaf];
                        result.leaves[leaf] = self.builder.select(here, yes, result.leaves[leaf]);
                    }
                }
            }
        }
        self.part(result, rest)
    }

    pub(super) fn assign(&mut self, name: &str, path: &'a [Access], value: &'a Expr) -> Result<()> {
        if self.in_place && self.is_there(name, path, value) {
            return Ok(());
        }
        let value = self.expr(value)?;
        let Some(&binding) = self.names.get(name) else { return Ok(()) };
        let binding = self.bindings[binding as usize].clone();
        let (mut shape, mut storage, mut path) = (binding.shape, &binding.storage, path);
        while let (Storage::Struct(parts), [Access::Member(member), rest @ ..]) = (storage, path) {
            let Shape::Struct(members) = self.shapes.get(shape) else { break };
            shape = members[*member as usize].0;
            storage = &parts[*member as usize];
            path = rest;
        }
        match storage {
            _ if path.is_empty() => self.store_all(shape, storage, &value.leaves),
            Storage::Memory(first) => {
                let mut place = self.local_place(shape, *first);
                self.follow(&mut place, path)?;
                self.write(&place, &value.leaves)
            }
            Storage::Slots(first) => {
                let narrowed = self.narrow(shape, path);
                if narrowed.outside {
                    return Ok(());
                }
                let first = first + narrowed.first;
                let Some(Access::Index(index)) = narrowed.rest.first() else {
                    return self.store_all(narrowed.shape, &Storage::Slots(first), &value.leaves);
                };
                // Only vectors are indexed dynamically here; such arrays are in memory.
                let index = match self.index(index)? {
                    Index::Value(index) => index,
                    Index::Known(known) => {
                        if (0..i128::from(self.shapes.leaves(narrowed.shape))).contains(&known) {
                            self.set(first + known as u32, value.leaves[0]);
                        }
                        return Ok(());
                    }
                };
                let ty = self.builder.scalar(index);
                for position in 0..self.shapes.leaves(narrowed.shape) {
                    let at = self.builder.integer(ty, position.into());
                    let here = self.builder.binary(Binary::Eq, index, at);
                    let old = self.slot(first + position);
                    let new = self.builder.select(here, value.leaves[0], old);
                    self.set(first + position, new);
                }
                Ok(())
            }
            Storage::Struct(_) => Ok(()),
        }
    }
}
