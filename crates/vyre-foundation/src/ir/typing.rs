//! Types of values, and what each operation makes of them.

use std::fmt;

use super::{
    Access, BinaryOp, DataType, Expr, MathOp, MatrixKind, Name, Program, SubgroupOp, TypeDef, TypeId, UnaryOp,
};
use crate::kernel::Scalar;

/// The type of a value. Types that are only stored have none: their values are of the type that they compute as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ValueType {
    /// A scalar.
    Scalar(Scalar),
    /// A vector of 2, 3 or 4 scalars.
    Vector(Scalar, u8),
    /// A struct or array of the program's type table.
    Defined(TypeId),
}

/// u32.
pub const U32: ValueType = ValueType::Scalar(Scalar::U32);
/// bool.
pub const BOOL: ValueType = ValueType::Scalar(Scalar::Bool);

impl ValueType {
    /// The value type that is this very type: `None` for types that are only stored and for descriptors.
    pub fn of(ty: &DataType) -> Option<ValueType> {
        let scalar = |ty: &DataType| {
            Some(match ty {
                DataType::Bool => Scalar::Bool,
                DataType::U32 => Scalar::U32,
                DataType::I32 => Scalar::I32,
                DataType::U64 => Scalar::U64,
                DataType::I64 => Scalar::I64,
                DataType::F16 => Scalar::F16,
                DataType::F32 => Scalar::F32,
                DataType::F64 => Scalar::F64,
                _ => return None,
            })
        };
        Some(match ty {
            DataType::Handle(id) => ValueType::Defined(*id),
            DataType::Vec2U32 => ValueType::Vector(Scalar::U32, 2),
            DataType::Vec4U32 => ValueType::Vector(Scalar::U32, 4),
            DataType::Vec { element, count: count @ 2..=4 } => ValueType::Vector(scalar(element)?, *count as u8),
            other => ValueType::Scalar(scalar(other)?),
        })
    }

    /// The type that an element of this type computes as: `None` for descriptors. Narrow integers compute as u32 or i32,
    /// narrow floats as f32.
    pub fn computed(ty: &DataType) -> Option<ValueType> {
        let scalar = |ty: &DataType| {
            Some(match ty {
                DataType::U8 | DataType::U16 => Scalar::U32,
                DataType::I8 | DataType::I16 | DataType::I4 => Scalar::I32,
                DataType::BF16 | DataType::F8E4M3 | DataType::F8E5M2 | DataType::FP4 | DataType::NF4 => Scalar::F32,
                _ => return None,
            })
        };
        if let Some(ty) = ValueType::of(ty) {
            return Some(ty);
        }
        match ty {
            // 4-bit elements share bytes, so vectors of them have no layout.
            DataType::Vec { element, count: count @ 2..=4 } if element.bits() != Some(4) => {
                Some(ValueType::Vector(scalar(element)?, *count as u8))
            }
            other => Some(ValueType::Scalar(scalar(other)?)),
        }
    }

    /// The type as the IR writes it.
    pub fn data_type(self) -> DataType {
        match self {
            ValueType::Scalar(scalar) => scalar.data_type(),
            ValueType::Vector(scalar, count) => DataType::vector(scalar.data_type(), u32::from(count)),
            ValueType::Defined(id) => DataType::Handle(id),
        }
    }

    /// The scalar, or that of a vector's components; `None` for structs and arrays.
    pub fn scalar(self) -> Option<Scalar> {
        match self {
            ValueType::Scalar(scalar) | ValueType::Vector(scalar, _) => Some(scalar),
            ValueType::Defined(_) => None,
        }
    }

    /// Number of components: 1 for scalars, 0 for structs and arrays.
    pub fn width(self) -> u8 {
        match self {
            ValueType::Scalar(_) => 1,
            ValueType::Vector(_, count) => count,
            ValueType::Defined(_) => 0,
        }
    }

    /// A scalar or vector of another scalar and as many components. Structs and arrays stay as they are.
    #[must_use]
    pub fn with_scalar(self, scalar: Scalar) -> ValueType {
        match self {
            ValueType::Scalar(_) => ValueType::Scalar(scalar),
            ValueType::Vector(_, count) => ValueType::Vector(scalar, count),
            defined @ ValueType::Defined(_) => defined,
        }
    }

    fn is(self, test: impl Fn(Scalar) -> bool) -> bool {
        self.scalar().is_some_and(test)
    }

    fn is_index(self) -> bool {
        matches!(self, ValueType::Scalar(Scalar::U32 | Scalar::I32 | Scalar::U64 | Scalar::I64))
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.data_type().fmt(f)
    }
}

fn is_integer(scalar: Scalar) -> bool {
    !scalar.is_float() && scalar != Scalar::Bool
}

fn is_number(scalar: Scalar) -> bool {
    scalar != Scalar::Bool
}

/// What is wrong, as a sentence without a stop.
pub(crate) type Problem = String;

/// The type of a unary operation.
pub(crate) fn unary(op: UnaryOp, value: ValueType) -> Result<ValueType, Problem> {
    let fits = match op {
        UnaryOp::Neg => value.is(|s| s.is_float() || s.is_signed()),
        UnaryOp::Not => value.is(|s| !s.is_float()),
    };
    if fits { Ok(value) } else { Err(format!("`{}` can't be applied to {value}", op.name())) }
}

/// The type of a binary operation.
pub(crate) fn binary(op: BinaryOp, left: ValueType, right: ValueType) -> Result<ValueType, Problem> {
    let name = op.name();
    if op.is_shift() {
        if !left.is(is_integer) {
            return Err(format!("`{name}` shifts integers, not {left}"));
        }
        let count = left.with_scalar(Scalar::U32);
        return if right == count {
            Ok(left)
        } else {
            Err(format!("`{name}` of {left} takes its count as {count}, not {right}"))
        };
    }
    if left != right {
        return Err(format!("`{name}` takes two operands of one type, not {left} and {right}"));
    }
    let fits = match op {
        BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div | BinaryOp::Rem => left.is(is_number),
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => left.is(|s| !s.is_float()),
        BinaryOp::Eq | BinaryOp::Ne => left.scalar().is_some(),
        _ => left.is(is_number),
    };
    if !fits {
        return Err(format!("`{name}` can't be applied to {left}"));
    }
    Ok(if op.is_comparison() { left.with_scalar(Scalar::Bool) } else { left })
}

/// The type of a built-in function, given as many arguments as it takes.
pub(crate) fn math(op: MathOp, args: &[ValueType]) -> Result<ValueType, Problem> {
    let (first, name) = (args[0], op.name());
    let same = |count: usize| match args[..count].iter().find(|ty| **ty != first) {
        Some(other) => Err(format!("`{name}` takes operands of one type, not {first} and {other}")),
        None => Ok(()),
    };
    let need = |fits: bool, what: &str| if fits { Ok(()) } else { Err(format!("`{name}` takes {what}, not {first}")) };
    let word = |s: Scalar| matches!(s, Scalar::U32 | Scalar::I32);
    match op {
        MathOp::Abs | MathOp::Min | MathOp::Max | MathOp::Clamp => {
            same(args.len())?;
            need(first.is(is_number), "numbers")?;
        }
        MathOp::Sign => need(first.is(|s| s.is_float() || s.is_signed()), "signed numbers")?,
        MathOp::Floor | MathOp::Ceil | MathOp::Round | MathOp::Trunc | MathOp::Fract | MathOp::Sqrt | MathOp::Fma => {
            same(args.len())?;
            need(first.is(Scalar::is_float), "floats")?;
        }
        MathOp::Dot => {
            same(2)?;
            need(first.width() > 1 && first.is(is_number), "vectors of numbers")?;
            return Ok(ValueType::Scalar(first.scalar().unwrap_or(Scalar::Bool)));
        }
        MathOp::All | MathOp::Any => {
            need(first.width() > 1 && first.is(|s| s == Scalar::Bool), "a vector of bools")?;
            return Ok(BOOL);
        }
        MathOp::CountOneBits
        | MathOp::CountLeadingZeros
        | MathOp::CountTrailingZeros
        | MathOp::ReverseBits
        | MathOp::FirstLeadingBit
        | MathOp::FirstTrailingBit => need(first.is(is_integer), "integers")?,
        MathOp::ExtractBits | MathOp::InsertBits => {
            need(first.is(word), "u32 or i32")?;
            let values = args.len() - 2;
            same(values)?;
            if let Some(other) = args[values..].iter().find(|ty| **ty != U32) {
                return Err(format!("`{name}` takes offset and count as u32, not {other}"));
            }
        }
        MathOp::MulHigh => {
            same(2)?;
            need(first.is(word), "u32 or i32")?;
        }
        _ => {
            same(args.len())?;
            need(first.is(Scalar::is_float), "floats")?;
        }
    }
    Ok(first)
}

/// The type of a selection.
pub(crate) fn select(cond: ValueType, yes: ValueType, no: ValueType) -> Result<ValueType, Problem> {
    if yes != no {
        return Err(format!("`select` takes two values of one type, not {yes} and {no}"));
    }
    if yes.scalar().is_none() {
        return Err(format!("`select` takes scalars or vectors, not {yes}"));
    }
    if cond == BOOL || cond == yes.with_scalar(Scalar::Bool) {
        Ok(yes)
    } else {
        Err(format!("`select` between {yes} takes bool or {}, not {cond}", yes.with_scalar(Scalar::Bool)))
    }
}

/// The type of a cast.
pub(crate) fn cast(to: &DataType, value: ValueType) -> Result<ValueType, Problem> {
    match ValueType::of(to) {
        Some(to) if to.width() > 0 && to.width() == value.width() => Ok(to),
        Some(ValueType::Defined(_)) | None => Err(format!("nothing can be cast to {to}, which does not compute")),
        Some(to) => Err(format!("{value} can't be cast to {to}, which has another number of components")),
    }
}

/// The type of a bit cast.
pub(crate) fn bit_cast(to: &DataType, value: ValueType) -> Result<ValueType, Problem> {
    let bits = |ty: ValueType| match ty.scalar() {
        Some(Scalar::Bool) | None => None,
        Some(scalar) => Some(scalar.bits() * u32::from(ty.width())),
    };
    let Some((target, wanted)) = ValueType::of(to).and_then(|ty| Some((ty, bits(ty)?))) else {
        return Err(format!("bits can't be read as {to}"));
    };
    match bits(value) {
        Some(bits) if bits == wanted => Ok(target),
        Some(bits) => Err(format!("{value} has {bits} bits and {target} has {wanted}")),
        None => Err(format!("the bits of {value} can't be read")),
    }
}

/// The type of a swizzle.
pub(crate) fn swizzle(value: ValueType, lanes: &[u8]) -> Result<ValueType, Problem> {
    let ValueType::Vector(scalar, count) = value else {
        return Err(format!("{value} has no lanes"));
    };
    if let Some(lane) = lanes.iter().find(|lane| **lane >= count) {
        return Err(format!("{value} has no lane {lane}"));
    }
    match lanes.len() {
        1 => Ok(ValueType::Scalar(scalar)),
        2..=4 => Ok(ValueType::Vector(scalar, lanes.len() as u8)),
        other => Err(format!("a swizzle takes 1 to 4 lanes, not {other}")),
    }
}

/// The type of a subgroup operation; the lane argument is checked by the caller.
pub(crate) fn subgroup(op: SubgroupOp, value: ValueType) -> Result<ValueType, Problem> {
    let (fits, result) = match op {
        SubgroupOp::All | SubgroupOp::Any => (value == BOOL, BOOL),
        SubgroupOp::Ballot => (value == BOOL, ValueType::Vector(Scalar::U32, 4)),
        SubgroupOp::And | SubgroupOp::Or | SubgroupOp::Xor => (value.is(is_integer), value),
        _ => (value.is(is_number), value),
    };
    if fits { Ok(result) } else { Err(format!("`subgroup.{}` can't be applied to {value}", op.name())) }
}

/// The type of a matrix operation.
pub(crate) fn matrix(kind: MatrixKind, [a, b, c]: [ValueType; 3]) -> Result<ValueType, Problem> {
    let fragments = [(a, "A", Scalar::U32, 4), (b, "B", Scalar::U32, 2), (c, "C", Scalar::F32, 4)];
    for (found, name, scalar, width) in fragments {
        let wanted = ValueType::Vector(scalar, width);
        if found != wanted {
            return Err(format!("{name} of `subgroup.{}` is {wanted}, not {found}", kind.name()));
        }
    }
    Ok(c)
}

/// The type of a vector that is constructed from parts.
pub(crate) fn vector(ty: ValueType, parts: &[ValueType]) -> Result<ValueType, Problem> {
    let (Some(scalar), width) = (ty.scalar(), ty.width()) else { return Err(format!("{ty} is no vector")) };
    if let Some(part) = parts.iter().find(|part| part.scalar() != Some(scalar)) {
        return Err(format!("{part} is no part of {ty}"));
    }
    if width == 1 && !parts.is_empty() {
        return Err(format!("{ty} has no parts to construct it from"));
    }
    let total: usize = parts.iter().map(|part| usize::from(part.width())).sum();
    if parts.is_empty() || total == usize::from(width) || parts == [ValueType::Scalar(scalar)] && width > 1 {
        Ok(ty)
    } else {
        Err(format!("{ty} takes {width} components, not {total}"))
    }
}

/// One step of a path: the type of a member, element or component.
pub(crate) fn step(ty: &DataType, access: &Access, types: &[TypeDef]) -> Result<DataType, Problem> {
    if let (Some((element, _)), Access::Index(_)) = (ty.as_vector(), access) {
        return Ok(element);
    }
    let def = match ty {
        DataType::Handle(id) => types.get(id.0 as usize),
        _ => None,
    };
    match (def, access) {
        (Some(TypeDef::Struct { members, name, .. }), Access::Member(at)) => match members.get(*at as usize) {
            Some(member) => Ok(member.ty.clone()),
            None => Err(format!("struct `{name}` has {} members, so none at position {at}", members.len())),
        },
        (Some(TypeDef::Array { element, .. }), Access::Index(_)) => Ok(element.clone()),
        (_, Access::Member(at)) => Err(format!("{ty} has no member {at}: it is no struct")),
        (_, Access::Index(_)) => Err(format!("{ty} can't be indexed: it is no array or vector")),
    }
}

/// Whether a type may index.
pub(crate) fn is_index(ty: ValueType) -> bool {
    ty.is_index()
}

/// The type of an expression of a valid program, where `variable` gives the types of the names in scope. `None` where the
/// expression would not pass validation there.
pub fn type_of(program: &Program, expr: &Expr, variable: &dyn Fn(&Name) -> Option<ValueType>) -> Option<ValueType> {
    let of = |expr: &Expr| type_of(program, expr, variable);
    match expr {
        Expr::Literal(literal) => ValueType::of(&literal.data_type()),
        Expr::Var(name) => variable(name),
        Expr::Constant(name) => {
            let constant = program.constants().iter().find(|constant| constant.name == *name)?;
            ValueType::of(&constant.default.data_type())
        }
        Expr::Load { buffer, path, .. } => {
            let mut ty = program.buffer(buffer.as_str())?.ty.clone();
            for access in path {
                ty = step(&ty, access, program.types()).ok()?;
            }
            ValueType::computed(&ty)
        }
        Expr::Length(_) | Expr::Builtin(_) => Some(U32),
        Expr::Unary { op, value } => unary(*op, of(value)?).ok(),
        Expr::Binary { op, left, right } => binary(*op, of(left)?, of(right)?).ok(),
        Expr::Math { op, args } => {
            let args = args.iter().map(of).collect::<Option<Vec<_>>>()?;
            if args.len() == op.arity() { math(*op, &args).ok() } else { None }
        }
        Expr::Select { cond, yes, no } => select(of(cond)?, of(yes)?, of(no)?).ok(),
        Expr::Cast { to, value } => cast(to, of(value)?).ok(),
        Expr::BitCast { to, value } => bit_cast(to, of(value)?).ok(),
        Expr::Construct { ty, .. } => ValueType::of(ty),
        Expr::Swizzle { value, lanes } => swizzle(of(value)?, lanes).ok(),
        Expr::Part { value, path } => {
            let mut ty = of(value)?.data_type();
            for access in path {
                ty = step(&ty, access, program.types()).ok()?;
            }
            ValueType::of(&ty)
        }
        Expr::Subgroup { op, value, .. } => subgroup(*op, of(value)?).ok(),
        Expr::MatrixMultiplyAdd { .. } => Some(ValueType::Vector(Scalar::F32, 4)),
    }
}
