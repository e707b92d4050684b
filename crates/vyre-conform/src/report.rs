use std::fmt;

use crate::execute::Outcome;

/// What a backend passed, failed, and could not run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Backend.
    pub backend: String,
    /// How many gave the expected results.
    pub passed: usize,
    /// Name and what was wrong.
    pub failed: Vec<(String, String)>,
    /// Name and what the device lacks.
    pub skipped: Vec<(String, String)>,
}

impl Report {
    pub(crate) fn new(backend: &str) -> Report {
        Report { backend: backend.to_owned(), ..Report::default() }
    }

    pub(crate) fn add(&mut self, name: String, outcome: &Outcome) {
        match outcome {
            Outcome::Same => self.passed += 1,
            Outcome::Refused(reason) => self.skipped.push((name, reason.clone())),
            Outcome::Different(difference) => self.failed.push((name, difference.to_string())),
            Outcome::Failed(problem) => self.failed.push((name, problem.clone())),
        }
    }

    /// Adds to the last failure.
    pub(crate) fn explain(&mut self, text: String) {
        if let Some((_, what)) = self.failed.last_mut() {
            what.push('\n');
            what.push_str(&text);
        }
    }

    /// Nothing failed, and something ran.
    pub fn is_good(&self) -> bool {
        self.failed.is_empty() && self.passed > 0
    }
}

/// Counts first; then what failed, in full; then why tests were skipped, each reason once.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (failed, skipped) = (self.failed.len(), self.skipped.len());
        writeln!(f, "{}: {} passed, {failed} failed, {skipped} skipped", self.backend, self.passed)?;
        for (name, what) in &self.failed {
            writeln!(f, "failed: {name}: {what}")?;
        }
        let mut reasons: Vec<&str> = self.skipped.iter().map(|(_, reason)| reason.as_str()).collect();
        reasons.sort_unstable();
        reasons.dedup();
        for reason in reasons {
            let names: Vec<&str> =
                self.skipped.iter().filter(|(_, r)| r == reason).map(|(name, _)| name.as_str()).collect();
            let shown = names[..names.len().min(6)].join(", ");
            let more = if names.len() > 6 { format!(" and {} more", names.len() - 6) } else { String::new() };
            writeln!(f, "skipped: {reason}: {shown}{more}")?;
        }
        Ok(())
    }
}
