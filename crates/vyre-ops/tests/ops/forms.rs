//! Kernels are written in several ways, for devices of several kinds. Each gives the same, also where it is not the one that suits.

use std::process::Command;

#[test]
fn every_form_gives_the_same() {
    const TESTS: [&str; 14] = [
        "attention::queries_find_values",
        "matrices::products_are_chains_of_fused_sums",
        "matrices::products_of_halves_are_summed_in_f32",
        "matrices::rows_are_softened_and_normalised",
        "moves::axes_are_put_in_any_order",
        "scans::compact_partition_and_unique",
        "scans::scans_of_floats_are_close_and_the_same_everywhere",
        "sorting::histograms_of_few_and_many_bins",
        "sorting::pairs_are_stable_and_the_largest_come_first",
        "sorting::signed_floats_wide_and_descending",
        "sorting::the_largest_of_many_are_found",
        "transforms::stencils_of_arrays_and_of_expressions_are_the_same",
        "transforms::waves_are_found_and_made",
        "transforms::what_goes_there_comes_back",
    ];
    let itself = std::env::current_exe().expect("a path");
    for form in ["wide", "wide,passes,alone"] {
        let tests = Command::new(&itself)
            .args(TESTS)
            .arg("--exact")
            .env("VYRE_OPS_FORM", form)
            .env("VYRE_OPS_ON", "cpu")
            .output()
            .expect("the tests run");
        let said = String::from_utf8_lossy(&tests.stdout);
        assert!(tests.status.success() && said.contains("14 passed"), "{form}: {said}");
    }
}
