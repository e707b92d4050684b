//! Memory of Python objects that is lent to a call: NumPy arrays, and whatever else has the buffer protocol.
#![allow(unsafe_code)]

use pyo3::buffer::PyUntypedBuffer;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use crate::element::{BFLOAT16, Element};
use crate::error::refused;

/// An object's memory for as long as this lives. The object keeps it where it is, and keeps its size.
pub(crate) struct Lent {
    buffer: PyUntypedBuffer,
    /// `None` where the elements are structs.
    pub(crate) element: Option<Element>,
    pub(crate) shape: Vec<usize>,
}

impl Lent {
    /// The memory of an object, where it has the buffer protocol and its elements lie one behind another. Others are copied by NumPy
    /// first, unless they are to be written.
    pub(crate) fn new(name: &str, object: &Bound<'_, PyAny>, write: bool) -> PyResult<Lent> {
        let py = object.py();
        if !is_numpys(object) && object.hasattr(intern!(py, "mask"))? && object.hasattr(intern!(py, "filled"))? {
            return Err(refused(
                py,
                format!("`{name}` is an array with a mask, which kernels don't know"),
                "Say what stands for the elements that are masked: `x.filled(0)`.",
            ));
        }
        let mut bits = if has_buffer(object) { None } else { bits_of_bfloat16(object, write)? };
        let mut object = as_buffer(bits.as_ref().unwrap_or(object), name, write)?;
        let has_no_axes = object
            .getattr_opt(intern!(py, "ndim"))?
            .is_some_and(|axes| axes.extract().is_ok_and(|axes: u32| axes == 0));
        if has_no_axes {
            // The same memory with an axis, without which the protocol's wrapper can't be made.
            let array = py.import("numpy")?.call_method1("asarray", (&object,))?;
            object = array.call_method1("reshape", (1,))?;
        }
        let lent = PyUntypedBuffer::get(&object).or_else(|problem| {
            // The protocol has no bfloat16, but its bits are there.
            bits = bits_of_bfloat16(&object, write)?;
            PyUntypedBuffer::get(bits.as_ref().ok_or(problem)?)
        });
        let mut buffer = lent.map_err(|problem| {
            let message = format!("the memory of `{name}` can't be used: {}", problem.value(py));
            refused(py, message, "Convert it first, for example with `x.astype(numpy.float32)`.")
        })?;
        if write && buffer.readonly() {
            return Err(refused(
                py,
                format!("the kernel writes `{name}`, but the array is read-only"),
                "Pass an array that can be written, such as a copy: `x.copy()`.",
            ));
        }
        if !buffer.is_c_contiguous() {
            if write {
                return Err(refused(
                    py,
                    format!("the kernel writes `{name}`, but the elements of the array do not lie one behind another"),
                    "Pass a contiguous array, `numpy.ascontiguousarray(x)`, and copy the result back yourself.",
                ));
            }
            let copy = py.import("numpy")?.call_method1("ascontiguousarray", (bits.as_ref().unwrap_or(&object),))?;
            buffer = PyUntypedBuffer::get(&copy)?;
        }
        let format = buffer.format().to_bytes();
        let element = match bits.is_some() {
            true => Element::named(BFLOAT16),
            false => Element::of_format(format, buffer.item_size()),
        };
        if element.is_none() && !format.starts_with(b"T{") {
            let told = object.getattr("dtype").and_then(|dtype| Ok(dtype.str()?.to_string()));
            let told = told.unwrap_or_else(|_| String::from_utf8_lossy(format).into_owned());
            return Err(refused(
                py,
                format!("kernels have no elements of type {told}, which `{name}` holds"),
                "Convert it first, for example with `x.astype(numpy.float32)`.",
            ));
        }
        let shape = if has_no_axes { Vec::new() } else { buffer.shape().to_vec() };
        Ok(Lent { buffer, element, shape })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.buffer.len_bytes()
    }

    /// The bytes. Whoever asks holds this until the call is over, and nobody else writes them meanwhile: that is what lending an array
    /// to a call means in Python, as in NumPy's own functions that release the interpreter's lock.
    pub(crate) fn slice(&self) -> Slice {
        Slice { at: self.buffer.buf_ptr().cast(), bytes: self.bytes() }
    }
}

/// The same memory without the interpreter's lock.
#[derive(Clone, Copy)]
pub(crate) struct Slice {
    at: *mut u8,
    bytes: usize,
}

// SAFETY: it is memory like any other; see `Lent::slice` for who uses it when.
unsafe impl Send for Slice {}
// SAFETY: as above.
unsafe impl Sync for Slice {}

impl Slice {
    /// # Safety
    /// The [`Lent`] lives longer, and nobody writes the memory meanwhile.
    pub(crate) unsafe fn read<'a>(self) -> &'a [u8] {
        if self.bytes == 0 {
            return &[];
        }
        // SAFETY: the object lends so many bytes there; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts(self.at, self.bytes) }
    }

    /// # Safety
    /// As for `read`, and nobody else uses the memory meanwhile.
    pub(crate) unsafe fn write<'a>(self) -> &'a mut [u8] {
        if self.bytes == 0 {
            return &mut [];
        }
        // SAFETY: as above; the object said that it may be written.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.bytes) }
    }

    pub(crate) fn overlaps(self, other: Slice) -> bool {
        let (a, b) = (self.at.addr(), other.at.addr());
        a < b + other.bytes && b < a + self.bytes
    }
}

/// The elements of an array of bfloat16 as 16 bits each, in the same memory; `None` where it holds something else. Arrays of JAX don't
/// change, and what NumPy makes of one may be a copy.
fn bits_of_bfloat16<'py>(object: &Bound<'py, PyAny>, write: bool) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = object.py();
    let Some(dtype) = object.getattr_opt(intern!(py, "dtype"))? else { return Ok(None) };
    let name = dtype.str()?;
    match name.to_str()? {
        "torch.bfloat16" => {
            let bits = py.import("torch")?.getattr("int16")?;
            object.call_method1("view", (bits,)).map(Some)
        }
        BFLOAT16 if object.hasattr("__array_interface__")? => object.call_method1("view", ("uint16",)).map(Some),
        BFLOAT16 if !write => {
            let array = py.import("numpy")?.call_method1("asarray", (object,))?;
            array.call_method1("view", ("uint16",)).map(Some)
        }
        _ => Ok(None),
    }
}

/// Whether an object has the buffer protocol.
fn has_buffer(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: the object is alive.
    unsafe { pyo3::ffi::PyObject_CheckBuffer(object.as_ptr()) == 1 }
}

/// Whether an object is an array of NumPy and of no class derived from it.
fn is_numpys(object: &Bound<'_, PyAny>) -> bool {
    static ARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = object.py();
    let array = ARRAY.get_or_try_init(py, || Ok::<_, PyErr>(py.import("numpy")?.getattr("ndarray")?.unbind()));
    array.is_ok_and(|array| object.get_type().is(array))
}

/// Whether an object's memory is the host's and reached by the buffer protocol. Arrays of CuPy and JAX have that protocol too, and refuse
/// it where they are on a device.
pub(crate) fn lies_on_host(object: &Bound<'_, PyAny>) -> bool {
    const CPU: i32 = 1;
    if is_numpys(object) {
        return true;
    }
    let device = |ask: Bound<'_, PyAny>| ask.call0().and_then(|device| device.extract::<(i32, i32)>());
    has_buffer(object)
        && match object.getattr(pyo3::intern!(object.py(), "__dlpack_device__")) {
            Ok(ask) => device(ask).map_or(true, |device| device.0 == CPU),
            Err(_) => true,
        }
}

/// An object with the buffer protocol for one that may have another way to its memory.
fn as_buffer<'py>(object: &Bound<'py, PyAny>, name: &str, write: bool) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    if has_buffer(object) {
        return Ok(object.clone());
    }
    let numpy = py.import("numpy")?;
    if object.hasattr("__dlpack__")? {
        const CPU: i32 = 1;
        let device: (i32, i32) = object.call_method0("__dlpack_device__")?.extract()?;
        if device.0 != CPU {
            return Err(refused(
                py,
                format!("`{name}` lives on a device of kind {}, which is neither the host nor CUDA", device.0),
                "Bring it to the host first: `x.cpu()`.",
            ));
        }
        return numpy.call_method1("from_dlpack", (object,));
    }
    // What `__array__` gives may be a copy, and what is written to it is lost then.
    if object.hasattr("__array_interface__")? || (!write && object.hasattr("__array__")?) {
        return numpy.call_method1("asarray", (object,));
    }
    let what = if write { "whose memory can't be written" } else { "which is no array" };
    Err(refused(
        py,
        format!("`{name}` was given {}, {what}", object.get_type().name()?),
        "Pass a NumPy array, an array of vyre, or anything with DLPack.",
    ))
}
