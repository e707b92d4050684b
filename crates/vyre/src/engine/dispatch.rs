//! The one way of every launch: plan, route, tune, pipeline, submit. `run`, prepared programs, launches on arrays and graphs all come here.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use smallvec::SmallVec;
use vyre_driver::backend::{Binding, HostMemory, Launch, Order, Pipeline, Ticket};
use vyre_driver::metrics::{Counter, Stage};
use vyre_driver::routing::{Load, Timing};
use vyre_driver::tuner::Mode;
use vyre_driver::variant::{Code, Variant};
use vyre_foundation::launch::Writes;
use vyre_spec::codes::Class;
use vyre_spec::{BackendId, Diagnostic, codes};

use super::core::{Arg, Core, Ready, Request};
use super::learning::{Context, Learning, Pick, compile};
use super::routes::{Route, Work};
use super::tuning::Asked;
use super::variants;
use super::{Inner, lock};
use crate::Error;
use crate::runtime::{Alarm, Deps, Device, Held, Job, Loan, Storage};

/// The first launches are timed, then one in so many.
pub(super) const TIMED_AT_FIRST: u64 = 8;
pub(super) const TIMED_EVERY: u64 = 64;
/// A launch that takes this long is worth asking the router each time.
pub(super) const LONG_NS: u64 = 1_000_000;

/// What came of an attempt on one device.
enum Attempt {
    /// It was submitted; `None` where it was done at once.
    Launched(Option<Arc<Job>>),
    /// Data would have to be moved first, so where it should run is to be asked.
    Elsewhere,
    /// It was submitted and has failed, and may have changed what it writes: it must not be tried again.
    Failed(Error),
}

/// What a launch is bound to, and what it waits for.
struct Bound {
    deps: Deps,
    bindings: SmallVec<[Binding; 8]>,
    temporaries: SmallVec<[Temporary; 2]>,
    /// Arrays that share their value with others, and the value of their own that they get.
    unshared: SmallVec<[(usize, Arc<Storage>); 2]>,
}

/// A launch that a device has, which of the tuner's candidates it is, and how many there were before.
pub(crate) struct Submitted {
    pub(crate) ticket: Ticket,
    pub(super) pick: Pick,
    pub(super) run: u64,
    /// When it was submitted, where it is timed.
    pub(super) began: Option<Instant>,
}

/// Memory of this launch alone.
pub(super) enum Temporary {
    /// A copy of a part that does not start where the device can bind it; where the second is set, it is copied back.
    Copy(Arc<Storage>, Option<(Arc<Storage>, Range<u64>)>),
    /// Device memory for the caller's bytes at a position among the arguments.
    Loan(usize, Loan),
    /// Host memory for the caller's bytes that can't be used in place.
    Host(usize, Arc<HostMemory>),
}

impl Inner {
    /// Launches on whatever is fastest. An error means that nothing was launched and no array has changed, but where memory of the caller
    /// was borrowed: then the call waits for the work, and the error may be the work's.
    pub(crate) fn launch(
        self: &Arc<Inner>,
        core: &Core,
        args: &mut [Arg<'_>],
        request: &Request,
    ) -> Result<Option<Arc<Job>>, Error> {
        self.metrics.add(Counter::Dispatches, 1);
        let launched = self.launch_somewhere(core, args, request);
        launched.inspect_err(|_| self.metrics.add(Counter::Errors, 1))
    }

    fn launch_somewhere(
        self: &Arc<Inner>,
        core: &Core,
        args: &mut [Arg<'_>],
        request: &Request,
    ) -> Result<Option<Arc<Job>>, Error> {
        let deadline = request.timeout.map(|timeout| Instant::now().checked_add(timeout));
        let deadline = deadline.flatten();
        let only = request.on.as_ref().or(core.only.as_ref());
        let mut elsewhere = None;
        if let Some(ready) = core.find(args.iter().map(Arg::bytes), args, request, only.map(|id| id.as_str()))
            && (only.is_some() || self.stays(core, &ready, args, request, &mut elsewhere))
        {
            let launched = match self.launch_calmly(core, &ready, args, request, deadline) {
                Ok(None) => self.launch_on(core, &ready, args, request, deadline, only.is_some()),
                Ok(Some(launched)) => Ok(launched),
                Err(error) => Err(error),
            };
            match launched {
                Ok(Attempt::Launched(job)) => return Ok(job),
                Ok(Attempt::Failed(error)) => return Err(error),
                // Nothing was launched; the whole way finds out what to do.
                Ok(Attempt::Elsewhere) | Err(_) => {}
            }
        }
        self.launch_anew(core, args, request, deadline, elsewhere)
    }

    /// A launch of which nothing is ready, or not where its data is; what the router says may be known already.
    #[cold]
    fn launch_anew(
        self: &Arc<Inner>,
        core: &Core,
        args: &mut [Arg<'_>],
        request: &Request,
        deadline: Option<Instant>,
        known: Option<Route>,
    ) -> Result<Option<Arc<Job>>, Error> {
        let only = request.on.as_ref().or(core.only.as_ref());
        let sizes = core.sizes(args);
        if let Some(id) = only {
            let device = self.device(id.as_str())?;
            let ready = self.ready(core, &device, &sizes, args, request, deadline)?;
            return match self.launch_on(core, &ready, args, request, deadline, true)? {
                Attempt::Launched(job) => Ok(job),
                Attempt::Failed(error) => Err(error),
                Attempt::Elsewhere => Err(unmovable()),
            };
        }
        self.launch_routed(core, &sizes, args, request, deadline, known)
    }

    /// Nothing speaks against the device of the launch before; else where the router would have it instead. The router is asked while
    /// the first timings come in, since what it went by until then may be a guess, whenever a launch is long, and now and then.
    fn stays(
        &self,
        core: &Core,
        ready: &Ready,
        args: &[Arg<'_>],
        request: &Request,
        elsewhere: &mut Option<Route>,
    ) -> bool {
        if self.routes.is_out(&ready.device.id) {
            return false;
        }
        let runs = ready.runs.load(Ordering::Relaxed);
        let is_borrowed = args.iter().any(Arg::is_borrowed);
        if ready.is_borrowed.load(Ordering::Relaxed) != is_borrowed {
            ready.is_borrowed.store(is_borrowed, Ordering::Relaxed);
            ready.alike_from.store(runs, Ordering::Relaxed);
        }
        let alike = runs.saturating_sub(ready.alike_from.load(Ordering::Relaxed));
        let dispatches = if alike < TIMED_AT_FIRST || ready.latest_ns.load(Ordering::Relaxed) >= LONG_NS {
            1
        } else if runs % TIMED_EVERY == TIMED_EVERY - 1 {
            TIMED_EVERY
        } else {
            return true;
        };
        self.metrics.add(Counter::Routes, 1);
        let _timer = self.metrics.time(Stage::Route);
        let devices = self.open_devices();
        let load = load(core, &devices, &ready.work, args, (&ready.keep, request), dispatches);
        *elsewhere = self.routes.choose(&ready.work, load, &[]).ok();
        elsewhere.as_ref().is_some_and(|route| ready.device.id == route.backend)
    }

    /// Tries devices in the order that the router gives them; its answer may be known already.
    fn launch_routed(
        self: &Arc<Inner>,
        core: &Core,
        sizes: &SmallVec<[u64; 8]>,
        args: &mut [Arg<'_>],
        request: &Request,
        deadline: Option<Instant>,
        mut known: Option<Route>,
    ) -> Result<Option<Arc<Job>>, Error> {
        let (plan, _) = {
            let _timer = self.metrics.time(Stage::Plan);
            core.plan(sizes, args, request, deadline)?
        };
        let work = Work::new(&core.program, &core.config, &plan);
        let mut first_error: Option<Error> = None;
        let mut passed_over: Vec<BackendId> = Vec::new();
        loop {
            check_deadline(deadline)?;
            // A second question about one launch would count it twice, and what the first one moved data for would be forgotten.
            let route = known.take().map_or_else(
                || {
                    let _timer = self.metrics.time(Stage::Route);
                    let devices = self.open_devices();
                    let load = load(core, &devices, &work, args, (&core.kept(&plan), request), 1);
                    self.routes.choose(&work, load, &passed_over)
                },
                Ok,
            );
            let (id, is_last) = match route {
                Ok(route) => (route.backend, false),
                Err(none_left) => match self.registry.acquire(crate::reference::REFERENCE) {
                    Ok(_) if !passed_over.iter().any(|id| id.as_str() == crate::reference::REFERENCE) => {
                        (crate::reference::REFERENCE.into(), true)
                    }
                    _ => return Err(first_error.unwrap_or_else(|| none_left.into())),
                },
            };
            self.metrics.add(Counter::Routes, 1);
            let Some(device) = self.chosen(&id, &mut passed_over) else { continue };
            if !device.backend.gives_exact(&core.program) {
                let reason = "its results may differ from the exact ones, and the program is in exact arithmetic";
                self.routes.unable(&work, id.as_str(), reason);
                lock(&core.refused).push((id.to_string(), reason.to_owned()));
                passed_over.push(id);
                continue;
            }
            let attempt = self.ready(core, &device, sizes, args, request, deadline).and_then(|ready| {
                core.route_to(&ready);
                self.launch_on(core, &ready, args, request, deadline, true)
            });
            let error = match attempt {
                Ok(Attempt::Launched(job)) => {
                    self.fell_back(&device, first_error.as_ref());
                    return Ok(job);
                }
                Ok(Attempt::Failed(error)) => return Err(error),
                Ok(Attempt::Elsewhere) => unmovable(),
                Err(error) => error,
            };
            // What the launch needs is lost, which is no fault of the device that was to run it.
            self.check_lost(core, args, request)?;
            if is_last {
                return Err(first_error.unwrap_or(error));
            }
            match error.class() {
                Class::Caller => return Err(error),
                Class::Program => self.routes.unable(&work, id.as_str(), error.message()),
                Class::Busy => {}
                Class::Device => self.notice(self.routes.lost(id.as_str(), error.message())),
            }
            lock(&core.refused).push((id.to_string(), error.message().to_owned()));
            core.leave(&device);
            passed_over.push(id);
            first_error.get_or_insert(error);
        }
    }

    /// Refuses a launch on something lost.
    fn check_lost(&self, core: &Core, args: &[Arg<'_>], request: &Request) -> Result<(), Error> {
        for (slot, arg) in core.slots.iter().zip(args) {
            let writes_all = slot.access.writes == Writes::All || request.overwrites;
            let overwritten = !slot.access.reads && writes_all && request.size_from.is_none();
            match arg {
                Arg::Read(storage, range) => storage.check_lost(range)?,
                Arg::Part(storage, range) if !overwritten => storage.check_lost(range)?,
                Arg::Write(storage) if !overwritten => storage.check_lost(&(0..storage.bytes))?,
                Arg::Unbound | Arg::Part(..) | Arg::Write(_) | Arg::Value(_) | Arg::Bytes(_) | Arg::Into(_) => {}
            }
        }
        Ok(())
    }

    /// A device failed while something was read from it.
    pub(crate) fn device_failed(&self, device: &Device, error: &Error) {
        if error.class() == Class::Device {
            self.notice(self.routes.lost(device.id.as_str(), error.message()));
        }
    }

    /// Tells the user that the work was done elsewhere than it should have been.
    pub(super) fn fell_back(&self, device: &Device, error: Option<&Error>) {
        if let Some(error) = error {
            self.metrics.add(Counter::Fallbacks, 1);
            let message = format!("the work was done by `{}` instead: {}", device.id, error.message());
            self.notice(Diagnostic::new(&codes::engine::FELL_BACK, message));
        }
    }

    /// Pipeline, plan and launch for these sizes on a device, made if they are not there.
    fn ready(
        self: &Arc<Inner>,
        core: &Core,
        device: &Arc<Device>,
        sizes: &SmallVec<[u64; 8]>,
        args: &[Arg<'_>],
        request: &Request,
        deadline: Option<Instant>,
    ) -> Result<Arc<Ready>, Error> {
        if let Some(ready) = core.find(sizes.iter().copied(), args, request, Some(device.id.as_str())) {
            return Ok(ready);
        }
        let (mut config, inputs) = core.config_for(sizes, request);
        let (program, backend, tuning) = (&core.program, &device.backend, &self.tuning);
        let (plan, contents) = core.plan(sizes, args, request, deadline)?;
        // Known from here on, whatever it was taken from.
        config.domain_override = Some(plan.domain);
        for warning in &plan.warnings {
            self.notice(warning.clone());
        }
        let work = Work::new(program, &config, &plan);
        let able = backend.capabilities();
        if !able.resident {
            let planned = (plan, contents);
            let ready = Ready::new(core, device.clone(), sizes.clone(), request, None, planned, work, None, None);
            let ready = Arc::new(ready);
            core.keep(ready.clone());
            return Ok(ready);
        }
        able.check_launch(program, &plan)?;
        let asked =
            Asked { backend, program, plan: &plan, config: &core.config, variants: &[], fixed: request.grid.is_some() };
        let variants = self.variants_for(core, &Asked { config: &config, ..asked }, args, request, deadline)?;
        let asked = Asked { variants: &variants, ..asked };
        let is_open = request.grid.is_none() || !variants.is_empty();
        let mut decision = tuning.decision(&asked);
        let is_tunable = request.grid.is_none() || variants::open(&asked, request.interruptible).next().is_some();
        if decision.is_none() && tuning.mode() == Mode::On && is_tunable && args.len() == core.slots.len() {
            let contents = self.contents(core, args, false, deadline)?;
            let contents: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
            decision = self.tune_at_first_use(&Asked { config: &config, ..asked }, &contents)?;
        }
        let decided = match &decision {
            Some(decision) => super::tuning::with_launch(&config, &decision.candidate),
            None => config.clone(),
        };
        let decided_plan = vyre_driver::launch::plan_sizes(program, &inputs, &decided)?;
        let mut options = vyre_driver::launch::compile_options(program, &decided)?;
        options.interruptible = request.interruptible;
        let pipeline = self.pipeline(&**backend, program, &options)?;
        check_deadline(deadline)?;
        let (mut learning, mut known_fast) = (None, None);
        if decision.is_none() && tuning.mode() == Mode::NaturalGradient && is_open {
            let mut candidates = self.candidates(&asked, None, true)?;
            if candidates.list.len() > 1 {
                tuning.begin_with_best_guess(&asked, &mut candidates);
                let default = (pipeline.clone(), plan.grid);
                let preferred = candidates.first.map(|first| (first, candidates.list[first].clone()));
                let mut begun = Learning::new(program, candidates, plan.clone(), inputs.to_vec(), default);
                if let Some((at, candidate)) = preferred
                    && variants::find(&config, &candidate).is_some_and(Variant::is_preferred)
                {
                    let config = super::tuning::with_launch(&config, &candidate);
                    let sizes = &plan.buffer_bytes;
                    let made = compile(self, &**backend, program, config, &inputs, sizes, request.interruptible);
                    known_fast = made.as_ref().ok().cloned();
                    begun.prefer(at, made.map_err(|error| error.message().to_owned()));
                }
                learning = Some(Mutex::new(begun));
            }
        }
        let pipeline = Some(pipeline);
        let planned = (if variants.is_empty() { decided_plan.clone() } else { plan.clone() }, contents);
        let live = decision.as_ref().and_then(|decision| tuning.watch(&asked, decision));
        let mut ready =
            Ready::new(core, device.clone(), sizes.clone(), request, pipeline, planned, work, decision, learning);
        // What a variant leaves as it was is what the program itself does.
        ready.plan = decided_plan;
        ready.preferred = known_fast;
        let ready = Arc::new(ready.watched(live));
        core.keep(ready.clone());
        Ok(ready)
    }

    /// The variants that may run for a launch. Those that nothing is known of yet are compared with the program on copies of the inputs.
    fn variants_for(
        self: &Arc<Inner>,
        core: &Core,
        asked: &Asked<'_>,
        args: &[Arg<'_>],
        request: &Request,
        deadline: Option<Instant>,
    ) -> Result<Vec<Variant>, Error> {
        // How many blocks a variant needs is known only where the size is.
        if core.config.variants.is_empty() || request.size_from.is_some() || !self.tuning.decides() {
            return Ok(Vec::new());
        }
        // Comparing several programs would stall a launch, so only what tuning has decided for, or somebody's own code, is.
        let named = self.tuning.named(asked);
        let is_wanted =
            |variant: &Variant| !matches!(variant.code(), Code::Program(..)) || named.as_ref() == Some(&variant.id());
        let is_new = |variant: &Variant| {
            is_wanted(variant) && !variant.is_vouched() && self.gate.verdict(asked, variant).is_none()
        };
        let compares = args.len() == core.slots.len() && variants::open(asked, request.interruptible).any(is_new);
        if !compares {
            return Ok(self.agreeing_variants(asked, request.interruptible, None, &is_wanted));
        }
        let contents = self.contents(core, args, false, deadline)?;
        let contents: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
        Ok(self.agreeing_variants(asked, request.interruptible, Some(&contents), &is_wanted))
    }

    /// What a launch of these sizes needs, on a device or else on the one that the router gives.
    pub(crate) fn ready_for_graph(
        self: &Arc<Inner>,
        core: &Core,
        sizes: &SmallVec<[u64; 8]>,
        request: &Request,
        device: Option<&Arc<Device>>,
    ) -> Result<Arc<Ready>, Error> {
        let device = match (device, request.on.as_ref().or(core.only.as_ref())) {
            (Some(device), _) => device.clone(),
            (None, Some(id)) => self.device(id.as_str())?,
            (None, None) => {
                let (plan, _) = core.plan(sizes, &[], request, None)?;
                let work = Work::new(&core.program, &core.config, &plan);
                // What is replayed again and again is moved once.
                let in_place = Load { bytes_in: 0, ..work.on_host() };
                let mut passed_over = Vec::new();
                loop {
                    let id = self.routes.choose(&work, in_place.clone(), &passed_over)?.backend;
                    match self.device(id.as_str()) {
                        Ok(device) if device.backend.capabilities().resident => {
                            if !self.routes.take_surprise(id.as_str()) {
                                break device;
                            }
                        }
                        _ => passed_over.push(id),
                    }
                }
            }
        };
        self.ready(core, &device, sizes, &[], request, None)
    }

    /// A device for work that needs none in particular.
    pub(crate) fn any_device(&self) -> Result<Arc<Device>, Error> {
        for id in self.routes.backends() {
            if let Ok(device) = self.device(&id)
                && device.backend.capabilities().resident
            {
                return Ok(device);
            }
        }
        Err(unmovable())
    }

    /// The bytes of every input, or of all buffers.
    fn contents(
        &self,
        core: &Core,
        args: &[Arg<'_>],
        all: bool,
        deadline: Option<Instant>,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let mut contents = Vec::new();
        for (_, arg) in core.slots.iter().zip(args).filter(|(slot, _)| all || slot.kind.is_input()) {
            let read = |storage: &Storage, range: Range<u64>| {
                let mut bytes = vec![0; (range.end - range.start) as usize];
                storage.read(range.start, &mut bytes, deadline).map(|()| bytes)
            };
            contents.push(match arg {
                Arg::Read(storage, range) | Arg::Part(storage, range) => read(storage, range.clone())?,
                Arg::Write(storage) => read(storage, 0..storage.bytes)?,
                Arg::Unbound => Vec::new(),
                Arg::Value(bytes) => bytes.to_vec(),
                Arg::Bytes(bytes) => bytes.to_vec(),
                Arg::Into(bytes) => bytes.to_vec(),
            });
        }
        Ok(contents)
    }

    /// Launches on one device, whatever has to be done for it. An error means that nothing was launched, or that nothing which the caller can see has changed.
    #[inline(never)]
    fn launch_on(
        self: &Arc<Inner>,
        core: &Core,
        ready: &Arc<Ready>,
        args: &mut [Arg<'_>],
        request: &Request,
        deadline: Option<Instant>,
        may_move: bool,
    ) -> Result<Attempt, Error> {
        if ready.pipeline.is_none() {
            return self.run_on_host(core, ready, args, request, deadline).map(|()| Attempt::Launched(None));
        }
        let alarm = self.watcher.alarm(deadline)?;
        if let Some(launched) = self.launch_steadily(core, ready, args, request, deadline, alarm.as_ref())? {
            return Ok(launched);
        }
        let (device, began) = (&ready.device, Instant::now());
        let Some(mut bound) = self.bind(core, ready, args, request, deadline, may_move)? else {
            return Ok(Attempt::Elsewhere);
        };
        let mut grid_place = None;
        if let Some(from) = &request.size_from {
            let (grid, binding) = self.grid_on_device(from, ready, deadline, &mut bound.deps)?;
            bound.temporaries.push(Temporary::Copy(grid, None));
            grid_place = Some(binding);
        }
        check_deadline(deadline)?;
        let Bound { mut deps, bindings, temporaries, unshared } = bound;
        let order = deps.order(ready.queue_of(deps.queue));
        let mut submitted = self.submit(core, ready, request, &bindings, order, grid_place.as_ref(), false)?;
        let ticket = submitted.ticket;
        let parents = std::mem::take(&mut deps.parents);
        let job = self.start_job(device, ticket, request.label.as_ref(), parents);
        if let Some(alarm) = &alarm {
            alarm.end(&job);
        }
        for (at, own) in unshared {
            if let Arg::Write(storage) = &mut args[at] {
                **storage = own;
            }
        }
        for arg in args.iter() {
            match arg {
                Arg::Read(storage, range) => storage.launched(&job, range, false),
                Arg::Part(storage, range) if !is_copied(&temporaries, storage, range) => {
                    storage.launched(&job, range, true);
                }
                Arg::Write(storage) => storage.launched(&job, &(0..storage.bytes), true),
                Arg::Unbound | Arg::Part(..) | Arg::Value(_) | Arg::Bytes(_) | Arg::Into(_) => {}
            }
        }
        let is_borrowed = args.iter().any(Arg::is_borrowed);
        if is_borrowed && submitted.run == 0 {
            // Memory for such moves is made for the first of them.
            submitted.began = submitted.began.filter(|_| deps.moved_bytes == 0);
            (deps.moved_bytes, deps.move_ns) = (0, 0);
        }
        self.note_timing(core, ready, &job, &submitted, &deps);
        device.throttle(ticket);
        if is_borrowed {
            let finished = {
                let _timer = self.metrics.time(Stage::Wait);
                self.finish_borrowed(device, &job, args, &core.slots, temporaries, request.stop.as_ref())
            };
            if let Err(error) = finished {
                // Work on the caller's own memory may have changed it, what is done may be half-way back, and who ended the launch does
                // not want another. Else what the caller lent is as it was, and another device may do the work.
                let has_failed = matches!(job.poll(), Some(Err(_)));
                let is_untouched = has_failed && device.place != Device::HOST && error.class() != Class::Caller;
                return if is_untouched { Err(error) } else { Ok(Attempt::Failed(error)) };
            }
            self.collect_timings(core, ready);
            if is_round_trip(args) {
                self.note_round_trip(ready, &submitted, began.elapsed().as_nanos() as u64);
            }
        } else if let Err(error) = keep_copies(device, &job, temporaries) {
            return Ok(Attempt::Failed(error));
        }
        core.launched(ready);
        Ok(Attempt::Launched(Some(job)))
    }

    /// Brings what a launch needs to its device; `None` where something is elsewhere and may not be moved.
    fn bind(
        self: &Arc<Inner>,
        core: &Core,
        ready: &Arc<Ready>,
        args: &mut [Arg<'_>],
        request: &Request,
        deadline: Option<Instant>,
        may_move: bool,
    ) -> Result<Option<Bound>, Error> {
        let device = &ready.device;
        let mut bound = Bound {
            deps: Deps::until(deadline),
            bindings: SmallVec::new(),
            temporaries: SmallVec::new(),
            unshared: SmallVec::new(),
        };
        let Bound { deps, bindings, temporaries, unshared } = &mut bound;
        let alignment = device.alignment;
        for (at, arg) in args.iter_mut().enumerate() {
            // A launch of which less may run than was planned leaves something as it was.
            let overwritten = request.overwrites && !core.slots[at].access.reads;
            let keep = ready.keep[at] && !overwritten || request.size_from.is_some();
            let (storage, range, write): (&Arc<Storage>, Range<u64>, bool) = match arg {
                Arg::Read(storage, range) => (storage, range.clone(), false),
                Arg::Part(storage, range) => (storage, range.clone(), true),
                Arg::Write(storage) => {
                    let whole = 0..storage.bytes;
                    if Arc::strong_count(storage) > 1 {
                        let own = match keep {
                            true => storage.duplicate()?,
                            false => Storage::zeros(self, storage.bytes),
                        };
                        unshared.push((at, own));
                        (&unshared[unshared.len() - 1].1, whole, true)
                    } else {
                        (&**storage, whole, true)
                    }
                }
                Arg::Unbound => return Err(not_bound(&core.slots[at].name)),
                Arg::Value(bytes) => {
                    let make = || {
                        let memory = self.host.take(bytes.len() as u64, false)?;
                        memory.fill(0, bytes);
                        Ok(Storage::of_host(self, memory, bytes.len() as u64))
                    };
                    let storage = ready.value(at, bytes, make)?;
                    let whole = 0..storage.bytes;
                    bindings.push(storage.prepare(device, &whole, true, false, deps)?);
                    temporaries.push(Temporary::Copy(storage, None));
                    continue;
                }
                Arg::Bytes(bytes) => {
                    bindings.push(self.lend(device, bytes, at, temporaries, deps)?);
                    continue;
                }
                Arg::Into(bytes) => {
                    let is_input = core.slots[at].kind.is_input();
                    bindings.push(self.lend_mut(device, bytes, at, is_input, keep, temporaries, deps)?);
                    continue;
                }
            };
            let keep = keep || !write;
            let binding = if may_move {
                storage.prepare(device, &range, keep, write, deps)?
            } else {
                match storage.prepare_here(device, &range, keep, write, deps)? {
                    Some(binding) => binding,
                    None => return Ok(None),
                }
            };
            if binding.offset.is_multiple_of(alignment) {
                bindings.push(binding);
                continue;
            }
            let copy = Storage::zeros(self, range.end - range.start);
            if keep {
                copy.copy_from(storage, range.start, 0, copy.bytes, device)?;
            }
            let whole = 0..copy.bytes;
            bindings.push(copy.prepare(device, &whole, keep, write, deps)?);
            let back = write.then(|| (storage.clone(), range));
            temporaries.push(Temporary::Copy(copy, back));
        }
        Ok(Some(bound))
    }

    /// A launch on arrays of the host that nothing is under way on, which nearly all small launches on the processor are. `None` where
    /// that is not so.
    fn launch_calmly(
        self: &Arc<Inner>,
        core: &Core,
        ready: &Arc<Ready>,
        args: &[Arg<'_>],
        request: &Request,
        deadline: Option<Instant>,
    ) -> Result<Option<Attempt>, Error> {
        let device = &ready.device;
        if device.place != Device::HOST || deadline.is_some() || request.size_from.is_some() || ready.pipeline.is_none()
        {
            return Ok(None);
        }
        let mut values: SmallVec<[Arc<Storage>; 2]> = SmallVec::new();
        let mut bindings: SmallVec<[Binding; 8]> = SmallVec::new();
        for (at, arg) in args.iter().enumerate() {
            let calm = match arg {
                Arg::Read(storage, range) => storage.calm(device, range, false),
                Arg::Write(storage) if Arc::strong_count(storage) == 1 => {
                    storage.calm(device, &(0..storage.bytes), true)
                }
                Arg::Value(bytes) => ready.known_value(at, bytes).and_then(|storage| {
                    let calm = storage.calm(device, &(0..storage.bytes), false);
                    values.push(storage);
                    calm
                }),
                Arg::Write(_) | Arg::Part(..) | Arg::Unbound | Arg::Bytes(_) | Arg::Into(_) => None,
            };
            match calm {
                Some(binding) => bindings.push(binding),
                None => return Ok(None),
            }
        }
        let order = Order { queue: ready.queue_of(None), after: &[], deadline: None };
        let submitted = self.submit(core, ready, request, &bindings, order, None, false)?;
        if submitted.pick.timed || !device.is_done_at_once(submitted.ticket) {
            return Ok(Some(self.launched_calmly(core, ready, args, request, values, &submitted)));
        }
        core.launched(ready);
        Ok(Some(Attempt::Launched(None)))
    }

    /// Such a launch goes on after the call, or it is to be known how long it takes.
    #[cold]
    fn launched_calmly(
        self: &Arc<Inner>,
        core: &Core,
        ready: &Arc<Ready>,
        args: &[Arg<'_>],
        request: &Request,
        values: SmallVec<[Arc<Storage>; 2]>,
        submitted: &Submitted,
    ) -> Attempt {
        let job = self.start_job(&ready.device, submitted.ticket, request.label.as_ref(), SmallVec::new());
        for arg in args {
            match arg {
                Arg::Read(storage, range) => storage.launched(&job, range, false),
                Arg::Write(storage) => storage.launched(&job, &(0..storage.bytes), true),
                Arg::Unbound | Arg::Part(..) | Arg::Value(_) | Arg::Bytes(_) | Arg::Into(_) => {}
            }
        }
        values.iter().for_each(|value| value.launched(&job, &(0..value.bytes), false));
        self.goes_on(core, ready, job, submitted, &Deps::default())
    }

    /// A launch that may go on after the call was noted on its arrays.
    fn goes_on(&self, core: &Core, ready: &Arc<Ready>, job: Arc<Job>, submitted: &Submitted, deps: &Deps) -> Attempt {
        self.note_timing(core, ready, &job, submitted, deps);
        ready.device.throttle(submitted.ticket);
        core.launched(ready);
        Attempt::Launched(Some(job))
    }

    /// A launch whose arrays are all where it needs them; nothing is moved or copied for it. `None` where that is not so.
    fn launch_steadily(
        self: &Arc<Inner>,
        core: &Core,
        ready: &Arc<Ready>,
        args: &[Arg<'_>],
        request: &Request,
        deadline: Option<Instant>,
        alarm: Option<&Alarm<'_>>,
    ) -> Result<Option<Attempt>, Error> {
        if request.size_from.is_some() {
            return Ok(None);
        }
        let device = &ready.device;
        let mut values: SmallVec<[Arc<Storage>; 2]> = SmallVec::new();
        for (at, arg) in args.iter().enumerate() {
            if let Arg::Value(bytes) = arg {
                let Some(storage) = ready.known_value(at, bytes) else { return Ok(None) };
                values.push(storage);
            }
        }
        let mut deps = Deps::until(deadline);
        let mut bindings: SmallVec<[Binding; 8]> = SmallVec::new();
        let alignment = device.alignment;
        let mut held = Held::default();
        let mut values = values.iter();
        for (arg, &keep) in args.iter().zip(&ready.keep) {
            let held = match arg {
                Arg::Read(storage, range) => held.hold(storage, device, range, (true, false), &mut deps),
                Arg::Part(storage, range) => held.hold(storage, device, range, (keep, true), &mut deps),
                Arg::Write(storage) if Arc::strong_count(storage) == 1 => {
                    held.hold(storage, device, &(0..storage.bytes), (keep, true), &mut deps)
                }
                Arg::Value(_) => values
                    .next()
                    .and_then(|value| held.hold(value, device, &(0..value.bytes), (true, false), &mut deps)),
                Arg::Write(_) | Arg::Unbound | Arg::Bytes(_) | Arg::Into(_) => None,
            };
            match held {
                Some(binding) if binding.offset.is_multiple_of(alignment) => bindings.push(binding),
                _ => return Ok(None),
            }
        }
        check_deadline(deadline)?;
        let order = deps.order(ready.queue_of(deps.queue));
        let submitted = self.submit(core, ready, request, &bindings, order, None, false)?;
        let ticket = submitted.ticket;
        // A small launch on the processor is done by now; nobody will ask how it went, as it came after nothing that may yet fail.
        if deps.after.is_empty() && !submitted.pick.timed && device.is_done_at_once(ticket) {
            held.done(device);
            core.launched(ready);
            return Ok(Some(Attempt::Launched(None)));
        }
        let job = self.start_job(device, ticket, request.label.as_ref(), held.parents());
        held.launched(&job);
        if let Some(alarm) = alarm {
            alarm.end(&job);
        }
        Ok(Some(self.goes_on(core, ready, job, &submitted, &deps)))
    }

    /// Gives a launch to its device, as the tuner wants it; now and then, or where it `is_timed`, with its time.
    #[allow(clippy::too_many_arguments, reason = "what a launch is, and when it runs")]
    pub(crate) fn submit(
        self: &Arc<Inner>,
        core: &Core,
        ready: &Ready,
        request: &Request,
        bindings: &[Binding],
        order: Order<'_>,
        grid_place: Option<&Binding>,
        is_timed: bool,
    ) -> Result<Submitted, Error> {
        let device = &ready.device;
        let Some(pipeline) = &ready.pipeline else { return Err(unmovable()) };
        // Two threads may count the same run, which nothing depends on.
        let run = ready.runs.load(Ordering::Relaxed);
        ready.runs.store(run.wrapping_add(1), Ordering::Relaxed);
        let timed = is_timed || run < TIMED_AT_FIRST || run.is_multiple_of(TIMED_EVERY);
        let mut pick = Pick { candidate: 0, launch: None, timed };
        if let Some(preferred) = &ready.preferred {
            // Which candidate that is, is known to the thread that learns.
            pick = Pick { candidate: 0, launch: Some(preferred.clone()), timed: false };
        }
        if let Some(learning) = &ready.learning {
            pick.timed = is_timed && ready.preferred.is_none();
            // Another thread may be at it, and knows how many are under way.
            if let Ok(mut learning) = learning.try_lock() {
                let context =
                    Context { engine: self, backend: &device.backend, program: &core.program, config: &core.config };
                pick = learning.pick(&context, request.interruptible, &ready.timings_under_way());
            }
        }
        if grid_place.is_some() {
            // How much runs is not known here, so that its time would tell nothing.
            pick = Pick { candidate: 0, launch: None, timed: false };
        }
        let began = pick.timed.then(Instant::now);
        let submit = |pipeline: &Arc<dyn Pipeline>, grid: [u32; 3], timed: bool| {
            let launch = Launch { bindings, grid, timed, order };
            match grid_place {
                Some(place) => device.backend.submit_indirect(pipeline, &launch, place),
                None => device.backend.submit(pipeline, &launch),
            }
        };
        let ticket = match &pick.launch {
            Some((candidate, grid)) => match submit(candidate, *grid, pick.timed) {
                Ok(ticket) => ticket,
                // A candidate that fails is the tuner's business.
                Err(error) => {
                    if let Some(learning) = ready.learning.as_ref().filter(|_| pick.candidate > 0) {
                        lock(learning).reject(pick.candidate, error.message());
                    }
                    (pick.candidate, pick.timed) = (0, false);
                    submit(pipeline, ready.plan.grid, false)?
                }
            },
            None => submit(pipeline, ready.plan.grid, pick.timed)?,
        };
        // Who asks for the time has launched it often before, in a graph.
        Ok(Submitted { ticket, pick, run: if is_timed { run.max(1) } else { run }, began })
    }

    /// A backend without a resident path works on the bytes of the host, while the caller waits.
    fn run_on_host(
        &self,
        core: &Core,
        ready: &Arc<Ready>,
        args: &mut [Arg<'_>],
        request: &Request,
        deadline: Option<Instant>,
    ) -> Result<(), Error> {
        let began = Instant::now();
        // What a launch on arrays does not write stays as it was.
        let is_kept =
            |slot: &super::core::Slot, keep: bool| !slot.kind.is_input() && (keep || request.size_from.is_some());
        let in_place = core.slots.iter().zip(&ready.keep).any(|(slot, &keep)| is_kept(slot, keep));
        let contents = self.contents(core, args, in_place, deadline)?;
        let inputs: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
        let (mut config, _) = core.config_for(&core.sizes(args), request);
        let mut program = &core.program;
        if in_place {
            program = core.in_place()?;
            config.output_elements.clear();
        }
        config.timeout = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if let Some(from) = &request.size_from {
            config.grid_override = Some(from.read(ready, deadline)?);
        }
        let started = Instant::now();
        let results = {
            let _timer = self.metrics.time(Stage::Wait);
            ready.device.backend.dispatch_borrowed(program, &inputs, &config)?
        };
        let compute_ns = started.elapsed().as_nanos() as u64;
        let slots = core.slots.iter().zip(args.iter_mut()).filter(|(slot, _)| slot.kind.is_result());
        for ((slot, arg), result) in slots.zip(results) {
            let wrong = || {
                let message = format!("`{}` gave {} bytes for `{}`", ready.device.id, result.len(), slot.name);
                Error::from(Diagnostic::new(&codes::backend::FAILED, message))
            };
            if result.len() as u64 != arg.bytes() {
                return Err(wrong());
            }
            match arg {
                Arg::Write(storage) if Arc::strong_count(storage) > 1 => {
                    let own = Storage::zeros(&storage.engine, storage.bytes);
                    own.write(0, &result, deadline)?;
                    **storage = own;
                }
                Arg::Write(storage) => storage.write(0, &result, deadline)?,
                Arg::Part(storage, range) => storage.write(range.start, &result, deadline)?,
                Arg::Into(bytes) => bytes.copy_from_slice(&result),
                // What the kernel never writes may be bound to be read.
                Arg::Unbound | Arg::Read(..) | Arg::Value(_) | Arg::Bytes(_) => {}
            }
        }
        ready.latest_ns.store(compute_ns, Ordering::Relaxed);
        // The first run of a process warms up caches and clocks, and tells little of the others.
        let is_first = ready.runs.fetch_add(1, Ordering::Relaxed) == 0;
        match is_first {
            true => self.routes.observe_first(&ready.work, &ready.device.id, compute_ns),
            false => self.routes.observe(&ready.work, &ready.device.id, Timing { compute_ns, ..Timing::default() }),
        }
        if is_round_trip(args) {
            let ns = began.elapsed().as_nanos() as u64;
            self.routes.observe_round_trip(&ready.work, &ready.device.id, ns, is_first);
        }
        core.launched(ready);
        Ok(())
    }

    pub(crate) fn start_job(
        &self,
        device: &Arc<Device>,
        ticket: Ticket,
        label: Option<&Arc<str>>,
        parents: SmallVec<[Arc<Job>; 4]>,
    ) -> Arc<Job> {
        self.jobs.start(device, ticket, label, parents, &|error| self.notice(error.diagnostic().clone()))
    }
}

/// All data is the caller's, and so comes from the host and goes back there.
fn is_round_trip(args: &[Arg<'_>]) -> bool {
    args.iter().all(|arg| arg.is_borrowed() || matches!(arg, Arg::Value(_)))
}

/// What a launch does, and where what it needs is; `keep` says which buffers' contents it needs where the request does not.
fn load<'a>(
    core: &Core,
    devices: &'a [Arc<Device>],
    work: &Work,
    args: &[Arg<'_>],
    (keep, request): (&[bool], &Request),
    dispatches: u64,
) -> Load<'a> {
    let away = devices.iter().filter(|device| device.place != Device::HOST);
    let mut on: Vec<(&Device, u64)> = away.map(|device| (&**device, 0)).collect();
    let mut load = Load { n: work.size, stays: true, dispatches, effort: work.effort, ..Load::default() };
    for ((slot, arg), &keep) in core.slots.iter().zip(args).zip(keep) {
        let is_overwritten = request.overwrites && !slot.access.reads;
        let is_needed = keep && !is_overwritten || request.size_from.is_some();
        let (storage, range): (&Arc<Storage>, Range<u64>) = match arg {
            Arg::Read(storage, range) | Arg::Part(storage, range) => (storage, range.clone()),
            Arg::Write(storage) => (storage, 0..storage.bytes),
            // Values are small, and sent once for many launches.
            Arg::Unbound | Arg::Value(_) => continue,
            Arg::Bytes(_) | Arg::Into(_) => {
                load.stays = false;
                if slot.kind.is_result() {
                    load.bytes_back += arg.bytes();
                }
                if slot.kind.is_input() && is_needed {
                    load.bytes_in += arg.bytes();
                    load.on_host += arg.bytes();
                }
                continue;
            }
        };
        if is_needed {
            load.bytes_in += range.end - range.start;
            load.on_host += storage.bytes_at(Device::HOST, &range);
            on.iter_mut().for_each(|(device, here)| *here += storage.bytes_at(device.place, &range));
        }
    }
    load.on = on.into_iter().map(|(device, here)| (device.id.as_str(), here)).collect();
    load
}

/// Notes that a launch uses copies of parts of arrays, and has what it writes to them copied back.
fn keep_copies(device: &Arc<Device>, job: &Arc<Job>, temporaries: SmallVec<[Temporary; 2]>) -> Result<(), Error> {
    for temporary in temporaries {
        if let Temporary::Copy(copy, back) = temporary {
            copy.launched(job, &(0..copy.bytes), back.is_some());
            if let Some((storage, range)) = back {
                storage.copy_from(&copy, 0, range.start, copy.bytes, device)?;
            }
        }
    }
    Ok(())
}

fn is_copied(temporaries: &[Temporary], storage: &Arc<Storage>, range: &Range<u64>) -> bool {
    temporaries.iter().any(|temporary| match temporary {
        Temporary::Copy(_, Some((known, part))) => Arc::ptr_eq(known, storage) && part == range,
        _ => false,
    })
}

fn check_deadline(deadline: Option<Instant>) -> Result<(), Error> {
    match deadline {
        Some(deadline) if Instant::now() >= deadline => {
            let message = "the time was over before the launch could begin";
            Err(Diagnostic::new(&codes::backend::TIMEOUT, message).into())
        }
        _ => Ok(()),
    }
}

pub(crate) fn not_bound(name: &str) -> Error {
    Diagnostic::new(&codes::engine::NOT_SET, format!("nothing is bound to buffer `{name}`"))
        .with_fix("Bind an array with `bind`, or a value with `value`.")
        .into()
}

fn unmovable() -> Error {
    Diagnostic::new(&codes::backend::OUT_OF_MEMORY, "there is no room for the data of the launch").into()
}
