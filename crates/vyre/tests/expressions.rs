//! Expressions on arrays: their values on every backend that is here, how many kernels they are, and what is refused.

use vyre::expression::Fused;
use vyre::{Array, Engine, Error, Expression, Number};

/// One engine for each backend of this machine that computes, and its name.
fn engines() -> Vec<(String, Engine)> {
    let all = Engine::builder().without_disk().open().expect("the engine opens");
    let mut engines = Vec::new();
    for device in all.devices() {
        if device.state.is_ok() && device.id.as_str() != "reference" {
            let name = device.id.as_str().to_owned();
            let engine = Engine::builder()
                .without_disk()
                .without_default_backends()
                .with_backend(all.backend(&name).expect("it is present"), 1)
                .open()
                .expect("the engine opens");
            engines.push((name, engine));
        }
    }
    assert!(engines.iter().any(|(name, _)| name == "cpu"), "the processor is always here");
    engines
}

fn cpu() -> Engine {
    engines().into_iter().find(|(name, _)| name == "cpu").expect("it is here").1
}

/// The elements, or `None` where the backend has no such type.
fn values<T: Number>(expression: &Expression<T>) -> Option<Vec<T>> {
    match expression.eval().and_then(|array| array.to_vec()) {
        Ok(values) => Some(values),
        Err(error) if lacks_type(&error) => None,
        Err(error) => panic!("{error:?}"),
    }
}

fn lacks_type(error: &Error) -> bool {
    error.message().contains("f64") || error.message().contains("64") || error.message().contains("f16")
}

#[test]
fn chains_are_computed_as_written() {
    for (name, engine) in engines() {
        let n = 1000;
        let x: Vec<f32> = (0..n).map(|i| i as f32 * 0.37 - 100.0).collect();
        let y: Vec<f32> = (0..n).map(|i| (i % 7) as f32 + 0.5).collect();
        let (a, b) = (engine.array(&x).expect("x"), engine.array(&y).expect("y"));
        let chain = (&a * &b + 1.0) / (2.0 - &b) - a.lazy().abs().sqrt();
        let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| (x * y + 1.0) / (2.0 - y) - x.abs().sqrt()).collect();
        assert_eq!(values(&chain).expect("f32"), expected, "{name}");
        let cut = a.lazy().lt(&b).select(&b * 2.0, -&a).cast::<i32>() % 5;
        let expected: Vec<i32> = x.iter().zip(&y).map(|(x, y)| (if x < y { y * 2.0 } else { -x }) as i32 % 5).collect();
        assert_eq!(values(&cut).expect("i32"), expected, "{name}");
        let bits = (a.lazy().bit_cast::<u32>() >> 3) ^ a.lazy().bit_cast::<u32>();
        let expected: Vec<u32> = x.iter().map(|x| (x.to_bits() >> 3) ^ x.to_bits()).collect();
        assert_eq!(values(&bits).expect("u32"), expected, "{name}");
        let either = a.lazy().gt(0.0) & b.lazy().le(3.5) | a.lazy().eq(-100.0);
        let expected: Vec<u32> =
            x.iter().zip(&y).map(|(&x, &y)| u32::from(x > 0.0 && y <= 3.5 || x == -100.0)).collect();
        assert_eq!(either.eval().and_then(|array| array.to_vec()).expect("bool"), expected, "{name}");
    }
}

#[test]
fn every_type_computes_where_the_device_has_it() {
    fn whole<T: Number + std::fmt::Debug>(engine: &Engine, numbers: &[T], double: fn(T) -> T) -> bool
    where
        Expression<T>: From<T>,
    {
        let array = engine.array(numbers).expect("array");
        let Some(sums) = values(&(&array + &array)) else { return false };
        assert_eq!(sums, numbers.iter().map(|&x| double(x)).collect::<Vec<_>>());
        let scaled = values(&(&array + numbers[0])).expect("the same type");
        assert!(scaled[0] == double(numbers[0]));
        true
    }
    let mut wide = 0;
    for (_, engine) in engines() {
        assert!(whole(&engine, &[1i32, -2, i32::MAX], |x| x.wrapping_add(x)));
        assert!(whole(&engine, &[1u32, 2, u32::MAX], |x| x.wrapping_add(x)));
        wide += u32::from(whole(&engine, &[1i64 << 40, -2, i64::MAX], |x| x.wrapping_add(x)));
        wide += u32::from(whole(&engine, &[1u64 << 40, 2, u64::MAX], |x| x.wrapping_add(x)));
        wide += u32::from(whole(&engine, &[1.5f64, 1e300, -0.1], |x| x + x));
        wide += u32::from(whole(&engine, &[half::f16::from_f32(1.5), half::f16::MAX], |x| x + x));
    }
    assert!(wide >= 4, "the processor has all types");
}

#[test]
fn narrow_elements_are_widened_first() {
    let engine = cpu();
    let bytes = engine.array(&[1u8, 200, 255]).expect("bytes");
    let term = bytes.lazy().term().cast(&vyre::DataType::F32);
    let halves = Expression::<f32>::of(term) / 2.0;
    assert_eq!(halves.eval().and_then(|array| array.to_vec()).expect("f32"), [0.5, 100.0, 127.5]);
}

#[test]
fn shapes_fit_as_in_numpy() {
    for (name, engine) in engines() {
        let table = engine.iota::<f32>(12).and_then(|array| array.shaped([2, 2, 3])).expect("table");
        let row = engine.array(&[10.0f32, 20.0, 30.0]).expect("row");
        let column = engine.from_shape([2, 1, 1], &[100.0f32, 200.0]).expect("column");
        let middle = engine.from_shape([2, 1], &[1000.0f32, 2000.0]).expect("middle");
        let sum = (&table + &row + &column + &middle).eval().expect("sum");
        assert_eq!(sum.shape(), [2, 2, 3]);
        let mut expected = Vec::new();
        for i in 0..12 {
            let (outer, mid, inner) = (i / 6, i / 3 % 2, i % 3);
            expected.push(i as f32 + [10.0, 20.0, 30.0][inner] + [100.0, 200.0][outer] + [1000.0, 2000.0][mid]);
        }
        assert_eq!(sum.to_vec().expect("sum"), expected, "{name}");
        let outer = (&row * &engine.from_shape([2, 1], &[1.0f32, -1.0]).expect("signs")).eval().expect("outer");
        assert_eq!(
            (outer.shape(), outer.to_vec().expect("outer")),
            (&[2, 3][..], vec![10.0, 20.0, 30.0, -10.0, -20.0, -30.0])
        );
    }
}

#[test]
fn the_second_evaluation_compiles_nothing_and_one_value_is_one_kernel() {
    let engine = cpu();
    let compiles = || engine.metrics().counter(vyre::metrics::Counter::Compiles);
    let run = |length: usize, factor: f32| -> Vec<f32> {
        let a = engine.iota::<f32>(length).expect("iota");
        ((&a * factor).exp() + 1.0 + (&a * factor).exp()).eval().and_then(|array| array.to_vec()).expect("value")
    };
    let first = run(100, 0.5);
    let before = compiles();
    let second = run(100, 0.25);
    assert_ne!(first, second);
    assert_eq!(compiles(), before);
    let a = engine.iota::<f32>(8).expect("iota");
    let doubled = &a * 2.0;
    let twice = (&doubled + &doubled) * (&a * 2.0);
    let lines = Fused::new(&[twice.term()]).expect("fits").lines("i", "").0;
    assert_eq!(lines.lines().count(), 4, "a load, a product, a sum and a product:\n{lines}");
    // What has been computed is read.
    doubled.eval().expect("doubled");
    let lines = Fused::new(&[twice.term()]).expect("fits").lines("i", "").0;
    assert!(lines.contains("x0[i]") && lines.contains("x1[i]"), "{lines}");
}

#[test]
fn keys_tell_apart_what_texts_do() {
    let engine = cpu();
    let of = |shape: &[usize]| {
        let count = shape.iter().product::<usize>();
        engine.from_shape(shape, &vec![1.0f32; count]).expect("an array").lazy()
    };
    let (a, b, row, column, one) = (of(&[4, 100]), of(&[4, 100]), of(&[100]), of(&[4, 1]), of(&[2, 200]));
    let words = a.cast::<u32>();
    let floats = [
        a.clone(),
        &a + &b,
        &a + &a,
        &b + &a,
        &a - &b,
        &a + 1.0,
        &a + 2.0,
        (&a + 1.0) * 1.0,
        (&a + 1.0) * 2.0,
        &a + &row,
        &a + &column,
        &one + 1.0,
        -&a,
        a.abs(),
        a.sqrt(),
        a.mul_add(&b, &a),
        a.mul_add(&a, &b),
        a.lt(&b).select(&a, &b),
        a.lt(&b).select(&b, &a),
        (&a * &b + 1.0) / (2.0 - &b),
        words.cast::<f32>(),
        words.bit_cast::<f32>(),
        (&words / 3).cast::<f32>(),
        (&words / 300).cast::<f32>(),
        (&words + 3).cast::<f32>(),
        engine.positions([4, 100]).cast::<f32>(),
        engine.positions([4, 100]).cast::<f32>() + &a,
    ];
    let both = |expression: &Expression<f32>| {
        let fused = Fused::new(&[expression.term()]).expect("fits");
        let (lines, values) = fused.lines("i", "");
        (fused.key(), format!("{}{}{lines}{values:?}", fused.declarations(0, None), fused.uniform_lines()))
    };
    let all: Vec<(String, String)> = floats.iter().map(both).collect();
    for (at, (key, text)) in all.iter().enumerate() {
        for (other_key, other_text) in &all[at + 1..] {
            assert_eq!(key == other_key, text == other_text, "{key} {other_key}\n{text}\n{other_text}");
        }
    }
    assert_eq!(all[1], all[3], "arrays are told apart by their order alone");
    assert_eq!(all[5], all[6], "numbers are given with each launch");
}

#[test]
fn expressions_hold_the_value_that_arrays_had() {
    let engine = cpu();
    let mut a = engine.array(&[1.0f32, 2.0]).expect("a");
    let later = &a + 1.0;
    a.write(&[10.0, 20.0]).expect("written");
    assert_eq!(later.eval().and_then(|array| array.to_vec()).expect("value"), [2.0, 3.0]);
    assert_eq!((&a + 1.0).eval().and_then(|array| array.to_vec()).expect("value"), [11.0, 21.0]);
}

#[test]
fn more_arrays_than_a_kernel_can_have_and_deep_chains_are_computed_in_parts() {
    for (name, engine) in engines() {
        let arrays: Vec<Array<f32>> = (0..23).map(|i| engine.full(10, i as f32).expect("full")).collect();
        let mut sum = &arrays[0] + 0.0;
        let mut any = arrays[0].lazy().gt(21.5);
        for array in &arrays[1..] {
            sum = sum + array;
            any = any | array.lazy().gt(21.5);
        }
        assert_eq!(values(&sum).expect("f32"), [253.0; 10], "{name}");
        assert_eq!(any.eval().and_then(|array| array.to_vec()).expect("bool"), [1; 10], "{name}");
    }
    let engine = cpu();
    let mut long = engine.full(3, 0.0f32).expect("zeros").lazy();
    for _ in 0..2000 {
        long = long + 1.0;
    }
    assert_eq!(values(&long).expect("f32"), [2000.0; 3]);
}

#[test]
fn empty_single_and_odd_lengths() {
    for (name, engine) in engines() {
        for length in [0usize, 1, 31, 33, 1025] {
            let a = engine.iota::<u32>(length).expect("iota");
            let b = (&a * 3 + 1).eval().expect("b");
            assert_eq!(b.to_vec().expect("b"), (0..length as u32).map(|i| i * 3 + 1).collect::<Vec<_>>(), "{name}");
        }
    }
}

#[test]
fn mistakes_are_told_when_the_value_is_asked_for() {
    let engine = cpu();
    let a = engine.array(&[1.0f32, 2.0]).expect("a");
    let b = engine.array(&[1.0f32, 2.0, 3.0]).expect("b");
    let error = ((&a + &b) * 2.0).eval().expect_err("shapes don't fit");
    assert_eq!(error.code(), "V1311");
    let error = (!a.lazy()).eval().expect_err("no bits of floats");
    assert_eq!(error.code(), "V1314");
    let error = Expression::from(1.0f32).eval().expect_err("a number has no shape");
    assert_eq!(error.code(), "V1311");
    let error = a.lazy().bit_cast::<u64>().eval().expect_err("another size");
    assert_eq!(error.code(), "V1314");
    let error = engine.positions([1 << 20, 1 << 20]).eval().expect_err("too many");
    assert_eq!(error.code(), "V1311");
}
