//! How long workgroups of a pipeline take, as its launches have shown.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A thread that is woken comes after some tens of microseconds and finds cold caches: it is called for at least so much work.
const WORTH_A_THREAD_NS: u64 = 20_000;
/// One that still looks for work since the launch before comes at once, and finds there what it had then.
const WORTH_A_THREAD_AWAKE_NS: u64 = 2_000;
/// Work that is taken by itself should be some microseconds, or taking it shows.
const WORTH_A_PART_NS: u64 = 2_000;
/// Fractions of a nanosecond that are told apart: workgroups of a few invocations take less than one.
const FRACTIONS: u64 = 1 << 10;

/// Time of one workgroup on one thread, learnt from one part of each launch. What it says is a guess: another launch of the same
/// pipeline may take longer for other numbers in its buffers, so those who work on one that does call more threads.
#[derive(Debug, Default)]
pub(crate) struct Pace(AtomicU64);

impl Pace {
    /// Takes in that so many workgroups took so long. Of two that come at once one may be lost.
    pub(crate) fn note(&self, groups: u64, ns: u64) {
        let sample = (ns.saturating_mul(FRACTIONS) / groups.max(1)).max(1);
        let before = self.0.load(Relaxed);
        // One that takes longer than the last is believed at once: to call too many threads costs less than to call too few.
        self.0.store(sample.max(before / 2 + sample / 2), Relaxed);
    }

    /// What so many workgroups take on one thread, if any was timed.
    pub(crate) fn expected(&self, groups: u64) -> Option<Expected> {
        let pace = self.0.load(Relaxed);
        (pace > 0).then(|| Expected((u128::from(groups) * u128::from(pace) / u128::from(FRACTIONS)) as u64))
    }
}

/// Nanoseconds that a launch would take on one thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Expected(u64);

impl Expected {
    /// Threads that it is worth to call at once.
    pub(crate) fn threads(self) -> usize {
        usize::try_from(self.0 / WORTH_A_THREAD_NS).unwrap_or(usize::MAX).max(1)
    }

    /// Threads that it is worth to call where they are awake.
    pub(crate) fn threads_awake(self) -> usize {
        usize::try_from(self.0 / WORTH_A_THREAD_AWAKE_NS).unwrap_or(usize::MAX).max(1)
    }

    /// Parts that it is worth to be cut into.
    pub(crate) fn parts(self) -> u64 {
        self.0 / WORTH_A_PART_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_and_parts_follow_the_time_of_a_workgroup() {
        let pace = Pace::default();
        assert!(pace.expected(1000).is_none());
        pace.note(1000, 10_000);
        let short = pace.expected(100).unwrap();
        assert_eq!((short.threads(), short.threads_awake(), short.parts()), (1, 1, 0));
        let middling = pace.expected(2_500).unwrap();
        assert_eq!((middling.threads(), middling.threads_awake()), (1, 12));
        let long = pace.expected(100_000).unwrap();
        assert_eq!((long.threads(), long.parts()), (50, 500));
        pace.note(10, 1_000_000);
        assert_eq!(pace.expected(100).unwrap().threads(), 500, "slower work is believed at once");
        (0..50).for_each(|_| pace.note(1000, 10_000));
        assert_eq!(pace.expected(100).unwrap().threads(), 1, "faster work after a while");
        // Nothing overflows, and nothing is forgotten to have been timed.
        pace.note(0, u64::MAX);
        pace.note(u64::MAX, 0);
        assert!(pace.expected(u64::MAX).is_some());
    }
}
