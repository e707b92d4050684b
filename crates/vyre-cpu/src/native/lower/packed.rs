//! Rounds of a tree in registers, with the invocations that take part side by side.
//!
//! Where all words that a branch loads are known to be in registers, it needs no memory: the words of as many active invocations as a
//! vector has lanes are put together for each access, whichever invocations these are. So each round has half the vectors of the one
//! before, though its invocations are further apart. What is stored lies in a register from there on; the stores themselves go where nobody
//! reads them any more (`cells.rs`).

use vyre_foundation::kernel::{Block, Inst, Op, Scalar, Value};

use super::super::isa::Isa;
use super::super::mir::{At, R};
use super::Lower;
use super::value::Rep;
use super::windows::{Places, Site};

/// Lanes of half a register of 256 bits.
const HALF: u32 = 4;

impl<'k> Lower<'k> {
    /// All that a branch loads can be had from registers.
    pub(super) fn lie_in_registers(&self, sites: &[Site<'k>], all: &[Places]) -> bool {
        all.chunks(self.lanes() as usize).all(|chunk| {
            let loads = (0..sites.len()).filter(|&site| !sites[site].stores);
            loads.into_iter().all(|site| self.are_cells(&self.bytes_of_site(&sites[site], site, chunk)))
        })
    }

    /// Where the words of an access are, for one invocation a lane.
    fn bytes_of_site(&self, site: &Site<'k>, number: usize, chunk: &[Places]) -> Vec<Option<i32>> {
        let byte = |places: &Places| Some(self.word_at(site.memory, places.words[number], R::NONE).disp);
        let mut bytes: Vec<Option<i32>> = chunk.iter().map(byte).collect();
        bytes.resize(self.lanes() as usize, None);
        bytes
    }

    /// Emits a branch for its invocations, which may be any.
    pub(super) fn branch_packed(&mut self, body: &'k Block, sites: &[Site<'k>], mut all: Vec<Places>, c: usize) {
        let lanes = self.lanes() as usize;
        for chunk in all.chunks_mut(lanes) {
            if self.facts.isa == Isa::Avx2 {
                self.by_halves(sites, chunk);
            }
            self.chunk(body, sites, chunk, c);
        }
    }

    /// Brings invocations into an order in which the words of their first load stay in the halves of registers that they are in: one instruction
    /// then takes words of two registers.
    fn by_halves(&self, sites: &[Site<'k>], chunk: &mut [Places]) {
        let Some(first) = sites.iter().position(|site| !site.stores) else { return };
        let lies = |places: &Places| self.kept_at(self.word_at(sites[first].memory, places.words[first], R::NONE));
        let mut sources: Vec<R> = Vec::new();
        for r in chunk.iter().filter_map(lies).map(|kept| kept.r) {
            if !sources.contains(&r) {
                sources.push(r);
            }
        }
        chunk.sort_by_cached_key(|places| {
            lies(places).map(|kept| (kept.lane / HALF, sources.iter().position(|&r| r == kept.r), kept.lane))
        });
    }

    /// Emits a body for as many invocations as there are lanes, or fewer.
    fn chunk(&mut self, body: &'k Block, sites: &[Site<'k>], chunk: &[Places], c: usize) {
        let wanted = self.wanted(body);
        let stand: Vec<u32> = (0..chunk.len() as u32).collect();
        let mut site = 0;
        for inst in &body.insts {
            match inst {
                Inst::Let(value, Op::Load { .. }) => {
                    if wanted.contains(value) {
                        let words = self.load_words_of_site(&sites[site], site, chunk);
                        // The register goes by another name already.
                        self.facts.uses[value.index()] += 1;
                        self.set_rep(*value, 0, c, Rep::Vector(words, R::NONE));
                    }
                    site += 1;
                }
                Inst::Let(value, op) if wanted.contains(value) => self.define_packed(*value, op, &stand, chunk, c),
                Inst::Store { value, .. } => {
                    let places = stand.iter().zip(chunk).map(|(&lane, places)| (lane, places.words[site])).collect();
                    let src = self.vector_of(*value, c);
                    self.store_at_places(sites[site].memory, places, src);
                    site += 1;
                }
                _ => {}
            }
        }
    }

    fn define_packed(&mut self, value: Value, op: &'k Op, stand: &[u32], chunk: &[Places], c: usize) {
        let words = chunk.iter().map(|places| places.known.get(&value).copied());
        match words.collect::<Option<Vec<u32>>>() {
            Some(words) if !self.is_scalar(value) => {
                let rep = self.known_rep(value, stand, &words);
                self.set_rep(value, 0, c, rep);
            }
            _ => self.define(value, op, c),
        }
    }

    fn load_words_of_site(&mut self, site: &Site<'k>, number: usize, chunk: &[Places]) -> R {
        let bytes = self.bytes_of_site(site, number, chunk);
        if let Some(words) = self.words_of_cells(&bytes) {
            return words;
        }
        // What the body stored before lies in more registers than are put together.
        self.note_read_words(site.memory, bytes.iter().copied().flatten());
        let first = self.word_at(site.memory, 0, R::NONE);
        let indices: Vec<u32> = bytes.iter().map(|byte| byte.map_or(0, |byte| (byte - first.disp) as u32)).collect();
        let index = self.lanes_constant(&indices);
        match self.gather(Scalar::U32, At { scale: 1, ..first }, index, None) {
            Rep::Vector(words, _) => words,
            _ => R::NONE,
        }
    }
}
