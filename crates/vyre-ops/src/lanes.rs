//! Registers of 8 or 16 f32 for functions that have to say which instructions they mean.

#![allow(unsafe_code, reason = "instructions that not every processor has, and addresses")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "blocks in unsafe functions stand on what their callers promise")]
#![allow(clippy::needless_range_loop, reason = "registers are named by numbers that the compiler knows")]

use std::arch::x86_64::*;

/// A register of f32.
///
/// # Safety
/// Whoever calls any of this runs on a processor that has [its instructions](Lanes::are_here), in a function that is compiled for them, and
/// gives addresses of as many numbers as a register has.
pub(crate) trait Lanes: Copy {
    const COUNT: usize;

    fn are_here() -> bool;

    unsafe fn splat(value: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    /// Past the caches, to an address that is a multiple of a register's bytes. [`written`] comes before anybody reads it.
    unsafe fn store_past(self, to: *mut f32);
    unsafe fn plus(self, other: Self) -> Self;
    unsafe fn minus(self, other: Self) -> Self;
    unsafe fn times(self, other: Self) -> Self;
    /// `self * other + third`, rounded once.
    unsafe fn times_plus(self, other: Self, third: Self) -> Self;
    /// `self * other - third`, rounded once.
    unsafe fn times_minus(self, other: Self, third: Self) -> Self;
    unsafe fn negated(self) -> Self;
    /// The first [`Lanes::COUNT`] become a table with rows and columns swapped.
    unsafe fn transpose(rows: &mut [Self; 16]);
    /// Every second number of two registers behind each other, from the first and from the second on.
    unsafe fn apart(first: Self, second: Self) -> [Self; 2];
    /// Numbers of two registers in turn.
    unsafe fn in_turn(even: Self, odd: Self) -> [Self; 2];
    /// As many runs of 8 numbers as a register has lanes: the first of all runs, the second of all, and so on.
    unsafe fn runs(from: *const f32) -> [Self; 8];
    /// The same the other way round.
    unsafe fn put_runs(runs: [Self; 8], to: *mut f32);
    /// Each number `BY` lanes further (1, 2, 4 or, of 16, 8), and the last ones of the register before in front.
    unsafe fn shifted<const BY: usize>(before: Self, own: Self) -> Self;
    /// The number of the last lane.
    unsafe fn last(self) -> f32;
    /// Half of the bits of each number, taken from these.
    unsafe fn less_half_of_bits(self, from: u32) -> Self;
    /// Each number whose neighbour in `other` is greater than in `limit`, and 0 for the rest.
    unsafe fn where_greater(self, other: Self, limit: Self) -> Self;
}

/// Where numbers begin that several threads work on.
#[derive(Clone, Copy)]
pub(crate) struct Shared(*mut f32);

// SAFETY: it is an address; whoever uses what is there has promised that it is nobody else's.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    pub(crate) fn of(first: *mut f32) -> Shared {
        Shared(first)
    }

    /// The address of a number, of which the caller knows that it is there.
    #[inline(always)]
    pub(crate) unsafe fn at(self, index: usize) -> *mut f32 {
        unsafe { self.0.add(index) }
    }

    /// It begins at a line of memory.
    pub(crate) fn is_at_line(self) -> bool {
        self.0.addr().is_multiple_of(64)
    }
}

/// Bytes that each thread writes from which on it is better to write past the caches: half as much again as a core's own cache has on servers.
const PAST_CACHES: usize = 3 << 20;

/// So many bytes are better written past the caches by so many threads.
pub(crate) fn goes_past(bytes: usize, threads: usize) -> bool {
    bytes / PAST_CACHES >= threads
}

/// Everything that was written past the caches is seen before what follows.
pub(crate) fn written() {
    // SAFETY: every processor of this kind has it.
    unsafe { _mm_sfence() }
}

/// Says that a line of memory will be read soon.
#[inline(always)]
pub(crate) fn soon_read(at: *const f32) {
    // SAFETY: no address can make a prefetch fail.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) }
}

impl Lanes for __m512 {
    const COUNT: usize = 16;

    fn are_here() -> bool {
        is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq")
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> __m512 {
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m512 {
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        unsafe { _mm512_storeu_ps(to, self) }
    }

    #[inline(always)]
    unsafe fn store_past(self, to: *mut f32) {
        unsafe { _mm512_stream_ps(to, self) }
    }

    #[inline(always)]
    unsafe fn plus(self, other: __m512) -> __m512 {
        unsafe { _mm512_add_ps(self, other) }
    }

    #[inline(always)]
    unsafe fn minus(self, other: __m512) -> __m512 {
        unsafe { _mm512_sub_ps(self, other) }
    }

    #[inline(always)]
    unsafe fn times(self, other: __m512) -> __m512 {
        unsafe { _mm512_mul_ps(self, other) }
    }

    #[inline(always)]
    unsafe fn times_plus(self, other: __m512, third: __m512) -> __m512 {
        unsafe { _mm512_fmadd_ps(self, other, third) }
    }

    #[inline(always)]
    unsafe fn times_minus(self, other: __m512, third: __m512) -> __m512 {
        unsafe { _mm512_fmsub_ps(self, other, third) }
    }

    #[inline(always)]
    unsafe fn negated(self) -> __m512 {
        unsafe { _mm512_xor_ps(self, _mm512_set1_ps(-0.0)) }
    }

    #[inline(always)]
    unsafe fn transpose(rows: &mut [__m512; 16]) {
        unsafe {
            let mut half = *rows;
            for at in 0..8 {
                half[2 * at] = _mm512_unpacklo_ps(rows[2 * at], rows[2 * at + 1]);
                half[2 * at + 1] = _mm512_unpackhi_ps(rows[2 * at], rows[2 * at + 1]);
            }
            // In each quarter of `whole[4 * at + i]` there is column `i` of that quarter, of rows `4 * at` to `4 * at + 3`.
            let mut whole = half;
            for at in 0..4 {
                for pair in 0..2 {
                    let low = _mm512_castps_pd(half[4 * at + pair]);
                    let high = _mm512_castps_pd(half[4 * at + pair + 2]);
                    whole[4 * at + 2 * pair] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
                    whole[4 * at + 2 * pair + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
                }
            }
            for i in 0..4 {
                let [a, b, c, d] = [whole[i], whole[4 + i], whole[8 + i], whole[12 + i]];
                let (even, odd) = (_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b));
                let (even_high, odd_high) = (_mm512_shuffle_f32x4::<0x88>(c, d), _mm512_shuffle_f32x4::<0xdd>(c, d));
                rows[i] = _mm512_shuffle_f32x4::<0x88>(even, even_high);
                rows[4 + i] = _mm512_shuffle_f32x4::<0x88>(odd, odd_high);
                rows[8 + i] = _mm512_shuffle_f32x4::<0xdd>(even, even_high);
                rows[12 + i] = _mm512_shuffle_f32x4::<0xdd>(odd, odd_high);
            }
        }
    }

    #[inline(always)]
    unsafe fn apart(first: __m512, second: __m512) -> [__m512; 2] {
        unsafe {
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
            [_mm512_permutex2var_ps(first, even, second), _mm512_permutex2var_ps(first, odd, second)]
        }
    }

    #[inline(always)]
    unsafe fn in_turn(even: __m512, odd: __m512) -> [__m512; 2] {
        unsafe {
            let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            let high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
            [_mm512_permutex2var_ps(even, low, odd), _mm512_permutex2var_ps(even, high, odd)]
        }
    }

    #[inline(always)]
    unsafe fn runs(from: *const f32) -> [__m512; 8] {
        unsafe {
            // Runs four apart are the halves of a register, so that quarters end up in order.
            let mut rows = [_mm512_setzero_ps(); 8];
            for (at, row) in rows.iter_mut().enumerate() {
                let run = from.add(8 * (at + at / 4 * 4));
                let low = _mm512_castps256_ps512(_mm256_loadu_ps(run));
                *row = _mm512_insertf32x8::<1>(low, _mm256_loadu_ps(run.add(32)));
            }
            quarters(&mut rows);
            let mut all = rows;
            for i in 0..4 {
                all[i] = _mm512_shuffle_f32x4::<0x88>(rows[i], rows[4 + i]);
                all[4 + i] = _mm512_shuffle_f32x4::<0xdd>(rows[i], rows[4 + i]);
            }
            all
        }
    }

    #[inline(always)]
    unsafe fn put_runs(runs: [__m512; 8], to: *mut f32) {
        unsafe {
            let low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
            let high = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
            let mut rows = runs;
            for i in 0..4 {
                rows[i] = _mm512_permutex2var_ps(runs[i], low, runs[4 + i]);
                rows[4 + i] = _mm512_permutex2var_ps(runs[i], high, runs[4 + i]);
            }
            quarters(&mut rows);
            for (at, row) in rows.iter().enumerate() {
                let run = to.add(8 * (at + at / 4 * 4));
                _mm256_storeu_ps(run, _mm512_castps512_ps256(*row));
                _mm256_storeu_ps(run.add(32), _mm512_extractf32x8_ps::<1>(*row));
            }
        }
    }

    #[inline(always)]
    unsafe fn shifted<const BY: usize>(before: __m512, own: __m512) -> __m512 {
        unsafe {
            let (before, own) = (_mm512_castps_si512(before), _mm512_castps_si512(own));
            _mm512_castsi512_ps(match BY {
                1 => _mm512_alignr_epi32::<15>(own, before),
                2 => _mm512_alignr_epi32::<14>(own, before),
                4 => _mm512_alignr_epi32::<12>(own, before),
                _ => _mm512_alignr_epi32::<8>(own, before),
            })
        }
    }

    #[inline(always)]
    unsafe fn last(self) -> f32 {
        unsafe { _mm_cvtss_f32(_mm_permute_ps::<3>(_mm512_extractf32x4_ps::<3>(self))) }
    }

    #[inline(always)]
    unsafe fn less_half_of_bits(self, from: u32) -> __m512 {
        unsafe {
            let half = _mm512_srli_epi32::<1>(_mm512_castps_si512(self));
            _mm512_castsi512_ps(_mm512_sub_epi32(_mm512_set1_epi32(from as i32), half))
        }
    }

    #[inline(always)]
    unsafe fn where_greater(self, other: __m512, limit: __m512) -> __m512 {
        unsafe { _mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(other, limit), self) }
    }
}

/// In each quarter of a register, rows and columns of four such registers are swapped.
#[inline(always)]
unsafe fn quarters(rows: &mut [__m512; 8]) {
    unsafe {
        let mut half = *rows;
        for at in 0..4 {
            half[2 * at] = _mm512_unpacklo_ps(rows[2 * at], rows[2 * at + 1]);
            half[2 * at + 1] = _mm512_unpackhi_ps(rows[2 * at], rows[2 * at + 1]);
        }
        for at in 0..2 {
            for pair in 0..2 {
                let low = _mm512_castps_pd(half[4 * at + pair]);
                let high = _mm512_castps_pd(half[4 * at + pair + 2]);
                rows[4 * at + 2 * pair] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
                rows[4 * at + 2 * pair + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
            }
        }
    }
}

impl Lanes for __m256 {
    const COUNT: usize = 8;

    fn are_here() -> bool {
        is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> __m256 {
        unsafe { _mm256_set1_ps(value) }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m256 {
        unsafe { _mm256_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        unsafe { _mm256_storeu_ps(to, self) }
    }

    #[inline(always)]
    unsafe fn store_past(self, to: *mut f32) {
        unsafe { _mm256_stream_ps(to, self) }
    }

    #[inline(always)]
    unsafe fn plus(self, other: __m256) -> __m256 {
        unsafe { _mm256_add_ps(self, other) }
    }

    #[inline(always)]
    unsafe fn minus(self, other: __m256) -> __m256 {
        unsafe { _mm256_sub_ps(self, other) }
    }

    #[inline(always)]
    unsafe fn times(self, other: __m256) -> __m256 {
        unsafe { _mm256_mul_ps(self, other) }
    }

    #[inline(always)]
    unsafe fn times_plus(self, other: __m256, third: __m256) -> __m256 {
        unsafe { _mm256_fmadd_ps(self, other, third) }
    }

    #[inline(always)]
    unsafe fn times_minus(self, other: __m256, third: __m256) -> __m256 {
        unsafe { _mm256_fmsub_ps(self, other, third) }
    }

    #[inline(always)]
    unsafe fn negated(self) -> __m256 {
        unsafe { _mm256_xor_ps(self, _mm256_set1_ps(-0.0)) }
    }

    #[inline(always)]
    unsafe fn transpose(rows: &mut [__m256; 16]) {
        unsafe {
            let mut half = *rows;
            for at in 0..4 {
                half[2 * at] = _mm256_unpacklo_ps(rows[2 * at], rows[2 * at + 1]);
                half[2 * at + 1] = _mm256_unpackhi_ps(rows[2 * at], rows[2 * at + 1]);
            }
            let mut whole = half;
            for at in 0..2 {
                for pair in 0..2 {
                    let low = _mm256_castps_pd(half[4 * at + pair]);
                    let high = _mm256_castps_pd(half[4 * at + pair + 2]);
                    whole[4 * at + 2 * pair] = _mm256_castpd_ps(_mm256_unpacklo_pd(low, high));
                    whole[4 * at + 2 * pair + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(low, high));
                }
            }
            for i in 0..4 {
                rows[i] = _mm256_permute2f128_ps::<0x20>(whole[i], whole[4 + i]);
                rows[4 + i] = _mm256_permute2f128_ps::<0x31>(whole[i], whole[4 + i]);
            }
        }
    }

    #[inline(always)]
    unsafe fn apart(first: __m256, second: __m256) -> [__m256; 2] {
        unsafe {
            let even = _mm256_castps_pd(_mm256_shuffle_ps::<0x88>(first, second));
            let odd = _mm256_castps_pd(_mm256_shuffle_ps::<0xdd>(first, second));
            [
                _mm256_castpd_ps(_mm256_permute4x64_pd::<0xd8>(even)),
                _mm256_castpd_ps(_mm256_permute4x64_pd::<0xd8>(odd)),
            ]
        }
    }

    #[inline(always)]
    unsafe fn in_turn(even: __m256, odd: __m256) -> [__m256; 2] {
        unsafe {
            let (low, high) = (_mm256_unpacklo_ps(even, odd), _mm256_unpackhi_ps(even, odd));
            [_mm256_permute2f128_ps::<0x20>(low, high), _mm256_permute2f128_ps::<0x31>(low, high)]
        }
    }

    #[inline(always)]
    unsafe fn runs(from: *const f32) -> [__m256; 8] {
        unsafe {
            let mut rows = [_mm256_setzero_ps(); 16];
            for at in 0..8 {
                rows[at] = _mm256_loadu_ps(from.add(8 * at));
            }
            Self::transpose(&mut rows);
            let [a, b, c, d, e, f, g, h, ..] = rows;
            [a, b, c, d, e, f, g, h]
        }
    }

    #[inline(always)]
    unsafe fn put_runs(runs: [__m256; 8], to: *mut f32) {
        unsafe {
            let mut rows = [runs[0]; 16];
            rows[..8].copy_from_slice(&runs);
            Self::transpose(&mut rows);
            for at in 0..8 {
                _mm256_storeu_ps(to.add(8 * at), rows[at]);
            }
        }
    }

    #[inline(always)]
    unsafe fn shifted<const BY: usize>(before: __m256, own: __m256) -> __m256 {
        unsafe {
            let between = _mm256_castps_si256(_mm256_permute2f128_ps::<0x21>(before, own));
            let own = _mm256_castps_si256(own);
            _mm256_castsi256_ps(match BY {
                1 => _mm256_alignr_epi8::<12>(own, between),
                2 => _mm256_alignr_epi8::<8>(own, between),
                _ => between,
            })
        }
    }

    #[inline(always)]
    unsafe fn last(self) -> f32 {
        unsafe { _mm_cvtss_f32(_mm_permute_ps::<3>(_mm256_extractf128_ps::<1>(self))) }
    }

    #[inline(always)]
    unsafe fn less_half_of_bits(self, from: u32) -> __m256 {
        unsafe {
            let half = _mm256_srli_epi32::<1>(_mm256_castps_si256(self));
            _mm256_castsi256_ps(_mm256_sub_epi32(_mm256_set1_epi32(from as i32), half))
        }
    }

    #[inline(always)]
    unsafe fn where_greater(self, other: __m256, limit: __m256) -> __m256 {
        unsafe { _mm256_and_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(other, limit), self) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers of so many registers behind each other.
    unsafe fn registers<V: Lanes>(count: usize) -> [V; 16] {
        let numbers: Vec<f32> = (0..count * V::COUNT).map(|at| at as f32).collect();
        unsafe {
            let mut all = [V::splat(0.0); 16];
            for (at, register) in all.iter_mut().enumerate().take(count) {
                *register = V::load(numbers[at * V::COUNT..].as_ptr());
            }
            all
        }
    }

    unsafe fn numbers<V: Lanes>(registers: &[V]) -> Vec<usize> {
        let mut all = vec![0.0f32; registers.len() * V::COUNT];
        for (at, register) in registers.iter().enumerate() {
            unsafe { register.store(all[at * V::COUNT..].as_mut_ptr()) }
        }
        all.iter().map(|number| *number as usize).collect()
    }

    unsafe fn check<V: Lanes>() {
        let n = V::COUNT;
        unsafe {
            let mut rows = registers::<V>(n);
            V::transpose(&mut rows);
            let transposed: Vec<usize> = (0..n * n).map(|at| at % n * n + at / n).collect();
            assert_eq!(numbers(&rows[..n]), transposed);
            let [first, second, ..] = registers::<V>(2);
            let [even, odd] = V::apart(first, second);
            let apart: Vec<usize> = (0..2 * n).map(|at| at % n * 2 + at / n).collect();
            assert_eq!(numbers(&[even, odd]), apart);
            assert_eq!(numbers(&V::in_turn(even, odd)), numbers(&[first, second]));
            assert_eq!(numbers(&[V::shifted::<1>(first, second)]), (n - 1..2 * n - 1).collect::<Vec<_>>());
            assert_eq!(numbers(&[V::shifted::<2>(first, second)]), (n - 2..2 * n - 2).collect::<Vec<_>>());
            assert_eq!(numbers(&[V::shifted::<4>(first, second)]), (n - 4..2 * n - 4).collect::<Vec<_>>());
            if n == 16 {
                assert_eq!(numbers(&[V::shifted::<8>(first, second)]), (n - 8..2 * n - 8).collect::<Vec<_>>());
            }
            assert_eq!(second.last() as usize, 2 * n - 1);
            let all: Vec<f32> = (0..8 * n).map(|at| at as f32).collect();
            let runs = V::runs(all.as_ptr());
            assert_eq!(numbers(&runs), (0..8 * n).map(|at| at % n * 8 + at / n).collect::<Vec<_>>());
            let mut back = vec![0.0; 8 * n];
            V::put_runs(runs, back.as_mut_ptr());
            assert_eq!(back, all);
        }
    }

    #[test]
    fn numbers_change_places() {
        if __m512::are_here() {
            // SAFETY: they are here, and addresses are of slices that are long enough.
            unsafe { check::<__m512>() }
        }
        if __m256::are_here() {
            // SAFETY: as above.
            unsafe { check::<__m256>() }
        }
    }
}
