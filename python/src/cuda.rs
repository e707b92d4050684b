//! CUDA memory of other libraries, which a launch works in: torch, CuPy, Numba, JAX, and whatever else has `__cuda_array_interface__` or
//! DLPack. Work of ours comes after what is on their stream, and what they put there later comes after ours.
#![allow(unsafe_code)]

use std::ffi::CStr;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use vyre::dlpack::{DL_CUDA, DLManagedTensor, DLTensor};
use vyre::{Buffer, CudaMemory, Engine, Error};

use crate::element::{BFLOAT16, Element};
use crate::error::refused;

/// CUDA's name of the legacy default stream.
const LEGACY: usize = 1;

/// Memory of somebody else on a CUDA device.
pub(crate) struct Foreign {
    pub(crate) element: Element,
    pub(crate) shape: Vec<usize>,
    /// The device's name here.
    pub(crate) device: String,
    pointer: u64,
    bytes: usize,
    /// The producer's stream; `None` where it says that nothing has to be waited for.
    stream: Option<usize>,
    /// Keeps the memory.
    owner: Py<PyAny>,
}

impl Foreign {
    /// The device memory of an object; `None` where it has none.
    pub(crate) fn of(name: &str, object: &Bound<'_, PyAny>, write: bool) -> PyResult<Option<Foreign>> {
        let py = object.py();
        let module = object.get_type().getattr("__module__")?.extract::<String>().unwrap_or_default();
        let library = module.split('.').next().unwrap_or_default();
        if write && matches!(library, "jax" | "jaxlib") {
            return Err(refused(
                py,
                format!("the kernel writes `{name}`, but arrays of JAX don't change"),
                "Leave the result out, or pass an array of vyre.",
            ));
        }
        if library == "torch" {
            return Foreign::of_torch(name, object);
        }
        let interface = match object.getattr("__cuda_array_interface__") {
            Ok(interface) => Some(interface),
            Err(problem) if problem.is_instance_of::<pyo3::exceptions::PyAttributeError>(py) => None,
            Err(problem) => {
                let message = format!("the memory of `{name}` can't be used: {}", problem.value(py));
                return Err(refused(py, message, "Pass a plain tensor: `x.detach()`."));
            }
        };
        let foreign = match interface {
            Some(interface) => Some(Foreign::of_interface(name, object, &interface, library, write)?),
            None => Foreign::of_dlpack(name, object)?,
        };
        Ok(foreign)
    }

    /// A tensor of torch, asked by its own methods, which are quicker than the interface.
    fn of_torch(name: &str, object: &Bound<'_, PyAny>) -> PyResult<Option<Foreign>> {
        let py = object.py();
        if !object.getattr(intern!(py, "is_cuda"))?.extract::<bool>()? {
            return Ok(None);
        }
        if object.getattr(intern!(py, "requires_grad"))?.extract()? {
            return Err(refused(
                py,
                format!("`{name}` requires grad, and what a kernel does has none"),
                "Pass `x.detach()`.",
            ));
        }
        if !object.call_method0(intern!(py, "is_contiguous"))?.extract::<bool>()? {
            return Err(not_contiguous(py, name));
        }
        let dtype = object.getattr(intern!(py, "dtype"))?.str()?;
        let dtype = dtype.to_str()?;
        let element = dtype.strip_prefix("torch.").and_then(Element::named);
        let element = element.ok_or_else(|| no_elements(py, name, dtype))?;
        let shape: Vec<usize> = object.getattr(intern!(py, "shape"))?.extract()?;
        let pointer: u64 = object.call_method0(intern!(py, "data_ptr"))?.extract()?;
        let device: i32 = object.call_method0(intern!(py, "get_device"))?.extract()?;
        let torch = py.import(intern!(py, "torch"))?;
        let core = torch.getattr(intern!(py, "_C"))?;
        let stream = match core.getattr_opt(intern!(py, "_cuda_getCurrentRawStream"))? {
            Some(current) => current.call1((device,))?.extract()?,
            None => {
                let cuda = torch.getattr(intern!(py, "cuda"))?;
                cuda.call_method1("current_stream", (device,))?.getattr("cuda_stream")?.extract()?
            }
        };
        Foreign::new(py, name, element, shape, device, pointer, Some(stream), object.clone().unbind()).map(Some)
    }

    fn of_interface(
        name: &str,
        object: &Bound<'_, PyAny>,
        interface: &Bound<'_, PyAny>,
        library: &str,
        write: bool,
    ) -> PyResult<Foreign> {
        let py = object.py();
        let interface = interface.cast::<PyDict>().map_err(|_| broken(py, name, "it is no dictionary"))?;
        let item =
            |key: &str| interface.get_item(key)?.ok_or_else(|| broken(py, name, &format!("there is no `{key}`")));
        let shape: Vec<usize> = item("shape")?.extract()?;
        let typestr: String = item("typestr")?.extract()?;
        let (pointer, is_read_only): (u64, bool) = item("data")?.extract()?;
        let element = element_of(&typestr).ok_or_else(|| no_elements(py, name, &typestr))?;
        if write && is_read_only {
            return Err(refused(
                py,
                format!("the kernel writes `{name}`, but the array is read-only"),
                "Pass an array that can be written.",
            ));
        }
        if let Some(strides) = interface.get_item("strides")?.filter(|strides| !strides.is_none()) {
            let strides: Vec<i64> = strides.extract()?;
            check_strides(py, name, &shape, &strides, element.size as i64)?;
        }
        let stream = match interface.get_item("stream")? {
            Some(stream) if stream.is_none() => None,
            Some(stream) => Some(stream.extract()?),
            None => {
                // JAX has streams of its own, and says when an array is there.
                if object.hasattr("block_until_ready")? {
                    object.call_method0("block_until_ready")?;
                }
                Some(LEGACY)
            }
        };
        let device = match library {
            // The interface does not tell; the object does.
            "cupy" => object.getattr("device")?.getattr("id")?.extract()?,
            _ => dlpack_device(object)?.map_or(0, |(_, number)| number),
        };
        Foreign::new(py, name, element, shape, device, pointer, stream, object.clone().unbind())
    }

    fn of_dlpack(name: &str, object: &Bound<'_, PyAny>) -> PyResult<Option<Foreign>> {
        let py = object.py();
        let Some((DL_CUDA, device)) = dlpack_device(object)? else { return Ok(None) };
        // The producer lets this stream wait for its work.
        let options = PyDict::new(py);
        options.set_item("stream", LEGACY)?;
        let capsule = object.call_method("__dlpack__", (), Some(&options))?;
        let capsule = capsule.cast::<PyCapsule>().map_err(|_| broken(py, name, "it gives no capsule"))?;
        const NAME: &CStr = c"dltensor";
        let tensor = capsule
            .pointer_checked(Some(NAME))
            .map_err(|_| broken(py, name, "its capsule is not DLPack's"))?
            .cast::<DLManagedTensor>();
        // SAFETY: a capsule of this name holds such a tensor for as long as it lives and nobody takes it; it is kept as the owner, and tells
        // the producer when it goes.
        let tensor: &DLTensor = unsafe { &tensor.as_ref().dl_tensor };
        let element = dlpack_element(tensor).ok_or_else(|| no_elements(py, name, &format!("{:?}", tensor.dtype)))?;
        let axes = usize::try_from(tensor.ndim).map_err(|_| broken(py, name, "its shape is none"))?;
        // SAFETY: there is a number for each axis, where there are any.
        let list = |at: *mut i64| unsafe { std::slice::from_raw_parts(at, axes) };
        let extents: &[i64] = if axes == 0 { &[] } else { list(tensor.shape) };
        let shape = extents.iter().map(|&extent| usize::try_from(extent)).collect::<Result<Vec<_>, _>>();
        let shape = shape.map_err(|_| broken(py, name, "its shape is none"))?;
        if axes > 0 && !tensor.strides.is_null() {
            check_strides(py, name, &shape, list(tensor.strides), 1)?;
        }
        let pointer = tensor.data.addr() as u64 + tensor.byte_offset;
        let owner = capsule.clone().into_any().unbind();
        Foreign::new(py, name, element, shape, device, pointer, Some(LEGACY), owner).map(Some)
    }

    #[allow(clippy::too_many_arguments, reason = "they are the fields")]
    fn new(
        py: Python<'_>,
        name: &str,
        element: Element,
        shape: Vec<usize>,
        device: i32,
        pointer: u64,
        stream: Option<usize>,
        owner: Py<PyAny>,
    ) -> PyResult<Foreign> {
        let bytes = shape.iter().try_fold(element.size, |bytes, extent| bytes.checked_mul(*extent));
        let bytes = bytes.ok_or_else(|| broken(py, name, "it has more bytes than can be counted"))?;
        if bytes > 0 && pointer == 0 {
            return Err(broken(py, name, "its memory was given back"));
        }
        if !pointer.is_multiple_of(ALIGNMENT) {
            return Err(refused(
                py,
                format!("`{name}` begins within a block of {ALIGNMENT} bytes, where kernels can't bind it"),
                "Pass a copy, as `x.clone()` or `x.copy()` makes it.",
            ));
        }
        let device = if device == 0 { "cuda".to_owned() } else { format!("cuda:{device}") };
        Ok(Foreign { element, shape, device, pointer, bytes, stream, owner })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn overlaps(&self, other: &Foreign) -> bool {
        let end = |one: &Foreign| one.pointer.saturating_add(one.bytes as u64);
        self.device == other.device && self.pointer < end(other) && other.pointer < end(self)
    }

    /// It comes from the same stream as another one.
    pub(crate) fn is_beside(&self, other: &Foreign) -> bool {
        self.device == other.device && self.stream == other.stream && other.bytes > 0
    }

    /// The memory as a buffer of an engine, without a copy. With `follows` it goes into one launch with another of the same stream, which
    /// waits for the stream and lets the stream wait, so that this one need not.
    pub(crate) fn wrap(&self, py: Python<'_>, engine: &Engine, follows: bool) -> Result<Wrapped, Error> {
        if self.bytes == 0 {
            return Ok(Wrapped { buffer: engine.buffer(0), device: None, stream: LEGACY });
        }
        let stream = self.stream.filter(|_| !follows);
        let memory = CudaMemory { pointer: self.pointer, stream, owner: Box::new(self.owner.clone_ref(py)) };
        let (device, bytes) = (self.device.clone(), self.bytes);
        // SAFETY: the object says that so many bytes are there and keeps them while it is held; who lends a tensor to a call does not use it
        // meanwhile but on its stream. The stream is the producer's current one on its primary context, as its library says.
        let array = py.detach(|| unsafe { engine.wrap_cuda::<u8>(&device, memory, bytes) })?;
        let device = Some(device).filter(|_| !follows);
        Ok(Wrapped { buffer: array.into_buffer(), device, stream: self.stream.unwrap_or(LEGACY) })
    }
}

/// What kernels are compiled for: pointers are multiples of this.
const ALIGNMENT: u64 = 16;

/// Foreign memory as a buffer.
pub(crate) struct Wrapped {
    pub(crate) buffer: Buffer,
    /// Where it is given back; `None` where that is done with another one.
    device: Option<String>,
    stream: usize,
}

impl Wrapped {
    /// A copy of its own, made on the device; the memory is given back.
    pub(crate) fn into_copy(self) -> Result<Buffer, Error> {
        let copy = self.buffer.clone().into_array::<u8>()?.copied()?.into_buffer();
        self.give_back()?;
        Ok(copy)
    }

    /// Gives the memory back: what was computed is in it, and what comes next on the producer's stream waits for our work.
    pub(crate) fn give_back(self) -> Result<(), Error> {
        let Some(device) = self.device else { return Ok(()) };
        let mut array = self.buffer.into_array::<u8>()?;
        // SAFETY: the stream is the producer's own.
        drop(unsafe { array.cuda_mut(&device, self.stream)? });
        Ok(())
    }
}

fn dlpack_device(object: &Bound<'_, PyAny>) -> PyResult<Option<(i32, i32)>> {
    if !object.hasattr("__dlpack_device__")? {
        return Ok(None);
    }
    // Libraries give their own enumerations, which are numbers.
    let (kind, number): (Bound<'_, PyAny>, Bound<'_, PyAny>) = object.call_method0("__dlpack_device__")?.extract()?;
    let number_of = |one: Bound<'_, PyAny>| one.call_method0("__index__").or_else(|_| one.getattr("value"))?.extract();
    Ok(Some((number_of(kind)?, number_of(number)?)))
}

fn check_strides(py: Python<'_>, name: &str, shape: &[usize], strides: &[i64], size: i64) -> PyResult<()> {
    let mut expected = size;
    for (&extent, &stride) in shape.iter().zip(strides).rev() {
        if extent > 1 && stride != expected && !shape.contains(&0) {
            return Err(not_contiguous(py, name));
        }
        expected = expected.saturating_mul(extent as i64);
    }
    Ok(())
}

fn not_contiguous(py: Python<'_>, name: &str) -> PyErr {
    refused(
        py,
        format!("the elements of `{name}` do not lie one behind another, and it is on a device"),
        "Pass a contiguous one: `x.contiguous()`, or `cupy.ascontiguousarray(x)`.",
    )
}

/// The type of a `typestr`, such as `<f4`.
fn element_of(typestr: &str) -> Option<Element> {
    let name = match typestr.strip_prefix(['<', '|', '='])? {
        "f4" => "float32",
        "f8" => "float64",
        "f2" => "float16",
        "u1" => "uint8",
        "u2" => "uint16",
        "u4" => "uint32",
        "u8" => "uint64",
        "i1" => "int8",
        "i2" => "int16",
        "i4" => "int32",
        "i8" => "int64",
        _ => return None,
    };
    Element::named(name)
}

fn dlpack_element(tensor: &DLTensor) -> Option<Element> {
    if (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes) == (4, 16, 1) {
        return Element::named(BFLOAT16);
    }
    let letter = match tensor.dtype.code {
        0 => 'i',
        1 => 'u',
        2 => 'f',
        _ => return None,
    };
    (tensor.dtype.lanes == 1).then(|| element_of(&format!("<{letter}{}", tensor.dtype.bits / 8))).flatten()
}

fn no_elements(py: Python<'_>, name: &str, told: &str) -> PyErr {
    let message = format!("kernels have no elements of type {told}, which `{name}` holds");
    refused(py, message, "Convert it first, for example to float32.")
}

fn broken(py: Python<'_>, name: &str, why: &str) -> PyErr {
    let message = format!("what `{name}` says of its memory on the device can't be used: {why}");
    refused(py, message, "Pass a NumPy array, an array of vyre, or a tensor of torch, CuPy or JAX.")
}
