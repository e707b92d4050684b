//! Kernels and their calls.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use vyre::ir::{BufferKind, Math, TypeDef};
use vyre::launch::{BufferShape, LaunchPlan, shape_of};
use vyre::specialization::SpecValue;
use vyre::{Buffer, DataType, DispatchConfig, Engine, Go, ImportOptions, Program};

use crate::array::{Array, Kind, kind_of};
use crate::cuda::{Foreign, Wrapped};
use crate::element::Element;
use crate::error::{raised, refused};
use crate::launch::{Launch, limit};
use crate::lent::{Lent, Slice, lies_on_host};

/// One buffer of a kernel, in binding order.
struct Slot {
    name: String,
    kind: BufferKind,
    ty: DataType,
    shape: BufferShape,
    is_struct: bool,
    /// How many axes its arrays have, where a function says so.
    axes: Option<usize>,
}

/// A compute kernel: a program, the values of its constants, and how it is to be launched. It does not change; methods give new ones.
#[pyclass(frozen, module = "vyre", name = "Kernel", weakref)]
pub(crate) struct Kernel {
    source: String,
    entry: Option<String>,
    file: Option<String>,
    program: Program,
    slots: Vec<Slot>,
    config: DispatchConfig,
    device: Option<String>,
    grid: Option<[u32; 3]>,
    /// The kernel on the engine of this process.
    ready: Mutex<Option<(u32, Engine, vyre::Kernel)>>,
}

/// What is bound to a buffer.
enum Given {
    /// A value of an array, as it is now.
    Value(Buffer),
    /// An array that is written.
    Written(Py<Array>),
    /// Memory of the host for the time of the call.
    Lent(Lent, bool),
    /// Memory of another library on a CUDA device, and whether it is written.
    Foreign(Foreign, bool),
    /// The bytes of a number or a struct.
    Bytes(Vec<u8>),
    /// A result that the call makes; its size is known when all others are.
    Open,
}

impl Kernel {
    fn with(&self, change: impl FnOnce(&mut Kernel) -> PyResult<()>) -> PyResult<Kernel> {
        let slots = self.slots.iter().map(|slot| Slot {
            name: slot.name.clone(),
            kind: slot.kind,
            ty: slot.ty.clone(),
            shape: slot.shape,
            is_struct: slot.is_struct,
            axes: slot.axes,
        });
        let mut kernel = Kernel {
            source: self.source.clone(),
            entry: self.entry.clone(),
            file: self.file.clone(),
            program: self.program.clone(),
            slots: slots.collect(),
            config: self.config.clone(),
            device: self.device.clone(),
            grid: self.grid,
            ready: Mutex::new(None),
        };
        change(&mut kernel)?;
        Ok(kernel)
    }

    /// The kernel on the engine of this process.
    fn ready(&self, py: Python<'_>) -> PyResult<(Engine, vyre::Kernel)> {
        let process = crate::process::number();
        let mut ready = self.ready.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((owner, engine, kernel)) = &*ready
            && *owner == process
        {
            return Ok((engine.clone(), kernel.clone()));
        }
        let engine = crate::engine(py)?;
        let made = engine.kernel_with(&self.program, &self.config).and_then(|kernel| match &self.device {
            Some(device) => kernel.on(device),
            None => Ok(kernel),
        });
        let kernel = made.map_err(|error| raised(py, &error))?;
        std::mem::forget(ready.replace((process, engine.clone(), kernel.clone())));
        Ok((engine, kernel))
    }

    fn set_constant(&self, config: &mut DispatchConfig, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let known = self.program.constants().iter().find(|constant| constant.name.as_str() == name);
        let Some(constant) = known else {
            let buffers: Vec<&str> = self.slots.iter().map(|slot| slot.name.as_str()).collect();
            let constants: Vec<&str> = self.program.constants().iter().map(|constant| constant.name.as_str()).collect();
            let list = |names: Vec<&str>| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(PyTypeError::new_err(format!(
                "`{name}` is neither a buffer nor a constant of `{}`; buffers: {}; constants: {}",
                self.program.name(),
                list(buffers),
                list(constants)
            )));
        };
        let value = match constant.default.data_type() {
            DataType::Bool => SpecValue::Bool(value.extract()?),
            DataType::U32 => SpecValue::U32(value.extract()?),
            DataType::I32 => SpecValue::I32(value.extract()?),
            _ => SpecValue::F32(value.extract()?),
        };
        config.specialization.insert(name, value);
        Ok(())
    }

    /// What an argument is for a buffer.
    fn given(&self, slot: &Slot, object: &Bound<'_, PyAny>, owned: bool) -> PyResult<Given> {
        let py = object.py();
        let writes = slot.kind.is_result();
        if let Ok(array) = object.cast::<Array>() {
            let held = array.get();
            self.check(py, slot, &held.kind, &held.shape)?;
            return Ok(match writes {
                true => Given::Written(array.clone().unbind()),
                false => Given::Value(held.value(py)),
            });
        }
        if !writes && let Some(bytes) = self.number(slot, object)? {
            return Ok(Given::Bytes(bytes));
        }
        if !lies_on_host(object)
            && let Some(foreign) = Foreign::of(&slot.name, object, writes)?
        {
            self.check(py, slot, &Kind::Number(foreign.element.clone()), &foreign.shape)?;
            return Ok(Given::Foreign(foreign, writes));
        }
        // An expression, whose value is computed now.
        if !writes && object.hasattr("__vyre_array__")? {
            return self.given(slot, &object.call_method0("__vyre_array__")?, owned);
        }
        if owned && writes {
            return Err(refused(
                py,
                format!("`{}` is written after the call has returned, so it can't be memory of the host", slot.name),
                "Pass an array of vyre, or call the kernel instead of launching it.",
            ));
        }
        let lent = Lent::new(&slot.name, object, writes)?;
        let kind = match &lent.element {
            Some(element) => Kind::Number(element.clone()),
            None => kind_of(&object.getattr("dtype")?)?,
        };
        self.check(py, slot, &kind, &lent.shape)?;
        Ok(Given::Lent(lent, writes))
    }

    /// Refuses elements that are not those of a buffer.
    fn check(&self, py: Python<'_>, slot: &Slot, kind: &Kind, shape: &[usize]) -> PyResult<()> {
        if let Some(axes) = slot.axes
            && axes != shape.len()
        {
            let shape = PyTuple::new(py, shape)?.repr()?;
            let message = format!("`{}` has {axes} axes, and an array of shape {shape} was given", slot.name);
            return Err(PyTypeError::new_err(message));
        }
        match kind {
            Kind::Number(element) if slot.is_struct => Err(refused(
                py,
                format!("buffer `{}` holds structs, but an array of {} was given", slot.name, element.name),
                &format!("Make an array with `dtype=kernel.dtype({:?})`.", slot.name),
            )),
            Kind::Number(element) => {
                let is_same = match slot.ty.as_vector() {
                    Some((scalar, _)) => element.ty == scalar,
                    None => element.ty == slot.ty,
                };
                if !is_same {
                    let scalar = slot.ty.as_vector().map_or_else(|| slot.ty.clone(), |(scalar, _)| scalar);
                    let wanted =
                        Element::of(&scalar).map_or_else(|| scalar.to_string(), |element| element.name.to_owned());
                    return Err(refused(
                        py,
                        format!("buffer `{}` holds {wanted}, but an array of {} was given", slot.name, element.name),
                        &format!("Convert it first: `x.astype(numpy.{wanted})`."),
                    ));
                }
                if let Some((_, 3)) = slot.ty.as_vector()
                    && shape.last() != Some(&4)
                {
                    return Err(refused(
                        py,
                        format!("buffer `{}` holds vectors of three, which take the room of four", slot.name),
                        "Pass an array whose last axis is 4; the fourth number means nothing.",
                    ));
                }
                Ok(())
            }
            Kind::Struct(dtype, _) => {
                if slot.is_struct {
                    let wanted = self.dtype_of(py, slot)?;
                    if dtype.bind(py).eq(&wanted)? {
                        return Ok(());
                    }
                }
                Err(refused(
                    py,
                    format!(
                        "buffer `{}` holds {}, but an array of {} was given",
                        slot.name,
                        slot.ty,
                        dtype.bind(py).str()?
                    ),
                    &format!(
                        "Make the array with `dtype=kernel.dtype({:?})`, which has the kernel's layout.",
                        slot.name
                    ),
                ))
            }
        }
    }

    /// A number, or the members of a struct, for a buffer that holds one.
    fn number(&self, slot: &Slot, object: &Bound<'_, PyAny>) -> PyResult<Option<Vec<u8>>> {
        let py = object.py();
        let is_members = object.is_instance_of::<PyDict>() || object.is_instance_of::<PyTuple>();
        if slot.is_struct && is_members {
            let dtype = self.dtype_of(py, slot)?;
            let bytes = py.import("vyre._layout")?.call_method1("pack", (&slot.name, dtype, object))?;
            return Ok(Some(bytes.extract()?));
        }
        if let Ok(bytes) = object.cast::<PyBytes>() {
            let (wanted, given) = (self.element_bytes(slot), bytes.as_bytes().len());
            if wanted != Some(given) {
                let wanted = wanted.map_or_else(|| "no fixed number of".to_owned(), |wanted| wanted.to_string());
                let message = format!("`{}` has {wanted} bytes, but {given} were given", slot.name);
                return Err(refused(py, message, "Pack the value as `kernel.dtype(name)` says."));
            }
            return Ok(Some(bytes.as_bytes().to_vec()));
        }
        if slot.is_struct
            || !(object.is_instance_of::<pyo3::types::PyInt>() || object.is_instance_of::<pyo3::types::PyFloat>())
        {
            return Ok(None);
        }
        let Some(element) = Element::of(&slot.ty) else { return Ok(None) };
        let number = py.import("numpy")?.getattr(element.name)?.call1((object,))?;
        Ok(Some(number.call_method0("tobytes")?.extract()?))
    }

    /// Bytes of one of a buffer's elements, where they have a fixed size.
    fn element_bytes(&self, slot: &Slot) -> Option<usize> {
        match &slot.ty {
            DataType::Handle(id) => match self.program.types().get(id.0 as usize)? {
                TypeDef::Struct { size, .. } => Some(*size as usize),
                TypeDef::Array { .. } => None,
            },
            other => Some(other.bits()? as usize / 8),
        }
    }

    /// NumPy's type of a buffer's elements.
    fn dtype_of<'py>(&self, py: Python<'py>, slot: &Slot) -> PyResult<Bound<'py, PyAny>> {
        dtype(py, self.program.types(), &slot.ty)
    }

    /// Arguments by slot.
    fn arguments<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
        owned: bool,
    ) -> PyResult<(Vec<Given>, Option<Kernel>)> {
        let mut given: Vec<Option<Given>> = self.slots.iter().map(|_| None).collect();
        if args.len() > self.slots.len() {
            let message =
                format!("`{}` has {} buffers, but {} were given", self.program.name(), self.slots.len(), args.len());
            return Err(PyTypeError::new_err(message));
        }
        for (at, object) in args.iter().enumerate().filter(|(_, object)| !object.is_none()) {
            given[at] = Some(self.given(&self.slots[at], &object, owned)?);
        }
        let mut config: Option<DispatchConfig> = None;
        for (name, object) in named.into_iter().flatten() {
            let name: String = name.extract()?;
            match self.slots.iter().position(|slot| slot.name == name) {
                Some(at) if given[at].is_some() => {
                    return Err(PyTypeError::new_err(format!("`{name}` was given twice")));
                }
                Some(at) => given[at] = Some(self.given(&self.slots[at], &object, owned)?),
                None => {
                    let config = config.get_or_insert_with(|| self.config.clone());
                    self.set_constant(config, &name, &object)?;
                }
            }
        }
        let mut all = Vec::new();
        for (slot, given) in self.slots.iter().zip(given) {
            all.push(match given {
                Some(given) => given,
                None if slot.kind == BufferKind::Output => Given::Open,
                None => {
                    let message = format!("`{}` needs `{}`, which was not given", self.program.name(), slot.name);
                    return Err(PyTypeError::new_err(message));
                }
            });
        }
        let other = match config {
            Some(config) => Some(self.with(|kernel| {
                kernel.config = config;
                Ok(())
            })?),
            None => None,
        };
        Ok((all, other))
    }

    /// The sizes of a launch on these arguments; a result that was left out has the size that the kernel says for the others.
    fn plan(&self, py: Python<'_>, given: &[Given]) -> PyResult<LaunchPlan> {
        let valid = self.program.validate().map_err(|problems| raised(py, &vyre::Error::from(problems.to_vec())))?;
        let mut config = self.config.clone();
        config.grid_override = self.grid.or(config.grid_override);
        // The contents of lent inputs are at hand; a kernel may compare its ids with a number in one.
        let (mut sizes, mut contents) = (Vec::new(), Vec::new());
        for (slot, given) in self.slots.iter().zip(given) {
            let bytes = match given {
                Given::Value(buffer) => buffer.bytes(),
                Given::Written(array) => array.get().lock().bytes(),
                Given::Lent(lent, _) => lent.bytes() as u64,
                Given::Foreign(foreign, _) => foreign.bytes() as u64,
                Given::Bytes(bytes) => bytes.len() as u64,
                Given::Open => continue,
            };
            if slot.kind.is_input() {
                sizes.push(bytes);
                contents.push(match given {
                    #[allow(unsafe_code)]
                    // SAFETY: the memory is lent until the call is over.
                    Given::Lent(lent, _) => Some(unsafe { lent.slice().read() }),
                    Given::Bytes(bytes) => Some(bytes.as_slice()),
                    _ => None,
                });
            } else {
                config.output_elements.insert(slot.name.clone(), slot.shape.elements_in(bytes));
            }
        }
        vyre::plan_with(&valid, &sizes, &contents, &config).map_err(|problem| raised(py, &problem.into()))
    }

    /// Makes the results that were left out: as large as the kernel says for the inputs.
    fn open_results(&self, py: Python<'_>, engine: &Engine, given: &mut [Given]) -> PyResult<Vec<Py<Array>>> {
        if !given.iter().any(|given| matches!(given, Given::Open)) {
            return Ok(Vec::new());
        }
        let plan = self.plan(py, given)?;
        let mut made = Vec::new();
        for ((slot, given), &bytes) in self.slots.iter().zip(given.iter_mut()).zip(&plan.buffer_bytes) {
            if matches!(given, Given::Open) {
                let kind = kind_of(&element_dtype(py, self.program.types(), &slot.ty)?)?;
                let lanes = match slot.ty.as_vector() {
                    Some((_, 3)) => 4,
                    Some((_, lanes)) => lanes as usize,
                    None => 1,
                };
                let elements = bytes as usize / kind.size().max(1) / lanes;
                let shape = if lanes > 1 { vec![elements, lanes] } else { vec![elements] };
                let array = Py::new(py, Array::new(engine.buffer(bytes), kind, shape))?;
                made.push(array.clone_ref(py));
                *given = Given::Written(array);
            }
        }
        Ok(made)
    }

    /// One launch; the results that the call made.
    fn start<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
        owned: bool,
    ) -> PyResult<(vyre::Launch, Vec<Py<Array>>)> {
        let py = args.py();
        let (mut given, other) = self.arguments(args, named, owned)?;
        let this = other.as_ref().unwrap_or(self);
        let (engine, kernel) = this.ready(py)?;
        let made = this.open_results(py, &engine, &mut given)?;
        check_overlaps(py, &this.slots, &given)?;
        let mut foreign: Vec<Wrapped> = Vec::new();
        // Where a tensor of another library is bound, the work is done where it lies.
        let mut device: Option<&str> = None;
        let memories =
            || given.iter().filter_map(|given| if let Given::Foreign(memory, _) = given { Some(memory) } else { None });
        for (at, memory) in memories().enumerate() {
            let follows = this.device.is_none() && memories().take(at).any(|before| memory.is_beside(before));
            foreign.push(memory.wrap(py, &engine, follows).map_err(|error| raised(py, &error))?);
            device = device.or(Some(&memory.device)).filter(|_| this.device.is_none());
        }
        let parts: Vec<(&str, Part<'_>)> = this
            .slots
            .iter()
            .zip(&given)
            .filter_map(|(slot, given)| Some((slot.name.as_str(), Part::of(given)?)))
            .collect();
        let interrupted: Interrupted = Arc::default();
        let (grid, seen) = (this.grid, interrupted.clone());
        let launched = py.detach(|| {
            let launched = launch(&kernel, grid, device, &parts, &mut foreign, owned, seen);
            // Whatever became of it, what comes next on their streams comes after it.
            let given_back = foreign.into_iter().map(Wrapped::give_back).fold(Ok(()), Result::and);
            launched.and_then(|launch| given_back.map(|()| launch))
        });
        if let Some(raised) = interrupted.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take() {
            return Err(raised);
        }
        Ok((launched.map_err(|error| raised(py, &error))?, made))
    }
}

/// What Ctrl-C raised while a call waited.
type Interrupted = Arc<Mutex<Option<PyErr>>>;

/// What is bound, without the interpreter's lock: what is lent, and handles of arrays.
enum Part<'a> {
    Value(&'a Buffer),
    Written(&'a Array),
    Read(Slice),
    Write(Slice),
    /// The next one of another library, and whether it is written.
    Foreign(bool),
    Bytes(&'a [u8]),
}

impl<'a> Part<'a> {
    fn of(given: &'a Given) -> Option<Part<'a>> {
        Some(match given {
            Given::Value(buffer) => Part::Value(buffer),
            Given::Written(array) => Part::Written(array.get()),
            Given::Lent(lent, true) => Part::Write(lent.slice()),
            Given::Lent(lent, false) => Part::Read(lent.slice()),
            Given::Foreign(_, writes) => Part::Foreign(*writes),
            Given::Bytes(bytes) => Part::Bytes(bytes),
            Given::Open => return None,
        })
    }
}

/// Binds and launches. What the parts were made of lives until the call is over.
fn launch(
    kernel: &vyre::Kernel,
    grid: Option<[u32; 3]>,
    device: Option<&str>,
    parts: &[(&str, Part<'_>)],
    foreign: &mut [Wrapped],
    owned: bool,
    interrupted: Interrupted,
) -> Result<vyre::Launch, vyre::Error> {
    // Everybody takes the arrays of a launch in the same order, so that no two wait for each other.
    let mut written: Vec<&Array> = parts
        .iter()
        .filter_map(|(_, part)| if let Part::Written(array) = part { Some(*array) } else { None })
        .collect();
    written.sort_by_key(|array| std::ptr::from_ref(*array).addr());
    let mut guards: Vec<(&Array, _)> = written.into_iter().map(|array| (array, array.lock())).collect();
    let mut locked: Vec<(&Array, Option<&mut Buffer>)> =
        guards.iter_mut().map(|(array, guard)| (*array, Some(&mut **guard))).collect();
    let mut foreign = foreign.iter_mut();
    let mut call = kernel.call();
    // Only who has a handle can cancel; code that can be stopped is slower, and a device takes such launches one by one.
    if owned {
        call = call.cancellable();
    }
    // A call on memory of the host waits for its work, and Ctrl-C ends that.
    if parts.iter().any(|(_, part)| matches!(part, Part::Read(_) | Part::Write(_))) {
        call = call.stop_when(move || {
            let raised = Python::attach(|py| py.check_signals().err());
            let is_raised = raised.is_some();
            *interrupted.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = raised;
            is_raised
        });
    }
    if let Some(grid) = grid {
        call = call.grid(grid);
    }
    if let Some(device) = device {
        call = call.on(device);
    }
    for (name, part) in parts {
        call = match part {
            Part::Value(buffer) => call.bind(name, *buffer),
            Part::Written(array) => {
                let found = locked.iter_mut().find(|(known, _)| std::ptr::eq(*known, *array));
                match found.and_then(|(_, buffer)| buffer.take()) {
                    Some(buffer) => call.bind(name, buffer),
                    None => call,
                }
            }
            #[allow(unsafe_code)]
            // SAFETY: a launch with memory of the caller returns when the work is over, and what lends it lives longer.
            Part::Read(slice) => call.bytes(name, unsafe { slice.read() }),
            #[allow(unsafe_code)]
            // SAFETY: as above; no two of them overlap.
            Part::Write(slice) => call.bytes_mut(name, unsafe { slice.write() }),
            Part::Foreign(writes) => match (foreign.next(), writes) {
                (Some(memory), true) => call.bind(name, &mut memory.buffer),
                (Some(memory), false) => call.bind(name, &memory.buffer),
                (None, _) => call,
            },
            Part::Bytes(bytes) => call.value_bytes(name, bytes),
        };
    }
    call.launch()
}

/// Refuses memory that is written and bound a second time.
fn check_overlaps(py: Python<'_>, slots: &[Slot], given: &[Given]) -> PyResult<()> {
    for (at, one) in given.iter().enumerate() {
        for (other_at, other) in given.iter().enumerate().skip(at + 1) {
            let clash = match (one, other) {
                (Given::Written(a), Given::Written(b)) => a.is(b),
                (Given::Lent(a, a_written), Given::Lent(b, b_written)) => {
                    (*a_written || *b_written) && a.slice().overlaps(b.slice())
                }
                (Given::Foreign(a, a_written), Given::Foreign(b, b_written)) => {
                    (*a_written || *b_written) && a.overlaps(b)
                }
                _ => false,
            };
            if clash {
                return Err(refused(
                    py,
                    format!(
                        "`{}` and `{}` are the same memory, and the kernel writes it",
                        slots[at].name, slots[other_at].name
                    ),
                    "Give each buffer memory of its own.",
                ));
            }
        }
    }
    Ok(())
}

/// NumPy's type of a number, or of a struct with its layout.
fn dtype<'py>(py: Python<'py>, types: &[TypeDef], ty: &DataType) -> PyResult<Bound<'py, PyAny>> {
    let numpy = py.import("numpy")?;
    if let Some((element, lanes)) = ty.as_vector() {
        return numpy.call_method1("dtype", ((dtype(py, types, &element)?, (lanes,)),));
    }
    let DataType::Handle(id) = ty else {
        let name = Element::of(ty).map_or_else(|| ty.to_string(), |element| element.name.to_owned());
        return numpy.call_method1("dtype", (name,));
    };
    match types.get(id.0 as usize) {
        Some(TypeDef::Struct { members, size, .. }) => {
            let (names, formats, offsets) = (PyList::empty(py), PyList::empty(py), PyList::empty(py));
            for member in members {
                names.append(member.name.as_str())?;
                formats.append(dtype(py, types, &member.ty)?)?;
                offsets.append(member.offset)?;
            }
            let all = PyDict::new(py);
            all.set_item("names", names)?;
            all.set_item("formats", formats)?;
            all.set_item("offsets", offsets)?;
            all.set_item("itemsize", *size)?;
            numpy.call_method1("dtype", (all,))
        }
        Some(TypeDef::Array { element, count: vyre::ir::Count::Fixed(count), .. }) => {
            numpy.call_method1("dtype", ((dtype(py, types, element)?, (*count,)),))
        }
        _ => Err(refused(py, format!("{ty} has no fixed size"), "Bind bytes instead.")),
    }
}

/// The type of the array that holds a buffer's elements: vectors are an axis of it.
fn element_dtype<'py>(py: Python<'py>, types: &[TypeDef], ty: &DataType) -> PyResult<Bound<'py, PyAny>> {
    match ty.as_vector() {
        Some((element, _)) => dtype(py, types, &element),
        None => dtype(py, types, ty),
    }
}

/// One result as it is, several as a tuple.
fn results(py: Python<'_>, made: Vec<Py<Array>>) -> PyResult<Py<PyAny>> {
    match <[Py<Array>; 1]>::try_from(made) {
        Ok([one]) => Ok(one.into_any()),
        Err(none) if none.is_empty() => Ok(py.None()),
        Err(several) => Ok(PyTuple::new(py, several)?.into_any().unbind()),
    }
}

#[pymethods]
impl Kernel {
    /// A kernel of a WGSL text, in exact or fast arithmetic.
    #[new]
    #[pyo3(signature = (source, entry=None, file=None, overrides=None, math="exact"))]
    fn new(
        py: Python<'_>,
        source: String,
        entry: Option<String>,
        file: Option<String>,
        overrides: Option<std::collections::BTreeMap<String, f64>>,
        math: &str,
    ) -> PyResult<Kernel> {
        let known = Math::named(math);
        let math = known.ok_or_else(|| PyValueError::new_err(format!("`math` is exact or fast, not {math:?}")))?;
        let mut options = ImportOptions::default();
        options.entry.clone_from(&entry);
        options.file.clone_from(&file);
        options.overrides = overrides.unwrap_or_default();
        let program =
            py.detach(|| vyre::import_wgsl(&source, &options)).map_err(|problems| raised(py, &problems.into()))?;
        let program = program.with_math(math);
        // Done once for a program; whoever writes a kernel is told of its mistakes here and not at its first call.
        if let Err(problems) = program.validate() {
            return Err(raised(py, &vyre::Error::from(problems.to_vec())));
        }
        let mut slots = Vec::new();
        for index in program.binding_order() {
            let buffer = &program.buffers()[index];
            slots.push(Slot {
                name: buffer.name.as_str().to_owned(),
                kind: buffer.kind,
                ty: buffer.ty.clone(),
                shape: shape_of(&program, index).map_err(|problem| raised(py, &problem.into()))?,
                is_struct: matches!(buffer.ty, DataType::Handle(_)),
                axes: None,
            });
        }
        Ok(Kernel {
            source,
            entry,
            file,
            program,
            slots,
            config: DispatchConfig::default(),
            device: None,
            grid: None,
            ready: Mutex::new(None),
        })
    }

    /// Runs the kernel on arrays, in the order of its bindings or by name; constants are set by name, too. Results that are left out are
    /// made, and given back. Where memory of NumPy is among the arguments, the call returns when the work is done.
    #[pyo3(signature = (*args, **named))]
    fn __call__<'py>(&self, args: &Bound<'py, PyTuple>, named: Option<&Bound<'py, PyDict>>) -> PyResult<Py<PyAny>> {
        let (launch, made) = self.start(args, named, false)?;
        drop(launch);
        results(args.py(), made)
    }

    /// Starts the kernel and gives a handle that can be awaited, waited for, or cancelled.
    #[pyo3(signature = (*args, **named))]
    fn launch<'py>(&self, args: &Bound<'py, PyTuple>, named: Option<&Bound<'py, PyDict>>) -> PyResult<Launch> {
        let (launch, made) = self.start(args, named, true)?;
        Ok(Launch::new(launch, results(args.py(), made)?))
    }

    /// The kernel with this many workgroups: `kernel[64](…)`, `kernel[8, 8](…)`.
    fn __getitem__(&self, grid: &Bound<'_, PyAny>) -> PyResult<Kernel> {
        let extents: Vec<u32> = match grid.extract::<u32>() {
            Ok(one) => vec![one],
            Err(_) => grid.extract()?,
        };
        let grid = axes(&extents)?;
        self.with(|kernel| {
            kernel.grid = Some(grid);
            Ok(())
        })
    }

    /// The kernel whose buffers take arrays with so many axes, by name.
    fn _with_axes(&self, axes: std::collections::BTreeMap<String, usize>) -> PyResult<Kernel> {
        self.with(|kernel| {
            kernel.slots.iter_mut().for_each(|slot| slot.axes = axes.get(&slot.name).copied());
            Ok(())
        })
    }

    /// The kernel with so many invocations that have something to do, per axis.
    #[pyo3(signature = (*extents))]
    fn domain(&self, extents: Vec<u32>) -> PyResult<Kernel> {
        let domain = axes(&extents)?.map(u64::from);
        self.with(|kernel| {
            kernel.config.domain_override = Some(domain);
            Ok(())
        })
    }

    /// The kernel with other values of its constants.
    #[pyo3(signature = (**constants))]
    fn set(&self, constants: Option<&Bound<'_, PyDict>>) -> PyResult<Kernel> {
        self.with(|kernel| {
            let mut config = kernel.config.clone();
            for (name, value) in constants.into_iter().flatten() {
                self.set_constant(&mut config, &name.extract::<String>()?, &value)?;
            }
            kernel.config = config;
            Ok(())
        })
    }

    /// The kernel on one device and no other.
    fn on(&self, device: &str) -> PyResult<Kernel> {
        self.with(|kernel| {
            kernel.device = Some(device.to_owned());
            Ok(())
        })
    }

    /// The kernel with a limit, in seconds, for each of its launches.
    fn timeout(&self, seconds: f64) -> PyResult<Kernel> {
        let limit: Duration = limit(seconds)?;
        self.with(|kernel| {
            kernel.config.timeout = Some(limit);
            Ok(())
        })
    }

    /// How a call with these arguments would be launched: workgroups and the invocations of one, per axis, and where their number comes
    /// from.
    #[pyo3(signature = (*args, **named))]
    fn plan_of<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<([u32; 3], [u32; 3], String)> {
        let (given, other) = self.arguments(args, named, false)?;
        let plan = other.as_ref().unwrap_or(self).plan(args.py(), &given)?;
        Ok((plan.grid, plan.workgroup_size, plan.origin.to_string()))
    }

    /// Compares the launches of the kernel on these arguments and keeps the decision for later ones, as JSON. `watch` is called with the
    /// timings taken so far and the most that will be taken; what it raises ends the comparison.
    #[pyo3(signature = (device, watch, *args, **named))]
    fn _tune<'py>(
        &self,
        py: Python<'py>,
        device: &str,
        watch: Py<PyAny>,
        args: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<String> {
        let (given, other) = self.arguments(args, named, false)?;
        let this = other.as_ref().unwrap_or(self);
        let plan = this.plan(py, &given)?;
        let mut config = this.config.clone();
        // Each run of the comparison starts from the same contents, so it has copies of its own.
        let mut inputs: Vec<Vec<u8>> = Vec::new();
        for ((slot, given), &bytes) in this.slots.iter().zip(&given).zip(&plan.buffer_bytes) {
            if !slot.kind.is_input() {
                config.output_elements.insert(slot.name.clone(), slot.shape.elements_in(bytes));
                continue;
            }
            let read = |buffer: &Buffer| py.detach(|| buffer.to_vec()).map_err(|error| raised(py, &error));
            inputs.push(match given {
                Given::Value(buffer) => read(buffer)?,
                Given::Written(array) => read(&array.get().value(py))?,
                #[allow(unsafe_code)]
                // SAFETY: `given` lives until this returns.
                Given::Lent(lent, _) => unsafe { lent.slice().read() }.to_vec(),
                Given::Foreign(memory, _) => {
                    let wrapped = memory.wrap(py, &crate::engine(py)?, false).map_err(|error| raised(py, &error))?;
                    read(&py.detach(|| wrapped.into_copy()).map_err(|error| raised(py, &error))?)?
                }
                Given::Bytes(bytes) => bytes.clone(),
                Given::Open => Vec::new(),
            });
        }
        let engine = crate::engine(py)?;
        let mut stopped: Option<PyErr> = None;
        let tuned = py.detach(|| {
            let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
            engine.tune_watched(device, &this.program, &inputs, &config, None, None, &mut |sample| {
                stopped = Python::attach(|py| {
                    py.check_signals().and_then(|()| watch.call1(py, (sample.taken, sample.at_most))).err()
                });
                if stopped.is_some() { Go::Stop } else { Go::On }
            })
        });
        if let Some(stopped) = stopped {
            return Err(stopped);
        }
        let decision = tuned.map_err(|error| raised(py, &error))?;
        serde_json::to_string(&decision).map_err(|error| PyTypeError::new_err(error.to_string()))
    }

    /// What was chosen for its latest launch, what else was possible, and on what evidence, as JSON.
    fn _explain(&self, py: Python<'_>) -> PyResult<String> {
        let (_, kernel) = self.ready(py)?;
        let explained = py.detach(|| kernel.explain());
        serde_json::to_string(&explained).map_err(|error| PyTypeError::new_err(error.to_string()))
    }

    /// The same as text.
    fn _explain_text(&self, py: Python<'_>) -> PyResult<String> {
        let (_, kernel) = self.ready(py)?;
        Ok(py.detach(|| kernel.explain().to_string()))
    }

    /// NumPy's type of a buffer's elements, for structs with the kernel's layout.
    fn dtype<'py>(&self, py: Python<'py>, buffer: &str) -> PyResult<Bound<'py, PyAny>> {
        match self.slots.iter().find(|slot| slot.name == buffer) {
            Some(slot) => self.dtype_of(py, slot),
            None => Err(pyo3::exceptions::PyKeyError::new_err(buffer.to_owned())),
        }
    }

    /// Names of the buffers, in the order of their bindings.
    #[getter]
    fn buffers(&self) -> Vec<&str> {
        self.slots.iter().map(|slot| slot.name.as_str()).collect()
    }

    /// Names of the constants that can be set.
    #[getter]
    fn constants(&self) -> Vec<&str> {
        self.program.constants().iter().map(|constant| constant.name.as_str()).collect()
    }

    /// The entry point.
    #[getter]
    fn name(&self) -> &str {
        self.program.name()
    }

    /// Its arithmetic: `exact` gives the same bits everywhere, `fast` is as near as WGSL asks.
    #[getter]
    fn math(&self) -> &'static str {
        self.program.math().name()
    }

    #[getter]
    fn source(&self) -> &str {
        &self.source
    }

    fn __repr__(&self) -> String {
        format!("<vyre.Kernel {}({})>", self.program.name(), self.buffers().join(", "))
    }

    /// Kernels pickle by content.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let constants = PyDict::new(py);
        for (name, value) in self.config.specialization.iter() {
            match value {
                SpecValue::U32(value) => constants.set_item(name, value)?,
                SpecValue::I32(value) => constants.set_item(name, value)?,
                SpecValue::F32(value) => constants.set_item(name, value)?,
                SpecValue::Bool(value) => constants.set_item(name, value)?,
                _ => {}
            }
        }
        let timeout = self.config.timeout.map(|timeout| timeout.as_secs_f64());
        let state = (
            env!("CARGO_PKG_VERSION"),
            &self.source,
            &self.entry,
            &self.file,
            self.math(),
            constants,
            &self.device,
            self.grid,
            self.config.domain_override,
            timeout,
        );
        Ok((py.import("vyre._kernels")?.getattr("restore")?, state.into_pyobject(py)?))
    }
}

/// One to three extents as three.
fn axes(extents: &[u32]) -> PyResult<[u32; 3]> {
    match *extents {
        [x] => Ok([x, 1, 1]),
        [x, y] => Ok([x, y, 1]),
        [x, y, z] => Ok([x, y, z]),
        _ => Err(PyTypeError::new_err("a launch has one to three axes")),
    }
}
