use std::borrow::Borrow;
use std::fmt;

use vyre_foundation::ir::Program;

use crate::DispatchConfig;

/// What is known of a dispatch before it runs and changes which launch is best.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StaticProgramShape {
    /// Workgroup size that the program declares.
    pub workgroup_size: [u32; 3],
    /// Number of workgroups, where it is fixed.
    pub workgroup_count: Option<[u32; 3]>,
    /// Bytes of all results.
    pub output_bytes: u64,
    /// Bytes of each buffer that is only read, in binding order, where they are known: how much is done for a result may depend on them alone.
    pub input_bytes: Vec<u64>,
}

impl StaticProgramShape {
    /// The shape of a program's dispatch with so many workgroups and bytes of results.
    pub fn new(program: &Program, workgroup_count: Option<[u32; 3]>, output_bytes: u64) -> Self {
        StaticProgramShape {
            workgroup_size: program.workgroup_size(),
            workgroup_count,
            output_bytes,
            input_bytes: Vec::new(),
        }
    }

    /// The class of sizes that this one belongs to, by its largest member: what is decided for one size of a class holds for the
    /// others, which differ by less than a factor of two along every axis.
    #[must_use]
    pub fn class(self) -> Self {
        let up = |count: u32| count.checked_next_power_of_two().unwrap_or(u32::MAX);
        let up_bytes = |bytes: u64| bytes.checked_next_power_of_two().unwrap_or(u64::MAX);
        StaticProgramShape {
            workgroup_count: self.workgroup_count.map(|count| count.map(up)),
            output_bytes: up_bytes(self.output_bytes),
            input_bytes: self.input_bytes.into_iter().map(up_bytes).collect(),
            ..self
        }
    }
}

/// The name under which a decision is stored: `v1-` and 64 hex digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TunerProgramKey(String);

impl TunerProgramKey {
    /// The key of a program in a shape. Equal programs in equal shapes have equal keys in every process.
    pub fn from_program(program: &Program, shape: impl Borrow<StaticProgramShape>) -> Self {
        let shape = shape.borrow();
        // Every part has a fixed length, so that no two different inputs can give the same bytes.
        let mut hasher = blake3::Hasher::new_derive_key("vyre tuner program key v1");
        hasher.update(&program.fingerprint());
        let words = |hasher: &mut blake3::Hasher, words: [u32; 3]| {
            for word in words {
                hasher.update(&word.to_le_bytes());
            }
        };
        words(&mut hasher, shape.workgroup_size);
        hasher.update(&[u8::from(shape.workgroup_count.is_some())]);
        words(&mut hasher, shape.workgroup_count.unwrap_or_default());
        hasher.update(&shape.output_bytes.to_le_bytes());
        // The last part, so that its length tells how many there are.
        for bytes in &shape.input_bytes {
            hasher.update(&bytes.to_le_bytes());
        }
        TunerProgramKey(format!("v1-{}", hasher.finalize().to_hex()))
    }

    /// The key of a dispatch under a configuration: [`TunerProgramKey::from_program`] where the configuration leaves the program as
    /// it is. Other constants, another profile or a tolerance for floats are other decisions: what agreed within a tolerance must
    /// never be used where results are to be exact.
    pub fn of_dispatch(program: &Program, shape: impl Borrow<StaticProgramShape>, config: &DispatchConfig) -> Self {
        let plain = TunerProgramKey::from_program(program, shape);
        match policy(config) {
            None => plain,
            Some(policy) => {
                let mut hasher = blake3::Hasher::new_derive_key("vyre tuner dispatch key v1");
                hasher.update(plain.0.as_bytes());
                hasher.update(&policy);
                TunerProgramKey(format!("v1-{}", hasher.finalize().to_hex()))
            }
        }
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What all sizes of a program under a configuration share, in 32 hex digits: a decision for one is a first guess for the others.
pub fn family(program: &Program, config: &DispatchConfig) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("vyre tuner family v1");
    hasher.update(&program.fingerprint());
    hasher.update(&policy(config).unwrap_or_default());
    hasher.finalize().to_hex()[..32].to_owned()
}

/// What of a configuration changes results or code; `None` where it changes nothing.
fn policy(config: &DispatchConfig) -> Option<[u8; 32]> {
    let knobs = config.knobs;
    if config.specialization.is_empty()
        && config.ulp_budget.is_none()
        && config.profile.is_none()
        && config.variants.is_empty()
        && knobs.is_default()
    {
        return None;
    }
    let mut hasher = blake3::Hasher::new_derive_key("vyre tuner policy v1");
    hasher.update(&config.specialization.digest());
    hasher.update(&[u8::from(config.ulp_budget.is_some()), config.ulp_budget.unwrap_or(0)]);
    let profile = config.profile.as_deref();
    hasher.update(&[u8::from(profile.is_some())]);
    hasher.update(profile.unwrap_or_default().as_bytes());
    if !knobs.is_default() {
        hasher.update(&knobs.bytes());
    }
    for variant in &config.variants {
        hasher.update(&variant.digest());
    }
    Some(*hasher.finalize().as_bytes())
}

impl AsRef<str> for TunerProgramKey {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TunerProgramKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<TunerProgramKey> for String {
    fn from(key: TunerProgramKey) -> String {
        key.0
    }
}
