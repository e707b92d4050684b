//! Ops beside what people take for the same: on this processor plain Rust with rayon and libraries, in turn in one process; on a GPU by
//! themselves, beside `peers.py`, which is run in the same call.
//!
//! `cargo run --release -p vyre-op-board --features libraries` prints a table and writes `op-board.json`; `-- --docs NAME` also puts the table
//! under that name into `docs/benchmarks/ops.md`, and `-- sum sort` takes only works that begin so. With the feature `gpu`, `-- --on cuda --large`
//! measures a GPU at the sizes of its board, and `--medium` at some of them; `--elements 20` takes 2^20 elements where works are of
//! one long array. `--routes 0.1` tells instead where an engine with all devices of this machine runs ops, with so many seconds for each
//! size, and how long each device takes; with `--learnt FOLDER` what it learnt is kept there. `--warm 2000` runs each work so often before it is measured, if there is time, instead of 200 times. `--little` times ops of a few elements, where it is the engine that is measured. `-- --processor-time` compares how long the threads of this process
//! work instead of how long it takes, for a machine that has other work.

mod data;
mod limits;
mod little;
mod measure;
mod plain;
mod report;
mod routes;
mod works;

use data::{Data, Sizes};
use limits::Limits;
use vyre::metrics::Counter;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1)).cloned();
    let is_set = |name: &str| args.iter().any(|arg| arg == name);
    let (docs, on, power, routes) = (value("--docs"), value("--on"), value("--elements"), value("--routes"));
    let (warm, learnt) = (value("--warm"), value("--learnt"));
    let is_name = |arg: &&String| {
        !arg.starts_with("--") && ![&docs, &on, &power, &routes, &warm, &learnt].contains(&&Some((*arg).clone()))
    };
    let only: Vec<&String> = args.iter().filter(is_name).collect();
    if let Some(seconds) = routes {
        let seconds = seconds.parse().expect("--routes takes seconds for each engine");
        return routes::print(seconds, &only, learnt.as_deref());
    }
    let on = on.as_deref().unwrap_or("cpu");
    if is_set("--little") {
        return little::print(&data::engine(on), &only);
    }
    let mut sizes = match (is_set("--large"), is_set("--medium")) {
        (true, _) => Sizes::LARGE,
        (_, true) => Sizes::MEDIUM,
        _ => Sizes::SMALL,
    };
    if let Some(power) = power {
        sizes.elements = 1 << power.parse::<u32>().expect("--elements takes the power of two");
    }
    if let Some(runs) = warm {
        let _ = measure::WARM_RUNS.set(runs.parse().expect("--warm takes a number of runs"));
    }
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
        let launches = || data.engine.metrics().counter(Counter::Dispatches);
        let before = launches();
        work.run();
        eprintln!("{}: {:.3} ms, {} launches", row.name, row.ours_ms, launches() - before);
        rows.push(row);
    }
    for decided in data.engine.decisions().launches().expect("decisions can be told") {
        let vyre::tuner::Decision { verdict, candidate, subject, .. } = decided.decision;
        eprintln!("{} on {:?} of {:?}: {candidate} ({verdict:?})", subject.program, subject.grid, subject.own);
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
