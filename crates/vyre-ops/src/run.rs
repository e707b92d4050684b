//! Ops without Rust types, as [`Ops`](crate::Ops) and the registry call them.

use vyre::expression::Term;
use vyre::ir::{BinaryOp, Literal};
use vyre::{DataType, Error};

use crate::fold::{Fold, Kind};
use crate::launch::{extents, is_float, misfit_with, mistyped, no_axis, split};
use crate::layout;
use crate::output::Output;
use crate::reduce::{Finish, reduce};
use crate::rows::Rows;
use crate::scan::Scan;
use crate::sort;

/// The extents that are left.
pub(crate) fn without(term: &Term, axis: Option<usize>) -> Result<Vec<usize>, Error> {
    let mut extents = extents(term)?;
    match axis {
        Some(axis) if axis < extents.len() => drop(extents.remove(axis)),
        Some(axis) => return Err(no_axis(axis, &extents)),
        None => extents.clear(),
    }
    Ok(extents)
}

pub(crate) fn first(term: &Term, axis: Option<usize>, kind: Kind, finish: Finish<'_>) -> Result<Output, Error> {
    let shape = without(term, axis)?;
    let stored = term.data_type();
    let wide = if *stored == DataType::F16 { term.cast(&DataType::F32) } else { term.clone() };
    let finish = match (finish, stored) {
        (Some(finish), DataType::F16) => Some(format!("cast<f16>({finish})")),
        (None, DataType::F16) => Some("cast<f16>(#)".to_owned()),
        (finish, _) => finish.map(str::to_owned),
    };
    let mut results = reduce(&wide, axis, kind, finish.as_deref(), stored)?;
    Ok(Output { buffer: results.swap_remove(0), ty: stored.clone(), shape })
}

pub(crate) fn reduced(term: &Term, axis: Option<usize>, kind: Kind) -> Result<Output, Error> {
    // Neutral for sums is -0; the sum of nothing, and of nothing but -0, is 0.
    let zero = match (kind, term.data_type()) {
        (Kind::Sum, DataType::F64) => Some("# + 0.0f64"),
        (Kind::Sum, DataType::F32 | DataType::F16) => Some("# + 0.0"),
        _ => None,
    };
    first(term, axis, kind, zero)
}

pub(crate) fn mean(term: &Term, axis: Option<usize>) -> Result<Output, Error> {
    if !is_float(term.data_type()) {
        return Err(mistyped(format!("the mean is of floats, not of {}", term.data_type())));
    }
    first(term, axis, Kind::Sum, Some("# / count"))
}

pub(crate) fn variance(term: &Term, axis: Option<usize>) -> Result<Output, Error> {
    let mut kept = extents(term)?;
    let mut mean = mean(term, axis)?;
    match axis {
        Some(axis) => kept[axis] = 1,
        None => kept.clear(),
    }
    mean.shape = kept;
    let distance = term.binary(BinaryOp::Sub, &mean.term());
    self::mean(&distance.binary(BinaryOp::Mul, &distance), axis)
}

pub(crate) fn position(term: &Term, axis: Option<usize>, kind: Kind) -> Result<Output, Error> {
    let shape = without(term, axis)?;
    let mut results = reduce(term, axis, kind, None, term.data_type())?;
    Ok(Output { buffer: results.swap_remove(1), ty: DataType::U32, shape })
}

pub(crate) fn truth(term: &Term, axis: Option<usize>, kind: Kind) -> Result<Output, Error> {
    let shape = without(term, axis)?;
    let zero = Literal::zero(term.data_type()).unwrap_or(Literal::U32(0));
    let flags = term.binary(BinaryOp::Ne, &Term::scalar(zero)).cast(&DataType::U32);
    let mut results = reduce(&flags, axis, kind, None, &DataType::U32)?;
    Ok(Output { buffer: results.swap_remove(0), ty: DataType::U32, shape })
}

pub(crate) fn scanned(term: &Term, axis: Option<usize>, kind: Kind, inclusive: bool) -> Result<Output, Error> {
    let extents = extents(term)?;
    let [_, along, inner] = match axis {
        Some(axis) => split(&extents, axis)?,
        None => [1, extents.iter().product(), 1],
    };
    if let (Some(axis), true) = (axis, inner > 1) {
        // Elements along the axis are brought side by side, and back.
        let mut order: Vec<usize> = (0..extents.len()).filter(|&other| other != axis).collect();
        order.push(axis);
        let moved = layout::permute(term, &order)?;
        let done = scanned(&moved.term(), Some(extents.len() - 1), kind, inclusive)?;
        let back: Vec<usize> =
            (0..extents.len()).map(|at| order.iter().position(|&own| own == at).unwrap_or(at)).collect();
        return layout::permute(&done.term(), &back);
    }
    let ty = term.data_type();
    let each = match (kind, ty) {
        (Kind::Sum, DataType::F64) => "out[AT] = PREFIX + 0.0f64;",
        (Kind::Sum, DataType::F32 | DataType::F16) => "out[AT] = PREFIX + ZERO;",
        _ => "out[AT] = PREFIX;",
    };
    let each = each.replace("ZERO", if *ty == DataType::F16 { "0.0f16" } else { "0.0" });
    let scan = Scan {
        fold: Fold { kind, ty: ty.clone() },
        inclusive,
        terms: &[term],
        along,
        outputs: &[("out", ty.clone(), extents.iter().product())],
        each: &each,
        end: "",
        covers: true,
    };
    Ok(Output { buffer: scan.run()?.swap_remove(0), ty: ty.clone(), shape: extents })
}

pub(crate) fn sorted(term: &Term, descending: bool) -> Result<Output, Error> {
    let length = extents(term)?.iter().product();
    let (buffer, _) = sort::sort(term, None, descending)?;
    Ok(Output { buffer, ty: term.data_type().clone(), shape: vec![length] })
}

pub(crate) fn rows(term: &Term, rows: &Rows<'_>, epsilon: f64) -> Result<Output, Error> {
    Ok(Output { buffer: rows.run(term, epsilon)?, ty: term.data_type().clone(), shape: extents(term)? })
}

pub(crate) fn dot(a: &Term, b: &Term) -> Result<Output, Error> {
    let (left, right) = (extents(a)?, extents(b)?);
    if left != right {
        return Err(misfit_with(
            format!("a dot product of {left:?} and {right:?} does not fit"),
            "Give two arrays of one shape; what is to be repeated along an axis is multiplied and then summed: `(&a * &b).sum()`.",
        ));
    }
    reduced(&a.binary(BinaryOp::Mul, b), None, Kind::Sum)
}

pub(crate) fn matvec(matrix: &Term, vector: &Term) -> Result<Output, Error> {
    let (left, right) = (extents(matrix)?, extents(vector)?);
    match (left.last(), &right[..]) {
        (Some(k), [own]) if k == own => reduced(&matrix.binary(BinaryOp::Mul, vector), Some(left.len() - 1), Kind::Sum),
        _ => Err(misfit_with(
            format!("a product of {left:?} and a vector of {right:?} does not fit"),
            "Give a matrix [.., m, k] and a vector [k].",
        )),
    }
}
