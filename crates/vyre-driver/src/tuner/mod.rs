//! Which launch is fastest here: workgroup shapes and specialization values are measured, and decisions are kept with their
//! evidence.

mod cache;
mod campaign;
mod decision;
mod drift;
mod feedback;
mod key;
mod lock;
mod mode;
mod natural;
mod online;
mod space;
mod stats;
mod stored;
mod surface;

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use vyre_foundation::ir::Program;
use vyre_spec::Diagnostic;

pub use cache::TunerCache;
pub use campaign::{Campaign, Outcome, Plan, Step, Timing, Verdict};
pub use decision::{Decision, Evidence, Measured, Rival, Source, Subject, Timed};
pub use drift::DriftWatch;
pub use feedback::{DefaultPolicy, TunerFeedback};
pub use key::{StaticProgramShape, TunerProgramKey, family};
pub use lock::{Lock, Span};
pub use mode::Mode;
pub use natural::{
    NaturalGradientPolicy, NaturalGradientTuningError, NaturalGradientTuningStep, Q16_ONE, identity_fisher_q16,
    identity_fisher_q16_into,
};
pub use online::{OnlineTuner, Turn};
pub use space::{Candidate, Candidates, Space};
pub use stats::{Relative, low_mean, relative};

use crate::pipeline::DEFAULT_1D_WORKGROUP_SIZE;
use stored::Stored;

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

/// What was decided for one adapter, and the sweeps that decide it. It is what an engine holds for each device.
///
/// Its file is the [`TunerCache`]'s: the workgroup size of each decision is a plain triple under its key, and what else there is to
/// it (constants, evidence) stands under the same key in a section of its own. A triple that was changed by hand comes before what
/// was measured; one that was taken out takes its decision with it.
#[derive(Debug)]
pub struct Tuner {
    mode: Mode,
    /// `None` where nothing is kept.
    path: Option<PathBuf>,
    cache: TunerCache,
    decisions: BTreeMap<String, Decision>,
    /// Keys decided since the last save, with the time of what was known before; what was only read is not written back over newer
    /// decisions of other processes.
    changed: BTreeMap<String, Option<u64>>,
    /// Keys that were forgotten since the last save.
    forgotten: BTreeSet<String>,
    /// Decisions whose launches don't take what they took, in this process.
    doubts: BTreeMap<String, Doubt>,
    load_error: Option<Diagnostic>,
}

/// What speaks against a decision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Doubt {
    /// The time of live runs relative to what it was, less one; `None` since it was measured again.
    pub change: Option<f64>,
    /// How often it was in doubt.
    pub times: u32,
}

/// What a tuner knows about a launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Known<'a> {
    /// Decided for this, by this build, or pinned.
    Decided(&'a Decision),
    /// A triple that was written by hand.
    Written([u32; 3]),
    /// Nothing for this, but something for another size of the program, by another build, or that is in doubt: a first guess, to be
    /// measured again.
    Guess(&'a Decision),
    /// Nothing.
    Nothing,
}

impl Tuner {
    /// A tuner with the stored decisions for an adapter. A file that can't be used is reported as a warning event and by
    /// [`Tuner::load_error`]; it is left as it is, and [`Tuner::persist`] refuses to replace it.
    pub fn new(adapter_fp: impl AsRef<str>, mode: Mode) -> Self {
        let tuner = Tuner::at(Tuner::cache_path_for_adapter(adapter_fp), mode);
        if let Some(error) = &tuner.load_error {
            tracing::warn!(code = error.code.id, "{error}");
        }
        tuner
    }

    /// A tuner with the decisions of a file.
    pub fn at(path: impl Into<PathBuf>, mode: Mode) -> Self {
        let path = path.into();
        let (stored, load_error) = match Stored::load(&path) {
            Ok(stored) => (stored, None),
            Err(error) => (Stored::default(), Some(error)),
        };
        Tuner { path: Some(path), load_error, ..Tuner::with(stored, mode) }
    }

    /// What the text of a file holds, which `name` stands for in problems. It is kept nowhere.
    pub fn from_text(name: impl AsRef<Path>, text: &str) -> Result<Self, Diagnostic> {
        Ok(Tuner::with(Stored::decode(name.as_ref(), text)?, Mode::OffUseDefault))
    }

    /// A tuner that keeps nothing.
    pub fn in_memory(mode: Mode) -> Self {
        Tuner::with(Stored::default(), mode)
    }

    fn with(stored: Stored, mode: Mode) -> Self {
        let Stored { cache, decisions } = stored;
        let (changed, forgotten, doubts) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Tuner { mode, path: None, cache, decisions, changed, forgotten, doubts, load_error: None }
    }

    /// As [`Tuner::at`], but a file with contents that can't be used is moved out of the way, so that a new one can begin. The
    /// diagnostic tells where it is, or why it can't be used and stays.
    pub fn recovered_at(path: impl Into<PathBuf>, mode: Mode) -> (Self, Option<Diagnostic>) {
        let mut tuner = Tuner::at(path, mode);
        let (Some(path), Some(problem)) = (&tuner.path, tuner.load_error.take()) else { return (tuner, None) };
        let notice = cache::FILE.set_aside(path, problem, |path| Stored::load(path).map(drop));
        tuner.load_error = Stored::load(path).err();
        (tuner, Some(notice))
    }

    /// `$XDG_CACHE_HOME/vyre/tuner/<adapter_fp>.toml`. Every string is safe: characters that could leave the folder or
    /// confuse a file system are percent-encoded, and different strings have different files, also where case is folded.
    pub fn cache_path_for_adapter(adapter_fp: impl AsRef<str>) -> PathBuf {
        cache::adapter_file(adapter_fp.as_ref())
    }

    /// The name of an adapter's file in whatever folder.
    pub fn file_name_for_adapter(adapter_fp: impl AsRef<str>) -> String {
        cache::file_name(adapter_fp.as_ref())
    }

    /// The file of this tuner; empty where it keeps nothing.
    pub fn path(&self) -> &Path {
        self.path.as_deref().unwrap_or(Path::new(""))
    }

    /// Why the stored decisions could not be read, if so.
    pub fn load_error(&self) -> Option<&Diagnostic> {
        self.load_error.as_ref()
    }

    /// What is known about a launch. `family` is what all sizes of the program share, see [`family`], and `build` the build of driver
    /// and compiler that would run it.
    pub fn find(&self, key: &TunerProgramKey, family: &str, build: &str) -> Known<'_> {
        let triple = self.cache.get_key(key).filter(|size| !size.contains(&0));
        match (triple, self.decisions.get(key.as_str())) {
            (Some(size), Some(decision)) if decision.candidate.workgroup_size == size => {
                let in_doubt = self.doubt(key.as_str()).change.is_some();
                return match decision.pinned || (decision.evidence.build == build && !in_doubt) {
                    true => Known::Decided(decision),
                    false => Known::Guess(decision),
                };
            }
            (Some(size), _) => return Known::Written(size),
            (None, _) => {}
        }
        let others =
            self.decisions.values().filter(|decision| decision.subject.family == family && decision.subject.proven);
        match others.max_by_key(|decision| (decision.evidence.build == build, decision.evidence.measured_at)) {
            Some(decision) => Known::Guess(decision),
            None => Known::Nothing,
        }
    }

    /// Live runs take longer or shorter than when this was decided, by this share: it is measured again, unless it is pinned. False where
    /// nothing was decided, or it is in doubt already.
    pub fn begin_to_doubt(&mut self, key: &str, change: f64) -> bool {
        if self.decisions.get(key).is_none_or(|decision| decision.pinned) || self.doubt(key).change.is_some() {
            return false;
        }
        let doubt = self.doubts.entry(key.to_owned()).or_default();
        *doubt = Doubt { change: Some(change), times: doubt.times.saturating_add(1) };
        true
    }

    /// Live runs take less time than when this was decided: what was decided before the device became slow holds again, where that is
    /// known. The launch that was used until now.
    pub fn return_to_faster(&mut self, key: &str) -> Option<Candidate> {
        let decision = self.decisions.get(key).filter(|decision| !decision.pinned)?;
        let mut restored = decision.clone();
        let used = restored.return_to_faster()?;
        let size = restored.candidate.workgroup_size;
        self.record_decision(key, size);
        self.decisions.insert(key.to_owned(), restored);
        let doubt = self.doubts.entry(key.to_owned()).or_default();
        *doubt = Doubt { change: None, times: doubt.times.saturating_add(1) };
        Some(used)
    }

    /// What speaks against a decision, in this process.
    pub fn doubt(&self, key: &str) -> Doubt {
        self.doubts.get(key).cloned().unwrap_or_default()
    }

    /// What was decided under a key.
    pub fn decision(&self, key: &str) -> Option<&Decision> {
        self.decisions.get(key)
    }

    /// The triple under a key, where one is stored.
    pub fn stored(&self, key: &TunerProgramKey) -> Option<[u32; 3]> {
        self.cache.get_key(key).filter(|size| !size.contains(&0))
    }

    /// Every decision with its key.
    pub fn decisions(&self) -> impl Iterator<Item = (&str, &Decision)> {
        self.decisions.iter().map(|(key, decision)| (key.as_str(), decision))
    }

    /// Every plain triple with its key.
    pub fn triples(&self) -> impl Iterator<Item = (&str, [u32; 3])> {
        self.cache.entries.iter().map(|(key, size)| (key.as_str(), *size))
    }

    /// Keeps a decision with what it rests on, in place of what was known; a pinned one stays. [`Tuner::save`] stores it.
    ///
    /// What is decided while a device is slower than it was may hold only as long: what was decided before stays beside it.
    pub fn record(&mut self, key: impl Borrow<TunerProgramKey>, mut decision: Decision) {
        let key = key.borrow();
        if self.decisions.get(key.as_str()).is_some_and(|known| known.pinned && !decision.pinned) {
            return;
        }
        if let Some(doubt) = self.doubts.get_mut(key.as_str())
            && doubt.change.take().is_some_and(|change| change > 0.0)
            && let Some(before) = self.decisions.get(key.as_str())
        {
            decision.remember(before);
        }
        self.record_key_decision(key, decision.candidate.workgroup_size);
        self.decisions.insert(key.as_str().to_owned(), decision);
    }

    /// Takes in decisions of others; the better evidence decides, and where it disagrees both are kept.
    pub fn merge(&mut self, key: &str, decision: Decision) {
        self.note_change(key);
        let merged = match self.decisions.remove(key) {
            Some(mut known) => {
                known.merge(decision);
                known
            }
            None => decision,
        };
        self.cache.set(key, merged.candidate.workgroup_size);
        self.decisions.insert(key.to_owned(), merged);
    }

    /// Pins a decision, so that it is used as it is and never measured again, or lets it go. False where there is none.
    pub fn pin(&mut self, key: &str, pinned: bool) -> bool {
        let Some(decision) = self.decisions.get_mut(key) else { return false };
        decision.pinned = pinned;
        let size = decision.candidate.workgroup_size;
        self.record_decision(key, size);
        true
    }

    /// Forgets what was decided under a key. False where there was nothing.
    pub fn forget(&mut self, key: &str) -> bool {
        let known = self.cache.entries.remove(key).is_some() | self.decisions.remove(key).is_some();
        if known {
            self.changed.remove(key);
            self.forgotten.insert(key.to_owned());
        }
        known
    }

    /// What the device has shown so far, for programs whose launch may change: the workgroup size that was mostly the fastest, and
    /// the work that was done with it. `None` before anything was decided.
    pub fn feedback(&self) -> Option<TunerFeedback> {
        let shown = self.decisions.values().filter(|decision| decision.evidence.samples > 0);
        let (mut sizes, mut wall_ns, mut work) = (Vec::new(), 0u64, 0.0);
        for decision in shown {
            let invocations = |shape: [u32; 3]| shape.iter().map(|&size| f64::from(size)).product::<f64>();
            sizes.push(invocations(decision.candidate.workgroup_size) as u32);
            wall_ns = wall_ns.saturating_add(decision.evidence.chosen_ns);
            work += invocations(decision.subject.own) * invocations(decision.subject.grid);
        }
        sizes.sort_unstable();
        let &middle = sizes.get(sizes.len() / 2)?;
        Some(TunerFeedback {
            wall_time_us: wall_ns / 1_000,
            observed_workgroup_size_x: middle,
            observed_throughput_per_us: 1e3 * work / wall_ns.max(1) as f64,
            ..TunerFeedback::default()
        })
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
        self.note_change(&key);
        self.cache.set(key, size);
    }

    fn note_change(&mut self, key: &str) {
        let before = self.decisions.get(key).map(|known| known.evidence.measured_at);
        self.changed.entry(key.to_owned()).or_insert(before);
        self.forgotten.remove(key);
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
        self.write().map_err(|problem| problem.to_string())
    }

    /// Stores what was decided and forgotten since the last save, beside what other processes stored meanwhile. Where another process
    /// decided the same in between, the better evidence stays.
    pub fn save(&mut self) -> Result<(), Diagnostic> {
        self.write()?;
        self.changed.clear();
        self.forgotten.clear();
        Ok(())
    }

    /// There is something to save.
    pub fn is_changed(&self) -> bool {
        !self.changed.is_empty() || !self.forgotten.is_empty()
    }

    fn write(&self) -> Result<(), Diagnostic> {
        let Some(path) = &self.path else { return Ok(()) };
        let changed = || self.changed.keys().filter_map(|key| Some((key, self.cache.get(key)?)));
        cache::check(&TunerCache { entries: changed().map(|(key, size)| (key.clone(), size)).collect() }, path)?;
        cache::FILE.update(path, |path, present| {
            let mut stored = match present {
                Some(text) => Stored::decode(path, &text)?,
                None => Stored::default(),
            };
            for key in &self.forgotten {
                stored.cache.entries.remove(key);
                stored.decisions.remove(key);
            }
            for (key, mut size) in changed() {
                if let Some(decision) = self.decisions.get(key).filter(|known| known.candidate.workgroup_size == size) {
                    let mut merged = decision.clone();
                    let before = self.changed.get(key).copied().flatten();
                    // What was known when this was decided is replaced; what came in between is weighed.
                    let meanwhile = |other: &Decision| Some(other.evidence.measured_at) != before && other != decision;
                    if let Some(other) = stored.decisions.remove(key).filter(meanwhile) {
                        merged.merge(other);
                    }
                    size = merged.candidate.workgroup_size;
                    stored.decisions.insert(key.clone(), merged);
                }
                stored.cache.set(key.clone(), size);
            }
            stored.encode(path, &changed().map(|(key, _)| key.clone()).collect())
        })
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
