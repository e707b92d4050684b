//! What must be known about statements before they are lowered.

use hashbrown::HashSet;

use super::literal;
use crate::ir::{Access, Expr, Node};
use crate::launch::Constants;

/// Collects the names that some path indexes by something not constant.
pub(super) fn indexed<'a>(nodes: &'a [Node], constants: &Constants<'_>, out: &mut HashSet<&'a str>) {
    each_node(nodes, &mut |node| {
        if let Node::Assign { name, path, .. } = node
            && dynamic(path, constants)
        {
            out.insert(name.as_str());
        }
        each_expr(node, &mut |expr| {
            if let Expr::Part { value, path } = expr
                && let Expr::Var(name) = &**value
                && dynamic(path, constants)
            {
                out.insert(name.as_str());
            }
        });
    });
}

fn dynamic(path: &[Access], constants: &Constants<'_>) -> bool {
    path.iter().any(|access| matches!(access, Access::Index(index) if literal(index, constants).is_none()))
}

/// What a loop's body does to the world outside it.
pub(super) struct LoopEffects<'a> {
    pub(super) assigned: Vec<&'a str>,
    pub(super) returns: bool,
}

/// Scans the statements of a loop.
pub(super) fn loop_effects<'a>(nodes: &'a [Node]) -> LoopEffects<'a> {
    let mut effects = LoopEffects { assigned: Vec::new(), returns: false };
    each_node(nodes, &mut |node| match node {
        Node::Assign { name, .. } => effects.assigned.push(name.as_str()),
        Node::Return(_) => effects.returns = true,
        _ => {}
    });
    effects
}

/// Some `Continue` belongs to the loop whose body this is.
pub(super) fn continues(nodes: &[Node]) -> bool {
    nodes.iter().any(|node| match node {
        Node::Continue => true,
        Node::If { then, otherwise, .. } => continues(then) || continues(otherwise),
        Node::Switch { cases, .. } => cases.iter().any(|case| continues(&case.body)),
        Node::Block(body) => continues(body),
        _ => false,
    })
}

pub(super) fn each_node<'a>(nodes: &'a [Node], visit: &mut impl FnMut(&'a Node)) {
    for node in nodes {
        visit(node);
        match node {
            Node::If { then, otherwise, .. } => {
                each_node(then, visit);
                each_node(otherwise, visit);
            }
            Node::Switch { cases, .. } => cases.iter().for_each(|case| each_node(&case.body, visit)),
            Node::For { body, .. } | Node::Block(body) => each_node(body, visit),
            Node::Loop { body, continuing, .. } => {
                each_node(body, visit);
                each_node(continuing, visit);
            }
            _ => {}
        }
    }
}

/// Visits the expressions of one statement, inner statements left out.
pub(super) fn each_expr<'a>(node: &'a Node, visit: &mut impl FnMut(&'a Expr)) {
    let mut stack: Vec<&'a Expr> = Vec::new();
    match node {
        Node::Let { value, .. } => stack.push(value),
        Node::Var { init, .. } => stack.extend(init),
        Node::Assign { path, value, .. } => {
            stack.push(value);
            push_path(path, &mut stack);
        }
        Node::Store { index, path, value, .. } => {
            stack.extend([index, value]);
            push_path(path, &mut stack);
        }
        Node::If { cond, .. } => stack.push(cond),
        Node::Switch { selector, .. } => stack.push(selector),
        Node::For { from, to, .. } => stack.extend([from, to]),
        Node::Loop { break_if, .. } => stack.extend(break_if),
        Node::Return(value) => stack.extend(value),
        Node::Atomic { index, path, value, compare, .. } => {
            stack.push(index);
            push_path(path, &mut stack);
            stack.extend(value);
            stack.extend(compare);
        }
        Node::Call { args, .. } => stack.extend(args),
        Node::Break | Node::Continue | Node::Barrier(_) | Node::Block(_) => {}
    }
    while let Some(expr) = stack.pop() {
        visit(expr);
        match expr {
            Expr::Literal(_) | Expr::Var(_) | Expr::Constant(_) | Expr::Length(_) | Expr::Builtin(_) => {}
            Expr::Load { index, path, .. } => {
                stack.push(index);
                push_path(path, &mut stack);
            }
            Expr::Unary { value, .. }
            | Expr::Cast { value, .. }
            | Expr::BitCast { value, .. }
            | Expr::Swizzle { value, .. } => stack.push(value),
            Expr::Binary { left, right, .. } => stack.extend([&**left, &**right]),
            Expr::Math { args, .. } => stack.extend(args),
            Expr::Construct { parts, .. } => stack.extend(parts),
            Expr::Select { cond, yes, no } => stack.extend([&**cond, &**yes, &**no]),
            Expr::Part { value, path } => {
                stack.push(value);
                push_path(path, &mut stack);
            }
            Expr::Subgroup { value, argument, .. } => {
                stack.push(value);
                stack.extend(argument.as_deref());
            }
            Expr::MatrixMultiplyAdd { a, b, c, .. } => stack.extend([&**a, &**b, &**c]),
        }
    }
}

fn push_path<'a>(path: &'a [Access], stack: &mut Vec<&'a Expr>) {
    for access in path {
        if let Access::Index(index) = access {
            stack.push(index);
        }
    }
}
