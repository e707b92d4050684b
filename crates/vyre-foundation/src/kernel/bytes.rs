//! Sums of four products of the bytes of two words, for which many processors have an instruction.

use std::collections::HashMap;

use super::walk::blocks;
use super::{Binary, Block, Inst, Kernel, Op, Scalar, Value};
use crate::ir::Literal;

/// A sum of the products of the bytes of two words, each with that in the same place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteDot {
    /// The words.
    pub words: [Value; 2],
    /// The bytes have signs.
    pub signed: bool,
}

/// The values of a kernel that are such sums.
pub fn byte_dots(kernel: &Kernel) -> HashMap<Value, ByteDot> {
    let mut products = Products { kernel, defs: vec![None; kernel.values.len()], dots: HashMap::new() };
    products.block(&kernel.body);
    products.dots
}

/// A byte of a word: which word, which byte, and whether it has a sign.
type Byte = (Value, u32, bool);

struct Products<'k> {
    kernel: &'k Kernel,
    /// Shifts, masks, products, sums and constants of 32 bits.
    defs: Vec<Option<&'k Op>>,
    dots: HashMap<Value, ByteDot>,
}

impl<'k> Products<'k> {
    fn block(&mut self, block: &'k Block) {
        for inst in &block.insts {
            match inst {
                Inst::Let(value, op @ (Op::Const(_) | Op::BitCast(_) | Op::Binary(..))) => {
                    if !matches!(self.scalar(*value), Scalar::U32 | Scalar::I32) {
                        continue;
                    }
                    self.defs[value.index()] = Some(op);
                    if let Op::Binary(Binary::Add, ..) = op
                        && let Some(dot) = self.dot(*value)
                    {
                        self.dots.insert(*value, dot);
                    }
                }
                inst => blocks(inst).for_each(|block| self.block(block)),
            }
        }
    }

    fn scalar(&self, value: Value) -> Scalar {
        self.kernel.values[value.index()].ty.scalar
    }

    fn number(&self, value: Value) -> Option<u32> {
        match self.defs[value.index()]? {
            Op::Const(Literal::U32(number)) => Some(*number),
            Op::Const(Literal::I32(number)) => Some(*number as u32),
            _ => None,
        }
    }

    fn dot(&self, sum: Value) -> Option<ByteDot> {
        let mut products = Vec::new();
        self.products(sum, &mut products)?;
        if products.len() != 4 {
            return None;
        }
        let mut found: Option<ByteDot> = None;
        let mut seen = [false; 4];
        for (a, b) in products {
            let ((a, place, signed), (b, other, also)) = (self.byte(a)?, self.byte(b)?);
            if place != other || signed != also || std::mem::replace(&mut seen[place as usize], true) {
                return None;
            }
            match found {
                None => found = Some(ByteDot { words: [a, b], signed }),
                Some(dot) if dot.signed == signed && (dot.words == [a, b] || dot.words == [b, a]) => {}
                Some(_) => return None,
            }
        }
        found
    }

    /// The factors of all that is added; nothing where something is no product or there are too many.
    fn products(&self, sum: Value, into: &mut Vec<(Value, Value)>) -> Option<()> {
        match self.defs[sum.index()]? {
            Op::Binary(Binary::Add, a, b) if into.len() < 4 => {
                self.products(*a, into)?;
                self.products(*b, into)
            }
            Op::Binary(Binary::Mul, a, b) if into.len() < 4 => {
                into.push((*a, *b));
                Some(())
            }
            _ => None,
        }
    }

    fn byte(&self, value: Value) -> Option<Byte> {
        let signed = self.scalar(value) == Scalar::I32;
        match self.defs[value.index()]? {
            Op::Binary(Binary::Shr, from, by) if self.number(*by) == Some(24) => {
                if let Some(Op::Binary(Binary::Shl, word, by)) = self.defs[from.index()]
                    && let Some(by @ (8 | 16 | 24)) = self.number(*by)
                {
                    return Some((self.word(*word), (24 - by) / 8, signed));
                }
                Some((self.word(*from), 3, signed))
            }
            Op::Binary(Binary::And, from, mask) if !signed && self.number(*mask) == Some(0xff) => {
                if let Some(Op::Binary(Binary::Shr, word, by)) = self.defs[from.index()]
                    && self.scalar(*from) == Scalar::U32
                    && let Some(by @ (8 | 16)) = self.number(*by)
                {
                    return Some((self.word(*word), by / 8, false));
                }
                Some((self.word(*from), 0, false))
            }
            _ => None,
        }
    }

    /// The same bits under another type.
    fn word(&self, value: Value) -> Value {
        match self.defs[value.index()] {
            Some(Op::BitCast(from)) if matches!(self.scalar(*from), Scalar::U32 | Scalar::I32) => self.word(*from),
            _ => value,
        }
    }
}
