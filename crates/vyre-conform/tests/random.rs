//! Random programs have one meaning: the reference runs them, and every other form of the same program gives its answer.
//!
//! `VYRE_RANDOM` sets how many programs run; the seeds are 0, 1, 2, … of each set of options.

use std::ops::Range;

use vyre_conform::{
    Case, Floats, GenOptions, KernelBackend, Outcome, Rules, Subgroups, check, check_against, compare, generate,
    reduce, run_reference,
};
use vyre_foundation::{text, wire};
use vyre_wgsl::ImportOptions;

fn seeds() -> Range<u64> {
    let count = std::env::var("VYRE_RANDOM").ok().map_or(300, |text| match text.parse() {
        Ok(count) => count,
        Err(_) => panic!("VYRE_RANDOM is the number of programs, not {text:?}"),
    });
    0..count
}

/// Different programs by turns: all exact features, those of every device, subgroups, and inexact functions.
fn options(seed: u64) -> GenOptions {
    // WGSL has no types that are converted on load and store, so that only some programs use them.
    let plain = GenOptions { stored_types: false, ..GenOptions::default() };
    match seed % 8 {
        0 => GenOptions::portable(),
        1 => GenOptions { subgroups: Subgroups::FixedSize, ..plain },
        2 => GenOptions { subgroups: Subgroups::AnySize, floats: Floats::None, ..plain },
        3 => GenOptions { math: true, ..plain },
        4 => GenOptions { focus: false, ..plain },
        5 => plain,
        _ => GenOptions::default(),
    }
}

fn each(mut check: impl FnMut(&Case, &[Vec<u8>])) {
    for seed in seeds() {
        let case = generate(seed, &options(seed));
        match run_reference(&case) {
            Ok(results) => check(&case, &results),
            Err(problem) => panic!("seed {seed}: {problem}\n{}", case.describe()),
        }
    }
}

/// Programs that compute nothing would make every comparison pass.
#[test]
fn programs_are_worth_running() {
    let (mut programs, mut varied) = (0, 0);
    each(|_, results| {
        programs += 1;
        let different = |bytes: &Vec<u8>| bytes.chunks(4).any(|word| word != &bytes[..word.len()]);
        if results.iter().any(different) {
            varied += 1;
        }
    });
    assert!(varied * 10 >= programs * 9, "{varied} of {programs} programs have results that vary");
}

#[test]
fn the_wire_form_keeps_programs() {
    each(|case, _| {
        let bytes = wire::encode(&case.program);
        let back = wire::decode(&bytes).unwrap_or_else(|problem| panic!("seed {}: {problem}", case.seed));
        assert_eq!(back, case.program, "seed {}", case.seed);
        assert_eq!(wire::encode(&back), bytes, "seed {}", case.seed);
    });
}

#[test]
fn the_text_form_keeps_programs() {
    each(|case, _| {
        let printed = text::print(&case.program);
        match text::parse(&printed) {
            Ok(back) => assert_eq!(back, case.program, "seed {}\n{printed}", case.seed),
            Err(problems) => panic!("seed {}: {}\n{printed}", case.seed, problems[0]),
        }
    });
}

/// What is wrong with a case on a backend.
fn fault(outcome: Outcome) -> Option<String> {
    match outcome {
        Outcome::Same => None,
        Outcome::Refused(what) | Outcome::Failed(what) => Some(what),
        Outcome::Different(difference) => Some(difference.to_string()),
    }
}

/// A small run takes a third of the ways to lower for each program, by turns; a long one takes all for all.
#[test]
fn optimised_programs_mean_the_same() {
    let rules = Rules::exact();
    let (mut shown, mut wrong) = (0, 0);
    let variants = KernelBackend::variants();
    let every = if seeds().end > 1000 { 1 } else { 3 };
    each(|case, expected| {
        for (i, (name, backend)) in variants.iter().enumerate() {
            let skipped = i > 2 && !(i as u64 + case.seed).is_multiple_of(every);
            if skipped || fault(check_against(backend, case, expected, &rules)).is_none() {
                continue;
            }
            wrong += 1;
            if shown < 3 {
                shown += 1;
                let small =
                    reduce(case, |case| run_reference(case).is_ok() && fault(check(backend, case, &rules)).is_some());
                let what = fault(check(backend, &small, &rules)).unwrap_or_default();
                println!("seed {}, {name}: {what}\n{}", case.seed, small.describe());
            }
            return;
        }
    });
    assert_eq!(wrong, 0, "programs that mean something else after the optimiser");
}

/// Results of a program that went through WGSL text; `None` where WGSL has no way to say it.
fn through_wgsl(case: &Case) -> Result<Option<Vec<Vec<u8>>>, String> {
    let valid = case.program.validate().map_err(|problems| problems[0].to_string())?;
    let text = match vyre_wgsl::export(&valid) {
        Ok(text) => text,
        Err(problem) if problem.code == &vyre_spec::codes::wgsl::EXPORT_UNSUPPORTED => return Ok(None),
        Err(problem) => return Err(problem.to_string()),
    };
    let program =
        vyre_wgsl::import(&text, &ImportOptions::default()).map_err(|problems| format!("{}\n{text}", problems[0]))?;
    program.validate().map_err(|problems| format!("{}\n{text}", problems[0]))?;
    run_reference(&Case { program, ..case.clone() }).map(Some).map_err(|problem| format!("{problem}\n{text}"))
}

#[test]
fn programs_mean_the_same_in_wgsl() {
    let rules = Rules::exact();
    let (mut written, mut refused, mut wrong) = (0, 0, 0);
    let fault = |case: &Case, expected: &[Vec<u8>]| match through_wgsl(case) {
        Ok(None) => None,
        Ok(Some(actual)) => compare(expected, &actual, &case.program, &rules).err().map(|d| d.to_string()),
        Err(problem) => Some(problem),
    };
    each(|case, expected| {
        match through_wgsl(case) {
            Ok(None) => refused += 1,
            _ => written += 1,
        }
        if fault(case, expected).is_some() {
            wrong += 1;
            if wrong <= 3 {
                let small =
                    reduce(case, |case| run_reference(case).is_ok_and(|expected| fault(case, &expected).is_some()));
                let what = run_reference(&small).ok().and_then(|expected| fault(&small, &expected));
                println!("seed {}: {}\n{}", case.seed, what.unwrap_or_default(), small.describe());
            }
        }
    });
    println!("{written} programs went through WGSL, {refused} use types that it does not have");
    assert_eq!(wrong, 0, "programs that mean something else after WGSL");
    assert!(written > refused, "{written} programs went through WGSL, {refused} did not");
}
