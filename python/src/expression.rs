//! Expressions on arrays: what is computed of them, position by position, in one kernel. The operators and their rules are in Python.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use vyre::DataType;
use vyre::expression::Term as Inner;
use vyre::ir::{BinaryOp, Literal, MathOp, UnaryOp};

use crate::array::{Array, Kind};
use crate::element::Element;
use crate::error::{raised, refused};

/// A value for each position of a shape, or a number; nothing is computed before it is needed.
#[pyclass(frozen, module = "vyre._vyre", name = "Term")]
pub(crate) struct Term(Inner);

/// The term, where nothing is wrong with it.
fn checked(py: Python<'_>, term: Inner) -> PyResult<Term> {
    term.check().map_err(|error| raised(py, &error))?;
    Ok(Term(term))
}

fn unknown(name: &str) -> PyErr {
    PyTypeError::new_err(format!("expressions have no `{name}`"))
}

fn type_named(name: &str) -> PyResult<DataType> {
    if name == "bool" {
        return Ok(DataType::Bool);
    }
    Element::named(name).map(|element| element.ty).ok_or_else(|| unknown(name))
}

impl Term {
    pub(crate) fn inner(&self) -> &Inner {
        &self.0
    }
}

#[pymethods]
impl Term {
    /// The value of an array as it is now.
    #[staticmethod]
    fn array(py: Python<'_>, array: &Bound<'_, Array>) -> PyResult<Term> {
        let array = array.get();
        let Kind::Number(element) = &array.kind else {
            return Err(refused(py, "structs are not computed with".to_owned(), "Write a kernel for them."));
        };
        checked(py, Inner::array(array.value(py), element.ty.clone(), array.shape.as_slice().into()))
    }

    /// One number for all positions.
    #[staticmethod]
    fn scalar(value: &Bound<'_, PyAny>, dtype: &str) -> PyResult<Term> {
        let literal = match type_named(dtype)? {
            DataType::Bool => Literal::Bool(value.extract()?),
            DataType::U32 => Literal::U32(value.extract()?),
            DataType::I32 => Literal::I32(value.extract()?),
            DataType::U64 => Literal::U64(value.extract()?),
            DataType::I64 => Literal::I64(value.extract()?),
            DataType::F64 => Literal::F64(value.extract()?),
            DataType::F32 => Literal::F32(value.extract()?),
            _ => return Err(unknown(dtype)),
        };
        Ok(Term(Inner::scalar(literal)))
    }

    fn unary(&self, py: Python<'_>, op: &str) -> PyResult<Term> {
        checked(py, self.0.unary(UnaryOp::named(op).ok_or_else(|| unknown(op))?))
    }

    fn binary(&self, py: Python<'_>, op: &str, other: &Term) -> PyResult<Term> {
        checked(py, self.0.binary(BinaryOp::named(op).ok_or_else(|| unknown(op))?, &other.0))
    }

    #[staticmethod]
    #[pyo3(signature = (op, *args))]
    fn math(py: Python<'_>, op: &str, args: Vec<PyRef<'_, Term>>) -> PyResult<Term> {
        let args: Vec<&Inner> = args.iter().map(|arg| &arg.0).collect();
        checked(py, Inner::math(MathOp::named(op).ok_or_else(|| unknown(op))?, &args))
    }

    fn select(&self, py: Python<'_>, yes: &Term, no: &Term) -> PyResult<Term> {
        checked(py, self.0.select(&yes.0, &no.0))
    }

    fn cast(&self, py: Python<'_>, dtype: &str) -> PyResult<Term> {
        checked(py, self.0.cast(&type_named(dtype)?))
    }

    /// NumPy's name of the type that it computes.
    #[getter]
    fn dtype(&self) -> String {
        let ty = self.0.data_type();
        Element::of(ty).map_or_else(|| ty.to_string(), |element| element.name.to_owned())
    }

    /// The extents; none for a number.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.shape().map_or(&[][..], |shape| shape.extents()))
    }

    /// Computes it; truth values are 1 and 0.
    fn evaluate(&self, py: Python<'_>) -> PyResult<Array> {
        let stored = match self.0.data_type() {
            DataType::Bool => DataType::U32,
            other => other.clone(),
        };
        let element = Element::of(&stored).ok_or_else(|| unknown(&stored.to_string()))?;
        let buffer = py.detach(|| self.0.evaluate()).map_err(|error| raised(py, &error))?;
        let shape = self.0.shape().map_or_else(Vec::new, |shape| shape.extents().to_vec());
        Ok(Array::new(buffer, Kind::Number(element), shape))
    }
}
