//! Many launches in a row become few calls of the driver.
//!
//! Launching a kernel takes the host some four microseconds, changing a node of a graph that is ready a seventh of that. So when launches
//! follow one another on a queue and nobody asks about them, they are kept until there are enough for one of the graphs that wait for
//! them. Whoever asks about work of the queue, or puts anything else on its stream, sends them off first; and so does a thread that
//! looks whether any have been kept for too long. Each kernel marks its start as it does without a graph.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::Thread;
use std::time::Duration;

use smallvec::SmallVec;
use vyre_driver::BackendError;
use vyre_driver::backend::Ticket;

use crate::api::{Api, CudaError, Handle, KernelLaunch, Node};
use crate::device::{Device, Failure, describe};
use crate::queue::QUEUES;

/// Launches in a row, with nobody asking, before any are kept.
const IN_A_ROW: u32 = 16;

/// Sizes of graphs, largest first. What is left over is launched as it is.
const SIZES: [usize; 4] = [32, 16, 8, 4];

/// Graphs of each size. Where all are at work the device has enough to do, and launching one by one does no harm.
const GRAPHS: usize = 4;

/// How long launches are kept when nobody asks, at most two or three times this.
const KEPT: Duration = Duration::from_micros(50);

/// Looks without anything kept before the thread that looks rests.
const LOOKS: u32 = 200;

/// Launches of one queue that the driver has not got yet.
#[derive(Default)]
pub(crate) struct Batch {
    kept: Vec<Kept>,
    graphs: [Vec<Graph>; SIZES.len()],
    /// Launches since somebody asked.
    in_a_row: u32,
    /// The driver refused a graph; launches are not kept any more.
    is_refused: bool,
}

struct Kept {
    number: u64,
    launch: KernelLaunch,
    params: SmallVec<[u64; 24]>,
}

/// A graph of kernels in a row that is ready to launch.
struct Graph {
    graph: Handle,
    ready: Handle,
    nodes: Vec<Handle>,
    /// The last piece of work of its latest launch.
    until: u64,
}

impl Batch {
    /// Another launch is about to come, and may be kept.
    pub(crate) fn keeps_next(&mut self) -> bool {
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.in_a_row > IN_A_ROW && !self.is_refused
    }

    /// Somebody asked about the queue's work, or other work comes.
    pub(crate) fn is_asked(&mut self) {
        self.in_a_row = 0;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.kept.len() >= SIZES[0]
    }

    pub(crate) fn keep(&mut self, number: u64, launch: KernelLaunch, params: &[u64]) {
        self.kept.push(Kept { number, launch, params: SmallVec::from_slice(params) });
    }

    /// Gives all that is kept to the driver; the number of the last that it took, or 0. What it refuses has failed: whoever launched it
    /// was told that it would run.
    pub(crate) fn send(&mut self, device: &Device, queue: u32, stream: Handle) -> Result<u64, Failure> {
        let Batch { kept, graphs, is_refused, .. } = self;
        let mut sent = 0;
        let outcome = (|| -> Result<(), CudaError> {
            while sent < kept.len() {
                let rest = &mut kept[sent..];
                let size = SIZES.iter().position(|&size| size <= rest.len()).filter(|_| !*is_refused);
                if let Some(size) = size
                    && let Some(graph) = idle_graph(&mut graphs[size], device, queue, &mut rest[..SIZES[size]])?
                {
                    match graph.launch(device, stream, &mut rest[..SIZES[size]])? {
                        true => sent += SIZES[size],
                        false => *is_refused = true,
                    }
                    continue;
                }
                device.api.launch(&rest[0].launch, &mut rest[0].params, stream)?;
                sent += 1;
            }
            Ok(())
        })();
        let last = sent.checked_sub(1).map_or(0, |last| kept[last].number);
        if let Err(error) = &outcome
            && !error.is_fault()
        {
            let error: BackendError = describe(error);
            for Kept { number, .. } in &kept[sent..] {
                device.ledger.fail(Ticket { queue, number: *number }, error.clone());
            }
        }
        kept.clear();
        match outcome {
            Err(error) if error.is_fault() => Err(error.into()),
            _ => Ok(last),
        }
    }

    /// Gives the graphs up, which are all idle. Their nodes still name the kernels that they ran last.
    pub(crate) fn drop_graphs(&mut self, api: &Api) -> Result<(), CudaError> {
        for graph in self.graphs.iter_mut().flat_map(|graphs| graphs.drain(..)) {
            api.destroy_ready(graph.ready)?;
            api.destroy_graph(graph.graph)?;
        }
        Ok(())
    }
}

/// A graph whose latest launch is over, made where there is none and may be one.
fn idle_graph<'a>(
    graphs: &'a mut Vec<Graph>,
    device: &Device,
    queue: u32,
    kept: &mut [Kept],
) -> Result<Option<&'a mut Graph>, CudaError> {
    let over = device.words.load(queue as usize);
    let idle = match graphs.iter().position(|graph| graph.until <= over) {
        Some(idle) => idle,
        None if graphs.len() < GRAPHS => match Graph::new(device, kept) {
            Ok(graph) => {
                graphs.push(graph);
                graphs.len() - 1
            }
            Err(error) if error.is_fault() => return Err(error),
            Err(_) => return Ok(None),
        },
        None => return Ok(None),
    };
    Ok(Some(&mut graphs[idle]))
}

impl Graph {
    fn new(device: &Device, kept: &mut [Kept]) -> Result<Graph, CudaError> {
        let api = device.api;
        let graph = api.create_graph()?;
        let mut nodes: Vec<Handle> = Vec::with_capacity(kept.len());
        let made = kept.iter_mut().try_for_each(|kept| {
            let node = Node::Kernel(kept.launch, &mut kept.params);
            nodes.push(api.add_node(graph, nodes.last().copied(), node, device.context)?);
            Ok(())
        });
        match made.and_then(|()| api.instantiate(graph)) {
            Ok(ready) => Ok(Graph { graph, ready, nodes, until: 0 }),
            Err(error) => {
                api.destroy_graph(graph)?;
                Err(error)
            }
        }
    }

    /// Launches it with these kernels in its nodes; false where the driver does not take it, and nothing has run.
    fn launch(&mut self, device: &Device, stream: Handle, kept: &mut [Kept]) -> Result<bool, CudaError> {
        for (kept, &node) in kept.iter_mut().zip(&self.nodes) {
            let changed = Node::Kernel(kept.launch, &mut kept.params);
            match device.api.change_node(self.ready, node, changed, device.context) {
                Ok(()) => {}
                Err(error) if error.is_fault() => return Err(error),
                Err(_) => return Ok(false),
            }
        }
        match device.api.launch_graph(self.ready, stream) {
            Ok(()) => {
                self.until = kept.last().map_or(self.until, |kept| kept.number);
                Ok(true)
            }
            Err(error) if error.is_fault() => Err(error),
            Err(_) => Ok(false),
        }
    }
}

/// Sends off what was kept for too long. Its thread begins with the first launch that is kept and ends with the device.
#[derive(Default)]
pub(crate) struct Sender {
    thread: OnceLock<Option<Thread>>,
    is_resting: AtomicBool,
    /// How often a queue has begun to keep launches.
    begun: AtomicU64,
}

impl Sender {
    /// A queue begins to keep launches: a number for them. `None` where the system gives no thread, so that none may be kept.
    pub(crate) fn watch(&self, device: &Arc<Device>) -> Option<u64> {
        let thread = self.thread.get_or_init(|| {
            let device = Arc::downgrade(device);
            let thread = std::thread::Builder::new().name("vyre-cuda-sender".to_owned());
            thread.spawn(move || send_late(&device)).ok().map(|handle| handle.thread().clone())
        });
        let thread = thread.as_ref()?;
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        if self.is_resting.load(Ordering::SeqCst) {
            thread.unpark();
        }
        Some(number)
    }
}

fn send_late(device: &Weak<Device>) {
    let (mut begun, mut quiet) = (0, 0);
    let mut seen = [0; QUEUES as usize];
    loop {
        // Kept from going away only while it is looked at.
        let Some(there) = device.upgrade() else { return };
        let now = there.sender.begun.load(Ordering::SeqCst);
        quiet = if now == begun { quiet + 1 } else { 0 };
        begun = now;
        // A fault is for the next call to report.
        drop(there.with(|| there.send_kept(&mut seen)));
        let rests = quiet > LOOKS && seen.iter().all(|&keeping| keeping == 0);
        there.sender.is_resting.store(rests, Ordering::SeqCst);
        // Whoever begins to keep from here on sees that somebody has to be woken.
        let rests = rests && there.sender.begun.load(Ordering::SeqCst) == begun;
        drop(there);
        match rests {
            // Now and then it looks whether the device is gone.
            true => std::thread::park_timeout(Duration::from_millis(500)),
            false => std::thread::sleep(KEPT),
        }
    }
}
