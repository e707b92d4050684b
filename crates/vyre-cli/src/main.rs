//! The `vyre` command. It uses only the `vyre` facade.
#![forbid(unsafe_code)]

mod args;
mod bench;
mod cache;
mod data;
mod decisions;
mod devices;
mod emit;
mod explain;
mod files;
mod input;
mod inputs;
mod job;
mod launch;
mod log;
mod memory;
mod op;
mod pages;
#[cfg(unix)]
mod pipe;
mod pipeline;
mod plot;
mod progress;
mod report;
mod route;
mod route_folder;
mod run;
mod shapes;
mod source;
mod tune;
mod tune_ops;
mod tune_row;

use std::process::ExitCode;

use args::{Command, What};
use report::{Failure, Output};

fn main() -> ExitCode {
    let command = Command::parsed();
    let output = Output::new(command.json);
    // A front end that stops on a hostile kernel becomes a diagnostic; what the panic says itself helps nobody.
    let print_panic = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !vyre::catches_panics() {
            print_panic(panic);
        }
    }));
    if let Err(problem) = log::start(command.verbose) {
        output.problems(&[problem]);
    }
    if let Err(problem) = files::clean_up_when_interrupted() {
        output.problems(&[problem]);
    }
    let done = match &command.what {
        What::Run(args) => run::run(args, &output),
        What::Check(args) => run::check(args, &output),
        What::Emit(args) => emit::emit(args, &output),
        What::Devices => devices::devices(&output),
        What::Bench(args) => bench::bench(args, &output),
        What::Tune(args) => tune::tune(args, &output),
        What::Route(args) => route::route(args, &output),
        What::Op(args) => op::op(args, &output),
        What::Explain(args) => explain::explain(args, &output),
        What::Decisions(args) => decisions::decisions(args, &output),
        What::Cache(args) => cache::cache(args, &output),
        What::Doctor => devices::doctor(&output),
        What::Completions { shell } => pages::completions(*shell, &output),
        What::Man { dir } => pages::manual(dir.as_deref(), &output),
    };
    let mut code = told(&output, done);
    if let Err(failure) = output.finish() {
        code = code.max(told(&output, Err(failure)));
    }
    ExitCode::from(code)
}

/// Says what went wrong, and gives the exit code for it.
fn told(output: &Output, done: Result<(), Failure>) -> u8 {
    match done {
        Ok(()) => 0,
        Err(Failure::Difference(problem)) => {
            output.problems(&[problem]);
            3
        }
        Err(Failure::Interrupted(problem)) => {
            output.problems(&[problem]);
            files::INTERRUPTED as u8
        }
        Err(Failure::Told) => 1,
        Err(Failure::Diagnostics(problems)) => {
            output.problems(&problems);
            1
        }
    }
}
