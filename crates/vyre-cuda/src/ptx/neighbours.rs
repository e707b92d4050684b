//! Neighbours in memory that one instruction loads or stores: in workgroup memory, and at fixed places of buffers, where they are known to begin at a multiple
//! of their size, and elsewhere in buffers where they do if the sizes that a launch is given are multiples of four, which is tested when it runs.

use std::collections::HashMap;
use std::fmt::Write;

use vyre_foundation::ir::{BufferKind, Literal};
use vyre_foundation::kernel::{Address, Binary, Block, Element, Inst, Kernel, Memory, Op, Scalar, Value};

use super::early::is_constant;
use super::forms::Form;
use super::latency::most_words;
use super::{Emitter, line};

/// What becomes of a step of a block.
pub(super) enum Step {
    /// Loads these neighbours.
    First(Vec<Value>, Address, &'static str),
    /// Stores these neighbours.
    Last(Vec<Value>, Address, &'static str),
    /// Loads four neighbours from a buffer, of which the first is here, if that begins at a multiple of their size.
    Four([Value; 4], Address, Guard),
    /// The same, stores them.
    StoreFour([Value; 4], Address, Guard),
    /// Is done by another step.
    Done,
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
        let mut hoped = vec![0; kernel.values.len()];
        note(kernel, &kernel.body, &mut hoped, &mut HashMap::new(), true);
        let mut below = HashMap::new();
        note_below(kernel, &kernel.body, &mut below);
        let few_words = most_words(kernel).is_some_and(|words| words <= MOST_WORDS);
        Some(Indices { hoped, below, few_words })
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

fn note_below(kernel: &Kernel, block: &Block, below: &mut HashMap<Value, Below>) {
    for inst in &block.insts {
        match inst {
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
                note_below(kernel, then, below);
                note_below(kernel, otherwise, below);
            }
            Inst::Loop(inner) => note_below(kernel, &inner.body, below),
            _ => {}
        }
    }
}

/// Powers of two that divide the values, as their exponents: as far as shifts, products and sums show it.
pub(super) fn powers(kernel: &Kernel) -> Vec<u8> {
    let mut powers = vec![0; kernel.values.len()];
    if !kernel.shared.is_empty() {
        note(kernel, &kernel.body, &mut powers, &mut HashMap::new(), false);
    }
    powers
}

fn note(kernel: &Kernel, block: &Block, powers: &mut [u8], constants: &mut HashMap<Value, u32>, hoping: bool) {
    for inst in &block.insts {
        match inst {
            Inst::Let(value, op) => {
                let of = |value: &Value| powers[value.index()];
                powers[value.index()] = match op {
                    Op::Const(Literal::U32(known)) => {
                        constants.insert(*value, *known);
                        known.trailing_zeros() as u8
                    }
                    Op::Const(Literal::I32(known)) => {
                        constants.insert(*value, *known as u32);
                        known.trailing_zeros() as u8
                    }
                    Op::Binary(Binary::Shl, a, by) => of(a) + constants.get(by).map_or(0, |by| (by % 32) as u8),
                    Op::Binary(Binary::Mul, a, b) => of(a) + of(b),
                    Op::Binary(Binary::Add | Binary::Sub | Binary::Or, a, b) => of(a).min(of(b)),
                    Op::Binary(Binary::And, a, b) => of(a).max(of(b)),
                    Op::BitCast(a) => of(a),
                    Op::Load { address, .. } if hoping && is_size(kernel, address) => 2,
                    _ => 0,
                }
                .min(32);
            }
            Inst::If { then, otherwise, .. } => {
                note(kernel, then, powers, constants, hoping);
                note(kernel, otherwise, powers, constants, hoping);
            }
            Inst::Loop(inner) => note(kernel, &inner.body, powers, constants, hoping),
            _ => {}
        }
    }
}

/// Accesses whose indices are one after the other, from a multiple of four on: their positions in the block and values.
struct Four<'k> {
    address: &'k Address,
    terms: &'k [(Value, u32)],
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

/// Four words: predicates for all at once and for one by one, the address and the index of the first, what the index has to be below, and the
/// buffer.
struct FourAtOnce {
    all: String,
    others: String,
    at: String,
    first: String,
    bound: Option<String>,
    buffer: String,
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
    fn takes(&self, address: &Address, place: &Form, stores: bool) -> bool {
        let is_there = || self.all.iter().any(|one| one.place == place.constant);
        let same = self.memory == address.memory && self.terms == place.terms;
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
        if let Some(indices) = &self.indices {
            self.fours(indices, block, &mut steps);
        }
        let stays = |value: Value| self.early.is_some_and(|early| early.contains(&value));
        let mut open: Vec<Near<'_>> = Vec::new();
        for (i, inst) in block.insts.iter().enumerate() {
            let found = near(self.kernel, inst).filter(|found| !stays(found.3));
            let found = found.map(|found| (found, self.bytes_from_start(found.0)));
            open.retain(|near| {
                let goes_on = found.as_ref().is_some_and(|(found, place)| near.takes(found.0, place, found.2));
                let done = !goes_on && near.ends_at(inst);
                if done {
                    self.join(near, &mut steps);
                }
                !done
            });
            let Some(((address, element, stores, value), place)) = found else { continue };
            let one = NearOne { place: place.constant, value, i, address };
            match open.iter_mut().find(|near| near.takes(address, &place, stores)) {
                Some(near) => near.all.push(one),
                None => open.push(Near { memory: address.memory, element, stores, terms: place.terms, all: vec![one] }),
            }
        }
        open.iter().for_each(|near| self.join(near, &mut steps));
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
            // In loops what is loaded ahead has to have its register from the start.
            let may = |stores: bool| if stores { indices.few_words } else { self.loops.is_empty() };
            let found = word(self.kernel, inst).filter(|found| may(found.3));
            let found = found.and_then(|(address, guard, value, stores)| {
                let (terms, at) = indices.split(&self.forms, address.terms[0].0)?;
                let early = self.early.is_some_and(|early| early.contains(&value));
                let guard = match guard {
                    None => Guard::default(),
                    Some(guard) => {
                        let own = indices.below.get(&guard).filter(|own| own.index == address.terms[0].0)?;
                        Guard { bound: Some(own.bound), also: own.also }
                    }
                };
                Some((Four { address, terms, guard, early, stores, at, all: Vec::new() }, value))
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
                let Four { address, guard, stores, all, .. } = open.swap_remove(full);
                let Ok(all) = <[(usize, Value); FOUR]>::try_from(all) else { continue };
                all.iter().for_each(|(i, _)| _ = steps.insert(*i, Step::Done));
                let values = all.map(|(_, value)| value);
                match stores {
                    true => steps.insert(all[FOUR - 1].0, Step::StoreFour(values, address.clone(), guard)),
                    false => steps.insert(all[0].0, Step::Four(values, address.clone(), guard)),
                };
            }
        }
    }

    /// Loads four words at once if the first begins at a multiple of their size and all are in bounds, and one by one otherwise.
    pub(super) fn load_four(&mut self, values: [Value; 4], address: &Address, guard: Guard) {
        let stays = self.early.is_some_and(|early| early.contains(&values[0]));
        let load = if stays { "ld.global" } else { "ld.global.nc" };
        let targets = values.map(|value| self.reg(value));
        let four = self.four_at_once(address, guard);
        // Registers of their own: a load into one that another load is on its way to would wait for that.
        let [at_once, alone] = [(); 2].map(|()| [(); FOUR].map(|()| self.temp("%r")));
        at_once.iter().chain(&alone).for_each(|register| line!(self, "mov.b32 {register}, 0"));
        line!(self, "@{} {load}.v4.b32 {{{}}}, [{}]", four.all, at_once.join(", "), four.at);
        for (one, register) in alone.iter().enumerate() {
            let (loaded, at) = self.one_of_four(&four, one);
            line!(self, "@{loaded} {load}.b32 {register}, [{at}]");
        }
        for (target, (at_once, alone)) in targets.iter().zip(at_once.iter().zip(&alone)) {
            line!(self, "selp.b32 {target}, {at_once}, {alone}, {}", four.all);
        }
    }

    /// The same for stores. Nothing waits for them, so that those one by one may stand in a branch, where they need no registers.
    pub(super) fn store_four(&mut self, values: [Value; 4], address: &Address, guard: Guard) {
        let sources = values.map(|value| self.reg(value));
        let four = self.four_at_once(address, guard);
        line!(self, "@{} st.global.v4.b32 [{}], {{{}}}", four.all, four.at, sources.join(", "));
        let end = self.label();
        line!(self, "@!{} bra L{end}", four.others);
        for (one, source) in sources.iter().enumerate() {
            let (stored, at) = self.one_of_four(&four, one);
            line!(self, "@{stored} st.global.b32 [{at}], {source}");
        }
        self.place(end);
    }

    /// Whether four words can be accessed at once, and where.
    fn four_at_once(&mut self, address: &Address, guard: Guard) -> FourAtOnce {
        let (first, bound) = (self.reg(address.terms[0].0), guard.bound.map(|bound| self.reg(bound)));
        let (rest, all, others) = (self.temp("%r"), self.temp("%p"), self.temp("%p"));
        line!(self, "and.b32 {rest}, {first}, {}", FOUR - 1);
        line!(self, "setp.eq.u32 {all}, {rest}, 0");
        if let Some(bound) = &bound {
            // What begins at a multiple of four does not pass the largest number.
            let last = self.temp("%r");
            line!(self, "add.u32 {last}, {first}, {}", FOUR - 1);
            line!(self, "setp.lt.and.u32 {all}, {last}, {bound}, {all}");
        }
        line!(self, "not.pred {others}, {all}");
        if let Some(also) = guard.also {
            let also = self.reg(also);
            line!(self, "and.pred {others}, {others}, {also}");
            line!(self, "and.pred {all}, {all}, {also}");
        }
        let (buffer, at) = (self.address(&Address { terms: Default::default(), ..address.clone() }), self.temp("%d"));
        line!(self, "mad.wide.u32 {at}, {first}, 4, {buffer}");
        FourAtOnce { all, others, at, first, bound, buffer }
    }

    /// The predicate and the address of one of four that are accessed one by one.
    fn one_of_four(&mut self, four: &FourAtOnce, one: usize) -> (String, String) {
        let (index, at) = (self.temp("%r"), self.temp("%d"));
        line!(self, "add.u32 {index}, {}, {one}", four.first);
        line!(self, "mad.wide.u32 {at}, {index}, 4, {}", four.buffer);
        let Some(bound) = &four.bound else { return (four.others.clone(), at) };
        let accessed = self.temp("%p");
        line!(self, "setp.lt.and.u32 {accessed}, {index}, {bound}, {}", four.others);
        (accessed, at)
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
}
