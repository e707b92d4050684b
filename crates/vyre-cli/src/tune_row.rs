//! A tuned kernel as a row of a table, beside the best of all its launches where all were measured.

use serde_json::{Value, json};
use vyre::Engine;
use vyre::tuner::{Candidate, Decision, Relative, relative};

use crate::args::{Kernel, Tune};
use crate::job::Job;
use crate::report::{Failure, quantiles, time};
use crate::tune::{Tuned, space};

/// One kernel of a table.
pub(crate) struct Row {
    backend: String,
    decision: Decision,
    against: Option<Against>,
}

/// The decision beside an exhaustive search.
struct Against {
    best: Candidate,
    launches: usize,
    samples: usize,
    /// Median times of the kernel's own launch, the chosen one and the best.
    own_ns: f64,
    chosen_ns: f64,
    best_ns: f64,
    /// Time of the chosen one relative to the best and to the kernel's own, less one, in neighbouring runs after the best was known.
    to_best: Relative,
    to_own: Relative,
    /// Every launch with its times in the order of the rounds.
    all: Vec<(Candidate, Vec<u64>)>,
}

impl Row {
    pub(crate) fn new(engine: &Engine, args: &Tune, kernel: &Kernel, job: &Job, tuned: Tuned) -> Result<Row, Failure> {
        let Tuned { backend, decision, .. } = tuned;
        let against = match args.exhaustive {
            Some(rounds) => Some(Against::new(engine, (args, kernel), job, &backend, &decision.candidate, rounds)?),
            None => None,
        };
        Ok(Row { backend, decision, against })
    }

    pub(crate) fn heading(exhaustive: bool) -> String {
        let tuned = format!("{:<24} {:<8} {:<20} {:>8} {:>8}", "kernel", "backend", "launch", "gain", "timings");
        match exhaustive {
            false => tuned,
            true => format!(
                "{tuned} {:>10} {:>10} {:>10}  {:<20} {:>8} {:>8}",
                "own", "chosen", "best", "best of all", "off best", "timings"
            ),
        }
    }

    pub(crate) fn text(&self, name: &str) -> String {
        let evidence = &self.decision.evidence;
        let launch = self.decision.candidate.to_string();
        let gain = 0.0 - 100.0 * self.against.as_ref().map_or(evidence.difference, |against| against.to_own.middle);
        let mut text = format!("{name:<24} {:<8} {launch:<20} {gain:>+7.1}% {:>8}", self.backend, evidence.samples);
        if let Some(against) = &self.against {
            text += &format!(
                " {:>10} {:>10} {:>10}  {:<20} {:>+7.1}% {:>8}",
                time(against.own_ns),
                time(against.chosen_ns),
                time(against.best_ns),
                format!("{} of {}", against.best, against.launches),
                100.0 * against.to_best.middle,
                against.samples
            );
        }
        text
    }

    pub(crate) fn json(&self) -> Value {
        let (decision, evidence) = (&self.decision, &self.decision.evidence);
        let mut row = json!({
            "backend": self.backend, "launch": decision.candidate.to_string(),
            "workgroup_size": decision.candidate.workgroup_size, "verdict": decision.verdict,
            "difference": evidence.difference, "interval": evidence.interval,
            "candidates": evidence.candidates, "samples": evidence.samples,
        });
        if let Some(against) = &self.against {
            row["exhaustive"] = json!({
                "launch": against.best.to_string(), "launches": against.launches, "samples": against.samples,
                "own_ns": against.own_ns, "chosen_ns": against.chosen_ns, "best_ns": against.best_ns,
                "to_best": against.to_best.middle, "to_own": against.to_own.middle,
                "to_best_interval": against.to_best.interval, "to_own_interval": against.to_own.interval,
                "all": against.all.iter().map(|(launch, ns)| json!([launch.to_string(), ns])).collect::<Vec<Value>>(),
            });
        }
        row
    }
}

impl Against {
    fn new(
        engine: &Engine,
        (args, kernel): (&Tune, &Kernel),
        job: &Job,
        backend: &str,
        chosen: &Candidate,
        rounds: u32,
    ) -> Result<Against, Failure> {
        let space = space(args, kernel, job)?;
        let program = &job.source.program;
        let timed =
            engine.time_launches(backend, program, &job.inputs(), &job.config, space.as_ref(), chosen, rounds)?;
        let [own, chosen, best] = &timed.again;
        let median = |times: &[u64]| {
            let [median] = quantiles(&mut times.iter().map(|ns| *ns as f64).collect::<Vec<f64>>(), [0.5]);
            median
        };
        Ok(Against {
            launches: timed.all.len(),
            samples: timed.all.iter().map(|(_, times)| times.len()).sum(),
            own_ns: median(own),
            chosen_ns: median(chosen),
            best_ns: median(best),
            to_best: relative(chosen, best),
            to_own: relative(chosen, own),
            best: timed.fastest,
            all: timed.all,
        })
    }
}
