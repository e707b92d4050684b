//! What is known of a kernel before any code is made. Nothing here changes while it is lowered.

use std::collections::HashMap;

use vyre_foundation::kernel::{Block, ByteDot, End, Inst, Kernel, Memory, Op, Scalar, Unary, Value, byte_dots};

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
        Facts {
            kernel,
            isa,
            shapes,
            tiling,
            columns,
            makers: Makers::of(kernel),
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
