//! Sequences of launches that are recorded once and replayed as one.

mod part;

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use vyre_driver::backend::{Binding, INDIRECT_BYTES};
use vyre_driver::metrics::Counter;
use vyre_foundation::ir::DataType;
use vyre_foundation::launch::Writes;
use vyre_spec::{BackendId, Diagnostic, codes};

use self::part::{Part, not_resident};
use crate::array::{Buffer, Element, same_length};
use crate::engine::{Arg, Core, Inner, Ready, Request, ValueBytes, lock};
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

impl<T> Place<T> {
    /// Its position among the places of a recorder, and of the graph that was made of it.
    fn index_in(self, recorder: u64) -> Result<usize, Error> {
        if self.recorder != recorder {
            return Err(Diagnostic::new(&codes::engine::UNKNOWN_BUFFER, "the place belongs to another graph").into());
        }
        Ok(self.index)
    }
}

struct PlaceSpec {
    /// What a replay binds to it; `None` where it is the graph's own.
    name: Option<String>,
    bytes: u64,
    ty: Option<DataType>,
    size: usize,
    written: bool,
    own: Option<Arc<Storage>>,
}

#[allow(clippy::large_enum_variant, reason = "nearly all nodes are launches")]
enum Node {
    Launch { core: Arc<Core>, places: SmallVec<[usize; 8]>, request: Request, size_from: Option<SizeAt> },
    Copy { from: usize, to: usize },
}

/// The place where the size of a launch stands.
struct SizeAt {
    place: usize,
    /// It counts invocations, not workgroups.
    is_domain: bool,
}

/// A recorded sequence of launches and copies with open places for arrays. Replaying it is one submission where the device can, and
/// skips planning and choosing everywhere. Its steps run one after another on one device; where launches name several, steps in a row
/// on one device are submitted together, and what they have in common is moved between.
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
    /// The recorder's, whose places are the graph's.
    number: u64,
    engine: Engine,
    /// Held while a replay is submitted that has arrays of the graph's own: whichever thread replays it, they are used in turn.
    turn: Mutex<()>,
    places: Vec<PlaceSpec>,
    parts: Vec<Part>,
    steps: usize,
    cancellable: bool,
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

    /// An array of so many zeros that is the graph's own and keeps its contents between replays. [`Graph::write`] gives it others, and has
    /// to where a replay was ended or failed before it had written what the next one goes on from; [`Graph::read`] reads it.
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
        place.index_in(self.number)
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
        let request = Request { interruptible: self.cancellable, ..Request::default() };
        RecordedLaunch { recorder: self, core, places, request, size_from: None, wrong: None }
    }

    /// A copy of a whole array as the next step.
    pub fn copy<T>(&mut self, from: Place<T>, to: Place<T>) -> Result<(), Error> {
        let (from, to) = (self.index_of(from)?, self.index_of(to)?);
        if self.places[from].bytes != self.places[to].bytes {
            return Err(Diagnostic::new(&codes::engine::SHAPE, "the two arrays of a copy differ in length").into());
        }
        self.places[to].written = true;
        self.nodes.push(Node::Copy { from, to });
        Ok(())
    }

    /// Compiles and keeps the sequence.
    pub fn finish(self) -> Result<Graph, Error> {
        let Recorder { number, engine, places, nodes, on, cancellable } = self;
        let (steps, inner) = (nodes.len(), &engine.inner);
        let device = on.as_ref().map(|id| inner.device(id.as_str())).transpose()?;
        let mut parts = Parts { engine: inner, places, parts: Vec::new(), device, cancellable };
        for node in nodes {
            parts.add(node)?;
        }
        let Parts { places, parts, .. } = parts;
        Ok(Graph { number, engine, turn: Mutex::new(()), places, parts, steps, cancellable })
    }
}

/// A graph's parts in the making.
struct Parts<'a> {
    engine: &'a Arc<Inner>,
    places: Vec<PlaceSpec>,
    parts: Vec<Part>,
    /// For what names no other.
    device: Option<Arc<Device>>,
    cancellable: bool,
}

impl Parts<'_> {
    fn add(&mut self, node: Node) -> Result<(), Error> {
        match node {
            Node::Copy { from, to } => {
                let latest = self.parts.last().map(|part| part.device.clone());
                let device = match latest.or_else(|| self.device.clone()) {
                    Some(device) => device,
                    None => self.engine.any_device()?,
                };
                self.part(&device, false).add_copy(from, to);
                Ok(())
            }
            Node::Launch { core, places, request, size_from } => self.add_launch(&core, &places, request, size_from),
        }
    }

    fn add_launch(
        &mut self,
        core: &Arc<Core>,
        places: &[usize],
        request: Request,
        size_from: Option<SizeAt>,
    ) -> Result<(), Error> {
        let named = request.on.as_ref().or(core.only.as_ref());
        let device = named.map(|id| self.engine.device(id.as_str())).transpose()?.or_else(|| self.device.clone());
        let sizes = places.iter().map(|&place| self.places[place].bytes).collect();
        let ready = self.engine.ready_for_graph(core, &sizes, &request, device.as_ref())?;
        if ready.launch().is_none() {
            return Err(not_resident());
        }
        let device = self.device.get_or_insert_with(|| ready.device().clone()).clone();
        let device = if named.is_some() { ready.device().clone() } else { device };
        let grid_at = size_from.map(|from| self.add_grid(&from, &ready, &request)).transpose()?;
        let used = self.used(core, places);
        self.part(&device, grid_at.is_some()).add_launch(core, ready, request, &used, grid_at);
        Ok(())
    }

    /// Adds the step that makes the grid of a launch whose size stands in an array; the place of the grid.
    fn add_grid(&mut self, from: &SizeAt, ready: &Arc<Ready>, request: &Request) -> Result<usize, Error> {
        let core = self.engine.grid_core()?;
        let sizes = ready.grid_sizes(from.is_domain);
        let memory = self.engine.host.take(sizes.len() as u64, false)?;
        memory.fill(0, &sizes);
        let sizes = self.own(Storage::of_host(self.engine, memory, sizes.len() as u64));
        let grid = self.own(Storage::zeros(self.engine, INDIRECT_BYTES as u64));
        let places = [from.place, sizes, grid];
        let request = Request { interruptible: request.interruptible, ..Request::default() };
        let bytes = places.iter().map(|&place| self.places[place].bytes).collect();
        let made = self.engine.ready_for_graph(&core, &bytes, &request, Some(ready.device()))?;
        let used = self.used(&core, &places);
        self.part(ready.device(), false).add_launch(&core, made, request, &used, None);
        Ok(grid)
    }

    /// A place of the graph's own.
    fn own(&mut self, storage: Arc<Storage>) -> usize {
        self.places.push(PlaceSpec { own: Some(storage.clone()), ..PlaceSpec::new(None, storage.bytes, None, 1) });
        self.places.len() - 1
    }

    /// The places of a launch, their bytes, and whether it writes them.
    fn used(&self, core: &Core, places: &[usize]) -> SmallVec<[(usize, u64, bool); 8]> {
        let slots = places.iter().zip(&core.slots);
        slots.map(|(&place, slot)| (place, self.places[place].bytes, slot.access.writes != Writes::None)).collect()
    }

    /// The part that the next step on a device belongs to.
    fn part(&mut self, device: &Arc<Device>, is_indirect: bool) -> &mut Part {
        if !self.parts.last().is_some_and(|part| part.takes(device, is_indirect)) {
            self.parts.push(Part::new(device, is_indirect, self.cancellable));
        }
        let last = self.parts.len() - 1;
        &mut self.parts[last]
    }
}

impl PlaceSpec {
    fn new(name: Option<String>, bytes: u64, ty: Option<DataType>, size: usize) -> PlaceSpec {
        PlaceSpec { name, bytes, ty, size, written: false, own: None }
    }

    /// Says how to go on where an array of the graph's own is lost, of which nobody else has a handle.
    fn explain_loss(&self, storage: &Storage, error: Error) -> Error {
        match storage.check_lost(&(0..storage.bytes)) {
            Err(lost) if self.own.is_some() => lost
                .retold(format!("an array of the graph's own is lost, which a replay goes on from: {}", lost.message()))
                .with_fix("Give it contents with `Graph::write`, or record it as a place that each replay is given."),
            _ => error,
        }
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
}

/// A launch that is being recorded.
#[must_use = "it is recorded by `add`"]
pub struct RecordedLaunch<'a> {
    recorder: &'a mut Recorder,
    core: Arc<Core>,
    places: SmallVec<[usize; 8]>,
    request: Request,
    size_from: Option<SizeAt>,
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
        self.request.grid = Some(grid);
        self
    }

    /// Invocations per axis, instead of those that follow from the arrays; rounded up to whole workgroups of whatever size.
    pub fn domain(mut self, domain: [u64; 3]) -> Self {
        self.request.domain = Some(domain);
        self
    }

    /// Workgroups per axis, read from three u32 of the graph when the launch's turn comes: earlier steps may write them. No more run than
    /// without this. Such a step is submitted by itself; see [`Call::grid_from`](crate::Call::grid_from) for where the host waits.
    pub fn grid_from(self, grid: Place<u32>) -> Self {
        self.size_from(grid, 3..=3, false)
    }

    /// Invocations, read from one to three u32 of the graph, one for each axis; rounded up to whole workgroups. Otherwise as
    /// [`grid_from`](Self::grid_from).
    pub fn domain_from(self, domain: Place<u32>) -> Self {
        self.size_from(domain, 1..=3, true)
    }

    fn size_from(mut self, numbers: Place<u32>, allowed: std::ops::RangeInclusive<u64>, is_domain: bool) -> Self {
        let checked = self.recorder.index_of(numbers).and_then(|place| {
            let count = self.recorder.places[place].bytes / 4;
            if allowed.contains(&count) {
                return Ok(place);
            }
            let message = format!("the size of a launch is {} numbers, not {count}", allowed.end());
            Err(Diagnostic::new(&codes::engine::SHAPE, message).into())
        });
        match checked {
            Ok(place) => self.size_from = Some(SizeAt { place, is_domain }),
            Err(error) => {
                self.wrong.get_or_insert(error);
            }
        }
        self
    }

    /// One backend and no other, instead of the graph's.
    pub fn on(mut self, backend: &str) -> Self {
        self.request.on = Some(backend.into());
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
            self.recorder.places[self.places[at]].written |= writes;
        }
        let RecordedLaunch { recorder, core, places, request, size_from, .. } = self;
        recorder.nodes.push(Node::Launch { core, places, request, size_from });
        Ok(())
    }
}

impl Graph {
    /// The backend that replays its first steps, which are all where no launch names another.
    pub fn backend(&self) -> &str {
        self.parts.first().map_or("", |part| part.device.id.as_str())
    }

    /// Number of steps.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// Gives an array of the graph's own these contents, after the replays that were launched before. They are copied before this returns.
    ///
    /// ```
    /// # fn main() -> Result<(), vyre::Error> {
    /// # let engine = vyre::Engine::builder().without_disk().open()?;
    /// # let add = engine.kernel(&vyre::wgsl("
    /// #     @group(0) @binding(0) var<storage, read> a: array<f32>;
    /// #     @group(0) @binding(1) var<storage, read_write> sum: array<f32>;
    /// #     @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    /// #         if id.x < arrayLength(&sum) { sum[id.x] += a[id.x]; }
    /// #     }")?)?;
    /// let mut recorder = engine.record();
    /// let (a, sum) = (recorder.place::<f32>("a", 2), recorder.array::<f32>(2));
    /// recorder.launch(&add).bind("a", a).bind("sum", sum).add()?;
    /// let graph = recorder.finish()?;
    /// graph.write(sum, &[10.0, 20.0])?;
    /// for _ in 0..3 {
    ///     graph.replay().bind("a", &engine.array(&[1.0f32, 2.0])?).launch()?;
    /// }
    /// assert_eq!(graph.read(sum)?, [13.0, 26.0]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn write<T: Element>(&self, place: Place<T>, elements: &[T]) -> Result<(), Error> {
        let storage = self.own(place)?;
        same_length(storage.bytes as usize / size_of::<T>().max(1), elements.len())?;
        let _turn = lock(&self.turn);
        storage.write(0, bytemuck::cast_slice(elements), None)
    }

    /// The elements of an array of the graph's own, after the replays that were launched before.
    pub fn read<T: Element>(&self, place: Place<T>) -> Result<Vec<T>, Error> {
        let storage = self.own(place)?;
        let mut elements = vec![T::zeroed(); storage.bytes as usize / size_of::<T>().max(1)];
        storage.read(0, bytemuck::cast_slice_mut(&mut elements), None)?;
        Ok(elements)
    }

    fn own<T>(&self, place: Place<T>) -> Result<&Arc<Storage>, Error> {
        let spec = &self.places[place.index_in(self.number)?];
        spec.own.as_ref().ok_or_else(|| {
            let name = spec.name.as_deref().unwrap_or_default();
            let message = format!("place `{name}` is no array of the graph's own: each replay is given one");
            Diagnostic::new(&codes::engine::UNKNOWN_BUFFER, message)
                .with_fix("Use the array that is bound to it.")
                .into()
        })
    }

    /// A replay without anything bound yet.
    pub fn replay(&self) -> Replay<'_> {
        let args = self.places.iter().map(|_| None).collect();
        Replay { graph: self, args, timeout: None, label: None, wrong: None }
    }

    /// Submits one part after another on these arrays, one for each place. An error means that nothing was submitted.
    fn submit(
        &self,
        storages: &[&Arc<Storage>],
        deadline: Option<Instant>,
        label: Option<&Arc<str>>,
    ) -> Result<Vec<Arc<Job>>, Error> {
        let mut jobs: Vec<Arc<Job>> = Vec::new();
        let _turn = self.places.iter().any(|place| place.own.is_some()).then(|| lock(&self.turn));
        for part in &self.parts {
            match self.submit_part(part, storages, deadline, label) {
                Ok(of_part) => jobs.extend(of_part),
                Err(error) if jobs.is_empty() => return Err(error),
                // What was submitted before changes the arrays, so this is no refusal but work that failed.
                Err(error) => {
                    for (storage, _) in storages.iter().zip(&self.places).filter(|(_, place)| place.written) {
                        storage.lose(&error);
                    }
                    if let Some(last) = jobs.last() {
                        last.wait_quietly();
                        last.fail(error);
                    }
                    break;
                }
            }
        }
        Ok(jobs)
    }

    fn submit_part(
        &self,
        part: &Part,
        storages: &[&Arc<Storage>],
        deadline: Option<Instant>,
        label: Option<&Arc<str>>,
    ) -> Result<Vec<Arc<Job>>, Error> {
        let mut deps = Deps::until(deadline);
        let mut bindings: SmallVec<[Binding; 8]> = SmallVec::new();
        for used in &part.places {
            let storage = storages[used.place];
            let whole = 0..storage.bytes;
            let prepared = storage.prepare(&part.device, &whole, used.keep, used.written, &mut deps);
            bindings.push(prepared.map_err(|error| self.places[used.place].explain_loss(storage, error))?);
        }
        let jobs = part.submit(&self.engine.inner, bindings, &deps, label)?;
        if let Some(last) = jobs.last() {
            for used in &part.places {
                let storage = storages[used.place];
                storage.launched(last, &(0..storage.bytes), used.written);
            }
            part.device.throttle(last.ticket);
        }
        Ok(jobs)
    }
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
        let mut own: SmallVec<[Option<Arc<Storage>>; 8]> = SmallVec::new();
        for (place, arg) in graph.places.iter().zip(&self.args) {
            own.push(match arg {
                Some(Arg::Value(bytes)) => {
                    let memory = inner.host.take(bytes.len() as u64, false)?;
                    memory.fill(0, bytes);
                    Some(Storage::of_host(inner, memory, bytes.len() as u64))
                }
                // What is written is made a value of its own first.
                Some(Arg::Write(storage)) if place.written && Arc::strong_count(storage) > 1 => {
                    Some(storage.duplicate()?)
                }
                _ => None,
            });
        }
        let mut storages: SmallVec<[&Arc<Storage>; 8]> = SmallVec::new();
        for ((place, arg), own) in graph.places.iter().zip(&self.args).zip(&own) {
            storages.push(match (place.own.as_ref().or(own.as_ref()), arg) {
                (Some(own), _) => own,
                (None, Some(Arg::Read(storage, _))) => storage,
                (None, Some(Arg::Write(storage))) => storage,
                (None, _) => {
                    let name = place.name.as_deref().unwrap_or_default();
                    let message = format!("nothing is bound to place `{name}` of the graph");
                    return Err(Diagnostic::new(&codes::engine::NOT_SET, message).into());
                }
            });
        }
        let mut jobs = graph.submit(&storages, deadline, self.label.as_ref())?;
        drop(storages);
        let empty = || Diagnostic::new(&codes::engine::NOT_RUN, "the graph has no steps");
        let job = jobs.pop().ok_or_else(empty)?;
        if let Some(alarm) = alarm {
            jobs.iter().chain([&job]).for_each(|job| alarm.end(job));
        }
        for (arg, own) in self.args.iter_mut().zip(own) {
            if let (Some(Arg::Write(storage)), Some(own)) = (arg, own) {
                **storage = own;
            }
        }
        Ok(Launch::of_many(jobs, job))
    }

    /// Replays and waits.
    pub fn run(self) -> Result<(), Error> {
        self.launch()?.wait()
    }
}
