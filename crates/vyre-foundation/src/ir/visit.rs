//! What lies directly inside an expression or statement, and how both are dropped: with a list instead of recursion, so
//! that a program of any depth can be refused and thrown away without running out of stack.

use super::{Access, Expr, Literal, Node};

impl Expr {
    /// Calls `visit` with every expression directly inside this one, in order.
    pub fn for_each_child<'a>(&'a self, mut visit: impl FnMut(&'a Expr)) {
        match self {
            Expr::Literal(_) | Expr::Var(_) | Expr::Constant(_) | Expr::Length(_) | Expr::Builtin(_) => {}
            Expr::Load { index: value, path, .. } | Expr::Part { value, path } => {
                visit(value);
                path_exprs(path).for_each(visit);
            }
            Expr::Unary { value, .. }
            | Expr::Cast { value, .. }
            | Expr::BitCast { value, .. }
            | Expr::Swizzle { value, .. } => visit(value),
            Expr::Binary { left, right, .. } => {
                visit(left);
                visit(right);
            }
            Expr::Math { args: parts, .. } | Expr::Construct { parts, .. } => parts.iter().for_each(visit),
            Expr::Select { cond, yes, no } => {
                visit(cond);
                visit(yes);
                visit(no);
            }
            Expr::Subgroup { value, argument, .. } => {
                visit(value);
                argument.iter().for_each(|argument| visit(argument));
            }
            Expr::MatrixMultiplyAdd { a, b, c, .. } => {
                visit(a);
                visit(b);
                visit(c);
            }
        }
    }
}

fn path_exprs(path: &[Access]) -> impl Iterator<Item = &Expr> {
    path.iter().filter_map(|access| match access {
        Access::Index(index) => Some(index),
        Access::Member(_) => None,
    })
}

impl Node {
    /// Calls `visit` with every expression directly in this statement, but not with those of the statements inside it.
    pub fn for_each_expr<'a>(&'a self, mut visit: impl FnMut(&'a Expr)) {
        match self {
            Node::Break | Node::Continue | Node::Barrier(_) | Node::Block(_) => {}
            Node::Let { value, .. } => visit(value),
            Node::Var { init: value, .. } | Node::Return(value) | Node::Loop { break_if: value, .. } => {
                value.iter().for_each(visit);
            }
            Node::Assign { path, value, .. } => {
                path_exprs(path).for_each(&mut visit);
                visit(value);
            }
            Node::Store { index, path, value, .. } => {
                visit(index);
                path_exprs(path).for_each(&mut visit);
                visit(value);
            }
            Node::If { cond: value, .. } | Node::Switch { selector: value, .. } => visit(value),
            Node::For { from, to, .. } => {
                visit(from);
                visit(to);
            }
            Node::Atomic { index, path, value, compare, .. } => {
                visit(index);
                path_exprs(path).for_each(&mut visit);
                value.iter().chain(compare).for_each(visit);
            }
            Node::Call { args, .. } => args.iter().for_each(visit),
        }
    }

    /// Calls `visit` with every statement list directly inside this statement.
    pub fn for_each_list<'a>(&'a self, mut visit: impl FnMut(&'a [Node])) {
        match self {
            Node::If { then, otherwise, .. } => {
                visit(then);
                visit(otherwise);
            }
            Node::Switch { cases, .. } => cases.iter().for_each(|case| visit(&case.body)),
            Node::For { body, .. } | Node::Block(body) => visit(body),
            Node::Loop { body, continuing, .. } => {
                visit(body);
                visit(continuing);
            }
            _ => {}
        }
    }
}

/// Calls `visit` with every expression directly inside.
fn for_each_child_mut(expr: &mut Expr, visit: &mut dyn FnMut(&mut Expr)) {
    match expr {
        Expr::Literal(_) | Expr::Var(_) | Expr::Constant(_) | Expr::Length(_) | Expr::Builtin(_) => {}
        Expr::Load { index: value, path, .. } | Expr::Part { value, path } => {
            visit(value);
            for step in path {
                if let Access::Index(index) = step {
                    visit(index);
                }
            }
        }
        Expr::Unary { value, .. }
        | Expr::Cast { value, .. }
        | Expr::BitCast { value, .. }
        | Expr::Swizzle { value, .. } => visit(value),
        Expr::Binary { left, right, .. } => {
            visit(left);
            visit(right);
        }
        Expr::Math { args: parts, .. } | Expr::Construct { parts, .. } => parts.iter_mut().for_each(visit),
        Expr::Select { cond, yes, no } => {
            visit(cond);
            visit(yes);
            visit(no);
        }
        Expr::Subgroup { value, argument, .. } => {
            visit(value);
            if let Some(argument) = argument {
                visit(argument);
            }
        }
        Expr::MatrixMultiplyAdd { a, b, c, .. } => {
            visit(a);
            visit(b);
            visit(c);
        }
    }
}

fn is_leaf(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(_) | Expr::Var(_) | Expr::Constant(_) | Expr::Length(_) | Expr::Builtin(_))
}

impl Drop for Expr {
    fn drop(&mut self) {
        if is_leaf(self) {
            return;
        }
        let mut waiting = Vec::new();
        let mut take = |child: &mut Expr| {
            if !is_leaf(child) {
                waiting.push(std::mem::replace(child, Expr::Literal(Literal::Bool(false))));
            }
        };
        for_each_child_mut(self, &mut take);
        while let Some(mut expr) = waiting.pop() {
            for_each_child_mut(&mut expr, &mut |child| {
                if !is_leaf(child) {
                    waiting.push(std::mem::replace(child, Expr::Literal(Literal::Bool(false))));
                }
            });
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let mut waiting: Vec<Vec<Node>> = Vec::new();
        take_lists(self, &mut waiting);
        while let Some(mut list) = waiting.pop() {
            list.iter_mut().for_each(|node| take_lists(node, &mut waiting));
        }
    }
}

fn take_lists(node: &mut Node, out: &mut Vec<Vec<Node>>) {
    let mut take = |list: &mut Vec<Node>| {
        if !list.is_empty() {
            out.push(std::mem::take(list));
        }
    };
    match node {
        Node::If { then, otherwise, .. } => {
            take(then);
            take(otherwise);
        }
        Node::Switch { cases, .. } => cases.iter_mut().for_each(|case| take(&mut case.body)),
        Node::For { body, .. } | Node::Block(body) => take(body),
        Node::Loop { body, continuing, .. } => {
            take(body);
            take(continuing);
        }
        _ => {}
    }
}
