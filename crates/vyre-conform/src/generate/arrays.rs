//! Private arrays in nested loops of known length, as tiles, sorting networks and small matrices use them.

use vyre_foundation::ir::{Access, BinaryOp, Count, DataType, Expr, Node, TypeDef, TypeId};
use vyre_foundation::kernel::{Scalar, Type};

use super::value::type_of;
use super::{Generator, Local, LocalType};

impl Generator {
    /// The arrays of values in the table of types: position, element and count.
    pub(super) fn array_types(&self) -> Vec<(u32, Type, u32)> {
        let each = self.types.iter().enumerate();
        each.filter_map(|(i, def)| match def {
            TypeDef::Array { element, count: Count::Fixed(count), .. } if !matches!(element, DataType::Handle(_)) => {
                Some((i as u32, type_of(element), *count))
            }
            _ => None,
        })
        .collect()
    }

    /// The arrays of arrays: position, element, rows and columns.
    fn grid_types(&self) -> Vec<(u32, Type, u32, u32)> {
        let rows_of = self.array_types();
        let each = self.types.iter().enumerate();
        each.filter_map(|(i, def)| match def {
            TypeDef::Array { element: DataType::Handle(row), count: Count::Fixed(rows), .. } => {
                let (_, element, columns) = rows_of.iter().find(|(id, ..)| *id == row.0)?;
                Some((i as u32, *element, *rows, *columns))
            }
            _ => None,
        })
        .collect()
    }

    /// A new array, filled and changed in loops.
    pub(super) fn array_loops(&mut self) -> Vec<Node> {
        let name = self.fresh("v");
        let grids = self.grid_types();
        let (ty, id) = if !grids.is_empty() && self.rng.chance(2, 3) {
            let (id, element, rows, columns) = self.rng.pick(&grids);
            (LocalType::Grid(element, rows, columns), id)
        } else {
            let arrays = self.array_types();
            if arrays.is_empty() {
                return vec![self.variable()];
            }
            let (id, element, count) = self.rng.pick(&arrays);
            (LocalType::Array(element, count), id)
        };
        let mut nodes = vec![Node::var_zero(&name, DataType::Handle(TypeId(id)))];
        self.locals.push(Local { name: name.clone(), ty, mutable: true });
        for _ in 0..self.rng.range(1, 3) {
            let mut node = self.array_loop(name.as_str(), &mut Vec::new());
            // A loop of unknown length around it: then the values are carried.
            if self.rng.chance(1, 4) {
                let to = Expr::binary(BinaryOp::Rem, Expr::var("id"), Expr::u32(3));
                node = Node::For { var: self.fresh("r"), from: Expr::u32(0), to, step: 1, body: vec![node] };
            }
            nodes.push(node);
        }
        if let LocalType::Array(element, count) = self.locals[self.locals.len() - 1].ty
            && element.width == 1
            && element.scalar != Scalar::Bool
            && self.rng.chance(1, 2)
        {
            nodes.push(self.insertions(name.as_str(), element, count));
        }
        nodes
    }

    /// Values that move up to their place in an array, each from the end of what was inserted or from the end of all.
    fn insertions(&mut self, name: &str, element: Type, count: u32) -> Node {
        let (each, place, new) = (self.fresh("i"), self.fresh("k"), self.fresh("x"));
        let at = |index: Expr| vec![Access::Index(index)];
        let part = |index: Expr| Expr::Part { value: Box::new(Expr::var(name)), path: at(index) };
        let signed = self.rng.chance(1, 2);
        let number = |n: i32| if signed { Expr::i32(n) } else { Expr::u32(n as u32) };
        let here = || Expr::var(&place);
        let kind = if signed { DataType::I32 } else { DataType::U32 };
        let last = count.saturating_sub(self.rng.below(2)) as i32;
        let from = if self.rng.chance(1, 2) { Expr::var(&each).cast(kind.clone()) } else { number(last) };
        let op = self.rng.pick(&[BinaryOp::Gt, BinaryOp::Lt, BinaryOp::Ge]);
        let moves = Expr::binary(op, part(here() - number(1)), Expr::var(&new));
        let more = here().gt(number(0));
        let (stay, test) = if self.rng.chance(1, 2) {
            (vec![Node::if_then(!Expr::binary(BinaryOp::And, more, moves), vec![Node::Break])], Vec::new())
        } else {
            (vec![Node::if_then(!more, vec![Node::Break])], vec![Node::if_then(!moves, vec![Node::Break])])
        };
        let value = self.expr(element, 2);
        let value = self.tame(value, element);
        let shift = Node::Assign { name: name.into(), path: at(here()), value: part(here() - number(1)) };
        let down = Node::assign(&place, here() - number(1));
        let mut inside = [stay, test].concat();
        inside.extend([shift, down]);
        let body = vec![
            Node::let_bind(&new, value),
            Node::var(&place, kind, from),
            Node::forever(inside),
            Node::Assign { name: name.into(), path: at(here()), value: Expr::var(&new) },
        ];
        Node::For { var: each, from: Expr::u32(0), to: Expr::u32(self.rng.range(1, count.max(1))), step: 1, body }
    }

    /// One loop for each dimension, the outer counters in `counters`.
    fn array_loop(&mut self, name: &str, counters: &mut Vec<String>) -> Node {
        let Some(local) = self.locals.iter().find(|local| local.name.as_str() == name).cloned() else {
            return Node::Block(Vec::new());
        };
        let (element, dims) = match local.ty {
            LocalType::Array(element, count) => (element, vec![count]),
            LocalType::Grid(element, rows, columns) => (element, vec![rows, columns]),
            LocalType::Value(_) | LocalType::Struct(_) => return Node::Block(Vec::new()),
        };
        let length = dims[counters.len()];
        let var = self.fresh("i");
        let (mut from, mut to) = (Expr::u32(self.rng.below(2)), Expr::u32(length));
        if let Some(outer) = counters.last() {
            match self.rng.below(4) {
                0 => from = Expr::var(outer),
                1 => to = Expr::var(outer),
                _ => {}
            }
        }
        let step = if self.rng.chance(1, 5) { 2 } else { 1 };
        let scope = self.locals.len();
        self.locals.push(Local { name: var.as_str().into(), ty: LocalType::Value(Scalar::U32.into()), mutable: false });
        counters.push(var.to_string());
        let mut body = Vec::new();
        if counters.len() < dims.len() {
            body.push(self.array_loop(name, counters));
        }
        if counters.len() == dims.len() || self.rng.chance(1, 4) {
            for _ in 0..self.rng.range(1, 2) {
                body.push(self.array_step(name, element, &dims, counters));
            }
        }
        counters.pop();
        self.locals.truncate(scope);
        Node::For { var, from, to, step, body }
    }

    fn array_step(&mut self, name: &str, element: Type, dims: &[u32], counters: &[String]) -> Node {
        let path = self.array_path(dims, counters);
        let other = self.array_path(dims, counters);
        let part = |path| Expr::Part { value: Box::new(Expr::var(name)), path };
        let value = self.expr(element, 2);
        let op = match element.scalar {
            Scalar::Bool => BinaryOp::Xor,
            _ => BinaryOp::Add,
        };
        let value = match self.rng.below(3) {
            0 => value,
            1 => Expr::binary(op, part(path.clone()), value),
            _ => Expr::binary(op, part(other), value),
        };
        let value = self.tame(value, element);
        let assign = Node::Assign { name: name.into(), path, value };
        if self.rng.chance(1, 4) {
            let cond = self.expr(Scalar::Bool.into(), 2);
            return Node::if_then(cond, vec![assign]);
        }
        assign
    }

    /// Indices that are constants once the loops are unrolled, mostly inside.
    fn array_path(&mut self, dims: &[u32], counters: &[String]) -> Vec<Access> {
        let mut path = Vec::with_capacity(dims.len());
        for length in dims {
            let at = Expr::var(self.rng.pick(counters));
            let index = match self.rng.below(10) {
                0 => Expr::u32(self.rng.below(*length)),
                1 => at + Expr::u32(1),
                2 => Expr::u32(length - 1) - at,
                3 => Expr::binary(BinaryOp::Rem, at * Expr::u32(2), Expr::u32(*length)),
                4 if self.rng.chance(1, 4) => self.index(*length),
                _ => at,
            };
            path.push(Access::Index(index));
        }
        path
    }
}
