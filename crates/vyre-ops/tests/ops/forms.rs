//! Kernels are written in several ways, for devices of several kinds. Each gives the same, also where it is not the one that suits.

use std::process::Command;

#[test]
fn every_form_gives_the_same() {
    const TESTS: [&str; 17] = [
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
        "sorting::the_largest_of_each_row_are_found",
        "sorting::the_largest_of_many_are_found",
        "transforms::a_wave_has_one_frequency",
        "transforms::images_are_convolved_in_the_stated_order",
        "transforms::stencils_of_arrays_and_of_expressions_are_the_same",
        "transforms::waves_are_found_and_made",
        "transforms::what_goes_there_comes_back",
    ];
    // What the tuner chooses from, also where there are fewer forms than are asked for.
    const TUNED: [&str; 7] = [
        "matrices::rows_are_softened_and_normalised",
        "moves::axes_are_put_in_any_order",
        "reductions::nan_wins_and_the_first_of_equal_ones",
        "reductions::sums_of_floats_have_the_stated_order",
        "sorting::histograms_of_few_and_many_bins",
        "sorting::pairs_are_stable_and_the_largest_come_first",
        "sorting::signed_floats_wide_and_descending",
    ];
    for form in ["wide", "wide,passes,alone"] {
        run(form, &TESTS);
    }
    // The kernels that functions of the processor stand beside.
    run("form0", &TESTS);
    for form in ["form1", "form2,wide", "form3", "form4", "form5", "form6,wide"] {
        run(form, &TUNED);
    }
}

fn run(form: &str, tests: &[&str]) {
    let itself = std::env::current_exe().expect("a path");
    let ran = Command::new(&itself)
        .args(tests)
        .arg("--exact")
        .env("VYRE_OPS_FORM", form)
        .env("VYRE_OPS_ON", "cpu")
        .output()
        .expect("the tests run");
    let said = String::from_utf8_lossy(&ran.stdout);
    let all = format!("{} passed", tests.len());
    assert!(ran.status.success() && said.contains(&all), "{form}: {said}");
}
