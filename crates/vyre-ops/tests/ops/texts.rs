//! Searches and checksums, often enough that what is brought for processors is compared and taken.

use vyre_ops::{Patterns, crc32_bytes};

use crate::support::{Random, engines};

#[test]
fn what_is_found_stays_the_same_while_the_engine_learns() {
    let mut random = Random(11);
    let text: Vec<u8> = (0..300_000).map(|_| b'a' + random.below(4) as u8).collect();
    let sets: [&[&[u8]]; 2] = [&[b"abcd"], &[b"abca", b"bb", b"dddddd"]];
    for (name, engine) in engines() {
        let array = engine.array(&text).expect("a text");
        let runs = if name == "cpu" { 60 } else { 2 };
        for patterns in sets {
            let begins = |at: &usize| patterns.iter().any(|pattern| text[*at..].starts_with(pattern));
            let expected: Vec<u32> = (0..text.len()).filter(begins).map(|at| at as u32).collect();
            let search = Patterns::new(engine, patterns).expect("patterns");
            for run in 0..runs {
                let found =
                    search.find(&array, text.len()).expect("it searches").positions.to_vec().expect("positions");
                assert!(found == expected, "{name} {patterns:?}, run {run}");
            }
        }
        let messages = engine.from_shape([300, 1000], &text).expect("messages");
        let first = crc32_bytes(&messages).and_then(|sums| sums.to_vec()).expect("checksums");
        for run in 0..runs {
            let again = crc32_bytes(&messages).and_then(|sums| sums.to_vec()).expect("checksums");
            assert!(again == first, "{name}, run {run}");
        }
        let refused = engine.take_notices().into_iter().find(|notice| notice.message.contains("is not used for"));
        assert!(refused.is_none(), "{name}: {refused:?}");
    }
}

/// Results get memory that other results had, and who searched may have told that most of it is zeros.
#[test]
fn behind_what_is_found_there_are_zeros_whoever_had_the_memory() {
    const ROOM: usize = 100_000;
    let mut random = Random(12);
    let text: Vec<u8> = (0..200_000).map(|_| b'a' + random.below(4) as u8).collect();
    for (name, engine) in engines() {
        let array = engine.array(&text).expect("a text");
        let runs = if name == "cpu" { 30 } else { 2 };
        let searches = [&b"a"[..], b"abcab", b"zz"].map(|pattern| {
            let begins = |at: &usize| text[*at..].starts_with(pattern);
            let mut places: Vec<u32> = (0..text.len()).filter(begins).map(|at| at as u32).collect();
            places.resize(ROOM, 0);
            (Patterns::new(engine, &[pattern]).expect("a pattern"), places)
        });
        for run in 0..runs {
            for (which, (search, places)) in searches.iter().enumerate() {
                let mut found = search.find(&array, ROOM).expect("it searches").positions.elements;
                let others = (run + which) % 5;
                if others != 4 {
                    let all = found.to_vec().expect("positions");
                    assert!(all == *places, "{name}, search {which}, run {run}");
                }
                // What others do with the memory before it is used again.
                match others {
                    0 => found.write(&vec![7; ROOM]).expect("it is written"),
                    1 => found.slice_mut(ROOM - 1..).and_then(|mut last| last.write(&[9])).expect("it is written"),
                    2 => drop((&found * 3 + 5).eval().expect("a map")),
                    _ => {}
                }
            }
        }
    }
}
