//! Statements, one after the other.

use super::super::{AtomicOp, BarrierScope, Case, DataType, Expr, Literal, Node};
use super::Names;
use super::handles::{FunctionHandle, Place, Value, Var};

/// A statement list that is being built.
pub struct Body<'b> {
    nodes: Vec<Node>,
    names: &'b mut Names,
}

/// The arms of a switch that is being built.
pub struct Switch<'b> {
    cases: Vec<Case>,
    names: &'b mut Names,
}

impl<'b> Body<'b> {
    pub(super) fn new(names: &'b mut Names) -> Self {
        Body { nodes: Vec::new(), names }
    }

    pub(super) fn finish(self) -> Vec<Node> {
        self.nodes
    }

    fn inner(&mut self, build: impl FnOnce(&mut Body<'_>)) -> Vec<Node> {
        let mut body = Body::new(self.names);
        build(&mut body);
        body.finish()
    }

    /// Adds a statement that was made elsewhere.
    pub fn push(&mut self, node: Node) {
        self.nodes.push(node);
    }

    /// Names a value.
    pub fn bind(&mut self, name: &str, value: impl Into<Expr>) -> Value {
        let name = self.names.fresh(name);
        self.push(Node::Let { name: name.clone(), value: value.into() });
        Value(name)
    }

    /// Declares a variable with its first value.
    pub fn var(&mut self, name: &str, ty: DataType, init: impl Into<Expr>) -> Var {
        let name = self.names.fresh(name);
        self.push(Node::Var { name: name.clone(), ty, init: Some(init.into()) });
        Var { name, path: Vec::new() }
    }

    /// Declares a variable that starts as zero.
    pub fn var_zero(&mut self, name: &str, ty: DataType) -> Var {
        let name = self.names.fresh(name);
        self.push(Node::Var { name: name.clone(), ty, init: None });
        Var { name, path: Vec::new() }
    }

    /// Changes a variable or a part of it.
    pub fn assign(&mut self, var: &Var, value: impl Into<Expr>) {
        self.push(Node::Assign { name: var.name.clone(), path: var.path.clone(), value: value.into() });
    }

    /// Stores to a buffer.
    pub fn store(&mut self, place: Place, value: impl Into<Expr>) {
        self.push(Node::Store { buffer: place.buffer, index: place.index, path: place.path, value: value.into() });
    }

    /// `if` without `else`.
    pub fn if_then(&mut self, cond: impl Into<Expr>, then: impl FnOnce(&mut Body<'_>)) {
        let then = self.inner(then);
        self.push(Node::if_then(cond, then));
    }

    /// `if` with `else`.
    pub fn if_else(
        &mut self,
        cond: impl Into<Expr>,
        then: impl FnOnce(&mut Body<'_>),
        otherwise: impl FnOnce(&mut Body<'_>),
    ) {
        let then = self.inner(then);
        let otherwise = self.inner(otherwise);
        self.push(Node::if_else(cond, then, otherwise));
    }

    /// Chooses among arms by a u32 or i32.
    pub fn switch(&mut self, selector: impl Into<Expr>, build: impl FnOnce(&mut Switch<'_>)) {
        let mut switch = Switch { cases: Vec::new(), names: self.names };
        build(&mut switch);
        let cases = switch.cases;
        self.push(Node::Switch { selector: selector.into(), cases });
    }

    /// Counts from `from` up to but not including `to`.
    pub fn for_range(
        &mut self,
        name: &str,
        from: impl Into<Expr>,
        to: impl Into<Expr>,
        build: impl FnOnce(&mut Body<'_>, Value),
    ) {
        self.for_step(name, from, to, 1, build);
    }

    /// Counts in steps.
    pub fn for_step(
        &mut self,
        name: &str,
        from: impl Into<Expr>,
        to: impl Into<Expr>,
        step: u32,
        build: impl FnOnce(&mut Body<'_>, Value),
    ) {
        let var = self.names.fresh(name);
        let counter = Value(var.clone());
        let body = self.inner(|body| build(body, counter));
        self.push(Node::For { var, from: from.into(), to: to.into(), step, body });
    }

    /// Repeats until `break` or `return`.
    pub fn forever(&mut self, build: impl FnOnce(&mut Body<'_>)) {
        let body = self.inner(build);
        self.push(Node::forever(body));
    }

    /// Repeats until the condition that the closure gives, which sees the names of the body, is true.
    pub fn repeat_until(&mut self, build: impl FnOnce(&mut Body<'_>) -> Expr) {
        let mut body = Body::new(self.names);
        let break_if = Some(build(&mut body));
        let body = body.finish();
        self.push(Node::Loop { body, continuing: Vec::new(), break_if });
    }

    /// Leaves the innermost loop or switch.
    pub fn break_out(&mut self) {
        self.push(Node::Break);
    }

    /// Goes to the next round of the innermost loop.
    pub fn continue_loop(&mut self) {
        self.push(Node::Continue);
    }

    /// Ends the invocation or the procedure.
    pub fn return_now(&mut self) {
        self.push(Node::Return(None));
    }

    /// Ends the function with its value.
    pub fn return_value(&mut self, value: impl Into<Expr>) {
        self.push(Node::Return(Some(value.into())));
    }

    /// The workgroup meets, and its memory is ordered.
    pub fn barrier(&mut self) {
        self.push(Node::Barrier(BarrierScope::Workgroup));
    }

    /// The workgroup meets, and buffers are ordered for it.
    pub fn storage_barrier(&mut self) {
        self.push(Node::Barrier(BarrierScope::Storage));
    }

    /// An atomic operation with one operand; gives the old value.
    pub fn atomic(&mut self, op: AtomicOp, place: Place, value: impl Into<Expr>) -> Value {
        self.any_atomic(op, place, Some(value.into()), None)
    }

    /// Reads atomically.
    pub fn atomic_load(&mut self, place: Place) -> Value {
        self.any_atomic(AtomicOp::Load, place, None, None)
    }

    /// Stores atomically.
    pub fn atomic_store(&mut self, place: Place, value: impl Into<Expr>) {
        let Place { buffer, index, path } = place;
        let (value, compare, result) = (Some(value.into()), None, None);
        self.push(Node::Atomic { op: AtomicOp::Store, buffer, index, path, value, compare, result });
    }

    /// Stores `value` where the old one equals `compare`; gives the old value.
    pub fn compare_exchange(&mut self, place: Place, compare: impl Into<Expr>, value: impl Into<Expr>) -> Value {
        self.any_atomic(AtomicOp::CompareExchange, place, Some(value.into()), Some(compare.into()))
    }

    fn any_atomic(&mut self, op: AtomicOp, place: Place, value: Option<Expr>, compare: Option<Expr>) -> Value {
        let Place { buffer, index, path } = place;
        let result = self.names.fresh("old");
        self.push(Node::Atomic { op, buffer, index, path, value, compare, result: Some(result.clone()) });
        Value(result)
    }

    /// Calls a function; gives what it returns.
    pub fn call<const N: usize>(&mut self, function: &FunctionHandle<N>, args: [Expr; N]) -> Value {
        let result = self.names.fresh("result");
        self.push(Node::Call { function: function.0.clone(), args: args.into(), result: Some(result.clone()) });
        Value(result)
    }

    /// Calls a procedure.
    pub fn run<const N: usize>(&mut self, function: &FunctionHandle<N>, args: [Expr; N]) {
        self.push(Node::Call { function: function.0.clone(), args: args.into(), result: None });
    }
}

impl Switch<'_> {
    fn arm(&mut self, values: Vec<Literal>, default: bool, build: impl FnOnce(&mut Body<'_>)) {
        let mut body = Body::new(self.names);
        build(&mut body);
        let body = body.finish();
        self.cases.push(Case { values, default, body });
    }

    /// An arm for some values.
    pub fn case<T: Into<Literal>, const N: usize>(&mut self, values: [T; N], build: impl FnOnce(&mut Body<'_>)) {
        self.arm(values.map(Into::into).into(), false, build);
    }

    /// The arm for everything else.
    pub fn default(&mut self, build: impl FnOnce(&mut Body<'_>)) {
        self.arm(Vec::new(), true, build);
    }
}
