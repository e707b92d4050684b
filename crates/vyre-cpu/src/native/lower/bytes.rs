//! Sums of products of bytes.

use vyre_foundation::kernel::ByteDot;

use super::super::mir::{R, Src};
use super::super::ops;
use super::value::Rep;
use super::{Lower, Made};

impl Lower<'_> {
    /// The sum of the products of the bytes of two words. An instruction multiplies half words and adds neighbours, so bytes in
    /// even places are made half words, and those in odd places.
    pub(super) fn byte_dot(&mut self, dot: ByteDot, c: usize) -> Rep {
        // A word is taken apart once for all vectors that it is multiplied with, unless its register is used again.
        let words = dot.words.map(|word| {
            let words = self.vector_of(word, c);
            (words, !self.made.changing.contains(&words))
        });
        let sums = [false, true].map(|odd| {
            let [a, b] = words.map(|(word, kept)| self.half_words(word, odd, dot.signed, kept));
            self.vec(ops::VPMADDWD, a, Src::R(b))
        });
        Rep::Vector(self.vec(ops::VPADDD, sums[0], Src::R(sums[1])), R::NONE)
    }

    /// The bytes in even or odd places as half words.
    fn half_words(&mut self, words: R, odd: bool, signed: bool, kept: bool) -> R {
        let made = Made::Bytes(words, odd, signed);
        if let Some(r) = self.made.get(made).filter(|_| kept) {
            return r;
        }
        let r = match (odd, signed) {
            (true, true) => self.vec_imm(ops::VPSRAW, R::NONE, Src::R(words), 8),
            (true, false) => self.vec_imm(ops::VPSRLW, R::NONE, Src::R(words), 8),
            (false, true) => {
                let high = self.vec_imm(ops::VPSLLW, R::NONE, Src::R(words), 8);
                self.vec_imm(ops::VPSRAW, R::NONE, Src::R(high), 8)
            }
            (false, false) => {
                let mask = self.constant(0x00ff_00ff);
                self.vec(ops::VPANDD, words, Src::R(mask))
            }
        };
        if kept {
            self.remember(made, r);
        }
        r
    }
}
