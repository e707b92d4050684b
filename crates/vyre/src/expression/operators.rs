//! Operators on arrays and expressions, and what counts as an expression.

use std::ops;

use vyre_foundation::ir::{BinaryOp, DataType, UnaryOp};

use super::{Expression, Number, Term};
use crate::array::{Array, Element, Shape};

impl<T: Element> From<&Array<T>> for Expression<T> {
    fn from(array: &Array<T>) -> Self {
        let ty = T::data_type().unwrap_or(DataType::Bytes);
        Expression::of(Term::array(array.clone().into_buffer(), ty, Shape::from(array.shape())))
    }
}

impl<T> From<&Expression<T>> for Expression<T> {
    fn from(expression: &Expression<T>) -> Self {
        expression.clone()
    }
}

macro_rules! scalars {
    ($($number:ty),*) => {
        $(impl From<$number> for Expression<$number> {
            fn from(value: $number) -> Self {
                Expression::of(Term::scalar(value.literal()))
            }
        })*
    };
}

scalars!(f32, f64, half::f16, i32, u32, i64, u64);

macro_rules! binary {
    ($($trait:ident $method:ident $op:ident;)*) => {
        $(binary! { @of $trait $method $op; &Array<T>; Expression<T>; &Expression<T> }
        binary! { @numbers $trait $method $op; f32 f64 i32 u32 i64 u64 })*
    };
    (@of $trait:ident $method:ident $op:ident; $($left:ty);*) => {
        $(impl<T: Number, R: Into<Expression<T>>> ops::$trait<R> for $left {
            type Output = Expression<T>;
            fn $method(self, right: R) -> Expression<T> {
                let left: Expression<T> = self.into();
                Expression::of(left.term.binary(BinaryOp::$op, &right.into().term))
            }
        })*
    };
    (@numbers $trait:ident $method:ident $op:ident; $($number:ty)*) => {
        $(binary! { @number $trait $method $op $number; &Array<$number>; Expression<$number>; &Expression<$number> })*
    };
    (@number $trait:ident $method:ident $op:ident $number:ty; $($right:ty);*) => {
        $(impl ops::$trait<$right> for $number {
            type Output = Expression<$number>;
            fn $method(self, right: $right) -> Expression<$number> {
                let right: Expression<$number> = right.into();
                Expression::of(Term::scalar(self.literal()).binary(BinaryOp::$op, &right.term))
            }
        })*
    };
}

binary! {
    Add add Add;
    Sub sub Sub;
    Mul mul Mul;
    Div div Div;
    Rem rem Rem;
}

/// Operators on the bits of integers; a shift takes its count as u32.
macro_rules! bits {
    ($($trait:ident $method:ident $op:ident $count:ty;)*) => {
        $(bits! { @of $trait $method $op $count; &Array<T>; Expression<T>; &Expression<T> })*
    };
    (@of $trait:ident $method:ident $op:ident $count:ty; $($left:ty);*) => {
        $(impl<T: Number, R: Into<Expression<$count>>> ops::$trait<R> for $left {
            type Output = Expression<T>;
            fn $method(self, right: R) -> Expression<T> {
                let left: Expression<T> = self.into();
                Expression::of(left.term.binary(BinaryOp::$op, &right.into().term))
            }
        })*
    };
}

bits! {
    BitXor bitxor Xor T;
    Shl shl Shl u32;
    Shr shr Shr u32;
}

macro_rules! logic {
    ($($trait:ident $method:ident $op:ident;)*) => {
        $(logic! { @of $trait $method $op; Expression<T>; &Expression<T> })*
    };
    (@of $trait:ident $method:ident $op:ident; $($left:ty);*) => {
        $(impl<T> ops::$trait<$left> for $left {
            type Output = Expression<T>;
            fn $method(self, right: $left) -> Expression<T> {
                Expression::of(self.term.binary(BinaryOp::$op, &right.term))
            }
        })*
    };
}

// On truth values as well as on integers.
logic! {
    BitAnd bitand And;
    BitOr bitor Or;
}

macro_rules! unary {
    ($($trait:ident $method:ident $op:ident;)*) => {
        $(unary! { @of $trait $method $op; Expression<T>; &Expression<T> })*
    };
    (@of $trait:ident $method:ident $op:ident; $($left:ty);*) => {
        $(impl<T> ops::$trait for $left {
            type Output = Expression<T>;
            fn $method(self) -> Expression<T> {
                Expression::of(self.term.unary(UnaryOp::$op))
            }
        })*
    };
}

unary! {
    Neg neg Neg;
    Not not Not;
}

impl<T: Number> ops::Neg for &Array<T> {
    type Output = Expression<T>;
    fn neg(self) -> Expression<T> {
        -self.lazy()
    }
}
