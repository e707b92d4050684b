//! Which launch is fastest here: workgroup shapes and specialization values are measured, and decisions are kept with their
//! evidence.

mod belief;
mod cache;
mod campaign;
mod decision;
mod feedback;
mod key;
mod mode;
mod natural;
mod online;
mod space;
mod stats;

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use vyre_foundation::ir::Program;
use vyre_spec::Diagnostic;

pub use cache::TunerCache;
pub use campaign::{Campaign, Outcome, Plan, Step, Verdict};
pub use decision::{Decision, DecisionKey, DecisionTable, Evidence, Known};
pub use feedback::{DefaultPolicy, TunerFeedback};
pub use key::{StaticProgramShape, TunerProgramKey};
pub use mode::Mode;
pub use natural::{
    NaturalGradientPolicy, NaturalGradientTuningError, NaturalGradientTuningStep, Q16_ONE, identity_fisher_q16,
    identity_fisher_q16_into,
};
pub use online::{OnlineTuner, Turn};
pub use space::{Candidate, Candidates, Space};

use crate::pipeline::DEFAULT_1D_WORKGROUP_SIZE;

/// Workgroup sizes along x that are always worth a try.
pub const WORKGROUP_CANDIDATES: &[u32] = &[32, 64, 128, 256, 512, 1024];

/// Runs a program with a launch and says how long it took; a backend implements this with the best clock it has.
pub trait BackendTimer {
    /// What can go wrong.
    type Error;

    /// The time of one dispatch with this workgroup size.
    fn measure_candidate_ns(&mut self, program: &Program, workgroup_size: [u32; 3]) -> Result<u64, Self::Error>;
}

/// The time of one launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TuningMeasurement {
    /// The launch.
    pub workgroup_size: [u32; 3],
    /// Its time.
    pub elapsed_ns: u64,
}

/// The workgroup sizes that were decided for one adapter, and the sweeps that decide them.
#[derive(Debug)]
pub struct Tuner {
    mode: Mode,
    path: PathBuf,
    cache: TunerCache,
    /// Keys decided since the last save; what was only read is not written back over newer decisions of other processes.
    changed: BTreeSet<String>,
    load_error: Option<Diagnostic>,
}

impl Tuner {
    /// A tuner with the stored decisions for an adapter. A file that can't be used is reported as a warning event and by
    /// [`Tuner::load_error`]; it is left as it is, and [`Tuner::persist`] refuses to replace it.
    pub fn new(adapter_fp: impl AsRef<str>, mode: Mode) -> Self {
        let path = Tuner::cache_path_for_adapter(adapter_fp);
        let (cache, load_error) = match cache::load(&path) {
            Ok(cache) => (cache, None),
            Err(error) => {
                tracing::warn!(code = error.code.id, "{error}");
                (TunerCache::default(), Some(error))
            }
        };
        Tuner { mode, path, cache, changed: BTreeSet::new(), load_error }
    }

    /// `$XDG_CACHE_HOME/vyre/tuner/<adapter_fp>.toml`. Every string is safe: characters that could leave the folder or
    /// confuse a file system are percent-encoded, and different strings have different files.
    pub fn cache_path_for_adapter(adapter_fp: impl AsRef<str>) -> PathBuf {
        cache::adapter_file(&["tuner"], adapter_fp.as_ref())
    }

    /// The file of this tuner.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Why the stored decisions could not be read, if so.
    pub fn load_error(&self) -> Option<&Diagnostic> {
        self.load_error.as_ref()
    }

    /// Those of [`WORKGROUP_CANDIDATES`] that a device with this limit can run.
    pub fn candidates_for(&self, max_invocations: u32) -> Vec<u32> {
        WORKGROUP_CANDIDATES.iter().copied().filter(|&size| size <= max_invocations).collect()
    }

    /// What is used when nothing was decided.
    pub const fn default_workgroup_size() -> [u32; 3] {
        DEFAULT_1D_WORKGROUP_SIZE
    }

    /// The mode.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// The decision under a key, else the default.
    pub fn resolve(&self, key: &str) -> [u32; 3] {
        // A zero would launch nothing; it can only have been recorded by mistake, and `persist` names it.
        self.cache.get(key).filter(|size| !size.contains(&0)).unwrap_or(Tuner::default_workgroup_size())
    }

    /// The decision for a program, else the default.
    pub fn resolve_key(&self, key: &TunerProgramKey) -> [u32; 3] {
        self.resolve(key.as_str())
    }

    /// Remembers a decision; [`Tuner::persist`] stores it.
    pub fn record_decision(&mut self, key: impl Into<String>, size: [u32; 3]) {
        let key = key.into();
        self.changed.insert(key.clone());
        self.cache.set(key, size);
    }

    /// Remembers a decision for a program; [`Tuner::persist`] stores it.
    pub fn record_key_decision(&mut self, key: impl Borrow<TunerProgramKey>, size: [u32; 3]) {
        self.record_decision(key.borrow().as_str(), size);
    }

    /// Measures every candidate once and returns the fastest, the earliest on a tie; `None` when there are none. The first
    /// error stops the sweep. Nothing is recorded: that is the caller's decision.
    pub fn best_of<T: BackendTimer>(
        &self,
        program: &Program,
        candidates: impl IntoIterator<Item = [u32; 3]>,
        timer: &mut T,
    ) -> Result<Option<TuningMeasurement>, T::Error> {
        let measurements = measure(program, candidates, timer)?;
        Ok(measurements.into_iter().min_by_key(|measurement| measurement.elapsed_ns))
    }

    /// Measures every candidate once and asks the policy which to use next. The first timer error stops the sweep and is
    /// the outer error; the policy's refusal is the inner one. Nothing is recorded.
    pub fn best_of_natural_gradient<T: BackendTimer>(
        &self,
        program: &Program,
        candidates: impl IntoIterator<Item = [u32; 3]>,
        timer: &mut T,
        fisher_inv_sqrt_q16: &[u32],
        policy: impl Borrow<NaturalGradientPolicy>,
    ) -> Result<Result<NaturalGradientTuningStep, NaturalGradientTuningError>, T::Error> {
        let measurements = measure(program, candidates, timer)?;
        Ok(self.natural_gradient_step(&measurements, fisher_inv_sqrt_q16, policy))
    }

    /// Asks the policy which of the measured launches to use next.
    pub fn natural_gradient_step(
        &self,
        measurements: &[TuningMeasurement],
        fisher_inv_sqrt_q16: &[u32],
        policy: impl Borrow<NaturalGradientPolicy>,
    ) -> Result<NaturalGradientTuningStep, NaturalGradientTuningError> {
        policy.borrow().suggest(measurements, fisher_inv_sqrt_q16)
    }

    /// Stores the decisions recorded since the tuner was made, beside those that other processes stored meanwhile.
    pub fn persist(&self) -> Result<(), String> {
        let entries = self.cache.entries.iter().filter(|(key, _)| self.changed.contains(*key));
        let recorded = TunerCache { entries: entries.map(|(key, size)| (key.clone(), *size)).collect() };
        recorded.save(&self.path)
    }
}

fn measure<T: BackendTimer>(
    program: &Program,
    candidates: impl IntoIterator<Item = [u32; 3]>,
    timer: &mut T,
) -> Result<Vec<TuningMeasurement>, T::Error> {
    let time = |workgroup_size| {
        let elapsed_ns = timer.measure_candidate_ns(program, workgroup_size)?;
        Ok(TuningMeasurement { workgroup_size, elapsed_ns })
    };
    candidates.into_iter().map(time).collect()
}
