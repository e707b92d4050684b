//! `vyre op`: one of the ops, on arrays from files.

use std::path::Path;

use serde_json::json;
use vyre::expression::Term;
use vyre::{DataType, Diagnostic, Engine, codes};
use vyre_ops::{Activation, Boundary, Op, Parameter, Parameters, Types};

use crate::args;
use crate::data::{self, Layout, Numbers, Place, Value};
use crate::files::Outbox;
use crate::inputs::misfitting;
use crate::report::{Failure, Output, repeated, split};
use crate::run::{beside, describe, known_backend, say};
use crate::source::nearest;

pub(crate) fn op(args: &args::Op, output: &Output) -> Result<(), Failure> {
    let Some(name) = &args.name else { return list(output) };
    let op = known(name)?;
    let mut parameters = parameters(op, args)?;
    let inputs = named("--in", &args.inputs, op.inputs)?;
    let outputs = named("--out", &args.outputs, op.outputs)?;
    let mut files = Vec::new();
    for (at, file) in outputs.iter().enumerate() {
        files.extend(file.map(|file| (op.outputs[at], Place::new(file))));
    }
    let told: Vec<_> =
        files.iter().map(|(name, place)| (format!("the result `{name}`"), Path::new(place.path))).collect();
    let beside = beside(&told, output)?;
    let engine = engine(&args.backend)?;
    let mut terms = Vec::new();
    for (at, from) in inputs.iter().enumerate() {
        let name = op.inputs[at];
        let Some(from) = from else {
            let message = format!("nothing is given for `{name}` of `{}`", op.id);
            return Err(Diagnostic::new(&codes::command::BAD_ARGUMENT, message)
                .with_fix(format!("Say what it is: --in {name}=FILE.npy, or --in {name}=1,2,3."))
                .into());
        };
        let want = match (name, op.types) {
            ("positions" | "offsets", _) => Some(DataType::U32),
            (_, Types::Bytes) => Some(DataType::U8),
            _ => wanted(args)?,
        };
        terms.push(term(&engine, name, from, want, args.cast)?);
    }
    parameters.axis = axis(args.axis, &terms[0])?;
    let results = op.run(&terms, &parameters).map_err(|error| match error.code() == codes::engine::WRONG_ELEMENT.id {
        true => Failure::from(error.diagnostic().clone().with_fix(
            "Say with --type what the elements shall be, such as --type f32; with --cast, too, where that can't hold all of them.",
        )),
        false => error.into(),
    })?;
    let mut outbox = Outbox::default();
    let mut values = Vec::new();
    for (name, result) in op.outputs.iter().zip(results) {
        let value = Value::new(&[], &result.ty, result.buffer.to_vec()?, Some(&result.shape));
        values.push(((*name).to_owned(), value));
    }
    let (text, described) = describe(&values, &files, &mut outbox, output.json)?;
    output.problems(&engine.take_notices());
    outbox.deliver()?;
    say(output, &text, &json!({ "op": op.id, "results": described }), beside)
}

/// The op of a name.
fn known(name: &str) -> Result<&'static Op, Failure> {
    let ids: Vec<&str> = vyre_ops::ops().iter().map(|op| op.id).collect();
    match nearest(name, &ids) {
        Some(near) if near != name => {
            let message = format!("there is no op `{name}`; did you mean `{near}`?");
            let diagnostic = Diagnostic::new(&codes::engine::UNKNOWN_BUFFER, message);
            Err(diagnostic.with_fix("Take one of those that `vyre op` lists.").into())
        }
        _ => Ok(vyre_ops::op(name)?),
    }
}

/// The axis that is meant; one below zero is counted from behind.
fn axis(axis: Option<i64>, term: &Term) -> Result<Option<usize>, Diagnostic> {
    let Some(axis) = axis else { return Ok(None) };
    let axes = term.shape().map_or(0, |shape| shape.extents().len());
    let from_front = if axis < 0 { axis + axes as i64 } else { axis };
    match usize::try_from(from_front) {
        Ok(axis) if axis < axes => Ok(Some(axis)),
        _ => Err(Diagnostic::new(&codes::command::BAD_ARGUMENT, format!("there is no axis {axis} among {axes}"))
            .with_fix(format!("Axes go from 0 to {}, or from -1, the last one, to -{axes}.", axes.saturating_sub(1)))),
    }
}

/// All ops, with what they take.
fn list(output: &Output) -> Result<(), Failure> {
    if output.json {
        let one = |op: &Op| json!({ "id": op.id, "about": op.about, "inputs": op.inputs, "outputs": op.outputs });
        let all: Vec<_> = vyre_ops::ops().iter().map(one).collect();
        return output.print_json(&json!({ "ops": all }));
    }
    let line = |op: &Op| format!("{:<16} {:<14} {}", op.id, op.inputs.join(", "), op.about);
    output.print(&vyre_ops::ops().iter().map(line).collect::<Vec<_>>().join("\n"))
}

fn parameters(op: &Op, args: &args::Op) -> Result<Parameters, Diagnostic> {
    let given = [
        ("--activation", Parameter::Activation, args.activation.is_some()),
        ("--axis", Parameter::Axis, args.axis.is_some()),
        ("--boundary", Parameter::Boundary, args.boundary.is_some()),
        ("--causal", Parameter::Causal, args.causal),
        ("--count", Parameter::Count, args.count.is_some()),
        ("--epsilon", Parameter::Epsilon, args.epsilon.is_some()),
        ("--inverse", Parameter::Inverse, args.inverse),
        ("--padding", Parameter::Padding, args.padding.is_some()),
        ("--scale", Parameter::Scale, args.scale.is_some()),
        ("--stride", Parameter::Stride, args.stride.is_some()),
    ];
    for (option, parameter, is_given) in given {
        if is_given && !op.parameters.contains(&parameter) {
            let message = format!("`{}` does not look at {option}", op.id);
            let looks_at: Vec<&str> =
                given.iter().filter(|(_, one, _)| op.parameters.contains(one)).map(|(name, ..)| *name).collect();
            let fix = match looks_at.is_empty() {
                true => "Leave it out.".to_owned(),
                false => format!("Leave it out; there is {}.", looks_at.join(" and ")),
            };
            return Err(Diagnostic::new(&codes::command::BAD_ARGUMENT, message).with_fix(fix));
        }
    }
    let boundary = match &args.boundary {
        None => Boundary::default(),
        Some(name) => Boundary::named(name).ok_or_else(|| {
            Diagnostic::new(&codes::command::BAD_ARGUMENT, format!("there is no boundary `{name}`"))
                .with_fix("Take zero, edge, wrap or reflect.")
        })?,
    };
    let activation = match &args.activation {
        None => Activation::None,
        Some(name) => Activation::named(name).ok_or_else(|| {
            Diagnostic::new(&codes::command::BAD_ARGUMENT, format!("there is no activation `{name}`"))
                .with_fix("Take none, relu or gelu.")
        })?,
    };
    let args::Op { causal, count, epsilon, inverse, padding, scale, stride, .. } = *args;
    let padding = padding.unwrap_or(0);
    Ok(Parameters { activation, axis: None, boundary, causal, count, epsilon, inverse, padding, scale, stride })
}

/// What is said of each name, in their order. What comes without a name is for the first that has nothing.
fn named<'a>(option: &str, given: &'a [String], names: &[&str]) -> Result<Vec<Option<&'a str>>, Diagnostic> {
    let is_name = |text: &str| text.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    let has_name = |text: &&String| text.split_once('=').is_some_and(|(name, _)| is_name(name));
    let form = || {
        let each: Vec<String> = names.iter().map(|name| format!("{option} {name}=…")).collect();
        format!("Write {}.", each.join(" "))
    };
    let mut all = vec![None; names.len()];
    for text in given.iter().filter(has_name) {
        let (name, rest) = split(option, text).map_err(|error| error.with_fix(form()))?;
        let Some(at) = names.iter().position(|known| *known == name) else {
            let message = format!("{option}: there is no `{name}`; there is {}", names.join(" and "));
            return Err(Diagnostic::new(&codes::command::BAD_ARGUMENT, message).with_fix(form()));
        };
        if all[at].replace(rest).is_some() {
            return Err(repeated(option, name));
        }
    }
    for text in given.iter().filter(|text| !has_name(text)) {
        let Some(free) = all.iter_mut().find(|one| one.is_none()) else {
            let message =
                format!("{option} {text}: there is nothing left that it could be; there is {}", names.join(" and "));
            return Err(Diagnostic::new(&codes::command::BAD_ARGUMENT, message).with_fix(form()));
        };
        *free = Some(text.as_str());
    }
    Ok(all)
}

fn wanted(args: &args::Op) -> Result<Option<DataType>, Diagnostic> {
    let Some(name) = &args.ty else { return Ok(None) };
    use DataType::{F16, F32, F64, I32, I64, U8, U32, U64};
    let types = [F32, F64, F16, I32, U32, I64, U64, U8];
    let found = types.iter().find(|ty| ty.to_string() == *name).cloned();
    found.map(Some).ok_or_else(|| {
        let names: Vec<String> = types.iter().map(DataType::to_string).collect();
        let message = format!("ops don't compute with `{name}`; they do with {}", names.join(", "));
        Diagnostic::new(&codes::command::BAD_ARGUMENT, message).with_fix("Take one of these.")
    })
}

/// An array of what `--in` names: of the type that is asked for, else of the file's own, else of f32.
fn term(engine: &Engine, name: &str, from: &str, want: Option<DataType>, cast: bool) -> Result<Term, Failure> {
    // A series that does not say what it is of is of f32, as a list of numbers is.
    let contents = match data::read(from, want.as_ref()) {
        Err(problem) if want.is_none() && problem.code.id == codes::command::BAD_GENERATOR.id => {
            data::read(from, Some(&DataType::F32))?
        }
        read => read?,
    };
    let ty = match (&want, &contents.numbers) {
        (Some(want), _) => want.clone(),
        (None, Numbers::Plain(own, _)) => own.clone(),
        (None, _) => DataType::F32,
    };
    let layout = Layout::of(&[], &ty).ok_or_else(|| {
        let message = format!("`{from}` holds {ty}, which ops don't compute with");
        Diagnostic::new(&codes::command::WRONG_TYPE, message).with_fix("Give the type that it shall be with --type.")
    })?;
    let filled = data::fill(contents, &layout, cast).map_err(|misfit| misfitting(name, from, misfit))?;
    Ok(Term::array(engine.buffer_of(&filled.bytes)?, ty, (&filled.shape[..]).into()))
}

/// The engine, with one backend where it is named.
fn engine(backend: &str) -> Result<Engine, Failure> {
    let all = Engine::open()?;
    if backend == "auto" {
        return Ok(all);
    }
    known_backend(&all, backend)?;
    let only = all.backend(backend)?;
    Ok(Engine::builder().without_default_backends().with_backend(only, 1).open()?)
}
