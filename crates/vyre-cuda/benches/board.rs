//! Figures of the CUDA backend, printed as a table: opening, first result from a stored cubin, tiny dispatches (one by one,
//! pipelined, recorded), the map `a*b+1` at every workgroup size, products of matrices, large buffers.
//! `benches/raw_launch.cu` and `benches/peers.py` measure the peers.

mod programs;

use std::time::Instant;

use half::{bf16, f16};

use vyre_cuda::CudaBackend;
use vyre_driver::backend::{Binding, CompileOptions, Launch};
use vyre_driver::{BackendError, VyreBackend};
use vyre_foundation::ValidProgram;
use vyre_foundation::ir::{BufferDecl, DataType, Expr, MatrixKind, Node, Program};
use vyre_foundation::kernel::Features;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

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
    let (pipeline, how) = match &stored {
        Some(bytes) => (backend.load(&valid, &options, bytes)?, "stored cubin"),
        None => (backend.compile(&valid, &options)?, "compiled"),
    };
    let buffer = backend.allocate(4096)?;
    let bindings = [Binding::from(buffer.clone())];
    let pending = backend.submit(&pipeline, &Launch { bindings: &bindings, grid: [16, 1, 1], timed: false })?;
    backend.wait(pending, None)?;
    let mut out = [0; 4096];
    backend.download(&buffer, 0, &mut out)?;
    println!("first result, {how:<14}  {:>10.2} ms more", begin.elapsed().as_secs_f64() * 1e3);
    if let (None, Some(bytes)) = (stored, pipeline.artifact()) {
        std::fs::write(cached, bytes)?;
    }
    Ok(())
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn tiny(backend: &CudaBackend) -> Outcome<()> {
    const LAUNCHES: u32 = 1000;
    let program = add_one(DataType::U32);
    let pipeline = backend.compile(&valid(&program)?, &CompileOptions::default())?;
    let bindings = [Binding::from(backend.allocate(256)?)];
    let launch = Launch { bindings: &bindings, grid: [1, 1, 1], timed: false };
    let (mut pipelined, mut waited, mut recorded) = (Vec::new(), Vec::new(), Vec::new());
    let sequence = backend.record(&[(&pipeline, launch); LAUNCHES as usize])?;
    for _ in 0..21 {
        let begin = Instant::now();
        let mut last = backend.submit(&pipeline, &launch)?;
        for _ in 1..LAUNCHES {
            last = backend.submit(&pipeline, &launch)?;
        }
        backend.wait(last, None)?;
        pipelined.push(begin.elapsed().as_secs_f64() * 1e6 / f64::from(LAUNCHES));
        let begin = Instant::now();
        for _ in 0..LAUNCHES {
            let pending = backend.submit(&pipeline, &launch)?;
            backend.wait(pending, None)?;
        }
        waited.push(begin.elapsed().as_secs_f64() * 1e6 / f64::from(LAUNCHES));
        let begin = Instant::now();
        let pending = backend.replay(&sequence)?;
        backend.wait(pending, None)?;
        recorded.push(begin.elapsed().as_secs_f64() * 1e6 / f64::from(LAUNCHES));
    }
    println!("tiny dispatch, pipelined      {:>10.2} us", median(pipelined));
    println!("tiny dispatch, launch + wait  {:>10.2} us", median(waited));
    println!("tiny dispatch, recorded       {:>10.2} us", median(recorded));
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
                backend.upload(&buffer, offset, &noise)?;
            }
        }
        bindings.push(Binding::from(buffer));
    }
    let (from, to) = (&bindings[0].buffer, &bindings[2].buffer);
    let copied: Outcome<Vec<f64>> = (0..9)
        .map(|_| {
            let mut last = [0; 4];
            backend.download(to, 0, &mut last)?;
            let begin = Instant::now();
            for _ in 0..10 {
                backend.copy(from, 0, to, 0, ELEMENTS * 4)?;
            }
            backend.download(to, 0, &mut last)?;
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
            let pending = backend.submit(&pipeline, &Launch { bindings: &bindings, grid, timed: true })?;
            let time = backend.wait(pending, None)?.device_ns.ok_or("the launch was not timed")?;
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
        backend.upload(&buffer, 0, &bytes)?;
        bindings.push(Binding::from(buffer));
    }
    bindings.push(Binding::from(backend.allocate(u64::from(size) * u64::from(size) * 4)?));
    let blocks = size / programs::BLOCK;
    let launch = Launch { bindings: &bindings, grid: [blocks * blocks, 1, 1], timed: true };
    let mut samples = Vec::new();
    for _ in 0..21 {
        let pending = backend.submit(&pipeline, &launch)?;
        let time = backend.wait(pending, None)?.device_ns.ok_or("the launch was not timed")?;
        samples.push(time as f64 * 1e-9);
    }
    for (row, column) in [(0, 0), (1, 2), (size - 1, size - 1), (size / 2 + 77, size / 3), (129, size - 130)] {
        let product = |i| decode(encode(value(0, row, i))) * decode(encode(value(1, column, i)));
        let (expected, size64) = ((0..size).map(product).sum::<f64>(), u64::from(size));
        let mut found = [0; 4];
        backend.download(&bindings[2].buffer, (u64::from(row) * size64 + u64::from(column)) * 4, &mut found)?;
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
    let launch = Launch { bindings: &[binding], grid: [(count / 64) as u32, 1, 1], timed: true };
    let pending = backend.submit(&pipeline, &launch)?;
    let time = backend.wait(pending, None)?.device_ns.unwrap_or(0);
    let mut ends = [[0u8; 4]; 3];
    for (at, end) in [elements - count - 1, elements - count, elements - 1].into_iter().zip(&mut ends) {
        backend.download(&buffer, at * 4, end)?;
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
