use vyre_ops::Ops;

use crate::support::{Random, engines, lengths, read};

#[test]
fn keys_of_every_distribution() {
    let mut random = Random(20);
    for (name, engine) in engines() {
        for length in lengths(name) {
            let random_words = random.words(length);
            let few: Vec<u32> = random_words.iter().map(|x| x % 3).collect();
            let ascending: Vec<u32> = (0..length as u32).collect();
            for keys in [random_words, few, ascending, vec![7; length]] {
                let mut expected = keys.clone();
                expected.sort_unstable();
                let array = engine.array(&keys).expect("keys");
                assert!(read(array.sort()).expect("u32") == expected, "{name} {length}");
            }
        }
    }
}

#[test]
fn signed_floats_wide_and_descending() {
    let mut random = Random(21);
    let mut wide = 0;
    for (name, engine) in engines() {
        let length = 5000;
        let words = random.words(length);
        let mut signed: Vec<i32> = words.iter().map(|&x| x as i32).collect();
        let array = engine.array(&signed).expect("keys");
        signed.sort_unstable();
        assert!(read(array.sort()).expect("i32") == signed, "{name}");
        signed.reverse();
        assert!(read(array.sort_descending()).expect("i32") == signed, "{name}");
        let mut floats: Vec<f32> = words.iter().map(|&x| f32::from_bits(x)).collect();
        floats.extend([0.0, -0.0, f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY]);
        let array = engine.array(&floats).expect("keys");
        floats.sort_unstable_by(f32::total_cmp);
        let bits = |all: &[f32]| all.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert!(bits(&read(array.sort()).expect("f32")) == bits(&floats), "{name}");
        let mut longs: Vec<i64> = (0..length).map(|_| random.bits() as i64).collect();
        let array = engine.array(&longs).expect("keys");
        longs.sort_unstable();
        if let Some(found) = read(array.sort()) {
            assert!(found == longs, "{name}");
            wide += 1;
        }
    }
    assert!(wide > 0, "the processor has 64-bit integers");
}

#[test]
fn halves_keep_their_bits_and_their_order() {
    use half::f16;
    let mut random = Random(26);
    for (name, engine) in engines() {
        for length in lengths(name) {
            let mut keys: Vec<f16> = random.words(length).iter().map(|&x| f16::from_bits(x as u16)).collect();
            if length > 8 {
                // NaNs with either sign and other bits below, zeros, infinities and equal neighbours.
                let special = [0x7e01u16, 0xfe02, 0x7c01, 0, 0x8000, 0x7c00, 0xfc00, 0x3c00];
                keys.iter_mut().zip(special).for_each(|(key, bits)| *key = f16::from_bits(bits));
            }
            let bits = |all: Vec<f16>| all.into_iter().map(f16::to_bits).collect::<Vec<u16>>();
            let mut order: Vec<u32> = (0..length as u32).collect();
            order.sort_by(|&a, &b| keys[a as usize].total_cmp(&keys[b as usize]));
            let expected: Vec<u16> = order.iter().map(|&at| keys[at as usize].to_bits()).collect();
            let array = engine.array(&keys).expect("keys");
            assert!(bits(read(array.sort()).expect("f16")) == expected, "{name} {length}");
            assert!(read(array.argsort()).expect("u32") == order, "{name} {length}: equal ones in their order");
            let values: Vec<f32> = (0..length).map(|at| at as f32).collect();
            let (sorted, moved) = array.sort_with(&engine.array(&values).expect("values")).expect("sorted");
            assert!(bits(sorted.to_vec().expect("keys")) == expected, "{name} {length}");
            assert!(moved.to_vec().expect("values").iter().map(|&at| at as u32).eq(order.iter().copied()), "{name}");
            let backwards: Vec<u16> = expected.into_iter().rev().collect();
            assert!(bits(read(array.sort_descending()).expect("f16")) == backwards, "{name} {length}");
        }
    }
}

#[test]
fn pairs_are_stable_and_the_largest_come_first() {
    let mut random = Random(22);
    for (name, engine) in engines() {
        for length in lengths(name) {
            let keys: Vec<u32> = (0..length).map(|_| random.below(50) as u32).collect();
            let values: Vec<f32> = (0..length).map(|i| i as f32).collect();
            let mut pairs: Vec<(u32, f32)> = keys.iter().copied().zip(values.iter().copied()).collect();
            pairs.sort_by_key(|pair| pair.0);
            let (array, with) = (engine.array(&keys).expect("keys"), engine.array(&values).expect("values"));
            let (sorted, moved) = array.sort_with(&with).expect("sorted");
            let found: Vec<(u32, f32)> =
                sorted.to_vec().expect("keys").into_iter().zip(moved.to_vec().expect("values")).collect();
            assert!(found == pairs, "{name} {length}");
            let mut order: Vec<u32> = (0..length as u32).collect();
            order.sort_by_key(|&at| keys[at as usize]);
            assert!(read(array.argsort()).expect("u32") == order, "{name} {length}");
            let count = length.min(10);
            let mut best: Vec<(u32, u32)> = keys.iter().copied().zip(0..).collect();
            best.sort_by_key(|&(key, at)| (std::cmp::Reverse(key), at));
            let (largest, positions) = array.top_k(count).expect("top");
            assert_eq!(
                largest.to_vec().expect("keys"),
                best[..count].iter().map(|pair| pair.0).collect::<Vec<_>>(),
                "{name}"
            );
            assert_eq!(
                positions.to_vec().expect("at"),
                best[..count].iter().map(|pair| pair.1).collect::<Vec<_>>(),
                "{name}"
            );
        }
    }
}

#[test]
fn histograms_of_few_and_many_bins() {
    let mut random = Random(23);
    for (name, engine) in engines() {
        for length in lengths(name) {
            for bins in [0usize, 1, 7, 256, 5000] {
                let keys: Vec<u32> = (0..length).map(|_| random.below(bins + 3) as u32).collect();
                let mut counts = vec![0u32; bins];
                keys.iter().for_each(|&key| {
                    if let Some(count) = counts.get_mut(key as usize) {
                        *count += 1;
                    }
                });
                let array = engine.array(&keys).expect("keys");
                assert!(read(array.histogram(bins)).expect("u32") == counts, "{name} {length} {bins}");
            }
            let equal = engine.array(&vec![3u32; length]).expect("keys");
            assert_eq!(read(equal.histogram(4)).expect("u32"), [0, 0, 0, length as u32], "{name} {length}");
        }
    }
}

#[test]
fn the_largest_of_many_are_found() {
    let mut random = Random(24);
    for (name, engine) in engines() {
        let is_slow = name != "cpu" && !name.starts_with("cuda");
        for (length, counts) in [(32_768, &[1, 64][..]), (100_001, &[64, 2048, 2049, 25_000][..])] {
            let counts = if is_slow { &counts[..1] } else { counts };
            let many = random.units(length);
            let few: Vec<f32> = (0..length).map(|_| [-0.0, 0.0, f32::NAN, -1e30, 3.0][random.below(5)]).collect();
            for (kind, x) in [("many", many), ("few", few), ("one", vec![-7.5; length])] {
                let array = engine.array(&x).expect("x");
                let mut order: Vec<u32> = (0..length as u32).collect();
                order.sort_by(|&a, &b| x[b as usize].total_cmp(&x[a as usize]).then(a.cmp(&b)));
                for &count in counts {
                    let told = format!("{name} {length} {kind} {count}");
                    let (values, positions) = array.top_k(count).expect("top");
                    assert!(positions.to_vec().expect("at") == order[..count], "{told}");
                    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                    let expected: Vec<f32> = order[..count].iter().map(|&at| x[at as usize]).collect();
                    assert!(bits(&values.to_vec().expect("values")) == bits(&expected), "{told}");
                }
            }
        }
    }
}

#[test]
fn the_largest_of_each_row_are_found() {
    let mut random = Random(25);
    for (name, engine) in engines() {
        let is_slow = name != "cpu" && !name.starts_with("cuda");
        for (rows, along, counts) in
            [(3, 40, &[1, 40][..]), (2, 2048, &[64, 512, 513][..]), (5, 5001, &[33][..]), (1, 70_001, &[100][..])]
        {
            let counts = if is_slow { &counts[..1] } else { counts };
            let length = rows * along;
            let many = random.units(length);
            let few: Vec<f32> = (0..length).map(|_| [-0.0, 0.0, f32::NAN, -1e30, 3.0][random.below(5)]).collect();
            let kinds = [("few", few), ("many", many), ("one", vec![-7.5; length])];
            // Software takes a while for each element.
            let kinds = kinds.into_iter().take(if is_slow { usize::from(along < 5000) } else { 3 });
            for (kind, x) in kinds {
                let array = engine.from_shape([rows, along], &x).expect("x");
                for &count in counts {
                    let (mut places, mut expected): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
                    for row in x.chunks(along) {
                        let mut order: Vec<u32> = (0..along as u32).collect();
                        order.sort_by(|&a, &b| row[b as usize].total_cmp(&row[a as usize]).then(a.cmp(&b)));
                        expected.extend(order[..count].iter().map(|&at| row[at as usize].to_bits()));
                        places.extend(&order[..count]);
                    }
                    let told = format!("{name} {rows} x {along} {kind} {count}");
                    let (values, positions) = array.top_k_axis(count, 1).expect("top");
                    assert_eq!((values.shape(), positions.shape()), (&[rows, count][..], &[rows, count][..]), "{told}");
                    assert!(positions.to_vec().expect("at") == places, "{told}");
                    let found: Vec<u32> = values.to_vec().expect("values").into_iter().map(f32::to_bits).collect();
                    assert!(found == expected, "{told}");
                    // Of an expression there is no function, but the kernel everywhere.
                    let (_, positions) = (&array * 2.0).top_k_axis(count, 1).expect("top");
                    assert!(positions.to_vec().expect("at") == places, "{told} of an expression");
                }
            }
        }
        let table = engine.from_shape([2, 3], &[1i32, -5, 9, 4, 4, 0]).expect("x");
        let (values, positions) = table.top_k_axis(1, 0).expect("top");
        assert_eq!((values.to_vec().expect("i32"), positions.to_vec().expect("at")), (vec![4, 4, 9], vec![1, 1, 0]));
        assert!(table.top_k_axis(3, 0).is_err() && table.top_k_axis(1, 2).is_err(), "{name}");
        assert_eq!(table.top_k_axis(0, 1).expect("none").0.shape(), [2, 0], "{name}");
    }
}
