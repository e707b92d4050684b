//! Rows in workgroup memory of which each lane has its own, and in which it does the same with every word:
//! `for (var j = 0u; j < 16u; j++) { sums[t * 16u + j] += before; }`. A register holds neighbouring words of one row, and in all of another one is
//! what the row's lane adds. Rounds whose words need each other are taken lane beside lane, which turns the rows and turns them back (`tiles.rs`).

use vyre_foundation::kernel::{Address, Element, End, Inst, Loop, Memory, Op, Scalar, Value};

use super::super::asm::Alu;
use super::super::context;
use super::super::hash::{Map, Set};
use super::super::isa::Isa;
use super::super::mir::{At, GSrc, M, R};
use super::super::ops;
use super::super::shape::Lane;
use super::Lower;
use super::facts::visit_operands;
use super::tiles::{Index, at_row, makes};
use super::value::Rep;

/// Registers of words that a vector's rows have, up to which they are written out.
const MOST_REGISTERS: u32 = 64;

/// Numbers of each lane that wait for its row.
const MOST_NUMBERS: usize = 4;

/// A loop over such rows.
struct Rows<'k> {
    steps: &'k [Inst],
    /// Where the rows of an access begin.
    places: Map<*const Address, Value>,
    /// All such places.
    begin: Vec<Value>,
    /// Sums of the counter and a place, which only addresses need.
    indices: Set<Value>,
    /// What a lane has for its row.
    numbers: Vec<Value>,
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
        comps.iter().for_each(|&c| self.row_by_row(&rows, c));
        true
    }

    fn rows_of(&self, inner: &'k Loop, comps: &[usize]) -> Option<Rows<'k>> {
        let counter = inner.counter.filter(|counter| counter.step == 1 && inner.params.is_empty())?;
        let together = self.active.divergent == 0 && comps.iter().all(|&c| self.active.exec[c].is_none());
        let goes_on = matches!(&inner.body.end, End::Continue(next) if next.is_empty());
        if self.facts.isa == Isa::Simd128 || !together || !goes_on || inner.rare {
            return None;
        }
        let [first, end] = [counter.from, counter.to].map(|end| self.constant_of(end, comps[0]));
        let (first, end) = (u32::try_from(first?).ok()?, u32::try_from(end?).ok()?);
        let rounds = end.checked_sub(first)?;
        if rounds == 0 || !rounds.is_multiple_of(self.lanes()) || rounds > MOST_REGISTERS || end > i32::MAX as u32 {
            return None;
        }
        let steps = &inner.body.insts[..];
        let mut rows = Rows {
            steps,
            places: Map::default(),
            begin: Vec::new(),
            indices: Set::default(),
            numbers: Vec::new(),
            first,
            rounds,
        };
        let mut words: Set<Value> = Set::default();
        let mut stores: Vec<&Address> = Vec::new();
        for inst in steps {
            match inst {
                Inst::Let(value, Op::Load { address, element, guard: None }) => {
                    let place = self.row_begins(inner, *value, address, *element, rounds, comps)?;
                    rows.goes_from(address, place);
                    words.insert(*value);
                }
                Inst::Store { address, element, value, guard: None } => {
                    let place = self.row_begins(inner, *value, address, *element, rounds, comps)?;
                    rows.goes_from(address, place);
                    if !words.contains(value) {
                        self.number_of_row(*value, &mut rows.numbers)?;
                    }
                    stores.push(address);
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
                    }
                    words.insert(*value);
                }
                _ => return None,
            }
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

    /// A place of a row: the counter and where the row begins. Nothing but addresses may need it.
    fn is_row_index(&self, inner: &Loop, index: Value) -> bool {
        let Some(counter) = &inner.counter else { return false };
        let Some(Op::Binary(_, a, b)) = self.facts.makers.ops[index.index()] else { return false };
        [*a, *b].contains(&counter.value)
    }

    /// Takes what a lane has for its row among `numbers`; nothing where it can't be.
    fn number_of_row(&self, value: Value, numbers: &mut Vec<Value>) -> Option<()> {
        if self.shape_of(value).lane == Lane::Same || numbers.contains(&value) {
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
        for lane in 0..self.lanes() as i32 {
            for part in 0..rows.rounds as i32 * 4 / bytes {
                let mark = self.enter_scope();
                for (number, &value) in rows.numbers.iter().enumerate() {
                    let at = At::new(scratch, column(number) + 4 * lane);
                    let all = self.load_later(self.scalar_of(value), at);
                    self.set_rep(value, 0, c, Rep::Vector(all, R::NONE));
                }
                for inst in rows.steps {
                    self.step_of_row(rows, inst, &begins, (lane, part * bytes), c);
                }
                self.leave_scope(mark);
            }
        }
        for (&value, kept) in rows.numbers.iter().zip(kept) {
            self.set_rep(value, 0, c, kept);
        }
        self.leave_scope(outer);
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
