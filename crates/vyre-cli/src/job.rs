//! From arguments to a program, its inputs and its configuration.

use std::time::Duration;

use vyre::ir::{BufferDecl, BufferKind, Count, Literal, Name};
use vyre::specialization::SpecValue;
use vyre::{DataType, Diagnostic, DispatchConfig, Error, Prepared, Program, codes, launch};

use crate::args::{Inputs, Kernel, Launch};
use crate::data::{self, Fit, Number, Place, Value};
use crate::inputs::{Given, given, input};
use crate::memory;
use crate::progress::Progress;
use crate::report::{Failure, repeated, split};
use crate::source::{Source, nearest};

/// Everything for a run.
pub(crate) struct Job {
    pub(crate) source: Source,
    pub(crate) inputs: Vec<Vec<u8>>,
    pub(crate) config: DispatchConfig,
    shapes: Vec<(String, Vec<usize>)>,
}

impl Job {
    pub(crate) fn new(kernel: &Kernel, inputs: &Inputs) -> Result<Job, Failure> {
        let source = Source::of(kernel)?;
        source.validate()?;
        let mut problems = Vec::new();
        let mut config = config(&source, &kernel.launch, &mut problems);
        config.timeout = inputs.timeout.map(Duration::from_secs_f64);
        let mut shapes: Vec<(String, Vec<usize>)> = Vec::new();
        for text in &inputs.shapes {
            match shape(&source, text) {
                Ok((name, _)) if shapes.iter().any(|(known, _)| *known == name) => {
                    problems.push(repeated("--shape", &name));
                }
                Ok((name, shape)) => {
                    let elements = shape.iter().product::<usize>() as u64;
                    let per_element = lanes(&source.program, &name);
                    config.output_elements.insert(name.clone(), elements / per_element.max(1));
                    shapes.push((name, shape));
                }
                Err(problem) => problems.push(problem),
            }
        }
        let given = given(&source, inputs, &mut problems);
        let mut bytes = Vec::new();
        let reading = Progress::new("reading inputs", None);
        for index in source.program.binding_order() {
            let buffer = &source.program.buffers()[index];
            if !buffer.kind.is_input() {
                continue;
            }
            let nothing = Given::default();
            let given =
                given.iter().find(|(name, _)| buffer.name.as_str() == name).map_or(&nothing, |(_, given)| given);
            match input(&source, buffer, given, inputs.cast, &mut shapes) {
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
        job.check_lengths()?;
        job.check_memory()?;
        job.domain_from_shape()?;
        Ok(job)
    }

    /// For commands that look at a kernel and run nothing.
    pub(crate) fn without_inputs(kernel: &Kernel) -> Result<Job, Failure> {
        let source = Source::of(kernel)?;
        let mut problems = Vec::new();
        let config = config(&source, &kernel.launch, &mut problems);
        if !problems.is_empty() {
            return Err(Failure::Diagnostics(problems));
        }
        Ok(Job { source, inputs: Vec::new(), config, shapes: Vec::new() })
    }

    /// Where the length of a result is open and nothing tells it, `--shape` does.
    fn check_lengths(&self) -> Result<(), Diagnostic> {
        let program = &self.source.program;
        let buffers: Vec<&BufferDecl> = program.binding_order().into_iter().map(|at| &program.buffers()[at]).collect();
        let is_open = |buffer: &&BufferDecl| buffer.count == Count::Runtime && buffer.kind != BufferKind::Uniform;
        if buffers.iter().copied().filter(|buffer| buffer.kind.is_input()).any(|buffer| is_open(&buffer)) {
            return Ok(());
        }
        let unknown = |buffer: &&BufferDecl| {
            is_open(buffer)
                && !buffer.kind.is_input()
                && !self.config.output_elements.contains_key(buffer.name.as_str())
        };
        let Some(buffer) = buffers.into_iter().find(unknown) else { return Ok(()) };
        let example = if self.workgroup_size()?[1] > 1 { "600x900" } else { "1000" };
        let message =
            format!("how long is the result `{}`? The kernel leaves it open, and no input tells", buffer.name);
        let problem = Diagnostic::new(&codes::command::WRONG_LENGTH, message)
            .with_fix(format!("Give its shape: --shape {}={example}.", buffer.name));
        Err(self.source.declaration(problem, buffer.name.as_str()))
    }

    /// What a run takes is estimated first: inputs and results are in the host's memory twice, once as the device's.
    fn check_memory(&self) -> Result<(), Diagnostic> {
        let sizes: Vec<u64> = self.inputs.iter().map(|input| input.len() as u64).collect();
        let elements: Vec<(Name, u64)> =
            self.config.output_elements.iter().map(|(name, elements)| (Name::from(name), *elements)).collect();
        let specialization = self.config.specialization.resolve(&self.source.program)?;
        let request = launch::LaunchRequest {
            input_bytes: &sizes,
            output_elements: &elements,
            specialization: Some(&specialization),
            workgroup: self.config.workgroup_override,
            grid: Some([1; 3]),
            ..launch::LaunchRequest::default()
        };
        let plan = launch::plan(&self.source.program, &request)?;
        let inputs: u64 = sizes.iter().sum();
        let buffers: u64 = plan.buffer_bytes.iter().fold(0, |sum, &bytes| sum.saturating_add(bytes));
        // The inputs are there already.
        let needed = buffers.saturating_mul(2).saturating_sub(inputs);
        memory::room_for(needed).map_err(|problem| {
            Diagnostic::new(&codes::command::NO_ROOM, format!("the kernel's buffers are too large: {problem}"))
        })
    }

    /// Where the kernel leaves open how many invocations there are, and its workgroup has two or three dimensions, a first result of known
    /// shape tells.
    fn domain_from_shape(&mut self) -> Result<(), Diagnostic> {
        let program = &self.source.program;
        // A program that is not valid is told of when it is to run.
        let Ok(valid) = program.validate() else { return Ok(()) };
        let planned = vyre::plan(&valid, &self.inputs(), &self.config);
        if !planned.is_err_and(|problem| problem.code == &codes::ir::LAUNCH_ASK) {
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
        self.config.domain_override = Some(extent.map(|extent| extent as u64));
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
    pub(crate) fn results(&self, results: Vec<Vec<u8>>) -> Vec<(String, Value)> {
        let program = &self.source.program;
        let order = program.binding_order();
        let declared = order.iter().map(|&index| &program.buffers()[index]).filter(|buffer| buffer.kind.is_result());
        let named = |(buffer, bytes): (&BufferDecl, Vec<u8>)| {
            let name = buffer.name.to_string();
            let value = Value::new(program.types(), &buffer.ty, bytes, self.shape_of(&name));
            (name, value)
        };
        declared.zip(results).map(named).collect()
    }

    /// A result's name from `--out NAME=FILE`.
    pub(crate) fn result_name<'a>(&self, text: &'a str) -> Result<(&'a str, Place<'a>), Diagnostic> {
        let (name, file) = split("--out", text)?;
        self.source.buffer(name, BufferKind::is_result, "a result")?;
        let place = Place::new(file);
        place.output_format()?;
        Ok((name, place))
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
    let number = value.parse::<Number>().map_err(|()| format!("`{value}` is not a number"));
    let bits = |ty: &DataType, number: Number| number.bits(ty, Fit::Nearest);
    let parsed = number.and_then(|number| {
        Ok(match constant.default {
            Literal::Bool(_) => SpecValue::Bool(bits(&DataType::Bool, number)? != 0),
            Literal::U32(_) => SpecValue::U32(bits(&DataType::U32, number)? as u32),
            Literal::I32(_) => SpecValue::I32(bits(&DataType::I32, number)? as i32),
            _ => SpecValue::F32(f32::from_bits(bits(&DataType::F32, number)? as u32)),
        })
    });
    let parsed = parsed.map_err(|why| {
        let ty = constant.default.data_type();
        let message = format!("`{option} {text}`: {why}, and `{name}` is {ty}");
        let example = match constant.default {
            Literal::Bool(_) => "true",
            Literal::U32(_) | Literal::I32(_) => "64",
            _ => "0.5",
        };
        let problem = Diagnostic::new(&codes::command::WRONG_TYPE, message)
            .with_fix(format!("Give a value of {ty}, as in {option} {name}={example}."));
        source.declaration(problem, name)
    })?;
    Ok((name.to_owned(), parsed))
}

/// The launch that was asked for.
fn config(source: &Source, launch: &Launch, problems: &mut Vec<Diagnostic>) -> DispatchConfig {
    let mut config = DispatchConfig::default();
    config.workgroup_override = launch.workgroup;
    config.grid_override = launch.grid;
    config.domain_override = launch.domain.map(|domain| domain.map(u64::from));
    config.label = Some(source.program.name().to_owned());
    for text in &launch.set {
        match constant(source, "--set", text) {
            Ok((name, value)) => {
                if config.specialization.insert(name.clone(), value).is_some() {
                    problems.push(repeated("--set", &name));
                }
            }
            Err(problem) => problems.push(problem),
        }
    }
    config
}

/// `--shape NAME=HxW`.
fn shape(source: &Source, text: &str) -> Result<(String, Vec<usize>), Diagnostic> {
    let (name, shape) = split("--shape", text)?;
    source.buffer(name, |kind| kind.is_result() || kind.is_input(), "a buffer")?;
    let axes: Option<Vec<usize>> = shape.split(['x', ',']).map(|axis| data::size(axis.trim()).ok()).collect();
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
