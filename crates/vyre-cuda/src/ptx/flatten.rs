//! Branches around a few loads and stores become their guards, so that a short kernel such as `if i < n { out[i] = … }` has no
//! branch at all, and what one branch loads is under way while the next one loads too.

use std::collections::HashMap;

use vyre_foundation::kernel::{
    Binary, Block, End, Inst, Kernel, Loop, Memory, Op, Scalar, Unary, Value, ValueInfo, each_use, end_values,
};

use super::early::is_constant;

/// Steps of a branch among others that are taken whether they are needed or not.
const MOST_STEPS: usize = 24;
/// The same where what a branch loads is used at once, and so often in a loop.
const MOST_STEPS_USED: usize = 8;

/// The kernel without branches; `None` where it has none, or does more in them than compute, load and store.
pub(super) fn flatten(kernel: &Kernel) -> Option<Kernel> {
    if !kernel.body.insts.iter().any(|inst| matches!(inst, Inst::If { .. })) {
        return None;
    }
    let mut flat = Flat { kernel, values: kernel.values.clone(), insts: Vec::new(), conditions: HashMap::new() };
    flat.block(&kernel.body, None)?;
    let body = Block { insts: flat.insts, end: End::Return };
    Some(Kernel { values: flat.values, body, ..kernel.clone() })
}

/// The kernel with guards instead of its short branches that keep what they load; `None` where it has none. A branch would wait for what it
/// loads before anything behind it begins.
pub(super) fn soften(kernel: &Kernel) -> Option<Kernel> {
    let mut flat = Flat { kernel, values: kernel.values.clone(), insts: Vec::new(), conditions: HashMap::new() };
    let body = flat.softened(&kernel.body)?;
    Some(Kernel { values: flat.values, body, ..kernel.clone() })
}

/// A branch of few steps that loads from buffers and stores what it makes of it.
fn waits(then: &Block, otherwise: &Block) -> bool {
    fn count(block: &Block, steps: &mut usize, loads: &mut usize) -> bool {
        *steps += block.insts.len();
        matches!(block.end, End::Yield(_))
            && block.insts.iter().all(|inst| match inst {
                Inst::Let(_, Op::Load { address, element, .. }) => {
                    *loads += usize::from(matches!(address.memory, Memory::Buffer(_)));
                    element.bits() != 4
                }
                Inst::Let(_, op) => !op.is_across_subgroup(),
                Inst::Store { element, .. } => element.bits() != 4,
                Inst::If { then, otherwise, results, .. } => {
                    results.is_empty() && count(then, steps, loads) && count(otherwise, steps, loads)
                }
                _ => false,
            })
    }
    let (mut steps, mut loads) = (0, 0);
    count(then, &mut steps, &mut loads) && count(otherwise, &mut steps, &mut loads) && loads > 0 && steps <= MOST_STEPS
}

/// A branch of few steps that computes with what it loads from buffers, such as `if i < n { sum += data[i]; }`, or loads what is there for
/// everybody. Another one that only loads is written otherwise, see `optional.rs`.
fn waits_for_results(kernel: &Kernel, then: &Block, otherwise: &Block) -> bool {
    let (End::Yield(new), End::Yield(old)) = (&then.end, &otherwise.end) else { return false };
    let (mut loads, mut uses_one, mut plain) = (Vec::new(), false, true);
    for inst in then.insts.iter().chain(&otherwise.insts) {
        each_use(inst, &mut |value| uses_one |= loads.contains(&value));
        match inst {
            Inst::Let(value, Op::Load { address, element, .. }) if matches!(address.memory, Memory::Buffer(_)) => {
                plain &= element.bits() != 4;
                uses_one |= is_fixed(kernel, inst);
                loads.push(*value);
            }
            Inst::Let(_, op) => plain &= !op.is_across_subgroup() && !matches!(op, Op::Load { .. }),
            _ => plain = false,
        }
    }
    plain && uses_one && new.len() == old.len() && then.insts.len() + otherwise.insts.len() <= MOST_STEPS_USED
}

/// A load from a fixed place of a buffer that has one size and that nobody writes.
fn is_fixed(kernel: &Kernel, inst: &Inst) -> bool {
    let Inst::Let(value, Op::Load { address, element, guard: None }) = inst else { return false };
    let Memory::Buffer(index) = address.memory else { return false };
    let buffer = &kernel.buffers[index as usize];
    let bytes = buffer.count.map_or(0, |count| u64::from(count) * u64::from(buffer.stride));
    let bits = u64::from(element.bits()) * u64::from(kernel.values[value.index()].ty.width);
    let end = u64::from(address.offset) + bits.div_ceil(8);
    is_constant(kernel, address.memory) && address.terms.is_empty() && end <= bytes
}

struct Flat<'k> {
    kernel: &'k Kernel,
    values: Vec<ValueInfo>,
    insts: Vec<Inst>,
    /// Pairs of conditions of the block at hand, and both of them.
    conditions: HashMap<(Value, Value), Value>,
}

impl Flat<'_> {
    /// A block with guards instead of some branches; `None` where it stays as it is.
    fn softened(&mut self, block: &Block) -> Option<Block> {
        let mut changed = false;
        let outer = std::mem::take(&mut self.insts);
        let conditions = std::mem::take(&mut self.conditions);
        for inst in &block.insts {
            match inst {
                Inst::If { cond, then, otherwise, results } if results.is_empty() && waits(then, otherwise) => {
                    changed = true;
                    self.block(then, Some(*cond));
                    if !otherwise.insts.is_empty() {
                        let not = self.define(Op::Unary(Unary::Not, *cond));
                        self.block(otherwise, Some(not));
                    }
                }
                Inst::If { cond, then, otherwise, results }
                    if waits_for_results(self.kernel, then, otherwise)
                        && results.iter().all(|value| self.is_word(*value)) =>
                {
                    changed = true;
                    self.block(then, Some(*cond));
                    if !otherwise.insts.is_empty() {
                        let not = self.define(Op::Unary(Unary::Not, *cond));
                        self.block(otherwise, Some(not));
                    }
                    let ways = end_values(&then.end).iter().zip(end_values(&otherwise.end));
                    let selected = results.iter().zip(ways);
                    self.insts
                        .extend(selected.map(|(result, (yes, no))| Inst::Let(*result, Op::Select(*cond, *yes, *no))));
                }
                Inst::If { cond, then, otherwise, results } => {
                    let mut part = |block: &Block| {
                        let softened = self.softened(block);
                        changed |= softened.is_some();
                        Box::new(softened.unwrap_or_else(|| block.clone()))
                    };
                    let (then, otherwise) = (part(then), part(otherwise));
                    self.insts.push(Inst::If { cond: *cond, then, otherwise, results: results.clone() });
                }
                Inst::Loop(inner) => {
                    let body = self.softened(&inner.body);
                    changed |= body.is_some();
                    self.insts.push(match body {
                        Some(body) => Inst::Loop(Box::new(Loop { body, ..(**inner).clone() })),
                        None => inst.clone(),
                    });
                }
                _ => self.insts.push(inst.clone()),
            }
        }
        self.conditions = conditions;
        let insts = std::mem::replace(&mut self.insts, outer);
        changed.then(|| Block { insts, end: block.end.clone() })
    }

    /// Appends a block whose steps count only where the guard holds, and gives the guard of what follows.
    fn block(&mut self, block: &Block, guard: Option<Value>) -> Option<Option<Value>> {
        let mut now = guard;
        for inst in &block.insts {
            match inst {
                // What is there for everybody may as well be read by those who go another way.
                Inst::Let(..) if is_fixed(self.kernel, inst) => self.insts.push(inst.clone()),
                Inst::Let(value, Op::Load { address, element, guard }) => {
                    let guard = self.both(now, *guard);
                    let load = Op::Load { address: address.clone(), element: *element, guard };
                    self.insts.push(Inst::Let(*value, load));
                }
                Inst::Let(_, op) if op.is_across_subgroup() => return None,
                Inst::Let(..) => self.insts.push(inst.clone()),
                Inst::Store { address, element, value, guard } => {
                    let guard = self.both(now, *guard);
                    self.insts.push(Inst::Store { address: address.clone(), element: *element, value: *value, guard });
                }
                Inst::If { cond, then, otherwise, results } if results.is_empty() => {
                    let not = self.define(Op::Unary(Unary::Not, *cond));
                    let (yes, no) = (self.both(now, Some(*cond)), self.both(now, Some(not)));
                    self.block(then, yes)?;
                    self.block(otherwise, no)?;
                    match (goes_on(then)?, goes_on(otherwise)?) {
                        (true, true) => {}
                        (true, false) => now = yes,
                        (false, true) => now = no,
                        // Nothing follows.
                        (false, false) => return Some(now),
                    }
                }
                _ => return None,
            }
        }
        Some(now)
    }

    fn is_word(&self, value: Value) -> bool {
        let ty = self.values[value.index()].ty;
        ty.width == 1 && matches!(ty.scalar, Scalar::F32 | Scalar::U32 | Scalar::I32)
    }

    fn both(&mut self, a: Option<Value>, b: Option<Value>) -> Option<Value> {
        match (a, b) {
            // The fields of a structure are stored under one condition, which is made once, so that it is seen to be one.
            (Some(a), Some(b)) => Some(match self.conditions.get(&(a, b)) {
                Some(both) => *both,
                None => {
                    let both = self.define(Op::Binary(Binary::And, a, b));
                    self.conditions.insert((a, b), both);
                    both
                }
            }),
            (a, b) => a.or(b),
        }
    }

    fn define(&mut self, op: Op) -> Value {
        let value = Value(self.values.len() as u32);
        self.values.push(ValueInfo { ty: Scalar::Bool.into(), uniform: false });
        self.insts.push(Inst::Let(value, op));
        value
    }
}

/// Whether control goes on after the block; `None` where it leaves otherwise than by ending the invocation, or ends it in an inner
/// branch, which the guard of what follows would have to know.
fn goes_on(block: &Block) -> Option<bool> {
    let leaves = |inst: &Inst| match inst {
        Inst::If { then, otherwise, .. } => goes_on(then) != Some(true) || goes_on(otherwise) != Some(true),
        _ => false,
    };
    match block.end {
        End::Yield(_) if !block.insts.iter().any(leaves) => Some(true),
        End::Return => Some(false),
        End::Unreachable => Some(false),
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use vyre_conform::{Case, Expectation, GenOptions, Rules, generate, run_reference, tests};
    use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
    use vyre_foundation::kernel::{Approximations, Interpret, Options, interpret, lower, verify};
    use vyre_foundation::launch::{LaunchRequest, plan};

    use super::*;
    use crate::ptx::early::early;
    use crate::ptx::readied;

    /// Runs the kernel without its branches, where it can do without, and compares with the reference.
    fn check(name: &str, case: &Case) -> bool {
        let early = |kernel: &Kernel| early(kernel).map(|(kernel, _)| kernel);
        let readied = |kernel: &Kernel| readied(kernel).map(|(kernel, _)| kernel);
        let [flat, ..] = [flatten, soften, early, readied].map(|change| check_with(change, name, case, 1));
        flat
    }

    /// Runs what becomes of the kernel, whose invocations do the work of so many along x, and compares with the reference.
    pub(in crate::ptx) fn check_with(
        change: fn(&Kernel) -> Option<Kernel>,
        name: &str,
        case: &Case,
        neighbours: u32,
    ) -> bool {
        let program = case.program.validate().expect("valid");
        let lowering = crate::ptx::lowering(Options::default());
        // The interpreter has no rough instructions.
        let approximations = Approximations::Polynomials;
        let mut options = Options { specialization: case.specialization.clone(), approximations, ..lowering };
        let [x, y, z] = lower(&program, &options).expect("lowers").workgroup_size;
        if neighbours > 1 {
            options.workgroup_size = Some([x / neighbours, y, z]);
            if !x.is_multiple_of(neighbours) {
                return false;
            }
        }
        let Ok(kernel) = lower(&program, &options) else { return false };
        let Some(flat) = change(&kernel) else { return false };
        verify(&flat).unwrap_or_else(|problem| panic!("{name}: {problem}\n{flat}"));
        let input_bytes: Vec<u64> = case.inputs.iter().map(|input| input.len() as u64).collect();
        let request = LaunchRequest {
            input_bytes: &input_bytes,
            specialization: Some(&case.specialization),
            grid: case.grid,
            ..LaunchRequest::default()
        };
        let sizes = plan(&program, &request).expect("a plan");
        let order = program.binding_order();
        let kinds: Vec<_> = order.iter().map(|&index| program.buffers()[index].kind).collect();
        let mut inputs = case.inputs.iter();
        let mut buffers: Vec<Vec<u8>> = kinds
            .iter()
            .zip(&sizes.buffer_bytes)
            .map(|(kind, &bytes)| match kind.is_input() {
                true => inputs.next().cloned().unwrap_or_default(),
                false => vec![0; bytes as usize],
            })
            .collect();
        let how = Interpret { grid: sizes.grid, subgroup_size: 32, budget: 100_000_000, noise: None };
        interpret(&flat, &mut buffers, &how).expect("runs");
        let results: Vec<_> = kinds.iter().zip(buffers).filter(|(kind, _)| kind.is_result()).map(|(_, b)| b).collect();
        let expected = run_reference(case).expect("the reference runs");
        if let Err(difference) = vyre_conform::compare(&expected, &results, &case.program, &Rules::exact()) {
            panic!("{name}: {difference}\n{flat}");
        }
        true
    }

    #[test]
    fn branches_become_guards() {
        let (i, x) = (|| Expr::global_id(0), || Expr::var("x"));
        let body = vec![
            Node::if_then(i().ge(Expr::len("out")), vec![Node::Return(None)]),
            Node::let_bind("x", Expr::load("a", i())),
            Node::if_then(
                x().lt(5u32),
                vec![
                    Node::store("out", i(), x() + 1u32),
                    Node::if_then(x().eq(3u32), vec![Node::store("out", i() + 1u32, x())]),
                    Node::Return(None),
                ],
            ),
            Node::if_then(x().gt(7u32), vec![Node::store("out", i(), x() * 2u32)]),
            Node::store("other", i(), x()),
        ];
        let words = |values: [u32; 10]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let program = Program::wrapped(
            vec![
                BufferDecl::read("a", 0, DataType::U32).with_count(10),
                BufferDecl::read_write("out", 1, DataType::U32).with_count(10),
                BufferDecl::output("other", 2, DataType::U32).with_count(10),
            ],
            [8, 1, 1],
            body,
        );
        let mut case = Case::new(program, vec![words([9, 0, 8, 1, 7, 2, 6, 3, 5, 4]), words([77; 10])]);
        case.grid = Some([2, 1, 1]);
        assert!(check("returns", &case));
        let suite = tests(&Rules::exact());
        let suite = suite.iter().filter(|test| !matches!(test.expectation, Expectation::Error));
        let flat = suite.filter(|test| check(&test.name, &test.case)).count();
        assert!(flat >= 5, "{flat} programs of the suite have branches that can become guards");
        for seed in 0..100 {
            check(&format!("seed {seed}"), &generate(seed, &GenOptions::default()));
        }
    }
}
