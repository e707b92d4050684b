use std::path::{Path, PathBuf};
use std::{fs, io};

use half::{bf16, f16};
use vyre_driver::VyreBackend;
use vyre_foundation::ir::{DataType, Literal, Program, Specialization};
use vyre_foundation::text;

use crate::compare::Rules;
use crate::execute::{Outcome, check, check_against, dispatch_config};
use crate::generate::Case;
use crate::report::Report;

/// A program in the text form whose `//!` lines say what goes in and what must come out:
///
/// ```text
/// //! in a = f32: 1, 2.5, -inf        one value for each scalar; `7*4` repeats, `0..5` counts, `hex: 00ff` gives bytes
/// //! out b = u32: 2, 4, 6            every result buffer, or instead of all of them:
/// //! reference                       whatever the reference gives
/// //! error V0123                     a diagnostic with this code, from the parser, the validator or the launch
/// //! spec SIZE = 32                  value of a specialization constant
/// //! grid 2 1 1                      workgroups, where they are not the program's own
/// ```
#[derive(Clone, Debug)]
pub struct FileTest {
    source: String,
    inputs: Vec<(String, Vec<u8>)>,
    outputs: Vec<(String, Vec<u8>)>,
    specialization: Vec<(String, String)>,
    grid: Option<[u32; 3]>,
    error: Option<String>,
    reference: bool,
}

impl FileTest {
    /// Reads the `//!` lines. The program itself is parsed when the test runs, because a test may expect that to fail.
    pub fn parse(name: &str, source: &str) -> Result<FileTest, String> {
        let mut test = FileTest {
            source: source.to_owned(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            specialization: Vec::new(),
            grid: None,
            error: None,
            reference: false,
        };
        for line in source.lines() {
            let Some(directive) = line.trim().strip_prefix("//!") else { continue };
            test.directive(directive.trim()).map_err(|problem| format!("{name}: `{line}`: {problem}"))?;
        }
        let ways = [!test.outputs.is_empty(), test.error.is_some(), test.reference];
        if ways.iter().filter(|&&way| way).count() != 1 {
            return Err(format!("{name}: say what is expected: `out`, `error` or `reference`"));
        }
        Ok(test)
    }

    fn directive(&mut self, line: &str) -> Result<(), String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let pair = || rest.split_once('=').map(|(a, b)| (a.trim().to_owned(), b.trim())).ok_or("no `=`".to_owned());
        match word {
            "in" | "out" => {
                let (name, values) = pair()?;
                let bytes = bytes_of(values)?;
                if word == "in" { self.inputs.push((name, bytes)) } else { self.outputs.push((name, bytes)) }
            }
            "spec" => {
                let (name, value) = pair()?;
                self.specialization.push((name, value.to_owned()));
            }
            "grid" => {
                let sizes: Vec<u32> =
                    rest.split_whitespace().map(str::parse).collect::<Result<_, _>>().map_err(|e| format!("{e}"))?;
                self.grid = Some(sizes.try_into().map_err(|_| "three numbers, please".to_owned())?);
            }
            "error" => self.error = Some(rest.trim().to_owned()),
            "reference" => self.reference = true,
            other => return Err(format!("`{other}` is no directive")),
        }
        Ok(())
    }

    /// The case, with the inputs put in binding order.
    fn case(&self, program: Program) -> Result<Case, String> {
        let order = program.binding_order();
        let mut inputs = Vec::new();
        for buffer in order.iter().map(|&i| &program.buffers()[i]).filter(|buffer| buffer.kind.is_input()) {
            let given = self.inputs.iter().find(|(name, _)| buffer.name == name.as_str());
            inputs.push(given.ok_or_else(|| format!("no `in` for buffer `{}`", buffer.name))?.1.clone());
        }
        if let Some((name, _)) = self.inputs.iter().find(|(name, _)| program.buffer(name).is_none()) {
            return Err(format!("`in` names no buffer: `{name}`"));
        }
        let mut specialization = Specialization::new();
        for (name, value) in &self.specialization {
            let constant = program.constants().iter().find(|constant| constant.name == name.as_str());
            let ty = constant.map_or(DataType::U32, |constant| constant.default.data_type());
            specialization.insert(name.into(), literal(&ty, value)?);
        }
        Ok(Case { specialization, grid: self.grid, ..Case::new(program, inputs) })
    }

    /// Runs the test on a backend.
    pub fn run(&self, backend: &dyn VyreBackend, rules: &Rules) -> Outcome {
        match self.try_run(backend, rules) {
            Ok(outcome) => outcome,
            Err(problem) => Outcome::Failed(problem),
        }
    }

    fn try_run(&self, backend: &dyn VyreBackend, rules: &Rules) -> Result<Outcome, String> {
        if let Some(code) = &self.error {
            let found = self.codes(backend)?;
            return Ok(match found.iter().any(|found| found == code) {
                true => Outcome::Same,
                false => Outcome::Failed(format!("expected the diagnostic {code}, found {found:?}")),
            });
        }
        let lines = |problems: &[vyre_spec::Diagnostic]| {
            problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
        };
        let program = text::parse(&self.source).map_err(|problems| lines(&problems))?;
        program.validate().map_err(|problems| lines(&problems))?;
        let case = self.case(program)?;
        if self.reference {
            return Ok(check(backend, &case, rules));
        }
        let mut expected = Vec::new();
        let order = case.program.binding_order();
        for buffer in order.iter().map(|&i| &case.program.buffers()[i]).filter(|buffer| buffer.kind.is_result()) {
            let given = self.outputs.iter().find(|(name, _)| buffer.name == name.as_str());
            expected.push(given.ok_or_else(|| format!("no `out` for buffer `{}`", buffer.name))?.1.clone());
        }
        Ok(check_against(backend, &case, &expected, rules))
    }

    /// The codes of the diagnostics that the program gets.
    fn codes(&self, backend: &dyn VyreBackend) -> Result<Vec<String>, String> {
        let ids = |problems: &[vyre_spec::Diagnostic]| problems.iter().map(|p| p.code.id.to_owned()).collect();
        let program = match text::parse(&self.source) {
            Ok(program) => program,
            Err(problems) => return Ok(ids(&problems)),
        };
        if let Err(problems) = program.validate() {
            return Ok(ids(&problems));
        }
        let case = self.case(program)?;
        match backend.dispatch_borrowed(&case.program, &case.input_slices(), &dispatch_config(&case)) {
            Ok(_) => Ok(Vec::new()),
            Err(error) => Ok(vec![error.code().to_owned()]),
        }
    }
}

/// The bytes of `type: value, value, …`.
fn bytes_of(values: &str) -> Result<Vec<u8>, String> {
    let (ty, list) = values.split_once(':').ok_or("no type before the values")?;
    let list = list.trim();
    let mut out = Vec::new();
    if ty == "hex" {
        let digits: Vec<u8> = list.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        for pair in digits.chunks(2) {
            let pair = std::str::from_utf8(pair).map_err(|e| e.to_string())?;
            out.push(u8::from_str_radix(pair, 16).map_err(|e| format!("{pair}: {e}"))?);
        }
        return Ok(out);
    }
    for value in list.split(',').map(str::trim).filter(|value| !value.is_empty()) {
        if let Some((from, to)) = value.split_once("..") {
            let number = |text: &str| text.parse::<i64>().map_err(|e| format!("{text}: {e}"));
            for i in number(from)?..number(to)? {
                out.extend(scalar_bytes(ty, &i.to_string())?);
            }
        } else if let Some((value, times)) = value.split_once('*') {
            let times: usize = times.parse().map_err(|e| format!("{times}: {e}"))?;
            out.extend(scalar_bytes(ty, value)?.repeat(times));
        } else {
            out.extend(scalar_bytes(ty, value)?);
        }
    }
    Ok(out)
}

fn scalar_bytes(ty: &str, value: &str) -> Result<Vec<u8>, String> {
    let ty = match ty {
        "u8" | "i8" | "u16" | "i16" => {
            let word = literal(&DataType::I64, value)?.bits().to_le_bytes();
            return Ok(word[..if ty.ends_with('8') { 1 } else { 2 }].to_vec());
        }
        "bf16" => {
            let value: f32 = value.parse().map_err(|e| format!("{value}: {e}"))?;
            return Ok(bf16::from_f32(value).to_le_bytes().to_vec());
        }
        "bool" => {
            let value: bool = value.parse().map_err(|e| format!("{value}: {e}"))?;
            return Ok(u32::from(value).to_le_bytes().to_vec());
        }
        "u32" => DataType::U32,
        "i32" => DataType::I32,
        "u64" => DataType::U64,
        "i64" => DataType::I64,
        "f16" => DataType::F16,
        "f32" => DataType::F32,
        "f64" => DataType::F64,
        other => return Err(format!("no values of type `{other}` here")),
    };
    let size = (ty.bits().unwrap_or(0) / 8) as usize;
    Ok(literal(&ty, value)?.bits().to_le_bytes()[..size].to_vec())
}

fn literal(ty: &DataType, value: &str) -> Result<Literal, String> {
    fn parsed<T: std::str::FromStr>(value: &str) -> Result<T, String>
    where
        T::Err: std::fmt::Display,
    {
        value.parse().map_err(|e| format!("{value}: {e}"))
    }
    if let Some(bits) = value.strip_prefix("0x") {
        let bits = u64::from_str_radix(bits, 16).map_err(|e| format!("{value}: {e}"))?;
        return Literal::from_bits(ty, bits).ok_or_else(|| format!("no values of type `{ty}` here"));
    }
    Ok(match ty {
        DataType::Bool => Literal::Bool(parsed(value)?),
        DataType::U32 => Literal::U32(parsed(value)?),
        DataType::I32 => Literal::I32(parsed(value)?),
        DataType::U64 => Literal::U64(parsed(value)?),
        DataType::I64 => Literal::I64(parsed(value)?),
        DataType::F16 => Literal::F16(f16::from_f64(parsed(value)?)),
        DataType::F32 => Literal::F32(parsed(value)?),
        DataType::F64 => Literal::F64(parsed(value)?),
        other => return Err(format!("no values of type `{other}` here")),
    })
}

/// Runs every `.vyre` file of this crate's `filetests` folder on a backend.
pub fn file_tests(backend: &dyn VyreBackend, rules: &Rules) -> Report {
    file_tests_in(&PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/filetests")), backend, rules)
}

/// Runs every `.vyre` file of a folder on a backend, in the order of their names.
pub fn file_tests_in(folder: &Path, backend: &dyn VyreBackend, rules: &Rules) -> Report {
    let mut report = Report::new(backend.id());
    let files = match sources(folder) {
        Ok(files) => files,
        Err(error) => {
            report.add(folder.display().to_string(), &Outcome::Failed(error.to_string()));
            return report;
        }
    };
    for (name, source) in files {
        let outcome = match FileTest::parse(&name, &source) {
            Ok(test) => test.run(backend, rules),
            Err(problem) => Outcome::Failed(problem),
        };
        report.add(name, &outcome);
    }
    report
}

fn sources(folder: &Path) -> io::Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "vyre") {
            let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
            files.push((name, fs::read_to_string(&path)?));
        }
    }
    files.sort();
    Ok(files)
}
