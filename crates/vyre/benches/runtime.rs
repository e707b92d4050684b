//! The runtime against what one would write by hand, in the same run and interleaved: chains of tiny launches on arrays against the bare
//! CUDA driver, large results in the caller's memory against rayon, and two devices at once against each alone.
//!
//! `cargo bench -p vyre --bench runtime [-- chain|into|host|two]` prints a table. What needs a device that is not here is named and left out.

use std::time::Instant;

use rayon::prelude::*;
use vyre::ir::{BufferDecl, DataType, Expr, Node, Program};
use vyre::{Array, DispatchConfig, Engine, Kernel};

#[cfg(feature = "cuda")]
#[allow(dead_code)]
#[path = "../../vyre-cuda/benches/raw/mod.rs"]
mod raw;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const ROUNDS: usize = 11;

fn main() -> Outcome<()> {
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let wanted = |part: &str| only.as_deref().is_none_or(|only| only == part);
    let engine = Engine::builder().without_disk().tuner(vyre::tuner::Mode::OffUseDefault).open()?;
    let present: Vec<String> = engine
        .devices()
        .into_iter()
        .filter(|device| device.id.as_str() != "reference")
        .filter_map(|device| Some((device.id, device.state.ok()?.name)))
        .map(|(id, name)| {
            println!("device   {id:<8} {name}");
            id.to_string()
        })
        .collect();
    println!("{:<52}{:>12} {:>12} {:>8}  spread", "", "ours", "peer", "ratio");
    #[cfg(feature = "cuda")]
    if wanted("chain") && present.iter().any(|id| id == "cuda") {
        chain(&engine)?;
    }
    if wanted("into") {
        into(&engine)?;
    }
    if wanted("host") {
        for id in &present {
            host(&engine, id)?;
        }
    }
    if wanted("two") {
        for (at, first) in present.iter().enumerate() {
            for second in &present[at + 1..] {
                two(&engine, first, second)?;
            }
        }
    }
    Ok(())
}

/// Medians of ours and of the peer, their ratio, and the smallest and largest ratio of a round.
fn against(name: &str, unit: &str, mut round: impl FnMut() -> Outcome<(f64, f64)>) -> Outcome<()> {
    round()?;
    let rounds: Vec<(f64, f64)> = (0..ROUNDS).map(|_| round()).collect::<Outcome<_>>()?;
    let median = |mut samples: Vec<f64>| {
        samples.sort_by(f64::total_cmp);
        samples[samples.len() / 2]
    };
    let ours = median(rounds.iter().map(|round| round.0).collect());
    let peer = median(rounds.iter().map(|round| round.1).collect());
    let ratios: Vec<f64> = rounds.iter().map(|round| round.0 / round.1).collect();
    let (least, most) =
        ratios.iter().fold((f64::MAX, 0f64), |(least, most), &ratio| (least.min(ratio), most.max(ratio)));
    println!("{name:<52}{ours:>9.3} {unit} {peer:>9.3} {unit} {:>8.3}  {least:.3} to {most:.3}", ours / peer);
    Ok(())
}

fn ms(work: impl FnOnce() -> Outcome<()>) -> Outcome<f64> {
    let begin = Instant::now();
    work()?;
    Ok(begin.elapsed().as_secs_f64() * 1e3)
}

fn add_one() -> Program {
    let at = || Expr::global_id(0);
    Program::wrapped(
        vec![BufferDecl::read_write("data", 0, DataType::U32)],
        [64, 1, 1],
        vec![Node::store("data", at(), Expr::load("data", at()) + Expr::u32(1))],
    )
}

/// A thousand tiny launches on one array, each after the one before.
#[cfg(feature = "cuda")]
fn chain(engine: &Engine) -> Outcome<()> {
    const LAUNCHES: u32 = 1000;
    let program = add_one();
    let kernel = engine.kernel(&program)?.on("cuda")?;
    let backend = engine.backend("cuda")?;
    let valid = program.validate().map_err(|problems| vyre::Error::from(problems.to_vec()))?;
    let pipeline = backend.compile(&valid, &Default::default())?;
    let raw = raw::Raw::new()?;
    let (stream, memory) = (raw.stream()?, raw.memory(256)?);
    let mut peer = raw.kernel(&pipeline.artifact().ok_or("the pipeline has no artifact")?, memory, 64, 1)?;
    let mut data = engine.zeros::<u32>(64)?;
    let each = |milliseconds: f64| milliseconds * 1e3 / f64::from(LAUNCHES);
    against("chain of 1,000 tiny launches on arrays, cuda", "us", || {
        let ours = ms(|| {
            for _ in 1..LAUNCHES {
                kernel.bind("data", &mut data).grid([1, 1, 1]).launch()?;
            }
            Ok(kernel.bind("data", &mut data).grid([1, 1, 1]).launch()?.wait()?)
        })?;
        let bare = ms(|| {
            (0..LAUNCHES).try_for_each(|_| raw.launch(&mut peer, 0, stream))?;
            raw.synchronize(stream)
        })?;
        Ok((each(ours), each(bare)))
    })?;
    against("one tiny launch on arrays and its wait, cuda", "us", || {
        let ours = ms(|| {
            (0..LAUNCHES).try_for_each(|_| Ok(kernel.bind("data", &mut data).grid([1, 1, 1]).launch()?.wait()?))
        })?;
        let bare = ms(|| {
            (0..LAUNCHES).try_for_each(|_| {
                raw.launch(&mut peer, 0, stream)?;
                raw.synchronize(stream)
            })
        })?;
        Ok((each(ours), each(bare)))
    })?;
    let mut recorder = engine.record();
    let place = recorder.place::<u32>("data", 64);
    for _ in 0..LAUNCHES {
        recorder.launch(&kernel).bind("data", place).grid([1, 1, 1]).add()?;
    }
    let graph = recorder.finish()?;
    let bare = raw.graph(&mut peer, LAUNCHES, stream)?;
    let (changeable, memories) = (raw.changeable(&mut peer, LAUNCHES)?, [memory, raw.memory(256)?]);
    let mut arrays = [engine.zeros::<u32>(64)?, engine.zeros::<u32>(64)?, engine.zeros::<u32>(64)?];
    for (name, in_turn) in [("unchanged", 1), ("two arrays in turn", 2), ("all changed", 3)] {
        let mut round = 0;
        against(&format!("a node of a graph of 1,000 launches, {name}, cuda"), "us", || {
            round += 1;
            let array = &mut arrays[round % in_turn];
            let ours = ms(|| Ok(graph.replay().bind("data", array).run()?))?;
            let bare = ms(|| {
                match in_turn {
                    3 => raw.launch_changed(&changeable, &mut peer, memories[round % 2], stream)?,
                    _ => raw.launch_graph(bare, stream)?,
                }
                raw.synchronize(stream)
            })?;
            Ok((each(ours), each(bare)))
        })?;
    }
    Ok(())
}

const TWICE_AND_ONE: &str = "@group(0) @binding(0) var<storage, read> a: array<f32>;
    @group(0) @binding(1) var<storage, read_write> out: array<f32>;
    @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) n: vec3<u32>) {
        let at = id.y * n.x * 64u + id.x;
        if at < arrayLength(&a) { out[at] = 2.0 * a[at] + 1.0; }
    }";

/// 100 million numbers from and to the caller's own memory, on the processor.
fn into(engine: &Engine) -> Outcome<()> {
    const COUNT: usize = 100_000_000;
    let engine = match engine.backend("cpu") {
        Ok(cpu) => Engine::builder().without_default_backends().without_disk().with_backend(cpu, 1).open()?,
        Err(error) => {
            println!("results in the caller's memory: left out, {error}");
            return Ok(());
        }
    };
    let program = vyre::wgsl(
        "@group(0) @binding(0) var<storage, read> a: array<f32>;
         @group(0) @binding(1) var<storage, read_write> out: array<f32>;
         @compute @workgroup_size(256) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
             if id.x < arrayLength(&a) { out[id.x] = 2.0 * a[id.x] + 1.0; }
         }",
    )?;
    let a: Vec<f32> = (0..COUNT).map(|at| at as f32).collect();
    let (mut ours, mut peers) = (vec![0f32; COUNT], vec![0f32; COUNT]);
    let config = DispatchConfig::default();
    against("2a+1 over 100 M f32 in the caller's memory, cpu", "ms", || {
        let mine = ms(|| {
            let bytes = vyre::to_bytes(&a);
            Ok(engine.run_into(&program, &[bytes], &mut [bytemuck::cast_slice_mut(&mut ours)], &config)?)
        })?;
        let rayons = ms(|| {
            const CHUNK: usize = 1 << 16;
            let chunks = peers.par_chunks_mut(CHUNK).zip(a.par_chunks(CHUNK));
            chunks.for_each(|(out, a)| out.iter_mut().zip(a).for_each(|(out, a)| *out = 2.0 * a + 1.0));
            Ok(())
        })?;
        Ok((mine, rayons))
    })?;
    assert!(ours == peers, "the results differ");
    Ok(())
}

/// 400 MB from ordinary memory through one device and back; the peer writes the same with rayon on the host.
fn host(engine: &Engine, id: &str) -> Outcome<()> {
    const COUNT: usize = 100_000_000;
    let program = vyre::wgsl(TWICE_AND_ONE)?;
    let a: Vec<f32> = (0..COUNT).map(|at| at as f32).collect();
    let mut config = DispatchConfig::default();
    let groups = COUNT.div_ceil(64) as u32;
    config.grid_override = Some([32_768, groups.div_ceil(32_768), 1]);
    config.output_elements.insert("out".into(), COUNT as u64);
    against(&format!("run of 2a+1 over 400 MB of host memory, {id}"), "ms", || {
        let mut result = Vec::new();
        let ours = ms(|| {
            result = engine.run_on(id, &program, &[vyre::to_bytes(&a)], &config)?;
            Ok(())
        })?;
        assert!(vyre::from_bytes::<f32>(&result[0])[COUNT - 1] == 2.0 * a[COUNT - 1] + 1.0, "the result is wrong");
        let peer = ms(|| {
            let out: Vec<f32> = a.par_iter().map(|a| 2.0 * a + 1.0).collect();
            std::hint::black_box(out);
            Ok(())
        })?;
        Ok((ours, peer))
    })
}

/// Work that takes a device this long by itself, on an array of its own.
struct Half {
    kernel: Kernel,
    data: Array<f32>,
    launches: u32,
}

impl Half {
    const TARGET_MS: f64 = 60.0;

    fn new(engine: &Engine, id: &str) -> Outcome<Half> {
        let program = vyre::wgsl(
            "@group(0) @binding(0) var<storage, read_write> data: array<f32>;
             @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
                 if id.x >= arrayLength(&data) { return; }
                 var x = data[id.x];
                 for (var round = 0u; round < 200u; round++) { x = x * 0.999 + 0.001; }
                 data[id.x] = x;
             }",
        )?;
        let kernel = engine.kernel(&program)?.on(id)?;
        let mut half = Half { kernel, data: engine.zeros(1 << 18)?, launches: 1 };
        half.run()?;
        let one = ms(|| half.run())?;
        half.launches = (Half::TARGET_MS / one).ceil().clamp(1.0, 20_000.0) as u32;
        Ok(half)
    }

    fn start(&mut self) -> Outcome<vyre::Launch> {
        for _ in 1..self.launches {
            self.kernel.bind("data", &mut self.data).launch()?;
        }
        Ok(self.kernel.bind("data", &mut self.data).launch()?)
    }

    fn run(&mut self) -> Outcome<()> {
        Ok(self.start()?.wait()?)
    }
}

/// Two devices at once on halves that have nothing in common, against the slower half by itself.
fn two(engine: &Engine, first: &str, second: &str) -> Outcome<()> {
    let (mut one, mut other) = (Half::new(engine, first)?, Half::new(engine, second)?);
    against(&format!("{first} and {second} at once, against the slower"), "ms", || {
        let alone = ms(|| one.run())?.max(ms(|| other.run())?);
        let both = ms(|| {
            // The processor runs what is small on the caller's thread, so each half has a thread of its own.
            std::thread::scope(|scope| {
                let first = scope.spawn(|| one.run().map_err(|error| error.to_string()));
                let second = other.run();
                first.join().expect("it does not panic")?;
                second
            })
        })?;
        Ok((both, alone))
    })
}
