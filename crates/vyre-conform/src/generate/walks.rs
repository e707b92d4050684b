//! Rounds over a buffer, up or down, by ones or by a number that is given, with one left out or with remainders of the counter; and products of
//! halves.

use vyre_foundation::ir::{BinaryOp, DataType, Expr, MathOp, Name, Node};
use vyre_foundation::kernel::Scalar;

use super::{Element, Generator, Local, LocalType, Role};

impl Generator {
    /// A new number that what lies along the way decides.
    pub(super) fn walk(&mut self) -> Vec<Node> {
        let is_whole = |scalar: Scalar| matches!(scalar, Scalar::U32 | Scalar::I32);
        let inputs = self.buffers.iter().filter(|buffer| {
            matches!(buffer.role, Role::Input)
                && matches!(buffer.element, Element::Value(ty) if ty.width == 1 && is_whole(ty.scalar))
        });
        let inputs: Vec<_> = inputs.cloned().collect();
        if inputs.is_empty() {
            return vec![self.variable()];
        }
        let buffer = self.rng.pick(&inputs);
        if self.options.searches && self.rng.chance(2, 3) {
            return self.search(&buffer.name);
        }
        let number = Expr::u32;
        let below = |value: Expr, most: u32| Expr::binary(BinaryOp::Rem, value, number(most));
        let (sum, each) = (self.fresh("w"), self.fresh("i"));
        let signed = self.rng.chance(1, 3);
        let kind = if signed { DataType::I32 } else { DataType::U32 };
        let from = self.rng.below(3);
        let to = match self.rng.below(3) {
            0 => number(from + self.rng.below(14)),
            1 => below(self.uniform_u32(), 9),
            _ => below(self.leaf(Scalar::U32.into()), 12),
        };
        let here = Expr::var(&each);
        let factor = match self.rng.below(4) {
            0 => number(self.rng.range(2, 3)),
            1 => self.uniform_u32(),
            _ => number(1),
        };
        let way = here.clone() * factor.cast(kind.clone());
        let base = below(self.leaf(Scalar::U32.into()), buffer.length + 3).cast(kind.clone());
        let index = if self.rng.chance(1, 2) { base - way } else { base + way };
        let index = if self.rng.chance(1, 2) { index.cast(DataType::U32) } else { index };
        let mut next = Expr::var(&sum) * number(3) + Expr::load(&buffer.name, index).cast(DataType::U32);
        if self.rng.chance(1, 2) {
            let ahead = number(self.rng.below(4)).cast(kind.clone());
            let by = number(self.rng.range(2, 7)).cast(kind.clone());
            next = next + Expr::binary(BinaryOp::Rem, here.clone() + ahead, by).cast(DataType::U32);
        }
        let mut body = vec![Node::assign(&sum, next)];
        if self.rng.chance(1, 3) {
            let out = below(self.leaf(Scalar::U32.into()), 9).cast(kind.clone());
            body = vec![Node::if_else(here.eq(out), Vec::new(), body)];
        }
        let step = if self.rng.chance(1, 4) { 2 } else { 1 };
        let from = number(from).cast(kind.clone());
        self.locals.push(Local { name: sum.clone(), ty: LocalType::Value(Scalar::U32.into()), mutable: true });
        vec![Node::var(&sum, DataType::U32, number(1)), Node::For { var: each, from, to: to.cast(kind), step, body }]
    }

    /// A loop of few rounds over neighbouring words that is left where one of them is as wanted, or where the buffer ends.
    fn search(&mut self, buffer: &Name) -> Vec<Node> {
        let number = Expr::u32;
        let (found, each) = (self.fresh("f"), self.fresh("i"));
        let here = Expr::var(&each);
        let place = match self.in_function || self.rng.chance(1, 4) {
            true => Expr::binary(BinaryOp::Rem, self.leaf(Scalar::U32.into()), number(40)),
            false => Expr::global_id(0),
        };
        let index = match self.rng.below(3) {
            0 => (place * number(4) + here.clone()) >> number(2),
            1 => Expr::math(MathOp::Min, vec![place + here.clone(), number(self.rng.range(3, 60))]),
            _ => place + here.clone(),
        };
        let word = Expr::load(buffer, index.clone()).cast(DataType::U32);
        let wanted = number(self.rng.below(4));
        let hit = match self.rng.below(4) {
            0 => Expr::binary(BinaryOp::Ge, index, Expr::len(buffer)),
            1 => Expr::binary(BinaryOp::Ne, word.clone() & number(3), wanted),
            _ => Expr::binary(BinaryOp::Eq, word.clone() & number(3), wanted),
        };
        let told = match self.rng.below(3) {
            0 => number(77),
            1 => Expr::var(&found) + word.clone(),
            _ => here.clone(),
        };
        let told = if self.rng.chance(1, 4) { Vec::new() } else { vec![Node::assign(&found, told)] };
        let mut body = vec![Node::if_then(hit, told.into_iter().chain([Node::Break]).collect())];
        let grow = Node::assign(&found, Expr::var(&found) * number(3) + word + here);
        match self.rng.below(3) {
            0 => body.push(grow),
            1 => body.insert(0, grow),
            _ => {}
        }
        let from = self.rng.below(3);
        let to = from + self.rng.range(2, 7);
        self.locals.push(Local { name: found.clone(), ty: LocalType::Value(Scalar::U32.into()), mutable: true });
        let step = if self.rng.chance(1, 4) { 2 } else { 1 };
        let rounds = Node::For { var: each, from: number(from), to: number(to), step, body };
        vec![Node::var(&found, DataType::U32, number(1)), rounds]
    }

    /// Both halves of the product of two numbers, by products of halves of 16 bits, as one number.
    pub(super) fn wide_product(&mut self) -> Vec<Node> {
        let [a, b, p, q, r, m] = [0; 6].map(|_| self.fresh("p"));
        let low = |name: &str| Expr::var(name) & Expr::u32(0xffff);
        let high = |name: &str| Expr::var(name) >> Expr::u32(16);
        let constant = self.rng.below(1 << 20);
        let mut nodes = vec![
            Node::let_bind(&a, self.leaf(Scalar::U32.into())),
            Node::let_bind(&b, if self.rng.chance(1, 2) { self.leaf(Scalar::U32.into()) } else { Expr::u32(constant) }),
            Node::let_bind(&p, low(a.as_str()) * low(b.as_str())),
            Node::let_bind(&q, high(a.as_str()) * low(b.as_str())),
            Node::let_bind(&r, low(a.as_str()) * high(b.as_str())),
            Node::let_bind(&m, high(p.as_str()) + low(q.as_str()) + low(r.as_str())),
        ];
        let top = high(a.as_str()) * high(b.as_str());
        let above = top + high(q.as_str()) + high(r.as_str()) + high(m.as_str());
        let below = (Expr::var(&m) << Expr::u32(16)) | low(p.as_str());
        nodes.push(self.bind(Scalar::U32.into(), above * Expr::u32(3) + below));
        nodes
    }
}
