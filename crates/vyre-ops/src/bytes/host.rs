//! Searches on the processor, with the libraries that it has for them: where one pattern begins, and how many of several do in each block.

use std::ops::Range;
use std::sync::atomic::AtomicU32;
use std::sync::{Mutex, PoisonError};

use aho_corasick::{AhoCorasick, Input, MatchKind};
use memchr::memmem::Finder;
use vyre::variant::{HostSlice, Workers};

use super::{BLOCK, LONG_BLOCK, PAIRS};
use crate::host::{Cell, PART, fill, in_chunks, words};
use crate::launch::grid;

/// States of a tree whose patterns are looked for by a library. It makes an automaton of them each time, and they are what is told of
/// them here; of more states the tree is walked as it is.
const MOST_STATES: usize = 1 << 12;

/// Blocks of a part of the second pass.
const BLOCKS: usize = 256;
/// Blocks that are looked at together first, as most have nothing in them.
const STRETCH: usize = 16;

/// One pattern.
pub(super) fn count_pair(buffers: &mut [HostSlice<'_>], workers: &dyn Workers) {
    let [x, pattern, sizes, counts] = buffers else { return };
    let pattern = pattern.bytes();
    let Some((text, starts)) = text(x.bytes(), sizes.bytes()) else { return };
    let finder = Finder::new(pattern);
    let next = |from: usize, end: usize| first_between(text, pattern, &finder, from..end);
    fill(counts, text.len(), workers, |first, counts| {
        for (stretch, counts) in counts.chunks_mut(STRETCH).enumerate() {
            let first = first + stretch * STRETCH;
            let place = |block: usize| starts.min(block * BLOCK);
            if next(place(first), place(first + counts.len())).is_none() {
                counts.fill([0; 4]);
                continue;
            }
            for (block, count) in (first..).zip(counts) {
                let (begin, end) = (place(block), place(block + 1));
                let found = match *pattern {
                    [byte] => memchr::memchr_iter(byte, &text[begin..end]).count(),
                    _ => starts_of(begin, end, |from| next(from, end)).count(),
                };
                *count = (found as u32).to_le_bytes();
            }
        }
    });
}

/// The first pattern that begins in a part of the text.
fn first_between(text: &[u8], pattern: &[u8], finder: &Finder<'_>, starts: Range<usize>) -> Option<usize> {
    let found = match *pattern {
        [byte] => memchr::memchr(byte, &text[starts.clone()]),
        _ => finder.find(&text[starts.start..(starts.end + pattern.len() - 1).min(text.len())]),
    };
    found.map(|at| starts.start + at)
}

/// The second pass for one pattern: where it begins, in the blocks that have some.
pub(super) fn find_pair(buffers: &mut [HostSlice<'_>], workers: &dyn Workers) {
    let [x, pattern, sizes, counts, before, out, which] = buffers else { return };
    let (pattern, most) = (pattern.bytes(), words(sizes.bytes()).nth(3).unwrap_or(0) as usize);
    let Some((text, starts)) = text(x.bytes(), sizes.bytes()) else { return };
    let finder = Finder::new(pattern);
    let (counts, before) = (counts.bytes().as_chunks::<4>().0, before.bytes().as_chunks::<4>().0);
    let (out, which) = (AtomicU32::all(out.bytes_mut()), AtomicU32::all(which.bytes_mut()));
    let most = most.min(out.len()).min(which.len());
    workers.run(counts.len().div_ceil(BLOCKS), &|part| {
        for block in (part * BLOCKS..counts.len().min((part + 1) * BLOCKS)).filter(|block| counts[*block] != [0; 4]) {
            let (begin, end) = (starts.min(block * BLOCK), starts.min((block + 1) * BLOCK));
            let next = |from: usize| first_between(text, pattern, &finder, from..end);
            let first = before.get(block).map_or(most, |before| u32::from_le_bytes(*before) as usize);
            for (place, at) in (first..most).zip(starts_of(begin, end, next)) {
                out[place].put((at as u32).to_le_bytes());
                which[place].put([0; 4]);
            }
        }
    });
}

/// All of a search for one pattern: parts of the text are searched, and what was found in each is put behind what was found before it.
pub(super) fn find_once(buffers: &mut [HostSlice<'_>], workers: &dyn Workers) {
    let [x, pattern, sizes, states, out, count] = buffers else {
        panic!("a search has six buffers, not {}", buffers.len())
    };
    let (pattern, most) = (pattern.bytes(), words(sizes.bytes()).nth(3).unwrap_or(0) as usize);
    let Some((text, starts)) = text(x.bytes(), sizes.bytes()) else { panic!("the text is shorter than was said") };
    let finder = Finder::new(pattern);
    let each = part_of(starts, workers.threads());
    let parts = starts.div_ceil(each).max(1);
    // Each is locked once, by whom its number was given to.
    let found: Vec<Mutex<Part>> = (0..parts).map(|_| Mutex::default()).collect();
    // Most of it is often zeros, as it begins.
    let out = &mut out.bytes_mut().as_chunks_mut::<4>().0[..most];
    let is_done = workers.run(parts, &|part| {
        let (begin, end) = (part * each, starts.min((part + 1) * each));
        let mut own = Part::default();
        let put = |at: usize| {
            if own.counts.is_empty() {
                own.counts.resize((end - begin).div_ceil(LONG_BLOCK), 0);
            }
            own.counts[(at - begin) / LONG_BLOCK] += 1;
            if own.positions.len() < most {
                own.positions.push(at as u32);
            }
        };
        match *pattern {
            [byte] => memchr::memchr_iter(byte, &text[begin..end]).map(|at| begin + at).for_each(put),
            _ => starts_of(begin, end, |from| first_between(text, pattern, &finder, from..end)).for_each(put),
        }
        *found[part].lock().unwrap_or_else(PoisonError::into_inner) = own;
    });
    if !is_done {
        return;
    }
    let found: Vec<Part> =
        found.into_iter().map(|found| found.into_inner().unwrap_or_else(PoisonError::into_inner)).collect();
    let mut before = vec![0];
    for found in &found {
        before.push(before[before.len() - 1] + found.positions.len());
    }
    let all = before[parts].min(most);
    count.bytes_mut().as_chunks_mut::<4>().0[0] = (all as u32).to_le_bytes();
    // So many are put by one thread sooner than others are there to help.
    const FEW: usize = 1 << 14;
    let put = |at: usize, out: &mut [[u8; 4]]| put(out, at * FEW, &found, &before);
    match all <= FEW {
        true => put(0, &mut out[..all]),
        false => in_chunks(&mut out[..all], FEW, workers, put),
    }
    workers.leaves_zeros(4, 4 * all);
    tell(states.bytes_mut().as_chunks_mut::<4>().0, each / LONG_BLOCK, &found);
}

/// Bytes of a part of a text: whole long blocks, and so many parts for each thread that none waits long for the last one of another.
fn part_of(starts: usize, threads: usize) -> usize {
    const PARTS_OF_A_THREAD: usize = 32;
    starts.div_ceil(threads * PARTS_OF_A_THREAD).clamp(1, PART).next_multiple_of(LONG_BLOCK)
}

/// What the kernel leaves in its states: how many workgroups there were, and for each long block, of which a part has so many, one more than was
/// found up to its end.
fn tell(states: &mut [[u8; 4]], blocks: usize, found: &[Part]) {
    let (workgroups, states) = states.split_at_mut(1);
    workgroups[0] = grid(states.len()).iter().product::<u32>().to_le_bytes();
    let mut sum = 1u32;
    for (states, found) in states.chunks_mut(blocks).zip(found) {
        if found.counts.is_empty() {
            states.fill(sum.to_le_bytes());
            continue;
        }
        for (state, count) in states.iter_mut().zip(&found.counts) {
            sum += count;
            *state = sum.to_le_bytes();
        }
    }
}

/// The positions from `first` on.
fn put(out: &mut [[u8; 4]], first: usize, found: &[Part], before: &[usize]) {
    let mut part = before.partition_point(|before| *before <= first).saturating_sub(1);
    let mut filled = 0;
    while filled < out.len() {
        let own = &found[part].positions[first + filled - before[part]..];
        let taken = own.len().min(out.len() - filled);
        for (out, position) in out[filled..filled + taken].iter_mut().zip(own) {
            *out = position.to_le_bytes();
        }
        filled += taken;
        part += 1;
    }
}

/// What was found in a part of the text: the first positions, as many as are asked for, and how many there are in each long block, where there are any.
#[derive(Default)]
struct Part {
    positions: Vec<u32>,
    counts: Vec<u32>,
}

/// Patterns that are the ends of a tree.
pub(super) fn count_tree(buffers: &mut [HostSlice<'_>], workers: &dyn Workers) {
    let [x, data, sizes, counts] = buffers else { return };
    let told: Vec<usize> = words(sizes.bytes()).map(|size| size as usize).collect();
    let tree = Tree { words: words(data.bytes()).collect(), states: told[4], classes: told[5] };
    let Some((text, starts)) = text(x.bytes(), sizes.bytes()) else { return };
    let automaton = (tree.states <= MOST_STATES)
        .then(|| AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(tree.patterns()).ok());
    let automaton = automaton.flatten();
    fill(counts, text.len(), workers, |first, counts| {
        let (begin, end) = (starts.min(first * BLOCK), starts.min((first + counts.len()) * BLOCK));
        let mut found = vec![0u32; counts.len()];
        let mut count = |at: usize| found[at / BLOCK - first] += 1;
        match &automaton {
            Some(automaton) => {
                let until = (end + automaton.max_pattern_len()).min(text.len());
                let next = |from: usize| automaton.find(Input::new(text).range(from..until)).map(|found| found.start());
                starts_of(begin, end, next).for_each(count);
            }
            None => (begin..end).filter(|&at| tree.begins(&text[at..])).for_each(&mut count),
        }
        for (to, found) in counts.iter_mut().zip(found) {
            *to = found.to_le_bytes();
        }
    });
}

/// The bytes that are searched, and before which of them patterns begin.
fn text<'a>(x: &'a [u8], sizes: &[u8]) -> Option<(&'a [u8], usize)> {
    let mut sizes = words(sizes).map(|size| size as usize);
    let (length, starts) = (sizes.next()?, sizes.next()?);
    Some((x.get(..length)?, starts))
}

/// Everything that is found from `begin` to before `end` by looking for the next from a place on.
fn starts_of(begin: usize, end: usize, next: impl Fn(usize) -> Option<usize>) -> impl Iterator<Item = usize> {
    let found = move |from: usize| (from < end).then(|| next(from).filter(|at| *at < end)).flatten();
    std::iter::successors(found(begin), move |at| found(at + 1))
}

/// The tables of the kernel.
struct Tree {
    words: Vec<u32>,
    states: usize,
    classes: usize,
}

impl Tree {
    fn class(&self, byte: u8) -> usize {
        self.words[PAIRS + usize::from(byte)] as usize
    }

    fn is_end(&self, state: usize) -> bool {
        self.words[PAIRS + 256 + state] != 0
    }

    fn next(&self, state: usize, class: usize) -> usize {
        self.words[PAIRS + 256 + self.states + state * self.classes + class] as usize
    }

    /// A pattern begins here.
    fn begins(&self, bytes: &[u8]) -> bool {
        let mut state = 0;
        for &byte in bytes {
            state = self.next(state, self.class(byte));
            if state == 0 || self.is_end(state) {
                return state != 0;
            }
        }
        false
    }

    /// The patterns. Where one is the beginning of another, it is enough to know it.
    fn patterns(&self) -> Vec<Vec<u8>> {
        let bytes: Vec<u8> = (0..=255).filter(|&byte| self.class(byte) != 0).collect();
        let (mut open, mut patterns) = (vec![(0, Vec::new())], Vec::new());
        while let Some((state, path)) = open.pop() {
            for &byte in &bytes {
                let next = self.next(state, self.class(byte));
                if next == 0 {
                    continue;
                }
                let path = [&path[..], &[byte]].concat();
                if self.is_end(next) {
                    patterns.push(path);
                } else {
                    open.push((next, path));
                }
            }
        }
        patterns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Tables;

    /// How many patterns begin in each block, found one by one.
    fn plain(text: &[u8], patterns: &[&[u8]], starts: usize) -> Vec<u32> {
        let mut counts = vec![0; starts.div_ceil(BLOCK)];
        for at in 0..starts {
            counts[at / BLOCK] += u32::from(patterns.iter().any(|pattern| text[at..].starts_with(pattern)));
        }
        counts
    }

    fn counted(
        count: fn(&mut [HostSlice<'_>], &dyn Workers),
        text: &[u8],
        data: &[u8],
        [starts, states, classes]: [usize; 3],
    ) -> Vec<u32> {
        let blocks = starts.div_ceil(BLOCK);
        let sizes = [text.len(), starts, blocks, 0, states, classes, 0, 0];
        let sizes: Vec<u8> = sizes.iter().flat_map(|&size| (size as u32).to_le_bytes()).collect();
        let mut out = vec![0xff; 4 * blocks];
        // Buffers may be longer than what is searched.
        let longer = [text, b"abababab"].concat();
        let slices =
            [HostSlice::Read(&longer), HostSlice::Read(data), HostSlice::Read(&sizes), HostSlice::Write(&mut out)];
        count(&mut { slices }, &crate::host::Several(3));
        words(&out).collect()
    }

    /// Where a pattern begins, up to so many places; those that are left are 7.
    fn found_at(text: &[u8], pattern: &[u8], starts: usize, counts: &[u32], most: usize) -> Vec<u32> {
        let bytes = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let sizes = bytes(&[text.len(), starts, counts.len(), most, 0, 0, 0, 0].map(|size| size as u32));
        let mut sum = 0;
        let add = |count: &u32| {
            sum += count;
            sum - count
        };
        let before = bytes(&counts.iter().map(add).collect::<Vec<_>>());
        let counts = bytes(counts);
        let (mut out, mut which) = (bytes(&vec![7; most]), bytes(&vec![7; most]));
        let read = [text, pattern, &sizes[..], &counts[..], &before[..]].map(HostSlice::Read);
        let [x, data, sizes, counts, before] = read;
        let slices = [x, data, sizes, counts, before, HostSlice::Write(&mut out), HostSlice::Write(&mut which)];
        find_pair(&mut { slices }, &crate::host::Several(3));
        words(&out).collect()
    }

    /// Finds everything at once, and gives what the kernel leaves in its states.
    fn found_once(text: &[u8], pattern: &[u8], starts: usize, most: usize, places: &[u32], count: usize) -> Vec<u32> {
        let bytes = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let blocks = starts.div_ceil(LONG_BLOCK);
        let sizes = bytes(&[text.len(), starts, blocks, most, 0, 0, 0, 0].map(|size| size as u32));
        let (mut states, mut out, mut found) = (bytes(&vec![0; blocks + 1]), bytes(&vec![0; most]), bytes(&[9]));
        let [x, data, sizes] = [text, pattern, &sizes[..]].map(HostSlice::Read);
        let [told, to, all] = [&mut states, &mut out, &mut found].map(|bytes| HostSlice::Write(bytes));
        find_once(&mut [x, data, sizes, told, to, all], &crate::host::Several(3));
        assert!(words(&out).eq(places.iter().copied()) && words(&found).eq([count as u32]), "{} {most}", text.len());
        words(&states).collect()
    }

    /// Few letters, so that patterns are found often, overlap, and cross from block to block and from thread to thread.
    fn text(length: usize, letters: u32) -> Vec<u8> {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 16
        };
        (0..length).map(|_| b'a' + (next() % letters) as u8).collect()
    }

    #[test]
    fn as_many_as_there_are_are_found() {
        let sets: [&[&[u8]]; 5] = [
            &[b"a"],
            &[b"aba"],
            &[b"aab", b"b"],
            &[b"abc", b"abcabcab", b"bb", b"cab", b"aaaaaaaaaaa"],
            &[b"c", b"ca", b"cab", b"zz", b"\0\xff"],
        ];
        for length in [1, 5, BLOCK, BLOCK + 2, 3 * BLOCK - 1, (1 << 20) + 77] {
            let text = text(length, 3);
            for patterns in sets {
                let shortest = patterns.iter().map(|pattern| pattern.len()).min().unwrap_or(0);
                let starts = (length + 1).saturating_sub(shortest);
                let expected = plain(&text, patterns, starts);
                if let [one] = patterns {
                    assert_eq!(counted(count_pair, &text, one, [starts, 0, 0]), expected, "{length} {patterns:?}");
                    let places = (0..starts).filter(|&at| text[at..].starts_with(one)).map(|at| at as u32);
                    let all: Vec<u32> = places.collect();
                    for most in [0, 3, all.len(), all.len() + 2] {
                        let mut some = all[..most.min(all.len())].to_vec();
                        some.resize(most, 7);
                        assert_eq!(found_at(&text, one, starts, &expected, most), some, "{length} {patterns:?}");
                        let mut zeros = all[..most.min(all.len())].to_vec();
                        zeros.resize(most, 0);
                        let states = found_once(&text, one, starts, most, &zeros, all.len().min(most));
                        let mut sum = 1;
                        let sums = expected.chunks(LONG_BLOCK / BLOCK).map(|counts| {
                            sum += counts.iter().sum::<u32>();
                            sum
                        });
                        assert!(sums.eq(states[1..].iter().copied()), "{length} {patterns:?}");
                    }
                }
                let Tables { words, states, classes } = Tables::of(patterns).expect("tables");
                let data: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                let found = counted(count_tree, &text, &data, [starts, states, classes]);
                assert_eq!(found, expected, "{length} {patterns:?}");
                let tree = Tree { words, states, classes };
                let walked = (0..starts).filter(|&at| tree.begins(&text[at..])).count() as u32;
                assert_eq!(walked, expected.iter().sum::<u32>(), "{length} {patterns:?}");
            }
        }
    }
}
