//! Vectors of four that are only worked on component by component: one invocation for each component instead of one for all.
//!
//! Neighbours that load a vector each bring words to lanes that are four apart, and a device that takes neighbours as one vector sorts them in
//! registers, at each load and each store. Where all four components are treated alike, and where the invocation is along x says only which vector it has,
//! each component may as well have an invocation of its own: four times as many neighbours then load neighbouring words, and what the components of a row
//! have in common is the same for more of them.
//!
//! Components are treated alike where each step for one of them has a step of the same operation for each other one. Such steps are found from what
//! is stored back to what is loaded.

use hashbrown::{HashMap, HashSet};

use super::values::Values;
use super::{dead, tiles};
use crate::ir::Builtin;
use crate::kernel::walk::{each_inst, each_operand, each_operand_mut, each_use, each_value, end_values, exits};
use crate::kernel::{Address, Binary, Block, Element, End, Inst, Kernel, Loop, Memory, Op, Scalar, Value};

const COMPONENTS: u32 = 4;
/// Bytes of a component, and of a vector.
const WORD: u32 = 4;
const VECTOR: u32 = COMPONENTS * WORD;
/// Invocations that a workgroup may have then.
const MOST_INVOCATIONS: u32 = 1024;
/// Steps that an index may be made by.
const DEEP: u32 = 16;
/// No invocation is as far along x, and no buffer has as many vectors (see `Options::components_apart`).
const FAR: u32 = 1 << 29;

/// Gives each component an invocation, where rows of them are whole vectors of so many lanes.
pub(super) fn run(kernel: &mut Kernel, lanes: u32) -> bool {
    let [x, y, z] = kernel.workgroup_size;
    let row = x * COMPONENTS;
    if !row.is_multiple_of(lanes) || !row.is_power_of_two() || row * y * z > MOST_INVOCATIONS || !is_simple(kernel) {
        return false;
    }
    let Some(parts) = Parts::of(kernel) else { return false };
    let mut apart = kernel.clone();
    let dealt = tiles::free_loops(&mut apart);
    let mut change = Change {
        strides: apart.buffers.iter().map(|buffer| buffer.stride).collect(),
        values: Values::with_definitions(&mut apart),
        parts: &parts.parts,
        firsts: &parts.firsts,
        dealt: &dealt,
        line: y * z == 1,
        places: HashMap::new(),
        failed: false,
    };
    change.insts(&mut apart.body.insts, &[]);
    let (failed, places) = (change.failed, std::mem::take(&mut change.places));
    change.values.give_back(&mut apart);
    if failed {
        return false;
    }
    for value in parts.parts.keys().chain(parts.firsts.values()) {
        let info = &mut apart.values[value.index()];
        (info.uniform, info.ty.width) = (false, 1);
    }
    dead::run(&mut apart);
    let mut asked = false;
    each_value(&apart.body, &mut |value| asked |= places.contains_key(&value));
    if asked {
        return false;
    }
    apart.workgroup_size[0] = row;
    apart.parts = COMPONENTS;
    *kernel = apart;
    true
}

/// Nothing but loads, stores and what is computed; what is stored in vectors is accessed in no other way, and only at multiples of them, so that the
/// invocation of a component meets no other components.
fn is_simple(kernel: &Kernel) -> bool {
    let (mut simple, mut vectors, mut words) = (true, HashSet::new(), HashSet::new());
    let mut access = |address: &Address, element: Element, width: u8, stored: bool| {
        let is_word = matches!(element, Element::U32 | Element::I32 | Element::F32);
        let is_own = matches!(address.memory, Memory::Local(_));
        if u32::from(width) == COMPONENTS && stored {
            vectors.insert(address.memory);
        } else if width == 1 {
            words.insert(address.memory);
        }
        let strides = address.terms.iter().map(|(_, stride)| *stride);
        let whole = strides.chain([address.offset]).all(|bytes| bytes.is_multiple_of(VECTOR));
        !is_own && (width == 1 || u32::from(width) == COMPONENTS && is_word && whole)
    };
    each_inst(&kernel.body, &mut |inst| {
        simple &= match inst {
            Inst::Let(value, Op::Load { address, element, .. }) => {
                access(address, *element, kernel.values[value.index()].ty.width, false)
            }
            Inst::Let(_, Op::Builtin(builtin)) => matches!(
                builtin,
                Builtin::LocalId(_)
                    | Builtin::GlobalId(_)
                    | Builtin::WorkgroupId(_)
                    | Builtin::NumWorkgroups(_)
                    | Builtin::LocalIndex
            ),
            Inst::Let(_, op) => !op.is_across_subgroup(),
            Inst::Store { address, element, value, .. } => {
                access(address, *element, kernel.values[value.index()].ty.width, true)
            }
            Inst::Atomic { .. } => false,
            _ => true,
        };
    });
    simple && !vectors.is_empty() && vectors.is_disjoint(&words)
}

/// Which component a value belongs to, and what the first one has in its place.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Part {
    component: u8,
    first: Value,
}

/// How a value is made.
#[derive(Clone, Copy)]
enum Made<'k> {
    Op(&'k Op),
    Carried(&'k Loop, usize),
    Left(&'k Loop, usize),
    Joined([&'k Block; 2], usize),
}

/// The values of components.
struct Parts {
    parts: HashMap<Value, Part>,
    /// Vectors that are loaded, with what their first component is called.
    firsts: HashMap<Value, Value>,
}

impl Parts {
    /// What belongs to components, where they are treated alike and nothing else depends on them.
    fn of(kernel: &Kernel) -> Option<Parts> {
        let (mut made, mut open) = (HashMap::new(), Vec::new());
        each_inst(&kernel.body, &mut |inst| match inst {
            Inst::Let(value, op) => _ = made.insert(*value, Made::Op(op)),
            Inst::If { then, otherwise, results, .. } => {
                let joined = |(at, result): (usize, &Value)| (*result, Made::Joined([then, otherwise], at));
                made.extend(results.iter().enumerate().map(joined));
            }
            Inst::Loop(inner) => {
                made.extend(inner.params.iter().enumerate().map(|(at, param)| (*param, Made::Carried(inner, at))));
                made.extend(inner.results.iter().enumerate().map(|(at, result)| (*result, Made::Left(inner, at))));
            }
            _ => {}
        });
        let (mut alike, mut copied) = (true, Vec::new());
        each_inst(&kernel.body, &mut |inst| {
            if let Inst::Store { value, .. } = inst
                && kernel.values[value.index()].ty.width > 1
            {
                match made.get(value) {
                    Some(Made::Op(Op::Construct(all))) if all.len() == 4 => open.push([all[0], all[1], all[2], all[3]]),
                    Some(Made::Op(Op::Load { .. })) => copied.push(*value),
                    _ => alike = false,
                }
            }
        });
        let mut found = Finding { kernel, made, open, parts: HashMap::new(), firsts: HashMap::new() };
        while let Some(all) = found.open.pop() {
            found.note(all)?;
        }
        let Finding { parts, mut firsts, .. } = found;
        for vector in copied {
            firsts.entry(vector).or_insert(vector);
        }
        let parts = Parts { parts, firsts };
        (alike && parts.holds(kernel, &kernel.body, &[])).then_some(parts)
    }

    fn component(&self, value: Value) -> Option<u8> {
        self.parts.get(&value).map(|part| part.component)
    }

    /// What belongs to a component depends on what all have in common and on that component; the other values on no component. `given` are the
    /// values that the ends of the block give to.
    fn holds(&self, kernel: &Kernel, block: &Block, given: &[&[Value]]) -> bool {
        let fits = |to: Option<u8>, value: Value| self.component(value).is_none_or(|of| Some(of) == to);
        let all_fit =
            |to: &[Value], values: &[Value]| to.iter().zip(values).all(|(to, value)| fits(self.component(*to), *value));
        let wide = |value: Value| kernel.values[value.index()].ty.width > 1;
        let mut holds = given.iter().all(|to| all_fit(to, end_values(&block.end)));
        for inst in &block.insts {
            holds &= match inst {
                // Only stores have them. One component in the place of others, or of all, belongs to no invocation.
                Inst::Let(_, Op::Construct(all)) => {
                    (0..).zip(all).all(|(place, value)| self.component(*value).is_none_or(|of| of == place))
                }
                Inst::Let(value, Op::Extract(vector, _)) => {
                    self.component(*value).is_some() == self.firsts.contains_key(vector)
                        && self.firsts.contains_key(vector)
                }
                Inst::Let(value, Op::Load { .. }) if wide(*value) && !self.firsts.contains_key(value) => false,
                Inst::Loop(inner) => {
                    let inside = [&inner.params[..], &inner.results[..]];
                    let mut shared = true;
                    if let Some(counter) = inner.counter {
                        shared = fits(None, counter.from) && fits(None, counter.to);
                    }
                    shared && all_fit(&inner.params, &inner.init) && self.holds(kernel, &inner.body, &inside)
                }
                Inst::If { cond, then, otherwise, results } => {
                    let inner = |block: &Block| match block.end {
                        End::Yield(_) => self.holds(kernel, block, &[results]),
                        _ => self.holds(kernel, block, given),
                    };
                    fits(None, *cond) && inner(then) && inner(otherwise)
                }
                _ => {
                    let to = match inst {
                        Inst::Let(value, _) => self.component(*value),
                        _ => None,
                    };
                    let mut all = true;
                    each_use(inst, &mut |value| all &= fits(to, value));
                    all
                }
            };
        }
        holds
    }
}

struct Finding<'k> {
    kernel: &'k Kernel,
    made: HashMap<Value, Made<'k>>,
    /// Values of the four components that are still to be looked at.
    open: Vec<[Value; 4]>,
    parts: HashMap<Value, Part>,
    firsts: HashMap<Value, Value>,
}

impl<'k> Finding<'k> {
    /// Notes that four values belong to the components, or that all have one in common; nothing where they are not made alike.
    fn note(&mut self, all: [Value; 4]) -> Option<()> {
        let [first, rest @ ..] = all;
        if rest.iter().all(|value| *value == first) {
            return Some(());
        }
        let made: Vec<Made<'k>> = all.iter().map(|value| self.made.get(value).copied()).collect::<Option<_>>()?;
        if let Made::Op(Op::Const(literal)) = made[0]
            && made.iter().all(|made| matches!(made, Made::Op(Op::Const(other)) if other.bits() == literal.bits()))
        {
            return Some(());
        }
        if self.parts.contains_key(&first) {
            return self.are_parts(all);
        }
        match made[0] {
            Made::Op(op) => {
                self.insert(all)?;
                self.steps(first, op, &made)
            }
            Made::Joined(ways, _) => {
                let places = each_of(&made, |made| match made {
                    Made::Joined(others, at) if std::ptr::eq(others[0], ways[0]) => Some(at),
                    _ => None,
                })?;
                self.insert(all)?;
                for way in ways {
                    if let End::Yield(values) = &way.end {
                        self.open.push(places.map(|at| values[at]));
                    }
                }
                Some(())
            }
            Made::Carried(inner, _) | Made::Left(inner, _) => {
                let places = each_of(&made, |made| match made {
                    Made::Carried(other, at) | Made::Left(other, at) if std::ptr::eq(other, inner) => Some(at),
                    _ => None,
                })?;
                self.insert(places.map(|at| inner.params[at]))?;
                self.insert(places.map(|at| inner.results[at]))?;
                self.open.push(places.map(|at| inner.init[at]));
                let (mut again, mut out) = (Vec::new(), Vec::new());
                exits(&inner.body, &mut again, &mut out);
                self.open.extend(again.into_iter().chain(out).map(|values| places.map(|at| values[at])));
                self.are_parts(all)
            }
        }
    }

    fn insert(&mut self, all: [Value; 4]) -> Option<()> {
        let first = all[0];
        let scalar = self.kernel.values[first.index()].ty;
        for (component, value) in (0..).zip(all) {
            let is_new = self.parts.insert(value, Part { component, first }).is_none();
            (is_new && self.kernel.values[value.index()].ty == scalar).then_some(())?;
        }
        Some(())
    }

    fn are_parts(&self, all: [Value; 4]) -> Option<()> {
        let are = (0..).zip(all).all(|(component, value)| {
            self.parts.get(&value).is_some_and(|part| *part == Part { component, first: all[0] })
        });
        are.then_some(())
    }

    /// The steps for the components are the same operation, of what is to be looked at next.
    fn steps(&mut self, first: Value, op: &Op, made: &[Made<'k>]) -> Option<()> {
        let ops: Vec<&Op> = made
            .iter()
            .map(|made| match made {
                Made::Op(op) => Some(*op),
                _ => None,
            })
            .collect::<Option<_>>()?;
        if let Op::Extract(vector, _) = op {
            let (Some(Made::Op(Op::Load { .. })), true) =
                (self.made.get(vector), (0..).zip(&ops).all(|(component, op)| **op == Op::Extract(*vector, component)))
            else {
                return None;
            };
            return self.firsts.insert(*vector, first).is_none().then_some(());
        }
        if matches!(op, Op::Load { .. } | Op::Construct(_) | Op::Builtin(_) | Op::Const(_)) || op.is_across_subgroup() {
            return None;
        }
        let bare = |op: &Op| {
            let mut op = op.clone();
            each_operand_mut(&mut op, &mut |operand| *operand = Value(0));
            op
        };
        let same = bare(op);
        if ops.iter().any(|op| bare(op) != same) {
            return None;
        }
        let operands: Vec<Vec<Value>> = ops
            .iter()
            .map(|op| {
                let mut operands = Vec::new();
                each_operand(op, &mut |operand| operands.push(operand));
                operands
            })
            .collect();
        self.open.extend((0..operands[0].len()).map(|at| std::array::from_fn(|component| operands[component][at])));
        Some(())
    }
}

/// The places of four values that come from one step.
fn each_of<'k>(made: &[Made<'k>], place: impl Fn(Made<'k>) -> Option<usize>) -> Option<[usize; 4]> {
    let places: Vec<usize> = made.iter().map(|made| place(*made)).collect::<Option<_>>()?;
    places.try_into().ok()
}

/// Makes the steps of each invocation those of one component.
struct Change<'a> {
    values: Values,
    parts: &'a HashMap<Value, Part>,
    firsts: &'a HashMap<Value, Value>,
    /// Bytes from one element of each buffer to the next.
    strides: Vec<u32>,
    /// Counters of loops whose rounds any invocations may make.
    dealt: &'a HashSet<Value>,
    /// A workgroup is one row.
    line: bool,
    /// Where the program's invocation is, with where that of the component is.
    places: HashMap<Value, Value>,
    failed: bool,
}

/// An index with the component: four times as much and the component, and what the index is more than the invocation's place.
struct Spread {
    index: Value,
    more: Option<Value>,
}

impl Change<'_> {
    /// What belongs to the first component stands for all of them.
    fn stays(&self, value: Value) -> bool {
        self.parts.get(&value).is_none_or(|part| part.component == 0)
    }

    fn kept<T: Copy>(&self, names: &[Value], all: &mut Vec<T>) {
        *all = all.iter().zip(names).filter(|(_, name)| self.stays(**name)).map(|(value, _)| *value).collect();
    }

    fn insts(&mut self, insts: &mut Vec<Inst>, around: &[Value]) {
        let mut out = Vec::with_capacity(insts.len());
        for inst in std::mem::take(insts) {
            self.inst(inst, around, &mut out);
        }
        *insts = out;
    }

    /// `around` are the values that the loop around carries.
    fn inst(&mut self, inst: Inst, around: &[Value], out: &mut Vec<Inst>) {
        match inst {
            Inst::Let(_, Op::Construct(_) | Op::Extract(..)) => {}
            Inst::Let(value, _) if !self.stays(value) => {}
            Inst::Let(value, Op::Load { address, element, guard }) if self.firsts.contains_key(&value) => {
                let address = self.spread_address(address, out);
                out.push(Inst::Let(self.firsts[&value], Op::Load { address, element, guard }));
            }
            Inst::Let(value, op @ Op::Builtin(Builtin::LocalId(0) | Builtin::GlobalId(0) | Builtin::LocalIndex)) => {
                let place = self.values.define(Scalar::U32, op, out);
                let by = self.values.constant(Scalar::U32, COMPONENTS.trailing_zeros(), out);
                self.places.insert(value, place);
                out.push(Inst::Let(value, Op::Binary(Binary::Shr, place, by)));
            }
            Inst::Let(value, Op::Binary(op, a, b)) => {
                let compared = match op {
                    Binary::Lt | Binary::Ge => self.compared(op == Binary::Lt, a, b, out),
                    Binary::Gt | Binary::Le => self.compared(op == Binary::Gt, b, a, out),
                    _ => None,
                };
                out.push(Inst::Let(value, compared.unwrap_or(Op::Binary(op, a, b))));
            }
            Inst::Store { address, element, value, guard } => {
                let value = match (self.values.def(value), self.firsts.get(&value)) {
                    (Some(Op::Construct(all)), _) => all[0],
                    (_, Some(first)) => *first,
                    // The invocations of all components would do it.
                    _ => {
                        self.failed = true;
                        return;
                    }
                };
                let address = self.spread_address(address, out);
                out.push(Inst::Store { address, element, value, guard });
            }
            Inst::If { cond, mut then, mut otherwise, mut results } => {
                for way in [&mut then, &mut otherwise] {
                    self.insts(&mut way.insts, around);
                    let names = if matches!(way.end, End::Yield(_)) { &results[..] } else { around };
                    self.kept_at_end(&mut way.end, names);
                }
                results.retain(|result| self.stays(*result));
                out.push(Inst::If { cond, then, otherwise, results });
            }
            Inst::Loop(mut inner) if self.is_dealt(&inner) => {
                let place = if self.line { Builtin::LocalId(0) } else { Builtin::LocalIndex };
                let mut from = self.values.define(Scalar::U32, Op::Builtin(place), out);
                if let Some(counter) = &mut inner.counter {
                    if self.values.scalar(counter.value) != Scalar::U32 {
                        from = self.values.define(Scalar::I32, Op::BitCast(from), out);
                    }
                    (counter.from, counter.step) = (from, counter.step * COMPONENTS);
                }
                out.push(Inst::Loop(inner));
            }
            Inst::Loop(mut inner) => {
                let names = std::mem::take(&mut inner.params);
                self.insts(&mut inner.body.insts, &names);
                self.kept_at_end(&mut inner.body.end, &names);
                self.kept(&names, &mut inner.init);
                self.kept(&names, &mut inner.results);
                inner.params = names.into_iter().filter(|param| self.stays(*param)).collect();
                out.push(Inst::Loop(inner));
            }
            inst => out.push(inst),
        }
    }

    fn is_dealt(&self, inner: &Loop) -> bool {
        let mut words = true;
        each_inst(&inner.body, &mut |inst| {
            words &= !matches!(inst, Inst::Let(value, _) if self.values.ty(*value).width > 1);
        });
        words && inner.counter.is_some_and(|counter| self.dealt.contains(&counter.value))
    }

    /// What ends give to those of some values that stay.
    fn kept_at_end(&self, end: &mut End, names: &[Value]) {
        if let End::Yield(values) | End::Continue(values) | End::Break(values) = end {
            self.kept(names, values);
        }
    }

    /// Where the component's word of a vector is.
    fn spread_address(&mut self, mut address: Address, out: &mut Vec<Inst>) -> Address {
        let spread = (0..address.terms.len()).find_map(|at| {
            let (index, stride) = address.terms[at];
            let mut insts = Vec::new();
            let spread = self.spread(index, DEEP, &mut insts).filter(|_| stride == VECTOR)?;
            Some((at, spread.index, insts))
        });
        match spread {
            Some((at, index, insts)) => {
                out.extend(insts);
                address.terms[at] = (index, WORD);
            }
            None => self.failed = true,
        }
        address
    }

    /// An index that is the invocation's place along x and something more, with the component.
    fn spread(&mut self, index: Value, deep: u32, out: &mut Vec<Inst>) -> Option<Spread> {
        if let Some(&place) = self.places.get(&index) {
            return Some(Spread { index: place, more: None });
        }
        let deep = deep.checked_sub(1)?;
        match *self.values.def(index)? {
            Op::Binary(Binary::Add, a, b) => {
                let (spread, other) = match self.spread(a, deep, out) {
                    Some(spread) => (spread, b),
                    None => (self.spread(b, deep, out)?, a),
                };
                Some(self.further(Binary::Add, spread, other, out))
            }
            Op::Binary(Binary::Sub, a, b) => {
                let spread = self.spread(a, deep, out)?;
                Some(self.further(Binary::Sub, spread, b, out))
            }
            Op::BitCast(a) if self.is_number(a) && self.is_number(index) => {
                let Spread { index: of, more } = self.spread(a, deep, out)?;
                let scalar = self.values.scalar(index);
                let mut cast = |value: Value| match self.values.scalar(value) == scalar {
                    true => value,
                    false => self.values.define(scalar, Op::BitCast(value), out),
                };
                Some(Spread { index: cast(of), more: more.map(cast) })
            }
            _ => None,
        }
    }

    fn is_number(&self, value: Value) -> bool {
        matches!(self.values.scalar(value), Scalar::U32 | Scalar::I32)
    }

    /// As much more, or less.
    fn further(&mut self, op: Binary, spread: Spread, by: Value, out: &mut Vec<Inst>) -> Spread {
        let shift = self.values.constant(Scalar::U32, COMPONENTS.trailing_zeros(), out);
        let words = self.values.binary(Binary::Shl, by, shift, out);
        let index = self.values.binary(op, spread.index, words, out);
        let before = match spread.more {
            Some(before) => before,
            None if op == Binary::Add => return Spread { index, more: Some(by) },
            None => self.values.constant(self.values.scalar(by), 0, out),
        };
        Spread { index, more: Some(self.values.binary(op, before, by, out)) }
    }

    /// An index is below a limit, or is not, in numbers of words: no multiple of a vector comes between. The index times four may wrap around where the
    /// index is far, so that what it is more than the invocation's place is compared too: that is less than nothing, or far, where the index is out
    /// of bounds.
    fn compared(&mut self, below: bool, index: Value, limit: Value, out: &mut Vec<Inst>) -> Option<Op> {
        if self.values.scalar(index) != Scalar::U32 {
            return None;
        }
        let mut insts = Vec::new();
        let spread = self.spread(index, DEEP, &mut insts)?;
        let is_near = match self.values.def(limit) {
            Some(Op::Const(literal)) => literal.bits() <= u64::from(FAR),
            Some(Op::Length(buffer)) => self.strides.get(*buffer as usize).is_some_and(|stride| *stride >= WORD),
            _ => false,
        };
        let limit = match (is_near, spread.more) {
            (true, _) => limit,
            // The place alone is near, so that any limit that is far is as good as another one.
            (false, None) => {
                let far = self.values.constant(Scalar::U32, FAR, &mut insts);
                self.values.binary(Binary::Min, limit, far, &mut insts)
            }
            (false, Some(_)) => return None,
        };
        let shift = self.values.constant(Scalar::U32, COMPONENTS.trailing_zeros(), &mut insts);
        let words = self.values.binary(Binary::Shl, limit, shift, &mut insts);
        let (compare, both) = if below { (Binary::Lt, Binary::And) } else { (Binary::Ge, Binary::Or) };
        let op = match spread.more {
            None => Op::Binary(compare, spread.index, words),
            Some(more) => {
                let far = self.values.constant(Scalar::U32, FAR, &mut insts);
                let most = self.values.constant(Scalar::U32, 2 * FAR, &mut insts);
                let more = self.values.binary(Binary::Add, more, far, &mut insts);
                let near = self.values.binary(compare, more, most, &mut insts);
                let within = self.values.binary(compare, spread.index, words, &mut insts);
                Op::Binary(both, near, within)
            }
        };
        out.extend(insts);
        Some(op)
    }
}
