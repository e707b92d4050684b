use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use vyre_spec::Diagnostic;

use super::{BufferDecl, DataType, Expr, Literal, Name, Node, TypeDef};
use crate::launch::Analyses;
use crate::validate::{self, ValidProgram};
use crate::wire;

/// A named value that is fixed before compilation; WGSL's `override`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SpecConstant {
    /// Unique in the program.
    pub name: Name,
    /// Value, and with it the type, unless a specialization sets another. bool, u32, i32, f16 or f32.
    pub default: Literal,
}

/// Values for a program's specialization constants; the others keep their defaults.
pub type Specialization = BTreeMap<Name, Literal>;

/// How exact the float arithmetic of a program is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Math {
    /// The same bits on every device: what the reference interpreter gives.
    #[default]
    Exact,
    /// As near as WGSL asks: `a * b + c` may be rounded once, functions may be a device's own approximations, subnormal numbers may be
    /// taken for zero. Sums keep their order.
    Fast,
}

impl Math {
    /// Its name in texts and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Math::Exact => "exact",
            Math::Fast => "fast",
        }
    }

    /// The arithmetic of this name.
    pub fn named(name: &str) -> Option<Math> {
        [Math::Exact, Math::Fast].into_iter().find(|math| math.name() == name)
    }
}

/// A function that bodies can call. No recursion.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Function {
    /// Unique in the program.
    pub name: Name,
    /// Parameters, not assignable.
    pub params: Vec<Param>,
    /// Type of the returned value.
    pub result: Option<DataType>,
    /// Statements. Where there is a result, every way to the end returns.
    pub body: Vec<Node>,
}

/// A parameter of a function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Param {
    /// Unique in the function.
    pub name: Name,
    /// Its type.
    pub ty: DataType,
}

/// One kernel: buffers, workgroup size, specialization constants, functions and a body that runs once per invocation. Cheap
/// to clone; what is computed from it (fingerprint, validation) is computed once.
#[derive(Clone)]
pub struct Program {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    parts: Parts,
    fingerprint: OnceLock<[u8; 32]>,
    validation: OnceLock<Result<(), Arc<[Diagnostic]>>>,
    analyses: Analyses,
}

/// Everything that a program consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Parts {
    /// Absent when it is `main`.
    pub(crate) name: Option<Name>,
    pub(crate) types: Vec<TypeDef>,
    pub(crate) constants: Vec<SpecConstant>,
    pub(crate) buffers: Vec<BufferDecl>,
    pub(crate) functions: Vec<Function>,
    pub(crate) workgroup_size: [u32; 3],
    pub(crate) workgroup_exprs: [Option<Expr>; 3],
    pub(crate) domain: Option<[Expr; 3]>,
    pub(crate) math: Math,
    pub(crate) body: Vec<Node>,
}

impl Program {
    /// A program from its buffers, workgroup size and body.
    pub fn wrapped(buffers: Vec<BufferDecl>, workgroup_size: [u32; 3], body: Vec<Node>) -> Program {
        Program::from_parts(Parts { buffers, workgroup_size, body, ..Parts::default() })
    }

    /// A program that does nothing.
    pub fn empty() -> Program {
        Program::wrapped(Vec::new(), [1, 1, 1], Vec::new())
    }

    pub(crate) fn from_parts(parts: Parts) -> Program {
        Program { inner: Arc::new(Inner { parts, ..Inner::default() }) }
    }

    pub(crate) fn parts(&self) -> &Parts {
        &self.inner.parts
    }

    /// What was found out about its launches.
    pub(crate) fn analyses(&self) -> &Analyses {
        &self.inner.analyses
    }

    fn changed(self, change: impl FnOnce(&mut Parts)) -> Program {
        let mut parts = match Arc::try_unwrap(self.inner) {
            Ok(inner) => inner.parts,
            Err(shared) => shared.parts.clone(),
        };
        change(&mut parts);
        Program::from_parts(parts)
    }

    /// Names the entry point; `main` otherwise.
    #[must_use]
    pub fn with_name(self, name: impl Into<Name>) -> Program {
        let name = name.into();
        self.changed(|parts| parts.name = Some(name).filter(|name| *name != "main"))
    }

    /// Sets the type table.
    #[must_use]
    pub fn with_types(self, types: Vec<TypeDef>) -> Program {
        self.changed(|parts| parts.types = types)
    }

    /// Sets the specialization constants.
    #[must_use]
    pub fn with_constants(self, constants: Vec<SpecConstant>) -> Program {
        self.changed(|parts| parts.constants = constants)
    }

    /// Sets the functions.
    #[must_use]
    pub fn with_functions(self, functions: Vec<Function>) -> Program {
        self.changed(|parts| parts.functions = functions)
    }

    /// Sets the buffers.
    #[must_use]
    pub fn with_buffers(self, buffers: Vec<BufferDecl>) -> Program {
        self.changed(|parts| parts.buffers = buffers)
    }

    /// Sets the body.
    #[must_use]
    pub fn with_body(self, body: Vec<Node>) -> Program {
        self.changed(|parts| parts.body = body)
    }

    /// Sets the workgroup size.
    #[must_use]
    pub fn with_workgroup_size(self, size: [u32; 3]) -> Program {
        self.changed(|parts| parts.workgroup_size = size)
    }

    /// Makes the workgroup size along some axes a u32 expression of literals and specialization constants; the fixed size
    /// along such an axis is then ignored.
    #[must_use]
    pub fn with_workgroup_exprs(self, exprs: [Option<Expr>; 3]) -> Program {
        self.changed(|parts| parts.workgroup_exprs = exprs)
    }

    /// Declares how many invocations to launch along each axis: u32 expressions of literals, specialization constants and
    /// buffer lengths. Rounded up to whole workgroups.
    #[must_use]
    pub fn with_domain(self, domain: [Expr; 3]) -> Program {
        self.changed(|parts| parts.domain = Some(domain))
    }

    /// Chooses the arithmetic; [`Math::Exact`] otherwise. It is part of the program, so whatever is kept of a program is kept for one
    /// arithmetic.
    #[must_use]
    pub fn with_math(self, math: Math) -> Program {
        self.changed(|parts| parts.math = math)
    }

    /// The arithmetic.
    pub fn math(&self) -> Math {
        self.inner.parts.math
    }

    /// Name of the entry point.
    pub fn name(&self) -> &str {
        self.inner.parts.name.as_ref().map_or("main", Name::as_str)
    }

    /// Type table.
    pub fn types(&self) -> &[TypeDef] {
        &self.inner.parts.types
    }

    /// Specialization constants.
    pub fn constants(&self) -> &[SpecConstant] {
        &self.inner.parts.constants
    }

    /// Buffers, in the order they were declared.
    pub fn buffers(&self) -> &[BufferDecl] {
        &self.inner.parts.buffers
    }

    /// Positions of the buffers that have bindings, sorted by group and binding: the order of inputs and results.
    pub fn binding_order(&self) -> Vec<usize> {
        let buffers = self.buffers();
        let mut order: Vec<usize> =
            (0..buffers.len()).filter(|&i| buffers[i].kind != super::BufferKind::Workgroup).collect();
        order.sort_by_key(|&i| (buffers[i].group, buffers[i].binding));
        order
    }

    /// Functions.
    pub fn functions(&self) -> &[Function] {
        &self.inner.parts.functions
    }

    /// Workgroup size as written; see [`crate::launch`] for the size under a specialization.
    pub fn workgroup_size(&self) -> [u32; 3] {
        self.inner.parts.workgroup_size
    }

    /// Expressions that replace the fixed workgroup size along some axes.
    pub fn workgroup_exprs(&self) -> &[Option<Expr>; 3] {
        &self.inner.parts.workgroup_exprs
    }

    /// Declared launch domain.
    pub fn domain(&self) -> Option<&[Expr; 3]> {
        self.inner.parts.domain.as_ref()
    }

    /// Statements.
    pub fn body(&self) -> &[Node] {
        &self.inner.parts.body
    }

    /// The buffer with this name.
    pub fn buffer(&self, name: &str) -> Option<&BufferDecl> {
        self.buffers().iter().find(|buffer| buffer.name == name)
    }

    /// blake3 of the canonical wire form. Computed once.
    pub fn fingerprint(&self) -> [u8; 32] {
        *self.inner.fingerprint.get_or_init(|| *blake3::hash(&wire::encode(self)).as_bytes())
    }

    /// Checks everything that can be wrong with a program and gives the proof, or all problems. Checked once.
    pub fn validate(&self) -> Result<ValidProgram, Arc<[Diagnostic]>> {
        self.inner
            .validation
            .get_or_init(|| {
                let problems = validate::problems(self);
                if problems.is_empty() { Ok(()) } else { Err(problems.into()) }
            })
            .clone()
            .map(|()| ValidProgram::proven(self.clone()))
    }
}

impl PartialEq for Program {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner) || self.inner.parts == other.inner.parts
    }
}

impl Eq for Program {}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.inner.parts, f)
    }
}
