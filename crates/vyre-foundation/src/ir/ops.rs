//! The operations of each kind with their names in the text form. The position in a table is also the number in the wire
//! form, so entries are only ever added at the end.

use super::{AtomicOp, BinaryOp, MathOp, MatrixKind, SubgroupOp, UnaryOp};

macro_rules! table {
    ($op:ident: $($variant:ident $name:literal),* $(,)?) => {
        impl $op {
            /// Every operation, in the order of the wire form.
            pub const ALL: &'static [$op] = &[$($op::$variant),*];

            /// Name in the text form.
            pub fn name(self) -> &'static str {
                match self {
                    $($op::$variant => $name),*
                }
            }

            /// The operation with this name.
            pub fn named(name: &str) -> Option<$op> {
                Self::ALL.iter().copied().find(|op| op.name() == name)
            }

            /// Number in the wire form.
            pub(crate) fn number(self) -> u8 {
                self as u8
            }
        }
    };
}

table! { UnaryOp:
    Neg "-",
    Not "!",
}

table! { BinaryOp:
    Add "+",
    Sub "-",
    Mul "*",
    Div "/",
    Rem "%",
    And "&",
    Or "|",
    Xor "^",
    Shl "<<",
    Shr ">>",
    Eq "==",
    Ne "!=",
    Lt "<",
    Le "<=",
    Gt ">",
    Ge ">=",
}

table! { MathOp:
    Abs "abs",
    Sign "sign",
    Min "min",
    Max "max",
    Clamp "clamp",
    Floor "floor",
    Ceil "ceil",
    Round "round",
    Trunc "trunc",
    Fract "fract",
    Sqrt "sqrt",
    InverseSqrt "inverse_sqrt",
    Exp "exp",
    Exp2 "exp2",
    Log "log",
    Log2 "log2",
    Pow "pow",
    Sin "sin",
    Cos "cos",
    Tan "tan",
    Asin "asin",
    Acos "acos",
    Atan "atan",
    Atan2 "atan2",
    Sinh "sinh",
    Cosh "cosh",
    Tanh "tanh",
    Asinh "asinh",
    Acosh "acosh",
    Atanh "atanh",
    Fma "fma",
    Dot "dot",
    All "all",
    Any "any",
    CountOneBits "count_one_bits",
    CountLeadingZeros "count_leading_zeros",
    CountTrailingZeros "count_trailing_zeros",
    ReverseBits "reverse_bits",
    FirstLeadingBit "first_leading_bit",
    FirstTrailingBit "first_trailing_bit",
    ExtractBits "extract_bits",
    InsertBits "insert_bits",
    MulHigh "mul_high",
}

table! { SubgroupOp:
    Add "add",
    Mul "mul",
    Min "min",
    Max "max",
    And "and",
    Or "or",
    Xor "xor",
    InclusiveAdd "inclusive_add",
    ExclusiveAdd "exclusive_add",
    InclusiveMul "inclusive_mul",
    ExclusiveMul "exclusive_mul",
    All "all",
    Any "any",
    Ballot "ballot",
    BroadcastFirst "broadcast_first",
    Broadcast "broadcast",
    Shuffle "shuffle",
    ShuffleXor "shuffle_xor",
    ShuffleUp "shuffle_up",
    ShuffleDown "shuffle_down",
}

table! { MatrixKind:
    F16 "matrix_f16",
    Bf16 "matrix_bf16",
    Tf32 "matrix_tf32",
}

table! { AtomicOp:
    Load "load",
    Store "store",
    Add "add",
    Sub "sub",
    Min "min",
    Max "max",
    And "and",
    Or "or",
    Xor "xor",
    Exchange "exchange",
    CompareExchange "compare_exchange",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_positions_and_names_are_unique() {
        macro_rules! check {
            ($($op:ident),*) => {$(
                for (position, op) in $op::ALL.iter().enumerate() {
                    assert_eq!(op.number() as usize, position, "{op:?}");
                    assert_eq!($op::named(op.name()), Some(*op));
                }
            )*};
        }
        check!(UnaryOp, BinaryOp, MathOp, SubgroupOp, MatrixKind, AtomicOp);
    }
}
