//! `vyre route FOLDER`: what the router chooses for kernels it has never met, beside an oracle that knows what every backend takes.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use vyre::Engine;
use vyre::routing::{Taken, Totals, Trial};
use vyre::tuner::Mode;

use crate::args::{Kernel, Route};
use crate::job::Job;
use crate::progress::Progress;
use crate::report::{Failure, Output, quantiles, time};
use crate::route::sizes;
use crate::tune::{inputs_for, kernels_in};

/// What the dispatches of kernels took.
#[derive(Clone, Copy, Default)]
struct Found {
    totals: Totals,
    /// Dispatches after learning that went to a backend that takes more than a tenth longer than the fastest.
    astray: usize,
    dispatches: usize,
}

impl Found {
    fn add(&mut self, other: &Found) {
        self.totals.add(&other.totals);
        self.astray += other.astray;
        self.dispatches += other.dispatches;
    }

    fn json(&self) -> Value {
        let [first, learnt, all] = self.totals.ratios();
        let ns = |taken: Taken| [taken.chosen_ns, taken.best_ns];
        json!({
            "first_to_oracle": first, "learnt_to_oracle": learnt, "all_to_oracle": all,
            "astray": self.astray, "dispatches": self.dispatches,
            "first_ns": ns(self.totals.first), "learnt_ns": ns(self.totals.learnt), "all_ns": ns(self.totals.all),
        })
    }

    fn text(&self, name: &str, data: &str) -> String {
        let [first, learnt, all] = self.totals.ratios();
        format!(
            "{name:<24} {data:<9} {first:>11.2}x {:>+11.1}% {:>+11.1}% {:>4} of {:<4} {:>10}",
            100.0 * (learnt - 1.0),
            100.0 * (all - 1.0),
            self.astray,
            self.dispatches,
            time(self.totals.learnt.best_ns)
        )
    }
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
    // Rows are printed as they come: all of them may take long.
    let show = |text: String| if output.json { Ok(()) } else { output.print(&text) };
    show(format!(
        "{:<24} {:<9} {:>12} {:>12} {:>12} {:>12} {:>10}",
        "kernel", "data", "first 20", "learnt", "all", "astray", "oracle"
    ))?;
    let mut all = [Found::default(); 2];
    for (at, path) in files.iter().enumerate() {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let jobs = jobs(args, path, &sizes)?;
        for (all, resident) in all.iter_mut().zip([false, true]) {
            let data = if resident { "resident" } else { "host" };
            let known = Oracle::new(&oracle, &backends, &jobs, resident, args.rounds)?;
            let (found, chosen) = known.ask(&router, &jobs, at as u64)?;
            all.add(&found);
            show(found.text(&name, data))?;
            let mut row = found.json();
            row["kernel"] = json!(name);
            row["data"] = json!(data);
            let costs = known.costs.iter().map(|size| size.iter().map(|cost| cost.map(|cost| [cost.ns, cost.move_ns])));
            row["oracle_ns"] = json!(costs.map(Iterator::collect).collect::<Vec<Vec<_>>>());
            row["chosen"] = json!(chosen);
            rows.push(row);
        }
        oracle.trim();
        router.trim();
        progress.step();
    }
    drop(progress);
    show(all[0].text("all", "host"))?;
    show(all[1].text("all", "resident"))?;
    if output.json {
        return output.print_json(&json!({
            "backends": backends, "sizes": sizes, "kernels": rows, "host": all[0].json(), "resident": all[1].json(),
        }));
    }
    Ok(())
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

/// What a dispatch takes on a backend, in nanoseconds.
#[derive(Clone, Copy)]
struct Cost {
    /// With its data there, or, for data of the host, with bringing it and its results to and fro.
    ns: f64,
    /// What bringing the data there takes besides, once, where it stays.
    move_ns: f64,
}

/// What one kernel takes on each backend at each size; nothing where it can't run.
struct Oracle<'a> {
    backends: &'a [String],
    resident: bool,
    costs: Vec<Vec<Option<Cost>>>,
}

/// Where each dispatch of a size went; nothing where that is no backend that was measured.
type Choices = Vec<Vec<Option<usize>>>;

/// Where the data of one size is, by backend. At first it is where no backend but the processor has it for nothing.
#[derive(Clone)]
struct Copies(Vec<bool>);

impl Copies {
    /// What it takes to have the data on a backend, and that it is there from then on. What is written there is nowhere else.
    fn bring(&mut self, to: usize, costs: &[Option<Cost>], writes_inputs: bool) -> f64 {
        let move_ns = |at: usize| costs[at].map_or(0.0, |cost| cost.move_ns);
        let has_it = self.0[to];
        let from = self.0.iter().position(|&here| here).filter(|_| writes_inputs);
        if writes_inputs {
            self.0.fill(false);
        }
        self.0[to] = true;
        // From one device to another data goes through the host.
        if has_it { 0.0 } else { move_ns(to) + from.map_or(0.0, move_ns) }
    }
}

impl<'a> Oracle<'a> {
    fn new(
        engine: &Engine,
        backends: &'a [String],
        jobs: &[Job],
        resident: bool,
        rounds: u32,
    ) -> Result<Oracle<'a>, Failure> {
        let mut costs = Vec::new();
        for job in jobs {
            let taken = |backend: &String| measured(engine, backend, job, resident, rounds);
            costs.push(backends.iter().map(taken).collect());
        }
        Ok(Oracle { backends, resident, costs })
    }

    /// What so many dispatches of a size take at best, from where the data is: the same backend does them all, because whatever pays for
    /// a move later pays for it at once.
    fn best(&self, size: usize, copies: &Copies, dispatches: usize, writes_inputs: bool) -> f64 {
        let costs = &self.costs[size];
        let total = |at: usize| {
            let moved = copies.clone().bring(at, costs, writes_inputs);
            costs[at].map_or(f64::INFINITY, |cost| dispatches as f64 * cost.ns + moved)
        };
        (0..costs.len()).map(total).fold(f64::INFINITY, f64::min)
    }

    /// Lets a router that has not met the kernel choose, sizes in random order, and charges what each choice takes by the oracle: what
    /// compiling takes, and what disturbs a single dispatch, is no matter of choice.
    fn ask(&self, engine: &Engine, jobs: &[Job], seed: u64) -> Result<(Found, Choices), Failure> {
        let mut trial = Trial::new(jobs.len(), numbers(seed));
        let mut prepared = Vec::new();
        if self.resident {
            for job in jobs {
                let one = engine.prepare_with(&job.source.program, &job.config)?;
                job.fill(&one)?;
                prepared.push(one);
            }
        }
        let mut found = Found::default();
        let mut copies = vec![Copies(vec![false; self.backends.len()]); jobs.len()];
        let mut chosen: Choices = vec![Vec::new(); jobs.len()];
        for dispatch in 0..trial.order().len() {
            let size = trial.order()[dispatch];
            let job = &jobs[size];
            let writes_inputs =
                job.source.program.buffers().iter().any(|buffer| buffer.kind.is_input() && buffer.kind.is_result());
            trial.begin(dispatch, |size, dispatches| self.best(size, &copies[size], dispatches, writes_inputs));
            let backend = match prepared.get(size) {
                Some(prepared) => {
                    prepared.run()?;
                    prepared.explain().backend
                }
                None => {
                    engine.run_with(&job.source.program, &job.inputs(), &job.config)?;
                    engine.kernel_with(&job.source.program, &job.config)?.explain().backend
                }
            };
            let at = self.backends.iter().position(|known| Some(known) == backend.as_ref());
            chosen[size].push(at);
            let Some((at, cost)) = at.and_then(|at| Some((at, self.costs[size][at]?))) else { continue };
            let taken = cost.ns + copies[size].bring(at, &self.costs[size], writes_inputs);
            trial.charge(dispatch, taken);
            if trial.is_learnt(dispatch) {
                let fastest = self.costs[size].iter().flatten().map(|cost| cost.ns).fold(f64::INFINITY, f64::min);
                found.dispatches += 1;
                found.astray += usize::from(cost.ns > 1.1 * fastest);
            }
        }
        found.totals = trial.totals();
        Ok((found, chosen))
    }
}

/// Numbers by chance, the same for a seed.
fn numbers(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    }
}

/// The median time of a kernel on a backend, or nothing where it can't run.
fn measured(engine: &Engine, backend: &str, job: &Job, resident: bool, rounds: u32) -> Option<Cost> {
    /// So often is data brought to a backend to see how long that takes.
    const MOVES: u32 = 3;
    let program = &job.source.program;
    if !resident {
        let inputs = job.inputs();
        let run = || engine.run_on(backend, program, &inputs, &job.config).ok().map(drop);
        run()?;
        return Some(Cost { ns: median_time(rounds, || Some(()), run)?, move_ns: 0.0 });
    }
    let prepared = engine.prepare_on(backend, program, &job.config).ok()?;
    let fill = || job.fill(&prepared).ok();
    let run = || prepared.run().ok().map(drop);
    fill()?;
    run()?;
    let with_move = median_time(MOVES.min(rounds), fill, run)?;
    let ns = median_time(rounds, || Some(()), run)?;
    Some(Cost { ns, move_ns: (with_move - ns).max(0.0) })
}

fn median_time(
    rounds: u32,
    mut before: impl FnMut() -> Option<()>,
    mut run: impl FnMut() -> Option<()>,
) -> Option<f64> {
    let mut times = Vec::new();
    let began = Instant::now();
    for round in 0..rounds {
        // What takes long needs fewer rounds.
        if round >= 3 && began.elapsed() > Duration::from_millis(60) {
            break;
        }
        before()?;
        let started = Instant::now();
        run()?;
        times.push(started.elapsed().as_nanos() as f64);
    }
    let [median] = quantiles(&mut times, [0.5]);
    Some(median)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oracle<'a>(backends: &'a [String]) -> Oracle<'a> {
        let cost = |ns, move_ns| Some(Cost { ns, move_ns });
        Oracle { backends, resident: true, costs: vec![vec![cost(10.0, 0.0), cost(2.0, 50.0), None]] }
    }

    #[test]
    fn the_oracle_pays_for_moves_too() {
        let names = ["cpu", "gpu", "none"].map(str::to_owned);
        let oracle = oracle(&names);
        let nowhere = Copies(vec![false; 3]);
        assert_eq!(oracle.best(0, &nowhere, 2, false), 20.0, "a move does not pay for two");
        assert_eq!(oracle.best(0, &nowhere, 10, false), 70.0);
        let there = Copies(vec![false, true, false]);
        assert_eq!(oracle.best(0, &there, 2, false), 4.0);
    }

    #[test]
    fn a_copy_is_good_until_it_is_written_elsewhere() {
        let names = ["cpu", "gpu", "none"].map(str::to_owned);
        let oracle = oracle(&names);
        let costs = &oracle.costs[0];
        let mut copies = Copies(vec![false; 3]);
        let to = [0, 1, 0, 1];
        assert_eq!(to.map(|to| copies.bring(to, costs, false)), [0.0, 50.0, 0.0, 0.0]);
        let mut copies = Copies(vec![false; 3]);
        assert_eq!(to.map(|to| copies.bring(to, costs, true)), [0.0, 50.0, 50.0, 50.0]);
    }
}
