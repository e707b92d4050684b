//! The two steps of a pass as processors do them: a key is a few bytes, one of which is its digit, and keys go one after another to the ends of
//! 256 runs.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use vyre::DataType;
use vyre::variant::{HostSlice, Variant, Workers};

use super::Cut;
use crate::host::{Cell, pieces_of_a_part, soon_written, variant, words};
use crate::launch::size_of;

/// Digits are bytes.
const DIGITS: usize = 256;
/// Bytes that memory is fetched in.
const LINE: usize = 64;

/// Counts the digits of each block.
pub(super) fn count_variant(ty: &DataType, cut: Cut) -> Option<Variant> {
    let block = cut.block();
    match (size_of(ty), 1 << cut.bits) {
        (2, DIGITS) => {
            Some(variant("counters of bytes", 1, move |buffers, workers| count::<2>(buffers, workers, block)))
        }
        (4, DIGITS) => {
            Some(variant("counters of bytes", 1, move |buffers, workers| count::<4>(buffers, workers, block)))
        }
        (8, DIGITS) => {
            Some(variant("counters of bytes", 1, move |buffers, workers| count::<8>(buffers, workers, block)))
        }
        _ => None,
    }
}

/// Moves keys, and values with them.
pub(super) fn move_variant(ty: &DataType, value_type: Option<&DataType>, cut: Cut) -> Option<Variant> {
    let block = cut.block();
    let function = match (size_of(ty), value_type.map(size_of)) {
        (2, None) => move_keys::<2, AtomicU16>,
        (4, None) => move_keys::<4, AtomicU32>,
        (8, None) => move_keys::<8, AtomicU64>,
        (2, Some(4)) => move_pairs::<2, AtomicU16, 4, AtomicU32>,
        (2, Some(8)) => move_pairs::<2, AtomicU16, 8, AtomicU64>,
        (4, Some(4)) => move_pairs::<4, AtomicU32, 4, AtomicU32>,
        (4, Some(8)) => move_pairs::<4, AtomicU32, 8, AtomicU64>,
        (8, Some(4)) => move_pairs::<8, AtomicU64, 4, AtomicU32>,
        (8, Some(8)) => move_pairs::<8, AtomicU64, 8, AtomicU64>,
        _ => return None,
    };
    (1 << cut.bits == DIGITS).then(|| {
        variant("runs of bytes", 1, move |buffers: &mut [HostSlice<'_>], workers: &dyn Workers| {
            function(buffers, workers, block);
        })
    })
}

/// What a launch is told: keys, blocks, and which byte of a key is the digit.
fn sizes(bytes: &[u8]) -> Option<[usize; 3]> {
    let mut sizes = words(bytes).map(|size| size as usize);
    Some([sizes.next()?, sizes.next()?, sizes.next()? / 8])
}

fn count<const N: usize>(buffers: &mut [HostSlice<'_>], workers: &dyn Workers, block: usize) {
    let [keys, sizes, counts] = buffers else { return };
    let Some([length, blocks, byte]) = self::sizes(sizes.bytes()) else { return };
    let Some(keys) = keys.bytes().as_chunks::<N>().0.get(..length) else { return };
    let counts = AtomicU32::all(counts.bytes_mut());
    if counts.len() < DIGITS * blocks || byte >= N {
        return;
    }
    let each = pieces_of_a_part(blocks, block * N, workers);
    workers.run(blocks.div_ceil(each), &|part| {
        let first = part * each;
        let keys = &keys[first * block..length.min((first + each) * block)];
        // Counts of one digit lie side by side.
        let found: Vec<[u32; DIGITS]> = keys.chunks(block).map(|keys| digits_of(keys, byte)).collect();
        for digit in 0..DIGITS {
            for (count, found) in counts[digit * blocks + first..].iter().zip(&found) {
                count.put(found[digit].to_le_bytes());
            }
        }
    });
}

/// How often each digit occurs.
fn digits_of<const N: usize>(keys: &[[u8; N]], byte: usize) -> [u32; DIGITS] {
    // Several tables, so that equal neighbours don't wait for each other.
    let mut tables = [[0u32; DIGITS]; 4];
    let (fours, rest) = keys.as_chunks::<4>();
    for four in fours {
        for (table, key) in tables.iter_mut().zip(four) {
            table[usize::from(key[byte])] += 1;
        }
    }
    for key in rest {
        tables[0][usize::from(key[byte])] += 1;
    }
    std::array::from_fn(|digit| tables.iter().map(|table| table[digit]).sum())
}

fn move_keys<const N: usize, K: Cell<N>>(buffers: &mut [HostSlice<'_>], workers: &dyn Workers, block: usize) {
    let [keys, sizes, starts, out] = buffers else { return };
    let Some(pass) = Pass::of(keys, sizes, starts, block) else { return };
    let out = K::all(out.bytes_mut());
    pass.run(workers, |_, key, to| {
        soon_written(out, to + LINE / N);
        out[to].put(*key);
    });
}

fn move_pairs<const N: usize, K: Cell<N>, const M: usize, V: Cell<M>>(
    buffers: &mut [HostSlice<'_>],
    workers: &dyn Workers,
    block: usize,
) {
    let [keys, sizes, starts, out, values, out_values] = buffers else { return };
    let Some(pass) = Pass::of(keys, sizes, starts, block) else { return };
    let Some(values) = values.bytes().as_chunks::<M>().0.get(..pass.keys.len()) else { return };
    let (out, out_values) = (K::all(out.bytes_mut()), V::all(out_values.bytes_mut()));
    pass.run(workers, |from, key, to| {
        soon_written(out, to + LINE / N);
        soon_written(out_values, to + LINE / M);
        out[to].put(*key);
        out_values[to].put(values[from]);
    });
}

/// Keys by one digit.
struct Pass<'a, const N: usize> {
    keys: &'a [[u8; N]],
    byte: usize,
    /// Where the keys of a block with a digit go, digit by digit.
    starts: &'a [[u8; 4]],
    block: usize,
    blocks: usize,
}

impl<'a, const N: usize> Pass<'a, N> {
    fn of(
        keys: &'a HostSlice<'_>,
        sizes: &HostSlice<'_>,
        starts: &'a HostSlice<'_>,
        block: usize,
    ) -> Option<Pass<'a, N>> {
        let [length, blocks, byte] = self::sizes(sizes.bytes())?;
        let keys = keys.bytes().as_chunks::<N>().0.get(..length)?;
        let starts = starts.bytes().as_chunks().0;
        (starts.len() >= DIGITS * blocks && byte < N).then_some(Pass { keys, byte, starts, block, blocks })
    }

    /// Tells of each key where it goes.
    fn run(&self, workers: &dyn Workers, put: impl Fn(usize, &[u8; N], usize) + Sync) {
        let &Pass { keys, byte, block, blocks, .. } = self;
        // Blocks that follow each other go on where the one before has ended.
        let each = pieces_of_a_part(blocks, block * N, workers);
        workers.run(blocks.div_ceil(each), &|part| {
            let start = |digit: usize| u32::from_le_bytes(self.starts[digit * blocks + part * each]);
            let mut ends: [u32; DIGITS] = std::array::from_fn(start);
            let first = part * each * block;
            for (from, key) in (first..).zip(&keys[first..keys.len().min(first + each * block)]) {
                let end = &mut ends[usize::from(key[byte])];
                put(from, key, *end as usize);
                *end += 1;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Several;

    const BLOCK: usize = 100;

    fn bytes(numbers: impl IntoIterator<Item = u32>) -> Vec<u8> {
        numbers.into_iter().flat_map(u32::to_le_bytes).collect()
    }

    /// One pass over keys with their places as values: both as they come out.
    fn pass(keys: &[u32], byte: usize, threads: usize) -> (Vec<u32>, Vec<u32>) {
        let (length, blocks, workers) = (keys.len(), keys.len().div_ceil(BLOCK), Several(threads));
        // Buffers may be longer than what is sorted.
        let given = bytes(keys.iter().copied().chain([7; 5]));
        let sizes = bytes([length as u32, blocks as u32, 8 * byte as u32]);
        let mut counts = vec![0xff; 4 * DIGITS * blocks];
        let slices = [HostSlice::Read(&given), HostSlice::Read(&sizes), HostSlice::Write(&mut counts)];
        count::<4>(&mut { slices }, &workers, BLOCK);
        let mut before = 0;
        let starts = bytes(words(&counts).map(|count| {
            before += count;
            before - count
        }));
        assert_eq!(before as usize, length);
        let (mut out, mut places) = (vec![0xff; 4 * length], vec![0xff; 4 * length]);
        let own = bytes(0..length as u32 + 5);
        let slices = [
            HostSlice::Read(&given),
            HostSlice::Read(&sizes),
            HostSlice::Read(&starts),
            HostSlice::Write(&mut out),
            HostSlice::Read(&own),
            HostSlice::Write(&mut places),
        ];
        move_pairs::<4, AtomicU32, 4, AtomicU32>(&mut { slices }, &workers, BLOCK);
        let mut alone = vec![0xff; 4 * length];
        let slices =
            [HostSlice::Read(&given), HostSlice::Read(&sizes), HostSlice::Read(&starts), HostSlice::Write(&mut alone)];
        move_keys::<4, AtomicU32>(&mut { slices }, &workers, BLOCK);
        assert_eq!(alone, out);
        (words(&out).collect(), words(&places).collect())
    }

    #[test]
    fn a_pass_is_a_stable_sort_by_one_byte() {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state
        };
        for length in [1, 2, 99, 100, 101, 5000] {
            let random: Vec<u32> = (0..length).map(|_| next()).collect();
            let equal = vec![0x0102_0304; length];
            let falling: Vec<u32> = (0..length as u32).rev().map(|key| key << 7).collect();
            for (keys, byte) in
                [&random, &equal, &falling].into_iter().flat_map(|keys| (0..4).map(move |at| (keys, at)))
            {
                let mut expected: Vec<(u32, u32)> = keys.iter().copied().zip(0..).collect();
                expected.sort_by_key(|(key, _)| key >> (8 * byte) & 255);
                for threads in [1, 3] {
                    assert_eq!(
                        pass(keys, byte, threads),
                        expected.iter().copied().unzip(),
                        "{length} {byte} {threads}"
                    );
                }
            }
        }
    }
}
