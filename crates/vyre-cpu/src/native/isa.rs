//! Instruction sets that code is made for.

use super::asm::Len;

/// What vectors code is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Isa {
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ, VL and CD.
    Avx512,
    /// Vectors of 128 bits on any processor that Cranelift knows.
    Simd128,
}

impl Isa {
    /// Vector registers.
    pub(super) fn registers(self) -> u8 {
        match self {
            Isa::Avx512 => 32,
            Isa::Avx2 => 16,
            Isa::Simd128 if cfg!(target_arch = "x86_64") => 16,
            Isa::Simd128 => 32,
        }
    }

    /// Lanes of 32 bits in a vector.
    pub(crate) fn lanes(self) -> u32 {
        match self {
            Isa::Avx2 => 8,
            Isa::Avx512 => 16,
            Isa::Simd128 => 4,
        }
    }

    /// Width of a vector.
    pub(super) fn len(self) -> Len {
        match self {
            Isa::Avx512 => Len::L512,
            Isa::Avx2 => Len::L256,
            Isa::Simd128 => Len::L128,
        }
    }

    /// It has unsigned and 64-bit forms of what others have only for signed 32-bit lanes.
    pub(super) fn is_rich(self) -> bool {
        self != Isa::Avx2
    }

    /// This machine has it.
    #[cfg(all(unix, target_arch = "x86_64"))]
    pub(crate) fn is_here(self) -> bool {
        let avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
            && is_x86_feature_detected!("bmi1");
        match self {
            Isa::Avx2 => avx2,
            Isa::Avx512 => {
                avx2 && is_x86_feature_detected!("bmi2")
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512cd")
            }
            Isa::Simd128 => super::clif::Target::host().is_some(),
        }
    }

    /// This machine has it.
    #[cfg(all(unix, any(target_arch = "aarch64", target_arch = "riscv64")))]
    pub(crate) fn is_here(self) -> bool {
        self == Isa::Simd128 && super::clif::Target::host().is_some()
    }

    /// This machine has it.
    #[cfg(not(all(unix, any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))))]
    pub(crate) fn is_here(self) -> bool {
        false
    }
}
