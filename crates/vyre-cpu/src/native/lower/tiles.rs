//! Words that each lane of a loop reads one after the other from a place of its own: the rows of a matrix, sparse or not, the neighbours in a
//! graph. Every few rounds the next words of each lane are loaded at once and sorted by rounds into memory of the thread, where each
//! round finds the words of all lanes side by side; a gather in each round would move them one by one. Rows that all lanes go over
//! together are loaded in whole registers; where each lane has its own number of rounds, four words at a time.
//!
//! Words that each lane writes one after the other wait there in the same way, until as many rounds of them are stored at once.

use vyre_foundation::kernel::{Address, Binary, Block, Element, End, Inst, Loop, Memory, Op, Scalar, Value};

use super::super::asm::{Alu, Cond, Len, Shift};
use super::super::context;
use super::super::hash::Map;
use super::super::isa::Isa;
use super::super::mir::{At, GSrc, LaneOp, M, R, Src};
use super::super::shape::{Lane, MAX_INDEX};
use super::super::{ops, visit};
use super::Lower;
use super::bounds::Makers;
use super::flow::{leaves, returns};
use super::memory::Place;
use super::value::Rep;

/// Rounds that are loaded at once where rows may be short.
const FEW: u32 = 4;

/// How far ahead what lanes will read or write is asked for: no processor foresees as many rows as there are lanes.
const LINE: i32 = 64;

/// Words from lane to lane, where that is known, from which on each lane has lines of its own.
const APART: std::ops::RangeInclusive<u32> = 16..=1 << 14;
/// The same in workgroup memory, where lines are near and fewer words are moved as whole registers (`strides.rs`).
const APART_IN_GROUP: std::ops::RangeInclusive<u32> = 7..=1 << 14;

/// The index of every lane: it goes up by one each round.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Index {
    /// A counter of its own.
    Counter(Value),
    /// As far behind a place of its own as the counter of all lanes is.
    Behind { place: Value, counter: Value },
}

/// What a loop reads and writes like that.
pub(super) struct LoopTiles<'k> {
    index: Index,
    loads: Vec<(Value, &'k Address)>,
    stores: Vec<&'k Address>,
    /// Rounds that are loaded and stored at once: few, or as many as there are lanes.
    rounds: u32,
    /// How far the words of this round are behind those of the first that were loaded with them, in bytes.
    round: R,
    /// The counter in the first of these rounds.
    first: R,
}

/// Where the words of a value lie for one vector.
#[derive(Clone, Copy)]
struct Tile {
    /// Behind the start of the scratch memory.
    first: i32,
    round: R,
    /// There are zeros for lanes that are out of bounds, so the guard need not be looked at.
    guarded: bool,
}

/// Where loads of loops find the words of all lanes that were loaded rounds before.
pub(super) struct Tiles {
    found: Map<(Value, usize), Tile>,
    /// Where stores leave theirs.
    left: Map<(*const Address, usize), Tile>,
    /// The end of those places.
    end: i32,
    /// There were some, here or in other blocks.
    pub(super) any: bool,
}

impl Default for Tiles {
    fn default() -> Tiles {
        Tiles { found: Map::default(), left: Map::default(), end: context::TILES, any: false }
    }
}

impl Tiles {
    pub(super) fn clear(&mut self) {
        self.found.clear();
        self.left.clear();
        self.end = context::TILES;
    }
}

impl<'k> Lower<'k> {
    /// The loads and stores of a loop that are worth it.
    pub(super) fn tiles_of(&mut self, inner: &'k Loop, comps: &[usize]) -> Option<LoopTiles<'k>> {
        let counter = inner.counter.filter(|counter| counter.step == 1)?;
        if self.facts.isa == Isa::Simd128 || inner.rare {
            return None;
        }
        let index = match self.is_scalar(counter.value) {
            true => self.place_of_rows(inner, counter.value)?,
            false => Index::Counter(counter.value),
        };
        let (Index::Counter(apart) | Index::Behind { place: apart, .. }) = index;
        let places = &self.active.shared[usize::from(self.shape_of(apart).axes)];
        let own = comps.iter().all(|&c| places[c] == c);
        // From the same place on, all lanes read the same words.
        let same = index == Index::Counter(apart) && self.shape_of(counter.from).lane == Lane::Same;
        if same || !own {
            return None;
        }
        let stores = self.stores_of(inner, index, counter.value);
        let loads: Vec<(Value, &Address, Option<Value>)> = (inner.body.insts.iter())
            .filter_map(|inst| match inst {
                Inst::Let(value, Op::Load { address, element, guard, .. })
                    if self.goes_on_by_words(*value, address, *element)
                        && (self.stays(inner, address.memory)
                            || stores.iter().any(|store| store.memory == address.memory))
                        && self.index_of(address, counter.value) == Some(index) =>
                {
                    Some((*value, address, *guard))
                }
                _ => None,
            })
            .collect();
        if loads.is_empty() && stores.is_empty() {
            return None;
        }
        let many = (loads.len() + stores.len()) * comps.len();
        let bytes_of = |rounds: u32| rounds as i32 * self.len().bytes();
        let fits = |rounds: &u32| self.tiles.end + bytes_of(*rounds) * many as i32 <= context::SCRATCH_BYTES as i32;
        let rounds = [self.rounds_at_once(inner, index, comps[0]), FEW].into_iter().find(fits)?;
        let bytes = bytes_of(rounds);
        self.tiles.any = true;
        let (round, first) = (self.general(), self.general());
        self.push(M::Imm { dst: round, value: 0 });
        self.push(M::Imm { dst: first, value: 0 });
        for &(value, address, guard) in &loads {
            let guarded = guard.is_none_or(|guard| is_bound(&self.facts.makers, guard, address));
            for &c in comps {
                self.tiles.found.insert((value, c), Tile { first: self.tiles.end, round, guarded });
                self.tiles.end += bytes;
            }
        }
        for (&address, &c) in stores.iter().flat_map(|address| comps.iter().map(move |c| (address, c))) {
            let tile = Tile { first: self.tiles.end, round, guarded: true };
            self.tiles.left.insert((std::ptr::from_ref(address), c), tile);
            self.tiles.end += bytes;
        }
        let loads = loads.into_iter().map(|(value, address, _)| (value, address)).collect();
        Some(LoopTiles { index, loads, stores, rounds, round, first })
    }

    /// Whole registers of rows that are as long, as far as that is known.
    fn rounds_at_once(&self, inner: &Loop, index: Index, c: usize) -> u32 {
        let Some(counter) = inner.counter.filter(|_| matches!(index, Index::Behind { .. })) else { return FEW };
        let length = match [counter.from, counter.to].map(|end| self.constant_of(end, c)) {
            [Some(from), Some(to)] => to.wrapping_sub(from) as u32,
            _ => u32::MAX,
        };
        if length < self.lanes() { FEW } else { self.lanes() }
    }

    /// The stores of a loop that nobody leaves before its end: nothing else in it touches what they write, but for loads of the word
    /// that is then stored. A load after the store would find what was there rounds before.
    fn stores_of(&self, inner: &'k Loop, index: Index, counter: Value) -> Vec<&'k Address> {
        let leaves = |inst: &Inst| match inst {
            Inst::If { then, otherwise, .. } => leaves(then) || leaves(otherwise),
            Inst::Loop(inner) => returns(&inner.body),
            Inst::Barrier(_) => true,
            _ => false,
        };
        let mut barriers = false;
        visit(&inner.body, &mut |inst| barriers |= matches!(inst, Inst::Barrier(_)));
        let ends = matches!(inner.body.end, End::Continue(_)) && !inner.body.insts.iter().any(leaves);
        if !ends || barriers || index == Index::Counter(counter) || self.shapes().parts(inner) {
            return Vec::new();
        }
        let alone = |stored: &Address| {
            let (mut alone, mut stores) = (true, 0);
            visit(&inner.body, &mut |inst| match inst {
                Inst::Let(_, Op::Load { address, .. }) if address.memory == stored.memory => {
                    alone &= address == stored && stores == 0;
                }
                Inst::Store { address, .. } if address.memory == stored.memory => stores += 1,
                Inst::Atomic { address, .. } => alone &= address.memory != stored.memory,
                _ => {}
            });
            alone && stores == 1
        };
        let of = |inst: &'k Inst| match inst {
            Inst::Store { address, element, value, guard }
                if self.goes_on_by_words(*value, address, *element)
                    && guard.is_none_or(|guard| is_bound(&self.facts.makers, guard, address))
                    && self.index_of(address, counter) == Some(index)
                    && alone(address) =>
            {
                Some(address)
            }
            _ => None,
        };
        inner.body.insts.iter().filter_map(of).collect()
    }

    /// The place that rows of lanes begin at which a loop goes over with one counter for all of them.
    fn place_of_rows(&self, inner: &Loop, counter: Value) -> Option<Index> {
        inner.body.insts.iter().find_map(|inst| match inst {
            Inst::Let(value, Op::Load { address, element, .. }) | Inst::Store { value, address, element, .. }
                if self.goes_on_by_words(*value, address, *element) =>
            {
                let found = self.index_of(address, counter);
                let stays = |place: Value| !inner.params.contains(&place) && !makes(&inner.body, place);
                found.filter(|index| matches!(index, Index::Behind { place, .. } if stays(*place)))
            }
            _ => None,
        })
    }

    /// What an address goes by, where that is one word on in each round.
    pub(super) fn index_of(&self, address: &Address, counter: Value) -> Option<Index> {
        let (a, b) = match address.terms[..] {
            [(term, 4)] if term == counter => {
                return (!self.is_scalar(counter)).then_some(Index::Counter(counter));
            }
            [(term, 4)] => match self.facts.makers.ops[self.same_word(term).index()] {
                Some(&Op::Binary(Binary::Add, a, b)) => (a, b),
                _ => return None,
            },
            [(a, 4), (b, 4)] => (a, b),
            _ => return None,
        };
        let place = if a == counter { b } else { a };
        let far = match self.shape_of(place).lane {
            Lane::Same => false,
            Lane::Affine(words) if matches!(address.memory, Memory::Shared(_)) => {
                APART_IN_GROUP.contains(&words.unsigned_abs())
            }
            Lane::Affine(words) => APART.contains(&words.unsigned_abs()),
            Lane::Vary => true,
        };
        let is_word = matches!(self.scalar_of(place), Scalar::U32 | Scalar::I32);
        let behind = (a == counter) != (b == counter) && far && is_word && self.is_scalar(counter);
        behind.then_some(Index::Behind { place, counter })
    }

    /// What a word was before it was taken for one with a sign, or without.
    fn same_word(&self, word: Value) -> Value {
        match self.facts.makers.ops[word.index()] {
            Some(&Op::BitCast(before)) if matches!(self.scalar_of(before), Scalar::U32 | Scalar::I32) => before,
            _ => word,
        }
    }

    /// The words of this round.
    fn tile_index(&mut self, index: Index, c: usize) -> R {
        match index {
            Index::Counter(counter) => self.vector_of(counter, c),
            Index::Behind { place, counter } => {
                let (place, counter) = (self.vector_of(place, c), self.vector_of(counter, c));
                self.vec(ops::VPADDD, place, Src::R(counter))
            }
        }
    }

    /// A word of a buffer or of workgroup memory.
    pub(super) fn goes_on_by_words(&self, value: Value, address: &Address, element: Element) -> bool {
        let plain = match address.memory {
            Memory::Buffer(buffer) => {
                let buffer = &self.facts.kernel.buffers[buffer as usize];
                buffer.stride == 4 && buffer.header == 0
            }
            Memory::Shared(_) => true,
            Memory::Local(_) => false,
        };
        let words = matches!(element, Element::U32 | Element::I32 | Element::F32) && self.width_of(value) == 1;
        words && plain && address.offset.is_multiple_of(4) && address.offset < 1 << 20
    }

    /// Nothing of a memory changes while a loop runs. Buffers may be bound twice; workgroup memory that a loop reads is written by others
    /// only where a barrier is between.
    fn stays(&self, inner: &Loop, memory: Memory) -> bool {
        match memory {
            Memory::Shared(_) => !changes(inner, memory),
            _ => !self.is_written(memory),
        }
    }

    /// Loads the words of the next rounds, where those of the last are used up. The lanes of the loop are the active ones.
    pub(super) fn fill_tiles(&mut self, tiles: &LoopTiles<'k>, comps: &[usize]) {
        let filled = self.label();
        self.push(M::Test { wide: false, a: tiles.round, b: tiles.round });
        self.push(M::JumpIf(Cond::NotEqual, filled));
        if let (Index::Behind { counter, .. }, false) = (tiles.index, tiles.stores.is_empty()) {
            let now = self.scalar_reg(counter, comps[0]);
            self.push(M::Mov { dst: tiles.first, src: now });
        }
        for &c in comps.iter().filter(|_| !tiles.loads.is_empty()) {
            let (apart, done) = (self.label(), self.label());
            let outer = self.enter_scope();
            let live = match self.active.exec[c] {
                Some(live) => live,
                None => self.mask_all(),
            };
            let asked = self.ask_for_tiles(tiles, c);
            let index = self.tile_index(tiles.index, c);
            let mark = self.enter_scope();
            let read: Vec<&Address> = tiles.loads.iter().map(|(_, address)| *address).collect();
            read.iter().for_each(|address| self.note_read(address.memory));
            self.stay_inside(&read, tiles.rounds, index, live, apart);
            self.fill_from_lanes(tiles, index, live, asked, c);
            self.leave_scope(mark);
            self.push(M::Jump(done));
            self.bind(apart);
            let mark = self.enter_scope();
            self.fill_by_rounds(tiles, index, live, c);
            self.leave_scope(mark);
            self.bind(done);
            self.leave_scope(outer);
        }
        self.bind(filled);
    }

    /// Asks for rows that the next block reads and writes, where rows lie one behind the other; false where they don't.
    fn ask_for_tiles(&mut self, tiles: &LoopTiles<'k>, c: usize) -> bool {
        let Index::Behind { counter, .. } = tiles.index else { return false };
        let counter = self.scalar_reg(counter, c);
        let Some((first, words)) = self.lanes_apart(tiles.index, counter, c) else { return false };
        let mut all = true;
        for address in tiles.loads.iter().map(|(_, address)| *address).chain(tiles.stores.iter().copied()) {
            let at = At { index: first, scale: 4, ..self.tile_source(address, c) };
            for round in 0..tiles.rounds {
                let at = At { disp: at.disp + (round * 4 * self.lanes()) as i32, ..at };
                all &= self.ask_for_next_rows(address.memory, at, 4 * words);
            }
        }
        all
    }

    /// Goes to `apart` unless so many words of all lanes are inside.
    fn stay_inside(&mut self, addresses: &[&Address], rounds: u32, index: R, live: R, apart: super::Label) {
        let mut tested: Vec<(Memory, u32)> = Vec::new();
        for address in addresses {
            if tested.contains(&(address.memory, address.offset)) {
                continue;
            }
            tested.push((address.memory, address.offset));
            let behind = GSrc::Imm((address.offset / 4 + rounds - 1) as i32);
            let (words, limit) = (self.words_in(address.memory), self.general());
            // Lanes that are out of the loop read the first words, so there must be some.
            self.push(M::Cmp { wide: false, a: words, b: behind });
            self.push(M::JumpIf(Cond::BelowEqual, apart));
            self.push(M::Alu { op: Alu::Sub, wide: false, dst: limit, a: words, b: behind });
            let limit = self.spread(limit, false);
            let inside = self.mask_less(index, limit, false);
            let outside = self.mask_minus(live, inside);
            self.jump_if_any(&[outside], apart);
        }
    }

    fn words_in(&mut self, memory: Memory) -> R {
        let words = self.general();
        match memory {
            Memory::Buffer(buffer) => {
                let at = At::new(R::CONTEXT, context::BUFFERS + 16 * buffer as i32 + 8);
                self.push(M::Load { bytes: 4, signed: false, dst: words, at });
            }
            Memory::Shared(index) => {
                let value = u64::from(self.facts.kernel.shared[index as usize].size / 4);
                self.push(M::Imm { dst: words, value });
            }
            Memory::Local(_) => {}
        }
        words
    }

    /// The words of one lane after the other, all of which are inside.
    fn fill_from_lanes(&mut self, tiles: &LoopTiles<'k>, index: R, live: R, asked: bool, c: usize) {
        let scratch = self.scratch();
        let apart = match (tiles.index, self.active.exec[c]) {
            (Index::Behind { counter, .. }, None) => {
                let counter = self.scalar_reg(counter, c);
                self.lanes_apart(tiles.index, counter, c)
            }
            _ => None,
        };
        if apart.is_none() {
            let index = self.masked_zero(index, live);
            self.put_scratch(scratch, context::TILE_INDEX, index);
        }
        let places: Vec<(At, bool)> = (tiles.loads.iter())
            .map(|(_, address)| (self.tile_source(address, c), matches!(address.memory, Memory::Buffer(_)) && !asked))
            .collect();
        let mut few = match tiles.rounds {
            FEW => self.few_of_lanes(scratch, apart, &places),
            _ => Vec::new(),
        };
        for (load, (value, _)) in tiles.loads.iter().enumerate() {
            let words = match few.get_mut(load) {
                Some(words) => std::mem::take(words),
                None => self.registers_of_lanes(scratch, apart, places[load]),
            };
            let first = self.tiles.found[&(*value, c)].first;
            for (round, word) in words.into_iter().enumerate() {
                self.put_scratch(scratch, first + round as i32 * self.len().bytes(), word);
            }
        }
    }

    /// Four words of each lane at each of some places, by rounds.
    fn few_of_lanes(&mut self, scratch: R, apart: Option<(R, i32)>, places: &[(At, bool)]) -> Vec<Vec<R>> {
        let each = self.lanes() / 4;
        let mut loaded: Vec<Vec<R>> = vec![Vec::new(); places.len()];
        for part in 0..4 {
            // The halves of a register of eight words are of lanes that are four apart.
            let first = if each == 2 { part } else { part * each };
            let lane_of = |within: u32| first + if each == 2 { 4 * within } else { within };
            let rows: Vec<(R, i32)> =
                (0..each).map(|within| self.row_of_lane(scratch, apart, lane_of(within))).collect();
            for (&(place, asks), loaded) in places.iter().zip(&mut loaded) {
                let rows: Vec<At> = rows.iter().map(|&row| at_row(place, row)).collect();
                let dst = self.vector();
                let v = LaneOp { len: Len::L128, ..self.lane_op(ops::VMOVUPS, dst, R::NONE, Src::At(rows[0])) };
                self.push(M::Vec(v));
                let more = rows.iter().zip(0..).skip(1);
                loaded.push(more.fold(dst, |before, (&at, lane)| self.with_vector_of_four(before, at, lane)));
                self.ask_for_rest(&rows, asks, false);
            }
        }
        let by_rounds = |loaded: Vec<R>| match (self.facts.isa, &loaded[..]) {
            (Isa::Avx2, &[a, b, c, d]) => self.turned([a, b, c, d]),
            _ => self.words_of(loaded),
        };
        loaded.into_iter().map(by_rounds).collect()
    }

    /// A register of words of each lane, by rounds.
    fn registers_of_lanes(&mut self, scratch: R, apart: Option<(R, i32)>, (place, asks): (At, bool)) -> Vec<R> {
        let mut loaded: Vec<Vec<R>> = Vec::new();
        for part in 0..self.lanes() / 4 {
            let rows = [0, 1, 2, 3].map(|within| at_row(place, self.row_of_lane(scratch, apart, 4 * part + within)));
            let four = rows.map(|at| self.load_contiguous(Scalar::U32, at, None));
            self.ask_for_rest(&rows, asks, false);
            loaded.push(self.turned(four));
        }
        self.turned_fours(&loaded)
    }

    /// Asks for what is behind the words of some lanes.
    fn ask_for_rest(&mut self, rows: &[At], asks: bool, writes: bool) {
        for at in rows.iter().filter(|_| asks) {
            self.push(M::Prefetch { at: At { disp: at.disp + LINE, ..*at }, writes });
        }
    }

    /// Lanes whose places are a known distance apart: the index of the first, and words from one to the next.
    fn lanes_apart(&mut self, index: Index, counter: R, c: usize) -> Option<(R, i32)> {
        let Index::Behind { place, .. } = index else { return None };
        let Lane::Affine(words) = self.shape_of(place).lane else { return None };
        let (place, first) = (self.scalar_reg(place, c), self.general());
        self.push(M::Alu { op: Alu::Add, wide: false, dst: first, a: place, b: GSrc::R(counter) });
        Some((first, words))
    }

    /// The index of a lane that is inside, and bytes to be added to its place.
    fn row_of_lane(&mut self, scratch: R, apart: Option<(R, i32)>, lane: u32) -> (R, i32) {
        if let Some((first, words)) = apart {
            return (first, 4 * words * lane as i32);
        }
        let (index, at) = (self.general(), At::new(scratch, context::TILE_INDEX + 4 * lane as i32));
        self.push(M::Load { bytes: 4, signed: false, dst: index, at });
        (index, 0)
    }

    /// Words of all lanes for one round after the other, zeros where they are not inside.
    fn fill_by_rounds(&mut self, tiles: &LoopTiles<'k>, index: R, live: R, c: usize) {
        let end = GSrc::Imm(tiles.rounds as i32 * self.len().bytes());
        for &(value, address) in &tiles.loads {
            let first = self.tiles.found[&(value, c)].first;
            self.round_by_round(address, index, end, |lower, round, index, inside| {
                let inside = lower.mask_and(inside, live);
                let place = At { scale: 4, ..lower.tile_source(address, c) };
                if let Rep::Vector(src, _) = lower.gather(lower.scalar_of(value), place, index, Some(inside)) {
                    let at = At { index: round, ..At::new(lower.scratch(), first) };
                    lower.push(M::VStore { op: ops::VMOVUPS_STORE, len: lower.len(), src, at, mask: R::NONE });
                }
            });
        }
    }

    /// Emits a loop over rounds, with the offset of each in its tile, the index of all lanes and those of them that are inside.
    fn round_by_round(&mut self, address: &Address, first: R, end: GSrc, each: impl FnOnce(&mut Self, R, R, R)) {
        let (round, index, again) = (self.general(), self.vector(), self.label());
        let (one, behind) = (self.constant(1), self.constant(address.offset / 4));
        let words = self.words_in(address.memory);
        let limit = self.spread(words, false);
        self.push(M::Imm { dst: round, value: 0 });
        self.push(M::Mov { dst: index, src: first });
        self.bind(again);
        let mark = self.enter_scope();
        let word = self.vec(ops::VPADDD, index, Src::R(behind));
        let inside = self.mask_less(word, limit, false);
        each(self, round, index, inside);
        let next = self.vec(ops::VPADDD, index, Src::R(one));
        self.push(M::Mov { dst: index, src: next });
        self.leave_scope(mark);
        let len = GSrc::Imm(self.len().bytes());
        self.push(M::Alu { op: Alu::Add, wide: false, dst: round, a: round, b: len });
        self.push(M::Cmp { wide: false, a: round, b: end });
        self.push(M::JumpIf(Cond::Below, again));
    }

    pub(super) fn tile_source(&self, address: &Address, c: usize) -> At {
        let at = self.base(address.memory, c);
        At { disp: at.disp + address.offset as i32, ..at }
    }

    /// The next round, after which the words of the first come again.
    pub(super) fn next_tiles(&mut self, tiles: &LoopTiles<'k>, comps: &[usize]) {
        let (round, len) = (tiles.round, self.len().bytes());
        let all = GSrc::Imm(tiles.rounds as i32 * len);
        self.push(M::Alu { op: Alu::Add, wide: false, dst: round, a: round, b: GSrc::Imm(len) });
        if !tiles.stores.is_empty() {
            let waits = self.label();
            self.push(M::Cmp { wide: false, a: round, b: all });
            self.push(M::JumpIf(Cond::NotEqual, waits));
            self.store_tiles(tiles, None, comps);
            self.bind(waits);
        }
        let last = GSrc::Imm(tiles.rounds as i32 * len - 1);
        self.push(M::Alu { op: Alu::And, wide: false, dst: round, a: round, b: last });
    }

    /// Stores what is left of less than all rounds, where the counter ran out.
    pub(super) fn empty_tiles(&mut self, tiles: &LoopTiles<'k>, comps: &[usize]) {
        if tiles.stores.is_empty() {
            return;
        }
        let (done, outer) = (self.label(), self.enter_scope());
        self.push(M::Test { wide: false, a: tiles.round, b: tiles.round });
        self.push(M::JumpIf(Cond::Equal, done));
        let count = self.general();
        let shift = GSrc::Imm(self.len().bytes().ilog2() as i32);
        self.push(M::Shift { op: Shift::Right, wide: false, dst: count, a: tiles.round, count: shift });
        let words = (tiles.rounds == self.lanes()).then(|| self.mask_below(count));
        self.store_tiles(tiles, Some(words), comps);
        self.leave_scope(outer);
        self.bind(done);
    }

    /// Stores the rounds that wait: all, or less, then by the mask of those words of a lane, where such a mask does.
    fn store_tiles(&mut self, tiles: &LoopTiles<'k>, less: Option<Option<R>>, comps: &[usize]) {
        for (&address, &c) in tiles.stores.iter().flat_map(|address| comps.iter().map(move |c| (address, c))) {
            let (apart, done) = (self.label(), self.label());
            let outer = self.enter_scope();
            let index = self.first_index(tiles, c);
            if less != Some(None) {
                let mark = self.enter_scope();
                if let Some(live) = self.active.exec[c] {
                    let bits = self.mask_bits(live);
                    self.push(M::Cmp { wide: false, a: bits, b: GSrc::Imm(self.all_lanes() as i32) });
                    self.push(M::JumpIf(Cond::NotEqual, apart));
                }
                let all = self.mask_all();
                self.stay_inside(&[address], tiles.rounds, index, all, apart);
                self.empty_to_lanes(tiles, address, index, less.flatten(), c);
                self.leave_scope(mark);
                self.push(M::Jump(done));
            }
            self.bind(apart);
            let mark = self.enter_scope();
            let first = self.tiles.left[&(std::ptr::from_ref(address), c)].first;
            self.round_by_round(address, index, GSrc::R(tiles.round), |lower, round, index, mut inside| {
                let from = At { index: round, ..At::new(lower.scratch(), first) };
                let word = lower.load_contiguous(Scalar::U32, from, None);
                if let Some(live) = lower.active.exec[c] {
                    inside = lower.mask_and(inside, live);
                }
                let at = At { scale: 4, ..lower.tile_source(address, c) };
                let place = Place::Vary(at, index);
                lower.store_vector(address, Scalar::U32, place, [word, R::NONE], Some(inside));
            });
            self.leave_scope(mark);
            self.bind(done);
            self.leave_scope(outer);
        }
    }

    /// The index of each lane in the first of the rounds that wait.
    fn first_index(&mut self, tiles: &LoopTiles<'k>, c: usize) -> R {
        match tiles.index {
            Index::Counter(counter) => self.vector_of(counter, c),
            Index::Behind { place, .. } => {
                let (place, first) = (self.vector_of(place, c), self.spread(tiles.first, false));
                self.vec(ops::VPADDD, place, Src::R(first))
            }
        }
    }

    /// Stores the words of one lane after the other, all of which are inside.
    fn empty_to_lanes(&mut self, tiles: &LoopTiles<'k>, address: &Address, index: R, mask: Option<R>, c: usize) {
        let (scratch, len) = (self.scratch(), self.len().bytes());
        let first = self.tiles.left[&(std::ptr::from_ref(address), c)].first;
        let apart = self.lanes_apart(tiles.index, tiles.first, c);
        if apart.is_none() {
            self.put_scratch(scratch, context::TILE_INDEX, index);
        }
        let (place, asks) = (self.tile_source(address, c), matches!(address.memory, Memory::Buffer(_)));
        let of_round = |round: u32| At::new(scratch, first + round as i32 * len);
        if tiles.rounds == FEW {
            let words: Vec<R> =
                (0..FEW).map(|round| self.load_contiguous(Scalar::U32, of_round(round), None)).collect();
            let each = self.lanes() / 4;
            for (part, src) in self.vectors_of(&words).into_iter().enumerate() {
                for within in 0..each {
                    let at = at_row(place, self.row_of_lane(scratch, apart, part as u32 * each + within));
                    self.ask_for_rest(&[at], asks, true);
                    match within {
                        0 => self.push(M::VStore { op: ops::VMOVUPS_STORE, len: Len::L128, src, at, mask: R::NONE }),
                        _ => self.push(M::StoreFour { src, at, which: within as u8 }),
                    }
                }
            }
        } else {
            let fours: Vec<Vec<R>> = (0..tiles.rounds / 4)
                .map(|part| {
                    let of = |within: u32| of_round(4 * part + within);
                    let four = [0, 1, 2, 3].map(|within| self.load_contiguous(Scalar::U32, of(within), None));
                    self.turned(four)
                })
                .collect();
            let op =
                if self.facts.isa == Isa::Avx2 && mask.is_some() { ops::VMASKMOVPS_STORE } else { ops::VMOVUPS_STORE };
            for (lane, src) in self.turned_fours(&fours).into_iter().enumerate() {
                let at = at_row(place, self.row_of_lane(scratch, apart, lane as u32));
                self.ask_for_rest(&[at], asks, true);
                self.push(M::VStore { op, len: self.len(), src, at, mask: mask.unwrap_or(R::NONE) });
            }
        }
        self.note_write(address.memory);
    }

    /// Leaves what a round stores for later; false where it is stored at once.
    pub(super) fn store_to_tile(&mut self, address: &Address, value: Value, c: usize) -> bool {
        let Some(&Tile { first, round, .. }) = self.tiles.left.get(&(std::ptr::from_ref(address), c)) else {
            return false;
        };
        let src = self.vector_of(value, c);
        let (len, at) = (self.len(), At { index: round, ..At::new(self.scratch(), first) });
        self.push(M::VStore { op: ops::VMOVUPS_STORE, len, src, at, mask: R::NONE });
        true
    }

    /// A value is loaded rounds before it is used.
    pub(super) fn is_in_tile(&self, value: Value, c: usize) -> bool {
        self.tiles.found.contains_key(&(value, c))
    }

    /// Behind the loop its places are others'.
    pub(super) fn leave_tiles(&mut self, tiles: &LoopTiles<'k>, comps: &[usize]) {
        for (&(value, _), &c) in tiles.loads.iter().flat_map(|load| comps.iter().map(move |c| (load, c))) {
            if let Some(tile) = self.tiles.found.remove(&(value, c)) {
                self.tiles.end = self.tiles.end.min(tile.first);
            }
        }
        for (&address, &c) in tiles.stores.iter().flat_map(|address| comps.iter().map(move |c| (address, c))) {
            if let Some(tile) = self.tiles.left.remove(&(std::ptr::from_ref(address), c)) {
                self.tiles.end = self.tiles.end.min(tile.first);
            }
        }
    }

    /// The words of this round; false where they are not loaded like that.
    pub(super) fn load_from_tile(&mut self, value: Value, guard: Option<Value>, c: usize) -> bool {
        let Some(&Tile { first, round, guarded }) = self.tiles.found.get(&(value, c)) else { return false };
        let guard = self.guard_of(guard, c).filter(|_| !guarded).map(|guard| self.mask_of(guard, c));
        let at = At { index: round, ..At::new(self.scratch(), first) };
        let word = self.load_contiguous(self.scalar_of(value), at, guard);
        self.set_rep(value, 0, c, Rep::Vector(word, R::NONE));
        true
    }
}

/// Where the words of a lane are.
pub(super) fn at_row(place: At, (index, bytes): (R, i32)) -> At {
    At { index, scale: 4, disp: place.disp + bytes, ..place }
}

/// A guard says no more than that the word at an address is inside.
fn is_bound(makers: &Makers<'_>, guard: Value, address: &Address) -> bool {
    let Some(Op::Binary(Binary::Lt, a, b)) = makers.ops[guard.index()] else { return false };
    let is_length = |value: Value| matches!(makers.ops[value.index()], Some(Op::Length(buffer)) if Memory::Buffer(*buffer) == address.memory);
    // Numbers with a sign are asked whether they have it, too; no buffer is so long.
    let is_more = |value: Value| makers.constant(value).is_some_and(|limit| limit >= MAX_INDEX);
    let length = match makers.ops[b.index()] {
        Some(Op::Binary(Binary::Min, a, b)) => is_length(*a) && is_more(*b) || is_more(*a) && is_length(*b),
        _ => is_length(*b),
    };
    matches!(address.terms[..], [(index, 4)] if index == *a) && length && address.offset == 0
}

/// A loop stores something in a memory, or waits until others did.
fn changes(inner: &Loop, memory: Memory) -> bool {
    let mut changes = false;
    visit(&inner.body, &mut |inst| {
        changes |= match inst {
            Inst::Store { address, .. } | Inst::Atomic { address, .. } => address.memory == memory,
            Inst::Barrier(_) => true,
            _ => false,
        };
    });
    changes
}

/// A value is made in a block or in those inside it.
pub(super) fn makes(block: &Block, value: Value) -> bool {
    let mut found = false;
    visit(block, &mut |inst| {
        found |= match inst {
            Inst::Let(made, _) => *made == value,
            Inst::Atomic { result, .. } => *result == Some(value),
            Inst::If { results, .. } => results.contains(&value),
            Inst::Loop(inner) => inner.results.contains(&value) || inner.params.contains(&value),
            _ => false,
        };
    });
    found
}
