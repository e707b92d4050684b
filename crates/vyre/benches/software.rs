//! The CPU board's kernels on this machine's processor, once through vyre's CPU backend and once through a software Vulkan driver.
//!
//! `cargo bench -p vyre --bench software` prints a table of medians over interleaved rounds. Ratios over 1 mean that the CPU backend
//! is faster.

#[path = "../../vyre-cpu/benches/cpu_board/kernels.rs"]
mod kernels;

use std::sync::Arc;
use std::time::Instant;

use vyre::backend::{Binding, CompileOptions, DeviceKind, Launch, Order, Pipeline};
use vyre::{Engine, VyreBackend};

const ROUNDS: usize = 7;

/// One work of the board; its peer in plain Rust is not used here.
struct Work {
    name: &'static str,
    program: vyre::Program,
    buffers: Vec<Vec<f32>>,
    grid: [u32; 3],
    #[expect(dead_code, reason = "the CPU board's own peer")]
    peer: fn(&mut [Vec<f32>]),
    tolerance: f32,
}

/// The works name their peers.
mod peers {
    macro_rules! unused {
        ($($name:ident),*) => {
            $(pub(crate) fn $name(_: &mut [Vec<f32>]) {})*
        };
    }
    unused!(map, logistic, sigmoid, reduction, stencil, mandelbrot, matmul, histogram);
}

struct Device {
    backend: Arc<dyn VyreBackend>,
    pipeline: Arc<dyn Pipeline>,
    bindings: Vec<Binding>,
}

impl Device {
    fn new(backend: Arc<dyn VyreBackend>, work: &Work) -> Device {
        let valid = work.program.validate().expect("the board's programs are valid");
        let pipeline = backend.compile(&valid, &CompileOptions::default()).expect("they compile");
        let bind = |contents: &Vec<f32>| {
            let buffer = backend.allocate(contents.len() as u64 * 4).expect("memory");
            let uploaded = backend.upload(&buffer, 0, vyre::to_bytes(contents), &Order::default()).expect("an upload");
            backend.forget(uploaded);
            Binding::from(buffer)
        };
        let bindings = work.buffers.iter().map(bind).collect();
        Device { backend, pipeline, bindings }
    }

    /// Milliseconds of one launch and its wait.
    fn run(&self, grid: [u32; 3]) -> f64 {
        let begin = Instant::now();
        let ticket = self.backend.submit(&self.pipeline, &Launch::new(&self.bindings, grid)).expect("a launch");
        self.backend.wait(ticket, None).expect("its end");
        self.backend.forget(ticket);
        begin.elapsed().as_secs_f64() * 1e3
    }

    fn result(&self) -> Vec<f32> {
        let last = self.bindings.last().expect("a result");
        let mut bytes = vec![0; last.bytes as usize];
        self.backend.download(&last.buffer, 0, &mut bytes, &Order::default()).expect("a download");
        vyre::from_bytes(&bytes)
    }
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn main() {
    let engine = Engine::builder().without_disk().open().expect("an engine");
    let cpu = engine.backend("cpu").expect("the CPU backend");
    let software = match engine.backend("wgpu") {
        Ok(backend) if backend.capabilities().kind == DeviceKind::Software => backend,
        Ok(backend) => {
            println!(
                "skipped: {} is no software driver; VYRE_WGPU_ADAPTER chooses another",
                backend.capabilities().name
            );
            return;
        }
        Err(reason) => {
            println!("skipped: {}", reason.message());
            return;
        }
    };
    println!("{} against {}", cpu.capabilities().name, software.capabilities().name);
    println!("{:<14}{:>12}{:>16}{:>8}", "work", "cpu ms", "software ms", "ratio");
    for work in kernels::works() {
        let (ours, theirs) = (Device::new(cpu.clone(), &work), Device::new(software.clone(), &work));
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for round in 0..=ROUNDS {
            let times = (ours.run(work.grid), theirs.run(work.grid));
            if round > 0 {
                left.push(times.0);
                right.push(times.1);
            }
        }
        for (a, b) in ours.result().iter().zip(theirs.result()) {
            let far = (a - b).abs() > work.tolerance * a.abs().max(b.abs());
            assert!(!far, "{}: {a} and {b}", work.name);
        }
        let (left, right) = (median(left), median(right));
        println!("{:<14}{left:>12.3}{right:>16.3}{:>8.2}", work.name, right / left);
    }
}
