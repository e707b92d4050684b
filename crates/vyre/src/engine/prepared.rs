use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use vyre_foundation::ValidProgram;
use vyre_spec::{Diagnostic, codes};

use super::core::{Arg, Core, Request};
use super::{Explanation, lock};
use crate::array::Buffer;
use crate::launches::Launch;
use crate::{Engine, Error};

/// A program with buffers of its own, for many dispatches by name. Threads may share it.
///
/// Inputs are [set](Prepared::set) by name, results are [read](Prepared::get) by name, and between two dispatches nothing moves. It is a
/// kernel and one array for each of its buffers; programs of several kernels use [`Engine::kernel`] and arrays.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let program = vyre::wgsl("
///     @group(0) @binding(0) var<storage, read_write> x: array<u32>;
///     @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
///         if id.x < arrayLength(&x) { x[id.x] += 1u; }
///     }")?;
/// let engine = vyre::Engine::builder().without_disk().open()?;
/// let prepared = engine.prepare(&program)?;
/// prepared.set("x", vyre::to_bytes(&[10u32, 20]))?;
/// for _ in 0..3 {
///     prepared.run()?;
/// }
/// assert_eq!(vyre::from_bytes::<u32>(&prepared.get("x")?), [13, 23]);
/// # Ok(())
/// # }
/// ```
pub struct Prepared {
    engine: Engine,
    core: Arc<Core>,
    buffers: Mutex<Buffers>,
}

struct Buffers {
    /// One for each buffer, in binding order, once it is known.
    list: Vec<Option<Buffer>>,
    /// All are there, and results are as large as the inputs ask for.
    are_sized: bool,
}

impl Prepared {
    pub(super) fn new(engine: &Engine, core: Arc<Core>) -> Prepared {
        let list = core.slots.iter().map(|_| None).collect();
        Prepared { engine: engine.clone(), core, buffers: Mutex::new(Buffers { list, are_sized: false }) }
    }

    /// The program.
    pub fn program(&self) -> &ValidProgram {
        &self.core.program
    }

    fn deadline(&self) -> Option<Instant> {
        self.core.config.timeout.and_then(|timeout| Instant::now().checked_add(timeout))
    }

    /// Sets the contents of an input.
    pub fn set(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let slot = self.slot(name, |kind| kind.is_input(), "an input")?;
        let Buffers { list, are_sized } = &mut *lock(&self.buffers);
        match &mut list[slot] {
            Some(buffer) if buffer.bytes() == bytes.len() as u64 => buffer.storage.write(0, bytes, self.deadline())?,
            other => {
                *other = Some(self.engine.buffer_of(bytes)?);
                *are_sized = false;
            }
        }
        Ok(())
    }

    /// The contents of a result, after all dispatches so far. With a timeout it waits no longer than that.
    pub fn get(&self, name: &str) -> Result<Vec<u8>, Error> {
        let slot = self.slot(name, |kind| kind.is_result(), "a result")?;
        // The value of now; dispatches that follow don't wait for this read, nor it for them.
        let buffer = lock(&self.buffers).list[slot].clone();
        match buffer {
            Some(buffer) => buffer.read_until(self.deadline()),
            None => {
                let message = format!("result `{name}` has no contents before a dispatch");
                Err(Diagnostic::new(&codes::engine::NOT_RUN, message).into())
            }
        }
    }

    /// Queues one dispatch and returns at once; dispatches on the same buffers run in order.
    pub fn dispatch(&self) -> Result<Launch, Error> {
        let Buffers { list: buffers, are_sized } = &mut *lock(&self.buffers);
        if !*are_sized {
            self.size_results(buffers)?;
            *are_sized = true;
        }
        let mut args = smallvec::SmallVec::<[Arg<'_>; 8]>::new();
        for (slot, buffer) in self.core.slots.iter().zip(buffers.iter_mut()) {
            let Some(buffer) = buffer else { continue };
            args.push(match slot.kind.is_result() {
                true => Arg::Write(&mut buffer.storage),
                false => Arg::Read(&buffer.storage, 0..buffer.storage.bytes),
            });
        }
        let timeout = self.core.config.timeout;
        let label = self.core.config.label.as_deref().map(Into::into);
        let request = Request { timeout, interruptible: timeout.is_some(), label, ..Request::default() };
        let inner = &self.engine.inner;
        let job = inner.launch(&self.core, &mut args, &request)?;
        Ok(Launch::new(job))
    }

    /// Dispatches and waits; the time on the device, where it was measured.
    pub fn run(&self) -> Result<Option<Duration>, Error> {
        let launch = self.dispatch()?;
        let metrics = &self.engine.inner.metrics;
        let _span = metrics.is_tracing().then(|| metrics.time(vyre_driver::metrics::Stage::Wait));
        launch.wait()?;
        Ok(launch.device_time())
    }

    /// What was chosen, what else was possible, and on what evidence.
    pub fn explain(&self) -> Explanation {
        self.engine.inner.explain(&self.core)
    }

    /// Makes the buffers of results as large as the inputs ask for. What a result held goes when its size changes.
    fn size_results(&self, buffers: &mut [Option<Buffer>]) -> Result<(), Error> {
        for (slot, _) in self.core.slots.iter().zip(&*buffers).filter(|(_, buffer)| buffer.is_none()) {
            if slot.kind.is_input() {
                let message = format!("input `{}` has no contents", slot.name);
                return Err(Diagnostic::new(&codes::engine::NOT_SET, message).into());
            }
        }
        let inputs: Vec<u64> = buffers
            .iter()
            .zip(&self.core.slots)
            .filter(|(_, slot)| slot.kind.is_input())
            .map(|(buffer, _)| buffer.as_ref().map_or(0, Buffer::bytes))
            .collect();
        // Only sizes are wanted here, whatever the number of invocations.
        let mut config = self.core.config.clone();
        config.domain_override = Some([1; 3]);
        let plan = vyre_driver::launch::plan_sizes(&self.core.program, &inputs, &config)?;
        for ((buffer, slot), &bytes) in buffers.iter_mut().zip(&self.core.slots).zip(&plan.buffer_bytes) {
            if !slot.kind.is_input() && buffer.as_ref().is_none_or(|buffer| buffer.bytes() != bytes) {
                *buffer = Some(self.engine.buffer(bytes));
            }
        }
        Ok(())
    }

    /// Position of a named buffer that can be used so.
    fn slot(
        &self,
        name: &str,
        fits: impl Fn(vyre_foundation::ir::BufferKind) -> bool,
        what: &str,
    ) -> Result<usize, Error> {
        if let Some(slot) = self.core.slots.iter().position(|slot| slot.name == name && fits(slot.kind)) {
            return Ok(slot);
        }
        let names: Vec<&str> =
            self.core.slots.iter().filter(|slot| fits(slot.kind)).map(|slot| slot.name.as_str()).collect();
        let known = if names.is_empty() { "there is none".to_owned() } else { names.join(", ") };
        let message = format!("`{name}` is not {what} of the program; known: {known}");
        Err(Diagnostic::new(&codes::engine::UNKNOWN_BUFFER, message).into())
    }
}
