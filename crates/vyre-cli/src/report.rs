//! What goes to the terminal.

use std::cell::RefCell;
use std::io::{IsTerminal, Write};

use serde_json::{Map, Value};
use vyre::{Diagnostic, Error, Severity, codes};

/// Why a command did not do what it was asked for.
pub(crate) enum Failure {
    Diagnostics(Vec<Diagnostic>),
    /// `--check` found that a backend and the reference disagree.
    Difference(Diagnostic),
    /// The user has interrupted it, and it has kept what it had.
    Interrupted(Diagnostic),
    /// What is wrong was told as a result.
    Told,
}

impl From<Diagnostic> for Failure {
    fn from(diagnostic: Diagnostic) -> Self {
        Failure::Diagnostics(vec![diagnostic])
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Diagnostics(error.diagnostics().to_vec())
    }
}

/// How results and problems are printed.
pub(crate) struct Output {
    pub(crate) json: bool,
    colour: bool,
    /// What [`Output::finish`] prints.
    document: RefCell<(Value, Vec<Diagnostic>)>,
}

impl Output {
    pub(crate) fn new(json: bool) -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Output { json, colour: wanted && std::io::stderr().is_terminal(), document: RefCell::default() }
    }

    /// Results go to standard output.
    pub(crate) fn print(&self, text: &str) -> Result<(), Failure> {
        self.print_bytes(text.as_bytes())
    }

    /// The same for a text that is there as bytes.
    pub(crate) fn print_bytes(&self, text: &[u8]) -> Result<(), Failure> {
        let mut out = std::io::stdout().lock();
        match out.write_all(text).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()) {
            // Whoever reads has seen enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            Err(error) => Err(cant_print(&error).into()),
            Ok(()) => Ok(()),
        }
    }

    /// Results go to standard error where standard output takes the data of one.
    pub(crate) fn print_beside(&self, text: &str) {
        eprintln!("{text}");
    }

    /// The result as an object.
    pub(crate) fn print_json(&self, value: &Value) -> Result<(), Failure> {
        self.document.borrow_mut().0 = value.clone();
        Ok(())
    }

    /// Prints the one JSON document: the result, and under `problems` everything that there is to say.
    pub(crate) fn finish(&self) -> Result<(), Failure> {
        if !self.json {
            return Ok(());
        }
        let (value, problems) = self.document.take();
        let mut document = if value.is_object() { value } else { Value::Object(Map::new()) };
        document["problems"] = vyre::diagnostics::to_json_all(&problems);
        self.print(&format!("{document:#}"))
    }

    /// Problems go to standard error, or into the JSON document.
    pub(crate) fn problems(&self, problems: &[Diagnostic]) {
        if self.json {
            self.document.borrow_mut().1.extend_from_slice(problems);
            return;
        }
        for problem in problems {
            let text = vyre::diagnostics::render(problem);
            if !self.colour {
                eprintln!("{text}");
                continue;
            }
            let colour = match problem.severity {
                Severity::Error => "\x1b[1;31m",
                Severity::Warning => "\x1b[1;33m",
                Severity::Note => "\x1b[1;36m",
            };
            match text.split_once(": ") {
                Some((head, rest)) => eprintln!("{colour}{head}\x1b[0m: {rest}"),
                None => eprintln!("{text}"),
            }
        }
    }
}

pub(crate) fn cant_print(error: &std::io::Error) -> Diagnostic {
    Diagnostic::new(&codes::command::CANT_WRITE, format!("standard output can't be written: {error}"))
}

/// `V17xx` for an argument of the form `NAME=VALUE`.
pub(crate) fn split<'a>(option: &str, text: &'a str) -> Result<(&'a str, &'a str), Diagnostic> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => Ok((name, value)),
        _ => Err(Diagnostic::new(
            &codes::command::BAD_ARGUMENT,
            format!("`{option} {text}` is not of the form `{option} NAME=VALUE`"),
        )),
    }
}

/// `V1705` for an option that was given twice for one name.
pub(crate) fn repeated(option: &str, name: &str) -> Diagnostic {
    Diagnostic::new(&codes::command::BAD_ARGUMENT, format!("`{option} {name}=` was given twice"))
        .with_fix("Give it once.")
}

/// The times at these shares of all, from 0 (the fastest) to 1.
pub(crate) fn quantiles<const N: usize>(times: &mut [f64], shares: [f64; N]) -> [f64; N] {
    times.sort_by(f64::total_cmp);
    shares
        .map(|share| times.get((times.len().saturating_sub(1) as f64 * share).round() as usize).copied().unwrap_or(0.0))
}

/// `1 pipeline`, `2 pipelines`, `2 launches`.
pub(crate) fn count(number: u64, what: &str) -> String {
    let ending = match number {
        1 => "",
        _ if what.ends_with("ch") => "es",
        _ => "s",
    };
    format!("{number} {what}{ending}")
}

/// A duration for people.
pub(crate) fn time(ns: f64) -> String {
    match ns {
        _ if ns < 1e3 => format!("{ns:.0} ns"),
        _ if ns < 1e6 => format!("{:.2} µs", ns / 1e3),
        _ if ns < 1e9 => format!("{:.2} ms", ns / 1e6),
        _ => format!("{:.2} s", ns / 1e9),
    }
}
