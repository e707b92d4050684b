//! From `--in` to the bytes of the kernel's inputs.

use vyre::ir::{AtomicOp, BufferDecl, BufferKind, Count, Expr, Node, Program};
use vyre::{DataType, Diagnostic, codes};

use crate::args::Inputs;
use crate::data::{self, Layout, Misfit, Numbers, Place};
use crate::report::{repeated, split};
use crate::shapes::{Filled, Shapes};
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

/// A uniform, or one struct or number that the kernel only reads.
pub(crate) fn is_parameter(buffer: &BufferDecl) -> bool {
    buffer.kind == BufferKind::Uniform || (buffer.kind == BufferKind::Read && buffer.count == Count::Fixed(1))
}

/// From what `--in` says to the bytes of inputs.
pub(crate) struct Reading<'a> {
    pub(crate) source: &'a Source,
    pub(crate) given: &'a [(String, Given<'a>)],
    pub(crate) cast: bool,
    /// Values that disagree with a shape are meant.
    pub(crate) force: bool,
}

impl Reading<'_> {
    fn given(&self, name: &str) -> (Option<&str>, &[(&str, &str)]) {
        let given = self.given.iter().find(|(known, _)| known == name).map(|(_, given)| given);
        given.map_or((None, &[]), |given| (given.whole, &given.members))
    }

    /// How many bytes an input will have, before it is made: those of generators are known, and of other open inputs none are counted.
    pub(crate) fn expected_bytes(&self, buffer: &BufferDecl) -> u64 {
        let Some(layout) = Layout::of(self.source.program.types(), &buffer.ty) else { return 0 };
        if let Count::Fixed(count) = buffer.count {
            return u64::from(count) * layout.size as u64;
        }
        let ty = &layout.fields[0].ty;
        let bytes = self.given(buffer.name.as_str()).0.and_then(|from| data::generated_bytes(from, ty));
        let elements = bytes.unwrap_or(0) / (data::width(ty) * layout.fields.len()) as u64;
        elements.saturating_mul(layout.size as u64)
    }

    /// The bytes of an array, and its shape where it has one.
    pub(crate) fn input(
        &self,
        buffer: &BufferDecl,
        shapes: &mut Vec<(String, Vec<usize>)>,
    ) -> Result<Vec<u8>, Diagnostic> {
        let name = buffer.name.as_str();
        let told = |diagnostic| self.source.declaration(diagnostic, name);
        let (whole, members) = self.given(name);
        let Some(layout) = Layout::of(self.source.program.types(), &buffer.ty) else {
            let Some(from) = whole.filter(|_| members.is_empty()) else {
                return Err(told(missing(name, &example(buffer, None))));
            };
            return opaque(buffer, from).map_err(told);
        };
        if let (None, false) = (whole, members.is_empty()) {
            return self.parameters(buffer, &Shapes::none(), &mut Vec::new());
        }
        let Some(from) = whole else {
            let elements = match &buffer.count {
                Count::Fixed(count) => Some(*count as usize),
                _ => shape_of(name, shapes).map(|numbers| numbers / layout.fields.len()),
            };
            return match (is_only_counted_into(&self.source.program, name), elements) {
                (true, Some(elements)) => Ok(vec![0; elements * layout.size]),
                (true, None) => {
                    let message = format!("how many elements has `{name}`? The kernel only counts into it, from zero");
                    let cure = format!("Give its length, for example `--shape {name}={}`.", 256 * layout.fields.len());
                    Err(told(Diagnostic::new(&codes::command::MISSING_INPUT, message).with_fix(cure)))
                }
                (false, _) => Err(told(missing(name, &example(buffer, Some(&layout))))),
            };
        };
        let filled = self.whole(buffer, &layout, from)?;
        if filled.shape.len() > 1 && !shapes.iter().any(|(known, _)| known == name) {
            shapes.push((name.to_owned(), filled.shape));
        }
        if members.is_empty() {
            return Ok(filled.bytes);
        }
        let mut bytes = filled.bytes;
        self.members(buffer, &layout, &mut bytes)?;
        Ok(bytes)
    }

    /// The bytes of a uniform or a single struct; what was not set and is named for a part of a shape is taken from there.
    pub(crate) fn parameters(
        &self,
        buffer: &BufferDecl,
        told: &Shapes,
        filled: &mut Vec<Filled>,
    ) -> Result<Vec<u8>, Diagnostic> {
        let name = buffer.name.as_str();
        let Some(layout) = Layout::of(self.source.program.types(), &buffer.ty) else {
            return self.input(buffer, &mut Vec::new());
        };
        let (whole, members) = self.given(name);
        let mut bytes = match whole {
            Some(from) => self.whole(buffer, &layout, from)?.bytes,
            None => vec![0; layout.size],
        };
        let mut set = vec![whole.is_some(); layout.fields.len()];
        if !members.is_empty() {
            for at in self.members(buffer, &layout, &mut bytes)? {
                set[at] = true;
            }
        }
        let single = bytes.len() == layout.size;
        for (field, set) in layout.fields.iter().zip(&mut set).filter(|_| single) {
            let (word, full) = match field.name.as_str() {
                "" => (name, name.to_owned()),
                member => (member.rsplit('.').next().unwrap_or(member), format!("{name}.{member}")),
            };
            let range = field.offset..field.offset + data::width(&field.ty);
            let located = |problem| self.source.declaration(problem, name);
            if *set {
                let value = data::Number::read(&bytes[range], &field.ty).map(data::Number::real);
                if let Some(value) = value.filter(|_| !self.force) {
                    told.agree(word, &full, value).map_err(located)?;
                }
            } else if let Some(one) = told.fill(word, &full, false).map_err(located)? {
                let bits = data::Number::Whole(one.value as i128).bits(&field.ty, data::Fit::Exact).map_err(|why| {
                    let message =
                        format!("`{full}` should be {}, which the shape of `{}` says: {why}", one.value, one.from);
                    located(Diagnostic::new(&codes::command::WRONG_TYPE, message))
                })?;
                bytes[range].copy_from_slice(&bits.to_le_bytes()[..data::width(&field.ty)]);
                *set = true;
                filled.push(one);
            }
        }
        self.check_set(buffer, &layout, &set)?;
        Ok(bytes)
    }

    /// What was given for all of a buffer.
    fn whole(&self, buffer: &BufferDecl, layout: &Layout, from: &str) -> Result<data::Filled, Diagnostic> {
        let name = buffer.name.as_str();
        let told = |diagnostic| self.source.declaration(diagnostic, name);
        let only = layout.fields.iter().all(|field| field.ty == layout.fields[0].ty);
        let contents = data::read(from, only.then_some(&layout.fields[0].ty))?;
        let filled = data::fill(contents, layout, self.cast).map_err(|misfit| told(misfitting(name, from, misfit)))?;
        let elements = filled.bytes.len() / layout.size.max(1);
        if let Count::Fixed(wanted) = buffer.count
            && wanted as usize != elements
        {
            let numbers = |elements: usize| if layout.is_struct { elements } else { elements * layout.fields.len() };
            let what = if layout.is_struct { "structs" } else { "numbers" };
            let wanted = numbers(wanted as usize);
            let message = format!("input `{name}` has {wanted} {what}, but `{from}` has {}", numbers(elements));
            return Err(told(Diagnostic::new(&codes::command::WRONG_LENGTH, message)));
        }
        Ok(filled)
    }

    /// Sets the members that were given one by one; which they are.
    fn members(&self, buffer: &BufferDecl, layout: &Layout, bytes: &mut [u8]) -> Result<Vec<usize>, Diagnostic> {
        let name = buffer.name.as_str();
        let told = |diagnostic| self.source.declaration(diagnostic, name);
        let several = !matches!(buffer.count, Count::Fixed(1) | Count::Runtime);
        if bytes.len() != layout.size || several || !layout.is_struct {
            let message = format!("input `{name}` is not one struct, so that its members can't be set one by one");
            return Err(told(
                Diagnostic::new(&codes::command::BAD_ARGUMENT, message).with_fix("Give all of it with --in NAME=FILE."),
            ));
        }
        let mut set = Vec::new();
        for (member, from) in self.given(name).1 {
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
            let filled =
                data::fill(contents, &part, self.cast).map_err(|misfit| told(misfitting(&whole, from, misfit)))?;
            if filled.bytes.len() != layout.size {
                let message =
                    format!("`{whole}` takes {} numbers, and `{from}` has another number of them", places.len());
                return Err(told(Diagnostic::new(&codes::command::WRONG_LENGTH, message)));
            }
            for at in places {
                let field = &layout.fields[at];
                let range = field.offset..field.offset + data::width(&field.ty);
                bytes[range.clone()].copy_from_slice(&filled.bytes[range]);
                set.push(at);
            }
        }
        Ok(set)
    }

    /// Refuses a parameter that has no value for one of its numbers.
    fn check_set(&self, buffer: &BufferDecl, layout: &Layout, set: &[bool]) -> Result<(), Diagnostic> {
        let name = buffer.name.as_str();
        let told = |diagnostic| self.source.declaration(diagnostic, name);
        let fields = layout.fields.iter().zip(set);
        let unset: Vec<&str> = fields.filter(|(_, set)| !**set).map(|(field, _)| field.name.as_str()).collect();
        if unset.is_empty() {
            return Ok(());
        }
        if unset.len() == set.len() {
            return Err(told(missing(name, &example(buffer, Some(layout)))));
        }
        let message = format!("input `{name}` has no contents for {}", unset.join(", "));
        let fixes: Vec<String> = unset.iter().take(4).map(|field| format!("--in {name}.{field}=1")).collect();
        let problem = Diagnostic::new(&codes::command::MISSING_INPUT, message);
        Err(told(problem.with_fix(format!("Give them, for example `{}`.", fixes.join(" ")))))
    }
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
