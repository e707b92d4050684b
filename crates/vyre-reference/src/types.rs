//! The types that memory and variables have.

use std::rc::Rc;

use vyre_foundation::ir::{BufferDecl, BufferKind, Count, DataType, Element, Literal, Program, Scalar, TypeDef};
use vyre_foundation::launch::Constants;
use vyre_spec::{Diagnostic, codes};

use crate::value::{Composite, Value};

/// A type, with everything that the program's type table and specialization say about it put in.
#[derive(Debug)]
pub(crate) enum Type {
    Scalar(Element),
    Vector {
        scalar: Element,
        /// The same as a type.
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
            Type::Vector { scalar, count, .. } => Value::splat(zero(scalar.scalar()), *count),
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
            Type::Vector { element, count, .. } => element.stride() * if *count == 3 { 4 } else { u64::from(*count) },
            Type::Array { count, stride, .. } => u64::from(*stride) * u64::from(count.unwrap_or(0)),
            Type::Struct { size, .. } => u64::from(*size),
        }
    }

    /// Whether it ends in an array of open length.
    pub(crate) fn has_open_tail(&self) -> bool {
        match self {
            Type::Struct { members, .. } => {
                members.last().is_some_and(|(last, _)| matches!(**last, Type::Array { count: None, .. }))
            }
            _ => false,
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

/// The types of a program under a specialization.
pub(crate) struct Types(Vec<Rc<Type>>);

impl Types {
    pub(crate) fn new(program: &Program, constants: &Constants<'_>) -> Result<Types, Diagnostic> {
        let mut types = Types(Vec::with_capacity(program.types().len()));
        for def in program.types() {
            let ty = match def {
                TypeDef::Struct { members, size, .. } => {
                    let members: Result<Vec<_>, Diagnostic> =
                        members.iter().map(|member| Ok((types.get(&member.ty)?, member.offset))).collect();
                    Type::Struct { members: members?, size: *size }
                }
                TypeDef::Array { element, count, stride } => {
                    let count = match count {
                        Count::Runtime => None,
                        Count::Fixed(count) => Some(*count),
                        Count::Constant(expr) => Some(constants.eval(expr, &[])?),
                    };
                    Type::Array { element: types.get(element)?, count, stride: *stride }
                }
            };
            types.0.push(Rc::new(ty));
        }
        Ok(types)
    }

    pub(crate) fn get(&self, ty: &DataType) -> Result<Rc<Type>, Diagnostic> {
        let unknown =
            || Diagnostic::new(&codes::reference::TYPE, format!("values of type {ty} can't be computed with"));
        if let DataType::Handle(id) = ty {
            return self.0.get(id.0 as usize).cloned().ok_or_else(unknown);
        }
        if let Some((element, count)) = ty.as_vector() {
            let element = Element::of(&element).filter(|element| element.bits() >= 8).ok_or_else(unknown)?;
            let count = u8::try_from(count).ok().filter(|count| (2..=4).contains(count)).ok_or_else(unknown)?;
            return Ok(Rc::new(Type::Vector { scalar: element, element: Rc::new(Type::Scalar(element)), count }));
        }
        Ok(Rc::new(Type::Scalar(Element::of(ty).ok_or_else(unknown)?)))
    }
}

/// The number of elements that a buffer declares; `None` when open.
pub(crate) fn declared_count(buffer: &BufferDecl, constants: &Constants<'_>) -> Result<Option<u32>, Diagnostic> {
    Ok(match &buffer.count {
        Count::Runtime if buffer.kind == BufferKind::Workgroup => Some(0),
        Count::Runtime => None,
        Count::Fixed(count) => Some(*count),
        Count::Constant(expr) => Some(constants.eval(expr, &[])?),
    })
}
