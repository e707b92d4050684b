//! Words of one or two registers in another order, by the one instruction that brings them there where there is one.

use super::super::isa::Isa;
use super::super::mir::{R, Src};
use super::super::ops;
use super::Lower;

/// Where the word of each lane comes from: a lane of the first register, or of the second one, which are counted on from there. None
/// where any will do.
pub(super) type Order = Vec<Option<u32>>;

/// Lanes of a register of 256 bits, and of its halves.
const LANES: u32 = 8;
const HALF: u32 = 4;

fn is(order: &[Option<u32>], from: impl Fn(u32) -> u32) -> bool {
    order.iter().zip(0..).all(|(wanted, lane)| wanted.is_none_or(|wanted| wanted == from(lane)))
}

/// How far all words are moved down, where the lanes that they come from are counted round.
fn distance(order: &[Option<u32>], round: u32) -> Option<u32> {
    let (first, lane) = order.iter().zip(0..).find_map(|(from, lane)| from.map(|from| (from, lane)))?;
    let by = (first + round - lane) % round;
    is(order, |lane| (lane + by) % round).then_some(by)
}

/// The same with the two registers in the other order.
fn other_way(order: &[Option<u32>], lanes: u32) -> Order {
    order.iter().map(|from| from.map(|from| (from + lanes) % (2 * lanes))).collect()
}

/// What tells `VSHUFPS` to do it: each half has two words of the same half of one register and two of another, at the same places in both.
fn in_halves(order: &[Option<u32>], registers: [u32; 2]) -> Option<u8> {
    let mut places = [None; HALF as usize];
    for (from, lane) in order.iter().zip(0..).filter_map(|(from, lane)| from.map(|from| (from, lane))) {
        let register = registers[(lane % HALF / 2) as usize];
        let within = from.checked_sub(register).filter(|within| within / HALF == lane / HALF)?;
        let place = &mut places[(lane % HALF) as usize];
        if place.replace(within % HALF).is_some_and(|other| other != within % HALF) {
            return None;
        }
    }
    Some(places.into_iter().rev().fold(0, |bits, place| bits << 2 | place.unwrap_or(0) as u8))
}

/// What tells `VPERM2F128` to do it: halves stay whole.
fn by_halves(order: &[Option<u32>]) -> Option<u8> {
    let mut halves = [None; 2];
    for (from, lane) in order.iter().zip(0..).filter_map(|(from, lane)| from.map(|from| (from, lane))) {
        let half = &mut halves[(lane / HALF) as usize];
        if from % HALF != lane % HALF || half.replace(from / HALF).is_some_and(|other| other != from / HALF) {
            return None;
        }
    }
    Some(halves[0].unwrap_or(0) as u8 | (halves[1].unwrap_or(0) as u8) << 4)
}

/// Words of two registers by turns, the first two of each half or, from 2 on, the last.
fn by_turns(order: &[Option<u32>], from: u32) -> bool {
    is(order, |lane| lane % 2 * LANES + lane / HALF * HALF + lane % HALF / 2 + from)
}

impl Lower<'_> {
    /// Words of a register in another order.
    pub(super) fn ordered(&mut self, r: R, order: &[Option<u32>]) -> Option<R> {
        if is(order, |lane| lane) {
            return Some(r);
        }
        match self.facts.isa {
            Isa::Simd128 => None,
            Isa::Avx512 => Some(match distance(order, self.lanes()) {
                Some(by) => self.vec_imm(ops::VALIGND, r, Src::R(r), by as u8),
                None => self.permuted(r, order),
            }),
            Isa::Avx2 => Some(self.ordered_in_halves(r, order)),
        }
    }

    /// The last word of a register in all lanes.
    pub(super) fn last_in_all(&mut self, r: R) -> R {
        let last = vec![Some(self.lanes() - 1); self.lanes() as usize];
        self.ordered_or_same(r, &last)
    }

    fn ordered_in_halves(&mut self, r: R, order: &[Option<u32>]) -> R {
        if let Some(places) = in_halves(order, [0; 2]) {
            return self.vec_imm(ops::VSHUFPS, r, Src::R(r), places);
        }
        let first_of_upper =
            order.iter().zip(0..).all(|(from, lane)| from.is_none_or(|from| lane < HALF && from >= HALF));
        if first_of_upper {
            let upper = self.upper_half(r);
            let order: Order = order.iter().map(|from| from.map(|from| from - HALF)).collect();
            return match is(&order, |lane| lane) {
                true => upper,
                false => self.ordered_in_halves(upper, &order),
            };
        }
        match by_halves(order) {
            Some(halves) => self.vec_imm(ops::VPERM2F128, r, Src::R(r), halves),
            None => self.permuted(r, order),
        }
    }

    fn permuted(&mut self, r: R, order: &[Option<u32>]) -> R {
        let order: Vec<u32> = order.iter().zip(0..).map(|(from, lane)| from.unwrap_or(lane)).collect();
        let order = self.lanes_constant(&order);
        self.vec(ops::VPERMD, order, Src::R(r))
    }

    /// Words of two registers.
    pub(super) fn mixed(&mut self, a: R, b: R, order: &[Option<u32>]) -> Option<R> {
        let lanes = self.lanes();
        if self.facts.isa == Isa::Simd128 {
            return None;
        }
        if order.iter().zip(0..).all(|(from, lane)| from.is_none_or(|from| from % lanes == lane)) {
            return Some(self.with_lanes(a, b, self.lanes_of_second(order)));
        }
        let other = other_way(order, lanes);
        for (before, behind, order) in [(a, b, order), (b, a, &other)] {
            if let Some(by) = distance(order, 2 * lanes).filter(|&by| by < lanes) {
                return Some(self.last_and_first(before, behind, (lanes - by) as u8));
            }
        }
        Some(match self.facts.isa {
            Isa::Avx512 => {
                let words = std::array::from_fn(|lane| order[lane].unwrap_or(lane as u32));
                self.taken(a, b, words)
            }
            _ => self.mixed_in_halves(a, b, order, &other),
        })
    }

    fn lanes_of_second(&self, order: &[Option<u32>]) -> u32 {
        let of_second = |from: &Option<u32>| from.is_some_and(|from| from >= self.lanes());
        order.iter().zip(0..).fold(0, |bits, (from, lane)| bits | u32::from(of_second(from)) << lane)
    }

    fn mixed_in_halves(&mut self, a: R, b: R, order: &[Option<u32>], other: &[Option<u32>]) -> R {
        for (first, second, order) in [(a, b, order), (b, a, other)] {
            if let Some(places) = in_halves(order, [0, LANES]) {
                return self.vec_imm(ops::VSHUFPS, first, Src::R(second), places);
            }
            for (op, from) in [(ops::VUNPCKLPS, 0), (ops::VUNPCKHPS, HALF / 2)] {
                if by_turns(order, from) {
                    return self.vec(op, first, Src::R(second));
                }
            }
        }
        if let Some(halves) = by_halves(order) {
            return self.vec_imm(ops::VPERM2F128, a, Src::R(b), halves);
        }
        let of = |first: u32| -> Order {
            order
                .iter()
                .map(|from| from.and_then(|from| from.checked_sub(first)).filter(|&from| from < LANES))
                .collect()
        };
        let (from_a, from_b) = (of(0), of(LANES));
        let (first, second) = (self.ordered_or_same(a, &from_a), self.ordered_or_same(b, &from_b));
        self.with_lanes(first, second, self.lanes_of_second(order))
    }

    fn ordered_or_same(&mut self, r: R, order: &[Option<u32>]) -> R {
        self.ordered(r, order).unwrap_or(r)
    }

    /// So many of the last words of one register, and the first of another.
    pub(super) fn last_and_first(&mut self, before: R, behind: R, words: u8) -> R {
        if self.facts.isa == Isa::Avx512 {
            return self.vec_imm(ops::VALIGND, behind, Src::R(before), 16 - words);
        }
        // The second half of one and the first of the other, and from there on the words of each half.
        let middle = self.vec_imm(ops::VPERM2F128, before, Src::R(behind), 0x21);
        match words {
            4 => middle,
            0..4 => self.vec_imm(ops::VPALIGNR, behind, Src::R(middle), 16 - 4 * words),
            _ => self.vec_imm(ops::VPALIGNR, middle, Src::R(before), 4 * (8 - words)),
        }
    }
}
