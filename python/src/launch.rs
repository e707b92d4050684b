//! Launches that are under way.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::array::BETWEEN_SIGNALS;
use crate::error::raised;

/// A launch that is under way. `await` it, or `wait` for it.
#[pyclass(frozen, module = "vyre", name = "Launch", weakref)]
pub(crate) struct Launch {
    launch: vyre::Launch,
    /// What the kernel gives back, until it is taken.
    results: Mutex<Option<Py<PyAny>>>,
}

impl Launch {
    pub(crate) fn new(launch: vyre::Launch, results: Py<PyAny>) -> Launch {
        Launch { launch, results: Mutex::new(Some(results)) }
    }

    fn results(&self, py: Python<'_>) -> Py<PyAny> {
        let results = self.results.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        results.as_ref().map_or_else(|| py.None(), |results| results.clone_ref(py))
    }
}

#[pymethods]
impl Launch {
    /// Whether it is over, well or not.
    fn done(&self, py: Python<'_>) -> bool {
        py.detach(|| self.launch.is_done())
    }

    /// Waits for its end, and gives the results. With a limit, in seconds, `TimeoutError` is raised when it goes on; that does not end
    /// it. Ctrl-C does.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let deadline = match timeout {
            Some(seconds) => Some(Instant::now() + limit(seconds)?),
            None => None,
        };
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let slice = left.map_or(BETWEEN_SIGNALS, |left| left.min(BETWEEN_SIGNALS));
            let waited = py.detach(|| self.launch.wait_timeout(slice));
            if waited.map_err(|error| raised(py, &error))? {
                return Ok(self.results(py));
            }
            if let Err(interrupted) = py.check_signals() {
                // What it would have written is lost; whoever reads that is told.
                py.detach(|| self.launch.cancel()).map_err(|error| raised(py, &error))?;
                return Err(interrupted);
            }
            if left == Some(Duration::ZERO) {
                let message = "the launch is still under way; it goes on";
                return Err(pyo3::exceptions::PyTimeoutError::new_err(message));
            }
        }
    }

    /// Seconds on the device, where they were measured and the launch is done.
    #[getter]
    fn device_time(&self) -> Option<f64> {
        self.launch.device_time().map(|time| time.as_secs_f64())
    }

    /// Tells it to end. What it would have written is lost, unless it was done before.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.launch.cancel()).map_err(|error| raised(py, &error))
    }

    /// Calls a function without arguments when it is over, on a thread of the engine.
    fn on_done(&self, py: Python<'_>, call: Py<PyAny>) -> PyResult<()> {
        let told = py.detach(|| {
            self.launch.on_done(move |_| {
                Python::attach(|py| {
                    // There is nobody to raise to; Python prints what it would for a thread.
                    if let Err(problem) = call.call0(py) {
                        problem.write_unraisable(py, None);
                    }
                });
            })
        });
        told.map_err(|error| raised(py, &error))
    }

    fn __await__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        py.import("vyre._asyncio")?.call_method1("wait_for_launch", (slf,))?.call_method0("__await__")
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("<vyre.Launch {}>", if self.done(py) { "over" } else { "under way" })
    }
}

/// A number of seconds that a wait can take.
pub(crate) fn limit(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| pyo3::exceptions::PyValueError::new_err(format!("{seconds} is no number of seconds to wait")))
}
