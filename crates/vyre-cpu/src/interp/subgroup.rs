//! Operations across a subgroup: the lanes of the workgroup by their linear index, a fixed number at a time.

use vyre_foundation::ir::SubgroupOp;
use vyre_foundation::kernel::{Binary, MatrixMultiplyAdd, Scalar, Value, eval};

use super::{Lanes, Machine};
use crate::launch::SUBGROUP_SIZE;

impl Machine<'_> {
    pub(super) fn subgroup(
        &mut self,
        value: Value,
        op: SubgroupOp,
        operand: Value,
        argument: Option<Value>,
        lanes: &Lanes,
    ) {
        let scalar = self.scalar(operand);
        for group in lanes.chunk_by(|a, b| a / SUBGROUP_SIZE == b / SUBGROUP_SIZE) {
            let members: Vec<(u32, u64)> = group.iter().map(|&lane| (lane, self.get(operand, lane))).collect();
            let arguments: Vec<u64> =
                group.iter().map(|&lane| argument.map_or(0, |argument| self.get(argument, lane))).collect();
            for (position, &lane) in group.iter().enumerate() {
                if op == SubgroupOp::Ballot {
                    let mut words = [0u32; 4];
                    for &(lane, bits) in &members {
                        let bit = lane % SUBGROUP_SIZE;
                        words[bit as usize / 32] |= u32::from(bits != 0) << (bit % 32);
                    }
                    for (component, word) in words.into_iter().enumerate() {
                        self.set(value, component, lane, u64::from(word));
                    }
                    continue;
                }
                let bits = across(op, scalar, &members, position, arguments[position]);
                self.set(value, 0, lane, bits);
            }
        }
    }

    /// Control flow is uniform and the workgroup is whole subgroups, so every lane is there.
    pub(super) fn matrix(&mut self, value: Value, matrix: &MatrixMultiplyAdd) {
        for first in (0..self.code.lanes as u32).step_by(SUBGROUP_SIZE as usize) {
            let sums = eval::matrix(matrix, |operand, lane| self.get(operand, first + lane as u32));
            for (lane, sums) in sums.into_iter().enumerate() {
                for (component, sum) in sums.into_iter().enumerate() {
                    self.set(value, component, first + lane as u32, u64::from(sum));
                }
            }
        }
    }
}

/// What one lane gets. `members` are the lanes of the subgroup that are there, with their operands.
pub(crate) fn across(op: SubgroupOp, scalar: Scalar, members: &[(u32, u64)], position: usize, argument: u64) -> u64 {
    let own = members[position].0 % SUBGROUP_SIZE;
    let all = || members.iter().map(|&(_, bits)| bits);
    let fold = |op: Binary, values: &mut dyn Iterator<Item = u64>| values.reduce(|a, b| eval::binary(op, scalar, a, b));
    let lane = |wanted: u64| {
        members.iter().find(|(lane, _)| u64::from(lane % SUBGROUP_SIZE) == wanted).map_or(0, |&(_, bits)| bits)
    };
    let one = || eval::cast(Scalar::U32, scalar, 1);
    let argument = argument & u64::from(u32::MAX);
    match op {
        SubgroupOp::Add => fold(Binary::Add, &mut all()).unwrap_or(0),
        SubgroupOp::Mul => fold(Binary::Mul, &mut all()).unwrap_or(0),
        SubgroupOp::Min => fold(Binary::Min, &mut all()).unwrap_or(0),
        SubgroupOp::Max => fold(Binary::Max, &mut all()).unwrap_or(0),
        SubgroupOp::And => fold(Binary::And, &mut all()).unwrap_or(0),
        SubgroupOp::Or => fold(Binary::Or, &mut all()).unwrap_or(0),
        SubgroupOp::Xor => fold(Binary::Xor, &mut all()).unwrap_or(0),
        SubgroupOp::InclusiveAdd => fold(Binary::Add, &mut all().take(position + 1)).unwrap_or(0),
        SubgroupOp::ExclusiveAdd => fold(Binary::Add, &mut all().take(position)).unwrap_or(0),
        SubgroupOp::InclusiveMul => fold(Binary::Mul, &mut all().take(position + 1)).unwrap_or(0),
        SubgroupOp::ExclusiveMul => fold(Binary::Mul, &mut all().take(position)).unwrap_or_else(one),
        SubgroupOp::All => u64::from(all().all(|bits| bits != 0)),
        SubgroupOp::Any => u64::from(all().any(|bits| bits != 0)),
        // Four words wide; the caller makes it.
        SubgroupOp::Ballot => 0,
        SubgroupOp::BroadcastFirst => members[0].1,
        SubgroupOp::Broadcast | SubgroupOp::Shuffle => lane(argument),
        SubgroupOp::ShuffleXor => lane(u64::from(own) ^ argument),
        SubgroupOp::ShuffleUp => u64::from(own).checked_sub(argument).map_or(0, lane),
        SubgroupOp::ShuffleDown => lane(u64::from(own) + argument),
    }
}
