//! Ops whose number of results is known only when they have run: compact, unique, partition.

use vyre::expression::Term;
use vyre::ir::{BinaryOp, Literal};
use vyre::{Array, DataType, Error, Number};

use crate::fold::{Fold, Kind};
use crate::launch::{extents, misfit, misfit_with};
use crate::output::Output;
use crate::scan::Scan;

/// Elements whose number is on the device: room for as many as there could be, and how many there are.
///
/// Kernels can be launched on both without waiting; reading them waits. What is behind the last element is zero.
pub struct Counted<T> {
    /// Room for all elements, those that there are first.
    pub elements: Array<T>,
    /// How many there are: one number.
    pub count: Array<u32>,
}

impl<T: Number> Counted<T> {
    pub(crate) fn of([elements, count]: [Output; 2]) -> Result<Counted<T>, Error> {
        Ok(Counted { elements: elements.typed()?, count: count.typed()? })
    }

    /// How many there are, on the host.
    pub fn len(&self) -> Result<usize, Error> {
        Ok(self.count.to_vec()?.first().map_or(0, |&count| count as usize))
    }

    /// There are none.
    pub fn is_empty(&self) -> Result<bool, Error> {
        Ok(self.len()? == 0)
    }

    /// The elements that there are, on the host.
    pub fn to_vec(&self) -> Result<Vec<T>, Error> {
        let count = self.len()?;
        self.elements.slice(..count)?.to_vec()
    }
}

fn flags(mask: &Term) -> Result<Term, Error> {
    mask.check()?;
    match *mask.data_type() {
        DataType::Bool => Ok(mask.cast(&DataType::U32)),
        _ => Err(misfit("a mask holds truth values")),
    }
}

/// A mask says of each element whether it is taken; one that would have to be repeated is of something else.
fn check_mask(mask: &Term, value: &Term) -> Result<(), Error> {
    let (mask, own) = (extents(mask)?, extents(value)?);
    match mask == own {
        true => Ok(()),
        false => Err(misfit_with(
            format!("a mask of {mask:?} was given for elements of {own:?}"),
            "Give a mask of the shape of what it chooses from.",
        )),
    }
}

fn fold() -> Fold {
    Fold { kind: Kind::Sum, ty: DataType::U32 }
}

/// Scans flags and lets each position act on how many were before it.
fn moved(flags: &Term, value: &Term, each: &str) -> Result<[Output; 2], Error> {
    let length: usize = extents(value)?.iter().product();
    check_mask(flags, value)?;
    let scan = Scan {
        fold: fold(),
        inclusive: false,
        terms: &[flags, value],
        along: length,
        outputs: &[("out", value.data_type().clone(), length), ("count", DataType::U32, 1)],
        each,
        end: "count[0] = TOTAL;",
        // What is behind the last one that is kept is zero.
        covers: false,
    };
    let mut results = scan.run()?;
    let count = Output { buffer: results.swap_remove(1), ty: DataType::U32, shape: Vec::new() };
    Ok([Output { buffer: results.swap_remove(0), ty: value.data_type().clone(), shape: vec![length] }, count])
}

/// The elements where the mask is true, in their order.
pub(crate) fn compact(value: &Term, mask: &Term) -> Result<[Output; 2], Error> {
    moved(&flags(mask)?, value, "if VALUE0 != 0 {\nout[PREFIX] = VALUE1;\n}")
}

/// The elements where the mask is true, then the others, each in their order; the count is that of the first.
pub(crate) fn partition(value: &Term, mask: &Term) -> Result<[Output; 2], Error> {
    // The others need to know how many there are in front of them, so what is kept is counted first.
    let flags = flags(mask)?;
    check_mask(&flags, value)?;
    let kept = crate::reduce::reduce(&flags, None, Kind::Sum, None, &DataType::U32)?.swap_remove(0);
    let shape = match value.shape() {
        Some(shape) => shape.clone(),
        None => return Err(misfit("a number can't be partitioned")),
    };
    let kept = Term::array(kept, DataType::U32, [0usize; 0].into());
    let engine = crate::launch::engine(value)?;
    // Where a position goes when it is not kept: as many in front of it as are kept, and as are not kept before it.
    let behind = kept.broadcast(&engine, shape.clone()).binary(BinaryOp::Add, &Term::positions(&engine, shape));
    let length: usize = extents(value)?.iter().product();
    let scan = Scan {
        fold: fold(),
        inclusive: false,
        terms: &[&flags, value, &behind],
        along: length,
        outputs: &[("out", value.data_type().clone(), length), ("count", DataType::U32, 1)],
        each: "out[select(VALUE0 != 0, PREFIX, VALUE2 - PREFIX)] = VALUE1;",
        end: "count[0] = TOTAL;",
        covers: true,
    };
    let mut results = scan.run()?;
    let count = Output { buffer: results.swap_remove(1), ty: DataType::U32, shape: Vec::new() };
    Ok([Output { buffer: results.swap_remove(0), ty: value.data_type().clone(), shape: vec![length] }, count])
}

/// The first of each run of equal elements, in their order.
pub(crate) fn unique(value: &Term) -> Result<[Output; 2], Error> {
    let length: usize = extents(value)?.iter().product();
    let buffer = value.evaluate()?;
    let engine = crate::launch::engine(value)?;
    let ty = value.data_type();
    let elements = Term::array(buffer.clone(), ty.clone(), length.into());
    let previous = previous(&engine, &elements)?;
    let at = Term::positions(&engine, length.into());
    let is_first = at.binary(BinaryOp::Eq, &Term::scalar(Literal::U32(0)));
    let flags = elements.binary(BinaryOp::Ne, &previous).binary(BinaryOp::Or, &is_first).cast(&DataType::U32);
    moved(&flags, &elements, "if VALUE0 != 0 {\nout[PREFIX] = VALUE1;\n}")
}

/// Each element's predecessor; the first has itself.
fn previous(engine: &vyre::Engine, elements: &Term) -> Result<Term, Error> {
    let length: usize = extents(elements)?.iter().product();
    let ty = elements.data_type();
    let mut out = crate::launch::room(engine, ty, length);
    let buffer = elements.evaluate()?;
    if length > 0 {
        let source = format!(
            "read x: {ty} @0;\noutput out: {ty} @1;\nworkgroup_size [64, 1, 1];\nentry previous {{\nlet i = global_id.x;\n\
             if i < len(out) {{\nout[i] = x[max(i, 1) - 1];\n}}\n}}\n"
        );
        engine.kernel_of_text(&source)?.bind("x", &buffer).bind("out", &mut out).launch()?;
    }
    Ok(Term::array(out, ty.clone(), length.into()))
}
