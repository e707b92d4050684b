//! The `vyre` command. It uses only the `vyre` facade.
#![forbid(unsafe_code)]

mod args;
mod bench;
mod cache;
mod data;
mod devices;
mod emit;
mod explain;
mod job;
mod report;
mod run;
mod tune;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use args::{Command, What};
use report::{Failure, Output};

fn main() -> ExitCode {
    let command = Command::parse();
    let output = Output::new(command.json);
    let done = match &command.what {
        What::Run(args) => run::run(args, &output),
        What::Check(args) => run::check(args, &output),
        What::Emit(args) => emit::emit(args, &output),
        What::Devices => devices::devices(&output),
        What::Bench(args) => bench::bench(args, &output),
        What::Tune(args) => tune::tune(args, &output),
        What::Explain(args) => explain::explain(args, &output),
        What::Cache(args) => cache::cache(args, &output),
        What::Doctor => devices::doctor(&output),
        What::Completions { shell } => {
            clap_complete::generate(*shell, &mut Command::command(), "vyre", &mut std::io::stdout());
            Ok(())
        }
        What::Man => clap_mangen::Man::new(Command::command())
            .render(&mut std::io::stdout())
            .map_err(|error| Failure::Diagnostics(vec![report::cant_print(&error)])),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Difference(text)) => {
            eprintln!("{text}");
            ExitCode::from(3)
        }
        Err(Failure::Diagnostics(problems)) => {
            output.problems(&problems);
            ExitCode::from(1)
        }
    }
}
