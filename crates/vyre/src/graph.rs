//! Sequences of launches that are recorded once and replayed as one.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use vyre_driver::backend::{Binding, Launch as BackendLaunch, Order, Recording, Step, Ticket};
use vyre_driver::metrics::Counter;
use vyre_foundation::ir::DataType;
use vyre_foundation::launch::Writes;
use vyre_spec::{BackendId, Diagnostic, codes};

use crate::array::{Buffer, Element};
use crate::engine::{Arg, Core, Ready, Request, ValueBytes, lock};
use crate::kernels::{Bindable, Bound};
use crate::launches::Launch;
use crate::runtime::{Deps, Device, Job, Storage};
use crate::{Engine, Error, Kernel};

/// A sequence of launches and copies in the making. See [`Graph`].
pub struct Recorder {
    /// Its places are of no use to another.
    number: u64,
    engine: Engine,
    places: Vec<PlaceSpec>,
    nodes: Vec<Node>,
    on: Option<BackendId>,
    cancellable: bool,
}

/// An array of a graph: its own, or one that each replay is given.
pub struct Place<T> {
    recorder: u64,
    index: usize,
    element: PhantomData<fn() -> T>,
}

impl<T> Clone for Place<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Place<T> {}

struct PlaceSpec {
    /// What a replay binds to it; `None` where it is the graph's own.
    name: Option<String>,
    bytes: u64,
    ty: Option<DataType>,
    size: usize,
    /// The first step that uses it needs what it held before.
    keep: bool,
    used: bool,
    written: bool,
    own: Option<Arc<Storage>>,
}

enum Node {
    Launch { core: Arc<Core>, places: SmallVec<[usize; 8]>, grid: Option<[u32; 3]> },
    Copy { from: usize, to: usize },
}

/// A recorded sequence of launches and copies with open places for arrays. Replaying it is one submission where the device can, and
/// skips planning and choosing everywhere. Its steps run one after another on one device.
///
/// ```
/// # fn main() -> Result<(), vyre::Error> {
/// let engine = vyre::Engine::builder().without_disk().open()?;
/// let double = engine.kernel(&vyre::wgsl("
///     @group(0) @binding(0) var<storage, read> a: array<u32>;
///     @group(0) @binding(1) var<storage, read_write> out: array<u32>;
///     @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
///         if id.x < arrayLength(&out) { out[id.x] = a[id.x] * 2u; }
///     }")?)?;
/// let mut recorder = engine.record();
/// let x = recorder.place::<u32>("x", 3);
/// let between = recorder.array::<u32>(3);
/// for _ in 0..2 {
///     recorder.launch(&double).bind("a", x).bind("out", between).add()?;
///     recorder.copy(between, x)?;
/// }
/// let graph = recorder.finish()?;
/// let mut values = engine.array(&[1u32, 2, 3])?;
/// for _ in 0..3 {
///     graph.replay().bind("x", &mut values).launch()?;
/// }
/// assert_eq!(values.to_vec()?, [64, 128, 192]);
/// # Ok(())
/// # }
/// ```
pub struct Graph {
    engine: Engine,
    places: Vec<PlaceSpec>,
    nodes: Vec<Node>,
    device: Arc<Device>,
    /// For each launch, what it needs on the device.
    ready: Vec<Option<Arc<Ready>>>,
    /// The one that was replayed last is the last.
    recorded: Mutex<Vec<Recorded>>,
    cancellable: bool,
    replays: AtomicU64,
}

/// One replay in so many is taken apart, so that its launches are timed.
const TIMED_EVERY: u64 = 256;

/// Recordings of one graph: a loop that swaps two arrays comes back to the same memory every other time, and changing every step of a
/// recording takes longer than replaying it. Each keeps the memory that it was made for, so there are no more than these.
const MOST_RECORDED: usize = 2;

/// What the device has recorded, and for which memory.
struct Recorded {
    recording: Arc<dyn Recording>,
    bindings: SmallVec<[Binding; 8]>,
}

impl Engine {
    /// Starts to record a sequence of launches and copies.
    pub fn record(&self) -> Recorder {
        static RECORDERS: AtomicU64 = AtomicU64::new(0);
        Recorder {
            number: RECORDERS.fetch_add(1, Ordering::Relaxed),
            engine: self.clone(),
            places: Vec::new(),
            nodes: Vec::new(),
            on: None,
            cancellable: false,
        }
    }
}

impl Recorder {
    /// An array of so many elements that each replay is given under this name.
    pub fn place<T: Element>(&mut self, name: &str, length: usize) -> Place<T> {
        self.add_place::<T>(Some(name.to_owned()), length)
    }

    /// A buffer of so many bytes that each replay is given under this name, whatever its elements are.
    pub fn buffer(&mut self, name: &str, bytes: u64) -> Place<Buffer> {
        self.push_place(PlaceSpec::new(Some(name.to_owned()), bytes, None, 1))
    }

    /// An array of so many zeros that is the graph's own and keeps its contents between replays.
    pub fn array<T: Element>(&mut self, length: usize) -> Place<T> {
        self.add_place::<T>(None, length)
    }

    fn add_place<T: Element>(&mut self, name: Option<String>, length: usize) -> Place<T> {
        let bytes = (length as u64).saturating_mul(size_of::<T>() as u64);
        let own = name.is_none().then(|| Storage::zeros(&self.engine.inner, bytes));
        self.push_place(PlaceSpec { own, ..PlaceSpec::new(name, bytes, T::data_type(), size_of::<T>()) })
    }

    fn push_place<T>(&mut self, place: PlaceSpec) -> Place<T> {
        self.places.push(place);
        Place { recorder: self.number, index: self.places.len() - 1, element: PhantomData }
    }

    fn index_of<T>(&self, place: Place<T>) -> Result<usize, Error> {
        if place.recorder != self.number {
            return Err(Diagnostic::new(&codes::engine::UNKNOWN_BUFFER, "the place belongs to another graph").into());
        }
        Ok(place.index)
    }

    /// The backend that replays it, instead of the fastest one that is known for its first launch.
    pub fn on(&mut self, backend: &str) -> &mut Recorder {
        self.on = Some(backend.into());
        self
    }

    /// Compiles the kernels so that a replay can be ended while it runs, by [`Launch::cancel`] or a [timeout](Replay::timeout). Its steps
    /// are then submitted one after another instead of as one.
    pub fn cancellable(&mut self) -> &mut Recorder {
        self.cancellable = true;
        self
    }

    /// A launch as the next step.
    pub fn launch<'a>(&'a mut self, kernel: &Kernel) -> RecordedLaunch<'a> {
        let core = kernel.core().clone();
        let places = core.slots.iter().map(|_| usize::MAX).collect();
        RecordedLaunch { recorder: self, core, places, grid: None, wrong: None }
    }

    /// A copy of a whole array as the next step.
    pub fn copy<T>(&mut self, from: Place<T>, to: Place<T>) -> Result<(), Error> {
        let (from, to) = (self.index_of(from)?, self.index_of(to)?);
        if self.places[from].bytes != self.places[to].bytes {
            return Err(Diagnostic::new(&codes::engine::SHAPE, "the two arrays of a copy differ in length").into());
        }
        self.places[from].use_for(true, false);
        self.places[to].use_for(false, true);
        self.nodes.push(Node::Copy { from, to });
        Ok(())
    }

    /// Compiles and keeps the sequence.
    pub fn finish(self) -> Result<Graph, Error> {
        let Recorder { engine, places, nodes, on, cancellable, .. } = self;
        let inner = &engine.inner;
        let sizes = |used: &SmallVec<[usize; 8]>| -> SmallVec<[u64; 8]> {
            used.iter().map(|&place| places[place].bytes).collect()
        };
        let mut device = on.as_ref().map(|id| inner.device(id.as_str())).transpose()?;
        let mut ready = Vec::with_capacity(nodes.len());
        for node in &nodes {
            let Node::Launch { core, places: used, grid } = node else {
                ready.push(None);
                continue;
            };
            let request = Request { grid: *grid, on: on.clone(), interruptible: cancellable, ..Request::default() };
            let made = inner.ready_for_graph(core, &sizes(used), &request, device.as_ref())?;
            device.get_or_insert_with(|| made.device().clone());
            ready.push(Some(made));
        }
        let device = match device {
            Some(device) => device,
            None => inner.any_device()?,
        };
        let (recorded, replays) = (Mutex::default(), AtomicU64::new(0));
        Ok(Graph { engine, places, nodes, device, ready, recorded, cancellable, replays })
    }
}

impl PlaceSpec {
    fn new(name: Option<String>, bytes: u64, ty: Option<DataType>, size: usize) -> PlaceSpec {
        PlaceSpec { name, bytes, ty, size, keep: false, used: false, written: false, own: None }
    }

    /// What is bound to it can be used as it was recorded.
    fn check(&self, name: &str, bound: &Bound<'_>) -> Result<(), Diagnostic> {
        let is_typed = |ty: &Option<DataType>, size: usize| ty.is_some() || size != 1;
        let both_typed = is_typed(&self.ty, self.size) && is_typed(&bound.ty, bound.size);
        if both_typed && (self.ty != bound.ty || self.size != bound.size) {
            let message = format!("place `{name}` was recorded with elements of another type");
            return Err(Diagnostic::new(&codes::engine::WRONG_ELEMENT, message));
        }
        let bytes = match &bound.arg {
            Arg::Write(storage) => storage.bytes,
            Arg::Read(storage, range) if !self.written && *range == (0..storage.bytes) => storage.bytes,
            Arg::Value(value) if !self.written => value.len() as u64,
            _ => {
                let message = match self.written {
                    true => format!("place `{name}` is written, so a whole array is bound to it with `&mut`"),
                    false => format!("place `{name}` takes a whole array or a value"),
                };
                return Err(Diagnostic::new(&codes::engine::WRONG_ELEMENT, message));
            }
        };
        if self.bytes != bytes {
            let message = format!("place `{name}` was recorded with {} bytes, not {bytes}", self.bytes);
            return Err(Diagnostic::new(&codes::engine::SHAPE, message));
        }
        Ok(())
    }

    fn use_for(&mut self, keep: bool, write: bool) {
        if !self.used {
            self.keep = keep;
        }
        self.used = true;
        self.written |= write;
    }
}

/// A launch that is being recorded.
#[must_use = "it is recorded by `add`"]
pub struct RecordedLaunch<'a> {
    recorder: &'a mut Recorder,
    core: Arc<Core>,
    places: SmallVec<[usize; 8]>,
    grid: Option<[u32; 3]>,
    wrong: Option<Error>,
}

impl RecordedLaunch<'_> {
    /// Binds an array of the graph to one of the kernel's buffers, by name.
    pub fn bind<T>(mut self, name: &str, place: Place<T>) -> Self {
        let checked = self.core.slot(name).and_then(|slot| {
            let place = self.recorder.index_of(place)?;
            let spec = &self.recorder.places[place];
            self.core.check_element(slot, spec.ty.as_ref(), spec.size)?;
            Ok((slot, place))
        });
        match checked {
            Ok((slot, place)) => self.places[slot] = place,
            Err(error) => {
                self.wrong.get_or_insert(error);
            }
        }
        self
    }

    /// Workgroups per axis, instead of those that follow from the arrays.
    pub fn grid(mut self, grid: [u32; 3]) -> Self {
        self.grid = Some(grid);
        self
    }

    /// Records it as the next step.
    pub fn add(self) -> Result<(), Error> {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        for (slot, &place) in self.core.slots.iter().zip(&self.places) {
            if place == usize::MAX {
                let message = format!("nothing is bound to buffer `{}`", slot.name);
                return Err(Diagnostic::new(&codes::engine::NOT_SET, message).into());
            }
        }
        for (at, slot) in self.core.slots.iter().enumerate() {
            let writes = slot.access.writes != Writes::None;
            let twice = self.places.iter().enumerate().any(|(other, &place)| other != at && place == self.places[at]);
            if writes && twice {
                let message = format!("`{}` is written and bound to another buffer of the same launch", slot.name);
                return Err(Diagnostic::new(&codes::engine::BOUND_TWICE, message).into());
            }
            // Whether all of it is written is known when the sizes are; until then its contents are kept.
            self.recorder.places[self.places[at]].use_for(true, writes);
        }
        self.recorder.nodes.push(Node::Launch { core: self.core, places: self.places, grid: self.grid });
        Ok(())
    }
}

impl Graph {
    /// The backend that replays it.
    pub fn backend(&self) -> &str {
        self.device.id.as_str()
    }

    /// Number of steps.
    pub fn steps(&self) -> usize {
        self.nodes.len()
    }

    /// A replay without anything bound yet.
    pub fn replay(&self) -> Replay<'_> {
        let args = self.places.iter().map(|_| None).collect();
        Replay { graph: self, args, timeout: None, label: None, wrong: None }
    }

    /// The steps on this memory.
    fn step(&self, node: usize, bindings: &[Binding]) -> Result<Step, Error> {
        match (&self.nodes[node], &self.ready[node]) {
            (Node::Launch { places, .. }, Some(ready)) => {
                let (pipeline, grid) = ready.launch().ok_or_else(not_resident)?;
                let bindings = places.iter().map(|&place| bindings[place].clone()).collect();
                Ok(Step::Launch { pipeline: pipeline.clone(), bindings, grid })
            }
            (Node::Copy { from, to }, _) => Ok(Step::Copy { from: bindings[*from].clone(), to: bindings[*to].clone() }),
            (Node::Launch { .. }, None) => Err(not_resident()),
        }
    }

    /// The pieces of work of a replay; the last is over when all are.
    fn submit(
        &self,
        bindings: SmallVec<[Binding; 8]>,
        deps: &Deps,
        label: Option<&Arc<str>>,
    ) -> Result<Vec<Arc<Job>>, Error> {
        let (backend, inner) = (&self.device.backend, &self.engine.inner);
        let queue = deps.queue.unwrap_or_else(|| self.device.fresh_queue());
        let order = Order { queue, after: &deps.after, deadline: deps.deadline };
        let replay = self.replays.fetch_add(1, Ordering::Relaxed);
        let timed = replay % TIMED_EVERY == TIMED_EVERY - 1 && backend.capabilities().timestamps;
        if self.cancellable || timed || !backend.capabilities().recordings {
            return self.submit_each(&bindings, order, deps, label, timed);
        }
        let mut recorded = lock(&self.recorded);
        let is_known = |known: &Recorded| known.bindings.iter().zip(&bindings).all(|(known, new)| is_same(known, new));
        match recorded.iter().position(is_known) {
            Some(at) => recorded[at..].rotate_left(1),
            None if recorded.len() < MOST_RECORDED => {
                let steps = (0..self.nodes.len()).map(|at| self.step(at, &bindings)).collect::<Result<Vec<_>, _>>()?;
                recorded.push(Recorded { recording: backend.record(&steps)?, bindings });
            }
            None => {
                self.revise(&mut recorded[0], bindings)?;
                recorded.rotate_left(1);
            }
        }
        let Some(known) = recorded.last() else { return Err(not_resident()) };
        let ticket = backend.replay(&known.recording, &order)?;
        Ok(vec![inner.start_job(&self.device, ticket, label, deps.parents.clone())])
    }

    /// Puts other memory in place of what was recorded.
    fn revise(&self, known: &mut Recorded, bindings: SmallVec<[Binding; 8]>) -> Result<(), Error> {
        let changed: SmallVec<[usize; 8]> =
            (0..bindings.len()).filter(|&at| !is_same(&known.bindings[at], &bindings[at])).collect();
        let uses = |node: &Node| match node {
            Node::Launch { places, .. } => places.iter().any(|place| changed.contains(place)),
            Node::Copy { from, to } => changed.contains(from) || changed.contains(to),
        };
        let mut steps = Vec::new();
        for at in (0..self.nodes.len()).filter(|&at| uses(&self.nodes[at])) {
            steps.push((at, self.step(at, &bindings)?));
        }
        self.device.backend.revise(&known.recording, &steps)?;
        known.bindings = bindings;
        Ok(())
    }

    /// One step after another, where the device can't replay them as one or each counts by itself.
    fn submit_each(
        &self,
        bindings: &[Binding],
        order: Order<'_>,
        deps: &Deps,
        label: Option<&Arc<str>>,
        timed: bool,
    ) -> Result<Vec<Arc<Job>>, Error> {
        let (backend, inner) = (&self.device.backend, &self.engine.inner);
        let mut jobs: Vec<Arc<Job>> = Vec::new();
        let mut parents = deps.parents.clone();
        for (at, node) in self.nodes.iter().enumerate() {
            let before: SmallVec<[Ticket; 1]> = jobs.last().iter().map(|job| job.ticket).collect();
            let after = if jobs.is_empty() { order.after } else { &before[..] };
            let order = Order { after, ..order };
            let submitted = self.step(at, bindings).and_then(|step| {
                Ok(match step {
                    Step::Launch { pipeline, bindings, grid } => {
                        backend.submit(&pipeline, &BackendLaunch { bindings: &bindings, grid, timed, order })?
                    }
                    Step::Copy { from, to } => backend.copy(&from, &to, &order)?,
                    Step::Clear(part) => backend.clear(&part, &order)?,
                })
            });
            let ticket = match (submitted, jobs.last()) {
                (Ok(ticket), _) => ticket,
                (Err(error), None) => return Err(error),
                // What was submitted before changes the arrays, so this is no refusal but work that failed.
                (Err(error), Some(last)) => {
                    last.wait_quietly();
                    last.fail(error);
                    return Ok(jobs);
                }
            };
            let job = inner.start_job(&self.device, ticket, label, std::mem::take(&mut parents));
            parents.push(job.clone());
            if timed && let (Node::Launch { core, .. }, Some(ready)) = (node, &self.ready[at]) {
                inner.note_replay(core, ready, &job);
            }
            jobs.push(job);
        }
        Ok(jobs)
    }
}

fn is_same(a: &Binding, b: &Binding) -> bool {
    a.buffer.is_same(&b.buffer) && a.offset == b.offset && a.bytes == b.bytes
}

fn not_resident() -> Error {
    Diagnostic::new(&codes::backend::NOT_RESIDENT, "graphs run on backends with a device-resident path").into()
}

/// A replay in the making.
#[must_use = "nothing runs until `launch` or `run`"]
pub struct Replay<'a> {
    graph: &'a Graph,
    args: SmallVec<[Option<Arg<'a>>; 8]>,
    timeout: Option<Duration>,
    label: Option<Arc<str>>,
    wrong: Option<Error>,
}

impl<'a> Replay<'a> {
    /// Ends the replay when it is not done so long after it is launched. What it would have written is then lost, and nothing else. The
    /// graph has to be recorded as [cancellable](Recorder::cancellable).
    pub fn timeout(mut self, timeout: Duration) -> Replay<'a> {
        self.timeout = Some(timeout);
        if !self.graph.cancellable {
            let message = "the graph was not recorded as cancellable, so that nothing can end a replay at its timeout";
            self.wrong.get_or_insert(Diagnostic::new(&codes::engine::NOT_CANCELLABLE, message).into());
        }
        self
    }

    /// A name for messages and traces.
    pub fn label(mut self, label: &str) -> Replay<'a> {
        self.label = Some(label.into());
        self
    }

    /// Gives an open place its array, by name: `&mut` where the graph writes it, else `&` will do, or a value such as `2.5f32`.
    pub fn bind(self, name: &str, what: impl Bindable<'a>) -> Replay<'a> {
        self.bind_bound(name, what.into_bound())
    }

    /// Gives an open place of one element its contents.
    pub fn value<T: Element>(self, name: &str, value: &T) -> Replay<'a> {
        let bytes = ValueBytes::from_slice(bytemuck::bytes_of(value));
        self.bind_bound(name, Bound::of::<T>(Arg::Value(bytes)))
    }

    fn bind_bound(mut self, name: &str, bound: Bound<'a>) -> Replay<'a> {
        if let Some(wrong) = bound.wrong {
            self.wrong.get_or_insert(wrong);
            return self;
        }
        let found = self.graph.places.iter().position(|place| place.name.as_deref() == Some(name));
        let checked = match found {
            None => {
                let names: Vec<&str> = self.graph.places.iter().filter_map(|place| place.name.as_deref()).collect();
                let message = format!("`{name}` is not a place of the graph; known: {}", names.join(", "));
                Err(Diagnostic::new(&codes::engine::UNKNOWN_BUFFER, message))
            }
            Some(at) => self.graph.places[at].check(name, &bound).map(|()| at),
        };
        match checked {
            Ok(at) => self.args[at] = Some(bound.arg),
            Err(problem) => {
                self.wrong.get_or_insert(problem.into());
            }
        }
        self
    }

    /// Queues the whole sequence and returns at once.
    pub fn launch(mut self) -> Result<Launch, Error> {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        let graph = self.graph;
        let inner = &graph.engine.inner;
        inner.metrics.add(Counter::Dispatches, 1);
        let deadline = self.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let alarm = inner.watcher.alarm(deadline)?;
        let mut deps = Deps::until(deadline);
        let mut bindings: SmallVec<[Binding; 8]> = SmallVec::new();
        let mut unshared: SmallVec<[(usize, Arc<Storage>); 2]> = SmallVec::new();
        let mut values: SmallVec<[Option<Arc<Storage>>; 8]> = SmallVec::new();
        for arg in &self.args {
            values.push(match arg {
                Some(Arg::Value(bytes)) => {
                    let memory = inner.host.take(bytes.len() as u64, false)?;
                    memory.fill(0, bytes);
                    Some(Storage::of_host(inner, memory, bytes.len() as u64))
                }
                _ => None,
            });
        }
        for (at, place) in graph.places.iter().enumerate() {
            let storage: &Arc<Storage> = match (place.own.as_ref().or(values[at].as_ref()), &mut self.args[at]) {
                (Some(own), _) => own,
                (None, Some(Arg::Read(storage, _))) => storage,
                (None, Some(Arg::Write(storage))) => {
                    if place.written && Arc::strong_count(storage) > 1 {
                        unshared.push((at, storage.duplicate()?));
                        &unshared[unshared.len() - 1].1
                    } else {
                        storage
                    }
                }
                (None, _) => {
                    let name = place.name.as_deref().unwrap_or_default();
                    let message = format!("nothing is bound to place `{name}` of the graph");
                    return Err(Diagnostic::new(&codes::engine::NOT_SET, message).into());
                }
            };
            let whole = 0..storage.bytes;
            bindings.push(storage.prepare(&graph.device, &whole, place.keep, place.written, &mut deps)?);
        }
        let mut jobs = graph.submit(bindings, &deps, self.label.as_ref())?;
        let empty = || Diagnostic::new(&codes::engine::NOT_RUN, "the graph has no steps");
        let job = jobs.pop().ok_or_else(empty)?;
        if let Some(alarm) = alarm {
            jobs.iter().chain([&job]).for_each(|job| alarm.end(job));
        }
        for (at, own) in unshared {
            if let Some(Arg::Write(storage)) = &mut self.args[at] {
                **storage = own;
            }
        }
        for ((place, arg), value) in graph.places.iter().zip(&self.args).zip(&values) {
            let storage = match (place.own.as_ref().or(value.as_ref()), arg) {
                (Some(own), _) => own,
                (None, Some(Arg::Read(storage, _))) => *storage,
                (None, Some(Arg::Write(storage))) => &**storage,
                (None, _) => continue,
            };
            storage.launched(&job, &(0..storage.bytes), place.written);
        }
        graph.device.throttle(job.ticket);
        Ok(Launch::of_many(jobs, job))
    }

    /// Replays and waits.
    pub fn run(self) -> Result<(), Error> {
        self.launch()?.wait()
    }
}
