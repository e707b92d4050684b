use super::{Access, DataType, Expr, Literal, Name};

/// What a barrier orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BarrierScope {
    /// Workgroup memory.
    Workgroup,
    /// Buffers, among the invocations of one workgroup.
    Storage,
}

/// An atomic operation. Each gives the old value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum AtomicOp {
    /// Takes no value.
    Load,
    /// Gives nothing.
    Store,
    Add,
    Sub,
    Min,
    Max,
    And,
    Or,
    Xor,
    Exchange,
    /// Stores the value where the old one equals `compare`.
    CompareExchange,
}

/// One arm of a switch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Case {
    /// Values of the selector's type that lead here.
    pub values: Vec<Literal>,
    /// Everything not named by any arm leads here too. At most one arm has it.
    pub default: bool,
    /// Statements; `Break` leaves the switch, and there is no falling through.
    pub body: Vec<Node>,
}

/// A statement. A name declared by `Let`, `Var`, a loop counter or a result is visible to the end of the statement list
/// that declares it; it may hide an outer one, but the same list may not declare it twice.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// Names a value.
    Let {
        /// New name.
        name: Name,
        /// Its value.
        value: Expr,
    },
    /// A variable, private to the invocation.
    Var {
        /// New name.
        name: Name,
        /// Any type that computes, or a struct or array of such.
        ty: DataType,
        /// Zero when absent.
        init: Option<Expr>,
    },
    /// Changes a variable or a part of it. Outside an array it does nothing.
    Assign {
        /// A variable.
        name: Name,
        /// The part.
        path: Vec<Access>,
        /// New value.
        value: Expr,
    },
    /// Stores to a buffer. Outside it does nothing.
    Store {
        /// A writable buffer.
        buffer: Name,
        /// Element, any 32- or 64-bit integer; a negative one is outside.
        index: Expr,
        /// The part of the element.
        path: Vec<Access>,
        /// Value of the element's type, or of the type it computes as.
        value: Expr,
    },
    /// Two ways.
    If {
        /// Bool.
        cond: Expr,
        /// When true.
        then: Vec<Node>,
        /// When false.
        otherwise: Vec<Node>,
    },
    /// Many ways.
    Switch {
        /// u32 or i32.
        selector: Expr,
        /// Arms.
        cases: Vec<Case>,
    },
    /// A counted loop: `var` takes `from`, `from + step`, … while it is less than `to`. All three are evaluated once, before
    /// the first round, and the count never wraps, so it always ends.
    For {
        /// The counter, not assignable.
        var: Name,
        /// First value: u32 or i32.
        from: Expr,
        /// Limit, of the same type.
        to: Expr,
        /// At least 1.
        step: u32,
        /// Statements.
        body: Vec<Node>,
    },
    /// A general loop, left by `Break`, `Return` or `break_if`.
    Loop {
        /// Statements; `Continue` goes to `continuing`.
        body: Vec<Node>,
        /// Runs after each round, sees the names of `body`, and holds no `Break`, `Continue` or `Return`.
        continuing: Vec<Node>,
        /// Evaluated after `continuing`: true leaves the loop.
        break_if: Option<Expr>,
    },
    /// Leaves the innermost loop or switch.
    Break,
    /// Goes to the next round of the innermost loop.
    Continue,
    /// Ends the invocation, or the function with its value.
    Return(Option<Expr>),
    /// All invocations of the workgroup meet here.
    Barrier(BarrierScope),
    /// An atomic operation on u32, i32, and, where the device has it, u64 and i64. Outside the buffer it does nothing and
    /// gives zero.
    Atomic {
        /// Operation.
        op: AtomicOp,
        /// A read_write, output or workgroup buffer.
        buffer: Name,
        /// Element.
        index: Expr,
        /// The part of the element.
        path: Vec<Access>,
        /// Operand; absent only for `Load`.
        value: Option<Expr>,
        /// Only for `CompareExchange`.
        compare: Option<Expr>,
        /// Names the old value.
        result: Option<Name>,
    },
    /// Calls a function of the program.
    Call {
        /// Function.
        function: Name,
        /// Arguments.
        args: Vec<Expr>,
        /// Names the returned value.
        result: Option<Name>,
    },
    /// Statements with names of their own.
    Block(Vec<Node>),
}

impl Node {
    /// Names a value.
    pub fn let_bind(name: impl Into<Name>, value: impl Into<Expr>) -> Node {
        Node::Let { name: name.into(), value: value.into() }
    }

    /// A variable with a first value.
    pub fn var(name: impl Into<Name>, ty: DataType, init: impl Into<Expr>) -> Node {
        Node::Var { name: name.into(), ty, init: Some(init.into()) }
    }

    /// A variable that starts as zero.
    pub fn var_zero(name: impl Into<Name>, ty: DataType) -> Node {
        Node::Var { name: name.into(), ty, init: None }
    }

    /// Changes a whole variable.
    pub fn assign(name: impl Into<Name>, value: impl Into<Expr>) -> Node {
        Node::Assign { name: name.into(), path: Vec::new(), value: value.into() }
    }

    /// Stores an element.
    pub fn store(buffer: impl Into<Name>, index: impl Into<Expr>, value: impl Into<Expr>) -> Node {
        Node::Store { buffer: buffer.into(), index: index.into(), path: Vec::new(), value: value.into() }
    }

    /// `if` without `else`.
    pub fn if_then(cond: impl Into<Expr>, then: Vec<Node>) -> Node {
        Node::if_else(cond, then, Vec::new())
    }

    /// `if` with `else`.
    pub fn if_else(cond: impl Into<Expr>, then: Vec<Node>, otherwise: Vec<Node>) -> Node {
        Node::If { cond: cond.into(), then, otherwise }
    }

    /// A loop that counts by one.
    pub fn for_range(var: impl Into<Name>, from: impl Into<Expr>, to: impl Into<Expr>, body: Vec<Node>) -> Node {
        Node::For { var: var.into(), from: from.into(), to: to.into(), step: 1, body }
    }

    /// A loop without end of its own.
    pub fn forever(body: Vec<Node>) -> Node {
        Node::Loop { body, continuing: Vec::new(), break_if: None }
    }

    /// The workgroup meets, and its memory is ordered.
    pub fn barrier() -> Node {
        Node::Barrier(BarrierScope::Workgroup)
    }

    /// An atomic operation whose old value is not needed.
    pub fn atomic(op: AtomicOp, buffer: impl Into<Name>, index: impl Into<Expr>, value: impl Into<Expr>) -> Node {
        Node::Atomic {
            op,
            buffer: buffer.into(),
            index: index.into(),
            path: Vec::new(),
            value: Some(value.into()),
            compare: None,
            result: None,
        }
    }
}
