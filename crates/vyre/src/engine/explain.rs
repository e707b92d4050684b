use std::fmt;

use serde::Serialize;
use vyre_driver::routing;
use vyre_driver::tuner::{Decision, Verdict};

use super::tuning::now;

/// One backend that was considered.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// The backend's name.
    pub backend: String,
    /// Expected time of one dispatch with the move of its data, in nanoseconds, and its bounds.
    pub expected_ns: f64,
    /// Lower and upper bound of the expectation.
    pub bounds_ns: [f64; 2],
    /// Timings that the expectation rests on; without any it is a guess from the kind of device.
    pub samples: u64,
    /// Why it can't be used, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excluded: Option<String>,
}

/// Why a program runs where and how it does, as data; [`Display`](fmt::Display) says it in words.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// The program's entry point.
    pub program: String,
    /// The backend in use; absent before the first dispatch.
    pub backend: Option<String>,
    /// The device's name.
    pub device: Option<String>,
    /// Invocations in a workgroup.
    pub workgroup_size: Option<[u32; 3]>,
    /// Workgroups.
    pub grid: Option<[u32; 3]>,
    /// Why this launch, with the evidence and its age.
    pub launch: String,
    /// Why this backend.
    pub routing: String,
    /// Every backend that was considered, the fastest first.
    pub others: Vec<Choice>,
    /// Where another backend would win: "`cuda` wins above n = 70000".
    pub crossovers: Vec<String>,
}

/// A tuning decision in words.
pub(super) fn launch(decision: &Decision) -> String {
    let evidence = &decision.evidence;
    let [x, y, z] = decision.candidate.workgroup_size;
    let gain = format!(
        "{:.1}% faster than the default (95% interval {:.1}% to {:.1}%)",
        -100.0 * evidence.difference,
        -100.0 * evidence.interval[1],
        -100.0 * evidence.interval[0]
    );
    let verdict = match decision.verdict {
        Verdict::Winner => gain,
        Verdict::Tie if evidence.difference < 0.0 => format!("{gain}, and first in order among equals"),
        Verdict::Tie => "not to be told apart from the fastest, and first in order".to_owned(),
    };
    format!(
        "{x} x {y} x {z} of {} candidates: {verdict}; {} timings, {}",
        evidence.candidates,
        evidence.samples,
        age(now().saturating_sub(evidence.measured_at))
    )
}

fn age(seconds: u64) -> String {
    match seconds {
        0..=119 => "measured just now".to_owned(),
        120..=7199 => format!("measured {} minutes ago", seconds / 60),
        7200..=172_799 => format!("measured {} hours ago", seconds / 3600),
        _ => format!("measured {} days ago", seconds / 86_400),
    }
}

fn micros(ns: f64) -> String {
    if ns < 1e6 { format!("{:.1} µs", ns / 1e3) } else { format!("{:.2} ms", ns / 1e6) }
}

impl Explanation {
    pub(super) fn add_routes(&mut self, routes: &routing::Explanation) {
        for option in &routes.options {
            self.others.push(Choice {
                backend: option.backend.clone(),
                expected_ns: option.predicted.ns,
                bounds_ns: [option.predicted.low, option.predicted.high],
                samples: option.samples,
                excluded: option.out.clone(),
            });
        }
        for crossover in &routes.crossovers {
            let [low, high] = crossover.unsure;
            self.crossovers
                .push(format!("`{}` wins above n = {} (unsure from {low} to {high})", crossover.above, crossover.n));
        }
    }

    pub(super) fn exclude(&mut self, backend: &str, reason: &str) {
        if let Some(choice) = self.others.iter_mut().find(|choice| choice.backend == backend) {
            choice.excluded.get_or_insert_with(|| reason.to_owned());
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(backend) = &self.backend else {
            return write!(f, "`{}` has not run yet, so nothing is decided.", self.program);
        };
        write!(f, "`{}` runs on {backend}", self.program)?;
        if let Some(device) = &self.device {
            write!(f, " ({device})")?;
        }
        if let (Some([x, y, z]), Some(grid)) = (self.workgroup_size, self.grid) {
            write!(f, ", {} x {} x {} workgroups of {x} x {y} x {z}", grid[0], grid[1], grid[2])?;
        }
        write!(f, ".\n  backend: {}\n  launch: {}", self.routing, self.launch)?;
        for other in &self.others {
            match &other.excluded {
                Some(reason) => write!(f, "\n  {}: can't be used: {reason}", other.backend)?,
                None => write!(
                    f,
                    "\n  {}: expected {} ({} to {}), {}",
                    other.backend,
                    micros(other.expected_ns),
                    micros(other.bounds_ns[0]),
                    micros(other.bounds_ns[1]),
                    match other.samples {
                        0 => "a guess".to_owned(),
                        1 => "from 1 timing".to_owned(),
                        n => format!("from {n} timings"),
                    }
                )?,
            }
        }
        for crossover in &self.crossovers {
            write!(f, "\n  {crossover}")?;
        }
        Ok(())
    }
}
