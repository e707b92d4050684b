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

    /// Nothing reads the register.
    pub(super) fn is_unused(&self, r: R) -> bool {
        let interval = &self.intervals[r.class() as usize][r.index()];
        interval.start == interval.end
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

/// Computes the intervals of all virtual registers; `counts` says how many there are of each class.
/// Gives them with the weight of all instructions.
pub(super) fn intervals(code: &mut [M], counts: [u32; 3], labels: u32) -> ([Vec<Interval>; 3], f32) {
    let mut bound = vec![u32::MAX; labels as usize];
    let mut loops: Vec<(u32, u32)> = Vec::new();
    for (at, m) in code.iter().enumerate() {
        match m {
            M::Label(Label(label)) => bound[*label as usize] = at as u32,
            M::Jump(Label(label)) | M::JumpIf(_, Label(label)) if bound[*label as usize] != u32::MAX => {
                let start = bound[*label as usize];
                match loops.iter_mut().find(|(s, _)| *s == start) {
                    Some((_, end)) => *end = at as u32,
                    None => loops.push((start, at as u32)),
                }
            }
            _ => {}
        }
    }
    // Depth of each instruction, capped: more says nothing more.
    let mut change = vec![0i32; code.len() + 1];
    for &(start, end) in &loops {
        change[start as usize] += 1;
        change[end as usize + 1] -= 1;
    }
    let mut all: [Vec<Interval>; 3] = counts.map(|count| vec![EMPTY; count as usize]);
    let (mut depth, mut total) = (0, 0.0);
    for (at, m) in code.iter_mut().enumerate() {
        depth += change[at];
        let weight = [1.0, 10.0, 100.0, 1000.0][depth.clamp(0, 3) as usize];
        total += weight;
        let at = at as u32 * 2;
        m.visit(&mut |r, role| {
            let interval = &mut all[r.class() as usize][r.index()];
            interval.weight += if role == Role::Fold { weight * FOLDED } else { weight };
            let (from, to) = match role {
                Role::Use | Role::Fold => (at, at),
                Role::Def => (at + 1, at + 1),
                Role::Both => (at, at + 1),
            };
            interval.start = interval.start.min(from);
            interval.end = interval.end.max(to);
        });
    }
    // Inner loops end first, so one pass from the innermost outwards widens over all of them.
    loops.sort_unstable_by_key(|&(start, end)| (end, std::cmp::Reverse(start)));
    for class in &mut all {
        for interval in class.iter_mut() {
            for &(start, end) in &loops {
                let (start, end) = (start * 2, end * 2 + 1);
                if interval.start < start && interval.end >= start && interval.end < end {
                    interval.end = end;
                }
            }
        }
    }
    (all, total)
}

/// Gives registers to the intervals; those with the least use for their length go to the stack.
pub(super) fn allocate(intervals: [Vec<Interval>; 3], total_cost: f32, available: &Available) -> Allocation {
    let mut places: [Vec<Place>; 3] = Default::default();
    let mut slots = [0; 3];
    let mut vector_cost = 0.0;
    for class in 0..3 {
        let ranges = &intervals[class];
        places[class] = vec![Place::Nowhere; ranges.len()];
        let mut order: Vec<usize> = (0..ranges.len()).filter(|&i| ranges[i].start != u32::MAX).collect();
        order.sort_unstable_by_key(|&i| ranges[i].start);
        let mut free: Vec<u8> = available.regs[class].iter().rev().copied().collect();
        let mut active: Vec<(usize, u8)> = Vec::new();
        let mut spilled: Vec<usize> = Vec::new();
        for i in order {
            active.retain(|&(j, reg)| {
                let keep = ranges[j].end >= ranges[i].start;
                if !keep {
                    free.push(reg);
                }
                keep
            });
            if let Some(reg) = free.pop() {
                active.push((i, reg));
                places[class][i] = Place::Reg(reg);
                continue;
            }
            let cost = |j: usize| ranges[j].weight / (ranges[j].end - ranges[j].start + 1) as f32;
            let cheapest = active
                .iter()
                .enumerate()
                .min_by(|(_, a), (_, b)| cost(a.0).total_cmp(&cost(b.0)))
                .map(|(position, &(j, reg))| (position, j, reg));
            match cheapest {
                Some((position, j, reg)) if cost(j) < cost(i) => {
                    active[position] = (i, reg);
                    places[class][i] = Place::Reg(reg);
                    spilled.push(j);
                }
                _ => spilled.push(i),
            }
        }
        // Slots are shared by intervals that don't meet.
        spilled.sort_unstable_by_key(|&i| ranges[i].start);
        let mut ends: Vec<u32> = Vec::new();
        for i in spilled {
            if class == Class::Vector as usize {
                vector_cost += ranges[i].weight;
            }
            let slot = match ends.iter().position(|&end| end < ranges[i].start) {
                Some(slot) => slot,
                None => {
                    ends.push(0);
                    ends.len() - 1
                }
            };
            ends[slot] = ranges[i].end;
            places[class][i] = Place::Slot(slot as u32);
        }
        slots[class] = ends.len() as u32;
    }
    Allocation { places, intervals, slots, vector_cost, total_cost }
}
