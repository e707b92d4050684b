//! Kernels as files hold them, with the text they came from so that places in it can be shown.

use std::path::Path;

use vyre::ir::{BufferDecl, BufferKind, Literal, Math, Name};
use vyre::{Diagnostic, Error, ImportOptions, Program, SourceLocation, ValidProgram, codes};

use crate::args::Kernel;
use crate::data::Number;
use crate::report::{Failure, split};
use crate::shapes;

/// A program with the text it came from, so that declarations can be shown.
pub(crate) struct Source {
    pub(crate) program: Program,
    file: String,
    text: Option<String>,
}

/// Text or words of a kernel, before one of its entry points is chosen.
pub(crate) struct SourceFile {
    file: String,
    bytes: Vec<u8>,
    form: Form,
}

#[derive(Clone, Copy, PartialEq)]
enum Form {
    Wgsl,
    Spirv,
    Vyre,
}

impl SourceFile {
    pub(crate) fn read(path: &Path) -> Result<SourceFile, Failure> {
        let file = path.display().to_string();
        let bytes = std::fs::read(path)
            .map_err(|error| Diagnostic::new(&codes::command::CANT_READ, format!("`{file}` can't be read: {error}")))?;
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let form = match ending.to_ascii_lowercase().as_str() {
            "spv" => Form::Spirv,
            "vyre" => Form::Vyre,
            "toml" => {
                let message = format!("`{file}` is a pipeline, and a kernel is wanted here");
                return Err(Diagnostic::new(&codes::command::BAD_ARGUMENT, message)
                    .with_fix("Name one of its kernels; `run`, `bench`, `check` and `explain` take pipelines.")
                    .into());
            }
            _ => Form::Wgsl,
        };
        if form != Form::Spirv && std::str::from_utf8(&bytes).is_err() {
            let problem = Diagnostic::new(&codes::command::BAD_FILE, format!("`{file}` is not text"))
                .with_fix("Name WGSL text (.wgsl), SPIR-V (.spv) or vyre's text form (.vyre).");
            return Err(problem.into());
        }
        Ok(SourceFile { file, bytes, form })
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes).unwrap_or_default()
    }

    fn options(&self, entry: Option<&str>, set: &[String]) -> Result<ImportOptions, Diagnostic> {
        let mut options = ImportOptions {
            entry: entry.map(str::to_owned),
            file: Some(self.file.clone()),
            ..ImportOptions::default()
        };
        // What has no default must be known when the kernel is read; what is wrong with the others is told against their types.
        for text in set {
            let (name, value) = split("--set", text)?;
            if let Ok(number) = value.parse::<Number>() {
                options.overrides.insert(name.to_owned(), number.real());
            }
        }
        Ok(options)
    }

    /// The names of the compute entry points; of a file with one program, none.
    pub(crate) fn entry_points(&self) -> Result<Vec<String>, Failure> {
        Ok(match self.form {
            Form::Spirv => vyre::spirv_entry_points(&self.bytes).map_err(Error::from)?,
            Form::Wgsl => vyre::wgsl_entry_points(self.text(), &self.options(None, &[])?).map_err(Error::from)?,
            Form::Vyre => Vec::new(),
        })
    }

    /// Problems of the importer, with the cures of the command.
    fn refused(&self, mut problems: Vec<Diagnostic>) -> Error {
        for problem in problems.iter_mut().filter(|problem| problem.code.id == codes::wgsl::WGSL_MANY_ENTRIES.id) {
            if let Some(first) = self.entry_points().ok().and_then(|names| names.into_iter().next()) {
                problem.fix = format!("Name one of them, as in `--entry {first}`.");
            }
        }
        Error::from(problems)
    }

    pub(crate) fn import(&self, entry: Option<&str>, set: &[String]) -> Result<Source, Failure> {
        let options = self.options(entry, set)?;
        let program = match self.form {
            Form::Spirv => vyre::import_spirv(&self.bytes, &options).map_err(|problems| self.refused(problems))?,
            Form::Wgsl => vyre::import_wgsl(self.text(), &options).map_err(|problems| self.refused(problems))?,
            Form::Vyre => vyre::text::parse(self.text()).map_err(|mut problems| {
                for source in problems.iter_mut().filter_map(|problem| problem.source.as_mut()) {
                    source.file.get_or_insert_with(|| self.file.clone());
                }
                Error::from(problems)
            })?,
        };
        let text = (self.form != Form::Spirv).then(|| self.text().to_owned());
        Ok(Source { program, file: self.file.clone(), text })
    }
}

/// A kernel some of whose overrides have no default, and stand for a part of a shape.
pub(crate) struct OpenSource {
    pub(crate) source: Source,
    /// Their names; in the program they have values that mean nothing.
    pub(crate) open: Vec<Name>,
    /// Why the kernel can't be imported as long as they have no value.
    why: Vec<Diagnostic>,
}

impl OpenSource {
    pub(crate) fn of(kernel: &Kernel) -> Result<OpenSource, Failure> {
        let file = SourceFile::read(&kernel.kernel)?;
        OpenSource::import(&file, kernel.launch.entry.as_deref(), &kernel.launch.set)
    }

    pub(crate) fn import(file: &SourceFile, entry: Option<&str>, set: &[String]) -> Result<OpenSource, Failure> {
        let why = match file.import(entry, set) {
            Ok(source) => return Ok(OpenSource { source, open: Vec::new(), why: Vec::new() }),
            Err(Failure::Diagnostics(why)) => why,
            Err(other) => return Err(other),
        };
        // Whatever takes the value that is offered for it has none of its own.
        let with = |value: &str| {
            let mut offered = set.to_vec();
            let is_set = |name: &str| set.iter().any(|text| text.split('=').next() == Some(name));
            offered.extend(shapes::names().filter(|name| !is_set(name)).map(|name| format!("{name}={value}")));
            file.import(entry, &offered)
        };
        let (Ok(source), Ok(other)) = (with("1"), with("2")) else { return Err(Failure::Diagnostics(why)) };
        let pairs = source.program.constants().iter().zip(other.program.constants());
        let open = pairs.filter(|(a, b)| a.default != b.default).map(|(a, _)| a.name.clone()).collect();
        Ok(OpenSource { source, open, why })
    }

    /// Refuses a value that no shape gave.
    pub(crate) fn check(&self, filled: impl Fn(&str) -> bool) -> Result<(), Failure> {
        match self.open.iter().all(|name| filled(name.as_str())) {
            true => Ok(()),
            false => Err(Failure::Diagnostics(self.why.clone())),
        }
    }
}

impl Source {
    pub(crate) fn of(kernel: &Kernel) -> Result<Source, Failure> {
        let mut source =
            SourceFile::read(&kernel.kernel)?.import(kernel.launch.entry.as_deref(), &kernel.launch.set)?;
        source.set_math(kernel.launch.math);
        Ok(source)
    }

    /// The arithmetic that was asked for, instead of the kernel's own.
    pub(crate) fn set_math(&mut self, math: Option<Math>) {
        if let Some(math) = math {
            self.program = self.program.clone().with_math(math);
        }
    }

    /// Shows where the kernel declares a name.
    pub(crate) fn declaration(&self, diagnostic: Diagnostic, name: &str) -> Diagnostic {
        let Some(text) = &self.text else { return diagnostic };
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        for (at, _) in text.match_indices(name) {
            let end = at + name.len();
            let alone = !text[..at].ends_with(is_word) && !text[end..].starts_with(is_word);
            let line_start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
            let before = &text[line_start..at];
            if alone && (before.contains("var") || before.contains("override") || before.contains("buffer")) {
                return diagnostic.with_source(SourceLocation::in_text(Some(&self.file), text, at, end));
            }
        }
        diagnostic
    }

    /// The program, or everything that is wrong with it.
    pub(crate) fn validate(&self) -> Result<ValidProgram, Failure> {
        self.program.validate().map_err(|problems| {
            let mut problems = problems.to_vec();
            self.locate_barriers(&mut problems);
            Failure::Diagnostics(problems)
        })
    }

    /// Programs have no places, but a barrier can be found: it is the one without which there is one problem less.
    fn locate_barriers(&self, problems: &mut [Diagnostic]) {
        let Some(text) = &self.text else { return };
        let is_barrier =
            |problem: &Diagnostic| problem.code.id == codes::ir::IR_UNIFORMITY.id && problem.source.is_none();
        let wrong = problems.iter().filter(|problem| is_barrier(problem)).count();
        if wrong == 0 {
            return;
        }
        let mut places = barriers(text);
        if places.len() > 1 {
            const MOST: usize = 32;
            places.truncate(MOST);
            places.retain(|&(start, end)| {
                let without = format!("{}{}{}", &text[..start], " ".repeat(end - start), &text[end..]);
                self.problems_of(&without)
                    .is_some_and(|left| left.iter().filter(|problem| is_barrier(problem)).count() < wrong)
            });
        }
        if places.len() > wrong {
            return;
        }
        for (problem, (start, end)) in problems.iter_mut().filter(|problem| is_barrier(problem)).zip(places) {
            *problem = problem.clone().with_source(SourceLocation::in_text(Some(&self.file), text, start, end));
        }
    }

    /// What is wrong with the same kernel of another text; none where it can't be imported.
    fn problems_of(&self, text: &str) -> Option<Vec<Diagnostic>> {
        let real = |value: &Literal| match value {
            Literal::Bool(value) => f64::from(u8::from(*value)),
            Literal::U32(value) => f64::from(*value),
            Literal::I32(value) => f64::from(*value),
            Literal::F32(value) => f64::from(*value),
            _ => 0.0,
        };
        let constants = self.program.constants().iter();
        let options = ImportOptions {
            entry: Some(self.program.name().to_owned()),
            overrides: constants.map(|constant| (constant.name.to_string(), real(&constant.default))).collect(),
            ..ImportOptions::default()
        };
        let program = vyre::import_wgsl(text, &options).ok()?;
        Some(program.validate().err().map_or_else(Vec::new, |problems| problems.to_vec()))
    }

    pub(crate) fn buffer(
        &self,
        name: &str,
        fits: impl Fn(BufferKind) -> bool,
        what: &str,
    ) -> Result<&BufferDecl, Diagnostic> {
        let known: Vec<&BufferDecl> = self.program.buffers().iter().filter(|buffer| fits(buffer.kind)).collect();
        known.iter().find(|buffer| buffer.name == name).copied().ok_or_else(|| {
            let names: Vec<&str> = known.iter().map(|buffer| buffer.name.as_str()).collect();
            let mut message = format!("`{name}` is not {what} of the kernel");
            match nearest(name, &names) {
                Some(near) => message += &format!("; did you mean `{near}`?"),
                None if names.is_empty() => message += "; it has none",
                None => message += &format!("; it has {}", names.join(", ")),
            }
            Diagnostic::new(&codes::command::UNKNOWN_NAME, message)
        })
    }
}

/// Where a text has barriers, and operations that have to be reached together.
fn barriers(text: &str) -> Vec<(usize, usize)> {
    let mut places: Vec<(usize, usize)> = Vec::new();
    for word in ["workgroupBarrier", "storageBarrier", "workgroupUniformLoad", "subgroup"] {
        for (at, _) in text.match_indices(word) {
            let line = &text[text[..at].rfind('\n').map_or(0, |newline| newline + 1)..at];
            if line.contains("//") || line.contains("enable") || line.contains("@builtin") {
                continue;
            }
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            let end = text[at..].find(|c| !is_word(c)).map_or(text.len(), |length| at + length);
            let rest = text[end..].trim_start();
            if text[..at].ends_with(is_word) || !rest.starts_with('(') {
                continue;
            }
            // With its brackets, where there is nothing in them.
            places.push((at, if text[end..].starts_with("()") { end + 2 } else { end }));
        }
    }
    places.sort_unstable();
    places
}

/// The name that is at most two typing mistakes away.
pub(crate) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let distance = |other: &str| {
        let other: Vec<char> = other.chars().collect();
        let mut row: Vec<usize> = (0..=other.len()).collect();
        for (i, a) in name.chars().enumerate() {
            let mut diagonal = row[0];
            row[0] = i + 1;
            for (j, b) in other.iter().enumerate() {
                let replaced = diagonal + usize::from(a != *b);
                diagonal = row[j + 1];
                row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
            }
        }
        row[other.len()]
    };
    known.iter().map(|other| (distance(other), *other)).filter(|(d, _)| *d <= 2).min().map(|(_, other)| other)
}
