//! `vyre tune`: compare a kernel's launches now and keep the decision for all later runs.

use serde_json::json;
use vyre::Engine;
use vyre::tuner::Verdict;

use crate::args::Tune;
use crate::job::Job;
use crate::report::{Failure, Output, time};
use crate::run::{input_names, known_backend};

pub(crate) fn tune(args: &Tune, output: &Output) -> Result<(), Failure> {
    let job = Job::new(&args.kernel, &args.inputs)?;
    let engine = Engine::open()?;
    let backend = match args.inputs.backend.as_str() {
        // Where the kernel would run is where its launch matters.
        "auto" => {
            let prepared = engine.prepare_with(&job.source.program, &job.config)?;
            for (name, bytes) in input_names(&job).iter().zip(&job.inputs) {
                prepared.set(name, bytes)?;
            }
            prepared.run()?;
            prepared.explain().backend.unwrap_or_default()
        }
        name => {
            known_backend(&engine, name)?;
            name.to_owned()
        }
    };
    let decision = engine.tune(&backend, &job.source.program, &job.inputs(), &job.config, None)?;
    engine.flush()?;
    let evidence = &decision.evidence;
    if output.json {
        return output.print_json(&json!({
            "backend": backend, "workgroup_size": decision.candidate.workgroup_size,
            "verdict": if decision.verdict == Verdict::Winner { "winner" } else { "tie" },
            "candidates": evidence.candidates, "samples": evidence.samples, "rejected": evidence.rejected,
            "difference": evidence.difference, "interval": evidence.interval,
            "chosen_ns": evidence.chosen_ns, "default_ns": evidence.default_ns,
        }));
    }
    let [x, y, z] = decision.candidate.workgroup_size;
    let verdict = match decision.verdict {
        Verdict::Winner => "the fastest",
        Verdict::Tie => "the first of those that can't be told apart",
    };
    let mut text = vec![
        format!(
            "{backend}: {x} x {y} x {z} is {verdict} of {} launches ({} timings)",
            evidence.candidates, evidence.samples
        ),
        format!(
            "{} against {} for the kernel's own size: {:+.1}% (95% interval {:+.1}% to {:+.1}%)",
            time(evidence.chosen_ns as f64),
            time(evidence.default_ns as f64),
            100.0 * evidence.difference,
            100.0 * evidence.interval[0],
            100.0 * evidence.interval[1]
        ),
    ];
    text.extend(evidence.rejected.iter().map(|reason| format!("rejected {reason}")));
    output.print(&text.join("\n"))
}
