use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock};

use vyre_driver::VyreBackend;
use vyre_driver::metrics::Metrics;
use vyre_driver::pipeline::{DiskPipelineCache, PipelineCache};
use vyre_driver::registry::Registry;
use vyre_driver::routing::{default_pgo_path, default_routes_path};
use vyre_driver::tuner::{Lock, Mode};
use vyre_spec::{Diagnostic, codes};

use super::arrays::Arrays;
use super::routes::{Files, Routes};
use super::tuning::{Folder, Tuning};
use super::{Engine, Inner};
use crate::runtime::{HostPool, Jobs, Watcher};
use crate::{Error, ReferenceBackend};

/// Host memory that is kept for later where nothing is said.
const HOST_IDLE: u64 = 512 << 20;
/// Names a file with the decisions to use.
const LOCK_FILE: &str = "VYRE_DECISIONS";
/// Pipelines that an engine keeps in memory.
const MEMORY_CAPACITY: usize = 1024;

/// Puts an engine together: which backends, and where it keeps what it learns.
#[must_use = "an engine is made by `open`"]
pub struct EngineBuilder {
    registry: Registry,
    default_backends: bool,
    disk: Disk,
    mode: Option<Mode>,
    decisions: Option<PathBuf>,
    device_budget: Option<u64>,
    host_idle: u64,
    /// The program's own wgpu device stands in for those that would be found.
    has_wgpu_device: bool,
    refused: Option<Diagnostic>,
}

/// How much wgpu is preferred while nothing has been measured.
#[cfg(feature = "wgpu")]
const WGPU_PRECEDENCE: i32 = 80;

enum Disk {
    Default,
    At(PathBuf),
    None,
}

impl Default for EngineBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl EngineBuilder {
    /// Every backend of this build, and the user's own caches.
    pub fn new() -> Self {
        EngineBuilder {
            registry: Registry::new(),
            default_backends: true,
            disk: Disk::Default,
            mode: None,
            decisions: None,
            device_budget: None,
            host_idle: HOST_IDLE,
            has_wgpu_device: false,
            refused: None,
        }
    }

    /// Only the backends that are added.
    pub fn without_default_backends(mut self) -> Self {
        self.default_backends = false;
        self
    }

    /// Adds a backend; a higher precedence is preferred while nothing has been measured.
    pub fn with_backend(mut self, backend: Arc<dyn VyreBackend>, precedence: i32) -> Self {
        if let Err(problem) = self.registry.register_backend(backend, precedence) {
            self.refused.get_or_insert(problem);
        }
        self
    }

    /// Runs on a wgpu device and queue of the caller's own, made from this adapter, instead of opening those that are found. It must have
    /// immediate data; what else it was made without is missing to programs. Its backend is called as the adapter is, `wgpu` where it is
    /// the first. [`Engine::wrap_wgpu`] and [`Array::wgpu`](crate::Array::wgpu) share buffers with it.
    #[cfg(feature = "wgpu")]
    pub fn wgpu_device(
        mut self,
        adapter: &crate::wgpu::Adapter,
        device: crate::wgpu::Device,
        queue: crate::wgpu::Queue,
    ) -> Self {
        self.has_wgpu_device = true;
        match vyre_wgpu::WgpuBackend::from_device(adapter, device, queue) {
            Ok(backend) => self.with_backend(Arc::new(backend), WGPU_PRECEDENCE),
            Err(problem) => {
                self.refused.get_or_insert(problem);
                self
            }
        }
    }

    /// Keeps everything that it learns in this folder: pipelines, tuning decisions, routes.
    pub fn cache_at(mut self, root: impl Into<PathBuf>) -> Self {
        self.disk = Disk::At(root.into());
        self
    }

    /// Keeps nothing on disk.
    pub fn without_disk(mut self) -> Self {
        self.disk = Disk::None;
        self
    }

    /// How launches are tuned; what the environment says otherwise.
    pub fn tuner(mut self, mode: Mode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// Uses exactly the decisions of a lock file, as `VYRE_DECISIONS` does: nothing is measured, nothing changes, and what the file lacks is
    /// told. [`Decisions::freeze`](super::Decisions::freeze) writes one.
    pub fn decisions_from(mut self, lock: impl Into<PathBuf>) -> Self {
        self.decisions = Some(lock.into());
        self
    }

    /// Most bytes that arrays and work may take of the memory of each device that has its own. When it is spent, arrays that are not in use
    /// move to the host; without it a device's whole memory is used.
    pub fn device_memory(mut self, bytes: u64) -> Self {
        self.device_budget = Some(bytes);
        self
    }

    /// Most bytes of host memory that are kept for later instead of being freed, 512 MiB where nothing is said.
    pub fn idle_host_memory(mut self, bytes: u64) -> Self {
        self.host_idle = bytes;
        self
    }

    /// Opens the engine. A cache folder that can't be used is a notice, not an error: then pipelines are kept in memory only.
    pub fn open(self) -> Result<Engine, Error> {
        if let Some(problem) = self.refused {
            return Err(problem.into());
        }
        if self.default_backends {
            register_defaults(&self.registry, self.has_wgpu_device)?;
        }
        let (pipelines, tuner, routes) = match self.disk {
            Disk::Default => {
                let files = Files { routes: default_routes_path(), certified: default_pgo_path() };
                (Some(DiskPipelineCache::default_root()), Folder::User, Some(files))
            }
            Disk::At(root) => {
                let files = Files { routes: root.join("routes.toml"), certified: root.join("pgo.toml") };
                (Some(root.join("pipelines")), Folder::At(root.join("tuner")), Some(files))
            }
            Disk::None => (None, Folder::None, None),
        };
        let mut notices = Vec::new();
        let disk = pipelines.and_then(|root| match DiskPipelineCache::open(&root) {
            Ok(disk) => Some(Arc::new(disk)),
            Err(error) => {
                notices.push(no_disk_cache(&root, &error));
                None
            }
        });
        let (mode, unknown_mode) = match self.mode {
            Some(mode) => (mode, None),
            None => Mode::from_env_checked(),
        };
        notices.extend(unknown_mode);
        let named = || std::env::var_os(LOCK_FILE).filter(|path| !path.is_empty()).map(PathBuf::from);
        let lock_file = self.decisions.or_else(named).map(Lock::load).transpose()?.map(Arc::new);
        let (routes, bad_routes) = Routes::new(&self.registry.ids(), routes, lock_file.clone());
        notices.extend(bad_routes);
        let metrics = Arc::new(Metrics::new());
        Ok(Engine {
            inner: Arc::new(Inner {
                registry: self.registry,
                pipelines: PipelineCache::with_metrics(MEMORY_CAPACITY, disk, metrics.clone()),
                metrics,
                routes,
                tuning: Tuning::new(mode, tuner, lock_file),
                models: Mutex::default(),
                gate: Default::default(),
                devices: Mutex::default(),
                budget: self.device_budget,
                host: HostPool::new(self.host_idle),
                arrays: Arrays::default(),
                jobs: Jobs::default(),
                watcher: Arc::new(Watcher::new()),
                cores: Mutex::default(),
                keyed: Mutex::default(),
                places: Default::default(),
                grid_core: OnceLock::new(),
                gather_core: OnceLock::new(),
                clock: AtomicU64::new(0),
                notices: Mutex::new(notices),
                process: std::process::id(),
            }),
        })
    }
}

/// The cache knows best why it can't be used, and what to do.
fn no_disk_cache(root: &Path, error: &std::io::Error) -> Diagnostic {
    let inner = vyre_driver::diagnostics::inside(error);
    let why = inner.map_or_else(|| error.to_string(), |inner| inner.message.clone());
    let message = format!("the pipeline cache at `{}` can't be used: {why}", root.display());
    let notice = Diagnostic::new(&codes::engine::NO_DISK_CACHE, message);
    match inner {
        Some(inner) => notice.with_fix(inner.fix.clone()),
        None => notice,
    }
}

/// The backends of this build. Devices are opened when they are first needed.
#[cfg_attr(not(feature = "wgpu"), allow(unused_variables, reason = "there is no wgpu in this build"))]
fn register_defaults(registry: &Registry, has_wgpu_device: bool) -> Result<(), Diagnostic> {
    #[cfg(feature = "cpu")]
    registry.register("cpu", 100, || match vyre_cpu::CpuBackend::new() {
        Ok(backend) => Ok(Arc::new(backend)),
        Err(error) => Err(error.into_diagnostic()),
    })?;
    #[cfg(feature = "cuda")]
    registry.register_family("cuda", 90, vyre_cuda::CudaBackend::device_count, vyre_cuda::CudaBackend::probe_device)?;
    #[cfg(feature = "wgpu")]
    if !has_wgpu_device {
        use vyre_wgpu::WgpuBackend;
        registry.register_family("wgpu", WGPU_PRECEDENCE, WgpuBackend::adapter_count, WgpuBackend::probe_adapter)?;
    }
    registry.register_backend(Arc::new(ReferenceBackend), 0)
}
