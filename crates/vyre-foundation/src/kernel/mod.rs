//! The kernel form: what the optimiser makes of a validated program and what every emitter reads.
//!
//! It is scalar SSA with structured control flow. User functions are inlined; structs and vectors are taken apart into
//! scalars; local variables have become values; loads and stores name a memory, a byte address as a sum of scaled indices, and
//! a guard that says whether the access is in bounds. A guard that was proven true is absent. Specialization constants are
//! folded. Conversions of stored types happen in the load or store itself ([`Element`]).
//!
//! Values are defined once, before use in block order. A value defined inside a block is not used outside it; what leaves an
//! `If` or a `Loop` leaves through its results.

mod build;
mod bytes;
mod clears;
mod display;
pub mod eval;
mod facts;
mod fold;
mod interpret;
mod loads;
mod looks;
mod lower;
mod math;
mod narrow;
mod noise;
mod options;
mod passes;
mod shape;
mod verify;
pub(crate) mod walk;

use std::sync::Arc;

use smallvec::SmallVec;

pub use self::bytes::{ByteDot, byte_dots};
pub use self::interpret::{Interpret, interpret};
pub use self::loads::Loads;
pub use self::lower::lower;
pub use self::noise::Noise;
pub(crate) use self::noise::{met_nonfinite, ulp};
pub use self::options::{Approximations, Narrow, Options, Passes, Unrolling};
pub use self::verify::verify;
pub use self::walk::{defined_in, each_inst, each_use, each_use_mut, end_values};
use crate::ir::{AtomicOp, BarrierScope, Builtin, Literal, Math, MatrixKind, Name, SubgroupOp};
pub use crate::ir::{Element, Scalar};

/// Type of a value. Only a load, a `Construct` (which feeds a store), a ballot and a matrix operation have a width over 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Type {
    /// Component.
    pub scalar: Scalar,
    /// 1 to 4.
    pub width: u8,
}

impl From<Scalar> for Type {
    fn from(scalar: Scalar) -> Self {
        Type { scalar, width: 1 }
    }
}

/// A value, by position in [`Kernel::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value(pub u32);

impl Value {
    /// As an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What is known about a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueInfo {
    /// Type.
    pub ty: Type,
    /// The same for all invocations of a workgroup, each time they compute it.
    pub uniform: bool,
}

/// A memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Memory {
    /// Position in [`Kernel::buffers`].
    Buffer(u32),
    /// Position in [`Kernel::shared`].
    Shared(u32),
    /// Position in [`Kernel::locals`].
    Local(u32),
}

/// Where in a memory: `offset + Σ index · stride`, in bytes. For a memory of 4-bit elements, in elements.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// Memory.
    pub memory: Memory,
    /// Indices (u32 or u64) with their strides. Each index is less than its array's length wherever the guard holds, so the
    /// sum does not overflow 64 bits.
    pub terms: SmallVec<[(Value, u32); 2]>,
    /// Constant part.
    pub offset: u32,
}

/// Operations are copied often, and the derived way takes terms one by one.
impl Clone for Address {
    fn clone(&self) -> Self {
        Address { memory: self.memory, terms: SmallVec::from_slice(&self.terms), offset: self.offset }
    }
}

/// Operations with one operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Unary {
    Neg,
    Not,
    Abs,
    Sign,
    Floor,
    Ceil,
    Round,
    Trunc,
    Sqrt,
    InverseSqrt,
    Exp,
    Exp2,
    Log,
    Log2,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Tanh,
    Asinh,
    Acosh,
    Atanh,
    CountOneBits,
    CountLeadingZeros,
    CountTrailingZeros,
    ReverseBits,
    FirstLeadingBit,
    FirstTrailingBit,
    /// f32: `1 / sqrt(x)`, at most one unit in the last place from the correctly rounded value, and exactly what division gives
    /// where that is zero, infinite or NaN. What functions are expanded into.
    RoughInverseSqrt,
    /// f32: `1 / x`, at most one unit in the last place off, of numbers from 2⁻¹²⁶ to 2¹²⁶. Like those below, what functions of fast
    /// arithmetic are expanded into: as near as WGSL asks of the function of that name.
    RoughReciprocal,
    RoughSqrt,
    RoughExp2,
    RoughLog2,
    RoughSin,
    RoughCos,
}

impl Unary {
    /// What a device gives may differ from what another does.
    pub fn is_rough(self) -> bool {
        use Unary as U;
        matches!(
            self,
            U::RoughInverseSqrt
                | U::RoughReciprocal
                | U::RoughSqrt
                | U::RoughExp2
                | U::RoughLog2
                | U::RoughSin
                | U::RoughCos
        )
    }
}

/// Operations with two operands of one type (a shift count is u32). The meaning is that of the IR's operation of the same
/// name, all corner cases included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    /// Integers: `x / 0 = x`, `MIN / -1 = MIN`.
    Div,
    /// Integers: `x % 0 = 0`, `MIN % -1 = 0`.
    Rem,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    /// `b < a ? b : a`.
    Min,
    /// `a < b ? b : a`.
    Max,
    /// High half of the product, 32-bit integers.
    MulHigh,
    Pow,
    Atan2,
}

/// What computes a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// A constant; the bits in the value's type.
    Const(Literal),
    /// What the invocation is given, u32.
    Builtin(Builtin),
    /// Number of elements of a buffer (of its open array, where its element ends in one), as u32 or, for 64-bit indices, u64.
    /// Always folded for shared and local memory.
    Length(u32),
    /// One operand.
    Unary(Unary, Value),
    /// Two operands.
    Binary(Binary, Value, Value),
    /// `a·b + c` with one rounding.
    Fma(Value, Value, Value),
    /// `cond ? yes : no`.
    Select(Value, Value, Value),
    /// Converts as the IR's cast does, to the value's type.
    Cast(Value),
    /// Keeps the bits; 32 to 32 or 64 to 64, and f16 to the low half of a u32 and back.
    BitCast(Value),
    /// Reads memory; gives zero where the guard is false. The value's width says how many neighbours.
    Load {
        /// Where. Aligned to `element` times the width (3 counts as 4).
        address: Address,
        /// How it is stored.
        element: Element,
        /// In bounds; absent when proven.
        guard: Option<Value>,
    },
    /// Component of a value of width over 1.
    Extract(Value, u8),
    /// A value of width over 1, to be stored.
    Construct(SmallVec<[Value; 4]>),
    /// Across the subgroup. A ballot is four u32 wide.
    Subgroup(SubgroupOp, Value, Option<Value>),
    /// Across the subgroup, four f32 wide. The workgroup is whole subgroups of 32 invocations.
    Matrix(Box<MatrixMultiplyAdd>),
}

impl Op {
    /// It computes from its operands and does nothing else.
    pub(crate) fn is_plain(&self) -> bool {
        !matches!(self, Op::Load { .. }) && !self.is_across_subgroup()
    }

    /// What one lane gets depends on the others, so it stays where it stands.
    pub fn is_across_subgroup(&self) -> bool {
        matches!(self, Op::Subgroup(..) | Op::Matrix(_))
    }
}

/// The operands of a matrix operation, in the order of the registers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MatrixMultiplyAdd {
    /// Elements of A and B.
    pub kind: MatrixKind,
    /// u32.
    pub a: [Value; 4],
    /// u32.
    pub b: [Value; 2],
    /// f32.
    pub c: [Value; 4],
}

impl MatrixMultiplyAdd {
    /// Every operand.
    pub fn operands(&self) -> impl Iterator<Item = Value> {
        self.a.into_iter().chain(self.b).chain(self.c)
    }
}

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub enum Inst {
    /// Defines a value.
    Let(Value, Op),
    /// Writes memory where the guard is true. The value's width says how many neighbours.
    Store {
        /// Where.
        address: Address,
        /// How it is stored.
        element: Element,
        /// What.
        value: Value,
        /// In bounds; absent when proven.
        guard: Option<Value>,
    },
    /// An atomic operation where the guard is true; gives zero where it is not.
    Atomic {
        /// Operation.
        op: AtomicOp,
        /// Where.
        address: Address,
        /// u32, i32, u64 or i64.
        element: Element,
        /// Operand; absent for `Load`.
        value: Option<Value>,
        /// For `CompareExchange`.
        compare: Option<Value>,
        /// The old value; absent when not needed.
        result: Option<Value>,
        /// In bounds; absent when proven.
        guard: Option<Value>,
    },
    /// The workgroup meets. Always in uniform control flow.
    Barrier(BarrierScope),
    /// Two ways. Each block ends in `Yield` of as many values as there are results, or leaves.
    If {
        /// Bool.
        cond: Value,
        /// When true.
        then: Box<Block>,
        /// When false.
        otherwise: Box<Block>,
        /// Defined by the `Yield` of the way taken.
        results: Vec<Value>,
    },
    /// Repeats `body`, which ends in `Continue` or leaves.
    Loop(Box<Loop>),
}

/// A loop. `Continue` and `Break` inside it (and inside the `If`s in it, but not in inner loops) refer to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Loop {
    /// Counted loops end by themselves.
    pub counter: Option<Counter>,
    /// Carried values, as the body sees them.
    pub params: Vec<Value>,
    /// Their values in the first round.
    pub init: Vec<Value>,
    /// One round.
    pub body: Block,
    /// Defined by `Break`, or, when a counted loop ends by itself, by the carried values of that moment. As many as `params`.
    pub results: Vec<Value>,
    /// Proven to end. Counted loops are.
    pub finite: bool,
    /// So many rounds may pass before an emitter looks whether the launch has to end; nothing where it need not look.
    pub look: Option<u32>,
    /// Seldom comes to run, so it is not made longer to be faster.
    pub rare: bool,
}

/// The counter of a loop: `from`, `from + step`, … while less than `to`; never wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// What the body sees. u32 or i32.
    pub value: Value,
    /// First value.
    pub from: Value,
    /// Limit.
    pub to: Value,
    /// At least 1.
    pub step: u32,
}

/// Steps in order, then where to go.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    /// Steps.
    pub insts: Vec<Inst>,
    /// Where to go. The kernel's own block ends in `Return`.
    pub end: End,
}

/// How a block ends.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// Goes on after the enclosing `If`, giving its results.
    Yield(Vec<Value>),
    /// Next round of the innermost loop, with the carried values.
    Continue(Vec<Value>),
    /// Leaves the innermost loop, giving its results.
    Break(Vec<Value>),
    /// Ends the invocation.
    Return,
    /// Never reached: the last step leaves on every way.
    Unreachable,
}

/// A buffer as a kernel sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelBuffer {
    /// Position in the program's buffers.
    pub index: u32,
    /// Name, for people.
    pub name: Name,
    /// Binding group.
    pub group: u32,
    /// Binding number.
    pub binding: u32,
    /// Kind.
    pub kind: crate::ir::BufferKind,
    /// The element when the buffer is an array of scalars or vectors, with its width; `None` when it holds structs or arrays.
    pub element: Option<(Element, u8)>,
    /// Distance of neighbours in bytes; 1 for two 4-bit elements.
    pub stride: u32,
    /// Bytes before the open array; 0 for a plain buffer. Length = (bytes − header) / stride.
    pub header: u32,
    /// Number of elements when fixed.
    pub count: Option<u32>,
    /// Some access reads it.
    pub read: bool,
    /// Some access writes it.
    pub written: bool,
    /// Some access is atomic.
    pub atomic: bool,
}

impl KernelBuffer {
    /// How long it is whatever is bound; 0 where that is open.
    pub(crate) fn fixed_bytes(&self) -> u64 {
        self.count.map_or(0, |count| u64::from(count) * u64::from(self.stride))
    }
}

/// Workgroup memory or an invocation's own array.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelMemory {
    /// Name, for people.
    pub name: Name,
    /// The element when it is an array of scalars or vectors, with its width.
    pub element: Option<(Element, u8)>,
    /// Bytes.
    pub size: u32,
    /// Alignment in bytes.
    pub align: u32,
    /// Some access is atomic.
    pub atomic: bool,
    /// Something may be read before it is written, so it must be zero at the start.
    pub cleared: bool,
    /// A table: its words, which nothing changes. Only private arrays of words are.
    pub words: Option<Arc<[u32]>>,
}

/// What a device must have to run a kernel, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Features(pub u32);

impl Features {
    /// f16 arithmetic or storage.
    pub const F16: Features = Features(1);
    /// f64.
    pub const F64: Features = Features(1 << 1);
    /// u64 or i64.
    pub const INT64: Features = Features(1 << 2);
    /// Subgroup operations.
    pub const SUBGROUP: Features = Features(1 << 3);
    /// 64-bit atomics.
    pub const ATOMIC64: Features = Features(1 << 4);
    /// Stored types that are converted on load and store.
    pub const NARROW: Features = Features(1 << 5);
    /// Matrix fragments.
    pub const MATRIX: Features = Features(1 << 6);

    /// All of `other` are here.
    pub fn contains(self, other: Features) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both.
    #[must_use]
    pub fn union(self, other: Features) -> Features {
        Features(self.0 | other.0)
    }
}

/// An optimised program under one specialization and workgroup size.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// Entry point.
    pub name: Name,
    /// Workgroup size that the kernel was made for; built-ins that depend on it are folded.
    pub workgroup_size: [u32; 3],
    /// Neighbours along x that do together what one invocation of the program does. The workgroup size counts each of them.
    pub parts: u32,
    /// Buffers with bindings, in binding order, used or not.
    pub buffers: Vec<KernelBuffer>,
    /// Workgroup memory.
    pub shared: Vec<KernelMemory>,
    /// Arrays private to an invocation, zero at its start.
    pub locals: Vec<KernelMemory>,
    /// Every value.
    pub values: Vec<ValueInfo>,
    /// Body.
    pub body: Block,
    /// What a device must have.
    pub features: Features,
    /// There is a barrier.
    pub has_barrier: bool,
    /// The result does not depend on the workgroup size, so a tuner may change it.
    pub resizable: bool,
    /// Emitters may be as rough as WGSL allows, or give the bits of the reference.
    pub math: Math,
}
