//! Measuring a program on every backend now, instead of while working.

use vyre_driver::routing::{self, difference};
use vyre_driver::{BackendError, DispatchConfig};
use vyre_foundation::ir::Program;

use super::Engine;
use super::routes::Work;

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
    ) -> Result<Certified, BackendError> {
        let inner = &*self.inner;
        let (valid, plan) = inner.check(program, inputs, config)?;
        let work = Work::new(&valid, config, &plan);
        let mut expected: Option<Vec<Vec<u8>>> = None;
        let mut racers = Vec::new();
        for id in inner.routes.backends() {
            // The first run compiles and is not timed.
            let first = inner.registry.acquire(&id).map_err(BackendError::from).and_then(|backend| {
                let (results, _) = inner.run_on(&backend, &valid, &plan, inputs, config)?;
                Ok((backend, results))
            });
            watch();
            let ready = match first {
                Err(error) => Err(error.message().to_owned()),
                Ok((backend, results)) => match &expected {
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
            for (id, ready, times) in &mut racers {
                let Ok(backend) = ready else { continue };
                match inner.run_on(backend, &valid, &plan, inputs, config) {
                    Ok((_, timing)) => {
                        if let Some(timing) = timing {
                            inner.routes.observe(&work, id, timing);
                            times.push(timing.compute_ns + timing.move_ns);
                        }
                    }
                    Err(error) => *ready = Err(error.message().to_owned()),
                }
                watch();
            }
        }
        let racers = racers.into_iter().map(|(backend, ready, times)| {
            let times = ready.map(|_| times).inspect_err(|reason| inner.routes.unable(&work, &backend, reason));
            Racer { backend, times }
        });
        Ok(Certified { n: work.size, racers: racers.collect(), routes: inner.routes.explain(&work) })
    }
}
