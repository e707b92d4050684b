//! Neighbours in memory that one instruction loads or stores: in workgroup memory, and at fixed places of buffers, where they are known to begin at a multiple
//! of their size, and elsewhere in buffers where they do if the sizes that a launch is given are multiples of four. That is tested once, when the kernel
//! begins, and it has two ways: where it is tested at each access, what is loaded one by one and at once takes twice the registers.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;

use vyre_foundation::ir::{BufferKind, Literal};
use vyre_foundation::kernel::{Address, Binary, Block, Element, Inst, Kernel, Memory, Op, Scalar, Value};

use super::early::is_constant;
use super::fields::Fields;
use super::forms::Form;
use super::latency::most_words;
use super::{Emitter, line};

/// What becomes of a step of a block.
pub(super) enum Step {
    /// Loads these neighbours.
    First(Vec<Value>, Address, &'static str),
    /// Stores these neighbours.
    Last(Vec<Value>, Address, &'static str),
    /// Loads four neighbours from a buffer, of which the first is here.
    Four(FourOf),
    /// The same, stores them.
    StoreFour(FourOf),
    /// Loads words of a structure.
    LoadFields(Fields),
    /// Stores words of a structure.
    StoreFields(Fields),
    /// Is done by another step.
    Done,
}

/// Four neighbours: their values, the address of the first and its guard, and what has to hold for each.
pub(super) struct FourOf {
    values: [Value; FOUR],
    address: Address,
    first: Option<Value>,
    guard: Guard,
}

/// What a way of the kernel takes for granted: that these sizes, as bits of [`Indices::sizes`], and the lengths of these buffers are multiples of four.
#[derive(Default)]
pub(super) struct Hope {
    sizes: u64,
    lengths: BTreeSet<u32>,
    /// Four neighbours are accessed at once.
    pub(super) any: bool,
}

impl Hope {
    /// Nothing has to be hoped for.
    pub(super) fn is_sure(&self) -> bool {
        self.sizes == 0 && self.lengths.is_empty()
    }
}

/// Neighbours that one instruction loads from a buffer.
const FOUR: usize = 4;
/// Words in use at the same time. What is stored at once has to be in registers side by side; where there are many values, as sums of a tile, the
/// assembler takes more registers for that than it leaves to other workgroups.
const MOST_WORDS: u32 = 64;

/// What is known of the indices of loads from buffers.
pub(super) struct Indices {
    /// Powers of two that divide the values, if they divide the sizes that a launch is given.
    hoped: Vec<u8>,
    /// Places of these sizes, and which of them that is true of each value for, as bits.
    sizes: Vec<(Memory, u32)>,
    rests_on: Vec<u64>,
    /// The buffers that values are the lengths of.
    lengths: HashMap<Value, u32>,
    below: HashMap<Value, Below>,
    few_words: bool,
}

/// A condition: an index is below a bound, and something else holds.
#[derive(Clone, Copy)]
struct Below {
    index: Value,
    bound: Value,
    also: Option<Value>,
}

/// What has to hold for each of some neighbours besides.
#[derive(Clone, Copy, Default, PartialEq)]
pub(super) struct Guard {
    bound: Option<Value>,
    also: Option<Value>,
}

impl Indices {
    /// Nothing where no block loads as many neighbours.
    pub(super) fn of(kernel: &Kernel) -> Option<Indices> {
        if !has_many(kernel, &kernel.body) {
            return None;
        }
        let mut powers = Powers::of(kernel, true);
        powers.note(&kernel.body);
        let (mut below, mut lengths) = (HashMap::new(), HashMap::new());
        note_below(kernel, &kernel.body, &mut below, &mut lengths);
        let few_words = most_words(kernel).is_some_and(|words| words <= MOST_WORDS);
        let Powers { powers: hoped, sizes, rests_on, .. } = powers;
        Some(Indices { hoped, sizes, rests_on, lengths, below, few_words })
    }

    /// The terms of an index that is hoped to be a multiple of four but for a constant, and that constant.
    fn split<'f>(&self, forms: &'f [Form], index: Value) -> Option<(&'f [(Value, u32)], i32)> {
        let Form { terms, constant } = &forms[index.index()];
        let is_four = |(term, by): &(Value, u32)| u32::from(self.hoped[term.index()]) + by.trailing_zeros() >= 2;
        terms.iter().all(is_four).then_some((terms, *constant as i32))
    }
}

/// An access to a word of a buffer, at one index: its address, guard and value, and whether it stores. Only loads that nobody writes to count.
fn word<'i>(kernel: &Kernel, inst: &'i Inst) -> Option<(&'i Address, Option<Value>, Value, bool)> {
    let (address, element, guard, value, stores) = match inst {
        Inst::Let(value, Op::Load { address, element, guard }) => (address, element, guard, value, false),
        Inst::Store { address, element, value, guard } => (address, element, guard, value, true),
        _ => return None,
    };
    let &[(index, 4)] = &address.terms[..] else { return None };
    let is_plain = kernel.values[value.index()].ty.width == 1 && kernel.values[index.index()].ty.scalar == Scalar::U32;
    let is_word = is_plain && address.offset == 0 && matches!(element, Element::U32 | Element::I32 | Element::F32);
    let counts = is_constant(kernel, address.memory) || (stores && matches!(address.memory, Memory::Buffer(_)));
    (is_word && counts).then_some((address, *guard, *value, stores))
}

/// Some block has four accesses that may be neighbours.
fn has_many(kernel: &Kernel, block: &Block) -> bool {
    block.insts.iter().filter(|inst| word(kernel, inst).is_some()).count() >= FOUR
        || block.insts.iter().any(|inst| match inst {
            Inst::If { then, otherwise, .. } => has_many(kernel, then) || has_many(kernel, otherwise),
            Inst::Loop(inner) => has_many(kernel, &inner.body),
            _ => false,
        })
}

fn note_below(kernel: &Kernel, block: &Block, below: &mut HashMap<Value, Below>, lengths: &mut HashMap<Value, u32>) {
    for inst in &block.insts {
        match inst {
            Inst::Let(value, Op::Length(buffer)) => _ = lengths.insert(*value, *buffer),
            Inst::Let(value, Op::Binary(Binary::Lt, index, bound))
                if kernel.values[index.index()].ty.scalar == Scalar::U32 =>
            {
                below.insert(*value, Below { index: *index, bound: *bound, also: None });
            }
            Inst::Let(value, Op::Binary(Binary::And, a, b)) => {
                let of = |one: &Value, other: Value| {
                    below.get(one).filter(|own| own.also.is_none()).map(|own| Below { also: Some(other), ..*own })
                };
                let both = of(b, *a).or_else(|| of(a, *b));
                below.extend(both.map(|both| (*value, both)));
            }
            Inst::If { then, otherwise, .. } => {
                note_below(kernel, then, below, lengths);
                note_below(kernel, otherwise, below, lengths);
            }
            Inst::Loop(inner) => note_below(kernel, &inner.body, below, lengths),
            _ => {}
        }
    }
}

/// Powers of two that divide the values, as their exponents: as far as shifts, products and sums show it.
pub(super) fn powers(kernel: &Kernel) -> Vec<u8> {
    let mut powers = Powers::of(kernel, false);
    powers.note(&kernel.body);
    powers.powers
}

struct Powers<'k> {
    kernel: &'k Kernel,
    /// Sizes are taken for multiples of four.
    hoping: bool,
    powers: Vec<u8>,
    sizes: Vec<(Memory, u32)>,
    rests_on: Vec<u64>,
    constants: HashMap<Value, u32>,
}

impl<'k> Powers<'k> {
    fn of(kernel: &'k Kernel, hoping: bool) -> Powers<'k> {
        let (powers, rests_on) = (vec![0; kernel.values.len()], vec![0; kernel.values.len()]);
        Powers { kernel, hoping, powers, sizes: Vec::new(), rests_on, constants: HashMap::new() }
    }

    fn note(&mut self, block: &Block) {
        for inst in &block.insts {
            match inst {
                Inst::Let(value, op) => {
                    let (power, rests_on) = self.power(*value, op);
                    (self.powers[value.index()], self.rests_on[value.index()]) = (power.min(32), rests_on);
                }
                Inst::If { then, otherwise, .. } => {
                    self.note(then);
                    self.note(otherwise);
                }
                Inst::Loop(inner) => self.note(&inner.body),
                _ => {}
            }
        }
    }

    /// The power of a value, and the sizes that it rests on.
    fn power(&mut self, value: Value, op: &Op) -> (u8, u64) {
        let of = |value: &Value| self.powers[value.index()];
        let rests_on = |a: &Value, b: &Value| self.rests_on[a.index()] | self.rests_on[b.index()];
        match op {
            Op::Const(Literal::U32(known)) => {
                self.constants.insert(value, *known);
                (known.trailing_zeros() as u8, 0)
            }
            Op::Const(Literal::I32(known)) => {
                self.constants.insert(value, *known as u32);
                (known.trailing_zeros() as u8, 0)
            }
            Op::Binary(Binary::Shl, a, by) => {
                (of(a) + self.constants.get(by).map_or(0, |by| (by % 32) as u8), rests_on(a, a))
            }
            Op::Binary(Binary::Mul, a, b) => (of(a) + of(b), rests_on(a, b)),
            Op::Binary(Binary::Add | Binary::Sub | Binary::Or, a, b) => (of(a).min(of(b)), rests_on(a, b)),
            Op::Binary(Binary::And, a, b) => (of(a).max(of(b)), rests_on(a, b)),
            Op::BitCast(a) => (of(a), rests_on(a, a)),
            Op::Load { address, element: Element::U32 | Element::I32, guard: None }
                if self.hoping && is_size(self.kernel, address) =>
            {
                let place = (address.memory, address.offset);
                let known = self.sizes.iter().position(|size| *size == place);
                let index = known.unwrap_or_else(|| {
                    self.sizes.push(place);
                    self.sizes.len() - 1
                });
                // More sizes than there are bits are left alone.
                if index < 64 { (2, 1 << index) } else { (0, 0) }
            }
            _ => (0, 0),
        }
    }
}

/// Accesses whose indices are one after the other, from a multiple of four on: their positions in the block and values.
struct Four<'k> {
    address: &'k Address,
    terms: &'k [(Value, u32)],
    first: Option<Value>,
    guard: Guard,
    early: bool,
    stores: bool,
    at: i32,
    all: Vec<(usize, Value)>,
}

impl Four<'_> {
    fn goes_on_with(&self, other: &Four<'_>) -> bool {
        let of = |four: &Four<'_>| (four.address.memory, four.guard, four.early, four.stores);
        of(self) == of(other) && self.terms == other.terms && self.at + self.all.len() as i32 == other.at
    }
}

/// A number that the launch is given, such as how long rows are.
fn is_size(kernel: &Kernel, address: &Address) -> bool {
    let Memory::Buffer(index) = address.memory else { return false };
    address.terms.is_empty() && kernel.buffers[index as usize].kind == BufferKind::Uniform
}

/// Loads from or stores to the same memory that are a constant apart.
struct Near<'k> {
    memory: Memory,
    element: Element,
    stores: bool,
    /// The place of the first, but for its constant part.
    terms: Vec<(Value, u32)>,
    all: Vec<NearOne<'k>>,
}

/// One of them: its constant part, value and position in the block.
#[derive(Clone, Copy)]
struct NearOne<'k> {
    place: u32,
    value: Value,
    i: usize,
    address: &'k Address,
}

impl Near<'_> {
    /// Another access is one of these. What is stored twice is stored in its order.
    fn takes(&self, address: &Address, element: Element, place: &Form, stores: bool) -> bool {
        let is_there = || self.all.iter().any(|one| one.place == place.constant);
        // Neighbours in a structure may be of other types, which have other registers.
        let same = self.memory == address.memory && self.element == element && self.terms == place.terms;
        same && self.stores == stores && !(stores && is_there())
    }

    /// A step may change what is loaded, or touch what is stored.
    fn ends_at(&self, inst: &Inst) -> bool {
        match inst {
            Inst::Let(_, Op::Load { address, .. }) => self.stores && address.memory == self.memory,
            Inst::Let(..) => false,
            Inst::Store { address, .. } | Inst::Atomic { address, .. } => address.memory == self.memory,
            _ => true,
        }
    }
}

/// The address of the lowest is known where the first of them is loaded.
fn is_known(lowest: &NearOne<'_>, all: &[NearOne<'_>]) -> bool {
    all.iter().min_by_key(|one| one.i).is_some_and(|first| first.address.terms == lowest.address.terms)
}

/// An access to a word of workgroup memory that is in bounds, or to a fixed place of a buffer that nobody writes: where, what, whether it stores,
/// and the value.
fn near<'i>(kernel: &Kernel, inst: &'i Inst) -> Option<(&'i Address, Element, bool, Value)> {
    let (address, element, value, stores) = match inst {
        Inst::Let(value, Op::Load { address, element, guard: None }) => (address, element, value, false),
        Inst::Store { address, element, value, guard: None } => (address, element, value, true),
        _ => return None,
    };
    let is_word = matches!(element, Element::U32 | Element::I32 | Element::F32);
    let counts = match address.memory {
        Memory::Shared(_) => true,
        memory => address.terms.is_empty() && is_constant(kernel, memory),
    };
    (is_word && counts && kernel.values[value.index()].ty.width == 1).then_some((address, *element, stores, *value))
}

impl Emitter<'_> {
    /// The steps of a block that load neighbours at once. Nothing writes the array between the first of them and the last.
    pub(super) fn neighbours(&self, block: &Block) -> HashMap<usize, Step> {
        let mut steps = HashMap::new();
        if let (Some(indices), Some(_)) = (&self.indices, &self.hope) {
            self.fours(indices, block, &mut steps);
        }
        let stays = |value: Value| self.early.is_some_and(|early| early.contains(&value));
        let mut open: Vec<Near<'_>> = Vec::new();
        for (i, inst) in block.insts.iter().enumerate() {
            let found = near(self.kernel, inst).filter(|found| !stays(found.3));
            let found = found.map(|found| (found, self.bytes_from_start(found.0)));
            open.retain(|near| {
                let goes_on = found.as_ref().is_some_and(|(found, place)| near.takes(found.0, found.1, place, found.2));
                let done = !goes_on && near.ends_at(inst);
                if done {
                    self.join(near, &mut steps);
                }
                !done
            });
            let Some(((address, element, stores, value), place)) = found else { continue };
            let one = NearOne { place: place.constant, value, i, address };
            match open.iter_mut().find(|near| near.takes(address, element, &place, stores)) {
                Some(near) => near.all.push(one),
                None => open.push(Near { memory: address.memory, element, stores, terms: place.terms, all: vec![one] }),
            }
        }
        open.iter().for_each(|near| self.join(near, &mut steps));
        self.fields(block, &mut steps);
        steps
    }

    /// The steps of a block that load four neighbours from a buffer that nobody writes, or store four that nothing comes between.
    fn fours(&self, indices: &Indices, block: &Block, steps: &mut HashMap<usize, Step>) {
        let mut open: Vec<Four<'_>> = Vec::new();
        for (i, inst) in block.insts.iter().enumerate() {
            match inst {
                Inst::Let(_, Op::Load { address, .. }) => {
                    open.retain(|four| !four.stores || four.address.memory != address.memory)
                }
                Inst::Let(..) | Inst::Store { .. } => {}
                _ => open.clear(),
            }
            let found = word(self.kernel, inst).filter(|found| !found.3 || indices.few_words);
            let found = found.and_then(|(address, first, value, stores)| {
                let (terms, at) = indices.split(&self.forms, address.terms[0].0)?;
                let early = self.early.is_some_and(|early| early.contains(&value));
                let guard = match first {
                    None => Guard::default(),
                    Some(guard) => {
                        let own = indices.below.get(&guard).filter(|own| own.index == address.terms[0].0)?;
                        Guard { bound: Some(own.bound), also: own.also }
                    }
                };
                let is_four = |bound: Value| indices.lengths.contains_key(&bound) || indices.hoped[bound.index()] >= 2;
                if !guard.bound.is_none_or(is_four) {
                    return None;
                }
                Some((Four { address, terms, first, guard, early, stores, at, all: Vec::new() }, value))
            });
            let next = found.as_ref().and_then(|(own, _)| open.iter().position(|four| four.goes_on_with(own)));
            if let Inst::Store { address, .. } = inst {
                // What is stored in between may be the same elements.
                let memory = address.memory;
                let mut at = 0;
                open.retain(|four| {
                    at += 1;
                    !four.stores || four.address.memory != memory || Some(at - 1) == next
                });
            }
            let Some((own, value)) = found else { continue };
            match open.iter_mut().find(|four| four.goes_on_with(&own)) {
                Some(four) => four.all.push((i, value)),
                None if own.at % FOUR as i32 == 0 => open.push(Four { all: vec![(i, value)], ..own }),
                None => {}
            }
            if let Some(full) = open.iter().position(|four| four.all.len() == FOUR) {
                let Four { address, first, guard, stores, all, .. } = open.swap_remove(full);
                let Ok(all) = <[(usize, Value); FOUR]>::try_from(all) else { continue };
                all.iter().for_each(|(i, _)| _ = steps.insert(*i, Step::Done));
                let values = all.map(|(_, value)| value);
                let four = FourOf { values, address: address.clone(), first, guard };
                match stores {
                    true => steps.insert(all[FOUR - 1].0, Step::StoreFour(four)),
                    false => steps.insert(all[0].0, Step::Four(four)),
                };
            }
        }
    }

    pub(super) fn load_four(&mut self, four: &FourOf) {
        let stays = self.early.is_some_and(|early| early.contains(&four.values[0]));
        let load = if stays { "ld.global" } else { "ld.global.nc" };
        let targets = four.values.map(|value| self.reg(value));
        self.rest_on(four);
        if four.first.is_some() {
            targets.iter().for_each(|target| line!(self, "mov.b32 {target}, 0"));
        }
        let (guard, at) = (self.guard(four.first), self.address(&four.address));
        line!(self, "{guard}{load}.v4.b32 {{{}}}, [{at}]", targets.join(", "));
    }

    pub(super) fn store_four(&mut self, four: &FourOf) {
        let sources = four.values.map(|value| self.reg(value));
        self.rest_on(four);
        let (guard, at) = (self.guard(four.first), self.address(&four.address));
        line!(self, "{guard}st.global.v4.b32 [{at}], {{{}}}", sources.join(", "));
    }

    /// Four words begin at a multiple of their size, and all are in bounds if the first is, as long as some sizes are multiples of four.
    fn rest_on(&mut self, four: &FourOf) {
        let (Some(hope), Some(indices)) = (&mut self.hope, &self.indices) else { return };
        hope.any = true;
        for (term, _) in &self.forms[four.address.terms[0].0.index()].terms {
            hope.sizes |= indices.rests_on[term.index()];
        }
        match four.guard.bound.map(|bound| (bound, indices.lengths.get(&bound))) {
            Some((_, Some(buffer))) => _ = hope.lengths.insert(*buffer),
            Some((bound, None)) => hope.sizes |= indices.rests_on[bound.index()],
            None => {}
        }
    }

    /// Goes elsewhere unless what is hoped for holds.
    pub(super) fn test_hope(&mut self, hope: &Hope, elsewhere: u32) {
        let (all, one) = (self.temp("%r"), self.temp("%r"));
        line!(self, "mov.u32 {all}, 0");
        let sizes = self.indices.as_ref().map(|indices| indices.sizes.clone()).unwrap_or_default();
        for (index, (memory, offset)) in sizes.into_iter().take(64).enumerate() {
            if hope.sizes & 1 << index != 0 {
                let at = self.address(&Address { memory, terms: Default::default(), offset });
                line!(self, "ld.global.nc.u32 {one}, [{at}]");
                line!(self, "or.b32 {all}, {all}, {one}");
            }
        }
        for buffer in &hope.lengths {
            line!(self, "ld.param.u32 {one}, [count{buffer}]");
            line!(self, "or.b32 {all}, {all}, {one}");
        }
        let other = self.temp("%p");
        line!(self, "and.b32 {all}, {all}, {}", FOUR - 1);
        line!(self, "setp.ne.u32 {other}, {all}, 0");
        line!(self, "@{other} bra.uni L{elsewhere}");
    }

    /// Where an access to workgroup memory is, in bytes.
    fn bytes_from_start(&self, address: &Address) -> Form {
        let start = Form { terms: Vec::new(), constant: address.offset };
        address.terms.iter().fold(start, |sum, (index, stride)| sum.plus(&self.forms[index.index()], *stride))
    }

    fn join(&self, near: &Near<'_>, steps: &mut HashMap<usize, Step>) {
        if near.all.len() < 2 {
            return;
        }
        // Arrays and buffers start at multiples of 16 bytes.
        let known = |(value, by): &(Value, u32)| u32::from(self.powers[value.index()]) + by.trailing_zeros();
        let aligned = near.terms.iter().map(known).min().unwrap_or(4).min(4);
        let mut all = near.all.clone();
        all.sort_unstable_by_key(|one| (one.place, one.i));
        all.dedup_by_key(|one| one.place);
        let mut rest = &all[..];
        while let Some(start) = rest.first() {
            let fits = |count: usize| {
                let bytes = 4 * count as u32;
                1 << aligned >= bytes
                    && start.place.is_multiple_of(bytes)
                    && rest.len() >= count
                    && rest[..count].iter().zip(0..).all(|(one, n)| one.place == start.place.wrapping_add(4 * n))
                    && (near.stores || is_known(start, &rest[..count]))
            };
            let count = [4, 2].into_iter().find(|count| fits(*count)).unwrap_or(1);
            if count > 1 {
                let places = rest[..count].iter().map(|one| one.i);
                places.clone().for_each(|i| _ = steps.insert(i, Step::Done));
                let (first, last) = (places.clone().min().unwrap_or_default(), places.max().unwrap_or_default());
                let values = rest[..count].iter().map(|one| one.value).collect();
                let ty = super::memory::access(near.element).0;
                match near.stores {
                    true => steps.insert(last, Step::Last(values, start.address.clone(), ty)),
                    false => steps.insert(first, Step::First(values, start.address.clone(), ty)),
                };
            }
            rest = &rest[count..];
        }
    }

    pub(super) fn store_neighbours(&mut self, values: &[Value], address: &Address, ty: &str) {
        let sources: Vec<String> = values.iter().map(|value| self.component(*value, 0)).collect();
        let at = self.address(address);
        line!(self, "st.shared.v{}.{ty} [{at}], {{{}}}", values.len(), sources.join(", "));
    }

    pub(super) fn load_neighbours(&mut self, values: &[Value], address: &Address, ty: &str) {
        let targets: Vec<String> = values.iter().map(|value| self.component(*value, 0)).collect();
        let (path, at) = (self.path(address.memory), self.address(address));
        line!(self, "ld.{path}.v{}.{ty} {{{}}}, [{at}]", values.len(), targets.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
    use vyre_foundation::kernel::{Options, lower};

    use crate::ptx::{Target, emit, lowering};

    /// Each invocation moves four neighbours of a row from a place on, so far from those of the next, with a step between the stores.
    fn text(step: u32, first: u32, between: Option<Node>) -> String {
        let (l, row) = (|| Expr::local_id(0), || Expr::workgroup_id(0) * Expr::load("size", Expr::u32(0)));
        let at = |i: u32| row() + l() * Expr::u32(step) + Expr::u32(first + i);
        let mut body = vec![Node::store("tile", l(), Expr::load("data", row() + l())), Node::barrier()];
        body.extend((0..4).map(|i| Node::let_bind(format!("x{i}"), Expr::load("data", at(i)))));
        let tile = || Expr::load("tile", l() ^ Expr::u32(1));
        let mut stores: Vec<Node> =
            (0..4).map(|i| Node::store("out", at(i), Expr::var(format!("x{i}")) + tile())).collect();
        stores.splice(2..2, between);
        body.extend(stores);
        let program = Program::wrapped(
            vec![
                BufferDecl::read("data", 0, DataType::F32),
                BufferDecl::read_write("out", 1, DataType::F32),
                BufferDecl::uniform("size", 2, DataType::U32).with_count(1),
                BufferDecl::workgroup("tile", 0, DataType::F32).with_count(64),
            ],
            [64, 1, 1],
            body,
        );
        let kernel = lower(&program.validate().expect("valid"), &lowering(Options::default())).expect("lowers");
        emit(&kernel, Target { sm: 90, interruptible: false }).expect("text").text
    }

    fn counted(text: &str) -> [usize; 2] {
        let of = |what: &str| text.matches(what).count();
        [of("ld.global.nc.v4.b32") + of("ld.global.v4.b32"), of("st.global.v4.b32")]
    }

    #[test]
    fn four_neighbours_move_at_once_where_they_may_begin_at_a_multiple() {
        assert_eq!(counted(&text(4, 0, None)), [1, 1]);
        assert_eq!(counted(&text(8, 4, None)), [1, 1]);
        // Never, of all but every other invocation, or of every fourth.
        assert_eq!(counted(&text(4, 1, None)), [0, 0]);
        assert_eq!(counted(&text(2, 0, None)), [0, 0]);
        assert_eq!(counted(&text(1, 0, None)), [0, 0]);
        // What is stored in between may be one of them.
        let between = Node::store("out", Expr::u32(5), Expr::f32(1.0));
        assert_eq!(counted(&text(4, 0, Some(between))), [1, 0]);
    }

    /// Stores in workgroup memory of so many words, so far from those of the next invocation, with a step before the last.
    fn stored(count: u32, step: u32, before_last: Option<Node>) -> usize {
        let l = || Expr::local_id(0);
        let value = |i: u32| Expr::load("data", Expr::global_id(0) + Expr::u32(100 * i));
        let mut body: Vec<Node> =
            (0..count).map(|i| Node::store("tile", l() * Expr::u32(step) + Expr::u32(i), value(i))).collect();
        body.splice(count as usize - 1..count as usize - 1, before_last);
        let sum = Expr::load("tile", l() ^ Expr::u32(9)) + Expr::load("tile", l() ^ Expr::u32(33));
        body.extend([Node::barrier(), Node::store("out", Expr::global_id(0), sum)]);
        let program = Program::wrapped(
            vec![
                BufferDecl::read("data", 0, DataType::F32),
                BufferDecl::read_write("out", 1, DataType::F32),
                BufferDecl::workgroup("tile", 0, DataType::F32).with_count(64 * step + 64),
            ],
            [64, 1, 1],
            body,
        );
        let kernel = lower(&program.validate().expect("valid"), &lowering(Options::default())).expect("lowers");
        let text = emit(&kernel, Target { sm: 90, interruptible: false }).expect("text").text;
        text.matches("st.shared.v4.f32").count()
    }

    #[test]
    fn neighbours_in_workgroup_memory_are_stored_at_once() {
        assert_eq!([stored(4, 4, None), stored(8, 8, None), stored(4, 6, None), stored(4, 1, None)], [1, 2, 0, 0]);
        // Somebody looks, or stores elsewhere in the same memory, before the last.
        let looks = Node::store("out", Expr::u32(0), Expr::load("tile", Expr::local_id(0) ^ Expr::u32(1)));
        assert_eq!(stored(4, 4, Some(looks)), 0);
        assert_eq!(stored(4, 4, Some(Node::store("tile", Expr::u32(3), Expr::f32(1.0)))), 0);
    }

    /// What is added up of a table of so many places, if the bits of a number say so.
    fn chosen(table: BufferDecl, places: u32) -> String {
        let bit = |i: u32| (Expr::global_id(0) & Expr::u32(1 << i)).ne(0u32);
        let sum = || Expr::var("sum");
        let step = |i| Node::if_then(bit(i), vec![Node::assign("sum", sum() ^ Expr::load("table", Expr::u32(i)))]);
        let mut body = vec![Node::var("sum", DataType::U32, Expr::u32(0))];
        body.extend((0..places).map(step));
        body.push(Node::store("out", Expr::global_id(0), sum()));
        let program = Program::wrapped(vec![table, BufferDecl::read_write("out", 1, DataType::U32)], [64, 1, 1], body);
        let kernel = lower(&program.validate().expect("valid"), &lowering(Options::default())).expect("lowers");
        let text = emit(&kernel, Target { sm: 90, interruptible: false }).expect("text").text;
        text.split("vyre_kernel_together").next().unwrap_or_default().to_owned()
    }

    #[test]
    fn fixed_places_that_nobody_writes_are_loaded_at_once_and_by_everybody() {
        let table = || BufferDecl::read("table", 0, DataType::U32);
        let fixed = chosen(table().with_count(11), 11);
        let count = |text: &str, what: &str| text.matches(what).count();
        assert_eq!(
            [
                count(&fixed, "\tld.global.nc.v4.u32"),
                count(&fixed, "\tld.global.nc.v2.u32"),
                count(&fixed, "ld.global")
            ],
            [2, 1, 4],
            "{fixed}"
        );
        // One without a size may be too short, and what is written is read where the program says so.
        assert_eq!(count(&chosen(table(), 11), "\tld.global"), 0);
        let written = chosen(BufferDecl::read_write("table", 0, DataType::U32).with_count(11), 11);
        assert_eq!([count(&written, ".v4"), count(&written, "\tld.global.u32")], [0, 0], "{written}");
    }

    /// Rounds in which each invocation takes four neighbours of a row to a tile, so far from those of the next.
    fn rounds(step: u32, interruptible: bool) -> String {
        let (l, size) = (|| Expr::local_id(0), || Expr::load("size", Expr::u32(0)));
        let at = |i: u32| {
            Expr::workgroup_id(0) * size() + Expr::var("k") * Expr::u32(256) + l() * Expr::u32(step) + Expr::u32(i)
        };
        let tile = |i: u32| l() * Expr::u32(4) + Expr::u32(i);
        let mut round: Vec<Node> = (0..4).map(|i| Node::store("tile", tile(i), Expr::load("data", at(i)))).collect();
        let sum = Expr::var("sum") + Expr::load("tile", l() ^ Expr::u32(21));
        round.extend([Node::barrier(), Node::assign("sum", sum), Node::barrier()]);
        let program = Program::wrapped(
            vec![
                BufferDecl::read("data", 0, DataType::F32),
                BufferDecl::read_write("out", 1, DataType::F32),
                BufferDecl::uniform("size", 2, DataType::U32).with_count(1),
                BufferDecl::workgroup("tile", 0, DataType::F32).with_count(256),
            ],
            [64, 1, 1],
            vec![
                Node::var("sum", DataType::F32, Expr::f32(0.0)),
                Node::for_range("k", Expr::u32(0), size() / Expr::u32(256), round),
                Node::store("out", Expr::global_id(0), Expr::var("sum")),
            ],
        );
        let options = lowering(Options { interruptible, ..Options::default() });
        let kernel = lower(&program.validate().expect("valid"), &options).expect("lowers");
        emit(&kernel, Target { sm: 90, interruptible }).expect("text").text
    }

    #[test]
    fn rounds_load_four_neighbours_where_all_sizes_are_multiples_of_four() {
        let text = rounds(4, false);
        let (hoping, other) = text.split_once("\tret;\n").expect("two ways");
        let test = &hoping[hoping.find(", 3;\n\tsetp.ne.u32").expect("a test")..];
        // The row's length and the buffer's are tested, once.
        assert!(hoping.contains("[count0]") && test.contains("bra.uni"), "{text}");
        assert!(test.contains("ld.global.v4.b32") || test.contains("ld.global.nc.v4.b32"), "{text}");
        assert!(!test.contains("selp.b32") && !test.contains("ld.global.f32"), "{text}");
        assert!(!other.contains("v4.b32") && other.contains(".f32"), "{text}");
        // Neighbours of which most begin elsewhere.
        assert!(!rounds(3, false).contains(".v4.b32"));
        // What may be told to end asks so on both ways.
        let told = rounds(4, true);
        let (hoping, other) = told.split_once("\tret;\n").expect("two ways");
        assert!(hoping.contains(".v4.b32") && !other.contains(".v4.b32"), "{told}");
        assert!([hoping, other].iter().all(|way| way.contains(" exit;")), "{told}");
    }
}
