//! What the launches of all ops share.

use vyre::expression::Term;
use vyre::{Buffer, DataType, Diagnostic, Engine, Error, Shape, codes};

/// The most elements that one launch counts with u32 indices.
pub(crate) const MOST: usize = 1 << 30;

/// A grid of so many workgroups, in rows that every device can have. Kernels find their number with [`GROUP`] and compare it with how
/// many there are.
pub(crate) fn grid(groups: usize) -> [u32; 3] {
    const ROW: usize = 1 << 15;
    match groups <= ROW {
        true => [groups as u32, 1, 1],
        false => [ROW as u32, groups.div_ceil(ROW) as u32, 1],
    }
}

/// The number of the workgroup in a [`grid`].
pub(crate) const GROUP: &str = "let group = workgroup_id.y * num_workgroups.x + workgroup_id.x;\n";

/// Bytes of an element.
pub(crate) fn size_of(ty: &DataType) -> u64 {
    u64::from(ty.bits().unwrap_or(32) / 8)
}

/// Room for so many elements.
pub(crate) fn room(engine: &Engine, ty: &DataType, elements: usize) -> Buffer {
    engine.buffer(elements as u64 * size_of(ty))
}

/// The extents of a term, which has to have some.
pub(crate) fn extents(term: &Term) -> Result<Vec<usize>, Error> {
    term.check()?;
    match term.shape() {
        Some(shape) => Ok(shape.extents().to_vec()),
        None => Err(misfit("a number without an array has no elements")),
    }
}

/// The engine of a term, which has to have one.
pub(crate) fn engine(term: &Term) -> Result<Engine, Error> {
    term.engine().cloned().ok_or_else(|| misfit("a number without an array belongs to no engine"))
}

/// Extents before an axis, along it and behind it.
pub(crate) fn split(extents: &[usize], axis: usize) -> Result<[usize; 3], Error> {
    let Some(&along) = extents.get(axis) else {
        return Err(misfit(format!("there is no axis {axis} in {}", Shape::from(extents))));
    };
    Ok([extents[..axis].iter().product(), along, extents[axis + 1..].iter().product()])
}

pub(crate) fn misfit(message: impl Into<String>) -> Error {
    Diagnostic::new(&codes::engine::SHAPE, message.into()).into()
}

pub(crate) fn mistyped(message: impl Into<String>) -> Error {
    Diagnostic::new(&codes::engine::WRONG_ELEMENT, message.into()).into()
}

pub(crate) fn is_float(ty: &DataType) -> bool {
    matches!(ty, DataType::F16 | DataType::F32 | DataType::F64)
}

/// Work will probably run on a device that keeps thousands of invocations going at once. Kernels give the same either way; this chooses
/// the form that suits. `VYRE_OPS_FORM=wide` or `deep` decides it, for comparisons.
pub(crate) fn is_gpu(engine: &Engine) -> bool {
    use vyre::backend::DeviceKind;
    if let Ok(form) = std::env::var("VYRE_OPS_FORM") {
        return form == "wide";
    }
    let is = |id: &vyre::BackendId| {
        engine
            .backend(id.as_str())
            .is_ok_and(|backend| matches!(backend.capabilities().kind, DeviceKind::Discrete | DeviceKind::Integrated))
    };
    engine.backend_ids().iter().any(is)
}
