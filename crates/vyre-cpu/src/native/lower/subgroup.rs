//! Operations across a subgroup: a few vectors of the block, one after the other. Votes are made of masks; for the rest the
//! helper is given all lanes of the subgroup at once.

use vyre_foundation::ir::SubgroupOp;
use vyre_foundation::kernel::{Scalar, Value};

use super::super::asm::{Alu, Cond};
use super::super::context;
use super::super::mir::{At, GSrc, M, R, Src};
use super::super::ops;
use super::Lower;
use super::rare::Rare;
use super::value::{Lin, Rep};
use crate::launch::SUBGROUP_SIZE;

impl<'k> Lower<'k> {
    /// All lanes of a subgroup are here or none; where none is, nobody uses what comes out.
    pub(super) fn subgroup(
        &mut self,
        value: Value,
        op: SubgroupOp,
        operand: Value,
        argument: Option<Value>,
        comps: &[usize],
    ) {
        let each = (SUBGROUP_SIZE / self.lanes()) as usize;
        for group in comps.chunk_by(|a, b| a / each == b / each) {
            match op {
                SubgroupOp::Ballot | SubgroupOp::Any | SubgroupOp::All => self.vote(value, op, operand, group),
                _ => self.exchange(value, op, operand, argument, group),
            }
        }
    }

    /// One bit for each lane of a subgroup, from a mask for each vector.
    fn lane_bits(&mut self, group: &[usize], mut mask: impl FnMut(&mut Self, usize) -> Option<R>) -> R {
        let each = (SUBGROUP_SIZE / self.lanes()) as usize;
        let mut all: Option<R> = None;
        for &c in group {
            let bits = match mask(self, c) {
                Some(mask) => self.mask_bits(mask),
                None => self.materialise(Lin::imm(self.all_lanes() as i32)),
            };
            let count = (c % each) as u32 * self.lanes();
            let placed = if count == 0 { bits } else { self.shifted(false, bits, count as i32) };
            all = Some(match all {
                Some(all) => self.alu(Alu::Or, false, all, GSrc::R(placed)),
                None => placed,
            });
        }
        all.unwrap_or_else(|| self.materialise(Lin::imm(0)))
    }

    fn vote(&mut self, value: Value, op: SubgroupOp, operand: Value, group: &[usize]) {
        let votes = self.lane_bits(group, |this, c| {
            let mask = this.mask_of(operand, c);
            Some(match this.active.exec[c] {
                Some(exec) => this.mask_and(mask, exec),
                None => mask,
            })
        });
        if op == SubgroupOp::Ballot {
            let word = self.spread(votes, false);
            let zero = self.constant(0);
            for &c in group {
                for component in 0..4 {
                    let r = if component == 0 { word } else { zero };
                    self.set_rep(value, component, c, Rep::Vector(r, R::NONE));
                }
            }
            return;
        }
        let truth = self.general();
        if op == SubgroupOp::Any {
            self.push(M::Test { wide: false, a: votes, b: votes });
            self.push(M::Set { cond: Cond::NotEqual, dst: truth });
        } else {
            let present = self.lane_bits(group, |this, c| this.active.exec[c]);
            self.push(M::Cmp { wide: false, a: votes, b: GSrc::R(present) });
            self.push(M::Set { cond: Cond::Equal, dst: truth });
        }
        let mask = self.mask_of_truth(truth);
        for &c in group {
            self.set_rep(value, 0, c, Rep::Mask(mask));
        }
    }

    fn exchange(&mut self, value: Value, op: SubgroupOp, operand: Value, argument: Option<Value>, group: &[usize]) {
        let each = (SUBGROUP_SIZE / self.lanes()) as usize;
        let scalar = self.scalar_of(operand);
        // Bools go as words.
        let stored = if scalar == Scalar::Bool { Scalar::U32 } else { scalar };
        let (length, parts) = (self.len().bytes(), Self::parts(stored) as i32);
        let scratch = self.scratch();
        for &c in group {
            let place = (c % each) as i32;
            for part in 0..parts {
                let v = self.vector_part(operand, 0, c, part as usize);
                self.put_scratch(scratch, context::SUBGROUP_OPERAND + (place * parts + part) * length, v);
            }
            if let Some(argument) = argument {
                let v = self.vector_of(argument, c);
                self.put_scratch(scratch, context::SUBGROUP_ARGUMENT + place * length, v);
            }
        }
        let present = self.lane_bits(group, |this, c| this.active.exec[c]);
        self.push(M::Store { bytes: 4, src: present, at: At::new(scratch, context::MASK) });
        self.push(M::Call { code: Rare::Subgroup(op, stored).pack() });
        for &c in group {
            let place = (c % each) as i32;
            let mut made = [R::NONE; 2];
            for (part, r) in made.iter_mut().enumerate().take(parts as usize) {
                let at = context::SUBGROUP_RESULT + (place * parts + part as i32) * length;
                *r = self.vec(ops::VMOVUPS, R::NONE, Src::At(At::new(scratch, at)));
            }
            let rep = match scalar {
                Scalar::Bool => Rep::Mask(self.mask_not_zero(made[0])),
                _ => Rep::Vector(made[0], made[1]),
            };
            self.set_rep(value, 0, c, rep);
        }
    }
}
