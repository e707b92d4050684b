//! What is told of indices: which several buffers have in common, as in `a[i] + b[i]`, and which are loaded, as in `a[b[i]]`.
//!
//! Of `mad.wide` with an index of two buffers the assembler multiplies once, in two instructions, and adds in two more for each buffer. Of a
//! product and a sum it makes one instruction each. That needs the buffers' addresses in registers, which a kernel with one such index, or
//! none, waits for longer than it gains.

use std::collections::{HashMap, HashSet};

use vyre_foundation::kernel::{Inst, Kernel, Memory, Op, Value, each_inst};

/// Indices that several buffers have before addresses are written for them.
const FEWEST: usize = 2;

/// An index and what it is multiplied by.
type Term = (Value, u32);

/// The terms of the addresses of several buffers; none where there are few.
pub(super) fn shared(kernel: &Kernel) -> HashSet<Term> {
    let mut users: HashMap<Term, HashSet<u32>> = HashMap::new();
    each_inst(&kernel.body, &mut |inst| {
        let (Inst::Let(_, Op::Load { address, .. }) | Inst::Store { address, .. } | Inst::Atomic { address, .. }) =
            inst
        else {
            return;
        };
        // The others are added to what is an address of one buffer already.
        if let (Memory::Buffer(index), Some(term)) = (address.memory, address.terms.first()) {
            users.entry(*term).or_default().insert(index);
        }
    });
    let shared = users.into_iter().filter(|(_, buffers)| buffers.len() > 1).map(|(term, _)| term);
    Some(shared.collect::<HashSet<Term>>()).filter(|shared| shared.len() >= FEWEST).unwrap_or_default()
}

/// What each invocation loads for itself.
pub(super) fn loaded(kernel: &Kernel) -> HashSet<Value> {
    let mut loaded = HashSet::new();
    each_inst(&kernel.body, &mut |inst| match inst {
        Inst::Let(value, Op::Load { .. }) if !kernel.values[value.index()].uniform => {
            loaded.insert(*value);
        }
        _ => {}
    });
    loaded
}
