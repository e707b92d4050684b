use vyre_ops::Ops;

use crate::support::{Random, engines, lengths, read};

#[test]
fn scans_of_whole_numbers_are_exact() {
    let mut random = Random(10);
    for (name, engine) in engines() {
        for length in lengths(name).into_iter().chain([300_000]) {
            let x = random.words(length);
            let array = engine.array(&x).expect("x");
            let told = format!("{name} {length}");
            let mut sum = 0u32;
            let exclusive: Vec<u32> = x
                .iter()
                .map(|&x| {
                    let before = sum;
                    sum = sum.wrapping_add(x);
                    before
                })
                .collect();
            let inclusive: Vec<u32> = exclusive.iter().zip(&x).map(|(&a, &b)| a.wrapping_add(b)).collect();
            assert!(read(array.cumsum()).expect("u32") == inclusive, "{told}");
            assert!(read(array.exclusive_sum()).expect("u32") == exclusive, "{told}");
            let mut most = 0;
            let largest: Vec<u32> = x
                .iter()
                .map(|&x| {
                    most = x.max(most);
                    most
                })
                .collect();
            assert!(read(array.cummax()).expect("u32") == largest, "{told}");
        }
        let rows = [37usize, 2500];
        let x = random.words(rows[0] * rows[1]);
        let array = engine.from_shape(rows, &x).expect("x");
        let mut expected = Vec::new();
        for row in x.chunks(rows[1]) {
            let mut sum = 0u32;
            expected.extend(row.iter().map(|&x| {
                sum = sum.wrapping_add(x);
                sum
            }));
        }
        assert!(read(array.cumsum_axis(1)).expect("u32") == expected, "{name} rows");
    }
}

#[test]
fn scans_of_floats_are_close_and_the_same_everywhere() {
    let x = Random(11).units(100_000);
    let mut first: Option<Vec<u32>> = None;
    for (name, engine) in engines() {
        let array = engine.array(&x).expect("x");
        let found = read((&array * 2.0).cumsum()).expect("f32");
        let mut sum = 0.0f64;
        for (at, (&x, &found)) in x.iter().zip(&found).enumerate() {
            sum += f64::from(x * 2.0);
            assert!((sum - f64::from(found)).abs() < 1e-2, "{name} {at}: {found} {sum}");
        }
        let bits: Vec<u32> = found.iter().map(|x| x.to_bits()).collect();
        assert!(first.get_or_insert_with(|| bits.clone()) == &bits, "{name} differs");
        // Wide elements need more memory.
        let wide: Vec<u64> = (0..20_000u64).collect();
        let Some(found) = read(engine.array(&wide).expect("wide").cumsum()) else { continue };
        assert!(found.iter().zip(0u64..).all(|(found, at)| *found == at * (at + 1) / 2), "{name} of u64");
    }
}

#[test]
fn compact_partition_and_unique() {
    let mut random = Random(12);
    for (name, engine) in engines() {
        for length in lengths(name) {
            let x: Vec<u32> = (0..length).map(|_| random.below(5) as u32).collect();
            let array = engine.array(&x).expect("x");
            let mask = array.lazy().ge(3);
            let kept: Vec<u32> = x.iter().copied().filter(|&x| x >= 3).collect();
            let others: Vec<u32> = x.iter().copied().filter(|&x| x < 3).collect();
            let told = format!("{name} {length}");
            assert_eq!(array.compact(&mask).and_then(|found| found.to_vec()).expect("compact"), kept, "{told}");
            let parts = array.partition(&mask).expect("partition");
            assert_eq!(parts.len().expect("count"), kept.len(), "{told}");
            assert_eq!(parts.elements.to_vec().expect("parts"), [kept, others].concat(), "{told}");
            let mut unique = x.clone();
            unique.dedup();
            assert_eq!(array.unique().and_then(|found| found.to_vec()).expect("unique"), unique, "{told}");
        }
    }
}
