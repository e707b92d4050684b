//! Recordings are CUDA graphs: one node after another, whose parameters can be changed.

use std::sync::{Arc, Mutex};

use vyre_driver::BackendError;
use vyre_driver::backend::{Binding, Order, Recording, Step, Ticket};
use vyre_spec::codes;

use crate::api::{DevicePointer, Handle, KernelLaunch, Node};
use crate::device::{Device, Failure, Leftover, Uses, locked};
use crate::launch::{self, Words};
use crate::memory::CudaBuffer;

/// Copies in a graph are at most this long; the driver counts a row's bytes with 31 bits.
const LONGEST_COPY: u64 = 1 << 30;

/// Recorded steps.
pub(crate) struct CudaRecording {
    device: Arc<Device>,
    graph: Mutex<Graph>,
    uses: Uses,
    count: usize,
}

struct Graph {
    graph: Handle,
    ready: Handle,
    /// The nodes of each step.
    nodes: Vec<Vec<Handle>>,
    steps: Vec<Step>,
    /// The count at which the memory of every buffer is ready.
    memory_ready: u64,
    /// Some nodes do what no step says, because changing them failed half-way.
    is_stale: bool,
}

/// What a node of a step does.
enum Part {
    Kernel(KernelLaunch, Vec<u64>),
    Copy { from: DevicePointer, to: DevicePointer, bytes: u64 },
    Clear { at: DevicePointer, bytes: u64 },
}

impl Part {
    fn node(&mut self) -> Node<'_> {
        match self {
            Part::Kernel(launch, params) => Node::Kernel(*launch, params),
            Part::Copy { from, to, bytes } => Node::Copy { from: *from, to: *to, bytes: *bytes as usize },
            Part::Clear { at, bytes } => Node::Clear { at: *at, bytes: *bytes as usize },
        }
    }
}

/// A part of one of our buffers: where it is, and the count at which its memory is ready.
pub(crate) fn place(part: &Binding, device: &Arc<Device>, backend: &str) -> Result<(DevicePointer, u64), BackendError> {
    let buffer = part.buffer.of::<CudaBuffer>(backend)?;
    part.buffer.check_range(part.offset, part.bytes)?;
    Ok((buffer.pointer(device)? + part.offset, buffer.ready))
}

/// Refuses a copy between parts of different sizes, or parts that overlap.
pub(crate) fn check_copy(from: &Binding, to: &Binding) -> Result<(), BackendError> {
    let refused = |what: String| Err(BackendError::with_code(&codes::backend::BAD_RANGE, what));
    if from.bytes != to.bytes {
        return refused(format!("{} bytes can't be copied to {}", from.bytes, to.bytes));
    }
    if from.buffer.is_same(&to.buffer) && from.offset < to.offset + to.bytes && to.offset < from.offset + from.bytes {
        return refused("a copy's two parts overlap".to_owned());
    }
    Ok(())
}

/// The nodes that do a step, and the count at which its memory is ready.
fn parts(step: &Step, device: &Arc<Device>, backend: &str) -> Result<(Vec<Part>, u64), BackendError> {
    let pieces =
        |bytes: u64| (0..bytes).step_by(LONGEST_COPY as usize).map(move |at| (at, LONGEST_COPY.min(bytes - at)));
    let mut parts = Vec::new();
    let ready = match step {
        Step::Launch { pipeline, bindings, grid } => {
            let pipeline = launch::pipeline_of(pipeline, device, backend)?;
            let (mut params, ready) = launch::bind(pipeline, bindings, device, backend)?;
            // Nobody asks when one launch of a recording began, and nobody stops one.
            let words = Words { mark: 0, number: 0, stop: device.stops.never };
            launch::for_each_part(pipeline, &mut params, *grid, words, |launch, params| {
                parts.push(Part::Kernel(*launch, params.to_vec()));
                Ok::<_, BackendError>(())
            })?;
            ready
        }
        Step::Copy { from, to } => {
            let ((source, from_ready), (target, to_ready)) =
                (place(from, device, backend)?, place(to, device, backend)?);
            check_copy(from, to)?;
            let copies = pieces(from.bytes);
            parts.extend(copies.map(|(at, bytes)| Part::Copy { from: source + at, to: target + at, bytes }));
            from_ready.max(to_ready)
        }
        Step::Clear(part) => {
            let (target, ready) = place(part, device, backend)?;
            parts.extend(pieces(part.bytes).map(|(at, bytes)| Part::Clear { at: target + at, bytes }));
            ready
        }
    };
    Ok((parts, ready))
}

fn made_of(steps: &[Step], device: &Arc<Device>, backend: &str) -> Result<(Vec<Vec<Part>>, u64), BackendError> {
    let (mut all, mut memory_ready) = (Vec::with_capacity(steps.len()), 0);
    for step in steps {
        let (parts, ready) = parts(step, device, backend)?;
        all.push(parts);
        memory_ready = memory_ready.max(ready);
    }
    Ok((all, memory_ready))
}

impl Graph {
    fn new(device: &Device, steps: Vec<Step>, mut parts: Vec<Vec<Part>>, memory_ready: u64) -> Result<Graph, Failure> {
        let (api, context) = (device.api, device.context);
        let graph = api.create_graph()?;
        let mut last = None;
        let mut nodes = Vec::with_capacity(parts.len());
        let made = parts.iter_mut().try_for_each(|parts| {
            let mut of_step = Vec::with_capacity(parts.len());
            for part in parts {
                let node = api.add_node(graph, last, part.node(), context)?;
                of_step.push(node);
                last = Some(node);
            }
            nodes.push(of_step);
            Ok(())
        });
        match made.and_then(|()| api.instantiate(graph)) {
            Ok(ready) => Ok(Graph { graph, ready, nodes, steps, memory_ready, is_stale: false }),
            Err(error) => {
                api.destroy_graph(graph)?;
                Err(error.into())
            }
        }
    }

    /// The same steps in a graph of their own.
    fn again(&self, device: &Arc<Device>, backend: &str) -> Result<Graph, Failure> {
        let (parts, memory_ready) = made_of(&self.steps, device, backend)?;
        Graph::new(device, self.steps.clone(), parts, memory_ready)
    }

    fn leave(self, device: &Device, uses: &Uses) {
        device.park(uses, Leftover::Graph { ready: self.ready, graph: self.graph, _steps: self.steps });
    }
}

impl CudaRecording {
    pub(crate) fn new(device: &Arc<Device>, steps: &[Step], backend: &str) -> Result<CudaRecording, BackendError> {
        let (parts, memory_ready) = made_of(steps, device, backend)?;
        let graph = device.with(|| Graph::new(device, steps.to_vec(), parts, memory_ready))?;
        Ok(CudaRecording {
            device: Arc::clone(device),
            graph: Mutex::new(graph),
            uses: Uses::default(),
            count: steps.len(),
        })
    }

    fn check_device(&self, device: &Arc<Device>) -> Result<(), BackendError> {
        if Arc::ptr_eq(&self.device, device) {
            return Ok(());
        }
        Err(BackendError::with_code(
            &codes::backend::FOREIGN_HANDLE,
            "a recording of one CUDA device was passed to another",
        ))
    }

    /// Puts other steps in place of some.
    pub(crate) fn revise(
        &self,
        device: &Arc<Device>,
        steps: &[(usize, Step)],
        backend: &str,
    ) -> Result<(), BackendError> {
        self.check_device(device)?;
        let mut new = Vec::with_capacity(steps.len());
        {
            let graph = locked(&self.graph);
            for (position, step) in steps {
                let old = graph.steps.get(*position).ok_or_else(|| {
                    let what = format!("the recording has {} steps and none at {position}", self.count);
                    BackendError::with_code(&codes::backend::BAD_RANGE, what)
                })?;
                check_kind(old, step)?;
                new.push((*position, parts(step, device, backend)?));
            }
        }
        device.with(|| {
            let mut graph = locked(&self.graph);
            let Graph { ready, nodes, .. } = &*graph;
            // Nothing is changed until it is known to be the same number of nodes.
            let mut changed = new.iter().all(|(position, (parts, _))| nodes[*position].len() == parts.len());
            for (position, (parts, _)) in &mut new {
                for (part, &node) in parts.iter_mut().zip(&nodes[*position]) {
                    changed = changed && device.api.change_node(*ready, node, part.node(), device.context).is_ok();
                }
            }
            // Where the driver refused, it may have taken some of the changes.
            graph.is_stale |= !changed;
            let mut replaced = Vec::with_capacity(steps.len());
            for ((position, step), (_, (_, ready))) in steps.iter().zip(&new) {
                replaced.push(std::mem::replace(&mut graph.steps[*position], step.clone()));
                graph.memory_ready = graph.memory_ready.max(*ready);
            }
            device.park(&self.uses, Leftover::Steps(replaced));
            self.refresh(&mut graph, device, backend)
        })
    }

    /// Makes the graph anew where its nodes are not those of the steps.
    fn refresh(&self, graph: &mut Graph, device: &Arc<Device>, backend: &str) -> Result<(), Failure> {
        if graph.is_stale {
            let fresh = graph.again(device, backend)?;
            std::mem::replace(graph, fresh).leave(device, &self.uses);
        }
        Ok(())
    }

    pub(crate) fn replay(
        &self,
        device: &Arc<Device>,
        order: &Order<'_>,
        backend: &str,
    ) -> Result<Ticket, BackendError> {
        self.check_device(device)?;
        device.with(|| {
            let mut graph = locked(&self.graph);
            self.refresh(&mut graph, device, backend)?;
            let turn = device.begin(order, graph.memory_ready)?;
            turn.mark()?;
            let ticket = turn.ticket()?;
            self.uses.mark(ticket);
            device.api.launch_graph(graph.ready, turn.queue.stream)?;
            Ok(ticket)
        })
    }
}

/// A step may only take the place of one of its kind, and a launch of one of the same pipeline.
fn check_kind(old: &Step, new: &Step) -> Result<(), BackendError> {
    let same = match (old, new) {
        (Step::Launch { pipeline: old, .. }, Step::Launch { pipeline: new, .. }) => Arc::ptr_eq(old, new),
        (Step::Copy { .. }, Step::Copy { .. }) | (Step::Clear(_), Step::Clear(_)) => true,
        _ => false,
    };
    if same {
        return Ok(());
    }
    Err(BackendError::with_code(
        &codes::backend::BINDINGS,
        "a step of a recording can only be replaced by one of its kind, and a launch by one of the same pipeline",
    ))
}

impl Recording for CudaRecording {
    fn steps(&self) -> usize {
        self.count
    }
}

impl Drop for CudaRecording {
    fn drop(&mut self) {
        let graph = self.graph.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        let empty =
            Graph { graph: 0, ready: 0, nodes: Vec::new(), steps: Vec::new(), memory_ready: 0, is_stale: false };
        std::mem::replace(graph, empty).leave(&self.device, &self.uses);
    }
}
