//! Which launch a program gets on a backend.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use vyre_driver::backend::{DeviceKind, Knobs};
use vyre_driver::metrics::{Counter, Stage};
use vyre_driver::pipeline::hex_encode;
use vyre_driver::tuner::{
    self, Candidate, Candidates, Decision, DefaultPolicy, DriftWatch, Known, Lock, Measured, Mode, Source, Space,
    StaticProgramShape, Subject, Tuner, TunerProgramKey,
};
use vyre_driver::variant::Variant;
use vyre_driver::{BackendError, DispatchConfig, VyreBackend};
use vyre_foundation::ValidProgram;
use vyre_foundation::launch::{self, LaunchPlan};
use vyre_spec::{Diagnostic, codes};

use super::sweep::Sweep;
use super::timings::Live;
use super::variants;
use super::{Inner, lock};

/// Where decisions are kept.
pub(super) enum Folder {
    /// The user's own, as the driver has it.
    User,
    At(PathBuf),
    None,
}

/// The tuners of all adapters that this engine has met.
pub(super) struct Tuning {
    mode: Mode,
    folder: Folder,
    /// What is used exactly as it is, instead of everything else.
    lock: Option<Arc<Lock>>,
    tuners: Mutex<BTreeMap<String, Tuner>>,
    /// Files that can't be used and launches that are not, for the user.
    problems: Mutex<Vec<Diagnostic>>,
    /// What was told already.
    told: Mutex<BTreeSet<String>>,
}

/// One timing of a sweep.
#[derive(Clone, Copy, Debug)]
pub struct TuneSample<'a> {
    /// The launch that ran.
    pub candidate: &'a Candidate,
    /// Its time.
    pub ns: u64,
    /// Timings so far.
    pub taken: usize,
    /// Most timings that the sweep will take.
    pub at_most: usize,
    /// The time of the sweep so far.
    pub elapsed: Duration,
}

/// Whether a sweep goes on after a timing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Go {
    /// As planned.
    On,
    /// The time is short: what is fastest so far is certified, and that is all.
    Finish,
    /// At once: nothing is decided.
    Stop,
}

/// What somebody waits for while launches are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Waits {
    /// The first run of a program, for which only launches are compared that are proven to give its results.
    ForFirstRun,
    /// The comparison itself, which may take about so long.
    ForTuning(Option<Duration>),
}

/// Without a budget samples of a noisy machine are made longer as long as a search is expected to take no longer than this.
const LONGEST_SEARCH: Duration = Duration::from_secs(4);
/// Shares of a budget that may be over before what is fastest is certified, and of what is left that a search should take.
const SEARCH: f64 = 0.8;
const EXPECTED: f64 = 0.7;

impl Waits {
    /// How long a search that begins now may take because of samples that are made longer.
    pub(super) fn longest_search(self, elapsed: Duration) -> Duration {
        match self {
            Waits::ForFirstRun => Duration::ZERO,
            Waits::ForTuning(None) => LONGEST_SEARCH,
            Waits::ForTuning(Some(budget)) => budget.mul_f64(SEARCH).saturating_sub(elapsed).mul_f64(EXPECTED),
        }
    }

    /// The time for searching is over; what is left is for certifying.
    pub(super) fn is_over(self, elapsed: Duration) -> bool {
        matches!(self, Waits::ForTuning(Some(budget)) if elapsed > budget.mul_f64(SEARCH))
    }
}

/// Most launches that are compared on request, and while learning.
const MOST_CANDIDATES: usize = 256;
const MOST_LEARNT: usize = 64;

/// A launch that something is decided about.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) backend: &'a Arc<dyn VyreBackend>,
    pub(super) program: &'a ValidProgram,
    /// With the kernel's own launch.
    pub(super) plan: &'a LaunchPlan,
    pub(super) config: &'a DispatchConfig,
    /// Other implementations that may run.
    pub(super) variants: &'a [Variant],
    /// The caller names the grid, so that nothing but a variant can take the place of the program's own launch.
    pub(super) fixed: bool,
}

impl Asked<'_> {
    fn shape(&self) -> StaticProgramShape {
        let order = self.program.binding_order();
        let buffers = || order.iter().zip(&self.plan.buffer_bytes);
        let is_result = |index: &usize| self.program.buffers()[*index].kind.is_result();
        StaticProgramShape {
            workgroup_size: self.plan.workgroup_size,
            workgroup_count: Some(self.plan.grid),
            output_bytes: buffers().filter(|(index, _)| is_result(index)).map(|(_, bytes)| bytes).sum(),
            input_bytes: buffers().filter(|(index, _)| !is_result(index)).map(|(_, bytes)| *bytes).collect(),
        }
    }

    /// The key of a decision that holds for all sizes like this one.
    pub(super) fn key(&self) -> TunerProgramKey {
        TunerProgramKey::of_dispatch(self.program, self.shape().class(), self.config)
    }

    /// The key of a decision that holds for exactly this size.
    fn exact_key(&self) -> TunerProgramKey {
        TunerProgramKey::of_dispatch(self.program, self.shape(), self.config)
    }

    fn family(&self) -> String {
        tuner::family(self.program, self.config)
    }

    /// Which build of driver and compiler makes the code.
    pub(super) fn build(&self) -> String {
        hex_encode(&self.backend.capabilities().fingerprint.driver_digest[..8])
    }

    pub(super) fn subject(&self, proven: bool) -> Subject {
        let shape = if proven { self.shape().class() } else { self.shape() };
        Subject {
            program: self.program.name().to_owned(),
            family: self.family(),
            own: self.plan.workgroup_size,
            grid: shape.workgroup_count.unwrap_or_default(),
            proven,
        }
    }

    pub(super) fn measured(&self, source: Source) -> Measured {
        let able = self.backend.capabilities();
        Measured {
            source,
            device: able.name.clone(),
            driver: able.driver.clone(),
            build: self.build(),
            grid: Some(self.plan.grid),
            at: now(),
        }
    }

    /// A launch with these workgroups and constants gives proven the same results as one with the same constants and the kernel's
    /// own workgroups.
    pub(super) fn is_proven(&self, candidate: &Candidate) -> Result<bool, Diagnostic> {
        if candidate.variant.is_some() {
            // Every size is compared before it runs there.
            return Ok(self.may_run(candidate));
        }
        let specialization = with_launch(self.config, candidate).specialization.resolve(self.program)?;
        let own = launch::workgroup_size(self.program, Some(&specialization))?;
        let freedom = launch::freedom(self.program, Some(&specialization))?;
        let mut plan = self.plan.clone();
        // The plan is that of other constants, whose workgroups may have another size.
        plan.grid = std::array::from_fn(|axis| {
            let groups = plan.domain[axis].div_ceil(u64::from(own[axis].max(1)));
            u32::try_from(groups).unwrap_or(u32::MAX)
        });
        plan.workgroup_size = own;
        let shape = candidate.workgroup_size == own || freedom.allows(&plan, candidate.workgroup_size);
        Ok(shape && (freedom.is_proven() || !candidate.knobs.merges()))
    }

    /// It is not of a variant that may not run here, nor another shape where that is fixed.
    fn may_run(&self, candidate: &Candidate) -> bool {
        match &candidate.variant {
            Some(id) => self.variants.iter().any(|variant| variant.id() == *id),
            None => {
                let plain = candidate.specialization.is_empty() && candidate.knobs.is_default();
                let own = candidate.workgroup_size == self.plan.workgroup_size && plain;
                own || !self.fixed
            }
        }
    }

    fn fits(&self, shape: [u32; 3]) -> bool {
        let limits = &self.backend.capabilities().limits;
        let invocations = shape.iter().fold(1u64, |product, &size| product.saturating_mul(u64::from(size)));
        (0..3).all(|axis| shape[axis] <= limits.max_workgroup_size[axis])
            && invocations <= u64::from(limits.max_workgroup_invocations)
    }
}

/// What tells devices apart that decisions are kept for: what they are and what they can do, not which driver they have. Devices of one
/// kind share what was decided.
pub(super) fn adapter_name(backend: &dyn VyreBackend) -> String {
    let able = backend.capabilities();
    let threads = match able.kind {
        DeviceKind::Cpu if able.threads > 0 => able.threads as usize,
        DeviceKind::Cpu | DeviceKind::Software => std::thread::available_parallelism().map_or(1, usize::from),
        _ => 0,
    };
    let limits = &able.limits;
    let can = format!(
        "{:?} {} {:?} {} {threads}",
        limits.max_workgroup_size,
        limits.max_workgroup_invocations,
        limits.max_workgroup_memory,
        able.pipeline_features.bits(),
    );
    let mut parts = vyre_driver::pipeline::PipelineDeviceFingerprint::from_parts(0, 0, &able.name, &can);
    (parts.vendor, parts.device) = (able.fingerprint.vendor, able.fingerprint.device);
    let kind = backend.id().split(':').next().unwrap_or_default();
    format!("{kind}-{}-{}", able.name, hex_encode(&parts.cache_key([0; 32])[..6]))
}

/// What an adapter is called in files: the name of its tuner's.
pub(super) fn adapter_stem(backend: &dyn VyreBackend) -> String {
    Tuner::file_name_for_adapter(adapter_name(backend)).trim_end_matches(".toml").to_owned()
}

impl Tuning {
    pub(super) fn new(mode: Mode, folder: Folder, lock: Option<Arc<Lock>>) -> Tuning {
        let tuners = Mutex::default();
        Tuning { mode, folder, lock, tuners, problems: Mutex::default(), told: Mutex::default() }
    }

    /// With a lock file nothing is measured.
    pub(super) fn mode(&self) -> Mode {
        if self.lock.is_some() { Mode::OffUseDefault } else { self.mode }
    }

    /// Refuses to measure or change anything while a lock file is in use.
    pub(super) fn check_unlocked(&self, what: &str) -> Result<(), Diagnostic> {
        match self.lock {
            Some(_) => {
                Err(Diagnostic::new(&codes::tuner::LOCKED, format!("{what}, but decisions come from a lock file")))
            }
            None => Ok(()),
        }
    }

    /// What was decided for a launch; `None` for the kernel's own.
    pub(super) fn decision(&self, asked: &Asked<'_>) -> Option<Decision> {
        if (asked.fixed || !leaves_launch_open(asked.config)) && asked.variants.is_empty() {
            return None;
        }
        self.stored(asked).filter(|decision| asked.may_run(&decision.candidate))
    }

    /// The variant that was decided for, whether it may run or not.
    pub(super) fn named(&self, asked: &Asked<'_>) -> Option<String> {
        self.stored(asked)?.candidate.variant
    }

    fn stored(&self, asked: &Asked<'_>) -> Option<Decision> {
        if let Some(lock) = &self.lock {
            return self.locked(lock, asked);
        }
        if self.mode == Mode::OffUseDefault {
            return None;
        }
        let (key, exact) = (asked.key(), asked.exact_key());
        let open = StaticProgramShape { workgroup_count: None, input_bytes: Vec::new(), ..asked.shape() };
        let open = TunerProgramKey::of_dispatch(asked.program, open, asked.config);
        let found = self.on_tuner(&**asked.backend, |tuner| {
            // What was written down for exactly this comes before what holds for sizes like it.
            for key in [&exact, &open].into_iter().filter(|other| **other != key) {
                match tuner.find(key, "", &asked.build()) {
                    Known::Written(size) => return Some(Err(size)),
                    Known::Decided(decision) if decision.pinned || decision.subject.proven => {
                        return Some(Ok(decision.clone()));
                    }
                    Known::Decided(_) | Known::Guess(_) | Known::Nothing => {}
                }
            }
            match tuner.find(&key, "", &asked.build()) {
                // What is not proven holds for exactly its own size, whose key may be that of its class.
                Known::Decided(decision) if decision.subject.proven || (decision.pinned && key == exact) => {
                    Some(Ok(decision.clone()))
                }
                Known::Written(size) => Some(Err(size)),
                Known::Decided(_) | Known::Guess(_) | Known::Nothing => None,
            }
        })?;
        match found {
            Ok(decision) => self.usable(asked, decision),
            Err(size) => self.written(asked, size),
        }
    }

    /// Decisions are looked up at all.
    pub(super) fn decides(&self) -> bool {
        self.lock.is_some() || self.mode != Mode::OffUseDefault
    }

    /// What its owner has pinned is not proven, but the compiler merges only invocations that don't see each other.
    fn usable(&self, asked: &Asked<'_>, decision: Decision) -> Option<Decision> {
        if !decision.candidate.knobs.merges() || asked.is_proven(&decision.candidate).unwrap_or(false) {
            return Some(decision);
        }
        let name = asked.program.name();
        let message =
            format!("a file asks for {} for `{name}`, but its results may depend on that", decision.candidate);
        self.tell(Diagnostic::new(&codes::tuner::NOT_PROVEN, message));
        None
    }

    /// A launch that was written by hand, where it is proven to change nothing.
    fn written(&self, asked: &Asked<'_>, workgroup_size: [u32; 3]) -> Option<Decision> {
        let candidate = Candidate::of_shape(workgroup_size);
        if asked.is_proven(&candidate).unwrap_or(false) && asked.fits(workgroup_size) {
            return Some(Decision::written(asked.subject(true), candidate));
        }
        let why = match asked.fits(workgroup_size) {
            true => "its results may depend on that",
            false => "the device has no workgroups that large",
        };
        let message = format!("a file asks for workgroups of {candidate} for `{}`, but {why}", asked.program.name());
        self.tell(Diagnostic::new(&codes::tuner::NOT_PROVEN, message));
        None
    }

    fn locked(&self, lock: &Lock, asked: &Asked<'_>) -> Option<Decision> {
        let adapter = adapter_stem(&**asked.backend);
        let (key, exact) = (asked.key(), asked.exact_key());
        let of_class = || lock.launch(&adapter, &key).filter(|decision| decision.subject.proven);
        let found = lock.launch(&adapter, &exact).or_else(of_class).cloned();
        match found {
            // The file may be of another kernel or have been changed by hand.
            // A variant is compared before it runs, whoever names it.
            Some(decision)
                if decision.pinned
                    || decision.candidate.variant.is_some()
                    || asked.is_proven(&decision.candidate).unwrap_or(false) =>
            {
                if decision.evidence.build != asked.build() && decision.evidence.samples > 0 {
                    let message = format!(
                        "`{}` was locked with another build of driver or compiler; its launch is used as it is",
                        asked.program.name()
                    );
                    self.tell(Diagnostic::new(&codes::tuner::LOCK_OLD, message));
                }
                self.usable(asked, decision)
            }
            Some(decision) => self.written(asked, decision.candidate.workgroup_size),
            None => {
                let [x, y, z] = asked.plan.grid;
                let message = format!(
                    "the lock file has no launch for `{}` with {x} x {y} x {z} workgroups on `{}`",
                    asked.program.name(),
                    asked.backend.id()
                );
                self.tell(Diagnostic::new(&codes::tuner::LOCK_MISSING, message));
                None
            }
        }
    }

    /// Tells the user, once.
    pub(super) fn tell(&self, problem: Diagnostic) {
        let mut told = lock(&self.told);
        if told.len() < 1024 && told.insert(problem.message.clone()) {
            lock(&self.problems).push(problem);
        }
    }

    /// Lets the candidates begin with the best guess: what was decided for another size or by another build, else what the device has
    /// shown for other programs.
    pub(super) fn begin_with_best_guess(&self, asked: &Asked<'_>, candidates: &mut Candidates) {
        let (key, family, build) = (asked.key(), asked.family(), asked.build());
        self.on_tuner(&**asked.backend, |tuner| {
            if let Known::Guess(decision) = tuner.find(&key, &family, &build) {
                let why = match decision.evidence.build == build {
                    true => format!("what was decided for {:?} workgroups", decision.subject.grid),
                    false => "what was decided with another build of driver or compiler".to_owned(),
                };
                return candidates.begin_with(&decision.candidate, why);
            }
            if let Some(brought) = candidates.list.iter().find(|candidate| candidate.variant.is_some()).cloned() {
                return candidates.begin_with(&brought, "somebody's own code for this device".to_owned());
            }
            let Some(feedback) = tuner.feedback() else { return };
            let policy = DefaultPolicy {
                adapter_max_workgroup_size_x: asked.backend.capabilities().limits.max_workgroup_invocations,
                ..DefaultPolicy::default()
            };
            let size = policy.suggest_resize(&feedback).unwrap_or(feedback.observed_workgroup_size_x);
            let bits = |shape: [u32; 3]| shape.iter().map(|size| size.max(&1).ilog2()).sum::<u32>();
            let nearest =
                candidates.list.iter().skip(1).min_by_key(|one| bits(one.workgroup_size).abs_diff(size.max(1).ilog2()));
            if let Some(nearest) = nearest.cloned() {
                candidates.begin_with(
                    &nearest,
                    format!("other kernels on this device, mostly fastest with workgroups of {size}"),
                );
            }
        });
    }

    /// Works on the tuner of a backend's device.
    pub(super) fn on_tuner<T>(&self, backend: &dyn VyreBackend, work: impl FnOnce(&mut Tuner) -> T) -> T {
        let mut tuners = lock(&self.tuners);
        let tuner = tuners.entry(adapter_name(backend)).or_insert_with_key(|name| {
            let path = match &self.folder {
                Folder::User => Tuner::cache_path_for_adapter(name),
                Folder::At(folder) => folder.join(Tuner::file_name_for_adapter(name)),
                Folder::None => return Tuner::in_memory(self.mode),
            };
            let (tuner, problem) = Tuner::recovered_at(path, self.mode);
            lock(&self.problems).extend(problem);
            tuner
        });
        work(tuner)
    }

    /// Works on every tuner that is open, until one fails.
    pub(super) fn each_open(
        &self,
        mut work: impl FnMut(&str, &mut Tuner) -> Result<(), Diagnostic>,
    ) -> Result<(), Diagnostic> {
        for (name, tuner) in lock(&self.tuners).iter_mut() {
            work(Tuner::file_name_for_adapter(name).trim_end_matches(".toml"), tuner)?;
        }
        Ok(())
    }

    /// Keeps a decision.
    pub(super) fn decided(&self, asked: &Asked<'_>, decision: Decision) {
        let key = if decision.subject.proven { asked.key() } else { asked.exact_key() };
        let candidate = decision.candidate.clone();
        let (change, before) = self.on_tuner(&**asked.backend, |tuner| {
            let before = tuner.decision(key.as_str()).map(|before| before.candidate.clone());
            let change = tuner.doubt(key.as_str()).change;
            tuner.record(&key, decision);
            (change, before)
        });
        if let (Some(change), Some(before)) = (change, before) {
            let now = match before == candidate {
                true => format!("{candidate} is still the best"),
                false => format!("{candidate} instead of {before}"),
            };
            let more = if change > 0.0 { "longer" } else { "less time" };
            let message = format!(
                "runs of `{}` took {:.0}% {more} than when their launch was decided, so it was measured again: {now}",
                asked.program.name(),
                100.0 * change.abs()
            );
            self.tell(Diagnostic::new(&codes::tuner::MEASURED_AGAIN, message));
        }
    }

    /// Live timings of a launch that was decided for sizes like this one are compared with what it took then. What its owner has pinned,
    /// and what only agreed with other results, is never measured again by itself.
    pub(super) fn watch(&self, asked: &Asked<'_>, decision: &Decision) -> Option<Live> {
        let evidence = &decision.evidence;
        if self.mode() != Mode::NaturalGradient || decision.pinned || !decision.subject.proven || evidence.samples == 0
        {
            return None;
        }
        let key = asked.key();
        let again = self.on_tuner(&**asked.backend, |tuner| {
            // What else is kept beside it is no matter.
            let is_known =
                |known: &Decision| known.candidate == decision.candidate && known.evidence == decision.evidence;
            let is_this = tuner.decision(key.as_str()).is_some_and(is_known);
            is_this.then(|| tuner.doubt(key.as_str()).times)
        })?;
        // A campaign runs a launch again and again, which may be faster than real runs are.
        let comparable = evidence.source == Source::Learnt && evidence.grid == Some(asked.plan.grid);
        Some(Live::new(key, DriftWatch::new(comparable.then_some(evidence.chosen_ns), again)))
    }

    /// Live runs of what was decided under a key have lastingly changed. True where it is to be launched otherwise from now on: as it was decided
    /// before, where runs have become faster and that is known, else it is measured again.
    pub(super) fn begin_to_doubt(
        &self,
        backend: &dyn VyreBackend,
        program: &ValidProgram,
        key: &TunerProgramKey,
        change: f64,
    ) -> bool {
        if change < 0.0
            && let Some((used, now)) = self.on_tuner(backend, |tuner| {
                let used = tuner.return_to_faster(key.as_str())?;
                Some((used, tuner.decision(key.as_str())?.candidate.clone()))
            })
        {
            let message = format!(
                "runs of `{}` took {:.0}% less time than when their launch was decided, so what was decided before holds again: {now} instead of {used}",
                program.name(),
                -100.0 * change
            );
            self.tell(Diagnostic::new(&codes::tuner::MEASURED_AGAIN, message));
            return true;
        }
        self.on_tuner(backend, |tuner| tuner.begin_to_doubt(key.as_str(), change))
    }

    pub(super) fn take_problems(&self) -> Vec<Diagnostic> {
        std::mem::take(&mut *lock(&self.problems))
    }

    /// The folder of the files, where there is one.
    pub(super) fn folder(&self) -> Option<PathBuf> {
        match &self.folder {
            Folder::User => Tuner::cache_path_for_adapter("adapter").parent().map(PathBuf::from),
            Folder::At(folder) => Some(folder.clone()),
            Folder::None => None,
        }
    }

    /// The lock file's contents, where one is in use.
    pub(super) fn lock_file(&self) -> Option<&Lock> {
        self.lock.as_deref()
    }

    /// Adds new decisions to their files.
    pub(super) fn save(&self) -> Result<(), Diagnostic> {
        let mut tuners = lock(&self.tuners);
        let mut first = Ok(());
        for tuner in tuners.values_mut().filter(|tuner| tuner.is_changed()) {
            // One file that can't be written does not lose the others.
            let saved = tuner.save();
            first = first.and(saved);
        }
        first
    }
}

/// A caller who names a workgroup size gets it.
fn leaves_launch_open(config: &DispatchConfig) -> bool {
    config.workgroup_override.is_none() && config.grid_override.is_none() && config.knobs.is_default()
}

pub(super) fn with_launch(config: &DispatchConfig, candidate: &Candidate) -> DispatchConfig {
    let mut config = config.clone();
    config.variant = variants::find(&config, candidate).cloned();
    config.workgroup_override = Some(candidate.workgroup_size);
    if !candidate.knobs.is_default() {
        config.knobs = candidate.knobs;
    }
    for (name, value) in candidate.specialization.iter() {
        config.specialization.insert(name, value.clone());
    }
    config
}

pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Inner {
    /// The launches that may be compared for a program on a backend, the default first; only the default when its result may depend on
    /// the workgroup size and no constants are tuned. With `proven` only those that are proven to give the same results.
    pub(super) fn candidates(
        &self,
        asked: &Asked<'_>,
        space: Option<&Space>,
        proven: bool,
    ) -> Result<Candidates, BackendError> {
        let Asked { program, plan, config, .. } = *asked;
        let limits = &asked.backend.capabilities().limits;
        let own = Candidate::of_shape(plan.workgroup_size);
        let own_constants = config.specialization.resolve(program)?;
        let most = if proven { MOST_LEARNT } else { MOST_CANDIDATES };
        let mut candidates =
            Candidates { list: vec![own.clone()], places: vec![place(&own, &[])], first: None, prior: None };
        let combinations = space.map_or_else(|| vec![Default::default()], |space| space.constants(most));
        for (constants, at) in combinations {
            let varied = Candidate { specialization: constants.clone(), ..own.clone() };
            let resolved = with_launch(config, &varied).specialization.resolve(program)?;
            // Constants may decide how large the kernel's own workgroups are.
            let size = match config.workgroup_override {
                Some(size) => size,
                None => launch::workgroup_size(program, Some(&resolved))?,
            };
            let mut shapes = vec![size];
            let freedom = launch::freedom(program, Some(&resolved))?;
            if leaves_launch_open(config) && !asked.fixed && freedom.shapes != launch::Shapes::Own {
                let explicit = space.map(Space::shapes).unwrap_or_default();
                let along = Space::new().with_shapes_along(freedom.axes, plan.domain, limits.max_workgroup_invocations);
                let mut own_plan = plan.clone();
                own_plan.workgroup_size = size;
                let others = if explicit.is_empty() { along.shapes() } else { explicit };
                shapes.extend(others.iter().filter(|shape| freedom.may_try(&own_plan, **shape)));
            }
            let mut ways: Vec<([u32; 3], Knobs)> = shapes.iter().map(|shape| (*shape, Knobs::default())).collect();
            if leaves_launch_open(config) && !asked.fixed {
                ways.extend(self.knobs(asked, &resolved, &freedom, &shapes, proven)?);
            }
            for (workgroup_size, knobs) in ways {
                let mut candidate =
                    Candidate { specialization: constants.clone(), ..Candidate::of_shape(workgroup_size) };
                candidate.knobs = knobs;
                let is_default =
                    workgroup_size == own.workgroup_size && resolved == own_constants && knobs.is_default();
                if is_default || !asked.fits(workgroup_size) || candidates.list.contains(&candidate) {
                    continue;
                }
                if (proven && !asked.is_proven(&candidate)?) || candidates.list.len() >= most {
                    continue;
                }
                candidates.places.push(place(&candidate, &at));
                candidates.list.push(candidate);
            }
        }
        let constants = candidates.places.iter().map(Vec::len).max().unwrap_or(3);
        candidates.places.iter_mut().for_each(|place| place.resize(constants, 0));
        if candidates.list.iter().any(|candidate| !candidate.knobs.is_default()) {
            for (place, candidate) in candidates.places.iter_mut().zip(&candidates.list) {
                place.extend(candidate.knobs.place());
            }
        }
        let is_cpu = matches!(asked.backend.capabilities().kind, DeviceKind::Cpu | DeviceKind::Software);
        let is_row = candidates.list.iter().all(|candidate| candidate.workgroup_size[1..] == [1, 1]);
        candidates.prefer(|candidate| super::knobs::preference([is_cpu, is_row], candidate));
        let constants = candidates.places[0].len();
        if !asked.variants.is_empty() {
            // What is learnt about the program's own launches says nothing of a variant, so they stand far apart.
            candidates.places.iter_mut().for_each(|place| place.push(0));
            for (variant, far) in asked.variants.iter().zip((8..).step_by(8)) {
                let mut at = candidates.places[0].clone();
                at[constants] = far;
                candidates.places.push(at);
                candidates.list.push(variants::candidate(variant, own.workgroup_size));
            }
        }
        Ok(candidates)
    }

    /// Compares the proven launches at first use. A machine that is too noisy to tell is no reason not to run.
    pub(super) fn tune_at_first_use(
        &self,
        asked: &Asked<'_>,
        inputs: &[&[u8]],
    ) -> Result<Option<Decision>, BackendError> {
        if !leaves_launch_open(asked.config) && asked.config.variants.is_empty() {
            return Ok(None);
        }
        match self.tune(asked.backend, asked.program, inputs, asked.config, None, Waits::ForFirstRun, &mut |_| Go::On) {
            Ok(decision) => Ok(Some(decision)),
            Err(error) if error.code() == codes::tuner::TOO_NOISY.id => {
                self.tuning.tell(error.into_diagnostic());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Compares launches on the caller's inputs and keeps the decision.
    #[allow(clippy::too_many_arguments, reason = "what the caller of the engine gives, one by one")]
    pub(super) fn tune(
        &self,
        backend: &Arc<dyn VyreBackend>,
        program: &ValidProgram,
        inputs: &[&[u8]],
        config: &DispatchConfig,
        space: Option<&Space>,
        waits: Waits,
        watch: &mut dyn FnMut(TuneSample<'_>) -> Go,
    ) -> Result<Decision, BackendError> {
        self.tuning.check_unlocked("a kernel is to be tuned")?;
        let _timer = self.metrics.time(Stage::Tune);
        let plan = vyre_driver::launch::plan(program, inputs, config)?;
        let asked = Asked { backend, program, plan: &plan, config, variants: &[], fixed: false };
        // What differs is known already and needs not be found out again.
        let differs = |variant: &Variant| matches!(self.gate.verdict(&asked, variant), Some(Err(_)));
        let open = variants::open(&asked, config.timeout.is_some()).filter(|variant| !differs(variant));
        let open: Vec<Variant> = open.cloned().collect();
        let asked = Asked { variants: &open, ..asked };
        let mut candidates = self.candidates(&asked, space, waits == Waits::ForFirstRun)?;
        self.tuning.begin_with_best_guess(&asked, &mut candidates);
        if let Some(guess) = candidates.first.filter(|_| space.is_none() && self.is_own_guess(&asked)) {
            // Only the guess and the default are compared; the guess stays unless it has become the slower one.
            let keep = candidates.list[guess].clone();
            candidates.retain(|candidate| *candidate == keep);
        }
        let outcome = Sweep::new(self, &asked, &candidates, inputs, waits).run(watch)?;
        let proven = asked.is_proven(&candidates.list[outcome.chosen])?;
        let decision = Decision::new(asked.subject(proven), &candidates, &outcome, asked.measured(Source::Tuned));
        self.metrics.add(Counter::TuningDecisions, 1);
        self.tuning.decided(&asked, decision.clone());
        Ok(decision)
    }

    /// The best guess is of this very program.
    fn is_own_guess(&self, asked: &Asked<'_>) -> bool {
        let (key, family, build) = (asked.key(), asked.family(), asked.build());
        self.tuning.on_tuner(&**asked.backend, |tuner| matches!(tuner.find(&key, &family, &build), Known::Guess(_)))
    }
}

/// Where a candidate stands: shapes of threads are neighbours when their sizes along the axes differ by few doublings.
fn place(candidate: &Candidate, constants: &[u32]) -> Vec<u32> {
    let threads = candidate.workgroup_size.iter().zip(candidate.knobs.merged);
    threads.map(|(size, merged)| (size / merged.max(1)).max(1).ilog2()).chain(constants.iter().copied()).collect()
}
