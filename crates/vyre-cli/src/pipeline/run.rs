//! `vyre run`, `vyre bench` and `vyre explain` of a pipeline.

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use vyre::ir::Math;
use vyre::near::Evaluations;
use vyre::{Diagnostic, Engine, Explanation, codes};

use super::{Pass, Pipeline, Running, Spec};
use crate::args::{Bench, Explain, Run};
use crate::bench::{Racer, race};
use crate::data::{self, Place};
use crate::explain::mark_absent;
use crate::files::{self, Outbox};
use crate::launch::Launched;
use crate::progress::Progress;
use crate::report::{Failure, Output, count, split, time};
use crate::run::{
    CHECKED_FOR, STEPS_PER_SECOND, ULPS, agreed, beside, describe, differing, say, spread_too_long, too_long,
};

/// So many steps are queued before the first of them is waited for.
const AHEAD: usize = 8;

pub(crate) fn run(args: &Run, mut spec: Spec, output: &Output) -> Result<(), Failure> {
    spec.merge_outputs(&args.outputs, args.every);
    if args.repeat.is_some() {
        let message = "`--repeat` times one kernel, and this is a pipeline";
        return Err(Diagnostic::new(&codes::command::BAD_ARGUMENT, message)
            .with_fix("Use `vyre bench` to time it, or `--steps` to run it several times.")
            .into());
    }
    let pipeline = Pipeline::new(&spec)?;
    let outputs = Outputs::new(&pipeline, &spec)?;
    let beside = outputs.targets(args, &spec, output)?;
    let engine = Engine::open()?;
    if args.trace.is_some() {
        engine.metrics().start_trace();
    }
    let mut running = pipeline.start(&engine, &spec.inputs.backend)?;
    let started = Instant::now();
    let frames = running.all(&outputs)?;
    let ns = started.elapsed().as_nanos() as f64;
    let mut results = Vec::new();
    for (at, slot) in pipeline.slots.iter().enumerate().filter(|(_, slot)| slot.written) {
        results.push((slot.name.clone(), pipeline.value(at, running.buffers[at].to_vec()?)));
    }
    let launches = running.launches()?;
    if !output.json {
        for (at, (pass, launched)) in pipeline.passes.iter().zip(&launches).enumerate() {
            let name = pass.job.source.program.name();
            output.print_beside(&format!("pass {} of {}, `{name}`: {}", at + 1, launches.len(), launched.line()));
        }
        output.print_beside(&format!("{} in {}", count(pipeline.steps.into(), "step"), time(ns)));
    }
    for pass in &pipeline.passes {
        output.problems(&pass.job.warnings);
    }
    if args.check {
        running.check(&engine)?;
    }
    let mut outbox = Outbox::default();
    if let Some(path) = &args.trace {
        outbox.stage(path, engine.metrics().finish_trace().into_bytes())?;
    }
    output.problems(&engine.take_notices());
    let (mut text, described) = describe(&results, &outputs.whole, &mut outbox, output.json)?;
    outbox.deliver()?;
    if frames > 0 {
        text.push(format!("{} written", count(frames, "frame")));
    }
    let name = |(pass, launched): (&Pass, &Launched)| {
        let mut described = launched.json();
        described["pass"] = json!(pass.job.source.program.name());
        described
    };
    let passes: Vec<_> = pipeline.passes.iter().zip(&launches).map(name).collect();
    let mut report = json!({
        "results": described, "passes": passes, "steps": pipeline.steps, "frames": frames, "time_ns": ns,
    });
    if args.check {
        text.push(agreed(if pipeline.passes.iter().any(is_fast) { Math::Fast } else { Math::Exact }));
        report["check"] = json!("agrees");
    }
    if args.explain {
        let explanations = running.explanations();
        text.extend(explanations.iter().map(ToString::to_string));
        report["explanations"] = serde_json::to_value(&explanations).unwrap_or_default();
    }
    say(output, &text, &report, beside)
}

pub(crate) fn explain(args: &Explain, mut spec: Spec, output: &Output) -> Result<(), Failure> {
    // How it runs is known after one step.
    spec.steps = Some(1);
    let pipeline = Pipeline::new(&spec)?;
    let engine = Engine::open()?;
    let mut running = pipeline.start(&engine, &args.inputs.backend)?;
    if let Some(last) = running.step()? {
        last.wait()?;
    }
    let explanations = running.explanations();
    output.problems(&engine.take_notices());
    if output.json {
        return output.print_json(&json!({ "passes": serde_json::to_value(&explanations).unwrap_or_default() }));
    }
    let text: Vec<String> = explanations.iter().map(ToString::to_string).collect();
    output.print(&text.join("\n"))
}

pub(crate) fn bench(args: &Bench, spec: &Spec, output: &Output) -> Result<(), Failure> {
    let pipeline = Pipeline::new(spec)?;
    let engine = Engine::open()?;
    race(args, &engine, output, &mut |backend| {
        let mut running = pipeline.start(&engine, backend)?;
        let run: Racer<'_> = Box::new(move || running.all(&Outputs::default()).map(drop));
        Ok(run)
    })
}

impl Running<'_> {
    /// All steps, with the frames that are asked for; their number.
    fn all(&mut self, outputs: &Outputs<'_>) -> Result<u64, Failure> {
        let steps = self.pipeline.steps;
        let progress = Progress::new("running", Some(steps.into()));
        let mut queued = VecDeque::new();
        let mut frames = 0;
        for step in 1..=steps {
            queued.extend(self.step()?);
            if queued.len() > AHEAD
                && let Some(launch) = queued.pop_front()
            {
                launch.wait()?;
                progress.step();
            }
            if outputs.every.is_some_and(|every| step % every == 0) {
                frames += 1;
                self.write_frame(outputs, frames)?;
            }
        }
        for launch in queued {
            launch.wait()?;
            progress.step();
        }
        Ok(frames)
    }

    /// Each frame is whole as soon as it is there.
    fn write_frame(&self, outputs: &Outputs<'_>, frame: u64) -> Result<(), Failure> {
        for (name, pattern) in &outputs.frames {
            let slot = self.pipeline.slot(name)?;
            let value = self.pipeline.value(slot, self.buffers[slot].to_vec()?);
            let path = pattern.path(frame);
            let place = Place { format: pattern.place.format, path: &path };
            files::replace(Path::new(&path), data::encode(&place, &value)?)?;
        }
        Ok(())
    }

    fn launches(&self) -> Result<Vec<Launched>, Failure> {
        let passes = self.pipeline.passes.iter().zip(&self.kernels);
        let launched = passes.map(|(pass, kernel)| {
            let origin = pass.job.origin(&pass.launch);
            Ok(Launched::new(pass.job.plan().ok().as_ref(), origin, &pass.job.filled, &kernel.explain(), None))
        });
        launched.collect()
    }

    fn explanations(&self) -> Vec<Explanation> {
        let mut all: Vec<Explanation> = self.kernels.iter().map(vyre::Kernel::explain).collect();
        all.iter_mut().for_each(|explanation| mark_absent(self.engine, explanation));
        all
    }

    /// Compares what is in the buffers with what the reference interpreter has there after as many steps.
    fn check(&self, engine: &Engine) -> Result<(), Failure> {
        let started = Instant::now();
        let limit = self.pipeline.passes.iter().find_map(|pass| pass.job.config.timeout).unwrap_or(CHECKED_FOR);
        let mut reference = self.pipeline.start(engine, "reference")?;
        let what = format!("checking, at most {} s: reference interpreter", limit.as_secs());
        let progress = Progress::new(what, Some(self.pipeline.steps.into()));
        for _ in 0..self.pipeline.steps {
            let left = limit.saturating_sub(started.elapsed());
            if left == Duration::ZERO {
                return Err(too_long(limit, None));
            }
            reference.limit = Some(left);
            let done = reference.step().and_then(|last| Ok(last.map_or(Ok(()), |launch| launch.wait())?));
            match done {
                Err(Failure::Diagnostics(problems)) if problems[0].code.id == codes::reference::BUDGET.id => {
                    return Err(too_long(limit, None));
                }
                done => done?,
            }
            progress.step();
        }
        drop(progress);
        let evaluations = match self.pipeline.passes.iter().any(is_fast) {
            true => Some(self.evaluations(limit.saturating_sub(started.elapsed()))?),
            false => None,
        };
        for pass in &self.pipeline.passes {
            let program = &pass.job.source.program;
            let order = program.binding_order();
            let written =
                order.iter().zip(&pass.slots).filter(|(index, _)| program.buffers()[**index].kind.is_result());
            let slots: Vec<usize> = written.map(|(_, &slot)| slot).collect();
            let read = |from: &Running<'_>| {
                slots.iter().map(|&slot| from.buffers[slot].to_vec()).collect::<Result<Vec<_>, _>>()
            };
            let (expected, results) = (read(&reference)?, read(self)?);
            let found = match &evaluations {
                Some(evaluations) => beyond(pass, evaluations, &expected, &results),
                None => vyre::routing::first_difference(program, Some(ULPS), &expected, &results).map(|first| {
                    let found = first.place.and_then(|place| differing(&pass.job, place, &expected, &results));
                    found.unwrap_or(first.message)
                }),
            };
            if let Some(found) = found {
                let message = format!("the reference disagrees after the pass `{}`: {found}", program.name());
                return Err(Failure::Difference(Diagnostic::new(&codes::command::DIFFERENCE, message)));
            }
        }
        Ok(())
    }

    /// The same steps several times, with deviations that WGSL allows in fast arithmetic: how far they lie apart says how far results may.
    fn evaluations(&self, limit: Duration) -> Result<Evaluations, Failure> {
        let pipeline = self.pipeline;
        let mut buffers = Vec::new();
        for (at, slot) in pipeline.slots.iter().enumerate() {
            let (job, declared) = pipeline.first(at);
            let bytes = job.input(declared.name.as_str());
            buffers.push(bytes.map_or_else(|| vec![0; slot.size as usize], <[u8]>::to_vec));
        }
        let mut evaluations = Evaluations::new(buffers);
        let launches = f64::from(pipeline.steps) * pipeline.passes.len() as f64;
        let budget = (limit.as_secs_f64() * STEPS_PER_SECOND / launches) as u64;
        let progress = Progress::new("checking: how far apart the results may lie", Some(pipeline.steps.into()));
        for _ in 0..pipeline.steps {
            for pass in &pipeline.passes {
                let valid = pass.job.source.validate()?;
                let (plan, constants) = (pass.job.plan()?, pass.job.config.specialization.resolve(&valid)?);
                evaluations.run(&valid, &plan, &constants, &pass.slots, budget).map_err(spread_too_long)?;
            }
            for &[a, b] in &pipeline.swaps {
                evaluations.swap(a, b);
            }
            progress.step();
        }
        Ok(evaluations)
    }
}

fn is_fast(pass: &Pass) -> bool {
    pass.job.source.program.math() == Math::Fast
}

/// The first number of a pass's results that lies further off than fast arithmetic may.
fn beyond(pass: &Pass, evaluations: &Evaluations, expected: &[Vec<u8>], results: &[Vec<u8>]) -> Option<String> {
    let program = &pass.job.source.program;
    let beyond = evaluations.spread(program, &pass.slots).first_beyond(program, expected, results)?;
    let place = differing(&pass.job, (beyond.result, beyond.byte), expected, results);
    Some(format!(
        "{}, and {:e} off is allowed in fast arithmetic",
        place.unwrap_or_else(|| format!("{} instead of {}", beyond.actual, beyond.expected)),
        beyond.allowed
    ))
}

/// Where results go.
#[derive(Default)]
struct Outputs<'a> {
    whole: Vec<(&'a str, Place<'a>)>,
    frames: Vec<(&'a str, Pattern<'a>)>,
    every: Option<u32>,
}

/// A name with a number in it.
struct Pattern<'a> {
    place: Place<'a>,
    before: &'a str,
    digits: usize,
    after: &'a str,
}

impl<'a> Pattern<'a> {
    /// `%d` or `%04d` in a name.
    fn new(place: Place<'a>) -> Option<Pattern<'a>> {
        let (before, rest) = place.path.split_once('%')?;
        let (digits, after) = rest.split_once('d')?;
        let digits = if digits.is_empty() { 1 } else { digits.strip_prefix('0')?.parse().ok().filter(|n| *n <= 9)? };
        Some(Pattern { place, before, digits, after })
    }

    fn path(&self, frame: u64) -> String {
        format!("{}{frame:0digits$}{}", self.before, self.after, digits = self.digits)
    }
}

impl<'a> Outputs<'a> {
    fn new(pipeline: &Pipeline, spec: &'a Spec) -> Result<Outputs<'a>, Failure> {
        let mut outputs = Outputs { every: spec.every, ..Outputs::default() };
        for text in &spec.outputs {
            let (name, file) = split("--out", text)?;
            let slot = pipeline.slot(name)?;
            if !pipeline.slots[slot].written {
                let message = format!("`{name}` is written by no pass");
                return Err(Diagnostic::new(&codes::command::UNKNOWN_NAME, message).into());
            }
            let place = Place::new(file);
            place.output_format()?;
            match Pattern::new(place) {
                Some(pattern) => outputs.frames.push((name, pattern)),
                None => outputs.whole.push((name, place)),
            }
        }
        let problem = match (outputs.every, &outputs.frames[..]) {
            (Some(_), []) => (
                "`--every` writes frames, and no `--out` has a number in its name",
                "Write for example --out NAME=frame-%04d.png.",
            ),
            (None, [_, ..]) => (
                "a name with a number in it is for frames, and nothing says how often there is one",
                "Give `--every K`: a frame after every K steps.",
            ),
            _ => return Ok(outputs),
        };
        Err(Diagnostic::new(&codes::command::BAD_ARGUMENT, problem.0).with_fix(problem.1).into())
    }

    /// Refuses files that would overwrite each other; true when the data of a result goes to standard output.
    fn targets(&self, args: &Run, spec: &Spec, output: &Output) -> Result<bool, Diagnostic> {
        let first: Vec<String> = self.frames.iter().map(|(_, pattern)| pattern.path(1)).collect();
        let mut all = vec![("the pipeline".to_owned(), args.kernel.kernel.as_path())];
        for pass in spec.passes.iter().filter(|pass| pass.kernel != args.kernel.kernel) {
            if all.iter().all(|(_, path)| *path != pass.kernel) {
                all.push((format!("the kernel `{}`", pass.kernel.display()), pass.kernel.as_path()));
            }
        }
        all.extend(self.whole.iter().map(|(name, place)| (format!("the result `{name}`"), Path::new(place.path))));
        all.extend(
            self.frames
                .iter()
                .zip(&first)
                .map(|((name, _), path)| (format!("the frames of `{name}`"), Path::new(path))),
        );
        all.extend(args.trace.as_deref().map(|path| ("the trace".to_owned(), path)));
        beside(&all, output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_numbers() {
        let pattern = |text| Pattern::new(Place::new(text)).map(|pattern| pattern.path(7));
        assert_eq!(pattern("a-%04d.png").as_deref(), Some("a-0007.png"));
        assert_eq!(pattern("raw:%d").as_deref(), Some("7"));
        assert_eq!(pattern("a-%4x.png"), None);
        assert_eq!(pattern("100%.png"), None);
        assert_eq!(pattern("%099999d"), None);
    }
}
