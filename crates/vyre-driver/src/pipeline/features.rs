use serde::{Deserialize, Serialize};
use vyre_foundation::ir::{Builtin, DataType, Expr, Node, Program, TypeDef};

use crate::backend::Capabilities;

/// What a pipeline uses of its device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PipelineFeatureFlags(pub u32);

impl PipelineFeatureFlags {
    /// Operations across a subgroup.
    pub const SUBGROUP_OPS: Self = Self(1 << 0);
    /// f16 arithmetic or storage.
    pub const F16: Self = Self(1 << 1);
    /// bf16 storage.
    pub const BF16: Self = Self(1 << 2);
    /// Matrix units.
    pub const TENSOR_CORES: Self = Self(1 << 3);
    /// Queues that run beside the main one.
    pub const ASYNC_COMPUTE: Self = Self(1 << 4);
    /// Constants passed with the launch.
    pub const PUSH_CONSTANTS: Self = Self(1 << 5);
    /// Grids read from a buffer.
    pub const INDIRECT_DISPATCH: Self = Self(1 << 6);
    /// Work started before it is known to be needed.
    pub const SPECULATIVE: Self = Self(1 << 7);
    /// Workgroups that stay and fetch work.
    pub const PERSISTENT_THREAD: Self = Self(1 << 8);

    /// No feature.
    pub const fn empty() -> Self {
        Self(0)
    }

    /// All of `other` are here.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The bits.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// What a program uses of a device: read off the program, and only what the device has.
    ///
    /// The flags that are not about the program (push constants, queues, persistent threads) are the backend's to add, when
    /// it makes the pipeline so.
    pub fn of(program: &Program, capabilities: &Capabilities) -> Self {
        let mut uses = Uses(Self::empty());
        program.buffers().iter().for_each(|buffer| uses.ty(&buffer.ty));
        for ty in program.types() {
            match ty {
                TypeDef::Struct { members, .. } => members.iter().for_each(|member| uses.ty(&member.ty)),
                TypeDef::Array { element, .. } => uses.ty(element),
            }
        }
        program.constants().iter().for_each(|constant| uses.ty(&constant.default.data_type()));
        for function in program.functions() {
            function.params.iter().for_each(|param| uses.ty(&param.ty));
            uses.nodes(&function.body);
        }
        uses.nodes(program.body());
        Self(uses.0.bits() & capabilities.pipeline_features.bits())
    }
}

/// Gathers what types and operations need. Where an f16 comes from is a declaration, a literal or a conversion, so other expressions
/// need not be typed.
struct Uses(PipelineFeatureFlags);

impl Uses {
    fn flag(&mut self, flag: PipelineFeatureFlags) {
        self.0 = self.0.union(flag);
    }

    fn ty(&mut self, ty: &DataType) {
        match ty.as_vector().map_or_else(|| ty.clone(), |(element, _)| element) {
            DataType::F16 => self.flag(PipelineFeatureFlags::F16),
            DataType::BF16 => self.flag(PipelineFeatureFlags::BF16),
            _ => {}
        }
    }

    fn nodes(&mut self, body: &[Node]) {
        let mut lists = vec![body];
        while let Some(list) = lists.pop() {
            for node in list {
                if let Node::Var { ty, .. } = node {
                    self.ty(ty);
                }
                node.for_each_expr(|expr| self.expr(expr));
                node.for_each_list(|list| lists.push(list));
            }
        }
    }

    fn expr(&mut self, expr: &Expr) {
        let mut waiting = vec![expr];
        while let Some(expr) = waiting.pop() {
            match expr {
                Expr::Literal(literal) => self.ty(&literal.data_type()),
                Expr::Cast { to: ty, .. } | Expr::BitCast { to: ty, .. } | Expr::Construct { ty, .. } => self.ty(ty),
                Expr::Subgroup { .. }
                | Expr::Builtin(
                    Builtin::SubgroupSize | Builtin::SubgroupLane | Builtin::SubgroupId | Builtin::NumSubgroups,
                ) => self.flag(PipelineFeatureFlags::SUBGROUP_OPS),
                Expr::MatrixMultiplyAdd { .. } => {
                    self.flag(PipelineFeatureFlags::SUBGROUP_OPS);
                    self.flag(PipelineFeatureFlags::TENSOR_CORES);
                }
                _ => {}
            }
            expr.for_each_child(|child| waiting.push(child));
        }
    }
}
