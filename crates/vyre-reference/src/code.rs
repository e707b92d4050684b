//! A program made ready to run: names have become slots, control flow has become jumps, and everything that is the same for
//! the whole launch (specialization constants, buffer lengths, sizes) has become a literal.

use std::collections::HashMap;
use std::rc::Rc;

use vyre_foundation::ir::{AtomicOp, BinaryOp, Builtin, Element, Literal, MathOp, MatrixKind, SubgroupOp, UnaryOp};

use crate::types::Type;
use crate::value::Value;

/// The whole program. The body starts at instruction 0.
#[derive(Default)]
pub(crate) struct Code {
    pub(crate) instructions: Vec<Instruction>,
    /// First instruction of each function.
    pub(crate) functions: Vec<usize>,
    /// Slots that an invocation has. Each function has its own, for there is no recursion.
    pub(crate) slots: u32,
    /// Scalars and vectors that the slots of an invocation hold at most.
    pub(crate) slot_leaves: u64,
    /// Invocations wait for each other somewhere.
    pub(crate) collective: bool,
}

pub(crate) struct Instruction {
    pub(crate) action: Action,
    /// What it costs: one, and one for every expression in it.
    pub(crate) cost: u64,
}

pub(crate) type Slot = u32;
pub(crate) type Target = usize;

/// What an instruction does. Unless it says otherwise, the next one follows.
pub(crate) enum Action {
    Set {
        slot: Slot,
        value: Expr,
    },
    SetPart {
        slot: Slot,
        path: Vec<Step>,
        value: Expr,
    },
    Store {
        place: Access,
        value: Expr,
    },
    Atomic {
        op: AtomicOp,
        place: Access,
        value: Option<Expr>,
        compare: Option<Expr>,
        result: Option<Slot>,
        outside: Value,
    },
    Jump(Target),
    JumpUnless {
        cond: Expr,
        target: Target,
    },
    /// Goes to the target of the selector's value, else to the default.
    Switch {
        selector: Expr,
        targets: HashMap<Literal, Target>,
        default: Target,
    },
    /// Leaves a counted loop unless the counter is below the limit.
    CountTest {
        counter: Slot,
        limit: Slot,
        exit: Target,
    },
    /// Adds to the counter and goes to `again`, or goes on where it would reach the limit.
    CountStep {
        counter: Slot,
        limit: Slot,
        step: u32,
        again: Target,
    },
    Call {
        function: u32,
        args: Vec<(Slot, Expr)>,
    },
    /// Puts the value in the function's result slot and goes back to the caller, or ends the invocation.
    Return {
        value: Option<(Slot, Expr)>,
    },
    /// Waits for the workgroup.
    Barrier,
    /// Waits for the subgroup and exchanges values.
    Subgroup {
        op: SubgroupOp,
        value: Expr,
        argument: Option<Expr>,
        result: Slot,
    },
    /// Waits for the subgroup and multiplies matrices.
    Matrix {
        kind: MatrixKind,
        /// A, B and C.
        fragments: Box<[Expr; 3]>,
        result: Slot,
    },
}

/// A part of a buffer.
pub(crate) struct Access {
    pub(crate) buffer: u32,
    /// Type of the buffer's elements.
    pub(crate) ty: Rc<Type>,
    pub(crate) index: Expr,
    pub(crate) path: Vec<Step>,
}

/// One step into a struct, array or vector.
pub(crate) enum Step {
    Member(u32),
    Index(Expr),
}

/// An expression without names and without subgroup operations, which have become instructions.
pub(crate) enum Expr {
    Literal(Value),
    Slot(Slot),
    /// Gives `outside` where an index is outside.
    Load {
        place: Box<Access>,
        outside: Value,
    },
    Builtin(Builtin),
    Unary {
        op: UnaryOp,
        value: Box<Expr>,
    },
    Binary {
        op: BinaryOp,
        operands: Box<[Expr; 2]>,
    },
    Math {
        op: MathOp,
        args: Vec<Expr>,
    },
    /// Condition, when true, when false.
    Select(Box<[Expr; 3]>),
    Cast {
        to: Element,
        value: Box<Expr>,
    },
    BitCast {
        to: Element,
        count: usize,
        value: Box<Expr>,
    },
    /// A vector from the lanes of its parts, or from one lane for all.
    Vector {
        count: u8,
        parts: Vec<Expr>,
    },
    /// A struct or array from its parts.
    Composite {
        ty: Rc<Type>,
        parts: Vec<Expr>,
    },
    Swizzle {
        value: Box<Expr>,
        lanes: Vec<u8>,
    },
    Part {
        value: Box<Expr>,
        path: Vec<Step>,
    },
}
