//! Which invocations of a kernel do anything, in one to three dimensions.
//!
//! A kernel acts by storing to buffers. To come to a store an invocation passes conditions, and the store itself needs an element to be
//! there; where these bound the invocation's ids by numbers that are known at launch, no invocation beyond them does anything, and
//! the domain is *proven*. Where something is left open (every invocation adds to a counter, a load outside gives zero and the kernel goes
//! on), what the ids index is taken, and only if all of it agrees.

use std::sync::Arc;

use super::extent::{Arith, Bound, Extent, axis_name};
use super::facts::{self, Fact, Source};
use super::forms::{Atom, Form, Forms, Linear, Product, Slack};
use crate::ir::{AtomicOp, Builtin, Program};
use crate::kernel::walk::each_inst;
use crate::kernel::{Address, Block, End, Inst, Kernel, Loop, Memory, Op, Value};

/// How many invocations there are along one axis, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Limit {
    pub(super) extent: Arc<Extent>,
    pub(super) source: Source,
}

/// What is known about one axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Along {
    /// Ids along it are not used: one workgroup.
    Unused,
    /// No invocation beyond the largest of these does anything; each is the least of several.
    Proven(Vec<Vec<Limit>>),
    /// Likely numbers, each the least of several; none where nothing bounds the ids.
    Open(Vec<Vec<Limit>>),
}

/// The domain of a kernel.
#[derive(Clone, Debug)]
pub(super) struct Domain {
    pub(super) axes: [Along; 3],
    /// Where the ids lead to in each buffer; absent where other accesses lead elsewhere, or none does.
    pub(super) spans: Vec<Option<Vec<Linear>>>,
    /// Who touches what each buffer holds, where the kernel writes to it.
    pub(super) own: Vec<Own>,
}

impl Domain {
    /// No invocation beyond it does anything, and every axis takes part.
    pub(super) fn is_proven(&self) -> bool {
        self.axes.iter().all(|along| !matches!(along, Along::Open(_)))
    }
}

/// Who touches the elements of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Own {
    /// Nobody.
    Unseen,
    /// Each element at most one invocation.
    Apart,
    /// Perhaps several, at such a place.
    Shared(String),
    /// Several, by atomic operations whose old values are looked at.
    Ordered,
}

/// More different stores than this are not told apart.
const MOST_EFFECTS: usize = 64;
/// Conditions around a store; the outermost are kept.
const MOST_FACTS: usize = 32;

/// What bounds one store, or one load.
#[derive(Default, PartialEq, Eq, Clone)]
struct Bounds {
    limits: [Vec<Limit>; 3],
    /// They hold for every invocation, and not only for those that make sense.
    sound: [bool; 3],
}

/// Finds the domain of a kernel that was lowered without the removal of guards.
pub(super) fn of(kernel: &Kernel, forms: &Forms<'_>, program: &Program) -> Domain {
    let mut walk = Walk {
        kernel,
        forms,
        program,
        facts: Vec::new(),
        effects: Vec::new(),
        reads: Vec::new(),
        strides: Default::default(),
        spans: vec![Some(Vec::new()); kernel.buffers.len()],
        own: vec![(Own::Unseen, None); kernel.buffers.len()],
        used: used(kernel),
        too_many: false,
        varying: false,
    };
    walk.block(&kernel.body);
    let used = used(kernel);
    let axes = std::array::from_fn(|axis| if used[axis] { walk.along(axis) } else { Along::Unused });
    let spans = walk.spans.into_iter().map(|span| span.filter(|span| !span.is_empty())).collect();
    let own = walk.own.into_iter().map(|(own, _)| own).collect();
    Domain { axes, spans, own }
}

/// The axes whose global ids or workgroup ids are used.
fn used(kernel: &Kernel) -> [bool; 3] {
    let mut used = [false; 3];
    each_inst(&kernel.body, &mut |inst| {
        if let Inst::Let(_, Op::Builtin(Builtin::GlobalId(axis) | Builtin::WorkgroupId(axis))) = inst {
            used[usize::from((*axis).min(2))] = true;
        }
    });
    used
}

struct Walk<'k> {
    kernel: &'k Kernel,
    forms: &'k Forms<'k>,
    program: &'k Program,
    /// What holds here.
    facts: Vec<Fact>,
    effects: Vec<Bounds>,
    reads: Vec<Bounds>,
    /// Steps of loops that begin at an id and are not the number of all invocations.
    strides: [Vec<Limit>; 3],
    spans: Vec<Option<Vec<Linear>>>,
    /// With the index that the accesses so far have in common.
    own: Vec<(Own, Option<Linear>)>,
    used: [bool; 3],
    too_many: bool,
    /// Only some invocations may come here.
    varying: bool,
}

impl<'k> Walk<'k> {
    fn block(&mut self, block: &'k Block) {
        let before = self.facts.len();
        for inst in &block.insts {
            match inst {
                Inst::Let(_, Op::Load { address, guard, .. }) => self.access(address, *guard, false),
                // Every invocation stores the same to the same place, so one is enough.
                Inst::Store { address, value, .. } if !self.varying && self.repeated(address, *value) => {
                    let once = || vec![Limit { extent: Extent::literal(1), source: Source::Once }];
                    let bounds = Bounds { limits: [once(), once(), once()], sound: [true; 3] };
                    self.share(address);
                    self.too_many |= !keep(&mut self.effects, bounds);
                }
                Inst::Store { address, guard, .. } => self.access(address, *guard, true),
                Inst::Atomic { op, address, guard, .. } => {
                    self.access(address, *guard, *op != AtomicOp::Load);
                    if let Memory::Buffer(buffer) = address.memory
                        && self.own[buffer as usize].0 != Own::Apart
                    {
                        self.own[buffer as usize].0 = Own::Ordered;
                    }
                }
                Inst::If { cond, then, otherwise, .. } => {
                    let together = self.varying;
                    self.varying |= !self.forms.same_for_all(*cond);
                    self.under(*cond, true, then);
                    self.under(*cond, false, otherwise);
                    // Those who left do not come back.
                    self.varying &= together || leaves(then) || leaves(otherwise);
                    // What follows is reached only by the way that goes on.
                    match (goes_on(then), goes_on(otherwise)) {
                        (false, true) => self.assume(*cond, false),
                        (true, false) => self.assume(*cond, true),
                        _ => {}
                    }
                }
                Inst::Loop(body) => self.repeat(body),
                Inst::Let(..) | Inst::Barrier(_) => {}
            }
        }
        self.facts.truncate(before);
    }

    fn under(&mut self, cond: Value, truth: bool, block: &'k Block) {
        let before = self.facts.len();
        // A way that can't be taken is not looked at.
        if let Some(facts) = facts::conditions(self.forms, self.program, cond, truth) {
            self.facts.extend(facts);
            self.block(block);
        }
        self.facts.truncate(before);
    }

    fn assume(&mut self, cond: Value, truth: bool) {
        self.facts.extend(facts::conditions(self.forms, self.program, cond, truth).unwrap_or_default());
    }

    fn repeat(&mut self, body: &'k Loop) {
        for (i, init) in body.init.iter().enumerate() {
            let Form::Linear(start) = self.forms.of(*init) else { continue };
            let [(Atom::Global(axis), product)] = &start.terms[..] else { continue };
            let Some(step) = self.forms.step(body, i) else { continue };
            let (all, each) = (step.needs_grid(), product.extent());
            let (false, Some(each)) = (all, each) else { continue };
            let within = matches!((&*step, &*each), (Extent::Literal(step), Extent::Literal(each)) if step <= each);
            if !within && let Some(extent) = Extent::whole(Arith::DivUp, &step, &each) {
                let text = format!("a loop from {} in steps of {}", start.text(self.program), step.text(self.program));
                self.strides[usize::from(*axis)].push(Limit { extent, source: Source::Compared(text) });
            }
        }
        let before = self.facts.len();
        // Rounds may differ, and who returns from one does not come back.
        let together = std::mem::replace(&mut self.varying, true);
        if let Some(counter) = &body.counter
            && let (Some(from), Form::Launch(to)) = (self.forms.of(counter.from).as_linear(), self.forms.of(counter.to))
            && !from.terms.is_empty()
        {
            self.facts.push(facts::below(self.program, from, to));
        }
        self.block(&body.body);
        self.varying = together || returns(&body.body) || !body.finite;
        self.facts.truncate(before);
    }

    fn access(&mut self, address: &Address, guard: Option<Value>, writes: bool) {
        let Memory::Buffer(buffer) = address.memory else { return };
        self.span(buffer, address);
        let guards = guard.map_or_else(Vec::new, |guard| facts::guard(self.forms, self.program, guard, buffer));
        let facts: Vec<&Fact> = self.facts.iter().take(MOST_FACTS).chain(&guards).collect();
        let bounds = self.bounds(&facts);
        if self.kernel.buffers[buffer as usize].written {
            self.owned(buffer, address, &bounds);
        }
        if writes {
            self.too_many |= !keep(&mut self.effects, bounds);
            return;
        }
        let centred: Vec<Fact> = guards.iter().map(Fact::centred).collect();
        let mut bounds = self.bounds(&centred.iter().collect::<Vec<_>>());
        // What only some invocations load, they load for a purpose of its own.
        let path = self.bounds(&self.facts.iter().take(MOST_FACTS).collect::<Vec<_>>());
        for axis in 0..3 {
            if !path.limits[axis].is_empty() {
                bounds.limits[axis].clear();
            }
        }
        keep(&mut self.reads, bounds);
    }

    fn repeated(&self, address: &Address, value: Value) -> bool {
        address.terms.is_empty() && self.forms.same_for_all(value)
    }

    /// What facts that hold together say about each axis.
    fn bounds(&self, facts: &[&Fact]) -> Bounds {
        let sizes = self.kernel.workgroup_size;
        let mut bounds = Bounds::default();
        let mut likely: [Vec<Limit>; 3] = Default::default();
        for fact in facts {
            let many = fact.linear.axes().iter().filter(|&&axis| axis).count() > 1;
            for (axis, extent) in fact.limits(sizes) {
                let limit = Limit { extent, source: fact.source.clone() };
                if many && !is_top(&fact.linear, axis, sizes) {
                    if let Some(extent) = row(&fact.linear, axis, sizes) {
                        likely[usize::from(axis)].push(Limit { extent, ..limit });
                    }
                } else {
                    bounds.limits[usize::from(axis)].push(limit);
                }
            }
            for axis in flattened(&fact.linear) {
                likely[usize::from(axis)].push(Limit { extent: Extent::literal(1), source: fact.source.clone() });
            }
        }
        for (axis, likely) in likely.into_iter().enumerate() {
            bounds.limits[axis].sort();
            bounds.limits[axis].dedup();
            bounds.sound[axis] = !bounds.limits[axis].is_empty();
            if !bounds.sound[axis] {
                bounds.limits[axis] = likely;
            }
        }
        bounds
    }

    /// Notes whether each invocation comes to elements of its own.
    fn owned(&mut self, buffer: u32, address: &Address, bounds: &Bounds) {
        let stride = self.kernel.buffers[buffer as usize].stride;
        let index = match &address.terms[..] {
            [(index, step)] if *step == stride => self.forms.of(*index).as_linear(),
            _ => None,
        };
        let Some(index) = index.filter(|index| self.is_apart(index, bounds)) else { return self.share(address) };
        match &mut self.own[buffer as usize] {
            (Own::Shared(_) | Own::Ordered, _) => {}
            (Own::Apart, Some(known)) if known.terms != index.terms => self.share(address),
            own => *own = (Own::Apart, Some(index)),
        }
    }

    /// No two invocations have the same index, nor one that is less than a step away.
    fn is_apart(&self, index: &Linear, bounds: &Bounds) -> bool {
        let rest = match &*index.rest {
            Extent::Literal(rest @ 0..) => *rest,
            _ => return false,
        };
        let mut least = i64::MAX;
        let mut seen = [false; 3];
        for (atom, product) in &index.terms {
            let Atom::Global(axis) = atom else { return false };
            seen[usize::from(*axis)] = true;
            if product.times <= 0 || product.needs_grid() {
                return false;
            }
            if product.factors.is_empty() {
                least = least.min(product.times);
            }
        }
        let once = |limits: &[Limit]| limits.iter().any(|limit| *limit.extent == Extent::Literal(1));
        let all =
            (0..3).all(|axis| seen[axis] || !self.used[axis] || (bounds.sound[axis] && once(&bounds.limits[axis])));
        // Where no step is a plain number, only its very beginning is surely within it.
        let least = if least == i64::MAX { 1 } else { least };
        index.slack == Slack::Nothing && all && rest < least && in_rows(index, bounds)
    }

    /// An access that other invocations may have too.
    fn share(&mut self, address: &Address) {
        let Memory::Buffer(buffer) = address.memory else { return };
        let own = &mut self.own[buffer as usize];
        if !matches!(own.0, Own::Shared(_)) {
            let index = match &address.terms[..] {
                [(index, _)] => self.forms.of(*index).as_linear().map(|index| index.text(self.program)),
                [] => Some((address.offset / self.kernel.buffers[buffer as usize].stride.max(1)).to_string()),
                _ => None,
            };
            let name = super::extent::name(self.program, buffer);
            own.0 = Own::Shared(format!("{name}[{}]", index.as_deref().unwrap_or("…")));
        }
    }

    /// Notes where ids lead to in a buffer.
    fn span(&mut self, buffer: u32, address: &Address) {
        let stride = self.kernel.buffers[buffer as usize].stride;
        let span = &mut self.spans[buffer as usize];
        let index = match &address.terms[..] {
            // A place of its own, such as a counter in front.
            [] => return,
            [(index, step)] if *step == stride => self.forms.of(*index).as_linear(),
            _ => None,
        };
        match (span, index) {
            (Some(known), Some(index))
                if index.slack == Slack::Nothing
                    && known.len() < MOST_EFFECTS
                    && !index.terms.is_empty()
                    && index.terms.iter().all(|(atom, product)| {
                        matches!(atom, Atom::Global(_)) && product.times > 0 && !product.needs_grid()
                    }) =>
            {
                if !known.contains(&index) {
                    known.push(index);
                }
            }
            (span, _) => *span = None,
        }
    }

    fn along(&self, axis: usize) -> Along {
        let bounded = || self.effects.iter().map(|effect| &effect.limits[axis]).filter(|limits| !limits.is_empty());
        let proven = !self.too_many && self.effects.iter().all(|effect| effect.sound[axis]);
        if self.effects.is_empty() {
            return Along::Unused;
        }
        if proven && self.strides[axis].is_empty() {
            return Along::Proven(bounded().cloned().collect());
        }
        let reads = self.reads.iter().map(|read| &read.limits[axis]).filter(|limits| !limits.is_empty());
        let mut open: Vec<Vec<Limit>> = bounded().chain(reads).cloned().collect();
        open.extend(self.strides[axis].iter().map(|stride| vec![stride.clone()]));
        Along::Open(open)
    }
}

/// Adds what is new; false where there is too much.
fn keep(list: &mut Vec<Bounds>, bounds: Bounds) -> bool {
    if list.contains(&bounds) {
        return true;
    }
    let room = list.len() < MOST_EFFECTS;
    if room {
        list.push(bounds);
    }
    room
}

/// Some way through the block does not lead to what follows it.
fn leaves(block: &Block) -> bool {
    !goes_on(block)
        || block.insts.iter().any(|inst| match inst {
            Inst::If { then, otherwise, .. } => leaves(then) || leaves(otherwise),
            Inst::Loop(body) => returns(&body.body),
            _ => false,
        })
}

fn returns(block: &Block) -> bool {
    matches!(block.end, End::Return)
        || block.insts.iter().any(|inst| match inst {
            Inst::If { then, otherwise, .. } => returns(then) || returns(otherwise),
            Inst::Loop(body) => returns(&body.body),
            _ => false,
        })
}

fn goes_on(block: &Block) -> bool {
    matches!(block.end, End::Yield(_))
}

/// No other id of the form counts in multiples of this one.
fn is_top(linear: &Linear, axis: u8, sizes: [u32; 3]) -> bool {
    row(linear, axis, sizes).is_none() && flattened(linear).all(|flat| flat != axis)
}

/// The number of steps along an axis until the next one begins, as in `id.y * width + id.x`.
fn row(linear: &Linear, axis: u8, sizes: [u32; 3]) -> Option<Arc<Extent>> {
    let own = |atom: &Atom| matches!(atom, Atom::Global(a) | Atom::Group(a) if *a == axis);
    let (atom, product) = linear.terms.iter().find(|(atom, _)| own(atom))?;
    let ratios = linear.terms.iter().filter_map(|(_, other)| product.ratio(other));
    // The smallest one that divides all others is the next.
    let mut least: Option<Product> = None;
    for ratio in ratios.filter(|ratio| !ratio.needs_grid()) {
        if least.as_ref().is_none_or(|least| ratio.ratio(least).is_some()) {
            least = Some(ratio);
        }
    }
    let steps = least?.extent()?;
    match atom {
        Atom::Group(_) => Extent::whole(Arith::Mul, &steps, &Extent::literal(sizes[usize::from(axis)].into())),
        _ => Some(steps),
    }
}

/// The ids are the digits of the index: each is less than what the next one counts in.
fn in_rows(index: &Linear, bounds: &Bounds) -> bool {
    index.terms.iter().enumerate().all(|(i, (atom, product))| {
        let Atom::Global(axis) = atom else { return false };
        // The next larger step, which all others that are larger must be multiples of.
        let mut larger: Vec<Product> = Vec::new();
        for (_, (_, other)) in index.terms.iter().enumerate().filter(|(j, _)| *j != i) {
            match (product.ratio(other), other.ratio(product)) {
                (Some(ratio), _) => larger.push(ratio),
                (None, Some(_)) => {}
                (None, None) => return false,
            }
        }
        let Some(next) =
            larger.iter().find(|next| larger.iter().all(|other| *next == other || next.ratio(other).is_some()))
        else {
            return larger.is_empty();
        };
        let axis = usize::from(*axis);
        bounds.sound[axis] && bounds.limits[axis].iter().any(|limit| at_most(&limit.extent, next))
    })
}

/// Surely no more than the product.
fn at_most(extent: &Arc<Extent>, product: &Product) -> bool {
    let known = Product::of(extent);
    known.factors == product.factors && known.times <= product.times
}

/// The axes that count in multiples of all invocations along another: any grid with enough invocations will do, so they need none.
fn flattened(linear: &Linear) -> impl Iterator<Item = u8> {
    linear.terms.iter().filter_map(|(atom, product)| match atom {
        Atom::Global(axis) | Atom::Group(axis) if product.needs_grid() => Some(*axis),
        _ => None,
    })
}

/// How many invocations are needed along an axis, and why.
pub(super) enum Needed<'d> {
    /// One workgroup.
    One,
    /// So many.
    Count(u64, Vec<&'d Source>),
    /// One of these, or something else.
    Several(Vec<(u64, &'d Source)>),
    /// A number in it is not at hand.
    Missing(&'d Extent),
    /// Nothing says.
    Unknown,
}

impl Along {
    /// The number for what is bound.
    pub(super) fn needed(&self, bound: &Bound<'_>) -> Needed<'_> {
        match self {
            Along::Unused => Needed::One,
            Along::Proven(effects) => {
                let mut most: Option<(u64, Vec<&Source>)> = None;
                for limits in effects {
                    let Some((count, source)) = least(limits, bound) else { return missing(limits, bound) };
                    match &mut most {
                        Some((known, sources)) if *known == count => sources.push(source),
                        Some((known, _)) if *known > count => {}
                        most => *most = Some((count, vec![source])),
                    }
                }
                most.map_or(Needed::One, |(count, sources)| Needed::Count(count, sources))
            }
            Along::Open(candidates) => {
                let mut several: Vec<(u64, &Source)> = Vec::new();
                for limits in candidates {
                    let Some(found) = least(limits, bound) else { return missing(limits, bound) };
                    if several.iter().all(|(count, _)| *count != found.0) {
                        several.push(found);
                    }
                }
                match several[..] {
                    [] => Needed::Unknown,
                    [(count, source)] => Needed::Count(count, vec![source]),
                    _ => Needed::Several(several),
                }
            }
        }
    }
}

fn least<'d>(limits: &'d [Limit], bound: &Bound<'_>) -> Option<(u64, &'d Source)> {
    let known = limits.iter().filter_map(|limit| Some((limit.extent.value(bound).ok()?, &limit.source)));
    // Of equal ones, what the kernel says itself comes before what follows from lengths.
    let (count, source) = known.min()?;
    Some((u64::try_from(count.max(0)).unwrap_or(u64::MAX), source))
}

fn missing<'d>(limits: &'d [Limit], bound: &Bound<'_>) -> Needed<'d> {
    limits.iter().find_map(|limit| limit.extent.value(bound).err()).map_or(Needed::Unknown, Needed::Missing)
}

/// The axis by its name.
pub(super) fn axis(axis: usize) -> char {
    axis_name(axis as u8)
}

/// One more than the largest index that invocations of the domain come to.
pub(super) fn reached(span: &[Linear], bound: &Bound<'_>, extents: [u64; 3]) -> Option<u64> {
    if extents.contains(&0) {
        return None;
    }
    let mut most = 0;
    for index in span {
        let mut last = index.rest.value(bound).ok()?;
        for (atom, product) in &index.terms {
            let Atom::Global(axis) = atom else { return None };
            let steps = i128::from(extents[usize::from(*axis)] - 1);
            last = last.saturating_add(product.extent()?.value(bound).ok()?.saturating_mul(steps));
        }
        most = most.max(last.saturating_add(1));
    }
    u64::try_from(most).ok()
}
