//! Buffers, workgroup memory and arrays, and the accesses to them.
//!
//! A memory is declared as an array of what all accesses to it have in common: of vectors where each access moves the same
//! vector, else of the scalar, else of words from which elements are put together.

use naga::{
    AddressSpace, ArraySize, AtomicFunction, BinaryOperator, Block as NagaBlock, Expression, GlobalVariable, Handle,
    LocalVariable, MathFunction, Module, ResourceBinding, ScalarKind, Span, Statement, StorageAccess, Type as NagaType,
    TypeInner,
};
use vyre_foundation::ir::AtomicOp;
use vyre_foundation::kernel::{Address, Block, Element, Inst, Kernel, Memory, Op, Scalar, Type, Value};
use vyre_spec::Diagnostic;

use super::{Emitter, insert_type, malformed, scalar_of, type_of, unsupported};

/// A memory in the module.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// What it is an array of.
    carrier: Type,
    /// Distance of its elements in bytes.
    stride: u32,
    /// Its elements are atomic.
    atomic: bool,
    /// Elements of memories whose size is known.
    count: u32,
    ty: Handle<NagaType>,
    global: Option<Handle<GlobalVariable>>,
    root: Option<Handle<Expression>>,
}

/// All memories of a kernel.
pub(super) struct Places {
    buffers: Vec<Place>,
    shared: Vec<Place>,
    locals: Vec<Place>,
}

/// What the accesses to one memory have in common.
#[derive(Clone, Copy, Default)]
struct Uses {
    /// The type, while there is only one.
    ty: Option<Type>,
    /// Accesses move different scalars.
    mixed_scalars: bool,
    /// Accesses move different widths, or lie where a whole element of that width does not.
    mixed_widths: bool,
    /// There are elements of so many bits, as a set.
    bits: u32,
    atomic: bool,
    /// f16 is stored.
    stores_half: bool,
}

/// Bytes that a vector takes in an array.
fn spaced(element_bits: u32, width: u8) -> u32 {
    u32::from(if width == 3 { 4 } else { width }) * element_bits / 8
}

impl Uses {
    fn add(&mut self, address: &Address, element: Element, width: u8) {
        let scalar = if element == Element::Bool { Scalar::U32 } else { element.scalar() };
        let ty = Type { scalar, width };
        let unit = spaced(element.bits(), width).max(1);
        let whole =
            address.offset.is_multiple_of(unit) && address.terms.iter().all(|(_, stride)| stride.is_multiple_of(unit));
        if let Some(known) = self.ty {
            self.mixed_scalars |= known.scalar != scalar;
            self.mixed_widths |= known.width != width;
        }
        self.mixed_widths |= !whole;
        self.ty = Some(ty);
        self.bits |= element.bits();
    }

    /// What the memory is an array of.
    fn carrier(&self) -> Type {
        match self.ty {
            None => Scalar::U32.into(),
            Some(ty) if self.mixed_scalars => {
                let scalar = if self.bits == 64 && ty.scalar.bits() == 64 { Scalar::U64 } else { Scalar::U32 };
                scalar.into()
            }
            Some(ty) if self.mixed_widths || self.atomic => ty.scalar.into(),
            Some(ty) => ty,
        }
    }
}

struct AllUses {
    buffers: Vec<Uses>,
    shared: Vec<Uses>,
    locals: Vec<Uses>,
}

impl AllUses {
    fn of(&mut self, memory: Memory) -> Result<&mut Uses, Diagnostic> {
        let uses = match memory {
            Memory::Buffer(index) => self.buffers.get_mut(index as usize),
            Memory::Shared(index) => self.shared.get_mut(index as usize),
            Memory::Local(index) => self.locals.get_mut(index as usize),
        };
        uses.ok_or_else(|| malformed("an access to a memory that does not exist"))
    }

    fn scan(&mut self, kernel: &Kernel, block: &Block) -> Result<(), Diagnostic> {
        let width = |value: &Value| kernel.values[value.index()].ty.width;
        for inst in &block.insts {
            match inst {
                Inst::Let(value, Op::Load { address, element, .. }) => {
                    self.of(address.memory)?.add(address, *element, width(value));
                }
                Inst::Store { address, element, value, .. } => {
                    let uses = self.of(address.memory)?;
                    uses.add(address, *element, width(value));
                    uses.stores_half |= *element == Element::F16;
                }
                Inst::Atomic { address, element, .. } => {
                    let uses = self.of(address.memory)?;
                    uses.add(address, *element, 1);
                    uses.atomic = true;
                }
                Inst::If { then, otherwise, .. } => {
                    self.scan(kernel, then)?;
                    self.scan(kernel, otherwise)?;
                }
                Inst::Loop(repeat) => self.scan(kernel, &repeat.body)?,
                Inst::Let(..) | Inst::Barrier(_) => {}
            }
        }
        Ok(())
    }
}

impl Places {
    /// Declares the memories of a kernel.
    pub(super) fn declare(kernel: &Kernel, module: &mut Module) -> Result<Places, Diagnostic> {
        let none = |count: usize| vec![Uses::default(); count];
        let mut uses = AllUses {
            buffers: none(kernel.buffers.len()),
            shared: none(kernel.shared.len()),
            locals: none(kernel.locals.len()),
        };
        uses.scan(kernel, &kernel.body)?;
        let mut places = Places { buffers: Vec::new(), shared: Vec::new(), locals: Vec::new() };
        let global = |module: &mut Module, name: &str, space, binding, ty| {
            let variable = GlobalVariable {
                name: Some(name.to_owned()),
                space,
                binding,
                ty,
                init: None,
                memory_decorations: naga::MemoryDecorations::empty(),
            };
            Some(module.global_variables.append(variable, Span::UNDEFINED))
        };
        for (index, (buffer, uses)) in kernel.buffers.iter().zip(&uses.buffers).enumerate() {
            let mut place = declare(module, uses, None)?;
            let mut access = StorageAccess::LOAD;
            if buffer.written || buffer.atomic || place.atomic {
                access |= StorageAccess::STORE;
            }
            let binding = Some(ResourceBinding { group: 0, binding: index as u32 });
            place.global = global(module, buffer.name.as_str(), AddressSpace::Storage { access }, binding, place.ty);
            places.buffers.push(place);
        }
        for (memory, uses) in kernel.shared.iter().zip(&uses.shared) {
            let mut place = declare(module, uses, Some(memory.size))?;
            place.global = global(module, memory.name.as_str(), AddressSpace::WorkGroup, None, place.ty);
            places.shared.push(place);
        }
        for (memory, uses) in kernel.locals.iter().zip(&uses.locals) {
            places.locals.push(declare(module, uses, Some(memory.size))?);
        }
        Ok(places)
    }
}

fn declare(module: &mut Module, uses: &Uses, bytes: Option<u32>) -> Result<Place, Diagnostic> {
    let carrier = uses.carrier();
    // A half of a word can only be changed without touching the other half.
    let atomic = uses.atomic || (uses.stores_half && carrier.scalar == Scalar::U32);
    let base = if atomic {
        insert_type(module, TypeInner::Atomic(scalar_of(carrier.scalar)))
    } else {
        type_of(module, carrier)
    };
    let stride = spaced(carrier.scalar.bits(), carrier.width);
    let count = bytes.map_or(0, |bytes| bytes.div_ceil(stride).max(1));
    let size = std::num::NonZeroU32::new(count).map_or(ArraySize::Dynamic, ArraySize::Constant);
    let ty = insert_type(module, TypeInner::Array { base, size, stride });
    Ok(Place { carrier, stride, atomic, count, ty, global: None, root: None })
}

impl Emitter<'_> {
    /// Makes the roots of all memories.
    pub(super) fn declare_places(&mut self) {
        for place in self.places.buffers.iter_mut().chain(&mut self.places.shared) {
            if let Some(global) = place.global {
                let root = Expression::GlobalVariable(global);
                place.root = Some(self.function.expressions.append(root, Span::UNDEFINED));
            }
        }
        for (place, memory) in self.places.locals.iter_mut().zip(&self.kernel.locals) {
            // Variables without an initial value are zero.
            let variable = LocalVariable { name: Some(memory.name.to_string()), ty: place.ty, init: None };
            let variable = self.function.local_variables.append(variable, Span::UNDEFINED);
            let root = Expression::LocalVariable(variable);
            place.root = Some(self.function.expressions.append(root, Span::UNDEFINED));
        }
    }

    /// Workgroup memory starts as zero: the invocations clear it together, then meet.
    pub(super) fn clear_shared(&mut self, out: &mut NagaBlock) -> Result<(), Diagnostic> {
        if !self.kernel.shared.iter().any(|memory| memory.cleared) {
            return Ok(());
        }
        let invocations: u32 = self.kernel.workgroup_size.iter().product();
        let first = self.argument(naga::BuiltIn::LocalInvocationIndex, self.uint);
        let places = self.places.shared.clone().into_iter().zip(&self.kernel.shared);
        for (place, _) in places.filter(|(_, memory)| memory.cleared) {
            let root = place.root.ok_or_else(|| malformed("a memory was not declared"))?;
            let value = type_of(&mut self.module, place.carrier);
            let at = self.variable(Scalar::U32.into());
            self.set(out, at, first);
            let clear = |emitter: &mut Self, out: &mut NagaBlock| {
                let index = emitter.get(out, at);
                let pointer = emitter.add(out, Expression::Access { base: root, index });
                let zero = emitter.add(out, Expression::ZeroValue(value));
                out.push(Statement::Store { pointer, value: zero }, Span::UNDEFINED);
                index
            };
            let count = self.literal(out, place.count);
            if place.count <= invocations {
                let condition = self.binary(out, BinaryOperator::Less, first, count);
                let mut accept = NagaBlock::new();
                clear(self, &mut accept);
                out.push(Statement::If { condition, accept, reject: NagaBlock::new() }, Span::UNDEFINED);
                continue;
            }
            // More elements than invocations, so each clears at least one.
            let mut body = NagaBlock::new();
            let index = clear(self, &mut body);
            let step = self.literal(&mut body, invocations);
            let next = self.binary(&mut body, BinaryOperator::Add, index, step);
            self.set(&mut body, at, next);
            let mut continuing = NagaBlock::new();
            let next = self.get(&mut continuing, at);
            let done = self.binary(&mut continuing, BinaryOperator::GreaterEqual, next, count);
            out.push(Statement::Loop { body, continuing, break_if: Some(done) }, Span::UNDEFINED);
        }
        out.push(Statement::ControlBarrier(naga::Barrier::WORK_GROUP), Span::UNDEFINED);
        Ok(())
    }

    fn place(&self, memory: Memory) -> Result<(Place, Handle<Expression>), Diagnostic> {
        let place = match memory {
            Memory::Buffer(index) => self.places.buffers.get(index as usize),
            Memory::Shared(index) => self.places.shared.get(index as usize),
            Memory::Local(index) => self.places.locals.get(index as usize),
        };
        let place = place.ok_or_else(|| malformed("an access to a memory that does not exist"))?;
        let root = place.root.ok_or_else(|| malformed("a memory was not declared"))?;
        Ok((*place, root))
    }

    /// `(offset + plus + Σ index · stride) / unit`, where every part is a multiple of `unit`. Buffers have less than 2³²
    /// elements, so 32 bits are enough.
    fn scaled(
        &mut self,
        out: &mut NagaBlock,
        address: &Address,
        plus: u32,
        unit: u32,
    ) -> Result<Handle<Expression>, Diagnostic> {
        let constant = (address.offset + plus) / unit;
        let mut sum = None;
        for &(value, stride) in &address.terms {
            let mut index = self.value(value)?;
            if self.ty(value).scalar == Scalar::U64 {
                index = self.add(out, Expression::As { expr: index, kind: ScalarKind::Uint, convert: Some(4) });
            }
            let term = if stride == unit {
                index
            } else {
                let stride = self.literal(out, stride / unit);
                self.binary(out, BinaryOperator::Multiply, index, stride)
            };
            sum = Some(match sum {
                Some(sum) => self.binary(out, BinaryOperator::Add, sum, term),
                None => term,
            });
        }
        Ok(match sum {
            None => self.literal(out, constant),
            Some(sum) if constant == 0 => sum,
            Some(sum) => {
                let constant = self.literal(out, constant);
                self.binary(out, BinaryOperator::Add, sum, constant)
            }
        })
    }

    fn read(&mut self, out: &mut NagaBlock, base: Handle<Expression>, index: Handle<Expression>) -> Handle<Expression> {
        let pointer = self.add(out, Expression::Access { base, index });
        self.add(out, Expression::Load { pointer })
    }

    /// A scalar as the type that is stored in its place, where both have the same bits.
    fn carried(
        &mut self,
        out: &mut NagaBlock,
        from: Scalar,
        carrier: Scalar,
        expr: Handle<Expression>,
    ) -> Handle<Expression> {
        match from {
            Scalar::Bool => {
                let (one, zero) = (self.literal(out, 1), self.literal(out, 0));
                self.add(out, Expression::Select { condition: expr, accept: one, reject: zero })
            }
            _ if from == carrier => expr,
            _ => self.add(out, Expression::As { expr, kind: scalar_of(carrier).kind, convert: None }),
        }
    }

    /// The other way.
    fn uncarried(
        &mut self,
        out: &mut NagaBlock,
        carrier: Scalar,
        to: Scalar,
        expr: Handle<Expression>,
    ) -> Handle<Expression> {
        match to {
            Scalar::Bool => {
                let zero = self.literal(out, 0);
                self.binary(out, BinaryOperator::NotEqual, expr, zero)
            }
            _ if to == carrier => expr,
            _ => self.add(out, Expression::As { expr, kind: scalar_of(to).kind, convert: None }),
        }
    }

    /// The word that a half lies in, and the shift to it.
    fn half_in_word(
        &mut self,
        out: &mut NagaBlock,
        address: &Address,
        plus: u32,
    ) -> Result<(Handle<Expression>, Handle<Expression>), Diagnostic> {
        let half = self.scaled(out, address, plus, 2)?;
        let (one, four) = (self.literal(out, 1), self.literal(out, 4));
        let index = self.binary(out, BinaryOperator::ShiftRight, half, one);
        let odd = self.binary(out, BinaryOperator::And, half, one);
        Ok((index, self.binary(out, BinaryOperator::ShiftLeft, odd, four)))
    }

    /// One scalar from an array of scalars.
    fn load_scalar(
        &mut self,
        out: &mut NagaBlock,
        place: &Place,
        root: Handle<Expression>,
        address: &Address,
        element: Element,
        plus: u32,
    ) -> Result<Handle<Expression>, Diagnostic> {
        let (carrier, scalar) = (place.carrier.scalar, element.scalar());
        if element.bits() == carrier.bits() {
            let index = self.scaled(out, address, plus, place.stride)?;
            let loaded = self.read(out, root, index);
            return Ok(self.uncarried(out, carrier, scalar, loaded));
        }
        match element.bits() {
            16 if element == Element::F16 => {
                let (index, shift) = self.half_in_word(out, address, plus)?;
                let word = self.read(out, root, index);
                let bits = self.binary(out, BinaryOperator::ShiftRight, word, shift);
                Ok(self.half_from_bits(out, bits))
            }
            64 => {
                let index = self.scaled(out, address, plus, 4)?;
                let low = self.read(out, root, index);
                let one = self.literal(out, 1);
                let next = self.binary(out, BinaryOperator::Add, index, one);
                let high = self.read(out, root, next);
                let bits = self.join(out, low, high);
                Ok(self.uncarried(out, Scalar::U64, scalar, bits))
            }
            _ => Err(malformed("a narrow element was not expanded")),
        }
    }

    /// The components of a value, or the whole vector.
    fn load_unguarded(
        &mut self,
        out: &mut NagaBlock,
        ty: Type,
        address: &Address,
        element: Element,
    ) -> Result<Vec<Handle<Expression>>, Diagnostic> {
        let (place, root) = self.place(address.memory)?;
        if place.carrier.width > 1 {
            let index = self.scaled(out, address, 0, place.stride)?;
            let whole = self.read(out, root, index);
            let mut components = Vec::with_capacity(usize::from(ty.width));
            for lane in 0..u32::from(ty.width) {
                let part = self.add(out, Expression::AccessIndex { base: whole, index: lane });
                components.push(self.uncarried(out, place.carrier.scalar, element.scalar(), part));
            }
            return Ok(components);
        }
        let bytes = element.bits() / 8;
        (0..u32::from(ty.width))
            .map(|lane| self.load_scalar(out, &place, root, address, element, lane * bytes))
            .collect()
    }

    pub(super) fn load(
        &mut self,
        out: &mut NagaBlock,
        value: Value,
        address: &Address,
        element: Element,
        guard: Option<Value>,
    ) -> Result<(), Diagnostic> {
        let ty = self.ty(value);
        let mut components = match guard {
            None => self.load_unguarded(out, ty, address, element)?,
            Some(guard) => {
                let zero = self.zero(out, ty.scalar)?;
                let variables: Vec<_> = (0..ty.width).map(|_| self.variable(ty.scalar.into())).collect();
                for &variable in &variables {
                    self.set(out, variable, zero);
                }
                let condition = self.value(guard)?;
                let mut accept = NagaBlock::new();
                let loaded = self.load_unguarded(&mut accept, ty, address, element)?;
                for (&variable, loaded) in variables.iter().zip(loaded) {
                    self.set(&mut accept, variable, loaded);
                }
                out.push(Statement::If { condition, accept, reject: NagaBlock::new() }, Span::UNDEFINED);
                variables.iter().map(|&variable| self.get(out, variable)).collect()
            }
        };
        // An array that starts as zero, and where it was stored to is known.
        if matches!(address.memory, Memory::Local(_)) && ty.scalar.is_float() {
            for component in &mut components {
                *component = self.hide_float(out, ty.scalar, *component)?;
            }
        }
        match components[..] {
            [only] => self.values[value.index()] = Some(only),
            _ => _ = self.wide.insert(value, components),
        }
        Ok(())
    }

    pub(super) fn store(
        &mut self,
        out: &mut NagaBlock,
        address: &Address,
        element: Element,
        value: Value,
        guard: Option<Value>,
    ) -> Result<(), Diagnostic> {
        if let Some(guard) = guard {
            let condition = self.value(guard)?;
            let mut accept = NagaBlock::new();
            self.store(&mut accept, address, element, value, None)?;
            out.push(Statement::If { condition, accept, reject: NagaBlock::new() }, Span::UNDEFINED);
            return Ok(());
        }
        let (place, root) = self.place(address.memory)?;
        let (ty, carrier) = (self.ty(value), place.carrier);
        if carrier.width > 1 {
            let mut components = Vec::with_capacity(usize::from(ty.width));
            for lane in 0..ty.width {
                let part = self.component(out, value, lane)?;
                components.push(self.carried(out, element.scalar(), carrier.scalar, part));
            }
            let vector = type_of(&mut self.module, carrier);
            let whole = self.add(out, Expression::Compose { ty: vector, components });
            let index = self.scaled(out, address, 0, place.stride)?;
            let pointer = self.add(out, Expression::Access { base: root, index });
            out.push(Statement::Store { pointer, value: whole }, Span::UNDEFINED);
            return Ok(());
        }
        for lane in 0..ty.width {
            let part = self.component(out, value, lane)?;
            let plus = u32::from(lane) * element.bits() / 8;
            if element.bits() == carrier.scalar.bits() {
                let stored = self.carried(out, element.scalar(), carrier.scalar, part);
                let index = self.scaled(out, address, plus, place.stride)?;
                let pointer = self.add(out, Expression::Access { base: root, index });
                out.push(Statement::Store { pointer, value: stored }, Span::UNDEFINED);
                continue;
            }
            match element.bits() {
                16 if element == Element::F16 => self.store_half(out, root, address, plus, part)?,
                64 => {
                    let bits = self.carried(out, element.scalar(), Scalar::U64, part);
                    let (low, high) = self.split(out, bits);
                    let index = self.scaled(out, address, plus, 4)?;
                    let one = self.literal(out, 1);
                    let next = self.binary(out, BinaryOperator::Add, index, one);
                    for (index, value) in [(index, low), (next, high)] {
                        let pointer = self.add(out, Expression::Access { base: root, index });
                        out.push(Statement::Store { pointer, value }, Span::UNDEFINED);
                    }
                }
                _ => return Err(malformed("a narrow element was not expanded")),
            }
        }
        Ok(())
    }

    /// Changes one half of a word; others may be changing the other half at the same time.
    fn store_half(
        &mut self,
        out: &mut NagaBlock,
        root: Handle<Expression>,
        address: &Address,
        plus: u32,
        value: Handle<Expression>,
    ) -> Result<(), Diagnostic> {
        let bits = self.half_to_bits(out, value);
        let (index, shift) = self.half_in_word(out, address, plus)?;
        let pointer = self.add(out, Expression::Access { base: root, index });
        let mask = self.literal(out, 0xffff);
        let mask = self.binary(out, BinaryOperator::ShiftLeft, mask, shift);
        let kept = self.add(out, Expression::Unary { op: naga::UnaryOperator::BitwiseNot, expr: mask });
        let bits = self.binary(out, BinaryOperator::ShiftLeft, bits, shift);
        for (fun, value) in [(AtomicFunction::And, kept), (AtomicFunction::InclusiveOr, bits)] {
            let result = self.add(out, Expression::AtomicResult { ty: self.uint, comparison: false });
            out.push(Statement::Atomic { pointer, fun, value, result: Some(result) }, Span::UNDEFINED);
        }
        Ok(())
    }

    pub(super) fn atomic(&mut self, inst: &Inst, out: &mut NagaBlock) -> Result<(), Diagnostic> {
        let Inst::Atomic { result, guard, element, .. } = inst else {
            return Err(malformed("not an atomic operation"));
        };
        let Some(guard) = guard else {
            let made = self.atomic_unguarded(out, inst)?;
            if let (Some(result), Some(made)) = (result, made) {
                self.values[result.index()] = Some(made);
            }
            return Ok(());
        };
        let condition = self.value(*guard)?;
        let mut accept = NagaBlock::new();
        let made = self.atomic_unguarded(&mut accept, inst)?;
        let Some((result, made)) = result.zip(made) else {
            out.push(Statement::If { condition, accept, reject: NagaBlock::new() }, Span::UNDEFINED);
            return Ok(());
        };
        let scalar = element.scalar();
        let variable = self.variable(scalar.into());
        let ty = type_of(&mut self.module, scalar.into());
        let zero = self.add(out, Expression::ZeroValue(ty));
        self.set(out, variable, zero);
        self.set(&mut accept, variable, made);
        out.push(Statement::If { condition, accept, reject: NagaBlock::new() }, Span::UNDEFINED);
        let loaded = self.get(out, variable);
        self.values[result.index()] = Some(loaded);
        Ok(())
    }

    fn atomic_unguarded(&mut self, out: &mut NagaBlock, inst: &Inst) -> Result<Option<Handle<Expression>>, Diagnostic> {
        let Inst::Atomic { op, address, element, value, compare, .. } = inst else {
            return Err(malformed("not an atomic operation"));
        };
        let (place, root) = self.place(address.memory)?;
        let (scalar, carrier) = (element.scalar(), place.carrier.scalar);
        if scalar.bits() != carrier.bits() {
            return Err(unsupported("64-bit atomic operations on members of structs that have others of 32 bits"));
        }
        let index = self.scaled(out, address, 0, place.stride)?;
        let pointer = self.add(out, Expression::Access { base: root, index });
        let mut operand = |emitter: &mut Self, value: &Option<Value>| {
            let value = value.ok_or_else(|| malformed("an atomic operation lacks an operand"))?;
            let expr = emitter.value(value)?;
            Ok(emitter.carried(out, scalar, carrier, expr))
        };
        let (fun, value) = match op {
            AtomicOp::Load => {
                let loaded = self.add(out, Expression::Load { pointer });
                return Ok(Some(self.uncarried(out, carrier, scalar, loaded)));
            }
            AtomicOp::Store => {
                let value = operand(self, value)?;
                out.push(Statement::Store { pointer, value }, Span::UNDEFINED);
                return Ok(None);
            }
            AtomicOp::Min | AtomicOp::Max if scalar != carrier => {
                let value = operand(self, value)?;
                let old = self.compare_and_swap(out, pointer, *op, scalar, carrier, value)?;
                return Ok(Some(self.uncarried(out, carrier, scalar, old)));
            }
            AtomicOp::Add => (AtomicFunction::Add, operand(self, value)?),
            AtomicOp::Sub => (AtomicFunction::Subtract, operand(self, value)?),
            AtomicOp::Min => (AtomicFunction::Min, operand(self, value)?),
            AtomicOp::Max => (AtomicFunction::Max, operand(self, value)?),
            AtomicOp::And => (AtomicFunction::And, operand(self, value)?),
            AtomicOp::Or => (AtomicFunction::InclusiveOr, operand(self, value)?),
            AtomicOp::Xor => (AtomicFunction::ExclusiveOr, operand(self, value)?),
            AtomicOp::Exchange => (AtomicFunction::Exchange { compare: None }, operand(self, value)?),
            AtomicOp::CompareExchange => {
                let compare = operand(self, compare)?;
                (AtomicFunction::Exchange { compare: Some(compare) }, operand(self, value)?)
            }
        };
        let old = self.change(out, pointer, fun, carrier, value).0;
        Ok(Some(self.uncarried(out, carrier, scalar, old)))
    }

    /// One atomic change: the old value and, for an exchange that compares, whether it took place.
    fn change(
        &mut self,
        out: &mut NagaBlock,
        pointer: Handle<Expression>,
        fun: AtomicFunction,
        carrier: Scalar,
        value: Handle<Expression>,
    ) -> (Handle<Expression>, Option<Handle<Expression>>) {
        let comparison = matches!(fun, AtomicFunction::Exchange { compare: Some(_) });
        let ty = if comparison {
            let scalar = scalar_of(carrier);
            self.module.generate_predeclared_type(naga::PredeclaredType::AtomicCompareExchangeWeakResult(scalar))
        } else {
            type_of(&mut self.module, carrier.into())
        };
        let result = self.add(out, Expression::AtomicResult { ty, comparison });
        out.push(Statement::Atomic { pointer, fun, value, result: Some(result) }, Span::UNDEFINED);
        if !comparison {
            return (result, None);
        }
        let old = self.add(out, Expression::AccessIndex { base: result, index: 0 });
        (old, Some(self.add(out, Expression::AccessIndex { base: result, index: 1 })))
    }

    /// The smaller or larger of what is there and a value of another signedness than the memory has.
    fn compare_and_swap(
        &mut self,
        out: &mut NagaBlock,
        pointer: Handle<Expression>,
        op: AtomicOp,
        scalar: Scalar,
        carrier: Scalar,
        value: Handle<Expression>,
    ) -> Result<Handle<Expression>, Diagnostic> {
        let seen = self.variable(carrier.into());
        let first = self.add(out, Expression::Load { pointer });
        self.set(out, seen, first);
        let mut body = NagaBlock::new();
        self.spend_round(&mut body)?;
        let now = self.get(&mut body, seen);
        let left = self.uncarried(&mut body, carrier, scalar, now);
        let right = self.uncarried(&mut body, carrier, scalar, value);
        let operator = if op == AtomicOp::Min { BinaryOperator::Less } else { BinaryOperator::Greater };
        let keep = self.binary(&mut body, operator, left, right);
        let wanted = self.add(&mut body, Expression::Select { condition: keep, accept: now, reject: value });
        let fun = AtomicFunction::Exchange { compare: Some(now) };
        let (old, exchanged) = self.change(&mut body, pointer, fun, carrier, wanted);
        self.set(&mut body, seen, old);
        if let Some(condition) = exchanged {
            let mut accept = NagaBlock::new();
            accept.push(Statement::Break, Span::UNDEFINED);
            body.push(Statement::If { condition, accept, reject: NagaBlock::new() }, Span::UNDEFINED);
        }
        out.push(Statement::Loop { body, continuing: NagaBlock::new(), break_if: None }, Span::UNDEFINED);
        Ok(self.get(out, seen))
    }

    /// An f16 from the low half of a word.
    pub(super) fn half_from_bits(&mut self, out: &mut NagaBlock, bits: Handle<Expression>) -> Handle<Expression> {
        let pair = self.call(out, MathFunction::Unpack2x16float, &[bits]);
        let wide = self.add(out, Expression::AccessIndex { base: pair, index: 0 });
        self.add(out, Expression::As { expr: wide, kind: ScalarKind::Float, convert: Some(2) })
    }

    /// The bits of an f16 as a word.
    pub(super) fn half_to_bits(&mut self, out: &mut NagaBlock, half: Handle<Expression>) -> Handle<Expression> {
        let wide = self.add(out, Expression::As { expr: half, kind: ScalarKind::Float, convert: Some(4) });
        let zero = self.add(out, Expression::Literal(naga::Literal::F32(0.0)));
        let ty = type_of(&mut self.module, Type { scalar: Scalar::F32, width: 2 });
        let pair = self.add(out, Expression::Compose { ty, components: vec![wide, zero] });
        self.call(out, MathFunction::Pack2x16float, &[pair])
    }
}
