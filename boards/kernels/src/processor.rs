//! On the processor, beside shared libraries that a C++ compiler made.
#![allow(unsafe_code)]

use std::ffi::{c_long, c_void};
use std::time::{Duration, Instant};

use libloading::{Library, Symbol};
use vyre::ir::{Count, DataType, Math};
use vyre::{Engine, Prepared};

use crate::report::{Row, Times};
use crate::works::{Buffer, Work, near};
use crate::{Asked, Outcome};

/// How long threads that look for work need to give up.
const QUIET: Duration = Duration::from_millis(20);

type Twin = unsafe extern "C" fn(*const *mut c_void, c_long);

/// Libraries of a twin, and what they are called.
const PEERS: [(&str, &str); 2] = [("o3", "g++ -O3"), ("fast", "g++ -O3 -ffast-math")];

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
}

/// Words of an element of a result: a number, or a vector of two or four.
fn words_of(ty: &DataType) -> u64 {
    let (element, count) = ty.as_vector().unwrap_or((ty.clone(), 1));
    let bytes = if element == DataType::F16 { 2 } else { 4 };
    (u64::from(count) * bytes).div_ceil(4)
}

/// Runs, and says how long it took: in time that passes, or in time of all threads.
fn timed(busy: bool, run: &mut dyn FnMut() -> Outcome<()>) -> Outcome<f64> {
    let spent = || {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the clock writes a time that lives here.
        unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
        time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
    };
    let (started, before) = (Instant::now(), spent());
    run()?;
    Ok(if busy { spent() - before } else { started.elapsed().as_secs_f64() })
}

pub(crate) fn rows(works: &[Work], asked: &Asked, tell: &mut dyn FnMut(Row) -> Outcome<()>) -> Outcome<()> {
    let engine = Engine::builder().without_disk().open()?;
    let cpu = engine.devices().into_iter().find(|device| device.id.as_str() == "cpu");
    let name = cpu.and_then(|device| device.state.ok()).map(|capabilities| capabilities.name).unwrap_or_default();
    let machine = format!("{name} ({} threads)", std::thread::available_parallelism()?);
    for work in works {
        tell(row(&engine, work, asked, &machine).map_err(|problem| format!("{}: {problem}", work.name))?)?;
    }
    Ok(())
}

fn row(engine: &Engine, work: &Work, asked: &Asked, machine: &str) -> Outcome<Row> {
    let n = 1usize << work.bits[0].saturating_sub(asked.smaller);
    let buffers = (work.buffers)(n);
    let contents: Vec<Vec<u32>> = buffers.iter().map(Buffer::contents).collect();
    let prepared = |math: Math| -> Outcome<Prepared> {
        let program = work.program(math)?;
        let is_input = |name: &str| program.buffer(name).is_some_and(|buffer| buffer.kind.is_input());
        let mut config = work.config(n);
        // A result need not be as long as what is read.
        for buffer in buffers.iter().filter(|buffer| !is_input(buffer.name)) {
            if let Some(decl) = program.buffer(buffer.name).filter(|decl| decl.count == Count::Runtime) {
                config.output_elements.insert(buffer.name.to_owned(), buffer.words as u64 / words_of(&decl.ty));
            }
        }
        let prepared = engine.prepare_on("cpu", &program, &config)?;
        for (buffer, contents) in buffers.iter().zip(&contents).filter(|(buffer, _)| is_input(buffer.name)) {
            prepared.set(buffer.name, &bytes(contents))?;
        }
        prepared.run()?;
        Ok(prepared)
    };
    let ours = [("exact", prepared(Math::Exact)?), ("fast", prepared(Math::Fast)?)];
    let mut libraries: Vec<(&str, &'static Library)> = Vec::new();
    for (suffix, name) in PEERS {
        let path = asked.twins.join(format!("cpu/{}.{suffix}.so", work.name));
        // SAFETY: the library was made from a file of this board and has no start-up code but OpenMP's.
        let library = unsafe { Library::new(&path) }.map_err(|error| format!("{}: {error}", path.display()))?;
        // It stays for as long as the process: OpenMP's threads would wake up in code that is not there any more.
        libraries.push((name, Box::leak(Box::new(library))));
    }
    let mut memory: Vec<Vec<Vec<u32>>> = libraries.iter().map(|_| contents.clone()).collect();
    let mut agrees = true;
    let mut twins: Vec<(&str, Symbol<'_, Twin>, Vec<*mut c_void>)> = Vec::new();
    for ((name, library), memory) in libraries.iter().zip(&mut memory) {
        let pointers: Vec<*mut c_void> = memory.iter_mut().map(|words| words.as_mut_ptr().cast()).collect();
        // SAFETY: every twin exports this function with this signature.
        let twin: Symbol<'_, Twin> = unsafe { library.get(b"run") }?;
        // SAFETY: the buffers are as long as the twin takes them to be, and live until the end of this function.
        unsafe { twin(pointers.as_ptr(), n as c_long) };
        twins.push((name, twin, pointers));
    }
    for (at, buffer) in buffers.iter().enumerate() {
        let Some(compare) = buffer.result else { continue };
        for (_, prepared) in &ours {
            let found = words(&prepared.get(buffer.name)?);
            agrees &= near(compare, &found, &memory[0][at]);
        }
    }
    let mut times: Vec<Times> = ours.iter().map(|(name, _)| Times::new(name)).collect();
    times.extend(twins.iter().map(|(name, ..)| Times::new(name)));
    for round in 0..asked.rounds {
        // Another order each round, so that nobody always comes after the same.
        for turn in 0..times.len() {
            let which = (turn * 3 + round) % times.len();
            // OpenMP's threads look for work for a while after a loop, and would be in the way of whoever comes next.
            std::thread::sleep(QUIET);
            let seconds = timed(asked.busy, &mut || {
                match ours.get(which) {
                    Some((_, prepared)) => _ = prepared.run()?,
                    None => {
                        let (_, twin, pointers) = &twins[which - ours.len()];
                        // SAFETY: as above.
                        unsafe { twin(pointers.as_ptr(), n as c_long) };
                    }
                }
                Ok(())
            })?;
            times[which].seconds.push(seconds);
        }
    }
    Ok(Row { kernel: work.name, machine: machine.to_owned(), bytes: (work.bytes)(n), times, agrees })
}
