//! On the processor, beside shared libraries that a C++ compiler made.
//!
//! Every variant has a process of its own, in which nothing runs but in its turn: threads that look for work after a loop, ours or
//! OpenMP's, would take the cores of whoever comes next. In a turn a variant runs several times, the first time unmeasured, so that
//! its threads are awake.
#![allow(unsafe_code)]

use std::ffi::{c_long, c_void};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use libloading::Library;
use vyre::ir::{Count, Math, layout_of};
use vyre::{Engine, Prepared, kernel};

use crate::report::{Row, Times, order};
use crate::works::{Buffer, Work, near};
use crate::{Asked, Outcome};

/// How long threads that look for work need to give up.
const QUIET: Duration = Duration::from_millis(5);
/// A turn ends after this time, but not before it has measured so many runs.
const TURN: Duration = Duration::from_millis(8);
const RUNS: std::ops::RangeInclusive<usize> = 3..=40;

type Twin = unsafe extern "C" fn(*const *mut c_void, c_long);

/// Libraries of a twin, and what they are called.
const PEERS: [(&str, &str); 2] = [("o3", "g++ -O3"), ("fast", "g++ -O3 -ffast-math")];
/// What OpenMP can be told about its threads; each peer has what is best for it.
const MANNERS: [&[(&str, &str)]; 3] = [&[], &[("OMP_PROC_BIND", "close")], &[("OMP_WAIT_POLICY", "passive")]];

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
}

fn size(work: &Work, asked: &Asked) -> usize {
    1 << work.bits[0].saturating_sub(asked.smaller)
}

/// Runs, and says how long it took: in time that passes, or in time of all threads.
fn timed(busy: bool, run: &mut dyn FnMut() -> Outcome<()>) -> Outcome<Duration> {
    let spent = || {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the clock writes a time that lives here.
        unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let (started, before) = (Instant::now(), spent());
    run()?;
    if !busy {
        return Ok(started.elapsed());
    }
    // The system tells what a thread has used once it sleeps.
    std::thread::sleep(QUIET);
    Ok(spent() - before)
}

/// A process that runs one variant in its turns.
struct Player {
    process: Child,
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Player {
    fn start(work: &Work, asked: &Asked, variant: &str, manner: &[(&str, &str)]) -> Outcome<Player> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--twins").arg(&asked.twins).args(["--play", variant, "--only", work.name]);
        command.args(["--smaller", &asked.smaller.to_string()]);
        if asked.busy {
            command.arg("--busy");
        }
        // Both sides use the cores that this process may use.
        command.env("OMP_NUM_THREADS", std::thread::available_parallelism()?.to_string()).envs(manner.iter().copied());
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (Some(asks), Some(answers)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("a process has no pipes".into());
        };
        Ok(Player { process, asks, answers: BufReader::new(answers) })
    }

    /// The seconds of each run of a turn.
    fn turn(&mut self) -> Outcome<Vec<f64>> {
        std::thread::sleep(QUIET);
        self.asks.write_all(b"turn\n")?;
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err(format!("the process of a variant ended: {}", self.process.wait()?).into());
        }
        let seconds = line.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>()?;
        Ok(seconds.into_iter().map(|nanos| nanos * 1e-9).collect())
    }

    /// The buffers that are compared, in order.
    fn results(&mut self, buffers: &[Buffer]) -> Outcome<Vec<Vec<u32>>> {
        self.asks.write_all(b"results\n")?;
        let compared = buffers.iter().filter(|buffer| buffer.result.is_some());
        compared
            .map(|buffer| {
                let mut bytes = vec![0; 4 * buffer.words];
                self.answers.read_exact(&mut bytes)?;
                Ok(words(&bytes))
            })
            .collect()
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        // It may have ended by itself; there is nobody to tell.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn rows(works: &[Work], asked: &Asked, tell: &mut dyn FnMut(Row) -> Outcome<()>) -> Outcome<()> {
    let engine = Engine::builder().without_disk().open()?;
    let cpu = engine.devices().into_iter().find(|device| device.id.as_str() == "cpu");
    let name = cpu.and_then(|device| device.state.ok()).map(|capabilities| capabilities.name).unwrap_or_default();
    let machine = format!("{name} ({} threads)", std::thread::available_parallelism()?);
    for work in works {
        tell(row(work, asked, &machine).map_err(|problem| format!("{}: {problem}", work.name))?)?;
    }
    Ok(())
}

fn row(work: &Work, asked: &Asked, machine: &str) -> Outcome<Row> {
    let n = size(work, asked);
    let buffers = (work.buffers)(n);
    let mut players = Vec::new();
    for math in [Math::Exact, Math::Fast] {
        players.push((math.name(), Player::start(work, asked, math.name(), &[])?));
    }
    for (suffix, name) in PEERS {
        let path = asked.twins.join(format!("cpu/{}.{suffix}.so", work.name));
        let path = path.to_str().ok_or("the twins are at a path that is no text")?;
        players.push((name, best_player(work, asked, path)?));
    }
    let results: Vec<_> = players.iter_mut().map(|(_, player)| player.results(&buffers)).collect::<Outcome<_>>()?;
    let kinds: Vec<_> = buffers.iter().filter_map(|buffer| buffer.result).collect();
    let agrees = results
        .iter()
        .all(|found| kinds.iter().zip(found).zip(&results[2]).all(|((&kind, ours), theirs)| near(kind, ours, theirs)));
    let mut times: Vec<Times> = players.iter().map(|(name, _)| Times::new(name)).collect();
    for round in 0..asked.rounds {
        for which in order(round, times.len()) {
            times[which].seconds.extend(players[which].1.turn()?);
        }
    }
    Ok(Row { kernel: work.name, machine: machine.to_owned(), bytes: (work.bytes)(n), times, agrees })
}

/// A process of a twin whose OpenMP was told what it does best with.
fn best_player(work: &Work, asked: &Asked, path: &str) -> Outcome<Player> {
    let players = MANNERS.iter().map(|manner| Player::start(work, asked, path, manner));
    let mut players = players.collect::<Outcome<Vec<_>>>()?;
    let mut best = (0, f64::INFINITY);
    for (at, player) in players.iter_mut().enumerate() {
        let least = player.turn()?.into_iter().fold(f64::INFINITY, f64::min);
        if least < best.1 {
            best = (at, least);
        }
    }
    Ok(players.swap_remove(best.0))
}

/// The side of the process that runs a variant: our arithmetic, or the library at a path. Answers what [`Player`] asks.
pub(crate) fn play(work: &Work, asked: &Asked, variant: &str) -> Outcome<()> {
    let n = size(work, asked);
    let buffers = (work.buffers)(n);
    let mut contents: Vec<Vec<u32>> = buffers.iter().map(Buffer::contents).collect();
    let math = [Math::Exact, Math::Fast].into_iter().find(|math| math.name() == variant);
    let Some(math) = math else {
        // SAFETY: the library was made from a file of this board and has no start-up code but OpenMP's.
        let library = unsafe { Library::new(variant) }.map_err(|error| format!("{variant}: {error}"))?;
        // SAFETY: every twin exports this function with this signature.
        let twin = unsafe { library.get::<Twin>(b"run") }?;
        let pointers: Vec<*mut c_void> = contents.iter_mut().map(|words| words.as_mut_ptr().cast()).collect();
        let mut run = || -> Outcome<()> {
            // SAFETY: the buffers are as long as the twin takes them to be, and live until the end of this function.
            unsafe { twin(pointers.as_ptr(), n as c_long) };
            Ok(())
        };
        run()?;
        let results: Vec<Vec<u8>> = buffers
            .iter()
            .zip(&pointers)
            .filter(|(buffer, _)| buffer.result.is_some())
            // SAFETY: the memory is that of `contents`, and nobody writes it now.
            .map(|(buffer, pointer)| bytes(unsafe { std::slice::from_raw_parts(pointer.cast::<u32>(), buffer.words) }))
            .collect();
        return serve(asked.busy, &results, &mut run);
    };
    let engine = Engine::builder().without_disk().open()?;
    let prepared = prepared(&engine, work, n, math, &buffers, &contents)?;
    drop(contents);
    prepared.run()?;
    let results = buffers.iter().filter(|buffer| buffer.result.is_some());
    let results = results.map(|buffer| Ok(prepared.get(buffer.name)?)).collect::<Outcome<Vec<_>>>()?;
    serve(asked.busy, &results, &mut || Ok(_ = prepared.run()?))
}

fn prepared(
    engine: &Engine,
    work: &Work,
    n: usize,
    math: Math,
    buffers: &[Buffer],
    contents: &[Vec<u32>],
) -> Outcome<Prepared> {
    let program = work.program(math)?;
    let is_input = |name: &str| program.buffer(name).is_some_and(|buffer| buffer.kind.is_input());
    let mut config = work.config(n);
    // A result need not be as long as what is read.
    for buffer in buffers.iter().filter(|buffer| !is_input(buffer.name)) {
        if let Some(decl) = program.buffer(buffer.name).filter(|decl| decl.count == Count::Runtime) {
            let layout = layout_of(&decl.ty, program.types()).ok_or("a result has elements of no known size")?;
            config.output_elements.insert(buffer.name.to_owned(), 4 * buffer.words as u64 / u64::from(layout.stride));
        }
    }
    let prepared = engine.prepare_on("cpu", &program, &config)?;
    for (buffer, contents) in buffers.iter().zip(contents).filter(|(buffer, _)| is_input(buffer.name)) {
        prepared.set(buffer.name, &bytes(contents))?;
    }
    Ok(prepared)
}

/// Writes our machine code of every kernel in both arithmetics, and the form that it is made of.
pub(crate) fn write_asm(works: &[Work], folder: &Path) -> Outcome<()> {
    std::fs::create_dir_all(folder)?;
    for work in works {
        for math in [Math::Exact, Math::Fast] {
            let program = work.program(math)?;
            let valid = program.validate().map_err(|problems| problems[0].to_string())?;
            let specialization = work.config(1 << work.bits[0]).specialization.resolve(&program)?;
            let options = kernel::Options { specialization, ..kernel::Options::default() };
            let write = |form: &str, text: String| {
                std::fs::write(folder.join(format!("{}.{}.{form}", work.name, math.name())), text)
            };
            write("asm", vyre::to_asm(&valid, &options)?)?;
            write("kernel", kernel::lower(&valid, &options)?.to_string())?;
        }
    }
    Ok(())
}

fn serve(busy: bool, results: &[Vec<u8>], run: &mut dyn FnMut() -> Outcome<()>) -> Outcome<()> {
    let mut out = std::io::stdout().lock();
    for ask in std::io::stdin().lock().lines() {
        if ask? == "results" {
            results.iter().try_for_each(|bytes| out.write_all(bytes))?;
        } else {
            run()?;
            let (started, mut all) = (Instant::now(), Vec::new());
            while all.len() < *RUNS.start() || started.elapsed() < TURN && all.len() < *RUNS.end() {
                all.push(timed(busy, run)?.as_nanos().to_string());
            }
            writeln!(out, "{}", all.join(" "))?;
        }
        out.flush()?;
    }
    Ok(())
}
