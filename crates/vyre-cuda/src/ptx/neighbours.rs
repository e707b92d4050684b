//! Neighbours in memory that one instruction loads or stores: in workgroup memory where they are known to begin at a multiple of their size, and in buffers
//! where they do if the sizes that a launch is given are multiples of four, which is tested when it runs.

use std::collections::HashMap;
use std::fmt::Write;

use vyre_foundation::ir::{BufferKind, Literal};
use vyre_foundation::kernel::{Address, Binary, Block, Element, Inst, Kernel, Memory, Op, Scalar, Value};

use super::early::is_constant;
use super::forms::{Form, forms};
use super::{Emitter, line};

/// What becomes of a step of a block.
pub(super) enum Step {
    /// Loads these neighbours.
    First(Vec<Value>, Address, &'static str),
    /// Stores these neighbours.
    Last(Vec<Value>, Address, &'static str),
    /// Loads four neighbours from a buffer, of which the first is here, below a bound, if it is a multiple of four.
    Four([Value; 4], Address, Option<Value>),
    /// The same, stores them.
    StoreFour([Value; 4], Address, Option<Value>),
    /// Is done by another step.
    Done,
}

/// Neighbours that one instruction loads from a buffer.
const FOUR: usize = 4;

/// What is known of the indices of loads from buffers.
pub(super) struct Indices {
    forms: Vec<Form>,
    /// Powers of two that divide the values, if they divide the sizes that a launch is given.
    hoped: Vec<u8>,
    /// What is compared with what, for less.
    below: HashMap<Value, (Value, Value)>,
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
        Some(Indices { forms: forms(kernel), hoped, below })
    }

    /// The terms of an index that is hoped to be a multiple of four but for a constant, and that constant.
    fn split(&self, index: Value) -> Option<(&[(Value, u32)], i32)> {
        let Form { terms, constant } = &self.forms[index.index()];
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

fn note_below(kernel: &Kernel, block: &Block, below: &mut HashMap<Value, (Value, Value)>) {
    for inst in &block.insts {
        match inst {
            Inst::Let(value, Op::Binary(Binary::Lt, a, b)) if kernel.values[a.index()].ty.scalar == Scalar::U32 => {
                below.insert(*value, (*a, *b));
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
    bound: Option<Value>,
    early: bool,
    stores: bool,
    at: i32,
    all: Vec<(usize, Value)>,
}

impl Four<'_> {
    fn goes_on_with(&self, other: &Four<'_>) -> bool {
        let of = |four: &Four<'_>| (four.address.memory, four.bound, four.early, four.stores);
        of(self) == of(other) && self.terms == other.terms && self.at + self.all.len() as i32 == other.at
    }
}

/// Predicates and addresses: of all four at once, and of each by itself.
struct FourPlaces {
    all: String,
    each: Vec<(String, String)>,
}

/// A number that the launch is given, such as how long rows are.
fn is_size(kernel: &Kernel, address: &Address) -> bool {
    let Memory::Buffer(index) = address.memory else { return false };
    address.terms.is_empty() && kernel.buffers[index as usize].kind == BufferKind::Uniform
}

/// Loads from or stores to workgroup memory at one index: their offsets, values and positions in the block.
struct Near<'k> {
    address: &'k Address,
    element: Element,
    stores: bool,
    all: Vec<(u32, Value, usize)>,
}

impl Near<'_> {
    /// Another access is one of these. What is stored twice is stored in its order.
    fn takes(&self, address: &Address, stores: bool) -> bool {
        let is_there = || self.all.iter().any(|(offset, _, _)| *offset == address.offset);
        let same = self.address.memory == address.memory && self.address.terms == address.terms;
        same && self.stores == stores && !(stores && is_there())
    }

    /// A step may change what is loaded, or touch what is stored.
    fn ends_at(&self, inst: &Inst) -> bool {
        match inst {
            Inst::Let(_, Op::Load { address, .. }) => self.stores && address.memory == self.address.memory,
            Inst::Let(..) => false,
            Inst::Store { address, .. } | Inst::Atomic { address, .. } => address.memory == self.address.memory,
            _ => true,
        }
    }
}

/// An access to a word of workgroup memory that is in bounds: where, what, whether it stores, and the value.
fn near<'i>(kernel: &Kernel, inst: &'i Inst) -> Option<(&'i Address, Element, bool, Value)> {
    let (address, element, value, stores) = match inst {
        Inst::Let(value, Op::Load { address, element, guard: None }) => (address, element, value, false),
        Inst::Store { address, element, value, guard: None } => (address, element, value, true),
        _ => return None,
    };
    let is_word = matches!(element, Element::U32 | Element::I32 | Element::F32);
    let is_near = is_word && matches!(address.memory, Memory::Shared(_)) && kernel.values[value.index()].ty.width == 1;
    is_near.then_some((address, *element, stores, *value))
}

impl Emitter<'_> {
    /// The steps of a block that load neighbours at once. Nothing writes the array between the first of them and the last.
    pub(super) fn neighbours(&self, block: &Block) -> HashMap<usize, Step> {
        let mut steps = HashMap::new();
        if let Some(indices) = &self.indices {
            self.fours(indices, block, &mut steps);
        }
        if self.kernel.shared.is_empty() {
            return steps;
        }
        let mut open: Vec<Near<'_>> = Vec::new();
        for (i, inst) in block.insts.iter().enumerate() {
            let found = near(self.kernel, inst);
            open.retain(|near| {
                let goes_on = found.as_ref().is_some_and(|found| near.takes(found.0, found.2));
                let done = !goes_on && near.ends_at(inst);
                if done {
                    self.join(near, &mut steps);
                }
                !done
            });
            let Some((address, element, stores, value)) = found else { continue };
            match open.iter_mut().find(|near| near.takes(address, stores)) {
                Some(near) => near.all.push((address.offset, value, i)),
                None => open.push(Near { address, element, stores, all: vec![(address.offset, value, i)] }),
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
            let found = word(self.kernel, inst).and_then(|(address, guard, value, stores)| {
                let (terms, at) = indices.split(address.terms[0].0)?;
                let bound = guard.map(|guard| indices.below.get(&guard).filter(|(own, _)| *own == address.terms[0].0));
                let early = self.early.is_some_and(|early| early.contains(&value));
                match bound {
                    Some(None) => None,
                    Some(Some((_, bound))) => {
                        Some((Four { address, terms, bound: Some(*bound), early, stores, at, all: Vec::new() }, value))
                    }
                    None => Some((Four { address, terms, bound: None, early, stores, at, all: Vec::new() }, value)),
                }
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
                let Four { address, bound, stores, all, .. } = open.swap_remove(full);
                let Ok(all) = <[(usize, Value); FOUR]>::try_from(all) else { continue };
                all.iter().for_each(|(i, _)| _ = steps.insert(*i, Step::Done));
                let values = all.map(|(_, value)| value);
                match stores {
                    true => steps.insert(all[FOUR - 1].0, Step::StoreFour(values, address.clone(), bound)),
                    false => steps.insert(all[0].0, Step::Four(values, address.clone(), bound)),
                };
            }
        }
    }

    /// Loads four words at once if the first begins at a multiple of their size and all are in bounds, and one by one otherwise.
    pub(super) fn load_four(&mut self, values: [Value; 4], address: &Address, bound: Option<Value>) {
        let stays = self.early.is_some_and(|early| early.contains(&values[0]));
        let load = if stays { "ld.global" } else { "ld.global.nc" };
        let targets = values.map(|value| self.reg(value));
        if bound.is_some() {
            targets.iter().for_each(|target| line!(self, "mov.b32 {target}, 0"));
        }
        let places = self.four_places(address, bound);
        line!(self, "@{} {load}.v4.b32 {{{}}}, [{}]", places.all, targets.join(", "), places.each[0].1);
        for ((loaded, at), target) in places.each.iter().zip(&targets) {
            line!(self, "@{loaded} {load}.b32 {target}, [{at}]");
        }
    }

    /// The same for stores.
    pub(super) fn store_four(&mut self, values: [Value; 4], address: &Address, bound: Option<Value>) {
        let sources = values.map(|value| self.reg(value));
        let places = self.four_places(address, bound);
        line!(self, "@{} st.global.v4.b32 [{}], {{{}}}", places.all, places.each[0].1, sources.join(", "));
        for ((stored, at), source) in places.each.iter().zip(&sources) {
            line!(self, "@{stored} st.global.b32 [{at}], {source}");
        }
    }

    fn four_places(&mut self, address: &Address, bound: Option<Value>) -> FourPlaces {
        let (first, bound) = (self.reg(address.terms[0].0), bound.map(|bound| self.reg(bound)));
        let (rest, all, others) = (self.temp("%r"), self.temp("%p"), self.temp("%p"));
        line!(self, "and.b32 {rest}, {first}, {}", FOUR - 1);
        line!(self, "setp.eq.u32 {all}, {rest}, 0");
        let mut indices = vec![first.clone()];
        for one in 1..FOUR {
            let index = self.temp("%r");
            line!(self, "add.u32 {index}, {first}, {one}");
            indices.push(index);
        }
        if let Some(bound) = &bound {
            // What begins at a multiple of four does not pass the largest number.
            line!(self, "setp.lt.and.u32 {all}, {}, {bound}, {all}", indices[FOUR - 1]);
        }
        line!(self, "not.pred {others}, {all}");
        let buffer = self.address(&Address { terms: Default::default(), ..address.clone() });
        let mut each = Vec::with_capacity(FOUR);
        for index in indices {
            let at = self.temp("%d");
            line!(self, "mad.wide.u32 {at}, {index}, 4, {buffer}");
            let mut accessed = others.clone();
            if let Some(bound) = &bound {
                accessed = self.temp("%p");
                line!(self, "setp.lt.and.u32 {accessed}, {index}, {bound}, {others}");
            }
            each.push((accessed, at));
        }
        FourPlaces { all, each }
    }

    fn join(&self, near: &Near<'_>, steps: &mut HashMap<usize, Step>) {
        let Near { address, element, stores, all } = near;
        if all.len() < 2 {
            return;
        }
        // The array itself starts at a multiple of 16 bytes.
        let known = |(value, stride): &(Value, u32)| u32::from(self.powers[value.index()]) + stride.trailing_zeros();
        let aligned = address.terms.iter().map(known).min().unwrap_or(4).min(4);
        let mut all = all.clone();
        all.sort_unstable_by_key(|(offset, _, i)| (*offset, *i));
        all.dedup_by_key(|(offset, _, _)| *offset);
        let mut rest = &all[..];
        while let Some((offset, _, _)) = rest.first() {
            let fits = |count: usize| {
                let bytes = 4 * count as u32;
                1 << aligned >= bytes
                    && offset.is_multiple_of(bytes)
                    && rest.len() >= count
                    && rest[..count].iter().zip(0..).all(|((other, _, _), n)| *other == offset + 4 * n)
            };
            let count = if fits(4) {
                4
            } else if fits(2) {
                2
            } else {
                1
            };
            if count > 1 {
                let places = rest[..count].iter().map(|(_, _, i)| *i);
                places.clone().for_each(|i| _ = steps.insert(i, Step::Done));
                let (first, last) = (places.clone().min().unwrap_or_default(), places.max().unwrap_or_default());
                let values = rest[..count].iter().map(|(_, value, _)| *value).collect();
                let ty = super::memory::access(*element).0;
                let address = Address { offset: *offset, ..(*address).clone() };
                match stores {
                    true => steps.insert(last, Step::Last(values, address, ty)),
                    false => steps.insert(first, Step::First(values, address, ty)),
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
        let at = self.address(address);
        line!(self, "ld.shared.v{}.{ty} {{{}}}, [{at}]", values.len(), targets.join(", "));
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
}
