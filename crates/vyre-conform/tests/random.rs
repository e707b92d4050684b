//! Random programs have one meaning: the reference runs them, and every other form of the same program gives its answer.
//!
//! `VYRE_RANDOM` sets how many programs run, over all tests together; the seeds are 0, 1, 2, …, and the remainder of a seed by
//! eight says with which options it is used.

use vyre_conform::{
    Case, Floats, GenOptions, KernelBackend, Outcome, Rules, Subgroups, check, check_against, compare, generate,
    reduce, run_reference,
};
use vyre_foundation::kernel::{Options, Passes, lower};
use vyre_foundation::{text, wire};
use vyre_wgsl::ImportOptions;

fn count() -> u64 {
    match std::env::var("VYRE_RANDOM") {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("VYRE_RANDOM is the number of programs, not {text:?}")),
        Err(_) => 320,
    }
}

/// What is wrong with a case in one of its forms; `None` when nothing is.
type Fault<'a> = &'a dyn Fn(&Case, &[Vec<u8>]) -> Option<String>;

/// Shrinks a case with a fault and says what is left.
fn explain(case: &Case, form: &str, fault: Fault) -> String {
    let found = |case: &Case| run_reference(case).ok().and_then(|expected| fault(case, &expected));
    let small = reduce(case, |case| found(case).is_some());
    format!("seed {}, {form}: {}\n{}", case.seed, found(&small).unwrap_or_default(), small.describe())
}

/// Runs the seeds with this remainder. At least `in_wgsl` percent of them must be such that WGSL can say them.
fn programs(remainder: u64, options: GenOptions, in_wgsl: u64) {
    let variants = KernelBackend::variants();
    let long = count() > 1000;
    let (mut programs, mut varied, mut written) = (0, 0, 0);
    let mut faults = Vec::new();
    for seed in (0..count()).filter(|seed| seed % 8 == remainder) {
        let case = generate(seed, &options);
        let expected = match run_reference(&case) {
            Ok(results) => results,
            Err(problem) => panic!("seed {seed}: {problem}\n{}", case.describe()),
        };
        programs += 1;
        let different = |bytes: &Vec<u8>| bytes.chunks(4).any(|word| word != &bytes[..word.len()]);
        varied += u64::from(expected.iter().any(different));

        let mut check_form = |form: &str, fault: Fault| {
            if faults.len() < 3 && fault(&case, &expected).is_some() {
                faults.push(explain(&case, form, fault));
            }
        };
        check_form("wire form", &|case, _| wire_fault(case));
        check_form("text form", &|case, _| text_fault(case));
        match through_wgsl(&case) {
            Ok(None) => {}
            _ => written += 1,
        }
        check_form("WGSL", &wgsl_fault);
        for (i, (name, backend)) in variants.iter().enumerate() {
            // All, none, and each alone for every program of a long run; of the rest, and in a short run, some by turns.
            let always = i < 3 || (long && !name.starts_with("all but"));
            if always || (i as u64 + seed / 8).is_multiple_of(8) {
                check_form(name, &|case, expected| {
                    outcome_fault(check_against(backend, case, expected, &Rules::exact()))
                });
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    println!("{programs} programs, {written} of them also in WGSL");
    // Programs that compute nothing would make every comparison pass.
    assert!(varied * 10 >= programs * 8, "{varied} of {programs} programs have results that vary");
    assert!(written * 100 >= programs * in_wgsl, "{written} of {programs} programs went through WGSL");
}

fn outcome_fault(outcome: Outcome) -> Option<String> {
    match outcome {
        Outcome::Same => None,
        Outcome::Refused(what) | Outcome::Failed(what) => Some(what),
        Outcome::Different(difference) => Some(difference.to_string()),
    }
}

fn wire_fault(case: &Case) -> Option<String> {
    let bytes = wire::encode(&case.program);
    match wire::decode(&bytes) {
        Ok(back) if back == case.program && wire::encode(&back) == bytes => None,
        Ok(_) => Some("another program came back".to_owned()),
        Err(problem) => Some(problem.to_string()),
    }
}

fn text_fault(case: &Case) -> Option<String> {
    match text::parse(&text::print(&case.program)) {
        Ok(back) if back == case.program => None,
        Ok(_) => Some("another program came back".to_owned()),
        Err(problems) => Some(problems[0].to_string()),
    }
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

fn wgsl_fault(case: &Case, expected: &[Vec<u8>]) -> Option<String> {
    match through_wgsl(case) {
        Ok(None) => None,
        Ok(Some(actual)) => compare(expected, &actual, &case.program, &Rules::exact()).err().map(|d| d.to_string()),
        Err(problem) => Some(problem),
    }
}

/// WGSL has no types that are converted on load and store.
fn plain() -> GenOptions {
    GenOptions { stored_types: false, ..GenOptions::default() }
}

#[test]
fn portable() {
    programs(0, GenOptions::portable(), 95);
}

#[test]
fn subgroups_of_one_size() {
    programs(1, GenOptions { subgroups: Subgroups::FixedSize, ..plain() }, 50);
}

#[test]
fn subgroups_of_any_size() {
    programs(2, GenOptions { subgroups: Subgroups::AnySize, floats: Floats::None, ..plain() }, 50);
}

#[test]
fn inexact_functions() {
    programs(3, GenOptions { math: true, ..plain() }, 50);
}

/// Fast arithmetic: the seeds of the programs with functions, whose text and wire form then differ.
#[test]
fn fast_arithmetic() {
    programs(3, GenOptions::fast(), 0);
}

#[test]
fn everything_that_wgsl_has() {
    programs(4, GenOptions { focus: false, ..plain() }, 35);
}

#[test]
fn some_of_what_wgsl_has() {
    programs(5, plain(), 50);
}

#[test]
fn everything() {
    programs(6, GenOptions { focus: false, ..GenOptions::default() }, 0);
}

#[test]
fn some_of_everything() {
    programs(7, GenOptions::default(), 0);
}

/// The same seeds once more: functions that give back what they were handed.
#[test]
fn functions_that_change_variables() {
    let options = GenOptions { handed: true, ..plain() };
    let all = GenOptions { focus: false, ..options.clone() };
    programs(5, all.clone(), 30);
    programs(7, options, 30);
    // Most of them have calls that work in place.
    let in_place = |seed: &u64| {
        let program = generate(*seed, &all).program;
        let valid = program.validate().expect("valid");
        let form = |passes| lower(&valid, &Options { passes, ..Options::default() }).expect("lowers").to_string();
        form(Passes::none()) != form(Passes::only(Passes::IN_PLACE))
    };
    let found = (0..40).filter(in_place).count();
    assert!(found >= 20, "{found} of 40 programs");
}

/// The same seeds once more: short loops that are left where something is found.
#[test]
fn searches() {
    let options = GenOptions { searches: true, ..plain() };
    let all = GenOptions { focus: false, ..options.clone() };
    programs(5, all.clone(), 30);
    programs(7, options, 30);
    // Some are written out.
    let written_out = |seed: &u64| {
        let valid = generate(*seed, &all).program.validate().expect("valid");
        let form = |searches_written_out| {
            let options = Options { searches_written_out, ..Options::default() };
            lower(&valid, &options).expect("lowers").to_string()
        };
        form(false) != form(true)
    };
    let found = (0..40).filter(written_out).count();
    assert!(found >= 8, "{found} of 40 programs");
}

/// The same seeds once more: vectors that are worked on component by component, and some that are nearly.
#[test]
fn components() {
    let options = GenOptions { components: true, ..plain() };
    programs(4, options.clone(), 95);
    programs(0, GenOptions { components: true, ..GenOptions::portable() }, 95);
    // Many have an invocation for each component, and some of them fill workgroup memory.
    let apart = |seed: u64| {
        let valid = generate(seed, &options).program.validate().expect("valid");
        let form = Options { components_apart: Some(4), small_grids: true, ..Options::default() };
        let kernel = lower(&valid, &form).expect("lowers");
        (kernel.parts > 1).then_some(kernel.has_barrier)
    };
    let found: Vec<bool> = (0..100).filter_map(apart).collect();
    let filled = found.iter().filter(|filled| **filled).count();
    assert!(found.len() >= 30 && filled >= 10, "{} of 100 programs, {filled} with barriers", found.len());
}

/// The reference with one bit of every number changed, or with every number changed by so much of it.
struct Off(f32);

impl vyre_driver::VyreBackend for Off {
    fn id(&self) -> &'static str {
        "off"
    }

    fn dispatch(
        &self,
        program: &vyre_foundation::ir::Program,
        inputs: &[Vec<u8>],
        config: &vyre_driver::DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, vyre_driver::BackendError> {
        let mut results = vyre_conform::ReferenceBackend.dispatch(program, inputs, config)?;
        let order = program.binding_order();
        let kinds = order.iter().map(|&at| &program.buffers()[at]).filter(|buffer| buffer.kind.is_result());
        for (buffer, bytes) in kinds.zip(&mut results) {
            if buffer.ty == vyre_foundation::ir::DataType::F32 {
                for word in bytes.chunks_exact_mut(4) {
                    let value = f32::from_le_bytes([word[0], word[1], word[2], word[3]]) * (1.0 + self.0);
                    word.copy_from_slice(&value.to_le_bytes());
                }
            }
        }
        Ok(results)
    }
}

/// The bounds of fast arithmetic let pass what is as near as WGSL asks, and nothing else.
#[test]
fn fast_arithmetic_has_bounds() {
    let math = |seed: &u64| {
        let case = generate(*seed, &GenOptions::fast());
        let f32s = |name: &str| {
            case.program.buffer(name).is_some_and(|buffer| buffer.ty == vyre_foundation::ir::DataType::F32)
        };
        case.program.buffers().iter().any(|buffer| f32s(buffer.name.as_str()) && buffer.kind.is_result())
    };
    let seeds: Vec<u64> = (0..200).filter(math).take(30).collect();
    let wrong = |off: f32| {
        let judged = |seed: &&u64| {
            let case = generate(**seed, &GenOptions::fast());
            matches!(check(&Off(off), &case, &Rules::exact()), Outcome::Different(_))
        };
        seeds.iter().filter(judged).count()
    };
    assert_eq!(wrong(0.0), 0);
    assert!(seeds.len() >= 20, "{}", seeds.len());
    // Of programs that meet infinities nothing is promised, so they are not judged.
    assert!(wrong(0.01) * 2 >= seeds.len(), "{} of {}", wrong(0.01), seeds.len());
}

/// A wrong backend is found: one that gives zeros.
#[test]
fn zeros_are_not_the_answer() {
    let zeros = vyre_driver::backend::NullBackend::new();
    let wrong = (0..20).filter(|&seed| {
        let case = generate(seed, &GenOptions::portable());
        !matches!(check(&zeros, &case, &Rules::wgsl()), Outcome::Same)
    });
    assert!(wrong.count() >= 18);
}
