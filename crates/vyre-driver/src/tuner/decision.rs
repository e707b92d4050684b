use serde::{Deserialize, Serialize};

use super::{Candidate, Candidates, Outcome, Verdict};

/// What a decision is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subject {
    /// The program's name, for people.
    pub program: String,
    /// What all sizes of the program under one configuration share, see [`family`](super::family).
    pub family: String,
    /// The kernel's own launch.
    pub own: [u32; 3],
    /// The most workgroups of the kernel's own shape that it holds for.
    pub grid: [u32; 3],
    /// Results are proven to be those of the kernel's own launch. Where they only agreed when it was measured, the decision holds
    /// for launches of exactly this size, and only when its owner has pinned it.
    pub proven: bool,
}

/// One launch that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timed {
    /// How it was launched.
    #[serde(flatten)]
    pub candidate: Candidate,
    /// Typical time.
    pub ns: u64,
    /// Timed samples.
    pub samples: usize,
    /// Interval of its time relative to the kernel's own, less one, at 95%; absent where it was dropped after few samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
}

/// Where a decision was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// By a campaign, on request.
    #[default]
    Tuned,
    /// From real runs.
    Learnt,
    /// By its owner, who has written it down or pinned it.
    Owner,
}

/// Who measured, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// How the decision came about.
    pub source: Source,
    /// The device's name.
    pub device: String,
    /// The driver's name and version.
    pub driver: String,
    /// The build of driver and compiler; a decision of another build is a first guess and is measured again.
    pub build: String,
    /// Workgroups of the kernel's own shape.
    pub grid: Option<[u32; 3]>,
    /// Seconds since 1970.
    pub at: u64,
}

/// What a decision rests on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// How the decision came about.
    #[serde(default)]
    pub source: Source,
    /// How many candidates there were.
    pub candidates: usize,
    /// Timed samples of all of them.
    pub samples: usize,
    /// Timed samples of the chosen one, paired with the default's.
    pub pairs: usize,
    /// Time relative to the default's, less one: −0.3 is 30% faster.
    pub difference: f64,
    /// The interval of that difference, at 95%.
    pub interval: [f64; 2],
    /// Typical time of the chosen candidate.
    pub chosen_ns: u64,
    /// Typical time of the default.
    pub default_ns: u64,
    /// The device's name.
    pub device: String,
    /// The driver's name and version.
    pub driver: String,
    /// The build of driver and compiler that was measured.
    #[serde(default)]
    pub build: String,
    /// Workgroups of the kernel's own shape that it was measured with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grid: Option<[u32; 3]>,
    /// When it was measured, in seconds since 1970.
    pub measured_at: u64,
    /// What was known before anything was measured, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prior: Option<String>,
    /// The fastest of the others, fastest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timings: Vec<Timed>,
    /// Candidates that failed or gave other results than the default, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<String>,
}

impl Evidence {
    /// How much it counts against other evidence: more samples count more, and a half for each quarter of a year that it is older.
    pub fn weight(&self, newest: u64) -> f64 {
        const HALF_LIFE: f64 = 90.0 * 86_400.0;
        let age = newest.saturating_sub(self.measured_at) as f64;
        (self.samples as f64 + 1.0) * (-age / HALF_LIFE * std::f64::consts::LN_2).exp()
    }
}

/// How to launch a program, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The winner, or the kernel's own launch where nothing is clearly faster.
    pub verdict: Verdict,
    /// Its owner wants exactly this: it is never measured again, evicted or replaced.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
    /// How to launch.
    #[serde(flatten)]
    pub candidate: Candidate,
    /// What it is about.
    pub subject: Subject,
    /// What was measured.
    pub evidence: Evidence,
    /// Other launches that others decided for, where the evidence disagrees, or that were decided for before the device became slow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rivals: Vec<Rival>,
}

/// What someone else decided for the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rival {
    /// How sure they were.
    pub verdict: Verdict,
    /// How they launch.
    #[serde(flatten)]
    pub candidate: Candidate,
    /// What they measured.
    pub evidence: Evidence,
}

/// Most timings and rejections that are kept with a decision, and most rivals.
const MOST_TIMINGS: usize = 12;
const MOST_REJECTED: usize = 8;
const MOST_RIVALS: usize = 3;
/// A device was faster where the same launch took this share less.
const FASTER: f64 = 0.1;
/// Reasons are cut after so many characters.
const LONGEST_REASON: usize = 300;

impl Decision {
    /// The decision that a campaign's outcome stands for.
    pub fn new(subject: Subject, candidates: &Candidates, outcome: &Outcome, measured: Measured) -> Self {
        let rejected = |(index, reason): &(usize, String)| {
            let reason: String = reason.chars().take(LONGEST_REASON).collect();
            format!("{}: {reason}", candidates.list[*index])
        };
        let mut timings: Vec<Timed> = outcome
            .timings
            .iter()
            .map(|timing| Timed {
                candidate: candidates.list[timing.candidate].clone(),
                ns: timing.ns,
                samples: timing.samples,
                interval: timing.interval,
            })
            .collect();
        timings.sort_by_key(|timed| timed.ns);
        timings.truncate(MOST_TIMINGS);
        Decision {
            verdict: outcome.verdict,
            pinned: false,
            candidate: candidates.list[outcome.chosen].clone(),
            subject,
            evidence: Evidence {
                source: measured.source,
                candidates: candidates.list.len(),
                samples: outcome.samples,
                pairs: outcome.pairs,
                difference: outcome.difference,
                interval: outcome.interval,
                chosen_ns: outcome.chosen_ns,
                default_ns: outcome.default_ns,
                device: measured.device,
                driver: measured.driver,
                build: measured.build,
                grid: measured.grid,
                measured_at: measured.at,
                prior: candidates.prior.clone(),
                timings,
                rejected: outcome.rejected.iter().take(MOST_REJECTED).map(rejected).collect(),
            },
            rivals: Vec::new(),
        }
    }

    /// A launch that nothing was measured for.
    pub fn written(subject: Subject, candidate: Candidate) -> Self {
        let evidence = Evidence { source: Source::Owner, candidates: 1, ..Evidence::default() };
        Decision { verdict: Verdict::Tie, pinned: false, candidate, subject, evidence, rivals: Vec::new() }
    }

    /// Keeps beside it what was decided before the device became slow.
    pub(crate) fn remember(&mut self, before: &Decision) {
        self.rivals = before.rivals.clone();
        self.rivals.insert(0, before.voice());
        self.rivals.truncate(MOST_RIVALS);
    }

    /// Decides as it was decided when the same took the least time, where that was less than now; the launch that was decided for until then.
    pub(crate) fn return_to_faster(&mut self) -> Option<Candidate> {
        let now = self.evidence.chosen_ns as f64;
        let is_faster = |rival: &Rival| {
            rival.evidence.build == self.evidence.build
                && rival.evidence.grid == self.evidence.grid
                && (rival.evidence.chosen_ns as f64) < (1.0 - FASTER) * now
        };
        let faster = self.rivals.iter().enumerate().filter(|(_, rival)| is_faster(rival));
        let (which, _) = faster.min_by_key(|(_, rival)| rival.evidence.chosen_ns)?;
        let until_now = self.voice();
        let rival = std::mem::replace(&mut self.rivals[which], until_now);
        let used = std::mem::replace(&mut self.candidate, rival.candidate);
        (self.verdict, self.evidence) = (rival.verdict, rival.evidence);
        Some(used)
    }

    fn voice(&self) -> Rival {
        Rival { verdict: self.verdict, candidate: self.candidate.clone(), evidence: self.evidence.clone() }
    }

    /// Takes in what someone else decided for the same: the better evidence decides, and where the two disagree the other is kept
    /// beside it. Taking in the same twice changes nothing, and the order does not matter.
    pub(crate) fn merge(&mut self, other: Decision) {
        if self.pinned || other.pinned {
            if !self.pinned {
                *self = other;
            }
            return;
        }
        let mut voices = vec![self.voice(), other.voice()];
        voices.append(&mut self.rivals);
        voices.extend(other.rivals);
        let newest = voices.iter().map(|voice| voice.evidence.measured_at).max().unwrap_or(0);
        // The heaviest first, and what is equally heavy in a fixed order.
        voices.sort_by(|a, b| {
            let (left, right) = (a.evidence.weight(newest), b.evidence.weight(newest));
            right.total_cmp(&left).then_with(|| a.candidate.to_string().cmp(&b.candidate.to_string()))
        });
        for voice in voices {
            if self.rivals.iter().all(|known| known.candidate != voice.candidate) {
                self.rivals.push(voice);
            }
        }
        self.rivals.truncate(MOST_RIVALS + 1);
        let first = self.rivals.remove(0);
        (self.verdict, self.candidate, self.evidence) = (first.verdict, first.candidate, first.evidence);
    }
}
