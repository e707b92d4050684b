//! Sums of f32 in the order of the kernels, with a run of each lane of a register.

#![allow(unsafe_code, reason = "instructions that not every processor has")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "blocks in unsafe functions stand on what their callers promise")]
#![allow(clippy::needless_range_loop, reason = "registers are named by numbers that the compiler knows")]

use std::arch::x86_64::{__m256, __m512};

use super::host::{GROUP, Number, padded, plain_scan, plain_total};
use super::{Cut, ITEMS, SUBGROUP};
use crate::lanes::Lanes;

/// As [`plain_total`].
pub(super) fn chunk_total(x: &[[u8; 4]], cut: Cut) -> f32 {
    #[target_feature(enable = "avx512f,avx512dq")]
    unsafe fn wide(x: &[[u8; 4]], cut: Cut) -> f32 {
        unsafe { total::<__m512, 2>(x, cut) }
    }
    #[target_feature(enable = "avx2,fma")]
    unsafe fn narrow(x: &[[u8; 4]], cut: Cut) -> f32 {
        unsafe { total::<__m256, 4>(x, cut) }
    }
    match (__m512::are_here(), __m256::are_here()) {
        // SAFETY: the processor has the instructions.
        (true, _) => unsafe { wide(x, cut) },
        // SAFETY: as above.
        (_, true) => unsafe { narrow(x, cut) },
        _ => plain_total(x, cut),
    }
}

/// As [`plain_scan`].
pub(super) fn scan_chunk<const INCLUSIVE: bool>(x: &[[u8; 4]], carry: f32, cut: Cut, out: &mut [[u8; 4]]) {
    #[target_feature(enable = "avx512f,avx512dq")]
    unsafe fn wide<const INCLUSIVE: bool>(x: &[[u8; 4]], carry: f32, cut: Cut, out: &mut [[u8; 4]]) {
        unsafe { scan::<__m512, 2, INCLUSIVE>(x, carry, cut, out) }
    }
    #[target_feature(enable = "avx2,fma")]
    unsafe fn narrow<const INCLUSIVE: bool>(x: &[[u8; 4]], carry: f32, cut: Cut, out: &mut [[u8; 4]]) {
        unsafe { scan::<__m256, 4, INCLUSIVE>(x, carry, cut, out) }
    }
    match (__m512::are_here(), __m256::are_here()) {
        // SAFETY: the processor has the instructions.
        (true, _) => unsafe { wide::<INCLUSIVE>(x, carry, cut, out) },
        // SAFETY: as above.
        (_, true) => unsafe { narrow::<INCLUSIVE>(x, carry, cut, out) },
        _ => plain_scan::<4, f32, INCLUSIVE>(x, carry, cut, out),
    }
}

#[inline(always)]
unsafe fn total<V: Lanes, const B: usize>(x: &[[u8; 4]], cut: Cut) -> f32 {
    let mut tiles = f32::NEUTRAL;
    for tile in x.chunks(cut.tile()) {
        let mut groups = f32::NEUTRAL;
        let (whole, rest) = tile.as_chunks::<GROUP>();
        for group in whole {
            groups += unsafe { group_total::<V, B>(group) };
        }
        if !rest.is_empty() {
            groups += unsafe { group_total::<V, B>(&padded::<4, f32>(rest)) };
        }
        tiles += groups;
    }
    tiles
}

#[inline(always)]
unsafe fn group_total<V: Lanes, const B: usize>(group: &[[u8; 4]; GROUP]) -> f32 {
    unsafe {
        let mut sums = [V::splat(0.0); B];
        for (block, sum) in sums.iter_mut().enumerate() {
            let items = V::runs(group.as_ptr().cast::<f32>().add(block * V::COUNT * ITEMS));
            *sum = items[0];
            for item in &items[1..] {
                *sum = sum.plus(*item);
            }
        }
        doubled::<V, B>(sums)[B - 1].last()
    }
}

#[inline(always)]
unsafe fn scan<V: Lanes, const B: usize, const INCLUSIVE: bool>(
    x: &[[u8; 4]],
    carry: f32,
    cut: Cut,
    out: &mut [[u8; 4]],
) {
    let mut tiles = f32::NEUTRAL;
    for (tile, out) in x.chunks(cut.tile()).zip(out.chunks_mut(cut.tile())) {
        let before = carry + tiles;
        let mut groups = f32::NEUTRAL;
        let (whole, rest) = tile.as_chunks::<GROUP>();
        let (whole_out, rest_out) = out.as_chunks_mut::<GROUP>();
        for (group, out) in whole.iter().zip(whole_out) {
            groups += unsafe { scan_group::<V, B, INCLUSIVE>(group, before + groups, out) };
        }
        if !rest.is_empty() {
            let (last, mut made) = (padded::<4, f32>(rest), [[0; 4]; GROUP]);
            groups += unsafe { scan_group::<V, B, INCLUSIVE>(&last, before + groups, &mut made) };
            rest_out.copy_from_slice(&made[..rest.len()]);
        }
        tiles += groups;
    }
}

/// Scans a group behind what is before it, and gives its sum.
#[inline(always)]
unsafe fn scan_group<V: Lanes, const B: usize, const INCLUSIVE: bool>(
    group: &[[u8; 4]; GROUP],
    before: f32,
    out: &mut [[u8; 4]; GROUP],
) -> f32 {
    unsafe {
        let mut items = [[V::splat(0.0); ITEMS]; B];
        let mut sums = [V::splat(0.0); B];
        for (block, items) in items.iter_mut().enumerate() {
            *items = V::runs(group.as_ptr().cast::<f32>().add(block * V::COUNT * ITEMS));
            for at in 1..ITEMS {
                items[at] = items[at - 1].plus(items[at]);
            }
            sums[block] = items[ITEMS - 1];
        }
        let sums = doubled::<V, B>(sums);
        let (zero, neutral) = (V::splat(0.0), V::splat(f32::NEUTRAL));
        for (block, items) in items.iter().enumerate() {
            let earlier = V::shifted::<1>(if block == 0 { neutral } else { sums[block - 1] }, sums[block]);
            let before = V::splat(before).plus(earlier);
            let mut made = [before.plus(zero); ITEMS];
            for at in 0..ITEMS {
                // As it is stored, the sum of nothing is 0.
                if INCLUSIVE {
                    made[at] = before.plus(items[at]).plus(zero);
                } else if at > 0 {
                    made[at] = before.plus(items[at - 1]).plus(zero);
                }
            }
            V::put_runs(made, out.as_mut_ptr().cast::<f32>().add(block * V::COUNT * ITEMS));
        }
        sums[B - 1].last()
    }
}

/// The runs up to each, put together by doubling distances.
#[inline(always)]
unsafe fn doubled<V: Lanes, const B: usize>(sums: [V; B]) -> [V; B] {
    unsafe {
        let mut sums = at_distance::<V, B, 1>(sums);
        sums = at_distance::<V, B, 2>(sums);
        sums = at_distance::<V, B, 4>(sums);
        sums = at_distance::<V, B, 8>(sums);
        at_distance::<V, B, { SUBGROUP / 2 }>(sums)
    }
}

/// Puts the sum at a distance before each to it.
#[inline(always)]
unsafe fn at_distance<V: Lanes, const B: usize, const BY: usize>(sums: [V; B]) -> [V; B] {
    unsafe {
        let neutral = V::splat(f32::NEUTRAL);
        let mut all = sums;
        for block in 0..B {
            // A whole register or more is another register.
            let whole = BY / V::COUNT;
            let there = match whole {
                0 => V::shifted::<BY>(if block == 0 { neutral } else { sums[block - 1] }, sums[block]),
                _ if block >= whole => sums[block - whole],
                _ => neutral,
            };
            all[block] = there.plus(sums[block]);
        }
        all
    }
}
