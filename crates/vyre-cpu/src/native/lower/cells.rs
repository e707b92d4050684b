//! Workgroup memory in registers: what was stored at a known place is known to be there until something else is stored.
//!
//! A load of it takes the register. Where every load of a memory did, its stores and its clearing are left out, and so is a store to a
//! known place that is overwritten, or whose workgroup is over, before anybody reads it there.

use std::ops::Range;

use vyre_foundation::kernel::{Kernel, Memory, Scalar};

use super::super::asm::Label;
use super::super::hash::{Map, Set};
use super::super::isa::Isa;
use super::super::mir::{At, M, R};
use super::Lower;
use super::arrange::Order;
use super::memory::Place;

/// Most registers that a vector is put together of; more take as long as a gather.
const MOST_SOURCES: usize = 4;

/// Where a word of workgroup memory is known to be, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) r: R,
    pub(super) lane: u32,
}

/// What is known to lie in workgroup memory, by words' first bytes, and what was put together of it already.
#[derive(Clone, Default)]
pub(super) struct Cells {
    words: Map<i32, Kept>,
    arranged: Map<(R, R, Vec<Option<u32>>), R>,
}

impl Cells {
    pub(super) fn clear(&mut self) {
        self.words.clear();
        self.arranged.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }
}

/// An instruction that only writes a workgroup memory, by its place in the code.
#[derive(Clone, Copy, Debug)]
struct SharedWrite {
    at: usize,
    memory: u32,
}

/// What happens to workgroup memory before the instruction at a place in the code. Words are told by their first bytes, from where all
/// memories begin.
#[derive(Clone, Debug)]
enum Touch {
    /// These words may be read.
    Read(Vec<i32>),
    ReadAll(Range<i32>),
    /// The instruction before wrote all of these and nothing else.
    Wrote(Vec<i32>),
    /// Nothing that lies there is read any more.
    Over,
}

/// Words that are written before they are read, one bit each.
#[derive(Clone, Debug)]
struct Unread(Vec<u64>);

impl Unread {
    fn none(bytes: u32) -> Unread {
        Unread(vec![0; bytes.div_ceil(4 * u64::BITS) as usize])
    }

    fn fill(&mut self, unread: bool) {
        self.0.fill(if unread { u64::MAX } else { 0 });
    }

    /// The bits of a word, and which; none for what lies outside of all memories.
    fn bits(&mut self, word: i32) -> Option<(&mut u64, u64)> {
        let word = usize::try_from(word).ok()? / 4;
        self.0.get_mut(word / 64).map(|bits| (bits, 1 << (word % 64)))
    }

    fn contains(&mut self, word: i32) -> bool {
        self.bits(word).is_some_and(|(bits, one)| *bits & one != 0)
    }

    fn set(&mut self, words: impl IntoIterator<Item = i32>, unread: bool) {
        for word in words {
            if let Some((bits, one)) = self.bits(word) {
                *bits = if unread { *bits | one } else { *bits & !one };
            }
        }
    }

    /// Those that are in another, too.
    fn meet(&mut self, other: &Unread) {
        self.0.iter_mut().zip(&other.0).for_each(|(own, other)| *own &= other);
    }
}

/// What is known of workgroup memory, and what was done to it.
pub(super) struct Workgroup {
    /// What is known to lie there at this place of the code.
    pub(super) cells: Cells,
    writes: Vec<SharedWrite>,
    /// What happens to it, in the order of the code.
    touches: Vec<(usize, Touch)>,
    /// Workgroup memories that are read where they lie.
    read_in_place: Vec<bool>,
}

impl Workgroup {
    pub(super) fn new(kernel: &Kernel) -> Workgroup {
        let read_in_place = vec![false; kernel.shared.len()];
        Workgroup { cells: Cells::default(), writes: Vec::new(), touches: Vec::new(), read_in_place }
    }
}

impl<'k> Lower<'k> {
    /// The place is in workgroup memory and known.
    fn is_known(&self, at: At) -> bool {
        at.index.is_none() && at.base == self.bases.shared && !self.bases.shared.is_none()
    }

    /// A value was stored, in the first `lanes` lanes and nowhere else.
    pub(super) fn keep_cell(&mut self, memory: Memory, at: At, lanes: u32, r: R) {
        let words: Vec<(i32, Kept)> = (0..lanes).map(|lane| (at.disp + 4 * lane as i32, Kept { r, lane })).collect();
        self.keep_words(memory, at, &words);
    }

    /// The last instruction stored these words and nothing else, so many bytes from where `at` begins.
    pub(super) fn keep_words(&mut self, memory: Memory, at: At, words: &[(i32, Kept)]) {
        if !self.is_known(at) {
            return self.note_write(memory);
        }
        let Memory::Shared(index) = memory else { return };
        self.workgroup.writes.push(SharedWrite { at: self.emission.code.len() - 1, memory: index });
        let wrote = words.iter().map(|&(word, _)| word).collect();
        self.workgroup.touches.push((self.emission.code.len(), Touch::Wrote(wrote)));
        for &(word, kept) in words {
            match kept.r.is_none() || self.made.changing.contains(&kept.r) {
                true => _ = self.workgroup.cells.words.remove(&word),
                false => _ = self.workgroup.cells.words.insert(word, kept),
            }
        }
    }

    /// Something was stored in a memory, who knows where.
    pub(super) fn forget_cells(&mut self, memory: Memory) {
        let Memory::Shared(index) = memory else { return };
        let bytes = self.bytes_of(index);
        self.workgroup.cells.words.retain(|word, _| !bytes.contains(word));
    }

    /// The last instruction writes a memory, who knows where, and does nothing else.
    pub(super) fn note_write(&mut self, memory: Memory) {
        if let Memory::Shared(index) = memory {
            self.workgroup.writes.push(SharedWrite { at: self.emission.code.len() - 1, memory: index });
            self.forget_cells(memory);
        }
    }

    /// The instructions from `from` on only clear a workgroup memory.
    pub(super) fn note_clear(&mut self, memory: u32, from: usize) {
        self.workgroup.writes.extend((from..self.emission.code.len()).map(|at| SharedWrite { at, memory }));
    }

    /// A memory is read where it lies, who knows where.
    pub(super) fn note_read(&mut self, memory: Memory) {
        if let Memory::Shared(index) = memory {
            self.note_read_of(index, Touch::ReadAll(self.bytes_of(index)));
        }
    }

    /// Where a workgroup memory lies.
    fn bytes_of(&self, memory: u32) -> Range<i32> {
        let first = self.frame.shared[memory as usize] as i32;
        first..first + self.facts.kernel.shared[memory as usize].size as i32
    }

    /// Words of a memory are read where they lie.
    pub(super) fn note_read_at(&mut self, memory: Memory, place: &Place) {
        let Memory::Shared(index) = memory else { return };
        let words = |at: At, step: i32, lanes: u32| (0..lanes as i32).map(|lane| at.disp + step * lane).collect();
        let touch = match *place {
            Place::Same(at) if self.is_known(at) => Touch::Read(words(at, 4, 1)),
            Place::Affine(at, step) if step % 4 == 0 && self.is_known(at) => Touch::Read(words(at, step, self.lanes())),
            _ => Touch::ReadAll(self.bytes_of(index)),
        };
        self.note_read_of(index, touch);
    }

    /// Words at known places are read where they lie.
    pub(super) fn note_read_words(&mut self, memory: u32, words: impl Iterator<Item = i32>) {
        self.note_read_of(memory, Touch::Read(words.collect()));
    }

    fn note_read_of(&mut self, memory: u32, touch: Touch) {
        self.workgroup.read_in_place[memory as usize] = true;
        self.workgroup.touches.push((self.emission.code.len(), touch));
    }

    /// A workgroup is over: nobody reads its memory after this.
    pub(super) fn note_over(&mut self) {
        self.workgroup.touches.push((self.emission.code.len(), Touch::Over));
    }

    /// The instructions that write what nobody reads before it is written again.
    fn overwritten(&mut self) -> Set<usize> {
        let touches = std::mem::take(&mut self.workgroup.touches);
        let mut dead = Set::default();
        if !touches.iter().any(|(_, touch)| matches!(touch, Touch::Wrote(_))) {
            return dead;
        }
        let (mut touches, mut unread) = (touches.into_iter().rev().peekable(), Unread::none(self.frame.shared_bytes));
        let mut at_labels: Map<Label, Unread> = Map::default();
        for at in (0..=self.emission.code.len()).rev() {
            // Where the code goes on is known only where that was seen, which is after this.
            match self.emission.code.get(at) {
                Some(M::Label(label)) => _ = at_labels.insert(*label, unread.clone()),
                Some(M::Jump(label)) => match at_labels.get(label) {
                    Some(there) => unread.clone_from(there),
                    None => unread.fill(false),
                },
                // A launch that ends early reads nothing more.
                Some(M::JumpIf(_, label)) if *label == self.stop_label => {}
                Some(M::JumpIf(_, label)) => match at_labels.get(label) {
                    Some(there) => unread.meet(there),
                    None => unread.fill(false),
                },
                _ => {}
            }
            while let Some((_, touch)) = touches.next_if(|&(place, _)| place >= at) {
                match touch {
                    Touch::Over => unread.fill(true),
                    Touch::ReadAll(bytes) => unread.set(bytes.step_by(4), false),
                    Touch::Read(words) => unread.set(words, false),
                    Touch::Wrote(words) if words.iter().all(|&word| unread.contains(word)) => _ = dead.insert(at - 1),
                    Touch::Wrote(words) => unread.set(words, true),
                }
            }
        }
        dead
    }

    /// Where the word at a place is, too.
    pub(super) fn kept_at(&self, at: At) -> Option<Kept> {
        self.workgroup.cells.words.get(&at.disp).copied().filter(|_| self.is_known(at))
    }

    /// What lies at a place is the first lane of a register.
    pub(super) fn begins_cell(&self, at: At) -> bool {
        self.kept_at(at).is_some_and(|kept| kept.lane == 0)
    }

    /// A register with what lies so many bytes apart from a place on, in the lanes of some bits, where all of it is known.
    pub(super) fn find_cell(&mut self, memory: Memory, at: At, step: i32, lanes: u32) -> Option<R> {
        let Memory::Shared(index) = memory else { return None };
        if !self.is_known(at) || self.workgroup.cells.is_empty() {
            return None;
        }
        // Lanes for which there is nothing in the memory are not here.
        let inside = self.bytes_of(index);
        let of = |lane: u32| {
            Some(at.disp + step * lane as i32).filter(|word| lanes >> lane & 1 != 0 && inside.contains(word))
        };
        let words: Vec<Option<i32>> = (0..self.lanes()).map(of).collect();
        self.words_of_cells(&words)
    }

    /// The registers that words lie in, where all of them do and these are few.
    fn sources(&self, words: &[Option<i32>]) -> Option<Vec<R>> {
        let mut sources = Vec::new();
        for word in words.iter().flatten() {
            let r = self.workgroup.cells.words.get(word)?.r;
            if !sources.contains(&r) {
                sources.push(r);
            }
        }
        (1..=MOST_SOURCES).contains(&sources.len()).then_some(sources)
    }

    /// All of these words can be had from registers.
    pub(super) fn are_cells(&self, words: &[Option<i32>]) -> bool {
        self.sources(words).is_some()
    }

    /// Words by their places, each in its lane, where all of them are in registers.
    pub(super) fn words_of_cells(&mut self, words: &[Option<i32>]) -> Option<R> {
        let sources = self.sources(words)?;
        let kept: Vec<Option<Kept>> =
            words.iter().map(|word| word.and_then(|word| self.workgroup.cells.words.get(&word).copied())).collect();
        let order = |place: &dyn Fn(Kept, u32) -> Option<u32>| -> Order {
            kept.iter().zip(0..).map(|(kept, lane)| kept.and_then(|kept| place(kept, lane))).collect()
        };
        let lanes = self.lanes();
        if let &[r] = &sources[..] {
            return self.put_together(r, R::NONE, order(&|kept, _| Some(kept.lane)));
        }
        let mut all = sources[0];
        for (number, &next) in sources.iter().enumerate().skip(1) {
            let order = order(&|kept, lane| match sources.iter().position(|&r| r == kept.r)? {
                own if own == number => Some(lanes + kept.lane),
                0 if number == 1 => Some(kept.lane),
                earlier if earlier < number => Some(lane),
                _ => None,
            });
            all = self.put_together(all, next, order)?;
        }
        Some(all)
    }

    fn put_together(&mut self, a: R, b: R, order: Order) -> Option<R> {
        let key = (a, b, order);
        if let Some(&r) = self.workgroup.cells.arranged.get(&key) {
            return Some(r);
        }
        let r = if b.is_none() { self.ordered(a, &key.2) } else { self.mixed(a, b, &key.2) }?;
        self.workgroup.cells.arranged.insert(key, r);
        Some(r)
    }

    /// What lies so many bytes apart from a place on but for the first lanes, which are zero, where it is in registers.
    pub(super) fn shifted_cell(&mut self, memory: Memory, at: At, step: i32, below: u32) -> Option<R> {
        if self.facts.isa == Isa::Simd128 {
            return None;
        }
        let zero = self.constant(0);
        let whole = self.all_lanes();
        let first = At { disp: at.disp + step * below as i32, ..at };
        if let Some(r) = self.find_cell_in_place(memory, first, step, self.lanes() - below) {
            return Some(self.last_and_first(zero, r, below as u8));
        }
        let r = self.find_cell(memory, at, step, whole & whole << below)?;
        Some(self.with_lanes(r, zero, (1 << below) - 1))
    }

    /// The register that so many words are the first lanes of.
    fn find_cell_in_place(&self, memory: Memory, at: At, step: i32, lanes: u32) -> Option<R> {
        if !matches!(memory, Memory::Shared(_)) || !self.is_known(at) {
            return None;
        }
        let of = |lane: u32| self.workgroup.cells.words.get(&(at.disp + step * lane as i32));
        let r = of(0)?.r;
        (0..lanes).all(|lane| of(lane) == Some(&Kept { r, lane })).then_some(r)
    }

    /// Takes out what only writes memories that nobody reads, and begins anew.
    pub(super) fn drop_writes(&mut self) {
        let writes = std::mem::take(&mut self.workgroup.writes);
        let read = std::mem::replace(&mut self.workgroup.read_in_place, vec![false; self.facts.kernel.shared.len()]);
        let overwritten = self.overwritten();
        let is_dead = |write: &&SharedWrite| !read[write.memory as usize] || overwritten.contains(&write.at);
        let dead: Vec<usize> = writes.iter().filter(is_dead).map(|write| write.at).collect();
        if dead.is_empty() {
            return;
        }
        let mut at = 0;
        let mut next = dead.iter().peekable();
        self.emission.code.retain(|_| {
            let drop = next.next_if(|&&dead| dead == at).is_some();
            at += 1;
            !drop
        });
    }

    /// Elements that are kept in registers.
    pub(super) fn is_cell(scalar: Scalar) -> bool {
        matches!(scalar, Scalar::U32 | Scalar::I32 | Scalar::F32)
    }
}
