//! Times of launches, on their way to router and tuner.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use vyre_driver::metrics::{Counter, Stage};
use vyre_driver::routing::Timing;
use vyre_driver::tuner::{DriftWatch, TunerProgramKey};

use super::core::{Core, Ready};
use super::dispatch::Submitted;
use super::{Inner, lock};
use crate::runtime::{Deps, Device, Job};

/// A launch whose time is still to come.
pub(super) struct Timed {
    job: Arc<Job>,
    pub(super) candidate: usize,
    /// The first launch of a process warms up caches and clocks, and tells little of the others.
    is_first: bool,
    /// Data was moved for it, so that nobody knows how long it would have taken to wait for it alone.
    is_moved: bool,
    /// It works on a caller's memory where that is.
    is_lent_here: bool,
}

impl Drop for Timed {
    fn drop(&mut self) {
        self.job.set_awaited(false);
    }
}

/// Live timings of a launch that was decided for, beside what it took then.
pub(super) struct Live {
    key: TunerProgramKey,
    watch: Mutex<DriftWatch>,
}

impl Live {
    pub(super) fn new(key: TunerProgramKey, watch: DriftWatch) -> Live {
        Live { key, watch: Mutex::new(watch) }
    }
}

impl Inner {
    /// Keeps a timed launch until its time is known, and takes in those that are.
    pub(crate) fn note_timing(
        &self,
        core: &Core,
        ready: &Arc<Ready>,
        job: &Arc<Job>,
        Submitted { pick, run, began, .. }: &Submitted,
        deps: &Deps,
    ) {
        if deps.moved_bytes > 0 {
            let timing = Timing { compute_ns: 0, moved_bytes: deps.moved_bytes, move_ns: deps.move_ns };
            self.routes.observe_move(&ready.device.id, timing, deps.is_lent);
        }
        self.collect_timings(core, ready);
        if pick.timed
            && let Ok(mut timings) = ready.timings.try_lock()
        {
            job.set_awaited(true);
            if let Some(began) = began.filter(|_| deps.moved_bytes == 0) {
                job.is_launched(began);
            }
            let (is_first, is_moved) = (*run == 0, deps.moved_bytes > 0);
            let (job, candidate) = (job.clone(), pick.candidate);
            let is_lent_here = deps.is_lent && ready.device.place == Device::HOST;
            timings.push(Timed { job, candidate, is_first, is_moved, is_lent_here });
            ready.timings_open.store(timings.len() as u32, Ordering::Relaxed);
        }
    }

    pub(super) fn collect_timings(&self, core: &Core, ready: &Arc<Ready>) {
        if ready.timings_open.load(Ordering::Relaxed) == 0 {
            return;
        }
        let Ok(mut timings) = ready.timings.try_lock() else { return };
        let mut at = 0;
        while at < timings.len() {
            match timings[at].job.look_quietly() {
                None => at += 1,
                Some(good) => {
                    let timed = timings.swap_remove(at);
                    // What who waits for a launch sees of it, its backend's way to tell and to be told with it, is what is routed by.
                    let waited_ns = |ns: u64| match timed.job.waited_ns() {
                        Some(waited_ns) => waited_ns,
                        None => ns + self.routes.wait_ns(&ready.device.id),
                    };
                    match timed.job.device_ns().filter(|_| good) {
                        Some(ns) if !timed.is_first => {
                            self.timed(core, ready, timed.candidate, ns, waited_ns(ns), timed.is_lent_here);
                        }
                        Some(ns) if timed.candidate == 0 && !timed.is_moved => {
                            self.routes.observe_first(&ready.work, &ready.device.id, waited_ns(ns));
                        }
                        _ => {}
                    }
                }
            }
        }
        ready.timings_open.store(timings.len() as u32, Ordering::Relaxed);
    }

    /// Takes in how long a launch on the caller's own memory took until its results were there.
    pub(super) fn note_round_trip(&self, ready: &Ready, submitted: &Submitted, ns: u64) {
        if submitted.pick.timed && submitted.pick.candidate == 0 {
            // The first one makes memory and loads code besides.
            self.routes.observe_round_trip(&ready.work, &ready.device.id, ns, submitted.run == 0);
        }
    }

    /// Takes in how long a launch took on its device, and how long that was for who waited.
    pub(super) fn timed(
        &self,
        core: &Core,
        ready: &Arc<Ready>,
        candidate: usize,
        ns: u64,
        waited_ns: u64,
        is_lent_here: bool,
    ) {
        self.metrics.record(Stage::Wait, ns);
        ready.latest_ns.store(ns, Ordering::Relaxed);
        if candidate == 0 {
            // Explored launches say nothing of the one that is used.
            let timing = Timing { compute_ns: waited_ns, ..Timing::default() };
            match is_lent_here {
                true => self.routes.observe_lent(&ready.work, &ready.device.id, waited_ns),
                false => self.routes.observe(&ready.work, &ready.device.id, timing),
            }
            // What has lastingly changed is learnt anew from the launches to come, within what learning may cost.
            if let Some(live) = &ready.live
                && let Some(change) = lock(&live.watch).observe(ns)
                && self.tuning.begin_to_doubt(&*ready.device.backend, &core.program, &live.key, change)
            {
                core.forget(ready);
            }
        }
        let Some(Ok(mut learning)) = ready.learning.as_ref().map(Mutex::try_lock) else { return };
        self.metrics.add(Counter::TuningSamples, 1);
        let context = (&ready.device.backend, &core.program, &core.config);
        if let Some(((pipeline, grid), decision, live)) = learning.observe(self, context, candidate, ns) {
            core.keep(Arc::new(ready.settled(pipeline, grid, decision).watched(live)));
        }
    }
}
