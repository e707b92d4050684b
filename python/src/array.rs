//! Arrays: one value, wherever its copies are.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use vyre::Buffer;

use crate::cuda::Foreign;
use crate::element::{BFLOAT16, Element};
use crate::error::{raised, refused};
use crate::lent::{Lent, lies_on_host};

/// Start, end and step along one axis.
type AxisRange = (usize, usize, usize);

/// How often a wait looks whether the user has pressed Ctrl-C.
pub(crate) const BETWEEN_SIGNALS: Duration = Duration::from_millis(50);

/// What an array's elements are.
pub(crate) enum Kind {
    Number(Element),
    /// Structs, as a dtype of NumPy and its size.
    Struct(Py<PyAny>, usize),
}

impl Kind {
    pub(crate) fn size(&self) -> usize {
        match self {
            Kind::Number(element) => element.size,
            Kind::Struct(_, size) => *size,
        }
    }

    fn share(&self, py: Python<'_>) -> Kind {
        match self {
            Kind::Number(element) => Kind::Number(element.clone()),
            Kind::Struct(dtype, size) => Kind::Struct(dtype.clone_ref(py), *size),
        }
    }
}

/// An array of numbers or structs that kernels work on. It may have copies on the host and on devices; the engine knows which are valid and
/// moves what a launch needs when it needs it.
#[pyclass(frozen, module = "vyre", name = "Array", weakref)]
pub(crate) struct Array {
    buffer: Mutex<Buffer>,
    pub(crate) kind: Kind,
    pub(crate) shape: Vec<usize>,
}

impl Array {
    pub(crate) fn new(buffer: Buffer, kind: Kind, shape: Vec<usize>) -> Array {
        Array { buffer: Mutex::new(buffer), kind, shape }
    }

    /// The bytes, for a launch that writes them. Taken without the interpreter's lock, since another thread may hold it for a while.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value as it is now.
    pub(crate) fn value(&self, py: Python<'_>) -> Buffer {
        match self.buffer.try_lock() {
            Ok(buffer) => buffer.clone(),
            Err(_) => py.detach(|| self.lock().clone()),
        }
    }

    pub(crate) fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// The elements from one position to another along each axis, in steps; `None` where they have no size of a number.
    fn part(&self, py: Python<'_>, ranges: &[AxisRange], shape: Vec<usize>) -> PyResult<Option<Array>> {
        let (buffer, own) = (self.value(py), &self.shape[..]);
        let made = py.detach(|| match self.kind.size() {
            1 => part::<u8>(buffer, own, ranges).map(Some),
            2 => part::<u16>(buffer, own, ranges).map(Some),
            4 => part::<u32>(buffer, own, ranges).map(Some),
            8 => part::<u64>(buffer, own, ranges).map(Some),
            _ => Ok(None),
        });
        let made = made.map_err(|error| raised(py, &error))?;
        Ok(made.map(|buffer| Array::new(buffer, self.kind.share(py), shape)))
    }
}

fn part<T: vyre::Element>(buffer: Buffer, shape: &[usize], ranges: &[AxisRange]) -> Result<Buffer, vyre::Error> {
    let array = buffer.into_array::<T>()?.shaped(shape)?;
    let mut view = array.view();
    for (axis, &(start, end, step)) in ranges.iter().enumerate() {
        view = view.slice_axis(axis, start..end, step)?;
    }
    Ok(view.to_array()?.into_buffer())
}

/// An array of zeros, which take no memory until they are used.
#[pyfunction]
pub(crate) fn zeros(py: Python<'_>, shape: Vec<usize>, dtype: &Bound<'_, PyAny>) -> PyResult<Array> {
    let kind = kind_of(dtype)?;
    let bytes = shape.iter().try_fold(kind.size(), |bytes, extent| bytes.checked_mul(*extent));
    let bytes =
        bytes.ok_or_else(|| PyValueError::new_err("an array of this shape has more bytes than can be counted"))?;
    Ok(Array::new(crate::engine(py)?.buffer(bytes as u64), kind, shape))
}

/// An array with the contents of a NumPy array, or of anything with the buffer protocol or DLPack. They are copied before this returns;
/// those of a CUDA tensor on the device, before whatever comes next on the producer's stream.
#[pyfunction]
pub(crate) fn from_host(py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<Array> {
    if !lies_on_host(object)
        && let Some(foreign) = Foreign::of("the array", object, false)?
    {
        let engine = crate::engine(py)?;
        let wrapped = foreign.wrap(py, &engine, false).map_err(|error| raised(py, &error))?;
        let buffer = py.detach(|| wrapped.into_copy()).map_err(|error| raised(py, &error))?;
        return Ok(Array::new(buffer, Kind::Number(foreign.element.clone()), foreign.shape.clone()));
    }
    let lent = Lent::new("the array", object, false)?;
    let kind = match &lent.element {
        Some(element) => Kind::Number(element.clone()),
        None => kind_of(&object.getattr("dtype")?)?,
    };
    let (engine, slice) = (crate::engine(py)?, lent.slice());
    #[allow(unsafe_code)]
    // SAFETY: `lent` lives until this returns, and whoever lends an array to a call does not write it meanwhile.
    let buffer = py.detach(|| engine.buffer_of(unsafe { slice.read() })).map_err(|error| raised(py, &error))?;
    Ok(Array::new(buffer, kind, lent.shape.clone()))
}

/// What a dtype of NumPy, or the name of one, stands for.
pub(crate) fn kind_of(dtype: &Bound<'_, PyAny>) -> PyResult<Kind> {
    let py = dtype.py();
    if let Some(element) = Element::named(BFLOAT16)
        && dtype.extract::<&str>().is_ok_and(|name| name == BFLOAT16)
    {
        return Ok(Kind::Number(element));
    }
    let dtype = py.import("numpy")?.call_method1("dtype", (dtype,))?;
    if !dtype.getattr("fields")?.is_none() {
        let size = dtype.getattr("itemsize")?.extract()?;
        return Ok(Kind::Struct(dtype.unbind(), size));
    }
    let name: String = dtype.getattr("name")?.extract()?;
    let is_native: bool = dtype.getattr("isnative")?.extract()?;
    Element::named(&name).filter(|_| is_native).map(Kind::Number).ok_or_else(|| {
        refused(
            py,
            format!("kernels have no elements of type {name}"),
            "Use float32, int32, uint32, or one of the other types that the documentation lists.",
        )
    })
}

#[pymethods]
impl Array {
    /// The extents, the slowest first.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// NumPy's type of the elements.
    #[getter]
    fn dtype<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match &self.kind {
            Kind::Number(element) if element.name == BFLOAT16 => {
                let types = py.import("ml_dtypes").map_err(|_| {
                    refused(
                        py,
                        "NumPy has no bfloat16 of its own".to_owned(),
                        "Install `ml_dtypes`, or read the elements as others: `x.astype(\"float32\").numpy()`.",
                    )
                })?;
                py.import("numpy")?.call_method1("dtype", (types.getattr(BFLOAT16)?,))
            }
            Kind::Number(element) => py.import("numpy")?.call_method1("dtype", (element.name,)),
            Kind::Struct(dtype, _) => Ok(dtype.bind(py).clone()),
        }
    }

    #[getter]
    fn ndim(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements.
    #[getter]
    fn size(&self) -> usize {
        self.elements()
    }

    #[getter]
    fn nbytes(&self) -> usize {
        self.elements() * self.kind.size()
    }

    fn __len__(&self) -> PyResult<usize> {
        self.shape.first().copied().ok_or_else(|| PyTypeError::new_err("an array without axes has no length"))
    }

    /// The contents as a NumPy array, after the work that they need. Ctrl-C ends the wait.
    fn numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let buffer = self.value(py);
        loop {
            let done = py.detach(|| buffer.wait_timeout(BETWEEN_SIGNALS)).map_err(|error| raised(py, &error))?;
            if done {
                break;
            }
            py.check_signals()?;
        }
        let array = py.import("numpy")?.call_method1("empty", (self.shape(py)?, self.dtype(py)?))?;
        let lent = Lent::new("the result", &array, true)?;
        let slice = lent.slice();
        #[allow(unsafe_code)]
        // SAFETY: `lent` lives until this returns, and nobody else knows of the new array.
        py.detach(|| buffer.read_into(unsafe { slice.write() })).map_err(|error| raised(py, &error))?;
        Ok(array)
    }

    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if copy == Some(false) {
            return Err(PyValueError::new_err("the contents of a vyre array are always copied to NumPy"));
        }
        let array = self.numpy(py)?;
        match dtype {
            Some(dtype) => {
                let options = PyDict::new(py);
                options.set_item("copy", false)?;
                array.call_method("astype", (dtype,), Some(&options))
            }
            None => Ok(array),
        }
    }

    /// An array of the same value; neither sees what is written to the other. Nothing is copied until one of them is written.
    fn copy(&self, py: Python<'_>) -> Array {
        Array::new(self.value(py), self.kind.share(py), self.shape.clone())
    }

    /// The same value in another shape.
    #[pyo3(signature = (*shape))]
    fn reshape(&self, py: Python<'_>, shape: &Bound<'_, PyTuple>) -> PyResult<Array> {
        let mut wanted: Vec<isize> = match shape.get_item(0).and_then(|first| first.extract()) {
            Ok(list) if shape.len() == 1 => list,
            _ => shape.extract()?,
        };
        let known: isize = wanted.iter().filter(|extent| **extent >= 0).product();
        if let [open] =
            wanted.iter().enumerate().filter(|(_, extent)| **extent < 0).map(|(at, _)| at).collect::<Vec<_>>()[..]
            && known > 0
        {
            wanted[open] = self.elements() as isize / known;
        }
        let shape: Option<Vec<usize>> = wanted.iter().map(|&extent| usize::try_from(extent).ok()).collect();
        let fits = |shape: &Vec<usize>| {
            shape.iter().try_fold(1usize, |product, &extent| product.checked_mul(extent)) == Some(self.elements())
        };
        let shape = shape.filter(fits).ok_or_else(|| {
            PyValueError::new_err(format!("{} elements can't have the shape {wanted:?}", self.elements()))
        })?;
        Ok(Array::new(self.value(py), self.kind.share(py), shape))
    }

    /// Replaces all elements.
    fn write(&self, py: Python<'_>, values: &Bound<'_, PyAny>) -> PyResult<()> {
        let numpy = py.import("numpy")?;
        let values = numpy.call_method1("asarray", (values, self.dtype(py)?))?;
        let values = numpy.call_method1("broadcast_to", (values, self.shape(py)?))?;
        let lent = Lent::new("the values", &values, false)?;
        let slice = lent.slice();
        #[allow(unsafe_code)]
        // SAFETY: `lent` lives until this returns.
        py.detach(|| self.lock().write(unsafe { slice.read() })).map_err(|error| raised(py, &error))
    }

    /// A part, made where the elements are; a single element as a number. Keys that are more than indices and slices that go forwards are
    /// looked up by NumPy.
    fn __getitem__<'py>(slf: &Bound<'py, Self>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (py, array) = (slf.py(), slf.get());
        let found = py.import("vyre._parts")?.call_method1("resolved", (key, array.shape(py)?))?;
        let parts: Option<(Vec<AxisRange>, Vec<usize>)> = found.extract()?;
        if let Some((ranges, shape)) = parts
            && let Some(part) = array.part(py, &ranges, shape)?
        {
            return match part.shape.is_empty() {
                true => part.numpy(py)?.get_item(PyTuple::empty(py)),
                false => Ok(Bound::new(py, part)?.into_any()),
            };
        }
        let found = array.numpy(py)?.get_item(key)?;
        match found.getattr("ndim")?.extract::<usize>()? {
            0 => Ok(found),
            _ => Ok(Bound::new(py, from_host(py, &found)?)?.into_any()),
        }
    }

    /// Writes a part, as NumPy does.
    fn __setitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>, values: &Bound<'_, PyAny>) -> PyResult<()> {
        let array = self.numpy(py)?;
        array.set_item(key, values)?;
        self.write(py, &array)
    }

    fn tolist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.numpy(py)?.call_method0("tolist")
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let dtype = match &self.kind {
            Kind::Number(element) => element.name.to_owned(),
            Kind::Struct(dtype, _) => dtype.bind(py).str()?.to_string(),
        };
        Ok(format!("vyre.Array(shape={}, dtype={dtype})", self.shape(py)?.repr()?))
    }

    /// Arrays pickle by their contents.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyAny>,))> {
        Ok((py.import("vyre")?.getattr("array")?, (self.numpy(py)?,)))
    }
}
