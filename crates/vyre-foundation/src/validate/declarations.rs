//! Checks what a program declares: types, constants, buffers, workgroup size, domain.

use hashbrown::{HashMap, HashSet};
use vyre_spec::codes;

use super::limits::{MAX_NAME_BYTES, MAX_TYPE_DEPTH, MAX_UNIFORM_BYTES, MAX_WORKGROUP_BYTES};
use super::report::{Place, Report};
use crate::ir::typing::{U32, ValueType};
use crate::ir::{
    BinaryOp, BufferKind, Count, DataType, Expr, Literal, Name, Program, SpecConstant, TypeDef, TypeId, layout_of,
};
use crate::launch::{self, Constants, MAX_WORKGROUP_INVOCATIONS};

/// What is known about a type: of the program's table, or any other.
#[derive(Clone, Copy, Debug)]
pub(super) struct TypeInfo {
    /// Bytes; for one that ends in an array of open length those before it, at least.
    pub(super) size: u32,
    align: u32,
    depth: u32,
    /// Consists only of types that compute, so there are values of it.
    pub(super) computes: bool,
    /// Is or ends in an array of open length.
    pub(super) open: bool,
}

/// The program's type table, checked. A definition with a problem has no info, and what uses it is not reported again.
pub(super) struct TypeTable<'p> {
    pub(super) defs: &'p [TypeDef],
    infos: Vec<Option<TypeInfo>>,
}

/// Why a type can't be used.
pub(super) enum TypeProblem {
    /// Reported where it was defined.
    Known,
    New(String),
}

impl TypeTable<'_> {
    /// What is known about `ty`.
    pub(super) fn info(&self, ty: &DataType) -> Result<TypeInfo, TypeProblem> {
        if let DataType::Handle(TypeId(id)) = ty {
            return match self.infos.get(*id as usize) {
                Some(Some(info)) => Ok(*info),
                Some(None) => Err(TypeProblem::Known),
                None => Err(TypeProblem::New(format!("type {id} is not defined before it is used"))),
            };
        }
        match (ValueType::computed(ty), layout_of(ty, self.defs)) {
            (Some(_), Some(layout)) => Ok(TypeInfo {
                size: layout.size,
                align: layout.align,
                depth: 0,
                computes: ValueType::of(ty).is_some(),
                open: false,
            }),
            _ => Err(TypeProblem::New(format!("{ty} only describes data, and a kernel can't compute with it"))),
        }
    }
}

pub(super) fn check_name(name: &Name, place: &Place, report: &mut Report) {
    match name.as_str().len() {
        0 => report.add(&codes::ir::IR_NAME, "a name is empty", place),
        1..=MAX_NAME_BYTES => {}
        more => {
            report.add(&codes::ir::IR_NAME, format!("a name of {more} bytes is too long"), place);
        }
    }
}

/// Names that must differ.
fn unique<'p>(names: impl Iterator<Item = &'p Name>, what: &'static str, field: &'static str, report: &mut Report) {
    let mut seen = HashSet::new();
    for (i, name) in names.enumerate() {
        let place = Place::at(field, i);
        check_name(name, &place, report);
        if !seen.insert(name) {
            report.add(&codes::ir::IR_DUPLICATE, format!("there is another {what} `{name}`"), &place);
        }
    }
}

/// Checks the type table.
pub(super) fn types<'p>(program: &'p Program, report: &mut Report) -> TypeTable<'p> {
    let mut table = TypeTable { defs: program.types(), infos: Vec::with_capacity(program.types().len()) };
    let mut struct_names = HashSet::new();
    for (i, def) in program.types().iter().enumerate() {
        let mut place = Place::at("types", i);
        let info = match def {
            TypeDef::Struct { name, members, size, align } => {
                check_name(name, &place, report);
                if !struct_names.insert(name) {
                    report.add(&codes::ir::IR_DUPLICATE, format!("there is another struct `{name}`"), &place);
                }
                let mut names = HashSet::new();
                for (j, member) in members.iter().enumerate() {
                    place.push_at("members", j);
                    check_name(&member.name, &place, report);
                    if !names.insert(&member.name) {
                        let message = format!("struct `{name}` has another member `{}`", member.name);
                        report.add(&codes::ir::IR_DUPLICATE, message, &place);
                    }
                    place.pop();
                }
                struct_info(&table, members, *size, *align, &mut place, report)
            }
            TypeDef::Array { element, count, stride } => {
                array_info(&table, element, count, *stride, &mut place, report)
            }
        };
        let info = info.filter(|info| {
            if info.depth > MAX_TYPE_DEPTH {
                let message = format!("type definitions nest deeper than {MAX_TYPE_DEPTH} levels");
                report.add(&codes::ir::IR_LIMIT, message, &place);
            }
            info.depth <= MAX_TYPE_DEPTH
        });
        table.infos.push(info);
    }
    table
}

/// What is known about the type of a member or element, which lies in memory with others.
fn inner_info(table: &TypeTable<'_>, ty: &DataType, place: &Place, report: &mut Report) -> Option<TypeInfo> {
    if ty.bits() == Some(4) {
        let message = format!("{ty} shares bytes with its neighbours, so it can only be a buffer's element");
        report.add(&codes::ir::IR_UNSUPPORTED_TYPE, message, place);
        return None;
    }
    match table.info(ty) {
        Ok(info) => Some(info),
        Err(TypeProblem::Known) => None,
        Err(TypeProblem::New(message)) => {
            report.add(&codes::ir::IR_UNSUPPORTED_TYPE, message, place);
            None
        }
    }
}

fn struct_info(
    table: &TypeTable<'_>,
    members: &[crate::ir::Member],
    size: u32,
    align: u32,
    place: &mut Place,
    report: &mut Report,
) -> Option<TypeInfo> {
    let mut wrong = |message: String, place: &Place| report.add(&codes::ir::IR_LAYOUT, message, place);
    let mut fits = true;
    if members.is_empty() {
        wrong("a struct needs at least one member".into(), place);
        fits = false;
    }
    if !align.is_power_of_two() {
        wrong(format!("an alignment of {align} bytes is no power of two"), place);
        fits = false;
    }
    let mut info = TypeInfo { size, align, depth: 1, computes: true, open: false };
    let mut end = 0u64;
    for (j, member) in members.iter().enumerate() {
        place.push_at("members", j);
        let inner = inner_info(table, &member.ty, place, report);
        let mut wrong = |message: String| report.add(&codes::ir::IR_LAYOUT, message, place);
        match inner {
            None => fits = false,
            Some(inner) => {
                let before = fits;
                fits = false;
                if inner.open && j + 1 < members.len() {
                    wrong("an array of open length can only be the last member".into());
                } else if inner.open
                    && !matches!(&member.ty, DataType::Handle(id) if matches!(table.defs.get(id.0 as usize), Some(TypeDef::Array { .. })))
                {
                    wrong("a struct that ends in an array of open length can't be part of another type".into());
                } else if !member.offset.is_multiple_of(inner.align) {
                    wrong(format!(
                        "offset {} of `{}` is no multiple of its alignment, {} bytes",
                        member.offset, member.name, inner.align
                    ));
                } else if u64::from(member.offset) < end {
                    wrong(format!("`{}` at offset {} overlaps the member before it", member.name, member.offset));
                } else if inner.align > align {
                    wrong(format!("`{}` is aligned to {} bytes and its struct to {align}", member.name, inner.align));
                } else {
                    fits = before;
                }
                end = u64::from(member.offset) + if inner.open { 0 } else { u64::from(inner.size) };
                info.depth = info.depth.max(inner.depth + 1);
                info.computes &= inner.computes;
                info.open |= inner.open;
            }
        }
        place.pop();
    }
    if fits && end > u64::from(size) {
        report.add(&codes::ir::IR_LAYOUT, format!("the members take {end} bytes and the struct has {size}"), place);
        fits = false;
    } else if fits && !info.open && !size.is_multiple_of(align) {
        report.add(&codes::ir::IR_LAYOUT, format!("a size of {size} bytes is no multiple of {align}"), place);
        fits = false;
    }
    fits.then_some(info)
}

fn array_info(
    table: &TypeTable<'_>,
    element: &DataType,
    count: &Count,
    stride: u32,
    place: &mut Place,
    report: &mut Report,
) -> Option<TypeInfo> {
    place.push("element");
    let inner = inner_info(table, element, place, report);
    place.pop();
    let inner = inner?;
    if inner.open {
        report.add(&codes::ir::IR_LAYOUT, "a type of open length can't be an array's element", place);
        return None;
    }
    if stride < inner.size || !stride.is_multiple_of(inner.align) {
        let message = format!(
            "a stride of {stride} bytes does not fit elements of {} bytes aligned to {}",
            inner.size, inner.align
        );
        report.add(&codes::ir::IR_LAYOUT, message, place);
        return None;
    }
    let info = TypeInfo { size: 0, align: inner.align, depth: inner.depth + 1, computes: inner.computes, open: false };
    match count {
        Count::Runtime => Some(TypeInfo { open: true, ..info }),
        Count::Fixed(0) => {
            report.add(&codes::ir::IR_COUNT, "an array needs at least one element", place);
            None
        }
        Count::Fixed(count) => match count.checked_mul(stride) {
            Some(size) => Some(TypeInfo { size, ..info }),
            None => {
                let message = format!("{count} elements of {stride} bytes are more than 2^32-1 bytes");
                report.add(&codes::ir::IR_LAYOUT, message, place);
                None
            }
        },
        Count::Constant(_) => {
            let message = "the length of an array type can't depend on specialization constants";
            report.push(
                vyre_spec::Diagnostic::new(&codes::ir::IR_COUNT, message)
                    .with_fix("Fix the length, or make it the count of a workgroup buffer.")
                    .at(place.to_string()),
            );
            None
        }
    }
}

/// Checks specialization constants.
pub(super) fn constants(program: &Program, report: &mut Report) {
    unique(program.constants().iter().map(|constant| &constant.name), "constant", "constants", report);
    for (i, SpecConstant { name, default }) in program.constants().iter().enumerate() {
        if matches!(default, Literal::U64(_) | Literal::I64(_) | Literal::F64(_)) {
            let message = format!(
                "specialization constant `{name}` is {}; it can be bool, u32, i32, f16 or f32",
                default.data_type()
            );
            report.add(&codes::ir::IR_UNSUPPORTED_TYPE, message, &Place::at("constants", i));
        }
    }
}

/// Checks buffers and the memory of a workgroup.
pub(super) fn buffers(program: &Program, table: &TypeTable<'_>, report: &mut Report) {
    unique(program.buffers().iter().map(|buffer| &buffer.name), "buffer", "buffers", report);
    let defaults = Constants::new(program, None).ok();
    let mut bindings: HashMap<(u32, u32), &Name> = HashMap::new();
    let mut shared = 0u64;
    for (i, buffer) in program.buffers().iter().enumerate() {
        let mut place = Place::at("buffers", i);
        let name = &buffer.name;
        if buffer.kind != BufferKind::Workgroup
            && let Some(other) = bindings.insert((buffer.group, buffer.binding), name)
        {
            let message =
                format!("buffers `{other}` and `{name}` share binding {} of group {}", buffer.binding, buffer.group);
            report.add(&codes::ir::IR_DUPLICATE, message, &place);
        }
        place.push("ty");
        let info = match table.info(&buffer.ty) {
            Ok(info) => Some(info),
            Err(TypeProblem::Known) => None,
            Err(TypeProblem::New(message)) => {
                report.add(&codes::ir::IR_UNSUPPORTED_TYPE, format!("buffer `{name}`: {message}"), &place);
                None
            }
        };
        place.pop();
        place.push("count");
        let storage = matches!(buffer.kind, BufferKind::Read | BufferKind::ReadWrite | BufferKind::Output);
        let count = match &buffer.count {
            Count::Runtime if storage => None,
            Count::Runtime => {
                let message = format!("the length of {} buffer `{name}` is open", buffer.kind.name());
                report.add(&codes::ir::IR_COUNT, message, &place);
                None
            }
            Count::Fixed(count) => Some(*count),
            Count::Constant(expr) => {
                if constant_expr(program, expr, false, &mut place, report) {
                    defaults.as_ref().and_then(|defaults| defaults.eval(expr, &[]).ok())
                } else {
                    None
                }
            }
        };
        if count == Some(0) && !storage {
            report.add(&codes::ir::IR_COUNT, format!("{} buffer `{name}` has no elements", buffer.kind.name()), &place);
        }
        let Some(info) = info else { continue };
        if info.open {
            let array = matches!(&buffer.ty, DataType::Handle(id) if matches!(table.defs.get(id.0 as usize), Some(TypeDef::Array { .. })));
            if array {
                let message = format!("the elements of buffer `{name}` are arrays of open length");
                report.push(
                    vyre_spec::Diagnostic::new(&codes::ir::IR_COUNT, message)
                        .with_fix(
                            "Use the array's element as the buffer's element; a buffer's length is open by itself.",
                        )
                        .at(place.to_string()),
                );
            } else if !storage || buffer.count != Count::Runtime {
                let message = format!(
                    "the struct of buffer `{name}` ends in an array of open length, so its own count is open and it is a storage buffer"
                );
                report.add(&codes::ir::IR_COUNT, message, &place);
            }
            continue;
        }
        let Some(bytes) = count.and_then(|count| Some(launch::shape_of(program, i).ok()?.bytes_of(u64::from(count))))
        else {
            continue;
        };
        match buffer.kind {
            BufferKind::Uniform if bytes > MAX_UNIFORM_BYTES => {
                let message =
                    format!("uniform buffer `{name}` has {bytes} bytes, and the limit is {MAX_UNIFORM_BYTES}");
                report.push(
                    vyre_spec::Diagnostic::new(&codes::ir::IR_COUNT, message)
                        .with_fix("Use a read buffer.")
                        .at(place.to_string()),
                );
            }
            BufferKind::Workgroup => shared = shared.saturating_add(bytes.next_multiple_of(16)),
            _ => {}
        }
    }
    if shared > MAX_WORKGROUP_BYTES {
        let message = format!("the workgroup's memory takes {shared} bytes, and the limit is {MAX_WORKGROUP_BYTES}");
        report.add(&codes::ir::IR_WORKGROUP, message, &Place::of("buffers"));
    }
}

/// Checks workgroup size and domain.
pub(super) fn launch(program: &Program, report: &mut Report) {
    let mut known = true;
    for (axis, expr) in program.workgroup_exprs().iter().enumerate() {
        if let Some(expr) = expr {
            known &= constant_expr(program, expr, false, &mut Place::at("workgroup_size", axis), report);
        }
    }
    if known && launch::workgroup_size(program, None).is_err() {
        let size = program.workgroup_size();
        let message = format!(
            "a workgroup of {} x {} x {} can't run: each axis is at least 1 and all together at most {MAX_WORKGROUP_INVOCATIONS}",
            axis_text(program, 0, size[0]),
            axis_text(program, 1, size[1]),
            axis_text(program, 2, size[2]),
        );
        report.add(&codes::ir::IR_WORKGROUP, message, &Place::of("workgroup_size"));
    }
    for (axis, expr) in program.domain().into_iter().flatten().enumerate() {
        constant_expr(program, expr, true, &mut Place::at("domain", axis), report);
    }
}

/// The size along an axis under the default constants.
fn axis_text(program: &Program, axis: usize, fixed: u32) -> String {
    let value = program.workgroup_exprs()[axis]
        .as_ref()
        .and_then(|expr| Constants::new(program, None).ok()?.eval(expr, &[]).ok());
    value.unwrap_or(fixed).to_string()
}

/// Checks an expression that is evaluated before the launch. True when it can be.
fn constant_expr(program: &Program, expr: &Expr, lengths: bool, place: &mut Place, report: &mut Report) -> bool {
    match constant_type(program, expr, lengths) {
        Ok(U32) => true,
        Ok(other) => {
            let message = format!("the size is {other}, not u32");
            report.add(&codes::ir::IR_CONSTANT, message, place);
            false
        }
        Err(message) => {
            report.add(&codes::ir::IR_CONSTANT, message, place);
            false
        }
    }
}

fn constant_type(program: &Program, expr: &Expr, lengths: bool) -> Result<ValueType, String> {
    let of = |expr: &Expr| constant_type(program, expr, lengths);
    let word = |literal: &Literal| match literal {
        Literal::U32(_) | Literal::I32(_) => ValueType::of(&literal.data_type()),
        _ => None,
    };
    match expr {
        Expr::Literal(literal) => {
            word(literal).ok_or_else(|| format!("{} can't be part of a size", literal.data_type()))
        }
        Expr::Constant(name) => {
            let Some(constant) = program.constants().iter().find(|constant| constant.name == *name) else {
                return Err(format!("there is no specialization constant `{name}`"));
            };
            let ty = constant.default.data_type();
            word(&constant.default).ok_or_else(|| format!("constant `{name}` is {ty} and can't be part of a size"))
        }
        Expr::Length(name) if lengths => match program.buffer(name.as_str()) {
            Some(buffer) if buffer.kind != BufferKind::Workgroup => Ok(U32),
            Some(_) => Err(format!("the length of workgroup buffer `{name}` can't be part of a domain")),
            None => Err(format!("there is no buffer `{name}`")),
        },
        Expr::Cast { to: to @ (DataType::U32 | DataType::I32), value } => {
            of(value)?;
            Ok(if *to == DataType::U32 { U32 } else { ValueType::Scalar(crate::kernel::Scalar::I32) })
        }
        Expr::Binary { op, left, right } => {
            let (left, right) = (of(left)?, of(right)?);
            let fits = match op {
                BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul => left == right,
                BinaryOp::Shl => right == U32,
                BinaryOp::Div | BinaryOp::Rem | BinaryOp::Shr => left == U32 && right == U32,
                _ => return Err(format!("`{}` can't be part of a size", op.name())),
            };
            if fits { Ok(left) } else { Err(format!("`{}` of {left} and {right} can't be part of a size", op.name())) }
        }
        _ => Err("only literals, specialization constants and arithmetic can be part of a size".into()),
    }
}
