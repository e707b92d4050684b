//! Private arrays become values.
//!
//! [`plan`] finds the arrays whose indices are all constant once some loops are unrolled, and says which loops those are; the
//! rewriter unrolls them. [`promote`] then turns every array whose indices are all constant into values, one for each scalar,
//! which flow through `if`s and loops as any other. [`chosen`] makes constants of places that are chosen among some. [`bits`] makes one word of the booleans of an array with other indices.

mod bits;
mod bounded;
mod chosen;
mod cost;
mod early;
mod plan;
mod promote;

use crate::kernel::walk::{access, each_inst};
use crate::kernel::{Element, Inst, Kernel, KernelMemory, Loop, Memory, Unrolling, Value};

pub(super) use self::bits::bits;
pub(super) use self::chosen::chosen;
pub(super) use self::promote::promote;

/// Steps that loops may have in all that are unrolled for arrays, where more is not wanted anyway.
const LEAST_STEPS: u32 = 4096;

/// Marks the counters of the loops to unroll for arrays of `most` scalars in all; empty when there are none. Loops that only get a counter
/// for this are changed where it is of use.
pub(super) fn plan(kernel: &mut Kernel, most: u32, unrolling: &Unrolling) -> Vec<bool> {
    let steps = unrolling.growth.max(LEAST_STEPS) as usize;
    let tables = plan::tables(kernel);
    if !tables.contains(&true) && !candidates(kernel, most, |_| true).contains(&true) {
        return Vec::new();
    }
    let before = kernel.clone();
    let counters = early::run(kernel);
    let mut wanted = plan::plan(kernel, most, steps);
    if !are_all(&counters, &wanted) {
        *kernel = before;
        wanted = plan::plan(kernel, most, steps);
    }
    let before = kernel.clone();
    let counters = bounded::run(kernel, &wanted);
    if !counters.is_empty() {
        let more = plan::plan(kernel, most, steps);
        if are_all(&counters, &more) {
            return more;
        }
        *kernel = before;
    }
    wanted
}

/// The same for more scalars, where it makes a difference and no loop that stays has to carry them.
pub(super) fn plan_straight(kernel: &mut Kernel, most: u32, straight: u32, unrolling: &Unrolling) -> Option<Vec<bool>> {
    if candidates(kernel, most, |_| true) == candidates(kernel, straight, |_| true) {
        return None;
    }
    let mut trial = kernel.clone();
    let wanted = plan(&mut trial, straight, unrolling);
    let chosen = candidates(&trial, straight, |_| true);
    let (mut loops, mut carries) = (Vec::new(), false);
    each_inst(&trial.body, &mut |inst| {
        if let Inst::Loop(inner) = inst {
            loops.push(inner);
        }
    });
    let is_wanted =
        |inner: &Loop| inner.counter.is_some_and(|counter| wanted.get(counter.value.index()) == Some(&true));
    for inner in loops.into_iter().filter(|inner| !is_wanted(inner)) {
        each_inst(&inner.body, &mut |inst| {
            let local = access(inst).map(|(address, _)| address.memory);
            carries |= matches!(local, Some(Memory::Local(local)) if chosen[local as usize]);
        });
    }
    if carries {
        return None;
    }
    *kernel = trial;
    Some(wanted)
}

/// All of some loops are to be unrolled.
fn are_all(counters: &[Value], wanted: &[bool]) -> bool {
    counters.iter().all(|counter| wanted.get(counter.index()) == Some(&true))
}

/// How many scalars an array has and how far apart they are, where a load gives what a store wrote bit by bit.
fn scalars(memory: &KernelMemory) -> Option<(u32, u32)> {
    let (element, _) = memory.element?;
    let as_computed = matches!(
        element,
        Element::Bool
            | Element::U32
            | Element::I32
            | Element::U64
            | Element::I64
            | Element::F16
            | Element::F32
            | Element::F64
    );
    let stride = element.bits() / 8;
    as_computed.then(|| (memory.size / stride, stride))
}

/// A load gives what a store wrote bit by bit, and every one is of one scalar.
pub(super) fn is_plain(memory: &KernelMemory) -> bool {
    scalars(memory).is_some() && memory.element.is_some_and(|(_, width)| width == 1)
}

/// The arrays that may become `most` values in all, small ones first.
fn candidates(kernel: &Kernel, most: u32, fits: impl Fn(usize) -> bool) -> Vec<bool> {
    let arrays = kernel.locals.iter().enumerate().filter(|(local, _)| fits(*local));
    let mut small: Vec<(u32, usize)> = arrays.filter_map(|(i, memory)| Some((scalars(memory)?.0, i))).collect();
    small.sort_unstable();
    let mut candidates = vec![false; kernel.locals.len()];
    let mut room = most;
    for (count, local) in small {
        if count > room {
            break;
        }
        room -= count;
        candidates[local] = true;
    }
    candidates
}
