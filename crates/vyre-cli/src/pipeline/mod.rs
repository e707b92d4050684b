//! Several kernels in a row on buffers that stay where they are.

mod file;
mod run;

use std::path::{Path, PathBuf};
use std::time::Duration;

use vyre::ir::BufferDecl;
use vyre::metrics::Stage;
use vyre::{Buffer, DataType, Diagnostic, Engine, Graph, Kernel, codes, launch};

use crate::args::{Inputs, Kernel as KernelArgs, Launch, Passes};
use crate::data::{Layout, Value};
use crate::job::{Job, Known};
use crate::memory;
use crate::report::{Failure, repeated, split};
use crate::run::known_backend;
use crate::source::{OpenSource, SourceFile, nearest};

pub(crate) use run::{bench, explain, run};

/// What was asked for, from a file and from the command line.
pub(crate) struct Spec {
    passes: Vec<PassSpec>,
    inputs: Inputs,
    outputs: Vec<String>,
    /// Pairs `a,b`.
    swaps: Vec<String>,
    steps: Option<u32>,
    every: Option<u32>,
}

struct PassSpec {
    kernel: PathBuf,
    launch: Launch,
    /// Names of the kernel's buffers, and what they are called here.
    bind: Vec<(String, String)>,
}

fn is_pipeline(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("toml"))
}

impl Spec {
    /// The pipeline that was asked for; none where it is a single kernel.
    pub(crate) fn of(kernel: &KernelArgs, passes: &Passes, inputs: &Inputs) -> Result<Option<Spec>, Failure> {
        let from_file = is_pipeline(&kernel.kernel);
        if !from_file && passes.passes.is_empty() && passes.swaps.is_empty() && passes.steps.is_none() {
            return Ok(None);
        }
        let mut spec = if from_file { file::read(&kernel.kernel)? } else { Spec::default() };
        match (from_file, &passes.passes[..]) {
            (true, [_, ..]) => {
                return Err(bad("`--pass` can't be added to a pipeline file", "Write it into the file."));
            }
            (true, []) => {}
            (false, []) => spec.passes.push(PassSpec::of(&kernel.kernel, &kernel.launch)),
            (false, list) => {
                if kernel.launch.entry.is_some() {
                    return Err(bad("`--entry` and `--pass` both name entry points", "Name them all with `--pass`."));
                }
                spec.passes.extend(list.iter().map(|text| pass(kernel, text)));
            }
        }
        if from_file || !passes.passes.is_empty() {
            spec.share(&kernel.launch)?;
        }
        spec.merge(inputs);
        spec.steps = passes.steps.or(spec.steps);
        if !passes.swaps.is_empty() {
            spec.swaps = passes.swaps.clone();
        }
        Ok(Some(spec))
    }

    /// What the command line says of launches holds for all passes, or for the only one.
    fn share(&mut self, launch: &Launch) -> Result<(), Failure> {
        let single =
            launch.grid.is_some() || launch.domain.is_some() || launch.workgroup.is_some() || launch.entry.is_some();
        if single && self.passes.len() > 1 {
            let message = "`--grid`, `--domain`, `--workgroup` and `--entry` are of one pass, and there are several";
            return Err(bad(message, "Write them into a pipeline file, under the `[[pass]]` that they are for."));
        }
        for pass in &mut self.passes {
            let own = &mut pass.launch;
            own.grid = launch.grid.or(own.grid.filter(|_| launch.domain.is_none()));
            own.domain = launch.domain.or(own.domain.filter(|_| launch.grid.is_none()));
            own.workgroup = launch.workgroup.or(own.workgroup);
            own.entry = launch.entry.clone().or(own.entry.take());
            own.force |= launch.force;
            own.math = launch.math.or(own.math);
            for text in &launch.set {
                let name = text.split('=').next();
                own.set.retain(|known| known.split('=').next() != name);
                own.set.push(text.clone());
            }
        }
        Ok(())
    }

    /// What the command line says of a name replaces what the file does.
    fn merge(&mut self, given: &Inputs) {
        let name = |text: &str| text.split('=').next().unwrap_or_default().to_owned();
        let covers =
            |new: &str, old: &str| old == new || old.strip_prefix(new).is_some_and(|rest| rest.starts_with(['.', '[']));
        let own = &mut self.inputs;
        for (old, new) in [(&mut own.inputs, &given.inputs), (&mut own.shapes, &given.shapes)] {
            old.retain(|old| !new.iter().any(|new| covers(&name(new), &name(old))));
            old.extend(new.iter().cloned());
        }
        own.cast |= given.cast;
        own.timeout = given.timeout.or(own.timeout);
        own.backend = given.backend.clone();
    }

    fn merge_outputs(&mut self, outputs: &[String], every: Option<u32>) {
        if !outputs.is_empty() {
            self.outputs = outputs.to_vec();
        }
        self.every = every.or(self.every);
    }
}

impl PassSpec {
    fn of(kernel: &Path, launch: &Launch) -> PassSpec {
        PassSpec { kernel: kernel.to_owned(), launch: launch.clone(), bind: Vec::new() }
    }
}

/// `ENTRY`, `FILE` or `FILE:ENTRY`.
fn pass(kernel: &KernelArgs, text: &str) -> PassSpec {
    let (file, entry) = match text.rsplit_once(':') {
        Some((file, entry)) => (Some(file), Some(entry)),
        None if text.contains(['.', '/']) => (Some(text), None),
        None => (None, Some(text)),
    };
    let launch = Launch { entry: entry.map(str::to_owned), ..Launch::default() };
    PassSpec { kernel: file.map_or(kernel.kernel.clone(), PathBuf::from), launch, bind: Vec::new() }
}

fn bad(message: &str, cure: &str) -> Failure {
    Diagnostic::new(&codes::command::BAD_ARGUMENT, message).with_fix(cure).into()
}

/// Passes whose buffers are known.
pub(crate) struct Pipeline {
    passes: Vec<Pass>,
    slots: Vec<Slot>,
    swaps: Vec<[usize; 2]>,
    steps: u32,
}

struct Pass {
    job: Job,
    launch: Launch,
    /// The pipeline's buffer for each of the kernel's, in binding order.
    slots: Vec<usize>,
}

/// A buffer of the pipeline.
struct Slot {
    name: String,
    size: u64,
    shape: Option<Vec<usize>>,
    /// The pass that names it first, and what it calls it.
    first: (usize, String),
    written: bool,
}

impl Pipeline {
    pub(crate) fn new(spec: &Spec) -> Result<Pipeline, Failure> {
        let mut pipeline =
            Pipeline { passes: Vec::new(), slots: Vec::new(), swaps: Vec::new(), steps: spec.steps.unwrap_or(1) };
        let mut used =
            Used { inputs: vec![false; spec.inputs.inputs.len()], shapes: vec![false; spec.inputs.shapes.len()] };
        for pass in &spec.passes {
            pipeline.add(pass, &spec.inputs, &mut used)?;
        }
        pipeline.check_used(&spec.inputs, &used)?;
        pipeline.check_set(spec)?;
        for text in &spec.swaps {
            let [a, b] = pipeline.swap(text)?;
            // What one holds after a step is what a pass wrote into the other.
            let written = pipeline.slots[a].written || pipeline.slots[b].written;
            (pipeline.slots[a].written, pipeline.slots[b].written) = (written, written);
            pipeline.swaps.push([a, b]);
        }
        let total = pipeline.slots.iter().fold(0u64, |sum, slot| sum.saturating_add(slot.size));
        memory::room_for(total.saturating_mul(2)).map_err(|problem| {
            Diagnostic::new(&codes::command::NO_ROOM, format!("the pipeline's buffers are too large: {problem}"))
        })?;
        Ok(pipeline)
    }

    fn add(&mut self, pass: &PassSpec, inputs: &Inputs, used: &mut Used) -> Result<(), Failure> {
        let file = SourceFile::read(&pass.kernel)?;
        let open = OpenSource::import(&file, pass.launch.entry.as_deref(), &pass.launch.set)?;
        let program = open.source.program.clone();
        let buffers: Vec<&BufferDecl> =
            program.binding_order().into_iter().map(|index| &program.buffers()[index]).collect();
        for (name, _) in &pass.bind {
            open.source.buffer(name, |_| true, "a buffer")?;
        }
        let names: Vec<String> = buffers
            .iter()
            .map(|buffer| {
                let bound = pass.bind.iter().find(|(name, _)| buffer.name.as_str() == name);
                bound.map_or_else(|| buffer.name.to_string(), |(_, name)| name.clone())
            })
            .collect();
        let known = buffers.iter().zip(&names).filter_map(|(buffer, name)| {
            let slot = self.slots.iter().find(|slot| slot.name == *name)?;
            Some(Known { name: buffer.name.to_string(), size: slot.size, shape: slot.shape.clone() })
        });
        let known: Vec<Known> = known.collect();
        // What is said of the pipeline's buffers, in the names of the kernel.
        let mut own = Inputs { inputs: Vec::new(), shapes: Vec::new(), ..inputs.clone() };
        let lists = [
            (&inputs.inputs, &mut own.inputs, &mut used.inputs, false),
            (&inputs.shapes, &mut own.shapes, &mut used.shapes, true),
        ];
        for (from, to, used, is_shape) in lists {
            for (text, used) in from.iter().zip(used) {
                let end = text.find(['.', '[', '=']).unwrap_or(text.len());
                let at = names.iter().position(|name| *name == text[..end]);
                let is_new = |at: &usize| !known.iter().any(|known| buffers[*at].name.as_str() == known.name);
                let takes = |at: &usize| buffers[*at].kind.is_input() || is_shape;
                if let Some(at) = at.filter(is_new).filter(takes) {
                    *used = true;
                    to.push(format!("{}{}", buffers[at].name, &text[end..]));
                }
            }
        }
        // A constant may be of some passes only.
        let mut launch = pass.launch.clone();
        let declares = |text: &String| {
            let name = text.split('=').next().unwrap_or_default();
            program.constants().iter().any(|constant| constant.name == name)
        };
        launch.set.retain(declares);
        let job = Job::of_pass(open, &launch, &own, &known)?;
        let sizes = job.sizes()?;
        let mut slots = Vec::new();
        for ((buffer, name), size) in buffers.iter().zip(&names).zip(sizes) {
            let found = self.slots.iter().position(|slot| slot.name == *name);
            let at = found.unwrap_or(self.slots.len());
            match found {
                Some(at) => self.agree(at, &job, buffer, size)?,
                None => self.slots.push(Slot {
                    name: name.clone(),
                    size,
                    shape: job.shape_of(buffer.name.as_str()).map(<[usize]>::to_vec),
                    first: (self.passes.len(), buffer.name.to_string()),
                    written: false,
                }),
            }
            self.slots[at].written |= buffer.kind.is_result();
            slots.push(at);
        }
        self.passes.push(Pass { job, launch, slots });
        Ok(())
    }

    /// The declaration of a buffer in the pass that names it first.
    fn first(&self, slot: usize) -> (&Job, &BufferDecl) {
        let (pass, name) = &self.slots[slot].first;
        let job = &self.passes[*pass].job;
        let program = &job.source.program;
        let at = program.buffers().iter().position(|buffer| buffer.name.as_str() == name).unwrap_or_default();
        (job, &program.buffers()[at])
    }

    /// Two passes that use one buffer see the same elements in it.
    fn agree(&self, slot: usize, job: &Job, buffer: &BufferDecl, size: u64) -> Result<(), Diagnostic> {
        // Named twice by one pass, it has been looked at already.
        if self.slots[slot].first.0 == self.passes.len() {
            return Ok(());
        }
        let (first, declared) = self.first(slot);
        let same = elements(first, declared) == elements(job, buffer);
        if same && size == self.slots[slot].size {
            return Ok(());
        }
        let name = &self.slots[slot].name;
        let message = match same {
            true => format!(
                "buffer `{name}` has {} bytes, and `{}` takes {size}",
                self.slots[slot].size,
                job.source.program.name()
            ),
            false => format!(
                "buffer `{name}` has other elements in `{}` than in `{}`",
                job.source.program.name(),
                first.source.program.name()
            ),
        };
        Err(job.source.declaration(Diagnostic::new(&codes::command::PASSES_DISAGREE, message), buffer.name.as_str()))
    }

    fn slot(&self, name: &str) -> Result<usize, Diagnostic> {
        self.slots.iter().position(|slot| slot.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.slots.iter().map(|slot| slot.name.as_str()).collect();
            let hint = match nearest(name, &names) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("it has {}", names.join(", ")),
            };
            Diagnostic::new(&codes::command::UNKNOWN_NAME, format!("`{name}` is not a buffer of the pipeline; {hint}"))
        })
    }

    /// Refuses contents and shapes that no pass takes.
    fn check_used(&self, inputs: &Inputs, used: &Used) -> Result<(), Failure> {
        for (option, texts, used) in [("--in", &inputs.inputs, &used.inputs), ("--shape", &inputs.shapes, &used.shapes)]
        {
            let mut seen: Vec<&str> = Vec::new();
            for (text, used) in texts.iter().zip(used) {
                let (name, _) = split(option, text)?;
                if seen.contains(&name) {
                    return Err(repeated(option, name).into());
                }
                seen.push(name);
                if *used {
                    continue;
                }
                let slot = self.slot(&name[..name.find(['.', '[']).unwrap_or(name.len())])?;
                let (job, _) = self.first(slot);
                let message =
                    format!("`{name}` is made by the pass `{}`, and takes nothing", job.source.program.name());
                return Err(Diagnostic::new(&codes::command::BAD_ARGUMENT, message)
                    .with_fix(format!("Leave `{option} {name}=` out."))
                    .into());
            }
        }
        Ok(())
    }

    /// Refuses a constant that no pass has.
    fn check_set(&self, spec: &Spec) -> Result<(), Diagnostic> {
        let declared = || self.passes.iter().flat_map(|pass| pass.job.source.program.constants());
        for (at, pass) in spec.passes.iter().enumerate() {
            for text in &pass.launch.set {
                let (name, _) = split("--set", text)?;
                let shared = spec.passes.iter().all(|other| other.launch.set.contains(text));
                let mut own = self.passes[at].job.source.program.constants().iter();
                if own.any(|constant| constant.name == name)
                    || (shared && declared().any(|constant| constant.name == name))
                {
                    continue;
                }
                let names: Vec<&str> = declared().map(|constant| constant.name.as_str()).collect();
                let hint = nearest(name, &names).map_or(String::new(), |near| format!("; did you mean `{near}`?"));
                let message = format!(
                    "`{name}` is not a specialization constant of {}{hint}",
                    match shared {
                        true => "any pass".to_owned(),
                        false => format!("the pass `{}`", self.passes[at].job.source.program.name()),
                    }
                );
                return Err(Diagnostic::new(&codes::command::UNKNOWN_NAME, message));
            }
        }
        Ok(())
    }

    fn swap(&self, text: &str) -> Result<[usize; 2], Diagnostic> {
        let Some((a, b)) = text.split_once(',') else {
            let message = format!("`--swap {text}` does not name two buffers");
            return Err(Diagnostic::new(&codes::command::BAD_ARGUMENT, message).with_fix("Write --swap a,b."));
        };
        let (a, b) = (self.slot(a.trim())?, self.slot(b.trim())?);
        let message = match () {
            () if a == b => format!("`--swap {text}` names one buffer twice"),
            () if self.slots[a].size != self.slots[b].size => format!(
                "`{}` has {} bytes and `{}` {}, so they can't be exchanged",
                self.slots[a].name, self.slots[a].size, self.slots[b].name, self.slots[b].size
            ),
            () => return Ok([a, b]),
        };
        Err(Diagnostic::new(&codes::command::PASSES_DISAGREE, message).with_fix("Name two buffers of one size."))
    }

    /// What a buffer holds, with its type and shape.
    fn value(&self, slot: usize, bytes: Vec<u8>) -> Value {
        let (job, buffer) = self.first(slot);
        Value::new(job.source.program.types(), &buffer.ty, bytes, self.slots[slot].shape.as_deref())
    }

    fn start<'p>(&'p self, engine: &'p Engine, backend: &str) -> Result<Running<'p>, Failure> {
        if backend != "auto" {
            known_backend(engine, backend)?;
        }
        let mut kernels = Vec::new();
        for pass in &self.passes {
            let kernel = engine.kernel_with(&pass.job.source.program, &pass.job.config)?;
            kernels.push(if backend == "auto" { kernel } else { kernel.on(backend)? });
        }
        let mut buffers = Vec::new();
        for at in 0..self.slots.len() {
            let (job, declared) = self.first(at);
            buffers.push(match job.input(declared.name.as_str()) {
                Some(bytes) => engine.buffer_of(bytes)?,
                None => engine.buffer(self.slots[at].size),
            });
        }
        Ok(Running { pipeline: self, engine, kernels, buffers, limit: None, launched: 0, graph: None })
    }
}

/// Which of the arguments were of use.
struct Used {
    inputs: Vec<bool>,
    shapes: Vec<bool>,
}

/// A pipeline with its buffers.
struct Running<'p> {
    pipeline: &'p Pipeline,
    engine: &'p Engine,
    kernels: Vec<Kernel>,
    buffers: Vec<Buffer>,
    /// How long a launch may take.
    limit: Option<Duration>,
    /// Steps that were launched one pass after another.
    launched: u32,
    /// A step as one, once it is known how its passes run best.
    graph: Option<Graph>,
}

/// Steps whose passes are launched one by one, so that the engine learns from each how it runs best; the others replay what was recorded.
const LEARNT_FROM: u32 = 64;

impl Running<'_> {
    /// Queues all passes once; the last of their launches.
    fn step(&mut self) -> Result<Option<vyre::Launch>, Failure> {
        let last = match self.recorded()? {
            true => self.replay()?,
            false => self.launch()?,
        };
        for &[a, b] in &self.pipeline.swaps {
            self.buffers.swap(a, b);
        }
        Ok(last)
    }

    /// Whether steps are replayed from now on.
    fn recorded(&mut self) -> Result<bool, Failure> {
        if self.graph.is_some() {
            return Ok(true);
        }
        if self.launched != LEARNT_FROM || self.limit.is_some() || self.engine.metrics().is_tracing() {
            return Ok(false);
        }
        let timed = self.pipeline.passes.iter().any(|pass| pass.job.config.timeout.is_some());
        let backends: Vec<Option<String>> = self.kernels.iter().map(|kernel| kernel.explain().backend).collect();
        let Some(backend) = backends.first().cloned().flatten() else { return Ok(false) };
        // A recording is of one device that keeps memory, and nothing ends a part of it.
        let one = backends.iter().all(|other| other.as_deref() == Some(backend.as_str()));
        if timed || !one || !self.engine.backend(&backend)?.capabilities().resident {
            return Ok(false);
        }
        let mut recorder = self.engine.record();
        recorder.on(&backend);
        let slots = self.pipeline.slots.iter();
        let places: Vec<_> = slots.map(|slot| recorder.buffer(&slot.name, slot.size)).collect();
        for (pass, kernel) in self.pipeline.passes.iter().zip(&self.kernels) {
            let program = &pass.job.source.program;
            let mut launch = recorder.launch(kernel);
            for (&index, &slot) in program.binding_order().iter().zip(&pass.slots) {
                launch = launch.bind(program.buffers()[index].name.as_str(), places[slot]);
            }
            launch.add()?;
        }
        self.graph = Some(recorder.finish()?);
        Ok(true)
    }

    fn replay(&mut self) -> Result<Option<vyre::Launch>, Failure> {
        let Some(graph) = &self.graph else { return Ok(None) };
        let mut replay = graph.replay().label("a step");
        for (slot, buffer) in self.pipeline.slots.iter().zip(&mut self.buffers) {
            replay = replay.bind(&slot.name, buffer);
        }
        Ok(Some(replay.launch()?))
    }

    /// One pass after another; the last of their launches.
    fn launch(&mut self) -> Result<Option<vyre::Launch>, Failure> {
        self.launched = self.launched.saturating_add(1);
        let mut last = None;
        for (pass, kernel) in self.pipeline.passes.iter().zip(&self.kernels) {
            let program = &pass.job.source.program;
            let order = program.binding_order();
            let mut free: Vec<Option<&mut Buffer>> = self.buffers.iter_mut().map(Some).collect();
            let mut call = kernel.call().label(program.name());
            if let Some(limit) = self.limit {
                call = call.timeout(limit);
            }
            let mut read: Vec<Option<&Buffer>> = vec![None; free.len()];
            // What is written is lent once; what is only read may have several names.
            for (&index, &slot) in order.iter().zip(&pass.slots) {
                let buffer = &program.buffers()[index];
                if buffer.kind.is_result() {
                    let lent =
                        free[slot].take().ok_or_else(|| twice(&self.pipeline.slots[slot].name, program.name()))?;
                    call = call.bind(buffer.name.as_str(), lent);
                }
            }
            for (&index, &slot) in order.iter().zip(&pass.slots) {
                let buffer = &program.buffers()[index];
                if !buffer.kind.is_result() {
                    if let Some(lent) = free[slot].take() {
                        read[slot] = Some(lent);
                    }
                    let lent = read[slot].ok_or_else(|| twice(&self.pipeline.slots[slot].name, program.name()))?;
                    call = call.bind(buffer.name.as_str(), lent);
                }
            }
            let metrics = self.engine.metrics();
            let span = metrics.time_labelled(Stage::Dispatch, Some(program.name()));
            let launch = call.launch()?;
            // A trace shows how long each pass takes, so that they can't overlap.
            if metrics.is_tracing() {
                launch.wait()?;
            }
            drop(span);
            last = Some(launch);
        }
        Ok(last)
    }
}

/// What a buffer is made of, whatever its types and members are called.
fn elements(job: &Job, buffer: &BufferDecl) -> (Option<Vec<(DataType, usize)>>, Option<launch::BufferShape>) {
    let program = &job.source.program;
    let numbers = Layout::of(program.types(), &buffer.ty)
        .map(|layout| layout.fields.into_iter().map(|field| (field.ty, field.offset)).collect());
    let at = program.buffers().iter().position(|other| other.name == buffer.name);
    (numbers, at.and_then(|at| launch::shape_of(program, at).ok()))
}

fn twice(buffer: &str, pass: &str) -> Diagnostic {
    let message = format!("the pass `{pass}` writes `{buffer}` and uses it under another name, too");
    Diagnostic::new(&codes::command::PASSES_DISAGREE, message)
}

/// The passes of a pipeline file, for `vyre check`; none where it is a kernel.
pub(crate) fn kernels(path: &Path) -> Result<Option<Vec<(PathBuf, Launch)>>, Failure> {
    if !is_pipeline(path) {
        return Ok(None);
    }
    let spec = file::read(path)?;
    Ok(Some(spec.passes.into_iter().map(|pass| (pass.kernel, pass.launch)).collect()))
}
