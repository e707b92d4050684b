//! What expressions give: scalars, vectors, and structs or arrays.

use std::rc::Rc;

use vyre_foundation::ir::Literal;

use crate::types::Type;

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
    /// A vector of the same scalar in every lane.
    pub(crate) fn splat(scalar: Literal, count: u8) -> Value {
        Value::Vector(Vector { lanes: [scalar; 4], count })
    }

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
