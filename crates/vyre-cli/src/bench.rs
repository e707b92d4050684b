//! `vyre bench`: a kernel on every backend, in turns, so that whatever disturbs the machine disturbs all alike.

use std::time::Instant;

use serde_json::json;
use vyre::Engine;

use crate::args::Bench;
use crate::job::Job;
use crate::pipeline;
use crate::progress::Progress;
use crate::report::{Failure, Output, quantiles, time};
use crate::run::known_backend;

pub(crate) fn bench(args: &Bench, output: &Output) -> Result<(), Failure> {
    if let Some(spec) = pipeline::Spec::of(&args.kernel, &args.passes, &args.inputs)? {
        return pipeline::bench(args, &spec, output);
    }
    let job = Job::new(&args.kernel, &args.inputs)?;
    let engine = Engine::open()?;
    race(args, &engine, output, &mut |backend| {
        let prepared = engine.prepare_on(backend, &job.source.program, &job.config)?;
        job.fill(&prepared)?;
        let run: Racer<'_> = Box::new(move || Ok(prepared.run().map(drop)?));
        Ok(run)
    })
}

/// One run of what is timed.
pub(crate) type Racer<'a> = Box<dyn FnMut() -> Result<(), Failure> + 'a>;

/// Times what `start` makes for each backend, in turns.
pub(crate) fn race<'a>(
    args: &Bench,
    engine: &Engine,
    output: &Output,
    start: &mut dyn FnMut(&str) -> Result<Racer<'a>, Failure>,
) -> Result<(), Failure> {
    let mut racers = Vec::new();
    let mut absent = Vec::new();
    let chosen = args.inputs.backend.as_str();
    // The reference interpreter would take minutes where the others take milliseconds; it runs when it is named.
    let ids: Vec<String> = if chosen == "auto" {
        engine.backend_ids().iter().map(ToString::to_string).filter(|id| id != "reference").collect()
    } else {
        known_backend(engine, chosen)?;
        vec![chosen.to_owned()]
    };
    let preparing = Progress::new("preparing", None);
    for id in ids {
        let ready = start(&id).and_then(|mut run| {
            let started = Instant::now();
            run()?;
            Ok((run, started.elapsed().as_nanos() as f64))
        });
        match ready {
            Ok((run, first)) => racers.push((id, run, first, Vec::new())),
            Err(Failure::Diagnostics(problems)) if chosen == "auto" => {
                absent.push((id, problems.first().map_or_else(String::new, |problem| problem.message.clone())));
            }
            Err(failure) => return Err(failure),
        }
    }
    drop(preparing);
    let progress = Progress::new("measuring", Some(u64::from(args.rounds) * racers.len() as u64));
    for _ in 0..args.rounds {
        for (_, run, _, times) in &mut racers {
            let started = Instant::now();
            run()?;
            times.push(started.elapsed().as_nanos() as f64);
            progress.step();
        }
    }
    drop(progress);
    output.problems(&engine.take_notices());
    let mut rows: Vec<(String, f64, f64, f64, f64)> = Vec::new();
    for (id, _, first, mut times) in racers {
        let [low, median, high] = quantiles(&mut times, [0.1, 0.5, 0.9]);
        rows.push((id, first, median, low, high));
    }
    rows.sort_by(|a, b| a.2.total_cmp(&b.2));
    if output.json {
        let list: Vec<_> = rows
            .iter()
            .map(|(id, first, median, low, high)| {
                json!({ "backend": id, "first_ns": first, "median_ns": median, "p10_ns": low, "p90_ns": high })
            })
            .collect();
        let absent: Vec<_> = absent.iter().map(|(id, why)| json!({ "backend": id, "why": why })).collect();
        return output.print_json(&json!({ "rounds": args.rounds, "backends": list, "absent": absent }));
    }
    let best = rows.first().map_or(1.0, |row| row.2);
    let mut text =
        vec![format!("{:<12} {:>12} {:>8} {:>26} {:>12}", "backend", "median", "ratio", "10% to 90%", "first")];
    for (id, first, median, low, high) in &rows {
        let spread = format!("{} to {}", time(*low), time(*high));
        text.push(format!("{id:<12} {:>12} {:>8.2} {spread:>26} {:>12}", time(*median), median / best, time(*first)));
    }
    for (id, why) in &absent {
        text.push(format!("{id:<12} did not run: {why}"));
    }
    output.print(&text.join("\n"))
}
