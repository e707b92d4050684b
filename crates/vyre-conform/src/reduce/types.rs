//! Types of expressions in a program that is known to be valid.

use std::collections::HashMap;

use vyre_foundation::ir::{Access, BinaryOp, DataType, Expr, MathOp, Name, Node, SubgroupOp, TypeDef};
use vyre_foundation::kernel::Element;

use super::Parts;
use crate::compare::visit;

/// Types of the names in a program; where a name is declared more than once, of its last declaration.
pub(crate) struct Names<'a> {
    parts: &'a Parts,
    names: HashMap<&'a Name, DataType>,
}

impl<'a> Names<'a> {
    pub(crate) fn of(parts: &'a Parts) -> Names<'a> {
        let mut names = Names { parts, names: HashMap::new() };
        for function in &parts.functions {
            names.names.extend(function.params.iter().map(|param| (&param.name, param.ty.clone())));
        }
        for body in parts.bodies() {
            visit(body, &mut |node| {
                let found = match node {
                    Node::Let { name, value } => names.of_expr(value).map(|ty| (name, ty)),
                    Node::Var { name, ty, .. } => Some((name, ty.clone())),
                    Node::For { var, from, .. } => names.of_expr(from).map(|ty| (var, ty)),
                    Node::Atomic { buffer, path, result: Some(name), .. } => {
                        names.of_buffer(buffer, path).map(|ty| (name, ty))
                    }
                    Node::Call { function, result: Some(name), .. } => parts
                        .functions
                        .iter()
                        .find(|f| f.name == *function)
                        .and_then(|f| f.result.clone())
                        .map(|ty| (name, ty)),
                    _ => None,
                };
                if let Some((name, ty)) = found {
                    names.names.insert(name, ty);
                }
            });
        }
        names
    }

    pub(crate) fn of_buffer(&self, buffer: &Name, path: &[Access]) -> Option<DataType> {
        let ty = self.parts.buffers.iter().find(|b| b.name == *buffer)?.ty.clone();
        self.part(ty, path)
    }

    fn part(&self, mut ty: DataType, path: &[Access]) -> Option<DataType> {
        for step in path {
            ty = match (&ty, step) {
                (DataType::Handle(id), step) => match (self.parts.types.get(id.0 as usize)?, step) {
                    (TypeDef::Struct { members, .. }, Access::Member(i)) => members.get(*i as usize)?.ty.clone(),
                    (TypeDef::Array { element, .. }, Access::Index(_)) => element.clone(),
                    _ => return None,
                },
                (vector, Access::Index(_)) => vector.as_vector()?.0,
                _ => return None,
            };
        }
        Some(computes(ty))
    }

    pub(crate) fn of_expr(&self, expr: &Expr) -> Option<DataType> {
        Some(match expr {
            Expr::Literal(literal) => literal.data_type(),
            Expr::Var(name) => self.names.get(name)?.clone(),
            Expr::Constant(name) => self.parts.constants.iter().find(|c| c.name == *name)?.default.data_type(),
            Expr::Load { buffer, path, .. } => self.of_buffer(buffer, path)?,
            Expr::Length(_) | Expr::Builtin(_) => DataType::U32,
            Expr::Unary { value, .. } => self.of_expr(value)?,
            Expr::Binary { op, left, .. } => {
                let ty = self.of_expr(left)?;
                if is_comparison(*op) { with_element(&ty, DataType::Bool) } else { ty }
            }
            Expr::Math { op, args } => {
                let ty = self.of_expr(args.first()?)?;
                match op {
                    MathOp::Dot => ty.as_vector()?.0,
                    MathOp::All | MathOp::Any => DataType::Bool,
                    _ => ty,
                }
            }
            Expr::Select { yes, .. } => self.of_expr(yes)?,
            Expr::Cast { to, .. } | Expr::BitCast { to, .. } => to.clone(),
            Expr::Construct { ty, .. } => ty.clone(),
            Expr::Swizzle { value, lanes } => {
                let element = self.of_expr(value)?.as_vector()?.0;
                if lanes.len() == 1 { element } else { DataType::vector(element, lanes.len() as u32) }
            }
            Expr::Part { value, path } => self.part(self.of_expr(value)?, path)?,
            Expr::Subgroup { op: SubgroupOp::Ballot, .. } => DataType::vector(DataType::U32, 4),
            Expr::Subgroup { op: SubgroupOp::All | SubgroupOp::Any, .. } => DataType::Bool,
            Expr::Subgroup { value, .. } => self.of_expr(value)?,
            Expr::MatrixMultiplyAdd { .. } => DataType::vector(DataType::F32, 4),
        })
    }
}

fn is_comparison(op: BinaryOp) -> bool {
    op.is_comparison()
}

/// The type that an element computes as.
fn computes(ty: DataType) -> DataType {
    match Element::of(&ty) {
        Some(element) => element.scalar().data_type(),
        None => ty,
    }
}

fn with_element(ty: &DataType, element: DataType) -> DataType {
    match ty.as_vector() {
        Some((_, count)) => DataType::vector(element, count),
        None => element,
    }
}
