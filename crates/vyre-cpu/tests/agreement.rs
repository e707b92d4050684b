//! Every path of this machine gives what the reference gives, on random programs. `VYRE_RANDOM` sets how many of each kind,
//! `VYRE_SEED` where they start.

use vyre_conform::device::Patient;
use vyre_conform::{GenOptions, Rules, Subgroups, random_programs};
use vyre_cpu::{CpuBackend, CpuOptions, CpuPath};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Every path that is here, or the one that `VYRE_CPU` names.
fn paths() -> Vec<CpuPath> {
    match std::env::var("VYRE_CPU") {
        Ok(word) => vec![CpuPath::from_word(&word).expect("a path of this machine")],
        Err(_) => CpuPath::ALL.into_iter().filter(|path| path.is_here()).collect(),
    }
}

fn agree(options: &GenOptions, share: u64) {
    let (count, first) = (number("VYRE_RANDOM", 2000) / share, number("VYRE_SEED", 0));
    for path in paths() {
        let backend = CpuBackend::with_path(path).expect("a path that is here");
        let report = random_programs(&backend, first..first + count, options, &Rules::exact());
        assert!(report.is_good(), "{path}: {report}");
        assert!(report.skipped.is_empty(), "{path}: {report}");
    }
}

#[test]
fn random_programs_agree_bit_for_bit() {
    agree(&GenOptions::default(), 1);
}

/// Every result goes past the caches that can.
#[test]
fn random_programs_that_write_past_the_caches_agree() {
    let (count, first) = (number("VYRE_RANDOM", 2000) / 4, number("VYRE_SEED", 0));
    for path in paths() {
        let mut options = CpuOptions::default();
        (options.path, options.streams_from) = (Some(path), Some(0));
        let backend = CpuBackend::with_options(&options).expect("a path that is here");
        let report = random_programs(&backend, first..first + count, &GenOptions::default(), &Rules::exact());
        assert!(report.is_good(), "{path}: {report}");
    }
}

/// Loads whose guard says only a part of why they are inside, in lanes that are not there; words that are added to twice in a row.
#[test]
fn programs_that_once_went_wrong_agree() {
    let plain = GenOptions::default();
    let math = GenOptions { math: true, ..GenOptions::default() };
    for path in paths() {
        for (seed, options) in
            [(1_013_742, &plain), (1_085_700, &plain), (1_081_680, &math), (8_006_211, &plain), (8_027_535, &plain)]
        {
            let backend = CpuBackend::with_path(path).expect("a path that is here");
            let report = random_programs(&backend, seed..seed + 1, options, &Rules::exact());
            assert!(report.is_good(), "{path}: {report}");
        }
    }
}

#[test]
fn random_programs_with_timeouts_agree() {
    let (count, first) = (number("VYRE_RANDOM", 2000) / 8, number("VYRE_SEED", 0));
    for path in paths() {
        let backend = CpuBackend::with_path(path).expect("it is here");
        let report = random_programs(&Patient(&backend), first..first + count, &GenOptions::default(), &Rules::exact());
        assert!(report.is_good(), "{path}: {report}");
    }
}

#[test]
fn random_searches_agree() {
    agree(&GenOptions { searches: true, ..GenOptions::default() }, 4);
}

#[test]
fn random_components_agree() {
    agree(&GenOptions { components: true, ..GenOptions::default() }, 2);
}

#[test]
fn random_subgroups_agree() {
    agree(&GenOptions { subgroups: Subgroups::FixedSize, ..GenOptions::default() }, 4);
}

/// WGSL's bounds, not bits.
#[test]
fn random_programs_in_fast_arithmetic_are_near() {
    agree(&GenOptions::fast(), 40);
}

#[test]
fn random_functions_stay_within_the_error_table() {
    agree(&GenOptions { math: true, ..GenOptions::default() }, 4);
}
