//! Scalars that share a register. Most instructions on scalars change one of their operands, so a result that takes the place of what it is made
//! of needs no copy. Which scalars are needed at the same time is found exactly here, after the first allocation: what a loop carries
//! has its register throughout, though between its last use in a round and the next round's value others could be there.

use super::asm::{Alu, Label};
use super::hash::Map;
use super::mir::{Class, GSrc, M, R, Role};
use super::regalloc::{self, Allocation, Place};

/// Bits up to which it is found what is needed where.
const MOST_BITS: usize = 1 << 24;

/// A result and an operand that may be in the same register, and the instruction.
struct Pair {
    at: u32,
    rounds: u8,
    copies: bool,
    result: R,
    operand: R,
}

/// Gives one name to results and operands of instructions that are not needed at the same time, and takes out what then copies a register to
/// itself; true where there are any.
pub(super) fn join(code: &mut Vec<M>, labels: u32, allocation: &Allocation) -> bool {
    let mut pairs = pairs_of(code, labels, allocation);
    if pairs.is_empty() {
        return false;
    }
    let mut needs = Needs::of(code, labels, &pairs);
    if needs.words * needs.blocks.len() * 64 > MOST_BITS {
        return false;
    }
    needs.spread();
    // What is done most often first. From the end, so that a result takes all that it is made of along.
    pairs.sort_by_key(|pair| std::cmp::Reverse((pair.rounds, pair.copies, pair.at)));
    let mut joins = false;
    for Pair { result, operand, .. } in pairs {
        let [to, from] = [result, operand].map(|r| needs.name(r));
        if to != from && !needs.clash(to, from) && !needs.clash(from, to) {
            needs.join(to, from);
            joins = true;
        }
    }
    if joins {
        for m in code.iter_mut() {
            m.visit(&mut |r, _| {
                if let Some(&number) = needs.numbers.get(r) {
                    *r = needs.registers[needs.name_of(number)];
                }
            });
        }
        code.retain(|m| !matches!(m, M::Mov { dst, src } if dst == src));
    }
    joins
}

fn pairs_of(code: &[M], labels: u32, allocation: &Allocation) -> Vec<Pair> {
    let rounds = regalloc::rounds(code, labels);
    let mut pairs = Vec::new();
    for (at, m) in (0..).zip(code) {
        let (result, operands) = match *m {
            M::Mov { dst, src } => (dst, [src, R::NONE]),
            M::Alu { op, dst, a, b, .. } => (dst, [a, if op == Alu::Sub { R::NONE } else { register(b) }]),
            M::Mul { dst, a, b: GSrc::R(b), .. } => (dst, [a, b]),
            M::Shift { dst, a, count: GSrc::Imm(_), .. } | M::Neg { dst, a, .. } | M::Not { dst, a, .. } => {
                (dst, [a, R::NONE])
            }
            _ => continue,
        };
        let fits = |r: R| {
            !r.is_none()
                && r.fixed().is_none()
                && r.class() == Class::General
                && matches!(allocation.place(r), Place::Reg(_))
        };
        for operand in operands.into_iter().filter(|&operand| operand != result && fits(operand) && fits(result)) {
            let copies = matches!(m, M::Mov { .. });
            pairs.push(Pair { at, rounds: rounds[at as usize].min(3) as u8, copies, result, operand });
        }
    }
    pairs
}

fn register(src: GSrc) -> R {
    match src {
        GSrc::R(r) => r,
        GSrc::Imm(_) => R::NONE,
    }
}

/// Where an instruction names a register.
#[derive(Clone, Copy)]
struct Named {
    at: u32,
    reads: bool,
    writes: bool,
    /// What it is copied from.
    copied: Option<u32>,
}

/// Instructions without a jump or a label between them.
struct Stretch {
    end: u32,
    /// What may run next.
    then: Vec<u32>,
}

/// Where registers are needed. Those that share one go by the number of one of them.
struct Needs {
    numbers: Map<R, u32>,
    registers: Vec<R>,
    /// In order, for each register.
    named: Vec<Vec<Named>>,
    /// For those that were joined, with whom.
    joined: Vec<u32>,
    blocks: Vec<Stretch>,
    /// The block of each instruction.
    inside: Vec<u32>,
    words: usize,
    /// A bit for each register: needed after a block, before it, and written in it before any read.
    after: Vec<u64>,
    before: Vec<u64>,
    written: Vec<u64>,
}

impl Needs {
    fn of(code: &mut [M], labels: u32, pairs: &[Pair]) -> Needs {
        let mut registers: Vec<R> = pairs.iter().flat_map(|pair| [pair.result, pair.operand]).collect();
        registers.sort_unstable();
        registers.dedup();
        let numbers: Map<R, u32> = registers.iter().copied().zip(0..).collect();
        let (blocks, inside) = stretches(code, labels);
        let words = registers.len().div_ceil(64);
        let none = || vec![0; words * blocks.len()];
        let mut needs = Needs {
            named: vec![Vec::new(); registers.len()],
            joined: (0..registers.len() as u32).collect(),
            words,
            after: none(),
            before: none(),
            written: none(),
            numbers,
            registers,
            blocks,
            inside,
        };
        if words * needs.blocks.len() * 64 > MOST_BITS {
            return needs;
        }
        for (at, m) in (0..).zip(code) {
            let copied = match *m {
                M::Mov { src, .. } => needs.numbers.get(&src).copied(),
                _ => None,
            };
            let first = needs.inside[at as usize] as usize * words;
            m.visit(&mut |r, role| {
                let Some(&number) = needs.numbers.get(r) else { return };
                let (reads, writes) = (role != Role::Def, matches!(role, Role::Def | Role::Both));
                let named = &mut needs.named[number as usize];
                match named.last_mut().filter(|last| last.at == at) {
                    Some(last) => (last.reads, last.writes) = (last.reads | reads, last.writes | writes),
                    None => named.push(Named { at, reads, writes, copied: None }),
                }
                if let (true, Some(last)) = (writes, named.last_mut()) {
                    last.copied = copied;
                }
                let (word, bit) = (first + number as usize / 64, 1 << (number % 64));
                // Operands are shown before results.
                if reads && needs.written[word] & bit == 0 {
                    needs.before[word] |= bit;
                }
                if writes {
                    needs.written[word] |= bit;
                }
            });
        }
        needs
    }

    /// Finds what is needed after each block.
    fn spread(&mut self) {
        let words = self.words;
        let mut changed = true;
        while std::mem::take(&mut changed) {
            for block in (0..self.blocks.len()).rev() {
                for next in 0..self.blocks[block].then.len() {
                    let next = self.blocks[block].then[next] as usize;
                    for word in 0..words {
                        let more = self.before[next * words + word] & !self.after[block * words + word];
                        if more != 0 {
                            self.after[block * words + word] |= more;
                            self.before[block * words + word] |= more & !self.written[block * words + word];
                            changed = true;
                        }
                    }
                }
            }
        }
    }

    fn name_of(&self, mut number: u32) -> usize {
        while self.joined[number as usize] != number {
            number = self.joined[number as usize];
        }
        number as usize
    }

    fn name(&self, r: R) -> usize {
        self.numbers.get(&r).map_or(0, |&number| self.name_of(number))
    }

    /// Something is written to one register while the other is needed; a copy of the other does no harm.
    fn clash(&self, written: usize, needed: usize) -> bool {
        self.named[written].iter().filter(|named| named.writes).any(|named| {
            let is_copy = named.copied.is_some_and(|from| self.name_of(from) == needed);
            !is_copy && self.is_needed_after(needed, named.at)
        })
    }

    fn is_needed_after(&self, number: usize, at: u32) -> bool {
        let (block, all) = (self.inside[at as usize] as usize, &self.named[number]);
        match all.get(all.partition_point(|named| named.at <= at)) {
            Some(next) if next.at < self.blocks[block].end => next.reads,
            _ => self.after[block * self.words + number / 64] >> (number % 64) & 1 != 0,
        }
    }

    fn join(&mut self, to: usize, from: usize) {
        self.joined[from] = to as u32;
        let mut all = std::mem::take(&mut self.named[from]);
        all.append(&mut self.named[to]);
        all.sort_by_key(|named| named.at);
        // Where one instruction names both.
        all.dedup_by(|next, kept| {
            let same = next.at == kept.at;
            if same {
                kept.copied = if kept.writes { kept.copied } else { next.copied };
                (kept.reads, kept.writes) = (kept.reads | next.reads, kept.writes | next.writes);
            }
            same
        });
        self.named[to] = all;
        for block in 0..self.blocks.len() {
            for bits in [&mut self.after, &mut self.before] {
                let bit = bits[block * self.words + from / 64] >> (from % 64) & 1;
                bits[block * self.words + to / 64] |= bit << (to % 64);
            }
        }
    }
}

/// The stretches of some code, and for each instruction the one that it is in.
fn stretches(code: &[M], labels: u32) -> (Vec<Stretch>, Vec<u32>) {
    let mut bound = vec![0; labels as usize];
    let (mut blocks, mut inside): (Vec<Stretch>, Vec<u32>) = (Vec::new(), Vec::with_capacity(code.len()));
    let mut begins = true;
    for (at, m) in (0..).zip(code) {
        if begins || matches!(m, M::Label(_)) {
            blocks.push(Stretch { end: at, then: Vec::new() });
        }
        let block = blocks.len() - 1;
        blocks[block].end = at + 1;
        inside.push(block as u32);
        if let M::Label(Label(label)) = m {
            bound[*label as usize] = block as u32;
        }
        begins = matches!(m, M::Jump(_) | M::JumpIf(..));
    }
    let count = blocks.len() as u32;
    for (next, block) in (1..).zip(&mut blocks) {
        let last = code[block.end as usize - 1];
        if let M::Jump(Label(label)) | M::JumpIf(_, Label(label)) = last {
            block.then.push(bound[label as usize]);
        }
        if !matches!(last, M::Jump(_)) && next < count {
            block.then.push(next);
        }
    }
    (blocks, inside)
}

#[cfg(test)]
mod tests {
    use super::super::asm::{Asm, Cond, Shift};
    use super::super::emit;
    use super::super::isa::Isa;
    use super::super::mir::At;
    use super::*;

    /// Copies that are left of some code on four registers.
    fn copies(mut code: Vec<M>) -> usize {
        let allocation = emit::assign(&mut code, [4, 0, 0], 2, &Asm::default(), Isa::Avx2);
        join(&mut code, 2, &allocation);
        code.iter().filter(|m| matches!(m, M::Mov { .. })).count()
    }

    fn store(src: R) -> M {
        M::Store { bytes: 4, src, at: At::new(R::STACK, 0) }
    }

    #[test]
    fn what_a_loop_carries_is_changed_in_its_place() {
        let [sum, bit, set, next] = [0, 1, 2, 3].map(|index| R::new(Class::General, index));
        let (top, wide) = (Label(0), false);
        let round = |between: &[M]| {
            let mut code = vec![
                M::Imm { dst: sum, value: 1 },
                M::Imm { dst: bit, value: 3 },
                M::Label(top),
                M::Alu { op: Alu::Or, wide, dst: set, a: bit, b: GSrc::R(sum) },
                M::Shift { op: Shift::Left, wide, dst: next, a: set, count: GSrc::Imm(1) },
            ];
            code.extend_from_slice(between);
            code.extend([
                M::Mov { dst: sum, src: next },
                M::Cmp { wide, a: next, b: GSrc::Imm(1000) },
                M::JumpIf(Cond::Below, top),
                store(sum),
            ]);
            code
        };
        assert_eq!(copies(round(&[])), 0);
        // The old sum is needed once more.
        assert_eq!(copies(round(&[store(sum)])), 1);
        let mut code = round(&[]);
        let allocation = emit::assign(&mut code, [4, 0, 0], 2, &Asm::default(), Isa::Avx2);
        assert!(join(&mut code, 2, &allocation));
        let changed = |m: &M| match *m {
            M::Alu { dst, b, .. } => b == GSrc::R(dst),
            M::Shift { dst, a, .. } => dst == a,
            _ => true,
        };
        assert!(code.iter().all(changed), "{code:?}");
    }

    #[test]
    fn a_way_out_may_need_the_old_value() {
        let [top, next, ..] = [0, 1].map(|index| R::new(Class::General, index));
        let (start, out, wide) = (Label(0), Label(1), false);
        let search = |left: R| {
            vec![
                M::Imm { dst: top, value: 9 },
                M::Label(start),
                M::Alu { op: Alu::Sub, wide, dst: next, a: top, b: GSrc::Imm(1) },
                M::Cmp { wide, a: next, b: GSrc::Imm(4) },
                M::JumpIf(Cond::Less, out),
                M::Mov { dst: top, src: next },
                M::Jump(start),
                M::Label(out),
                store(left),
            ]
        };
        assert_eq!(copies(search(next)), 0);
        assert_eq!(copies(search(top)), 1);
    }
}
