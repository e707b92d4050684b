//! What an invocation does, by the look of the program.

use vyre_foundation::ir::{BinaryOp, Builtin, Expr, Literal, MathOp, Node, Program};

/// Roughly what one invocation of a program does, or what is done for one item of its work, before anything was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Effort {
    /// Operations with loads and stores, in all rounds of loops; 0 where nothing is known.
    pub operations: f64,
    /// Of these, atomic ones.
    pub atomics: f64,
    /// Bytes that come and go for nothing, because neighbours read or write places that are far from each other; of an item also those of
    /// the data that there are for it.
    pub bytes: f64,
}

/// Rounds of a loop whose end is not a number in the program.
const UNKNOWN_ROUNDS: f64 = 16.0;
const MOST_ROUNDS: f64 = 4096.0;
/// By so much a loop is shorter than its most rounds where something else may end it.
const EARLY_END: f64 = 0.25;
/// A load or store at a place that is computed in ways that scatter neighbours brings so many bytes that nobody asked for.
const SCATTERED: f64 = 32.0;
/// A function that is computed by a polynomial counts as so many operations.
const POLYNOMIAL: f64 = 20.0;
/// A program of more parts than these is not looked at to the end: calls in calls make even short ones endless.
const MOST_PARTS: usize = 20_000;

impl Effort {
    /// The effort of an invocation that does all that the program says: which way it goes at branches is not known.
    pub fn of(program: &Program) -> Effort {
        let mut effort = Effort::default();
        let mut lists: Vec<(&[Node], f64)> = vec![(program.body(), 1.0)];
        let mut parts = 0;
        while let Some((nodes, times)) = lists.pop() {
            for node in nodes {
                parts += 1;
                if parts > MOST_PARTS {
                    return effort;
                }
                effort.operations += times;
                effort.atomics += if matches!(node, Node::Atomic { .. }) { times } else { 0.0 };
                node.for_each_expr(|expr| effort.add(expr, times, &mut parts));
                if let Node::Store { index, .. } = node
                    && is_strided(index)
                {
                    effort.bytes += times * SCATTERED;
                }
                let inner = times * rounds(node);
                node.for_each_list(|list| lists.push((list, inner)));
                if let Node::Call { function, .. } = node {
                    let called = program.functions().iter().find(|known| known.name == *function);
                    lists.extend(called.map(|called| (called.body.as_slice(), times)));
                }
            }
        }
        effort
    }

    /// The effort for each of so many items of work, which so many invocations do on so many bytes.
    pub fn of_item(self, items: u64, invocations: u64, bytes: u64) -> Effort {
        let items = items.max(1) as f64;
        let each = invocations as f64 / items;
        Effort {
            operations: each * self.operations,
            atomics: each * self.atomics,
            bytes: each * self.bytes + bytes as f64 / items,
        }
    }

    /// Adds an expression that is computed so often. With a list instead of recursion: programs may be of any depth.
    fn add(&mut self, expr: &Expr, times: f64, parts: &mut usize) {
        let mut open = vec![expr];
        while let Some(expr) = open.pop() {
            *parts += 1;
            if *parts > MOST_PARTS {
                break;
            }
            self.operations += times
                * match expr {
                    Expr::Literal(_) | Expr::Var(_) | Expr::Constant(_) | Expr::Builtin(_) | Expr::Length(_) => 0.0,
                    Expr::MatrixMultiplyAdd { .. } => 64.0,
                    Expr::Math { op, .. } if is_polynomial(*op) => POLYNOMIAL,
                    _ => 1.0,
                };
            if let Expr::Load { index, .. } = expr
                && is_scattered(index)
            {
                self.bytes += times * SCATTERED;
            }
            expr.for_each_child(|child| open.push(child));
        }
    }
}

fn is_polynomial(op: MathOp) -> bool {
    use MathOp::{
        Acos, Acosh, Asin, Asinh, Atan, Atan2, Atanh, Cos, Cosh, Exp, Exp2, Log, Log2, Pow, Sin, Sinh, Tan, Tanh,
    };
    matches!(
        op,
        Acos | Acosh
            | Asin
            | Asinh
            | Atan
            | Atan2
            | Atanh
            | Cos
            | Cosh
            | Exp
            | Exp2
            | Log
            | Log2
            | Pow
            | Sin
            | Sinh
            | Tan
            | Tanh
    )
}

/// Neighbours read from places that are far from each other: a remainder, or what was read elsewhere, says where.
fn is_scattered(index: &Expr) -> bool {
    let mut open = vec![index];
    while let Some(expr) = open.pop() {
        if matches!(expr, Expr::Load { .. } | Expr::Binary { op: BinaryOp::Rem, .. }) {
            return true;
        }
        expr.for_each_child(|child| open.push(child));
    }
    false
}

/// Neighbours along x write to places that are far from each other: the first id is multiplied by more than a few.
fn is_strided(index: &Expr) -> bool {
    let mut open = vec![index];
    while let Some(expr) = open.pop() {
        if let Expr::Binary { op: BinaryOp::Mul, left, right } = expr {
            let is_id = |side: &Expr| matches!(side, Expr::Builtin(Builtin::GlobalId(0)));
            let is_far = |side: &Expr| number(side).is_none_or(|times| times > 4.0);
            if is_id(left) && is_far(right) || is_id(right) && is_far(left) {
                return true;
            }
        }
        expr.for_each_child(|child| open.push(child));
    }
    false
}

/// How often what is inside a statement runs each time.
fn rounds(node: &Node) -> f64 {
    match node {
        Node::For { from, to, step, .. } => match (number(from), number(to)) {
            (Some(from), Some(to)) => ((to - from) / f64::from((*step).max(1))).clamp(0.0, MOST_ROUNDS),
            _ => UNKNOWN_ROUNDS,
        },
        Node::Loop { body, break_if, .. } => {
            let leaves = |node: &Node| match node {
                Node::If { cond, then, otherwise } => {
                    (then.as_slice() == [Node::Break] || otherwise.as_slice() == [Node::Break]).then_some(limit(cond))
                }
                _ => None,
            };
            let limits = body.iter().filter_map(leaves).chain(break_if.as_ref().map(limit));
            // Whichever comes first; what is not known may come early.
            let (mut least, mut early) = (f64::INFINITY, false);
            for (limit, is_only) in limits {
                least = least.min(limit.unwrap_or(f64::INFINITY));
                early |= !is_only;
            }
            if least.is_finite() {
                (least * if early { EARLY_END } else { 1.0 }).clamp(1.0, MOST_ROUNDS)
            } else {
                UNKNOWN_ROUNDS
            }
        }
        _ => 1.0,
    }
}

/// The number that a condition to go on or to leave compares with, and whether that is all it does.
fn limit(cond: &Expr) -> (Option<f64>, bool) {
    use BinaryOp::{Ge, Gt, Le, Lt, Ne};
    let mut cond = cond;
    while let Expr::Unary { value, .. } = cond {
        cond = value;
    }
    match cond {
        Expr::Binary { op: Lt | Le | Gt | Ge | Ne, left, right } => (number(right).or_else(|| number(left)), true),
        Expr::Binary { left, right, .. } => {
            let one = |side: &Expr| match side {
                Expr::Binary { op: Lt | Le | Gt | Ge | Ne, left, right } => number(right).or_else(|| number(left)),
                _ => None,
            };
            (one(left).or_else(|| one(right)), false)
        }
        _ => (None, false),
    }
}

fn number(expr: &Expr) -> Option<f64> {
    match expr {
        Expr::Literal(Literal::U32(value)) => Some(f64::from(*value)),
        Expr::Literal(Literal::I32(value)) => Some(f64::from(*value)),
        _ => None,
    }
}
