//! From `--in` to the bytes of the kernel's inputs.

use vyre::ir::{AtomicOp, BufferDecl, BufferKind, Count, Expr, Node, Program};
use vyre::{DataType, Diagnostic, codes};

use crate::args::Inputs;
use crate::data::{self, Layout, Misfit, Numbers, Place};
use crate::report::{repeated, split};
use crate::source::{Source, nearest};

/// What `--in` says of one buffer.
#[derive(Default)]
pub(crate) struct Given<'a> {
    whole: Option<&'a str>,
    members: Vec<(&'a str, &'a str)>,
}

/// What `--in` says, by buffer.
pub(crate) fn given<'a>(
    source: &Source,
    inputs: &'a Inputs,
    problems: &mut Vec<Diagnostic>,
) -> Vec<(String, Given<'a>)> {
    let mut all: Vec<(String, Given<'a>)> = Vec::new();
    let mut standard = 0;
    for text in &inputs.inputs {
        let (name, from) = match split("--in", text) {
            Ok(pair) => pair,
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        let (buffer, member) = match name.find(['.', '[']) {
            Some(at) if name[at..].starts_with('.') => (&name[..at], Some(&name[at + 1..])),
            Some(at) => (&name[..at], Some(&name[at..])),
            None => (name, None),
        };
        if let Err(problem) = source.buffer(buffer, BufferKind::is_input, "an input") {
            problems.push(problem);
            continue;
        }
        standard += usize::from(Place::new(from).is_standard());
        if standard == 2 {
            let message = "standard input can be read only once, and two inputs are `-`";
            problems.push(Diagnostic::new(&codes::command::BAD_ARGUMENT, message));
        }
        let at = all.iter().position(|(known, _)| known == buffer).unwrap_or_else(|| {
            all.push((buffer.to_owned(), Given::default()));
            all.len() - 1
        });
        let given = &mut all[at].1;
        let twice = match member {
            None => given.whole.replace(from).is_some(),
            Some(member) => {
                let twice = given.members.iter().any(|(known, _)| *known == member);
                given.members.push((member, from));
                twice
            }
        };
        if twice {
            problems.push(repeated("--in", name));
        }
    }
    all
}

/// What could be given for a buffer.
fn example(buffer: &BufferDecl, layout: Option<&Layout>) -> String {
    let name = &buffer.name;
    let Some(layout) = layout else { return format!("--in {name}=raw:FILE") };
    if layout.is_struct {
        let members: Vec<String> = match &buffer.count {
            Count::Fixed(1) => {
                layout.fields.iter().take(4).map(|field| format!("--in {name}.{}=1", field.name)).collect()
            }
            _ => vec![format!("--in {name}=FILE.csv")],
        };
        return members.join(" ");
    }
    let ty = &layout.fields[0].ty;
    match &buffer.count {
        Count::Fixed(count) if *count as usize * layout.fields.len() <= 4 => {
            let list: Vec<&str> = (0..*count as usize * layout.fields.len()).map(|_| "1").collect();
            format!("--in {name}={}", list.join(","))
        }
        Count::Fixed(count) => format!("--in {name}=random:{ty}:{}", *count as usize * layout.fields.len()),
        _ => format!("--in {name}=random:{ty}:{}", 1000 * layout.fields.len()),
    }
}

/// The bytes of one input.
pub(crate) fn input(
    source: &Source,
    buffer: &BufferDecl,
    given: &Given<'_>,
    cast: bool,
    shapes: &mut Vec<(String, Vec<usize>)>,
) -> Result<Vec<u8>, Diagnostic> {
    let name = buffer.name.as_str();
    let told = |diagnostic| source.declaration(diagnostic, name);
    let layout = Layout::of(source.program.types(), &buffer.ty);
    let Some(layout) = layout else {
        let Some(from) = given.whole.filter(|_| given.members.is_empty()) else {
            return Err(told(missing(name, &example(buffer, None))));
        };
        return opaque(buffer, from).map_err(told);
    };
    let fields = layout.fields.len();
    let wanted = match &buffer.count {
        Count::Fixed(count) => Some(*count as usize),
        _ => None,
    };
    let mut bytes = match given.whole {
        Some(from) => {
            let only = layout.fields.iter().all(|field| field.ty == layout.fields[0].ty);
            let contents = data::read(from, only.then_some(&layout.fields[0].ty))?;
            let filled = data::fill(contents, &layout, cast).map_err(|misfit| told(misfitting(name, from, misfit)))?;
            let elements = filled.bytes.len() / layout.size.max(1);
            if wanted.is_some_and(|wanted| wanted != elements) {
                let numbers = |elements: usize| if layout.is_struct { elements } else { elements * fields };
                let what = if layout.is_struct { "structs" } else { "numbers" };
                let wanted = numbers(wanted.unwrap_or(0));
                let message = format!("input `{name}` has {wanted} {what}, but `{from}` has {}", numbers(elements));
                return Err(told(Diagnostic::new(&codes::command::WRONG_LENGTH, message)));
            }
            if filled.shape.len() > 1 && !shapes.iter().any(|(known, _)| known == name) {
                shapes.push((name.to_owned(), filled.shape));
            }
            filled.bytes
        }
        None if given.members.is_empty() => {
            let elements = wanted.or_else(|| shape_of(name, shapes).map(|numbers| numbers / fields));
            match elements.filter(|_| is_only_counted_into(&source.program, name)) {
                Some(elements) => vec![0; elements * layout.size],
                None => return Err(told(missing(name, &example(buffer, Some(&layout))))),
            }
        }
        None => vec![0; layout.size],
    };
    if given.members.is_empty() {
        return Ok(bytes);
    }
    if bytes.len() != layout.size || wanted.is_some_and(|wanted| wanted != 1) || !layout.is_struct {
        let message = format!("input `{name}` is not one struct, so that its members can't be set one by one");
        return Err(told(
            Diagnostic::new(&codes::command::BAD_ARGUMENT, message).with_fix("Give all of it with --in NAME=FILE."),
        ));
    }
    let mut set = vec![given.whole.is_some(); fields];
    for (member, from) in &given.members {
        let places = layout.named(member);
        if places.is_empty() {
            let known = layout.members();
            let hint = match nearest(member, &known) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("it has {}", known.join(", ")),
            };
            let message = format!("`{member}` is no member of `{name}`; {hint}");
            return Err(told(Diagnostic::new(&codes::command::UNKNOWN_NAME, message)));
        }
        let part = Layout {
            fields: places.iter().map(|&at| layout.fields[at].clone()).collect(),
            size: layout.size,
            is_struct: false,
        };
        let contents = data::read(from, Some(&part.fields[0].ty))?;
        let whole = format!("{name}.{member}");
        let filled = data::fill(contents, &part, cast).map_err(|misfit| told(misfitting(&whole, from, misfit)))?;
        if filled.bytes.len() != layout.size {
            let message = format!("`{whole}` takes {} numbers, and `{from}` has another number of them", places.len());
            return Err(told(Diagnostic::new(&codes::command::WRONG_LENGTH, message)));
        }
        for at in places {
            let field = &layout.fields[at];
            let range = field.offset..field.offset + data::width(&field.ty);
            bytes[range.clone()].copy_from_slice(&filled.bytes[range]);
            set[at] = true;
        }
    }
    let unset: Vec<&str> =
        layout.fields.iter().zip(&set).filter(|(_, set)| !**set).map(|(field, _)| field.name.as_str()).collect();
    if !unset.is_empty() {
        let message = format!("input `{name}` has no contents for {}", unset.join(", "));
        let fixes: Vec<String> = unset.iter().take(4).map(|field| format!("--in {name}.{field}=1")).collect();
        let problem = Diagnostic::new(&codes::command::MISSING_INPUT, message);
        return Err(told(problem.with_fix(format!("Give them, for example `{}`.", fixes.join(" ")))));
    }
    Ok(bytes)
}

fn missing(name: &str, example: &str) -> Diagnostic {
    let message = format!("input `{name}` has no contents");
    Diagnostic::new(&codes::command::MISSING_INPUT, message).with_fix(format!("Give them, for example `{example}`."))
}

pub(crate) fn misfitting(name: &str, from: &str, misfit: Misfit) -> Diagnostic {
    let (code, why) = match misfit {
        Misfit::Type(why) => (&codes::command::WRONG_TYPE, why),
        Misfit::Length(why) => (&codes::command::WRONG_LENGTH, why),
        Misfit::Name(why) => (&codes::command::UNKNOWN_NAME, why),
    };
    let problem = Diagnostic::new(code, format!("input `{name}` from `{from}`: {why}"));
    if code.id == codes::command::WRONG_TYPE.id {
        return problem.with_fix("Give --cast to convert the numbers all the same, or change the file or the kernel.");
    }
    problem
}

/// Elements that are no numbers come as bytes, which NumPy may hold as u8.
fn opaque(buffer: &BufferDecl, from: &str) -> Result<Vec<u8>, Diagnostic> {
    let bytes = match data::read(from, Some(&buffer.ty))?.numbers {
        Numbers::Raw(bytes) | Numbers::Plain(DataType::U8, bytes) => bytes,
        _ => {
            let message =
                format!("input `{}` is made of what is no plain number, and `{from}` holds numbers", buffer.name);
            return Err(Diagnostic::new(&codes::command::WRONG_TYPE, message)
                .with_fix(format!("Give its bytes: --in {}=raw:FILE.", buffer.name)));
        }
    };
    if let (Count::Fixed(count), Some(bits)) = (&buffer.count, buffer.ty.bits()) {
        let wanted = (u64::from(*count) * u64::from(bits)).div_ceil(8);
        if bytes.len() as u64 != wanted {
            let message = format!("input `{}` has {wanted} bytes, but `{from}` has {}", buffer.name, bytes.len());
            return Err(Diagnostic::new(&codes::command::WRONG_LENGTH, message));
        }
    }
    Ok(bytes)
}

fn shape_of(name: &str, shapes: &[(String, Vec<usize>)]) -> Option<usize> {
    shapes.iter().find(|(known, _)| known == name).map(|(_, shape)| shape.iter().product())
}

/// The kernel only adds to a buffer, or sets bits and maxima in it: such counters start at zero when nobody says otherwise.
fn is_only_counted_into(program: &Program, name: &str) -> bool {
    fn loads(expr: &Expr, name: &str) -> bool {
        let mut found = matches!(expr, Expr::Load { buffer, .. } if buffer == name);
        expr.for_each_child(|child| found |= loads(child, name));
        found
    }
    fn reads(list: &[Node], name: &str, counts: &mut bool) -> bool {
        list.iter().any(|node| {
            let mut found = false;
            if let Node::Atomic { op, buffer, .. } = node
                && buffer == name
            {
                match op {
                    AtomicOp::Add | AtomicOp::Sub | AtomicOp::Or | AtomicOp::Xor | AtomicOp::Max => *counts = true,
                    AtomicOp::Store => {}
                    _ => found = true,
                }
            }
            node.for_each_expr(|expr| found |= loads(expr, name));
            node.for_each_list(|list| found |= reads(list, name, counts));
            found
        })
    }
    let mut counts = false;
    let read = reads(program.body(), name, &mut counts)
        || program.functions().iter().any(|function| reads(&function.body, name, &mut counts));
    counts && !read
}
