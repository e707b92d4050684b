//! `vyre route FOLDER`: what the router chooses for kernels it has never met, beside an oracle that knows what every backend takes.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use vyre::Engine;
use vyre::tuner::Mode;

use crate::args::{Kernel, Route};
use crate::job::Job;
use crate::progress::Progress;
use crate::report::{Failure, Output, quantiles, time};
use crate::route::sizes;
use crate::tune::{inputs_for, kernels_in};

/// So many dispatches of an unknown kernel are its first.
const FIRST: usize = 20;
/// Passes over all sizes until the router is asked what it has learnt, and passes that show that.
const LEARNING: usize = 6;
const SHOWING: usize = 2;

/// What the dispatches of one kernel took, in nanoseconds.
#[derive(Clone, Copy, Default)]
struct Totals {
    /// Of the first dispatches and of those after learning: what the chosen backends take, and what the fastest ones do, by the oracle.
    first: [f64; 2],
    learnt: [f64; 2],
    /// Dispatches after learning that went to a backend that takes more than a tenth longer than the fastest.
    astray: usize,
    dispatches: usize,
}

impl Totals {
    fn add(&mut self, other: &Totals) {
        for (sum, more) in [(&mut self.first, other.first), (&mut self.learnt, other.learnt)] {
            sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        }
        self.astray += other.astray;
        self.dispatches += other.dispatches;
    }

    fn json(&self) -> Value {
        json!({
            "first_to_oracle": ratio(self.first), "learnt_to_oracle": ratio(self.learnt),
            "astray": self.astray, "dispatches": self.dispatches,
            "first_ns": self.first, "learnt_ns": self.learnt,
        })
    }

    fn text(&self, name: &str, data: &str) -> String {
        format!(
            "{name:<24} {data:<9} {:>11.2}x {:>+11.1}% {:>4} of {:<4} {:>10}",
            ratio(self.first),
            100.0 * (ratio(self.learnt) - 1.0),
            self.astray,
            self.dispatches,
            time(self.learnt[1])
        )
    }
}

fn ratio([chosen, fastest]: [f64; 2]) -> f64 {
    if fastest > 0.0 { chosen / fastest } else { 1.0 }
}

pub(crate) fn route_folder(args: &Route, output: &Output) -> Result<(), Failure> {
    let files = kernels_in(&args.kernel.kernel)?;
    let sizes = sizes(&args.sizes)?;
    // Launches stay as they are, so that nothing but the choice of a backend is compared.
    let open = || Engine::builder().without_disk().tuner(Mode::OffUseDefault).open();
    let (oracle, router) = (open()?, open()?);
    let mut backends: Vec<String> = Vec::new();
    for id in oracle.backend_ids() {
        // Opening a driver is no part of the comparison.
        let both = oracle.backend(id.as_str()).and_then(|_| router.backend(id.as_str()));
        if id.as_str() != "reference" && both.is_ok() {
            backends.push(id.as_str().to_owned());
        }
    }
    let progress = Progress::new("routing", Some(files.len() as u64));
    let mut rows: Vec<Value> = Vec::new();
    let mut text = vec![format!(
        "{:<24} {:<9} {:>12} {:>12} {:>12} {:>10}",
        "kernel", "data", "first 20", "learnt", "astray", "oracle"
    )];
    let mut all = [Totals::default(); 2];
    for (at, path) in files.iter().enumerate() {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let jobs = jobs(args, path, &sizes)?;
        for (all, resident) in all.iter_mut().zip([false, true]) {
            let data = if resident { "resident" } else { "host" };
            let known = Oracle::new(&oracle, &backends, &jobs, resident, args.rounds)?;
            let found = known.ask(&router, &jobs, at as u64)?;
            all.add(&found);
            text.push(found.text(&name, data));
            let mut row = found.json();
            row["kernel"] = json!(name);
            row["data"] = json!(data);
            row["oracle_ns"] = json!(known.times);
            rows.push(row);
        }
        oracle.trim();
        router.trim();
        progress.step();
    }
    drop(progress);
    text.extend([all[0].text("all", "host"), all[1].text("all", "resident")]);
    if output.json {
        return output.print_json(&json!({
            "backends": backends, "sizes": sizes, "kernels": rows, "host": all[0].json(), "resident": all[1].json(),
        }));
    }
    output.print(&text.join("\n"))
}

/// The kernel with inputs of every size that it takes: pictures have whole rows.
fn jobs(args: &Route, path: &Path, sizes: &[u64]) -> Result<Vec<Job>, Failure> {
    let kernel = Kernel { kernel: path.to_owned(), ..args.kernel.clone() };
    let job = |size: &u64| {
        let job = Job::new(&kernel, &inputs_for(&kernel, &args.inputs, *size)?)?;
        job.plan()?;
        Ok(job)
    };
    let (fit, mut unfit): (Vec<_>, Vec<_>) = sizes.iter().map(job).partition(Result::is_ok);
    match (fit.is_empty(), unfit.pop()) {
        (true, Some(Err(failure))) => Err(failure),
        _ => fit.into_iter().collect(),
    }
}

/// What one kernel takes on each backend at each size; nothing where it can't run.
struct Oracle<'a> {
    backends: &'a [String],
    resident: bool,
    times: Vec<Vec<Option<f64>>>,
}

impl<'a> Oracle<'a> {
    fn new(
        engine: &Engine,
        backends: &'a [String],
        jobs: &[Job],
        resident: bool,
        rounds: u32,
    ) -> Result<Oracle<'a>, Failure> {
        let mut times = Vec::new();
        for job in jobs {
            let taken = |backend: &String| measured(engine, backend, job, resident, rounds);
            times.push(backends.iter().map(taken).collect());
        }
        Ok(Oracle { backends, resident, times })
    }

    /// Lets a router that has not met the kernel choose, sizes in random order, and charges what each choice takes by the oracle: what
    /// compiling takes, and what disturbs a single dispatch, is no matter of choice.
    fn ask(&self, engine: &Engine, jobs: &[Job], seed: u64) -> Result<Totals, Failure> {
        let mut random = seed;
        let mut order: Vec<usize> = Vec::new();
        let steady = (FIRST + LEARNING * jobs.len()).div_ceil(jobs.len()) * jobs.len();
        while order.len() < steady + SHOWING * jobs.len() {
            let mut pass: Vec<usize> = (0..jobs.len()).collect();
            for at in (1..pass.len()).rev() {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                pass.swap(at, (random >> 33) as usize % (at + 1));
            }
            order.extend(pass);
        }
        let mut prepared = Vec::new();
        if self.resident {
            for job in jobs {
                let one = engine.prepare_with(&job.source.program, &job.config)?;
                job.fill(&one)?;
                prepared.push(one);
            }
        }
        let mut totals = Totals::default();
        for (dispatch, &size) in order.iter().enumerate() {
            let job = &jobs[size];
            let chosen = match prepared.get(size) {
                Some(prepared) => {
                    prepared.run()?;
                    prepared.explain().backend
                }
                None => {
                    engine.run_with(&job.source.program, &job.inputs(), &job.config)?;
                    engine.kernel_with(&job.source.program, &job.config)?.explain().backend
                }
            };
            let fastest = self.times[size].iter().flatten().copied().fold(f64::INFINITY, f64::min);
            let at = self.backends.iter().position(|backend| Some(backend) == chosen.as_ref());
            let Some(taken) = at.and_then(|at| self.times[size][at]) else { continue };
            let [first, learnt] = [dispatch < FIRST, dispatch >= steady];
            for (sum, counts) in [(&mut totals.first, first), (&mut totals.learnt, learnt)] {
                if counts {
                    sum[0] += taken;
                    sum[1] += fastest;
                }
            }
            totals.dispatches += usize::from(learnt);
            totals.astray += usize::from(learnt && taken > 1.1 * fastest);
        }
        Ok(totals)
    }
}

/// The median time of a kernel on a backend, or nothing where it can't run.
fn measured(engine: &Engine, backend: &str, job: &Job, resident: bool, rounds: u32) -> Option<f64> {
    let program = &job.source.program;
    let mut run: Box<dyn FnMut() -> Option<()>> = if resident {
        let prepared = engine.prepare_on(backend, program, &job.config).ok()?;
        job.fill(&prepared).ok()?;
        Box::new(move || prepared.run().ok().map(drop))
    } else {
        let inputs = job.inputs();
        Box::new(move || engine.run_on(backend, program, &inputs, &job.config).ok().map(drop))
    };
    run()?;
    let mut times = Vec::new();
    let began = Instant::now();
    for round in 0..rounds {
        // What takes long needs fewer rounds.
        if round >= 3 && began.elapsed() > Duration::from_millis(60) {
            break;
        }
        let started = Instant::now();
        run()?;
        times.push(started.elapsed().as_nanos() as f64);
    }
    let [median] = quantiles(&mut times, [0.5]);
    Some(median)
}
