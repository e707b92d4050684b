//! Which of the compiler's knobs are worth a try for a kernel: a model of what it loads, so that few candidates need be measured.

use vyre_driver::BackendError;
use vyre_driver::backend::{DeviceKind, Knobs};
use vyre_driver::tuner::Candidate;
use vyre_foundation::ir::Specialization;
use vyre_foundation::kernel::{self, Loads, Options};
use vyre_foundation::launch::Freedom;

use super::tuning::Asked;
use super::{Inner, lock};

/// Ways to merge invocations, from the mildest: shared rows, shared columns, tiles.
const MERGES: [[u32; 3]; 6] = [[1, 2, 1], [1, 4, 1], [2, 2, 1], [4, 2, 1], [2, 4, 1], [4, 4, 1]];
const MERGES_ALONG_X: [[u32; 3]; 2] = [[2, 1, 1], [4, 1, 1]];
/// Merging pays where it leaves no more than this share of the loads.
const FEWER_LOADS: f64 = 0.8;
/// Most ways to merge that are tried on request, and while learning.
const MOST_MERGES: usize = 4;
const MOST_LEARNT_MERGES: usize = 1;
/// Kernels with fewer steps have registers enough.
const MANY_STEPS: u64 = 160;
/// Workgroups of so many threads are the middle of the road: other knobs than merging are tried with these.
const COMMON: [u32; 2] = [128, 256];

/// What the model found for a program under some constants.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    /// Ways to merge that save loads, the best first.
    merges: Vec<[u32; 3]>,
    /// Loads stand in loops.
    loops: bool,
    steps: u64,
}

/// Models by fingerprint, constants, and whether they are for a processor and for learning.
pub(super) type Models = Vec<(([u8; 32], Specialization, [bool; 2]), Model)>;

impl Inner {
    /// Launches with knobs that are worth a try, besides those of plain shapes. Only knobs whose results are proven to stay the same.
    pub(super) fn knobs(
        &self,
        asked: &Asked<'_>,
        constants: &Specialization,
        freedom: &Freedom,
        shapes: &[[u32; 3]],
        learning: bool,
    ) -> Result<Vec<([u32; 3], Knobs)>, BackendError> {
        let able = asked.backend.capabilities();
        let is_cpu = matches!(able.kind, DeviceKind::Cpu | DeviceKind::Software);
        // While learning a caller waits for this, so that what can't be merged is not looked at.
        let merges = freedom.is_proven() && (freedom.axes[1] || !is_cpu);
        if !able.resident || (learning && !merges) {
            return Ok(Vec::new());
        }
        let model = self.model(asked, constants, freedom, [is_cpu, learning])?;
        let mut ways = Vec::new();
        let most = if learning { MOST_LEARNT_MERGES } else { MOST_MERGES };
        for merged in model.merges.iter().take(most) {
            // The shape is that of the threads.
            let tiles = shapes.iter().map(|shape| std::array::from_fn(|axis| shape[axis].saturating_mul(merged[axis])));
            ways.extend(tiles.map(|tile: [u32; 3]| (tile, with(|knobs| knobs.merged = *merged))));
        }
        if learning {
            return Ok(ways);
        }
        let mut others = Vec::new();
        if model.loops {
            let rounds = if is_cpu { [2, 4] } else { [1, 8] };
            others.extend(rounds.map(|rounds| with(|knobs| knobs.rounds = Some(rounds))));
        }
        if is_cpu {
            others.extend([4, 64].map(|parts| with(|knobs| knobs.parts = Some(parts))));
        } else if model.steps > MANY_STEPS && asked.backend.id().starts_with("cuda") {
            others.extend([32, 64].map(|registers| with(|knobs| knobs.registers = Some(registers))));
        }
        for knobs in others {
            let own = shapes.first().copied();
            let is_common = |shape: &&[u32; 3]| {
                Some(**shape) == own || (COMMON.contains(&shape.iter().product()) && shape[0] >= 16 && shape[2] == 1)
            };
            ways.extend(shapes.iter().filter(is_common).map(|shape| (*shape, knobs)));
        }
        Ok(ways)
    }

    /// What is known of a program, found out once.
    fn model(
        &self,
        asked: &Asked<'_>,
        constants: &Specialization,
        freedom: &Freedom,
        [is_cpu, learning]: [bool; 2],
    ) -> Result<Model, BackendError> {
        let key = (asked.program.fingerprint(), constants.clone(), [is_cpu, learning]);
        if let Some((_, model)) = lock(&self.models).iter().find(|(known, _)| *known == key) {
            return Ok(model.clone());
        }
        let loads = |merged: [u32; 3]| {
            let specialization = constants.clone();
            let workgroup_size = Some(merged.map(|merged| merged.max(1)));
            let options = Options { specialization, workgroup_size, merged, ..Options::default() };
            kernel::lower(asked.program, &options).map(|kernel| Loads::of(&kernel))
        };
        let plain = loads([1; 3])?;
        let mut model = Model { merges: Vec::new(), loops: plain.in_loops > 0, steps: plain.steps };
        if freedom.is_proven() && (model.loops || !learning) {
            // Rows of a processor's vectors are neighbours along x already.
            let along_x = if is_cpu { &[][..] } else { &MERGES_ALONG_X[..] };
            let mut found: Vec<(f64, [u32; 3])> = Vec::new();
            for merged in MERGES.iter().chain(along_x) {
                let uses = (0..3).all(|axis| merged[axis] == 1 || freedom.axes[axis]);
                if !uses || (is_cpu && merged[0] > 1) {
                    continue;
                }
                // What can't be merged is no candidate.
                let Ok(made) = loads(*merged) else { continue };
                let share =
                    made.executed as f64 / f64::from(merged.iter().product::<u32>()) / plain.executed.max(1) as f64;
                if share <= FEWER_LOADS {
                    found.push((share, *merged));
                }
            }
            found.sort_by(|a, b| a.0.total_cmp(&b.0));
            model.merges = found.into_iter().map(|(_, merged)| merged).collect();
        }
        let mut models = lock(&self.models);
        if models.len() >= 256 {
            models.remove(0);
        }
        models.push((key, model.clone()));
        Ok(model)
    }
}

/// Which of launches that are as good as each other is taken: plain ones before others, then workgroups that suit most kernels on such a
/// device, so that what comes first is seldom the slower one, and every process takes the same.
pub(super) fn preference([is_cpu, is_row]: [bool; 2], candidate: &Candidate) -> impl Ord + use<> {
    let Candidate { workgroup_size, knobs, .. } = candidate;
    let threads: [u32; 3] = std::array::from_fn(|axis| workgroup_size[axis] / knobs.merged[axis].max(1));
    let bits = threads.map(|size| size.max(1).ilog2());
    let all: u32 = bits.iter().sum();
    // A GPU has warps enough to hide what loads take, and not so many that a workgroup ends late; its rows are a warp. A processor's
    // rows are a vector or two, and enough of them share what they load; where there is nothing but rows, longer ones begin less often.
    let (middle, row) = match (is_cpu, is_row) {
        (true, false) => (7, 4),
        (true, true) => (8, 4),
        (false, _) => (8, 5),
    };
    let far = (2 * all.abs_diff(middle)).saturating_sub(u32::from(all > middle));
    let merged = knobs.merged.iter().product::<u32>();
    let others = (knobs.parts.is_some(), knobs.registers.is_some(), knobs.rounds.is_some());
    (merged, others, far, bits[0].abs_diff(row), std::cmp::Reverse(bits[0]), std::cmp::Reverse(bits[1]))
}

fn with(set: impl FnOnce(&mut Knobs)) -> Knobs {
    let mut knobs = Knobs::default();
    set(&mut knobs);
    knobs
}
