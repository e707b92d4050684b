//! What is told of indices: for which of them addresses are written as a product and a sum, and which are loaded, as in `a[b[i]]`.
//!
//! Of `mad.wide` the assembler makes two instructions, and multiplies once for several buffers with the same index, as in `a[i] + b[i]`, but
//! then adds in two more for each of them. Of a product and a sum it makes one instruction. That needs the buffer's address in registers, which
//! a kernel waits for longer than it gains, unless it has several such indices, or accesses the buffer in the rounds of a loop.

use std::collections::{HashMap, HashSet};

use vyre_foundation::kernel::{Address, Block, Inst, Kernel, Memory, Op, Value, each_inst};

/// Indices that several buffers have before addresses are written for them.
const FEWEST: usize = 2;

/// An index and what it is multiplied by.
type Term = (Value, u32);

/// The terms of addresses that are written as a product and a sum.
pub(super) fn apart(kernel: &Kernel) -> HashSet<Term> {
    let mut apart = shared(kernel);
    changing(&kernel.body, None, &mut apart);
    apart
}

/// The terms of the addresses of several buffers; none where there are few.
fn shared(kernel: &Kernel) -> HashSet<Term> {
    let mut users: HashMap<Term, HashSet<u32>> = HashMap::new();
    each_inst(&kernel.body, &mut |inst| {
        // The others are added to what is an address of one buffer already.
        if let Some((address, index)) = buffer(inst)
            && let Some(term) = address.terms.first()
        {
            users.entry(*term).or_default().insert(index);
        }
    });
    let shared = users.into_iter().filter(|(_, buffers)| buffers.len() > 1).map(|(term, _)| term);
    Some(shared.collect::<HashSet<Term>>()).filter(|shared| shared.len() >= FEWEST).unwrap_or_default()
}

/// Adds the terms that are another number in each round of the innermost loop around them. `own` is what this loop has made so far.
fn changing(block: &Block, mut own: Option<&mut HashSet<Value>>, apart: &mut HashSet<Term>) {
    for inst in &block.insts {
        if let (Some(own), Some((address, _))) = (&own, buffer(inst)) {
            apart.extend(address.terms.iter().filter(|(index, _)| own.contains(index)));
        }
        let made = match inst {
            Inst::Let(value, _) => std::slice::from_ref(value),
            Inst::Atomic { result, .. } => result.as_slice(),
            Inst::If { then, otherwise, results, .. } => {
                changing(then, own.as_deref_mut(), apart);
                changing(otherwise, own.as_deref_mut(), apart);
                results
            }
            Inst::Loop(inner) => {
                let counter = inner.counter.iter().map(|counter| counter.value);
                let mut of_round = inner.params.iter().copied().chain(counter).collect();
                changing(&inner.body, Some(&mut of_round), apart);
                &inner.results
            }
            _ => &[],
        };
        if let Some(own) = &mut own {
            own.extend(made);
        }
    }
}

/// Where a step accesses a buffer, and which one.
fn buffer(inst: &Inst) -> Option<(&Address, u32)> {
    let (Inst::Let(_, Op::Load { address, .. }) | Inst::Store { address, .. } | Inst::Atomic { address, .. }) = inst
    else {
        return None;
    };
    if let Memory::Buffer(index) = address.memory { Some((address, index)) } else { None }
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

#[cfg(test)]
mod tests {
    use vyre_foundation::kernel::{Options, lower};
    use vyre_wgsl::{ImportOptions, import};

    use crate::ptx::{Target, emit, lowering};

    fn text(body: &str) -> String {
        let source = format!(
            "@group(0) @binding(0) var<storage, read> a: array<f32>;
             @group(0) @binding(1) var<storage, read> names: array<u32>;
             @group(0) @binding(2) var<storage, read_write> o: array<f32>;
             @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3u) {{
                 {body}
             }}"
        );
        let program = import(&source, &ImportOptions::default()).expect("imports");
        let kernel = lower(&program.validate().expect("valid"), &lowering(Options::default())).expect("lowers");
        emit(&kernel, Target { sm: 90, interruptible: false }).expect("text").text
    }

    #[test]
    fn rounds_multiply_and_add_apart() {
        let rounds = text(
            "var s = 0.0; for (var i = 0u; i < names[0]; i++) { s += a[names[i + 1u] * 64u + id.x]; } o[id.x] = s;",
        );
        assert!(rounds.matches("mul.wide.u32").count() >= 2, "{rounds}");
        // What is stored once, behind the loop, is not worth registers.
        assert_eq!(rounds.matches("mad.wide.u32").count(), 1, "{rounds}");
    }

    #[test]
    fn one_access_alone_is_one_instruction_of_the_text() {
        let once = text("o[id.x] = o[id.x] + 1.0;");
        assert!(!once.contains("mul.wide.u32"), "{once}");
    }
}
