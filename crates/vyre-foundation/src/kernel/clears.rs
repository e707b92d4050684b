//! Finds the workgroup memory that need not be zero at the start, because everything that is read was written before.
//!
//! One walk in the order of execution keeps which words are surely written, by which invocation, and which of them all have met for
//! since: a barrier stands in uniform control flow, so whoever comes there has done what stands before it on its way. What an invocation
//! wrote itself it may read at once. Where invocations write and read, which way they go and how often is found by computing
//! that from their places in the workgroup. What is written on a way that may not be taken is forgotten after it, and an access whose
//! place is not known writes nothing and reads everything.

use std::rc::Rc;

use hashbrown::HashMap;

use super::walk::{Effect, access, each_inst, leaves, ways};
use super::{Address, Binary, Block, Counter, End, Inst, Kernel, Loop, Memory, Op, Scalar, Unary, Value};
use crate::ir::{Builtin, Literal};

/// Words of a memory that is looked at.
const MOST_WORDS: u32 = 1 << 14;
/// Values of invocations that are computed, and words that are looked at, before everything else counts as read.
const MOST_STEPS: usize = 1 << 18;
/// Rounds of a loop that are followed.
const MOST_ROUNDS: u32 = 64;

/// Marks the memories that must be cleared.
pub(super) fn run(kernel: &mut Kernel) {
    if kernel.shared.is_empty() {
        return;
    }
    let must = Walk::of(kernel);
    for (memory, must) in kernel.shared.iter_mut().zip(must) {
        memory.cleared = must;
    }
}

/// A value in the invocations of a workgroup.
#[derive(Clone)]
enum Lanes {
    Same(u32),
    Each(Rc<[u32]>),
}

impl Lanes {
    fn at(&self, lane: usize) -> u32 {
        match self {
            Lanes::Same(value) => *value,
            Lanes::Each(values) => values[lane],
        }
    }
}

/// The invocations that come to a step, if any do on its way.
type Active = Rc<[bool]>;

/// What is known of a word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Unwritten,
    /// By this invocation, and perhaps by others.
    Written(u32),
    /// Written before a barrier that was passed.
    WaitedFor,
}

struct Shared {
    words: Vec<Word>,
    /// Words that are not [`Word::WaitedFor`].
    open: usize,
    /// Something was written since the last barrier.
    fresh: bool,
    /// Something may be read before it is written.
    must: bool,
}

impl Shared {
    fn is_settled(&self) -> bool {
        self.must || self.open == 0
    }
}

/// How steps ended.
enum Way {
    /// At their end, which gives values.
    On,
    Break(Vec<Option<Lanes>>),
    Continue(Vec<Option<Lanes>>),
    Return,
    /// Nobody knows which invocations go where.
    Lost,
}

struct Walk<'a> {
    kernel: &'a Kernel,
    ops: HashMap<Value, &'a Op>,
    /// Values that were computed, and in what order, so that those of a round can be forgotten.
    lanes: HashMap<Value, Option<Lanes>>,
    computed: Vec<Value>,
    /// What a result of a branch is, where the way that was taken is known.
    same: HashMap<Value, Value>,
    shared: Vec<Shared>,
    /// Words as they were before they changed.
    before: Vec<(usize, usize, Word)>,
    steps: usize,
    /// The innermost loop is followed round by round, so it must be known who leaves it when.
    follows: bool,
}

impl<'a> Walk<'a> {
    /// Which memories something may be read of before it is written.
    fn of(kernel: &'a Kernel) -> Vec<bool> {
        let mut ops = HashMap::new();
        each_inst(&kernel.body, &mut |inst| {
            if let Inst::Let(value, op) = inst
                && let Op::Const(_)
                | Op::Builtin(_)
                | Op::Binary(..)
                | Op::BitCast(_)
                | Op::Cast(_)
                | Op::Select(..)
                | Op::Unary(Unary::Not, _) = op
            {
                ops.insert(*value, op);
            }
        });
        let shared = kernel.shared.iter().map(|memory| {
            let words = memory.size.div_ceil(4).min(MOST_WORDS) as usize;
            let must = memory.size > 4 * MOST_WORDS;
            Shared { words: vec![Word::Unwritten; words], open: words, fresh: false, must }
        });
        let mut walk = Walk {
            kernel,
            ops,
            lanes: HashMap::new(),
            computed: Vec::new(),
            same: HashMap::new(),
            shared: shared.collect(),
            before: Vec::new(),
            steps: 0,
            follows: false,
        };
        let all: Active = vec![true; walk.invocations()].into();
        walk.block(&kernel.body, &all);
        walk.shared.iter().map(|shared| shared.must).collect()
    }

    fn invocations(&self) -> usize {
        self.kernel.workgroup_size.iter().product::<u32>() as usize
    }

    /// Counts work; false when it is too much.
    fn spend(&mut self, steps: usize) -> bool {
        self.steps += steps;
        self.steps <= MOST_STEPS
    }

    fn block(&mut self, block: &'a Block, active: &Active) -> Way {
        for inst in &block.insts {
            let way = match inst {
                Inst::Store { address, element, value, guard } => {
                    let wide = element.bits() >= 32;
                    let words = element.bits() / 32 * u32::from(self.kernel.values[value.index()].ty.width);
                    if wide {
                        self.store(address, words, *guard, active);
                    }
                    Way::On
                }
                Inst::Barrier(_) => {
                    // Whoever is there alone does not meet the others.
                    if !active.contains(&false) {
                        self.meet();
                    }
                    Way::On
                }
                Inst::If { cond, then, otherwise, results } => self.branch(*cond, then, otherwise, results, active),
                Inst::Loop(inner) => self.repeat(inner, active),
                inst => {
                    match (access(inst), inst) {
                        (Some((address, Effect::Write)), Inst::Atomic { element, guard, .. }) => {
                            self.store(address, element.bits() / 32, *guard, active);
                        }
                        (Some((address, _)), Inst::Atomic { element, guard, .. }) => {
                            self.load(address, element.bits(), 1, *guard, active);
                        }
                        (Some((address, _)), Inst::Let(value, Op::Load { element, guard, .. })) => {
                            let width = self.kernel.values[value.index()].ty.width;
                            self.load(address, element.bits(), width.into(), *guard, active);
                        }
                        _ => {}
                    }
                    Way::On
                }
            };
            if !matches!(way, Way::On) {
                return way;
            }
        }
        match &block.end {
            End::Yield(_) => Way::On,
            End::Continue(values) => Way::Continue(values.iter().map(|value| self.lanes(*value)).collect()),
            End::Break(values) => Way::Break(values.iter().map(|value| self.lanes(*value)).collect()),
            End::Return => Way::Return,
            End::Unreachable => Way::Lost,
        }
    }

    /// What stands on a way that may not be taken.
    fn apart(&mut self, block: &'a Block, active: &Active) {
        let before = self.before.len();
        self.block(block, active);
        self.undo(before);
    }

    fn undo(&mut self, before: usize) {
        for (shared, word, was) in self.before.drain(before..).rev() {
            let shared = &mut self.shared[shared];
            shared.open += usize::from(shared.words[word] == Word::WaitedFor);
            shared.words[word] = was;
            shared.open -= usize::from(was == Word::WaitedFor);
        }
        // Looking once more at the next barrier costs little.
        self.shared.iter_mut().for_each(|shared| shared.fresh = true);
    }

    fn set(&mut self, shared: usize, word: usize, to: Word) {
        let memory = &mut self.shared[shared];
        let was = std::mem::replace(&mut memory.words[word], to);
        memory.open -= usize::from(to == Word::WaitedFor && was != Word::WaitedFor);
        memory.fresh = true;
        self.before.push((shared, word, was));
    }

    fn meet(&mut self) {
        for shared in 0..self.shared.len() {
            if self.shared[shared].is_settled() || !self.shared[shared].fresh {
                continue;
            }
            for word in 0..self.shared[shared].words.len() {
                if let Word::Written(_) = self.shared[shared].words[word] {
                    self.set(shared, word, Word::WaitedFor);
                }
            }
            self.shared[shared].fresh = false;
        }
    }

    fn branch(
        &mut self,
        cond: Value,
        then: &'a Block,
        otherwise: &'a Block,
        results: &'a [Value],
        active: &Active,
    ) -> Way {
        for result in results {
            self.same.remove(result);
        }
        let leave = leaves(then) || leaves(otherwise);
        if !leave && self.shared.iter().all(Shared::is_settled) {
            return Way::On;
        }
        let Some(known) = self.lanes(cond) else {
            self.apart(then, active);
            self.apart(otherwise, active);
            return if leave { self.unknown_exit(then, otherwise) } else { Way::On };
        };
        let some = |wanted: bool| -> Active {
            active.iter().enumerate().map(|(lane, active)| *active && (known.at(lane) != 0) == wanted).collect()
        };
        let (yes, no) = (some(true), some(false));
        let taken = match (yes.contains(&true), no.contains(&true)) {
            (true, false) => then,
            (false, true) => otherwise,
            _ if leave => {
                self.apart(then, &yes);
                self.apart(otherwise, &no);
                return self.unknown_exit(then, otherwise);
            }
            _ => {
                self.block(then, &yes);
                self.block(otherwise, &no);
                return Way::On;
            }
        };
        let way = self.block(taken, active);
        if let (Way::On, End::Yield(values)) = (&way, &taken.end) {
            self.same.extend(results.iter().copied().zip(values.iter().copied()));
        }
        way
    }

    /// Some may leave here. Those that go on and meet the others are all, so they have done what comes now; but rounds are followed only where
    /// it is known who does them.
    fn unknown_exit(&self, then: &Block, otherwise: &Block) -> Way {
        let only_ends = |block: &Block| matches!(block.end, End::Yield(_) | End::Return) && !ways(block).any(leaves);
        if !self.follows || only_ends(then) && only_ends(otherwise) { Way::On } else { Way::Lost }
    }

    /// A loop: round by round where all rounds are known, else one that may not come to run.
    fn repeat(&mut self, inner: &'a Loop, active: &Active) -> Way {
        let mut open = false;
        each_inst(&inner.body, &mut |inst| {
            if let Some((Address { memory: Memory::Shared(shared), .. }, _)) = access(inst) {
                open |= !self.shared[*shared as usize].is_settled();
            }
        });
        if !open {
            inner.results.iter().for_each(|result| self.bind(*result, None));
            return Way::On;
        }
        let (before, computed) = (self.before.len(), self.computed.len());
        let must: Vec<bool> = self.shared.iter().map(|shared| shared.must).collect();
        let follows = std::mem::replace(&mut self.follows, true);
        let known = self.rounds(inner, active).is_some();
        self.follows = false;
        if !known {
            self.undo(before);
            self.forget(computed);
            self.shared.iter_mut().zip(must).for_each(|(shared, must)| shared.must = must);
            for value in inner.params.iter().chain(&inner.results).chain(inner.counter.iter().map(|c| &c.value)) {
                self.bind(*value, None);
            }
            self.apart(&inner.body, active);
        }
        self.follows = follows;
        Way::On
    }

    fn bind(&mut self, value: Value, lanes: Option<Lanes>) {
        self.same.remove(&value);
        self.lanes.insert(value, lanes);
        self.computed.push(value);
    }

    fn forget(&mut self, computed: usize) {
        for value in self.computed.drain(computed..) {
            self.lanes.remove(&value);
        }
    }

    fn rounds(&mut self, inner: &'a Loop, active: &Active) -> Option<()> {
        let mut carried: Vec<Option<Lanes>> = inner.init.iter().map(|value| self.lanes(*value)).collect();
        let mut limits = None;
        if let Some(Counter { value, from, to, .. }) = &inner.counter {
            let signed = match self.kernel.values[value.index()].ty.scalar {
                Scalar::U32 => false,
                Scalar::I32 => true,
                _ => return None,
            };
            limits = Some((self.lanes(*from)?, self.lanes(*to)?, signed));
        }
        let invocations = self.invocations();
        let computed = self.computed.len();
        let mut active = active.clone();
        // Whether nobody has left so far, so that what is carried is of all.
        let mut whole = true;
        for round in 0..=MOST_ROUNDS {
            if self.shared.iter().all(Shared::is_settled) {
                self.forget(computed);
                inner.results.iter().for_each(|result| self.bind(*result, None));
                return Some(());
            }
            if let (Some((from, to, signed)), Some(counter)) = (&limits, &inner.counter) {
                let at = |lane: usize| {
                    let (from, to) = (from.at(lane), to.at(lane));
                    let (from, to) = match signed {
                        true => (i64::from(from as i32), i64::from(to as i32)),
                        false => (i64::from(from), i64::from(to)),
                    };
                    let at = from + i64::from(round) * i64::from(counter.step);
                    (at < to).then_some(at as u32)
                };
                if !self.spend(invocations) {
                    return None;
                }
                let stays: Active = (0..invocations).map(|lane| active[lane] && at(lane).is_some()).collect();
                if !stays.contains(&true) {
                    self.forget(computed);
                    for (result, value) in inner.results.iter().zip(carried) {
                        self.bind(*result, value.filter(|_| whole));
                    }
                    return Some(());
                }
                whole &= stays == active;
                active = stays;
                self.forget(computed);
                let counted = (0..invocations).map(|lane| at(lane).unwrap_or(0)).collect();
                self.bind(counter.value, Some(Lanes::Each(counted)));
            } else {
                self.forget(computed);
            }
            for (param, value) in inner.params.iter().zip(&carried) {
                // Who has left already is not asked for it.
                self.bind(*param, value.clone());
            }
            match self.block(&inner.body, &active) {
                Way::Continue(values) => carried = values,
                Way::Break(values) => {
                    self.forget(computed);
                    for (result, value) in inner.results.iter().zip(values) {
                        self.bind(*result, value.filter(|_| whole));
                    }
                    return Some(());
                }
                Way::On | Way::Return | Way::Lost => return None,
            }
        }
        None
    }

    /// Calls `each` for the place of each invocation that surely or perhaps accesses one, until it says no; `None` where places are not
    /// known.
    fn places(
        &mut self,
        address: &Address,
        active: &Active,
        guard: Option<&Lanes>,
        mut each: impl FnMut(&mut Self, usize, u32),
    ) -> Option<()> {
        let mut terms = Vec::with_capacity(address.terms.len());
        for (index, stride) in &address.terms {
            terms.push((self.lanes(*index)?, *stride));
        }
        if !self.spend(active.len()) {
            return None;
        }
        for lane in 0..active.len() {
            if !active[lane] || guard.is_some_and(|guard| guard.at(lane) == 0) {
                continue;
            }
            let place = terms.iter().fold(u64::from(address.offset), |place, (index, stride)| {
                place + u64::from(index.at(lane)) * u64::from(*stride)
            });
            each(self, lane, u32::try_from(place).ok()?);
        }
        Some(())
    }

    fn store(&mut self, address: &Address, words: u32, guard: Option<Value>, active: &Active) {
        let Memory::Shared(shared) = address.memory else { return };
        let shared = shared as usize;
        if self.shared[shared].is_settled() {
            return;
        }
        let guard = match guard.map(|guard| self.lanes(guard)) {
            Some(None) => return,
            known => known.flatten(),
        };
        self.places(address, active, guard.as_ref(), |walk, lane, place| {
            let first = (place / 4) as usize;
            if !place.is_multiple_of(4) || first + words as usize > walk.shared[shared].words.len() {
                return;
            }
            for word in first..first + words as usize {
                if walk.shared[shared].words[word] == Word::Unwritten {
                    walk.set(shared, word, Word::Written(lane as u32));
                }
            }
        });
    }

    fn load(&mut self, address: &Address, bits: u32, width: u32, guard: Option<Value>, active: &Active) {
        let Memory::Shared(shared) = address.memory else { return };
        let shared = shared as usize;
        if self.shared[shared].is_settled() {
            return;
        }
        // Whoever may not read counts as a reader where that is not known.
        let guard = guard.and_then(|guard| self.lanes(guard));
        // Places of parts of bytes are not in bytes.
        let mut must = bits < 8;
        let bytes = u64::from(bits * width / 8);
        let known = self.places(address, active, guard.as_ref(), |walk, lane, place| {
            let words = &walk.shared[shared].words;
            let read = (place / 4) as usize..(u64::from(place) + bytes).div_ceil(4) as usize;
            must |= match words.get(read) {
                Some(words) => words.iter().any(|word| *word != Word::WaitedFor && *word != Word::Written(lane as u32)),
                None => true,
            };
        });
        self.shared[shared].must |= must || known.is_none();
    }

    /// The value in each invocation of a workgroup, where it follows from its place.
    fn lanes(&mut self, value: Value) -> Option<Lanes> {
        if let Some(known) = self.lanes.get(&value) {
            return known.clone();
        }
        // In case it comes by itself again, which it does not in a kernel that is well made.
        self.bind_computed(value, None);
        let lanes = match self.same.get(&value) {
            Some(same) => self.lanes(*same),
            None => self.compute(value),
        };
        self.lanes.insert(value, lanes.clone());
        lanes
    }

    fn bind_computed(&mut self, value: Value, lanes: Option<Lanes>) {
        self.lanes.insert(value, lanes);
        self.computed.push(value);
    }

    fn combined(&mut self, of: &[&Lanes], each: impl Fn(usize) -> u32) -> Option<Lanes> {
        if of.iter().all(|lanes| matches!(lanes, Lanes::Same(_))) {
            return Some(Lanes::Same(each(0)));
        }
        let invocations = self.invocations();
        self.spend(invocations).then(|| Lanes::Each((0..invocations).map(each).collect()))
    }

    fn compute(&mut self, value: Value) -> Option<Lanes> {
        let [x, y, z] = self.kernel.workgroup_size;
        let each = |place: &dyn Fn(u32) -> u32| Some(Lanes::Each((0..x * y * z).map(place).collect()));
        let scalar = |value: Value| self.kernel.values[value.index()].ty.scalar;
        let is_word = |value: Value| matches!(scalar(value), Scalar::U32 | Scalar::I32);
        match *self.ops.get(&value)? {
            Op::Const(Literal::U32(known)) => Some(Lanes::Same(*known)),
            Op::Const(Literal::I32(known)) => Some(Lanes::Same(*known as u32)),
            Op::Const(Literal::Bool(known)) => Some(Lanes::Same((*known).into())),
            Op::Builtin(Builtin::LocalIndex) => each(&|i| i),
            Op::Builtin(Builtin::LocalId(0)) => each(&|i| i % x),
            Op::Builtin(Builtin::LocalId(1)) => each(&|i| i / x % y),
            Op::Builtin(Builtin::LocalId(2)) => each(&|i| i / (x * y)),
            // Between these two nothing changes.
            Op::BitCast(a) | Op::Cast(a) if is_word(value) && is_word(*a) => self.lanes(*a),
            Op::Unary(Unary::Not, a) if scalar(value) == Scalar::Bool => {
                let a = self.lanes(*a)?;
                self.combined(&[&a], |lane| a.at(lane) ^ 1)
            }
            Op::Select(cond, yes, no) => {
                let (cond, yes, no) = (self.lanes(*cond)?, self.lanes(*yes)?, self.lanes(*no)?);
                self.combined(&[&cond, &yes, &no], |lane| if cond.at(lane) != 0 { yes.at(lane) } else { no.at(lane) })
            }
            Op::Binary(op, a, b) => {
                let combine = binary(*op, scalar(*a))?;
                let (a, b) = (self.lanes(*a)?, self.lanes(*b)?);
                self.combined(&[&a, &b], |lane| combine(a.at(lane), b.at(lane)))
            }
            _ => None,
        }
    }
}

/// What an operation on words or truth values computes.
fn binary(op: Binary, of: Scalar) -> Option<fn(u32, u32) -> u32> {
    let signed = of == Scalar::I32;
    Some(match (op, of) {
        (Binary::And, Scalar::Bool | Scalar::U32 | Scalar::I32) => |a, b| a & b,
        (Binary::Or, Scalar::Bool | Scalar::U32 | Scalar::I32) => |a, b| a | b,
        (Binary::Xor, Scalar::Bool | Scalar::U32 | Scalar::I32) => |a, b| a ^ b,
        (Binary::Eq, Scalar::Bool | Scalar::U32 | Scalar::I32) => |a, b| (a == b).into(),
        (Binary::Ne, Scalar::Bool | Scalar::U32 | Scalar::I32) => |a, b| (a != b).into(),
        (Binary::Add, Scalar::U32 | Scalar::I32) => u32::wrapping_add,
        (Binary::Sub, Scalar::U32 | Scalar::I32) => u32::wrapping_sub,
        (Binary::Mul, Scalar::U32 | Scalar::I32) => u32::wrapping_mul,
        (Binary::MulHigh, Scalar::U32) => |a, b| ((u64::from(a) * u64::from(b)) >> 32) as u32,
        (Binary::Shl, Scalar::U32 | Scalar::I32) => u32::wrapping_shl,
        (Binary::Lt, Scalar::U32) => |a, b| (a < b).into(),
        (Binary::Le, Scalar::U32) => |a, b| (a <= b).into(),
        (Binary::Gt, Scalar::U32) => |a, b| (a > b).into(),
        (Binary::Ge, Scalar::U32) => |a, b| (a >= b).into(),
        (Binary::Lt, _) if signed => |a, b| ((a as i32) < b as i32).into(),
        (Binary::Le, _) if signed => |a, b| (a as i32 <= b as i32).into(),
        (Binary::Gt, _) if signed => |a, b| (a as i32 > b as i32).into(),
        (Binary::Ge, _) if signed => |a, b| (a as i32 >= b as i32).into(),
        (Binary::Min, _) if signed => |a, b| (a as i32).min(b as i32) as u32,
        (Binary::Max, _) if signed => |a, b| (a as i32).max(b as i32) as u32,
        (Binary::Shr, Scalar::U32) => u32::wrapping_shr,
        (Binary::Min, Scalar::U32) => u32::min,
        (Binary::Max, Scalar::U32) => u32::max,
        (Binary::Div, Scalar::U32) => |a, b| a.checked_div(b).unwrap_or(a),
        (Binary::Rem, Scalar::U32) => |a, b| a.checked_rem(b).unwrap_or(0),
        _ => return None,
    })
}
