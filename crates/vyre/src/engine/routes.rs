//! Which backend a dispatch goes to.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use vyre_driver::DispatchConfig;
use vyre_driver::backend::DeviceKind;
use vyre_driver::pipeline::hex_encode;
use vyre_driver::routing::{Explanation, Prior, RouteOption, Router, Timing};
use vyre_foundation::ir::Program;
use vyre_foundation::launch::LaunchPlan;
use vyre_spec::{BackendId, Diagnostic, codes};

use super::lock;
use crate::reference::REFERENCE;

/// What opening a GPU's driver may take. A GPU that is not open yet is left alone until the work it could have taken adds up to
/// this, so that a short program does not wait for it and a long one loses at most as much again.
const OPENING_NS: f64 = 150e6;

fn kind_of(id: &str) -> DeviceKind {
    match id.split(':').next() {
        Some("cpu") => DeviceKind::Cpu,
        Some("cuda" | "wgpu") => DeviceKind::Discrete,
        _ => DeviceKind::Other,
    }
}

/// What is routed: a program under a specialization, with the size of this dispatch.
#[derive(Clone, Debug)]
pub(super) struct Work {
    /// The program and its specialization.
    pub(super) op: String,
    /// Invocations.
    pub(super) size: u64,
    /// Bytes of all buffers.
    pub(super) bytes: u64,
}

impl Work {
    pub(super) fn new(program: &Program, config: &DispatchConfig, plan: &LaunchPlan) -> Work {
        let invocations = (0..3).map(|axis| u64::from(plan.grid[axis]) * u64::from(plan.workgroup_size[axis]));
        let mut op = format!("{}-{}", program.name(), hex_encode(&program.fingerprint()[..12]));
        if !config.specialization.is_empty() {
            op += &format!("-{:016x}", config.specialization.cache_hash());
        }
        Work { op, size: invocations.fold(1, u64::saturating_mul), bytes: plan.buffer_bytes.iter().sum() }
    }
}

/// The router with the file it learns from and teaches.
pub(super) struct Routes {
    router: Mutex<Router>,
    /// Backends that were opened.
    opened: Mutex<Vec<String>>,
    /// What a GPU that is not open would have saved so far, in nanoseconds, as the bits of a float.
    withheld: AtomicU64,
    /// Devices that were lost.
    probation: Mutex<Vec<Probation>>,
    /// How many of them are out.
    out: AtomicU64,
    path: Option<PathBuf>,
    /// Something was learnt that the file does not have.
    changed: AtomicBool,
}

/// Where a dispatch goes.
pub(super) struct Route {
    pub(super) backend: String,
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

fn no_route(op: &str, options: &[RouteOption], passed_over: &[String]) -> Diagnostic {
    let reason = |option: &RouteOption| match &option.out {
        Some(reason) => format!("{}: {reason}", option.backend),
        None => format!("{}: it failed at this launch", option.backend),
    };
    let reasons: Vec<String> = options.iter().map(reason).collect();
    let why = if reasons.is_empty() { passed_over.join(", ") } else { reasons.join("; ") };
    Diagnostic::new(&codes::routing::NO_ROUTE, format!("no backend is left for op `{op}`: {why}"))
}

impl Routes {
    /// A router over the registered backends. The reference interpreter is not among them: it is the last resort, whatever it
    /// would measure.
    pub(super) fn new(ids: &[BackendId], path: Option<PathBuf>) -> (Routes, Option<Diagnostic>) {
        let routed = ids.iter().map(BackendId::as_str).filter(|id| *id != REFERENCE);
        let mut router = Router::new(routed.map(|id| (id, Prior::of(kind_of(id)))));
        let problem = path.as_ref().and_then(|path| router.load(path).err());
        let router = Mutex::new(router);
        let routes = Routes {
            router,
            opened: Mutex::default(),
            withheld: AtomicU64::new(0f64.to_bits()),
            probation: Mutex::default(),
            out: AtomicU64::new(0),
            path,
            changed: AtomicBool::new(false),
        };
        (routes, problem)
    }

    /// The backend for some work whose data is on the device `home`, or else on the host, but for those that were passed over; the error
    /// says why none is left. Devices that were lost come back on probation when their time is over.
    pub(super) fn choose(&self, work: &Work, home: Option<&str>, passed_over: &[String]) -> Result<Route, Diagnostic> {
        self.readmit();
        let mut router = lock(&self.router);
        let choice = router.choose(&work.op, work.size, work.bytes, home)?.backend.to_owned();
        let is_passed = |id: &str| passed_over.iter().any(|passed| passed == id);
        if !is_passed(&choice) && !self.is_slow_to_open(&choice) {
            return Ok(Route { backend: choice });
        }
        let options = router.explain(&work.op, work.size, work.bytes, home).options;
        let mut able = options.iter().filter(|option| option.out.is_none() && !is_passed(&option.backend));
        let Some(best) = able.clone().next() else {
            return Err(no_route(&work.op, &options, passed_over));
        };
        let Some(ready) = able.find(|option| !self.is_slow_to_open(&option.backend)) else {
            return Ok(Route { backend: best.backend.clone() });
        };
        if best.backend == ready.backend {
            return Ok(Route { backend: best.backend.clone() });
        }
        // What a device that is not open would have saved has to pay for opening it.
        let saved = (ready.predicted.ns - best.predicted.ns).max(0.0);
        let withheld = f64::from_bits(self.withheld.load(Ordering::Relaxed)) + saved;
        if withheld >= OPENING_NS || saved >= OPENING_NS {
            return Ok(Route { backend: best.backend.clone() });
        }
        self.withheld.store(withheld.to_bits(), Ordering::Relaxed);
        Ok(Route { backend: ready.backend.clone() })
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
        kind_of(backend) == DeviceKind::Discrete && !lock(&self.opened).iter().any(|opened| opened == backend)
    }

    /// Tells what kind of device a backend has, once it is open. True when it runs in software and was taken for a GPU until
    /// now: then another may be the better choice.
    pub(super) fn opened(&self, backend: &str, kind: DeviceKind) -> bool {
        let mut opened = lock(&self.opened);
        if opened.iter().any(|known| known == backend) {
            return false;
        }
        opened.push(backend.to_owned());
        drop(opened);
        let software = kind == DeviceKind::Software;
        if software {
            lock(&self.router).set_prior(backend, Prior::of(kind));
        }
        software
    }

    /// Takes in how long some work took.
    pub(super) fn observe(&self, work: &Work, backend: &BackendId, timing: Timing) {
        let mut router = lock(&self.router);
        router.observe(&work.op, backend.as_str(), work.size, timing);
        // The router doubts what has drifted, and so measures it again by itself.
        for request in router.take_requests() {
            tracing::info!(op = request.op, backend = request.backend, "{}", request.reason);
        }
        self.changed.store(true, Ordering::Relaxed);
    }

    /// Takes in how long a move of data took.
    pub(super) fn observe_move(&self, backend: &BackendId, timing: Timing) {
        lock(&self.router).observe_move(backend.as_str(), timing);
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
        lock(&self.router).explain(&work.op, work.size, work.bytes, None)
    }

    pub(super) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Adds what another machine has learnt, in the text of its file, to the router and the file.
    pub(super) fn merge(&self, name: &str, text: &str) -> Result<(), Diagnostic> {
        let mut router = lock(&self.router);
        router.load_text(name, text)?;
        match &self.path {
            Some(path) => router.save(path),
            None => Ok(()),
        }
    }

    /// Adds what was learnt to the file.
    pub(super) fn save(&self) -> Result<(), Diagnostic> {
        match &self.path {
            Some(path) if self.changed.swap(false, Ordering::Relaxed) => lock(&self.router).save(path),
            _ => Ok(()),
        }
    }
}
