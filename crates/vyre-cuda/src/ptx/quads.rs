//! Four neighbours along x in one invocation, so that what they load and store side by side is one access of 16 bytes, and what they have in
//! common is computed once.
//!
//! Of `out[y * n + x] = data[y * n + x - 1] + data[y * n + x + 1]` four neighbours load from `x - 1` to `x + 4`: four elements at once, if they
//! begin at a multiple of 16 bytes, and two by themselves. Whether they do, and whether all that the four access is in bounds, is tested
//! once; where not, as at borders, each does what it did before.

use std::collections::{HashMap, HashSet};

use vyre_foundation::ir::{Builtin, Literal};
use vyre_foundation::kernel::{
    Address, Binary, Block, Element, End, Inst, Kernel, Memory, Op, Scalar, Type, Unary, Value, ValueInfo, each_use,
    each_use_mut,
};

use super::TOGETHER;
use super::early::is_constant;
use super::forms::{Form, is_number};

/// Decisions of the kernel that are tried both ways.
const MOST_DECISIONS: usize = 3;
/// How far from each other elements of a row may be.
const FAR: i32 = 1 << 20;

/// The kernel whose invocations do what four neighbours did; `None` where they access nothing side by side, or anything else that differs
/// between them.
pub(super) fn quads(kernel: &Kernel) -> Option<Kernel> {
    let known = Known::of(kernel)?;
    let plan = Plan::of(&known)?;
    let mut made = Made { known: &known, values: kernel.values.clone(), insts: Vec::new(), names: HashMap::new() };
    made.body(&plan);
    let body = Block { insts: made.insts, end: End::Return };
    Some(Kernel { values: made.values, body, ..kernel.clone() })
}

/// What is known of the values of a kernel without branches.
struct Known<'k> {
    kernel: &'k Kernel,
    ops: Vec<Option<&'k Op>>,
    /// The position along x.
    x: Value,
    /// Values that are the same for all four, and those that can be known before anything else is loaded.
    alike: Vec<bool>,
    early: Vec<bool>,
    /// The first value that is computed in the same way.
    same: Vec<Value>,
    forms: Vec<Form>,
}

impl<'k> Known<'k> {
    fn of(kernel: &'k Kernel) -> Option<Self> {
        if !kernel.resizable || kernel.body.end != End::Return {
            return None;
        }
        let count = kernel.values.len();
        let mut known = Known {
            kernel,
            ops: vec![None; count],
            x: Value(u32::MAX),
            alike: vec![true; count],
            early: vec![true; count],
            same: (0..count as u32).map(Value).collect(),
            forms: vec![Form::default(); count],
        };
        let mut first = HashMap::new();
        for inst in &kernel.body.insts {
            match inst {
                Inst::Let(value, op) => known.learn(*value, op, inst, &mut first)?,
                Inst::Store { .. } => {}
                _ => return None,
            }
        }
        (known.x.0 != u32::MAX).then_some(known)
    }

    fn learn(&mut self, value: Value, op: &'k Op, inst: &Inst, first: &mut HashMap<(Op, Scalar), Value>) -> Option<()> {
        let at = value.index();
        self.ops[at] = Some(op);
        let (mut alike, mut early) = (true, true);
        each_use(inst, &mut |used| {
            alike &= self.alike[used.index()];
            early &= self.early[used.index()];
        });
        match op {
            Op::Builtin(Builtin::GlobalId(axis)) => alike = *axis > 0,
            Op::Builtin(_) | Op::Subgroup(..) | Op::Matrix(_) => return None,
            Op::Load { address, guard, .. } => {
                early &= alike && guard.is_none() && is_constant(self.kernel, address.memory);
            }
            _ => {}
        }
        (self.alike[at], self.early[at]) = (alike, early);
        if early && self.kernel.values[at].ty.width == 1 {
            let mut canonical = Inst::Let(value, op.clone());
            each_use_mut(&mut canonical, &mut |used| *used = self.same[used.index()]);
            if let Inst::Let(_, op) = canonical {
                self.same[at] = *first.entry((op, self.kernel.values[at].ty.scalar)).or_insert(value);
            }
        }
        if matches!(op, Op::Builtin(Builtin::GlobalId(0))) {
            self.x = self.same[at];
        }
        self.forms[at] = Form::of(self.kernel, self.same[at], op, &self.forms);
        Some(())
    }

    /// The terms and the constant of a number that is one more for each neighbour.
    fn run(&self, value: Value) -> Option<(&[(Value, u32)], i32)> {
        let Form { terms, constant } = &self.forms[value.index()];
        let steps = terms.iter().all(|(term, by)| (*term == self.x && *by == 1) || self.alike[term.index()]);
        let constant = *constant as i32;
        let is_run = is_number(self.kernel, value) && steps && terms.iter().any(|(term, _)| *term == self.x);
        (is_run && constant.unsigned_abs() < FAR as u32).then_some((&terms[..], constant))
    }

    /// What has to hold for `value` to be `wanted`, as conditions that are not put together of others.
    fn conditions(&self, value: Value, wanted: bool, to: &mut Vec<(Value, bool)>) {
        match self.ops[value.index()] {
            Some(Op::Binary(Binary::And, a, b)) if wanted => {
                self.conditions(*a, true, to);
                self.conditions(*b, true, to);
            }
            Some(Op::Unary(Unary::Not, a)) => self.conditions(*a, !wanted, to),
            _ => {
                let condition = (self.same[value.index()], wanted);
                if !to.contains(&condition) {
                    to.push(condition);
                }
            }
        }
    }

    /// What a guard says otherwise of: the two ways of branches.
    fn decisions(&self, guard: Value, to: &mut Vec<Value>) {
        match self.ops[guard.index()] {
            Some(Op::Binary(Binary::And, a, b)) => {
                self.decisions(*a, to);
                self.decisions(*b, to);
            }
            Some(Op::Unary(Unary::Not, a)) => {
                let decision = self.same[a.index()];
                if !to.contains(&decision) {
                    to.push(decision);
                }
            }
            _ => {}
        }
    }

    /// Whether a guard holds when decisions fall like this and all that is not decided holds.
    fn holds(&self, guard: Value, decided: &[(Value, bool)]) -> bool {
        let same = self.same[guard.index()];
        if let Some((_, falls)) = decided.iter().find(|(decision, _)| *decision == same) {
            return *falls;
        }
        match self.ops[guard.index()] {
            Some(Op::Binary(Binary::And, a, b)) => self.holds(*a, decided) && self.holds(*b, decided),
            Some(Op::Unary(Unary::Not, a)) => !self.holds(*a, decided),
            _ => true,
        }
    }
}

/// An access whose places are side by side.
struct Access {
    inst: usize,
    row: usize,
    memory: Memory,
    element: Element,
    /// Where the index is in its row, and the element behind that.
    index: i32,
    offset: i32,
    guard: Option<Value>,
    is_store: bool,
}

/// Elements whose index is the same but for a constant.
struct Row {
    terms: Vec<(Value, u32)>,
    /// An index of it, and where that is.
    value: Value,
    at: i32,
    /// All indices of the first and of the last neighbour.
    least: i32,
    most: i32,
    /// Something is accessed at once.
    at_once: bool,
    /// The last index that has to be below each of these.
    bounds: Vec<(Value, i32)>,
}

/// Of one of the neighbours, or what is the same for all.
#[derive(Clone, Copy)]
enum Of {
    One(u32),
    All,
}

/// What is accessed and what has to hold for it.
struct Plan {
    accesses: Vec<Access>,
    rows: Vec<Row>,
    conditions: Vec<(Value, bool, Of)>,
}

impl Plan {
    fn of(known: &Known<'_>) -> Option<Plan> {
        let mut plan = Plan { accesses: Vec::new(), rows: Vec::new(), conditions: Vec::new() };
        let mut decisions = Vec::new();
        for (i, inst) in known.kernel.body.insts.iter().enumerate() {
            let (address, element, guard, is_store) = match inst {
                Inst::Let(value, Op::Load { address, element, guard }) if !known.alike[value.index()] => {
                    (address, element, guard, false)
                }
                Inst::Store { address, element, guard, value } if known.kernel.values[value.index()].ty.width == 1 => {
                    (address, element, guard, true)
                }
                Inst::Store { .. } => return None,
                _ => continue,
            };
            let (&[(index, 4)], Memory::Buffer(_)) = (&address.terms[..], address.memory) else { return None };
            let words = matches!(element, Element::F32 | Element::U32 | Element::I32);
            let offset =
                i32::try_from(address.offset).ok().filter(|offset| words && *offset < FAR && offset % 4 == 0)?;
            let (row, at) = plan.row(known, index)?;
            guard.iter().for_each(|guard| known.decisions(*guard, &mut decisions));
            let (memory, element, guard) = (address.memory, *element, *guard);
            plan.accesses.push(Access {
                inst: i,
                row,
                memory,
                element,
                index: at,
                offset: offset / 4,
                guard,
                is_store,
            });
        }
        if decisions.len() > MOST_DECISIONS {
            return None;
        }
        let decided = plan.decide(known, &decisions);
        plan.accesses.retain(|access| access.guard.is_none_or(|guard| known.holds(guard, &decided)));
        plan.is_whole(known).then_some(())?;
        let mut conditions = Vec::new();
        decided.iter().for_each(|(decision, falls)| known.conditions(*decision, *falls, &mut conditions));
        for guard in plan.accesses.iter().filter_map(|access| access.guard) {
            known.conditions(guard, true, &mut conditions);
        }
        if conditions.iter().any(|(condition, _)| !known.early[condition.index()]) {
            return None;
        }
        plan.put_together(known, conditions)?;
        plan.note_at_once(known).then_some(plan)
    }

    /// How decisions have to fall for most accesses.
    fn decide(&self, known: &Known<'_>, decisions: &[Value]) -> Vec<(Value, bool)> {
        let ways = (0..1u32 << decisions.len()).map(|way| {
            let falls = |(i, decision): (usize, &Value)| (*decision, way >> i & 1 == 0);
            decisions.iter().enumerate().map(falls).collect::<Vec<_>>()
        });
        let count = |decided: &[(Value, bool)]| {
            let holds = |access: &&Access| access.guard.is_none_or(|guard| known.holds(guard, decided));
            self.accesses.iter().filter(holds).count()
        };
        let mut best = (0, Vec::new());
        for way in ways {
            let found = count(&way);
            if found > best.0 {
                best = (found, way);
            }
        }
        best.1
    }

    /// Something is stored, and nothing of it is made of what is not loaded.
    fn is_whole(&self, known: &Known<'_>) -> bool {
        let needed = self.needed(known);
        let active: HashSet<usize> = self.accesses.iter().map(|access| access.inst).collect();
        let is_there = |(i, inst): (usize, &Inst)| match inst {
            Inst::Let(value, Op::Load { .. }) if !known.alike[value.index()] => {
                !needed[value.index()] || active.contains(&i)
            }
            _ => true,
        };
        self.accesses.iter().any(|access| access.is_store) && known.kernel.body.insts.iter().enumerate().all(is_there)
    }

    /// What the active stores are made of.
    fn needed(&self, known: &Known<'_>) -> Vec<bool> {
        let insts = &known.kernel.body.insts;
        let mut needed = vec![false; known.kernel.values.len()];
        for access in self.accesses.iter().filter(|access| access.is_store) {
            if let Inst::Store { value, .. } = &insts[access.inst] {
                needed[value.index()] = true;
            }
        }
        for inst in insts.iter().rev() {
            if let Inst::Let(value, op) = inst
                && needed[value.index()]
                && (!matches!(op, Op::Load { .. }) || known.alike[value.index()])
            {
                each_use(inst, &mut |used| needed[used.index()] = true);
            }
        }
        needed
    }

    /// The row of an index and where it is there.
    fn row(&mut self, known: &Known<'_>, index: Value) -> Option<(usize, i32)> {
        let (terms, at) = known.run(index).filter(|_| known.early[index.index()])?;
        let row = match self.rows.iter().position(|row| row.terms == terms) {
            Some(row) => row,
            None => {
                let terms = terms.to_vec();
                self.rows.push(Row {
                    terms,
                    value: index,
                    at,
                    least: at,
                    most: at,
                    at_once: false,
                    bounds: Vec::new(),
                });
                self.rows.len() - 1
            }
        };
        let own = &mut self.rows[row];
        (own.least, own.most) = (own.least.min(at), own.most.max(at));
        Some((row, at))
    }

    /// Tests what has to hold as seldom as is enough.
    fn put_together(&mut self, known: &Known<'_>, conditions: Vec<(Value, bool)>) -> Option<()> {
        const LAST: Of = Of::One(TOGETHER - 1);
        for (condition, wanted) in conditions {
            if known.alike[condition.index()] {
                self.conditions.push((condition, wanted, Of::All));
                continue;
            }
            if let Some(Op::Binary(binary, a, b)) = known.ops[condition.index()] {
                let unsigned = known.kernel.values[a.index()].ty.scalar == Scalar::U32;
                if *binary == Binary::Lt && wanted && unsigned && known.alike[b.index()] && known.run(*a).is_some() {
                    let (row, at) = self.row(known, *a)?;
                    match self.rows[row].bounds.iter_mut().find(|(bound, _)| *bound == known.same[b.index()]) {
                        Some((_, most)) => *most = at.max(*most),
                        None => self.rows[row].bounds.push((known.same[b.index()], at)),
                    }
                    continue;
                }
                // The four begin at a multiple of four, and so none is past the largest number when the first is not.
                let is_x = |value: &Value| {
                    known.run(*value).is_some_and(|(terms, at)| terms.len() == 1 && at % TOGETHER as i32 == 0)
                };
                let grows = match binary {
                    Binary::Lt | Binary::Le => Some(false),
                    Binary::Gt | Binary::Ge => Some(true),
                    _ => None,
                };
                let grows = match (is_x(a) && known.alike[b.index()], is_x(b) && known.alike[a.index()]) {
                    (true, false) => grows,
                    (false, true) => grows.map(|grows| !grows),
                    _ => None,
                };
                if let Some(grows) = grows {
                    let of = if grows == wanted { Of::One(0) } else { LAST };
                    self.conditions.push((condition, wanted, of));
                    continue;
                }
            }
            self.conditions.extend((0..TOGETHER).map(|one| (condition, wanted, Of::One(one))));
        }
        Some(())
    }

    /// Notes in which rows four elements are accessed at once; says whether any are.
    fn note_at_once(&mut self, known: &Known<'_>) -> bool {
        for row in 0..self.rows.len() {
            let at_once = self.accesses.iter().filter(|access| access.row == row).any(|access| {
                let places = self.places(known, access);
                quads_of(&places).next().is_some()
            });
            self.rows[row].at_once = at_once;
        }
        self.rows.iter().any(|row| row.at_once)
    }

    /// The elements that are accessed together with an access, in order. What somebody may write is accessed step by step.
    fn places(&self, known: &Known<'_>, access: &Access) -> Vec<i32> {
        let together = |other: &&Access| is_with(known, access, other);
        let each =
            |access: &Access| (0..TOGETHER as i32).map(|one| access.index + access.offset + one).collect::<Vec<_>>();
        let mut places: Vec<i32> = self.accesses.iter().filter(together).flat_map(each).collect();
        places.sort_unstable();
        places.dedup();
        places
    }
}

/// One load does for both.
fn is_with(known: &Known<'_>, access: &Access, other: &Access) -> bool {
    let constant = is_constant(known.kernel, access.memory) && access.element == other.element;
    let same = access.memory == other.memory && access.row == other.row && !access.is_store && !other.is_store;
    access.inst == other.inst || (constant && same)
}

/// The first of each four places that one access takes.
fn quads_of(places: &[i32]) -> impl Iterator<Item = i32> {
    let step = TOGETHER as i32;
    let is_whole = move |place: &&i32| *place % step == 0 && (1..step).all(|one| places.contains(&(**place + one)));
    places.iter().filter(is_whole).copied()
}

/// The kernel as it is made.
struct Made<'k> {
    known: &'k Known<'k>,
    values: Vec<ValueInfo>,
    insts: Vec<Inst>,
    /// The values of each neighbour; those that are the same for all are the first's.
    names: HashMap<(Value, u32), Value>,
}

impl Made<'_> {
    fn body(&mut self, plan: &Plan) {
        let known = self.known;
        let mut wanted: HashSet<(Value, u32)> = HashSet::new();
        for (condition, _, of) in &plan.conditions {
            wanted.insert((*condition, if let Of::One(one) = of { *one } else { 0 }));
        }
        for row in &plan.rows {
            wanted.insert((row.value, 0));
            wanted.extend(row.bounds.iter().map(|(bound, _)| (*bound, 0)));
        }
        for inst in known.kernel.body.insts.iter().rev() {
            let Inst::Let(value, _) = inst else { continue };
            for one in 0..TOGETHER {
                if wanted.contains(&(*value, one)) {
                    each_use(inst, &mut |used| _ = wanted.insert((used, self.one_of(used, one))));
                }
            }
        }
        let x = self.make(Scalar::U32, Op::Builtin(Builtin::GlobalId(0)));
        let by = self.number(TOGETHER.ilog2());
        let first = self.make(Scalar::U32, Op::Binary(Binary::Shl, x, by));
        let mut all = vec![first];
        for one in 1..TOGETHER {
            let one = self.number(one);
            all.push(self.make(Scalar::U32, Op::Binary(Binary::Add, first, one)));
        }
        for inst in &known.kernel.body.insts {
            let Inst::Let(value, op) = inst else { continue };
            for one in 0..TOGETHER {
                if matches!(op, Op::Builtin(Builtin::GlobalId(0))) {
                    self.names.insert((*value, one), all[one as usize]);
                } else if wanted.contains(&(*value, one)) {
                    self.copy(inst, one);
                }
            }
        }
        let (bases, fast) = self.tests(plan);
        let before = (std::mem::take(&mut self.insts), self.names.clone());
        self.fast(plan, &bases);
        let then = std::mem::take(&mut self.insts);
        self.names = before.1;
        for inst in &known.kernel.body.insts {
            for one in 0..TOGETHER {
                self.copy(inst, one);
            }
        }
        let otherwise = std::mem::replace(&mut self.insts, before.0);
        let block = |insts| Box::new(Block { insts, end: End::Yield(Vec::new()) });
        match fast {
            Some(cond) => {
                let (then, otherwise) = (block(then), block(otherwise));
                self.insts.push(Inst::If { cond, then, otherwise, results: Vec::new() });
            }
            None => self.insts.extend(then),
        }
    }

    /// The first index of each row, and whether everything is as it has to be.
    fn tests(&mut self, plan: &Plan) -> (Vec<Value>, Option<Value>) {
        let mut all = None;
        for (condition, wanted, of) in &plan.conditions {
            let mut holds = self.named(*condition, if let Of::One(one) = of { *one } else { 0 });
            if !wanted {
                holds = self.make(Scalar::Bool, Op::Unary(Unary::Not, holds));
            }
            self.and(&mut all, holds);
        }
        let mut bases = Vec::with_capacity(plan.rows.len());
        let last = TOGETHER as i32 - 1;
        for row in &plan.rows {
            let own = self.named(row.value, 0);
            let own = self.as_u32(own);
            let base = self.plus(own, row.least - row.at);
            bases.push(base);
            let is_x = row.terms.len() == 1;
            // Indices that begin at a multiple of four don't pass the largest number.
            if !(is_x && row.least == 0 && row.most == 0) {
                let end = self.plus(base, row.most + last - row.least);
                let grows = self.make(Scalar::Bool, Op::Binary(Binary::Ge, end, base));
                self.and(&mut all, grows);
            }
            for (bound, most) in &row.bounds {
                let end = self.plus(base, most + last - row.least);
                let bound = self.named(*bound, 0);
                let below = self.make(Scalar::Bool, Op::Binary(Binary::Lt, end, bound));
                self.and(&mut all, below);
            }
            if row.at_once && !is_x {
                let (start, mask, zero) = (self.plus(base, -row.least), self.number(TOGETHER - 1), self.number(0));
                let rest = self.make(Scalar::U32, Op::Binary(Binary::And, start, mask));
                let begins = self.make(Scalar::Bool, Op::Binary(Binary::Eq, rest, zero));
                self.and(&mut all, begins);
            }
        }
        (bases, all)
    }

    /// What the four do where everything is as it has to be.
    fn fast(&mut self, plan: &Plan, bases: &[Value]) {
        let known = self.known;
        let needed = plan.needed(known);
        for (i, inst) in known.kernel.body.insts.iter().enumerate() {
            let access = plan.accesses.iter().find(|access| access.inst == i);
            match (inst, access) {
                (Inst::Let(value, _), Some(access))
                    if needed[value.index()] && !self.names.contains_key(&(*value, 0)) =>
                {
                    self.load(plan, access, bases[access.row]);
                }
                (Inst::Let(value, _), None) if needed[value.index()] => {
                    (0..TOGETHER).for_each(|one| self.copy(inst, one));
                }
                (Inst::Store { value, .. }, Some(access)) => self.store(plan, access, *value, bases[access.row]),
                _ => {}
            }
        }
    }

    fn place(&self, plan: &Plan, access: &Access, base: Value, place: i32) -> Address {
        let offset = (place - plan.rows[access.row].least) as u32 * 4;
        Address { memory: access.memory, terms: [(base, 4)].into_iter().collect(), offset }
    }

    /// Loads everything that is loaded together with an access.
    fn load(&mut self, plan: &Plan, access: &Access, base: Value) {
        let places = plan.places(self.known, access);
        let mut loaded: HashMap<i32, Value> = HashMap::new();
        let scalar = access.element.scalar();
        for place in quads_of(&places) {
            let (address, element) = (self.place(plan, access, base, place), access.element);
            let all = self.value(scalar, TOGETHER as u8, false);
            self.insts.push(Inst::Let(all, Op::Load { address, element, guard: None }));
            for one in 0..TOGETHER {
                loaded.insert(place + one as i32, self.make(scalar, Op::Extract(all, one as u8)));
            }
        }
        for place in places {
            let (address, element) = (self.place(plan, access, base, place), access.element);
            loaded.entry(place).or_insert_with(|| self.make(scalar, Op::Load { address, element, guard: None }));
        }
        for other in plan.accesses.iter().filter(|other| is_with(self.known, access, other)) {
            let Inst::Let(value, _) = &self.known.kernel.body.insts[other.inst] else { continue };
            for one in 0..TOGETHER {
                self.names.insert((*value, one), loaded[&(other.index + other.offset + one as i32)]);
            }
        }
    }

    fn store(&mut self, plan: &Plan, access: &Access, value: Value, base: Value) {
        let element = access.element;
        let parts: Vec<Value> = (0..TOGETHER).map(|one| self.named(value, one)).collect();
        let first = access.index + access.offset;
        if first % TOGETHER as i32 == 0 {
            let all = self.value(element.scalar(), TOGETHER as u8, false);
            self.insts.push(Inst::Let(all, Op::Construct(parts.into_iter().collect())));
            let address = self.place(plan, access, base, first);
            self.insts.push(Inst::Store { address, element, value: all, guard: None });
            return;
        }
        for (one, value) in (0..).zip(parts) {
            let address = self.place(plan, access, base, first + one);
            self.insts.push(Inst::Store { address, element, value, guard: None });
        }
    }

    /// A step of one neighbour, unless it was done; of those that are the same for all, of the first.
    fn copy(&mut self, inst: &Inst, one: u32) {
        let mut copy = inst.clone();
        match &mut copy {
            Inst::Let(value, _) => {
                if self.one_of(*value, one) != one || self.names.contains_key(&(*value, one)) {
                    return;
                }
                let own = *value;
                *value = Value(self.values.len() as u32);
                self.values.push(self.values[own.index()]);
                self.names.insert((own, one), *value);
            }
            Inst::Store { .. } => {}
            _ => return,
        }
        each_use_mut(&mut copy, &mut |used| *used = self.named(*used, one));
        self.insts.push(copy);
    }

    fn one_of(&self, value: Value, one: u32) -> u32 {
        if self.known.alike[value.index()] { 0 } else { one }
    }

    fn named(&self, value: Value, one: u32) -> Value {
        self.names[&(value, self.one_of(value, one))]
    }

    fn value(&mut self, scalar: Scalar, width: u8, uniform: bool) -> Value {
        self.values.push(ValueInfo { ty: Type { scalar, width }, uniform });
        Value(self.values.len() as u32 - 1)
    }

    fn make(&mut self, scalar: Scalar, op: Op) -> Value {
        let value = self.value(scalar, 1, matches!(op, Op::Const(_)));
        self.insts.push(Inst::Let(value, op));
        value
    }

    fn number(&mut self, number: u32) -> Value {
        self.make(Scalar::U32, Op::Const(Literal::U32(number)))
    }

    fn plus(&mut self, value: Value, number: i32) -> Value {
        if number == 0 {
            return value;
        }
        let number = self.number(number as u32);
        self.make(Scalar::U32, Op::Binary(Binary::Add, value, number))
    }

    fn as_u32(&mut self, value: Value) -> Value {
        match self.values[value.index()].ty.scalar {
            Scalar::U32 => value,
            _ => self.make(Scalar::U32, Op::BitCast(value)),
        }
    }

    fn and(&mut self, all: &mut Option<Value>, other: Value) {
        *all = Some(match *all {
            Some(all) => self.make(Scalar::Bool, Op::Binary(Binary::And, all, other)),
            None => other,
        });
    }
}

#[cfg(test)]
mod tests {
    use vyre_conform::{Case, Expectation, GenOptions, Rules, generate, tests};
    use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
    use vyre_foundation::kernel::{Options, lower};

    use super::*;
    use crate::ptx::flatten::tests::check_with;
    use crate::ptx::{Target, emit, flatten, lowering};

    fn change(kernel: &Kernel) -> Option<Kernel> {
        quads(flatten::flatten(kernel).as_ref().unwrap_or(kernel))
    }

    fn check(name: &str, case: &Case) -> bool {
        check_with(change, name, case, TOGETHER)
    }

    fn words(count: usize) -> Vec<u8> {
        (0..count as u32).flat_map(|i| (i.wrapping_mul(2_654_435_761) >> 8).to_le_bytes()).collect()
    }

    /// Sums of neighbours within a table with so many columns, and what is on its border as it is.
    fn sums(columns: u32, rows: u32, group: [u32; 3]) -> Case {
        let (x, y, n) = (|| Expr::global_id(0), || Expr::global_id(1), || Expr::load("size", Expr::u32(0)));
        let at = |dx: u32, dy: u32| (y() + Expr::u32(dy) - Expr::u32(1)) * n() + x() + Expr::u32(dx) - Expr::u32(1);
        let of = |dx: u32, dy: u32| Expr::load("data", at(dx, dy));
        let last = |size: u32| Expr::u32(size - 1);
        let inner = x().gt(0u32) & x().lt(last(columns)) & y().gt(0u32) & y().lt(last(rows));
        let body = vec![
            Node::if_then(x().ge(n()), vec![Node::Return(None)]),
            Node::if_else(
                inner,
                vec![Node::store("out", at(1, 1), of(0, 1) + of(2, 1) + of(1, 0) + of(1, 2))],
                vec![Node::store("out", at(1, 1), of(1, 1))],
            ),
        ];
        let program = Program::wrapped(
            vec![
                BufferDecl::read("data", 0, DataType::U32),
                BufferDecl::output("out", 1, DataType::U32).with_count(columns * rows),
                BufferDecl::uniform("size", 2, DataType::U32).with_count(1),
            ],
            group,
            body,
        );
        let inputs = vec![words((columns * rows) as usize), columns.to_le_bytes().to_vec()];
        let mut case = Case::new(program, inputs);
        case.grid = Some([columns.div_ceil(group[0]), rows.div_ceil(group[1]), 1]);
        case
    }

    #[test]
    fn four_neighbours_do_what_each_did() {
        for columns in [4, 7, 16, 31, 64, 66] {
            let case = sums(columns, 9, [4, 3, 1]);
            assert!(check(&format!("{columns} columns"), &case), "{columns}");
        }
        let suite = tests(&Rules::exact());
        let suite = suite.iter().filter(|test| !matches!(test.expectation, Expectation::Error));
        let merged = suite.filter(|test| check(&test.name, &test.case)).count();
        assert!(merged >= 5, "{merged} programs of the suite access neighbours");
        for seed in 0..200 {
            check(&format!("seed {seed}"), &generate(seed, &GenOptions::default()));
        }
    }

    #[test]
    fn neighbours_are_loaded_and_stored_at_once() {
        let kernel = |case: &Case| {
            let program = case.program.validate().expect("valid");
            lower(&program, &lowering(Options::default())).expect("lowers")
        };
        let kernel = kernel(&sums(64, 9, [32, 8, 1]));
        let text = emit(&kernel, Target { sm: 90, interruptible: false }).expect("text").text;
        let together = &text[text.find("vyre_kernel_together").expect("a second entry")..];
        let fast = &together[..together.find("\nL").expect("another way")];
        let count = |what: &str| fast.matches(what).count();
        // Three rows of four, what is before and behind the middle one, and the size.
        assert_eq!(
            (count("ld.global.nc.v4"), count("ld.global.nc.u32"), count("st.global.v4"), count("st.global.u32")),
            (3, 3, 1, 0),
            "{together}"
        );
    }
}
