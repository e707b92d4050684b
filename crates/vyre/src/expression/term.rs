//! The graph without Rust types: what Rust's operators and other front ends build.

use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;
use vyre_foundation::ir::{BinaryOp, DataType, Literal, MathOp, UnaryOp};
use vyre_spec::{Diagnostic, codes};

use crate::array::{Buffer, Shape};
use crate::{Engine, Error};

/// A value for each position of a shape, which is computed when it is needed: arrays, numbers, and what is made of them.
///
/// It is the one form of expressions at run time; [`Expression`](super::Expression) is the same with a Rust type. Shapes fit as in NumPy: the
/// last axes stand together, and an extent of 1 is repeated. A mistake stays in the term and is told when it is evaluated.
#[derive(Clone)]
pub struct Term(pub(super) Arc<Node>);

pub(super) struct Node {
    pub(super) op: Op,
    pub(super) ty: DataType,
    /// `None` for a number, which fits every shape.
    pub(super) shape: Option<Shape>,
    pub(super) engine: Option<Engine>,
    /// The elements, once they have been computed.
    pub(super) value: OnceLock<Buffer>,
    /// How deep it is; terms that are too deep are computed in parts.
    pub(super) depth: u32,
}

#[derive(Clone)]
pub(super) enum Op {
    /// Elements that are there, of the type that is stored.
    Array(DataType),
    Scalar(Literal),
    /// The position, counted through the whole shape.
    Position,
    Unary(UnaryOp, Term),
    Binary(BinaryOp, Term, Term),
    Math(MathOp, SmallVec<[Term; 3]>),
    Select(Term, Term, Term),
    Cast(Term),
    BitCast(Term),
    /// The same, for more positions.
    Repeat(Term),
    Wrong(Error),
}

impl Op {
    pub(super) fn operands(&self) -> SmallVec<[&Term; 3]> {
        match self {
            Op::Array(_) | Op::Scalar(_) | Op::Position | Op::Wrong(_) => SmallVec::new(),
            Op::Unary(_, a) | Op::Cast(a) | Op::BitCast(a) | Op::Repeat(a) => SmallVec::from_iter([a]),
            Op::Binary(_, a, b) => SmallVec::from_iter([a, b]),
            Op::Math(_, all) => all.iter().collect(),
            Op::Select(a, b, c) => SmallVec::from_iter([a, b, c]),
        }
    }
}

/// Terms are walked by recursion, and a chain that a loop makes may be long.
const MOST_DEPTH: u32 = 256;

fn wrong(message: String) -> Term {
    Term::failed(Diagnostic::new(&codes::engine::SHAPE, message).into())
}

fn mistyped(message: String) -> Term {
    Term::failed(Diagnostic::new(&codes::engine::WRONG_ELEMENT, message).into())
}

impl Term {
    /// A term that could not be made; whatever is computed of it fails with this.
    pub fn failed(error: Error) -> Term {
        Term::with(Op::Wrong(error), DataType::F32, None, None)
    }

    fn with(op: Op, ty: DataType, shape: Option<Shape>, engine: Option<Engine>) -> Term {
        let depth = op.operands().iter().map(|term| term.0.depth).max().map_or(0, |depth| depth + 1);
        let term = Term(Arc::new(Node { op, ty, shape, engine, value: OnceLock::new(), depth }));
        if depth < MOST_DEPTH {
            return term;
        }
        // Whatever comes on top reads the elements.
        match term.evaluate() {
            Ok(_) => term.leaf(),
            Err(error) => Term::failed(error),
        }
    }

    /// The elements of a buffer of a type that kernels can read.
    pub fn array(buffer: Buffer, ty: DataType, shape: Shape) -> Term {
        let bits = ty.bits().unwrap_or(0) as u64;
        let elements = match shape.elements() {
            Ok(elements) => elements as u64,
            Err(error) => return Term::failed(error),
        };
        if bits < 8 || elements.checked_mul(bits / 8) != Some(buffer.bytes()) {
            return wrong(format!("{} bytes are not {shape} elements of {ty}", buffer.bytes()));
        }
        let computed = match computed(&ty) {
            Some(computed) => computed,
            None => return mistyped(format!("expressions don't compute with elements of {ty}")),
        };
        let engine = Engine { inner: buffer.storage.engine.clone() };
        let node = Node {
            op: Op::Array(ty),
            ty: computed,
            shape: Some(shape),
            engine: Some(engine),
            value: OnceLock::from(buffer),
            depth: 0,
        };
        Term(Arc::new(node))
    }

    /// One number for all positions.
    pub fn scalar(value: Literal) -> Term {
        let ty = value.data_type();
        Term::with(Op::Scalar(value), ty, None, None)
    }

    /// The positions of a shape, counted from 0 with the last axis the fastest, as u32.
    pub fn positions(engine: &Engine, shape: Shape) -> Term {
        if shape.elements().is_ok_and(|elements| elements as u64 > 1 << 32) {
            return wrong(format!("the positions of {shape} are more than a u32 can count"));
        }
        Term::with(Op::Position, DataType::U32, Some(shape), Some(engine.clone()))
    }

    /// The same term for all positions of a shape.
    #[must_use]
    pub fn broadcast(&self, engine: &Engine, shape: Shape) -> Term {
        match joined(self.0.shape.as_ref(), Some(&shape)) {
            Some(Some(both)) if both == shape => {
                let op = Op::Repeat(self.clone());
                Term::with(op, self.0.ty.clone(), Some(shape), Some(engine.clone()))
            }
            _ => wrong(format!("{} can't be repeated to {shape}", self.described())),
        }
    }

    /// `-x`, or `!x` on integers and truth values.
    #[must_use]
    pub fn unary(&self, op: UnaryOp) -> Term {
        let ty = &self.0.ty;
        let fits = match op {
            UnaryOp::Neg => is_float(ty) || is_signed(ty),
            UnaryOp::Not => !is_float(ty),
        };
        match fits {
            true => self.over(Op::Unary(op, self.clone()), ty.clone(), &[]),
            false => self.told().unwrap_or_else(|| mistyped(format!("`{}` does not work on {ty}", op.name()))),
        }
    }

    /// Two terms of one type; a shift takes its count as u32.
    #[must_use]
    pub fn binary(&self, op: BinaryOp, other: &Term) -> Term {
        let (ty, right) = (&self.0.ty, &other.0.ty);
        if let Some(told) = self.told().or_else(|| other.told()) {
            return told;
        }
        let fits = match op {
            BinaryOp::Shl | BinaryOp::Shr => is_integer(ty) && *right == DataType::U32,
            BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => ty == right && !is_float(ty),
            BinaryOp::Eq | BinaryOp::Ne => ty == right,
            _ => ty == right && *ty != DataType::Bool,
        };
        if !fits {
            return mistyped(format!("`{}` does not work on {ty} and {right}", op.name()));
        }
        let result = if op.is_comparison() { DataType::Bool } else { ty.clone() };
        self.over(Op::Binary(op, self.clone(), other.clone()), result, &[other])
    }

    /// A function of one to three terms of one type.
    #[must_use]
    pub fn math(op: MathOp, args: &[&Term]) -> Term {
        let Some((first, others)) = args.split_first() else {
            return mistyped(format!("`{}` takes arguments", op.name()));
        };
        if let Some(told) = args.iter().find_map(|term| term.told()) {
            return told;
        }
        let ty = &first.0.ty;
        let of_numbers = matches!(op, MathOp::Abs | MathOp::Min | MathOp::Max | MathOp::Clamp | MathOp::Sign);
        let of_bits = matches!(
            op,
            MathOp::CountOneBits | MathOp::CountLeadingZeros | MathOp::CountTrailingZeros | MathOp::ReverseBits
        );
        let takes = if of_numbers { *ty != DataType::Bool } else { is_float(ty) != of_bits && *ty != DataType::Bool };
        if !takes || op.arity() != args.len() || others.iter().any(|other| other.0.ty != *ty) {
            let types: Vec<String> = args.iter().map(|term| term.0.ty.to_string()).collect();
            return mistyped(format!("`{}` does not work on {}", op.name(), types.join(" and ")));
        }
        first.over(Op::Math(op, args.iter().map(|&term| term.clone()).collect()), ty.clone(), others)
    }

    /// `yes` where this is true, `no` elsewhere.
    #[must_use]
    pub fn select(&self, yes: &Term, no: &Term) -> Term {
        if let Some(told) = [self, yes, no].iter().find_map(|term| term.told()) {
            return told;
        }
        if self.0.ty != DataType::Bool || yes.0.ty != no.0.ty {
            return mistyped(format!("`select` of {} and {} by {}", yes.0.ty, no.0.ty, self.0.ty));
        }
        self.over(Op::Select(self.clone(), yes.clone(), no.clone()), yes.0.ty.clone(), &[yes, no])
    }

    /// The value in another type: floats are cut off and saturate, NaN gives 0, and truth is 1.
    #[must_use]
    pub fn cast(&self, to: &DataType) -> Term {
        if let Some(told) = self.told() {
            return told;
        }
        match computed(to) {
            Some(_) if *to == self.0.ty => self.clone(),
            Some(computed) if computed == *to => self.over(Op::Cast(self.clone()), to.clone(), &[]),
            _ => mistyped(format!("expressions don't compute with {to}")),
        }
    }

    /// The bits as another type of the same size.
    #[must_use]
    pub fn bit_cast(&self, to: &DataType) -> Term {
        if let Some(told) = self.told() {
            return told;
        }
        if computed(to).as_ref() != Some(to) || to.bits() != self.0.ty.bits() || *to == DataType::Bool {
            return mistyped(format!("the bits of {} are no {to}", self.0.ty));
        }
        self.over(Op::BitCast(self.clone()), to.clone(), &[])
    }

    /// The node of an operation on this and other terms, whose shapes have to fit.
    fn over(&self, op: Op, ty: DataType, others: &[&Term]) -> Term {
        let (mut shape, mut engine) = (self.0.shape.clone(), self.0.engine.clone());
        for other in others {
            shape = match joined(shape.as_ref(), other.0.shape.as_ref()) {
                Some(shape) => shape,
                None => return wrong(format!("{} and {} don't fit", self.described(), other.described())),
            };
            engine = engine.or_else(|| other.0.engine.clone());
        }
        Term::with(op, ty, shape, engine)
    }

    fn described(&self) -> String {
        match &self.0.shape {
            Some(shape) => format!("{} of {shape}", self.0.ty),
            None => format!("a number of {}", self.0.ty),
        }
    }

    /// The mistake that is in it already.
    fn told(&self) -> Option<Term> {
        matches!(self.0.op, Op::Wrong(_)).then(|| self.clone())
    }

    /// The mistake in it, where there is one.
    pub fn check(&self) -> Result<(), Error> {
        match &self.0.op {
            Op::Wrong(error) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// The type that it computes.
    pub fn data_type(&self) -> &DataType {
        &self.0.ty
    }

    /// Its shape; `None` for a number.
    pub fn shape(&self) -> Option<&Shape> {
        self.0.shape.as_ref()
    }

    /// The engine of its arrays, where it has one.
    pub fn engine(&self) -> Option<&Engine> {
        self.0.engine.as_ref()
    }

    /// The elements as an array would have them, when they have been computed.
    pub(super) fn leaf(&self) -> Term {
        match (&self.0.value.get(), &self.0.shape) {
            (Some(buffer), Some(shape)) if !matches!(self.0.op, Op::Array(_)) => {
                Term::array((*buffer).clone(), self.0.ty.clone(), shape.clone())
            }
            _ => self.clone(),
        }
    }
}

/// The type that elements of a type compute as, among those that expressions know.
fn computed(ty: &DataType) -> Option<DataType> {
    Some(match ty {
        DataType::U32 | DataType::U8 | DataType::U16 => DataType::U32,
        DataType::I32 | DataType::I8 | DataType::I16 => DataType::I32,
        DataType::F32 | DataType::BF16 => DataType::F32,
        DataType::F16 | DataType::F64 | DataType::U64 | DataType::I64 | DataType::Bool => ty.clone(),
        _ => return None,
    })
}

pub(super) fn is_float(ty: &DataType) -> bool {
    matches!(ty, DataType::F16 | DataType::F32 | DataType::F64)
}

fn is_signed(ty: &DataType) -> bool {
    matches!(ty, DataType::I32 | DataType::I64)
}

fn is_integer(ty: &DataType) -> bool {
    is_signed(ty) || matches!(ty, DataType::U32 | DataType::U64)
}

/// The shape that two have together; `None` when they don't fit.
fn joined(a: Option<&Shape>, b: Option<&Shape>) -> Option<Option<Shape>> {
    let (Some(a), Some(b)) = (a, b) else { return Some(a.or(b).cloned()) };
    if a == b {
        return Some(Some(a.clone()));
    }
    let (a, b) = (a.extents(), b.extents());
    let axes = a.len().max(b.len());
    let from_end =
        |extents: &[usize], axis: usize| (axis + extents.len()).checked_sub(axes).map_or(1, |at| extents[at]);
    let mut joined: SmallVec<[usize; 4]> = SmallVec::new();
    for axis in 0..axes {
        joined.push(match (from_end(a, axis), from_end(b, axis)) {
            (a, b) if a == b => a,
            (1, b) => b,
            (a, 1) => a,
            _ => return None,
        });
    }
    Some(Some(Shape::from(&joined[..])))
}
