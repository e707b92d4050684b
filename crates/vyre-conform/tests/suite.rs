//! The reference passes the suite, expectations that were computed another way included.

use vyre_conform::{KernelBackend, ReferenceBackend, Rules, suite, suite_with};

#[test]
fn the_reference_passes() {
    let report = suite(&ReferenceBackend);
    assert!(report.is_good() && report.skipped.is_empty(), "{report}");
    println!("{report}");
}

#[test]
fn the_reference_passes_under_the_rules_of_devices() {
    let report = suite_with(&ReferenceBackend, &Rules::wgsl());
    assert!(report.is_good() && report.skipped.is_empty(), "{report}");
}

#[test]
fn the_optimiser_passes() {
    for (name, backend) in KernelBackend::variants() {
        let report = suite(&backend);
        assert!(report.is_good() && report.skipped.is_empty(), "{name}: {report}");
    }
}
