//! Numbers that a counted loop changes by as much in every round: `at += plane;`. After so many rounds they are where they began and so many times as
//! much further. Made of the counter like that, an index is bounded for all rounds before the loop, and one test can do for all of its accesses.

use hashbrown::HashSet;

use super::together::is_shared;
use super::values::Values;
use crate::kernel::walk::{access, blocks_mut, defined_in, each_inst, each_operand, each_value_mut, exits, written};
use crate::kernel::{Binary, Inst, Kernel, Loop, Memory, Op, Scalar, Value};

/// Operations that what is added may be made by.
const DEEP: u32 = 6;

/// Makes such numbers of the counters of their loops.
pub(super) fn run(kernel: &mut Kernel) {
    let changed = written(&kernel.body);
    let mut values = Values::with_definitions(kernel);
    in_insts(&mut kernel.body.insts, &mut values, &changed);
    values.give_back(kernel);
}

fn in_insts(insts: &mut [Inst], values: &mut Values, changed: &HashSet<Memory>) {
    for inst in insts {
        blocks_mut(inst).for_each(|block| in_insts(&mut block.insts, values, changed));
        if let Inst::Loop(inner) = inst {
            in_loop(inner, values, changed);
        }
    }
}

fn in_loop(inner: &mut Loop, values: &mut Values, changed: &HashSet<Memory>) {
    let Some(counter) = inner.counter.filter(|counter| counter.step == 1 && is_word(values, counter.value)) else {
        return;
    };
    let steps = steps_of(inner, values, changed);
    let mut insts = Vec::new();
    for (position, op, by) in steps {
        let param = inner.params[position];
        let ty = values.scalar(param);
        let rounds = match values.number(counter.from) {
            Some(0) => counter.value,
            _ => values.binary(Binary::Sub, counter.value, counter.from, &mut insts),
        };
        let rounds = match values.scalar(rounds) == ty {
            true => rounds,
            false => values.define(ty, Op::BitCast(rounds), &mut insts),
        };
        let further = values.binary(Binary::Mul, rounds, by, &mut insts);
        let now = values.binary(op, inner.init[position], further, &mut insts);
        each_value_mut(&mut inner.body, &mut |value| {
            if *value == param {
                *value = now;
            }
        });
    }
    inner.body.insts.splice(0..0, insts);
}

/// Which of the carried numbers go on evenly, up or down, and by what.
fn steps_of(inner: &Loop, values: &Values, changed: &HashSet<Memory>) -> Vec<(usize, Binary, Value)> {
    let (mut again, mut out) = (Vec::new(), Vec::new());
    exits(&inner.body, &mut again, &mut out);
    let inside = defined_in(inner);
    let mut steps = Vec::new();
    for (position, &param) in inner.params.iter().enumerate() {
        let Some(next) = again.first().map(|all| all[position]) else { break };
        let alike = again.iter().all(|all| all[position] == next);
        let (op, by) = match values.def(next) {
            Some(&Op::Binary(op @ (Binary::Add | Binary::Sub), a, by)) if a == param => (op, by),
            Some(&Op::Binary(Binary::Add, by, b)) if b == param => (Binary::Add, by),
            _ => continue,
        };
        let shared = || is_shared(values, &|memory| !changed.contains(&memory), &|_| false, by, DEEP);
        if alike && is_word(values, param) && !inside.contains(&by) && is_place(inner, param) && shared() {
            steps.push((position, op, by));
        }
    }
    steps
}

fn is_word(values: &Values, value: Value) -> bool {
    values.ty(value).width == 1 && matches!(values.scalar(value), Scalar::U32 | Scalar::I32)
}

/// What a loop reads or writes lies where a number says.
fn is_place(inner: &Loop, number: Value) -> bool {
    let (mut made, mut place): (HashSet<Value>, bool) = ([number].into_iter().collect(), false);
    each_inst(&inner.body, &mut |inst| {
        if let Some((address, _)) = access(inst) {
            place |= address.terms.iter().any(|(index, _)| made.contains(index));
        }
        if let Inst::Let(value, op @ (Op::Binary(..) | Op::BitCast(_) | Op::Select(..))) = inst {
            each_operand(op, &mut |operand| {
                if made.contains(&operand) {
                    made.insert(*value);
                }
            });
        }
    });
    place
}
