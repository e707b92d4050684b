//! The routing table's part of the contract, sentence by sentence.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use vyre_driver::routing::{BackendLatency, PgoTable, RouteDecision, pgo};
use vyre_driver::{BackendError, DispatchConfig, VyreBackend};
use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};

struct Fake {
    id: &'static str,
    time: Duration,
    results: Result<u32, &'static str>,
    /// Dispatches after which it fails.
    dies_after: usize,
    calls: AtomicUsize,
    input: AtomicUsize,
}

fn fake(id: &'static str, micros: u64, results: Result<u32, &'static str>) -> Fake {
    let time = Duration::from_micros(micros);
    Fake { id, time, results, dies_after: usize::MAX, calls: AtomicUsize::new(0), input: AtomicUsize::new(0) }
}

impl VyreBackend for Fake {
    fn id(&self) -> &'static str {
        self.id
    }

    fn dispatch(&self, _: &Program, _: &[Vec<u8>], _: &DispatchConfig) -> Result<Vec<Vec<u8>>, BackendError> {
        panic!("certifying must not go through the owned path")
    }

    fn dispatch_borrowed(
        &self,
        _: &Program,
        inputs: &[&[u8]],
        _: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        self.input.store(inputs.first().map_or(0, |input| input.as_ptr() as usize), Ordering::Relaxed);
        let calls = self.calls.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(self.time);
        match self.results {
            Ok(value) if calls < self.dies_after => Ok(vec![value.to_le_bytes().to_vec()]),
            Ok(_) => Err(BackendError::new("it died")),
            Err(message) => Err(BackendError::new(message)),
        }
    }
}

fn program() -> Program {
    Program::wrapped(
        vec![
            BufferDecl::read("in", 0, DataType::U32).with_count(1),
            BufferDecl::output("out", 1, DataType::U32).with_count(1),
        ],
        [64, 1, 1],
        vec![Node::store("out", Expr::u32(0), Expr::u32(7))],
    )
}

fn certify(backends: &[&dyn VyreBackend]) -> (PgoTable, Result<RouteDecision, BackendError>) {
    let mut table = PgoTable::default();
    let decision = table.certify_op("op", &program(), &[vec![1, 2, 3, 4]], &DispatchConfig::default(), backends);
    let decision = decision.cloned();
    (table, decision)
}

fn names(decision: &RouteDecision) -> Vec<&str> {
    decision.observations.iter().map(|latency| latency.backend.as_str()).collect()
}

#[test]
fn the_fastest_backend_wins_and_observations_are_sorted() {
    let (slow, quick, middle) = (fake("slow", 90_000, Ok(7)), fake("quick", 10, Ok(7)), fake("middle", 30_000, Ok(7)));
    let (table, decision) = certify(&[&slow, &quick, &middle]);
    let decision = decision.unwrap();
    assert_eq!(decision.backend, "quick");
    assert_eq!(names(&decision), ["quick", "middle", "slow"]);
    assert!(decision.observations[2].latency_ns >= 90_000_000, "sleeping never ends early");
    assert_eq!(table.fastest_backend("op"), Some("quick"));
    assert_eq!(table.fastest_backend("other"), None);
    assert!(table.rejections("op").is_empty());
    assert_eq!(table.routes["op"], decision);
}

#[test]
fn inputs_are_not_copied() {
    let backend = fake("only", 0, Ok(7));
    let inputs = vec![vec![1u8, 2, 3, 4]];
    let mut table = PgoTable::default();
    table.certify_op("op", &program(), &inputs, &DispatchConfig::default(), &[&backend]).unwrap();
    assert_eq!(backend.input.load(Ordering::Relaxed), inputs[0].as_ptr() as usize);
    let borrowed: &[u8] = &inputs[0];
    table.certify_op_borrowed("op2", &program(), &[borrowed], &DispatchConfig::default(), &[&backend]).unwrap();
    assert_eq!(backend.input.load(Ordering::Relaxed), inputs[0].as_ptr() as usize);
    assert!(backend.calls.load(Ordering::Relaxed) >= 8, "one warm-up and three timed dispatches each");
}

#[test]
fn no_backends_is_an_error() {
    let (table, decision) = certify(&[]);
    let error = decision.unwrap_err();
    assert!(error.message().contains("`op`") && !error.fix().is_empty());
    assert!(table.routes.is_empty());
}

#[test]
fn a_backend_that_disagrees_cannot_win() {
    let (wrong, slow, slower) = (fake("wrong", 0, Ok(8)), fake("slow", 1_000, Ok(7)), fake("slower", 2_000, Ok(7)));
    let (table, decision) = certify(&[&wrong, &slow, &slower]);
    let decision = decision.unwrap();
    assert_ne!(decision.backend, "wrong");
    assert_eq!(decision.observations.len(), 2, "the two that agree");
    let [rejection] = &table.rejections("op")[..] else { panic!("one rejection") };
    assert_eq!(rejection.backend, "wrong");
    assert!(rejection.reason.contains("`out` differs at byte 0"), "{}", rejection.reason);

    // Without a majority, the backend that is listed first is trusted.
    let (_, decision) = certify(&[&slow, &wrong]);
    assert_eq!(names(&decision.unwrap()), ["slow"]);
    let reference = fake("reference", 3_000, Ok(9));
    let (table, decision) = certify(&[&slow, &slower, &reference]);
    assert_eq!(names(&decision.unwrap()), ["reference"]);
    assert_eq!(table.rejections("op").len(), 2);
}

#[test]
fn a_failing_backend_does_not_lose_the_others() {
    let (broken, good) = (fake("broken", 0, Err("no such device")), fake("good", 10, Ok(7)));
    let mut dying = fake("dying", 0, Ok(7));
    dying.dies_after = 2;
    let (mut table, decision) = certify(&[&broken, &dying, &good]);
    assert_eq!(names(&decision.unwrap()), ["good"]);
    let rejections = table.rejections("op");
    let reasons: Vec<_> = rejections.iter().map(|r| (r.backend.as_str(), r.reason.as_str())).collect();
    assert_eq!(reasons[0].0, "broken");
    assert!(reasons[0].1.contains("no such device"));
    assert_eq!(reasons[1].0, "dying");
    assert!(reasons[1].1.contains("it died"));

    let error = table.certify_op("op", &program(), &[], &DispatchConfig::default(), &[&broken]).unwrap_err();
    assert!(error.message().contains("broken: ") && error.message().contains("no such device"));
    assert_eq!(table.fastest_backend("op"), Some("good"), "an earlier decision stays");
    table.certify_op("op", &program(), &[], &DispatchConfig::default(), &[&good]).unwrap();
    assert!(table.rejections("op").is_empty(), "rejections are those of the last certification");
}

fn decision(backend: &str, latency_ns: u128) -> RouteDecision {
    let observations = vec![BackendLatency { backend: backend.to_owned(), latency_ns }];
    RouteDecision { backend: backend.to_owned(), observations }
}

#[test]
fn tables_are_saved_and_merged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/pgo.toml");
    assert_eq!(PgoTable::load(&path).unwrap(), PgoTable::default());
    let (broken, good) = (fake("broken", 0, Err("no such device")), fake("good", 0, Ok(7)));
    let (mut mine, _) = certify(&[&broken, &good]);
    mine.routes.insert("wide \"op\"\n".to_owned(), decision("w", u128::MAX));
    mine.routes.insert("a.b.c".to_owned(), decision("cpu", 0));
    let mut theirs = pgo::PgoTable::default();
    theirs.routes.insert("theirs".to_owned(), decision("cuda", i64::MAX as u128 + 1));
    theirs.routes.insert("op".to_owned(), decision("cuda", 1));
    theirs.save(&path).unwrap();
    mine.save(&path).unwrap();
    let loaded = PgoTable::load(&path).unwrap();
    let mut merged = mine.clone();
    merged.routes.insert("theirs".to_owned(), theirs.routes["theirs"].clone());
    assert_eq!(loaded, merged);
    assert_eq!(loaded.rejections("op")[0].backend, "broken");
    theirs.save(&path).unwrap();
    assert!(PgoTable::load(&path).unwrap().rejections("op").is_empty(), "a newer decision brings its own rejections");
    let json = serde_json::to_string(&loaded).unwrap();
    assert_eq!(serde_json::from_str::<PgoTable>(&json).unwrap(), loaded);
}

#[test]
fn a_bad_file_is_an_error_that_names_the_entry() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pgo.toml");
    let good = "[routes.good]\nbackend = \"cpu\"\nobservations = []\n";
    std::fs::write(&path, good).unwrap();
    assert_eq!(PgoTable::load(&path).unwrap().fastest_backend("good"), Some("cpu"));
    let cases = [
        ("nonsense".to_owned(), "line 1"),
        (format!("{good}[routes.\"bad op\"]\nbackend = 5\n"), "\"bad op\""),
        (format!("{good}[routes.\"bad op\"]\nobservations = []\n"), "\"bad op\""),
        (format!("{good}[[routes.\"bad op\".observations]]\nbackend = \"x\"\nlatency_ns = -1\n"), "\"bad op\""),
        ("routes = 3\n".to_owned(), "\"routes\""),
        ("other = 3\n".to_owned(), "\"other\""),
        (format!("#{}\n{good}", " ".repeat(4 << 20)), "4194304"),
    ];
    for (text, wanted) in cases {
        std::fs::write(&path, &text).unwrap();
        let error = PgoTable::load(&path).unwrap_err();
        assert!(error.contains(wanted) && error.contains("pgo.toml") && error.contains("Fix:"), "{error}");
        let mut table = PgoTable::default();
        table.routes.insert("new".to_owned(), decision("cpu", 1));
        assert!(table.save(&path).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "a file that is not understood stays");
    }
}
