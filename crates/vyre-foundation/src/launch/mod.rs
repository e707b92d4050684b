//! From a program and what is bound to it: buffer sizes, workgroup size and grid.

mod access;
mod analysis;
mod domain;
mod extent;
mod facts;
mod forms;
mod freedom;

use std::sync::Arc;

use vyre_spec::{Diagnostic, codes};

pub use self::access::{Access, Writes, access};
pub(crate) use self::analysis::Analyses;
use self::analysis::Analysis;
use self::extent::Bound;
pub use self::freedom::{Freedom, Shapes, freedom};
use crate::ir::{
    BinaryOp, BufferDecl, BufferKind, Count, DataType, Expr, Literal, MATRIX_LANES, Name, Program, Specialization,
    TypeDef, layout_of,
};

/// What a caller may decide about a launch; everything else follows from the program.
#[derive(Clone, Debug, Default)]
pub struct LaunchRequest<'a> {
    /// Bytes of each input, in binding order.
    pub input_bytes: &'a [u64],
    /// Elements of results whose length is open, by buffer name.
    pub output_elements: &'a [(Name, u64)],
    /// Values of specialization constants.
    pub specialization: Option<&'a Specialization>,
    /// Replaces the workgroup size.
    pub workgroup: Option<[u32; 3]>,
    /// Contents of each input, in binding order, where they are at hand: a kernel may compare its ids with a number in one. Empty where
    /// none is.
    pub contents: &'a [Option<&'a [u8]>],
    /// Replaces the number of invocations along each axis; rounded up to whole workgroups.
    pub domain: Option<[u64; 3]>,
    /// Replaces the number of workgroups; comes before `domain`.
    pub grid: Option<[u32; 3]>,
}

/// Sizes of everything in a launch.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchPlan {
    /// Bytes of every buffer, in binding order.
    pub buffer_bytes: Vec<u64>,
    /// Invocations in a workgroup, per axis.
    pub workgroup_size: [u32; 3],
    /// Workgroups, per axis. Any may be zero: then nothing runs.
    pub grid: [u32; 3],
    /// Invocations that have something to do, per axis. The grid is this, rounded up to whole workgroups.
    pub domain: [u64; 3],
    /// Invocations beyond the domain are proven to do nothing, so a larger grid would give the same.
    pub proven: bool,
    /// Where the domain comes from, in a few words, such as `` `id.x < arrayLength(&data)` ``.
    pub origin: Arc<str>,
    /// What is strange about the launch: it reaches only a part of a buffer.
    pub warnings: Vec<Diagnostic>,
}

/// The most invocations that a workgroup can have.
pub const MAX_WORKGROUP_INVOCATIONS: u32 = 1024;

/// Refuses a workgroup that is not whole subgroups, for a program with matrix operations.
pub fn check_matrix_workgroup(size: [u32; 3]) -> Result<(), Diagnostic> {
    let invocations = size.iter().fold(1u64, |product, &n| product.saturating_mul(u64::from(n)));
    if invocations.is_multiple_of(u64::from(MATRIX_LANES)) {
        return Ok(());
    }
    Err(Diagnostic::new(
        &codes::ir::LAUNCH_MATRIX,
        format!(
            "a matrix operation takes whole subgroups of {MATRIX_LANES}; the workgroup has {invocations} invocations"
        ),
    ))
}

/// Computes the sizes of a launch.
///
/// A result of open length has the length that the request gives, else that of the first input of open length. How many invocations there
/// are follows from the request, else from what the program declares, else from what its body does with its ids; where that leaves
/// several answers, or none, the diagnostic says which and asks.
pub fn plan(program: &Program, request: &LaunchRequest<'_>) -> Result<LaunchPlan, Diagnostic> {
    let order = program.binding_order();
    let inputs = order.iter().filter(|&&i| program.buffers()[i].kind.is_input()).count();
    if inputs != request.input_bytes.len() {
        let expected: Vec<_> = order
            .iter()
            .map(|&i| &program.buffers()[i])
            .filter(|buffer| buffer.kind.is_input())
            .map(|buffer| buffer.name.as_str())
            .collect();
        return Err(Diagnostic::new(
            &codes::ir::LAUNCH_INPUT_COUNT,
            format!(
                "{} inputs were given; the program takes {inputs}: {}",
                request.input_bytes.len(),
                expected.join(", ")
            ),
        ));
    }
    let constants = Constants::new(program, request.specialization)?;
    let mut given = request.input_bytes.iter();
    let mut buffer_bytes = Vec::with_capacity(order.len());
    let mut first_open_length = None;
    for &i in &order {
        let buffer = &program.buffers()[i];
        let shape = shape_of(program, i)?;
        let declared = match &buffer.count {
            Count::Runtime => None,
            Count::Fixed(count) => Some(u64::from(*count)),
            Count::Constant(expr) => Some(u64::from(constants.eval(expr, &[])?)),
        };
        let open = declared.is_none() || shape.header > 0;
        if buffer.kind.is_input() {
            let bytes = *given.next().unwrap_or(&0);
            let fits = match declared {
                Some(count) if shape.header == 0 => bytes == shape.bytes_of(count),
                _ => bytes >= u64::from(shape.header) && shape.bytes_of(shape.elements_in(bytes)) == bytes,
            };
            if !fits {
                let wanted = match declared {
                    Some(count) if shape.header == 0 => {
                        let ty = type_name(program, &buffer.ty);
                        format!("{count} elements of {ty}, {} bytes", shape.bytes_of(count))
                    }
                    _ => format!("whole elements of {} bytes", shape.stride),
                };
                return Err(Diagnostic::new(
                    &codes::ir::LAUNCH_INPUT_SIZE,
                    format!("buffer `{}` takes {wanted}, but {bytes} bytes were given", buffer.name),
                ));
            }
            if open && buffer.kind != BufferKind::Uniform && first_open_length.is_none() {
                first_open_length = Some(shape.elements_in(bytes));
            }
            buffer_bytes.push(Some(bytes));
        } else {
            let requested = request.output_elements.iter().find(|(name, _)| *name == buffer.name).map(|(_, n)| *n);
            let count = if open { requested } else { declared };
            buffer_bytes.push(count.map(|count| shape.bytes_of(count)));
        }
    }
    let mut resolved = Vec::with_capacity(order.len());
    for (&i, bytes) in order.iter().zip(buffer_bytes) {
        resolved.push(match bytes {
            Some(bytes) => bytes,
            None => {
                let shape = shape_of(program, i)?;
                let count = first_open_length.ok_or_else(|| {
                    Diagnostic::new(
                        &codes::ir::LAUNCH_UNKNOWN_LENGTH,
                        format!(
                            "the length of buffer `{}` is open and no input has an open length to take it from",
                            program.buffers()[i].name
                        ),
                    )
                })?;
                shape.bytes_of(count)
            }
        });
    }
    let workgroup_size = match request.workgroup {
        Some(size) => size,
        None => workgroup_size(program, request.specialization)?,
    };
    check_workgroup(workgroup_size)?;
    let launch = Launch { program, request, constants: &constants, order: &order, bytes: &resolved, workgroup_size };
    let Extents { domain, proven, grid, origin, warnings } = launch.extents()?;
    Ok(LaunchPlan { buffer_bytes: resolved, workgroup_size, grid, domain, proven, origin, warnings })
}

/// Results whose length the request leaves open, so that [`plan`] has taken it from an input, and of which it is not proven that this
/// holds all that the kernel writes: what it writes beyond would be dropped. Each with that input.
pub fn assumed_lengths(
    program: &Program,
    request: &LaunchRequest<'_>,
    plan: &LaunchPlan,
) -> Result<Vec<(Name, Name)>, Diagnostic> {
    let order = program.binding_order();
    let open = |buffer: &BufferDecl| buffer.count == Count::Runtime && buffer.kind != BufferKind::Uniform;
    let of = |&i: &usize| &program.buffers()[i];
    let Some(like) = order.iter().map(of).find(|buffer| buffer.kind.is_input() && open(buffer)) else {
        return Ok(Vec::new());
    };
    let given = |buffer: &BufferDecl| request.output_elements.iter().any(|(name, _)| *name == buffer.name);
    let assumed = |buffer: &BufferDecl| !buffer.kind.is_input() && open(buffer) && !given(buffer);
    if !order.iter().map(of).any(assumed) {
        return Ok(Vec::new());
    }
    let constants = Constants::new(program, request.specialization)?;
    let LaunchPlan { buffer_bytes: bytes, workgroup_size, .. } = plan;
    let launch =
        Launch { program, request, constants: &constants, order: &order, bytes, workgroup_size: *workgroup_size };
    let valid = program.validate().map_err(|problems| problems[0].clone())?;
    let analysis = Analysis::of(&valid, request.specialization, *workgroup_size)?;
    let mut lengths = Vec::with_capacity(order.len());
    for position in 0..order.len() {
        lengths.push(launch.length(position)?);
    }
    let bound = Bound { lengths: &lengths, contents: &launch.contents() };
    let outside = |position: &usize| !analysis.stays_inside(&bound, *position, plan.domain);
    let results = (0..order.len()).filter(|&position| assumed(of(&order[position])));
    Ok(results.filter(outside).map(|position| (of(&order[position]).name.clone(), like.name.clone())).collect())
}

/// A launch whose buffers are known.
struct Launch<'a> {
    program: &'a Program,
    request: &'a LaunchRequest<'a>,
    constants: &'a Constants<'a>,
    order: &'a [usize],
    bytes: &'a [u64],
    workgroup_size: [u32; 3],
}

struct Extents {
    domain: [u64; 3],
    proven: bool,
    grid: [u32; 3],
    origin: Arc<str>,
    warnings: Vec<Diagnostic>,
}

impl Launch<'_> {
    fn extents(&self) -> Result<Extents, Diagnostic> {
        if let Some(grid) = self.request.grid {
            let domain = std::array::from_fn(|axis| u64::from(grid[axis]) * u64::from(self.workgroup_size[axis]));
            return Ok(Extents { domain, proven: false, grid, origin: "as asked".into(), warnings: Vec::new() });
        }
        let mut warnings = Vec::new();
        let mut proven = false;
        let (domain, origin): ([u64; 3], Arc<str>) = if let Some(domain) = self.request.domain {
            (domain, "as asked".into())
        } else if let Some(declared) = self.declared()? {
            (declared, "declared".into())
        } else {
            let valid = self.program.validate().map_err(|problems| problems[0].clone())?;
            let analysis = Analysis::of(&valid, self.request.specialization, self.workgroup_size)?;
            let mut lengths = Vec::with_capacity(self.order.len());
            for position in 0..self.order.len() {
                lengths.push(self.length(position)?);
            }
            let bound = Bound { lengths: &lengths, contents: &self.contents() };
            let (domain, origin) = analysis.extents(self.program, &bound, self.workgroup_size)?;
            proven = analysis.domain.is_proven();
            warnings = analysis.partial(self.program, &bound, domain);
            (domain, origin.into())
        };
        let mut grid = [0; 3];
        for axis in 0..3 {
            let groups = domain[axis].div_ceil(u64::from(self.workgroup_size[axis]));
            grid[axis] = u32::try_from(groups).map_err(|_| {
                Diagnostic::new(
                    &codes::ir::LAUNCH_DOMAIN,
                    format!("axis {axis} needs {groups} workgroups, for {} invocations ({origin})", domain[axis]),
                )
            })?;
        }
        Ok(Extents { domain, proven, grid, origin, warnings })
    }

    /// Elements of a buffer, by position in binding order.
    fn length(&self, position: usize) -> Result<u64, Diagnostic> {
        Ok(shape_of(self.program, self.order[position])?.elements_in(self.bytes[position]))
    }

    /// What the request has of each buffer's contents, in binding order.
    fn contents(&self) -> Vec<Option<&[u8]>> {
        let mut given = self.request.contents.iter();
        let kinds = self.order.iter().map(|&i| self.program.buffers()[i].kind);
        kinds.map(|kind| if kind.is_input() { given.next().copied().flatten() } else { None }).collect()
    }

    /// The domain that the program declares.
    fn declared(&self) -> Result<Option<[u64; 3]>, Diagnostic> {
        let Some(domain) = self.program.domain() else { return Ok(None) };
        let mut lengths = Vec::with_capacity(self.order.len());
        for (position, &i) in self.order.iter().enumerate() {
            let length = u32::try_from(self.length(position)?).unwrap_or(u32::MAX);
            lengths.push((&self.program.buffers()[i].name, length));
        }
        let mut out = [0; 3];
        for (out, expr) in out.iter_mut().zip(domain) {
            *out = u64::from(self.constants.eval(expr, &lengths)?);
        }
        Ok(Some(out))
    }
}

/// The workgroup size under a specialization.
pub fn workgroup_size(program: &Program, specialization: Option<&Specialization>) -> Result<[u32; 3], Diagnostic> {
    let constants = Constants::new(program, specialization)?;
    let mut size = program.workgroup_size();
    for (size, expr) in size.iter_mut().zip(program.workgroup_exprs()) {
        if let Some(expr) = expr {
            *size = constants.eval(expr, &[])?;
        }
    }
    check_workgroup(size)?;
    Ok(size)
}

fn check_workgroup(size: [u32; 3]) -> Result<(), Diagnostic> {
    let invocations = size.iter().try_fold(1u32, |product, &n| product.checked_mul(n));
    match invocations {
        Some(1..=MAX_WORKGROUP_INVOCATIONS) => Ok(()),
        _ => Err(Diagnostic::new(
            &codes::ir::LAUNCH_WORKGROUP,
            format!("a workgroup of {} x {} x {} invocations can't be launched", size[0], size[1], size[2]),
        )),
    }
}

/// How the elements of a buffer lie in its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferShape {
    /// Bytes before the open array.
    pub header: u32,
    /// Bytes from one element to the next.
    pub stride: u32,
    /// Elements that share `stride` bytes: 2 for the 4-bit types, else 1.
    pub per_stride: u32,
}

impl BufferShape {
    /// Whole elements in so many bytes.
    pub fn elements_in(&self, bytes: u64) -> u64 {
        match bytes.checked_sub(u64::from(self.header)) {
            Some(rest) if self.stride > 0 => rest / u64::from(self.stride) * u64::from(self.per_stride),
            _ => 0,
        }
    }

    /// Bytes that hold so many elements.
    pub fn bytes_of(&self, elements: u64) -> u64 {
        let strides = elements.div_ceil(u64::from(self.per_stride));
        u64::from(self.header).saturating_add(strides.saturating_mul(u64::from(self.stride)))
    }
}

/// A type as the program's source calls it.
fn type_name(program: &Program, ty: &DataType) -> String {
    let DataType::Handle(id) = ty else { return ty.to_string() };
    match program.types().get(id.0 as usize) {
        Some(TypeDef::Struct { name, .. }) => name.to_string(),
        Some(TypeDef::Array { element, count, .. }) => {
            let element = type_name(program, element);
            match count {
                Count::Fixed(count) => format!("array<{element}, {count}>"),
                _ => format!("array<{element}>"),
            }
        }
        None => ty.to_string(),
    }
}

/// The shape of the program's `index`-th buffer.
pub fn shape_of(program: &Program, index: usize) -> Result<BufferShape, Diagnostic> {
    let buffer = &program.buffers()[index];
    let unknown = || {
        Diagnostic::new(
            &codes::ir::LAUNCH_UNKNOWN_LENGTH,
            format!("elements of buffer `{}` have no size: {}", buffer.name, type_name(program, &buffer.ty)),
        )
    };
    if let DataType::Handle(id) = &buffer.ty
        && let Some(TypeDef::Struct { members, .. }) = program.types().get(id.0 as usize)
        && let Some(last) = members.last()
        && let DataType::Handle(tail) = &last.ty
        && let Some(TypeDef::Array { count: Count::Runtime, stride, .. }) = program.types().get(tail.0 as usize)
    {
        return Ok(BufferShape { header: last.offset, stride: *stride, per_stride: 1 });
    }
    let layout = layout_of(&buffer.ty, program.types()).ok_or_else(unknown)?;
    let per_stride = if buffer.ty.bits() == Some(4) { 2 } else { 1 };
    Ok(BufferShape { header: 0, stride: layout.stride, per_stride })
}

/// A program's specialization constants with their values.
pub struct Constants<'a> {
    values: Vec<(&'a Name, Literal)>,
}

impl<'a> Constants<'a> {
    /// Takes the specialization's values and the program's defaults. An unknown name or a wrong type is an error.
    pub fn new(program: &'a Program, specialization: Option<&Specialization>) -> Result<Self, Diagnostic> {
        let declared = program.constants();
        for (name, value) in specialization.into_iter().flatten() {
            let Some(constant) = declared.iter().find(|constant| constant.name == *name) else {
                let names: Vec<_> = declared.iter().map(|constant| constant.name.as_str()).collect();
                let known = if names.is_empty() {
                    "it declares none".to_owned()
                } else {
                    format!("it declares {}", names.join(", "))
                };
                return Err(Diagnostic::new(
                    &codes::ir::SPEC_UNKNOWN,
                    format!("the program has no specialization constant `{name}`; {known}"),
                ));
            };
            if constant.default.data_type() != value.data_type() {
                return Err(Diagnostic::new(
                    &codes::ir::SPEC_TYPE,
                    format!(
                        "specialization constant `{name}` is {}, not {}",
                        constant.default.data_type(),
                        value.data_type()
                    ),
                ));
            }
        }
        let value = |name: &Name| specialization.and_then(|map| map.get(name)).copied();
        let values = declared.iter().map(|c| (&c.name, value(&c.name).unwrap_or(c.default))).collect();
        Ok(Constants { values })
    }

    /// The value of a constant.
    pub fn get(&self, name: &str) -> Option<Literal> {
        self.values.iter().find(|(n, _)| **n == name).map(|(_, value)| *value)
    }

    /// Evaluates a u32 expression of literals, constants and buffer lengths. i32 constants take part with their bits.
    pub fn eval(&self, expr: &Expr, lengths: &[(&Name, u32)]) -> Result<u32, Diagnostic> {
        let unusable =
            || Diagnostic::new(&codes::ir::LAUNCH_DOMAIN, format!("a size expression can't be evaluated: {expr:?}"));
        Ok(match expr {
            Expr::Literal(Literal::U32(value)) => *value,
            Expr::Literal(Literal::I32(value)) => *value as u32,
            Expr::Constant(name) => match self.get(name.as_str()).ok_or_else(unusable)? {
                Literal::U32(value) => value,
                Literal::I32(value) => value as u32,
                _ => return Err(unusable()),
            },
            Expr::Length(name) => lengths.iter().find(|(n, _)| *n == name).ok_or_else(unusable)?.1,
            Expr::Cast { to: DataType::U32 | DataType::I32, value } => self.eval(value, lengths)?,
            Expr::Binary { op, left, right } => {
                let (a, b) = (self.eval(left, lengths)?, self.eval(right, lengths)?);
                match op {
                    BinaryOp::Add => a.wrapping_add(b),
                    BinaryOp::Sub => a.wrapping_sub(b),
                    BinaryOp::Mul => a.wrapping_mul(b),
                    BinaryOp::Div => a.checked_div(b).unwrap_or(a),
                    BinaryOp::Rem => a.checked_rem(b).unwrap_or(0),
                    BinaryOp::Shl => a.wrapping_shl(b),
                    BinaryOp::Shr => a.wrapping_shr(b),
                    _ => return Err(unusable()),
                }
            }
            _ => return Err(unusable()),
        })
    }
}
