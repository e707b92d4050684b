use std::{fmt, ops};

use half::f16;
use smallvec::SmallVec;

use super::{DataType, Literal, MatrixKind, Name};

/// A value that the invocation is given. Axes are 0, 1 and 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Builtin {
    GlobalId(u8),
    LocalId(u8),
    WorkgroupId(u8),
    NumWorkgroups(u8),
    WorkgroupSize(u8),
    /// `x + y·sx + z·sx·sy` within the workgroup.
    LocalIndex,
    SubgroupSize,
    /// Position within the subgroup.
    SubgroupLane,
    /// Number of the subgroup within the workgroup.
    SubgroupId,
    NumSubgroups,
}

/// As the text form writes it: `global_id.x`.
impl fmt::Display for Builtin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, axis) = match *self {
            Builtin::GlobalId(axis) => ("global_id", axis),
            Builtin::LocalId(axis) => ("local_id", axis),
            Builtin::WorkgroupId(axis) => ("workgroup_id", axis),
            Builtin::NumWorkgroups(axis) => ("num_workgroups", axis),
            Builtin::WorkgroupSize(axis) => ("workgroup_size", axis),
            Builtin::LocalIndex => return f.write_str("local_index"),
            Builtin::SubgroupSize => return f.write_str("subgroup_size"),
            Builtin::SubgroupLane => return f.write_str("subgroup_lane"),
            Builtin::SubgroupId => return f.write_str("subgroup_id"),
            Builtin::NumSubgroups => return f.write_str("num_subgroups"),
        };
        match axis {
            0 => write!(f, "{name}.x"),
            1 => write!(f, "{name}.y"),
            2 => write!(f, "{name}.z"),
            other => write!(f, "{name}.{other}"),
        }
    }
}

/// One operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnaryOp {
    /// Signed integers (wrapping) and floats (flips the sign bit).
    Neg,
    /// Bitwise on integers, logical on bools.
    Not,
}

/// Two operands of one type; a comparison gives bool, and a shift takes its count as u32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    /// `x / 0 = x` and `MIN / -1 = MIN` on integers.
    Div,
    /// `x % 0 = 0` on integers; on floats `x - y·trunc(x/y)`.
    Rem,
    /// Bitwise on integers, logical on bools (both sides are evaluated).
    And,
    Or,
    Xor,
    /// Count modulo the width.
    Shl,
    Shr,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl BinaryOp {
    /// Gives bool.
    pub fn is_comparison(self) -> bool {
        matches!(self, BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge)
    }

    /// Takes its count as u32 (a vector of u32 where the left side is a vector).
    pub fn is_shift(self) -> bool {
        matches!(self, BinaryOp::Shl | BinaryOp::Shr)
    }
}

/// Built-in functions. All work on each component of a vector, except `Dot`, `All` and `Any`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MathOp {
    /// Integers (wrapping) and floats (clears the sign bit).
    Abs,
    /// −1, 0 or 1; gives NaN for NaN and keeps the sign of zero.
    Sign,
    /// `b < a ? b : a`.
    Min,
    /// `a < b ? b : a`.
    Max,
    /// `min(max(x, low), high)`.
    Clamp,
    /// Towards −∞.
    Floor,
    /// Towards +∞.
    Ceil,
    /// To nearest, ties to even.
    Round,
    /// Towards zero.
    Trunc,
    /// `x - floor(x)`.
    Fract,
    /// Correctly rounded.
    Sqrt,
    /// `1 / sqrt(x)`.
    InverseSqrt,
    /// eˣ.
    Exp,
    /// 2ˣ.
    Exp2,
    /// Natural logarithm.
    Log,
    /// Logarithm to base 2.
    Log2,
    /// xʸ for x ≥ 0; NaN for x < 0.
    Pow,
    /// Radians.
    Sin,
    /// Radians.
    Cos,
    /// Radians.
    Tan,
    /// Radians.
    Asin,
    /// Radians.
    Acos,
    /// Radians.
    Atan,
    /// `atan2(y, x)`.
    Atan2,
    /// Hyperbolic.
    Sinh,
    /// Hyperbolic.
    Cosh,
    /// Hyperbolic.
    Tanh,
    /// Hyperbolic.
    Asinh,
    /// Hyperbolic.
    Acosh,
    /// Hyperbolic.
    Atanh,
    /// `a·b + c` with one rounding.
    Fma,
    /// Sum of the products of the components, added in order, without contraction.
    Dot,
    /// Every component of a bool vector is true.
    All,
    /// Some component of a bool vector is true.
    Any,
    /// Bits set, in the operand's type.
    CountOneBits,
    /// Zero bits above the highest set bit.
    CountLeadingZeros,
    /// Zero bits below the lowest set bit.
    CountTrailingZeros,
    /// Mirrors the bits.
    ReverseBits,
    /// Position of the highest bit that differs from the sign (unsigned: that is set), −1 when none.
    FirstLeadingBit,
    /// Position of the lowest set bit, −1 when none.
    FirstTrailingBit,
    /// `extract(value, offset: u32, count: u32)` on 32-bit integers, sign-extending for i32.
    ExtractBits,
    /// `insert(value, new, offset: u32, count: u32)` on 32-bit integers.
    InsertBits,
    /// High 32 bits of the 64-bit product of u32 or i32.
    MulHigh,
}

impl MathOp {
    /// How many arguments it takes.
    pub fn arity(self) -> usize {
        match self {
            MathOp::Min | MathOp::Max | MathOp::Pow | MathOp::Atan2 | MathOp::Dot | MathOp::MulHigh => 2,
            MathOp::Clamp | MathOp::Fma | MathOp::ExtractBits => 3,
            MathOp::InsertBits => 4,
            _ => 1,
        }
    }
}

/// Operations across a subgroup; they must stand where all its invocations come together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum SubgroupOp {
    Add,
    Mul,
    Min,
    Max,
    And,
    Or,
    Xor,
    InclusiveAdd,
    ExclusiveAdd,
    InclusiveMul,
    ExclusiveMul,
    /// Bool: true in all lanes.
    All,
    /// Bool: true in some lane.
    Any,
    /// Bool to a vector of four u32 with one bit a lane.
    Ballot,
    /// Value of the first lane.
    BroadcastFirst,
    /// Value of lane `argument` (the same for all lanes); zero where there is no such lane.
    Broadcast,
    /// Value of lane `argument`; zero where there is no such lane.
    Shuffle,
    /// Value of lane `own ^ argument`; zero where there is no such lane.
    ShuffleXor,
    /// Value of lane `own - argument`; zero where there is no such lane.
    ShuffleUp,
    /// Value of lane `own + argument`; zero where there is no such lane.
    ShuffleDown,
}

impl SubgroupOp {
    /// Takes a lane argument (u32).
    pub fn has_argument(self) -> bool {
        matches!(
            self,
            SubgroupOp::Broadcast
                | SubgroupOp::Shuffle
                | SubgroupOp::ShuffleXor
                | SubgroupOp::ShuffleUp
                | SubgroupOp::ShuffleDown
        )
    }
}

/// One step into a struct, array or vector.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Member of a struct, by position.
    Member(u32),
    /// Element of an array or component of a vector, any 32- or 64-bit integer. Outside, a read gives zero and a write does
    /// nothing.
    Index(Expr),
}

/// A value. Evaluation has no side effects, so the order of evaluation within a statement can't be seen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Expr {
    /// A constant.
    Literal(Literal),
    /// A `let`, variable, parameter, loop counter or result.
    Var(Name),
    /// A specialization constant.
    Constant(Name),
    /// Reads a buffer; zero outside. Gives the type that the element computes as.
    Load {
        /// A readable buffer.
        buffer: Name,
        /// Element, any 32- or 64-bit integer; a negative one is outside.
        index: Box<Expr>,
        /// The part of the element.
        path: Vec<Access>,
    },
    /// Number of elements of a buffer, as u32. For a buffer whose element ends in an array of open length: of that array.
    Length(Name),
    /// What the invocation is given.
    Builtin(Builtin),
    /// One operand.
    Unary {
        /// Operation.
        op: UnaryOp,
        /// Operand.
        value: Box<Expr>,
    },
    /// Two operands.
    Binary {
        /// Operation.
        op: BinaryOp,
        /// Left.
        left: Box<Expr>,
        /// Right.
        right: Box<Expr>,
    },
    /// A built-in function.
    Math {
        /// Function.
        op: MathOp,
        /// Arguments.
        args: Vec<Expr>,
    },
    /// `cond ? yes : no`; both are evaluated. A vector of bools selects by component.
    Select {
        /// Bool, or a vector of bools.
        cond: Box<Expr>,
        /// When true.
        yes: Box<Expr>,
        /// When false.
        no: Box<Expr>,
    },
    /// Converts the value. Float to integer saturates and NaN gives 0; to bool is `!= 0`.
    Cast {
        /// Scalar or vector that computes, of the same number of components.
        to: DataType,
        /// Operand.
        value: Box<Expr>,
    },
    /// Keeps the bits.
    BitCast {
        /// Type of the same size.
        to: DataType,
        /// Operand.
        value: Box<Expr>,
    },
    /// A vector (from scalars and vectors, or one scalar for all components), struct or array (from all its parts). No parts:
    /// zero.
    Construct {
        /// What is made.
        ty: DataType,
        /// Parts.
        parts: Vec<Expr>,
    },
    /// Components of a vector; one lane gives a scalar.
    Swizzle {
        /// Vector.
        value: Box<Expr>,
        /// 1 to 4 positions.
        lanes: SmallVec<[u8; 4]>,
    },
    /// Part of a struct, array or vector value.
    Part {
        /// Whole.
        value: Box<Expr>,
        /// The way in, at least one step.
        path: Vec<Access>,
    },
    /// An operation across the subgroup.
    Subgroup {
        /// Operation.
        op: SubgroupOp,
        /// Operand.
        value: Box<Expr>,
        /// Lane, u32, for those that take one.
        argument: Option<Box<Expr>>,
    },
    /// `A·B + C` of small matrices that the lanes of a subgroup hold together, as [`MatrixKind`] says: four f32.
    ///
    /// It must stand where the whole workgroup comes together; the workgroup must be whole subgroups of 32
    /// invocations. Products are exact; the error of their sum is bounded, and how sums are rounded is the device's.
    MatrixMultiplyAdd {
        /// Elements of A and B.
        kind: MatrixKind,
        /// Four u32.
        a: Box<Expr>,
        /// Two u32.
        b: Box<Expr>,
        /// Four f32.
        c: Box<Expr>,
    },
}

impl Expr {
    /// A bool constant.
    pub fn bool(value: bool) -> Expr {
        Literal::Bool(value).into()
    }

    /// A u32 constant.
    pub fn u32(value: u32) -> Expr {
        Literal::U32(value).into()
    }

    /// An i32 constant.
    pub fn i32(value: i32) -> Expr {
        Literal::I32(value).into()
    }

    /// A u64 constant.
    pub fn u64(value: u64) -> Expr {
        Literal::U64(value).into()
    }

    /// An i64 constant.
    pub fn i64(value: i64) -> Expr {
        Literal::I64(value).into()
    }

    /// An f16 constant.
    pub fn f16(value: f16) -> Expr {
        Literal::F16(value).into()
    }

    /// An f32 constant.
    pub fn f32(value: f32) -> Expr {
        Literal::F32(value).into()
    }

    /// An f64 constant.
    pub fn f64(value: f64) -> Expr {
        Literal::F64(value).into()
    }

    /// A variable.
    pub fn var(name: impl Into<Name>) -> Expr {
        Expr::Var(name.into())
    }

    /// A specialization constant.
    pub fn constant(name: impl Into<Name>) -> Expr {
        Expr::Constant(name.into())
    }

    /// An element of a buffer.
    pub fn load(buffer: impl Into<Name>, index: impl Into<Expr>) -> Expr {
        Expr::Load { buffer: buffer.into(), index: Box::new(index.into()), path: Vec::new() }
    }

    /// The number of elements of a buffer.
    pub fn len(buffer: impl Into<Name>) -> Expr {
        Expr::Length(buffer.into())
    }

    /// Position in the whole grid.
    pub fn global_id(axis: u8) -> Expr {
        Expr::Builtin(Builtin::GlobalId(axis))
    }

    /// Position in the workgroup.
    pub fn local_id(axis: u8) -> Expr {
        Expr::Builtin(Builtin::LocalId(axis))
    }

    /// Position of the workgroup.
    pub fn workgroup_id(axis: u8) -> Expr {
        Expr::Builtin(Builtin::WorkgroupId(axis))
    }

    /// A unary operation.
    pub fn unary(op: UnaryOp, value: impl Into<Expr>) -> Expr {
        Expr::Unary { op, value: Box::new(value.into()) }
    }

    /// A binary operation.
    pub fn binary(op: BinaryOp, left: impl Into<Expr>, right: impl Into<Expr>) -> Expr {
        Expr::Binary { op, left: Box::new(left.into()), right: Box::new(right.into()) }
    }

    /// A built-in function.
    pub fn math(op: MathOp, args: Vec<Expr>) -> Expr {
        Expr::Math { op, args }
    }

    /// `cond ? yes : no`.
    pub fn select(cond: impl Into<Expr>, yes: impl Into<Expr>, no: impl Into<Expr>) -> Expr {
        Expr::Select { cond: Box::new(cond.into()), yes: Box::new(yes.into()), no: Box::new(no.into()) }
    }

    /// `a·b + c` of matrices that the subgroup holds.
    pub fn matrix_multiply_add(kind: MatrixKind, a: impl Into<Expr>, b: impl Into<Expr>, c: impl Into<Expr>) -> Expr {
        Expr::MatrixMultiplyAdd { kind, a: Box::new(a.into()), b: Box::new(b.into()), c: Box::new(c.into()) }
    }

    /// Builds a vector, struct or array.
    pub fn construct(ty: DataType, parts: Vec<Expr>) -> Expr {
        Expr::Construct { ty, parts }
    }

    /// Converts to another type.
    #[must_use]
    pub fn cast(self, to: DataType) -> Expr {
        Expr::Cast { to, value: Box::new(self) }
    }

    /// Reads the bits as another type.
    #[must_use]
    pub fn bit_cast(self, to: DataType) -> Expr {
        Expr::BitCast { to, value: Box::new(self) }
    }

    /// One component of a vector.
    #[must_use]
    pub fn lane(self, lane: u8) -> Expr {
        Expr::Swizzle { value: Box::new(self), lanes: SmallVec::from_slice(&[lane]) }
    }
}

/// Comparisons and functions read from left to right: `i.lt(n)`, `x.max(y)`.
macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident($op:ident);)*) => {
        impl Expr {
            $($(#[$doc])* #[must_use] pub fn $name(self, other: impl Into<Expr>) -> Expr {
                Expr::binary(BinaryOp::$op, self, other)
            })*
        }
    };
}
methods! {
    /// `self == other`.
    eq(Eq);
    /// `self != other`.
    ne(Ne);
    /// `self < other`.
    lt(Lt);
    /// `self <= other`.
    le(Le);
    /// `self > other`.
    gt(Gt);
    /// `self >= other`.
    ge(Ge);
}

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident($op:ident $(, $arg:ident)*);)*) => {
        impl Expr {
            $($(#[$doc])* #[must_use] pub fn $name(self $(, $arg: impl Into<Expr>)*) -> Expr {
                Expr::math(MathOp::$op, vec![self $(, $arg.into())*])
            })*
        }
    };
}
functions! {
    /// Absolute value.
    abs(Abs);
    /// The smaller.
    min(Min, other);
    /// The larger.
    max(Max, other);
    /// Square root.
    sqrt(Sqrt);
    /// eˣ.
    exp(Exp);
    /// Natural logarithm.
    log(Log);
    /// Sine.
    sin(Sin);
    /// Cosine.
    cos(Cos);
    /// Hyperbolic tangent.
    tanh(Tanh);
    /// Towards −∞.
    floor(Floor);
    /// `self·b + c` with one rounding.
    fma(Fma, b, c);
}

macro_rules! operators {
    ($($trait:ident $method:ident $op:ident;)*) => {
        $(impl<T: Into<Expr>> ops::$trait<T> for Expr {
            type Output = Expr;
            fn $method(self, right: T) -> Expr {
                Expr::binary(BinaryOp::$op, self, right)
            }
        }

        impl<T: Into<Expr>> ops::$trait<T> for &Expr {
            type Output = Expr;
            fn $method(self, right: T) -> Expr {
                Expr::binary(BinaryOp::$op, self, right)
            }
        })*
    };
}
operators! {
    Add add Add;
    Sub sub Sub;
    Mul mul Mul;
    Div div Div;
    Rem rem Rem;
    BitAnd bitand And;
    BitOr bitor Or;
    BitXor bitxor Xor;
    Shl shl Shl;
    Shr shr Shr;
}

impl ops::Neg for Expr {
    type Output = Expr;
    fn neg(self) -> Expr {
        Expr::unary(UnaryOp::Neg, self)
    }
}

impl ops::Not for Expr {
    type Output = Expr;
    fn not(self) -> Expr {
        Expr::unary(UnaryOp::Not, self)
    }
}

impl From<Literal> for Expr {
    fn from(literal: Literal) -> Expr {
        Expr::Literal(literal)
    }
}

impl From<&Expr> for Expr {
    fn from(expr: &Expr) -> Expr {
        expr.clone()
    }
}

macro_rules! literals {
    ($($ty:ty),*) => {
        $(impl From<$ty> for Expr {
            fn from(value: $ty) -> Expr {
                Expr::Literal(value.into())
            }
        })*
    };
}
literals!(bool, u32, i32, u64, i64, f16, f32, f64);
