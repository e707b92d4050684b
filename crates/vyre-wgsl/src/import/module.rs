//! The module's types, constants and buffers, and the program that they and the entry point make.

use std::collections::{BTreeMap, HashMap};

use naga::proc::Layouter;
use naga::valid::ModuleInfo;
use naga::{
    AddressSpace, ArraySize, GlobalVariable, Handle, Module, Override, Scalar, ScalarKind, Span, StorageAccess, Type,
    TypeInner,
};
use vyre_foundation::ir::{
    BufferDecl, BufferKind, Count, DataType, Expr, Function, Literal, Member, Name, Node, Program, SpecConstant,
    TypeDef, TypeId, layout_of,
};
use vyre_spec::{Diagnostic, codes};

use super::SourceText;
use super::function::FunctionCx;
use super::names::Names;
use super::uses::ModuleUses;

/// A problem has been recorded; what depends on the failed part is skipped silently.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failed;

/// Result of translating a part.
pub(super) type Res<T> = Result<T, Failed>;

/// Sources that keep finding new problems are cut off.
const MAX_PROBLEMS: usize = 50;

/// A global variable that is a buffer of the program.
#[derive(Clone)]
pub(super) struct Buffer {
    pub(super) name: Name,
    /// The first index of a path is the buffer's element; else the buffer has one element.
    pub(super) by_element: bool,
    /// The array is the only member of a struct, as SPIR-V wants it; the buffer is the array.
    pub(super) wrapped: bool,
    pub(super) kind: BufferKind,
    ty: DataType,
    count: Count,
    read: bool,
    /// The kind follows from how the buffer is used.
    inferred: bool,
}

pub(super) struct Importer<'a> {
    pub(super) module: &'a Module,
    pub(super) info: &'a ModuleInfo,
    /// Values for overrides without a default.
    overrides: &'a BTreeMap<String, f64>,
    pub(super) uses: ModuleUses,
    pub(super) names: Names,
    pub(super) functions: Vec<Function>,
    pub(super) translated: HashMap<Handle<naga::Function>, Name>,
    /// How many calls deep the function being translated is.
    pub(super) depth: u32,
    text: SourceText<'a>,
    layouter: Layouter,
    types: Vec<TypeDef>,
    type_ids: HashMap<TypeDef, TypeId>,
    struct_names: Names,
    known_types: HashMap<Handle<Type>, DataType>,
    constants: BTreeMap<Handle<Override>, Expr>,
    spec_constants: Vec<SpecConstant>,
    buffers: BTreeMap<Handle<GlobalVariable>, Buffer>,
    problems: Vec<Diagnostic>,
}

impl<'a> Importer<'a> {
    pub(super) fn new(
        module: &'a Module,
        info: &'a ModuleInfo,
        text: SourceText<'a>,
        overrides: &'a BTreeMap<String, f64>,
    ) -> Self {
        Importer {
            module,
            info,
            overrides,
            uses: ModuleUses::new(module),
            names: Names::default(),
            functions: Vec::new(),
            translated: HashMap::new(),
            depth: 0,
            text,
            layouter: Layouter::default(),
            types: Vec::new(),
            type_ids: HashMap::new(),
            struct_names: Names::default(),
            known_types: HashMap::new(),
            constants: BTreeMap::new(),
            spec_constants: Vec::new(),
            buffers: BTreeMap::new(),
            problems: Vec::new(),
        }
    }

    pub(super) fn run(mut self, entry: usize) -> Result<Program, Vec<Diagnostic>> {
        let program = self.program(entry);
        match program {
            Ok(program) if self.problems.is_empty() => Ok(program),
            _ => Err(self.problems),
        }
    }

    fn program(&mut self, entry: usize) -> Res<Program> {
        if let Err(error) = self.layouter.update(self.module.to_ctx()) {
            let diagnostic = Diagnostic::new(&codes::wgsl::WGSL_INVALID, error.to_string());
            return self.fail_with(diagnostic, Span::UNDEFINED);
        }
        // Overrides and buffers keep their names where functions and variables want the same.
        for (handle, constant) in self.module.overrides.iter() {
            if constant.name.is_some() {
                // One without a default may belong to another entry point; where it is used, that is said then.
                if self.module.entry_points.len() == 1 || constant.init.is_some() {
                    let _ = self.constant(handle);
                }
            }
        }
        let point = &self.module.entry_points[entry];
        self.names.fresh(&point.name);
        let resources = self.uses.entry(self.module, &point.function).resources;
        for (global, loaded) in resources {
            if self.buffer(global).is_ok() && loaded {
                self.mark_read(global);
            }
        }
        let body = FunctionCx::entry(self, entry)?;
        let (size, exprs) = self.workgroup_size(entry)?;
        let domain = self.domain()?;
        let buffers = self.take_buffers();
        let mut program = Program::wrapped(buffers, size, body);
        if let Some(domain) = domain {
            program = program.with_domain(domain);
        }
        Ok(program
            .with_name(point.name.as_str())
            .with_types(std::mem::take(&mut self.types))
            .with_constants(std::mem::take(&mut self.spec_constants))
            .with_functions(std::mem::take(&mut self.functions))
            .with_workgroup_exprs(exprs))
    }

    fn workgroup_size(&mut self, entry: usize) -> Res<([u32; 3], [Option<Expr>; 3])> {
        let point = &self.module.entry_points[entry];
        let mut exprs = [None, None, None];
        if let Some(overrides) = point.workgroup_size_overrides {
            for (slot, handle) in exprs.iter_mut().zip(overrides) {
                if let Some(handle) = handle {
                    *slot = Some(self.size_expr(handle)?);
                }
            }
        }
        let mut size = point.workgroup_size;
        size.iter_mut().zip(&exprs).for_each(|(size, expr)| {
            if expr.is_some() {
                *size = 1;
            }
        });
        Ok((size, exprs))
    }

    /// A size given by an expression of the module; i32 ones count as u32.
    fn size_expr(&mut self, handle: Handle<naga::Expression>) -> Res<Expr> {
        let value = self.global_expr(handle)?;
        let signed = matches!(
            self.info[handle].inner_with(&self.module.types),
            TypeInner::Scalar(Scalar { kind: ScalarKind::Sint, .. })
        );
        Ok(if signed { value.cast(DataType::U32) } else { value })
    }

    fn take_buffers(&mut self) -> Vec<BufferDecl> {
        let module = self.module;
        std::mem::take(&mut self.buffers)
            .into_iter()
            .map(|(handle, buffer)| {
                let binding = module.global_variables[handle].binding;
                let kind = match buffer.kind {
                    BufferKind::ReadWrite if buffer.inferred && !buffer.read => BufferKind::Output,
                    kind => kind,
                };
                BufferDecl {
                    name: buffer.name,
                    group: binding.map_or(0, |binding| binding.group),
                    binding: binding.map_or(0, |binding| binding.binding),
                    kind,
                    ty: buffer.ty,
                    count: buffer.count,
                }
            })
            .collect()
    }

    /// Records a problem.
    pub(super) fn problem(&mut self, diagnostic: Diagnostic, span: Span) {
        if self.problems.len() < MAX_PROBLEMS {
            let diagnostic = self.text.mark(diagnostic, span);
            if !self.problems.contains(&diagnostic) {
                self.problems.push(diagnostic);
            }
        }
    }

    fn fail_with<T>(&mut self, diagnostic: Diagnostic, span: Span) -> Res<T> {
        self.problem(diagnostic, span);
        Err(Failed)
    }

    /// Records that a feature has no meaning here.
    pub(super) fn unsupported<T>(&mut self, what: impl std::fmt::Display, span: Span) -> Res<T> {
        self.fail_with(Diagnostic::new(&codes::wgsl::WGSL_UNSUPPORTED, format!("{what} can't be imported")), span)
    }

    /// Whether the source is WGSL text.
    pub(super) fn is_text(&self) -> bool {
        self.text.text.is_some()
    }

    /// Whether translation went wrong so far.
    pub(super) fn has_problems(&self) -> bool {
        !self.problems.is_empty()
    }

    /// The type that a scalar of naga's is.
    pub(super) fn scalar(&mut self, scalar: Scalar, span: Span) -> Res<DataType> {
        match scalar_type(scalar) {
            Some(ty) => Ok(ty),
            None => self.unsupported(format_args!("the type {}", scalar_name(scalar)), span),
        }
    }

    /// The type that a naga type is.
    pub(super) fn ty(&mut self, handle: Handle<Type>, span: Span) -> Res<DataType> {
        if let Some(known) = self.known_types.get(&handle) {
            return Ok(known.clone());
        }
        let ty = &self.module.types[handle];
        let own_span = self.module.types.get_span(handle);
        let span = if own_span.is_defined() { own_span } else { span };
        let made = match ty.inner {
            TypeInner::Array { base, size, stride } => {
                let element = self.ty(base, span)?;
                let count = self.count(size)?;
                let stride = if self.holds_bool(base) { self.stride_of(&element, stride) } else { stride };
                self.define(TypeDef::Array { element, count, stride })
            }
            TypeInner::Struct { ref members, span: size } => {
                let mut defined = Vec::with_capacity(members.len());
                let mut names = Names::default();
                let mut parts = Vec::new();
                if self.holds_bool(handle) {
                    // Bools never reach the host from WGSL, so naga's bytes for them are not ours.
                    for (i, member) in members.iter().enumerate() {
                        let wanted = member.name.clone().unwrap_or_else(|| format!("m{i}"));
                        let ty = self.ty(member.ty, span)?;
                        parts.push((names.fresh(&wanted), ty));
                    }
                    let made = self.record(ty.name.as_deref().unwrap_or("Struct"), parts);
                    self.known_types.insert(handle, made.clone());
                    return Ok(made);
                }
                for (i, member) in members.iter().enumerate() {
                    let wanted = member.name.clone().unwrap_or_else(|| format!("m{i}"));
                    let ty = self.ty(member.ty, span)?;
                    defined.push(Member { name: names.fresh(&wanted), ty, offset: member.offset });
                }
                let size = if self.is_open(handle) { members.last().map_or(size, |last| last.offset) } else { size };
                let align = self.layouter[handle].alignment.round_up(1);
                let name = self.struct_names.fresh(ty.name.as_deref().unwrap_or("Struct"));
                let id = TypeId(self.types.len() as u32);
                self.types.push(TypeDef::Struct { name, members: defined, size, align });
                DataType::Handle(id)
            }
            ref inner => self.inner_type(inner, span)?,
        };
        self.known_types.insert(handle, made.clone());
        Ok(made)
    }

    /// The type that one without a handle is.
    pub(super) fn inner_type(&mut self, inner: &TypeInner, span: Span) -> Res<DataType> {
        match *inner {
            TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) => self.scalar(scalar, span),
            TypeInner::Vector { size, scalar } => Ok(DataType::vector(self.scalar(scalar, span)?, size.into())),
            TypeInner::Matrix { columns, rows, scalar } => {
                let column = DataType::vector(self.scalar(scalar, span)?, rows.into());
                let stride = layout_of(&column, &[]).map_or(0, |layout| layout.stride);
                Ok(self.define(TypeDef::Array { element: column, count: Count::Fixed(columns.into()), stride }))
            }
            ref other => self.unsupported(describe(other), span),
        }
    }

    /// A struct that no source type stands for: the results of a function with pointer arguments.
    pub(super) fn record(&mut self, name: &str, parts: Vec<(Name, DataType)>) -> DataType {
        let mut offset = 0u32;
        let mut align = 1;
        let mut members = Vec::with_capacity(parts.len());
        for (name, ty) in parts {
            let layout = layout_of(&ty, &self.types);
            let (size, part_align) = layout.map_or((4, 4), |layout| (layout.size, layout.align.max(1)));
            offset = offset.next_multiple_of(part_align);
            members.push(Member { name, ty, offset });
            offset = offset.saturating_add(size);
            align = align.max(part_align);
        }
        let name = self.struct_names.fresh(name);
        let id = TypeId(self.types.len() as u32);
        self.types.push(TypeDef::Struct { name, members, size: offset.next_multiple_of(align), align });
        DataType::Handle(id)
    }

    /// A struct that ends in an array of open length.
    fn is_open(&self, handle: Handle<Type>) -> bool {
        let TypeInner::Struct { ref members, .. } = self.module.types[handle].inner else { return false };
        members.last().is_some_and(|last| {
            matches!(self.module.types[last.ty].inner, TypeInner::Array { size: ArraySize::Dynamic, .. })
        })
    }

    /// The array of open length that is all a struct has.
    fn wrapped_array(&self, handle: Handle<Type>) -> Option<Handle<Type>> {
        match self.module.types[handle].inner {
            TypeInner::Struct { ref members, .. } if members.len() == 1 && self.is_open(handle) => Some(members[0].ty),
            _ => None,
        }
    }

    fn stride_of(&self, element: &DataType, otherwise: u32) -> u32 {
        layout_of(element, &self.types).map_or(otherwise, |layout| layout.stride)
    }

    fn holds_bool(&self, handle: Handle<Type>) -> bool {
        match self.module.types[handle].inner {
            TypeInner::Scalar(scalar) | TypeInner::Vector { scalar, .. } => scalar.kind == ScalarKind::Bool,
            TypeInner::Array { base, .. } => self.holds_bool(base),
            TypeInner::Struct { ref members, .. } => members.iter().any(|member| self.holds_bool(member.ty)),
            _ => false,
        }
    }

    fn define(&mut self, def: TypeDef) -> DataType {
        let next = TypeId(self.types.len() as u32);
        let id = *self.type_ids.entry(def.clone()).or_insert(next);
        if id == next {
            self.types.push(def);
        }
        DataType::Handle(id)
    }

    fn count(&mut self, size: ArraySize) -> Res<Count> {
        Ok(match size {
            ArraySize::Constant(count) => Count::Fixed(count.get()),
            ArraySize::Dynamic => Count::Runtime,
            ArraySize::Pending(handle) => {
                let signed = matches!(
                    self.module.types[self.module.overrides[handle].ty].inner,
                    TypeInner::Scalar(Scalar { kind: ScalarKind::Sint, .. })
                );
                let value = self.constant(handle)?;
                Count::Constant(Box::new(if signed { value.cast(DataType::U32) } else { value }))
            }
        })
    }

    /// The launch domain, where a function `vyre_domain` gives it.
    fn domain(&mut self) -> Res<Option<[Expr; 3]>> {
        let module = self.module;
        let found = module.functions.iter().find(|(_, function)| {
            function.name.as_deref() == Some("vyre_domain")
                && function.arguments.is_empty()
                && function.result.as_ref().is_some_and(|result| {
                    let vector = TypeInner::Vector { size: naga::VectorSize::Tri, scalar: Scalar::U32 };
                    module.types[result.ty].inner == vector
                })
        });
        let Some((handle, function)) = found else { return Ok(None) };
        let nodes = FunctionCx::lone(self, handle)?;
        if let [Node::Return(Some(Expr::Construct { parts, .. }))] = nodes.as_slice()
            && let [x, y, z] = parts.as_slice()
        {
            return Ok(Some([x.clone(), y.clone(), z.clone()]));
        }
        let span = function.body.span_iter().next().map_or(Span::UNDEFINED, |(_, span)| *span);
        self.unsupported("a `vyre_domain` that does more than return `vec3<u32>(x, y, z)`", span)
    }

    /// What a comment `vyre: …` on the line of a declaration says.
    fn note(&self, span: Span) -> Option<&'a str> {
        let (text, range) = (self.text.text?, span.to_range()?);
        let rest = text.get(range.end..)?.lines().next()?;
        Some(rest.split_once("// vyre:")?.1.trim())
    }

    /// The buffer that a global variable is.
    pub(super) fn buffer(&mut self, handle: Handle<GlobalVariable>) -> Res<Buffer> {
        if let Some(buffer) = self.buffers.get(&handle) {
            return Ok(buffer.clone());
        }
        let global = &self.module.global_variables[handle];
        let span = self.module.global_variables.get_span(handle);
        let kind = match global.space {
            AddressSpace::Storage { access } if access.contains(StorageAccess::STORE) => BufferKind::ReadWrite,
            AddressSpace::Storage { .. } => BufferKind::Read,
            AddressSpace::Uniform => BufferKind::Uniform,
            AddressSpace::WorkGroup => BufferKind::Workgroup,
            AddressSpace::Handle => return self.unsupported(describe(&self.module.types[global.ty].inner), span),
            space => return self.unsupported(format_args!("a variable of the address space {space:?}"), span),
        };
        let array = self.wrapped_array(global.ty);
        let wrapped = array.is_some();
        let (ty, count, by_element) = match self.module.types[array.unwrap_or(global.ty)].inner {
            TypeInner::Array { base, size, stride }
                if size == ArraySize::Dynamic || !self.uses.is_whole(self.module, handle) =>
            {
                let element = self.ty(base, span)?;
                let own = self.stride_of(&element, stride);
                if own != stride && !self.holds_bool(base) {
                    return self.unsupported(format_args!("an array with the unusual stride of {stride} bytes"), span);
                }
                (element, self.count(size)?, true)
            }
            TypeInner::BindingArray { .. } => return self.unsupported("a binding array", span),
            _ => {
                let ty = self.ty(global.ty, span)?;
                let count = if self.is_open(global.ty) { Count::Runtime } else { Count::Fixed(1) };
                (ty, count, false)
            }
        };
        let name = self.names.fresh(global.name.as_deref().unwrap_or("buffer"));
        let (kind, inferred) = match (self.note(span), kind) {
            (Some("output"), BufferKind::ReadWrite) => (BufferKind::Output, false),
            (Some("read_write"), BufferKind::ReadWrite) => (kind, false),
            (Some("uniform"), BufferKind::Read) => (BufferKind::Uniform, false),
            _ => (kind, kind == BufferKind::ReadWrite),
        };
        let buffer = Buffer { name, by_element, wrapped, kind, inferred, ty, count, read: false };
        self.buffers.insert(handle, buffer.clone());
        Ok(buffer)
    }

    /// Notes that a buffer's contents are read.
    pub(super) fn mark_read(&mut self, handle: Handle<GlobalVariable>) {
        if let Some(buffer) = self.buffers.get_mut(&handle) {
            buffer.read = true;
        }
    }

    /// An override: a specialization constant, or an expression of others.
    pub(super) fn constant(&mut self, handle: Handle<Override>) -> Res<Expr> {
        if let Some(known) = self.constants.get(&handle) {
            return Ok(known.clone());
        }
        let constant = &self.module.overrides[handle];
        let span = self.module.overrides.get_span(handle);
        let label = constant.name.clone().unwrap_or_else(|| "override".into());
        let refuse = |what: &str| Diagnostic::new(&codes::wgsl::WGSL_OVERRIDE, format!("override `{label}` {what}"));
        let given = constant.name.as_ref().and_then(|name| self.overrides.get(name));
        let value = match (constant.init, given) {
            (Some(init), _) => self.global_expr(init)?,
            (None, Some(&given)) => match literal(&self.module.types[constant.ty].inner, given) {
                Some(literal) => Expr::Literal(literal),
                None => return self.fail_with(refuse(&format!("can't have the value {given}")), span),
            },
            (None, None) => {
                let problem = refuse("has no default value, and none was given");
                let problem =
                    problem.with_fix(format!("Give one (`--set {label}=…`), or write a default into the kernel."));
                return self.fail_with(problem, span);
            }
        };
        let made = match (&constant.name, value) {
            (Some(name), Expr::Literal(default)) => {
                if matches!(default, Literal::U64(_) | Literal::I64(_) | Literal::F64(_)) {
                    return self.fail_with(refuse(&format!("is {}", default.data_type())), span);
                }
                let name = self.names.fresh(name);
                self.spec_constants.push(SpecConstant { name: name.clone(), default });
                Expr::Constant(name)
            }
            (_, value) => value,
        };
        self.constants.insert(handle, made.clone());
        Ok(made)
    }

    /// A constant expression of the module.
    pub(super) fn global_expr(&mut self, handle: Handle<naga::Expression>) -> Res<Expr> {
        FunctionCx::global(self).value(handle)
    }

    /// The first value of a private variable.
    pub(super) fn private_var(&mut self, handle: Handle<GlobalVariable>, name: Name) -> Res<Node> {
        let global = &self.module.global_variables[handle];
        let ty = self.ty(global.ty, self.module.global_variables.get_span(handle))?;
        let init = global.init.map(|init| self.global_expr(init)).transpose()?;
        Ok(Node::Var { name, ty, init })
    }
}

/// A value for an override of this type; none where it is no value of it.
fn literal(ty: &TypeInner, value: f64) -> Option<Literal> {
    let TypeInner::Scalar(scalar) = ty else { return None };
    let whole = value.fract() == 0.0;
    Some(match scalar_type(*scalar)? {
        DataType::Bool if value == 0.0 || value == 1.0 => Literal::Bool(value != 0.0),
        DataType::U32 if whole && (0.0..=u32::MAX.into()).contains(&value) => Literal::U32(value as u32),
        DataType::I32 if whole && (i32::MIN.into()..=i32::MAX.into()).contains(&value) => Literal::I32(value as i32),
        DataType::F32 => Literal::F32(value as f32),
        _ => return None,
    })
}

/// The computing type of a scalar of naga's.
pub(super) fn scalar_type(scalar: Scalar) -> Option<DataType> {
    Some(match (scalar.kind, scalar.width) {
        (ScalarKind::Bool, _) => DataType::Bool,
        (ScalarKind::Sint, 4) => DataType::I32,
        (ScalarKind::Sint, 8) => DataType::I64,
        (ScalarKind::Uint, 4) => DataType::U32,
        (ScalarKind::Uint, 8) => DataType::U64,
        (ScalarKind::Float, 2) => DataType::F16,
        (ScalarKind::Float, 4) => DataType::F32,
        (ScalarKind::Float, 8) => DataType::F64,
        _ => return None,
    })
}

fn scalar_name(scalar: Scalar) -> String {
    let letter = match scalar.kind {
        ScalarKind::Sint => "i",
        ScalarKind::Uint => "u",
        ScalarKind::Float => "f",
        ScalarKind::Bool => "bool",
        ScalarKind::AbstractInt => "abstract integer ",
        ScalarKind::AbstractFloat => "abstract float ",
    };
    format!("{letter}{}", u32::from(scalar.width) * 8)
}

fn describe(inner: &TypeInner) -> &'static str {
    match inner {
        TypeInner::Image { .. } => "a texture",
        TypeInner::Sampler { .. } => "a sampler",
        TypeInner::AccelerationStructure { .. } => "an acceleration structure",
        TypeInner::RayQuery { .. } => "a ray query",
        TypeInner::BindingArray { .. } => "a binding array",
        TypeInner::CooperativeMatrix { .. } => "a cooperative matrix",
        TypeInner::Pointer { .. } | TypeInner::ValuePointer { .. } => "a pointer stored as a value",
        _ => "this type",
    }
}
