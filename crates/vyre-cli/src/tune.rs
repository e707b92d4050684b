//! `vyre tune`: compare a kernel's launches now and keep the decision for all later runs.

use std::sync::atomic::{AtomicU8, Ordering};

use serde_json::json;
use vyre::ir::{BufferKind, Count};
use vyre::tuner::{Candidate, Decision, Space, Verdict};
use vyre::{Diagnostic, Engine, Go, Severity, TuneSample, codes};

use crate::args::{Inputs, Kernel, Tune};
use crate::job::{Job, constant};
use crate::plot;
use crate::progress::Progress;
use crate::report::{Failure, Output, count, quantiles, split, time};
use crate::run::known_backend;
use crate::source::OpenSource;
use crate::tune_ops::tune_ops;
use crate::tune_row::Row;

/// The most bars that are drawn.
const SHOWN: usize = 16;

/// What an interruption does while something is tuned: the first one lets it end by itself, the second ends the command.
static INTERRUPTIONS: AtomicU8 = AtomicU8::new(AT_ONCE);
const AT_ONCE: u8 = 0;
const GENTLE: u8 = 1;
const ASKED: u8 = 2;

/// The command was interrupted; true where it will end by itself.
pub(crate) fn interrupted_gently() -> bool {
    INTERRUPTIONS.compare_exchange(GENTLE, ASKED, Ordering::SeqCst, Ordering::SeqCst).is_ok()
}

/// From here on the first interruption is only noted.
pub(crate) fn begin_gently() {
    INTERRUPTIONS.store(GENTLE, Ordering::SeqCst);
}

pub(crate) fn was_asked_to_stop() -> bool {
    INTERRUPTIONS.load(Ordering::SeqCst) == ASKED
}

pub(crate) fn end_gently() {
    INTERRUPTIONS.store(AT_ONCE, Ordering::SeqCst);
}

pub(crate) fn tune(args: &Tune, output: &Output) -> Result<(), Failure> {
    if let Some(names) = &args.ops {
        return tune_ops(names, &args.inputs.backend, output);
    }
    if args.kernel.kernel.is_dir() {
        return tune_folder(args, output);
    }
    let engine = Engine::open()?;
    let tuned = tune_one(&engine, args, &args.kernel, &args.inputs, None);
    let kept = engine.flush();
    output.problems(&engine.take_notices());
    kept?;
    match tuned {
        Ok((job, tuned)) if args.exhaustive.is_some() => {
            let row = Row::new(&engine, args, &args.kernel, &job, tuned)?;
            match output.json {
                true => output.print_json(&row.json()),
                false => output.print(&format!("{}\n{}", Row::heading(true), row.text(job.source.program.name()))),
            }
        }
        Ok((job, tuned)) => show(args, &job, &tuned, output),
        // That the machine can't tell is an answer, too.
        Err(Failure::Diagnostics(mut problems)) if is_noise(&problems) => {
            problems.iter_mut().for_each(|problem| problem.severity = Severity::Warning);
            output.problems(&problems);
            match output.json {
                true => output.print_json(&json!({ "verdict": Verdict::Noisy })),
                false => output.print("Nothing was decided."),
            }
        }
        Err(failure) => Err(failure),
    }
}

fn is_noise(problems: &[Diagnostic]) -> bool {
    problems.iter().all(|problem| problem.code.id == codes::tuner::TOO_NOISY.id)
}

/// What came of tuning one kernel.
pub(crate) struct Tuned {
    pub(crate) backend: String,
    pub(crate) decision: Decision,
    samples: Vec<(Candidate, Vec<f64>)>,
}

fn tune_one(
    engine: &Engine,
    args: &Tune,
    kernel: &Kernel,
    inputs: &Inputs,
    place: Option<&str>,
) -> Result<(Job, Tuned), Failure> {
    let job = Job::new(kernel, inputs)?;
    let space = space(args, kernel, &job)?;
    let backend = match inputs.backend.as_str() {
        // Where the kernel would run is where its launch matters.
        "auto" => {
            let prepared = engine.prepare_with(&job.source.program, &job.config)?;
            job.fill(&prepared)?;
            prepared.run()?;
            prepared.explain().backend.unwrap_or_default()
        }
        name => {
            known_backend(engine, name)?;
            name.to_owned()
        }
    };
    let what = place.map_or_else(|| format!("tuning on {backend}"), |place| format!("{place} on {backend}"));
    let progress = Progress::new(what, Some(0));
    let mut samples: Vec<(Candidate, Vec<f64>)> = Vec::new();
    let program = &job.source.program;
    INTERRUPTIONS.store(GENTLE, Ordering::SeqCst);
    let mut watch = |sample: TuneSample<'_>| {
        progress.set(sample.taken, sample.at_most);
        match samples.iter_mut().find(|(candidate, _)| candidate == sample.candidate) {
            Some((_, times)) => times.push(sample.ns as f64),
            None => samples.push((sample.candidate.clone(), vec![sample.ns as f64])),
        }
        match INTERRUPTIONS.load(Ordering::SeqCst) {
            ASKED => Go::Stop,
            _ => Go::On,
        }
    };
    let (inputs, space) = (job.inputs(), space.as_ref());
    let decision = engine.tune_watched(&backend, program, &inputs, &job.config, space, args.budget, &mut watch);
    let interrupted = INTERRUPTIONS.swap(AT_ONCE, Ordering::SeqCst) == ASKED;
    drop(progress);
    match decision {
        Ok(decision) => Ok((job, Tuned { backend, decision, samples })),
        Err(error) if interrupted => Err(Failure::Interrupted(error.diagnostic().clone())),
        Err(error) => Err(error.into()),
    }
}

/// Tunes every kernel of a folder, one after the other. What can't be tuned is told and does not stop the others.
fn tune_folder(args: &Tune, output: &Output) -> Result<(), Failure> {
    let files = kernels_in(&args.kernel.kernel)?;
    let engine = Engine::open()?;
    let mut rows: Vec<serde_json::Value> = Vec::new();
    let mut text = vec![Row::heading(args.exhaustive.is_some())];
    let mut stopped = None;
    for (at, path) in files.iter().enumerate() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let kernel = Kernel { kernel: path.clone(), ..args.kernel.clone() };
        let place = format!("{}/{} {name}", at + 1, files.len());
        let tuned = inputs_for(&kernel, &args.inputs, args.size)
            .and_then(|inputs| tune_one(&engine, args, &kernel, &inputs, Some(&place)));
        // Whatever happens later, this one is kept.
        engine.flush()?;
        match tuned {
            Ok((job, tuned)) => {
                let row = Row::new(&engine, args, &kernel, &job, tuned)?;
                text.push(row.text(&name));
                let mut json = row.json();
                json["kernel"] = json!(name);
                rows.push(json);
            }
            Err(Failure::Interrupted(problem)) => {
                stopped = Some(problem);
                break;
            }
            Err(Failure::Diagnostics(problems)) => {
                let why = problems.first().map_or("", |problem| problem.message.as_str());
                text.push(format!("{name:<24} not tuned: {why}"));
                rows.push(json!({ "kernel": name, "problem": problems.first().map(vyre::diagnostics::to_json) }));
            }
            Err(other) => return Err(other),
        }
    }
    output.problems(&engine.take_notices());
    if output.json {
        output.print_json(&json!({ "kernels": rows }))?;
    } else {
        output.print(&text.join("\n"))?;
    }
    stopped.map_or(Ok(()), |problem| Err(Failure::Interrupted(problem)))
}

/// The kernels of a folder, in order of their names.
pub(crate) fn kernels_in(folder: &std::path::Path) -> Result<Vec<std::path::PathBuf>, Diagnostic> {
    let unreadable = |error: std::io::Error| {
        Diagnostic::new(&codes::command::CANT_READ, format!("`{}` can't be read: {error}", folder.display()))
    };
    let mut files: Vec<_> =
        std::fs::read_dir(folder).map_err(unreadable)?.flatten().map(|entry| entry.path()).collect();
    let is_kernel = |path: &std::path::PathBuf| {
        path.extension()
            .and_then(|ending| ending.to_str())
            .is_some_and(|ending| ["wgsl", "spv", "vyre"].contains(&ending))
    };
    files.retain(is_kernel);
    files.sort();
    if files.is_empty() {
        let message = format!("`{}` has no kernels", folder.display());
        return Err(Diagnostic::new(&codes::command::CANT_READ, message)
            .with_fix("Name a folder with .wgsl, .spv or .vyre files."));
    }
    Ok(files)
}

/// What was given for buffers that the kernel has, and random numbers for its other inputs of open length.
pub(crate) fn inputs_for(kernel: &Kernel, inputs: &Inputs, size: u64) -> Result<Inputs, Failure> {
    let source = OpenSource::of(kernel)?.source;
    let program = &source.program;
    let mut inputs = inputs.clone();
    let name_of = |text: &String| text.split(['=', '.', '[']).next().unwrap_or_default().to_owned();
    inputs.inputs.retain(|text| program.buffer(&name_of(text)).is_some());
    inputs.shapes.retain(|text| program.buffer(&name_of(text)).is_some());
    for buffer in program.buffers().iter().filter(|buffer| buffer.kind.is_input()) {
        let given = inputs.inputs.iter().any(|text| name_of(text) == buffer.name.as_str());
        if !given && buffer.count == Count::Runtime && buffer.kind != BufferKind::Uniform {
            let scalar = buffer.ty.as_vector().map_or_else(|| buffer.ty.clone(), |(element, _)| element);
            inputs.inputs.push(format!("{}=random:{scalar}:{size}:seed=1", buffer.name));
        }
    }
    Ok(inputs)
}

fn show(args: &Tune, job: &Job, tuned: &Tuned, output: &Output) -> Result<(), Failure> {
    let Tuned { backend, decision, samples } = tuned;
    let mut measured: Vec<(Candidate, f64)> = Vec::new();
    for (candidate, times) in samples {
        let [median] = quantiles(&mut times.clone(), [0.5]);
        measured.push((candidate.clone(), median));
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
            .map(|(candidate, ns)| json!({ "launch": candidate.to_string(), "workgroup_size": candidate.workgroup_size, "median_ns": ns }))
            .collect();
        return output.print_json(&json!({
            "backend": backend, "workgroup_size": decision.candidate.workgroup_size,
            "launch": decision.candidate.to_string(),
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
        (candidate.to_string(), *ns, note.to_owned())
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
        Verdict::Tie | Verdict::Noisy => "kept, because none is clearly faster,",
    };
    text.push(format!(
        "{backend}: {} is {verdict} of {} ({})",
        decision.candidate,
        count(evidence.candidates as u64, "launch"),
        count(evidence.samples as u64, "timing")
    ));
    if !decision.subject.proven {
        text.push(
            "Results agreed on these inputs, but it is not proven that they always do, so it is not used by itself. \
             `vyre decisions pin` uses it for launches of exactly this size."
                .to_owned(),
        );
    }
    // The same numbers as beside the bars; the interval is of neighbouring runs, which what disturbs the machine disturbs alike.
    if let (Some(chosen), Some(default)) = (median_of(Some(&decision.candidate)), median_of(own.as_ref()))
        && Some(&decision.candidate) != own.as_ref()
    {
        let mut line = format!("{} against {} for the kernel's own launch", time(chosen), time(default));
        if default > 0.0 {
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
        text.push(format!("There was nothing to compare: {}", why_alone(args, job)));
    }
    text.extend(evidence.rejected.iter().map(|reason| format!("rejected {reason}")));
    output.print(&text.join("\n"))
}

/// Why a kernel has a single launch, and what would give it more.
fn why_alone(args: &Tune, job: &Job) -> String {
    let launch = &args.kernel.launch;
    let why = match (launch.workgroup, launch.grid, job.config.grid_override) {
        (Some(_), ..) => "`--workgroup` fixes it. Leave that out.",
        (_, Some(_), _) => {
            "`--grid` fixes it. Leave that out, or let the kernel say how much there is to do: a function `vyre_domain`."
        }
        (.., Some(_)) => {
            "the grid follows from a shape. A function `vyre_domain` in the kernel says how much there is to do instead."
        }
        _ => {
            let freedom = job.config.specialization.resolve(&job.source.program).ok().and_then(|constants| {
                let program = job.source.program.validate().ok()?;
                vyre::launch::freedom(&program, Some(&constants)).ok()
            });
            let depends = |freedom: std::sync::Arc<vyre::launch::Freedom>| {
                format!("the results depend on the workgroup: {}.", freedom.why)
            };
            return freedom.map_or_else(String::new, depends);
        }
    };
    why.to_owned()
}

/// What may be tuned besides the workgroup: the constants of `--vary`, and those that the kernel's text declares to be tunable.
pub(crate) fn space(args: &Tune, kernel: &Kernel, job: &Job) -> Result<Option<Space>, Diagnostic> {
    let mut wanted: Vec<(&str, String)> = Vec::new();
    // The same text may be in a folder of kernels that don't all have the constant.
    let has = |text: &String| {
        let name = text.split('=').next().unwrap_or_default();
        !args.kernel.kernel.is_dir() || job.source.program.constants().iter().any(|constant| constant.name == name)
    };
    wanted.extend(args.vary.iter().filter(|text| has(text)).map(|text| ("--vary", text.clone())));
    let text = std::fs::read(&kernel.kernel).unwrap_or_default();
    for line in String::from_utf8_lossy(&text).lines() {
        if let Some(tunable) = declared_tunable(line) {
            let name = tunable.split('=').next().unwrap_or_default();
            let fixed = |text: &String| text.split('=').next() == Some(name);
            if !kernel.launch.set.iter().any(fixed) && !args.vary.iter().any(fixed) {
                wanted.push(("// vyre: tunable", tunable));
            }
        }
    }
    if wanted.is_empty() {
        return Ok(None);
    }
    let mut space = Space::new();
    for (option, text) in &wanted {
        let (name, values) = split(option, text)?;
        let mut list = Vec::new();
        for value in values.split(',') {
            list.push(constant(&job.source, option, &format!("{name}={value}"))?.1);
        }
        if list.len() < 2 {
            let message = format!("`{option} {text}` names a single value");
            return Err(Diagnostic::new(&codes::command::BAD_ARGUMENT, message)
                .with_fix("Name several, as in --vary tile=4,8,16, or fix one with --set."));
        }
        space = space.with_constant(name, list);
    }
    Ok(Some(space))
}

/// `// vyre: tunable TILE = 8, 16, 32` as `TILE=8,16,32`.
fn declared_tunable(line: &str) -> Option<String> {
    let rest = line.trim().strip_prefix("//")?.trim_start().strip_prefix("vyre:")?.trim_start();
    let rest = rest.strip_prefix("tunable")?.strip_prefix([' ', '\t'])?;
    Some(rest.chars().filter(|c| !c.is_whitespace()).collect())
}
