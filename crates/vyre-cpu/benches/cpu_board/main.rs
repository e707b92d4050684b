//! The CPU board: kernels of this backend against plain Rust with rayon, in interleaved rounds on the same data.
//!
//! `cargo bench -p vyre-cpu --bench cpu_board` prints a table; `-- --json FILE` writes it too; `--only WORK` runs one, and
//! `--code FILE` writes the machine code to `FILE.WORK`. The peers are compiled for the
//! instruction set that the backend uses, and written so that LLVM vectorises them. Times are of the fastest round, as wall
//! time and as processor time of the whole process; ratios over 1 mean that the backend is faster.
//!
//! `--compile N` only compiles, every work and a kernel of two hundred lines N times: the median of the whole, from the
//! validated program to code that can run, and of the part before the backend's own, the lowering to the kernel form.

mod kernels;
mod long;
mod peers;

use std::sync::Arc;
use std::time::{Duration, Instant};

use vyre_cpu::{CpuBackend, CpuOptions, CpuPath};
use vyre_driver::VyreBackend;
use vyre_driver::backend::{Binding, Buffer, CompileOptions, Launch, Order, Pipeline};
use vyre_foundation::ir::Program;
use vyre_foundation::kernel::{self, Passes};

const ROUNDS: usize = 25;

/// One work: what to launch, and the peer on the same inputs.
struct Work {
    name: &'static str,
    program: Program,
    /// Contents of the buffers in binding order.
    buffers: Vec<Vec<f32>>,
    grid: [u32; 3],
    peer: fn(&mut [Vec<f32>]),
    /// Largest relative difference of a result.
    tolerance: f32,
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn processor_time() -> Duration {
    // SAFETY: the structure is plain data that the call fills in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let part =
        |time: libc::timeval| Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64);
    part(usage.ru_utime) + part(usage.ru_stime)
}

/// Time that passes, and time of all threads with what they look for work afterwards: the system tells what a thread has used once it
/// sleeps.
fn timed(run: impl FnOnce()) -> (Duration, Duration) {
    const QUIET: Duration = Duration::from_millis(1);
    std::thread::sleep(QUIET);
    let (started, cpu) = (Instant::now(), processor_time());
    run();
    let wall = started.elapsed();
    std::thread::sleep(QUIET);
    (wall, processor_time().saturating_sub(cpu))
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

struct Device {
    backend: CpuBackend,
    pipeline: Arc<dyn Pipeline>,
    bindings: Vec<Binding>,
    grid: [u32; 3],
}

impl Device {
    fn new(path: CpuPath, work: &Work) -> Device {
        Device::with(CpuBackend::with_path(path).expect("a path of this machine"), work)
    }

    fn with(backend: CpuBackend, work: &Work) -> Device {
        let valid = work.program.validate().expect("the board's programs are valid");
        let pipeline = backend.compile(&valid, &CompileOptions::default()).expect("they compile");
        let bindings = work
            .buffers
            .iter()
            .map(|contents| {
                let buffer: Buffer = backend.allocate(contents.len() as u64 * 4).expect("memory");
                backend.forget(backend.upload(&buffer, 0, &bytes(contents), &Order::default()).expect("an upload"));
                Binding::from(buffer)
            })
            .collect();
        Device { backend, pipeline, bindings, grid: work.grid }
    }

    fn run(&self) {
        let ticket = self.backend.submit(&self.pipeline, &Launch::new(&self.bindings, self.grid)).expect("a launch");
        self.backend.wait(ticket, None).expect("its end");
    }

    fn result(&self) -> Vec<f32> {
        let last = self.bindings.last().expect("a result");
        let mut bytes = vec![0; last.bytes as usize];
        self.backend.download(&last.buffer, 0, &mut bytes, &Order::default()).expect("a download");
        bytes.chunks_exact(4).map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
    }
}

fn main() {
    let mut json = None;
    let mut only: Option<String> = None;
    let mut code: Option<String> = None;
    let mut compiles: Option<usize> = None;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--json" => json = args.next(),
            "--only" => only = args.next(),
            "--code" => code = args.next(),
            "--compile" => compiles = args.next().and_then(|count| count.parse().ok()),
            _ => {}
        }
    }
    let path = if std::env::var_os("F512").is_some() {
        CpuPath::Avx512
    } else {
        CpuPath::from_env().expect("a path of this machine")
    };
    let is_wanted = |name: &str| only.as_ref().is_none_or(|only| name == only);
    if let Some(count) = compiles {
        println!("path {path}, median of {count} compilations");
        println!("{:<18}{:>12}{:>12}{:>12}", "work", "least us", "median us", "lowering us");
        let long = long::long();
        let works = kernels::works();
        let programs = works.iter().map(|work| (work.name, &work.program)).chain([("two hundred lines", &long)]);
        for (name, program) in programs.filter(|(name, _)| is_wanted(name)) {
            let [least, all, lowering] = repeated_compiles(path, program, count).map(|time| time.as_secs_f64() * 1e6);
            println!("{name:<18}{least:>12.0}{all:>12.0}{lowering:>12.0}");
        }
        return;
    }
    println!("path {path}, {} threads, {ROUNDS} interleaved rounds", rayon::current_num_threads());
    println!(
        "{:<14}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}",
        "work", "vyre ms", "peer ms", "median x", "best x", "cpu x", "compile us", "reload us"
    );
    let mut rows = Vec::new();
    for work in kernels::works().into_iter().filter(|work| is_wanted(work.name)) {
        let device = Device::new(path, &work);
        if let Some(file) = &code {
            println!("{}: {}", work.name, device.backend.explain(&device.pipeline).expect("its own pipeline"));
            let bytes = device.backend.machine_code(&device.pipeline).expect("its own pipeline").unwrap_or_default();
            std::fs::write(format!("{file}.{}", work.name), bytes).expect("the file can be written");
        }
        let mut host = work.buffers.clone();
        (work.peer)(&mut host);
        device.run();
        check(&work, &device.result(), host.last().expect("a result"));
        let mut times = [const { Vec::new() }; 4];
        for _ in 0..ROUNDS {
            let (wall, cpu) = timed(|| device.run());
            times[0].push(wall);
            times[1].push(cpu);
            let (wall, cpu) = timed(|| (work.peer)(&mut host));
            times[2].push(wall);
            times[3].push(cpu);
        }
        let [mut ours, ours_cpu, mut theirs, theirs_cpu] = times;
        let least = |times: &[Duration]| times.iter().min().copied().unwrap_or_default().as_secs_f64();
        let best = least(&theirs) / least(&ours);
        let cpu = least(&theirs_cpu) / least(&ours_cpu);
        let (ours, theirs) = (median(&mut ours).as_secs_f64(), median(&mut theirs).as_secs_f64());
        let (compile, reload) = compile_times(path, &work);
        println!(
            "{:<14}{:>12.3}{:>12.3}{:>12.2}{:>12.2}{:>12.2}{:>12.0}{:>12.1}",
            work.name,
            ours * 1e3,
            theirs * 1e3,
            theirs / ours,
            best,
            cpu,
            compile * 1e6,
            reload * 1e6
        );
        rows.push(format!(
            "{{\"work\":\"{}\",\"vyre_s\":{ours:e},\"peer_s\":{theirs:e},\"best\":{best:.4},\"cpu\":{cpu:.4},\"compile_s\":{compile:e},\"reload_s\":{reload:e}}}",
            work.name
        ));
    }
    if only.is_none() {
        tiny(path);
        scaling(path);
    }
    if let Some(file) = json {
        std::fs::write(file, format!("[{}]\n", rows.join(","))).expect("the file can be written");
    }
}

fn check(work: &Work, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{}", work.name);
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let near = (found - expected).abs() <= work.tolerance * expected.abs().max(1e-3);
        assert!(near, "{} at {at}: {found} instead of {expected}", work.name);
    }
}

/// Seconds to compile a program and to load its stored code, the least of several.
fn compile_times(path: CpuPath, work: &Work) -> (f64, f64) {
    let backend = CpuBackend::with_path(path).expect("a path of this machine");
    let valid = work.program.validate().expect("valid");
    let options = CompileOptions::default();
    let mut least = (f64::MAX, f64::MAX);
    for _ in 0..20 {
        let start = Instant::now();
        let pipeline = backend.compile(&valid, &options).expect("it compiles");
        least.0 = least.0.min(start.elapsed().as_secs_f64());
        if let Some(artifact) = pipeline.artifact() {
            let start = Instant::now();
            backend.load(&valid, &options, &artifact).expect("it loads");
            least.1 = least.1.min(start.elapsed().as_secs_f64());
        }
    }
    least
}

/// How long it takes to compile a program: the least, the median, and the median of the lowering that is a part of it.
fn repeated_compiles(path: CpuPath, program: &Program, count: usize) -> [Duration; 3] {
    let backend = CpuBackend::with_path(path).expect("a path of this machine");
    let valid = program.validate().expect("valid");
    let passes = Passes::all().without(Passes::UNROLL);
    let options = kernel::Options { expand_math: true, passes, ..kernel::Options::default() };
    let (mut all, mut lowering) = (Vec::new(), Vec::new());
    for _ in 0..count.max(1) {
        let start = Instant::now();
        backend.compile(&valid, &CompileOptions::default()).expect("it compiles");
        all.push(start.elapsed());
        let start = Instant::now();
        kernel::lower(&valid, &options).expect("it lowers");
        lowering.push(start.elapsed());
    }
    let all_median = median(&mut all);
    [all[0], all_median, median(&mut lowering)]
}

/// One small workgroup from call to end.
fn tiny(path: CpuPath) {
    let work = kernels::map("tiny", 256);
    let device = Device::new(path, &work);
    let mut least = f64::MAX;
    for _ in 0..50 {
        let start = Instant::now();
        for _ in 0..100 {
            device.run();
        }
        least = least.min(start.elapsed().as_secs_f64() / 100.0);
    }
    println!("tiny dispatch of {} elements: {:.2} us", 256, least * 1e6);
}

/// Two threads against one, on the kernels that compute more than they move.
fn scaling(path: CpuPath) {
    for work in kernels::works().iter().filter(|work| ["logistic", "mandelbrot", "matmul"].contains(&work.name)) {
        let devices = [1, 2].map(|threads| {
            let mut options = CpuOptions::default();
            (options.path, options.threads) = (Some(path), std::num::NonZero::new(threads));
            Device::with(CpuBackend::with_options(&options).expect("a path of this machine"), work)
        });
        let mut least = [f64::MAX; 2];
        for _ in 0..ROUNDS {
            for (device, least) in devices.iter().zip(&mut least) {
                device.run();
                let start = Instant::now();
                device.run();
                *least = least.min(start.elapsed().as_secs_f64());
            }
        }
        println!("{}: two threads are {:.2} x one", work.name, least[0] / least[1]);
    }
}
