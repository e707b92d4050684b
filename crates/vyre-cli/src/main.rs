//! The `vyre` command. It uses only the `vyre` facade.
#![forbid(unsafe_code)]

mod args;
mod bench;
mod cache;
mod data;
mod devices;
mod emit;
mod explain;
mod files;
mod job;
mod pages;
mod plot;
mod progress;
mod report;
mod route;
mod run;
mod tune;

use std::process::ExitCode;

use clap::Parser;

use args::{Command, What};
use report::{Failure, Output};

fn main() -> ExitCode {
    let command = Command::parse();
    let output = Output::new(command.json);
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
        What::Explain(args) => explain::explain(args, &output),
        What::Cache(args) => cache::cache(args, &output),
        What::Doctor => devices::doctor(&output),
        What::Completions { shell } => pages::completions(*shell, &output),
        What::Man { dir } => pages::manual(dir.as_deref(), &output),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Difference(problem)) => {
            output.problems(&[problem]);
            ExitCode::from(3)
        }
        Err(Failure::Told) => ExitCode::from(1),
        Err(Failure::Diagnostics(problems)) => {
            output.problems(&problems);
            ExitCode::from(1)
        }
    }
}
