use std::borrow::Borrow;
use std::fmt;

use vyre_foundation::ir::Program;

/// What is known of a dispatch before it runs and changes which launch is best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StaticProgramShape {
    /// Workgroup size that the program declares.
    pub workgroup_size: [u32; 3],
    /// Number of workgroups, where it is fixed.
    pub workgroup_count: Option<[u32; 3]>,
    /// Bytes of all results.
    pub output_bytes: u64,
}

impl StaticProgramShape {
    /// The shape of a program's dispatch with so many workgroups and bytes of results.
    pub fn new(program: &Program, workgroup_count: Option<[u32; 3]>, output_bytes: u64) -> Self {
        StaticProgramShape { workgroup_size: program.workgroup_size(), workgroup_count, output_bytes }
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
        TunerProgramKey(format!("v1-{}", hasher.finalize().to_hex()))
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
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
