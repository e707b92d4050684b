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
            makers,
            negated: negated(&kernel.body, &uses),
            // Cranelift has other instructions for it.
            dots: if isa == Isa::Simd128 { HashMap::new() } else { byte_dots(kernel) },
            named: uses.clone(),
            uses,
        }
    }

    /// What a float is never greater than unless it is not a number. Each step keeps order, and the bound is rounded as it is.
    pub(super) fn upper_bound(&self, value: Value) -> Option<f32> {
        self.upper_bound_within(value, DEEPEST_BOUND).filter(|bound| !bound.is_nan())
    }

    fn upper_bound_within(&self, value: Value, depth: u32) -> Option<f32> {
        let depth = depth.checked_sub(1).filter(|_| self.is_single(value))?;
        let of = |value: &Value| self.upper_bound_within(*value, depth);
        let number = |value: &Value| match self.makers.ops[value.index()]? {
            Op::Const(literal) => Some(f32::from_bits(literal.bits() as u32)).filter(|number| !number.is_nan()),
            _ => None,
        };
        let above_zero = |value: &Value| number(value).filter(|number| *number > 0.0);
        Some(match self.makers.ops[value.index()]? {
            Op::Const(literal) => f32::from_bits(literal.bits() as u32),
            Op::Unary(Unary::Floor | Unary::Trunc | Unary::Round, a) => of(a)?.ceil(),
            // `b < a ? b : a`, which is `a` where `b` is not a number.
            Op::Binary(Binary::Min, a, b) => match (of(a), number(b)) {
                (Some(a), Some(b)) if a <= b => a,
                (_, Some(bound)) | (Some(bound), None) => bound,
                (None, None) => return None,
            },
            Op::Binary(Binary::Max, a, b) => greater(of(a)?, of(b)?),
            Op::Binary(Binary::Add, a, b) => of(a)? + of(b)?,
            Op::Binary(Binary::Mul, a, b) => of(a)? * above_zero(b)?,
            Op::Fma(a, b, c) => of(a)?.mul_add(above_zero(b)?, of(c)?),
            Op::Select(_, yes, no) => greater(of(yes)?, of(no)?),
            _ => return None,
        })
    }

    fn is_single(&self, value: Value) -> bool {
        self.kernel.values[value.index()].ty.scalar == Scalar::F32
    }
}

/// How deep it is looked into what a number is made of.
const DEEPEST_BOUND: u32 = 8;

/// The greater of two bounds, neither where one is not a number.
fn greater(a: f32, b: f32) -> f32 {
    if a >= b {
        a
    } else if b > a {
        b
    } else {
        f32::NAN
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
    let mut open = vec![block];
    while let Some(block) = open.pop() {
        for pair in block.insts.windows(2) {
            if let [Inst::Let(minus, Op::Unary(Unary::Neg, of)), Inst::Let(_, Op::Fma(a, _, c))] = pair
                && (minus == a) != (minus == c)
                && uses[minus.index()] == 1
            {
                found.insert(*minus, *of);
            }
        }
        for inst in &block.insts {
            match inst {
                Inst::If { then, otherwise, .. } => open.extend([&**then, &**otherwise]),
                Inst::Loop(inner) => open.push(&inner.body),
                _ => {}
            }
        }
    }
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
