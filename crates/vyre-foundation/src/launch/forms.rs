//! What each integer of a kernel is in terms of the invocation's ids and of numbers that are known at launch.

use std::sync::Arc;

use super::extent::{Arith, Extent, Operator, axis_name};
use crate::ir::{BufferKind, Builtin, Literal, Program};
use crate::kernel::walk::{each_inst, each_operand, exits};
use crate::kernel::{Binary, Block, Element, End, Inst, Kernel, Loop, Memory, Op, Scalar, Unary, Value};

/// What differs from one invocation to the next.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Atom {
    Global(u8),
    Group(u8),
    Local(u8),
    /// A form divided by a number, rounded down.
    Quotient(Arc<Linear>, Arc<Extent>),
}

/// A number times numbers that are known at launch and taken to be positive.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Product {
    pub(super) times: i64,
    /// Sorted.
    pub(super) factors: Vec<Arc<Extent>>,
}

/// What else is added to a linear form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Slack {
    Nothing,
    /// Something that is not negative, and small enough that sums with it do not wrap.
    Some,
    Anything,
}

/// `Σ product · atom + rest + slack`. Sizes and ids are taken to be small enough that it does not wrap.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Linear {
    /// Sorted by atom, none twice.
    pub(super) terms: Vec<(Atom, Product)>,
    pub(super) rest: Arc<Extent>,
    pub(super) slack: Slack,
}

/// What is known about an integer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The same for all invocations, and known at launch.
    Launch(Arc<Extent>),
    Linear(Arc<Linear>),
    /// Not negative, and small enough that sums with it do not wrap.
    Small,
    Anything,
}

/// What defines a value.
#[derive(Clone, Copy)]
pub(super) enum Def<'k> {
    Op(&'k Op),
    /// Result of an `If`: the condition, and what each way gives where it goes on.
    Choice(Value, Option<Value>, Option<Value>),
    Other,
}

/// The forms of all values of a kernel.
pub(super) struct Forms<'k> {
    pub(super) kernel: &'k Kernel,
    pub(super) defs: Vec<Def<'k>>,
    forms: Vec<Form>,
    /// Of each value: it is the same for all invocations of a launch. Only what is computed without a choice is followed.
    same: Vec<bool>,
}

/// How far definitions are followed where no order bounds it.
const DEPTH: u32 = 8;
/// Products that are larger than this make sums that are expected to wrap, as in a hash.
const LARGEST_TIMES: i64 = 1 << 24;

impl Product {
    fn one() -> Product {
        Product { times: 1, factors: Vec::new() }
    }

    pub(super) fn of(extent: &Arc<Extent>) -> Product {
        match &**extent {
            Extent::Literal(times) => Product { times: *times, factors: Vec::new() },
            Extent::Computed(Operator::Mul, _, a, b) | Extent::Whole(Arith::Mul, a, b) => {
                Product::of(a).by(&Product::of(b))
            }
            Extent::Computed(Operator::Convert, _, a, _) => Product::of(a),
            Extent::Computed(Operator::Shl, _, a, b) => match &**b {
                Extent::Literal(by @ 0..=24) => Product::of(a).by(&Product { times: 1 << by, factors: Vec::new() }),
                _ => Product { times: 1, factors: vec![extent.clone()] },
            },
            _ => Product { times: 1, factors: vec![extent.clone()] },
        }
    }

    fn by(mut self, other: &Product) -> Product {
        self.times = self.times.saturating_mul(other.times);
        self.factors.extend(other.factors.iter().cloned());
        self.factors.sort();
        self
    }

    pub(super) fn extent(&self) -> Option<Arc<Extent>> {
        let first = Extent::literal(self.times);
        self.factors.iter().try_fold(first, |product, factor| Extent::whole(Arith::Mul, &product, factor))
    }

    /// What this is multiplied by to give `larger`, where that is more than one.
    pub(super) fn ratio(&self, larger: &Product) -> Option<Product> {
        if self.times <= 0 || larger.times % self.times != 0 {
            return None;
        }
        let mut factors = larger.factors.clone();
        for factor in &self.factors {
            let at = factors.iter().position(|other| other == factor)?;
            factors.remove(at);
        }
        let ratio = Product { times: larger.times / self.times, factors };
        (ratio.times > 1 || (ratio.times == 1 && !ratio.factors.is_empty())).then_some(ratio)
    }

    pub(super) fn needs_grid(&self) -> bool {
        self.factors.iter().any(|factor| factor.needs_grid())
    }
}

impl Linear {
    fn number(rest: Arc<Extent>, slack: Slack) -> Linear {
        Linear { terms: Vec::new(), rest, slack }
    }

    fn atom(atom: Atom) -> Linear {
        Linear { terms: vec![(atom, Product::one())], rest: Extent::literal(0), slack: Slack::Nothing }
    }

    fn plus(&self, other: &Linear, sizes: [u32; 3]) -> Option<Linear> {
        let mut terms = self.terms.clone();
        for (atom, product) in &other.terms {
            match terms.iter_mut().find(|(known, _)| known == atom) {
                Some((_, sum)) if sum.factors == product.factors => sum.times += product.times,
                Some((_, sum)) => {
                    let both = Extent::whole(Arith::Add, &sum.extent()?, &product.extent()?)?;
                    *sum = Product { times: 1, factors: vec![both] };
                }
                None => terms.push((atom.clone(), product.clone())),
            }
        }
        terms.retain(|(_, product)| product.times != 0);
        let mut sum = Linear {
            terms,
            rest: Extent::whole(Arith::Add, &self.rest, &other.rest)?,
            slack: self.slack.max(other.slack),
        };
        sum.join_ids(sizes);
        sum.terms.sort();
        Some(sum)
    }

    /// `group · size + local` is the global id.
    fn join_ids(&mut self, sizes: [u32; 3]) {
        for axis in 0..3u8 {
            let size = i64::from(sizes[usize::from(axis)]);
            let find = |atom: Atom| self.terms.iter().position(|(known, _)| *known == atom);
            let Some(group) = find(Atom::Group(axis)) else { continue };
            let times = &self.terms[group].1;
            match find(Atom::Local(axis)) {
                Some(local)
                    if times.factors == self.terms[local].1.factors
                        && Some(times.times) == self.terms[local].1.times.checked_mul(size) =>
                {
                    self.terms[local].0 = Atom::Global(axis);
                    self.terms.remove(group);
                }
                None if size == 1 => self.terms[group].0 = Atom::Global(axis),
                _ => {}
            }
        }
    }

    fn times(&self, by: &Arc<Extent>) -> Option<Linear> {
        let product = Product::of(by);
        let negative = product.times < 0;
        let slack = match self.slack {
            Slack::Some if negative => Slack::Anything,
            slack => slack,
        };
        Some(Linear {
            terms: self
                .terms
                .iter()
                .map(|(atom, times)| (atom.clone(), times.clone().by(&product)))
                .filter(|(_, times)| times.times != 0)
                .collect(),
            rest: Extent::whole(Arith::Mul, &self.rest, by)?,
            slack,
        })
    }

    /// The negative of it.
    pub(super) fn turned(&self) -> Option<Linear> {
        self.times(&Extent::literal(-1))
    }

    fn loose(&self) -> Linear {
        Linear { slack: self.slack.max(Slack::Some), ..self.clone() }
    }

    /// Surely not negative, sizes and ids being what they are taken to be.
    fn not_negative(&self) -> bool {
        self.slack != Slack::Anything
            && self.terms.iter().all(|(_, product)| product.times >= 0)
            && !matches!(&*self.rest, Extent::Literal(..=-1) | Extent::Whole(Arith::Sub, ..))
    }

    /// Some product is so large that the sum wraps on purpose.
    fn wraps(&self) -> bool {
        self.terms.iter().any(|(_, product)| product.times.abs() > LARGEST_TIMES)
    }

    /// The axes whose ids take part.
    pub(super) fn axes(&self) -> [bool; 3] {
        let mut axes = [false; 3];
        for (atom, _) in &self.terms {
            match atom {
                Atom::Global(axis) | Atom::Group(axis) => axes[usize::from(*axis)] = true,
                Atom::Local(_) => {}
                Atom::Quotient(inner, _) => {
                    let inner = inner.axes();
                    (0..3).for_each(|axis| axes[axis] |= inner[axis]);
                }
            }
        }
        axes
    }

    /// As a person would write it.
    pub(super) fn text(&self, program: &Program) -> String {
        let mut text = String::new();
        for (atom, product) in &self.terms {
            if !text.is_empty() {
                text += if product.times < 0 { " - " } else { " + " };
            } else if product.times < 0 {
                text += "-";
            }
            text += &match atom {
                Atom::Global(axis) => format!("id.{}", axis_name(*axis)),
                Atom::Group(axis) => format!("group.{}", axis_name(*axis)),
                Atom::Local(axis) => format!("local.{}", axis_name(*axis)),
                Atom::Quotient(inner, by) => format!("({}) / {}", inner.text(program), by.text(program)),
            };
            if product.times.abs() != 1 {
                text += &format!(" * {}", product.times.abs());
            }
            for factor in &product.factors {
                text += &match &**factor {
                    Extent::Computed(..) | Extent::Whole(..) => format!(" * ({})", factor.text(program)),
                    _ => format!(" * {}", factor.text(program)),
                };
            }
        }
        match &*self.rest {
            Extent::Literal(0) if !text.is_empty() => {}
            Extent::Literal(rest) if *rest < 0 && !text.is_empty() => text += &format!(" - {}", -rest),
            rest if text.is_empty() => text = rest.text(program),
            rest => text += &format!(" + {}", rest.text(program)),
        }
        if self.slack != Slack::Nothing {
            text += " + …";
        }
        text
    }
}

impl Form {
    fn linear(linear: Option<Linear>) -> Form {
        match linear {
            Some(linear) if !linear.wraps() => Form::Linear(Arc::new(linear)),
            _ => Form::Anything,
        }
    }

    /// As a sum, where it is one.
    pub(super) fn as_linear(&self) -> Option<Linear> {
        match self {
            Form::Launch(extent) => Some(Linear::number(extent.unbounded(), Slack::Nothing)),
            Form::Linear(linear) => Some((**linear).clone()),
            Form::Small => Some(Linear::number(Extent::literal(0), Slack::Some)),
            Form::Anything => None,
        }
    }

    /// Not negative and not so large that sums with it wrap.
    fn small(&self) -> bool {
        match self {
            Form::Launch(extent) => !matches!(&**extent, Extent::Literal(..=-1)),
            Form::Linear(linear) => linear.not_negative(),
            Form::Small => true,
            Form::Anything => false,
        }
    }

    fn or_small(small: bool) -> Form {
        if small { Form::Small } else { Form::Anything }
    }
}

impl<'k> Forms<'k> {
    pub(super) fn new(kernel: &'k Kernel) -> Forms<'k> {
        let mut defs = vec![Def::Other; kernel.values.len()];
        each_inst(&kernel.body, &mut |inst| match inst {
            Inst::Let(value, op) => defs[value.index()] = Def::Op(op),
            Inst::If { cond, then, otherwise, results } => {
                let gives = |block: &Block, i: usize| match &block.end {
                    End::Yield(values) => values.get(i).copied(),
                    _ => None,
                };
                for (i, result) in results.iter().enumerate() {
                    defs[result.index()] = Def::Choice(*cond, gives(then, i), gives(otherwise, i));
                }
            }
            _ => {}
        });
        let mut forms = Forms {
            kernel,
            defs,
            forms: vec![Form::Anything; kernel.values.len()],
            same: vec![false; kernel.values.len()],
        };
        forms.block(&kernel.body);
        forms
    }

    pub(super) fn of(&self, value: Value) -> &Form {
        &self.forms[value.index()]
    }

    /// It is known to be the same for all invocations of a launch.
    pub(super) fn same_for_all(&self, value: Value) -> bool {
        self.same[value.index()]
    }

    fn is_same(&self, op: &Op) -> bool {
        let mut same = match op {
            Op::Builtin(builtin) => matches!(builtin, Builtin::NumWorkgroups(_)),
            Op::Load { address, .. } => match address.memory {
                Memory::Buffer(buffer) => !self.kernel.buffers[buffer as usize].written,
                Memory::Shared(_) | Memory::Local(_) => false,
            },
            op => !op.is_across_subgroup(),
        };
        each_operand(op, &mut |operand| same &= self.same[operand.index()]);
        same
    }

    pub(super) fn scalar(&self, value: Value) -> Scalar {
        self.kernel.values[value.index()].ty.scalar
    }

    fn set(&mut self, value: Value, form: Form) {
        self.forms[value.index()] = form;
    }

    fn block(&mut self, block: &'k Block) {
        for inst in &block.insts {
            match inst {
                Inst::Let(value, op) => {
                    let form = self.op(*value, op);
                    self.set(*value, form);
                    self.same[value.index()] = self.is_same(op);
                }
                Inst::If { then, otherwise, results, .. } => {
                    self.block(then);
                    self.block(otherwise);
                    for result in results {
                        let Def::Choice(_, yes, no) = self.defs[result.index()] else { continue };
                        let form = match (yes, no) {
                            (Some(yes), Some(no)) => self.either(yes, no),
                            (Some(only), None) | (None, Some(only)) => self.of(only).clone(),
                            (None, None) => Form::Anything,
                        };
                        self.set(*result, form);
                    }
                }
                Inst::Loop(body) => self.repeat(body),
                _ => {}
            }
        }
    }

    fn either(&self, yes: Value, no: Value) -> Form {
        let (yes, no) = (self.of(yes), self.of(no));
        if yes == no { yes.clone() } else { Form::or_small(yes.small() && no.small()) }
    }

    fn repeat(&mut self, body: &'k Loop) {
        let mut continues = Vec::new();
        let mut breaks = Vec::new();
        exits(&body.body, &mut continues, &mut breaks);
        if let Some(counter) = &body.counter {
            let form = self.of(counter.from).as_linear().map(|from| from.loose());
            self.set(counter.value, Form::linear(form));
        }
        for (i, (param, init)) in body.params.iter().zip(&body.init).enumerate() {
            let next = || continues.iter().filter_map(|values| values.get(i).copied());
            let form = if next().all(|next| next == *param) {
                self.of(*init).clone()
            } else if next().all(|next| self.not_less(next, *param, DEPTH)) {
                Form::linear(self.of(*init).as_linear().map(|init| init.loose()))
            } else if next().all(|next| self.not_more(next, *param)) {
                Form::or_small(self.of(*init).small())
            } else {
                Form::Anything
            };
            self.set(*param, form);
        }
        self.block(&body.body);
        for (i, result) in body.results.iter().enumerate() {
            let ends = breaks.iter().filter_map(|values| values.get(i).copied());
            let ends: Vec<Value> = ends.chain(body.counter.map(|_| body.params[i])).collect();
            let form = match &ends[..] {
                [] => Form::Anything,
                [first, rest @ ..] if rest.iter().all(|end| self.of(*end) == self.of(*first)) => {
                    self.of(*first).clone()
                }
                ends => Form::or_small(ends.iter().all(|end| self.of(*end).small())),
            };
            self.set(*result, form);
        }
    }

    /// Each round makes it no smaller, by steps that are known before the loop.
    fn not_less(&self, next: Value, param: Value, depth: u32) -> bool {
        if next == param {
            return true;
        }
        if depth == 0 {
            return false;
        }
        match self.defs[next.index()] {
            Def::Op(Op::Binary(Binary::Add, a, b)) => {
                (self.not_less(*a, param, depth - 1) && self.steps(*b))
                    || (self.not_less(*b, param, depth - 1) && self.steps(*a))
            }
            Def::Op(Op::Cast(a) | Op::BitCast(a)) => self.not_less(*a, param, depth - 1),
            Def::Op(Op::Select(_, a, b)) => self.not_less(*a, param, depth - 1) && self.not_less(*b, param, depth - 1),
            Def::Choice(_, a, b) => {
                let way = |value: Option<Value>| value.is_none_or(|value| self.not_less(value, param, depth - 1));
                way(a) && way(b)
            }
            _ => false,
        }
    }

    /// A step that does not go back: a constant, or computed outside the loop.
    fn steps(&self, value: Value) -> bool {
        self.literal(value).map_or_else(|| self.launch(value, DEPTH), |step| (0..1 << 24).contains(&step))
    }

    /// The step by which a loop's carried value grows, where it is one and the same.
    pub(super) fn step(&self, body: &Loop, i: usize) -> Option<Arc<Extent>> {
        let mut continues = Vec::new();
        exits(&body.body, &mut continues, &mut Vec::new());
        let mut found = None;
        for next in continues.iter().filter_map(|values| values.get(i).copied()) {
            let Def::Op(Op::Binary(Binary::Add, a, b)) = self.defs[next.index()] else { return None };
            let by = if *a == body.params[i] {
                *b
            } else if *b == body.params[i] {
                *a
            } else {
                return None;
            };
            let Form::Launch(step) = self.of(by) else { return None };
            if found.as_ref().is_some_and(|known| known != step) {
                return None;
            }
            found = Some(step.clone());
        }
        found
    }

    fn not_more(&self, next: Value, param: Value) -> bool {
        next == param
            || match self.defs[next.index()] {
                Def::Op(Op::Binary(Binary::Div | Binary::Shr, a, _)) => *a == param,
                Def::Op(Op::Binary(Binary::Min | Binary::And, a, b)) => *a == param || *b == param,
                _ => false,
            }
    }

    /// Made of nothing but what is known at launch. Works before the forms of a loop's body are there.
    fn launch(&self, value: Value, depth: u32) -> bool {
        if let Form::Launch(_) = self.of(value) {
            return true;
        }
        depth > 0
            && match self.defs[value.index()] {
                Def::Op(Op::Const(_) | Op::Length(_) | Op::Builtin(Builtin::NumWorkgroups(_))) => true,
                Def::Op(Op::Binary(_, a, b)) => self.launch(*a, depth - 1) && self.launch(*b, depth - 1),
                Def::Op(Op::Cast(a) | Op::BitCast(a)) => self.launch(*a, depth - 1),
                Def::Op(Op::Load { address, element, .. }) => self.member(address, *element, 0).is_some(),
                _ => false,
            }
    }

    fn literal(&self, value: Value) -> Option<i64> {
        match self.defs[value.index()] {
            Def::Op(Op::Const(literal)) => integer(literal),
            _ => None,
        }
    }

    fn member(&self, address: &crate::kernel::Address, element: Element, lane: u32) -> Option<Extent> {
        let Memory::Buffer(buffer) = address.memory else { return None };
        let kind = self.kernel.buffers[buffer as usize].kind;
        let fixed = matches!(kind, BufferKind::Uniform | BufferKind::Read) && address.terms.is_empty();
        let integer = !element.scalar().is_float() && element != Element::Bool && element.bits() >= 8;
        let offset = address.offset.checked_add(lane * (element.bits() / 8))?;
        (fixed && integer).then_some(Extent::Member { buffer, offset, element })
    }

    fn op(&self, value: Value, op: &Op) -> Form {
        let ty = self.scalar(value);
        if ty.is_float() || ty == Scalar::Bool {
            return Form::Anything;
        }
        match op {
            Op::Const(literal) => integer(literal).map_or(Form::Anything, |n| Form::Launch(Extent::literal(n))),
            Op::Length(buffer) => Form::Launch(match self.kernel.buffers[*buffer as usize].count {
                Some(count) => Extent::literal(count.into()),
                None => Arc::new(Extent::Length(*buffer)),
            }),
            Op::Builtin(builtin) => match builtin {
                Builtin::GlobalId(axis) => Form::linear(Some(Linear::atom(Atom::Global((*axis).min(2))))),
                Builtin::WorkgroupId(axis) => {
                    let mut linear = Linear::atom(Atom::Group((*axis).min(2)));
                    linear.join_ids(self.kernel.workgroup_size);
                    Form::linear(Some(linear))
                }
                Builtin::LocalId(axis) => Form::linear(Some(Linear::atom(Atom::Local((*axis).min(2))))),
                Builtin::NumWorkgroups(axis) => Form::Launch(Arc::new(Extent::Groups((*axis).min(2)))),
                _ => Form::Small,
            },
            Op::Load { address, element, .. } => match self.member(address, *element, 0) {
                Some(member) if self.kernel.values[value.index()].ty.width == 1 => Form::Launch(Arc::new(member)),
                _ => Form::or_small(matches!(element, Element::U8 | Element::U16)),
            },
            Op::Extract(whole, lane) => match self.defs[whole.index()] {
                Def::Op(Op::Load { address, element, .. }) => match self.member(address, *element, (*lane).into()) {
                    Some(member) => Form::Launch(Arc::new(member)),
                    None => Form::Anything,
                },
                _ => Form::Anything,
            },
            Op::Cast(a) | Op::BitCast(a) => self.convert(*a, ty),
            Op::Select(_, a, b) => self.either(*a, *b),
            Op::Unary(Unary::Neg, a) => {
                Form::linear(self.of(*a).as_linear().and_then(|a| a.times(&Extent::literal(-1))))
            }
            Op::Unary(Unary::Abs, a) if self.of(*a).small() => self.of(*a).clone(),
            Op::Unary(Unary::CountOneBits | Unary::CountLeadingZeros | Unary::CountTrailingZeros, _) => Form::Small,
            Op::Binary(op, a, b) => self.binary(*op, ty, *a, *b),
            _ => Form::Anything,
        }
    }

    fn convert(&self, from: Value, to: Scalar) -> Form {
        match self.scalar(from) {
            Scalar::Bool => Form::Small,
            scalar if scalar.is_float() => Form::Anything,
            scalar => match self.of(from) {
                Form::Launch(extent) if scalar != to => {
                    Extent::computed(Operator::Convert, to, extent, &Extent::literal(0))
                        .map_or(Form::Anything, Form::Launch)
                }
                form => form.clone(),
            },
        }
    }

    fn binary(&self, op: Binary, ty: Scalar, a: Value, b: Value) -> Form {
        let sizes = self.kernel.workgroup_size;
        let (left, right) = (self.of(a), self.of(b));
        if let (Form::Launch(a), Form::Launch(b)) = (left, right) {
            let made = Operator::of(op).and_then(|op| Extent::computed(op, ty, a, b));
            return made.map_or(Form::Anything, Form::Launch);
        }
        let small = left.small() && right.small();
        let sum = |right: Option<Linear>| Form::linear(left.as_linear().and_then(|left| left.plus(&right?, sizes)));
        match op {
            Binary::Add => sum(right.as_linear()),
            Binary::Sub => match right.as_linear() {
                Some(right) if right.slack == Slack::Nothing => sum(right.times(&Extent::literal(-1))),
                _ => Form::Anything,
            },
            Binary::Mul => match (left, right) {
                (Form::Launch(by), other) | (other, Form::Launch(by)) => {
                    Form::linear(other.as_linear().and_then(|other| other.times(by)))
                }
                _ => Form::or_small(small),
            },
            Binary::Shl => match right {
                Form::Launch(by) => match **by {
                    Extent::Literal(by @ 0..=24) => {
                        Form::linear(left.as_linear().and_then(|left| left.times(&Extent::literal(1 << by))))
                    }
                    _ => Form::Anything,
                },
                _ => Form::Anything,
            },
            Binary::Div => self.quotient(left, right),
            Binary::Shr => match right {
                Form::Launch(by) => match **by {
                    Extent::Literal(by @ 0..=24) => self.quotient(left, &Form::Launch(Extent::literal(1 << by))),
                    _ => Form::or_small(left.small()),
                },
                _ => Form::or_small(left.small()),
            },
            Binary::Rem => Form::or_small(left.small() || (!ty.is_signed() && right.small())),
            Binary::And => Form::or_small(left.small() || right.small()),
            // At least as much as either side.
            Binary::Or if small => match (left, right) {
                (Form::Linear(linear), _) | (_, Form::Linear(linear)) => Form::linear(Some(linear.loose())),
                _ => Form::Small,
            },
            Binary::Max => match (left, right) {
                (Form::Linear(linear), other) | (other, Form::Linear(linear)) if other.small() => {
                    Form::linear(Some(linear.loose()))
                }
                _ => Form::or_small(small),
            },
            Binary::Xor => Form::or_small(small),
            Binary::Min => Form::or_small(small || (!ty.is_signed() && (left.small() || right.small()))),
            _ => Form::Anything,
        }
    }

    fn quotient(&self, left: &Form, right: &Form) -> Form {
        let Form::Launch(by) = right else { return Form::or_small(left.small()) };
        match left {
            _ if matches!(&**by, Extent::Literal(..=0)) => Form::Anything,
            Form::Linear(linear) if linear.not_negative() && !linear.terms.is_empty() => {
                Form::linear(Some(Linear::atom(Atom::Quotient(linear.clone(), by.clone()))))
            }
            left => Form::or_small(left.small()),
        }
    }
}

/// An integer constant.
pub(super) fn integer(literal: &Literal) -> Option<i64> {
    match *literal {
        Literal::U32(value) => Some(value.into()),
        Literal::I32(value) => Some(value.into()),
        Literal::U64(value) => i64::try_from(value).ok(),
        Literal::I64(value) => Some(value),
        _ => None,
    }
}
