//! Functions of the bits of words, from shifts and sums where no instruction does it.

use vyre_foundation::kernel::{Scalar, Unary};

use super::super::isa::Isa;
use super::super::mir::{R, Src};
use super::super::ops;
use super::Lower;

impl<'k> Lower<'k> {
    /// A function of the bits of each lane; `None` where it is none of words.
    pub(super) fn bits(&mut self, op: Unary, scalar: Scalar, v: R) -> Option<R> {
        if !matches!(scalar, Scalar::U32 | Scalar::I32) {
            return None;
        }
        Some(match op {
            Unary::ReverseBits => self.reversed(v),
            Unary::CountOneBits => self.ones(v),
            Unary::CountLeadingZeros => self.leading_zeros(v),
            Unary::CountTrailingZeros => self.trailing_zeros(v),
            Unary::FirstTrailingBit => {
                // All bits are set where there is none.
                let place = self.trailing_zeros(v);
                let thirty_two = self.vec_imm(ops::VPSLLD, R::NONE, Src::R(place), 26);
                let none = self.vec_imm(ops::VPSRAD, R::NONE, Src::R(thirty_two), 31);
                self.vec(ops::VPORD, place, Src::R(none))
            }
            Unary::FirstLeadingBit => {
                let v = match scalar {
                    Scalar::I32 => {
                        let sign = self.vec_imm(ops::VPSRAD, R::NONE, Src::R(v), 31);
                        self.vec(ops::VPXORD, v, Src::R(sign))
                    }
                    _ => v,
                };
                let zeros = self.leading_zeros(v);
                let last = self.constant(31);
                self.vec(ops::VPSUBD, last, Src::R(zeros))
            }
            Unary::Sign if scalar == Scalar::I32 => {
                let zero = self.constant(0);
                let sign = self.vec_imm(ops::VPSRAD, R::NONE, Src::R(v), 31);
                let minus = self.vec(ops::VPSUBD, zero, Src::R(v));
                let one = self.vec_imm(ops::VPSRLD, R::NONE, Src::R(minus), 31);
                self.vec(ops::VPORD, sign, Src::R(one))
            }
            _ => return None,
        })
    }

    /// Neighbouring groups of so many bits change places; the mask has the lower ones.
    fn swapped(&mut self, v: R, by: u8, mask: u32) -> R {
        let mask = self.constant(mask);
        let down = self.vec_imm(ops::VPSRLD, R::NONE, Src::R(v), by);
        let upper = self.vec(ops::VPANDD, down, Src::R(mask));
        let lower = self.vec(ops::VPANDD, v, Src::R(mask));
        let up = self.vec_imm(ops::VPSLLD, R::NONE, Src::R(lower), by);
        self.vec(ops::VPORD, upper, Src::R(up))
    }

    fn reversed(&mut self, v: R) -> R {
        let groups = [(1, 0x5555_5555), (2, 0x3333_3333), (4, 0x0f0f_0f0f), (8, 0x00ff_00ff)];
        let v = groups.into_iter().fold(v, |v, (by, mask)| self.swapped(v, by, mask));
        let down = self.vec_imm(ops::VPSRLD, R::NONE, Src::R(v), 16);
        let up = self.vec_imm(ops::VPSLLD, R::NONE, Src::R(v), 16);
        self.vec(ops::VPORD, down, Src::R(up))
    }

    fn ones(&mut self, v: R) -> R {
        let pairs = self.constant(0x5555_5555);
        let down = self.vec_imm(ops::VPSRLD, R::NONE, Src::R(v), 1);
        let odd = self.vec(ops::VPANDD, down, Src::R(pairs));
        let twos = self.vec(ops::VPSUBD, v, Src::R(odd));
        let fours = self.constant(0x3333_3333);
        let down = self.vec_imm(ops::VPSRLD, R::NONE, Src::R(twos), 2);
        let upper = self.vec(ops::VPANDD, down, Src::R(fours));
        let lower = self.vec(ops::VPANDD, twos, Src::R(fours));
        let sums = self.vec(ops::VPADDD, upper, Src::R(lower));
        let down = self.vec_imm(ops::VPSRLD, R::NONE, Src::R(sums), 4);
        let sums = self.vec(ops::VPADDD, sums, Src::R(down));
        let bytes = self.constant(0x0f0f_0f0f);
        let sums = self.vec(ops::VPANDD, sums, Src::R(bytes));
        let all = self.constant(0x0101_0101);
        let sums = self.vec(ops::VPMULLD, sums, Src::R(all));
        self.vec_imm(ops::VPSRLD, R::NONE, Src::R(sums), 24)
    }

    fn leading_zeros(&mut self, v: R) -> R {
        if self.facts.isa != Isa::Avx2 {
            return self.vec(ops::VPLZCNTD, R::NONE, Src::R(v));
        }
        // Every bit below the first one is set, and those above it are counted.
        let filled = [1, 2, 4, 8, 16].into_iter().fold(v, |v, by| {
            let down = self.vec_imm(ops::VPSRLD, R::NONE, Src::R(v), by);
            self.vec(ops::VPORD, v, Src::R(down))
        });
        let all = self.constant(u32::MAX);
        let above = self.vec(ops::VPXORD, filled, Src::R(all));
        self.ones(above)
    }

    fn trailing_zeros(&mut self, v: R) -> R {
        // The bits below the last one, and all of them where there is none.
        let all = self.constant(u32::MAX);
        let less = self.vec(ops::VPADDD, v, Src::R(all));
        let not = self.vec(ops::VPXORD, v, Src::R(all));
        let below = self.vec(ops::VPANDD, less, Src::R(not));
        self.ones(below)
    }
}
