//! Which backend a dispatch goes to.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use vyre_driver::DispatchConfig;
use vyre_driver::backend::{Capabilities, DeviceKind};
use vyre_driver::pipeline::hex_encode;
use vyre_driver::routing::{
    BackendLatency, Effort, Explanation, Load, PgoTable, Prior, Rejection, RouteOption, Router, Timing,
};
use vyre_driver::tuner::{Lock, Span};
use vyre_foundation::ir::Program;
use vyre_foundation::launch::LaunchPlan;
use vyre_spec::{BackendId, Diagnostic, codes};

use super::lock;
use crate::reference::REFERENCE;

/// What opening a GPU's driver may take. A GPU that is not open yet is left alone until the work it could have taken adds up to
/// this, so that a short program does not wait for it and a long one loses at most as much again.
const OPENING_NS: f64 = 150e6;

/// What it takes, besides the time on the device, to begin a launch and to be told of its end, where only the time on the device is known: on
/// the caller's memory that can't be told from moving it to and fro, and nobody may have waited for a launch by itself.
const WAIT_NS: [(&str, u64); 2] = [("cuda", 8_000), ("wgpu", 100_000)];

fn kind_of(id: &str) -> DeviceKind {
    match id.split(':').next() {
        Some("cpu") => DeviceKind::Cpu,
        Some("cuda" | "wgpu") => DeviceKind::Discrete,
        _ => DeviceKind::Other,
    }
}

/// What is guessed of a backend before it was measured. Work and data take longer to get to a device through layers that serve many kinds
/// of them, so that such a way to a device is tried after others.
fn prior_of(id: &str) -> Prior {
    let prior = Prior::of(kind_of(id));
    match id.split(':').next() {
        Some("cpu") => Prior::of_cores(std::thread::available_parallelism().map_or(1, usize::from)),
        Some("wgpu") => Prior {
            overhead_ns: 100_000.0,
            move_overhead_ns: 100_000.0,
            ns_per_byte: 0.06,
            ns_per_lent_byte: 0.12,
            ..prior
        },
        _ => prior,
    }
}

/// What is routed: a program under a specialization, with the size of this dispatch.
#[derive(Clone, Debug)]
pub(super) struct Work {
    /// The program and its specialization.
    pub(super) op: String,
    /// Invocations, or a quarter of the words that it works on where these are more: a kernel whose few invocations each go through much
    /// data is as large as the data.
    pub(super) size: u64,
    /// Bytes of all buffers.
    pub(super) bytes: u64,
    /// What is done for each item, by the look of the program.
    pub(super) effort: Effort,
}

impl Work {
    pub(super) fn new(program: &Program, config: &DispatchConfig, plan: &LaunchPlan) -> Work {
        let invocations = (0..3).map(|axis| u64::from(plan.grid[axis]) * u64::from(plan.workgroup_size[axis]));
        let mut op = format!("{}-{}", program.name(), hex_encode(&program.fingerprint()[..12]));
        if !config.specialization.is_empty() {
            op += &format!("-{:016x}", config.specialization.cache_hash());
        }
        let bytes: u64 = plan.buffer_bytes.iter().sum();
        let invocations = invocations.fold(1, u64::saturating_mul);
        let size = invocations.max(bytes / 16);
        Work { op, size, bytes, effort: Effort::of(program).of_item(size, invocations, bytes) }
    }

    /// What is asked where nothing is known of where its data is: all of it is on the host.
    pub(super) fn on_host(&self) -> Load<'static> {
        Load { effort: self.effort, ..Load::on_host(self.size, self.bytes) }
    }
}

/// The router with the file it learns from and teaches.
pub(super) struct Routes {
    router: Mutex<Router>,
    ids: Vec<BackendId>,
    /// Backends that were opened, and whether what they turned out to be is still to be reckoned with.
    opened: Mutex<Vec<(String, bool)>>,
    /// What a GPU that is not open would have saved so far, in nanoseconds, as the bits of a float.
    withheld: AtomicU64,
    /// Devices that were lost.
    probation: Mutex<Vec<Probation>>,
    /// How many of them are out.
    out: AtomicU64,
    files: Option<Files>,
    /// Something was learnt that the file does not have.
    changed: AtomicBool,
    /// What was certified: the answer for ops that the router has not met.
    certified: Mutex<(PgoTable, bool)>,
    /// What is used exactly as it is.
    lock: Option<Arc<Lock>>,
    /// Ops that the lock file does not have, and whether that was told.
    unlocked: Mutex<Vec<(String, bool)>>,
}

/// Where routes are kept.
pub(super) struct Files {
    /// What the router has learnt.
    pub(super) routes: PathBuf,
    /// What was certified.
    pub(super) certified: PathBuf,
}

/// Where a dispatch goes.
pub(super) struct Route {
    pub(super) backend: BackendId,
}

/// A device that was lost, and when it may try again.
struct Probation {
    backend: String,
    until: Instant,
    wait: Duration,
    is_out: bool,
}

const FIRST_WAIT: Duration = Duration::from_secs(10);
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

fn no_route(op: &str, options: &[RouteOption], passed_over: &[BackendId]) -> Diagnostic {
    let reason = |option: &RouteOption| match &option.out {
        Some(reason) => format!("{}: {reason}", option.backend),
        None => format!("{}: it failed at this launch", option.backend),
    };
    let reasons: Vec<String> = options.iter().map(reason).collect();
    let passed_over = || passed_over.iter().map(BackendId::as_str).collect::<Vec<_>>().join(", ");
    let why = if reasons.is_empty() { passed_over() } else { reasons.join("; ") };
    Diagnostic::new(&codes::routing::NO_ROUTE, format!("no backend is left for op `{op}`: {why}"))
}

impl Routes {
    /// A router over the registered backends. The reference interpreter is not among them: it is the last resort, whatever it
    /// would measure.
    pub(super) fn new(ids: &[BackendId], files: Option<Files>, lock: Option<Arc<Lock>>) -> (Routes, Vec<Diagnostic>) {
        let routed = ids.iter().map(BackendId::as_str).filter(|id| *id != REFERENCE);
        let mut router = Router::new(routed.map(|id| (id, prior_of(id))));
        let mut problems = Vec::new();
        let mut certified = PgoTable::default();
        if let Some(files) = &files {
            problems.extend(router.load_recovered(&files.routes));
            let (table, problem) = PgoTable::load_recovered(&files.certified);
            certified = table;
            problems.extend(problem);
        }
        let routes = Routes {
            router: Mutex::new(router),
            ids: ids.to_vec(),
            opened: Mutex::default(),
            withheld: AtomicU64::new(0f64.to_bits()),
            probation: Mutex::default(),
            out: AtomicU64::new(0),
            files,
            changed: AtomicBool::new(false),
            certified: Mutex::new((certified, false)),
            lock,
            unlocked: Mutex::default(),
        };
        (routes, problems)
    }

    /// The backend for some work whose data is where the load says, but for those that were passed over; the error says why none is left.
    /// Devices that were lost come back on probation when their time is over.
    pub(super) fn choose<'a>(
        &'a self,
        work: &Work,
        mut load: Load<'a>,
        passed_over: &'a [BackendId],
    ) -> Result<Route, Diagnostic> {
        self.readmit();
        let is_passed = |id: &str| passed_over.iter().any(|passed| passed.as_str() == id);
        let mut router = lock(&self.router);
        if let Some(named) = self.named(&router, work).filter(|id| !is_passed(id)) {
            let options = router.explain(&work.op, &load).options;
            if options.iter().any(|option| option.backend == named && option.out.is_none()) {
                return Ok(Route { backend: named.into() });
            }
        }
        load.shut = passed_over.iter().map(BackendId::as_str).collect();
        let slow: Vec<&str> = self.ids.iter().map(BackendId::as_str).filter(|id| self.is_slow_to_open(id)).collect();
        if !slow.is_empty() {
            let opens = self.worth_opening(&router.explain(&work.op, &load).options, &load, &slow);
            load.shut.extend(slow.into_iter().filter(|id| opens.as_deref() != Some(*id)));
        }
        let choice = match router.choose(&work.op, &load) {
            Ok(choice) => self.id_of(choice.backend),
            Err(_) => return Err(no_route(&work.op, &router.explain(&work.op, &load).options, passed_over)),
        };
        if tracing::enabled!(tracing::Level::TRACE) {
            let explained = router.explain(&work.op, &load).to_string();
            tracing::trace!(op = work.op, choice = choice.as_str(), stays = load.stays, "{explained}");
        }
        Ok(Route { backend: choice })
    }

    /// The fastest of the devices that are not open, where what it would have saved pays for opening it, or nothing else can do the work.
    fn worth_opening(&self, options: &[RouteOption], load: &Load<'_>, slow: &[&str]) -> Option<String> {
        let able = options.iter().filter(|one| one.out.is_none() && !load.shut.contains(&one.backend.as_str()));
        let (slow, ready): (Vec<_>, Vec<_>) = able.partition(|option| slow.contains(&option.backend.as_str()));
        // What stays is brought there once for all that comes.
        let ns = |option: &RouteOption| option.predicted.ns - if load.stays { option.move_ns } else { 0.0 };
        let best = slow.into_iter().min_by(|a, b| ns(a).total_cmp(&ns(b)))?;
        let Some(ready) = ready.into_iter().map(ns).min_by(f64::total_cmp) else { return Some(best.backend.clone()) };
        let saved = (ready - ns(best)).max(0.0) * load.dispatches.max(1) as f64;
        let withheld = f64::from_bits(self.withheld.load(Ordering::Relaxed)) + saved;
        self.withheld.store(withheld.to_bits(), Ordering::Relaxed);
        (saved > 0.0 && withheld >= OPENING_NS).then(|| best.backend.clone())
    }

    /// There is nothing to choose: one backend, beside the reference interpreter.
    pub(super) fn is_alone(&self) -> bool {
        self.ids.iter().filter(|id| id.as_str() != REFERENCE).count() <= 1
    }

    /// The name of a backend of the router, which is shared: a launch that asks takes no memory for it.
    fn id_of(&self, backend: &str) -> BackendId {
        self.ids.iter().find(|id| id.as_str() == backend).cloned().unwrap_or_else(|| backend.into())
    }

    /// The backend that a lock file names, or that was certified where the router has met the op at no size.
    fn named(&self, router: &Router, work: &Work) -> Option<String> {
        if let Some(locked) = &self.lock {
            let found = locked.route(&work.op, work.size).map(str::to_owned);
            if found.is_none() {
                let mut unlocked = lock(&self.unlocked);
                if unlocked.len() < 256 && unlocked.iter().all(|(op, _)| *op != work.op) {
                    unlocked.push((work.op.clone(), false));
                }
            }
            return found;
        }
        if router.knows(&work.op) {
            return None;
        }
        lock(&self.certified).0.fastest_backend(&work.op).map(str::to_owned)
    }

    /// What the lock file lacks, each told once.
    pub(super) fn take_problems(&self) -> Vec<Diagnostic> {
        let mut unlocked = lock(&self.unlocked);
        let untold = unlocked.iter_mut().filter(|(_, told)| !told);
        untold
            .map(|(op, told)| {
                *told = true;
                let message = format!("the lock file does not say where `{op}` runs; the kind of each device decides");
                Diagnostic::new(&codes::tuner::LOCK_MISSING, message)
            })
            .collect()
    }

    /// Keeps what was measured of an op on every backend.
    pub(super) fn certified(&self, work: &Work, times: Vec<BackendLatency>, rejected: Vec<Rejection>) {
        let mut certified = lock(&self.certified);
        // When nothing could run it, what was rejected is kept all the same.
        let _ = certified.0.record(work.op.clone(), times, rejected);
        certified.1 = true;
    }

    /// Where each op runs by size, as a lock file has it.
    pub(super) fn spans(&self) -> std::collections::BTreeMap<String, Vec<Span>> {
        if let Some(locked) = &self.lock {
            return locked.routes.clone();
        }
        let router = lock(&self.router);
        let mut spans = std::collections::BTreeMap::new();
        for op in router.op_names().filter(|op| router.knows(op)) {
            let crossovers = router.crossovers(op);
            let smallest = crossovers.first().map_or(1, |first| first.n.saturating_sub(1).max(1));
            let Some(first) = router.explain(op, &Load::on_host(smallest, 0)).chosen else { continue };
            let mut list = vec![Span { from: 0, backend: first }];
            list.extend(crossovers.into_iter().map(|next| Span { from: next.n, backend: next.above }));
            spans.insert(op.to_owned(), list);
        }
        for (op, decision) in &lock(&self.certified).0.routes {
            if !decision.backend.is_empty() && !spans.contains_key(op) {
                spans.insert(op.clone(), vec![Span { from: 0, backend: decision.backend.clone() }]);
            }
        }
        spans
    }

    /// Takes devices in again whose time out is over.
    fn readmit(&self) {
        if self.out.load(Ordering::Relaxed) == 0 {
            return;
        }
        let now = Instant::now();
        let mut probation = lock(&self.probation);
        for entry in probation.iter_mut().filter(|entry| entry.is_out && entry.until <= now) {
            entry.is_out = false;
            lock(&self.router).restore(&entry.backend);
        }
        self.out.store(probation.iter().filter(|entry| entry.is_out).count() as u64, Ordering::Relaxed);
    }

    /// A device that was lost and is not back.
    pub(super) fn is_out(&self, backend: &BackendId) -> bool {
        self.out.load(Ordering::Relaxed) > 0
            && lock(&self.probation).iter().any(|entry| entry.is_out && entry.backend == backend.as_str())
    }

    /// A GPU whose driver this process has not opened yet.
    pub(super) fn is_slow_to_open(&self, backend: &str) -> bool {
        kind_of(backend) == DeviceKind::Discrete && !lock(&self.opened).iter().any(|(opened, _)| opened == backend)
    }

    /// Tells what device a backend has, once it is open, whoever opened it.
    pub(super) fn opened(&self, backend: &str, able: &Capabilities) {
        // In the order in which a choice takes them.
        let mut router = lock(&self.router);
        let mut opened = lock(&self.opened);
        if opened.iter().any(|(known, _)| known == backend) {
            return;
        }
        let changed = router.set_device(backend, &able.name);
        let software = able.kind == DeviceKind::Software;
        if software {
            router.set_prior(backend, Prior::of(able.kind));
        }
        opened.push((backend.to_owned(), software || changed));
        // The next one has to be paid for anew.
        self.withheld.store(0f64.to_bits(), Ordering::Relaxed);
    }

    /// True once when a backend is not what it was taken for until it was opened (it runs in software, or is another device than was
    /// measured): then another may be the better choice.
    pub(super) fn take_surprise(&self, backend: &str) -> bool {
        let mut opened = lock(&self.opened);
        let known = opened.iter_mut().find(|(known, _)| known == backend);
        known.is_some_and(|(_, surprise)| std::mem::take(surprise))
    }

    /// Takes in how long some work took.
    pub(super) fn observe(&self, work: &Work, backend: &BackendId, timing: Timing) {
        if self.lock.is_some() {
            return;
        }
        let mut router = lock(&self.router);
        router.observe(&work.op, backend.as_str(), work.size, timing);
        // The router doubts what has drifted, and so measures it again by itself.
        for request in router.take_requests() {
            tracing::info!(op = request.op, backend = request.backend, "{}", request.reason);
        }
        self.changed.store(true, Ordering::Relaxed);
    }

    /// Takes in how long some work took on a caller's memory where that is.
    pub(super) fn observe_lent(&self, work: &Work, backend: &BackendId, compute_ns: u64) {
        if self.lock.is_none() {
            lock(&self.router).observe_lent(&work.op, backend.as_str(), work.size, compute_ns);
            self.changed.store(true, Ordering::Relaxed);
        }
    }

    /// Takes in how long some work took the first time.
    pub(super) fn observe_first(&self, work: &Work, backend: &BackendId, compute_ns: u64) {
        if self.lock.is_none() {
            let timing = Timing { compute_ns, ..Timing::default() };
            lock(&self.router).observe_first(&work.op, backend.as_str(), work.size, timing);
            self.changed.store(true, Ordering::Relaxed);
        }
    }

    /// Takes in how long some work on data of the host took until its results were there.
    pub(super) fn observe_round_trip(&self, work: &Work, backend: &BackendId, ns: u64, is_first: bool) {
        if self.lock.is_none() {
            let mut router = lock(&self.router);
            match is_first {
                true => router.observe_first_round_trip(&work.op, backend.as_str(), work.size, ns),
                false => router.observe_round_trip(&work.op, backend.as_str(), work.size, ns),
            }
            self.changed.store(true, Ordering::Relaxed);
        }
    }

    /// What a caller waits on a backend besides the time on its device.
    pub(super) fn wait_ns(&self, backend: &BackendId) -> u64 {
        let kind = backend.as_str().split(':').next();
        WAIT_NS.iter().find(|(id, _)| Some(*id) == kind).map_or(0, |(_, ns)| *ns)
    }

    /// Takes in how long a move of data took, of arrays or of a caller's own memory.
    pub(super) fn observe_move(&self, backend: &BackendId, timing: Timing, is_lent: bool) {
        if self.lock.is_none() {
            let mut router = lock(&self.router);
            match is_lent {
                true => router.observe_loan(backend.as_str(), timing),
                false => router.observe_move(backend.as_str(), timing),
            }
        }
    }

    /// Every backend that is routed to, the preferred first.
    pub(super) fn backends(&self) -> Vec<String> {
        lock(&self.router).backends().map(str::to_owned).collect()
    }

    /// The backend can't run this program.
    pub(super) fn unable(&self, work: &Work, backend: &str, reason: &str) {
        lock(&self.router).failed(&work.op, backend, reason);
    }

    /// The backend is not here.
    pub(super) fn absent(&self, backend: &str, reason: &str) {
        lock(&self.router).lost(backend, reason);
    }

    /// The backend's device failed: it is out for a while, which doubles each time.
    pub(super) fn lost(&self, backend: &str, reason: &str) -> Diagnostic {
        let mut probation = lock(&self.probation);
        let entry = match probation.iter().position(|entry| entry.backend == backend) {
            Some(at) => &mut probation[at],
            None => {
                probation.push(Probation {
                    backend: backend.to_owned(),
                    until: Instant::now(),
                    wait: FIRST_WAIT,
                    is_out: false,
                });
                let last = probation.len() - 1;
                &mut probation[last]
            }
        };
        entry.until = Instant::now() + entry.wait;
        entry.is_out = true;
        let reason = format!("{reason}; it is tried again in {} s", entry.wait.as_secs());
        entry.wait = (entry.wait * 2).min(LONGEST_WAIT);
        self.out.store(probation.iter().filter(|entry| entry.is_out).count() as u64, Ordering::Relaxed);
        drop(probation);
        lock(&self.router).lost(backend, &reason)
    }

    pub(super) fn explain(&self, work: &Work) -> Explanation {
        lock(&self.router).explain(&work.op, &work.on_host())
    }

    /// The file of what the router has learnt.
    pub(super) fn path(&self) -> Option<&Path> {
        self.files.as_ref().map(|files| files.routes.as_path())
    }

    /// Adds what another machine has learnt, in the text of its file, to the router and the file.
    pub(super) fn merge(&self, name: &str, text: &str) -> Result<(), Diagnostic> {
        let mut router = lock(&self.router);
        router.merge_text(name, text)?;
        match &self.files {
            Some(files) => router.save(&files.routes),
            None => Ok(()),
        }
    }

    /// Adds what was learnt to the files. With a lock file nothing changes.
    pub(super) fn save(&self) -> Result<(), Diagnostic> {
        let Some(files) = self.files.as_ref().filter(|_| self.lock.is_none()) else { return Ok(()) };
        let mut certified = lock(&self.certified);
        if std::mem::take(&mut certified.1) {
            let saved = certified.0.save(&files.certified);
            saved.map_err(|problem| Diagnostic::new(&codes::routing::FILE_UNWRITABLE, problem))?;
        }
        drop(certified);
        if self.changed.swap(false, Ordering::Relaxed) {
            lock(&self.router).save(&files.routes)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks so often where work goes that takes 2 ms on the processor and whose data takes longer to move.
    fn asked(routes: &Routes, stays: bool, times: usize) -> Option<usize> {
        let work = Work { op: "light".to_owned(), size: 1 << 24, bytes: 200 << 20, effort: Effort::default() };
        for _ in 0..8 {
            let timing = Timing { compute_ns: 2_000_000, ..Timing::default() };
            routes.observe(&work, &"cpu".into(), timing);
            routes.observe_round_trip(&work, &"cpu".into(), 2_000_000, false);
        }
        (0..times).find(|_| {
            let load = Load { stays, ..work.on_host() };
            routes.choose(&work, load, &[]).unwrap().backend.as_str() == "cuda"
        })
    }

    #[test]
    fn data_that_stays_opens_a_device_though_it_has_to_be_moved_there() {
        let open = || Routes::new(&["cuda".into(), "cpu".into()], None, None).0;
        // What it would have saved is 0.15 s after some 75 times.
        let opened = asked(&open(), true, 200).expect("it pays in the end");
        assert!((60..120).contains(&opened), "{opened}");
        assert_eq!(asked(&open(), false, 200), None, "data that goes to and fro is faster here");
        // One that is open is used as soon as the move has paid.
        let routes = open();
        routes.opened("cuda", &Capabilities::default());
        let moved = asked(&routes, true, 200).expect("it is open");
        assert!(moved < 30, "{moved}");
    }
}
