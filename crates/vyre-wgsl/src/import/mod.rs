//! From source text or SPIR-V words to a program: guard, naga, translation.

mod expr;
mod function;
mod guard;
mod math;
mod matrix;
mod meaning;
mod module;
mod names;
mod recover;
mod uses;
mod words;

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{Module, ShaderStage, Span};
use vyre_foundation::ir::Program;
use vyre_spec::{Diagnostic, SourceLocation, codes};

use guard::Depth;
use module::Importer;

/// What to import and how to speak about it.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// Name of the entry point; may be left out where the module has only one compute entry point.
    pub entry: Option<String>,
    /// File name for diagnostics.
    pub file: Option<String>,
    /// Values for overrides that have no default; they become their defaults.
    pub overrides: BTreeMap<String, f64>,
}

/// naga's front ends and the translation recurse; the guard bounds how deep, and this is more than that takes. A thread of its
/// own costs about as much as the import of a small kernel, so only deep sources get one.
const STACK_BYTES: usize = 256 << 20;

/// Imports a compute kernel from WGSL text. All problems that can be found are reported together.
pub fn import(source: &str, options: &ImportOptions) -> Result<Program, Vec<Diagnostic>> {
    with_module(source, options.file.as_deref(), |module, info, text| translate(module, info, text, options))
}

/// Imports every compute kernel of a WGSL text, in its order; there is at least one. All problems that can be found are reported together.
pub fn import_all(source: &str, file: Option<&str>) -> Result<Vec<Program>, Vec<Diagnostic>> {
    with_module(source, file, |module, info, text| {
        let compute = module.entry_points.iter().enumerate().filter(|(_, point)| point.stage == ShaderStage::Compute);
        let (mut programs, mut problems) = (Vec::new(), Vec::new());
        for (entry, _) in compute {
            match Importer::new(module, info, *text, &BTreeMap::new()).run(entry) {
                Ok(program) => programs.push(program),
                // What kernels share is wrong once.
                Err(found) => found.into_iter().for_each(|problem| {
                    if !problems.contains(&problem) {
                        problems.push(problem);
                    }
                }),
            }
        }
        match (problems.is_empty(), programs.is_empty()) {
            (false, _) => Err(problems),
            (true, true) => Err(vec![no_entry()]),
            (true, false) => Ok(programs),
        }
    })
}

/// Does something with a WGSL text that naga has understood.
fn with_module<T: Send>(
    source: &str,
    file: Option<&str>,
    work: impl Fn(&Module, &ModuleInfo, &SourceText<'_>) -> Result<T, Vec<Diagnostic>> + Sync,
) -> Result<T, Vec<Diagnostic>> {
    let text = SourceText { text: Some(source), file };
    let depth = guard::check_text(&text, source).map_err(|problem| vec![problem])?;
    let work = || {
        let (module, info) = front(source, &text).map_err(|mut problems| match problems.pop() {
            Some(first) => recover::all(source, first, |rest| front(rest, &text).map(drop)),
            None => Vec::new(),
        })?;
        work(&module, &info, &text)
    };
    match depth {
        Depth::Shallow => work(),
        Depth::Deep => on_big_stack(&work),
    }
}

/// naga's parser and validator over WGSL; the one problem that stops them comes with its place.
pub(crate) fn front(source: &str, text: &SourceText<'_>) -> Result<(Module, ModuleInfo), Vec<recover::Problem>> {
    let unplaced = |problems: Vec<Diagnostic>| problems.into_iter().map(|problem| (problem, None)).collect::<Vec<_>>();
    let module = catch(|| naga::front::wgsl::parse_str(&without_subgroups(source)))
        .map_err(unplaced)?
        .map_err(|error| vec![parse_problem(text, &error)])?;
    let info = validate(&module, text).map_err(unplaced)?.map_err(|problem| vec![problem])?;
    Ok((module, info))
}

/// Problems of naga itself are outside, those of the module inside.
fn validate(module: &Module, text: &SourceText<'_>) -> Result<Result<ModuleInfo, recover::Problem>, Vec<Diagnostic>> {
    catch(|| {
        let mut validator = Validator::new(ValidationFlags::all(), Capabilities::all());
        validator.validate(module).map_err(|error| invalid_problem(text, &error))
    })
}

/// Imports a compute kernel from a SPIR-V binary.
pub fn import_spirv(bytes: &[u8], options: &ImportOptions) -> Result<Program, Vec<Diagnostic>> {
    let text = SourceText { text: None, file: options.file.as_deref() };
    guard::check_binary(bytes).map_err(|problem| vec![problem])?;
    on_big_stack(&|| {
        let module = parse_spirv(bytes)?;
        let info = validate(&module, &text)?.map_err(|(problem, _)| vec![problem])?;
        translate(&module, &info, &text, options)
    })
}

/// naga has subgroup operations without the directive that enables them, which it does not know. It becomes blanks, so that
/// places in the source stay where they are.
fn without_subgroups(source: &str) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(source);
    for (directive, rest) in [
        ("enable subgroups;", "                 "),
        ("enable f16, subgroups;", "enable f16;           "),
        ("enable subgroups, f16;", "enable f16;           "),
    ] {
        if text.contains(directive) {
            text = Cow::Owned(text.replace(directive, rest));
        }
    }
    text
}

/// The text that places refer to; SPIR-V has none.
#[derive(Clone, Copy, Default)]
pub(crate) struct SourceText<'a> {
    text: Option<&'a str>,
    file: Option<&'a str>,
}

impl SourceText<'_> {
    /// Adds the source line of a span to a diagnostic.
    pub(crate) fn mark(&self, diagnostic: Diagnostic, span: Span) -> Diagnostic {
        match (self.text, span.to_range()) {
            (Some(text), Some(range)) => self.mark_range(diagnostic, text, range.start, range.end),
            _ => diagnostic,
        }
    }

    fn mark_range(&self, diagnostic: Diagnostic, text: &str, start: usize, end: usize) -> Diagnostic {
        diagnostic.with_source(SourceLocation::in_text(self.file, text, start, end))
    }
}

pub(crate) fn on_big_stack<T: Send>(
    work: &(dyn Fn() -> Result<T, Vec<Diagnostic>> + Sync),
) -> Result<T, Vec<Diagnostic>> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("vyre-wgsl".into()).stack_size(STACK_BYTES);
        match thread.spawn_scoped(scope, work) {
            Ok(handle) => handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(error) => Err(vec![Diagnostic::new(
                &codes::wgsl::WGSL_FRONT_END,
                format!("no thread for the import could be started: {error}"),
            )]),
        }
    })
}

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
}

/// A panic of this thread would become a diagnostic now, so that a program's panic hook need not print it.
pub fn catches_panics() -> bool {
    CATCHING.get()
}

/// Runs a part of naga. A panic there is a bug of naga's that hostile input may reach, so it becomes a diagnostic.
pub(crate) fn catch<T>(work: impl FnOnce() -> T) -> Result<T, Vec<Diagnostic>> {
    CATCHING.set(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    CATCHING.set(false);
    done.map_err(|panic| {
        let reason = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no reason given");
        vec![Diagnostic::new(&codes::wgsl::WGSL_FRONT_END, format!("the front end stopped: {}", one_line(reason)))]
    })
}

pub(crate) fn one_line(text: &str) -> String {
    const LONGEST: usize = 600;
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.len() > LONGEST {
        let cut = (0..=LONGEST).rev().find(|&at| line.is_char_boundary(at)).unwrap_or(0);
        line.truncate(cut);
        line.push('…');
    }
    line
}

fn parse_problem(text: &SourceText<'_>, error: &naga::front::wgsl::ParseError) -> recover::Problem {
    let label = error.labels().next();
    let said = label.as_ref().map_or(String::new(), |(_, label)| one_line(label));
    let message = words::parsed(&one_line(error.message()), &said);
    let notes = one_line(&words::suggested(error.notes()));
    let cure = words::cure(&message).filter(|_| notes.is_empty());
    let mut diagnostic = Diagnostic::new(&codes::wgsl::WGSL_PARSE, message);
    if !notes.is_empty() {
        diagnostic = diagnostic.with_fix(notes);
    } else if let Some(cure) = cure {
        diagnostic = diagnostic.with_fix(cure);
    }
    let span = label.map_or(Span::UNDEFINED, |(span, _)| span);
    (text.mark(diagnostic, span), span.to_range())
}

fn invalid_problem(text: &SourceText<'_>, error: &naga::WithSpan<naga::valid::ValidationError>) -> recover::Problem {
    let mut message = error.as_inner().to_string();
    let mut cause = std::error::Error::source(error.as_inner());
    while let Some(inner) = cause {
        message = format!("{message}: {inner}");
        cause = inner.source();
    }
    // The most exact place is the smallest one that is not the whole function.
    let place = error
        .spans()
        .filter(|(span, _)| span.is_defined())
        .min_by_key(|(span, _)| span.to_range().map_or(usize::MAX, |range| range.end.saturating_sub(range.start)));
    let diagnostic = Diagnostic::new(&codes::wgsl::WGSL_INVALID, one_line(&words::plain(&message)));
    let span = place.map_or(Span::UNDEFINED, |(span, _)| *span);
    (text.mark(diagnostic, span), span.to_range())
}

fn translate(
    module: &Module,
    info: &ModuleInfo,
    text: &SourceText<'_>,
    options: &ImportOptions,
) -> Result<Program, Vec<Diagnostic>> {
    let entry = find_entry(module, options).map_err(|problem| vec![problem])?;
    Importer::new(module, info, *text, &options.overrides).run(entry)
}

/// The compute entry points of a module, in order.
fn names_of(module: &Module) -> Vec<String> {
    let compute = module.entry_points.iter().filter(|entry| entry.stage == ShaderStage::Compute);
    compute.map(|entry| entry.name.clone()).collect()
}

/// The compute entry points of WGSL text that naga understands, by name and in order.
pub fn entry_points(source: &str, options: &ImportOptions) -> Result<Vec<String>, Vec<Diagnostic>> {
    let text = SourceText { text: Some(source), file: options.file.as_deref() };
    let depth = guard::check_text(&text, source).map_err(|problem| vec![problem])?;
    let work = || match catch(|| naga::front::wgsl::parse_str(&without_subgroups(source)))? {
        Ok(module) => Ok(names_of(&module)),
        Err(error) => Err(vec![parse_problem(&text, &error).0]),
    };
    match depth {
        Depth::Shallow => work(),
        Depth::Deep => on_big_stack(&work),
    }
}

/// The compute entry points of a SPIR-V binary, by name and in order.
pub fn spirv_entry_points(bytes: &[u8]) -> Result<Vec<String>, Vec<Diagnostic>> {
    guard::check_binary(bytes).map_err(|problem| vec![problem])?;
    on_big_stack(&|| Ok(names_of(&parse_spirv(bytes)?)))
}

fn parse_spirv(bytes: &[u8]) -> Result<Module, Vec<Diagnostic>> {
    let spv = naga::front::spv::Options { adjust_coordinate_space: false, ..Default::default() };
    let words: Vec<u32> =
        bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect();
    let words = meaning::explicit(&words);
    let parsed = catch(|| naga::front::spv::Frontend::new(words.into_iter(), &spv).parse())?;
    let mut module =
        parsed.map_err(|error| vec![Diagnostic::new(&codes::wgsl::SPIRV_PARSE, one_line(&error.to_string()))])?;
    meaning::of_lanes(&mut module);
    Ok(module)
}

fn find_entry(module: &Module, options: &ImportOptions) -> Result<usize, Diagnostic> {
    let compute: Vec<usize> =
        (0..module.entry_points.len()).filter(|&i| module.entry_points[i].stage == ShaderStage::Compute).collect();
    let list = || {
        let names: Vec<_> = compute.iter().take(20).map(|&i| module.entry_points[i].name.as_str()).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    match (&options.entry, compute.as_slice()) {
        (Some(name), _) => {
            if let Some(&found) = compute.iter().find(|&&i| module.entry_points[i].name == *name) {
                return Ok(found);
            }
            let other = module.entry_points.iter().find(|entry| entry.name == *name);
            let message = match other {
                Some(entry) => format!("`{name}` is a {:?} entry point, not a compute one", entry.stage),
                None => format!("there is no entry point `{name}`"),
            };
            Err(Diagnostic::new(&codes::wgsl::WGSL_ENTRY, format!("{message}; compute entry points: {}", list())))
        }
        (None, [only]) => Ok(*only),
        (None, []) => Err(no_entry()),
        (None, _) => Err(Diagnostic::new(
            &codes::wgsl::WGSL_MANY_ENTRIES,
            format!("the module has {} compute entry points: {}", compute.len(), list()),
        )),
    }
}

fn no_entry() -> Diagnostic {
    Diagnostic::new(&codes::wgsl::WGSL_ENTRY, "the module has no compute entry point")
        .with_fix("Add a function with `@compute @workgroup_size(…)`.")
}
