//! Completions and manual pages, both made from the definition of the arguments.

use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::Command;
use crate::files::Outbox;
use crate::report::{Failure, Output, cant_print};

pub(crate) fn completions(shell: Shell, output: &Output) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Command::command(), "vyre", &mut script);
    output.print(String::from_utf8_lossy(&script).trim_end())
}

pub(crate) fn manual(folder: Option<&Path>, output: &Output) -> Result<(), Failure> {
    let mut command = Command::command();
    command.build();
    let Some(folder) = folder else {
        return output.print(String::from_utf8_lossy(&page(command)?).trim_end());
    };
    let mut outbox = Outbox::default();
    let mut written = 0;
    let mut waiting = vec![command];
    while let Some(command) = waiting.pop() {
        let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
        waiting.extend(command.get_subcommands().filter(|sub| sub.get_name() != "help").cloned());
        outbox.stage(&folder.join(format!("{name}.1")), page(command)?)?;
        written += 1;
    }
    outbox.deliver()?;
    output.print(&format!("{written} pages written to {}", folder.display()))
}

fn page(command: clap::Command) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    Man::new(command).render(&mut page).map_err(|error| cant_print(&error))?;
    Ok(page)
}
