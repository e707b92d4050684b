//! Ops beside what people take for the same: on this processor plain Rust with rayon and libraries, in turn in one process; on a GPU by
//! themselves, beside `peers.py`, which is run in the same call.
//!
//! `cargo run --release -p vyre-op-board --features libraries` prints a table and writes `op-board.json`; `-- --docs NAME` also puts the table
//! under that name into `docs/benchmarks/ops.md`, and `-- sum sort` takes only works that begin so. With the feature `gpu`, `-- --on cuda --large`
//! measures a GPU at the sizes of its board, and `--medium` at some of them. `-- --processor-time` compares how long the threads of this process
//! work instead of how long it takes, for a machine that has other work.

mod data;
mod limits;
mod measure;
mod plain;
mod report;
mod works;

use data::{Data, Sizes};
use limits::Limits;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1)).cloned();
    let is_set = |name: &str| args.iter().any(|arg| arg == name);
    let (docs, on) = (value("--docs"), value("--on"));
    let is_name = |arg: &&String| !arg.starts_with("--") && Some(*arg) != docs.as_ref() && Some(*arg) != on.as_ref();
    let only: Vec<&String> = args.iter().filter(is_name).collect();
    let on = on.as_deref().unwrap_or("cpu");
    let sizes = match (is_set("--large"), is_set("--medium")) {
        (true, _) => Sizes::LARGE,
        (_, true) => Sizes::MEDIUM,
        _ => Sizes::SMALL,
    };
    let _ = measure::PROCESSOR_TIME.set(is_set("--processor-time"));
    // Libraries of this process are measured beside the processor alone.
    let limits = (on == "cpu").then(Limits::measured);
    let data = Data::new(on, sizes);
    let mut rows = Vec::new();
    for work in &mut works::all(&data) {
        let is_asked = only.is_empty() || only.iter().any(|name| work.name.starts_with(name.as_str()));
        if !is_asked || (limits.is_some() && !work.has_peers()) {
            continue;
        }
        let row = match &limits {
            Some(limits) => measure::beside_peers(work, limits),
            None => measure::in_batches(work),
        };
        eprintln!("{}: {:.3} ms", row.name, row.ours_ms);
        rows.push(row);
    }
    data.engine.take_notices().iter().for_each(|notice| eprintln!("{notice}"));
    let text = report::table(&rows, limits.as_ref());
    print!("{text}");
    let devices = data.engine.devices();
    let device = devices.first().and_then(|device| device.state.as_ref().ok()).map(|able| able.name.as_str());
    let report = report::json(&rows, limits.as_ref(), on, device);
    std::fs::write("op-board.json", format!("{report:#}\n")).expect("the report can be written");
    if let Some(name) = docs {
        report::renew(&name, &text);
    }
}
