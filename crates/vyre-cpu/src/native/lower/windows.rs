//! Rounds of a tree, for words instead of invocations.
//!
//! In the first rounds of a scan or of a reduction with growing steps each invocation changes words that lie close together, and
//! neighbouring invocations are far apart: lanes would gather and scatter. Where all places are known, so many words of memory in a row,
//! a window, are loaded, brought before each other, and stored again; words that nobody changes keep what they are.

use vyre_foundation::kernel::{Address, Binary, Block, Element, End, Inst, Memory, Op, Scalar, Unary, Value};

use super::super::asm::{Alu, Cond};
use super::super::hash::{Map, Set};
use super::super::isa::Isa;
use super::super::mir::{At, GSrc, M, R, Src};
use super::super::ops;
use super::Lower;
use super::facts::visit_operands;
use super::flow::falls_through;
use super::memory::Place;
use super::value::Rep;

/// Most words of a memory that stay in registers from round to round.
const MOST_KEPT: u32 = 256;

/// Windows of a round of a loop over those that are alike: code that is run through once is fetched slower than it is executed.
const TOGETHER: usize = 4;

/// What an invocation knows of its values before anything is loaded.
pub(super) type Known = Map<Value, u32>;

/// Where an invocation finds the word of each access of a body, in the order of its steps.
pub(super) struct Places {
    pub(super) words: Vec<u32>,
    pub(super) known: Known,
}

/// An access of a body.
pub(super) struct Site<'k> {
    pub(super) memory: u32,
    address: &'k Address,
    guard: Option<Value>,
    pub(super) stores: bool,
}

/// Words of memories in a row, and the invocations that change them.
struct Window {
    /// The first word of each memory that is in it.
    firsts: Map<u32, u32>,
    places: Vec<Places>,
}

impl<'k> Lower<'k> {
    /// Emits a branch for the words that it changes; false where it has to be emitted for its invocations.
    pub(super) fn branch_by_words(
        &mut self,
        cond: Value,
        then: &'k Block,
        otherwise: &Block,
        results: &[Value],
        comps: &[usize],
    ) -> bool {
        let all_here = self.regions.is_none()
            && !self.facts.tiling.layout.is_along_rows()
            && self.facts.isa != Isa::Simd128
            && comps.len() == self.active.components.len()
            && comps.iter().all(|&c| self.active.exec[c].is_none() && self.known_mask(cond, c).is_some());
        if !all_here || !results.is_empty() || !falls_through(otherwise) {
            return false;
        }
        let Some(sites) = self.sites(then) else { return false };
        let Some(all) = self.invocations(cond, then, &sites, comps) else { return false };
        if self.lie_in_registers(&sites, &all) {
            self.branch_packed(then, &sites, all, comps[0]);
            return true;
        }
        let Some(windows) = self.windows(&sites, all) else { return false };
        let wanted = self.wanted(then);
        let mark = self.enter_scope();
        let mut rest = &windows[..];
        while let Some(first) = rest.first() {
            let step = rest.get(TOGETHER).map_or(0, |next| step(first, next));
            let alike = |&round: &usize| {
                let pairs = rest[..TOGETHER].iter().zip(&rest[round * TOGETHER..]);
                pairs.into_iter().all(|(a, b)| a.is_alike(b, round as u32 * step, &sites, &wanted))
            };
            let rounds = if step == 0 { 1 } else { (1..rest.len() / TOGETHER).take_while(alike).count() + 1 };
            if rounds > 1 && !self.is_kept(first) {
                self.windows_in_a_loop(then, &sites, &rest[..TOGETHER], rounds as u32, 4 * step, comps[0]);
                rest = &rest[rounds * TOGETHER..];
            } else {
                self.window(then, &sites, first, R::NONE, comps[0]);
                rest = &rest[1..];
            }
        }
        self.leave_scope(mark);
        true
    }

    /// Its words are in registers.
    fn is_kept(&self, window: &Window) -> bool {
        window.firsts.keys().all(|&memory| self.facts.kernel.shared[memory as usize].size <= 4 * MOST_KEPT)
    }

    /// Emits a loop over windows that are alike so many bytes further on.
    fn windows_in_a_loop(
        &mut self,
        body: &'k Block,
        sites: &[Site<'k>],
        windows: &[Window],
        rounds: u32,
        step: u32,
        c: usize,
    ) {
        // What the words are brought into order by is made once.
        for window in windows {
            for site in 0..sites.len() {
                let (stand, places) = (window.places_of(sites.len() - 1, sites), window.places_of(site, sites));
                if !sites[site].stores {
                    self.order(&stand, &places);
                    continue;
                }
                self.order(&places, &stand);
                if self.facts.isa != Isa::Avx2 {
                    self.mask_of_bits(bits_of(&places));
                }
            }
        }
        let at = self.general();
        self.made.changing.insert(at);
        self.push(M::Imm { dst: at, value: 0 });
        let again = self.label();
        self.bind(again);
        let mark = self.enter_scope();
        for window in windows {
            self.window(body, sites, window, at, c);
        }
        self.leave_scope(mark);
        self.push(M::Alu { op: Alu::Add, wide: true, dst: at, a: at, b: GSrc::Imm(step as i32) });
        self.push(M::Cmp { wide: true, a: at, b: GSrc::Imm((step * rounds) as i32) });
        self.push(M::JumpIf(Cond::NotEqual, again));
    }

    /// The accesses of a body that does nothing but change words of workgroup memory.
    fn sites(&self, body: &'k Block) -> Option<Vec<Site<'k>>> {
        if !matches!(&body.end, End::Yield(values) if values.is_empty()) {
            return None;
        }
        let mut sites = Vec::new();
        for inst in &body.insts {
            let (address, element, guard, value, stores) = match inst {
                Inst::Let(value, Op::Load { address, element, guard }) => (address, *element, *guard, *value, false),
                Inst::Store { address, element, guard, value } => (address, *element, *guard, *value, true),
                Inst::Let(..) => continue,
                _ => return None,
            };
            let Memory::Shared(memory) = address.memory else { return None };
            let words = matches!(element, Element::U32 | Element::I32 | Element::F32) && self.width_of(value) == 1;
            if !words || !stores && self.is_scalar(value) {
                return None;
            }
            sites.push(Site { memory, address, guard, stores });
        }
        sites.last().is_some_and(|site| site.stores).then_some(sites)
    }

    /// The invocations of a branch, where none touches what another one changes and what they store can be made apart from their lanes.
    /// None, too, where they are neighbours with neighbouring words, as lanes are.
    fn invocations(&self, cond: Value, body: &'k Block, sites: &[Site<'k>], comps: &[usize]) -> Option<Vec<Places>> {
        let mut all = Vec::new();
        let (mut in_a_row, mut partly) = (true, false);
        for &c in comps {
            let active = self.known_mask(cond, c)?;
            in_a_row &= (active + 1).is_power_of_two() && !(partly && active != 0);
            partly |= active != 0 && active != self.all_lanes();
            let mut before: Option<Vec<u32>> = None;
            for lane in (0..self.lanes()).filter(|lane| active >> lane & 1 != 0) {
                let known = self.values_of(body, lane, c);
                let words = self.words_of_sites(sites, &known, lane, c)?;
                let next = |(a, b): (&u32, &u32)| *a + 1 == *b;
                in_a_row &= before.is_none_or(|before| before.iter().zip(&words).all(next));
                before = Some(words.clone());
                all.push(Places { words, known });
            }
        }
        if in_a_row || !apart(sites, &all) {
            return None;
        }
        let wanted = self.wanted(body);
        let fits = body.insts.iter().all(|inst| match inst {
            Inst::Let(value, op) if wanted.contains(value) => self.can_be_had(*value, op, &wanted, &all),
            Inst::Store { value, .. } => self.is_had(*value, &wanted),
            _ => true,
        });
        fits.then_some(all)
    }

    /// The windows that invocations are in.
    fn windows(&self, sites: &[Site<'k>], all: Vec<Places>) -> Option<Vec<Window>> {
        // Windows that begin at multiples of their length are loaded faster, but words with gaps between them may lie across those.
        let [aligned, packed] = [true, false].map(|aligned| self.packed(sites, &all, aligned));
        let starts = if aligned.len() <= packed.len() { aligned } else { packed };
        let mut windows: Vec<Window> = Vec::new();
        let mut starts = starts.into_iter().peekable();
        for (number, places) in all.into_iter().enumerate() {
            if let Some((_, firsts)) = starts.next_if(|(start, _)| *start == number) {
                windows.push(Window { firsts, places: Vec::new() });
            }
            let window = windows.last_mut()?;
            if !self.is_inside(sites, &places, &window.firsts) {
                return None;
            }
            window.places.push(places);
        }
        Some(windows)
    }

    /// The invocations that windows begin with, and where these begin in each memory.
    fn packed(&self, sites: &[Site<'k>], all: &[Places], aligned: bool) -> Vec<(usize, Map<u32, u32>)> {
        let mut starts: Vec<(usize, Map<u32, u32>)> = Vec::new();
        for (number, places) in all.iter().enumerate() {
            if !starts.last().is_some_and(|(_, firsts)| self.is_inside(sites, places, firsts)) {
                starts.push((number, self.first_words(sites, places, aligned)));
            }
        }
        starts
    }

    /// What is known of the values that a body makes, for one invocation.
    fn values_of(&self, body: &Block, lane: u32, c: usize) -> Known {
        let mut known = Known::default();
        for inst in &body.insts {
            if let Inst::Let(value, op) = inst
                && let Some(bits) = self.folded_word(*value, op, &|of| self.word_in(&known, of, lane, c).map(u64::from))
            {
                known.insert(*value, bits as u32);
            }
        }
        known
    }

    fn word_in(&self, known: &Known, value: Value, lane: u32, c: usize) -> Option<u32> {
        if let Some(&bits) = known.get(&value) {
            return Some(bits);
        }
        match self.scalar_of(value) {
            Scalar::Bool => self.known_mask(value, c).map(|bits| bits >> lane & 1),
            Scalar::U32 | Scalar::I32 => self.known_lane(value, lane, c),
            _ => None,
        }
    }

    /// The word of its memory that each access of an invocation is for; nothing where that is not known, or it is outside.
    fn words_of_sites(&self, sites: &[Site<'k>], known: &Known, lane: u32, c: usize) -> Option<Vec<u32>> {
        let mut words = Vec::with_capacity(sites.len());
        for site in sites {
            if let Some(guard) = site.guard
                && self.word_in(known, guard, lane, c)? == 0
            {
                return None;
            }
            let mut bytes = u64::from(site.address.offset);
            for &(index, stride) in &site.address.terms {
                bytes += u64::from(self.word_in(known, index, lane, c)?) * u64::from(stride);
            }
            let inside = bytes + 4 <= u64::from(self.facts.kernel.shared[site.memory as usize].size);
            if !inside || bytes % 4 != 0 {
                return None;
            }
            words.push((bytes / 4) as u32);
        }
        Some(words)
    }

    /// Where the window of an invocation begins in each memory: with its first word, or at a multiple of its length where that has all of
    /// its words.
    fn first_words(&self, sites: &[Site<'k>], places: &Places, aligned: bool) -> Map<u32, u32> {
        let mut firsts: Map<u32, u32> = Map::default();
        for (site, &word) in sites.iter().zip(&places.words) {
            firsts.entry(site.memory).and_modify(|first| *first = word.min(*first)).or_insert(word);
        }
        let lanes = self.lanes();
        for (memory, first) in &mut firsts {
            let here = |(site, _): &(&Site, &u32)| site.memory == *memory;
            let last = sites.iter().zip(&places.words).filter(here).map(|(_, &word)| word).max().unwrap_or(*first);
            let multiple = *first / lanes * lanes;
            // What lies behind a memory up to a multiple of a register's length is nobody else's.
            let room = (self.facts.kernel.shared[*memory as usize].size.next_multiple_of(64) / 4).saturating_sub(lanes);
            *first = if aligned && last < multiple + lanes { multiple } else { *first }.min(room);
        }
        firsts
    }

    fn is_inside(&self, sites: &[Site<'k>], places: &Places, firsts: &Map<u32, u32>) -> bool {
        sites.iter().zip(&places.words).all(|(site, &word)| {
            firsts.get(&site.memory).is_some_and(|&first| (first..first + self.lanes()).contains(&word))
        })
    }

    /// The values of a body that are stored, or that such are made of.
    pub(super) fn wanted(&self, body: &Block) -> Set<Value> {
        let mut wanted: Set<Value> = Set::default();
        for inst in body.insts.iter().rev() {
            match inst {
                Inst::Store { value, .. } => _ = wanted.insert(*value),
                Inst::Let(value, op) if wanted.contains(value) && !matches!(op, Op::Load { .. }) => {
                    visit_operands(op, &mut |operand| _ = wanted.insert(operand));
                }
                _ => {}
            }
        }
        // Those that were made before.
        let own = |value: &Value| body.insts.iter().any(|inst| matches!(inst, Inst::Let(own, _) if own == value));
        wanted.retain(own);
        wanted
    }

    /// A value can be made in a window: of what is there, what is the same for all, or what is known of each invocation.
    fn can_be_had(&self, value: Value, op: &Op, wanted: &Set<Value>, all: &[Places]) -> bool {
        let word = matches!(self.scalar_of(value), Scalar::Bool | Scalar::U32 | Scalar::I32 | Scalar::F32);
        let is_known = || !self.is_scalar(value) && all.iter().all(|places| places.known.contains_key(&value));
        let simple = match op {
            Op::Load { .. } => return true,
            Op::Const(_) | Op::Fma(..) | Op::Select(..) | Op::BitCast(_) => true,
            Op::Unary(op, _) => matches!(op, Unary::Neg | Unary::Not | Unary::Abs),
            Op::Binary(op, ..) => {
                !matches!(op, Binary::Div | Binary::Rem | Binary::Pow | Binary::Atan2 | Binary::MulHigh)
            }
            _ => false,
        };
        let mut had = true;
        visit_operands(op, &mut |operand| had &= self.is_had(operand, wanted));
        let lanes = self.shape_of(value).is_uniform() || !self.is_scalar(value);
        word && self.width_of(value) == 1 && lanes && (is_known() || simple && had)
    }

    fn is_had(&self, value: Value, wanted: &Set<Value>) -> bool {
        self.shape_of(value).is_uniform() || wanted.contains(&value)
    }

    /// Emits a body for the words of a window, so many bytes further on. Invocations stand where they store last.
    fn window(&mut self, body: &'k Block, sites: &[Site<'k>], window: &Window, further: R, c: usize) {
        let Some(last) = sites.len().checked_sub(1) else { return };
        let stand = window.places_of(last, sites);
        let mut loaded: Map<u32, R> = Map::default();
        for (&memory, &first) in &window.firsts {
            let r = self.load_window(memory, first, further);
            loaded.insert(memory, r);
        }
        let wanted = self.wanted(body);
        let mut site = 0;
        for inst in &body.insts {
            match inst {
                Inst::Let(value, Op::Load { .. }) => {
                    if wanted.contains(value) {
                        let words = self.brought(loaded[&sites[site].memory], &stand, &window.places_of(site, sites));
                        // The register goes by another name already.
                        self.facts.uses[value.index()] += 1;
                        self.set_rep(*value, 0, c, Rep::Vector(words, R::NONE));
                    }
                    site += 1;
                }
                Inst::Let(value, op) if wanted.contains(value) => {
                    let words = window.places.iter().map(|places| places.known.get(value).copied());
                    match words.collect::<Option<Vec<u32>>>() {
                        Some(words) if !self.is_scalar(*value) => {
                            let rep = self.known_rep(*value, &stand, &words);
                            self.set_rep(*value, 0, c, rep);
                        }
                        _ => self.define(*value, op, c),
                    }
                }
                Inst::Store { value, .. } => {
                    let to = window.places_of(site, sites);
                    let src = self.vector_of(*value, c);
                    let words = self.brought(src, &to, &stand);
                    let memory = sites[site].memory;
                    let changed = self.with_lanes(loaded[&memory], words, bits_of(&to));
                    loaded.insert(memory, changed);
                    site += 1;
                }
                _ => {}
            }
        }
        for (&memory, &first) in &window.firsts {
            if sites.iter().any(|site| site.memory == memory && site.stores) {
                let (at, src) = (self.word_at(memory, first, further), loaded[&memory]);
                self.push(M::VStore { op: ops::VMOVUPS_STORE, len: self.len(), src, at, mask: R::NONE });
                self.keep_cell(Memory::Shared(memory), at, self.lanes(), src);
            }
        }
    }

    pub(super) fn word_at(&self, memory: u32, word: u32, further: R) -> At {
        let at = At::new(self.bases.shared, (self.frame.shared[memory as usize] + 4 * word) as i32);
        if further.is_none() { at } else { At { index: further, scale: 1, ..at } }
    }

    fn load_window(&mut self, memory: u32, first: u32, further: R) -> R {
        let at = self.word_at(memory, first, further);
        if self.facts.kernel.shared[memory as usize].size <= 4 * MOST_KEPT
            && let Some(r) = self.find_cell(Memory::Shared(memory), at, 4, self.all_lanes())
        {
            return r;
        }
        self.note_read_at(Memory::Shared(memory), &Place::Affine(at, 4));
        self.load_contiguous(Scalar::U32, at, None)
    }

    /// The order that brings words of a register from some places to others; nothing where they are there.
    fn order(&mut self, to: &[u32], from: &[u32]) -> Option<R> {
        if to == from {
            return None;
        }
        let mut order: Vec<u32> = (0..self.lanes()).collect();
        for (&to, &from) in to.iter().zip(from) {
            order[to as usize] = from;
        }
        Some(self.lanes_constant(&order))
    }

    pub(super) fn brought(&mut self, src: R, to: &[u32], from: &[u32]) -> R {
        match self.order(to, from) {
            Some(order) => self.vec(ops::VPERMD, order, Src::R(src)),
            None => src,
        }
    }

    /// A register with some lanes of another one.
    pub(super) fn with_lanes(&mut self, before: R, words: R, bits: u32) -> R {
        if self.facts.isa == Isa::Avx2 {
            return self.vec_imm(ops::VPBLENDD, before, Src::R(words), bits as u8);
        }
        let mask = self.mask_of_bits(bits);
        self.blend(Scalar::U32, mask, Src::R(words), false, before)
    }

    /// What is known of each invocation, at its place.
    pub(super) fn known_rep(&mut self, value: Value, stand: &[u32], words: &[u32]) -> Rep {
        let at_places = stand.iter().zip(words);
        if self.scalar_of(value) == Scalar::Bool {
            return Rep::Lanes(at_places.fold(0, |bits, (place, word)| bits | u32::from(*word != 0) << place));
        }
        let mut lanes = vec![0; self.lanes() as usize];
        for (&place, &word) in at_places {
            lanes[place as usize] = word;
        }
        Rep::Vector(self.lanes_constant(&lanes), R::NONE)
    }
}

impl Window {
    /// Where in it the words of an access are.
    fn places_of(&self, site: usize, sites: &[Site]) -> Vec<u32> {
        let first = self.firsts[&sites[site].memory];
        self.places.iter().map(|places| places.words[site] - first).collect()
    }

    /// Another one is the same so many words further on.
    fn is_alike(&self, other: &Window, further: u32, sites: &[Site], wanted: &Set<Value>) -> bool {
        let known = |(a, b): (&Places, &Places)| {
            a.words.iter().zip(&b.words).all(|(a, b)| a + further == *b)
                && wanted.iter().all(|value| a.known.get(value) == b.known.get(value))
        };
        let firsts = |site: &Site| self.firsts[&site.memory] + further == other.firsts[&site.memory];
        self.places.len() == other.places.len()
            && sites.iter().all(firsts)
            && self.places.iter().zip(&other.places).all(known)
    }
}

/// Words from one window to the next.
fn step(window: &Window, next: &Window) -> u32 {
    let step = |(memory, first): (&u32, &u32)| next.firsts.get(memory).and_then(|next| next.checked_sub(*first));
    window.firsts.iter().next().and_then(step).unwrap_or(0)
}

fn bits_of(places: &[u32]) -> u32 {
    places.iter().fold(0, |bits, place| bits | 1 << place)
}

/// No invocation reads or changes what another one changes.
fn apart(sites: &[Site], all: &[Places]) -> bool {
    let mut owners: Map<(u32, u32), usize> = Map::default();
    let accesses = |stores: bool| {
        let of = move |(number, places): (usize, &Places)| {
            let here = sites.iter().zip(&places.words).filter(move |(site, _)| site.stores == stores);
            here.map(|(site, &word)| ((site.memory, word), number)).collect::<Vec<_>>()
        };
        all.iter().enumerate().flat_map(of)
    };
    let mut apart = true;
    for (word, number) in accesses(true) {
        apart &= *owners.entry(word).or_insert(number) == number;
    }
    apart && accesses(false).all(|(word, number)| owners.get(&word).is_none_or(|&owner| owner == number))
}
