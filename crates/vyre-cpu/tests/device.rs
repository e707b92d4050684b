//! The processor as a device: buffers, chained launches, large grids, stored code, threads, timeouts.

use vyre_conform::device::DEVICE_CHECKS;
use vyre_cpu::{CpuBackend, CpuPath};

#[test]
fn every_path_is_a_good_device() {
    for path in CpuPath::ALL.into_iter().filter(|path| path.is_here()) {
        let backend = CpuBackend::with_path(path).expect("a path that is here");
        for (name, check) in DEVICE_CHECKS {
            check(&backend).unwrap_or_else(|problem| panic!("{path}, {name}: {problem}"));
        }
    }
}
