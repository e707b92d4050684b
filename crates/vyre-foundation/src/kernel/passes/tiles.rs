//! Tiles that a workgroup goes over by one number: `for (i = local_index; i < 18 * 18; i += 256u) { tile[i] = image[y + i / 18][x + i % 18]; }`.
//!
//! Rows of such a tile begin anywhere in a row of invocations, so that what neighbours load lies in two or three rows of the image, and where it is
//! clamped to the image no vector of them is known to be inside. Who makes which round doesn't matter where all invocations meet behind the loop and
//! rounds change words of their own. So each invocation gets the columns of the tile that its own column says, and the rows that its own row says:
//! what neighbours load lies side by side.
//!
//! What the numbers are that are made of a round's number is computed for all rounds, so that rows and columns are found in whatever way a kernel asks for
//! them.

use std::ops::Range;

use hashbrown::{HashMap, HashSet};

use super::straight;
use super::together::is_shared;
use super::values::Values;
use crate::ir::{BarrierScope, Builtin};
use crate::kernel::walk::{Effect, access, blocks, blocks_mut, defined_in, each_inst, each_value, may_end, written};
use crate::kernel::{
    Address, Binary, Block, Counter, Element, End, Inst, Kernel, Loop, Memory, Op, Scalar, Value, eval,
};

/// Most rounds of all invocations together, and most steps of one: it comes up to four times.
const MOST_ROUNDS: u64 = 1 << 13;
const MOST_STEPS: usize = 64;
/// Operations that the first number of an invocation, and what is the same for all, may be made by.
const DEEP: u32 = 8;

/// Lays loops over the rows of their tiles, where rows of the workgroup are whole vectors of so many lanes.
pub(super) fn run(kernel: &mut Kernel, lanes: u32) {
    let [x, y, z] = kernel.workgroup_size;
    if !x.is_multiple_of(lanes) || y == 1 || z != 1 || !kernel.has_barrier {
        return;
    }
    let changed = written(&kernel.body);
    let mut tiles = Tiles {
        size: [x, y],
        lanes,
        heads: false,
        changed,
        common: Vec::new(),
        values: Values::with_definitions(kernel),
    };
    let starts_kernel = true;
    tiles.block(&mut kernel.body, starts_kernel, &mut |tiles, inner| {
        tiles.tile(inner).map(|tile| tiles.laid_out(inner, &tile))
    });
    tiles.values.give_back(kernel);
}

/// The counters of loops that go over words of workgroup memory by the number of the invocation, so that any invocations may make their rounds.
pub(super) fn free_loops(kernel: &mut Kernel) -> HashSet<Value> {
    let [x, y, z] = kernel.workgroup_size;
    let mut free = HashSet::new();
    if z != 1 || !kernel.has_barrier {
        return free;
    }
    let changed = written(&kernel.body);
    let mut tiles = Tiles {
        size: [x, y],
        lanes: 1,
        heads: true,
        changed,
        common: Vec::new(),
        values: Values::with_definitions(kernel),
    };
    let starts_kernel = true;
    tiles.block(&mut kernel.body, starts_kernel, &mut |tiles, inner| {
        if tiles.rounds(inner).is_some() {
            free.extend(inner.counter.map(|counter| counter.value));
        }
        None
    });
    tiles.values.give_back(kernel);
    free
}

/// What becomes of a loop whose rounds nobody outside can tell apart.
type Laying<'a> = dyn FnMut(&mut Tiles, &Loop) -> Option<Vec<Inst>> + 'a;

struct Tiles {
    size: [u32; 2],
    lanes: u32,
    /// Also at the heads of loops at whose ends all invocations meet.
    heads: bool,
    /// Memories that the kernel changes.
    changed: HashSet<Memory>,
    /// Values that all invocations have in common: counters of the loops around, whose rounds they make together, and words that nobody changes
    /// until they meet.
    common: Vec<Value>,
    values: Values,
}

/// A loop over the words of a tile.
struct Tile {
    columns: u32,
    rows: u32,
    /// Numbers of each round that are its row and its column.
    row: Vec<Value>,
    column: Vec<Value>,
}

/// Numbers of each round.
type Table = Vec<u64>;

impl Tiles {
    fn block(&mut self, block: &mut Block, starts_kernel: bool, lay: &mut Laying<'_>) {
        let mut at = 0;
        while at < block.insts.len() {
            let mut laid = None;
            if let Inst::Loop(inner) = &block.insts[at]
                && let Some(stretch) = stretch_around(block, at, starts_kernel)
                && is_free(inner, &block.insts[stretch.start..at], &block.insts[at + 1..stretch.end])
            {
                let before = self.common.len();
                self.note_words(&block.insts[stretch.start..at], &block.insts[stretch]);
                laid = lay(self, inner);
                self.common.truncate(before);
            }
            if let Some(insts) = laid {
                let count = insts.len();
                block.insts.splice(at..=at, insts);
                at += count;
                continue;
            }
            let mut together = None;
            if let Inst::Loop(inner) = &block.insts[at]
                && inner.body.insts.iter().any(|inst| matches!(inst, Inst::Barrier(_)))
            {
                together = inner.counter.filter(|counter| self.is_shared(counter.from)).map(|counter| counter.value);
            }
            self.common.extend(together);
            let starts = self.heads && starts_apart(block, at, starts_kernel);
            blocks_mut(&mut block.insts[at]).for_each(|block| self.block(block, starts, lay));
            self.common.truncate(self.common.len() - usize::from(together.is_some()));
            at += 1;
        }
    }

    /// It is the same for all invocations that meet at the next barrier.
    fn is_shared(&self, value: Value) -> bool {
        let stays = |memory: Memory| !self.changed.contains(&memory);
        let leaf = |value: Value| self.common.contains(&value);
        is_shared(&self.values, &stays, &leaf, value, DEEP)
    }

    /// Notes words of workgroup memory that all invocations load at one place, and nobody changes from where they met to where they meet.
    fn note_words(&mut self, insts: &[Inst], stretch: &[Inst]) {
        for inst in insts {
            let Inst::Let(value, Op::Load { address, guard, .. }) = inst else { continue };
            let mut terms = address.terms.iter().map(|(index, _)| *index).chain(*guard);
            let is_kept = matches!(address.memory, Memory::Shared(_)) && !writes(stretch, address.memory);
            if is_kept && terms.all(|value| self.is_shared(value)) {
                self.common.push(*value);
            }
        }
    }

    /// The rounds of a loop that any invocations may share among them: how many there are, and the numbers that they decide.
    fn rounds(&self, inner: &Loop) -> Option<(u64, HashMap<Value, Table>)> {
        let counter = inner.counter?;
        let all = u64::from(self.size[0]) * u64::from(self.size[1]);
        let rounds = u64::try_from(self.values.number(counter.to)?).ok().filter(|&to| to <= MOST_ROUNDS)?;
        let simple = inner.params.is_empty() && !inner.rare && straight(&inner.body) && self.is_apart(inner);
        if !simple || u64::from(counter.step) != all || !self.starts_at_index(counter.from) {
            return None;
        }
        let tables = self.tables(inner, counter, rounds);
        stores_apart(&inner.body, &tables, &self.values).then_some((rounds, tables))
    }

    /// What a loop is that goes over the words of a tile.
    fn tile(&self, inner: &Loop) -> Option<Tile> {
        let (rounds, tables) = self.rounds(inner)?;
        let words = |value: &Value| matches!(self.values.scalar(*value), Scalar::U32 | Scalar::I32);
        let quotient = |table: &Table| {
            let columns = table.iter().position(|&number| number == 1)? as u64;
            let is_row = columns > 1 && rounds.is_multiple_of(columns);
            (is_row && (0..).zip(table).all(|(round, &number)| number == round / columns)).then_some(columns)
        };
        let columns = tables.iter().filter(|(value, _)| words(value)).filter_map(|(_, table)| quotient(table)).min()?;
        let of = |number: &dyn Fn(u64) -> u64| -> Vec<Value> {
            let same = |table: &Table| (0..).zip(table).all(|(round, &other)| other == number(round));
            let found = tables.iter().filter(|(value, table)| words(value) && same(table));
            let mut found: Vec<Value> = found.map(|(value, _)| *value).collect();
            found.sort_unstable();
            found
        };
        let tile = Tile {
            columns: columns as u32,
            rows: (rounds / columns) as u32,
            row: of(&|round| round / columns),
            column: of(&|round| round % columns),
        };
        // Half of the lanes have something to do at least.
        let used = tile.columns.next_multiple_of(self.lanes);
        (used <= 2 * tile.columns).then_some(tile)
    }

    /// A round depends on nothing but its number and what is the same for all, and does nothing but to write workgroup memory.
    fn is_apart(&self, inner: &Loop) -> bool {
        let inside = defined_in(inner);
        let (mut steps, mut apart) = (0, true);
        each_inst(&inner.body, &mut |inst| {
            steps += 1;
            apart &= match inst {
                Inst::Let(value, Op::Builtin(_)) => self.is_shared(*value),
                Inst::Let(_, Op::Load { address, .. }) => match address.memory {
                    Memory::Local(_) => false,
                    Memory::Shared(_) => true,
                    memory => !self.changed.contains(&memory),
                },
                Inst::Let(_, op) => op.is_plain(),
                Inst::Store { address, .. } => matches!(address.memory, Memory::Shared(_)),
                Inst::Atomic { .. } | Inst::Barrier(_) => false,
                Inst::If { then, otherwise, .. } => ![then, otherwise].iter().any(|way| way.end == End::Return),
                Inst::Loop(second) => !may_end(&second.body, |end| *end == End::Return),
            };
        });
        each_value(&inner.body, &mut |value| apart &= inside.contains(&value) || self.is_shared(value));
        apart && steps <= MOST_STEPS
    }

    /// A number from which each invocation starts that is its number in the workgroup.
    fn starts_at_index(&self, from: Value) -> bool {
        let of = |value: Value, x: u32, y: u32| self.of_invocation(value, [x, y], DEEP);
        let [width, height] = self.size;
        (0..height).all(|y| (0..width).all(|x| of(from, x, y) == Some(u64::from(y * width + x))))
    }

    /// The bits of a number that only the place of the invocation decides.
    fn of_invocation(&self, value: Value, [x, y]: [u32; 2], deep: u32) -> Option<u64> {
        let of = |value: Value| self.of_invocation(value, [x, y], deep.checked_sub(1)?);
        match self.values.def(value)? {
            Op::Builtin(Builtin::LocalIndex) => Some(u64::from(y * self.size[0] + x)),
            Op::Builtin(Builtin::LocalId(axis)) => Some(u64::from([x, y, 0][usize::from(*axis).min(2)])),
            op => self.computed(value, op, &of),
        }
    }

    /// The bits that an operation on integers gives.
    fn computed(&self, value: Value, op: &Op, of: &dyn Fn(Value) -> Option<u64>) -> Option<u64> {
        let whole = |value: Value| {
            let ty = self.values.ty(value);
            ty.width == 1 && matches!(ty.scalar, Scalar::U32 | Scalar::I32)
        };
        if !whole(value) {
            return None;
        }
        match *op {
            Op::Const(literal) => Some(literal.bits()),
            Op::Binary(op, a, b) if whole(a) && whole(b) => {
                Some(eval::binary(op, self.values.scalar(a), of(a)?, of(b)?))
            }
            Op::Cast(a) | Op::BitCast(a) if whole(a) => of(a),
            _ => None,
        }
    }

    /// The numbers of a loop's own that are decided by its round alone.
    fn tables(&self, inner: &Loop, counter: Counter, rounds: u64) -> HashMap<Value, Table> {
        let mut tables: HashMap<Value, Table> = HashMap::new();
        tables.insert(counter.value, (0..rounds).collect());
        for inst in &inner.body.insts {
            let Inst::Let(value, op) = inst else { continue };
            let of = |value: Value, round: u64| match tables.get(&value) {
                Some(table) => Some(table[round as usize]),
                None => Some(self.values.literal(value)?.bits()),
            };
            let table: Option<Table> =
                (0..rounds).map(|round| self.computed(*value, op, &|value| of(value, round))).collect();
            if let Some(table) = table {
                tables.insert(*value, table);
            }
        }
        tables
    }

    /// The rounds of a loop, each made by an invocation in its column and its row.
    fn laid_out(&mut self, inner: &Loop, tile: &Tile) -> Vec<Inst> {
        let mut insts = Vec::new();
        let places =
            [0, 1].map(|axis| self.values.define(Scalar::U32, Op::Builtin(Builtin::LocalId(axis)), &mut insts));
        self.stretches(1, places, tile, inner, &mut insts);
        insts
    }

    /// As many rows as there are, or columns of a row, for all invocations at once, and then the rest.
    fn stretches(&mut self, axis: usize, places: [Value; 2], tile: &Tile, inner: &Loop, insts: &mut Vec<Inst>) {
        let (count, size) = ([tile.columns, tile.rows][axis], self.size[axis]);
        let whole = count / size * size;
        let place = places[axis];
        let inside = |this: &mut Self, place: Value, insts: &mut Vec<Inst>| {
            let mut places = places;
            places[axis] = place;
            match axis {
                0 => this.round(places, tile, inner, insts),
                _ => this.stretches(axis - 1, places, tile, inner, insts),
            }
        };
        if whole == size {
            inside(self, place, insts);
        } else if whole > 0 {
            let from = self.values.constant(Scalar::U32, 0, insts);
            let to = self.values.constant(Scalar::U32, whole, insts);
            let first = self.values.fresh(Scalar::U32);
            let mut body = Vec::new();
            let here = self.values.binary(Binary::Add, first, place, &mut body);
            inside(self, here, &mut body);
            insts.push(Inst::Loop(Box::new(Loop {
                counter: Some(Counter { value: first, from, to, step: size }),
                params: Vec::new(),
                init: Vec::new(),
                body: Block { insts: body, end: End::Continue(Vec::new()) },
                results: Vec::new(),
                finite: true,
                look: inner.look,
                rare: false,
            })));
        }
        if whole < count {
            let left = self.values.constant(Scalar::U32, count - whole, insts);
            let cond = self.values.binary(Binary::Lt, place, left, insts);
            let mut rest = Vec::new();
            let whole = self.values.constant(Scalar::U32, whole, &mut rest);
            let here = self.values.binary(Binary::Add, place, whole, &mut rest);
            inside(self, here, &mut rest);
            let nothing = || Box::new(Block { insts: Vec::new(), end: End::Yield(Vec::new()) });
            let then = Box::new(Block { insts: rest, ..*nothing() });
            insts.push(Inst::If { cond, then, otherwise: nothing(), results: Vec::new() });
        }
    }

    /// One round, in a column and a row.
    fn round(&mut self, [column, row]: [Value; 2], tile: &Tile, inner: &Loop, insts: &mut Vec<Inst>) {
        let columns = self.values.constant(Scalar::U32, tile.columns, insts);
        let before = self.values.binary(Binary::Mul, row, columns, insts);
        let number = self.values.binary(Binary::Add, before, column, insts);
        let mut names: HashMap<Value, Value> = HashMap::new();
        let counter = inner.counter.map(|counter| (counter.value, number));
        let found = [(&tile.row, row), (&tile.column, column)];
        let found = found.into_iter().flat_map(|(values, place)| values.iter().map(move |&value| (value, place)));
        for (value, place) in counter.into_iter().chain(found) {
            let name = match self.values.scalar(value) {
                Scalar::U32 => place,
                scalar => self.values.define(scalar, Op::BitCast(place), insts),
            };
            names.insert(value, name);
        }
        for inst in &inner.body.insts {
            if !matches!(inst, Inst::Let(value, _) if names.contains_key(value)) {
                let copy = self.values.copy_inst(inst, &mut names);
                insts.push(copy);
            }
        }
    }
}

/// The steps around one of a block from where all invocations met before it to where they meet behind it.
fn stretch_around(block: &Block, at: usize, starts_kernel: bool) -> Option<Range<usize>> {
    let meets = |inst: &Inst| *inst == Inst::Barrier(BarrierScope::Workgroup);
    let before = block.insts[..at].iter().rposition(meets).map(|at| at + 1).or(starts_kernel.then_some(0))?;
    let behind = block.insts[at..].iter().position(meets)?;
    Some(before..at + behind)
}

/// All invocations meet where a round of a loop begins, or did before it with no access to workgroup memory since.
fn starts_apart(block: &Block, at: usize, starts_kernel: bool) -> bool {
    let meets = |inst: &Inst| *inst == Inst::Barrier(BarrierScope::Workgroup);
    let Inst::Loop(inner) = &block.insts[at] else { return false };
    if !straight(&inner.body) || !inner.body.insts.last().is_some_and(meets) {
        return false;
    }
    let met = block.insts[..at].iter().rposition(meets).map(|at| at + 1).or(starts_kernel.then_some(0));
    let mut apart = met.is_some();
    each_access(block.insts[met.unwrap_or(at)..at].iter(), &mut |memory, _| {
        apart &= !matches!(memory, Memory::Shared(_))
    });
    apart
}

/// Nobody knows before a loop or behind it who has made which of its rounds.
fn is_free(inner: &Loop, before: &[Inst], behind: &[Inst]) -> bool {
    let (mut read, mut free) = (HashSet::new(), true);
    each_inst(&inner.body, &mut |inst| {
        read.extend(access(inst).filter(|(_, effect)| *effect != Effect::Write).map(|(address, _)| address.memory));
    });
    let written = written(&inner.body);
    each_access(before.iter().chain(behind), &mut |memory, effect| {
        free &= !written.contains(&memory) && (effect == Effect::Read || !read.contains(&memory));
    });
    free && read.is_disjoint(&written)
}

/// Some step, or one inside it, changes this memory.
fn writes(insts: &[Inst], memory: Memory) -> bool {
    let mut any = false;
    each_access(insts.iter(), &mut |other, effect| any |= other == memory && effect != Effect::Read);
    any
}

/// Every access of some steps and of those inside them.
fn each_access<'a>(insts: impl Iterator<Item = &'a Inst>, f: &mut dyn FnMut(Memory, Effect)) {
    for inst in insts {
        let mut note = |inst: &Inst| access(inst).into_iter().for_each(|(address, effect)| f(address.memory, effect));
        note(inst);
        blocks(inst).for_each(|block| each_inst(block, &mut |inst| note(inst)));
    }
}

/// Each memory is written by one step, to words of its own in each round.
fn stores_apart(body: &Block, tables: &HashMap<Value, Table>, values: &Values) -> bool {
    let mut written: HashSet<Memory> = HashSet::new();
    let mut apart = true;
    each_inst(body, &mut |inst| match inst {
        Inst::Store { address, element, value, .. } => {
            apart &= written.insert(address.memory) && are_apart(address, *element, values.ty(*value).width, tables);
        }
        // A step in there is made more than once.
        Inst::Loop(inner) => each_inst(&inner.body, &mut |inst| apart &= !matches!(inst, Inst::Store { .. })),
        _ => {}
    });
    apart && !written.is_empty()
}

fn are_apart(address: &Address, element: Element, width: u8, tables: &HashMap<Value, Table>) -> bool {
    let mut terms = Vec::new();
    for &(index, stride) in &address.terms {
        let Some(table) = tables.get(&index) else { return false };
        terms.push((table, u64::from(stride)));
    }
    let rounds = terms.first().map_or(0, |(table, _)| table.len());
    let place = |round: usize| terms.iter().map(|(table, stride)| table[round] * stride).sum::<u64>();
    let mut places: Vec<u64> = (0..rounds).map(place).collect();
    places.sort_unstable();
    let bytes = u64::from(element.bits() / 8 * u32::from(width));
    bytes > 0 && rounds > 0 && places.windows(2).all(|pair| pair[1] - pair[0] >= bytes)
}
