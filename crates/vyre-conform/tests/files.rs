//! The file tests, on the reference and through the optimiser.

use vyre_conform::{FileTest, GenOptions, KernelBackend, Outcome, ReferenceBackend, Rules, file_tests, generate};
use vyre_driver::{BackendError, DispatchConfig, VyreBackend};
use vyre_foundation::ir::Program;
use vyre_spec::codes;

#[test]
fn the_reference_passes_the_file_tests() {
    let report = file_tests(&ReferenceBackend, &Rules::exact());
    assert!(report.is_good() && report.skipped.is_empty(), "{report}");
    assert!(report.passed >= 25, "only {} file tests were found", report.passed);
}

#[test]
fn the_optimiser_passes_the_file_tests() {
    for (name, backend) in KernelBackend::variants() {
        let report = file_tests(&backend, &Rules::exact());
        assert!(report.is_good() && report.skipped.is_empty(), "{name}: {report}");
    }
}

/// A backend that writes the program as WGSL, reads that, and runs it on the reference.
struct ThroughWgsl;

impl VyreBackend for ThroughWgsl {
    fn id(&self) -> &'static str {
        "through WGSL"
    }

    fn dispatch(
        &self,
        program: &Program,
        inputs: &[Vec<u8>],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        let text = vyre_wgsl::export(&program.validate()?).map_err(|problem| {
            // What WGSL can't say is not a fault.
            BackendError::with_code(&codes::backend::UNSUPPORTED_FEATURE, problem.message)
        })?;
        let again = vyre_wgsl::import(&text, &vyre_wgsl::ImportOptions::default())
            .map_err(|problems| BackendError::new(format!("{}\n{text}", problems[0])))?;
        ReferenceBackend.dispatch(&again, inputs, config)
    }
}

#[test]
fn the_file_tests_pass_through_wgsl() {
    let report = file_tests(&ThroughWgsl, &Rules::exact());
    assert!(report.is_good() && report.passed >= 25, "{report}");
}

#[test]
fn a_described_case_is_a_file_test() {
    for seed in 0..40 {
        let case = generate(seed, &GenOptions::default());
        let test = FileTest::parse("described", &case.describe()).unwrap();
        let outcome = test.run(&ReferenceBackend, &Rules::exact());
        assert!(matches!(outcome, Outcome::Same), "seed {seed}: {outcome:?}");
    }
}

#[test]
fn wrong_expectations_and_wrong_directives_are_found() {
    let run = |text: &str| FileTest::parse("test", text).map(|test| test.run(&ReferenceBackend, &Rules::exact()));
    let program = "output o: u32[2] @0;\nworkgroup_size [2, 1, 1];\nentry main { o[global_id.x] = 7; }\n";
    assert!(matches!(run(&format!("//! out o = u32: 7, 7\n{program}")), Ok(Outcome::Same)));
    assert!(matches!(run(&format!("//! out o = u32: 7, 8\n{program}")), Ok(Outcome::Different(_))));
    assert!(matches!(run(&format!("//! error V0101\n{program}")), Ok(Outcome::Failed(_))));
    assert!(matches!(run(&format!("//! in x = u32: 1\n//! reference\n{program}")), Ok(Outcome::Failed(_))));
    assert!(run(program).is_err());
    assert!(run(&format!("//! ouch\n{program}")).is_err());
}
