//! Random programs print as WGSL, import again, and give the same results on the reference interpreter.

use vyre_conform::{Case, GenOptions, Rules, compare, generate, run_reference};
use vyre_spec::Diagnostic;
use vyre_wgsl::{ImportOptions, export, import};

/// How many programs; the environment variable `VYRE_RANDOM` sets another number.
fn programs() -> u64 {
    std::env::var("VYRE_RANDOM").ok().and_then(|count| count.parse().ok()).unwrap_or(150)
}

fn lines(problems: &[Diagnostic]) -> String {
    problems.iter().map(|problem| problem.to_string()).collect::<Vec<_>>().join("\n")
}

/// Whether the program could be printed; an error says what went wrong after that.
fn round_trip(case: &Case) -> Result<bool, String> {
    let valid = case.program.validate().map_err(|problems| lines(&problems))?;
    let text = match export(&valid) {
        Ok(text) => text,
        Err(problem) if problem.code.id == "V0410" => return Ok(false),
        Err(problem) => return Err(problem.to_string()),
    };
    let again = import(&text, &ImportOptions::default()).map_err(|problems| format!("{}\n{text}", lines(&problems)))?;
    again.validate().map_err(|problems| format!("{}\n{text}", lines(&problems)))?;
    let expected = run_reference(case).map_err(|problem| problem.to_string())?;
    let second = Case { program: again, ..case.clone() };
    let actual = run_reference(&second).map_err(|problem| format!("{problem}\n{text}"))?;
    compare(&expected, &actual, &case.program, &Rules::exact())
        .map_err(|difference| format!("{difference:?}\n{text}"))?;
    Ok(true)
}

#[test]
fn printed_programs_import_again_and_mean_the_same() {
    let options = GenOptions { stored_types: false, ..GenOptions::default() };
    let (mut printed, mut failures) = (0, Vec::new());
    for seed in 1..=programs() {
        match round_trip(&generate(seed, &options)) {
            Ok(was_printed) => printed += u64::from(was_printed),
            Err(problem) => failures.push(format!("seed {seed}: {problem}")),
        }
    }
    let brief = failures.iter().map(|failure| failure.lines().take(6).collect::<Vec<_>>().join("\n"));
    let brief: Vec<_> = brief.take(10).collect();
    assert!(failures.is_empty(), "{} failed\n{}\n\n{}", failures.len(), brief.join("\n"), failures[0]);
    assert!(printed * 2 >= programs(), "only {printed} of {} programs could be printed", programs());
}

#[test]
fn matrix_operations_have_no_wgsl() {
    use vyre_foundation::ir::{BufferDecl, DataType, Expr, MatrixKind, Node, Program};
    let zero = |ty: DataType, count| Expr::construct(DataType::vector(ty, count), Vec::new());
    let product = Expr::matrix_multiply_add(
        MatrixKind::F16,
        zero(DataType::U32, 4),
        zero(DataType::U32, 2),
        zero(DataType::F32, 4),
    );
    let out = BufferDecl::output("out", 0, DataType::F32).with_count(32);
    let program =
        Program::wrapped(vec![out], [32, 1, 1], vec![Node::store("out", Expr::global_id(0), product.lane(0))]);
    let problem = export(&program.validate().expect("valid")).expect_err("no WGSL for it");
    assert_eq!(problem.code.id, "V0410");
}
