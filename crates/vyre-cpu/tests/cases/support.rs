//! What tests of single cases share.

use vyre_conform::{Case, Outcome, Rules, check_against, run_reference};
use vyre_cpu::{CpuBackend, CpuPath};

/// Every path of this machine gives what the reference gives.
pub(crate) fn agree(what: &str, case: &Case) {
    let expected = run_reference(case).unwrap_or_else(|error| panic!("{what}: {error:?}"));
    for path in CpuPath::ALL.into_iter().filter(|path| path.is_here()) {
        let backend = CpuBackend::with_path(path).expect("a path that is here");
        let outcome = check_against(&backend, case, &expected, &Rules::exact());
        assert!(matches!(outcome, Outcome::Same), "{what} on {path}: {outcome:?}");
    }
}

/// So many words that have nothing to do with each other.
pub(crate) fn words(count: u32) -> Vec<u8> {
    (0..count).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}
