//! Rows in workgroup memory of which each lane has its own, and in which it does the same with every word:
//! `for (var j = 0u; j < 16u; j++) { sums[t * 16u + j] += before; }`. A register holds neighbouring words of one row, and in all of another one is
//! what the row's lane adds. Sums of the words so far (`before = sum; sum += row[j]; row[j] = before;`) are made in each register, and go on from
//! one to the next. Rounds whose words need each other otherwise are taken lane beside lane, which turns the rows and turns them back (`tiles.rs`).

use vyre_foundation::kernel::{Address, Binary, Element, End, Inst, Loop, Memory, Op, Scalar, Value};

use super::super::asm::Alu;
use super::super::context;
use super::super::hash::{Map, Set};
use super::super::isa::Isa;
use super::super::mir::{At, GSrc, M, R, Src};
use super::super::ops;
use super::super::shape::Lane;
use super::Lower;
use super::facts::visit_operands;
use super::tiles::{Index, at_row, makes};
use super::value::Rep;

/// Registers of words that a vector's rows have, up to which they are written out.
const MOST_REGISTERS: u32 = 64;

/// Steps that are emitted for all rows together.
const MOST_STEPS: usize = 4096;

/// Numbers of each lane that wait for its row.
const MOST_NUMBERS: usize = 4;

/// Sums that a loop carries.
const MOST_SUMS: usize = 2;

/// A sum of the words of a row, of which each round adds one.
struct Sum {
    /// Before the round and after it.
    before: Value,
    after: Value,
    adds: Value,
    /// What it begins and ends with.
    first: Value,
    last: Value,
}

/// A loop over such rows.
struct Rows<'k> {
    /// Where the rows of an access begin.
    places: Map<*const Address, Value>,
    /// All such places.
    begin: Vec<Value>,
    /// Sums of the counter and a place, which only addresses need.
    indices: Set<Value>,
    /// What a lane has for its row.
    numbers: Vec<Value>,
    sums: Vec<Sum>,
    /// What is made before any sum is, and what is made of it.
    early: Vec<&'k Inst>,
    late: Vec<&'k Inst>,
    first: u32,
    rounds: u32,
}

impl Rows<'_> {
    fn goes_from(&mut self, address: &Address, place: Value) {
        self.places.insert(address, place);
        if !self.begin.contains(&place) {
            self.begin.push(place);
        }
    }
}

impl<'k> Lower<'k> {
    /// Emits all rounds of a loop over rows; false where it is another one.
    pub(super) fn run_by_rows(&mut self, inner: &'k Loop, comps: &[usize]) -> bool {
        let Some(rows) = self.rows_of(inner, comps) else { return false };
        self.repeats(inner);
        comps.iter().for_each(|&c| self.row_by_row(&rows, c));
        true
    }

    fn rows_of(&self, inner: &'k Loop, comps: &[usize]) -> Option<Rows<'k>> {
        let counter = inner.counter.filter(|counter| counter.step == 1 && inner.params.len() <= MOST_SUMS)?;
        let together = self.active.divergent == 0 && comps.iter().all(|&c| self.active.exec[c].is_none());
        if self.facts.isa == Isa::Simd128 || !together || inner.rare {
            return None;
        }
        let sums = self.sums_of_words(inner)?;
        let [first, end] = [counter.from, counter.to].map(|end| self.constant_of(end, comps[0]));
        let (first, end) = (u32::try_from(first?).ok()?, u32::try_from(end?).ok()?);
        let rounds = end.checked_sub(first)?;
        if rounds == 0 || !rounds.is_multiple_of(self.lanes()) || rounds > MOST_REGISTERS || end > i32::MAX as u32 {
            return None;
        }
        let steps = &inner.body.insts[..];
        if steps.len() * rounds as usize * comps.len() > MOST_STEPS {
            return None;
        }
        let mut rows = Rows {
            places: Map::default(),
            begin: Vec::new(),
            indices: Set::default(),
            numbers: Vec::new(),
            sums,
            early: Vec::new(),
            late: Vec::new(),
            first,
            rounds,
        };
        for sum in &rows.sums {
            self.number_of_row(sum.first, &mut rows.numbers)?;
        }
        let mut words: Set<Value> = rows.sums.iter().map(|sum| sum.before).collect();
        // What needs a sum.
        let mut behind = words.clone();
        let mut stores: Vec<&Address> = Vec::new();
        for inst in steps {
            let mut waits = false;
            match inst {
                Inst::Let(value, Op::Load { address, element, guard: None }) => {
                    let place = self.row_begins(inner, *value, address, *element, rounds, comps)?;
                    rows.goes_from(address, place);
                    words.insert(*value);
                    waits = stores.iter().any(|stored| stored.memory == address.memory);
                }
                Inst::Store { address, element, value, guard: None } => {
                    let place = self.row_begins(inner, *value, address, *element, rounds, comps)?;
                    rows.goes_from(address, place);
                    if *value == counter.value || rows.indices.contains(value) {
                        return None;
                    }
                    if !words.contains(value) {
                        self.number_of_row(*value, &mut rows.numbers)?;
                    }
                    stores.push(address);
                    waits = true;
                }
                Inst::Let(index, Op::Binary(..)) if self.is_row_index(inner, *index) => {
                    rows.indices.insert(*index);
                }
                Inst::Let(value, op) => {
                    let scalar = self.scalar_of(*value);
                    let is_word = self.width_of(*value) == 1 && (scalar.bits() == 32 || scalar == Scalar::Bool);
                    let alike = matches!(
                        op,
                        Op::Unary(..) | Op::Binary(..) | Op::Fma(..) | Op::Select(..) | Op::Cast(_) | Op::BitCast(_)
                    );
                    if !alike || !is_word || self.shape_of(*value).lane != Lane::Vary {
                        return None;
                    }
                    let mut operands = Vec::new();
                    visit_operands(op, &mut |operand| operands.push(operand));
                    for operand in operands {
                        if operand == counter.value || rows.indices.contains(&operand) {
                            return None;
                        }
                        if !words.contains(&operand) {
                            self.number_of_row(operand, &mut rows.numbers)?;
                        }
                        waits |= behind.contains(&operand);
                    }
                    words.insert(*value);
                }
                _ => return None,
            }
            match inst {
                Inst::Let(value, _) if rows.sums.iter().any(|sum| sum.after == *value) => {}
                _ if waits => rows.late.push(inst),
                _ => rows.early.push(inst),
            }
            if let (Inst::Let(value, _), true) = (inst, waits) {
                behind.insert(*value);
            }
        }
        if !rows.sums.iter().all(|sum| words.contains(&sum.adds) && !behind.contains(&sum.adds)) {
            return None;
        }
        // A word that is stored twice, or loaded from elsewhere in what is stored, needs the order of the rounds.
        let alone = |stored: &Address| {
            let others = steps.iter().filter_map(|inst| match inst {
                Inst::Let(_, Op::Load { address, .. }) => Some((address, 0)),
                Inst::Store { address, .. } => Some((address, 1)),
                _ => None,
            });
            let same: Vec<(&Address, usize)> = others.filter(|(address, _)| address.memory == stored.memory).collect();
            same.iter().all(|(address, _)| *address == stored)
                && same.iter().map(|(_, stores)| stores).sum::<usize>() == 1
        };
        (!stores.is_empty() && stores.iter().all(|stored| alone(stored))).then_some(rows)
    }

    /// All that a loop carries, where that is sums of whole numbers.
    fn sums_of_words(&self, inner: &Loop) -> Option<Vec<Sum>> {
        let End::Continue(next) = &inner.body.end else { return None };
        let carried = inner.params.iter().zip(next).zip(inner.init.iter().zip(&inner.results));
        let sum_of = |((&before, &after), (&first, &last)): ((&Value, &Value), (&Value, &Value))| {
            let Some(&Op::Binary(Binary::Add, a, b)) = self.facts.makers.ops[after.index()] else { return None };
            let whole = matches!(self.scalar_of(before), Scalar::U32 | Scalar::I32) && self.width_of(before) == 1;
            let adds = if a == before { b } else { a };
            let is_sum = whole && (a == before) != (b == before) && makes(&inner.body, after);
            let own = [before, last].iter().all(|&value| self.shape_of(value).lane == Lane::Vary);
            (is_sum && own).then_some(Sum { before, after, adds, first, last })
        };
        let sums: Vec<Sum> = carried.map(sum_of).collect::<Option<_>>()?;
        let ends = |sum: &Sum| sums.iter().filter(|other| other.after == sum.after).count() == 1;
        sums.iter().all(ends).then_some(sums)
    }

    /// All lanes have the same of a number.
    fn is_alike(&self, value: Value) -> bool {
        self.shape_of(value).lane == Lane::Same
    }

    /// Where rows of an access to workgroup memory begin that are a known distance apart and don't overlap.
    fn row_begins(
        &self,
        inner: &Loop,
        value: Value,
        address: &Address,
        element: Element,
        rounds: u32,
        comps: &[usize],
    ) -> Option<Value> {
        let counter = inner.counter?;
        let Index::Behind { place, .. } = self.index_of(address, counter.value)? else { return None };
        let Lane::Affine(apart) = self.shape_of(place).lane else { return None };
        let shared = &self.active.shared[usize::from(self.shape_of(place).axes)];
        let own = comps.iter().all(|&c| shared[c] == c);
        let is_word = matches!(address.memory, Memory::Shared(_)) && self.goes_on_by_words(value, address, element);
        (is_word && own && apart.unsigned_abs() >= rounds && !makes(&inner.body, place)).then_some(place)
    }

    /// A place of a row: the counter and where the row begins. It is not made, so nothing but addresses may need it.
    fn is_row_index(&self, inner: &Loop, index: Value) -> bool {
        let Some(counter) = &inner.counter else { return false };
        let Some(Op::Binary(Binary::Add, a, b)) = self.facts.makers.ops[index.index()] else { return false };
        [*a, *b].contains(&counter.value)
    }

    /// Takes what a lane has for its row among `numbers`; nothing where it can't be.
    fn number_of_row(&self, value: Value, numbers: &mut Vec<Value>) -> Option<()> {
        if self.is_alike(value) || numbers.contains(&value) {
            return Some(());
        }
        let scalar = self.scalar_of(value);
        let is_word = self.width_of(value) == 1 && scalar.bits() == 32 && scalar != Scalar::Bool;
        let is_number = is_word && self.shape_of(value).lane == Lane::Vary;
        (is_number && numbers.len() < MOST_NUMBERS).then(|| numbers.push(value))
    }

    fn row_by_row(&mut self, rows: &Rows<'k>, c: usize) {
        let outer = self.enter_scope();
        let scratch = self.scratch();
        let column = |number: usize| context::PLACES + number as i32 * context::COLUMN;
        let kept: Vec<Rep> = rows.numbers.iter().map(|&number| self.rep(number, 0, c)).collect();
        for (number, &value) in rows.numbers.iter().enumerate() {
            let lanes = self.vector_of(value, c);
            self.put_scratch(scratch, column(number), lanes);
        }
        let mut begins: Map<Value, R> = Map::default();
        for &place in &rows.begin {
            let (lane, first) = (self.scalar_reg(place, c), self.general());
            self.push(M::Alu { op: Alu::Add, wide: false, dst: first, a: lane, b: GSrc::Imm(rows.first as i32) });
            begins.insert(place, first);
        }
        let bytes = self.len().bytes();
        let registers = rows.rounds as i32 * 4 / bytes;
        // What the sums of the rows end in, from the last row to the first, which so comes to lie in the first lane.
        let mut ends: Vec<R> = Vec::new();
        for lane in (0..self.lanes() as i32).rev() {
            let mut so_far: Vec<R> = Vec::new();
            for part in 0..registers {
                let mark = self.enter_scope();
                for (number, &value) in rows.numbers.iter().enumerate() {
                    let at = At::new(scratch, column(number) + 4 * lane);
                    let all = self.load_later(self.scalar_of(value), at);
                    self.set_rep(value, 0, c, Rep::Vector(all, R::NONE));
                }
                for inst in &rows.early {
                    self.step_of_row(rows, inst, &begins, (lane, part * bytes), c);
                }
                so_far = rows
                    .sums
                    .iter()
                    .zip(0..)
                    .map(|(sum, number)| self.sum_of_row(sum, so_far.get(number), c))
                    .collect();
                for inst in &rows.late {
                    self.step_of_row(rows, inst, &begins, (lane, part * bytes), c);
                }
                self.leave_scope(mark);
            }
            ends = so_far
                .into_iter()
                .zip(0..)
                .map(|(sums, number)| self.last_and_first(sums, ends.get(number).copied().unwrap_or(sums), 1))
                .collect();
        }
        for (&value, kept) in rows.numbers.iter().zip(kept) {
            self.set_rep(value, 0, c, kept);
        }
        self.leave_scope(outer);
        for (sum, last) in rows.sums.iter().zip(ends) {
            self.set_rep(sum.last, 0, c, Rep::Vector(last, R::NONE));
        }
    }

    /// Makes the sums before and after each word of a register, from what the register before ended with; gives those after.
    fn sum_of_row(&mut self, sum: &Sum, so_far: Option<&R>, c: usize) -> R {
        let words = self.vector_of(sum.adds, c);
        let begins = match so_far {
            Some(&so_far) => Some(self.last_in_all(so_far)),
            None if self.constant_of(sum.first, c) == Some(0) => None,
            None => Some(self.vector_of(sum.first, c)),
        };
        let mut after = self.sums_so_far(words);
        if let Some(begins) = begins {
            after = self.vec(ops::VPADDD, after, Src::R(begins));
        }
        let before = self.vec(ops::VPSUBD, after, Src::R(words));
        self.set_rep(sum.before, 0, c, Rep::Vector(before, R::NONE));
        self.set_rep(sum.after, 0, c, Rep::Vector(after, R::NONE));
        after
    }

    /// A step for neighbouring words of a lane's row.
    fn step_of_row(
        &mut self,
        rows: &Rows<'k>,
        inst: &'k Inst,
        begins: &Map<Value, R>,
        (lane, part): (i32, i32),
        c: usize,
    ) {
        let at = |lower: &Self, address: &Address| {
            let place = rows.places[&std::ptr::from_ref(address)];
            let Lane::Affine(words) = lower.shape_of(place).lane else { return lower.tile_source(address, c) };
            at_row(lower.tile_source(address, c), (begins[&place], 4 * words * lane + part))
        };
        match inst {
            Inst::Let(value, _) if rows.indices.contains(value) => {}
            Inst::Let(value, Op::Load { address, .. }) => {
                let at = at(self, address);
                self.note_read(address.memory);
                let word = self.load_contiguous(self.scalar_of(*value), at, None);
                self.set_rep(*value, 0, c, Rep::Vector(word, R::NONE));
            }
            Inst::Let(value, op) => self.define(*value, op, c),
            Inst::Store { address, value, .. } => {
                let at = at(self, address);
                let src = self.vector_of(*value, c);
                self.push(M::VStore { op: ops::VMOVUPS_STORE, len: self.len(), src, at, mask: R::NONE });
                self.note_write(address.memory);
            }
            _ => {}
        }
    }
}
