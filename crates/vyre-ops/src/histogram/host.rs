//! Histograms as processors make them: each part of the elements is counted in tables of its own.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use vyre::variant::{HostSlice, Variant, Workers};

use crate::host::{Cell, PART, room_for, variant, words};

/// Bins up to which a part has several tables, so that equal neighbours don't wait for each other, and up to which it has one.
const FEW: usize = 2048;
const TABLES: usize = 8;
const MOST: usize = 1 << 16;
/// Elements of a part for each bin, at least, so that it counts more than it tells.
const FOR_A_BIN: usize = 8;

pub(super) fn counted() -> Variant {
    variant("tables for each thread", 2, count)
}

fn count(buffers: &mut [HostSlice<'_>], workers: &dyn Workers) {
    let [x, sizes, counts] = buffers else { return };
    let mut sizes = words(sizes.bytes()).map(|size| size as usize);
    let (Some(length), Some(bins)) = (sizes.next(), sizes.next()) else { return };
    let Some(x) = x.bytes().as_chunks::<4>().0.get(..length) else { return };
    if counts.bytes().len() < 4 * bins {
        return;
    }
    let each = (PART / 4).max(FOR_A_BIN * bins.min(MOST));
    let part = |at: usize| &x[at * each..length.min((at + 1) * each)];
    let parts = length.div_ceil(each);
    if bins > MOST {
        let counts = &AtomicU32::all(counts.bytes_mut())[..bins];
        workers.run(parts, &|at| {
            for key in part(at) {
                if let Some(count) = counts.get(u32::from_le_bytes(*key) as usize) {
                    count.fetch_add(1, Relaxed);
                }
            }
        });
        return;
    }
    let counts = Mutex::new(&mut counts.bytes_mut().as_chunks_mut::<4>().0[..bins]);
    workers.run(parts, &|at| {
        let found = if bins <= FEW { few(part(at), bins) } else { many(part(at), bins) };
        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        for (count, found) in counts.iter_mut().zip(found) {
            *count = u32::from_le_bytes(*count).wrapping_add(found).to_le_bytes();
        }
    });
}

/// How often each number below `bins` occurs, of which there are few: in several tables of one size, whose last places are for all numbers that
/// are no bins, so that nothing has to be asked for each of them.
fn few(x: &[[u8; 4]], bins: usize) -> Vec<u32> {
    let bins = bins.min(FEW);
    let mut tables = room_for([0u32; FEW + 1], TABLES);
    let Ok(tables) = <&mut [[u32; FEW + 1]; TABLES]>::try_from(&mut tables[..]) else { return Vec::new() };
    let mut count = |table: usize, key: [u8; 4]| {
        let bin = (u32::from_le_bytes(key) as usize).min(bins);
        tables[table][bin] = tables[table][bin].wrapping_add(1);
    };
    let (groups, rest) = x.as_chunks::<TABLES>();
    for group in groups {
        for (table, key) in group.iter().enumerate() {
            count(table, *key);
        }
    }
    rest.iter().for_each(|key| count(0, *key));
    (0..bins).map(|bin| tables.iter().map(|table| table[bin]).sum()).collect()
}

/// The same in one table.
fn many(x: &[[u8; 4]], bins: usize) -> Vec<u32> {
    let mut table = room_for(0u32, bins);
    for key in x {
        if let Some(count) = table.get_mut(u32::from_le_bytes(*key) as usize) {
            *count += 1;
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Several;

    #[test]
    fn every_number_below_the_bins_is_counted() {
        for bins in [1, 3, 256, FEW, FEW + 1, MOST, MOST + 7] {
            for length in [1, 4, 1001, 600_000] {
                let keys: Vec<u32> = (0..length as u32)
                    .map(|at| match at % 5 {
                        0 => 0,
                        1 => bins as u32 - 1,
                        2 => u32::MAX,
                        _ => at.wrapping_mul(2_654_435_761) % (bins as u32 + 3),
                    })
                    .collect();
                // What was counted before stays.
                let mut expected: Vec<u32> = (0..bins as u32).collect();
                for &key in keys.iter().filter(|key| (**key as usize) < bins) {
                    expected[key as usize] += 1;
                }
                let bytes = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
                let (x, sizes) = (bytes(&keys), bytes(&[length as u32, bins as u32, 0, 0]));
                for threads in [1, 3] {
                    let mut counts = bytes(&(0..bins as u32).collect::<Vec<_>>());
                    let slices = [HostSlice::Read(&x), HostSlice::Read(&sizes), HostSlice::Write(&mut counts)];
                    count(&mut { slices }, &Several(threads));
                    assert!(words(&counts).eq(expected.iter().copied()), "{bins} {length} {threads}");
                }
            }
        }
    }
}
