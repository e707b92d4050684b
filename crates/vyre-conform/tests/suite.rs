//! The reference passes the suite, expectations that were computed another way included.

use vyre_conform::{ReferenceBackend, Rules, suite, suite_with};

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
