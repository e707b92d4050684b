//! One test before a loop instead of one for each access in it.
//!
//! Where the index of an access grows evenly with a loop's counter, its first value and its last say whether all of them are inside; so
//! too in a nest of two loops, and where it shrinks. They are tested once; the loop is then there twice: without these guards, and as it was for when the test
//! fails, which is seldom. Without guards an index can't wrap, so what it grows by becomes part of the address, and of an offset when
//! the loop is unrolled. Indices that are a constant apart share their first value, and so the registers of one address.
//!
//! An index that is clamped, as that of a pixel at the edge of an image, is at most what the edges say, in all rounds; that is tested in the same way.
//!
//! What is loaded and computed in every round but one, as where `j == i` is left out, comes before that is asked: it is inside, and several
//! rounds can then be under way at once.

use hashbrown::{HashMap, HashSet};

use super::ranges;
use super::values::Values;
use crate::kernel::walk::{
    Effect, access, defined_in, each_inst, each_inst_mut, each_operand_mut, has_loop, replace_insts, results, written,
};
use crate::kernel::{Address, Binary, Block, Counter, End, Inst, Kernel, Loop, Memory, Op, Scalar, Value};

/// Steps that a loop may have, as it is there twice.
pub(super) const MOST_STEPS: usize = 128;
/// Steps of one whose private arrays have become values, with all of their rounds written out.
pub(super) const MOST_STEPS_OF_VALUES: usize = 320;
/// Different guards that a loop is tested for.
const MOST_GUARDS: usize = 8;
/// Rounds for which a test of indices that grow by a value takes longer than theirs: no address is part of another then.
const FEW_ROUNDS: i128 = 4;
/// How deep a clamped index is looked into.
const DEEPEST: u32 = 8;
/// How far apart indices with one first value may be.
const MOST_AHEAD: u32 = 1 << 24;

/// Makes two loops of those with at most so many steps.
pub(super) fn run(kernel: &mut Kernel, most_steps: usize) {
    if !has_loop(&kernel.body) {
        return;
    }
    // What will be proven without a test.
    let mut proven = kernel.clone();
    let mut values = Values::with_definitions(&mut proven);
    ranges::run(&mut proven, &mut values, false, false);
    let mut open = HashSet::new();
    each_inst(&proven.body, &mut |inst| open.extend(guard_of(inst)));
    let mut versions = Versions { open, most_steps, values: Values::with_definitions(kernel) };
    versions.block(&mut kernel.body);
    versions.values.give_back(kernel);
}

fn guard_of(inst: &Inst) -> Option<Value> {
    match inst {
        Inst::Let(_, Op::Load { guard, .. }) | Inst::Store { guard, .. } | Inst::Atomic { guard, .. } => *guard,
        _ => None,
    }
}

/// How much an index grows when a counter grows by one, modulo 2³²: by a number, or so many times a value of 32 bits.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Growth {
    by: u32,
    value: Option<Value>,
}

impl Growth {
    fn new(by: u32, value: Option<Value>) -> Growth {
        Growth { by, value: value.filter(|_| by != 0) }
    }

    fn by(by: u32) -> Growth {
        Growth::new(by, None)
    }

    fn times(self, factor: u32) -> Growth {
        Growth::new(self.by.wrapping_mul(factor), self.value)
    }

    fn plus(self, other: Growth) -> Option<Growth> {
        match (self.by, other.by) {
            (0, _) => Some(other),
            (_, 0) => Some(self),
            _ if self.value == other.value => Some(Growth::new(self.by.wrapping_add(other.by), self.value)),
            _ => None,
        }
    }

    /// What shrinks seems to grow by more than half of all numbers.
    fn is_down(self) -> bool {
        self.by > i32::MAX as u32
    }

    fn size(self) -> u32 {
        (self.by as i32).unsigned_abs()
    }
}

/// A guard `index < length`, or `index / 4 < length` of a byte and its word, that one test can settle, and how the index grows with each counter.
struct Even {
    guard: Value,
    index: Value,
    /// How far the index is shifted to the right before it is compared.
    shift: u32,
    length: Value,
    growths: Vec<Growth>,
}

/// A guard `index < length` of an index that is never more than something which is known before the loop, as a u64.
struct Clamped {
    guard: Value,
    most: Value,
    length: Value,
}

/// What an index is at its least: a value and a number, whose sum does not wrap where the test holds.
#[derive(Clone, Copy)]
struct First {
    value: Value,
    ahead: u32,
}

/// A loop or two with what is defined in them.
struct Nest {
    counters: Vec<Counter>,
    inside: HashSet<Value>,
}

/// What is known before a loop of how far one of its counters goes.
struct Way {
    from: Value,
    /// One less than where it ends.
    last: Value,
    /// How far it goes at most, as a u64; far too far where the loop has no rounds.
    span: Value,
}

struct Versions {
    /// Guards that are not proven.
    open: HashSet<Value>,
    most_steps: usize,
    values: Values,
}

impl Versions {
    fn block(&mut self, block: &mut Block) {
        let mut insts = Vec::with_capacity(block.insts.len());
        for mut inst in std::mem::take(&mut block.insts) {
            match &mut inst {
                Inst::If { then, otherwise, .. } => {
                    self.block(then);
                    self.block(otherwise);
                }
                Inst::Loop(inner) => match self.versions(inner, &mut insts) {
                    Some(both) => inst = both,
                    None => self.block(&mut inner.body),
                },
                _ => {}
            }
            insts.push(inst);
        }
        block.insts = insts;
    }

    /// A short loop, or two, that other invocations and private arrays have no part in: an array would not become values in the
    /// version that is left as it is, and of workgroup memory that is written in a branch nobody knows that all of it is.
    fn nest(inner: &Loop, most_steps: usize) -> Option<Nest> {
        let mut counters = vec![inner.counter?];
        let (mut simple, mut steps) = (true, 0);
        each_inst(&inner.body, &mut |inst| {
            steps += 1;
            simple &= match inst {
                Inst::Barrier(_) => false,
                Inst::Loop(second) => {
                    counters.extend(second.counter);
                    second.counter.is_some() && !has_loop(&second.body)
                }
                Inst::Let(_, op) if op.is_across_subgroup() => false,
                inst => match access(inst) {
                    Some((address, Effect::Read)) => !matches!(address.memory, Memory::Local(_)),
                    Some((address, _)) => matches!(address.memory, Memory::Buffer(_)),
                    None => true,
                },
            };
        });
        let inside = defined_in(inner);
        let fixed = |counter: &Counter| !inside.contains(&counter.from) && !inside.contains(&counter.to);
        (simple && steps <= most_steps && counters.len() <= 2 && counters.iter().all(fixed))
            .then_some(Nest { counters, inside })
    }

    fn versions(&mut self, inner: &mut Loop, insts: &mut Vec<Inst>) -> Option<Inst> {
        if inner.rare {
            return None;
        }
        let nest = Self::nest(inner, self.most_steps)?;
        let mut evens: Vec<Even> = Vec::new();
        let mut guards = Vec::new();
        each_inst(&inner.body, &mut |inst| guards.extend(guard_of(inst)));
        for &guard in &guards {
            if self.open.contains(&guard) && !evens.iter().any(|even| even.guard == guard) {
                evens.extend(self.even(guard, &nest));
            }
        }
        let by_values = |even: &Even| even.growths.iter().all(|growth| growth.by == 0 || growth.value.is_some());
        let is_dear = evens.iter().all(by_values) && self.rounds(&nest).is_some_and(|rounds| rounds <= FEW_ROUNDS);
        if is_dear {
            evens.clear();
        }
        let mut before = Vec::new();
        let clamped = self.clamped(&guards, &evens, &nest, &mut before);
        if evens.is_empty() && clamped.is_empty() || evens.len() + clamped.len() > MOST_GUARDS {
            return None;
        }
        insts.append(&mut before);
        let ways: Vec<Way> = nest.counters.iter().map(|counter| self.way(counter, insts)).collect();
        let mut all = None;
        for Clamped { most, length, .. } in &clamped {
            let length = self.values.define(Scalar::U64, Op::Cast(*length), insts);
            let holds = self.values.binary(Binary::Lt, *most, length, insts);
            all = Some(self.both(all, holds, insts));
        }
        let mut firsts = HashMap::new();
        for (at, even) in evens.iter().enumerate() {
            let before = evens[..at].iter().find_map(|other| {
                let First { value, ahead } = firsts[&other.guard];
                (ahead == 0).then(|| self.ahead(other, even)).flatten().map(|ahead| First { value, ahead })
            });
            let first = match before {
                Some(first) => first,
                None => First { value: self.at(even.index, &nest, &Self::least(even, &ways), insts), ahead: 0 },
            };
            firsts.insert(even.guard, first);
            let length = self.at(even.length, &nest, &Self::least(even, &ways), insts);
            let holds = self.test(even, first, length, &ways, insts);
            all = Some(self.both(all, holds, insts));
        }
        let free = self.without(inner, &nest, (&evens, &clamped), &firsts, &ways);
        let mut kept = inner.clone();
        mark_rare(&mut kept);
        kept.results = self.values.all_like(&inner.results);
        let way = |version: Loop| {
            let end = End::Yield(version.results.clone());
            Box::new(Block { insts: vec![Inst::Loop(Box::new(version))], end })
        };
        let results = std::mem::take(&mut inner.results);
        Some(Inst::If { cond: all?, then: way(free), otherwise: way(kept), results })
    }

    fn both(&mut self, all: Option<Value>, holds: Value, insts: &mut Vec<Inst>) -> Value {
        match all {
            Some(all) => self.values.binary(Binary::And, all, holds, insts),
            None => holds,
        }
    }

    /// The guards, but for those that are tested otherwise, whose indices are clamped. Those with the same edges have one test.
    fn clamped(&mut self, guards: &[Value], evens: &[Even], nest: &Nest, insts: &mut Vec<Inst>) -> Vec<Clamped> {
        let mut all: Vec<Clamped> = Vec::new();
        for &guard in guards {
            let Some(&Op::Binary(Binary::Lt, index, length)) = self.values.def(guard) else { continue };
            let is_known = evens.iter().any(|even| even.guard == guard) || all.iter().any(|other| other.guard == guard);
            let is_word = self.values.scalar(index) == Scalar::U32;
            if is_known || !self.open.contains(&guard) || !is_word || nest.inside.contains(&length) {
                continue;
            }
            let mut made = Vec::new();
            if nest.inside.contains(&index)
                && let Some(most) = self.most(index, nest, DEEPEST, &mut made)
            {
                insts.append(&mut made);
                all.push(Clamped { guard, most, length });
            }
        }
        all
    }

    /// What a word without its sign is at most, as a u64 made of what is known before the loops.
    fn most(&mut self, value: Value, nest: &Nest, depth: u32, insts: &mut Vec<Inst>) -> Option<Value> {
        if !matches!(self.values.scalar(value), Scalar::U32 | Scalar::I32) || depth == 0 {
            return None;
        }
        if !nest.inside.contains(&value) && !nest.counters.iter().any(|counter| counter.value == value) {
            let bits = self.bits(value, insts);
            return Some(self.values.define(Scalar::U64, Op::Cast(bits), insts));
        }
        if let Some(number) = self.values.number(value) {
            return Some(self.number_of_64(u64::from(number as u32), insts));
        }
        match self.values.def(value)?.clone() {
            Op::BitCast(a) => self.most(a, nest, depth - 1, insts),
            // Beside a number without sign the other is the least, as long as it has none; with one it is the result, and large.
            Op::Binary(Binary::Min, a, b) if self.has_no_sign(a, depth) && self.has_no_sign(b, depth) => {
                let one = self.most(b, nest, depth - 1, insts);
                one.or_else(|| self.most(a, nest, depth - 1, insts))
            }
            Op::Binary(Binary::Min, a, b) if self.has_no_sign(a, depth) => self.most(b, nest, depth - 1, insts),
            Op::Binary(Binary::Min, a, b) if self.has_no_sign(b, depth) => self.most(a, nest, depth - 1, insts),
            // What is not taken for the least number is the least of two without signs.
            Op::Binary(Binary::Max, least, none) if self.values.number(none) == Some(0) => {
                let Some(&Op::Binary(Binary::Min, a, b)) = self.values.def(least) else { return None };
                let one = self.most(b, nest, depth - 1, insts);
                one.or_else(|| self.most(a, nest, depth - 1, insts))
            }
            Op::Binary(op @ (Binary::Add | Binary::Mul), a, b) => {
                let (a, b) = (self.most_word(a, nest, depth, insts)?, self.most_word(b, nest, depth, insts)?);
                Some(self.values.binary(op, a, b, insts))
            }
            Op::Binary(Binary::Shl, a, by) => {
                let by = self.values.number(by).filter(|by| (0..32).contains(by))?;
                let (a, by) = (self.most_word(a, nest, depth, insts)?, self.number_of_64(1 << by, insts));
                Some(self.values.binary(Binary::Mul, a, by, insts))
            }
            _ => None,
        }
    }

    /// The same, no more than a word can be: a sum or a product of two such numbers has 64 bits.
    fn most_word(&mut self, value: Value, nest: &Nest, depth: u32, insts: &mut Vec<Inst>) -> Option<Value> {
        let most = self.most(value, nest, depth - 1, insts)?;
        let is_word = matches!(self.values.def(most), Some(Op::Cast(_) | Op::Const(_)));
        Some(if is_word { most } else { self.at_most(most, u32::MAX.into(), insts) })
    }

    fn has_no_sign(&self, value: Value, depth: u32) -> bool {
        let of = |value: Value| depth > 0 && self.has_no_sign(value, depth - 1);
        self.values.scalar(value) == Scalar::U32
            || self.values.number(value).is_some_and(|number| number >= 0)
            || match self.values.def(value) {
                Some(&Op::Binary(Binary::Max, a, b)) => of(a) || of(b),
                Some(&Op::Binary(Binary::Min, a, b)) => of(a) && of(b),
                _ => false,
            }
    }

    /// How many rounds there are, where that is known.
    fn rounds(&self, nest: &Nest) -> Option<i128> {
        nest.counters.iter().try_fold(1, |rounds, counter| {
            let span = self.values.number(counter.to)? - self.values.number(counter.from)?;
            Some(rounds * ((span.max(0) + i128::from(counter.step) - 1) / i128::from(counter.step)))
        })
    }

    /// The guard as a comparison of an index that grows evenly with something fixed.
    fn even(&self, guard: Value, nest: &Nest) -> Option<Even> {
        let Some(&Op::Binary(Binary::Lt, index, length)) = self.values.def(guard) else { return None };
        if self.values.scalar(index) != Scalar::U32 || !self.is_fixed(length, nest) {
            return None;
        }
        let (index, shift) = self.part_of_word(index, nest).unwrap_or((index, 0));
        let growth = |counter: &Counter| self.growth(index, counter.value, nest, 8);
        let growths = nest.counters.iter().map(growth).collect::<Option<Vec<Growth>>>()?;
        // The test makes some products less, to as much as a length may be.
        let is_made_less = |growth: &Growth| growth.value.is_some() && growth.size() != 1;
        (shift == 0 || !growths.iter().any(is_made_less)).then_some(Even { guard, index, shift, length, growths })
    }

    /// The place of a byte or half word, where an index is that of its word.
    fn part_of_word(&self, index: Value, nest: &Nest) -> Option<(Value, u32)> {
        let Some(&Op::Binary(Binary::Shr, part, by)) = self.values.def(index) else { return None };
        let shift = self.values.number(by).filter(|by| nest.inside.contains(&index) && (1..=2).contains(by))?;
        Some((part, shift as u32))
    }

    /// It is the same in all rounds, and can be known before the loop.
    fn is_fixed(&self, value: Value, nest: &Nest) -> bool {
        !nest.inside.contains(&value)
            || match self.values.def(value) {
                Some(Op::Const(_) | Op::Length(_)) => true,
                Some(Op::Binary(Binary::Min, a, b)) => [a, b].iter().all(|operand| !nest.inside.contains(*operand)),
                _ => false,
            }
    }

    fn growth(&self, value: Value, counter: Value, nest: &Nest, depth: u32) -> Option<Growth> {
        if value == counter {
            return Some(Growth::by(1));
        }
        if !nest.inside.contains(&value) || nest.counters.iter().any(|other| other.value == value) {
            return Some(Growth::by(0));
        }
        let ty = self.values.ty(value);
        if depth == 0 || ty.width != 1 || !matches!(ty.scalar, Scalar::U32 | Scalar::I32) {
            return None;
        }
        let of = |value: Value| self.growth(value, counter, nest, depth - 1);
        match self.values.def(value)? {
            Op::Binary(Binary::Add, a, b) => of(*a)?.plus(of(*b)?),
            Op::Binary(Binary::Sub, a, b) => of(*a)?.plus(of(*b)?.times(1u32.wrapping_neg())),
            Op::Binary(Binary::Mul, a, b) => {
                let (grows, fixed) = if nest.inside.contains(b) { (b, a) } else { (a, b) };
                if nest.inside.contains(fixed) {
                    return None;
                }
                match (of(*grows)?, self.values.number(*fixed)) {
                    (grows, Some(number)) => Some(grows.times(number as u32)),
                    (Growth { by, value: None }, None) => Some(Growth::new(by, Some(*fixed))),
                    _ => None,
                }
            }
            Op::Binary(Binary::Shl, a, by) => match (of(*a)?, self.values.number(*by)?) {
                (grows, by @ 0..=31) => Some(grows.times(1 << by)),
                _ => None,
            },
            Op::BitCast(a) => of(*a),
            _ => None,
        }
    }

    /// By how much the index of a guard is always ahead of another's, modulo 2³², where both grow alike and are compared with the same.
    fn ahead(&self, other: &Even, even: &Even) -> Option<u32> {
        if (other.length, other.shift) != (even.length, even.shift) || other.growths != even.growths {
            return None;
        }
        let mut terms = HashMap::new();
        let behind = self.sum(other.index, 1u32.wrapping_neg(), 8, &mut terms);
        let ahead = self.sum(even.index, 1, 8, &mut terms).wrapping_add(behind);
        (ahead <= MOST_AHEAD && terms.values().all(|times| *times == 0)).then_some(ahead)
    }

    /// Adds a value so many times to a sum of values, and gives the constant part of what was added, all modulo 2³².
    fn sum(&self, value: Value, times: u32, depth: u32, terms: &mut HashMap<Value, u32>) -> u32 {
        let is_word = |value: &Value| matches!(self.values.scalar(*value), Scalar::U32 | Scalar::I32);
        let number = |value: &Value| self.values.number(*value).map(|number| number as u32);
        let mut of = |value: &Value, by: u32| self.sum(*value, times.wrapping_mul(by), depth - 1, terms);
        match self.values.def(value).filter(|_| depth > 0 && is_word(&value)) {
            Some(Op::Const(_)) if number(&value).is_some() => number(&value).unwrap_or(0).wrapping_mul(times),
            Some(Op::Binary(Binary::Add, a, b)) => of(a, 1).wrapping_add(of(b, 1)),
            Some(Op::Binary(Binary::Sub, a, b)) => of(a, 1).wrapping_add(of(b, 1u32.wrapping_neg())),
            Some(Op::Binary(Binary::Mul, a, b)) if number(b).is_some() => of(a, number(b).unwrap_or(0)),
            Some(Op::Binary(Binary::Shl, a, b)) if number(b).is_some_and(|by| by < 32) => {
                of(a, 1 << number(b).unwrap_or(0))
            }
            Some(Op::BitCast(a)) if is_word(a) => of(a, 1),
            _ => {
                let known = terms.entry(value).or_insert(0);
                *known = known.wrapping_add(times);
                0
            }
        }
    }

    /// Where the counters are when an index is least: at the beginning where it grows with them, and at the end where it shrinks.
    fn least(even: &Even, ways: &[Way]) -> Vec<Value> {
        let least = |(growth, way): (&Growth, &Way)| if growth.is_down() { way.last } else { way.from };
        even.growths.iter().zip(ways).map(least).collect()
    }

    /// What a value is with other counters.
    fn at(&mut self, value: Value, nest: &Nest, counters: &[Value], insts: &mut Vec<Inst>) -> Value {
        if let Some(at) = nest.counters.iter().position(|counter| counter.value == value) {
            return counters[at];
        }
        if !nest.inside.contains(&value) {
            return value;
        }
        let Some(mut op) = self.values.def(value).cloned() else { return value };
        each_operand_mut(&mut op, &mut |operand| *operand = self.at(*operand, nest, counters, insts));
        self.values.define(self.values.scalar(value), op, insts)
    }

    fn way(&mut self, counter: &Counter, insts: &mut Vec<Inst>) -> Way {
        let ty = self.values.scalar(counter.value);
        let one = self.values.constant(ty, 1, insts);
        let last = self.values.binary(Binary::Sub, counter.to, one, insts);
        let span = self.values.binary(Binary::Sub, last, counter.from, insts);
        let span = self.bits(span, insts);
        Way { from: counter.from, last, span: self.values.define(Scalar::U64, Op::Cast(span), insts) }
    }

    /// The bits of a number, as a u32.
    fn bits(&mut self, value: Value, insts: &mut Vec<Inst>) -> Value {
        match self.values.scalar(value) {
            Scalar::U32 => value,
            _ => self.values.define(Scalar::U32, Op::BitCast(value), insts),
        }
    }

    /// `least + growth · span + … < length`. Nothing wraps: a number times a span is less than 2⁶³, and less than 2³² before it is multiplied by a
    /// value, which makes it 2⁶⁴ − 2³³ + 1 at most, or 2⁶² where there is another one. What is made less is far more than a length still, but
    /// for times zero.
    fn test(&mut self, even: &Even, first: First, length: Value, ways: &[Way], insts: &mut Vec<Inst>) -> Value {
        let mut last = self.values.define(Scalar::U64, Op::Cast(first.value), insts);
        if first.ahead > 0 {
            let ahead = self.number_of_64(first.ahead.into(), insts);
            last = self.values.binary(Binary::Add, last, ahead, insts);
        }
        let several = even.growths.iter().filter(|growth| growth.by != 0).count() > 1;
        for (growth, way) in even.growths.iter().zip(ways).filter(|(growth, _)| growth.by != 0) {
            let mut grown = way.span;
            if growth.size() != 1 {
                let by = self.number_of_64(growth.size().into(), insts);
                grown = self.values.binary(Binary::Mul, grown, by, insts);
            }
            if let Some(value) = growth.value {
                if growth.size() != 1 {
                    grown = self.at_most(grown, u32::MAX.into(), insts);
                }
                let value = self.bits(value, insts);
                let value = self.values.define(Scalar::U64, Op::Cast(value), insts);
                grown = self.values.binary(Binary::Mul, grown, value, insts);
                if several {
                    grown = self.at_most(grown, 1 << 62, insts);
                }
            }
            last = self.values.binary(Binary::Add, last, grown, insts);
        }
        let mut length = self.values.define(Scalar::U64, Op::Cast(length), insts);
        if even.shift > 0 {
            // So many parts; places beyond 2³² are others.
            let parts = self.number_of_64(1 << even.shift, insts);
            length = self.values.binary(Binary::Mul, length, parts, insts);
            length = self.at_most(length, 1 << 32, insts);
        }
        self.values.binary(Binary::Lt, last, length, insts)
    }

    fn number_of_64(&mut self, number: u64, insts: &mut Vec<Inst>) -> Value {
        self.values.constant(Scalar::U64, number, insts)
    }

    fn at_most(&mut self, value: Value, most: u64, insts: &mut Vec<Inst>) -> Value {
        let most = self.number_of_64(most, insts);
        self.values.binary(Binary::Min, value, most, insts)
    }

    /// The loop without the guards that were tested, with names of its own.
    fn without(
        &mut self,
        inner: &Loop,
        nest: &Nest,
        (evens, clamped): (&[Even], &[Clamped]),
        firsts: &HashMap<Value, First>,
        ways: &[Way],
    ) -> Loop {
        let mut names = HashMap::new();
        let mut free = self.values.copy_loop(inner, &mut names);
        let named = |value: Value| names.get(&value).copied().unwrap_or(value);
        // How far each counter is from where indices are least, at the head of its loop.
        let mut places = HashMap::new();
        for (at, (counter, way)) in nest.counters.iter().zip(ways).enumerate() {
            let (value, mut head) = (named(counter.value), Vec::new());
            for is_down in [false, true] {
                if evens.iter().any(|even| even.growths[at].by != 0 && even.growths[at].is_down() == is_down) {
                    let (more, less) = if is_down { (way.last, value) } else { (value, way.from) };
                    let place = self.values.binary(Binary::Sub, more, less, &mut head);
                    places.insert((at, is_down), self.bits(place, &mut head));
                }
            }
            at_head(&mut free, value, &mut head);
        }
        // What grows by a value in one loop and by a number in another is in the other one what it was at its least there.
        let mut tested: HashMap<Value, (&Even, First)> = HashMap::new();
        for even in evens {
            let mut first = firsts[&even.guard];
            let by_value = even.growths.iter().position(|growth| growth.value.is_some());
            let by_number = even.growths.iter().any(|growth| growth.by != 0 && growth.value.is_none());
            if let (Some(at), true) = (by_value, by_number) {
                let (mut counters, mut head) = (Self::least(even, ways), Vec::new());
                counters[at] = named(nest.counters[at].value);
                first = First { value: self.at(even.index, nest, &counters, &mut head), ahead: 0 };
                at_head(&mut free, counters[at], &mut head);
            }
            tested.insert(named(even.guard), (even, first));
        }
        let inside: HashSet<Value> = clamped.iter().map(|clamped| named(clamped.guard)).collect();
        let drop_guard = &mut |address: &mut Address, guard: &mut Option<Value>| {
            *guard = guard.filter(|guard| !inside.contains(guard));
            let Some((even, first)) = guard.and_then(|guard| tested.get(&guard).copied()) else { return };
            *guard = None;
            let index = named(even.index);
            let Some(term) = address.terms.iter().position(|(value, _)| *value == index) else { return };
            let stride = address.terms[term].1;
            let mut more = Vec::new();
            for (at, growth) in even.growths.iter().enumerate().filter(|(_, growth)| growth.by != 0) {
                if growth.value.is_some() {
                    continue;
                }
                match stride.checked_mul(growth.size()) {
                    Some(grows) => more.push((places[&(at, growth.is_down())], grows)),
                    None => return,
                }
            }
            // One product and sum already.
            if more.is_empty() && even.growths.iter().any(|growth| growth.value.is_some()) {
                return;
            }
            let Some(offset) = stride.checked_mul(first.ahead).and_then(|ahead| address.offset.checked_add(ahead))
            else {
                return;
            };
            (address.terms[term].0, address.offset) = (first.value, offset);
            address.terms.extend(more);
        };
        each_access_mut(&mut free.body, drop_guard);
        let mostly = self.mostly(inner, nest);
        let mostly = mostly.into_iter().map(|(cond, holds)| (named(cond), holds)).collect();
        let tested = places.into_values().collect();
        load_first(&mut free.body, &LoadFirst { mostly, tested, stored: written(&inner.body) });
        free
    }

    /// Conditions that hold, or don't, in all rounds but one at most: something that grows is compared with something fixed.
    fn mostly(&self, inner: &Loop, nest: &Nest) -> HashMap<Value, bool> {
        let mut mostly = HashMap::new();
        let grows = |value: Value| {
            let growth = |counter: &Counter| self.growth(value, counter.value, nest, 4);
            nest.counters.iter().any(|counter| matches!(growth(counter), Some(Growth { by, value: None }) if by != 0))
        };
        each_inst(&inner.body, &mut |inst| {
            if let Inst::Let(cond, Op::Binary(op @ (Binary::Eq | Binary::Ne), a, b)) = inst
                && (nest.inside.contains(a) != nest.inside.contains(b))
                && (grows(*a) || grows(*b))
            {
                mostly.insert(*cond, *op == Binary::Ne);
            }
        });
        mostly
    }
}

/// Puts steps at the head of the loop with this counter.
fn at_head(inner: &mut Loop, counter: Value, head: &mut Vec<Inst>) {
    let mut put = |inner: &mut Loop| {
        if inner.counter.is_some_and(|own| own.value == counter) {
            inner.body.insts.splice(0..0, head.drain(..));
        }
    };
    put(inner);
    each_inst_mut(&mut inner.body, &mut |inst| {
        if let Inst::Loop(inner) = inst {
            put(inner);
        }
    });
}

struct LoadFirst {
    /// What conditions mostly are.
    mostly: HashMap<Value, bool>,
    /// What only addresses have that were tested.
    tested: HashSet<Value>,
    stored: HashSet<Memory>,
}

/// Puts loads that were tested before the branches that are mostly taken, where nothing is stored that they could load.
fn load_first(body: &mut Block, how: &LoadFirst) {
    replace_insts(body, &mut |mut inst, insts| {
        if let Inst::If { cond, then, otherwise, .. } = &mut inst
            && let Some(holds) = how.mostly.get(cond)
        {
            let way = if *holds { then } else { otherwise };
            let mut inside: HashSet<Value> = HashSet::new();
            way.insts.retain(|inst| {
                if let Inst::Let(_, Op::Load { address, guard: None, .. }) = inst
                    && address.terms.iter().any(|(value, _)| how.tested.contains(value))
                    && !address.terms.iter().any(|(value, _)| inside.contains(value))
                    && !how.stored.contains(&address.memory)
                {
                    insts.push(inst.clone());
                    return false;
                }
                inside.extend(results(inst));
                true
            });
            // What is computed then is chosen afterwards, so that rounds do not wait for each other.
            if way.insts.iter().all(|inst| matches!(inst, Inst::Let(_, op) if op.is_plain())) {
                insts.append(&mut way.insts);
            }
        }
        insts.push(inst);
    });
}

/// It seldom comes to run, and neither do the loops in it.
fn mark_rare(inner: &mut Loop) {
    inner.rare = true;
    each_inst_mut(&mut inner.body, &mut |inst| {
        if let Inst::Loop(inner) = inst {
            inner.rare = true;
        }
    });
}

fn each_access_mut(body: &mut Block, visit: &mut impl FnMut(&mut Address, &mut Option<Value>)) {
    each_inst_mut(body, &mut |inst| {
        if let Inst::Let(_, Op::Load { address, guard, .. })
        | Inst::Store { address, guard, .. }
        | Inst::Atomic { address, guard, .. } = inst
        {
            visit(address, guard);
        }
    });
}

#[cfg(test)]
mod tests {
    use crate::ir::{BufferDecl, DataType, Expr, Node, Program};
    use crate::kernel::{Interpret, Kernel, Options, Unrolling, interpret, lower, verify};

    /// Sums what is at `index` of the counter `k` and of the first word, `x`.
    fn summing(from: Expr, to: Expr, step: u32, index: Expr) -> Program {
        repeating(from, to, step, Expr::var("sum") * Expr::u32(3) + Expr::load("data", index))
    }

    /// Makes `sum` something else in each round.
    fn repeating(from: Expr, to: Expr, step: u32, sum: Expr) -> Program {
        Program::wrapped(
            vec![
                BufferDecl::read("given", 0, DataType::U32).with_count(2),
                BufferDecl::read("data", 1, DataType::U32),
                BufferDecl::output("out", 2, DataType::U32).with_count(1),
            ],
            [1, 1, 1],
            vec![
                Node::let_bind("x", Expr::load("given", Expr::u32(0))),
                Node::let_bind("y", Expr::load("given", Expr::u32(1))),
                Node::var("sum", DataType::U32, Expr::u32(1)),
                Node::For { var: "k".into(), from, to, step, body: vec![Node::assign("sum", sum)] },
                Node::store("out", Expr::u32(0), Expr::var("sum")),
            ],
        )
    }

    fn kernel(program: &Program, one_test: bool, unrolling: Unrolling) -> Kernel {
        let options = Options { one_test, unrolling, rounds_together: 4, ..Options::default() };
        let kernel = lower(&program.validate().expect("valid"), &options).expect("lowers");
        verify(&kernel).expect("well made");
        kernel
    }

    fn run(kernel: &Kernel, given: [u32; 2], length: u32) -> Vec<u8> {
        let words = |words: &mut dyn Iterator<Item = u32>| words.flat_map(u32::to_le_bytes).collect::<Vec<u8>>();
        let mut buffers = [words(&mut given.into_iter()), words(&mut (0..length).map(|i| i * i + 7)), vec![0; 4]];
        let how = Interpret { grid: [1, 1, 1], subgroup_size: 32, budget: 1 << 20, noise: None };
        interpret(kernel, &mut buffers, &how).expect("runs");
        buffers[2].clone()
    }

    fn check(program: &Program) {
        let plain = kernel(program, false, Unrolling::default());
        for unrolling in [Unrolling::default(), Unrolling::FAR] {
            let versions = kernel(program, true, unrolling);
            let text = versions.to_string();
            let free = text.lines().filter(|line| line.contains("load u32 data") && !line.contains(" if %")).count();
            assert!(free > 0, "{text}");
            for x in [0, 1, 2, 3, 20, 60, 63, 64, 90, u32::MAX, u32::MAX - 1, u32::MAX - 30, 1 << 31] {
                for y in [0, 1, 5, 7, 31, 33, 1 << 16, 1 << 31, u32::MAX] {
                    for length in [1, 5, 64, 100] {
                        let (expected, found) = (run(&plain, [x, y], length), run(&versions, [x, y], length));
                        assert_eq!(expected, found, "x {x} y {y} length {length}\n{text}");
                    }
                }
            }
        }
    }

    fn var(name: &str) -> Expr {
        Expr::var(name)
    }

    #[test]
    fn indices_that_grow_by_a_constant() {
        check(&summing(Expr::u32(0), Expr::u32(31), 1, var("x") + var("k")));
        check(&summing(Expr::u32(3), Expr::u32(40), 7, var("k") * Expr::u32(3) + var("x")));
    }

    /// They have one address between them, and are inside or not each by itself.
    #[test]
    fn indices_that_are_a_constant_apart() {
        let next = |ahead: u32| Expr::load("data", var("k") * Expr::u32(2) + (var("x") + Expr::u32(ahead)));
        let sum = next(5) * Expr::u32(3) + next(6) * Expr::u32(5) + next(9) + next(4) * Expr::u32(7);
        let to = var("y") & Expr::u32(31);
        let several = repeating(Expr::u32(0), to, 1, var("sum") * Expr::u32(11) + sum);
        check(&several);
        let text = kernel(&several, true, Unrolling::default()).to_string();
        let offsets = |text: &str| [" + 4]", " + 16]"].map(|offset| text.contains(offset));
        assert_eq!(offsets(&text), [true, true], "{text}");
    }

    #[test]
    fn indices_that_begin_below_zero() {
        let around = (var("x").cast(DataType::I32) + var("k")).cast(DataType::U32);
        check(&summing(Expr::i32(-2), Expr::i32(3), 1, around));
    }

    #[test]
    fn indices_that_grow_by_what_is_given() {
        check(&summing(Expr::u32(0), Expr::u32(8), 1, var("k") * var("y") + var("x")));
    }

    /// Down to zero, past it, and from where nothing is inside.
    #[test]
    fn indices_that_shrink() {
        check(&summing(Expr::u32(0), Expr::u32(31), 1, var("x") - var("k")));
        check(&summing(Expr::u32(0), var("y") & Expr::u32(31), 1, var("x") - var("k") * Expr::u32(2)));
        check(&summing(Expr::u32(3), Expr::u32(40), 7, var("x") - var("k")));
        let signed = (var("x").cast(DataType::I32) - Expr::i32(1) - var("k")).cast(DataType::U32);
        check(&summing(Expr::i32(-1), (var("y") & Expr::u32(63)).cast(DataType::I32), 1, signed));
    }

    #[test]
    fn indices_that_shrink_by_what_is_given() {
        check(&summing(Expr::u32(0), Expr::u32(8), 1, (Expr::u32(7) - var("k")) * var("y") + var("x")));
        let few = || var("x") & Expr::u32(63);
        check(&summing(Expr::u32(0), few(), 1, (few() - var("k") - Expr::u32(1)) * var("y") + Expr::u32(3)));
    }

    #[test]
    fn indices_that_grow_by_multiples_of_what_is_given() {
        let few = var("x") & Expr::u32(63);
        check(&summing(Expr::u32(0), few, 1, (var("k") * Expr::u32(4) + Expr::u32(1)) * var("y")));
        let signed = |name: &str| var(name).cast(DataType::I32);
        let index = ((signed("k") - Expr::i32(1)) * signed("y") + signed("x")).cast(DataType::U32);
        check(&summing(Expr::i32(0), Expr::i32(5), 1, index));
    }

    /// What is left out is neither loaded nor added, whether the rest is inside or not.
    #[test]
    fn rounds_that_are_left_out() {
        for (index, out) in
            [(var("x") + var("k"), var("k").eq(var("y"))), (var("x") - var("k"), (var("x") - var("k")).eq(var("y")))]
        {
            let sum = Node::assign("sum", var("sum") * Expr::u32(3) + Expr::load("data", index));
            let to = (var("x") & Expr::u32(31)) + Expr::u32(1);
            let mut nodes = summing(Expr::u32(0), Expr::u32(1), 1, var("x")).body().to_vec();
            let body = vec![Node::if_else(out, vec![], vec![sum])];
            nodes[3] = Node::For { var: "k".into(), from: Expr::u32(0), to, step: 1, body };
            let program = summing(Expr::u32(0), Expr::u32(1), 1, var("x")).with_body(nodes);
            check(&program);
            let text = kernel(&program, true, Unrolling::default()).to_string();
            let first = text.split("for %").nth(1).expect("a loop");
            assert_eq!(first.matches("load u32 data").count(), 4, "{text}");
            assert!(!first.contains("if %"), "{text}");
        }
    }

    #[test]
    fn indices_that_grow_in_rows_of_given_length() {
        for down in [false, true] {
            let row = if down { var("x") - var("j") } else { var("x") + var("j") };
            let sum = Expr::var("sum") * Expr::u32(3) + Expr::load("data", row * var("y") + var("k"));
            let each = |var: &str, body| Node::for_range(var, Expr::u32(0), Expr::u32(3), vec![body]);
            let mut nodes = summing(Expr::u32(0), Expr::u32(1), 1, var("x")).body().to_vec();
            nodes[3] = each("j", each("k", Node::assign("sum", sum)));
            check(&summing(Expr::u32(0), Expr::u32(1), 1, var("x")).with_body(nodes));
        }
    }

    #[test]
    fn loops_of_any_length() {
        let to = (var("y") & Expr::u32(63)) + Expr::u32(1);
        check(&summing(Expr::u32(2), to, 1, var("x") + var("k")));
    }

    #[test]
    fn indices_that_grow_in_two_loops() {
        let row = (var("y").cast(DataType::I32) + var("j")).cast(DataType::U32) * Expr::u32(10);
        let around = row + (var("x").cast(DataType::I32) + var("k")).cast(DataType::U32);
        let sum = Expr::var("sum") * Expr::u32(3) + Expr::load("data", around);
        let each = |var: &str, body| Node::For {
            var: var.into(),
            from: Expr::i32(-2),
            to: Expr::i32(3),
            step: 1,
            body: vec![body],
        };
        let mut program = summing(Expr::u32(0), Expr::u32(1), 1, var("x"));
        let mut nodes = program.body().to_vec();
        nodes[3] = each("j", each("k", Node::assign("sum", sum)));
        program = Program::wrapped(program.buffers().to_vec(), [1, 1, 1], nodes);
        check(&program);
    }

    #[test]
    fn a_way_for_large_arguments_is_not_there_where_they_are_small() {
        let program = Program::wrapped(
            vec![BufferDecl::output("out", 0, DataType::F32).with_count(64)],
            [64, 1, 1],
            vec![Node::store("out", Expr::local_id(0), (Expr::local_id(0).cast(DataType::F32) * Expr::f32(0.1)).sin())],
        );
        let options = Options { expand_math: true, ..Options::default() };
        let text = lower(&program.validate().expect("valid"), &options).expect("lowers").to_string();
        assert!(!text.contains("if %") && !text.contains("u64"), "{text}");
    }
}
