//! Matrices are arrays of their columns.

use naga::{BinaryOperator, Expression, Handle, TypeInner};
use vyre_foundation::ir::{BinaryOp, DataType, Expr, MathOp};

use super::expr::{element, lane, splat};
use super::function::FunctionCx;
use super::module::Res;

/// Columns and rows.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) columns: u32,
    pub(super) rows: u32,
}

pub(super) fn size_of(inner: &TypeInner) -> Option<Size> {
    match *inner {
        TypeInner::Matrix { columns, rows, .. } => Some(Size { columns: columns.into(), rows: rows.into() }),
        _ => None,
    }
}

impl FunctionCx<'_, '_> {
    /// `+`, `-` and `*` where a side is a matrix.
    pub(super) fn matrix_binary(
        &mut self,
        op: BinaryOperator,
        (a, left): (Expr, &TypeInner),
        (b, right): (Expr, &TypeInner),
        handle: Handle<Expression>,
    ) -> Res<Expr> {
        let span = self.span(handle);
        let result_type = self.inner(handle);
        let ty = self.im.inner_type(result_type, span)?;
        let (a, b) = (self.bind(a), self.bind(b));
        let scalar = match left {
            TypeInner::Matrix { scalar, .. } | TypeInner::Vector { scalar, .. } | TypeInner::Scalar(scalar) => *scalar,
            _ => return self.im.unsupported("an operation on this type", span),
        };
        let scalar = self.im.scalar(scalar, span)?;
        let columns =
            |size: Size, each: &dyn Fn(u32) -> Expr| Expr::construct(ty.clone(), (0..size.columns).map(each).collect());
        Ok(match (op, size_of(left), size_of(right)) {
            (BinaryOperator::Add | BinaryOperator::Subtract, Some(size), Some(_)) => {
                let op = if op == BinaryOperator::Add { BinaryOp::Add } else { BinaryOp::Sub };
                columns(size, &|i| Expr::binary(op, element(a.clone(), i), element(b.clone(), i)))
            }
            (BinaryOperator::Multiply, Some(left), Some(right)) => {
                columns(right, &|i| times_vector(&a, left, &element(b.clone(), i), &scalar))
            }
            (BinaryOperator::Multiply, Some(size), None) if matches!(right, TypeInner::Vector { .. }) => {
                times_vector(&a, size, &b, &scalar)
            }
            (BinaryOperator::Multiply, None, Some(size)) if matches!(left, TypeInner::Vector { .. }) => {
                columns(size, &|i| Expr::math(MathOp::Dot, vec![a.clone(), element(b.clone(), i)]))
            }
            (BinaryOperator::Multiply | BinaryOperator::Divide, Some(size), None) => {
                let op = if op == BinaryOperator::Multiply { BinaryOp::Mul } else { BinaryOp::Div };
                let factor = splat(b, scalar, size.rows);
                columns(size, &|i| Expr::binary(op, element(a.clone(), i), factor.clone()))
            }
            (BinaryOperator::Multiply, None, Some(size)) => {
                let factor = splat(a, scalar, size.rows);
                columns(size, &|i| Expr::binary(BinaryOp::Mul, factor.clone(), element(b.clone(), i)))
            }
            (BinaryOperator::Equal | BinaryOperator::NotEqual, Some(size), Some(_)) => {
                let equal = (0..size.columns)
                    .map(|i| Expr::math(MathOp::All, vec![element(a.clone(), i).eq(element(b.clone(), i))]))
                    .reduce(|all, column| all & column)
                    .unwrap_or(Expr::bool(true));
                if op == BinaryOperator::Equal { equal } else { !equal }
            }
            _ => return self.im.unsupported("this matrix operation", span),
        })
    }

    pub(super) fn transpose(&mut self, value: Expr, size: Size, scalar: DataType, ty: DataType) -> Expr {
        let value = self.bind(value);
        let column = |row: u32| {
            let parts = (0..size.columns).map(|i| lane(element(value.clone(), i), row as u8)).collect();
            Expr::construct(DataType::vector(scalar.clone(), size.columns), parts)
        };
        Expr::construct(ty, (0..size.rows).map(column).collect())
    }

    /// The determinant of a square matrix, by its first column.
    pub(super) fn determinant(&mut self, value: Expr, size: Size) -> Expr {
        let value = self.bind(value);
        let all: Vec<u32> = (0..size.columns).collect();
        minor(&value, &all, &all)
    }

    /// The inverse of a square matrix: the adjugate over the determinant.
    pub(super) fn inverse(&mut self, value: Expr, size: Size, scalar: DataType, ty: DataType) -> Expr {
        let value = self.bind(value);
        let all: Vec<u32> = (0..size.columns).collect();
        let determinant = minor(&value, &all, &all);
        let determinant = self.bind(determinant);
        let without = |skip: u32| all.iter().copied().filter(|&i| i != skip).collect::<Vec<_>>();
        let cofactor = |column: u32, row: u32| {
            // Entry (column, row) of the inverse is the cofactor of entry (row, column).
            let value = minor(&value, &without(row), &without(column));
            if (column + row).is_multiple_of(2) { value } else { -value }
        };
        let columns = all
            .iter()
            .map(|&column| {
                let rows = all.iter().map(|&row| cofactor(column, row) / determinant.clone()).collect();
                Expr::construct(DataType::vector(scalar.clone(), size.rows), rows)
            })
            .collect();
        Expr::construct(ty, columns)
    }
}

/// Sum of the columns times the components, added in order.
fn times_vector(matrix: &Expr, size: Size, vector: &Expr, scalar: &DataType) -> Expr {
    (0..size.columns)
        .map(|i| element(matrix.clone(), i) * splat(lane(vector.clone(), i as u8), scalar.clone(), size.rows))
        .reduce(|sum, column| sum + column)
        .unwrap_or_else(|| vector.clone())
}

fn minor(matrix: &Expr, columns: &[u32], rows: &[u32]) -> Expr {
    let entry = |column: u32, row: u32| lane(element(matrix.clone(), column), row as u8);
    if columns.len() == 1 {
        return entry(columns[0], rows[0]);
    }
    let mut sum: Option<Expr> = None;
    for (i, &row) in rows.iter().enumerate() {
        let others: Vec<u32> = rows.iter().copied().filter(|&other| other != row).collect();
        let term = entry(columns[0], row) * minor(matrix, &columns[1..], &others);
        sum = Some(match sum {
            None => term,
            Some(sum) if i % 2 == 1 => sum - term,
            Some(sum) => sum + term,
        });
    }
    sum.unwrap_or_else(|| Expr::f32(1.0))
}
