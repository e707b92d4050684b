//! Makes values and blocks.

use hashbrown::HashMap;

use super::fold;
use super::{Binary, Block, End, Inst, Op, Scalar, Type, Unary, Value, ValueInfo};
use crate::ir::{Builtin, Literal};

/// Collects steps into nested blocks. Constants, built-ins and lengths are made once, before everything else.
pub(super) struct Builder {
    pub(super) values: Vec<ValueInfo>,
    literals: Vec<Option<Literal>>,
    prelude: Vec<Inst>,
    constants: HashMap<Literal, Value>,
    globals: Vec<(Op, Value)>,
    blocks: Vec<Vec<Inst>>,
    fold: bool,
}

impl Builder {
    pub(super) fn new(fold: bool) -> Builder {
        Builder {
            values: Vec::with_capacity(256),
            literals: Vec::with_capacity(256),
            prelude: Vec::with_capacity(32),
            constants: HashMap::with_capacity(48),
            globals: Vec::new(),
            blocks: vec![Vec::with_capacity(64)],
            fold,
        }
    }

    /// A new value without a definition yet.
    pub(super) fn value(&mut self, ty: impl Into<Type>) -> Value {
        let value = Value(self.values.len() as u32);
        self.values.push(ValueInfo { ty: ty.into(), uniform: false });
        self.literals.push(None);
        value
    }

    pub(super) fn ty(&self, value: Value) -> Type {
        self.values[value.index()].ty
    }

    pub(super) fn scalar(&self, value: Value) -> Scalar {
        self.ty(value).scalar
    }

    /// The value when it is a constant.
    pub(super) fn literal(&self, value: Value) -> Option<Literal> {
        self.literals[value.index()]
    }

    pub(super) fn constant(&mut self, literal: Literal) -> Value {
        if let Some(&value) = self.constants.get(&literal) {
            return value;
        }
        let value = self.value(fold::scalar_of(&literal));
        self.literals[value.index()] = Some(literal);
        self.prelude.push(Inst::Let(value, Op::Const(literal)));
        self.constants.insert(literal, value);
        value
    }

    pub(super) fn u32(&mut self, value: u32) -> Value {
        self.constant(Literal::U32(value))
    }

    pub(super) fn bool(&mut self, value: bool) -> Value {
        self.constant(Literal::Bool(value))
    }

    pub(super) fn zero(&mut self, ty: Scalar) -> Value {
        self.constant(fold::literal(ty, 0))
    }

    /// An integer constant of a type.
    pub(super) fn integer(&mut self, ty: Scalar, value: i128) -> Value {
        self.constant(fold::of_integer(ty, value))
    }

    fn global(&mut self, op: Op, ty: Scalar) -> Value {
        let found =
            self.globals.iter().find(|(known, value)| *known == op && self.values[value.index()].ty.scalar == ty);
        if let Some((_, value)) = found {
            return *value;
        }
        let value = self.value(ty);
        self.prelude.push(Inst::Let(value, op.clone()));
        self.globals.push((op, value));
        value
    }

    pub(super) fn builtin(&mut self, builtin: Builtin) -> Value {
        self.global(Op::Builtin(builtin), Scalar::U32)
    }

    /// Length of a buffer as u32 or u64.
    pub(super) fn length(&mut self, buffer: u32, ty: Scalar) -> Value {
        self.global(Op::Length(buffer), ty)
    }

    /// Defines a value here.
    pub(super) fn emit(&mut self, ty: impl Into<Type>, op: Op) -> Value {
        let value = self.value(ty);
        self.push(Inst::Let(value, op));
        value
    }

    pub(super) fn push(&mut self, inst: Inst) {
        if let Some(block) = self.blocks.last_mut() {
            block.push(inst);
        }
    }

    pub(super) fn unary(&mut self, op: Unary, value: Value) -> Value {
        if self.fold
            && let Some(literal) = self.literal(value).and_then(|v| fold::unary(op, v))
        {
            return self.constant(literal);
        }
        let ty = self.ty(value);
        self.emit(ty, Op::Unary(op, value))
    }

    pub(super) fn binary(&mut self, op: Binary, left: Value, right: Value) -> Value {
        if self.fold
            && let (Some(a), Some(b)) = (self.literal(left), self.literal(right))
            && let Some(literal) = fold::binary(op, a, b)
        {
            return self.constant(literal);
        }
        let ty = if is_comparison(op) { Scalar::Bool } else { self.scalar(left) };
        self.emit(ty, Op::Binary(op, left, right))
    }

    pub(super) fn fma(&mut self, a: Value, b: Value, c: Value) -> Value {
        if self.fold
            && let (Some(x), Some(y), Some(z)) = (self.literal(a), self.literal(b), self.literal(c))
            && let Some(literal) = fold::fma(x, y, z)
        {
            return self.constant(literal);
        }
        let ty = self.ty(a);
        self.emit(ty, Op::Fma(a, b, c))
    }

    pub(super) fn select(&mut self, cond: Value, yes: Value, no: Value) -> Value {
        if self.fold {
            match self.literal(cond) {
                Some(Literal::Bool(true)) => return yes,
                Some(Literal::Bool(false)) => return no,
                _ if yes == no => return yes,
                _ => {}
            }
        }
        let ty = self.ty(yes);
        self.emit(ty, Op::Select(cond, yes, no))
    }

    pub(super) fn cast(&mut self, value: Value, to: Scalar) -> Value {
        if self.scalar(value) == to {
            return value;
        }
        if self.fold
            && let Some(literal) = self.literal(value)
        {
            return self.constant(fold::cast(literal, to));
        }
        self.emit(to, Op::Cast(value))
    }

    pub(super) fn bit_cast(&mut self, value: Value, to: Scalar) -> Value {
        if self.scalar(value) == to {
            return value;
        }
        if self.fold
            && let Some(literal) = self.literal(value)
        {
            return self.constant(fold::literal(to, literal.bits()));
        }
        self.emit(to, Op::BitCast(value))
    }

    pub(super) fn not(&mut self, value: Value) -> Value {
        self.unary(Unary::Not, value)
    }

    /// Starts an inner block.
    pub(super) fn open(&mut self) {
        self.blocks.push(Vec::with_capacity(16));
    }

    /// Ends the innermost block.
    pub(super) fn close(&mut self, end: End) -> Block {
        Block { insts: self.blocks.pop().unwrap_or_default(), end }
    }

    /// The whole body.
    pub(super) fn finish(mut self, end: End) -> (Block, Vec<ValueInfo>) {
        let mut insts = self.prelude;
        insts.append(&mut self.blocks.pop().unwrap_or_default());
        (Block { insts, end }, self.values)
    }
}

/// Gives bool.
pub(super) fn is_comparison(op: Binary) -> bool {
    matches!(op, Binary::Eq | Binary::Ne | Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge)
}
