//! Which loops have to be unrolled so that private arrays have constant indices only.

use super::cost::Cost;
use super::{candidates, scalars};
use crate::kernel::passes::straight;
use crate::kernel::walk::{access, each_inst, each_operand};
use crate::kernel::{Address, Block, End, Inst, Kernel, Loop, Memory, Op, Value};

/// Words of a table that are looked at.
const MOST_OF_A_TABLE: u32 = 256;

/// How often the plan is made smaller before it is given up.
const ATTEMPTS: usize = 8;

/// Marks the counters of the loops to unroll, to so many steps in all, for arrays of `most` scalars in all; empty when there are none.
pub(super) fn plan(kernel: &Kernel, most: u32, steps: usize) -> Vec<bool> {
    let sources = sources(kernel);
    let tables = tables_of(kernel, &sources);
    let mut candidates = candidates(kernel, most, |local| !tables[local]);
    candidates.iter_mut().zip(&tables).for_each(|(candidate, table)| *candidate |= table);
    if !candidates.contains(&true) {
        return Vec::new();
    }
    let mut excluded = Vec::new();
    for _ in 0..ATTEMPTS {
        let fixed = Fixed::of(kernel, &excluded, &tables);
        let mut ready = candidates.clone();
        let mut accesses: Vec<&Address> = Vec::new();
        each_local(kernel, &mut |local, address| {
            accesses.push(address);
            ready[local] &= address.terms.iter().all(|(value, _)| fixed[value.index()]);
        });
        let mut wanted = vec![false; kernel.values.len()];
        let mut open: Vec<Value> = accesses
            .iter()
            .filter(|address| matches!(address.memory, Memory::Local(local) if ready[local as usize]))
            .flat_map(|address| address.terms.iter().map(|(value, _)| *value))
            .collect();
        let mut seen = vec![false; kernel.values.len()];
        let mut any = false;
        while let Some(value) = open.pop() {
            if std::mem::replace(&mut seen[value.index()], true) {
                continue;
            }
            match sources[value.index()] {
                Source::Other => {}
                Source::Op(op) => each_operand(op, &mut |operand| open.push(operand)),
                Source::If(cond, values) => open.extend(std::iter::once(cond).chain(values.into_iter().flatten())),
                Source::Loop(inner, carried) => {
                    if let Some(counter) = &inner.counter {
                        wanted[counter.value.index()] = true;
                        any = true;
                        open.extend([counter.from, counter.to]);
                    }
                    if let Some(i) = carried {
                        open.push(inner.init[i]);
                        if let End::Continue(values) = &inner.body.end {
                            open.push(values[i]);
                        }
                    }
                }
            }
        }
        if !any {
            return Vec::new();
        }
        match Cost::new(kernel, &wanted, steps).too_large(&kernel.body) {
            None => return wanted,
            Some(counter) => excluded.push(counter),
        }
    }
    Vec::new()
}

fn each_local<'a>(kernel: &'a Kernel, visit: &mut impl FnMut(usize, &'a Address)) {
    each_inst(&kernel.body, &mut |inst| {
        if let Some((address, _)) = access(inst)
            && let Memory::Local(local) = address.memory
        {
            visit(local as usize, address);
        }
    });
}

/// The arrays to whose places only constants are stored, once: what is loaded from them at a constant place is constant, too, and they
/// take no room as values.
pub(super) fn tables(kernel: &Kernel) -> Vec<bool> {
    tables_of(kernel, &sources(kernel))
}

fn tables_of(kernel: &Kernel, sources: &[Source<'_>]) -> Vec<bool> {
    let is_small = |memory| scalars(memory).is_some_and(|(count, _)| count <= MOST_OF_A_TABLE);
    let mut tables: Vec<bool> = kernel.locals.iter().map(is_small).collect();
    let is_constant = |value: Value| matches!(sources[value.index()], Source::Op(Op::Const(_)));
    let mut places: Vec<&Address> = Vec::new();
    each_inst(&kernel.body, &mut |inst| match inst {
        Inst::Store { address, value, guard, .. } => {
            let Memory::Local(local) = address.memory else { return };
            let constant = is_constant(*value) && address.terms.iter().all(|(term, _)| is_constant(*term));
            tables[local as usize] &= constant && guard.is_none() && !places.contains(&address);
            if tables[local as usize] {
                places.push(address);
            }
        }
        Inst::Atomic { address: Address { memory: Memory::Local(local), .. }, .. } => tables[*local as usize] = false,
        _ => {}
    });
    tables
}

/// Where a value comes from.
#[derive(Clone, Copy)]
enum Source<'a> {
    Other,
    Op(&'a Op),
    /// The condition and what the two ways give.
    If(Value, [Option<Value>; 2]),
    /// The counter, or the carried value at a position.
    Loop(&'a Loop, Option<usize>),
}

fn sources(kernel: &Kernel) -> Vec<Source<'_>> {
    let mut sources = vec![Source::Other; kernel.values.len()];
    each_inst(&kernel.body, &mut |inst| match inst {
        Inst::Let(value, op) => sources[value.index()] = Source::Op(op),
        Inst::If { cond, then, otherwise, results } => {
            for (i, result) in results.iter().enumerate() {
                let way = |block: &Block| match &block.end {
                    End::Yield(values) => Some(values[i]),
                    _ => None,
                };
                sources[result.index()] = Source::If(*cond, [way(then), way(otherwise)]);
            }
        }
        Inst::Loop(inner) => {
            if let Some(counter) = &inner.counter {
                sources[counter.value.index()] = Source::Loop(inner, None);
            }
            for (i, (param, result)) in inner.params.iter().zip(&inner.results).enumerate() {
                sources[param.index()] = Source::Loop(inner, Some(i));
                sources[result.index()] = Source::Loop(inner, Some(i));
            }
        }
        _ => {}
    });
    sources
}

/// Finds the values that are constants once every loop with constant bounds is unrolled.
///
/// Everything is taken for constant until something shows that it is not, because a carried value is constant when what
/// a round makes of it is; each walk can only take away, and another one is needed only where it did from a carried value, which
/// was looked at before that.
struct Fixed<'a> {
    fixed: Vec<bool>,
    /// Counters of loops that stay.
    excluded: &'a [Value],
    tables: &'a [bool],
    changed: bool,
}

impl Fixed<'_> {
    fn of(kernel: &Kernel, excluded: &[Value], tables: &[bool]) -> Vec<bool> {
        let mut fixed = Fixed { fixed: vec![true; kernel.values.len()], excluded, tables, changed: true };
        while std::mem::take(&mut fixed.changed) {
            fixed.block(&kernel.body);
        }
        fixed.fixed
    }

    fn set(&mut self, value: Value, fixed: bool) {
        self.fixed[value.index()] &= fixed;
    }

    fn is(&self, value: Value) -> bool {
        self.fixed[value.index()]
    }

    fn block(&mut self, block: &Block) {
        for inst in &block.insts {
            match inst {
                Inst::Let(value, op) => {
                    let mut fixed = match op {
                        Op::Load { address: Address { memory: Memory::Local(local), .. }, .. } => {
                            self.tables[*local as usize]
                        }
                        Op::Const(_)
                        | Op::Unary(..)
                        | Op::Binary(..)
                        | Op::Fma(..)
                        | Op::Select(..)
                        | Op::Cast(_)
                        | Op::BitCast(_) => true,
                        _ => false,
                    };
                    each_operand(op, &mut |operand| fixed &= self.is(operand));
                    self.set(*value, fixed);
                }
                Inst::Atomic { result, .. } => result.iter().for_each(|result| self.set(*result, false)),
                Inst::If { cond, then, otherwise, results } => {
                    self.block(then);
                    self.block(otherwise);
                    for (i, result) in results.iter().enumerate() {
                        let way = |block: &Block| match &block.end {
                            End::Yield(values) => self.is(values[i]),
                            _ => false,
                        };
                        let fixed = self.is(*cond) && way(then) && way(otherwise);
                        self.set(*result, fixed);
                    }
                }
                Inst::Loop(inner) => self.repeat(inner),
                Inst::Store { .. } | Inst::Barrier(_) => {}
            }
        }
    }

    fn repeat(&mut self, inner: &Loop) {
        let unrolls = inner.counter.is_some_and(|counter| {
            self.is(counter.from) && self.is(counter.to) && !self.excluded.contains(&counter.value)
        }) && straight(&inner.body);
        if let Some(counter) = &inner.counter {
            self.set(counter.value, unrolls);
        }
        for (i, param) in inner.params.iter().enumerate() {
            let fixed = unrolls && self.is(inner.init[i]);
            self.set(*param, fixed);
        }
        self.block(&inner.body);
        for (i, param) in inner.params.iter().enumerate() {
            let carried = match &inner.body.end {
                End::Continue(values) => self.is(values[i]),
                _ => false,
            };
            self.changed |= self.is(*param) && !carried;
            self.set(*param, carried);
            let fixed = self.is(*param);
            self.set(inner.results[i], fixed);
        }
    }
}
