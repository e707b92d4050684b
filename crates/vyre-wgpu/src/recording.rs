//! Steps that are replayed as one piece of work. What can be checked or made is, once; a replay only encodes.

use std::sync::{Arc, Mutex, PoisonError};

use vyre_driver::backend::{Binding, Order, Pipeline, Recording, Step, Ticket, foreign};
use vyre_driver::{BackendError, VyreBackend};
use vyre_spec::codes;

use crate::backend::WgpuBackend;
use crate::context::Context;
use crate::device::Device;
use crate::pipeline::{Made, WgpuPipeline};
use crate::work::{Group, Slot, Words};

/// Recorded steps.
pub(crate) struct WgpuRecording {
    device: Arc<Device>,
    count: usize,
    steps: Mutex<Vec<Recorded>>,
}

impl Recording for WgpuRecording {
    fn steps(&self) -> usize {
        self.count
    }
}

/// A step and what it takes to do it.
struct Recorded {
    step: Step,
    generation: u64,
    parts: Vec<Part>,
    /// It gets a submission of its own.
    alone: bool,
}

enum Part {
    Launch(Box<Prelaunch>),
    Copy { from: (wgpu::Buffer, u64), to: (wgpu::Buffer, u64), bytes: u64 },
    Clear { buffer: wgpu::Buffer, offset: u64, bytes: u64 },
}

/// A launch that only has to be encoded.
struct Prelaunch {
    pipeline: Arc<dyn Pipeline>,
    made: Arc<Made>,
    bindings: Vec<Binding>,
    group: Option<Group>,
    facts: Words,
    grid: [u32; 3],
}

impl WgpuBackend {
    pub(crate) fn make_recording(&self, steps: &[Step]) -> Result<WgpuRecording, BackendError> {
        let steps = steps.iter().map(|step| self.recorded(step)).collect::<Result<Vec<_>, _>>()?;
        Ok(WgpuRecording { device: Arc::clone(&self.device), count: steps.len(), steps: Mutex::new(steps) })
    }

    fn recording_of<'r>(&self, recording: &'r Arc<dyn Recording>) -> Result<&'r WgpuRecording, BackendError> {
        let own = recording.of::<WgpuRecording>(self.id())?;
        if Arc::ptr_eq(&own.device, &self.device) { Ok(own) } else { Err(foreign("recording", self.id())) }
    }

    fn recorded(&self, step: &Step) -> Result<Recorded, BackendError> {
        let wrapped = |part: &Binding| Ok::<_, BackendError>(self.part(part)?.is_wrapped);
        let (parts, alone) = match step {
            Step::Launch { pipeline, bindings, grid } => {
                let any = bindings.iter().try_fold(false, |any, part| Ok::<_, BackendError>(any | wrapped(part)?))?;
                let alone = any || self.pipeline_of(pipeline)?.may_be_long();
                (vec![self.prelaunch(pipeline, bindings, *grid, false)?], alone)
            }
            Step::Copy { from, to } => (self.copy_parts(from, to)?, wrapped(from)? || wrapped(to)?),
            Step::Clear(part) => (self.clear_parts(part)?, wrapped(part)?),
        };
        let generation = self.device.with(|context| Ok(context.generation))?;
        Ok(Recorded { step: step.clone(), generation, parts, alone })
    }

    fn prelaunch(
        &self,
        pipeline: &Arc<dyn Pipeline>,
        bindings: &[Binding],
        grid: [u32; 3],
        bytes: bool,
    ) -> Result<Part, BackendError> {
        let own = self.pipeline_of(pipeline)?;
        self.device.with(|context| {
            let made = own.made(context)?;
            let mut prepared = self.prepare(context, own, &made, bindings, grid)?;
            if bytes {
                prepared.count_last_words();
            }
            // Launches with stop words learn where those are from each replay.
            let group = match own.may_end_early() {
                true => None,
                false => Some(context.group(&mut context.work(), own.number, &made, &prepared.bindings, None)?),
            };
            let facts = prepared.facts;
            let bindings = bindings.to_vec();
            let pipeline = Arc::clone(pipeline);
            Ok(Part::Launch(Box::new(Prelaunch { pipeline, made: Arc::clone(&made), bindings, group, facts, grid })))
        })
    }

    fn copy_parts(&self, from: &Binding, to: &Binding) -> Result<Vec<Part>, BackendError> {
        let (source, target) = self.copied(from, to)?;
        if to.bytes == 0 {
            return Ok(Vec::new());
        }
        if source.buffer == target.buffer {
            let scratch = Binding::from(self.allocate(to.bytes)?);
            let mut parts = self.copy_parts(from, &scratch)?;
            parts.extend(self.copy_parts(&scratch, to)?);
            return Ok(parts);
        }
        if !crate::transfer::are_words(&[from.offset, to.offset, to.bytes]) {
            let copy = self.byte_copy(from, to)?;
            return Ok(vec![self.prelaunch(&copy.pipeline, &copy.bindings, copy.grid, true)?]);
        }
        self.device.with(|context| {
            Ok(vec![Part::Copy {
                from: (source.check(&self.device, context)?.clone(), from.offset),
                to: (target.check(&self.device, context)?.clone(), to.offset),
                bytes: to.bytes,
            }])
        })
    }

    fn clear_parts(&self, part: &Binding) -> Result<Vec<Part>, BackendError> {
        let target = self.part(part)?;
        let end = target.end_of(part);
        if part.bytes == 0 {
            return Ok(Vec::new());
        }
        if !crate::transfer::are_words(&[part.offset, end]) {
            let zeros = Binding::from(self.allocate(part.bytes)?);
            return self.copy_parts(&zeros, part);
        }
        self.device.with(|context| {
            let buffer = target.check(&self.device, context)?.clone();
            Ok(vec![Part::Clear { buffer, offset: part.offset, bytes: end - part.offset }])
        })
    }

    pub(crate) fn revise_recording(
        &self,
        recording: &Arc<dyn Recording>,
        changes: &[(usize, Step)],
    ) -> Result<(), BackendError> {
        let recording = self.recording_of(recording)?;
        let mut steps = recording.steps.lock().unwrap_or_else(PoisonError::into_inner);
        let mut made = Vec::with_capacity(changes.len());
        for (at, step) in changes {
            let same = match (steps.get(*at).map(|recorded| &recorded.step), step) {
                (Some(Step::Launch { pipeline: old, .. }), Step::Launch { pipeline, .. }) => Arc::ptr_eq(old, pipeline),
                (Some(Step::Copy { .. }), Step::Copy { .. }) | (Some(Step::Clear(_)), Step::Clear(_)) => true,
                _ => false,
            };
            if !same {
                return Err(BackendError::with_code(
                    &codes::backend::BINDINGS,
                    format!("step {at} of {} can't become something of another kind or pipeline", steps.len()),
                ));
            }
            made.push((*at, self.recorded(step)?));
        }
        for (at, recorded) in made {
            steps[at] = recorded;
        }
        Ok(())
    }

    pub(crate) fn replay_recording(
        &self,
        recording: &Arc<dyn Recording>,
        order: &Order<'_>,
    ) -> Result<Ticket, BackendError> {
        let recording = self.recording_of(recording)?;
        self.check_order(order)?;
        let mut steps = recording.steps.lock().unwrap_or_else(PoisonError::into_inner);
        self.device.with(|context| {
            if steps.iter().any(|recorded| recorded.generation != context.generation) {
                return Err(BackendError::with_code(
                    &codes::backend::DEVICE_LOST,
                    "the recording's buffers were lost with their device Fix: Allocate them again, and record anew.",
                ));
            }
            self.encode(context, &mut steps)
        })
    }

    fn encode(&self, context: &Context, steps: &mut [Recorded]) -> Result<Ticket, BackendError> {
        let mut guard = context.work();
        let work = &mut *guard;
        let alone = steps.iter().any(|recorded| recorded.alone);
        let mut slot: Option<Slot> = None;
        // Nothing is encoded until nothing can fail.
        let mut groups = Vec::new();
        for part in steps.iter().flat_map(|recorded| &recorded.parts) {
            let Part::Launch(launch) = part else { continue };
            if launch.group.is_some() || launch.grid.contains(&0) {
                continue;
            }
            let own = self.pipeline_of(&launch.pipeline)?;
            let slot = match slot {
                Some(slot) => slot,
                None => *slot.insert(context.take_slot(work)?),
            };
            let prepared = self.prepare(context, own, &launch.made, &launch.bindings, launch.grid);
            match prepared
                .and_then(|prepared| context.group(work, own.number, &launch.made, &prepared.bindings, Some(slot)))
            {
                Ok(group) => groups.push(group),
                Err(error) => {
                    work.free_slot(slot);
                    return Err(error);
                }
            }
        }
        if alone {
            context.flush(work);
        }
        let mut groups = groups.into_iter();
        for part in steps.iter_mut().flat_map(|recorded| &mut recorded.parts) {
            match part {
                Part::Launch(launch) if launch.grid.contains(&0) => {}
                Part::Launch(launch) => {
                    let Prelaunch { pipeline, made, group, facts, grid, .. } = &mut **launch;
                    let Some(pipeline) = pipeline.downcast_ref::<WgpuPipeline>() else { continue };
                    let fresh = if group.is_none() { groups.next() } else { None };
                    if let Some(group) = group.as_ref().or(fresh.as_ref()) {
                        context.encode_launch(work, pipeline, made, group, slot, facts, *grid);
                    }
                }
                Part::Copy { from, to, bytes } => {
                    context.encoder(work).copy_buffer_to_buffer(&from.0, from.1, &to.0, to.1, *bytes);
                    work.count_command();
                }
                Part::Clear { buffer, offset, bytes } => {
                    context.encoder(work).clear_buffer(buffer, *offset, Some(*bytes));
                    work.count_command();
                }
            }
        }
        let ticket = context.ticket(work)?;
        if let Some(slot) = slot {
            work.watch(ticket, slot);
        }
        context.gathered(work, alone);
        Ok(ticket)
    }
}
