//! One walk over the kernel that rebuilds it: folds, shares common values, takes known ways, and unrolls.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use hashbrown::{HashSet, HashTable};
use smallvec::SmallVec;

use super::arrays::is_plain;
use super::straight;
use super::trial::{self, Trial};
use crate::ir::{Builtin, Literal};
use crate::kernel::build::is_comparison;
use crate::kernel::walk::{
    self, Effect, access, each_inst, each_operand, each_operand_mut, each_use_mut, end_values_mut, exits, results,
};
use crate::kernel::{
    Address, Binary, Block, Counter, End, Inst, Kernel, Loop, Memory, Op, Options, Passes, Scalar, Type, Unary,
    Unrolling, Value, ValueInfo, fold,
};

/// An `if` of up to so many steps becomes a selection.
const SELECT_STEPS: usize = 10;
/// Steps of a case of a `switch` that becomes a selection among all, and of all that come after it: neighbours mostly have different cases.
const CASE_STEPS: usize = 2;
const OTHER_CASES_STEPS: usize = 48;
/// Numbers that one case may have.
const CASES: u32 = 8;
/// Steps of what is done by all but those for which two numbers are equal: it may as well be done by all.
const ALL_BUT_ONE_STEPS: usize = 40;
/// Constants for which there is room at first.
const CONSTANTS: usize = 48;
/// After so many stores to private arrays a stored value is loaded again instead of kept in a register.
const KEPT_WORDS: u32 = 32;
/// Steps of all rounds of a loop that most invocations leave early, written out at most: with more of them invocations that are in different rounds
/// need more code at once than the cache of instructions has.
const STEPS_LEFT_EARLY: usize = 1024;
/// Rounds of a loop with branches around square roots and quotients that are written out.
const ROUNDS_WITH_ROOTS: u32 = 4;
/// Steps of a round from which on what places make is looked up instead, with the rounds written out.
const STEPS_OF_PLACES: usize = 20;
/// Steps of all those rounds, of which most are not there in the end.
const MOST_WITH_TABLES: usize = 1 << 12;

/// Rewrites a kernel. Loops whose counters are marked in `unrolled` are unrolled whatever their length. In the last walk,
/// comparisons take the form that costs least.
pub(super) fn run(kernel: &mut Kernel, passes: Passes, unrolled: Vec<bool>, options: &Options, last: bool) {
    let wanted = Passes::FOLD
        .with(Passes::COMMON)
        .with(Passes::STRENGTH)
        .with(Passes::BRANCHES)
        .with(Passes::UNROLL)
        .with(Passes::TREES)
        .with(Passes::RANGES);
    if passes.without(wanted) == passes && unrolled.is_empty() {
        return;
    }
    let count = kernel.values.len();
    let mut writable = vec![false; kernel.buffers.len()];
    // Only who waits for others sees what they write.
    if kernel.has_barrier {
        each_inst(&kernel.body, &mut |inst| {
            if let Some((address, Effect::Write | Effect::Both)) = access(inst)
                && let Memory::Buffer(buffer) = address.memory
            {
                writable[buffer as usize] = true;
            }
        });
    }
    // Room for what unrolling and folding add, so that the large tables are not copied while they grow.
    let room = count + count / 2 + 64;
    kernel.values.reserve(room - count);
    let mut rewriter = Rewriter {
        passes,
        last,
        values: std::mem::take(&mut kernel.values),
        slots: with_room(room, (0..count as u32).map(|i| Slot::of(Value(i)))),
        defs: with_room(room, std::iter::repeat_n(None, count)),
        known_log: Vec::new(),
        table: HashTable::with_capacity(count),
        table_log: Vec::with_capacity(count),
        scope: Vec::with_capacity(count),
        epochs: Epochs {
            next: 1,
            buffers: vec![0; kernel.buffers.len()],
            shared: vec![0; kernel.shared.len()],
            locals: vec![0; kernel.locals.len()],
            writable,
        },
        words: Words {
            plain: kernel.locals.iter().map(is_plain).collect(),
            blurred: vec![0; kernel.locals.len()],
            // On a processor with AVX-512 a Cholesky decomposition took about 1.3 times as long with it.
            most: if options.unrolling.any_form { KEPT_WORDS } else { 0 },
            ..Words::default()
        },
        blocks: vec![Vec::with_capacity(kernel.body.insts.len() + CONSTANTS)],
        constants: HashMap::with_capacity_and_hasher(CONSTANTS, BuildHasherDefault::default()),
        new_constants: Vec::new(),
        renaming: 0,
        unrolled,
        unrolling: options.unrolling,
        trees: options.trees_written_out && passes.contains(Passes::TREES),
        tables: options.places_tabled && passes.contains(Passes::TABLES),
        once: false,
        parts_of_words: options.parts_of_words,
        long_roots: options.long_roots,
        workgroup_size: kernel.workgroup_size,
        budget: options.unrolling.growth as usize,
    };
    let left = rewriter.insts(&kernel.body.insts);
    let end = left.unwrap_or_else(|| rewriter.end(&kernel.body.end));
    let mut insts = rewriter.blocks.pop().unwrap_or_default();
    if !rewriter.new_constants.is_empty() {
        insts.splice(0..0, rewriter.new_constants);
    }
    kernel.body = Block { insts, end };
    kernel.values = rewriter.values;
}

fn with_room<T>(room: usize, items: impl Iterator<Item = T>) -> Vec<T> {
    let mut list = Vec::with_capacity(room);
    list.extend(items);
    list
}

/// Mixes words; keys are small and trusted.
#[derive(Default)]
pub(super) struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        // The product's high bits are the well mixed ones; tables look at the low ones first.
        self.0.rotate_left(26)
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }
    fn write_u8(&mut self, n: u8) {
        self.write_u64(n.into());
    }
    fn write_u32(&mut self, n: u32) {
        self.write_u64(n.into());
    }
    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
    fn write_isize(&mut self, n: isize) {
        self.write_u64(n as u64);
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(5) ^ n).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

type Map<K, V> = HashMap<K, V, BuildHasherDefault<Mix>>;

/// Counts the changes of each memory, so that an old load is known to be old.
pub(super) struct Epochs {
    next: u32,
    buffers: Vec<u32>,
    shared: Vec<u32>,
    locals: Vec<u32>,
    writable: Vec<bool>,
}

impl Epochs {
    pub(super) fn of(&self, memory: Memory) -> u32 {
        match memory {
            Memory::Buffer(i) => self.buffers[i as usize],
            Memory::Shared(i) => self.shared[i as usize],
            Memory::Local(i) => self.locals[i as usize],
        }
    }

    fn change(&mut self, memory: Memory) {
        self.next += 1;
        match memory {
            Memory::Buffer(i) => self.buffers[i as usize] = self.next,
            Memory::Shared(i) => self.shared[i as usize] = self.next,
            Memory::Local(i) => self.locals[i as usize] = self.next,
        }
    }

    /// Other invocations' writes become visible.
    fn barrier(&mut self) {
        self.next += 1;
        for (epoch, writable) in self.buffers.iter_mut().zip(&self.writable) {
            if *writable {
                *epoch = self.next;
            }
        }
        self.shared.fill(self.next);
    }

    fn inst(&mut self, inst: &Inst) {
        match inst {
            Inst::Barrier(_) => self.barrier(),
            inst => {
                if let Some((address, Effect::Write | Effect::Both)) = access(inst) {
                    self.change(address.memory);
                }
            }
        }
    }
}

/// What is in words of private arrays whose places are constant.
#[derive(Default)]
struct Words {
    /// Arrays of which a load gives what a store wrote bit by bit, one scalar at a time.
    plain: Vec<bool>,
    /// The epoch in which an array was last changed at a place that is not known.
    blurred: Vec<u32>,
    /// The value of a word, by array and offset, with the number of the store that put it there and the array's epoch then.
    known: Map<(u32, u32), (Value, u32, u32)>,
    log: Vec<(u32, u32)>,
    stores: u32,
    /// For how many stores a value is kept.
    most: u32,
}

impl Words {
    /// The array and offset of a word at a constant place.
    fn word(&self, address: &Address, guard: Option<Value>) -> Option<(u32, u32)> {
        match address.memory {
            Memory::Local(local) if guard.is_none() && address.terms.is_empty() && self.plain[local as usize] => {
                Some((local, address.offset))
            }
            _ => None,
        }
    }

    fn load(&self, address: &Address, guard: Option<Value>) -> Option<Value> {
        let word = self.word(address, guard)?;
        let &(value, store, epoch) = self.known.get(&word)?;
        (epoch == self.blurred[word.0 as usize] && self.stores - store < self.most).then_some(value)
    }

    /// Notes a change, in this epoch.
    fn change(&mut self, inst: &Inst, epoch: u32) {
        let Some((Address { memory: Memory::Local(local), .. }, Effect::Write | Effect::Both)) = access(inst) else {
            return;
        };
        if self.most == 0 {
            return;
        }
        let stored = match inst {
            Inst::Store { address, value, guard, .. } => self.word(address, *guard).map(|word| (word, *value)),
            _ => None,
        };
        match stored {
            Some((word, value)) => {
                self.stores += 1;
                self.known.insert(word, (value, self.stores, self.blurred[word.0 as usize]));
                self.log.push(word);
            }
            None => self.blurred[*local as usize] = epoch,
        }
    }

    /// Notes that a loop changes an array.
    fn blur(&mut self, inst: &Inst, epoch: u32) {
        if let Some((Address { memory: Memory::Local(local), .. }, Effect::Write | Effect::Both)) = access(inst) {
            self.blurred[*local as usize] = epoch;
        }
    }
}

/// A computed value: its hash, itself, and the epoch of the memory it read.
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub(super) hash: u64,
    pub(super) value: Value,
    pub(super) epoch: u32,
}

/// What stands for a value of the old kernel, and what is known here of a value of the new one.
#[derive(Clone, Copy)]
struct Slot {
    subst: Value,
    known: Option<bool>,
    visible: bool,
}

impl Slot {
    fn of(value: Value) -> Slot {
        Slot { subst: value, known: None, visible: false }
    }
}

pub(super) struct Rewriter {
    pub(super) passes: Passes,
    pub(super) last: bool,
    pub(super) values: Vec<ValueInfo>,
    slots: Vec<Slot>,
    pub(super) defs: Vec<Option<Op>>,
    known_log: Vec<Value>,
    /// Values that were computed, with the epoch of the memory they read, found by their operation.
    pub(super) table: HashTable<Known>,
    pub(super) table_log: Vec<(Known, Option<Known>)>,
    /// Values defined in open blocks.
    scope: Vec<Value>,
    pub(super) epochs: Epochs,
    words: Words,
    blocks: Vec<Vec<Inst>>,
    constants: Map<Literal, Value>,
    new_constants: Vec<Inst>,
    renaming: u32,
    /// Counters of loops that must be unrolled.
    unrolled: Vec<bool>,
    unrolling: Unrolling,
    /// Loops with barriers whose rounds spread are unrolled.
    trees: bool,
    /// What depends on an invocation's place alone is looked up in the end.
    tables: bool,
    /// Inside of a loop of one round: rounds that were written out and may be left early.
    pub(super) once: bool,
    /// Parts of words are loaded alone.
    pub(super) parts_of_words: bool,
    /// Branches around square roots and quotients stay.
    long_roots: bool,
    workgroup_size: [u32; 3],
    /// Steps that unrolling may still add.
    budget: usize,
}

struct Mark {
    known: usize,
    table: usize,
    scope: usize,
    words: usize,
}

impl Rewriter {
    pub(super) fn on(&self, pass: Passes) -> bool {
        self.passes.contains(pass)
    }

    pub(super) fn literal(&self, value: Value) -> Option<Literal> {
        match self.defs[value.index()] {
            Some(Op::Const(literal)) => Some(literal),
            _ => None,
        }
    }

    pub(super) fn scalar(&self, value: Value) -> Scalar {
        self.values[value.index()].ty.scalar
    }

    pub(super) fn constant(&mut self, literal: Literal) -> Value {
        if let Some(&value) = self.constants.get(&literal) {
            return value;
        }
        let value = self.new_value(fold::scalar_of(&literal).into());
        self.new_constants.push(Inst::Let(value, Op::Const(literal)));
        self.defs[value.index()] = Some(Op::Const(literal));
        self.slots[value.index()].visible = true;
        self.constants.insert(literal, value);
        value
    }

    fn new_value(&mut self, ty: Type) -> Value {
        let value = Value(self.values.len() as u32);
        self.values.push(ValueInfo { ty, uniform: false });
        self.slots.push(Slot::of(value));
        self.defs.push(None);
        value
    }

    fn resolve(&mut self, value: Value) -> Value {
        let value = self.slots[value.index()].subst;
        match self.slots[value.index()].known {
            Some(known) if self.on(Passes::BRANCHES) => self.constant(Literal::Bool(known)),
            _ => value,
        }
    }

    /// Gives a value of the old kernel its place in the new one.
    fn define(&mut self, old: Value) -> Value {
        let value = if self.renaming > 0 { self.new_value(self.values[old.index()].ty) } else { old };
        self.slots[old.index()].subst = value;
        self.slots[value.index()].visible = true;
        self.scope.push(value);
        value
    }

    fn push(&mut self, inst: Inst) {
        if let Some(block) = self.blocks.last_mut() {
            block.push(inst);
        }
    }

    fn mark(&self) -> Mark {
        Mark {
            known: self.known_log.len(),
            table: self.table_log.len(),
            scope: self.scope.len(),
            words: self.words.log.len(),
        }
    }

    /// Begins a block of about so many steps.
    fn open(&mut self, steps: usize) -> Mark {
        self.blocks.push(Vec::with_capacity(steps));
        self.mark()
    }

    fn close(&mut self, mark: &Mark) -> Vec<Inst> {
        for value in self.known_log.drain(mark.known..) {
            self.slots[value.index()].known = None;
        }
        for (known, before) in self.table_log.drain(mark.table..).rev() {
            if let Ok(mut entry) = self.table.find_entry(known.hash, |other| other.value == known.value) {
                match before {
                    Some(before) => *entry.get_mut() = before,
                    None => drop(entry.remove()),
                }
            }
        }
        for value in self.scope.drain(mark.scope..) {
            self.slots[value.index()].visible = false;
        }
        // Whether the block was run is not known after it.
        for word in self.words.log.drain(mark.words..) {
            self.words.known.remove(&word);
        }
        self.blocks.pop().unwrap_or_default()
    }

    /// Notes that a condition holds, or does not, from here to the end of the block.
    fn assume(&mut self, cond: Value, holds: bool) {
        let mut stack: SmallVec<[(Value, bool); 8]> = SmallVec::from_slice(&[(cond, holds)]);
        while let Some((value, holds)) = stack.pop() {
            if self.slots[value.index()].known.is_some() || self.literal(value).is_some() {
                continue;
            }
            self.slots[value.index()].known = Some(holds);
            self.known_log.push(value);
            match (&self.defs[value.index()], holds) {
                (Some(Op::Unary(Unary::Not, a)), _) => stack.push((*a, !holds)),
                (Some(Op::Binary(Binary::And, a, b)), true) | (Some(Op::Binary(Binary::Or, a, b)), false) => {
                    stack.extend([(*a, holds), (*b, holds)]);
                }
                _ => {}
            }
        }
    }

    /// Computes an operation, or finds it computed already.
    pub(super) fn emit(&mut self, op: Op, ty: Type) -> Value {
        self.emit_as(op, ty, None)
    }

    fn emit_as(&mut self, op: Op, ty: Type, old: Option<Value>) -> Value {
        if let Some(value) = self.simplify(&op, ty) {
            return value;
        }
        if let Op::Const(literal) = op {
            if let Some(&value) = self.constants.get(&literal) {
                return value;
            }
            if self.renaming == 0 && self.blocks.len() == 1 {
                let value = match old {
                    Some(old) => self.define(old),
                    None => self.new_value(ty),
                };
                self.slots[value.index()].visible = true;
                self.constants.insert(literal, value);
                self.defs[value.index()] = Some(op.clone());
                self.push(Inst::Let(value, op));
                return value;
            }
            return self.constant(literal);
        }
        if let Op::Load { address, guard, .. } = &op
            && self.on(Passes::COMMON)
            && let Some(value) = self.words.load(address, *guard)
            && self.values[value.index()].ty == ty
        {
            return value;
        }
        let epoch = match &op {
            Op::Load { address, .. } => self.epochs.of(address.memory),
            _ => 0,
        };
        let shared = self.on(Passes::COMMON) && !op.is_across_subgroup();
        let mut hash = 0;
        let mut before = None;
        if shared {
            let mut mix = Mix::default();
            op.hash(&mut mix);
            hash = mix.finish();
            let same = |known: &Known| {
                self.values[known.value.index()].ty == ty && self.defs[known.value.index()].as_ref() == Some(&op)
            };
            before = self.table.find(hash, same).copied();
            if let Some(known) = before
                && known.epoch == epoch
            {
                return known.value;
            }
        }
        let value = match old {
            Some(old) => self.define(old),
            None => {
                let value = self.new_value(ty);
                self.slots[value.index()].visible = true;
                self.scope.push(value);
                value
            }
        };
        self.defs[value.index()] = Some(op.clone());
        if shared {
            let known = Known { hash, value, epoch };
            match before {
                Some(before) => {
                    if let Some(entry) = self.table.find_mut(hash, |other| other.value == before.value) {
                        *entry = known;
                    }
                }
                None => drop(self.table.insert_unique(hash, known, |known| known.hash)),
            }
            self.table_log.push((known, before));
        }
        self.push(Inst::Let(value, op));
        value
    }

    /// A load that was made, with nothing changed since where it loaded from.
    pub(super) fn still_holds(&self, load: Value) -> bool {
        let Some(op @ Op::Load { address, .. }) = &self.defs[load.index()] else { return false };
        let mut mix = Mix::default();
        op.hash(&mut mix);
        let known = self.table.find(mix.finish(), |known| known.value == load);
        known.is_some_and(|known| known.epoch == self.epochs.of(address.memory))
    }

    pub(super) fn unary(&mut self, op: Unary, a: Value) -> Value {
        let ty = self.values[a.index()].ty;
        self.emit(Op::Unary(op, a), ty)
    }

    pub(super) fn binary(&mut self, op: Binary, a: Value, b: Value) -> Value {
        let ty = if is_comparison(op) { Scalar::Bool.into() } else { self.values[a.index()].ty };
        self.emit(Op::Binary(op, a, b), ty)
    }

    fn end(&mut self, end: &End) -> End {
        let mut end = end.clone();
        for value in end_values_mut(&mut end) {
            *value = self.resolve(*value);
        }
        end
    }

    /// Rewrites steps into the present block. Something is returned when they end it early.
    fn insts(&mut self, insts: &[Inst]) -> Option<End> {
        for inst in insts {
            match inst {
                Inst::Let(value, op) => {
                    let mut op = op.clone();
                    each_operand_mut(&mut op, &mut |operand| *operand = self.resolve(*operand));
                    let ty = self.values[value.index()].ty;
                    let new = self.emit_as(op, ty, Some(*value));
                    self.slots[value.index()].subst = new;
                }
                Inst::If { cond, then, otherwise, results } => {
                    let end = self.branch(*cond, then, otherwise, results);
                    if end.is_some() {
                        return end;
                    }
                }
                Inst::Loop(inner) => {
                    let end = self.repeat(inner);
                    if end.is_some() {
                        return end;
                    }
                }
                inst => self.effect(inst.clone()),
            }
        }
        None
    }

    fn effect(&mut self, mut inst: Inst) {
        each_use_mut(&mut inst, &mut |value| *value = self.resolve(*value));
        if let Inst::Store { address, guard, .. } | Inst::Atomic { address, guard, .. } = &mut inst {
            if self.on(Passes::FOLD) {
                self.fold_address(address);
            }
            if let Some(Literal::Bool(holds)) = guard.and_then(|guard| self.literal(guard)) {
                *guard = None;
                if !holds {
                    if let Inst::Atomic { result: Some(result), element, .. } = &inst {
                        self.slots[result.index()].subst = self.constant(fold::literal(element.scalar(), 0));
                    }
                    return;
                }
            }
        }
        if let Inst::Atomic { result: Some(result), .. } = &mut inst {
            *result = self.define(*result);
        }
        let before = access(&inst).map(|(address, _)| self.epochs.of(address.memory));
        self.epochs.inst(&inst);
        if let (Inst::Store { address, element, value, .. }, Some(before)) = (&inst, before) {
            let bytes = element.bits() / 8 * u32::from(self.values[value.index()].ty.width);
            self.keep_loads_beside(address, bytes, before);
        }
        self.words.change(&inst, self.epochs.next);
        self.push(inst);
    }

    fn block(&mut self, block: &Block, assumed: Option<(Value, bool)>) -> Block {
        let mark = self.open(block.insts.len());
        if let Some((cond, holds)) = assumed {
            self.assume(cond, holds);
        }
        let left = self.insts(&block.insts);
        let end = left.unwrap_or_else(|| self.end(&block.end));
        // The end's values are resolved in the block; the condition is known there, but its constant is visible everywhere.
        Block { insts: self.close(&mark), end }
    }

    /// Puts a finished block's steps into the present one.
    fn splice(&mut self, insts: Vec<Inst>) {
        for inst in &insts {
            for result in results(inst) {
                self.slots[result.index()].visible = true;
                self.scope.push(*result);
            }
        }
        if let Some(block) = self.blocks.last_mut() {
            block.extend(insts);
        }
    }

    fn branch(&mut self, cond: Value, then: &Block, otherwise: &Block, results: &[Value]) -> Option<End> {
        let mut cond = self.resolve(cond);
        let (mut then, mut otherwise) = (then, otherwise);
        let simplify = self.on(Passes::BRANCHES);
        if simplify {
            if let Some(Literal::Bool(holds)) = self.literal(cond) {
                let block = if holds { then } else { otherwise };
                if let Some(end) = self.insts(&block.insts) {
                    return Some(end);
                }
                return match self.end(&block.end) {
                    End::Yield(values) => {
                        for (result, value) in results.iter().zip(values) {
                            self.slots[result.index()].subst = value;
                        }
                        None
                    }
                    end => Some(end),
                };
            }
            while let Some(Op::Unary(Unary::Not, inner)) = self.defs[cond.index()] {
                cond = inner;
                std::mem::swap(&mut then, &mut otherwise);
            }
        }
        let yes = self.block(then, Some((cond, true)));
        let no = self.block(otherwise, Some((cond, false)));
        if !simplify {
            let results: Vec<Value> = results.iter().map(|result| self.define(*result)).collect();
            let leaves = !matches!(yes.end, End::Yield(_)) && !matches!(no.end, End::Yield(_));
            self.push(Inst::If { cond, then: Box::new(yes), otherwise: Box::new(no), results });
            return leaves.then_some(End::Unreachable);
        }
        match (&yes.end, &no.end) {
            (End::Yield(a), End::Yield(b)) => {
                let (a, b) = (a.clone(), b.clone());
                self.join(cond, yes, no, (a, b), results);
                None
            }
            (End::Yield(values), _) => {
                let values = values.clone();
                let yes = Block { insts: yes.insts, end: End::Yield(Vec::new()) };
                let kept = Block { insts: Vec::new(), end: End::Yield(Vec::new()) };
                self.push(Inst::If { cond, then: Box::new(kept), otherwise: Box::new(no), results: Vec::new() });
                self.go_on(cond, true, yes.insts, &values, results);
                None
            }
            (_, End::Yield(values)) => {
                let values = values.clone();
                let kept = Block { insts: Vec::new(), end: End::Yield(Vec::new()) };
                self.push(Inst::If { cond, then: Box::new(yes), otherwise: Box::new(kept), results: Vec::new() });
                self.go_on(cond, false, no.insts, &values, results);
                None
            }
            _ => {
                self.push(Inst::If { cond, then: Box::new(yes), otherwise: Box::new(no), results: Vec::new() });
                Some(End::Unreachable)
            }
        }
    }

    /// One way left; what the other does needs no block of its own.
    fn go_on(&mut self, cond: Value, holds: bool, insts: Vec<Inst>, values: &[Value], results: &[Value]) {
        self.splice(insts);
        self.assume(cond, holds);
        for (result, value) in results.iter().zip(values) {
            self.slots[result.index()].subst = *value;
        }
    }

    /// A square root or a quotient, but for one of integers by a constant.
    fn is_root(&self, inst: &Inst) -> bool {
        match inst {
            Inst::Let(_, Op::Unary(Unary::Sqrt, _)) => true,
            Inst::Let(value, Op::Binary(Binary::Div | Binary::Rem, _, by)) => {
                let is_constant = matches!(self.defs[by.index()], Some(Op::Const(_)));
                self.values[value.index()].ty.scalar.is_float() || !is_constant
            }
            _ => false,
        }
    }

    /// What a condition compares with constants, with nothing but that in it.
    fn case_of(&self, cond: Value, depth: u32) -> Option<Value> {
        match self.defs[cond.index()] {
            Some(Op::Binary(Binary::Eq, x, by)) if self.literal(by).is_some() => Some(x),
            Some(Op::Binary(Binary::Or, a, b)) if depth > 0 => {
                let x = self.case_of(a, depth - 1)?;
                (self.case_of(b, depth - 1) == Some(x)).then_some(x)
            }
            _ => None,
        }
    }

    /// A condition is a case of the same number as that which a selection is made by.
    fn are_cases(&self, cond: Value, selection: Value) -> bool {
        let Some(Op::Select(other, ..)) = self.defs[selection.index()] else { return false };
        self.case_of(cond, CASES).is_some_and(|x| self.case_of(other, CASES) == Some(x))
    }

    /// Nothing is done where two numbers are equal, and elsewhere little more than to load and compute. Loads are not why this is asked: a
    /// place is not known to be inside because a number is another one.
    fn is_for_all_but_one(&self, cond: Value, yes: &Block, no: &Block) -> bool {
        let (nothing, much) = match self.defs[cond.index()] {
            Some(Op::Binary(Binary::Eq, a, b)) if self.are_unlike(a, b) => (yes, no),
            Some(Op::Binary(Binary::Ne, a, b)) if self.are_unlike(a, b) => (no, yes),
            _ => return false,
        };
        let is_load = |inst: &Inst| matches!(inst, Inst::Let(_, Op::Load { .. }));
        self.unrolling.any_form
            && nothing.insts.is_empty()
            && much.insts.len() <= ALL_BUT_ONE_STEPS
            && much.insts.iter().all(|inst| is_load(inst) || is_cheap(inst) && !(self.long_roots && self.is_root(inst)))
    }

    /// Integers of which none is a constant.
    fn are_unlike(&self, a: Value, b: Value) -> bool {
        let is_number = |value: Value| matches!(self.values[value.index()].ty.scalar, Scalar::U32 | Scalar::I32);
        [a, b].into_iter().all(|value| is_number(value) && self.literal(value).is_none())
    }

    fn join(&mut self, cond: Value, yes: Block, no: Block, (a, b): (Vec<Value>, Vec<Value>), results: &[Value]) {
        let cheap =
            |block: &Block| block.insts.iter().all(|inst| is_cheap(inst) && !(self.long_roots && self.is_root(inst)));
        let small = yes.insts.len() + no.insts.len() <= SELECT_STEPS
            || yes.insts.len() <= CASE_STEPS
                && no.insts.len() <= OTHER_CASES_STEPS
                && matches!(b[..], [b] if self.are_cases(cond, b));
        if small && cheap(&yes) && cheap(&no) || self.is_for_all_but_one(cond, &yes, &no) {
            self.splice(yes.insts);
            self.splice(no.insts);
            for ((result, a), b) in results.iter().zip(a).zip(b) {
                let ty = self.values[result.index()].ty;
                self.slots[result.index()].subst = self.emit(Op::Select(cond, a, b), ty);
            }
            return;
        }
        let (mut new_a, mut new_b, mut new_results) = (Vec::new(), Vec::new(), Vec::new());
        for ((result, a), b) in results.iter().zip(a).zip(b) {
            if a == b {
                self.slots[result.index()].subst = a;
            } else if self.slots[a.index()].visible && self.slots[b.index()].visible {
                let ty = self.values[result.index()].ty;
                self.slots[result.index()].subst = self.emit(Op::Select(cond, a, b), ty);
            } else {
                new_a.push(a);
                new_b.push(b);
                new_results.push(*result);
            }
        }
        if yes.insts.is_empty() && no.insts.is_empty() && new_results.is_empty() {
            return;
        }
        let results = new_results.iter().map(|result| self.define(*result)).collect();
        let then = Block { insts: yes.insts, end: End::Yield(new_a) };
        let otherwise = Block { insts: no.insts, end: End::Yield(new_b) };
        self.push(Inst::If { cond, then: Box::new(then), otherwise: Box::new(otherwise), results });
    }

    fn repeat(&mut self, inner: &Loop) -> Option<End> {
        let mut init: Vec<Value> = Vec::with_capacity(inner.init.len());
        for value in &inner.init {
            init.push(self.resolve(*value));
        }
        let counter = inner.counter.map(|counter| Counter {
            from: self.resolve(counter.from),
            to: self.resolve(counter.to),
            ..counter
        });
        let rounds = counter.and_then(|counter| self.rounds(&counter));
        if self.on(Passes::BRANCHES) && rounds == Some(0) {
            for (result, value) in inner.results.iter().zip(init) {
                self.slots[result.index()].subst = value;
            }
            return None;
        }
        let mut steps = 0usize;
        let must = inner.counter.is_some_and(|counter| self.unrolled.get(counter.value.index()) == Some(&true));
        if let (Some(counter), Some(rounds), true) = (counter, rounds, must && straight(&inner.body)) {
            return self.unroll(inner, &counter, rounds, init);
        }
        let mut plain = true;
        each_inst(&inner.body, &mut |inst| {
            steps += 1;
            plain &= !matches!(inst, Inst::Barrier(_));
            if let Inst::If { then, otherwise, .. } = inst {
                plain &= matches!(then.end, End::Yield(_)) && matches!(otherwise.end, End::Yield(_));
            }
        });
        if let (Some(counter), Some(rounds)) = (counter, rounds)
            && matches!(inner.body.end, End::Continue(_))
            && plain
        {
            let one = rounds == 1 && self.on(Passes::BRANCHES);
            let total = steps.saturating_mul(rounds as usize);
            let unroll = self.on(Passes::UNROLL) && !inner.rare && self.unrolls(&inner.body, rounds, total, 1);
            if one || unroll {
                self.budget = self.budget.saturating_sub(total);
                return self.unroll(inner, &counter, rounds, init);
            }
        } else if !inner.rare
            && (self.on(Passes::UNROLL) && self.unrolling.any_form || self.trees && self.spreads(inner))
            && let Some(trial) = self.trial(inner, rounds, &init)
        {
            let all = steps.saturating_mul(trial.rounds as usize);
            let known = if self.tables && all <= MOST_WITH_TABLES { self.steps_of_places(inner) } else { 0 };
            let total = all - known * trial.rounds as usize;
            // What doubles or halves has few rounds, and its constants make shifts, masks and divisions of others constant.
            let worth = if counter.is_none() { 2 } else { 1 };
            let is_far =
                self.unrolling.any_form && trial.left_early && all > STEPS_LEFT_EARLY && !has_own_words(&inner.body);
            if !is_far && self.unrolls(&inner.body, trial.rounds.into(), total, worth) {
                self.budget = self.budget.saturating_sub(total);
                return self.unroll_any(inner, counter.as_ref(), trial, init);
            }
        }
        self.keep(inner, counter, init)
    }

    /// A loop with barriers in which invocations work the further apart, or the nearer, the later the round is, as in a tree of sums: with
    /// the rounds written out it is known how far.
    fn spreads(&self, inner: &Loop) -> bool {
        let mut turning: SmallVec<[Value; 8]> = inner.params.iter().copied().collect();
        turning.extend(inner.counter.map(|counter| counter.value));
        let constant = |value: Value| self.literal(self.slots[value.index()].subst).is_some();
        let (mut barrier, mut spreads) = (false, false);
        each_inst(&inner.body, &mut |inst| match inst {
            Inst::Barrier(_) => barrier = true,
            Inst::Let(value, Op::Binary(op, a, b)) => {
                let fixed = |value: &Value| constant(*value) || turning.contains(value);
                let turns = turning.contains(a) || turning.contains(b);
                if turns && fixed(a) && fixed(b) {
                    // Half of what is carried, say.
                    turning.push(*value);
                } else {
                    spreads |= turns && matches!(op, Binary::Mul | Binary::Shl | Binary::Div | Binary::Rem);
                }
            }
            _ => {}
        });
        barrier && spreads
    }

    /// Steps of a round that depend on nothing but what the round is, and on places of invocations: with the rounds written out they are looked up.
    fn steps_of_places(&self, inner: &Loop) -> usize {
        let starts = inner.params.iter().zip(&inner.init);
        let constant = |value: &Value| self.literal(self.slots[value.index()].subst).is_some();
        let mut turning: Vec<Value> = starts.filter(|(_, init)| constant(init)).map(|(param, _)| *param).collect();
        let counter = inner.counter.map(|counter| counter.value);
        loop {
            let mut known: HashSet<Value> = turning.iter().copied().chain(counter).collect();
            let steps = self.count_of_places(&inner.body, &mut known);
            let before = turning.len();
            if let End::Continue(next) = &inner.body.end {
                let goes_on = |param: &Value| {
                    inner.params.iter().zip(next).any(|(other, next)| other == param && known.contains(next))
                };
                turning.retain(goes_on);
            }
            if turning.len() == before {
                return if steps >= STEPS_OF_PLACES { steps } else { 0 };
            }
        }
    }

    fn count_of_places(&self, block: &Block, known: &mut HashSet<Value>) -> usize {
        let mut steps = 0;
        for inst in &block.insts {
            match inst {
                Inst::Let(value, op) => {
                    let mut depends = match op {
                        Op::Load { .. } | Op::Length(_) => false,
                        Op::Builtin(builtin) => matches!(builtin, Builtin::LocalId(_) | Builtin::LocalIndex),
                        op => op.is_plain(),
                    };
                    each_operand(op, &mut |value| depends &= known.contains(&value) || self.is_place(value));
                    if depends {
                        steps += 1;
                        known.insert(*value);
                    }
                }
                Inst::If { cond, then, otherwise, results } if known.contains(cond) => {
                    steps += self.count_of_places(then, known) + self.count_of_places(otherwise, known);
                    let given = |block: &Block, at: usize| match &block.end {
                        End::Yield(values) => known.contains(&values[at]) || self.is_place(values[at]),
                        _ => false,
                    };
                    let known_results = (0..results.len()).filter(|&at| given(then, at) && given(otherwise, at));
                    let known_results: Vec<Value> = known_results.map(|at| results[at]).collect();
                    known.extend(known_results);
                }
                _ => {}
            }
        }
        steps
    }

    /// A constant, or where an invocation is, made before the loop.
    fn is_place(&self, value: Value) -> bool {
        let op = self.slots.get(value.index()).and_then(|slot| self.defs[slot.subst.index()].as_ref());
        matches!(op, Some(Op::Const(_) | Op::Builtin(Builtin::LocalId(_) | Builtin::LocalIndex)))
    }

    /// Unrolling a loop is within the bounds.
    fn unrolls(&self, body: &Block, rounds: i128, total: usize, worth: usize) -> bool {
        let whole = if self.unrolling.any_form { self.weight(body).saturating_mul(rounds as usize) } else { total };
        let most = if self.branches_around_roots(body) { ROUNDS_WITH_ROOTS } else { self.unrolling.rounds };
        rounds <= most.into() && whole <= worth * self.unrolling.steps as usize && total <= self.budget
    }

    /// Each round has a branch around what takes many instructions.
    fn branches_around_roots(&self, body: &Block) -> bool {
        let has_root = |block: &Block| block.insts.iter().any(|inst| self.is_root(inst));
        let branches = |inst: &Inst| match inst {
            Inst::If { then, otherwise, .. } => {
                has_root(then) || has_root(otherwise) || self.branches_around_roots(then)
            }
            _ => false,
        };
        self.long_roots && body.insts.iter().any(branches)
    }

    /// Steps of a block with those of the loops in it, as often as they are known to run.
    fn weight(&self, block: &Block) -> usize {
        let of = |inst: &Inst| match inst {
            Inst::If { then, otherwise, .. } => 1 + self.weight(then) + self.weight(otherwise),
            Inst::Loop(inner) if inner.rare => self.weight(&inner.body),
            Inst::Loop(inner) => {
                // Values of the loops around it may still have the constants of another round; that is near enough.
                let rounds = inner.counter.and_then(|counter| {
                    self.rounds(&Counter {
                        from: self.slots[counter.from.index()].subst,
                        to: self.slots[counter.to.index()].subst,
                        ..counter
                    })
                });
                self.weight(&inner.body).saturating_mul(rounds.unwrap_or(1).clamp(1, 1 << 20) as usize)
            }
            _ => 1,
        };
        block.insts.iter().map(of).fold(0, usize::saturating_add)
    }

    /// What is known of a loop that is more than a body which comes to its end so many times.
    fn trial(&self, inner: &Loop, rounds: Option<i128>, init: &[Value]) -> Option<Trial> {
        let has_barrier = {
            let mut found = false;
            each_inst(&inner.body, &mut |inst| found |= matches!(inst, Inst::Barrier(_)));
            found
        };
        let trial = match (inner.counter, rounds) {
            (Some(_), Some(rounds)) => {
                if walk::ways(&inner.body).any(walk::continues) {
                    return None;
                }
                let left_early = walk::breaks(&inner.body);
                Trial { rounds: u32::try_from(rounds).ok()?, left_early }
            }
            (Some(_), None) => return None,
            (None, _) => {
                if !self.on(Passes::FOLD) || !self.on(Passes::BRANCHES) {
                    return None;
                }
                let init: Vec<Option<Literal>> = init.iter().map(|value| self.literal(*value)).collect();
                // Nothing to go by.
                if init.iter().all(Option::is_none) {
                    return None;
                }
                let outside = |value: Value| self.literal(self.slots[value.index()].subst);
                trial::rounds(inner, &init, &self.values, outside, self.unrolling.rounds + 1)?
            }
        };
        (!(has_barrier && trial.left_early)).then_some(trial)
    }

    /// The rounds one after another; where one may leave the loop, in a loop that is run through once.
    fn unroll_any(&mut self, inner: &Loop, counter: Option<&Counter>, trial: Trial, init: Vec<Value>) -> Option<End> {
        let mark = trial.left_early.then(|| self.open(inner.body.insts.len()));
        let mut carried = init.clone();
        let mut end = None;
        self.renaming += 1;
        for round in 0..trial.rounds {
            if let Some(counter) = counter {
                self.slots[counter.value.index()].subst = self.counted(counter, round.into());
            }
            for (param, value) in inner.params.iter().zip(&carried) {
                self.slots[param.index()].subst = *value;
            }
            let left = self.insts(&inner.body.insts);
            match left.unwrap_or_else(|| self.end(&inner.body.end)) {
                End::Continue(values) => carried = values,
                other => {
                    end = Some(other);
                    break;
                }
            }
        }
        // What was tried ends where it was found to end: the rewriter folds at least as much.
        let end = match (end, counter) {
            (Some(end), _) => end,
            (None, Some(_)) => End::Break(carried),
            (None, None) => match self.keep(inner, None, carried) {
                Some(end) => end,
                None => End::Break(inner.results.iter().map(|result| self.slots[result.index()].subst).collect()),
            },
        };
        self.renaming -= 1;
        let Some(mark) = mark else {
            return match end {
                End::Break(values) => {
                    for (result, value) in inner.results.iter().zip(values) {
                        self.slots[result.index()].subst = value;
                    }
                    None
                }
                other => Some(other),
            };
        };
        let body = Block { insts: self.close(&mark), end };
        let falls = walk::breaks(&body);
        let params = inner.params.iter().map(|param| self.new_value(self.values[param.index()].ty)).collect();
        let results = inner.results.iter().map(|result| self.define(*result)).collect();
        let once = Loop { counter: None, params, init, body, results, finite: true, look: None, rare: inner.rare };
        self.push(Inst::Loop(Box::new(once)));
        (!falls).then_some(End::Unreachable)
    }

    /// The loop, with its body rewritten.
    fn keep(&mut self, inner: &Loop, counter: Option<Counter>, init: Vec<Value>) -> Option<End> {
        let (mut continues, mut breaks) = (Vec::new(), Vec::new());
        exits(&inner.body, &mut continues, &mut breaks);
        // A carried value that every round passes on unchanged is not carried.
        let invariant: Vec<bool> = (0..inner.params.len())
            .map(|i| {
                self.on(Passes::FOLD)
                    && continues.iter().all(|values| values[i] == inner.params[i] || values[i] == inner.init[i])
            })
            .collect();
        each_inst(&inner.body, &mut |inst| {
            self.epochs.inst(inst);
            self.words.blur(inst, self.epochs.next);
        });
        let mark = self.open(inner.body.insts.len());
        let counter = counter.map(|counter| Counter { value: self.define(counter.value), ..counter });
        let mut params = Vec::with_capacity(inner.params.len());
        for (i, param) in inner.params.iter().enumerate() {
            if invariant[i] {
                self.slots[param.index()].subst = init[i];
            } else {
                params.push(self.define(*param));
            }
        }
        let around = std::mem::replace(&mut self.once, counter.is_none() && continues.is_empty());
        let left = self.insts(&inner.body.insts);
        self.once = around;
        let end = left.unwrap_or_else(|| self.end(&inner.body.end));
        let mut body = Block { insts: self.close(&mark), end };
        let falls = counter.is_some() || walk::breaks(&body);
        // Results that are always the same value from outside the loop need not leave it.
        let mut dropped: Vec<Option<Value>> = vec![None; inner.params.len()];
        {
            let (mut continues, mut breaks) = (Vec::new(), Vec::new());
            exits(&body, &mut continues, &mut breaks);
            for i in 0..inner.params.len() {
                if !invariant[i] {
                    continue;
                }
                let mut only = counter.is_some().then_some(init[i]);
                let mut same = true;
                for values in &breaks {
                    same &= only.is_none_or(|value| value == values[i]) && self.slots[values[i].index()].visible;
                    only = Some(values[i]);
                }
                if same {
                    dropped[i] = only.or(Some(init[i]));
                }
            }
        }
        // An invariant carried value whose result is not known stays carried.
        for i in 0..inner.params.len() {
            if invariant[i] && dropped[i].is_none() {
                let position = (0..i).filter(|&k| dropped[k].is_none()).count();
                let param = self.new_value(self.values[inner.params[i].index()].ty);
                params.insert(position, param);
            }
        }
        if dropped.iter().any(Option::is_some) {
            drop_ends(&mut body, &dropped);
        }
        let mut results = Vec::with_capacity(params.len());
        let mut new_init = Vec::with_capacity(params.len());
        for i in 0..inner.params.len() {
            match dropped[i] {
                Some(value) => self.slots[inner.results[i].index()].subst = value,
                None => {
                    results.push(self.define(inner.results[i]));
                    new_init.push(init[i]);
                }
            }
        }
        let (finite, look, rare) = (inner.finite, inner.look, inner.rare);
        self.push(Inst::Loop(Box::new(Loop { counter, params, init: new_init, body, results, finite, look, rare })));
        (!falls).then_some(End::Unreachable)
    }

    /// How many rounds a counted loop takes, when that is known. A loop from an invocation's place in its workgroup has as many for all
    /// of them where the workgroup divides what it goes over.
    fn rounds(&self, counter: &Counter) -> Option<i128> {
        let to = fold::integer(&self.literal(counter.to)?)?;
        let step = i128::from(counter.step);
        let after = |from: i128| if from >= to { 0 } else { (to - from + step - 1) / step };
        let (least, most) = match self.literal(counter.from) {
            Some(from) => fold::integer(&from).map(|from| (from, from))?,
            None if self.unrolling.any_form => self.place_bounds(counter.from, 4)?,
            None => return None,
        };
        (after(least) == after(most)).then(|| after(least))
    }

    /// The least and the most of a value that is made of constants and of the invocation's place in its workgroup.
    fn place_bounds(&self, value: Value, depth: u32) -> Option<(i128, i128)> {
        if self.scalar(value) != Scalar::U32 || depth == 0 {
            return None;
        }
        let of = |value: Value| self.place_bounds(value, depth - 1);
        let sizes = self.workgroup_size.map(i128::from);
        let bounds = match self.defs[value.index()].as_ref()? {
            Op::Const(literal) => fold::integer(literal).map(|known| (known, known))?,
            Op::Builtin(Builtin::LocalId(axis)) => (0, sizes[usize::from((*axis).min(2))] - 1),
            Op::Builtin(Builtin::LocalIndex) => (0, sizes.iter().product::<i128>() - 1),
            Op::Binary(Binary::Add, a, b) => {
                let (a, b) = (of(*a)?, of(*b)?);
                (a.0 + b.0, a.1 + b.1)
            }
            Op::Binary(Binary::Mul, a, b) => {
                let (a, b) = (of(*a)?, of(*b)?);
                (a.0 * b.0, a.1 * b.1)
            }
            Op::Binary(Binary::Shl, a, by) => {
                let (a, by) = (of(*a)?, of(*by)?);
                if by.1 > 31 {
                    return None;
                }
                (a.0 << by.0, a.1 << by.1)
            }
            _ => return None,
        };
        (bounds.1 <= u32::MAX.into()).then_some(bounds)
    }

    /// What the counter is in a round.
    fn counted(&mut self, counter: &Counter, round: i128) -> Value {
        let ty = self.scalar(counter.value);
        let ahead = round * i128::from(counter.step);
        if let Some(from) = self.literal(counter.from).and_then(|from| fold::integer(&from)) {
            return self.constant(fold::of_integer(ty, from + ahead));
        }
        let ahead = self.constant(fold::of_integer(ty, ahead));
        self.binary(Binary::Add, counter.from, ahead)
    }

    fn unroll(&mut self, inner: &Loop, counter: &Counter, rounds: i128, mut carried: Vec<Value>) -> Option<End> {
        self.renaming += 1;
        let mut left = None;
        for round in 0..rounds {
            self.slots[counter.value.index()].subst = self.counted(counter, round);
            for (param, value) in inner.params.iter().zip(&carried) {
                self.slots[param.index()].subst = *value;
            }
            left = self.insts(&inner.body.insts);
            if left.is_some() {
                break;
            }
            if let End::Continue(values) = self.end(&inner.body.end) {
                carried = values;
            }
        }
        self.renaming -= 1;
        for (result, value) in inner.results.iter().zip(carried) {
            self.slots[result.index()].subst = value;
        }
        left
    }
}

/// Removes the values of dropped carried values from the ends that belong to a loop.
fn drop_ends(block: &mut Block, dropped: &[Option<Value>]) {
    for inst in &mut block.insts {
        if let Inst::If { then, otherwise, .. } = inst {
            drop_ends(then, dropped);
            drop_ends(otherwise, dropped);
        }
    }
    if let End::Continue(values) | End::Break(values) = &mut block.end {
        let mut i = 0;
        values.retain(|_| {
            i += 1;
            dropped[i - 1].is_none()
        });
    }
}

/// Accesses private arrays, whose words are values only where the rounds are written out.
fn has_own_words(block: &Block) -> bool {
    let mut has = false;
    each_inst(block, &mut |inst| has |= matches!(access(inst), Some((Address { memory: Memory::Local(_), .. }, _))));
    has
}

/// May be computed where it is not needed. Loads may not: their guards can rest on the condition.
fn is_cheap(inst: &Inst) -> bool {
    match inst {
        Inst::Let(_, op) => match op {
            Op::Load { .. } | Op::Subgroup(..) | Op::Matrix(_) => false,
            Op::Unary(op, _) => !super::simplify::is_function(*op),
            Op::Binary(op, ..) => !matches!(op, Binary::Pow | Binary::Atan2),
            _ => true,
        },
        _ => false,
    }
}
