use std::collections::BTreeMap;
use std::time::Duration;

use vyre_foundation::ir::Specialization;

use super::Knobs;
use crate::specialization::SpecMap;
use crate::variant::Variant;

/// How to run one dispatch. Everything is optional.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DispatchConfig {
    /// Name of a set of settings that a backend knows; part of the pipeline key.
    pub profile: Option<String>,
    /// Units in the last place that floats may differ from the reference, where a backend can trade them for speed.
    pub ulp_budget: Option<u8>,
    /// Longest time the dispatch may take.
    pub timeout: Option<Duration>,
    /// Name of the dispatch in traces and messages.
    pub label: Option<String>,
    /// Most bytes that all results together may have.
    pub max_output_bytes: Option<usize>,
    /// Replaces the program's workgroup size.
    pub workgroup_override: Option<[u32; 3]>,
    /// Replaces the number of workgroups; comes before `domain_override`.
    pub grid_override: Option<[u32; 3]>,
    /// Replaces the number of invocations along each axis, rounded up to whole workgroups of whatever size.
    pub domain_override: Option<[u64; 3]>,
    /// Values for the program's specialization constants.
    pub specialization: SpecMap,
    /// How the code is made; who sets them gets exactly these.
    pub knobs: Knobs,
    /// Elements of results whose length is open, by buffer name.
    pub output_elements: BTreeMap<String, u64>,
    /// Other implementations that the tuner may choose from, each where its backend is.
    pub variants: Vec<Variant>,
    /// The one that runs instead of the program; the engine sets it to what was chosen.
    pub variant: Option<Variant>,
}

/// What a pipeline is compiled for, besides the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompileOptions {
    /// Values for the program's specialization constants, already checked against it.
    pub specialization: Specialization,
    /// Replaces the program's workgroup size.
    pub workgroup_size: Option<[u32; 3]>,
    /// See [`DispatchConfig::ulp_budget`].
    pub ulp_budget: Option<u8>,
    /// See [`DispatchConfig::profile`].
    pub profile: Option<String>,
    /// See [`DispatchConfig::knobs`].
    pub knobs: Knobs,
    /// What runs instead of the program.
    pub variant: Option<Variant>,
    /// Launches may have a timeout, so loops that are not proven to end must be stoppable.
    pub interruptible: bool,
    /// Name for traces and messages.
    pub label: Option<String>,
}
