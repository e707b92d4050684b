//! What the caches of the processor can keep.

use std::num::NonZero;

/// Bytes that so many threads write from which on it is better to write past the caches: half as much again as their own caches hold. Whoever
/// reads them next finds little of them there, and on what all cores share it is no slower; the launch itself gains from half of it on.
pub(crate) fn streams_from(threads: NonZero<usize>) -> u64 {
    own_cache().map_or(u64::MAX, |bytes| (bytes + bytes / 2).saturating_mul(threads.get() as u64))
}

/// Bytes of the second cache of a core; `None` where the processor does not say.
#[cfg(target_arch = "x86_64")]
fn own_cache() -> Option<u64> {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    const AMD_EXTENDED: u32 = 0x8000_0000;
    let intel = if __cpuid(0).eax >= 4 { (0..8).find_map(|index| second(__cpuid_count(4, index))) } else { None };
    intel.or_else(|| {
        let amd = AMD_EXTENDED + 0x1d;
        (__cpuid(AMD_EXTENDED).eax >= amd).then(|| (0..8).find_map(|index| second(__cpuid_count(amd, index)))).flatten()
    })
}

/// The size of a cache of the second level that is not for instructions alone.
#[cfg(target_arch = "x86_64")]
fn second(found: std::arch::x86_64::CpuidResult) -> Option<u64> {
    let (kind, level) = (found.eax & 31, found.eax >> 5 & 7);
    let field = |first: u32, bits: u32| u64::from(found.ebx >> first & ((1 << bits) - 1)) + 1;
    let bytes = field(22, 10) * field(12, 10) * field(0, 12) * (u64::from(found.ecx) + 1);
    (matches!(kind, 1 | 3) && level == 2).then_some(bytes)
}

#[cfg(not(target_arch = "x86_64"))]
fn own_cache() -> Option<u64> {
    None
}
