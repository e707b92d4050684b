//! Products in tiles, each invocation with some columns of its own side by side: `acc[n] += a * tile[k * 64u + column * 4u + n]`.
//!
//! Neighbours then load words that are four apart, which a device that takes neighbours as one vector has to sort in registers, in every round. Who has
//! which column does not matter while the loop goes on, where all columns are treated alike: so the columns are dealt out to the invocations of a row one by
//! one, as cards are, instead of some at once. Neighbours load neighbouring words, and after the loop the invocations exchange what they have, once, through
//! workgroup memory.
//!
//! All columns are treated alike where the steps that have to do with them fall into classes of one step for each column, which have the same operation and
//! operands of the same classes, or one that all invocations of the row have in common. The steps are sorted into classes as states of an automaton are, from
//! one class for all on.

use hashbrown::{HashMap, HashSet};
use smallvec::SmallVec;

use super::values::Values;
use crate::ir::{BarrierScope, Builtin};
use crate::kernel::walk::{Effect, access, blocks, each_inst, each_operand, each_use, exits, leaves};
use crate::kernel::{
    Address, Binary, Block, Element, End, Inst, Kernel, KernelMemory, Loop, Memory, Op, Scalar, Type, Value,
};

/// Columns that an invocation has.
const EACH: [u32; 3] = [2, 4, 8];
/// Invocations of a row.
const MOST_IN_ROW: u32 = 256;
/// Bytes of workgroup memory for what is exchanged.
const MOST_BYTES: u32 = 1 << 16;
/// Operations that a place in a tile may be made by.
const DEEP: u32 = 8;

/// Deals columns out one by one, where rows of invocations are whole vectors of so many lanes.
pub(super) fn run(kernel: &mut Kernel, lanes: u32) {
    if !kernel.has_barrier || kernel.shared.is_empty() {
        return;
    }
    let mut at = 0;
    while at < kernel.body.insts.len() {
        let plan = match &kernel.body.insts[at] {
            Inst::Loop(inner) if meets(inner) => plan(kernel, at, lanes),
            _ => None,
        };
        if let Some(plan) = plan {
            apply(kernel, at, &plan);
        }
        at += 1;
    }
}

/// All invocations of the workgroup meet in each round.
fn meets(inner: &Loop) -> bool {
    inner.body.insts.iter().any(|inst| matches!(inst, Inst::Barrier(_)))
}

/// Neighbours in a row: as many invocations one after the other.
#[derive(Clone, Copy)]
struct Row {
    /// The invocation's place in it.
    place: Value,
    count: u32,
}

/// Which word of its invocation a step has to do with.
type Turn = u32;

/// What is loaded at a place that says which columns it belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Leaf {
    memory: Memory,
    /// Terms of the address.
    terms: SmallVec<[(Value, u32); 2]>,
    /// Which of the terms has to do with the invocation's place in its row.
    varying: usize,
    guard: Option<Value>,
    /// Where the invocation's columns begin.
    offset: u32,
    element: Element,
    first: Turn,
}

/// How a loop is changed.
struct Plan {
    row: Row,
    each: u32,
    leaves: HashMap<Value, Leaf>,
    /// Results that are exchanged, each class with one of each turn.
    exchanged: Vec<Vec<Value>>,
}

fn plan(kernel: &mut Kernel, at: usize, lanes: u32) -> Option<Plan> {
    let values = Values::with_definitions(kernel);
    let found = find(kernel, &values, at, lanes);
    values.give_back(kernel);
    found
}

fn find(kernel: &Kernel, values: &Values, at: usize, lanes: u32) -> Option<Plan> {
    let Inst::Loop(inner) = &kernel.body.insts[at] else { return None };
    for row in rows(kernel, values, inner, lanes) {
        let varying = Varying::of(kernel, values, row);
        for each in EACH {
            let leaves = leaves_of(inner, values, &varying, row, each);
            if leaves.is_empty() || !is_apart(kernel, &leaves) {
                continue;
            }
            let mut dealt =
                Dealt { values, varying: &varying, each, leaves: &leaves, turns: HashMap::new(), settled: false };
            let Some(exchanged) = dealt.exchanged(&kernel.body.insts[at], inner) else { continue };
            let [x, y, z] = kernel.workgroup_size;
            let bytes = (exchanged.len() as u64) * u64::from(x * y * z) * u64::from(each) * 4;
            if bytes <= u64::from(MOST_BYTES) {
                return Some(Plan { row, each, leaves, exchanged });
            }
        }
    }
    None
}

/// The rows that places in a loop are made of.
fn rows(kernel: &Kernel, values: &Values, inner: &Loop, lanes: u32) -> Vec<Row> {
    let [x, y, z] = kernel.workgroup_size;
    let mut named = HashSet::new();
    each_inst(&inner.body, &mut |inst| {
        if let Inst::Let(_, Op::Load { address: Address { memory: Memory::Shared(_), terms, .. }, .. }) = inst {
            let mut deep: Vec<(Value, u32)> = terms.iter().map(|(index, _)| (*index, DEEP)).collect();
            while let Some((value, left)) = deep.pop() {
                if named.insert(value)
                    && left > 0
                    && let Some(op @ Op::Binary(..)) = values.def(value)
                {
                    each_operand(op, &mut |operand| deep.push((operand, left - 1)));
                }
            }
        }
    });
    let mut rows: Vec<Row> = named
        .into_iter()
        .filter_map(|place| {
            let count = match *values.def(place)? {
                Op::Builtin(Builtin::LocalId(0)) => x,
                Op::Builtin(Builtin::LocalIndex) if y * z == 1 => x,
                Op::Binary(Binary::And, a, b) if is_index(values, a) => {
                    u32::try_from(values.number(b)?).ok()?.checked_add(1)?
                }
                _ => return None,
            };
            let fits = count.is_power_of_two() && count.is_multiple_of(lanes) && x.is_multiple_of(count);
            (fits && count <= MOST_IN_ROW).then_some(Row { place, count })
        })
        .collect();
    rows.sort_unstable_by_key(|row| row.place);
    rows
}

/// Neighbours have neighbouring numbers, the first of a row a multiple of its length.
fn is_index(values: &Values, value: Value) -> bool {
    matches!(values.def(value), Some(Op::Builtin(Builtin::LocalId(0) | Builtin::LocalIndex | Builtin::GlobalId(0))))
}

/// What is not the same for all invocations of a row that compute it together.
struct Varying {
    values: HashSet<Value>,
    row: Row,
}

impl Varying {
    fn of(kernel: &Kernel, values: &Values, row: Row) -> Varying {
        let mut varying = Varying { values: HashSet::new(), row };
        loop {
            let before = varying.values.len();
            varying.block(values, &kernel.body);
            if varying.values.len() == before {
                return varying;
            }
        }
    }

    fn has(&self, value: Value) -> bool {
        self.values.contains(&value)
    }

    fn block(&mut self, values: &Values, block: &Block) {
        for inst in &block.insts {
            match inst {
                Inst::Let(value, op) => {
                    if self.op(values, op) {
                        self.values.insert(*value);
                    }
                }
                Inst::Atomic { result, .. } => self.values.extend(*result),
                Inst::If { cond, then, otherwise, results } => {
                    self.block(values, then);
                    self.block(values, otherwise);
                    for (position, result) in results.iter().enumerate() {
                        let given = |block: &Block| matches!(&block.end, End::Yield(all) if self.has(all[position]));
                        if self.has(*cond) || given(then) || given(otherwise) {
                            self.values.insert(*result);
                        }
                    }
                }
                Inst::Loop(inner) => {
                    self.block(values, &inner.body);
                    let (mut again, mut out) = (Vec::new(), Vec::new());
                    exits(&inner.body, &mut again, &mut out);
                    let parts = self.parts(inner);
                    self.values.extend(inner.counter.filter(|_| parts).map(|counter| counter.value));
                    for (position, (&param, &result)) in inner.params.iter().zip(&inner.results).enumerate() {
                        let carried = again.iter().any(|all| self.has(all[position]));
                        if parts || carried || self.has(inner.init[position]) {
                            self.values.insert(param);
                        }
                        let left = out.iter().any(|all| self.has(all[position]));
                        if parts || left || inner.counter.is_some() && self.has(param) {
                            self.values.insert(result);
                        }
                    }
                }
                Inst::Store { .. } | Inst::Barrier(_) => {}
            }
        }
    }

    fn op(&self, values: &Values, op: &Op) -> bool {
        let log = self.row.count.trailing_zeros();
        let mut any = false;
        each_operand(op, &mut |operand| any |= self.has(operand));
        match *op {
            Op::Builtin(builtin) => !matches!(
                builtin,
                Builtin::LocalId(1 | 2)
                    | Builtin::GlobalId(1 | 2)
                    | Builtin::WorkgroupId(_)
                    | Builtin::NumWorkgroups(_)
                    | Builtin::WorkgroupSize(_)
            ),
            Op::Binary(Binary::Shr, a, by) if is_index(values, a) => {
                values.number(by).is_none_or(|by| by < i128::from(log) || by > 31)
            }
            Op::Binary(Binary::And, a, kept) if is_index(values, a) => {
                values.number(kept).is_none_or(|kept| kept & i128::from(self.row.count - 1) != 0)
            }
            Op::Load { ref address, .. } => any || matches!(address.memory, Memory::Local(_)),
            Op::Subgroup(..) | Op::Matrix(_) => true,
            _ => any,
        }
    }

    /// Invocations of a row may leave the loop, or go on to its next round, one without the other.
    fn parts(&self, inner: &Loop) -> bool {
        fn ways_part(varying: &Varying, block: &Block) -> bool {
            block.insts.iter().any(|inst| match inst {
                Inst::If { cond, then, otherwise, .. } => {
                    varying.has(*cond) && (leaves(then) || leaves(otherwise))
                        || ways_part(varying, then)
                        || ways_part(varying, otherwise)
                }
                _ => false,
            })
        }
        inner.counter.is_some_and(|counter| self.has(counter.from) || self.has(counter.to))
            || ways_part(self, &inner.body)
    }
}

/// What the loop loads of workgroup memory at places that are so many words apart for neighbours.
fn leaves_of(inner: &Loop, values: &Values, varying: &Varying, row: Row, each: u32) -> HashMap<Value, Leaf> {
    let mut leaves = HashMap::new();
    each_inst(&inner.body, &mut |inst| {
        let Inst::Let(value, Op::Load { address, element, guard }) = inst else { return };
        let width = u32::from(values.ty(*value).width);
        let words = matches!(element, Element::U32 | Element::I32 | Element::F32);
        let mut terms = address.terms.iter().enumerate().filter(|(_, (index, _))| varying.has(*index));
        let (Memory::Shared(_), Some((at, &(index, stride))), None) = (address.memory, terms.next(), terms.next())
        else {
            return;
        };
        let first = address.offset / 4 % each;
        let fits = words && width != 3 && first + width <= each && address.offset.is_multiple_of(4);
        let apart = apart_by(values, varying, row, index, stride, DEEP);
        if fits && apart == Some(4 * each) && guard.is_none_or(|guard| !varying.has(guard)) {
            let leaf = Leaf {
                memory: address.memory,
                terms: address.terms.clone(),
                varying: at,
                guard: *guard,
                offset: address.offset - 4 * first,
                element: *element,
                first,
            };
            leaves.insert(*value, leaf);
        }
    });
    leaves
}

/// How many bytes an index of this stride is from one invocation of the row to the next, where `dealt_index` can change it.
fn apart_by(values: &Values, varying: &Varying, row: Row, index: Value, stride: u32, deep: u32) -> Option<u32> {
    if index == row.place {
        return Some(stride);
    }
    let deep = deep.checked_sub(1)?;
    let number = |value: Value| u32::try_from(values.number(value)?).ok();
    match *values.def(index)? {
        Op::Binary(Binary::Shl, a, by) if a == row.place => stride.checked_mul(1u32.checked_shl(number(by)?)?),
        Op::Binary(Binary::Mul, a, by) if a == row.place => stride.checked_mul(number(by)?),
        // A sum wraps around as one of words, and in no other way.
        Op::Binary(Binary::Add, a, b) if stride == 4 => match (varying.has(a), varying.has(b)) {
            (true, false) => apart_by(values, varying, row, a, stride, deep),
            (false, true) => apart_by(values, varying, row, b, stride, deep),
            _ => None,
        },
        _ => None,
    }
}

/// The index with the place in the row itself instead of so many words for each place.
fn dealt_index(
    values: &mut Values,
    row: Row,
    fixed: &dyn Fn(Value) -> bool,
    index: Value,
    insts: &mut Vec<Inst>,
) -> Value {
    match values.def(index).cloned() {
        _ if index == row.place => index,
        Some(Op::Binary(Binary::Add, a, b)) => {
            let (moved, kept) = if fixed(a) { (b, a) } else { (a, b) };
            let moved = dealt_index(values, row, fixed, moved, insts);
            values.binary(Binary::Add, kept, moved, insts)
        }
        _ => row.place,
    }
}

/// Between loads of what is dealt out and other accesses that change the same memory all invocations meet.
fn is_apart(kernel: &Kernel, leaves: &HashMap<Value, Leaf>) -> bool {
    const DEALT: u8 = 1;
    const CHANGED: u8 = 2;
    struct Walk<'l> {
        leaves: &'l HashMap<Value, Leaf>,
        memory: Memory,
        /// What there was since invocations met, where rounds of the loop end.
        ends: u8,
        clash: bool,
    }
    impl Walk<'_> {
        fn block(&mut self, block: &Block, mut since: u8) -> u8 {
            for inst in &block.insts {
                match inst {
                    Inst::Barrier(BarrierScope::Workgroup) => since = 0,
                    Inst::Let(value, _) if self.leaves.get(value).is_some_and(|leaf| leaf.memory == self.memory) => {
                        since |= DEALT;
                    }
                    Inst::If { then, otherwise, .. } => since = self.block(then, since) | self.block(otherwise, since),
                    Inst::Loop(inner) => {
                        let around = std::mem::replace(&mut self.ends, 0);
                        let first = self.block(&inner.body, since) | since | self.ends;
                        since = self.block(&inner.body, first) | first | self.ends;
                        self.ends = around;
                    }
                    _ if access(inst)
                        .is_some_and(|(address, effect)| address.memory == self.memory && effect != Effect::Read) =>
                    {
                        since |= CHANGED;
                    }
                    _ => {}
                }
                self.clash |= since == DEALT | CHANGED;
            }
            if matches!(block.end, End::Continue(_) | End::Break(_)) {
                self.ends |= since;
            }
            since
        }
    }
    let memories: HashSet<Memory> = leaves.values().map(|leaf| leaf.memory).collect();
    memories.into_iter().all(|memory| {
        let mut walk = Walk { leaves, memory, ends: 0, clash: false };
        walk.block(&kernel.body, 0);
        !walk.clash
    })
}

/// The steps of a loop that have to do with columns.
struct Dealt<'a> {
    values: &'a Values,
    varying: &'a Varying,
    each: u32,
    leaves: &'a HashMap<Value, Leaf>,
    turns: HashMap<Value, Turn>,
    /// All turns are known.
    settled: bool,
}

/// How a value is made; values that have to do with columns are given by their class, and their place is that of their step among all.
#[derive(PartialEq, Eq, Hash)]
enum Made {
    Leaf(u32, Leaf),
    Op(u32, Op),
    /// What is given where ways meet, or a loop begins its rounds.
    Given(u32, Vec<Result<u32, Value>>),
}

impl Dealt<'_> {
    /// The classes of the loop's results; `None` where columns are not treated alike.
    fn exchanged(&mut self, inst: &Inst, inner: &Loop) -> Option<Vec<Vec<Value>>> {
        loop {
            let before = self.turns.len();
            self.inst(inst)?;
            if self.turns.len() == before {
                break;
            }
        }
        self.settled = true;
        self.inst(inst)?;
        self.is_whole(std::slice::from_ref(inst)).then_some(())?;
        let mut classes: HashMap<Value, u32> = self.turns.keys().map(|value| (*value, 0)).collect();
        let mut count = 1;
        loop {
            let mut sorting =
                Sorting { dealt: self, classes: &classes, place: 0, made: HashMap::new(), next: HashMap::new() };
            sorting.inst(inst);
            let (found, next) = (sorting.made.len() as u32, sorting.next);
            classes = next;
            if found == count {
                break;
            }
            count = found;
        }
        let mut members: Vec<Vec<Option<Value>>> = vec![vec![None; self.each as usize]; count as usize];
        for (&value, &turn) in &self.turns {
            let place = &mut members[*classes.get(&value)? as usize][turn as usize];
            if place.replace(value).is_some() {
                return None;
            }
        }
        let members: Vec<Vec<Value>> =
            members.into_iter().map(|all| all.into_iter().collect()).collect::<Option<_>>()?;
        let mut exchanged: Vec<Vec<Value>> =
            members.into_iter().filter(|all| inner.results.contains(&all[0])).collect();
        let words = |all: &Vec<Value>| {
            matches!(self.values.scalar(all[0]), Scalar::U32 | Scalar::I32 | Scalar::F32)
                && all.iter().all(|value| inner.results.contains(value))
        };
        exchanged.sort_unstable();
        (!exchanged.is_empty() && exchanged.iter().all(words)).then_some(exchanged)
    }

    /// The turn that all of these have in common which have to do with columns; `None` where there are several.
    fn common(&self, values: &[Value]) -> Option<Option<Turn>> {
        let mut turn = None;
        for value in values {
            if self.leaves.contains_key(value) && self.values.ty(*value).width > 1 {
                return None;
            }
            let own = self.turns.get(value).copied();
            if own.is_some() && turn.is_some() && own != turn {
                return None;
            }
            turn = turn.or(own);
        }
        Some(turn)
    }

    /// What has nothing to do with columns is the same for all invocations of a row.
    fn are_common(&self, values: &[Value]) -> bool {
        !self.settled || values.iter().all(|value| self.turns.contains_key(value) || !self.varying.has(*value))
    }

    /// Notes what a step gives of columns; `None` where it does something with them that is not done for each alone.
    fn inst(&mut self, inst: &Inst) -> Option<()> {
        match inst {
            Inst::Let(value, op) => {
                if let Some(leaf) = self.leaves.get(value) {
                    if self.values.ty(*value).width == 1 {
                        self.turns.insert(*value, leaf.first);
                    }
                    return Some(());
                }
                if let Op::Extract(whole, part) = op
                    && let Some(leaf) = self.leaves.get(whole)
                {
                    self.turns.insert(*value, leaf.first + u32::from(*part));
                    return Some(());
                }
                let mut operands: SmallVec<[Value; 4]> = SmallVec::new();
                each_operand(op, &mut |operand| operands.push(operand));
                let Some(turn) = self.common(&operands)? else { return Some(()) };
                let alone = matches!(
                    op,
                    Op::Unary(..) | Op::Binary(..) | Op::Fma(..) | Op::Select(..) | Op::Cast(_) | Op::BitCast(_)
                );
                (alone && self.are_common(&operands) && self.values.ty(*value).width == 1).then_some(())?;
                self.turns.insert(*value, turn);
            }
            Inst::If { cond, then, otherwise, results } => {
                self.nothing_of(&[*cond])?;
                let mut given: Vec<SmallVec<[Value; 4]>> = vec![SmallVec::new(); results.len()];
                for block in [then, otherwise] {
                    self.block(block)?;
                    if let End::Yield(all) = &block.end {
                        given.iter_mut().zip(all).for_each(|(given, value)| given.push(*value));
                    }
                }
                for (result, given) in results.iter().zip(given) {
                    self.meet(&[*result], &given)?;
                }
            }
            Inst::Loop(inner) => {
                if let Some(counter) = inner.counter {
                    self.nothing_of(&[counter.from, counter.to])?;
                }
                self.block(&inner.body)?;
                let (mut again, mut out) = (Vec::new(), Vec::new());
                exits(&inner.body, &mut again, &mut out);
                for (position, (&param, &result)) in inner.params.iter().zip(&inner.results).enumerate() {
                    let mut given: SmallVec<[Value; 4]> = again.iter().map(|all| all[position]).collect();
                    given.push(inner.init[position]);
                    given.push(param);
                    self.meet(&[param], &given)?;
                    let mut given: SmallVec<[Value; 4]> = out.iter().map(|all| all[position]).collect();
                    given.extend(inner.counter.map(|_| param));
                    self.meet(&[result], &given)?;
                }
            }
            _ => {
                let mut operands: SmallVec<[Value; 4]> = SmallVec::new();
                each_use(inst, &mut |operand| operands.push(operand));
                self.nothing_of(&operands)?;
            }
        }
        Some(())
    }

    fn block(&mut self, block: &Block) -> Option<()> {
        block.insts.iter().try_for_each(|inst| self.inst(inst))
    }

    fn nothing_of(&self, values: &[Value]) -> Option<()> {
        (self.common(values)?.is_none()).then_some(())
    }

    /// What is one of these values has to do with the columns that they have to do with.
    fn meet(&mut self, results: &[Value], given: &[Value]) -> Option<()> {
        let Some(turn) = self.common(given)? else { return Some(()) };
        self.are_common(given).then_some(())?;
        for result in results {
            if self.turns.insert(*result, turn).is_some_and(|old| old != turn) {
                return None;
            }
        }
        Some(())
    }

    /// Where there is something of columns, all invocations of a row go the same way.
    fn is_whole(&self, insts: &[Inst]) -> bool {
        insts.iter().all(|inst| {
            let together = match inst {
                Inst::If { cond, .. } => !self.varying.has(*cond),
                Inst::Loop(inner) => !self.varying.parts(inner),
                _ => true,
            };
            (together || !self.is_in(inst)) && blocks(inst).all(|block| self.is_whole(&block.insts))
        })
    }

    fn is_in(&self, inst: &Inst) -> bool {
        let own = match inst {
            Inst::Let(value, _) => self.turns.contains_key(value) || self.leaves.contains_key(value),
            Inst::If { results, .. } => results.iter().any(|value| self.turns.contains_key(value)),
            Inst::Loop(inner) => inner.params.iter().chain(&inner.results).any(|value| self.turns.contains_key(value)),
            _ => false,
        };
        own || blocks(inst).any(|block| block.insts.iter().any(|inst| self.is_in(inst)))
    }
}

/// Sorts steps into classes, by the classes of what they work on.
struct Sorting<'s, 'a> {
    dealt: &'s Dealt<'a>,
    classes: &'s HashMap<Value, u32>,
    /// Blocks and meetings so far: what belongs together is in one of them.
    place: u32,
    made: HashMap<(u32, Made), u32>,
    next: HashMap<Value, u32>,
}

impl Sorting<'_, '_> {
    fn note(&mut self, value: Value, made: impl FnOnce(&Self) -> Made) {
        if let Some(&old) = self.classes.get(&value) {
            let made = made(self);
            let count = self.made.len() as u32;
            let class = *self.made.entry((old, made)).or_insert(count);
            self.next.insert(value, class);
        }
    }

    fn given(&self, value: Value) -> Result<u32, Value> {
        self.classes.get(&value).copied().ok_or(value)
    }

    fn inst(&mut self, inst: &Inst) {
        let place = self.place;
        match inst {
            Inst::Let(value, op) => self.note(*value, |this| {
                let leaf = match op {
                    Op::Extract(whole, _) => this.dealt.leaves.get(whole),
                    _ => this.dealt.leaves.get(value),
                };
                match leaf {
                    // The words of one are as good as those of several.
                    Some(leaf) => Made::Leaf(place, Leaf { first: 0, ..leaf.clone() }),
                    None => {
                        let mut op = op.clone();
                        crate::kernel::walk::each_operand_mut(&mut op, &mut |operand| {
                            if let Some(class) = this.classes.get(operand) {
                                *operand = Value(u32::MAX - class);
                            }
                        });
                        Made::Op(place, op)
                    }
                }
            }),
            Inst::If { then, otherwise, results, .. } => {
                self.block(then);
                self.block(otherwise);
                for (position, &result) in results.iter().enumerate() {
                    let given = [then, otherwise].into_iter().filter_map(|block| match &block.end {
                        End::Yield(all) => Some(all[position]),
                        _ => None,
                    });
                    let given: Vec<Value> = given.collect();
                    self.note(result, |this| {
                        Made::Given(place, given.iter().map(|value| this.given(*value)).collect())
                    });
                }
            }
            Inst::Loop(inner) => {
                let (mut again, mut out) = (Vec::new(), Vec::new());
                exits(&inner.body, &mut again, &mut out);
                for (position, &param) in inner.params.iter().enumerate() {
                    self.note(param, |this| {
                        let carried = again.iter().map(|all| all[position]).chain([inner.init[position]]);
                        Made::Given(place, carried.map(|value| this.given(value)).collect())
                    });
                }
                self.block(&inner.body);
                let place = self.place;
                for (position, &result) in inner.results.iter().enumerate() {
                    self.note(result, |this| {
                        let left = out.iter().map(|all| all[position]);
                        let left = left.chain(inner.counter.map(|_| inner.params[position]));
                        Made::Given(place, left.map(|value| this.given(value)).collect())
                    });
                }
            }
            Inst::Barrier(_) => self.place += 1,
            Inst::Store { .. } | Inst::Atomic { .. } => {}
        }
    }

    fn block(&mut self, block: &Block) {
        self.place += 1;
        block.insts.iter().for_each(|inst| self.inst(inst));
        self.place += 1;
    }
}

fn apply(kernel: &mut Kernel, at: usize, plan: &Plan) {
    let mut values = Values::with_definitions(kernel);
    let varying = Varying::of(kernel, &values, plan.row);
    let mut insts = Vec::new();
    if let Inst::Loop(inner) = &mut kernel.body.insts[at] {
        deal(&mut inner.body, &mut values, &varying, plan);
        exchange(inner, &mut values, &mut kernel.shared, kernel.workgroup_size, plan, &mut insts);
    }
    kernel.body.insts.splice(at + 1..at + 1, insts);
    values.give_back(kernel);
}

/// Loads the columns that each invocation gets now.
fn deal(block: &mut Block, values: &mut Values, varying: &Varying, plan: &Plan) {
    let mut insts = Vec::with_capacity(block.insts.len());
    for mut inst in std::mem::take(&mut block.insts) {
        crate::kernel::walk::blocks_mut(&mut inst).for_each(|block| deal(block, values, varying, plan));
        let Inst::Let(value, op) = &inst else {
            insts.push(inst);
            continue;
        };
        let (leaf, turn) = match op {
            // It is loaded word by word.
            _ if plan.leaves.contains_key(value) && values.ty(*value).width > 1 => continue,
            Op::Extract(whole, part) => (plan.leaves.get(whole), u32::from(*part)),
            _ => (plan.leaves.get(value), 0),
        };
        let Some(leaf) = leaf else {
            insts.push(inst);
            continue;
        };
        let (index, _) = leaf.terms[leaf.varying];
        let mut terms = leaf.terms.clone();
        let index = dealt_index(values, plan.row, &|value| !varying.has(value), index, &mut insts);
        terms[leaf.varying] = (index, 4);
        let offset = leaf.offset + (leaf.first + turn) * plan.row.count * 4;
        let address = Address { memory: leaf.memory, terms, offset };
        let op = Op::Load { address, element: leaf.element, guard: leaf.guard };
        values.set(*value, &op);
        insts.push(Inst::Let(*value, op));
    }
    block.insts = insts;
}

/// Gives each invocation the results of its own columns after a loop.
fn exchange(
    inner: &mut Loop,
    values: &mut Values,
    shared: &mut Vec<KernelMemory>,
    size: [u32; 3],
    plan: &Plan,
    insts: &mut Vec<Inst>,
) {
    let Plan { row: Row { count, .. }, each, .. } = *plan;
    let index = values.define(Scalar::U32, Op::Builtin(Builtin::LocalIndex), insts);
    let by = values.constant(Scalar::U32, count.trailing_zeros(), insts);
    let row = values.binary(Binary::Shr, index, by, insts);
    let kept = values.constant(Scalar::U32, count - 1, insts);
    let place = values.binary(Binary::And, index, kept, insts);
    let mut given_back = Vec::new();
    for class in &plan.exchanged {
        let scalar = values.scalar(class[0]);
        let element = match scalar {
            Scalar::F32 => Element::F32,
            Scalar::I32 => Element::I32,
            _ => Element::U32,
        };
        let memory = Memory::Shared(shared.len() as u32);
        shared.push(KernelMemory {
            name: "exchanged".into(),
            element: Some((element, 1)),
            size: size.iter().product::<u32>() * each * 4,
            align: 16,
            atomic: false,
            cleared: false,
            words: None,
        });
        for (turn, result) in (0..).zip(class) {
            let dealt = values.like(*result);
            inner.results.iter_mut().filter(|other| *other == result).for_each(|other| *other = dealt);
            let terms = SmallVec::from_slice(&[(row, 4 * each * count), (place, 4)]);
            let address = Address { memory, terms, offset: 4 * count * turn };
            insts.push(Inst::Store { address, element, value: dealt, guard: None });
        }
        let width = if each <= 4 { each } else { 1 };
        for first in (0..each).step_by(width as usize) {
            let terms = SmallVec::from_slice(&[(index, 4 * each)]);
            let load = Op::Load { address: Address { memory, terms, offset: 4 * first }, element, guard: None };
            let own = &class[first as usize..][..width as usize];
            if width == 1 {
                values.set(own[0], &load);
                given_back.push(Inst::Let(own[0], load));
                continue;
            }
            let whole = values.define(Type { scalar, width: width as u8 }, load, &mut given_back);
            for (part, value) in (0..).zip(own) {
                let op = Op::Extract(whole, part);
                values.set(*value, &op);
                given_back.push(Inst::Let(*value, op));
            }
        }
    }
    insts.push(Inst::Barrier(BarrierScope::Workgroup));
    insts.append(&mut given_back);
}
