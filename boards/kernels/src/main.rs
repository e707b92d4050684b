//! Times kernels in WGSL beside the same ones in C++ (on the processor) and in CUDA C (on an NVIDIA GPU), in one run.
//!
//! `boards/kernels/run` builds the twins and this program and starts it; `boards/kernels/README.md` says the rest.

mod cuda;
mod processor;
mod report;
mod works;

use std::path::PathBuf;
use std::process::ExitCode;

pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// What was asked for on the command line.
pub(crate) struct Asked {
    /// Folder of the compiled twins.
    pub(crate) twins: PathBuf,
    pub(crate) processor: bool,
    pub(crate) cuda: bool,
    /// Kernels whose name contains one of these; all where there is none.
    pub(crate) only: Vec<String>,
    pub(crate) rounds: usize,
    pub(crate) json: Option<PathBuf>,
    /// Time of all threads on the processor instead of the time that passes, for machines where others work.
    pub(crate) busy: bool,
    /// Shifts the number of elements, so that a small machine has less to do.
    pub(crate) smaller: u32,
    /// Folder to write the PTX of our kernels to, for an assembler.
    pub(crate) ptx: Option<PathBuf>,
    /// Folder to write the machine code of our kernels for this processor to.
    pub(crate) asm: Option<PathBuf>,
    /// This process runs one variant of the kernel for another process of the board: an arithmetic of ours, or a library.
    play: Option<String>,
}

const USAGE: &str = "kernel-board --twins FOLDER [--cpu] [--cuda] [--only NAME]... [--rounds N] [--json FILE] [--busy] [--smaller BITS] [--ptx FOLDER] [--asm FOLDER]";

fn asked() -> Outcome<Asked> {
    let mut asked = Asked {
        twins: PathBuf::new(),
        processor: false,
        cuda: false,
        only: Vec::new(),
        rounds: 11,
        json: None,
        busy: false,
        smaller: 0,
        ptx: None,
        asm: None,
        play: None,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--twins" => asked.twins = value()?.into(),
            "--cpu" => asked.processor = true,
            "--cuda" => asked.cuda = true,
            "--only" => asked.only.push(value()?),
            "--rounds" => asked.rounds = value()?.parse()?,
            "--json" => asked.json = Some(value()?.into()),
            "--busy" => asked.busy = true,
            "--smaller" => asked.smaller = value()?.parse()?,
            "--ptx" => asked.ptx = Some(value()?.into()),
            "--asm" => asked.asm = Some(value()?.into()),
            "--play" => asked.play = Some(value()?),
            _ => return Err(format!("`{word}` is not known\n{USAGE}").into()),
        }
    }
    if asked.twins.as_os_str().is_empty() && asked.ptx.is_none() && asked.asm.is_none() {
        return Err(USAGE.into());
    }
    Ok(asked)
}

fn board() -> Outcome<()> {
    let asked = asked()?;
    let wanted = |name: &str| asked.only.is_empty() || asked.only.iter().any(|part| name.contains(part.as_str()));
    let works: Vec<_> = works::works().into_iter().filter(|work| wanted(work.name)).collect();
    if let Some(folder) = &asked.ptx {
        return cuda::write_ptx(&works, folder);
    }
    if let Some(folder) = &asked.asm {
        return processor::write_asm(&works, folder);
    }
    if let Some(variant) = &asked.play {
        let work = works.iter().find(|work| asked.only == [work.name]).ok_or("no kernel has this name")?;
        return processor::play(work, &asked, variant);
    }
    let mut rows: Vec<report::Row> = Vec::new();
    // A board takes minutes; what was measured is told at once and stays where it is interrupted.
    let mut tell = |row: report::Row| -> Outcome<()> {
        report::print_row(&row, rows.last().is_none_or(|last| last.machine != row.machine));
        rows.push(row);
        if let Some(path) = &asked.json {
            std::fs::write(path, serde_json::to_string_pretty(&report::json(&rows))?)?;
        }
        Ok(())
    };
    if asked.processor {
        processor::rows(&works, &asked, &mut tell)?;
    }
    if asked.cuda {
        cuda::rows(&works, &asked, &mut tell)?;
    }
    report::print_means(&rows);
    match rows.iter().filter(|row| !row.agrees).count() {
        0 => Ok(()),
        wrong => Err(format!("{wrong} rows have results that differ").into()),
    }
}

fn main() -> ExitCode {
    match board() {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}
