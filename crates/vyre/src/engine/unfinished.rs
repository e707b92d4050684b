//! Campaigns that were interrupted: what they had measured, so that they go on where they were.

use std::collections::VecDeque;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use vyre_driver::tuner::{Candidates, TunerProgramKey};

use super::tuning::now;

/// The timings of a campaign in their order. A campaign does the same again when it is told the same.
#[derive(Serialize, Deserialize)]
pub(super) struct Unfinished {
    schema: u32,
    build: String,
    candidates: Vec<String>,
    at: u64,
    samples: VecDeque<(usize, u64)>,
}

const SCHEMA: u32 = 1;
const MOST_BYTES: u64 = 1 << 20;
/// What was measured longer ago says little about now.
const OLDEST: u64 = 86_400;

impl Unfinished {
    pub(super) fn new(build: String, candidates: &Candidates) -> Unfinished {
        let candidates = candidates.list.iter().map(ToString::to_string).collect();
        Unfinished { schema: SCHEMA, build, candidates, at: now(), samples: VecDeque::new() }
    }

    /// Where the timings of a launch are kept.
    pub(super) fn path(folder: &Path, key: &TunerProgramKey) -> PathBuf {
        folder.join("unfinished").join(format!("{key}.json"))
    }

    /// The timings that were taken of the same candidates by the same build, if they are not too old. A file that says anything else is of
    /// no use and no harm.
    pub(super) fn samples(&self, path: &Path) -> VecDeque<(usize, u64)> {
        let mut text = String::new();
        let read = fs::File::open(path).and_then(|file| file.take(MOST_BYTES).read_to_string(&mut text));
        let Ok(found) = read.map_err(|_| ()).and_then(|_| serde_json::from_str::<Unfinished>(&text).map_err(|_| ()))
        else {
            return VecDeque::new();
        };
        let same = found.schema == SCHEMA && found.build == self.build && found.candidates == self.candidates;
        if same && now().saturating_sub(found.at) < OLDEST { found.samples } else { VecDeque::new() }
    }

    pub(super) fn push(&mut self, candidate: usize, ns: u64) {
        self.samples.push_back((candidate, ns));
    }

    /// Keeps the timings for another time.
    pub(super) fn save(&self, path: &Path) -> std::io::Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let text = serde_json::to_string(self).map_err(std::io::Error::other)?;
        let beside = path.with_extension(format!("{}.tmp", std::process::id()));
        fs::write(&beside, text)?;
        fs::rename(&beside, path)
    }
}
