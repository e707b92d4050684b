//! Operations that are not worth instructions of their own: the operands go to scratch memory, a helper computes lane by lane,
//! and the result comes back from there.

use vyre_foundation::ir::{AtomicOp, SubgroupOp};
use vyre_foundation::kernel::{Binary, Element, Memory, Scalar, Unary, Value};

use super::super::context::{self, COLUMN};
use super::super::isa::Isa;
use super::super::mir::{At, M, R, Src};
use super::super::ops;
use super::Lower;
use super::value::{Lin, Rep};

/// What the helper does with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Access {
    Load,
    Store,
    Atomic(AtomicOp),
}

/// What the helper is asked, packed into a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Rare {
    Unary(Unary, Scalar),
    Binary(Binary, Scalar),
    Fma(Scalar),
    Cast(Scalar, Scalar),
    BitCast(Scalar, Scalar),
    Memory { access: Access, memory: Memory, element: Element, component: u32 },
    Subgroup(SubgroupOp, Scalar),
}

const SCALARS: [Scalar; 8] =
    [Scalar::Bool, Scalar::U32, Scalar::I32, Scalar::U64, Scalar::I64, Scalar::F16, Scalar::F32, Scalar::F64];

const ELEMENTS: [Element; 18] = [
    Element::Bool,
    Element::U32,
    Element::I32,
    Element::U64,
    Element::I64,
    Element::F16,
    Element::F32,
    Element::F64,
    Element::U8,
    Element::U16,
    Element::I8,
    Element::I16,
    Element::BF16,
    Element::F8E4M3,
    Element::F8E5M2,
    Element::I4,
    Element::FP4,
    Element::NF4,
];

const UNARY: [Unary; 39] = [
    Unary::Neg,
    Unary::Not,
    Unary::Abs,
    Unary::Sign,
    Unary::Floor,
    Unary::Ceil,
    Unary::Round,
    Unary::Trunc,
    Unary::Sqrt,
    Unary::InverseSqrt,
    Unary::Exp,
    Unary::Exp2,
    Unary::Log,
    Unary::Log2,
    Unary::Sin,
    Unary::Cos,
    Unary::Tan,
    Unary::Asin,
    Unary::Acos,
    Unary::Atan,
    Unary::Sinh,
    Unary::Cosh,
    Unary::Tanh,
    Unary::Asinh,
    Unary::Acosh,
    Unary::Atanh,
    Unary::CountOneBits,
    Unary::CountLeadingZeros,
    Unary::CountTrailingZeros,
    Unary::ReverseBits,
    Unary::FirstLeadingBit,
    Unary::FirstTrailingBit,
    Unary::RoughInverseSqrt,
    Unary::RoughReciprocal,
    Unary::RoughSqrt,
    Unary::RoughExp2,
    Unary::RoughLog2,
    Unary::RoughSin,
    Unary::RoughCos,
];

const BINARY: [Binary; 21] = [
    Binary::Add,
    Binary::Sub,
    Binary::Mul,
    Binary::Div,
    Binary::Rem,
    Binary::And,
    Binary::Or,
    Binary::Xor,
    Binary::Shl,
    Binary::Shr,
    Binary::Eq,
    Binary::Ne,
    Binary::Lt,
    Binary::Le,
    Binary::Gt,
    Binary::Ge,
    Binary::Min,
    Binary::Max,
    Binary::MulHigh,
    Binary::Pow,
    Binary::Atan2,
];

const ATOMIC: [AtomicOp; 11] = [
    AtomicOp::Load,
    AtomicOp::Store,
    AtomicOp::Add,
    AtomicOp::Sub,
    AtomicOp::Min,
    AtomicOp::Max,
    AtomicOp::And,
    AtomicOp::Or,
    AtomicOp::Xor,
    AtomicOp::Exchange,
    AtomicOp::CompareExchange,
];

const SUBGROUP: [SubgroupOp; 19] = [
    SubgroupOp::Add,
    SubgroupOp::Mul,
    SubgroupOp::Min,
    SubgroupOp::Max,
    SubgroupOp::And,
    SubgroupOp::Or,
    SubgroupOp::Xor,
    SubgroupOp::InclusiveAdd,
    SubgroupOp::ExclusiveAdd,
    SubgroupOp::InclusiveMul,
    SubgroupOp::ExclusiveMul,
    SubgroupOp::All,
    SubgroupOp::Any,
    SubgroupOp::BroadcastFirst,
    SubgroupOp::Broadcast,
    SubgroupOp::Shuffle,
    SubgroupOp::ShuffleXor,
    SubgroupOp::ShuffleUp,
    SubgroupOp::ShuffleDown,
];

fn position<T: PartialEq>(all: &[T], one: T) -> u64 {
    all.iter().position(|other| *other == one).unwrap_or(0) as u64
}

/// Set in the word for an atomic whose old values nobody needs.
pub(in super::super) const OLD_UNUSED: u64 = 1 << 56;

/// The word for an operation on memory.
pub(super) fn memory_code(access: Access, memory: Memory, element: Element, component: u32) -> u64 {
    Rare::Memory { access, memory, element, component }.pack()
}

impl Rare {
    pub(in super::super) fn pack(self) -> u64 {
        let scalars = |from: Scalar, to: Scalar| position(&SCALARS, from) << 16 | position(&SCALARS, to) << 24;
        match self {
            Rare::Unary(op, ty) => position(&UNARY, op) << 8 | scalars(ty, ty),
            Rare::Binary(op, ty) => 1 | position(&BINARY, op) << 8 | scalars(ty, ty),
            Rare::Fma(ty) => 2 | scalars(ty, ty),
            Rare::Cast(from, to) => 3 | scalars(from, to),
            Rare::BitCast(from, to) => 4 | scalars(from, to),
            Rare::Subgroup(op, ty) => 8 | position(&SUBGROUP, op) << 8 | scalars(ty, ty),
            Rare::Memory { access, memory, element, component } => {
                let (kind, index) = match memory {
                    Memory::Buffer(index) => (0u64, index),
                    Memory::Shared(index) => (1, index),
                    Memory::Local(index) => (2, index),
                };
                let (base, op) = match access {
                    Access::Load => (5, 0),
                    Access::Store => (6, 0),
                    Access::Atomic(op) => (7, position(&ATOMIC, op)),
                };
                base | op << 8
                    | position(&ELEMENTS, element) << 16
                    | kind << 24
                    | u64::from(index & 0xffff) << 32
                    | u64::from(component & 0xff) << 48
            }
        }
    }

    /// `None` for a word that [`Rare::pack`] did not make.
    pub(in super::super) fn unpack(word: u64) -> Option<Rare> {
        let byte = |at: u32| (word >> at & 0xff) as usize;
        let scalar = |at: u32| SCALARS.get(byte(at)).copied();
        Some(match word & 0xff {
            0 => Rare::Unary(*UNARY.get(byte(8))?, scalar(16)?),
            1 => Rare::Binary(*BINARY.get(byte(8))?, scalar(16)?),
            2 => Rare::Fma(scalar(16)?),
            3 => Rare::Cast(scalar(16)?, scalar(24)?),
            4 => Rare::BitCast(scalar(16)?, scalar(24)?),
            8 => Rare::Subgroup(*SUBGROUP.get(byte(8))?, scalar(16)?),
            base @ 5..=7 => {
                let index = (word >> 32 & 0xffff) as u32;
                let memory = match byte(24) {
                    0 => Memory::Buffer(index),
                    1 => Memory::Shared(index),
                    _ => Memory::Local(index),
                };
                let access = match base {
                    5 => Access::Load,
                    6 => Access::Store,
                    _ => Access::Atomic(*ATOMIC.get(byte(8))?),
                };
                Rare::Memory { access, memory, element: *ELEMENTS.get(byte(16))?, component: byte(48) as u32 }
            }
            _ => return None,
        })
    }
}

impl<'k> Lower<'k> {
    /// The address of the scratch memory.
    pub(super) fn scratch(&mut self) -> R {
        let r = self.general();
        self.push(M::Load { bytes: 8, signed: false, dst: r, at: At::new(R::CONTEXT, context::SCRATCH) });
        r
    }

    pub(super) fn put_scratch(&mut self, scratch: R, at: i32, v: R) {
        let len = self.len();
        self.push(M::VStore { op: ops::VMOVUPS_STORE, len, src: v, at: At::new(scratch, at), mask: R::NONE });
    }

    pub(super) fn mask_to_scratch(&mut self, scratch: R, mask: Option<R>) {
        let bits = match mask {
            Some(mask) => self.mask_bits(mask),
            None => self.materialise(Lin::imm(if self.facts.isa == Isa::Avx512 { 0xffff } else { 0xff })),
        };
        self.push(M::Store { bytes: 4, src: bits, at: At::new(scratch, context::MASK) });
    }

    /// Puts an operand into a column; bools as a word of bits.
    pub(super) fn operand_to_scratch(&mut self, scratch: R, column: i32, value: Value, component: u8, c: usize) {
        let scalar = self.scalar_of(value);
        let at = column * COLUMN;
        if scalar == Scalar::Bool {
            let mask = self.mask_part(value, component, c);
            let bits = self.mask_bits(mask);
            self.push(M::Store { bytes: 4, src: bits, at: At::new(scratch, at) });
            return;
        }
        for part in 0..Self::parts(scalar) {
            let v = self.vector_part(value, component, c, part);
            self.put_scratch(scratch, at + part as i32 * self.len().bytes(), v);
        }
    }

    pub(super) fn take_scratch(&mut self, scratch: R, scalar: Scalar) -> Rep {
        if scalar == Scalar::Bool {
            let bits = self.general();
            self.push(M::Load { bytes: 4, signed: false, dst: bits, at: At::new(scratch, context::RESULT) });
            return Rep::Mask(match self.facts.isa {
                Isa::Avx512 => {
                    let dst = self.new_mask();
                    self.push(M::MaskFrom { dst, src: bits });
                    dst
                }
                _ => {
                    // Bit `lane` of the word, moved to the sign and spread over the lane.
                    let word = self.vector();
                    self.push(M::Broadcast { len: self.len(), wide: false, dst: word, src: bits });
                    let counts: Vec<u32> = (0..self.lanes()).map(|lane| 31 - lane).collect();
                    let counts = self.lanes_constant(&counts);
                    let signs = self.vec(ops::VPSLLVD, word, Src::R(counts));
                    self.vec_imm(ops::VPSRAD, R::NONE, Src::R(signs), 31)
                }
            });
        }
        let mut parts = [R::NONE; 2];
        for (part, r) in parts.iter_mut().enumerate().take(Self::parts(scalar)) {
            let at = context::RESULT + part as i32 * self.len().bytes();
            *r = self.vec(ops::VMOVUPS, R::NONE, Src::At(At::new(scratch, at)));
        }
        Rep::Vector(parts[0], parts[1])
    }

    fn rare(&mut self, rare: Rare, operands: &[Value], result: Scalar, c: usize) -> Rep {
        let scratch = self.scratch();
        for (column, &operand) in operands.iter().enumerate() {
            self.operand_to_scratch(scratch, column as i32, operand, 0, c);
        }
        self.push(M::Call { code: rare.pack() });
        self.take_scratch(scratch, result)
    }

    pub(super) fn rare_unary(&mut self, op: Unary, a: Value, c: usize) -> Rep {
        let scalar = self.scalar_of(a);
        self.rare(Rare::Unary(op, scalar), &[a], scalar, c)
    }

    pub(super) fn rare_binary(&mut self, op: Binary, a: Value, b: Value, c: usize) -> Rep {
        let scalar = self.scalar_of(a);
        let compares = matches!(op, Binary::Eq | Binary::Ne | Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge);
        self.rare(Rare::Binary(op, scalar), &[a, b], if compares { Scalar::Bool } else { scalar }, c)
    }

    pub(super) fn rare_fma(&mut self, operands: [Value; 3], c: usize) -> Rep {
        let scalar = self.scalar_of(operands[0]);
        self.rare(Rare::Fma(scalar), &operands, scalar, c)
    }

    pub(super) fn rare_cast(&mut self, value: Value, a: Value, c: usize) -> Rep {
        let (from, to) = (self.scalar_of(a), self.scalar_of(value));
        self.rare(Rare::Cast(from, to), &[a], to, c)
    }

    pub(super) fn rare_bit_cast(&mut self, value: Value, a: Value, c: usize) -> Rep {
        let (from, to) = (self.scalar_of(a), self.scalar_of(value));
        self.rare(Rare::BitCast(from, to), &[a], to, c)
    }

    /// The low words of 64-bit lanes.
    pub(super) fn truncate(&mut self, low: R, high: R) -> R {
        match self.facts.isa {
            Isa::Avx512 => {
                let (a, b) = (self.vector(), self.vector());
                let len = self.len();
                self.push(M::Reverse { op: ops::VPMOVQD, len, dst: a, src: low, imm: None });
                self.push(M::Reverse { op: ops::VPMOVQD, len, dst: b, src: high, imm: None });
                self.join_halves(a, b)
            }
            _ => self.even_words(low, high),
        }
    }
}
