use std::ops::Range;

use vyre_driver::specialization::SpecMap;
use vyre_driver::{BackendError, DispatchConfig, VyreBackend, launch};
use vyre_foundation::ir::{Literal, Math, Program};
use vyre_reference::RunOptions;
use vyre_spec::{Diagnostic, codes};

use crate::compare::{Difference, Rules, compare};
use crate::generate::{Case, GenOptions, generate};
use crate::reduce::reduce;
use crate::report::Report;

/// Steps that the reference takes at most for one case.
const BUDGET: u64 = 50_000_000;

/// Runs a case on the reference.
pub fn run_reference(case: &Case) -> Result<Vec<Vec<u8>>, Diagnostic> {
    let valid = case.program.validate().map_err(|problems| problems[0].clone())?;
    let options = RunOptions {
        specialization: case.specialization.clone(),
        grid: case.grid,
        budget: BUDGET,
        ..RunOptions::default()
    };
    vyre_reference::run(&valid, &case.input_slices(), &options)
}

/// The reference as a backend, so that it can be judged like one.
#[derive(Debug, Default)]
pub struct ReferenceBackend;

impl VyreBackend for ReferenceBackend {
    fn id(&self) -> &'static str {
        "reference"
    }

    fn dispatch(
        &self,
        program: &Program,
        inputs: &[Vec<u8>],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        let valid = program.validate()?;
        let options = RunOptions {
            specialization: config.specialization.resolve(program)?,
            workgroup: config.workgroup_override,
            grid: config.grid_override,
            domain: config.domain_override,
            output_elements: config.output_elements.iter().map(|(name, &count)| (name.into(), count)).collect(),
            budget: BUDGET,
            ..RunOptions::default()
        };
        let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        Ok(vyre_reference::run(&valid, &inputs, &options)?)
    }
}

/// The dispatch configuration of a case.
pub fn dispatch_config(case: &Case) -> DispatchConfig {
    let mut values = SpecMap::new();
    for (name, literal) in &case.specialization {
        let name = name.as_str();
        match *literal {
            Literal::Bool(value) => values.insert(name, value),
            Literal::U32(value) => values.insert(name, value),
            Literal::I32(value) => values.insert(name, value),
            Literal::F32(value) => values.insert(name, value),
            Literal::F16(value) => values.insert(name, value.to_f32()),
            // No constant has these types; the dispatch then reports the missing value.
            Literal::U64(_) | Literal::I64(_) | Literal::F64(_) => None,
        };
    }
    let mut config = DispatchConfig::default();
    config.specialization = values;
    config.grid_override = case.grid;
    config
}

/// What became of a case on a backend.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The expected results.
    Same,
    /// The backend said that its device lacks something.
    Refused(String),
    /// Other results.
    Different(Difference),
    /// An error that is not a refusal, on the backend or on the reference.
    Failed(String),
}

/// Runs a case on a backend and on the reference, and compares.
pub fn check(backend: &dyn VyreBackend, case: &Case, rules: &Rules) -> Outcome {
    match run_reference(case) {
        Ok(expected) => check_against(backend, case, &expected, rules),
        Err(problem) => Outcome::Failed(format!("the reference: {problem}")),
    }
}

/// Runs a case on a backend and compares with expected results.
pub fn check_against(backend: &dyn VyreBackend, case: &Case, expected: &[Vec<u8>], rules: &Rules) -> Outcome {
    match backend.dispatch_borrowed(&case.program, &case.input_slices(), &dispatch_config(case)) {
        Ok(actual) => match compare(expected, &actual, &case.program, rules) {
            Ok(()) => Outcome::Same,
            Err(_) if near(case, expected, &actual) => Outcome::Same,
            Err(difference) => Outcome::Different(difference),
        },
        Err(error) if is_refusal(error.code()) => Outcome::Refused(format!("{}: {}", error.code(), error.message())),
        Err(error) => Outcome::Failed(error.to_string()),
    }
}

/// The case is in fast arithmetic and its results are as near to the exact ones as that promises.
fn near(case: &Case, expected: &[Vec<u8>], actual: &[Vec<u8>]) -> bool {
    if case.program.math() == Math::Exact {
        return false;
    }
    let spread = || -> Result<_, Diagnostic> {
        let valid = case.program.validate().map_err(|problems| problems[0].clone())?;
        let slices = case.input_slices();
        let plan = launch::plan(&valid, &slices, &dispatch_config(case))?;
        vyre_foundation::near::spread(&valid, &plan, &case.specialization, &slices, 4 * BUDGET)
    };
    let same_sizes = expected.iter().map(Vec::len).eq(actual.iter().map(Vec::len));
    same_sizes
        && spread().is_ok_and(|spread| {
            spread.met_nonfinite() || spread.first_beyond(&case.program, expected, actual).is_none()
        })
}

/// The code says that the device lacks something, not that something went wrong.
fn is_refusal(code: &str) -> bool {
    let refusals = [
        &codes::backend::UNSUPPORTED_FEATURE,
        &codes::backend::LIMIT,
        &codes::backend::PROGRAM_LIMIT,
        &codes::wgpu::ARRAY_LIMIT,
    ];
    refusals.iter().any(|refusal| refusal.id == code)
}

/// Runs the programs of these seeds on a backend and on the reference. A program that differs is shrunk, and the report shows
/// what is left of it.
pub fn random_programs(backend: &dyn VyreBackend, seeds: Range<u64>, options: &GenOptions, rules: &Rules) -> Report {
    let mut report = Report::new(backend.id());
    for seed in seeds {
        let case = generate(seed, options);
        let name = format!("seed {seed}");
        let same_kind =
            |outcome: &Outcome, other: &Outcome| std::mem::discriminant(outcome) == std::mem::discriminant(other);
        match check(backend, &case, rules) {
            outcome @ (Outcome::Different(_) | Outcome::Failed(_)) => {
                let small = reduce(&case, |case| {
                    run_reference(case).is_ok() && same_kind(&check(backend, case, rules), &outcome)
                });
                let outcome = check(backend, &small, rules);
                report.add(name, &outcome);
                report.explain(small.describe());
            }
            outcome => report.add(name, &outcome),
        }
    }
    report
}
