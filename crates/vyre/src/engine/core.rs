//! What all launches of one program under one configuration share.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use vyre_driver::DispatchConfig;
use vyre_driver::backend::Pipeline;
use vyre_driver::tuner::Decision;
use vyre_foundation::ValidProgram;
use vyre_foundation::ir::{BufferKind, DataType, Program};
use vyre_foundation::launch::{self, Access, BufferShape, LaunchPlan, Writes};
use vyre_spec::{BackendId, Diagnostic, codes};

use super::indirect::SizeFrom;
use super::learning::{Compiled, Learning};
use super::lock;
use super::routes::Work;
use super::timings::{Live, Timed};
use crate::Error;
use crate::runtime::{Device, Storage};

/// The bytes of a small value.
pub(crate) type ValueBytes = SmallVec<[u8; 32]>;

/// What is bound to one buffer of a launch.
pub(crate) enum Arg<'a> {
    /// Nothing yet; a launch does not begin with one of these.
    Unbound,
    /// Part of an array, read only.
    Read(&'a Arc<Storage>, Range<u64>),
    /// All of an array, which is made a value of its own first.
    Write(&'a mut Arc<Storage>),
    /// Part of an array that is a value of its own, to be written.
    Part(&'a Arc<Storage>, Range<u64>),
    /// A value of the call.
    Value(ValueBytes),
    /// The caller's memory, read only; the call waits for the work.
    Bytes(&'a [u8]),
    /// The caller's memory, whose contents are the input where there is one; the call waits for the work.
    Into(&'a mut [u8]),
}

impl Arg<'_> {
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Arg::Unbound => 0,
            Arg::Read(_, range) | Arg::Part(_, range) => range.end - range.start,
            Arg::Write(storage) => storage.bytes,
            Arg::Value(bytes) => bytes.len() as u64,
            Arg::Bytes(bytes) => bytes.len() as u64,
            Arg::Into(bytes) => bytes.len() as u64,
        }
    }

    pub(super) fn can_be_written(&self) -> bool {
        matches!(self, Arg::Write(_) | Arg::Part(..) | Arg::Into(_))
    }

    /// Its bytes are known to be these, without waiting for anything.
    fn holds(&self, expected: &[u8]) -> bool {
        match self {
            Arg::Unbound => false,
            Arg::Read(storage, range) | Arg::Part(storage, range) => storage.holds(range, expected),
            Arg::Write(storage) => storage.holds(&(0..storage.bytes), expected),
            Arg::Value(bytes) => bytes[..] == *expected,
            Arg::Bytes(bytes) => *bytes == expected,
            Arg::Into(bytes) => **bytes == *expected,
        }
    }

    /// Its bytes, where they are few; what writes them is waited for.
    fn contents(&self, deadline: Option<Instant>) -> Result<Option<Vec<u8>>, Error> {
        /// A kernel compares its ids with numbers in small buffers.
        const MOST: u64 = 4096;
        if self.bytes() > MOST {
            return Ok(None);
        }
        let read = |storage: &Storage, range: &Range<u64>| {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            storage.read(range.start, &mut bytes, deadline).map(|()| Some(bytes))
        };
        match self {
            Arg::Unbound => Ok(None),
            Arg::Read(storage, range) | Arg::Part(storage, range) => read(storage, range),
            Arg::Write(storage) => read(storage, &(0..storage.bytes)),
            Arg::Value(bytes) => Ok(Some(bytes.to_vec())),
            Arg::Bytes(bytes) => Ok(Some(bytes.to_vec())),
            Arg::Into(bytes) => Ok(Some(bytes.to_vec())),
        }
    }

    /// It borrows memory that may go away when the call returns.
    pub(super) fn is_borrowed(&self) -> bool {
        matches!(self, Arg::Bytes(_) | Arg::Into(_))
    }
}

/// What a launch may ask for besides its arrays.
#[derive(Clone, Default)]
pub(crate) struct Request {
    pub(crate) grid: Option<[u32; 3]>,
    pub(crate) domain: Option<[u64; 3]>,
    /// Where it stands how much of that runs.
    pub(crate) size_from: Option<SizeFrom>,
    pub(crate) on: Option<BackendId>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) interruptible: bool,
    pub(crate) label: Option<Arc<str>>,
    /// Every element of what is only written is written.
    pub(crate) overwrites: bool,
    /// Asked now and then while the call waits for work on the caller's memory; true ends the launch.
    pub(crate) stop: Option<StopWhen>,
}

impl Request {
    /// Nothing.
    pub(crate) const NONE: Request = Request {
        grid: None,
        domain: None,
        size_from: None,
        on: None,
        timeout: None,
        interruptible: false,
        label: None,
        overwrites: false,
        stop: None,
    };
}

/// Whether a call should stop waiting.
pub(crate) type StopWhen = Arc<dyn Fn() -> bool + Send + Sync>;

/// One buffer of the program that is bound, in binding order.
pub(crate) struct Slot {
    pub(crate) name: String,
    /// [`key_of`] the name.
    key: u64,
    pub(crate) kind: BufferKind,
    ty: DataType,
    /// [`scalar_of`] the type.
    scalar: u8,
    shape: BufferShape,
    pub(crate) access: Access,
}

/// The first bytes of a name, and how many it has in all as far as a byte can tell. Names that differ do so here, nearly all, and where a
/// name is known when its caller is compiled, so is this.
#[inline]
pub(crate) fn key_of(name: &str) -> u64 {
    let start = name.bytes().take(NAME_IN_KEY).fold(0, |key, byte| key << 8 | u64::from(byte));
    start | (name.len().min(255) as u64) << 56
}

/// So many bytes of a name are all in its key.
const NAME_IN_KEY: usize = 7;

/// A number for each scalar; 0 for other types and where it is not known.
#[inline]
pub(crate) fn scalar_of(ty: Option<&DataType>) -> u8 {
    match ty {
        Some(DataType::U32) => 1,
        Some(DataType::I32) => 2,
        Some(DataType::F32) => 3,
        Some(DataType::F16) => 4,
        Some(DataType::U64) => 5,
        Some(DataType::I64) => 6,
        Some(DataType::F64) => 7,
        _ => 0,
    }
}

impl Slot {
    /// It has this name, of which this is the key.
    #[inline]
    pub(crate) fn is_named(&self, name: &str, key: u64) -> bool {
        self.key == key && (name.len() <= NAME_IN_KEY || self.name == name)
    }

    /// It takes an array of scalars of this size.
    #[inline]
    pub(crate) fn is_array_of_scalars(&self, arg: &Arg<'_>, scalar: u8, size: usize) -> bool {
        let is_array = match arg {
            Arg::Write(_) => true,
            Arg::Read(..) => self.access.writes == Writes::None,
            _ => false,
        };
        is_array && scalar != 0 && scalar == self.scalar && size == self.shape.stride as usize
    }
}

/// What all launches of one program under one configuration share.
pub(crate) struct Core {
    pub(crate) program: ValidProgram,
    pub(crate) config: DispatchConfig,
    /// The one backend that may be used, where the caller said so.
    pub(crate) only: Option<BackendId>,
    pub(crate) slots: Vec<Slot>,
    ready: RwLock<Vec<Arc<Ready>>>,
    /// The program with its outputs as buffers that are inputs, too.
    in_place: OnceLock<ValidProgram>,
    /// Backends that refused it, with the reason, for explanations.
    pub(super) refused: Mutex<Vec<(String, String)>>,
    /// What was launched last, for explanations.
    pub(super) last: Mutex<Option<Arc<Ready>>>,
    /// The address of that, so that a launch like the one before takes no lock.
    last_address: AtomicPtr<Ready>,
}

/// Everything that a steady launch of these sizes on one device needs.
pub(crate) struct Ready {
    pub(super) device: Arc<Device>,
    sizes: SmallVec<[u64; 8]>,
    grid_asked: Option<[u32; 3]>,
    domain_asked: Option<[u64; 3]>,
    pub(super) interruptible: bool,
    /// `None` where the device has no resident path.
    pub(super) pipeline: Option<Arc<dyn Pipeline>>,
    pub(super) plan: LaunchPlan,
    pub(super) work: Work,
    /// Why this launch; absent when it is the program's own.
    pub(super) decision: Option<Decision>,
    /// What is still being learnt; taken by one thread at a time, the others use what there is.
    pub(super) learning: Option<Mutex<Learning>>,
    /// What is taken for the fastest before that is known, instead of the program's own launch.
    pub(super) preferred: Option<Compiled>,
    /// Whether its launches still take what they took when it was decided.
    pub(super) live: Option<Live>,
    /// What the grid depends on: a launch with other contents is another launch.
    contents: Contents,
    /// For each buffer: what it held before is needed.
    pub(super) keep: SmallVec<[bool; 8]>,
    /// The latest values of small buffers, so that the same ones are not sent again.
    values: Mutex<SmallVec<[Option<KeptValue>; 8]>>,
    /// The router sends such launches here. A launch that names its device says nothing of the others.
    routed: AtomicBool,
    pub(super) runs: AtomicU64,
    /// The latest launch was on memory of the caller, and the run that was the first of those that are like it. What was found out about
    /// data that comes and goes says little of data that stays.
    pub(super) is_borrowed: AtomicBool,
    pub(super) alike_from: AtomicU64,
    /// What the latest timed launch took.
    pub(super) latest_ns: AtomicU64,
    pub(super) timings: Mutex<Vec<Timed>>,
    pub(super) timings_open: AtomicU32,
    /// The queue of its launches that continue nothing, while the tuner learns.
    learning_queue: OnceLock<u32>,
}

/// Bytes of buffers, by slot.
pub(super) type Contents = Vec<(usize, Vec<u8>)>;

/// The bytes of a value and where they are.
type KeptValue = (ValueBytes, Arc<Storage>);

/// Sizes that a kernel remembers.
const MOST_READY: usize = 64;

impl Core {
    pub(crate) fn new(
        program: &ValidProgram,
        config: &DispatchConfig,
        only: Option<&BackendId>,
    ) -> Result<Core, Error> {
        // Wrong names and types of specialization values are told here, not at the first launch.
        let specialization = config.specialization.resolve(program)?;
        let access = launch::access(program, Some(&specialization))?;
        let mut slots = Vec::new();
        for (&index, access) in program.binding_order().iter().zip(access) {
            let buffer = &program.buffers()[index];
            slots.push(Slot {
                name: buffer.name.as_str().to_owned(),
                key: key_of(buffer.name.as_str()),
                kind: buffer.kind,
                ty: buffer.ty.clone(),
                scalar: scalar_of(Some(&buffer.ty)),
                shape: launch::shape_of(program, index)?,
                access,
            });
        }
        Ok(Core {
            program: program.clone(),
            config: config.clone(),
            only: only.cloned(),
            slots,
            ready: RwLock::default(),
            in_place: OnceLock::new(),
            refused: Mutex::default(),
            last: Mutex::default(),
            last_address: AtomicPtr::default(),
        })
    }

    /// The program for backends that work on host bytes, where an output begins as zeros: here all results begin as what their arrays hold.
    pub(super) fn in_place(&self) -> Result<&ValidProgram, Error> {
        if let Some(program) = self.in_place.get() {
            return Ok(program);
        }
        let mut buffers = self.program.buffers().to_vec();
        for buffer in buffers.iter_mut().filter(|buffer| buffer.kind == BufferKind::Output) {
            buffer.kind = BufferKind::ReadWrite;
        }
        let program = super::valid(&Program::clone(&self.program).with_buffers(buffers))?;
        Ok(self.in_place.get_or_init(|| program))
    }

    /// Position of a named buffer in binding order.
    pub(crate) fn slot(&self, name: &str) -> Result<usize, Error> {
        if let Some(slot) = self.slots.iter().position(|slot| slot.name == name) {
            return Ok(slot);
        }
        let names: Vec<&str> = self.slots.iter().map(|slot| slot.name.as_str()).collect();
        let known = if names.is_empty() { "it has none".to_owned() } else { names.join(", ") };
        let message = format!("`{name}` is not a buffer of `{}`; known: {known}", self.program.name());
        let unknown = Diagnostic::new(&codes::engine::UNKNOWN_BUFFER, message);
        Err(match nearest(name, &names) {
            Some(near) => unknown.with_fix(format!("Did you mean `{near}`?")).into(),
            None => unknown.into(),
        })
    }

    /// Refuses what can't be bound to a buffer, whatever its size.
    pub(crate) fn check_arg(
        &self,
        slot: usize,
        arg: &Arg<'_>,
        ty: Option<&DataType>,
        size: usize,
    ) -> Result<(), Error> {
        let Slot { name, access, kind, shape, .. } = &self.slots[slot];
        if access.writes != Writes::None && !arg.can_be_written() {
            let message = format!("the kernel writes `{name}`, but it is bound to be read");
            return Err(Diagnostic::new(&codes::engine::READ_ONLY, message)
                .with_fix(format!("Bind it with `&mut`: `.bind(\"{name}\", &mut …)`."))
                .into());
        }
        // A value may be all elements of a buffer, as an array.
        let stride = shape.stride as usize;
        let is_several = matches!(arg, Arg::Value(_)) && stride > 0 && size.is_multiple_of(stride);
        self.check_element(slot, ty, if is_several { stride } else { size })?;
        if matches!(arg, Arg::Value(_)) && kind.is_result() {
            let message = format!("`{name}` is a result of the kernel and takes an array, not a value");
            return Err(Diagnostic::new(&codes::engine::READ_ONLY, message).into());
        }
        Ok(())
    }

    /// Refuses elements that are not those of a buffer.
    pub(crate) fn check_element(&self, slot: usize, ty: Option<&DataType>, size: usize) -> Result<(), Error> {
        let Slot { name, ty: declared, shape, .. } = &self.slots[slot];
        let fits = match ty {
            Some(ty) if ty == declared && size == shape.stride as usize => true,
            Some(ty) => {
                let scalar = |ty: &DataType| ty.as_vector().map_or_else(|| ty.clone(), |(element, _)| element);
                match declared {
                    // Members of a struct are checked by its size.
                    DataType::Handle(_) => true,
                    _ => scalar(ty) == scalar(declared) && (shape.stride as usize).is_multiple_of(size.max(1)),
                }
            }
            None => size == 1 || (shape.stride as usize).is_multiple_of(size.max(1)),
        };
        if !fits {
            let given = ty.map_or_else(|| format!("structs of {size} bytes"), |ty| format!("elements of {ty}"));
            let message = format!(
                "buffer `{name}` of the kernel holds {declared} in steps of {} bytes, but {given} were bound",
                shape.stride
            );
            return Err(Diagnostic::new(&codes::engine::WRONG_ELEMENT, message).into());
        }
        Ok(())
    }

    /// Bytes of each buffer.
    pub(super) fn sizes(&self, args: &[Arg<'_>]) -> SmallVec<[u64; 8]> {
        let mut sizes = SmallVec::new();
        for arg in args {
            sizes.push(arg.bytes());
        }
        sizes
    }

    /// What was made ready for such a launch: where the router sent the latest, or on the device that is named.
    pub(super) fn find(
        &self,
        sizes: impl ExactSizeIterator<Item = u64> + Clone,
        args: &[Arg<'_>],
        request: &Request,
        device: Option<&str>,
    ) -> Option<Arc<Ready>> {
        let ready = self.ready.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let fits = |ready: &&Arc<Ready>| {
            ready.sizes.len() == sizes.len()
                && ready.sizes.iter().zip(sizes.clone()).all(|(&known, size)| known == size)
                && ready.grid_asked == request.grid
                && ready.domain_asked == request.domain
                && ready.interruptible == request.interruptible
                && !(ready.is_foreign() && request.size_from.is_some())
                && device
                    .map_or_else(|| ready.routed.load(Ordering::Relaxed), |device| ready.device.id.as_str() == device)
                && ready.contents.iter().all(|(slot, bytes)| args.get(*slot).is_some_and(|arg| arg.holds(bytes)))
        };
        ready.iter().rev().find(fits).cloned()
    }

    /// From now on launches like this one go there.
    pub(super) fn route_to(&self, chosen: &Arc<Ready>) {
        let list = self.ready.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        for known in list.iter().filter(|known| known.is_for_the_same_work(chosen)) {
            known.routed.store(Arc::ptr_eq(known, chosen), Ordering::Relaxed);
        }
    }

    /// Remembers what was launched.
    pub(super) fn launched(&self, ready: &Arc<Ready>) {
        let address = Arc::as_ptr(ready).cast_mut();
        if self.last_address.load(Ordering::Relaxed) != address {
            // Both under the lock, so that they are of the same launch.
            let mut last = lock(&self.last);
            self.last_address.store(address, Ordering::Relaxed);
            *last = Some(ready.clone());
        }
    }

    /// Keeps what was made ready; what was ready for the same goes.
    pub(super) fn keep(&self, ready: Arc<Ready>) {
        let mut list = self.ready.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        list.retain(|known| !known.is_for_the_same(&ready));
        if list.len() >= MOST_READY {
            list.remove(0);
        }
        list.push(ready);
    }

    /// Forgets one, so that the next launch like it is decided about anew.
    pub(super) fn forget(&self, ready: &Arc<Ready>) {
        let mut list = self.ready.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        list.retain(|known| !Arc::ptr_eq(known, ready));
    }

    /// Forgets what was ready on a device.
    pub(super) fn leave(&self, device: &Device) {
        let mut list = self.ready.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        list.retain(|known| known.device.id != device.id);
    }

    /// The configuration with the sizes and wishes of a launch.
    pub(super) fn config_for(&self, sizes: &[u64], request: &Request) -> (DispatchConfig, SmallVec<[u64; 8]>) {
        let mut config = self.config.clone();
        if request.grid.is_some() {
            config.grid_override = request.grid;
        }
        if request.domain.is_some() {
            (config.grid_override, config.domain_override) = (request.grid, request.domain);
        }
        config.label = request.label.as_deref().map(str::to_owned).or(config.label);
        let mut inputs = SmallVec::new();
        for (slot, &bytes) in self.slots.iter().zip(sizes) {
            if slot.kind.is_input() {
                inputs.push(bytes);
            } else {
                config.output_elements.insert(slot.name.clone(), slot.shape.elements_in(bytes));
            }
        }
        (config, inputs)
    }

    /// Sizes and grid of a launch, and the contents of buffers that they depend on, by slot.
    pub(super) fn plan(
        &self,
        sizes: &[u64],
        args: &[Arg<'_>],
        request: &Request,
        deadline: Option<Instant>,
    ) -> Result<(LaunchPlan, Contents), Error> {
        let (config, inputs) = self.config_for(sizes, request);
        let asks = match vyre_driver::launch::plan_sizes(&self.program, &inputs, &config) {
            Err(problem) if problem.code == &codes::ir::LAUNCH_ASK && args.len() == self.slots.len() => problem,
            other => {
                let plan = other?;
                self.check_sizes(&plan, sizes)?;
                return Ok((plan, Vec::new()));
            }
        };
        // How many invocations there are may stand in a buffer.
        let mut known: Contents = Vec::new();
        for (at, arg) in args.iter().enumerate().filter(|(at, _)| self.slots[*at].kind.is_input()) {
            if let Some(bytes) = arg.contents(deadline)? {
                known.push((at, bytes));
            }
        }
        let contents: Vec<Option<&[u8]>> = (0..self.slots.len())
            .filter(|&at| self.slots[at].kind.is_input())
            .map(|at| known.iter().find(|(slot, _)| *slot == at).map(|(_, bytes)| bytes.as_slice()))
            .collect();
        if contents.iter().all(Option::is_none) {
            return Err(asks.into());
        }
        let plan = vyre_driver::launch::plan_with(&self.program, &inputs, &contents, &config)?;
        self.check_sizes(&plan, sizes)?;
        Ok((plan, known))
    }

    /// For each buffer: a launch needs what it held before.
    pub(super) fn kept(&self, plan: &LaunchPlan) -> SmallVec<[bool; 8]> {
        let slots = self.slots.iter().enumerate();
        slots.map(|(at, slot)| slot.access.reads || !slot.access.overwrites(at, plan)).collect()
    }

    /// Refuses results whose sizes are not those that the program computes.
    fn check_sizes(&self, plan: &LaunchPlan, sizes: &[u64]) -> Result<(), Error> {
        for ((slot, &planned), &bound) in self.slots.iter().zip(&plan.buffer_bytes).zip(sizes) {
            if planned != bound {
                let message = format!("buffer `{}` has {planned} bytes, but {bound} were bound", slot.name);
                return Err(Diagnostic::new(&codes::ir::LAUNCH_INPUT_SIZE, message).into());
            }
        }
        Ok(())
    }
}

impl Ready {
    #[allow(clippy::too_many_arguments, reason = "each is a field; a struct of them would be this one")]
    pub(super) fn new(
        core: &Core,
        device: Arc<Device>,
        sizes: SmallVec<[u64; 8]>,
        request: &Request,
        pipeline: Option<Arc<dyn Pipeline>>,
        (plan, contents): (LaunchPlan, Contents),
        work: Work,
        decision: Option<Decision>,
        learning: Option<Mutex<Learning>>,
    ) -> Ready {
        let keep = core.kept(&plan);
        Ready {
            device,
            grid_asked: request.grid,
            domain_asked: request.domain,
            interruptible: request.interruptible,
            pipeline,
            plan,
            work,
            decision,
            learning,
            preferred: None,
            live: None,
            contents,
            keep,
            values: Mutex::new(sizes.iter().map(|_| None).collect()),
            sizes,
            routed: AtomicBool::new(false),
            runs: AtomicU64::new(0),
            is_borrowed: AtomicBool::new(false),
            alike_from: AtomicU64::new(0),
            latest_ns: AtomicU64::new(0),
            timings: Mutex::default(),
            timings_open: AtomicU32::new(0),
            learning_queue: OnceLock::new(),
        }
    }

    /// The same with the launch that was decided.
    pub(super) fn settled(&self, pipeline: Arc<dyn Pipeline>, grid: [u32; 3], decision: Decision) -> Ready {
        let mut plan = self.plan.clone();
        plan.grid = grid;
        plan.workgroup_size = decision.candidate.workgroup_size;
        Ready {
            device: self.device.clone(),
            sizes: self.sizes.clone(),
            grid_asked: self.grid_asked,
            domain_asked: self.domain_asked,
            interruptible: self.interruptible,
            pipeline: Some(pipeline),
            plan,
            work: self.work.clone(),
            decision: Some(decision),
            learning: None,
            preferred: None,
            live: None,
            contents: self.contents.clone(),
            keep: self.keep.clone(),
            values: Mutex::new(self.sizes.iter().map(|_| None).collect()),
            routed: AtomicBool::new(self.routed.load(Ordering::Relaxed)),
            runs: AtomicU64::new(self.runs.load(Ordering::Relaxed)),
            is_borrowed: AtomicBool::new(self.is_borrowed.load(Ordering::Relaxed)),
            alike_from: AtomicU64::new(self.alike_from.load(Ordering::Relaxed)),
            latest_ns: AtomicU64::new(self.latest_ns.load(Ordering::Relaxed)),
            timings: Mutex::default(),
            timings_open: AtomicU32::new(0),
            learning_queue: OnceLock::new(),
        }
    }

    /// The same with live timings watched.
    pub(super) fn watched(self, live: Option<Live>) -> Ready {
        Ready { live, ..self }
    }

    /// The queue of a launch: that of what it continues, or a fresh one. Timings of one kernel's launches are compared while the tuner
    /// learns, so those don't run beside each other; nor do they wait for another kernel's, which may never end.
    pub(super) fn queue_of(&self, continued: Option<u32>) -> u32 {
        match (continued, &self.learning) {
            (Some(queue), _) => queue,
            (None, Some(_)) => *self.learning_queue.get_or_init(|| self.device.fresh_queue()),
            (None, None) => self.device.fresh_queue(),
        }
    }

    /// A variant runs in the place of the program.
    fn is_foreign(&self) -> bool {
        self.decision.as_ref().is_some_and(|decision| decision.candidate.variant.is_some())
    }

    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Pipeline and grid, where the device has a resident path.
    pub(crate) fn launch(&self) -> Option<(&Arc<dyn Pipeline>, [u32; 3])> {
        match &self.preferred {
            Some((pipeline, grid)) => Some((pipeline, *grid)),
            None => self.pipeline.as_ref().map(|pipeline| (pipeline, self.plan.grid)),
        }
    }

    /// What a buffer held before is needed.
    pub(crate) fn keeps(&self, slot: usize) -> bool {
        self.keep[slot]
    }

    /// Its launches still try what is faster.
    pub(crate) fn is_learning(&self) -> bool {
        self.learning.is_some()
    }

    fn is_for_the_same(&self, other: &Ready) -> bool {
        self.is_for_the_same_work(other) && self.device.id == other.device.id
    }

    /// The candidates of launches whose times are still to come.
    pub(super) fn timings_under_way(&self) -> SmallVec<[usize; 8]> {
        if self.timings_open.load(Ordering::Relaxed) == 0 {
            return SmallVec::new();
        }
        lock(&self.timings).iter().map(|timed| timed.candidate).collect()
    }

    /// The same but for the device.
    fn is_for_the_same_work(&self, other: &Ready) -> bool {
        self.sizes == other.sizes
            && self.grid_asked == other.grid_asked
            && self.domain_asked == other.domain_asked
            && self.interruptible == other.interruptible
            && self.contents == other.contents
    }

    /// The storage of a small value that is the same as in the last launch.
    pub(super) fn known_value(&self, slot: usize, bytes: &ValueBytes) -> Option<Arc<Storage>> {
        let values = lock(&self.values);
        values[slot].as_ref().filter(|(known, _)| known == bytes).map(|(_, storage)| storage.clone())
    }

    /// The storage of a small value: the one of the last launch where it is the same.
    pub(super) fn value(
        &self,
        slot: usize,
        bytes: &ValueBytes,
        make: impl FnOnce() -> Result<Arc<Storage>, Error>,
    ) -> Result<Arc<Storage>, Error> {
        let mut values = lock(&self.values);
        if let Some((known, storage)) = &values[slot]
            && known == bytes
        {
            return Ok(storage.clone());
        }
        let storage = make()?;
        values[slot] = Some((bytes.clone(), storage.clone()));
        Ok(storage)
    }
}

/// The name that was probably meant.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let distance = |other: &str| {
        let (a, b): (Vec<char>, Vec<char>) = (name.chars().collect(), other.chars().collect());
        let mut row: Vec<usize> = (0..=b.len()).collect();
        for (i, x) in a.iter().enumerate() {
            let mut before = row[0];
            row[0] = i + 1;
            for (j, y) in b.iter().enumerate() {
                let next = (before + usize::from(x != y)).min(row[j] + 1).min(row[j + 1] + 1);
                before = std::mem::replace(&mut row[j + 1], next);
            }
        }
        row[b.len()]
    };
    let (near, far) = known.iter().map(|other| (*other, distance(other))).min_by_key(|(_, far)| *far)?;
    (far <= 2 && far < name.chars().count()).then_some(near)
}
