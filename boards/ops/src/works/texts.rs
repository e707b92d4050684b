//! Searches of texts and checksums of messages.

use std::hint::black_box;

use aho_corasick::AhoCorasick;
use rayon::prelude::*;
use vyre_ops::{Patterns, crc32_bytes};

use crate::data::{Data, NEEDLE};
use crate::measure::{Work, under_way};

/// Bytes of a message that has a checksum, and of the part of a text that a thread searches.
const MESSAGE: usize = 4096;
const PART: usize = 1 << 20;
/// Positions that are kept of those that are found, and where there is less room.
const MOST: usize = 1 << 20;
const FEW: usize = 1 << 14;

/// Where something begins, found by threads that have a part of the text each and look a little beyond it.
fn in_parts(text: &[u8], beyond: usize, find: impl Fn(&[u8], usize) -> Vec<usize> + Sync) -> Vec<usize> {
    let parts = text.len().div_ceil(PART);
    let found: Vec<Vec<usize>> = (0..parts)
        .into_par_iter()
        .map(|part| {
            let (start, end) = (part * PART, (part + 1) * PART);
            find(&text[start..text.len().min(end + beyond)], end - start).into_iter().map(|at| start + at).collect()
        })
        .collect();
    found.concat()
}

/// The op's search for patterns.
fn search<'a>(data: &'a Data, text: &vyre::Array<u8>, name: &str, patterns: &[&[u8]], most: usize) -> Work<'a> {
    let (text, search) = (text.clone(), Patterns::new(&data.engine, patterns).expect("patterns"));
    let n = data.sizes.bytes;
    Work::new(name, n, n as f64, move || under_way(search.find(&text, most).map(|found| found.positions.elements)))
}

pub(super) fn works(data: &Data) -> Vec<Work<'_>> {
    let n = data.sizes.bytes;
    let (text, bytes) = data.both(&data.text);
    let messages = text.clone().shaped([n / MESSAGE, MESSAGE]).expect("messages");
    let patterns: Vec<&[u8]> = data.words.iter().map(Vec::as_slice).collect();
    let automaton = |count: usize| AhoCorasick::new(&patterns[..count]).expect("an automaton");
    let (few, many) = (automaton(8), automaton(patterns.len()));
    let finder = memchr::memmem::Finder::new(NEEDLE).into_owned();
    let finder2 = finder.clone();
    vec![
        search(data, &text, "find a byte", &[b"Q"], MOST)
            .beside("memchr", move || drop(black_box(memchr::memchr_iter(b'Q', bytes).collect::<Vec<_>>())))
            .beside("memchr and rayon", move || {
                let find = |part: &[u8], _: usize| memchr::memchr_iter(b'Q', part).collect();
                drop(black_box(in_parts(bytes, 0, find)));
            }),
        search(data, &text, "find a byte, up to 16384 places", &[b"Q"], FEW).beside("memchr and rayon", move || {
            let find = |part: &[u8], _: usize| memchr::memchr_iter(b'Q', part).collect();
            drop(black_box(in_parts(bytes, 0, find)));
        }),
        search(data, &text, "find a pattern", &[NEEDLE], MOST)
            .beside("memchr", move || drop(black_box(finder.find_iter(bytes).collect::<Vec<_>>())))
            .beside("memchr and rayon", move || {
                let find = |part: &[u8], end: usize| finder2.find_iter(part).filter(|at| *at < end).collect();
                drop(black_box(in_parts(bytes, NEEDLE.len(), find)));
            }),
        search(data, &text, "find 8 patterns", &patterns[..8], MOST).beside("aho-corasick and rayon", move || {
            let find = |part: &[u8], end: usize| {
                few.find_iter(part).map(|found| found.start()).filter(|at| *at < end).collect()
            };
            drop(black_box(in_parts(bytes, 16, find)));
        }),
        search(data, &text, "find 256 patterns", &patterns, MOST).beside("aho-corasick and rayon", move || {
            let find = |part: &[u8], end: usize| {
                many.find_overlapping_iter(part).map(|found| found.start()).filter(|at| *at < end).collect()
            };
            drop(black_box(in_parts(bytes, 16, find)));
        }),
        Work::new("crc32 of 4 KB", n, n as f64, move || under_way(crc32_bytes(&messages)))
            .beside("crc32fast and rayon", move || {
                drop(black_box(bytes.par_chunks(MESSAGE).map(crc32fast::hash).collect::<Vec<_>>()))
            }),
    ]
}
