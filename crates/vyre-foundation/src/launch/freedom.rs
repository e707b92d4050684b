//! Whether a launch may have workgroups of another shape, and why not.
//!
//! The meaning of a kernel that knows only its global ids does not change with the shape, but its results may: workgroups of another
//! size round the grid up to other invocations, and invocations that touch the same memory may do so in another order. The first can't
//! matter where no invocation beyond the domain does anything, the second where each writes elements of its own, which no other
//! reads, or only adds to what nobody looks at.

use std::sync::Arc;

use super::LaunchPlan;
use super::access::Access;
use super::analysis::Analysis;
use super::domain::{Along, Domain, Own};
use super::extent;
use crate::ValidProgram;
use crate::ir::{Builtin, Program, Specialization};
use crate::kernel::walk::each_inst;
use crate::kernel::{Inst, Kernel, Memory, Op};
use vyre_spec::Diagnostic;

/// How a launch may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Freedom {
    /// Which shapes of workgroups may be launched instead.
    pub shapes: Shapes,
    /// The axes along which the size may change: those whose ids the kernel uses.
    pub axes: [bool; 3],
    /// Why that is so, as half a sentence.
    pub why: String,
}

/// Shapes of workgroups that a kernel may be launched with, from the freest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shapes {
    /// Any: results are proven to stay the same.
    Any,
    /// Those with which exactly the same invocations run: then results are proven to stay the same.
    SameInvocations,
    /// Any, for those who compare results: nothing asks for a shape, but it is not proven that results stay the same.
    Unproven,
    /// Only the kernel's own.
    Own,
}

impl Freedom {
    /// Invocations don't see each other: there are other launches than the kernel's own that give proven the same results.
    pub fn is_proven(&self) -> bool {
        matches!(self.shapes, Shapes::Any | Shapes::SameInvocations)
    }

    /// A launch with this shape instead of the plan's gives proven the same results.
    pub fn allows(&self, plan: &LaunchPlan, shape: [u32; 3]) -> bool {
        let kept = (0..3).all(|axis| self.axes[axis] || shape[axis] == plan.workgroup_size[axis]);
        kept && match self.shapes {
            Shapes::Any => true,
            Shapes::SameInvocations => (0..3).all(|axis| {
                let size = u64::from(shape[axis].max(1));
                let launched = u64::from(plan.grid[axis]) * u64::from(plan.workgroup_size[axis]);
                plan.domain[axis].div_ceil(size) * size == launched
            }),
            Shapes::Unproven | Shapes::Own => shape == plan.workgroup_size,
        }
    }

    /// A launch with this shape may be tried by who compares its results.
    pub fn may_try(&self, plan: &LaunchPlan, shape: [u32; 3]) -> bool {
        match self.shapes {
            Shapes::Own => shape == plan.workgroup_size,
            _ => (0..3).all(|axis| self.axes[axis] || shape[axis] == plan.workgroup_size[axis]),
        }
    }
}

/// Whether launches of the program under this specialization may have workgroups of another shape. Found out once and remembered.
pub fn freedom(program: &ValidProgram, specialization: Option<&Specialization>) -> Result<Arc<Freedom>, Diagnostic> {
    let workgroup = super::workgroup_size(program, specialization)?;
    Ok(Analysis::of(program, specialization, workgroup)?.freedom.clone())
}

pub(super) fn of(kernel: &Kernel, domain: &Domain, access: &[Access], program: &Program) -> Freedom {
    let axes = std::array::from_fn(|axis| domain.axes[axis] != Along::Unused);
    let fixed = |why: String| Freedom { shapes: Shapes::Own, axes: [false; 3], why };
    if !kernel.resizable {
        return fixed(why_sized(kernel));
    }
    let unproven = |why: String| Freedom { shapes: Shapes::Unproven, axes, why };
    if axes == [false; 3] {
        return fixed("no id is used".to_owned());
    }
    for (position, access) in access.iter().enumerate() {
        let name = || extent::name(program, position as u32);
        match &domain.own[position] {
            _ if access.commutes.is_some() || access.writes == super::Writes::None => {}
            Own::Apart => {}
            Own::Unseen => {}
            Own::Shared(place) => {
                return unproven(format!("`{place}` may be written by one invocation and touched by another"));
            }
            Own::Ordered => {
                return unproven(format!("what atomic operations on `{}` give depends on their order", name()));
            }
        }
    }
    if (0..3).any(|axis| !axes[axis] && kernel.workgroup_size[axis] > 1) {
        return unproven("the workgroup has invocations that do the same".to_owned());
    }
    let open = (0..3).find(|&axis| matches!(domain.axes[axis], Along::Open(_)));
    match open {
        Some(axis) => Freedom {
            shapes: Shapes::SameInvocations,
            axes,
            why: format!(
                "nothing bounds `id.{}`, so each invocation more changes the result",
                super::domain::axis(axis)
            ),
        },
        None => Freedom {
            shapes: Shapes::Any,
            axes,
            why: "each invocation writes what no other touches, and those beyond the domain write nothing".to_owned(),
        },
    }
}

/// What depends on the workgroup.
fn why_sized(kernel: &Kernel) -> String {
    let mut why: Option<String> = None;
    each_inst(&kernel.body, &mut |inst| {
        let found = match inst {
            Inst::Let(_, Op::Builtin(Builtin::GlobalId(_))) => None,
            Inst::Let(_, Op::Builtin(builtin)) => Some(format!("`{builtin}` is used")),
            Inst::Let(_, op) if op.is_across_subgroup() => Some("an operation goes across the subgroup".to_owned()),
            Inst::Let(_, Op::Load { address, .. }) | Inst::Store { address, .. } | Inst::Atomic { address, .. } => {
                match address.memory {
                    Memory::Shared(memory) => {
                        Some(format!("workgroup memory `{}` is used", kernel.shared[memory as usize].name))
                    }
                    _ => None,
                }
            }
            Inst::Barrier(_) => Some("there is a barrier".to_owned()),
            _ => None,
        };
        if why.is_none() {
            why = found;
        }
    });
    why.unwrap_or_else(|| "it asks for its place in the workgroup".to_owned())
}
