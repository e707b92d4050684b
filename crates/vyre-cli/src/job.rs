//! From arguments to a program, its inputs and its configuration.

use std::path::Path;
use std::time::Duration;

use vyre::ir::{BufferDecl, BufferKind, Count, Literal, TypeDef};
use vyre::specialization::SpecValue;
use vyre::{
    DataType, Diagnostic, DispatchConfig, Error, ImportOptions, Prepared, Program, SourceLocation, codes, launch,
};

use crate::args::{Inputs, Kernel};
use crate::data::{self, Array};
use crate::progress::Progress;
use crate::report::{Failure, split};

/// A program with the text it came from, so that declarations can be shown.
pub(crate) struct Source {
    pub(crate) program: Program,
    file: String,
    text: Option<String>,
}

/// Everything for a run.
pub(crate) struct Job {
    pub(crate) source: Source,
    pub(crate) inputs: Vec<Vec<u8>>,
    pub(crate) config: DispatchConfig,
    shapes: Vec<(String, Vec<usize>)>,
}

impl Source {
    pub(crate) fn read(path: &Path, entry: Option<&str>) -> Result<Source, Failure> {
        let file = path.display().to_string();
        let bytes = std::fs::read(path)
            .map_err(|error| Diagnostic::new(&codes::command::CANT_READ, format!("`{file}` can't be read: {error}")))?;
        let options = ImportOptions { entry: entry.map(str::to_owned), file: Some(file.clone()) };
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if ending.eq_ignore_ascii_case("spv") {
            let program = vyre::import_spirv(&bytes, &options).map_err(Error::from)?;
            return Ok(Source { program, file, text: None });
        }
        let text = String::from_utf8(bytes).map_err(|_| {
            Diagnostic::new(&codes::command::BAD_FILE, format!("`{file}` is not text"))
                .with_fix("Name WGSL text (.wgsl), SPIR-V (.spv) or vyre's text form (.vyre).")
        })?;
        let program = if ending.eq_ignore_ascii_case("vyre") {
            vyre::text::parse(&text).map_err(|mut problems| {
                for source in problems.iter_mut().filter_map(|problem| problem.source.as_mut()) {
                    source.file.get_or_insert_with(|| file.clone());
                }
                Error::from(problems)
            })?
        } else {
            vyre::import_wgsl(&text, &options).map_err(Error::from)?
        };
        Ok(Source { program, file, text: Some(text) })
    }

    /// Shows where the kernel declares a name.
    fn declaration(&self, diagnostic: Diagnostic, name: &str) -> Diagnostic {
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

    fn buffer(&self, name: &str, fits: impl Fn(BufferKind) -> bool, what: &str) -> Result<&BufferDecl, Diagnostic> {
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

impl Job {
    pub(crate) fn new(kernel: &Kernel, inputs: &Inputs) -> Result<Job, Failure> {
        let source = Source::read(&kernel.kernel, kernel.entry.as_deref())?;
        source.program.validate().map_err(|problems| Failure::Diagnostics(problems.to_vec()))?;
        let mut config = DispatchConfig::default();
        config.workgroup_override = kernel.workgroup;
        config.grid_override = kernel.grid;
        config.timeout = inputs.timeout.map(Duration::from_secs_f64);
        config.label = Some(source.program.name().to_owned());
        let mut problems = Vec::new();
        for text in &kernel.set {
            match constant(&source, "--set", text) {
                Ok((name, value)) => drop(config.specialization.insert(name, value)),
                Err(problem) => problems.push(problem),
            }
        }
        let mut shapes = Vec::new();
        for text in &inputs.shapes {
            match shape(&source, text) {
                Ok((name, shape)) => {
                    let elements = shape.iter().product::<usize>() as u64;
                    let per_element = lanes(&source.program, &name);
                    config.output_elements.insert(name.clone(), elements / per_element.max(1));
                    shapes.push((name, shape));
                }
                Err(problem) => problems.push(problem),
            }
        }
        let mut given = Vec::new();
        for text in &inputs.inputs {
            match split("--in", text).and_then(|(name, from)| {
                source.buffer(name, BufferKind::is_input, "an input").map(|buffer| (buffer, from))
            }) {
                Ok(pair) => given.push(pair),
                Err(problem) => problems.push(problem),
            }
        }
        let mut bytes = Vec::new();
        let reading = Progress::new("reading inputs", None);
        for index in source.program.binding_order() {
            let buffer = &source.program.buffers()[index];
            if !buffer.kind.is_input() {
                continue;
            }
            let from = given.iter().rev().find(|(named, _)| named.name == buffer.name).map(|(_, from)| *from);
            match input(&source, buffer, from, &mut shapes) {
                Ok(input) => bytes.push(input),
                Err(problem) => problems.push(problem),
            }
        }
        drop(reading);
        if !problems.is_empty() {
            return Err(Failure::Diagnostics(problems));
        }
        inherit_shape(&source.program, &mut shapes);
        let mut job = Job { source, inputs: bytes, config, shapes };
        job.grid_from_shape()?;
        Ok(job)
    }

    /// For commands that look at a kernel and run nothing.
    pub(crate) fn without_inputs(kernel: &Kernel) -> Result<Job, Failure> {
        let source = Source::read(&kernel.kernel, kernel.entry.as_deref())?;
        let mut config = DispatchConfig::default();
        config.workgroup_override = kernel.workgroup;
        for text in &kernel.set {
            let (name, value) = constant(&source, "--set", text)?;
            config.specialization.insert(name, value);
        }
        Ok(Job { source, inputs: Vec::new(), config, shapes: Vec::new() })
    }

    /// A kernel with a two-dimensional workgroup and a first result of known shape covers that shape.
    fn grid_from_shape(&mut self) -> Result<(), Diagnostic> {
        let program = &self.source.program;
        if self.config.grid_override.is_some() || program.domain().is_some() {
            return Ok(());
        }
        let size = self.workgroup_size()?;
        if size[1] == 1 && size[2] == 1 {
            return Ok(());
        }
        let first = program
            .binding_order()
            .into_iter()
            .map(|index| &program.buffers()[index])
            .filter(|buffer| buffer.kind.is_result())
            .min_by_key(|buffer| buffer.kind != BufferKind::Output);
        let Some(shape) = first.and_then(|first| self.shape_of(first.name.as_str())) else { return Ok(()) };
        // Rows are y and columns x, as pictures are stored.
        let extent = match shape[..] {
            [height, width] | [height, width, 1..=4] => [width, height, 1],
            [depth, height, width] => [width, height, depth],
            _ => return Ok(()),
        };
        let mut grid = [0; 3];
        for axis in 0..3 {
            grid[axis] = u32::try_from(extent[axis].div_ceil(size[axis].max(1) as usize)).unwrap_or(u32::MAX);
        }
        self.config.grid_override = Some(grid);
        Ok(())
    }

    /// The workgroup size of the kernel, or the one that was asked for.
    pub(crate) fn workgroup_size(&self) -> Result<[u32; 3], Diagnostic> {
        let program = &self.source.program;
        match self.config.workgroup_override {
            Some(size) => Ok(size),
            None => launch::workgroup_size(program, Some(&self.config.specialization.resolve(program)?)),
        }
    }

    fn shape_of(&self, name: &str) -> Option<&[usize]> {
        self.shapes.iter().find(|(known, _)| known == name).map(|(_, shape)| shape.as_slice())
    }

    /// Gives a prepared program the inputs.
    pub(crate) fn fill(&self, prepared: &Prepared) -> Result<(), Error> {
        let program = &self.source.program;
        let buffers = program.binding_order().into_iter().map(|index| &program.buffers()[index]);
        for (buffer, bytes) in buffers.filter(|buffer| buffer.kind.is_input()).zip(&self.inputs) {
            prepared.set(buffer.name.as_str(), bytes)?;
        }
        Ok(())
    }

    pub(crate) fn inputs(&self) -> Vec<&[u8]> {
        self.inputs.iter().map(Vec::as_slice).collect()
    }

    /// Names the results and gives them their types and shapes.
    pub(crate) fn results(&self, results: Vec<Vec<u8>>) -> Vec<(String, Array)> {
        let program = &self.source.program;
        let order = program.binding_order();
        let declared = order.iter().map(|&index| &program.buffers()[index]).filter(|buffer| buffer.kind.is_result());
        let named = |(buffer, bytes): (&BufferDecl, Vec<u8>)| {
            let (ty, lanes, bytes) = match buffer.ty.as_vector() {
                Some((element, 3)) => (element.clone(), 3, unpad(&bytes, &element)),
                Some((element, lanes)) => (element, lanes as usize, bytes),
                None if matches!(buffer.ty, DataType::Handle(_)) => (DataType::U8, 1, bytes),
                None => (buffer.ty.clone(), 1, bytes),
            };
            let mut array = Array { ty, shape: Vec::new(), bytes };
            let count = array.len();
            array.shape = match self.shape_of(buffer.name.as_str()) {
                Some(shape) if shape.iter().product::<usize>() == count => shape.to_vec(),
                _ if lanes > 1 => vec![count / lanes, lanes],
                _ => vec![count],
            };
            (buffer.name.to_string(), array)
        };
        declared.zip(results).map(named).collect()
    }

    /// A result's name from `--out NAME=FILE`.
    pub(crate) fn result_name<'a>(&self, text: &'a str) -> Result<(&'a str, &'a Path), Diagnostic> {
        let (name, file) = split("--out", text)?;
        self.source.buffer(name, BufferKind::is_result, "a result")?;
        Ok((name, Path::new(file)))
    }
}

/// `NAME=VALUE`, in the type that the kernel declares.
pub(crate) fn constant(source: &Source, option: &str, text: &str) -> Result<(String, SpecValue), Diagnostic> {
    let (name, value) = split(option, text)?;
    let declared = source.program.constants();
    let Some(constant) = declared.iter().find(|constant| constant.name == name) else {
        let names: Vec<&str> = declared.iter().map(|constant| constant.name.as_str()).collect();
        let known = match nearest(name, &names) {
            Some(near) => format!("did you mean `{near}`?"),
            None if names.is_empty() => "it has none".to_owned(),
            None => format!("it has {}", names.join(", ")),
        };
        let message = format!("`{name}` is not a specialization constant of the kernel; {known}");
        return Err(Diagnostic::new(&codes::command::UNKNOWN_NAME, message));
    };
    let parsed = match constant.default {
        Literal::Bool(_) => value.parse().ok().map(SpecValue::Bool),
        Literal::U32(_) => value.parse().ok().map(SpecValue::U32),
        Literal::I32(_) => value.parse().ok().map(SpecValue::I32),
        _ => value.parse().ok().map(SpecValue::F32),
    };
    let parsed = parsed.ok_or_else(|| {
        let message = format!("`{value}` is not a value of {}, the type of `{name}`", constant.default.data_type());
        source.declaration(Diagnostic::new(&codes::command::WRONG_TYPE, message), name)
    })?;
    Ok((name.to_owned(), parsed))
}

/// `--shape NAME=HxW`.
fn shape(source: &Source, text: &str) -> Result<(String, Vec<usize>), Diagnostic> {
    let (name, shape) = split("--shape", text)?;
    source.buffer(name, |kind| kind.is_result() || kind.is_input(), "a buffer")?;
    let axes: Option<Vec<usize>> = shape.split(['x', ',']).map(|axis| axis.trim().parse().ok()).collect();
    let fits = |axes: &Vec<usize>| {
        axes.iter().try_fold(1usize, |product, &axis| product.checked_mul(axis)).is_some_and(|n| n <= 1 << 40)
    };
    match axes.filter(fits) {
        Some(axes) => Ok((name.to_owned(), axes)),
        None => Err(Diagnostic::new(&codes::command::BAD_ARGUMENT, format!("`{shape}` is not a shape"))
            .with_fix("Write N, HxW or HxWxC, as in --shape out=512x512.")),
    }
}

/// A result whose length is open has that of the first input whose length is open, and then it has its shape, too.
fn inherit_shape(program: &Program, shapes: &mut Vec<(String, Vec<usize>)>) {
    let order = program.binding_order();
    let open = || order.iter().map(|&index| &program.buffers()[index]).filter(|buffer| buffer.count == Count::Runtime);
    let first = open().find(|buffer| buffer.kind.is_input() && buffer.kind != BufferKind::Uniform);
    let Some(first) = first else { return };
    let Some((_, shape)) = shapes.iter().find(|(known, _)| first.name.as_str() == known).cloned() else { return };
    for buffer in open().filter(|buffer| !buffer.kind.is_input() && buffer.ty == first.ty) {
        if shapes.iter().all(|(known, _)| buffer.name.as_str() != known) {
            shapes.push((buffer.name.to_string(), shape.clone()));
        }
    }
}

fn lanes(program: &Program, name: &str) -> u64 {
    program.buffer(name).and_then(|buffer| buffer.ty.as_vector()).map_or(1, |(_, lanes)| u64::from(lanes))
}

/// The bytes of one input.
fn input(
    source: &Source,
    buffer: &BufferDecl,
    from: Option<&str>,
    shapes: &mut Vec<(String, Vec<usize>)>,
) -> Result<Vec<u8>, Diagnostic> {
    let name = buffer.name.as_str();
    let told = |diagnostic| source.declaration(diagnostic, name);
    let Some(from) = from else {
        let example = match &buffer.ty {
            DataType::Handle(_) => format!("--in {name}=1,2,3"),
            ty => format!("--in {name}=random:{}:1000", ty.as_vector().map_or(ty.clone(), |(element, _)| element)),
        };
        let message = format!("input `{name}` has no contents");
        return Err(told(
            Diagnostic::new(&codes::command::MISSING_INPUT, message)
                .with_fix(format!("Give them, for example `{example}`.")),
        ));
    };
    if let DataType::Handle(_) = buffer.ty {
        return structure(source, buffer, from).map_err(told);
    }
    let (element, lanes) = buffer.ty.as_vector().unwrap_or((buffer.ty.clone(), 1));
    let array = match data::generate(from, &element) {
        Some(made) => made?,
        None => data::read(Path::new(from), &element)?,
    };
    if array.ty != element && !is_storage(&array.ty, &element) {
        let message = format!("input `{name}` holds {}, but `{from}` holds {}", element, array.ty);
        return Err(told(Diagnostic::new(&codes::command::WRONG_TYPE, message)));
    }
    if !array.len().is_multiple_of(lanes as usize) {
        let message = format!("input `{name}` is made of vectors of {lanes}, but `{from}` has {} numbers", array.len());
        return Err(told(Diagnostic::new(&codes::command::WRONG_LENGTH, message)));
    }
    if let Count::Fixed(count) = buffer.count {
        let wanted = count as usize * lanes as usize;
        if array.len() != wanted {
            let message = format!("input `{name}` has {wanted} numbers, but `{from}` has {}", array.len());
            return Err(told(Diagnostic::new(&codes::command::WRONG_LENGTH, message)));
        }
    }
    if array.shape.len() > 1 && !shapes.iter().any(|(known, _)| known == name) {
        shapes.push((name.to_owned(), array.shape.clone()));
    }
    Ok(if lanes == 3 { pad(&array.bytes, &element) } else { array.bytes })
}

/// A file may hold the bytes of a type that its format lacks.
fn is_storage(held: &DataType, wanted: &DataType) -> bool {
    use DataType::{BF16, F8E4M3, F8E5M2, FP4, I4, NF4, U8, U16};
    match wanted {
        F8E4M3 | F8E5M2 | I4 | FP4 | NF4 => *held == U8,
        BF16 => *held == U16,
        _ => false,
    }
}

/// Vectors of three are spaced as those of four.
fn pad(bytes: &[u8], element: &DataType) -> Vec<u8> {
    let size = element.bits().unwrap_or(32) as usize / 8;
    let padding = vec![0; size];
    bytes.chunks(3 * size).flat_map(|vector| vector.iter().chain(&padding).copied()).collect()
}

fn unpad(bytes: &[u8], element: &DataType) -> Vec<u8> {
    let size = element.bits().unwrap_or(32) as usize / 8;
    bytes.chunks(4 * size).flat_map(|vector| vector.iter().take(3 * size).copied()).collect()
}

/// The bytes of a struct, or of several, from numbers for its members in order, or from a file of its bytes.
fn structure(source: &Source, buffer: &BufferDecl, from: &str) -> Result<Vec<u8>, Diagnostic> {
    let mut places = Vec::new();
    let size = match flatten(source.program.types(), &buffer.ty, 0, &mut places) {
        Some(size)
            if from.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'))
                && !Path::new(from).exists() =>
        {
            size
        }
        _ => return Ok(data::read(Path::new(from), &DataType::U8)?.bytes),
    };
    let items: Vec<&str> = from.split(',').map(str::trim).collect();
    if places.is_empty() || !items.len().is_multiple_of(places.len()) {
        let message =
            format!("a struct of `{}` has {} numbers, but {} were given", buffer.name, places.len(), items.len());
        return Err(Diagnostic::new(&codes::command::WRONG_LENGTH, message));
    }
    let mut bytes = vec![0; size as usize * (items.len() / places.len())];
    for (index, item) in items.iter().enumerate() {
        let (offset, ty) = &places[index % places.len()];
        let at = (index / places.len()) * size as usize + *offset as usize;
        let mut element = Vec::new();
        let fits = item.parse().map_err(|()| format!("`{item}` is not a number"));
        fits.and_then(|number| data::push_number(&mut element, number, ty))
            .map_err(|problem| Diagnostic::new(&codes::command::WRONG_TYPE, format!("`{}`: {problem}", buffer.name)))?;
        bytes[at..at + element.len()].copy_from_slice(&element);
    }
    Ok(bytes)
}

/// The scalars of a type with their offsets, and its size; `None` where the size is open or the parts are too many to list.
fn flatten(types: &[TypeDef], ty: &DataType, offset: u32, out: &mut Vec<(u32, DataType)>) -> Option<u32> {
    const MOST: usize = 4096;
    if out.len() > MOST {
        return None;
    }
    if let DataType::Handle(id) = ty {
        return match types.get(id.0 as usize)? {
            TypeDef::Struct { members, size, .. } => {
                for member in members {
                    flatten(types, &member.ty, offset + member.offset, out)?;
                }
                Some(*size)
            }
            TypeDef::Array { element, count: Count::Fixed(count), stride } => {
                for index in 0..*count {
                    flatten(types, element, offset + index * stride, out)?;
                }
                count.checked_mul(*stride)
            }
            TypeDef::Array { .. } => None,
        };
    }
    let (element, lanes) = ty.as_vector().unwrap_or((ty.clone(), 1));
    let size = element.bits()? / 8;
    for lane in 0..lanes {
        out.push((offset + lane * size, element.clone()));
    }
    Some(size * lanes)
}
