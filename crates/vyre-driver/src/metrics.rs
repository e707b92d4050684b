//! Counters and latency histograms of every stage, and traces of a run. The hot path takes no lock and no memory.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde::Serialize;
use serde_json::json;

macro_rules! names {
    ($(#[$meta:meta])* $enum:ident { $($(#[$doc:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $enum {
            $($(#[$doc])* $variant,)*
        }

        impl $enum {
            /// All of them, in order.
            pub const ALL: &'static [$enum] = &[$($enum::$variant),*];

            /// Its name in reports.
            pub fn name(self) -> &'static str {
                match self {
                    $($enum::$variant => $name,)*
                }
            }
        }
    };
}

names! {
    /// A step on the way of a dispatch.
    Stage {
        /// Checking a program.
        Validate = "validate",
        /// Sizes and grid.
        Plan = "plan",
        /// Choosing a backend.
        Route = "route",
        /// Choosing a launch.
        Tune = "tune",
        /// Looking for a pipeline on disk.
        DiskLookup = "disk_lookup",
        /// Making a pipeline from stored bytes.
        Load = "load",
        /// Compiling.
        Compile = "compile",
        /// Storing a pipeline.
        Store = "store",
        /// Host to device.
        Upload = "upload",
        /// Queueing a launch.
        Submit = "submit",
        /// Waiting for a launch.
        Wait = "wait",
        /// Device to host.
        Download = "download",
        /// A whole dispatch.
        Dispatch = "dispatch",
    }
}

names! {
    /// Something that is counted.
    Counter {
        /// Dispatches begun.
        Dispatches = "dispatches",
        /// Dispatches that failed.
        Errors = "errors",
        /// Pipelines found in memory.
        MemoryHits = "memory_hits",
        /// Pipelines found on disk.
        DiskHits = "disk_hits",
        /// Misses: nothing like it was stored.
        MissAbsent = "miss_absent",
        /// Misses: the program changed.
        MissProgram = "miss_program_changed",
        /// Misses: the device changed.
        MissDevice = "miss_device_changed",
        /// Misses: the driver changed.
        MissDriver = "miss_driver_changed",
        /// Misses: the policy changed.
        MissPolicy = "miss_policy_changed",
        /// Misses: the entry was damaged.
        MissCorrupt = "miss_corrupt",
        /// Pipelines compiled.
        Compiles = "compiles",
        /// Timings taken by the tuner.
        TuningSamples = "tuning_samples",
        /// Decisions certified by the tuner.
        TuningDecisions = "tuning_decisions",
        /// Backends chosen by the router.
        Routes = "routes",
        /// Dispatches that were run on another backend after a failure.
        Fallbacks = "fallbacks",
        /// Bytes from host to device.
        BytesUploaded = "bytes_uploaded",
        /// Bytes from device to host.
        BytesDownloaded = "bytes_downloaded",
        /// Bytes from device to device.
        BytesCopied = "bytes_copied",
    }
}

impl Counter {
    /// The counter of a miss.
    pub fn of_miss(reason: crate::pipeline::MissReason) -> Counter {
        use crate::pipeline::MissReason;
        match reason {
            MissReason::Absent => Counter::MissAbsent,
            MissReason::ProgramChanged => Counter::MissProgram,
            MissReason::DeviceChanged => Counter::MissDevice,
            MissReason::DriverChanged => Counter::MissDriver,
            MissReason::PolicyChanged => Counter::MissPolicy,
            MissReason::Corrupt => Counter::MissCorrupt,
        }
    }
}

const STAGES: usize = Stage::ALL.len();
const COUNTERS: usize = Counter::ALL.len();
/// Four buckets for every doubling, so a quantile is at most a quarter too high; up to 2^41 ns, 36 minutes.
const BUCKETS: usize = 4 * 40;
/// Threads write to different stripes, so that they don't fight for cache lines.
const STRIPES: usize = 8;
/// Events that a trace keeps; later ones are counted as dropped.
const MAX_EVENTS: usize = 1 << 20;

#[repr(align(128))]
struct Stripe {
    counters: [AtomicU64; COUNTERS],
    stages: [Histogram; STAGES],
}

struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
}

fn bucket_of(ns: u64) -> usize {
    // Below 4 every value has its own bucket; above, the two bits after the highest choose among four.
    if ns < 4 {
        return ns as usize;
    }
    let exponent = 63 - ns.leading_zeros() as usize;
    let fraction = (ns >> (exponent - 2)) as usize & 3;
    ((exponent - 1) * 4 + fraction).min(BUCKETS - 1)
}

/// The largest value that falls into a bucket.
fn bucket_top(bucket: usize) -> u64 {
    if bucket < 4 {
        return bucket as u64;
    }
    let (exponent, fraction) = (bucket / 4 + 1, bucket as u64 % 4);
    ((5 + fraction) << (exponent - 2)) - 1
}

/// Latencies of one stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Latency {
    /// How many were measured.
    pub count: u64,
    /// Their sum in nanoseconds.
    pub total_ns: u64,
    /// Half were at most this, a quarter too high at most.
    pub p50_ns: u64,
    /// 90 of 100 were at most this.
    pub p90_ns: u64,
    /// 99 of 100 were at most this.
    pub p99_ns: u64,
    /// All were at most this.
    pub max_ns: u64,
}

/// All counters and latencies at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    /// Counters by name.
    pub counters: std::collections::BTreeMap<&'static str, u64>,
    /// Latencies by stage.
    pub stages: std::collections::BTreeMap<&'static str, Latency>,
}

struct Event {
    stage: Stage,
    label: Option<String>,
    start_ns: u64,
    duration_ns: u64,
    thread: usize,
}

/// The metrics of an engine. Threads share it freely.
pub struct Metrics {
    stripes: Box<[Stripe; STRIPES]>,
    tracing: AtomicBool,
    events: Mutex<Vec<Event>>,
    dropped: AtomicU64,
    epoch: Instant,
}

impl Metrics {
    /// All zero, not tracing.
    pub fn new() -> Self {
        let zero = || AtomicU64::new(0);
        let histogram = || Histogram { buckets: std::array::from_fn(|_| zero()), sum: zero() };
        let stripe =
            || Stripe { counters: std::array::from_fn(|_| zero()), stages: std::array::from_fn(|_| histogram()) };
        Metrics {
            stripes: Box::new(std::array::from_fn(|_| stripe())),
            tracing: AtomicBool::new(false),
            events: Mutex::default(),
            dropped: AtomicU64::new(0),
            epoch: Instant::now(),
        }
    }

    /// Adds to a counter.
    #[inline]
    pub fn add(&self, counter: Counter, by: u64) {
        self.stripe().counters[counter as usize].fetch_add(by, Ordering::Relaxed);
    }

    /// Notes how long a stage took.
    #[inline]
    pub fn record(&self, stage: Stage, ns: u64) {
        let histogram = &self.stripe().stages[stage as usize];
        histogram.buckets[bucket_of(ns)].fetch_add(1, Ordering::Relaxed);
        histogram.sum.fetch_add(ns, Ordering::Relaxed);
    }

    /// Times a stage until the guard is dropped, in a `tracing` span, and in the trace where one is being taken.
    pub fn time(&self, stage: Stage) -> Timer<'_> {
        self.time_labelled(stage, None)
    }

    /// [`Metrics::time`] with a label, such as the program's name, that traces show.
    pub fn time_labelled(&self, stage: Stage, label: Option<&str>) -> Timer<'_> {
        let span = tracing::debug_span!("vyre", stage = stage.name(), label).entered();
        let label = if self.is_tracing() { label.map(str::to_owned) } else { None };
        Timer { metrics: self, stage, label, start: Instant::now(), _span: span }
    }

    /// The value of a counter.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.stripes.iter().map(|stripe| stripe.counters[counter as usize].load(Ordering::Relaxed)).sum()
    }

    /// The latencies of a stage.
    pub fn latency(&self, stage: Stage) -> Latency {
        let mut buckets = [0u64; BUCKETS];
        let mut total_ns = 0;
        for stripe in self.stripes.iter() {
            let histogram = &stripe.stages[stage as usize];
            for (sum, bucket) in buckets.iter_mut().zip(&histogram.buckets) {
                *sum += bucket.load(Ordering::Relaxed);
            }
            total_ns += histogram.sum.load(Ordering::Relaxed);
        }
        let count: u64 = buckets.iter().sum();
        let quantile = |per_cent: u64| {
            // The rank is rounded up: the smallest value that so many are not above.
            let rank = (u128::from(count) * u128::from(per_cent)).div_ceil(100) as u64;
            let mut seen = 0;
            for (bucket, in_bucket) in buckets.iter().enumerate() {
                seen += in_bucket;
                if seen >= rank && *in_bucket > 0 {
                    return bucket_top(bucket);
                }
            }
            0
        };
        Latency {
            count,
            total_ns,
            p50_ns: quantile(50),
            p90_ns: quantile(90),
            p99_ns: quantile(99),
            max_ns: quantile(100),
        }
    }

    /// Everything at once; stages and counters that never happened are left out.
    pub fn snapshot(&self) -> Snapshot {
        let counters = Counter::ALL.iter().map(|&counter| (counter.name(), self.counter(counter)));
        let stages = Stage::ALL.iter().map(|&stage| (stage.name(), self.latency(stage)));
        Snapshot {
            counters: counters.filter(|(_, value)| *value > 0).collect(),
            stages: stages.filter(|(_, latency)| latency.count > 0).collect(),
        }
    }

    /// Begins to keep an event for every timed stage, and forgets those of an earlier trace.
    pub fn start_trace(&self) {
        self.events().clear();
        self.dropped.store(0, Ordering::Relaxed);
        self.tracing.store(true, Ordering::Relaxed);
    }

    /// A trace is being taken.
    pub fn is_tracing(&self) -> bool {
        self.tracing.load(Ordering::Relaxed)
    }

    /// Ends the trace and gives it in the JSON that Chrome's `about:tracing` and Perfetto open.
    pub fn finish_trace(&self) -> String {
        self.tracing.store(false, Ordering::Relaxed);
        let events = std::mem::take(&mut *self.events());
        let events: Vec<_> = events
            .iter()
            .map(|event| {
                json!({
                    "name": event.label.as_deref().unwrap_or(event.stage.name()),
                    "cat": event.stage.name(),
                    "ph": "X",
                    "ts": event.start_ns as f64 / 1000.0,
                    "dur": event.duration_ns as f64 / 1000.0,
                    "pid": std::process::id(),
                    "tid": event.thread,
                })
            })
            .collect();
        let dropped = self.dropped.load(Ordering::Relaxed);
        json!({ "traceEvents": events, "displayTimeUnit": "ns", "otherData": { "dropped": dropped } }).to_string()
    }

    fn events(&self) -> std::sync::MutexGuard<'_, Vec<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn stripe(&self) -> &Stripe {
        &self.stripes[thread_number() % STRIPES]
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

#[inline]
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    thread_local!(static NUMBER: Cell<usize> = const { Cell::new(0) });
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

/// Times a stage until it is dropped.
pub struct Timer<'a> {
    metrics: &'a Metrics,
    stage: Stage,
    label: Option<String>,
    start: Instant,
    _span: tracing::span::EnteredSpan,
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        let duration_ns = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.metrics.record(self.stage, duration_ns);
        if self.metrics.is_tracing() {
            let mut events = self.metrics.events();
            if events.len() >= MAX_EVENTS {
                self.metrics.dropped.fetch_add(1, Ordering::Relaxed);
                return;
            }
            let start_ns = self.start.saturating_duration_since(self.metrics.epoch).as_nanos() as u64;
            let (stage, label) = (self.stage, self.label.take());
            events.push(Event { stage, label, start_ns, duration_ns, thread: thread_number() });
        }
    }
}
