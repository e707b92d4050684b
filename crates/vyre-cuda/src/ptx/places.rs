//! Places in workgroup memory that are in registers already.
//!
//! The assembler makes an address again at each access that stands in a branch, down to where workgroup memory begins, which it asks the
//! processor for: four instructions and some twenty cycles, in each round of a loop. So a place has one register from where it is first needed to the
//! end of the block, and a loop finds those that no round changes in registers that were written before it.

use std::collections::{HashMap, HashSet};

use vyre_foundation::kernel::{Address, Inst, Loop, Memory, Op, Value, each_inst};

use super::Emitter;

/// Places that are made before a loop. More of them would fill the registers that its rounds need.
const MOST_BEFORE: usize = 8;

/// Terms that are added to where a workgroup memory begins.
type Sum = (u32, Vec<(Value, u32)>);

/// The registers of sums, and in which order they came.
#[derive(Default)]
pub(super) struct Places {
    registers: HashMap<Sum, String>,
    order: Vec<Sum>,
}

impl Places {
    pub(super) fn register(&self, sum: &Sum) -> Option<String> {
        self.registers.get(sum).cloned()
    }

    pub(super) fn keep(&mut self, sum: Sum, register: &str) {
        self.order.push(sum.clone());
        self.registers.insert(sum, register.to_owned());
    }

    /// How many are known now, to come back to at the end of a block.
    pub(super) fn count(&self) -> usize {
        self.order.len()
    }

    /// Forgets those that came later.
    pub(super) fn forget_from(&mut self, count: usize) {
        for sum in self.order.drain(count..) {
            self.registers.remove(&sum);
        }
    }
}

impl Emitter<'_> {
    /// Makes the places that no round of a loop changes.
    pub(super) fn places_before(&mut self, body: &Loop) {
        let mut inside: HashSet<Value> = body.params.iter().copied().collect();
        inside.extend(body.counter.iter().map(|counter| counter.value));
        let mut places: Vec<&Address> = Vec::new();
        each_inst(&body.body, &mut |inst| {
            match inst {
                Inst::Let(value, _) => _ = inside.insert(*value),
                Inst::Atomic { result, .. } => inside.extend(result),
                Inst::If { results, .. } => inside.extend(results),
                Inst::Loop(inner) => {
                    inside.extend(inner.params.iter().chain(&inner.results));
                    inside.extend(inner.counter.iter().map(|counter| counter.value));
                }
                _ => {}
            }
            if let Inst::Let(_, Op::Load { address, .. }) | Inst::Store { address, .. } | Inst::Atomic { address, .. } =
                inst
                && matches!(address.memory, Memory::Shared(_))
                && !address.terms.is_empty()
                && !places.iter().any(|place| place.memory == address.memory && place.terms == address.terms)
            {
                places.push(address);
            }
        });
        places.retain(|place| !place.terms.iter().any(|(term, _)| inside.contains(term)));
        for place in places.into_iter().take(MOST_BEFORE) {
            self.address(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use vyre_foundation::kernel::{Options, lower};
    use vyre_wgsl::{ImportOptions, import};

    use crate::ptx::{Target, emit, lowering};

    fn text(body: &str) -> String {
        let source = format!(
            "@group(0) @binding(0) var<storage, read_write> o: array<f32>;
             var<workgroup> row: array<f32, 65>;
             var<workgroup> other: array<f32, 64>;
             @compute @workgroup_size(64) fn main(@builtin(local_invocation_index) t: u32) {{
                 {body}
             }}"
        );
        let program = import(&source, &ImportOptions::default()).expect("imports");
        let kernel = lower(&program.validate().expect("valid"), &lowering(Options::default())).expect("lowers");
        emit(&kernel, Target { sm: 90, interruptible: false }).expect("text").text
    }

    #[test]
    fn a_place_is_made_once_and_before_the_rounds_that_need_it() {
        let text = text(
            "row[t] = f32(t);
             workgroupBarrier();
             for (var i = 0u; i < 1000u; i++) {
                 var x = 0.0;
                 if (t + i < 700u) { x = row[t] * 0.5 + row[t + 1u]; }
                 workgroupBarrier();
                 if (t + i < 700u) { row[t] = x; other[t] = x; }
                 workgroupBarrier();
             }
             o[t] = row[t] + other[t];",
        );
        // Where each memory begins is asked for once.
        assert_eq!(text.matches("mov.u32 %shared").count(), 2, "{text}");
        assert_eq!(text.matches(", 4, %shared0").count(), 1, "{text}");
        // The loop does not access the other one before its first barrier, but the place is there before its first round. Behind the loop, which
        // may have no rounds, it is made again.
        let (before, rounds) = text.split_once("\tld.shared").expect("a load in the loop");
        assert_eq!([before, rounds].map(|text| text.matches(", 4, %shared1").count()), [1, 1], "{text}");
    }
}
