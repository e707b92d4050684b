//! Recordings: a list of steps that runs as one piece of work.

use std::sync::{Arc, Mutex, PoisonError};

use vyre_driver::BackendError;
use vyre_driver::backend::Recording;
use vyre_spec::codes;

use crate::launch::{SMALL_LAUNCH, Stop};
use crate::memory::Scratch;
use crate::work::Recorded;

/// Small launches, in a row, that are run where they are submitted.
const SMALL_RECORDING: u64 = 16 * SMALL_LAUNCH;

/// Steps as they were recorded or last revised.
#[derive(Clone, Debug)]
pub(crate) struct Steps {
    pub(crate) all: Arc<Vec<Arc<Recorded>>>,
    /// What runs one after the other: a step, and which phase of it.
    pub(crate) phases: Arc<[(usize, usize)]>,
    /// So little work that queueing it would cost more.
    pub(crate) is_small: bool,
    /// Every part of every step ends soon.
    pub(crate) are_brief: bool,
}

impl Steps {
    fn new(all: Arc<Vec<Arc<Recorded>>>) -> Steps {
        let effort = all.iter().try_fold(0u64, |sum, step| Some(sum.saturating_add(step.small_effort()?)));
        let is_small = effort.is_some_and(|effort| effort < SMALL_RECORDING);
        let are_brief = all.iter().all(|step| step.is_brief());
        let phases = all.iter().enumerate().flat_map(|(at, step)| (0..step.phases()).map(move |phase| (at, phase)));
        let phases = phases.collect();
        Steps { all, phases, is_small, are_brief }
    }

    /// Runs every step on this thread.
    pub(crate) fn run_all(&self, scratch: &mut Scratch) {
        let stop = Stop::default();
        for step in &*self.all {
            for part in 0..step.parts(0) {
                step.run(0, part, scratch, &stop, None);
            }
        }
    }
}

/// What [`record`](vyre_driver::VyreBackend::record) gives.
pub(crate) struct CpuRecording(Mutex<Steps>);

impl Recording for CpuRecording {
    fn steps(&self) -> usize {
        self.now().all.len()
    }
}

fn unfit(what: String) -> BackendError {
    BackendError::with_code(&codes::backend::RECORDING, what)
}

impl CpuRecording {
    pub(crate) fn new(steps: Vec<Recorded>) -> CpuRecording {
        CpuRecording(Mutex::new(Steps::new(Arc::new(steps.into_iter().map(Arc::new).collect()))))
    }

    /// The steps that a replay runs now; a later revision does not change them.
    pub(crate) fn now(&self) -> Steps {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Puts other steps in place of some, or none of them where one does not fit.
    pub(crate) fn revise(&self, revised: Vec<(usize, Recorded)>) -> Result<(), BackendError> {
        let mut steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (at, step) in &revised {
            match (steps.all.get(*at).map(|old| &**old), step) {
                (None, _) => {
                    return Err(unfit(format!("there is no step {at}; the recording has {}", steps.all.len())));
                }
                (Some(Recorded::Launch(old)), Recorded::Launch(new)) if !old.is_like(new) => {
                    return Err(unfit(format!("step {at} is a launch of another pipeline")));
                }
                (Some(Recorded::Launch(_)), Recorded::Launch(_)) => {}
                (Some(Recorded::Move(old)), Recorded::Move(new)) if old.from.is_some() == new.from.is_some() => {}
                _ => return Err(unfit(format!("step {at} is of another kind"))),
            }
        }
        // A replay that has not run yet keeps the steps that it was submitted with.
        let all = Arc::make_mut(&mut steps.all);
        for (at, step) in revised {
            all[at] = Arc::new(step);
        }
        let all = Arc::clone(&steps.all);
        *steps = Steps::new(all);
        Ok(())
    }
}
