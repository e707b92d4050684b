//! Which way kernels run on this processor, and the environment variable that forces one.

use std::fmt;

use vyre_spec::{Diagnostic, codes};

use crate::native::Isa;

/// A way to run kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CpuPath {
    /// Machine code with AVX-512.
    Avx512,
    /// Machine code with AVX2.
    Avx2,
    /// Machine code with vectors of 128 bits, made by Cranelift for this processor. On x86-64 only with the feature `cranelift`.
    Cranelift,
    /// The column interpreter, on any machine.
    Interpret,
}

impl CpuPath {
    /// Every path, the fastest first.
    pub const ALL: [CpuPath; 4] = [CpuPath::Avx512, CpuPath::Avx2, CpuPath::Cranelift, CpuPath::Interpret];

    /// The word for it in `VYRE_CPU`.
    pub fn name(self) -> &'static str {
        match self {
            CpuPath::Avx512 => "avx512",
            CpuPath::Avx2 => "avx2",
            CpuPath::Cranelift => "cranelift",
            CpuPath::Interpret => "interpret",
        }
    }

    /// This machine can take it.
    pub fn is_here(self) -> bool {
        self.isa().is_none_or(Isa::is_here)
    }

    /// The instruction set of a path with machine code.
    pub(crate) fn isa(self) -> Option<Isa> {
        match self {
            CpuPath::Avx512 => Some(Isa::Avx512),
            CpuPath::Avx2 => Some(Isa::Avx2),
            CpuPath::Cranelift => Some(Isa::Simd128),
            CpuPath::Interpret => None,
        }
    }

    /// The fastest path of this machine.
    pub fn best() -> CpuPath {
        CpuPath::ALL.into_iter().find(|path| path.is_here()).unwrap_or(CpuPath::Interpret)
    }

    /// The path that `VYRE_CPU` names, else the fastest. A word that names none, or one that this machine can't take, is an
    /// error.
    pub fn from_env() -> Result<CpuPath, Diagnostic> {
        match std::env::var_os("VYRE_CPU") {
            None => Ok(CpuPath::best()),
            Some(word) => CpuPath::from_word(&word.to_string_lossy()),
        }
    }

    /// The path with this name, when this machine can take it.
    pub fn from_word(word: &str) -> Result<CpuPath, Diagnostic> {
        let Some(path) = CpuPath::ALL.into_iter().find(|path| path.name() == word) else {
            let names: Vec<_> = CpuPath::ALL.iter().map(|path| path.name()).collect();
            return Err(Diagnostic::new(
                &codes::cpu::UNKNOWN_PATH,
                format!("`VYRE_CPU` is `{word}`; the words are {}", names.join(", ")),
            ));
        };
        path.here()
    }

    /// The path itself, when this machine and this build can take it.
    pub(crate) fn here(self) -> Result<CpuPath, Diagnostic> {
        if self.is_here() {
            return Ok(self);
        }
        if self == CpuPath::Cranelift && cfg!(all(unix, target_arch = "x86_64", not(feature = "cranelift"))) {
            let message = "this build of vyre does not contain cranelift";
            return Err(Diagnostic::new(&codes::cpu::ABSENT_PATH, message)
                .with_fix("Unset `VYRE_CPU`, or build vyre with the feature `cranelift`."));
        }
        Err(Diagnostic::new(&codes::cpu::ABSENT_PATH, format!("this processor does not have {self}")))
    }
}

impl fmt::Display for CpuPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_understood_or_refused() {
        assert_eq!(CpuPath::from_word("interpret").unwrap(), CpuPath::Interpret);
        let problem = CpuPath::from_word("turbo").unwrap_err();
        assert_eq!(problem.code.id, codes::cpu::UNKNOWN_PATH.id);
        assert!(problem.message.contains("interpret"), "{problem}");
        assert!(CpuPath::best().is_here());
    }
}
