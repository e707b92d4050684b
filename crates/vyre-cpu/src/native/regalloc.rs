//! Linear-scan register allocation. An interval is one range of positions, widened over every loop that it crosses; a value
//! that gets no register lives in its stack slot throughout.

use super::asm::Label;
use super::mir::{Class, M, R, Role};

/// Where a virtual register lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Never used.
    Nowhere,
    Reg(u8),
    /// Number of a stack slot of the class.
    Slot(u32),
}

/// Registers that may be given out, per class.
#[derive(Clone, Debug)]
pub(super) struct Available {
    pub(super) regs: [Vec<u8>; 3],
}

/// The range in which a virtual register holds its value. Positions are twice the instruction's number, plus one for what it
/// defines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    pub(super) start: u32,
    pub(super) end: u32,
    /// Uses, those in loops counting more.
    weight: f32,
}

/// What a use costs that reads its stack slot without an instruction of its own.
const FOLDED: f32 = 0.25;

/// How much an instruction counts that is gone through together with a call, on a way of its own: saving registers for the call takes longer
/// than what waits on the stack there.
const BESIDE_CALL: f32 = 0.001;

const EMPTY: Interval = Interval { start: u32::MAX, end: 0, weight: 0.0 };

/// The result.
#[derive(Debug)]
pub(super) struct Allocation {
    pub(super) places: [Vec<Place>; 3],
    pub(super) intervals: [Vec<Interval>; 3],
    /// Stack slots used, per class.
    pub(super) slots: [u32; 3],
    /// How much the vectors on the stack are used, those in loops counting more.
    pub(super) vector_cost: f32,
    /// The same for masks.
    pub(super) mask_cost: f32,
    /// How much all instructions are used, counted in the same way.
    pub(super) total_cost: f32,
}

impl Allocation {
    pub(super) fn place(&self, r: R) -> Place {
        match r.fixed() {
            Some(reg) => Place::Reg(reg),
            None => self.places[r.class() as usize][r.index()],
        }
    }

    /// Physical registers of a class that hold values across an instruction.
    pub(super) fn live_across(&self, class: Class, instruction: usize) -> Vec<u8> {
        let at = instruction as u32 * 2;
        let class = class as usize;
        let mut regs: Vec<u8> = self.intervals[class]
            .iter()
            .zip(&self.places[class])
            .filter(|(interval, _)| interval.start < at && interval.end > at)
            .filter_map(|(_, place)| match place {
                Place::Reg(reg) => Some(*reg),
                _ => None,
            })
            .collect();
        regs.sort_unstable();
        regs.dedup();
        regs
    }
}

/// Computes the intervals of all virtual registers; `counts` says how many there are of each class. `free` are instructions that cost
/// nothing where what they make is not given a register. Gives them with the weight of all instructions.
pub(super) fn intervals(
    code: &mut [M],
    counts: [u32; 3],
    labels: u32,
    free: impl Fn(&M) -> bool,
) -> ([Vec<Interval>; 3], f32) {
    let loops = Loops::of(code, labels);
    let rounds = loops.rounds(code, labels);
    let beside_call = loops.beside_calls(code, labels);
    let mut all: [Vec<Interval>; 3] = counts.map(|count| vec![EMPTY; count as usize]);
    let mut total = 0.0;
    for (at, m) in code.iter_mut().enumerate() {
        // Depth is capped: more says nothing more.
        let mut weight = [1.0, 10.0, 100.0, 1000.0][rounds[at].min(3)];
        if beside_call.get(at) == Some(&true) {
            weight *= BESIDE_CALL;
        }
        total += weight;
        let at = at as u32 * 2;
        let is_free = free(m);
        m.visit(&mut |r, role| {
            let interval = &mut all[r.class() as usize][r.index()];
            interval.weight += match role {
                _ if is_free => 0.0,
                Role::Fold => weight * FOLDED,
                _ => weight,
            };
            let (from, to) = match role {
                Role::Use | Role::Fold => (at, at),
                Role::Def => (at + 1, at + 1),
                Role::Both => (at, at + 1),
            };
            interval.start = interval.start.min(from);
            interval.end = interval.end.max(to);
        });
    }
    for interval in all.iter_mut().flatten().filter(|interval| interval.start != u32::MAX) {
        interval.end = loops.widened(interval.start, interval.end);
    }
    (all, total)
}

/// How many loops go through each instruction.
pub(super) fn rounds(code: &[M], labels: u32) -> Vec<usize> {
    Loops::of(code, labels).rounds(code, labels)
}

/// The loops of some code, each in the one around it.
struct Loops {
    /// First and last instruction, and number of the loop around it.
    loops: Vec<(u32, u32, u32)>,
    /// For each instruction the innermost loop that it is in.
    inside: Vec<u32>,
    depths: Vec<u8>,
}

/// In no loop.
const OUTSIDE: u32 = u32::MAX;

impl Loops {
    fn of(code: &[M], labels: u32) -> Loops {
        let mut bound = vec![u32::MAX; labels as usize];
        let mut ends: Vec<(u32, u32)> = Vec::new();
        for (at, m) in code.iter().enumerate() {
            match m {
                M::Label(Label(label)) => bound[*label as usize] = at as u32,
                M::Jump(Label(label)) | M::JumpIf(_, Label(label)) if bound[*label as usize] != u32::MAX => {
                    let start = bound[*label as usize];
                    match ends.iter_mut().rev().find(|(s, _)| *s == start) {
                        Some((_, end)) => *end = at as u32,
                        None => ends.push((start, at as u32)),
                    }
                }
                _ => {}
            }
        }
        ends.sort_unstable();
        let mut loops: Vec<(u32, u32, u32)> = Vec::with_capacity(ends.len());
        let mut inside = vec![OUTSIDE; code.len()];
        let mut depths: Vec<u8> = Vec::with_capacity(ends.len());
        for (start, end) in ends {
            let around = inside[start as usize];
            // Code is made of blocks in blocks, so an inner loop ends before the outer one.
            debug_assert!(around == OUTSIDE || loops[around as usize].1 >= end, "loops cross");
            let number = loops.len() as u32;
            inside[start as usize..=end as usize].fill(number);
            depths.push(if around == OUTSIDE { 1 } else { depths[around as usize].saturating_add(1) });
            loops.push((start, end, around));
        }
        Loops { loops, inside, depths }
    }

    fn depth(&self, at: usize) -> usize {
        match self.inside[at] {
            OUTSIDE => 0,
            number => usize::from(self.depths[number as usize]),
        }
    }

    /// How many loops go through each instruction. What ends in a jump out of a loop is done once in it.
    fn rounds(&self, code: &[M], labels: u32) -> Vec<usize> {
        let mut bound = vec![0; labels as usize];
        for (at, m) in code.iter().enumerate() {
            if let M::Label(Label(label)) = m {
                bound[*label as usize] = at;
            }
        }
        let mut rounds = vec![0; code.len()];
        // How many loops go through where the code goes on, come what may.
        let mut then = usize::MAX;
        for (at, m) in code.iter().enumerate().rev() {
            match m {
                M::Jump(Label(label)) => then = self.depth(bound[*label as usize]),
                M::JumpIf(..) => then = usize::MAX,
                _ => {}
            }
            rounds[at] = self.depth(at).min(then);
        }
        rounds
    }

    /// Which instructions are jumped over together with a call; nothing where there are no calls.
    fn beside_calls(&self, code: &[M], labels: u32) -> Vec<bool> {
        if !code.iter().any(|m| matches!(m, M::Call { .. })) {
            return Vec::new();
        }
        let mut bound = vec![0; labels as usize];
        for (at, m) in code.iter().enumerate() {
            if let M::Label(Label(label)) = m {
                bound[*label as usize] = at;
            }
        }
        let mut beside = vec![false; code.len()];
        // The ways that can be jumped over here, by where they begin and end, the innermost last.
        let mut ways: Vec<(usize, usize)> = Vec::new();
        for (at, m) in code.iter().enumerate() {
            ways.retain(|&(_, end)| end > at);
            match m {
                M::JumpIf(_, Label(label)) => {
                    let end = bound[*label as usize];
                    // A jump out of a loop is not over a part of a round.
                    if end > at && self.inside[end] == self.inside[at] {
                        ways.push((at + 1, end));
                    }
                }
                M::Call { .. } => {
                    let around = match self.inside[at] {
                        OUTSIDE => code.len(),
                        number => (self.loops[number as usize].1 - self.loops[number as usize].0) as usize,
                    };
                    // What is most of a round is no exception.
                    if let Some(&(start, end)) = ways.last().filter(|(start, end)| 2 * (end - start) < around) {
                        beside[start..end].fill(true);
                    }
                }
                _ => {}
            }
        }
        beside
    }

    /// The end of a range of positions: what lives into a loop lives to its end.
    fn widened(&self, start: u32, mut end: u32) -> u32 {
        let mut number = self.inside[end as usize / 2];
        while number != OUTSIDE {
            let (first, last, around) = self.loops[number as usize];
            if start >= first * 2 {
                break;
            }
            end = last * 2 + 1;
            number = around;
        }
        end
    }
}

/// Gives registers to the intervals of all classes. `spare` is what is left of a class when some of its registers are kept for
/// values on the stack; it is taken where not all intervals fit into the whole.
pub(super) fn allocate(
    intervals: [Vec<Interval>; 3],
    total_cost: f32,
    whole: &Available,
    spare: &Available,
) -> Allocation {
    let mut places: [Vec<Place>; 3] = Default::default();
    let mut slots = [0; 3];
    let (mut vector_cost, mut mask_cost) = (0.0, 0.0);
    for (class, ranges) in intervals.iter().enumerate() {
        let mut given = Given::to(ranges, &whole.regs[class], |_, _| false);
        if !given.spilled.is_empty() && spare.regs[class] != whole.regs[class] {
            given = Given::to(ranges, &spare.regs[class], |_, _| false);
        }
        let cost = || given.spilled.iter().map(|&i| ranges[i as usize].weight).sum();
        if class == Class::Vector as usize {
            vector_cost = cost();
        } else if class == Class::Mask as usize {
            mask_cost = cost();
        }
        slots[class] = given.share_slots(ranges);
        places[class] = given.places;
    }
    Allocation { places, intervals, slots, vector_cost, mask_cost, total_cost }
}

/// Gives registers to the intervals of one class anew. Those of `others` get the register `dear` only where there is no other.
pub(super) fn allocate_again(
    allocation: &mut Allocation,
    class: Class,
    intervals: [Vec<Interval>; 3],
    regs: &[u8],
    (dear, others): (u8, &[R]),
) {
    let class = class as usize;
    let mut minds = vec![false; intervals[class].len()];
    others.iter().for_each(|r| minds[r.index()] = true);
    let mut given = Given::to(&intervals[class], regs, |i, reg| reg == dear && minds[i as usize]);
    allocation.slots[class] = given.share_slots(&intervals[class]);
    allocation.places[class] = given.places;
    allocation.intervals = intervals;
}

/// Registers given to the intervals of one class.
struct Given {
    places: Vec<Place>,
    spilled: Vec<u32>,
}

/// The end of a list of intervals.
const LAST: u32 = u32::MAX;

impl Given {
    /// Walks over all positions; where registers run out, the interval with the least use for its length goes to the stack. One that `minds` a register
    /// gets another one where that is free.
    fn to(ranges: &[Interval], regs: &[u8], minds: impl Fn(u32, u8) -> bool) -> Given {
        let positions = ranges.iter().map(|range| range.end + 2).max().unwrap_or(0) as usize;
        // The intervals that start at a position, and those that end before it, as lists.
        let (mut starting, mut ending) = (vec![LAST; positions], vec![LAST; positions]);
        let (mut next_starting, mut next_ending) = (vec![LAST; ranges.len()], vec![LAST; ranges.len()]);
        for (i, range) in ranges.iter().enumerate().rev().filter(|(_, range)| range.start != u32::MAX) {
            next_starting[i] = std::mem::replace(&mut starting[range.start as usize], i as u32);
            next_ending[i] = std::mem::replace(&mut ending[range.end as usize + 1], i as u32);
        }
        let mut given = Given { places: vec![Place::Nowhere; ranges.len()], spilled: Vec::new() };
        let mut free: Vec<u8> = regs.iter().rev().copied().collect();
        // For each register that is given out, to whom, and what it would cost to have that on the stack.
        let mut owners = [(LAST, 0.0f32); 32];
        for position in 0..positions {
            let mut i = ending[position];
            while i != LAST {
                if let Place::Reg(reg) = given.places[i as usize] {
                    free.push(reg);
                }
                i = next_ending[i as usize];
            }
            let mut i = starting[position];
            while i != LAST {
                let range = &ranges[i as usize];
                let cost = range.weight / (range.end - range.start + 1) as f32;
                let cheapest = || {
                    regs.iter().copied().min_by(|&a, &b| owners[usize::from(a)].1.total_cmp(&owners[usize::from(b)].1))
                };
                if let [.., other, last] = &mut free[..]
                    && minds(i, *last)
                {
                    std::mem::swap(other, last);
                }
                let reg = match free.pop() {
                    Some(reg) => Some(reg),
                    None => cheapest().filter(|&reg| owners[usize::from(reg)].1 < cost).inspect(|&reg| {
                        let (old, _) = owners[usize::from(reg)];
                        given.places[old as usize] = Place::Nowhere;
                        given.spilled.push(old);
                    }),
                };
                match reg {
                    Some(reg) => {
                        owners[usize::from(reg)] = (i, cost);
                        given.places[i as usize] = Place::Reg(reg);
                    }
                    None => given.spilled.push(i),
                }
                i = next_starting[i as usize];
            }
        }
        given
    }

    /// Gives stack slots to the others; intervals that don't meet share one. Gives the number of slots.
    fn share_slots(&mut self, ranges: &[Interval]) -> u32 {
        self.spilled.sort_unstable_by_key(|&i| ranges[i as usize].start);
        let mut ends: Vec<u32> = Vec::new();
        for &i in &self.spilled {
            let range = &ranges[i as usize];
            let slot = match ends.iter().position(|&end| end < range.start) {
                Some(slot) => slot,
                None => {
                    ends.push(0);
                    ends.len() - 1
                }
            };
            ends[slot] = range.end;
            self.places[i as usize] = Place::Slot(slot as u32);
        }
        ends.len() as u32
    }
}
