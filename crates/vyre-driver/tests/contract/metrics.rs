//! Counters, latencies and traces.

use vyre_driver::metrics::{Counter, Metrics, Stage};
use vyre_driver::pipeline::MissReason;

#[test]
fn counters_add_up_over_threads() {
    let metrics = Metrics::new();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    metrics.add(Counter::BytesUploaded, 3);
                    metrics.record(Stage::Submit, 100);
                }
            });
        }
    });
    assert_eq!(metrics.counter(Counter::BytesUploaded), 24_000);
    assert_eq!(metrics.latency(Stage::Submit).count, 8000);
    assert_eq!(metrics.latency(Stage::Submit).total_ns, 800_000);
    assert_eq!(metrics.counter(Counter::Fallbacks), 0);
    let snapshot = metrics.snapshot();
    assert_eq!(snapshot.counters.keys().copied().collect::<Vec<_>>(), ["bytes_uploaded"]);
    assert_eq!(snapshot.stages.keys().copied().collect::<Vec<_>>(), ["submit"]);
}

#[test]
fn every_reason_of_a_miss_has_its_counter() {
    let metrics = Metrics::new();
    for reason in MissReason::ALL {
        metrics.add(Counter::of_miss(reason), 1);
    }
    assert_eq!(metrics.snapshot().counters.len(), MissReason::ALL.len());
}

#[test]
fn quantiles_are_at_most_a_quarter_too_high() {
    let metrics = Metrics::new();
    let mut values: Vec<u64> = (0..10_000u64).map(|i| (i * i) % 9_999_991 + i).collect();
    values.iter().for_each(|&ns| metrics.record(Stage::Wait, ns));
    values.sort_unstable();
    let latency = metrics.latency(Stage::Wait);
    for (per_cent, found) in [(50, latency.p50_ns), (90, latency.p90_ns), (99, latency.p99_ns), (100, latency.max_ns)] {
        let exact = values[values.len() * per_cent / 100 - 1];
        assert!(found >= exact && found <= exact + exact / 4 + 1, "{per_cent}: {found} for {exact}");
    }
    assert_eq!(latency.total_ns, values.iter().sum::<u64>());
    // The ends of the scale count too.
    let metrics = Metrics::new();
    for ns in [0, 1, 2, 3, 4, 5, u64::MAX / 2] {
        metrics.record(Stage::Plan, ns);
    }
    assert_eq!(metrics.latency(Stage::Plan).count, 7);
    assert_eq!(Metrics::new().latency(Stage::Plan).max_ns, 0);
}

#[test]
fn traces_open_in_trace_viewers() {
    let metrics = Metrics::new();
    drop(metrics.time(Stage::Validate));
    metrics.start_trace();
    {
        let _dispatch = metrics.time_labelled(Stage::Dispatch, Some("blur"));
        drop(metrics.time(Stage::Compile));
    }
    let trace: serde_json::Value = serde_json::from_str(&metrics.finish_trace()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    assert_eq!(events.len(), 2, "what was before the trace is not in it");
    let event = |name: &str| events.iter().find(|event| event["name"] == name).unwrap();
    let (outer, inner) = (event("blur"), event("compile"));
    assert_eq!((&outer["ph"], &outer["cat"]), (&"X".into(), &"dispatch".into()));
    let span = |event: &serde_json::Value| {
        let start = event["ts"].as_f64().unwrap();
        (start, start + event["dur"].as_f64().unwrap())
    };
    assert!(span(outer).0 <= span(inner).0 && span(inner).1 <= span(outer).1, "one lies in the other");
    assert_eq!(outer["tid"], inner["tid"]);
    assert!(!metrics.is_tracing());
    assert_eq!(metrics.latency(Stage::Validate).count, 1);
}
