//! The gate in front of foreign variants: none runs on a caller's data before it has given the program's results on copies of it.

use std::collections::HashMap;
use std::sync::Mutex;

use vyre_driver::routing::{difference, difference_within};
use vyre_driver::tuner::Candidate;
use vyre_driver::variant::{Code, Variant};
use vyre_driver::{DispatchConfig, VyreBackend};
use vyre_foundation::ValidProgram;
use vyre_spec::{Diagnostic, codes};

use super::bench::Bench;
use super::tuning::Asked;
use super::{Inner, lock};

/// What the gate has found, by program, configuration, device, sizes and variant.
#[derive(Default)]
pub(super) struct Gate {
    verdicts: Mutex<HashMap<Key, Result<(), String>>>,
}

/// Digests of program, constants, variant and device, and the sizes: a variant that agreed for some may be wrong for others.
type Key = ([[u8; 32]; 4], Vec<u64>);

/// Verdicts that an engine remembers.
const MOST_VERDICTS: usize = 4096;

impl Gate {
    /// What is known of a variant for a launch.
    pub(super) fn verdict(&self, asked: &Asked<'_>, variant: &Variant) -> Option<Result<(), String>> {
        lock(&self.verdicts).get(&key(asked, variant)).cloned()
    }

    pub(super) fn found(&self, asked: &Asked<'_>, variant: &Variant, verdict: Result<(), String>) {
        let mut verdicts = lock(&self.verdicts);
        if verdicts.len() >= MOST_VERDICTS {
            verdicts.clear();
        }
        verdicts.insert(key(asked, variant), verdict);
    }
}

fn key(asked: &Asked<'_>, variant: &Variant) -> Key {
    let device = asked.backend.capabilities().fingerprint.cache_key([0; 32]);
    let digests = [asked.program.fingerprint(), asked.config.specialization.digest(), variant.digest(), device];
    (digests, asked.plan.buffer_bytes.iter().copied().chain(asked.plan.domain).collect())
}

/// The variants that a caller leaves open and that a backend takes. A launch that may be stopped has only those that need not be compared
/// first and look whether they have to end: programs, where the compiler sees to it, and functions in short parts.
pub(super) fn open<'a>(asked: &Asked<'a>, interruptible: bool) -> impl Iterator<Item = &'a Variant> {
    let (backend, config) = (asked.backend, asked.config);
    let is_open = config.workgroup_override.is_none() && config.variant.is_none();
    let may_run = move |variant: &Variant| !interruptible || variant.is_stoppable();
    config.variants.iter().filter(move |variant| is_open && may_run(variant) && takes(&**backend, variant).is_ok())
}

/// Every backend runs programs.
fn takes(backend: &dyn VyreBackend, variant: &Variant) -> Result<(), String> {
    match variant.code() {
        Code::Program(..) => Ok(()),
        _ => backend.takes(variant),
    }
}

/// `None` when a candidate's results agree with those of the program's own launch.
pub(super) fn disagreement(
    program: &ValidProgram,
    config: &DispatchConfig,
    candidate: &Candidate,
    expected: &[Vec<u8>],
    results: &[Vec<u8>],
) -> Option<String> {
    match find(config, candidate) {
        Some(variant) => difference_within(program, variant.tolerance(), expected, results),
        None => difference(program, config.ulp_budget, expected, results),
    }
}

/// The variant that a candidate stands for.
pub(super) fn find<'a>(config: &'a DispatchConfig, candidate: &Candidate) -> Option<&'a Variant> {
    let id = candidate.variant.as_deref()?;
    config.variants.iter().find(|variant| variant.id() == id)
}

/// A variant in the place of the program's own launch.
pub(super) fn candidate(variant: &Variant, workgroup_size: [u32; 3]) -> Candidate {
    Candidate { variant: Some(variant.id()), ..Candidate::of_shape(workgroup_size) }
}

impl Inner {
    /// The variants that may run for a launch: those that are known to agree, and those that do so now on copies of these inputs.
    pub(super) fn agreeing_variants(
        &self,
        asked: &Asked<'_>,
        interruptible: bool,
        inputs: Option<&[&[u8]]>,
        is_wanted: &dyn Fn(&Variant) -> bool,
    ) -> Vec<Variant> {
        let mut agreeing = Vec::new();
        // The program's own results, once for all that are compared with them.
        let mut expected: Option<Result<Vec<Vec<u8>>, String>> = None;
        for variant in open(asked, interruptible).filter(|variant| is_wanted(variant)) {
            let verdict = match (self.gate.verdict(asked, variant), inputs) {
                (Some(verdict), _) => verdict,
                (None, _) if variant.is_vouched() => Ok(()),
                (None, None) => continue,
                (None, Some(inputs)) => {
                    let own = asked.plan.workgroup_size;
                    let mut bench = Bench::new(self, asked.backend, asked.program, inputs, asked.config);
                    let text = |error: vyre_driver::BackendError| error.message().to_owned();
                    let expected =
                        expected.get_or_insert_with(|| bench.results(&Candidate::of_shape(own)).map_err(text));
                    let verdict = match expected {
                        // The program fails by itself, which says nothing of the variant.
                        Err(_) => continue,
                        Ok(expected) => {
                            let candidate = candidate(variant, own);
                            bench.results(&candidate).map_err(text).and_then(|results| {
                                disagreement(asked.program, asked.config, &candidate, expected, &results)
                                    .map_or(Ok(()), Err)
                            })
                        }
                    };
                    self.judged(asked, variant, &verdict);
                    verdict
                }
            };
            if verdict.is_ok() {
                agreeing.push(variant.clone());
            }
        }
        agreeing
    }

    /// Remembers what came of a comparison, and tells the user of a variant that is not to be used.
    pub(super) fn judged(&self, asked: &Asked<'_>, variant: &Variant, verdict: &Result<(), String>) {
        self.gate.found(asked, variant, verdict.clone());
        if let Err(why) = verdict {
            let message = format!(
                "{variant} is not used for `{}` on `{}` at this size: {why}",
                asked.program.name(),
                asked.backend.id()
            );
            self.tuning.tell(Diagnostic::new(&codes::tuner::VARIANT_REJECTED, message));
        }
    }

    /// What became of each variant, in words.
    pub(super) fn explain_variants(
        &self,
        asked: &Asked<'_>,
        chosen: Option<&Candidate>,
        interruptible: bool,
    ) -> Vec<String> {
        let config = asked.config;
        let of = |variant: &Variant| {
            if chosen.is_some_and(|chosen| chosen.variant.as_deref() == Some(&variant.id())) {
                return "in use".to_owned();
            }
            if let Err(why) = takes(&**asked.backend, variant) {
                return format!("not used: {why}");
            }
            if !open(asked, interruptible).any(|open| open == variant) {
                return "not used: the launch may be stopped, or has its workgroups named by the caller".to_owned();
            }
            match self.gate.verdict(asked, variant) {
                Some(Ok(())) => "gives the same results, and is one of the candidates".to_owned(),
                Some(Err(why)) => format!("not used: {why}"),
                None if variant.is_vouched() => "one of the candidates; it is compared where it is tuned".to_owned(),
                None => "not compared yet".to_owned(),
            }
        };
        config.variants.iter().map(|variant| format!("{variant}: {}", of(variant))).collect()
    }
}
