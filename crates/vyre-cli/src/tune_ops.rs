//! `vyre tune --ops`: compare the forms of every op that has several, and keep what is fastest on this machine.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use vyre::expression::Term;
use vyre::tuner::Mode;
use vyre::{Decided, Diagnostic, Engine, Error, codes};
use vyre_ops::{Op, Sample};

use crate::progress::Progress;
use crate::report::{Failure, Output, quantiles, time};
use crate::run::known_backend;
use crate::tune::{begin_gently, end_gently, was_asked_to_stop};

/// Rounds in which an op runs as it is and as it was tuned, and the time that each side of a round takes at least.
const ROUNDS: usize = 15;
const ROUND_SECONDS: f64 = 4e-3;

pub(crate) fn tune_ops(names: &[String], backend: &str, output: &Output) -> Result<(), Failure> {
    let engine = engine(backend, true)?;
    // What was tuned is compared with what nobody has tuned, from the array to the result.
    let plain = self::engine(backend, false)?;
    let mut work: Vec<(&Op, Sample)> = Vec::new();
    for op in vyre_ops::ops().iter().filter(|op| names.is_empty() || names.iter().any(|name| name == op.id)) {
        work.extend(op.samples().into_iter().map(|sample| (op, sample)));
    }
    for name in names {
        if vyre_ops::op(name)?.space().is_empty() {
            let message = format!("`{name}` has one form, and nothing about it to tune");
            return Err(Diagnostic::new(&codes::command::BAD_ARGUMENT, message).into());
        }
    }
    let (mut rows, mut text) = (Vec::new(), vec![heading()]);
    let progress = Progress::new("tuning ops", Some(work.len() as u64));
    begin_gently();
    let mut stopped = false;
    for (op, sample) in &work {
        if was_asked_to_stop() {
            stopped = true;
            break;
        }
        let before = engine.decisions().launches()?;
        let tuned = tune_one(&engine, &plain, op, sample);
        // Whatever happens later, this is kept.
        engine.flush()?;
        progress.step();
        let name = format!("{} {}", op.id, sample.describe());
        let times = match tuned {
            Ok(times) => times,
            Err(error) => {
                let why = error.message();
                text.push(format!("{name:<44} not tuned: {why}"));
                rows.push(json!({ "op": op.id, "sample": sample.describe(), "problem": why }));
                continue;
            }
        };
        let (line, row) = outcome(&engine, op, sample, &before, &times, output)?;
        text.push(line);
        rows.push(row);
    }
    end_gently();
    drop(progress);
    output.problems(&engine.take_notices());
    match output.json {
        true => output.print_json(&json!({ "ops": rows }))?,
        false => output.print(&text.join("\n"))?,
    }
    match stopped {
        true => Err(Failure::Interrupted(Diagnostic::new(
            &codes::engine::NOT_TUNED,
            "tuning was stopped; what was decided before is kept, and the next time goes on from there",
        ))),
        false => Ok(()),
    }
}

/// What was decided for a sample, in a line and as JSON; a choice that is slower in use is forgotten.
fn outcome(
    engine: &Engine,
    op: &Op,
    sample: &Sample,
    before: &[Decided],
    times: &Times,
    output: &Output,
) -> Result<(String, Value), Failure> {
    let mut decided = engine.decisions().launches()?;
    decided.retain(|new| !before.iter().any(|old| old.key == new.key && old.adapter == new.adapter));
    let chosen: Vec<String> = decided
        .iter()
        .filter(|one| one.decision.candidate.variant.is_some() || one.decision.evidence.difference != 0.0)
        .map(|one| format!("{}: {}", one.decision.subject.program, one.decision.candidate))
        .collect();
    let (noise, others): (Vec<_>, Vec<_>) =
        engine.take_notices().into_iter().partition(|notice| notice.code.id == codes::tuner::TOO_NOISY.id);
    output.problems(&others);
    let mut said = match (decided.is_empty(), chosen.is_empty()) {
        (true, _) if noise.is_empty() => "as decided before".to_owned(),
        (_, true) => "as it is".to_owned(),
        _ => chosen.join(", "),
    };
    if !noise.is_empty() {
        said += " (too noisy to tell; tune again)";
    }
    if times.is_slower() {
        // Alone it was faster; what counts is how the op runs with it.
        let keys: BTreeSet<&str> = decided.iter().map(|one| one.key.as_str()).collect();
        for key in keys {
            engine.decisions().forget(key)?;
        }
        engine.flush()?;
        said = match decided.is_empty() {
            true => format!("{said}, for others of the same size; slower here"),
            false => format!("as it is; {said} is slower in use, and forgotten"),
        };
    }
    let name = format!("{} {}", op.id, sample.describe());
    let [plain_ns, tuned_ns] = [times.plain, times.tuned].map(|seconds| seconds * 1e9);
    let line = format!(
        "{name:<44} {:>10} {:>10} {:>5.2} [{:.2}, {:.2}]  {said}",
        time(plain_ns),
        time(tuned_ns),
        times.gain[1],
        times.gain[0],
        times.gain[2]
    );
    let launches: Vec<Value> = decided
        .iter()
        .map(|one| {
            let evidence = &one.decision.evidence;
            json!({
                "adapter": one.adapter, "program": one.decision.subject.program,
                "launch": one.decision.candidate.to_string(), "candidates": evidence.candidates,
                "default_ns": evidence.default_ns, "chosen_ns": evidence.chosen_ns,
                "difference": evidence.difference, "interval": evidence.interval,
            })
        })
        .collect();
    let row = json!({
        "op": op.id, "sample": sample.describe(), "default_ns": plain_ns, "tuned_ns": tuned_ns, "gain": times.gain,
        "noisy": !noise.is_empty(), "launches": launches,
    });
    Ok((line, row))
}

/// All devices, or one of them.
fn engine(backend: &str, tuned: bool) -> Result<Engine, Failure> {
    let builder = || match tuned {
        true => Engine::builder().tuner(Mode::On),
        false => Engine::builder().tuner(Mode::OffUseDefault),
    };
    let all = builder().open()?;
    if backend == "auto" {
        return Ok(all);
    }
    known_backend(&all, backend)?;
    Ok(builder().without_default_backends().with_backend(all.backend(backend)?, 1).open()?)
}

/// Seconds of an op as it is and as it was tuned, and how much faster the latter was: a quarter of the rounds, half of them and three
/// quarters had less.
struct Times {
    plain: f64,
    tuned: f64,
    gain: [f64; 3],
}

/// Three quarters of the rounds are to be slower by this much before a decision is forgotten.
const SLOWER: f64 = 0.97;

impl Times {
    fn is_slower(&self) -> bool {
        self.gain[2] < SLOWER
    }
}

fn tune_one(engine: &Engine, plain: &Engine, op: &Op, sample: &Sample) -> Result<Times, Error> {
    let terms = [sample.terms(plain)?, sample.terms(engine)?];
    // The launches are tuned in the first run.
    let mut seconds = run(op, sample, &terms[1], 1)?;
    run(op, sample, &terms[0], 1)?;
    seconds = seconds.min(run(op, sample, &terms[0], 1)?);
    let runs = (ROUND_SECONDS / seconds.max(1e-7)).clamp(1.0, 256.0) as u32;
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        // Whoever runs second finds other caches and clocks, so they take turns.
        for which in [round % 2, 1 - round % 2] {
            times[which].push(run(op, sample, &terms[which], runs)?);
        }
    }
    let mut ratios: Vec<f64> = times[0].iter().zip(&times[1]).map(|(plain, tuned)| plain / tuned).collect();
    let [plain, tuned] = times.map(|mut times| quantiles(&mut times, [0.5])[0]);
    Ok(Times { plain, tuned, gain: quantiles(&mut ratios, [0.25, 0.5, 0.75]) })
}

/// Seconds of a run from its arrays to its results, as the mean of several. Each is waited for: launches that run beside each other would
/// hide what one of them leaves unused.
fn run(op: &Op, sample: &Sample, terms: &[Term], runs: u32) -> Result<f64, Error> {
    let started = Instant::now();
    for _ in 0..runs {
        for output in op.run(terms, &sample.parameters)? {
            while !output.buffer.wait_timeout(Duration::from_secs(1))? {}
        }
    }
    Ok(started.elapsed().as_secs_f64() / f64::from(runs))
}

fn heading() -> String {
    format!("{:<44} {:>10} {:>10} {:>5} {:<13} launches", "op", "default", "tuned", "gain", "[quartiles]")
}
