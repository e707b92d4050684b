use vyre_ops::{Numbers, Ops, Parameters, Plain};

use crate::support::{Random, engines, read};

/// By the definition, in f64.
fn expected(values: &[f32], shape: [usize; 3], inverse: bool) -> Vec<f64> {
    let numbers = values.iter().map(|x| f64::from(*x)).collect();
    let plain = Plain::float(vyre::DataType::F64, shape.to_vec(), numbers);
    let parameters = Parameters { inverse, ..Parameters::default() };
    match vyre_ops::op("fft").expect("an op").reference(&[plain], &parameters).swap_remove(0).numbers {
        Numbers::Float(all) => all,
        Numbers::Whole(_) => panic!("transforms are of floats"),
    }
}

#[test]
fn waves_are_found_and_made() {
    let mut random = Random(50);
    // Every radix alone and together, transforms in one pass and in two.
    let lengths = [1, 2, 3, 4, 5, 6, 7, 8, 9, 20, 49, 64, 105, 512, 600, 1024, 2058, 4374];
    for (at, &points) in lengths.iter().enumerate() {
        for batches in if points < 200 { [1, 300] } else { [1, 3] } {
            let shape = [batches, points, 2];
            let values = random.units(batches * points * 2);
            let inverse = at % 2 == 1;
            let expected = expected(&values, shape, inverse);
            let size = expected.iter().fold(0.0f64, |most, x| most.max(x.abs()));
            let mut first: Option<Vec<f32>> = None;
            for (name, engine) in engines() {
                if name != "cpu" && !name.starts_with("cuda") && points != 20 {
                    continue;
                }
                let x = engine.from_shape(shape, &values).expect("an array");
                let found = if inverse { x.inverse_fft() } else { x.fft() };
                let found = read(found).expect("f32 is everywhere");
                assert_eq!(found.len(), expected.len());
                for (at, (found, wanted)) in found.iter().zip(&expected).enumerate() {
                    let far = (f64::from(*found) - wanted).abs();
                    assert!(far <= 2e-6 * size, "{name} {points}, {batches}: element {at} is {found}, not {wanted}");
                }
                if points <= 1024 {
                    assert_eq!(first.get_or_insert_with(|| found.clone()), &found, "{name} {points}: the same bits");
                }
            }
        }
    }
}

#[test]
fn what_goes_there_comes_back() {
    let (_, engine) = &engines()[0];
    let mut random = Random(51);
    // The last ones in three passes, on devices with many invocations and everywhere.
    for (batches, points) in [(3, 1 << 14), (3, 1 << 16), (1, 1 << 20), (1, 1 << 23), (1, 3 << 23)] {
        let values = random.units(2 * batches * points);
        let x = engine.from_shape([batches, points, 2], &values).expect("an array");
        let back = read(x.fft().and_then(|waves| waves.inverse_fft())).expect("f32");
        for (found, wanted) in back.iter().zip(&values) {
            assert!((found - wanted).abs() < 2e-6, "{points}: {found}, not {wanted}");
        }
    }
}

/// Processors take long transforms some at a time through both passes; each is what it is alone.
#[test]
fn many_long_transforms_are_each_what_they_are_alone() {
    let (_, engine) = &engines()[0];
    let (batches, points) = (300, 1 << 13);
    let values = Random(53).units(2 * batches * points);
    let x = engine.from_shape([batches, points, 2], &values).expect("an array");
    for inverse in [false, true] {
        let all = read(if inverse { x.inverse_fft() } else { x.fft() }).expect("f32");
        for at in [0, 1, 31, 32, 33, 255, 256, 299] {
            let own = 2 * at * points..2 * (at + 1) * points;
            let alone = engine.from_shape([1, points, 2], &values[own.clone()]).expect("an array");
            let alone = read(if inverse { alone.inverse_fft() } else { alone.fft() }).expect("f32");
            assert!(alone == all[own], "{at} {inverse}");
        }
    }
}

/// Elements of an array may come four at a time, those of an expression come one by one.
#[test]
fn stencils_of_arrays_and_of_expressions_are_the_same() {
    use vyre_ops::Boundary;
    let mut random = Random(52);
    let windows: [&[usize]; 4] = [&[3, 3], &[1, 11], &[5, 4], &[3, 2, 3]];
    for shape in [[1, 1, 4], [2, 33, 132], [3, 40, 260], [2, 7, 8]] {
        for sides in windows {
            let values = random.units(shape.iter().product());
            let weights: Vec<f64> =
                random.units(sides.iter().product()).iter().map(|weight| f64::from(*weight)).collect();
            for boundary in [Boundary::Zero, Boundary::Edge, Boundary::Wrap, Boundary::Reflect] {
                for (name, engine) in engines() {
                    // Software compiles each kernel slowly.
                    if name != "cpu" && !name.starts_with("cuda") && (boundary != Boundary::Edge || sides.len() == 3) {
                        continue;
                    }
                    let x = engine.from_shape(shape, &values).expect("an array");
                    let own = read(x.stencil(&weights, sides, boundary)).expect("f32 is everywhere");
                    let other = read((x.lazy() * 1.0).stencil(&weights, sides, boundary)).expect("f32 is everywhere");
                    assert_eq!(own, other, "{name} {shape:?} {sides:?} {boundary:?}");
                }
            }
        }
    }
}

#[test]
fn a_wave_has_one_frequency() {
    let (_, engine) = &engines()[0];
    // The first ones in one pass where a workgroup may have so much memory.
    let short = [(1 << 12, 2731), (1 << 13, 4099), (1 << 14, 5), (1 << 14, 12_345)];
    // Columns of 1024 and of 2048 points, and three passes.
    let long =
        [(1 << 20, 777_777), (1 << 21, 1_999_999), (1 << 22, 3_333_333), (1 << 23, 1_234_567), (3 << 23, 20_000_001)];
    for (points, frequency) in short.into_iter().chain(long) {
        let turn = |t: usize| std::f64::consts::TAU * (frequency * t % points) as f64 / points as f64;
        let wave: Vec<f32> = (0..points).flat_map(|t| [turn(t).cos() as f32, turn(t).sin() as f32]).collect();
        let x = engine.from_shape([1, points, 2], &wave).expect("an array");
        let found = read(x.fft()).expect("f32");
        for (at, found) in found.chunks(2).enumerate() {
            let wanted = if at == frequency { points as f32 } else { 0.0 };
            let far = (found[0] - wanted).hypot(found[1]);
            assert!(far < 2e-6 * points as f32, "{points}: {found:?} at {at}, not {wanted}");
        }
    }
}

/// Chains of `fma` over channels, rows and columns of the window, from 0.
fn convolved(
    x: &[f32],
    [n, c, h, w]: [usize; 4],
    by: &[f32],
    [o, _, kh, kw]: [usize; 4],
    stride: usize,
    padding: usize,
) -> Vec<f32> {
    let (down, across) = ((h + 2 * padding - kh) / stride + 1, (w + 2 * padding - kw) / stride + 1);
    let mut all = Vec::with_capacity(n * o * down * across);
    for at in 0..n * o * down * across {
        let (image, output) = (at / (o * down * across), at / (down * across) % o);
        let terms = (0..c * kh * kw).map(|k| {
            let (channel, ky, kx) = (k / (kh * kw), k / kw % kh, k % kw);
            let y = (at / across % down * stride + ky).wrapping_sub(padding);
            let column = (at % across * stride + kx).wrapping_sub(padding);
            let inside = y < h && column < w;
            (by[output * c * kh * kw + k], if inside { x[((image * c + channel) * h + y) * w + column] } else { 0.0 })
        });
        all.push(terms.fold(0.0f32, |sum, (weight, x)| weight.mul_add(x, sum)));
    }
    all
}

#[test]
fn images_are_convolved_in_the_stated_order() {
    let mut random = Random(53);
    // Few and many outputs, channels that fill no tile, odd numbers of them, windows of one element and large ones, results that are no multiples
    // of four.
    let cases = [
        ([2, 3, 9, 10], [4, 3, 3, 3], 1, 1),
        ([2, 3, 9, 10], [16, 3, 3, 3], 1, 1),
        ([3, 5, 13, 11], [70, 5, 3, 3], 2, 1),
        ([1, 16, 8, 8], [64, 16, 1, 1], 1, 0),
        ([1, 11, 9, 8], [33, 11, 1, 1], 1, 0),
        ([2, 7, 12, 12], [20, 7, 5, 5], 1, 2),
        ([2, 3, 12, 12], [130, 3, 2, 2], 2, 0),
        ([1, 4, 3, 17], [16, 4, 3, 1], 1, 3),
        ([1, 2, 12, 12], [16, 2, 7, 7], 3, 2),
    ];
    for (image, window, stride, padding) in cases {
        let x = random.units(image.iter().product());
        let weights = random.units(window.iter().product());
        let twice: Vec<f32> = x.iter().map(|x| 2.0 * x + 1.0).collect();
        for (name, engine) in engines() {
            let [own, by] = [(&x, image), (&weights, window)];
            let own = engine.from_shape(own.1, own.0).expect("an array");
            let by = engine.from_shape(by.1, by.0).expect("an array");
            let found = read(own.convolution(&by, stride, padding)).expect("f32 is everywhere");
            assert_eq!(found, convolved(&x, image, &weights, window, stride, padding), "{name} {image:?} {window:?}");
            // Of an expression; what is around the image is zero all the same.
            let found = read((&own * 2.0 + 1.0).convolution(&by, stride, padding)).expect("f32 is everywhere");
            assert_eq!(
                found,
                convolved(&twice, image, &weights, window, stride, padding),
                "{name} {image:?} {window:?}"
            );
        }
    }
}

#[test]
fn lengths_and_types_that_are_not_taken() {
    let (_, engine) = &engines()[0];
    for shape in [vec![11, 2], vec![4, 3], vec![2], vec![13 * 8192, 2]] {
        let told = engine.full(&shape[..], 1.0f32).expect("an array").fft().expect_err("it does not fit");
        assert!(told.message().contains("Fourier"), "{told}");
    }
    assert!(engine.full([4usize, 2], 1.0f64).expect("an array").fft().is_err());
    assert_eq!(read(engine.full([0usize, 4, 2], 1.0f32).expect("an array").fft()), Some(Vec::new()));
}
