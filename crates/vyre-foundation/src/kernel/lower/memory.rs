//! Addresses, guards, loads and stores.

use smallvec::SmallVec;

use super::{Aggregate, BufferPlace, Leaves, Lower, Result, Storage, too_large};
use crate::ir::{Access, AtomicOp, Expr, Literal, Name};
use crate::kernel::shape::{Shape, ShapeId};
use crate::kernel::{Address, Binary, Counter, Element, End, Inst, Loop, Memory, Op, Scalar, Type, Value, fold};

/// How many scalars a value of one expression may have.
const MAX_LEAVES: u32 = 1 << 16;
/// Up to so many elements a memory is cleared without a loop.
const CLEAR_INLINE: u32 = 8;

/// Elements that a vector takes in memory.
pub(super) fn spaced(width: u8) -> u32 {
    if width == 3 { 4 } else { width.into() }
}

/// An index as the program gives it.
#[derive(Clone, Copy)]
pub(super) enum Index {
    Known(i128),
    Value(Value),
}

/// An index that is in bounds wherever the guard holds.
#[derive(Clone, Copy)]
enum Term {
    Known(u64),
    /// u32 or u64.
    Value(Value),
}

/// What an index must be less than.
#[derive(Clone, Copy)]
enum Limit {
    Known(u32),
    Length(u32),
}

enum Base {
    /// A bound buffer, addressed by its declared layout.
    Bound(u32),
    /// Memories whose layout nobody else sees: one per scalar or vector of the element, indexed by all array dimensions.
    Units { shared: bool, first: u32, unit: u32, dims: SmallVec<[(Term, u32); 4]> },
}

/// A part of a memory.
pub(super) struct Place {
    base: Base,
    shape: ShapeId,
    terms: SmallVec<[(Value, u32); 2]>,
    offset: u32,
    guard: Option<Value>,
    /// Surely out of bounds.
    outside: bool,
}

/// A scalar or vector in memory.
struct Unit {
    address: Address,
    element: Element,
    width: u8,
}

impl<'a> Lower<'a> {
    pub(super) fn index(&mut self, expr: &'a Expr) -> Result<Index> {
        if let Some(known) = self.literal(expr).as_ref().and_then(fold::integer) {
            return Ok(Index::Known(known));
        }
        let value = self.scalar_expr(expr)?;
        Ok(match self.builder.literal(value).as_ref().and_then(fold::integer) {
            Some(known) => Index::Known(known),
            None => Index::Value(value),
        })
    }

    fn place(&self, base: Base, shape: ShapeId) -> Place {
        Place { base, shape, terms: SmallVec::new(), offset: 0, guard: None, outside: false }
    }

    /// Adds the check of an index to the place's guard.
    fn bound(&mut self, place: &mut Place, index: Index, limit: Limit) -> Term {
        match index {
            Index::Known(known) => {
                let Ok(known) = u64::try_from(known) else {
                    place.outside = true;
                    return Term::Known(0);
                };
                match limit {
                    Limit::Known(limit) if known < u64::from(limit) => Term::Known(known),
                    Limit::Known(_) => {
                        place.outside = true;
                        Term::Known(0)
                    }
                    Limit::Length(buffer) => {
                        let ty = if known > u64::from(u32::MAX) { Scalar::U64 } else { Scalar::U32 };
                        let index = self.builder.integer(ty, known.into());
                        let limit = self.builder.length(buffer, ty);
                        self.guard(place, index, limit);
                        Term::Known(known)
                    }
                }
            }
            Index::Value(value) => {
                let ty = self.builder.scalar(value);
                let unsigned = if ty.bits() == 64 { Scalar::U64 } else { Scalar::U32 };
                let index = self.builder.bit_cast(value, unsigned);
                // A negative index must stay outside of a buffer with more than 2³¹ elements.
                let half = 1u32 << 31;
                let limit = match limit {
                    Limit::Known(limit) if ty == Scalar::I32 => self.builder.u32(limit.min(half)),
                    Limit::Known(limit) => self.builder.integer(unsigned, limit.into()),
                    Limit::Length(buffer) => {
                        let length = self.builder.length(buffer, unsigned);
                        if ty == Scalar::I32 {
                            let half = self.builder.u32(half);
                            self.builder.binary(Binary::Min, length, half)
                        } else {
                            length
                        }
                    }
                };
                self.guard(place, index, limit);
                Term::Value(index)
            }
        }
    }

    fn guard(&mut self, place: &mut Place, index: Value, limit: Value) {
        let inside = self.builder.binary(Binary::Lt, index, limit);
        match self.builder.literal(inside) {
            Some(Literal::Bool(true)) => return,
            Some(_) => place.outside = true,
            None => {}
        }
        place.guard = Some(match place.guard {
            Some(guard) => self.builder.binary(Binary::And, guard, inside),
            None => inside,
        });
    }

    /// Moves by `term` times `stride` bytes.
    fn advance(&mut self, place: &mut Place, term: Term, stride: u32) {
        match term {
            Term::Known(known) => {
                let bytes = known.checked_mul(stride.into()).and_then(|b| b.checked_add(place.offset.into()));
                match bytes.map(u32::try_from) {
                    Some(Ok(offset)) => place.offset = offset,
                    _ => {
                        let value = if known > u64::from(u32::MAX) {
                            self.builder.constant(Literal::U64(known))
                        } else {
                            self.builder.u32(known as u32)
                        };
                        place.terms.push((value, stride));
                    }
                }
            }
            Term::Value(value) => place.terms.push((value, stride)),
        }
    }

    /// Element `index` of a buffer.
    pub(super) fn buffer_place(&mut self, buffer: &str, index: &'a Expr) -> Result<Place> {
        let index = self.index(index)?;
        match self.buffer_of[buffer] {
            BufferPlace::Bound(id) => {
                let decl = &self.buffers[id as usize];
                let (header, stride, count, bits) =
                    (decl.header, decl.stride, decl.count, decl.element.map_or(8, |(element, _)| element.bits()));
                let Some(shape) = self.buffer_shapes[id as usize] else {
                    let ty = &self.program.buffers()[decl.index as usize].ty;
                    return Err(self.shapes.of(ty).err().map_or_else(too_large, Box::new));
                };
                let mut place = self.place(Base::Bound(id), shape);
                let open_tail = header > 0 || self.ends_open(shape);
                let limit = match count {
                    _ if open_tail => Limit::Known(1),
                    Some(count) => Limit::Known(count),
                    None => Limit::Length(id),
                };
                let term = self.bound(&mut place, index, limit);
                if !open_tail {
                    self.advance(&mut place, term, if bits == 4 { 1 } else { stride });
                }
                Ok(place)
            }
            BufferPlace::Shared(first, count) => {
                let decl = self.program.buffer(buffer).map(|decl| self.shapes.of(&decl.ty));
                let shape = match decl {
                    Some(shape) => shape?,
                    None => return Err(too_large()),
                };
                let base = Base::Units { shared: true, first, unit: 0, dims: SmallVec::new() };
                let mut place = self.place(base, shape);
                let term = self.bound(&mut place, index, Limit::Known(count));
                if let Base::Units { dims, .. } = &mut place.base {
                    dims.push((term, count));
                }
                Ok(place)
            }
        }
    }

    fn ends_open(&self, shape: ShapeId) -> bool {
        let Shape::Struct(members) = self.shapes.get(shape) else { return false };
        members.last().is_some_and(|(last, _)| matches!(self.shapes.get(*last), Shape::Array { count: None, .. }))
    }

    /// The memories of a local array.
    pub(super) fn local_place(&self, shape: ShapeId, first: u32) -> Place {
        self.place(Base::Units { shared: false, first, unit: 0, dims: SmallVec::new() }, shape)
    }

    /// Follows a path.
    pub(super) fn follow(&mut self, place: &mut Place, path: &'a [Access]) -> Result<()> {
        for access in path {
            let index = match access {
                Access::Member(member) => {
                    let Shape::Struct(members) = self.shapes.get(place.shape) else { continue };
                    let Some(&(shape, offset)) = members.get(*member as usize) else { continue };
                    let before: u32 = members[..*member as usize].iter().map(|(m, _)| self.shapes.units(*m)).sum();
                    place.shape = shape;
                    match &mut place.base {
                        Base::Bound(_) => place.offset = place.offset.checked_add(offset).ok_or_else(too_large)?,
                        Base::Units { unit, .. } => *unit += before,
                    }
                    continue;
                }
                Access::Index(index) => self.index(index)?,
            };
            self.step(place, index)?;
        }
        Ok(())
    }

    /// Goes to an element of an array or vector.
    fn step(&mut self, place: &mut Place, index: Index) -> Result<()> {
        match *self.shapes.get(place.shape) {
            Shape::Vector(element, width) => {
                let term = self.bound(place, index, Limit::Known(width.into()));
                self.advance(place, term, element.bits() / 8);
                place.shape = ShapeId::vector(element, 1);
                // The vector's own dimensions are still needed to find it; the offset within it comes on top.
                if let Base::Units { unit, .. } = &mut place.base {
                    *unit |= LANE;
                }
            }
            Shape::Array { element, count, stride } => {
                let limit = match (count, &place.base) {
                    (Some(count), _) => Limit::Known(count),
                    (None, Base::Bound(buffer)) => Limit::Length(*buffer),
                    (None, Base::Units { .. }) => Limit::Known(0),
                };
                let term = self.bound(place, index, limit);
                place.shape = element;
                match &mut place.base {
                    Base::Bound(_) => self.advance(place, term, stride),
                    Base::Units { dims, .. } => dims.push((term, count.unwrap_or(0))),
                }
            }
            Shape::Struct(_) => {}
        }
        Ok(())
    }

    /// The scalars and vectors of a place, in order.
    fn units(&mut self, place: &Place) -> Result<Vec<Unit>> {
        let leaves = self.shapes.leaves(place.shape);
        if leaves > MAX_LEAVES {
            return Err(too_large());
        }
        let mut units = Vec::new();
        match &place.base {
            Base::Bound(buffer) => {
                let address =
                    Address { memory: Memory::Buffer(*buffer), terms: place.terms.clone(), offset: place.offset };
                self.bound_units(place.shape, address, &mut units)?;
            }
            Base::Units { shared, first, unit, dims } => {
                let lane = unit & LANE != 0;
                let mut walk = UnitWalk { shared: *shared, next: first + (unit & !LANE), lane, dims: dims.clone() };
                self.own_units(place, place.shape, &mut walk, &mut units)?;
            }
        }
        Ok(units)
    }

    fn bound_units(&self, shape: ShapeId, address: Address, out: &mut Vec<Unit>) -> Result<()> {
        let moved = |by: u32| -> Result<Address> {
            let mut address = address.clone();
            address.offset = address.offset.checked_add(by).ok_or_else(too_large)?;
            Ok(address)
        };
        match self.shapes.get(shape) {
            Shape::Vector(element, width) => {
                let size = element.bits() / 8;
                let align = size * spaced(*width);
                let aligned = *width == 1
                    || (address.offset.is_multiple_of(align)
                        && address.terms.iter().all(|(_, stride)| stride.is_multiple_of(align)));
                if aligned {
                    out.push(Unit { address, element: *element, width: *width });
                } else {
                    for lane in 0..u32::from(*width) {
                        out.push(Unit { address: moved(lane * size)?, element: *element, width: 1 });
                    }
                }
            }
            Shape::Struct(members) => {
                for (member, offset) in members {
                    self.bound_units(*member, moved(*offset)?, out)?;
                }
            }
            Shape::Array { element, count, stride } => {
                for i in 0..count.unwrap_or(0) {
                    let by = i.checked_mul(*stride).ok_or_else(too_large)?;
                    self.bound_units(*element, moved(by)?, out)?;
                }
            }
        }
        Ok(())
    }

    fn own_units(&mut self, place: &Place, shape: ShapeId, walk: &mut UnitWalk, out: &mut Vec<Unit>) -> Result<()> {
        match self.shapes.get(shape).clone() {
            Shape::Vector(element, width) => {
                let memory =
                    if walk.shared { &self.shared[walk.next as usize] } else { &self.locals[walk.next as usize] };
                let full = memory.element.map_or(width, |(_, width)| width);
                let mut stride = if element.bits() == 4 { 1 } else { element.bits() / 8 * spaced(full) };
                let memory = if walk.shared { Memory::Shared(walk.next) } else { Memory::Local(walk.next) };
                let mut at = self.place(Base::Bound(0), shape);
                for (term, count) in walk.dims.clone().into_iter().rev() {
                    self.advance(&mut at, term, stride);
                    stride = stride.saturating_mul(count);
                }
                at.terms.reverse();
                if walk.lane {
                    at.terms.extend(place.terms.iter().copied());
                    at.offset += place.offset;
                }
                out.push(Unit { address: Address { memory, terms: at.terms, offset: at.offset }, element, width });
                walk.next += 1;
            }
            Shape::Struct(members) => {
                for (member, _) in members {
                    self.own_units(place, member, walk, out)?;
                }
            }
            Shape::Array { element, count, .. } => {
                let count = count.unwrap_or(0);
                let first = walk.next;
                for i in 0..count {
                    walk.next = first;
                    walk.dims.push((Term::Known(i.into()), count));
                    self.own_units(place, element, walk, out)?;
                    walk.dims.pop();
                }
                walk.next = first + self.shapes.units(element);
            }
        }
        Ok(())
    }

    /// Reads a place.
    pub(super) fn read(&mut self, place: &Place) -> Result<Aggregate> {
        let shape = self.shapes.computed(place.shape);
        if place.outside {
            return self.zeros(shape);
        }
        let mut leaves = Leaves::new();
        for Unit { address, element, width } in self.units(place)? {
            let scalar = element.scalar();
            let load = Op::Load { address, element, guard: place.guard };
            let value = self.builder.emit(Type { scalar, width }, load);
            if width == 1 {
                leaves.push(value);
            } else {
                for lane in 0..width {
                    leaves.push(self.builder.emit(scalar, Op::Extract(value, lane)));
                }
            }
        }
        Ok(Aggregate { shape, leaves })
    }

    /// Writes a place.
    pub(super) fn write(&mut self, place: &Place, leaves: &[Value]) -> Result<()> {
        if place.outside {
            return Ok(());
        }
        let mut rest = leaves;
        for Unit { address, element, width } in self.units(place)? {
            let (these, others) = rest.split_at(usize::from(width).min(rest.len()));
            rest = others;
            let value = match these {
                [value] => *value,
                [first, ..] => {
                    let scalar = self.builder.scalar(*first);
                    self.builder.emit(Type { scalar, width }, Op::Construct(SmallVec::from_slice(these)))
                }
                [] => continue,
            };
            self.builder.push(Inst::Store { address, element, value, guard: place.guard });
        }
        Ok(())
    }

    /// The zero of a type.
    pub(super) fn zeros(&mut self, shape: ShapeId) -> Result<Aggregate> {
        if self.shapes.leaves(shape) > MAX_LEAVES {
            return Err(too_large());
        }
        let mut types = Vec::new();
        self.shapes.push_leaf_types(shape, &mut types);
        let leaves = types.into_iter().map(|ty| self.builder.zero(ty)).collect();
        Ok(Aggregate { shape, leaves })
    }

    pub(super) fn store(&mut self, buffer: &str, index: &'a Expr, path: &'a [Access], value: Aggregate) -> Result<()> {
        let mut place = self.buffer_place(buffer, index)?;
        self.follow(&mut place, path)?;
        self.write(&place, &value.leaves)
    }

    #[allow(clippy::too_many_arguments)] // the parts of one statement
    pub(super) fn atomic(
        &mut self,
        op: AtomicOp,
        buffer: &str,
        index: &'a Expr,
        path: &'a [Access],
        value: Option<&'a Expr>,
        compare: Option<&'a Expr>,
        wanted: bool,
    ) -> Result<Option<Aggregate>> {
        let value = value.map(|value| self.scalar_expr(value)).transpose()?;
        let compare = compare.map(|compare| self.scalar_expr(compare)).transpose()?;
        let mut place = self.buffer_place(buffer, index)?;
        self.follow(&mut place, path)?;
        if place.outside {
            return if wanted { self.zeros(self.shapes.computed(place.shape)).map(Some) } else { Ok(None) };
        }
        let Some(Unit { address, element, .. }) = self.units(&place)?.pop() else { return Ok(None) };
        let scalar = element.scalar();
        let result = (wanted || op == AtomicOp::Load).then(|| self.builder.value(scalar));
        self.builder.push(Inst::Atomic { op, address, element, value, compare, result, guard: place.guard });
        Ok(result.map(|value| Aggregate { shape: ShapeId::of(scalar, 1), leaves: Leaves::from_slice(&[value]) }))
    }

    // Variables.

    /// Reads a whole variable.
    pub(super) fn read_storage(&mut self, shape: ShapeId, storage: &Storage) -> Result<Aggregate> {
        match storage {
            Storage::Slots(first) => {
                let leaves = self.shapes.leaves(shape);
                if leaves > MAX_LEAVES {
                    return Err(too_large());
                }
                Ok(Aggregate { shape, leaves: (*first..first + leaves).map(|slot| self.slot(slot)).collect() })
            }
            Storage::Memory(first) => self.read(&self.local_place(shape, *first)),
            Storage::Struct(parts) => {
                let mut leaves = Leaves::new();
                for (part, member) in parts.iter().zip(self.members(shape)) {
                    leaves.extend(self.read_storage(member, part)?.leaves);
                }
                Ok(Aggregate { shape, leaves })
            }
        }
    }

    pub(super) fn members(&self, shape: ShapeId) -> Vec<ShapeId> {
        match self.shapes.get(shape) {
            Shape::Struct(members) => members.iter().map(|(member, _)| *member).collect(),
            _ => Vec::new(),
        }
    }

    /// Sets a whole variable.
    pub(super) fn store_all(&mut self, shape: ShapeId, storage: &Storage, leaves: &[Value]) -> Result<()> {
        match storage {
            Storage::Slots(first) => {
                for (i, leaf) in leaves.iter().enumerate() {
                    self.set(first + i as u32, *leaf);
                }
                Ok(())
            }
            Storage::Memory(first) => self.write(&self.local_place(shape, *first), leaves),
            Storage::Struct(parts) => {
                let mut rest = leaves;
                for (part, member) in parts.iter().zip(self.members(shape)) {
                    let (these, others) = rest.split_at((self.shapes.leaves(member) as usize).min(rest.len()));
                    self.store_all(member, part, these)?;
                    rest = others;
                }
                Ok(())
            }
        }
    }

    /// Sets a whole variable to zero; memory that is `fresh` is zero already.
    pub(super) fn zero_all(&mut self, shape: ShapeId, storage: &Storage, fresh: bool) -> Result<()> {
        match storage {
            Storage::Slots(_) => {
                let zeros = self.zeros(shape)?;
                self.store_all(shape, storage, &zeros.leaves)
            }
            Storage::Memory(first) => {
                if !fresh {
                    for memory in *first..first + self.shapes.units(shape) {
                        self.clear(memory);
                    }
                }
                Ok(())
            }
            Storage::Struct(parts) => {
                for (part, member) in parts.iter().zip(self.members(shape)) {
                    self.zero_all(member, part, fresh)?;
                }
                Ok(())
            }
        }
    }

    /// Stores zero to every element of a local memory.
    fn clear(&mut self, memory: u32) {
        let local = &self.locals[memory as usize];
        let (size, Some((element, width))) = (local.size, local.element) else { return };
        let (stride, count) = match element.bits() {
            4 => (1, size * 2),
            bits => (bits / 8 * spaced(width), size / (bits / 8 * spaced(width))),
        };
        let scalar = element.scalar();
        let mut zero = self.builder.zero(scalar);
        if width > 1 {
            let parts = SmallVec::from_elem(zero, width.into());
            zero = self.builder.emit(Type { scalar, width }, Op::Construct(parts));
        }
        let store = |terms, offset| Inst::Store {
            address: Address { memory: Memory::Local(memory), terms, offset },
            element,
            value: zero,
            guard: None,
        };
        if count <= CLEAR_INLINE {
            for i in 0..count {
                self.builder.push(store(SmallVec::new(), i * stride));
            }
            return;
        }
        let (from, to) = (self.builder.u32(0), self.builder.u32(count));
        let counter = Counter { value: self.builder.value(Scalar::U32), from, to, step: 1 };
        self.builder.open();
        self.builder.push(store(SmallVec::from_slice(&[(counter.value, stride)]), 0));
        let body = self.builder.close(End::Continue(Vec::new()));
        let (params, init, results) = (Vec::new(), Vec::new(), Vec::new());
        let counter = Some(counter);
        self.builder.push(Inst::Loop(Box::new(Loop {
            counter,
            params,
            init,
            body,
            results,
            finite: true,
            look: None,
            rare: false,
        })));
    }

    /// Puts a value into memory of its own, to be indexed.
    pub(super) fn spill(&mut self, value: &Aggregate) -> Result<Place> {
        let first = self.locals.len() as u32;
        let mut memories = Vec::new();
        self.unit_memories(value.shape, 1, &Name::from("value"), &mut memories)?;
        self.locals.append(&mut memories);
        let place = self.local_place(value.shape, first);
        self.write(&place, &value.leaves)?;
        Ok(place)
    }
}

/// Marks a place inside a vector.
const LANE: u32 = 1 << 31;

struct UnitWalk {
    shared: bool,
    next: u32,
    lane: bool,
    dims: SmallVec<[(Term, u32); 4]>,
}
