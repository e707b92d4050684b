//! The wgpu board: this backend against hand-written wgpu code for the same work, in one process, on the same adapter, in
//! interleaved rounds: tiny dispatches (pipelined, recorded, and each with a wait), a map of 16 M elements, and upload, run and download of 4 MB.
//!
//! `cargo bench -p vyre-wgpu --bench board` prints a table: medians, and the median of the rounds' ratios with the middle half of
//! them. Ratios over 1 mean that hand-written code is faster. `VYRE_WGPU_ADAPTER` gives the number of the adapter.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use vyre_driver::backend::{Binding, CompileOptions, Launch, Order, Pipeline, Step, Ticket};
use vyre_driver::{BackendError, VyreBackend};
use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
use vyre_wgpu::WgpuBackend;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const ROUNDS: usize = 21;
const MAP: usize = 16_000_000;
const MOVED: usize = 1 << 20;

fn main() -> Outcome<()> {
    let number = std::env::var("VYRE_WGPU_ADAPTER").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let begin = Instant::now();
    let backend = match WgpuBackend::open(number) {
        Ok(backend) => backend,
        Err(reason) => {
            println!("skipped: {}", reason.message);
            return Ok(());
        }
    };
    let opened = begin.elapsed();
    println!("{} ({})", backend.capabilities().name, backend.capabilities().driver);
    println!("opened in {:.1} ms", opened.as_secs_f64() * 1e3);
    first_result(&backend)?;
    let peer = Peer::new(number)?;
    println!("{:<40}{:>12}{:>12}{:>8}  [middle half]", "", "vyre us", "wgpu us", "ratio");
    tiny(&backend, &peer)?;
    map(&backend, &peer)?;
    moved(&backend, &peer)?;
    Ok(())
}

/// `a·2 + 1` into another buffer.
fn program() -> Program {
    let at = || Expr::global_id(0);
    Program::wrapped(
        vec![BufferDecl::read("a", 0, DataType::F32), BufferDecl::output("out", 1, DataType::F32)],
        [256, 1, 1],
        vec![Node::store("out", at(), Expr::load("a", at()) * Expr::f32(2.0) + Expr::f32(1.0))],
    )
}

const SOURCE: &str = "
    @group(0) @binding(0) var<storage, read> a: array<f32>;
    @group(0) @binding(1) var<storage, read_write> out: array<f32>;
    @compute @workgroup_size(256) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x < arrayLength(&a) && id.x < arrayLength(&out) { out[id.x] = a[id.x] * 2.0 + 1.0; }
    }";

fn compiled(backend: &WgpuBackend) -> Outcome<Arc<dyn Pipeline>> {
    let program = program();
    let valid = program.validate().map_err(BackendError::from)?;
    Ok(backend.compile(&valid, &CompileOptions::default())?)
}

fn first_result(backend: &WgpuBackend) -> Outcome<()> {
    let begin = Instant::now();
    let pipeline = compiled(backend)?;
    let compile = begin.elapsed();
    let Some(stored) = pipeline.artifact() else { return Ok(()) };
    let begin = Instant::now();
    let program = program();
    let valid = program.validate().map_err(BackendError::from)?;
    backend.load(&valid, &CompileOptions::default(), &stored)?;
    println!(
        "compiled in {:.2} ms, loaded again from {} stored bytes in {:.2} ms",
        compile.as_secs_f64() * 1e3,
        stored.len(),
        begin.elapsed().as_secs_f64() * 1e3
    );
    Ok(())
}

/// What somebody would write for exactly this kernel.
struct Peer {
    device: wgpu::Device,
    queue: wgpu::Queue,
    pipeline: wgpu::ComputePipeline,
}

struct PeerBuffers {
    input: wgpu::Buffer,
    output: wgpu::Buffer,
    read: wgpu::Buffer,
    group: wgpu::BindGroup,
    groups: u32,
}

fn ready<T>(future: impl Future<Output = T>) -> Outcome<T> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(value) => Ok(value),
        std::task::Poll::Pending => Err("wgpu is not ready".into()),
    }
}

impl Peer {
    fn new(number: usize) -> Outcome<Peer> {
        // The same adapter, found by its name.
        let wanted = vyre_wgpu::adapters().map_err(|problem| problem.to_string())?.swap_remove(number);
        let backends = wgpu::Backends::VULKAN | wgpu::Backends::METAL | wgpu::Backends::DX12;
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
            backends,
            flags: wgpu::InstanceFlags::empty(),
            ..wgpu::InstanceDescriptor::new_without_display_handle()
        });
        let adapter = ready(instance.enumerate_adapters(backends))?
            .into_iter()
            .find(|adapter| adapter.get_info().name == wanted.capabilities.name)
            .ok_or("the adapter is gone")?;
        let (device, queue) = ready(adapter.request_device(&wgpu::DeviceDescriptor {
            required_limits: adapter.limits(),
            memory_hints: wgpu::MemoryHints::Performance,
            ..Default::default()
        }))??;
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: None,
            source: wgpu::ShaderSource::Naga(Cow::Owned(naga::front::wgsl::parse_str(SOURCE)?)),
        });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: None,
            module: &module,
            entry_point: None,
            compilation_options: Default::default(),
            cache: None,
        });
        Ok(Peer { device, queue, pipeline })
    }

    fn buffers(&self, count: usize) -> PeerBuffers {
        use wgpu::BufferUsages as Usage;
        let buffer = |usage| {
            self.device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size: count as u64 * 4,
                usage,
                mapped_at_creation: false,
            })
        };
        let input = buffer(Usage::STORAGE | Usage::COPY_DST);
        let output = buffer(Usage::STORAGE | Usage::COPY_SRC);
        let read = buffer(Usage::MAP_READ | Usage::COPY_DST);
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &self.pipeline.get_bind_group_layout(0),
            entries: &[
                wgpu::BindGroupEntry { binding: 0, resource: input.as_entire_binding() },
                wgpu::BindGroupEntry { binding: 1, resource: output.as_entire_binding() },
            ],
        });
        PeerBuffers { input, output, read, group, groups: count.div_ceil(256) as u32 }
    }

    fn launch(&self, buffers: &PeerBuffers, times: u32, read: bool) -> wgpu::SubmissionIndex {
        let mut encoder = self.device.create_command_encoder(&Default::default());
        {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&self.pipeline);
            pass.set_bind_group(0, &buffers.group, &[]);
            for _ in 0..times {
                pass.dispatch_workgroups(buffers.groups, 1, 1);
            }
        }
        if read {
            encoder.copy_buffer_to_buffer(&buffers.output, 0, &buffers.read, 0, buffers.read.size());
        }
        self.queue.submit([encoder.finish()])
    }

    fn wait(&self, index: wgpu::SubmissionIndex) -> Outcome<()> {
        self.device.poll(wgpu::PollType::Wait { submission_index: Some(index), timeout: None })?;
        Ok(())
    }
}

/// Our side of a work.
struct Ours<'a> {
    backend: &'a WgpuBackend,
    pipeline: Arc<dyn Pipeline>,
    bindings: [Binding; 2],
    groups: u32,
}

impl<'a> Ours<'a> {
    fn new(backend: &'a WgpuBackend, count: usize) -> Outcome<Ours<'a>> {
        let bytes = count as u64 * 4;
        let bindings = [Binding::from(backend.allocate(bytes)?), Binding::from(backend.allocate(bytes)?)];
        Ok(Ours { backend, pipeline: compiled(backend)?, bindings, groups: count.div_ceil(256) as u32 })
    }

    fn launch(&self) -> Outcome<Ticket> {
        Ok(self.backend.submit(&self.pipeline, &Launch::new(&self.bindings, [self.groups, 1, 1]))?)
    }
}

fn middle(samples: &mut [f64]) -> [f64; 3] {
    samples.sort_by(f64::total_cmp);
    [samples.len() / 4, samples.len() / 2, samples.len() * 3 / 4].map(|at| samples[at])
}

/// Times both sides in turn; `times` is by what a round is divided.
fn compare(
    name: &str,
    times: u32,
    mut ours: impl FnMut() -> Outcome<()>,
    mut theirs: impl FnMut() -> Outcome<()>,
) -> Outcome<()> {
    let (mut left, mut right, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS + 2 {
        let begin = Instant::now();
        ours()?;
        let a = begin.elapsed().as_secs_f64() * 1e6 / f64::from(times);
        let begin = Instant::now();
        theirs()?;
        let b = begin.elapsed().as_secs_f64() * 1e6 / f64::from(times);
        // The first rounds fill caches and pools.
        if round >= 2 {
            left.push(a);
            right.push(b);
            ratios.push(a / b);
        }
    }
    let [low, ratio, high] = middle(&mut ratios);
    let (left, right) = (middle(&mut left)[1], middle(&mut right)[1]);
    println!("{name:<40}{left:>12.2}{right:>12.2}{ratio:>8.3}  [{low:.3}, {high:.3}]");
    Ok(())
}

fn tiny(backend: &WgpuBackend, peer: &Peer) -> Outcome<()> {
    const LAUNCHES: u32 = 1000;
    let (ours, theirs) = (Ours::new(backend, 256)?, peer.buffers(256));
    compare(
        "tiny dispatch, pipelined",
        LAUNCHES,
        || {
            let mut last = ours.launch()?;
            for _ in 1..LAUNCHES {
                last = ours.launch()?;
            }
            backend.wait(last, None)?;
            Ok(())
        },
        || peer.wait(peer.launch(&theirs, LAUNCHES, false)),
    )?;
    let step = Step::Launch {
        pipeline: Arc::clone(&ours.pipeline),
        bindings: ours.bindings.to_vec(),
        grid: [ours.groups, 1, 1],
    };
    let recording = backend.record(&vec![step; LAUNCHES as usize])?;
    compare(
        "tiny dispatch, recorded and replayed",
        LAUNCHES,
        || {
            let ticket = backend.replay(&recording, &Order::default())?;
            backend.wait(ticket, None)?;
            Ok(())
        },
        || peer.wait(peer.launch(&theirs, LAUNCHES, false)),
    )?;
    compare(
        "tiny dispatch, each with a wait",
        LAUNCHES / 10,
        || {
            for _ in 0..LAUNCHES / 10 {
                let ticket = ours.launch()?;
                backend.wait(ticket, None)?;
            }
            Ok(())
        },
        || {
            for _ in 0..LAUNCHES / 10 {
                peer.wait(peer.launch(&theirs, 1, false))?;
            }
            Ok(())
        },
    )
}

fn map(backend: &WgpuBackend, peer: &Peer) -> Outcome<()> {
    let (ours, theirs) = (Ours::new(backend, MAP)?, peer.buffers(MAP));
    compare(
        "map of 16 M elements",
        1,
        || {
            let ticket = ours.launch()?;
            backend.wait(ticket, None)?;
            Ok(())
        },
        || peer.wait(peer.launch(&theirs, 1, false)),
    )
}

fn moved(backend: &WgpuBackend, peer: &Peer) -> Outcome<()> {
    let (ours, theirs) = (Ours::new(backend, MOVED)?, peer.buffers(MOVED));
    let input: Vec<u8> = (0..MOVED).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let (mut one, mut two) = (vec![0; input.len()], vec![0; input.len()]);
    compare(
        "upload, run, download 4 MB",
        1,
        || {
            let order = Order::default();
            // Reading waits for both.
            backend.upload(&ours.bindings[0].buffer, 0, &input, &order).map(|ticket| backend.forget(ticket))?;
            backend.forget(ours.launch()?);
            backend.download(&ours.bindings[1].buffer, 0, &mut one, &order)?;
            Ok(())
        },
        || {
            peer.queue.write_buffer(&theirs.input, 0, &input);
            let index = peer.launch(&theirs, 1, true);
            theirs.read.map_async(wgpu::MapMode::Read, .., |_| {});
            peer.wait(index)?;
            two.copy_from_slice(&theirs.read.get_mapped_range(..)?);
            theirs.read.unmap();
            Ok(())
        },
    )?;
    if one != two {
        return Err("the two sides disagree".into());
    }
    Ok(())
}
