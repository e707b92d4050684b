//! Loads that a store leaves as they are, because it changes something else.

use super::rewrite::{Known, Rewriter};
use crate::ir::Literal;
use crate::kernel::{Address, Binary, Op, Scalar, Value};

/// Values among which such loads are looked for.
const RECENT: usize = 16;
/// Sums and products with constants that an index is looked through.
const LINEAR: u32 = 4;

impl Rewriter {
    /// Loads from a fixed distance beside what was just stored still hold, as those of both elements do when two are exchanged.
    pub(super) fn keep_loads_beside(&mut self, stored: &Address, bytes: u32, before: u32) {
        let now = self.epochs.of(stored.memory);
        let first = self.table_log.len().saturating_sub(RECENT);
        for at in (first..self.table_log.len()).rev() {
            let (old, _) = self.table_log[at];
            let Some(Op::Load { address, element, .. }) = &self.defs[old.value.index()] else { continue };
            let loaded = element.bits() / 8 * u32::from(self.values[old.value.index()].ty.width);
            if old.epoch == before
                && address.memory == stored.memory
                && self.are_apart((address, loaded), (stored, bytes))
                && let Some(entry) = self.table.find_mut(old.hash, |other| other.value == old.value)
                && entry.epoch == before
            {
                entry.epoch = now;
                self.table_log.push((Known { epoch: now, ..old }, Some(old)));
            }
        }
    }

    /// Two places of a memory, of so many bytes each, have no byte in common, as far as is known.
    fn are_apart(&self, (a, a_bytes): (&Address, u32), (b, b_bytes): (&Address, u32)) -> bool {
        // Elements of four bits are counted otherwise.
        if a_bytes == 0 || b_bytes == 0 {
            return false;
        }
        if a.terms == b.terms {
            let behind = |first: u32, bytes: u32, second: u32| second.checked_sub(first).is_some_and(|by| by >= bytes);
            return behind(a.offset, a_bytes, b.offset) || behind(b.offset, b_bytes, a.offset);
        }
        // Indices with a constant difference are never the same, whatever wraps on the way to them.
        match (&a.terms[..], &b.terms[..]) {
            (&[(x, stride)], &[(y, other)]) if stride == other && a.offset == b.offset => {
                let ((root, factor, from), (same, again, to)) = (self.linear(x, LINEAR), self.linear(y, LINEAR));
                root == same && factor == again && from != to && a_bytes.max(b_bytes) <= stride
            }
            _ => false,
        }
    }

    /// A word as a factor times another value and something constant.
    fn linear(&self, value: Value, depth: u32) -> (Value, u32, u32) {
        let word = |value: Value| match self.literal(value) {
            Some(Literal::U32(word)) => Some(word),
            _ => None,
        };
        let next = match self.defs[value.index()] {
            Some(Op::Binary(op, a, b)) if depth > 0 && self.scalar(value) == Scalar::U32 => Some((op, a, word(b))),
            _ => None,
        };
        let Some((op, a, Some(b))) = next else { return (value, 1, 0) };
        let (root, factor, add) = self.linear(a, depth - 1);
        match op {
            Binary::Add => (root, factor, add.wrapping_add(b)),
            Binary::Sub => (root, factor, add.wrapping_sub(b)),
            Binary::Mul => (root, factor.wrapping_mul(b), add.wrapping_mul(b)),
            Binary::Shl if b < 32 => (root, factor << b, add << b),
            _ => (value, 1, 0),
        }
    }
}
