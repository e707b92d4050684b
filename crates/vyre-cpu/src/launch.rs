//! The grid of a launch and the parts that it is taken in.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::pace::Expected;

/// Invocations in a subgroup, on every path.
pub(crate) const SUBGROUP_SIZE: u32 = 32;

/// Steps of all invocations together below which spreading a launch over threads costs more than it gains.
pub(crate) const SMALL_LAUNCH: u64 = 1 << 18;

/// Parts of a launch for each thread, so that those who finish early can take over.
const PARTS_EACH: u64 = 16;

/// Sizes of one launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid<'a> {
    /// Workgroups along each axis.
    pub(crate) workgroups: [u32; 3],
    /// Elements of each buffer.
    pub(crate) lengths: &'a [u64],
    /// Results are written past the caches where the code can.
    pub(crate) streams: bool,
    /// Buffers that are only added to are copies of the thread's own.
    pub(crate) copies: bool,
}

/// Tells the loops of one launch to end. Loops look at it in every round, so nothing that others change is on its cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Stop(AtomicU32);

impl Stop {
    /// Stops from now on.
    pub(crate) fn set(&self) {
        self.0.store(1, Relaxed);
    }

    /// Nobody asked yet.
    pub(crate) fn reset(&self) {
        self.0.store(0, Relaxed);
    }

    /// Somebody asked to stop.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Relaxed) != 0
    }

    /// The word that compiled loops look at.
    pub(crate) fn word(&self) -> *const u32 {
        self.0.as_ptr()
    }
}

/// Workgroups from `first` to before `end` along x, in one row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub(crate) first: u32,
    pub(crate) end: u32,
    pub(crate) y: u32,
    pub(crate) z: u32,
}

/// Workgroups of a grid.
pub(crate) fn workgroups(grid: [u32; 3]) -> u64 {
    grid.iter().fold(1, |all, &n| all.saturating_mul(u64::from(n)))
}

/// How the workgroups of a grid are shared out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Split {
    grid: [u32; 3],
    rows: u64,
    rows_each: u64,
    /// Pieces of a row.
    pieces: u64,
}

impl Split {
    /// Parts for so many threads of a grid whose workgroups take so many steps; so many for each thread, or as many as is good mostly,
    /// and no more than is worth it where its time is `expected`: one for each thread in any case, as it may take longer.
    pub(crate) fn new(
        grid: [u32; 3],
        steps: u64,
        threads: usize,
        each: Option<u32>,
        expected: Option<Expected>,
    ) -> Split {
        let [x, y, z] = grid;
        let rows = u64::from(y) * u64::from(z);
        let total = rows * u64::from(x);
        if total <= 1 || total.saturating_mul(steps) < SMALL_LAUNCH {
            return Split { grid, rows, rows_each: rows.max(1), pieces: 1 };
        }
        let threads = threads as u64;
        // As many for each thread as for each other one.
        let usual = expected.map_or(PARTS_EACH, |expected| (expected.parts() / threads).clamp(1, PARTS_EACH));
        let wanted = (threads * each.map_or(usual, |each| u64::from(each.max(1)))).min(total);
        let pieces = wanted.div_ceil(rows).clamp(1, u64::from(x));
        Split { grid, rows, rows_each: (rows / wanted).max(1), pieces }
    }

    /// Number of parts.
    pub(crate) fn parts(&self) -> u64 {
        self.rows.div_ceil(self.rows_each.max(1)) * self.pieces
    }

    /// The workgroups of a part, in stretches short enough to notice a stop between them.
    pub(crate) fn stretches(&self, part: u64) -> impl Iterator<Item = Stretch> + use<> {
        const LONGEST: u32 = 1 << 16;
        let Split { grid: [x, y, _], rows, rows_each, pieces } = *self;
        let (group, piece) = (part / pieces.max(1), part % pieces.max(1));
        let at = move |piece: u64| (u64::from(x) * piece / pieces.max(1)) as u32;
        let (first, end) = (at(piece), at(piece + 1));
        (group * rows_each..((group + 1) * rows_each).min(rows)).flat_map(move |row| {
            let (y, z) = ((row % u64::from(y)) as u32, (row / u64::from(y)) as u32);
            (first..end).step_by(LONGEST as usize).map(move |first| Stretch {
                first,
                end: first.saturating_add(LONGEST).min(end),
                y,
                z,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workgroup_is_in_one_part() {
        for grid in [[1, 1, 1], [7, 1, 1], [1, 9, 3], [1000, 3, 1], [3, 200, 2], [0, 5, 5], [200_000, 1, 2]] {
            for (steps, threads, each) in [(1, 4, None), (1 << 30, 1, None), (1 << 30, 16, None), (1 << 30, 4, Some(3))]
            {
                let split = Split::new(grid, steps, threads, each, None);
                let mut seen = Vec::new();
                for part in 0..split.parts() {
                    for Stretch { first, end, y, z } in split.stretches(part) {
                        seen.extend((first..end).map(|x| [z, y, x]));
                    }
                }
                seen.sort_unstable();
                let mut all = Vec::new();
                for z in 0..grid[2] {
                    for y in 0..grid[1] {
                        all.extend((0..grid[0]).map(|x| [z, y, x]));
                    }
                }
                assert_eq!(seen, all, "{grid:?} with {steps} steps");
            }
        }
    }
}
