use vyre_ops::{Ops, Random as Numbers};

use crate::support::{Random, engines, read};

#[test]
fn axes_are_put_in_any_order() {
    let mut random = Random(40);
    for (name, engine) in engines() {
        for shape in [[1usize, 1, 1], [2, 3, 4], [3, 33, 65], [1, 100, 31], [0, 3, 2]] {
            let x = random.words(shape.iter().product());
            let array = engine.from_shape(shape, &x).expect("x");
            for order in [[0usize, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
                let found = array.permute(&order).expect("permuted");
                let turned = order.map(|axis| shape[axis]);
                assert_eq!(found.shape(), turned, "{name}");
                let mut expected = Vec::new();
                for i in 0..turned[0] {
                    for j in 0..turned[1] {
                        for k in 0..turned[2] {
                            let mut at = [0; 3];
                            at[order[0]] = i;
                            at[order[1]] = j;
                            at[order[2]] = k;
                            expected.push(x[(at[0] * shape[1] + at[1]) * shape[2] + at[2]]);
                        }
                    }
                }
                assert!(read(Ok(found)).expect("u32") == expected, "{name} {shape:?} {order:?}");
            }
        }
        let row = engine.array(&[1u32, 2]).expect("row");
        assert_eq!(row.transpose().expect_err("one axis").code(), "V1311");
        assert_eq!(row.permute(&[1]).expect_err("no such axis").code(), "V1311");
    }
}

#[test]
fn rows_are_gathered_and_scattered() {
    for (name, engine) in engines() {
        let x = engine.from_shape([3, 2], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).expect("x");
        let at = engine.array(&[2u32, 0, 7, u32::MAX, 2]).expect("at");
        let rows = x.gather(&at).expect("rows");
        assert_eq!(rows.shape(), [5, 2], "{name}");
        assert_eq!(rows.to_vec().expect("rows"), [5.0, 6.0, 1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 5.0, 6.0], "{name}");
        let at = engine.array(&[1u32, 9]).expect("at");
        let values = engine.from_shape([2, 2], &[10.0f32, 20.0, 30.0, 40.0]).expect("values");
        let written = x.scatter(&at, &values).expect("written");
        assert_eq!(written.to_vec().expect("written"), [1.0, 2.0, 10.0, 20.0, 5.0, 6.0], "{name}");
        assert_eq!(x.to_vec().expect("x"), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "{name}: the array itself is unchanged");
        let added = x.scatter_add(&at, &values).expect("added");
        assert_eq!(added.to_vec().expect("added"), [1.0, 2.0, 13.0, 24.0, 5.0, 6.0], "{name}");
        let counts = engine.zeros::<u32>(5).expect("zeros");
        let keys = engine.array(&[4u32, 1, 4, 4, 9]).expect("keys");
        let ones = engine.full(5, 2u32).expect("twos");
        assert_eq!(read(counts.scatter_add(&keys, &ones)).expect("u32"), [0, 2, 0, 0, 6], "{name}");
    }
}

/// Philox4x32-10 as its authors published it.
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let a = u64::from(counter[0]) * 0xD251_1F53;
        let b = u64::from(counter[2]) * 0xCD9E_8D57;
        counter = [(b >> 32) as u32 ^ counter[1] ^ key[0], b as u32, (a >> 32) as u32 ^ counter[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    counter
}

#[test]
fn random_numbers_are_those_of_philox() {
    // From the known answers of Random123.
    assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    let seed = 0x0123_4567_89ab_cdef;
    let mut normal: Option<Vec<f32>> = None;
    for (name, engine) in engines() {
        let mut numbers = Numbers::new(engine, seed);
        for array in 0..2u32 {
            let found = numbers.words(1001).and_then(|array| array.to_vec()).expect("words");
            let expected: Vec<u32> = (0..251)
                .flat_map(|i| philox([i, 0, array, 0], [seed as u32, (seed >> 32) as u32]))
                .take(1001)
                .collect();
            assert!(found == expected, "{name}");
        }
        let uniform = numbers.uniform([100, 100]).and_then(|array| array.to_vec()).expect("uniform");
        assert!(uniform.iter().all(|x| (0.0..1.0).contains(x)), "{name}");
        let mean = uniform.iter().sum::<f32>() / 1e4;
        assert!((mean - 0.5).abs() < 0.02, "{name}: {mean}");
        let found = numbers.normal(10_000).and_then(|array| array.to_vec()).expect("normal");
        let variance = found.iter().map(|x| x * x).sum::<f32>() / 1e4;
        assert!((variance - 1.0).abs() < 0.05, "{name}: {variance}");
        assert!(normal.get_or_insert_with(|| found.clone()) == &found, "{name} differs");
    }
}
