//! What expressions give: scalars, vectors, and structs or arrays; and the types that memory and variables have.

use std::rc::Rc;

use vyre_foundation::ir::Literal;
use vyre_foundation::kernel::{Element, Scalar};

/// A value. It carries its type, so an operation on values that don't fit can be seen.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Scalar(Literal),
    Vector(Vector),
    Composite(Composite),
}

/// Two to four scalars of one type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vector {
    lanes: [Literal; 4],
    count: u8,
}

/// A struct or an array.
#[derive(Clone, Debug)]
pub(crate) struct Composite {
    pub(crate) ty: Rc<Type>,
    pub(crate) parts: Vec<Value>,
}

impl Value {
    /// A scalar from one lane, a vector from two to four. `None` for any other number.
    pub(crate) fn from_lanes(lanes: &[Literal]) -> Option<Value> {
        match *lanes {
            [scalar] => Some(Value::Scalar(scalar)),
            [first, ..] if lanes.len() <= 4 => {
                let mut vector = Vector { lanes: [first; 4], count: lanes.len() as u8 };
                vector.lanes[..lanes.len()].copy_from_slice(lanes);
                Some(Value::Vector(vector))
            }
            _ => None,
        }
    }

    /// The scalars of a scalar or vector; none for a struct or array.
    pub(crate) fn lanes(&self) -> &[Literal] {
        match self {
            Value::Scalar(scalar) => std::slice::from_ref(scalar),
            Value::Vector(vector) => &vector.lanes[..usize::from(vector.count)],
            Value::Composite(_) => &[],
        }
    }

    pub(crate) fn lanes_mut(&mut self) -> &mut [Literal] {
        match self {
            Value::Scalar(scalar) => std::slice::from_mut(scalar),
            Value::Vector(vector) => &mut vector.lanes[..usize::from(vector.count)],
            Value::Composite(_) => &mut [],
        }
    }

    pub(crate) fn scalar(&self) -> Option<Literal> {
        match self {
            Value::Scalar(scalar) => Some(*scalar),
            _ => None,
        }
    }

    pub(crate) fn bool(&self) -> Option<bool> {
        match self {
            Value::Scalar(Literal::Bool(value)) => Some(*value),
            _ => None,
        }
    }

    pub(crate) fn u32(&self) -> Option<u32> {
        match self {
            Value::Scalar(Literal::U32(value)) => Some(*value),
            _ => None,
        }
    }

    /// An index: `None` when this is not an integer, `Some(None)` when it is negative and so outside of everything.
    pub(crate) fn index(&self) -> Option<Option<u64>> {
        Some(match self.scalar()? {
            Literal::U32(value) => Some(u64::from(value)),
            Literal::I32(value) => u64::try_from(value).ok(),
            Literal::U64(value) => Some(value),
            Literal::I64(value) => u64::try_from(value).ok(),
            _ => return None,
        })
    }

    /// Applies a function to each lane. `None` when it does not apply.
    pub(crate) fn map(&self, f: impl Fn(Literal) -> Option<Literal>) -> Option<Value> {
        match self {
            Value::Scalar(scalar) => Some(Value::Scalar(f(*scalar)?)),
            Value::Vector(vector) => {
                let mut result = *vector;
                for lane in &mut result.lanes[..usize::from(vector.count)] {
                    *lane = f(*lane)?;
                }
                Some(Value::Vector(result))
            }
            Value::Composite(_) => None,
        }
    }

    /// Applies a function to the lanes of two values, a scalar going with every lane of a vector.
    pub(crate) fn zip(&self, other: &Value, f: impl Fn(Literal, Literal) -> Option<Literal>) -> Option<Value> {
        if let (Value::Scalar(a), Value::Scalar(b)) = (self, other) {
            return Some(Value::Scalar(f(*a, *b)?));
        }
        Value::zip_all(&[self, other], |lanes| f(lanes[0], lanes[1]))
    }

    /// Applies a function to the lanes of up to four values, a scalar going with every lane of a vector.
    pub(crate) fn zip_all(args: &[&Value], f: impl Fn(&[Literal]) -> Option<Literal>) -> Option<Value> {
        let count = args.iter().map(|arg| arg.lanes().len()).max()?;
        let mut result = [Literal::U32(0); 4];
        let mut lanes = [Literal::U32(0); 4];
        for (i, result) in result.iter_mut().enumerate().take(count) {
            for (lane, arg) in lanes.iter_mut().zip(args) {
                *lane = match *arg {
                    Value::Scalar(scalar) => *scalar,
                    other => *other.lanes().get(i)?,
                };
            }
            *result = f(lanes.get(..args.len())?)?;
        }
        Value::from_lanes(result.get(..count)?)
    }
}

/// A type, with everything that the program's type table and specialization say about it put in.
#[derive(Debug)]
pub(crate) enum Type {
    Scalar(Element),
    Vector {
        /// A scalar.
        element: Rc<Type>,
        count: u8,
    },
    Array {
        element: Rc<Type>,
        /// `None` when open.
        count: Option<u32>,
        /// Bytes from one element to the next.
        stride: u32,
    },
    Struct {
        /// With their byte offsets.
        members: Vec<(Rc<Type>, u32)>,
        size: u32,
    },
}

impl Type {
    /// The zero value.
    pub(crate) fn zero(self: &Rc<Type>) -> Value {
        let composite = |parts| Value::Composite(Composite { ty: self.clone(), parts });
        match &**self {
            Type::Scalar(element) => Value::Scalar(zero(element.scalar())),
            Type::Vector { element, count } => {
                let mut vector = Vector { lanes: [Literal::U32(0); 4], count: *count };
                vector.lanes = [element.zero().scalar().unwrap_or(Literal::U32(0)); 4];
                Value::Vector(vector)
            }
            Type::Array { element, count, .. } => composite(vec![element.zero(); count.unwrap_or(0) as usize]),
            Type::Struct { members, .. } => composite(members.iter().map(|(ty, _)| ty.zero()).collect()),
        }
    }

    /// How many scalars and vectors a value of this type holds.
    pub(crate) fn leaves(&self) -> u64 {
        match self {
            Type::Scalar(_) | Type::Vector { .. } => 1,
            Type::Array { element, count, .. } => element.leaves().saturating_mul(u64::from(count.unwrap_or(0))),
            Type::Struct { members, .. } => members.iter().fold(0, |sum, (ty, _)| sum.saturating_add(ty.leaves())),
        }
    }

    /// Bytes from one value to the next in a buffer. For the 4-bit types 1, with two values in each byte.
    pub(crate) fn stride(&self) -> u64 {
        match self {
            Type::Scalar(element) => u64::from(element.bits().div_ceil(8)),
            Type::Vector { element, count } => element.stride() * if *count == 3 { 4 } else { u64::from(*count) },
            Type::Array { count, stride, .. } => u64::from(*stride) * u64::from(count.unwrap_or(0)),
            Type::Struct { size, .. } => u64::from(*size),
        }
    }
}

fn zero(scalar: Scalar) -> Literal {
    match scalar {
        Scalar::Bool => Literal::Bool(false),
        Scalar::U32 => Literal::U32(0),
        Scalar::I32 => Literal::I32(0),
        Scalar::U64 => Literal::U64(0),
        Scalar::I64 => Literal::I64(0),
        Scalar::F16 => Literal::F16(half::f16::ZERO),
        Scalar::F32 => Literal::F32(0.0),
        Scalar::F64 => Literal::F64(0.0),
    }
}
