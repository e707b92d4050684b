//! Bytes and half words that a kernel takes out of words by itself, since WGSL has no smaller types: `(words[i / 4u] >> (8u * (i % 4u))) & 255u`
//! is the byte `i`. As a load of it, neighbours' bytes lie side by side.

use smallvec::smallvec;

use super::rewrite::Rewriter;
use crate::ir::Literal;
use crate::kernel::{Address, Binary, Element, Op, Scalar, Value};

impl Rewriter {
    /// `a & b` as a load of a part of a word, where it is one and the memory is as it was when the word was loaded.
    pub(super) fn part_of_word(&mut self, a: Value, b: Value) -> Option<Value> {
        let (element, parts) = match self.word(b)? {
            0xff => (Element::U8, 4u32),
            0xffff => (Element::U16, 2),
            _ => return None,
        };
        let bytes = 4 / parts;
        let (word, by) = self.of(Binary::Shr, a)?;
        let (part, scale) = self.of(Binary::Shl, by)?;
        let (index, mask) = self.of(Binary::And, part)?;
        let is_part = self.word(scale) == Some((8 * bytes).trailing_zeros()) && self.word(mask) == Some(parts - 1);
        let Some(Op::Load { address, element: Element::U32, guard }) = &self.defs[word.index()] else { return None };
        let (memory, offset, guard) = (address.memory, address.offset, *guard);
        let [(place, 4)] = address.terms[..] else { return None };
        let (whole, shift) = self.of(Binary::Shr, place)?;
        let is_whole = whole == index && self.word(shift) == Some(parts.trailing_zeros());
        if !is_part || !is_whole || self.scalar(word) != Scalar::U32 || !self.still_holds(word) {
            return None;
        }
        let address = Address { memory, terms: smallvec![(index, bytes)], offset };
        Some(self.emit(Op::Load { address, element, guard }, Scalar::U32.into()))
    }

    fn word(&self, value: Value) -> Option<u32> {
        match self.literal(value) {
            Some(Literal::U32(word)) => Some(word),
            _ => None,
        }
    }

    /// The operands of a value that is made by such an operation.
    fn of(&self, wanted: Binary, value: Value) -> Option<(Value, Value)> {
        match self.defs[value.index()] {
            Some(Op::Binary(op, a, b)) if op == wanted => Some((a, b)),
            _ => None,
        }
    }
}
