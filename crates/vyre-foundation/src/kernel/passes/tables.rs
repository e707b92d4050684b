//! Numbers that depend on nothing but an invocation's place in its workgroup, such as the factors of a Fourier transform
//! (`cos(-PI * f32(lid.x & 15u) / 16.0)`), become tables: every workgroup would make the same numbers again, in dozens of steps each, and they are known
//! when a kernel is compiled.
//!
//! Only where the bits are the same on every device: what is not exactly defined, or not a number, stays what it is.

use std::sync::Arc;

use hashbrown::HashMap;

use super::values::Values;
use crate::ir::Builtin;
use crate::kernel::walk::{blocks, each_inst, each_inst_mut, each_operand, each_use, end_values};
use crate::kernel::{
    Address, Binary, Block, Element, Inst, Kernel, KernelMemory, Memory, Op, Scalar, Type, Unary, Value, fold,
};

/// Invocations of the workgroups that have tables.
const LANES: std::ops::RangeInclusive<u32> = 16..=1024;
/// Words of the shortest table: vectors of as many find theirs side by side.
const LEAST_WORDS: u32 = 16;
/// Steps that take longer than a load.
const LEAST_STEPS: u32 = 20;
/// Steps that a number of a table may be made in.
const MOST_STEPS: usize = 1 << 10;
/// Steps of all lanes that compiling a kernel may take.
const MOST_WORK: usize = 1 << 18;
/// Bytes of all tables, which share the nearest cache with workgroup memory.
const MOST_BYTES: u32 = 32 << 10;

pub(super) fn run(kernel: &mut Kernel) {
    let lanes = kernel.workgroup_size.iter().product::<u32>();
    if !kernel.has_barrier || !LANES.contains(&lanes) {
        return;
    }
    let mut asks = false;
    each_inst(&kernel.body, &mut |inst| asks |= matches!(inst, Inst::Let(_, op) if is_place(op)));
    if !asks {
        return;
    }
    let found = Search::new(kernel).tables();
    if !found.is_empty() {
        load(kernel, found, lanes);
    }
}

fn is_place(op: &Op) -> bool {
    matches!(op, Op::Builtin(Builtin::LocalId(_) | Builtin::LocalIndex))
}

/// What lanes have: bits of as many as are different, from where on they come again.
type Lanes = Vec<u64>;

struct Search<'k> {
    kernel: &'k Kernel,
    lanes: u32,
    /// How values are made that depend on nothing but the place, with their positions.
    made: Vec<Option<(u32, &'k Op)>>,
    /// Something else needs the value.
    needed: Vec<bool>,
    /// Those in the order in which they are made.
    order: Vec<Value>,
    computed: HashMap<Value, Option<Lanes>>,
    work: usize,
    /// The last value for which a step was counted.
    counted: Vec<Value>,
}

impl<'k> Search<'k> {
    fn new(kernel: &'k Kernel) -> Search<'k> {
        let count = kernel.values.len();
        let mut search = Search {
            kernel,
            lanes: kernel.workgroup_size.iter().product(),
            made: vec![None; count],
            needed: vec![false; count],
            order: Vec::new(),
            computed: HashMap::new(),
            work: 0,
            counted: vec![Value(u32::MAX); count],
        };
        search.block(&kernel.body);
        search
    }

    fn block(&mut self, block: &'k Block) {
        for inst in &block.insts {
            if let Inst::Let(value, op) = inst
                && self.depends_on_place(*value, op)
            {
                self.made[value.index()] = Some((self.order.len() as u32, op));
                self.order.push(*value);
            } else {
                each_use(inst, &mut |value| self.needed[value.index()] = true);
            }
            blocks(inst).for_each(|block| self.block(block));
        }
        end_values(&block.end).iter().for_each(|value| self.needed[value.index()] = true);
    }

    fn depends_on_place(&self, value: Value, op: &Op) -> bool {
        let plain = match op {
            Op::Const(_) => return true,
            Op::Builtin(_) => return is_place(op),
            Op::Unary(op, _) => !op.is_rough(),
            Op::Binary(..) | Op::Fma(..) | Op::Select(..) | Op::Cast(_) | Op::BitCast(_) => true,
            _ => false,
        };
        let mut known = plain && self.kernel.values[value.index()].ty.width == 1;
        each_operand(op, &mut |value| known &= self.made[value.index()].is_some());
        known
    }

    /// The numbers that are worth a table, with what lanes have of them.
    fn tables(mut self) -> Vec<(Value, Lanes)> {
        let is_float = |value: &Value| self.kernel.values[value.index()].ty == Type::from(Scalar::F32);
        let ends: Vec<Value> = self.order.iter().copied().filter(|end| self.needed[end.index()]).collect();
        let ends: Vec<Value> = ends.into_iter().filter(is_float).collect();
        let mut tables: Vec<(Value, Lanes)> = Vec::new();
        let mut taken = vec![false; self.kernel.values.len()];
        for end in ends {
            let steps = self.steps(end, &taken);
            let weight = steps.iter().map(|step| self.weight(*step)).sum::<u32>();
            if weight < LEAST_STEPS || steps.len() > MOST_STEPS {
                continue;
            }
            for step in self.steps(end, &[]) {
                self.compute(step);
            }
            if let Some(Some(lanes)) = self.computed.get(&end) {
                tables.push((end, lanes.clone()));
                taken[end.index()] = true;
            }
        }
        tables
    }

    /// The steps that make a value and are not computed yet, in order; none before those of `taken`.
    fn steps(&mut self, end: Value, taken: &[bool]) -> Vec<Value> {
        // Each value is asked for twice, and the marks of both are apart.
        let mark = Value(end.0 | if taken.is_empty() { 1 << 31 } else { 0 });
        let (mut open, mut steps) = (vec![end], Vec::new());
        while let Some(value) = open.pop() {
            let Some((_, op)) = self.made[value.index()] else { continue };
            let done = match taken.get(value.index()) {
                Some(taken) => *taken,
                None => self.computed.contains_key(&value),
            };
            if done || self.counted[value.index()] == mark {
                continue;
            }
            self.counted[value.index()] = mark;
            steps.push(value);
            if steps.len() > MOST_STEPS {
                break;
            }
            each_operand(op, &mut |operand| open.push(operand));
        }
        steps.sort_unstable_by_key(|step| self.made[step.index()].map(|(position, _)| position));
        steps
    }

    /// About how many instructions a step takes.
    fn weight(&self, value: Value) -> u32 {
        let is_float = matches!(self.kernel.values[value.index()].ty.scalar, Scalar::F32 | Scalar::F64);
        match self.made[value.index()] {
            None | Some((_, Op::Const(_) | Op::Builtin(_))) => 0,
            Some((_, Op::Binary(Binary::Div, ..) | Op::Unary(Unary::Sqrt, _))) if is_float => 4,
            _ => 1,
        }
    }

    fn compute(&mut self, value: Value) {
        let lanes = self.made[value.index()].and_then(|(_, op)| self.lanes_of(value, op));
        self.work += lanes.as_ref().map_or(0, Vec::len);
        self.computed.insert(value, lanes.map(shortest));
    }

    /// What lanes have of a value; nothing where that is not known to the bit.
    fn lanes_of(&self, value: Value, op: &Op) -> Option<Lanes> {
        let [x, y, _] = self.kernel.workgroup_size;
        let all = 0..u64::from(self.lanes);
        let (x, y) = (u64::from(x), u64::from(y));
        let scalar = |value: Value| self.kernel.values[value.index()].ty.scalar;
        match *op {
            Op::Const(literal) => return Some(vec![literal.bits()]),
            Op::Builtin(Builtin::LocalIndex) => return Some(all.collect()),
            Op::Builtin(Builtin::LocalId(0)) => return Some(all.map(|lane| lane % x).collect()),
            Op::Builtin(Builtin::LocalId(1)) => return Some(all.map(|lane| lane / x % y).collect()),
            Op::Builtin(Builtin::LocalId(_)) => return Some(all.map(|lane| lane / (x * y)).collect()),
            _ => {}
        }
        let mut operands: Vec<(Scalar, &Lanes)> = Vec::with_capacity(3);
        let mut missing = false;
        each_operand(op, &mut |operand| match self.computed.get(&operand) {
            Some(Some(lanes)) => operands.push((scalar(operand), lanes)),
            _ => missing = true,
        });
        let count = operands.iter().map(|(_, lanes)| lanes.len()).max().filter(|_| !missing)?;
        if self.work + count > MOST_WORK {
            return None;
        }
        let to = scalar(value);
        (0..count)
            .map(|lane| {
                let of = |position: usize| {
                    let (scalar, lanes): (Scalar, &Lanes) = operands[position];
                    fold::literal(scalar, lanes[lane % lanes.len()])
                };
                let result = match *op {
                    Op::Unary(op, _) => fold::unary(op, of(0))?,
                    Op::Binary(op, ..) => fold::binary(op, of(0), of(1))?,
                    Op::Fma(..) => fold::fma(of(0), of(1), of(2))?,
                    Op::Select(..) => of(if of(0).bits() != 0 { 1 } else { 2 }),
                    Op::Cast(_) => fold::cast(of(0), to),
                    Op::BitCast(_) => fold::literal(to, of(0).bits()),
                    _ => return None,
                };
                let is_number = !matches!(to, Scalar::F16 | Scalar::F32 | Scalar::F64) || {
                    let wide = fold::cast(result, Scalar::F64).bits();
                    !f64::from_bits(wide).is_nan()
                };
                is_number.then(|| result.bits())
            })
            .collect()
    }
}

/// As many as come before they come again. What is left divides what was, so that lanes of two values go together.
fn shortest(mut lanes: Lanes) -> Lanes {
    while let (half, 0) = (lanes.len() / 2, lanes.len() % 2)
        && lanes[..half] == lanes[half..]
    {
        lanes.truncate(half);
    }
    if lanes.iter().all(|bits| *bits == lanes[0]) {
        lanes.truncate(1);
    }
    lanes
}

/// Loads numbers from tables instead of making them.
fn load(kernel: &mut Kernel, found: Vec<(Value, Lanes)>, lanes: u32) {
    let mut start = Vec::new();
    let mut values = Values::of(kernel);
    let op = match kernel.workgroup_size {
        [_, 1, 1] => Op::Builtin(Builtin::LocalId(0)),
        _ => Op::Builtin(Builtin::LocalIndex),
    };
    let place = values.define(Scalar::U32, op, &mut start);
    let mut places: HashMap<u32, Value> = HashMap::new();
    places.insert(lanes, place);
    let mut tables: HashMap<Arc<[u32]>, u32> = HashMap::new();
    let mut loads: HashMap<Value, Op> = HashMap::new();
    let mut bytes = 0;
    for (value, known) in found {
        if let [bits] = known[..] {
            loads.insert(value, Op::Const(fold::literal(Scalar::F32, bits)));
            continue;
        }
        let count = match known.len() as u32 {
            short if short.is_power_of_two() => short.max(LEAST_WORDS).min(lanes),
            _ => lanes,
        };
        let words: Arc<[u32]> = (0..count as usize).map(|lane| known[lane % known.len()] as u32).collect();
        let table = match tables.get(&words) {
            Some(table) => *table,
            None if bytes + 4 * count > MOST_BYTES => continue,
            None => {
                bytes += 4 * count;
                let table = kernel.locals.len() as u32;
                kernel.locals.push(KernelMemory {
                    name: "known".into(),
                    element: Some((Element::F32, 1)),
                    size: 4 * count,
                    align: 4,
                    atomic: false,
                    cleared: false,
                    words: Some(words.clone()),
                });
                tables.insert(words, table);
                table
            }
        };
        let index = *places.entry(count).or_insert_with(|| {
            let last = values.constant(Scalar::U32, count - 1, &mut start);
            values.binary(Binary::And, place, last, &mut start)
        });
        let terms = [(index, 4)].into_iter().collect();
        let address = Address { memory: Memory::Local(table), terms, offset: 0 };
        loads.insert(value, Op::Load { address, element: Element::F32, guard: None });
    }
    values.give_back(kernel);
    each_inst_mut(&mut kernel.body, &mut |inst| {
        if let Inst::Let(value, op) = inst
            && let Some(load) = loads.remove(value)
        {
            *op = load;
        }
    });
    kernel.body.insts.splice(0..0, start);
}
