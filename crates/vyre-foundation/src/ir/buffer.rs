use super::{DataType, Expr, Name};

/// What a kernel may do with a buffer and where its contents come from and go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BufferKind {
    /// Input, only read.
    Read,
    /// Input and result.
    ReadWrite,
    /// Result, zero where nothing is stored. Not read, except by atomic operations.
    Output,
    /// Small input that is the same for all invocations.
    Uniform,
    /// Shared by the invocations of one workgroup, zero at its start. Has no binding.
    Workgroup,
}

impl BufferKind {
    /// The host passes bytes for it.
    pub fn is_input(self) -> bool {
        matches!(self, BufferKind::Read | BufferKind::ReadWrite | BufferKind::Uniform)
    }

    /// The host gets bytes back.
    pub fn is_result(self) -> bool {
        matches!(self, BufferKind::ReadWrite | BufferKind::Output)
    }

    /// Name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            BufferKind::Read => "read",
            BufferKind::ReadWrite => "read_write",
            BufferKind::Output => "output",
            BufferKind::Uniform => "uniform",
            BufferKind::Workgroup => "workgroup",
        }
    }

    /// A kernel may load from it.
    pub fn is_readable(self) -> bool {
        self != BufferKind::Output
    }

    /// A kernel may store to it.
    pub fn is_writable(self) -> bool {
        matches!(self, BufferKind::ReadWrite | BufferKind::Output | BufferKind::Workgroup)
    }
}

/// How many elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Count {
    /// As many whole elements as are bound.
    Runtime,
    /// Known now.
    Fixed(u32),
    /// A u32 expression of literals and specialization constants.
    Constant(Box<Expr>),
}

/// A buffer that a program uses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BufferDecl {
    /// Name by which the body refers to it.
    pub name: Name,
    /// Binding group, 0 unless a front end says otherwise.
    pub group: u32,
    /// Binding number, unique within the group. Ignored for workgroup buffers.
    pub binding: u32,
    /// Kind.
    pub kind: BufferKind,
    /// Element type. A struct whose last member is an array of open length makes a buffer of one element.
    pub ty: DataType,
    /// Number of elements.
    pub count: Count,
}

impl BufferDecl {
    /// A buffer of the given kind and open length, in group 0.
    pub fn new(name: impl Into<Name>, binding: u32, kind: BufferKind, ty: DataType) -> Self {
        BufferDecl { name: name.into(), group: 0, binding, kind, ty, count: Count::Runtime }
    }

    /// A read-only input.
    pub fn read(name: impl Into<Name>, binding: u32, ty: DataType) -> Self {
        Self::new(name, binding, BufferKind::Read, ty)
    }

    /// An input that is also a result.
    pub fn read_write(name: impl Into<Name>, binding: u32, ty: DataType) -> Self {
        Self::new(name, binding, BufferKind::ReadWrite, ty)
    }

    /// A result.
    pub fn output(name: impl Into<Name>, binding: u32, ty: DataType) -> Self {
        Self::new(name, binding, BufferKind::Output, ty)
    }

    /// A small input, the same for all invocations; one element unless [`BufferDecl::with_count`] says otherwise.
    pub fn uniform(name: impl Into<Name>, binding: u32, ty: DataType) -> Self {
        Self::new(name, binding, BufferKind::Uniform, ty).with_count(1)
    }

    /// Memory shared by a workgroup; `binding` is ignored. One element unless [`BufferDecl::with_count`] says otherwise.
    pub fn workgroup(name: impl Into<Name>, binding: u32, ty: DataType) -> Self {
        Self::new(name, binding, BufferKind::Workgroup, ty).with_count(1)
    }

    /// Fixes the number of elements.
    #[must_use]
    pub fn with_count(mut self, count: u32) -> Self {
        self.count = Count::Fixed(count);
        self
    }

    /// Sets the number of elements to an expression of literals and specialization constants.
    #[must_use]
    pub fn with_constant_count(mut self, count: Expr) -> Self {
        self.count = Count::Constant(Box::new(count));
        self
    }

    /// Sets the binding group.
    #[must_use]
    pub fn with_group(mut self, group: u32) -> Self {
        self.group = group;
        self
    }
}
