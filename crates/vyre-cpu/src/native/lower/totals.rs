//! Buffers that a kernel does nothing with but add to them. Of small ones, what the workgroups of one call add is summed up in memory of
//! the thread, where nobody waits for anybody, and added to the buffer at the end. Of others the thread may be given a copy to add to,
//! and whoever runs the launch puts the copies together: the code then needs no lock either.

use vyre_foundation::ir::AtomicOp;
use vyre_foundation::kernel::{Address, Block, Element, Inst, Kernel, Memory, Op};

use super::super::asm::{Alu, Cond};
use super::super::context;
use super::super::mir::{At, GSrc, M};
use super::Lower;

/// Words of the largest buffer that is worth clearing and looking through for a part of a launch.
const MOST_WORDS: u32 = 1 << 10;

/// Bytes of the sums of each buffer that has them.
pub(super) fn sizes(kernel: &Kernel) -> Vec<Option<u32>> {
    let small = |count: &u32| *count <= MOST_WORDS;
    let bytes = |count: u32| count * 4;
    let only_added = only_added(kernel).into_iter().zip(&kernel.buffers);
    only_added.map(|(only, buffer)| buffer.count.filter(small).filter(|_| only).map(bytes)).collect()
}

/// The kernel does nothing with these buffers but add to their words.
pub(super) fn only_added(kernel: &Kernel) -> Vec<bool> {
    let mut only: Vec<bool> = (kernel.buffers.iter())
        .map(|buffer| {
            let words = matches!(buffer.element, Some((Element::U32 | Element::I32, 1)));
            words && buffer.atomic && buffer.stride == 4 && buffer.header == 0
        })
        .collect();
    if only.contains(&true) {
        leave_out(&kernel.body, &mut only);
    }
    only
}

/// Takes out the buffers that are used in another way.
fn leave_out(block: &Block, only: &mut [bool]) {
    for inst in &block.insts {
        match inst {
            Inst::Atomic { op: AtomicOp::Add | AtomicOp::Sub, result: None, .. } => {}
            Inst::Let(_, Op::Load { address, .. }) | Inst::Store { address, .. } | Inst::Atomic { address, .. } => {
                if let Memory::Buffer(index) = address.memory {
                    only[index as usize] = false;
                }
            }
            Inst::If { then, otherwise, .. } => {
                leave_out(then, only);
                leave_out(otherwise, only);
            }
            Inst::Loop(inner) => leave_out(&inner.body, only),
            _ => {}
        }
    }
}

impl<'k> Lower<'k> {
    /// Where the thread's own words of a memory begin that atomics work on without locking.
    pub(super) fn own_words(&self, address: &Address) -> Option<u32> {
        match address.memory {
            Memory::Shared(index) => Some(self.frame.shared[index as usize]),
            Memory::Buffer(index) => self.frame.totals[index as usize].map(|(at, _)| at),
            Memory::Local(_) => None,
        }
    }

    pub(super) fn clear_totals(&mut self) {
        for (at, bytes) in self.frame.totals.clone().into_iter().flatten() {
            self.clear(context::SHARED, at as i32, bytes.next_multiple_of(64));
        }
    }

    /// Adds the sums to their buffers, but for those of which nothing came.
    pub(super) fn add_totals(&mut self) {
        for (index, totals) in self.frame.totals.clone().into_iter().enumerate() {
            let (Some((first, bytes)), Some(buffer)) = (totals, self.bases.buffers[index]) else { continue };
            let (place, word) = (self.general(), self.general());
            let (again, next) = (self.label(), self.label());
            self.push(M::Imm { dst: place, value: 0 });
            self.bind(again);
            let from = At { base: self.bases.shared, index: place, scale: 1, disp: first as i32 };
            self.push(M::Load { bytes: 4, signed: false, dst: word, at: from });
            self.push(M::Test { wide: false, a: word, b: word });
            self.push(M::JumpIf(Cond::Equal, next));
            let at = At { base: buffer, index: place, scale: 1, disp: 0 };
            self.push(M::Update { op: Alu::Add, at, b: GSrc::R(word), whole: true });
            self.bind(next);
            self.push(M::Alu { op: Alu::Add, wide: false, dst: place, a: place, b: GSrc::Imm(4) });
            self.push(M::Cmp { wide: false, a: place, b: GSrc::Imm(bytes as i32) });
            self.push(M::JumpIf(Cond::Below, again));
        }
    }
}
