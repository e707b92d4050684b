//! Words of structures that lie side by side for neighbouring lanes: what a run of steps reads of them is loaded as whole registers and
//! sorted in registers, and what it writes is sorted and stored as whole registers. Each word by itself would be a gather or a scatter, or would
//! load what the others load once more.

use vyre_foundation::kernel::{Address, Binary, Element, Inst, Memory, Op, Scalar, Value};

use super::super::asm::Len;
use super::super::isa::Isa;
use super::super::mir::{At, LaneOp, M, R, Src};
use super::super::ops;
use super::Lower;
use super::cells::Kept;
use super::memory::Place;
use super::value::Rep;

/// Lanes of a register.
const LANES: usize = 16;

/// Fewest and most words from one lane to the next.
const APART: std::ops::RangeInclusive<u32> = 2..=16;

/// The words that a register has or should have, by their numbers; where there is none, anything may be.
type Held = [Option<u32>; LANES];

/// Steps of a run that load or store words of the same structures.
pub(super) struct Group {
    /// Numbers of the steps, in order, with their first word's distance from the first of all, in words.
    pub(super) steps: Vec<(usize, u32)>,
    /// Words from one structure to the next.
    apart: u32,
    /// Words from the first that a step has to behind the last.
    span: u32,
    /// Steps have all words of the structures.
    full: bool,
    pub(super) stores: bool,
    /// Each lane computes where its structure is.
    pub(super) scattered: bool,
}

impl Group {
    /// It is moved by fours of words; else as whole registers.
    fn is_by_fours(&self, isa: Isa) -> bool {
        match isa {
            Isa::Avx2 => self.apart > 4 || (self.apart == 4 && !self.full),
            _ => self.apart > 8,
        }
    }
}

/// Where an access goes but for a constant: the memory, and what the lanes' index is made of.
#[derive(PartialEq)]
struct Root {
    memory: Memory,
    terms: Vec<(Value, u32)>,
    /// Where each lane computes it: what says that the lanes are inside.
    guard: Option<Value>,
    scattered: bool,
}

/// Steps that may become a group.
struct Open {
    root: Root,
    stores: bool,
    apart: u32,
    /// Their numbers, their distances from the root in bytes, and how many words they have.
    steps: Vec<(usize, i64, u32)>,
}

impl Open {
    /// The least distance from the root, and which words from there on some step has; nothing where they are of more than one structure,
    /// or two stores are of the same word.
    fn words(&self) -> Option<(i64, Vec<bool>)> {
        let first = self.steps.iter().map(|&(_, at, _)| at).min()?;
        let mut words = vec![false; self.apart as usize];
        for &(_, at, width) in &self.steps {
            for word in 0..width as usize {
                let word = words.get_mut((at - first) as usize / 4 + word)?;
                if self.stores && *word {
                    return None;
                }
                *word = true;
            }
        }
        Some((first, words))
    }
}

impl<'k> Lower<'k> {
    /// Loads and stores of a run that are done together.
    pub(super) fn groups_of(&self, run: &[&'k Inst]) -> Vec<Group> {
        if self.facts.isa == Isa::Simd128 {
            return Vec::new();
        }
        let whole = self.active.current.iter().all(|&c| self.active.exec[c].is_none());
        let (mut groups, mut open): (Vec<Group>, Vec<Open>) = Default::default();
        for (number, inst) in run.iter().enumerate() {
            let (address, element, value, guard, stores) = match *inst {
                Inst::Let(value, Op::Load { address, element, guard, .. }) => {
                    (address, *element, *value, *guard, false)
                }
                Inst::Store { address, element, value, guard } => (address, *element, *value, *guard, true),
                Inst::Atomic { .. } => {
                    self.close(&mut open, &mut groups, |_| true);
                    continue;
                }
                _ => continue,
            };
            if !matches!(address.memory, Memory::Buffer(_)) {
                continue;
            }
            // Two names may stand for the same memory where it is written.
            let written = |memory: Memory| self.is_written(memory);
            self.close(&mut open, &mut groups, |open| {
                let both = written(address.memory) && written(open.root.memory);
                open.root.memory != address.memory && both && (stores || open.stores)
            });
            let side_by_side = if whole { self.root_of(address, element, guard) } else { None };
            let scattered = || if stores { None } else { self.scattered_root_of(value, address, element, guard) };
            let Some((root, at, apart)) = side_by_side.or_else(scattered) else { continue };
            let step = (number, at, u32::from(self.width_of(value)));
            match open.iter_mut().find(|open| open.root == root && open.stores == stores) {
                Some(open) => open.steps.push(step),
                None => open.push(Open { root, stores, apart, steps: vec![step] }),
            }
        }
        self.close(&mut open, &mut groups, |_| true);
        groups
    }

    /// Makes groups of what was collected for some roots, where that is worth it.
    fn close(&self, open: &mut Vec<Open>, groups: &mut Vec<Group>, which: impl Fn(&Open) -> bool) {
        open.retain(|open| {
            if !which(open) {
                return true;
            }
            groups.extend(self.group(open));
            false
        });
    }

    pub(super) fn is_written(&self, memory: Memory) -> bool {
        !matches!(memory, Memory::Buffer(buffer) if !self.facts.kernel.buffers[buffer as usize].written)
    }

    /// A store goes to other words of the same structures than all stores of a run to the same memory, so that no two of them have
    /// anything to do with each other.
    pub(super) fn joins_stores(&self, run: &[&'k Inst], inst: &Inst, comps: &[usize]) -> bool {
        if self.facts.isa == Isa::Simd128 || comps.iter().any(|&c| self.active.exec[c].is_some()) {
            return false;
        }
        let Inst::Store { address: Address { memory, .. }, .. } = inst else { return false };
        let mut all: Option<Open> = None;
        for inst in run.iter().copied().chain([inst]) {
            let Inst::Store { address, element, value, guard } = inst else { continue };
            if address.memory != *memory {
                continue;
            }
            let Some((root, at, apart)) = self.root_of(address, *element, *guard) else { return false };
            let step = (0, at, u32::from(self.width_of(*value)));
            match &mut all {
                Some(all) if all.root == root => all.steps.push(step),
                Some(_) => return false,
                None => all = Some(Open { root, stores: true, apart, steps: vec![step] }),
            }
        }
        all.is_some_and(|all| all.words().is_some())
    }

    fn group(&self, open: &Open) -> Option<Group> {
        let &Open { stores, apart, ref steps, ref root } = open;
        let (first, words) = open.words()?;
        let span = words.iter().rposition(|word| *word)? as u32 + 1;
        let count = words.iter().filter(|word| **word).count() as u32;
        let by_fours = apart > if self.facts.isa == Isa::Avx2 { 3 } else { 8 };
        // Fours are stored under a mask where a word is missing; a word alone is no better for it.
        let fours = !stores || words.chunks(4).all(|four| four.iter().filter(|word| **word).count() != 1);
        let whole = if by_fours { fours } else { self.facts.isa != Isa::Avx2 || count == apart };
        if root.scattered && steps.len() == 1 {
            return None;
        }
        let alone = steps.len() == 1 && matches!((steps[0].2, apart), (2, 2) | (4, 4));
        let steps = steps.iter().map(|&(number, at, _)| (number, ((at - first) / 4) as u32)).collect();
        let scattered = root.scattered;
        let worth = if scattered { words.windows(2).any(|two| two == [true; 2]) } else { whole && !alone };
        (worth && count > 1).then_some(Group { steps, apart, span, full: count == apart, stores, scattered })
    }

    /// What the address of words is made of, how far they are from that, and from one lane to the next in words. Nothing where
    /// some lanes may be out of bounds.
    fn root_of(&self, address: &Address, element: Element, guard: Option<Value>) -> Option<(Root, i64, u32)> {
        let step = self.step_of(address).filter(|step| step % 4 == 0).map(|step| step / 4)?;
        let words = matches!(element, Element::U32 | Element::I32 | Element::F32);
        let inside = guard.is_none_or(|guard| self.active.settled[guard.index()] == Some(true));
        if !words || !inside || !APART.contains(&step) || !address.offset.is_multiple_of(4) {
            return None;
        }
        let (terms, at) = self.terms_of(address);
        (at % 4 == 0).then_some((Root { memory: address.memory, terms, guard: None, scattered: false }, at, step))
    }

    /// The same for words at places that each lane computes, up to four of which are loaded together.
    fn scattered_root_of(
        &self,
        value: Value,
        address: &Address,
        element: Element,
        guard: Option<Value>,
    ) -> Option<(Root, i64, u32)> {
        let words = matches!(element, Element::U32 | Element::I32 | Element::F32);
        let by_lanes = address.terms.iter().any(|&(index, _)| !self.is_scalar(index));
        let elsewhere = self.active.current.iter().any(|&c| self.is_in_tile(value, c));
        let (terms, at) = self.terms_of(address);
        let root = Root { memory: address.memory, terms, guard, scattered: true };
        (words && by_lanes && !elsewhere && at % 4 == 0).then_some((root, at, 4))
    }

    /// What the index of an address is made of, and how far from that it is in bytes.
    fn terms_of(&self, address: &Address) -> (Vec<(Value, u32)>, i64) {
        let mut at = i64::from(address.offset);
        let mut terms = Vec::with_capacity(address.terms.len());
        for &(index, stride) in &address.terms {
            let (root, plus) = self.without_constant(index);
            at += i64::from(plus) * i64::from(stride);
            terms.push((root, stride));
        }
        (terms, at)
    }

    /// What a constant is added to, and the constant.
    fn without_constant(&self, value: Value) -> (Value, u32) {
        let constant = |value: Value| match self.facts.makers.ops[value.index()] {
            Some(Op::Const(literal)) => Some(literal.bits() as u32).filter(|&bits| bits < 1 << 16),
            _ => None,
        };
        match self.facts.makers.ops[value.index()] {
            Some(Op::Binary(Binary::Add, a, b)) => match (constant(*a), constant(*b)) {
                (_, Some(plus)) => (*a, plus),
                (Some(plus), _) => (*b, plus),
                _ => (value, 0),
            },
            _ => (value, 0),
        }
    }

    /// Where the first word of a group lies for a vector.
    fn place_of_group(&mut self, group: &Group, run: &[&'k Inst], c: usize) -> Option<At> {
        let (number, word) = group.steps[if group.stores { group.steps.len() - 1 } else { 0 }];
        let (Inst::Let(_, Op::Load { address, .. }) | Inst::Store { address, .. }) = run[number] else { return None };
        match self.place(address, c)? {
            Place::Affine(at, step) if step == 4 * group.apart as i32 => {
                Some(At { disp: at.disp - 4 * word as i32, ..at })
            }
            _ => None,
        }
    }

    /// Loads all words of a group for a vector; false where that can't be done.
    pub(super) fn load_group(&mut self, group: &Group, run: &[&'k Inst], c: usize) -> bool {
        if group.scattered {
            return self.load_scattered(group, run, c);
        }
        let Some(first) = self.place_of_group(group, run, c) else { return false };
        if self.load_group_of_cells(group, run, first, c) {
            return true;
        }
        let (count, apart) = (self.lanes(), group.apart);
        let mut sources = Vec::new();
        let whole = !group.is_by_fours(self.facts.isa);
        self.note_read_of_group(group, run);
        for start in starts(count, apart, group.span).into_iter().filter(|_| whole) {
            let at = At { disp: first.disp + 4 * start as i32, ..first };
            let r = self.load_contiguous(Element::U32.scalar(), at, None);
            sources.push((r, std::array::from_fn(|word| (word < count as usize).then_some(start + word as u32))));
        }
        let (words, wanted) = self.words_wanted(group, run);
        let registers = || sources.iter().map(|(r, _)| *r).collect::<Vec<R>>();
        let chosen = |all: Vec<R>| wanted.iter().map(|&word| all[word as usize]).collect();
        let sorted: Vec<R> = match self.facts.isa {
            isa if group.is_by_fours(isa) => chosen(self.words_by_fours(group, first, &wanted)),
            Isa::Avx2 if apart == 3 => chosen(self.thirds_of(&registers())),
            Isa::Avx2 => chosen(self.words_of(registers())),
            _ => {
                let lanes = |word: u32| std::array::from_fn(|lane| Some(apart * lane as u32 + word));
                self.arranged(sources, &wanted.iter().map(|&word| lanes(word)).collect::<Vec<Held>>())
            }
        };
        self.set_words(&words, &wanted, &sorted, c);
        true
    }

    /// Takes the words of a group from the registers that they were stored from; false where these are not known.
    fn load_group_of_cells(&mut self, group: &Group, run: &[&'k Inst], first: At, c: usize) -> bool {
        let Inst::Let(_, Op::Load { address, .. }) = run[group.steps[0].0] else { return false };
        let (words, wanted) = self.words_wanted(group, run);
        let step = 4 * group.apart as i32;
        let find = |lower: &mut Self, word: u32| {
            let at = At { disp: first.disp + 4 * word as i32, ..first };
            lower.find_cell(address.memory, at, step, lower.all_lanes())
        };
        let Some(registers) = wanted.iter().map(|&word| find(self, word)).collect::<Option<Vec<R>>>() else {
            return false;
        };
        self.set_words(&words, &wanted, &registers, c);
        // The registers go by other names already.
        words.iter().for_each(|(value, ..)| self.facts.uses[value.index()] += 1);
        true
    }

    /// Loads the words of a group at places that each lane computes, two at a time where they are neighbours.
    fn load_scattered(&mut self, group: &Group, run: &[&'k Inst], c: usize) -> bool {
        let (number, word) = group.steps[0];
        let Inst::Let(value, Op::Load { address, guard, .. }) = run[number] else { return false };
        let guard = self.guard_of(*guard, c);
        let Some(Place::Vary(at, index)) = self.place(address, c) else { return false };
        let mask = self.lanes_inside(*value, guard, c);
        self.note_read_of_group(group, run);
        let (words, wanted) = self.words_wanted(group, run);
        let mut loaded: Vec<R> = Vec::new();
        while let Some(&next) = wanted.get(loaded.len()) {
            let at = At { disp: at.disp + 4 * (next as i32 - word as i32), ..at };
            let two = wanted.get(loaded.len() + 1) == Some(&(next + 1));
            let scalar = if two { Scalar::U64 } else { Scalar::U32 };
            let Rep::Vector(low, high) = self.gather(scalar, at, index, mask) else { return false };
            loaded.extend(if two { self.words_of(vec![low, high]) } else { vec![low] });
        }
        self.set_words(&words, &wanted, &loaded, c);
        true
    }

    fn note_read_of_group(&mut self, group: &Group, run: &[&'k Inst]) {
        if let Inst::Let(_, Op::Load { address, .. }) = run[group.steps[0].0] {
            self.note_read(address.memory);
        }
    }

    /// The words that the values of a group are made of, and all of them in order.
    fn words_wanted(&self, group: &Group, run: &[&'k Inst]) -> (Vec<(Value, u8, u32)>, Vec<u32>) {
        let mut words: Vec<(Value, u8, u32)> = Vec::new();
        for &(number, word) in &group.steps {
            if let Inst::Let(value, Op::Load { .. }) = run[number] {
                words.extend((0..self.width_of(*value)).map(|part| (*value, part, word + u32::from(part))));
            }
        }
        let mut wanted: Vec<u32> = words.iter().map(|&(.., word)| word).collect();
        wanted.sort_unstable();
        wanted.dedup();
        (words, wanted)
    }

    /// Gives values the words that they are made of, of which the registers are in order.
    fn set_words(&mut self, words: &[(Value, u8, u32)], wanted: &[u32], registers: &[R], c: usize) {
        for &(value, part, word) in words {
            if let Some(at) = wanted.iter().position(|&other| other == word) {
                self.set_rep(value, part, c, Rep::Vector(registers[at], R::NONE));
            }
        }
    }

    /// Stores all words of a group of a vector; false where that can't be done.
    pub(super) fn store_group(&mut self, group: &Group, run: &[&'k Inst], c: usize) -> bool {
        let Some(first) = self.place_of_group(group, run, c) else { return false };
        let (count, apart) = (self.lanes(), group.apart);
        let mut words: Vec<(u32, R)> = Vec::new();
        let mut memory = None;
        for &(number, word) in &group.steps {
            let Inst::Store { address, value, .. } = run[number] else { continue };
            memory = Some(address.memory);
            for part in 0..self.width_of(*value) {
                words.push((word + u32::from(part), self.vector_part(*value, part, c, 0)));
            }
        }
        let Some(memory) = memory else { return false };
        words.sort_unstable_by_key(|&(word, _)| word);
        if group.is_by_fours(self.facts.isa) {
            self.store_fours(memory, &words, first, apart);
            return true;
        }
        let registers: Vec<R> = words.iter().map(|&(_, r)| r).collect();
        let written: Vec<Held> = (0..apart)
            .map(|part| {
                std::array::from_fn(|word| {
                    let number = part * count + word as u32;
                    let has = words.iter().any(|&(word, _)| word == number % apart);
                    (word < count as usize && has && number / apart < count).then_some(number)
                })
            })
            .collect();
        let parts = match self.facts.isa {
            Isa::Avx2 if apart == 3 => self.joined_thirds(&registers),
            Isa::Avx2 => self.vectors_of(&registers),
            _ => {
                let held = |word: u32| std::array::from_fn(|lane| Some(apart * lane as u32 + word));
                let sources = words.iter().map(|&(word, r)| (r, held(word))).collect();
                self.arranged(sources, &written)
            }
        };
        for (part, (src, held)) in parts.into_iter().zip(&written).enumerate() {
            let at = At { disp: first.disp + part as i32 * self.len().bytes(), ..first };
            let bits = (0..count).filter(|&word| held[word as usize].is_some()).fold(0, |bits, word| bits | 1 << word);
            if bits == 0 {
                continue;
            }
            let (op, mask) = match bits == self.all_lanes() {
                true => (self.store_op(ops::VMOVUPS_STORE, at, None), R::NONE),
                false => (ops::VMOVUPS_STORE, self.mask_of_bits(bits)),
            };
            self.push(M::VStore { op, len: self.len(), src, at, mask });
            let kept = |number: u32| {
                let &(_, r) = words.iter().find(|(word, _)| *word == number % apart)?;
                Some((first.disp + 4 * number as i32, Kept { r, lane: number / apart }))
            };
            let kept: Vec<(i32, Kept)> = held.iter().flatten().filter_map(|&number| kept(number)).collect();
            self.keep_words(memory, first, &kept);
        }
        true
    }

    /// Words of structures, by fours of one lane each.
    fn words_by_fours(&mut self, group: &Group, first: At, wanted: &[u32]) -> Vec<R> {
        let (count, each) = (self.lanes(), self.lanes() / 4);
        let mut words: Vec<R> = Vec::new();
        for four in 0..group.span.div_ceil(4) {
            if !wanted.iter().any(|word| word / 4 == four) {
                words.extend([R::NONE; 4]);
                continue;
            }
            let at = |lane: u32| At { disp: first.disp + 4 * (group.apart * lane + 4 * four) as i32, ..first };
            let beyond = (4 * four + 4).saturating_sub(group.span);
            let parts = [0, 1, 2, 3].map(|part| {
                let lanes: Vec<u32> = (0..each).map(|within| self.lane_of_four(part, within)).collect();
                let low = self.vector();
                let load = LaneOp { len: Len::L128, ..self.lane_op(ops::VMOVUPS, low, R::NONE, Src::At(at(lanes[0]))) };
                self.push(M::Vec(load));
                lanes.iter().zip(0..).skip(1).fold(low, |before, (&lane, which)| {
                    if lane < count - 1 || beyond == 0 {
                        return self.with_vector_of_four(before, at(lane), which);
                    }
                    // Behind the last structure there may be nothing.
                    let last = self.first_of_four(at(lane), 4 - beyond);
                    let op = if self.facts.isa == Isa::Avx2 { ops::VINSERTI128 } else { ops::VINSERTF32X4 };
                    self.vec_imm(op, before, Src::R(last), which as u8)
                })
            });
            words.extend(if self.facts.isa == Isa::Avx2 { self.turned(parts) } else { self.words_of(parts.to_vec()) });
        }
        words
    }

    /// The lane whose four words are in a part of a register, of four registers that are sorted together.
    fn lane_of_four(&self, register: u32, part: u32) -> u32 {
        if self.facts.isa == Isa::Avx2 { register + 4 * part } else { 4 * register + part }
    }

    /// The mask of some of four words.
    fn mask_of_four(&mut self, bits: u32) -> R {
        if self.facts.isa == Isa::Avx512 {
            return self.mask_of_bits(bits);
        }
        let lanes: Vec<u32> = (0..8).map(|word| if bits >> word & 1 == 1 { u32::MAX } else { 0 }).collect();
        self.lanes_constant(&lanes)
    }

    /// The first of four words, and zeros behind them.
    fn first_of_four(&mut self, at: At, count: u32) -> R {
        let (mask, dst) = (self.mask_of_four((1 << count) - 1), self.vector());
        let load = match self.facts.isa {
            Isa::Avx2 => self.lane_op(ops::VMASKMOVPS, dst, mask, Src::At(at)),
            _ => LaneOp { mask, zeroing: true, ..self.lane_op(ops::VMOVUPS, dst, R::NONE, Src::At(at)) },
        };
        self.push(M::Vec(LaneOp { len: Len::L128, ..load }));
        dst
    }

    /// Stores words of structures, which are given in order, by fours of one lane each.
    fn store_fours(&mut self, memory: Memory, words: &[(u32, R)], first: At, apart: u32) {
        let each = self.lanes() / 4;
        for four in 0..apart.div_ceil(4) {
            let of: Vec<Option<R>> = (4 * four..4 * four + 4)
                .map(|word| words.iter().find(|(other, _)| *other == word).map(|&(_, r)| r))
                .collect();
            let bits = (0..4).filter(|&word| of[word].is_some()).fold(0, |bits, word| bits | 1 << word);
            let Some(any) = of.iter().copied().flatten().next() else { continue };
            let columns = [0, 1, 2, 3].map(|word: usize| of[word].unwrap_or(any));
            let rows = if self.facts.isa == Isa::Avx2 { self.turned(columns) } else { self.vectors_of(&columns) };
            for (src, register) in rows.into_iter().zip(0..) {
                for part in 0..each {
                    let lane = self.lane_of_four(register, part);
                    let at = At { disp: first.disp + 4 * (apart * lane + 4 * four) as i32, ..first };
                    self.store_four(src, part as u8, at, bits);
                }
            }
        }
        self.note_write(memory);
    }

    /// Stores some of the four words of a part of a register.
    fn store_four(&mut self, src: R, part: u8, at: At, bits: u32) {
        match (bits, part) {
            (0b1111, 0) => {
                self.push(M::VStore { op: ops::VMOVUPS_STORE, len: Len::L128, src, at, mask: R::NONE });
            }
            (0b1111, which) => self.push(M::StoreFour { src, at, which }),
            _ => {
                let mut four = src;
                if part > 0 {
                    four = self.vector();
                    let op = if self.facts.isa == Isa::Avx2 { ops::VEXTRACTI128 } else { ops::VEXTRACTF32X4 };
                    self.push(M::Reverse { op, len: self.len(), dst: four, src, imm: Some(part) });
                }
                let mask = self.mask_of_four(bits);
                let op = if self.facts.isa == Isa::Avx2 { ops::VMASKMOVPS_STORE } else { ops::VMOVUPS_STORE };
                self.push(M::VStore { op, len: Len::L128, src: four, at, mask });
            }
        }
    }

    /// Rows and columns of four words changed for each other, in each four words of four registers.
    pub(super) fn turned(&mut self, [a, b, c, d]: [R; 4]) -> Vec<R> {
        let mut turned = Vec::with_capacity(4);
        for op in [ops::VUNPCKLPS, ops::VUNPCKHPS] {
            let (left, right) = (self.vec(op, a, Src::R(b)), self.vec(op, c, Src::R(d)));
            turned.extend([0x44, 0xee].map(|order| self.vec_imm(ops::VSHUFPS, left, Src::R(right), order)));
        }
        turned
    }

    /// Rows and columns of as many registers as they have words, of which four and four were turned.
    pub(super) fn turned_fours(&mut self, fours: &[Vec<R>]) -> Vec<R> {
        let mut columns = vec![R::NONE; 4 * fours.len()];
        for within in 0..4 {
            match fours {
                [first, second] => {
                    let (a, b) = (first[within], second[within]);
                    for (half, order) in [(0, 0x20), (1, 0x31)] {
                        columns[4 * half + within] = self.vec_imm(ops::VPERM2F128, a, Src::R(b), order);
                    }
                }
                _ => {
                    for (from, order) in [(0, 0x88), (1, 0xdd)] {
                        let [left, right] = [0, 2].map(|part: usize| {
                            let (a, b) = (fours[part][within], fours[part + 1][within]);
                            self.vec_imm(ops::VSHUFF32X4, a, Src::R(b), order)
                        });
                        for (part, order) in [(from, 0x88), (from + 2, 0xdd)] {
                            columns[4 * part + within] = self.vec_imm(ops::VSHUFF32X4, left, Src::R(right), order);
                        }
                    }
                }
            }
        }
        columns
    }

    /// Registers with the words that are wanted in each, from registers that have them. Pairs of registers are merged while one can hold
    /// what is wanted of both; else half of the results is made after the other.
    fn arranged(&mut self, sources: Vec<(R, Held)>, wanted: &[Held]) -> Vec<R> {
        let mut sources = only_wanted(sources, wanted);
        loop {
            match (wanted, &sources[..]) {
                ([wanted], [one]) => return vec![self.in_order(one, None, wanted)],
                ([wanted], [one, other]) => return vec![self.in_order(one, Some(other), wanted)],
                // Nothing of it is wanted by anybody.
                (_, []) => return vec![self.constant(0); wanted.len()],
                _ => {}
            }
            let before = sources.len();
            let mut merged: Vec<(R, Held)> = Vec::with_capacity(before);
            for pair in sources.chunks(2) {
                match pair {
                    [one, other] if held(&one.1).count() + held(&other.1).count() <= LANES => {
                        let mut words = held(&one.1).chain(held(&other.1));
                        let both: Held = std::array::from_fn(|_| words.next());
                        merged.push((self.in_order(one, Some(other), &both), both));
                    }
                    pair => merged.extend_from_slice(pair),
                }
            }
            sources = merged;
            if sources.len() == before {
                break;
            }
        }
        let (left, right) = wanted.split_at(wanted.len() / 2);
        let mut arranged = self.arranged(sources.clone(), left);
        arranged.extend(self.arranged(sources, right));
        arranged
    }

    /// The words of one register or two in an order.
    fn in_order(&mut self, one: &(R, Held), other: Option<&(R, Held)>, wanted: &Held) -> R {
        let place = |word: u32| {
            let of = |held: &Held| held.iter().position(|&other| other == Some(word)).map(|place| place as u32);
            of(&one.1).or_else(|| of(&other?.1).map(|place| place + LANES as u32)).unwrap_or(0)
        };
        let places = wanted.map(|word| word.map_or(0, place));
        match other {
            Some(other) => self.taken(one.0, other.0, places),
            None if wanted.iter().enumerate().all(|(at, word)| word.is_none() || places[at] == at as u32) => one.0,
            None => {
                let places = self.lanes_constant(&places);
                self.vec(ops::VPERMD, places, Src::R(one.0))
            }
        }
    }

    /// The first words of structures of three, their second and third, from three registers of eight words. Each of them is at another place in
    /// its register, so that one has them all.
    fn thirds_of(&mut self, loaded: &[R]) -> Vec<R> {
        (0..3)
            .map(|word| {
                let all = self.blended(loaded, |part| third_bits(part, word));
                let places: Vec<u32> = (0..8).map(|lane| (3 * lane + word) % 8).collect();
                let places = self.lanes_constant(&places);
                self.vec(ops::VPERMD, places, Src::R(all))
            })
            .collect()
    }

    /// Structures of three words from registers with their first words, their second and third.
    fn joined_thirds(&mut self, words: &[R]) -> Vec<R> {
        let placed: Vec<R> = (0..3)
            .map(|word| {
                let lane_at = |place: u32| (0..8).find(|lane| (3 * lane + word) % 8 == place).unwrap_or(0);
                let lanes: Vec<u32> = (0..8).map(lane_at).collect();
                let lanes = self.lanes_constant(&lanes);
                self.vec(ops::VPERMD, lanes, Src::R(words[word as usize]))
            })
            .collect();
        (0..3).map(|part| self.blended(&placed, |word| third_bits(part, word))).collect()
    }

    /// Words of three registers of eight, each at its place.
    fn blended(&mut self, of: &[R], bits: impl Fn(u32) -> u8) -> R {
        let two = self.vec_imm(ops::VPBLENDD, of[0], Src::R(of[1]), bits(1));
        self.vec_imm(ops::VPBLENDD, two, Src::R(of[2]), bits(2))
    }
}

/// The places of a register of eight words that have a word of structures of three.
fn third_bits(part: u32, word: u32) -> u8 {
    (0..8).filter(|place| (8 * part + place) % 3 == word).fold(0, |bits, place| bits | 1 << place)
}

fn held(held: &Held) -> impl Iterator<Item = u32> {
    held.iter().copied().flatten()
}

/// The sources with only what is wanted of them, each word once.
fn only_wanted(sources: Vec<(R, Held)>, wanted: &[Held]) -> Vec<(R, Held)> {
    let mut seen: Vec<u32> = Vec::new();
    let mut kept = Vec::with_capacity(sources.len());
    for (r, words) in sources {
        let words = words.map(|word| {
            let word = word.filter(|word| wanted.iter().any(|held| held.contains(&Some(*word))))?;
            let new = !seen.contains(&word);
            seen.extend(Some(word).filter(|_| new));
            new.then_some(word)
        });
        if words.iter().any(Option::is_some) {
            kept.push((r, words));
        }
    }
    kept
}

/// The first words of the registers that have all words of structures, and none behind the last.
fn starts(count: u32, apart: u32, span: u32) -> Vec<u32> {
    let end = (count - 1) * apart + span;
    (0..end.div_ceil(count)).map(|part| (part * count).min(end - count)).collect()
}
