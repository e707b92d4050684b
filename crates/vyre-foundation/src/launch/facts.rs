//! What must hold for an invocation to come to a place of a kernel, as upper limits of linear forms of its ids.

use std::cell::Cell;
use std::sync::Arc;

use super::extent::{Arith, Extent, name};
use super::forms::{Atom, Def, Form, Forms, Linear, Slack};
use crate::ir::{Literal, Program};
use crate::kernel::{Binary, Op, Unary, Value};

/// `linear < limit`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fact {
    pub(super) linear: Linear,
    pub(super) limit: Arc<Extent>,
    pub(super) source: Source,
    /// Compared without signs, so that a difference below zero is very large.
    unsigned: bool,
}

/// Why a fact holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// The kernel compares.
    Compared(String),
    /// The buffer, by position in binding order, has no such element otherwise.
    Indexed(u32, String),
    /// All invocations would do the same.
    Once,
}

impl Source {
    /// As a person would write it.
    pub(super) fn text(&self) -> &str {
        match self {
            Source::Compared(text) | Source::Indexed(_, text) => text,
            Source::Once => "all do the same",
        }
    }
}

/// How deep and how far a condition is followed, and how many facts are kept.
const DEPTH: u32 = 12;
const STEPS: u32 = 256;
const MOST: usize = 24;

/// What follows from a value being true, or false; `None` where it can't be.
pub(super) fn conditions(forms: &Forms<'_>, program: &Program, value: Value, truth: bool) -> Option<Vec<Fact>> {
    follow(forms, program, value, truth, DEPTH, &Cell::new(STEPS))
}

fn follow(
    forms: &Forms<'_>,
    program: &Program,
    value: Value,
    truth: bool,
    depth: u32,
    steps: &Cell<u32>,
) -> Option<Vec<Fact>> {
    // Where it is not followed, nothing is known.
    if depth == 0 || steps.get() == 0 {
        return Some(Vec::new());
    }
    steps.set(steps.get() - 1);
    let inner = |value, truth| follow(forms, program, value, truth, depth - 1, steps);
    match forms.defs[value.index()] {
        Def::Op(Op::Const(Literal::Bool(known))) => (*known == truth).then(Vec::new),
        Def::Op(Op::Unary(Unary::Not, a)) => inner(*a, !truth),
        Def::Op(Op::Binary(Binary::And, a, b)) if truth => both(inner(*a, true), inner(*b, true)),
        Def::Op(Op::Binary(Binary::And, a, b)) => either(inner(*a, false), inner(*b, false)),
        Def::Op(Op::Binary(Binary::Or, a, b)) if truth => either(inner(*a, true), inner(*b, true)),
        Def::Op(Op::Binary(Binary::Or, a, b)) => both(inner(*a, false), inner(*b, false)),
        Def::Op(Op::Select(cond, a, b)) => {
            either(both(inner(*cond, true), inner(*a, truth)), both(inner(*cond, false), inner(*b, truth)))
        }
        Def::Choice(cond, yes, no) => {
            let way = |value: Option<Value>, side| both(inner(cond, side), inner(value?, truth));
            either(way(yes, true), way(no, false))
        }
        Def::Op(Op::Binary(op, a, b)) => Some(compare(forms, program, *op, *a, *b, truth).into_iter().collect()),
        _ => Some(Vec::new()),
    }
}

fn both(a: Option<Vec<Fact>>, b: Option<Vec<Fact>>) -> Option<Vec<Fact>> {
    let mut facts = a?;
    facts.extend(b?);
    facts.truncate(MOST);
    Some(facts)
}

fn either(a: Option<Vec<Fact>>, b: Option<Vec<Fact>>) -> Option<Vec<Fact>> {
    let (a, b) = match (a, b) {
        (Some(a), Some(b)) => (a, b),
        (Some(only), None) | (None, Some(only)) => return Some(only),
        (None, None) => return None,
    };
    let mut facts = Vec::new();
    for fact in &a {
        for other in b.iter().filter(|other| other.linear == fact.linear && other.unsigned == fact.unsigned) {
            if let Some(limit) = Extent::whole(Arith::Max, &fact.limit, &other.limit) {
                facts.push(Fact { limit, ..fact.clone() });
            }
        }
    }
    facts.truncate(MOST);
    Some(facts)
}

/// A comparison of something that differs between invocations with something known at launch.
fn compare(forms: &Forms<'_>, program: &Program, op: Binary, a: Value, b: Value, truth: bool) -> Option<Fact> {
    let op = match (op, truth) {
        (op, true) => op,
        (Binary::Lt, false) => Binary::Ge,
        (Binary::Le, false) => Binary::Gt,
        (Binary::Gt, false) => Binary::Le,
        (Binary::Ge, false) => Binary::Lt,
        (Binary::Eq, false) => Binary::Ne,
        (Binary::Ne, false) => Binary::Eq,
        _ => return None,
    };
    let (linear, op, number) = match (forms.of(a), forms.of(b)) {
        (Form::Linear(linear), Form::Launch(number)) => (linear, op, number),
        (Form::Launch(number), Form::Linear(linear)) => {
            let turned = match op {
                Binary::Lt => Binary::Gt,
                Binary::Le => Binary::Ge,
                Binary::Gt => Binary::Lt,
                Binary::Ge => Binary::Le,
                same => same,
            };
            (linear, turned, number)
        }
        _ => return None,
    };
    let one = Extent::literal(1);
    let signed = forms.scalar(a).is_signed();
    let (linear, limit, sign) = match op {
        Binary::Lt => ((**linear).clone(), number.clone(), "<"),
        Binary::Le => ((**linear).clone(), Extent::whole(Arith::Add, number, &one)?, "<="),
        Binary::Eq => ((**linear).clone(), Extent::whole(Arith::Add, number, &one)?, "=="),
        // `n − 1 − id >= 0`, with signs.
        Binary::Ge | Binary::Gt if signed && linear.slack == Slack::Nothing => {
            let turned = linear.turned()?;
            let limit = Extent::whole(Arith::Sub, &Extent::literal(i64::from(op == Binary::Ge)), &number.unbounded())?;
            (turned, limit, if op == Binary::Ge { ">=" } else { ">" })
        }
        _ => return None,
    };
    let shown = match op {
        Binary::Ge | Binary::Gt => linear.turned().map_or_else(String::new, |linear| linear.text(program)),
        _ => linear.text(program),
    };
    let source = Source::Compared(format!("{shown} {sign} {}", number.text(program)));
    Some(Fact { linear, limit, source, unsigned: !signed })
}

/// What holds in the rounds of a loop that counts from `from` to below `to`.
pub(super) fn below(program: &Program, from: Linear, to: &Arc<Extent>) -> Fact {
    let source = Source::Compared(format!("{} < {}", from.text(program), to.text(program)));
    Fact { linear: from, limit: to.clone(), source, unsigned: true }
}

/// What follows from an access being in bounds.
pub(super) fn guard(forms: &Forms<'_>, program: &Program, value: Value, buffer: u32) -> Vec<Fact> {
    let mut facts = conditions(forms, program, value, true).unwrap_or_default();
    for fact in &mut facts {
        fact.source = Source::Indexed(buffer, format!("{}[{}]", name(program, buffer), fact.linear.text(program)));
    }
    facts
}

impl Fact {
    /// What the fact says about the ids of single axes, each as a limit of the number of invocations along it.
    pub(super) fn limits(&self, sizes: [u32; 3]) -> Vec<(u8, Arc<Extent>)> {
        let mut out = Vec::new();
        if self.linear.slack != Slack::Anything {
            split(&self.linear, &self.limit, self.unsigned, sizes, 4, &mut out);
        }
        out
    }

    /// The same without its constant part, as a stencil's neighbours have it.
    pub(super) fn centred(&self) -> Fact {
        let mut fact = self.clone();
        fact.linear.rest = Extent::literal(0);
        fact
    }
}

fn split(
    linear: &Linear,
    limit: &Arc<Extent>,
    unsigned: bool,
    sizes: [u32; 3],
    depth: u32,
    out: &mut Vec<(u8, Arc<Extent>)>,
) {
    let Some(room) = Extent::whole(Arith::Sub, limit, &linear.rest) else { return };
    if let [(atom, product)] = &linear.terms[..]
        && product.times < 0
    {
        // Counted down from `rest`: beyond it the difference wraps.
        if unsigned && linear.slack == Slack::Nothing && product.times == -1 && product.factors.is_empty() {
            let count = Extent::whole(Arith::Add, &linear.rest, &Extent::literal(1));
            if let Some(count) = count {
                along(atom, &count, unsigned, sizes, depth, out);
            }
        }
        return;
    }
    if linear.terms.iter().any(|(_, product)| product.times < 0) {
        return;
    }
    for (atom, product) in &linear.terms {
        if product.needs_grid() {
            continue;
        }
        if let Some(each) = product.extent()
            && let Some(count) = Extent::whole(Arith::DivUp, &room, &each)
        {
            along(atom, &count, unsigned, sizes, depth, out);
        }
    }
}

fn along(
    atom: &Atom,
    count: &Arc<Extent>,
    unsigned: bool,
    sizes: [u32; 3],
    depth: u32,
    out: &mut Vec<(u8, Arc<Extent>)>,
) {
    match atom {
        Atom::Global(axis) => out.push((*axis, count.clone())),
        Atom::Group(axis) => {
            let size = Extent::literal(sizes[usize::from(*axis)].into());
            out.extend(Extent::whole(Arith::Mul, count, &size).map(|count| (*axis, count)));
        }
        Atom::Local(_) => {}
        Atom::Quotient(inner, by) if depth > 0 => {
            if let Some(limit) = Extent::whole(Arith::Mul, count, by) {
                split(inner, &limit, unsigned, sizes, depth - 1, out);
            }
        }
        Atom::Quotient(..) => {}
    }
}
