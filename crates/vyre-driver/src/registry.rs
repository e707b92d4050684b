//! Which backends there are, which of them work here, and why the others don't.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use vyre_spec::{BackendId, Diagnostic, codes};

use crate::backend::VyreBackend;

type Probe = Box<dyn Fn() -> Result<Arc<dyn VyreBackend>, Diagnostic> + Send + Sync>;
type Probed = Result<Arc<dyn VyreBackend>, Diagnostic>;
type Count = Box<dyn Fn() -> Result<usize, Diagnostic> + Send + Sync>;
type Open = Arc<dyn Fn(usize) -> Probed + Send + Sync>;

/// The backends of a process. Registering is explicit: nothing is found that nobody registered.
#[derive(Default)]
pub struct Registry {
    /// Sorted by precedence, highest first, then in order of registration.
    entries: RwLock<Vec<Arc<Entry>>>,
    families: RwLock<Vec<Arc<Family>>>,
}

/// Devices of one kind, of which only the driver knows how many there are.
struct Family {
    id: BackendId,
    precedence: i32,
    count: Count,
    open: Open,
}

struct Entry {
    id: BackendId,
    precedence: i32,
    probe: Probe,
    probed: OnceLock<Probed>,
}

/// One line of [`Registry::list`].
#[derive(Clone)]
pub struct Listing {
    /// The backend's name.
    pub id: BackendId,
    /// Higher is preferred.
    pub precedence: i32,
    /// The backend, or why it is absent.
    pub state: Result<Arc<dyn VyreBackend>, Diagnostic>,
}

impl Listing {
    /// The backend works here.
    pub fn is_present(&self) -> bool {
        self.state.is_ok()
    }
}

impl Registry {
    /// No backends.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a backend. `probe` is called at most once, when the backend is first listed or acquired; it opens the device
    /// or says why there is none. A second backend of the same name is refused.
    pub fn register(
        &self,
        id: impl Into<BackendId>,
        precedence: i32,
        probe: impl Fn() -> Result<Arc<dyn VyreBackend>, Diagnostic> + Send + Sync + 'static,
    ) -> Result<(), Diagnostic> {
        let id = id.into();
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        if entries.iter().any(|entry| entry.id == id) {
            let message = format!("a backend with the name `{id}` is registered already");
            return Err(Diagnostic::new(&codes::registry::DUPLICATE, message));
        }
        let at = entries.partition_point(|entry| entry.precedence >= precedence);
        let entry = Entry { id, precedence, probe: Box::new(probe), probed: OnceLock::new() };
        entries.insert(at, Arc::new(entry));
        Ok(())
    }

    /// Registers the devices of one kind. The first is the backend `id`; the others, `id:1`, `id:2` and so on, are there when they are
    /// asked for by name or all backends are listed. `id:0` is the first by another name. `count` and `open` are called when needed.
    pub fn register_family(
        &self,
        id: impl Into<BackendId>,
        precedence: i32,
        count: impl Fn() -> Result<usize, Diagnostic> + Send + Sync + 'static,
        open: impl Fn(usize) -> Result<Arc<dyn VyreBackend>, Diagnostic> + Send + Sync + 'static,
    ) -> Result<(), Diagnostic> {
        let id = id.into();
        let open: Open = Arc::new(open);
        let first = Arc::clone(&open);
        self.register(id.clone(), precedence, move || first(0))?;
        let family = Family { id, precedence, count: Box::new(count), open };
        self.families.write().unwrap_or_else(PoisonError::into_inner).push(Arc::new(family));
        Ok(())
    }

    /// Registers a backend that is open already.
    pub fn register_backend(&self, backend: Arc<dyn VyreBackend>, precedence: i32) -> Result<(), Diagnostic> {
        self.register(backend.id(), precedence, move || Ok(backend.clone()))
    }

    /// The names of all backends, the preferred first. Nothing is probed.
    pub fn ids(&self) -> Vec<BackendId> {
        self.snapshot().iter().map(|entry| entry.id.clone()).collect()
    }

    /// Probes all backends and lists them, the preferred first: what is present, and what is absent and why.
    pub fn list(&self) -> Vec<Listing> {
        self.find_all_devices();
        let listing = |entry: &Arc<Entry>| Listing {
            id: entry.id.clone(),
            precedence: entry.precedence,
            state: entry.state().clone(),
        };
        self.snapshot().iter().map(listing).collect()
    }

    /// The backend of this name. No other is probed.
    pub fn acquire(&self, id: &str) -> Result<Arc<dyn VyreBackend>, Diagnostic> {
        let device = self.find_device(id);
        let id = device.as_ref().map_or(id, BackendId::as_str);
        let entries = self.snapshot();
        match entries.iter().find(|entry| entry.id.as_str() == id) {
            Some(entry) => entry.state().clone(),
            None => {
                let known: Vec<_> = entries.iter().map(|entry| entry.id.as_str()).collect();
                let known = if known.is_empty() { "none is".to_owned() } else { known.join(", ") };
                let message = format!("no backend is registered as `{id}`; registered: {known}");
                Err(Diagnostic::new(&codes::registry::UNKNOWN, message))
            }
        }
    }

    /// The first of these names that is present, else the present backend of highest precedence. Probes no further than
    /// the one it gives.
    pub fn acquire_preferring(&self, preference: &[&str]) -> Result<Arc<dyn VyreBackend>, Diagnostic> {
        let entries = self.snapshot();
        let named = preference.iter().filter_map(|id| entries.iter().find(|entry| entry.id.as_str() == *id));
        let mut reasons = Vec::new();
        for entry in named.chain(&entries) {
            match entry.state() {
                Ok(backend) => return Ok(backend.clone()),
                Err(why) => reasons.push(format!("{}: {}", entry.id, why.message)),
            }
        }
        reasons.sort();
        reasons.dedup();
        let why = if reasons.is_empty() { "none is registered".to_owned() } else { reasons.join("; ") };
        Err(Diagnostic::new(&codes::registry::NONE_PRESENT, format!("no backend is present ({why})")))
    }

    /// Probes all backends and gives those that are present, the preferred first.
    pub fn present(&self) -> Vec<Arc<dyn VyreBackend>> {
        self.find_all_devices();
        self.snapshot().iter().filter_map(|entry| entry.state().clone().ok()).collect()
    }

    /// Registers the device that `family:number` means, and gives the name under which it stands.
    fn find_device(&self, id: &str) -> Option<BackendId> {
        let (name, number) = id.rsplit_once(':')?;
        let number: usize = number.parse().ok()?;
        let families = self.families.read().unwrap_or_else(PoisonError::into_inner).clone();
        let family = families.iter().find(|family| family.id.as_str() == name)?;
        Some(self.device(family, number))
    }

    fn find_all_devices(&self) {
        let families = self.families.read().unwrap_or_else(PoisonError::into_inner).clone();
        for family in families {
            // Why there are none is what the first one's probe says.
            let count = catch_unwind(AssertUnwindSafe(|| (family.count)())).unwrap_or(Ok(0)).unwrap_or(0);
            (1..count).for_each(|number| {
                self.device(&family, number);
            });
        }
    }

    fn device(&self, family: &Family, number: usize) -> BackendId {
        if number == 0 {
            return family.id.clone();
        }
        let id = BackendId::from(format!("{}:{number}", family.id).as_str());
        let open = Arc::clone(&family.open);
        // It may be there already.
        drop(self.register(id.clone(), family.precedence, move || open(number)));
        id
    }

    /// Probes may take long or register others, so they run outside the lock.
    fn snapshot(&self) -> Vec<Arc<Entry>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Entry {
    fn state(&self) -> &Probed {
        self.probed.get_or_init(|| {
            // Device libraries fail in many ways; one that panics must not take the others with it.
            let backend = catch_unwind(AssertUnwindSafe(|| (self.probe)())).unwrap_or_else(|_| {
                Err(Diagnostic::new(&codes::registry::PROBE_FAILED, format!("the probe of `{}` panicked", self.id)))
            })?;
            if backend.id() != self.id.as_str() {
                let message = format!("the probe of `{}` gave a backend called `{}`", self.id, backend.id());
                return Err(Diagnostic::new(&codes::registry::PROBE_FAILED, message));
            }
            Ok(backend)
        })
    }
}
