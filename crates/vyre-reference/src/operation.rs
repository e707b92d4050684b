//! Operators, conversions and built-in functions. Each gives `None` when the operands have not the types that it takes, which
//! validation has excluded.
//!
//! Integers are computed as 128-bit numbers and then wrapped to their type.
//!
//! Floats are computed as f64 and then rounded to their type, to nearest, ties to even. That is the correctly rounded result
//! of `+ − × ÷ sqrt` for f16 and f32 too: f64 has more than twice their digits and two more, so the second rounding can't meet
//! a tie that the first one made.

use vyre_foundation::ir::{AtomicOp, BinaryOp, DataType, Element, Literal, MathOp, SubgroupOp, UnaryOp};

use crate::function::{self, Float};
use crate::stored;
use crate::value::Value;

pub(crate) fn unary(op: UnaryOp, value: &Value) -> Option<Value> {
    value.map(|x| {
        Some(match (op, x) {
            (UnaryOp::Not, Literal::Bool(x)) => Literal::Bool(!x),
            (UnaryOp::Not, _) => wrap(x, !integer(x)?)?,
            // Flips the sign bit, of a NaN too.
            (UnaryOp::Neg, Literal::F16(x)) => Literal::F16(-x),
            (UnaryOp::Neg, Literal::F32(x)) => Literal::F32(-x),
            (UnaryOp::Neg, Literal::F64(x)) => Literal::F64(-x),
            (UnaryOp::Neg, Literal::I32(_) | Literal::I64(_)) => wrap(x, -integer(x)?)?,
            (UnaryOp::Neg, _) => return None,
        })
    })
}

pub(crate) fn binary(op: BinaryOp, left: &Value, right: &Value) -> Option<Value> {
    left.zip(right, |a, b| match (a, b) {
        (Literal::Bool(a), Literal::Bool(b)) => bool_binary(op, a, b),
        (Literal::F16(a), Literal::F16(b)) => float_binary(op, a, b),
        (Literal::F32(a), Literal::F32(b)) => float_binary(op, a, b),
        (Literal::F64(a), Literal::F64(b)) => float_binary(op, a, b),
        _ if op.is_shift() => shift(op, a, b),
        _ => integer_binary(op, a, b),
    })
}

fn bool_binary(op: BinaryOp, a: bool, b: bool) -> Option<Literal> {
    Some(Literal::Bool(match op {
        BinaryOp::And => a & b,
        BinaryOp::Or => a | b,
        BinaryOp::Xor | BinaryOp::Ne => a != b,
        BinaryOp::Eq => a == b,
        _ => return None,
    }))
}

fn integer_binary(op: BinaryOp, left: Literal, right: Literal) -> Option<Literal> {
    if std::mem::discriminant(&left) != std::mem::discriminant(&right) {
        return None;
    }
    let (a, b) = (integer(left)?, integer(right)?);
    let result = match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        // Only the low bits are kept, and those are right even if the product is over 128 bits.
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::Div => {
            if b == 0 {
                a
            } else {
                a / b
            }
        }
        BinaryOp::Rem => {
            if b == 0 {
                0
            } else {
                a % b
            }
        }
        BinaryOp::And => a & b,
        BinaryOp::Or => a | b,
        BinaryOp::Xor => a ^ b,
        BinaryOp::Eq => return Some(Literal::Bool(a == b)),
        BinaryOp::Ne => return Some(Literal::Bool(a != b)),
        BinaryOp::Lt => return Some(Literal::Bool(a < b)),
        BinaryOp::Le => return Some(Literal::Bool(a <= b)),
        BinaryOp::Gt => return Some(Literal::Bool(a > b)),
        BinaryOp::Ge => return Some(Literal::Bool(a >= b)),
        BinaryOp::Shl | BinaryOp::Shr => return None,
    };
    wrap(left, result)
}

/// The count is taken modulo the width. A right shift of a signed number keeps its sign.
fn shift(op: BinaryOp, value: Literal, count: Literal) -> Option<Literal> {
    let Literal::U32(count) = count else { return None };
    let (number, count) = (integer(value)?, count % width(value)?);
    wrap(value, if op == BinaryOp::Shl { number << count } else { number >> count })
}

fn float_binary<F: Float>(op: BinaryOp, left: F, right: F) -> Option<Literal> {
    let (a, b) = (left.wide(), right.wide());
    let result = match op {
        BinaryOp::Add => a + b,
        BinaryOp::Sub => a - b,
        BinaryOp::Mul => a * b,
        BinaryOp::Div => a / b,
        // `x - y·trunc(x/y)`, where quotient, product and difference are each rounded to the type.
        BinaryOp::Rem => {
            let quotient = F::round(a / b).wide().trunc();
            a - F::round(b * quotient).wide()
        }
        BinaryOp::Eq => return Some(Literal::Bool(a == b)),
        BinaryOp::Ne => return Some(Literal::Bool(a != b)),
        BinaryOp::Lt => return Some(Literal::Bool(a < b)),
        BinaryOp::Le => return Some(Literal::Bool(a <= b)),
        BinaryOp::Gt => return Some(Literal::Bool(a > b)),
        BinaryOp::Ge => return Some(Literal::Bool(a >= b)),
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor | BinaryOp::Shl | BinaryOp::Shr => return None,
    };
    Some(F::round(result).literal())
}

/// The number that an integer is.
pub(crate) fn integer(value: Literal) -> Option<i128> {
    Some(match value {
        Literal::U32(x) => x.into(),
        Literal::I32(x) => x.into(),
        Literal::U64(x) => x.into(),
        Literal::I64(x) => x.into(),
        _ => return None,
    })
}

/// The integer of the type of `like` that a number wraps to.
fn wrap(like: Literal, number: i128) -> Option<Literal> {
    Some(match like {
        Literal::U32(_) => Literal::U32(number as u32),
        Literal::I32(_) => Literal::I32(number as i32),
        Literal::U64(_) => Literal::U64(number as u64),
        Literal::I64(_) => Literal::I64(number as i64),
        _ => return None,
    })
}

/// Bits of an integer type.
fn width(value: Literal) -> Option<u32> {
    match value {
        Literal::U32(_) | Literal::I32(_) => Some(32),
        Literal::U64(_) | Literal::I64(_) => Some(64),
        _ => None,
    }
}

fn is_signed(value: Literal) -> bool {
    matches!(value, Literal::I32(_) | Literal::I64(_))
}

/// Converts each lane. Float to integer goes towards zero and saturates, and NaN gives 0; integers wrap; to bool is `!= 0`.
pub(crate) fn cast(to: Element, value: &Value) -> Option<Value> {
    value.map(|x| {
        let float = match x {
            Literal::F16(x) => Some(x.wide()),
            Literal::F32(x) => Some(x.wide()),
            Literal::F64(x) => Some(x),
            _ => None,
        };
        if let Some(x) = float {
            return Some(match to {
                Element::Bool => Literal::Bool(x != 0.0),
                Element::U32 => Literal::U32(x as u32),
                Element::I32 => Literal::I32(x as i32),
                Element::U64 => Literal::U64(x as u64),
                Element::I64 => Literal::I64(x as i64),
                Element::F16 => Literal::F16(stored::round_f16(x)),
                Element::F32 => Literal::F32(x as f32),
                Element::F64 => Literal::F64(x),
                _ => return None,
            });
        }
        let x = if let Literal::Bool(x) = x { i128::from(x) } else { integer(x)? };
        Some(match to {
            Element::Bool => Literal::Bool(x != 0),
            Element::U32 => Literal::U32(x as u32),
            Element::I32 => Literal::I32(x as i32),
            Element::U64 => Literal::U64(x as u64),
            Element::I64 => Literal::I64(x as i64),
            // Integers that f64 can't hold are far beyond the largest f16, so this rounds once.
            Element::F16 => Literal::F16(stored::round_f16(x as f64)),
            Element::F32 => Literal::F32(x as f32),
            Element::F64 => Literal::F64(x as f64),
            _ => return None,
        })
    })
}

/// Reads the bits of a scalar or vector, the first lane lowest, as `count` lanes of another type.
pub(crate) fn bit_cast(to: Element, count: usize, value: &Value) -> Option<Value> {
    let mut bytes = Vec::with_capacity(32);
    for lane in value.lanes() {
        let size = Element::of(&lane.data_type())?.bits() / 8;
        bytes.extend_from_slice(&lane.bits().to_le_bytes()[..size as usize]);
    }
    let size = to.bits() as usize / 8;
    if size == 0 || bytes.len() != size * count {
        return None;
    }
    let mut lanes = Vec::with_capacity(4);
    for chunk in bytes.chunks(size) {
        let mut word = [0; 8];
        word[..size].copy_from_slice(chunk);
        lanes.push(stored::decode(to, u64::from_le_bytes(word)));
    }
    Value::from_lanes(&lanes)
}

/// `cond ? yes : no`, by lane where the condition is a vector.
pub(crate) fn select(cond: &Value, yes: Value, no: Value) -> Option<Value> {
    if let Value::Scalar(cond) = cond {
        let Literal::Bool(cond) = *cond else { return None };
        return Some(if cond { yes } else { no });
    }
    Value::zip_all(&[cond, &yes, &no], |lanes| match lanes {
        [Literal::Bool(cond), yes, no] => Some(if *cond { *yes } else { *no }),
        _ => None,
    })
}

pub(crate) fn math(op: MathOp, args: &[&Value]) -> Option<Value> {
    match (op, args) {
        (MathOp::Dot, [a, b]) => {
            let products = binary(BinaryOp::Mul, a, b)?;
            let mut products = products.lanes().iter().map(|&lane| Value::Scalar(lane));
            let first = products.next()?;
            products.try_fold(first, |sum, product| binary(BinaryOp::Add, &sum, &product))
        }
        (MathOp::All, [value]) => {
            let bools: Option<Vec<bool>> = value.lanes().iter().map(|&lane| Value::Scalar(lane).bool()).collect();
            Some(Value::Scalar(Literal::Bool(bools?.into_iter().all(|lane| lane))))
        }
        (MathOp::Any, [value]) => {
            let bools: Option<Vec<bool>> = value.lanes().iter().map(|&lane| Value::Scalar(lane).bool()).collect();
            Some(Value::Scalar(Literal::Bool(bools?.into_iter().any(|lane| lane))))
        }
        _ => Value::zip_all(args, |lanes| match lanes.first()? {
            Literal::Bool(_) => None,
            Literal::F16(_) => function::float::<half::f16>(op, lanes),
            Literal::F32(_) => function::float::<f32>(op, lanes),
            Literal::F64(_) => function::float::<f64>(op, lanes),
            _ => integer_function(op, lanes),
        }),
    }
}

fn integer_function(op: MathOp, args: &[Literal]) -> Option<Literal> {
    let first = *args.first()?;
    let (width, bits, x) = (width(first)?, first.bits(), integer(first)?);
    let number = |i: usize| integer(*args.get(i)?);
    let position = |i: usize| match args.get(i)? {
        Literal::U32(x) => Some(*x),
        _ => None,
    };
    let result = match op {
        MathOp::Abs => x.abs(),
        MathOp::Sign => x.signum(),
        MathOp::Min => x.min(number(1)?),
        MathOp::Max => x.max(number(1)?),
        MathOp::Clamp => x.max(number(1)?).min(number(2)?),
        MathOp::CountOneBits => bits.count_ones().into(),
        // The bits are at the low end of 64.
        MathOp::CountLeadingZeros => i128::from(bits.leading_zeros()) - i128::from(64 - width),
        MathOp::CountTrailingZeros => bits.trailing_zeros().min(width).into(),
        MathOp::ReverseBits => (bits.reverse_bits() >> (64 - width)).into(),
        MathOp::FirstLeadingBit => {
            // For a negative number, the highest bit that is not like the sign is the highest set bit of its complement.
            let magnitude = if x < 0 { !x as u64 } else { bits };
            63 - i128::from(magnitude.leading_zeros())
        }
        MathOp::FirstTrailingBit => {
            if bits == 0 {
                -1
            } else {
                bits.trailing_zeros().into()
            }
        }
        MathOp::ExtractBits => {
            let (offset, count) = bit_range(width, position(1)?, position(2)?);
            let field = x >> offset & ((1 << count) - 1);
            if is_signed(first) && count > 0 && field >> (count - 1) == 1 { field - (1 << count) } else { field }
        }
        MathOp::InsertBits => {
            let (offset, count) = bit_range(width, position(2)?, position(3)?);
            let mask = ((1 << count) - 1) << offset;
            x & !mask | (number(1)? << offset) & mask
        }
        MathOp::MulHigh if width == 32 => (x * number(1)?) >> 32,
        _ => return None,
    };
    wrap(first, result)
}

/// Offset and count of a bit field, cut to what lies inside the number.
fn bit_range(width: u32, offset: u32, count: u32) -> (u32, u32) {
    let offset = offset.min(width);
    (offset, count.min(width - offset))
}

/// The value that an atomic operation leaves; `None` also where the operand is missing.
pub(crate) fn atomic(op: AtomicOp, old: &Value, value: Option<&Value>, compare: Option<&Value>) -> Option<Value> {
    Some(match op {
        AtomicOp::Load => old.clone(),
        AtomicOp::Store | AtomicOp::Exchange => value?.clone(),
        AtomicOp::Add => binary(BinaryOp::Add, old, value?)?,
        AtomicOp::Sub => binary(BinaryOp::Sub, old, value?)?,
        AtomicOp::And => binary(BinaryOp::And, old, value?)?,
        AtomicOp::Or => binary(BinaryOp::Or, old, value?)?,
        AtomicOp::Xor => binary(BinaryOp::Xor, old, value?)?,
        AtomicOp::Min => math(MathOp::Min, &[old, value?])?,
        AtomicOp::Max => math(MathOp::Max, &[old, value?])?,
        AtomicOp::CompareExchange => {
            let equal = binary(BinaryOp::Eq, old, compare?)?.bool()?;
            if equal { value?.clone() } else { old.clone() }
        }
    })
}

/// What one lane contributed to a subgroup operation.
pub(crate) struct Contribution {
    pub(crate) lane: u32,
    pub(crate) value: Value,
    pub(crate) argument: Option<u32>,
}

/// A subgroup operation: the result for each contribution. Lanes that have returned contribute nothing. Reductions and scans
/// go from the lowest lane to the highest.
pub(crate) fn subgroup(op: SubgroupOp, lanes: &[Contribution]) -> Option<Vec<Value>> {
    let combine = |a: &Value, b: &Value| match op {
        SubgroupOp::Add | SubgroupOp::InclusiveAdd | SubgroupOp::ExclusiveAdd => binary(BinaryOp::Add, a, b),
        SubgroupOp::Mul | SubgroupOp::InclusiveMul | SubgroupOp::ExclusiveMul => binary(BinaryOp::Mul, a, b),
        SubgroupOp::Min => math(MathOp::Min, &[a, b]),
        SubgroupOp::Max => math(MathOp::Max, &[a, b]),
        SubgroupOp::And | SubgroupOp::All => binary(BinaryOp::And, a, b),
        SubgroupOp::Or | SubgroupOp::Any => binary(BinaryOp::Or, a, b),
        SubgroupOp::Xor => binary(BinaryOp::Xor, a, b),
        _ => None,
    };
    let (first, rest) = lanes.split_first()?;
    let same_for_all = |value: Value| vec![value; lanes.len()];
    Some(match op {
        SubgroupOp::Add
        | SubgroupOp::Mul
        | SubgroupOp::Min
        | SubgroupOp::Max
        | SubgroupOp::And
        | SubgroupOp::Or
        | SubgroupOp::Xor
        | SubgroupOp::All
        | SubgroupOp::Any => {
            same_for_all(rest.iter().try_fold(first.value.clone(), |sum, lane| combine(&sum, &lane.value))?)
        }
        SubgroupOp::InclusiveAdd | SubgroupOp::InclusiveMul | SubgroupOp::ExclusiveAdd | SubgroupOp::ExclusiveMul => {
            let mut sums = vec![first.value.clone()];
            for lane in rest {
                sums.push(combine(sums.last()?, &lane.value)?);
            }
            if matches!(op, SubgroupOp::ExclusiveAdd | SubgroupOp::ExclusiveMul) {
                let one = Value::Scalar(Literal::Bool(op == SubgroupOp::ExclusiveMul));
                sums.pop();
                sums.insert(0, first.value.map(|lane| cast(Element::of(&lane.data_type())?, &one)?.scalar())?);
            }
            sums
        }
        SubgroupOp::Ballot => {
            let mut words = [0u32; 4];
            for lane in lanes {
                if lane.value.bool()? {
                    *words.get_mut(lane.lane as usize / 32)? |= 1 << (lane.lane % 32);
                }
            }
            same_for_all(Value::from_lanes(&words.map(Literal::U32))?)
        }
        SubgroupOp::BroadcastFirst => same_for_all(first.value.clone()),
        SubgroupOp::Broadcast
        | SubgroupOp::Shuffle
        | SubgroupOp::ShuffleXor
        | SubgroupOp::ShuffleUp
        | SubgroupOp::ShuffleDown => {
            let mut results = Vec::with_capacity(lanes.len());
            for lane in lanes {
                let argument = lane.argument?;
                let from = match op {
                    SubgroupOp::ShuffleXor => Some(lane.lane ^ argument),
                    SubgroupOp::ShuffleUp => lane.lane.checked_sub(argument),
                    SubgroupOp::ShuffleDown => lane.lane.checked_add(argument),
                    _ => Some(argument),
                };
                results.push(match lanes.iter().find(|other| Some(other.lane) == from) {
                    Some(other) => other.value.clone(),
                    None => lane.value.map(|lane| Literal::zero(&lane.data_type()))?,
                });
            }
            results
        }
    })
}

/// The element as which a scalar type computes, or nothing when it does not.
pub(crate) fn computing(ty: &DataType) -> Option<Element> {
    Element::of(ty).filter(|element| element.scalar().data_type() == *ty)
}
