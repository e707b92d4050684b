//! Measuring a program on every backend now, instead of while working.

use std::time::Instant;

use vyre_driver::DispatchConfig;
use vyre_driver::routing::{self, BackendLatency, Rejection, difference};
use vyre_foundation::ir::Program;
use vyre_spec::BackendId;

use super::Engine;
use super::routes::Work;
use crate::Error;

/// What one backend did with some work.
#[derive(Clone, Debug, PartialEq)]
pub struct Racer {
    /// The backend's name.
    pub backend: String,
    /// Times of the rounds with the moves of data, in nanoseconds; or why it is not to be used for this program.
    pub times: Result<Vec<u64>, String>,
}

/// A program measured on every backend at one size.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Certified {
    /// The size: invocations.
    pub n: u64,
    /// Every backend that is routed to, the preferred first.
    pub racers: Vec<Racer>,
    /// What the router makes of it, with everything it knew before.
    pub routes: routing::Explanation,
}

impl Engine {
    /// Measures a program on every backend in turns, so that whatever disturbs the machine disturbs all alike, and teaches the router:
    /// later runs of sizes like this go to the fastest. A backend whose results differ from the preferred one's, or that can't run the
    /// program, is out for the rest of this engine's life. `watch` is called after every run.
    pub fn certify(
        &self,
        program: &Program,
        inputs: &[&[u8]],
        config: &DispatchConfig,
        rounds: u32,
        watch: &mut dyn FnMut(),
    ) -> Result<Certified, Error> {
        let inner = &self.inner;
        inner.tuning.check_unlocked("a program is to be measured on every backend")?;
        let core = inner.core(program, config, None)?;
        let plan = vyre_driver::launch::plan(&core.program, inputs, config)?;
        let work = Work::new(&core.program, config, &plan);
        let mut expected: Option<Vec<Vec<u8>>> = None;
        let mut racers = Vec::new();
        for id in inner.routes.backends() {
            // The first run compiles and is not timed.
            let backend = BackendId::from(id.as_str());
            let first = inner.device(&id).and_then(|_| inner.run(program, inputs, config, Some(&backend)));
            watch();
            let ready = match first {
                Err(error) => Err(error.message().to_owned()),
                Ok(results) => match &expected {
                    None => {
                        expected = Some(results);
                        Ok(backend)
                    }
                    Some(expected) => difference(program, config.ulp_budget, expected, &results)
                        .map_or(Ok(backend), |how| Err(format!("its results differ: {how}"))),
                },
            };
            racers.push((id, ready, Vec::new()));
        }
        for _ in 0..rounds {
            for (_, ready, times) in &mut racers {
                let Ok(backend) = ready else { continue };
                let started = Instant::now();
                match inner.run(program, inputs, config, Some(backend)) {
                    Ok(_) => times.push(started.elapsed().as_nanos() as u64),
                    Err(error) => *ready = Err(error.message().to_owned()),
                }
                watch();
            }
        }
        let racers: Vec<Racer> = racers
            .into_iter()
            .map(|(backend, ready, times)| {
                let times = ready.map(|_| times).inspect_err(|reason| inner.routes.unable(&work, &backend, reason));
                Racer { backend, times }
            })
            .collect();
        let (mut measured, mut rejected) = (Vec::new(), Vec::new());
        for racer in &racers {
            let backend = racer.backend.clone();
            match &racer.times {
                Ok(times) => measured.push(BackendLatency { backend, latency_ns: median(times).into() }),
                Err(reason) => rejected.push(Rejection { backend, reason: reason.clone() }),
            }
        }
        inner.routes.certified(&work, measured, rejected);
        Ok(Certified { n: work.size, racers, routes: inner.routes.explain(&work) })
    }
}

fn median(times: &[u64]) -> u64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(u64::MAX)
}
