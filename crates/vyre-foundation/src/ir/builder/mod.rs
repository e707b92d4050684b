//! Builds programs in Rust: declarations give handles, and bodies are closures that use them.

mod body;
mod handles;

use std::collections::HashMap;

pub use body::{Body, Switch};
pub use handles::{Array, Buffer, Constant, Field, FunctionHandle, Operand, Place, Struct, Value, Var};

use super::{
    BufferDecl, BufferKind, Count, DataType, Expr, Function, Literal, Math, Member, Name, Node, Param, Program,
    SpecConstant, TypeDef, TypeId, layout_of,
};

/// Builds a [`Program`]. Names are for people: two things may be given the same one, and the second gets a number.
///
/// ```
/// use vyre_foundation::ir::{AtomicOp, DataType, Expr, Operand, ProgramBuilder};
///
/// let mut builder = ProgramBuilder::new("scale", [64, 1, 1]);
/// let factor = builder.constant("FACTOR", 2.0f32);
/// let (pair, [weight, index]) = builder.structure("Pair", [("weight", DataType::F32), ("index", DataType::U32)]);
/// let pairs = builder.read("pairs", pair.ty());
/// let out = builder.output("out", DataType::F32);
/// let hits = builder.read_write("hits", DataType::U32);
/// builder.set_count(&hits, 1u32);
/// let twice = builder.function("twice", [("x", DataType::F32)], DataType::F32, |body, [x]| {
///     body.return_value(&x * 2.0f32);
/// });
/// builder.body(|body| {
///     let i = body.bind("i", Expr::global_id(0));
///     body.if_then(i.lt(pairs.len()), |body| {
///         let sum = body.var("sum", DataType::F32, 0.0f32);
///         body.for_range("k", 0u32, pairs.at(&i).field(index), |body, k| {
///             let term = body.call(&twice, [pairs.at(&i).field(weight) * k.cast(DataType::F32)]);
///             body.assign(&sum, &sum + term);
///         });
///         body.store(out.at(&i), &sum * &factor);
///         body.atomic(AtomicOp::Add, hits.at(0u32), 1u32);
///     });
/// });
/// let program = builder.build();
/// assert!(program.validate().is_ok());
/// ```
pub struct ProgramBuilder {
    name: Name,
    workgroup_size: [u32; 3],
    workgroup_exprs: [Option<Expr>; 3],
    domain: Option<[Expr; 3]>,
    math: Math,
    types: Vec<TypeDef>,
    constants: Vec<SpecConstant>,
    buffers: Vec<BufferDecl>,
    functions: Vec<Function>,
    body: Vec<Node>,
    names: Names,
}

/// Gives every name once.
#[derive(Default)]
struct Names(HashMap<Name, u32>);

impl Names {
    fn fresh(&mut self, name: &str) -> Name {
        let mut wanted = Name::from(name);
        loop {
            match self.0.get_mut(&wanted) {
                None => {
                    self.0.insert(wanted.clone(), 0);
                    return wanted;
                }
                Some(count) => {
                    *count += 1;
                    wanted = format!("{name}_{count}").into();
                }
            }
        }
    }
}

impl ProgramBuilder {
    /// A program with a name and a workgroup size, and nothing in it yet.
    pub fn new(name: impl Into<Name>, workgroup_size: [u32; 3]) -> ProgramBuilder {
        ProgramBuilder {
            name: name.into(),
            workgroup_size,
            workgroup_exprs: [None, None, None],
            domain: None,
            math: Math::Exact,
            types: Vec::new(),
            constants: Vec::new(),
            buffers: Vec::new(),
            functions: Vec::new(),
            body: Vec::new(),
            names: Names::default(),
        }
    }

    /// Declares a specialization constant with its default.
    pub fn constant(&mut self, name: &str, default: impl Into<Literal>) -> Constant {
        let name = self.names.fresh(name);
        self.constants.push(SpecConstant { name: name.clone(), default: default.into() });
        Constant(name)
    }

    /// Makes the workgroup size along an axis depend on specialization constants.
    pub fn workgroup_size(&mut self, axis: usize, size: impl Into<Expr>) {
        if let Some(slot) = self.workgroup_exprs.get_mut(axis) {
            *slot = Some(size.into());
        }
    }

    /// Declares how many invocations to launch along each axis.
    pub fn domain(&mut self, domain: [Expr; 3]) {
        self.domain = Some(domain);
    }

    /// Chooses the arithmetic; exact unless it is chosen.
    pub fn math(&mut self, math: Math) {
        self.math = math;
    }

    /// Defines a struct with the layout that WGSL gives it. The handles of its fields come in the same order.
    pub fn structure<const N: usize>(&mut self, name: &str, fields: [(&str, DataType); N]) -> (Struct, [Field; N]) {
        let mut members = Vec::with_capacity(N);
        let (mut end, mut align) = (0u32, 1);
        for (name, ty) in fields {
            // A type without layout is refused by validation; it takes no space until then.
            let layout = layout_of(&ty, &self.types);
            let (size, own) = layout.map_or((0, 1), |layout| (layout.size, layout.align.max(1)));
            let offset = end.next_multiple_of(own);
            end = offset.saturating_add(size);
            align = align.max(own);
            members.push(Member { name: name.into(), ty, offset });
        }
        let id = TypeId(self.types.len() as u32);
        let size = end.checked_next_multiple_of(align).unwrap_or(u32::MAX);
        let name = self.names.fresh(name);
        self.types.push(TypeDef::Struct { name, members, size, align });
        (Struct(id), std::array::from_fn(|at| Field(at as u32)))
    }

    /// Defines an array of fixed length.
    pub fn array(&mut self, element: DataType, count: u32) -> Array {
        let stride = layout_of(&element, &self.types).map_or(0, |layout| layout.stride);
        let id = TypeId(self.types.len() as u32);
        self.types.push(TypeDef::Array { element, count: Count::Fixed(count), stride });
        Array(id)
    }

    fn buffer(&mut self, name: &str, kind: BufferKind, ty: DataType) -> Buffer {
        let name = self.names.fresh(name);
        let bound = |buffer: &&BufferDecl| buffer.kind != BufferKind::Workgroup;
        let binding = if kind == BufferKind::Workgroup { 0 } else { self.buffers.iter().filter(bound).count() as u32 };
        self.buffers.push(BufferDecl::new(name.clone(), binding, kind, ty));
        Buffer(name)
    }

    /// Declares an input. Its binding is the next free one and its length open.
    pub fn read(&mut self, name: &str, ty: DataType) -> Buffer {
        self.buffer(name, BufferKind::Read, ty)
    }

    /// Declares a result of open length.
    pub fn output(&mut self, name: &str, ty: DataType) -> Buffer {
        self.buffer(name, BufferKind::Output, ty)
    }

    /// Declares an input that is also a result, of open length.
    pub fn read_write(&mut self, name: &str, ty: DataType) -> Buffer {
        self.buffer(name, BufferKind::ReadWrite, ty)
    }

    /// Declares a small input of one element.
    pub fn uniform(&mut self, name: &str, ty: DataType) -> Buffer {
        let buffer = self.buffer(name, BufferKind::Uniform, ty);
        self.set_count(&buffer, 1u32);
        buffer
    }

    /// Declares memory that a workgroup shares, of so many elements.
    pub fn workgroup(&mut self, name: &str, ty: DataType, count: impl Into<Expr>) -> Buffer {
        let buffer = self.buffer(name, BufferKind::Workgroup, ty);
        self.set_count(&buffer, count);
        buffer
    }

    /// Fixes the length of a buffer: a number, or an expression of specialization constants.
    pub fn set_count(&mut self, buffer: &Buffer, count: impl Into<Expr>) {
        let count = match count.into() {
            Expr::Literal(Literal::U32(count)) => Count::Fixed(count),
            expr => Count::Constant(Box::new(expr)),
        };
        if let Some(decl) = self.buffers.iter_mut().find(|decl| decl.name == buffer.0) {
            decl.count = count;
        }
    }

    /// Defines a function that returns a value. The closure gets the handles of its parameters.
    pub fn function<const N: usize>(
        &mut self,
        name: &str,
        params: [(&str, DataType); N],
        result: DataType,
        build: impl FnOnce(&mut Body<'_>, [Value; N]),
    ) -> FunctionHandle<N> {
        self.any_function(name, params, Some(result), build)
    }

    /// Defines a function that returns nothing.
    pub fn procedure<const N: usize>(
        &mut self,
        name: &str,
        params: [(&str, DataType); N],
        build: impl FnOnce(&mut Body<'_>, [Value; N]),
    ) -> FunctionHandle<N> {
        self.any_function(name, params, None, build)
    }

    fn any_function<const N: usize>(
        &mut self,
        name: &str,
        params: [(&str, DataType); N],
        result: Option<DataType>,
        build: impl FnOnce(&mut Body<'_>, [Value; N]),
    ) -> FunctionHandle<N> {
        let name = self.names.fresh(name);
        let params = params.map(|(name, ty)| Param { name: self.names.fresh(name), ty });
        let handles = std::array::from_fn(|at| Value(params[at].name.clone()));
        let mut body = Body::new(&mut self.names);
        build(&mut body, handles);
        let body = body.finish();
        self.functions.push(Function { name: name.clone(), params: params.into(), result, body });
        FunctionHandle(name)
    }

    /// Adds statements to the body.
    pub fn body(&mut self, build: impl FnOnce(&mut Body<'_>)) {
        let mut body = Body::new(&mut self.names);
        build(&mut body);
        self.body.extend(body.finish());
    }

    /// The program.
    pub fn build(self) -> Program {
        let mut program = Program::wrapped(self.buffers, self.workgroup_size, self.body)
            .with_name(self.name)
            .with_types(self.types)
            .with_constants(self.constants)
            .with_functions(self.functions)
            .with_workgroup_exprs(self.workgroup_exprs)
            .with_math(self.math);
        if let Some(domain) = self.domain {
            program = program.with_domain(domain);
        }
        program
    }
}
