//! Operations across a subgroup.

use naga::{BinaryOperator, Block as NagaBlock, Expression, Handle, Span, Statement};
use vyre_foundation::ir::{Builtin, SubgroupOp};
use vyre_foundation::kernel::Value;
use vyre_spec::Diagnostic;

use super::{Emitter, malformed, type_of};

impl Emitter<'_> {
    pub(super) fn subgroup(
        &mut self,
        out: &mut NagaBlock,
        value: Value,
        op: SubgroupOp,
        operand: Value,
        argument: Option<Value>,
    ) -> Result<Handle<Expression>, Diagnostic> {
        use naga::{CollectiveOperation as Collective, GatherMode, SubgroupOperation as Operation};
        let expr = self.value(operand)?;
        if op == SubgroupOp::Ballot {
            let result = self.add(out, Expression::SubgroupBallotResult);
            out.push(Statement::SubgroupBallot { result, predicate: Some(expr) }, Span::UNDEFINED);
            return Ok(result);
        }
        let ty = self.ty(value);
        let ty = type_of(&mut self.module, ty);
        let result = self.add(out, Expression::SubgroupOperationResult { ty });
        let collective = match op {
            SubgroupOp::Add => Some((Operation::Add, Collective::Reduce)),
            SubgroupOp::Mul => Some((Operation::Mul, Collective::Reduce)),
            SubgroupOp::Min => Some((Operation::Min, Collective::Reduce)),
            SubgroupOp::Max => Some((Operation::Max, Collective::Reduce)),
            SubgroupOp::And => Some((Operation::And, Collective::Reduce)),
            SubgroupOp::Or => Some((Operation::Or, Collective::Reduce)),
            SubgroupOp::Xor => Some((Operation::Xor, Collective::Reduce)),
            SubgroupOp::All => Some((Operation::All, Collective::Reduce)),
            SubgroupOp::Any => Some((Operation::Any, Collective::Reduce)),
            SubgroupOp::InclusiveAdd => Some((Operation::Add, Collective::InclusiveScan)),
            SubgroupOp::ExclusiveAdd => Some((Operation::Add, Collective::ExclusiveScan)),
            SubgroupOp::InclusiveMul => Some((Operation::Mul, Collective::InclusiveScan)),
            SubgroupOp::ExclusiveMul => Some((Operation::Mul, Collective::ExclusiveScan)),
            _ => None,
        };
        if let Some((op, collective_op)) = collective {
            let statement = Statement::SubgroupCollectiveOperation { op, collective_op, argument: expr, result };
            out.push(statement, Span::UNDEFINED);
            return Ok(result);
        }
        if op == SubgroupOp::BroadcastFirst {
            let statement = Statement::SubgroupGather { mode: GatherMode::BroadcastFirst, argument: expr, result };
            out.push(statement, Span::UNDEFINED);
            return Ok(result);
        }
        // A lane outside gives zero: the lane is computed, tested, and brought inside.
        let argument = argument.ok_or_else(|| malformed("a shuffle lacks its lane"))?;
        let argument = self.value(argument)?;
        let own = self.builtin(Builtin::SubgroupLane, out)?;
        let size = self.builtin(Builtin::SubgroupSize, out)?;
        let (lane, inside) = match op {
            SubgroupOp::ShuffleXor => {
                let lane = self.binary(out, BinaryOperator::ExclusiveOr, own, argument);
                (lane, self.binary(out, BinaryOperator::Less, lane, size))
            }
            SubgroupOp::ShuffleUp => {
                let lane = self.binary(out, BinaryOperator::Subtract, own, argument);
                (lane, self.binary(out, BinaryOperator::LessEqual, argument, own))
            }
            SubgroupOp::ShuffleDown => {
                let lane = self.binary(out, BinaryOperator::Add, own, argument);
                let left = self.binary(out, BinaryOperator::Subtract, size, own);
                (lane, self.binary(out, BinaryOperator::Less, argument, left))
            }
            _ => (argument, self.binary(out, BinaryOperator::Less, argument, size)),
        };
        let zero_lane = self.literal(out, 0);
        let lane = self.choose(out, inside, lane, zero_lane);
        let statement = Statement::SubgroupGather { mode: GatherMode::Shuffle(lane), argument: expr, result };
        out.push(statement, Span::UNDEFINED);
        let zero = self.add(out, Expression::ZeroValue(ty));
        Ok(self.choose(out, inside, result, zero))
    }
}
