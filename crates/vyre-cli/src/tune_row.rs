//! A tuned kernel as a row of a table, beside the best of all its launches where all were measured.

use serde_json::{Value, json};
use vyre::Engine;
use vyre::tuner::{Candidate, Decision};

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
    /// Time of the chosen one relative to the best and to the kernel's own, less one, in neighbouring runs.
    to_best: f64,
    to_own: f64,
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
        let gain = -100.0 * self.against.as_ref().map_or(evidence.difference, |against| against.to_own);
        let mut text = format!("{name:<24} {:<8} {launch:<20} {gain:>+7.1}% {:>8}", self.backend, evidence.samples);
        if let Some(against) = &self.against {
            text += &format!(
                " {:>10} {:>10} {:>10}  {:<20} {:>+7.1}% {:>8}",
                time(against.own_ns),
                time(against.chosen_ns),
                time(against.best_ns),
                format!("{} of {}", against.best, against.launches),
                100.0 * against.to_best,
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
                "to_best": against.to_best, "to_own": against.to_own,
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
        let all = engine.time_launches(backend, program, &job.inputs(), &job.config, space.as_ref(), rounds)?;
        let median = |times: &[u64], odd: bool| {
            let half = times.iter().enumerate().filter(|(round, _)| (round % 2 == 1) == odd);
            let [median] = quantiles(&mut half.map(|(_, ns)| *ns as f64).collect::<Vec<f64>>(), [0.5]);
            median
        };
        // Whoever is fastest of many was lucky, too: one half of the rounds says who is, the other how fast.
        let by_even = |a: &&(Candidate, Vec<u64>), b: &&(Candidate, Vec<u64>)| {
            median(&a.1, false).total_cmp(&median(&b.1, false))
        };
        let own = &all[0];
        // Those that were timed a few times only are far slower.
        let best = all.iter().filter(|(_, times)| times.len() == own.1.len()).min_by(by_even).unwrap_or(own);
        let chosen = all.iter().find(|(candidate, _)| candidate == chosen).unwrap_or(own);
        let relative = |to: &(Candidate, Vec<u64>)| {
            let odd = (1..chosen.1.len().min(to.1.len())).step_by(2);
            let mut ratios: Vec<f64> = odd.map(|at| chosen.1[at] as f64 / to.1[at].max(1) as f64).collect();
            let [middle] = quantiles(&mut ratios, [0.5]);
            middle - 1.0
        };
        Ok(Against {
            best: best.0.clone(),
            launches: all.len(),
            samples: all.iter().map(|(_, times)| times.len()).sum(),
            own_ns: median(&own.1, true),
            chosen_ns: median(&chosen.1, true),
            best_ns: median(&best.1, true),
            to_best: relative(best),
            to_own: relative(own),
            all,
        })
    }
}
