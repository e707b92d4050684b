//! `vyre run` and `vyre check`.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use vyre::ir::Math;
use vyre::{Diagnostic, DispatchConfig, Engine, Prepared, codes};

use crate::args::{Check, Run};
use crate::data::{self, Place, Value};
use crate::explain::mark_absent;
use crate::files::{self, Outbox};
use crate::job::Job;
use crate::launch::Launched;
use crate::pipeline;
use crate::progress::Progress;
use crate::report::{Failure, Output, quantiles, time};
use crate::source::{OpenSource, SourceFile, nearest};

pub(crate) fn run(args: &Run, output: &Output) -> Result<(), Failure> {
    if let Some(spec) = pipeline::Spec::of(&args.kernel, &args.passes, &args.inputs)? {
        return pipeline::run(args, spec, output);
    }
    if args.every.is_some() {
        return Err(Diagnostic::new(&codes::command::BAD_ARGUMENT, "`--every` is for runs of several steps")
            .with_fix("Give `--steps N`, too.")
            .into());
    }
    let job = Job::new(&args.kernel, &args.inputs)?;
    // Wrong names are told before anything runs.
    let files = args.outputs.iter().map(|text| job.result_name(text)).collect::<Result<Vec<_>, _>>()?;
    let beside = targets(args, &files, output)?;
    let engine = Engine::open()?;
    if args.trace.is_some() {
        engine.metrics().start_trace();
    }
    let plan = job.plan()?;
    let prepared = prepare(&engine, &job, &args.inputs.backend)?;
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
        check_against_reference(&engine, &job, &results)?;
    }
    let mut explanation = prepared.explain();
    let [median] = quantiles(&mut times.clone(), [0.5]);
    let origin = job.origin(&args.kernel.launch);
    let launched = Launched::new(Some(&plan), origin, &job.filled, &explanation, Some(median));
    let mut outbox = Outbox::default();
    if let Some(path) = &args.trace {
        outbox.stage(path, engine.metrics().finish_trace().into_bytes())?;
    }
    if !output.json {
        output.print_beside(&launched.line());
    }
    output.problems(&job.warnings);
    output.problems(&engine.take_notices());
    let results = job.results(results);
    let (mut text, described) = describe(&results, &files, &mut outbox, output.json)?;
    outbox.deliver()?;
    let mut report = json!({ "results": described, "launch": launched.json() });
    if args.check {
        text.push(agreed(job.source.program.math()));
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
    if args.explain {
        mark_absent(&engine, &mut explanation);
        text.push(explanation.to_string());
        report["explanation"] = serde_json::to_value(&explanation).unwrap_or_default();
    }
    say(output, &text, &report, beside)
}

/// Stages what goes to files, and puts the rest into words and JSON.
pub(crate) fn describe(
    results: &[(String, Value)],
    files: &[(&str, Place<'_>)],
    outbox: &mut Outbox,
    as_json: bool,
) -> Result<(Vec<String>, serde_json::Map<String, serde_json::Value>), Failure> {
    let mut described = serde_json::Map::new();
    let mut text = Vec::new();
    for (name, value) in results {
        let targets: Vec<_> = files.iter().filter(|(named, _)| named == name).map(|(_, place)| place).collect();
        for place in &targets {
            outbox.stage(Path::new(place.path), data::encode(place, value)?)?;
        }
        let shape: Vec<String> = value.shape.iter().map(usize::to_string).collect();
        let paths: Vec<&str> = targets.iter().map(|place| place.path).collect();
        if targets.is_empty() {
            text.push(format!("{name}: {}", data::summary(value)));
        } else {
            text.push(format!("{name}: {} [{}] written to {}", value.ty, shape.join(" x "), paths.join(", ")));
        }
        if as_json {
            let mut result = data::json(value);
            result["files"] = json!(paths);
            described.insert(name.clone(), result);
        }
    }
    Ok((text, described))
}

/// Prints what there is to say, beside the data of a result where that goes to standard output.
pub(crate) fn say(output: &Output, text: &[String], report: &serde_json::Value, beside: bool) -> Result<(), Failure> {
    match (output.json, beside) {
        (true, _) => output.print_json(report),
        (false, true) => {
            output.print_beside(&text.join("\n"));
            Ok(())
        }
        (false, false) => output.print(&text.join("\n")),
    }
}

/// The kernel on the backend that was asked for.
pub(crate) fn prepare(engine: &Engine, job: &Job, backend: &str) -> Result<Prepared, Failure> {
    Ok(match backend {
        "auto" => engine.prepare_with(&job.source.program, &job.config)?,
        name => {
            known_backend(engine, name)?;
            engine.prepare_on(name, &job.source.program, &job.config)?
        }
    })
}

/// That a check found nothing wrong.
pub(crate) fn agreed(math: Math) -> String {
    let words = match math {
        Math::Exact => "check: the reference interpreter agrees",
        Math::Fast => "check: as near to the reference interpreter as fast arithmetic promises",
    };
    words.to_owned()
}

/// Refuses files that would overwrite each other; true when the data of a result goes to standard output.
fn targets(args: &Run, files: &[(&str, Place<'_>)], output: &Output) -> Result<bool, Diagnostic> {
    let mut all: Vec<(String, &Path)> = vec![("the kernel".to_owned(), &args.kernel.kernel)];
    all.extend(files.iter().map(|(name, place)| (format!("the result `{name}`"), Path::new(place.path))));
    all.extend(args.trace.as_deref().map(|path| ("the trace".to_owned(), path)));
    beside(&all, output)
}

/// Refuses two names of one file; true when one of them is standard output.
pub(crate) fn beside(all: &[(String, &Path)], output: &Output) -> Result<bool, Diagnostic> {
    files::distinct(all)?;
    let beside = all.iter().any(|(_, path)| files::is_standard_output(path));
    if beside && output.json {
        let message = "standard output can't take a result and the JSON document";
        return Err(Diagnostic::new(&codes::command::BAD_ARGUMENT, message)
            .with_fix("Write the result to a file, or leave `--json` out."));
    }
    Ok(beside)
}

/// What math functions may differ by is written in the conformance page; this is the largest of them.
pub(crate) const ULPS: u8 = 8;
/// How long a check may take where nobody says otherwise.
pub(crate) const CHECKED_FOR: Duration = Duration::from_secs(60);

pub(crate) fn too_long(limit: Duration, estimate: Option<Duration>) -> Failure {
    let limit_s = limit.as_secs_f64();
    let takes = match estimate.filter(|estimate| *estimate > limit) {
        Some(estimate) => format!("about {:.0} s, and may take {limit_s} s", estimate.as_secs_f64()),
        None => format!("longer than {limit_s} s"),
    };
    let message = format!("the reference interpreter would take {takes}, so nothing is checked");
    Diagnostic::new(&codes::command::CHECK_TOO_LONG, message).into()
}

/// How long the reference interpreter will take, from how long it takes for one workgroup of many.
fn estimate(engine: &Engine, job: &Job, config: &DispatchConfig) -> Option<Duration> {
    const FEW: u64 = 16;
    let groups = job.plan().ok()?.grid.iter().fold(1u64, |product, &axis| product.saturating_mul(axis.into()));
    if groups < FEW {
        return None;
    }
    let mut one = config.clone();
    (one.grid_override, one.domain_override) = (Some([1; 3]), None);
    let started = Instant::now();
    engine.run_on("reference", &job.source.program, &job.inputs(), &one).ok()?;
    Some(Duration::from_secs_f64((started.elapsed().as_secs_f64() * groups as f64).min(1e9)))
}

/// Runs the reference interpreter on the same inputs, for a while.
fn check_against_reference(engine: &Engine, job: &Job, results: &[Vec<u8>]) -> Result<(), Failure> {
    let mut config = job.config.clone();
    let limit = *config.timeout.get_or_insert(CHECKED_FOR);
    let estimate = estimate(engine, job, &config);
    let about = estimate.map_or(String::new(), |estimate| format!("about {:.0} s, ", estimate.as_secs_f64().ceil()));
    let what = format!("checking, {about}at most {} s: reference interpreter", limit.as_secs());
    let progress = Progress::new(what, None);
    let expected = engine.run_on("reference", &job.source.program, &job.inputs(), &config).map_err(|error| {
        // It counts instructions; so many as it does in that time, about.
        if error.code() != codes::reference::BUDGET.id {
            return Failure::from(error);
        }
        too_long(limit, estimate)
    })?;
    drop(progress);
    if job.source.program.math() == Math::Fast {
        return check_nearness(job, &expected, results, limit);
    }
    let first = vyre::routing::first_difference(&job.source.program, Some(ULPS), &expected, results);
    let Some(first) = first else { return Ok(()) };
    let found = first.place.and_then(|place| differing(job, place, &expected, results)).unwrap_or(first.message);
    let message = format!("the reference disagrees: {found}");
    Err(Failure::Difference(Diagnostic::new(&codes::command::DIFFERENCE, message)))
}

/// How many steps of evaluations with deviations are done in a second, about.
pub(crate) const STEPS_PER_SECOND: f64 = 5.0e6;

/// What it means that an evaluation with deviations came to the end of its steps.
pub(crate) fn spread_too_long(problem: Diagnostic) -> Diagnostic {
    if problem.code.id != codes::kernel::BUDGET.id {
        return problem;
    }
    let message =
        "finding out how far apart results of fast arithmetic may lie would take too long, so nothing is checked";
    Diagnostic::new(&codes::command::CHECK_TOO_LONG, message)
}

/// Compares results of fast arithmetic with the exact ones, by how far evaluations with deviations that WGSL allows lie apart.
fn check_nearness(job: &Job, expected: &[Vec<u8>], results: &[Vec<u8>], limit: Duration) -> Result<(), Failure> {
    let _progress = Progress::new("checking: how far apart the results may lie", None);
    let valid = job.source.validate()?;
    let inputs = job.inputs();
    let plan = vyre::plan(&valid, &inputs, &job.config)?;
    let specialization = job.config.specialization.resolve(&valid)?;
    let budget = (limit.as_secs_f64() * STEPS_PER_SECOND) as u64;
    let spread = vyre::near::spread(&valid, &plan, &specialization, &inputs, budget).map_err(spread_too_long)?;
    let Some(beyond) = spread.first_beyond(&valid, expected, results) else { return Ok(()) };
    let place = differing(job, (beyond.result, beyond.byte), expected, results);
    let place = place.unwrap_or_else(|| format!("{} instead of {}", beyond.actual, beyond.expected));
    let message =
        format!("the reference disagrees: {place}, and {:e} off is allowed in fast arithmetic", beyond.allowed);
    Err(Failure::Difference(Diagnostic::new(&codes::command::DIFFERENCE, message)))
}

/// The first element that differs, with both its values.
pub(crate) fn differing(
    job: &Job,
    (result, byte): (usize, usize),
    expected: &[Vec<u8>],
    results: &[Vec<u8>],
) -> Option<String> {
    let (expected, results) = (job.results(expected.to_vec()), job.results(results.to_vec()));
    let ((name, right), (_, wrong)) = (expected.get(result)?, results.get(result)?);
    let layout = wrong.layout.as_ref()?;
    let (element, within) = (byte / layout.size, byte % layout.size);
    let field = layout.fields.iter().rposition(|field| field.offset <= within)?;
    let at = element * layout.fields.len() + field;
    let member = match layout.fields[field].name.as_str() {
        "" => String::new(),
        name => format!(".{name}"),
    };
    let differing = (0..wrong.len()).filter(|&at| wrong.show(at) != right.show(at)).count();
    Some(format!(
        "`{name}[{element}]{member}` is {}, and should be {}; {differing} of {} numbers differ",
        wrong.show(at),
        right.show(at),
        wrong.len()
    ))
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
        _ if name == "gpu" => {
            let gpus: Vec<&str> =
                names.iter().copied().filter(|name| *name == "cuda" || name.starts_with("wgpu")).collect();
            match gpus[..] {
                [] => "this build of the command has none for GPUs".to_owned(),
                _ => format!("those for GPUs are {}", gpus.join(", ")),
            }
        }
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there are auto, {}", names.join(", ")),
    };
    Err(Diagnostic::new(&codes::command::UNKNOWN_BACKEND, format!("there is no backend `{name}`; {hint}")))
}

pub(crate) fn check(args: &Check, output: &Output) -> Result<(), Failure> {
    let mut problems = Vec::new();
    let mut good = Vec::new();
    for path in &args.kernels {
        match check_file(path, args) {
            Ok(checked) => {
                for (entry, found) in checked {
                    match found {
                        Ok(()) => good.push((path.display().to_string(), entry)),
                        // What is wrong outside of the entry points is wrong with each.
                        Err(found) => {
                            problems.extend(found.into_iter().filter(|new| !problems.contains(new)).collect::<Vec<_>>())
                        }
                    }
                }
            }
            Err(Failure::Diagnostics(found)) => problems.extend(found),
            Err(other) => return Err(other),
        }
    }
    if output.json {
        let good: Vec<_> = good.iter().map(|(path, entry)| json!({ "file": path, "entry": entry })).collect();
        output.print_json(&json!({ "good": good }))?;
    } else {
        for (path, entry) in &good {
            output.print(&format!("{path}: `{entry}` is valid"))?;
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(Failure::Diagnostics(problems)) }
}

/// The name of an entry point, and what is wrong with it.
type Checked = (String, Result<(), Vec<Diagnostic>>);

/// Every entry point of a file, or the one that was asked for, with what is wrong with it.
fn check_file(path: &Path, args: &Check) -> Result<Vec<Checked>, Failure> {
    if let Some(passes) = pipeline::kernels(path)? {
        let mut checked = Vec::new();
        for (kernel, launch) in passes {
            let set = [&args.set[..], &launch.set].concat();
            checked.extend(check_kernel(&kernel, launch.entry.as_ref(), &set)?);
        }
        return Ok(checked);
    }
    check_kernel(path, args.entry.as_ref(), &args.set)
}

fn check_kernel(path: &Path, entry: Option<&String>, set: &[String]) -> Result<Vec<Checked>, Failure> {
    let file = SourceFile::read(path)?;
    let entries: Vec<Option<String>> = match entry {
        Some(entry) => vec![Some(entry.clone())],
        // A file that can't be parsed has none; importing it tells everything that is wrong.
        None => match file.entry_points() {
            Ok(entries) if entries.len() > 1 => entries.into_iter().map(Some).collect(),
            _ => vec![None],
        },
    };
    let mut checked = Vec::new();
    for entry in entries {
        let found = OpenSource::import(&file, entry.as_deref(), set).and_then(|open| open.source.validate());
        match found {
            Ok(program) => checked.push((program.name().to_owned(), Ok(()))),
            Err(Failure::Diagnostics(found)) => checked.push((entry.unwrap_or_default(), Err(found))),
            Err(other) => return Err(other),
        }
    }
    Ok(checked)
}
