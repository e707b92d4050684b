//! Ops: reductions, scans, sorts and products. They take expressions in, which are computed inside of their kernels, and give arrays.

use pyo3::prelude::*;
use vyre::expression::Term as Inner;
use vyre::{Array as Typed, DataType, Diagnostic, Error, Expression, Number, codes};
use vyre_ops::{Activation, Boundary, Ops, Output, Parameters};

use crate::array::{Array, Kind};
use crate::element::Element;
use crate::error::{raised, refused};
use crate::expression::Term;

#[allow(clippy::too_many_arguments, reason = "each is a named argument in Python")]
/// An op by its name, on terms; see `vyre_ops`.
#[pyfunction]
#[pyo3(signature = (name, terms, axis=None, count=None, epsilon=None, order=Vec::new(), causal=false, inverse=false, boundary=None, padding=0, stride=None, scale=None, activation=None))]
pub(crate) fn op(
    py: Python<'_>,
    name: &str,
    terms: Vec<PyRef<'_, Term>>,
    axis: Option<usize>,
    count: Option<usize>,
    epsilon: Option<f64>,
    order: Vec<usize>,
    causal: bool,
    inverse: bool,
    boundary: Option<&str>,
    padding: usize,
    stride: Option<usize>,
    scale: Option<f64>,
    activation: Option<&str>,
) -> PyResult<Vec<Array>> {
    let terms: Vec<Inner> = terms.iter().map(|term| term.inner().clone()).collect();
    let boundary = match boundary {
        None => Boundary::default(),
        Some(name) => Boundary::named(name).ok_or_else(|| {
            refused(py, format!("there is no boundary {name:?}"), "Take zero, edge, wrap or reflect.")
        })?,
    };
    let activation = match activation {
        None => Activation::None,
        Some(name) => Activation::named(name)
            .ok_or_else(|| refused(py, format!("there is no activation {name:?}"), "Take none, relu or gelu."))?,
    };
    let parameters = Parameters { activation, axis, boundary, causal, count, epsilon, inverse, padding, scale, stride };
    let made = py.detach(|| run(name, &terms, &parameters, &order)).map_err(|error| raised(py, &error))?;
    let array = |output: Output| {
        let element = Element::of(&output.ty).ok_or_else(|| {
            refused(py, format!("NumPy has no elements of type {}", output.ty), "Compute with another type.")
        })?;
        Ok(Array::new(output.buffer, Kind::Number(element), output.shape))
    };
    made.into_iter().map(array).collect()
}

fn run(name: &str, terms: &[Inner], parameters: &Parameters, order: &[usize]) -> Result<Vec<Output>, Error> {
    let by_type = match terms.first().map(Inner::data_type) {
        Some(DataType::F32) => typed::<f32>(name, terms, parameters, order),
        Some(DataType::F64) => typed::<f64>(name, terms, parameters, order),
        Some(DataType::F16) => typed::<half::f16>(name, terms, parameters, order),
        Some(DataType::U32) => typed::<u32>(name, terms, parameters, order),
        Some(DataType::I32) => typed::<i32>(name, terms, parameters, order),
        Some(DataType::U64) => typed::<u64>(name, terms, parameters, order),
        Some(DataType::I64) => typed::<i64>(name, terms, parameters, order),
        _ => Ok(None),
    };
    match by_type? {
        Some(outputs) => Ok(outputs),
        None => vyre_ops::op(name)?.run(terms, parameters),
    }
}

/// The ops that are not in the registry, as they have a type, a mask or an order besides.
fn typed<T: Number>(
    name: &str,
    terms: &[Inner],
    parameters: &Parameters,
    order: &[usize],
) -> Result<Option<Vec<Output>>, Error> {
    let x = Expression::<T>::of(terms[0].clone());
    let at = |position: usize| {
        let missing = || Diagnostic::new(&codes::engine::NOT_SET, format!("`{name}` takes more arrays"));
        terms.get(position).cloned().ok_or_else(|| Error::from(missing()))
    };
    let positions = || Ok::<_, Error>(Expression::<u32>::of(at(1)?));
    let counted = |counted: vyre_ops::Counted<T>| vec![output(counted.elements), output(counted.count)];
    Ok(Some(match (name, parameters.axis) {
        ("argsort", _) => vec![output(x.argsort()?)],
        ("cumsum", Some(axis)) => vec![output(x.cumsum_axis(axis)?)],
        ("exclusive_sum", Some(axis)) => vec![output(x.exclusive_sum_axis(axis)?)],
        ("cumprod", _) => vec![output(x.cumprod()?)],
        ("cummin", _) => vec![output(x.cummin()?)],
        ("cummax", _) => vec![output(x.cummax()?)],
        ("compact", _) => counted(x.compact(&Expression::of(at(1)?))?),
        ("partition", _) => counted(x.partition(&Expression::of(at(1)?))?),
        ("permute", _) => vec![output(x.permute(order)?)],
        ("scatter", _) => vec![output(x.scatter(&positions()?, &Expression::<T>::of(at(2)?))?)],
        ("scatter_add", _) => vec![output(x.scatter_add(&positions()?, &Expression::<T>::of(at(2)?))?)],
        _ => return Ok(None),
    }))
}

fn output<T: vyre::Element>(array: Typed<T>) -> Output {
    let (ty, shape) = (T::data_type().unwrap_or(DataType::U32), array.shape().to_vec());
    Output { buffer: array.into_buffer(), ty, shape }
}
