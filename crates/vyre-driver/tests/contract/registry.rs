//! Section 8, registry.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use vyre_driver::backend::NullBackend;
use vyre_driver::registry::Registry;
use vyre_driver::{BackendError, DispatchConfig, VyreBackend};
use vyre_foundation::ir::Program;
use vyre_spec::{Diagnostic, codes};

struct Named(&'static str);

impl VyreBackend for Named {
    fn id(&self) -> &'static str {
        self.0
    }

    fn dispatch(&self, _: &Program, _: &[Vec<u8>], _: &DispatchConfig) -> Result<Vec<Vec<u8>>, BackendError> {
        Err(BackendError::new("never run here"))
    }
}

fn absent(why: &str) -> Diagnostic {
    Diagnostic::new(&codes::backend::DEVICE_LOST, why)
}

fn registry() -> Registry {
    let registry = Registry::new();
    registry.register("slow", 1, || Ok(Arc::new(Named("slow")))).unwrap();
    registry.register("gone", 9, || Err(absent("there is no such card"))).unwrap();
    registry.register("fast", 5, || Ok(Arc::new(Named("fast")))).unwrap();
    registry
}

#[test]
fn lists_what_is_present_and_what_is_absent_and_why() {
    let list = registry().list();
    let ids: Vec<_> = list.iter().map(|listing| (listing.id.as_str(), listing.is_present())).collect();
    assert_eq!(ids, [("gone", false), ("fast", true), ("slow", true)], "by precedence");
    let why = list[0].state.as_ref().err().unwrap();
    assert_eq!((why.message.as_str(), list[0].precedence), ("there is no such card", 9));
    assert_eq!(registry().present().len(), 2);
    assert_eq!(registry().ids().iter().map(|id| id.as_str()).collect::<Vec<_>>(), ["gone", "fast", "slow"]);
}

#[test]
fn acquires_by_name_or_preference() {
    let registry = registry();
    assert_eq!(registry.acquire("slow").unwrap().id(), "slow");
    assert_eq!(registry.acquire("gone").err().unwrap().message, "there is no such card");
    let unknown = registry.acquire("quantum").err().unwrap();
    assert_eq!(unknown.code.id, "V1202");
    assert!(unknown.message.contains("fast"), "{}", unknown.message);
    assert_eq!(registry.acquire_preferring(&[]).unwrap().id(), "fast");
    assert_eq!(registry.acquire_preferring(&["quantum", "gone", "slow"]).unwrap().id(), "slow");
    assert_eq!(registry.acquire_preferring(&["gone"]).unwrap().id(), "fast");
}

#[test]
fn nothing_present_says_why() {
    let registry = Registry::new();
    assert_eq!(registry.acquire_preferring(&[]).err().unwrap().code.id, "V1203");
    registry.register("gone", 1, || Err(absent("there is no such card"))).unwrap();
    let why = registry.acquire_preferring(&["gone"]).err().unwrap();
    assert_eq!(why.code.id, "V1203");
    assert_eq!(why.message.matches("there is no such card").count(), 1, "{}", why.message);
}

#[test]
fn one_name_is_one_backend() {
    let registry = registry();
    let twice = registry.register("fast", 100, || Ok(Arc::new(Named("fast")))).unwrap_err();
    assert_eq!(twice.code.id, "V1201");
    assert_eq!(registry.register_backend(Arc::new(Named("slow")), 100).unwrap_err().code.id, "V1201");
    assert_eq!(registry.list().len(), 3);
    registry.register_backend(Arc::new(NullBackend::new()), -1).unwrap();
    assert_eq!(registry.acquire("null").unwrap().id(), "null");
}

#[test]
fn probes_run_once_and_only_when_needed() {
    static PROBES: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];
    let registry = Registry::new();
    for (probes, id) in PROBES.iter().zip(["a", "b"]) {
        let probe = move || {
            probes.fetch_add(1, Ordering::SeqCst);
            Ok(Arc::new(Named(id)) as Arc<dyn VyreBackend>)
        };
        registry.register(id, 0, probe).unwrap();
    }
    registry.ids();
    assert_eq!(PROBES[0].load(Ordering::SeqCst) + PROBES[1].load(Ordering::SeqCst), 0);
    registry.acquire("b").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| registry.acquire("b").unwrap());
        }
    });
    assert_eq!(PROBES[0].load(Ordering::SeqCst), 0, "a was not asked for");
    registry.list();
    registry.list();
    assert_eq!([PROBES[0].load(Ordering::SeqCst), PROBES[1].load(Ordering::SeqCst)], [1, 1]);
}

#[test]
fn a_probe_that_panics_or_lies_is_absent() {
    let registry = registry();
    registry.register("panics", 50, || panic!("driver bug")).unwrap();
    registry.register("lies", 49, || Ok(Arc::new(Named("fast")))).unwrap();
    assert_eq!(registry.acquire("panics").err().unwrap().code.id, "V1204");
    assert_eq!(registry.acquire("lies").err().unwrap().code.id, "V1204");
    assert_eq!(registry.acquire_preferring(&[]).unwrap().id(), "fast");
}

#[test]
fn devices_of_one_kind_are_found_by_number() {
    const IDS: [&str; 3] = ["card", "card:1", "card:2"];
    let registry = Registry::new();
    let open = |number: usize| match IDS.get(number).filter(|_| number < 2) {
        Some(id) => Ok(Arc::new(Named(id)) as Arc<dyn VyreBackend>),
        None => Err(absent("there are two cards")),
    };
    registry.register_family("card", 5, || Ok(2), open).unwrap();
    registry.register("slow", 1, || Ok(Arc::new(Named("slow")))).unwrap();
    let ids = |registry: &Registry| registry.ids().iter().map(|id| id.to_string()).collect::<Vec<_>>();
    assert_eq!(ids(&registry), ["card", "slow"], "nobody asked for the others yet");
    assert_eq!(registry.acquire("card:1").unwrap().id(), "card:1");
    assert_eq!(registry.acquire("card:0").unwrap().id(), "card");
    assert_eq!(registry.acquire("card:2").err().unwrap().message, "there are two cards");
    assert_eq!(registry.acquire("card:one").err().unwrap().code.id, "V1202");
    assert_eq!(registry.acquire("slow:1").err().unwrap().code.id, "V1202");
    let list = registry.list();
    let present: Vec<_> = list.iter().filter(|one| one.is_present()).map(|one| one.id.as_str()).collect();
    assert_eq!(present, ["card", "card:1", "slow"]);
    // Where the first is absent, so are all, for the reason that it gives.
    let none = Registry::new();
    none.register_family("card", 5, || Err(absent("no driver")), |_| Err(absent("no driver"))).unwrap();
    assert_eq!(none.list().len(), 1);
    assert_eq!(none.acquire("card:3").err().unwrap().message, "no driver");
}
