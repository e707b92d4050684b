//! Errors of vyre as exceptions of Python.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use vyre::{Diagnostic, Error, codes};

/// The exception of an error: with its code, its cure, and the source line where there is one.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let make = MAKE.get_or_try_init(py, || Ok::<_, PyErr>(py.import("vyre.errors")?.getattr("_from_native")?.unbind()));
    let made = make.and_then(|make| {
        let cause = error.diagnostic();
        let class = format!("{:?}", cause.code.class);
        let place = cause.source.as_ref().map(|source| (source.line, source.column));
        let all: Vec<_> = error
            .diagnostics()
            .iter()
            .map(|one| {
                let place = one.source.as_ref().map(|source| (source.line, source.column));
                (one.code.id, one.message.as_str(), one.fix.as_str(), place)
            })
            .collect();
        make.bind(py).call1((error.code(), error.message(), error.fix(), error.to_string(), class, place, all))
    });
    match made {
        Ok(exception) => PyErr::from_value(exception),
        Err(problem) => problem,
    }
}

/// The exception of a wrong argument.
pub(crate) fn refused(py: Python<'_>, message: String, fix: &str) -> PyErr {
    raised(py, &Diagnostic::new(&codes::engine::WRONG_ELEMENT, message).with_fix(fix).into())
}
