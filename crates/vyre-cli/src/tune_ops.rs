//! `vyre tune --ops`: compare the forms of every op that has several, and keep what is fastest on this machine.

use std::collections::HashSet;

use serde_json::json;
use vyre::expression::Term;
use vyre::tuner::Mode;
use vyre::{DataType, Diagnostic, Engine, codes};
use vyre_ops::{Op, Parameters, Sample};

use crate::data;
use crate::progress::Progress;
use crate::report::{Failure, Output, time};
use crate::tune::{begin_gently, end_gently, was_asked_to_stop};

pub(crate) fn tune_ops(output: &Output) -> Result<(), Failure> {
    let engine = Engine::builder().tuner(Mode::On).open()?;
    let work: Vec<(&Op, Sample)> = vyre_ops::ops()
        .iter()
        .filter(|op| !op.space.is_empty())
        .flat_map(|op| (op.samples)().into_iter().map(move |sample| (op, sample)))
        .collect();
    let mut known: HashSet<String> = engine.decisions().launches()?.into_iter().map(|decided| decided.key).collect();
    let (mut rows, mut text) = (Vec::new(), vec![heading()]);
    let progress = Progress::new("tuning ops", Some(work.len() as u64));
    begin_gently();
    let mut stopped = false;
    for (op, sample) in &work {
        if was_asked_to_stop() {
            stopped = true;
            break;
        }
        let ran = terms(&engine, sample).and_then(|terms| Ok(op.run(&terms, &Parameters::default())?));
        engine.synchronize();
        // Whatever happens later, this is kept.
        engine.flush()?;
        progress.step();
        let name = format!("{} {}", op.id, describe(sample));
        if let Err(failure) = ran {
            let Failure::Diagnostics(problems) = failure else { return Err(failure) };
            let why = problems.first().map_or("", |problem| problem.message.as_str());
            text.push(format!("{name:<34} not tuned: {why}"));
            rows.push(json!({ "op": op.id, "sample": describe(sample), "problem": why }));
            continue;
        }
        let mut decided = engine.decisions().launches()?;
        decided.retain(|decided| known.insert(decided.key.clone()));
        if decided.is_empty() {
            text.push(format!("{name:<34} known already"));
        }
        for one in decided {
            let (decision, evidence) = (&one.decision, &one.decision.evidence);
            let launch = decision.candidate.to_string();
            text.push(format!(
                "{name:<34} {launch:<24} {:>10} {:>10} {:>+7.1}%",
                time(evidence.default_ns as f64),
                time(evidence.chosen_ns as f64),
                -100.0 * evidence.difference
            ));
            rows.push(json!({
                "op": op.id, "sample": describe(sample), "adapter": one.adapter, "launch": launch,
                "candidates": evidence.candidates, "default_ns": evidence.default_ns, "chosen_ns": evidence.chosen_ns,
                "difference": evidence.difference, "interval": evidence.interval,
            }));
        }
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
            "tuning was stopped; what was decided before is kept",
        ))),
        false => Ok(()),
    }
}

fn heading() -> String {
    format!("{:<34} {:<24} {:>10} {:>10} {:>8}", "op", "launch", "default", "chosen", "gain")
}

fn describe(sample: &Sample) -> String {
    let shape = |(ty, shape): &(DataType, Vec<usize>)| {
        let extents: Vec<String> = shape.iter().map(usize::to_string).collect();
        format!("{ty} {}", extents.join("x"))
    };
    sample.iter().map(shape).collect::<Vec<_>>().join(", ")
}

/// Arrays of random numbers.
fn terms(engine: &Engine, sample: &Sample) -> Result<Vec<Term>, Failure> {
    let mut terms = Vec::new();
    for (at, (ty, shape)) in sample.iter().enumerate() {
        let elements: usize = shape.iter().product();
        let contents = data::read(&format!("random:{ty}:{elements}:seed={}", at + 1), Some(ty))?;
        let Some(layout) = data::Layout::of(&[], ty) else { continue };
        let filled = data::fill(contents, &layout, false)
            .map_err(|misfit| crate::inputs::misfitting("sample", "random numbers", misfit))?;
        terms.push(Term::array(engine.buffer_of(&filled.bytes)?, ty.clone(), (&shape[..]).into()));
    }
    Ok(terms)
}
