//! The Python package of vyre: arrays, kernels and launches for people who sit in Python.
//!
//! Everything here is thin: what a launch means, its order and its errors are those of the `vyre` crate. Python adds the types of NumPy,
//! memory that is lent for a call, and the interpreter's lock, which is never held while work is compiled or waited for.

mod array;
mod cuda;
mod element;
mod error;
mod expression;
mod kernel;
mod launch;
mod lent;
mod ops;
mod process;

use std::collections::BTreeMap;
use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use vyre::metrics::Counter;
use vyre::pipeline::PackKey;
use vyre::{Engine, PackReport};

use crate::error::raised;

/// The engine of this process. Locked only while the interpreter's lock is held, so that a fork never finds it taken.
static ENGINE: Mutex<Option<(u32, Engine)>> = Mutex::new(None);

/// The engine of this process; a forked child gets one of its own.
fn engine(py: Python<'_>) -> PyResult<Engine> {
    let mut held = ENGINE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let process = process::number();
    if let Some((owner, engine)) = &*held
        && *owner == process
    {
        return Ok(engine.clone());
    }
    let engine = Engine::open().map_err(|error| raised(py, &error))?;
    // The threads and devices of a parent's engine are not here; ending it would wait for them.
    std::mem::forget(held.replace((process, engine.clone())));
    Ok(engine)
}

/// Every device: its name here, what it is, and why it can't be used where it can't.
#[pyfunction]
fn devices(py: Python<'_>) -> PyResult<Vec<(String, String, Option<String>)>> {
    let engine = engine(py)?;
    let listed = py.detach(|| engine.devices());
    let row = |device: vyre::DeviceInfo| match device.state {
        Ok(able) => (device.id.to_string(), able.name, None),
        Err(absent) => (device.id.to_string(), String::new(), Some(absent.message)),
    };
    Ok(listed.into_iter().map(row).collect())
}

/// Waits for all work that is under way.
#[pyfunction]
fn synchronize(py: Python<'_>) -> PyResult<()> {
    let engine = engine(py)?;
    py.detach(|| engine.synchronize());
    Ok(())
}

/// What has happened that was no error: a device that was lost, a cache that can't be used.
#[pyfunction]
fn take_notices(py: Python<'_>) -> PyResult<Vec<String>> {
    Ok(engine(py)?.take_notices().iter().map(ToString::to_string).collect())
}

/// Returns when everything that was compiled and decided is safe on disk.
#[pyfunction]
fn flush(py: Python<'_>) -> PyResult<()> {
    let engine = engine(py)?;
    py.detach(|| engine.flush()).map_err(|error| raised(py, &error))
}

/// What the engine has counted so far: launches, compilations, what was found in the cache, bytes that were moved.
#[pyfunction]
fn metrics(py: Python<'_>) -> PyResult<BTreeMap<&'static str, u64>> {
    let engine = engine(py)?;
    Ok(Counter::ALL.iter().map(|counter| (counter.name(), engine.metrics().counter(*counter))).collect())
}

fn pack_key(key: Option<&[u8; 32]>) -> PackKey<'_> {
    key.map_or(PackKey::Open, PackKey::Secret)
}

fn counted(report: PackReport) -> (u64, u64, bool) {
    (report.pipelines, report.decisions, report.routes)
}

/// A pack of everything that was compiled and decided, for other machines: its bytes, and what is in it.
#[pyfunction]
#[pyo3(signature = (key=None))]
fn export_pack(py: Python<'_>, key: Option<[u8; 32]>) -> PyResult<(Bound<'_, PyBytes>, (u64, u64, bool))> {
    let engine = engine(py)?;
    let mut pack = Vec::new();
    let report = py.detach(|| engine.export_pack(&mut pack, pack_key(key.as_ref())));
    let report = report.map_err(|error| raised(py, &error))?;
    Ok((PyBytes::new(py, &pack), counted(report)))
}

/// Takes in a pack, after checking every record of it.
#[pyfunction]
#[pyo3(signature = (pack, key=None))]
fn import_pack(py: Python<'_>, pack: &[u8], key: Option<[u8; 32]>) -> PyResult<(u64, u64, bool)> {
    let engine = engine(py)?;
    let report = py.detach(|| engine.import_pack(pack, pack_key(key.as_ref())));
    report.map(counted).map_err(|error| raised(py, &error))
}

/// The native half of the package.
#[pymodule]
fn _vyre(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<array::Array>()?;
    module.add_class::<kernel::Kernel>()?;
    module.add_class::<launch::Launch>()?;
    module.add_class::<expression::Term>()?;
    module.add_function(wrap_pyfunction!(devices, module)?)?;
    module.add_function(wrap_pyfunction!(synchronize, module)?)?;
    module.add_function(wrap_pyfunction!(take_notices, module)?)?;
    module.add_function(wrap_pyfunction!(flush, module)?)?;
    module.add_function(wrap_pyfunction!(metrics, module)?)?;
    module.add_function(wrap_pyfunction!(export_pack, module)?)?;
    module.add_function(wrap_pyfunction!(import_pack, module)?)?;
    module.add_function(wrap_pyfunction!(ops::op, module)?)?;
    module.add_function(wrap_pyfunction!(array::zeros, module)?)?;
    module.add_function(wrap_pyfunction!(array::from_host, module)?)?;
    Ok(())
}
