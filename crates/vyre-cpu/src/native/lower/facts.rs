//! What is known of a kernel before any code is made. Nothing here changes while it is lowered.

use std::collections::HashMap;

use vyre_foundation::kernel::{Binary, Block, ByteDot, End, Inst, Kernel, Memory, Op, Scalar, Unary, Value, byte_dots};

use super::super::asm::Len;
use super::super::hash::Map;
use super::super::isa::Isa;
use super::super::shape::{Shape, Shapes};
use super::bounds::Makers;
use super::{Lower, Tiling};

pub(super) struct Facts<'k> {
    pub(super) kernel: &'k Kernel,
    pub(super) isa: Isa,
    pub(super) shapes: &'k Shapes,
    pub(super) tiling: Tiling,
    /// First column of each value, and behind the last.
    pub(super) columns: Vec<u32>,
    pub(super) uses: Vec<u32>,
    /// How often a value is named in the kernel, whatever else needs its registers.
    pub(super) named: Vec<u32>,
    pub(super) makers: Makers<'k>,
    /// Negations that stand before the `fma` that alone uses them, with what they negate.
    pub(super) negated: Map<Value, Value>,
    /// Whether the highest bit of a number of 32 bits matters to what is made of it.
    pub(super) highest_read: Vec<bool>,
    /// Conversions to unsigned numbers of what stands right before them and is bounded by zero.
    pub(super) bounded: Map<Value, Bounded>,
    /// Selections of what is the greater or the lesser of two in some lanes.
    pub(super) ends: Map<Value, ChosenEnd>,
    /// Numbers that are one more where something holds.
    pub(super) counted: Map<Value, Counted>,
    /// Sums of products of bytes.
    pub(super) dots: HashMap<Value, ByteDot>,
}

impl<'k> Facts<'k> {
    pub(super) fn of(kernel: &'k Kernel, isa: Isa, shapes: &'k Shapes, tiling: Tiling) -> Facts<'k> {
        let mut columns = Vec::with_capacity(kernel.values.len() + 1);
        columns.push(0);
        columns.extend(kernel.values.iter().scan(0, |end, info| {
            *end += u32::from(info.ty.width);
            Some(*end)
        }));
        let mut uses = vec![0; kernel.values.len()];
        count_uses(&kernel.body, &mut uses);
        let makers = Makers::of(kernel);
        Facts {
            kernel,
            isa,
            shapes,
            tiling,
            columns,
            highest_read: highest_read(kernel, &makers),
            bounded: bounded(&makers, kernel, &uses),
            ends: chosen_ends(&makers, kernel),
            counted: counted(&makers, kernel),
            makers,
            negated: negated(&kernel.body, &uses),
            // Cranelift has other instructions for it.
            dots: if isa == Isa::Simd128 { HashMap::new() } else { byte_dots(kernel) },
            named: uses.clone(),
            uses,
        }
    }
}

impl Lower<'_> {
    pub(super) fn lanes(&self) -> u32 {
        self.facts.isa.lanes()
    }

    pub(super) fn len(&self) -> Len {
        self.facts.isa.len()
    }

    pub(super) fn scalar_of(&self, value: Value) -> Scalar {
        self.facts.kernel.values[value.index()].ty.scalar
    }

    pub(super) fn width_of(&self, value: Value) -> u8 {
        self.facts.kernel.values[value.index()].ty.width
    }

    pub(super) fn shape_of(&self, value: Value) -> Shape {
        self.shapes().of(value)
    }

    /// How values change in the block at hand.
    pub(super) fn shapes(&self) -> &Shapes {
        self.active.even.as_deref().unwrap_or(self.facts.shapes)
    }
}

/// Negations that stand right before the `fma` that alone uses them.
fn negated(block: &Block, uses: &[u32]) -> Map<Value, Value> {
    let mut found = Map::default();
    each_block(block, &mut |block| {
        for pair in block.insts.windows(2) {
            if let [Inst::Let(minus, Op::Unary(Unary::Neg, of)), Inst::Let(_, Op::Fma(a, _, c))] = pair
                && (minus == a) != (minus == c)
                && uses[minus.index()] == 1
            {
                found.insert(*minus, *of);
            }
        }
    });
    found
}

/// What is bounded by zero, and then by a number above it.
#[derive(Clone, Copy)]
pub(super) struct Bounded {
    pub(super) of: Value,
    pub(super) most: Option<Value>,
}

/// Conversions of f32 that stand right after bounds which nothing else uses.
fn bounded(makers: &Makers<'_>, kernel: &Kernel, uses: &[u32]) -> Map<Value, Bounded> {
    let number = |value: Value| makers.constant(value).map(f32::from_bits);
    // Which one is NaN does not matter: of that comes zero.
    let from_zero_on = |value: Value| match makers.ops[value.index()]? {
        Op::Binary(Binary::Max, a, b) if uses[value.index()] == 1 => {
            let is_bound = |value: Value| number(value).is_some_and(|bound| bound <= 0.0);
            if is_bound(*b) { Some(*a) } else { Some(*b).filter(|_| is_bound(*a)) }
        }
        _ => None,
    };
    let mut found = Map::default();
    each_block(&kernel.body, &mut |block| {
        for (at, inst) in block.insts.iter().enumerate() {
            let stands_before = |value: Value, by: usize| {
                at >= by && matches!(block.insts[at - by], Inst::Let(other, _) if other == value)
            };
            let Inst::Let(value, Op::Cast(a)) = *inst else { continue };
            let scalar = |value: Value| kernel.values[value.index()].ty.scalar;
            if scalar(a) != Scalar::F32 || scalar(value) != Scalar::U32 || !stands_before(a, 1) {
                continue;
            }
            if let Some(of) = from_zero_on(a) {
                found.insert(value, Bounded { of, most: None });
            } else if let Some(&Op::Binary(Binary::Min, inner, most)) = makers.ops[a.index()]
                && uses[a.index()] == 1
                && number(most).is_some_and(|most| most >= 0.0)
                && stands_before(inner, 2)
                && let Some(of) = from_zero_on(inner)
            {
                found.insert(value, Bounded { of, most: Some(most) });
            }
        }
    });
    found
}

/// The values whose highest of 32 bits something is made of. Sums, products and differences in bits are the same but for that bit where what they
/// are made of is.
fn highest_read(kernel: &Kernel, makers: &Makers<'_>) -> Vec<bool> {
    let constant = |value: Value| match makers.ops[value.index()] {
        Some(Op::Const(literal)) => Some(literal.bits() as u32),
        _ => None,
    };
    fn mark(
        block: &Block,
        constant: &dyn Fn(Value) -> Option<u32>,
        is_word: &dyn Fn(Value) -> bool,
        read: &mut [bool],
    ) {
        match &block.end {
            End::Yield(values) | End::Continue(values) | End::Break(values) => {
                values.iter().for_each(|value| read[value.index()] = true);
            }
            End::Return | End::Unreachable => {}
        }
        // What a value is used for comes after it.
        for inst in block.insts.iter().rev() {
            match inst {
                Inst::Let(
                    value,
                    Op::Binary(Binary::Add | Binary::Sub | Binary::Mul | Binary::Xor, _, _) | Op::BitCast(_),
                ) if is_word(*value) && !read[value.index()] => {}
                Inst::Let(value, Op::Binary(Binary::Shl, _, count))
                    if is_word(*value) && constant(*count).is_some_and(|by| by % u32::BITS > 0) =>
                {
                    read[count.index()] = true;
                }
                Inst::Let(value, Op::Binary(Binary::And, _, bits))
                    if is_word(*value) && constant(*bits).is_some_and(|bits| bits >> 31 == 0) =>
                {
                    read[bits.index()] = true;
                }
                Inst::If { cond, then, otherwise, .. } => {
                    read[cond.index()] = true;
                    mark(then, constant, is_word, read);
                    mark(otherwise, constant, is_word, read);
                }
                Inst::Loop(inner) => {
                    inner.init.iter().for_each(|value| read[value.index()] = true);
                    if let Some(counter) = &inner.counter {
                        read[counter.from.index()] = true;
                        read[counter.to.index()] = true;
                    }
                    mark(&inner.body, constant, is_word, read);
                }
                inst => visit_inst_values(inst, &mut |value| read[value.index()] = true),
            }
        }
    }
    let is_word = |value: Value| matches!(kernel.values[value.index()].ty.scalar, Scalar::U32 | Scalar::I32);
    let mut read = vec![false; kernel.values.len()];
    mark(&kernel.body, &constant, &is_word, &mut read);
    read
}

/// The greater or the lesser of two numbers where a condition holds, else another one.
#[derive(Clone, Copy)]
pub(super) struct ChosenEnd {
    pub(super) cond: Value,
    pub(super) greater: bool,
    pub(super) ends: (Value, Value),
    pub(super) no: Value,
}

/// Selections `c && x < y ? x : c ? y : z`: the latter one stands right before, and where `c` holds it is the lesser of `x` and `y`.
fn chosen_ends(makers: &Makers<'_>, kernel: &Kernel) -> Map<Value, ChosenEnd> {
    let mut found = Map::default();
    each_block(&kernel.body, &mut |block| {
        for pair in block.insts.windows(2) {
            let &[Inst::Let(inner, Op::Select(cond, y, no)), Inst::Let(value, Op::Select(both, x, other))] = pair
            else {
                continue;
            };
            let Some(&Op::Binary(Binary::And, p, q)) = makers.ops[both.index()] else { continue };
            let rest = if p == cond { q } else { p };
            let Some(&Op::Binary(Binary::Lt, less, more)) = makers.ops[rest.index()] else { continue };
            let is_word = matches!(kernel.values[value.index()].ty.scalar, Scalar::F32 | Scalar::U32 | Scalar::I32);
            if is_word
                && other == inner
                && (p == cond || q == cond)
                && ((x, y) == (less, more) || (y, x) == (less, more))
            {
                // As `min` and `max` are defined, NaN and zeros included.
                let (greater, ends) = if x == less { (false, (more, less)) } else { (true, (less, more)) };
                found.insert(value, ChosenEnd { cond, greater, ends, no });
            }
        }
    });
    found
}

/// A number to which one is added where a bool holds.
#[derive(Clone, Copy)]
pub(super) struct Counted {
    pub(super) of: Value,
    pub(super) holds: Value,
}

/// Sums with a bool that becomes a number right before, and numbers whose lowest bit is set where a bool holds.
fn counted(makers: &Makers<'_>, kernel: &Kernel) -> Map<Value, Counted> {
    let scalar = |value: Value| kernel.values[value.index()].ty.scalar;
    let ends_in_zero = |value: Value| match makers.ops[value.index()] {
        Some(Op::Binary(Binary::Shl, _, by)) => makers.constant(*by).is_some_and(|by| by & 31 != 0),
        _ => false,
    };
    let mut found = Map::default();
    each_block(&kernel.body, &mut |block| {
        for pair in block.insts.windows(2) {
            let &[Inst::Let(one, Op::Cast(holds)), Inst::Let(value, Op::Binary(op, a, b))] = pair else { continue };
            let of = if b == one { a } else { b };
            let is_count = match op {
                Binary::Add => true,
                Binary::Or => ends_in_zero(of),
                _ => false,
            };
            let is_word = matches!(scalar(value), Scalar::U32 | Scalar::I32) && scalar(holds) == Scalar::Bool;
            if is_word && is_count && (a == one) != (b == one) {
                found.insert(value, Counted { of, holds });
            }
        }
    });
    found
}

/// Shows a block and the blocks in it.
fn each_block<'k>(block: &'k Block, f: &mut dyn FnMut(&'k Block)) {
    f(block);
    for inst in &block.insts {
        match inst {
            Inst::If { then, otherwise, .. } => {
                each_block(then, f);
                each_block(otherwise, f);
            }
            Inst::Loop(inner) => each_block(&inner.body, f),
            _ => {}
        }
    }
}

fn count_uses(block: &Block, uses: &mut [u32]) {
    visit_values(block, &mut |value| uses[value.index()] += 1);
}

/// Shows every use of a value in a block and the blocks in it.
pub(super) fn visit_values(block: &Block, f: &mut dyn FnMut(Value)) {
    block.insts.iter().for_each(|inst| visit_inst_values(inst, f));
    match &block.end {
        End::Yield(values) | End::Continue(values) | End::Break(values) => values.iter().for_each(|&value| f(value)),
        End::Return | End::Unreachable => {}
    }
}

/// Shows every use of a value in a step and the blocks in it.
pub(super) fn visit_inst_values(inst: &Inst, f: &mut dyn FnMut(Value)) {
    match inst {
        Inst::Let(_, op) => visit_operands(op, f),
        Inst::Store { address, value, guard, .. } => {
            address.terms.iter().for_each(|&(index, _)| f(index));
            f(*value);
            guard.iter().for_each(|&guard| f(guard));
        }
        Inst::Atomic { address, value, compare, guard, .. } => {
            address.terms.iter().for_each(|&(index, _)| f(index));
            [value, compare, guard].into_iter().flatten().for_each(|&value| f(value));
        }
        Inst::Barrier(_) => {}
        Inst::If { cond, then, otherwise, .. } => {
            f(*cond);
            visit_values(then, f);
            visit_values(otherwise, f);
        }
        Inst::Loop(inner) => {
            inner.init.iter().for_each(|&value| f(value));
            if let Some(counter) = &inner.counter {
                f(counter.from);
                f(counter.to);
            }
            visit_values(&inner.body, f);
        }
    }
}

pub(super) fn visit_operands(op: &Op, f: &mut dyn FnMut(Value)) {
    match op {
        Op::Const(_) | Op::Builtin(_) | Op::Length(_) => {}
        Op::Unary(_, a) | Op::Cast(a) | Op::BitCast(a) | Op::Extract(a, _) => f(*a),
        Op::Binary(_, a, b) => {
            f(*a);
            f(*b);
        }
        Op::Fma(a, b, c) | Op::Select(a, b, c) => {
            f(*a);
            f(*b);
            f(*c);
        }
        Op::Load { address, guard, .. } => {
            address.terms.iter().for_each(|&(index, _)| f(index));
            guard.iter().for_each(|&guard| f(guard));
        }
        Op::Construct(parts) => parts.iter().for_each(|&part| f(part)),
        Op::Subgroup(_, a, b) => {
            f(*a);
            b.iter().for_each(|&b| f(b));
        }
        Op::Matrix(matrix) => matrix.operands().for_each(f),
    }
}

/// Some loop looks whether the launch has to end.
pub(super) fn looks(block: &Block) -> bool {
    block.insts.iter().any(|inst| match inst {
        Inst::If { then, otherwise, .. } => looks(then) || looks(otherwise),
        Inst::Loop(inner) => inner.look.is_some() || looks(&inner.body),
        _ => false,
    })
}

pub(super) fn used_buffers(block: &Block, used: &mut [bool]) {
    let mut mark = |memory: Memory| {
        if let Memory::Buffer(index) = memory {
            used[index as usize] = true;
        }
    };
    for inst in &block.insts {
        match inst {
            Inst::Let(_, Op::Load { address, .. }) | Inst::Store { address, .. } | Inst::Atomic { address, .. } => {
                mark(address.memory);
            }
            _ => {}
        }
    }
    for inst in &block.insts {
        match inst {
            Inst::If { then, otherwise, .. } => {
                used_buffers(then, used);
                used_buffers(otherwise, used);
            }
            Inst::Loop(inner) => used_buffers(&inner.body, used),
            _ => {}
        }
    }
}
