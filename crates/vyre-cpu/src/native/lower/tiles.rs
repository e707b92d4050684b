//! Words that each lane of a loop reads one after the other from a place of its own: the rows of a matrix, sparse or not, the neighbours in a
//! graph. Every fourth round the next four words of each lane are loaded at once and sorted by rounds into memory of the thread,
//! where each round finds the words of all lanes side by side; a gather in each round would move them one by one.

use vyre_foundation::kernel::{Address, Binary, Block, Element, Inst, Loop, Memory, Op, Value};

use super::super::asm::{Alu, Cond, Len};
use super::super::context;
use super::super::hash::Map;
use super::super::isa::Isa;
use super::super::mir::{At, GSrc, LaneOp, M, R, Src};
use super::super::shape::Lane;
use super::super::{ops, visit};
use super::Lower;
use super::bounds::Makers;
use super::value::Rep;

/// Rounds that are loaded at once.
const ROUNDS: u32 = 4;

/// The index of every lane: it goes up by one each round.
#[derive(Clone, Copy, PartialEq)]
enum Index {
    /// A counter of its own.
    Counter(Value),
    /// As far behind a place of its own as the counter of all lanes is.
    Behind { place: Value, counter: Value },
}

/// What a loop reads like that.
pub(super) struct LoopTiles<'k> {
    index: Index,
    loads: Vec<(Value, &'k Address)>,
    /// How far the words of this round are behind those of the first of the four, in bytes.
    round: R,
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
    /// The end of those places.
    end: i32,
    /// There were some, here or in other blocks.
    pub(super) any: bool,
}

impl Default for Tiles {
    fn default() -> Tiles {
        Tiles { found: Map::default(), end: context::TILES, any: false }
    }
}

impl Tiles {
    pub(super) fn clear(&mut self) {
        self.found.clear();
        self.end = context::TILES;
    }
}

impl<'k> Lower<'k> {
    /// The loads of a loop that are worth it.
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
        let loads: Vec<(Value, &Address, Option<Value>)> = (inner.body.insts.iter())
            .filter_map(|inst| match inst {
                Inst::Let(value, Op::Load { address, element, guard, .. })
                    if self.goes_on_by_words(*value, address, *element)
                        && self.index_of(address, counter.value) == Some(index) =>
                {
                    Some((*value, address, *guard))
                }
                _ => None,
            })
            .collect();
        let bytes = ROUNDS as i32 * self.len().bytes();
        let end = self.tiles.end + bytes * (loads.len() * comps.len()) as i32;
        if loads.is_empty() || end > context::SCRATCH_BYTES as i32 {
            return None;
        }
        self.tiles.any = true;
        let round = self.general();
        self.push(M::Imm { dst: round, value: 0 });
        for &(value, address, guard) in &loads {
            let guarded = guard.is_none_or(|guard| is_bound(&self.facts.makers, guard, address));
            for &c in comps {
                self.tiles.found.insert((value, c), Tile { first: self.tiles.end, round, guarded });
                self.tiles.end += bytes;
            }
        }
        Some(LoopTiles { index, loads: loads.into_iter().map(|(value, address, _)| (value, address)).collect(), round })
    }

    /// The place that rows of lanes begin at which a loop goes over with one counter for all of them.
    fn place_of_rows(&self, inner: &Loop, counter: Value) -> Option<Index> {
        inner.body.insts.iter().find_map(|inst| match inst {
            Inst::Let(value, Op::Load { address, element, .. }) if self.goes_on_by_words(*value, address, *element) => {
                let found = self.index_of(address, counter);
                found.filter(|index| matches!(index, Index::Behind { place, .. } if !makes(&inner.body, *place)))
            }
            _ => None,
        })
    }

    /// What an address goes by, where that is one word on in each round.
    fn index_of(&self, address: &Address, counter: Value) -> Option<Index> {
        let [(term, 4)] = address.terms[..] else { return None };
        if term == counter {
            return (!self.is_scalar(counter)).then_some(Index::Counter(counter));
        }
        let Some(&Op::Binary(Binary::Add, a, b)) = self.facts.makers.ops[term.index()] else { return None };
        let place = if a == counter { b } else { a };
        let behind = (a == counter) != (b == counter) && !self.is_scalar(place) && self.is_scalar(counter);
        behind.then_some(Index::Behind { place, counter })
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

    /// A word of a buffer that nobody writes.
    fn goes_on_by_words(&self, value: Value, address: &Address, element: Element) -> bool {
        let Memory::Buffer(buffer) = address.memory else { return false };
        let buffer = &self.facts.kernel.buffers[buffer as usize];
        let words = matches!(element, Element::U32 | Element::I32 | Element::F32) && self.width_of(value) == 1;
        let plain = !buffer.written && buffer.stride == 4 && buffer.header == 0;
        words && plain && address.offset.is_multiple_of(4) && address.offset < 1 << 20
    }

    /// Loads the words of the next four rounds, where those of the last are used up. The lanes of the loop are the active ones.
    pub(super) fn fill_tiles(&mut self, tiles: &LoopTiles<'k>, comps: &[usize]) {
        let filled = self.label();
        self.push(M::Test { wide: false, a: tiles.round, b: tiles.round });
        self.push(M::JumpIf(Cond::NotEqual, filled));
        for &c in comps {
            let (apart, done) = (self.label(), self.label());
            let outer = self.enter_scope();
            let live = match self.active.exec[c] {
                Some(live) => live,
                None => self.mask_all(),
            };
            let index = self.tile_index(tiles.index, c);
            let mark = self.enter_scope();
            self.stay_inside(tiles, index, live, apart);
            self.fill_from_lanes(tiles, index, live, c);
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

    /// Goes to `apart` unless all of the words of all lanes are inside.
    fn stay_inside(&mut self, tiles: &LoopTiles<'k>, index: R, live: R, apart: super::Label) {
        let mut tested: Vec<(Memory, u32)> = Vec::new();
        for (_, address) in &tiles.loads {
            if tested.contains(&(address.memory, address.offset)) {
                continue;
            }
            tested.push((address.memory, address.offset));
            let behind = GSrc::Imm((address.offset / 4 + ROUNDS - 1) as i32);
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
        if let Memory::Buffer(buffer) = memory {
            let at = At::new(R::CONTEXT, context::BUFFERS + 16 * buffer as i32 + 8);
            self.push(M::Load { bytes: 4, signed: false, dst: words, at });
        }
        words
    }

    /// Four words of one lane after the other, all of which are inside.
    fn fill_from_lanes(&mut self, tiles: &LoopTiles<'k>, index: R, live: R, c: usize) {
        let (scratch, each) = (self.scratch(), self.lanes() / 4);
        let index = self.masked_zero(index, live);
        self.put_scratch(scratch, context::TILE_INDEX, index);
        let mut loaded: Vec<Vec<R>> = vec![Vec::new(); tiles.loads.len()];
        for part in 0..4 {
            // The halves of a register of eight words are of lanes that are four apart.
            let first = if each == 2 { part } else { part * each };
            let lanes: Vec<R> = (0..each)
                .map(|within| {
                    let lane = first + if each == 2 { 4 * within } else { within };
                    let dst = self.general();
                    let at = At::new(scratch, context::TILE_INDEX + 4 * lane as i32);
                    self.push(M::Load { bytes: 4, signed: false, dst, at });
                    dst
                })
                .collect();
            for ((_, address), loaded) in tiles.loads.iter().zip(&mut loaded) {
                let place = self.tile_source(address, c);
                let of = |lane: u32| At { index: lanes[lane as usize], scale: 4, ..place };
                let dst = self.vector();
                self.push(M::Vec(LaneOp {
                    len: Len::L128,
                    ..self.lane_op(ops::VMOVUPS, dst, R::NONE, Src::At(of(0)))
                }));
                loaded.push((1..each).fold(dst, |before, lane| self.with_vector_of_four(before, of(lane), lane)));
            }
        }
        for (&(value, _), loaded) in tiles.loads.iter().zip(loaded) {
            let first = self.tiles.found[&(value, c)].first;
            let words = match (self.facts.isa, &loaded[..]) {
                (Isa::Avx2, &[a, b, c, d]) => self.turned([a, b, c, d]),
                _ => self.words_of(loaded),
            };
            for (round, word) in words.into_iter().enumerate() {
                self.put_scratch(scratch, first + round as i32 * self.len().bytes(), word);
            }
        }
    }

    /// Words of all lanes for one round after the other, zeros where they are not inside.
    fn fill_by_rounds(&mut self, tiles: &LoopTiles<'k>, index: R, live: R, c: usize) {
        let scratch = self.scratch();
        for &(value, address) in &tiles.loads {
            let words = self.words_in(address.memory);
            let limit = self.spread(words, false);
            let place = self.tile_source(address, c);
            let first = self.tiles.found[&(value, c)].first;
            for round in 0..ROUNDS {
                let ahead = self.constant(round);
                let at = self.vec(ops::VPADDD, index, Src::R(ahead));
                let behind = self.constant(address.offset / 4);
                let word = self.vec(ops::VPADDD, at, Src::R(behind));
                let inside = self.mask_less(word, limit, false);
                let inside = self.mask_and(inside, live);
                let scalar = self.scalar_of(value);
                if let Rep::Vector(src, _) = self.gather(scalar, At { scale: 4, ..place }, at, Some(inside)) {
                    self.put_scratch(scratch, first + round as i32 * self.len().bytes(), src);
                }
            }
        }
    }

    fn tile_source(&self, address: &Address, c: usize) -> At {
        let at = self.base(address.memory, c);
        At { disp: at.disp + address.offset as i32, ..at }
    }

    /// The next round, after which the words of the first come again.
    pub(super) fn next_tiles(&mut self, tiles: &LoopTiles<'k>) {
        let (round, len) = (tiles.round, self.len().bytes());
        self.push(M::Alu { op: Alu::Add, wide: false, dst: round, a: round, b: GSrc::Imm(len) });
        self.push(M::Alu { op: Alu::And, wide: false, dst: round, a: round, b: GSrc::Imm(ROUNDS as i32 * len - 1) });
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

/// A guard says no more than that the word at an address is inside.
fn is_bound(makers: &Makers<'_>, guard: Value, address: &Address) -> bool {
    let Some(Op::Binary(Binary::Lt, a, b)) = makers.ops[guard.index()] else { return false };
    let length = matches!(makers.ops[b.index()], Some(Op::Length(buffer)) if Memory::Buffer(*buffer) == address.memory);
    matches!(address.terms[..], [(index, 4)] if index == *a) && length && address.offset == 0
}

/// A value is made in a block or in those inside it.
fn makes(block: &Block, value: Value) -> bool {
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
