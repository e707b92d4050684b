use serde::{Deserialize, Serialize};
use vyre_foundation::kernel::{Block, Element, Features, Inst, Kernel, Op};

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

    /// What a kernel uses of a device: read off the kernel, and only what the device has.
    ///
    /// The flags that are not about the kernel (push constants, queues, persistent threads) are the backend's to add, when
    /// it makes the pipeline so.
    pub fn of(kernel: &Kernel, capabilities: &Capabilities) -> Self {
        let mut used = Self::empty();
        if kernel.features.contains(Features::SUBGROUP) {
            used = used.union(Self::SUBGROUP_OPS);
        }
        if kernel.features.contains(Features::F16) {
            used = used.union(Self::F16);
        }
        if kernel.features.contains(Features::MATRIX) {
            used = used.union(Self::TENSOR_CORES);
        }
        if touches(&kernel.body, Element::BF16) {
            used = used.union(Self::BF16);
        }
        Self(used.bits() & capabilities.pipeline_features.bits())
    }
}

/// Some access of a block is to elements of this kind.
fn touches(block: &Block, wanted: Element) -> bool {
    block.insts.iter().any(|inst| match inst {
        Inst::Let(_, Op::Load { element, .. }) | Inst::Store { element, .. } | Inst::Atomic { element, .. } => {
            *element == wanted
        }
        Inst::If { then, otherwise, .. } => touches(then, wanted) || touches(otherwise, wanted),
        Inst::Loop(inner) => touches(&inner.body, wanted),
        Inst::Let(..) | Inst::Barrier(_) => false,
    })
}
