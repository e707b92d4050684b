use vyre::Number;
use vyre_ops::Ops;

use crate::support::{Random, engines, lengths, read};

/// The order that the page on ops states, in plain Rust.
fn in_order<S: Copy>(elements: &[S], neutral: S, put: &dyn Fn(S, S) -> S) -> S {
    let mut blocks: Vec<S> = Vec::new();
    for block in elements.chunks(16384) {
        let mut columns = [neutral; 256];
        for (at, &element) in block.iter().enumerate() {
            columns[at % 256] = put(columns[at % 256], element);
        }
        let mut half = 128;
        while half > 0 {
            for c in 0..half {
                columns[c] = put(columns[c], columns[c + half]);
            }
            half /= 2;
        }
        blocks.push(columns[0]);
    }
    match blocks[..] {
        [] => neutral,
        [one] => one,
        _ => in_order(&blocks, neutral, put),
    }
}

fn sum_of(elements: &[f32]) -> f32 {
    in_order(elements, -0.0, &|a, b| a + b) + 0.0
}

#[test]
fn sums_of_floats_have_the_stated_order() {
    let mut random = Random(1);
    for (name, engine) in engines() {
        for length in lengths(name) {
            let x = random.units(length);
            let array = engine.array(&x).expect("x");
            assert_eq!(read(array.sum()).expect("f32"), [sum_of(&x)], "{name} {length}");
            let squares: Vec<f32> = x.iter().map(|x| x * x + 1.0).collect();
            let expression = &array * &array + 1.0;
            assert_eq!(read(expression.sum()).expect("f32"), [sum_of(&squares)], "{name} {length}");
            let mean = sum_of(&x) / length as f32;
            let found = read(array.mean()).expect("f32")[0];
            assert!(found == mean || found.is_nan() && length == 0, "{name} {length}: {found} {mean}");
            let distances: Vec<f32> = x.iter().map(|x| (x - mean) * (x - mean)).collect();
            let variance = sum_of(&distances) / length as f32;
            let found = read(array.variance()).expect("f32")[0];
            assert!(found == variance || found.is_nan() && length == 0, "{name} {length}: {found} {variance}");
        }
    }
}

#[test]
fn whole_numbers_wrap_and_extremes_are_found() {
    let mut random = Random(2);
    for (name, engine) in engines() {
        for length in lengths(name) {
            let x = random.words(length);
            let array = engine.array(&x).expect("x");
            let told = format!("{name} {length}");
            assert_eq!(read(array.sum()).expect("u32")[0], x.iter().fold(0, |a: u32, b| a.wrapping_add(*b)), "{told}");
            assert_eq!(
                read(array.product()).expect("u32")[0],
                x.iter().fold(1, |a: u32, b| a.wrapping_mul(*b)),
                "{told}"
            );
            assert_eq!(read(array.min()).expect("u32")[0], x.iter().copied().min().unwrap_or(u32::MAX), "{told}");
            assert_eq!(read(array.max()).expect("u32")[0], x.iter().copied().max().unwrap_or(0), "{told}");
            assert_eq!(read(array.any()).expect("u32")[0], u32::from(x.iter().any(|x| *x != 0)), "{told}");
            assert_eq!(read(array.all()).expect("u32")[0], u32::from(x.iter().all(|x| *x != 0)), "{told}");
            let signed: Vec<i32> = x.iter().map(|&x| (x % 100) as i32 - 50).collect();
            let array = engine.array(&signed).expect("signed");
            let least = (0..length).min_by_key(|&at| (signed[at], at)).map_or(u32::MAX, |at| at as u32);
            let most = (0..length).min_by_key(|&at| (-signed[at], at)).map_or(u32::MAX, |at| at as u32);
            assert_eq!(read(array.argmin()).expect("i32")[0], least, "{told}");
            assert_eq!(read(array.argmax()).expect("i32")[0], most, "{told}");
        }
    }
}

#[test]
fn nan_wins_and_the_first_of_equal_ones() {
    for (name, engine) in engines() {
        for at in [0usize, 3, 300, 999] {
            let mut x = vec![1.5f32; 1000];
            x[17] = f32::NEG_INFINITY;
            x[500] = f32::INFINITY;
            let plain = engine.array(&x).expect("x");
            assert_eq!(read(plain.argmin()).expect("f32"), [17], "{name}");
            assert_eq!(read(plain.argmax()).expect("f32"), [500], "{name}");
            x[at] = f32::NAN;
            let array = engine.array(&x).expect("x");
            assert!(read(array.min()).expect("f32")[0].is_nan(), "{name} {at}");
            assert!(read(array.max()).expect("f32")[0].is_nan(), "{name} {at}");
            assert!(read(array.sum()).expect("f32")[0].is_nan(), "{name} {at}");
            assert_eq!(read(array.argmin()).expect("f32"), [at as u32], "{name}");
            assert_eq!(read(array.argmax()).expect("f32"), [at as u32], "{name}");
        }
        let zeros = engine.array(&[-0.0f32, -0.0]).expect("zeros");
        assert_eq!(read(zeros.sum()).expect("f32")[0].to_bits(), 0, "{name}");
        let infinite = engine.array(&[f32::INFINITY; 40]).expect("x");
        assert_eq!(read(infinite.argmin()).expect("f32"), [0], "{name}");
    }
}

#[test]
fn along_every_axis_of_shapes_of_all_kinds() {
    let shapes: &[[usize; 3]] = &[
        [3, 5, 7],
        [1, 1, 1],
        [2, 0, 3],
        [0, 4, 2],
        [40, 33, 20],
        [2, 300, 17],
        [5, 17000, 3],
        [7, 2, 16500],
        [600, 31, 1],
        [3, 300, 700],
    ];
    let mut random = Random(3);
    for (name, engine) in engines() {
        for &[a, b, c] in shapes {
            let x = random.units(a * b * c);
            let array = engine.from_shape([a, b, c], &x).expect("x");
            for axis in 0..3 {
                let [outer, along, inner] = [[1, a, b * c], [a, b, c], [a * b, c, 1]][axis];
                let line =
                    |o: usize, i: usize| -> Vec<f32> { (0..along).map(|k| x[(o * along + k) * inner + i]).collect() };
                let all: Vec<Vec<f32>> =
                    (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))).map(|(o, i)| line(o, i)).collect();
                let told = format!("{name} {a} {b} {c} axis {axis}");
                let sums = array.sum_axis(axis).expect("sums");
                let mut shape = vec![a, b, c];
                shape.remove(axis);
                assert_eq!(sums.shape(), shape, "{told}");
                let expected: Vec<f32> = all.iter().map(|line| sum_of(line)).collect();
                assert_eq!(read(Ok(sums)).expect("f32"), expected, "{told}");
                let least: Vec<u32> = all
                    .iter()
                    .map(|line| {
                        (0..along).min_by(|&i, &j| line[i].total_cmp(&line[j])).map_or(u32::MAX, |at| at as u32)
                    })
                    .collect();
                assert_eq!(read(array.argmin_axis(axis)).expect("f32"), least, "{told}");
                let variances = read(array.variance_axis(axis)).expect("f32");
                for (line, found) in all.iter().zip(variances) {
                    let mean = sum_of(line) / along as f32;
                    let distances: Vec<f32> = line.iter().map(|x| (x - mean) * (x - mean)).collect();
                    let expected = sum_of(&distances) / along as f32;
                    assert!(found == expected || along == 0 && found.is_nan(), "{told}: {found} {expected}");
                }
            }
        }
    }
}

#[test]
fn wide_and_half_types() {
    fn sum<T: Number>(engine: &vyre::Engine, x: &[T]) -> Option<T> {
        read(engine.array(x).expect("x").sum()).map(|all| all[0])
    }
    let mut wide = 0;
    for (name, engine) in engines() {
        let x: Vec<f64> = (0..20_000).map(|i| f64::from(i) * 0.1).collect();
        if let Some(found) = sum(engine, &x) {
            assert_eq!(found, in_order(&x, -0.0, &|a, b| a + b) + 0.0, "{name}");
            wide += 1;
        }
        let x: Vec<u64> = (0..2_000).map(|i| i << 40).collect();
        if let Some(found) = sum(engine, &x) {
            assert_eq!(found, x.iter().sum::<u64>(), "{name}");
            wide += 1;
        }
        let x: Vec<i64> = (0..300).map(|i| (i - 150) << 40).collect();
        if let Some(found) = read(engine.array(&x).expect("x").argmin()) {
            assert_eq!(found, [0], "{name}");
            wide += 1;
        }
        let x = vec![half::f16::from_f32(0.1); 5000];
        if let Some(found) = sum(engine, &x) {
            let wide: Vec<f32> = x.iter().map(|x| x.to_f32()).collect();
            assert_eq!(found, half::f16::from_f32(sum_of(&wide)), "{name}");
        }
    }
    assert!(wide >= 3, "the processor has all types");
}

#[test]
fn what_does_not_fit_is_told() {
    let (_, engine) = &engines()[0];
    let array = engine.array(&[1u32, 2]).expect("x");
    assert_eq!(array.mean().expect_err("whole numbers").code(), "V1314");
    assert_eq!(array.sum_axis(1).expect_err("no such axis").code(), "V1311");
    assert_eq!(array.value().expect_err("two").code(), "V1311");
    assert_eq!(vyre::Expression::from(1u32).sum().expect_err("no array").code(), "V1311");
}

#[test]
fn columns_longer_than_a_block() {
    let [along, inner] = [16_390, 1040];
    for (name, engine) in engines().iter().filter(|(name, _)| name == "cpu") {
        let x = Random(5).words(along * inner);
        let mut expected = vec![0u32; inner];
        for row in x.chunks_exact(inner) {
            expected.iter_mut().zip(row).for_each(|(sum, x)| *sum = sum.wrapping_add(*x));
        }
        let array = engine.from_shape([along, inner], &x).expect("x");
        assert_eq!(read(array.sum_axis(0)).expect("u32"), expected, "{name}");
    }
}
