//! The conformance suite and the file tests, on every path of this machine.

use std::path::Path;

use vyre_conform::{Rules, file_tests, file_tests_in, suite};
use vyre_cpu::{CpuBackend, CpuPath};

fn each(check: impl Fn(CpuPath, &CpuBackend)) {
    for path in CpuPath::ALL.into_iter().filter(|path| path.is_here()) {
        check(path, &CpuBackend::with_path(path).expect("a path that is here"));
    }
}

#[test]
fn the_conformance_suite_holds() {
    each(|path, backend| {
        let report = suite(backend);
        assert!(report.is_good(), "{path}: {report}");
        assert!(report.skipped.is_empty(), "{path}: {report}");
    });
}

#[test]
fn the_file_tests_hold() {
    each(|path, backend| {
        let report = file_tests(backend, &Rules::exact());
        assert!(report.is_good(), "{path}: {report}");
        // What only some devices have: subgroups of 32, workgroups of 1024.
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/filetests"));
        let report = file_tests_in(folder, backend, &Rules::exact());
        assert!(report.is_good(), "{path}: {report}");
    });
}
