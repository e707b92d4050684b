//! `vyre run` and `vyre check`.

use std::time::Instant;

use serde_json::json;
use vyre::{Diagnostic, Engine, codes};

use crate::args::{Check, Run};
use crate::data;
use crate::files::Outbox;
use crate::job::{Job, Source, nearest};
use crate::progress::Progress;
use crate::report::{Failure, Output, quantiles, time};

pub(crate) fn run(args: &Run, output: &Output) -> Result<(), Failure> {
    let job = Job::new(&args.kernel, &args.inputs)?;
    // Wrong names are told before anything runs.
    let files = args.outputs.iter().map(|text| job.result_name(text)).collect::<Result<Vec<_>, _>>()?;
    let engine = Engine::open()?;
    if args.trace.is_some() {
        engine.metrics().start_trace();
    }
    let prepared = match args.inputs.backend.as_str() {
        "auto" => engine.prepare_with(&job.source.program, &job.config)?,
        name => {
            known_backend(&engine, name)?;
            engine.prepare_on(name, &job.source.program, &job.config)?
        }
    };
    let mut times = Vec::new();
    let progress = Progress::new("running", args.repeat.map(u64::from));
    for _ in 0..args.repeat.unwrap_or(1) {
        // Every round starts from the same contents.
        job.fill(&prepared)?;
        let started = Instant::now();
        prepared.run()?;
        times.push(started.elapsed().as_nanos() as f64);
        progress.step();
    }
    drop(progress);
    let mut results = Vec::new();
    for index in job.source.program.binding_order() {
        let buffer = &job.source.program.buffers()[index];
        if buffer.kind.is_result() {
            results.push(prepared.get(buffer.name.as_str())?);
        }
    }
    if args.check {
        let _progress = Progress::new("running the reference interpreter", None);
        let expected = engine.run_on("reference", &job.source.program, &job.inputs(), &job.config)?;
        // What math functions may differ by is written in the conformance page; this is the largest of them.
        const ULPS: u8 = 8;
        if let Some(difference) = vyre::routing::difference(&job.source.program, Some(ULPS), &expected, &results) {
            let message = format!("the reference disagrees: {difference}");
            return Err(Failure::Difference(Diagnostic::new(&codes::command::DIFFERENCE, message)));
        }
    }
    let explanation = args.explain.then(|| prepared.explain());
    let mut outbox = Outbox::default();
    if let Some(path) = &args.trace {
        outbox.stage(path, engine.metrics().finish_trace().into_bytes())?;
    }
    output.problems(&engine.take_notices());
    let results = job.results(results);
    let mut described = serde_json::Map::new();
    let mut text = Vec::new();
    for (name, array) in &results {
        let targets: Vec<_> = files.iter().filter(|(named, _)| named == name).map(|(_, file)| *file).collect();
        for file in &targets {
            outbox.stage(file, data::encode(file, array)?)?;
        }
        let shape: Vec<String> = array.shape.iter().map(usize::to_string).collect();
        if targets.is_empty() {
            text.push(format!("{name}: {}", data::summary(array)));
        } else {
            let files: Vec<String> = targets.iter().map(|file| file.display().to_string()).collect();
            text.push(format!("{name}: {} [{}] written to {}", array.ty, shape.join(" x "), files.join(", ")));
        }
        described.insert(
            name.clone(),
            json!({ "type": array.ty.to_string(), "shape": array.shape, "summary": data::summary(array),
                    "files": targets.iter().map(|file| file.display().to_string()).collect::<Vec<_>>() }),
        );
    }
    outbox.deliver()?;
    let mut report = json!({ "results": described });
    if args.check {
        text.push("check: the reference interpreter agrees".to_owned());
        report["check"] = json!("agrees");
    }
    if args.repeat.is_some() {
        let [fastest, median, within] = quantiles(&mut times, [0.0, 0.5, 0.9]);
        text.push(format!(
            "time of {} runs: median {}, fastest {}, 90% within {}",
            times.len(),
            time(median),
            time(fastest),
            time(within)
        ));
        report["times_ns"] = json!({ "runs": times.len(), "median": median, "fastest": fastest, "p90": within });
    }
    if let Some(explanation) = explanation {
        text.push(explanation.to_string());
        report["explanation"] = serde_json::to_value(&explanation).unwrap_or_default();
    }
    if output.json { output.print_json(&report) } else { output.print(&text.join("\n")) }
}

/// Refuses a name that no backend has, and offers the nearest.
pub(crate) fn known_backend(engine: &Engine, name: &str) -> Result<(), Diagnostic> {
    let known = engine.backend_ids();
    let names: Vec<&str> = known.iter().map(|id| id.as_str()).collect();
    // The second device of a backend is `cuda:1`; which of them are there only the backend knows.
    let (family, device) = name.split_once(':').unwrap_or((name, "0"));
    if names.contains(&name) || (names.contains(&family) && device.parse::<usize>().is_ok()) {
        return Ok(());
    }
    let hint = match nearest(name, &names) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there are auto, {}", names.join(", ")),
    };
    Err(Diagnostic::new(&codes::command::UNKNOWN_BACKEND, format!("there is no backend `{name}`; {hint}")))
}

pub(crate) fn check(args: &Check, output: &Output) -> Result<(), Failure> {
    let mut problems = Vec::new();
    let mut good = Vec::new();
    for path in &args.kernels {
        let checked = Source::read(path, args.entry.as_deref())
            .and_then(|source| source.program.validate().map_err(|found| Failure::Diagnostics(found.to_vec())));
        match checked {
            Ok(program) => good.push((path.display().to_string(), program)),
            Err(Failure::Diagnostics(found)) => problems.extend(found),
            Err(other) => return Err(other),
        }
    }
    if output.json {
        let good: Vec<_> =
            good.iter().map(|(path, program)| json!({ "file": path, "entry": program.name() })).collect();
        output.print_json(&json!({ "good": good, "problems": vyre::diagnostics::to_json_all(&problems) }))?;
    } else {
        for (path, program) in &good {
            output.print(&format!("{path}: `{}` is valid", program.name()))?;
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(Failure::Diagnostics(problems)) }
}
