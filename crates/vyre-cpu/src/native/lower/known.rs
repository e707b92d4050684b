//! What is known while a kernel is compiled: constants, masks, and how often a loop of the whole workgroup goes round.
//!
//! A tree in workgroup memory is a loop over halves: `if local_id < half`. With its rounds one after the other each half is a
//! constant, so every vector is known to be inside, outside or cut at a lane, and needs no test.

use vyre_foundation::kernel::{Binary, Block, End, Inst, Loop, Op, Scalar, Unary, Value, defined_in, eval};

use super::super::hash::Map;
use super::super::shape::Lane;
use super::facts::visit_values;
use super::flow::{leaves, returns};
use super::value::{Lin, Rep};
use super::{LoopFrame, Lower};

/// Most rounds of a loop that are emitted one after the other.
const MOST_ROUNDS: u32 = 32;
/// Most steps of all rounds and vectors together.
const MOST_STEPS: usize = 1 << 13;
/// The same where a workgroup is taken in pieces, so that code stays short.
const MOST_STEPS_OF_PIECES: usize = 1 << 11;

/// Operations that what is known of a lane may be made by.
const DEEP: u32 = 8;

/// Constants of the values that a loop makes; `None` for those that are not.
type Known = Map<Value, Option<u64>>;

/// A comparison.
pub(super) fn compares(op: Binary) -> bool {
    matches!(op, Binary::Eq | Binary::Ne | Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge)
}

/// Where the rounds of a loop go.
enum Way<'k> {
    On,
    Next(&'k [Value]),
    Out,
}

impl<'k> Lower<'k> {
    /// All lanes of a vector, one bit each.
    pub(super) fn all_lanes(&self) -> u32 {
        (1 << self.lanes()) - 1
    }

    /// The bits of a 32-bit integer or a bool that is one constant for the block.
    pub(super) fn constant_of(&self, value: Value, c: usize) -> Option<u64> {
        if !self.shape_of(value).is_uniform() || !self.is_scalar(value) {
            return None;
        }
        match self.rep(value, 0, c) {
            Rep::General(lin) => lin.constant().map(|bits| u64::from(bits as u32)),
            _ => None,
        }
    }

    /// What an operation on constants gives: 32-bit integers and bools that are one scalar for the block.
    pub(super) fn folded(&self, value: Value, op: &Op, get: &dyn Fn(Value) -> Option<u64>) -> Option<u64> {
        self.shape_of(value).is_uniform().then(|| self.folded_word(value, op, get))?
    }

    /// What an operation on constants gives: 32-bit integers and bools.
    pub(super) fn folded_word(&self, value: Value, op: &Op, get: &dyn Fn(Value) -> Option<u64>) -> Option<u64> {
        let is_small = |value: Value| matches!(self.scalar_of(value), Scalar::Bool | Scalar::U32 | Scalar::I32);
        if !is_small(value) {
            return None;
        }
        match op {
            Op::Const(literal) => Some(literal.bits() & u64::from(u32::MAX)),
            Op::Unary(op @ (Unary::Neg | Unary::Not | Unary::Abs), a) if is_small(*a) => {
                Some(eval::unary(*op, self.scalar_of(*a), get(*a)?))
            }
            Op::Binary(op, a, b) if is_small(*a) && is_small(*b) => {
                Some(eval::binary(*op, self.scalar_of(*a), get(*a)?, get(*b)?))
            }
            Op::Select(cond, yes, no) => get(if get(*cond)? != 0 { *yes } else { *no }),
            Op::Cast(a) if is_small(*a) => Some(eval::cast(self.scalar_of(*a), self.scalar_of(value), get(*a)?)),
            _ => None,
        }
    }

    /// The lanes for which a comparison holds of values that are known for each lane.
    pub(super) fn known_lanes(&self, op: Binary, a: Value, b: Value, c: usize) -> Option<u32> {
        let scalar = self.scalar_of(a);
        if !matches!(scalar, Scalar::U32 | Scalar::I32) {
            return None;
        }
        let holds = |lane: &u32| {
            let (a, b) = (self.known_word(a, *lane, c, DEEP)?, self.known_word(b, *lane, c, DEEP)?);
            Some(eval::binary(op, scalar, a.into(), b.into()) != 0)
        };
        (0..self.lanes()).try_fold(0, |bits, lane| Some(bits | u32::from(holds(&lane)?) << lane))
    }

    /// The bits of a 32-bit integer for a lane, where they are known.
    pub(super) fn known_lane(&self, value: Value, lane: u32, c: usize) -> Option<u32> {
        self.known_word(value, lane, c, DEEP)
    }

    /// The bits of a 32-bit integer for a lane: a multiple of the lane's number and a constant, or made of such.
    fn known_word(&self, value: Value, lane: u32, c: usize, deep: u32) -> Option<u32> {
        let stride = match self.shape_of(value).lane {
            Lane::Same => 0,
            Lane::Affine(stride) => stride,
            Lane::Vary => {
                if let Rep::Vector(r, _) = self.rep(value, 0, c)
                    && let Some(words) = self.made.words.get(&r)
                {
                    return words.get(lane as usize).copied();
                }
                let is_word = |value: Value| matches!(self.scalar_of(value), Scalar::U32 | Scalar::I32);
                let of = |value: &Value| self.known_word(*value, lane, c, deep - 1);
                return match self.facts.makers.ops[value.index()].filter(|_| deep > 0 && is_word(value))? {
                    // What is zero in the first lane, whichever the vector, leaves what the lane alone adds.
                    Op::Binary(Binary::And, a, b)
                        if let Lane::Affine(stride) = self.shape_of(*a).lane
                            && let Some(kept) = self.constant_of(*b, c)
                            && self.shape_of(*a).is_zero_first(kept as u32) =>
                    {
                        Some((stride as u32).wrapping_mul(lane) & kept as u32)
                    }
                    Op::Unary(op, a) if is_word(*a) => Some(eval::unary(*op, self.scalar_of(*a), of(a)?.into()) as u32),
                    Op::Binary(op, a, b) if !compares(*op) => {
                        Some(eval::binary(*op, self.scalar_of(value), of(a)?.into(), of(b)?.into()) as u32)
                    }
                    Op::BitCast(a) if is_word(*a) => of(a),
                    _ => None,
                };
            }
        };
        match self.rep(value, 0, c) {
            Rep::General(lin) => lin.constant().map(|base| base.wrapping_add(stride.wrapping_mul(lane as i32)) as u32),
            _ => None,
        }
    }

    /// A vector of words that are known for each lane, though lanes differ unevenly: the columns of a tile that invocations fill by
    /// their numbers.
    pub(super) fn known_vector(&mut self, value: Value, op: &Op, c: usize) -> Option<Rep> {
        let is_made = matches!(op, Op::Unary(..) | Op::Binary(..));
        if !is_made || !matches!(self.scalar_of(value), Scalar::U32 | Scalar::I32) {
            return None;
        }
        // What the value was elsewhere is not what it is here.
        self.set_rep(value, 0, c, Rep::None);
        let words = (0..self.lanes()).map(|lane| self.known_lane(value, lane, c)).collect::<Option<Vec<u32>>>()?;
        Some(Rep::Vector(self.lanes_constant(&words), super::R::NONE))
    }

    /// What is known of a bool, one bit a lane.
    pub(super) fn known_mask(&self, value: Value, c: usize) -> Option<u32> {
        match self.rep(value, 0, c) {
            Rep::Lanes(bits) => Some(bits),
            Rep::General(lin) => lin.constant().map(|bits| if bits == 0 { 0 } else { self.all_lanes() }),
            _ => None,
        }
    }

    /// Gives a value what another one is, for the rest of a stretch in which neither changes.
    pub(super) fn alias(&mut self, to: Value, from: Value, comps: &[usize]) {
        let reps: Vec<Rep> = comps.iter().map(|&c| self.alias_of(to, from, c)).collect();
        for (&c, rep) in comps.iter().zip(reps) {
            self.set_rep(to, 0, c, rep);
        }
    }

    pub(super) fn alias_of(&mut self, to: Value, from: Value, c: usize) -> Rep {
        // One register goes by two names from here on, so neither has it for itself.
        self.facts.uses[to.index()] += 1;
        self.facts.uses[from.index()] += 1;
        let scalar = self.scalar_of(to);
        match self.rep(from, 0, c) {
            rep if self.is_scalar(to) => rep,
            Rep::General(lin) if scalar == Scalar::Bool => match lin.constant() {
                Some(0) => Rep::Lanes(0),
                Some(_) => Rep::Lanes(self.all_lanes()),
                None => Rep::Mask(self.mask_of(from, c)),
            },
            Rep::General(_) | Rep::Later(_) => {
                let low = self.vector_part(from, 0, c, 0);
                let high = if scalar.bits() == 64 { self.vector_part(from, 0, c, 1) } else { super::R::NONE };
                Rep::Vector(low, high)
            }
            rep => rep,
        }
    }

    /// How many times the body of a loop of the whole workgroup begins, where that is known, small, and worth it: there is a
    /// test of the invocation's place that would be known in each round.
    pub(super) fn known_rounds(&self, inner: &'k Loop, comps: &[usize]) -> Option<u32> {
        if self.facts.tiling.layout.is_along_rows() || comps.len() != self.active.components.len() {
            return None;
        }
        let steps = self.tests_of_place(&inner.body)?;
        let most = if self.regions.is_some() { MOST_STEPS_OF_PIECES } else { MOST_STEPS };
        let c = comps[0];
        let mut known = Known::default();
        let mut counted = match &inner.counter {
            Some(counter) => {
                let signed = self.scalar_of(counter.value).is_signed();
                let wide = |value: Value| {
                    let bits = self.constant_of(value, c)? as u32;
                    Some(if signed { i64::from(bits as i32) } else { i64::from(bits) })
                };
                Some((wide(counter.from)?, wide(counter.to)?, counter))
            }
            None => None,
        };
        let mut carried: Vec<Option<u64>> = inner.init.iter().map(|&init| self.constant_of(init, c)).collect();
        for rounds in 0..=MOST_ROUNDS {
            if let Some((now, to, counter)) = &mut counted {
                if *now >= *to {
                    return Some(rounds);
                }
                known.insert(counter.value, Some(u64::from(*now as u32)));
                *now += i64::from(counter.step);
            }
            if (rounds as usize + 1) * steps * comps.len() > most {
                return None;
            }
            for (&param, &value) in inner.params.iter().zip(&carried) {
                known.insert(param, value.filter(|_| self.shape_of(param).is_uniform()));
            }
            match self.way(&inner.body, c, &mut known)? {
                Way::Out => return Some(rounds + 1),
                Way::Next(values) => carried = values.iter().map(|&value| self.get(&known, value, c)).collect(),
                Way::On => return None,
            }
        }
        None
    }

    fn get(&self, known: &Known, value: Value, c: usize) -> Option<u64> {
        known.get(&value).copied().unwrap_or_else(|| self.constant_of(value, c))
    }

    /// Where a block goes when its constants are known; `None` when that depends on more.
    fn way(&self, block: &'k Block, c: usize, known: &mut Known) -> Option<Way<'k>> {
        for inst in &block.insts {
            match inst {
                Inst::Let(value, op) => {
                    let bits = self.folded(*value, op, &|value| self.get(known, value, c));
                    known.insert(*value, bits);
                }
                Inst::If { cond, then, otherwise, results } => {
                    let uniform = self.shape_of(*cond).is_uniform();
                    let bits = self.get(known, *cond, c).filter(|_| uniform);
                    let Some(bits) = bits else {
                        if leaves(then) || leaves(otherwise) {
                            return None;
                        }
                        known.extend(results.iter().map(|&result| (result, None)));
                        continue;
                    };
                    let taken = if bits != 0 { then } else { otherwise };
                    match self.way(taken, c, known)? {
                        Way::On => {}
                        left => return Some(left),
                    }
                    if let End::Yield(values) = &taken.end {
                        for (&result, &value) in results.iter().zip(values) {
                            let bits = self.get(known, value, c);
                            known.insert(result, bits);
                        }
                    }
                }
                Inst::Loop(inner) => {
                    if returns(&inner.body) {
                        return None;
                    }
                    known.extend(inner.results.iter().map(|&result| (result, None)));
                }
                Inst::Atomic { result, .. } => known.extend(result.map(|result| (result, None))),
                Inst::Store { .. } | Inst::Barrier(_) => {}
            }
        }
        match &block.end {
            End::Yield(_) => Some(Way::On),
            End::Continue(values) => Some(Way::Next(values)),
            End::Break(_) => Some(Way::Out),
            End::Return | End::Unreachable => None,
        }
    }

    /// Steps of a body that tests the place of the invocations against something uniform.
    fn tests_of_place(&self, body: &Block) -> Option<usize> {
        let (mut steps, mut tests) = (0, false);
        self.count_tests(body, &mut steps, &mut tests);
        tests.then_some(steps)
    }

    fn count_tests(&self, block: &Block, steps: &mut usize, tests: &mut bool) {
        for inst in &block.insts {
            *steps += 1;
            match inst {
                Inst::Let(_, Op::Binary(op, a, b)) if compares(*op) => {
                    let (left, right) = (self.shape_of(*a), self.shape_of(*b));
                    let affine = |lane: Lane| matches!(lane, Lane::Affine(_));
                    *tests |= affine(left.lane) && right.is_uniform() || left.is_uniform() && affine(right.lane);
                }
                Inst::If { then, otherwise, .. } => {
                    self.count_tests(then, steps, tests);
                    self.count_tests(otherwise, steps, tests);
                }
                // Its rounds are not known, and its steps are emitted once for each round of the outer one.
                Inst::Loop(inner) => self.count_tests(&inner.body, steps, tests),
                _ => {}
            }
        }
    }

    /// Notes that the code of a loop stands more than once in a row: what it names of outside is needed again after the first time, so
    /// that nothing may be made of that in its own register.
    pub(super) fn repeats(&mut self, inner: &Loop) {
        let inside = defined_in(inner);
        let uses = &mut self.facts.uses;
        let mut name = |value: Value| uses[value.index()] += u32::from(!inside.contains(&value));
        inner.init.iter().for_each(|&value| name(value));
        inner.counter.iter().flat_map(|counter| [counter.from, counter.to]).for_each(&mut name);
        visit_values(&inner.body, &mut name);
    }

    /// Emits so many rounds of a loop, one after the other.
    pub(super) fn run_rounds(&mut self, inner: &'k Loop, rounds: u32, comps: &[usize]) {
        if rounds > 1 {
            self.repeats(inner);
        }
        for (&param, &init) in inner.params.iter().zip(&inner.init) {
            self.alias(param, init, comps);
        }
        let (next, exit) = (self.label(), self.label());
        self.loops.push(LoopFrame { rounds: Some(false), ..LoopFrame::together(inner, next, exit) });
        let mut now = inner.counter.as_ref().and_then(|counter| self.constant_of(counter.from, comps[0]));
        for _ in 0..rounds {
            if let (Some(counter), Some(value)) = (&inner.counter, &mut now) {
                for &c in comps {
                    self.set_rep(counter.value, 0, c, Rep::General(Lin::imm(*value as u32 as i32)));
                }
                *value = value.wrapping_add(u64::from(counter.step));
            }
            self.block(&inner.body, comps, None);
        }
        let left = self.loops.pop().is_some_and(|frame| frame.rounds == Some(true));
        if !left {
            // Only a counter ends a loop without a break.
            self.failed |= inner.counter.is_none();
            for (&result, &param) in inner.results.iter().zip(&inner.params) {
                self.alias(result, param, comps);
            }
        }
    }

    /// The end of a round of a loop whose rounds are emitted one after the other: names change, nothing moves.
    pub(super) fn end_of_round(&mut self, values: &'k [Value], leaves: bool, comps: &[usize]) {
        let Some(frame) = self.loops.last_mut() else { return };
        let targets = if leaves { frame.results } else { frame.params };
        if leaves {
            self.failed |= frame.rounds == Some(true);
            frame.rounds = Some(true);
        }
        // All at once: a parameter may be the source of another.
        let mut reps = Vec::new();
        for (&target, &value) in targets.iter().zip(values) {
            for &c in comps {
                let rep = self.alias_of(target, value, c);
                reps.push((target, c, rep));
            }
        }
        for (target, c, rep) in reps {
            self.set_rep(target, 0, c, rep);
        }
    }

    /// Emits the way that a constant condition takes; false when it does not come out at its end.
    pub(super) fn known_branch(&mut self, taken: &'k Block, results: &'k [Value], comps: &[usize]) -> bool {
        if !self.block(taken, comps, None) {
            return false;
        }
        if let End::Yield(values) = &taken.end {
            let mut reps = Vec::new();
            for (&result, &value) in results.iter().zip(values) {
                for &c in comps {
                    let rep = self.alias_of(result, value, c);
                    reps.push((result, c, rep));
                }
            }
            for (result, c, rep) in reps {
                self.set_rep(result, 0, c, rep);
            }
        }
        true
    }
}
