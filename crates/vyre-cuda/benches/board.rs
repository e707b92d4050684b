//! Figures of the CUDA backend, printed as a table: opening, first result from a stored cubin, tiny dispatches (one by one,
//! pipelined, recorded) next to the bare driver on the same kernel, blocks streamed through the device, a large `dispatch`, the map `a*b+1`
//! at every workgroup size, products of matrices, large buffers. `benches/peers.py` measures the other peers.

mod programs;
mod raw;

use std::ops::DerefMut;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use half::{bf16, f16};
use raw::{Outcome, Raw};
use vyre_cuda::CudaBackend;
use vyre_driver::backend::{Binding, Buffer, CompileOptions, Completion, Launch, Order, Step, Ticket};
use vyre_driver::{BackendError, DispatchConfig, VyreBackend};
use vyre_foundation::ValidProgram;
use vyre_foundation::ir::{BufferDecl, DataType, Expr, MatrixKind, Node, Program};
use vyre_foundation::kernel::Features;

fn main() -> Outcome<()> {
    let begin = Instant::now();
    let backend = match CudaBackend::open(0) {
        Ok(backend) => backend,
        Err(reason) => {
            println!("skipped: {}", reason.message);
            return Ok(());
        }
    };
    let opened = begin.elapsed();
    let cached = std::env::temp_dir().join("vyre-board.cubin");
    println!("device                        {} ({})", backend.capabilities().name, backend.capabilities().driver);
    println!("cuInit and context            {:>10.1} ms", opened.as_secs_f64() * 1e3);
    // `board tiny` measures the tiny dispatches only.
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let wanted = |part: &str| only.as_deref().is_none_or(|only| only == part);
    if wanted("first") {
        first_result(&backend, &cached)?;
    }
    if wanted("tiny") {
        tiny(&backend)?;
    }
    if wanted("stream") {
        stream(&backend)?;
    }
    if wanted("run") {
        run(&backend)?;
    }
    if wanted("map") {
        map(&backend)?;
    }
    if wanted("matmul") {
        for size in [1024, 4096, 8192] {
            for kind in [MatrixKind::F16, MatrixKind::Bf16] {
                matmul(&backend, kind, size)?;
            }
        }
    }
    if wanted("large") {
        large(&backend)?;
    }
    Ok(())
}

fn valid(program: &Program) -> Outcome<ValidProgram> {
    Ok(program.validate().map_err(BackendError::from)?)
}

fn done(backend: &CudaBackend, ticket: Ticket) -> Outcome<Completion> {
    let completion = backend.wait(ticket, None)?.ok_or("a wait without limit gave up")?;
    backend.forget(ticket);
    Ok(completion)
}

fn upload(backend: &CudaBackend, buffer: &Buffer, offset: u64, bytes: &[u8]) -> Outcome<()> {
    let ticket = backend.upload(buffer, offset, bytes, &Order::default())?;
    done(backend, ticket).map(|_| ())
}

fn download(backend: &CudaBackend, buffer: &Buffer, offset: u64, bytes: &mut [u8]) -> Outcome<()> {
    Ok(backend.download(buffer, offset, bytes, &Order::default())?)
}

fn add_one(ty: DataType) -> Program {
    let at = || Expr::global_id(0);
    let one = if ty == DataType::U32 { Expr::u32(1) } else { Expr::f32(1.0) };
    Program::wrapped(
        vec![BufferDecl::read_write("data", 0, ty)],
        [64, 1, 1],
        vec![Node::store("data", at(), Expr::load("data", at()) + one)],
    )
}

/// The second process that runs this finds the cubin that the first one left.
fn first_result(backend: &CudaBackend, cached: &std::path::Path) -> Outcome<()> {
    let program = add_one(DataType::U32);
    let valid = valid(&program)?;
    let options = CompileOptions::default();
    let stored = std::fs::read(cached).ok();
    let begin = Instant::now();
    // Code of another build is not loaded.
    let loaded = stored.as_deref().and_then(|bytes| backend.load(&valid, &options, bytes).ok());
    let is_stored = loaded.is_some();
    let (pipeline, how) = match loaded {
        Some(pipeline) => (pipeline, "stored cubin"),
        None => (backend.compile(&valid, &options)?, "compiled"),
    };
    let buffer = backend.allocate(4096)?;
    let bindings = [Binding::from(buffer.clone())];
    let ticket = backend.submit(&pipeline, &Launch::new(&bindings, [16, 1, 1]))?;
    done(backend, ticket)?;
    let mut out = [0; 4096];
    download(backend, &buffer, 0, &mut out)?;
    println!("first result, {how:<14}  {:>10.2} ms more", begin.elapsed().as_secs_f64() * 1e3);
    if let (false, Some(bytes)) = (is_stored, pipeline.artifact()) {
        std::fs::write(cached, bytes)?;
    }
    Ok(())
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// Microseconds of one of so many.
fn each_us(begin: Instant, count: u32) -> f64 {
    begin.elapsed().as_secs_f64() * 1e6 / f64::from(count)
}

/// One line: ours, the bare driver's, and the ratio.
fn against(name: &str, ours: Vec<f64>, raw: &[f64], unit: &str) {
    let (ours, raw) = (median(ours), median(raw.to_vec()));
    println!("{name:<44}{ours:>9.2} {unit}   raw {raw:>9.2} {unit}   {:>6.3}", ours / raw);
}

fn tiny(backend: &CudaBackend) -> Outcome<()> {
    const LAUNCHES: u32 = 1000;
    let program = add_one(DataType::U32);
    let valid = valid(&program)?;
    let pipeline = backend.compile(&valid, &CompileOptions::default())?;
    let mut options = CompileOptions::default();
    options.interruptible = true;
    let stoppable = backend.compile(&valid, &options)?;
    let (buffer, other) = (backend.allocate(256)?, backend.allocate(256)?);
    let bindings = [Binding::from(buffer.clone())];
    let launch = Launch::new(&bindings, [1, 1, 1]);
    let step = |buffer: &Buffer| Step::Launch {
        pipeline: Arc::clone(&pipeline),
        bindings: vec![Binding::from(buffer.clone())],
        grid: [1, 1, 1],
    };
    let steps: Vec<Step> = (0..LAUNCHES).map(|_| step(&buffer)).collect();
    let changes = [&other, &buffer].map(|to| (0..LAUNCHES as usize).map(|at| (at, step(to))).collect::<Vec<_>>());
    let recording = backend.record(&steps)?;
    let raw = Raw::new()?;
    let (stream, memory, word) = (raw.stream()?, raw.memory(256)?, raw.pinned(64)?);
    let word = word as u64;
    let mut kernel = raw.kernel(&pipeline.artifact().ok_or("no artifact")?, memory, 64, 1)?;
    let graph = raw.graph(&mut kernel, LAUNCHES, stream)?;
    let (changeable, elsewhere) = (raw.changeable(&mut kernel, LAUNCHES)?, raw.memory(256)?);
    let events: Vec<_> = (0..LAUNCHES).map(|_| raw.event()).collect::<Outcome<_>>()?;
    let mut columns: [Vec<f64>; 16] = Default::default();
    for round in 0..21 {
        let mut times = Vec::new();
        let mut measure = |work: &mut dyn FnMut() -> Outcome<()>| -> Outcome<()> {
            let begin = Instant::now();
            work()?;
            times.push(each_us(begin, LAUNCHES));
            Ok(())
        };
        let chain = |pipeline| -> Outcome<()> {
            for _ in 1..LAUNCHES {
                let ticket = backend.submit(pipeline, &launch)?;
                backend.forget(ticket);
            }
            done(backend, backend.submit(pipeline, &launch)?).map(|_| ())
        };
        // Chains: bare; with each way to mark what is over; ours.
        measure(&mut || {
            (0..LAUNCHES).try_for_each(|_| raw.launch(&mut kernel, 0, stream))?;
            raw.synchronize(stream)
        })?;
        measure(&mut || {
            (0..LAUNCHES).try_for_each(|_| raw.launch(&mut kernel, word, stream))?;
            raw.synchronize(stream)
        })?;
        measure(&mut || {
            for number in 0..LAUNCHES {
                raw.launch(&mut kernel, 0, stream)?;
                raw.write_value(word, number.into(), stream)?;
            }
            raw.synchronize(stream)
        })?;
        measure(&mut || {
            for &event in &events {
                raw.launch(&mut kernel, 0, stream)?;
                raw.record(event, stream)?;
            }
            raw.synchronize(stream)
        })?;
        measure(&mut || chain(&pipeline))?;
        measure(&mut || chain(&stoppable))?;
        measure(&mut || {
            for number in 1..LAUNCHES {
                let ticket = backend.submit(&pipeline, &Launch { timed: number % 64 == 0, ..launch })?;
                backend.forget(ticket);
            }
            done(backend, backend.submit(&pipeline, &launch)?).map(|_| ())
        })?;
        // One by one.
        measure(&mut || {
            (0..LAUNCHES).try_for_each(|_| {
                raw.launch(&mut kernel, 0, stream)?;
                raw.synchronize(stream)
            })
        })?;
        measure(&mut || {
            (0..LAUNCHES).try_for_each(|number| {
                let value = u64::from(number) + (round as u64 + 1) * 1_000_000;
                raw.launch(&mut kernel, 0, stream)?;
                raw.write_value(word, value, stream)?;
                raw.spin(word, value);
                Ok(())
            })
        })?;
        measure(&mut || {
            (0..LAUNCHES).try_for_each(|_| done(backend, backend.submit(&pipeline, &launch)?).map(|_| ()))
        })?;
        measure(&mut || {
            let timed = launch.timed();
            (0..LAUNCHES).try_for_each(|_| done(backend, backend.submit(&pipeline, &timed)?).map(|_| ()))
        })?;
        // From queue to queue.
        measure(&mut || {
            let mut last = [backend.submit(&pipeline, &launch)?];
            for number in 1..LAUNCHES {
                let order = Order { queue: number % 2, after: &last, deadline: None };
                last = [backend.submit(&pipeline, &Launch { order, ..launch })?];
            }
            done(backend, last[0]).map(|_| ())
        })?;
        // Recorded: bare, ours, and ours with every step changed before.
        measure(&mut || {
            raw.launch_graph(graph, stream)?;
            raw.synchronize(stream)
        })?;
        measure(&mut || {
            raw.launch_changed(&changeable, &mut kernel, [memory, elsewhere][round % 2], stream)?;
            raw.synchronize(stream)
        })?;
        measure(&mut || done(backend, backend.replay(&recording, &Order::default())?).map(|_| ()))?;
        measure(&mut || {
            backend.revise(&recording, &changes[round % 2])?;
            done(backend, backend.replay(&recording, &Order::default())?).map(|_| ())
        })?;
        times.into_iter().zip(&mut columns).for_each(|(time, column)| column.push(time));
    }
    let [
        bare,
        marked,
        written,
        recorded,
        ours,
        stoppable,
        sampled,
        waited,
        spun,
        our_wait,
        our_timed,
        across,
        graph,
        bare_changed,
        replay,
        changed,
    ] = columns;
    against("tiny launch, pipelined", ours, &bare, "us");
    against("  interruptible", stoppable, &bare, "us");
    against("  one in 64 timed", sampled, &bare, "us");
    against("  bare, marked by the kernel", marked, &bare, "us");
    against("  bare, marked by cuStreamWriteValue64", written, &bare, "us");
    against("  bare, marked by an event", recorded, &bare, "us");
    against("tiny launch + wait", our_wait, &waited, "us");
    against("  timed", our_timed, &waited, "us");
    against("  bare, a word written behind it", spun, &waited, "us");
    against("tiny launch after one on another queue", across, &bare, "us");
    against("recorded launch", replay, &graph, "us");
    against("  every step changed before", changed, &bare_changed, "us");
    against("  bare, every node changed before", bare_changed, &graph, "us");
    Ok(())
}

/// 64 blocks of 64 MB go up, through a kernel, and down again: ours by a few threads with a queue each, the bare driver's by streams.
fn stream(backend: &CudaBackend) -> Outcome<()> {
    const BLOCK: usize = 64 << 20;
    const BLOCKS: usize = 64;
    const AT_ONCE: usize = 4;
    let program = add_one(DataType::U32);
    let pipeline = backend.compile(&valid(&program)?, &CompileOptions::default())?;
    let (elements, grid) = (BLOCK as u64 / 4, (BLOCK / 4 / 64) as u32);
    let raw = Raw::new()?;
    let mut lanes = Vec::new();
    for _ in 0..AT_ONCE {
        let memory = raw.memory(BLOCK)?;
        let kernel = raw.kernel(&pipeline.artifact().ok_or("no artifact")?, memory, elements, grid)?;
        lanes.push((raw.stream()?, memory, kernel, raw.pinned(BLOCK)?, raw.pinned(BLOCK)?));
    }
    let through_ours = |pinned: bool| -> Outcome<f64> {
        type Bytes = Box<dyn DerefMut<Target = [u8]> + Send>;
        let bytes = || -> Outcome<Bytes> {
            Ok(if pinned { Box::new(backend.pinned(BLOCK)?) } else { Box::new(vec![1u8; BLOCK]) })
        };
        let mut lanes = Vec::new();
        for _ in 0..AT_ONCE {
            lanes.push((backend.allocate(BLOCK as u64)?, bytes()?, bytes()?));
        }
        let next = AtomicUsize::new(0);
        let begin = Instant::now();
        std::thread::scope(|scope| {
            let workers = lanes.iter_mut().zip(0..).map(|((buffer, from, to), queue)| {
                let (next, pipeline) = (&next, &pipeline);
                scope.spawn(move || -> Result<(), BackendError> {
                    let order = Order { queue, ..Order::default() };
                    let bindings = [Binding::from(buffer.clone())];
                    while next.fetch_add(1, Ordering::Relaxed) < BLOCKS {
                        let uploaded = backend.upload(buffer, 0, from, &order)?;
                        backend.forget(uploaded);
                        let launch = Launch { order, ..Launch::new(&bindings, [grid, 1, 1]) };
                        let launched = backend.submit(pipeline, &launch)?;
                        backend.forget(launched);
                        backend.download(buffer, 0, to, &order)?;
                    }
                    Ok(())
                })
            });
            let workers: Vec<_> = workers.collect();
            workers.into_iter().try_for_each(|worker| Ok(worker.join().map_err(|_| "a thread panicked")??))
        })
        .map(|()| begin.elapsed().as_secs_f64() * 1e3)
    };
    let (mut bare, mut pinned, mut staged) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..5 {
        let begin = Instant::now();
        for block in 0..BLOCKS {
            let (stream, memory, kernel, from, to) = &mut lanes[block % AT_ONCE];
            raw.upload(*memory, *from, BLOCK, *stream)?;
            raw.launch(kernel, 0, *stream)?;
            raw.download(*to, *memory, BLOCK, *stream)?;
        }
        lanes.iter().try_for_each(|lane| raw.synchronize(lane.0))?;
        bare.push(begin.elapsed().as_secs_f64() * 1e3);
        pinned.push(through_ours(true)?);
        staged.push(through_ours(false)?);
    }
    against("64 blocks of 64 MB, pinned memory", pinned, &bare, "ms");
    against("64 blocks of 64 MB, ordinary memory", staged, &bare, "ms");
    for (_, memory, _, from, to) in lanes {
        raw.free(memory)?;
        raw.free_pinned(from)?;
        raw.free_pinned(to)?;
    }
    Ok(())
}

/// `2a+1` on 400 MB of ordinary memory, from and to the host.
fn run(backend: &CudaBackend) -> Outcome<()> {
    const ELEMENTS: u32 = 100_000_000;
    let at = || Expr::global_id(0);
    let twice = Expr::load("a", at()) * Expr::f32(2.0) + Expr::f32(1.0);
    let program = Program::wrapped(
        vec![BufferDecl::read("a", 0, DataType::F32), BufferDecl::output("out", 1, DataType::F32).with_count(ELEMENTS)],
        [256, 1, 1],
        vec![Node::store("out", at(), twice)],
    );
    let input: Vec<u8> = (0..ELEMENTS).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let mut times = Vec::new();
    for _ in 0..9 {
        let begin = Instant::now();
        let results = backend.dispatch_borrowed(&program, &[&input], &DispatchConfig::default())?;
        times.push(begin.elapsed().as_secs_f64() * 1e3);
        if results[0][40..44] != 21f32.to_le_bytes() {
            return Err("a large dispatch is wrong".into());
        }
    }
    println!("dispatch of 400 MB in, 400 MB out           {:>9.2} ms", median(times));
    let (buffer, mut out) = (backend.allocate(input.len() as u64)?, vec![1u8; input.len()]);
    let (mut up, mut down) = (Vec::new(), Vec::new());
    for _ in 0..9 {
        let begin = Instant::now();
        upload(backend, &buffer, 0, &input)?;
        up.push(input.len() as f64 / begin.elapsed().as_secs_f64() / 1e9);
        let begin = Instant::now();
        download(backend, &buffer, 0, &mut out)?;
        down.push(input.len() as f64 / begin.elapsed().as_secs_f64() / 1e9);
    }
    println!("  upload {:.1} GB/s, download to memory in use {:.1} GB/s", median(up), median(down));
    Ok(())
}

fn map(backend: &CudaBackend) -> Outcome<()> {
    const ELEMENTS: u64 = 1 << 28;
    let at = || Expr::global_id(0);
    let program = Program::wrapped(
        vec![
            BufferDecl::read("a", 0, DataType::F32),
            BufferDecl::read("b", 1, DataType::F32),
            BufferDecl::output("out", 2, DataType::F32),
        ],
        [256, 1, 1],
        vec![Node::store("out", at(), Expr::load("a", at()) * Expr::load("b", at()) + Expr::f32(1.0))],
    );
    let valid = valid(&program)?;
    let noise: Vec<u8> =
        (0..1u32 << 20).flat_map(|i| ((i.wrapping_mul(2_654_435_761) >> 8) as f32).to_le_bytes()).collect();
    let mut bindings = Vec::new();
    for input in [true, true, false] {
        let buffer = backend.allocate(ELEMENTS * 4)?;
        if input {
            for offset in (0..ELEMENTS * 4).step_by(noise.len()) {
                upload(backend, &buffer, offset, &noise)?;
            }
        }
        bindings.push(Binding::from(buffer));
    }
    let (from, to) = (&bindings[0], &bindings[2]);
    let copied: Outcome<Vec<f64>> = (0..9)
        .map(|_| {
            let mut last = [0; 4];
            download(backend, &to.buffer, 0, &mut last)?;
            let begin = Instant::now();
            for _ in 0..10 {
                backend.copy(from, to, &Order::default()).map(|ticket| backend.forget(ticket))?;
            }
            download(backend, &to.buffer, 0, &mut last)?;
            Ok(begin.elapsed().as_secs_f64() / 10.0)
        })
        .collect();
    println!("device copy                   {:>10.0} GB/s", (ELEMENTS * 8) as f64 / median(copied?) / 1e9);
    for workgroup in [32u32, 64, 128, 256, 512, 1024] {
        let mut options = CompileOptions::default();
        options.workgroup_size = Some([workgroup, 1, 1]);
        let pipeline = backend.compile(&valid, &options)?;
        let grid = [(ELEMENTS / u64::from(workgroup)) as u32, 1, 1];
        let mut samples = Vec::new();
        for _ in 0..21 {
            let pending = backend.submit(&pipeline, &Launch::new(&bindings, grid).timed())?;
            let time = done(backend, pending)?.device_ns.ok_or("the launch was not timed")?;
            samples.push(time as f64 * 1e-9);
        }
        println!(
            "map at workgroup {workgroup:>4}         {:>10.0} GB/s",
            (ELEMENTS * 12) as f64 / median(samples) / 1e9
        );
    }
    Ok(())
}

/// A product of square matrices, with a few of its elements computed here too.
fn matmul(backend: &CudaBackend, kind: MatrixKind, size: u32) -> Outcome<()> {
    if !backend.capabilities().features.contains(Features::MATRIX) {
        println!("{} {size:>5}           skipped: the device has no matrix fragments", kind.name());
        return Ok(());
    }
    let program = programs::matmul(kind, size, size, size);
    let pipeline = backend.compile(&valid(&program)?, &CompileOptions::default())?;
    let value = |matrix: u32, row: u32, column: u32| {
        let mixed = (matrix * 7919 + row * 31 + column).wrapping_mul(2_654_435_761) >> 16;
        (mixed % 257) as f32 / 128.0 - 1.0
    };
    let encode = |value: f32| match kind {
        MatrixKind::F16 => f16::from_f32(value).to_bits(),
        _ => bf16::from_f32(value).to_bits(),
    };
    let decode = |bits: u16| match kind {
        MatrixKind::F16 => f16::from_bits(bits).to_f64(),
        _ => bf16::from_bits(bits).to_f64(),
    };
    let mut bindings = Vec::new();
    for matrix in 0..2 {
        let elements = (0..size).flat_map(|row| (0..size).map(move |column| encode(value(matrix, row, column))));
        let bytes: Vec<u8> = elements.flat_map(u16::to_le_bytes).collect();
        let buffer = backend.allocate(bytes.len() as u64)?;
        upload(backend, &buffer, 0, &bytes)?;
        bindings.push(Binding::from(buffer));
    }
    bindings.push(Binding::from(backend.allocate(u64::from(size) * u64::from(size) * 4)?));
    let blocks = size / programs::BLOCK;
    let launch = Launch::new(&bindings, [blocks * blocks, 1, 1]).timed();
    let mut samples = Vec::new();
    for _ in 0..21 {
        let pending = backend.submit(&pipeline, &launch)?;
        let time = done(backend, pending)?.device_ns.ok_or("the launch was not timed")?;
        samples.push(time as f64 * 1e-9);
    }
    for (row, column) in [(0, 0), (1, 2), (size - 1, size - 1), (size / 2 + 77, size / 3), (129, size - 130)] {
        let product = |i| decode(encode(value(0, row, i))) * decode(encode(value(1, column, i)));
        let (expected, size64) = ((0..size).map(product).sum::<f64>(), u64::from(size));
        let mut found = [0; 4];
        download(backend, &bindings[2].buffer, (u64::from(row) * size64 + u64::from(column)) * 4, &mut found)?;
        let found = f64::from(f32::from_le_bytes(found));
        if (found - expected).abs() > 1e-5 * f64::from(size) {
            return Err(format!("{} {size}: [{row}][{column}] is {found}, not {expected}", kind.name()).into());
        }
    }
    let flops = 2.0 * f64::from(size).powi(3);
    println!("{:<12} {size:>5}            {:>10.0} TFLOP/s", kind.name(), flops / median(samples) / 1e12);
    Ok(())
}

/// 40 GiB in one buffer, with a launch that reaches its last element.
fn large(backend: &CudaBackend) -> Outcome<()> {
    const BYTES: u64 = 40 << 30;
    if backend.capabilities().limits.memory_bytes.unwrap_or(0) < BYTES + (4 << 30) {
        println!("large buffers                 skipped: the device is too small");
        return Ok(());
    }
    let program = add_one(DataType::F32);
    let pipeline = backend.compile(&valid(&program)?, &CompileOptions::default())?;
    let begin = Instant::now();
    let buffer = backend.allocate(BYTES)?;
    let elements = BYTES / 4;
    // More than 2^31 of them, at the end of the buffer.
    let count = 3u64 << 30;
    let binding = Binding { buffer: buffer.clone(), offset: BYTES - count * 4, bytes: count * 4 };
    let bindings = [binding];
    let launch = Launch::new(&bindings, [(count / 64) as u32, 1, 1]).timed();
    let pending = backend.submit(&pipeline, &launch)?;
    let time = done(backend, pending)?.device_ns.unwrap_or(0);
    let mut ends = [[0u8; 4]; 3];
    for (at, end) in [elements - count - 1, elements - count, elements - 1].into_iter().zip(&mut ends) {
        download(backend, &buffer, at * 4, end)?;
    }
    let ends = ends.map(f32::from_le_bytes);
    if ends != [0.0, 1.0, 1.0] {
        return Err(format!("the ends of a large buffer are {ends:?}").into());
    }
    println!(
        "40 GiB buffer, 3*2^30 elements{:>10.0} GB/s ({:.0} ms with allocating and clearing)",
        (count * 8) as f64 / time.max(1) as f64,
        begin.elapsed().as_secs_f64() * 1e3
    );
    Ok(())
}
