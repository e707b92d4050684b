//! Which backend a dispatch goes to.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use vyre_driver::DispatchConfig;
use vyre_driver::backend::DeviceKind;
use vyre_driver::pipeline::hex_encode;
use vyre_driver::routing::{Explanation, Prior, Router, Timing};
use vyre_foundation::ir::Program;
use vyre_foundation::launch::LaunchPlan;
use vyre_spec::{BackendId, Diagnostic};

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
    /// Expected time of what a GPU that is not open would have taken, in nanoseconds.
    withheld: AtomicU64,
    path: Option<PathBuf>,
    /// Something was learnt that the file does not have.
    changed: AtomicBool,
}

/// Where a dispatch goes.
pub(super) struct Route {
    pub(super) backend: String,
    pub(super) timed: bool,
}

impl Routes {
    /// A router over the registered backends. The reference interpreter is not among them: it is the last resort, whatever it
    /// would measure.
    pub(super) fn new(ids: &[BackendId], path: Option<PathBuf>) -> (Routes, Option<Diagnostic>) {
        let routed = ids.iter().map(BackendId::as_str).filter(|id| *id != REFERENCE);
        let mut router = Router::new(routed.map(|id| (id, Prior::of(kind_of(id)))));
        let problem = path.as_ref().and_then(|path| router.load(path).err());
        let router = Mutex::new(router);
        let (opened, withheld) = (Mutex::default(), AtomicU64::new(0));
        (Routes { router, opened, withheld, path, changed: AtomicBool::new(false) }, problem)
    }

    /// The backend for some work whose data is on the host; the error says why none is left.
    pub(super) fn choose(&self, work: &Work) -> Result<Route, Diagnostic> {
        let mut router = lock(&self.router);
        let choice = router.choose(&work.op, work.size, work.bytes, None)?;
        let route = Route { backend: choice.backend.to_owned(), timed: choice.timed };
        if !self.is_slow_to_open(&route.backend) {
            return Ok(route);
        }
        let options = router.explain(&work.op, work.size, work.bytes, None).options;
        let ready = options.into_iter().find(|option| option.out.is_none() && !self.is_slow_to_open(&option.backend));
        let Some(ready) = ready else { return Ok(route) };
        let withheld = self.withheld.load(Ordering::Relaxed) as f64 + ready.predicted.ns;
        if withheld >= OPENING_NS {
            return Ok(route);
        }
        self.withheld.store(withheld as u64, Ordering::Relaxed);
        Ok(Route { backend: ready.backend, timed: true })
    }

    /// A GPU whose driver this process has not opened yet.
    pub(super) fn is_slow_to_open(&self, backend: &str) -> bool {
        kind_of(backend) == DeviceKind::Discrete && !lock(&self.opened).iter().any(|opened| opened == backend)
    }

    /// Tells what kind of device a backend has, once it is open. True when it runs in software and was taken for a GPU until
    /// now: then another may be the better choice.
    pub(super) fn met(&self, backend: &str, kind: DeviceKind) -> bool {
        let mut opened = lock(&self.opened);
        if opened.iter().any(|known| known == backend) {
            return false;
        }
        let software = kind == DeviceKind::Software;
        opened.push(backend.to_owned());
        if software {
            lock(&self.router).set_prior(backend, Prior::of(kind));
        }
        software
    }

    /// Takes in a timing, and says whether the backend has drifted so far from what was known that all should be measured anew.
    pub(super) fn observe(&self, work: &Work, backend: &str, timing: Timing) -> bool {
        let mut router = lock(&self.router);
        router.observe(&work.op, backend, work.size, timing);
        self.changed.store(true, Ordering::Relaxed);
        !router.take_requests().is_empty()
    }

    /// Backends that may do some work, but for one.
    pub(super) fn others(&self, work: &Work, than: &str) -> Vec<String> {
        let explanation = self.explain(work);
        let able = explanation.options.into_iter().filter(|option| option.out.is_none() && option.backend != than);
        able.map(|option| option.backend).collect()
    }

    /// Every backend that is routed to, the preferred first.
    pub(super) fn backends(&self) -> Vec<String> {
        lock(&self.router).backends().map(str::to_owned).collect()
    }

    /// The backend can't run this program.
    pub(super) fn unable(&self, work: &Work, backend: &str, reason: &str) {
        lock(&self.router).failed(&work.op, backend, reason);
    }

    /// The backend is absent or broken.
    pub(super) fn lost(&self, backend: &str, reason: &str) -> Diagnostic {
        lock(&self.router).lost(backend, reason)
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
