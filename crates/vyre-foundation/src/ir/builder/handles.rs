//! Handles to what a builder has declared. All are cheap to clone, and those with a value take part in arithmetic.

use std::ops;

use super::super::{Access, BinaryOp, DataType, Expr, Literal, MathOp, Name, TypeId, UnaryOp};

/// A buffer.
#[derive(Clone, Debug)]
pub struct Buffer(pub(super) Name);

impl Buffer {
    /// An element.
    pub fn at(&self, index: impl Into<Expr>) -> Place {
        Place { buffer: self.0.clone(), index: index.into(), path: Vec::new() }
    }

    /// Number of elements.
    pub fn len(&self) -> Expr {
        Expr::Length(self.0.clone())
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> Expr {
        self.len().eq(0u32)
    }
}

/// A place in a buffer. As a value it is what is loaded from there.
#[derive(Clone, Debug)]
pub struct Place {
    pub(super) buffer: Name,
    pub(super) index: Expr,
    pub(super) path: Vec<Access>,
}

impl Place {
    /// A field of the struct there.
    #[must_use]
    pub fn field(mut self, field: Field) -> Place {
        self.path.push(Access::Member(field.0));
        self
    }

    /// An element of the array, or a component of the vector, there.
    #[must_use]
    pub fn index(mut self, index: impl Into<Expr>) -> Place {
        self.path.push(Access::Index(index.into()));
        self
    }
}

/// A variable, or a part of one.
#[derive(Clone, Debug)]
pub struct Var {
    pub(super) name: Name,
    pub(super) path: Vec<Access>,
}

impl Var {
    /// A field of the struct.
    #[must_use]
    pub fn field(&self, field: Field) -> Var {
        let mut part = self.clone();
        part.path.push(Access::Member(field.0));
        part
    }

    /// An element of the array, or a component of the vector.
    #[must_use]
    pub fn index(&self, index: impl Into<Expr>) -> Var {
        let mut part = self.clone();
        part.path.push(Access::Index(index.into()));
        part
    }
}

/// A named value that does not change.
#[derive(Clone, Debug)]
pub struct Value(pub(super) Name);

/// A specialization constant.
#[derive(Clone, Debug)]
pub struct Constant(pub(super) Name);

/// A struct type.
#[derive(Clone, Copy, Debug)]
pub struct Struct(pub(super) TypeId);

impl Struct {
    /// As a type.
    pub fn ty(self) -> DataType {
        DataType::Handle(self.0)
    }

    /// A value of it from the values of all fields.
    pub fn of(self, parts: Vec<Expr>) -> Expr {
        Expr::construct(self.ty(), parts)
    }
}

/// A field of a struct.
#[derive(Clone, Copy, Debug)]
pub struct Field(pub(super) u32);

/// An array type.
#[derive(Clone, Copy, Debug)]
pub struct Array(pub(super) TypeId);

impl Array {
    /// As a type.
    pub fn ty(self) -> DataType {
        DataType::Handle(self.0)
    }
}

/// A function with `N` parameters.
#[derive(Clone, Debug)]
pub struct FunctionHandle<const N: usize>(pub(super) Name);

/// What has a value: comparisons and functions read from left to right, `i.lt(n)`, `x.max(y)`.
pub trait Operand {
    /// The value.
    fn expr(&self) -> Expr;

    /// A built-in function of this value and others.
    fn math<const N: usize>(&self, op: MathOp, others: [Expr; N]) -> Expr {
        Expr::math(op, std::iter::once(self.expr()).chain(others).collect())
    }

    /// `self == other`.
    fn eq(&self, other: impl Into<Expr>) -> Expr {
        Expr::binary(BinaryOp::Eq, self.expr(), other)
    }

    /// `self != other`.
    fn ne(&self, other: impl Into<Expr>) -> Expr {
        Expr::binary(BinaryOp::Ne, self.expr(), other)
    }

    /// `self < other`.
    fn lt(&self, other: impl Into<Expr>) -> Expr {
        Expr::binary(BinaryOp::Lt, self.expr(), other)
    }

    /// `self <= other`.
    fn le(&self, other: impl Into<Expr>) -> Expr {
        Expr::binary(BinaryOp::Le, self.expr(), other)
    }

    /// `self > other`.
    fn gt(&self, other: impl Into<Expr>) -> Expr {
        Expr::binary(BinaryOp::Gt, self.expr(), other)
    }

    /// `self >= other`.
    fn ge(&self, other: impl Into<Expr>) -> Expr {
        Expr::binary(BinaryOp::Ge, self.expr(), other)
    }

    /// The smaller.
    fn min(&self, other: impl Into<Expr>) -> Expr {
        self.math(MathOp::Min, [other.into()])
    }

    /// The larger.
    fn max(&self, other: impl Into<Expr>) -> Expr {
        self.math(MathOp::Max, [other.into()])
    }

    /// Converts to another type.
    fn cast(&self, to: DataType) -> Expr {
        self.expr().cast(to)
    }

    /// One component of a vector.
    fn lane(&self, lane: u8) -> Expr {
        self.expr().lane(lane)
    }
}

impl Operand for Place {
    fn expr(&self) -> Expr {
        Expr::Load { buffer: self.buffer.clone(), index: Box::new(self.index.clone()), path: self.path.clone() }
    }
}

impl Operand for Var {
    fn expr(&self) -> Expr {
        let whole = Expr::Var(self.name.clone());
        if self.path.is_empty() { whole } else { Expr::Part { value: Box::new(whole), path: self.path.clone() } }
    }
}

impl Operand for Value {
    fn expr(&self) -> Expr {
        Expr::Var(self.0.clone())
    }
}

impl Operand for Constant {
    fn expr(&self) -> Expr {
        Expr::Constant(self.0.clone())
    }
}

macro_rules! operand {
    ($($handle:ty),*) => {$(
        impl From<$handle> for Expr {
            fn from(handle: $handle) -> Expr {
                handle.expr()
            }
        }

        impl From<&$handle> for Expr {
            fn from(handle: &$handle) -> Expr {
                handle.expr()
            }
        }

        operators!($handle: Add add Add, Sub sub Sub, Mul mul Mul, Div div Div, Rem rem Rem, BitAnd bitand And,
            BitOr bitor Or, BitXor bitxor Xor, Shl shl Shl, Shr shr Shr);
        unary!($handle);
    )*};
}

macro_rules! operators {
    ($handle:ty: $($trait:ident $method:ident $op:ident),*) => {$(
        impl<T: Into<Expr>> ops::$trait<T> for $handle {
            type Output = Expr;
            fn $method(self, right: T) -> Expr {
                Expr::binary(BinaryOp::$op, self, right)
            }
        }

        impl<T: Into<Expr>> ops::$trait<T> for &$handle {
            type Output = Expr;
            fn $method(self, right: T) -> Expr {
                Expr::binary(BinaryOp::$op, self, right)
            }
        }
    )*};
}

macro_rules! unary {
    ($handle:ty) => {
        impl ops::Neg for &$handle {
            type Output = Expr;
            fn neg(self) -> Expr {
                Expr::unary(UnaryOp::Neg, self)
            }
        }

        impl ops::Not for &$handle {
            type Output = Expr;
            fn not(self) -> Expr {
                Expr::unary(UnaryOp::Not, self)
            }
        }
    };
}

operand!(Place, Var, Value, Constant);

/// Literals stand on the left too: `2.0 * &x`.
macro_rules! literals {
    ($($literal:ty)*; $($handle:ty),*) => {
        literals!(@each [$($literal)*] [$($handle)*]);
    };
    (@each [$($literal:ty)*] $handles:tt) => {$(
        literals!(@one $literal, $handles);
    )*};
    (@one $literal:ty, [$($handle:ty)*]) => {$(
        impl ops::Add<&$handle> for $literal {
            type Output = Expr;
            fn add(self, right: &$handle) -> Expr {
                Expr::binary(BinaryOp::Add, Literal::from(self), right)
            }
        }

        impl ops::Sub<&$handle> for $literal {
            type Output = Expr;
            fn sub(self, right: &$handle) -> Expr {
                Expr::binary(BinaryOp::Sub, Literal::from(self), right)
            }
        }

        impl ops::Mul<&$handle> for $literal {
            type Output = Expr;
            fn mul(self, right: &$handle) -> Expr {
                Expr::binary(BinaryOp::Mul, Literal::from(self), right)
            }
        }
    )*};
}
literals!(u32 i32 f32; Expr, Place, Var, Value, Constant);
