//! The memory cache, and memory over disk over the compiler.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use vyre_driver::backend::{Capabilities, CompileOptions, Pipeline};
use vyre_driver::metrics::{Metrics, Stage};
use vyre_driver::pipeline::{
    DiskCacheOptions, DiskPipelineCache, EntryKey, MissReason, PipelineCache, PipelineDeviceFingerprint, PipelineKey,
    PipelineSource, SingleFlight,
};
use vyre_driver::{BackendError, DispatchConfig, VyreBackend};
use vyre_foundation::ValidProgram;
use vyre_foundation::ir::Program;

use crate::store_program;

/// Counts compiles and loads; its artifact is the program's fingerprint.
struct Compiler {
    capabilities: Capabilities,
    compiles: AtomicU32,
    loads: AtomicU32,
    takes: Duration,
    fails: bool,
}

struct Compiled(Vec<u8>);

impl Pipeline for Compiled {
    fn workgroup_size(&self) -> [u32; 3] {
        [64, 1, 1]
    }

    fn artifact(&self) -> Option<Vec<u8>> {
        Some(self.0.clone())
    }
}

impl Compiler {
    fn new(driver: &str) -> Self {
        let mut capabilities = Capabilities::default();
        capabilities.fingerprint = PipelineDeviceFingerprint::from_parts(1, 2, driver, "");
        let zero = || AtomicU32::new(0);
        Compiler { capabilities, compiles: zero(), loads: zero(), takes: Duration::ZERO, fails: false }
    }

    fn compiles(&self) -> u32 {
        self.compiles.load(Ordering::SeqCst)
    }
}

impl VyreBackend for Compiler {
    fn id(&self) -> &'static str {
        "compiler"
    }

    fn dispatch(&self, _: &Program, _: &[Vec<u8>], _: &DispatchConfig) -> Result<Vec<Vec<u8>>, BackendError> {
        Err(BackendError::new("never run here"))
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn compile(&self, program: &ValidProgram, _: &CompileOptions) -> Result<Arc<dyn Pipeline>, BackendError> {
        self.compiles.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(self.takes);
        if self.fails {
            return Err(BackendError::new("the compiler refused"));
        }
        Ok(Arc::new(Compiled(program.fingerprint().to_vec())))
    }

    fn load(
        &self,
        program: &ValidProgram,
        _: &CompileOptions,
        artifact: &[u8],
    ) -> Result<Arc<dyn Pipeline>, BackendError> {
        self.loads.fetch_add(1, Ordering::SeqCst);
        if artifact != program.fingerprint() {
            return Err(BackendError::new("another program's artifact"));
        }
        Ok(Arc::new(Compiled(artifact.to_vec())))
    }
}

fn valid(value: u32) -> ValidProgram {
    store_program(value).validate().unwrap()
}

#[test]
fn many_threads_that_ask_for_one_key_compile_once() {
    let mut backend = Compiler::new("1");
    backend.takes = Duration::from_millis(30);
    let cache = PipelineCache::new(16, None);
    let start = Barrier::new(16);
    let options = CompileOptions::default();
    let sources: Vec<PipelineSource> = std::thread::scope(|scope| {
        let ask = || {
            start.wait();
            cache.get(&backend, &valid(1), &options).unwrap().source
        };
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(backend.compiles(), 1);
    let compiled = sources.iter().filter(|source| **source == PipelineSource::Compiled(MissReason::Absent)).count();
    assert_eq!(compiled, 1);
    assert_eq!(cache.stats().memory_hits, 15);
}

#[test]
fn a_failed_compile_wakes_everyone_and_is_tried_again() {
    let mut backend = Compiler::new("1");
    backend.takes = Duration::from_millis(30);
    backend.fails = true;
    let cache = PipelineCache::new(16, None);
    let start = Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                start.wait();
                let error = cache.get(&backend, &valid(1), &CompileOptions::default()).err().unwrap();
                assert_eq!(error.message(), "the compiler refused");
            });
        }
    });
    assert_eq!(backend.compiles(), 1, "all of them waited for the one");
    assert!(cache.get(&backend, &valid(1), &CompileOptions::default()).is_err());
    assert_eq!(backend.compiles(), 2, "a failure is not remembered");
    assert_eq!(cache.stats().failures, 2);
}

#[test]
fn a_panic_while_making_wakes_everyone() {
    let table: SingleFlight<u32, u32> = SingleFlight::new(4);
    let making = Barrier::new(2);
    std::thread::scope(|scope| {
        let maker = scope.spawn(|| {
            table.get_or_make(&1, || {
                making.wait();
                std::thread::sleep(Duration::from_millis(30));
                panic!("compiler bug")
            })
        });
        making.wait();
        let error = table.get_or_make(&1, || Ok(5)).unwrap_err();
        assert!(error.message().contains("panicked"), "{error}");
        assert!(maker.join().is_err());
    });
    assert_eq!(table.get_or_make(&1, || Ok(7)).unwrap(), 7);
}

#[test]
fn memory_is_bounded_and_forgets_the_least_recently_used() {
    let table: SingleFlight<u32, u32> = SingleFlight::new(3);
    assert!(table.is_empty());
    for key in 0..3 {
        table.get_or_make(&key, || Ok(key)).unwrap();
    }
    assert_eq!(table.get(&0), Some(0));
    table.get_or_make(&9, || Ok(9)).unwrap();
    assert_eq!(table.len(), 3);
    assert_eq!([0, 1, 2, 9].map(|key| table.get(&key).is_some()), [true, false, true, true]);
    table.remove(&9);
    assert_eq!(table.get(&9), None);
}

#[test]
fn pipelines_come_from_memory_then_disk_then_the_compiler() {
    let folder = tempfile::tempdir().unwrap();
    let open = || PipelineCache::new(16, Some(Arc::new(DiskPipelineCache::open(folder.path()).unwrap())));
    let backend = Compiler::new("1");
    let options = CompileOptions::default();
    let source = |cache: &PipelineCache, backend: &Compiler, value, options: &CompileOptions| {
        cache.get(backend, &valid(value), options).unwrap().source
    };
    {
        let cache = open();
        assert_eq!(source(&cache, &backend, 1, &options), PipelineSource::Compiled(MissReason::Absent));
        assert_eq!(source(&cache, &backend, 1, &options), PipelineSource::Memory);
        cache.flush().unwrap();
    }
    let cache = open();
    assert_eq!(source(&cache, &backend, 1, &options), PipelineSource::Disk);
    assert_eq!(source(&cache, &backend, 1, &options), PipelineSource::Memory);
    assert_eq!((backend.compiles(), backend.loads.load(Ordering::SeqCst)), (1, 1));
    // Whatever the code depends on makes another key, and the reason is told.
    let mut wider = CompileOptions::default();
    wider.workgroup_size = Some([128, 1, 1]);
    assert_eq!(source(&cache, &backend, 1, &wider), PipelineSource::Compiled(MissReason::PolicyChanged));
    let newer = Compiler::new("2");
    assert_eq!(source(&cache, &newer, 1, &options), PipelineSource::Compiled(MissReason::DriverChanged));
    let mut named = CompileOptions::default();
    named.label = Some("blur".to_owned());
    assert_eq!(source(&cache, &backend, 5, &named), PipelineSource::Compiled(MissReason::Absent));
    cache.flush().unwrap();
    assert_eq!(source(&cache, &backend, 6, &named), PipelineSource::Compiled(MissReason::ProgramChanged));
}

#[test]
fn every_stage_is_timed() {
    let folder = tempfile::tempdir().unwrap();
    let metrics = Arc::new(Metrics::new());
    let open = || {
        let disk = Arc::new(DiskPipelineCache::open(folder.path()).unwrap());
        PipelineCache::with_metrics(16, Some(disk), metrics.clone())
    };
    let backend = Compiler::new("1");
    for _ in 0..2 {
        open().get(&backend, &valid(1), &CompileOptions::default()).unwrap();
    }
    let counts =
        [Stage::DiskLookup, Stage::Compile, Stage::Store, Stage::Load].map(|stage| metrics.latency(stage).count);
    assert_eq!(counts, [2, 1, 1, 1]);
}

#[test]
fn an_artifact_that_does_not_load_is_put_aside_and_compiled_again() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Arc::new(DiskPipelineCache::open(folder.path()).unwrap());
    let backend = Compiler::new("1");
    let options = CompileOptions::default();
    let key = PipelineKey::of(&backend, &valid(1), &options).unwrap();
    let key = EntryKey::of(&key, &valid(1), &options);
    disk.store(&key, b"not what the backend wrote").unwrap();
    let cache = PipelineCache::new(16, Some(disk.clone()));
    assert_eq!(cache.get(&backend, &valid(1), &options).unwrap().source, PipelineSource::Compiled(MissReason::Corrupt));
    assert_eq!(disk.stats().quarantined, 1);
    drop(cache);
    let cache = PipelineCache::new(16, Some(disk));
    assert_eq!(cache.get(&backend, &valid(1), &options).unwrap().source, PipelineSource::Disk);
}

#[test]
fn what_another_driver_left_goes_once_it_is_not_used() {
    for (idle, left) in [(Duration::ZERO, 1), (Duration::from_secs(3600), 2)] {
        let folder = tempfile::tempdir().unwrap();
        let mut options = DiskCacheOptions::default();
        options.superseded_after = idle;
        let entries = |driver: &str| {
            let disk = Arc::new(DiskPipelineCache::open_with(folder.path(), options.clone()).unwrap());
            let cache = PipelineCache::new(16, Some(disk.clone()));
            let source = cache.get(&Compiler::new(driver), &valid(1), &CompileOptions::default()).unwrap().source;
            cache.flush().unwrap();
            (source, disk.usage().unwrap().entries)
        };
        assert_eq!(entries("1"), (PipelineSource::Compiled(MissReason::Absent), 1));
        assert_eq!(entries("2"), (PipelineSource::Compiled(MissReason::DriverChanged), left));
        assert_eq!(entries("2"), (PipelineSource::Disk, left));
        let back = if left == 2 { PipelineSource::Disk } else { PipelineSource::Compiled(MissReason::Absent) };
        assert_eq!(entries("1"), (back, left));
    }
}
