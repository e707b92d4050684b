//! Steps in a row on one device: how they are submitted, as one where the device can.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use smallvec::SmallVec;
use vyre_driver::backend::{Binding, Order, Recording, Step, Ticket};
use vyre_spec::{Diagnostic, codes};

use crate::Error;
use crate::engine::{Core, Inner, Ready, Request, lock};
use crate::runtime::{Deps, Device, Job};

/// Steps in a row on one device. Those whose size stands in an array are in parts of their own, and are submitted one by one.
pub(super) struct Part {
    pub(super) device: Arc<Device>,
    /// The places of the graph that its steps use; steps name them by their position here.
    pub(super) places: Vec<Use>,
    nodes: Vec<Node>,
    is_indirect: bool,
    /// Steps can be ended while they run, and are submitted one by one for that.
    is_cancellable: bool,
    state: Mutex<State>,
    replays: AtomicU64,
}

/// How a part uses a place of the graph.
pub(super) struct Use {
    pub(super) place: usize,
    /// The first step that uses it needs what it held before.
    pub(super) keep: bool,
    pub(super) written: bool,
}

#[allow(clippy::large_enum_variant, reason = "nearly all nodes are launches")]
enum Node {
    Launch {
        core: Arc<Core>,
        request: Request,
        bindings: SmallVec<[usize; 8]>,
        sizes: SmallVec<[u64; 8]>,
        /// Where its grid stands.
        grid_at: Option<usize>,
    },
    Copy {
        from: usize,
        to: usize,
    },
}

struct State {
    /// For each launch, what it needs on the device. Shared, so that nobody is kept from it while steps are submitted.
    ready: Arc<Vec<Option<Arc<Ready>>>>,
    /// Something is still being learnt of them.
    is_learning: bool,
    /// The one that was replayed last is the last.
    recorded: Vec<Recorded>,
}

/// What the device has recorded, and for which memory.
struct Recorded {
    recording: Arc<dyn Recording>,
    bindings: SmallVec<[Binding; 8]>,
}

/// One replay in so many is taken apart, so that its launches are timed, and more while something is being learnt of them.
const TIMED_EVERY: u64 = 256;
const LEARNING_EVERY: u64 = 64;

/// Recordings of one graph: a loop that swaps two arrays comes back to the same memory every other time, and changing every step of a
/// recording takes longer than replaying it. Each keeps the memory that it was made for, so there are no more than these.
const MOST_RECORDED: usize = 2;

impl Part {
    pub(super) fn new(device: &Arc<Device>, is_indirect: bool, is_cancellable: bool) -> Part {
        Part {
            device: device.clone(),
            places: Vec::new(),
            nodes: Vec::new(),
            is_indirect,
            is_cancellable,
            state: Mutex::new(State { ready: Arc::default(), is_learning: false, recorded: Vec::new() }),
            replays: AtomicU64::new(0),
        }
    }

    /// Another step can be one of these.
    pub(super) fn takes(&self, device: &Arc<Device>, is_indirect: bool) -> bool {
        Arc::ptr_eq(&self.device, device) && self.is_indirect == is_indirect
    }

    fn uses(&mut self, place: usize, keep: bool, written: bool) -> usize {
        match self.places.iter().position(|known| known.place == place) {
            Some(at) => {
                self.places[at].written |= written;
                at
            }
            None => {
                self.places.push(Use { place, keep, written });
                self.places.len() - 1
            }
        }
    }

    /// Adds a launch on places of the graph, of which some are written.
    pub(super) fn add_launch(
        &mut self,
        core: &Arc<Core>,
        ready: Arc<Ready>,
        request: Request,
        places: &[(usize, u64, bool)],
        grid_at: Option<usize>,
    ) {
        let uses = places.iter().enumerate();
        let bindings = uses.map(|(slot, &(place, _, written))| self.uses(place, ready.keeps(slot), written)).collect();
        let grid_at = grid_at.map(|place| self.uses(place, true, false));
        let sizes = places.iter().map(|&(_, bytes, _)| bytes).collect();
        self.nodes.push(Node::Launch { core: core.clone(), request, bindings, sizes, grid_at });
        self.add_ready(Some(ready));
    }

    pub(super) fn add_copy(&mut self, from: usize, to: usize) {
        let (from, to) = (self.uses(from, true, false), self.uses(to, false, true));
        self.nodes.push(Node::Copy { from, to });
        self.add_ready(None);
    }

    fn add_ready(&mut self, ready: Option<Arc<Ready>>) {
        let state = self.state.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        state.is_learning |= ready.as_ref().is_some_and(|ready| ready.is_learning());
        Arc::make_mut(&mut state.ready).push(ready);
    }

    /// Submits the steps on this memory, one binding for each place; the last of the pieces of work is over when all are.
    pub(super) fn submit(
        &self,
        engine: &Arc<Inner>,
        bindings: SmallVec<[Binding; 8]>,
        deps: &Deps,
        label: Option<&Arc<str>>,
    ) -> Result<Vec<Arc<Job>>, Error> {
        let backend = &self.device.backend;
        let order = deps.order(self.device.queue_of(deps));
        let replay = self.replays.fetch_add(1, Ordering::Relaxed);
        let mut state = lock(&self.state);
        let every = if state.is_learning { LEARNING_EVERY } else { TIMED_EVERY };
        let is_timed = replay % every == every - 1 && backend.capabilities().timestamps;
        if is_timed {
            self.renew(engine, &mut state)?;
        }
        if self.is_cancellable || self.is_indirect || is_timed || !backend.capabilities().recordings {
            let ready = state.ready.clone();
            drop(state);
            return self.submit_each(engine, &ready, &bindings, order, deps, label, is_timed);
        }
        let State { ready, recorded, .. } = &mut *state;
        let is_known = |known: &Recorded| known.bindings.iter().zip(&bindings).all(|(known, new)| is_same(known, new));
        match recorded.iter().position(is_known) {
            Some(at) => recorded[at..].rotate_left(1),
            None if recorded.len() < MOST_RECORDED => {
                let steps =
                    (0..self.nodes.len()).map(|at| self.step(at, ready, &bindings)).collect::<Result<Vec<_>, _>>()?;
                recorded.push(Recorded { recording: backend.record(&steps)?, bindings });
            }
            None => {
                self.revise(ready, &mut recorded[0], bindings)?;
                recorded.rotate_left(1);
            }
        }
        let Some(known) = recorded.last() else { return Err(not_resident()) };
        let ticket = backend.replay(&known.recording, &order)?;
        Ok(vec![engine.start_job(&self.device, ticket, label, deps.parents.clone())])
    }

    /// Takes over what was decided for its launches since they were recorded.
    fn renew(&self, engine: &Arc<Inner>, state: &mut State) -> Result<(), Error> {
        for (at, node) in self.nodes.iter().enumerate() {
            // The grid of a launch whose size stands in an array is made for the workgroups that it was recorded with.
            let Node::Launch { core, request, sizes, grid_at: None, .. } = node else { continue };
            let now = engine.ready_for_graph(core, sizes, request, Some(&self.device))?;
            if !state.ready[at].as_ref().is_some_and(|known| Arc::ptr_eq(known, &now)) {
                Arc::make_mut(&mut state.ready)[at] = Some(now);
                state.recorded.clear();
            }
        }
        state.is_learning = state.ready.iter().flatten().any(|ready| ready.is_learning());
        Ok(())
    }

    /// A step on this memory.
    fn step(&self, node: usize, ready: &[Option<Arc<Ready>>], bindings: &[Binding]) -> Result<Step, Error> {
        match (&self.nodes[node], &ready[node]) {
            (Node::Launch { bindings: places, .. }, Some(ready)) => {
                let (pipeline, grid) = ready.launch().ok_or_else(not_resident)?;
                let bindings = places.iter().map(|&place| bindings[place].clone()).collect();
                Ok(Step::Launch { pipeline: pipeline.clone(), bindings, grid })
            }
            (Node::Copy { from, to }, _) => Ok(Step::Copy { from: bindings[*from].clone(), to: bindings[*to].clone() }),
            (Node::Launch { .. }, None) => Err(not_resident()),
        }
    }

    /// Puts other memory in place of what was recorded.
    fn revise(
        &self,
        ready: &[Option<Arc<Ready>>],
        known: &mut Recorded,
        bindings: SmallVec<[Binding; 8]>,
    ) -> Result<(), Error> {
        let changed: SmallVec<[usize; 8]> =
            (0..bindings.len()).filter(|&at| !is_same(&known.bindings[at], &bindings[at])).collect();
        let uses = |node: &Node| match node {
            Node::Launch { bindings, .. } => bindings.iter().any(|place| changed.contains(place)),
            Node::Copy { from, to } => changed.contains(from) || changed.contains(to),
        };
        let mut steps = Vec::with_capacity(self.nodes.len());
        for at in (0..self.nodes.len()).filter(|&at| uses(&self.nodes[at])) {
            steps.push((at, self.step(at, ready, &bindings)?));
        }
        self.device.backend.revise(&known.recording, &steps)?;
        known.bindings = bindings;
        Ok(())
    }

    /// One step after another, where the device can't replay them as one or each counts by itself.
    #[allow(clippy::too_many_arguments, reason = "what a replay has, and whether it is timed")]
    fn submit_each(
        &self,
        engine: &Arc<Inner>,
        ready: &[Option<Arc<Ready>>],
        bindings: &[Binding],
        order: Order<'_>,
        deps: &Deps,
        label: Option<&Arc<str>>,
        is_timed: bool,
    ) -> Result<Vec<Arc<Job>>, Error> {
        let mut jobs: Vec<Arc<Job>> = Vec::new();
        let mut parents = deps.parents.clone();
        for (at, node) in self.nodes.iter().enumerate() {
            let before: SmallVec<[Ticket; 1]> = jobs.last().iter().map(|job| job.ticket).collect();
            let after = if jobs.is_empty() { order.after } else { &before[..] };
            let order = Order { after, ..order };
            let submitted = match (node, &ready[at]) {
                (Node::Launch { core, request, bindings: places, grid_at, .. }, Some(ready)) => {
                    let bound: SmallVec<[Binding; 8]> = places.iter().map(|&place| bindings[place].clone()).collect();
                    let grid = grid_at.map(|place| &bindings[place]);
                    engine.submit(core, ready, request, &bound, order, grid, is_timed).map(|submitted| {
                        let ticket = submitted.ticket;
                        (ticket, Some((core, ready, submitted)))
                    })
                }
                (Node::Copy { from, to }, _) => {
                    let copied = self.device.backend.copy(&bindings[*from], &bindings[*to], &order);
                    copied.map(|ticket| (ticket, None)).map_err(Error::from)
                }
                (Node::Launch { .. }, None) => Err(not_resident()),
            };
            let (ticket, launched) = match (submitted, jobs.last()) {
                (Ok(submitted), _) => submitted,
                (Err(error), None) => return Err(error),
                // What was submitted before changes the arrays, so this is no refusal but work that failed.
                (Err(error), Some(last)) => {
                    last.wait_quietly();
                    last.fail(error);
                    return Ok(jobs);
                }
            };
            let job = engine.start_job(&self.device, ticket, label, std::mem::take(&mut parents));
            parents.push(job.clone());
            if let Some((core, ready, submitted)) = launched {
                engine.note_timing(core, ready, &job, &submitted, &Deps::default());
            }
            jobs.push(job);
        }
        Ok(jobs)
    }
}

fn is_same(a: &Binding, b: &Binding) -> bool {
    a.buffer.is_same(&b.buffer) && a.offset == b.offset && a.bytes == b.bytes
}

pub(super) fn not_resident() -> Error {
    Diagnostic::new(&codes::backend::NOT_RESIDENT, "graphs run on backends with a device-resident path").into()
}
