//! Recordings are CUDA graphs: one node after another, whose parameters can be changed.

use std::sync::{Arc, Mutex};

use smallvec::SmallVec;
use vyre_driver::BackendError;
use vyre_driver::backend::{Binding, Order, Recording, Step, Ticket};
use vyre_spec::codes;

use crate::api::{CudaError, DevicePointer, Handle, Node};
use crate::device::{Device, Failure, Leftover, Uses, describe, locked};
use crate::launch::{self, Words};
use crate::memory::CudaBuffer;

/// Copies in a graph are at most this long; the driver counts a row's bytes with 31 bits.
const LONGEST_COPY: u64 = 1 << 30;

/// Recorded steps.
pub(crate) struct CudaRecording {
    device: Arc<Device>,
    recorded: Mutex<Recorded>,
    uses: Uses,
    count: usize,
}

struct Recorded {
    steps: Vec<Step>,
    segments: Vec<Segment>,
    /// The count at which the memory of every buffer is ready.
    memory_ready: u64,
}

/// A graph of some of the steps. A long recording is several of them, launched one after another: while the device works on one, the
/// nodes of the next are changed.
struct Segment {
    first: usize,
    graph: Handle,
    ready: Handle,
    /// The nodes of each step.
    nodes: Vec<SmallVec<[Handle; 1]>>,
    /// Steps that were replaced and whose nodes are still the old ones.
    changes: Vec<usize>,
    /// Some nodes do what no step says, because changing them failed half-way.
    is_stale: bool,
}

/// Steps of the longest segment: launching another takes the device as long as a few steps.
const LONGEST_SEGMENT: usize = 256;

/// Steps of the shortest segment at either end of a long recording.
const SHORTEST_SEGMENT: usize = 48;

/// The steps of each segment. Where all nodes are changed the device waits for the host's work on the first segment, and the host for the
/// device's work on the last; so a long recording begins and ends in shorter ones.
fn segments(steps: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let (mut first, mut most) = (0, SHORTEST_SEGMENT);
    std::iter::from_fn(move || {
        let left = steps - first;
        let length = match left {
            _ if steps <= LONGEST_SEGMENT || left <= 2 * SHORTEST_SEGMENT => left,
            _ => (left / 2).min(most),
        };
        let range = first..first + length;
        first += length;
        most = (2 * most).min(LONGEST_SEGMENT);
        (length > 0).then_some(range)
    })
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

/// Refuses a step that can't be done here; else the count at which its memory is ready.
fn check(step: &Step, device: &Arc<Device>, backend: &str) -> Result<u64, BackendError> {
    match step {
        Step::Launch { pipeline, bindings, .. } => {
            let pipeline = launch::pipeline_of(pipeline, device, backend)?;
            launch::bind(pipeline, bindings, device, backend).map(|(_, ready)| ready)
        }
        Step::Copy { from, to } => {
            check_copy(from, to)?;
            Ok(place(from, device, backend)?.1.max(place(to, device, backend)?.1))
        }
        Step::Clear(part) => Ok(place(part, device, backend)?.1),
    }
}

/// Calls `node` for each node that does a step; mostly that is one.
fn for_each_node(
    step: &Step,
    device: &Arc<Device>,
    backend: &str,
    mut node: impl FnMut(Node<'_>) -> Result<(), CudaError>,
) -> Result<(), Failure> {
    let pieces = |bytes: u64| {
        (0..bytes).step_by(LONGEST_COPY as usize).map(move |at| (at, LONGEST_COPY.min(bytes - at) as usize))
    };
    match step {
        Step::Launch { pipeline, bindings, grid } => {
            let pipeline = launch::pipeline_of(pipeline, device, backend)?;
            let (mut params, _) = launch::bind(pipeline, bindings, device, backend)?;
            // Nobody asks when one launch of a recording began, and nobody stops one.
            let words = Words { mark: 0, number: 0, stop: device.stops.never };
            launch::for_each_part(pipeline, &mut params, *grid, words, |launch, params| {
                node(Node::Kernel(*launch, params))
            })?;
        }
        Step::Copy { from, to } => {
            let (source, target) = (place(from, device, backend)?.0, place(to, device, backend)?.0);
            for (at, bytes) in pieces(from.bytes) {
                node(Node::Copy { from: source + at, to: target + at, bytes })?;
            }
        }
        Step::Clear(part) => {
            let target = place(part, device, backend)?.0;
            for (at, bytes) in pieces(part.bytes) {
                node(Node::Clear { at: target + at, bytes })?;
            }
        }
    }
    Ok(())
}

impl Segment {
    fn new(device: &Arc<Device>, first: usize, steps: &[Step], backend: &str) -> Result<Segment, Failure> {
        let (api, context) = (device.api, device.context);
        let graph = api.create_graph()?;
        let mut last = None;
        let mut nodes = Vec::with_capacity(steps.len());
        let made = steps.iter().try_for_each(|step| {
            let mut of_step = SmallVec::new();
            for_each_node(step, device, backend, |node| {
                let node = api.add_node(graph, last, node, context)?;
                of_step.push(node);
                last = Some(node);
                Ok(())
            })?;
            nodes.push(of_step);
            Ok(())
        });
        match made.and_then(|()| Ok(api.instantiate(graph)?)) {
            Ok(ready) => Ok(Segment { first, graph, ready, nodes, changes: Vec::new(), is_stale: false }),
            Err(error) => {
                api.destroy_graph(graph)?;
                Err(error)
            }
        }
    }

    /// Makes the nodes those of the steps: by changing them, or where the driver refuses that, by a new graph.
    fn refresh(&mut self, steps: &[Step], device: &Arc<Device>, uses: &Uses, backend: &str) -> Result<(), Failure> {
        let Segment { first, ready, nodes, changes, is_stale, .. } = self;
        for step in changes.drain(..) {
            let mut left = nodes[step - *first].iter();
            let changed = for_each_node(&steps[step], device, backend, |node| {
                // Where the driver refuses one, it may have taken others.
                *is_stale = *is_stale
                    || left.next().is_none_or(|&at| device.api.change_node(*ready, at, node, device.context).is_err());
                Ok(())
            });
            *is_stale |= changed.is_err() || left.next().is_some();
        }
        if self.is_stale {
            let steps = &steps[self.first..self.first + self.nodes.len()];
            let fresh = Segment::new(device, self.first, steps, backend)?;
            std::mem::replace(self, fresh).leave(device, uses);
        }
        Ok(())
    }

    fn leave(self, device: &Device, uses: &Uses) {
        device.park(uses, Leftover::Graph { ready: self.ready, graph: self.graph });
    }
}

impl CudaRecording {
    pub(crate) fn new(device: &Arc<Device>, steps: &[Step], backend: &str) -> Result<CudaRecording, BackendError> {
        let mut memory_ready = 0;
        for step in steps {
            memory_ready = memory_ready.max(check(step, device, backend)?);
        }
        let recorded = Recorded { steps: steps.to_vec(), segments: Vec::new(), memory_ready };
        let (uses, count) = (Uses::default(), steps.len());
        let recording = CudaRecording { device: Arc::clone(device), recorded: Mutex::new(recorded), uses, count };
        device.with(|| {
            for range in segments(count) {
                let segment = Segment::new(device, range.start, &steps[range.clone()], backend)?;
                locked(&recording.recorded).segments.push(segment);
            }
            Ok(())
        })?;
        Ok(recording)
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

    /// Puts other steps in place of some. Their nodes are changed by the next replay, while the device works on what is before them.
    pub(crate) fn revise(
        &self,
        device: &Arc<Device>,
        steps: &[(usize, Step)],
        backend: &str,
    ) -> Result<(), BackendError> {
        self.check_device(device)?;
        let mut recorded = locked(&self.recorded);
        let mut ready = 0;
        for (position, step) in steps {
            let old = recorded.steps.get(*position).ok_or_else(|| {
                let what = format!("the recording has {} steps and none at {position}", self.count);
                BackendError::with_code(&codes::backend::BAD_RANGE, what)
            })?;
            check_kind(old, step)?;
            ready = check(step, device, backend)?.max(ready);
        }
        // Nothing is refused from here on.
        let Recorded { steps: old, segments, memory_ready } = &mut *recorded;
        *memory_ready = ready.max(*memory_ready);
        let mut replaced = Vec::with_capacity(steps.len());
        for (position, step) in steps {
            replaced.push(std::mem::replace(&mut old[*position], step.clone()));
            let segment = segments.partition_point(|segment| segment.first <= *position) - 1;
            segments[segment].changes.push(*position);
        }
        device.park(&self.uses, Leftover::Steps(replaced));
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
            let mut recorded = locked(&self.recorded);
            let Recorded { steps, segments, memory_ready } = &mut *recorded;
            let turn = device.begin(order, *memory_ready)?;
            turn.mark()?;
            let ticket = turn.ticket()?;
            self.uses.mark(ticket);
            for (index, segment) in segments.iter_mut().enumerate() {
                let refreshed = segment.refresh(steps, device, &self.uses, backend);
                let launched =
                    refreshed.and_then(|()| Ok(device.api.launch_graph(segment.ready, turn.queue.stream)?));
                let error = match launched {
                    Ok(()) => continue,
                    // What was launched before has changed memory, so from then on it is no refusal but work that failed.
                    Err(Failure::Cuda(error)) if index > 0 && !error.is_fault() => describe(&error),
                    Err(Failure::Other(error)) if index > 0 => error,
                    Err(refused) => return Err(refused),
                };
                device.ledger.fail(ticket, error);
                break;
            }
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
        let recorded = self.recorded.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        for segment in recorded.segments.drain(..) {
            segment.leave(&self.device, &self.uses);
        }
        // The nodes use what the steps hold.
        self.device.park(&self.uses, Leftover::Steps(std::mem::take(&mut recorded.steps)));
    }
}
