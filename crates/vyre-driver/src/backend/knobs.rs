use std::fmt;

use serde::{Deserialize, Serialize};

/// How code is made where there is a choice that changes its speed and never what it computes. What is not set is as the backend
/// thinks best, and what a backend has no use for it leaves alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Knobs {
    /// Neighbouring invocations along each axis that one thread does. The workgroup size counts all of them. A kernel whose launch
    /// is not proven to be free is refused.
    #[serde(skip_serializing_if = "is_single")]
    pub merged: [u32; 3],
    /// Rounds of a loop over memory that are taken at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounds: Option<u32>,
    /// Most registers of a thread, on devices where more threads run at once when each has fewer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registers: Option<u32>,
    /// Parts that a launch has for each processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts: Option<u32>,
}

impl Default for Knobs {
    fn default() -> Self {
        Knobs { merged: [1; 3], rounds: None, registers: None, parts: None }
    }
}

fn is_single(merged: &[u32; 3]) -> bool {
    *merged == [1; 3]
}

impl Knobs {
    /// Nothing is set.
    pub fn is_default(&self) -> bool {
        *self == Knobs::default()
    }

    /// One thread does several invocations.
    pub fn merges(&self) -> bool {
        !is_single(&self.merged)
    }

    /// Every setting in 24 bytes: different knobs have different bytes.
    pub fn bytes(&self) -> [u8; 24] {
        let [x, y, z] = self.merged;
        // A setting of zero is none that a backend has, so that it can stand for nothing.
        let words = [x, y, z, self.rounds.unwrap_or(0), self.registers.unwrap_or(0), self.parts.unwrap_or(0)];
        let mut bytes = [0; 24];
        for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Where they stand among others, neighbours beside each other: settings that are twice as large are one step away.
    pub fn place(&self) -> [u32; 5] {
        let log = |setting: u32| setting.max(1).ilog2();
        // What is not set lies in the middle.
        let or = |setting: Option<u32>, middle: u32| setting.map_or(middle, log);
        let [x, y, z] = self.merged.map(log);
        [x, y + z, or(self.rounds, 2), or(self.registers, 7), or(self.parts, 4)]
    }
}

/// `1 x 4 in one, 8 rounds at once`; nothing where nothing is set.
impl fmt::Display for Knobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        match self.merged {
            [1, 1, 1] => {}
            [x, 1, 1] => parts.push(format!("{x} in one")),
            [x, y, 1] => parts.push(format!("{x} x {y} in one")),
            [x, y, z] => parts.push(format!("{x} x {y} x {z} in one")),
        }
        parts.extend(self.rounds.map(|rounds| match rounds {
            0 | 1 => "rounds one by one".to_owned(),
            rounds => format!("{rounds} rounds at once"),
        }));
        parts.extend(self.registers.map(|registers| format!("{registers} registers")));
        parts.extend(self.parts.map(|each| format!("{each} parts each")));
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_knobs_have_different_bytes_and_words() {
        let plain = Knobs::default();
        let all = [
            plain,
            Knobs { merged: [2, 1, 1], ..plain },
            Knobs { merged: [1, 2, 1], ..plain },
            Knobs { rounds: Some(8), ..plain },
            Knobs { registers: Some(8), ..plain },
            Knobs { parts: Some(8), ..plain },
        ];
        for (at, one) in all.iter().enumerate() {
            for other in &all[..at] {
                assert!(one.bytes() != other.bytes() && one.to_string() != other.to_string(), "{one} {other}");
            }
        }
        assert!(plain.is_default() && plain.to_string().is_empty());
        assert_eq!(all[2].to_string(), "1 x 2 in one");
    }
}
