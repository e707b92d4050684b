//! The line that every run prints: where it ran, as how many workgroups of what size, for which invocations and why, and how long.

use serde_json::{Value, json};
use vyre::Explanation;
use vyre::launch::LaunchPlan;

use crate::report::time;
use crate::shapes::Filled;

/// How a kernel was launched.
pub(crate) struct Launched {
    backend: String,
    workgroups: [u64; 3],
    workgroup_size: [u64; 3],
    domain: [u64; 3],
    domain_from: String,
    proven: bool,
    filled: Vec<Filled>,
    ns: Option<f64>,
}

impl Launched {
    /// `origin` says where a domain comes from that the kernel does not tell itself. There is no plan where it follows from what another
    /// kernel has computed.
    pub(crate) fn new(
        plan: Option<&LaunchPlan>,
        origin: Option<String>,
        filled: &[Filled],
        explanation: &Explanation,
        ns: Option<f64>,
    ) -> Launched {
        let size = explanation.workgroup_size.or(plan.map(|plan| plan.workgroup_size)).unwrap_or([1; 3]);
        let grid = explanation.grid.or(plan.map(|plan| plan.grid)).unwrap_or([1; 3]);
        let all = std::array::from_fn(|axis| u64::from(size[axis]) * u64::from(grid[axis]));
        let told = || plan.map_or_else(|| "what an earlier pass made".to_owned(), |plan| plan.origin.to_string());
        Launched {
            backend: explanation.backend.clone().unwrap_or_default(),
            workgroups: grid.map(u64::from),
            workgroup_size: size.map(u64::from),
            domain: plan.map_or(all, |plan| plan.domain),
            domain_from: origin.unwrap_or_else(told),
            proven: plan.is_some_and(|plan| plan.proven),
            filled: filled.to_vec(),
            ns,
        }
    }

    pub(crate) fn line(&self) -> String {
        let workgroups = match self.workgroups {
            [1, 1, 1] => "1 workgroup".to_owned(),
            many => format!("{} workgroups", product(&many)),
        };
        let invocations = match self.domain {
            [1, 1, 1] => "1 invocation".to_owned(),
            many => format!("{} invocations", product(&many)),
        };
        let mut line = format!(
            "{}: {workgroups} of {} for {invocations} ({})",
            self.backend,
            product(&self.workgroup_size),
            self.domain_from
        );
        if let Some(ns) = self.ns {
            line += &format!(", {}", time(ns));
        }
        for filled in &self.filled {
            line += &format!("; {} = {} (the shape of `{}`)", filled.name, filled.value, filled.from);
        }
        line
    }

    pub(crate) fn json(&self) -> Value {
        let filled: Vec<Value> =
            self.filled.iter().map(|one| json!({ "name": one.name, "value": one.value, "from": one.from })).collect();
        json!({
            "backend": self.backend, "workgroups": self.workgroups, "workgroup_size": self.workgroup_size,
            "domain": self.domain, "domain_from": self.domain_from, "proven": self.proven, "from_shapes": filled,
            "time_ns": self.ns,
        })
    }
}

/// `16 x 16`: as many axes as there are.
pub(crate) fn product(axes: &[u64; 3]) -> String {
    let last = axes.iter().rposition(|&axis| axis != 1).unwrap_or(0);
    let axes: Vec<String> = axes[..=last].iter().map(u64::to_string).collect();
    axes.join(" x ")
}
