//! How a value changes over the lanes of a vector and over the vectors of a block.
//!
//! A block is a box of vectors: several along x and several rows. A value that is the same in all lanes stays a scalar; one
//! that grows by a constant from lane to lane is a scalar and a stride; one that does not depend on the row is computed once
//! for all rows.

use vyre_foundation::ir::{Builtin, Literal};
use vyre_foundation::kernel::{Binary, Block, Element, End, Inst, Kernel, Loop, Memory, Op, Scalar, Unary, Value};

use super::isa::Isa;
use super::visit;

/// Over the lanes of one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    Same,
    /// 32-bit integers: `base + lane · stride`.
    Affine(i32),
    Vary,
}

/// Depends on the vector's place along x.
pub(super) const X: u8 = 1;
/// Depends on its row.
pub(super) const Y: u8 = 2;
/// Depends on its layer.
pub(super) const Z: u8 = 4;

/// How a value changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) lane: Lane,
    /// Axes of the block on which it depends.
    pub(super) axes: u8,
    /// For 32-bit integers: no value is greater (as unsigned). For f32: where it is not the greatest number, all are whole numbers from
    /// nothing up to this.
    pub(super) max: u32,
    /// For f32: bits of a number without sign that no value is above, unless it is not a number.
    pub(super) top: u32,
    /// For 32-bit integers that don't vary: as many of the lowest bits of the first lane are zero, whichever the vector.
    zeros: u32,
}

impl Shape {
    /// Bits of the first lane are zero, and nothing is carried into them from below.
    pub(super) fn is_zero_first(&self, bits: u32) -> bool {
        u32::BITS - bits.leading_zeros() <= self.zeros
    }

    const fn same(max: u32) -> Shape {
        Shape { lane: Lane::Same, axes: 0, max, top: u32::MAX, zeros: 0 }
    }

    const fn vary(axes: u8, max: u32) -> Shape {
        Shape { lane: Lane::Vary, axes, max, top: u32::MAX, zeros: 0 }
    }

    /// One scalar for the whole block.
    pub(super) fn is_uniform(&self) -> bool {
        self.lane == Lane::Same && self.axes == 0
    }

    fn join(self, other: Shape) -> Shape {
        let lane = if self.lane == other.lane { self.lane } else { Lane::Vary };
        let zeros = self.zeros.min(other.zeros);
        let (max, top) = (self.max.max(other.max), self.top.max(other.top));
        Shape { lane, axes: self.axes | other.axes, max, top, zeros }
    }
}

/// How built-in values are laid over blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Vectors run along the whole row of workgroups; no invocation waits for another.
    Rows,
    /// One invocation after the other along such rows, each in scalars: what lanes do apart would take longer side by side.
    Single,
    /// A block is one workgroup, and each of its rows is a whole number of vectors.
    Group,
    /// A block is one workgroup, taken as one line of invocations.
    Line,
}

impl Layout {
    /// Invocations are taken as they lie along x, whichever workgroups they are in.
    pub(super) fn is_along_rows(self) -> bool {
        matches!(self, Layout::Rows | Layout::Single)
    }
}

/// Invocations along x that a launch may have, so that indices of neighbours don't wrap.
pub(crate) const MAX_INDEX: u32 = (1 << 31) - (1 << 20);

pub(super) struct Analysis<'k> {
    kernel: &'k Kernel,
    /// Vectors along rows begin at multiples of their length.
    whole: bool,
    layout: Layout,
    /// Lanes of a vector.
    lanes: u32,
    shapes: Vec<Option<Shape>>,
    constants: Vec<Option<Literal>>,
    /// Loops whose lanes part, by the address of the loop.
    parting: Vec<*const Loop>,
    divergent: u32,
    changed: bool,
    rounds: u32,
    /// All axes that a block has.
    axes: u8,
    /// Values that may be taken as even, and those that were.
    may_be_even: &'k [bool],
    even: Vec<bool>,
    /// Bools that are known to be the same for all lanes of the block.
    settled: &'k [Option<bool>],
}

/// What is known about every value.
pub(super) struct Shapes {
    shapes: Vec<Option<Shape>>,
    parting: Vec<*const Loop>,
    even: Vec<bool>,
}

impl Shapes {
    pub(super) fn of(&self, value: Value) -> Shape {
        self.shapes[value.index()].unwrap_or(Shape::vary(X | Y | Z, u32::MAX))
    }

    /// The shape holds only in a block that was tested for it.
    pub(super) fn is_even(&self, value: Value) -> bool {
        self.even[value.index()]
    }

    /// The values whose shapes hold only in a block that was tested for it.
    pub(super) fn even(&self) -> &[bool] {
        &self.even
    }

    /// How many loops there are whose lanes part.
    pub(super) fn parting_loops(&self) -> usize {
        self.parting.len()
    }

    /// Lanes leave the loop, or skip the rest of a round, one by one.
    pub(super) fn parts(&self, inner: &Loop) -> bool {
        self.parting.contains(&std::ptr::from_ref(inner))
    }
}

/// How the values of a kernel change over blocks of so many rows; in layouts of workgroups a block has all of theirs.
pub(super) fn analyse(kernel: &Kernel, isa: Isa, layout: Layout, rows: u32) -> Shapes {
    analyse_tested(kernel, isa, layout, rows, &Tested::default())
}

/// What was tested before a block.
#[derive(Clone, Copy, Default)]
pub(super) struct Tested<'t> {
    /// Values that may be taken as even: a clamp changes nothing, and lanes that wrap around or are in rows of something do so together.
    pub(super) may_be_even: &'t [bool],
    /// What bools are that are the same for all lanes.
    pub(super) settled: &'t [Option<bool>],
}

/// The same for blocks that were tested.
pub(super) fn analyse_tested(kernel: &Kernel, isa: Isa, layout: Layout, rows: u32, tested: &Tested<'_>) -> Shapes {
    // What a block has only one of is the same in all of it.
    let [_, y, z] = kernel.workgroup_size;
    let several = |count: u32, axis: u8| if count > 1 { axis } else { 0 };
    let axes = match layout {
        Layout::Rows => X | several(rows, Y),
        Layout::Single => 0,
        Layout::Group => X | several(y, Y) | several(z, Z),
        Layout::Line => X,
    };
    let mut analysis = Analysis {
        kernel,
        layout,
        lanes: isa.lanes(),
        shapes: vec![None; kernel.values.len()],
        constants: vec![None; kernel.values.len()],
        parting: Vec::new(),
        divergent: 0,
        changed: true,
        rounds: 0,
        axes,
        whole: takes_places_apart(kernel, isa.lanes()),
        may_be_even: tested.may_be_even,
        settled: tested.settled,
        even: vec![false; kernel.values.len()],
    };
    while analysis.changed {
        analysis.changed = false;
        analysis.rounds += 1;
        analysis.block(&kernel.body);
    }
    Shapes { shapes: analysis.shapes, parting: analysis.parting, even: analysis.even }
}

impl<'k> Analysis<'k> {
    fn scalar(&self, value: Value) -> Scalar {
        self.kernel.values[value.index()].ty.scalar
    }

    fn get(&self, value: Value) -> Shape {
        self.shapes[value.index()].unwrap_or(Shape::same(0))
    }

    fn set(&mut self, value: Value, mut shape: Shape) {
        if shape.lane == Lane::Vary {
            shape.zeros = 0;
        }
        let old = self.shapes[value.index()];
        let new = match old {
            Some(old) => {
                let mut new = old.join(shape);
                // Bounds that still grow are given up, so that the search ends.
                if new.max > old.max && self.rounds > 2 {
                    new.max = u32::MAX;
                }
                if new.top > old.top && self.rounds > 2 {
                    new.top = u32::MAX;
                }
                new
            }
            None => shape,
        };
        if Some(new) != old {
            self.shapes[value.index()] = Some(new);
            self.changed = true;
        }
    }

    /// The way that all lanes take at a branch, where it was tested.
    fn way(&self, cond: Value) -> Option<bool> {
        self.settled.get(cond.index()).copied().flatten()
    }

    fn varying(&self) -> Shape {
        Shape::vary(self.axes, u32::MAX)
    }

    fn block(&mut self, block: &'k Block) {
        for inst in &block.insts {
            match inst {
                Inst::Let(value, op) => {
                    if let Op::Const(literal) = op {
                        self.constants[value.index()] = Some(*literal);
                    }
                    if self.way(*value).is_some() {
                        self.set(*value, Shape::same(1));
                        continue;
                    }
                    let plain = match self.scalar(*value) {
                        Scalar::F32 => Shape { top: self.top(op), ..self.op(*value, op) },
                        _ => self.op(*value, op),
                    };
                    let even = self.even(*value, op, plain);
                    self.even[value.index()] = even.is_some();
                    self.set(*value, even.unwrap_or(plain));
                }
                Inst::Store { .. } | Inst::Barrier(_) => {}
                Inst::Atomic { result, .. } => {
                    if let Some(result) = result {
                        self.set(*result, self.varying());
                    }
                }
                Inst::If { cond, then, otherwise, results } => {
                    let parts = !self.get(*cond).is_uniform();
                    let taken = self.way(*cond);
                    self.divergent += u32::from(parts);
                    self.block(then);
                    self.block(otherwise);
                    self.divergent -= u32::from(parts);
                    for (position, &result) in results.iter().enumerate() {
                        if parts {
                            self.set(result, self.varying());
                            continue;
                        }
                        for (block, way) in [(then, true), (otherwise, false)] {
                            if let End::Yield(values) = &block.end
                                && taken != Some(!way)
                            {
                                let shape = self.get(values[position]);
                                self.set(result, shape);
                            }
                        }
                    }
                }
                Inst::Loop(inner) => self.run_loop(inner),
            }
        }
    }

    fn run_loop(&mut self, inner: &'k Loop) {
        let mut parts = self.leaves_apart(&inner.body, false, true);
        if self.divergent > 0 && returns(&inner.body) {
            parts = true;
        }
        if let Some(counter) = &inner.counter {
            parts |= !self.get(counter.from).is_uniform() || !self.get(counter.to).is_uniform();
        }
        let key = std::ptr::from_ref(inner);
        if parts && !self.parting.contains(&key) {
            self.parting.push(key);
            self.changed = true;
        }
        let parts = self.parting.contains(&key);
        let mut ends: Vec<(bool, &'k [Value])> = Vec::new();
        collect_ends(&inner.body, &mut ends);
        // Lanes that are still in a loop have gone the same way, where there is only one. It matters for what is loaded.
        let one_way =
            matches!(inner.body.end, End::Continue(_)) && ends.iter().filter(|(leaves, _)| !leaves).count() == 1;
        let together = one_way && loads(&inner.body);
        let carried = |this: &Self, param: Value, shape: Shape| match shape.lane {
            _ if !parts => shape,
            // Other kinds of values have lanes, of which those that are out of the loop would stay what they are.
            Lane::Same | Lane::Affine(1..) if together && matches!(this.scalar(param), Scalar::U32 | Scalar::I32) => {
                shape
            }
            _ => this.varying(),
        };
        for (&param, &init) in inner.params.iter().zip(&inner.init) {
            let shape = carried(self, param, self.get(init));
            self.set(param, shape);
        }
        if let Some(counter) = &inner.counter {
            let (from, to) = (self.get(counter.from), self.get(counter.to));
            // Below its limit, and no start is negative when it is bounded.
            let max = if from.max < 1 << 31 && to.max < 1 << 31 { to.max.saturating_sub(1) } else { u32::MAX };
            // Lanes that are still in a loop have gone as many rounds, whenever others leave.
            let shape = match from.lane {
                Lane::Same | Lane::Affine(1..) => {
                    let zeros = from.zeros.min(counter.step.trailing_zeros());
                    Shape { max, zeros, ..from }
                }
                _ => self.varying(),
            };
            self.set(counter.value, shape);
        }
        self.divergent += u32::from(parts);
        self.block(&inner.body);
        self.divergent -= u32::from(parts);
        for (position, (&param, &result)) in inner.params.iter().zip(&inner.results).enumerate() {
            for (is_break, values) in &ends {
                let shape = self.get(values[position]);
                if !is_break {
                    self.set(param, carried(self, param, shape));
                } else if !parts {
                    self.set(result, shape);
                }
            }
            if parts {
                self.set(result, self.varying());
                continue;
            }
            if inner.counter.is_some() {
                let shape = self.get(param);
                self.set(result, shape);
            }
        }
    }

    /// Some lanes, but not all, leave from inside the block.
    fn leaves_apart(&self, block: &Block, apart: bool, own_loop: bool) -> bool {
        for inst in &block.insts {
            match inst {
                Inst::If { cond, then, otherwise, .. } => {
                    let apart = apart || !self.get(*cond).is_uniform();
                    if self.leaves_apart(then, apart, own_loop) || self.leaves_apart(otherwise, apart, own_loop) {
                        return true;
                    }
                }
                Inst::Loop(inner) => {
                    let apart = apart || self.parting.contains(&std::ptr::from_ref(&**inner));
                    if self.leaves_apart(&inner.body, apart, false) {
                        return true;
                    }
                }
                _ => {}
            }
        }
        match block.end {
            End::Break(_) | End::Continue(_) => apart && own_loop,
            End::Return => apart,
            End::Yield(_) | End::Unreachable => false,
        }
    }

    fn op(&self, value: Value, op: &Op) -> Shape {
        let scalar = self.scalar(value);
        let small = matches!(scalar, Scalar::U32 | Scalar::I32);
        let all = |values: &[Value]| -> Shape {
            let mut shape = Shape::same(u32::MAX);
            for &value in values {
                let of = self.get(value);
                shape.axes |= of.axes;
                // A bool that is not one scalar for the block is a mask, and nothing but masks is a scalar that is made of one.
                let is_mask = self.scalar(value) == Scalar::Bool && !of.is_uniform();
                if of.lane != Lane::Same || (is_mask && scalar != Scalar::Bool) {
                    shape.lane = Lane::Vary;
                }
            }
            shape
        };
        match op {
            Op::Const(literal) if scalar == Scalar::F32 => Shape::same(if literal.bits() == 0 { 0 } else { u32::MAX }),
            Op::Const(literal) => {
                let zeros = literal.bits().trailing_zeros().min(32);
                Shape { zeros, ..Shape::same(u32::try_from(literal.bits()).unwrap_or(u32::MAX)) }
            }
            Op::Builtin(builtin) => self.builtin(*builtin),
            // There may be two elements in a byte.
            Op::Length(buffer) => match self.kernel.buffers[*buffer as usize].element {
                Some((element, _)) if element.bits() == 4 => Shape::same(u32::MAX),
                _ => Shape::same(MAX_INDEX),
            },
            Op::Unary(_, a) => all(&[*a]),
            Op::Binary(op, a, b) if small && self.scalar(*a) == scalar => {
                let zeros = self.zeros(*op, *a, *b);
                Shape { zeros, ..self.integer(*op, *a, *b, all(&[*a, *b])) }
            }
            Op::Binary(_, a, b) => all(&[*a, *b]),
            Op::Fma(a, b, c) => all(&[*a, *b, *c]),
            Op::Select(cond, yes, no) => {
                if self.get(*cond).is_uniform() {
                    return self.get(*yes).join(self.get(*no));
                }
                let max = self.get(*yes).max.max(self.get(*no).max);
                Shape { lane: Lane::Vary, max, ..all(&[*cond, *yes, *no]) }
            }
            Op::Cast(a) | Op::BitCast(a) => {
                let from = self.scalar(*a);
                if small && matches!(from, Scalar::U32 | Scalar::I32) {
                    return self.get(*a);
                }
                let mut shape = all(&[*a]);
                let whole = matches!(op, Op::Cast(_)) && (from == Scalar::U32 || self.get(*a).max < 1 << 31);
                if from == Scalar::Bool {
                    shape.max = 1;
                } else if scalar == Scalar::F32 && matches!(from, Scalar::U32 | Scalar::I32) && whole {
                    shape.max = self.get(*a).max;
                } else if (from, scalar) == (Scalar::F32, Scalar::U32) && matches!(op, Op::Cast(_)) {
                    // Without a bound these are the bits of what is not a number, and none.
                    let top = f32::from_bits(self.get(*a).top);
                    shape.max = if top.is_nan() { u32::MAX } else { top as u32 };
                }
                shape
            }
            Op::Load { address, guard, element } => {
                if matches!(address.memory, Memory::Local(_)) && self.layout != Layout::Single {
                    return self.varying();
                }
                let mut shape = all(&address.terms.iter().map(|&(index, _)| index).collect::<Vec<Value>>());
                if let Some(guard) = guard.map(|guard| self.get(guard)) {
                    shape.axes |= guard.axes;
                    shape.lane = if guard.lane == Lane::Same { shape.lane } else { Lane::Vary };
                }
                shape.max = match element {
                    Element::U8 => u8::MAX.into(),
                    Element::U16 => u16::MAX.into(),
                    _ => u32::MAX,
                };
                shape
            }
            Op::Extract(a, _) => all(&[*a]),
            Op::Construct(parts) => all(parts),
            Op::Subgroup(..) | Op::Matrix(_) => self.varying(),
        }
    }

    /// [`Shape::top`] of an f32. What is rounded keeps the order of numbers.
    fn top(&self, op: &Op) -> u32 {
        let of = |value: Value| Some(f32::from_bits(self.get(value).top)).filter(|top| top.is_finite());
        let constant = |value: Value| {
            let bits = self.constants[value.index()]?.bits() as u32;
            Some(f32::from_bits(bits)).filter(|number| number.is_finite() && self.scalar(value) == Scalar::F32)
        };
        let factor = |value: Value| constant(value).filter(|number| number.is_sign_positive());
        let least = |a: Option<f32>, b: Option<f32>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let top = match op {
            Op::Const(Literal::F32(number)) => Some(number.max(0.0)).filter(|_| !number.is_nan()),
            Op::Cast(a) => match self.scalar(*a) {
                Scalar::U32 => Some(self.get(*a).max as f32),
                Scalar::I32 => Some(self.get(*a).max.min(1 << 31) as f32),
                Scalar::Bool => Some(1.0),
                _ => None,
            },
            Op::Unary(Unary::Floor, a) => of(*a).map(f32::floor),
            Op::Unary(Unary::Ceil, a) => of(*a).map(f32::ceil),
            Op::Unary(Unary::Round, a) => of(*a).map(f32::round_ties_even),
            Op::Unary(Unary::Trunc, a) => of(*a).map(f32::trunc),
            // Where the second is not a number, the first is what is given.
            Op::Binary(Binary::Min, a, b) => least(of(*a), constant(*b).and_then(|_| of(*b))),
            Op::Binary(Binary::Max, a, b) => of(*a).zip(of(*b)).map(|(a, b)| a.max(b)),
            Op::Binary(Binary::Add, a, b) => of(*a).zip(of(*b)).map(|(a, b)| a + b),
            Op::Binary(Binary::Sub, a, b) => of(*a).zip(constant(*b)).map(|(a, b)| a - b),
            Op::Binary(Binary::Mul, a, b) => {
                of(*a).zip(factor(*b)).or_else(|| of(*b).zip(factor(*a))).map(|(top, by)| top * by)
            }
            Op::Binary(Binary::Div, a, b) => of(*a).zip(factor(*b)).map(|(top, by)| top / by),
            Op::Fma(a, b, c) => {
                let product = of(*a).zip(factor(*b)).or_else(|| of(*b).zip(factor(*a)));
                product.zip(of(*c)).map(|((top, by), more)| top.mul_add(by, more))
            }
            Op::Select(_, yes, no) => of(*yes).zip(of(*no)).map(|(yes, no)| yes.max(no)),
            _ => None,
        };
        top.filter(|top| top.is_finite()).map_or(u32::MAX, |top| top.max(0.0).to_bits())
    }

    fn integer(&self, op: Binary, a: Value, b: Value, mut plain: Shape) -> Shape {
        let (left, right) = (self.get(a), self.get(b));
        let stride = |shape: Shape| match shape.lane {
            Lane::Same => Some(0),
            Lane::Affine(stride) => Some(stride),
            Lane::Vary => None,
        };
        let constant = |value: Value| self.constants[value.index()].map(|literal| literal.bits() as u32);
        let bound = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let (la, lb) = (u64::from(left.max), u64::from(right.max));
        let of_low_bits = self.of_low_bits(op, a, b);
        let stride = match (op, stride(left), stride(right)) {
            _ if of_low_bits.is_some() => of_low_bits,
            (Binary::Add, Some(s), Some(t)) => s.checked_add(t),
            (Binary::Sub, Some(s), Some(t)) => s.checked_sub(t),
            (Binary::Mul, Some(s), Some(0)) => constant(b).and_then(|c| s.checked_mul(c as i32)),
            (Binary::Mul, Some(0), Some(s)) => constant(a).and_then(|c| s.checked_mul(c as i32)),
            (Binary::Shl, Some(s), Some(0)) => constant(b).and_then(|c| s.checked_mul(1i32.checked_shl(c & 31)?)),
            // Of numbers that don't wrap, whole steps of a divisor apart, as many steps.
            (Binary::Shr | Binary::Div, Some(s @ 1..), Some(0)) => {
                let most = if self.scalar(a) == Scalar::U32 { u32::MAX } else { 1 << 31 };
                let by = constant(b).map(|c| if op == Binary::Div { c } else { 1 << (c & 31) });
                let by = by.filter(|&by| by != 0 && left.max < most && (s as u32).is_multiple_of(by));
                by.map(|by| (s as u32 / by) as i32)
            }
            _ => None,
        };
        // The lower bits don't differ where lanes are multiples of what is above them apart.
        let same = match (op, left.lane, constant(b)) {
            (Binary::And, Lane::Affine(s), Some(bits)) => s.trailing_zeros() >= 32 - bits.leading_zeros(),
            _ => false,
        };
        plain.max = match op {
            Binary::Add => bound(la + lb),
            Binary::Mul => bound(la * lb),
            Binary::Shl => constant(b).map_or(u32::MAX, |c| bound(la << (c & 31))),
            Binary::Shr if self.scalar(a) == Scalar::U32 => constant(b).map_or(left.max, |c| left.max >> (c & 31)),
            Binary::Div if self.scalar(a) == Scalar::U32 => left.max,
            Binary::Rem if self.scalar(a) == Scalar::U32 => left.max,
            Binary::And => left.max.min(right.max),
            Binary::Or | Binary::Xor => u32::MAX.checked_shr((left.max | right.max).leading_zeros()).unwrap_or(0),
            Binary::Min if self.scalar(a) == Scalar::U32 => left.max.min(right.max),
            Binary::Max if self.scalar(a) == Scalar::U32 => left.max.max(right.max),
            _ => u32::MAX,
        };
        // What is zero in the first lane of every vector leaves what the lane alone adds.
        let of_lane = of_low_bits.is_some() && constant(b).is_some_and(|c| c.leading_zeros() + left.zeros >= u32::BITS);
        if op == Binary::And && of_lane {
            plain.axes = 0;
        }
        match stride {
            _ if same || of_low_bits == Some(0) => plain.lane = Lane::Same,
            Some(0) if plain.lane == Lane::Same => {}
            // Neighbouring lanes must stay within reach of a displacement.
            Some(stride) if stride != 0 && stride.unsigned_abs() <= 1 << 14 => plain.lane = Lane::Affine(stride),
            _ => {}
        }
        plain
    }

    /// The stride that is left of one by which all lanes differ in bits that are zero in the first, so that nothing is carried into the bits
    /// above: these are the same for all lanes.
    fn of_low_bits(&self, op: Binary, a: Value, b: Value) -> Option<i32> {
        let differing = |value: Value| {
            let Shape { lane: Lane::Affine(stride @ 1..), zeros, .. } = self.get(value) else { return None };
            let bits = u32::BITS - (stride as u32).checked_mul(self.lanes - 1)?.leading_zeros();
            (bits <= zeros).then_some((stride, bits))
        };
        let constant = self.constants[b.index()].map(|literal| literal.bits() as u32);
        let whole = |value: Value, bits: u32| self.get(value).lane == Lane::Same && self.get(value).zeros >= bits;
        match (op, differing(a), differing(b)) {
            (Binary::And, Some((stride, bits)), _) => match constant? & ((1 << bits) - 1) {
                0 => Some(0),
                kept if kept == (1 << bits) - 1 => Some(stride),
                _ => None,
            },
            (Binary::Shr, Some((stride, bits)), _) => match constant? & 31 {
                by if by >= bits => Some(0),
                by if stride.trailing_zeros() >= by => Some(stride >> by),
                _ => None,
            },
            (Binary::Or | Binary::Xor, Some((stride, bits)), None) if whole(b, bits) => Some(stride),
            (Binary::Or | Binary::Xor, None, Some((stride, bits))) if whole(a, bits) => Some(stride),
            _ => None,
        }
    }

    /// How many of the lowest bits of the first lane are zero.
    fn zeros(&self, op: Binary, a: Value, b: Value) -> u32 {
        let (left, right) = (self.get(a).zeros, self.get(b).zeros);
        let by = self.constants[b.index()].map(|literal| literal.bits() as u32 & 31);
        match op {
            Binary::Add | Binary::Sub | Binary::Or | Binary::Xor => left.min(right),
            Binary::And => left.max(right),
            Binary::Mul => (left + right).min(32),
            Binary::Shl => by.map_or(left, |by| (left + by).min(32)),
            Binary::Shr => by.map_or(0, |by| left.saturating_sub(by)),
            _ => 0,
        }
    }

    /// What becomes of lanes that differ evenly, where none of the block is beyond an edge.
    fn even(&self, value: Value, op: &Op, plain: Shape) -> Option<Shape> {
        let Op::Binary(op, a, b) = *op else { return None };
        let words = matches!(self.scalar(value), Scalar::U32 | Scalar::I32) && self.scalar(a) == self.scalar(value);
        if plain.lane != Lane::Vary || !words || !self.may_be_even.get(value.index()).is_some_and(|&may| may) {
            return None;
        }
        let edge = if matches!(self.get(b).lane, Lane::Affine(_)) { a } else { b };
        let of = if edge == a { b } else { a };
        let Lane::Affine(_) = self.get(of).lane else { return None };
        let limit = self.constants[b.index()].map(|literal| literal.bits() as u32);
        let by = limit.map(|bits| if op == Binary::Div { bits } else { 1 << (bits & 31) }).filter(|&by| by != 0);
        // How far the last lane is from the first.
        let reach = match self.get(of).lane {
            Lane::Affine(stride) => stride.unsigned_abs().saturating_mul(self.lanes - 1),
            _ => 0,
        };
        let lane = match op {
            Binary::Min | Binary::Max | Binary::Xor => self.get(of).lane,
            Binary::Rem if edge == b && limit.is_none_or(|limit| reach < limit) => self.get(of).lane,
            Binary::And if limit.is_some_and(|bits| bits & bits.wrapping_add(1) == 0 && reach <= bits) => {
                self.get(of).lane
            }
            Binary::Div | Binary::Shr if edge == b => match self.get(of).lane {
                // Whole steps of a divisor apart, they only must not wrap.
                Lane::Affine(s @ 1..) if by.is_some_and(|by| (s as u32).is_multiple_of(by)) => {
                    Lane::Affine(s / by.unwrap_or(1) as i32)
                }
                _ if by.is_some_and(|by| reach >= by) => return None,
                _ if op == Binary::Div || limit.is_some() => Lane::Same,
                _ => return None,
            },
            _ => return None,
        };
        self.get(edge).is_uniform().then_some(Shape { lane, ..plain })
    }

    fn builtin(&self, builtin: Builtin) -> Shape {
        let size = self.kernel.workgroup_size;
        let affine = |axes: u8, max: u32| Shape { lane: Lane::Affine(1), axes, ..Shape::same(max) };
        // In workgroups vectors begin at multiples of their length, whereas along rows that is only so where a kernel asks for such places.
        let place = |axes: u8, max: u32| Shape { zeros: self.lanes.trailing_zeros(), ..affine(axes, max) };
        let scalar = |axes: u8, max: u32| Shape { axes: axes & self.axes, ..Shape::same(max) };
        let line = |max: u32| Shape::vary(X, max);
        let [x, y, z] = size.map(|extent| extent - 1);
        match (builtin, self.layout) {
            (Builtin::GlobalId(_), Layout::Single) => scalar(0, MAX_INDEX),
            (Builtin::LocalId(axis), Layout::Single) => scalar(0, [x, y, z][usize::from(axis.min(2))]),
            (Builtin::LocalIndex, Layout::Single) => scalar(0, size.iter().product::<u32>() - 1),
            (Builtin::GlobalId(0), Layout::Group) => place(X, MAX_INDEX),
            (Builtin::GlobalId(0), Layout::Rows) if self.whole => place(X, MAX_INDEX),
            (Builtin::GlobalId(0), Layout::Rows) => affine(X, MAX_INDEX),
            (Builtin::GlobalId(1), Layout::Rows | Layout::Group) => scalar(Y, MAX_INDEX),
            (Builtin::GlobalId(_), Layout::Rows) => scalar(0, MAX_INDEX),
            (Builtin::GlobalId(_), Layout::Group) => scalar(Z, MAX_INDEX),
            (Builtin::GlobalId(0), Layout::Line) if size[1] == 1 && size[2] == 1 => affine(X, MAX_INDEX),
            (Builtin::GlobalId(axis), Layout::Line) if size[usize::from(axis.min(2))] == 1 => scalar(0, MAX_INDEX),
            (Builtin::GlobalId(_), Layout::Line) => line(MAX_INDEX),
            (Builtin::LocalId(0), Layout::Rows | Layout::Group) => place(X, size[0] - 1),
            (Builtin::LocalId(1), Layout::Rows | Layout::Group) => scalar(Y, size[1] - 1),
            (Builtin::LocalId(_), Layout::Rows) => scalar(0, size[2] - 1),
            (Builtin::LocalId(_), Layout::Group) => scalar(Z, size[2] - 1),
            (Builtin::LocalId(0), Layout::Line) if size[1] == 1 && size[2] == 1 => place(X, size[0] - 1),
            (Builtin::LocalId(axis), Layout::Line) if size[usize::from(axis.min(2))] == 1 => scalar(0, 0),
            (Builtin::LocalId(axis), Layout::Line) => line(size[usize::from(axis.min(2))] - 1),
            (Builtin::LocalIndex, _) => place(self.axes, size[0] * size[1] * size[2] - 1),
            (Builtin::WorkgroupId(0), Layout::Rows) => scalar(X, MAX_INDEX),
            (Builtin::WorkgroupId(_) | Builtin::NumWorkgroups(_), _) => scalar(0, MAX_INDEX),
            (Builtin::WorkgroupSize(_), _) => scalar(0, 1024),
            (Builtin::SubgroupSize | Builtin::NumSubgroups, _) => scalar(0, 1024),
            (Builtin::SubgroupLane | Builtin::SubgroupId, _) => Shape::vary(self.axes, 1024),
        }
    }
}

/// A kernel takes places of invocations apart by their lower bits. Its vectors begin at multiples of their length along rows too, so that these bits are
/// known for each lane.
pub(super) fn takes_places_apart(kernel: &Kernel, lanes: u32) -> bool {
    let (mut places, mut apart): (Vec<Value>, bool) = (Vec::new(), false);
    visit(&kernel.body, &mut |inst| {
        let Inst::Let(value, op) = inst else { return };
        match op {
            Op::Builtin(Builtin::GlobalId(0)) => places.push(*value),
            Op::BitCast(a) if places.contains(a) => places.push(*value),
            Op::Binary(Binary::And | Binary::Shr | Binary::Or | Binary::Xor, a, _) => apart |= places.contains(a),
            _ => {}
        }
    });
    apart && kernel.workgroup_size[0].is_multiple_of(lanes)
}

/// The ways out of a round of a loop: `true` for those that leave it.
pub(super) fn collect_ends<'k>(block: &'k Block, ends: &mut Vec<(bool, &'k [Value])>) {
    for inst in &block.insts {
        if let Inst::If { then, otherwise, .. } = inst {
            collect_ends(then, ends);
            collect_ends(otherwise, ends);
        }
    }
    match &block.end {
        End::Break(values) => ends.push((true, values)),
        End::Continue(values) => ends.push((false, values)),
        _ => {}
    }
}

fn loads(block: &Block) -> bool {
    block.insts.iter().any(|inst| match inst {
        Inst::Let(_, Op::Load { .. }) => true,
        Inst::If { then, otherwise, .. } => loads(then) || loads(otherwise),
        Inst::Loop(inner) => loads(&inner.body),
        _ => false,
    })
}

fn returns(block: &Block) -> bool {
    block.end == End::Return
        || block.insts.iter().any(|inst| match inst {
            Inst::If { then, otherwise, .. } => returns(then) || returns(otherwise),
            Inst::Loop(inner) => returns(&inner.body),
            _ => false,
        })
}
