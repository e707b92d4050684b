//! Accelerations as processors make them: as many bodies side by side as some registers have numbers, with the arithmetic of the kernel.

#![allow(unsafe_code, reason = "instructions that not every processor has")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "blocks in unsafe functions stand on what their callers promise")]
#![allow(clippy::needless_range_loop, reason = "registers are named by numbers that the compiler knows")]

use std::arch::x86_64::{__m256, __m512};

use vyre::variant::{HostSlice, Variant, Workers};

use super::{LANES, NEAREST, ROOT_BITS};
use crate::host::{in_chunks, room_for, variant, words};
use crate::lanes::Lanes;

/// Pairs of a part, which take some microseconds.
const PAIRS: usize = 1 << 17;

/// A place and a mass.
type Body = [f32; 4];

/// The accelerations of as many neighbouring bodies as there is room for in the result.
type Group = unsafe fn(all: &[Body], own: &[Body], soft: f32, out: &mut [[u8; 4]]);

/// The op as a function, where the processor has registers for it.
pub(super) fn side_by_side() -> Option<Variant> {
    let (group, together): (Group, usize) = if __m512::are_here() {
        (wide, 2 * __m512::COUNT)
    } else if __m256::are_here() {
        (narrow, __m256::COUNT)
    } else {
        return None;
    };
    Some(variant("bodies side by side", 1, move |buffers: &mut [HostSlice<'_>], workers: &dyn Workers| {
        let [bodies, sizes, out] = buffers else { panic!("bodies have three buffers, not {}", buffers.len()) };
        let told: Vec<u32> = words(sizes.bytes()).collect();
        let (count, soft) = (told[0] as usize, f32::from_bits(told[1]));
        let bodies = &bodies.bytes().as_chunks::<16>().0[..count];
        // Behind the last there is nothing, as in the last workgroup.
        let mut all = room_for([0.0; 4], count.next_multiple_of(LANES));
        for (to, body) in all.iter_mut().zip(bodies) {
            *to = [0, 4, 8, 12].map(|at| f32::from_le_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]]));
        }
        let out = &mut out.bytes_mut().as_chunks_mut::<4>().0[..3 * count];
        let each = together * (PAIRS / (together * all.len())).max(1);
        in_chunks(out, 3 * each, workers, |part, out| {
            for (at, out) in out.chunks_mut(3 * together).enumerate() {
                // SAFETY: the processor has the instructions, and the last body of a group is in a whole workgroup.
                unsafe { group(&all, &all[part * each + at * together..][..together], soft, out) }
            }
        });
    }))
}

#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn wide(all: &[Body], own: &[Body], soft: f32, out: &mut [[u8; 4]]) {
    unsafe { accelerations::<__m512, 2>(all, own, soft, out) }
}

#[target_feature(enable = "avx2,fma")]
unsafe fn narrow(all: &[Body], own: &[Body], soft: f32, out: &mut [[u8; 4]]) {
    unsafe { accelerations::<__m256, 1>(all, own, soft, out) }
}

/// Of `N` registers of bodies. Nothing that works on registers is in a closure, because those are not compiled for their instructions.
#[inline(always)]
unsafe fn accelerations<V: Lanes, const N: usize>(all: &[Body], own: &[Body], soft: f32, out: &mut [[u8; 4]]) {
    let mut places = [[0.0f32; 32]; 3];
    for (at, body) in own.iter().enumerate().take(N * V::COUNT) {
        for axis in 0..3 {
            places[axis][at] = body[axis];
        }
    }
    unsafe {
        let mut own = [[V::splat(0.0); N]; 3];
        for axis in 0..3 {
            for k in 0..N {
                own[axis][k] = V::load(places[axis].as_ptr().add(k * V::COUNT));
            }
        }
        let (soft, minus_half, three_halves) = (V::splat(soft), V::splat(-0.5), V::splat(1.5));
        let nearest = V::splat(NEAREST);
        let mut sums = [[V::splat(0.0); N]; 3];
        for other in all {
            let [x, y, z, mass] = [V::splat(other[0]), V::splat(other[1]), V::splat(other[2]), V::splat(other[3])];
            for k in 0..N {
                let (dx, dy, dz) = (x.minus(own[0][k]), y.minus(own[1][k]), z.minus(own[2][k]));
                let far = dz.times_plus(dz, dy.times_plus(dy, dx.times_plus(dx, soft)));
                let half = far.times(minus_half);
                let mut root = far.less_half_of_bits(ROOT_BITS);
                for _ in 0..3 {
                    root = root.times(half.times(root).times_plus(root, three_halves));
                }
                let by = mass.times(root).times(root.times(root)).where_greater(far, nearest);
                sums[0][k] = dx.times_plus(by, sums[0][k]);
                sums[1][k] = dy.times_plus(by, sums[1][k]);
                sums[2][k] = dz.times_plus(by, sums[2][k]);
            }
        }
        for axis in 0..3 {
            for k in 0..N {
                sums[axis][k].store(places[axis].as_mut_ptr().add(k * V::COUNT));
            }
        }
    }
    for (at, out) in out.chunks_mut(3).enumerate() {
        for (axis, out) in out.iter_mut().enumerate() {
            *out = places[axis][at].to_le_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kernel says it, one pair after the other.
    fn plain(all: &[Body], own: &Body, soft: f32) -> [f32; 3] {
        let mut sums = [0.0f32; 3];
        for other in all {
            let [dx, dy, dz] = [0, 1, 2].map(|axis| other[axis] - own[axis]);
            let far = dz.mul_add(dz, dy.mul_add(dy, dx.mul_add(dx, soft)));
            let half = far * -0.5;
            let mut root = f32::from_bits(ROOT_BITS.wrapping_sub(far.to_bits() >> 1));
            for _ in 0..3 {
                root *= (half * root).mul_add(root, 1.5);
            }
            let pull = other[3] * root * (root * root);
            let by = if far > NEAREST { pull } else { 0.0 };
            for (sum, d) in sums.iter_mut().zip([dx, dy, dz]) {
                *sum = d.mul_add(by, *sum);
            }
        }
        sums
    }

    #[test]
    fn registers_give_what_the_kernel_says() {
        let mut groups: Vec<(Group, usize)> = Vec::new();
        if __m512::are_here() {
            groups.push((wide, 32));
        }
        if __m256::are_here() {
            groups.push((narrow, 8));
        }
        let mut state = 7u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        // Some at one place, far away, and very near each other.
        let mut all: Vec<Body> = (0..128).map(|_| [next(), next(), next(), next()]).collect();
        all[5] = all[4];
        all[9] = [1e18, -3e15, 2e-30, 0.5];
        all[11] = [1e-30, 1e-25, -1e-38, 1.0];
        all[12] = [0.0; 4];
        all[17][0] = f32::INFINITY;
        for soft in [0.01, 0.0] {
            for &(group, together) in &groups {
                for (at, own) in all.chunks(together).enumerate() {
                    let mut out = vec![[0; 4]; 3 * together - 3];
                    // SAFETY: the processor has the instructions.
                    unsafe { group(&all, own, soft, &mut out) };
                    for (k, out) in out.chunks(3).enumerate() {
                        let bits = |value: f32| if value.is_nan() { u32::MAX } else { value.to_bits() };
                        let found: Vec<u32> = out.iter().map(|sum| bits(f32::from_le_bytes(*sum))).collect();
                        assert_eq!(found, plain(&all, &own[k], soft).map(bits), "{together} {at} {k} {soft}");
                    }
                }
            }
        }
    }
}
