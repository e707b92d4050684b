//! Memory over disk over the compiler.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use vyre_foundation::ValidProgram;
use vyre_spec::{Diagnostic, Severity};

use super::disk::count;
use super::{DiskPipelineCache, EntryKey, Lookup, MissReason, PipelineKey, SingleFlight};
use crate::backend::{BackendError, CompileOptions, Pipeline, VyreBackend};
use crate::metrics::{Metrics, Stage};

/// Where a pipeline came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipelineSource {
    /// It was in memory, or another thread was making it.
    Memory,
    /// It was on the disk.
    Disk,
    /// It was compiled, because the disk missed for this reason.
    Compiled(MissReason),
}

/// A pipeline and where it came from.
#[derive(Clone)]
pub struct CachedPipeline {
    /// The pipeline.
    pub pipeline: Arc<dyn Pipeline>,
    /// Where it came from.
    pub source: PipelineSource,
}

/// What a pipeline cache has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct PipelineCacheStats {
    /// Found in memory.
    pub memory_hits: u64,
    /// Loaded from disk.
    pub disk_hits: u64,
    /// Compiled.
    pub compiles: u64,
    /// Compiles that failed.
    pub failures: u64,
}

/// Pipelines in memory (bounded, least recently used out first), on disk, or compiled: one compile per key, even when many
/// threads ask at once. New pipelines go to disk in the background.
pub struct PipelineCache {
    memory: SingleFlight<PipelineKey, Arc<dyn Pipeline>>,
    disk: Option<Arc<DiskPipelineCache>>,
    writer: Option<Writer>,
    metrics: Option<Arc<Metrics>>,
    memory_hits: AtomicU64,
    disk_hits: AtomicU64,
    compiles: AtomicU64,
    failures: AtomicU64,
}

impl PipelineCache {
    /// A cache of at most so many pipelines in memory, over a disk cache where there is one.
    pub fn new(capacity: usize, disk: Option<Arc<DiskPipelineCache>>) -> Self {
        Self::start(capacity, disk, None)
    }

    /// [`PipelineCache::new`] that times looking on disk, loading, compiling and storing.
    pub fn with_metrics(capacity: usize, disk: Option<Arc<DiskPipelineCache>>, metrics: Arc<Metrics>) -> Self {
        Self::start(capacity, disk, Some(metrics))
    }

    fn start(capacity: usize, disk: Option<Arc<DiskPipelineCache>>, metrics: Option<Arc<Metrics>>) -> Self {
        let writer = disk.as_ref().filter(|disk| !disk.is_read_only());
        let writer = writer.map(|disk| Writer::start(disk.clone(), metrics.clone()));
        PipelineCache {
            memory: SingleFlight::new(capacity),
            disk,
            writer,
            metrics,
            memory_hits: AtomicU64::new(0),
            disk_hits: AtomicU64::new(0),
            compiles: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        }
    }

    /// The disk cache below.
    pub fn disk(&self) -> Option<&Arc<DiskPipelineCache>> {
        self.disk.as_ref()
    }

    /// The pipeline of a program on a backend, from the nearest place.
    pub fn get(
        &self,
        backend: &dyn VyreBackend,
        program: &ValidProgram,
        options: &CompileOptions,
    ) -> Result<CachedPipeline, BackendError> {
        let key = PipelineKey::of(backend, program, options)?;
        let mut source = PipelineSource::Memory;
        let pipeline = self.memory.get_or_make(&key, || {
            let (pipeline, from) = self.make(backend, program, options, &EntryKey::of(&key, program, options))?;
            source = from;
            Ok(pipeline)
        })?;
        if source == PipelineSource::Memory {
            count(&self.memory_hits, 1);
        }
        Ok(CachedPipeline { pipeline, source })
    }

    fn make(
        &self,
        backend: &dyn VyreBackend,
        program: &ValidProgram,
        options: &CompileOptions,
        key: &EntryKey,
    ) -> Result<(Arc<dyn Pipeline>, PipelineSource), BackendError> {
        let mut reason = MissReason::Absent;
        if let Some(disk) = &self.disk {
            let found = self.timed(Stage::DiskLookup, || disk.look_up(key));
            match found {
                Ok(Lookup::Hit(artifact)) => {
                    match self.timed(Stage::Load, || backend.load(program, options, &artifact)) {
                        Ok(pipeline) => {
                            count(&self.disk_hits, 1);
                            return Ok((pipeline, PipelineSource::Disk));
                        }
                        Err(error) => {
                            tracing::warn!(
                                code = error.code(),
                                "a stored pipeline could not be loaded: {}",
                                error.message()
                            );
                            disk.reject(key);
                            reason = MissReason::Corrupt;
                        }
                    }
                }
                Ok(Lookup::Miss(why)) => reason = why,
                // A disk that can't be read costs a compile, not the dispatch; the cache's owner is told.
                Err(error) => {
                    let mut problem = diagnostic_of(error);
                    problem.severity = Severity::Warning;
                    disk.report(problem);
                }
            }
        }
        let compiled = self.timed(Stage::Compile, || backend.compile(program, options));
        let pipeline = compiled.inspect_err(|_| count(&self.failures, 1))?;
        count(&self.compiles, 1);
        if let Some(writer) = &self.writer
            && let Some(artifact) = pipeline.artifact()
        {
            writer.store(key.clone(), artifact);
        }
        Ok((pipeline, PipelineSource::Compiled(reason)))
    }

    fn timed<T>(&self, stage: Stage, work: impl FnOnce() -> T) -> T {
        let _timer = self.metrics.as_ref().map(|metrics| metrics.time(stage));
        work()
    }

    /// Returns when every pipeline compiled so far is safe on disk.
    pub fn flush(&self) -> std::io::Result<()> {
        if let Some(writer) = &self.writer {
            writer.settle();
        }
        self.disk.as_ref().map_or(Ok(()), |disk| disk.flush())
    }

    /// What this cache has done.
    pub fn stats(&self) -> PipelineCacheStats {
        PipelineCacheStats {
            memory_hits: self.memory_hits.load(Ordering::Relaxed),
            disk_hits: self.disk_hits.load(Ordering::Relaxed),
            compiles: self.compiles.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }
}

fn diagnostic_of(error: std::io::Error) -> Diagnostic {
    let text = error.to_string();
    match error.into_inner().map(|inner| inner.downcast::<Diagnostic>()) {
        Some(Ok(diagnostic)) => *diagnostic,
        _ => Diagnostic::new(&vyre_spec::codes::cache::IO, text),
    }
}

enum Job {
    Store(EntryKey, Vec<u8>),
    Settle(mpsc::Sender<()>),
}

/// Writes pipelines to disk beside the caller. Dropping it finishes what is waiting.
struct Writer {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    fn start(disk: Arc<DiskPipelineCache>, metrics: Option<Arc<Metrics>>) -> Writer {
        let (jobs, waiting) = mpsc::channel();
        let work = move || {
            for job in waiting {
                match job {
                    Job::Store(key, artifact) => {
                        let _timer = metrics.as_ref().map(|metrics| metrics.time(Stage::Store));
                        if let Err(error) = disk.store(&key, &artifact) {
                            disk.report(diagnostic_of(error));
                        }
                    }
                    // Whoever asked may have given up waiting.
                    Job::Settle(done) => drop(done.send(())),
                }
            }
            if let Err(error) = disk.flush() {
                disk.report(diagnostic_of(error));
            }
        };
        let thread = std::thread::Builder::new().name("vyre-cache-writer".to_owned()).spawn(work).ok();
        Writer { jobs: thread.is_some().then_some(jobs), thread }
    }

    fn store(&self, key: EntryKey, artifact: Vec<u8>) {
        if let Some(jobs) = &self.jobs {
            // The thread ends only with this value, so the send arrives.
            let _ = jobs.send(Job::Store(key, artifact));
        }
    }

    fn settle(&self) {
        let (done, finished) = mpsc::channel();
        if let Some(jobs) = &self.jobs
            && jobs.send(Job::Settle(done)).is_ok()
        {
            let _ = finished.recv();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
