//! Numbers that are known when a kernel is launched: lengths of buffers, members of small inputs, and what is computed from them.

use std::sync::Arc;

use crate::ir::{DataType, Program, TypeDef};
use crate::kernel::{Binary, Element, Scalar, eval};

/// A number that is the same for all invocations of a launch and known before it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Extent {
    Literal(i64),
    /// Elements of a buffer, by position in binding order.
    Length(u32),
    /// An integer at a fixed place of an input.
    Member {
        buffer: u32,
        offset: u32,
        element: Element,
    },
    /// Workgroups of the launch along an axis: not known before it is planned, but the same for all invocations.
    Groups(u8),
    /// As the kernel computes it, in the arithmetic of its type.
    Computed(Operator, Scalar, Arc<Extent>, Arc<Extent>),
    /// As numbers are, without an end.
    Whole(Arith, Arc<Extent>, Arc<Extent>),
}

/// Operations of the kernel on integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Operator {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    Min,
    Max,
    /// To the type, keeping the bits; the right side counts for nothing.
    Convert,
}

/// Operations on numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Arith {
    Add,
    Sub,
    Mul,
    /// Rounded up; nothing where the right side is not positive.
    DivUp,
    Max,
}

/// What is bound to a launch.
pub(super) struct Bound<'a> {
    /// Elements of each buffer, in binding order.
    pub(super) lengths: &'a [u64],
    /// Contents of each buffer where they are at hand.
    pub(super) contents: &'a [Option<&'a [u8]>],
}

/// Larger ones are not followed, so that a chain of doublings can't grow without bounds.
const MOST_PARTS: u32 = 48;

impl Extent {
    pub(super) fn literal(value: i64) -> Arc<Extent> {
        Arc::new(Extent::Literal(value))
    }

    fn parts(&self) -> u32 {
        match self {
            Extent::Computed(_, _, a, b) | Extent::Whole(_, a, b) => 1 + a.parts() + b.parts(),
            _ => 1,
        }
    }

    /// The kernel's own computation; `None` where it became too large to follow.
    pub(super) fn computed(op: Operator, ty: Scalar, a: &Arc<Extent>, b: &Arc<Extent>) -> Option<Arc<Extent>> {
        let made = Extent::Computed(op, ty, a.clone(), b.clone());
        if let (Extent::Literal(_), Extent::Literal(_)) = (&**a, &**b) {
            let none = Bound { lengths: &[], contents: &[] };
            return i64::try_from(made.value(&none).ok()?).ok().map(Extent::literal);
        }
        (made.parts() <= MOST_PARTS).then(|| Arc::new(made))
    }

    /// A number made of two; `None` where it became too large to follow.
    pub(super) fn whole(op: Arith, a: &Arc<Extent>, b: &Arc<Extent>) -> Option<Arc<Extent>> {
        if let (Extent::Literal(a), Extent::Literal(b)) = (&**a, &**b) {
            return op.apply((*a).into(), (*b).into()).and_then(|n| i64::try_from(n).ok()).map(Extent::literal);
        }
        match (op, &**a, &**b) {
            (Arith::Add | Arith::Sub, _, Extent::Literal(0)) => return Some(a.clone()),
            (Arith::Add, Extent::Literal(0), _) => return Some(b.clone()),
            (Arith::Mul | Arith::DivUp, _, Extent::Literal(1)) => return Some(a.clone()),
            (Arith::Mul, Extent::Literal(0), _) | (Arith::Mul, _, Extent::Literal(0)) => {
                return Some(Extent::literal(0));
            }
            (Arith::Mul, Extent::Literal(1), _) => return Some(b.clone()),
            (Arith::Max, ..) if a == b => return Some(a.clone()),
            // `(n − 1) + 1` is what `x <= n − 1` asks for.
            (Arith::Add, Extent::Whole(Arith::Sub, n, less), _) if less == b => return Some(n.clone()),
            _ => {}
        }
        let made = Extent::Whole(op, a.clone(), b.clone());
        (made.parts() <= MOST_PARTS).then(|| Arc::new(made))
    }

    /// The same number, computed without an end wherever the kernel only adds and subtracts: `n − 1` of nothing is −1.
    pub(super) fn unbounded(self: &Arc<Extent>) -> Arc<Extent> {
        let (op, a, b) = match &**self {
            Extent::Computed(Operator::Add, _, a, b) => (Arith::Add, a, b),
            Extent::Computed(Operator::Sub, _, a, b) => (Arith::Sub, a, b),
            Extent::Computed(Operator::Convert, _, a, _) => return a.unbounded(),
            Extent::Literal(value) if *value > i64::from(i32::MAX) && *value <= i64::from(u32::MAX) => {
                return Extent::literal(*value - (1 << 32));
            }
            _ => return self.clone(),
        };
        Extent::whole(op, &a.unbounded(), &b.unbounded()).unwrap_or_else(|| self.clone())
    }

    /// Something in it is not known before the launch is planned.
    pub(super) fn needs_grid(&self) -> bool {
        match self {
            Extent::Groups(_) => true,
            Extent::Computed(_, _, a, b) | Extent::Whole(_, a, b) => a.needs_grid() || b.needs_grid(),
            _ => false,
        }
    }

    /// Its value, or the first part of it that is not known.
    pub(super) fn value(&self, bound: &Bound<'_>) -> Result<i128, &Extent> {
        match self {
            Extent::Literal(value) => Ok((*value).into()),
            Extent::Length(buffer) => match bound.lengths.get(*buffer as usize) {
                Some(length) => Ok((*length).min(u32::MAX.into()).into()),
                None => Err(self),
            },
            Extent::Member { buffer, offset, element } => {
                let Some(Some(bytes)) = bound.contents.get(*buffer as usize) else { return Err(self) };
                Ok(member(bytes, *offset, *element))
            }
            Extent::Groups(_) => Err(self),
            Extent::Computed(op, ty, a, b) => Ok(op.apply(*ty, a.value(bound)?, b.value(bound)?)),
            Extent::Whole(op, a, b) => op.apply(a.value(bound)?, b.value(bound)?).ok_or(self),
        }
    }

    /// As a person would write it.
    pub(super) fn text(&self, program: &Program) -> String {
        let part = |extent: &Arc<Extent>| match &**extent {
            Extent::Computed(op, ..) if !matches!(op, Operator::Min | Operator::Max | Operator::Convert) => {
                format!("({})", extent.text(program))
            }
            Extent::Whole(Arith::Add | Arith::Sub | Arith::Mul | Arith::DivUp, ..) => {
                format!("({})", extent.text(program))
            }
            _ => extent.text(program),
        };
        match self {
            Extent::Literal(value) => value.to_string(),
            Extent::Length(buffer) => format!("arrayLength(&{})", name(program, *buffer)),
            Extent::Member { buffer, offset, .. } => member_name(program, *buffer, *offset),
            Extent::Groups(axis) => format!("num_workgroups.{}", axis_name(*axis)),
            Extent::Computed(Operator::Convert, _, a, _) => a.text(program),
            Extent::Computed(op, _, a, b) => {
                let sign = match op {
                    Operator::Add => "+",
                    Operator::Sub => "-",
                    Operator::Mul => "*",
                    Operator::Div => "/",
                    Operator::Rem => "%",
                    Operator::And => "&",
                    Operator::Or => "|",
                    Operator::Xor => "^",
                    Operator::Shl => "<<",
                    Operator::Shr => ">>",
                    Operator::Min => return format!("min({}, {})", a.text(program), b.text(program)),
                    Operator::Max => return format!("max({}, {})", a.text(program), b.text(program)),
                    Operator::Convert => "",
                };
                format!("{} {sign} {}", part(a), part(b))
            }
            Extent::Whole(op, a, b) => match op {
                Arith::Add => format!("{} + {}", part(a), part(b)),
                Arith::Sub => format!("{} - {}", part(a), part(b)),
                Arith::Mul => format!("{} * {}", part(a), part(b)),
                Arith::DivUp => format!("{} / {}", part(a), part(b)),
                Arith::Max => format!("max({}, {})", a.text(program), b.text(program)),
            },
        }
    }
}

impl Arith {
    fn apply(self, a: i128, b: i128) -> Option<i128> {
        Some(match self {
            Arith::Add => a.saturating_add(b),
            Arith::Sub => a.saturating_sub(b),
            Arith::Mul => a.saturating_mul(b),
            Arith::DivUp if b > 0 => a.div_euclid(b) + i128::from(a.rem_euclid(b) > 0),
            Arith::DivUp => return None,
            Arith::Max => a.max(b),
        })
    }
}

impl Operator {
    pub(super) fn of(op: Binary) -> Option<Operator> {
        Some(match op {
            Binary::Add => Operator::Add,
            Binary::Sub => Operator::Sub,
            Binary::Mul => Operator::Mul,
            Binary::Div => Operator::Div,
            Binary::Rem => Operator::Rem,
            Binary::And => Operator::And,
            Binary::Or => Operator::Or,
            Binary::Xor => Operator::Xor,
            Binary::Shl => Operator::Shl,
            Binary::Shr => Operator::Shr,
            Binary::Min => Operator::Min,
            Binary::Max => Operator::Max,
            _ => return None,
        })
    }

    /// In the arithmetic of an integer type.
    fn apply(self, ty: Scalar, a: i128, b: i128) -> i128 {
        let op = match self {
            Operator::Add => Binary::Add,
            Operator::Sub => Binary::Sub,
            Operator::Mul => Binary::Mul,
            Operator::Div => Binary::Div,
            Operator::Rem => Binary::Rem,
            Operator::And => Binary::And,
            Operator::Or => Binary::Or,
            Operator::Xor => Binary::Xor,
            Operator::Shl => Binary::Shl,
            Operator::Shr => Binary::Shr,
            Operator::Min => Binary::Min,
            Operator::Max => Binary::Max,
            Operator::Convert => return number(ty, a as u64),
        };
        let count = matches!(self, Operator::Shl | Operator::Shr);
        let right = if count { bits(Scalar::U32, b) } else { bits(ty, b) };
        number(ty, eval::binary(op, ty, bits(ty, a), right))
    }
}

/// The bits of a number in a type.
fn bits(ty: Scalar, value: i128) -> u64 {
    if ty.bits() == 64 { value as u64 } else { u64::from(value as u32) }
}

/// The number that bits stand for.
fn number(ty: Scalar, bits: u64) -> i128 {
    match ty {
        Scalar::I32 => i128::from(bits as u32 as i32),
        Scalar::I64 => i128::from(bits as i64),
        Scalar::U64 => i128::from(bits),
        _ => i128::from(bits as u32),
    }
}

/// An integer in an input; zero outside, as for the kernel.
fn member(bytes: &[u8], offset: u32, element: Element) -> i128 {
    let width = (element.bits() / 8) as usize;
    let from = offset as usize;
    let Some(stored) = from.checked_add(width).and_then(|to| bytes.get(from..to)) else { return 0 };
    let stored = stored.iter().rev().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
    number(element.scalar(), eval::decode(element, stored))
}

/// x, y or z.
pub(super) fn axis_name(axis: u8) -> char {
    char::from(b'x' + axis.min(2))
}

/// The name of a buffer, by position in binding order.
pub(super) fn name(program: &Program, buffer: u32) -> &str {
    let index = program.binding_order().get(buffer as usize).copied();
    index.and_then(|index| program.buffers().get(index)).map_or("?", |buffer| buffer.name.as_str())
}

/// `p.size.x` for the place of a buffer.
pub(super) fn member_name(program: &Program, buffer: u32, offset: u32) -> String {
    let Some(decl) = program.binding_order().get(buffer as usize).and_then(|&index| program.buffers().get(index))
    else {
        return "?".to_owned();
    };
    let mut text = decl.name.to_string();
    let (mut ty, mut offset) = (decl.ty.clone(), offset);
    let stride = crate::ir::layout_of(&ty, program.types()).map_or(0, |layout| layout.stride);
    if decl.count != crate::ir::Count::Fixed(1) && stride > 0 {
        text += &format!("[{}]", offset / stride);
        offset %= stride;
    }
    // Types only refer to earlier ones, so this ends.
    loop {
        if let Some((element, _)) = ty.as_vector() {
            let size = element.bits().map_or(4, |bits| bits.div_ceil(8)).max(1);
            text.push('.');
            text.push(['x', 'y', 'z', 'w'][(offset / size).min(3) as usize]);
            return text;
        }
        let DataType::Handle(id) = &ty else { return text };
        match program.types().get(id.0 as usize) {
            Some(TypeDef::Struct { members, .. }) => {
                let Some(member) = members.iter().rev().find(|member| member.offset <= offset) else { return text };
                text += &format!(".{}", member.name);
                offset -= member.offset;
                ty = member.ty.clone();
            }
            Some(TypeDef::Array { element, stride, .. }) if *stride > 0 => {
                text += &format!("[{}]", offset / stride);
                offset %= stride;
                ty = element.clone();
            }
            _ => return text,
        }
    }
}
