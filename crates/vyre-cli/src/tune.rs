//! `vyre tune`: compare a kernel's launches now and keep the decision for all later runs.

use serde_json::json;
use vyre::specialization::SpecValue;
use vyre::tuner::{Candidate, Space, Verdict};
use vyre::{Diagnostic, Engine, codes};

use crate::args::Tune;
use crate::job::{Job, constant};
use crate::plot;
use crate::progress::Progress;
use crate::report::{Failure, Output, quantiles, split, time};
use crate::run::known_backend;

/// The most bars that are drawn.
const SHOWN: usize = 16;

pub(crate) fn tune(args: &Tune, output: &Output) -> Result<(), Failure> {
    let job = Job::new(&args.kernel, &args.inputs)?;
    let space = space(args, &job)?;
    let engine = Engine::open()?;
    let backend = match args.inputs.backend.as_str() {
        // Where the kernel would run is where its launch matters.
        "auto" => {
            let prepared = engine.prepare_with(&job.source.program, &job.config)?;
            job.fill(&prepared)?;
            prepared.run()?;
            prepared.explain().backend.unwrap_or_default()
        }
        name => {
            known_backend(&engine, name)?;
            name.to_owned()
        }
    };
    let progress = Progress::new(format!("tuning on {backend}"), Some(0));
    let mut samples: Vec<(Candidate, Vec<f64>)> = Vec::new();
    let program = &job.source.program;
    let decision =
        engine.tune_watched(&backend, program, &job.inputs(), &job.config, space.as_ref(), &mut |sample| {
            progress.set(sample.taken, sample.at_most);
            match samples.iter_mut().find(|(candidate, _)| candidate == sample.candidate) {
                Some((_, times)) => times.push(sample.ns as f64),
                None => samples.push((sample.candidate.clone(), vec![sample.ns as f64])),
            }
        })?;
    drop(progress);
    engine.flush()?;
    output.problems(&engine.take_notices());
    let mut measured: Vec<(Candidate, f64)> = Vec::new();
    for (candidate, mut times) in samples {
        let [median] = quantiles(&mut times, [0.5]);
        measured.push((candidate, median));
    }
    // The first that is measured is the kernel's own launch.
    let own = measured.first().map(|(candidate, _)| candidate.clone());
    measured.sort_by(|a, b| a.1.total_cmp(&b.1));
    let evidence = &decision.evidence;
    let median_of = |wanted: Option<&Candidate>| {
        measured.iter().find(|(candidate, _)| Some(candidate) == wanted).map(|(_, median)| *median)
    };
    if output.json {
        let list: Vec<_> = measured
            .iter()
            .map(|(candidate, ns)| json!({ "launch": launch(candidate), "workgroup_size": candidate.workgroup_size, "median_ns": ns }))
            .collect();
        return output.print_json(&json!({
            "backend": backend, "workgroup_size": decision.candidate.workgroup_size,
            "launch": launch(&decision.candidate),
            "verdict": if decision.verdict == Verdict::Winner { "winner" } else { "tie" },
            "candidates": evidence.candidates, "samples": evidence.samples, "rejected": evidence.rejected,
            "difference": evidence.difference, "interval": evidence.interval,
            "chosen_ns": evidence.chosen_ns, "default_ns": evidence.default_ns, "measured": list,
        }));
    }
    let row = |(candidate, ns): &(Candidate, f64)| {
        let chosen = *candidate == decision.candidate;
        let note = match (chosen, Some(candidate) == own.as_ref()) {
            (true, true) => "chosen, the kernel's own",
            (true, false) => "chosen",
            (false, true) => "the kernel's own",
            (false, false) => "",
        };
        (launch(candidate), *ns, note.to_owned())
    };
    let rows: Vec<_> = measured.iter().map(row).collect();
    // The fastest, and those that have a note.
    let few: Vec<_> = rows
        .iter()
        .enumerate()
        .filter(|(at, row)| *at < SHOWN || !row.2.is_empty())
        .map(|(_, row)| row.clone())
        .collect();
    let mut text = plot::bars(&few);
    if rows.len() > few.len() {
        text.push(format!("and {} slower ones", rows.len() - few.len()));
    }
    let verdict = match decision.verdict {
        Verdict::Winner => "the fastest",
        Verdict::Tie => "the first of those that can't be told apart",
    };
    text.push(format!(
        "{backend}: {} is {verdict} of {} launches ({} timings)",
        launch(&decision.candidate),
        evidence.candidates,
        evidence.samples
    ));
    // The same numbers as beside the bars; the interval is of neighbouring runs, which what disturbs the machine disturbs alike.
    if let (Some(chosen), Some(default)) = (median_of(Some(&decision.candidate)), median_of(own.as_ref())) {
        let mut line = format!("{} against {} for the kernel's own launch", time(chosen), time(default));
        if Some(&decision.candidate) != own.as_ref() && default > 0.0 {
            line += &format!(
                ": {:+.1}% (in neighbouring runs between {:+.1}% and {:+.1}%, 19 times of 20)",
                100.0 * (chosen / default - 1.0),
                100.0 * evidence.interval[0],
                100.0 * evidence.interval[1]
            );
        }
        text.push(line);
    }
    if evidence.candidates == 1 {
        let launch = &args.kernel.launch;
        let why = match (launch.workgroup, launch.grid, job.config.grid_override) {
            (Some(_), ..) => "`--workgroup` fixes it. Leave that out.",
            (_, Some(_), _) => {
                "`--grid` fixes it. Leave that out, or let the kernel say how much there is to do: a function `vyre_domain`."
            }
            (.., Some(_)) => {
                "the grid follows from a shape. A function `vyre_domain` in the kernel says how much there is to do instead."
            }
            _ => "the results depend on the workgroup size.",
        };
        text.push(format!("There was nothing to compare: {why}"));
    }
    text.extend(evidence.rejected.iter().map(|reason| format!("rejected {reason}")));
    output.print(&text.join("\n"))
}

/// A launch in words: `16 x 16, tile = 8`.
fn launch(candidate: &Candidate) -> String {
    let [x, y, z] = candidate.workgroup_size;
    let mut text = match [y, z] {
        [1, 1] => x.to_string(),
        [_, 1] => format!("{x} x {y}"),
        _ => format!("{x} x {y} x {z}"),
    };
    for (name, value) in candidate.specialization.iter() {
        let value = match value {
            SpecValue::U32(value) => value.to_string(),
            SpecValue::I32(value) => value.to_string(),
            SpecValue::F32(value) => value.to_string(),
            SpecValue::Bool(value) => value.to_string(),
            other => format!("{other:?}"),
        };
        text += &format!(", {name} = {value}");
    }
    text
}

/// What `--vary` adds: every value of the constants, with the workgroup sizes that are tried anyway.
fn space(args: &Tune, job: &Job) -> Result<Option<Space>, Diagnostic> {
    if args.vary.is_empty() {
        return Ok(None);
    }
    let mut space = Space::new();
    if args.kernel.launch.workgroup.is_none() && job.config.grid_override.is_none() {
        let size = job.workgroup_size()?;
        let dimensions = size.iter().rposition(|&size| size > 1).map_or(1, |axis| axis as u32 + 1);
        space = space.with_shapes_up_to(dimensions, 256);
    }
    for text in &args.vary {
        let (name, values) = split("--vary", text)?;
        let mut list = Vec::new();
        for value in values.split(',') {
            list.push(constant(&job.source, "--vary", &format!("{name}={value}"))?.1);
        }
        if list.len() < 2 {
            let message = format!("`--vary {text}` names a single value");
            return Err(Diagnostic::new(&codes::command::BAD_ARGUMENT, message)
                .with_fix("Name several, as in --vary tile=4,8,16, or fix one with --set."));
        }
        space = space.with_constant(name, list);
    }
    Ok(Some(space))
}
