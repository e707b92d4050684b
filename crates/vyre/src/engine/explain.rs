use std::fmt;

use serde::Serialize;
use vyre_driver::routing;
use vyre_driver::tuner::{Decision, Verdict};

use super::core::Core;
use super::tuning::{Asked, now};
use super::{Inner, lock};

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
    /// How far predictions for sizes that had not been timed were off, relatively and on average, where there were some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unseen_error: Option<f64>,
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
    /// Its arithmetic: `exact` or `fast`.
    pub math: &'static str,
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
    /// What became of each foreign variant: "`fast` (a Rust function): in use".
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<String>,
    /// Where another backend would win: "`cuda` wins above n = 70000".
    pub crossovers: Vec<String>,
}

/// A tuning decision in words.
fn launch(decision: &Decision) -> String {
    let evidence = &decision.evidence;
    if evidence.samples == 0 {
        return format!("{} as written down in a file", decision.candidate);
    }
    let verdict = match decision.verdict {
        Verdict::Winner => format!(
            "{:.1}% faster than the default (95% interval {:.1}% to {:.1}%)",
            -100.0 * evidence.difference,
            -100.0 * evidence.interval[1],
            -100.0 * evidence.interval[0]
        ),
        Verdict::Tie | Verdict::Noisy => "the kernel's own, and none is clearly faster".to_owned(),
    };
    format!(
        "{} of {} candidates: {verdict}; {} timings, {}{}",
        decision.candidate,
        evidence.candidates,
        evidence.samples,
        age(now().saturating_sub(evidence.measured_at)),
        if decision.pinned { ", pinned" } else { "" }
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
    fn add_routes(&mut self, routes: &routing::Explanation) {
        for option in &routes.options {
            self.others.push(Choice {
                backend: option.backend.clone(),
                expected_ns: option.predicted.ns,
                bounds_ns: [option.predicted.low, option.predicted.high],
                samples: option.samples,
                unseen_error: option.unseen_error,
                excluded: option.out.clone(),
            });
        }
        for crossover in &routes.crossovers {
            let [low, high] = crossover.unsure;
            self.crossovers
                .push(format!("`{}` wins above n = {} (unsure from {low} to {high})", crossover.above, crossover.n));
        }
    }

    fn exclude(&mut self, backend: &str, reason: &str) {
        if let Some(choice) = self.others.iter_mut().find(|choice| choice.backend == backend) {
            choice.excluded.get_or_insert_with(|| reason.to_owned());
        }
    }
}

impl Inner {
    /// What was chosen for the latest launch of a program.
    pub(crate) fn explain(&self, core: &Core) -> Explanation {
        let last = lock(&core.last).clone();
        let device = last.as_ref().map(|ready| &ready.device);
        let mut explanation = Explanation {
            program: core.program.name().to_owned(),
            math: core.program.math().name(),
            backend: device.map(|device| device.id.as_str().to_owned()),
            device: device.map(|device| device.backend.capabilities().name.clone()).filter(|name| !name.is_empty()),
            workgroup_size: last.as_ref().and_then(|ready| {
                let pipeline = ready.pipeline.as_ref()?;
                let is_variant = ready.decision.as_ref().is_some_and(|decision| decision.candidate.variant.is_some());
                // Of invocations, of which a thread may do several; a variant has its own.
                Some(if is_variant { pipeline.workgroup_size() } else { ready.plan.workgroup_size })
            }),
            grid: last.as_ref().filter(|ready| ready.pipeline.is_some()).map(|ready| ready.plan.grid),
            launch: match (&core.config.workgroup_override, last.as_ref().and_then(|ready| ready.decision.as_ref())) {
                (Some(_), _) => "asked for by the configuration".to_owned(),
                (None, Some(decision)) => launch(decision),
                (None, None) => match last.as_ref().and_then(|ready| ready.learning.as_ref()) {
                    Some(learning) => {
                        let samples = learning.try_lock().map_or(0, |learning| learning.samples());
                        format!("the program's own workgroup size; others are being tried, {samples} timings so far")
                    }
                    None => "the program's own workgroup size; no other was measured".to_owned(),
                },
            },
            routing: match &core.only {
                Some(_) => "asked for by name".to_owned(),
                None => "the fastest that is known for this program at this size".to_owned(),
            },
            others: Vec::new(),
            variants: Vec::new(),
            crossovers: Vec::new(),
        };
        if let Some(ready) = &last {
            let routes = self.routes.explain(&ready.work);
            let unopened = routes.chosen.as_deref().filter(|id| self.routes.is_slow_to_open(id));
            if let (None, Some(fastest)) = (&core.only, unopened) {
                explanation.routing =
                    format!("the fastest that is open; opening {fastest} takes longer than it would have saved so far");
            }
            explanation.add_routes(&routes);
            let asked = Asked {
                backend: &ready.device.backend,
                program: &core.program,
                plan: &ready.plan,
                config: &core.config,
                variants: &[],
                fixed: false,
            };
            let chosen = ready.decision.as_ref().map(|decision| &decision.candidate);
            explanation.variants = self.explain_variants(&asked, chosen, ready.interruptible);
        }
        for (id, reason) in lock(&core.refused).iter() {
            explanation.exclude(id, reason);
        }
        explanation
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
        write!(f, ", in {} arithmetic.\n  backend: {}\n  launch: {}", self.math, self.routing, self.launch)?;
        for other in &self.others {
            match &other.excluded {
                Some(reason) => write!(f, "\n  {}: can't be used: {reason}", other.backend)?,
                None => write!(
                    f,
                    "\n  {}: expected {} ({} to {}), {}{}",
                    other.backend,
                    micros(other.expected_ns),
                    micros(other.bounds_ns[0]),
                    micros(other.bounds_ns[1]),
                    match other.samples {
                        0 => "a guess".to_owned(),
                        1 => "from 1 timing".to_owned(),
                        n => format!("from {n} timings"),
                    },
                    other.unseen_error.map_or_else(String::new, |off| format!(
                        "; sizes not timed before were off by {:.0}%",
                        100.0 * off
                    ))
                )?,
            }
        }
        for variant in &self.variants {
            write!(f, "\n  variant {variant}")?;
        }
        for crossover in &self.crossovers {
            write!(f, "\n  {crossover}")?;
        }
        Ok(())
    }
}
