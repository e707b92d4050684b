//! Stores that go past the caches.
//!
//! A store brings its cache line first, though all of it will be written, and pushes out another. Where results are larger than the caches
//! it pays to write whole lines to memory at once. The launch says whether it does, because only then sizes are known; code for both is made of
//! short kernels that write whole vectors side by side.
//!
//! Such an instruction needs its alignment. Each block tests the places that it will write before it writes any; a row begins with
//! a few single lanes so that the blocks behind them are aligned.

use vyre_foundation::ir::Builtin;
use vyre_foundation::kernel::{Address, Inst, Kernel, Memory, Op};

use super::super::asm::{Alu, Cond, Label, Shift, VOp};
use super::super::context;
use super::super::isa::Isa;
use super::super::mir::{At, GSrc, M, R};
use super::super::shape::{Lane, takes_places_apart};
use super::super::{ops, visit};
use super::Lower;
use super::active::Component;
use super::assume::Plan;
use super::memory::Place;

/// Steps of a kernel that may wait for memory more than for its arithmetic.
const MOST_STEPS: usize = 128;

/// What is tested of places: the same registers, at the same distance from an aligned place.
type Aligned = (R, R, u8, i32);

/// Buffers that a kernel writes and does nothing else with; none where it is too long, or tells other workgroups what it has written.
fn only_written(kernel: &Kernel, isa: Isa) -> Vec<bool> {
    let mut written = vec![false; kernel.buffers.len()];
    let (mut other, mut steps, mut plain) = (written.clone(), 0, isa != Isa::Simd128 && !kernel.has_barrier);
    visit(&kernel.body, &mut |inst| {
        steps += 1;
        match inst {
            Inst::Store { address, .. } => mark(&mut written, address),
            Inst::Let(_, Op::Load { address, .. }) => mark(&mut other, address),
            Inst::Atomic { .. } | Inst::Loop(_) | Inst::Barrier(_) => plain = false,
            _ => {}
        }
    });
    let plain = plain && steps <= MOST_STEPS;
    written.iter().zip(other).map(|(&written, other)| plain && written && !other).collect()
}

fn mark(buffers: &mut [bool], address: &Address) {
    if let Memory::Buffer(index) = address.memory {
        buffers[index as usize] = true;
    }
}

#[derive(Default)]
pub(super) struct Streams {
    /// Places that are known to be aligned.
    pub(super) aligned: Vec<Aligned>,
    /// Buffers that are written past the caches where the launch says so, and bytes of each invocation.
    pub(super) written: Vec<(u32, u32)>,
}

impl<'k> Lower<'k> {
    /// What a block takes as settled that writes past the caches; nothing where no store can.
    pub(super) fn plan_streams(&self) -> Plan<'k> {
        let buffers = only_written(self.facts.kernel, self.facts.isa);
        if !buffers.contains(&true) || self.gathers_from_buffers() {
            return Plan::default();
        }
        let plan = self.plan_of(&|memory| matches!(memory, Memory::Buffer(index) if buffers[index as usize]));
        if plan.streams.is_empty() { Plan::default() } else { plan }
    }

    /// Lanes load from places of their own. The lines that this takes push out those of results before they are whole.
    fn gathers_from_buffers(&self) -> bool {
        let mut gathers = false;
        visit(&self.facts.kernel.body, &mut |inst| {
            let Inst::Let(_, Op::Load { address, .. }) = inst else { return };
            let apart = address.terms.iter().any(|&(index, _)| !self.is_scalar(index));
            gathers |= apart && matches!(address.memory, Memory::Buffer(_));
        });
        gathers
    }

    /// How many bytes each lane is behind the one before; `None` where that is not the same for all.
    pub(super) fn step_of(&self, address: &Address) -> Option<u32> {
        let step = address.terms.iter().try_fold(0, |sum: i64, &(index, stride)| match self.shape_of(index).lane {
            _ if !self.is_scalar(index) => None,
            Lane::Affine(lane) => Some(sum + i64::from(lane) * i64::from(stride)),
            _ => Some(sum),
        })?;
        u32::try_from(step).ok()
    }

    /// Jumps where the launch writes past the caches, or, by `Equal`, where it does not.
    pub(super) fn jump_if_streaming(&mut self, cond: Cond, label: Label) {
        let streams = self.general();
        let at = At::new(R::CONTEXT, context::STREAM);
        self.push(M::Load { bytes: 4, signed: false, dst: streams, at });
        self.push(M::Test { wide: false, a: streams, b: streams });
        self.push(M::JumpIf(cond, label));
    }

    /// No value says where in its workgroup an invocation is, so that a vector may have lanes of two.
    pub(super) fn may_begin_anywhere(&self) -> bool {
        let mut place = false;
        visit(&self.facts.kernel.body, &mut |inst| {
            place |= matches!(
                inst,
                Inst::Let(_, Op::Builtin(Builtin::LocalId(0) | Builtin::WorkgroupId(0) | Builtin::LocalIndex))
            );
        });
        !place && !takes_places_apart(self.facts.kernel, self.lanes())
    }

    /// Puts into `until` where the first aligned vector begins in the row from `x` to `end`.
    pub(super) fn first_aligned(&mut self, plan: &Plan<'k>, rows: u32, (x, until, end): (R, R, R)) {
        self.set_components((0..rows).map(|y| Component { x: 0, y, z: 0 }).collect());
        let mark = self.enter_scope();
        self.define_slice(plan, &(0..rows as usize).collect::<Vec<_>>(), None);
        let stream = &plan.streams[0];
        if let Some(Place::Affine(at, _)) = self.place(stream.address, 0) {
            let (place, before, lanes) = (self.general(), self.general(), self.general());
            self.push(M::Lea { wide: true, dst: place, at });
            self.push(M::Neg { wide: true, dst: before, a: place });
            let bytes = self.alu(Alu::And, false, before, GSrc::Imm(self.len().bytes() - 1));
            let count = GSrc::Imm(stream.step.trailing_zeros() as i32);
            self.push(M::Shift { op: Shift::Right, wide: false, dst: lanes, a: bytes, count });
            self.push(M::Alu { op: Alu::Add, wide: false, dst: until, a: x, b: GSrc::R(lanes) });
            self.push(M::Cmp { wide: false, a: until, b: GSrc::R(end) });
            self.push(M::Cmov { cond: Cond::Above, dst: until, src: end });
        }
        self.leave_scope(mark);
        self.assume_nothing();
    }

    /// Tests that all places that a block writes past the caches are aligned; where one is not, the code goes to `otherwise`.
    pub(super) fn assume_aligned(&mut self, plan: &Plan<'k>, otherwise: Label) {
        let mut places: Vec<R> = Vec::new();
        for stream in &plan.streams {
            for c in 0..self.active.components.len() {
                let Some(Place::Affine(at, _)) = self.place(stream.address, c) else { continue };
                let key = self.alignment_of(at);
                if self.streams.aligned.contains(&key)
                    || [at.base, at.index].iter().any(|r| self.made.changing.contains(r))
                {
                    continue;
                }
                self.streams.aligned.push(key);
                let place = self.general();
                self.push(M::Lea { wide: true, dst: place, at });
                places.push(place);
            }
        }
        let mut places = places.into_iter();
        let Some(first) = places.next() else { return };
        let all = places.fold(first, |all, place| self.alu(Alu::Or, true, all, GSrc::R(place)));
        let bits = self.alu(Alu::And, false, all, GSrc::Imm(self.len().bytes() - 1));
        self.push(M::Test { wide: false, a: bits, b: bits });
        self.push(M::JumpIf(Cond::NotEqual, otherwise));
    }

    fn alignment_of(&self, at: At) -> Aligned {
        (at.base, at.index, at.scale, at.disp.rem_euclid(self.len().bytes()))
    }

    /// The instruction for a store of a whole register, which is `usual` unless its place was tested.
    pub(super) fn store_op(&self, usual: VOp, at: At, mask: Option<R>) -> VOp {
        let past =
            mask.is_none() && !self.streams.aligned.is_empty() && self.streams.aligned.contains(&self.alignment_of(at));
        if past { ops::VMOVNTPS_STORE } else { usual }
    }
}
