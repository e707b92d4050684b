//! From arguments to a program, its inputs and its configuration.

use std::time::Duration;

use vyre::ir::{BufferDecl, BufferKind, Count, Literal, Name};
use vyre::specialization::SpecValue;
use vyre::{DataType, Diagnostic, DispatchConfig, Error, Prepared, Program, Severity, codes, launch};

use crate::args::{Inputs, Kernel, Launch};
use crate::data::{self, Fit, Number, Place, Value};
use crate::inputs::{Reading, given, is_parameter};
use crate::memory;
use crate::progress::Progress;
use crate::report::{Failure, repeated, split};
use crate::shapes::{self, Filled, Shapes};
use crate::source::{OpenSource, Source, nearest};

/// Everything for a run of a kernel, or for one pass of a pipeline.
pub(crate) struct Job {
    pub(crate) source: Source,
    pub(crate) config: DispatchConfig,
    /// Values that were taken from shapes.
    pub(crate) filled: Vec<Filled>,
    /// What is odd about what was asked for.
    pub(crate) warnings: Vec<Diagnostic>,
    /// In binding order.
    inputs: Vec<Input>,
    /// Where the domain in the configuration comes from.
    origin: Option<String>,
    /// The launch that follows from what the inputs hold, where their sizes alone tell another.
    plan: Option<launch::LaunchPlan>,
    shapes: Vec<(String, Vec<usize>)>,
}

/// An input: its bytes where they were given, and only their number where an earlier pass makes them.
struct Input {
    size: u64,
    bytes: Option<Vec<u8>>,
}

/// Bytes of all buffers, in binding order, from those of the inputs.
fn buffer_sizes(program: &Program, inputs: &[u64], config: &DispatchConfig) -> Result<Vec<u64>, Diagnostic> {
    // Only sizes are wanted, whatever the number of invocations.
    let mut config = config.clone();
    config.grid_override = Some([1; 3]);
    Ok(plan_of(program, inputs, &vec![None; inputs.len()], &config)?.buffer_bytes)
}

fn plan_of(
    program: &Program,
    input_bytes: &[u64],
    contents: &[Option<&[u8]>],
    config: &DispatchConfig,
) -> Result<launch::LaunchPlan, Diagnostic> {
    with_request(program, input_bytes, contents, config, |request| launch::plan(program, request))
}

fn with_request<T>(
    program: &Program,
    input_bytes: &[u64],
    contents: &[Option<&[u8]>],
    config: &DispatchConfig,
    then: impl FnOnce(&launch::LaunchRequest<'_>) -> Result<T, Diagnostic>,
) -> Result<T, Diagnostic> {
    let elements: Vec<(Name, u64)> =
        config.output_elements.iter().map(|(name, elements)| (Name::from(name), *elements)).collect();
    let request = launch::LaunchRequest {
        input_bytes,
        output_elements: &elements,
        specialization: Some(&config.specialization.resolve(program)?),
        workgroup: config.workgroup_override,
        contents,
        domain: config.domain_override,
        grid: config.grid_override,
    };
    then(&request)
}

/// All buffers are in the host's memory twice, once as the device's; so many bytes of that are taken already.
fn room_for_all(sizes: &[u64], taken: u64) -> Result<(), Diagnostic> {
    let buffers = sizes.iter().fold(0u64, |sum, &bytes| sum.saturating_add(bytes));
    memory::room_for(buffers.saturating_mul(2).saturating_sub(taken)).map_err(|problem| {
        Diagnostic::new(&codes::command::NO_ROOM, format!("the kernel's buffers are too large: {problem}"))
    })
}

/// A buffer that is there before a pass runs.
pub(crate) struct Known {
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) shape: Option<Vec<usize>>,
}

impl Job {
    pub(crate) fn new(kernel: &Kernel, inputs: &Inputs) -> Result<Job, Failure> {
        let mut job = Job::of_pass(OpenSource::of(kernel)?, &kernel.launch, inputs, &[])?;
        job.check_memory()?;
        job.domain_from_contents();
        Ok(job)
    }

    /// [`Job::new`] where some buffers are there already.
    pub(crate) fn of_pass(
        mut open: OpenSource,
        launch: &Launch,
        inputs: &Inputs,
        known: &[Known],
    ) -> Result<Job, Failure> {
        open.source.set_math(launch.math);
        let source = &open.source;
        source.validate()?;
        let mut problems = Vec::new();
        let mut config = config(source, launch, &mut problems);
        config.timeout = inputs.timeout.map(Duration::from_secs_f64);
        let mut shapes = given_shapes(source, inputs, &mut config, &mut problems);
        shapes.extend(known.iter().filter_map(|known| Some((known.name.clone(), known.shape.clone()?))));
        let given = given(source, inputs, &mut problems);
        let reading = Reading { source, given: &given, cast: inputs.cast, force: launch.force };
        let order = source.program.binding_order();
        let buffers: Vec<&BufferDecl> = order.iter().map(|&index| &source.program.buffers()[index]).collect();
        let size =
            |buffer: &BufferDecl| known.iter().find(|known| buffer.name.as_str() == known.name).map(|known| known.size);
        let mut held: Vec<Option<Input>> =
            buffers.iter().map(|buffer| size(buffer).map(|size| Input { size, bytes: None })).collect();
        let missing = |at: usize, held: &[Option<Input>]| buffers[at].kind.is_input() && held[at].is_none();
        // What takes long to make is not made for nothing.
        let expected = buffers.iter().filter(|buffer| buffer.kind.is_input());
        let expected: Vec<u64> =
            expected.map(|buffer| size(buffer).unwrap_or(reading.expected_bytes(buffer))).collect();
        if let Ok(sizes) = buffer_sizes(&source.program, &expected, &config) {
            room_for_all(&sizes, 0)?;
        }
        let progress = Progress::new("reading inputs", None);
        for (at, buffer) in buffers.iter().enumerate() {
            if missing(at, &held) && !is_parameter(buffer) {
                match reading.input(buffer, &mut shapes) {
                    Ok(bytes) => held[at] = Some(Input { size: bytes.len() as u64, bytes: Some(bytes) }),
                    Err(problem) => problems.push(problem),
                }
            }
        }
        drop(progress);
        inherit_shape(&source.program, &mut shapes);
        let mut lengths = Vec::new();
        for (at, &index) in order.iter().enumerate() {
            let name = buffers[at].name.to_string();
            let given = config.output_elements.get(&name).map(|elements| *elements as usize);
            let shape = launch::shape_of(&source.program, index);
            let length = match (&held[at], shape) {
                (Some(held), Ok(shape)) => {
                    let elements = shape.elements_in(held.size);
                    if !buffers[at].kind.is_input() {
                        config.output_elements.insert(name.clone(), elements);
                    }
                    Some(elements as usize)
                }
                _ => given,
            };
            lengths.extend(length.map(|length| (name, length)));
        }
        // Parameters come last, as they may be taken from the shapes of the others.
        let told = Shapes::new(&source.program, &shapes, &lengths);
        let mut filled = Vec::new();
        for (at, buffer) in buffers.iter().enumerate() {
            if missing(at, &held) && is_parameter(buffer) {
                match reading.parameters(buffer, &told, &mut filled) {
                    Ok(bytes) => held[at] = Some(Input { size: bytes.len() as u64, bytes: Some(bytes) }),
                    Err(problem) => problems.push(problem),
                }
            }
        }
        fill_constants(&open, &told, launch.force, &mut config, &mut filled, &mut problems);
        if !problems.is_empty() {
            return Err(Failure::Diagnostics(problems));
        }
        open.check(|name| config.specialization.get(name).is_some())?;
        let inputs = buffers.iter().zip(held).filter(|(buffer, _)| buffer.kind.is_input());
        let inputs = inputs.filter_map(|(_, held)| held).collect();
        let source = open.source;
        let mut job = Job { source, inputs, config, shapes, filled, origin: None, plan: None, warnings: Vec::new() };
        job.check_lengths()?;
        job.domain_from_shape()?;
        job.check_workgroup(launch.force)?;
        job.check_asked(launch);
        job.say_assumed_lengths();
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
        Ok(Job {
            source,
            inputs: Vec::new(),
            config,
            origin: None,
            plan: None,
            filled: Vec::new(),
            warnings: Vec::new(),
            shapes: Vec::new(),
        })
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

    /// What a run takes is estimated first.
    fn check_memory(&self) -> Result<(), Diagnostic> {
        // The inputs are there already.
        room_for_all(&self.sizes()?, self.inputs.iter().map(|input| input.size).sum())
    }

    /// Bytes of all buffers, in binding order.
    pub(crate) fn sizes(&self) -> Result<Vec<u64>, Diagnostic> {
        let inputs: Vec<u64> = self.inputs.iter().map(|input| input.size).collect();
        buffer_sizes(&self.source.program, &inputs, &self.config)
    }

    fn plan_as(&self, config: &DispatchConfig, look: bool) -> Result<launch::LaunchPlan, Diagnostic> {
        let sizes: Vec<u64> = self.inputs.iter().map(|input| input.size).collect();
        let contents: Vec<Option<&[u8]>> =
            self.inputs.iter().map(|input| input.bytes.as_deref().filter(|_| look)).collect();
        plan_of(&self.source.program, &sizes, &contents, config)
    }

    /// How it is launched, before a backend has its say.
    pub(crate) fn plan(&self) -> Result<launch::LaunchPlan, Diagnostic> {
        match &self.plan {
            Some(plan) => Ok(plan.clone()),
            None => self.plan_as(&self.config, true),
        }
    }

    /// The engine looks into inputs only where it has to; here they are at hand, and a number in one may say that there is less to do.
    fn domain_from_contents(&mut self) {
        let (Ok(sizes), Ok(contents)) = (self.plan_as(&self.config, false), self.plan_as(&self.config, true)) else {
            return;
        };
        if sizes.domain != contents.domain {
            self.config.domain_override = Some(contents.domain);
            self.warnings.extend(contents.warnings.iter().cloned());
            self.plan = Some(contents);
        }
    }

    /// Where the kernel leaves open how many invocations there are, and its workgroup has two or three dimensions, a first result of known
    /// shape tells.
    fn domain_from_shape(&mut self) -> Result<(), Diagnostic> {
        let program = &self.source.program;
        if !self.plan().is_err_and(|problem| problem.code == &codes::ir::LAUNCH_ASK) {
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
        let Some(first) = first else { return Ok(()) };
        let domain = self.shape_of(first.name.as_str()).and_then(|shape| shapes::domain(first, shape));
        if let Some(domain) = domain {
            self.origin = Some(format!("the shape of `{}`", first.name));
            self.config.domain_override = Some(domain);
        }
        Ok(())
    }

    /// Fewer invocations were asked for than the kernel itself says that there are.
    fn check_asked(&mut self, launch: &Launch) {
        let option = match (launch.grid, launch.domain) {
            (Some(_), _) => "--grid",
            (_, Some(_)) => "--domain",
            _ => return,
        };
        let mut own = self.config.clone();
        (own.grid_override, own.domain_override) = (None, None);
        let (Ok(asked), Ok(own)) = (self.plan(), self.plan_as(&own, true)) else { return };
        let runs: [u64; 3] =
            std::array::from_fn(|axis| u64::from(asked.grid[axis]) * u64::from(asked.workgroup_size[axis]));
        if own.proven && (0..3).any(|axis| runs[axis] < own.domain[axis]) {
            let [runs, all] = [&runs, &own.domain].map(crate::launch::product);
            let message =
                format!("`{option}` runs {runs} of the {all} invocations that the kernel is for ({})", own.origin);
            let fix = format!("Leave `{option}` out, unless a part is what you want.");
            let mut warning = Diagnostic::new(&codes::ir::LAUNCH_PARTIAL, message).with_fix(fix);
            warning.severity = Severity::Warning;
            self.warnings.push(warning);
        }
    }

    /// A result that is as long as an input because nothing says otherwise may be too short for what the kernel writes.
    fn say_assumed_lengths(&mut self) {
        let Ok(plan) = self.plan() else { return };
        let program = &self.source.program;
        let sizes: Vec<u64> = self.inputs.iter().map(|input| input.size).collect();
        let contents: Vec<Option<&[u8]>> = self.inputs.iter().map(|input| input.bytes.as_deref()).collect();
        let assumed = with_request(program, &sizes, &contents, &self.config, |request| {
            launch::assumed_lengths(program, request, &plan)
        });
        for (result, like) in assumed.unwrap_or_default() {
            let message =
                format!("`{result}` was made as long as `{like}`; what the kernel writes beyond that is dropped");
            let fix = format!("Say how long it is: --shape {result}=N.");
            let warning = Diagnostic::new(&codes::ir::LAUNCH_ASSUMED, message).with_fix(fix);
            self.warnings.push(self.source.declaration(warning, result.as_str()));
        }
    }

    /// Another workgroup size must give the same results.
    fn check_workgroup(&mut self, force: bool) -> Result<(), Diagnostic> {
        let Some(asked) = self.config.workgroup_override.filter(|_| self.plan().is_ok()) else { return Ok(()) };
        let Ok(valid) = self.source.program.validate() else { return Ok(()) };
        let mut own = self.config.clone();
        own.workgroup_override = None;
        // What is not known without it is asked for when it is to run.
        let Ok(plan) = self.plan_as(&own, true) else { return Ok(()) };
        let freedom = launch::freedom(&valid, Some(&own.specialization.resolve(&valid)?))?;
        if asked == plan.workgroup_size || freedom.allows(&plan, asked) {
            return Ok(());
        }
        let unused = (0..3).find(|&axis| !freedom.axes[axis] && asked[axis] != plan.workgroup_size[axis]);
        let why = match unused.filter(|_| freedom.shapes != launch::Shapes::Own) {
            Some(axis) => {
                format!("no id along {} is used, so the same would be done several times", ["x", "y", "z"][axis])
            }
            None => freedom.why.clone(),
        };
        let own = crate::launch::product(&plan.workgroup_size.map(u64::from));
        let asked = crate::launch::product(&asked.map(u64::from));
        let unproven = freedom.shapes == launch::Shapes::Unproven;
        let depend = if unproven { "may depend" } else { "depend" };
        let message =
            format!("the results {depend} on the workgroup, which is {own} and not {asked} in the kernel: {why}");
        let mut problem = Diagnostic::new(&codes::command::WORKGROUP_MATTERS, message);
        if unproven || force {
            problem.severity = Severity::Warning;
            self.warnings.push(problem);
            return Ok(());
        }
        Err(problem)
    }

    /// The workgroup size of the kernel, or the one that was asked for.
    pub(crate) fn workgroup_size(&self) -> Result<[u32; 3], Diagnostic> {
        let program = &self.source.program;
        match self.config.workgroup_override {
            Some(size) => Ok(size),
            None => launch::workgroup_size(program, Some(&self.config.specialization.resolve(program)?)),
        }
    }

    /// Where the domain comes from, unless the kernel itself tells it.
    pub(crate) fn origin(&self, launch: &Launch) -> Option<String> {
        match (launch.grid, launch.domain) {
            (Some(_), _) => Some("`--grid`".to_owned()),
            (_, Some(_)) => Some("`--domain`".to_owned()),
            _ => self.origin.clone(),
        }
    }

    pub(crate) fn shape_of(&self, name: &str) -> Option<&[usize]> {
        self.shapes.iter().find(|(known, _)| known == name).map(|(_, shape)| shape.as_slice())
    }

    /// Gives a prepared program the inputs.
    pub(crate) fn fill(&self, prepared: &Prepared) -> Result<(), Error> {
        let program = &self.source.program;
        let buffers = program.binding_order().into_iter().map(|index| &program.buffers()[index]);
        for (buffer, bytes) in buffers.filter(|buffer| buffer.kind.is_input()).zip(self.inputs()) {
            prepared.set(buffer.name.as_str(), bytes)?;
        }
        Ok(())
    }

    /// The inputs of a kernel that runs alone.
    pub(crate) fn inputs(&self) -> Vec<&[u8]> {
        self.inputs.iter().filter_map(|input| input.bytes.as_deref()).collect()
    }

    /// The bytes that were given for an input.
    pub(crate) fn input(&self, name: &str) -> Option<&[u8]> {
        let program = &self.source.program;
        let buffers = program.binding_order().into_iter().map(|index| &program.buffers()[index]);
        let mut inputs = buffers.filter(|buffer| buffer.kind.is_input()).zip(&self.inputs);
        inputs.find(|(buffer, _)| buffer.name == name).and_then(|(_, input)| input.bytes.as_deref())
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

    /// A result's name from `--out NAME=FILE`, or `--out FILE` where there is one result.
    pub(crate) fn result_name<'a>(&'a self, text: &'a str) -> Result<(&'a str, Place<'a>), Diagnostic> {
        let results = self.source.program.buffers().iter().filter(|buffer| buffer.kind.is_result());
        let names: Vec<&str> = results.map(|buffer| buffer.name.as_str()).collect();
        let (name, file) = match (split("--out", text), &names[..]) {
            (Ok(both), _) => both,
            (Err(_), [only]) if !text.is_empty() && !text.contains('=') => (*only, text),
            (Err(problem), [first, ..]) if !text.contains('=') => {
                return Err(problem.with_fix(format!("Say which result it is: --out {first}={text}.")));
            }
            (Err(problem), _) => return Err(problem),
        };
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

/// What `--shape` says, also as lengths of results.
fn given_shapes(
    source: &Source,
    inputs: &Inputs,
    config: &mut DispatchConfig,
    problems: &mut Vec<Diagnostic>,
) -> Vec<(String, Vec<usize>)> {
    let mut shapes: Vec<(String, Vec<usize>)> = Vec::new();
    for text in &inputs.shapes {
        match shape(source, text) {
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
    shapes
}

/// Gives overrides that are named for a shape its values, or sees that those that were set agree.
fn fill_constants(
    open: &OpenSource,
    told: &Shapes,
    force: bool,
    config: &mut DispatchConfig,
    filled: &mut Vec<Filled>,
    problems: &mut Vec<Diagnostic>,
) {
    let source = &open.source;
    for declared in source.program.constants() {
        let name = declared.name.as_str();
        let done = match config.specialization.get(name) {
            Some(_) if force => Ok(()),
            Some(value) => told.agree(name, name, value.as_pipeline_f64()),
            None => told.fill(name, name, !open.open.contains(&declared.name)).and_then(|one| {
                if let Some(one) = one {
                    let (_, value) = constant(source, "--set", &format!("{name}={}", one.value))?;
                    config.specialization.insert(name, value);
                    filled.push(one);
                }
                Ok(())
            }),
        };
        if let Err(problem) = done {
            problems.push(source.declaration(problem, name));
        }
    }
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
