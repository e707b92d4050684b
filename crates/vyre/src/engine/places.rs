//! Work of several launches that goes to one device as a whole, because other devices would do it with other kernels.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use vyre_driver::metrics::{Counter, Stage};
use vyre_driver::routing::{Effort, Load, Timing};
use vyre_spec::codes::Class;
use vyre_spec::{BackendId, Diagnostic, codes};

use super::core::{Arg, Core, Ready, Request};
use super::dispatch::{LONG_NS, TIMED_AT_FIRST, TIMED_EVERY};
use super::routes::Work;
use super::{Inner, lock};
use crate::array::Buffer;
use crate::runtime::{Device, Storage};
use crate::{Engine, Error};

/// Where work went before, by its name and its size.
#[derive(Default)]
pub(super) struct Places(Mutex<HashMap<String, HashMap<u64, Known>>>);

/// Names that are remembered, and sizes of each.
const MOST_NAMES: usize = 1024;
const MOST_SIZES: usize = 256;

/// Where work of one size goes.
struct Known {
    device: Arc<Device>,
    /// Runs on each device that had any.
    runs: Vec<(BackendId, Runs)>,
}

#[derive(Clone, Copy, Default)]
struct Runs {
    count: u64,
    /// What the latest took on the device, where that is known.
    latest_ns: u64,
    /// The least that it took to launch all of it while nothing had to be moved.
    launching_ns: Option<u64>,
}

/// The work that a thread is at.
struct Place {
    engine: Arc<Inner>,
    device: Arc<Device>,
    /// Its launches, where their times are to be known.
    launches: Option<Vec<Arc<Ready>>>,
}

thread_local! {
    static PLACE: RefCell<Option<Place>> = const { RefCell::new(None) };
}

/// While it lives, kernels that this thread finds by their keys run on one device.
struct Entered {
    before: Option<Place>,
}

impl Entered {
    fn new(place: Place) -> Entered {
        Entered { before: PLACE.replace(Some(place)) }
    }

    /// The launches of the work that ends now.
    fn launches(self) -> Option<Vec<Arc<Ready>>> {
        PLACE.with_borrow_mut(|place| place.as_mut().and_then(|place| place.launches.take()))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        PLACE.set(self.before.take());
    }
}

/// The device of the work that this thread is at.
pub(crate) fn current(engine: &Arc<Inner>) -> Option<BackendId> {
    PLACE.with_borrow(|place| {
        place.as_ref().filter(|place| Arc::ptr_eq(&place.engine, engine)).map(|place| place.device.id.clone())
    })
}

/// Notes a launch of a kernel that one device alone runs, where it belongs to work whose time is to be known.
pub(crate) fn launched(engine: &Arc<Inner>, core: &Core, args: &[Arg<'_>], request: &Request) {
    PLACE.with_borrow_mut(|place| {
        let Some(place) = place.as_mut().filter(|place| Arc::ptr_eq(&place.engine, engine)) else { return };
        let Some(launches) = &mut place.launches else { return };
        launches.extend(core.find(args.iter().map(Arg::bytes), args, request, Some(place.device.id.as_str())));
    });
}

/// Some work on its way to a device.
struct Errand<'a> {
    op: &'a str,
    items: u64,
    inputs: &'a [&'a Buffer],
}

impl Errand<'_> {
    fn bytes(&self) -> u64 {
        self.inputs.iter().map(|input| input.storage.bytes).sum()
    }

    fn work(&self) -> Work {
        let bytes = self.bytes();
        // What its launches do is not known before it is begun.
        Work { op: self.op.to_owned(), size: self.items.max(bytes / 16), bytes, effort: Effort::default() }
    }

    fn load<'d>(&self, devices: &'d [Arc<Device>], work: &Work, dispatches: u64) -> Load<'d> {
        let at = |place: usize| {
            let held = |storage: &Storage| storage.bytes_at(place, &(0..storage.bytes));
            self.inputs.iter().map(|input| held(&input.storage)).sum()
        };
        let away = devices.iter().filter(|device| device.place != Device::HOST);
        let on = away.map(|device| (device.id.as_str(), at(device.place))).collect();
        let (n, bytes_in, on_host) = (work.size, work.bytes, at(Device::HOST));
        Load { n, bytes_in, on_host, on, stays: true, dispatches, ..Load::default() }
    }

    /// Nothing would have to be moved for it.
    fn is_at(&self, device: &Arc<Device>) -> bool {
        self.inputs.iter().all(|input| {
            let (storage, whole) = (&input.storage, 0..input.storage.bytes);
            // Looking closer would cost the next small launch on the array more.
            let is_calm = device.place == Device::HOST && storage.calm(device, &whole, false).is_some();
            is_calm || storage.bytes_at(device.place, &whole) == storage.bytes
        })
    }
}

impl Engine {
    /// Does work of one or several launches on one device, which is chosen for the whole of it: by how long all its launches took on each
    /// device before, and by where the inputs are. Meanwhile kernels that this thread finds [by their keys](Engine::kernel_from) run there and
    /// nowhere else, and [`Engine::place`] says where that is, so that the work can be written for it.
    ///
    /// `op` names the work, and `items` is how much there is of it; both say what else takes as long. The work must not change its inputs: where
    /// a device refuses it, it begins anew for another one. When none is left, it runs without a place.
    pub fn as_a_whole<R>(
        &self,
        op: &str,
        items: u64,
        inputs: &[&Buffer],
        mut work: impl FnMut() -> Result<R, Error>,
    ) -> Result<R, Error> {
        let inner = &self.inner;
        if !self.can_place() {
            return work();
        }
        let errand = Errand { op, items, inputs };
        let mut passed_over: Vec<BackendId> = Vec::new();
        let mut first_error: Option<Error> = None;
        while let Some((device, timed)) = inner.place(&errand, &mut passed_over) {
            let stays = timed && errand.is_at(&device);
            let began = Instant::now();
            let launches = timed.then(Vec::new);
            let entered = Entered::new(Place { engine: inner.clone(), device: device.clone(), launches });
            let done = work();
            let launches = entered.launches();
            let error = match done {
                Ok(done) => {
                    if let Some(launches) = launches {
                        let launching_ns = stays.then(|| began.elapsed().as_nanos() as u64);
                        inner.note_whole(&errand, &device, &launches, launching_ns);
                    }
                    inner.fell_back(&device, first_error.as_ref());
                    return Ok(done);
                }
                Err(error) => error,
            };
            // What the work needs is lost, which is no fault of the device that was to do it.
            for input in inputs {
                input.storage.check_lost(&(0..input.storage.bytes))?;
            }
            match error.class() {
                Class::Caller => return Err(error),
                Class::Program => inner.routes.unable(&errand.work(), device.id.as_str(), error.message()),
                Class::Busy => {}
                Class::Device => inner.notice(inner.routes.lost(device.id.as_str(), error.message())),
            }
            passed_over.push(device.id.clone());
            first_error.get_or_insert(error);
        }
        work().map_err(|error| match error.class() {
            Class::Caller => error,
            _ => first_error.unwrap_or(error),
        })
    }

    /// There is something to choose for [`Engine::as_a_whole`]: several backends, and work that has no place yet.
    pub fn can_place(&self) -> bool {
        !self.inner.routes.is_alone() && current(&self.inner).is_none()
    }

    /// The backend that the work of this thread goes to; see [`Engine::as_a_whole`].
    pub fn place(&self) -> Option<BackendId> {
        current(&self.inner)
    }
}

impl Inner {
    /// The device for some work, and whether its time should be known; none where all were passed over.
    fn place(&self, errand: &Errand<'_>, passed_over: &mut Vec<BackendId>) -> Option<(Arc<Device>, bool)> {
        let mut dispatches = 1;
        if passed_over.is_empty()
            && let Some((device, runs)) = self.places.run(errand)
            && runs.count >= TIMED_AT_FIRST
            && runs.latest_ns < LONG_NS
        {
            let is_asked = runs.count % TIMED_EVERY == TIMED_EVERY - 1;
            if !self.routes.is_out(&device.id) && errand.is_at(&device) {
                if !is_asked {
                    return Some((device, false));
                }
                // Where something has to be moved it is asked for each.
                dispatches = TIMED_EVERY;
            }
        }
        self.metrics.add(Counter::Routes, 1);
        let _timer = self.metrics.time(Stage::Route);
        let work = errand.work();
        loop {
            let devices = self.open_devices();
            let load = errand.load(&devices, &work, dispatches);
            let id = self.routes.choose(&work, load, passed_over).ok()?.backend;
            let Some(device) = self.chosen(&id, passed_over) else { continue };
            self.places.send(errand, &device);
            return Some((device, true));
        }
    }

    /// Takes in how long all launches of some work took, as far as it is known by now, and how long it was to launch them where nothing had
    /// to be moved.
    fn note_whole(&self, errand: &Errand<'_>, device: &Device, launches: &[Arc<Ready>], launching_ns: Option<u64>) {
        let times = launches.iter().map(|ready| ready.latest_ns.load(Ordering::Relaxed));
        let on_device = times.map(|ns| (ns > 0).then_some(ns)).sum::<Option<u64>>();
        let Some(runs) = self.places.noted(errand, &device.id, on_device, launching_ns) else { return };
        let Some(on_device) = on_device.filter(|_| !launches.is_empty()) else { return };
        // Launches of which each is short take what it takes to launch them.
        let compute_ns = on_device.max(runs.launching_ns.unwrap_or(0)) + self.routes.wait_ns(&device.id);
        let work = errand.work();
        match runs.count {
            // The first ones of a process warm up caches and clocks.
            0..=1 => self.routes.observe_first(&work, &device.id, compute_ns),
            _ => self.routes.observe(&work, &device.id, Timing { compute_ns, ..Timing::default() }),
        }
    }

    /// A kernel that was found by its key is to run on one device and give the exact results there.
    pub(crate) fn check_place(&self, core: &Core) -> Result<(), Error> {
        let Some(id) = &core.only else { return Ok(()) };
        match self.device(id.as_str())?.backend.gives_exact(&core.program) {
            true => Ok(()),
            false => {
                let message = format!(
                    "`{id}` may give other results of `{}` than the exact ones, and the program is in exact arithmetic",
                    core.program.name()
                );
                Err(Diagnostic::new(&codes::backend::UNSUPPORTED_FEATURE, message).into())
            }
        }
    }
}

impl Places {
    /// Counts a run of work that is known, and says where it goes and what is known of it there.
    fn run(&self, errand: &Errand<'_>) -> Option<(Arc<Device>, Runs)> {
        let mut places = lock(&self.0);
        let known = places.get_mut(errand.op)?.get_mut(&errand.items)?;
        let device = known.device.clone();
        let runs = known.on(&device.id);
        let before = *runs;
        runs.count += 1;
        Some((device, before))
    }

    /// Work goes there from now on.
    fn send(&self, errand: &Errand<'_>, device: &Arc<Device>) {
        let mut places = lock(&self.0);
        if places.len() >= MOST_NAMES && !places.contains_key(errand.op) {
            places.clear();
        }
        let sizes = places.entry(errand.op.to_owned()).or_default();
        if sizes.len() >= MOST_SIZES && !sizes.contains_key(&errand.items) {
            sizes.clear();
        }
        let known = sizes.entry(errand.items).or_insert_with(|| Known { device: device.clone(), runs: Vec::new() });
        known.device = device.clone();
    }

    /// Takes in what a run took; what is known of its device then.
    fn noted(
        &self,
        errand: &Errand<'_>,
        device: &BackendId,
        on_device: Option<u64>,
        launching_ns: Option<u64>,
    ) -> Option<Runs> {
        let mut places = lock(&self.0);
        let runs = places.get_mut(errand.op)?.get_mut(&errand.items)?.on(device);
        // What compiles is not what launching takes.
        let launching_ns = launching_ns.filter(|_| on_device.is_some());
        runs.launching_ns = [runs.launching_ns, launching_ns].into_iter().flatten().min();
        runs.latest_ns = on_device.unwrap_or(runs.latest_ns);
        Some(*runs)
    }
}

impl Known {
    fn on(&mut self, device: &BackendId) -> &mut Runs {
        let at = self.runs.iter().position(|(known, _)| known == device).unwrap_or_else(|| {
            self.runs.push((device.clone(), Runs::default()));
            self.runs.len() - 1
        });
        &mut self.runs[at].1
    }
}
