//! Single changes to a program: to the n-th statement list, statement or expression.

use vyre_foundation::ir::{Access, Expr, Literal, Name, Node};

use super::types::Names;
use super::{Parts, Protected, collect_names, constants_of, is_own};
use crate::compare::{each_operand, visit};

/// Calls `change` on the n-th list of statements; `None` when there are fewer.
pub(super) fn list<T>(parts: &mut Parts, n: usize, change: impl FnOnce(&mut Vec<Node>) -> T) -> Option<T> {
    let mut left = n;
    let mut change = Some(change);
    let bodies = parts.functions.iter_mut().map(|function| &mut function.body).chain([&mut parts.body]);
    for body in bodies {
        let mut out = None;
        if each_list(body, &mut |nodes| {
            if left > 0 {
                left -= 1;
                return false;
            }
            out = change.take().map(|change| change(nodes));
            true
        }) {
            return out;
        }
    }
    None
}

fn each_list(nodes: &mut Vec<Node>, see: &mut dyn FnMut(&mut Vec<Node>) -> bool) -> bool {
    if see(nodes) {
        return true;
    }
    nodes.iter_mut().any(|node| match node {
        Node::If { then, otherwise, .. } => each_list(then, see) || each_list(otherwise, see),
        Node::Switch { cases, .. } => cases.iter_mut().any(|case| each_list(&mut case.body, see)),
        Node::For { body, .. } | Node::Block(body) => each_list(body, see),
        // What follows a round keeps the loop finite, so it is left alone.
        Node::Loop { body, .. } => each_list(body, see),
        _ => false,
    })
}

/// Replaces the n-th statement by others.
pub(super) fn edit_statement(parts: &mut Parts, n: usize, with: Vec<Node>) {
    let mut left = n;
    let mut with = Some(with);
    let bodies = parts.functions.iter_mut().map(|function| &mut function.body).chain([&mut parts.body]);
    for body in bodies {
        if each_list(body, &mut |nodes| {
            if left >= nodes.len() {
                left -= nodes.len();
                return false;
            }
            if let Some(with) = with.take() {
                nodes.splice(left..=left, with);
            }
            true
        }) {
            return;
        }
    }
}

/// What the n-th statement could become; `None` when there are fewer.
pub(super) fn simpler_statements(parts: &Parts, n: usize, keep: &Protected) -> Option<Vec<Vec<Node>>> {
    let mut left = n;
    let mut found = None;
    let mut copy = parts.clone();
    let bodies = copy.functions.iter_mut().map(|function| &mut function.body).chain([&mut copy.body]);
    for body in bodies {
        if each_list(body, &mut |nodes| {
            if left >= nodes.len() {
                left -= nodes.len();
                return false;
            }
            found = Some(nodes[left].clone());
            true
        }) {
            break;
        }
    }
    let names = Names::of(parts);
    let found = found?;
    Some(match &found {
        Node::If { cond, then, otherwise } => {
            let mut out = vec![then.clone(), otherwise.clone()];
            if !otherwise.is_empty() {
                out.push(vec![Node::if_then(cond, then.clone())]);
                out.push(vec![Node::if_then(!cond.clone(), otherwise.clone())]);
            }
            out
        }
        Node::Switch { cases, .. } => cases.iter().map(|case| case.body.clone()).collect(),
        Node::For { var, from, body, .. } => {
            let mut once = vec![Node::let_bind(var, from)];
            once.extend(body.iter().cloned());
            vec![body.clone(), vec![Node::Block(once.clone())], once]
        }
        Node::Loop { body, .. } => {
            let leaves = |node: &&Node| {
                let mut leaves = false;
                visit(std::slice::from_ref(*node), &mut |node| {
                    leaves |= matches!(node, Node::Break | Node::Continue);
                });
                leaves
            };
            vec![body.clone(), body.iter().filter(|node| !leaves(node)).cloned().collect()]
        }
        Node::Block(body) => vec![body.clone()],
        Node::Call { function, result: Some(result), .. } => {
            let ty = parts.functions.iter().find(|f| f.name == *function).and_then(|f| f.result.clone());
            let zero = ty.map(|ty| constants_of(&ty, &parts.types)).unwrap_or_default();
            zero.into_iter().map(|zero| vec![Node::let_bind(result, zero)]).collect()
        }
        Node::Atomic { buffer, path, result: Some(result), .. } if !keep.names.contains(result) => {
            let ty = names.of_buffer(buffer, path);
            let zero = ty.map(|ty| constants_of(&ty, &parts.types)).unwrap_or_default();
            zero.into_iter().map(|zero| vec![Node::let_bind(result, zero)]).collect()
        }
        Node::Var { name, init: Some(init), .. } if !keep.names.contains(name) => {
            vec![vec![Node::let_bind(name, init)]]
        }
        _ => Vec::new(),
    })
}

/// The expressions of a statement, without those of the statements in it.
pub(crate) fn node_exprs<'a>(node: &'a Node, see: &mut dyn FnMut(&'a Expr)) {
    fn steps<'a>(path: &'a [Access], see: &mut dyn FnMut(&'a Expr)) {
        for step in path {
            if let Access::Index(index) = step {
                see(index);
            }
        }
    }
    match node {
        Node::Let { value, .. } => see(value),
        Node::Var { init, .. } => init.iter().for_each(see),
        Node::Assign { path, value, .. } => {
            steps(path, see);
            see(value);
        }
        Node::Store { index, path, value, .. } => {
            see(index);
            steps(path, see);
            see(value);
        }
        Node::If { cond, .. } => see(cond),
        Node::Switch { selector, .. } => see(selector),
        Node::For { from, to, .. } => {
            see(from);
            see(to);
        }
        Node::Loop { break_if, .. } => break_if.iter().for_each(see),
        Node::Return(value) => value.iter().for_each(see),
        Node::Atomic { index, path, value, compare, .. } => {
            see(index);
            steps(path, see);
            value.iter().chain(compare).for_each(see);
        }
        Node::Call { args, .. } => args.iter().for_each(see),
        Node::Break | Node::Continue | Node::Barrier(_) | Node::Block(_) => {}
    }
}

/// Calls `see` for the expressions that may be changed, outer ones first, until it says true.
pub(super) fn open_exprs(parts: &mut Parts, keep: &Protected, see: &mut dyn FnMut(&mut Expr) -> bool) -> bool {
    let params: Vec<(Name, Vec<Name>)> = parts
        .functions
        .iter()
        .map(|f| (f.name.clone(), f.params.iter().map(|param| param.name.clone()).collect()))
        .collect();
    let bodies = parts.functions.iter_mut().map(|function| &mut function.body).chain([&mut parts.body]);
    for body in bodies {
        if nodes_exprs(body, keep, &params, see) {
            return true;
        }
    }
    false
}

fn nodes_exprs(
    nodes: &mut [Node],
    keep: &Protected,
    params: &[(Name, Vec<Name>)],
    see: &mut dyn FnMut(&mut Expr) -> bool,
) -> bool {
    nodes.iter_mut().any(|node| match node {
        Node::Let { name, value } => !keep.names.contains(name) && inner(value, keep, see),
        Node::Var { name, init, .. } => {
            !keep.names.contains(name) && init.as_mut().is_some_and(|init| inner(init, keep, see))
        }
        Node::Assign { name, path, value } => {
            !keep.names.contains(name) && (path_exprs(path, keep, see) || inner(value, keep, see))
        }
        Node::Store { path, value, .. } => path_exprs(path, keep, see) || inner(value, keep, see),
        Node::If { cond, then, otherwise } => {
            // A condition that ends a loop stays as it is.
            (!then.contains(&Node::Break) && inner(cond, keep, see))
                || nodes_exprs(then, keep, params, see)
                || nodes_exprs(otherwise, keep, params, see)
        }
        Node::Switch { selector, cases } => {
            inner(selector, keep, see) || cases.iter_mut().any(|case| nodes_exprs(&mut case.body, keep, params, see))
        }
        Node::For { var, from, to, body, .. } => {
            (!keep.names.contains(var) && (inner(from, keep, see) || inner(to, keep, see)))
                || nodes_exprs(body, keep, params, see)
        }
        Node::Loop { body, continuing, .. } => {
            nodes_exprs(body, keep, params, see) || nodes_exprs(continuing, keep, params, see)
        }
        Node::Return(value) => value.as_mut().is_some_and(|value| inner(value, keep, see)),
        Node::Atomic { path, value, compare, .. } => {
            path_exprs(path, keep, see) || value.iter_mut().chain(compare).any(|value| inner(value, keep, see))
        }
        Node::Call { function, args, .. } => {
            let params = params.iter().find(|(name, _)| name == function).map(|(_, params)| params.as_slice());
            args.iter_mut().enumerate().any(|(i, arg)| {
                let kept = params.and_then(|params| params.get(i)).is_some_and(|param| keep.names.contains(param));
                !kept && inner(arg, keep, see)
            })
        }
        Node::Block(body) => nodes_exprs(body, keep, params, see),
        Node::Break | Node::Continue | Node::Barrier(_) => false,
    })
}

fn path_exprs(path: &mut [Access], keep: &Protected, see: &mut dyn FnMut(&mut Expr) -> bool) -> bool {
    path.iter_mut().any(|step| match step {
        Access::Index(index) => inner(index, keep, see),
        Access::Member(_) => false,
    })
}

fn inner(expr: &mut Expr, keep: &Protected, see: &mut dyn FnMut(&mut Expr) -> bool) -> bool {
    if see(expr) {
        return true;
    }
    match expr {
        Expr::Literal(_) | Expr::Var(_) | Expr::Constant(_) | Expr::Length(_) | Expr::Builtin(_) => false,
        Expr::Load { buffer, index, path } => {
            let kept = keep.written.contains(buffer) && is_own(index);
            (!kept && inner(index, keep, see)) || path_exprs(path, keep, see)
        }
        Expr::Unary { value, .. }
        | Expr::Cast { value, .. }
        | Expr::BitCast { value, .. }
        | Expr::Swizzle { value, .. } => inner(value, keep, see),
        Expr::Binary { left, right, .. } => inner(left, keep, see) || inner(right, keep, see),
        Expr::Math { args, .. } => args.iter_mut().any(|arg| inner(arg, keep, see)),
        Expr::Select { cond, yes, no } => inner(cond, keep, see) || inner(yes, keep, see) || inner(no, keep, see),
        Expr::Construct { parts, .. } => parts.iter_mut().any(|part| inner(part, keep, see)),
        Expr::Part { value, path } => inner(value, keep, see) || path_exprs(path, keep, see),
        Expr::Subgroup { value, argument, .. } => {
            inner(value, keep, see) || argument.as_mut().is_some_and(|argument| inner(argument, keep, see))
        }
        Expr::MatrixMultiplyAdd { a, b, c, .. } => inner(a, keep, see) || inner(b, keep, see) || inner(c, keep, see),
    }
}

/// What the n-th open expression could become; `None` when there are fewer.
pub(super) fn simpler_exprs(parts: &Parts, n: usize, keep: &Protected) -> Option<Vec<Expr>> {
    let mut left = n;
    let mut found = None;
    open_exprs(&mut parts.clone(), keep, &mut |expr| {
        if left > 0 {
            left -= 1;
            return false;
        }
        found = Some(expr.clone());
        true
    });
    let expr = found?;
    if matches!(&expr, Expr::Literal(literal) if literal.bits() == 0) {
        return Some(Vec::new());
    }
    let names = Names::of(parts);
    let ty = names.of_expr(&expr);
    let mut out = ty.as_ref().map(|ty| constants_of(ty, &parts.types)).unwrap_or_default();
    if let (Expr::Constant(name), None) = (&expr, &ty) {
        out.extend(parts.constants.iter().find(|c| c.name == *name).map(|c| Expr::Literal(c.default)));
    }
    // A part of the same type, at any depth.
    let mut operands = Vec::new();
    below(&expr, &mut operands);
    let (alike, others): (Vec<&Expr>, Vec<&Expr>) =
        operands.into_iter().partition(|operand| ty.is_some() && names.of_expr(operand) == ty);
    out.extend(alike.into_iter().cloned());
    // Or one of another type, converted.
    if let Some(ty) = ty.filter(|ty| Literal::zero(ty).is_some()) {
        let scalar = |operand: &&Expr| names.of_expr(operand).is_some_and(|ty| Literal::zero(&ty).is_some());
        out.extend(others.into_iter().filter(scalar).map(|operand| operand.clone().cast(ty.clone())));
    }
    if let Expr::Literal(literal) = &expr {
        out.retain(|other| matches!(other, Expr::Literal(Literal::Bool(_))) || *other != Expr::Literal(*literal));
    }
    Some(out)
}

fn below<'a>(expr: &'a Expr, out: &mut Vec<&'a Expr>) {
    each_operand(expr, &mut |operand| out.push(operand));
    each_operand(expr, &mut |operand| below(operand, out));
}

pub(super) fn replace_expr(parts: &mut Parts, n: usize, keep: &Protected, with: Expr) {
    let mut left = n;
    open_exprs(parts, keep, &mut |expr| {
        if left > 0 {
            left -= 1;
            return false;
        }
        *expr = with.clone();
        true
    });
}

/// Replaces every use of the `let`s of this name by its value, and removes it. False when the value may be another one
/// later.
pub(super) fn inline(parts: &mut Parts, name: &Name, keep: &Protected) -> bool {
    let mut value = None;
    for body in parts.bodies() {
        visit(body, &mut |node| {
            if let Node::Let { name: own, value: v } = node
                && own == name
            {
                value = Some(v.clone());
            }
        });
    }
    let Some(value) = value.filter(|value| is_fixed(value, parts, keep)) else { return false };
    let everything = Protected { names: Default::default(), written: Default::default() };
    open_exprs(parts, &everything, &mut |expr| {
        if matches!(expr, Expr::Var(own) if own == name) {
            *expr = value.clone();
        }
        false
    });
    let mut at = 0;
    while list(parts, at, |nodes| nodes.retain(|node| !matches!(node, Node::Let { name: own, .. } if own == name)))
        .is_some()
    {
        at += 1;
    }
    true
}

/// The value is the same wherever it is computed.
fn is_fixed(expr: &Expr, parts: &Parts, keep: &Protected) -> bool {
    let own = match expr {
        Expr::Load { buffer, .. } => !keep.written.contains(buffer),
        Expr::Subgroup { .. } | Expr::MatrixMultiplyAdd { .. } => false,
        Expr::Var(name) => {
            let mut fixed = true;
            for body in parts.bodies() {
                visit(body, &mut |node| fixed &= !matches!(node, Node::Var { name: own, .. } if own == name));
            }
            fixed
        }
        _ => true,
    };
    let mut fixed = own;
    each_operand(expr, &mut |operand| fixed &= is_fixed(operand, parts, keep));
    fixed
}

/// Replaces every index into a buffer by `id`, where each is made from it. True when something changed.
pub(super) fn plain_index(parts: &mut Parts, buffer: &Name) -> bool {
    let id = Expr::var("id");
    let (mut all, mut changed) = (true, false);
    let mut set = |index: &mut Expr| {
        let mut names = std::collections::HashSet::new();
        collect_names(index, &mut names);
        all &= names.contains("id");
        changed |= *index != id;
        *index = id.clone();
    };
    fn in_expr(expr: &mut Expr, buffer: &Name, set: &mut dyn FnMut(&mut Expr)) {
        let nothing = Protected { names: Default::default(), written: Default::default() };
        inner(expr, &nothing, &mut |expr| {
            if let Expr::Load { buffer: from, index, .. } = expr
                && from == buffer
            {
                set(index);
            }
            false
        });
    }
    fn in_nodes(nodes: &mut [Node], buffer: &Name, set: &mut dyn FnMut(&mut Expr)) {
        for node in nodes {
            if let Node::Store { buffer: to, index, .. } | Node::Atomic { buffer: to, index, .. } = node
                && to == buffer
            {
                set(index);
            }
            if let Node::Loop { continuing, break_if, .. } = node {
                in_nodes(continuing, buffer, set);
                if let Some(cond) = break_if {
                    in_expr(cond, buffer, set);
                }
            }
            if let Node::Store { index, .. } | Node::Atomic { index, .. } = node {
                in_expr(index, buffer, set);
            }
            match node {
                Node::If { cond, then, otherwise } => {
                    in_expr(cond, buffer, set);
                    in_nodes(then, buffer, set);
                    in_nodes(otherwise, buffer, set);
                }
                Node::Switch { selector, cases } => {
                    in_expr(selector, buffer, set);
                    cases.iter_mut().for_each(|case| in_nodes(&mut case.body, buffer, set));
                }
                Node::For { from, to, body, .. } => {
                    in_expr(from, buffer, set);
                    in_expr(to, buffer, set);
                    in_nodes(body, buffer, set);
                }
                Node::Loop { body, .. } | Node::Block(body) => in_nodes(body, buffer, set),
                Node::Let { value, .. } => in_expr(value, buffer, set),
                Node::Var { init, .. } => init.iter_mut().for_each(|init| in_expr(init, buffer, set)),
                Node::Assign { path, value, .. } | Node::Store { path, value, .. } => {
                    for step in path {
                        if let Access::Index(index) = step {
                            in_expr(index, buffer, set);
                        }
                    }
                    in_expr(value, buffer, set);
                }
                Node::Return(value) => value.iter_mut().for_each(|value| in_expr(value, buffer, set)),
                Node::Atomic { value, compare, .. } => {
                    value.iter_mut().chain(compare).for_each(|value| in_expr(value, buffer, set));
                }
                Node::Call { args, .. } => args.iter_mut().for_each(|arg| in_expr(arg, buffer, set)),
                Node::Break | Node::Continue | Node::Barrier(_) => {}
            }
        }
    }
    for function in &mut parts.functions {
        in_nodes(&mut function.body, buffer, &mut set);
    }
    in_nodes(&mut parts.body, buffer, &mut set);
    all && changed
}
