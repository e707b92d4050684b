//! Loops that carry more vectors than there are registers, as several loops that carry some of them each.
//!
//! The sums of a large tile of a product are far more than a processor has registers. In one loop most of them are loaded and stored in
//! every round; where they don't depend on each other, a loop for some and then one for the others has all its sums in registers.

use std::collections::BTreeSet;

use vyre_foundation::kernel::{Block, Counter, End, Inst, Kernel, Loop, Value, ValueInfo, each_use, each_use_mut};

use super::hash::Map;
use super::isa::Isa;
use super::shape::{Lane, Shapes};

/// Registers for what a round makes: an operand of a carried value and what is added to it.
const OTHERS: usize = 2;

/// The kernel with its loops divided; nothing where none is.
pub(super) fn divided(kernel: &Kernel, isa: Isa, shapes: &Shapes) -> Option<Kernel> {
    let registers = usize::from(isa.registers()) - OTHERS;
    if !any_loop(&kernel.body, &|inner| parts_of(inner, registers, shapes).is_some()) {
        return None;
    }
    let mut kernel = kernel.clone();
    divide_in(&mut kernel.body, &mut kernel.values, registers, shapes);
    Some(kernel)
}

fn any_loop(block: &Block, f: &dyn Fn(&Loop) -> bool) -> bool {
    block.insts.iter().any(|inst| match inst {
        Inst::If { then, otherwise, .. } => any_loop(then, f) || any_loop(otherwise, f),
        Inst::Loop(inner) => f(inner) || any_loop(&inner.body, f),
        _ => false,
    })
}

fn divide_in(block: &mut Block, values: &mut Vec<ValueInfo>, registers: usize, shapes: &Shapes) {
    for mut inst in std::mem::take(&mut block.insts) {
        match &mut inst {
            Inst::If { then, otherwise, .. } => {
                divide_in(then, values, registers, shapes);
                divide_in(otherwise, values, registers, shapes);
            }
            Inst::Loop(inner) => match parts_of(inner, registers, shapes) {
                Some(parts) => {
                    let mut given = BTreeSet::new();
                    let loops = parts.iter().map(|part| part.of(inner, values, &mut given));
                    block.insts.extend(loops.map(|inner| Inst::Loop(Box::new(inner))));
                    continue;
                }
                None => divide_in(&mut inner.body, values, registers, shapes),
            },
            _ => {}
        }
        block.insts.push(inst);
    }
}

/// What some of the carried values need.
#[derive(Clone, Default)]
struct Part {
    /// Positions of carried values, and of steps of the body.
    carried: BTreeSet<usize>,
    steps: BTreeSet<usize>,
}

/// The parts that a loop is divided into.
fn parts_of(inner: &Loop, registers: usize, shapes: &Shapes) -> Option<Vec<Part>> {
    let vectors: Vec<usize> =
        (0..inner.params.len()).filter(|&at| shapes.of(inner.params[at]).lane == Lane::Vary).collect();
    let plain = inner.body.insts.iter().all(|inst| matches!(inst, Inst::Let(_, op) if !op.is_across_subgroup()));
    if vectors.len() <= registers || !plain || inner.counter.is_none() {
        return None;
    }
    let body = Body::of(inner)?;
    // Those that need each other stay together.
    let mut whole: Vec<Part> = Vec::new();
    for &at in &vectors {
        let mut part = body.part(at);
        let meets = |other: &Part| part.carried.intersection(&other.carried).any(|at| vectors.contains(at));
        let (others, apart): (Vec<Part>, Vec<Part>) = whole.into_iter().partition(meets);
        whole = apart;
        others.into_iter().for_each(|other| part.join(other));
        whole.push(part);
    }
    // Those that are made of the same vectors are neighbours.
    let is_vector = |step: &usize| shapes.of(body.made[*step]).lane == Lane::Vary;
    whole.sort_by_cached_key(|part| {
        let free = part.steps.iter().filter(|step| is_vector(step) && !body.depends[**step]);
        (free.copied().collect::<Vec<usize>>(), part.carried.first().copied())
    });
    let count = vectors.len().div_ceil((registers + OTHERS) / 2);
    let each = vectors.len().div_ceil(count);
    let mut parts: Vec<Part> = Vec::new();
    let mut room = 0;
    for part in whole {
        let size = part.carried.iter().filter(|at| vectors.contains(at)).count();
        match parts.last_mut() {
            Some(last) if size <= room => last.join(part),
            _ => {
                parts.push(part);
                room = each.max(size);
            }
        }
        room -= size;
    }
    // Nobody needs the others but who comes after the loop.
    let rest: Vec<Part> = (0..inner.params.len())
        .filter(|at| parts.iter().all(|part| !part.carried.contains(at)))
        .map(|at| body.part(at))
        .collect();
    rest.into_iter().for_each(|part| parts[0].join(part));
    // What is made more than once is less than what loads and stores of the others would be.
    let steps: usize = parts.iter().map(|part| part.steps.len()).sum();
    let saved = 2 * (vectors.len() - registers);
    (parts.len() > 1 && steps <= inner.body.insts.len() + saved).then_some(parts)
}

/// The body of a loop without branches.
struct Body<'k> {
    inner: &'k Loop,
    /// What the carried values become.
    next: &'k [Value],
    /// What a step makes, and whether it depends on a carried value.
    made: Vec<Value>,
    depends: Vec<bool>,
    makers: Map<Value, usize>,
    params: Map<Value, usize>,
}

impl<'k> Body<'k> {
    fn of(inner: &'k Loop) -> Option<Body<'k>> {
        let End::Continue(next) = &inner.body.end else { return None };
        let params: Map<Value, usize> = inner.params.iter().copied().zip(0..).collect();
        let (mut made, mut depends, mut makers) = (Vec::new(), Vec::new(), Map::default());
        for inst in &inner.body.insts {
            let Inst::Let(value, _) = inst else { return None };
            let mut carried = false;
            each_use(inst, &mut |used| {
                carried |= params.contains_key(&used) || makers.get(&used).is_some_and(|&maker: &usize| depends[maker]);
            });
            makers.insert(*value, made.len());
            made.push(*value);
            depends.push(carried);
        }
        Some(Body { inner, next, made, depends, makers, params })
    }

    /// All that a carried value needs.
    fn part(&self, at: usize) -> Part {
        let mut part = Part::default();
        let mut open = vec![self.inner.params[at]];
        while let Some(value) = open.pop() {
            if let Some(&at) = self.params.get(&value)
                && part.carried.insert(at)
            {
                open.push(self.next[at]);
            }
            if let Some(&step) = self.makers.get(&value)
                && part.steps.insert(step)
            {
                each_use(&self.inner.body.insts[step], &mut |used| open.push(used));
            }
        }
        part
    }
}

impl Part {
    fn join(&mut self, other: Part) {
        self.carried.extend(other.carried);
        self.steps.extend(other.steps);
    }

    /// The loop of this part. Results that one of the loops has `given` are not given by another.
    fn of(&self, inner: &Loop, values: &mut Vec<ValueInfo>, given: &mut BTreeSet<usize>) -> Loop {
        let mut names: Map<Value, Value> = Map::default();
        let mut fresh = |value: Value| {
            let name = Value(values.len() as u32);
            values.push(values[value.index()]);
            names.insert(value, name);
            name
        };
        let params = self.carried.iter().map(|&at| fresh(inner.params[at])).collect();
        let counter = inner.counter.map(|counter| Counter { value: fresh(counter.value), ..counter });
        let results = self.carried.iter().map(|&at| match given.insert(at) {
            true => inner.results[at],
            false => fresh(inner.results[at]),
        });
        let results = results.collect();
        let mut insts: Vec<Inst> = self.steps.iter().map(|&step| inner.body.insts[step].clone()).collect();
        for inst in &mut insts {
            if let Inst::Let(value, _) = inst {
                *value = fresh(*value);
            }
        }
        let name = |value: &Value| names.get(value).copied().unwrap_or(*value);
        for inst in &mut insts {
            each_use_mut(inst, &mut |used| *used = name(used));
        }
        let next = match &inner.body.end {
            End::Continue(next) => self.carried.iter().map(|&at| name(&next[at])).collect(),
            _ => Vec::new(),
        };
        let init = self.carried.iter().map(|&at| inner.init[at]).collect();
        let body = Block { insts, end: End::Continue(next) };
        Loop { counter, params, init, body, results, ..*inner }
    }
}
