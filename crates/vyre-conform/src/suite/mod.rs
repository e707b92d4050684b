//! The conformance suite: small programs, one subject each, whose results every backend must give.
//!
//! Where the expected result is cheap to compute here, it is, so that the reference is tested by the same suite.

mod casts;
mod control;
mod expected;
mod launch;
mod matrix;
mod memory;
mod operations;
mod shared;
mod stored;
mod values;

use vyre_driver::VyreBackend;

use crate::compare::Rules;
use crate::execute::{Outcome, check_against, dispatch_config, run_reference};
use crate::generate::Case;
use crate::report::Report;

/// What a test expects.
#[derive(Clone, Debug)]
pub enum Expectation {
    /// What the reference gives.
    Reference,
    /// These results.
    Results(Vec<Vec<u8>>),
    /// A diagnostic instead of results.
    Error,
}

/// One test of the suite.
#[derive(Clone, Debug)]
pub struct Test {
    /// Subject, from the general to the special, such as `binary/Rem/i32`.
    pub name: String,
    /// What is run.
    pub case: Case,
    /// What must come of it.
    pub expectation: Expectation,
}

impl Test {
    fn new(name: impl Into<String>, case: Case) -> Test {
        Test { name: name.into(), case, expectation: Expectation::Reference }
    }

    fn gives(mut self, results: Vec<Vec<u8>>) -> Test {
        self.expectation = Expectation::Results(results);
        self
    }
}

/// Every test. Under rules that are not exact, floats keep to ordinary numbers.
pub fn tests(rules: &Rules) -> Vec<Test> {
    let mut tests = Vec::new();
    operations::add(&mut tests, rules);
    casts::add(&mut tests, rules);
    matrix::add(&mut tests, rules);
    stored::add(&mut tests);
    memory::add(&mut tests);
    shared::add(&mut tests);
    control::add(&mut tests);
    launch::add(&mut tests);
    tests
}

/// Runs the whole suite on a backend that is exact.
pub fn suite(backend: &dyn VyreBackend) -> Report {
    suite_with(backend, &Rules::exact())
}

/// Runs the whole suite on a backend under the given rules.
pub fn suite_with(backend: &dyn VyreBackend, rules: &Rules) -> Report {
    let mut report = Report::new(backend.id());
    for test in tests(rules) {
        let outcome = run(backend, &test, rules);
        report.add(test.name, &outcome);
    }
    report
}

fn run(backend: &dyn VyreBackend, test: &Test, rules: &Rules) -> Outcome {
    let case = &test.case;
    match &test.expectation {
        Expectation::Results(expected) => check_against(backend, case, expected, rules),
        Expectation::Reference => match run_reference(case) {
            Ok(expected) => check_against(backend, case, &expected, rules),
            Err(problem) => Outcome::Failed(format!("the reference: {problem}")),
        },
        Expectation::Error => {
            match backend.dispatch_borrowed(&case.program, &case.input_slices(), &dispatch_config(case)) {
                Ok(_) => Outcome::Failed("results where a diagnostic was expected".to_owned()),
                Err(_) => Outcome::Same,
            }
        }
    }
}
