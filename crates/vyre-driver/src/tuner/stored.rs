//! The tuner's whole file: the plain triples, and under the same keys what they rest on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use vyre_spec::Diagnostic;

use super::cache::{self, EVIDENCE, FILE};
use super::{Decision, TunerCache};
use crate::table_file::{MAX_TABLE_BYTES, SCHEMA};

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Stored {
    pub(super) cache: TunerCache,
    pub(super) decisions: BTreeMap<String, Decision>,
}

impl Stored {
    pub(super) fn load(path: &Path) -> Result<Stored, Diagnostic> {
        match FILE.read(path)? {
            Some(text) => Stored::decode(path, &text),
            None => Ok(Stored::default()),
        }
    }

    pub(super) fn decode(path: &Path, text: &str) -> Result<Stored, Diagnostic> {
        let (cache, section) = cache::decode(path, text)?;
        if section.is_empty() {
            return Ok(Stored { cache, decisions: BTreeMap::new() });
        }
        let mut parsed = FILE.parse(path, &section)?;
        let mut bad = Vec::new();
        let entries = match parsed.remove(EVIDENCE) {
            Some(toml::Value::Table(entries)) => entries,
            _ => toml::Table::new(),
        };
        bad.extend(parsed.keys().map(|name| (name.clone(), "is no triple and no evidence".to_owned())));
        let mut decisions = BTreeMap::new();
        for (key, value) in entries.into_iter().filter(|(key, _)| key != "schema") {
            match value.try_into::<Decision>() {
                Ok(decision) if decision.candidate.workgroup_size.contains(&0) => {
                    bad.push((key, "has a workgroup size of zero".to_owned()));
                }
                Ok(decision) if !is_sane(&decision) => {
                    bad.push((key, "has numbers that no measurement gives".to_owned()))
                }
                Ok(decision) => {
                    decisions.insert(key, decision);
                }
                Err(error) => bad.push((key, format!("can't be read: {}", error.message()))),
            }
        }
        match FILE.bad_entries(path, &bad) {
            Some(diagnostic) => Err(diagnostic),
            None => Ok(Stored { cache, decisions }),
        }
    }

    /// The file's text. What would make it too large to be read again goes: what was said besides the decisions first, then the
    /// oldest decisions, those in `keep` last; never pinned ones, nor triples without evidence, whose age nobody knows.
    pub(super) fn encode(&mut self, path: &Path, keep: &BTreeSet<String>) -> Result<String, Diagnostic> {
        // Evidence without its triple was taken back by hand.
        self.decisions.retain(|key, _| self.cache.entries.contains_key(key));
        let mut text = self.text(path)?;
        if text.len() as u64 <= MAX_TABLE_BYTES {
            return Ok(text);
        }
        for decision in self.decisions.values_mut() {
            decision.rivals.clear();
            decision.evidence.timings.clear();
            decision.evidence.rejected.clear();
        }
        text = self.text(path)?;
        while text.len() as u64 > MAX_TABLE_BYTES {
            let mut ages: Vec<(bool, u64, String)> = self
                .decisions
                .iter()
                .filter(|(_, decision)| !decision.pinned)
                .map(|(key, decision)| (keep.contains(key), decision.evidence.measured_at, key.clone()))
                .collect();
            if ages.is_empty() {
                return Ok(text);
            }
            // A quarter at a time, so that a full file is not written anew for each decision.
            ages.sort();
            for (_, _, key) in ages.iter().take(ages.len().div_ceil(4)) {
                self.decisions.remove(key);
                self.cache.entries.remove(key);
            }
            text = self.text(path)?;
        }
        Ok(text)
    }

    fn text(&self, path: &Path) -> Result<String, Diagnostic> {
        if self.decisions.is_empty() {
            return Ok(cache::encode(&self.cache, ""));
        }
        let unwritable =
            |error: toml::ser::Error| FILE.problem(FILE.unwritable, path, &format!("can't be written: {error}"));
        let mut entries = toml::Table::new();
        for (key, decision) in &self.decisions {
            entries.insert(key.clone(), toml::Value::try_from(decision).map_err(unwritable)?);
        }
        // The header stands first, whatever the writer would leave out.
        let section = toml::to_string(&toml::Table::from_iter([(EVIDENCE.to_owned(), toml::Value::Table(entries))]));
        let section = section.map_err(unwritable)?;
        Ok(cache::encode(&self.cache, &format!("[{EVIDENCE}]\nschema = {SCHEMA}\n\n{section}")))
    }
}

/// Files may have been written by anyone.
fn is_sane(decision: &Decision) -> bool {
    let finite = |values: &[f64]| values.iter().all(|value| value.is_finite());
    let evidence = |evidence: &super::Evidence| {
        finite(&[evidence.difference]) && finite(&evidence.interval) && evidence.candidates < 1 << 20
    };
    evidence(&decision.evidence) && decision.rivals.iter().all(|rival| evidence(&rival.evidence))
}
