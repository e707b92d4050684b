//! A file that is larger than the memory it may take goes through the device block by block: while one block is worked on, the next is read
//! and the one before is written.
//!
//! `cargo run --example stream -- in.bin out.bin` (32-bit floats; without names it makes 256 MB of its own)

use std::collections::VecDeque;
use std::error::Error;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::PathBuf;
use std::time::Instant;

const KERNEL: &str = "
    @group(0) @binding(0) var<storage, read_write> x: array<f32>;
    @compute @workgroup_size(64) fn smooth_step(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x < arrayLength(&x) {
            let t = clamp(x[id.x], 0.0, 1.0);
            x[id.x] = t * t * (3.0 - 2.0 * t);
        }
    }";

/// Floats in a block, blocks under way, and the device memory that all of it may take.
const BLOCK: usize = 4 << 20;
const BLOCKS: usize = 3;
const BUDGET: u64 = 80 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut names = std::env::args().skip(1).map(PathBuf::from);
    let folder = std::env::temp_dir();
    let (input, output) = match (names.next(), names.next()) {
        (Some(input), Some(output)) => (input, output),
        _ => (made(folder.join("vyre-stream-in.bin"))?, folder.join("vyre-stream-out.bin")),
    };
    let engine = vyre::Engine::builder().device_memory(BUDGET).open()?;
    let kernel = engine.kernel(&vyre::wgsl(KERNEL)?)?;
    let (mut reader, mut writer) = (BufReader::new(File::open(&input)?), BufWriter::new(File::create(&output)?));
    let mut under_way: VecDeque<vyre::Array<f32>> = VecDeque::new();
    let (mut block, mut total) = (vec![0f32; BLOCK], 0);
    let started = Instant::now();
    loop {
        let floats = read_floats(&mut reader, &mut block)?;
        if floats > 0 {
            let mut x = engine.array(&block[..floats])?;
            kernel.bind("x", &mut x).launch()?;
            under_way.push_back(x);
            total += floats;
        }
        if under_way.len() == BLOCKS || floats == 0 {
            let Some(done) = under_way.pop_front() else { break };
            writer.write_all(vyre::to_bytes(&done.to_vec()?))?;
        }
    }
    writer.flush()?;
    let seconds = started.elapsed().as_secs_f64();
    println!("{total} numbers through {} in {seconds:.2} s", output.display());
    for memory in engine.memory() {
        println!("{}: {} bytes in use, {} idle", memory.device, memory.used, memory.idle);
    }
    Ok(())
}

/// Reads whole floats until the block is full or the file ends.
fn read_floats(reader: &mut impl Read, block: &mut [f32]) -> Result<usize, Box<dyn Error>> {
    let mut bytes = vec![0; block.len() * 4];
    let mut filled = 0;
    while filled < bytes.len() {
        match reader.read(&mut bytes[filled..])? {
            0 => break,
            more => filled += more,
        }
    }
    for (float, bytes) in block.iter_mut().zip(bytes[..filled].as_chunks().0) {
        *float = f32::from_le_bytes(*bytes);
    }
    Ok(filled / 4)
}

fn made(path: PathBuf) -> Result<PathBuf, Box<dyn Error>> {
    let mut writer = BufWriter::new(File::create(&path)?);
    for i in 0..64u32 << 20 {
        writer.write_all(&((i % 1000) as f32 / 999.0).to_le_bytes())?;
    }
    writer.flush()?;
    Ok(path)
}
